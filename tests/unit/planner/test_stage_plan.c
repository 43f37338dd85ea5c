/*
 * Recomputation by stage as a plan: against all layers, kinds and counts of
 * small pipelines under the simulator's own time and memory; what frameworks
 * run of it.
 */
#include "mw_test.h"
#include "planner_world.h"

#include "base/rand.h"
#include "planner/stage_options.h"
#include "sim/step/fast.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { STAGES = 3 };

/* ---- brute force -----------------------------------------------------------
 */
struct brute {
    struct mw_fast *fast;
    struct mw_layout layout;
    double limit_bytes, best_s;
    int n;
    int layers[STAGES];
    int64_t counts[STAGES];
};

/* Every count of stages from k on, then its price. */
static void count(struct brute *b, int k)
{
    double time_s, bytes;

    for (int c = 0; k < b->n && c <= b->layers[k]; c++) {
        b->counts[k] = c;
        count(b, k + 1);
    }
    if (k == b->n &&
        mw_fast_estimate(b->fast, &b->layout, b->layers, &time_s, &bytes,
                         NULL) == MW_OK &&
        bytes <= b->limit_bytes) {
        b->best_s = fmin(b->best_s, time_s);
    }
}

/* Every way to cut `left` layers into stages from k on. */
static void cut(struct brute *b, int k, int left)
{
    int last = b->n - 1;

    for (int n = k == last ? left : 1; n <= left - (last - k); n++) {
        b->layers[k] = n;
        if (k < last) {
            cut(b, k + 1, left - n);
        } else {
            count(b, 0);
        }
    }
}

static double best_of_all(const struct world *w, const struct mw_layout *from,
                          double limit_bytes)
{
    struct brute b = {.fast = mw_fast_new(&w->scenario, &w->ctx),
                      .layout = *from,
                      .limit_bytes = limit_bytes,
                      .best_s = HUGE_VAL,
                      .n = from->pp};

    b.layout.stage_recompute_layers =
        (struct mw_int_list){b.counts, (size_t)b.n};
    for (int kind = MW_RECOMPUTE_SELECTIVE; kind <= MW_RECOMPUTE_FULL; kind++) {
        b.layout.recompute = (enum mw_recompute)kind;
        cut(&b, 0, w->scenario.model.n_layers);
    }
    mw_fast_free(b.fast);
    return b.best_s;
}

/* ---- cases -----------------------------------------------------------------
 */
static void scenario(char *text, size_t room, uint64_t i, const char *limits)
{
    int pp = 2 + (int)(mw_rand_u64(41, 1, i) % 2);

    snprintf(text, room,
             "format: 1\nname: t\nmodel: {hidden: 2048, layers: %d, heads: 16, "
             "ffn: 8192, vocab: 32000}\n"
             "cluster: {system: dgx-a100, nodes: 1, gpus_per_node: %d}\n"
             "workload: {seq: 2048, global_batch: %d, attention: unfused}\n"
             "limits: {memory: %.3f GiB, memory_fraction: 1%s}\n",
             pp + 2 + (int)(mw_rand_u64(41, 2, i) % 4), pp,
             8 << mw_rand_u64(41, 3, i) % 3,
             4 + 6 * (double)(mw_rand_u64(41, 4, i) % 1000) / 1000, limits);
}

static enum mw_status find(const struct world *w, struct mw_candidate *from,
                           struct mw_stage_options *o)
{
    static int layers[STAGES];

    *from = (struct mw_candidate){.layers = layers};
    mw_layout_default(&from->layout);
    from->layout.pp = w->scenario.cluster.gpus_per_node;
    from->layout.recompute = MW_RECOMPUTE_FULL;
    mw_plan_even_of(&w->scenario.model, &from->layout, layers);
    return mw_stage_options_find(&w->scenario, &w->ctx, from, NULL, o, NULL);
}

/* Nothing is faster than the best of all; the plan is as fast to within what
 * the program's bound leaves out, transfers and what follows the last pass. */
static void test_all_assignments(void **state)
{
    int n_found = 0, n_same = 0, n_counted = 0;
    double worst = 0;

    (void)state;
    for (uint64_t i = 0; i < 40; i++) {
        char text[512];
        struct world w;
        struct mw_candidate from;
        struct mw_stage_options o;

        scenario(text, sizeof text, i, "");
        parse_world(&w, text);
        enum mw_status status = find(&w, &from, &o);
        double best_s = best_of_all(&w, &from.layout, o.limit_bytes);

        if (status == MW_OK && o.plan.is_found) {
            const struct mw_candidate *c = &o.plan.candidate;
            struct mw_fast *fast = mw_fast_new(&w.scenario, &w.ctx);
            double time_s, bytes;

            assert_int_equal(mw_fast_estimate(fast, &c->layout, c->layers,
                                              &time_s, &bytes, NULL),
                             MW_OK);
            mw_fast_free(fast);
            assert_true(c->peak_bytes <= o.limit_bytes);
            assert_true(time_s >= best_s * (1 - 1e-9));
            worst = fmax(worst, time_s / best_s - 1);
            n_same += time_s <= best_s * (1 + 1e-9);
            n_counted += c->layout.stage_recompute_layers.n > 0;
            n_found++;
        } else {
            assert_true(isinf(best_s));
        }
        mw_stage_options_release(&o);
        close_world(&w);
    }
    print_message("%d found, %d by counts; %d the best of all, the worst %.3g "
                  "slower\n",
                  n_found, n_counted, n_same, worst);
    assert_true(n_found >= 20 && n_counted >= 8 && n_same >= n_found * 3 / 4);
    assert_true(worst < 0.02);
}

/* Counts that differ are no plan of a framework that has one for all. */
static void test_frameworks(void **state)
{
    static const char *const names[] = {"any", "megatron-core-0.14",
                                        "meshwright-host"};

    (void)state;
    for (size_t f = 0; f < 3; f++) {
        char text[512], limits[64];
        struct world w;
        struct mw_candidate from;
        struct mw_stage_options o;
        int n_counted = 0, n_refused = 0;

        for (uint64_t i = 0; i < 12; i++) {
            snprintf(limits, sizeof limits, ", framework: %s", names[f]);
            scenario(text, sizeof text, i, limits);
            parse_world(&w, text);
            if (find(&w, &from, &o) == MW_OK) {
                const struct mw_layout *l = &o.plan.candidate.layout;

                n_counted += o.plan.is_found && l->stage_recompute_layers.n > 0;
                n_refused += o.plan.refusal != NULL;
            }
            mw_stage_options_release(&o);
            close_world(&w);
        }
        print_message("%s: %d counted, %d refused\n", names[f], n_counted,
                      n_refused);
        assert_true((n_counted > 0) == (f != 1));
        assert_true((n_refused > 0) == (f == 1));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_all_assignments),
                                       cmocka_unit_test(test_frameworks)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
