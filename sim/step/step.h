/*
 * One training step: the plan's schedule with every pass priced by sim/cost,
 * as a task graph with compute, TP, PP and DP streams; time, memory, MFU,
 * exposed breakdown, timeline.
 */
#ifndef MW_SIM_STEP_STEP_H
#define MW_SIM_STEP_STEP_H

#include "sim/cost/cost.h"
#include "sim/engine/timeline.h"
#include "sim/plan/plan.h"

/* Something that is on a rank at its fullest moment. */
struct mw_memory_part {
    const char *name; /* static: "weights"; an operator's: what it keeps */
    double bytes;
};
enum { MW_MEMORY_PARTS_MAX = 18 };

struct mw_stage_memory {
    double weight_bytes, grad_bytes, optimizer_bytes;
    double activation_bytes; /* high-water mark of micro-batches in flight */
    double temporary_bytes;  /* at the fullest moment, beside those */
    double buffer_bytes;     /* of the stack: workspaces, copies, gathered
                                embedding and head */
    double overhead_bytes;   /* context, communicators (constants table) */
    double total_bytes;      /* of all these */
    double reserved_bytes;   /* what the caching allocator holds for what is
                                not overhead, at the median */
    const char *moment;      /* static: which moment is the fullest: "loss",
                                the operator whose gradient it is, "step" */
    struct mw_memory_part parts[MW_MEMORY_PARTS_MAX]; /* add up to the total */
    int n_parts;
    double host_bytes; /* in the host's memory: offload */
    double nvme_bytes; /* and on the node's drives */
};

struct mw_step_result {
    double step_time_s;
    double tokens_per_s_per_gpu;
    double model_flops;    /* whole step, all GPUs: no recompute */
    double hardware_flops; /* with recompute */
    double model_tflops_per_gpu, hardware_tflops_per_gpu;
    double mfu; /* model FLOPs / (time x peak of the dtype) */
    double breakdown_s[MW_SPAN_KIND_COUNT]; /* exposed, sums to step_time_s */
    int n_stages;
    struct mw_stage_memory *memory; /* [pp] */
    double peak_bytes, capacity_bytes, usable_bytes;
    double allocated_bytes; /* tensors of the fullest rank: without context and
                               communicators */
    double reserved_bytes;  /* what the caching allocator holds for them in one
                               run of two */
    double reserved_p90_bytes; /* at most, in nine of ten */
    bool fits; /* and what is offloaded fits the host's memory, if known */
    double shared_wires_s; /* of step_time_s: traffic of different kinds that
                              met on NICs or links */
    double router_load; /* rows of the busiest rank of an expert-parallel group
                           over the mean, as priced; 1: even, or not known */
    double router_dropped; /* part of what is routed that finds no room at its
                              expert (capacity_factor) */
    uint64_t events;
    double wall_time_s;
    uint64_t rung_count[MW_RUNG_COUNT]; /* operators priced by each rung */
};

struct mw_step_opts {
    struct mw_timeline *timeline; /* filled when not NULL */
    struct mw_explain *explain;
    /* [pp] Exposed seconds of each stage's rank, each summing to step_time_s;
     * filled when not NULL. */
    double (*stages_s)[MW_SPAN_KIND_COUNT];
    /* [pp] What each stage's computing and issuing in its passes takes longer
     * (1: as predicted): the step of a replica some of whose stages are on
     * slow devices. NULL: all 1. */
    const double *stage_pace;
    bool memory_only;  /* no time simulation (planner's first filter) */
    bool no_breakdown; /* no spans and breakdown_s all zero (for search) */
    bool no_sharing;   /* every transfer has its NICs and links to itself, as
                          in the fast form */
};

/* Simulates; ranks of a pipeline stage are folded (identical). Release the
 * result with mw_step_result_release. */
enum mw_status mw_step_simulate(const struct mw_scenario *scenario,
                                const struct mw_plan *plan,
                                const struct mw_cost_ctx *ctx,
                                const struct mw_step_opts *opts,
                                struct mw_step_result *out, struct mw_err *err);
void mw_step_result_release(struct mw_step_result *r);

/* Has the machine what a step needs: a rate for the workload's dtype, memory
 * bandwidth, links and, over several nodes, a network? MW_EINPUT says what is
 * missing. Simulation and fast form begin with it. */
enum mw_status mw_step_check_rates(const struct mw_scenario *scenario,
                                   const struct mw_cost_ctx *ctx,
                                   struct mw_err *err);

/* Can this machine do what the layout asks for beyond that? Offload needs a
 * known way to the host's memory. MW_EINPUT says what is missing. Simulation,
 * fast form and bounds begin with it. */
enum mw_status mw_step_check_features(const struct mw_layout *layout,
                                      const struct mw_cost_ctx *ctx,
                                      struct mw_err *err);

/*
 * Fast form: closed form of the same step for the search (GPipe, 1F1B,
 * interleaved 1F1B; other schedules are replayed from their lists). Memory is
 * exact. layers NULL: even. Either output may be NULL and is then not worked
 * out. The layout must be legal (mw_layout_check); MW_EINPUT when the device
 * has no rate for the dtype.
 */
enum mw_status mw_step_estimate(const struct mw_scenario *scenario,
                                const struct mw_layout *layout,
                                const int *layers,
                                const struct mw_cost_ctx *ctx,
                                double *out_time_s, double *out_peak_bytes,
                                struct mw_err *err);

/* What of a rank's memory a plan may use: limits.memory_fraction of the
 * capacity where it is given (0.92 on a CPU), else capacity / (1 + error) /
 * reserve_factor: the p99 of our memory error under the stack, and what its
 * allocator holds for each byte of tensors. Context and communicators are part
 * of the peak. */
double mw_step_usable_bytes(const struct mw_scenario *scenario,
                            const struct mw_cost_ctx *ctx);

#endif
