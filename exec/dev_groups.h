/*
 * The products of all experts of a rank one expert after the other, by the
 * device's own products, which --slow knows: what a device does that has no
 * launch for all of them, or for which each is large enough alone. Shapes:
 * dev.h, mw_dev_expert_ops.
 */
#ifndef MW_EXEC_DEV_GROUPS_H
#define MW_EXEC_DEV_GROUPS_H

#include "exec/dev.h"

static inline void mw_dev_groups_fwd(struct mw_dev *dev,
                                     const struct mw_dev_groups *g, void *y,
                                     const void *x, const void *w)
{
    for (int i = 0; i < g->n_groups; i++) {
        struct mw_dev_group at = mw_dev_group_at(dev, g, i, x, y, w);
        if (at.rows > 0) {
            dev->ops->linear_fwd(dev, at.y, at.x, at.w, NULL, at.rows, g->n,
                                 g->k);
        }
    }
}

static inline void mw_dev_groups_bwd_input(struct mw_dev *dev,
                                           const struct mw_dev_groups *g,
                                           void *dx, const void *dy,
                                           const void *w)
{
    for (int i = 0; i < g->n_groups; i++) {
        struct mw_dev_group at = mw_dev_group_at(dev, g, i, dx, dy, w);
        if (at.rows > 0) {
            dev->ops->linear_bwd_input(dev, at.x, at.y, at.w, at.rows, g->n,
                                       g->k);
        }
    }
}

static inline void mw_dev_groups_bwd_weight(struct mw_dev *dev,
                                            const struct mw_dev_groups *g,
                                            float *dw, const void *dy,
                                            const void *x)
{
    for (int i = 0; i < g->n_groups; i++) {
        struct mw_dev_group at = mw_dev_group_at(dev, g, i, x, dy, NULL);
        if (at.rows > 0) {
            dev->ops->linear_bwd_weight(dev, dw + at.weight_elem, NULL, at.y,
                                        at.x, at.rows, g->n, g->k);
        }
    }
}

#endif
