/*
 * Times of the operators of a model, as the simulator lists them.
 *
 * The list is sim/model's own (mw_layer_ops, mw_embedding_ops, mw_head_ops),
 * so a row exists for every key the simulator will ask for. Each operator is
 * called through the device table, as the executor calls it, in a loop over
 * operands that rotate through 8 MiB pools; its time is the lower quartile of
 * samples of thread CPU time. What remains between such a loop and a real
 * step (weights colder, inputs warmer, clock reads) is the in-situ factor.
 */
#include "exec/bench.h"

#include "base/file.h"
#include "base/mem.h"
#include "base/stats.h"
#include "sim/model/scenario.h"

#include <stdio.h>
#include <string.h>

enum {
    SAMPLES = 9,
    SAMPLE_NS = 400000,      /* a sample lasts at least as long */
    POOL_MIN = 1 << 21,      /* floats: 8 MiB */
    OPTIMIZER_MAX = 1 << 23, /* parameters */
    MICRO_BATCH_MAX = 16
};

struct bench_op {
    struct mw_op op;
    int n_seqs;
};

struct bench {
    const struct mw_scenario *scenario;
    struct mw_dev *dev;
    struct mw_pool in, out; /* read; written or added to */
    int32_t *token;
    float *state; /* of the optimizer: weights, gradients, two moments */
    int64_t n_state;
    MW_ARRAY(struct bench_op) ops;
};

/* ---- the list
 * --------------------------------------------------------------------- */
static bool is_same_key(const struct mw_op *a, const struct mw_op *b)
{
    return a->kind == b->kind && a->pass == b->pass && a->m == b->m &&
           a->n == b->n && a->k == b->k && a->batch == b->batch;
}

static void add_op(struct bench *b, const struct mw_op *op, int n_seqs)
{
    for (size_t i = 0; i < b->ops.n; i++) {
        if (is_same_key(&b->ops.v[i].op, op)) {
            return;
        }
    }
    if (op->kind != MW_OP_COLL) {
        const struct bench_op item = {*op, n_seqs};
        mw_array_push(&b->ops, item);
    }
}

static void add_layout(struct bench *b, const struct mw_layout *layout)
{
    const struct mw_workload *w = &b->scenario->workload;
    const struct mw_work work = {.model = &b->scenario->model,
                                 .layout = layout,
                                 .seq = w->seq,
                                 .dtype = w->dtype,
                                 .is_flash = w->is_flash,
                                 .has_dropout = w->has_dropout,
                                 .grad_dtype = w->grad_dtype};
    struct mw_ops ops = {0};
    for (int p = MW_PASS_F; p <= MW_PASS_W; p++) {
        mw_layer_ops(&work, 0, (enum mw_pass)p, &ops);
        mw_embedding_ops(&work, (enum mw_pass)p, &ops);
        mw_head_ops(&work, (enum mw_pass)p, &ops);
    }
    for (size_t i = 0; i < ops.n; i++) {
        add_op(b, &ops.v[i], layout->micro_batch);
    }
    mw_array_release(&ops);
}

/* From the whole model's parameters down to a 64th of them. */
static void add_optimizer(struct bench *b)
{
    int64_t n = mw_model_param_count(&b->scenario->model);
    for (int i = 0; i < 4; i++, n /= 4) {
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
static bool is_legal(const struct bench *b, const struct mw_layout *layout)
{
    return mw_layout_check(layout, &b->scenario->model, &b->scenario->workload,
                           0, NULL, NULL) == MW_OK;
}

static void list_ops(struct bench *b)
{
    const struct mw_cluster *c = &b->scenario->cluster;
    int ranks = c->n_nodes * (c->gpus_per_node > 0 ? c->gpus_per_node : 1);
    struct mw_layout layout;
    mw_layout_default(&layout);
    for (layout.tp = 1; layout.tp <= ranks; layout.tp++) {
        for (int mb = 1; mb <= MICRO_BATCH_MAX; mb *= 4) {
            layout.micro_batch = mb;
            if (ranks % layout.tp == 0 && is_legal(b, &layout)) {
                add_layout(b, &layout);
            }
        }
    }
    add_optimizer(b);
}

/* ---- one call
 * ------------------------------------------------------------------------- */
static size_t area(int64_t rows, int64_t cols)
{
    return (size_t)(rows * cols);
}

static void call_gemm(struct bench *b, const struct mw_op *op)
{
    const struct mw_model *model = &b->scenario->model;
    const struct mw_dev_ops *d = b->dev->ops;
    int m = (int)op->m, n = (int)op->n, k = (int)op->k;
    /* Row-parallel layers add their bias after the reduction. */
    bool is_row = strcmp(op->name, "proj") == 0 || strcmp(op->name, "fc2") == 0;
    bool is_head = strcmp(op->name, "head") == 0;
    bool has_bias = model->bias_mlp && !is_head;
    float *bias =
        has_bias ? mw_pool_next(&b->in, area(m > n ? m : n, 1)) : NULL;
    if (op->pass == MW_PASS_F) {
        d->linear_fwd(b->dev, mw_pool_next(&b->out, area(m, n)),
                      mw_pool_next(&b->in, area(m, k)),
                      mw_pool_next(&b->in, area(n, k)), is_row ? NULL : bias, m,
                      n, k);
    } else if (op->pass == MW_PASS_B) {
        /* dX[m, n] = dY[m, k] W[k, n] */
        d->linear_bwd_input(b->dev, mw_pool_next(&b->out, area(m, n)),
                            mw_pool_next(&b->in, area(m, k)),
                            mw_pool_next(&b->in, area(k, n)), m, k, n);
    } else {
        /* dW[m, n] += dY[k, m]^T X[k, n] */
        float *db = has_bias ? mw_pool_next(&b->out, area(m, 1)) : NULL;
        d->linear_bwd_weight(b->dev, mw_pool_next(&b->out, area(m, n)), db,
                             mw_pool_next(&b->in, area(k, m)),
                             mw_pool_next(&b->in, area(k, n)), k, m, n);
    }
}

static void call_attention(struct bench *b, const struct bench_op *item)
{
    const struct mw_op *op = &item->op;
    int heads = (int)op->batch / item->n_seqs;
    int kv = (int)op->kv_batch / item->n_seqs, dim = (int)op->k;
    bool is_fused = heads == kv, is_forward = op->pass == MW_PASS_F;
    int ld_q = is_fused ? 3 * heads * dim : heads * dim;
    int ld_kv = is_fused ? ld_q : 2 * kv * dim;
    size_t rows = (size_t)op->m * (size_t)item->n_seqs;
    size_t n_out = rows * area(heads, dim), n_lse = rows * (size_t)heads;
    struct mw_pool *saved = is_forward ? &b->out : &b->in;
    float *q = mw_pool_next(&b->in, rows * (size_t)ld_q);
    float *k =
        is_fused ? q + heads * dim : mw_pool_next(&b->in, rows * (size_t)ld_kv);
    struct mw_dev_attention a = {.n_seqs = item->n_seqs,
                                 .seq = (int)op->m,
                                 .n_heads = heads,
                                 .n_kv_heads = kv,
                                 .head_dim = dim,
                                 .ld_q = ld_q,
                                 .ld_kv = ld_kv,
                                 .q = q,
                                 .k = k,
                                 .v = k + kv * dim,
                                 .out = mw_pool_next(saved, n_out),
                                 .lse = mw_pool_next(saved, n_lse)};
    size_t scratch = b->dev->ops->attention_scratch(&a) / sizeof(float);
    a.scratch = mw_pool_next(&b->out, scratch);
    if (is_forward) {
        b->dev->ops->attention_fwd(b->dev, &a);
        return;
    }
    float *dq = mw_pool_next(&b->out, rows * (size_t)ld_q);
    float *dk = is_fused ? dq + heads * dim
                         : mw_pool_next(&b->out, rows * (size_t)ld_kv);
    a.dout = mw_pool_next(&b->in, n_out);
    a.dq = dq;
    a.dk = dk;
    a.dv = dk + kv * dim;
    b->dev->ops->attention_bwd(b->dev, &a);
}

static void call_norm(struct bench *b, const struct mw_op *op)
{
    const struct mw_dev_ops *d = b->dev->ops;
    size_t n = area(op->m, op->n), rows = (size_t)op->m;
    struct mw_pool *saved = op->pass == MW_PASS_F ? &b->out : &b->in;
    const struct mw_dev_norm a = {.kind = b->scenario->model.norm,
                                  .x = mw_pool_next(&b->in, n),
                                  .gamma = mw_pool_next(&b->in, (size_t)op->n),
                                  .beta =
                                      b->scenario->model.bias_norm
                                          ? mw_pool_next(&b->in, (size_t)op->n)
                                          : NULL,
                                  .mean = mw_pool_next(saved, rows),
                                  .rstd = mw_pool_next(saved, rows),
                                  .rows = (int)op->m,
                                  .width = (int)op->n};
    float *dy = mw_pool_next(&b->in, n), *out = mw_pool_next(&b->out, n);
    if (op->pass == MW_PASS_F) {
        d->norm_fwd(b->dev, &a, out);
    } else if (op->pass == MW_PASS_B) {
        d->norm_bwd_input(b->dev, &a, out, dy);
    } else {
        d->norm_bwd_param(b->dev, &a, mw_pool_next(&b->out, (size_t)op->n),
                          a.beta ? mw_pool_next(&b->out, (size_t)op->n) : NULL,
                          dy);
    }
}

static void call_activation(struct bench *b, const struct mw_op *op)
{
    bool is_gated = b->scenario->model.is_gated;
    int rows = (int)op->m, width = (int)op->n;
    size_t n = area(rows, width), n_in = is_gated ? 2 * n : n;
    float *x = mw_pool_next(&b->in, n_in);
    if (op->pass == MW_PASS_F) {
        b->dev->ops->act_fwd(b->dev, is_gated, mw_pool_next(&b->out, n), x,
                             rows, width);
    } else {
        b->dev->ops->act_bwd(b->dev, is_gated, mw_pool_next(&b->out, n_in),
                             mw_pool_next(&b->in, n), x, rows, width);
    }
}

static void call_embedding(struct bench *b, const struct mw_op *op)
{
    size_t n = area(op->m, op->n);
    const struct mw_dev_vocab a = {.token = b->token,
                                   .rows = (int)op->m,
                                   .width = (int)op->n,
                                   .n_local = b->scenario->model.vocab};
    size_t table = area(b->scenario->model.vocab, op->n);
    if (op->pass == MW_PASS_F) {
        b->dev->ops->embedding_fwd(b->dev, &a, mw_pool_next(&b->out, n),
                                   mw_pool_next(&b->in, table));
    } else {
        b->dev->ops->embedding_bwd(b->dev, &a, mw_pool_next(&b->out, table),
                                   mw_pool_next(&b->in, n));
    }
}

static void call_cross_entropy(struct bench *b, const struct mw_op *op)
{
    const struct mw_dev_ops *d = b->dev->ops;
    size_t rows = (size_t)op->m, n = area(op->m, op->n);
    struct mw_pool *saved = op->pass == MW_PASS_F ? &b->out : &b->in;
    const struct mw_dev_xent a = {.logits = mw_pool_next(&b->in, n),
                                  .max = mw_pool_next(saved, rows),
                                  .sum = mw_pool_next(saved, rows),
                                  .target = mw_pool_next(&b->out, rows),
                                  .label = b->token,
                                  .rows = (int)op->m,
                                  .n_local = (int)op->n};
    if (op->pass == MW_PASS_F) {
        d->xent_max(b->dev, &a);
        d->xent_sum(b->dev, &a);
        (void)d->xent_loss(b->dev, &a);
    } else {
        d->xent_bwd(b->dev, &a, mw_pool_next(&b->out, n), 1e-3f);
    }
}

static void call_add(struct bench *b, const struct mw_op *op)
{
    size_t n = area(op->m, op->n);
    bool has_bias = b->scenario->model.bias_mlp && op->pass == MW_PASS_F;
    b->dev->ops->add(b->dev, mw_pool_next(&b->out, n), mw_pool_next(&b->in, n),
                     has_bias ? mw_pool_next(&b->in, (size_t)op->n) : NULL,
                     mw_pool_next(&b->in, n), (int)op->m, (int)op->n);
}

static void call_rotary(struct bench *b, const struct mw_op *op)
{
    int dim = b->scenario->model.head_dim, heads = (int)op->n / dim;
    b->dev->ops->rotary(b->dev, mw_pool_next(&b->out, area(op->m, op->n)),
                        (int)op->m, (int)op->n, (int)b->scenario->workload.seq,
                        heads, dim, op->pass == MW_PASS_F ? 1 : -1);
}

/* The gradients are zeroed at the begin of the next step: part of it. */
static void call_optimizer(struct bench *b, const struct mw_op *op)
{
    const struct mw_dev_adamw h = {
        .lr = 1e-3f, .beta1 = 0.9f, .beta2 = 0.95f, .eps = 1e-8f, .step = 10};
    size_t n = (size_t)op->m, at = (size_t)b->n_state;
    float *g = b->state + at;
    b->dev->ops->adamw(b->dev, &h, b->state, g, b->state + 2 * at,
                       b->state + 3 * at, n);
    b->dev->ops->zero(b->dev, g, n * sizeof *g);
}

static void call(struct bench *b, const struct bench_op *item)
{
    const struct mw_op *op = &item->op;
    switch (op->kind) {
    case MW_OP_GEMM:
        call_gemm(b, op);
        break;
    case MW_OP_ATTENTION:
        call_attention(b, item);
        break;
    case MW_OP_NORM:
        call_norm(b, op);
        break;
    case MW_OP_ROTARY:
        call_rotary(b, op);
        break;
    case MW_OP_ACTIVATION:
        call_activation(b, op);
        break;
    case MW_OP_ADD:
        call_add(b, op);
        break;
    case MW_OP_EMBEDDING:
        call_embedding(b, op);
        break;
    case MW_OP_CROSS_ENTROPY:
        call_cross_entropy(b, op);
        break;
    case MW_OP_OPTIMIZER:
        call_optimizer(b, op);
        break;
    case MW_OP_SOFTMAX:
    case MW_OP_ROUTER:
    case MW_OP_PERMUTE:
    case MW_OP_COLL:
    case MW_OP_KIND_COUNT:
        break;
    }
}

/* ---- memory of an operator --------------------------------------------- */
static size_t max_size(size_t a, size_t b)
{
    return a > b ? a : b;
}

/* Its largest operand. */
static size_t largest_operand(const struct bench *b, const struct mw_op *op)
{
    size_t n = 0;
    if (op->kind == MW_OP_GEMM) {
        n = max_size(area(op->m, op->n), area(op->m, op->k));
        return max_size(n, area(op->n, op->k));
    }
    if (op->kind == MW_OP_ATTENTION) {
        n = area(op->m, 3 * op->batch * op->k);
        return max_size(n, area(op->m, 130)); /* scratch */
    }
    if (op->kind == MW_OP_EMBEDDING) {
        n = area(b->scenario->model.vocab, op->n);
    }
    return op->kind == MW_OP_OPTIMIZER ? 0
                                       : max_size(n, area(op->m, 2 * op->n));
}

/* The pools rotate over 8 MiB, or two of a larger operand: out of the core's
 * own cache, as a real step finds its operands, but no further. */
static size_t window(const struct bench *b, const struct mw_op *op)
{
    return max_size(POOL_MIN, 2 * largest_operand(b, op) + 64);
}

/* ---- timing
 * ------------------------------------------------------------------------- */
static double sample_s(struct bench *b, const struct bench_op *item, int calls)
{
    int64_t begin_ns = b->dev->ops->busy_ns(b->dev);
    for (int i = 0; i < calls; i++) {
        call(b, item);
    }
    int64_t end_ns = b->dev->ops->busy_ns(b->dev);
    return 1e-9 * (double)(end_ns - begin_ns) / calls;
}

static double time_op(struct bench *b, const struct bench_op *item)
{
    b->in.n = b->out.n = window(b, &item->op);
    double v[SAMPLES], once = sample_s(b, item, 1);
    once = (once + sample_s(b, item, 2)) / 2.0;
    int calls = (int)(1e-9 * SAMPLE_NS / (once > 1e-8 ? once : 1e-8)) + 1;
    for (int i = 0; i < SAMPLES; i++) {
        v[i] = sample_s(b, item, calls);
    }
    return mw_quantile(v, SAMPLES, 0.25);
}

/* The key under which sim/cost looks the operator up. */
static void write_row(const struct mw_op *op, double time_s, FILE *f)
{
    int64_t n = op->n, k = 0;
    if (op->kind == MW_OP_GEMM) {
        k = op->k;
    } else if (op->kind == MW_OP_ATTENTION) {
        n = op->batch;
        k = op->k;
    }
    fprintf(f,
            "host-cpu,%s,%s,fp32,%lld,%lld,%lld,%.6e,\"meshwright calibrate: "
            "thread CPU time, lower quartile of %d samples, rotated "
            "operands\"\n",
            mw_op_kind_name(op->kind), mw_pass_name(op->pass), (long long)op->m,
            (long long)n, (long long)k, time_s, SAMPLES);
}

static void write_rows(struct bench *b, FILE *f)
{
    fprintf(f, "device,op,pass,dtype,m,n,k,time_s,source\n");
    for (size_t i = 0; i < b->ops.n; i++) {
        const struct bench_op *item = &b->ops.v[i];
        write_row(&item->op, time_op(b, item), f);
    }
}

/* ---- set-up
 * ---------------------------------------------------------------------------
 */
static void open_memory(struct bench *b)
{
    int64_t tokens = b->scenario->workload.seq * MICRO_BATCH_MAX;
    size_t pool = POOL_MIN;
    for (size_t i = 0; i < b->ops.n; i++) {
        pool = max_size(pool, window(b, &b->ops.v[i].op));
    }
    mw_pool_init(&b->in, pool, 1);
    mw_pool_init(&b->out, pool, 2);
    b->state = mw_calloc(4 * (size_t)b->n_state + 1, sizeof *b->state);
    b->token = mw_calloc((size_t)tokens, sizeof *b->token);
    for (int64_t i = 0; i < tokens; i++) {
        b->token[i] = (int32_t)(i * 7919 % b->scenario->model.vocab);
    }
}

static void close_memory(struct bench *b)
{
    mw_pool_release(&b->in);
    mw_pool_release(&b->out);
    mw_free(b->state);
    mw_free(b->token);
    mw_array_release(&b->ops);
}

static enum mw_status bench_to_file(struct bench *b, const char *path,
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
    struct bench b = {.scenario = &s};
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
