/* Columns of mixed clusters from the simulator's prices, one problem for each
 * (pp, dp, micro-batch); the best value of all is kept. */
#include "planner/mixed.h"

#include "base/log.h"
#include "sim/step/fast.h"

#include <math.h>
#include <string.h>

/* Of one problem; few need more than a tenth of a second. */
enum { PROBLEM_LIMIT_S = 2 };

struct kind {
    struct mw_cost_ctx ctx;
    struct mw_fast *fast;
    int n_gpus;
    double usable_bytes;
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
    double slope[MW_MIXED_STAGES_MAX], fixed[MW_MIXED_STAGES_MAX];
};

/* tag: tp and recomputation of a column. */
static int tag_of(int tp, int recompute)
{
    return tp * 4 + recompute;
}

/* All layers that fit, on every stage, for one tp and recomputation. */
static void add_columns(struct builder *b, int k, const struct mw_layout *l)
{
    struct kind *kind = &b->kind[k];
    struct mw_fast_units units;

    mw_fast_units_of(kind->fast, l, &units);
    if (mw_fast_memory_rows(kind->fast, l, b->slope, b->fixed, NULL) != MW_OK) {
        return;
    }
    for (int i = 0; i < l->pp; i++) {
        double extra = (i == 0 ? units.embedding_s : 0) +
                       (i == l->pp - 1 ? units.head_s : 0);
        int most = b->scenario->model.n_layers - l->pp + 1;

        for (int n = 1;
             n <= most && b->fixed[i] + n * b->slope[i] <= kind->usable_bytes;
             n++) {
            struct mw_column c = {.stage = i,
                                  .time_s = n * units.layer_s + extra,
                                  .n_layers = n,
                                  .kind = k,
                                  .n_devices = l->tp * l->dp,
                                  .tag = tag_of(l->tp, (int)l->recompute)};

            mw_array_push(&b->columns, c);
        }
    }
}

static bool is_legal(const struct builder *b, const struct mw_layout *l)
{
    return mw_layout_check(l, &b->scenario->model, &b->scenario->workload, 0,
                           NULL, NULL) == MW_OK;
}

static void fill_columns(struct builder *b, struct mw_layout l)
{
    mw_array_clear(&b->columns);
    for (int k = 0; k < b->n_kinds; k++) {
        int per_node = b->kind[k].ctx.gpus_per_node;

        for (int tp = 1; tp <= per_node; tp *= 2) {
            if ((b->opts->tp > 0 && tp != b->opts->tp) || per_node % tp != 0 ||
                tp * l.dp > b->kind[k].n_gpus) {
                continue;
            }
            for (int r = MW_RECOMPUTE_NONE; r <= MW_RECOMPUTE_FULL; r++) {
                l.tp = tp;
                l.sp = tp > 1;
                l.zero = l.dp > 1;
                l.recompute = (enum mw_recompute)r;
                if (is_legal(b, &l)) {
                    add_columns(b, k, &l);
                }
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

        out->stage[i] = (struct mw_mixed_stage){
            .kind = c->kind,
            .tp = c->tag / 4,
            .n_layers = c->n_layers,
            .recompute = (enum mw_recompute)(c->tag % 4),
            .time_s = c->time_s};
    }
}

static enum mw_status try_one(struct builder *b, const struct mw_layout *l,
                              struct mw_mixed *out, struct mw_err *err)
{
    int chosen[MW_MIXED_STAGES_MAX];
    int m = mw_microbatches(l, &b->scenario->workload);
    struct mw_column_answer answer = {0};
    struct mw_err why = {0};

    fill_columns(b, *l);
    struct mw_column_problem p = {.n_stages = l->pp,
                                  .n_layers = b->scenario->model.n_layers,
                                  .n_kinds = b->n_kinds,
                                  .max_kinds = b->scenario->limits.node_kinds,
                                  .n_microbatches = m,
                                  .change_s = change_s(b, l),
                                  .beat_s =
                                      out->pp > 0 ? out->answer.value_s : 0,
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

static bool is_asked(int fixed, int value)
{
    return fixed == 0 || fixed == value;
}

static enum mw_status try_all(struct builder *b, struct mw_mixed *out,
                              struct mw_err *err)
{
    int64_t batch = b->scenario->workload.global_batch;
    int n_layers = b->scenario->model.n_layers, n_gpus = 0;
    enum mw_status status = MW_OK;
    struct mw_layout l;

    mw_layout_default(&l);
    for (int k = 0; k < b->n_kinds; k++) {
        n_gpus += b->kind[k].n_gpus;
    }
    for (l.pp = 2; l.pp <= MW_MIXED_STAGES_MAX && l.pp <= n_layers; l.pp++) {
        bool is_free = (l.pp & (l.pp - 1)) == 0;

        if (b->opts->pp > 0 ? l.pp != b->opts->pp : !is_free) {
            continue;
        }
        for (l.dp = 1; l.dp <= batch && l.dp * l.pp <= n_gpus; l.dp++) {
            is_free = (l.dp & (l.dp - 1)) == 0;
            if (batch % l.dp != 0 ||
                (b->opts->dp > 0 ? l.dp != b->opts->dp : !is_free)) {
                continue;
            }
            for (l.micro_batch = 1; l.micro_batch <= 8 && status == MW_OK;
                 l.micro_batch *= 2) {
                if (batch / l.dp % l.micro_batch == 0 &&
                    is_asked(b->opts->micro_batch, l.micro_batch)) {
                    status = try_one(b, &l, out, err);
                }
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
        b->n_kinds++;
    }
    return MW_OK;
}

enum mw_status mw_mixed_find(const struct mw_scenario *scenario,
                             const struct mw_hwdb *db, const char *stack,
                             const struct mw_mixed_system *systems,
                             int n_systems, const struct mw_search_opts *opts,
                             const char *lp_path, struct mw_mixed *out,
                             struct mw_err *err)
{
    int64_t start_ns = mw_clock_wall_ns();
    const struct mw_moe *moe = &scenario->model.moe;
    struct builder *b = mw_calloc(1, sizeof *b);
    struct mw_mixed found = {.is_proved = true};
    enum mw_status status = MW_OK;

    MW_ASSERT(n_systems >= 1 && n_systems <= MW_MIXED_KINDS_MAX, "%d systems",
              n_systems);
    b->scenario = scenario;
    b->opts = opts;
    b->lp_path = lp_path;
    if (moe->n_experts > 0 && (moe->first_dense > 0 || moe->every > 1)) {
        status = mw_fail(err, MW_EUSAGE,
                         "mixed systems are for models of alike layers");
    }
    if (status == MW_OK) {
        status = open_kinds(b, db, stack, systems, n_systems, err);
    }
    if (status == MW_OK) {
        status = try_all(b, &found, err);
    }
    if (status == MW_OK && found.pp == 0) {
        status = mw_fail(err, MW_ENO,
                         "no pipeline over these systems fits the model; %d "
                         "choices of stages, replicas and micro-batch tried",
                         found.n_problems);
    }
    if (status == MW_OK) {
        found.solve_s = 1e-9 * (double)(mw_clock_wall_ns() - start_ns);
        *out = found;
    }
    for (int k = 0; k < MW_MIXED_KINDS_MAX; k++) {
        mw_fast_free(b->kind[k].fast);
    }
    mw_array_release(&b->columns);
    mw_free(b);
    return status;
}
