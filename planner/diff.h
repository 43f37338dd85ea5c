/*
 * Why one plan is faster than another: two plans, each on its own scenario and
 * prices, compared term by term.
 *
 * The differences of exposed time by kind of work, bubble among them, sum to
 * the difference of the step times (mw_timeline_breakdown). Each is split
 * further into causes that sum to it:
 *
 *   compute         work (FLOPs of a rank), pace (seconds per FLOP)
 *   communication   bytes sent, seconds per byte, share that is exposed
 *   bubble          stages of unequal work, filling and draining
 *
 * A product a = x y z that becomes b is split by the logarithmic mean
 * (additive LMDI-I: Ang, "Decomposition analysis for policymaking in energy",
 * Energy Policy 32, 2004, section 3), the one weighting under which nothing is
 * left over and the order of the factors does not matter:
 *
 *   b - a = sum over factors of L(b, a) ln(x_b / x_a),
 *   L(b, a) = (b - a) / ln(b / a), L(a, a) = a
 *
 * A bubble is split by subtraction: the busiest stage's time over the mean is
 * imbalance, the step over the busiest stage is filling, draining and waiting.
 */
#ifndef MW_PLANNER_DIFF_H
#define MW_PLANNER_DIFF_H

#include "planner/why.h"
#include "sim/step/ledger.h"

/* One side, simulated. */
struct mw_diff_side {
    const struct mw_scenario *scenario; /* the caller's, as the next two */
    const struct mw_plan *plan;
    const struct mw_cost_ctx *ctx;
    struct mw_step_result result;
    struct mw_timeline timeline;
    struct mw_diff_stage {
        double busy_s, bubble_s; /* sum to the step time */
        double peak_bytes;
    } * stage;                /* [n_stages] by pipeline device */
    int n_stages;             /* of the plan */
    struct mw_ledger *ledger; /* [n_stages] */
};
/* Simulates. MW_EINPUT as mw_step_simulate; nothing to release then. */
enum mw_status mw_diff_side_init(const struct mw_scenario *scenario,
                                 const struct mw_plan *plan,
                                 const struct mw_cost_ctx *ctx,
                                 struct mw_diff_side *out, struct mw_err *err);
void mw_diff_side_release(struct mw_diff_side *side);

/* A part of a term's difference. */
struct mw_diff_cause {
    const char *name; /* "work", "exposed share" */
    double difference_s;
};
enum { MW_DIFF_CAUSES = 3 };
struct mw_diff_term {
    enum mw_span_kind kind;
    double a_s, b_s;
    int n_causes; /* 0: one side has nothing of it, or nothing to split by */
    struct mw_diff_cause cause[MW_DIFF_CAUSES];
};

/* What a rank sends in a step, mean over the stages. */
struct mw_diff_traffic {
    double count, wire_bytes, time_s;
};
struct mw_diff_coll {
    enum mw_dim dim;
    enum mw_coll_op op;
    struct mw_diff_traffic a, b;
};

/* A key with two values. */
struct mw_diff_setting {
    const char *key; /* "layout.tp", "cluster.nodes" */
    const char *a, *b;
};

struct mw_diff {
    struct mw_arena arena;
    double a_s, b_s; /* step times */
    /* Largest difference first; kinds that neither side has are left out. */
    struct mw_diff_term term[MW_SPAN_KIND_COUNT];
    int n_terms;
    struct mw_comparison account; /* `best` is a: the memory of both */
    struct mw_diff_coll coll[(MW_DIM_COUNT + 1) * MW_COLL_OP_COUNT];
    int n_colls; /* those that a side has, by dimension */
    /* What the two are told apart by: layout, layers, model, cluster,
     * workload, stack. */
    struct mw_diff_setting *setting;
    int n_settings;
};
/* O(stages + ledger rows). Release *out with mw_diff_release. */
void mw_diff(const struct mw_diff_side *a, const struct mw_diff_side *b,
             struct mw_diff *out);
void mw_diff_release(struct mw_diff *d);

#endif
