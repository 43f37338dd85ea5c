/*
 * Rules of frameworks: the language of conditions, every row, and a property:
 * no plan of 10,000 random scenarios breaks its framework's rules, as a second
 * statement of them in C sees it.
 */
#include "rules_again.h"

#include "base/rand.h"
#include "planner/planner.h"
#include "planner/rule_expr.h"
#include "planner/rules.h"

#include <string.h>

/* ---- conditions ------------------------------------------------------------
 */
static int name_index(const char *name, int len)
{
    return len == 1 && *name >= 'a' && *name <= 'c' ? *name - 'a' : -1;
}

static int64_t text_id(const char *text, int len)
{
    return len == 2 && strncmp(text, "on", 2) == 0 ? 7 : -1;
}

static const struct mw_rule_names names = {name_index, text_id};

static void test_conditions(void **state)
{
    (void)state;
    /* With a = 6, b = 4, c = 0, worked out by hand. */
    static const struct {
        const char *text;
        int64_t value;
    } cases[] = {{"a + b * 2 - 1", 13}, {"(a + b) * 2 % 7", 6},
                 {"a % c", 0},          {"a / c", 0},
                 {"lcm(a, b)", 12},     {"-a + 7", 1},
                 {"a > b && !c", 1},    {"a < b || c != 0", 0},
                 {"a > b -> b > a", 0}, {"c -> a == 0", 1},
                 {"c -> a -> b", 1},    {"a >= 6 -> b <= 4 -> c == 0", 1},
                 {"'on' == 7", 1},      {"a - b->c", 0}};
    const int64_t values[] = {6, 4, 0};

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct mw_rule_code code;

        assert_int_equal(mw_rule_compile(cases[i].text, &names, &code, NULL),
                         MW_OK);
        if (mw_rule_eval(&code, values) != cases[i].value) {
            fail_msg("%s: %d", cases[i].text, (int)mw_rule_eval(&code, values));
        }
    }
}

static void test_wrong_conditions(void **state)
{
    (void)state;
    static const struct {
        const char *text, *message;
    } cases[] = {{"a +", "unknown name"},   {"a b", "nothing is expected"},
                 {"(a", "')' is missing"},  {"d > 1", "unknown name"},
                 {"'off'", "unknown text"}, {"lcm(a)", "two values"},
                 {"'on", "unknown text"},   {"", "unknown name"}};

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct mw_rule_code code;
        struct mw_err err = {0};

        assert_int_equal(mw_rule_compile(cases[i].text, &names, &code, &err),
                         MW_EINPUT);
        assert_non_null(strstr(err.text, cases[i].message));
    }
}

/* ---- rows ------------------------------------------------------------------
 */
static void test_rows_are_complete(void **state)
{
    (void)state;
    size_t n = 0;

    for (; mw_rule_row(n); n++) {
        const struct mw_rule *row = mw_rule_row(n);

        assert_true(row->id[0] && row->message[0] && row->source[0]);
        for (size_t i = 0; i < n; i++) {
            assert_string_not_equal(mw_rule_row(i)->id, row->id);
        }
    }
    assert_true(n >= 30);
}

static const char *broken(struct world *w, int framework,
                          const struct mw_layout *layout)
{
    w->scenario.limits.framework = framework;
    struct mw_rule_set *set = mw_rule_set_new(&w->scenario, &w->ctx);
    const struct mw_rule *rule = mw_rule_broken(set, layout);

    if (rule) {
        struct mw_str text = {0};

        mw_rule_explain(set, rule, layout, &text);
        assert_null(strchr(text.s, '{'));
        assert_non_null(strstr(text.s, rule->source));
        mw_str_release(&text);
    }
    mw_rule_set_free(set);
    return rule ? rule->id : "";
}

static void test_examples(void **state)
{
    (void)state;
    struct world w;
    struct mw_layout l;

    open_world(&w, "gpt3-175b-8xdgx-a100.yaml", 0);
    mw_layout_default(&l);
    l.tp = 8;
    l.sp = true;
    l.pp = 8;
    assert_string_equal(broken(&w, MW_FRAMEWORK_MEGATRON_CORE, &l), "");
    l.schedule = "zb-v";
    l.vpp = 2;
    assert_string_equal(broken(&w, MW_FRAMEWORK_ANY, &l), "");
    assert_string_equal(broken(&w, MW_FRAMEWORK_MEGATRON_CORE, &l),
                        "megatron_schedule");
    assert_string_equal(broken(&w, MW_FRAMEWORK_TORCHTITAN, &l), "titan_tied");
    w.scenario.model.tied = false;
    assert_string_equal(broken(&w, MW_FRAMEWORK_TORCHTITAN, &l), "titan_dtype");
    w.scenario.workload.dtype = MW_BF16;
    w.scenario.workload.is_flash = true;
    w.scenario.workload.has_dropout = false;
    assert_string_equal(broken(&w, MW_FRAMEWORK_TORCHTITAN, &l), "");
    assert_string_equal(broken(&w, MW_FRAMEWORK_MEGATRON_DEEPSPEED, &l),
                        "mds_schedule");
    l.schedule = "interleaved-1f1b";
    l.micro_batch = 16; /* 4 micro-batches on 8 stages */
    assert_string_equal(broken(&w, MW_FRAMEWORK_MEGATRON_CORE, &l),
                        "megatron_interleaved_group");
    l.micro_batch = 1;
    l.vpp = 3;
    l.order = "dp-tp-cp-pp";
    assert_string_equal(broken(&w, MW_FRAMEWORK_MEGATRON_CORE, &l),
                        "megatron_order");
    close_world(&w);
}

/* ---- the property ----------------------------------------------------------
 */
static int pick(uint64_t seed, uint64_t stream, int n)
{
    return (int)(mw_rand_u64(seed, stream, 3) % (uint64_t)n);
}

/* Lists of the limits, now and then: what they name is enumerated. */
static void draw_lists(uint64_t seed, struct mw_limits *l)
{
    static const int64_t types[] = {MW_BF16, MW_FP8},
                         sums[] = {MW_FP16, MW_BF16, MW_FP32},
                         compressions[] = {MW_COMPRESS_NONE, MW_COMPRESS_ONEBIT,
                                           MW_COMPRESS_ZEROPP};
    static const int64_t ahead[] = {1, 0};
    static const int64_t graphs[] = {MW_GRAPH_LAYER, MW_GRAPH_STACK};
    static const double parts[] = {0, 0.25, 1};

    l->dtype = (struct mw_int_list){types, (size_t)pick(seed, 20, 3)};
    l->grad_dtype = (struct mw_int_list){sums, (size_t)pick(seed, 21, 4)};
    l->cuda_graph = (struct mw_int_list){graphs, (size_t)pick(seed, 24, 3)};
    l->mtp_ahead = (struct mw_int_list){ahead, (size_t)pick(seed, 26, 3)};
    l->grad_compression =
        (struct mw_int_list){compressions, (size_t)pick(seed, 22, 4)};
    l->offload_optimizer =
        (struct mw_num_list){parts, (size_t)pick(seed, 23, 4)};
}

/* Experts, biases, learned positions, plain attention, dropout, types. */
static void draw_kind(uint64_t seed, struct mw_scenario *s)
{
    static const enum mw_dtype types[] = {MW_BF16, MW_BF16, MW_FP16, MW_FP32};
    bool is_moe = pick(seed, 27, 6) == 0, is_odd = pick(seed, 28, 4) == 0;
    struct mw_moe moe = {.n_experts = 4 << pick(seed, 29, 2),
                         .top_k = 2,
                         .ffn = 2048,
                         .every = 1};

    struct mw_window window = {
        .tokens = 128,
        .global_every = 2,
        .form = pick(seed, 39, 2) == 0 ? MW_WINDOW_CHUNKED : MW_WINDOW_SLIDING};

    s->model.sinks = is_odd && pick(seed, 40, 6) == 0;
    s->model.window =
        is_odd && pick(seed, 38, 4) == 0 ? window : (struct mw_window){0};
    moe.fp8_dispatch = pick(seed, 37, 4) == 0;
    s->model.moe = is_moe ? moe : (struct mw_moe){.every = 1};
    s->model.bias_mlp = is_odd && pick(seed, 30, 2) == 0;
    s->model.position =
        is_odd && pick(seed, 31, 4) == 0 ? MW_POS_LEARNED : MW_POS_ROTARY;
    s->workload.is_flash = !is_odd || pick(seed, 32, 3) != 0;
    s->workload.has_dropout = is_odd && pick(seed, 33, 2) == 0;
    s->workload.dtype = is_odd ? types[pick(seed, 34, 4)] : MW_BF16;
}

static void draw_scenario(uint64_t seed, struct world *w)
{
    static const int nodes[] = {1, 1, 2, 3};
    static const int kv[] = {2, 4, 8};
    struct mw_scenario *s = &w->scenario;

    s->model.n_layers = 2 + pick(seed, 1, 7);
    s->model.n_heads = 8 * (1 + pick(seed, 2, 2));
    s->model.n_kv_heads = kv[pick(seed, 3, 3)];
    s->model.tied = pick(seed, 4, 4) == 0;
    s->model.n_mtp = pick(seed, 25, 6) == 0;
    s->workload.global_batch = 2 + 2 * pick(seed, 5, 12);
    s->workload.seq = 256 * (1 + pick(seed, 6, 8));
    s->limits.framework = pick(seed, 7, 6);
    s->limits.memory_bytes = 1e9 * (8 + pick(seed, 8, 60));
    s->limits.dtype.n = s->limits.grad_dtype.n = 0;
    s->limits.cuda_graph.n = s->limits.mtp_ahead.n = 0;
    s->limits.grad_compression.n = s->limits.offload_optimizer.n = 0;
    if (pick(seed, 19, 8) == 0) {
        draw_lists(seed, &s->limits);
    }
    draw_kind(seed, s);
    s->cluster.n_nodes = nodes[pick(seed, 9, 4)];
    s->cluster.gpus_per_node = 1 + pick(seed, 10, 8);
    assert_int_equal(mw_cost_ctx_init(&w->ctx, w->db, s->cluster.system,
                                      s->cluster.n_nodes,
                                      s->cluster.gpus_per_node, NULL),
                     MW_OK);
}

static void test_10000_random_scenarios(void **state)
{
    (void)state;
    struct world w;
    uint64_t n_plans = 0, n_none = 0, n_rare = 0, n_typed = 0, n_sums = 0,
             n_inner = 0, n_small = 0, n_modules = 0, n_buckets = 0,
             n_graphs = 0, n_units = 0, n_states = 0, n_ahead = 0,
             n_experts = 0, n_groups = 0;

    open_world(&w, "llama3-8b-2xdgx-h100.yaml", 0);
    for (uint64_t seed = 0; seed < 10000; seed++) {
        struct mw_search_opts opts;
        struct mw_search_result r;

        draw_scenario(seed, &w);
        mw_search_opts_default(&opts);
        opts.is_quiet = true;
        opts.jobs = 1;
        opts.top = 1;
        opts.recompute = MW_RECOMPUTE_NONE;
        opts.micro_batch = 1 + pick(seed, 11, 2);
        opts.is_full = pick(seed, 12, 16) == 0;
        if (pick(seed, 13, 4) == 0) { /* offload and the like, if it fits so */
            opts.free = 1U << pick(seed, 14, 19);
            opts.rank_by =
                pick(seed, 16, 2) == 0 ? MW_RANK_MEMORY : MW_RANK_TIME;
            opts.recompute = pick(seed, 15, 3);
            opts.cp = opts.free == MW_FREE_CP_INNER ? 4 : 0;
        }
        opts.ep = w.scenario.model.moe.n_experts > 0 && pick(seed, 35, 3) > 0
                      ? 2 << pick(seed, 36, 2)
                      : 0;
        enum mw_status status = mw_search(&w.scenario, &w.ctx, &opts, &r, NULL);

        assert_true(status == MW_OK || status == MW_ENO);
        n_none += status == MW_ENO;
        for (size_t i = 0; i < r.n_plans; i++) {
            const struct mw_layout *l = &r.plans[i].layout;
            char text[MW_PLAN_TEXT_MAX];

            n_plans++;
            n_rare += *mw_layout_rare_text(l, text) != '\0';
            n_typed += l->dtype != MW_DTYPE_OF_WORKLOAD;
            n_sums += l->grad_dtype != MW_DTYPE_OF_WORKLOAD;
            n_inner += l->cp_inner > 1;
            n_modules += l->recompute_modules != 0;
            n_buckets += l->bucket_size > 0;
            n_units += mw_layout_wraps(l);
            n_graphs += l->cuda_graph != MW_GRAPH_STACK;
            n_small += l->grad_compression != MW_COMPRESS_NONE;
            n_ahead += l->mtp_ahead > 0;
            n_groups += l->vpp_group > 0;
            n_states += l->main_params + l->exp_avg + l->exp_avg_sq > 0;
            assert_true(
                l->vpp_group == 0 ||
                (l->vpp > 1 && l->vpp_group >= l->pp &&
                 w.scenario.limits.framework != MW_FRAMEWORK_TORCHTITAN));
            n_experts += l->ep > 1;
            if (!may_framework_run(&w, l)) {
                fail_msg("%s cannot run %s, order %s",
                         mw_framework_name(w.scenario.limits.framework),
                         mw_layout_text(l, text), l->order);
            }
            assert_int_equal(
                mw_layout_check(l, &w.scenario.model, &w.scenario.workload,
                                w.ctx.n_nodes * w.ctx.gpus_per_node, NULL,
                                NULL),
                MW_OK);
            assert_true(r.plans[i].peak_bytes <=
                        mw_step_usable_bytes(&w.scenario, &w.ctx));
        }
        mw_search_result_release(&r);
    }
    assert_true(n_plans > 10000);
    assert_true(n_rare > 200);
    assert_true(n_typed > 200 && n_sums > 200);
    assert_true(n_inner > 20 && n_small > 20 && n_modules > 5);
    assert_true(n_buckets > 20 && n_graphs > 20 && n_units > 20);
    assert_true(n_ahead > 5 && n_experts > 100 && n_groups > 5 &&
                n_states > 50);
    assert_in_range(n_none, 100, 8000);
    close_world(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_conditions),
        cmocka_unit_test(test_wrong_conditions),
        cmocka_unit_test(test_rows_are_complete),
        cmocka_unit_test(test_examples),
        cmocka_unit_test(test_10000_random_scenarios),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
