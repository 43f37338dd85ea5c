/*
 * Uneven routers given by the scenario, and capacities of experts: the busiest
 * rank by hand, and what products, exchanges and memory make of it.
 */
#include "mw_test.h"

#include "sim/coll/coll_library.h"
#include "sim/step/fast_int.h"
#include "step_units.h"
#include "unit/hwdb/hwdb_overlay.h"

enum { LAYERS = 2, EXPERTS = 32, TOP_K = 8, H = 1024, FFN = 512, SEQ = 4096 };

static void open_world(struct step_world *w, int nodes, const char *stack,
                       const char *more)
{
    step_scenario_of(&w->s,
                     "format: 1\nname: t\n"
                     "model: {hidden: %d, layers: %d, heads: 16, ffn: 4096, "
                     "vocab: 32768, moe: {experts: %d, top_k: %d, ffn: %d}}\n"
                     "cluster: {system: dgx-h100, nodes: %d}\n"
                     "workload: {seq: %d, global_batch: 64%s}\n",
                     H, LAYERS, EXPERTS, TOP_K, FFN, nodes, SEQ, more);
    w->db = step_hwdb();
    mw_coll_library_lend(w->db);
    step_ctx(&w->ctx, w->db, &w->s);
    assert_int_equal(mw_cost_ctx_set_stack(&w->ctx, stack, NULL), MW_OK);
}

static struct mw_layout layout(int dp, int ep)
{
    struct mw_layout l;

    mw_layout_default(&l);
    l.dp = dp;
    l.ep = ep;
    return l;
}

/* ---- one number ------------------------------------------------------------
 */
static void expect_load(struct mw_router_load load, double synced, double nodes,
                        double dropped)
{
    mw_assert_near(load.synced, synced, 1e-12, 0);
    mw_assert_near(load.apart, synced, 1e-12, 0);
    mw_assert_near(load.held, synced, 1e-12, 0);
    mw_assert_near(load.held_p90, synced, 1e-12, 0);
    mw_assert_near(load.nodes, nodes, 1e-9, 0);
    mw_assert_near(load.dropped, dropped, 1e-9, 1e-12);
}

static void test_one_number(void **state)
{
    const double f = 4 / (1 + 1 / 2.0 + 1 / 3.0 + 1 / 4.0); /* exponent 1 */

    (void)state;
    expect_load(mw_router_load_skewed(1, 0, 8, 8), 1, 1, 0);
    expect_load(mw_router_load_skewed(1.5, 0, 1, 1), 1, 1, 0);
    expect_load(mw_router_load_skewed(1, 0.75, 8, 8), 0.75, 0.75, 0.25);
    /* Two ranks with 3/4 and 1/4, of which 0.6 find room. */
    expect_load(mw_router_load_skewed(1.5, 1.2, 2, 2), 1.2, 0.85, 0.15);
    expect_load(mw_router_load_skewed(1.5, 0, 2, 2), 1.5, 1, 0);
    /* 12 : 6 : 4 : 3 of 25 on two nodes. */
    expect_load(mw_router_load_skewed(f, 0, 4, 2), f, 36 / 25.0, 0);
    expect_load(mw_router_load_skewed(f, 0.9, 4, 2), 0.9, 0.9,
                (12 + 6 - 2 * 0.9 * 25 / 4) / 25);
    /* All on one rank. */
    expect_load(mw_router_load_skewed(99, 0, 4, 1), 4, 4, 0);
    struct mw_router_load load = mw_router_load_skewed(1.5, 1.2, 2, 2);

    expect_load(mw_router_load_padded(&load, 1.2), 1.2, 1.2, 0.15);
}

/* ---- products --------------------------------------------------------------
 */
/* Seconds of what experts compute in a phase with even routers. */
static double routed_s(const struct step_world *w, struct mw_step_price *p,
                       enum mw_phase phase)
{
    struct mw_ops ops = {NULL, 0, 0};
    double sum = 0;

    mw_step_unit_ops(p, MW_UNIT_MOE, phase, &ops);
    for (size_t i = 0; i < ops.n; i++) {
        if (ops.v[i].is_routed) {
            sum += mw_cost_op(&w->ctx, &ops.v[i], NULL).time_s;
        }
    }
    mw_array_release(&ops);
    return sum;
}

/* What f times the rows cost: with f 2 those of a micro-batch of two. */
static void test_products(void **state)
{
    static const enum mw_phase phases[] = {MW_PHASE_F, MW_PHASE_B, MW_PHASE_W};
    struct mw_layout l = layout(8, 8), twice = layout(8, 8);
    struct step_world even, skewed;

    (void)state;
    twice.micro_batch = 2;
    open_world(&even, 1, "megatron-core", "");
    open_world(&skewed, 1, "megatron-core", ", expert_imbalance: 2");
    even.ctx.stack.contends = skewed.ctx.stack.contends = false;
    struct mw_step_price a = step_priced(&even, &l),
                         b = step_priced(&skewed, &l);
    struct mw_step_price c = step_priced(&even, &twice);

    for (int i = 0; i < 3; i++) {
        double once = routed_s(&even, &a, phases[i]);
        double more = routed_s(&even, &c, phases[i]) - once;

        mw_assert_near(b.cost[MW_UNIT_MOE].phase[phases[i]].s[MW_LANE_COMPUTE],
                       a.cost[MW_UNIT_MOE].phase[phases[i]].s[MW_LANE_COMPUTE] +
                           more,
                       1e-12, 0);
        /* Larger products reach a higher rate. */
        assert_true(more > 0.5 * once && more <= 1.001 * once);
    }
    step_world_close(&even);
    step_world_close(&skewed);
}

/* ---- exchanges -------------------------------------------------------------
 */
static double exchange_s(const char *stack, int nodes, const char *more,
                         double *out_bytes)
{
    struct step_world w;
    const struct mw_layout l = layout(8 * nodes, 8 * nodes);

    open_world(&w, nodes, stack, more);
    struct mw_ledger_row row =
        step_ledger_row(&w, &l, MW_DIM_EP, MW_ALL_TO_ALL);

    step_world_close(&w);
    *out_bytes = row.message_bytes;
    return row.time_s;
}

/* An exchange ends with the busiest rank's: of all-to-alls as with f times the
 * bytes; kernels that were measured take the same each byte. */
static void test_exchanges(void **state)
{
    static const char *const stacks[] = {"megatron-core",
                                         "megatron-core-serial"};

    (void)state;
    for (int i = 0; i < 2; i++) {
        double bytes[3], s[3];

        s[0] = exchange_s(stacks[i], 1, "", &bytes[0]);
        s[1] = exchange_s(stacks[i], 1, ", expert_imbalance: 2", &bytes[1]);
        s[2] = exchange_s(stacks[i], 1, ", expert_imbalance: 3", &bytes[2]);
        mw_assert_near(bytes[1], 2 * bytes[0], 1e-12, 0);
        mw_assert_near(bytes[2], 3 * bytes[0], 1e-12, 0);
        assert_true(s[1] > 1.3 * s[0] && s[1] <= 2 * s[0]);
        mw_assert_near(s[2] - s[1], s[1] - s[0], i == 0 ? 1e-9 : 0.1, 0);
    }
}

/* ---- capacity --------------------------------------------------------------
 */
static struct mw_step_result simulated_by(const char *stack, const char *more,
                                          const struct mw_layout *l)
{
    struct mw_step_result r;
    struct step_world w;

    open_world(&w, 1, stack, more);
    step_simulate(&r, &w.s, l, &w.ctx, NULL);
    step_world_close(&w);
    return r;
}

static struct mw_step_result simulated(const char *more,
                                       const struct mw_layout *l)
{
    return simulated_by("megatron-core", more, l);
}

static void expect_alike(const char *one, const char *other, int ep)
{
    const struct mw_layout l = layout(8, ep);
    struct mw_step_result a = simulated(one, &l), b = simulated(other, &l);

    assert_memory_equal(&a.step_time_s, &b.step_time_s, sizeof a.step_time_s);
    assert_memory_equal(&a.peak_bytes, &b.peak_bytes, sizeof a.peak_bytes);
    mw_step_result_release(&a);
    mw_step_result_release(&b);
}

static void test_capacity(void **state)
{
    const struct mw_layout l = layout(8, 8), alone = layout(8, 1);

    (void)state;
    expect_alike("", ", expert_imbalance: 1", 8);
    expect_alike("", ", capacity_factor: 1", 8);
    expect_alike("", ", capacity_factor: 1, pad_to_capacity: true", 1);
    expect_alike(", expert_imbalance: 1.5",
                 ", expert_imbalance: 3, capacity_factor: 1.5", 8);
    expect_alike(", expert_imbalance: 1.5",
                 ", capacity_factor: 1.5, pad_to_capacity: true", 8);
    struct mw_step_result a = simulated("", &alone);
    struct mw_step_result b =
        simulated(", capacity_factor: 2, pad_to_capacity: true", &alone);
    struct mw_step_result c =
        simulated(", expert_imbalance: 3, capacity_factor: 1.5", &l);

    assert_true(b.breakdown_s[MW_SPAN_F] > a.breakdown_s[MW_SPAN_F]);
    assert_true(b.peak_bytes > a.peak_bytes);
    mw_assert_near(b.router_load, 2, 0, 0);
    mw_assert_near(b.router_dropped, 0, 0, 0);
    assert_true(c.router_dropped > 0.1 && c.router_dropped < 0.5);
    mw_step_result_release(&a);
    mw_step_result_release(&b);
    mw_step_result_release(&c);
}

/* ---- memory ----------------------------------------------------------------
 */
/* Kept of what was routed here: the inputs of both products and of the
 * activation, gate and up. */
static void test_memory(void **state)
{
    const struct mw_layout l = layout(8, 8);
    double rows = (double)SEQ * TOP_K;
    double more = 0.5 * LAYERS * 2 * rows * (H + 3 * FFN);
    struct mw_step_result a = simulated_by("plain", "", &l);
    struct mw_step_result b =
        simulated_by("plain", ", expert_imbalance: 1.5", &l);

    (void)state;
    mw_assert_near(b.memory[0].activation_bytes - a.memory[0].activation_bytes,
                   more, 0, LAYERS);
    assert_true(b.memory[0].temporary_bytes >= a.memory[0].temporary_bytes);
    mw_step_result_release(&a);
    mw_step_result_release(&b);
}

/* ---- counts ----------------------------------------------------------------
 */
/* Four experts in two layers of four, four sequences, top 1. */
static enum mw_status parse(struct mw_scenario *out, const char *dir,
                            const char *system, const char *more,
                            struct mw_err *err)
{
    char text[1024], path[OVERLAY_PATH_MAX + 16];

    snprintf(text, sizeof text,
             "format: 1\nname: t\nmodel: {hidden: 64, layers: 4, heads: 4, "
             "ffn: 128, vocab: 256, moe: {experts: 4, top_k: 1, ffn: 64, "
             "every: 2}}\ncluster: {system: %s, nodes: 1, gpus_per_node: 4}\n"
             "workload: {seq: 2048, global_batch: 4%s}\n",
             system, more);
    snprintf(path, sizeof path, "%s/t.yaml", dir);
    return mw_scenario_parse(path, text, strlen(text), out, err);
}

static void put_counts(struct overlay *o, const int rows[2][4][4], int steps)
{
    char text[4096];
    int n = snprintf(text, sizeof text, "layer,sequence,expert,rows\n");

    for (int i = 0; i < 32 * steps; i++) {
        int q = i / 4 % 4;

        /* The second step is even. */
        n += snprintf(text + n, sizeof text - (size_t)n, "%d,%d,%d,%d\n",
                      2 * (i / 16 % 2) + 1, 4 * (i / 32) + q, i % 4,
                      i < 32 ? rows[i / 16][q][i % 4] : 2);
    }
    overlay_put(o, "counts.csv", text);
}

static const int uneven[2][4][4] = {
    {{8, 0, 0, 0}, {4, 4, 0, 0}, {2, 2, 2, 2}, {0, 0, 0, 8}},
    {{0, 0, 0, 8}, {2, 2, 2, 2}, {2, 2, 2, 2}, {8, 0, 0, 0}}};

static struct mw_router_load counted(const struct overlay *o, const char *more,
                                     const struct mw_layout *l,
                                     double *out_p90_over_p50)
{
    struct mw_router_load load;
    struct mw_step_result r;
    struct mw_err err = {0};
    struct step_world w;

    if (parse(&w.s, o->dir, "dgx-h100", more, &err) != MW_OK) {
        fail_msg("%s", err.text);
    }
    step_world_price(&w);
    load = mw_router_load_of(&w.ctx, &w.s, l);
    step_simulate(&r, &w.s, l, &w.ctx, NULL);
    *out_p90_over_p50 = r.reserved_p90_bytes / r.reserved_bytes;
    step_forms_agree(&w, l);
    mw_step_result_release(&r);
    step_world_close(&w);
    return load;
}

static void test_counts(void **state)
{
    const struct mw_layout l = layout(4, 4);
    struct mw_router_load load;
    struct overlay o;
    double ratio, even;

    (void)state;
    overlay_make(&o);
    put_counts(&o, uneven, 1);
    load = counted(&o, ", router_counts: counts.csv", &l, &even);
    mw_assert_near(load.synced, 13.0 / 8, 1e-12, 0);
    mw_assert_near(load.apart, 26.0 / 16, 1e-12, 0);
    mw_assert_near(load.held, 26.0 / 16, 1e-12, 0);
    /* Two rows of an expert and sequence: 6 4 2 4 and 6 4 4 6 are left. */
    load = counted(&o, ", router_counts: counts.csv, capacity_factor: 1", &l,
                   &ratio);
    mw_assert_near(load.synced, 6.0 / 8, 1e-12, 0);
    mw_assert_near(load.held, 12.0 / 16, 1e-12, 0);
    mw_assert_near(load.dropped, 28.0 / 64, 1e-12, 0);
    /* One uneven step and one even: 0.9 of the way between them. */
    put_counts(&o, uneven, 2);
    load = counted(&o, ", router_counts: counts.csv", &l, &ratio);
    mw_assert_near(load.held, (26.0 / 16 + 1) / 2, 1e-12, 0);
    mw_assert_near(load.held_p90, 1 + 0.9 * 10 / 16, 1e-12, 0);
    assert_true(ratio > even);
    overlay_put(&o, "counts.csv", "expert,rows\n3,1\n0,5\n1,1\n2,1\n");
    load = counted(&o, ", router_counts: counts.csv", &l, &ratio);
    mw_assert_near(load.synced, 5.0 / 2, 1e-12, 0);
    overlay_remove(&o);
}

static void refused(struct overlay *o, const char *csv, const char *more,
                    const char *says)
{
    struct mw_scenario s;
    struct mw_err err = {0};

    overlay_put(o, "counts.csv", csv);
    assert_int_equal(parse(&s, o->dir, "dgx-h100", more, &err), MW_EINPUT);
    if (strstr(err.text, says) == NULL) {
        fail_msg("%s", err.text);
    }
}

static void test_refused(void **state)
{
    static const char counts[] = ", router_counts: counts.csv";
    struct overlay o;

    (void)state;
    overlay_make(&o);
    refused(&o, "", ", pad_to_capacity: true", "give capacity_factor");
    refused(&o, "", ", expert_imbalance: 0.5", "expert_imbalance");
    refused(&o, "expert,rows\n", counts, "0 rows are not those of 2 layers");
    refused(&o, "expert,count\n", counts, "layer,sequence,expert,rows or");
    refused(&o, "expert,rows\n0,1\n0,1\n1,1\n2,1\n", counts,
            "counts.csv:3: column 'expert': layer, sequence and expert stand "
            "here again");
    refused(&o, "expert,rows\n0,1\n9,1\n1,1\n2,1\n", counts,
            "not a number from 0 to 3");
    refused(&o, "expert,rows\n0,1\n3,-1\n1,1\n2,1\n", counts,
            "counts.csv:3: column 'rows'");
    refused(&o, "expert,rows\n0,1\n1,1\n2,1\n3,1\n",
            ", router_counts: counts.csv, expert_imbalance: 2",
            "leave expert_imbalance out");
    overlay_remove(&o);
}

/* Both forms, over nodes as well. */
static void test_forms(void **state)
{
    static const char *const more[] = {
        ", expert_imbalance: 1.7", ", expert_imbalance: 3, capacity_factor: 1",
        ", capacity_factor: 1.25, pad_to_capacity: true"};

    (void)state;
    for (int i = 0; i < 6; i++) {
        int nodes = i < 3 ? 1 : 2;
        const struct mw_layout l = layout(8 * nodes, 8 * nodes);
        struct step_world w;

        open_world(&w, nodes, "megatron-core", more[i % 3]);
        step_forms_agree(&w, &l);
        step_world_close(&w);
    }
}

/* A search's remembered loads are those of each layout, asked for twice. */
static void test_remembered(void **state)
{
    static const int tp[] = {1, 2, 4};
    struct step_world w;

    (void)state;
    open_world(&w, 4, "megatron-core", ", expert_imbalance: 3");
    struct mw_fast *f = mw_fast_new(&w.s, &w.ctx);

    for (int i = 0; i < 2 * 3 * 5 * 2; i++) {
        struct mw_layout l = layout(32 / tp[i % 3], 1 << i / 3 % 5);

        l.tp = tp[i % 3];
        l.order = i / 15 % 2 == 0 ? "tp-cp-ep-dp-pp" : "tp-cp-ep-pp-dp";
        if (l.ep <= l.dp) {
            struct mw_router_load want = mw_router_load_of(&w.ctx, &w.s, &l);
            struct mw_router_load got = mw_fast_router_load(f, &l);

            assert_true(l.ep == 1 || want.synced > 1);
            assert_memory_equal(&got, &want, sizeof want);
        }
    }
    mw_fast_free(f);
    step_world_close(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_number), cmocka_unit_test(test_products),
        cmocka_unit_test(test_exchanges),  cmocka_unit_test(test_capacity),
        cmocka_unit_test(test_memory),     cmocka_unit_test(test_counts),
        cmocka_unit_test(test_refused),    cmocka_unit_test(test_forms),
        cmocka_unit_test(test_remembered),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
