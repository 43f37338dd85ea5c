/*
 * What the executor refuses, in words; the one-rank reference of a plan; the
 * --slow option.
 */
#include "mw_test.h"

#include "base/mem.h"
#include "exec/dev.h"
#include "exec/job.h"

#include <string.h>

static void load(struct mw_scenario *s, const char *model, const char *dtype)
{
    char text[1024];
    struct mw_err err = {0};
    int n = snprintf(text, sizeof text,
                     "format: 1\nname: job\nmodel: %s\ncluster: {system: "
                     "this-machine, nodes: 1, gpus_per_node: 4}\nworkload: "
                     "{seq: 8, global_batch: 16, dtype: %s}\n",
                     model, dtype);
    if (mw_scenario_parse("job.yaml", text, (size_t)n, s, &err) != MW_OK) {
        fail_msg("%s", err.text);
    }
}

static void check_refused(const char *model, const char *dtype,
                          const struct mw_layout *layout, const char *word)
{
    struct mw_scenario s;
    struct mw_plan plan;
    struct mw_job job;
    struct mw_err err = {0};
    load(&s, model, dtype);
    if (mw_plan_make(&s, layout, NULL, &plan, &err) != MW_OK) {
        fail_msg("%s", err.text);
    }
    mw_job_from_plan(&job, &s, &plan);
    assert_int_equal(mw_job_check(&job, "host", &err), MW_EINPUT);
    if (!strstr(err.text, word)) {
        fail_msg("'%s' does not say '%s'", err.text, word);
    }
    assert_true(err.section[0] != '\0' && err.key[0] != '\0');
    mw_plan_release(&plan);
    mw_scenario_release(&s);
}

static struct mw_layout layout(int tp, int cp, int pp, int dp)
{
    struct mw_layout l;
    mw_layout_default(&l);
    l.tp = tp;
    l.cp = cp;
    l.pp = pp;
    l.dp = dp;
    return l;
}

static void refusals(void **state)
{
    (void)state;
    struct mw_layout l = layout(1, 1, 1, 4);
    check_refused("gpt-small", "bf16", &l, "fp32");
    l.grad_compression = MW_COMPRESS_ONEBIT;
    check_refused("gpt-small", "fp32", &l, "plan with grad_compression none");
    l = layout(1, 1, 1, 4);
    check_refused("gpt-small", "fp32, attention: flash, doc_tokens: 3", &l,
                  "documents of 3 tokens do not divide a sequence of 8");
    l = layout(1, 4, 1, 1);
    l.cp_form = MW_CP_RING;
    check_refused("gpt-small", "fp32, attention: flash, doc_tokens: 4", &l,
                  "packed sequences in a ring");
    l = layout(1, 1, 1, 4);
    check_refused("{preset: gpt-small, attention_window: 4, global_every: 2}",
                  "fp32", &l, "windows and sinks of attention");
    check_refused("{preset: gpt-small, attention_sinks: true}", "fp32", &l,
                  "take a model whose layers attend to all tokens");
    check_refused("{preset: gpt-small, moe: {experts: 4, top_k: 2, ffn: 64, "
                  "bias: true}}",
                  "fp32", &l, "biases and clamps of experts");
    l = layout(1, 1, 4, 1);
    l.recompute = MW_RECOMPUTE_SELECTIVE;
    l.recompute_modules = MW_MODULE_MLP;
    check_refused("gpt-small", "fp32", &l,
                  "recomputation of modules other than core_attn");
    l = layout(1, 1, 4, 1);
    l.schedule = "forward-only";
    check_refused("gpt-small", "fp32", &l, "forward-only schedules; plan with");
    l = layout(1, 2, 2, 1);
    l.schedule = "seq1f1b";
    check_refused("gpt-small", "fp32", &l,
                  "parts of sequences with context parallelism");
    l = layout(1, 1, 1, 4);
    check_refused("gpt-small", "fp32, optimizer: muon", &l,
                  "optimizers other than AdamW with fp32 states");
    check_refused("gpt-small", "fp32, exp_avg_sq_dtype: bf16", &l,
                  "optimizers other than AdamW with fp32 states");
    l.cuda_graph = MW_GRAPH_LAYER;
    check_refused("gpt-small", "fp32", &l, "does not run CUDA graphs; plan");
    l.cuda_graph = MW_GRAPH_STACK;
    check_refused("gpt-small", "fp32, loss_chunks: 2", &l,
                  "leave loss and loss_chunks out");
    check_refused("{hidden: 64, layers: 4, heads: 4, ffn: 128, vocab: 256, "
                  "moe: {experts: 4, top_k: 2, ffn: 64}}",
                  "fp32, capacity_factor: 1.25", &l,
                  "capacities of experts; leave capacity_factor out");
    l.dispatcher = MW_DISPATCH_ALLGATHER;
    check_refused("{hidden: 64, layers: 4, heads: 4, ffn: 128, vocab: 256, "
                  "moe: {experts: 4, top_k: 2, ffn: 64}}",
                  "fp32", &l, "plan with dispatcher alltoall");
    l.dispatcher = MW_DISPATCH_ALLTOALL;
    l.overlap_shared_experts = true;
    check_refused("{hidden: 64, layers: 4, heads: 4, ffn: 128, vocab: 256, "
                  "moe: {experts: 4, top_k: 2, ffn: 64, shared: 1, "
                  "shared_ffn: 64}}",
                  "fp32", &l, "plan without overlap_shared_experts");
    l.overlap_shared_experts = false;
    l.dispatcher = MW_DISPATCH_STACK;
    check_refused("gpt-small", "fp32, clip_grad: norm", &l,
                  "leave clip_grad out");
    l.offload_optimizer = 1;
    l.offload_nvme = MW_NVME_OPTIMIZER;
    check_refused("gpt-small", "fp32", &l, "plan without offload_nvme");
    l.offload_nvme = MW_NVME_NONE;
    l.offload_activations = 0.5;
    check_refused("gpt-small", "fp32", &l, "offload_optimizer alone");
}

/* ---- reference ---------------------------------------------------------- */
struct folded {
    struct mw_scenario s;
    struct mw_plan plan;
    struct mw_job job, one;
    struct mw_schedule schedule;
    int layers[16];
};

static void fold(struct folded *f, const char *schedule, int pp, int vpp,
                 int dp)
{
    struct mw_layout l = layout(1, 1, pp, dp);
    struct mw_err err = {0};
    l.vpp = vpp;
    l.schedule = schedule;
    load(&f->s, "gpt-small", "fp32");
    if (mw_plan_make(&f->s, &l, NULL, &f->plan, &err) != MW_OK) {
        fail_msg("%s", err.text);
    }
    mw_job_from_plan(&f->job, &f->s, &f->plan);
    assert_int_equal(
        mw_job_fold(&f->job, f->layers, &f->schedule, &f->one, &err), MW_OK);
    assert_int_equal(mw_schedule_check(&f->schedule, &err), MW_OK);
    assert_int_equal(mw_layout_ranks(&f->one.layout), 1);
}

static void unfold(struct folded *f)
{
    mw_schedule_release(&f->schedule);
    mw_plan_release(&f->plan);
    mw_scenario_release(&f->s);
}

/* 1F1B adds in ascending order: one chunk, F B W of each micro-batch; two
 * replicas of 8 micro-batches become 16. */
static void reference_of_1f1b_is_one_chunk(void **state)
{
    (void)state;
    struct folded f;
    fold(&f, "1f1b", 2, 1, 2);
    assert_int_equal(f.one.n_virtual, 1);
    assert_int_equal(f.one.n_microbatches, 16);
    assert_int_equal(f.layers[0], 8);
    for (int i = 0; i < 48; i++) {
        assert_int_equal(f.schedule.slot[i].microbatch, i / 3);
        assert_int_equal(f.schedule.slot[i].pass, i % 3);
    }
    unfold(&f);
}

/* Backwards in reverse order: stages stay chunks, W in the plan's order. */
static void reference_keeps_the_order_of_sums(void **state)
{
    (void)state;
    struct folded f;
    fold(&f, "gpipe-lifo", 4, 1, 1);
    assert_int_equal(f.one.n_virtual, 4);
    int next[4] = {15, 15, 15, 15};
    for (uint32_t i = 0; i < f.schedule.first[1]; i++) {
        const struct mw_slot *slot = &f.schedule.slot[i];
        if (slot->pass == MW_PASS_W) {
            assert_int_equal(slot->microbatch, next[slot->chunk]--);
        }
    }
    for (int k = 0; k < 4; k++) {
        assert_int_equal(next[k], -1);
        assert_int_equal(f.layers[k], 2);
    }
    unfold(&f);
}

/* Two routes: a chunk each, holding all layers; the first half of the
 * micro-batches on the first. */
static void reference_of_two_routes(void **state)
{
    (void)state;
    static const char *const names[] = {"dualpipe", "chimera"};
    for (size_t n = 0; n < sizeof names / sizeof *names; n++) {
        struct folded f;
        fold(&f, names[n], 4, 1, 1);
        assert_int_equal(f.one.n_virtual, 1);
        assert_int_equal(f.schedule.n_routes, 2);
        assert_true(mw_job_is_own_twin(&f.one, 0));
        for (int i = 0; i < 48; i++) {
            assert_int_equal(f.schedule.slot[i].microbatch, i / 3);
            assert_int_equal(f.schedule.slot[i].chunk, i / 3 < 8 ? 0 : 1);
        }
        for (int stage = 0; stage < 4; stage++) {
            assert_int_equal(mw_job_twin_stage(&f.job, stage), 3 - stage);
            assert_false(mw_job_is_own_twin(&f.job, stage));
        }
        unfold(&f);
    }
}

/* Two routes whose sums do not ascend: every virtual stage is a chunk of its
 * own on each route, and W keeps the order of its own device. */
static void reference_of_two_routes_keeps_the_order(void **state)
{
    (void)state;
    static const char *const lists[] = {
        "F0.0 F1.0 F2.1 F3.1 BW1.0 BW0.0 BW2.1 BW3.1",
        "F0.0 F1.0 F2.1 F3.1 BW0.0 BW1.0 BW3.1 BW2.1"};
    /* W of (route 0, stage 0), (0, 1), (1, 0) on device 1, (1, 1) on 0. */
    static const int want[] = {1, 0, 0, 1, 3, 2, 2, 3};
    struct mw_schedule two, one;
    struct mw_err err = {0};
    const int layers[] = {1, 1};
    int storage[2];
    struct mw_job job = {.n_virtual = 2,
                         .layers = layers,
                         .n_microbatches = 4,
                         .schedule = &two},
                  folded;
    mw_layout_default(&job.layout);
    job.layout.pp = 2;
    assert_int_equal(
        mw_schedule_parse(lists, 2, 4, 2, "bidirectional", &two, &err), MW_OK);
    assert_int_equal(mw_job_fold(&job, storage, &one, &folded, &err), MW_OK);
    assert_int_equal(mw_schedule_check(&one, &err), MW_OK);
    assert_int_equal(one.n_chunks, 4);
    assert_int_equal(one.route_len, 2);
    int n = 0;
    for (uint32_t i = 0; i < one.first[1]; i++) {
        const struct mw_slot *slot = &one.slot[i];
        if (slot->pass == MW_PASS_W) {
            assert_int_equal(slot->microbatch, want[n]);
            assert_int_equal(slot->chunk, n / 2);
            n++;
        }
    }
    assert_int_equal(n, 8);
    mw_schedule_release(&one);
    mw_schedule_release(&two);
}

/* ---- --slow ------------------------------------------------------------- */
static void slow_reads_kinds(void **state)
{
    (void)state;
    struct mw_slow slow = {{0}};
    struct mw_err err = {0};
    assert_int_equal(mw_slow_parse("gemm=1.3,norm=2", &slow, &err), MW_OK);
    mw_assert_near(slow.factor[MW_OP_GEMM], 1.3, 0, 0);
    mw_assert_near(slow.factor[MW_OP_NORM], 2, 0, 0);
    static const char *const wrong[] = {"gemm",     "gemm=",  "gemm=0.5",
                                        "gemm=nan", "gem=2",  "gemm=1e9",
                                        "",         "gemm=2,"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        mw_err_clear(&err);
        assert_int_equal(mw_slow_parse(wrong[i], &slow, &err), MW_EUSAGE);
        assert_non_null(strstr(err.text, "--slow"));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(refusals),
        cmocka_unit_test(reference_of_1f1b_is_one_chunk),
        cmocka_unit_test(reference_keeps_the_order_of_sums),
        cmocka_unit_test(reference_of_two_routes),
        cmocka_unit_test(reference_of_two_routes_keeps_the_order),
        cmocka_unit_test(slow_reads_kinds),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
