/* `plan --shard I/N --part FILE` and `plan --merge FILE`: one search over
 * several machines (planner/search_shards.h). */
#include "cli/plan_say.h"

#include "planner/search_shards.h"
#include "planner/sweep.h"

#include <stdio.h>

static struct mw_shard_head head_of(const struct mw_plan_args *a,
                                    const struct mw_scenario *scenario,
                                    const struct mw_cost_ctx *ctx)
{
    return (struct mw_shard_head){
        .shard = a->search.shard,
        .n_shards = a->search.n_shards,
        .question = mw_sweep_question(scenario, &a->search, ctx->stack.name),
        .usable_bytes = mw_step_usable_bytes(scenario, ctx),
        .top = a->search.top};
}

enum mw_status mw_plan_join(const struct mw_plan_args *a,
                            const struct mw_scenario *scenario,
                            const struct mw_cost_ctx *ctx,
                            struct mw_search_result *out, struct mw_err *err)
{
    struct mw_shard_head head = head_of(a, scenario, ctx);

    return mw_shards_join(&head, a->merge, a->n_merges, a->search.rank_by, out,
                          err);
}

enum mw_status mw_plan_write_part(const struct mw_plan_args *a,
                                  const struct mw_scenario *scenario,
                                  const struct mw_cost_ctx *ctx,
                                  const struct mw_search_result *r,
                                  struct mw_err *err)
{
    struct mw_shard_head head = head_of(a, scenario, ctx);
    enum mw_status status = mw_shard_write(&head, r, a->part, err);

    if (status == MW_OK && !a->cli.quiet) {
        fprintf(stderr,
                "meshwright: shard %d of %d: %llu layouts, %zu plans, %s; "
                "--merge %s with the others'\n",
                head.shard, head.n_shards, (unsigned long long)r->enumerated,
                r->n_plans, r->is_complete ? "complete" : "cut short", a->part);
    }
    return status;
}
