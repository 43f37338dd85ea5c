/*
 * Multi-token prediction a virtual stage ahead of the head: head and modules
 * add up to what one stage had, a lone micro-batch takes longer by the second
 * hidden state on its two ways over the last boundary and by nothing else, the
 * ledger sends it, fast and event form agree; even layers, and lists that are
 * refused.
 */
#include "mw_test.h"

#include "sim/coll/coll_library.h"
#include "sim/step/step_int.h"
#include "step_fixture.h"

#include <math.h>

enum { LAYERS = 16 };
/* Bytes of a hidden state of a micro-batch of one sequence: bf16. */
static const double x_bytes = 2.0 * 512 * 1024;

static void begin(struct step_world *w, int batch, int n_mtp)
{
    step_scenario_of(
        &w->s,
        "format: 1\nname: t\n"
        "model: {hidden: 1024, layers: %d, heads: 16, kv_heads: 8, ffn: 4096, "
        "vocab: 32768, max_seq: 512, gated: true, norm: rms, position: rotary, "
        "tied: false, mtp: %d}\n"
        "cluster: {system: dgx-h100, nodes: 1}\n"
        "workload: {seq: 512, global_batch: %d, dtype: bf16}\n",
        LAYERS, n_mtp, batch);
    step_world_price(w);
    mw_coll_library_lend(w->db);
}

static struct mw_layout pipeline(int pp, int vpp, int ahead)
{
    struct mw_layout l;

    mw_layout_default(&l);
    l.pp = pp;
    l.vpp = vpp;
    l.dp = 8 / pp;
    l.schedule = vpp > 1 ? "interleaved-1f1b" : "1f1b";
    l.mtp_ahead = ahead;
    return l;
}

static void price(struct mw_step_price *p, const struct step_world *w,
                  const struct mw_layout *l)
{
    mw_step_price_begin(p, &w->s, l, &w->ctx);
    mw_step_price_units(p, NULL);
}

static void test_units_add_up(void **state)
{
    struct mw_layout with = pipeline(4, 1, 0), apart = pipeline(4, 1, 1);
    struct mw_step_price a, b;
    struct step_world w;

    (void)state;
    begin(&w, 64, 2);
    price(&a, &w, &with);
    price(&b, &w, &apart);
    const struct mw_unit_size *whole = &a.size[MW_UNIT_HEAD],
                              *head = &b.size[MW_UNIT_HEAD],
                              *mtp = &b.size[MW_UNIT_MTP],
                              *layer = &b.size[MW_UNIT_DENSE];

    for (int phase = 0; phase < MW_PHASE_COUNT; phase++) {
        const struct mw_phase_cost *c = &a.cost[MW_UNIT_HEAD].phase[phase];
        const struct mw_phase_cost *d = &b.cost[MW_UNIT_HEAD].phase[phase];
        const struct mw_phase_cost *e = &b.cost[MW_UNIT_MTP].phase[phase];

        mw_assert_near(d->flops + e->flops, c->flops, 1e-12, 0);
        mw_assert_near(d->s[MW_LANE_COMPUTE] + e->s[MW_LANE_COMPUTE],
                       c->s[MW_LANE_COMPUTE], 1e-12, 0);
        mw_assert_near(d->host_s + e->host_s, c->host_s, 1e-12, 0);
    }
    mw_assert_near(head->dense_params + mtp->dense_params, whole->dense_params,
                   0, 0);
    mw_assert_near(head->dense_tensors + mtp->dense_tensors,
                   whole->dense_tensors, 0, 0);
    /* Two projections of 2 h to h and layers, six norms more. */
    mw_assert_near(mtp->dense_params,
                   2 * (layer->dense_params + 2.0 * 1024 * 1024 + 3 * 1024), 0,
                   0);
    mw_assert_near(head->activation_bytes + mtp->activation_bytes,
                   whole->activation_bytes, 0, 1);
    assert_true(a.cost[MW_UNIT_MTP].phase[MW_PHASE_F].flops <= 0);
    step_world_close(&w);
}

/* FLOPs of a phase of a unit, of a step priced under a recomputation. */
static double flops(const struct step_world *w, const struct mw_layout *l,
                    enum mw_step_unit unit, enum mw_phase phase)
{
    struct mw_step_price p;

    price(&p, w, l);
    return p.cost[unit].phase[phase].flops;
}

/* Full recomputation runs a module again from its norms to its head's: the
 * layer, the product of 2 h to h, norms (no FLOPs). Of some layers alone it
 * passes modules by, selective recomputation is the layer's. */
static void test_runs_again(void **state)
{
    static const enum mw_recompute kinds[] = {
        MW_RECOMPUTE_NONE, MW_RECOMPUTE_SELECTIVE, MW_RECOMPUTE_FULL,
        MW_RECOMPUTE_FULL};
    static const enum mw_step_unit units[] = {MW_UNIT_HEAD, MW_UNIT_MTP};
    struct step_world w;

    (void)state;
    begin(&w, 64, 2);
    for (int i = 0; i < 8; i++) {
        struct mw_layout l = pipeline(4, 1, i % 2);
        double layer, module = 2.0 * 512 * 1024 * 2 * 1024;

        l.recompute = kinds[i / 2];
        l.recompute_layers = i / 2 == 3;
        layer = flops(&w, &l, MW_UNIT_DENSE, MW_PHASE_R);
        assert_true(i / 2 == 0 ? layer <= 0 : layer > 0);
        mw_assert_near(flops(&w, &l, units[i % 2], MW_PHASE_R),
                       i / 2 == 3   ? 0
                       : i / 2 == 2 ? 2 * (layer + module)
                                    : 2 * layer,
                       1e-12, 0);
        assert_true(flops(&w, &l, units[1 - i % 2], MW_PHASE_R) <= 0);
    }
    step_world_close(&w);
}

static double kept(const struct step_world *w, const struct mw_layout *l,
                   enum mw_step_unit unit)
{
    struct mw_step_price p;

    price(&p, w, l);
    return p.size[unit].activation_bytes;
}

/* Kept of two modules a stage ahead: four inputs of products and norms each and
 * what a layer keeps; recomputed, the states that come in and the heads' own
 * without their norms' inputs. */
static void test_keeps(void **state)
{
    struct mw_layout l = pipeline(4, 1, 1);
    struct step_world w;

    (void)state;
    begin(&w, 64, 2);
    assert_int_equal(mw_cost_ctx_set_stack(&w.ctx, "plain", NULL), MW_OK);
    double layer = kept(&w, &l, MW_UNIT_DENSE);
    double head = kept(&w, &l, MW_UNIT_HEAD);

    mw_assert_near(kept(&w, &l, MW_UNIT_MTP), 2 * (layer + 4 * x_bytes), 0, 0);
    l.recompute = MW_RECOMPUTE_FULL;
    mw_assert_near(kept(&w, &l, MW_UNIT_MTP), 2 * 2 * x_bytes, 0, 0);
    mw_assert_near(head - kept(&w, &l, MW_UNIT_HEAD), 2 * x_bytes, 0, 0);
    l.recompute_layers = 1;
    mw_assert_near(kept(&w, &l, MW_UNIT_MTP), 2 * (layer + 4 * x_bytes), 0, 0);
    mw_assert_near(kept(&w, &l, MW_UNIT_HEAD), head, 0, 0);
    l.recompute_layers = 0;
    l.recompute = MW_RECOMPUTE_SELECTIVE;
    mw_assert_near(kept(&w, &l, MW_UNIT_MTP),
                   2 * (kept(&w, &l, MW_UNIT_DENSE) + 4 * x_bytes), 0, 0);
    step_world_close(&w);
}

/* A module's own moment: its layer's, for which it is whole again, or that of
 * the look-up's gradient when all that it keeps is gone. */
static void test_moment(void **state)
{
    struct mw_layout l = pipeline(4, 1, 1);
    struct mw_step_price p;
    struct step_world w;

    (void)state;
    begin(&w, 64, 2);
    assert_int_equal(mw_cost_ctx_set_stack(&w.ctx, "plain", NULL), MW_OK);
    price(&p, &w, &l);
    double look_up = w.ctx.stack.memory.embed_grad_bytes * 32768 * 1024 -
                     p.size[MW_UNIT_MTP].activation_bytes;

    assert_true(look_up > p.size[MW_UNIT_DENSE].transient_bytes);
    mw_assert_near(p.size[MW_UNIT_MTP].transient_bytes, look_up, 0, 0);
    assert_string_equal(p.size[MW_UNIT_MTP].transient_at, "embedding");
    w.ctx.stack.memory.embed_grad_bytes = 0;
    price(&p, &w, &l);
    mw_assert_near(p.size[MW_UNIT_MTP].transient_bytes,
                   p.size[MW_UNIT_DENSE].transient_bytes, 0, 0);
    l.recompute = MW_RECOMPUTE_FULL;
    price(&p, &w, &l);
    /* The layer's input and its head's norm's, and the product's. */
    mw_assert_near(p.size[MW_UNIT_MTP].transient_bytes,
                   p.size[MW_UNIT_DENSE].transient_bytes + 4 * x_bytes, 0, 0);
    double apart = p.size[MW_UNIT_MTP].transient_bytes,
           heads = p.size[MW_UNIT_HEAD].activation_bytes;

    assert_null(p.size[MW_UNIT_HEAD].module_at);
    l.mtp_ahead = 0;
    price(&p, &w, &l);
    mw_assert_near(p.size[MW_UNIT_HEAD].module_bytes, apart - heads, 0, 0);
    step_world_close(&w);
}

static double step_s(const struct step_world *w, const struct mw_layout *l,
                     const int *layers)
{
    struct mw_step_opts opts = {.no_breakdown = true, .no_sharing = true};
    struct mw_step_result r;
    struct mw_plan plan;
    struct mw_err err = {0};

    if (mw_plan_make(&w->s, l, layers, &plan, &err) != MW_OK) {
        fail_msg("%s", err.text);
    }
    assert_int_equal(mw_step_simulate(&w->s, &plan, &w->ctx, &opts, &r, NULL),
                     MW_OK);
    double step_time_s = r.step_time_s;

    mw_step_result_release(&r);
    mw_plan_release(&plan);
    return step_time_s;
}

/* One micro-batch goes through all units one after the other, wherever they
 * lie; the first stage ends last, has most to update and does not change. */
static void test_lone_micro_batch(void **state)
{
    static const int layers[4] = {12, 2, 2, 0};
    struct mw_step_price p;
    struct step_world w;

    (void)state;
    for (int n_mtp = 1; n_mtp <= 3; n_mtp++) {
        struct mw_layout with = pipeline(4, 1, 0), apart = pipeline(4, 1, 1);

        begin(&w, 2, n_mtp);
        assert_int_equal(mw_cost_ctx_set_stack(&w.ctx, "plain", NULL), MW_OK);
        price(&p, &w, &apart);
        assert_int_equal(mw_step_states(&p, 1), 1);
        assert_int_equal(mw_step_states(&p, 2), 1 + n_mtp);
        double narrow_s = mw_time_to_s(mw_step_transfer_ps(&p, 2, 3, 1));
        double wide_s = mw_time_to_s(mw_step_transfer_ps(&p, 2, 3, 1 + n_mtp));

        assert_true(wide_s > narrow_s);
        mw_assert_near(step_s(&w, &apart, layers) - step_s(&w, &with, layers),
                       2 * (wide_s - narrow_s), 0, 1e-10);
        step_world_close(&w);
    }
}

/* ---- copies of the embedding ----------------------------------------------
 */
/* Who holds the matrix of the embedding, of four devices: a digit each, none
 * where one device has all that need it; and copies beside the model's own. */
struct holders {
    const char *schedule;
    int vpp, ahead;
    bool is_tied;
    const char *devices;
    int n_copies;
};

static const struct holders holders[] = {
    {"1f1b", 1, 0, false, "03", 1},
    {"1f1b", 1, 0, true, "03", 1},
    {"1f1b", 1, 1, false, "02", 1},
    {"1f1b", 1, 1, true, "023", 2},
    {"interleaved-1f1b", 2, 1, false, "02", 1},
    {"interleaved-1f1b", 2, 0, false, "03", 1},
    {"zb-v", 2, 0, false, "", 0},
    {"zb-v", 2, 1, false, "01", 1},
    {"dualpipe", 1, 0, false, "", 0},
    {"dualpipe", 1, 0, true, "", 0},
    {"dualpipe", 1, 1, false, "0123", 2},
};

static double all_params(const struct mw_model *m)
{
    struct mw_params params = {NULL, 0, 0};
    double sum = 0;

    mw_model_params(m, &params);
    for (size_t i = 0; i < params.n; i++) {
        sum += (double)mw_param_count(&params.v[i]);
    }
    mw_array_release(&params);
    return sum;
}

/* Gradients of 4 bytes, in a ring over the holders. */
static void expect_reduced(const struct step_world *w,
                           const struct mw_layout *l, const char *devices)
{
    const double bytes = 4.0 * 32768 * 1024, n = (double)strlen(devices);
    struct mw_plan plan;

    step_plan(&plan, &w->s, l);
    for (int d = 0; d < 4; d++) {
        struct mw_ledger ledger = {NULL, 0, 0};
        struct mw_ledger_row row;
        bool holds = strchr(devices, '0' + d) != NULL;

        mw_step_ledger(&w->s, &plan, &w->ctx, d, &ledger);
        row = mw_ledger_sum(&ledger, MW_DIM_PP, MW_ALL_REDUCE);
        mw_assert_near(row.message_bytes, holds ? bytes : 0, 0, 0);
        mw_assert_near(row.wire_bytes, holds ? 2 * (n - 1) / n * bytes : 0,
                       1e-12, 0);
        mw_array_release(&ledger);
    }
    mw_plan_release(&plan);
}

/* Weights of all devices are the model's, on two routes twice, and the copies;
 * each copy learns. */
static void test_copies(void **state)
{
    for (size_t i = 0; i < sizeof holders / sizeof holders[0]; i++) {
        const struct holders *h = &holders[i];
        struct mw_layout l = pipeline(4, h->vpp, h->ahead);
        int routes = strcmp(h->schedule, "dualpipe") == 0 ? 2 : 1;
        struct step_world w;
        struct mw_step_result r;
        double weights = 0, grads = 0;

        (void)state;
        l.schedule = h->schedule;
        begin(&w, 64, 1);
        w.s.model.tied = h->is_tied;
        assert_int_equal(mw_cost_ctx_set_stack(&w.ctx, "plain", NULL), MW_OK);
        step_simulate(&r, &w.s, &l, &w.ctx, NULL);
        for (int d = 0; d < 4; d++) {
            weights += r.memory[d].weight_bytes;
            grads += r.memory[d].grad_bytes;
        }
        double n =
            routes * all_params(&w.s.model) + h->n_copies * 32768.0 * 1024;

        mw_assert_near(weights, 2 * n, 0, 0);
        mw_assert_near(grads, 4 * n, 0, 0);
        mw_step_result_release(&r);
        expect_reduced(&w, &l, h->devices);
        step_forms_agree(&w, &l);
        step_world_close(&w);
    }
}

/* Without modules an untied model has no copies, and a tied one has as many as
 * with the modules at its head. */
static void test_no_modules(void **state)
{
    struct mw_layout l = pipeline(4, 1, 0);
    struct step_world w;

    (void)state;
    begin(&w, 64, 0);
    expect_reduced(&w, &l, "");
    w.s.model.tied = true;
    expect_reduced(&w, &l, "03");
    step_world_close(&w);
}

/* From ZeRO-2 on a copy is sharded with the unit that looks up. */
static void test_copy_is_sharded(void **state)
{
    struct step_world w;
    struct mw_step_price p;

    (void)state;
    begin(&w, 64, 1);
    for (int ahead = 0; ahead < 2; ahead++) {
        struct mw_layout l = pipeline(4, 1, ahead);

        for (l.zero = 1; l.zero <= 3; l.zero++) {
            price(&p, &w, &l);
            double copy = l.zero >= 2 ? 32768.0 * 1024 : 0;

            mw_assert_near(mw_step_copy_params(&p, MW_UNIT_HEAD),
                           ahead == 0 ? copy : 0, 0, 0);
            mw_assert_near(mw_step_copy_params(&p, MW_UNIT_MTP),
                           ahead == 1 ? copy : 0, 0, 0);
            mw_assert_near(mw_step_tied_grads(&p),
                           32768.0 * 1024 / (l.zero >= 2 ? l.dp : 1), 0, 0);
            step_forms_agree(&w, &l);
        }
    }
    step_world_close(&w);
}

/* 32 micro-batches of 2 replicas: the stage with the modules sends two states
 * up and one gradient down, the head two gradients down. */
static void test_ledger(void **state)
{
    struct mw_layout l = pipeline(4, 1, 1);
    struct step_world w;
    struct mw_plan plan;

    (void)state;
    begin(&w, 64, 1);
    step_plan(&plan, &w.s, &l);
    const double states[4] = {1, 2, 3, 2};

    for (int d = 0; d < 4; d++) {
        struct mw_ledger ledger = {NULL, 0, 0};

        mw_step_ledger(&w.s, &plan, &w.ctx, d, &ledger);
        mw_assert_near(
            mw_ledger_sum(&ledger, MW_DIM_PP, MW_SEND_RECV).message_bytes,
            32 * states[d] * x_bytes, 1e-12, 0);
        mw_array_release(&ledger);
    }
    mw_plan_release(&plan);
    step_world_close(&w);
}

/* Layers moved off the head's stage: it computes less, so the step is shorter
 * when the head is what everyone waits for. */
static void test_forms_agree(void **state)
{
    static const int ways[][2] = {{4, 1}, {8, 1}, {4, 2}, {4, 4}, {2, 4}};
    struct step_world w;

    (void)state;
    begin(&w, 64, 1);
    for (size_t i = 0; i < sizeof ways / sizeof ways[0]; i++) {
        struct mw_layout l = pipeline(ways[i][0], ways[i][1], 1);

        for (int k = 0; k < 3; k++) {
            l.recompute = (enum mw_recompute)k;
            step_forms_agree(&w, &l);
        }
    }
    step_world_close(&w);
}

static void expect_even(int n_layers, int n_mtp, int pp, int vpp,
                        const int *expected)
{
    struct mw_model m = {.n_layers = n_layers, .n_mtp = n_mtp};
    struct mw_layout l = pipeline(8, vpp, 1);
    int layers[64], sum = 0;

    l.pp = pp;
    mw_plan_even_of(&m, &l, layers);
    for (int k = 0; k < pp * vpp; k++) {
        sum += layers[k];
        assert_int_equal(layers[k], mw_plan_even_share_of(&m, &l, k));
        if (expected != NULL) {
            assert_int_equal(layers[k], expected[k]);
        }
    }
    assert_int_equal(sum, n_layers);
    assert_int_equal(layers[pp * vpp - 1], 0);
}

/* DeepSeek-V3 on 16 x 2 stages: two items everywhere. */
static void test_even_layers(void **state)
{
    static const int alone[] = {1, 1, 1, 0, 0}, ends[] = {0, 1, 1, 0, 0},
                     two[] = {5, 5, 4, 2, 0};
    int deepseek[32];

    (void)state;
    for (int k = 0; k < 32; k++) {
        deepseek[k] = k < 30 ? 2 : k == 30;
    }
    expect_even(61, 1, 16, 2, deepseek);
    expect_even(3, 1, 5, 1, alone);
    expect_even(2, 1, 5, 1, ends);
    expect_even(16, 2, 5, 1, two);
    for (int n = 3; n <= 40; n++) {
        for (int l = n - 3 > 0 ? n - 3 : 1; l < 50; l++) {
            expect_even(l, 1 + l % 3, n, 1, NULL);
        }
    }
}

static void refused(const char *layout, const char *why)
{
    char text[512];
    struct mw_scenario s;
    struct mw_err err = {0};

    snprintf(text, sizeof text,
             "format: 1\nname: t\nmodel: {preset: llama3-8b%s}\n"
             "cluster: {system: dgx-h100, nodes: 1}\n"
             "workload: {seq: 512, global_batch: 64}\n"
             "layout: {%s, schedule: 1f1b}\n",
             strstr(why, "needs a model") ? "" : ", mtp: 1", layout);
    assert_int_equal(mw_scenario_parse("t.yaml", text, strlen(text), &s, &err),
                     MW_EINPUT);
    if (strstr(err.text, why) == NULL) {
        fail_msg("%s", err.text);
    }
}

static void test_refused(void **state)
{
    (void)state;
    refused("pp: 8, mtp_ahead: 1", "needs a model with multi-token prediction");
    refused("pp: 2, dp: 4, mtp_ahead: 1", "three virtual stages or more");
    refused("pp: 4, dp: 2, mtp_ahead: 1, layers: [8, 8, 8, 8]",
            "leaves the last virtual stage to the head");
    refused("pp: 4, dp: 2, mtp_ahead: 1, layers: [16, 0, 16, 0]",
            "virtual stage 1 has nothing to do");
    refused("pp: 8, mtp_ahead: 2", "mtp_ahead");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_units_add_up),
        cmocka_unit_test(test_runs_again),
        cmocka_unit_test(test_keeps),
        cmocka_unit_test(test_moment),
        cmocka_unit_test(test_lone_micro_batch),
        cmocka_unit_test(test_copies),
        cmocka_unit_test(test_no_modules),
        cmocka_unit_test(test_copy_is_sharded),
        cmocka_unit_test(test_ledger),
        cmocka_unit_test(test_forms_agree),
        cmocka_unit_test(test_even_layers),
        cmocka_unit_test(test_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
