/*
 * The busiest rank of an expert-parallel group by one number; see
 * router_load.h. Shares p_r = (r + 1)^-a / sum of all (a Zipf law over ranks,
 * as of experts in sim/coll/moe.h), the exponent by bisection: max over mean is
 * n / sum (r + 1)^-a, which grows with a from 1 to n.
 *
 * Left out: what a single expert of a rank has more than the others, so a
 * capacity drops nothing that a rank as a whole has room for.
 */
#include "sim/step/router_load.h"

#include <math.h>

static double weight_of(int r, double exponent)
{
    return pow(r + 1, -exponent);
}

static double sum_of(int n, double exponent)
{
    double sum = 0;

    for (int r = 0; r < n; r++) {
        sum += weight_of(r, exponent);
    }
    return sum;
}

static double exponent_of(double imbalance, int n)
{
    double low = 0, high = 64; /* 2^-64 of the first for the second */

    for (int i = 0; i < 64; i++) {
        double mid = (low + high) / 2;

        *(n / sum_of(n, mid) < imbalance ? &low : &high) = mid;
    }
    return high;
}

struct mw_router_load mw_router_load_skewed(double imbalance, double capacity,
                                            int ep, int ranks_per_node)
{
    double f = fmin(fmax(imbalance, 1), ep);
    double limit = capacity > 0 ? capacity : (double)INFINITY;
    double synced = fmin(f, limit), dropped = 0, node = 0, most = 0;

    if (!(f > 1)) { /* even */
        dropped = fmax(0, 1 - limit);
        most = synced;
    } else {
        double a = exponent_of(f, ep), sum = sum_of(ep, a);

        for (int r = 0; r < ep; r++) {
            double over_mean = ep * weight_of(r, a) / sum;

            dropped += fmax(0, over_mean - limit) / ep;
            node += fmin(over_mean, limit) / ranks_per_node;
            if ((r + 1) % ranks_per_node == 0 || r + 1 == ep) {
                most = fmax(most, node);
                node = 0;
            }
        }
    }
    return (struct mw_router_load){.synced = synced,
                                   .apart = synced,
                                   .nodes = most,
                                   .held = synced,
                                   .held_p90 = synced,
                                   .dropped = dropped};
}

struct mw_router_load mw_router_load_padded(const struct mw_router_load *load,
                                            double capacity)
{
    return (struct mw_router_load){.synced = capacity,
                                   .apart = capacity,
                                   .nodes = capacity,
                                   .held = capacity,
                                   .held_p90 = capacity,
                                   .dropped = load->dropped};
}
