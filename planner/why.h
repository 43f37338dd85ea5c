/*
 * Explaining a choice: two plans compared term by term, and what would make an
 * impossible wish possible.
 */
#ifndef MW_PLANNER_WHY_H
#define MW_PLANNER_WHY_H

#include "planner/planner.h"

/* One line of an account: seconds, or bytes. */
struct mw_term {
    const char *name;
    double best, other;
};
enum { MW_MEMORY_TERMS = 6 };
struct mw_comparison {
    /* Exposed time by kind of work; the terms sum to the step times. Kinds
     * that neither has are left out; largest difference first. */
    struct mw_term time[MW_SPAN_KIND_COUNT];
    int n_time;
    /* The fullest rank of each; sums to the peaks. */
    struct mw_term memory[MW_MEMORY_TERMS];
    double best_s, other_s, best_bytes, other_bytes;
};
/* Of two simulations with their breakdown. */
void mw_results_compare(const struct mw_step_result *best,
                        const struct mw_step_result *other,
                        struct mw_comparison *out);
/* A plan and where it runs. */
struct mw_side {
    const struct mw_scenario *scenario;
    const struct mw_cost_ctx *ctx;
    const struct mw_candidate *plan;
};
/* Simulates both with their breakdown. */
enum mw_status mw_sides_compare(const struct mw_side *best,
                                const struct mw_side *other,
                                struct mw_comparison *out, struct mw_err *err);
/* The same of two plans of one scenario. */
enum mw_status mw_plans_compare(const struct mw_scenario *scenario,
                                const struct mw_cost_ctx *ctx,
                                const struct mw_candidate *best,
                                const struct mw_candidate *other,
                                struct mw_comparison *out, struct mw_err *err);

/* One change under which there is a plan, and the best plan then. */
struct mw_change {
    char what[MW_PLAN_TEXT_MAX]; /* "pp=8 instead of 2", "16 nodes, not 8" */
    double step_time_s, peak_bytes;
    char layout[MW_PLAN_TEXT_MAX];
};
enum { MW_CHANGES_MAX = 24 };
struct mw_changes {
    struct mw_change v[MW_CHANGES_MAX];
    int n;
    uint64_t n_tried;
    bool is_cut_short; /* an interrupt left the others untried */
    bool is_joint;     /* none alone; the only one is of several together */
};
/*
 * Asked after a search that found nothing (changes.c): each pinned value freed,
 * and of pinned sizes the nearest below and above that has a plan; each limit
 * dropped, a margin of one's own back to the default, the framework's rules
 * left aside, offloading freed, a batch that divides, one or two nodes standing
 * by, and the fewest more nodes (up to 16 more; beyond of a list). Each is a
 * whole search. Where none helps alone, one smallest set of pinned values and
 * limits that do together. MW_ENO when nothing helps.
 */
enum mw_status mw_changes_find(const struct mw_scenario *scenario,
                               const struct mw_cost_ctx *ctx,
                               const struct mw_search_opts *opts,
                               struct mw_changes *out);

#endif
