/*
 * What would make an impossible wish possible: each pinned value given up, each
 * limit dropped, another batch, more nodes or fewer, one at a time; where none
 * helps alone, the least of the pinned values and limits that have to go
 * together.
 *
 * A change is tried by searching again with it, so what is reported is a plan
 * that exists, not a guess from the reasons. What is left out: combinations
 * with other nodes, and all smallest sets but one.
 */
#include "planner/why.h"

#include "sim/cost/domain.h"

#include "planner/space.h"

#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* One thing to give up. */
enum give {
    GIVE_INT, /* a pinned integer, word or switch */
    GIVE_PART,
    GIVE_SCHEDULE,
    GIVE_ORDER,
    GIVE_INTS, /* a list of the limits */
    GIVE_NAMES,
    GIVE_PARTS,
    GIVE_MEMORY,
    GIVE_MARGIN,
    GIVE_FRAMEWORK,
    GIVE_MAX_TP,
    GIVE_OFFLOAD
};
struct move {
    enum give give;
    size_t i; /* of the table of its kind */
};
enum { MOVES_MAX = 96 };

struct trial {
    struct mw_scenario scenario; /* a copy whose limits may be changed */
    struct mw_cost_ctx ctx;
    struct mw_search_opts opts;
    const struct mw_cost_ctx *given;
    const struct mw_search_opts *asked;
    const struct mw_scenario *from;
    struct mw_changes *out;
    struct move move[MOVES_MAX];
    bool is_found[MOVES_MAX];
    int n_moves;
};

/* ---- what there is to give up ----------------------------------------------
 */
struct place {
    const char *key;
    size_t offset;
    int open; /* the value that pins nothing */
};
#define PIN(name, open)                                                        \
    {                                                                          \
#name, offsetof(struct mw_search_opts, name), open                     \
    }
#define LIMIT(name)                                                            \
    {                                                                          \
#name, offsetof(struct mw_limits, name), 0                             \
    }
/* clang-format off */
static const struct place pins[] = {
    PIN(tp, 0), PIN(cp, 0), PIN(pp, 0), PIN(dp, 0), PIN(ep, 0), PIN(etp, 0),
    PIN(vpp, 0), PIN(micro_batch, 0), PIN(zero, -1), PIN(sp, -1),
    PIN(cp_form, -1), PIN(dp_shard, -1), PIN(reshard, -1),
    PIN(recompute_layers, -1), PIN(grad_compression, -1), PIN(cp_inner, 0),
    PIN(recompute_modules, -1), PIN(overlap_off, -1), PIN(bucket_size, -1),
    PIN(fsdp_unit, -1), PIN(fsdp_prefetch, -1), PIN(cuda_graph, -1),
    PIN(dispatcher, -1), PIN(overlap_shared_experts, -1), PIN(mtp_ahead, -1),
    PIN(vpp_group, -1),
    {"main_params_dtype", offsetof(struct mw_search_opts, main_params), -1},
    {"exp_avg_dtype", offsetof(struct mw_search_opts, exp_avg), -1},
    {"exp_avg_sq_dtype", offsetof(struct mw_search_opts, exp_avg_sq), -1},
    PIN(dtype, -1), PIN(grad_dtype, -1), PIN(offload_nvme, -1),
    PIN(recompute, -1)};
static const struct place pinned_parts[] = {
    PIN(offload_optimizer, -1), PIN(offload_weights, -1),
    PIN(offload_activations, -1)};
static const struct place ints[] = {
    LIMIT(tp), LIMIT(pp), LIMIT(dp), LIMIT(micro_batch), LIMIT(cp), LIMIT(ep),
    LIMIT(vpp), LIMIT(etp), LIMIT(zero), LIMIT(sp), LIMIT(recompute),
    LIMIT(recompute_layers), LIMIT(cp_form), LIMIT(dp_shard), LIMIT(reshard),
    LIMIT(offload_nvme), LIMIT(cp_inner), LIMIT(bucket_size), LIMIT(fsdp_unit),
    LIMIT(fsdp_prefetch), LIMIT(cuda_graph), LIMIT(dispatcher),
    LIMIT(overlap_shared_experts), LIMIT(mtp_ahead), LIMIT(recompute_modules),
    LIMIT(overlap_off), LIMIT(dtype), LIMIT(grad_dtype),
    LIMIT(grad_compression), LIMIT(vpp_group),
    {"main_params_dtype", offsetof(struct mw_limits, main_params), 0},
    {"exp_avg_dtype", offsetof(struct mw_limits, exp_avg), 0},
    {"exp_avg_sq_dtype", offsetof(struct mw_limits, exp_avg_sq), 0}};
static const struct place names[] = {LIMIT(schedule), LIMIT(order)};
static const struct place parts[] = {
    LIMIT(offload_optimizer), LIMIT(offload_weights),
    LIMIT(offload_activations)};
/* clang-format on */
enum {
    N_PINS = sizeof pins / sizeof pins[0],
    N_PINNED_PARTS = sizeof pinned_parts / sizeof pinned_parts[0],
    N_INTS = sizeof ints / sizeof ints[0],
    N_NAMES = sizeof names / sizeof names[0],
    N_PARTS = sizeof parts / sizeof parts[0]
};

static int *pin_of(struct mw_search_opts *o, size_t i)
{
    return (void *)((char *)o + pins[i].offset);
}

static double *part_of(struct mw_search_opts *o, size_t i)
{
    return (void *)((char *)o + pinned_parts[i].offset);
}

static void *list_of(struct mw_limits *l, const struct place *p)
{
    return (char *)l + p->offset;
}

static void add_move(struct trial *t, bool is_set, enum give give, size_t i)
{
    if (is_set && t->n_moves < MOVES_MAX) {
        t->move[t->n_moves++] = (struct move){give, i};
    }
}

/* A margin of one's own may go back to the one that our memory error asks for,
 * not beyond it. */
static bool has_wide_margin(const struct trial *t)
{
    struct mw_scenario s = *t->from;

    s.limits.has_memory_fraction = false;
    return t->from->limits.has_memory_fraction &&
           mw_step_usable_bytes(&s, t->given) >
               mw_step_usable_bytes(t->from, t->given);
}

/* The host's memory may take what nothing pins to the device. */
static bool can_offload(const struct trial *t)
{
    const struct mw_search_opts *o = &t->opts;
    const struct mw_limits *l = &t->scenario.limits;

    return !t->given->gpu->is_cpu && (o->free & MW_FREE_OFFLOAD) == 0 &&
           o->offload_optimizer < 0 && o->offload_weights < 0 &&
           o->offload_activations < 0 && l->offload_optimizer.n == 0 &&
           l->offload_weights.n == 0 && l->offload_activations.n == 0;
}

static void find_moves(struct trial *t)
{
    struct mw_search_opts *o = &t->opts;
    struct mw_limits *l = &t->scenario.limits;
    int max_tp = l->max_tp > 0 ? l->max_tp : t->ctx.gpus_per_node;

    for (size_t i = 0; i < N_PINS; i++) {
        add_move(t, *pin_of(o, i) != pins[i].open, GIVE_INT, i);
    }
    for (size_t i = 0; i < N_PINNED_PARTS; i++) {
        add_move(t, *part_of(o, i) >= 0, GIVE_PART, i);
    }
    add_move(t, o->schedule != NULL, GIVE_SCHEDULE, 0);
    add_move(t, o->order != NULL, GIVE_ORDER, 0);
    for (size_t i = 0; i < N_INTS; i++) {
        const struct mw_int_list *list = list_of(l, &ints[i]);

        add_move(t, list->n > 0, GIVE_INTS, i);
    }
    for (size_t i = 0; i < N_NAMES; i++) {
        const struct mw_str_list *list = list_of(l, &names[i]);

        add_move(t, list->n > 0, GIVE_NAMES, i);
    }
    for (size_t i = 0; i < N_PARTS; i++) {
        const struct mw_num_list *list = list_of(l, &parts[i]);

        add_move(t, list->n > 0, GIVE_PARTS, i);
    }
    add_move(t, l->memory_bytes > 0, GIVE_MEMORY, 0);
    add_move(t, has_wide_margin(t), GIVE_MARGIN, 0);
    add_move(t, l->framework != MW_FRAMEWORK_ANY, GIVE_FRAMEWORK, 0);
    add_move(t, max_tp < t->ctx.n_nodes * t->ctx.gpus_per_node, GIVE_MAX_TP, 0);
    add_move(t, can_offload(t), GIVE_OFFLOAD, 0);
}

static const char *move_text(const struct move *m, char buf[MW_PLAN_TEXT_MAX])
{
    static const char *const fixed[] = {
        [GIVE_SCHEDULE] = "another schedule than asked for",
        [GIVE_ORDER] = "another rank order than asked for",
        [GIVE_MEMORY] = "without limits: memory (all the device has)",
        [GIVE_MARGIN] = "the margin that our memory error asks for, not "
                        "memory_fraction or --memory-margin",
        [GIVE_FRAMEWORK] = "limits: framework any",
        [GIVE_MAX_TP] = "limits: max_tp (tensor parallelism across nodes)",
        [GIVE_OFFLOAD] = "--free offload (to the host's memory)"};
    const struct place *p = m->give == GIVE_INT     ? &pins[m->i]
                            : m->give == GIVE_PART  ? &pinned_parts[m->i]
                            : m->give == GIVE_INTS  ? &ints[m->i]
                            : m->give == GIVE_NAMES ? &names[m->i]
                            : m->give == GIVE_PARTS ? &parts[m->i]
                                                    : NULL;
    bool is_pin = m->give == GIVE_INT || m->give == GIVE_PART;

    if (!p) {
        snprintf(buf, MW_PLAN_TEXT_MAX, "%s", fixed[m->give]);
    } else if (is_pin) {
        snprintf(buf, MW_PLAN_TEXT_MAX, "%s other than asked for", p->key);
    } else {
        snprintf(buf, MW_PLAN_TEXT_MAX, "without limits: %s", p->key);
    }
    return buf;
}

static void give_up(struct trial *t, const struct move *m)
{
    struct mw_limits *l = &t->scenario.limits;

    switch (m->give) {
    case GIVE_INT:
        *pin_of(&t->opts, m->i) = pins[m->i].open;
        break;
    case GIVE_PART:
        *part_of(&t->opts, m->i) = -1;
        break;
    case GIVE_SCHEDULE:
        t->opts.schedule = NULL;
        break;
    case GIVE_ORDER:
        t->opts.order = NULL;
        break;
    case GIVE_INTS:
        memset(list_of(l, &ints[m->i]), 0, sizeof(struct mw_int_list));
        break;
    case GIVE_NAMES:
        memset(list_of(l, &names[m->i]), 0, sizeof(struct mw_str_list));
        break;
    case GIVE_PARTS:
        memset(list_of(l, &parts[m->i]), 0, sizeof(struct mw_num_list));
        break;
    case GIVE_MEMORY:
        l->memory_bytes = 0;
        break;
    case GIVE_MARGIN:
        l->has_memory_fraction = false;
        break;
    case GIVE_FRAMEWORK:
        l->framework = MW_FRAMEWORK_ANY;
        break;
    case GIVE_MAX_TP:
        l->max_tp = t->ctx.n_nodes * t->ctx.gpus_per_node;
        break;
    case GIVE_OFFLOAD:
        t->opts.free |= MW_FREE_OFFLOAD;
        break;
    }
}

/* ---- trying ----------------------------------------------------------------
 */
static void reset(struct trial *t)
{
    t->scenario = *t->from;
    t->ctx = *t->given;
    t->opts = *t->asked;
    if (t->opts.order == t->asked->order_text) {
        t->opts.order = t->opts.order_text;
    }
    t->opts.top = 1;
    t->opts.is_quiet = true;
}

/* Searches with what was changed, and changes it back. */
static bool search(struct trial *t, struct mw_change *out)
{
    struct mw_search_result r;

    if (t->out->is_cut_short) {
        reset(t);
        return false;
    }
    enum mw_status status =
        mw_search(&t->scenario, &t->ctx, &t->opts, &r, NULL);

    t->out->is_cut_short = status == MW_EINTR;
    t->out->n_tried += status != MW_EINTR;
    if (status == MW_OK && out) {
        out->step_time_s = r.plans[0].step_time_s;
        out->peak_bytes = r.plans[0].peak_bytes;
        mw_layout_text(&r.plans[0].layout, out->layout);
    }
    mw_search_result_release(&r);
    reset(t);
    return status == MW_OK;
}

static void add_change(struct trial *t, const struct mw_change *c)
{
    if (t->out->n < MW_CHANGES_MAX) {
        t->out->v[t->out->n++] = *c;
    }
}

static bool try_it(struct trial *t, const char *what)
{
    struct mw_change c;
    bool is_found = search(t, &c);

    if (is_found) {
        snprintf(c.what, sizeof c.what, "%s", what);
        add_change(t, &c);
    }
    return is_found;
}

/* ---- one at a time ---------------------------------------------------------
 */
/* Values that a pinned number can take at all. */
static bool is_plausible(const struct trial *t, size_t pin, int value)
{
    const char *key = pins[pin].key;
    int n_ranks = t->given->n_nodes * t->given->gpus_per_node;

    if (strcmp(key, "zero") == 0) {
        return value >= 0 && value <= 3;
    }
    if (value < 1) {
        return false;
    }
    return strcmp(key, "micro_batch") == 0
               ? t->from->workload.global_batch % value == 0
           : strcmp(key, "vpp") == 0 ? value <= t->from->model.n_layers
           : strcmp(key, "ep") == 0
               ? t->from->model.moe.n_experts > 0 &&
                     t->from->model.moe.n_experts % value == 0
               : n_ranks % value == 0;
}

static bool is_number(size_t pin)
{
    static const char *const keys[] = {"tp", "cp",  "pp",          "dp",
                                       "ep", "vpp", "micro_batch", "zero"};

    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        if (strcmp(pins[pin].key, keys[i]) == 0) {
            return true;
        }
    }
    return false;
}

/* The nearest value below or above what was asked for that has a plan. */
static void try_nearest(struct trial *t, size_t pin, int direction)
{
    enum { TRIES = 4, FARTHEST = 1 << 16 };
    int asked = *pin_of(&t->opts, pin), n_tried = 0;
    char what[MW_PLAN_TEXT_MAX];

    for (int d = 1; n_tried < TRIES && d < FARTHEST; d++) {
        int value = asked + direction * d;

        if (direction < 0 && value < 0) {
            return;
        }
        if (!is_plausible(t, pin, value)) {
            continue;
        }
        n_tried++;
        *pin_of(&t->opts, pin) = value;
        snprintf(what, sizeof what, "%s=%d instead of %d", pins[pin].key, value,
                 asked);
        if (try_it(t, what)) {
            return;
        }
    }
}

static void try_moves(struct trial *t)
{
    for (int k = 0; k < t->n_moves; k++) {
        const struct move *m = &t->move[k];
        char what[MW_PLAN_TEXT_MAX];

        give_up(t, m);
        t->is_found[k] = try_it(t, move_text(m, what));
        if (t->is_found[k] && m->give == GIVE_INT && is_number(m->i)) {
            try_nearest(t, m->i, -1);
            try_nearest(t, m->i, 1);
        }
    }
}

static bool set_nodes(struct trial *t, int nodes)
{
    if (mw_cost_ctx_init(&t->ctx, t->given->db, t->given->system->slug, nodes,
                         t->given->gpus_per_node, NULL) != MW_OK) {
        reset(t);
        return false;
    }
    mw_cost_set_domain(&t->ctx, t->from->cluster.domain_nodes);
    mw_cost_ctx_set_stack(&t->ctx, t->given->stack.name, NULL);
    t->scenario.cluster.n_nodes = nodes;
    return true;
}

static bool try_nodes(struct trial *t, int nodes, struct mw_change *out)
{
    return set_nodes(t, nodes) && search(t, out);
}

/* The fewest that suffice between one number, that does not, and another, that
 * does, if more do where fewer do: the gap is halved until it is closed. */
static int halve_nodes(struct trial *t, int fails, int fits,
                       struct mw_change *out)
{
    struct mw_change c;

    while (fits > fails + 1 && !t->out->is_cut_short) {
        int nodes = fails + (fits - fails) / 2;

        if (try_nodes(t, nodes, &c)) {
            fits = nodes;
            *out = c;
        } else {
            fails = nodes;
        }
    }
    return fits;
}

/*
 * The fewest more that suffice: every number up to SCANNED more, for how one
 * divides says nothing of its neighbours. Beyond, the first of a list that
 * does, halved towards the last that does not; fewer that divide better may do.
 */
static void add_nodes(struct trial *t)
{
    enum { SCANNED = 16, MOST = 1 << 20 };
    static const double more[] = {1.5, 2, 3, 4, 6, 8, 16, 32, 64};
    int n = t->given->n_nodes, spare = t->from->cluster.spare_nodes;
    int fails = n, fits = 0;
    struct mw_change c;

    for (int nodes = n + 1; fits == 0 && nodes <= n + SCANNED; nodes++) {
        fits = try_nodes(t, nodes, &c) ? nodes : 0;
        fails = nodes;
    }
    for (size_t i = 0; fits == 0 && i < sizeof more / sizeof more[0]; i++) {
        double nodes = ceil(more[i] * n);

        if (nodes <= fails || nodes > MOST) {
            continue;
        }
        if (try_nodes(t, (int)nodes, &c)) {
            fits = halve_nodes(t, fails, (int)nodes, &c);
        }
        fails = (int)nodes;
    }
    if (fits > 0) {
        snprintf(c.what, sizeof c.what, "%d nodes instead of %d", fits + spare,
                 n + spare);
        add_change(t, &c);
    }
}

/* Numbers of nodes that divide badly: one or two more stand by. */
static void drop_nodes(struct trial *t)
{
    int n = t->given->n_nodes, already = t->from->cluster.spare_nodes;

    for (int more = 1; more <= 2 && more < n; more++) {
        char what[MW_PLAN_TEXT_MAX];

        snprintf(what, sizeof what,
                 "%d of the %d nodes standing by (cluster: spare_nodes)",
                 already + more, n + already);
        if (set_nodes(t, n - more) && try_it(t, what)) {
            return;
        }
    }
}

/* Batches that divide among the replicas asked for, or among all ranks. */
static void try_batches(struct trial *t)
{
    const struct mw_search_opts *o = t->asked;
    int64_t batch = t->from->workload.global_batch;
    /* of replicas, of a micro-batch, or of all ranks */
    int64_t of = o->dp > 0 || o->micro_batch > 0
                     ? (int64_t)(o->dp > 0 ? o->dp : 1) *
                           (o->micro_batch > 0 ? o->micro_batch : 1)
                     : (int64_t)t->given->n_nodes * t->given->gpus_per_node;

    for (int up = 0; up < 2 && batch % of != 0; up++) {
        int64_t other = (batch / of + up) * of;
        char what[MW_PLAN_TEXT_MAX];

        if (other > 0) {
            t->scenario.workload.global_batch = other;
            snprintf(what, sizeof what, "global_batch %lld instead of %lld",
                     (long long)other, (long long)batch);
            try_it(t, what);
        }
    }
}

/* ---- together --------------------------------------------------------------
 */
static void give_up_all(struct trial *t, const bool *is_kept)
{
    for (int k = 0; k < t->n_moves; k++) {
        if (!is_kept[k]) {
            give_up(t, &t->move[k]);
        }
    }
}

/* All are given up, then taken back one by one where there still is a plan: no
 * part of what is left is enough. */
static void try_together(struct trial *t)
{
    bool is_kept[MOVES_MAX] = {false};
    struct mw_str what = {0};
    struct mw_change c, fewer;
    char text[MW_PLAN_TEXT_MAX];

    give_up_all(t, is_kept);
    if (!search(t, &c)) {
        return;
    }
    for (int k = t->n_moves - 1; k >= 0 && !t->out->is_cut_short; k--) {
        is_kept[k] = true;
        give_up_all(t, is_kept);
        if (search(t, &fewer)) {
            c = fewer;
        } else {
            is_kept[k] = false;
        }
    }
    for (int k = 0; k < t->n_moves; k++) {
        if (!is_kept[k]) {
            mw_str_addf(&what, "%s%s", what.n > 0 ? ", and " : "",
                        move_text(&t->move[k], text));
        }
    }
    snprintf(c.what, sizeof c.what, "%.250s", what.s ? what.s : "");
    mw_str_release(&what);
    t->out->is_joint = true;
    add_change(t, &c);
}

enum mw_status mw_changes_find(const struct mw_scenario *scenario,
                               const struct mw_cost_ctx *ctx,
                               const struct mw_search_opts *opts,
                               struct mw_changes *out)
{
    struct trial *t = mw_calloc(1, sizeof *t);

    *out = (struct mw_changes){.n = 0};
    t->from = scenario;
    t->given = ctx;
    t->asked = opts;
    t->out = out;
    reset(t);
    find_moves(t);
    try_moves(t);
    if (scenario->cluster.leaves.n == 0) {
        add_nodes(t);
        drop_nodes(t);
    }
    try_batches(t);
    if (out->n == 0 && t->n_moves > 1) {
        try_together(t);
    }
    mw_free(t);
    return out->n > 0 ? MW_OK : MW_ENO;
}
