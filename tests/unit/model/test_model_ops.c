/*
 * Operators of a layer: which, in which order, how large, and the collectives
 * that a layout adds to each pass.
 */
#include "mw_test.h"
#include "sim/model/model.h"

#include <string.h>

struct fixture {
    struct mw_model m;
    struct mw_layout l;
    struct mw_work work;
    struct mw_ops ops;
};

static void set_up(struct fixture *f, const char *name)
{
    *f = (struct fixture){0};
    assert_int_equal(mw_model_preset(name, &f->m, NULL), MW_OK);
    mw_layout_default(&f->l);
    f->work = (struct mw_work){.model = &f->m,
                               .layout = &f->l,
                               .seq = 2048,
                               .dtype = MW_BF16,
                               .is_flash = true};
}

static const struct mw_ops *layer(struct fixture *f, int i, enum mw_pass pass)
{
    mw_array_clear(&f->ops);
    mw_layer_ops(&f->work, i, pass, &f->ops);
    return &f->ops;
}

/* "norm1 qkv attn ...", collectives as "[all_reduce proj]". */
static void expect_names(const struct mw_ops *ops, const char *expected)
{
    struct mw_str names = {0};

    for (size_t i = 0; i < ops->n; i++) {
        const struct mw_op *op = &ops->v[i];

        mw_str_add(&names, i > 0 ? " " : "");
        if (op->kind == MW_OP_COLL) {
            mw_str_addf(&names, "[%s %s %s]", mw_dim_name(op->dim),
                        mw_coll_op_name(op->coll), op->name);
        } else {
            mw_str_addf(&names, "%s", op->name);
        }
    }
    assert_string_equal(names.n > 0 ? names.s : "", expected);
    mw_str_release(&names);
}

static const struct mw_op *find(const struct mw_ops *ops, const char *name)
{
    for (size_t i = 0; i < ops->n; i++) {
        if (strcmp(ops->v[i].name, name) == 0 && ops->v[i].kind != MW_OP_COLL) {
            return &ops->v[i];
        }
    }
    fail_msg("no operator %s", name);
    return NULL;
}

static const struct mw_op *find_coll(const struct mw_ops *ops, enum mw_dim dim,
                                     enum mw_coll_op coll)
{
    for (size_t i = 0; i < ops->n; i++) {
        if (ops->v[i].kind == MW_OP_COLL && ops->v[i].dim == dim &&
            ops->v[i].coll == coll) {
            return &ops->v[i];
        }
    }
    fail_msg("no %s over %s", mw_coll_op_name(coll), mw_dim_name(dim));
    return NULL;
}

static void test_one_rank(void **state)
{
    struct fixture f;

    (void)state;
    set_up(&f, "llama3-8b");
    expect_names(layer(&f, 0, MW_PASS_F),
                 "norm1 qkv rotary attn proj add1 norm2 fc1 act fc2 add2");
    expect_names(layer(&f, 0, MW_PASS_B),
                 "add2 fc2 act fc1 norm2 add1 proj attn rotary qkv norm1");
    expect_names(layer(&f, 0, MW_PASS_W), "fc2 fc1 norm2 proj qkv norm1");
    expect_names(layer(&f, 0, MW_PASS_BW),
                 "add2 fc2 act fc1 norm2 add1 proj attn rotary qkv norm1 "
                 "fc2 fc1 norm2 proj qkv norm1");
    mw_array_release(&f.ops);
}

/* Megatron's f and g: one all-reduce after each block forward, one before
 * each block backward. The message is b s h elements. */
static void test_tensor_parallel(void **state)
{
    struct fixture f;

    (void)state;
    set_up(&f, "gpt3-175b");
    f.l.tp = 8;
    expect_names(layer(&f, 0, MW_PASS_F),
                 "norm1 qkv attn proj [tp all_reduce proj] add1 norm2 fc1 act "
                 "fc2 [tp all_reduce fc2] add2");
    mw_assert_near(find_coll(&f.ops, MW_DIM_TP, MW_ALL_REDUCE)->coll_bytes,
                   2.0 * 2048 * 12288, 0, 0);
    expect_names(layer(&f, 0, MW_PASS_B),
                 "add2 fc2 act fc1 [tp all_reduce fc1] norm2 add1 proj attn "
                 "qkv [tp all_reduce qkv] norm1");
    expect_names(layer(&f, 0, MW_PASS_W), "fc2 fc1 norm2 proj qkv norm1");
    mw_array_release(&f.ops);
}

/* With sequence parallelism each all-reduce becomes a reduce-scatter and an
 * all-gather; W gathers again the inputs that were kept as shards. */
static void test_sequence_parallel(void **state)
{
    struct fixture f;

    (void)state;
    set_up(&f, "gpt3-175b");
    f.l.tp = 8;
    f.l.sp = true;
    expect_names(
        layer(&f, 0, MW_PASS_F),
        "norm1 [tp all_gather qkv] qkv attn proj [tp reduce_scatter proj] add1 "
        "norm2 [tp all_gather fc1] fc1 act fc2 [tp reduce_scatter fc2] add2");
    assert_int_equal(find(&f.ops, "norm1")->m, 256);
    assert_int_equal(find(&f.ops, "qkv")->m, 2048);
    expect_names(
        layer(&f, 0, MW_PASS_B),
        "add2 [tp all_gather fc2] fc2 act fc1 [tp reduce_scatter fc1] norm2 "
        "add1 [tp all_gather proj] proj attn qkv [tp reduce_scatter qkv] "
        "norm1");
    expect_names(layer(&f, 0, MW_PASS_W),
                 "fc2 [tp all_gather fc1] fc1 norm2 proj [tp all_gather qkv] "
                 "qkv norm1");
    mw_assert_near(find_coll(&f.ops, MW_DIM_TP, MW_ALL_GATHER)->coll_bytes,
                   2.0 * 2048 * 12288, 0, 0);
    mw_array_release(&f.ops);
}

/* sp without a TP group to share does nothing. */
static void test_sp_alone(void **state)
{
    struct fixture f;

    (void)state;
    set_up(&f, "gpt3-175b");
    f.l.sp = true;
    expect_names(layer(&f, 0, MW_PASS_F),
                 "norm1 qkv attn proj add1 norm2 fc1 act fc2 add2");
    mw_array_release(&f.ops);
}

/* Llama-3-8B, 8192 tokens over tp 2 and cp 4, 2 sequences: 4096 tokens, 16
 * query and 4 key-value heads; keys and values of 2 x 8192 tokens gathered:
 * 16384 x 4 heads x 2 x 128 x 2 bytes. */
static void test_shapes(void **state)
{
    struct fixture f;
    const struct mw_op *op;

    (void)state;
    set_up(&f, "llama3-8b");
    f.work.seq = 8192;
    f.l.tp = 2;
    f.l.cp = 4;
    f.l.micro_batch = 2;
    layer(&f, 0, MW_PASS_F);
    op = find(&f.ops, "qkv");
    assert_int_equal(op->m, 4096);
    assert_int_equal(op->n, (16 + 2 * 4) * 128);
    assert_int_equal(op->k, 4096);
    mw_assert_near(op->bytes,
                   2 * (4096.0 * 4096 + 3072.0 * 4096 + 4096.0 * 3072), 0, 0);
    op = find(&f.ops, "attn");
    assert_int_equal(op->m, 2048);
    assert_int_equal(op->n, 8192);
    assert_int_equal(op->k, 128);
    assert_int_equal(op->v_dim, 128);
    assert_int_equal(op->batch, 32);
    assert_int_equal(op->kv_batch, 8);
    assert_true(op->is_causal);
    op = find_coll(&f.ops, MW_DIM_CP, MW_ALL_GATHER);
    mw_assert_near(op->coll_bytes, 16384.0 * 4 * 2 * 128 * 2, 0, 0);
    op = find(&f.ops, "fc1");
    assert_int_equal(op->n, 14336);
    layer(&f, 0, MW_PASS_W);
    op = find(&f.ops, "fc1");
    assert_int_equal(op->m, 14336);
    assert_int_equal(op->n, 4096);
    assert_int_equal(op->k, 4096);
    /* bf16 operands, the fp32 gradient read and written. */
    mw_assert_near(op->bytes,
                   2 * (4096.0 * 14336 + 4096.0 * 4096) + 8 * 14336.0 * 4096, 0,
                   0);
    layer(&f, 0, MW_PASS_B);
    op = find(&f.ops, "fc1");
    assert_int_equal(op->m, 4096);
    assert_int_equal(op->n, 4096);
    assert_int_equal(op->k, 14336);
    find_coll(&f.ops, MW_DIM_CP, MW_REDUCE_SCATTER);
    find_coll(&f.ops, MW_DIM_CP, MW_ALL_GATHER);
    mw_array_release(&f.ops);
}

/* The gather of keys comes before the core in both passes. */
static void test_cp_order(void **state)
{
    struct fixture f;

    (void)state;
    set_up(&f, "gpt3-175b");
    f.l.cp = 2;
    expect_names(layer(&f, 0, MW_PASS_F),
                 "norm1 qkv [cp all_gather cp_kv] attn proj add1 norm2 fc1 act "
                 "fc2 add2");
    expect_names(layer(&f, 0, MW_PASS_B),
                 "add2 fc2 act fc1 norm2 add1 proj [cp all_gather cp_kv] attn "
                 "[cp reduce_scatter cp_kv] qkv norm1");
    mw_array_release(&f.ops);
}

/* More TP ranks than key-value heads: each rank keeps one head's copy. */
static void test_few_kv_heads(void **state)
{
    struct fixture f;

    (void)state;
    set_up(&f, "llama3-8b");
    f.l.tp = 32;
    layer(&f, 0, MW_PASS_F);
    assert_int_equal(find(&f.ops, "qkv")->n, (1 + 2) * 128);
    assert_int_equal(find(&f.ops, "attn")->kv_batch, 1);
    mw_array_release(&f.ops);
}

static void test_unfused_passes(void **state)
{
    struct fixture f;
    const struct mw_op *op;

    (void)state;
    set_up(&f, "gpt3-175b");
    f.work.is_flash = false;
    expect_names(layer(&f, 0, MW_PASS_F),
                 "norm1 qkv scores softmax context proj add1 norm2 fc1 act fc2 "
                 "add2");
    op = find(&f.ops, "scores");
    assert_int_equal(op->n, 2048);
    assert_int_equal(op->k, 128);
    assert_int_equal(op->batch, 96);
    expect_names(layer(&f, 0, MW_PASS_B),
                 "add2 fc2 act fc1 norm2 add1 proj context context softmax "
                 "scores scores qkv norm1");
    f.l.recompute = MW_RECOMPUTE_SELECTIVE;
    mw_array_clear(&f.ops);
    mw_layer_recompute_ops(&f.work, 0, &f.ops);
    expect_names(&f.ops, "scores softmax context");
    for (size_t i = 0; i < f.ops.n; i++) {
        mw_assert_near(f.ops.v[i].model_flops, 0, 0, 0);
        mw_assert_near(f.ops.v[i].save_bytes, 0, 0, 0);
    }
    mw_array_release(&f.ops);
}

static void test_recompute(void **state)
{
    struct fixture f;
    struct mw_ops forward = {0};

    (void)state;
    set_up(&f, "gpt3-175b");
    f.l.tp = 8;
    mw_layer_recompute_ops(&f.work, 0, &f.ops);
    assert_int_equal(f.ops.n, 0);
    f.l.recompute = MW_RECOMPUTE_FULL;
    mw_layer_ops(&f.work, 0, MW_PASS_F, &forward);
    mw_layer_recompute_ops(&f.work, 0, &f.ops);
    assert_int_equal(f.ops.n, forward.n);
    for (size_t i = 0; i < forward.n; i++) {
        assert_string_equal(f.ops.v[i].name, forward.v[i].name);
        mw_assert_near(f.ops.v[i].flops, forward.v[i].flops, 0, 0);
    }
    mw_array_release(&forward);
    mw_array_release(&f.ops);
}

/* Mixtral, ep 4, etp 2, tp 2 with sp: 1024 own tokens, top 2: 2048 sent, twice
 * as many after the gather over ETP, 2 experts on the rank. */
static void test_moe(void **state)
{
    struct fixture f;
    const struct mw_op *op;

    (void)state;
    set_up(&f, "mixtral-8x7b");
    f.l.tp = 2;
    f.l.sp = true;
    f.l.dp = 4;
    f.l.ep = 4;
    f.l.etp = 2;
    expect_names(layer(&f, 0, MW_PASS_F),
                 "norm1 [tp all_gather qkv] qkv rotary attn proj "
                 "[tp reduce_scatter proj] add1 norm2 router top_k permute "
                 "[ep all_to_all dispatch] [etp all_gather experts] expert_fc1 "
                 "expert_act expert_fc2 [etp reduce_scatter experts] "
                 "[ep all_to_all combine] unpermute add2");
    op = find(&f.ops, "expert_fc1");
    assert_int_equal(op->batch, 2);
    assert_int_equal(op->m, 2048);
    assert_int_equal(op->n, 14336);
    assert_int_equal(op->k, 4096);
    mw_assert_near(op->flops, 2 * 4096.0 * 14336 * 4096, 0, 0);
    mw_assert_near(find_coll(&f.ops, MW_DIM_EP, MW_ALL_TO_ALL)->coll_bytes,
                   2.0 * 2048 * 4096, 0, 0);
    mw_assert_near(find_coll(&f.ops, MW_DIM_ETP, MW_ALL_GATHER)->coll_bytes,
                   2.0 * 4096 * 4096, 0, 0);
    mw_array_release(&f.ops);
}

/* FP8 on the way to the experts: the first exchange of a forward pass and the
 * first of a backward one, which undoes the last. */
static void test_fp8_dispatch(void **state)
{
    struct fixture f;
    static const char *const halved[] = {"dispatch", "combine"};

    (void)state;
    set_up(&f, "mixtral-8x7b");
    f.l.dp = 4;
    f.l.ep = 4;
    f.m.moe.fp8_dispatch = true;
    for (int b = 0; b < 2; b++) {
        int n = 0;

        layer(&f, 0, b ? MW_PASS_B : MW_PASS_F);
        for (size_t i = 0; i < f.ops.n; i++) {
            const struct mw_op *op = &f.ops.v[i];

            if (op->kind == MW_OP_COLL && op->dim == MW_DIM_EP) {
                double el = strcmp(op->name, halved[b]) == 0 ? 1 : 2;

                n++;
                mw_assert_near(op->coll_bytes, el * 2 * 2048 * 4096, 0, 0);
            }
        }
        assert_int_equal(n, 2);
    }
    mw_array_release(&f.ops);
}

/* DeepSeek-V3: the first three layers are dense, the others have a shared
 * expert; latents stand in the place of qkv. */
static void test_mla(void **state)
{
    struct fixture f;
    const struct mw_op *op;

    (void)state;
    set_up(&f, "deepseek-v3");
    f.l.tp = 8;
    f.l.sp = true;
    expect_names(
        layer(&f, 2, MW_PASS_F),
        "norm1 q_down q_norm [tp all_gather q_up] q_up kv_down kv_norm "
        "[tp all_gather kv_up] kv_up rotary attn proj [tp reduce_scatter proj] "
        "add1 norm2 [tp all_gather fc1] fc1 act fc2 [tp reduce_scatter fc2] "
        "add2");
    op = find(&f.ops, "attn");
    assert_int_equal(op->k, 192);
    assert_int_equal(op->v_dim, 128);
    mw_assert_near(op->model_flops, 2.0 * 2048 * 2048 * 16 * (192 + 128), 0, 0);
    assert_int_equal(find(&f.ops, "q_down")->m, 256);
    assert_int_equal(find(&f.ops, "kv_up")->n, 16 * (128 + 128));
    /* 64 elements of each query head and of the one key are turned in place;
     * keys of 192 and values of 128 are written from what kv_up gave. */
    mw_assert_near(
        find(&f.ops, "rotary")->bytes,
        2.0 * 2048 * (2 * (16 + 1) * 64 + 16 * (128 + 128) + 16 * (192 + 128)),
        0, 0);
    layer(&f, 3, MW_PASS_F);
    assert_int_equal(find(&f.ops, "shared_fc1")->n, 2 * 2048 / 8);
    assert_int_equal(find(&f.ops, "expert_fc1")->batch, 256);
    mw_array_release(&f.ops);
}

/* Two norms and a product of 2 h to h; sequence parallel over tp 8: parts of
 * 2048 tokens gathered, a column of the output each, gathered whole. */
static void test_prediction_module(void **state)
{
    struct fixture f;

    (void)state;
    set_up(&f, "deepseek-v3");
    mw_mtp_ops(&f.work, MW_PASS_F, &f.ops);
    expect_names(&f.ops, "mtp_embed_norm mtp_hidden_norm mtp_proj");
    mw_assert_near(find(&f.ops, "mtp_proj")->flops, 2.0 * 2048 * 7168 * 14336,
                   0, 0);
    mw_assert_near(mw_mtp_activation_bytes(&f.work, true),
                   2.0 * 2048 * 7168 * (1 + 1 + 2), 0, 0);
    f.l.tp = 8;
    f.l.sp = true;
    mw_array_clear(&f.ops);
    mw_mtp_ops(&f.work, MW_PASS_F, &f.ops);
    expect_names(&f.ops,
                 "mtp_embed_norm mtp_hidden_norm [tp all_gather mtp_proj] "
                 "mtp_proj [tp all_gather mtp_proj]");
    mw_array_clear(&f.ops);
    mw_mtp_ops(&f.work, MW_PASS_BW, &f.ops);
    expect_names(&f.ops,
                 "[tp all_gather mtp_proj] mtp_proj [tp reduce_scatter "
                 "mtp_proj] mtp_hidden_norm mtp_embed_norm [tp all_gather "
                 "mtp_proj] mtp_proj mtp_hidden_norm mtp_embed_norm");
    mw_array_release(&f.ops);
}

static void test_embedding_and_head(void **state)
{
    struct fixture f;

    (void)state;
    set_up(&f, "gpt3-175b");
    f.l.tp = 8;
    f.l.sp = true;
    mw_embedding_ops(&f.work, MW_PASS_F, &f.ops);
    expect_names(&f.ops, "embed [tp reduce_scatter embed] embed_add");
    mw_array_clear(&f.ops);
    mw_embedding_ops(&f.work, MW_PASS_W, &f.ops);
    expect_names(&f.ops, "[tp all_gather embed] embed");
    mw_array_clear(&f.ops);
    mw_head_ops(&f.work, MW_PASS_F, &f.ops);
    expect_names(&f.ops, "final_norm [tp all_gather head] head "
                         "[tp all_reduce loss_max] loss "
                         "[tp all_reduce loss_target] [tp all_reduce "
                         "loss_sum]");
    assert_int_equal(find(&f.ops, "head")->n, 51200 / 8);
    mw_array_clear(&f.ops);
    mw_head_ops(&f.work, MW_PASS_B, &f.ops);
    expect_names(&f.ops, "loss head [tp reduce_scatter head] final_norm");
    mw_array_clear(&f.ops);
    mw_head_ops(&f.work, MW_PASS_W, &f.ops);
    expect_names(&f.ops, "[tp all_gather head] head final_norm");
    mw_array_release(&f.ops);
}

/* Narrow GEMM operands are kept narrow; the rest stays in bf16. */
static void test_fp8(void **state)
{
    struct fixture f;

    (void)state;
    set_up(&f, "llama3-8b");
    f.work.dtype = MW_FP8;
    layer(&f, 0, MW_PASS_F);
    mw_assert_near(find(&f.ops, "proj")->save_bytes, 2048.0 * 4096, 0, 0);
    mw_assert_near(find(&f.ops, "norm1")->save_bytes, 2 * 2048.0 * 4096, 0, 0);
    assert_int_equal(find(&f.ops, "proj")->dtype, MW_FP8);
    assert_int_equal(find(&f.ops, "attn")->dtype, MW_BF16);
    mw_assert_near(mw_boundary_bytes(&f.work), 2 * 2048.0 * 4096, 0, 0);
    mw_array_release(&f.ops);
}

/* With sp a rank has 1 / tp of the FLOPs and of the bytes kept. */
static void test_tp_scales(void **state)
{
    (void)state;
    for (int tp = 1; tp <= 8; tp *= 2) {
        struct fixture f;
        double flops = 0, saved;

        set_up(&f, "gpt-7.5b");
        saved = mw_layer_activation_bytes(&f.work, 0);
        f.l.tp = tp;
        f.l.sp = true;
        layer(&f, 0, MW_PASS_F);
        for (size_t i = 0; i < f.ops.n; i++) {
            flops += f.ops.v[i].model_flops;
        }
        mw_assert_near(flops * tp,
                       24.0 * 2048 * 4096 * 4096 + 4.0 * 2048 * 2048 * 4096,
                       1e-15, 0);
        mw_assert_near(mw_layer_activation_bytes(&f.work, 0) * tp, saved, 1e-15,
                       0);
        mw_array_release(&f.ops);
    }
}

/* FP8 with sequence parallelism over 4: operands are cast by the rank that made
 * them and gathered narrow, sums are reduced in bf16. gpt3-175b, 2048 tokens:
 * 512 of a rank, 12288 wide; the head stays in bf16. */
static void test_narrow_operands(void **state)
{
    const double x = 2048.0 * 12288, own = 512.0 * 12288;
    struct fixture f;
    const struct mw_ops *ops;

    (void)state;
    set_up(&f, "gpt3-175b");
    f.l.tp = 4;
    f.l.sp = true;
    f.work.dtype = MW_FP8;
    f.work.scaling = MW_SCALE_MX;
    ops = layer(&f, 0, MW_PASS_F);
    mw_assert_near(find_coll(ops, MW_DIM_TP, MW_ALL_GATHER)->coll_bytes, x, 0,
                   0);
    mw_assert_near(find_coll(ops, MW_DIM_TP, MW_REDUCE_SCATTER)->coll_bytes,
                   2 * x, 0, 0);
    mw_assert_near(find(ops, "qkv")->cast_elements, own, 0, 0);
    mw_assert_near(find(ops, "proj")->cast_elements, own, 0, 0); /* x / tp */
    assert_int_equal(find(ops, "qkv")->scaling, MW_SCALE_MX);
    ops = layer(&f, 0, MW_PASS_B);
    mw_assert_near(find_coll(ops, MW_DIM_TP, MW_ALL_GATHER)->coll_bytes, x, 0,
                   0);
    mw_assert_near(find(ops, "fc2")->cast_elements, own, 0, 0);
    mw_assert_near(find(ops, "fc1")->cast_elements, 2048.0 * 12288, 0, 0);
    ops = layer(&f, 0, MW_PASS_W);
    mw_assert_near(find_coll(ops, MW_DIM_TP, MW_ALL_GATHER)->coll_bytes, x, 0,
                   0);
    mw_assert_near(find(ops, "fc1")->cast_elements, 0, 0, 0);
    mw_array_clear(&f.ops);
    mw_head_ops(&f.work, MW_PASS_F, &f.ops);
    assert_int_equal(find(&f.ops, "head")->dtype, MW_BF16);
    mw_array_release(&f.ops);
}

/* Kernels of the time of dropout, fp16: per pair of tokens 4 bytes of softmax
 * and 5 of dropout forward, 6 and 5 backward; per logit 38 and 14; a weight
 * gradient is written and read once more than where it is fused. */
static void test_eager_kernels(void **state)
{
    const double pairs = 96.0 * 2048 * 2048;
    struct fixture f;
    double logits, fused, eager;

    (void)state;
    set_up(&f, "gpt3-175b");
    f.work.dtype = f.work.grad_dtype = MW_FP16;
    fused = find(layer(&f, 0, MW_PASS_W), "fc1")->bytes;
    f.work.is_flash = false;
    f.work.has_dropout = true;
    eager = find(layer(&f, 0, MW_PASS_W), "fc1")->bytes;
    f.work.sums_in_place = true;
    mw_assert_near(find(layer(&f, 0, MW_PASS_W), "fc1")->bytes, fused, 0, 0);
    mw_assert_near(eager - fused, 4.0 * 12288 * 49152, 1e-12, 0);
    mw_assert_near(find(layer(&f, 0, MW_PASS_F), "softmax")->bytes, 9 * pairs,
                   0, 0);
    mw_assert_near(find(layer(&f, 0, MW_PASS_B), "softmax")->bytes, 11 * pairs,
                   0, 0);
    logits = 2048.0 * f.m.vocab;
    mw_array_clear(&f.ops);
    mw_head_ops(&f.work, MW_PASS_F, &f.ops);
    mw_assert_near(find(&f.ops, "loss")->bytes, 38 * logits, 0, 0);
    mw_array_clear(&f.ops);
    mw_head_ops(&f.work, MW_PASS_B, &f.ops);
    mw_assert_near(find(&f.ops, "loss")->bytes, 14 * logits, 0, 0);
    mw_array_release(&f.ops);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_rank),
        cmocka_unit_test(test_narrow_operands),
        cmocka_unit_test(test_eager_kernels),
        cmocka_unit_test(test_tensor_parallel),
        cmocka_unit_test(test_sequence_parallel),
        cmocka_unit_test(test_sp_alone),
        cmocka_unit_test(test_shapes),
        cmocka_unit_test(test_cp_order),
        cmocka_unit_test(test_few_kv_heads),
        cmocka_unit_test(test_unfused_passes),
        cmocka_unit_test(test_recompute),
        cmocka_unit_test(test_moe),
        cmocka_unit_test(test_fp8_dispatch),
        cmocka_unit_test(test_mla),
        cmocka_unit_test(test_embedding_and_head),
        cmocka_unit_test(test_prediction_module),
        cmocka_unit_test(test_fp8),
        cmocka_unit_test(test_tp_scales),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
