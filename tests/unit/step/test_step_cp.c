/*
 * Context parallelism in its three forms: the same work whatever the form, the
 * textbook counts of what is sent (Liu et al., arXiv:2310.01889; Jacobs et al.,
 * arXiv:2309.14509), and which part of a ring's exchanges attention hides.
 */
#include "mw_test.h"

#include "base/rand.h"
#include "sim/step/ledger.h"
#include "step_fixture.h"

#include <math.h>

/* 8 layers, 32 query and 8 key-value heads of 64 elements, 16384 tokens. */
enum { LAYERS = 8, Q_HEADS = 32, KV_HEADS = 8, HEAD_DIM = 64, SEQ = 16384 };

static void open_world(struct step_world *w, const char *system, int nodes)
{
    step_scenario_of(&w->s,
                     "format: 1\nname: t\n"
                     "model: {hidden: 2048, layers: 8, heads: 32, kv_heads: 8, "
                     "ffn: 8192, vocab: 32768}\n"
                     "cluster: {system: %s, nodes: %d}\n"
                     "workload: {seq: 16384, global_batch: 64, dtype: bf16}\n",
                     system, nodes);
    step_world_price(w);
}

static struct mw_layout layout(enum mw_cp_form form, int cp, int dp)
{
    struct mw_layout l;

    mw_layout_default(&l);
    l.cp = cp;
    l.dp = dp;
    l.cp_form = form;
    return l;
}

/* ---- the same work ---------------------------------------------------------
 */
struct totals {
    double flops, model_flops, save_bytes;
};

static struct totals totals_of(const struct step_world *w,
                               const struct mw_layout *l, enum mw_pass pass)
{
    struct mw_work work = {.model = &w->s.model,
                           .layout = l,
                           .seq = SEQ,
                           .dtype = MW_BF16,
                           .is_flash = w->s.workload.is_flash,
                           .grad_dtype = MW_FP32,
                           .doc_tokens = w->s.workload.doc_tokens};
    struct mw_ops ops = {NULL, 0, 0};
    struct totals sum = {0, 0, 0};

    mw_layer_ops(&work, 0, pass, &ops);
    for (size_t i = 0; i < ops.n; i++) {
        sum.flops += mw_op_times(&ops.v[i]) * ops.v[i].flops;
        sum.model_flops += mw_op_times(&ops.v[i]) * ops.v[i].model_flops;
        sum.save_bytes += ops.v[i].save_bytes;
    }
    mw_array_release(&ops);
    return sum;
}

/* A flash core that works on other tokens than the projection behind it keeps
 * its output for itself. */
static double kept_twice(const struct step_world *w, const struct mw_layout *l,
                         enum mw_pass pass)
{
    const struct mw_model *m = &w->s.model;

    if (l->cp_form != MW_CP_A2A || l->cp == 1 || pass != MW_PASS_F ||
        !w->s.workload.is_flash || l->recompute != MW_RECOMPUTE_NONE) {
        return 0;
    }
    return 2.0 * SEQ / l->cp * m->n_heads / l->tp * m->head_dim;
}

static void check_same(const struct step_world *w, int cp, int tp,
                       enum mw_recompute recompute)
{
    for (int pass = MW_PASS_F; pass < MW_PASS_BW; pass++) {
        struct mw_layout l = layout(MW_CP_GATHER, cp, 1);

        l.tp = tp;
        l.recompute = recompute;
        const struct totals gather = totals_of(w, &l, (enum mw_pass)pass);
        double keep =
            mw_layer_recompute_bytes(&(struct mw_work){.model = &w->s.model,
                                                       .layout = &l,
                                                       .seq = SEQ,
                                                       .dtype = MW_BF16,
                                                       .is_flash = true},
                                     0);
        assert_true(recompute == MW_RECOMPUTE_NONE ? keep == 0 : keep > 0);
        for (int form = MW_CP_RING; form <= MW_CP_A2A; form++) {
            if (form == MW_CP_RING && !w->s.workload.is_flash) {
                continue;
            }
            l.cp_form = (enum mw_cp_form)form;
            struct totals t = totals_of(w, &l, (enum mw_pass)pass);

            mw_assert_near(t.flops, gather.flops, 1e-12, 0);
            mw_assert_near(t.model_flops, gather.model_flops, 1e-12, 0);
            mw_assert_near(t.save_bytes,
                           gather.save_bytes +
                               kept_twice(w, &l, (enum mw_pass)pass),
                           1e-12, 0);
        }
    }
}

/* Who computes which pairs differs, how many does not; nor, but for a dealt
 * core's output, what is kept. */
static void test_work_is_conserved(void **state)
{
    struct step_world w;

    (void)state;
    open_world(&w, "dgx-h100", 1);
    for (int cp = 1; cp <= 4; cp *= 2) {
        for (int r = MW_RECOMPUTE_NONE; r <= MW_RECOMPUTE_FULL; r++) {
            w.s.workload.is_flash = true;
            check_same(&w, cp, 1, (enum mw_recompute)r);
            check_same(&w, cp, 2, (enum mw_recompute)r);
            w.s.workload.doc_tokens = 3000;
            check_same(&w, cp, 2, (enum mw_recompute)r);
            w.s.workload.doc_tokens = 0;
            w.s.workload.is_flash = false;
            check_same(&w, cp, 2, (enum mw_recompute)r);
        }
    }
    step_world_close(&w);
}

/* Packed documents of d tokens: d / s of the pairs, in every form; all else is
 * as it was. A document as long as its sequence is no packing. */
static void test_packed_documents(void **state)
{
    static const int64_t docs[] = {SEQ, SEQ / 2, SEQ / 8, 1000};
    struct step_world w;

    (void)state;
    open_world(&w, "dgx-h100", 1);
    for (int form = MW_CP_GATHER; form <= MW_CP_A2A; form++) {
        struct mw_layout l = layout((enum mw_cp_form)form, 4, 2);
        struct mw_step_result whole, packed;

        w.s.workload.doc_tokens = 0;
        step_simulate(&whole, &w.s, &l, &w.ctx, NULL);
        for (size_t i = 0; i < sizeof docs / sizeof docs[0]; i++) {
            /* scores and values, forward and twice that backward */
            double square = 3 * 2 * 2.0 * SEQ * Q_HEADS * HEAD_DIM * LAYERS;
            double d = (double)docs[i];

            w.s.workload.doc_tokens = docs[i];
            step_simulate(&packed, &w.s, &l, &w.ctx, NULL);
            mw_assert_near(whole.model_flops - packed.model_flops,
                           64.0 * square * (SEQ - d), 1e-9, 1);
            assert_true(packed.peak_bytes == whole.peak_bytes);
            assert_true(i == 0 ? packed.step_time_s == whole.step_time_s
                               : packed.step_time_s < whole.step_time_s);
            mw_step_result_release(&packed);
        }
        mw_step_result_release(&whole);
    }
    step_world_close(&w);
}

/* ---- what is sent ----------------------------------------------------------
 */
/* Keys and values of a rank's tokens, 2 bytes each. */
static double block_bytes(int cp)
{
    return 2.0 * SEQ / cp * KV_HEADS * HEAD_DIM * 2;
}

/* n-1 exchanges of K and V forward, n-1 of them and n of dK and dV backward;
 * n-1 more where the core is computed again. All of a block each time. */
static void test_ring_counts(void **state)
{
    static const int again[] = {0, 1, 1};
    struct step_world w;

    (void)state;
    open_world(&w, "dgx-h100", 1);
    for (int cp = 2; cp <= 8; cp *= 2) {
        for (int r = MW_RECOMPUTE_NONE; r <= MW_RECOMPUTE_FULL; r++) {
            struct mw_layout l = layout(MW_CP_RING, cp, 8 / cp);
            double m = 64.0 * cp / 8;

            l.recompute = (enum mw_recompute)r;
            struct mw_ledger_row row =
                step_ledger_row(&w, &l, MW_DIM_CP, MW_SEND_RECV);

            mw_assert_near(row.count,
                           m * LAYERS * ((2 + again[r]) * (cp - 1) + cp), 0, 0);
            mw_assert_near(row.message_bytes, row.count * block_bytes(cp),
                           1e-12, 0);
            mw_assert_near(row.wire_bytes, row.message_bytes, 0, 0);
            assert_int_equal(row.n_ranks, cp);
            assert_true(
                step_ledger_row(&w, &l, MW_DIM_CP, MW_ALL_GATHER).count == 0);
        }
    }
    step_world_close(&w);
}

/* Queries go round, n - 1 times forward and, with the output's gradient and two
 * statistics of 4 bytes, backward; n times their gradient. One all-to-all of n
 * partial outputs and their statistics a forward pass. */
static void test_pass_q_counts(void **state)
{
    static const int again[] = {0, 1, 1};
    struct step_world w;

    (void)state;
    open_world(&w, "dgx-h100", 1);
    for (int cp = 2; cp <= 8; cp *= 2) {
        double q = 2.0 * SEQ / cp * Q_HEADS * HEAD_DIM;
        double row = 4.0 * SEQ / cp * Q_HEADS;

        for (int r = MW_RECOMPUTE_NONE; r <= MW_RECOMPUTE_FULL; r++) {
            struct mw_layout l = layout(MW_CP_PASSQ, cp, 8 / cp);
            double n = 64.0 * cp / 8 * LAYERS;

            l.recompute = (enum mw_recompute)r;
            struct mw_ledger_row ring =
                step_ledger_row(&w, &l, MW_DIM_CP, MW_SEND_RECV);
            struct mw_ledger_row home =
                step_ledger_row(&w, &l, MW_DIM_CP, MW_ALL_TO_ALL);

            mw_assert_near(ring.count, n * ((2 + again[r]) * (cp - 1) + cp), 0,
                           0);
            mw_assert_near(
                ring.message_bytes,
                n * ((cp - 1) * ((1 + again[r]) * q + 2 * q + 2 * row) +
                     cp * q),
                1e-12, 0);
            mw_assert_near(home.count, n * (1 + again[r]), 0, 0);
            mw_assert_near(home.message_bytes, home.count * cp * (q + row),
                           1e-12, 0);
            mw_assert_near(home.wire_bytes, home.count * (cp - 1) * (q + row),
                           1e-12, 0);
        }
    }
    step_world_close(&w);
}

/* It keeps and computes what a ring of keys and values does. */
static void test_pass_q_is_a_ring_turned_round(void **state)
{
    struct mw_layout l = layout(MW_CP_RING, 4, 2), turned = l;
    struct step_world w;
    struct mw_step_result a, b;

    (void)state;
    turned.cp_form = MW_CP_PASSQ;
    open_world(&w, "dgx-h100", 1);
    step_simulate(&a, &w.s, &l, &w.ctx, NULL);
    step_simulate(&b, &w.s, &turned, &w.ctx, NULL);
    mw_assert_near(b.memory[0].activation_bytes, a.memory[0].activation_bytes,
                   0, 0);
    mw_assert_near(b.hardware_flops, a.hardware_flops, 0, 0);
    mw_step_result_release(&a);
    mw_step_result_release(&b);
    step_world_close(&w);
}

/* q, k, v and o turned forward, their gradients backward: (n-1)/n of each
 * buffer of a rank's own tokens leaves it. */
static void test_ulysses_counts(void **state)
{
    struct step_world w;

    (void)state;
    open_world(&w, "dgx-h100", 1);
    for (int cp = 2; cp <= 8; cp *= 2) {
        struct mw_layout l = layout(MW_CP_A2A, cp, 8 / cp);
        double m = 64.0 * cp / 8;
        struct mw_ledger_row row =
            step_ledger_row(&w, &l, MW_DIM_CP, MW_ALL_TO_ALL);
        double buffers = 2.0 * SEQ / cp * HEAD_DIM *
                         (2 * Q_HEADS + 2 * KV_HEADS); /* q, o; k, v */

        mw_assert_near(row.count, m * LAYERS * 8, 0, 0);
        mw_assert_near(row.message_bytes, m * LAYERS * 2 * buffers, 1e-12, 0);
        mw_assert_near(row.wire_bytes, row.message_bytes * (cp - 1) / cp, 1e-12,
                       0);
        l.recompute = MW_RECOMPUTE_SELECTIVE;
        mw_assert_near(step_ledger_row(&w, &l, MW_DIM_CP, MW_ALL_TO_ALL).count,
                       m * LAYERS * 12, 0, 0);
    }
    step_world_close(&w);
}

/* Whole K and V gathered in both passes, their gradients scattered. */
static void test_gather_counts(void **state)
{
    struct mw_layout l = layout(MW_CP_GATHER, 4, 2);
    struct step_world w;

    (void)state;
    open_world(&w, "dgx-h100", 1);
    mw_assert_near(step_ledger_row(&w, &l, MW_DIM_CP, MW_ALL_GATHER).count,
                   32.0 * LAYERS * 2, 0, 0);
    mw_assert_near(
        step_ledger_row(&w, &l, MW_DIM_CP, MW_REDUCE_SCATTER).message_bytes,
        32.0 * LAYERS * block_bytes(1), 1e-12, 0);
    step_world_close(&w);
}

/* ---- what is hidden --------------------------------------------------------
 */
static double cp_s(const struct step_world *w, const struct mw_layout *l)
{
    struct mw_step_result r;
    double s;

    step_simulate(&r, &w->s, l, &w->ctx, NULL);
    s = r.breakdown_s[MW_SPAN_CP];
    mw_step_result_release(&r);
    return s;
}

/* One exchange as it is priced. */
static double exchange_s(const struct step_world *w, const struct mw_layout *l)
{
    struct mw_group g = mw_cost_group(l, MW_DIM_CP, w->ctx.domain_gpus);

    return mw_cost_coll(&w->ctx, MW_SEND_RECV, block_bytes(l->cp), &g, NULL)
        .time_s;
}

/* On NVLink one block's core takes longer than both exchanges beside it: the
 * last gradient alone is exposed, once per layer and micro-batch. On a wire a
 * thousand times slower what is hidden is less than the cores take. Then on a
 * processor nothing is: all 3n-2 exchanges stand there. */
static void test_what_a_ring_hides(void **state)
{
    struct mw_layout l = layout(MW_CP_RING, 8, 1);
    struct step_world w;

    (void)state;
    open_world(&w, "dgx-h100", 1);
    mw_assert_near(cp_s(&w, &l), 64.0 * LAYERS * exchange_s(&w, &l), 1e-6, 0);
    step_world_close(&w);
    open_world(&w, "dgx-h100", 8);
    l.order = "dp-pp-tp-cp"; /* one rank of a ring on each node */
    l.dp = 8;
    w.ctx.domain_net_Bps /= 1000;
    double all_s = 8.0 * LAYERS * 22 * exchange_s(&w, &l);
    assert_true(cp_s(&w, &l) < all_s && cp_s(&w, &l) > 0.8 * all_s);
    struct mw_gpu slow = *w.ctx.gpu;
    slow.is_cpu = true;
    w.ctx.gpu = &slow;
    mw_assert_near(cp_s(&w, &l), all_s, 1e-9, 0);
    step_world_close(&w);
}

/* The more ranks, the more merging and the smaller the cores: a ring never
 * beats the gathered form where wires are free. */
static void test_a_ring_pays_for_merging(void **state)
{
    struct step_world w;

    (void)state;
    open_world(&w, "dgx-h100", 1);
    for (int cp = 2; cp <= 8; cp *= 2) {
        struct mw_layout l = layout(MW_CP_RING, cp, 8 / cp);
        struct mw_step_result ring, gather;

        step_simulate(&ring, &w.s, &l, &w.ctx, NULL);
        l.cp_form = MW_CP_GATHER;
        step_simulate(&gather, &w.s, &l, &w.ctx, NULL);
        assert_true(ring.breakdown_s[MW_SPAN_F] >
                    gather.breakdown_s[MW_SPAN_F]);
        assert_true(ring.breakdown_s[MW_SPAN_B] >
                    gather.breakdown_s[MW_SPAN_B]);
        mw_assert_near(ring.breakdown_s[MW_SPAN_W],
                       gather.breakdown_s[MW_SPAN_W], 1e-12, 0);
        mw_step_result_release(&ring);
        mw_step_result_release(&gather);
    }
    step_world_close(&w);
}

/* ---- measured --------------------------------------------------------------
 */
/* Seconds of the cores of one layer and pass, and of merging. */
static double cores_s(const struct step_world *w, const struct mw_layout *l,
                      enum mw_pass pass)
{
    struct mw_work work = {.model = &w->s.model,
                           .layout = l,
                           .seq = 65536,
                           .dtype = MW_BF16,
                           .is_flash = true,
                           .grad_dtype = MW_FP32};
    struct mw_ops ops = {NULL, 0, 0};
    double sum = 0;

    mw_layer_ops(&work, 0, pass, &ops);
    for (size_t i = 0; i < ops.n; i++) {
        const struct mw_op *op = &ops.v[i];

        if (op->kind == MW_OP_ATTENTION || strcmp(op->name, "cp_merge") == 0) {
            sum += mw_op_times(op) * mw_cost_op(&w->ctx, op, NULL).time_s;
        }
    }
    mw_array_release(&ops);
    return sum;
}

/*
 * zhuzilin/ring-flash-attention, README at 01c8baf5ea: 8 devices, 65536 causal
 * tokens, the heads of Llama-3.1-8B, zigzag, exchanges hidden; rate over that
 * of one device on an eighth of the work: H800 0.853 forward, 0.902 forward and
 * backward, A100 0.898 forward and backward.
 */
static void test_measured_ring(void **state)
{
    static const struct {
        const char *system;
        int n_passes;
        double measured;
    } rows[] = {
        {"dgx-h100", 1, 0.853}, {"dgx-h100", 2, 0.902}, {"dgx-a100", 2, 0.898}};

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct mw_layout ring = layout(MW_CP_RING, 8, 1);
        struct mw_layout whole = layout(MW_CP_GATHER, 8, 1);
        double ring_s = 0, whole_s = 0;
        struct step_world w;

        open_world(&w, rows[i].system, 1);
        assert_int_equal(mw_model_preset("llama3-8b", &w.s.model, NULL), MW_OK);
        for (int pass = 0; pass < rows[i].n_passes; pass++) {
            ring_s += cores_s(&w, &ring, (enum mw_pass)pass);
            whole_s += cores_s(&w, &whole, (enum mw_pass)pass);
        }
        print_message("%s, %d passes: %.3f, measured %.3f\n", rows[i].system,
                      rows[i].n_passes, whole_s / ring_s, rows[i].measured);
        mw_assert_near(whole_s / ring_s, rows[i].measured, 0.06, 0);
        step_world_close(&w);
    }
}

/* ---- fast form and event form ----------------------------------------------
 */
static bool draw(struct mw_layout *l, const struct mw_scenario *s, uint64_t i)
{
    static const char *const orders[] = {"tp-cp-ep-dp-pp", "tp-dp-pp-cp"};

    mw_layout_default(l);
    l->cp = 2 << mw_rand_u64(5, 1, i) % 3;
    l->tp = 1 << mw_rand_u64(5, 2, i) % 3;
    l->pp = 1 << mw_rand_u64(5, 3, i) % 3;
    l->dp = 32 / (l->cp * l->tp * l->pp);
    l->sp = mw_rand_u64(5, 4, i) % 2 == 0;
    l->zero = (int)(mw_rand_u64(5, 5, i) % 4);
    l->recompute = (enum mw_recompute)(mw_rand_u64(5, 6, i) % 3);
    l->cp_form = (enum mw_cp_form)(mw_rand_u64(5, 7, i) % 4);
    l->order = orders[mw_rand_u64(5, 8, i) % 2];
    return l->dp >= 1 &&
           mw_layout_check(l, &s->model, &s->workload, 32, NULL, NULL) == MW_OK;
}

static void test_forms_agree(void **state)
{
    struct step_world w;
    int n = 0;

    (void)state;
    open_world(&w, "dgx-h100", 4);
    for (uint64_t i = 0; i < 400; i++) {
        struct mw_layout l;

        if (!draw(&l, &w.s, i)) {
            continue;
        }
        step_forms_agree(&w, &l);
        n++;
    }
    assert_true(n > 100);
    step_world_close(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_work_is_conserved),
        cmocka_unit_test(test_packed_documents),
        cmocka_unit_test(test_ring_counts),
        cmocka_unit_test(test_pass_q_counts),
        cmocka_unit_test(test_pass_q_is_a_ring_turned_round),
        cmocka_unit_test(test_ulysses_counts),
        cmocka_unit_test(test_gather_counts),
        cmocka_unit_test(test_what_a_ring_hides),
        cmocka_unit_test(test_a_ring_pays_for_merging),
        cmocka_unit_test(test_measured_ring),
        cmocka_unit_test(test_forms_agree),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
