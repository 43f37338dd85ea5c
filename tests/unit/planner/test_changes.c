/*
 * What would make a wish possible, against brute force: random wishes with all
 * sizes pinned, legal or not; every value of every size tried by hand.
 */
#include "planner_world.h"

#include "base/rand.h"
#include "planner/space.h"
#include "planner/why.h"
#include "sim/plan/plan.h"

#include <stdio.h>
#include <string.h>

#if defined(__SANITIZE_ADDRESS__)
enum { WISHES = 14 };
#else
enum { WISHES = 30 };
#endif
enum { N_SIZES = 5, VALUES = 64 };
static const char *const names[N_SIZES] = {"tp", "pp", "dp", "micro_batch",
                                           "zero"};

struct wish {
    int v[N_SIZES];
};

static int pick(uint64_t seed, uint64_t stream, int n)
{
    return (int)(mw_rand_u64(seed, stream, 9) % (uint64_t)n);
}

/* Two sizes of memory by two batches, each with its database. */
static void open_worlds(struct world w[4])
{
    for (int i = 0; i < 4; i++) {
        char text[512];

        snprintf(text, sizeof text,
                 "format: 1\nmodel: {preset: llama3-8b, layers: 8}\n"
                 "cluster: {system: dgx-h100, nodes: 1, gpus_per_node: 8}\n"
                 "workload: {seq: 1024, global_batch: %d}\n"
                 "limits: {memory: %s}\n",
                 i % 2 ? 24 : 16, i / 2 ? "14GiB" : "80GiB");
        parse_world(&w[i], text);
    }
}

/* Memory matters where there is one stage, for layers are then not free. */
static const struct world *random_wish(uint64_t seed, const struct world w[4],
                                       struct wish *out)
{
    static const int sizes[] = {1, 2, 4, 8, 3, 16};
    static const int batches[] = {1, 2, 4, 3, 5, 64};
    bool is_tight = seed % 3 == 0;

    out->v[0] = sizes[pick(seed, 1, 6)];
    out->v[1] = is_tight ? 1 : sizes[pick(seed, 2, 5)];
    int fitting = 8 / (out->v[0] * out->v[1]);

    out->v[2] = seed % 2 ? sizes[pick(seed, 3, 6)] : fitting > 0 ? fitting : 1;
    out->v[3] = batches[pick(seed, 4, 6)];
    out->v[4] = pick(seed, 5, 4);
    return &w[2 * is_tight + (seed % 5 == 4)];
}

/* Legal under all rules of a layout, inside a node, and within memory. */
static bool is_possible(const struct world *w, const struct wish *wish)
{
    struct mw_layout l;
    struct mw_plan plan;
    struct mw_step_opts opts = {.no_breakdown = true};
    struct mw_step_result step;
    bool fits = false;

    mw_layout_default(&l);
    l.tp = wish->v[0];
    l.pp = wish->v[1];
    l.dp = wish->v[2];
    l.micro_batch = wish->v[3];
    l.zero = wish->v[4];
    l.sp = l.tp > 1;
    l.schedule = "1f1b";
    if (l.tp > 8 ||
        mw_layout_check(&l, &w->scenario.model, &w->scenario.workload, 8, NULL,
                        NULL) != MW_OK ||
        mw_plan_make(&w->scenario, &l, NULL, &plan, NULL) != MW_OK) {
        return false;
    }
    if (mw_step_simulate(&w->scenario, &plan, &w->ctx, &opts, &step, NULL) ==
        MW_OK) {
        fits = step.fits;
        mw_step_result_release(&step);
    }
    mw_plan_release(&plan);
    return fits;
}

static void pin(const struct wish *wish, struct mw_search_opts *o)
{
    mw_search_opts_default(o);
    o->tp = wish->v[0];
    o->pp = wish->v[1];
    o->dp = wish->v[2];
    o->micro_batch = wish->v[3];
    o->zero = wish->v[4];
    o->cp = o->vpp = 1;
    o->recompute = MW_RECOMPUTE_NONE;
    o->schedule = "1f1b";
    o->offload_optimizer = o->offload_weights = o->offload_activations = 0;
    o->is_quiet = true;
    o->top = 1;
}

/* The value of "NAME=VALUE instead of"; -1: not said below or above. */
static int said(const struct mw_changes *c, const char *name, int asked,
                bool is_above)
{
    for (int i = 0; i < c->n; i++) {
        size_t n = strlen(name);
        int value;

        if (strncmp(c->v[i].what, name, n) == 0 && c->v[i].what[n] == '=' &&
            sscanf(c->v[i].what + n + 1, "%d", &value) == 1 &&
            (value > asked) == is_above) {
            return value;
        }
    }
    return -1;
}

static bool is_freed(const struct mw_changes *c, const char *name)
{
    char what[64];

    snprintf(what, sizeof what, "%s other than asked for", name);
    for (int i = 0; i < c->n; i++) {
        if (strcmp(c->v[i].what, what) == 0) {
            return true;
        }
    }
    return false;
}

/* The nearest possible value on one side by hand. */
static int nearest(const struct world *w, struct wish wish, int k, int step)
{
    for (int v = wish.v[k] + step; v >= 0 && v <= VALUES; v += step) {
        struct wish other = wish;

        other.v[k] = v;
        if (v >= (k == 4 ? 0 : 1) && v <= (k == 4 ? 3 : VALUES) &&
            is_possible(w, &other)) {
            return v;
        }
    }
    return -1;
}

static void test_nearest_against_brute_force(void **state)
{
    (void)state;
    struct world *worlds = mw_calloc(4, sizeof *worlds);
    int n_impossible = 0, n_helped = 0, n_joint = 0;

    open_worlds(worlds);
    for (uint64_t seed = 0; seed < WISHES; seed++) {
        struct wish wish;
        struct mw_search_opts opts;
        struct mw_search_result r;
        struct mw_changes *c = mw_calloc(1, sizeof *c);

        const struct world *w = random_wish(seed, worlds, &wish);

        pin(&wish, &opts);
        bool can = mw_search(&w->scenario, &w->ctx, &opts, &r, NULL) == MW_OK;

        mw_search_result_release(&r);
        assert_int_equal(can, is_possible(w, &wish));
        if (!can) {
            mw_changes_find(&w->scenario, &w->ctx, &opts, c);
            n_impossible++;
            n_joint += c->is_joint;
        }
        for (int k = 0; k < N_SIZES && !can; k++) {
            if (k == 1 && seed % 3 == 0) {
                continue; /* memory may ask for other layers a stage */
            }
            int below = nearest(w, wish, k, -1), above = nearest(w, wish, k, 1);

            assert_int_equal(is_freed(c, names[k]), below >= 0 || above >= 0);
            assert_int_equal(said(c, names[k], wish.v[k], false), below);
            assert_int_equal(said(c, names[k], wish.v[k], true), above);
            n_helped += below >= 0 || above >= 0;
        }
        mw_free(c);
    }
    for (int i = 0; i < 4; i++) {
        close_world(&worlds[i]);
    }
    mw_free(worlds);
    assert_true(n_impossible > WISHES / 2 && n_helped > WISHES / 3 &&
                n_joint > WISHES / 12);
}

static const struct mw_change *find(const struct mw_changes *c,
                                    const char *text)
{
    for (int i = 0; i < c->n; i++) {
        if (strstr(c->v[i].what, text)) {
            return &c->v[i];
        }
    }
    return NULL;
}

static void changes_of(const char *text, struct mw_changes *out)
{
    struct world w;
    struct mw_search_opts opts;
    struct mw_search_result r;

    parse_world(&w, text);
    mw_search_opts_default(&opts);
    opts.is_quiet = true;
    opts.schedule = "1f1b"; /* a small space */
    opts.vpp = 1;
    opts.recompute = MW_RECOMPUTE_NONE;
    opts.zero = 1;
    opts.offload_optimizer = opts.offload_weights = 0;
    opts.offload_activations = 0;
    assert_int_equal(mw_search(&w.scenario, &w.ctx, &opts, &r, NULL), MW_ENO);
    mw_search_result_release(&r);
    mw_changes_find(&w.scenario, &w.ctx, &opts, out);
    close_world(&w);
}

#define HEAD                                                                   \
    "format: 1\nmodel: {preset: llama3-8b, layers: 8}\n"                       \
    "cluster: {system: dgx-h100, nodes: %s}\n"                                 \
    "workload: {seq: 1024, global_batch: %s}\nlimits: {%s}\n"

/* tp 5 and pp 3 divide nothing of 16 ranks; dropping one does not help, and
 * the micro-batch has no part in it. */
static void test_limits_that_bind_together(void **state)
{
    (void)state;
    struct mw_changes *c = mw_calloc(1, sizeof *c);
    char text[512];

    snprintf(text, sizeof text, HEAD, "2", "32",
             "tp: [5], pp: [3], micro_batch: [1]");
    changes_of(text, c);
    assert_true(c->is_joint);
    assert_int_equal(c->n, 1);
    assert_string_equal(c->v[0].what,
                        "without limits: tp, and without limits: pp");
    mw_free(c);
}

/* 13 nodes of a GPU, 8 layers: 12 or 14 divide, or a batch does. */
static void test_batches_and_nodes(void **state)
{
    (void)state;
    struct mw_changes *c = mw_calloc(1, sizeof *c);
    char text[512];

    snprintf(text, sizeof text, HEAD, "13, gpus_per_node: 1", "32", "");
    changes_of(text, c);
    assert_non_null(find(c, "global_batch 26 instead of 32"));
    assert_non_null(find(c, "global_batch 39 instead of 32"));
    assert_non_null(find(c, "1 of the 13 nodes standing by"));
    assert_non_null(find(c, "14 nodes instead of 13"));
    mw_free(c);
}

/* At most 10 stages (8 layers, the embedding, the head) of replicas that divide
 * a batch of 32. */
static bool divides(int ranks)
{
    for (int pp = 1; pp <= 10; pp++) {
        if (ranks % pp == 0 && 32 % (ranks / pp) == 0) {
            return true;
        }
    }
    return false;
}

/* By hand: 24 for 21, 36 for 33, 56 for 49, 72 for 65; one or two more do not
 * divide. */
static void test_fewest_nodes(void **state)
{
    (void)state;
    static const int given[] = {21, 33, 49, 65};

    for (size_t i = 0; i < sizeof given / sizeof given[0]; i++) {
        struct mw_changes *c = mw_calloc(1, sizeof *c);
        char text[512], nodes[64];
        int fewest = given[i] + 1;

        while (!divides(fewest)) {
            fewest++;
        }
        snprintf(nodes, sizeof nodes, "%d, gpus_per_node: 1", given[i]);
        snprintf(text, sizeof text, HEAD, nodes, "32", "");
        changes_of(text, c);
        snprintf(nodes, sizeof nodes, "%d nodes instead of %d", fewest,
                 given[i]);
        assert_non_null(find(c, nodes));
        mw_free(c);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_nearest_against_brute_force),
        cmocka_unit_test(test_limits_that_bind_together),
        cmocka_unit_test(test_batches_and_nodes),
        cmocka_unit_test(test_fewest_nodes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
