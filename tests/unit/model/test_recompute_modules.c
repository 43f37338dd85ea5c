/*
 * Recomputation by module: what a layer keeps against counts by hand (in rows
 * of t tokens, h wide, f the intermediate size, 2 bytes each), what it repeats,
 * and that nothing is lost: what is kept and what comes back is what is kept
 * without recomputation.
 */
#include "mw_test.h"
#include "sim/model/model.h"

#include <string.h>

struct fixture {
    struct mw_model m;
    struct mw_layout l;
    struct mw_work work;
    int layer;
};

static void set_up(struct fixture *f, const char *name)
{
    *f = (struct fixture){0};
    assert_int_equal(mw_model_preset(name, &f->m, NULL), MW_OK);
    mw_layout_default(&f->l);
    f->l.recompute = MW_RECOMPUTE_SELECTIVE;
    f->work = (struct mw_work){.model = &f->m,
                               .layout = &f->l,
                               .seq = 2048,
                               .dtype = MW_BF16,
                               .is_flash = true};
    while (f->m.moe.n_experts > 0 && !mw_model_layer_is_moe(&f->m, f->layer)) {
        f->layer++;
    }
}

static double kept(struct fixture *f, int modules)
{
    f->l.recompute_modules = modules;
    f->l.recompute = modules != 0 ? MW_RECOMPUTE_SELECTIVE : MW_RECOMPUTE_NONE;
    return mw_layer_activation_bytes(&f->work, f->layer);
}

static double dropped(struct fixture *f, int modules)
{
    return kept(f, 0) - kept(f, modules);
}

/* Names of what is repeated, collectives in brackets. */
static void expect_again(struct fixture *f, int modules, const char *expected)
{
    struct mw_ops ops = {NULL, 0, 0};
    struct mw_str names = {NULL, 0, 0};

    kept(f, modules);
    mw_layer_recompute_ops(&f->work, f->layer, &ops);
    for (size_t i = 0; i < ops.n; i++) {
        const struct mw_op *op = &ops.v[i];

        assert_int_equal(op->pass, MW_PASS_F);
        assert_true(op->save_bytes == 0 && op->model_flops == 0);
        mw_str_addf(&names, op->kind == MW_OP_COLL ? "%s[%s %s]" : "%s%s",
                    i > 0 ? " " : "",
                    op->kind == MW_OP_COLL ? mw_dim_name(op->dim) : op->name,
                    mw_coll_op_name(op->coll));
    }
    assert_string_equal(names.s != NULL ? names.s : "", expected);
    mw_str_release(&names);
    mw_array_release(&ops);
}

static void test_dense_bytes(void **state)
{
    struct fixture f;

    (void)state;
    set_up(&f, "llama3.1-8b");
    double x = 2.0 * 2048 * f.m.hidden, ffn = 2.0 * 2048 * f.m.ffn;

    /* The inputs of qkv and of gate and up. */
    mw_assert_near(dropped(&f, MW_MODULE_LAYERNORM), 2 * x, 1e-12, 0);
    /* Gate and up, and what goes into down. */
    mw_assert_near(dropped(&f, MW_MODULE_MLP), 3 * ffn, 1e-12, 0);
    /* One fp32 logsumexp of a query and head. */
    mw_assert_near(dropped(&f, MW_MODULE_CORE_ATTN), 4.0 * 2048 * f.m.n_heads,
                   1e-12, 0);
    mw_assert_near(
        dropped(&f, MW_MODULE_LAYERNORM | MW_MODULE_MLP | MW_MODULE_CORE_ATTN),
        2 * x + 3 * ffn + 4.0 * 2048 * f.m.n_heads, 1e-12, 0);
    f.l.tp = 4;
    f.l.sp = true; /* inputs are kept as parts, the middle is in columns */
    mw_assert_near(dropped(&f, MW_MODULE_LAYERNORM | MW_MODULE_MLP),
                   (2 * x + 3 * ffn) / 4, 1e-12, 0);
}

static void test_expert_bytes(void **state)
{
    struct fixture f;

    (void)state;
    set_up(&f, "deepseek-v3");
    double tokens = 2.0 * 2048, k = f.m.moe.top_k;
    double routed = tokens * k, shared = tokens * f.m.moe.shared_ffn;
    double heads = f.m.n_heads;
    double act = routed * f.m.moe.ffn;

    mw_assert_near(dropped(&f, MW_MODULE_MOE_ACT), act, 1e-12, 0);
    mw_assert_near(dropped(&f, MW_MODULE_SHARED_EXPERTS), 3 * shared, 1e-12, 0);
    /* Logits of the router (fp32), what the experts take and return, theirs and
     * the shared ones' middles. */
    mw_assert_near(dropped(&f, MW_MODULE_MOE),
                   2 * tokens * f.m.moe.n_experts + 2 * routed * f.m.hidden +
                       3 * act + 3 * shared,
                   1e-12, 0);
    mw_assert_near(dropped(&f, MW_MODULE_MOE | MW_MODULE_MOE_ACT |
                                   MW_MODULE_SHARED_EXPERTS),
                   dropped(&f, MW_MODULE_MOE), 1e-12, 0);
    /* The down projection's and the router's input. */
    mw_assert_near(dropped(&f, MW_MODULE_LAYERNORM), 2 * tokens * f.m.hidden,
                   1e-12, 0);
    /* Queries, keys and values. */
    mw_assert_near(dropped(&f, MW_MODULE_MLA_UP_PROJ),
                   tokens * heads *
                       (2 * mw_model_qk_dim(&f.m) + mw_model_v_dim(&f.m)),
                   1e-12, 0);
}

static void test_repeated(void **state)
{
    struct fixture f;

    (void)state;
    set_up(&f, "llama3.1-8b");
    expect_again(&f, MW_MODULE_CORE_ATTN, "attn");
    expect_again(&f, MW_MODULE_LAYERNORM, "norm1 norm2");
    expect_again(&f, MW_MODULE_MLP, "fc1 act fc2");
    f.l.tp = 4;
    expect_again(&f, MW_MODULE_MLP, "fc1 act fc2 [tp all_reduce]");
    f.l.sp = true;
    expect_again(&f, MW_MODULE_MLP | MW_MODULE_LAYERNORM,
                 "norm1 norm2 [tp all_gather] fc1 act fc2 [tp reduce_scatter]");
    set_up(&f, "deepseek-v3");
    f.l.ep = 8;
    expect_again(&f, MW_MODULE_MOE_ACT, "expert_act");
    expect_again(&f, MW_MODULE_SHARED_EXPERTS,
                 "shared_fc1 shared_act shared_fc2");
    expect_again(&f, MW_MODULE_MLA_UP_PROJ, "q_up kv_up rotary");
    expect_again(&f, MW_MODULE_MOE,
                 "router top_k permute [ep all_to_all] expert_fc1 expert_act "
                 "expert_fc2 [ep all_to_all] unpermute shared_fc1 shared_act "
                 "shared_fc2");
}

/* The core alone is what selective meant before, to the bit. */
static void test_default(void **state)
{
    struct fixture f;
    struct mw_layer_peak before, now;

    (void)state;
    for (int flash = 0; flash <= 1; flash++) {
        set_up(&f, "gpt3-175b");
        f.work.is_flash = flash;
        f.work.has_dropout = !flash;
        double core = mw_layer_activation_bytes(&f.work, 0);

        mw_layer_backward_peak(&f.work, 0, &before);
        assert_true(kept(&f, MW_MODULE_CORE_ATTN) == core);
        mw_layer_backward_peak(&f.work, 0, &now);
        assert_true(now.bytes == before.bytes);
    }
}

static void test_nothing_is_lost(void **state)
{
    static const char *const names[] = {"llama3.1-8b", "deepseek-v3",
                                        "mixtral-8x7b"};

    (void)state;
    for (int i = 0; i < 3; i++) {
        struct fixture f;

        set_up(&f, names[i]);
        double none = kept(&f, 0);
        struct mw_layer_peak all;

        mw_layer_backward_peak(&f.work, f.layer, &all);
        for (int modules = 1; modules < 128; modules++) {
            struct mw_layer_peak peak;
            double bytes = kept(&f, modules);

            assert_true(bytes > 0 && bytes <= none);
            mw_assert_near(bytes + mw_layer_recompute_bytes(&f.work, f.layer),
                           none, 1e-12, 0);
            /* Kept and at the worst moment: no more than without, where all is
             * there, and no less than the worst moment alone. */
            mw_layer_backward_peak(&f.work, f.layer, &peak);
            assert_true(bytes + peak.bytes <= none + all.bytes + 0.5);
            assert_true(peak.bytes >= all.bytes - 0.5);
        }
    }
}

/* The dense MLP's moment by hand, SwiGLU on one rank: at down's gradient there
 * are the residual's gradient (x), that of down's input (f), and what has come
 * back (gate, up and their product: 3 f). At the activation's, with f for the
 * output's gradient and 2 f for its inputs', 2 f have come back: 5 f. */
static void test_moment(void **state)
{
    struct fixture f;
    struct mw_layer_peak peak;

    (void)state;
    set_up(&f, "llama3.1-8b");
    double x = 2.0 * 2048 * f.m.hidden, ffn = 2.0 * 2048 * f.m.ffn;

    kept(&f, MW_MODULE_MLP);
    mw_layer_backward_peak(&f.work, 0, &peak);
    assert_string_equal(peak.at, "act");
    mw_assert_near(peak.bytes, x + 5 * ffn, 1e-12, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_dense_bytes),
                                       cmocka_unit_test(test_expert_bytes),
                                       cmocka_unit_test(test_repeated),
                                       cmocka_unit_test(test_default),
                                       cmocka_unit_test(test_moment),
                                       cmocka_unit_test(test_nothing_is_lost)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
