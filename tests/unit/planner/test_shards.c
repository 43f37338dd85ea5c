/*
 * A search in parts equals the search: on random small spaces, whatever the
 * number of shards and what plans are ranked by, the joined files have the same
 * best plans in the same order, the same layouts enumerated and legal, and the
 * same proof. And what does not belong together is refused.
 */
#include "planner_world.h"

#include "base/file.h"
#include "base/rand.h"
#include "planner/domains.h"
#include "planner/search_shards.h"
#include "planner/sweep.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SPACES = 40, SHARDS_MAX = 7 };

static int pick(uint64_t seed, uint64_t stream, int n)
{
    return (int)(mw_rand_u64(seed, stream, 13) % (uint64_t)n);
}

static void random_world(uint64_t seed, struct world *w)
{
    char text[1024];

    snprintf(text, sizeof text,
             "format: 1\n"
             "model: {preset: llama3-8b, layers: %d}\n"
             "cluster: {system: %s, nodes: %d, gpus_per_node: %d}\n"
             "workload: {seq: 2048, global_batch: %d}\n"
             "limits: {memory: %dGiB%s}\n",
             4 + pick(seed, 1, 6), seed % 2 ? "dgx-h100" : "dgx-a100",
             1 + pick(seed, 2, 2), 2 << pick(seed, 3, 3), 8 << pick(seed, 4, 3),
             6 + pick(seed, 5, 60),
             seed % 4 == 1 ? ", offload_optimizer: [0, 0.5], grad_dtype: "
                             "[fp32, bf16], framework: megatron-core-0.14"
                           : "");
    parse_world(w, text);
}

static void opts_of(uint64_t seed, struct mw_search_opts *opts)
{
    static const enum mw_rank_by by[] = {MW_RANK_TIME, MW_RANK_MEMORY,
                                         MW_RANK_PARETO};

    mw_search_opts_default(opts);
    opts->is_quiet = true;
    opts->jobs = 1;
    opts->top = 1 + pick(seed, 6, 4);
    opts->recompute = pick(seed, 7, 4) - 1;
    opts->is_full = pick(seed, 8, 4) == 0;
    opts->free = 1U << pick(seed, 9, 8);
    opts->rank_by = by[pick(seed, 10, 3)];
}

static struct mw_shard_head head_of(const struct world *w,
                                    const struct mw_search_opts *opts)
{
    return (struct mw_shard_head){
        opts->shard, opts->n_shards,
        mw_sweep_question(&w->scenario, opts, w->ctx.stack.name, w->ctx.db),
        mw_step_usable_bytes(&w->scenario, &w->ctx), opts->top};
}

static char *path_of(int shard, char out[64])
{
    snprintf(out, 64, "shards-%d-%d.yaml", (int)getpid(), shard);
    return out;
}

/* Searches and writes shard i of n. */
static void write_shard(const struct world *w, struct mw_search_opts opts,
                        int shard, int n, const char *path)
{
    struct mw_search_result r;

    opts.shard = shard;
    opts.n_shards = n;
    enum mw_status status = mw_search(&w->scenario, &w->ctx, &opts, &r, NULL);

    assert_true(status == MW_OK || status == MW_ENO);
    assert_true(r.is_complete);
    struct mw_shard_head head = head_of(w, &opts);
    struct mw_shard_part part;

    mw_shard_begin(&part, &head);
    mw_shard_add(&part, 0, &r);
    assert_int_equal(mw_shard_end(&part, path, NULL), MW_OK);
    mw_search_result_release(&r);
}

static bool same_plan(const struct mw_candidate *a,
                      const struct mw_candidate *b)
{
    char x[MW_PLAN_TEXT_MAX], y[MW_PLAN_TEXT_MAX];
    size_t n = (size_t)a->layout.pp * (size_t)a->layout.vpp;

    return a->id == b->id && a->step_time_s == b->step_time_s &&
           a->peak_bytes == b->peak_bytes && a->mfu == b->mfu &&
           strcmp(mw_layout_text(&a->layout, x),
                  mw_layout_text(&b->layout, y)) == 0 &&
           strcmp(mw_layout_rare_text(&a->layout, x),
                  mw_layout_rare_text(&b->layout, y)) == 0 &&
           a->layout.sp == b->layout.sp &&
           strcmp(a->layout.order, b->layout.order) == 0 &&
           memcmp(a->layers, b->layers, n * sizeof *a->layers) == 0;
}

static void compare(const struct mw_search_result *whole,
                    const struct mw_search_result *joined)
{
    assert_int_equal(joined->enumerated, whole->enumerated);
    assert_int_equal(joined->evaluated, whole->evaluated);
    assert_int_equal(joined->proved_optimal, whole->proved_optimal);
    assert_int_equal(joined->n_proved, whole->n_proved);
    assert_true(joined->gap == 0);
    for (int i = 0; i < whole->n_proved; i++) {
        assert_true(same_plan(&whole->plans[i], &joined->plans[i]));
    }
    uint64_t sum = joined->simulated;

    for (int i = 0; i < joined->n_reasons; i++) {
        sum += joined->reasons[i].count;
    }
    assert_true(sum >= joined->enumerated); /* each layout has its reason */
}

static void test_union(void **state)
{
    (void)state;
    int n_none = 0;

    for (uint64_t seed = 0; seed < SPACES; seed++) {
        struct world w;
        struct mw_search_opts opts;
        struct mw_search_result whole, joined;
        char path[SHARDS_MAX][64];
        const char *paths[SHARDS_MAX];
        int n = 1 + pick(seed, 12, SHARDS_MAX);

        random_world(seed, &w);
        opts_of(seed, &opts);
        enum mw_status status =
            mw_search(&w.scenario, &w.ctx, &opts, &whole, NULL);

        n_none += status == MW_ENO;
        for (int i = 0; i < n; i++) { /* joined in another order */
            paths[n - 1 - i] = path_of(i + 1, path[i]);
            write_shard(&w, opts, i + 1, n, path[i]);
        }
        struct mw_shard_head head = head_of(&w, &opts);

        assert_int_equal(
            mw_shards_join(&head, paths, n, 0, opts.rank_by, &joined, NULL),
            status);
        compare(&whole, &joined);
        for (int i = 0; i < n; i++) {
            remove(path[i]);
        }
        mw_search_result_release(&whole);
        mw_search_result_release(&joined);
        close_world(&w);
    }
    assert_in_range(n_none, 1, SPACES / 2);
}

/* ---- with a choice of scale-up domains -------------------------------------
 */
struct cuts {
    struct mw_search_opts *opts;
    struct mw_shard_part *part;
    const struct mw_shard_head *head;
    const char *const *paths;
    int n;
};

/* A shard of one choice, added to its part. */
static enum mw_status search_cut(void *arg, const struct mw_scenario *scenario,
                                 const struct mw_cost_ctx *ctx,
                                 struct mw_search_result *out,
                                 struct mw_err *err)
{
    const struct cuts *c = arg;
    enum mw_status status = mw_search(scenario, ctx, c->opts, out, err);

    mw_shard_add(c->part, scenario->cluster.domain_nodes, out);
    return status;
}

static enum mw_status join_cut(void *arg, const struct mw_scenario *scenario,
                               const struct mw_cost_ctx *ctx,
                               struct mw_search_result *out, struct mw_err *err)
{
    const struct cuts *c = arg;

    (void)ctx;
    return mw_shards_join(c->head, c->paths, c->n,
                          scenario->cluster.domain_nodes, c->opts->rank_by, out,
                          err);
}

static void write_cuts(const struct world *w, struct mw_search_opts opts,
                       int shard, int n, const char *path)
{
    struct mw_domains d;
    struct mw_search_result r;
    struct mw_shard_part part;

    opts.shard = shard;
    opts.n_shards = n;
    struct mw_shard_head head = head_of(w, &opts);
    struct cuts c = {.opts = &opts, .part = &part};

    mw_shard_begin(&part, &head);
    enum mw_status status = mw_domains_find(&w->scenario, &w->ctx, opts.rank_by,
                                            search_cut, &c, &d, &r, NULL);

    assert_true(status == MW_OK || status == MW_ENO);
    assert_int_equal(mw_shard_end(&part, path, NULL), MW_OK);
    mw_search_result_release(&r);
}

/* Four trays as one domain, as two, or three of them and one that stands by. */
static void open_cuts(struct world *w, int memory_GiB)
{
    char text[512];

    snprintf(text, sizeof text,
             "format: 1\nmodel: {preset: llama3-8b, layers: 8}\n"
             "cluster: {system: gb200-nvl72, gpus_per_node: 1, nodes: 4, "
             "domain_nodes: [2, 4, 3]}\n"
             "workload: {seq: 2048, global_batch: 24}\n"
             "limits: {memory: %dGiB}\n",
             memory_GiB);
    parse_world(w, text);
}

static void joins_cuts(struct world *w, enum mw_rank_by by, int n)
{
    struct mw_search_opts opts;
    struct mw_domains whole, joined;
    struct mw_search_result a, b;
    char path[SHARDS_MAX][64];
    const char *paths[SHARDS_MAX];

    opts_of(0, &opts);
    opts.rank_by = by;
    enum mw_status status =
        mw_domains_search(&w->scenario, &w->ctx, &opts, &whole, &a, NULL);

    for (int i = 0; i < n; i++) {
        paths[i] = path_of(i + 1, path[i]);
        write_cuts(w, opts, i + 1, n, path[i]);
    }
    struct mw_shard_head head = head_of(w, &opts);
    struct cuts c = {.opts = &opts, .head = &head, .paths = paths, .n = n};

    assert_int_equal(mw_domains_find(&w->scenario, &w->ctx, by, join_cut, &c,
                                     &joined, &b, NULL),
                     status);
    compare(&a, &b);
    assert_int_equal(joined.n, 3);
    assert_int_equal(joined.best, whole.best);
    assert_int_equal(joined.is_proved, whole.is_proved);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(joined.choice[i].domain_nodes,
                         whole.choice[i].domain_nodes);
        assert_int_equal(joined.choice[i].n_gpus, whole.choice[i].n_gpus);
        assert_true(joined.choice[i].step_time_s ==
                    whole.choice[i].step_time_s);
        assert_true(joined.choice[i].peak_bytes == whole.choice[i].peak_bytes);
    }
    if (n > 1) { /* without one shard no choice is proved */
        mw_search_result_release(&b);
        c.n = n - 1;
        assert_int_equal(mw_domains_find(&w->scenario, &w->ctx, by, join_cut,
                                         &c, &joined, &b, NULL),
                         MW_ENO);
        assert_false(joined.is_proved);
    }
    for (int i = 0; i < n; i++) {
        remove(path[i]);
    }
    mw_search_result_release(&a);
    mw_search_result_release(&b);
}

static void test_union_of_cuts(void **state)
{
    static const int memory_GiB[] = {160, 1};

    (void)state;
    for (int i = 0; i < 2; i++) {
        struct world w;

        open_cuts(&w, memory_GiB[i]);
        joins_cuts(&w, MW_RANK_TIME, 1 + 2 * i);
        joins_cuts(&w, MW_RANK_MEMORY, 3);
        close_world(&w);
    }
}

static enum mw_status join(const struct mw_shard_head *head, const char *a,
                           const char *b, struct mw_err *err)
{
    const char *paths[] = {a, b};
    struct mw_search_result r;
    enum mw_status status = mw_shards_join(head, paths, b != NULL ? 2 : 1, 0,
                                           MW_RANK_TIME, &r, err);

    mw_search_result_release(&r);
    return status;
}

/* Writes text to a file that join then refuses with words. */
static void refuse(const struct mw_shard_head *head, const char *text,
                   const char *words)
{
    char path[64];
    struct mw_err err = {0};
    FILE *f = fopen(path_of(99, path), "w");

    assert_non_null(f);
    fputs(text, f);
    fclose(f);
    assert_int_equal(join(head, path, NULL, &err), MW_EINPUT);
    if (strstr(err.text, words) == NULL || strstr(err.text, path) == NULL) {
        fail_msg("'%s' says nothing of '%s'", err.text, words);
    }
    remove(path);
}

static void test_wrong_parts(void **state)
{
    (void)state;
    struct world w;
    struct mw_search_opts opts;
    char one[64], two[64];
    struct mw_err err = {0};

    random_world(2, &w);
    opts_of(2, &opts);
    opts.rank_by = MW_RANK_TIME;
    write_shard(&w, opts, 1, 2, path_of(1, one));
    write_shard(&w, opts, 2, 3, path_of(2, two));
    struct mw_shard_head head = head_of(&w, &opts);

    assert_int_equal(join(&head, one, NULL, &err), MW_ENO);
    assert_non_null(strstr(err.text, "the first is 2/2"));
    assert_int_equal(join(&head, one, one, NULL), MW_EINPUT);
    assert_int_equal(join(&head, one, two, NULL), MW_EINPUT);
    struct mw_shard_head other = head;

    other.question++;
    assert_int_equal(join(&other, one, NULL, NULL), MW_EINPUT);
    other = head;
    other.usable_bytes += 1;
    assert_int_equal(join(&other, one, NULL, NULL), MW_EINPUT);
    assert_true(join(&head, "no-such-file.yaml", NULL, NULL) != MW_OK);
    refuse(&head, "format: 1\nname: x\n", "no part of a search");
    refuse(&head, "[1, 2]\n", "no part of a search");
    refuse(&head, "format: 1\nquestion: \"0\"\n", "is not this program's 2");
    refuse(&head, "format: 2\nquestion: \"0\"\n", "'shard' is missing");
    remove(one);
    remove(two);
    close_world(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_union),
        cmocka_unit_test(test_union_of_cuts),
        cmocka_unit_test(test_wrong_parts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
