/*
 * Faults met in other estimators of training time (llm-analysis d841e40,
 * SimuMax 4dcaae5, Metis 4b24046, MAD-Max 562db98), each with what is right.
 */
#include "mw_test.h"

#include "sim/step/ledger.h"
#include "step_fixture.h"
#include "step_units.h"

#include <math.h>

struct world {
    struct mw_hwdb *db;
    struct mw_scenario s;
    struct mw_cost_ctx ctx;
};

static void begin(struct world *w, const char *system, int nodes,
                  const char *dtype)
{
    w->db = step_hwdb();
    step_scenario(&w->s, system, nodes, 64, dtype);
    step_ctx(&w->ctx, w->db, &w->s);
}

static void end(struct world *w)
{
    mw_scenario_release(&w->s);
    mw_hwdb_free(w->db);
}

static struct mw_layout layout(int tp, int pp, int dp, int zero)
{
    struct mw_layout l;

    mw_layout_default(&l);
    l.tp = tp;
    l.pp = pp;
    l.dp = dp;
    l.zero = zero;
    l.micro_batch = 64 / dp / 8 > 0 ? 64 / dp / 8 : 1;
    return l;
}

/* "No pipeline bubble at all": of 4 stages and 8 micro-batches 3/11 of the
 * passes' time is bubble when stages are equal; here first and last do more. */
static void test_bubble(void **state)
{
    struct mw_layout l = layout(1, 4, 1, 0);
    struct mw_step_result r;
    struct world w;

    (void)state;
    begin(&w, "dgx-a100", 1, "bf16");
    step_simulate(&r, &w.s, &l, &w.ctx, NULL);
    double passes = r.step_time_s - r.breakdown_s[MW_SPAN_OPTIMIZER];
    assert_true(r.breakdown_s[MW_SPAN_BUBBLE] > 0.2 * passes);
    mw_step_result_release(&r);
    l.pp = 1;
    l.micro_batch = 8;
    step_simulate(&r, &w.s, &l, &w.ctx, NULL);
    assert_true(r.breakdown_s[MW_SPAN_BUBBLE] < 1e-9);
    mw_step_result_release(&r);
    end(&w);
}

/* "A weight all-gather per micro-batch even without ZeRO". */
static void test_no_gather_without_zero(void **state)
{
    struct mw_layout l = layout(1, 1, 8, 0);
    struct mw_ledger ledger = {NULL, 0, 0};
    struct mw_plan plan;
    struct world w;

    (void)state;
    begin(&w, "dgx-a100", 1, "bf16");
    step_plan(&plan, &w.s, &l);
    mw_step_ledger(&w.s, &plan, &w.ctx, 0, &ledger);
    assert_int_equal(ledger.n, 1);
    assert_int_equal(ledger.v[0].op, MW_ALL_REDUCE);
    mw_assert_near(ledger.v[0].count, 1, 0, 0);
    mw_array_release(&ledger);
    mw_plan_release(&plan);
    end(&w);
}

/* "Division by zero in FP8": a device without the rate is refused in words, one
 * with it is faster than in bf16. */
static void test_fp8(void **state)
{
    struct mw_layout l = layout(1, 1, 8, 0);
    struct mw_step_result r[2];
    struct mw_plan plan;
    struct mw_err err = {0};
    struct world w;

    (void)state;
    begin(&w, "dgx-a100", 1, "fp8");
    step_plan(&plan, &w.s, &l);
    assert_int_equal(mw_step_simulate(&w.s, &plan, &w.ctx, NULL, &r[0], &err),
                     MW_EINPUT);
    assert_non_null(strstr(err.text, "no fp8 rate"));
    mw_plan_release(&plan);
    end(&w);
    for (int i = 0; i < 2; i++) {
        begin(&w, "dgx-h100", 1, i == 0 ? "fp8" : "bf16");
        w.s.model.hidden = 8192;
        w.s.model.n_heads = w.s.model.n_kv_heads = 64;
        w.s.model.head_dim = 128;
        w.s.model.ffn = 32768;
        step_simulate(&r[i], &w.s, &l, &w.ctx, NULL);
        assert_true(isfinite(r[i].step_time_s) && r[i].step_time_s > 0);
        end(&w);
    }
    assert_true(r[0].step_time_s < r[1].step_time_s);
    mw_step_result_release(&r[0]);
    mw_step_result_release(&r[1]);
}

/* "The bandwidth between nodes is that inside one": the same group of 8 over
 * one and over eight nodes. */
static void test_between_nodes(void **state)
{
    struct mw_group inside = {8, 1, 8, 1}, outside = {8, 8, 1, 8};
    struct world w;

    (void)state;
    begin(&w, "dgx-a100", 8, "bf16");
    double in_s =
        mw_cost_coll(&w.ctx, MW_ALL_REDUCE, 1e9, &inside, NULL).time_s;
    double out_s =
        mw_cost_coll(&w.ctx, MW_ALL_REDUCE, 1e9, &outside, NULL).time_s;
    /* 300 GB/s of NVLink against a share of 8 x 25 GB/s */
    assert_true(out_s > 6 * in_s && out_s < 15 * in_s);
    end(&w);
}

/* "LLaMA2-70B has 50.55 B parameters": grouped queries and three matrices in
 * the MLP make 68.98 B. */
static void test_parameters(void **state)
{
    struct mw_model m;

    (void)state;
    assert_int_equal(mw_model_preset("llama2-70b", &m, NULL), MW_OK);
    mw_assert_near((double)mw_model_param_count(&m), 68.98e9, 1e-3, 0);
}

/* "ZeRO-2 and -3 accepted, then ignored": each stage shards one thing more. */
static void test_zero_counts(void **state)
{
    struct mw_step_result r[4];
    struct world w;

    (void)state;
    begin(&w, "dgx-a100", 1, "bf16");
    for (int zero = 0; zero <= 3; zero++) {
        struct mw_layout l = layout(1, 1, 8, zero);

        step_simulate(&r[zero], &w.s, &l, &w.ctx, NULL);
    }
    const struct mw_stage_memory *none = r[0].memory;
    for (int zero = 1; zero <= 3; zero++) {
        const struct mw_stage_memory *m = r[zero].memory;

        mw_assert_near(m->optimizer_bytes, none->optimizer_bytes / 8, 1e-12, 0);
        mw_assert_near(m->grad_bytes, none->grad_bytes / (zero >= 2 ? 8 : 1),
                       1e-12, 0);
        mw_assert_near(m->weight_bytes,
                       none->weight_bytes / (zero >= 3 ? 8 : 1), 1e-12, 0);
        assert_true(fabs(r[zero].step_time_s - r[zero - 1].step_time_s) > 1e-6);
    }
    for (int zero = 0; zero <= 3; zero++) {
        mw_step_result_release(&r[zero]);
    }
    end(&w);
}

/* "A best plan of -20,936 ms": no stack, phase or lane takes negative time. */
static void test_no_negative_time(void **state)
{
    struct world w;

    (void)state;
    begin(&w, "dgx-h100", 4, "bf16");
    for (size_t i = 0; mw_stack_name(i) != NULL; i++) {
        for (int zero = 0; zero <= 3; zero++) {
            struct mw_layout l = layout(2, 2, 8, zero);
            assert_int_equal(
                mw_cost_ctx_set_stack(&w.ctx, mw_stack_name(i), NULL), MW_OK);
            const enum mw_step_unit units[] = {MW_UNIT_DENSE, MW_UNIT_EMBEDDING,
                                               MW_UNIT_HEAD};

            for (int k = 0; k < 3; k++) {
                struct step_unit_s part =
                    step_unit_cost(&w.s, &l, &w.ctx, units[k]);

                assert_true(part.f_s >= 0 && part.b_s >= 0 && part.w_s >= 0);
            }
        }
    }
    end(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bubble),
        cmocka_unit_test(test_no_gather_without_zero),
        cmocka_unit_test(test_fp8),
        cmocka_unit_test(test_between_nodes),
        cmocka_unit_test(test_parameters),
        cmocka_unit_test(test_zero_counts),
        cmocka_unit_test(test_no_negative_time)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
