/*
 * Goals in order against brute force on random small spaces: every legal layout
 * on every number of nodes that divides the cluster's is simulated, the goals
 * are applied to all of them one after the other, and the search must name the
 * same values and a plan of the same time and memory, proved.
 */
#include "planner_world.h"

#include "base/rand.h"
#include "planner/goals.h"
#include "planner/search_int.h"
#include "sim/cost/domain.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { SPACES = 80 };

struct point {
    int n_nodes;  /* that train */
    int n_spares; /* of the racks' domains: paid for */
    double time_s, bytes;
};
struct all {
    struct search s; /* for the weigher */
    struct weigher w;
    struct {
        struct point *v;
        size_t n, cap;
    } points;
};

static void try_one(void *arg, const struct mw_layout *layout, uint64_t at)
{
    struct all *b = arg;
    struct mw_plan plan;
    struct mw_step_opts opts = {.no_breakdown = true};
    struct mw_step_result step;
    enum mw_status status;
    double peak;

    (void)at;
    mw_weigh_layers(&b->w, layout, &peak, &status, NULL);
    if (mw_plan_make(b->s.scenario, layout, b->w.layers, &plan, NULL) !=
        MW_OK) {
        return; /* the schedule's words */
    }
    assert_int_equal(
        mw_step_simulate(b->s.scenario, &plan, b->s.ctx, &opts, &step, NULL),
        MW_OK);
    if (step.fits) {
        struct point p = {b->s.ctx->n_nodes, b->s.scenario->cluster.spare_nodes,
                          step.step_time_s, step.peak_bytes};

        mw_array_push(&b->points, p);
    }
    mw_step_result_release(&step);
    mw_plan_release(&plan);
}

/* A scenario of so many nodes and one way to cut its racks, by itself (0: there
 * is none to choose). */
static void add_points(const struct world *w, int n_nodes, int domain_nodes,
                       const struct mw_search_opts *opts, struct all *b)
{
    struct mw_scenario scenario = w->scenario;
    struct mw_cost_ctx ctx;
    struct mw_tally *tally = mw_calloc(1, sizeof *tally);

    scenario.cluster.n_nodes = n_nodes;
    assert_int_equal(mw_cost_ctx_init(&ctx, w->db, w->ctx.system->slug, n_nodes,
                                      w->ctx.gpus_per_node, NULL),
                     MW_OK);
    assert_int_equal(mw_cost_ctx_set_stack(&ctx, w->ctx.stack.name, NULL),
                     MW_OK);
    if (mw_cost_use_domains(&ctx, &scenario.cluster, domain_nodes, NULL) !=
        MW_OK) {
        mw_free(tally); /* too few nodes for such a domain */
        return;
    }
    b->s = (struct search){.scenario = &scenario, .ctx = &ctx, .opts = opts};
    b->s.usable_bytes = mw_step_usable_bytes(&scenario, &ctx);
    mw_space_init(&b->s.space, &scenario, &ctx, opts);
    mw_weigher_init(&b->w, &b->s);
    for (size_t i = 0; i < b->s.space.outer.n; i++) {
        mw_space_walk(&b->s.space, i, MW_WALK_ALL, tally, try_one, b);
    }
    mw_weigher_release(&b->w);
    mw_space_release(&b->s.space);
    mw_free(tally);
}

static double value_of(const struct world *w, const struct mw_goals_ask *ask,
                       const struct point *p, enum mw_goal goal)
{
    double gpus = p->n_nodes * w->ctx.gpus_per_node;
    double tokens = (double)w->scenario.workload.global_batch *
                    (double)w->scenario.workload.seq;

    switch (goal) {
    case MW_GOAL_STEP_TIME:
        return p->time_s;
    case MW_GOAL_TOKENS_PER_GPU:
        return gpus * p->time_s / tokens;
    case MW_GOAL_COST:
        return (p->n_nodes + p->n_spares) * w->ctx.gpus_per_node * p->time_s /
               3600 * ask->prices.usd_per_gpu_hour / tokens;
    case MW_GOAL_ENERGY:
        return p->n_nodes * ask->prices.node_power_w * p->time_s / tokens;
    case MW_GOAL_GPUS:
        return gpus;
    case MW_GOAL_MEMORY:
        return p->bytes;
    case MW_GOAL_COUNT:
        break;
    }
    return 0;
}

/* Drops what exceeds the limit; returns the goal's least value. */
static double apply(const struct world *w, const struct mw_goals_ask *ask,
                    enum mw_goal goal, double within, struct all *b)
{
    double least = HUGE_VAL;
    size_t n = 0;

    for (size_t i = 0; i < b->points.n; i++) {
        least = fmin(least, value_of(w, ask, &b->points.v[i], goal));
    }
    for (size_t i = 0; i < b->points.n; i++) {
        if (value_of(w, ask, &b->points.v[i], goal) <=
            least * (1 + within) * (1 + 1e-12)) {
            b->points.v[n++] = b->points.v[i];
        }
    }
    b->points.n = n;
    return least;
}

static int pick(uint64_t seed, uint64_t stream, int n)
{
    return (int)(mw_rand_u64(seed, stream, 11) % (uint64_t)n);
}

static void random_world(uint64_t seed, struct world *w)
{
    char text[1024];

    snprintf(text, sizeof text,
             "format: 1\n"
             "model: {preset: llama3-8b, layers: %d}\n"
             "cluster: {system: %s, nodes: %d, gpus_per_node: %d}\n"
             "workload: {seq: 2048, global_batch: %d}\n"
             "limits: {memory: %dGiB, micro_batch: [1, %d]}\n",
             4 + pick(seed, 1, 4), seed % 2 ? "dgx-h100" : "dgx-a100",
             1 << pick(seed, 2, 3), 1 << pick(seed, 3, 3),
             8 << pick(seed, 4, 2), 6 + pick(seed, 5, 60),
             1 + pick(seed, 6, 4));
    parse_world(w, text);
}

static void random_objective(uint64_t seed, struct mw_objective *o)
{
    static const double parts[] = {0, 0.01, 0.1, 0.5};
    int n = 1 + pick(seed, 20, 3);
    unsigned seen = 0;

    o->n = 0;
    for (uint64_t k = 0; o->n < n; k++) {
        int goal = pick(seed, 30 + k, MW_GOAL_COUNT);

        if ((seen >> goal & 1) == 0) {
            seen |= 1U << goal;
            o->v[o->n].goal = (enum mw_goal)goal;
            o->v[o->n++].within = parts[pick(seed, 60 + k, 4)];
        }
    }
}

static double most_s(const void *deadline, const struct mw_scenario *scenario,
                     const struct mw_cost_ctx *ctx)
{
    (void)scenario;
    (void)ctx;
    return *(const double *)deadline;
}

static void drop_late(struct all *b, double deadline_s)
{
    size_t n = 0;

    for (size_t i = 0; i < b->points.n; i++) {
        if (b->points.v[i].time_s <= deadline_s) {
            b->points.v[n++] = b->points.v[i];
        }
    }
    b->points.n = n;
}

static void compare(const struct world *w, const struct mw_goals_ask *ask,
                    struct all *b, const struct mw_goals_result *r)
{
    const struct mw_objective *o = &ask->objective;

    assert_int_equal(r->n, o->n);
    for (int k = 0; k < o->n; k++) {
        double least =
            apply(w, ask, o->v[k].goal, k + 1 < o->n ? o->v[k].within : 0, b);

        mw_assert_near(r->v[k].value, least, 1e-11, 0);
        assert_true(r->v[k].is_proved);
    }
    double time_s = apply(w, ask, MW_GOAL_STEP_TIME, 0, b);

    assert_true(b->points.n > 0);
    mw_assert_near(r->search.plans[0].step_time_s, time_s, 1e-11, 0);
    struct point found = {r->n_nodes, r->scenario.cluster.spare_nodes,
                          r->search.plans[0].step_time_s,
                          r->search.plans[0].peak_bytes};

    for (int k = 0; k < o->n; k++) { /* it keeps to all that was promised */
        assert_true(value_of(w, ask, &found, o->v[k].goal) <=
                    r->v[k].limit * (1 + 1e-11));
    }
    assert_true(r->is_proved);
}

static void test_random_spaces(void **state)
{
    (void)state;
    int n_none = 0, n_fewer = 0;

    for (uint64_t seed = 0; seed < SPACES; seed++) {
        struct world w;
        struct mw_search_opts opts;
        struct mw_goals_result r;
        struct all b = {.points = {0}};
        double deadline_s = seed % 16 == 15 ? 0 : 0.2 * (1 + pick(seed, 7, 40));
        struct mw_goals_ask ask = {.prices = {1.5, seed % 3 ? 6500 : 10200},
                                   .max_step_s = seed % 4 == 3 ? most_s : NULL,
                                   .deadline = &deadline_s};

        random_world(seed, &w);
        random_objective(seed, &ask.objective);
        ask.is_any_nodes = seed % 7 == 0;
        mw_search_opts_default(&opts);
        opts.is_quiet = true;
        opts.jobs = 1;
        opts.top = 1 + pick(seed, 8, 3);
        opts.zero = pick(seed, 10, 4);
        opts.recompute = pick(seed, 11, 3);
        for (int n = 1; n <= w.ctx.n_nodes; n++) {
            if (w.ctx.n_nodes % n == 0 &&
                (n == w.ctx.n_nodes || ask.is_any_nodes ||
                 mw_objective_needs_nodes(&ask.objective))) {
                add_points(&w, n, 0, &opts, &b);
            }
        }
        if (ask.max_step_s) {
            drop_late(&b, deadline_s);
        }
        enum mw_status status =
            mw_goals_search(&w.scenario, &w.ctx, &opts, &ask, &r, NULL);

        assert_int_equal(status, b.points.n > 0 ? MW_OK : MW_ENO);
        n_none += status == MW_ENO;
        if (status == MW_OK) {
            compare(&w, &ask, &b, &r);
            n_fewer += r.n_nodes < w.ctx.n_nodes;
        }
        mw_goals_release(&r);
        mw_array_release(&b.points);
        close_world(&w);
    }
    assert_in_range(n_none, 2, SPACES / 2);
    assert_true(n_fewer > 3);
}

/* ---- words -----------------------------------------------------------------
 */
static void test_words(void **state)
{
    (void)state;
    struct mw_objective o = {.n = 0};
    struct mw_err err = {0};

    assert_int_equal(
        mw_objective_parse(" step_time within 2 % ,memory", &o, NULL), MW_OK);
    assert_int_equal(o.n, 2);
    assert_int_equal(o.v[0].goal, MW_GOAL_STEP_TIME);
    mw_assert_near(o.v[0].within, 0.02, 1e-15, 0);
    assert_int_equal(o.v[1].goal, MW_GOAL_MEMORY);
    assert_true(o.v[1].within == 0);
    assert_int_equal(mw_objective_parse("gpus within 0.5", &o, NULL), MW_OK);
    assert_true(o.n == 1 && o.v[0].within == 0.5);
    assert_true(mw_objective_needs_nodes(&o));
    static const char *const wrong[] = {"",
                                        "speed",
                                        "gpus,",
                                        "gpus within",
                                        "gpus within -1 %",
                                        "memory,memory",
                                        "memory within two"};

    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        assert_int_equal(mw_objective_parse(wrong[i], &o, &err), MW_EUSAGE);
        assert_int_equal(o.n, 1); /* as it was */
    }
}

static void test_scenario(void **state)
{
    (void)state;
    static const char head[] = "format: 1\nmodel: llama3-8b\n"
                               "cluster: {system: dgx-h100, nodes: 1}\n"
                               "workload: {seq: 2048, global_batch: 8}\n";
    static const struct {
        const char *text;
        int n; /* goals; 0: refused */
    } cases[] = {
        {"", 1},
        {"objective: memory\n", 1},
        {"objective: [step_time within 2%, cost_per_token, memory]\n", 3},
        {"objective: [step_time, step_time]\n", 0},
        {"objective: []\n", 0},
        {"objective: {a: b}\n", 0},
        {"objective: [[gpus]]\n", 0},
        {"objective: fast\n", 0}};

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct mw_scenario s;
        struct mw_err err = {0};
        char text[512];
        int n = snprintf(text, sizeof text, "%s%s", head, cases[i].text);
        enum mw_status status =
            mw_scenario_parse("s.yaml", text, (size_t)n, &s, &err);

        if (cases[i].n == 0) {
            assert_int_equal(status, MW_EINPUT);
            assert_non_null(strstr(err.text, "s.yaml:5:"));
            continue;
        }
        assert_int_equal(status, MW_OK);
        assert_int_equal(s.objective.n, cases[i].n);
        mw_scenario_release(&s);
    }
}

/* ---- racks that can be cut in several ways ---------------------------------
 */
static void open_racks(struct world *w, uint64_t seed)
{
    static const char *const cuts[] = {"[2, 4]", "[4, 3]", "[3, 2, 1]"};
    char text[512];

    snprintf(text, sizeof text,
             "format: 1\nmodel: {preset: llama3-8b, layers: %d}\n"
             "cluster: {system: gb200-nvl72, gpus_per_node: 1, nodes: 4, "
             "domain_nodes: %s}\n"
             "workload: {seq: 2048, global_batch: 12}\n"
             "limits: {memory: %dGiB}\n",
             4 + pick(seed, 1, 5), cuts[seed % 3], 30 + pick(seed, 2, 60));
    parse_world(w, text);
}

/* Every number of nodes under every choice, each a scenario of its own. */
static void brute_racks(const struct world *w, const struct mw_goals_ask *ask,
                        const struct mw_search_opts *opts, struct all *b)
{
    const struct mw_int_list *cuts = &w->scenario.cluster.domains;

    for (size_t i = 0; i < cuts->n; i++) {
        for (int n = 1; n <= 4; n *= 2) {
            if (n == 4 || ask->is_any_nodes ||
                mw_objective_needs_nodes(&ask->objective)) {
                add_points(w, n, (int)cuts->v[i], opts, b);
            }
        }
    }
}

static void test_cut_racks(void **state)
{
    (void)state;
    int n_cuts[5] = {0};

    for (uint64_t seed = 0; seed < 18; seed++) {
        struct world w;
        struct mw_search_opts opts;
        struct mw_goals_result r;
        struct all b = {.points = {0}};
        struct mw_goals_ask ask = {.prices = {1.5, 2700},
                                   .is_any_nodes = seed % 2};

        open_racks(&w, seed);
        random_objective(seed, &ask.objective);
        mw_search_opts_default(&opts);
        opts.is_quiet = true;
        opts.jobs = 1;
        opts.top = 2;
        opts.zero = pick(seed, 10, 2);
        opts.recompute = pick(seed, 11, 3);
        opts.schedule = "1f1b";
        brute_racks(&w, &ask, &opts, &b);
        enum mw_status status =
            mw_goals_search(&w.scenario, &w.ctx, &opts, &ask, &r, NULL);

        assert_int_equal(status, b.points.n > 0 ? MW_OK : MW_ENO);
        if (status == MW_OK) {
            compare(&w, &ask, &b, &r);
            assert_int_equal(r.search.plans[0].layout.domain_nodes,
                             r.scenario.cluster.domain_nodes);
            n_cuts[r.scenario.cluster.domain_nodes]++;
        }
        mw_goals_release(&r);
        mw_array_release(&b.points);
        close_world(&w);
    }
    assert_true((n_cuts[1] > 0) + (n_cuts[2] > 0) + (n_cuts[3] > 0) +
                    (n_cuts[4] > 0) >=
                3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_words),
        cmocka_unit_test(test_scenario),
        cmocka_unit_test(test_random_spaces),
        cmocka_unit_test(test_cut_racks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
