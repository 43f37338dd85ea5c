/*
 * The kernels that check_kernels.c has not: attention, whole and in parts;
 * what a mixture of experts does; small ones. Attention's rows go to
 * kernels.csv under the key that sim/cost looks up; the rest to gpu_check.json,
 * with the bytes that must move (each operand once) or the operations, hence a
 * rate.
 *
 * Products of experts are measured in one launch and one by one through
 * cuBLASLt, for experts on both sides of the limit between them.
 */
#include "exec/cuda/check_int.h"

#include <string.h>

/* What the operands of a kernel are made from. */
struct more {
    int rows, width, heads, dim; /* heads * dim is width */
    int n, k;                    /* experts, choices of a row */
    /* Of a router that has chosen, on the device; first on the host too. */
    float *probs, *weight;
    int32_t *choice, *place, *from, *order, *home, *first;
    int64_t *leaving;
    int32_t *host_first;
};

static size_t area(const struct more *m)
{
    return (size_t)m->rows * (size_t)m->width;
}

static size_t sent(const struct more *m)
{
    return (size_t)m->rows * (size_t)m->k;
}

static struct mw_cuda *cuda(struct mw_check *c)
{
    return (struct mw_cuda *)c->dev;
}

static void *take(struct mw_check *c, const struct more *m)
{
    return mw_check_take(c, area(m));
}

/* ---- attention ------------------------------------------------------------
 */
static struct mw_dev_attention attention_arg(struct mw_check *c,
                                             const struct more *m)
{
    return (struct mw_dev_attention){
        .n_seqs = 1,
        .seq = m->rows,
        .n_heads = m->heads,
        .n_kv_heads = m->heads,
        .head_dim = m->dim,
        .ld_q = m->width,
        .ld_kv = m->width,
        .q = take(c, m),
        .k = take(c, m),
        .v = take(c, m),
        .out = take(c, m),
        .lse = mw_check_sums(c, (size_t)m->heads * (size_t)m->rows)};
}

static struct mw_dev_attention attention_back(struct mw_check *c,
                                              const struct more *m)
{
    struct mw_dev_attention a = attention_arg(c, m);
    a.dout = take(c, m);
    a.dq = take(c, m);
    a.dk = take(c, m);
    a.dv = take(c, m);
    a.scratch = mw_check_sums(c, (size_t)m->heads * (size_t)m->rows);
    return a;
}

static void attention_f(struct mw_check *c, const void *arg)
{
    struct mw_dev_attention a = attention_arg(c, arg);
    c->dev->ops->attention_fwd(c->dev, &a);
}

static void attention_b(struct mw_check *c, const void *arg)
{
    struct mw_dev_attention a = attention_back(c, arg);
    c->dev->ops->attention_bwd(c->dev, &a);
}

/* All queries see all keys: a step of a ring. */
static struct mw_dev_queries queries(const struct more *m)
{
    return (struct mw_dev_queries){m->rows, m->rows, m->rows, false, NULL};
}

static void part_f(struct mw_check *c, const void *arg)
{
    struct mw_dev_attention a = attention_arg(c, arg);
    const struct mw_dev_queries own = queries(arg);
    c->dev->ops->attention_part_fwd(c->dev, &a, &own);
}

static void part_b(struct mw_check *c, const void *arg)
{
    struct mw_dev_attention a = attention_back(c, arg);
    const struct mw_dev_queries own = queries(arg);
    c->dev->ops->attention_part_bwd(c->dev, &a, &own);
}

static void merge_f(struct mw_check *c, const void *arg)
{
    const struct more *m = arg;
    size_t lse = (size_t)m->heads * (size_t)m->rows;
    const struct mw_dev_merge a = {.rows = m->rows,
                                   .n_heads = m->heads,
                                   .head_dim = m->dim,
                                   .ld_lse = m->rows,
                                   .out = take(c, m),
                                   .lse = mw_check_sums(c, lse),
                                   .part = take(c, m),
                                   .part_lse = mw_check_sums(c, lse)};
    c->dev->ops->attention_merge(c->dev, &a);
}

/* ---- small ones -----------------------------------------------------------
 */
static void swiglu_f(struct mw_check *c, const void *arg)
{
    const struct more *m = arg;
    void *y = take(c, m);
    c->dev->ops->act_fwd(c->dev, true, y, mw_check_take(c, 2 * area(m)),
                         m->rows, m->width);
}

static void swiglu_b(struct mw_check *c, const void *arg)
{
    const struct more *m = arg;
    void *dx = mw_check_take(c, 2 * area(m)), *dy = take(c, m);
    c->dev->ops->act_bwd(c->dev, true, dx, dy, mw_check_take(c, 2 * area(m)),
                         m->rows, m->width);
}

static void bias_w(struct mw_check *c, const void *arg)
{
    const struct more *m = arg;
    c->dev->ops->bias_bwd(c->dev, mw_check_sums(c, (size_t)m->width),
                          take(c, m), m->rows, m->width);
}

static void position_f(struct mw_check *c, const void *arg)
{
    const struct more *m = arg;
    void *y = take(c, m);
    c->dev->ops->position_fwd(c->dev, y, take(c, m), m->rows, m->width,
                              m->rows);
}

static void position_w(struct mw_check *c, const void *arg)
{
    const struct more *m = arg;
    c->dev->ops->position_bwd(c->dev, mw_check_sums(c, area(m)), take(c, m),
                              m->rows, m->width, m->rows);
}

static void add_rows_f(struct mw_check *c, const void *arg)
{
    const struct more *m = arg;
    size_t ld = 2 * (size_t)m->width;
    const struct mw_dev_rows y = {mw_check_take(c, 2 * area(m)), ld};
    const struct mw_dev_rows x = {mw_check_take(c, 2 * area(m)), ld};
    c->dev->ops->add_rows(c->dev, y, x, m->rows, m->width);
}

static void accumulate_f(struct mw_check *c, const void *arg)
{
    float *y = mw_check_sums(c, area(arg));
    c->dev->ops->accumulate(c->dev, y, mw_check_sums(c, area(arg)), area(arg));
}

enum { SUMMED = 4 };

static void reduce_f(struct mw_check *c, const void *arg)
{
    const void *in[SUMMED];
    for (int i = 0; i < SUMMED; i++) {
        in[i] = take(c, arg);
    }
    const struct mw_k_reduce a = {.elem = MW_K_BF16,
                                  .out = (void *)(uintptr_t)in[0],
                                  .in = in,
                                  .n_in = SUMMED,
                                  .n = area(arg)};
    MW_CUDA_RUN(cuda(c), mw_k_reduce_cuda, &a, cuda(c)->stream);
}

static void to_bf16_f(struct mw_check *c, const void *arg)
{
    void *y = take(c, arg);
    MW_CUDA_RUN(cuda(c), mw_k_to_bf16_cuda, y, mw_check_sums(c, area(arg)),
                area(arg), cuda(c)->stream);
}

/* The row statistics of xent_sum into one number on the device. */
static void loss_f(struct mw_check *c, const void *arg)
{
    const struct more *m = arg;
    float *sum = mw_check_sums(c, (size_t)m->rows);
    MW_CUDA_RUN(cuda(c), mw_k_xent_loss_cuda, cuda(c)->loss, sum,
                mw_check_sums(c, (size_t)m->rows), m->rows, cuda(c)->stream);
}

/* ---- mixtures of experts --------------------------------------------------
 */
static void route_f(struct mw_check *c, const void *arg)
{
    const struct more *m = arg;
    float *p = mw_check_sums(c, (size_t)m->rows * (size_t)m->n);
    c->dev->ops->experts->route_fwd(c->dev, p, m->choice, m->weight, m->rows,
                                    m->n, m->k);
}

static void route_b(struct mw_check *c, const void *arg)
{
    const struct more *m = arg;
    void *d = mw_check_take(c, (size_t)m->rows * (size_t)m->n);
    c->dev->ops->experts->route_bwd(
        c->dev, d, mw_check_sums(c, sent(m)), m->probs, m->choice, m->weight,
        mw_check_sums(c, (size_t)m->n), m->rows, m->n, m->k);
}

static void sort_f(struct mw_check *c, const void *arg)
{
    const struct more *m = arg;
    const struct mw_k_sort a = {m->choice, (int)sent(m), m->n,      m->k,
                                m->place,  m->from,      m->leaving};
    c->dev->ops->experts->sort(c->dev, &a);
}

static void order_f(struct mw_check *c, const void *arg)
{
    const struct more *m = arg;
    const struct mw_k_order a = {m->leaving, 1,       m->n,
                                 m->order,   m->home, m->first};
    c->dev->ops->experts->order(c->dev, &a);
}

static void *take_sent(struct mw_check *c, const struct more *m)
{
    return mw_check_take(c, sent(m) * (size_t)m->width);
}

static void gather_f(struct mw_check *c, const void *arg)
{
    const struct more *m = arg;
    void *to = take_sent(c, m);
    c->dev->ops->experts->gather(c->dev, to, take(c, m), m->from, (int)sent(m),
                                 m->width);
}

static void combine_f(struct mw_check *c, const void *arg)
{
    const struct more *m = arg;
    void *y = take(c, m), *x = take_sent(c, m);
    c->dev->ops->experts->combine(c->dev, y, x, m->place, m->weight, take(c, m),
                                  m->rows, m->k, m->width);
}

static void combine_b(struct mw_check *c, const void *arg)
{
    const struct more *m = arg;
    void *dx = take_sent(c, m), *x = take_sent(c, m);
    c->dev->ops->experts->combine_bwd(c->dev, dx, mw_check_sums(c, sent(m)),
                                      take(c, m), x, m->place, m->weight,
                                      m->rows, m->k, m->width);
}

static void gate_f(struct mw_check *c, const void *arg)
{
    const struct more *m = arg;
    void *y = take(c, m);
    c->dev->ops->experts->gate_fwd(c->dev, y, take(c, m),
                                   mw_check_sums(c, (size_t)m->rows), m->rows,
                                   m->width);
}

static void gate_b(struct mw_check *c, const void *arg)
{
    const struct more *m = arg;
    void *dx = take(c, m), *dlogit = mw_check_take(c, (size_t)m->rows);
    void *dy = take(c, m);
    c->dev->ops->experts->gate_bwd(c->dev, dx, dlogit, dy, take(c, m),
                                   mw_check_sums(c, (size_t)m->rows), m->rows,
                                   m->width);
}

/* width x width weights. */
static struct mw_dev_groups groups(const struct more *m)
{
    return (struct mw_dev_groups){m->n, m->width, m->width, m->first,
                                  m->host_first};
}

static void *take_weights(struct mw_check *c, const struct more *m)
{
    size_t one = (size_t)m->width * (size_t)m->width;
    return mw_check_take(c, (size_t)m->n * one);
}

static void groups_f(struct mw_check *c, const void *arg)
{
    const struct mw_dev_groups g = groups(arg);
    void *y = take_sent(c, arg), *x = take_sent(c, arg);
    c->dev->ops->experts->groups_fwd(c->dev, &g, y, x, take_weights(c, arg));
}

static void groups_b(struct mw_check *c, const void *arg)
{
    const struct mw_dev_groups g = groups(arg);
    void *dx = take_sent(c, arg), *dy = take_sent(c, arg);
    c->dev->ops->experts->groups_bwd_input(c->dev, &g, dx, dy,
                                           take_weights(c, arg));
}

static void groups_w(struct mw_check *c, const void *arg)
{
    const struct more *m = arg;
    const struct mw_dev_groups g = groups(m);
    size_t one = (size_t)m->width * (size_t)m->width;
    void *dy = take_sent(c, m);
    c->dev->ops->experts->groups_bwd_weight(
        c->dev, &g, mw_check_sums(c, (size_t)m->n * one), dy, take_sent(c, m));
}

/* ---- the list ---------------------------------------------------------------
 */
enum unit { PER_AREA, PER_ROW, PER_LOGIT, PER_SENT, PER_PAIR, PER_PRODUCT };

struct kernel {
    const char *op, *pass;
    mw_check_fn call;
    enum unit unit;
    double amount; /* bytes, or operations, of one unit */
    const char *symbols;
};

static const struct kernel kernels[] = {
    /* two products of 2 operations a pair of tokens and head dimension, half of
     * the pairs where it is causal; five in the backward pass */
    {"attention", "F", attention_f, PER_PAIR, 2, "mw_k_attention_fwd_cuda"},
    {"attention", "B", attention_b, PER_PAIR, 5, "mw_k_attention_bwd_cuda"},
    {"attention_part", "F", part_f, PER_PAIR, 4,
     "mw_k_attention_part_fwd_cuda"},
    {"attention_part", "B", part_b, PER_PAIR, 10,
     "mw_k_attention_part_bwd_cuda"},
    {"attention_merge", "F", merge_f, PER_AREA, 6, "mw_k_attention_merge_cuda"},
    {"swiglu", "F", swiglu_f, PER_AREA, 6, "mw_k_swiglu_fwd_cuda"},
    {"swiglu", "B", swiglu_b, PER_AREA, 10, "mw_k_swiglu_bwd_cuda"},
    {"bias", "W", bias_w, PER_AREA, 2, "mw_k_bias_bwd_cuda"},
    {"position", "F", position_f, PER_AREA, 6, "mw_k_position_fwd_cuda"},
    {"position", "W", position_w, PER_AREA, 10, "mw_k_position_bwd_cuda"},
    {"add_rows", "F", add_rows_f, PER_AREA, 6, "mw_k_add_rows_cuda"},
    {"accumulate", "F", accumulate_f, PER_AREA, 12, "mw_k_accumulate_cuda"},
    {"reduce", "F", reduce_f, PER_AREA, 2 * (SUMMED + 1), "mw_k_reduce_cuda"},
    {"to_bf16", "F", to_bf16_f, PER_AREA, 6, "mw_k_to_bf16_cuda"},
    {"loss", "F", loss_f, PER_ROW, 8, "mw_k_xent_loss_cuda"},
    {"router", "F", route_f, PER_LOGIT, 8, "mw_k_route_fwd_cuda"},
    {"router", "B", route_b, PER_LOGIT, 6, "mw_k_route_bwd_cuda"},
    {"sort", "F", sort_f, PER_ROW, 0, "mw_k_route_sort_cuda"},
    {"order", "F", order_f, PER_ROW, 0, "mw_k_route_order_cuda"},
    {"gather", "F", gather_f, PER_SENT, 4, "mw_k_rows_gather_cuda"},
    {"combine", "F", combine_f, PER_SENT, 2, "mw_k_rows_combine_cuda"},
    {"combine", "B", combine_b, PER_SENT, 4, "mw_k_rows_combine_bwd_cuda"},
    {"gate", "F", gate_f, PER_AREA, 6, "mw_k_rows_gate_cuda"},
    {"gate", "B", gate_b, PER_AREA, 6, "mw_k_rows_gate_bwd_cuda"},
};

/* In one launch, and one by one. */
static const struct kernel products[] = {
    {"groups", "F", groups_f, PER_PRODUCT, 2, "mw_k_groups_fwd_cuda"},
    {"groups", "B", groups_b, PER_PRODUCT, 2, "mw_k_groups_bwd_input_cuda"},
    {"groups", "W", groups_w, PER_PRODUCT, 2, "mw_k_groups_bwd_weight_cuda"},
};

static double units(const struct more *m, enum unit unit)
{
    double rows = m->rows, width = m->width, n_sent = (double)sent(m);
    switch (unit) {
    case PER_AREA:
        return rows * width;
    case PER_ROW:
        return rows;
    case PER_LOGIT:
        return rows * m->n;
    case PER_SENT:
        return n_sent * width;
    case PER_PAIR:
        return rows * rows * width;
    case PER_PRODUCT:
        break;
    }
    return n_sent * width * width;
}

static void measure(struct mw_check *c, json_t *out, const struct kernel *k,
                    const struct more *m, const char *way)
{
    char label[96];
    bool is_work = k->unit == PER_PAIR || k->unit == PER_PRODUCT;
    double amount = k->amount * units(m, k->unit);
    snprintf(label, sizeof label, "%s %s %d %d %d%s", k->op, k->pass, m->rows,
             m->width, m->n, way);
    struct mw_check_time t = mw_check_measure(c, label, k->call, m);
    if (strcmp(k->op, "attention") == 0) { /* tokens, heads, head dimension */
        const int64_t mnk[3] = {m->rows, m->heads, m->dim};
        mw_check_row(c, k->op, k->pass, mnk, t.s);
    }
    json_t *o = json_object();
    mw_json_set_str(o, "op", k->op);
    mw_json_set_str(o, "pass", k->pass);
    mw_json_set_str(o, "way", way);
    mw_json_set_str(o, "symbols", k->symbols);
    mw_json_set_int(o, "rows", m->rows);
    mw_json_set_int(o, "width", m->width);
    mw_json_set_int(o, "experts", m->n);
    mw_json_set_real(o, "time_s", t.s);
    mw_json_set_real(o, "cv", t.cv);
    if (amount > 0.0) {
        mw_json_set_real(o, is_work ? "flops" : "bytes", amount);
        mw_json_set_real(o, is_work ? "flops_per_s" : "bytes_per_s",
                         amount / t.s);
    }
    json_array_append_new(out, o);
}

/* ---- memory
 * ------------------------------------------------------------------ */
static int32_t *ints(struct mw_check *c, size_t n)
{
    return c->dev->ops->alloc(c->dev, n * sizeof(int32_t));
}

static void drop(struct mw_check *c, void *p, size_t n)
{
    c->dev->ops->free(c->dev, p, n * 4);
}

/* A router has chosen, by random logits; the host knows how many. */
static void open_experts(struct mw_check *c, struct more *m)
{
    size_t logits = (size_t)m->rows * (size_t)m->n, n = (size_t)m->n;
    int64_t *leaving = mw_calloc(n, sizeof *leaving);
    m->probs = c->dev->ops->alloc(c->dev, logits * 4);
    m->weight = c->dev->ops->alloc(c->dev, sent(m) * 4);
    m->choice = ints(c, sent(m));
    m->place = ints(c, sent(m));
    m->from = ints(c, sent(m));
    m->order = ints(c, sent(m));
    m->home = ints(c, sent(m));
    m->first = ints(c, n + 1);
    m->leaving = c->dev->ops->alloc(c->dev, 2 * n * 4);
    m->host_first = mw_calloc(n + 1, sizeof *m->host_first);
    c->dev->ops->copy(c->dev, m->probs, c->pool, logits * 2);
    c->dev->ops->experts->route_fwd(c->dev, m->probs, m->choice, m->weight,
                                    m->rows, m->n, m->k);
    sort_f(c, m);
    order_f(c, m);
    c->dev->ops->to_host(c->dev, leaving, m->leaving, n * sizeof *leaving);
    for (size_t e = 0; e < n; e++) {
        m->host_first[e + 1] = m->host_first[e] + (int32_t)leaving[e];
    }
    mw_free(leaving);
}

static void close_experts(struct mw_check *c, struct more *m)
{
    drop(c, m->probs, (size_t)m->rows * (size_t)m->n);
    drop(c, m->weight, sent(m));
    drop(c, m->choice, sent(m));
    drop(c, m->place, sent(m));
    drop(c, m->from, sent(m));
    drop(c, m->order, sent(m));
    drop(c, m->home, sent(m));
    drop(c, m->first, (size_t)m->n + 1);
    drop(c, m->leaving, 2 * (size_t)m->n);
    mw_free(m->host_first);
}

static void measure_products(struct mw_check *c, json_t *out,
                             const struct more *m)
{
    static const char *const way[] = {"one launch", "one by one"};
    const double limit[] = {1e30, 0.0};
    double before = cuda(c)->small_group_flops;
    for (int w = 0; w < 2; w++) {
        cuda(c)->small_group_flops = limit[w];
        for (size_t i = 0; i < sizeof products / sizeof *products; i++) {
            if (!mw_check_is_late(c, "groups")) {
                measure(c, out, &products[i], m, way[w]);
            }
        }
    }
    cuda(c)->small_group_flops = before;
}

void mw_check_more(struct mw_check *c)
{
    static const struct more full[] = {
        {.rows = 4096, .width = 2048, .heads = 16, .dim = 128, .n = 8, .k = 2},
        {.rows = 4096, .width = 1024, .heads = 8, .dim = 128, .n = 64, .k = 8}};
    static const struct more quick = {
        .rows = 48, .width = 64, .heads = 2, .dim = 32, .n = 4, .k = 2};
    json_t *out = json_array();
    mw_json_set(c->out, "other_kernels", out);
    for (size_t s = 0; s < (c->is_quick ? 1 : sizeof full / sizeof *full);
         s++) {
        struct more m = c->is_quick ? quick : full[s];
        open_experts(c, &m);
        for (size_t i = 0; i < sizeof kernels / sizeof *kernels; i++) {
            if (!mw_check_is_late(c, kernels[i].op)) {
                measure(c, out, &kernels[i], &m, "");
            }
        }
        measure_products(c, out, &m);
        close_experts(c, &m);
    }
}
