/*
 * What the planner tests share: a database, a scenario and the prices of a
 * cluster, opened and closed together.
 */
#include "planner_world.h"

#include "base/rand.h"
#include "sim/pipe/schedule.h"
#include "sim/coll/coll_library.h"

#include <string.h>

static void open_cluster(struct world *w, int n_nodes)
{
    struct mw_err err = {0};
    struct mw_cluster *c = &w->scenario.cluster;

    c->n_nodes = n_nodes ? n_nodes : c->n_nodes;
    assert_int_equal(mw_cost_ctx_init(&w->ctx, w->db, c->system, c->n_nodes,
                                      c->gpus_per_node, &err),
                     MW_OK);
}

void open_world(struct world *w, const char *file, int n_nodes)
{
    char path[512];
    struct mw_err err = {0};

    snprintf(path, sizeof path, "%s/%s", MW_SCENARIOS, file);
    assert_int_equal(mw_hwdb_load(NULL, &w->db, &err), MW_OK);
    mw_coll_library_lend(w->db);
    assert_int_equal(mw_scenario_load(path, &w->scenario, &err), MW_OK);
    open_cluster(w, n_nodes);
}

static void parse(struct world *w, const char *text)
{
    struct mw_err err = {0};

    if (mw_scenario_parse("test.yaml", text, strlen(text), &w->scenario,
                          &err) != MW_OK) {
        fail_msg("%s", err.text);
    }
    open_cluster(w, 0);
}

void parse_world(struct world *w, const char *text)
{
    struct mw_err err = {0};

    assert_int_equal(mw_hwdb_load(NULL, &w->db, &err), MW_OK);
    mw_coll_library_lend(w->db);
    parse(w, text);
}

void reparse_world(struct world *w, const char *text)
{
    mw_scenario_release(&w->scenario);
    parse(w, text);
}

void close_world(struct world *w)
{
    mw_scenario_release(&w->scenario);
    mw_hwdb_free(w->db);
}

static int pick(uint64_t seed, uint64_t stream, int n)
{
    return (int)(mw_rand_u64(seed, stream, 0) % (uint64_t)n);
}

static bool draw_once(const struct world *w, uint64_t seed,
                      struct mw_layout *out)
{
    static const char *const orders[] = {"tp-cp-ep-dp-pp", "tp-cp-ep-pp-dp",
                                         "pp-tp-cp-dp", "dp-tp-pp-cp"};
    int ranks = w->ctx.n_nodes * w->ctx.gpus_per_node;
    size_t n_kinds = 0;
    struct mw_schedule s;

    while (mw_schedule_kind(n_kinds)) {
        n_kinds++;
    }
    const struct mw_sched_kind *kind =
        mw_schedule_kind((size_t)pick(seed, 1, (int)n_kinds));

    mw_layout_default(out);
    out->tp = 1 << pick(seed, 2, 4);
    out->pp = 1 + pick(seed, 3, 8);
    out->cp = 1 << (pick(seed, 4, 4) / 3);
    if (ranks % (out->tp * out->pp * out->cp) != 0 ||
        strcmp(kind->name, "forward-only") == 0) {
        return false;
    }
    out->dp = ranks / (out->tp * out->pp * out->cp);
    out->vpp = kind->max_chunks == 1 ? 1 : 1 + pick(seed, 5, 4);
    out->sp = out->tp > 1 && pick(seed, 6, 2);
    out->zero = pick(seed, 7, 4);
    out->micro_batch = 1 << pick(seed, 8, 3);
    out->recompute = (enum mw_recompute)pick(seed, 9, 3);
    out->order = orders[pick(seed, 10, 4)];
    out->schedule = kind->name;
    if (mw_layout_check(out, &w->scenario.model, &w->scenario.workload, ranks,
                        NULL, NULL) != MW_OK) {
        return false;
    }
    struct mw_sched_args args = {
        .n_stages = out->pp,
        .n_microbatches = mw_microbatches(out, &w->scenario.workload),
        .n_chunks = kind->min_chunks > out->vpp ? kind->min_chunks : out->vpp,
        .n_parts = 1};

    if (mw_schedule_make(kind->name, &args, &s, NULL) != MW_OK) {
        return false;
    }
    bool is_right = s.route_len == out->pp * out->vpp;

    mw_schedule_release(&s);
    return is_right;
}

bool draw_layout(const struct world *w, uint64_t seed, struct mw_layout *out)
{
    for (uint64_t i = 0; i < 500; i++) {
        if (draw_once(w, 1000 * seed + i, out)) {
            return true;
        }
    }
    return false;
}
