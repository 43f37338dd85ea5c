/*
 * Memory of whole steps against published tables:
 *
 *   Korthikanti et al. 2022 (arXiv:2205.05198), figure 1: GiB of parameters,
 *   gradients and optimizer (18 bytes of 12 L h^2 / (t p)), and of activations
 *   of the first stage, for four models without recomputation and with sequence
 *   parallelism and selective recomputation; figure 7 (a chart): per cent of
 * what tensor parallelism alone keeps. Both are of layers alone, without
 * embeddings.
 *
 *   Rajbhandari et al. 2020 (ZeRO, arXiv:1910.02054), table 1: GB of model
 *   states of 7.5e9, 1.28e11 and 1e12 parameters by stage and ranks.
 *
 *   Dettmers et al. 2023 (QLoRA, arXiv:2305.14314), section 1: 65B take more
 *   than 780 GB at 16 bits, less than 48 GB with 4-bit weights and adapters
 *   (of rank 16 here: a paged optimizer like theirs is not modelled).
 */
#include "mw_test.h"

#include "step_fixture.h"

#include <math.h>

static struct mw_step_result memory_of(const struct mw_scenario *s,
                                       const struct mw_layout *l)
{
    struct mw_step_opts opts = {.memory_only = true};
    struct mw_hwdb *db = step_hwdb();
    struct mw_cost_ctx ctx;
    struct mw_step_result r;
    struct mw_plan plan;
    struct mw_err err = {0};

    step_ctx(&ctx, db, s);
    step_plan(&plan, s, l);
    if (mw_step_simulate(s, &plan, &ctx, &opts, &r, &err) != MW_OK) {
        fail_msg("%s", err.text);
    }
    mw_plan_release(&plan);
    mw_hwdb_free(db);
    return r;
}

/* ---- Korthikanti -----------------------------------------------------------
 */
static const struct published {
    int hidden, layers, heads, pp, vpp, micro_batch, batch;
    double states, none, best;  /* GiB */
    double sp, selective, full; /* per cent of none */
} rows[] = {
    {6144, 48, 64, 1, 1, 4, 4, 45.5625, 59.25, 9.5625, 66.84, 49.42, 7.64},
    {12288, 96, 96, 8, 3, 1, 64, 45.5625, 66.84375, 12.3515625, 62.04, 56.53,
     8.71},
    {20480, 105, 128, 35, 3, 1, 280, 31.640625, 114.0234375, 23.076171875,
     58.31, 62.04, 9.42},
    {25600, 128, 160, 64, 1, 1, 512, 32.958984375, 131.25, 26.5625, 58.31,
     62.04, 9.42}};

static void scenario_of(const struct published *p, struct mw_scenario *out)
{
    struct mw_err err = {0};
    char text[1024];

    snprintf(
        text, sizeof text,
        "format: 1\nname: t\n"
        "model: {hidden: %d, layers: %d, heads: %d, ffn: %d, vocab: 51200, "
        "max_seq: 2048, gated: false, norm: layer, position: learned, "
        "tied: true}\n"
        "cluster: {system: dgx-a100, nodes: %d}\n"
        "workload: {seq: 2048, global_batch: %d, dtype: fp16, "
        "grad_dtype: fp32, attention: unfused, dropout: true}\n",
        p->hidden, p->layers, p->heads, 4 * p->hidden, p->pp, p->batch);
    if (mw_scenario_parse("t.yaml", text, strlen(text), out, &err) != MW_OK) {
        fail_msg("%s", err.text);
    }
}

/* GiB that the first stage's layers keep. Of 2 (pp - 1) + (vpp - 1) pp + 1
 * chunks in flight at most 2 pp are the first one's, with the embedding. */
static double activations(const struct published *p, bool sp,
                          enum mw_recompute recompute)
{
    struct mw_scenario s;
    struct mw_layout l;

    scenario_of(p, &s);
    mw_layout_default(&l);
    l.tp = 8;
    l.pp = p->pp;
    l.vpp = p->vpp;
    l.schedule = p->vpp > 1 ? "interleaved-1f1b" : "1f1b";
    l.sp = sp;
    l.recompute = recompute;
    l.micro_batch = p->micro_batch;
    struct mw_work work = {.model = &s.model,
                           .layout = &l,
                           .seq = 2048,
                           .dtype = MW_FP16,
                           .has_dropout = true};
    struct mw_step_result r = memory_of(&s, &l);
    int embeddings = p->vpp > 1 ? 2 * p->pp : p->pp;
    double bytes = r.memory[0].activation_bytes -
                   embeddings * mw_embedding_activation_bytes(&work) -
                   (p->pp == 1 ? mw_head_activation_bytes(&work) : 0);

    mw_step_result_release(&r);
    mw_scenario_release(&s);
    return bytes / 0x1p30;
}

static void test_korthikanti_activations(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const struct published *p = &rows[i];
        double none = activations(p, false, MW_RECOMPUTE_NONE);

        mw_assert_near(none, p->none, 1e-9, 0);
        mw_assert_near(activations(p, true, MW_RECOMPUTE_SELECTIVE), p->best,
                       1e-9, 0);
        mw_assert_near(100 * activations(p, true, MW_RECOMPUTE_NONE) / none,
                       p->sp, 0, 0.15);
        mw_assert_near(100 * activations(p, false, MW_RECOMPUTE_SELECTIVE) /
                           none,
                       p->selective, 0, 0.15);
        mw_assert_near(100 * activations(p, false, MW_RECOMPUTE_FULL) / none,
                       p->full, 0, 0.15);
    }
}

static void test_korthikanti_states(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const struct published *p = &rows[i];
        struct mw_scenario s;
        struct mw_layout l;

        scenario_of(p, &s);
        mw_layout_default(&l);
        l.tp = 8;
        l.pp = p->pp;
        l.micro_batch = p->micro_batch;
        struct mw_step_result r = memory_of(&s, &l);
        const struct mw_stage_memory *m = &r.memory[p->pp / 2];
        double whole = 12.0 * p->hidden * p->hidden;
        /* Biases and norms, 13 h a layer, are 1 / h of it; the one stage of
         * 22B has the embedding too. */
        double more =
            p->pp == 1 ? (51200.0 / 8 + 2048 + 2) * p->hidden * 18 / 0x1p30 : 0;

        mw_assert_near((m->weight_bytes + m->grad_bytes + m->optimizer_bytes) /
                               0x1p30 -
                           more,
                       p->states, 4.0 * 13 * p->hidden / whole, 0);
        mw_step_result_release(&r);
        mw_scenario_release(&s);
    }
}

/* ---- ZeRO ------------------------------------------------------------------
 */
static void test_zero_table_1(void **state)
{
    static const struct {
        int ranks;
        double parameters, gb[3];
    } table[] = {
        {16, 7.5e9, {35.6, 21.6, 7.5}},   {64, 7.5e9, {31.4, 16.6, 1.88}},
        {256, 7.5e9, {30.4, 15.4, 0.47}}, {1024, 7.5e9, {30.1, 15.1, 0.12}},
        {16, 1.28e11, {608, 368, 128}},   {64, 1.28e11, {536, 284, 32}},
        {256, 1.28e11, {518, 263, 8}},    {1024, 1.28e11, {513, 257, 2}},
        {16, 1e12, {4750, 2875, 1000}},   {64, 1e12, {4187, 2218, 250}},
        {256, 1e12, {4046, 2054, 62.5}},  {1024, 1e12, {4011, 2013, 15.6}}};

    (void)state;
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        struct mw_scenario s;
        struct mw_layout l;

        step_scenario(&s, "dgx-a100", table[i].ranks / 8, table[i].ranks,
                      "fp16");
        double n = (double)mw_model_param_count(&s.model);

        s.workload.grad_dtype = MW_FP16;
        mw_layout_default(&l);
        l.dp = table[i].ranks;
        for (l.zero = 1; l.zero <= 3; l.zero++) {
            struct mw_step_result r = memory_of(&s, &l);
            const struct mw_stage_memory *m = &r.memory[0];
            double gb = (m->weight_bytes + m->grad_bytes + m->optimizer_bytes) /
                        n * table[i].parameters / 1e9;
            double printed = table[i].gb[l.zero - 1];

            /* Three digits, some of them cut. */
            mw_assert_near(gb, printed, printed < 1 ? 0.03 : 4e-3, 0);
            mw_step_result_release(&r);
        }
        mw_scenario_release(&s);
    }
}

/* ---- QLoRA -----------------------------------------------------------------
 */
static double tuning_65b_gb(const char *workload)
{
    struct mw_scenario s;
    struct mw_layout l;
    struct mw_err err = {0};
    char text[512];

    snprintf(text, sizeof text,
             "format: 1\nname: t\n"
             "model: {hidden: 8192, layers: 80, heads: 64, ffn: 22016, vocab: "
             "32000, max_seq: 2048, gated: true, norm: rms, position: rotary, "
             "tied: false}\n"
             "cluster: {system: dgx-a100, nodes: 1, gpus_per_node: 1}\n"
             "workload: {seq: 512, global_batch: 1, dtype: bf16, grad_dtype: "
             "bf16%s}\n",
             workload);
    if (mw_scenario_parse("t.yaml", text, strlen(text), &s, &err) != MW_OK) {
        fail_msg("%s", err.text);
    }
    mw_layout_default(&l);
    l.recompute = MW_RECOMPUTE_FULL;
    struct mw_step_result r = memory_of(&s, &l);
    double gb = r.peak_bytes / 1e9;

    mw_step_result_release(&r);
    mw_scenario_release(&s);
    return gb;
}

static void test_qlora_65b(void **state)
{
    (void)state;
    assert_true(tuning_65b_gb("") > 780);
    assert_true(
        tuning_65b_gb(", lora_rank: 16, lora_targets: all, base_dtype: nf4") <
        48);
    assert_true(tuning_65b_gb(", lora_rank: 16, lora_targets: all") > 2 * 65.2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_korthikanti_activations),
        cmocka_unit_test(test_korthikanti_states),
        cmocka_unit_test(test_zero_table_1), cmocka_unit_test(test_qlora_65b)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
