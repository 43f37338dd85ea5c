/*
 * Choosing a layout: enumerate, drop what breaks a rule or does not fit,
 * bound, simulate, rank; and say why the rest fell out.
 *
 *   space.c   every combination of the free dimensions, each either legal or
 *             dropped for a named rule (sim/model, rules.c)
 *   seed      plain 1F1B layouts, simulated: the times to beat
 *   weigh.c   layers per stage, a lower bound of time (sim/step/fast.h) against
 *             the times to beat, memory of the fullest rank against the limit
 *   race.c    what survives is simulated (event form), least bound first,
 *             until all that is left is bounded away: the best are proved
 *
 * Results do not depend on the number of threads: the space is weighed against
 * one fixed set of times, candidates are simulated in rounds of fixed size and
 * ordered by (time, id).
 */
#ifndef MW_PLANNER_PLANNER_H
#define MW_PLANNER_PLANNER_H

#include "base/err.h"
#include "base/mem.h"
#include "sim/plan/plan.h"
#include "sim/step/step.h"

#include <signal.h>
#include <stdbool.h>
#include <stdint.h>

enum { MW_PLAN_TEXT_MAX = 256, MW_REASONS_MAX = 48 };

/* What the plans are ordered by. The cluster is given, so tokens per second and
 * GPU, cost and energy per token order plans as step time does. */
enum mw_rank_by { MW_RANK_TIME, MW_RANK_MEMORY, MW_RANK_PARETO };

/* Dimensions that are enumerated only when asked for, here or by a list of the
 * scenario's limits: otherwise key-value gathers over cp, ZeRO over all
 * replicas, resharding, nothing offloaded or compressed, all layers recomputed
 * or none, selectively the attention core, the workload's types. */
enum mw_free_dim {
    MW_FREE_CP_FORM = 1,
    MW_FREE_DP_SHARD = 2,
    MW_FREE_RESHARD = 4,
    MW_FREE_OFFLOAD = 8,
    MW_FREE_RECOMPUTE_LAYERS = 16,
    MW_FREE_CP_INNER = 32,
    MW_FREE_RECOMPUTE_MODULES = 64,
    MW_FREE_ALL = 127 + 1024 + 2048 + 4096 + 8192 + 16384 + 32768 + 65536 +
                  131072, /* of those that leave what is learned alone */
    MW_FREE_DTYPE = 128,
    MW_FREE_GRAD_DTYPE = 256,
    MW_FREE_COMPRESSION = 512,
    MW_FREE_OVERLAP = 1024,
    MW_FREE_BUCKET = 2048,
    MW_FREE_FSDP_UNIT = 4096,
    MW_FREE_FSDP_PREFETCH = 8192,
    MW_FREE_DISPATCHER = 16384,
    MW_FREE_SHARED_OVERLAP = 32768,
    MW_FREE_MTP = 65536,
    MW_FREE_VPP_GROUP = 131072,
    MW_FREE_STATE_DTYPE = 262144 /* sets of types of states; not of `all` */
};

/* What the caller fixes (0, NULL or -1: free) and how long it may take. */
struct mw_search_opts {
    int tp, cp, pp, dp, ep, etp, micro_batch;
    int zero;             /* -1: 0 to 3 on a GPU */
    int sp;               /* -1: with tp > 1 where the device is a GPU */
    int recompute;        /* enum mw_recompute, -1: all three */
    const char *schedule; /* NULL: all kinds that train */
    const char *order;    /* NULL: Megatron's two */
    char order_text[16];  /* where --fix order= keeps it */
    int vpp;              /* 0: all that give another chunk size */
    /* -1: not fixed, and enumerated where `free` has the dimension. */
    int cp_form, dp_shard, reshard, recompute_layers, recompute_modules;
    int overlap_off;                      /* -1: not fixed */
    int bucket_size;                      /* -1: not fixed */
    int fsdp_unit, fsdp_prefetch;         /* -1: not fixed */
    int mtp_ahead;                        /* -1: not fixed */
    int vpp_group;                        /* -1: not fixed */
    int cuda_graph;                       /* -1: not fixed */
    int dispatcher;                       /* -1: not fixed */
    int overlap_shared_experts;           /* 0, 1, -1: not fixed */
    int cp_inner;                         /* 0: not fixed */
    int grad_compression;                 /* -1: not fixed */
    int dtype, grad_dtype;                /* as in mw_layout, -1: not fixed */
    int main_params, exp_avg, exp_avg_sq; /* the same */
    int offload_nvme;                     /* -1: none */
    double offload_optimizer, offload_weights, offload_activations;
    unsigned free; /* of enum mw_free_dim */
    bool is_full;  /* the whole space, not the default one (space.c) */
    enum mw_rank_by rank_by;
    double max_step_s, max_peak_bytes; /* plans beyond are none; 0: any */
    int top;                           /* that many are proved best; 0: 10 */
    int jobs;                          /* threads; 0: one per core */
    int shard,
        n_shards; /* every n-th part of the space (search_shards.h); 0: all */
    double time_limit_s; /* 0: none */
    bool is_quiet;       /* no progress */
    /* Becomes non-zero when the search should end with what it has. */
    const volatile sig_atomic_t *stop;
};
void mw_search_opts_default(struct mw_search_opts *opts);
/* Sets one option from --fix KEY=VALUE; MW_EUSAGE names the keys allowed. */
enum mw_status mw_search_fix(struct mw_search_opts *opts, const char *key,
                             const char *value, struct mw_err *err);

/* "cp_form,dp_shard" or "all" to opts->free; MW_EUSAGE names the words. */
enum mw_status mw_search_free(struct mw_search_opts *opts, const char *text,
                              struct mw_err *err);

struct mw_candidate {
    struct mw_layout layout;
    int *layers;        /* [pp * vpp], in the result's arena */
    int64_t *nodes;     /* what layout.nodes points to, in the arena as well;
                           NULL where leaves are even */
    double bound_s;     /* no simulation of it can be faster (to 1e-9) */
    double step_time_s; /* event form, when is_simulated */
    double peak_bytes;  /* event form; before that a bound */
    double host_bytes;  /* of a node's memory, what is offloaded; event form */
    double mfu;
    /* Where leaves are uneven: the step with the nodes in the allocation's
     * order, and without leaves; is layout.nodes proved best? */
    double allocated_s, bare_s;
    bool is_order_proved;
    bool is_simulated;
    bool is_seed; /* within the search */
    uint64_t id;  /* place in the enumeration: breaks ties */
};

/* Why candidates fell out: one entry per rule, with the nearest miss. */
struct mw_reason {
    const char *rule; /* stable id: "tp_heads", "memory", "bound", ... */
    uint64_t count;
    double miss; /* how far the nearest was: needed / allowed; 0 unknown */
    char nearest[MW_PLAN_TEXT_MAX]; /* one sentence about it */
};

struct mw_search_result {
    struct mw_arena arena;
    uint64_t enumerated; /* layouts looked at: evaluated + broken rules */
    uint64_t evaluated;  /* legal, and weighed by bounds of time and memory */
    uint64_t simulated;  /* event form, and fit */
    struct mw_reason reasons[MW_REASONS_MAX];
    int n_reasons;
    /* GLPK found no better layers per stage for the first plan. */
    bool layers_proved;
    bool is_complete;    /* nothing is left to weigh or to simulate */
    bool proved_optimal; /* best of all enumerated, under the event form */
    int n_proved;        /* so many of the first plans are; Pareto: all */
    double gap;          /* not proved: best / least bound left - 1; else 0 */
    double wall_time_s;
    struct mw_candidate *plans; /* simulated ones, best first; Pareto: only the
                                   front, by time */
    size_t n_plans;
};

/* Simulates a plan by the event form and sets what comes of it in c: step time,
 * fullest rank, MFU, bytes that a node's ranks offload (all as much as the
 * fullest). c is left alone where it fails, as mw_step_simulate does. */
enum mw_status mw_candidate_simulate(const struct mw_scenario *scenario,
                                     const struct mw_plan *plan,
                                     const struct mw_cost_ctx *ctx,
                                     struct mw_candidate *c,
                                     struct mw_err *err);

/*
 * Searches. MW_ENO (err gets the counts and the nearest miss) when nothing is
 * feasible; *out is filled all the same and must be released in either case.
 */
enum mw_status mw_search(const struct mw_scenario *scenario,
                         const struct mw_cost_ctx *ctx,
                         const struct mw_search_opts *opts,
                         struct mw_search_result *out, struct mw_err *err);
void mw_search_result_release(struct mw_search_result *r);

/* The plan of a candidate with its predicted figures. Release with
 * mw_plan_release. */
enum mw_status mw_candidate_plan(const struct mw_scenario *scenario,
                                 const struct mw_candidate *candidate,
                                 struct mw_plan *out, struct mw_err *err);

/* "tp 8, pp 4, dp 2, micro-batch 1, ...": for messages; buf is returned. */
const char *mw_layout_text(const struct mw_layout *layout,
                           char buf[MW_PLAN_TEXT_MAX]);
/* Its part about what is rarely other than its default: "cp_form ring,
 * dp_shard 8"; empty where nothing is. */
const char *mw_layout_rare_text(const struct mw_layout *layout,
                                char buf[MW_PLAN_TEXT_MAX]);

/* ---- layers per stage -----------------------------------------------------
 */
/*
 * n_k >= 1 layers on stage k, sum n_k = n_layers,
 *   minimise max_k (n_k layer_s + extra_s[k])
 *   subject to n_k layer_bytes[k] + fixed_bytes[k] <= limit_bytes
 * (extra: embedding on the first, head and loss on the last stage). For
 * identical layers the 1F1B step is sum t + (m - 1) max t, and the sum is
 * constant, so the min-max partition is the fastest. Ties go to the partition
 * whose larger stages come first.
 *
 * mw_partition_solve is the integer program (GLPK; milliseconds),
 * mw_partition_layers the exact answer without one: the least of the values
 * n layer_s + extra_s[k] under which the stages have room for all layers
 * (microseconds). They check each other. Layers that differ are for the latter
 * alone (partition_unlike.c): consecutive ones to a stage, by a program over
 * cuts. MW_ENO when memory allows none; MW_EBACKEND when GLPK fails.
 */
struct mw_partition_problem {
    int n_stages, n_layers;
    double layer_s;
    const double *layers_s;    /* [n_layers] where layers differ (those with a
                                  window), in order; NULL: layer_s each */
    const double *extra_s;     /* [n_stages] */
    const double *layer_bytes; /* [n_stages], NULL: no memory rows */
    const double *fixed_bytes; /* [n_stages] */
    double limit_bytes;
    bool is_head_alone; /* n_k = 0 on the last stage, >= 0 on the one before it
                           (multi-token prediction lies there) */
};
enum mw_status mw_partition_solve(const struct mw_partition_problem *problem,
                                  int *out_layers, struct mw_err *err);
enum mw_status mw_partition_layers(const struct mw_partition_problem *problem,
                                   int *out_layers, struct mw_err *err);
/* Time of the slowest stage that has so many layers. */
double mw_partition_slowest(const struct mw_partition_problem *problem,
                            const int *layers);
/* Layers that differ: at least and at most so many on each stage. False: no
 * such partition. */
bool mw_partition_unlike(const struct mw_partition_problem *problem,
                         const int *least, const int *cap, int *out_layers);

#endif
