/*
 * The dynamic program over cuts.
 *
 *   G_i(a) = min over b of combine( t_i(a, b), G_{i+1}(b) )
 *   combine(t, G) = max(t, G), or max(m t, t + 2 c + G)
 *
 * for layers a.. on stages i.., O(p L^2). t_i depends on how many layers of
 * each run are in [a, b): worked out once for each combination. For one run the
 * options are counts, so all (none, selective, full) of n layers that no other
 * beats in time and bytes are listed, O(n^2), and runs are joined by taking
 * for each point of one the fastest of the other that still fits. Exact: no
 * grid of memory.
 */
#include "planner/stage_split.h"

#include "base/log.h"
#include "base/mem.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* A way to run n layers of a run; bytes with the stage's in_flight. */
struct point {
    double time_s, bytes;
    int n[MW_SPLIT_OPTIONS];
};
struct front { /* increasing bytes, decreasing time */
    struct point *v;
    size_t n, cap;
};

static int compare_points(const void *a, const void *b)
{
    const struct point *x = a, *y = b;

    if (x->bytes != y->bytes) {
        return x->bytes < y->bytes ? -1 : 1;
    }
    return x->time_s < y->time_s ? -1 : x->time_s > y->time_s;
}

static void make_front(const struct mw_split_run *run, int n, double in_flight,
                       struct front *out)
{
    size_t kept = 0;

    for (int full = 0; full <= n; full++) {
        for (int part = 0; part <= n - full; part++) {
            struct point p = {.n = {n - full - part, part, full}};

            for (int r = 0; r < MW_SPLIT_OPTIONS; r++) {
                p.time_s += p.n[r] * run->time_s[r];
                p.bytes += p.n[r] *
                           (run->layer_bytes + in_flight * run->held_bytes[r]);
            }
            mw_array_push(out, p);
        }
    }
    qsort(out->v, out->n, sizeof *out->v, compare_points);
    for (size_t i = 0; i < out->n; i++) {
        if (kept == 0 || out->v[i].time_s < out->v[kept - 1].time_s) {
            out->v[kept++] = out->v[i];
        }
    }
    out->n = kept;
}

/* The fastest that fits in room, or NULL. */
static const struct point *fastest(const struct front *f, double room)
{
    size_t low = 0, high = f->n;

    while (low < high) {
        size_t middle = (low + high) / 2;

        if (f->v[middle].bytes <= room) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low > 0 ? &f->v[low - 1] : NULL;
}

struct dp {
    const struct mw_split_problem *p;
    int n_layers;
    int *run_of;                            /* [n_layers] */
    struct front *front[MW_SPLIT_RUNS_MAX]; /* of the stage: [count] */
    double *best;                           /* [(p + 1) * (L + 1)] */
    int *cut;                               /* where the stage ends */
    double *known;                          /* of the stage: by (a, b) counts */
    bool is_rough;                          /* one option for all of a stage */
    double beat;                            /* value of the rough pass */
};

static void counts_of(const struct dp *d, int a, int b,
                      int counts[MW_SPLIT_RUNS_MAX])
{
    int first = 0;

    for (int run = 0; run < d->p->n_runs; run++) {
        int last = first + d->p->run[run].n_layers;
        int from = a > first ? a : first, to = b < last ? b : last;

        counts[run] = to > from ? to - from : 0;
        first = last;
    }
}

static const struct front *front_of(struct dp *d, int stage, int run, int n)
{
    struct front *f = &d->front[run][n];

    if (f->n == 0) {
        make_front(&d->p->run[run], n, d->p->in_flight[stage], f);
    }
    return f;
}

/* Joins the runs one after the other: at most one point a run is chosen. */
static bool join(struct dp *d, int stage, const int *counts, int run,
                 double room, struct mw_split_stage *out, double *out_s)
{
    if (run == d->p->n_runs) {
        *out_s = 0;
        return true;
    }
    const struct front *f = front_of(d, stage, run, counts[run]);
    bool is_last = true, is_found = false;

    for (int r = run + 1; r < d->p->n_runs; r++) {
        is_last = is_last && counts[r] == 0;
    }
    if (is_last) {
        const struct point *p = fastest(f, room);

        if (p) {
            memset(&out->n[run], 0,
                   sizeof out->n[run] * (size_t)(MW_SPLIT_RUNS_MAX - run));
            memcpy(out->n[run], p->n, sizeof p->n);
            out->bytes += p->bytes;
            *out_s = p->time_s;
        }
        return p != NULL;
    }
    struct mw_split_stage trial = *out, best = *out;

    for (size_t i = 0; i < f->n && f->v[i].bytes <= room; i++) {
        double rest_s;

        trial.bytes = out->bytes + f->v[i].bytes;
        if (join(d, stage, counts, run + 1, room - f->v[i].bytes, &trial,
                 &rest_s) &&
            (!is_found || f->v[i].time_s + rest_s < *out_s)) {
            is_found = true;
            *out_s = f->v[i].time_s + rest_s;
            best = trial;
            memcpy(best.n[run], f->v[i].n, sizeof best.n[run]);
        }
    }
    if (is_found) {
        *out = best;
    }
    return is_found;
}

/* One option for all layers: the fastest that fits. */
static double rough_time(const struct dp *d, int stage, const int *counts)
{
    const struct mw_split_problem *p = d->p;
    double best = HUGE_VAL;

    for (int r = 0; r < MW_SPLIT_OPTIONS; r++) {
        double t = p->extra_s[stage], bytes = p->fixed_bytes[stage];

        for (int s = 0; s < p->n_runs; s++) {
            t += counts[s] * p->run[s].time_s[r];
            bytes +=
                counts[s] * (p->run[s].layer_bytes +
                             p->in_flight[stage] * p->run[s].held_bytes[r]);
        }
        best = bytes <= p->limit_bytes ? fmin(best, t) : best;
    }
    return best;
}

/* No split of these layers is faster, whatever memory allows. */
static double least_time(const struct dp *d, int stage, const int *counts)
{
    double t = d->p->extra_s[stage];

    for (int s = 0; s < d->p->n_runs; s++) {
        const double *time_s = d->p->run[s].time_s;

        t += counts[s] * fmin(time_s[0], fmin(time_s[1], time_s[2]));
    }
    return t;
}

/* Time of layers [a, b) on a stage; HUGE_VAL when they do not fit. */
static double stage_time(struct dp *d, int stage, int a, int b,
                         struct mw_split_stage *out)
{
    struct mw_split_stage here = {.bytes = d->p->fixed_bytes[stage]};
    int counts[MW_SPLIT_RUNS_MAX] = {0};
    double time_s;

    counts_of(d, a, b, counts);
    if (d->is_rough) {
        return rough_time(d, stage, counts);
    }
    double room = d->p->limit_bytes - here.bytes;

    if (!join(d, stage, counts, 0, room * (1 + 1e-12), &here, &time_s)) {
        return HUGE_VAL;
    }
    here.time_s = time_s + d->p->extra_s[stage];
    if (out) {
        *out = here;
    }
    return here.time_s;
}

static double combine(const struct mw_split_problem *p, double t, double rest)
{
    if (p->n_microbatches == 0) {
        return fmax(t, rest);
    }
    return fmax(p->n_microbatches * t, t + 2 * p->transfer_s + rest);
}

/* Layers in one run: only their number matters, which saves the joins. */
static double known_time(struct dp *d, int stage, int a, int b)
{
    double *known = &d->known[b - a];
    bool is_one_run = b > a && d->run_of[a] == d->run_of[b - 1];

    if (!is_one_run) {
        return stage_time(d, stage, a, b, NULL);
    }
    known += (size_t)d->run_of[a] * (size_t)(d->n_layers + 1);
    if (*known < 0) {
        *known = stage_time(d, stage, a, b, NULL);
    }
    return *known;
}

static void forget_stage(struct dp *d)
{
    for (int run = 0; run < d->p->n_runs; run++) {
        for (int n = 0; n <= d->n_layers; n++) {
            mw_array_release(&d->front[run][n]);
        }
    }
    for (int i = 0; i < d->p->n_runs * (d->n_layers + 1); i++) {
        d->known[i] = -1;
    }
}

/* Is a stage of these layers too slow for any split that matters? */
static bool is_too_slow(const struct dp *d, int stage, int a, int b)
{
    int counts[MW_SPLIT_RUNS_MAX] = {0};
    int m = d->p->n_microbatches > 0 ? d->p->n_microbatches : 1;

    counts_of(d, a, b, counts);
    return m * least_time(d, stage, counts) > d->beat * (1 + 1e-12);
}

static void solve_stage(struct dp *d, int stage)
{
    int n = d->n_layers, after = d->p->n_stages - 1 - stage;
    /* Stages from here and behind it that need a layer. */
    int least = after > 0 || !d->p->may_end_bare;
    int others = after - (after > 0 && d->p->may_end_bare);
    double *best = d->best + (size_t)stage * (size_t)(n + 1);
    const double *next = best + n + 1;
    int *cut = d->cut + (size_t)stage * (size_t)(n + 1);

    forget_stage(d);
    for (int a = stage; a <= n - least - others; a++) {
        best[a] = HUGE_VAL;
        for (int b = a + least; b <= n - others; b++) {
            double rest = after == 0 ? 0 : next[b];

            if (is_too_slow(d, stage, a, b)) {
                break;
            }
            if ((after == 0 && b < n) || isinf(rest)) {
                continue;
            }
            double t = known_time(d, stage, a, b);
            double value =
                after == 0
                    ? (d->p->n_microbatches ? d->p->n_microbatches * t : t)
                    : combine(d->p, t, rest);

            if (value < best[a]) {
                best[a] = value;
                cut[a] = b;
            }
            if (isinf(t)) { /* more layers fit even less */
                break;
            }
        }
    }
}

static void dp_init(struct dp *d, const struct mw_split_problem *p)
{
    *d = (struct dp){.p = p};
    for (int run = 0; run < p->n_runs; run++) {
        d->n_layers += p->run[run].n_layers;
    }
    size_t width = (size_t)d->n_layers + 1;

    d->run_of = mw_calloc(width, sizeof *d->run_of);
    for (int run = 0, at = 0; run < p->n_runs; run++) {
        for (int i = 0; i < p->run[run].n_layers; i++) {
            d->run_of[at++] = run;
        }
        d->front[run] = mw_calloc(width, sizeof *d->front[run]);
    }
    d->best = mw_calloc(width * ((size_t)p->n_stages + 1), sizeof *d->best);
    d->cut = mw_calloc(width * (size_t)p->n_stages, sizeof *d->cut);
    d->known = mw_calloc(width * (size_t)p->n_runs, sizeof *d->known);
}

static void dp_release(struct dp *d)
{
    forget_stage(d);
    for (int run = 0; run < d->p->n_runs; run++) {
        mw_free(d->front[run]);
    }
    mw_free(d->run_of);
    mw_free(d->best);
    mw_free(d->cut);
    mw_free(d->known);
}

static void solve_all(struct dp *d, bool is_rough, double beat)
{
    size_t n = ((size_t)d->n_layers + 1) * (size_t)d->p->n_stages;

    d->is_rough = is_rough;
    d->beat = beat;
    for (size_t i = 0; i < n; i++) {
        d->best[i] = HUGE_VAL;
    }
    for (int stage = d->p->n_stages - 1; stage >= 0; stage--) {
        solve_stage(d, stage);
    }
}

enum mw_status mw_stage_split_dp(const struct mw_split_problem *p,
                                 struct mw_split_stage *out_stages,
                                 struct mw_split_answer *out,
                                 struct mw_err *err)
{
    int64_t start_ns = mw_clock_wall_ns();
    struct dp d;
    enum mw_status status = MW_OK;

    dp_init(&d, p);
    bool is_enough = d.n_layers >= p->n_stages - p->may_end_bare;

    if (is_enough) {
        solve_all(&d, true, HUGE_VAL);
        solve_all(&d, false, d.best[0]);
    }
    if (!is_enough || isinf(d.best[0])) {
        status = mw_fail(err, MW_ENO,
                         "no split of %d layers over %d stages fits the "
                         "memory limit",
                         d.n_layers, p->n_stages);
    }
    for (int stage = 0, a = 0; status == MW_OK && stage < p->n_stages;
         stage++) {
        int b = d.cut[(size_t)stage * (size_t)(d.n_layers + 1) + (size_t)a];

        forget_stage(&d);
        stage_time(&d, stage, a, b, &out_stages[stage]);
        a = b;
    }
    if (status == MW_OK) {
        *out = (struct mw_split_answer){
            .value_s = d.best[0],
            .bound_s = d.best[0],
            .is_proved = true,
            .solve_s = 1e-9 * (double)(mw_clock_wall_ns() - start_ns)};
    }
    dp_release(&d);
    return status;
}

double mw_stage_split_value(const struct mw_split_problem *p,
                            const struct mw_split_stage *stages)
{
    double before = 0, value = 0;

    for (int i = 0; i < p->n_stages; i++) {
        double t = stages[i].time_s;

        value =
            fmax(value, p->n_microbatches ? before + p->n_microbatches * t : t);
        before += t + 2 * p->transfer_s;
    }
    return value;
}
