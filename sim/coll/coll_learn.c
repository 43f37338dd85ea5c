/*
 * Fitting the corrections.
 *
 * Knots y (logs of measured / model's time) have the covariance
 *
 *   A = likeness + what a campaign shares + noise          (coll_kernel.c)
 *
 * and the weights of the table are A^-1 y. Without a group I the weights of
 * the others are
 *
 *   w - A^-1[., I] (A^-1[I, I])^-1 w[I]
 *
 * so that one inverse serves every group (Rasmussen and Williams 2006, section
 * 5.4.2, in blocks). The overhead of a harness is found first: corrections
 * fitted on nccl-tests alone predict the small messages of the campaigns of
 * other harnesses, and what is missing is theirs.
 */
#include "sim/coll/coll_fit.h"

#include "base/stats.h"
#include "sim/coll/coll_int.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct mw_coll_learn {
    MW_ARRAY(struct mw_coll_knot) knot;
    MW_ARRAY(struct mw_coll_overhead) overhead;
    MW_ARRAY(struct mw_engine_sample) sample; /* of engines */
    MW_ARRAY(struct mw_engine_row) engine;    /* without samples: as given */
    struct coll_feature *feature;
    double *inverse; /* n x n */
    double *weight;
};

bool mw_coll_group_find(const char *name, enum mw_coll_group *out)
{
    static const char *const names[] = {"unit", "file", "shape"};
    for (int i = 0; i < 3; i++) {
        if (strcmp(name, names[i]) == 0) {
            *out = (enum mw_coll_group)i;
            return true;
        }
    }
    return false;
}

void mw_coll_group_name(enum mw_coll_group by, const char *unit,
                        const char *machine, const char *op, int n_ranks,
                        char *out)
{
    switch (by) {
    case MW_COLL_BY_UNIT:
        snprintf(out, 160, "%s", unit);
        break;
    case MW_COLL_BY_FILE:
        snprintf(out, 160, "%.*s", (int)strcspn(unit, "/"), unit);
        break;
    case MW_COLL_BY_SHAPE:
        snprintf(out, 160, "%s %s %d", machine, op, n_ranks);
        break;
    }
}

/* ---- knots ---- */

static int by_knot(const void *a, const void *b)
{
    const struct mw_coll_knot *x = a, *y = b;
    int d = strcmp(x->campaign, y->campaign);
    d = d ? d : strcmp(x->machine, y->machine);
    d = d ? d : strcmp(x->cls, y->cls);
    d = d ? d : strcmp(x->op, y->op);
    d = d ? d : (x->nodes > y->nodes) - (x->nodes < y->nodes);
    d = d ? d : (x->ranks > y->ranks) - (x->ranks < y->ranks);
    d = d ? d : strcmp(x->algo, y->algo);
    d = d ? d : strcmp(x->proto, y->proto);
    return d ? d
             : (x->log2_bytes > y->log2_bytes) -
                   (x->log2_bytes < y->log2_bytes);
}

static int by_knot_and_ratio(const void *a, const void *b)
{
    const struct mw_coll_knot *x = a, *y = b;
    int d = by_knot(a, b);
    return d ? d : (x->ratio > y->ratio) - (x->ratio < y->ratio);
}

/* The rows that are fitted on, less the overhead of their harness. */
static void collect(struct mw_coll_atlas *atlas,
                    const struct mw_coll_rows *rows, bool tests_only,
                    struct mw_coll_learn *out)
{
    struct mw_coll_fit known = {
        .overhead = {out->overhead.v, out->overhead.n, out->overhead.cap}};
    for (size_t i = 0; i < rows->row.n; i++) {
        const struct mw_coll_row *row = &rows->row.v[i];
        struct mw_coll_world *w = NULL;
        struct mw_coll_answer a;
        struct mw_coll_query q = mw_coll_row_query(row);
        struct mw_coll_knot k;
        if (row->why_not || row->no_fit || q.engine != MW_ENGINE_NONE ||
            (tests_only && q.harness != MW_HARNESS_TESTS) ||
            mw_coll_atlas_world(atlas, row, &w, NULL) != MW_OK ||
            mw_coll_predict(w, MW_COLL_FIT, &q, &a, NULL) != MW_OK ||
            a.time_s <= 0) {
            continue;
        }
        double model_s = (a.time_s - a.overhead_s) / a.ratio;
        double added_s = q.harness == MW_HARNESS_PROFILER
                             ? 0
                             : mw_coll_fit_overhead_s(&known, q.harness);
        mw_coll_keys(w, &q, &a, &k);
        snprintf(k.campaign, sizeof k.campaign, "%s", row->unit);
        k.log2_bytes = round(k.log2_bytes);
        k.ratio = fmax(row->time_s - added_s, .5 * row->time_s) / model_s;
        mw_array_push(&out->knot, k);
    }
    if (out->knot.n > 0) {
        qsort(out->knot.v, out->knot.n, sizeof out->knot.v[0],
              by_knot_and_ratio);
    }
}

/* Equal knots become one with the median ratio: they lie side by side, sorted
 * by ratio. */
static void merge(struct mw_coll_learn *l)
{
    size_t n = 0;
    for (size_t i = 0; i < l->knot.n;) {
        size_t k = 1;
        while (i + k < l->knot.n &&
               by_knot(&l->knot.v[i], &l->knot.v[i + k]) == 0) {
            k++;
        }
        struct mw_coll_knot m = l->knot.v[i + k / 2];
        if (k % 2 == 0) {
            m.ratio = sqrt(m.ratio * l->knot.v[i + k / 2 - 1].ratio);
        }
        m.n_points = (int)k;
        l->knot.v[n++] = m;
        i += k;
    }
    l->knot.n = n;
}

/* ---- linear algebra ---- */

/* Four sums side by side: the compiler keeps them in registers, the order is
 * fixed. */
static double dot(const double *a, const double *b, size_t n)
{
    double s0 = 0, s1 = 0, s2 = 0, s3 = 0;
    size_t i = 0;
    for (; i + 4 <= n; i += 4) {
        s0 += a[i] * b[i];
        s1 += a[i + 1] * b[i + 1];
        s2 += a[i + 2] * b[i + 2];
        s3 += a[i + 3] * b[i + 3];
    }
    for (; i < n; i++) {
        s0 += a[i] * b[i];
    }
    return (s0 + s1) + (s2 + s3);
}

/* a = L L' in place (lower triangle); aborts if a is not positive definite,
 * which a covariance with noise is. Blocks of columns stay in the cache. */
static void cholesky(double *a, size_t n)
{
    enum { BLOCK = 64 };
    for (size_t k = 0; k < n; k += BLOCK) {
        size_t width = k + BLOCK < n ? BLOCK : n - k;
        for (size_t i = k; i < n; i++) {
            double *row = a + i * n;
            for (size_t j = k; j < k + width && j <= i; j++) {
                const double *other = a + j * n;
                double s = row[j] - dot(row + k, other + k, j - k);
                if (i == j) {
                    MW_ASSERT(s > 0, "pivot %zu is %g", i, s);
                }
                row[j] = i == j ? sqrt(s) : s / other[j];
            }
        }
        for (size_t i = k + width; i < n; i++) {
            for (size_t j = k + width; j <= i; j++) {
                a[i * n + j] -= dot(a + i * n + k, a + j * n + k, width);
            }
        }
    }
}

/* The inverse of the matrix whose Cholesky factor is l, as a whole. */
static double *inverse_of(const double *l, size_t n)
{
    double *m = mw_calloc(n * n + 1, sizeof *m); /* (L^-1)', row by row */
    for (size_t j = 0; j < n; j++) {
        double *col = m + j * n;
        col[j] = 1 / l[j * n + j];
        for (size_t i = j + 1; i < n; i++) {
            col[i] = -dot(l + i * n + j, col + j, i - j) / l[i * n + i];
        }
    }
    double *inv = mw_calloc(n * n + 1, sizeof *inv);
    for (size_t i = 0; i < n; i++) {
        for (size_t j = 0; j <= i; j++) {
            inv[i * n + j] = dot(m + i * n + i, m + j * n + i, n - i);
            inv[j * n + i] = inv[i * n + j];
        }
    }
    mw_free(m);
    return inv;
}

/* Features, covariance, inverse, weights of the knots. */
static void solve(struct mw_coll_learn *l)
{
    size_t n = l->knot.n;
    mw_free(l->feature);
    mw_free(l->inverse);
    mw_free(l->weight);
    l->feature = mw_calloc(n + 1, sizeof *l->feature);
    l->weight = mw_calloc(n + 1, sizeof *l->weight);
    double *y = mw_calloc(n + 1, sizeof *y);
    double *a = mw_calloc(n * n + 1, sizeof *a);
    for (size_t i = 0; i < n; i++) {
        coll_feature_of(&l->knot.v[i], &l->feature[i]);
        y[i] = log(l->knot.v[i].ratio);
        for (size_t j = 0; j <= i; j++) {
            const struct coll_feature *x = &l->feature[i], *z = &l->feature[j];
            a[i * n + j] = coll_kernel(x, z) + coll_kernel_campaign(x, z) +
                           (i == j ? coll_kernel_noise(x) : 0);
        }
    }
    cholesky(a, n);
    l->inverse = inverse_of(a, n);
    for (size_t i = 0; i < n; i++) {
        l->weight[i] = dot(l->inverse + i * n, y, n);
    }
    mw_free(a);
    mw_free(y);
}

/* ---- overheads of harnesses ---- */

/* The first scored row of its unit? */
static bool is_new_unit(const struct mw_coll_rows *rows, size_t at)
{
    for (size_t i = 0; i < at; i++) {
        if (!rows->row.v[i].why_not &&
            strcmp(rows->row.v[i].unit, rows->row.v[at].unit) == 0) {
            return false;
        }
    }
    return !rows->row.v[at].why_not;
}

/* A profiler shows the wait itself; the others what is missing. Torch's
 * tables begin at 32 KiB. */
static bool shows_overhead(const struct mw_coll_row *row, const char *unit,
                           int n_nodes)
{
    double limit = row->query.harness == MW_HARNESS_ONE_PROCESS ? 65536
                   : row->query.harness == MW_HARNESS_TORCH     ? 1048576
                                                                : 262144;
    return !row->why_not && strcmp(row->unit, unit) == 0 && n_nodes == 1 &&
           row->query.op != MW_SEND_RECV && row->query.bytes >= 256 &&
           row->query.bytes <= limit;
}

static void measure_overhead(struct mw_coll_atlas *atlas,
                             const struct mw_coll_rows *rows, size_t first,
                             struct mw_coll_learn *out)
{
    const struct mw_coll_row *unit = &rows->row.v[first];
    double *v = mw_calloc(rows->row.n + 1, sizeof *v);
    size_t n = 0;
    for (size_t i = 0; i < rows->row.n; i++) {
        const struct mw_coll_row *row = &rows->row.v[i];
        struct mw_coll_world *w = NULL;
        struct mw_coll_answer a;
        struct mw_coll_query q = mw_coll_row_query(row);
        q.harness = MW_HARNESS_TESTS;
        if (!shows_overhead(row, unit->unit, 1) ||
            mw_coll_atlas_world(atlas, row, &w, NULL) != MW_OK ||
            coll_place_of(w, &q).n_nodes > 1 ||
            mw_coll_predict(w, MW_COLL_FIT, &q, &a, NULL) != MW_OK) {
            continue;
        }
        v[n++] = unit->query.harness == MW_HARNESS_PROFILER
                     ? row->time_s
                     : fmax(0, row->time_s - a.time_s);
    }
    if (n >= 3) {
        struct mw_coll_overhead o = {.harness = unit->query.harness,
                                     .seconds = mw_median(v, n)};
        snprintf(o.campaign, sizeof o.campaign, "%s", unit->unit);
        mw_array_push(&out->overhead, o);
    }
    mw_free(v);
}

static void measure_overheads(struct mw_coll_atlas *atlas,
                              const struct mw_coll_rows *rows,
                              struct mw_coll_learn *out)
{
    struct mw_coll_fit fit;
    mw_coll_learn_table(out, MW_COLL_BY_UNIT, NULL, &fit);
    mw_coll_atlas_set_fit(atlas, &fit);
    mw_coll_fit_release(&fit);
    for (size_t i = 0; i < rows->row.n; i++) {
        if (rows->row.v[i].query.harness != MW_HARNESS_TESTS &&
            is_new_unit(rows, i)) {
            measure_overhead(atlas, rows, i, out);
        }
    }
}

/* ---- engines ---- */

static void collect_engines(struct mw_coll_atlas *atlas,
                            const struct mw_coll_rows *rows,
                            struct mw_coll_learn *out)
{
    for (size_t i = 0; i < rows->row.n; i++) {
        const struct mw_coll_row *row = &rows->row.v[i];
        struct mw_coll_query q = mw_coll_row_query(row);
        struct mw_coll_world *w = NULL;
        struct mw_coll_answer a;
        struct mw_coll_knot k;
        if (row->why_not || q.engine == MW_ENGINE_NONE ||
            mw_coll_atlas_world(atlas, row, &w, NULL) != MW_OK ||
            mw_coll_predict(w, MW_COLL_NCCL, &q, &a, NULL) != MW_OK) {
            continue;
        }
        struct mw_engine_sample s = {.engine = q.engine,
                                     .is_eager = q.is_eager,
                                     .has_nvlink =
                                         w->has_nccl && w->shape.n_links > 0,
                                     .n_ranks = q.n_nodes * q.ranks_per_node,
                                     .bytes = q.bytes,
                                     .time_s = row->time_s,
                                     .memory_Bps = w->system->gpu->mem_bw_Bps};
        mw_coll_keys(w, &q, &a, &k);
        snprintf(s.unit, sizeof s.unit, "%s", row->unit);
        snprintf(s.machine, sizeof s.machine, "%s", row->system);
        memcpy(s.cls, k.cls, sizeof s.cls);
        mw_array_push(&out->sample, s);
    }
}

/* One row for every family and class, without a group's samples. */
static void engine_table(const struct mw_coll_learn *l, enum mw_coll_group by,
                         const char *without, struct mw_coll_fit *out)
{
    struct mw_engine_sample *left = mw_calloc(l->sample.n + 1, sizeof *left);
    size_t n = 0;
    for (size_t i = 0; i < l->sample.n; i++) {
        const struct mw_engine_sample *s = &l->sample.v[i];
        char name[160];
        mw_coll_group_name(by, s->unit, s->machine, "all_reduce", s->n_ranks,
                           name);
        if (!without || strcmp(name, without) != 0) {
            left[n++] = *s;
        }
    }
    for (size_t i = 0; i < n; i++) {
        bool is_trtllm = left[i].engine == MW_ENGINE_TRTLLM, is_new = true;
        struct mw_engine_row row;
        for (size_t j = 0; j < out->engine.n; j++) {
            const struct mw_engine_row *r = &out->engine.v[j];
            is_new = is_new && (r->is_trtllm != is_trtllm ||
                                strcmp(r->cls, left[i].cls) != 0);
        }
        if (is_new && mw_engine_fit(left, n, is_trtllm, left[i].cls, &row)) {
            mw_array_push(&out->engine, row);
        }
    }
    for (size_t i = 0; i < l->engine.n; i++) {
        mw_array_push(&out->engine, l->engine.v[i]);
    }
    mw_free(left);
}

struct mw_coll_learn *mw_coll_learn_rows(struct mw_coll_atlas *atlas,
                                         const struct mw_coll_rows *rows)
{
    struct mw_coll_learn *l = mw_calloc(1, sizeof *l);
    bool all_tests = true;
    for (size_t i = 0; i < rows->row.n; i++) {
        all_tests =
            all_tests && rows->row.v[i].query.harness == MW_HARNESS_TESTS;
    }
    collect_engines(atlas, rows, l);
    collect(atlas, rows, true, l);
    merge(l);
    solve(l);
    if (!all_tests) {
        measure_overheads(atlas, rows, l);
        mw_array_clear(&l->knot);
        collect(atlas, rows, false, l);
        merge(l);
        solve(l);
    }
    return l;
}

struct mw_coll_learn *mw_coll_learn_fit(const struct mw_coll_fit *fit)
{
    struct mw_coll_learn *l = mw_calloc(1, sizeof *l);
    for (size_t i = 0; i < fit->knot.n; i++) {
        mw_array_push(&l->knot, fit->knot.v[i]);
    }
    for (size_t i = 0; i < fit->overhead.n; i++) {
        mw_array_push(&l->overhead, fit->overhead.v[i]);
    }
    for (size_t i = 0; i < fit->engine.n; i++) {
        mw_array_push(&l->engine, fit->engine.v[i]);
    }
    solve(l);
    return l;
}

void mw_coll_learn_free(struct mw_coll_learn *l)
{
    if (l) {
        mw_array_release(&l->knot);
        mw_array_release(&l->overhead);
        mw_array_release(&l->sample);
        mw_array_release(&l->engine);
        mw_free(l->feature);
        mw_free(l->inverse);
        mw_free(l->weight);
        mw_free(l);
    }
}

/* ---- tables ---- */

static void subtract_group(const struct mw_coll_learn *l, const size_t *in,
                           size_t m, double *weight)
{
    size_t n = l->knot.n;
    double *block = mw_calloc(m * m + 1, sizeof *block);
    double *v = mw_calloc(m + 1, sizeof *v), *row = mw_calloc(m + 1, sizeof *v);
    for (size_t a = 0; a < m; a++) {
        for (size_t b = 0; b <= a; b++) {
            block[a * m + b] = l->inverse[in[a] * n + in[b]];
        }
    }
    cholesky(block, m);
    for (size_t a = 0; a < m; a++) { /* L z = w */
        v[a] = (l->weight[in[a]] - dot(block + a * m, v, a)) / block[a * m + a];
    }
    for (size_t a = m; a-- > 0;) { /* L' v = z */
        for (size_t b = a + 1; b < m; b++) {
            v[a] -= block[b * m + a] * v[b];
        }
        v[a] /= block[a * m + a];
    }
    for (size_t i = 0; i < n; i++) {
        for (size_t a = 0; a < m; a++) {
            row[a] = l->inverse[i * n + in[a]];
        }
        weight[i] -= dot(row, v, m);
    }
    mw_free(row);
    mw_free(v);
    mw_free(block);
}

void mw_coll_learn_table(const struct mw_coll_learn *l, enum mw_coll_group by,
                         const char *without, struct mw_coll_fit *out)
{
    size_t n = l->knot.n, m = 0;
    double *weight = mw_calloc(n + 1, sizeof *weight);
    size_t *in = mw_calloc(n + 1, sizeof *in);
    bool *is_out = mw_calloc(n + 1, sizeof *is_out);
    for (size_t i = 0; i < n; i++) {
        const struct mw_coll_knot *k = &l->knot.v[i];
        char name[160];
        mw_coll_group_name(by, k->campaign, k->machine, k->op,
                           k->ranks * k->nodes, name);
        weight[i] = l->weight[i];
        is_out[i] = without && strcmp(name, without) == 0;
        if (is_out[i]) {
            in[m++] = i;
        }
    }
    if (m > 0) {
        subtract_group(l, in, m, weight);
    }
    memset(out, 0, sizeof *out);
    for (size_t i = 0; i < n; i++) {
        struct mw_coll_knot k = l->knot.v[i];
        k.weight = weight[i];
        if (!is_out[i]) {
            mw_array_push(&out->knot, k);
        }
    }
    for (size_t i = 0; i < l->overhead.n; i++) {
        char name[160];
        mw_coll_group_name(by, l->overhead.v[i].campaign, "", "", 0, name);
        if (!without || strcmp(name, without) != 0) {
            mw_array_push(&out->overhead, l->overhead.v[i]);
        }
    }
    engine_table(l, by, without, out);
    mw_free(weight);
    mw_free(in);
    mw_free(is_out);
}
