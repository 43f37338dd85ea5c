/*
 * The explanation tree of a step: stages, units and operators whose times sum
 * up level by level to the step, and what bounds each.
 */
#include "mw_test.h"

#include "step_fixture.h"

#include <math.h>

static double sum_of(const struct mw_explain *node)
{
    double sum = 0;

    for (const struct mw_explain *c = node->first_child; c != NULL;
         c = c->next) {
        sum += c->value_s * c->count;
    }
    return sum;
}

/* Below node, at any depth: the first of that name; NULL: none. */
static const struct mw_explain *search(const struct mw_explain *node,
                                       const char *name)
{
    const struct mw_explain *found =
        strcmp(node->name, name) == 0 ? node : NULL;

    for (const struct mw_explain *c = node->first_child;
         c != NULL && found == NULL; c = c->next) {
        found = search(c, name);
    }
    return found;
}

/* The same, which must be there. */
static const struct mw_explain *at(const struct mw_explain *node,
                                   const char *name)
{
    const struct mw_explain *found = search(node, name);

    if (found == NULL) {
        fail_msg("no '%s' below '%s'", name, node->name);
    }
    return found != NULL ? found : node;
}

static void explain(const struct step_world *w, const struct mw_layout *l,
                    struct mw_explain *root)
{
    const struct mw_step_opts opts = {.explain = root, .no_breakdown = true};
    struct mw_step_result r;
    struct mw_plan plan;

    step_plan(&plan, &w->s, l);
    assert_int_equal(mw_step_simulate(&w->s, &plan, &w->ctx, &opts, &r, NULL),
                     MW_OK);
    mw_assert_near(root->value_s, r.step_time_s, 0, 0);
    mw_step_result_release(&r);
    mw_plan_release(&plan);
}

/* A unit on a stack that hides nothing: its passes are its operators, the unit
 * its passes. */
static void check_unit(const struct mw_explain *unit)
{
    if (unit->first_child == NULL) {
        assert_non_null(strstr(unit->formula, "as in stage"));
        return;
    }
    mw_assert_near(sum_of(unit), unit->value_s, 1e-9, 0);
    for (const struct mw_explain *c = unit->first_child; c != NULL;
         c = c->next) {
        if (c->first_child != NULL) {
            mw_assert_near(sum_of(c), c->value_s, 1e-9, 0);
        }
    }
}

/* Has a node such a child? */
static bool has_child(const struct mw_explain *node, const char *name)
{
    const struct mw_explain *c = node->first_child;

    while (c != NULL && strstr(c->name, name) == NULL) {
        c = c->next;
    }
    return c != NULL;
}

static void test_sums(void **state)
{
    static const char *const kinds[] = {"1f1b", "interleaved-1f1b", "dualpipe",
                                        "zb-v"};
    struct step_world w;

    (void)state;
    step_scenario(&w.s, "dgx-a100", 4, 64, "bf16");
    step_world_price(&w);
    assert_int_equal(mw_cost_ctx_set_stack(&w.ctx, "plain", NULL), MW_OK);
    w.ctx.stack.op_gap_s = w.ctx.stack.coll_gap_s = 0;
    for (int i = 0; i < 16; i++) {
        struct mw_arena arena;
        struct mw_explain root = {.name = "step", .count = 1, .arena = &arena};
        struct mw_layout l;
        int n = 0;

        mw_arena_init(&arena);
        mw_layout_default(&l);
        l.tp = 2;
        l.sp = i % 2 == 1;
        l.pp = 4;
        l.dp = 4;
        l.schedule = kinds[i % 4];
        l.vpp = i % 4 == 1 || i % 4 == 3 ? 2 : 1;
        l.zero = i / 4;
        l.fsdp_unit = l.zero == 3 ? 2 : 1;
        explain(&w, &l, &root);
        for (const struct mw_explain *stage = root.first_child; stage != NULL;
             stage = stage->next) {
            mw_assert_near(stage->value_s, root.value_s, 0, 0);
            mw_assert_near(sum_of(stage), root.value_s, 1e-9, 0);
            assert_true(at(stage, "waiting")->value_s >= 0);
            check_unit(at(stage, "dense layer"));
            assert_int_equal(has_child(stage, "ZeRO gather and scatter"),
                             l.zero == 3);
            n++;
        }
        assert_true(n >= 1 && n <= 4);
        mw_arena_release(&arena);
    }
    step_world_close(&w);
}

/* Stage 1 and 2 of four are alike; 4 layers, 64 / (2 x 2) = 16 micro-batches.
 */
static void test_counts_and_bounds(void **state)
{
    struct mw_arena arena;
    struct mw_explain root = {.name = "step", .count = 1, .arena = &arena};
    struct step_world w;
    struct mw_layout l;

    (void)state;
    mw_arena_init(&arena);
    step_scenario(&w.s, "dgx-a100", 4, 64, "bf16");
    step_world_price(&w);
    mw_layout_default(&l);
    l.tp = 4;
    l.pp = 4;
    l.dp = 2;
    l.micro_batch = 2;
    explain(&w, &l, &root);
    const struct mw_explain *stage = at(&root, "stages 1 to 2");

    at(&root, "stage 3");
    mw_assert_near(at(stage, "dense layer")->count, 4 * 16, 0, 0);
    assert_string_equal(at(&root, "fc1")->bound, "compute");
    assert_string_equal(at(&root, "norm1")->bound, "latency");
    assert_string_equal(at(&root, "softmax")->bound, "memory");
    assert_string_equal(at(stage, "optimizer")->bound, "memory");
    assert_string_equal(at(stage, "gradient reduction")->bound, "links");
    assert_non_null(strstr(at(&root, "fc1")->formula, "GFLOP"));
    /* stage 0 and 3 are nodes apart */
    assert_string_equal(
        at(at(&root, "stage 0"), "reduction of the tied embedding")->bound,
        "network");
    mw_arena_release(&arena);
    step_world_close(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sums), cmocka_unit_test(test_counts_and_bounds)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
