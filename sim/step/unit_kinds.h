/*
 * Units of a step: what is priced once and counted by stage. A layer is of one
 * of two kinds, by its MLP. Where some layers of a kind attend to a window and
 * others to all tokens, those with a window are units of their own; where all
 * have a window that is what a layer of the kind is. With recompute_layers
 * or stage_recompute_layers those that are not recomputed are apart as well.
 */
#ifndef MW_SIM_STEP_UNIT_KINDS_H
#define MW_SIM_STEP_UNIT_KINDS_H

#include <stdbool.h>

enum mw_step_unit {
    MW_UNIT_DENSE,
    MW_UNIT_MOE,
    MW_UNIT_EMBEDDING,
    MW_UNIT_HEAD,
    MW_UNIT_DENSE_KEPT, /* the same layers where they are not recomputed, with
                         */
    MW_UNIT_MOE_KEPT,   /* recompute_layers alone */
    MW_UNIT_MTP, /* multi-token prediction, with mtp_ahead alone; else part of
                    the head */
    MW_UNIT_DENSE_LOCAL, /* layers with a window beside others without */
    MW_UNIT_MOE_LOCAL,
    MW_UNIT_DENSE_LOCAL_KEPT,
    MW_UNIT_MOE_LOCAL_KEPT,
    MW_UNIT_COUNT
};

/* Is it a layer of a kind (not embedding, head or multi-token prediction), is
 * it of experts, with a window beside others, not recomputed? */
static inline bool mw_unit_is_layer(enum mw_step_unit unit)
{
    return unit != MW_UNIT_EMBEDDING && unit != MW_UNIT_HEAD &&
           unit != MW_UNIT_MTP && unit != MW_UNIT_COUNT;
}
static inline bool mw_unit_is_moe(enum mw_step_unit unit)
{
    return unit == MW_UNIT_MOE || unit == MW_UNIT_MOE_KEPT ||
           unit == MW_UNIT_MOE_LOCAL || unit == MW_UNIT_MOE_LOCAL_KEPT;
}
static inline bool mw_unit_is_local(enum mw_step_unit unit)
{
    return unit >= MW_UNIT_DENSE_LOCAL;
}
static inline bool mw_unit_is_kept(enum mw_step_unit unit)
{
    return unit == MW_UNIT_DENSE_KEPT || unit == MW_UNIT_MOE_KEPT ||
           unit >= MW_UNIT_DENSE_LOCAL_KEPT;
}
/* The unit of layers of a kind. */
enum mw_step_unit mw_unit_of(bool is_moe, bool is_local, bool is_kept);
/* Layers of one kind, or of both, that n_units counts. */
int mw_units_moe(const int n_units[MW_UNIT_COUNT]);
int mw_units_dense(const int n_units[MW_UNIT_COUNT]);
int mw_units_layers(const int n_units[MW_UNIT_COUNT]);

#endif
