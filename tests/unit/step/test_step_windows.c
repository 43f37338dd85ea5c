/*
 * Steps of models in which some layers attend to a window: how many of which
 * stages have, that a stage is the sum of its layers, and that both forms of a
 * step agree.
 */
#include "mw_test.h"

#include "step_units.h"

#include <string.h>

enum { SEQ = 2048, LAYERS = 12 };

/* One micro-batch of 4 sequences would do; `model`: more keys of it. */
static void open_world(struct step_world *w, const char *model,
                       const char *workload)
{
    step_scenario_of(&w->s,
                     "format: 1\nname: t\n"
                     "model: {hidden: 1024, layers: %d, heads: 16, kv_heads: "
                     "8, ffn: 4096, vocab: 32768%s}\n"
                     "cluster: {system: dgx-h100, nodes: 2}\n"
                     "workload: {seq: %d, global_batch: 64%s}\n",
                     LAYERS, model, SEQ, workload);
    step_world_price(w);
}

static double step_s(const char *model, const struct mw_layout *l)
{
    struct mw_step_result r;
    struct step_world w;
    double time_s;

    open_world(&w, model, "");
    step_simulate(&r, &w.s, l, &w.ctx, NULL);
    time_s = r.step_time_s;
    mw_step_result_release(&r);
    step_world_close(&w);
    return time_s;
}

/* ---- counts ----------------------------------------------------------------
 */
static void check_counts(const struct step_world *w, const struct mw_layout *l,
                         const int *layers)
{
    const struct mw_model *m = &w->s.model;
    struct mw_step_price p = step_priced(w, l);
    int n = l->pp * l->vpp, first = 0;
    bool has_full[2] = {false, false};

    for (int i = 0; i < m->n_layers; i++) {
        has_full[mw_model_layer_is_moe(m, i)] |= !mw_model_layer_is_local(m, i);
    }
    for (int k = 0; k < n; k++) {
        int expected[2][2][2] = {{{0}}}, got[MW_UNIT_COUNT], all = 0;

        for (int i = first; i < first + layers[k]; i++) {
            bool is_moe = mw_model_layer_is_moe(m, i);
            bool is_kept =
                l->recompute_layers > 0 && i - first >= l->recompute_layers;

            expected[is_moe][mw_model_layer_is_local(m, i) && has_full[is_moe]]
                    [is_kept]++;
        }
        mw_vstage_count(&p, k, n, first, layers[k], got);
        for (int i = 0; i < 8; i++) {
            enum mw_step_unit unit = mw_unit_of(i & 1, i >> 1 & 1, i >> 2);

            assert_int_equal(got[unit], expected[i & 1][i >> 1 & 1][i >> 2]);
            all += got[unit];
        }
        assert_int_equal(all, layers[k]);
        assert_int_equal(all, mw_units_layers(got));
        first += layers[k];
    }
}

static void test_counts(void **state)
{
    static const char *const models[] = {
        ", attention_window: 128", ", attention_window: 128, global_every: 2",
        ", attention_window: 128, global_every: 4, window_form: chunked, moe: "
        "{experts: 8, top_k: 2, ffn: 2048, every: 2}",
        ", attention_window: 128, first_global: 5, moe: {experts: 8, top_k: 2, "
        "ffn: 2048, first_dense: 3}",
        ", attention_window: 4096, global_every: 2"};
    static const int splits[][4] = {{3, 3, 3, 3}, {4, 1, 5, 2}, {12, 0, 0, 0}};

    (void)state;
    for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
        struct step_world w;

        open_world(&w, models[i], "");
        if (w.s.model.window.tokens > SEQ) { /* none that cuts */
            w.s.model.window.first_global = LAYERS;
        }
        for (int split = 0; split < 3; split++) {
            struct mw_layout l;

            mw_layout_default(&l);
            l.pp = split == 2 ? 1 : 4;
            l.dp = 16 / l.pp;
            check_counts(&w, &l, splits[split]);
            l.recompute = MW_RECOMPUTE_FULL;
            l.recompute_layers = 2;
            check_counts(&w, &l, splits[split]);
        }
        step_world_close(&w);
    }
}

/* ---- times -----------------------------------------------------------------
 */
/* In a model of both, a layer of either takes what it takes in a model of its
 * kind alone, in every phase. */
static void test_units(void **state)
{
    static const char *const moe = ", moe: {experts: 8, top_k: 2, ffn: 2048}";
    struct step_world mixed, local, full;
    struct mw_layout l;
    char text[3][160];

    (void)state;
    mw_layout_default(&l);
    l.tp = 2;
    l.sp = true;
    l.dp = 8;
    l.recompute = MW_RECOMPUTE_SELECTIVE;
    for (int is_moe = 0; is_moe < 2; is_moe++) {
        const char *more = is_moe ? moe : "";
        enum mw_step_unit wide = mw_unit_of(is_moe, false, false);
        enum mw_step_unit narrow = mw_unit_of(is_moe, true, false);

        l.ep = is_moe ? 4 : 1;
        snprintf(text[0], sizeof text[0],
                 ", attention_window: 256, global_every: 3%s", more);
        snprintf(text[1], sizeof text[1], ", attention_window: 256%s", more);
        snprintf(text[2], sizeof text[2], "%s", more);
        open_world(&mixed, text[0], "");
        open_world(&local, text[1], "");
        open_world(&full, text[2], "");
        struct mw_step_price a = step_priced(&mixed, &l);
        struct mw_step_price b = step_priced(&local, &l);
        struct mw_step_price c = step_priced(&full, &l);

        assert_memory_equal(&a.cost[narrow], &b.cost[wide],
                            sizeof a.cost[narrow]);
        assert_memory_equal(&a.cost[wide], &c.cost[wide], sizeof a.cost[wide]);
        assert_true(a.cost[narrow].phase[MW_PHASE_F].s[MW_LANE_COMPUTE] <
                    a.cost[wide].phase[MW_PHASE_F].s[MW_LANE_COMPUTE]);
        assert_true(a.cost[narrow].phase[MW_PHASE_R].s[MW_LANE_COMPUTE] <
                    a.cost[wide].phase[MW_PHASE_R].s[MW_LANE_COMPUTE]);
        /* A window changes no tensor. */
        assert_true(a.size[narrow].dense_params == c.size[wide].dense_params &&
                    a.size[narrow].activation_bytes ==
                        c.size[wide].activation_bytes);
        step_world_close(&mixed);
        step_world_close(&local);
        step_world_close(&full);
    }
}

/* A window as long as the sequence is none, to the bit; a shorter one is the
 * faster the more layers have it. */
static void test_order(void **state)
{
    struct mw_layout l;

    (void)state;
    mw_layout_default(&l);
    l.pp = 2;
    l.dp = 8;
    double none = step_s("", &l);
    double half = step_s(", attention_window: 128, global_every: 2", &l);
    double most = step_s(", attention_window: 128, global_every: 6", &l);
    double all = step_s(", attention_window: 128", &l);

    assert_true(step_s(", attention_window: 2048, global_every: 2", &l) ==
                none);
    assert_true(step_s(", attention_window: 4096", &l) == none);
    assert_true(none > half && half > most && most > all);
    /* Two stages of 6 layers each have as many of either: the gain is of the
     * number of layers that have one, of 12. */
    mw_assert_near((none - half) / (none - all), 6.0 / 12, 0, 0.01);
    mw_assert_near((none - most) / (none - all), 10.0 / 12, 0, 0.01);
}

static void test_forms(void **state)
{
    static const char *const models[] = {
        ", attention_window: 128, global_every: 2",
        ", attention_window: 512, global_every: 3, window_form: chunked, "
        "attention_sinks: true, moe: {experts: 8, top_k: 2, ffn: 2048, every: "
        "2, bias: true}"};

    (void)state;
    for (int i = 0; i < 2; i++) {
        struct step_world w;
        struct mw_layout l;

        open_world(&w, models[i], "");
        for (int k = 0; k < 6; k++) {
            mw_layout_default(&l);
            l.tp = 2;
            l.sp = true;
            l.pp = k % 3 == 0 ? 4 : 2;
            l.cp = k % 3 == 1 ? 2 : 1;
            l.dp = 16 / (l.tp * l.pp * l.cp);
            l.cp_form = k > 3 ? MW_CP_A2A : MW_CP_GATHER;
            l.ep = w.s.model.moe.n_experts > 0 ? 2 : 1;
            l.recompute = (enum mw_recompute)(k % 3);
            l.recompute_layers = l.recompute == MW_RECOMPUTE_FULL;
            l.zero = k % 2;
            step_forms_agree(&w, &l);
        }
        step_world_close(&w);
    }
}

/* FSDP's units of two layers over a period of three are no two alike. */
static void test_wrapped(void **state)
{
    struct step_world w;
    struct mw_layout l;

    (void)state;
    open_world(&w, ", attention_window: 128, global_every: 3", "");
    mw_layout_default(&l);
    l.dp = 16;
    l.zero = 3;
    l.fsdp_unit = 2;
    l.fsdp_prefetch = 1;
    step_forms_agree(&w, &l);
    struct mw_step_price p = step_priced(&w, &l);
    struct mw_vstage v = {.first = 0};
    int n[MW_UNIT_COUNT];

    assert_false(mw_fsdp_is_alike(&p));
    mw_vstage_count(&p, 0, 1, 0, LAYERS, v.n_units);
    assert_int_equal(mw_fsdp_units(&p, &v), 2 + LAYERS / 2);
    for (int i = 0; i < LAYERS / 2; i++) {
        mw_fsdp_unit(&p, &v, 1 + i, n);
        assert_int_equal(n[MW_UNIT_DENSE_LOCAL], i % 3 == 0 ? 2 : 1);
        assert_int_equal(n[MW_UNIT_DENSE], i % 3 == 0 ? 0 : 1);
    }
    step_world_close(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_counts),  cmocka_unit_test(test_units),
        cmocka_unit_test(test_order),   cmocka_unit_test(test_forms),
        cmocka_unit_test(test_wrapped),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
