/*
 * Fast form against event form on random layouts: within 3 %, and the same
 * memory to the bit. Regular layouts: even partitions of a few models on two
 * machines, every combination of ways that the rules allow, every training
 * stack.
 */
#include "mw_test.h"

#include "base/rand.h"
#include "sim/coll/coll_library.h"
#include "step_fixture.h"

#include <math.h>

enum { WANTED = 500, TRIES = 40000 };

static int pick(const int *from, size_t n, uint64_t stream, uint64_t i)
{
    return from[mw_rand_u64(11, stream, i) % n];
}

static bool draw(struct mw_layout *l, const struct mw_scenario *s, uint64_t i)
{
    static const int powers[] = {1, 2, 4, 8, 16};
    static const char *const kinds[] = {"1f1b", "interleaved-1f1b", "gpipe",
                                        "zb-h1", "interleaved-1f1b"};

    mw_layout_default(l);
    l->tp = pick(powers, 4, 1, i);
    l->pp = pick(powers, 5, 2, i);
    l->dp = 32 / (l->tp * l->pp);
    l->micro_batch = pick(powers, 4, 3, i);
    l->sp = mw_rand_u64(11, 4, i) % 2 == 0 && l->tp > 1;
    l->zero = (int)(mw_rand_u64(11, 5, i) % 4);
    l->recompute = (enum mw_recompute)(mw_rand_u64(11, 6, i) % 3);
    if (l->recompute == MW_RECOMPUTE_SELECTIVE && i % 4 == 1) {
        l->recompute_modules = (int)(mw_rand_u64(11, 9, i) % 16);
    }
    l->overlap_off = i % 3 == 1 ? (int)(mw_rand_u64(11, 10, i) % 8) : 0;
    if (l->zero < 2 && i % 2 == 0) {
        l->bucket_size = 1 << (14 + mw_rand_u64(11, 12, i) % 14);
    }
    if (l->zero == 3 && i % 2 == 0) {
        l->fsdp_unit = (int)(mw_rand_u64(11, 13, i) % 6);
        l->fsdp_prefetch = (int)(mw_rand_u64(11, 14, i) % 4) - 1;
    }
    l->cuda_graph = (enum mw_cuda_graph)(i % 7 == 5 ? i / 7 % 5 : 0);
    l->schedule = kinds[mw_rand_u64(11, 7, i) % 5];
    l->vpp = strcmp(l->schedule, "interleaved-1f1b") == 0
                 ? pick(powers + 1, 3, 8, i)
                 : 1;
    l->vpp_group = l->vpp > 1 && i % 2 == 0 ? l->pp << i / 2 % 3 : 0;
    return l->dp >= 1 && mw_layout_ranks(l) == 32 &&
           mw_layout_check(l, &s->model, &s->workload, 32, NULL, NULL) == MW_OK;
}

/* The event form with every wire to itself, which is what the fast form means;
 * and with wires shared, where the same end comes out of the same graph. */
static double event_s(const struct mw_scenario *s, const struct mw_layout *l,
                      const struct mw_cost_ctx *ctx)
{
    struct mw_step_opts alone = {.no_breakdown = true, .no_sharing = true};
    struct mw_step_opts shared = {.no_breakdown = true};
    struct mw_step_result a, b;
    struct mw_plan plan;

    step_plan(&plan, s, l);
    assert_int_equal(mw_step_simulate(s, &plan, ctx, &alone, &a, NULL), MW_OK);
    assert_int_equal(mw_step_simulate(s, &plan, ctx, &shared, &b, NULL), MW_OK);
    assert_true(b.shared_wires_s >= 0);
    mw_assert_near(b.step_time_s - b.shared_wires_s, a.step_time_s, 1e-12, 0);
    double alone_s = a.step_time_s;

    mw_step_result_release(&a);
    mw_step_result_release(&b);
    mw_plan_release(&plan);
    return alone_s;
}

static void compare(const struct mw_scenario *s, const struct mw_layout *l,
                    const struct mw_cost_ctx *ctx, double *worst)
{
    struct mw_step_result r;
    struct mw_err err = {0};
    double fast_s, peak;

    step_simulate(&r, s, l, ctx, NULL);
    r.step_time_s = event_s(s, l, ctx);
    assert_int_equal(mw_step_estimate(s, l, NULL, ctx, &fast_s, &peak, &err),
                     MW_OK);
    double error = fabs(fast_s / r.step_time_s - 1);
    if (error > 0.03) {
        fail_msg("%s tp%d pp%d dp%d mbs%d zero%d %s: fast %g, event %g",
                 s->cluster.system, l->tp, l->pp, l->dp, l->micro_batch,
                 l->zero, l->schedule, fast_s, r.step_time_s);
    }
    *worst = fmax(*worst, error);
    assert_memory_equal(&peak, &r.peak_bytes, sizeof peak);
    mw_step_result_release(&r);
}

static size_t n_stacks(void)
{
    size_t n = 0;

    while (mw_stack_name(n) != NULL) {
        n++;
    }
    return n;
}

static void test_forms_agree(void **state)
{
    struct mw_hwdb *db = step_hwdb();
    mw_coll_library_lend(db);
    double worst = 0;
    int n = 0;

    (void)state;
    for (uint64_t i = 0; n < WANTED && i < TRIES; i++) {
        struct mw_scenario s;
        struct mw_cost_ctx ctx;
        struct mw_layout l;

        step_scenario(&s, i % 2 == 0 ? "dgx-a100" : "dgx-h100", 4,
                      i % 3 == 0 ? 64 : 256, "bf16");
        step_ctx(&ctx, db, &s);
        assert_int_equal(
            mw_cost_ctx_set_stack(&ctx, mw_stack_name(i % n_stacks()), NULL),
            MW_OK);
        ctx.net_speed = i % 5 == 0 ? 1.0 / 8 : 1; /* a slow network as well */
        struct mw_plan plan;
        if (draw(&l, &s, i) &&
            mw_plan_make(&s, &l, NULL, &plan, NULL) == MW_OK) {
            mw_plan_release(&plan);
            compare(&s, &l, &ctx, &worst);
            n++;
        }
        mw_scenario_release(&s);
    }
    assert_int_equal(n, WANTED);
    print_message("%d layouts, largest difference %.3f %%\n", n, 100 * worst);
    mw_hwdb_free(db);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_forms_agree)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
