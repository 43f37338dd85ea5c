/*
 * Optimizers and types of their states: bytes a parameter against hand-made
 * sums over the parameter table, time against the traffic at the stream rate,
 * Muon's products priced one by one, gradients that Muon needs whole, and both
 * forms.
 *
 * The model: 16 layers of h 1024, ffn 4096, vocabulary 32768, 512 positions,
 * tied; a layer has biases and norms of 3 h + h + 4 h + h + 4 h = 13 h,
 * matrices of 12 h^2, so that vectors are 16 x 13 h + 2 h of the final norm.
 */
#include "mw_test.h"

#include "step_fixture.h"

#include <math.h>

#define H 1024.0
static const double vectors = 16 * 13 * H + 2 * H;
static const double matrices = 16 * 12 * H * H;
static const double embeddings = 32768 * H + 512 * H;

static void open_world(struct step_world *w, const char *optimizer)
{
    step_scenario_of(&w->s,
                     "format: 1\nname: t\n"
                     "model: {hidden: 1024, layers: 16, heads: 16, ffn: 4096, "
                     "vocab: 32768, max_seq: 512, gated: false, norm: layer, "
                     "position: learned, tied: true, bias_qkv: true, "
                     "bias_proj: true, bias_mlp: true, bias_norm: true}\n"
                     "cluster: {system: dgx-a100, nodes: 2}\n"
                     "workload: {seq: 512, global_batch: 64, optimizer: %s}\n",
                     optimizer);
    step_world_price(w);
}

static struct mw_layout replicas(int zero)
{
    struct mw_layout l;

    mw_layout_default(&l);
    l.dp = 16;
    l.zero = zero;
    return l;
}

struct seen {
    double state_bytes, update_s;
};

static struct seen look(const struct step_world *w, int zero)
{
    struct mw_layout l = replicas(zero);
    struct mw_step_result r;
    struct seen s;

    step_simulate(&r, &w->s, &l, &w->ctx, NULL);
    s = (struct seen){r.memory[0].optimizer_bytes,
                      r.breakdown_s[MW_SPAN_OPTIMIZER]};
    mw_step_result_release(&r);
    return s;
}

static struct seen seen_of(const char *optimizer, int zero)
{
    struct step_world w;
    struct seen s;

    open_world(&w, optimizer);
    s = look(&w, zero);
    step_world_close(&w);
    return s;
}

static void test_bytes_of_states(void **state)
{
    const double n = matrices + embeddings + vectors;
    /* Factored: rows and columns of qkv, proj, fc1 and fc2 (4 h, 2 h, 5 h,
     * 5 h), of embedding and positions. */
    const double factors = 16 * 16 * H + 32768 + H + 512 + H;
    const struct {
        const char *optimizer;
        double bytes;
    } rows[] = {
        {"adamw", 12 * n},
        {"sgd", 4 * n},
        {"sgd-momentum", 8 * n},
        {"sgd-momentum, exp_avg_dtype: bf16", 6 * n},
        {"adamw, exp_avg_dtype: bf16, exp_avg_sq_dtype: bf16", 8 * n},
        {"adamw, main_params_dtype: fp16, exp_avg_dtype: fp8, "
         "exp_avg_sq_dtype: fp16",
         5 * n},
        {"adamw, main_params_dtype: none", 8 * n},
        {"sgd, main_params_dtype: none", 0},
        {"muon", 8 * matrices + 12 * (embeddings + vectors)},
        {"muon, exp_avg_dtype: bf16",
         6 * matrices + 10 * (embeddings + vectors)},
        {"adafactor", 4 * n + 4 * (factors + vectors)},
        /* 256 elements share a scale; of vectors only fc1's bias (4 h) is
         * large enough: 9 h of a layer and 2 h at the end are not. */
        {"adam8bit, main_params_dtype: none",
         (2 + 2 / 64.0) * (n - 16 * 9 * H - 2 * H) + 8 * (16 * 9 * H + 2 * H)}};

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct seen whole = seen_of(rows[i].optimizer, 0);
        struct seen shared = seen_of(rows[i].optimizer, 1);

        if (fabs(whole.state_bytes - rows[i].bytes) > 1e-9 * n) {
            fail_msg("%s: %.17g bytes, not %.17g", rows[i].optimizer,
                     whole.state_bytes, rows[i].bytes);
        }
        mw_assert_near(shared.state_bytes, whole.state_bytes / 16, 1e-12, 0);
    }
}

/* What AdamW moves more than another: both ways of its states, at the rate at
 * which memory-bound operators stream. */
static void test_time_of_traffic(void **state)
{
    const double n = matrices + embeddings + vectors;
    const struct {
        const char *optimizer;
        double less_bytes;
    } rows[] = {
        {"sgd", 2 * 8 * n},
        {"sgd-momentum", 2 * 4 * n},
        {"adamw, exp_avg_dtype: bf16, exp_avg_sq_dtype: fp8", 2 * 5 * n},
        {"adamw, main_params_dtype: fp16", 2 * 2 * n},
        /* The weight is read and written, instead of the copy twice and the
         * weight written. */
        {"adamw, main_params_dtype: none", (2 * 4 + 2 - 2 * 2) * n}};
    struct step_world w;

    (void)state;
    open_world(&w, "adamw");
    double adamw_s = look(&w, 0).update_s;
    double rate = w.ctx.gpu->mem_bw_Bps * w.ctx.gpu->mem_efficiency /
                  w.ctx.stack.elementwise;

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        mw_assert_near(adamw_s - seen_of(rows[i].optimizer, 0).update_s,
                       rows[i].less_bytes / rate, 1e-6, 0);
    }
    step_world_close(&w);
}

static double gemm_s(const struct step_world *w, int64_t m, int64_t n,
                     int64_t k)
{
    const struct mw_op op = {.kind = MW_OP_GEMM,
                             .pass = MW_PASS_F,
                             .name = "test",
                             .m = m,
                             .n = n,
                             .k = k,
                             .batch = 1,
                             .dtype = MW_BF16,
                             .flops = 2 * (double)m * (double)n * (double)k,
                             .bytes = 2 * (double)(m * k + n * k + m * n)};

    return mw_cost_op(&w->ctx, &op, NULL).time_s + w->ctx.stack.op_gap_s;
}

/* Of an a x b matrix: 5 steps of 3 products, and 6 bytes an element. */
static double orthogonal_s(const struct step_world *w, int64_t a, int64_t b)
{
    double rate = w->ctx.gpu->mem_bw_Bps * w->ctx.gpu->mem_efficiency /
                  w->ctx.stack.elementwise;

    return 5 * (gemm_s(w, a, a, b) + gemm_s(w, a, a, a) + gemm_s(w, a, b, a)) +
           6 * (double)(a * b) / rate + w->ctx.kernel_launch_s +
           w->ctx.stack.op_gap_s;
}

/* Muon is momentum's traffic, a second moment of what is no matrix of a layer,
 * and the products: query, key and value apart, projection, both of the MLP. */
static void test_muon_products(void **state)
{
    struct step_world w;
    const int64_t h = 1024;

    (void)state;
    open_world(&w, "muon");
    double rate = w.ctx.gpu->mem_bw_Bps * w.ctx.gpu->mem_efficiency /
                  w.ctx.stack.elementwise;
    double products_s =
        16 * (4 * orthogonal_s(&w, h, h) + 2 * orthogonal_s(&w, h, 4 * h));
    double plain_s = seen_of("sgd-momentum", 0).update_s;
    double second_s = 2 * 4 * (embeddings + vectors) / rate;
    double shared_s = seen_of("sgd-momentum", 1).update_s + second_s / 16;

    assert_true(products_s > 0.5 * plain_s);
    mw_assert_near(look(&w, 0).update_s, plain_s + second_s + products_s, 1e-6,
                   0);
    mw_assert_near(look(&w, 1).update_s, shared_s + products_s / 16, 1e-6, 0);
    step_world_close(&w);
}

/* One layer over 16 replicas: none does less than the longest matrix. */
static void test_muon_longest_matrix(void **state)
{
    struct step_world w;
    const int64_t h = 1024;

    (void)state;
    open_world(&w, "muon");
    w.s.model.n_layers = 1;
    struct seen muon = look(&w, 1);

    w.s.workload.optimizer.kind = MW_OPTIMIZER_MOMENTUM;
    double rate = w.ctx.gpu->mem_bw_Bps * w.ctx.gpu->mem_efficiency /
                  w.ctx.stack.elementwise;
    double second_s = 2 * 4 * (embeddings + 15 * H) / 16 / rate;

    /* qkv goes as one tensor: three squares, 18 h^3 FLOPs a step as for an
     * h x 4 h matrix, but in more and smaller products. */
    assert_true(3 * orthogonal_s(&w, h, h) > orthogonal_s(&w, h, 4 * h));
    mw_assert_near(muon.update_s,
                   look(&w, 1).update_s + second_s + 3 * orthogonal_s(&w, h, h),
                   1e-6, 0);
    step_world_close(&w);
}

/* Megatron's layer-wise optimizer reduces whole gradients and gathers weights.
 */
static void test_muon_gradients(void **state)
{
    struct mw_layout l = replicas(1);
    struct step_world w;

    (void)state;
    open_world(&w, "muon");
    struct mw_ledger_row reduce =
        step_ledger_row(&w, &l, MW_DIM_DP, MW_ALL_REDUCE);

    mw_assert_near(reduce.message_bytes, 4 * (matrices + embeddings + vectors),
                   1e-12, 0);
    mw_assert_near(step_ledger_row(&w, &l, MW_DIM_DP, MW_REDUCE_SCATTER).count,
                   0, 0, 0);
    mw_assert_near(
        step_ledger_row(&w, &l, MW_DIM_DP, MW_ALL_GATHER).message_bytes,
        2 * (matrices + embeddings + vectors), 1e-12, 0);
    step_world_close(&w);
}

static void choose(struct mw_layout *l, const struct mw_state_set *set)
{
    l->main_params = 1 + (int)set->main;
    l->exp_avg = 1 + (int)set->exp_avg;
    l->exp_avg_sq = 1 + (int)set->exp_avg_sq;
}

/* Step and memory of a set that the layout chooses are those of a workload that
 * says the same, to the bit, and both forms agree. */
static void same_as_workload(const char *optimizer,
                             const struct mw_state_set *set,
                             const struct mw_layout *layout)
{
    static const char *const mains[] = {"fp32", "fp16", "none"};
    struct mw_layout l = *layout;
    struct mw_step_result chosen, given;
    struct step_world w, of;
    char text[256];

    snprintf(text, sizeof text,
             "%s, main_params_dtype: %s, exp_avg_dtype: %s, exp_avg_sq_dtype: "
             "%s",
             optimizer, mains[set->main], mw_dtype_name(set->exp_avg),
             mw_dtype_name(set->exp_avg_sq));
    open_world(&w, optimizer);
    open_world(&of, text);
    step_simulate(&given, &of.s, &l, &of.ctx, NULL);
    choose(&l, set);
    step_simulate(&chosen, &w.s, &l, &w.ctx, NULL);
    mw_assert_near(chosen.step_time_s, given.step_time_s, 0, 0);
    for (int s = 0; s < l.pp; s++) {
        assert_memory_equal(&chosen.memory[s], &given.memory[s],
                            sizeof chosen.memory[s]);
    }
    mw_step_result_release(&chosen);
    mw_step_result_release(&given);
    step_forms_agree(&w, &l);
    step_world_close(&w);
    step_world_close(&of);
}

static void test_layouts_choose_sets(void **state)
{
    static const double bytes[MW_STATE_SETS] = {12, 8, 6, 6, 5};
    const double n = matrices + embeddings + vectors;

    (void)state;
    for (int i = 0; i < MW_STATE_SETS; i++) {
        const struct mw_state_set *set = &mw_state_sets[i];
        struct mw_layout l = replicas(0);
        struct mw_step_result r;
        struct step_world w;

        open_world(&w, "adamw");
        choose(&l, set);
        step_simulate(&r, &w.s, &l, &w.ctx, NULL);
        mw_assert_near(r.memory[0].optimizer_bytes, bytes[i] * n, 1e-12, 0);
        mw_step_result_release(&r);
        step_world_close(&w);
        l = replicas(1);
        l.dp = 4, l.pp = 4;
        same_as_workload("adamw", set, &l);
        same_as_workload("muon", set, &l);
        l.offload_optimizer = 0.5;
        same_as_workload("adamw", set, &l);
    }
}

static void test_forms_agree(void **state)
{
    static const char *const optimizers[] = {"muon", "adafactor", "adam8bit",
                                             "sgd"};

    (void)state;
    for (size_t i = 0; i < sizeof optimizers / sizeof optimizers[0]; i++) {
        struct step_world w;
        struct mw_layout l = replicas(1);

        open_world(&w, optimizers[i]);
        l.dp = 4;
        l.pp = 4;
        step_forms_agree(&w, &l);
        l.pp = 2;
        l.tp = 2;
        l.zero = 0;
        step_forms_agree(&w, &l);
        step_world_close(&w);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bytes_of_states),
        cmocka_unit_test(test_time_of_traffic),
        cmocka_unit_test(test_muon_products),
        cmocka_unit_test(test_muon_longest_matrix),
        cmocka_unit_test(test_muon_gradients),
        cmocka_unit_test(test_layouts_choose_sets),
        cmocka_unit_test(test_forms_agree),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
