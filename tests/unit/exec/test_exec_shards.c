/*
 * Slices of the parameter table: over all ranks of a layout they cover every
 * element of every tensor once per replica, and hold the values that one rank
 * draws alone.
 */
#include "mw_test.h"

#include "base/mem.h"
#include "exec/shards.h"

#include <math.h>
#include <string.h>

static const char gpt[] =
    "{preset: gpt-small, hidden: 16, heads: 4, head_dim: 4, ffn: 32, vocab: "
    "24, max_seq: 8, layers: 4, tied: true}";
static const char llama[] =
    "{hidden: 16, layers: 4, heads: 4, kv_heads: 2, head_dim: 4, ffn: 24, "
    "vocab: 24, gated: true, norm: rms, position: rotary, activation: silu}";

struct setup {
    struct mw_scenario scenario;
    struct mw_plan plan;
    struct mw_job job;
};

static void setup(struct setup *s, const char *model, int tp, int pp)
{
    char text[1024];
    struct mw_err err = {0};
    struct mw_layout l;
    int n = snprintf(text, sizeof text,
                     "format: 1\nname: shards\nmodel: %s\ncluster: {system: "
                     "this-machine, nodes: 1, gpus_per_node: %d}\nworkload: "
                     "{seq: 8, global_batch: 8, dtype: fp32, seed: 3}\n",
                     model, tp * pp);
    if (mw_scenario_parse("shards.yaml", text, (size_t)n, &s->scenario, &err) !=
        MW_OK) {
        fail_msg("%s", err.text);
    }
    mw_layout_default(&l);
    l.tp = tp;
    l.pp = pp;
    assert_int_equal(mw_plan_make(&s->scenario, &l, NULL, &s->plan, &err),
                     MW_OK);
    mw_job_from_plan(&s->job, &s->scenario, &s->plan);
}

static void teardown(struct setup *s)
{
    mw_plan_release(&s->plan);
    mw_scenario_release(&s->scenario);
}

static float *filled(const struct setup *s, struct mw_shards *shards,
                     struct mw_coord at)
{
    mw_shards_make(shards, &s->job, at);
    float *w = mw_calloc(shards->n_total, sizeof *w);
    mw_shards_fill(shards, s->job.model, 3, w);
    return w;
}

/* Counts how often each element of the whole is held, over ranks of tp, and
 * compares values with the whole draw. */
static void check_cover(const char *model, int tp, int pp)
{
    struct setup one, split;
    struct mw_shards whole, part;
    setup(&one, model, 1, 1);
    setup(&split, model, tp, pp);
    float *w1 = filled(&one, &whole, (struct mw_coord){0, 0, 0, 0});
    int *held = mw_calloc(whole.n_total, sizeof *held);
    for (int r = 0; r < tp * pp; r++) {
        struct mw_coord at = {r % tp, 0, 0, r / tp};
        float *w = filled(&split, &part, at);
        for (size_t i = 0; i < part.slices.n; i++) {
            const struct mw_slice *s = &part.slices.v[i];
            const struct mw_slice *o =
                s->is_tied
                    ? mw_shards_find_tied(&whole)
                    : mw_shards_find(&whole, s->param->name, s->param->layer);
            assert_non_null(o);
            for (size_t k = 0; k < s->n; k++) {
                size_t at_whole = o->offset + mw_slice_whole_index(s, k);
                assert_true(w[s->offset + k] == w1[at_whole]);
                held[at_whole] += s->param->shard == MW_SHARD_NONE ? 1 : tp;
            }
        }
        mw_free(w);
        mw_shards_release(&part);
    }
    for (size_t i = 0; i < whole.slices.n; i++) {
        const struct mw_slice *s = &whole.slices.v[i];
        for (size_t k = 0; k < s->n; k++) {
            assert_int_equal(held[s->offset + k], tp);
        }
    }
    mw_free(held);
    mw_free(w1);
    mw_shards_release(&whole);
    teardown(&one);
    teardown(&split);
}

static void slices_cover_the_model(void **state)
{
    (void)state;
    check_cover(gpt, 1, 4);
    check_cover(gpt, 4, 1);
    check_cover(gpt, 2, 2);
    check_cover(llama, 2, 2);
}

/* The flat buffer of one rank has the model's parameters and, tied, a second
 * copy of the embedding; padding is less than 16 floats a tensor. */
static void sizes_are_the_table_s(void **state)
{
    (void)state;
    struct setup s;
    struct mw_shards shards;
    setup(&s, gpt, 1, 1);
    mw_shards_make(&shards, &s.job, (struct mw_coord){0, 0, 0, 0});
    size_t want = (size_t)mw_model_param_count(s.job.model) + 24 * 16;
    size_t sum = 0;
    for (size_t i = 0; i < shards.slices.n; i++) {
        assert_int_equal(shards.slices.v[i].offset % 16, 0);
        sum += shards.slices.v[i].n;
    }
    assert_int_equal(sum, want);
    assert_true(shards.n_total < want + 16 * (shards.slices.n + 1));
    mw_shards_release(&shards);
    teardown(&s);
}

/* Fused [q | k | v]: rows of rank 1 of 2 are the second half of each third. */
static void fused_rows_split_inside_each_part(void **state)
{
    (void)state;
    struct setup s;
    struct mw_shards shards;
    setup(&s, gpt, 2, 1);
    mw_shards_make(&shards, &s.job, (struct mw_coord){1, 0, 0, 0});
    const struct mw_slice *q = mw_shards_find(&shards, "attn.qkv.weight", 2);
    assert_non_null(q);
    assert_int_equal(q->rows, 8);
    assert_int_equal(mw_slice_whole_index(q, 0), 8 * 16);
    assert_int_equal(mw_slice_whole_index(q, 8 * 16), (16 + 8) * 16);
    const struct mw_slice *p = mw_shards_find(&shards, "attn.proj.weight", 2);
    assert_int_equal(p->cols, 8); /* row-parallel: columns 8 .. 15 */
    assert_int_equal(mw_slice_whole_index(p, 0), 8);
    assert_int_equal(mw_slice_whole_index(p, 8), 16 + 8);
    mw_shards_release(&shards);
    teardown(&s);
}

static void initial_values(void **state)
{
    (void)state;
    struct setup s;
    struct mw_shards shards;
    setup(&s, gpt, 1, 1);
    float *w = filled(&s, &shards, (struct mw_coord){0, 0, 0, 0});
    const struct mw_slice *fc1 = mw_shards_find(&shards, "mlp.fc1.weight", 0);
    const struct mw_slice *fc2 = mw_shards_find(&shards, "mlp.fc2.weight", 0);
    double sum1 = 0, sum2 = 0;
    for (size_t i = 0; i < fc1->n; i++) {
        sum1 += pow((double)w[fc1->offset + i], 2);
        sum2 += pow((double)w[fc2->offset + i], 2);
    }
    /* 512 draws: the deviation itself is known to 1 / sqrt(1024) = 3 %. */
    mw_assert_near(sqrt(sum1 / (double)fc1->n), 0.02, 0.1, 0);
    mw_assert_near(sqrt(sum2 / (double)fc2->n), 0.02 / sqrt(8.0), 0.1, 0);
    assert_true(w[mw_shards_find(&shards, "attn.norm.weight", 1)->offset] ==
                1.0f);
    assert_true(w[mw_shards_find(&shards, "attn.norm.bias", 1)->offset] ==
                0.0f);
    mw_free(w);
    mw_shards_release(&shards);
    teardown(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(slices_cover_the_model),
        cmocka_unit_test(sizes_are_the_table_s),
        cmocka_unit_test(fused_rows_split_inside_each_part),
        cmocka_unit_test(initial_values),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
