/*
 * Times of the operators of a model, as the simulator lists them.
 *
 * The list is sim/model's own (mw_layer_ops, mw_embedding_ops, mw_head_ops),
 * so a row exists for every key the simulator will ask for. Each operator is
 * called through the device table, as the executor calls it, in a loop over
 * operands that rotate: what the step keeps from another pass (weights, their
 * gradients, activations) through 64 MiB, since a step's working set is larger
 * than any core's share of cache; what the operator before it has just written
 * through half a MiB. Its time is the lower quartile of samples of thread CPU
 * time. Samples are taken in rounds over all operators:
 * a machine that is slow for a second then slows all of them a little, not some
 * of them a lot, and what is common cancels against the in-situ factor. What
 * remains between such a loop and a real
 * step (weights colder, inputs warmer, clock reads) is the in-situ factor.
 */
#include "exec/bench_int.h"

#include "base/file.h"
#include "base/stats.h"

#include <stdio.h>
#include <string.h>

enum {
    ROUNDS = 6,
    ROUND_SAMPLES = 3,
    SAMPLES = ROUNDS * ROUND_SAMPLES,
    SAMPLE_NS = 400000,      /* a sample lasts at least as long */
    KEPT_MIN = 1 << 24,      /* floats: 64 MiB */
    FRESH_MIN = 1 << 17,     /* floats: half a MiB */
    OPTIMIZER_MAX = 1 << 23, /* parameters */
    MICRO_BATCH_MAX = 16
};

/* ---- the list ----------------------------------------------------------- */
/* The key under which sim/cost looks an operator up: m, n, k, kv. A product of
 * several experts is so many of one. */
static void key_of(const struct mw_op *op, int64_t key[4])
{
    bool is_attention = op->kind == MW_OP_ATTENTION;
    key[0] = op->m;
    key[1] = is_attention ? op->batch : op->n;
    key[2] = op->kind == MW_OP_GEMM || is_attention ? op->k : 0;
    key[3] = is_attention && op->n != op->m ? op->n : 0;
}

static bool is_same_key(const struct mw_op *a, const struct mw_op *b)
{
    int64_t x[4], y[4];
    key_of(a, x);
    key_of(b, y);
    return a->kind == b->kind && a->pass == b->pass &&
           memcmp(x, y, sizeof x) == 0;
}

static void add_op(struct mw_bench *b, const struct mw_op *op, int n_seqs)
{
    for (size_t i = 0; i < b->ops.n; i++) {
        if (is_same_key(&b->ops.v[i].op, op)) {
            return;
        }
    }
    if (op->kind != MW_OP_COLL) {
        const struct mw_bench_op item = {*op, n_seqs};
        mw_array_push(&b->ops, item);
    }
}

static void add_layout(struct mw_bench *b, const struct mw_layout *layout)
{
    const struct mw_workload *w = &b->scenario->workload;
    const struct mw_work work = {.model = &b->scenario->model,
                                 .layout = layout,
                                 .seq = w->seq,
                                 .dtype = w->dtype,
                                 .is_flash = w->is_flash,
                                 .has_dropout = w->has_dropout,
                                 .grad_dtype = w->grad_dtype,
                                 .lora_rank = w->lora_rank,
                                 .lora_targets = w->lora_targets,
                                 .base_dtype = w->base_dtype,
                                 .doc_tokens = w->doc_tokens};
    struct mw_ops ops = {0};
    for (int p = MW_PASS_F; p <= MW_PASS_W; p++) {
        mw_layer_ops(&work, 0, (enum mw_pass)p, &ops);
        mw_layer_ops(&work, b->scenario->model.n_layers - 1, (enum mw_pass)p,
                     &ops);
        mw_embedding_ops(&work, (enum mw_pass)p, &ops);
        mw_head_ops(&work, (enum mw_pass)p, &ops);
    }
    for (size_t i = 0; i < ops.n; i++) {
        add_op(b, &ops.v[i], layout->micro_batch);
    }
    mw_array_release(&ops);
}

/* From the whole model's parameters down to a 64th of them, and with adapters
 * to a 1024th. */
static void add_optimizer(struct mw_bench *b)
{
    int64_t n = mw_model_param_count(&b->scenario->model);
    int sizes = b->scenario->workload.lora_rank > 0 ? 6 : 4;
    for (int i = 0; i < sizes; i++, n /= 4) {
        const struct mw_op op = {.kind = MW_OP_OPTIMIZER,
                                 .pass = MW_PASS_F,
                                 .name = "optimizer",
                                 .m = n,
                                 .n = 1,
                                 .batch = 1,
                                 .dtype = MW_FP32};
        if (n > 0 && n <= OPTIMIZER_MAX) {
            add_op(b, &op, 1);
            b->n_state = n > b->n_state ? n : b->n_state;
        }
    }
}

/* Legal alone: tp within the model's divisors, one replica, one stage. */
static bool is_legal(const struct mw_bench *b, const struct mw_layout *layout)
{
    return mw_layout_check(layout, &b->scenario->model, &b->scenario->workload,
                           0, NULL, NULL) == MW_OK;
}

/* Splits of tensors, of sequences in each form, of experts; not two at once,
 * whose shapes lie between. */
static void list_splits(struct mw_bench *b, struct mw_layout *layout, int ways)
{
    layout->cp = 1;
    layout->tp = ways;
    if (is_legal(b, layout)) {
        add_layout(b, layout);
    }
    layout->tp = 1;
    layout->cp = ways;
    for (int form = MW_CP_GATHER; form <= MW_CP_A2A && ways > 1; form++) {
        layout->cp_form = (enum mw_cp_form)form;
        if (is_legal(b, layout)) {
            add_layout(b, layout);
        }
    }
    layout->cp_form = MW_CP_GATHER;
    layout->cp = 1;
    layout->ep = layout->dp = ways;
    if (b->scenario->model.moe.n_experts > 0 && is_legal(b, layout)) {
        add_layout(b, layout);
    }
    layout->ep = layout->dp = 1;
}

static void list_ops(struct mw_bench *b)
{
    const struct mw_cluster *c = &b->scenario->cluster;
    int ranks = c->n_nodes * (c->gpus_per_node > 0 ? c->gpus_per_node : 1);
    struct mw_layout layout;
    mw_layout_default(&layout);
    for (int ways = 1; ways <= ranks; ways++) {
        for (int mb = 1; mb <= MICRO_BATCH_MAX && ranks % ways == 0; mb *= 4) {
            layout.micro_batch = mb;
            list_splits(b, &layout, ways);
        }
    }
    add_optimizer(b);
}

/* ---- memory of an operator ---------------------------------------------- */
static size_t max_size(size_t a, size_t b)
{
    return a > b ? a : b;
}

/* Its largest operand. */
static size_t largest_operand(const struct mw_bench *b, const struct mw_op *op)
{
    size_t n = 0;
    if (op->kind == MW_OP_GEMM) {
        n = max_size(mw_area(op->m, op->n), mw_area(op->m, op->k));
        return max_size(n, mw_area(op->n, op->k));
    }
    if (op->kind == MW_OP_ATTENTION) {
        n = mw_area(op->m, 3 * op->batch * op->k);
        n = max_size(n, mw_area(op->n, 2 * op->kv_batch * op->k));
        return max_size(n, mw_area(op->n, 130)); /* scratch */
    }
    if (op->kind == MW_OP_EMBEDDING) {
        n = mw_area(b->scenario->model.vocab, op->n);
    }
    if (op->kind == MW_OP_PERMUTE) {
        n = mw_area(op->m * b->scenario->model.moe.top_k, op->n);
    }
    return op->kind == MW_OP_OPTIMIZER ? 0
                                       : max_size(n, mw_area(op->m, 2 * op->n));
}

/* Operands that a call takes from one pool at most: they must not overlap. */
static size_t pieces(const struct mw_op *op)
{
    if (op->kind == MW_OP_ATTENTION && op->n > op->m) {
        return 6; /* scratch, dq, and keys in three orders */
    }
    return op->kind == MW_OP_ATTENTION || op->kind == MW_OP_ROUTER ? 4 : 3;
}

static size_t window(const struct mw_bench *b, const struct mw_op *op,
                     size_t least)
{
    return max_size(least, pieces(op) * (largest_operand(b, op) + 64));
}

static void set_windows(struct mw_bench *b, const struct mw_op *op)
{
    b->kept.n = b->kept_out.n = window(b, op, KEPT_MIN);
    b->fresh.n = b->fresh_out.n = window(b, op, FRESH_MIN);
}

/* ---- timing ------------------------------------------------------------- */
static double sample_s(struct mw_bench *b, const struct mw_bench_op *item,
                       int calls)
{
    int64_t begin_ns = b->dev->ops->busy_ns(b->dev);
    for (int i = 0; i < calls; i++) {
        mw_bench_call(b, item);
    }
    int64_t end_ns = b->dev->ops->busy_ns(b->dev);
    return 1e-9 * (double)(end_ns - begin_ns) / calls;
}

static void sample_round(struct mw_bench *b, const struct mw_bench_op *item,
                         double *out)
{
    set_windows(b, &item->op);
    double once = sample_s(b, item, 1);
    once = (once + sample_s(b, item, 2)) / 2.0;
    int calls = (int)(1e-9 * SAMPLE_NS / (once > 1e-8 ? once : 1e-8)) + 1;
    for (int i = 0; i < ROUND_SAMPLES; i++) {
        out[i] = sample_s(b, item, calls);
    }
}

static void write_row(const struct mw_op *op, double time_s, FILE *f)
{
    int64_t key[4];
    key_of(op, key);
    fprintf(f,
            "host-cpu,%s,%s,fp32,%lld,%lld,%lld,%lld,%.6e,\"meshwright "
            "calibrate: thread CPU time, lower quartile of %d samples, kept "
            "operands cold\"\n",
            mw_op_kind_name(op->kind), mw_pass_name(op->pass),
            (long long)key[0], (long long)key[1], (long long)key[2],
            (long long)key[3], time_s, SAMPLES);
}

static void write_rows(struct mw_bench *b, FILE *f)
{
    double *v = mw_calloc(b->ops.n * SAMPLES, sizeof *v);
    for (int r = 0; r < ROUNDS; r++) {
        for (size_t i = 0; i < b->ops.n; i++) {
            sample_round(b, &b->ops.v[i],
                         v + i * SAMPLES + (size_t)r * ROUND_SAMPLES);
        }
    }
    fprintf(f, "device,op,pass,dtype,m,n,k,kv,time_s,source\n");
    for (size_t i = 0; i < b->ops.n; i++) {
        write_row(&b->ops.v[i].op, mw_quantile(v + i * SAMPLES, SAMPLES, 0.25),
                  f);
    }
    mw_free(v);
}

/* ---- set-up
 * ---------------------------------------------------------------------------
 */
static void open_memory(struct mw_bench *b)
{
    int64_t tokens = b->scenario->workload.seq * MICRO_BATCH_MAX;
    size_t kept = 0, fresh = 0;
    for (size_t i = 0; i < b->ops.n; i++) {
        kept = max_size(kept, window(b, &b->ops.v[i].op, KEPT_MIN));
        fresh = max_size(fresh, window(b, &b->ops.v[i].op, FRESH_MIN));
    }
    mw_pool_init(&b->kept, kept, 1);
    mw_pool_init(&b->kept_out, kept, 2);
    mw_pool_init(&b->fresh, fresh, 3);
    mw_pool_init(&b->fresh_out, fresh, 4);
    mw_bench_experts_open(b, tokens);
    b->state = mw_calloc(4 * (size_t)b->n_state + 1, sizeof *b->state);
    b->token = mw_calloc((size_t)tokens, sizeof *b->token);
    for (int64_t i = 0; i < tokens; i++) {
        b->token[i] = (int32_t)(i * 7919 % b->scenario->model.vocab);
    }
}

static void close_memory(struct mw_bench *b)
{
    mw_pool_release(&b->kept);
    mw_pool_release(&b->kept_out);
    mw_pool_release(&b->fresh);
    mw_pool_release(&b->fresh_out);
    mw_bench_experts_close(b);
    mw_free(b->state);
    mw_free(b->token);
    mw_array_release(&b->ops);
}

static enum mw_status bench_to_file(struct mw_bench *b, const char *path,
                                    struct mw_err *err)
{
    struct mw_outfile out = {0};
    enum mw_status st = mw_outfile_open(&out, path, err);
    if (st != MW_OK) {
        return st;
    }
    list_ops(b);
    open_memory(b);
    write_rows(b, out.f);
    close_memory(b);
    st = mw_outfile_commit(&out, err);
    mw_outfile_abort(&out);
    return st;
}

enum mw_status mw_bench_kernels(const char *scenario, const char *path,
                                struct mw_err *err)
{
    struct mw_scenario s;
    struct mw_bench b = {.scenario = &s};
    enum mw_status st = mw_scenario_load(scenario, &s, err);
    if (st != MW_OK) {
        return st;
    }
    st = mw_dev_host.open(0, &b.dev, err);
    if (st == MW_OK) {
        st = bench_to_file(&b, path, err);
        b.dev->ops->close(b.dev);
    }
    mw_scenario_release(&s);
    return st;
}
