/*
 * The search against brute force on 200 random small spaces: simulate every
 * legal layout with its layers; the fastest that fits is what the search must
 * return and prove, with every layout accounted for. Some spaces are empty.
 */
#include "planner_world.h"

#include "base/rand.h"
#include "planner/search_int.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A sample where every access is checked. */
#if defined(__SANITIZE_ADDRESS__)
enum { SPACES = 80 };
#else
enum { SPACES = 200 };
#endif

struct brute {
    struct search s; /* for the weigher */
    struct weigher w;
    double best_s, least_bytes;
    uint64_t n, n_fit;
};

static void try_one(void *arg, const struct mw_layout *layout, uint64_t at)
{
    struct brute *b = arg;
    struct mw_plan plan;
    struct mw_step_opts opts = {.no_breakdown = true};
    struct mw_step_result step;
    struct mw_err err = {0};
    enum mw_status status;
    double peak;

    (void)at;
    b->n++;
    mw_weigh_layers(&b->w, layout, &peak, &status, NULL);
    if (mw_plan_make(b->s.scenario, layout, b->w.layers, &plan, &err) !=
        MW_OK) {
        assert_int_equal(err.status, MW_EUSAGE); /* the schedule's words */
        return;
    }
    assert_int_equal(
        mw_step_simulate(b->s.scenario, &plan, b->s.ctx, &opts, &step, &err),
        MW_OK);
    if (step.fits) {
        b->n_fit++;
        b->best_s = fmin(b->best_s, step.step_time_s);
        b->least_bytes = fmin(b->least_bytes, step.peak_bytes);
    }
    mw_step_result_release(&step);
    mw_plan_release(&plan);
}

static void brute_force(const struct world *w,
                        const struct mw_search_opts *opts, struct brute *b)
{
    struct mw_tally *tally = mw_calloc(1, sizeof *tally);

    *b = (struct brute){
        .s = {.scenario = &w->scenario, .ctx = &w->ctx, .opts = opts},
        .best_s = HUGE_VAL,
        .least_bytes = HUGE_VAL};
    b->s.usable_bytes = mw_step_usable_bytes(&w->scenario, &w->ctx);
    mw_space_init(&b->s.space, &w->scenario, &w->ctx, opts);
    mw_weigher_init(&b->w, &b->s);
    for (size_t i = 0; i < b->s.space.outer.n; i++) {
        mw_space_walk(&b->s.space, i, MW_WALK_ALL, tally, try_one, b);
    }
    assert_int_equal(tally->legal, b->n);
    mw_weigher_release(&b->w);
    mw_space_release(&b->s.space);
    mw_free(tally);
}

static int pick(uint64_t seed, uint64_t stream, int n)
{
    return (int)(mw_rand_u64(seed, stream, 7) % (uint64_t)n);
}

static void random_world(uint64_t seed, struct world *w)
{
    static const char *const frameworks[] = {"any", "any", "megatron-core-0.14",
                                             "torchtitan-0.2",
                                             "megatron-deepspeed"};
    static const int per_node[] = {2, 4, 6, 8};
    char text[1024];

    const char *lists =
        seed % 4 == 3   ? ", dtype: [bf16, fp8], grad_dtype: [fp32, bf16], "
                          "offload_optimizer: [0, 0.5]"
        : seed % 4 == 1 ? ", grad_compression: [onebit, zeropp], "
                          "offload_activations: [0.25, 1]"
        : seed % 4 == 0
            ? ", bucket_size: [0, 5000000, 100000000], "
              "exp_avg_dtype: [bf16, fp32], main_params_dtype: [none, fp32], "
              "cuda_graph: [stack, attn, full_iteration], "
              "fsdp_unit: [0, 2], fsdp_prefetch: [-1, 1]"
            : ", mtp_ahead: [0, 1], vpp_group: [0, 2, 4], "
              "recompute_modules: [[mlp], [core_attn, "
              "layernorm], core_attn], overlap_off: [[tp], "
              "[grad_reduce, tp]]";

    snprintf(text, sizeof text,
             "format: 1\n"
             "model: {preset: llama3-8b, layers: %d, mtp: %d%s}\n"
             "cluster: {system: %s, nodes: %d, gpus_per_node: %d}\n"
             "workload: {seq: 2048, global_batch: %d}\n"
             "limits: {memory: %dGiB, micro_batch: [1, %d], framework: "
             "%s%s}\n",
             4 + pick(seed, 1, 6), seed % 3 == 0,
             seed % 7 == 1 ? ", attention_window: 256, global_every: 2" : "",
             seed % 2 ? "dgx-h100" : "dgx-a100", 1 + pick(seed, 2, 2),
             per_node[pick(seed, 3, 4)], 4 << pick(seed, 4, 3),
             6 + pick(seed, 5, 60), 1 + pick(seed, 6, 4),
             frameworks[pick(seed, 7, 5)], seed % 8 < 4 ? "" : lists);
    parse_world(w, text);
}

static void test_random_spaces(void **state)
{
    (void)state;
    int n_none = 0, n_uneven = 0, n_rare = 0, n_buckets = 0, n_sets = 0;
    int n_units = 0;
    int n_ahead = 0, n_groups = 0;
    char text[MW_PLAN_TEXT_MAX];

    for (uint64_t seed = 0; seed < SPACES; seed++) {
        struct world w;
        struct mw_search_opts opts;
        struct mw_search_result r;
        struct mw_err err = {0};
        struct brute b;

        random_world(seed, &w);
        mw_search_opts_default(&opts);
        opts.is_quiet = true;
        opts.jobs = 1 + (int)seed % 2;
        opts.top = 1 + pick(seed, 8, 3);
        opts.zero = pick(seed, 9, 4) == 0 ? -1 : pick(seed, 10, 4);
        opts.recompute = pick(seed, 11, 3);
        opts.free = seed % 2 == 0
                        ? (unsigned)pick(seed, 12, 32)
                        : 1U << pick(seed, 14, 19) | 1U << pick(seed, 15, 19);
        opts.cp = (opts.free & MW_FREE_CP_INNER) != 0 ? 4 : 0;
        opts.bucket_size = seed % 16 == 2 ? 30000000 : -1;
        opts.is_full = pick(seed, 13, 8) == 0;
        opts.rank_by = seed % 5 == 4 ? MW_RANK_MEMORY : MW_RANK_TIME;
        brute_force(&w, &opts, &b);
        enum mw_status status = mw_search(&w.scenario, &w.ctx, &opts, &r, &err);

        assert_int_equal(r.evaluated, b.n);
        assert_int_equal(status, b.n_fit > 0 ? MW_OK : MW_ENO);
        if (b.n_fit > 0 && opts.rank_by == MW_RANK_TIME) {
            mw_assert_near(r.plans[0].step_time_s, b.best_s, 1e-12, 0);
        } else if (b.n_fit > 0) {
            mw_assert_near(r.plans[0].peak_bytes, b.least_bytes, 1e-12, 0);
        }
        assert_int_equal(r.proved_optimal, b.n_fit > 0);
        n_none += b.n_fit == 0;
        for (size_t i = 0; i < r.n_plans; i++) {
            const struct mw_candidate *c = &r.plans[i];
            int last = c->layout.pp * c->layout.vpp - 1;

            n_rare += *mw_layout_rare_text(&c->layout, text) != '\0';
            n_buckets += c->layout.bucket_size > 0;
            n_units += mw_layout_wraps(&c->layout);
            n_ahead += c->layout.mtp_ahead > 0;
            n_groups += c->layout.vpp_group > 0;
            n_sets += seed % 8 == 6 && c->layout.recompute_modules > 0 &&
                      c->layout.overlap_off > 0;
            n_uneven += abs(c->layers[0] - c->layers[last]) > 1;
        }
        mw_search_result_release(&r);
        close_world(&w);
    }
    /* The draw must exercise both answers and partitions. */
    assert_in_range(n_none, SPACES / 40, SPACES * 3 / 4);
    assert_true(n_uneven > 0);
    assert_true(n_rare > 0);
    assert_true(n_buckets > SPACES / 20);
    assert_true(n_units > SPACES / 40);
    assert_true(n_sets > 0);
    assert_true(n_ahead > 0);
    assert_true(n_groups > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random_spaces),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
