/*
 * The ledger against textbook counts over combinations of options, worked out
 * here from the layout alone. A dense Llama: 16 layers, h 1024, 16 query and 4
 * key-value heads of 64, ffn 4096, vocabulary 32768, own head, 4096 tokens.
 *
 * Per layer and micro-batch, x = b s h / cp elements:
 *   tp      2 all-reduces of x forward, 2 backward
 *   tp, sp  2 gathers and 2 scatters each way, and 2 gathers of sharded inputs
 *           for the weight gradients
 *   cp      gather: k, v gathered twice, their gradients scattered; ring: n-1
 *           exchanges forward, 2n-1 backward; a2a: 4 each way
 *   full recomputation repeats the forward set, selective that of the core, of
 *   the first recompute_layers of each chunk
 * Embedding and head: vocabulary-parallel look-up and product, three sums of 4
 * bytes a token for the loss. Every chunk boundary: an activation up and a
 * gradient down per micro-batch. ZeRO: as in Rajbhandari et al., per unit and
 * micro-batch from stage 2 on.
 */
#include "mw_test.h"

#include "base/rand.h"
#include "sim/step/ledger.h"
#include "step_fixture.h"

#include <math.h>

#define H 1024.0
#define SEQ 4096.0
#define VOCAB 32768.0
#define FFN 4096.0
#define HEADS 16.0
#define KV_WIDTH 256.0 /* 4 heads of 64 */
enum { LAYERS = 16, RANKS = 64, BATCH = 256 };

struct row {
    double count, bytes;
};
struct table { /* by dimension, and what is of all ranks */
    struct row row[MW_DIM_COUNT + 1][MW_COLL_OP_COUNT];
};

static void add(struct table *t, enum mw_dim dim, enum mw_coll_op op,
                double count, double bytes_each)
{
    t->row[dim][op].count += count;
    t->row[dim][op].bytes += count * bytes_each;
}

/* ---- tensor parallel -------------------------------------------------------
 */
/* Part of the layers that are recomputed. */
static double part_again(const struct mw_layout *l)
{
    double chunk = (double)LAYERS / (l->pp * l->vpp);

    return l->recompute_layers > 0 && l->recompute_layers < chunk
               ? l->recompute_layers / chunk
               : 1;
}

static void expect_tp(const struct mw_layout *l, double n_layers, double m,
                      bool has_embedding, bool has_head, struct table *t)
{
    double x = 2 * l->micro_batch * SEQ / l->cp * H;
    double again = l->recompute == MW_RECOMPUTE_FULL ? 2 * part_again(l) : 0;
    double ends = has_embedding + has_head;

    if (l->tp == 1) {
        return;
    }
    if (l->sp) {
        add(t, MW_DIM_TP, MW_ALL_GATHER,
            m * (n_layers * (6 + again) + has_embedding + 2 * has_head), x);
        add(t, MW_DIM_TP, MW_REDUCE_SCATTER,
            m * (n_layers * (4 + again) + ends), x);
        /* gradients of norms; of the rank's share where they were scattered */
        double ways = l->zero >= 2 ? mw_layout_shard_ways(l) * l->cp : 1;

        add(t, MW_DIM_TP, MW_ALL_REDUCE, 1,
            4 * H * (2 * n_layers + has_head) / ways);
    } else {
        add(t, MW_DIM_TP, MW_ALL_REDUCE, m * (n_layers * (4 + again) + ends),
            x);
    }
    add(t, MW_DIM_TP, MW_ALL_REDUCE, 3 * m * has_head,
        4 * l->micro_batch * SEQ / l->cp);
}

/* ---- context parallel ------------------------------------------------------
 */
static void expect_cp(const struct mw_layout *l, double n_layers, double m,
                      struct table *t)
{
    double n = l->cp, calls = m * n_layers;
    double kv = 2 * 2 * l->micro_batch * SEQ * KV_WIDTH / l->tp;
    double q = 2 * l->micro_batch * SEQ * H / l->tp;
    double row = 4 * l->micro_batch * SEQ * HEADS / l->tp;
    double again_full = l->recompute == MW_RECOMPUTE_FULL ? part_again(l) : 0;
    double again_core = l->recompute != MW_RECOMPUTE_NONE ? part_again(l) : 0;

    if (l->cp == 1) {
        return;
    }
    switch (l->cp_form) {
    case MW_CP_GATHER:
        add(t, MW_DIM_CP, MW_ALL_GATHER, calls * (2 + again_full), kv);
        add(t, MW_DIM_CP, MW_REDUCE_SCATTER, calls, kv);
        break;
    case MW_CP_RING:
        add(t, MW_DIM_CP, MW_SEND_RECV,
            calls * ((2 + again_core) * (n - 1) + n), kv / n);
        break;
    case MW_CP_A2A:
        add(t, MW_DIM_CP, MW_ALL_TO_ALL, calls * (2 + again_core) * 2, q / n);
        add(t, MW_DIM_CP, MW_ALL_TO_ALL, calls * (2 + again_core) * 2,
            kv / 2 / n);
        break;
    case MW_CP_PASSQ:
        add(t, MW_DIM_CP, MW_SEND_RECV,
            calls * ((1 + again_core) * (n - 1) + n), q / n);
        add(t, MW_DIM_CP, MW_SEND_RECV, calls * (n - 1), (2 * q + 2 * row) / n);
        add(t, MW_DIM_CP, MW_ALL_TO_ALL, calls * (1 + again_core), q + row);
        break;
    }
}

/* ---- data parallel ---------------------------------------------------------
 */
static double layer_params(const struct mw_layout *l)
{
    return (2 * H * H + 2 * H * KV_WIDTH + 3 * H * FFN) / l->tp + 2 * H;
}

/* What is gathered and scattered at once. */
static double dp_units(const struct mw_layout *l, double n_layers,
                       bool has_embedding, bool has_head)
{
    double chunk = n_layers / l->vpp;

    return l->fsdp_unit == 0
               ? l->vpp
               : l->vpp * ceil(chunk / l->fsdp_unit) + has_embedding + has_head;
}

static void expect_dp(const struct mw_layout *l, double n_layers, double m,
                      bool has_embedding, bool has_head, struct table *t)
{
    double shard = mw_layout_shard_ways(l) * l->cp;
    double copies = (double)l->dp / mw_layout_shard_ways(l);
    double units = dp_units(l, n_layers, has_embedding, has_head);
    double n = n_layers * layer_params(l) +
               (has_embedding + has_head) * VOCAB * H / l->tp +
               has_head * H; /* final norm */
    double times = l->zero >= 2 ? m : 1, each = l->zero >= 2 ? units : 1;

    if (l->zero == 0) {
        if (shard > 1) {
            add(t, MW_DIM_DP, MW_ALL_REDUCE, 1, 4 * n);
        }
        return;
    }
    if (shard > 1) {
        double gathers = l->zero < 3 ? 1 : l->reshard ? 2 * m : m;

        add(t, MW_DIM_DP, MW_REDUCE_SCATTER, times * each, 4 * n / each);
        add(t, MW_DIM_DP, MW_ALL_GATHER, gathers * (l->zero < 3 ? 1 : units),
            2 * n / (l->zero < 3 ? 1 : units));
    }
    if (copies > 1) {
        add(t, MW_DIM_DP, MW_ALL_REDUCE, times * each, 4 * n / shard / each);
    }
}

/* ---- all -------------------------------------------------------------------
 */
static void expect_all(const struct mw_layout *l, int d, struct table *t)
{
    double m = mw_microbatches(l, &(struct mw_workload){.global_batch = BATCH});
    double chunk = (double)LAYERS / (l->pp * l->vpp), n_layers = chunk * l->vpp;
    bool has_embedding = d == 0, has_head = d == l->pp - 1;
    int last = l->pp * l->vpp - 1;

    expect_tp(l, n_layers, m, has_embedding, has_head, t);
    expect_cp(l, n_layers, m, t);
    expect_dp(l, n_layers, m, has_embedding, has_head, t);
    for (int k = d; l->pp > 1 && k <= last; k += l->pp) {
        add(t, MW_DIM_PP, MW_SEND_RECV, m * ((k > 0) + (k < last)),
            2 * l->micro_batch * SEQ / l->cp * H / (l->sp ? l->tp : 1));
    }
    if (l->zero > 0 || l->tp * l->pp > 1) { /* the norm of the gradients */
        add(t, MW_DIM_COUNT, MW_ALL_REDUCE, 1, 4);
    }
}

static void compare(const struct mw_ledger *ledger, const struct table *want,
                    const struct mw_layout *l, int d)
{
    struct table got = {{{{0, 0}}}};

    for (size_t i = 0; i < ledger->n; i++) {
        const struct mw_ledger_row *r = &ledger->v[i];

        got.row[r->dim][r->op].count += r->count;
        got.row[r->dim][r->op].bytes += r->message_bytes;
    }
    for (int dim = 0; dim <= MW_DIM_COUNT; dim++) {
        for (int op = 0; op < MW_COLL_OP_COUNT; op++) {
            struct row g = got.row[dim][op], w = want->row[dim][op];

            if (!mw_near(g.count, w.count, 1e-12, 0) ||
                !mw_near(g.bytes, w.bytes, 1e-9, 0)) {
                fail_msg("tp%d sp%d cp%d %s pp%d vpp%d dp%d zero%d/%d "
                         "reshard%d %s, stage %d, %s %s: %g of %g bytes, "
                         "not %g of %g",
                         l->tp, l->sp, l->cp, mw_cp_form_name(l->cp_form),
                         l->pp, l->vpp, l->dp, l->zero, l->dp_shard, l->reshard,
                         mw_recompute_name(l->recompute), d,
                         mw_dim_name((enum mw_dim)dim),
                         mw_coll_op_name((enum mw_coll_op)op), g.count, g.bytes,
                         w.count, w.bytes);
            }
        }
    }
}

static void draw(struct mw_layout *l, uint64_t i)
{
    mw_layout_default(l);
    l->tp = 1 << mw_rand_u64(15, 1, i) % 3;
    l->sp = l->tp > 1 && mw_rand_u64(15, 2, i) % 2 == 0;
    l->cp = 1 << mw_rand_u64(15, 3, i) % 3;
    l->cp_form = (enum mw_cp_form)(mw_rand_u64(15, 4, i) % 4);
    l->pp = 1 << mw_rand_u64(15, 5, i) % 3;
    l->vpp = l->pp > 1 ? 1 << mw_rand_u64(15, 6, i) % 3 : 1;
    l->dp = RANKS / (l->tp * l->cp * l->pp);
    l->micro_batch = 1 << mw_rand_u64(15, 7, i) % 2;
    l->zero = (int)(mw_rand_u64(15, 8, i) % 4);
    l->dp_shard = l->zero > 0 && mw_rand_u64(15, 9, i) % 2 == 0
                      ? 1 << mw_rand_u64(15, 10, i) % 4
                      : 0;
    l->reshard = l->zero < 3 || mw_rand_u64(15, 11, i) % 2 == 0;
    if (l->zero == 3 && mw_rand_u64(15, 14, i) % 2 == 0) {
        l->fsdp_unit = (int)(mw_rand_u64(15, 16, i) % 5);
        l->fsdp_prefetch = (int)(mw_rand_u64(15, 17, i) % 4) - 1;
    }
    l->recompute = (enum mw_recompute)(mw_rand_u64(15, 12, i) % 3);
    l->recompute_layers = l->recompute != MW_RECOMPUTE_NONE
                              ? (int)(mw_rand_u64(15, 13, i) % 4)
                              : 0;
    l->schedule = l->vpp > 1 ? "interleaved-1f1b" : "1f1b";
}

static void check(const struct mw_scenario *s, const struct mw_cost_ctx *ctx,
                  const struct mw_layout *l)
{
    struct mw_plan plan;

    step_plan(&plan, s, l);
    for (int d = 0; d < l->pp; d++) {
        struct mw_ledger ledger = {NULL, 0, 0};
        struct table want = {{{{0, 0}}}};

        mw_step_ledger(s, &plan, ctx, d, &ledger);
        expect_all(l, d, &want);
        compare(&ledger, &want, l, d);
        mw_array_release(&ledger);
    }
    mw_plan_release(&plan);
}

static void test_counts_of_combinations(void **state)
{
    static const char text[] =
        "format: 1\nname: t\n"
        "model: {hidden: 1024, layers: 16, heads: 16, kv_heads: 4, ffn: 4096, "
        "vocab: 32768}\n"
        "cluster: {system: dgx-h100, nodes: 8}\n"
        "workload: {seq: 4096, global_batch: 256}\n";
    struct mw_hwdb *db = step_hwdb();
    struct mw_scenario s;
    struct mw_cost_ctx ctx;
    int n = 0;

    (void)state;
    assert_int_equal(mw_scenario_parse("t.yaml", text, strlen(text), &s, NULL),
                     MW_OK);
    step_ctx(&ctx, db, &s);
    for (uint64_t i = 0; i < 1500; i++) {
        struct mw_layout l;

        draw(&l, i);
        if (mw_layout_check(&l, &s.model, &s.workload, RANKS, NULL, NULL) ==
            MW_OK) {
            check(&s, &ctx, &l);
            n++;
        }
    }
    assert_true(n > 500);
    print_message("%d layouts\n", n);
    mw_scenario_release(&s);
    mw_hwdb_free(db);
}

/* Two all-to-alls per MoE layer and direction, each of the rank's tokens times
 * the experts a token goes to; all but 1 / ep of it on the wire. */
static void test_experts(void **state)
{
    static const char text[] =
        "format: 1\nname: t\n"
        "model: {hidden: 1024, layers: 8, heads: 16, kv_heads: 4, ffn: 4096, "
        "vocab: 32768, moe: {experts: 16, top_k: 2, ffn: 2048, first_dense: "
        "2}}\n"
        "cluster: {system: dgx-h100, nodes: 1}\n"
        "workload: {seq: 4096, global_batch: 64}\n";
    struct mw_hwdb *db = step_hwdb();
    struct mw_scenario s;
    struct mw_cost_ctx ctx;

    (void)state;
    assert_int_equal(mw_scenario_parse("t.yaml", text, strlen(text), &s, NULL),
                     MW_OK);
    step_ctx(&ctx, db, &s);
    for (int ep = 2; ep <= 8; ep *= 2) {
        struct mw_layout l;
        struct mw_ledger ledger = {NULL, 0, 0};
        struct mw_plan plan;
        double n = 0, bytes = 0, wire = 0;

        mw_layout_default(&l);
        l.dp = 8;
        l.ep = ep;
        l.recompute = ep == 4 ? MW_RECOMPUTE_FULL : MW_RECOMPUTE_NONE;
        step_plan(&plan, &s, &l);
        mw_step_ledger(&s, &plan, &ctx, 0, &ledger);
        for (size_t i = 0; i < ledger.n; i++) {
            if (ledger.v[i].dim == MW_DIM_EP) {
                assert_int_equal(ledger.v[i].op, MW_ALL_TO_ALL);
                n = ledger.v[i].count;
                bytes = ledger.v[i].message_bytes;
                wire = ledger.v[i].wire_bytes;
            }
        }
        mw_assert_near(n, 8.0 * 6 * (ep == 4 ? 6 : 4), 0, 0);
        mw_assert_near(bytes, n * 2 * SEQ * 2 * H, 1e-12, 0);
        mw_assert_near(wire, bytes * (ep - 1) / ep, 1e-12, 0);
        mw_array_release(&ledger);
        mw_plan_release(&plan);
    }
    mw_scenario_release(&s);
    mw_hwdb_free(db);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_counts_of_combinations),
        cmocka_unit_test(test_experts)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
