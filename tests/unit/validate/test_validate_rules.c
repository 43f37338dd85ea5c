/*
 * The rules that treat rows apart: noisy series, composed tables, superseded
 * releases, runs out of memory, variants of a GPU, stacks by framework, and the
 * second prediction that fitting asks for.
 */
#include "mw_test.h"

#include "base/file.h"
#include "sim/validate/validate_int.h"

#include <math.h>
#include <string.h>

#define HEADER                                                                 \
    "id,kind,model,hidden,layers,heads,seq,global_batch,micro_batch,"          \
    "grad_accum,gpus,nodes,gpu,tp,pp,dp,dtype,framework,step_time_s,"          \
    "mem_gib_per_gpu,mem_def,note\n"

static int setup(void **state)
{
    struct mw_hwdb *db = NULL;
    struct mw_err err = {0};

    if (mw_hwdb_load(NULL, &db, &err) != MW_OK) {
        fail_msg("%s", err.text);
    }
    *state = db;
    return 0;
}

static int teardown(void **state)
{
    mw_hwdb_free(*state);
    return 0;
}

static void predict_of(struct mw_validate *v, void **state, const char *header,
                       const char *rows)
{
    struct mw_outfile out;
    struct mw_err err = {0};

    assert_int_equal(mw_outfile_open(&out, "rules.csv", &err), MW_OK);
    fputs(header, out.f);
    fputs(rows, out.f);
    assert_int_equal(mw_outfile_commit(&out, &err), MW_OK);
    mw_validate_init(v, *state);
    if (mw_validate_add(v, "rules.csv", &err) != MW_OK) {
        fail_msg("%s", err.text);
    }
    mw_validate_finish(v);
}

static void predict(struct mw_validate *v, void **state, const char *rows)
{
    predict_of(v, state, HEADER, rows);
}

/* A GPT of 1.3B on 8 A100: heads, micro-batch and time as given. */
#define RUN(id, mbs, time) RUN_OF(id, "16", mbs, time)
#define RUN_OF(id, heads, mbs, time)                                           \
    id ",pretrain,gpt,2048,24," heads ",1024,64," mbs                          \
       ",,8,1,A100-SXM4-80GB,1,1,8,fp16,Megatron-LM 2.x," time ",,,\n"

/* Without a pipeline a line in 1 / micro-batch: 1 + 1/mbs is one, and a series
 * with one point twice as long is not. Two points are always one, and one more
 * of a model with other heads is no point of theirs. */
static void test_noisy_series(void **state)
{
    struct mw_validate v;

    predict(&v, state,
            RUN("a", "1", "2.0") RUN("b", "2", "1.5") RUN("c", "4", "1.25")
                RUN("d", "8", "1.125"));
    for (size_t i = 0; i < v.rows.n; i++) {
        assert_null(v.rows.v[i].skipped);
        assert_false(v.rows.v[i].is_noisy);
    }
    assert_int_equal(v.quiet.rows, 4);
    mw_validate_release(&v);
    predict(&v, state,
            RUN("a", "1", "2.0") RUN("b", "2", "1.5") RUN("c", "4", "2.5")
                RUN("d", "8", "1.125"));
    for (size_t i = 0; i < v.rows.n; i++) {
        assert_true(v.rows.v[i].is_noisy);
    }
    assert_int_equal(v.overall.rows, 4);
    assert_int_equal(v.quiet.rows, 0);
    mw_validate_release(&v);
    predict(&v, state,
            RUN("a", "1", "2.0") RUN("b", "2", "9")
                RUN_OF("c", "32", "4", "1.25"));
    for (size_t i = 0; i < v.rows.n; i++) {
        assert_null(v.rows.v[i].skipped);
        assert_false(v.rows.v[i].is_noisy);
    }
    mw_validate_release(&v);
}

/* Of a composed table the row with the most layers and micro-batches. */
static void test_composed_cells(void **state)
{
#define CELL(id, layers, batch, steps)                                         \
    id ",pretrain,gpt,2048," layers ",16,1024," batch ",2," steps              \
       ",8,1,A100-SXM4-80GB,1,1,8,fp16,Megatron-LM (vTrain),1,,,\n"
    struct mw_validate v;

    predict(&v, state,
            CELL("a", "12", "64", "4") CELL("b", "24", "64", "4")
                CELL("c", "24", "32", "2"));
    assert_non_null(strstr(v.rows.v[0].skipped, "another row stands"));
    assert_null(v.rows.v[1].skipped);
    assert_non_null(v.rows.v[2].skipped);
    assert_string_equal(v.rows.v[0].cell, v.rows.v[1].cell);
    /* Nothing recomputed, 50257 tokens. */
    assert_non_null(strstr(v.rows.v[1].layout, " none"));
    assert_true((v.rows.v[1].fills >> MW_FILL_COMPOSED & 1) != 0);
    assert_int_equal(v.rows.v[1].state->scenario.model.vocab, 50257);
    mw_validate_release(&v);
}

/* The newest release of a job; another job, or another family, stays. */
static void test_newest_release(void **state)
{
#define NEMO(id, gpus, framework)                                              \
    id ",pretrain,llama2-7b,,,,4096,32,1,," gpus ",,H100-SXM5-80GB,1,1," gpus  \
       ",bf16," framework ",1,,,\n"
    struct mw_validate v;

    predict(&v, state,
            NEMO("a", "8", "NeMo 24.07") NEMO("b", "8", "NeMo 24.12")
                NEMO("c", "16", "NeMo 24.07") NEMO("d", "8", "Other 9.1"));
    assert_non_null(strstr(v.rows.v[0].skipped, "newer release"));
    assert_null(v.rows.v[1].skipped);
    assert_null(v.rows.v[2].skipped);
    assert_null(v.rows.v[3].skipped);
    mw_validate_release(&v);
}

/* Allocated leaves out what is not tensors; a run out of memory has none. */
static void test_memory(void **state)
{
#define PEAK(id, kind, mbs, gib, what)                                         \
    id "," kind ",gpt,2048,24,16,1024,64," mbs                                 \
       ",,8,1,A100-SXM4-80GB,1,1,8,fp16,Megatron-LM 2.x,1," gib "," what ",\n"
    struct mw_validate v;

    predict(&v, state,
            PEAK("a", "pretrain", "1", "30", "allocated")
                PEAK("b", "pretrain", "1", "30", "reserved")
                    PEAK("c", "pretrain", "1", "30", "nvidia-smi")
                        PEAK("d", "pretrain (OOM)", "8", "OOM", "nvidia-smi"));
    const struct mw_validate_row *r = v.rows.v;
    assert_int_equal(v.overall.memory_rows, 3);
    mw_assert_near(r[0].memory[0].measured_bytes, 30 * 0x1p30, 0, 0);
    assert_true(r[1].memory[0].predicted_bytes >
                1.02 * r[0].memory[0].predicted_bytes);
    assert_true(r[2].memory[0].predicted_bytes >
                r[1].memory[0].predicted_bytes + 5e8);
    assert_true(r[3].is_oom && r[3].n_memory == 0);
    assert_null(r[3].skipped);
    assert_false(mw_validate_is_timed(&r[3]));
    assert_int_equal(v.overall.oom_rows, 1);
    assert_int_equal(v.overall.oom_right, !r[3].fits);
    assert_int_equal(v.overall.ran_rows, 3);
    assert_int_equal(v.overall.ran_right, 3);
    mw_validate_release(&v);
}

/* 2.4 of 3.35 TB/s and (500 / 700)^(1/3) of the clock: slower than the H100,
 * faster than the slower of both ratios would be. */
static void test_variant(void **state)
{
#define CARD(id, gpu)                                                          \
    id ",pretrain,llama2-7b,,,,4096,32,1,,8,1," gpu                            \
       ",1,1,8,bf16,NeMo 25.02,1,,,\n"
    struct mw_validate v;

    predict(&v, state,
            CARD("a", "H100-SXM5-80GB")
                CARD("b", "H100-96GB HBM2e 2.4TB/s 500W (Grand Teton)"));
    assert_null(v.rows.v[1].skipped);
    double ratio = v.rows.v[1].predicted_s / v.rows.v[0].predicted_s;
    assert_true(ratio > 1.05 && ratio < 3.35 / 2.4);
    assert_true((v.rows.v[1].fills >> MW_FILL_GPU_VARIANT & 1) == 1);
    assert_true((v.rows.v[0].fills >> MW_FILL_GPU_VARIANT & 1) == 0);
    mw_validate_release(&v);
}

static void test_stack_by_framework(void **state)
{
    static const struct {
        const char *framework, *gpu, *note, *stack, *dtype;
    } rows[] = {
        {"NeMo 24.07", "H100", "", "megatron-core-nemo", ""},
        {"Megatron-Core 0.9", "H100", "", "megatron-core", ""},
        {"Megatron-Core r0.8.0", "H100", "", "megatron-core-lm", ""},
        {"Paxml (dgxc v24.11.1)", "H100", "", "jax-paxml", ""},
        {"Megatron-LM 23e00ed096 + TE 2.11, overlap OFF", "B200", "",
         "megatron-core-serial", ""},
        {"Megatron-LM", "A100-SXM4-80GB", "", "megatron-2021-async", ""},
        {"Megatron-LM (2022-05)", "A100", "", "megatron-2021-async", ""},
        {"Megatron-LM 2.x", "A100", "", "megatron-2021", ""},
        {"Megatron-LM (2021-01)", "A100", "", "megatron-2021-whole", ""},
        {"Megatron-LM (2020-09)", "V100", "", "megatron-2021-whole", ""},
        {"NVIDIA dgxc recipes on OCI", "B200", "", "megatron-core-nemo", ""},
        {"TorchTitan (dgxc v25.08)", "H100", "", "torchtitan", ""},
        {"Megatron-Bridge 26.06 NeMo Container", "GB200", "",
         "megatron-core-nemo-graphs", ""},
        {"Megatron-Bridge 26.04.01 NeMo Container", "GB200", "",
         "megatron-core-nemo", ""},
        {"Megatron-Bridge 26.06 NeMo Container", "H100", "",
         "megatron-core-nemo", ""},
        {"Megatron-LM", "H100-SXM5-80GB", "", "megatron-core", ""},
        {"Megatron-DeepSpeed (BigScience)", "A100", "", "megatron-deepspeed",
         "fp16"},
        {"Megatron-DeepSpeed (BigScience)", "A100", "",
         "megatron-deepspeed-bf16", "bf16"},
        {"Megatron-DeepSpeed (BigScience)", "A100", "DS=N", "megatron-2021",
         "bf16"},
        {"Megatron-DeepSpeed/Megatron-LM (vTrain)", "A100", "", "megatron-2021",
         ""},
        {"MaxText (dgxc v25.02)", "H100", "", "jax", ""},
        {"llm-foundry/Composer FSDP", "A100", "", "torch-fsdp", ""},
        {"torchtitan 2025", "H100", "FSDP", "torchtitan-eager", ""},
        {"torchtitan 2025", "H100", "2D + AsyncTP", "torchtitan-async", ""},
        {"torchtitan 2025", "H100", "FSDP + torch.compile", "torchtitan", ""},
        {"torchtitan 2024-12", "H100", "+ AsyncTP", "torchtitan-async-2024",
         ""},
        {"torchtitan 2024-12", "H100", "FSDP + torch.compile",
         "torchtitan-2024", ""},
        {"Galvatron", "A100", "", "galvatron", ""},
        {"LitGPT 2023-10", "A100", "", "litgpt", ""},
        {"my own", "H100", "", "plain", ""}};

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct mw_measured r = {.framework = rows[i].framework,
                                .gpu = rows[i].gpu,
                                .note = rows[i].note,
                                .dtype = rows[i].dtype,
                                .nodes = (double)NAN,
                                .microbatches = (double)NAN};

        assert_string_equal(mw_case_stack_of(&r), rows[i].stack);
    }
}

/* SimuMax's runs deal heads out under context parallelism. */
static void test_context_parallel_form(void **state)
{
    const struct {
        const char *framework;
        int cp;
        enum mw_cp_form form;
        int is_filled;
    } rows[] = {{"Megatron-LM + TE 2.11, overlap OFF", 8, MW_CP_A2A, 1},
                {"Megatron-LM + TE 2.11, overlap OFF", 1, MW_CP_GATHER, 0},
                {"Megatron-LM + TE 2.11", 8, MW_CP_GATHER, 0},
                {"DeepSpeed ulysses", 8, MW_CP_A2A, 0}};

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char text[512];
        struct mw_validate v;
        const struct mw_case *c;

        snprintf(text, sizeof text,
                 "a,llama2-7b,32768,8,1,8,1,B200-SXM,1,1,%d,%d,bf16,\"%s\",1\n",
                 8 / rows[i].cp, rows[i].cp, rows[i].framework);
        predict_of(&v, state,
                   "id,model,seq,global_batch,micro_batch,gpus,nodes,gpu,tp,"
                   "pp,dp,cp,dtype,framework,step_time_s\n",
                   text);
        c = v.rows.v[0].state;
        assert_null(v.rows.v[0].skipped);
        assert_int_equal(c->layout.cp_form, rows[i].form);
        assert_int_equal(v.rows.v[0].fills >> MW_FILL_CP_FORM & 1,
                         rows[i].is_filled);
        mw_validate_release(&v);
    }
}

/* BigScience's runs with ZeRO-3, and others under DeepSpeed. */
static void test_stack_by_zero_stage(void **state)
{
    static const char *const rows[][3] = {
        {"Megatron-LM + Deepspeed ZeRO", "megatron-deepspeed-zero3", ""},
        {"Megatron + Deepspeed ZeRO (old branch)",
         "megatron-deepspeed-zero3-sync", "authors warn"},
        {"Megatron + Deepspeed ZeRO (old branch)", "megatron-deepspeed-zero3",
         "authors warn; ID=5; ScatEmb=Y"},
        {"HF + Deepspeed ZeRO", "megatron-deepspeed-zero3", ""},
        {"InternEvo v0.2", "internevo", ""},
        {"DeepSpeed ALST", "deepspeed", ""}};

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct mw_measured r = {.framework = rows[i][0],
                                .gpu = "V100",
                                .note = rows[i][2],
                                .dtype = "fp16",
                                .zero = "3"};

        assert_string_equal(mw_case_stack_of(&r), rows[i][1]);
    }

    struct mw_measured none = {.framework = "Megatron-DeepSpeed",
                               .gpu = "A100",
                               .note = "",
                               .dtype = "fp16",
                               .zero = "0"};

    assert_string_equal(mw_case_stack_of(&none), "megatron-deepspeed-zero0");
    none.zero = "1";
    assert_string_equal(mw_case_stack_of(&none), "megatron-deepspeed");
}

#define TUNE(id, kind, framework)                                              \
    id "," kind                                                                \
       ",llama2-7b,,,,4096,32,1,,8,1,H100-SXM5-80GB,1,1,8,bf16," framework     \
       ",1,,,\n"

/* NeMo's summaries pack SQuAD for fine-tuning: attention stays inside an
 * example. Others do not say what they train on. */
static void test_packed(void **state)
{
    struct mw_validate v;
    bool packed[4];

    predict(&v, state,
            TUNE("a", "pretrain", "NeMo 24.07") TUNE("b", "sft", "NeMo 24.07")
                TUNE("c", "lora", "NeMo 24.07")
                    TUNE("d", "sft", "deepspeed 0.19"));
    for (size_t i = 0; i < v.rows.n; i++) {
        assert_null(v.rows.v[i].skipped);
        packed[i] = (v.rows.v[i].fills >> MW_FILL_PACKED & 1) != 0;
    }
    assert_false(packed[0]);
    assert_true(packed[1]);
    assert_true(packed[2]);
    assert_false(packed[3]);
    assert_true(v.rows.v[1].predicted_s < v.rows.v[0].predicted_s);
    assert_true(v.rows.v[2].predicted_s < v.rows.v[1].predicted_s);
    mw_validate_release(&v);
    predict(&v, state, TUNE("e", "sft", "NeMo/Megatron (dgxc v25.02)"));
    assert_null(v.rows.v[0].skipped);
    assert_false((v.rows.v[0].fills >> MW_FILL_PACKED & 1) != 0);
    mw_validate_release(&v);
}

#define KIMI(id, framework)                                                    \
    id ",pretrain,kimi-k2,,,,4096,4096,2,,256,64,GB300,1,4,64,bf16," framework \
       ",12,,,\n"

/* Kimi K2's recipe in Megatron-Bridge takes Muon, whose products cost time and
 * whose state is smaller; other software says nothing of it. */
static void test_muon(void **state)
{
    struct mw_validate v;
    double time_s, peak_bytes;

    predict(&v, state, KIMI("a", "Megatron-Core 0.14"));
    assert_null(v.rows.v[0].skipped);
    assert_false((v.rows.v[0].fills >> MW_FILL_MUON & 1) != 0);
    time_s = v.rows.v[0].predicted_s;
    peak_bytes = v.rows.v[0].peak_bytes;
    mw_validate_release(&v);
    predict(&v, state, KIMI("b", "Megatron-Bridge 25.11 NeMo Container"));
    assert_null(v.rows.v[0].skipped);
    assert_true((v.rows.v[0].fills >> MW_FILL_MUON & 1) != 0);
    assert_true(v.rows.v[0].predicted_s > time_s);
    assert_true(v.rows.v[0].peak_bytes < peak_bytes);
    mw_validate_release(&v);
}

/* The fast form of the same row, with the constants of the moment. */
static void test_again(void **state)
{
    const struct mw_constant *clock;
    struct mw_validate v;

    predict(&v, state, RUN("a", "4", "2.0"));
    double first = mw_validate_again(&v, 0);
    mw_assert_near(first, v.rows.v[0].predicted_s, 0.01, 0);
    assert_int_equal(
        mw_hwdb_constant(*state, "sustained_clock.ampere.fp16", &clock, NULL),
        MW_OK);
    double kept = clock->value;
    ((struct mw_constant *)clock)->value = kept / 2;
    double slow = mw_validate_again(&v, 0);
    assert_true(slow > 1.3 * first && slow < 2 * first);
    ((struct mw_constant *)clock)->value = kept;
    mw_assert_near(mw_validate_again(&v, 0), first, 1e-12, 0);
    mw_validate_release(&v);
}

/* GPUs / 48 replicas of tp 8 and pp 6; another release says nothing. */
static void test_strong_scaling(void **state)
{
#define STRONG(id, gpus, release)                                              \
    id ",pretrain,gpt,12288,96,96,4096,1152,,," gpus ",,H100-SXM5-80GB,,,,"    \
       "bf16,Megatron-Core " release ",2.7,,,\n"
    struct mw_validate v;

    predict(&v, state,
            STRONG("a", "96", "r0.8.0") STRONG("b", "4608", "r0.8.0")
                STRONG("c", "96", "r0.7.0") STRONG("d", "100", "r0.8.0"));
    for (size_t i = 0; i < 2; i++) {
        const struct mw_layout *l = &v.rows.v[i].state->layout;

        assert_null(v.rows.v[i].skipped);
        assert_true((v.rows.v[i].fills >> MW_FILL_STRONG_SCALING & 1) == 1);
        assert_int_equal(l->tp * l->pp * l->vpp, 8 * 6 * 8);
        assert_int_equal(l->dp, i == 0 ? 2 : 96);
        assert_true(v.rows.v[i].full_rate_s < v.rows.v[i].predicted_s);
    }
    /* The same job: the work of a GPU goes with their number. */
    mw_assert_near(v.rows.v[0].full_rate_s, 48 * v.rows.v[1].full_rate_s, 1e-9,
                   0);
    assert_non_null(v.rows.v[2].skipped);
    assert_string_equal(v.rows.v[3].skipped, "layout is not given");
    mw_validate_release(&v);
}

/* Without a pipeline a replica's batch is one micro-batch; with one, of single
 * sequences, chunks are of two layers, of one where a stage has an odd number.
 * Gradients are reduced in fp32. */
static void test_weak_scaling(void **state)
{
#define WEAK(id, layers, gpus, pp)                                             \
    id ",pretrain,gpt,8192," layers ",64,4096,384,,," gpus                     \
       ",,H100-SXM5-80GB,8," pp ",48,bf16,Megatron-Core r0.8.0,2.7,,,\n"
    struct mw_validate v;
    const int want[][2] = {{8, 1}, {1, 21}, {1, 23}};

    predict(&v, state,
            WEAK("a", "16", "384", "1") WEAK("b", "84", "768", "2")
                WEAK("c", "92", "1536", "4"));
    for (size_t i = 0; i < 3; i++) {
        const struct mw_case *c = v.rows.v[i].state;

        assert_null(v.rows.v[i].skipped);
        assert_int_equal(c->layout.micro_batch, want[i][0]);
        assert_int_equal(c->layout.vpp, want[i][1]);
        assert_int_equal(c->scenario.workload.grad_dtype, MW_FP32);
    }
    mw_validate_release(&v);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_noisy_series),
        cmocka_unit_test(test_composed_cells),
        cmocka_unit_test(test_newest_release),
        cmocka_unit_test(test_memory),
        cmocka_unit_test(test_variant),
        cmocka_unit_test(test_stack_by_framework),
        cmocka_unit_test(test_context_parallel_form),
        cmocka_unit_test(test_stack_by_zero_stage),
        cmocka_unit_test(test_strong_scaling),
        cmocka_unit_test(test_weak_scaling),
        cmocka_unit_test(test_packed),
        cmocka_unit_test(test_muon),
        cmocka_unit_test(test_again)};

    return cmocka_run_group_tests(tests, setup, teardown);
}
