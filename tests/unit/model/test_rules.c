/* Every rule of a layout: one layout that breaks it, and its message. */
#include "mw_test.h"
#include "sim/model/scenario.h"

#include <string.h>

/* A legal layout of a model on 16 ranks, to be broken one rule at a time. */
struct fixture {
    struct mw_model m;
    struct mw_workload w;
    struct mw_layout l;
};

static struct fixture legal(const char *model)
{
    struct fixture f;

    assert_int_equal(mw_model_preset(model, &f.m, NULL), MW_OK);
    mw_workload_default(&f.w);
    f.w.seq = 2048;
    f.w.global_batch = 64;
    mw_layout_default(&f.l);
    f.l.tp = 2;
    f.l.sp = true;
    f.l.pp = 2;
    f.l.dp = 4;
    return f;
}

static void expect_broken(const struct fixture *f, const char *rule,
                          const char *message)
{
    struct mw_err err = {0};
    const char *id = NULL;

    assert_int_equal(mw_layout_check(&f->l, &f->m, &f->w, 16, &id, &err),
                     MW_ENO);
    assert_string_equal(id, rule);
    if (strncmp(err.text, message, strlen(message)) != 0) {
        fail_msg("message is\n%s\nnot\n%s", err.text, message);
    }
    /* The same answer without a message. */
    assert_int_equal(mw_layout_check(&f->l, &f->m, &f->w, 16, NULL, NULL),
                     MW_ENO);
}

static void test_legal(void **state)
{
    static const char *const names[] = {"gpt3-175b", "llama3-8b",
                                        "mixtral-8x7b", "deepseek-v3"};

    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        struct fixture f = legal(names[i]);
        struct mw_err err = {0};

        assert_int_equal(mw_layout_check(&f.l, &f.m, &f.w, 16, NULL, &err),
                         MW_OK);
        assert_int_equal(mw_layout_check(&f.l, &f.m, &f.w, 0, NULL, NULL),
                         MW_OK);
        assert_int_equal(err.n_findings, 0);
        assert_int_equal(mw_microbatches(&f.l, &f.w), 16);
    }
}

static void test_dense_rules(void **state)
{
    struct fixture f;

    (void)state;
    f = legal("gpt3-175b"), f.l.tp = 7;
    expect_broken(&f, "tp_heads",
                  "tp 7 does not divide 96 attention heads; divisors up to 8: "
                  "1, 2, 3, 4, 6, 8");
    f = legal("gpt3-175b"), f.l.cp = 0;
    expect_broken(&f, "sizes", "cp is 0; it must be 1 to 1048576");
    f = legal("gpt3-175b"), f.l.zero = 4;
    expect_broken(&f, "zero", "zero is 4; stages are 0, 1, 2, 3");
    f = legal("gpt3-175b"), f.l.order = "tp-pp";
    expect_broken(&f, "order", "order 'tp-pp' must name tp, cp, dp and pp");
    f = legal("gpt3-175b"), f.l.dp = 2;
    expect_broken(&f, "ranks",
                  "tp 2 x cp 1 x pp 2 x dp 2 is 8 ranks but the cluster has "
                  "16");
    f = legal("llama3-8b"), f.m.n_kv_heads = 8, f.m.n_heads = 24, f.l.tp = 12;
    expect_broken(&f, "tp_kv_heads",
                  "tp 12 neither divides 8 key-value heads nor is a multiple");
    f = legal("llama3-8b"), f.m.ffn = 14337;
    expect_broken(&f, "tp_ffn",
                  "tp 2 does not divide 14337 columns of the MLP (ffn)");
    f = legal("gpt2");
    f.w.seq = 1024;
    expect_broken(&f, "tp_vocab",
                  "tp 2 does not divide the vocabulary of 50257; pad it, for "
                  "example to 50432");
    f = legal("gpt3-175b"), f.l.cp = 4, f.w.seq = 2044;
    expect_broken(&f, "cp_seq",
                  "cp 4 needs sequences of a multiple of 8 tokens, not 2044");
    f = legal("gpt3-175b"), f.w.seq = 2047;
    expect_broken(&f, "sp_seq", "sp splits the 2047 tokens");
    f = legal("gpt-small"), f.l.pp = 4, f.l.vpp = 4;
    expect_broken(&f, "pp_layers",
                  "pp 4 x vpp 4 needs 14 layers but the model has 8");
    f = legal("gpt3-175b"), f.l.pp = 1, f.l.vpp = 2, f.l.dp = 8;
    expect_broken(&f, "vpp_pp", "vpp 2 needs pp of at least 2");
    f = legal("gpt3-175b"), f.l.micro_batch = 3;
    expect_broken(&f, "batch",
                  "dp 4 x micro_batch 3 is 12 sequences, which does not divide "
                  "the global batch of 64");
    f = legal("gpt3-175b"), f.l.dp = 128;
    expect_broken(&f, "batch", "dp 128 x micro_batch 1 is 128 sequences");
    f = legal("gpt3-175b"), f.l.ep = 2;
    expect_broken(&f, "ep_dense", "ep 2 and etp 1 need a model with experts");
}

static void test_expert_rules(void **state)
{
    struct fixture f;

    (void)state;
    f = legal("mixtral-8x7b"), f.l.ep = 3;
    expect_broken(&f, "ep_experts", "ep 3 does not divide 8 experts");
    f = legal("mixtral-8x7b"), f.l.etp = 3;
    expect_broken(&f, "etp_ffn",
                  "etp 3 does not divide 14336 columns of an expert");
    f = legal("mixtral-8x7b"), f.l.ep = 8, f.l.etp = 2;
    expect_broken(&f, "ep_ranks",
                  "ep 8 x etp 2 does not divide tp 2 x cp 1 x dp 4");
    f = legal("mixtral-8x7b"), f.l.sp = false;
    expect_broken(&f, "moe_sp", "tp 2 with experts needs sp: true");
    f = legal("deepseek-v2"), f.m.moe.shared_ffn = 3071;
    expect_broken(&f, "tp_shared_ffn", "tp 2 does not divide 3071 columns");
    /* Experts take the place of the MLP: its ffn need not divide. */
    f = legal("mixtral-8x7b"), f.m.ffn = 14337;
    assert_int_equal(mw_layout_check(&f.l, &f.m, &f.w, 16, NULL, NULL), MW_OK);
}

static void test_feature_rules(void **state)
{
    struct fixture f;

    (void)state;
    f = legal("llama3-8b"), f.l.dp_shard = 2;
    expect_broken(&f, "dp_shard", "dp_shard 2 says over how many replicas");
    f.l.zero = 1;
    assert_int_equal(mw_layout_check(&f.l, &f.m, &f.w, 16, NULL, NULL), MW_OK);
    f.l.dp_shard = 3;
    expect_broken(&f, "dp_shard", "dp_shard 3 does not divide dp 4");
    f = legal("mixtral-8x7b"), f.l.ep = 8, f.l.zero = 1, f.l.dp_shard = 2;
    expect_broken(&f, "ep_shard", "ep 8 x etp 1 does not divide tp 2 x cp 1");
    f = legal("llama3-8b"), f.l.reshard = false, f.l.zero = 2;
    expect_broken(&f, "reshard", "reshard: false keeps what ZeRO-3 has");
    f = legal("llama3-8b"), f.l.fsdp_unit = 2, f.l.zero = 2;
    expect_broken(&f, "fsdp_unit", "fsdp_unit and fsdp_prefetch say what ZeRO");
    f.l.fsdp_unit = 1, f.l.fsdp_prefetch = 0;
    expect_broken(&f, "fsdp_unit", "fsdp_unit and fsdp_prefetch say what ZeRO");
    f.l.zero = 3;
    assert_int_equal(mw_layout_check(&f.l, &f.m, &f.w, 16, NULL, NULL), MW_OK);
    f.l.fsdp_prefetch = MW_FSDP_PREFETCH_MAX + 1;
    expect_broken(&f, "fsdp_unit", "fsdp_unit is 1, fsdp_prefetch 17; units");
    f = legal("llama3-8b"), f.l.dispatcher = MW_DISPATCH_ALLTOALL;
    expect_broken(&f, "dispatcher", "dispatcher alltoall needs a model with");
    f = legal("mixtral-8x7b"), f.l.dispatcher = MW_DISPATCH_DEEPEP;
    expect_broken(&f, "dispatcher", "dispatcher deepep needs ep x etp of");
    f.l.ep = 2;
    assert_int_equal(mw_layout_check(&f.l, &f.m, &f.w, 16, NULL, NULL), MW_OK);
    f = legal("deepseek-v3"), f.l.overlap_shared_experts = true;
    expect_broken(&f, "overlap_shared_experts", "overlap_shared_experts needs");
    f.l.dispatcher = MW_DISPATCH_ALLTOALL;
    assert_int_equal(mw_layout_check(&f.l, &f.m, &f.w, 16, NULL, NULL), MW_OK);
    f.l.recompute = MW_RECOMPUTE_SELECTIVE;
    f.l.recompute_modules = MW_MODULE_SHARED_EXPERTS;
    expect_broken(&f, "overlap_shared_experts", "overlap_shared_experts needs");
    f = legal("mixtral-8x7b"), f.l.dispatcher = MW_DISPATCH_ALLTOALL;
    f.l.overlap_shared_experts = true;
    expect_broken(&f, "overlap_shared_experts", "overlap_shared_experts needs");
    f = legal("llama3-8b"), f.l.recompute_layers = 2;
    expect_broken(&f, "recompute_layers",
                  "recompute_layers is 2 but recompute");
    f = legal("llama3-8b"), f.l.recompute_modules = MW_MODULE_MLP;
    expect_broken(&f, "recompute_modules",
                  "recompute_modules are of selective recomputation");
    f.l.recompute = MW_RECOMPUTE_SELECTIVE;
    assert_int_equal(mw_layout_check(&f.l, &f.m, &f.w, 16, NULL, NULL), MW_OK);
    f.w.lora_rank = 8;
    expect_broken(&f, "recompute_modules",
                  "recompute_modules other than core_attn");
    f.w.lora_rank = 0;
    f.l.recompute_modules = MW_MODULE_MOE_ACT;
    expect_broken(&f, "recompute_modules",
                  "recompute_modules moe and moe_act need");
    f.l.recompute_modules = MW_MODULE_SHARED_EXPERTS;
    expect_broken(&f, "recompute_modules",
                  "recompute_modules shared_experts needs");
    f.l.recompute_modules = MW_MODULE_MLA_UP_PROJ;
    expect_broken(&f, "recompute_modules",
                  "recompute_modules mla_up_proj needs");
    f = legal("llama3-8b"), f.l.grad_compression = MW_COMPRESS_ONEBIT;
    assert_int_equal(mw_layout_check(&f.l, &f.m, &f.w, 16, NULL, NULL), MW_OK);
    f.l.zero = 1;
    expect_broken(&f, "grad_compression", "grad_compression onebit (1-bit");
    f.l.grad_compression = MW_COMPRESS_ZEROPP;
    expect_broken(&f, "grad_compression", "grad_compression zeropp (ZeRO++)");
    f.l.zero = 3;
    assert_int_equal(mw_layout_check(&f.l, &f.m, &f.w, 16, NULL, NULL), MW_OK);
    f.l.reshard = false;
    expect_broken(&f, "grad_compression", "grad_compression zeropp (ZeRO++)");
    f = legal("llama3-8b"), f.l.cp = 4, f.l.dp = 1, f.l.cp_inner = 2;
    assert_int_equal(mw_layout_check(&f.l, &f.m, &f.w, 16, NULL, NULL), MW_OK);
    f.l.cp_inner = 4;
    expect_broken(&f, "cp_inner", "cp_inner 4 must be a smaller divisor of cp");
    f.l.cp_inner = 2, f.l.cp_form = MW_CP_A2A;
    expect_broken(&f, "cp_inner", "cp_inner 2 must be a smaller divisor of cp");
    f.l.cp = 16, f.l.pp = 1, f.l.cp_inner = 8;
    f.l.tp = 1, f.l.sp = false, f.l.cp_form = MW_CP_RING, f.m.n_kv_heads = 4;
    expect_broken(&f, "cp_heads", "cp_inner 8 deals out heads, but tp 1");
    f = legal("llama3-8b"), f.l.offload_nvme = MW_NVME_ALL;
    expect_broken(&f, "offload_nvme",
                  "offload_nvme all puts the offloaded opt");
    f.l.offload_optimizer = 1;
    expect_broken(&f, "offload_nvme",
                  "offload_nvme all puts offloaded weights");
    f.l.offload_weights = 0.5;
    assert_int_equal(mw_layout_check(&f.l, &f.m, &f.w, 16, NULL, NULL), MW_OK);
    f = legal("llama3-8b"), f.w.loss_chunks = 3;
    expect_broken(&f, "loss_chunks", "loss_chunks 3 of the workload do not");
    f = legal("llama3-8b"), f.w.optimizer.kind = MW_OPTIMIZER_MUON;
    f.l.zero = 1;
    assert_int_equal(mw_layout_check(&f.l, &f.m, &f.w, 16, NULL, NULL), MW_OK);
    f.l.zero = 2;
    expect_broken(&f, "optimizer", "optimizer muon needs whole matrices");
    f.l.zero = 1, f.l.offload_optimizer = 1;
    expect_broken(&f, "optimizer", "optimizer muon multiplies matrices on");
    f.l.offload_optimizer = 0, f.l.dp_shard = 1;
    expect_broken(&f, "optimizer", "optimizer muon deals matrices out over");
    f = legal("llama3-8b"), f.l.grad_compression = MW_COMPRESS_ONEBIT;
    f.l.zero = 0, f.w.optimizer.exp_avg = MW_BF16;
    expect_broken(&f, "optimizer", "grad_compression onebit sends an fp32");
    f = legal("llama3-8b"), f.l.offload_weights = 1.5;
    expect_broken(&f, "offload", "offload_weights is 1.5; a part is 0 to 1");
    /* tp 2 leaves 16 heads, 4 of keys and values: cp 4 goes, cp 8 does not */
    f = legal("llama3-8b"), f.l.cp = 4, f.l.dp = 1, f.l.cp_form = MW_CP_A2A;
    assert_int_equal(mw_layout_check(&f.l, &f.m, &f.w, 16, NULL, NULL), MW_OK);
    f.l.cp = 8, f.l.pp = 1;
    expect_broken(&f, "cp_heads",
                  "cp 8 with cp_form a2a deals out heads, but tp 2 leaves 16 "
                  "and 4 of keys and values");
    f.l.cp_form = MW_CP_RING;
    assert_int_equal(mw_layout_check(&f.l, &f.m, &f.w, 16, NULL, NULL), MW_OK);
    f.w.is_flash = false;
    expect_broken(&f, "cp_flash", "cp_form ring needs attention: flash");
    f.w.is_flash = true;
    f.m.window.tokens = 1024;
    expect_broken(&f, "cp_window",
                  "cp_form ring passes whole blocks on; windows of 1024 tokens "
                  "need cp_form gather or a2a");
    f.l.cp_form = MW_CP_GATHER;
    assert_int_equal(mw_layout_check(&f.l, &f.m, &f.w, 16, NULL, NULL), MW_OK);
    f.l.cp_form = MW_CP_RING;
    f.m.window.tokens = (int)f.w.seq; /* none that cuts */
    assert_int_equal(mw_layout_check(&f.l, &f.m, &f.w, 16, NULL, NULL), MW_OK);
}

/* A product of ways past any machine is a broken rule, not an abort. */
static void test_counts_of_recomputed_layers(void **state)
{
    static const int64_t few[] = {3, 0, 1}, many[] = {30, 3};
    struct mw_int_list counts = {few, 3};
    struct fixture f;

    (void)state;
    f = legal("llama3-8b"), f.l.stage_recompute_layers = counts;
    expect_broken(&f, "stage_recompute_layers",
                  "stage_recompute_layers counts what");
    f.l.recompute = MW_RECOMPUTE_FULL;
    expect_broken(&f, "stage_recompute_layers",
                  "stage_recompute_layers has 3 entries; one");
    f.l.stage_recompute_layers.n = (size_t)(f.l.pp * f.l.vpp);
    assert_int_equal(mw_layout_check(&f.l, &f.m, &f.w, 16, NULL, NULL), MW_OK);
    f.l.recompute_layers = 2;
    expect_broken(&f, "stage_recompute_layers",
                  "stage_recompute_layers counts what");
    f.l.recompute_layers = 0;
    f.l.stage_recompute_layers.v = many;
    expect_broken(&f, "stage_recompute_layers",
                  "stage_recompute_layers asks for more layers");
}

static void test_overflow(void **state)
{
    struct fixture f = legal("gpt3-175b");

    (void)state;
    f.w.seq = 1 << 24;
    f.w.global_batch = 1 << 20;
    f.l.tp = 32;
    f.l.cp = 1 << 19;
    f.l.dp = 1 << 20;
    f.l.sp = false;
    assert_int_equal(mw_layout_check(&f.l, &f.m, &f.w, 0, NULL, NULL), MW_ENO);
    expect_broken(&f, "ranks", "tp 32 x cp 524288 x pp 2 x dp 1048576 is");
}

/* More TP ways than key-value heads are legal when a multiple. */
static void test_kv_multiple(void **state)
{
    struct fixture f = legal("llama3-8b");

    (void)state;
    f.l.tp = 16;
    f.l.pp = 1;
    f.l.dp = 1;
    assert_int_equal(mw_layout_check(&f.l, &f.m, &f.w, 16, NULL, NULL), MW_OK);
}

static void test_rule_names(void **state)
{
    size_t n = 0;

    (void)state;
    for (; mw_layout_rule_name(n) != NULL; n++) {
        assert_non_null(mw_layout_rule_key(mw_layout_rule_name(n)));
        for (size_t i = 0; i < n; i++) {
            assert_string_not_equal(mw_layout_rule_name(i),
                                    mw_layout_rule_name(n));
        }
    }
    assert_true(n > 15);
    assert_null(mw_layout_rule_key("nothing"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_legal),
        cmocka_unit_test(test_dense_rules),
        cmocka_unit_test(test_expert_rules),
        cmocka_unit_test(test_counts_of_recomputed_layers),
        cmocka_unit_test(test_overflow),
        cmocka_unit_test(test_feature_rules),
        cmocka_unit_test(test_kv_multiple),
        cmocka_unit_test(test_rule_names),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
