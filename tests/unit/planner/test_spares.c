/*
 * The number of nodes that stand by, chosen by the whole job: equal to brute
 * force over every number, layout and its layers, for jobs that fail seldom and
 * often; lists that are refused; a plan that names no choice.
 */
#include "planner_world.h"

#include "planner/search_int.h"
#include "planner/spares.h"
#include "sim/cost/domain.h"
#include "sim/step/whole_job.h"

#include <math.h>
#include <string.h>

struct job {
    double failures_per_day;
};

static double wall_s(const struct job *job, const struct mw_scenario *s,
                     double step_time_s, double *out_goodput)
{
    struct mw_job_spec spec = {.tokens = 1e11,
                               .tokens_per_step =
                                   (double)s->workload.global_batch *
                                   (double)s->workload.seq,
                               .step_time_s = step_time_s,
                               .n_nodes = s->cluster.n_nodes,
                               .checkpoint_bytes = 1e11,
                               .storage_Bps = 1e10,
                               .node_failures_per_day = job->failures_per_day,
                               .restart_s = 600,
                               .repair_s = 86400,
                               .expected_only = true,
                               .counts_spares = true,
                               .n_spares = s->cluster.spare_nodes};
    struct mw_job j;

    mw_job_predict(&spec, &j);
    *out_goodput = j.goodput;
    return j.wall_s;
}

static enum mw_status whole_job(const void *arg,
                                const struct mw_scenario *scenario,
                                const struct mw_cost_ctx *ctx,
                                struct mw_spare_choice *c, struct mw_err *err)
{
    (void)ctx;
    (void)err;
    c->wall_s = wall_s(arg, scenario, c->step_time_s, &c->goodput);
    return MW_OK;
}

/* ---- brute force -----------------------------------------------------------
 */
struct brute {
    struct search s;
    struct weigher w;
    const struct job *job;
    double best_s; /* of the whole job */
};

static void try_one(void *arg, const struct mw_layout *layout, uint64_t at)
{
    struct brute *b = arg;
    struct mw_plan plan;
    struct mw_step_opts opts = {.no_breakdown = true};
    struct mw_step_result step;
    enum mw_status status;
    double peak, goodput;

    (void)at;
    mw_weigh_layers(&b->w, layout, &peak, &status, NULL);
    if (mw_plan_make(b->s.scenario, layout, b->w.layers, &plan, NULL) !=
        MW_OK) {
        return;
    }
    assert_int_equal(
        mw_step_simulate(b->s.scenario, &plan, b->s.ctx, &opts, &step, NULL),
        MW_OK);
    if (step.fits) {
        b->best_s = fmin(b->best_s, wall_s(b->job, b->s.scenario,
                                           step.step_time_s, &goodput));
    }
    mw_step_result_release(&step);
    mw_plan_release(&plan);
}

static double brute_force(const struct world *w, int n_spares,
                          const struct mw_search_opts *opts,
                          const struct job *job)
{
    struct mw_scenario s = w->scenario;
    struct mw_cost_ctx ctx = w->ctx;
    struct mw_tally *tally = mw_calloc(1, sizeof *tally);

    mw_cost_use_spares(&ctx, &s.cluster, n_spares);
    struct brute b = {.s = {.scenario = &s, .ctx = &ctx, .opts = opts},
                      .job = job,
                      .best_s = HUGE_VAL};

    b.s.usable_bytes = mw_step_usable_bytes(&s, &ctx);
    mw_space_init(&b.s.space, &s, &ctx, opts);
    mw_weigher_init(&b.w, &b.s);
    for (size_t i = 0; i < b.s.space.outer.n; i++) {
        mw_space_walk(&b.s.space, i, MW_WALK_ALL, tally, try_one, &b);
    }
    mw_weigher_release(&b.w);
    mw_space_release(&b.s.space);
    mw_free(tally);
    return b.best_s;
}

static void open_choice(struct world *w, const char *list, int memory_gib)
{
    char text[512];

    snprintf(
        text, sizeof text,
        "format: 1\nname: t\nmodel: {preset: llama3-8b, layers: 4}\n"
        "cluster: {system: dgx-h100, nodes: 5, gpus_per_node: 2}\n"
        "workload: {seq: 2048, global_batch: 120}\n"
        "limits: {memory: %dGiB, micro_batch: [1, 2], pp: [1, 2], framework: "
        "megatron-core-0.14, spare_nodes: %s}\n",
        memory_gib, list);
    parse_world(w, text);
}

static void test_equals_brute_force(void **state)
{
    static const double failures[] = {0, 1e-3, 0.02, 0.1, 0.5, 2};
    int taken[5] = {0}, n_none = 0;

    (void)state;
    for (int i = 0; i < 6; i++) {
        struct job job = {failures[i]};
        struct world w;
        struct mw_search_opts opts;
        struct mw_search_result r;
        struct mw_spares *s = mw_calloc(1, sizeof *s);
        double least = HUGE_VAL;
        int best = -1;

        open_choice(&w, "[3, 0, 1, 2, 4]", i % 2 == 0 ? 60 : 22);
        assert_int_equal(w.scenario.cluster.spare_nodes, 3);
        mw_search_opts_default(&opts);
        opts.is_quiet = true;
        opts.recompute = MW_RECOMPUTE_NONE;
        opts.zero = 1;
        for (size_t k = 0; k < w.scenario.limits.spare_nodes.n; k++) {
            int n = (int)w.scenario.limits.spare_nodes.v[k];
            double value = brute_force(&w, n, &opts, &job);

            best = value < least ? n : best;
            least = fmin(least, value);
        }
        enum mw_status status = mw_spares_search(&w.scenario, &w.ctx, &opts,
                                                 whole_job, &job, s, &r, NULL);

        if (best >= 0) {
            const struct mw_spare_choice *c = &s->choice[s->best];

            assert_int_equal(status, MW_OK);
            assert_int_equal(c->n_spares, best);
            mw_assert_near(c->wall_s, least, 1e-12, 0);
            mw_assert_near(r.plans[0].step_time_s, c->step_time_s, 0, 0);
            assert_int_equal(s->scenario.cluster.n_nodes, 5 - best);
            assert_int_equal(mw_layout_ranks(&r.plans[0].layout),
                             2 * (5 - best));
            assert_true(s->is_proved);
            taken[best]++;
        }
        n_none += best < 0;
        mw_search_result_release(&r);
        mw_free(s);
        close_world(&w);
    }
    assert_true(taken[0] > 0 && taken[1] + taken[2] > 0); /* it is a choice */
    assert_true(n_none < 6);
}

static void refused(const char *cluster, const char *limits, const char *why)
{
    char text[512];
    struct mw_scenario s;
    struct mw_err err = {0};

    snprintf(text, sizeof text,
             "format: 1\nname: t\nmodel: {preset: llama3-8b}\n"
             "cluster: {system: gb200-nvl72, nodes: 4%s}\n"
             "workload: {seq: 2048, global_batch: 24}\n"
             "limits: {spare_nodes: %s}\n",
             cluster, limits);
    assert_int_equal(mw_scenario_parse("t.yaml", text, strlen(text), &s, &err),
                     MW_EINPUT);
    if (strstr(err.text, why) == NULL) {
        fail_msg("%s", err.text);
    }
}

static void test_refused(void **state)
{
    (void)state;
    refused("", "[0, 4]", "leave none to train on; at most 3");
    refused(", spare_nodes: 1", "[0, 1]", "one of the two");
    refused(", domain_nodes: [4, 2]", "[0, 1]", "one of the two");
    refused("", "[-1]", "spare_nodes");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_equals_brute_force),
        cmocka_unit_test(test_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
