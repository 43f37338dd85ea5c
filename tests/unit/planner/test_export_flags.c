/*
 * What is written for Megatron-LM, read as its script reads it: for random
 * layouts that the rules let through, the options are checked against its
 * launch-time assertions said once more, on options instead of layouts
 * (megatron/training/arguments.py validate_args, megatron/core/transformer/
 * transformer_config.py, megatron/core/parallel_state.py).
 */
#include "planner_world.h"

#include "base/rand.h"
#include "planner/export/export.h"

#include <stdlib.h>
#include <string.h>

enum { OPTIONS_MAX = 128, OPTION_MAX = 512 };
struct options {
    char line[OPTIONS_MAX][OPTION_MAX]; /* "name" or "name value" */
    int n;
};

static void read_options(const char *text, struct options *o)
{
    o->n = 0;
    while (*text != '\0') {
        size_t n = strcspn(text, "\n");

        assert_true(n > 2 && n < OPTION_MAX && o->n < OPTIONS_MAX);
        assert_memory_equal(text, "--", 2);
        memcpy(o->line[o->n], text + 2, n - 2);
        o->line[o->n++][n - 2] = '\0';
        text += n + 1;
    }
}

/* Its value, "" of a flag, NULL where it is not given. */
static const char *value(const struct options *o, const char *name)
{
    size_t n = strlen(name);

    for (int i = 0; i < o->n; i++) {
        if (strncmp(o->line[i], name, n) == 0 &&
            (o->line[i][n] == '\0' || o->line[i][n] == ' ')) {
            return o->line[i] + n + (o->line[i][n] == ' ');
        }
    }
    return NULL;
}

static bool has(const struct options *o, const char *name)
{
    return value(o, name) != NULL;
}

static bool is(const struct options *o, const char *name, const char *text)
{
    const char *v = value(o, name);

    return v != NULL && strcmp(v, text) == 0;
}

static int number(const struct options *o, const char *name, int otherwise)
{
    const char *v = value(o, name);

    return v != NULL ? atoi(v) : otherwise;
}

static int count(const char *text, char c)
{
    int n = 0;

    for (; *text != '\0'; text++) {
        n += *text == c;
    }
    return n;
}

/* "Et*3|t*4|tL": layers in all. */
static int layers_of(const char *text)
{
    int n = 0;

    for (; *text != '\0'; text++) {
        if (text[0] == 't' && text[1] == '*') {
            n += atoi(text + 2);
        } else {
            n += text[0] == 't';
        }
    }
    return n;
}

/* The first assertion that fails, NULL when all hold. */
#define CHECK(condition)                                                       \
    if (!(condition)) {                                                        \
        return #condition;                                                     \
    }

static const char *check_grid(const struct options *o, int ranks)
{
    int tp = number(o, "tensor-model-parallel-size", 1),
        pp = number(o, "pipeline-model-parallel-size", 1),
        cp = number(o, "context-parallel-size", 1),
        ep = number(o, "expert-model-parallel-size", 1),
        etp = number(o, "expert-tensor-parallel-size", tp),
        layers = number(o, "num-layers", 0), seq = number(o, "seq-length", 0),
        heads = number(o, "num-attention-heads", 0),
        groups = number(o, "num-query-groups", heads),
        dp = ranks / (tp * pp * cp),
        step = number(o, "micro-batch-size", 1) * dp,
        batch = number(o, "global-batch-size", 0);
    const char *parts = value(o, "pipeline-model-parallel-layout");
    int vpp = parts != NULL
                  ? (count(parts, '|') + 1) / pp
                  : number(o, "num-virtual-stages-per-pipeline-rank", 1);

    CHECK(ranks % (tp * pp * cp) == 0 && ranks % (etp * ep * pp) == 0);
    CHECK(heads % tp == 0 && groups % tp == 0 && batch % step == 0);
    CHECK(cp == 1 || seq % (2 * cp) == 0);
    CHECK(!has(o, "sequence-parallel") ||
          (tp > 1 && seq / cp % tp == 0 && seq % (2 * cp) == 0));
    CHECK(number(o, "max-position-embeddings", 0) >= seq);
    CHECK(parts == NULL ||
          ((count(parts, '|') + 1) % pp == 0 && layers_of(parts) == layers &&
           parts[0] == 'E' && parts[strlen(parts) - 1] == 'L'));
    CHECK(parts == NULL || !has(o, "num-virtual-stages-per-pipeline-rank"));
    CHECK(parts != NULL || layers % (pp * vpp) == 0);
    CHECK(parts == NULL || count(parts, 'm') == number(o, "mtp-num-layers", 0));
    CHECK(vpp == 1 || (pp > 1 && batch / step % pp == 0));
    CHECK(!has(o, "use-tp-pp-dp-mapping") || pp == 1 || etp * ep == tp * cp);
    CHECK(dp * cp % number(o, "num-distributed-optimizer-instances", 1) == 0);
    CHECK(!is(o, "cp-comm-type", "a2a+p2p") ||
          has(o, "hierarchical-context-parallel-sizes"));
    CHECK(cp == 1 || !is(o, "attention-backend", "unfused"));
    return NULL;
}

static const char *check_experts(const struct options *o)
{
    int experts = number(o, "num-experts", 0),
        ep = number(o, "expert-model-parallel-size", 1),
        pp = number(o, "pipeline-model-parallel-size", 1);
    bool is_flex = is(o, "moe-token-dispatcher-type", "flex"),
         is_alltoall = is(o, "moe-token-dispatcher-type", "alltoall");
    bool has_chunks = has(o, "num-virtual-stages-per-pipeline-rank") ||
                      has(o, "pipeline-model-parallel-layout");

    CHECK(ep == 1 || (experts % ep == 0 && !has(o, "fp16")));
    CHECK(!has(o, "moe-grouped-gemm") || has(o, "bf16"));
    CHECK(experts == 0 || has(o, "disable-bias-linear") ||
          number(o, "expert-tensor-parallel-size", 1) == 1);
    CHECK(experts == 0 || number(o, "tensor-model-parallel-size", 1) == 1 ||
          has(o, "sequence-parallel"));
    CHECK(!has(o, "moe-shared-expert-overlap") || is_alltoall);
    CHECK(!has(o, "moe-expert-capacity-factor") || is_alltoall);
    CHECK(!has(o, "moe-pad-expert-input-to-capacity") ||
          has(o, "moe-expert-capacity-factor"));
    CHECK(number(o, "moe-router-topk", 2) > 1 ||
          has(o, "moe-router-pre-softmax") ||
          is(o, "moe-router-score-function", "sigmoid"));
    CHECK(!has(o, "overlap-moe-expert-parallel-comm") ||
          (ep > 1 && (is_flex || is_alltoall) && (pp == 1 || has_chunks) &&
           !is(o, "recompute-granularity", "full") &&
           !has(o, "moe-shared-expert-overlap") &&
           number(o, "mtp-num-layers", 0) <= 1));
    return NULL;
}

static const char *check_kept(const struct options *o)
{
    bool is_full = is(o, "recompute-granularity", "full");
    const char *modules = value(o, "recompute-modules");
    int offloaded = number(o, "cpu-offloading-num-layers", 0);
    bool is_graph =
        has(o, "cuda-graph-impl") && !is(o, "cuda-graph-impl", "none");
    bool drops = number(o, "attention-dropout", 0) != 0 ||
                 strncmp(value(o, "attention-dropout"), "0.", 2) == 0;

    CHECK(is_full == has(o, "recompute-method") &&
          is_full == has(o, "recompute-num-layers"));
    CHECK(modules == NULL || is(o, "recompute-granularity", "selective"));
    CHECK(modules == NULL || strstr(modules, "shared_experts") == NULL ||
          !has(o, "moe-shared-expert-overlap"));
    CHECK(modules == NULL || !is(o, "fp8-recipe", "delayed") ||
          (strstr(modules, "layernorm") == NULL &&
           strstr(modules, "moe_act") == NULL));
    CHECK(offloaded == 0 ||
          (offloaded < number(o, "num-layers", 0) &&
           number(o, "pipeline-model-parallel-size", 1) == 1 &&
           !has(o, "recompute-granularity") && !is_graph));
    CHECK(!is_graph || !is_full);
    CHECK(!is_graph || !drops || modules == NULL ||
          strstr(modules, "core_attn") == NULL);
    CHECK(!is(o, "cuda-graph-scope", "full_iteration") ||
          has(o, "no-check-for-nan-in-loss-and-grad"));
    return NULL;
}

static const char *check_state(const struct options *o)
{
    bool is_fsdp = has(o, "use-megatron-fsdp"),
         is_shared = has(o, "use-distributed-optimizer"),
         is_muon =
             is(o, "optimizer", "muon") || is(o, "optimizer", "dist_muon");
    bool is_aware = has(o, "use-precision-aware-optimizer");

    CHECK(!has(o, "overlap-param-gather") ||
          (has(o, "overlap-grad-reduce") &&
           (is_shared || is_fsdp || is(o, "optimizer", "dist_muon"))));
    CHECK(is_fsdp == is(o, "ckpt-format", "fsdp_dtensor"));
    CHECK(!is_fsdp || (number(o, "pipeline-model-parallel-size", 1) == 1 &&
                       has(o, "no-gradient-accumulation-fusion")));
    CHECK(!is_muon ||
          (!is_shared && !is_fsdp && is(o, "ckpt-format", "torch") &&
           !has(o, "num-distributed-optimizer-instances")));
    CHECK(!is_aware || (is_shared && !has(o, "optimizer")));
    CHECK(is_aware || !has(o, "main-params-dtype"));
    CHECK(is_aware || !has(o, "optimizer-cpu-offload"));
    CHECK(!has(o, "num-distributed-optimizer-instances") || is_shared);
    CHECK(!has(o, "tp-comm-overlap") || has(o, "sequence-parallel"));
    CHECK(!has(o, "fp16") || !has(o, "bf16"));
    CHECK(!has(o, "fp8-format") || !has(o, "fp4-format"));
    CHECK(!has(o, "grad-reduce-in-bf16") || has(o, "bf16"));
    CHECK(!has(o, "mtp-num-layers") ||
          is(o, "position-embedding-type", "rope") ||
          is(o, "position-embedding-type", "none"));
    return NULL;
}

static const char *check_all(const struct options *o, int ranks)
{
    const char *wrong = check_grid(o, ranks);

    wrong = wrong == NULL ? check_experts(o) : wrong;
    wrong = wrong == NULL ? check_kept(o) : wrong;
    return wrong == NULL ? check_state(o) : wrong;
}

/* ---- random layouts --------------------------------------------------------
 */
static int pick(uint64_t seed, uint64_t stream, int n)
{
    return (int)(mw_rand_u64(seed, stream, 11) % (uint64_t)n);
}

/* Now and then something other than usual. */
static int rare(uint64_t seed, uint64_t stream, int n)
{
    return pick(seed, stream, 4) == 0 ? pick(seed, stream + 100, n) : 0;
}

static void draw_scenario(uint64_t seed, struct mw_scenario *s)
{
    static const enum mw_dtype types[] = {MW_BF16, MW_FP16, MW_FP8, MW_FP32};
    bool is_moe = pick(seed, 1, 2) == 0;
    struct mw_moe moe = {.n_experts = 16,
                         .top_k = 1 + pick(seed, 2, 2),
                         .ffn = 4096,
                         .shared_ffn = pick(seed, 3, 2) * 4096,
                         .every = 1 + pick(seed, 4, 2),
                         .router_bias = rare(seed, 5, 2) != 0};

    s->model.moe = is_moe ? moe : (struct mw_moe){.every = 1};
    s->model.n_layers = 12 + pick(seed, 6, 13);
    s->model.n_kv_heads = 8 << pick(seed, 7, 3);
    s->model.bias_qkv = s->model.bias_proj = s->model.bias_mlp =
        rare(seed, 8, 2) != 0;
    s->model.n_mtp = rare(seed, 9, 3);
    s->model.position = rare(seed, 10, 2) != 0 ? MW_POS_LEARNED : MW_POS_ROTARY;
    s->model.tied = rare(seed, 11, 2) != 0;
    s->workload.dtype = types[rare(seed, 12, 4)];
    s->workload.grad_dtype = rare(seed, 13, 2) != 0 ? MW_BF16 : MW_FP32;
    s->workload.is_flash = rare(seed, 14, 2) == 0;
    s->workload.has_dropout = rare(seed, 15, 2) != 0;
    s->workload.optimizer.kind = (enum mw_optimizer_kind)rare(seed, 16, 6);
    s->workload.optimizer.exp_avg = rare(seed, 17, 2) != 0 ? MW_BF16 : MW_FP32;
    s->workload.capacity_factor = rare(seed, 18, 2) * 1.25;
}

static void draw_ways(uint64_t seed, struct mw_layout *l)
{
    static const int inner[] = {1, 2, 4, 8};

    l->tp = inner[pick(seed, 20, 4)];
    l->pp = inner[pick(seed, 21, 3)];
    l->cp = inner[rare(seed, 22, 3)];
    l->dp = 64 / (l->tp * l->pp * l->cp);
    l->vpp = l->pp > 1 && pick(seed, 23, 2) == 0 ? 2 : 1;
    l->schedule = l->vpp > 1 ? "interleaved-1f1b" : "1f1b";
    l->sp = l->tp > 1 && pick(seed, 24, 4) > 0;
    l->order = pick(seed, 25, 3) == 0 ? "tp-cp-ep-pp-dp" : l->order;
    l->zero = pick(seed, 26, 3) > 0 ? 1 : pick(seed, 27, 4);
    l->micro_batch = 1 + pick(seed, 28, 2);
    l->cp_form = (enum mw_cp_form)rare(seed, 29, 3);
    l->dp_shard = l->zero > 0 && l->dp > 1 && rare(seed, 30, 2) ? l->dp / 2 : 0;
}

static void draw_layout_of(uint64_t seed, const struct mw_model *m,
                           struct mw_layout *l)
{
    static const double parts[] = {0, 0.5, 1, 0.01};
    static const int modules[] = {0, MW_MODULE_CORE_ATTN | MW_MODULE_LAYERNORM,
                                  MW_MODULE_MLP, MW_MODULE_MOE_ACT,
                                  MW_MODULE_SHARED_EXPERTS};

    mw_layout_default(l);
    draw_ways(seed, l);
    if (m->moe.n_experts > 0) {
        l->ep = 1 << pick(seed, 31, 5);
        l->etp = rare(seed, 32, 2) ? l->tp : 1;
        l->dispatcher = (enum mw_dispatcher)rare(seed, 33, 5);
        l->overlap_shared_experts =
            l->dispatcher == MW_DISPATCH_ALLTOALL && m->moe.shared_ffn > 0;
    }
    l->recompute = (enum mw_recompute)pick(seed, 34, 3);
    l->recompute_modules =
        l->recompute == MW_RECOMPUTE_SELECTIVE ? modules[rare(seed, 35, 5)] : 0;
    l->recompute_layers =
        l->recompute == MW_RECOMPUTE_FULL ? rare(seed, 36, 2) : 0;
    l->cuda_graph = (enum mw_cuda_graph)rare(seed, 37, 5);
    l->offload_activations = parts[rare(seed, 38, 4)];
    l->offload_optimizer = parts[rare(seed, 39, 3)];
    l->overlap_off = rare(seed, 40, 8);
    l->mtp_ahead = m->n_mtp > 0 && l->pp > 2 && pick(seed, 41, 2) == 0;
}

static void test_options_of_random_layouts(void **state)
{
    (void)state;
    struct world w;
    struct options o;
    int n_written = 0, n_refused = 0, n_uneven = 0, n_experts = 0, n_fsdp = 0;

    open_world(&w, "llama3-8b-2xdgx-h100.yaml", 8);
    w.scenario.workload.global_batch = 512;
    for (uint64_t seed = 0; seed < 20000; seed++) {
        struct mw_layout l;
        struct mw_plan plan;
        struct mw_export out;

        draw_scenario(seed, &w.scenario);
        draw_layout_of(seed, &w.scenario.model, &l);
        if (mw_plan_make(&w.scenario, &l, NULL, &plan, NULL) != MW_OK) {
            continue;
        }
        struct mw_export_in in = {&w.scenario, &plan, &w.ctx, "f"};

        if (mw_export_plan("megatron-core", &in, &out, NULL) == MW_OK) {
            read_options(out.file.s, &o);
            const char *wrong = check_all(&o, 64);

            if (wrong != NULL) {
                fail_msg("seed %d: not true: %s in\n%s", (int)seed, wrong,
                         out.file.s);
            }
            n_written++;
            n_uneven += has(&o, "pipeline-model-parallel-layout");
            n_experts += has(&o, "num-experts");
            n_fsdp += has(&o, "use-megatron-fsdp");
            mw_export_release(&out);
        } else {
            n_refused++;
        }
        mw_plan_release(&plan);
    }
    assert_true(n_written > 1000 && n_refused > 1000);
    assert_true(n_uneven > 200 && n_experts > 200 && n_fsdp > 50);
    close_world(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_options_of_random_layouts)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
