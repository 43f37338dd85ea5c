/*
 * Local attention against a count of pairs one by one: what a window keeps, in
 * closed form, and what the operators of a layer do of it in every form of
 * context parallelism that has windows, packed or not.
 */
#include "mw_test.h"
#include "sim/model/model.h"

#include <string.h>

static bool is_kept(int64_t i, int64_t j, const struct mw_window *w)
{
    if (j > i) {
        return false;
    }
    return w->form == MW_WINDOW_CHUNKED ? i / w->tokens == j / w->tokens
                                        : i - j < w->tokens;
}

static int64_t count_pairs(int64_t span, const struct mw_window *w)
{
    int64_t n = 0;

    for (int64_t i = 0; i < span; i++) {
        for (int64_t j = 0; j < span; j++) {
            n += is_kept(i, j, w);
        }
    }
    return n;
}

/* Pairs in the square tiles that hold a kept one. */
static int64_t count_tiled(int64_t span, const struct mw_window *w, int tile)
{
    int64_t n_tiles = (span + tile - 1) / tile, n = 0;

    for (int64_t a = 0; a < n_tiles; a++) {
        for (int64_t b = 0; b < n_tiles; b++) {
            bool is_hit = false;

            for (int64_t i = a * tile; i < (a + 1) * tile && i < span; i++) {
                for (int64_t j = b * tile; j < (b + 1) * tile && j < span;
                     j++) {
                    is_hit = is_hit || is_kept(i, j, w);
                }
            }
            n += is_hit;
        }
    }
    return n * tile * tile;
}

static void test_pairs(void **state)
{
    (void)state;
    for (int64_t span = 1; span <= 24; span++) {
        for (int tokens = 1; tokens <= 27; tokens++) {
            for (int form = 0; form < 2; form++) {
                const struct mw_window w = {tokens, 0, 0,
                                            (enum mw_window_form)form};

                mw_assert_near(mw_window_pairs(span, &w),
                               (double)count_pairs(span, &w), 0, 0);
                assert_int_equal(mw_window_keys(span, &w),
                                 tokens < span ? tokens : span);
            }
        }
        mw_assert_near(mw_window_pairs(span, NULL),
                       (double)(span * (span + 1) / 2), 0, 0);
    }
}

/* Chunks of whole tiles; a sliding window of any size. */
static void test_tiles(void **state)
{
    static const int tiles[] = {1, 2, 4, 5};

    (void)state;
    for (size_t t = 0; t < sizeof tiles / sizeof *tiles; t++) {
        int tile = tiles[t];

        for (int64_t span = 1; span <= 24; span++) {
            const struct mw_window all = {(int)span, 0, 0, MW_WINDOW_SLIDING};
            double whole = (double)count_tiled(span, &all, tile) /
                           (double)count_pairs(span, &all);

            for (int tokens = 1; tokens <= 26; tokens++) {
                for (int form = 0; form < 2; form++) {
                    const struct mw_window w = {tokens, 0, 0,
                                                (enum mw_window_form)form};

                    if (form == MW_WINDOW_CHUNKED && tokens % tile != 0) {
                        continue;
                    }
                    mw_assert_near(mw_window_tile_work(span, &w, tile),
                                   (double)count_tiled(span, &w, tile) /
                                       (double)count_pairs(span, &w) / whole,
                                   1e-12, 0);
                }
            }
        }
    }
}

/* Which layers have a window, as a row of letters. */
static void expect_layers(struct mw_window w, const char *expected)
{
    struct mw_model m = {.n_layers = (int)strlen(expected), .window = w};
    int n = 0;

    for (int i = 0; i < m.n_layers; i++) {
        assert_int_equal(mw_model_local_layers(&m, i), n);
        assert_int_equal(mw_model_layer_is_local(&m, i), expected[i] == 'w');
        n += expected[i] == 'w';
    }
}

static void test_layers(void **state)
{
    (void)state;
    expect_layers((struct mw_window){0, 0, 0, MW_WINDOW_SLIDING}, "......");
    expect_layers((struct mw_window){9, 0, 0, MW_WINDOW_SLIDING}, "wwwwww");
    expect_layers((struct mw_window){9, 2, 0, MW_WINDOW_SLIDING}, "w.w.w.");
    expect_layers((struct mw_window){9, 4, 0, MW_WINDOW_CHUNKED}, "www.www.ww");
    expect_layers((struct mw_window){9, 6, 0, MW_WINDOW_SLIDING},
                  "wwwww.wwwww.ww");
    expect_layers((struct mw_window){9, 0, 4, MW_WINDOW_SLIDING}, "....www");
    expect_layers((struct mw_window){9, 2, 3, MW_WINDOW_SLIDING}, "....w.w");
}

/* ---- operators --------------------------------------------------------------
 */
enum { SEQ = 48, MICRO_BATCH = 2 };

struct fixture {
    struct mw_model m;
    struct mw_layout l;
    struct mw_work work;
};

static void set_up(struct fixture *f, struct mw_window w)
{
    *f = (struct fixture){0};
    f->m = (struct mw_model){.name = "t",
                             .hidden = 64,
                             .n_layers = 4,
                             .n_heads = 8,
                             .n_kv_heads = 4,
                             .head_dim = 16,
                             .ffn = 128,
                             .vocab = 256,
                             .is_gated = true,
                             .norm = MW_NORM_RMS,
                             .position = MW_POS_ROTARY,
                             .final_norm = true,
                             .window = w};
    mw_layout_default(&f->l);
    f->l.micro_batch = MICRO_BATCH;
    f->work = (struct mw_work){.model = &f->m,
                               .layout = &f->l,
                               .seq = SEQ,
                               .dtype = MW_BF16,
                               .is_flash = true};
}

/* FLOPs of the core's operators in one pass of one layer. */
struct core {
    double flops, model_flops, save_bytes, bytes;
};

static struct core core_of(const struct fixture *f, int layer,
                           enum mw_pass pass)
{
    static const char *const names[] = {"attn", "scores", "context"};
    struct mw_ops ops = {0};
    struct core sum = {0, 0, 0, 0};

    mw_layer_ops(&f->work, layer, pass, &ops);
    for (size_t i = 0; i < ops.n; i++) {
        const struct mw_op *op = &ops.v[i];

        for (int k = 0; k < 3; k++) {
            if (strcmp(op->name, names[k]) == 0) {
                sum.flops += op->flops;
                sum.model_flops += op->model_flops;
                sum.save_bytes += op->save_bytes;
                sum.bytes += op->bytes;
            }
        }
    }
    mw_array_release(&ops);
    return sum;
}

/* 2 products of 16 elements for each of 8 heads' pairs, 2 FLOPs an element. */
static double forward_flops(double pairs)
{
    return 2.0 * 8 * MICRO_BATCH * (16 + 16) * pairs;
}

/* Pairs of a sequence in documents of `doc` tokens, which divide it. */
static double pairs_of(const struct mw_window *w, int64_t doc)
{
    int64_t span = doc > 0 ? doc : SEQ;

    return (double)(SEQ / span * count_pairs(span, w));
}

static void check_core(struct mw_window w, int64_t doc, int cp,
                       enum mw_cp_form form)
{
    struct fixture f;

    set_up(&f, w);
    f.work.doc_tokens = doc;
    f.l.cp = cp;
    f.l.cp_form = form;
    for (int layer = 0; layer < f.m.n_layers; layer++) {
        const struct mw_window all = {SEQ, 0, 0, MW_WINDOW_SLIDING};
        bool is_local = mw_model_layer_is_local(&f.m, layer);
        double pairs = pairs_of(is_local ? &w : &all, doc) / cp;
        struct core fwd = core_of(&f, layer, MW_PASS_F);
        struct core bwd = core_of(&f, layer, MW_PASS_B);

        mw_assert_near(fwd.flops, forward_flops(pairs), 1e-12, 0);
        mw_assert_near(bwd.flops, 2.5 * forward_flops(pairs), 1e-12, 0);
        mw_assert_near(bwd.model_flops, 2 * fwd.model_flops, 1e-12, 0);
        /* q, k, v and statistics are read, and kept, whole. */
        f.m.window.tokens = 0;
        struct core plain = core_of(&f, layer, MW_PASS_F);

        f.m.window.tokens = w.tokens;
        mw_assert_near(fwd.save_bytes, plain.save_bytes, 0, 0);
        mw_assert_near(fwd.bytes, plain.bytes, 0, 0);
    }
}

static void test_flash(void **state)
{
    static const int tokens[] = {1, 5, 16, 47, 48, 60};
    static const int docs[] = {0, 12, 24};

    (void)state;
    for (size_t i = 0; i < sizeof tokens / sizeof *tokens; i++) {
        for (int form = 0; form < 2; form++) {
            const struct mw_window w = {tokens[i], 2, 0,
                                        (enum mw_window_form)form};

            for (size_t k = 0; k < sizeof docs / sizeof *docs; k++) {
                check_core(w, docs[k], 1, MW_CP_GATHER);
                check_core(w, docs[k], 2, MW_CP_GATHER);
                check_core(w, docs[k], 4, MW_CP_A2A);
            }
        }
    }
}

/* Unfused products are whole, and so is what they keep; the useful part of them
 * is the window's. */
static void test_unfused(void **state)
{
    struct fixture f;

    (void)state;
    set_up(&f, (struct mw_window){6, 2, 0, MW_WINDOW_SLIDING});
    f.work.is_flash = false;
    for (int pass = MW_PASS_F; pass <= MW_PASS_B; pass++) {
        struct core local = core_of(&f, 0, (enum mw_pass)pass);
        struct core whole = core_of(&f, 1, (enum mw_pass)pass);

        mw_assert_near(local.flops, whole.flops, 0, 0);
        mw_assert_near(local.save_bytes, whole.save_bytes, 0, 0);
        mw_assert_near(local.model_flops, whole.model_flops * 6 / SEQ, 1e-12,
                       0);
    }
}

/* A window that no sequence reaches changes nothing, to the bit. */
static void test_wide(void **state)
{
    struct mw_ops with = {0}, without = {0};
    struct fixture f;

    (void)state;
    set_up(&f, (struct mw_window){SEQ, 2, 0, MW_WINDOW_SLIDING});
    mw_layer_ops(&f.work, 0, MW_PASS_BW, &with);
    f.m.window = (struct mw_window){0, 0, 0, MW_WINDOW_SLIDING};
    mw_layer_ops(&f.work, 0, MW_PASS_BW, &without);
    assert_int_equal(with.n, without.n);
    for (size_t i = 0; i < with.n; i++) {
        assert_true(with.v[i].flops == without.v[i].flops &&
                    with.v[i].model_flops == without.v[i].model_flops &&
                    with.v[i].work_fraction == without.v[i].work_fraction &&
                    with.v[i].window == 0);
    }
    mw_array_release(&with);
    mw_array_release(&without);
}

/* ---- useful FLOPs -----------------------------------------------------------
 */
/* The sum of the operators' is the closed form, full and causal. */
static void test_model_flops(void **state)
{
    static const char *const names[] = {"gpt-oss-20b", "gemma3-1b", "gemma2-2b",
                                        "mistral-7b-v0.1", "llama4-scout"};
    const int64_t seq = 16384;

    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        struct mw_ops ops = {0};
        struct mw_model m;
        struct mw_layout l;
        double core = 0, kept = 0, full, causal;

        assert_int_equal(mw_model_preset(names[i], &m, NULL), MW_OK);
        assert_int_equal(mw_model_check(&m, NULL), MW_OK);
        mw_layout_default(&l);
        const struct mw_work work = {.model = &m,
                                     .layout = &l,
                                     .seq = seq,
                                     .dtype = MW_BF16,
                                     .is_flash = true};

        for (int layer = 0; layer < m.n_layers; layer++) {
            mw_array_clear(&ops);
            mw_layer_ops(&work, layer, MW_PASS_F, &ops);
            for (size_t k = 0; k < ops.n; k++) {
                core += strcmp(ops.v[k].name, "attn") == 0
                            ? ops.v[k].model_flops
                            : 0;
                kept += strcmp(ops.v[k].name, "attn") == 0 ? ops.v[k].flops : 0;
            }
        }
        full = mw_model_flops_per_token(&m, seq, false) -
               6 * mw_model_matrix_weights(&m);
        causal = mw_model_flops_per_token(&m, seq, true) -
                 6 * mw_model_matrix_weights(&m);
        mw_assert_near(full, 3 * core / (double)seq, 1e-9, 0);
        /* Half a square stands there for the triangle with its diagonal. */
        mw_assert_near(causal, 3 * kept / (double)seq, 1e-3, 0);
        mw_array_release(&ops);
    }
}

/* NVIDIA's bridge prints 1077 TFLOP/s a GPU for 2.4806 s of 1280 sequences of
 * 4096 tokens on 64 GPUs (docs/performance-summary.md, 26.08): 32.6 GFLOP a
 * token, which counts windows. */
static void test_bridge_count(void **state)
{
    struct mw_model m;

    (void)state;
    assert_int_equal(mw_model_preset("gpt-oss-120b", &m, NULL), MW_OK);
    mw_assert_near(mw_model_flops_per_token(&m, 4096, true),
                   1077e12 * 64 * 2.4806 / (1280.0 * 4096), 0.005, 0);
    m.window = (struct mw_window){0, 0, 0, MW_WINDOW_SLIDING};
    assert_true(mw_model_flops_per_token(&m, 4096, true) >
                1.05 * 1077e12 * 64 * 2.4806 / (1280.0 * 4096));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pairs),       cmocka_unit_test(test_tiles),
        cmocka_unit_test(test_layers),      cmocka_unit_test(test_flash),
        cmocka_unit_test(test_unfused),     cmocka_unit_test(test_wide),
        cmocka_unit_test(test_model_flops), cmocka_unit_test(test_bridge_count),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
