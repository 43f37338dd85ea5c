/*
 * The last levels of the walk: dimensions that mostly have one way each (groups
 * of replicas, resharding, ZeRO-3's units, compression, offload, buckets,
 * places of multi-token prediction, graphs, ways to the experts, what is
 * recomputed) and schedules, the leaves. With as many leaves under a node as
 * these functions count when they are told only to count, a node above is
 * walked or dropped whole.
 */
#include "planner/space_int.h"

#include <string.h>

static bool kind_takes(const struct mw_space_walker *w,
                       const struct mw_sched_kind *kind,
                       const struct mw_layout *l)
{
    if (w->how == MW_WALK_SEED && w->s->has_plain) {
        return strcmp(kind->name, "1f1b") == 0 && l->vpp == 1;
    }
    if (l->pp == 1 || (w->s->opts->schedule && w->s->opts->vpp > 0)) {
        return true; /* both asked for: let the schedule say what is wrong */
    }
    if (kind->min_chunks == 1 && kind->max_chunks == 2) {
        return l->vpp == 1; /* two routes: the other chunk is the other's */
    }
    return l->vpp >= kind->min_chunks && l->vpp <= kind->max_chunks;
}

void mw_walk_drop(struct mw_space_walker *w, const char *rule,
                  const struct mw_layout *l, uint64_t n)
{
    w->at += n;
    w->tally->enumerated += n;
    mw_tally_add(w->tally, rule, n, l, 0, 0);
}

static void one_leaf(struct mw_space_walker *w, const struct mw_layout *layout)
{
    const struct mw_rule *broken = mw_rule_broken(w->s->rules, layout);
    const struct mw_workload *work = &w->s->scenario->workload;
    const char *rule = NULL;

    /* The rest of its rules was checked further up, with ZeRO-0. */
    if ((work->optimizer.kind != MW_OPTIMIZER_ADAMW || layout->dp_shard > 0 ||
         layout->cp_inner > 1 || mw_layout_keeps_layers(layout) ||
         layout->recompute_modules != 0 || !layout->reshard ||
         layout->bucket_size > 0 || layout->mtp_ahead > 0 ||
         layout->vpp_group > 0 ||
         layout->main_params + layout->exp_avg + layout->exp_avg_sq > 0 ||
         layout->fsdp_unit != 1 || layout->fsdp_prefetch >= 0 ||
         layout->dispatcher != MW_DISPATCH_STACK ||
         layout->overlap_shared_experts ||
         layout->grad_compression != MW_COMPRESS_NONE ||
         layout->offload_nvme != MW_NVME_NONE || mw_layout_offloads(layout)) &&
        mw_layout_check(layout, &w->s->scenario->model,
                        &w->s->scenario->workload, w->s->n_ranks, &rule,
                        NULL) != MW_OK) {
        mw_walk_drop(w, rule, layout, 1);
        return;
    }
    if (broken || (w->s->has_lists && !mw_space_allows_rare(w->s, layout))) {
        mw_walk_drop(w, broken ? broken->id : "limits", layout, 1);
        return;
    }
    w->tally->enumerated++;
    w->tally->legal++;
    w->leaf(w->arg, layout, w->at++);
}

/* Sizes of the groups that go through chunks in turn: as many micro-batches as
 * stages, and where asked for twice, four times as many, ..., and all. */
static uint64_t walk_groups(struct mw_space_walker *w, struct mw_layout layout,
                            bool only_count)
{
    const struct mw_space *s = w->s;
    const struct mw_int_list *listed = &s->scenario->limits.vpp_group;
    int fixed = s->opts->vpp_group;
    int m = mw_microbatches(&layout, &s->scenario->workload);
    bool is_free = fixed < 0 && layout.vpp > 1 && mw_layout_is_grouped(&layout);
    bool has_more = is_free && w->how == MW_WALK_ALL && listed->n == 0 &&
                    (s->opts->free & MW_FREE_VPP_GROUP) != 0;
    uint64_t n = 0;

    layout.vpp_group = fixed > 0 ? fixed : 0;
    for (size_t i = 0; i < (is_free && listed->n > 0 ? listed->n : 1); i++) {
        layout.vpp_group =
            is_free && listed->n > 0 ? (int)listed->v[i] : layout.vpp_group;
        n++;
        if (!only_count) {
            one_leaf(w, &layout);
        }
    }
    for (int64_t g = 2 * (int64_t)layout.pp; has_more && g < 2 * (int64_t)m;
         g *= 2) {
        layout.vpp_group = g < m ? (int)g : m;
        n++;
        if (!only_count) {
            one_leaf(w, &layout);
        }
    }
    return n;
}

/* Schedules under all that is set but them. */
static uint64_t walk_kinds(struct mw_space_walker *w, struct mw_layout layout,
                           bool only_count)
{
    const struct mw_space *s = w->s;
    uint64_t n = 0;

    if (layout.pp == 1 && !s->opts->schedule) { /* the plainest spelling */
        layout.schedule = "1f1b";
        if (!only_count) {
            one_leaf(w, &layout);
        }
        return 1;
    }
    for (int k = 0; k < s->n_kinds; k++) {
        if (!kind_takes(w, s->kind[k], &layout)) {
            continue;
        }
        layout.schedule = s->kind[k]->name;
        n += walk_groups(w, layout, only_count);
    }
    return n;
}

/* Layers that are recomputed: all of a stage (0), and where asked for fewer. */
static uint64_t walk_recomputed(struct mw_space_walker *w,
                                struct mw_layout layout, bool only_count)
{
    const struct mw_search_opts *o = w->s->opts;
    int n_layers = w->s->scenario->model.n_layers;
    int stages = layout.pp * layout.vpp,
        most = (n_layers + stages - 1) / stages;
    bool is_free = o->recompute_layers < 0 && w->how == MW_WALK_ALL &&
                   (o->free & MW_FREE_RECOMPUTE_LAYERS) != 0 &&
                   layout.recompute != MW_RECOMPUTE_NONE &&
                   !w->s->ctx->gpu->is_cpu;
    const struct mw_int_list *listed = &w->s->scenario->limits.recompute_layers;
    bool is_listed = o->recompute_layers < 0 && listed->n > 0 &&
                     layout.recompute != MW_RECOMPUTE_NONE;
    uint64_t n = 0;

    for (size_t i = 0; is_listed && i < listed->n; i++) {
        layout.recompute_layers = (int)listed->v[i];
        if (layout.recompute_layers < most || !mw_int_list_holds(listed, 0)) {
            n += walk_kinds(w, layout, only_count);
        }
    }
    if (is_listed) {
        return n;
    }
    layout.recompute_layers = o->recompute_layers > 0 ? o->recompute_layers : 0;
    n += walk_kinds(w, layout, only_count);
    for (int k = 1; is_free && k < most; k++) {
        layout.recompute_layers = k;
        n += walk_kinds(w, layout, only_count);
    }
    return n;
}

/* What selective recomputation repeats. */
static uint64_t walk_modules(struct mw_space_walker *w, struct mw_layout layout,
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
static uint64_t walk_shared(struct mw_space_walker *w, struct mw_layout layout,
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
static uint64_t walk_dispatchers(struct mw_space_walker *w,
                                 struct mw_layout layout, bool only_count)
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
static uint64_t walk_graphs(struct mw_space_walker *w, struct mw_layout layout,
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
static uint64_t walk_mtp(struct mw_space_walker *w, struct mw_layout layout,
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
static uint64_t walk_buckets(struct mw_space_walker *w, struct mw_layout layout,
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

/* Does the walk put this on drives? A fixed choice is tried whatever it is. */
static bool takes_nvme(const struct mw_space *s, unsigned nvme,
                       const struct mw_layout *l)
{
    return s->opts->offload_nvme >= 0 ||
           (((nvme & MW_NVME_OPTIMIZER) == 0 || l->offload_optimizer > 0) &&
            ((nvme & MW_NVME_WEIGHTS) == 0 || l->offload_weights > 0));
}

/* What is offloaded, and what of it lies on drives. */
static uint64_t walk_offloads(struct mw_space_walker *w,
                              struct mw_layout layout, bool only_count)
{
    const struct mw_space *s = w->s;
    uint64_t n = 0;

    for (int o = 0; o < s->n_offloads; o++) {
        layout.offload_optimizer = s->offload[o][0];
        layout.offload_weights = s->offload[o][1];
        layout.offload_activations = s->offload[o][2];
        layout.offload_nvme = MW_NVME_NONE;
        if (s->opts->offload_nvme < 0 && !mw_layout_can_spill(&layout)) {
            n += walk_buckets(w, layout, only_count);
            continue;
        }
        for (int i = 0; i < s->n_nvmes; i++) {
            layout.offload_nvme = s->nvme[i];
            if (takes_nvme(s, (unsigned)layout.offload_nvme, &layout)) {
                n += walk_buckets(w, layout, only_count);
            }
        }
    }
    return n;
}

/* Compression of gradients and offload: mostly one way each. */
static uint64_t walk_compressed(struct mw_space_walker *w,
                                struct mw_layout layout, bool only_count)
{
    const struct mw_space *s = w->s;
    uint64_t n = 0;

    for (int c = 0; c < s->n_compressions; c++) {
        if (c > 0 && layout.dp * layout.cp == 1) {
            break; /* nothing is sent */
        }
        layout.grad_compression = s->compression[c];
        n += walk_offloads(w, layout, only_count);
    }
    return n;
}

/* Units of ZeRO-3 and how far they are gathered ahead: mostly one way each.
 * Of those not listed, no more than one that takes all of a stage's layers. */
static uint64_t walk_units(struct mw_space_walker *w, struct mw_layout layout,
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

/* Resharding, which ZeRO-3 alone has a choice of. */
static uint64_t walk_reshard(struct mw_space_walker *w, struct mw_layout layout,
                             bool only_count)
{
    const struct mw_space *s = w->s;
    uint64_t n = 0;

    layout.reshard = true;
    if (layout.zero < 3 && s->opts->reshard < 0) {
        return walk_units(w, layout, only_count);
    }
    for (int r = 0; r < s->n_reshard; r++) {
        layout.reshard = s->reshard[r];
        n += walk_units(w, layout, only_count);
    }
    return n;
}

/* Groups of replicas, where something is sharded. */
uint64_t mw_walk_rare(struct mw_space_walker *w, struct mw_layout layout,
                      bool only_count)
{
    const struct mw_space *s = w->s;
    uint64_t n = 0;

    layout.dp_shard = 0;
    if (layout.zero == 0 && s->opts->dp_shard < 0) {
        return walk_reshard(w, layout, only_count);
    }
    for (int i = 0; i < w->n_shards; i++) {
        layout.dp_shard = w->shard[i];
        n += walk_reshard(w, layout, only_count);
    }
    return n;
}
