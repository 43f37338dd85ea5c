/*
 * Columns of mixed clusters from the simulator's prices, one problem for each
 * (pp, dp, micro-batch); the best value of all is kept. Columns meet the
 * scenario's limits and the rules of its framework (space_limits.c), which runs
 * the same tp, ep, recomputation and offload on all stages: then one problem
 * for each.
 */
#include "planner/mixed.h"

#include "base/log.h"
#include "base/units.h"
#include "planner/layer_places.h"
#include "planner/space.h"
#include "sim/step/fast.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* Of one problem; few need more than a tenth of a second. */
enum { PROBLEM_LIMIT_S = 2, MICRO_BATCH_MAX = 8 };

struct kind {
    struct mw_cost_ctx ctx;
    struct mw_fast *fast;
    int n_gpus;
    double usable_bytes;
    struct mw_space space; /* for its limits and rules */
};

/* What a column's tag stands for. */
struct way {
    int tp, ep;
    enum mw_recompute recompute;
    double offload_optimizer;
};

struct builder {
    const struct mw_scenario *scenario;
    const struct mw_search_opts *opts;
    const char *lp_path;
    struct kind kind[MW_MIXED_KINDS_MAX];
    int n_kinds;
    struct {
        struct mw_column *v;
        size_t n, cap;
    } columns;
    struct {
        struct way *v;
        size_t n, cap;
    } ways;
    struct mw_layer_places places;
    struct mw_fast_stretch *stretch; /* [n_layers] */
    char why[MW_PLAN_TEXT_MAX]; /* the first layout was refused; "": none */
};

/* The index of the layout's, new or not. */
static int tag_of(struct builder *b, const struct mw_layout *l)
{
    struct way way = {l->tp, l->ep, l->recompute, l->offload_optimizer};

    for (size_t i = 0; i < b->ways.n; i++) {
        const struct way *w = &b->ways.v[i];

        if (w->tp == way.tp && w->ep == way.ep &&
            w->recompute == way.recompute &&
            !(w->offload_optimizer < way.offload_optimizer) &&
            !(w->offload_optimizer > way.offload_optimizer)) {
            return (int)i;
        }
    }
    mw_array_push(&b->ways, way);
    return (int)b->ways.n - 1;
}

/* First layers of stages stand for all at the same place; the numbers of layers
 * that stage i can have from `first` on, the others having one or more. */
static int most_from(const struct builder *b, int pp, int i, int first)
{
    return b->scenario->model.n_layers - first - (pp - 1 - i);
}

/* Does the last stage end with the model? */
static bool ends_well(const struct builder *b, int pp, int i, int place, int n)
{
    return i < pp - 1 ||
           mw_layer_place(&b->places, b->scenario->model.n_layers - n) == place;
}

/* No layer from i on and before `first` has its place? */
static bool is_new_place(const struct builder *b, int i, int first)
{
    int place = mw_layer_place(&b->places, first);

    for (int layer = i; layer < first; layer++) {
        if (mw_layer_place(&b->places, layer) == place) {
            return false;
        }
    }
    return true;
}

/* Does a node have room for what such ranks offload? */
static bool is_on_host(struct builder *b, const struct kind *kind,
                       const struct mw_fast_stretch *stretch)
{
    double bytes = stretch->host_bytes * kind->ctx.gpus_per_node;
    double room = kind->ctx.system->host_mem_bytes;
    char need[MW_FMT_MAX], has[MW_FMT_MAX];

    if (!(bytes > room)) { /* NaN: not known */
        return true;
    }
    if (b->why[0] == '\0') {
        snprintf(b->why, sizeof b->why,
                 "host_memory: a node of %s would hold %s of its %s",
                 kind->ctx.system->slug, mw_fmt_bytes(bytes, need),
                 mw_fmt_bytes(room, has));
    }
    return false;
}

/* Numbers of layers that fit, for a stage and its first layer. */
static bool add_stretch(struct builder *b, int k, const struct mw_layout *l,
                        int i, int first)
{
    struct kind *kind = &b->kind[k];
    int most = most_from(b, l->pp, i, first);
    int place = mw_layer_place(&b->places, first), tag = tag_of(b, l);

    if (mw_fast_stretches(kind->fast, l, i, first, most, b->stretch, NULL) !=
        MW_OK) {
        return false;
    }
    for (int n = 1; n <= most && b->stretch[n - 1].bytes <= kind->usable_bytes;
         n++) {
        const struct mw_fast_stretch *stretch = &b->stretch[n - 1];
        struct mw_column c = {.stage = i,
                              .time_s = stretch->time_s,
                              .n_layers = n,
                              .kind = k,
                              .n_devices = l->tp * l->dp,
                              .tag = tag,
                              .begins = place,
                              .ends = mw_layer_place(&b->places, first + n),
                              .after_s = stretch->offload_s};

        if (!is_on_host(b, kind, stretch)) {
            break;
        }
        if (ends_well(b, l->pp, i, place, n)) {
            mw_array_push(&b->columns, c);
        }
    }
    return true;
}

/* Every stage from every place, for one tp, ep and recomputation. The first
 * layer at a place can have most layers after it. */
static void add_columns(struct builder *b, int k, const struct mw_layout *l)
{
    int n_places = b->places.prefix + b->places.period;

    for (int i = 0; i < l->pp; i++) {
        int last = i == 0 ? 0 : b->scenario->model.n_layers - l->pp + i;

        last = last < i + n_places - 1 ? last : i + n_places - 1;
        for (int first = i; first <= last; first++) {
            if (is_new_place(b, i, first) && !add_stretch(b, k, l, i, first)) {
                return;
            }
        }
    }
}

static bool is_legal(struct builder *b, int k, const struct mw_layout *l)
{
    char text[MW_PLAN_TEXT_MAX];
    bool is_refused = mw_space_forbids(&b->kind[k].space, l, text) != NULL;

    if (is_refused && b->why[0] == '\0') {
        snprintf(b->why, sizeof b->why, "%s", text);
    }
    return !is_refused;
}

/* Sequence parallelism and ZeRO's stage, which only memory knows here: on where
 * there is tp, ZeRO-1 where there are replicas, else the first that is allowed.
 */
static bool make_legal(struct builder *b, int k, struct mw_layout *l)
{
    const struct mw_search_opts *o = b->opts;
    const int stages[] = {l->dp > 1, 0, 2, 3};
    size_t n_stages = o->zero >= 0 ? 1 : sizeof stages / sizeof stages[0];

    for (int off = 0; off < 2; off++) {
        l->sp = o->sp >= 0 ? o->sp > 0 : l->tp > 1 && !off;
        for (size_t i = 0; i < n_stages; i++) {
            l->zero = o->zero >= 0 ? o->zero : stages[i];
            if (is_legal(b, k, l)) {
                return true;
            }
        }
        if (l->tp == 1 || o->sp >= 0) {
            break;
        }
    }
    return false;
}

/* Is a number of ways tried: the fixed one, else the limits', else powers of
 * two up to a greatest? */
static bool is_tried(int fixed, const struct mw_int_list *listed, int value,
                     int most)
{
    return fixed > 0       ? value == fixed
           : listed->n > 0 ? mw_int_list_holds(listed, value)
                           : value <= most && (value & (value - 1)) == 0;
}

/* Parts of the optimizer's states in the host's memory, of those that the space
 * has. */
static void add_offloaded(struct builder *b, int k, struct mw_layout l)
{
    const struct mw_space *space = &b->kind[k].space;

    for (int o = 0; o < space->n_offloads; o++) {
        const double *part = space->offload[o];

        l.offload_optimizer = part[0];
        l.offload_weights = part[1];
        l.offload_activations = part[2];
        if (!(part[1] > 0) && !(part[2] > 0) && make_legal(b, k, &l)) {
            add_columns(b, k, &l);
        }
    }
}

static void add_recomputed(struct builder *b, int k, struct mw_layout l)
{
    for (int r = MW_RECOMPUTE_NONE; r <= MW_RECOMPUTE_FULL; r++) {
        l.recompute = (enum mw_recompute)r;
        if (b->opts->recompute < 0 || b->opts->recompute == r) {
            add_offloaded(b, k, l);
        }
    }
}

/* Experts lie on ranks of their stage. */
static void add_experts(struct builder *b, int k, struct mw_layout l)
{
    int n = b->scenario->model.moe.n_experts, fixed = b->opts->ep;

    for (l.ep = 1; l.ep <= n || l.ep <= fixed || l.ep == 1; l.ep++) {
        bool is_free = l.ep == 1 || (n % l.ep == 0 && l.tp * l.dp % l.ep == 0);

        if (fixed > 0 ? l.ep == fixed : is_free) {
            add_recomputed(b, k, l);
        }
    }
}

static void fill_columns(struct builder *b, struct mw_layout l)
{
    const struct mw_int_list *listed = &b->scenario->limits.tp;

    mw_array_clear(&b->columns);
    mw_array_clear(&b->ways);
    for (int k = 0; k < b->n_kinds; k++) {
        int per_node = b->kind[k].ctx.gpus_per_node;

        for (l.tp = 1; l.tp <= per_node; l.tp++) {
            bool is_tp = is_tried(b->opts->tp, listed, l.tp, per_node);

            if (is_tp && per_node % l.tp != 0 && b->why[0] == '\0') {
                snprintf(b->why, sizeof b->why,
                         "tp %d does not divide the %d devices of a node of %s",
                         l.tp, per_node, b->kind[k].ctx.system->slug);
            } else if (is_tp && per_node % l.tp == 0 &&
                       l.tp * l.dp <= b->kind[k].n_gpus) {
                add_experts(b, k, l);
            }
        }
    }
}

/* Between systems an activation leaves its node, on the slower network. */
static double change_s(const struct builder *b, const struct mw_layout *l)
{
    const struct mw_workload *w = &b->scenario->workload;
    struct mw_work work = {.model = &b->scenario->model,
                           .layout = l,
                           .seq = w->seq,
                           .dtype = w->dtype,
                           .is_flash = w->is_flash,
                           .has_dropout = w->has_dropout,
                           .grad_dtype = w->grad_dtype};
    double slowest = 0;

    for (int k = 0; k < b->n_kinds; k++) {
        struct mw_cost cost =
            mw_cost_p2p(&b->kind[k].ctx, mw_boundary_bytes(&work), true,
                        b->kind[k].ctx.gpus_per_node, NULL);

        slowest = fmax(slowest, cost.time_s);
    }
    return slowest;
}

static void keep(const struct builder *b, const struct mw_layout *l, int m,
                 const int *chosen, const struct mw_column_answer *answer,
                 struct mw_mixed *out)
{
    out->pp = l->pp;
    out->dp = l->dp;
    out->micro_batch = l->micro_batch;
    out->n_microbatches = m;
    out->answer = *answer;
    for (int i = 0; i < l->pp; i++) {
        const struct mw_column *c = &b->columns.v[chosen[i]];
        const struct way *way = &b->ways.v[c->tag];

        out->stage[i] =
            (struct mw_mixed_stage){.kind = c->kind,
                                    .tp = way->tp,
                                    .ep = way->ep,
                                    .n_layers = c->n_layers,
                                    .recompute = way->recompute,
                                    .offload_optimizer = way->offload_optimizer,
                                    .after_s = c->after_s,
                                    .time_s = c->time_s};
    }
}

static enum mw_status solve(struct builder *b, const struct mw_layout *l,
                            struct mw_mixed *out, struct mw_err *err)
{
    int chosen[MW_MIXED_STAGES_MAX];
    int m = mw_microbatches(l, &b->scenario->workload);
    struct mw_column_answer answer = {0};
    struct mw_err why = {0};

    struct mw_column_problem p = {
        .n_stages = l->pp,
        .n_layers = b->scenario->model.n_layers,
        .n_kinds = b->n_kinds,
        .max_kinds = b->scenario->limits.node_kinds,
        .n_microbatches = m,
        .n_places = b->places.prefix + b->places.period,
        .change_s = change_s(b, l),
        .beat_s = out->pp > 0 ? out->answer.value_s : 0,
        .column = b->columns.v,
        .n_columns = b->columns.n};

    if (b->columns.n == 0) {
        return MW_OK;
    }
    for (int k = 0; k < b->n_kinds; k++) {
        p.devices[k] = b->kind[k].n_gpus;
    }
    out->n_problems++;
    out->n_columns += (int)b->columns.n;
    double limit_s =
        b->opts->time_limit_s > 0 ? b->opts->time_limit_s : PROBLEM_LIMIT_S;
    enum mw_status status =
        mw_columns_choose(&p, limit_s, NULL, chosen, &answer, &why);

    if (status == MW_ENO) { /* nothing better with these; others may do */
        out->is_proved = out->is_proved && answer.is_proved;
        return MW_OK;
    }
    if (status != MW_OK) {
        if (err) {
            *err = why;
        }
        return status;
    }
    out->is_proved = out->is_proved && answer.is_proved;
    if (out->pp == 0 || answer.value_s < out->answer.value_s) {
        keep(b, l, m, chosen, &answer, out);
        if (b->lp_path) {
            p.beat_s = 0;
            return mw_columns_write(&p, b->lp_path, err);
        }
    }
    return MW_OK;
}

/* Leaves columns of one tag; how many there are. */
static size_t keep_tag(struct builder *b, const struct mw_column *all,
                       size_t n_all, int tag)
{
    mw_array_clear(&b->columns);
    for (size_t i = 0; i < n_all; i++) {
        if (all[i].tag == tag) {
            mw_array_push(&b->columns, all[i]);
        }
    }
    return b->columns.n;
}

/* One problem, or under a framework one for each tag. */
static enum mw_status try_one(struct builder *b, const struct mw_layout *l,
                              struct mw_mixed *out, struct mw_err *err)
{
    fill_columns(b, *l);
    if (b->scenario->limits.framework == MW_FRAMEWORK_ANY ||
        b->columns.n == 0) {
        return solve(b, l, out, err);
    }
    size_t n = b->columns.n;
    struct mw_column *all = mw_calloc(n, sizeof *all);
    enum mw_status status = MW_OK;

    memcpy(all, b->columns.v, n * sizeof *all);
    for (size_t i = 0; i < n && status == MW_OK; i++) {
        bool is_new = true;

        for (size_t j = 0; j < i && is_new; j++) {
            is_new = all[j].tag != all[i].tag;
        }
        if (is_new && keep_tag(b, all, n, all[i].tag) > 0) {
            status = solve(b, l, out, err);
        }
    }
    mw_free(all);
    return status;
}

static enum mw_status try_batches(struct builder *b, struct mw_layout l,
                                  struct mw_mixed *out, struct mw_err *err)
{
    const struct mw_int_list *listed = &b->scenario->limits.micro_batch;
    int64_t share = b->scenario->workload.global_batch / l.dp;
    enum mw_status status = MW_OK;

    for (l.micro_batch = 1; l.micro_batch <= share && status == MW_OK;
         l.micro_batch++) {
        if (share % l.micro_batch == 0 &&
            is_tried(b->opts->micro_batch, listed, l.micro_batch,
                     MICRO_BATCH_MAX)) {
            status = try_one(b, &l, out, err);
        }
    }
    return status;
}

static enum mw_status try_all(struct builder *b, struct mw_mixed *out,
                              struct mw_err *err)
{
    const struct mw_limits *limits = &b->scenario->limits;
    int64_t batch = b->scenario->workload.global_batch;
    int n_layers = b->scenario->model.n_layers, n_gpus = 0;
    enum mw_status status = MW_OK;
    struct mw_layout l;

    mw_layout_default(&l);
    for (int k = 0; k < b->n_kinds; k++) {
        n_gpus += b->kind[k].n_gpus;
    }
    for (l.pp = 2; l.pp <= MW_MIXED_STAGES_MAX && l.pp <= n_layers; l.pp++) {
        if (!is_tried(b->opts->pp, &limits->pp, l.pp, MW_MIXED_STAGES_MAX)) {
            continue;
        }
        for (l.dp = 1; l.dp <= batch && l.dp * l.pp <= n_gpus; l.dp++) {
            if (status == MW_OK && batch % l.dp == 0 &&
                is_tried(b->opts->dp, &limits->dp, l.dp, n_gpus)) {
                status = try_batches(b, l, out, err);
            }
        }
    }
    return status;
}

static enum mw_status open_kinds(struct builder *b, const struct mw_hwdb *db,
                                 const char *stack,
                                 const struct mw_mixed_system *systems, int n,
                                 struct mw_err *err)
{
    const struct mw_limits *limits = &b->scenario->limits;

    for (int k = 0; k < n; k++) {
        struct kind *kind = &b->kind[k];
        enum mw_status status = mw_cost_ctx_init(
            &kind->ctx, db, systems[k].name, systems[k].n_nodes, 0, err);

        if (status == MW_OK) {
            status = mw_cost_ctx_choose_stack(&kind->ctx, stack,
                                              limits->framework, err);
        }
        if (status == MW_OK) {
            status = mw_fast_check(b->scenario, &kind->ctx, err);
        }
        if (status != MW_OK) {
            return status;
        }
        kind->fast = mw_fast_new(b->scenario, &kind->ctx);
        kind->n_gpus = kind->ctx.n_nodes * kind->ctx.gpus_per_node;
        kind->usable_bytes = mw_step_usable_bytes(b->scenario, &kind->ctx);
        mw_space_init(&kind->space, b->scenario, &kind->ctx, b->opts);
        kind->space.n_ranks = 0; /* stages share them out as they like */
        b->n_kinds++;
    }
    return MW_OK;
}

/* What else --fix pins no column has. */
static enum mw_status check_asked(const struct mw_search_opts *o,
                                  struct mw_err *err)
{
    bool has_other =
        o->cp > 1 || o->cp_inner > 1 || o->etp > 1 || o->vpp > 1 ||
        (o->schedule && strcmp(o->schedule, "1f1b") != 0) || o->order ||
        o->cp_form > 0 || o->dp_shard > 0 || o->reshard == 0 ||
        o->recompute_layers > 0 || o->recompute_modules > 0 ||
        o->overlap_off > 0 || o->bucket_size > 0 || o->fsdp_unit >= 0 ||
        o->fsdp_prefetch >= 0 || o->cuda_graph > 0 || o->dispatcher > 0 ||
        o->overlap_shared_experts > 0 || o->mtp_ahead > 0 || o->vpp_group > 0 ||
        o->main_params > 0 || o->exp_avg > 0 || o->exp_avg_sq > 0 ||
        o->grad_compression > 0 || o->offload_nvme > 0 || o->dtype > 0 ||
        o->grad_dtype > 0 || o->offload_weights > 0 ||
        o->offload_activations > 0;

    return !has_other
               ? MW_OK
               : mw_fail(err, MW_EUSAGE,
                         "--mixed: columns of stages know tp, pp, dp, ep, sp, "
                         "zero, micro_batch, recompute and offload_optimizer; "
                         "--fix pins no other key of them");
}

enum mw_status mw_mixed_find(const struct mw_scenario *scenario,
                             const struct mw_hwdb *db, const char *stack,
                             const struct mw_mixed_system *systems,
                             int n_systems, const struct mw_search_opts *opts,
                             const char *lp_path, struct mw_mixed *out,
                             struct mw_err *err)
{
    int64_t start_ns = mw_clock_wall_ns();
    struct builder *b = mw_calloc(1, sizeof *b);
    struct mw_mixed found = {.is_proved = true};
    enum mw_status status;

    MW_ASSERT(n_systems >= 1 && n_systems <= MW_MIXED_KINDS_MAX, "%d systems",
              n_systems);
    b->scenario = scenario;
    b->opts = opts;
    b->lp_path = lp_path;
    b->places = mw_layer_places_of(
        &scenario->model,
        mw_work_span(scenario->workload.seq, scenario->workload.doc_tokens));
    b->stretch =
        mw_calloc((size_t)scenario->model.n_layers, sizeof *b->stretch);
    status = check_asked(opts, err);
    if (status == MW_OK) {
        status = mw_limits_check_names(scenario, err);
    }
    if (status == MW_OK) {
        status = open_kinds(b, db, stack, systems, n_systems, err);
    }
    if (status == MW_OK) {
        status = try_all(b, &found, err);
    }
    if (status == MW_OK && found.pp == 0) {
        status =
            mw_fail(err, MW_ENO,
                    "no pipeline over these systems fits the model; %d "
                    "choices of stages, replicas and micro-batch tried"
                    "%s%s",
                    found.n_problems, b->why[0] ? "; refused: " : "", b->why);
    }
    if (status == MW_OK) {
        found.solve_s = 1e-9 * (double)(mw_clock_wall_ns() - start_ns);
        *out = found;
    }
    for (int k = 0; k < b->n_kinds; k++) {
        mw_fast_free(b->kind[k].fast);
        mw_space_release(&b->kind[k].space);
    }
    mw_array_release(&b->columns);
    mw_array_release(&b->ways);
    mw_free(b->stretch);
    mw_free(b);
    return status;
}
