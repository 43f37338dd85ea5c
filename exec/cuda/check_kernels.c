/*
 * Matrix products of linear layers and memory-bound kernels.
 *
 * Products: the four of a GPT block (qkv, proj, fc1, fc2) for a few hidden
 * sizes, split over 1, 2, 4 and 8 tensor-parallel ranks, forward, input and
 * weight gradient; squares besides. Kernels: time and the bytes that they must
 * move (each operand once), hence a bandwidth.
 */
#include "exec/cuda/check_int.h"

#include <string.h>

/* ---- products
 * ------------------------------------------------------------------- */
struct gemm {
    enum mw_gemm_pass pass;
    int rows, n, k; /* of the layer: tokens, outputs, inputs */
};

static size_t area(int rows, int cols)
{
    return (size_t)rows * (size_t)cols;
}

static void call_gemm(struct mw_check *c, const void *arg)
{
    const struct gemm *g = arg;
    const struct mw_dev_ops *d = c->dev->ops;
    void *x = mw_check_take(c, area(g->rows, g->k));
    void *y = mw_check_take(c, area(g->rows, g->n));
    if (g->pass == MW_GEMM_WEIGHT) {
        d->linear_bwd_weight(c->dev, mw_check_sums(c, area(g->n, g->k)), NULL,
                             y, x, g->rows, g->n, g->k);
        return;
    }
    void *w = mw_check_take(c, area(g->n, g->k));
    /* The output overwrites the oldest operand of the pool. */
    if (g->pass == MW_GEMM_FORWARD) {
        d->linear_fwd(c->dev, mw_check_sums(c, area(g->rows, g->n)), x, w, NULL,
                      g->rows, g->n, g->k);
    } else {
        d->linear_bwd_input(c->dev, mw_check_sums(c, area(g->rows, g->k)), y, w,
                            g->rows, g->n, g->k);
    }
}

/* Sizes of the product as sim/cost names them: D[m, n] sums over k. */
static void gemm_key(const struct gemm *g, int64_t mnk[3])
{
    const int64_t forward[3] = {g->rows, g->n, g->k};
    const int64_t input[3] = {g->rows, g->k, g->n};
    const int64_t weight[3] = {g->n, g->k, g->rows};
    memcpy(mnk,
           g->pass == MW_GEMM_FORWARD ? forward
           : g->pass == MW_GEMM_INPUT ? input
                                      : weight,
           sizeof forward);
}

static void measure_gemm(struct mw_check *c, json_t *out, const char *name,
                         const struct gemm *g)
{
    static const char *const pass[] = {"F", "B", "W"};
    int64_t mnk[3];
    char label[96];
    gemm_key(g, mnk);
    snprintf(label, sizeof label, "gemm %s %s %d %d %d", name, pass[g->pass],
             g->rows, g->n, g->k);
    struct mw_check_time t = mw_check_measure(c, label, call_gemm, g);
    double flops = 2.0 * (double)g->rows * (double)g->n * (double)g->k;
    mw_check_row(c, "gemm", pass[g->pass], mnk, t.s);
    json_t *o = json_object();
    mw_json_set_str(o, "name", name);
    mw_json_set_str(o, "pass", pass[g->pass]);
    mw_json_set_int(o, "m", mnk[0]);
    mw_json_set_int(o, "n", mnk[1]);
    mw_json_set_int(o, "k", mnk[2]);
    mw_json_set_real(o, "time_s", t.s);
    mw_json_set_real(o, "cv", t.cv);
    mw_json_set_real(o, "flops_per_s", flops / t.s);
    json_array_append_new(out, o);
}

static void measure_passes(struct mw_check *c, json_t *out, const char *name,
                           int rows, int n, int k)
{
    for (int p = 0; p < 3 && !mw_check_is_late(c, name); p++) {
        const struct gemm g = {(enum mw_gemm_pass)p, rows, n, k};
        measure_gemm(c, out, name, &g);
    }
}

static void measure_layer_gemms(struct mw_check *c, json_t *out, int rows,
                                int hidden, int tp)
{
    measure_passes(c, out, "qkv", rows, 3 * hidden / tp, hidden);
    measure_passes(c, out, "proj", rows, hidden, hidden / tp);
    measure_passes(c, out, "fc1", rows, 4 * hidden / tp, hidden);
    measure_passes(c, out, "fc2", rows, hidden, 4 * hidden / tp);
}

void mw_check_gemm(struct mw_check *c)
{
    static const int hidden[] = {2048, 4096, 8192};
    static const int square[] = {256, 512, 1024, 2048, 4096, 8192, 16384};
    json_t *out = json_array();
    mw_json_set(c->out, "gemm", out);
    if (c->is_quick) {
        measure_layer_gemms(c, out, 64, 64, 2);
        return;
    }
    for (size_t i = 0; i < sizeof square / sizeof *square; i++) {
        measure_passes(c, out, "square", square[i], square[i], square[i]);
    }
    for (size_t i = 0; i < sizeof hidden / sizeof *hidden; i++) {
        for (int tp = 1; tp <= 8; tp *= 2) {
            measure_layer_gemms(c, out, 4096, hidden[i], tp);
        }
    }
}

/* ---- memory-bound kernels
 * ---------------------------------------------------------- */
struct shape {
    int rows, width;
};

static void *take(struct mw_check *c, const struct shape *s)
{
    return mw_check_take(c, area(s->rows, s->width));
}

static struct mw_dev_norm norm_arg(struct mw_check *c, const struct shape *s)
{
    return (struct mw_dev_norm){.kind = MW_NORM_LAYER,
                                .x = take(c, s),
                                .gamma = mw_check_take(c, (size_t)s->width),
                                .beta = mw_check_take(c, (size_t)s->width),
                                .mean = mw_check_sums(c, (size_t)s->rows),
                                .rstd = mw_check_sums(c, (size_t)s->rows),
                                .rows = s->rows,
                                .width = s->width};
}

static void norm_f(struct mw_check *c, const void *arg)
{
    struct mw_dev_norm a = norm_arg(c, arg);
    c->dev->ops->norm_fwd(c->dev, &a, take(c, arg));
}

static void norm_b(struct mw_check *c, const void *arg)
{
    struct mw_dev_norm a = norm_arg(c, arg);
    void *dx = take(c, arg);
    c->dev->ops->norm_bwd_input(c->dev, &a, dx, take(c, arg));
}

static void norm_w(struct mw_check *c, const void *arg)
{
    const struct shape *s = arg;
    struct mw_dev_norm a = norm_arg(c, s);
    float *dgamma = mw_check_sums(c, (size_t)s->width);
    float *dbeta = mw_check_sums(c, (size_t)s->width);
    c->dev->ops->norm_bwd_param(c->dev, &a, dgamma, dbeta, take(c, s));
}

static void gelu_f(struct mw_check *c, const void *arg)
{
    const struct shape *s = arg;
    void *y = take(c, s);
    c->dev->ops->act_fwd(c->dev, false, y, take(c, s), s->rows, s->width);
}

static void gelu_b(struct mw_check *c, const void *arg)
{
    const struct shape *s = arg;
    void *dx = take(c, s), *dy = take(c, s);
    c->dev->ops->act_bwd(c->dev, false, dx, dy, take(c, s), s->rows, s->width);
}

static void add_f(struct mw_check *c, const void *arg)
{
    const struct shape *s = arg;
    void *y = take(c, s), *x = take(c, s);
    c->dev->ops->add(c->dev, y, x, NULL, take(c, s), s->rows, s->width);
}

static void rotary_f(struct mw_check *c, const void *arg)
{
    const struct shape *s = arg;
    c->dev->ops->rotary(c->dev, take(c, s), s->rows, s->width, s->rows,
                        s->width / 64, 64, 1);
}

static void embedding_f(struct mw_check *c, const void *arg)
{
    const struct shape *s = arg;
    const struct mw_dev_vocab a = {c->token, s->rows, s->width, 0, s->rows};
    void *y = take(c, s);
    c->dev->ops->embedding_fwd(c->dev, &a, y, take(c, s));
}

static void embedding_b(struct mw_check *c, const void *arg)
{
    const struct shape *s = arg;
    const struct mw_dev_vocab a = {c->token, s->rows, s->width, 0, s->rows};
    float *dw = mw_check_sums(c, area(s->rows, s->width));
    c->dev->ops->embedding_bwd(c->dev, &a, dw, take(c, s));
}

static struct mw_dev_xent xent_arg(struct mw_check *c, const struct shape *s)
{
    return (struct mw_dev_xent){.logits =
                                    mw_check_sums(c, area(s->rows, s->width)),
                                .max = mw_check_sums(c, (size_t)s->rows),
                                .sum = mw_check_sums(c, (size_t)s->rows),
                                .target = mw_check_sums(c, (size_t)s->rows),
                                .label = c->token,
                                .rows = s->rows,
                                .n_local = s->width};
}

static void xent_f(struct mw_check *c, const void *arg)
{
    struct mw_dev_xent a = xent_arg(c, arg);
    c->dev->ops->xent_max(c->dev, &a);
    c->dev->ops->xent_sum(c->dev, &a);
}

static void xent_b(struct mw_check *c, const void *arg)
{
    struct mw_dev_xent a = xent_arg(c, arg);
    c->dev->ops->xent_bwd(c->dev, &a, take(c, arg), 1e-3f);
}

static void adamw_f(struct mw_check *c, const void *arg)
{
    const struct shape *s = arg;
    const struct mw_dev_adamw h = {
        .lr = 1e-3f, .beta1 = 0.9f, .beta2 = 0.95f, .eps = 1e-8f, .step = 10};
    size_t n = area(s->rows, s->width);
    float *w = mw_check_sums(c, n), *g = mw_check_sums(c, n);
    float *m = mw_check_sums(c, n);
    c->dev->ops->adamw(c->dev, &h, w, NULL, g, m, mw_check_sums(c, n), n);
}

struct kernel {
    const char *op, *pass;
    mw_check_fn call;
    double bytes; /* per element */
    const char *symbols;
};

static const struct kernel kernels[] = {
    {"norm", "F", norm_f, 4, "mw_k_norm_fwd_cuda"},       /* x, y */
    {"norm", "B", norm_b, 6, "mw_k_norm_bwd_input_cuda"}, /* x, dy, dx */
    {"norm", "W", norm_w, 4, "mw_k_norm_bwd_param_cuda"}, /* x, dy */
    {"activation", "F", gelu_f, 4, "mw_k_gelu_fwd_cuda"}, /* x, y */
    {"activation", "B", gelu_b, 6, "mw_k_gelu_bwd_cuda"}, /* x, dy, dx */
    {"add", "F", add_f, 6, "mw_k_add_cuda"},              /* x, residual, y */
    {"rotary", "F", rotary_f, 4, "mw_k_rotary_cuda"},     /* x twice */
    {"embedding", "F", embedding_f, 4,
     "mw_k_embedding_fwd_cuda"}, /* row of w, y */
    {"embedding", "W", embedding_b, 10,
     "mw_k_embedding_bwd_cuda"}, /* dy, dw twice in float32 */
    {"cross_entropy", "F", xent_f, 4,
     "mw_k_xent_max_cuda mw_k_xent_sum_cuda"}, /* logits in two passes */
    {"cross_entropy", "B", xent_b, 4,
     "mw_k_xent_bwd_cuda"}, /* logits, gradient */
    {"optimizer", "F", adamw_f, 28,
     "mw_k_adamw_cuda"}, /* w g m v read, w m v written */
};

static void measure_kernel(struct mw_check *c, json_t *out,
                           const struct kernel *k, const struct shape *s)
{
    char label[96];
    bool is_flat = strcmp(k->op, "optimizer") == 0;
    int64_t n = (int64_t)s->rows * s->width;
    const int64_t mnk[3] = {is_flat ? n : s->rows, is_flat ? 1 : s->width, 0};
    snprintf(label, sizeof label, "%s %s %d %d", k->op, k->pass, s->rows,
             s->width);
    struct mw_check_time t = mw_check_measure(c, label, k->call, s);
    mw_check_row(c, k->op, k->pass, mnk, t.s);
    json_t *o = json_object();
    mw_json_set_str(o, "op", k->op);
    mw_json_set_str(o, "pass", k->pass);
    mw_json_set_str(o, "symbols", k->symbols);
    mw_json_set_int(o, "rows", s->rows);
    mw_json_set_int(o, "width", s->width);
    mw_json_set_real(o, "time_s", t.s);
    mw_json_set_real(o, "cv", t.cv);
    mw_json_set_real(o, "bytes", k->bytes * (double)n);
    mw_json_set_real(o, "bytes_per_s", k->bytes * (double)n / t.s);
    json_array_append_new(out, o);
}

void mw_check_kernels(struct mw_check *c)
{
    static const struct shape full[] = {
        {4096, 2048}, {4096, 4096}, {4096, 8192}, {8192, 8192}};
    static const struct shape quick[] = {{48, 128}};
    const struct shape *shapes = c->is_quick ? quick : full;
    size_t n = c->is_quick ? 1 : sizeof full / sizeof *full;
    json_t *out = json_array();
    mw_json_set(c->out, "kernels", out);
    for (size_t i = 0; i < n; i++) {
        for (size_t k = 0; k < sizeof kernels / sizeof *kernels; k++) {
            if (!mw_check_is_late(c, kernels[k].op)) {
                measure_kernel(c, out, &kernels[k], &shapes[i]);
            }
        }
    }
}
