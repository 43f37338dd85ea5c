/*
 * What a verified run must also be: its losses sensible, its activations those
 * that the model predicts, to the byte, its messages those of the simulator's
 * ledger, in number and bytes, by dimension and collective, and in the host's
 * memory the part of the optimizer that the plan puts there.
 *
 * Known differences are added to the ledger here:
 *   two copies of a tied embedding on one stage are both reduced and gathered
 *   (from ZeRO-2 on the ledger says so itself of a pipeline)
 *   an embedding's weights are not gathered for its backward pass (ZeRO-3)
 *   in more messages, as many bytes: parts of sequences; weights after the
 *   update of ZeRO-2 (layer by layer); adapters and what they leave frozen; a
 *   tied matrix, which ZeRO-2 and 3 move by itself
 */
#include "matrix.h"

#include "hwdb/hwdb.h"
#include "sim/step/ledger.h"
#include "sim/step/step.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* ---- losses and memory --------------------------------------------------- */
static void judge_losses(const struct matrix_case *c,
                         const struct mw_drive_result *r,
                         char out[MATRIX_WHY_MAX])
{
    for (int i = 0; i < r->steps; i++) {
        if (!isfinite(r->loss[i])) {
            snprintf(out, MATRIX_WHY_MAX, "loss %d is %g", i, r->loss[i]);
        }
    }
    /* ln 64 = 4.16 before anything is learned. */
    if (fabs(r->loss[0] - 4.1589) > 0.02 * 4.1589 ||
        (c->lora_rank == 0 && !(r->loss[r->steps - 1] < r->loss[0]))) {
        snprintf(out, MATRIX_WHY_MAX, "loss goes from %g to %g", r->loss[0],
                 r->loss[r->steps - 1]);
    }
}

static void judge_memory(const struct matrix_case *c,
                         const struct mw_drive_result *r,
                         char out[MATRIX_WHY_MAX])
{
    for (int i = 0; i < r->n_ranks; i++) {
        double had = r->activation_peak_bytes[i];
        double predicted = r->predicted_activation_bytes[i];
        /* Spread experts get what the routers send them. */
        if (!(had > 0.0 || c->bare_ends) || (c->ep <= 1 && had != predicted) ||
            !(had < r->kept_peak_bytes[i]) ||
            !(r->kept_peak_bytes[i] < r->peak_bytes[i])) {
            snprintf(out, MATRIX_WHY_MAX,
                     "rank %d had %.0f bytes of activations (predicted %.0f), "
                     "kept %.0f, in all %.0f",
                     i, had, predicted, r->kept_peak_bytes[i],
                     r->peak_bytes[i]);
        }
    }
}

/* ---- traffic --------------------------------------------------------------
 */
struct world {
    struct mw_scenario scenario;
    struct mw_plan plan;
    struct mw_hwdb *db;
    struct mw_cost_ctx ctx;
};

static void open_world(struct world *w, int ranks)
{
    char path[64];
    struct mw_err err = {0};
    matrix_plan_name(path, sizeof path, ranks);
    assert_int_equal(mw_plan_load_own(path, &w->scenario, &w->plan, &err),
                     MW_OK);
    assert_int_equal(mw_hwdb_load(NULL, &w->db, &err), MW_OK);
    const struct mw_cluster *c = &w->scenario.cluster;
    assert_int_equal(mw_cost_ctx_init(&w->ctx, w->db, c->system, c->n_nodes,
                                      c->gpus_per_node, &err),
                     MW_OK);
}

static void close_world(struct world *w)
{
    mw_hwdb_free(w->db);
    mw_plan_release(&w->plan);
    mw_scenario_release(&w->scenario);
}

static bool holds(const struct mw_plan *p, int stage, int virtual_stage)
{
    const struct mw_schedule *s = &p->schedule;
    for (int c = 0; c < s->n_chunks; c++) {
        if (s->virtual_stage[stage * s->n_chunks + c] == virtual_stage) {
            return true;
        }
    }
    return false;
}

/* Of the weights, or of their gradients. */
static double embedding_bytes(const struct world *w, enum mw_dtype dtype)
{
    const struct mw_model *m = &w->scenario.model;
    return mw_dtype_bytes(dtype) * m->vocab / w->plan.layout.tp * m->hidden;
}

static double position_bytes(const struct world *w, enum mw_dtype dtype)
{
    const struct mw_model *m = &w->scenario.model;
    return m->position == MW_POS_LEARNED
               ? mw_dtype_bytes(dtype) * m->max_seq * m->hidden
               : 0.0;
}

/* Buckets with the second copy among what fills them; no model that ties its
 * embedding has experts. */
static void count_buckets(const struct world *w, struct mw_traffic *out)
{
    const struct mw_workload *work = &w->scenario.workload;
    double size = w->plan.layout.bucket_size;
    for (int op = 0; op < MW_COLL_OP_COUNT && size > 0; op++) {
        double elem = mw_dtype_bytes(op == MW_ALL_GATHER ? work->dtype
                                                         : work->grad_dtype);
        out->count[MW_DIM_DP][op] =
            ceil(out->bytes[MW_DIM_DP][op] / elem / size);
    }
}

/* A second copy on the stage, which the ledger does not have. */
static void add_copy(const struct world *w, struct mw_traffic *out)
{
    const struct mw_layout *l = &w->plan.layout;
    const struct mw_workload *work = &w->scenario.workload;
    double *count = out->count[MW_DIM_DP], *bytes = out->bytes[MW_DIM_DP];
    double n = l->zero < 2 ? 1.0 : (double)w->plan.n_microbatches;
    double grads = embedding_bytes(w, work->grad_dtype);
    double weights = embedding_bytes(w, work->dtype);
    bool is_new = l->zero < 2 || l->pp == 1;
    if (l->zero == 3 && is_new) {
        bytes[MW_ALL_GATHER] += (l->reshard ? 2.0 : 1.0) * n * weights;
    } else if (l->zero < 3 && count[MW_ALL_GATHER] > 0.0) {
        bytes[MW_ALL_GATHER] += weights;
    }
    if (is_new && work->lora_rank == 0) {
        int ways = mw_layout_shard_ways(l) * l->cp;
        bool is_added = count[MW_REDUCE_SCATTER] > 0.0 && l->dp_shard > 0;
        bytes[MW_REDUCE_SCATTER] +=
            count[MW_REDUCE_SCATTER] > 0.0 ? n * grads : 0.0;
        bytes[MW_ALL_REDUCE] += is_added ? n * grads / ways
                                : l->zero == 0 && count[MW_ALL_REDUCE] > 0.0
                                    ? grads
                                    : 0.0;
    }
    count_buckets(w, out);
}

static void expect(const struct world *w, int stage, struct mw_traffic *out)
{
    const struct mw_layout *l = &w->plan.layout;
    const struct mw_workload *work = &w->scenario.workload;
    struct mw_ledger ledger = {0};
    bool has_embedding = holds(&w->plan, stage, 0);
    bool has_head = holds(&w->plan, stage, w->plan.n_virtual - 1);
    bool has_both = w->scenario.model.tied && has_embedding && has_head &&
                    (l->zero == 3 || work->lora_rank == 0);
    *out = (struct mw_traffic){{{0}}, {{0}}};
    mw_step_ledger(&w->scenario, &w->plan, &w->ctx, stage, &ledger);
    for (size_t i = 0; i < ledger.n; i++) {
        const struct mw_ledger_row *row = &ledger.v[i];
        out->count[row->dim][row->op] += row->count;
        out->bytes[row->dim][row->op] += row->message_bytes;
    }
    mw_array_release(&ledger);
    double *count = out->count[MW_DIM_DP], *bytes = out->bytes[MW_DIM_DP];
    if (has_both) {
        add_copy(w, out);
    }
    if (l->zero == 3 && l->reshard && count[MW_ALL_GATHER] > 0.0 &&
        has_embedding) {
        double n = (double)w->plan.n_microbatches / w->plan.schedule.n_routes;
        count[MW_ALL_GATHER] -= n;
        bytes[MW_ALL_GATHER] -= n * (embedding_bytes(w, work->dtype) +
                                     position_bytes(w, work->dtype));
    }
}

/* ---- the host's memory: states, and a gradient and a weight on their way --
 */
static void judge_host(const struct matrix_case *c, int ranks,
                       const struct mw_drive_result *r,
                       char out[MATRIX_WHY_MAX])
{
    const struct mw_step_opts opts = {.memory_only = true};
    const int n_states = c->is_bf16 ? 3 : 2;
    struct world w;
    struct mw_step_result all;
    struct mw_err err = {0};
    open_world(&w, ranks);
    /* Memory is the same on all; this one has rates for all types. */
    assert_int_equal(mw_cost_ctx_init(&w.ctx, w.db, "dgx-h100", 1, 8, &err),
                     MW_OK);
    double part = w.plan.layout.offload_optimizer;
    w.plan.layout.offload_optimizer = 0;
    assert_int_equal(
        mw_step_simulate(&w.scenario, &w.plan, &w.ctx, &opts, &all, &err),
        MW_OK);
    for (int i = 0; i < ranks; i++) {
        int stage = mw_layout_coord(&w.plan.layout, i).pp;
        double states = part * all.memory[stage].optimizer_bytes;
        double want = states * (n_states + 2) / n_states;
        if (fabs(r->host_peak_bytes[i] - want) > 0.02 * want) { /* ZeRO pads */
            snprintf(out, MATRIX_WHY_MAX,
                     "rank %d had %.0f bytes in the host's memory, not %.0f", i,
                     r->host_peak_bytes[i], want);
        }
    }
    mw_step_result_release(&all);
    close_world(&w);
}

/* What the routers decide is not predicted; nor how many elements of norms are
 * in a rank's share of all gradients (ZeRO-2). */
static bool is_free(const struct matrix_case *c, enum mw_dim dim,
                    enum mw_coll_op op)
{
    return (dim == MW_DIM_ETP && c->ep > 1) ||
           (dim == MW_DIM_TP && op == MW_ALL_REDUCE && c->zero >= 2 &&
            (c->sp || c->lora_rank > 0));
}

static bool is_same(double a, double b)
{
    return fabs(a - b) <= 1e-9 * fabs(b);
}

/* In more messages than the ledger's. */
static bool is_cut(const struct matrix_case *c, enum mw_dim dim,
                   enum mw_coll_op op)
{
    bool has_parts = c->schedule && strcmp(c->schedule, "seq1f1b") == 0;
    bool has_units = dim == MW_DIM_DP && op == MW_ALL_GATHER &&
                     (c->zero == 2 || c->lora_rank > 0);
    /* Shares of experts and of the rest are added over copies in two. */
    bool has_two = dim == MW_DIM_DP && op == MW_ALL_REDUCE && c->dp_shard > 0 &&
                   c->model >= MATRIX_MOE;
    bool has_tied = dim == MW_DIM_DP && c->zero >= 2 && c->model == MATRIX_GPT;
    return has_parts || has_units || has_two || has_tied;
}

static void judge_rank(const struct matrix_case *c, int rank,
                       const struct mw_traffic *had,
                       const struct mw_traffic *want, char out[MATRIX_WHY_MAX])
{
    for (int i = 0; i < MW_DIM_COUNT * MW_COLL_OP_COUNT; i++) {
        int dim = i / MW_COLL_OP_COUNT, op = i % MW_COLL_OP_COUNT;
        bool is_counted = is_cut(c, (enum mw_dim)dim, (enum mw_coll_op)op) ||
                          is_same(had->count[dim][op], want->count[dim][op]);
        if (is_free(c, (enum mw_dim)dim, (enum mw_coll_op)op) ||
            (is_counted &&
             is_same(had->bytes[dim][op], want->bytes[dim][op]))) {
            continue;
        }
        snprintf(out, MATRIX_WHY_MAX,
                 "rank %d had %.0f %s over %s of %.0f bytes, the ledger has "
                 "%.0f of %.0f",
                 rank, had->count[dim][op],
                 mw_coll_op_name((enum mw_coll_op)op),
                 mw_dim_name((enum mw_dim)dim), had->bytes[dim][op],
                 want->count[dim][op], want->bytes[dim][op]);
    }
}

static void judge_traffic(const struct matrix_case *c, int ranks,
                          const struct mw_drive_result *r,
                          char out[MATRIX_WHY_MAX])
{
    struct world w;
    open_world(&w, ranks);
    for (int i = 0; i < ranks; i++) {
        struct mw_traffic want;
        expect(&w, mw_layout_coord(&w.plan.layout, i).pp, &want);
        judge_rank(c, i, &r->traffic[i], &want, out);
    }
    close_world(&w);
}

void matrix_judge(const struct matrix_case *c, int ranks,
                  const struct mw_drive_result *r, char out[MATRIX_WHY_MAX])
{
    out[0] = '\0';
    judge_losses(c, r, out);
    judge_memory(c, r, out);
    judge_traffic(c, ranks, r, out);
    judge_host(c, ranks, r, out);
}
