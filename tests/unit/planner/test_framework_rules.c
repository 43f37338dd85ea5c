/*
 * Rules of frameworks one by one: a layout that breaks one, the nearest that
 * meets all. What a case does not name is a dense model in bf16 on 16 devices.
 */
#include "planner_world.h"

#include "planner/nanotron_split.h"
#include "planner/rules.h"

#include <string.h>

/* 0 stands for what is usual. */
struct knobs {
    int tp, cp, pp, vpp, ep, etp, zero, dp_shard,
        micro_batch;       /* dp: the rest */
    bool sp, is_pp_inside; /* order tp-cp-ep-pp-dp */
    const char *schedule;
    int kv_heads, experts, mtp;
    bool has_bias, is_learned, is_tied;
    int dtype, grad_dtype;    /* 1 + enum mw_dtype */
    int main_params, moments; /* as in mw_layout; of both moments */
    enum mw_scaling scaling;
    bool is_unfused, has_dropout;
    enum mw_cuda_graph graph;
    enum mw_recompute recompute;
    int modules, overlap_off;
    enum mw_optimizer_kind optimizer;
    double offload_optimizer, offload_weights, offload_activations;
    int seq, batch; /* 0: 256 */
    int vpp_group;  /* 0: pp */
    int window;     /* tokens */
    int layers;     /* 0: 32 */
    bool is_short;  /* FP8 on the way to experts */
    bool is_chunked, has_sinks;
    enum mw_dispatcher dispatcher;
    const char *system; /* other than the scenario's */
};
struct rule_case {
    int framework;
    const char *id;
    struct knobs bad, good;
};

#define MEG MW_FRAMEWORK_MEGATRON_CORE
#define MDS MW_FRAMEWORK_MEGATRON_DEEPSPEED
#define TT MW_FRAMEWORK_TORCHTITAN
#define NANO MW_FRAMEWORK_NANOTRON
#define NONE (-1) /* ZeRO-0 */
#define FP16 (1 + MW_FP16)
#define BF16 (1 + MW_BF16)
#define FP32 (1 + MW_FP32)
#define FP8 (1 + MW_FP8)

/* clang-format off */
static const struct rule_case cases[] = {
    {MEG, "megatron_interleaved_group", {.pp = 4, .vpp = 2, .batch = 40, .schedule = "interleaved-1f1b"},
     {.pp = 4, .vpp = 2, .batch = 40, .vpp_group = 5, .schedule = "interleaved-1f1b"}},
    {MEG, "megatron_interleaved_group", {.pp = 4, .vpp = 2, .batch = 40, .vpp_group = 8, .schedule = "interleaved-1f1b"},
     {.pp = 4, .vpp = 2, .batch = 40, .vpp_group = 6, .schedule = "interleaved-1f1b"}},
    {MEG, "megatron_fp8_block", {.dtype = FP8, .scaling = MW_SCALE_BLOCK, .system = "pcie-8x-l40s"}, {.dtype = FP8, .system = "pcie-8x-l40s"}},
    {MEG, "megatron_kv_heads", {.tp = 8, .sp = true, .kv_heads = 4}, {.tp = 4, .sp = true, .kv_heads = 4}},
    {MEG, "megatron_zero", {.zero = 3, .pp = 2}, {.zero = 3}},
    {MEG, "megatron_zero", {.zero = 2, .is_tied = true}, {.zero = 1, .is_tied = true}},
    {MEG, "megatron_zero", {.zero = 3, .experts = 8, .ep = 4, .dp_shard = 4}, {.zero = 3, .experts = 8, .ep = 4}},
    {MEG, "megatron_order_experts", {.is_pp_inside = true, .pp = 2, .experts = 8, .ep = 4},
     {.is_pp_inside = true, .pp = 2, .experts = 8, .ep = 4, .tp = 4, .sp = true}},
    {MEG, "megatron_order_experts", {.is_pp_inside = true, .pp = 2, .experts = 8, .ep = 4, .etp = 2, .tp = 2, .sp = true},
     {.is_pp_inside = true, .pp = 2, .experts = 8, .ep = 2, .etp = 2, .tp = 2, .cp = 2, .sp = true}},
    {MEG, "megatron_order_experts", {.is_pp_inside = true, .pp = 2, .cp = 2}, {.is_pp_inside = true, .pp = 2, .tp = 2}},
    {MEG, "megatron_grad_dtype", {.dtype = FP32, .grad_dtype = BF16, .is_unfused = true}, {.dtype = FP32, .grad_dtype = FP32, .is_unfused = true}},
    {MEG, "megatron_states", {.zero = NONE, .moments = FP8}, {.zero = 1, .moments = FP8}},
    {MEG, "megatron_states", {.zero = 1, .moments = BF16, .optimizer = MW_OPTIMIZER_MUON}, {.zero = 3, .moments = FP16, .main_params = 1 + MW_MAIN_FP16}},
    {MEG, "megatron_states_offload", {.moments = BF16, .offload_optimizer = 0.5}, {.moments = FP32, .offload_optimizer = 0.5}},
    {MEG, "megatron_main_params", {.main_params = 1 + MW_MAIN_NONE}, {.main_params = 1 + MW_MAIN_FP32}},
    {MDS, "mds_states", {.moments = BF16}, {.moments = FP32}},
    {TT, "titan_states", {.zero = 3, .moments = FP8}, {.zero = 3, .moments = BF16}},
    {TT, "titan_states", {.zero = 3, .main_params = 1 + MW_MAIN_FP16}, {.zero = 3, .moments = FP32}},
    {TT, "titan_states_offload", {.zero = 3, .moments = BF16, .offload_optimizer = 1, .offload_weights = 1}, {.zero = 3, .offload_optimizer = 1, .offload_weights = 1}},
    {NANO, "nanotron_states", {.moments = BF16}, {.moments = FP32}},
    {MEG, "megatron_grad_dtype", {.grad_dtype = FP16}, {.dtype = FP16, .grad_dtype = FP16}},
    {MEG, "megatron_fp8_scaling", {.dtype = FP8, .scaling = MW_SCALE_ROW}, {.dtype = FP8, .scaling = MW_SCALE_BLOCK}},
    {MEG, "megatron_mx_rows", {.dtype = FP8, .scaling = MW_SCALE_MX, .tp = 4, .cp = 4, .sp = true, .kv_heads = 4},
     {.dtype = FP8, .scaling = MW_SCALE_MX, .tp = 4, .cp = 2, .sp = true, .kv_heads = 4}},
    {MEG, "megatron_flash", {.dtype = FP32, .grad_dtype = FP32}, {.dtype = FP32, .grad_dtype = FP32, .is_unfused = true}},
    {MEG, "megatron_flash", {.system = "dgx-1v", .dtype = FP16}, {.system = "dgx-1v", .dtype = FP16, .is_unfused = true}},
    {MEG, "megatron_cp_flash", {.cp = 2, .is_unfused = true}, {.is_unfused = true}},
    {MEG, "megatron_experts_dtype", {.experts = 8, .dtype = FP16}, {.experts = 8, .dtype = FP8}},
    {MEG, "megatron_experts_bias", {.experts = 8, .has_bias = true, .tp = 2, .sp = true, .etp = 2}, {.experts = 8, .has_bias = true, .tp = 2, .sp = true}},
    {MEG, "megatron_mtp_position", {.mtp = 1, .is_learned = true}, {.mtp = 1}},
    {MEG, "megatron_mtp_cp", {.mtp = 1, .cp = 2}, {.mtp = 1}},
    {MEG, "megatron_muon", {.optimizer = MW_OPTIMIZER_MUON, .dp_shard = 4}, {.optimizer = MW_OPTIMIZER_MUON}},
    {MEG, "megatron_graph_recompute", {.graph = MW_GRAPH_ITERATION, .recompute = MW_RECOMPUTE_FULL}, {.graph = MW_GRAPH_ITERATION}},
    {MEG, "megatron_graph_fsdp", {.graph = MW_GRAPH_ATTN, .zero = 3}, {.graph = MW_GRAPH_ATTN}},
    {MEG, "megatron_graph_dropout", {.graph = MW_GRAPH_ATTN, .has_dropout = true, .recompute = MW_RECOMPUTE_SELECTIVE},
     {.graph = MW_GRAPH_ATTN, .has_dropout = true, .recompute = MW_RECOMPUTE_SELECTIVE, .modules = MW_MODULE_MLP}},
    {MEG, "megatron_graph_dropout", {.graph = MW_GRAPH_LAYER, .has_dropout = true, .recompute = MW_RECOMPUTE_SELECTIVE, .modules = MW_MODULE_MLP},
     {.graph = MW_GRAPH_LAYER, .recompute = MW_RECOMPUTE_SELECTIVE, .modules = MW_MODULE_MLP}},
    {MEG, "megatron_offload_optimizer", {.optimizer = MW_OPTIMIZER_MOMENTUM, .offload_optimizer = 1}, {.offload_optimizer = 1}},
    {MEG, "megatron_offload_layers", {.offload_activations = 1}, {.offload_activations = 0.5}},
    {MEG, "megatron_offload_layers", {.offload_activations = 0.01}, {.offload_activations = 0.03}},
    {MEG, "megatron_fp8_dispatch", {.experts = 8, .ep = 8, .is_short = true}, {.experts = 8, .ep = 8}},
    {MEG, "megatron_window", {.window = 128, .is_chunked = true}, {.window = 128}},
    {MEG, "megatron_sinks", {.has_sinks = true, .cp = 2}, {.has_sinks = true}},

    {MDS, "mds_window", {.window = 128}, {.window = 0}},
    {MDS, "mds_window", {.has_sinks = true}, {.window = 0}},
    {MDS, "mds_fp8_dispatch", {.experts = 8, .ep = 8, .is_short = true}, {.experts = 8, .is_short = true}},
    {MDS, "mds_moe_pp", {.experts = 8, .pp = 2}, {.experts = 8}},
    {MDS, "mds_offload_optimizer", {.optimizer = MW_OPTIMIZER_SGD, .offload_optimizer = 1}, {.offload_optimizer = 1}},
    {MDS, "mds_grad_dtype", {.zero = NONE, .dtype = FP16, .grad_dtype = FP32}, {.zero = NONE, .dtype = FP16, .grad_dtype = FP16}},
    {MDS, "mds_grad_dtype", {.zero = NONE, .dtype = BF16, .grad_dtype = BF16}, {.dtype = BF16, .grad_dtype = BF16}},
    {MDS, "mds_etp", {.experts = 8, .tp = 4, .sp = true, .etp = 2}, {.experts = 8, .tp = 4, .sp = true, .etp = 4}},
    {MDS, "mds_kv_heads", {.tp = 8, .kv_heads = 4}, {.tp = 8}},
    {MDS, "mds_mtp", {.mtp = 1}, {.mtp = 0}},

    {TT, "titan_chunks", {.zero = 3, .pp = 2, .vpp = 2}, {.zero = 3, .pp = 2}},
    {TT, "titan_chunks", {.zero = 3, .pp = 2, .schedule = "interleaved-1f1b"}, {.zero = 3, .pp = 2, .vpp = 2, .schedule = "interleaved-1f1b"}},
    {TT, "titan_chunks", {.zero = 3, .pp = 2, .vpp = 4, .schedule = "zb-v"}, {.zero = 3, .pp = 2, .vpp = 2, .schedule = "zb-v"}},
    {TT, "titan_ddp", {.zero = NONE, .tp = 2, .sp = true}, {.zero = NONE}},
    {TT, "titan_ddp", {.zero = NONE, .cp = 16}, {.zero = 3, .cp = 8}},
    {TT, "titan_ddp", {.zero = NONE, .pp = 2}, {.zero = NONE, .pp = 16}},
    {TT, "titan_tokens", {.zero = 3, .tp = 8, .cp = 2, .sp = true, .seq = 80}, {.zero = 3, .tp = 8, .cp = 2, .sp = true, .seq = 96}},
    {TT, "titan_tokens", {.zero = 3, .tp = 8, .sp = true, .seq = 24, .micro_batch = 2}, {.zero = 3, .tp = 8, .sp = true, .seq = 32}},
    {TT, "titan_sp", {.zero = 3, .tp = 2}, {.zero = 3, .tp = 2, .sp = true}},
    {TT, "titan_experts_whole", {.zero = NONE, .experts = 8, .ep = 4}, {.zero = 3, .experts = 8, .ep = 4}},
    {TT, "titan_experts_ways", {.zero = 3, .experts = 8, .ep = 4, .tp = 8, .sp = true}, {.zero = 3, .experts = 8, .ep = 8, .tp = 8, .sp = true}},
    {TT, "titan_experts_ways", {.zero = 3, .experts = 8, .ep = 2, .tp = 2, .etp = 2, .cp = 4, .sp = true},
     {.zero = 3, .experts = 8, .ep = 4, .tp = 2, .etp = 2, .cp = 4, .sp = true}},
    {TT, "titan_dtype", {.zero = 3, .dtype = FP16}, {.zero = 3, .dtype = FP32}},
    {TT, "titan_dtype", {.zero = 3, .dtype = FP8, .scaling = MW_SCALE_BLOCK}, {.zero = 3, .dtype = FP8, .scaling = MW_SCALE_ROW}},
    {TT, "titan_attention", {.zero = 3, .is_unfused = true}, {.zero = 3}},
    {TT, "titan_dropout", {.zero = 3, .has_dropout = true}, {.zero = 3}},
    {TT, "titan_window", {.zero = 3, .window = 128, .cp = 2}, {.zero = 3, .window = 128}},
    {TT, "titan_mtp", {.zero = 3, .mtp = 1}, {.zero = 3}},
    {TT, "titan_fp8_dispatch", {.zero = 3, .experts = 8, .ep = 8, .is_short = true}, {.zero = 3, .experts = 8, .ep = 8}},
    {TT, "titan_dispatcher", {.zero = 3, .experts = 16, .ep = 16, .dispatcher = MW_DISPATCH_HYBRIDEP},
     {.zero = 3, .experts = 16, .ep = 16, .dispatcher = MW_DISPATCH_DEEPEP}},

    {NANO, "nanotron_split", {.pp = 16, .layers = 14}, {.pp = 4, .layers = 14}},
    {NANO, "nanotron_microbatches", {.pp = 8, .batch = 12}, {.pp = 8, .batch = 14}},
    {NANO, "nanotron_microbatches", {.pp = 8, .batch = 4}, {.pp = 8, .batch = 4, .schedule = "gpipe"}},
    {NANO, "nanotron_recompute", {.recompute = MW_RECOMPUTE_SELECTIVE}, {.recompute = MW_RECOMPUTE_FULL}},
    {NANO, "nanotron_attention", {.is_unfused = true}, {.dtype = BF16}},
    {NANO, "nanotron_attention", {.dtype = FP32}, {.dtype = FP16}},
    {NANO, "nanotron_window", {.window = 128}, {.window = 0}},
    {NANO, "nanotron_dropout", {.has_dropout = true}, {.zero = NONE}},
    {NANO, "nanotron_mtp", {.mtp = 1}, {.tp = 8}},
    {NANO, "nanotron_grad_dtype", {.dtype = BF16, .grad_dtype = FP16}, {.dtype = FP16, .grad_dtype = FP16}},
};
/* clang-format on */

static void set_model(const struct knobs *k, struct mw_model *m)
{
    m->n_kv_heads = k->kv_heads > 0 ? k->kv_heads : 8;
    m->moe = (struct mw_moe){.n_experts = k->experts,
                             .top_k = k->experts > 0 ? 2 : 0,
                             .ffn = 4096,
                             .fp8_dispatch = k->is_short,
                             .every = 1};
    m->n_layers = k->layers > 0 ? k->layers : 32;
    m->n_mtp = k->mtp;
    m->sinks = k->has_sinks;
    m->window = (struct mw_window){.tokens = k->window,
                                   .form = k->is_chunked ? MW_WINDOW_CHUNKED
                                                         : MW_WINDOW_SLIDING};
    m->bias_mlp = k->has_bias;
    m->position = k->is_learned ? MW_POS_LEARNED : MW_POS_ROTARY;
    m->tied = k->is_tied;
}

static void set_work(const struct knobs *k, struct mw_workload *w)
{
    w->seq = k->seq > 0 ? k->seq : 256;
    w->global_batch = k->batch > 0 ? k->batch : 256;
    w->scaling = k->scaling;
    w->is_flash = !k->is_unfused;
    w->has_dropout = k->has_dropout;
    w->optimizer.kind = k->optimizer;
}

static int ways(int n)
{
    return n > 0 ? n : 1;
}

static void set_layout(const struct knobs *k, struct mw_layout *l)
{
    mw_layout_default(l);
    l->tp = ways(k->tp);
    l->cp = ways(k->cp);
    l->pp = ways(k->pp);
    l->vpp = ways(k->vpp);
    l->vpp_group = k->vpp_group;
    l->ep = ways(k->ep);
    l->etp = ways(k->etp);
    l->dp = 16 / (l->tp * l->cp * l->pp);
    l->micro_batch = ways(k->micro_batch);
    l->sp = k->sp;
    l->zero = k->zero > 0 ? k->zero : k->zero == NONE ? 0 : 1;
    l->dispatcher = k->dispatcher;
    l->dp_shard = k->dp_shard;
    l->order = k->is_pp_inside ? "tp-cp-ep-pp-dp" : l->order;
    l->schedule = k->schedule != NULL ? k->schedule : l->schedule;
    l->dtype = k->dtype;
    l->grad_dtype = k->grad_dtype;
    l->main_params = k->main_params;
    l->exp_avg = l->exp_avg_sq = k->moments;
    l->cuda_graph = k->graph;
    l->recompute = k->recompute;
    l->recompute_modules = k->modules;
    l->overlap_off = k->overlap_off;
    l->offload_optimizer = k->offload_optimizer;
    l->offload_weights = k->offload_weights;
    l->offload_activations = k->offload_activations;
}

static const char *broken(struct world *w, int framework, const struct knobs *k)
{
    struct mw_layout l;

    set_model(k, &w->scenario.model);
    set_work(k, &w->scenario.workload);
    set_layout(k, &l);
    w->scenario.limits.framework = framework;
    assert_int_equal(
        mw_cost_ctx_init(&w->ctx, w->db,
                         k->system != NULL ? k->system : "dgx-h100", 2, 8,
                         NULL),
        MW_OK);
    struct mw_rule_set *set = mw_rule_set_new(&w->scenario, &w->ctx);
    const struct mw_rule *rule = mw_rule_broken(set, &l);

    mw_rule_set_free(set);
    return rule != NULL ? rule->id : "";
}

static void test_each(void **state)
{
    (void)state;
    struct world w;

    open_world(&w, "llama3-8b-2xdgx-h100.yaml", 0);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const struct rule_case *c = &cases[i];
        const char *bad = broken(&w, c->framework, &c->bad);
        const char *good = broken(&w, c->framework, &c->good);

        if (strcmp(bad, c->id) != 0 || *good != '\0') {
            fail_msg("case %zu: '%s' instead of %s, then '%s'", i, bad, c->id,
                     good);
        }
    }
    close_world(&w);
}

/* Nanotron's split by hand: hidden 4, ffn 4 and 2 heads make a layer 112, a
 * vocabulary of 56 the head 224. Four layers on 3 stages, 672 in all: shares
 * end at 224, 448, 672; sums 112 224 336 448 672, and a stage ends behind what
 * is more than its share: 3 layers, 1 and the head, nothing. */
static void test_split_of_nanotron(void **state)
{
    struct mw_model m = {
        .hidden = 4, .n_heads = 2, .ffn = 4, .vocab = 56, .n_layers = 4};
    int layers[3];

    (void)state;
    assert_int_equal(mw_nanotron_split(&m, 3, layers), 1);
    assert_int_equal(layers[0], 3);
    assert_int_equal(layers[1], 1);
    assert_int_equal(layers[2], 0);
    assert_int_equal(mw_nanotron_split(&m, 2, layers), 0);
    assert_int_equal(layers[0], 4); /* 336 is not more than 336 */
    assert_int_equal(layers[1], 0);
    m.vocab = 28; /* the head 112: 560 in all, shares end at 280 and 560 */
    assert_int_equal(mw_nanotron_split(&m, 2, layers), 0);
    assert_int_equal(layers[0], 3);
    assert_int_equal(layers[1], 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each), cmocka_unit_test(test_split_of_nanotron)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
