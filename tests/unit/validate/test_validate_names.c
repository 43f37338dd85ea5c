/*
 * The names that tables use for models, GPUs, sharding, schedules, methods:
 * each is understood, or refused with a reason; none is taken for another.
 */
#include "mw_test.h"

#include "base/file.h"
#include "sim/validate/validate_int.h"
#include "unit/hwdb/hwdb_lent.h"

#include <stdio.h>
#include <string.h>

#define HEADER                                                                 \
    "id,model,seq,global_batch,micro_batch,gpus,nodes,gpu,tp,pp,dp,vpp,zero,"  \
    "schedule,dtype,framework,step_time_s\n"
#define MEMORY_HEADER                                                          \
    "id,model,method,quantisation,gpu,gpus,micro_batch,seq_max,peak_mem_gb,"   \
    "oom,dtype,framework\n"

static void predict(struct mw_validate *v, void **state, const char *header,
                    const char *rows)
{
    struct mw_outfile out;
    struct mw_err err = {0};

    assert_int_equal(mw_outfile_open(&out, "names.csv", &err), MW_OK);
    fputs(header, out.f);
    fputs(rows, out.f);
    assert_int_equal(mw_outfile_commit(&out, &err), MW_OK);
    mw_validate_init(v, *state);
    if (mw_validate_add(v, "names.csv", &err) != MW_OK) {
        fail_msg("%s", err.text);
    }
    mw_validate_finish(v);
    remove("names.csv");
}

static void expect_understood(const struct mw_validate *v)
{
    for (size_t i = 0; i < v->rows.n; i++) {
        if (v->rows.v[i].skipped != NULL) {
            fail_msg("%s: %s", v->rows.v[i].id, v->rows.v[i].skipped);
        }
    }
}

static bool has_fill(const struct mw_validate_row *row, enum mw_fill fill)
{
    return (row->fills >> fill & 1) != 0;
}

/* ---- models ----------------------------------------------------------------
 */
static void test_models(void **state)
{
    static const char *const names[] = {"llama3-70b",
                                        "llama3.1-70b",
                                        "llama3-405b",
                                        "llama4-scout",
                                        "llama4-maverick-400b",
                                        "deepseekv3",
                                        "deepseek-v3-671b",
                                        "kimi-k2",
                                        "grok1-314b",
                                        "nemotron-8b",
                                        "nemotron-22b",
                                        "nemotron4-15b",
                                        "nemotron4-340b",
                                        "gpt3-5b",
                                        "gpt3-20b",
                                        "mixtral-8x7b",
                                        "qwen3-235b-a22b",
                                        "codellama-34b"};
    char rows[4096];
    size_t n = 0;
    struct mw_validate v;

    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        n += (size_t)snprintf(rows + n, sizeof rows - n,
                              "%s,%s,4096,1024,1,1024,128,H100-SXM5-80GB,8,4,"
                              "32,,1,,bf16,NeMo 24.07,9\n",
                              names[i], names[i]);
    }
    predict(&v, state, HEADER, rows);
    expect_understood(&v);
    mw_validate_release(&v);
    /* A size that is another's is no part of a name to leave out. */
    predict(&v, state, HEADER,
            "a,gpt2-13b,1024,64,1,64,8,H100-SXM5-80GB,8,1,8,,1,,bf16,"
            "NeMo 24.07,9\n"
            "b,qwen3-next-80b-a3b,4096,64,1,64,8,H100-SXM5-80GB,8,1,8,,1,,bf16,"
            "NeMo 24.07,9\n");
    for (size_t i = 0; i < v.rows.n; i++) {
        assert_string_equal(
            v.rows.v[i].skipped,
            "architecture is not given and no preset has the name");
    }
    mw_validate_release(&v);
}

#define SIZES_HEADER                                                           \
    "id,model,hidden,layers,heads,kv_heads,ffn,vocab,seq,global_batch,"        \
    "micro_batch,gpus,nodes,gpu,tp,pp,dp,zero,dtype,framework,step_time_s\n"
#define SIZED(id, model, sizes)                                                \
    id "," model "," sizes                                                     \
       ",4096,256,2,64,8,H100-SXM5-80GB,2,1,32,1,bf16,NeMo 24.07,1\n"

/* The sizes of Nemotron-4 15B and its name are that model, with rotary
 * positions and a head of its own; under another name, or with other words,
 * they are a GPT of Megatron-LM. Fewer layers are the model's layers. */
static void test_family(void **state)
{
    struct mw_validate v;
    const struct mw_validate_row *r;

    predict(&v, state, SIZES_HEADER,
            SIZED("a", "nemotron4-15b", ",,,,,")
                SIZED("b", "nemotron4-15b", "6144,32,48,8,24576,256000")
                    SIZED("c", "other", "6144,32,48,8,24576,256000")
                        SIZED("d", "nemotron4-15b", "6144,32,48,8,24576,51200")
                            SIZED("e", "nemotron4-15b", "6144,16,48,8,,"));
    expect_understood(&v);
    r = v.rows.v;
    mw_assert_near(r[1].predicted_s, r[0].predicted_s, 0, 0);
    mw_assert_near(r[1].peak_bytes, r[0].peak_bytes, 0, 0);
    assert_true(has_fill(&r[1], MW_FILL_FAMILY));
    assert_true(r[2].peak_bytes < r[1].peak_bytes);
    assert_false(has_fill(&r[2], MW_FILL_FAMILY));
    assert_false(has_fill(&r[3], MW_FILL_FAMILY));
    assert_true(has_fill(&r[4], MW_FILL_FAMILY));
    assert_true(r[4].predicted_s < r[1].predicted_s);
    mw_validate_release(&v);
}

/* ---- sharding --------------------------------------------------------------
 */
static void test_sharding(void **state)
{
    static const struct {
        const char *said, *layout; /* NULL: refused */
    } words[] = {{"0", "dp64 mbs"},
                 {"no_shard", "dp64 mbs"},
                 {"DDP", "dp64 mbs"},
                 {"zero1 over all dp", "dp64 zero1 mbs"},
                 {"zero1 within 8 GPUs", "dp64 zero1 mbs"},
                 {"distributed optimizer (zero-1)", "dp64 zero1 mbs"},
                 {"zero2", "dp64 zero2 mbs"},
                 {"SHARD_GRAD_OP", "dp64 zero2 mbs"},
                 {"fsdp-2", "dp64 zero2 mbs"},
                 {"fsdp2", "dp64 zero3 mbs"},
                 {"fsdp 64", "dp64 zero3 mbs"},
                 {"zero1 all + fsdp", "dp64 zero3 mbs"},
                 {"FULL_SHARD", "dp64 zero3 mbs"},
                 {"HYBRID_SHARD", "dp64 zero3 mbs"},
                 {"FSDP (ZeRO-1-like)", NULL},
                 {"slices", NULL}};
    enum { N = sizeof words / sizeof words[0] };
    char rows[4096];
    size_t n = 0;
    struct mw_validate v;

    for (size_t i = 0; i < N; i++) {
        n += (size_t)snprintf(rows + n, sizeof rows - n,
                              "%s,llama3-8b,4096,64,1,64,8,H100-SXM5-80GB,1,1,"
                              "64,,%s,,bf16,torchtitan 2025-06,9\n",
                              words[i].said, words[i].said);
    }
    predict(&v, state, HEADER, rows);
    assert_int_equal(v.rows.n, N);
    for (size_t i = 0; i < N; i++) {
        const struct mw_validate_row *row = &v.rows.v[i];

        if (words[i].layout == NULL) {
            assert_non_null(strstr(row->skipped, "is not modelled"));
        } else if (row->skipped != NULL ||
                   strstr(row->layout, words[i].layout) == NULL) {
            fail_msg("%s: %s", row->id,
                     row->skipped != NULL ? row->skipped : row->layout);
        }
    }
    mw_validate_release(&v);
}

/* ---- schedules -------------------------------------------------------------
 */
#define PIPELINE(id, vpp, schedule)                                            \
    id ",llama3.1-405b,8192,64,1,512,64,H100-SXM5-80GB,8,8,8," vpp             \
       ",fsdp2," schedule ",bf16,torchtitan 2024-12,9\n"

/* An interleaved pipeline with no word on its chunks has two; one that says so
 * keeps its number; and a schedule that nobody knows is refused. */
static void test_schedules(void **state)
{
    struct mw_validate v;
    const struct mw_validate_row *r;

    predict(&v, state, HEADER,
            PIPELINE("a", "", "1f1b") PIPELINE("b", "", "Interleaved1F1B")
                PIPELINE("c", "4", "interleaved-1f1b")
                    PIPELINE("d", "", "chimera"));
    r = v.rows.v;
    assert_null(r[0].skipped);
    assert_null(strstr(r[0].layout, "vpp"));
    assert_non_null(strstr(r[1].layout, "vpp2"));
    assert_true(has_fill(&r[1], MW_FILL_VPP_INTERLEAVED));
    assert_true(r[1].predicted_s < r[0].predicted_s);
    assert_non_null(strstr(r[2].layout, "vpp4"));
    assert_false(has_fill(&r[2], MW_FILL_VPP_INTERLEAVED));
    assert_string_equal(r[3].skipped, "schedule 'chimera' is not known");
    mw_validate_release(&v);
}

/* ---- networks --------------------------------------------------------------
 */
/* "default" has the letters of EFA in it; a network's word stands alone. */
static void test_networks(void **state)
{
    static const char header[] =
        "id,model,seq,global_batch,micro_batch,gpus,nodes,gpu,tp,pp,dp,"
        "interconnect,framework,step_time_s\n";
    struct mw_validate v;

    predict(&v, state, header,
            "a,llama3-8b,4096,64,1,64,8,H100-SXM5-80GB,1,1,64,NDR,own,9\n"
            "b,llama3-8b,4096,64,1,64,8,H100-SXM5-80GB,1,1,64,by default,"
            "own,9\n"
            "c,llama3-8b,4096,64,1,64,8,H100-SXM5-80GB,1,1,64,NVLink4+EFA,"
            "own,9\n");
    expect_understood(&v);
    mw_assert_near(v.rows.v[1].predicted_s, v.rows.v[0].predicted_s, 0, 0);
    assert_true(v.rows.v[2].predicted_s != v.rows.v[0].predicted_s);
    mw_validate_release(&v);
}

/* ---- memory's tables -------------------------------------------------------
 */
#define LORA(id, model, quantisation, gpu)                                     \
    id "," model ",LoRA," quantisation "," gpu                                 \
       ",1,1,1034,14,0,bf16,LitGPT 2023-10\n"

static void test_fine_tuning(void **state)
{
    struct mw_validate v;

    predict(&v, state, MEMORY_HEADER,
            LORA("a", "Llama 2 7B", "bnb.nf4", "RTX A6000")
                LORA("b", "CodeLlama 34B", "bnb.fp4", "A40")
                    LORA("c", "Falcon 7B", "", "H100-PCIe-80GB")
                        LORA("d", "TinyLlama 1.1B", "", "RTX 3090")
                            LORA("e", "StableLM Alpha 7B", "", "A10"));
    expect_understood(&v);
    mw_validate_release(&v);
    predict(&v, state, MEMORY_HEADER,
            LORA("a", "Llama 2 7B", "bnb.int8", "A100"));
    assert_string_equal(v.rows.v[0].skipped,
                        "quantisation 'bnb.int8' is not modelled");
    mw_validate_release(&v);
    predict(&v, state, MEMORY_HEADER,
            "a,Llama 3.1 8B,\"full, single device\",,RTX A6000,1,2,2048,37.4,0,"
            "bf16,torchtune\n");
    assert_non_null(strstr(v.rows.v[0].skipped, "8-bit states"));
    mw_validate_release(&v);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_models),   cmocka_unit_test(test_family),
        cmocka_unit_test(test_sharding), cmocka_unit_test(test_schedules),
        cmocka_unit_test(test_networks), cmocka_unit_test(test_fine_tuning)};

    return cmocka_run_group_tests(tests, hwdb_lent_setup, hwdb_lent_teardown);
}
