/* Scenarios: what is read, what the hash depends on, what is refused. */
#include "mw_test.h"
#include "base/file.h"
#include "sim/model/scenario.h"

#include <string.h>

static const char path[] = "test_scenario.yaml";

#define HEAD                                                                   \
    "format: 1\n"                                                              \
    "model: gpt3-175b\n"                                                       \
    "cluster: {system: dgx-a100, nodes: 8, gpus_per_node: 8}\n"                \
    "workload: {seq: 2048, global_batch: 64}\n"

static enum mw_status load(const char *text, struct mw_scenario *out,
                           struct mw_err *err)
{
    struct mw_outfile o;
    enum mw_status st;

    assert_int_equal(mw_outfile_open(&o, path, NULL), MW_OK);
    fputs(text, o.f);
    assert_int_equal(mw_outfile_commit(&o, NULL), MW_OK);
    st = mw_scenario_load(path, out, err);
    remove(path);
    return st;
}

static void test_defaults(void **state)
{
    struct mw_scenario s;

    (void)state;
    assert_int_equal(load(HEAD, &s, NULL), MW_OK);
    assert_string_equal(s.file, path);
    assert_string_equal(s.name, "test_scenario");
    assert_string_equal(s.model.name, "gpt3-175b");
    assert_string_equal(s.cluster.system, "dgx-a100");
    assert_int_equal(s.workload.dtype, MW_BF16);
    assert_int_equal(s.workload.grad_dtype, MW_FP32);
    assert_true(s.workload.is_flash);
    assert_false(s.workload.has_dropout);
    assert_false(s.workload.causal_flops);
    assert_int_equal(s.workload.optimizer.kind, MW_OPTIMIZER_ADAMW);
    mw_assert_near(s.limits.memory_fraction, 0.92, 0, 0);
    mw_assert_near(s.limits.memory_bytes, 0, 0, 0);
    assert_true(mw_objective_is(&s.objective, MW_GOAL_STEP_TIME));
    assert_false(s.has_layout);
    mw_scenario_release(&s);
}

static void test_every_key(void **state)
{
    struct mw_scenario s;

    (void)state;
    assert_int_equal(
        load("format: 1\nname: all\nmodel: gpt3-175b\n"
             "cluster:\n  system: DGX-A100\n  nodes: 4\n"
             "workload:\n  seq: 1024\n  global_batch: 32\n  dtype: FP16\n"
             "  grad_dtype: fp16\n  attention: unfused\n  dropout: true\n"
             "  flops: causal\n  optimizer: adamw\n  seed: 7\n"
             "  lora_rank: 16\n  lora_targets: attention\n"
             "  base_dtype: nf4\n"
             "limits:\n  memory: 40GiB\n  memory_fraction: 0.5\n"
             "  tp: [1, 2]\n  pp: [4]\n  dp: [1]\n  micro_batch: [1, 2, 4]\n"
             "  cp: [1]\n  ep: [1]\n  vpp: [1, 2]\n  max_tp: 4\n"
             "  framework: megatron-core-0.14\n"
             "objective: memory\n"
             "layout: {tp: 8, sp: true, cp: 1, pp: 4, vpp: 2, dp: 1, zero: 1,\n"
             "         ep: 1, etp: 1, micro_batch: 2, schedule: gpipe,\n"
             "         recompute: full, order: pp-tp-cp-dp, cp_form: A2A,\n"
             "         dp_shard: 1, reshard: true, offload_optimizer: 1,\n"
             "         fsdp_unit: 1, fsdp_prefetch: -1,\n"
             "         offload_weights: 0.25, offload_activations: 0.5,\n"
             "         layers: [12, 12, 12, 12, 12, 12, 12, 12]}\n",
             &s, NULL),
        MW_OK);
    assert_string_equal(s.name, "all");
    assert_int_equal(s.workload.dtype, MW_FP16);
    assert_int_equal(s.workload.grad_dtype, MW_FP16);
    assert_false(s.workload.is_flash);
    assert_true(s.workload.has_dropout);
    assert_true(s.workload.causal_flops);
    assert_int_equal(s.workload.seed, 7);
    mw_assert_near(s.limits.memory_bytes, 40.0 * 1024 * 1024 * 1024, 0, 0);
    assert_int_equal(s.limits.tp.n, 2);
    assert_int_equal(s.limits.micro_batch.v[2], 4);
    assert_int_equal(s.limits.max_tp, 4);
    assert_int_equal(s.limits.framework, MW_FRAMEWORK_MEGATRON_CORE);
    assert_string_equal(mw_framework_name(s.limits.framework),
                        "megatron-core-0.14");
    assert_true(mw_objective_is(&s.objective, MW_GOAL_MEMORY));
    assert_true(s.has_layout);
    assert_int_equal(s.layout.tp, 8);
    assert_true(s.layout.sp);
    assert_int_equal(s.layout.vpp, 2);
    assert_int_equal(s.layout.zero, 1);
    assert_string_equal(s.layout.schedule, "gpipe");
    assert_string_equal(s.layout.order, "pp-tp-cp-dp");
    assert_int_equal(s.layout.cp_form, MW_CP_A2A);
    assert_int_equal(s.layout.dp_shard, 1);
    assert_true(s.layout.reshard);
    assert_int_equal(s.layout.fsdp_unit, 1);
    assert_int_equal(s.layout.fsdp_prefetch, -1);
    mw_assert_near(s.layout.offload_optimizer, 1, 0, 0);
    mw_assert_near(s.layout.offload_weights, 0.25, 0, 0);
    mw_assert_near(s.layout.offload_activations, 0.5, 0, 0);
    assert_int_equal(s.workload.lora_rank, 16);
    assert_int_equal(s.workload.lora_targets, MW_LORA_ATTENTION);
    assert_int_equal(s.workload.base_dtype, MW_BASE_NF4);
    assert_int_equal(s.layout.recompute, MW_RECOMPUTE_FULL);
    assert_int_equal(s.layout_layers.n, 8);
    mw_scenario_release(&s);
}

static uint64_t hash_of(const char *text)
{
    struct mw_scenario s;
    struct mw_err err = {0};
    uint64_t hash;

    if (load(text, &s, &err) != MW_OK) {
        fail_msg("%s", err.text);
    }
    hash = s.hash;
    mw_scenario_release(&s);
    return hash;
}

/* Only meaning counts. */
static void test_hash_same(void **state)
{
    uint64_t hash = hash_of(HEAD);

    (void)state;
    assert_int_equal(hash, hash_of("# a comment\n" HEAD));
    assert_int_equal(hash, hash_of(HEAD "name: other\n"));
    assert_int_equal(hash, hash_of(HEAD "objective: memory\n"));
    assert_int_equal(hash, hash_of(HEAD "layout: {tp: 8, pp: 8}\n"));
    assert_int_equal(hash,
                     hash_of("workload:\n  global_batch: 64\n  seq: 2048\n"
                             "  dtype: bf16\n  attention: flash\n"
                             "cluster:\n  gpus_per_node: 8\n  nodes: 8\n"
                             "  system: DGX-A100\n"
                             "model: {preset: GPT3-175B}\nformat: 1\n"));
    /* Keys younger than the format: their defaults do not count, and the hash
     * is the one that the first version gave. */
    assert_int_equal(hash, 0x3b32ef5be4882598);
    assert_int_equal(hash, hash_of("format: 1\nmodel: gpt3-175b\n"
                                   "cluster: {system: dgx-a100, nodes: 8, "
                                   "gpus_per_node: 8}\n"
                                   "workload: {seq: 2048, global_batch: 64, "
                                   "lora_rank: 0, base_dtype: same, "
                                   "main_params_dtype: fp32, exp_avg_dtype: "
                                   "fp32, exp_avg_sq_dtype: fp32, loss: "
                                   "stack, loss_chunks: 1, clip_grad: "
                                   "stack}\n"));
    /* The same memory in another unit. */
    assert_int_equal(hash_of(HEAD "limits: {memory: 1GiB}\n"),
                     hash_of(HEAD "limits: {memory: 1024MiB}\n"));
}

static void test_hash_differs(void **state)
{
#define CLUSTER "cluster: {system: dgx-a100, nodes: 8, gpus_per_node: 8}\n"
#define WORK "workload: {seq: 2048, global_batch: 64}\n"
#define MODEL "model: gpt3-175b\n"
    static const char *const texts[] = {
        HEAD,
        "format: 1\nmodel: gpt-145.6b\n" CLUSTER WORK,
        "format: 1\nmodel: {preset: gpt3-175b, tied: false}\n" CLUSTER WORK,
        "format: 1\nmodel: {preset: gpt3-175b, moe: {experts: 2, top_k: 1, "
        "ffn: 8}}\n" CLUSTER WORK,
        "format: 1\n" MODEL "cluster: {system: dgx-h100, nodes: 8, "
        "gpus_per_node: 8}\n" WORK,
        "format: 1\n" MODEL "cluster: {system: dgx-a100, nodes: 9, "
        "gpus_per_node: 8}\n" WORK,
        "format: 1\n" MODEL "cluster: {system: dgx-a100, nodes: 8}\n" WORK,
        "format: 1\n" MODEL CLUSTER "workload: {seq: 1024, global_batch: 64}\n",
        "format: 1\n" MODEL CLUSTER "workload: {seq: 2048, global_batch: 32}\n",
        "format: 1\n" MODEL CLUSTER
        "workload: {seq: 2048, global_batch: 64, dtype: fp16}\n",
        "format: 1\n" MODEL CLUSTER
        "workload: {seq: 2048, global_batch: 64, dropout: true}\n",
        "format: 1\n" MODEL CLUSTER
        "workload: {seq: 2048, global_batch: 64, attention: unfused}\n",
        "format: 1\n" MODEL CLUSTER
        "workload: {seq: 2048, global_batch: 64, flops: causal}\n",
        "format: 1\n" MODEL CLUSTER
        "workload: {seq: 2048, global_batch: 64, seed: 1}\n",
        "format: 1\n" MODEL CLUSTER
        "workload: {seq: 2048, global_batch: 64, lora_rank: 16}\n",
        "format: 1\n" MODEL CLUSTER
        "workload: {seq: 2048, global_batch: 64, lora_rank: 8}\n",
        "format: 1\n" MODEL CLUSTER "workload: {seq: 2048, global_batch: 64, "
        "lora_rank: 16, lora_targets: attention}\n",
        "format: 1\n" MODEL CLUSTER "workload: {seq: 2048, global_batch: 64, "
        "lora_rank: 16, base_dtype: nf4}\n",
        "format: 1\n" MODEL CLUSTER
        "workload: {seq: 2048, global_batch: 64, doc_tokens: 512}\n",
        "format: 1\n" MODEL CLUSTER
        "workload: {seq: 2048, global_batch: 64, optimizer: muon}\n",
        "format: 1\n" MODEL CLUSTER
        "workload: {seq: 2048, global_batch: 64, main_params_dtype: none}\n",
        "format: 1\n" MODEL CLUSTER
        "workload: {seq: 2048, global_batch: 64, exp_avg_dtype: bf16}\n",
        "format: 1\n" MODEL CLUSTER
        "workload: {seq: 2048, global_batch: 64, exp_avg_sq_dtype: bf16}\n",
        "format: 1\n" MODEL CLUSTER
        "workload: {seq: 2048, global_batch: 64, loss: fused}\n",
        "format: 1\n" MODEL CLUSTER
        "workload: {seq: 2048, global_batch: 64, loss_chunks: 4}\n",
        "format: 1\n" MODEL CLUSTER
        "workload: {seq: 2048, global_batch: 64, clip_grad: none}\n",
        HEAD "limits: {memory: 1GiB}\n",
        HEAD "limits: {memory_fraction: 0.5}\n",
        HEAD "limits: {tp: [1]}\n",
        HEAD "limits: {pp: [1]}\n",
        HEAD "limits: {tp: [1, 2]}\n",
        HEAD "limits: {max_tp: 4}\n",
        HEAD "limits: {framework: torchtitan-0.2}\n"};
    enum { N = sizeof texts / sizeof *texts };
    uint64_t hashes[N];

    (void)state;
    for (size_t i = 0; i < N; i++) {
        hashes[i] = hash_of(texts[i]);
        for (size_t j = 0; j < i; j++) {
            if (hashes[i] == hashes[j]) {
                fail_msg("the same hash for\n%s\nand\n%s", texts[i], texts[j]);
            }
        }
    }
}

static void test_bad_input(void **state)
{
    static const struct {
        const char *text, *first_line;
    } rows[] = {
        {"", "test_scenario.yaml: "},
        {"format: 2\nnew_key: 1\n",
         "test_scenario.yaml:1:9: format 2 is newer than this program reads "
         "(1)"},
        {HEAD "colour: red\n", "test_scenario.yaml:5:1: unknown key 'colour'"},
        {HEAD "limit: {max_tp: 2}\n",
         "test_scenario.yaml:5:1: unknown key 'limit'; did you mean 'limits'"},
        {HEAD "model: gpt2\n",
         "test_scenario.yaml:5:1: key 'model' is given twice"},
        {HEAD "limits: {memory: 80}\n",
         "test_scenario.yaml:5:18: 'memory': '80' needs a unit"},
        {HEAD "limits: {memory: 80Gb}\n",
         "test_scenario.yaml:5:18: 'memory': '80Gb' is in bits but bytes"},
        {"format: 1\nmodel: gpt-small\n"
         "cluster: {system: this-machine, nodes: 2, spare_nodes: 2}\n"
         "workload: {seq: 64, global_batch: 8}\n",
         "test_scenario.yaml:3:56: 2 spare nodes of 2 leave none to train on"},
        {HEAD "limits: {memory_fraction: .nan}\n",
         "test_scenario.yaml:5:27: 'memory_fraction' must be a finite number"},
        {HEAD "limits: {tp: [1, 0]}\n", "test_scenario.yaml:5:"},
        {HEAD "layout:\n  tp: 7\n",
         "test_scenario.yaml:6:7: tp 7 does not divide 96 attention heads; "
         "divisors up to 8: 1, 2, 3, 4, 6, 8"},
        {HEAD "layout:\n  tp: 8\n  pp: 4\n",
         "test_scenario.yaml:6:3: tp 8 x cp 1 x pp 4 x dp 1 is 32 ranks but "
         "the cluster has 64"},
        {HEAD "layout: {tp: 8, pp: 8, micro_batch: 5}\n",
         "test_scenario.yaml:5:9: dp 1 x micro_batch 5 is 5 sequences"},
        {HEAD "layout: {tp: 8, pp: 8, layers: [90, 6]}\n",
         "test_scenario.yaml:5:32: layers has 2 entries but pp 8 x vpp 1 is "
         "8"},
        {HEAD "layout: {tp: 8, pp: 8, layers: [1,1,1,1,1,1,1,1]}\n",
         "test_scenario.yaml:5:32: layers sum to 8 but the model has 96"},
        {HEAD "layout: {tp: 8, pp: 8, recompute: some}\n",
         "test_scenario.yaml:5:35: "},
        {HEAD "layout: {tp: 8, pp: 8, zero: 9}\n",
         "test_scenario.yaml:5:30: 'zero' is 9"},
        {HEAD "layout: [8, 8]\n", "test_scenario.yaml:5:9: "},
        {"format: 1\n" MODEL CLUSTER
         "workload: {seq: 64, global_batch: 8, optimizer: sgd, exp_avg_dtype: "
         "bf16}\n",
         "test_scenario.yaml:4:69: optimizer sgd has no first moment of a "
         "type"},
        {"format: 1\n" MODEL CLUSTER
         "workload: {seq: 64, global_batch: 8, optimizer: sgd-momentum, "
         "exp_avg_sq_dtype: bf16}\n",
         "test_scenario.yaml:4:81: optimizer sgd-momentum has no second "
         "moment"},
        {"format: 1\n" MODEL CLUSTER
         "workload: {seq: 64, global_batch: 8, dtype: fp32, "
         "main_params_dtype: none}\n",
         "test_scenario.yaml:4:70: with dtype fp32 the weights are their own"},
        {"format: 1\n" MODEL CLUSTER
         "workload: {seq: 64, global_batch: 8, exp_avg_dtype: fp4}\n",
         "test_scenario.yaml:4:53: 'exp_avg_dtype' is 'fp4'; did you mean "
         "'fp8'? allowed: fp32, bf16, fp16, fp8"},
        {"format: 1\nmodel: gpt3-176b\ncluster: {system: a, nodes: 1}\n"
         "workload: {seq: 8, global_batch: 1}\n",
         "test_scenario.yaml:2:8: unknown model preset 'gpt3-176b'; did you "
         "mean 'gpt3-175b'?"},
        {"format: 1\nmodel: gpt2\ncluster: {system: a, nodes: 0}\n"
         "workload: {seq: 8, global_batch: 1}\n",
         "test_scenario.yaml:3:29: 'nodes' is 0"},
        {"format: 1\nmodel: gpt2\ncluster: {system: a, nodes: 1}\n"
         "workload: {seq: 2048, global_batch: 1}\n",
         "test_scenario.yaml:4:17: sequences of 2048 tokens are longer than "
         "the 1024 learned positions of gpt2"},
        {"format: 1\nmodel: gpt2\ncluster: {system: a, nodes: 1}\n"
         "workload: {seq: -8, global_batch: 1}\n",
         "test_scenario.yaml:4:17: 'seq' is -8"},
        {"format: 1\nmodel: gpt2\ncluster: {system: a, nodes: 1}\n",
         "test_scenario.yaml:1:1: required key 'workload' is missing"},
        {"format: 1\nmodel: gpt2\ncluster: {system: a, nodes: 1}\n"
         "workload: {seq: 8, global_batch: 1, lora_targets: all}\n",
         "test_scenario.yaml:4:51: lora_targets without adapters; give "
         "lora_rank"},
        {"format: 1\nmodel: gpt2\ncluster: {system: a, nodes: 1}\n"
         "workload: {seq: 8, global_batch: 1, base_dtype: nf4}\n",
         "test_scenario.yaml:4:49: base_dtype stores weights that do not"},
        {"format: 1\nmodel: gpt2\ncluster: {system: a, nodes: 1}\n"
         "workload: {seq: 8, global_batch: 1, doc_tokens: 9}\n",
         "test_scenario.yaml:4:49: documents of 9 tokens are longer than"},
        {"format: 1\nmodel: gpt2\ncluster: {system: a, nodes: 1}\n"
         "workload: {seq: 8, global_batch: 1, doc_tokens: 4, attention: "
         "unfused}\n",
         "test_scenario.yaml:4:49: doc_tokens needs attention: flash"},
        {"format: 1\nmodel: gpt2\n"
         "cluster: {system: a, nodes: 4, oversubscription: 2}\n"
         "workload: {seq: 8, global_batch: 1}\n",
         "test_scenario.yaml:3:50: oversubscription of leaf switches needs "
         "leaf_nodes"},
        {"format: 1\nmodel: gpt2\n"
         "cluster: {system: a, nodes: 16, leaves: [10, 5]}\n"
         "workload: {seq: 8, global_batch: 1}\n",
         "test_scenario.yaml:3:41: leaves sum to 15 but nodes is 16 (spare "
         "ones included)"},
        {"format: 1\nmodel: gpt2\n"
         "cluster: {system: a, nodes: 4, leaf_nodes: 2, leaves: [2, 2]}\n"
         "workload: {seq: 8, global_batch: 1}\n",
         "test_scenario.yaml:3:55: leaves says how many nodes are under each "
         "leaf switch; leave leaf_nodes out"},
        {"format: 1\nmodel: gpt2\n"
         "cluster: {system: a, nodes: 4, leaves: [2, 2, 0]}\n"
         "workload: {seq: 8, global_batch: 1}\n",
         "test_scenario.yaml:3:"},
        {"format: 1\nmodel: gpt2\n"
         "cluster: {system: a, nodes: 2, gpus_per_node: 1}\n"
         "workload: {seq: 8, global_batch: 2}\n"
         "layout: {dp: 2, nodes: [1, 1]}\n",
         "test_scenario.yaml:5:24: nodes names node 1 twice; each once"},
        {HEAD "limits: {overlap_off: {from: 1, to: 2}}\n",
         "test_scenario.yaml:5:23: 'overlap_off' must be a list of sets of "
         "words, [[a], [a, b]]"},
        {HEAD "limits: {tp: {from: 8, to: 2}}\n",
         "test_scenario.yaml:5:14: from 8 to 2 there is nothing; from is the "
         "least value"},
        {HEAD "limits: {tp: {from: 0, to: 2}}\n",
         "test_scenario.yaml:5:21: 'tp' is 0; it must be between 1 and "},
        {HEAD "limits: {bucket_size: {from: 1, to: 1000000}}\n",
         "test_scenario.yaml:5:23: from 1 to 1000000 by 1 are more than 4096 "
         "values; a larger by, or a list"},
        {HEAD "limits: {offload_weights: {from: 0, to: 1}}\n",
         "test_scenario.yaml:5:27: required key 'by' is missing in "
         "offload_weights (from one value to the next)"},
        {HEAD "limits: {dtype: {from: fp8, to: bf16}}\n",
         "test_scenario.yaml:5:17: 'dtype' must be a word or a list of words"},
        {HEAD "limits: {tp: ~}\n",
         "test_scenario.yaml:5:14: 'tp' must be an integer, a list, [1, 2], or "
         "a range, {from: 1, to: 4}, got nothing"},
        {HEAD "limits: {zero: [2, 4]}\n",
         "test_scenario.yaml:5:20: 'zero' is 4; it must be between 0 and 3"},
        {HEAD "limits: {schedule: {a: 1}}\n",
         "test_scenario.yaml:5:20: 'schedule' must be a word or a list of "
         "words, [a, b]"},
        {HEAD "limits: {overlap_off: [[tp], [tpp]]}\n",
         "test_scenario.yaml:5:31: 'overlap_off' is 'tpp'; did you mean 'tp'? "
         "allowed: grad_reduce, param_gather, tp"},
        {HEAD "limits: {recompute_modules: [[mlp], [[mlp]]]}\n",
         "test_scenario.yaml:5:38: 'recompute_modules' must be one of "},
        {HEAD "limits: {recompute_modules: [mlp, []]}\n",
         "test_scenario.yaml:5:35: an empty set of recompute_modules repeats "
         "nothing"},
        {HEAD "layout: {tp: 8, pp: 8, cp_form: rang}\n",
         "test_scenario.yaml:5:33: "},
        {HEAD "layout: {tp: 8, pp: 8, dp_shard: 2}\n",
         "test_scenario.yaml:5:34: dp_shard 2 says over how many"},
        {HEAD "layout: {tp: 8, pp: 8, offload_weights: 2}\n",
         "test_scenario.yaml:5:41: 'offload_weights' is 2"},
        {"- 1\n- 2\n", "test_scenario.yaml:1:1: "}};

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct mw_scenario s;
        struct mw_err err = {0};

        assert_int_equal(load(rows[i].text, &s, &err), MW_EINPUT);
        if (strncmp(err.text, rows[i].first_line, strlen(rows[i].first_line)) !=
            0) {
            fail_msg("for\n%s\nthe message is\n%s\nnot\n%s", rows[i].text,
                     err.text, rows[i].first_line);
        }
    }
}

/* ---- every limit as one value, a list and a range --------------------------
 */
static void load_limit(const char *key, const char *value,
                       struct mw_scenario *out)
{
    char text[512];
    struct mw_err err = {0};

    snprintf(text, sizeof text, HEAD "limits: {%s: %s}\n", key, value);
    if (load(text, out, &err) != MW_OK) {
        fail_msg("%s: %s: %s", key, value, err.text);
    }
}

/* Do two spellings of a limit say the same? Lists bit by bit. */
static void same_limit(const struct mw_field *f, const char *a, const char *b)
{
    struct mw_scenario x, y;

    load_limit(f->key, a, &x);
    load_limit(f->key, b, &y);
    const void *p = (const char *)&x.limits + f->offset;
    const void *q = (const char *)&y.limits + f->offset;

    if (f->type == MW_F_NUM_LIST) {
        const struct mw_num_list *m = p, *n = q;

        assert_int_equal(m->n, n->n);
        assert_true(m->n > 0);
        for (size_t i = 0; i < m->n; i++) {
            mw_assert_near(m->v[i], n->v[i], 1e-12, 0);
        }
    } else if (f->type == MW_F_STR_LIST) {
        const struct mw_str_list *m = p, *n = q;

        assert_int_equal(m->n, n->n);
        assert_true(m->n > 0);
        for (size_t i = 0; i < m->n; i++) {
            assert_string_equal(m->v[i], n->v[i]);
        }
        assert_true(x.hash == y.hash);
    } else {
        const struct mw_int_list *m = p, *n = q;

        assert_int_equal(m->n, n->n);
        assert_true(m->n > 0);
        assert_memory_equal(m->v, n->v, n->n * sizeof *n->v);
        assert_true(x.hash == y.hash);
    }
    mw_scenario_release(&x);
    mw_scenario_release(&y);
}

static void check_whole_limit(const struct mw_field *f)
{
    char one[32], list[64], range[64];
    long long low = (long long)f->min, high = low + 3;

    high = high < (long long)f->max ? high : (long long)f->max;
    snprintf(one, sizeof one, "%lld", high);
    snprintf(list, sizeof list, "[%lld]", high);
    same_limit(f, one, list);
    snprintf(range, sizeof range, "{from: %lld, to: %lld}", low, high);
    snprintf(list, sizeof list, "[%lld", low);
    for (long long v = low + 1; v <= high; v++) {
        size_t n = strlen(list);

        snprintf(list + n, sizeof list - n, ", %lld", v);
    }
    snprintf(list + strlen(list), sizeof list - strlen(list), "]");
    same_limit(f, range, list);
    snprintf(range, sizeof range, "{from: %lld, to: %lld, by: 2}", low, high);
    if (high == low + 3) {
        snprintf(list, sizeof list, "[%lld, %lld]", low, low + 2);
        same_limit(f, range, list);
    }
}

static void check_limit(const struct mw_field *f)
{
    char one[64], list[80];

    if (f->type == MW_F_NUM_LIST) {
        same_limit(f, "0.5", "[0.5]");
        same_limit(f, "{from: 0, to: 1, by: 0.25}", "[0, 0.25, 0.5, 0.75, 1]");
        same_limit(f, "{from: 0.1, to: 0.7, by: 0.2}", "[0.1, 0.3, 0.5, 0.7]");
    } else if (f->type == MW_F_STR_LIST) {
        same_limit(f, "zb-v", "[zb-v]");
        same_limit(f, "[a, 'b c']", "['a', b c]");
    } else if (f->enums == NULL) {
        check_whole_limit(f);
    } else { /* words have no order: a value or a list */
        snprintf(one, sizeof one, "%s", f->enums[1].name);
        snprintf(list, sizeof list, "[%s]", f->enums[1].name);
        same_limit(f, one, list);
    }
}

static void test_limit_forms(void **state)
{
    int n_choices = 0;

    (void)state;
    for (const struct mw_field *f = mw_limits_fields; f->key; f++) {
        bool is_list = f->type == MW_F_INT_LIST || f->type == MW_F_NUM_LIST ||
                       f->type == MW_F_FLAGS_LIST || f->type == MW_F_STR_LIST;

        assert_true(is_list == f->is_choice);
        if (is_list) {
            check_limit(f);
            n_choices++;
        }
    }
    assert_true(n_choices > 20);
}

/* The scenarios that come with the project, and for this machine's every
 * split of 8 ranks with at least 4 micro-batches. */
static void test_shipped(void **state)
{
    static const char *const files[] = {
        "llama3-8b-2xdgx-h100", "gpt3-175b-8xdgx-a100", "gpt3-175b-64xdgx-a100",
        "gpt-small-this-machine"};
    static const int splits[][3] = {{8, 1, 1}, {2, 2, 2}, {1, 4, 2},
                                    {1, 8, 1}, {4, 2, 1}, {1, 1, 8}};
    struct mw_scenario s;

    (void)state;
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        struct mw_err err = {0};
        char file[512];

        snprintf(file, sizeof file, "%s/%s.yaml", MW_SCENARIOS, files[i]);
        if (mw_scenario_load(file, &s, &err) != MW_OK) {
            fail_msg("%s", err.text);
        }
        assert_true(s.has_layout);
        if (strstr(files[i], "gpt-small") == NULL) {
            assert_int_equal(mw_layout_ranks(&s.layout), 8 * s.cluster.n_nodes);
            mw_scenario_release(&s);
        }
    }
    for (size_t i = 0; i < sizeof splits / sizeof *splits; i++) {
        struct mw_layout l;

        mw_layout_default(&l);
        l.tp = splits[i][0];
        l.pp = splits[i][1];
        l.dp = splits[i][2];
        assert_int_equal(
            mw_layout_check(&l, &s.model, &s.workload, 8, NULL, NULL), MW_OK);
        assert_true(mw_microbatches(&l, &s.workload) >= 4);
    }
    mw_scenario_release(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_defaults),  cmocka_unit_test(test_every_key),
        cmocka_unit_test(test_hash_same), cmocka_unit_test(test_hash_differs),
        cmocka_unit_test(test_bad_input), cmocka_unit_test(test_limit_forms),
        cmocka_unit_test(test_shipped),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
