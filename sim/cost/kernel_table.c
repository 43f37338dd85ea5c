/*
 * The measured kernel table: an exact row, else interpolation of the *rate*
 * (work per second), which varies less than time does.
 *
 * GEMM and attention depend on three sizes. The log of the rate is averaged
 * over the NEAREST rows with weights 1 / d^2, d the distance of (m, n, k) in
 * log space (Shepard, "A two-dimensional interpolation function for
 * irregularly spaced data", ACM National Conference 1968): it needs no grid
 * and is exact at the rows. Attention over part of a sequence has its number of
 * keys as a fourth. Memory-bound operators depend on rows x width;
 * their rate is log-log between the neighbours in that product, which gives
 * the launch floor of small sizes as well.
 *
 * Beyond REACH times the largest or smallest measured work nothing is
 * claimed and the roofline answers.
 */
#include "sim/cost/cost_int.h"

#include "base/stats.h"

#include <float.h>
#include <math.h>

enum { NEAREST = 4, REACH = 64 };

struct key {
    int64_t m, n, k;
    int64_t kv;     /* keys that m queries of attention meet; else m */
    double repeats; /* batched GEMM: so many products of this shape */
};

static bool is_three_dim(enum mw_op_kind kind)
{
    return kind == MW_OP_GEMM || kind == MW_OP_ATTENTION;
}

/* Keys of a causal core with as much work: under a window twice what a query
 * meets on average. */
static int64_t keys_of(const struct mw_op *op)
{
    double met = op->window > 0
                     ? rint(2 * op->work_fraction *
                            (double)(op->window < op->n ? op->window : op->n))
                     : (double)op->n;

    return met > 1 ? (int64_t)met : 1;
}

/* The table's key of an operator (see the list in cost.h). */
static struct key key_of(const struct mw_op *op)
{
    if (op->kind == MW_OP_GEMM) {
        return (struct key){op->m, op->n, op->k, op->m,
                            op->batch > 0 ? (double)op->batch : 1};
    }
    if (op->kind == MW_OP_ATTENTION) {
        return (struct key){op->m, op->batch, op->k, keys_of(op), 1};
    }
    return (struct key){op->m, op->n, 0, op->m, 1};
}

/* The keys that a row's queries meet. */
static int64_t row_kv(const struct mw_kernel_row *row)
{
    return row->kv > 0 ? row->kv : row->m;
}

/* Work in the unit of the rate: attention has a product per pair of tokens. */
static double work_of(enum mw_op_kind kind, const struct key *key)
{
    double work = (double)key->m * (double)key->n;

    if (kind == MW_OP_ATTENTION) {
        return work * (double)key->kv * (double)key->k;
    }
    return kind == MW_OP_GEMM ? work * (double)key->k : work;
}

static double row_work(enum mw_op_kind kind, const struct mw_kernel_row *row)
{
    const struct key key = {row->m, row->n, row->k, row_kv(row), 1};

    return work_of(kind, &key);
}

static bool is_exact(enum mw_op_kind kind, const struct mw_kernel_row *row,
                     const struct key *key)
{
    return row->m == key->m && row->n == key->n &&
           (!is_three_dim(kind) || row->k == key->k) &&
           (kind != MW_OP_ATTENTION || row_kv(row) == key->kv);
}

static double log_distance2(const struct mw_kernel_row *row,
                            const struct key *key)
{
    double dm = log((double)row->m / (double)key->m);
    double dn = log((double)row->n / (double)key->n);
    double dk = log((double)row->k / (double)key->k);
    /* How far from a whole sequence: 0 for products and whole sequences. */
    double dkv = log((double)row_kv(row) / (double)row->m) -
                 log((double)key->kv / (double)key->m);

    return dm * dm + dn * dn + dk * dk + dkv * dkv;
}

/* The NEAREST rows by distance, nearest first; ties keep table order. */
static size_t find_nearest(const struct mw_kernel_set *set,
                           const struct key *key, size_t index[NEAREST],
                           double distance2[NEAREST])
{
    size_t n = 0;

    for (size_t i = 0; i < set->n; i++) {
        double d = log_distance2(&set->row[i], key);
        size_t at = n < NEAREST ? n++ : NEAREST;

        for (; at > 0 && d < distance2[at - 1]; at--) {
            if (at < NEAREST) {
                distance2[at] = distance2[at - 1];
                index[at] = index[at - 1];
            }
        }
        if (at < NEAREST) {
            distance2[at] = d;
            index[at] = i;
        }
    }
    return n;
}

static double shepard_rate(enum mw_op_kind kind,
                           const struct mw_kernel_set *set,
                           const struct key *key, const char **out_source)
{
    size_t index[NEAREST] = {0};
    double distance2[NEAREST] = {0}, sum = 0, weights = 0;
    size_t n = find_nearest(set, key, index, distance2);

    for (size_t i = 0; i < n; i++) {
        const struct mw_kernel_row *row = &set->row[index[i]];
        double weight = 1 / fmax(distance2[i], DBL_MIN);

        sum += weight * log(row_work(kind, row) / row->time_s);
        weights += weight;
    }
    *out_source = set->row[index[0]].source;
    return exp(sum / weights);
}

/* Log-log in rows x width between the neighbours below and above. */
static double product_rate(enum mw_op_kind kind,
                           const struct mw_kernel_set *set, double work,
                           const char **out_source)
{
    const struct mw_kernel_row *below = NULL, *above = NULL;

    for (size_t i = 0; i < set->n; i++) {
        const struct mw_kernel_row *row = &set->row[i];
        double w = row_work(kind, row);

        if (w <= work && (below == NULL || w > row_work(kind, below))) {
            below = row;
        }
        if (w > work && (above == NULL || w < row_work(kind, above))) {
            above = row;
        }
    }
    if (below == NULL || above == NULL) {
        const struct mw_kernel_row *only = below != NULL ? below : set->row;

        if (below == NULL && above != NULL) {
            only = above;
        }

        *out_source = only->source;
        return row_work(kind, only) / only->time_s;
    }
    const double x[2] = {row_work(kind, below), row_work(kind, above)};
    const double y[2] = {x[0] / below->time_s, x[1] / above->time_s};

    *out_source = below->source;
    return mw_loglog_interp(x, y, 2, work);
}

/* Between the least and the largest measured work, times and over `reach`. */
static bool is_within(enum mw_op_kind kind, const struct mw_kernel_set *set,
                      double work, double reach)
{
    double least = DBL_MAX, most = 0;

    for (size_t i = 0; i < set->n; i++) {
        least = fmin(least, row_work(kind, &set->row[i]));
        most = fmax(most, row_work(kind, &set->row[i]));
    }
    return work > 0 && work >= least / reach && work <= most * reach;
}

bool mw_kernel_table_price(const struct mw_cost_ctx *ctx,
                           const struct mw_op *op, struct mw_cost *out,
                           const char **out_source)
{
    const struct mw_kernel_set *set =
        &ctx->kernels[op->kind][op->pass][op->dtype];
    struct key key = key_of(op);
    double work = work_of(op->kind, &key);

    if (set->n == 0) {
        return false;
    }
    for (size_t i = 0; i < set->n; i++) {
        if (is_exact(op->kind, &set->row[i], &key)) {
            *out_source = set->row[i].source;
            *out = (struct mw_cost){set->row[i].time_s * key.repeats,
                                    MW_RUNG_EXACT};
            return true;
        }
    }
    if (!is_within(op->kind, set, work, REACH)) {
        return false;
    }
    double rate = is_three_dim(op->kind)
                      ? shepard_rate(op->kind, set, &key, out_source)
                      : product_rate(op->kind, set, work, out_source);

    *out = (struct mw_cost){work / rate * key.repeats,
                            is_within(op->kind, set, work, 1) ? MW_RUNG_TABLE
                                                              : MW_RUNG_BEYOND};
    return true;
}
