/*
 * One transformer layer (GPT: LayerNorm, fused qkv, causal attention, GELU) as
 * a tensor-parallel rank computes it: forward, input gradients, weight
 * gradients, each timed whole, with the memory that its tensors took by our
 * count and by the driver's.
 */
#include "exec/cuda/check_int.h"

struct layer {
    int rows, seq, hidden, ffn, heads, dim, tp;
    void *w_qkv, *w_proj, *w_fc1, *w_fc2, *gamma;
    float *g_qkv, *g_proj, *g_fc1, *g_fc2, *g_norm;
    void *x, *n1, *qkv, *att, *mid, *n2, *h1, *act, *y;
    void *dqkv, *dmid, *dh1, *dn, *dx;
    float *stats, *lse;
    void *scratch;
};

/* Memory of a layer: counted on a first walk (dev NULL), taken on a second. */
struct carve {
    struct mw_dev *dev;
    char *base;
    size_t at;
};

static void *carve(struct carve *m, size_t bytes)
{
    char *p = m->base ? m->base + m->at : NULL;
    m->at += (bytes + 255) / 256 * 256;
    return p;
}

static void *half(struct carve *m, int rows, int cols)
{
    return carve(m, 2 * (size_t)rows * (size_t)cols);
}

static float *single(struct carve *m, int rows, int cols)
{
    return carve(m, 4 * (size_t)rows * (size_t)cols);
}

static void lay_weights(struct carve *m, struct layer *l)
{
    int wide = l->heads * l->dim;
    l->w_qkv = half(m, 3 * wide, l->hidden);
    l->w_proj = half(m, l->hidden, wide);
    l->w_fc1 = half(m, l->ffn, l->hidden);
    l->w_fc2 = half(m, l->hidden, l->ffn);
    l->gamma = half(m, 1, l->hidden);
    l->g_qkv = single(m, 3 * wide, l->hidden);
    l->g_proj = single(m, l->hidden, wide);
    l->g_fc1 = single(m, l->ffn, l->hidden);
    l->g_fc2 = single(m, l->hidden, l->ffn);
    l->g_norm = single(m, 1, l->hidden);
}

static void lay_activations(struct carve *m, struct layer *l)
{
    int wide = l->heads * l->dim, rows = l->rows, h = l->hidden;
    void **hidden[] = {&l->x, &l->n1, &l->mid, &l->n2,
                       &l->y, &l->dx, &l->dn,  &l->dmid};
    for (size_t i = 0; i < sizeof hidden / sizeof *hidden; i++) {
        *hidden[i] = half(m, rows, h);
    }
    l->qkv = half(m, rows, 3 * wide);
    l->dqkv = half(m, rows, 3 * wide);
    l->att = half(m, rows, wide);
    l->h1 = half(m, rows, l->ffn);
    l->act = half(m, rows, l->ffn);
    l->dh1 = half(m, rows, l->ffn);
    l->stats = single(m, 4, rows);
    l->lse = single(m, l->heads, rows);
    l->scratch = single(m, l->heads, rows);
}

static size_t lay(struct layer *l, char *base)
{
    struct carve m = {.base = base};
    lay_weights(&m, l);
    lay_activations(&m, l);
    return m.at;
}

/* ---- passes
 * ------------------------------------------------------------------------ */
static struct mw_dev_norm norm_arg(const struct layer *l, const void *x,
                                   int which)
{
    return (struct mw_dev_norm){.kind = MW_NORM_LAYER,
                                .x = x,
                                .gamma = l->gamma,
                                .beta = l->gamma,
                                .mean = l->stats + 2 * which * l->rows,
                                .rstd = l->stats + (2 * which + 1) * l->rows,
                                .rows = l->rows,
                                .width = l->hidden};
}

static struct mw_dev_attention attention_arg(const struct mw_check *c,
                                             const struct layer *l)
{
    size_t wide = (size_t)l->heads * (size_t)l->dim;
    return (struct mw_dev_attention){.n_seqs = l->rows / l->seq,
                                     .seq = l->seq,
                                     .n_heads = l->heads,
                                     .n_kv_heads = l->heads,
                                     .head_dim = l->dim,
                                     .ld_q = 3 * (int)wide,
                                     .ld_kv = 3 * (int)wide,
                                     .q = l->qkv,
                                     .k = mw_dev_at(c->dev, l->qkv, wide),
                                     .v = mw_dev_at(c->dev, l->qkv, 2 * wide),
                                     .out = l->att,
                                     .lse = l->lse,
                                     .dout = l->att,
                                     .dq = l->dqkv,
                                     .dk = mw_dev_at(c->dev, l->dqkv, wide),
                                     .dv = mw_dev_at(c->dev, l->dqkv, 2 * wide),
                                     .scratch = l->scratch};
}

static void forward(struct mw_check *c, const void *arg)
{
    const struct layer *l = arg;
    const struct mw_dev_ops *d = c->dev->ops;
    int wide = l->heads * l->dim;
    struct mw_dev_norm norm1 = norm_arg(l, l->x, 0);
    struct mw_dev_norm norm2 = norm_arg(l, l->mid, 1);
    struct mw_dev_attention a = attention_arg(c, l);
    d->norm_fwd(c->dev, &norm1, l->n1);
    d->linear_fwd(c->dev, l->qkv, l->n1, l->w_qkv, NULL, l->rows, 3 * wide,
                  l->hidden);
    d->attention_fwd(c->dev, &a);
    d->linear_fwd(c->dev, l->mid, l->att, l->w_proj, NULL, l->rows, l->hidden,
                  wide);
    d->add(c->dev, l->mid, l->mid, NULL, l->x, l->rows, l->hidden);
    d->norm_fwd(c->dev, &norm2, l->n2);
    d->linear_fwd(c->dev, l->h1, l->n2, l->w_fc1, NULL, l->rows, l->ffn,
                  l->hidden);
    d->act_fwd(c->dev, false, l->act, l->h1, l->rows, l->ffn);
    d->linear_fwd(c->dev, l->y, l->act, l->w_fc2, NULL, l->rows, l->hidden,
                  l->ffn);
    d->add(c->dev, l->y, l->y, NULL, l->mid, l->rows, l->hidden);
}

/* dy is y itself: only its size matters. */
static void backward(struct mw_check *c, const void *arg)
{
    const struct layer *l = arg;
    const struct mw_dev_ops *d = c->dev->ops;
    int wide = l->heads * l->dim;
    struct mw_dev_norm norm1 = norm_arg(l, l->x, 0);
    struct mw_dev_norm norm2 = norm_arg(l, l->mid, 1);
    struct mw_dev_attention a = attention_arg(c, l);
    d->linear_bwd_input(c->dev, l->dh1, l->y, l->w_fc2, l->rows, l->hidden,
                        l->ffn);
    d->act_bwd(c->dev, false, l->dh1, l->dh1, l->h1, l->rows, l->ffn);
    d->linear_bwd_input(c->dev, l->dn, l->dh1, l->w_fc1, l->rows, l->ffn,
                        l->hidden);
    d->norm_bwd_input(c->dev, &norm2, l->dmid, l->dn);
    d->add(c->dev, l->dmid, l->dmid, NULL, l->y, l->rows, l->hidden);
    d->linear_bwd_input(c->dev, l->dn, l->dmid, l->w_proj, l->rows, l->hidden,
                        wide);
    d->attention_bwd(c->dev, &a);
    d->linear_bwd_input(c->dev, l->dn, l->dqkv, l->w_qkv, l->rows, 3 * wide,
                        l->hidden);
    d->norm_bwd_input(c->dev, &norm1, l->dx, l->dn);
    d->add(c->dev, l->dx, l->dx, NULL, l->dmid, l->rows, l->hidden);
}

static void weight(struct mw_check *c, const void *arg)
{
    const struct layer *l = arg;
    const struct mw_dev_ops *d = c->dev->ops;
    int wide = l->heads * l->dim;
    struct mw_dev_norm norm1 = norm_arg(l, l->x, 0);
    struct mw_dev_norm norm2 = norm_arg(l, l->mid, 1);
    d->linear_bwd_weight(c->dev, l->g_fc2, NULL, l->y, l->act, l->rows,
                         l->hidden, l->ffn);
    d->linear_bwd_weight(c->dev, l->g_fc1, NULL, l->dh1, l->n2, l->rows, l->ffn,
                         l->hidden);
    d->norm_bwd_param(c->dev, &norm2, l->g_norm, NULL, l->dn);
    d->linear_bwd_weight(c->dev, l->g_proj, NULL, l->dmid, l->att, l->rows,
                         l->hidden, wide);
    d->linear_bwd_weight(c->dev, l->g_qkv, NULL, l->dqkv, l->n1, l->rows,
                         3 * wide, l->hidden);
    d->norm_bwd_param(c->dev, &norm1, l->g_norm, NULL, l->dn);
}

/* ---- measuring
 * ------------------------------------------------------------------------ */
/* Products and the causal half of attention. */
static double forward_flops(const struct layer *l)
{
    double rows = l->rows, wide = (double)l->heads * l->dim;
    double linear = 2.0 * rows * l->hidden * (4.0 * wide + 2.0 * l->ffn);
    return linear + 2.0 * rows * l->seq * wide;
}

/* Small random weights, so that values stay finite. */
static void fill(struct mw_check *c, const struct layer *l, char *base,
                 size_t bytes)
{
    size_t part = c->pool_bytes / 2;
    for (size_t at = 0; at < bytes; at += part) {
        size_t n = bytes - at < part ? bytes - at : part;
        c->dev->ops->copy(c->dev, base + at, c->pool, n);
    }
    c->dev->ops->zero(c->dev, l->stats, (size_t)l->rows * 4 * sizeof(float));
}

static void measure_passes(struct mw_check *c, const struct layer *l, json_t *o)
{
    static const struct {
        const char *key, *key_cv;
        mw_check_fn pass;
    } passes[] = {{"F_s", "F_cv", forward},
                  {"B_s", "B_cv", backward},
                  {"W_s", "W_cv", weight}};
    for (size_t i = 0; i < sizeof passes / sizeof *passes; i++) {
        char label[64];
        snprintf(label, sizeof label, "layer %s %d %d tp %d", passes[i].key,
                 l->hidden, l->seq, l->tp);
        struct mw_check_time t = mw_check_measure(c, label, passes[i].pass, l);
        mw_json_set_real(o, passes[i].key, t.s);
        mw_json_set_real(o, passes[i].key_cv, t.cv);
    }
}

static void measure_layer(struct mw_check *c, json_t *out, int hidden, int seq,
                          int tp)
{
    int heads = hidden / (c->is_quick ? 16 : 128);
    struct layer l = {.rows = seq,
                      .seq = seq,
                      .hidden = hidden,
                      .ffn = 4 * hidden / tp,
                      .heads = heads / tp,
                      .dim = hidden / heads,
                      .tp = tp};
    size_t before = 0, after = 0, total = 0, bytes = lay(&l, NULL);
    cudaMemGetInfo(&before, &total);
    char *base = c->dev->ops->alloc(c->dev, bytes);
    cudaMemGetInfo(&after, &total);
    if (!base) {
        return; /* the failure is kept by the device */
    }
    lay(&l, base);
    fill(c, &l, base, bytes);
    json_t *o = json_object();
    mw_json_set_int(o, "hidden", hidden);
    mw_json_set_int(o, "seq", seq);
    mw_json_set_int(o, "tp", tp);
    mw_json_set_real(o, "forward_flops", forward_flops(&l));
    mw_json_set_int(o, "bytes", (long long)bytes);
    mw_json_set_int(o, "bytes_by_driver", (long long)before - (long long)after);
    measure_passes(c, &l, o);
    json_array_append_new(out, o);
    c->dev->ops->free(c->dev, base, bytes);
}

void mw_check_layers(struct mw_check *c)
{
    static const int sizes[][2] = {
        {2048, 2048}, {4096, 2048}, {4096, 4096}, {8192, 4096}};
    json_t *out = json_array();
    mw_json_set(c->out, "layers", out);
    if (c->is_quick) {
        measure_layer(c, out, 64, 32, 2);
        return;
    }
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        for (int tp = 1; tp <= 8; tp *= 2) {
            if (!mw_check_is_late(c, "layers")) {
                measure_layer(c, out, sizes[i][0], sizes[i][1], tp);
            }
        }
    }
}
