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

    if (p->layout->recompute_layers > 0) {
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

int mw_step_unit_kinds(const struct mw_layout *layout)
{
    return layout->mtp_ahead > 0          ? MW_UNIT_COUNT
           : layout->recompute_layers > 0 ? MW_UNIT_MTP
                                          : MW_UNIT_DENSE_KEPT;
}

bool mw_unit_is_layer(enum mw_step_unit unit)
{
    return unit != MW_UNIT_EMBEDDING && unit != MW_UNIT_HEAD &&
           unit != MW_UNIT_MTP;
}

bool mw_unit_is_moe(enum mw_step_unit unit)
{
    return unit == MW_UNIT_MOE || unit == MW_UNIT_MOE_KEPT;
}

bool mw_step_has_unit(const struct mw_step_price *p, enum mw_step_unit unit)
{
    bool is_kept = unit == MW_UNIT_DENSE_KEPT || unit == MW_UNIT_MOE_KEPT;

    if (unit == MW_UNIT_MTP) {
        return p->layout->mtp_ahead > 0;
    }
    return !mw_unit_is_layer(unit) ||
           (p->layer[mw_unit_is_moe(unit)] >= 0 &&
            (!is_kept || p->layout->recompute_layers > 0));
}

void mw_step_unit_ops(const struct mw_step_price *p, enum mw_step_unit unit,
                      enum mw_phase phase, struct mw_ops *out)
{
    static const enum mw_pass passes[MW_PHASE_COUNT] = {MW_PASS_F, MW_PASS_F,
                                                        MW_PASS_B, MW_PASS_W};

    switch (unit) {
    case MW_UNIT_DENSE:
    case MW_UNIT_MOE:
        if (phase == MW_PHASE_R) {
            mw_layer_recompute_ops(&p->work, p->layer[unit], out);
        } else {
            mw_layer_ops(&p->work, p->layer[unit], passes[phase], out);
        }
        break;
    case MW_UNIT_DENSE_KEPT:
    case MW_UNIT_MOE_KEPT:
        if (phase != MW_PHASE_R) {
            kept_layer_ops(p, p->layer[mw_unit_is_moe(unit)], passes[phase],
                           out);
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
