/*
 * Published recipes of measured runs: what they fill, what they leave to the
 * row and to the rules, and that our layouts have every word of them.
 */
#include "mw_test.h"

#include "base/file.h"
#include "hwdb/recipe.h"
#include "sim/validate/validate_int.h"
#include "unit/hwdb/hwdb_lent.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define HEADER                                                                 \
    "id,kind,model,seq,global_batch,micro_batch,gpus,nodes,gpu,tp,pp,vpp,dp,"  \
    "cp,ep,zero,recompute,offload,dtype,framework,step_time_s,"                \
    "mem_gib_per_gpu\n"
#define BRIDGE(release) "Megatron-Bridge " release " NeMo Container"
/* Most rows have memory alone, which is priced without a step. DeepSeek-V3 on
 * 256 GB200: its recipe of 25.11 is of ep 64. */
#define DEEPSEEK(id, ep, recompute)                                            \
    id ",pretrain,deepseekv3,4096,256,1,256,64,GB200,1,4,4,64,1," ep           \
       ",," recompute ",,fp8-mx," BRIDGE("25.11") ",,100\n"
/* Qwen3 30B-A3B on 8 GB300, with a part of the router captured. */
#define QWEN(release)                                                          \
    "q,pretrain,qwen3-30b-a3b,4096,64,8,8,2,GB300,1,1,,8,1,8,,,,"              \
    "mxfp8," BRIDGE(release) ",,100\n"

static void predict(struct mw_validate *v, void **state, const char *rows)
{
    struct mw_outfile out;
    struct mw_err err = {0};

    assert_int_equal(mw_outfile_open(&out, "recipes_run.csv", &err), MW_OK);
    fputs(HEADER, out.f);
    fputs(rows, out.f);
    assert_int_equal(mw_outfile_commit(&out, &err), MW_OK);
    mw_validate_init(v, *state);
    if (mw_validate_add(v, "recipes_run.csv", &err) != MW_OK) {
        fail_msg("%s", err.text);
    }
    remove("recipes_run.csv");
    for (size_t i = 0; i < v->rows.n; i++) {
        if (v->rows.v[i].skipped != NULL) {
            fail_msg("%s: %s", v->rows.v[i].id, v->rows.v[i].skipped);
        }
    }
}

static bool has_fill(const struct mw_validate *v, size_t i, enum mw_fill fill)
{
    return (v->rows.v[i].fills >> fill & 1) != 0;
}

static const struct mw_layout *layout_of(const struct mw_validate *v, size_t i)
{
    return &v->rows.v[i].state->layout;
}

/* The first is the recipe's run, the second is none of its layouts, the third
 * says for itself what is recomputed. */
static void test_what_is_filled(void **state)
{
    struct mw_validate v;

    predict(&v, state,
            DEEPSEEK("a", "64", "") DEEPSEEK("b", "32", "")
                DEEPSEEK("c", "64", "full"));
    const struct mw_layout *a = layout_of(&v, 0), *b = layout_of(&v, 1),
                           *c = layout_of(&v, 2);

    assert_true(has_fill(&v, 0, MW_FILL_RECIPE));
    assert_false(has_fill(&v, 0, MW_FILL_RECOMPUTE));
    assert_int_equal(a->recompute, MW_RECOMPUTE_SELECTIVE);
    assert_int_equal(a->recompute_modules,
                     MW_MODULE_MLA_UP_PROJ | MW_MODULE_MLP);
    assert_int_equal(a->dispatcher, MW_DISPATCH_ALLTOALL);

    assert_false(has_fill(&v, 1, MW_FILL_RECIPE));
    assert_true(has_fill(&v, 1, MW_FILL_RECOMPUTE));
    assert_int_equal(b->recompute, MW_RECOMPUTE_NONE);
    assert_int_equal(b->cuda_graph, MW_GRAPH_STACK);
    assert_int_equal(b->dispatcher, MW_DISPATCH_STACK);

    assert_true(has_fill(&v, 2, MW_FILL_RECIPE));
    assert_false(has_fill(&v, 2, MW_FILL_RECOMPUTE));
    assert_int_equal(c->recompute, MW_RECOMPUTE_FULL);
    assert_int_equal(c->recompute_modules, 0);
    assert_int_equal(c->dispatcher, MW_DISPATCH_ALLTOALL);
    /* Repeating less keeps more. */
    assert_true(v.rows.v[2].peak_bytes < v.rows.v[0].peak_bytes);
    mw_validate_release(&v);
}

/* A recipe that captures the router alone: no scope of ours says so, and the
 * stack's stays. The next release captures all. */
static void test_what_a_layout_cannot_say(void **state)
{
    struct mw_validate v;

    predict(&v, state, QWEN("26.04"));
    assert_true(has_fill(&v, 0, MW_FILL_RECIPE));
    assert_int_equal(layout_of(&v, 0)->cuda_graph, MW_GRAPH_STACK);
    assert_int_equal(layout_of(&v, 0)->dispatcher, MW_DISPATCH_HYBRIDEP);
    mw_validate_release(&v);
    predict(&v, state, QWEN("26.08"));
    assert_int_equal(layout_of(&v, 0)->cuda_graph, MW_GRAPH_ITERATION);
    mw_validate_release(&v);
}

#define FSDP(id, run, offload, dtype, release)                                 \
    id ",pretrain," run ",1,,64,1,,fsdp 64,," offload "," dtype                \
       "," BRIDGE(release) ",,100\n"
#define LLAMA_70B "llama3-70b,8192,128,2,64,16,GB300,1"
#define LLAMA_405B "llama3.1-405b,8192,64,1,128,32,GB200,2"

/* 20 of 80 layers in the host's memory; 95 of 126; what a row says stays. */
static void test_offloaded_layers(void **state)
{
    struct mw_validate v;

    predict(&v, state,
            FSDP("a", LLAMA_70B, "", "fp8", "26.04.01")
                FSDP("b", LLAMA_405B, "", "fp8-cs", "25.09")
                    FSDP("c", LLAMA_70B, "optimizer", "fp8", "26.04.01"));
    assert_true(layout_of(&v, 0)->offload_activations == 20.0 / 80);
    assert_true(layout_of(&v, 1)->offload_activations == 95.0 / 126);
    assert_true(layout_of(&v, 2)->offload_activations == 0);
    for (size_t i = 0; i < 2; i++) {
        assert_true(v.rows.v[i].fits);
        assert_int_equal(layout_of(&v, i)->cuda_graph, MW_GRAPH_NONE);
    }
    mw_validate_release(&v);
}

#define GROK(release)                                                          \
    "g,pretrain,grok1-314b,8192,64,1,128,32,GB200,4,1,,32,1,8,,,,fp8,"         \
    "NeMo/Megatron (dgxc v" release "),5.3,\n"

/* Experts padded to a capacity let a graph capture all of a layer. */
static void test_capacity(void **state)
{
    struct mw_validate v;

    predict(&v, state, GROK("25.05"));
    const struct mw_workload *w = &v.rows.v[0].state->scenario.workload;
    double with_s = v.rows.v[0].predicted_s;

    assert_true(w->capacity_factor == 1 && w->pads_to_capacity);
    assert_int_equal(layout_of(&v, 0)->cuda_graph, MW_GRAPH_LAYER);
    mw_validate_release(&v);
    predict(&v, state, GROK("25.02")); /* nobody knows its recipe */
    assert_false(has_fill(&v, 0, MW_FILL_RECIPE));
    assert_false(v.rows.v[0].state->scenario.workload.pads_to_capacity);
    assert_true(with_s < v.rows.v[0].predicted_s);
    mw_validate_release(&v);
}

static void expect_word(const struct mw_enum *enums, const char *word)
{
    while (enums->name != NULL && strcmp(enums->name, word) != 0) {
        enums++;
    }
    if (enums->name == NULL) {
        fail_msg("no '%s' in a layout", word);
    }
}

static void test_layouts_have_the_words(void **state)
{
    const struct mw_recipe *r;

    for (size_t i = 0; (r = mw_hwdb_recipe_at(*state, i)) != NULL; i++) {
        bool is_plain = strcmp(r->recompute, "none") == 0 ||
                        strcmp(r->recompute, "full") == 0;

        for (const char *at = r->recompute; *at != '\0' && !is_plain;) {
            char word[32];
            size_t n = strcspn(at, ";");

            snprintf(word, sizeof word, "%.*s", (int)n, at);
            expect_word(mw_recompute_module_enums, word);
            at += n + (at[n] == ';');
        }
        if (r->cuda_graph[0] != '\0') {
            expect_word(mw_cuda_graph_enums, r->cuda_graph);
        }
        if (r->dispatcher[0] != '\0') {
            expect_word(mw_dispatcher_enums, r->dispatcher);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_is_filled),
        cmocka_unit_test(test_what_a_layout_cannot_say),
        cmocka_unit_test(test_offloaded_layers),
        cmocka_unit_test(test_capacity),
        cmocka_unit_test(test_layouts_have_the_words)};

    return cmocka_run_group_tests(tests, hwdb_lent_setup, hwdb_lent_teardown);
}
