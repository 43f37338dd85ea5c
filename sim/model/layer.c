/*
 * The public face of the operator tables: a layer, the embedding and the head
 * of a stage, in each pass, with what they keep between forward and backward.
 *
 * Head (Korthikanti et al., arXiv:2205.05198, section 4.3): final norm, linear
 * of vocab / tp columns, vocabulary-parallel cross-entropy on fp32 logits with
 * three all-reduces of one value per token (Megatron-LM,
 * core/tensor_parallel/cross_entropy.py). Embedding: each rank looks up its
 * rows of the vocabulary, and the group adds. Left out: token ids, statistics
 * of norms (8 bytes per token), rotary tables, the auxiliary loss of routers
 * and multi-token prediction.
 */
#include "sim/model/ops_int.h"

int64_t mw_work_span(int64_t seq, int64_t doc_tokens)
{
    return doc_tokens > 0 && doc_tokens < seq ? doc_tokens : seq;
}

/* ---- layer -----------------------------------------------------------------
 */
static struct mw_fsteps layer_steps(const struct mw_sizes *s, int layer)
{
    struct mw_fsteps steps = {0};

    mw_steps_attention(s, layer, &steps);
    for (size_t i = 0; i < steps.n; i++) {
        steps.v[i].op.is_attention = true;
    }
    mw_steps_mlp(s, layer, &steps);
    if (s->work->lora_rank > 0) {
        mw_steps_freeze(s, true, &steps);
    }
    return steps;
}

void mw_layer_ops(const struct mw_work *work, int layer, enum mw_pass pass,
                  struct mw_ops *out)
{
    struct mw_sizes s = mw_sizes_of(work);
    struct mw_fsteps steps = layer_steps(&s, layer);

    mw_steps_emit(&s, &steps, pass, mw_again_of(work->layout), out);
    mw_array_release(&steps);
}

/* The steps that are repeated, out of a layer's. */
static void drop_not_repeated(struct mw_fsteps *steps, int again)
{
    size_t n = 0;

    for (size_t i = 0; i < steps->n; i++) {
        if (mw_fstep_is_again(&steps->v[i], again)) {
            steps->v[n] = steps->v[i];
            steps->v[n].op.model_flops = 0;
            steps->v[n].op.save_bytes = 0;
            steps->v[n].core_save_bytes = 0;
            n++;
        }
    }
    steps->n = n;
}

void mw_layer_recompute_ops(const struct mw_work *work, int layer,
                            struct mw_ops *out)
{
    struct mw_sizes s = mw_sizes_of(work);
    struct mw_fsteps steps = layer_steps(&s, layer);

    drop_not_repeated(&steps, mw_again_of(work->layout));
    mw_steps_emit(&s, &steps, MW_PASS_F, MW_AGAIN_NONE, out);
    mw_array_release(&steps);
}

static double saved_bytes(const struct mw_fsteps *steps, int again)
{
    double sum = 0;

    for (size_t i = 0; i < steps->n; i++) {
        sum += mw_step_saved_bytes(&steps->v[i], again, i == 0);
    }
    return sum;
}

static double layer_saved_bytes(const struct mw_work *work, int layer,
                                int again)
{
    struct mw_sizes s = mw_sizes_of(work);
    struct mw_fsteps steps = layer_steps(&s, layer);
    double sum = saved_bytes(&steps, again);

    mw_array_release(&steps);
    return sum;
}

double mw_layer_activation_bytes(const struct mw_work *work, int layer)
{
    return layer_saved_bytes(work, layer, mw_again_of(work->layout));
}

double mw_layer_recompute_bytes(const struct mw_work *work, int layer)
{
    return layer_saved_bytes(work, layer, MW_AGAIN_NONE) -
           mw_layer_activation_bytes(work, layer);
}

/* ---- embedding and head
 * ------------------------------------------------------ */
static struct mw_fsteps embedding_steps(const struct mw_sizes *s)
{
    struct mw_fsteps steps = {0};
    int64_t hidden = s->m->hidden;
    double own = (double)s->own_tokens * (double)hidden;
    double x = s->el * (double)s->tokens * (double)hidden;
    struct mw_fstep *coll;

    mw_fstep_simple(&steps, s, MW_OP_EMBEDDING, "embed", s->tokens, hidden,
                    2 * x, 0);
    coll = mw_fstep_coll(&steps, s, "embed", MW_DIM_TP,
                         s->is_sp ? MW_REDUCE_SCATTER : MW_ALL_REDUCE,
                         s->is_sp ? (int)MW_ALL_GATHER : NO_COLL, x);
    if (coll != NULL) {
        coll->coll_in_w = true;
    }
    if (s->m->position == MW_POS_LEARNED || s->work->has_dropout) {
        double mask = s->work->has_dropout ? own : 0;

        mw_fstep_simple(&steps, s, MW_OP_ADD, "embed_add", s->own_tokens,
                        hidden, 3 * s->el * own + mask, mask);
    }
    if (s->work->lora_rank > 0) {
        mw_steps_freeze(s, false, &steps);
    }
    return steps;
}

/* Where a multi-token-prediction module begins (DeepSeek-V3, arXiv:2412.19437,
 * section 2.2): hidden state and embedding of the next token, each normed, side
 * by side through a column-parallel product back to one hidden state, which
 * Megatron-LM gathers whole (core/transformer/multi_token_prediction.py). Where
 * the module is recomputed whole the inputs of the two norms are all that stays
 * of it: `whole` has the others' too. */
static struct mw_fsteps mtp_steps(const struct mw_sizes *s, bool whole)
{
    struct mw_fsteps steps = {0};
    int64_t hidden = s->m->hidden;
    double x = s->el * (double)s->tokens * (double)hidden;

    mw_fstep_norm(&steps, s, "mtp_embed_norm", s->own_tokens, hidden);
    mw_fstep_norm(&steps, s, "mtp_hidden_norm", s->own_tokens, hidden);
    size_t n_inputs = steps.n;

    mw_fstep_tp_enter(&steps, s, "mtp_proj", 2 * hidden);
    mw_fstep_sharded_input(mw_fstep_linear(&steps, s, "mtp_proj", s->tokens,
                                           hidden / s->tp, 2 * hidden),
                           s, 2 * hidden);
    mw_fstep_coll(&steps, s, "mtp_proj", MW_DIM_TP, MW_ALL_GATHER,
                  s->is_sp ? (int)MW_ALL_GATHER : NO_COLL, x);
    if (s->work->lora_rank > 0) {
        mw_steps_freeze(s, false, &steps);
    }
    for (size_t i = n_inputs; !whole && i < steps.n; i++) {
        steps.v[i].op.save_bytes = 0;
    }
    return steps;
}

/* Parts of the tokens that head and loss take in turn. */
static int loss_chunks(const struct mw_work *work)
{
    return work->loss_chunks > 1 ? work->loss_chunks : 1;
}

/*
 * One kernel that reads logits and writes their gradient's fp32 form, or, in
 * Megatron-LM of the time of dropout, one for each line of its code: a cast to
 * fp32, maximum, difference, exponential, sum, quotient; backward a product
 * and a cast.
 */
static void add_loss(struct mw_fsteps *steps, const struct mw_sizes *s,
                     int64_t tokens, int64_t vocab)
{
    double logits = (double)tokens * (double)vocab;
    bool is_eager = s->work->loss == MW_LOSS_EAGER ||
                    (s->work->loss == MW_LOSS_STACK && s->work->has_dropout);
    int n = loss_chunks(s->work);
    struct mw_fstep *step = mw_fstep_simple(
        steps, s, MW_OP_CROSS_ENTROPY, "loss", tokens, vocab,
        (s->el + (is_eager ? 9 * 4 : 4)) * logits, n > 1 ? 0 : 4 * logits);

    step->bytes_b = (s->el + (is_eager ? 3 * 4 : 4)) * logits;
    step->op.repeat = n;
}

static void add_loss_coll(struct mw_fsteps *steps, const struct mw_sizes *s,
                          const char *name, int64_t tokens)
{
    struct mw_fstep *step = mw_fstep_coll(
        steps, s, name, MW_DIM_TP, MW_ALL_REDUCE, NO_COLL, 4 * (double)tokens);

    if (step != NULL) {
        step->op.repeat = loss_chunks(s->work);
    }
}

/* In parts each part's logits are gone before the next, with their gradient
 * taken back through the product at once, which then stands where the part's
 * input was (Hsu et al., "Liger Kernel", arXiv:2410.10989, section 3.2). */

static struct mw_fsteps head_steps(const struct mw_sizes *s)
{
    struct mw_fsteps steps = {0};
    int64_t hidden = s->m->hidden, vocab = s->m->vocab / s->tp;
    int n = loss_chunks(s->work);
    int64_t tokens = s->tokens / n;

    if (s->m->final_norm) {
        mw_fstep_norm(&steps, s, "final_norm", s->own_tokens, hidden);
    }
    mw_fstep_tp_enter(&steps, s, "head", hidden);
    struct mw_fstep *head =
        mw_fstep_linear(&steps, s, "head", tokens, vocab, hidden);

    head->op.dtype = s->act;
    head->op.repeat = n;
    head->op.save_bytes *= n;
    mw_fstep_sharded_input(head, s, hidden);
    add_loss_coll(&steps, s, "loss_max", tokens);
    add_loss(&steps, s, tokens, vocab);
    add_loss_coll(&steps, s, "loss_target", tokens);
    add_loss_coll(&steps, s, "loss_sum", tokens);
    if (s->work->lora_rank > 0) {
        mw_steps_freeze(s, false, &steps);
    }
    return steps;
}

void mw_embedding_ops(const struct mw_work *work, enum mw_pass pass,
                      struct mw_ops *out)
{
    struct mw_sizes s = mw_sizes_of(work);
    struct mw_fsteps steps = embedding_steps(&s);

    mw_steps_emit(&s, &steps, pass, MW_AGAIN_NONE, out);
    mw_array_release(&steps);
}

bool mw_mtp_is_again(const struct mw_layout *layout)
{
    return layout->recompute == MW_RECOMPUTE_FULL &&
           !mw_layout_keeps_layers(layout);
}

void mw_mtp_ops(const struct mw_work *work, enum mw_pass pass,
                struct mw_ops *out)
{
    struct mw_sizes s = mw_sizes_of(work);
    struct mw_fsteps steps = mtp_steps(&s, !mw_mtp_is_again(work->layout));

    mw_steps_emit(&s, &steps, pass, MW_AGAIN_NONE, out);
    mw_array_release(&steps);
}

void mw_mtp_recompute_ops(const struct mw_work *work, struct mw_ops *out)
{
    struct mw_sizes s = mw_sizes_of(work);
    struct mw_fsteps steps = mtp_steps(&s, true);

    if (s.m->final_norm) {
        mw_fstep_norm(&steps, &s, "final_norm", s.own_tokens, s.m->hidden);
    }
    drop_not_repeated(&steps, mw_mtp_is_again(work->layout) ? MW_AGAIN_ALL : 0);
    mw_steps_emit(&s, &steps, MW_PASS_F, MW_AGAIN_NONE, out);
    mw_array_release(&steps);
}

double mw_mtp_activation_bytes(const struct mw_work *work, bool whole)
{
    struct mw_sizes s = mw_sizes_of(work);
    struct mw_fsteps steps =
        mtp_steps(&s, whole || !mw_mtp_is_again(work->layout));
    double sum = saved_bytes(&steps, MW_AGAIN_NONE);

    mw_array_release(&steps);
    return sum;
}

/* The head stays in bf16 under FP8 and FP4 (Megatron-LM's output layer is none
 * of Transformer Engine's; torchtitan leaves it out by name). */
static struct mw_sizes head_sizes(const struct mw_work *work)
{
    struct mw_sizes s = mw_sizes_of(work);

    s.gemm_el = s.el;
    return s;
}

void mw_head_ops(const struct mw_work *work, enum mw_pass pass,
                 struct mw_ops *out)
{
    struct mw_sizes s = head_sizes(work);
    struct mw_fsteps steps = head_steps(&s);

    mw_steps_emit(&s, &steps, pass, MW_AGAIN_NONE, out);
    mw_array_release(&steps);
}

double mw_embedding_activation_bytes(const struct mw_work *work)
{
    struct mw_sizes s = mw_sizes_of(work);
    struct mw_fsteps steps = embedding_steps(&s);
    double sum = saved_bytes(&steps, MW_AGAIN_NONE);

    mw_array_release(&steps);
    return sum;
}

double mw_head_activation_bytes(const struct mw_work *work)
{
    struct mw_sizes s = head_sizes(work);
    struct mw_fsteps steps = head_steps(&s);
    double sum = saved_bytes(&steps, MW_AGAIN_NONE);

    mw_array_release(&steps);
    return sum;
}

double mw_boundary_bytes(const struct mw_work *work)
{
    struct mw_sizes s = mw_sizes_of(work);

    return s.el * (double)s.own_tokens * (double)s.m->hidden;
}

/* ---- model FLOPs
 * ------------------------------------------------------------- */
double mw_model_matrix_weights(const struct mw_model *model)
{
    struct mw_params params = {0};
    double sum = model->tied ? (double)model->vocab * model->hidden : 0;

    mw_model_params(model, &params);
    for (size_t i = 0; i < params.n; i++) {
        const struct mw_param *p = &params.v[i];
        double each = (double)p->outer * (double)p->rows * (double)p->cols;

        if (p->is_mtp || p->is_norm_or_bias || p->layer < 0) {
            continue;
        }
        sum += p->shard == MW_SHARD_EXPERT ? each * model->moe.top_k : each;
    }
    mw_array_release(&params);
    return sum;
}

double mw_model_flops_per_token(const struct mw_model *model, int64_t seq,
                                bool is_causal_half)
{
    int64_t keys = mw_window_keys(seq, &model->window);
    int n_local =
        keys < seq ? mw_model_local_layers(model, model->n_layers) : 0;
    double each = 2 * (double)model->n_heads *
                  (mw_model_qk_dim(model) + mw_model_v_dim(model));
    double core = 2 * (double)seq * model->n_heads *
                  (mw_model_qk_dim(model) + mw_model_v_dim(model)) *
                  (double)(model->n_layers - n_local);
    double local =
        each * n_local *
        (is_causal_half ? mw_window_pairs(seq, &model->window) / (double)seq
                        : (double)keys);

    return 3 * (2 * mw_model_matrix_weights(model) +
                (is_causal_half ? 0.5 : 1) * core + local);
}
