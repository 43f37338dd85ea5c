/*
 * Layers per stage as an integer program.
 *
 *   min T + epsilon sum_k k n_k
 *   T >= n_k layer + extra_k,  sum n_k = L,  1 <= n_k <= memory bound
 *
 * (where the head is alone 0 on the last stage, 0 or more on the one before it)
 *
 * The epsilon term breaks ties towards larger stages first; it is so small
 * that it cannot trade against T (its whole range is under 1e-6 of a layer).
 * The LP relaxation gives T >= (L layer + sum extra) / p, which a rounded
 * solution misses by less than a layer, so branch and bound stays small.
 */
#include "planner/planner.h"

#include <float.h>
#include <glpk.h>
#include <math.h>

/* Branch and bound takes milliseconds; past this it is an error. */
enum { TIME_LIMIT_MS = 5000 };

/* Layers that stage k has at least. */
static int least_of(const struct mw_partition_problem *p, int k)
{
    return p->is_head_alone && k >= p->n_stages - 2 ? 0 : 1;
}

static int all_least(const struct mw_partition_problem *p)
{
    return p->n_stages - (p->is_head_alone ? 2 : 0);
}

/* Most layers that memory allows on stage k; n_layers without a limit. Below
 * least_of: what lies there anyway does not fit. */
static int memory_cap(const struct mw_partition_problem *p, int k)
{
    if (p->is_head_alone && k == p->n_stages - 1) {
        return p->fixed_bytes && p->fixed_bytes[k] > p->limit_bytes ? -1 : 0;
    }
    if (!p->layer_bytes || p->layer_bytes[k] <= 0) {
        return p->n_layers;
    }
    double room = (p->limit_bytes - p->fixed_bytes[k]) / p->layer_bytes[k];
    if (room < 0) {
        return -1;
    }
    return room > p->n_layers ? p->n_layers : (int)floor(room + 1e-9);
}

/* Columns 1..p are n_k, column p + 1 is T, in units of one layer's time. */
static void build(glp_prob *lp, const struct mw_partition_problem *p,
                  const int *cap)
{
    int n = p->n_stages;
    double unit = p->layer_s;
    double epsilon = 1e-6 / ((double)n * (double)p->n_layers);
    glp_set_obj_dir(lp, GLP_MIN);
    glp_add_cols(lp, n + 1);
    glp_add_rows(lp, n + 1);
    int index[3];
    double value[3];
    for (int k = 0; k < n; k++) {
        glp_set_col_kind(lp, k + 1, GLP_IV);
        int least = least_of(p, k);

        glp_set_col_bnds(lp, k + 1, cap[k] > least ? GLP_DB : GLP_FX, least,
                         cap[k]);
        glp_set_obj_coef(lp, k + 1, epsilon * k);
        index[1] = k + 1;
        value[1] = -1;
        index[2] = n + 1;
        value[2] = 1;
        glp_set_mat_row(lp, k + 1, 2, index, value);
        glp_set_row_bnds(lp, k + 1, GLP_LO, p->extra_s[k] / unit, 0);
    }
    glp_set_col_bnds(lp, n + 1, GLP_LO, 0, 0);
    glp_set_obj_coef(lp, n + 1, 1);
    int *all = mw_calloc((size_t)n + 1, sizeof *all);
    double *ones = mw_calloc((size_t)n + 1, sizeof *ones);
    for (int k = 1; k <= n; k++) {
        all[k] = k;
        ones[k] = 1;
    }
    glp_set_mat_row(lp, n + 1, n, all, ones);
    glp_set_row_bnds(lp, n + 1, GLP_FX, p->n_layers, p->n_layers);
    mw_free(all);
    mw_free(ones);
}

static enum mw_status solve(glp_prob *lp, int n, int *out_layers,
                            struct mw_err *err)
{
    glp_smcp simplex;
    glp_init_smcp(&simplex);
    simplex.msg_lev = GLP_MSG_OFF;
    glp_iocp mip;
    glp_init_iocp(&mip);
    mip.msg_lev = GLP_MSG_OFF;
    mip.mir_cuts = GLP_ON;
    mip.tm_lim = TIME_LIMIT_MS;
    int code = glp_simplex(lp, &simplex);
    if (code == 0 && glp_get_status(lp) == GLP_OPT) {
        code = glp_intopt(lp, &mip);
    }
    if (code != 0 || glp_mip_status(lp) != GLP_OPT) {
        return mw_fail(err, MW_EBACKEND,
                       "GLPK did not solve the partition of %d stages (code "
                       "%d, status %d)",
                       n, code, glp_mip_status(lp));
    }
    for (int k = 0; k < n; k++) {
        out_layers[k] = (int)lround(glp_mip_col_val(lp, k + 1));
    }
    return MW_OK;
}

/* ---- without a solver -------------------------------------------------------
 */
/* Layers that stage k can take within time t and its memory. */
static int room_at(const struct mw_partition_problem *p, const int *cap, int k,
                   double t)
{
    double room = (t - p->extra_s[k]) / p->layer_s * (1 + 1e-12) + 1e-9;

    return room < cap[k] ? (int)floor(room) : cap[k];
}

/* Is there a place for all layers, with the least on every stage? */
static bool is_enough(const struct mw_partition_problem *p, const int *cap,
                      double t)
{
    int64_t sum = 0;

    for (int k = 0; k < p->n_stages; k++) {
        int room = room_at(p, cap, k, t);

        if (room < least_of(p, k)) {
            return false;
        }
        sum += room;
    }
    return sum >= p->n_layers;
}

/* The optimum is some stage's time: for each stage the least enough n. */
static double least_enough(const struct mw_partition_problem *p, const int *cap)
{
    double best = HUGE_VAL;

    for (int k = 0; k < p->n_stages; k++) {
        int low = least_of(p, k), high = cap[k];
        bool is_old = high < low;

        for (int j = k < 2 ? 0 : k - 1; j < k; j++) {
            is_old = is_old || (p->extra_s[j] == p->extra_s[k] &&
                                cap[j] >= cap[k] && least_of(p, j) == low);
        }
        if (is_old || !is_enough(p, cap, high * p->layer_s + p->extra_s[k])) {
            continue;
        }
        while (low < high) {
            int middle = (low + high) / 2;

            if (is_enough(p, cap, middle * p->layer_s + p->extra_s[k])) {
                high = middle;
            } else {
                low = middle + 1;
            }
        }
        best = fmin(best, low * p->layer_s + p->extra_s[k]);
    }
    return best;
}

static void take_first(const struct mw_partition_problem *p, const int *cap,
                       double t, int *out_layers)
{
    int left = p->n_layers, others = all_least(p);

    for (int k = 0; k < p->n_stages; k++) {
        int room = room_at(p, cap, k, t);

        others -= least_of(p, k);

        out_layers[k] = room < left - others ? room : left - others;
        left -= out_layers[k];
    }
}

static enum mw_status no_room(const struct mw_partition_problem *p,
                              int64_t room, struct mw_err *err)
{
    return mw_fail(err, MW_ENO,
                   "no partition of %d layers over %d stages fits the memory "
                   "limit (room for %lld)",
                   p->n_layers, p->n_stages, (long long)room);
}

static bool unlike(const struct mw_partition_problem *p, const int *cap,
                   int *out_layers)
{
    int *least = mw_calloc((size_t)p->n_stages, sizeof *least);

    for (int k = 0; k < p->n_stages; k++) {
        least[k] = least_of(p, k);
    }
    bool is_found = mw_partition_unlike(p, least, cap, out_layers);

    mw_free(least);
    return is_found;
}

enum mw_status mw_partition_layers(const struct mw_partition_problem *p,
                                   int *out_layers, struct mw_err *err)
{
    MW_ASSERT(p->layer_s > 0 && p->n_stages > 0, "layer_s %g, stages %d",
              p->layer_s, p->n_stages);
    int *cap = mw_calloc((size_t)p->n_stages, sizeof *cap);
    int64_t room = 0;

    for (int k = 0; k < p->n_stages; k++) {
        cap[k] = memory_cap(p, k);
        room += cap[k] > 0 ? cap[k] : 0;
    }
    enum mw_status status = MW_OK;
    bool is_room = p->n_layers >= all_least(p);

    if (p->layers_s != NULL) {
        is_room = is_room && unlike(p, cap, out_layers);
    } else {
        double t = least_enough(p, cap);

        is_room = is_room && !isinf(t);
        if (is_room) {
            take_first(p, cap, t, out_layers);
        }
    }
    if (!is_room) {
        status = no_room(p, room, err);
    }
    mw_free(cap);
    return status;
}

/* ---- with one --------------------------------------------------------------
 */
enum mw_status mw_partition_solve(const struct mw_partition_problem *p,
                                  int *out_layers, struct mw_err *err)
{
    MW_ASSERT(p->layer_s > 0 && p->n_stages > 0 && p->layers_s == NULL,
              "layer_s %g, stages %d", p->layer_s, p->n_stages);
    int n = p->n_stages;
    int64_t room = 0;
    int *cap = mw_calloc((size_t)n, sizeof *cap);
    bool is_possible = p->n_layers >= all_least(p);
    for (int k = 0; k < n; k++) {
        cap[k] = memory_cap(p, k);
        room += cap[k] > 0 ? cap[k] : 0;
        is_possible = is_possible && cap[k] >= least_of(p, k);
    }
    enum mw_status status = MW_OK;
    if (!is_possible || room < p->n_layers) {
        status = no_room(p, room, err);
    } else {
        glp_term_out(GLP_OFF);
        glp_prob *lp = glp_create_prob();
        build(lp, p, cap);
        status = solve(lp, n, out_layers, err);
        glp_delete_prob(lp);
    }
    mw_free(cap);
    return status;
}
