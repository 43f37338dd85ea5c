/* The parts of `plan` that explain: see plan_say.c. */
#ifndef MW_CLI_PLAN_SAY_H
#define MW_CLI_PLAN_SAY_H

#include "base/json.h"
#include "cli/cli.h"
#include "cli/sim_job.h"
#include "planner/domains.h"
#include "planner/goals.h"
#include "planner/spares.h"

enum { MW_PLAN_MERGES_MAX = 1024 };

struct mw_plan_args {
    struct mw_cli cli;
    const char *scenario, *out, *stack;
    bool is_explicit; /* write the schedule's order into the plan */
    long long top;
    const char *why_not; /* KEY=VALUE,... or NULL */
    bool is_why, is_robust, is_staged;
    const char *lp;      /* of the stages' program */
    const char *mixed;   /* SYSTEM=NODES,... or NULL */
    const char *experts; /* file of loads, or NULL */
    long long redundant; /* copies of experts beside one of each */
    const char *why;     /* the same, or NULL: the runner-up */
    double margin_bytes; /* of memory left free; < 0: the scenario's fraction */
    struct mw_search_opts search;
    struct mw_sim_job_args job; /* the whole job, where tokens are given */
    unsigned front;             /* enum mw_front_by over numbers of nodes */
    double within_s;            /* --within; 0: not asked */
    double cap_usd;             /* --cap: of the whole job; 0: not asked */
    const char *part;           /* file of a shard, or NULL */
    const char *merge[MW_PLAN_MERGES_MAX];
    int n_merges;
    /* --objective, else the scenario's; has_goals: more than one search. */
    struct mw_objective objective;
    bool has_goals;
};

/* Takes the objective, the margin and the scenario's choices into a; MW_EUSAGE
 * for what cannot go together (plan_prepare.c). */
enum mw_status mw_plan_prepare(struct mw_plan_args *a,
                               struct mw_scenario *scenario,
                               const struct mw_cost_ctx *ctx,
                               struct mw_err *err);
/* KEY=VALUE,... of an option into a search's pinned dimensions. */
enum mw_status mw_plan_pairs(const char *option, const char *text,
                             struct mw_search_opts *search, struct mw_err *err);
/* Each prints, or adds a key to json where it is not NULL. */
enum mw_status mw_plan_say_why(const struct mw_plan_args *a,
                               const struct mw_scenario *scenario,
                               const struct mw_cost_ctx *ctx,
                               const struct mw_search_result *best,
                               json_t *json, struct mw_err *err);
enum mw_status mw_plan_say_robust(const struct mw_plan_args *a,
                                  const struct mw_scenario *scenario,
                                  const struct mw_cost_ctx *ctx,
                                  const struct mw_search_result *r,
                                  json_t *json, struct mw_err *err);
enum mw_status mw_plan_say_stages(const struct mw_plan_args *a,
                                  const struct mw_scenario *scenario,
                                  const struct mw_cost_ctx *ctx,
                                  const struct mw_search_result *r,
                                  json_t *json, struct mw_err *err);
/* What of --why can be wrong before any search. */
enum mw_status mw_plan_check_why(const struct mw_plan_args *a,
                                 const struct mw_scenario *scenario,
                                 const struct mw_cost_ctx *ctx,
                                 struct mw_err *err);
/* Returns the exit status: 1, or 130 where an interrupt left changes untried.
 */
int mw_plan_say_changes(const struct mw_scenario *scenario,
                        const struct mw_cost_ctx *ctx,
                        const struct mw_search_opts *opts, json_t *json);
/* plan --why-not: returns the exit status. */
int mw_plan_run_why_not(const struct mw_plan_args *a,
                        const struct mw_scenario *scenario,
                        const struct mw_cost_ctx *ctx);

/* The ranking of plans (plan_run.c): returns the exit status. */
int mw_plan_run(const struct mw_plan_args *a,
                const struct mw_scenario *scenario,
                const struct mw_cost_ctx *ctx);
/* plan --mixed (plan_mixed.c): returns the exit status. */
int mw_plan_run_mixed(const struct mw_plan_args *a,
                      const struct mw_scenario *scenario,
                      const struct mw_cost_ctx *ctx);
/* plan --pareto over nodes (plan_front.c): returns the exit status. */
int mw_plan_run_front(const struct mw_plan_args *a,
                      const struct mw_scenario *scenario,
                      const struct mw_cost_ctx *ctx);
/* Dollars (--price or the table's lowest) and watts; NaN: no price. */
struct mw_front_prices mw_plan_prices(const struct mw_plan_args *a,
                                      const struct mw_cost_ctx *ctx);
/* The objective's search (plan_goals.c); release with mw_goals_release. */
enum mw_status mw_plan_goals(const struct mw_plan_args *a,
                             const struct mw_scenario *scenario,
                             const struct mw_cost_ctx *ctx,
                             struct mw_goals_result *out, struct mw_err *err);
/* --merge: the parts as one result; --shard: what it found, written to its file
 * (plan_shard.c). Where racks can be cut in several ways *domains has them all
 * and *out is the best one's. */
enum mw_status mw_plan_join(const struct mw_plan_args *a,
                            const struct mw_scenario *scenario,
                            const struct mw_cost_ctx *ctx,
                            struct mw_domains *domains,
                            struct mw_search_result *out, struct mw_err *err);
enum mw_status mw_plan_shard(const struct mw_plan_args *a,
                             const struct mw_scenario *scenario,
                             const struct mw_cost_ctx *ctx,
                             struct mw_domains *domains,
                             struct mw_search_result *out, struct mw_err *err);
void mw_plan_goals_print(const struct mw_plan_args *a,
                         const struct mw_goals_result *g);
json_t *mw_plan_goals_json(const struct mw_plan_args *a,
                           const struct mw_goals_result *g);
/* limits: spare_nodes, one search each (plan_spares.c). */
enum mw_status
mw_plan_spares(const struct mw_plan_args *a, const struct mw_scenario *scenario,
               const struct mw_cost_ctx *ctx, struct mw_spares *out,
               struct mw_search_result *result, struct mw_err *err);
void mw_plan_view_spares(const struct mw_spares *s, json_t *json,
                         bool is_shown);
/* plan --experts (plan_experts.c): returns the exit status. */
int mw_plan_run_experts(const struct mw_plan_args *a,
                        const struct mw_scenario *scenario);

#endif
