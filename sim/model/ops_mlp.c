/*
 * The forward steps of a layer's second block, dense
 *
 *   norm2  [f|ag]  fc1  act  fc2  [g|rs]  add2
 *
 * or a mixture of experts, with every expert given the same number of tokens:
 *
 *   norm2  router  permute  [a2a]  [ag]  fc1  act  fc2  [rs]  [a2a]  unpermute
 *          shared expert as the dense block              add2
 *
 * with a2a over the EP group and ag, rs over the ETP group (Megatron-LM's
 * alltoall dispatcher, core/transformer/moe), or under the allgather dispatcher
 *
 *   [ag]  permute  fc1  act  fc2  unpermute  [rs]
 *
 * with ag and rs over both groups. Each rank routes its own tokens:
 * with tp > 1 that needs sp, as Megatron-LM demands. Kept for the backward
 * pass: inputs of the GEMMs and of the activation, router probabilities
 * (fp32), and the experts' outputs, whose product with the incoming gradient
 * is the gradient of the probabilities.
 */
#include "sim/model/ops_int.h"

#include <string.h>

static double x_bytes(const struct mw_sizes *s, double rows, double width)
{
    return s->el * rows * width;
}

/* Projections into the intermediate size: gate and up, or up alone. */
static int n_in(const struct mw_model *m)
{
    return m->is_gated ? 2 : 1;
}

static struct mw_fstep *add_act(const struct mw_sizes *s, const char *name,
                                int64_t rows, int64_t width,
                                struct mw_fsteps *out)
{
    double y = x_bytes(s, (double)rows, (double)width);

    return mw_fstep_simple(out, s, MW_OP_ACTIVATION, name, rows, width,
                           (n_in(s->m) + 1) * y, n_in(s->m) * y);
}

struct mlp_names {
    const char *fc1, *act, *fc2;
};

/* fc1, activation, fc2 of `ffn` elements over the TP group. */
static struct mw_fstep *add_pair(const struct mw_sizes *s,
                                 const struct mlp_names *names, int64_t ffn,
                                 struct mw_fsteps *out)
{
    int64_t width = ffn / s->tp;
    size_t i_fc1;

    mw_fstep_tp_enter(out, s, names->fc1, s->m->hidden);
    mw_fstep_sharded_input(mw_fstep_linear(out, s, names->fc1, s->tokens,
                                           n_in(s->m) * width, s->m->hidden),
                           s, s->m->hidden);
    i_fc1 = out->n - 1;
    add_act(s, names->act, s->tokens, width, out);
    mw_fstep_linear(out, s, names->fc2, s->tokens, s->m->hidden, width);
    mw_fstep_tp_exit(out, s, names->fc2, s->m->hidden);
    return &out->v[i_fc1];
}

/* ---- mixture of experts ----------------------------------------------------
 */
static void add_router(const struct mw_sizes *s, struct mw_fsteps *out)
{
    int64_t experts = s->m->moe.n_experts;
    double logits = 4 * (double)s->own_tokens * (double)experts;
    struct mw_fstep *step =
        mw_fstep_linear(out, s, "router", s->own_tokens, experts, s->m->hidden);

    step->op.dtype = s->act;
    step->op.save_bytes =
        x_bytes(s, (double)s->own_tokens, (double)s->m->hidden);
    step->dropped_with = MW_MODULE_LAYERNORM;
    mw_fstep_simple(out, s, MW_OP_ROUTER, "top_k", s->own_tokens, experts,
                    2 * logits, logits);
}

/* A linear layer of the rank's experts: `rows` tokens over all of them. */
static void add_grouped(const struct mw_sizes *s, const char *name,
                        int64_t rows, int64_t n_out, int64_t in,
                        struct mw_fsteps *out)
{
    int64_t experts = s->m->moe.n_experts / s->work->layout->ep;
    struct mw_fstep *step = mw_fstep_linear(out, s, name, rows, n_out, in);

    step->op.is_routed = true;
    step->op.batch = experts;
    step->op.m = (rows + experts - 1) / experts;
    step->op.bytes = mw_gemm_bytes(s, step->op.m, n_out, in, experts);
}

/* An all-to-all of so many bytes forward and backward. */
static void add_exchange(const struct mw_sizes *s, const char *name,
                         double forward_bytes, double backward_bytes,
                         bool is_return, struct mw_fsteps *out)
{
    struct mw_fstep *step = mw_fstep_coll(
        out, s, name, MW_DIM_EP, MW_ALL_TO_ALL, MW_ALL_TO_ALL, forward_bytes);

    if (step != NULL) {
        step->bytes_b = backward_bytes;
        step->op.is_return = is_return;
    }
}

/* What the rank's experts keep of an uneven router's rows. */
static void hold_routed(const struct mw_sizes *s, struct mw_fsteps *out)
{
    for (size_t i = 0; i < out->n && s->work->routed_load > 0; i++) {
        struct mw_op *op = &out->v[i].op;

        op->save_bytes *= op->is_routed ? s->work->routed_load : 1;
    }
}

/*
 * Megatron-LM clamps the two halves of the first product's output and puts them
 * together again (core/fusions/fused_bias_geglu.py,
 * weighted_bias_quick_geglu_impl): two kernels that read and write a half each
 * and one that does the whole. Backward each half reads what was clamped and
 * its gradient and writes one, and both are put together. The clamped copy is
 * what the activation keeps.
 */
static void add_clamp(const struct mw_sizes *s, int64_t rows, int64_t width,
                      struct mw_fsteps *out)
{
    double whole = x_bytes(s, (double)rows, (double)(n_in(s->m) * width));
    struct mw_fstep *step;

    if (!s->m->moe.clamp || !s->work->splits_experts) {
        return;
    }
    step = mw_fstep_simple(out, s, MW_OP_ACTIVATION, "expert_clamp", rows,
                           n_in(s->m) * width, 4 * whole, whole);
    step->bytes_b = 5 * whole;
    step->op.is_routed = true;
    mw_fsteps_tag(out, out->n - 1, MW_MODULE_MOE_ACT, 0);
}

/*
 * The second product's bias, times the router's probability, expert by expert
 * (core/transformer/moe/experts.py, TEGroupedMLP._apply_bias): the product of
 * bias and probability is written, added to the rows, and the experts' rows put
 * together. Backward the gradient is put together, multiplied by either, and
 * both products are summed up. DeepEP and HybridEP bring fp32 probabilities
 * (core/transformer/moe/token_dispatcher.py), and then all this is in fp32,
 * with a cast at either end.
 */
static void add_bias(const struct mw_sizes *s, int64_t rows,
                     struct mw_fsteps *out)
{
    double x = x_bytes(s, (double)rows, (double)s->m->hidden);
    struct mw_fstep *step;

    if (!s->m->moe.bias || !s->work->splits_experts) {
        return;
    }
    step = mw_fstep_simple(out, s, MW_OP_ADD, "expert_bias", rows, s->m->hidden,
                           6 * x, 0);
    step->bytes_b = 8 * x;
    if (s->work->wide_probs && s->el < 4) { /* x of 2 bytes, fp32 of 4 */
        step->op.bytes = 14 * x;
        step->bytes_b = 20 * x;
    }
    step->op.is_routed = true;
}

/* Products of `rows` tokens over all of the rank's experts. */
static void add_products(const struct mw_sizes *s, int64_t rows,
                         struct mw_fsteps *out)
{
    int64_t hidden = s->m->hidden;
    int64_t width = s->m->moe.ffn / s->work->layout->etp;
    size_t clamp;

    add_grouped(s, "expert_fc1", rows, n_in(s->m) * width, hidden, out);
    clamp = out->n;
    add_clamp(s, rows, width, out);
    add_act(s, "expert_act", rows, width, out)->op.is_routed = true;
    mw_fsteps_tag(out, out->n - 1, MW_MODULE_MOE_ACT,
                  out->n - 1 > clamp ? MW_MODULE_MOE_ACT : 0);
    add_grouped(s, "expert_fc2", rows, hidden, width, out);
    mw_fsteps_tag(out, out->n - 1, 0, MW_MODULE_MOE_ACT);
    add_bias(s, rows, out);
    hold_routed(s, out);
}

/* Tokens and copies of them for experts, there and back. */
static void add_permute(const struct mw_sizes *s, const char *name,
                        int64_t tokens, int64_t copies, double save_bytes,
                        struct mw_fsteps *out)
{
    double hidden = (double)s->m->hidden;

    mw_fstep_simple(out, s, MW_OP_PERMUTE, name, tokens, s->m->hidden,
                    x_bytes(s, (double)tokens, hidden) +
                        x_bytes(s, (double)copies, hidden),
                    save_bytes);
}

static void add_experts(const struct mw_sizes *s, struct mw_fsteps *out)
{
    int64_t sent = s->own_tokens * s->m->moe.top_k;
    int64_t rows = sent * s->work->layout->etp;
    double message = x_bytes(s, (double)sent, (double)s->m->hidden);
    double gathered = message * s->work->layout->etp;

    double to_experts = s->m->moe.fp8_dispatch
                            ? message * mw_dtype_bytes(MW_FP8) / s->el
                            : message;

    add_permute(s, "permute", s->own_tokens, sent, 0, out);
    add_exchange(s, "dispatch", to_experts, message, false, out);
    mw_fstep_coll(out, s, "experts", MW_DIM_ETP, MW_ALL_GATHER,
                  MW_REDUCE_SCATTER, gathered);
    add_products(s, rows, out);
    mw_fstep_coll(out, s, "experts", MW_DIM_ETP, MW_REDUCE_SCATTER,
                  MW_ALL_GATHER, gathered);
    add_exchange(s, "combine", message, to_experts, true, out);
    add_permute(s, "unpermute", s->own_tokens, sent, message, out);
}

/*
 * Every rank of the group gets all tokens, takes those of its experts, and adds
 * what they return into rows for all tokens, of which each gets its own sum
 * (Megatron-LM, core/transformer/moe/token_dispatcher.py,
 * MoEAllGatherTokenDispatcher).
 */
static void add_gathered_experts(const struct mw_sizes *s,
                                 struct mw_fsteps *out)
{
    const struct mw_layout *l = s->work->layout;
    int64_t sent = s->own_tokens * s->m->moe.top_k * l->etp;
    int64_t near = s->own_tokens * l->ep, all = near * l->etp;
    double hidden = (double)s->m->hidden;
    double x = x_bytes(s, (double)near, hidden), whole = x * l->etp;

    mw_fstep_coll(out, s, "dispatch", MW_DIM_EP, MW_ALL_GATHER,
                  MW_REDUCE_SCATTER, x);
    mw_fstep_coll(out, s, "experts", MW_DIM_ETP, MW_ALL_GATHER,
                  MW_REDUCE_SCATTER, whole);
    add_permute(s, "permute", all, sent, 0, out);
    add_products(s, sent, out);
    add_permute(s, "unpermute", all, sent, x_bytes(s, (double)sent, hidden),
                out);
    mw_fstep_coll(out, s, "experts", MW_DIM_ETP, MW_REDUCE_SCATTER,
                  MW_ALL_GATHER, whole);
    mw_fstep_coll(out, s, "combine", MW_DIM_EP, MW_REDUCE_SCATTER,
                  MW_ALL_GATHER, x);
}

static void mark_beside(struct mw_fsteps *out, size_t first)
{
    enum mw_beside beside = MW_BESIDE_DISPATCH;

    for (size_t i = first; i < out->n; i++) {
        struct mw_op *op = &out->v[i].op;

        if (strcmp(op->name, "shared_fc2") == 0) {
            beside = MW_BESIDE_COMBINE;
        }
        op->beside = op->kind == MW_OP_COLL ? MW_BESIDE_NONE : beside;
    }
}

/* The tokens are those that the router saw; it keeps them for both. A gated
 * output is kept: its product with the incoming gradient is the gate's. */
static void add_shared(const struct mw_sizes *s, struct mw_fsteps *out)
{
    static const struct mlp_names names = {"shared_fc1", "shared_act",
                                           "shared_fc2"};

    size_t first = out->n;

    if (s->m->moe.shared_ffn == 0) {
        return;
    }
    if (s->m->moe.shared_gate) {
        mw_fstep_linear(out, s, "shared_gate", s->own_tokens, 1, s->m->hidden)
            ->op.save_bytes = 0;
    }
    add_pair(s, &names, s->m->moe.shared_ffn, out)->op.save_bytes = 0;
    if (s->m->moe.shared_gate) {
        double x = x_bytes(s, (double)s->own_tokens, (double)s->m->hidden);

        mw_fstep_simple(out, s, MW_OP_ADD, "shared_scale", s->own_tokens,
                        s->m->hidden, 2 * x, x);
    }
    mark_beside(out, first);
}

/* With the module, of all this the router's input is kept. */
static void add_moe(const struct mw_sizes *s, struct mw_fsteps *out)
{
    size_t first = out->n, shared;

    add_router(s, out);
    if (s->work->layout->dispatcher == MW_DISPATCH_ALLGATHER) {
        add_gathered_experts(s, out);
    } else {
        add_experts(s, out);
    }
    shared = out->n;
    add_shared(s, out);
    mw_fsteps_tag(out, shared, MW_MODULE_SHARED_EXPERTS,
                  MW_MODULE_SHARED_EXPERTS);
    mw_fsteps_tag(out, first, MW_MODULE_MOE, 0);
    mw_fsteps_tag(out, first + 1, 0, MW_MODULE_MOE);
}

/* With the module, of all this fc1's input is kept. */
static void add_dense(const struct mw_sizes *s, struct mw_fsteps *out)
{
    static const struct mlp_names names = {"fc1", "act", "fc2"};
    size_t first = out->n, fc1;

    add_pair(s, &names, s->m->ffn, out)->dropped_with = MW_MODULE_LAYERNORM;
    mw_fsteps_tag(out, first, MW_MODULE_MLP, 0);
    fc1 = first;
    while (out->v[fc1].op.kind == MW_OP_COLL) {
        fc1++;
    }
    mw_fsteps_tag(out, fc1 + 1, 0, MW_MODULE_MLP);
}

void mw_steps_mlp(const struct mw_sizes *s, int layer, struct mw_fsteps *out)
{
    int64_t hidden = s->m->hidden;
    double x = x_bytes(s, (double)s->own_tokens, (double)hidden);
    double mask =
        s->work->has_dropout ? (double)s->own_tokens * (double)hidden : 0;

    mw_fstep_norm(out, s, "norm2", s->own_tokens, hidden);
    mw_fsteps_tag(out, out->n - 1, MW_MODULE_LAYERNORM, 0);
    if (mw_model_layer_is_moe(s->m, layer)) {
        add_moe(s, out);
    } else {
        add_dense(s, out);
    }
    if (s->m->sandwich_norm) {
        mw_fstep_norm(out, s, "post_norm2", s->own_tokens, hidden);
    }
    mw_fstep_simple(out, s, MW_OP_ADD, "add2", s->own_tokens, hidden,
                    3 * x + mask, mask);
}
