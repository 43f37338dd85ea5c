/*
 * Layers per stage where layers differ in time (those with an attention window
 * are faster): consecutive layers i .. j on stage k take
 *
 *   sum of layers_s[i .. j] + extra_s[k]
 *
 * Whether T is enough is a program over cuts from the last stage to the first:
 * stages k and on can hold the layers from i on if stage k can take n of them
 * (least .. what T and its memory allow) and stages k + 1 and on the rest. That
 * is a row of flags a stage, each row from the next by counting flags in a
 * range; O(stages x layers). T is halved in on between the mean and what is
 * known to do, and what is known to do is always a partition's own time.
 */
#include "planner/planner.h"

#include <float.h>
#include <math.h>

double mw_partition_slowest(const struct mw_partition_problem *p,
                            const int *layers)
{
    double most = 0;

    for (int k = 0, first = 0; k < p->n_stages; k++) {
        double sum = p->layers_s == NULL ? layers[k] * p->layer_s : 0;

        for (int i = 0; p->layers_s != NULL && i < layers[k]; i++) {
            sum += p->layers_s[first + i];
        }
        first += layers[k];
        most = fmax(most, sum + p->extra_s[k]);
    }
    return most;
}

struct cuts {
    const struct mw_partition_problem *p;
    const int *least, *cap;
    double *before; /* [n_layers + 1]: seconds of the layers before */
    char *can;      /* [n_stages + 1][n_layers + 1] */
    int *sum;       /* [n_layers + 2]: flags of a row before */
};

static char *row_of(const struct cuts *c, int k)
{
    return c->can + (size_t)k * (size_t)(c->p->n_layers + 1);
}

static void count_row(struct cuts *c, const char *row)
{
    c->sum[0] = 0;
    for (int i = 0; i <= c->p->n_layers; i++) {
        c->sum[i + 1] = c->sum[i] + row[i];
    }
}

static int least_of_two(int a, int b)
{
    return a < b ? a : b;
}

/* Is t enough? Leaves the flags for take. */
static bool is_enough(struct cuts *c, double t)
{
    const struct mw_partition_problem *p = c->p;
    int n = p->n_layers;

    for (int i = 0; i <= n; i++) {
        row_of(c, p->n_stages)[i] = i == n;
    }
    for (int k = p->n_stages - 1; k >= 0; k--) {
        double room_s = (t - p->extra_s[k]) * (1 + 1e-12);
        char *row = row_of(c, k);
        int end = n;

        count_row(c, row_of(c, k + 1));
        for (int i = n; i >= 0; i--) {
            while (end > i && c->before[end] - c->before[i] > room_s) {
                end--;
            }
            int from = i + c->least[k];
            int to = least_of_two(end, i + c->cap[k]);

            row[i] = room_s >= 0 && from <= to && to >= 0 &&
                     c->sum[to + 1] > c->sum[from];
        }
    }
    return row_of(c, 0)[0] != 0;
}

/* Larger stages first, as far as the rest can be held. */
static void take(const struct cuts *c, double t, int *out_layers)
{
    const struct mw_partition_problem *p = c->p;
    int first = 0;

    for (int k = 0; k < p->n_stages; k++) {
        double room_s = (t - p->extra_s[k]) * (1 + 1e-12);
        int n = least_of_two(c->cap[k], p->n_layers - first);

        while (c->before[first + n] - c->before[first] > room_s ||
               !row_of(c, k + 1)[first + n]) {
            n--;
        }
        out_layers[k] = n;
        first += n;
    }
}

static double mean_of(const struct cuts *c)
{
    double sum = c->before[c->p->n_layers];

    for (int k = 0; k < c->p->n_stages; k++) {
        sum += c->p->extra_s[k];
    }
    return sum / c->p->n_stages;
}

static bool find(struct cuts *c, int *out_layers)
{
    const struct mw_partition_problem *p = c->p;
    double low = mean_of(c) * (1 - 1e-9), high = c->before[p->n_layers];

    for (int k = 0; k < p->n_stages; k++) {
        high = fmax(high, c->before[p->n_layers] + p->extra_s[k]);
    }
    if (!is_enough(c, high)) {
        return false;
    }
    take(c, high, out_layers);
    high = mw_partition_slowest(p, out_layers);
    while (high - low > 1e-9 * high) {
        double middle = low + (high - low) / 2;

        if (is_enough(c, middle)) {
            take(c, middle, out_layers);
            high = mw_partition_slowest(p, out_layers);
        } else {
            low = middle;
        }
    }
    return true;
}

bool mw_partition_unlike(const struct mw_partition_problem *p, const int *least,
                         const int *cap, int *out_layers)
{
    size_t n = (size_t)p->n_layers + 1;
    struct cuts c = {p,
                     least,
                     cap,
                     mw_calloc(n, sizeof *c.before),
                     mw_calloc(n * ((size_t)p->n_stages + 1), 1),
                     mw_calloc(n + 1, sizeof *c.sum)};

    for (int i = 0; i < p->n_layers; i++) {
        c.before[i + 1] = c.before[i] + p->layers_s[i];
    }
    bool is_found = find(&c, out_layers);

    mw_free(c.before);
    mw_free(c.can);
    mw_free(c.sum);
    return is_found;
}
