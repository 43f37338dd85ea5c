/*
 * Uneven routers: the busiest rank by hand on small tables, and a step whose
 * operators follow it.
 */
#include "mw_test.h"

#include "sim/step/router_load.h"
#include "step_fixture.h"
#include "unit/hwdb/hwdb_overlay.h"

#include <inttypes.h>

struct world {
    struct overlay overlay;
    struct mw_hwdb *db;
    struct mw_scenario s;
    struct mw_cost_ctx ctx;
};

/* Four experts in two layers of four, four sequences, top 1. */
static void scenario(struct mw_scenario *out, int batch)
{
    step_scenario_of(
        out,
        "format: 1\nname: t\nmodel: {hidden: 64, layers: 4, heads: 4, ffn: "
        "128, "
        "vocab: 256, gated: true, norm: rms, position: rotary, moe: {experts: "
        "4, top_k: 1, ffn: 64, every: 2}}\n"
        "cluster: {system: this-machine, nodes: 1, gpus_per_node: 4}\n"
        "workload: {seq: 2048, global_batch: %d, dtype: fp32, grad_dtype: "
        "fp32}\n",
        batch);
}

/* rows[layer 0 or 1][sequence][expert] */
static void open_world(struct world *w, const int rows[2][4][4], bool is_named,
                       const char *more)
{
    struct mw_err err = {0};
    char text[4096];
    int n = snprintf(text, sizeof text, "layer,sequence,expert,rows\n");

    scenario(&w->s, 4);
    overlay_make(&w->overlay);
    for (int i = 0; i < 32; i++) {
        n += snprintf(text + n, sizeof text - (size_t)n, "%d,%d,%d,%d\n",
                      2 * (i / 16) + 1, i / 4 % 4, i % 4,
                      rows[i / 16][i / 4 % 4][i % 4]);
    }
    snprintf(text + n, sizeof text - (size_t)n, "%s", more);
    overlay_put(&w->overlay, "router.csv", text);
    snprintf(text, sizeof text, "key,value\nrouter_scenario,%016" PRIx64 "\n",
             is_named ? w->s.hash : 1);
    overlay_put(&w->overlay, "machine.csv", text);
    assert_int_equal(mw_hwdb_load(w->overlay.dir, &w->db, &err), MW_OK);
    step_ctx(&w->ctx, w->db, &w->s);
}

static void close_world(struct world *w)
{
    mw_scenario_release(&w->s);
    mw_hwdb_free(w->db);
    overlay_remove(&w->overlay);
}

static struct mw_layout layout(int dp, int ep, int pp)
{
    struct mw_layout l;

    mw_layout_default(&l);
    l.dp = dp;
    l.ep = ep;
    l.pp = pp;
    return l;
}

static const int uneven[2][4][4] = {
    {{8, 0, 0, 0}, {4, 4, 0, 0}, {2, 2, 2, 2}, {0, 0, 0, 8}},
    {{0, 0, 0, 8}, {2, 2, 2, 2}, {2, 2, 2, 2}, {8, 0, 0, 0}}};

static void expect(const struct world *w, const struct mw_layout *l,
                   double synced, double apart)
{
    struct mw_router_load load = mw_router_load_of(&w->ctx, &w->s, l);

    mw_assert_near(load.synced, synced, 1e-12, 0);
    mw_assert_near(load.apart, apart, 1e-12, 0);
}

static void test_by_hand(void **state)
{
    struct mw_layout l = layout(4, 4, 1);
    struct world w;

    (void)state;
    open_world(&w, uneven, true, "");
    /* All together: experts get 14 6 2 10 of 32, then 12 4 4 12; both layers
     * 26 10 6 22 of 64. */
    expect(&w, &l, (14.0 / 8 + 12.0 / 8) / 2, 26.0 / 16);
    /* Two groups of two replicas, experts 0 1 and 2 3: 16 : 0 and 4 : 12, then
     * 6 : 10 ... of group one 16 0, 4 12; of group two 4 12, 12 4. */
    l.ep = 2;
    expect(&w, &l, (16.0 / 8 + 12.0 / 8) / 2, 20.0 / 16);
    /* A layer of experts to each of two stages: nothing to even out. One
     * group, two micro-batches, of sequences 0 and 2, then 1 and 3. */
    l = layout(2, 2, 2);
    expect(&w, &l, (12.0 / 8 + 12.0 / 8 + 8.0 / 8 + 12.0 / 8) / 4,
           (12.0 / 8 + 12.0 / 8 + 8.0 / 8 + 12.0 / 8) / 4);
    /* The same where nothing is spread. */
    l.ep = 1;
    expect(&w, &l, 1, 1);
    close_world(&w);
}

/* A layer that is recomputed runs R, B and W before the next one does. */
static void test_layer_by_layer(void **state)
{
    struct mw_layout l = layout(4, 4, 1);
    struct world w;

    (void)state;
    open_world(&w, uneven, true, "");
    l.recompute = MW_RECOMPUTE_FULL;
    expect(&w, &l, 13.0 / 8, 13.0 / 8);
    close_world(&w);
}

/* Counts of another scenario say nothing. */
static void test_of_this_scenario(void **state)
{
    struct mw_layout l = layout(4, 4, 1);
    struct mw_err err = {0};
    struct world w;

    (void)state;
    open_world(&w, uneven, false, "");
    expect(&w, &l, 1, 1);
    assert_int_equal(mw_router_check(&w.ctx, &w.s, &err), MW_OK);
    close_world(&w);
    open_world(&w, uneven, true, "1,9,0,5\n");
    expect(&w, &l, 1, 1);
    assert_int_equal(mw_router_check(&w.ctx, &w.s, &err), MW_EINPUT);
    assert_non_null(strstr(err.text, "router.csv: 33 rows are not those of 2 "
                                     "layers of 4 experts"));
    close_world(&w);
}

static double seconds(const struct world *w, const struct mw_layout *l,
                      enum mw_span_kind kind)
{
    struct mw_step_result r;
    double s;

    step_simulate(&r, &w->s, l, &w->ctx, NULL);
    s = r.breakdown_s[kind];
    mw_step_result_release(&r);
    return s;
}

/* Compute grows, messages do not; both forms follow. */
static void test_step(void **state)
{
    const struct mw_layout l = layout(4, 4, 1);
    struct world even, w;

    (void)state;
    open_world(&even, uneven, false, "");
    open_world(&w, uneven, true, "");
    assert_true(seconds(&w, &l, MW_SPAN_F) > seconds(&even, &l, MW_SPAN_F));
    assert_true(seconds(&w, &l, MW_SPAN_B) > seconds(&even, &l, MW_SPAN_B));
    assert_true(seconds(&w, &l, MW_SPAN_W) > seconds(&even, &l, MW_SPAN_W));
    mw_assert_near(seconds(&w, &l, MW_SPAN_EP), seconds(&even, &l, MW_SPAN_EP),
                   1e-12, 0);
    const struct step_world forms = {w.db, w.s, w.ctx};
    step_forms_agree(&forms, &l);
    close_world(&w);
    close_world(&even);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_by_hand),
        cmocka_unit_test(test_layer_by_layer),
        cmocka_unit_test(test_of_this_scenario),
        cmocka_unit_test(test_step),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
