/*
 * The walk of one outer item: micro-batch, sp, context parallelism, types,
 * switches of overlap, chunks, then order, recomputation and ZeRO; what lies
 * under those is in space_rare.c. A node that breaks a rule is dropped with as
 * many layouts as it has leaves, so that counts do not depend on where a rule
 * is tested.
 */
#include "planner/space_int.h"

#include <string.h>

enum { MICRO_BATCH_MAX = 64 };

/* Stages of ZeRO, where there are gradients of several to sum; seeds have the
 * first, or the first two. */
static uint64_t walk_zero(struct mw_space_walker *w, struct mw_layout layout,
                          bool only_count)
{
    const struct mw_space *s = w->s;
    uint64_t n = 0;

    layout.zero = 0;
    if (s->opts->zero < 0 && layout.dp * layout.cp == 1) {
        return mw_walk_rare(w, layout, only_count);
    }
    for (int z = 0; z < s->n_zero; z++) {
        if (z == 0 || s->zero[z] <= 1 || w->how == MW_WALK_ALL) {
            layout.zero = s->zero[z];
            n += mw_walk_rare(w, layout, only_count);
        }
    }
    return n;
}

static uint64_t walk_inner(struct mw_space_walker *w, struct mw_layout layout,
                           bool only_count)
{
    const struct mw_space *s = w->s;
    uint64_t n = 0;

    for (int o = 0; o < w->n_orders; o++) {
        layout.order = s->order[w->order[o]];
        for (int r = 0; r < s->n_recompute; r++) {
            layout.recompute = (enum mw_recompute)s->recompute[r];
            n += walk_zero(w, layout, only_count);
        }
    }
    return n;
}

static void walk_chunks(struct mw_space_walker *w, struct mw_layout layout)
{
    const struct mw_space *s = w->s;
    int n_layers = s->scenario->model.n_layers, last_size = 0;

    for (int v = 1; v <= MW_SPACE_VPP_MAX || v <= s->opts->vpp; v++) {
        int size = (n_layers + layout.pp * v - 1) / (layout.pp * v);
        bool is_free =
            v == 1 || (layout.pp > 1 && layout.pp * v <= n_layers + 2 &&
                       (size < last_size ||
                        mw_int_list_holds(&s->scenario->limits.vpp, v)));
        const char *rule;

        if (s->opts->vpp > 0 ? v != s->opts->vpp : !is_free) {
            continue;
        }
        last_size = size;
        layout.vpp = v;
        rule = mw_space_limit_rule(s, &layout);
        if (!rule) {
            mw_layout_check(&layout, &s->scenario->model,
                            &s->scenario->workload, s->n_ranks, &rule, NULL);
        }
        if (rule) {
            uint64_t n = walk_inner(w, layout, true);

            if (n > 0) {
                mw_walk_drop(w, rule, &layout, n);
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
static void distinct_orders(struct mw_space_walker *w,
                            const struct mw_layout *l)
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

/* All replicas, and where asked for groups of so many. */
static void find_shards(struct mw_space_walker *w, const struct mw_layout *l)
{
    const struct mw_search_opts *o = w->s->opts;
    bool is_free = o->dp_shard < 0 && w->how == MW_WALK_ALL &&
                   !w->s->ctx->gpu->is_cpu && (o->free & MW_FREE_DP_SHARD) != 0;

    const struct mw_int_list *listed = &w->s->scenario->limits.dp_shard;

    w->n_shards = 0;
    if (o->dp_shard < 0 && listed->n > 0) {
        for (int d = 0; d <= l->dp; d++) {
            bool is_twice = d == l->dp && mw_int_list_holds(listed, 0);

            if ((d == 0 || l->dp % d == 0) && !is_twice &&
                mw_int_list_holds(listed, d) &&
                w->n_shards < MW_SPACE_SHARDS_MAX) {
                w->shard[w->n_shards++] = d;
            }
        }
        return;
    }
    w->shard[w->n_shards++] = o->dp_shard > 0 ? o->dp_shard : 0;
    for (int d = 2; is_free && d < l->dp; d++) {
        if (l->dp % d == 0 && w->n_shards < MW_SPACE_SHARDS_MAX) {
            w->shard[w->n_shards++] = d;
        }
    }
}

/* Switches of overlap that have something to switch. */
static void walk_overlap(struct mw_space_walker *w, struct mw_layout layout)
{
    const struct mw_search_opts *o = w->s->opts;
    const struct mw_int_list *listed = &w->s->scenario->limits.overlap_off;
    bool is_free = !w->s->ctx->gpu->is_cpu && w->how == MW_WALK_ALL &&
                   (o->free & MW_FREE_OVERLAP) != 0;
    int has = mw_layout_can_show(&layout);

    if (o->overlap_off >= 0) {
        layout.overlap_off = o->overlap_off;
        walk_chunks(w, layout);
        return;
    }
    for (int off = 0; off <= has; off++) {
        if ((off & ~has) == 0 &&
            (listed->n > 0 ? mw_limits_sets_allow(listed, off, has)
                           : off == 0 || is_free)) {
            layout.overlap_off = off;
            walk_chunks(w, layout);
            if (w->how == MW_WALK_SEED) {
                return;
            }
        }
    }
}

/* Types of the optimizer's states: mostly the workload's. */
static void walk_states(struct mw_space_walker *w, struct mw_layout layout)
{
    for (int i = 0; i < w->s->n_states; i++) {
        layout.main_params = w->s->state[i].main;
        layout.exp_avg = w->s->state[i].exp_avg;
        layout.exp_avg_sq = w->s->state[i].exp_avg_sq;
        walk_overlap(w, layout);
        if (w->how == MW_WALK_SEED) {
            return;
        }
    }
}

static void walk_types(struct mw_space_walker *w, struct mw_layout layout)
{
    for (int d = 0; d < w->s->n_dtypes; d++) {
        layout.dtype = w->s->dtype[d];
        for (int g = 0; g < w->s->n_grad_dtypes; g++) {
            layout.grad_dtype = w->s->grad_dtype[g];
            walk_states(w, layout);
        }
    }
}

/* Is it enumerated how many ranks of a cp group deal out heads? */
static bool takes_inner(const struct mw_space_walker *w,
                        const struct mw_layout *l, int inner)
{
    const struct mw_space *s = w->s;
    const struct mw_int_list *listed = &s->scenario->limits.cp_inner;
    bool is_free = !s->ctx->gpu->is_cpu && w->how == MW_WALK_ALL &&
                   (s->opts->free & MW_FREE_CP_INNER) != 0;

    if (s->opts->cp_inner > 0) {
        return inner == s->opts->cp_inner;
    }
    return l->cp % inner == 0 &&
           (inner == 1 || ((is_free || listed->n > 0) && inner < l->cp &&
                           l->cp_form != MW_CP_A2A)) &&
           (l->cp == 1 || mw_limits_list_allows(listed, inner));
}

/* Forms of context parallelism, and all-to-alls inside them. */
static void walk_context(struct mw_space_walker *w, struct mw_layout layout)
{
    for (int c = 0; c < w->s->n_cp_forms; c++) {
        if (layout.cp == 1 && c > 0) {
            break;
        }
        layout.cp_form = layout.cp == 1 && w->s->opts->cp_form < 0
                             ? MW_CP_GATHER
                             : w->s->cp_form[c];
        for (int i = 1; i <= layout.cp || i <= w->s->opts->cp_inner; i++) {
            if (takes_inner(w, &layout, i)) {
                layout.cp_inner = i;
                walk_types(w, layout);
            }
        }
    }
}

void mw_space_walk(const struct mw_space *space, size_t i, enum mw_walk walk,
                   struct mw_tally *tally, mw_leaf_fn leaf, void *arg)
{
    struct mw_space_walker w = {
        .s = space, .tally = tally, .leaf = leaf, .arg = arg, .how = walk};
    struct mw_layout layout = space->outer.v[i];
    int64_t share = space->scenario->workload.global_batch / layout.dp;
    int fixed = space->opts->micro_batch;
    bool has_large =
        space->opts->is_full || space->scenario->limits.micro_batch.n > 0;
    int64_t most = has_large ? share : MICRO_BATCH_MAX;

    distinct_orders(&w, &layout);
    find_shards(&w, &layout);
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
            walk_context(&w, layout);
        }
    }
}
