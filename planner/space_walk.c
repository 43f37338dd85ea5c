/*
 * The walk of one outer item: micro-batch, sp, chunks, then order, recompute,
 * ZeRO and schedule. A node that breaks a rule is dropped with as many layouts
 * as it has leaves, so that counts do not depend on where a rule is tested.
 */
#include "planner/space.h"

#include <stdio.h>
#include <string.h>

enum { MICRO_BATCH_MAX = 64 };

/* ---- one item --------------------------------------------------------------
 */
struct walk {
    const struct mw_space *s;
    struct mw_tally *tally;
    mw_leaf_fn leaf;
    void *arg;
    uint64_t at;
    enum mw_walk how;
    int order[MW_SPACE_ORDERS_MAX], n_orders;
    int shard[MW_SPACE_SHARDS_MAX], n_shards; /* values of dp_shard */
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
    const struct mw_workload *work = &w->s->scenario->workload;
    const char *rule = NULL;

    /* The rest of its rules was checked further up, with ZeRO-0. */
    if ((work->optimizer.kind != MW_OPTIMIZER_ADAMW || layout->dp_shard > 0 ||
         layout->cp_inner > 1 || layout->recompute_layers > 0 ||
         layout->recompute_modules != 0 || !layout->reshard ||
         layout->bucket_size > 0 || layout->mtp_ahead > 0 ||
         layout->fsdp_unit != 1 || layout->fsdp_prefetch >= 0 ||
         layout->dispatcher != MW_DISPATCH_STACK ||
         layout->overlap_shared_experts ||
         layout->grad_compression != MW_COMPRESS_NONE ||
         layout->offload_nvme != MW_NVME_NONE || mw_layout_offloads(layout)) &&
        mw_layout_check(layout, &w->s->scenario->model,
                        &w->s->scenario->workload, w->s->n_ranks, &rule,
                        NULL) != MW_OK) {
        drop(w, rule, layout, 1);
        return;
    }
    if (broken || (w->s->has_lists && !mw_space_allows_rare(w->s, layout))) {
        drop(w, broken ? broken->id : "limits", layout, 1);
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

/* Schedules under all that is set but them. */
static uint64_t walk_kinds(struct walk *w, struct mw_layout layout,
                           bool only_count)
{
    const struct mw_space *s = w->s;
    uint64_t n = 0;

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
    return n;
}

/* Layers that are recomputed: all of a stage (0), and where asked for fewer. */
static uint64_t walk_recomputed(struct walk *w, struct mw_layout layout,
                                bool only_count)
{
    const struct mw_search_opts *o = w->s->opts;
    int n_layers = w->s->scenario->model.n_layers;
    int stages = layout.pp * layout.vpp,
        most = (n_layers + stages - 1) / stages;
    bool is_free = o->recompute_layers < 0 && w->how == MW_WALK_ALL &&
                   (o->free & MW_FREE_RECOMPUTE_LAYERS) != 0 &&
                   layout.recompute != MW_RECOMPUTE_NONE &&
                   !w->s->ctx->gpu->is_cpu;
    uint64_t n = 0;

    layout.recompute_layers = o->recompute_layers > 0 ? o->recompute_layers : 0;
    n += walk_kinds(w, layout, only_count);
    for (int k = 1; is_free && k < most; k++) {
        layout.recompute_layers = k;
        n += walk_kinds(w, layout, only_count);
    }
    return n;
}

/* What selective recomputation repeats. */
static uint64_t walk_modules(struct walk *w, struct mw_layout layout,
                             bool only_count)
{
    const struct mw_space *s = w->s;
    bool is_free = layout.recompute == MW_RECOMPUTE_SELECTIVE ||
                   s->opts->recompute_modules > 0;
    uint64_t n = 0;

    for (int i = 0; i < (is_free ? s->n_modules : 1); i++) {
        layout.recompute_modules = is_free ? s->modules[i] : 0;
        n += walk_recomputed(w, layout, only_count);
        if (w->how == MW_WALK_SEED) {
            break;
        }
    }
    return n;
}

/* Shared experts beside exchanges: where there are both. */
static uint64_t walk_shared(struct walk *w, struct mw_layout layout,
                            bool only_count)
{
    const struct mw_int_list *overlaps = &w->s->overlaps;
    int fixed = w->s->opts->overlap_shared_experts;
    uint64_t n = 0;

    layout.overlap_shared_experts = fixed > 0;
    if (fixed >= 0 ||
        !mw_layout_can_overlap_shared(&layout, &w->s->scenario->model)) {
        return walk_modules(w, layout, only_count);
    }
    for (size_t i = 0; i < overlaps->n; i++) {
        layout.overlap_shared_experts = overlaps->v[i] != 0;
        n += walk_modules(w, layout, only_count);
        if (w->how == MW_WALK_SEED) {
            break;
        }
    }
    return n;
}

/* Ways to the experts: mostly the stack's alone, and without experts on other
 * ranks always. */
static uint64_t walk_dispatchers(struct walk *w, struct mw_layout layout,
                                 bool only_count)
{
    const struct mw_int_list *ways = &w->s->dispatchers;
    int fixed = w->s->opts->dispatcher;
    uint64_t n = 0;

    layout.dispatcher =
        fixed > 0 ? (enum mw_dispatcher)fixed : MW_DISPATCH_STACK;
    if (fixed >= 0 || layout.ep == 1) {
        return walk_shared(w, layout, only_count);
    }
    for (size_t i = 0; i < ways->n; i++) {
        layout.dispatcher = (enum mw_dispatcher)ways->v[i];
        n += walk_shared(w, layout, only_count);
        if (w->how == MW_WALK_SEED) {
            break;
        }
    }
    return n;
}

/* Scopes of CUDA graphs: mostly the stack's alone. */
static uint64_t walk_graphs(struct walk *w, struct mw_layout layout,
                            bool only_count)
{
    const struct mw_int_list *graphs = &w->s->graphs;
    int fixed = w->s->opts->cuda_graph;
    uint64_t n = 0;

    if (fixed >= 0) {
        layout.cuda_graph = (enum mw_cuda_graph)fixed;
        return walk_dispatchers(w, layout, only_count);
    }
    for (size_t i = 0; i < graphs->n; i++) {
        layout.cuda_graph = (enum mw_cuda_graph)graphs->v[i];
        n += walk_dispatchers(w, layout, only_count);
        if (w->how == MW_WALK_SEED) {
            break;
        }
    }
    return n;
}

/* Places of multi-token prediction: mostly with the head. Pipelines too short
 * for another take it where nothing else is asked for, and say so. */
static uint64_t walk_mtp(struct walk *w, struct mw_layout layout,
                         bool only_count)
{
    const struct mw_space *s = w->s;
    uint64_t n = 0;

    for (int i = 0; i < s->n_mtp; i++) {
        layout.mtp_ahead = s->mtp_ahead[i];
        if (i > 0 && layout.pp * layout.vpp < 3) {
            break;
        }
        n += walk_graphs(w, layout, only_count);
        if (w->how == MW_WALK_SEED) {
            break;
        }
    }
    return n;
}

/* Sizes of buckets: mostly the stack's alone. */
static uint64_t walk_buckets(struct walk *w, struct mw_layout layout,
                             bool only_count)
{
    const struct mw_int_list *sizes = &w->s->buckets;
    int fixed = w->s->opts->bucket_size;
    uint64_t n = 0;

    layout.bucket_size = fixed > 0 ? fixed : 0;
    if (fixed >= 0 || !mw_layout_has_buckets(&layout)) {
        return walk_mtp(w, layout, only_count);
    }
    for (size_t i = 0; i < sizes->n; i++) {
        layout.bucket_size = (int)sizes->v[i];
        n += walk_mtp(w, layout, only_count);
        if (w->how == MW_WALK_SEED) {
            break;
        }
    }
    return n;
}

/* Compression of gradients and offload: mostly one way each. */
static uint64_t walk_compressed(struct walk *w, struct mw_layout layout,
                                bool only_count)
{
    const struct mw_space *s = w->s;
    uint64_t n = 0;

    for (int c = 0; c < s->n_compressions; c++) {
        if (c > 0 && layout.dp * layout.cp == 1) {
            break; /* nothing is sent */
        }
        layout.grad_compression = s->compression[c];
        for (int o = 0; o < s->n_offloads; o++) {
            layout.offload_optimizer = s->offload[o][0];
            layout.offload_weights = s->offload[o][1];
            layout.offload_activations = s->offload[o][2];
            n += walk_buckets(w, layout, only_count);
        }
    }
    return n;
}

/* Units of ZeRO-3 and how far they are gathered ahead: mostly one way each.
 * Of those not listed, no more than one that takes all of a stage's layers. */
static uint64_t walk_units(struct walk *w, struct mw_layout layout,
                           bool only_count)
{
    const struct mw_space *s = w->s;
    int unit = s->opts->fsdp_unit, ahead = s->opts->fsdp_prefetch;
    int chunks = layout.pp * layout.vpp;
    int size = (s->scenario->model.n_layers + chunks - 1) / chunks;
    bool is_listed = s->scenario->limits.fsdp_unit.n > 0,
         is_free = layout.zero == 3;
    uint64_t n = 0;

    for (size_t i = 0; i < (unit >= 0 || !is_free ? 1 : s->fsdp_units.n); i++) {
        layout.fsdp_unit = unit >= 0 ? unit
                           : is_free ? (int)s->fsdp_units.v[i]
                                     : 1;
        if (unit < 0 && is_free && !is_listed && i > 0 &&
            layout.fsdp_unit >= size) {
            continue;
        }
        for (size_t j = 0;
             j < (ahead >= 0 || !is_free ? 1 : s->fsdp_prefetches.n); j++) {
            layout.fsdp_prefetch = ahead >= 0 ? ahead
                                   : is_free  ? (int)s->fsdp_prefetches.v[j]
                                              : -1;
            n += walk_compressed(w, layout, only_count);
            if (w->how == MW_WALK_SEED) {
                return n;
            }
        }
    }
    return n;
}

/* Groups of replicas and resharding. */
static uint64_t walk_rare(struct walk *w, struct mw_layout layout,
                          bool only_count)
{
    const struct mw_space *s = w->s;
    bool is_fixed_shard = s->opts->dp_shard > 0;
    bool is_fixed_reshard = s->opts->reshard >= 0;
    uint64_t n = 0;

    layout.offload_nvme = s->opts->offload_nvme > 0
                              ? (enum mw_offload_nvme)s->opts->offload_nvme
                              : MW_NVME_NONE;
    for (int i = 0; i < w->n_shards; i++) {
        if (i > 0 && layout.zero == 0 && !is_fixed_shard) {
            break;
        }
        layout.dp_shard = w->shard[i];
        for (int r = 0; r < s->n_reshard; r++) {
            if (r > 0 && layout.zero < 3 && !is_fixed_reshard) {
                break;
            }
            layout.reshard = s->reshard[r];
            n += walk_units(w, layout, only_count);
        }
    }
    return n;
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
                n += walk_rare(w, layout, only_count);
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
        bool is_free =
            v == 1 || (layout.pp > 1 && layout.pp * v <= n_layers + 2 &&
                       size < last_size);
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

/* All replicas, and where asked for groups of so many. */
static void find_shards(struct walk *w, const struct mw_layout *l)
{
    const struct mw_search_opts *o = w->s->opts;
    bool is_free = o->dp_shard < 0 && w->how == MW_WALK_ALL &&
                   !w->s->ctx->gpu->is_cpu && (o->free & MW_FREE_DP_SHARD) != 0;

    w->n_shards = 0;
    w->shard[w->n_shards++] = o->dp_shard > 0 ? o->dp_shard : 0;
    for (int d = 2; is_free && d < l->dp; d++) {
        if (l->dp % d == 0 && w->n_shards < MW_SPACE_SHARDS_MAX) {
            w->shard[w->n_shards++] = d;
        }
    }
}

/* Switches of overlap that have something to switch. */
static void walk_overlap(struct walk *w, struct mw_layout layout)
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

static void walk_types(struct walk *w, struct mw_layout layout)
{
    for (int d = 0; d < w->s->n_dtypes; d++) {
        layout.dtype = w->s->dtype[d];
        for (int g = 0; g < w->s->n_grad_dtypes; g++) {
            layout.grad_dtype = w->s->grad_dtype[g];
            walk_overlap(w, layout);
        }
    }
}

/* Is it enumerated how many ranks of a cp group deal out heads? */
static bool takes_inner(const struct walk *w, const struct mw_layout *l,
                        int inner)
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
static void walk_context(struct walk *w, struct mw_layout layout)
{
    for (int c = 0; c < w->s->n_cp_forms; c++) {
        if (layout.cp == 1 && c > 0) {
            break;
        }
        layout.cp_form = w->s->cp_form[c];
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
    struct walk w = {
        .s = space, .tally = tally, .leaf = leaf, .arg = arg, .how = walk};
    struct mw_layout layout = space->outer.v[i];
    int64_t share = space->scenario->workload.global_batch / layout.dp;
    int fixed = space->opts->micro_batch;
    int64_t most = space->opts->is_full ? share : MICRO_BATCH_MAX;

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
