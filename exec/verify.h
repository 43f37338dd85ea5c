/*
 * Is what the ranks computed what one rank computes?
 *
 * Rank 0 runs the whole model alone as well (same code, tp = pp = dp = 1,
 * same initial weights) and broadcasts each step's gradients; every rank
 * compares its slices of them, and the loss. Gradients, not weights: AdamW
 * divides by the root of the second moment and so amplifies rounding of tiny
 * gradients.
 *
 *   only pp > 1       equal to the bit
 *   dp > 1, parts     |difference| <= 1e-5 of the tensor's maximum in the
 *                     first step, 2e-4 in later ones
 *   tp > 1, cp > 1    2e-4
 *   loss              2e-6 relative (pp alone: equal)
 *   bf16              but for pp alone, and dp without ep in the first step:
 *                     5e-2, with experts 2e-1; the loss 1e-3 (bfloat16 rounds
 *                     to 2^-9 = 2e-3 of a value)
 */
#ifndef MW_EXEC_VERIFY_H
#define MW_EXEC_VERIFY_H

#include "exec/exec_int.h"

enum { MW_VERIFY_STEPS = 3, MW_VERIFY_NAME_MAX = 64 };

/* The worst finding so far, the same on every rank after `compare`. */
struct mw_verdict {
    bool is_right;
    double max_error;      /* |difference| / tensor's maximum */
    double max_loss_error; /* relative */
    /* Of the first finding that is wrong, else of the largest error. */
    char tensor[MW_VERIFY_NAME_MAX];
    int step, rank;
    double error, tolerance;
};

/* The one-rank job; it runs on rank 0, the others know its shape. */
struct mw_reference {
    int *layers;
    struct mw_schedule schedule;
    struct mw_job job;
    bool has_job;
    struct mw_shards shards; /* of the whole model */
    float *g;                /* its gradients, on every rank */
    struct mw_comm *self;
    struct mw_dev *dev; /* from here: rank 0 only */
    struct mw_rec rec;
    struct mw_exec ex;
    bool is_open;
};

/* Makes the reference of a job; opens it on rank 0. Collective over world. */
enum mw_status mw_reference_open(struct mw_reference *ref,
                                 const struct mw_job *job,
                                 struct mw_comm *world,
                                 const struct mw_dev_ops *dev_ops,
                                 struct mw_err *err);
void mw_reference_close(struct mw_reference *ref);

/*
 * Collective: after the gradients of a step are reduced, before the update.
 * Runs the reference's step, compares, updates the reference's weights and
 * the verdict. `loss` is the step's.
 */
enum mw_status mw_verify_step(struct mw_exec *ex, struct mw_reference *ref,
                              double loss, struct mw_verdict *verdict);

#endif
