/* Opening database, scenario and prices for a verb: see world.h. */
#include "cli/world.h"

#include "sim/coll/coll_library.h"
#include "sim/cost/domain.h"

#include <stdio.h>
#include <strings.h>

enum mw_status mw_cli_hwdb(const char *overlay, struct mw_hwdb **out,
                           struct mw_err *err)
{
    enum mw_status status = mw_hwdb_load(overlay, out, err);
    if (status == MW_OK) {
        mw_coll_library_lend(*out);
    }
    return status;
}

enum mw_status mw_cli_open(struct mw_cli_world *world, const char *hwdb,
                           const char *scenario, struct mw_err *err)
{
    world->db = NULL;
    enum mw_status status = mw_cli_hwdb(hwdb, &world->db, err);
    if (status != MW_OK) {
        return status;
    }
    status = mw_scenario_load(scenario, &world->scenario, err);
    if (status != MW_OK) {
        mw_hwdb_free(world->db);
        world->db = NULL;
    }
    return status;
}

void mw_cli_close(struct mw_cli_world *world)
{
    mw_scenario_release(&world->scenario);
    mw_hwdb_free(world->db);
}

/* The plan's number of spare nodes, which its ranks leave. */
static enum mw_status use_spares(struct mw_scenario *scenario,
                                 const struct mw_plan *plan,
                                 struct mw_cost_ctx *ctx, struct mw_err *err)
{
    const struct mw_int_list *list = &scenario->limits.spare_nodes;
    struct mw_cluster *c = &scenario->cluster;
    int n_all = c->n_nodes + c->spare_nodes;
    int ranks = mw_layout_ranks(&plan->layout);

    for (size_t i = 0; i < list->n; i++) {
        if (ranks == (n_all - list->v[i]) * ctx->gpus_per_node) {
            mw_cost_use_spares(ctx, c, (int)list->v[i]);
            return MW_OK;
        }
    }
    return mw_fail(err, MW_EINPUT,
                   "%s: the plan has %d ranks, which none of the scenario's "
                   "choices of spare nodes leaves of %d nodes (limits: "
                   "spare_nodes)",
                   plan->file ? plan->file : scenario->file, ranks, n_all);
}

enum mw_status mw_cli_use_domains(struct mw_scenario *scenario,
                                  const struct mw_plan *plan,
                                  struct mw_cost_ctx *ctx, struct mw_err *err)
{
    if (plan && scenario->limits.spare_nodes.n > 0) {
        return use_spares(scenario, plan, ctx, err);
    }
    struct mw_cluster *c = &scenario->cluster;
    int d = plan && plan->layout.domain_nodes > 0 ? plan->layout.domain_nodes
                                                  : mw_cluster_first_domain(c);
    enum mw_status status = mw_cost_use_domains(ctx, c, d, err);

    if (status == MW_OK && d > 0 && plan &&
        mw_layout_ranks(&plan->layout) != c->n_nodes * ctx->gpus_per_node) {
        return mw_fail(err, MW_EINPUT,
                       "%s: the plan has %d ranks but the domains of %d nodes "
                       "hold %d",
                       plan->file ? plan->file : scenario->file,
                       mw_layout_ranks(&plan->layout), d,
                       c->n_nodes * ctx->gpus_per_node);
    }
    return status == MW_OK && d > 0 && plan
               ? mw_layout_check_nodes(&plan->layout, c, err)
               : status;
}

enum mw_status mw_cli_prices(struct mw_cli_world *world, const char *stack,
                             struct mw_cost_ctx *out, struct mw_err *err)
{
    const struct mw_cluster *c = &world->scenario.cluster;
    enum mw_status status = mw_cost_ctx_init(out, world->db, c->system,
                                             c->n_nodes, c->gpus_per_node, err);
    if (status == MW_OK) {
        status = mw_cli_use_domains(&world->scenario, NULL, out, err);
    }
    if (status == MW_EINPUT) {
        mw_scenario_blame(&world->scenario, err);
    }
    if (status == MW_OK && !stack) {
        status = mw_cost_ctx_choose_stack(
            out, NULL, world->scenario.limits.framework, err);
    }
    return status == MW_OK && stack ? mw_cli_set_stack(out, stack, err)
                                    : status;
}

void mw_cli_say_stack(const struct mw_scenario *scenario, const char *asked,
                      const struct mw_cost_ctx *ctx, bool is_quiet)
{
    if (!asked && !is_quiet && !ctx->gpu->is_cpu) {
        fprintf(stderr,
                "meshwright: prices of training stack %s (limits: framework "
                "%s); --stack NAME takes another\n",
                ctx->stack.name, mw_framework_name(scenario->limits.framework));
    }
}

enum mw_status mw_cli_check_stack(const char *name, struct mw_err *err)
{
    for (size_t i = 0; mw_stack_name(i) != NULL; i++) {
        if (strcasecmp(mw_stack_name(i), name) == 0) {
            return MW_OK;
        }
    }
    return mw_fail(err, MW_EUSAGE,
                   "no training stack is called '%s'; for example "
                   "megatron-core",
                   name);
}

enum mw_status mw_cli_set_stack(struct mw_cost_ctx *ctx, const char *stack,
                                struct mw_err *err)
{
    enum mw_status status = mw_cli_check_stack(stack, err);

    return status == MW_OK ? mw_cost_ctx_set_stack(ctx, stack, err) : status;
}
