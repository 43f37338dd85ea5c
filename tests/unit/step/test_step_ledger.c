/*
 * The ledger against textbook counts (see sim/step/ledger.c for sources), on a
 * GPT of 16 layers, h = 1024, s = 512, vocabulary 32768, bf16; and what a step
 * is sensitive to.
 */
#include "mw_test.h"

#include "sim/step/ledger.h"
#include "sim/step/step_int.h"
#include "step_fixture.h"

#include <math.h>

struct world {
    struct mw_hwdb *db;
    struct mw_scenario s;
    struct mw_cost_ctx ctx;
    struct mw_plan plan;
    struct mw_ledger ledger;
};

static void begin(struct world *w, const struct mw_layout *l, int device)
{
    *w = (struct world){.db = step_hwdb()};
    step_scenario(&w->s, "dgx-a100", 4, 64, "bf16");
    step_ctx(&w->ctx, w->db, &w->s);
    step_plan(&w->plan, &w->s, l);
    mw_step_ledger(&w->s, &w->plan, &w->ctx, device, &w->ledger);
}

static void end(struct world *w)
{
    mw_array_release(&w->ledger);
    mw_plan_release(&w->plan);
    mw_scenario_release(&w->s);
    mw_hwdb_free(w->db);
}

static struct mw_ledger_row find(const struct world *w, enum mw_dim dim,
                                 enum mw_coll_op op)
{
    return mw_ledger_sum(&w->ledger, dim, op);
}

static struct mw_layout layout(int tp, int pp, int dp)
{
    struct mw_layout l;

    mw_layout_default(&l);
    l.tp = tp;
    l.pp = pp;
    l.dp = dp;
    l.micro_batch = 2;
    return l;
}

/* One micro-batch of 2: b s h = 2 x 512 x 1024 elements of 2 bytes. */
#define X_BYTES (2.0 * 512 * 1024 * 2)

/* Middle of 4 stages: 4 layers, 2 all-reduces forward and 2 backward each, for
 * 64 / (2 x 2) = 16 micro-batches; 2 (n-1)/n of it on the wire. With full
 * recomputation one forward set more. */
static void test_tensor_parallel(void **state)
{
    struct mw_layout l = layout(4, 4, 2);
    struct world w;

    (void)state;
    begin(&w, &l, 1);
    struct mw_ledger_row row = find(&w, MW_DIM_TP, MW_ALL_REDUCE);
    mw_assert_near(row.count, 16.0 * 4 * 4, 0, 0);
    mw_assert_near(row.message_bytes, row.count * X_BYTES, 1e-12, 0);
    mw_assert_near(row.wire_bytes, row.message_bytes * 1.5, 1e-12, 0);
    assert_int_equal(row.n_ranks, 4);
    assert_false(row.crosses_nodes);
    end(&w);
    l.recompute = MW_RECOMPUTE_FULL;
    begin(&w, &l, 1);
    mw_assert_near(find(&w, MW_DIM_TP, MW_ALL_REDUCE).count, 16.0 * 4 * 6, 0,
                   0);
    end(&w);
}

/* Sequence parallelism: 10 halves a layer and micro-batch: 2 gathers and 2
 * scatters each way, and 2 gathers again of the sharded inputs. */
static void test_sequence_parallel(void **state)
{
    struct mw_layout l = layout(4, 4, 2);
    struct world w;

    (void)state;
    l.sp = true;
    begin(&w, &l, 1);
    struct mw_ledger_row gather = find(&w, MW_DIM_TP, MW_ALL_GATHER);
    struct mw_ledger_row scatter = find(&w, MW_DIM_TP, MW_REDUCE_SCATTER);
    mw_assert_near(gather.count, 16.0 * 4 * 6, 0, 0);
    mw_assert_near(scatter.count, 16.0 * 4 * 4, 0, 0);
    mw_assert_near(gather.wire_bytes, gather.count * X_BYTES * 0.75, 1e-12, 0);
    /* once a step: gradients of what the ranks share, 2 norms in each of 4
     * layers, fp32 */
    mw_assert_near(find(&w, MW_DIM_TP, MW_ALL_REDUCE).count, 1, 0, 0);
    mw_assert_near(find(&w, MW_DIM_TP, MW_ALL_REDUCE).message_bytes,
                   4.0 * 4 * 2 * 1024, 1e-12, 0);
    end(&w);
    /* The MLP again: its gather and its scatter; norms again: nothing more. */
    l.recompute = MW_RECOMPUTE_SELECTIVE;
    l.recompute_modules = MW_MODULE_MLP | MW_MODULE_LAYERNORM;
    begin(&w, &l, 1);
    mw_assert_near(find(&w, MW_DIM_TP, MW_ALL_GATHER).count, 16.0 * 4 * 7, 0,
                   0);
    mw_assert_near(find(&w, MW_DIM_TP, MW_REDUCE_SCATTER).count, 16.0 * 4 * 5,
                   0, 0);
    end(&w);
}

/* A middle stage sends an activation up and a gradient down per micro-batch,
 * an outer one sends one of them; a tied embedding is reduced once. */
static void test_transfers(void **state)
{
    struct mw_layout l = layout(1, 4, 8);
    struct world w;

    (void)state;
    begin(&w, &l, 1);
    mw_assert_near(find(&w, MW_DIM_PP, MW_SEND_RECV).count, 2 * 4, 0, 0);
    mw_assert_near(find(&w, MW_DIM_PP, MW_SEND_RECV).message_bytes, 8 * X_BYTES,
                   1e-12, 0);
    mw_assert_near(find(&w, MW_DIM_PP, MW_ALL_REDUCE).count, 0, 0, 0);
    end(&w);
    begin(&w, &l, 0);
    mw_assert_near(find(&w, MW_DIM_PP, MW_SEND_RECV).count, 4, 0, 0);
    mw_assert_near(find(&w, MW_DIM_PP, MW_ALL_REDUCE).message_bytes,
                   4.0 * 32768 * 1024, 1e-12, 0);
    end(&w);
}

/* Copies for 8 of 32 experts on 4 nodes: each node's once, not each expert's,
 * which is 4 (1 - (3/4)^8) of 8. */
static void test_tokens_once_per_node(void **state)
{
    double bytes[2], time_s[2];

    (void)state;
    for (int once = 0; once < 2; once++) {
        struct world w = {.db = step_hwdb()};
        struct mw_layout l = layout(1, 1, 32);

        l.ep = 32;
        step_scenario_of(&w.s,
                         "format: 1\nname: t\n"
                         "model: {hidden: 1024, layers: 4, heads: 16, ffn: "
                         "4096, vocab: 32768, moe: {experts: 32, top_k: 8, "
                         "ffn: 512}}\n"
                         "cluster: {system: dgx-a100, nodes: 4}\n"
                         "workload: {seq: 512, global_batch: 64}\n");
        step_ctx(&w.ctx, w.db, &w.s);
        w.ctx.stack.sends_once = once != 0;
        step_plan(&w.plan, &w.s, &l);
        mw_step_ledger(&w.s, &w.plan, &w.ctx, 0, &w.ledger);
        bytes[once] = find(&w, MW_DIM_EP, MW_ALL_TO_ALL).message_bytes;
        time_s[once] = find(&w, MW_DIM_EP, MW_ALL_TO_ALL).time_s;
        end(&w);
    }
    mw_assert_near(bytes[1] / bytes[0], 4 * (1 - pow(.75, 8)) / 8, 1e-12, 0);
    assert_true(time_s[1] < time_s[0]);
}

/* ZeRO over 32: 0: gradients reduced; 1: scattered, parameters gathered; 2:
 * scattered per unit and micro-batch; 3: gathered twice as well. 64 / (32 x 2)
 * = 1 micro-batch; units: 16 layers, embedding, head. */
static void test_zero(void **state)
{
    double params = 0;

    (void)state;
    for (int zero = 0; zero <= 3; zero++) {
        struct mw_layout l = layout(1, 1, 32);
        struct world w;

        l.zero = zero;
        begin(&w, &l, 0);
        struct mw_ledger_row all = find(&w, MW_DIM_DP, MW_ALL_REDUCE);
        struct mw_ledger_row gather = find(&w, MW_DIM_DP, MW_ALL_GATHER);
        struct mw_ledger_row scatter = find(&w, MW_DIM_DP, MW_REDUCE_SCATTER);
        if (zero == 0) {
            params = all.message_bytes / 4; /* fp32 gradients */
            mw_assert_near(all.count, 1, 0, 0);
            mw_assert_near(all.wire_bytes, all.message_bytes * 2 * 31 / 32,
                           1e-12, 0);
            assert_true(params > 200e6 && params < 300e6);
        } else {
            mw_assert_near(all.count, 0, 0, 0);
            mw_assert_near(scatter.message_bytes, 4 * params, 1e-12, 0);
            mw_assert_near(scatter.count, zero == 1 ? 1 : 18, 0, 0);
            mw_assert_near(gather.count, zero == 3 ? 36 : 1, 0, 0);
            mw_assert_near(gather.message_bytes,
                           (zero == 3 ? 2 : 1) * 2 * params, 1e-12, 0);
        }
        assert_true(zero == 0 || gather.crosses_nodes);
        end(&w);
    }
}

static struct mw_ledger_row last_stage(int zero, enum mw_dim dim,
                                       enum mw_coll_op op, bool is_tied)
{
    struct mw_layout l = layout(1, 4, 8);
    struct mw_ledger_row row;
    struct world w;

    l.zero = zero;
    begin(&w, &l, 3);
    w.s.model.tied = is_tied;
    w.ledger.n = 0;
    mw_step_ledger(&w.s, &w.plan, &w.ctx, 3, &w.ledger);
    row = find(&w, dim, op);
    end(&w);
    return row;
}

/* In a pipeline the head has a copy of the embedding, which ZeRO-2 and 3
 * scatter and gather as the matrix of an untied head; of the sum of both copies
 * a rank adds its eighth. 64 / (8 x 2) = 4 micro-batches. */
static void test_tied_copy(void **state)
{
    const double grads = 4.0 * 32768 * 1024;

    (void)state;
    for (int zero = 2; zero <= 3; zero++) {
        for (int i = 0; i < 2; i++) {
            enum mw_coll_op op = i == 0 ? MW_ALL_GATHER : MW_REDUCE_SCATTER;
            double tied = last_stage(zero, MW_DIM_DP, op, true).message_bytes;
            double own = last_stage(zero, MW_DIM_DP, op, false).message_bytes;

            mw_assert_near(tied, own, 1e-12, 0);
            assert_true(tied >= 4 * grads || (i == 0 && zero == 2));
        }
        mw_assert_near(
            last_stage(zero, MW_DIM_PP, MW_ALL_REDUCE, true).message_bytes,
            grads / 8, 1e-12, 0);
        mw_assert_near(
            last_stage(zero, MW_DIM_PP, MW_ALL_REDUCE, false).message_bytes, 0,
            0, 0);
    }
}

/* One device: no wire matters, compute, memory and host are the whole. */
static void test_shares(void **state)
{
    struct mw_layout l = layout(1, 1, 32);
    struct world w;
    double share[MW_RESOURCE_COUNT], sum = 0;
    struct mw_err err = {0};

    (void)state;
    begin(&w, &l, 0);
    assert_int_equal(mw_step_sensitivity(&w.s, &w.plan, &w.ctx, share, &err),
                     MW_OK);
    for (int r = 0; r < MW_RESOURCE_COUNT; r++) {
        assert_true(share[r] >= -1e-9 && share[r] <= 1);
        assert_true(strlen(mw_resource_name((enum mw_resource)r)) > 3);
        sum += share[r];
    }
    mw_assert_near(share[MW_RESOURCE_SCALE_UP], 0, 0, 1e-9);
    assert_true(share[MW_RESOURCE_NETWORK] > 0.01); /* gradients of 4 nodes */
    assert_true(sum > 0.85 && sum < 1.05);
    w.ctx.stack.host_op_s = 1e-2; /* nothing but the host */
    assert_int_equal(mw_step_sensitivity(&w.s, &w.plan, &w.ctx, share, &err),
                     MW_OK);
    assert_true(share[MW_RESOURCE_HOST] > 0.9);
    end(&w);
}

/* What comes once a step, on every device: the ledger has the bytes of the tail
 * that is priced and, where nothing hides it, its time; one route and two,
 * where both holders of a stage reduce its gradients together. */
static void test_ledger_is_the_tail(void **state)
{
    static const struct {
        const char *schedule;
        int tp, pp, vpp, dp;
    } plans[] = {{"1f1b", 1, 4, 1, 8},
                 {"interleaved-1f1b", 2, 4, 2, 4},
                 {"dualpipe", 1, 4, 1, 4},
                 {"dualpipe", 2, 8, 1, 2}};

    (void)state;
    for (int i = 0; i < 8; i++) {
        struct mw_layout l =
            layout(plans[i / 2].tp, plans[i / 2].pp, plans[i / 2].dp);

        l.schedule = plans[i / 2].schedule;
        l.vpp = plans[i / 2].vpp;
        l.micro_batch = 1;
        l.zero = i % 2;
        for (int d = 0; d < l.pp; d++) {
            struct mw_step_frame frame;
            struct world w;

            begin(&w, &l, d);
            mw_step_frame_init(&frame, &w.s, &w.plan.layout, w.plan.layers,
                               &w.plan.schedule, &w.ctx, true, NULL);
            struct mw_ledger_row reduce = find(
                &w, MW_DIM_DP, l.zero == 0 ? MW_ALL_REDUCE : MW_REDUCE_SCATTER);
            struct mw_ledger_row gather = find(&w, MW_DIM_DP, MW_ALL_GATHER);
            const struct mw_tail *tail = &frame.tail[d];

            assert_true(reduce.message_bytes > 0);
            mw_assert_near(reduce.message_bytes, tail->reduce_bytes, 1e-12, 0);
            mw_assert_near(reduce.time_s, mw_time_to_s(tail->reduce_ps), 0,
                           2e-12);
            mw_assert_near(gather.message_bytes, tail->gather_bytes, 1e-12, 0);
            mw_assert_near(gather.time_s, mw_time_to_s(tail->gather_ps), 0,
                           2e-12);
            assert_int_equal(reduce.n_ranks, l.dp * frame.price.n_copies);
            assert_int_equal(frame.price.n_copies, i >= 4 ? 2 : 1);
            mw_assert_near(find(&w, MW_DIM_PP, MW_ALL_REDUCE).message_bytes,
                           tail->embedding_bytes, 1e-12, 0);
            mw_step_frame_release(&frame);
            end(&w);
        }
    }
}

/* In the middle of an odd number of devices both copies are on one: they are
 * added up there, and nobody else joins. */
static void test_middle_device(void **state)
{
    struct mw_layout l = layout(1, 3, 8);
    struct mw_step_price p;
    struct world w;

    (void)state;
    begin(&w, &l, 0);
    mw_step_price_begin(&p, &w.s, &l, &w.ctx);
    p.n_copies = 2;
    assert_int_equal(mw_step_sharers(&p, p.grad_group, 0).n_ranks, 16);
    assert_int_equal(mw_step_sharers(&p, p.grad_group, 1).n_ranks, 8);
    assert_int_equal(mw_step_copies_on(&p, 1), 2);
    struct mw_tail end_tail, middle;
    const int once[MW_UNIT_COUNT] = {[MW_UNIT_DENSE] = 2};
    const int twice[MW_UNIT_COUNT] = {[MW_UNIT_DENSE] = 4};

    mw_step_price_units(&p, NULL);
    mw_tail_of(&p, 0, once, false, &end_tail);
    mw_tail_of(&p, 1, twice, false, &middle);
    mw_assert_near(middle.reduce_bytes, end_tail.reduce_bytes, 1e-12, 0);
    assert_true(middle.reduce_ps < end_tail.reduce_ps);
    end(&w);
}

/* Gradients of 32 experts on 8 ranks meet 4 replicas, those of the dense part
 * all 32 ranks: two rows, the larger group first; 4 layers of 4 experts of 3
 * matrices are a rank's. */
static void test_groups_apart(void **state)
{
    const double experts = 4.0 * 4 * 3 * 1024 * 512;
    struct world w = {.db = step_hwdb()};
    struct mw_layout l = layout(1, 1, 32);
    int n = 0;

    (void)state;
    l.ep = 8;
    l.zero = 1;
    step_scenario_of(&w.s, "format: 1\nname: t\n"
                           "model: {hidden: 1024, layers: 4, heads: 16, ffn: "
                           "4096, vocab: 32768, moe: {experts: 32, top_k: 8, "
                           "ffn: 512}}\n"
                           "cluster: {system: dgx-a100, nodes: 4}\n"
                           "workload: {seq: 512, global_batch: 64}\n");
    step_ctx(&w.ctx, w.db, &w.s);
    step_plan(&w.plan, &w.s, &l);
    mw_step_ledger(&w.s, &w.plan, &w.ctx, 0, &w.ledger);
    for (size_t i = 0; i < w.ledger.n; i++) {
        const struct mw_ledger_row *row = &w.ledger.v[i];

        if (row->dim != MW_DIM_DP || row->op != MW_REDUCE_SCATTER) {
            continue;
        }
        assert_int_equal(row->n_ranks, n == 0 ? 32 : 4);
        mw_assert_near(row->count, 1, 0, 0);
        if (n == 1) {
            mw_assert_near(row->message_bytes, 4 * experts, 1e-12, 0);
            mw_assert_near(row->wire_bytes, 3 * experts, 1e-12, 0);
        }
        n++;
    }
    assert_int_equal(n, 2);
    assert_int_equal(find(&w, MW_DIM_DP, MW_REDUCE_SCATTER).n_ranks, 32);
    end(&w);
}

/* What a stage's rows show sums to that stage's breakdown, kind by kind, and
 * the breakdown to the step. */
static void test_exposed(void **state)
{
    struct mw_layout l = layout(4, 4, 2);
    double stages_s[4][MW_SPAN_KIND_COUNT];
    const struct mw_step_opts opts = {.stages_s = stages_s};
    struct mw_step_result r;
    struct world w;

    (void)state;
    l.sp = true;
    l.zero = 1;
    for (int d = 0; d < 4; d++) {
        double tp_s = 0, pp_s = 0, dp_s = 0, step_s = 0;

        begin(&w, &l, d);
        assert_int_equal(
            mw_step_simulate(&w.s, &w.plan, &w.ctx, &opts, &r, NULL), MW_OK);
        mw_ledger_expose(&w.ledger, stages_s[d]);
        for (size_t i = 0; i < w.ledger.n; i++) {
            const struct mw_ledger_row *row = &w.ledger.v[i];

            tp_s += row->dim == MW_DIM_TP ? row->exposed_s : 0;
            pp_s += row->dim == MW_DIM_PP ? row->exposed_s : 0;
            dp_s += row->dim == MW_DIM_DP ? row->exposed_s : 0;
        }
        for (int kind = 0; kind < MW_SPAN_KIND_COUNT; kind++) {
            step_s += stages_s[d][kind];
        }
        assert_true(tp_s > 0 && dp_s > 0);
        mw_assert_near(tp_s, stages_s[d][MW_SPAN_TP], 1e-12, 0);
        mw_assert_near(pp_s, stages_s[d][MW_SPAN_PP], 1e-12, 0);
        mw_assert_near(dp_s, stages_s[d][MW_SPAN_DP], 1e-12, 0);
        mw_assert_near(step_s, r.step_time_s, 1e-12, 0);
        mw_step_result_release(&r);
        end(&w);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tensor_parallel),
        cmocka_unit_test(test_sequence_parallel),
        cmocka_unit_test(test_transfers),
        cmocka_unit_test(test_tokens_once_per_node),
        cmocka_unit_test(test_zero),
        cmocka_unit_test(test_tied_copy),
        cmocka_unit_test(test_groups_apart),
        cmocka_unit_test(test_exposed),
        cmocka_unit_test(test_shares),
        cmocka_unit_test(test_ledger_is_the_tail),
        cmocka_unit_test(test_middle_device)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
