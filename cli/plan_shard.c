/* `plan --shard I/N --part FILE` and `plan --merge FILE`: one search over
 * several machines (planner/search_shards.h), or one for each way to cut racks.
 */
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
        .question =
            mw_sweep_question(scenario, &a->search, ctx->stack.name, ctx->db),
        .usable_bytes = mw_step_usable_bytes(scenario, ctx),
        .top = a->search.top};
}

/* ---- a shard ---------------------------------------------------------------
 */
struct shard {
    const struct mw_plan_args *a;
    struct mw_shard_part part;
    uint64_t n_layouts;
    size_t n_plans;
    bool is_complete;
};

static enum mw_status search_part(void *arg, const struct mw_scenario *scenario,
                                  const struct mw_cost_ctx *ctx,
                                  struct mw_search_result *out,
                                  struct mw_err *err)
{
    struct shard *s = arg;
    enum mw_status status = mw_search(scenario, ctx, &s->a->search, out, err);

    mw_shard_add(
        &s->part,
        scenario->cluster.domains.n > 0 ? scenario->cluster.domain_nodes : 0,
        out);
    s->n_layouts += out->enumerated;
    s->n_plans += out->n_plans;
    s->is_complete = s->is_complete && out->is_complete;
    return status;
}

static enum mw_status write_part(struct shard *s,
                                 const struct mw_shard_head *head,
                                 struct mw_err *err)
{
    enum mw_status status = mw_shard_end(&s->part, s->a->part, err);

    if (status == MW_OK && !s->a->cli.quiet) {
        fprintf(stderr,
                "meshwright: shard %d of %d: %llu layouts, %zu plans, %s; "
                "--merge %s with the others'\n",
                head->shard, head->n_shards, (unsigned long long)s->n_layouts,
                s->n_plans, s->is_complete ? "complete" : "cut short",
                s->a->part);
    }
    return status;
}

enum mw_status mw_plan_shard(const struct mw_plan_args *a,
                             const struct mw_scenario *scenario,
                             const struct mw_cost_ctx *ctx,
                             struct mw_domains *domains,
                             struct mw_search_result *out, struct mw_err *err)
{
    struct mw_shard_head head = head_of(a, scenario, ctx);
    struct shard s = {.a = a, .is_complete = true};
    struct mw_err why = {0}, wrong = {0};

    mw_shard_begin(&s.part, &head);
    enum mw_status status =
        scenario->cluster.domains.n > 1
            ? mw_domains_find(scenario, ctx, a->search.rank_by, search_part, &s,
                              domains, out, &why)
            : search_part(&s, scenario, ctx, out, &why);
    bool is_part = status == MW_OK || status == MW_ENO || status == MW_EINTR;

    if (!is_part) {
        mw_str_release(&s.part.text);
    } else if (write_part(&s, &head, &wrong) != MW_OK) {
        why = wrong;
        status = wrong.status;
    } else if (status == MW_ENO) {
        status = MW_OK; /* nothing in this shard is no answer yet */
    }
    if (err) {
        *err = why;
    }
    return status;
}

/* ---- all of them -----------------------------------------------------------
 */
struct parts {
    const struct mw_plan_args *a;
    struct mw_shard_head head;
};

static enum mw_status join_parts(void *arg, const struct mw_scenario *scenario,
                                 const struct mw_cost_ctx *ctx,
                                 struct mw_search_result *out,
                                 struct mw_err *err)
{
    const struct parts *p = arg;

    (void)ctx;
    return mw_shards_join(
        &p->head, p->a->merge, p->a->n_merges,
        scenario->cluster.domains.n > 0 ? scenario->cluster.domain_nodes : 0,
        p->a->search.rank_by, out, err);
}

enum mw_status mw_plan_join(const struct mw_plan_args *a,
                            const struct mw_scenario *scenario,
                            const struct mw_cost_ctx *ctx,
                            struct mw_domains *domains,
                            struct mw_search_result *out, struct mw_err *err)
{
    struct parts p = {a, head_of(a, scenario, ctx)};

    return scenario->cluster.domains.n > 1
               ? mw_domains_find(scenario, ctx, a->search.rank_by, join_parts,
                                 &p, domains, out, err)
               : join_parts(&p, scenario, ctx, out, err);
}
