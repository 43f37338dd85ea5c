/*
 * Published configurations: legal under their framework's rules and within
 * memory; rank orders against brute force.
 *
 * Layouts: Narayanan et al., SC 2021, table 1 (A100 80 GB, sequences of 2048,
 * vocabulary 51,200; full recomputation as there); Smith et al.,
 * arXiv:2201.11990 (MT-NLG 530B: tp 8, pp 35, dp 8); Llama team,
 * arXiv:2407.21783, table 4 (405B on 8,192 and 16,384 H100: tp 8, pp 16, cp 1
 * or 16); DeepSeek-AI, arXiv:2412.19437, section 3.2 (pp 16, ep 64, ZeRO-1; on
 * H800, here H100, which has the same memory).
 */
#include "planner_world.h"

#include "planner/search_int.h"
#include "sim/plan/plan.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

struct published {
    const char *name, *model, *system, *more; /* of workload */
    int nodes, seq, batch;
    struct mw_layout layout;
};

#define GPT(layers, hidden, heads)                                             \
    "{hidden: " #hidden ", layers: " #layers ", heads: " #heads                \
    ", ffn: 0, vocab: 51200, gated: false, norm: layer, "                      \
    "position: learned, max_seq: 2048, tied: true}"
#define SC21(name, layers, hidden, heads, t, p, gpus, batch)                   \
    {                                                                          \
        name, GPT(layers, hidden, heads), "dgx-a100",                          \
            "dtype: fp16, attention: unfused", (gpus) / 8, 2048, batch,        \
        {                                                                      \
            .tp = (t), .pp = (p), .dp = (gpus) / (t) / (p),                    \
            .recompute = MW_RECOMPUTE_FULL                                     \
        }                                                                      \
    }

static const struct published plans[] = {
    SC21("1.7B", 24, 2304, 24, 1, 1, 32, 512),
    SC21("3.6B", 30, 3072, 32, 2, 1, 64, 512),
    SC21("7.5B", 36, 4096, 32, 4, 1, 128, 512),
    SC21("18.4B", 40, 6144, 48, 8, 1, 256, 1024),
    SC21("39.1B", 48, 8192, 64, 8, 2, 512, 1536),
    SC21("76.1B", 60, 10240, 80, 8, 4, 1024, 1792),
    SC21("145.6B", 80, 12288, 96, 8, 8, 1536, 2304),
    SC21("310.1B", 96, 16384, 128, 8, 16, 1920, 2160),
    SC21("529.6B", 105, 20480, 128, 8, 35, 2520, 2520),
    SC21("1008B", 128, 25600, 160, 8, 64, 3072, 3072),
    SC21("MT-NLG", 105, 20480, 128, 8, 35, 2240, 1920),
    {"Llama-3 405B, 8k",
     "llama3.1-405b",
     "dgx-h100",
     "dtype: bf16",
     2048,
     8192,
     2048,
     {.tp = 8, .sp = true, .pp = 16, .dp = 128, .zero = 1}},
    {"Llama-3 405B, 131k",
     "llama3.1-405b",
     "dgx-h100",
     "dtype: bf16",
     2048,
     131072,
     128,
     {.tp = 8, .sp = true, .cp = 16, .pp = 16, .dp = 8, .zero = 1}},
    {"DeepSeek-V3",
     "deepseek-v3",
     "dgx-h100",
     "dtype: bf16",
     256,
     4096,
     15360,
     {.tp = 1,
      .pp = 16,
      .dp = 128,
      .ep = 64,
      .zero = 1,
      .recompute = MW_RECOMPUTE_FULL}},
};
enum { N_PLANS = sizeof plans / sizeof plans[0] };

static void open_published(struct world *w, const struct published *p)
{
    char model[512], text[1024];
    const char *zero = strstr(p->model, "ffn: 0");
    int hidden = 0;

    snprintf(model, sizeof model, "%s", p->model);
    if (zero && sscanf(p->model, "{hidden: %d", &hidden) == 1) {
        snprintf(model, sizeof model, "%.*sffn: %d%s", (int)(zero - p->model),
                 p->model, 4 * hidden, zero + strlen("ffn: 0"));
    }
    snprintf(text, sizeof text,
             "format: 1\nmodel: %s\ncluster: {system: %s, nodes: %d}\n"
             "workload: {seq: %d, global_batch: %d, %s}\n"
             "limits: {framework: megatron-core-0.14, memory_fraction: 0.95}\n",
             model, p->system, p->nodes, p->seq, p->batch, p->more);
    parse_world(w, text);
    w->scenario.cluster.gpus_per_node = w->ctx.gpus_per_node;
}

static void test_published_layouts(void **state)
{
    (void)state;
    for (int i = 0; i < N_PLANS; i++) {
        const struct published *p = &plans[i];
        struct world w;
        struct mw_search_opts opts;
        struct search search = {
            .scenario = &w.scenario, .ctx = &w.ctx, .opts = &opts};
        struct weigher weigher;
        struct mw_layout l = p->layout;
        char text[MW_PLAN_TEXT_MAX];
        double bytes = 0;
        enum mw_status status;

        open_published(&w, p);
        l.cp = l.cp ? l.cp : 1;
        l.ep = l.ep ? l.ep : 1;
        l.etp = l.vpp = l.micro_batch = 1;
        l.schedule = "1f1b";
        l.order = "tp-cp-ep-dp-pp";
        l.reshard = true;
        mw_search_opts_default(&opts);
        mw_space_init(&search.space, &w.scenario, &w.ctx, &opts);
        search.usable_bytes = 0.95 * w.ctx.gpu->mem_bytes;
        search.is_mixed = w.scenario.model.moe.first_dense > 0;
        const char *rule = mw_space_forbids(&search.space, &l, text);

        if (rule) {
            fail_msg("%s: %s: %s", p->name, rule, text);
        }
        mw_weigher_init(&weigher, &search);
        /* Uneven where it must be, as Llama's first and last stages were. */
        if (!mw_weigh_layers(&weigher, &l, &bytes, &status, NULL)) {
            fail_msg("%s needs %.1f GiB", p->name, bytes / (1 << 30));
        }
        assert_int_equal(status, MW_OK);
        mw_weigher_release(&weigher);
        mw_space_release(&search.space);
        close_world(&w);
    }
}

/* ---- placement -------------------------------------------------------------
 */
static double simulate(const struct world *w, const struct mw_layout *layout)
{
    struct mw_plan plan;
    struct mw_step_opts opts = {.no_breakdown = true};
    struct mw_step_result step;
    struct mw_err err = {0};

    if (mw_plan_make(&w->scenario, layout, NULL, &plan, &err) != MW_OK) {
        fail_msg("%s", err.text);
    }
    assert_int_equal(
        mw_step_simulate(&w->scenario, &plan, &w->ctx, &opts, &step, &err),
        MW_OK);
    double time_s = step.step_time_s;

    mw_step_result_release(&step);
    mw_plan_release(&plan);
    return time_s;
}

/* All 24 orders by hand, the layout otherwise fixed. */
static void check_orders(const struct world *w, struct mw_search_opts opts)
{
    static const char dim[4][3] = {"tp", "cp", "dp", "pp"};
    struct mw_search_result r;
    double best = HUGE_VAL, worst = 0;

    opts.is_quiet = opts.is_full = true;
    opts.top = 1;
    opts.micro_batch = 1;
    opts.schedule = "1f1b";
    opts.vpp = 1;
    assert_int_equal(mw_search(&w->scenario, &w->ctx, &opts, &r, NULL), MW_OK);
    for (int a = 0; a < 4; a++) {
        for (int b = 0; b < 4; b++) {
            for (int c = 0; c < 4; c++) {
                char order[32];
                struct mw_layout l = r.plans[0].layout;

                if (a == b || a == c || b == c) {
                    continue;
                }
                snprintf(order, sizeof order, "%s-%s-%s-%s", dim[a], dim[b],
                         dim[c], dim[6 - a - b - c]);
                l.order = order;
                double t = simulate(w, &l);

                best = fmin(best, t);
                worst = fmax(worst, t);
            }
        }
    }
    assert_true(worst > best * 1.001); /* the order matters here */
    assert_true(r.plans[0].step_time_s <= best * (1 + 1e-12));
    mw_search_result_release(&r);
}

static struct mw_search_opts fixed(int tp, int pp, int dp)
{
    struct mw_search_opts o;

    mw_search_opts_default(&o);
    o.tp = tp;
    o.pp = pp;
    o.dp = dp;
    o.sp = 1;
    o.cp = 1;
    o.zero = 1;
    o.recompute = MW_RECOMPUTE_FULL;
    return o;
}

static void test_tp_16_over_two_nodes(void **state)
{
    (void)state;
    struct world w;

    parse_world(&w, "format: 1\nmodel: gpt3-175b\n"
                    "cluster: {system: dgx-a100, nodes: 8}\n"
                    "workload: {seq: 2048, global_batch: 16, dtype: fp16}\n"
                    "limits: {max_tp: 16}\n");
    w.scenario.cluster.gpus_per_node = 8;
    check_orders(&w, fixed(16, 2, 2));
    close_world(&w);
}

static void test_dp_inside_and_across_nodes(void **state)
{
    (void)state;
    struct world w;

    parse_world(&w, "format: 1\nmodel: llama3-8b\n"
                    "cluster: {system: dgx-h100, nodes: 4}\n"
                    "workload: {seq: 4096, global_batch: 32, dtype: bf16}\n");
    w.scenario.cluster.gpus_per_node = 8;
    check_orders(&w, fixed(2, 4, 4));
    close_world(&w);
}

/* 64 experts' ranks of 72 in a rack, or spread over two. */
static void test_ep_64_and_racks(void **state)
{
    (void)state;
    struct world w;
    struct mw_search_opts o;

    parse_world(&w, "format: 1\nmodel: deepseek-v3\n"
                    "cluster: {system: gb200-nvl72, nodes: 64}\n"
                    "workload: {seq: 4096, global_batch: 512, dtype: bf16}\n");
    w.scenario.cluster.gpus_per_node = w.ctx.gpus_per_node;
    o = fixed(1, w.ctx.gpus_per_node, 64);
    o.ep = 64;
    o.sp = 0;
    check_orders(&w, o);
    close_world(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_published_layouts),
        cmocka_unit_test(test_tp_16_over_two_nodes),
        cmocka_unit_test(test_dp_inside_and_across_nodes),
        cmocka_unit_test(test_ep_64_and_racks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
