/*
 * The inner dimensions of the space: which values each has where it is open.
 * One that --fix pins has that one, one that the scenario's limits list has
 * those that are listed (space.h), else what is free by default or by --free.
 */
#include "planner/space_int.h"

#include <stdio.h>
#include <string.h>

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

/* Is a value enumerated: the one that is fixed, else those that the limits
 * list, else what is free. */
static bool is_taken(int fixed, const struct mw_int_list *listed, int value,
                     bool is_free)
{
    return fixed >= 0      ? value == fixed
           : listed->n > 0 ? mw_int_list_holds(listed, value)
                           : is_free;
}

/* Kinds whose list is made by a rule, in no time. Others plan each list
 * (zb-auto, hanayo, v-min, ...) for up to seconds, cut sequences (seq1f1b), or
 * do not train: --fix schedule= and a list of the limits take them. */
static void find_kinds(struct mw_space *s)
{
    static const char *const by_rule[] = {
        "1f1b",       "gpipe",          "eager-1f1b", "interleaved-1f1b",
        "looped-bfs", "interleaved-zb", "zb-h1",      "zb-h2",
        "zb-v",       "dualpipe",       "dualpipev",  "chimera"};
    const struct mw_str_list *listed = &s->scenario->limits.schedule;

    for (size_t i = 0; mw_schedule_kind(i); i++) {
        const struct mw_sched_kind *kind = mw_schedule_kind(i);
        bool is_free =
            (is_named(kind->name, by_rule,
                      sizeof by_rule / sizeof by_rule[0]) ||
             (s->opts->is_full && strcmp(kind->name, "gpipe-lifo") == 0)) &&
            (!s->ctx->gpu->is_cpu || strcmp(kind->name, "1f1b") == 0);

        if (s->opts->schedule ? strcmp(kind->name, s->opts->schedule) == 0
            : listed->n > 0   ? is_named(kind->name, listed->v, listed->n)
                              : is_free) {
            MW_ASSERT(s->n_kinds < MW_SPACE_KINDS_MAX, "%s", kind->name);
            s->kind[s->n_kinds++] = kind;
            s->has_plain |=
                !s->opts->schedule && strcmp(kind->name, "1f1b") == 0;
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
    const struct mw_str_list *listed = &s->scenario->limits.order;

    if (s->opts->order) {
        add_order(s, s->opts->order);
    } else if (listed->n > 0) {
        for (size_t i = 0; i < listed->n; i++) {
            if (!is_named(listed->v[i], listed->v, i)) {
                add_order(s, listed->v[i]);
            }
        }
    } else if (s->ctx->gpu->is_cpu) {
        add_order(s, "tp-cp-ep-dp-pp");
    } else if (s->opts->is_full) {
        all_orders(s);
    } else {
        add_order(s, "tp-cp-ep-dp-pp");
        add_order(s, "tp-cp-ep-pp-dp");
    }
}

static bool is_freed(const struct mw_space *s, enum mw_free_dim dim)
{
    return !s->ctx->gpu->is_cpu && (s->opts->free & (unsigned)dim) != 0;
}

/* Parts of one thing in the host's memory: the one asked for, those that the
 * limits list, or nothing, and where asked for all. */
static int parts_of(const struct mw_space *s, double fixed,
                    const struct mw_num_list *listed, double out[MW_PARTS_MAX])
{
    int n = 0;

    if (fixed >= 0) {
        out[n++] = fixed;
        return n;
    }
    MW_ASSERT(listed->n <= MW_PARTS_MAX, "%zu parts", listed->n);
    for (size_t i = 0; i < listed->n; i++) {
        out[n++] = listed->v[i];
    }
    if (listed->n == 0) {
        out[n++] = 0;
        if (is_freed(s, MW_FREE_OFFLOAD)) {
            out[n++] = 1;
        }
    }
    return n;
}

/* Every combination, the optimizer's part fastest. */
static void find_offloads(struct mw_space *s)
{
    const struct mw_limits *l = &s->scenario->limits;
    double part[3][MW_PARTS_MAX];
    const int n[3] = {
        parts_of(s, s->opts->offload_optimizer, &l->offload_optimizer, part[0]),
        parts_of(s, s->opts->offload_weights, &l->offload_weights, part[1]),
        parts_of(s, s->opts->offload_activations, &l->offload_activations,
                 part[2])};

    for (int i = 0; i < n[0] * n[1] * n[2]; i++) {
        double *out = s->offload[s->n_offloads++];

        out[0] = part[0][i % n[0]];
        out[1] = part[1][i / n[0] % n[1]];
        out[2] = part[2][i / n[0] / n[1]];
    }
}

/* Types, each once: a layout that names the workload's own is another spelling
 * of one that names none. `more` are those that --free adds. */
static int find_types(const struct mw_space *s, int fixed, enum mw_dtype own,
                      const struct mw_int_list *listed, unsigned more,
                      int out[MW_SPACE_TYPES])
{
    int n = 0;

    if (fixed >= 0) {
        out[n++] = fixed == 1 + (int)own ? MW_DTYPE_OF_WORKLOAD : fixed;
        return n;
    }
    if (listed->n == 0 || mw_int_list_holds(listed, (int)own)) {
        out[n++] = MW_DTYPE_OF_WORKLOAD;
    }
    for (int d = 0; d < MW_DTYPE_COUNT; d++) {
        bool is_more =
            listed->n == 0 && !s->ctx->gpu->is_cpu && (more & 1U << d) != 0;

        if (d != (int)own && (is_more || mw_int_list_holds(listed, d))) {
            out[n++] = 1 + d;
        }
    }
    return n;
}

/* FP8 where the device has it, of 16-bit work; 16-bit sums or fp32 ones. */
static void find_precision(struct mw_space *s)
{
    const struct mw_workload *w = &s->scenario->workload;
    bool is_short = w->dtype == MW_BF16 || w->dtype == MW_FP16;
    unsigned fp8 = is_freed(s, MW_FREE_DTYPE) && is_short &&
                           s->ctx->gpu->peak_flops[MW_FP8] > 0
                       ? 1U << MW_FP8
                       : 0;
    unsigned sums =
        is_freed(s, MW_FREE_GRAD_DTYPE)
            ? 1U << MW_FP32 | 1U << (w->dtype == MW_FP16 ? MW_FP16 : MW_BF16)
            : 0;

    s->n_dtypes = find_types(s, s->opts->dtype, w->dtype,
                             &s->scenario->limits.dtype, fp8, s->dtype);
    s->n_grad_dtypes =
        find_types(s, s->opts->grad_dtype, w->grad_dtype,
                   &s->scenario->limits.grad_dtype, sums, s->grad_dtype);
}

/* One state's types, each once, as a layout says them: the one that is fixed,
 * the listed ones, or the workload's. */
static int state_types(int fixed, const struct mw_int_list *listed, int own,
                       int n_types, int out[MW_DTYPE_COUNT])
{
    int n = 0;

    if (fixed >= 0 || listed->n == 0) {
        out[n++] = fixed == 1 + own || fixed < 0 ? MW_DTYPE_OF_WORKLOAD : fixed;
        return n;
    }
    for (int type = 0; type < n_types; type++) {
        if (mw_int_list_holds(listed, type)) {
            out[n++] = type == own ? MW_DTYPE_OF_WORKLOAD : 1 + type;
        }
    }
    return n;
}

/* Sets that training stacks use, the workload's own left out. The narrowest
 * would always win, so that they are asked for by name. */
static void add_state_sets(struct mw_space *s)
{
    const struct mw_limits *l = &s->scenario->limits;
    const struct mw_search_opts *o = s->opts;
    const struct mw_optimizer *own = &s->scenario->workload.optimizer;
    bool has_sq = mw_optimizer_has_exp_avg_sq(own);

    if (!is_freed(s, MW_FREE_STATE_DTYPE) || s->ctx->gpu->is_cpu ||
        !mw_optimizer_has_exp_avg(own) ||
        l->main_params.n + l->exp_avg.n + l->exp_avg_sq.n > 0 ||
        o->main_params >= 0 || o->exp_avg >= 0 || o->exp_avg_sq >= 0) {
        return;
    }
    for (int i = 0; i < MW_STATE_SETS; i++) {
        const struct mw_state_set *set = &mw_state_sets[i];
        int main = set->main == own->main ? 0 : 1 + (int)set->main;
        int avg = set->exp_avg == own->exp_avg ? 0 : 1 + (int)set->exp_avg;
        int sq = !has_sq || set->exp_avg_sq == own->exp_avg_sq
                     ? 0
                     : 1 + (int)set->exp_avg_sq;

        if (main + avg + sq > 0) {
            s->state[s->n_states].main = main;
            s->state[s->n_states].exp_avg = avg;
            s->state[s->n_states++].exp_avg_sq = sq;
        }
    }
}

static void find_states(struct mw_space *s)
{
    const struct mw_limits *l = &s->scenario->limits;
    const struct mw_search_opts *o = s->opts;
    const struct mw_optimizer *own = &s->scenario->workload.optimizer;
    int type[3][MW_DTYPE_COUNT];
    const int n[3] = {state_types(o->main_params, &l->main_params,
                                  (int)own->main, MW_MAIN_NONE + 1, type[0]),
                      state_types(o->exp_avg, &l->exp_avg, (int)own->exp_avg,
                                  MW_DTYPE_COUNT, type[1]),
                      state_types(o->exp_avg_sq, &l->exp_avg_sq,
                                  (int)own->exp_avg_sq, MW_DTYPE_COUNT,
                                  type[2])};

    for (int i = 0; i < n[0] * n[1] * n[2]; i++) {
        MW_ASSERT(s->n_states < MW_SPACE_STATES, "%d states", s->n_states);
        s->state[s->n_states].main = type[0][i / (n[1] * n[2])];
        s->state[s->n_states].exp_avg = type[1][i / n[2] % n[1]];
        s->state[s->n_states++].exp_avg_sq = type[2][i % n[2]];
    }
    add_state_sets(s);
}

/* The listed sets, each once. */
static void list_modules(struct mw_space *s, const struct mw_int_list *listed)
{
    for (size_t i = 0; i < listed->n; i++) {
        int set = listed->v[i] == MW_MODULE_CORE_ATTN ? 0 : (int)listed->v[i];
        bool is_new = true;

        for (int k = 0; k < s->n_modules; k++) {
            is_new = is_new && s->modules[k] != set;
        }
        if (is_new) {
            s->modules[s->n_modules++] = set;
        }
    }
}

/* Modules that the model has; what recomputes all of the experts' layer has
 * nothing left for its parts. The attention core alone is spelled 0. */
static void find_modules(struct mw_space *s)
{
    const struct mw_model *m = &s->scenario->model;
    const struct mw_int_list *listed = &s->scenario->limits.recompute_modules;
    bool has_experts = m->moe.n_experts > 0;
    const int parts = MW_MODULE_MOE_ACT | MW_MODULE_SHARED_EXPERTS;
    bool has_dense = false;

    for (int l = 0; l < m->n_layers; l++) {
        has_dense |= !mw_model_layer_is_moe(m, l);
    }
    int has = MW_MODULE_CORE_ATTN | MW_MODULE_LAYERNORM |
              (has_dense ? MW_MODULE_MLP : 0) |
              (m->mla.on ? MW_MODULE_MLA_UP_PROJ : 0) |
              (has_experts ? MW_MODULE_MOE | MW_MODULE_MOE_ACT : 0) |
              (m->moe.shared_ffn > 0 ? MW_MODULE_SHARED_EXPERTS : 0);

    if (s->opts->recompute_modules < 0 && listed->n > 0) {
        list_modules(s, listed);
        return;
    }
    s->modules[s->n_modules++] =
        s->opts->recompute_modules > 0 ? s->opts->recompute_modules : 0;
    for (int set = 2; s->opts->recompute_modules < 0 &&
                      is_freed(s, MW_FREE_RECOMPUTE_MODULES) && set <= has;
         set++) {
        bool is_twice = (set & MW_MODULE_MOE) != 0 && (set & parts) != 0;

        if ((set & ~has) == 0 && !is_twice) {
            s->modules[s->n_modules++] = set;
        }
    }
}

static void find_compressions(struct mw_space *s)
{
    const struct mw_int_list *listed = &s->scenario->limits.grad_compression;
    int fixed = s->opts->grad_compression;

    for (int c = MW_COMPRESS_NONE; c <= MW_COMPRESS_ZEROPP; c++) {
        bool is_taken = fixed >= 0      ? c == fixed
                        : listed->n > 0 ? mw_int_list_holds(listed, c)
                                        : c == MW_COMPRESS_NONE ||
                                              is_freed(s, MW_FREE_COMPRESSION);

        if (is_taken) {
            s->compression[s->n_compressions++] = (enum mw_grad_compression)c;
        }
    }
}

/* The stack's, and where asked for also from 2.5 to 640 million elements. */
static void find_buckets(struct mw_space *s)
{
    static const int64_t sizes[] = {0,        2500000,   10000000,
                                    40000000, 160000000, 640000000};
    const struct mw_int_list *listed = &s->scenario->limits.bucket_size;

    s->buckets =
        listed->n > 0 ? *listed
        : is_freed(s, MW_FREE_BUCKET)
            ? (struct mw_int_list){sizes, sizeof sizes / sizeof sizes[0]}
            : (struct mw_int_list){sizes, 1};
}

/* A layer at a time and as far ahead as the stack goes; where asked for up to 8
 * layers or a whole stage, and none, one or two units ahead. Asked for, one
 * ahead is said, so that all are priced by the same formula. */
static void find_units(struct mw_space *s)
{
    static const int64_t units[] = {1, 2, 4, 8, 0}, ahead[] = {1, 0, 2};
    static const int64_t of_stack[] = {-1};
    const struct mw_limits *l = &s->scenario->limits;
    bool has_units = is_freed(s, MW_FREE_FSDP_UNIT);
    bool has_ahead = is_freed(s, MW_FREE_FSDP_PREFETCH);

    s->fsdp_units = l->fsdp_unit.n > 0
                        ? l->fsdp_unit
                        : (struct mw_int_list){units, has_units ? 5 : 1};
    s->fsdp_prefetches = l->fsdp_prefetch.n > 0 ? l->fsdp_prefetch
                         : has_ahead            ? (struct mw_int_list){ahead, 3}
                         : has_units            ? (struct mw_int_list){ahead, 1}
                                     : (struct mw_int_list){of_stack, 1};
}

/* Graphs cost memory that is not priced, so wider ones would always win: they
 * are enumerated where they are listed. */
static void find_graphs(struct mw_space *s)
{
    static const int64_t of_stack[] = {MW_GRAPH_STACK};
    const struct mw_int_list *listed = &s->scenario->limits.cuda_graph;

    s->graphs = listed->n > 0 ? *listed : (struct mw_int_list){of_stack, 1};
}

/* The stack's, or where asked for those that are priced by what was measured of
 * them, by their names: HybridEP's kernels have no row, so they are enumerated
 * where they are listed. */
static void find_dispatchers(struct mw_space *s)
{
    static const int64_t ways[] = {MW_DISPATCH_STACK, MW_DISPATCH_ALLTOALL,
                                   MW_DISPATCH_ALLGATHER, MW_DISPATCH_DEEPEP};
    const struct mw_int_list *listed = &s->scenario->limits.dispatcher;

    s->dispatchers =
        listed->n > 0 ? *listed
        : is_freed(s, MW_FREE_DISPATCHER)
            ? (struct mw_int_list){ways + 1, sizeof ways / sizeof ways[0] - 1}
            : (struct mw_int_list){ways, 1};
}

static void find_shared_overlaps(struct mw_space *s)
{
    static const int64_t both[] = {false, true};
    const struct mw_int_list *listed =
        &s->scenario->limits.overlap_shared_experts;

    s->overlaps = listed->n > 0
                      ? *listed
                      : (struct mw_int_list){
                            both, is_freed(s, MW_FREE_SHARED_OVERLAP) ? 2 : 1};
}

/* Multi-token prediction with the head, or a stage ahead of it. */
static void find_mtp(struct mw_space *s)
{
    const struct mw_int_list *listed = &s->scenario->limits.mtp_ahead;
    bool has_mtp = s->scenario->model.n_mtp > 0;
    int fixed = s->opts->mtp_ahead;

    for (int ahead = 0; ahead < 2; ahead++) {
        bool is_taken = fixed >= 0 ? fixed == ahead
                        : listed->n > 0
                            ? mw_int_list_holds(listed, ahead)
                            : !ahead || (has_mtp && is_freed(s, MW_FREE_MTP));

        if (is_taken) {
            s->mtp_ahead[s->n_mtp++] = ahead > 0;
        }
    }
}

static void find_rare(struct mw_space *s)
{
    const struct mw_search_opts *o = s->opts;
    const struct mw_limits *l = &s->scenario->limits;

    for (int form = MW_CP_GATHER; form <= MW_CP_PASSQ; form++) {
        bool is_free = is_freed(s, MW_FREE_CP_FORM) && form != MW_CP_PASSQ;

        if (is_taken(o->cp_form, &l->cp_form, form, form == 0 || is_free)) {
            s->cp_form[s->n_cp_forms++] = (enum mw_cp_form)form;
        }
    }
    for (int keeps = 0; keeps < 2; keeps++) {
        if (is_taken(o->reshard, &l->reshard, !keeps,
                     !keeps || is_freed(s, MW_FREE_RESHARD))) {
            s->reshard[s->n_reshard++] = !keeps;
        }
    }
    for (int nvme = MW_NVME_NONE; nvme <= MW_NVME_ALL; nvme++) {
        if (is_taken(o->offload_nvme, &l->offload_nvme, nvme, nvme == 0)) {
            s->nvme[s->n_nvmes++] = (enum mw_offload_nvme)nvme;
        }
    }
    find_offloads(s);
    find_precision(s);
    find_states(s);
    find_compressions(s);
    find_buckets(s);
    find_units(s);
    find_graphs(s);
    find_dispatchers(s);
    find_shared_overlaps(s);
    find_mtp(s);
    find_modules(s);
}

static void find_zero(struct mw_space *s)
{
    const struct mw_int_list *listed = &s->scenario->limits.zero;

    for (int zero = 0; zero <= 3; zero++) {
        if (is_taken(s->opts->zero, listed, zero,
                     zero == 0 || !s->ctx->gpu->is_cpu)) {
            s->zero[s->n_zero++] = zero;
        }
    }
}

/* On where there is tensor parallelism; off too, where asked for. */
static void find_sp(struct mw_space *s)
{
    const struct mw_int_list *listed = &s->scenario->limits.sp;
    bool is_cpu = s->ctx->gpu->is_cpu;
    bool has_off = s->opts->is_full && s->scenario->model.moe.n_experts == 0;

    for (int on = 1; on >= 0; on--) {
        if (is_taken(s->opts->sp, listed, on, is_cpu ? !on : on || has_off)) {
            s->sp[s->n_sp++] = on > 0;
        }
    }
}

void mw_space_find_inner(struct mw_space *s)
{
    const struct mw_search_opts *o = s->opts;
    const struct mw_limits *l = &s->scenario->limits;
    bool is_cpu = s->ctx->gpu->is_cpu;

    find_kinds(s);
    find_orders(s);
    find_rare(s);
    find_zero(s);
    for (int r = MW_RECOMPUTE_NONE; r <= MW_RECOMPUTE_FULL; r++) {
        if (is_taken(o->recompute, &l->recompute, r, r == 0 || !is_cpu)) {
            s->recompute[s->n_recompute++] = r;
        }
    }
    find_sp(s);
}
