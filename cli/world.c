/* Opening database, scenario and prices for a verb: see world.h. */
#include "cli/world.h"

#include <string.h>

enum mw_status mw_cli_open(struct mw_cli_world *world, const char *hwdb,
                           const char *scenario, struct mw_err *err)
{
    world->db = NULL;
    enum mw_status status = mw_hwdb_load(hwdb, &world->db, err);
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

enum mw_status mw_cli_prices(const struct mw_cli_world *world,
                             const char *stack, struct mw_cost_ctx *out,
                             struct mw_err *err)
{
    const struct mw_cluster *c = &world->scenario.cluster;
    enum mw_status status = mw_cost_ctx_init(out, world->db, c->system,
                                             c->n_nodes, c->gpus_per_node, err);
    if (status == MW_EINPUT) {
        mw_err_prefix(err, "%s", world->scenario.file);
    }
    return status == MW_OK && stack ? mw_cli_set_stack(out, stack, err)
                                    : status;
}

enum mw_status mw_cli_set_stack(struct mw_cost_ctx *ctx, const char *stack,
                                struct mw_err *err)
{
    size_t i = 0;
    while (mw_stack_name(i) != NULL && strcmp(mw_stack_name(i), stack) != 0) {
        i++;
    }
    enum mw_status status = mw_cost_ctx_set_stack(ctx, stack, err);
    if (status != MW_OK && mw_stack_name(i) == NULL && err != NULL) {
        err->status = status = MW_EUSAGE;
    }
    return status;
}
