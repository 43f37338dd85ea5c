/*
 * The explanation tree of a step:
 *
 *   step
 *     stage d              the step's time, whole
 *       12 dense layers    of all micro-batches; one pass of each below
 *         forward          ...
 *           qkv            operator, bound, formula, source (sim/cost)
 *       slowest rank, host, ends of sharded passes
 *       what comes once    gradients, optimizer, parameters
 *       waiting            what is left: filling, draining, transfers, others
 *
 * so that the parts of a stage sum to the step. Stages in a row that are alike
 * are one node. Units are explained in full in the stage that is the busiest,
 * and else in the first one that has them.
 */
#include "sim/step/step_int.h"

#include <math.h>
#include <string.h>

struct tree {
    const struct mw_step_frame *f;
    const struct mw_schedule *s;
    double m; /* micro-batches of a virtual stage */
    const struct mw_explain *detail[MW_UNIT_COUNT]; /* NULL: no such unit */
    int shown_in[MW_UNIT_COUNT]; /* the stage that has its operators */
    struct mw_explain *root;
};

/* What a device does in its passes, all micro-batches: seconds. */
struct busy {
    double units_s, passes_s;
};

static double unit_s(const struct tree *t, int d, int unit)
{
    const struct mw_step_price *p = mw_step_frame_price(t->f, d);
    int n_phases = t->s->is_forward_only ? 1 : MW_PHASE_COUNT;
    double sum = 0;

    for (int phase = 0; phase < n_phases; phase++) {
        for (int lane = 0; lane < MW_LANE_HOST; lane++) {
            sum += p->cost[unit].phase[phase].s[lane];
        }
    }
    return sum;
}

static double tail_s(const struct mw_tail *t)
{
    return mw_time_to_s(t->embedding_ps + t->reduce_ps + t->shared_ps +
                        t->optimizer_ps + t->offload_ps + t->gather_ps);
}

static struct busy busy_of(const struct tree *t, int d)
{
    struct busy sum = {0, 0};

    for (int unit = 0; unit < MW_UNIT_COUNT; unit++) {
        sum.units_s += t->m * t->f->units[d][unit] * unit_s(t, d, unit);
    }
    for (int c = 0; c < t->s->n_chunks; c++) {
        const struct mw_vstage *v =
            &t->f->vstage[t->s->virtual_stage[d * t->s->n_chunks + c]];
        mw_time back_ps = t->s->is_forward_only ? 0 : v->b_ps + v->w_ps;

        sum.passes_s += t->m * mw_time_to_s(v->f_ps + back_ps);
    }
    return sum;
}

static int busiest(const struct tree *t)
{
    double most = -1;
    int at = 0;

    for (int d = 0; d < t->f->n_devices; d++) {
        double busy_s = busy_of(t, d).passes_s + tail_s(&t->f->tail[d]);

        if (busy_s > most) {
            most = busy_s;
            at = d;
        }
    }
    return at;
}

static void add_units(const struct tree *t, int d, int last,
                      struct mw_explain *stage)
{
    for (int unit = 0; unit < MW_UNIT_COUNT; unit++) {
        const struct mw_explain *of = t->detail[unit];
        bool is_own = mw_step_frame_price(t->f, d) != &t->f->price;
        bool is_here = t->shown_in[unit] >= d && t->shown_in[unit] <= last;

        if (t->f->units[d][unit] == 0 || of == NULL) {
            continue;
        }
        struct mw_explain *node = mw_explain_child(
            stage, of->name, unit_s(t, d, unit),
            is_own    ? "its groups under leaves of their own"
            : is_here ? of->formula
                      : mw_arena_printf(stage->arena, "as in stage %d",
                                        t->shown_in[unit]),
            NULL);

        node->count = t->m * t->f->units[d][unit];
        node->first_child = is_here && !is_own ? of->first_child : NULL;
        node->last_child = is_here && !is_own ? of->last_child : NULL;
    }
}

static const char *bound_of(const struct mw_group *g)
{
    return g->n_nodes > 1 ? "network" : "links";
}

/* Collectives once a step: shown, hidden behind passes, in so many messages;
 * and what passes take longer beside them. */
struct once {
    mw_time shown_ps; /* with what is slowed */
    double hidden_s, slowed_s, n_buckets;
};

static void add_once(struct mw_explain *stage, const char *name,
                     const struct mw_group *group, const struct once *once,
                     const char *alone)
{
    double shown_s = mw_time_to_s(once->shown_ps), hidden_s = once->hidden_s;
    struct mw_explain *node;

    if (once->shown_ps == 0) {
        return;
    }
    node = mw_explain_child(stage, name, shown_s,
                            "what passes do not hide of it", NULL);
    node->bound = bound_of(group);
    if (once->n_buckets > 0) {
        mw_explain_child(
            node, "bucket",
            (shown_s - once->slowed_s + hidden_s) / once->n_buckets,
            mw_arena_printf(stage->arena,
                            "T(bytes / n); the %s has no pass beside it",
                            alone),
            "the layout's bucket_size, else the stack's")
            ->count = once->n_buckets;
        mw_explain_child(node, "behind passes", -hidden_s,
                         "hidden of them, and so not in the step", NULL);
    }
    if (once->slowed_s > 0) {
        mw_explain_child(node, "passes beside them", once->slowed_s,
                         "slower while those take multiprocessors and memory "
                         "bandwidth",
                         NULL);
    }
}

static void add_plain(struct mw_explain *stage, const char *name, mw_time ps,
                      const char *formula, const char *bound)
{
    if (ps > 0) {
        mw_explain_child(stage, name, mw_time_to_s(ps), formula, NULL)->bound =
            bound;
    }
}

/* Passes over gradients, and the update of what they change. */
static void add_update(const struct mw_step_frame *f, const struct mw_tail *t,
                       struct mw_explain *stage)
{
    static const char *const names[] = {
        "zeroing gradients", "scaling by the replicas",
        "unscaling, what is not finite", "norm of the gradients", "clipping"};
    double all_bytes = t->update_bytes + mw_step_once_bytes(&t->once);
    double device_s = mw_time_to_s(t->optimizer_ps - t->muon_ps) -
                      t->once.reduce_s - f->price.ctx->stack.host_step_s;
    struct mw_explain *node;

    if (t->optimizer_ps == t->muon_ps) {
        return;
    }
    node = mw_explain_child(
        stage, "optimizer", mw_time_to_s(t->optimizer_ps - t->muon_ps),
        "bytes / memory bandwidth, and what the host does once", NULL);
    node->bound = "memory";
    for (int i = 0; i < MW_ONCE_COUNT; i++) {
        if (t->once.bytes[i] > 0) {
            mw_explain_child(node, names[i],
                             device_s * t->once.bytes[i] / all_bytes,
                             mw_arena_printf(stage->arena, "%.6g MB",
                                             t->once.bytes[i] / 1e6),
                             "sim/step/step_once.c")
                ->bound = "memory";
        }
    }
    if (t->once.reduce_s > 0) {
        mw_explain_child(
            node, "all_reduce of the norm", t->once.reduce_s,
            mw_arena_printf(
                stage->arena, "%d number%s over %d ranks", t->once.n_reduces,
                t->once.n_reduces == 1 ? "" : "s", t->once.group.n_ranks),
            "sim/step/step_once.c")
            ->bound = "latency";
    }
    mw_explain_child(node, "update", device_s * t->update_bytes / all_bytes,
                     mw_arena_printf(stage->arena,
                                     "%.6g MB: states, weights, copies",
                                     t->update_bytes / 1e6),
                     NULL)
        ->bound = "memory";
}

static void add_tail(const struct mw_step_frame *f, int d,
                     struct mw_explain *stage)
{
    const struct mw_step_price *p = mw_step_frame_price(f, d);
    const struct mw_tail *t = &f->tail[d];

    if (t->embedding_ps > 0) {
        struct mw_group group = mw_step_holders_group(p, &p->holders);

        add_plain(stage, "reduction of the tied embedding", t->embedding_ps,
                  "between the stages that hold it", bound_of(&group));
    }
    const struct once reduce = {t->reduce_ps, t->hidden_reduce_s,
                                t->slowed_reduce_s, t->reduce_buckets};
    const struct once gather = {t->gather_ps, t->hidden_gather_s,
                                t->slowed_gather_s, t->gather_buckets};

    add_once(stage, "gradient reduction", &p->grad_group, &reduce, "last");
    add_plain(stage, "gradients that tp ranks share", t->shared_ps,
              "all-reduce over tp", bound_of(&p->group[MW_DIM_TP]));
    add_plain(stage, "Muon's products", t->muon_ps,
              "5 Newton-Schulz steps of 3 bf16 products on each matrix",
              "compute");
    add_update(f, t, stage);
    add_plain(stage, "optimizer on the host", t->offload_ps,
              "state bytes / host memory bandwidth, less the device's own part",
              "host");
    add_once(stage, "parameter gather", &p->grad_group, &gather, "first");
}

/* The last of the stages from d on that are alike. */
static int last_alike(const struct tree *t, int d)
{
    const struct mw_step_frame *f = t->f;
    double d_s = tail_s(&f->tail[d]);
    int e = d;

    while (e + 1 < f->n_devices &&
           mw_step_frame_price(f, d) == mw_step_frame_price(f, e + 1) &&
           memcmp(f->units[d], f->units[e + 1], sizeof f->units[d]) == 0 &&
           d_s >= tail_s(&f->tail[e + 1]) && d_s <= tail_s(&f->tail[e + 1])) {
        e++;
    }
    return e;
}

/* Gathers and scatters of units of layers, as far as they show: seconds of all
 * micro-batches. */
static double add_wrapped(const struct tree *t, int d, struct mw_explain *stage)
{
    const struct mw_layout *l = t->f->price.layout;
    double sum_s = 0;
    int n = 0;

    if (!mw_layout_wraps(l)) {
        return 0;
    }
    for (int c = 0; c < t->s->n_chunks; c++) {
        const struct mw_vstage *v =
            &t->f->vstage[t->s->virtual_stage[d * t->s->n_chunks + c]];

        n += mw_fsdp_units(&t->f->price, v);
        sum_s += v->wrap_s[0] + (t->s->is_forward_only ? 0 : v->wrap_s[1]);
    }
    mw_explain_child(
        stage,
        mw_arena_printf(stage->arena, "ZeRO gather and scatter of %d units", n),
        t->m * sum_s, "what the work of the units before does not hide of it",
        "the layout's fsdp_unit and fsdp_prefetch")
        ->bound = bound_of(&t->f->price.grad_group);
    return t->m * sum_s;
}

static void add_stage(const struct tree *t, int d, int last)
{
    struct mw_explain *root = t->root;
    struct mw_explain *stage = mw_explain_child(
        root,
        last > d ? mw_arena_printf(root->arena, "stages %d to %d", d, last)
                 : mw_arena_printf(root->arena, "stage %d", d),
        root->value_s, "its passes, what comes once, waiting", NULL);
    struct busy busy = busy_of(t, d);
    double more_s = busy.passes_s - busy.units_s;

    add_units(t, d, last, stage);
    more_s -= add_wrapped(t, d, stage);
    if (more_s > 1e-9 * busy.passes_s) {
        mw_explain_child(stage, "slowest rank, host, ends of sharded passes",
                         more_s,
                         "passes less their units: spread between ranks, work "
                         "that waits to be issued, first gather, last scatter",
                         NULL);
    }
    add_tail(t->f, d, stage);
    mw_explain_child(
        stage, "waiting",
        fmax(0, root->value_s - busy.passes_s - tail_s(&t->f->tail[d])),
        "filling and draining, transfers, other stages, shared wires", NULL);
}

/* Can a stage show a unit's operators, which are those of the frame's price? */
static bool shows(const struct tree *t, int d, int unit)
{
    return t->f->units[d][unit] > 0 &&
           mw_step_frame_price(t->f, d) == &t->f->price;
}

/* The busiest stage shows a unit, else the first that can. */
static void find_shown(struct tree *t)
{
    int best = busiest(t);

    for (int unit = 0; unit < MW_UNIT_COUNT; unit++) {
        int d = 0;

        while (d + 1 < t->f->n_devices && !shows(t, d, unit)) {
            d++;
        }
        t->shown_in[unit] = shows(t, best, unit) ? best : d;
    }
}

void mw_step_explain(const struct mw_step_frame *f, const struct mw_schedule *s,
                     const struct mw_explain *units, struct mw_explain *root)
{
    struct tree t = {.f = f,
                     .s = s,
                     .m = (double)s->n_microbatches / s->n_routes,
                     .root = root};
    const struct mw_explain *next = units->first_child;

    for (int unit = 0; unit < MW_UNIT_COUNT && next != NULL; unit++) {
        if (mw_step_has_unit(&f->price, (enum mw_step_unit)unit)) {
            t.detail[unit] = next;
            next = next->next;
        }
    }
    find_shown(&t);
    for (int d = 0; d < f->n_devices; d++) {
        int last = last_alike(&t, d);

        add_stage(&t, d, last);
        d = last;
    }
}
