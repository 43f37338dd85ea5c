/*
 * What one unit keeps between its passes, and holds more at the worst moment of
 * its backward pass: the model's tables and liveness (sim/model), and the
 * stack's habits (sim/cost/stack_memory.c).
 */
#include "sim/step/step_int.h"

#include <math.h>

/* ---- weights by shape ------------------------------------------------------
 */
enum { SHAPES_MAX = 32 };

struct shape {
    double elements, cols;
    bool is_in[MW_UNIT_COUNT];
};

static void note_shape(struct shape *shapes, int *n, double elements,
                       double cols, enum mw_step_unit unit)
{
    int i = 0;

    while (i < *n && (fabs(shapes[i].elements - elements) > 0.5 ||
                      fabs(shapes[i].cols - cols) > 0.5)) {
        i++;
    }
    if (i == SHAPES_MAX) {
        return;
    }
    if (i == *n) {
        shapes[(*n)++] = (struct shape){.elements = elements, .cols = cols};
    }
    shapes[i].is_in[unit] = true;
}

/* Linear weights of layers and head; of all experts, one. */
void mw_step_count_shapes(struct mw_step_price *p,
                          const struct mw_params *params, int n_layers)
{
    struct shape shapes[SHAPES_MAX];
    int n = 0;

    for (size_t i = 0; i < params->n; i++) {
        const struct mw_param *param = &params->v[i];
        enum mw_step_unit unit = mw_step_unit_of(p, param, n_layers);
        double elements = (double)mw_param_shard_count(param, p->layout);

        if (param->is_norm_or_bias || param->rows <= 1 ||
            unit == MW_UNIT_EMBEDDING || unit == MW_UNIT_COUNT) {
            continue;
        }
        if (param->shard == MW_SHARD_EXPERT) {
            elements /= ceil((double)param->n_copies / p->layout->ep);
        }
        note_shape(shapes, &n, elements, (double)param->cols, unit);
    }
    for (int i = 0; i < n; i++) {
        for (int unit = 0; unit < MW_UNIT_COUNT; unit++) {
            p->size[unit].dummy_params +=
                shapes[i].is_in[unit] ? shapes[i].elements : 0;
        }
        if (shapes[i].is_in[MW_UNIT_DENSE] && shapes[i].is_in[MW_UNIT_MOE]) {
            p->size[MW_UNIT_MOE].twin_dummies += shapes[i].elements;
        }
    }
}

/* ---- layers ----------------------------------------------------------------
 */
/* Bytes of an activation's element, and of one element a token of the rank's
 * micro-batch in the TP group. */
static double element_bytes(const struct mw_step_price *p)
{
    return fmax(mw_dtype_bytes(p->work.dtype), 2);
}

static double row_bytes(const struct mw_step_price *p)
{
    return element_bytes(p) * (double)p->layout->micro_batch *
           (double)p->work.seq / p->layout->cp;
}

/* Parts of a tensor that is split over the rank's tokens under sp. */
static double own_part(const struct mw_step_price *p)
{
    return p->layout->sp ? 1.0 / p->layout->tp : 1;
}

/* Of one layer by the stack's habits, beside the model's table. */
static double habit_bytes(const struct mw_step_price *p, bool is_moe)
{
    const struct mw_model *m = &p->scenario->model;
    const struct mw_layout *l = p->layout;
    const struct mw_stack_memory *habit = &p->ctx->stack.memory;
    double row = row_bytes(p), x = row * m->hidden, own = own_part(p);
    double bytes = x * (1 - own) * habit->sp_kept;
    int modules = mw_layout_modules(l);

    if (l->tp > 1) {
        bytes += x * own * habit->tp_kept;
    }
    if (m->is_gated && !is_moe && (modules & MW_MODULE_MLP) == 0) {
        bytes += row * m->ffn / l->tp * habit->kept_gated;
    }
    if (m->norm == MW_NORM_RMS) {
        bytes += x * own * habit->kept_rms;
    }
    /* The table has it where heads are dealt out. */
    if (l->cp > 1 && l->cp_form != MW_CP_A2A && l->cp_inner <= 1) {
        bytes += row * m->n_heads * mw_model_v_dim(m) / l->tp * habit->cp_kept;
    }
    if (is_moe && (modules & MW_MODULE_MOE) == 0) { /* the table keeps 2 */
        bytes +=
            (habit->moe_kept - 2) * x * own * m->moe.top_k * p->router.held;
    }
    return bytes;
}

/*
 * torchtitan's selective recomputation by operator keeps the layer's input,
 * what attention returns, and the outputs of the products 1, 3, 5 and 7 of
 * query, key, value, projection, gate, up and down.
 */
static double kept_by_op(const struct mw_step_price *p)
{
    const struct mw_model *m = &p->scenario->model;
    const struct mw_layout *l = p->layout;
    double q = (double)m->n_heads * mw_model_qk_dim(m) / l->tp;
    double v = (double)m->n_kv_heads * mw_model_v_dim(m) / l->tp;
    double out = (double)m->n_heads * mw_model_v_dim(m) / l->tp;
    double logsumexp = 4 / element_bytes(p) * m->n_heads / l->tp;
    double ffn = (double)m->ffn / l->tp;
    double x = m->hidden * own_part(p);

    return row_bytes(p) * (x + q + v + out + logsumexp + ffn + x);
}

/* What the recipes of MaxText (remat_policy save_qkv_proj) and Paxml
 * (SAVE_QKV_OUT_PROJ) keep of a layer. */
static double kept_by_remat(const struct mw_step_price *p)
{
    const struct mw_model *m = &p->scenario->model;
    double qkv =
        (double)m->n_heads * mw_model_qk_dim(m) +
        (double)m->n_kv_heads * (mw_model_qk_dim(m) + mw_model_v_dim(m));
    double x = m->hidden * own_part(p);

    return row_bytes(p) * (x + qkv / p->layout->tp +
                           (p->ctx->stack.memory.remat_keeps > 1 ? x : 0));
}

/* Inputs of frozen products, which the table leaves out. */
static double frozen_inputs(const struct mw_step_price *p, int layer)
{
    struct mw_work learning = p->work;

    if (!(p->ctx->stack.memory.kept_frozen > 0) || p->work.lora_rank == 0 ||
        p->work.base_dtype != MW_BASE_NF4) {
        return 0;
    }
    learning.lora_rank = 0;
    learning.base_dtype = MW_BASE_SAME;
    return p->ctx->stack.memory.kept_frozen *
           fmax(mw_layer_activation_bytes(&learning, layer) -
                    mw_layer_activation_bytes(&p->work, layer),
                0);
}

/* With the rows that the busiest rank holds of an uneven router; of our
 * executor on a CPU the mean's are counted. */
static struct mw_work held_work(const struct mw_step_price *p)
{
    struct mw_work work = p->work;

    work.routed_load = p->ctx->gpu->is_cpu ? 0 : p->router.held;
    return work;
}

static void size_layer(struct mw_step_price *p, enum mw_step_unit unit)
{
    int layer = mw_step_unit_layer(p, unit);
    const struct mw_work work = held_work(p);
    const struct mw_stack_memory *habit = &p->ctx->stack.memory;
    struct mw_unit_size *size = &p->size[unit];
    bool is_moe = mw_unit_is_moe(unit);
    enum mw_recompute recompute = p->layout->recompute;
    double table = mw_layer_activation_bytes(&work, layer);
    double again = mw_layer_recompute_bytes(&work, layer);
    double base = recompute == MW_RECOMPUTE_FULL ? table + again : table;
    double more = habit_bytes(p, is_moe) + frozen_inputs(p, layer) +
                  (habit->kept_factor - 1) * base;
    double copies = is_moe && recompute != MW_RECOMPUTE_FULL
                        ? habit->moe_copies * row_bytes(p) * own_part(p) *
                              p->scenario->model.hidden *
                              p->scenario->model.moe.top_k * p->router.held
                        : 0;
    struct mw_layer_peak peak;

    mw_layer_backward_peak(&work, layer, &peak);
    size->activation_bytes = table;
    size->transient_bytes = habit->grads_factor * peak.bytes;
    size->transient_at = peak.at;
    if (recompute == MW_RECOMPUTE_FULL) {
        size->transient_bytes += again + more;
    } else if (recompute == MW_RECOMPUTE_SELECTIVE &&
               p->layout->recompute_modules == 0 && habit->selects_ops > 0 &&
               !is_moe) {
        size->activation_bytes = kept_by_op(p);
        size->transient_bytes += table + again + more - size->activation_bytes;
    } else if (habit->remat_keeps > 0) {
        size->activation_bytes = kept_by_remat(p);
        size->transient_bytes += table + again + more - size->activation_bytes;
    } else {
        size->activation_bytes += more;
    }
    if (copies > size->transient_bytes) {
        size->transient_bytes = copies;
        size->transient_at = "routed tokens";
    }
}

/* ---- embedding and head ----------------------------------------------------
 */
/* Bytes of a logit: from the loss to its gradient, and at the worst moment. In
 * parts nothing outlives its part, which has at least the logits themselves. */
struct logit_bytes {
    double kept, peak;
};

static struct logit_bytes logit_bytes_of(const struct mw_step_price *p)
{
    const struct mw_stack_memory *habit = &p->ctx->stack.memory;
    double el = element_bytes(p);
    struct logit_bytes b = {habit->logit_kept_bytes, habit->logit_peak_bytes};

    if (p->work.loss == MW_LOSS_EAGER) {
        b = (struct logit_bytes){4, el < 4 ? el + 4 : 4};
    } else if (p->work.loss == MW_LOSS_FUSED) {
        b = (struct logit_bytes){el, el};
    }
    return p->work.loss_chunks > 1 ? (struct logit_bytes){0, fmax(b.peak, el)}
                                   : b;
}

/* The layer of multi-token prediction, as it is recomputed or kept. */
static const struct mw_unit_size *mtp_layer(const struct mw_step_price *p)
{
    bool is_moe = p->layer[MW_UNIT_MOE] >= 0;

    if (mw_layout_keeps_layers(p->layout)) {
        return &p->size[is_moe ? MW_UNIT_MOE_KEPT : MW_UNIT_DENSE_KEPT];
    }
    return &p->size[is_moe ? MW_UNIT_MOE : MW_UNIT_DENSE];
}

/* The input of the norm before a module's head. */
static double mtp_norm_bytes(const struct mw_step_price *p)
{
    return p->scenario->model.final_norm ? mw_boundary_bytes(&p->work) : 0;
}

/* What the modules keep, but for their heads. */
static double mtp_kept(const struct mw_step_price *p)
{
    double one = mw_embedding_activation_bytes(&p->work) +
                 mw_mtp_activation_bytes(&p->work, false);

    if (!mw_mtp_is_again(p->layout)) {
        one += mtp_layer(p)->activation_bytes;
    }
    return p->scenario->model.n_mtp * one;
}

/* What their heads keep: not the inputs of norms that run again. */
static double mtp_heads_kept(const struct mw_step_price *p, double head_bytes)
{
    double again = mw_mtp_is_again(p->layout) ? mtp_norm_bytes(p) : 0;

    return p->scenario->model.n_mtp * (head_bytes - again);
}

struct mtp_moment {
    double bytes;
    const char *at;
};

/* The worst moment of a module's backward pass, with all that modules keep: its
 * layer's, for which a module that is recomputed is whole again, or that of the
 * look-up's gradient when they are gone. */
static struct mtp_moment mtp_moment_of(const struct mw_step_price *p)
{
    const struct mw_unit_size *layer = mtp_layer(p);
    struct mtp_moment most = {layer->transient_bytes, layer->transient_at};
    double look_up =
        p->ctx->stack.memory.embed_grad_bytes * mw_step_tied_params(p) -
        mtp_kept(p);

    if (mw_mtp_is_again(p->layout)) {
        most.bytes += layer->activation_bytes + mtp_norm_bytes(p) +
                      mw_mtp_activation_bytes(&p->work, true) -
                      mw_mtp_activation_bytes(&p->work, false);
    }
    return look_up > most.bytes ? (struct mtp_moment){look_up, "embedding"}
                                : most;
}

/* Two moments of the head: the loss itself, and the gradients of the product
 * before it. The table of the model keeps 4 bytes of a logit, none in parts. */
static void size_head(struct mw_step_price *p)
{
    struct mw_unit_size *size = &p->size[MW_UNIT_HEAD];
    const struct mw_stack_memory *habit = &p->ctx->stack.memory;
    const struct mw_model *m = &p->scenario->model;
    double x = row_bytes(p) * m->hidden;
    int n = p->work.loss_chunks > 1 ? p->work.loss_chunks : 1;
    double logits = row_bytes(p) / element_bytes(p) *
                    ceil((double)m->vocab / p->layout->tp) / n;
    const struct logit_bytes b = logit_bytes_of(p);
    double tp_bytes = p->layout->tp > 1 && p->work.loss == MW_LOSS_STACK
                          ? habit->logit_tp_bytes
                          : 0;

    size->activation_bytes = mw_head_activation_bytes(&p->work) +
                             (n > 1 ? 0 : (b.kept - 4) * logits);
    size->loss_bytes = (b.peak + tp_bytes - b.kept) * logits;
    size->transient_bytes =
        (fmin(element_bytes(p), b.peak) - b.kept) * logits + x +
        (own_part(p) < 1 && !(habit->sp_buffers > 0) ? x : 0) +
        habit->head_grad_bytes * mw_step_tied_params(p);
    size->transient_at = "head";
    size->activation_bytes += mtp_heads_kept(p, size->activation_bytes);
    if (m->n_mtp > 0 && p->layout->mtp_ahead == 0) {
        const struct mtp_moment moment = mtp_moment_of(p);

        size->module_bytes = moment.bytes - size->activation_bytes;
        size->module_at = moment.at;
        size->activation_bytes += mtp_kept(p);
    }
}

static void size_mtp(struct mw_step_price *p)
{
    struct mw_unit_size *size = &p->size[MW_UNIT_MTP];

    if (p->layout->mtp_ahead > 0) {
        const struct mtp_moment moment = mtp_moment_of(p);

        size->activation_bytes = mtp_kept(p);
        size->transient_bytes = moment.bytes;
        size->transient_at = moment.at;
    }
}

/* Autograd makes the embedding's gradient whole before it is added up; our
 * executor adds its rows in place. */
static void size_embedding(struct mw_step_price *p)
{
    struct mw_unit_size *size = &p->size[MW_UNIT_EMBEDDING];

    size->activation_bytes = mw_embedding_activation_bytes(&p->work);
    size->transient_bytes =
        p->ctx->stack.memory.embed_grad_bytes * size->dense_params;
    size->transient_at = "embedding";
}

/* Layers that are recomputed, if any are; a window changes no tensor. */
static const enum mw_step_unit layer_units[] = {
    MW_UNIT_DENSE, MW_UNIT_MOE, MW_UNIT_DENSE_LOCAL, MW_UNIT_MOE_LOCAL};
enum { N_LAYER_UNITS = sizeof layer_units / sizeof *layer_units };

/* Layers that are not recomputed: the same tensors, and no other shapes. */
static void size_kept_layers(struct mw_step_price *p)
{
    struct mw_layout layout = *p->layout;
    struct mw_step_price plain = *p;

    if (!mw_layout_keeps_layers(&layout)) {
        return;
    }
    layout.recompute = MW_RECOMPUTE_NONE;
    plain.layout = plain.work.layout = &layout;
    for (int i = 0; i < N_LAYER_UNITS; i++) {
        enum mw_step_unit unit = layer_units[i];
        struct mw_unit_size *kept = &p->size[mw_unit_of(
            mw_unit_is_moe(unit), mw_unit_is_local(unit), true)];

        if (mw_step_unit_layer(p, unit) >= 0) {
            size_layer(&plain, unit);
            *kept = plain.size[unit];
            kept->dummy_params = kept->twin_dummies = 0;
        }
    }
}

/* Whole bytes: sums over micro-batches are exact then, in any order. */
void mw_step_size_memory(struct mw_step_price *p)
{
    for (int i = 0; i < N_LAYER_UNITS; i++) {
        enum mw_step_unit unit = layer_units[i];

        if (mw_unit_is_local(unit) && mw_step_unit_layer(p, unit) >= 0) {
            p->size[unit] =
                p->size[mw_unit_of(mw_unit_is_moe(unit), false, false)];
        }
    }
    for (int i = 0; i < N_LAYER_UNITS; i++) {
        if (mw_step_unit_layer(p, layer_units[i]) >= 0) {
            size_layer(p, layer_units[i]);
        }
    }
    size_kept_layers(p);
    size_embedding(p);
    size_head(p);
    size_mtp(p);
    for (int unit = 0; unit < MW_UNIT_COUNT; unit++) {
        p->size[unit].activation_bytes = rint(p->size[unit].activation_bytes);
    }
}
