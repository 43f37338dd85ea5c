/*
 * Units of a step and the operators of their phases: layers of both kinds, as
 * they are recomputed and as they are kept, embedding, head, multi-token
 * prediction (sim/model has the operators themselves).
 */
#include "sim/step/step_int.h"

/* Operators of a layer where it is not recomputed. */
static void kept_layer_ops(const struct mw_step_price *p, int layer,
                           enum mw_pass pass, struct mw_ops *out)
{
    struct mw_layout layout = *p->layout;
    struct mw_work work = p->work;

    layout.recompute = MW_RECOMPUTE_NONE;
    work.layout = &layout;
    mw_layer_ops(&work, layer, pass, out);
}

/* The layer of a module. */
static void add_mtp_layer(const struct mw_step_price *p, enum mw_phase phase,
                          enum mw_pass pass, struct mw_ops *out)
{
    int layer = mw_step_mtp_layer(p);

    if (mw_layout_keeps_layers(p->layout)) {
        if (phase != MW_PHASE_R) {
            kept_layer_ops(p, layer, pass, out);
        }
    } else if (phase == MW_PHASE_R) {
        mw_layer_recompute_ops(&p->work, layer, out);
    } else {
        mw_layer_ops(&p->work, layer, pass, out);
    }
}

/* A multi-token-prediction module is a look-up, a projection, one more layer
 * and the shared head once more (DeepSeek-V3, arXiv:2412.19437, section 2.2).
 * All but the head run with it unless the layout puts them a stage ahead. */
static void add_mtp_ops(const struct mw_step_price *p, enum mw_phase phase,
                        enum mw_pass pass, bool modules, bool heads,
                        struct mw_ops *out)
{
    for (int i = 0; i < p->scenario->model.n_mtp; i++) {
        if (modules && phase == MW_PHASE_R) {
            mw_mtp_recompute_ops(&p->work, out);
        } else if (modules) {
            mw_embedding_ops(&p->work, pass, out);
            mw_mtp_ops(&p->work, pass, out);
        }
        if (modules) {
            add_mtp_layer(p, phase, pass, out);
        }
        if (heads && phase != MW_PHASE_R) {
            mw_head_ops(&p->work, pass, out);
        }
    }
}

int mw_step_unit_kinds(const struct mw_step_price *p)
{
    return p->local[0] >= 0 || p->local[1] >= 0 ? MW_UNIT_COUNT
           : p->layout->mtp_ahead > 0           ? MW_UNIT_MTP + 1
           : mw_layout_keeps_layers(p->layout)  ? MW_UNIT_MTP
                                                : MW_UNIT_DENSE_KEPT;
}

enum mw_step_unit mw_unit_of(bool is_moe, bool is_local, bool is_kept)
{
    static const enum mw_step_unit units[2][2][2] = {
        {{MW_UNIT_DENSE, MW_UNIT_MOE}, {MW_UNIT_DENSE_KEPT, MW_UNIT_MOE_KEPT}},
        {{MW_UNIT_DENSE_LOCAL, MW_UNIT_MOE_LOCAL},
         {MW_UNIT_DENSE_LOCAL_KEPT, MW_UNIT_MOE_LOCAL_KEPT}}};

    return units[is_local][is_kept][is_moe];
}

int mw_units_moe(const int n_units[MW_UNIT_COUNT])
{
    return n_units[MW_UNIT_MOE] + n_units[MW_UNIT_MOE_KEPT] +
           n_units[MW_UNIT_MOE_LOCAL] + n_units[MW_UNIT_MOE_LOCAL_KEPT];
}

int mw_units_dense(const int n_units[MW_UNIT_COUNT])
{
    return n_units[MW_UNIT_DENSE] + n_units[MW_UNIT_DENSE_KEPT] +
           n_units[MW_UNIT_DENSE_LOCAL] + n_units[MW_UNIT_DENSE_LOCAL_KEPT];
}

int mw_units_layers(const int n_units[MW_UNIT_COUNT])
{
    return mw_units_dense(n_units) + mw_units_moe(n_units);
}

int mw_step_unit_layer(const struct mw_step_price *p, enum mw_step_unit unit)
{
    bool is_moe = mw_unit_is_moe(unit);

    return !mw_unit_is_layer(unit)  ? -1
           : mw_unit_is_local(unit) ? p->local[is_moe]
                                    : p->layer[is_moe];
}

enum mw_step_unit mw_step_layer_unit(const struct mw_step_price *p, int layer,
                                     bool is_kept)
{
    const struct mw_model *m = &p->scenario->model;
    bool is_moe = mw_model_layer_is_moe(m, layer);

    return mw_unit_of(
        is_moe, p->local[is_moe] >= 0 && mw_model_layer_is_local(m, layer),
        is_kept);
}

bool mw_step_has_unit(const struct mw_step_price *p, enum mw_step_unit unit)
{
    if (unit == MW_UNIT_MTP) {
        return p->layout->mtp_ahead > 0;
    }
    return !mw_unit_is_layer(unit) ||
           (mw_step_unit_layer(p, unit) >= 0 &&
            (!mw_unit_is_kept(unit) || mw_layout_keeps_layers(p->layout)));
}

void mw_step_unit_ops(const struct mw_step_price *p, enum mw_step_unit unit,
                      enum mw_phase phase, struct mw_ops *out)
{
    static const enum mw_pass passes[MW_PHASE_COUNT] = {MW_PASS_F, MW_PASS_F,
                                                        MW_PASS_B, MW_PASS_W};

    switch (unit) {
    case MW_UNIT_DENSE:
    case MW_UNIT_MOE:
    case MW_UNIT_DENSE_LOCAL:
    case MW_UNIT_MOE_LOCAL:
        if (phase == MW_PHASE_R) {
            mw_layer_recompute_ops(&p->work, mw_step_unit_layer(p, unit), out);
        } else {
            mw_layer_ops(&p->work, mw_step_unit_layer(p, unit), passes[phase],
                         out);
        }
        break;
    case MW_UNIT_DENSE_KEPT:
    case MW_UNIT_MOE_KEPT:
    case MW_UNIT_DENSE_LOCAL_KEPT:
    case MW_UNIT_MOE_LOCAL_KEPT:
        if (phase != MW_PHASE_R) {
            kept_layer_ops(p, mw_step_unit_layer(p, unit), passes[phase], out);
        }
        break;
    case MW_UNIT_EMBEDDING:
        if (phase != MW_PHASE_R) {
            mw_embedding_ops(&p->work, passes[phase], out);
        }
        break;
    case MW_UNIT_HEAD:
        if (phase != MW_PHASE_R) {
            mw_head_ops(&p->work, passes[phase], out);
        }
        add_mtp_ops(p, phase, passes[phase], p->layout->mtp_ahead == 0, true,
                    out);
        break;
    case MW_UNIT_MTP:
        add_mtp_ops(p, phase, passes[phase], true, false, out);
        break;
    case MW_UNIT_COUNT:
        break;
    }
}

int mw_step_mtp_layer(const struct mw_step_price *p)
{
    return p->layer[MW_UNIT_MOE] >= 0 ? p->layer[MW_UNIT_MOE]
                                      : p->layer[MW_UNIT_DENSE];
}
