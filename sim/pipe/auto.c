/*
 * The automatic scheduler from problem to schedule: bound, constructions in the
 * order in which they are known to work, local search where the bound is not
 * met, conversion. And the named kinds that are made this way.
 */
#include "sim/pipe/zb_int.h"

#include <math.h>
#include <string.h>

/* Below so many orders simulated annealing does harm only to patience. */
enum { LOCAL_SEARCH_ORDERS_MIN = 4000 };
/* Local search of the kinds made by name, in millions of passes: enough to
 * close small gaps, cheap enough for a planner that asks often. */
enum { AUTO_EFFORT = 10, NAMED_EFFORT = 22 };

static void construct(struct mw_zb *z, struct mw_zb_run *r,
                      struct mw_zb_best *best)
{
    if (z->v == 1) {
        mw_zb_greedy(z, r, best);
    } else if (z->v == 2) {
        mw_zb_vee(z, r, best);
    }
    if (best->value > best->bound &&
        (best->value == MW_ZB_NEVER || z->v > 2 ||
         (z->v == 1 && z->k_max[0] < z->p && z->k_max[0] < z->m))) {
        mw_zb_lists(z, r, best);
    }
}

static void improve(struct mw_zb *z, struct mw_zb_run *r, double effort,
                    struct mw_zb_best *best)
{
    double passes = 3.0 * z->m * z->n_virtual;

    effort = (effort > 0 ? effort : 60) * 1e6;
    if (best->value > best->bound && best->value < MW_ZB_NEVER &&
        effort / passes >= LOCAL_SEARCH_ORDERS_MIN) {
        mw_zb_polish(z, r, effort, best);
    }
}

/* Codes to slots, counting micro-batches. */
static void convert(const struct mw_zb *z, const struct mw_zb_order *o,
                    const char *name, struct mw_schedule *out)
{
    static const enum mw_pass pass[] = {MW_PASS_F, MW_PASS_B, MW_PASS_W};
    struct mw_sched_shape shape = {
        name, z->p, z->m, z->v, 1, z->v == 1 ? MW_PLACE_LOOP : MW_PLACE_V};
    struct mw_sched_build b;
    int d, i;

    mw_sched_begin(&b, &shape);
    for (d = 0; d < z->p; d++) {
        int n[4 * MW_ZB_CHUNKS_MAX] = {0};
        const uint8_t *code = mw_zb_list(o, d);

        for (i = 0; i < o->n[d]; i++) {
            int type = MW_ZB_TYPE(code[i]), k = n[code[i]]++;
            enum mw_pass p = pass[type];

            if (z->is_fused) {
                p = type == MW_ZB_B ? MW_PASS_BW : p;
            }
            if (!z->is_fused || type != MW_ZB_W) {
                mw_sched_push(&b, d, p, k, MW_ZB_CHUNK(code[i]));
            }
        }
    }
    mw_sched_end(&b, out);
}

typedef void (*mw_construct_fn)(struct mw_zb *z, struct mw_zb_run *r,
                                struct mw_zb_best *best);

static enum mw_status solve(const struct mw_auto_problem *q, const char *name,
                            mw_construct_fn build, struct mw_auto_result *out,
                            struct mw_err *err)
{
    struct mw_zb_best best = {.value = MW_ZB_NEVER, .found_by = "nothing"};
    enum mw_status st = mw_zb_check(q, err);
    struct mw_zb_run r;
    struct mw_zb z;

    if (st != MW_OK) {
        return st;
    }
    mw_zb_init(&z, q);
    mw_zb_run_init(&r, &z);
    mw_zb_order_init(&best.order, &z);
    memset(out, 0, sizeof *out);
    best.bound = mw_zb_bound(&z, &out->bound_by);
    build(&z, &r, &best);
    if (q->effort >= 0) {
        improve(&z, &r, q->effort, &best);
    }
    if (best.value == MW_ZB_NEVER) {
        st = mw_fail(err, MW_EUSAGE,
                     "no order was found within the memory limit");
    } else {
        convert(&z, &best.order, name, &out->schedule);
        out->value_ps = best.value;
        out->bound_ps = best.bound;
        out->is_proved = best.value == best.bound;
        out->found_by = best.found_by;
        out->effort = z.effort / 1e6;
    }
    mw_zb_order_release(&best.order);
    mw_zb_run_release(&r);
    mw_zb_release(&z);
    return st;
}

/*
 * Without a limit: the least of a few limits with which the bound for unlimited
 * memory is met without local search; any order that meets it is as good, and
 * one that holds less is the better advice.
 */
static double thrifty_limit(const struct mw_auto_problem *problem)
{
    static const double factor[] = {1, 1.25, 1.5, 2, 3};
    struct mw_auto_problem q = *problem;
    mw_time bound;
    size_t i;

    if (mw_schedule_bound(problem, &bound, NULL, NULL) != MW_OK) {
        return 0;
    }
    q.effort = -1;
    for (i = 0; i < sizeof factor / sizeof factor[0]; i++) {
        struct mw_auto_result r;
        bool is_met;

        q.memory_limit = ceil(factor[i] * q.n_stages);
        if (q.memory_limit >= q.n_microbatches ||
            solve(&q, "", construct, &r, NULL) != MW_OK) {
            break;
        }
        is_met = r.value_ps == bound;
        mw_schedule_release(&r.schedule);
        if (is_met) {
            return q.memory_limit;
        }
    }
    return 0;
}

enum mw_status mw_schedule_auto(const struct mw_auto_problem *problem,
                                struct mw_auto_result *out, struct mw_err *err)
{
    struct mw_auto_problem q = *problem;

    if (q.memory_limit == 0 && q.stage_limit == NULL) {
        q.memory_limit = thrifty_limit(problem);
    }
    return solve(&q, q.n_chunks == 1 ? "zb-auto" : "zbv-auto", construct, out,
                 err);
}

enum mw_status mw_schedule_bound(const struct mw_auto_problem *problem,
                                 mw_time *out_ps, const char **out_by,
                                 struct mw_err *err)
{
    enum mw_status st = mw_zb_check(problem, err);
    struct mw_zb z;

    if (st == MW_OK) {
        mw_zb_init(&z, problem);
        *out_ps = mw_zb_bound(&z, out_by);
        mw_zb_release(&z);
    }
    return st;
}

/* ---- named kinds ------------------------------------------------------- */
/* Uniform times of a generator's arguments as a problem; times are the
 * caller's array of 3 * stages * chunks. */
static void problem_of(const struct mw_sched_args *a, mw_time *t,
                       struct mw_auto_problem *q)
{
    size_t n = (size_t)a->n_stages * (size_t)a->n_chunks, i;
    bool is_unit = a->f_s == 0 && a->b_s == 0 && a->w_s == 0;

    for (i = 0; i < n; i++) {
        t[i] = mw_time_from_s(is_unit ? 1 : a->f_s);
        t[n + i] = mw_time_from_s(is_unit ? 1 : a->b_s);
        t[2 * n + i] = mw_time_from_s(is_unit ? 1 : a->w_s);
    }
    memset(q, 0, sizeof *q);
    q->n_stages = a->n_stages;
    q->n_microbatches = a->n_microbatches;
    q->n_chunks = a->n_chunks;
    q->f_ps = t;
    q->b_ps = t + n;
    q->w_ps = t + 2 * n;
    q->comm_ps = mw_time_from_s(a->comm_s);
    q->w_share = 1;
    q->memory_limit = a->memory_limit;
}

/* Makes a kind (build NULL: an automatic one): chunk_limit > 0 replaces the
 * memory limit, in chunks. */
static enum mw_status make(const char *name, const struct mw_sched_args *a,
                           int chunk_limit, bool is_fused, double effort,
                           mw_construct_fn build, struct mw_schedule *out,
                           struct mw_err *err)
{
    mw_time *t =
        mw_calloc(3 * (size_t)a->n_stages * (size_t)a->n_chunks, sizeof *t);
    struct mw_auto_result result;
    struct mw_auto_problem q;
    enum mw_status st;

    problem_of(a, t, &q);
    q.is_fused = is_fused;
    q.effort = effort;
    if (chunk_limit > 0) {
        q.memory_limit = (double)chunk_limit / a->n_chunks;
    }
    st = build != NULL ? solve(&q, name, build, &result, err)
                       : mw_schedule_auto(&q, &result, err);
    if (st == MW_OK) {
        *out = result.schedule;
    }
    mw_free(t);
    return st;
}

enum mw_status mw_gen_zb_auto(const struct mw_sched_args *a,
                              struct mw_schedule *out, struct mw_err *err)
{
    return make("zb-auto", a, 0, false, AUTO_EFFORT, NULL, out, err);
}

enum mw_status mw_gen_zbv_auto(const struct mw_sched_args *a,
                               struct mw_schedule *out, struct mw_err *err)
{
    return make("zbv-auto", a, 0, false, AUTO_EFFORT, NULL, out, err);
}

/*
 * A named block order, planned in unit times (as the authors do) and run in the
 * real ones, and planned in the real ones: the better of the two.
 */
static void build_block(struct mw_zb *z, struct mw_zb_run *r,
                        enum mw_zb_block kind, struct mw_zb_best *best)
{
    size_t n = (size_t)z->n_virtual, i;
    mw_time *f = z->f, *unit = mw_calloc(3 * n, sizeof *unit);
    struct mw_zb_best plan = {.value = MW_ZB_NEVER};
    mw_time comm = z->comm;
    struct mw_schedule s;

    for (i = 0; i < n; i++) {
        unit[i] = 1;
        unit[n + i] = z->is_fused ? 2 : 1;
        unit[2 * n + i] = z->is_fused ? 0 : 1;
    }
    mw_zb_order_init(&plan.order, z);
    mw_zb_set_times(z, unit, 0);
    mw_zb_vee_block(z, r, kind, &plan);
    mw_zb_set_times(z, f, comm);
    if (plan.value < MW_ZB_NEVER) {
        convert(z, &plan.order, "", &s);
        mw_zb_vee_from(z, r, &s, best);
        mw_schedule_release(&s);
    }
    if (best->value > best->bound) {
        mw_zb_vee_block(z, r, kind, best);
    }
    mw_zb_order_release(&plan.order);
    mw_free(unit);
}

static void build_v_half(struct mw_zb *z, struct mw_zb_run *r,
                         struct mw_zb_best *best)
{
    build_block(z, r, MW_ZB_V_HALF, best);
}

static void build_v_min(struct mw_zb *z, struct mw_zb_run *r,
                        struct mw_zb_best *best)
{
    build_block(z, r, MW_ZB_V_MIN, best);
}

/* V-Half holds p + 2 chunk activations, V-Min 2 floor((p + 4) / 3). */
enum mw_status mw_gen_v_half(const struct mw_sched_args *a,
                             struct mw_schedule *out, struct mw_err *err)
{
    return make("v-half", a, a->n_stages + 2, false, NAMED_EFFORT, build_v_half,
                out, err);
}

enum mw_status mw_gen_v_min(const struct mw_sched_args *a,
                            struct mw_schedule *out, struct mw_err *err)
{
    return make("v-min", a, 2 * ((a->n_stages + 4) / 3), false, NAMED_EFFORT,
                build_v_min, out, err);
}

static void build_1f1b_v(struct mw_zb *z, struct mw_zb_run *r,
                         struct mw_zb_best *best)
{
    build_block(z, r, MW_ZB_1F1B_V, best);
}

/* 1F1B on a V, backward not split: two thirds of the memory of 1F1B. */
enum mw_status mw_gen_1f1b_v(const struct mw_sched_args *a,
                             struct mw_schedule *out, struct mw_err *err)
{
    return make("1f1b-v", a, 2 * ((2 * a->n_stages + 2) / 3), true,
                NAMED_EFFORT, build_1f1b_v, out, err);
}

static void build_waves(struct mw_zb *z, struct mw_zb_run *r,
                        struct mw_zb_best *best)
{
    struct mw_sched_args a = {.n_stages = z->p,
                              .n_microbatches = z->m,
                              .n_chunks = z->v,
                              .f_s = mw_time_to_s(z->f[0]),
                              .b_s = mw_time_to_s(z->b[0]),
                              .comm_s = mw_time_to_s(z->comm)};
    struct mw_schedule s;

    if (mw_gen_wave(&a, &s, NULL) == MW_OK) {
        mw_zb_vee_from(z, r, &s, best);
        mw_schedule_release(&s);
    }
    mw_zb_lists(z, r, best);
}

/* Hanayo with at most p micro-batches of activations; more than the planner's
 * chunks: the rule as it is. */
enum mw_status mw_gen_hanayo(const struct mw_sched_args *a,
                             struct mw_schedule *out, struct mw_err *err)
{
    if (a->n_chunks % 2 != 0 || a->n_chunks > MW_ZB_CHUNKS_MAX) {
        return mw_gen_wave(a, out, err);
    }
    return make("hanayo", a, a->n_stages * a->n_chunks, true, NAMED_EFFORT,
                build_waves, out, err);
}
