/*
 * Rules of frameworks: the language of conditions, every row, and a property:
 * no plan of 10,000 random scenarios breaks its framework's rules, as a second
 * statement of them in C sees it.
 */
#include "planner_world.h"

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
static bool one_of(const char *name, const char *const *list)
{
    for (; *list; list++) {
        if (strcmp(name, *list) == 0) {
            return true;
        }
    }
    return false;
}

/* The same of what is rarely other than its default. */
static bool may_run_rare(const struct world *w, const struct mw_layout *l)
{
    bool has_weights = l->offload_weights > 0,
         has_opt = l->offload_optimizer > 0;
    bool has_acts = l->offload_activations > 0;
    bool is_all = l->recompute_layers == 0 && l->recompute_modules == 0;

    switch (w->scenario.limits.framework) {
    case MW_FRAMEWORK_MEGATRON_CORE:
        return l->reshard && !has_weights && (!has_opt || l->zero >= 1) &&
               (l->recompute_layers == 0 ||
                l->recompute == MW_RECOMPUTE_FULL) &&
               (!has_acts || (l->pp == 1 && l->recompute == MW_RECOMPUTE_NONE));
    case MW_FRAMEWORK_MEGATRON_DEEPSPEED:
        return l->reshard && is_all && (l->dp_shard == 0 || l->zero == 3) &&
               (!has_opt || l->zero >= 1) && (!has_weights || l->zero == 3) &&
               (!has_acts || l->recompute == MW_RECOMPUTE_FULL);
    case MW_FRAMEWORK_TORCHTITAN:
        return is_all && (l->cp == 1 || l->cp_form != MW_CP_A2A) &&
               has_weights == has_opt && (!has_opt || l->zero >= 2) &&
               !has_acts;
    case MW_FRAMEWORK_NANOTRON:
        return is_all && l->cp == 1 && l->dp_shard == 0 && !has_weights &&
               !has_opt && !has_acts;
    case MW_FRAMEWORK_HOST:
        return !has_weights && !has_acts && l->recompute_modules == 0;
    default:
        return true;
    }
}

/* Megatron-Core's of the model and the kind of work. */
static bool may_run_megatron(const struct world *w, const struct mw_layout *l)
{
    const struct mw_model *m = &w->scenario.model;
    const struct mw_workload *k = &w->scenario.workload;
    enum mw_dtype d = mw_work_dtype(l, k);
    bool is_moe = m->moe.n_experts > 0, is_short = d >= MW_FP8;
    bool is_half = d == MW_BF16 || d == MW_FP16;
    int offloaded = (int)(l->offload_activations * m->n_layers + 0.5);
    int modules =
        l->recompute_modules == 0 ? MW_MODULE_CORE_ATTN : l->recompute_modules;
    bool is_again = l->recompute == MW_RECOMPUTE_SELECTIVE;
    bool is_graph = l->cuda_graph > MW_GRAPH_NONE;

    if (m->n_kv_heads % l->tp != 0 || (l->cp > 1 && !k->is_flash) ||
        (k->is_flash && !is_half && !is_short) ||
        (m->n_mtp > 0 && (m->position == MW_POS_LEARNED || l->cp > 1)) ||
        (m->moe.fp8_dispatch && l->ep * l->etp > 1) ||
        m->window.form == MW_WINDOW_CHUNKED || (m->sinks && l->cp > 1)) {
        return false;
    }
    if (strcmp(l->order, "tp-cp-ep-pp-dp") == 0 && l->pp > 1 &&
        (is_moe ? l->etp * l->ep : l->tp) != l->tp * l->cp) {
        return false;
    }
    if (is_moe && ((d != MW_BF16 && !is_short) || (m->bias_mlp && l->etp > 1) ||
                   (l->zero >= 2 && l->ep > 1 && l->dp_shard > 0))) {
        return false;
    }
    if (l->offload_activations > 0 &&
        (offloaded < 1 || offloaded >= m->n_layers)) {
        return false;
    }
    return !is_graph || (l->recompute != MW_RECOMPUTE_FULL && l->zero <= 1 &&
                         !(k->has_dropout && is_again &&
                           (modules & MW_MODULE_CORE_ATTN) != 0));
}

/* Does Nanotron's cut reach its last stage before the head? As if a stage took
 * blocks until what they cost exceeds all stages' share so far. */
static bool has_no_idle(const struct mw_model *m, int pp)
{
    double h = m->hidden, layer = 4 * h * h + 3 * h * m->ffn, sum = 0;
    double share = (m->n_layers * layer + m->vocab * h) / pp;
    int cuts = 0;

    for (int i = 0; i <= m->n_layers; i++) {
        sum += i < m->n_layers ? layer : 0; /* then the norm */
        cuts += sum > share * (cuts + 1);
    }
    return cuts >= pp - 1;
}

/* TorchTitan's, Nanotron's and Megatron-DeepSpeed's. */
static bool may_run_other(const struct world *w, const struct mw_layout *l)
{
    const struct mw_model *m = &w->scenario.model;
    const struct mw_workload *k = &w->scenario.workload;
    enum mw_dtype d = mw_work_dtype(l, k);
    bool is_moe = m->moe.n_experts > 0, is_many = l->vpp > 1;
    bool is_single =
        strcmp(l->schedule, "1f1b") == 0 || strcmp(l->schedule, "gpipe") == 0;
    bool is_v = strcmp(l->schedule, "zb-v") == 0 ||
                strcmp(l->schedule, "dualpipev") == 0;
    int borrowed = l->etp == 1 ? l->cp * l->tp : l->cp;

    bool is_plain = m->window.tokens == 0 && !m->sinks;

    if (m->n_mtp > 0 || (m->moe.fp8_dispatch && l->ep * l->etp > 1) ||
        (!is_plain &&
         (w->scenario.limits.framework != MW_FRAMEWORK_TORCHTITAN ||
          l->cp > 1))) {
        return false;
    }
    switch (w->scenario.limits.framework) {
    case MW_FRAMEWORK_MEGATRON_DEEPSPEED:
        if (l->zero == 0 &&
            mw_work_grad_dtype(l, k) != (d == MW_FP16 ? MW_FP16 : MW_FP32)) {
            return false;
        }
        return m->n_kv_heads % l->tp == 0 &&
               (!is_moe || (l->pp == 1 && (l->etp == 1 || l->etp == l->tp)));
    case MW_FRAMEWORK_NANOTRON:
        return k->is_flash && !k->has_dropout && has_no_idle(m, l->pp) &&
               (d == MW_BF16 || d == MW_FP16) &&
               l->recompute != MW_RECOMPUTE_SELECTIVE &&
               (mw_work_grad_dtype(l, k) == MW_FP32 ||
                mw_work_grad_dtype(l, k) == d);
    case MW_FRAMEWORK_TORCHTITAN:
        if ((l->zero == 0 && l->dp * l->cp > 1 &&
             l->dp < l->dp * l->tp * l->pp * l->cp) ||
            k->seq % (2 * l->cp * l->tp) != 0 || (l->tp > 1 && !l->sp)) {
            return false;
        }
        if (l->ep > 1 &&
            (l->ep % borrowed != 0 || (l->zero == 0 && l->dp > 1))) {
            return false;
        }
        return k->is_flash && !k->has_dropout && d != MW_FP16 && d != MW_FP4 &&
               (l->pp == 1 || (is_single != is_many && (!is_v || l->vpp == 2)));
    default:
        return true;
    }
}

/* What is gathered at once, and ahead. */
static bool may_wrap(const struct world *w, const struct mw_layout *l)
{
    int framework = w->scenario.limits.framework, ahead = l->fsdp_prefetch;

    return framework == MW_FRAMEWORK_ANY ||
           (framework == MW_FRAMEWORK_HOST
                ? l->fsdp_unit >= 1 && ahead <= 0
                : l->fsdp_unit == 1 &&
                      (framework == MW_FRAMEWORK_TORCHTITAN ||
                               framework == MW_FRAMEWORK_NANOTRON
                           ? ahead == -1 || ahead == 1
                           : framework != MW_FRAMEWORK_MEGATRON_CORE ||
                                 ahead != 0));
}

/* What computes in which types, and what makes gradients smaller. */
static bool may_run_types(const struct world *w, const struct mw_layout *l)
{
    enum mw_dtype d = mw_work_dtype(l, &w->scenario.workload);
    enum mw_dtype g = mw_work_grad_dtype(l, &w->scenario.workload);
    int64_t rows = w->scenario.workload.seq * l->micro_batch /
                   (l->cp * (l->sp ? l->tp : 1));
    bool is_plain = l->grad_compression == MW_COMPRESS_NONE;
    bool has_inner = l->cp_inner > 1, is_beside = l->overlap_off == 0;
    bool off_grads = (l->overlap_off & MW_OVERLAP_GRADS) != 0,
         off_params = (l->overlap_off & MW_OVERLAP_PARAMS) != 0;
    bool has_bucket = l->bucket_size > 0;

    if (l->cuda_graph > MW_GRAPH_NONE) {
        return w->scenario.limits.framework == MW_FRAMEWORK_ANY ||
               (w->scenario.limits.framework == MW_FRAMEWORK_MEGATRON_CORE &&
                l->recompute != MW_RECOMPUTE_FULL);
    }

    switch (w->scenario.limits.framework) {
    case MW_FRAMEWORK_MEGATRON_CORE:
        return is_plain && (!has_inner || l->cp_form == MW_CP_RING) &&
               (!off_grads || ((l->zero == 0 || off_params) && !has_bucket)) &&
               (g != MW_FP16 || d == MW_FP16) &&
               (g != MW_BF16 || d == MW_BF16 || d == MW_FP8) &&
               (d != MW_FP8 || rows % 16 == 0);
    case MW_FRAMEWORK_MEGATRON_DEEPSPEED:
        return d != MW_FP8 && !has_inner && (!has_bucket || l->zero == 1) &&
               (l->overlap_off & MW_OVERLAP_TP) == 0;
    case MW_FRAMEWORK_TORCHTITAN:
        return is_plain && !has_inner && g == MW_FP32 && !off_grads &&
               !off_params && !has_bucket;
    case MW_FRAMEWORK_NANOTRON:
        return is_plain && !has_inner && d != MW_FP8 && is_beside &&
               (!has_bucket || l->zero == 0);
    case MW_FRAMEWORK_HOST:
        return is_plain && is_beside && l->dtype == MW_DTYPE_OF_WORKLOAD &&
               l->grad_dtype == MW_DTYPE_OF_WORKLOAD;
    default:
        return true;
    }
}

/* Only Megatron-Core predicts several tokens, and there not on rank 0. */
static bool may_run_ahead(const struct world *w, const struct mw_layout *l)
{
    return l->mtp_ahead == 0 ||
           (w->scenario.model.n_mtp > 0 && l->pp * l->vpp > 2 &&
            (w->scenario.limits.framework == MW_FRAMEWORK_ANY ||
             (w->scenario.limits.framework == MW_FRAMEWORK_MEGATRON_CORE &&
              l->pp > 2)));
}

/* The frameworks' rules said again, without the table. */
static bool may_run(const struct world *w, const struct mw_layout *l)
{
    static const char *const mds[] = {"1f1b", "zb-h1", NULL};
    static const char *const titan[] = {
        "1f1b",           "gpipe", "interleaved-1f1b", "looped-bfs",
        "interleaved-zb", "zb-v",  "dualpipev",        NULL};
    static const char *const afab[] = {"1f1b", "gpipe", NULL};
    const struct mw_model *m = &w->scenario.model;
    int64_t seq = w->scenario.workload.seq;
    int64_t n = w->scenario.workload.global_batch / l->dp / l->micro_batch;
    bool is_plain_order = strcmp(l->order, "tp-cp-ep-dp-pp") == 0;

    switch (w->scenario.limits.framework) {
    case MW_FRAMEWORK_MEGATRON_CORE:
        if (l->pp > 1 && strcmp(l->schedule, l->vpp > 1 ? "interleaved-1f1b"
                                                        : "1f1b") != 0) {
            return false;
        }
        if (l->vpp > 1 && n % l->pp) {
            return false;
        }
        if ((l->sp && (l->tp == 1 || seq % (2 * l->cp) || seq % l->tp)) ||
            !may_run_megatron(w, l)) {
            return false;
        }
        return (l->zero < 2 || (l->pp == 1 && !m->tied)) &&
               (is_plain_order || strcmp(l->order, "tp-cp-ep-pp-dp") == 0);
    case MW_FRAMEWORK_MEGATRON_DEEPSPEED:
        return is_plain_order && l->cp == 1 && l->vpp == 1 &&
               may_run_other(w, l) &&
               (l->pp == 1 || (one_of(l->schedule, mds) && l->zero <= 1)) &&
               !(l->sp && l->pp > 1 && strcmp(l->schedule, "zb-h1") == 0);
    case MW_FRAMEWORK_TORCHTITAN:
        return is_plain_order && may_run_other(w, l) && l->zero != 1 &&
               m->n_kv_heads % l->tp == 0 &&
               (l->pp == 1 || (one_of(l->schedule, titan) && !m->tied &&
                               (l->vpp > 1 || n >= l->pp)));
    case MW_FRAMEWORK_NANOTRON:
        return is_plain_order && may_run_other(w, l) && l->vpp == 1 &&
               l->zero <= 1 && l->tp <= m->n_kv_heads &&
               (l->pp == 1 ||
                (one_of(l->schedule, afab) &&
                 (strcmp(l->schedule, "gpipe") == 0 || n >= l->pp - 1)));
    default:
        return true;
    }
}

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
             n_graphs = 0, n_units = 0, n_ahead = 0, n_experts = 0,
             n_groups = 0;

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
            opts.free = 1U << pick(seed, 14, 18);
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
            assert_true(
                l->vpp_group == 0 ||
                (l->vpp > 1 && l->vpp_group >= l->pp &&
                 w.scenario.limits.framework != MW_FRAMEWORK_TORCHTITAN));
            n_experts += l->ep > 1;
            if (!may_run(&w, l) || !may_run_rare(&w, l) || !may_wrap(&w, l) ||
                !may_run_ahead(&w, l) || !may_run_types(&w, l)) {
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
    assert_true(n_ahead > 5 && n_experts > 100 && n_groups > 5);
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
