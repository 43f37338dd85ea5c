/*
 * The communication ledger of a step: what a rank of one pipeline stage sends,
 * by dimension and collective. Counts and bytes are those of the operators that
 * the simulation prices, so the two cannot differ.
 */
#ifndef MW_SIM_STEP_LEDGER_H
#define MW_SIM_STEP_LEDGER_H

#include "sim/step/step.h"

struct mw_ledger_row {
    enum mw_dim dim; /* MW_DIM_COUNT: no dimension's, but of all ranks */
    enum mw_coll_op op;
    double count; /* per step */
    double
        message_bytes; /* of all of them: nccl-tests size, the whole buffer */
    double wire_bytes; /* that the rank sends: 2 (n-1)/n of a message for
                          all-reduce, (n-1)/n for the others, all of a
                          transfer */
    double time_s;     /* alone on the wire */
    double exposed_s;  /* of the step: mw_ledger_expose; else 0 */
    int n_ranks;       /* of the group; 2 for transfers */
    int n_nodes;       /* that the group spans */
    bool crosses_nodes;
};
struct mw_ledger {
    struct mw_ledger_row *v;
    size_t n, cap;
};
/*
 * Appends the rows of a rank of pipeline device `device`, by dimension and
 * collective in the order of their enums, one for each size of group that joins
 * them (gradients of experts and of the dense part, gathers over all ranks and
 * inside a node), the largest first. Release with mw_array_release.
 */
void mw_step_ledger(const struct mw_scenario *scenario,
                    const struct mw_plan *plan, const struct mw_cost_ctx *ctx,
                    int device, struct mw_ledger *out);

/* All rows of a dimension and collective in one, which has the ranks and nodes
 * of the first; all zero where there is none. */
struct mw_ledger_row mw_ledger_sum(const struct mw_ledger *ledger,
                                   enum mw_dim dim, enum mw_coll_op op);
/*
 * What of a stage's rows the simulated step shows: the exposed seconds of a
 * kind of work (breakdown_s of that stage's rank) shared out over the rows of
 * that kind by their time alone. Experts' tensor parallelism is of kind ep;
 * transfers are waited for by the receiver.
 */
void mw_ledger_expose(struct mw_ledger *ledger,
                      const double breakdown_s[MW_SPAN_KIND_COUNT]);

/* What a step gains when one resource is STEP better and all else stays. */
enum mw_resource {
    MW_RESOURCE_COMPUTE,  /* sustained rate of products */
    MW_RESOURCE_MEMORY,   /* device memory bandwidth */
    MW_RESOURCE_SCALE_UP, /* bandwidth inside a node or rack */
    MW_RESOURCE_NETWORK,  /* bandwidth of the NICs */
    MW_RESOURCE_LATENCY,  /* of every hop and message */
    MW_RESOURCE_HOST,     /* issuing work, launches, once-per-step costs */
    MW_RESOURCE_COUNT
};
const char *mw_resource_name(enum mw_resource resource);
/*
 * share[r]: the part of the step time that goes with resource r,
 * -d ln(T) / d ln(resource), from a simulation with r one per cent better
 * (latency and host: one per cent less). Shares of resources that are never the
 * bound are 0; bubbles follow the work that makes them.
 */
enum mw_status mw_step_sensitivity(const struct mw_scenario *scenario,
                                   const struct mw_plan *plan,
                                   const struct mw_cost_ctx *ctx,
                                   double share[MW_RESOURCE_COUNT],
                                   struct mw_err *err);

#endif
