/*
 * Measured memory: units and kinds of the columns, statistics by hand, tables
 * of memory alone (fine-tuning, profile of layers), the rank that a row names.
 */
#include "mw_test.h"

#include "base/file.h"
#include "sim/validate/validate.h"

#include <math.h>
#include <string.h>

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

static enum mw_status try_predict(struct mw_validate *v, void **state,
                                  const char *text, struct mw_err *err)
{
    struct mw_outfile out;

    assert_int_equal(mw_outfile_open(&out, "memory.csv", err), MW_OK);
    fputs(text, out.f);
    assert_int_equal(mw_outfile_commit(&out, err), MW_OK);
    mw_validate_init(v, *state);
    enum mw_status status = mw_validate_add(v, "memory.csv", err);

    mw_validate_finish(v);
    remove("memory.csv");
    return status;
}

static void predict(struct mw_validate *v, void **state, const char *text)
{
    struct mw_err err = {0};

    if (try_predict(v, state, text, &err) != MW_OK) {
        fail_msg("%s", err.text);
    }
}

/* Errors +0.1 -0.2 +0.3 0: MAPE 0.15, bias 0.05, median 0.15, p90 0.27. */
static void test_statistics_by_hand(void **state)
{
    const double ratio[] = {1.1, 0.8, 1.3, 1};
    struct mw_memory_group g = {0};

    (void)state;
    mw_memory_stats(ratio, 4, &g);
    assert_int_equal(g.rows, 4);
    mw_assert_near(g.mape, 0.15, 1e-12, 0);
    mw_assert_near(g.bias, 0.05, 1e-12, 0);
    mw_assert_near(g.median_ape, 0.15, 1e-12, 0);
    mw_assert_near(g.p90_ape, 0.27, 1e-12, 0);
    mw_memory_stats(ratio, 0, &g);
    assert_true(g.rows == 0 && isnan(g.mape));
}

#define STEPS                                                                  \
    "id,kind,model,seq,global_batch,micro_batch,gpus,gpu,tp,pp,dp,dtype,"      \
    "framework,step_time_s,mem_gib_per_gpu,mem_def,mem_gb\n"
#define RUN(id, kind, seconds, memory)                                         \
    id "," kind                                                                \
       ",llama2-7b,2048,8,1,8,A100-SXM4-80GB,8,1,1,bf16,mine," seconds         \
       "," memory "\n"

/* Two figures of one run; a unit of GiB; a run without a time; one without
 * anything. */
static void test_kinds_and_units(void **state)
{
    struct mw_validate v;

    predict(&v, state,
            STEPS RUN("a", "x", "1",
                      "20,torch max_memory_allocated; reserved 21.5 GiB,")
                RUN("b", "x", "", ",,30") RUN("c", "x", "", "25,nvidia-smi GB,")
                    RUN("d", "OOM", "", ",,") RUN("e", "x", "", ",,"));
    const struct mw_validate_row *r = v.rows.v;
    assert_int_equal(r[0].n_memory, 2);
    assert_int_equal(r[0].memory[0].kind, MW_MEMORY_ALLOCATED);
    assert_int_equal(r[0].memory[1].kind, MW_MEMORY_RESERVED);
    mw_assert_near(r[0].memory[1].measured_bytes, 21.5 * 0x1p30, 1e-15, 0);
    assert_true(r[0].memory[1].predicted_bytes >
                r[0].memory[0].predicted_bytes);
    assert_int_equal(r[1].memory[0].kind, MW_MEMORY_RESERVED);
    mw_assert_near(r[1].memory[0].measured_bytes, 30 * 0x1p30, 1e-15, 0);
    mw_assert_near(r[1].memory[0].predicted_bytes,
                   r[0].memory[1].predicted_bytes, 1e-12, 0);
    assert_int_equal(r[2].memory[0].kind, MW_MEMORY_DEVICE);
    assert_true(r[2].memory[0].predicted_bytes >
                r[1].memory[0].predicted_bytes);
    assert_null(r[3].skipped);
    assert_non_null(strstr(r[4].skipped, "no measured"));
    assert_int_equal(v.overall.rows, 1);
    assert_int_equal(mw_validate_predicted(&v), 4);
    assert_int_equal(v.memory_overall.rows, 4);
    assert_int_equal(v.memory.n, 3);
    assert_int_equal(v.overall.oom_rows, 1);
    assert_int_equal(v.overall.ran_rows, 3);
    mw_validate_release(&v);
}

/* GB of LitGPT are 10^9 bytes, those of torchtune 2^30. */
static void test_finetune_table(void **state)
{
#define TUNE                                                                   \
    "id,model,method,quantisation,gpu,gpus,micro_batch,global_batch,seq_max,"  \
    "peak_mem_gb,oom,dtype,framework\n"
    struct mw_validate v;

    predict(&v, state,
            TUNE "a,Llama 2 7B,full,,A100-SXM4-80GB,8,1,8,1304,20,0,bf16-true,"
                 "LitGPT 2023-10\n"
                 "b,Llama 2 7B,full,,A100,8,1,8,1304,20,0,bf16,torchtune\n"
                 "c,Llama 2 7B,Adapter v2,,A100,8,1,8,1304,20,0,bf16,LitGPT\n"
                 "d,Llama 2 7B,batch-1 generation,,A100,1,1,,,20,0,bf16,x\n"
                 "e,Llama 2 70B,full,,A100,1,1,1,1304,,1,bf16,torchtune\n");
    const struct mw_validate_row *r = v.rows.v;
    mw_assert_near(r[0].memory[0].measured_bytes, 20e9, 1e-15, 0);
    mw_assert_near(r[1].memory[0].measured_bytes, 20 * 0x1p30, 1e-15, 0);
    assert_string_equal(r[0].layout, "tp1 pp1 dp8 zero3 mbs1 none");
    assert_non_null(strstr(r[2].skipped, "adapters"));
    assert_non_null(strstr(r[3].skipped, "inference"));
    assert_true(r[4].is_oom && !r[4].fits);
    assert_true((r[0].fills >> MW_FILL_FINETUNE & 1) == 1);
    mw_validate_release(&v);
}

/* Two ranks of two stages have figures of their own; the source's name decides
 * the length. */
static void test_profile_table(void **state)
{
#define PROFILE                                                                \
    "id,model,hidden,layers,heads,ffn,vocab,seq,global_batch,pp,tp,dp,flags,"  \
    "rank,gpus,dtype,model_states_MB,activation_MB,activation_peak_MB,"        \
    "source\n"
#define STAGE(id, rank, source)                                                \
    id ",w,4096,2,32,11008,32000,2048,8,2,1,4,sp," rank                        \
       ",8,bf16,1294,1157,1967," source "\n"
    struct mw_validate v;

    predict(&v, state,
            PROFILE STAGE("a", "0", "x_all.json") STAGE("b", "7", "x_all.json")
                STAGE("c", "0", "x_seqlen2048_all.json"));
    const struct mw_validate_row *r = v.rows.v;
    assert_int_equal(r[0].n_memory, 3);
    assert_int_equal(r[0].memory[0].kind, MW_MEMORY_OVER);
    mw_assert_near(r[0].memory[2].measured_bytes, 1294 * 0x1p20, 1e-15, 0);
    assert_true(r[1].memory[1].predicted_bytes >
                r[0].memory[1].predicted_bytes);
    mw_assert_near(r[2].memory[1].predicted_bytes,
                   r[0].memory[1].predicted_bytes / 2, 1e-12, 0);
    mw_validate_release(&v);
}

static void test_table_without_gpu(void **state)
{
    struct mw_validate v;
    struct mw_err err = {0};

    assert_int_equal(
        try_predict(&v, state, "id,model,step_time_s\na,gpt2,1\n", &err),
        MW_EINPUT);
    assert_non_null(strstr(err.text, "memory.csv:1: there is no column 'gpu'"));
    mw_validate_release(&v);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_statistics_by_hand),
        cmocka_unit_test(test_kinds_and_units),
        cmocka_unit_test(test_finetune_table),
        cmocka_unit_test(test_profile_table),
        cmocka_unit_test(test_table_without_gpu),
    };

    return cmocka_run_group_tests(tests, setup, teardown);
}
