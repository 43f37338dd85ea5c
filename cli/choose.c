/* Choosing the plan of a verb: see choose.h. */
#include "cli/choose.h"

#include "cli/world.h"
#include "planner/planner.h"

#include <stdio.h>

enum mw_status mw_cli_blame(const struct mw_scenario *scenario,
                            enum mw_status status, struct mw_err *err)
{
    if (status == MW_EINPUT) {
        mw_scenario_blame(scenario, err);
    }
    return status;
}

/* No plan and no layout: the search's best, said on stderr. */
static enum mw_status plan_first(const struct mw_scenario *scenario,
                                 const struct mw_cost_ctx *ctx, bool is_quiet,
                                 struct mw_plan *out, struct mw_err *err)
{
    struct mw_search_opts opts;
    struct mw_search_result result;

    mw_search_opts_default(&opts);
    opts.is_quiet = is_quiet;
    if (!is_quiet) {
        fprintf(stderr,
                "meshwright: %s has no layout and no --plan was "
                "given; planning first\n",
                scenario->file);
    }
    enum mw_status status = mw_search(scenario, ctx, &opts, &result, err);

    if (status == MW_OK) {
        status = mw_candidate_plan(scenario, &result.plans[0], out, err);
    }
    mw_search_result_release(&result);
    return mw_cli_blame(scenario, status, err);
}

/* The layout of the scenario with its layers per virtual stage, if any. */
static enum mw_status plan_of_layout(const struct mw_scenario *scenario,
                                     struct mw_plan *out, struct mw_err *err)
{
    const struct mw_int_list *list = &scenario->layout_layers;
    const struct mw_layout *layout = &scenario->layout;
    int *layers = NULL;

    if (list->n > 0) {
        if (list->n != (size_t)layout->pp * (size_t)layout->vpp) {
            return mw_fail(err, MW_EINPUT,
                           "%s: layout lists layers of %zu virtual stages but "
                           "pp x vpp is %d",
                           scenario->file, list->n, layout->pp * layout->vpp);
        }
        layers = mw_calloc(list->n, sizeof *layers);
        for (size_t k = 0; k < list->n; k++) {
            layers[k] = (int)list->v[k];
        }
    }
    enum mw_status status = mw_plan_make(scenario, layout, layers, out, err);

    if (status != MW_OK) {
        /* a rule that a candidate may break is a mistake in a file */
        err->status = status = MW_EINPUT;
        mw_scenario_blame(scenario, err);
    }
    mw_free(layers);
    return status;
}

enum mw_status mw_cli_choose(const char *plan_file,
                             const struct mw_scenario *scenario,
                             const struct mw_cost_ctx *ctx, bool is_quiet,
                             struct mw_plan *out, struct mw_err *err)
{
    if (plan_file != NULL) {
        return mw_plan_load(plan_file, scenario, out, err);
    }
    if (scenario->has_layout) {
        return plan_of_layout(scenario, out, err);
    }
    return plan_first(scenario, ctx, is_quiet, out, err);
}

/* ---- files of either kind --------------------------------------------------
 */
static enum mw_status is_plan(const char *file, bool *out, struct mw_err *err)
{
    struct mw_yaml *doc;
    enum mw_status status = mw_yaml_load(file, &doc, err);

    if (status != MW_OK) {
        return status;
    }
    struct mw_node *root = mw_yaml_root(doc);

    *out = mw_node_kind(root) == MW_NODE_MAP &&
           (mw_node_get(root, "scenario") != NULL ||
            mw_node_get(root, "scenario_hash") != NULL);
    mw_yaml_free(doc);
    return MW_OK;
}

/* Prices of the scenario's cluster. */
static enum mw_status open_prices(const struct mw_hwdb *db, const char *stack,
                                  struct mw_cli_subject *s, struct mw_err *err)
{
    struct mw_cluster *c = &s->scenario.cluster;
    enum mw_status status = mw_cost_ctx_init(&s->ctx, db, c->system, c->n_nodes,
                                             c->gpus_per_node, err);

    if (status == MW_OK) {
        status = mw_cli_use_domains(
            &s->scenario, s->is_plan_file ? &s->plan : NULL, &s->ctx, err);
    }
    mw_cli_blame(&s->scenario, status, err);
    if (status == MW_OK && stack != NULL) {
        status = mw_cli_set_stack(&s->ctx, stack, err);
    } else if (status == MW_OK) {
        status = mw_cost_ctx_choose_stack(&s->ctx, NULL,
                                          s->scenario.limits.framework, err);
    }
    if (status == MW_OK) {
        c->gpus_per_node = s->ctx.gpus_per_node;
    }
    return status;
}

static enum mw_status open_plan(const struct mw_hwdb *db, const char *file,
                                const char *stack, struct mw_cli_subject *s,
                                struct mw_err *err)
{
    enum mw_status status = mw_plan_load_own(file, &s->scenario, &s->plan, err);

    if (status != MW_OK) {
        return status;
    }
    s->is_plan_file = true;
    status = open_prices(db, stack, s, err);
    if (status != MW_OK) {
        mw_cli_subject_close(s);
    }
    return status;
}

enum mw_status mw_cli_subject_open(const struct mw_hwdb *db, const char *file,
                                   const char *stack, bool is_quiet,
                                   struct mw_cli_subject *out,
                                   struct mw_err *err)
{
    bool has_plan = false;
    enum mw_status status = is_plan(file, &has_plan, err);

    if (status != MW_OK) {
        return status;
    }
    *out = (struct mw_cli_subject){.is_plan_file = false};
    if (has_plan) {
        return open_plan(db, file, stack, out, err);
    }
    status = mw_scenario_load(file, &out->scenario, err);
    if (status != MW_OK) {
        return status;
    }
    status = open_prices(db, stack, out, err);
    if (status == MW_OK) {
        status = mw_cli_choose(NULL, &out->scenario, &out->ctx, is_quiet,
                               &out->plan, err);
    }
    if (status != MW_OK) {
        mw_scenario_release(&out->scenario);
    }
    return status;
}

/* The layers of a plan where they are a split of this model, else NULL: even.
 */
static const int *layers_for(const struct mw_plan *plan,
                             const struct mw_model *model)
{
    int sum = 0;

    for (int k = 0; k < plan->n_virtual; k++) {
        sum += plan->layers[k];
    }
    return sum == model->n_layers ? plan->layers : NULL;
}

enum mw_status mw_cli_subject_like(const struct mw_hwdb *db, const char *file,
                                   const char *stack,
                                   const struct mw_plan *plan,
                                   struct mw_cli_subject *out,
                                   struct mw_err *err)
{
    *out = (struct mw_cli_subject){.is_plan_file = false};
    enum mw_status status = mw_scenario_load(file, &out->scenario, err);

    if (status != MW_OK) {
        return status;
    }
    status = open_prices(db, stack, out, err);
    if (status == MW_OK) {
        status = mw_plan_make(&out->scenario, &plan->layout,
                              layers_for(plan, &out->scenario.model),
                              &out->plan, err);
        if (status != MW_OK) {
            err->status = status = MW_EINPUT;
            mw_err_prefix(err, "%s: layout of the other side", file);
        }
    }
    if (status != MW_OK) {
        mw_scenario_release(&out->scenario);
    }
    return status;
}

void mw_cli_subject_close(struct mw_cli_subject *s)
{
    mw_plan_release(&s->plan);
    mw_scenario_release(&s->scenario);
}

enum mw_status mw_cli_with_subject(const struct mw_cli *cli, const char *file,
                                   const char *stack, mw_cli_subject_fn fn,
                                   const void *ctx, struct mw_err *err)
{
    struct mw_hwdb *db = NULL;
    struct mw_cli_subject s;
    enum mw_status status = mw_cli_hwdb(cli->hwdb, &db, err);

    if (status != MW_OK) {
        return status;
    }
    status = mw_cli_subject_open(db, file, stack, cli->quiet, &s, err);
    if (status == MW_OK) {
        status = fn(ctx, &s, err);
        mw_cli_subject_close(&s);
    }
    mw_hwdb_free(db);
    return status;
}
