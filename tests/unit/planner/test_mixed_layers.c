/*
 * Mixed systems where layers are not alike, against brute force over system,
 * tp, recomputation, offload and layers of three stages of small models. Times
 * come from models whose layers are all of one kind, memory from whole
 * pipelines, so that neither is what the columns were made of.
 */
#include "planner_world.h"

#include "planner/layer_places.h"
#include "planner/mixed.h"
#include "sim/step/fast.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { N_LAYERS = 8, P = 3, M = 8, SPLITS = 21, WAYS = 24 };

struct way {
    int kind, gpus;
    double time_s[SPLITS][P]; /* of each split's stages; HUGE_VAL: too full */
    double after_s[SPLITS][P];
};
struct bench {
    struct world w;
    struct way way[2 * WAYS];
    size_t n_ways;
    double change_s;
};

static int list_splits(int out[SPLITS][P])
{
    int n = 0;

    for (int a = 1; a <= N_LAYERS - 2; a++) {
        for (int b = 1; a + b < N_LAYERS; b++) {
            out[n][0] = a;
            out[n][1] = b;
            out[n++][2] = N_LAYERS - a - b;
        }
    }
    return n;
}

/* What the layers of a stage take: [0] dense, [1] MoE, [2] with a window. */
struct prices {
    double layer_s[3], embedding_s, head_s;
};

static struct prices price(struct world *w, const struct mw_cost_ctx *ctx,
                           const struct mw_layout *l)
{
    struct mw_model *model = &w->scenario.model, whole = *model;
    struct prices out = {{0}, 0, 0};

    for (int is_moe = 0; is_moe <= (whole.moe.n_experts > 0); is_moe++) {
        struct mw_fast_units u;

        model->moe.first_dense = is_moe ? 0 : whole.n_layers;
        model->moe.every = 1;
        struct mw_fast *f = mw_fast_new(&w->scenario, ctx);

        mw_fast_units_of(f, l, &u);
        out.layer_s[is_moe] = u.layer_s;
        out.layer_s[2] = u.local_s;
        out.embedding_s = u.embedding_s;
        out.head_s = u.head_s;
        mw_fast_free(f);
    }
    *model = whole;
    return out;
}

static double stage_s(const struct world *w, const struct prices *p, int stage,
                      int first, int n)
{
    const struct mw_model *model = &w->scenario.model;
    double sum =
        (stage == 0 ? p->embedding_s : 0) + (stage == P - 1 ? p->head_s : 0);

    for (int i = first; i < first + n; i++) {
        bool is_moe = mw_model_layer_is_moe(model, i);

        sum += p->layer_s[mw_model_layer_is_local(model, i) ? 2 : is_moe];
    }
    return sum;
}

/* Of the stages of a split, what their updates on the host add. */
static void after_of(struct mw_fast *f, const struct mw_layout *l,
                     const int *split, double out[P])
{
    for (int i = 0, first = 0; i < P; i++) {
        struct mw_fast_stretch stretch[N_LAYERS];

        assert_int_equal(
            mw_fast_stretches(f, l, i, first, split[i], stretch, NULL), MW_OK);
        out[i] = stretch[split[i] - 1].offload_s;
        first += split[i];
    }
}

static void price_way(struct world *w, struct mw_fast *f,
                      const struct mw_cost_ctx *ctx, const struct mw_layout *l,
                      struct way *way)
{
    struct prices p = price(w, ctx, l);
    double bytes[P], usable = mw_step_usable_bytes(&w->scenario, ctx);
    int split[SPLITS][P], n = list_splits(split);

    for (int s = 0; s < n; s++) {
        int first = 0;

        assert_int_equal(mw_fast_stage_bytes(f, l, split[s], bytes, NULL),
                         MW_OK);
        after_of(f, l, split[s], way->after_s[s]);
        for (int i = 0; i < P; i++) {
            way->time_s[s][i] = bytes[i] <= usable
                                    ? stage_s(w, &p, i, first, split[s][i])
                                    : HUGE_VAL;
            first += split[s][i];
        }
    }
}

static void price_system(struct bench *b, const char *system, int kind,
                         int offloads)
{
    struct mw_cost_ctx ctx;
    struct world *w = &b->w;

    assert_int_equal(mw_cost_ctx_init(&ctx, w->db, system, 1, 0, NULL), MW_OK);
    struct mw_fast *f = mw_fast_new(&w->scenario, &ctx);

    for (int tp = 1; tp <= 8; tp *= 2) {
        for (int r = 0; r < 3 * (1 + offloads); r++) {
            struct way *way = &b->way[b->n_ways++];
            struct mw_layout l;

            mw_layout_default(&l);
            l.tp = tp;
            l.sp = tp > 1;
            l.pp = P;
            l.recompute = (enum mw_recompute)(r % 3);
            l.offload_optimizer = r / 3;
            way->kind = kind;
            way->gpus = tp;
            price_way(w, f, &ctx, &l, way);
        }
    }
    mw_fast_free(f);
    struct mw_layout plain;

    mw_layout_default(&plain);
    struct mw_work work = {.model = &w->scenario.model,
                           .layout = &plain,
                           .seq = w->scenario.workload.seq,
                           .dtype = w->scenario.workload.dtype,
                           .is_flash = w->scenario.workload.is_flash};
    struct mw_cost cost = mw_cost_p2p(&ctx, mw_boundary_bytes(&work), true,
                                      ctx.gpus_per_node, NULL);

    b->change_s = fmax(b->change_s, cost.time_s);
}

static double best_split(const struct bench *b, const struct way *const way[P])
{
    double best = HUGE_VAL, extra = 0;
    int used[2] = {0, 0};

    for (int i = 0; i < P; i++) {
        used[way[i]->kind] += way[i]->gpus;
        extra +=
            i > 0 && way[i]->kind != way[i - 1]->kind ? 2 * b->change_s : 0;
    }
    if (used[0] > 8 || used[1] > 8) {
        return HUGE_VAL;
    }
    for (int s = 0; s < SPLITS; s++) {
        double slowest = 0, sum = 0, after = 0;

        for (int i = 0; i < P; i++) {
            after = fmax(after, way[i]->after_s[s][i]);
            slowest = fmax(slowest, way[i]->time_s[s][i]);
            sum += way[i]->time_s[s][i];
        }
        best = fmin(best, (M - 1) * slowest + sum + after + extra);
    }
    return best;
}

static double brute(const struct bench *b)
{
    double best = HUGE_VAL;
    size_t n = b->n_ways;

    for (size_t i = 0; i < n * n * n; i++) {
        const struct way *const way[P] = {&b->way[i % n], &b->way[i / n % n],
                                          &b->way[i / n / n]};

        best = fmin(best, best_split(b, way));
    }
    return best;
}

/* Returns the layers of the first stage, 0 where nothing fits. */
static int check(struct bench *b, const char *model, const char *memory,
                 bool offloads, int *out_offloaded)
{
    struct mw_mixed_system systems[] = {{"dgx-a100", 1}, {"dgx-h100", 1}};
    struct mw_mixed *m = mw_calloc(1, sizeof *m);
    struct mw_search_opts opts;
    char text[512];

    snprintf(text, sizeof text,
             "format: 1\nmodel: {%s, layers: %d}\n"
             "cluster: {system: dgx-a100, nodes: 1}\n"
             "workload: {seq: 4096, global_batch: %d}\n"
             "limits: {memory: %s, offload_optimizer: [0%s]}\n",
             model, N_LAYERS, M, memory, offloads ? ", 1" : "");
    if (b->w.db == NULL) {
        parse_world(&b->w, text);
    } else {
        reparse_world(&b->w, text);
    }
    b->n_ways = 0;
    b->change_s = 0;
    mw_search_opts_default(&opts);
    opts.pp = P;
    opts.dp = opts.ep = opts.micro_batch = 1;
    price_system(b, "dgx-a100", 0, offloads);
    price_system(b, "dgx-h100", 1, offloads);
    enum mw_status status = mw_mixed_find(&b->w.scenario, b->w.db, "plain",
                                          systems, 2, &opts, NULL, m, NULL);
    double best = brute(b);
    int layers = status == MW_OK ? m->stage[0].n_layers : 0;

    assert_int_equal(status, isinf(best) ? MW_ENO : MW_OK);
    if (status == MW_OK) {
        assert_true(m->is_proved);
        mw_assert_near(m->answer.value_s, best, 1e-9, 0);
    }
    for (int i = 0; out_offloaded != NULL && i < m->pp; i++) {
        *out_offloaded += m->stage[i].offload_optimizer > 0;
    }
    mw_free(m);
    return layers;
}

static void test_equals_brute_force(void **state)
{
    (void)state;
    struct bench *b = mw_calloc(1, sizeof *b);
    static const struct {
        const char *model, *memory; /* that some ways need less than */
    } cases[] = {
        {"preset: mixtral-8x7b, ffn: 4096, moe: {first_dense: 3}", "60GiB"},
        {"preset: mixtral-8x7b, moe: {every: 2}", "60GiB"},
        {"preset: mixtral-8x7b, moe: {every: 3, first_dense: 2}", "34GiB"},
        {"preset: llama3-8b, attention_window: 256, global_every: 2", "14GiB"},
        {"preset: llama3-8b, attention_window: 64, global_every: 3", "9GiB"}};

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        assert_true(check(b, cases[i].model, cases[i].memory, false, NULL) > 0);
    }
    assert_true(check(b, cases[0].model, "80GiB", false, NULL) > 0);
    assert_int_equal(check(b, cases[0].model, "1GiB", false, NULL), 0);
    close_world(&b->w);
    mw_free(b);
}

/* The optimizer on the host, for some stages: where nothing else fits. */
static void test_offload(void **state)
{
    (void)state;
    struct bench *b = mw_calloc(1, sizeof *b);
    static const char *const llama = "preset: llama3-8b, attention_window: 256,"
                                     " global_every: 2";
    int none = 0, some = 0;

    assert_true(check(b, llama, "7GiB", true, &none) > 0);
    assert_int_equal(none, 0);
    assert_int_equal(check(b, llama, "5GiB", false, NULL), 0);
    assert_true(check(b, llama, "5GiB", true, &some) > 0);
    assert_int_equal(some, 2);
    close_world(&b->w);
    mw_free(b);
}

/* What a stage alone adds is what its whole step takes longer at the end. */
static void test_host_part(void **state)
{
    (void)state;
    struct world w;
    struct mw_layout l;
    struct mw_fast_bound bound[2];
    struct mw_fast_stretch stretch[2][N_LAYERS];

    parse_world(&w, "format: 1\nmodel: {preset: llama3-8b, layers: 8}\n"
                    "cluster: {system: dgx-a100, nodes: 1}\n"
                    "workload: {seq: 4096, global_batch: 8}\n");
    struct mw_fast *f = mw_fast_new(&w.scenario, &w.ctx);

    mw_layout_default(&l);
    for (int i = 0; i < 2; i++) {
        l.offload_optimizer = i;
        assert_int_equal(mw_fast_bound(f, &l, NULL, &bound[i], NULL), MW_OK);
        assert_int_equal(
            mw_fast_stretches(f, &l, 0, 0, N_LAYERS, stretch[i], NULL), MW_OK);
    }
    const struct mw_fast_stretch *all = &stretch[1][N_LAYERS - 1];

    mw_assert_near(bound[1].tail_s - bound[0].tail_s, all->offload_s, 1e-9, 0);
    assert_true(all->offload_s > stretch[1][0].offload_s);
    assert_true(stretch[1][0].offload_s > 0);
    assert_true(all->host_bytes > 0);
    assert_true(stretch[0][N_LAYERS - 1].offload_s <= 0);
    mw_fast_free(f);
    close_world(&w);
}

/* The states of this model are more than a node of 512 GB holds, not than four:
 * that is said. */
static void test_host_memory(void **state)
{
    (void)state;
    struct mw_mixed_system systems[] = {{"jean-zay-a100", 1}};
    struct mw_mixed *m = mw_calloc(1, sizeof *m);
    struct mw_search_opts opts;
    struct mw_err err = {0};
    struct world w;

    parse_world(&w, "format: 1\nmodel: {preset: llama3-70b}\n"
                    "cluster: {system: jean-zay-a100, nodes: 1}\n"
                    "workload: {seq: 4096, global_batch: 8}\n"
                    "limits: {offload_optimizer: [1]}\n");
    mw_search_opts_default(&opts);
    assert_int_equal(mw_mixed_find(&w.scenario, w.db, "plain", systems, 1,
                                   &opts, NULL, m, &err),
                     MW_ENO);
    assert_non_null(strstr(err.text, "host_memory"));
    systems[0].n_nodes = 4;
    assert_int_equal(mw_mixed_find(&w.scenario, w.db, "plain", systems, 1,
                                   &opts, NULL, m, &err),
                     MW_OK);
    close_world(&w);
    mw_free(m);
}

/* ---- places ----------------------------------------------------------------
 */
static int kind_of(const struct mw_model *model, int layer)
{
    return 2 * mw_model_layer_is_moe(model, layer) +
           mw_model_layer_is_local(model, layer);
}

/* Layers at one place have the same kinds after them, those at others not. */
static void check_places(const struct mw_model *model, int64_t span, int prefix,
                         int period)
{
    struct mw_layer_places p = mw_layer_places_of(model, span);
    int n = model->n_layers;

    assert_int_equal(p.prefix, prefix);
    assert_int_equal(p.period, period);
    for (int a = 0; a < n; a++) {
        for (int b = a + 1; b < n; b++) {
            bool is_same = true;

            for (int i = 0; b + i < n; i++) {
                is_same =
                    is_same && kind_of(model, a + i) == kind_of(model, b + i);
            }
            assert_true(is_same ||
                        mw_layer_place(&p, a) != mw_layer_place(&p, b));
        }
    }
}

static void test_places(void **state)
{
    (void)state;
    struct mw_model m;
    struct mw_err err = {0};

    assert_int_equal(mw_model_preset("deepseek-v3", &m, &err), MW_OK);
    check_places(&m, 4096, 3, 1);
    assert_int_equal(mw_model_preset("mixtral-8x7b", &m, &err), MW_OK);
    check_places(&m, 4096, 0, 1);
    assert_int_equal(mw_model_preset("gpt-oss-20b", &m, &err), MW_OK);
    check_places(&m, 4096, 0, 2);
    assert_int_equal(mw_model_preset("llama4-maverick", &m, &err), MW_OK);
    check_places(&m, 16384, 0, 4);
    m.window.tokens = 0;
    check_places(&m, 16384, 0, 2);
    m.moe.first_dense = 5; /* the last of these is dense in any case */
    check_places(&m, 16384, 4, 2);
    m.moe.every = 0;
    check_places(&m, 16384, 5, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_equals_brute_force),
        cmocka_unit_test(test_offload),
        cmocka_unit_test(test_host_part),
        cmocka_unit_test(test_host_memory),
        cmocka_unit_test(test_places),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
