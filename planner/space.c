/*
 * Which layouts there are, and which of them are legal.
 *
 * Every rank is used: tp cp pp dp equals the cluster, so the loops run over
 * divisors. What is free by default, and what --space full adds:
 *
 *   tp pp dp         divisors of the ranks; tp inside a node (limits: max_tp)
 *   cp               1 below CP_SEQ tokens, divisors from there on; full:
 * always ep, etp          divisors of the experts; etp 1; full: or tp
 *   micro-batch      divisors of the replica's share up to 64; full: all
 *   vpp              chunk counts that give another chunk size
 *   schedule         all kinds that train, are priced and are made by a rule,
 *                    with their chunks; a CPU: 1f1b; full: gpipe-lifo too
 *   order            Megatron's two; full: all of tp, cp, dp, pp
 *   sp               on where tp > 1; full: off as well (dense models)
 *   ZeRO, recompute  all; a CPU: ZeRO-0, none
 *
 * Spellings of the same thing are walked once: ZeRO needs a gradient group, sp
 * needs tp > 1, schedules need pp > 1, orders that differ in ways of size 1
 * are one.
 */
#include "planner/space.h"

#include <stdio.h>
#include <string.h>

enum { MICRO_BATCH_MAX = 64, CP_SEQ = 16384 };

/* ---- tallies ---------------------------------------------------------------
 */
static struct mw_tally_row *row_of(struct mw_tally *t, const char *rule)
{
    for (int i = 0; i < t->n; i++) {
        if (t->row[i].rule == rule || strcmp(t->row[i].rule, rule) == 0) {
            return &t->row[i];
        }
    }
    MW_ASSERT(t->n < MW_REASONS_MAX, "rule %s", rule);
    t->row[t->n] = (struct mw_tally_row){.rule = rule};
    return &t->row[t->n++];
}

void mw_tally_add(struct mw_tally *t, const char *rule, uint64_t count,
                  const struct mw_layout *layout, double needed, double allowed)
{
    struct mw_tally_row *row = row_of(t, rule);
    double miss = allowed > 0 ? needed / allowed : 0;
    bool is_nearer = miss > 0 && (row->miss <= 0 || miss < row->miss);

    if (row->count == 0 || is_nearer) {
        row->miss = miss;
        row->needed = needed;
        row->allowed = allowed;
        row->nearest = *layout;
    }
    row->count += count;
}

void mw_tally_merge(struct mw_tally *a, const struct mw_tally *b)
{
    for (int i = 0; i < b->n; i++) {
        mw_tally_add(a, b->row[i].rule, b->row[i].count, &b->row[i].nearest,
                     b->row[i].needed, b->row[i].allowed);
    }
    a->enumerated += b->enumerated;
    a->legal += b->legal;
}

const char *mw_layout_text(const struct mw_layout *l,
                           char buf[MW_PLAN_TEXT_MAX])
{
    char more[MW_PLAN_TEXT_MAX] = "";
    int n = 0;

    if (l->cp > 1) {
        n += snprintf(more + n, sizeof more - (size_t)n, ", cp %d", l->cp);
    }
    if (l->ep > 1 || l->etp > 1) {
        n += snprintf(more + n, sizeof more - (size_t)n, ", ep %d, etp %d",
                      l->ep, l->etp);
    }
    if (l->pp > 1) {
        n +=
            snprintf(more + n, sizeof more - (size_t)n, ", %.40s", l->schedule);
    }
    if (l->vpp > 1) {
        snprintf(more + n, sizeof more - (size_t)n, ", vpp %d", l->vpp);
    }
    snprintf(buf, MW_PLAN_TEXT_MAX,
             "tp %d, pp %d, dp %d, micro-batch %d, zero %d, recompute %s%.120s",
             l->tp, l->pp, l->dp, l->micro_batch, l->zero,
             mw_recompute_name(l->recompute), more);
    return buf;
}

/* ---- the inner dimensions --------------------------------------------------
 */
static bool is_named(const char *name, const char *const *names, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (strcmp(name, names[i]) == 0) {
            return true;
        }
    }
    return false;
}

/* Kinds whose list is made by a rule, in no time. Others plan each list
 * (zb-auto, hanayo, v-min, ...) for up to seconds, cut sequences (seq1f1b), or
 * do not train: --fix schedule= takes them. */
static void find_kinds(struct mw_space *s)
{
    static const char *const by_rule[] = {
        "1f1b",       "gpipe",          "eager-1f1b", "interleaved-1f1b",
        "looped-bfs", "interleaved-zb", "zb-h1",      "zb-h2",
        "zb-v",       "dualpipe",       "dualpipev",  "chimera"};

    for (size_t i = 0; mw_schedule_kind(i); i++) {
        const struct mw_sched_kind *kind = mw_schedule_kind(i);
        bool is_free =
            (is_named(kind->name, by_rule,
                      sizeof by_rule / sizeof by_rule[0]) ||
             (s->opts->is_full && strcmp(kind->name, "gpipe-lifo") == 0)) &&
            (!s->ctx->gpu->is_cpu || strcmp(kind->name, "1f1b") == 0);

        if (s->opts->schedule ? strcmp(kind->name, s->opts->schedule) == 0
                              : is_free) {
            MW_ASSERT(s->n_kinds < MW_SPACE_KINDS_MAX, "%s", kind->name);
            s->kind[s->n_kinds++] = kind;
        }
    }
}

static void add_order(struct mw_space *s, const char *order)
{
    snprintf(s->order[s->n_orders++], MW_SPACE_ORDER_TEXT, "%s", order);
}

/* All permutations; the default one first. */
static void all_orders(struct mw_space *s)
{
    static const char *const dim[4] = {"tp", "cp", "dp", "pp"};

    for (int a = 0; a < 4; a++) {
        for (int b = 0; b < 4; b++) {
            for (int c = 0; c < 4; c++) {
                int d = 6 - a - b - c;

                if (a == b || a == c || b == c) {
                    continue;
                }
                snprintf(s->order[s->n_orders++], MW_SPACE_ORDER_TEXT,
                         "%s-%s-%s-%s", dim[a], dim[b], dim[c], dim[d]);
            }
        }
    }
    snprintf(s->order[0], MW_SPACE_ORDER_TEXT, "tp-cp-ep-dp-pp");
    snprintf(s->order[1], MW_SPACE_ORDER_TEXT, "tp-cp-ep-pp-dp");
}

static void find_orders(struct mw_space *s)
{
    if (s->opts->order) {
        add_order(s, s->opts->order);
    } else if (s->ctx->gpu->is_cpu) {
        add_order(s, "tp-cp-ep-dp-pp");
    } else if (s->opts->is_full) {
        all_orders(s);
    } else {
        add_order(s, "tp-cp-ep-dp-pp");
        add_order(s, "tp-cp-ep-pp-dp");
    }
}

static void find_inner(struct mw_space *s)
{
    const struct mw_search_opts *o = s->opts;
    bool is_cpu = s->ctx->gpu->is_cpu;

    find_kinds(s);
    find_orders(s);
    for (int zero = 0; zero <= 3; zero++) {
        if (o->zero < 0 ? zero == 0 || !is_cpu : o->zero == zero) {
            s->zero[s->n_zero++] = zero;
        }
    }
    for (int r = MW_RECOMPUTE_NONE; r <= MW_RECOMPUTE_FULL; r++) {
        if (o->recompute < 0 ? r == 0 || !is_cpu : o->recompute == r) {
            s->recompute[s->n_recompute++] = r;
        }
    }
    if (o->sp >= 0 || is_cpu) {
        s->sp[s->n_sp++] = o->sp > 0;
    } else {
        s->sp[s->n_sp++] = true;
        if (o->is_full && s->scenario->model.moe.n_experts == 0) {
            s->sp[s->n_sp++] = false;
        }
    }
}

/* ---- the outer dimensions --------------------------------------------------
 */

static bool list_allows(const struct mw_int_list *list, int value)
{
    bool is_allowed = list->n == 0;

    for (size_t i = 0; i < list->n; i++) {
        is_allowed = is_allowed || list->v[i] == value;
    }
    return is_allowed;
}

static void outer_experts(struct mw_space *s, struct mw_layout layout)
{
    const struct mw_moe *moe = &s->scenario->model.moe;
    int ranks = layout.tp * layout.cp * layout.dp;
    int ep_max = s->opts->ep > 0 ? s->opts->ep : moe->n_experts;

    for (int ep = 1; ep <= (ep_max > 1 ? ep_max : 1); ep++) {
        bool is_free = ep == 1 || (moe->n_experts % ep == 0 && ranks % ep == 0);

        if (s->opts->ep > 0 ? ep != s->opts->ep : !is_free) {
            continue;
        }
        layout.ep = ep;
        for (int i = 0; i < 2; i++) {
            layout.etp = i == 0 ? 1 : layout.tp;
            if (s->opts->etp > 0) {
                layout.etp = s->opts->etp;
            }
            if (i == 0 || (s->opts->etp == 0 && s->opts->is_full &&
                           moe->n_experts > 0 && layout.tp > 1)) {
                mw_array_push(&s->outer, layout);
            }
        }
    }
}

/* Free dimensions divide the ranks. What the caller fixes is tried even when
 * the product is wrong, so that the answer says why. */
static void outer_dp(struct mw_space *s, struct mw_layout layout)
{
    int model_ranks = layout.tp * layout.pp * layout.cp;
    bool is_asked = s->opts->tp || s->opts->pp || s->opts->cp;

    layout.dp = s->opts->dp;
    if (layout.dp == 0 && s->n_ranks % model_ranks == 0) {
        layout.dp = s->n_ranks / model_ranks;
    }
    if (layout.dp == 0 && is_asked) {
        layout.dp = 1;
    }
    if (layout.dp > 0) {
        outer_experts(s, layout);
    }
}

static bool is_cp_free(const struct mw_space *s)
{
    return !s->ctx->gpu->is_cpu &&
           (s->opts->is_full || s->scenario->workload.seq >= CP_SEQ ||
            s->scenario->limits.cp.n > 0);
}

static bool divides(int fixed, int value, int n)
{
    return fixed > 0 ? fixed == value : n % value == 0;
}

static void find_outer(struct mw_space *s)
{
    const struct mw_search_opts *o = s->opts;
    int n = s->n_ranks;
    struct mw_layout layout;

    mw_layout_default(&layout);
    for (int tp = 1; tp <= n || tp <= o->tp; tp++) {
        if (!divides(o->tp, tp, n)) {
            continue;
        }
        for (int pp = 1; pp <= n || pp <= o->pp; pp++) {
            if (!divides(o->pp, pp, n) || (o->pp == 0 && n / tp % pp != 0)) {
                continue;
            }
            for (int cp = 1; cp <= n || cp <= o->cp; cp++) {
                if (!divides(o->cp, cp, n) ||
                    (cp > 1 && o->cp == 0 &&
                     (!is_cp_free(s) || n / tp / pp % cp != 0))) {
                    continue;
                }
                if (o->cp == 0 && !is_cp_free(s) && cp > 1) {
                    break;
                }
                layout.tp = tp;
                layout.pp = pp;
                layout.cp = cp;
                outer_dp(s, layout);
            }
        }
    }
}

void mw_space_init(struct mw_space *space, const struct mw_scenario *scenario,
                   const struct mw_cost_ctx *ctx,
                   const struct mw_search_opts *opts)
{
    *space = (struct mw_space){.scenario = scenario,
                               .ctx = ctx,
                               .opts = opts,
                               .n_ranks = ctx->n_nodes * ctx->gpus_per_node};
    space->rules = mw_rule_set_new(scenario, ctx);
    find_inner(space);
    find_outer(space);
}

void mw_space_release(struct mw_space *space)
{
    mw_rule_set_free(space->rules);
    mw_array_release(&space->outer);
}

/* ---- one item --------------------------------------------------------------
 */
/* The scenario's own limits: rule name, or NULL when they allow it. */
static const char *limit_rule(const struct mw_space *s,
                              const struct mw_layout *l)
{
    const struct mw_limits *limits = &s->scenario->limits;
    int max_tp = limits->max_tp > 0 ? limits->max_tp : s->ctx->gpus_per_node;

    if (l->tp > max_tp) {
        return "tp_node";
    }
    return list_allows(&limits->tp, l->tp) && list_allows(&limits->pp, l->pp) &&
                   list_allows(&limits->dp, l->dp) &&
                   list_allows(&limits->cp, l->cp) &&
                   list_allows(&limits->ep, l->ep) &&
                   list_allows(&limits->vpp, l->vpp) &&
                   list_allows(&limits->micro_batch, l->micro_batch)
               ? NULL
               : "limits";
}

struct walk {
    const struct mw_space *s;
    struct mw_tally *tally;
    mw_leaf_fn leaf;
    void *arg;
    uint64_t at;
    enum mw_walk how;
    int order[MW_SPACE_ORDERS_MAX], n_orders;
};

static bool kind_takes(const struct walk *w, const struct mw_sched_kind *kind,
                       const struct mw_layout *l)
{
    if (w->how == MW_WALK_SEED && w->s->opts->schedule == NULL) {
        return strcmp(kind->name, "1f1b") == 0 && l->vpp == 1;
    }
    if (l->pp == 1) { /* no pipeline: the plainest spelling */
        return w->s->opts->schedule != NULL || strcmp(kind->name, "1f1b") == 0;
    }
    if (w->s->opts->schedule && w->s->opts->vpp > 0) {
        return true; /* both asked for: let the schedule say what is wrong */
    }
    if (kind->min_chunks == 1 && kind->max_chunks == 2) {
        return l->vpp == 1; /* two routes: the other chunk is the other's */
    }
    return l->vpp >= kind->min_chunks && l->vpp <= kind->max_chunks;
}

static void drop(struct walk *w, const char *rule, const struct mw_layout *l,
                 uint64_t n)
{
    w->at += n;
    w->tally->enumerated += n;
    mw_tally_add(w->tally, rule, n, l, 0, 0);
}

static void one_leaf(struct walk *w, const struct mw_layout *layout)
{
    const struct mw_rule *broken = mw_rule_broken(w->s->rules, layout);

    if (broken) {
        drop(w, broken->id, layout, 1);
        return;
    }
    w->tally->enumerated++;
    w->tally->legal++;
    w->leaf(w->arg, layout, w->at++);
}

/* With as many leaves under a node as `leaves` says, the node is either
 * walked or dropped whole. */
static bool takes_zero(const struct walk *w, int zero,
                       const struct mw_layout *l)
{
    return w->s->opts->zero >= 0 || ((zero == 0 || l->dp * l->cp > 1) &&
                                     (zero <= 1 || w->how == MW_WALK_ALL));
}

static uint64_t walk_inner(struct walk *w, struct mw_layout layout,
                           bool only_count)
{
    const struct mw_space *s = w->s;
    uint64_t n = 0;

    for (int o = 0; o < w->n_orders; o++) {
        layout.order = s->order[w->order[o]];
        for (int r = 0; r < s->n_recompute; r++) {
            layout.recompute = (enum mw_recompute)s->recompute[r];
            for (int z = 0; z < s->n_zero; z++) {
                if (!takes_zero(w, s->zero[z], &layout)) {
                    continue;
                }
                layout.zero = s->zero[z];
                for (int k = 0; k < s->n_kinds; k++) {
                    if (!kind_takes(w, s->kind[k], &layout)) {
                        continue;
                    }
                    layout.schedule = s->kind[k]->name;
                    n++;
                    if (!only_count) {
                        one_leaf(w, &layout);
                    }
                }
            }
        }
    }
    return n;
}

static void walk_chunks(struct walk *w, struct mw_layout layout)
{
    const struct mw_space *s = w->s;
    int n_layers = s->scenario->model.n_layers, last_size = 0;

    for (int v = 1; v <= MW_SPACE_VPP_MAX || v <= s->opts->vpp; v++) {
        int size = (n_layers + layout.pp * v - 1) / (layout.pp * v);
        bool is_free = v == 1 || (layout.pp > 1 && layout.pp * v <= n_layers &&
                                  size < last_size);
        const char *rule;

        if (s->opts->vpp > 0 ? v != s->opts->vpp : !is_free) {
            continue;
        }
        last_size = size;
        layout.vpp = v;
        rule = limit_rule(s, &layout);
        if (!rule) {
            mw_layout_check(&layout, &s->scenario->model,
                            &s->scenario->workload, s->n_ranks, &rule, NULL);
        }
        if (rule) {
            uint64_t n = walk_inner(w, layout, true);

            if (n > 0) {
                drop(w, rule, &layout, n);
            }
        } else {
            walk_inner(w, layout, false);
        }
        if (w->how == MW_WALK_SEED && !s->opts->schedule && v >= s->opts->vpp) {
            break;
        }
    }
}

/* Orders that place the groups of more than one rank alike are walked once. */
static void distinct_orders(struct walk *w, const struct mw_layout *l)
{
    char seen[MW_SPACE_ORDERS_MAX][MW_SPACE_ORDER_TEXT];

    w->n_orders = 0;
    for (int o = 0; o < w->s->n_orders; o++) {
        const char *at = w->s->order[o];
        char *out = seen[w->n_orders];
        bool is_new = true;
        size_t n = 0;

        for (; *at; at += at[2] ? 3 : 2) {
            int size = strncmp(at, "tp", 2) == 0   ? l->tp
                       : strncmp(at, "cp", 2) == 0 ? l->cp
                       : strncmp(at, "dp", 2) == 0 ? l->dp
                       : strncmp(at, "pp", 2) == 0 ? l->pp
                                                   : 1;

            if (size > 1) {
                memcpy(out + n, at, 2);
                n += 2;
            }
        }
        out[n] = '\0';
        for (int i = 0; i < w->n_orders; i++) {
            is_new = is_new && strcmp(seen[i], out) != 0;
        }
        if (is_new && (o == 0 || w->how == MW_WALK_ALL)) {
            w->order[w->n_orders++] = o;
        }
    }
}

void mw_space_walk(const struct mw_space *space, size_t i, enum mw_walk walk,
                   struct mw_tally *tally, mw_leaf_fn leaf, void *arg)
{
    struct walk w = {space, tally, leaf, arg, 0, walk, {0}, 0};
    struct mw_layout layout = space->outer.v[i];
    int64_t share = space->scenario->workload.global_batch / layout.dp;
    int fixed = space->opts->micro_batch;
    int64_t most = space->opts->is_full ? share : MICRO_BATCH_MAX;

    distinct_orders(&w, &layout);
    for (int64_t b = 1; b <= most || b <= fixed || b == 1; b++) {
        bool is_free = b == 1 || (b <= share && share % b == 0);

        if (fixed > 0 ? b != fixed : !is_free) {
            continue;
        }
        layout.micro_batch = (int)b;
        for (int k = 0; k < space->n_sp; k++) {
            /* Without tp there is nothing to split; say so once. */
            if (layout.tp == 1 && k > 0) {
                continue;
            }
            layout.sp = space->sp[k] && (layout.tp > 1 || space->opts->sp > 0);
            walk_chunks(&w, layout);
        }
    }
}

const char *mw_space_forbids(const struct mw_space *space,
                             const struct mw_layout *layout,
                             char text[MW_PLAN_TEXT_MAX])
{
    char buf[MW_PLAN_TEXT_MAX];
    const char *rule = limit_rule(space, layout);
    struct mw_err err = {0};
    const struct mw_rule *row;

    text = text ? text : buf;
    if (rule && strcmp(rule, "tp_node") == 0) {
        snprintf(text, MW_PLAN_TEXT_MAX,
                 "tp %d crosses nodes of %d ranks; limits.max_tp allows it",
                 layout->tp, space->ctx->gpus_per_node);
        return rule;
    }
    if (rule) {
        char what[MW_PLAN_TEXT_MAX];

        snprintf(text, MW_PLAN_TEXT_MAX, "%.200s is excluded by limits",
                 mw_layout_text(layout, what));
        return rule;
    }
    if (mw_layout_check(layout, &space->scenario->model,
                        &space->scenario->workload, space->n_ranks, &rule,
                        &err) != MW_OK) {
        snprintf(text, MW_PLAN_TEXT_MAX, "%.*s", MW_PLAN_TEXT_MAX - 1,
                 err.text);
        return rule ? rule : "layout";
    }
    row = mw_rule_broken(space->rules, layout);
    if (row) {
        struct mw_str words = {0};

        mw_rule_explain(space->rules, row, layout, &words);
        snprintf(text, MW_PLAN_TEXT_MAX, "%.*s", MW_PLAN_TEXT_MAX - 1, words.s);
        mw_str_release(&words);
        return row->id;
    }
    return NULL;
}
