/*
 * Choosing how the racks are cut into scale-up domains (scenario:
 * `domain_nodes: [18, 16, 9]`): one search each, the best plan of all. The
 * work of a step is the same, so the fastest step is the most tokens a second
 * of the allocation. It is proved where every search is.
 */
#ifndef MW_PLANNER_DOMAINS_H
#define MW_PLANNER_DOMAINS_H

#include "planner/planner.h"

enum { MW_DOMAINS_MAX = 8 };

struct mw_domain_choice {
    int domain_nodes, n_gpus, spare_nodes;
    double step_time_s; /* of its best plan; 0: none is feasible */
    double peak_bytes;  /* the same */
    bool is_proved;
};
struct mw_domains {
    int n, best; /* choices; which of them the result is of */
    struct mw_domain_choice choice[MW_DOMAINS_MAX];
    struct mw_scenario scenario; /* of the best: shares the given one's arena */
    struct mw_cost_ctx ctx;
    bool is_proved; /* the best of all choices */
};

/*
 * Searches under each of scenario->cluster.domains; ctx is the scenario's under
 * any of them. *result is the best choice's, released by the caller in any case
 * (as mw_search's); the others' plans are forgotten. Errors are mw_search's:
 * MW_ENO where no choice has a plan (result: of the first).
 */
enum mw_status mw_domains_search(const struct mw_scenario *scenario,
                                 const struct mw_cost_ctx *ctx,
                                 const struct mw_search_opts *opts,
                                 struct mw_domains *out,
                                 struct mw_search_result *result,
                                 struct mw_err *err);

/* The same with another way to a choice's result, which is found, or joined
 * from parts, on the scenario and prices that are cut so. by: what choices are
 * compared by (MW_RANK_PARETO: as by time). */
typedef enum mw_status (*mw_domains_find_fn)(void *arg,
                                             const struct mw_scenario *scenario,
                                             const struct mw_cost_ctx *ctx,
                                             struct mw_search_result *out,
                                             struct mw_err *err);
enum mw_status mw_domains_find(const struct mw_scenario *scenario,
                               const struct mw_cost_ctx *ctx,
                               enum mw_rank_by by, mw_domains_find_fn find,
                               void *arg, struct mw_domains *out,
                               struct mw_search_result *result,
                               struct mw_err *err);

#endif
