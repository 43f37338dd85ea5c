/*
 * Recomputation chosen for each layer of each stage of a priced layout: what
 * one setting for all stages leaves on the table. Early stages of 1F1B hold
 * more micro-batches than late ones, so they may have to recompute what late
 * ones need not.
 */
#ifndef MW_PLANNER_STAGE_OPTIONS_H
#define MW_PLANNER_STAGE_OPTIONS_H

#include "planner/planner.h"
#include "planner/stage_plan.h"
#include "planner/stage_split.h"

struct mw_stage_options {
    int n_stages;
    struct mw_split_stage *stage; /* [n_stages], in the arena */
    double limit_bytes;           /* usable memory of a rank */
    bool has_mtp; /* run 1 of a stage is multi-token prediction, on the last or
                     the one before it, which then leaves the last to the head
                   */
    struct mw_split_answer answer;
    double uniform_s; /* the same objective of the candidate's own layers */
    struct mw_stage_plan plan; /* what a layout can say of it, simulated */
    struct mw_arena arena;
};
/*
 * For a candidate with one chunk a device and alike layers (else MW_EUSAGE).
 * Prices, weights and activations are the simulator's; the objective is
 * the bound max_i (sum_{k<i} t_k + m t_i) of 1F1B without transfers. Of three
 * options in a stage a plan says two: out->plan (stage_plan.h).
 * lp_path (or NULL): the integer program for the slowest stage is written
 * there. Release with mw_stage_options_release, in any case.
 */
enum mw_status mw_stage_options_find(const struct mw_scenario *scenario,
                                     const struct mw_cost_ctx *ctx,
                                     const struct mw_candidate *candidate,
                                     const char *lp_path,
                                     struct mw_stage_options *out,
                                     struct mw_err *err);
void mw_stage_options_release(struct mw_stage_options *o);

#endif
