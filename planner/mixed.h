/*
 * A pipeline over nodes of different systems (A100 and H100 nodes, say): which
 * system, tp, ep, recomputation and how many layers for each stage. Under a
 * framework's rules tp, ep, recomputation and offload of the optimizer are the
 * same on all stages.
 *
 * For every number of stages, replicas and micro-batch size the choice is a
 * problem of columns (columns.h), priced by the simulator for each system:
 *
 *   (m - 1) T + sum t + 2 c (changes of system) + W
 *
 * which is 1F1B without transfers inside a system; W is the longest of what
 * updates in the host's memory take longer than on the device, all of it after
 * the last pass. Where layers are not alike a
 * column also knows where its layers begin (layer_places.h). All stages have
 * the same dp and micro-batch, and at most limits.node_kinds systems are used.
 * Memory is that of 1F1B on each stage. Left out: gradient reduction and
 * optimizer after the last pass, so it ranks splits and is not a step time;
 * ZeRO-1 shards the states.
 */
#ifndef MW_PLANNER_MIXED_H
#define MW_PLANNER_MIXED_H

#include "planner/columns.h"
#include "planner/planner.h"

enum { MW_MIXED_KINDS_MAX = 4, MW_MIXED_STAGES_MAX = 64 };

struct mw_mixed_system {
    char name[64];
    int n_nodes;
};
struct mw_mixed_stage {
    int kind; /* index of the system */
    int tp, ep, n_layers;
    enum mw_recompute recompute;
    double offload_optimizer; /* part of its states in the host's memory */
    double time_s;            /* one micro-batch, all passes */
    double after_s; /* what the host's update adds to the device's, a step */
};
struct mw_mixed {
    int pp, dp, micro_batch, n_microbatches;
    struct mw_mixed_stage stage[MW_MIXED_STAGES_MAX];
    struct mw_column_answer answer; /* of this pp, dp and micro-batch */
    bool is_proved;                 /* over all that were tried */
    int n_problems, n_columns;      /* tried; columns in all of them */
    double solve_s;
};
/*
 * The best split of the scenario's model over n_systems systems (its own
 * cluster is not used), priced with a training stack's habits
 * (mw_cost_ctx_choose_stack). MW_ENO when nothing fits; MW_EINPUT for an
 * unknown system; MW_EUSAGE for what opts fixes beside pp, dp, tp, ep, sp,
 * zero, micro_batch, recompute and offload_optimizer. Numbers are powers of two
 * unless fixed or listed by the limits; the optimizer's states are offloaded
 * where these or the full space ask for it, and a node's memory has room for
 * them. time_limit_s is for each problem (0: 2 s; what is not decided by then
 * is not proved). lp_path (or NULL) gets the program of the best split,
 * mw_columns_write.
 */
enum mw_status mw_mixed_find(const struct mw_scenario *scenario,
                             const struct mw_hwdb *db, const char *stack,
                             const struct mw_mixed_system *systems,
                             int n_systems, const struct mw_search_opts *opts,
                             const char *lp_path, struct mw_mixed *out,
                             struct mw_err *err);

#endif
