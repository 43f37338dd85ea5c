/*
 * Bytes that layers keep, against the formulas and figures of Korthikanti et
 * al. 2022 (arXiv:2205.05198, section 4 and table 2), for 16-bit activations,
 * unfused attention and dropout:
 *
 *   no parallelism             sbh (34 + 5 a s / h)
 *   tensor parallel t          sbh (10 + 24 / t + 5 a s / (h t))
 *   tensor + sequence          sbh / t (34 + 5 a s / h)
 *   ... and selective          34 sbh / t
 *   full recomputation         2 sbh
 */
#include "mw_test.h"
#include "sim/model/model.h"

static const double GiB = 1024.0 * 1024 * 1024;

struct fixture {
    struct mw_model m;
    struct mw_layout l;
    struct mw_work work;
};

static void set_up(struct fixture *f, const char *name, int64_t seq, int batch)
{
    assert_int_equal(mw_model_preset(name, &f->m, NULL), MW_OK);
    mw_layout_default(&f->l);
    f->l.micro_batch = batch;
    f->work = (struct mw_work){.model = &f->m,
                               .layout = &f->l,
                               .seq = seq,
                               .dtype = MW_FP16,
                               .has_dropout = true};
}

static void test_formulas(void **state)
{
    static const struct {
        const char *name;
        int batch;
    } rows[] = {{"gpt-22b", 4}, {"gpt3-175b", 1}, {"gpt-529.6b", 2}};
    struct fixture f;

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        double sbh, square, t = 8;

        set_up(&f, rows[i].name, 2048, rows[i].batch);
        sbh = 2048.0 * rows[i].batch * f.m.hidden;
        square = 5.0 * f.m.n_heads * 2048 / f.m.hidden;
        mw_assert_near(mw_layer_activation_bytes(&f.work, 0),
                       sbh * (34 + square), 1e-14, 0);
        f.l.recompute = MW_RECOMPUTE_SELECTIVE;
        mw_assert_near(mw_layer_activation_bytes(&f.work, 0), sbh * 34, 1e-14,
                       0);
        mw_assert_near(mw_layer_recompute_bytes(&f.work, 0), sbh * square,
                       1e-14, 0);
        f.l.recompute = MW_RECOMPUTE_FULL;
        mw_assert_near(mw_layer_activation_bytes(&f.work, 0), 2 * sbh, 1e-14,
                       0);
        f.l.recompute = MW_RECOMPUTE_NONE;
        f.l.tp = 8;
        mw_assert_near(mw_layer_activation_bytes(&f.work, 0),
                       sbh * (10 + 24 / t + square / t), 1e-14, 0);
        f.l.sp = true;
        mw_assert_near(mw_layer_activation_bytes(&f.work, 0),
                       sbh / t * (34 + square), 1e-14, 0);
        f.l.recompute = MW_RECOMPUTE_SELECTIVE;
        mw_assert_near(mw_layer_activation_bytes(&f.work, 0), sbh / t * 34,
                       1e-14, 0);
    }
}

/* Figure 1 of the paper, first stage: 22B (one stage, 48 layers, micro-batch
 * 4): 59.25 GiB, with sequence parallelism and selective recomputation 9.5625
 * GiB. 175B (8 stages of 12 layers, interleaved by 3): 8 stages hold
 * 96 layers x (1 + 7 / (8 x 3)) in flight: 66.84375 and 12.3515625 GiB. */
static void test_figure_1(void **state)
{
    struct fixture f;

    (void)state;
    set_up(&f, "gpt-22b", 2048, 4);
    f.l.tp = 8;
    mw_assert_near(48 * mw_layer_activation_bytes(&f.work, 0) / GiB, 59.25,
                   1e-14, 0);
    f.l.sp = true;
    f.l.recompute = MW_RECOMPUTE_SELECTIVE;
    mw_assert_near(48 * mw_layer_activation_bytes(&f.work, 0) / GiB, 9.5625,
                   1e-14, 0);
    set_up(&f, "gpt3-175b", 2048, 1);
    f.l.tp = 8;
    mw_assert_near(96 * (1 + 7.0 / 24) * mw_layer_activation_bytes(&f.work, 0) /
                       GiB,
                   66.84375, 1e-14, 0);
    f.l.sp = true;
    f.l.recompute = MW_RECOMPUTE_SELECTIVE;
    mw_assert_near(96 * (1 + 7.0 / 24) * mw_layer_activation_bytes(&f.work, 0) /
                       GiB,
                   12.3515625, 1e-14, 0);
}

/* Section 4.3: final norm 2 sbh, head input 2 sbh, fp32 logits 4 sbV; all / t
 * with sequence parallelism: 4 sbh / t (1 + V / h). Embedding: a mask. */
static void test_head_and_embedding(void **state)
{
    struct fixture f;
    double sbh, h, v;

    (void)state;
    set_up(&f, "gpt3-175b", 2048, 1);
    h = f.m.hidden;
    v = f.m.vocab;
    sbh = 2048 * h;
    mw_assert_near(mw_head_activation_bytes(&f.work), 4 * sbh * (1 + v / h),
                   1e-14, 0);
    mw_assert_near(mw_embedding_activation_bytes(&f.work), sbh, 1e-14, 0);
    f.l.tp = 8;
    f.l.sp = true;
    mw_assert_near(mw_head_activation_bytes(&f.work), 4 * sbh / 8 * (1 + v / h),
                   1e-14, 0);
    mw_assert_near(mw_embedding_activation_bytes(&f.work), sbh / 8, 1e-14, 0);
    mw_assert_near(mw_boundary_bytes(&f.work), 2 * sbh / 8, 1e-14, 0);
}

/*
 * Flash attention keeps one fp32 logsumexp per head and query instead of the
 * square. Without dropout GPT keeps 32 sbh + 4 a s b: norms 4, qkv input 2,
 * q, k, v 6, proj input 2, fc1 input 2, activation input 8, fc2 input 8.
 * Llama-3-8B, per token: norms 2 x 8192; qkv input 8192; q 8192, k and v 2048
 * each; proj input 8192; fc1 input 8192; gate and up 57344; fc2 input 28672;
 * logsumexp 128: 139 392 bytes.
 */
static void test_flash(void **state)
{
    struct fixture f;
    double sbh;

    (void)state;
    set_up(&f, "gpt3-175b", 2048, 1);
    f.work.has_dropout = false;
    f.work.is_flash = true;
    sbh = 2048.0 * f.m.hidden;
    mw_assert_near(mw_layer_activation_bytes(&f.work, 0),
                   32 * sbh + 4.0 * 96 * 2048, 1e-14, 0);
    set_up(&f, "llama3-8b", 8192, 1);
    f.work.has_dropout = false;
    f.work.is_flash = true;
    mw_assert_near(mw_layer_activation_bytes(&f.work, 0), 8192 * 139392.0,
                   1e-14, 0);
}

/* What F operators say they keep is what the layer keeps. */
static void test_sum_of_operators(void **state)
{
    struct fixture f;

    (void)state;
    for (size_t i = 0; mw_model_preset_name(i) != NULL; i++) {
        set_up(&f, mw_model_preset_name(i), 512, 1);
        for (int r = MW_RECOMPUTE_NONE; r <= MW_RECOMPUTE_FULL; r++) {
            struct mw_ops ops = {0};
            double sum = 0;
            int layer = f.m.n_layers - 1;

            f.l.recompute = (enum mw_recompute)r;
            mw_layer_ops(&f.work, layer, MW_PASS_F, &ops);
            for (size_t j = 0; j < ops.n; j++) {
                sum += ops.v[j].save_bytes;
            }
            mw_array_release(&ops);
            mw_assert_near(sum, mw_layer_activation_bytes(&f.work, layer),
                           1e-15, 0);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_formulas),
        cmocka_unit_test(test_figure_1),
        cmocka_unit_test(test_head_and_embedding),
        cmocka_unit_test(test_flash),
        cmocka_unit_test(test_sum_of_operators),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
