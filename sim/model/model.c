/*
 * A transformer's shape: enumerations, derived sizes and what makes a shape
 * possible. The limits on sizes (2^24 elements of a dimension, 8192 experts,
 * 10 000 layers, 10^15 parameters) are far beyond any model and keep products
 * inside 64 bits.
 */
#include "sim/model/model.h"

#include <string.h>

const struct mw_enum mw_norm_enums[] = {
    {"layer", MW_NORM_LAYER}, {"rms", MW_NORM_RMS}, {NULL, 0}};

const struct mw_enum mw_position_enums[] = {{"learned", MW_POS_LEARNED},
                                            {"rotary", MW_POS_ROTARY},
                                            {"alibi", MW_POS_ALIBI},
                                            {"none", MW_POS_NONE},
                                            {NULL, 0}};

const struct mw_enum mw_activation_enums[] = {{"gelu", MW_ACT_GELU},
                                              {"silu", MW_ACT_SILU},
                                              {"relu", MW_ACT_RELU},
                                              {NULL, 0}};

const struct mw_enum mw_coll_op_enums[] = {
    {"all_reduce", MW_ALL_REDUCE},
    {"all_gather", MW_ALL_GATHER},
    {"reduce_scatter", MW_REDUCE_SCATTER},
    {"all_to_all", MW_ALL_TO_ALL},
    {"broadcast", MW_BROADCAST},
    {"send_recv", MW_SEND_RECV},
    {"reduce", MW_REDUCE},
    {NULL, 0}};

int mw_model_moe_layers(const struct mw_model *model, int layer)
{
    int n = 0;

    for (int i = 0; i < layer; i++) {
        n += mw_model_layer_is_moe(model, i);
    }
    return n;
}

bool mw_model_layer_is_moe(const struct mw_model *model, int layer)
{
    int every = model->moe.every > 1 ? model->moe.every : 1;

    return model->moe.n_experts > 0 && layer >= model->moe.first_dense &&
           (layer + 1) % every == 0;
}

int mw_model_qk_dim(const struct mw_model *model)
{
    return model->mla.on ? model->mla.nope_dim + model->mla.rope_dim
                         : model->head_dim;
}

int mw_model_v_dim(const struct mw_model *model)
{
    return model->mla.on ? model->mla.v_dim : model->head_dim;
}

/* ---- names -----------------------------------------------------------------
 */
const char *mw_op_kind_name(enum mw_op_kind kind)
{
    static const char *const names[MW_OP_KIND_COUNT] = {
        [MW_OP_GEMM] = "gemm",
        [MW_OP_ATTENTION] = "attention",
        [MW_OP_NORM] = "norm",
        [MW_OP_ROTARY] = "rotary",
        [MW_OP_ACTIVATION] = "activation",
        [MW_OP_ADD] = "add",
        [MW_OP_SOFTMAX] = "softmax",
        [MW_OP_EMBEDDING] = "embedding",
        [MW_OP_CROSS_ENTROPY] = "cross_entropy",
        [MW_OP_ROUTER] = "router",
        [MW_OP_PERMUTE] = "permute",
        [MW_OP_OPTIMIZER] = "optimizer",
        [MW_OP_COLL] = "coll"};

    return (unsigned)kind < MW_OP_KIND_COUNT ? names[kind] : "?";
}

int mw_op_times(const struct mw_op *op)
{
    return op->repeat > 1 ? op->repeat : 1;
}

const char *mw_pass_name(enum mw_pass pass)
{
    static const char *const names[MW_PASS_COUNT] = {"F", "B", "W", "BW"};

    return (unsigned)pass < MW_PASS_COUNT ? names[pass] : "?";
}

const char *mw_coll_op_name(enum mw_coll_op op)
{
    return (unsigned)op < MW_COLL_OP_COUNT ? mw_coll_op_enums[op].name : "?";
}

const char *mw_dim_name(enum mw_dim dim)
{
    static const char *const names[MW_DIM_COUNT + 1] = {"tp", "cp", "ep", "etp",
                                                        "pp", "dp", "all"};

    return (unsigned)dim <= MW_DIM_COUNT ? names[dim] : "?";
}

/* ---- check -----------------------------------------------------------------
 */
enum { DIM_MAX = 1 << 24, LAYERS_MAX = 10000, EXPERTS_MAX = 8192 };
#define PARAMS_MAX 1e15

static enum mw_status check_sizes(const struct mw_model *m, struct mw_err *err)
{
    const struct {
        const char *key;
        int value, min, max;
    } sizes[] = {{"hidden", m->hidden, 1, DIM_MAX},
                 {"layers", m->n_layers, 1, LAYERS_MAX},
                 {"heads", m->n_heads, 1, DIM_MAX},
                 {"kv_heads", m->n_kv_heads, 1, DIM_MAX},
                 {"head_dim", m->head_dim, 1, DIM_MAX},
                 {"ffn", m->ffn, 1, DIM_MAX},
                 {"vocab", m->vocab, 1, DIM_MAX},
                 {"max_seq", m->max_seq, 0, DIM_MAX},
                 {"mtp", m->n_mtp, 0, 16},
                 {"moe.experts", m->moe.n_experts, 0, EXPERTS_MAX},
                 {"moe.shared", m->moe.n_shared, 0, EXPERTS_MAX},
                 {"moe.first_dense", m->moe.first_dense, 0, LAYERS_MAX}};

    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        if (sizes[i].value < sizes[i].min || sizes[i].value > sizes[i].max) {
            return mw_fail(err, MW_EINPUT, "%s is %d; it must be %d to %d",
                           sizes[i].key, sizes[i].value, sizes[i].min,
                           sizes[i].max);
        }
    }
    return MW_OK;
}

static enum mw_status check_moe(const struct mw_moe *moe, struct mw_err *err)
{
    if (moe->n_experts == 0) {
        return MW_OK;
    }
    if (moe->top_k < 1 || moe->top_k > moe->n_experts) {
        return mw_fail(err, MW_EINPUT,
                       "moe.top_k is %d; it must be 1 to the %d experts",
                       moe->top_k, moe->n_experts);
    }
    if (moe->ffn < 1 || moe->ffn > DIM_MAX) {
        return mw_fail(err, MW_EINPUT,
                       "moe.ffn is %d; an expert needs a positive size",
                       moe->ffn);
    }
    if (moe->shared_ffn < 0 || moe->shared_ffn > DIM_MAX ||
        (moe->n_shared > 0) != (moe->shared_ffn > 0)) {
        return mw_fail(err, MW_EINPUT,
                       "moe.shared is %d but moe.shared_ffn is %d; give both "
                       "or neither",
                       moe->n_shared, moe->shared_ffn);
    }
    return MW_OK;
}

static enum mw_status check_mla(const struct mw_mla *mla, struct mw_err *err)
{
    if (!mla->on) {
        return MW_OK;
    }
    if (mla->q_lora < 0 || mla->q_lora > DIM_MAX || mla->kv_lora < 1 ||
        mla->kv_lora > DIM_MAX || mla->rope_dim < 1 ||
        mla->rope_dim > DIM_MAX || mla->nope_dim < 1 ||
        mla->nope_dim > DIM_MAX || mla->v_dim < 1 || mla->v_dim > DIM_MAX) {
        return mw_fail(err, MW_EINPUT,
                       "mla sizes kv_lora %d, rope_dim %d, nope_dim %d, v_dim "
                       "%d must be positive and q_lora %d not negative",
                       mla->kv_lora, mla->rope_dim, mla->nope_dim, mla->v_dim,
                       mla->q_lora);
    }
    return MW_OK;
}

/* Keys that say which layers have a window need one, and leave it a layer. */
static enum mw_status check_window(const struct mw_model *m, struct mw_err *err)
{
    const struct mw_window *w = &m->window;

    if (w->tokens < 0 || w->tokens > DIM_MAX || w->global_every < 0 ||
        w->first_global < 0) {
        return mw_fail(err, MW_EINPUT,
                       "attention_window %d, global_every %d and first_global "
                       "%d must be 0 (none) or positive",
                       w->tokens, w->global_every, w->first_global);
    }
    if (w->tokens == 0) {
        return w->global_every == 0 && w->first_global == 0 &&
                       w->form == MW_WINDOW_SLIDING
                   ? MW_OK
                   : mw_fail(err, MW_EINPUT,
                             "global_every, first_global and window_form say "
                             "which layers have a window and of which form; "
                             "give attention_window, its tokens");
    }
    if (mw_model_local_layers(m, m->n_layers) == 0) {
        return mw_fail(err, MW_EINPUT,
                       "global_every %d and first_global %d leave none of the "
                       "%d layers a window of %d tokens; global_every is 2 or "
                       "more, or 0 where all layers have it",
                       w->global_every, w->first_global, m->n_layers,
                       w->tokens);
    }
    return MW_OK;
}

/* Widest row of the attention projections, and the sum of all tensors: in
 * that order, so that no tensor's own product overflows. */
static enum mw_status check_totals(const struct mw_model *m, struct mw_err *err)
{
    int64_t width =
        (int64_t)m->n_heads *
        (m->mla.on ? (int64_t)m->mla.rope_dim + m->mla.nope_dim + m->mla.v_dim
                   : m->head_dim);
    struct mw_params params = {0};
    double total = 0;

    if (width > DIM_MAX) {
        return mw_fail(err, MW_EINPUT,
                       "%d heads of %d elements are more than %d", m->n_heads,
                       mw_model_qk_dim(m), DIM_MAX);
    }
    mw_model_params(m, &params);
    for (size_t i = 0; i < params.n; i++) {
        total += (double)mw_param_count(&params.v[i]);
    }
    mw_array_release(&params);
    if (total > PARAMS_MAX) {
        return mw_fail(err, MW_EINPUT,
                       "the model has %.3g parameters; at most %.0e are read",
                       total, PARAMS_MAX);
    }
    return MW_OK;
}

enum mw_status mw_model_check(const struct mw_model *model, struct mw_err *err)
{
    enum mw_status st = check_sizes(model, err);

    if (st != MW_OK) {
        return st;
    }
    if (model->n_heads % model->n_kv_heads != 0) {
        return mw_fail(err, MW_EINPUT, "kv_heads %d does not divide heads %d",
                       model->n_kv_heads, model->n_heads);
    }
    if (model->position == MW_POS_LEARNED && model->max_seq < 1) {
        return mw_fail(err, MW_EINPUT,
                       "learned positions need max_seq, the length of their "
                       "table");
    }
    st = check_moe(&model->moe, err);
    st = st != MW_OK ? st : check_mla(&model->mla, err);
    st = st != MW_OK ? st : check_window(model, err);
    return st != MW_OK ? st : check_totals(model, err);
}
