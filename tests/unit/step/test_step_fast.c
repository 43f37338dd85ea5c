/*
 * The fast form with remembered prices is the fast form: step time, peak memory
 * and refusals to the bit those of mw_step_estimate, for layouts in any order
 * and met again, dense, with experts, under adapters, with the host's memory,
 * with windows in some layers, with layers that were dealt out by hand.
 */
#include "mw_test.h"

#include "base/rand.h"
#include "sim/coll/coll_library.h"
#include "sim/step/fast.h"
#include "step_fixture.h"

#include <string.h>

enum { SEED = 17, N_RANKS = 32, TRIES = 6000 };

static const char *const gpt =
    "model: {hidden: 1024, layers: 18, heads: 16, ffn: 4096, vocab: 32768, "
    "max_seq: 512, gated: false, norm: layer, position: learned, tied: true}\n";
static const char *const llama =
    "model: {hidden: 1024, layers: 18, heads: 16, kv_heads: 8, ffn: 4096, "
    "vocab: 32768, max_seq: 512, gated: true, norm: rms, position: rotary, "
    "tied: false, mtp: 2}\n";
static const char *const experts =
    "model: {hidden: 1024, layers: 18, heads: 16, kv_heads: 8, ffn: 4096, "
    "vocab: 32768, max_seq: 512, gated: true, norm: rms, position: rotary, "
    "tied: false, attention_window: 128, global_every: 4, window_form: "
    "chunked, moe: {experts: 8, top_k: 2, ffn: 2048, first_dense: 2}, mtp: "
    "1}\n";

struct world {
    struct mw_scenario scenario;
    struct mw_cost_ctx ctx;
};

static void open_world(struct world *w, const struct mw_hwdb *db,
                       const char *model, const char *cluster,
                       const char *workload)
{
    char text[1024];
    struct mw_err err = {0};

    snprintf(text, sizeof text,
             "format: 1\nname: t\n%scluster: {%s}\n"
             "workload: {seq: 512, global_batch: 128%s}\n",
             model, cluster, workload);
    if (mw_scenario_parse("t.yaml", text, strlen(text), &w->scenario, &err) !=
        MW_OK) {
        fail_msg("%s", err.text);
    }
    step_ctx(&w->ctx, db, &w->scenario);
    w->scenario.cluster.gpus_per_node = w->ctx.gpus_per_node;
}

static int draw_int(uint64_t i, uint64_t stream, int n)
{
    return (int)(mw_rand_u64(SEED, stream, i) % (uint64_t)n);
}

/* Counts of recomputed layers, each within the even share of a stage. */
static void draw_counts(struct mw_layout *l, const struct mw_model *m,
                        uint64_t i, int64_t *counts)
{
    int n = l->pp * l->vpp;

    if (l->recompute == MW_RECOMPUTE_NONE || l->recompute_layers > 0 ||
        draw_int(i, 33, 3) > 0) {
        return;
    }
    for (int k = 0; k < n; k++) {
        int most = mw_plan_even_share_of(m, l, k);

        counts[k] = draw_int(i, 34 + (uint64_t)k, most + 1);
    }
    l->stage_recompute_layers = (struct mw_int_list){counts, (size_t)n};
}

static void draw_rare(struct mw_layout *l, uint64_t i)
{
    l->recompute_layers = draw_int(i, 11, 3) == 0 && l->recompute > 0;
    if (l->recompute == MW_RECOMPUTE_SELECTIVE) {
        l->recompute_modules = draw_int(i, 18, 16); /* those of any layer */
    }
    l->overlap_off = draw_int(i, 19, 3) == 0 ? draw_int(i, 20, 8) : 0;
    l->grad_dtype = draw_int(i, 21, 4) == 0 ? 1 + MW_BF16 : 0;
    l->reshard = draw_int(i, 12, 4) > 0;
    if (l->zero == 3 && draw_int(i, 26, 2) == 0) {
        l->fsdp_unit = draw_int(i, 27, 6);
        l->fsdp_prefetch = draw_int(i, 28, 4) - 1;
    }
    if (l->zero >= 1 && l->dp >= 4 && draw_int(i, 13, 3) == 0) {
        l->dp_shard = l->dp / 2;
    }
    if (draw_int(i, 14, 6) == 0) {
        l->offload_optimizer = 0.5;
    }
    if (draw_int(i, 15, 6) == 0) {
        l->offload_activations = 0.25;
    }
    if (draw_int(i, 16, 8) == 0) {
        l->order = "tp-pp-dp";
    }
    if (draw_int(i, 19, 3) == 0) {
        l->dtype =
            draw_int(i, 21, 2) == 0 ? 1 + (int)MW_BF16 : 1 + (int)MW_FP32;
        l->grad_dtype =
            draw_int(i, 22, 2) == 0 ? 1 + (int)MW_FP32 : MW_DTYPE_OF_WORKLOAD;
    }
    if (draw_int(i, 17, 8) == 0) {
        l->grad_compression = (enum mw_grad_compression)(1 + l->zero / 3);
    }
    if (l->zero < 2 && l->grad_compression == MW_COMPRESS_NONE &&
        draw_int(i, 23, 2) == 0) {
        l->bucket_size = 1 << (14 + draw_int(i, 24, 14));
    }
    l->cuda_graph = (enum mw_cuda_graph)draw_int(i, 25, 5);
    if (draw_int(i, 33, 3) == 0) {
        l->main_params = draw_int(i, 34, 4);
        l->exp_avg = draw_int(i, 35, 2) * (1 + (int)MW_BF16);
        l->exp_avg_sq = draw_int(i, 36, 2) * (1 + (int)MW_FP8);
    }
}

enum { STAGES_MAX = 64 };

/* counts: room for stage_recompute_layers. */
static bool draw(struct mw_layout *l, const struct mw_scenario *s, uint64_t i,
                 int64_t counts[STAGES_MAX])
{
    static const char *const kinds[] = {
        "1f1b", "interleaved-1f1b", "gpipe", "zb-h1", "1f1b", "1f1b", "zb-v"};
    bool is_moe = s->model.moe.n_experts > 0;

    mw_layout_default(l);
    l->tp = 1 << draw_int(i, 1, 4);
    l->cp = 1 << (draw_int(i, 2, 4) == 0);
    l->pp = 1 << draw_int(i, 3, 5);
    l->dp = N_RANKS / (l->tp * l->cp * l->pp);
    l->sp = l->tp > 1 && (is_moe || draw_int(i, 4, 2) == 0);
    l->micro_batch = 1 << draw_int(i, 5, 3);
    l->zero = draw_int(i, 6, 4);
    l->recompute = (enum mw_recompute)draw_int(i, 7, 3);
    l->schedule = kinds[draw_int(i, 8, 7)];
    l->vpp = strcmp(l->schedule, "interleaved-1f1b") == 0 ? 2
             : strcmp(l->schedule, "zb-v") == 0           ? 2
                                                          : 1;
    if (mw_layout_is_grouped(l) && draw_int(i, 31, 2) == 0) {
        l->vpp_group = l->pp + draw_int(i, 32, l->pp + 1);
    }
    l->cp_form = (enum mw_cp_form)draw_int(i, 9, 4);
    if (is_moe) {
        l->ep = 1 << draw_int(i, 10, 4);
        l->etp = i % 2 == 0 ? 1 : l->tp;
    }
    if (is_moe && i % 3 == 1) {
        l->dispatcher = (enum mw_dispatcher)draw_int(i, 29, 5);
        l->overlap_shared_experts = l->dispatcher == MW_DISPATCH_ALLTOALL &&
                                    s->model.moe.shared_ffn > 0 &&
                                    draw_int(i, 30, 2) == 0;
    }
    if (i % 3 == 0) {
        draw_rare(l, i);
    }
    l->mtp_ahead =
        s->model.n_mtp > 0 && l->pp * l->vpp > 2 && draw_int(i, 26, 3) == 0;
    draw_counts(l, &s->model, i, counts);
    return l->dp >= 1 && mw_layout_check(l, &s->model, &s->workload, N_RANKS,
                                         NULL, NULL) == MW_OK;
}

/* Even layers, or one moved from the last stage that has any to the first. */
static const int *draw_layers(const struct mw_scenario *s,
                              const struct mw_layout *l, uint64_t i, int *room)
{
    int n = l->pp * l->vpp, last = n - 1 - l->mtp_ahead;

    mw_plan_even_of(&s->model, l, room);
    if (last == 0 || room[last] < 2 - l->mtp_ahead || draw_int(i, 20, 3) > 0) {
        return NULL;
    }
    room[0]++;
    room[last]--;
    return room;
}

static bool compare(const struct world *w, struct mw_fast *fast,
                    const struct mw_layout *l, uint64_t i)
{
    int room[STAGES_MAX];
    const int *layers = draw_layers(&w->scenario, l, i, room);
    double whole[2] = {-1, -1}, kept[2] = {-1, -1};
    struct mw_err err[2] = {{0}, {0}};
    enum mw_status status = mw_step_estimate(&w->scenario, l, layers, &w->ctx,
                                             &whole[0], &whole[1], &err[0]);

    assert_int_equal(
        mw_fast_estimate(fast, l, layers, &kept[0], &kept[1], &err[1]), status);
    assert_string_equal(err[1].text, err[0].text);
    assert_memory_equal(kept, whole, sizeof kept);
    kept[0] = kept[1] = -1;
    assert_int_equal(mw_fast_estimate(fast, l, layers, NULL, &kept[1], NULL),
                     status);
    assert_memory_equal(&kept[1], &whole[1], sizeof kept[1]);
    return status == MW_OK;
}

static void run(const char *model, const char *cluster, const char *workload,
                int at_least)
{
    struct mw_hwdb *db = step_hwdb();
    struct world w;
    int n = 0, n_ahead = 0, n_counted = 0;

    mw_coll_library_lend(db);
    open_world(&w, db, model, cluster, workload);
    struct mw_fast *fast = mw_fast_new(&w.scenario, &w.ctx);

    for (uint64_t i = 0; i < TRIES; i++) {
        struct mw_layout l;
        int64_t counts[STAGES_MAX];

        if (draw(&l, &w.scenario, i, counts)) {
            bool is_priced = compare(&w, fast, &l, i);

            n += is_priced;
            n_ahead += is_priced && l.mtp_ahead > 0;
            n_counted += is_priced && l.stage_recompute_layers.n > 1;
        }
    }
    print_message("%d layouts\n", n);
    assert_true(n >= at_least);
    assert_true(n_counted > at_least / 20);
    assert_true(w.scenario.model.n_mtp == 0 || n_ahead > at_least / 20);
    mw_fast_free(fast);
    mw_scenario_release(&w.scenario);
    mw_hwdb_free(db);
}

static void test_dense(void **state)
{
    (void)state;
    run(gpt, "system: dgx-a100, nodes: 4",
        ", dtype: fp16, grad_dtype: fp32, attention: unfused, dropout: true",
        300);
    run(llama, "system: dgx-h100, nodes: 4", ", dtype: bf16", 300);
}

static void test_experts(void **state)
{
    (void)state;
    run(experts, "system: dgx-h100, nodes: 4", ", dtype: bf16", 200);
}

static void test_adapters(void **state)
{
    (void)state;
    run(llama, "system: dgx-h100, nodes: 4", ", dtype: bf16, lora_rank: 8",
        100);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_dense),
                                       cmocka_unit_test(test_experts),
                                       cmocka_unit_test(test_adapters)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
