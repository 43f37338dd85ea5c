/*
 * Comparison of two plans, and single changes that would help.
 *
 * A change is tried by searching again with it, so what is reported is a plan
 * that exists, not a guess from the reasons.
 */
#include "planner/why.h"

#include "sim/cost/domain.h"

#include "planner/space.h"

#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- term by term ----------------------------------------------------------
 */
static enum mw_status simulate(const struct mw_scenario *scenario,
                               const struct mw_cost_ctx *ctx,
                               const struct mw_candidate *c,
                               struct mw_step_result *out, struct mw_err *err)
{
    struct mw_plan plan;
    struct mw_step_opts opts = {0};
    enum mw_status status =
        mw_plan_make(scenario, &c->layout, c->layers, &plan, err);

    if (status == MW_OK) {
        status = mw_step_simulate(scenario, &plan, ctx, &opts, out, err);
        mw_plan_release(&plan);
    }
    return status;
}

static int compare_terms(const void *a, const void *b)
{
    const struct mw_term *x = a, *y = b;
    double dx = fabs(x->other - x->best), dy = fabs(y->other - y->best);

    if (dx != dy) {
        return dx > dy ? -1 : 1;
    }
    return strcmp(x->name, y->name);
}

static const struct mw_stage_memory *fullest(const struct mw_step_result *r)
{
    const struct mw_stage_memory *most = &r->memory[0];

    for (int k = 1; k < r->n_stages; k++) {
        if (r->memory[k].total_bytes > most->total_bytes) {
            most = &r->memory[k];
        }
    }
    return most;
}

static void fill_memory(const struct mw_step_result *a,
                        const struct mw_step_result *b,
                        struct mw_comparison *out)
{
    const struct mw_stage_memory *x = fullest(a), *y = fullest(b);
    const struct mw_term terms[MW_MEMORY_TERMS] = {
        {"weights", x->weight_bytes, y->weight_bytes},
        {"gradients", x->grad_bytes, y->grad_bytes},
        {"optimizer", x->optimizer_bytes, y->optimizer_bytes},
        {"activations", x->activation_bytes, y->activation_bytes},
        {"temporary", x->temporary_bytes, y->temporary_bytes},
        {"context and buffers", x->overhead_bytes + x->buffer_bytes,
         y->overhead_bytes + y->buffer_bytes}};

    memcpy(out->memory, terms, sizeof terms);
    out->best_bytes = x->total_bytes;
    out->other_bytes = y->total_bytes;
}

static void fill_time(const struct mw_step_result *a,
                      const struct mw_step_result *b, struct mw_comparison *out)
{
    for (int kind = 0; kind < MW_SPAN_KIND_COUNT; kind++) {
        struct mw_term term = {mw_span_kind_name((enum mw_span_kind)kind),
                               a->breakdown_s[kind], b->breakdown_s[kind]};

        if (term.best > 0 || term.other > 0) {
            out->time[out->n_time++] = term;
        }
    }
    out->best_s = a->step_time_s;
    out->other_s = b->step_time_s;
    qsort(out->time, (size_t)out->n_time, sizeof *out->time, compare_terms);
}

void mw_results_compare(const struct mw_step_result *best,
                        const struct mw_step_result *other,
                        struct mw_comparison *out)
{
    *out = (struct mw_comparison){.n_time = 0};
    fill_time(best, other, out);
    fill_memory(best, other, out);
}

enum mw_status mw_plans_compare(const struct mw_scenario *scenario,
                                const struct mw_cost_ctx *ctx,
                                const struct mw_candidate *best,
                                const struct mw_candidate *other,
                                struct mw_comparison *out, struct mw_err *err)
{
    struct mw_step_result a, b;
    enum mw_status status = simulate(scenario, ctx, best, &a, err);

    if (status != MW_OK) {
        return status;
    }
    status = simulate(scenario, ctx, other, &b, err);
    if (status == MW_OK) {
        mw_results_compare(&a, &b, out);
        mw_step_result_release(&b);
    }
    mw_step_result_release(&a);
    return status;
}

/* ---- single changes --------------------------------------------------------
 */
struct trial {
    struct mw_scenario scenario; /* a copy whose limits may be changed */
    struct mw_cost_ctx ctx;
    struct mw_search_opts opts;
    const struct mw_cost_ctx *given;
    const struct mw_search_opts *asked;
    const struct mw_scenario *from;
    struct mw_changes *out;
};

static void reset(struct trial *t)
{
    t->scenario = *t->from;
    t->ctx = *t->given;
    t->opts = *t->asked;
    if (t->opts.order == t->asked->order_text) {
        t->opts.order = t->opts.order_text;
    }
    t->opts.top = 1;
    t->opts.is_quiet = true;
}

static bool try_it(struct trial *t, const char *what)
{
    struct mw_search_result r;
    enum mw_status status =
        mw_search(&t->scenario, &t->ctx, &t->opts, &r, NULL);
    bool is_found = status == MW_OK;

    t->out->is_cut_short |= status == MW_EINTR;
    t->out->n_tried += status != MW_EINTR;
    if (is_found && t->out->n < MW_CHANGES_MAX) {
        struct mw_change *c = &t->out->v[t->out->n++];

        snprintf(c->what, sizeof c->what, "%s", what);
        c->step_time_s = r.plans[0].step_time_s;
        c->peak_bytes = r.plans[0].peak_bytes;
        mw_layout_text(&r.plans[0].layout, c->layout);
    }
    mw_search_result_release(&r);
    reset(t);
    return is_found;
}

static void free_fixed(struct trial *t)
{
    struct mw_search_opts *o = &t->opts;
    const struct {
        const char *key;
        int *value;
        int open;
    } dims[] = {{"tp", &o->tp, 0},
                {"cp", &o->cp, 0},
                {"pp", &o->pp, 0},
                {"dp", &o->dp, 0},
                {"ep", &o->ep, 0},
                {"etp", &o->etp, 0},
                {"vpp", &o->vpp, 0},
                {"micro_batch", &o->micro_batch, 0},
                {"zero", &o->zero, -1},
                {"sp", &o->sp, -1},
                {"cp_form", &o->cp_form, -1},
                {"dp_shard", &o->dp_shard, -1},
                {"reshard", &o->reshard, -1},
                {"recompute_layers", &o->recompute_layers, -1},
                {"grad_compression", &o->grad_compression, -1},
                {"cp_inner", &o->cp_inner, 0},
                {"recompute_modules", &o->recompute_modules, -1},
                {"overlap_off", &o->overlap_off, -1},
                {"bucket_size", &o->bucket_size, -1},
                {"fsdp_unit", &o->fsdp_unit, -1},
                {"fsdp_prefetch", &o->fsdp_prefetch, -1},
                {"cuda_graph", &o->cuda_graph, -1},
                {"dispatcher", &o->dispatcher, -1},
                {"overlap_shared_experts", &o->overlap_shared_experts, -1},
                {"mtp_ahead", &o->mtp_ahead, -1},
                {"vpp_group", &o->vpp_group, -1},
                {"dtype", &o->dtype, -1},
                {"grad_dtype", &o->grad_dtype, -1},
                {"offload_nvme", &o->offload_nvme, -1},
                {"recompute", &o->recompute, -1}};

    for (size_t i = 0; i < sizeof dims / sizeof dims[0]; i++) {
        char what[MW_PLAN_TEXT_MAX];

        if (*dims[i].value == dims[i].open) {
            continue;
        }
        snprintf(what, sizeof what, "%s other than asked for", dims[i].key);
        *dims[i].value = dims[i].open;
        try_it(t, what);
    }
    if (o->schedule) {
        o->schedule = NULL;
        try_it(t, "another schedule than asked for");
    }
    if (o->order) {
        o->order = NULL;
        try_it(t, "another rank order than asked for");
    }
}

/* What a list of the limits names, and where it is. */
struct limit {
    const char *key;
    size_t offset;
};
#define LIMIT(name)                                                            \
    {                                                                          \
#name, offsetof(struct mw_limits, name)                                \
    }

static void drop_list(struct trial *t, const char *key, void *list, size_t n,
                      size_t size)
{
    char what[MW_PLAN_TEXT_MAX];

    if (n > 0) {
        snprintf(what, sizeof what, "without limits: %s", key);
        memset(list, 0, size);
        try_it(t, what);
    }
}

static void drop_lists(struct trial *t)
{
    static const struct limit ints[] = {LIMIT(tp),
                                        LIMIT(pp),
                                        LIMIT(dp),
                                        LIMIT(micro_batch),
                                        LIMIT(cp),
                                        LIMIT(ep),
                                        LIMIT(vpp),
                                        LIMIT(etp),
                                        LIMIT(zero),
                                        LIMIT(sp),
                                        LIMIT(recompute),
                                        LIMIT(recompute_layers),
                                        LIMIT(cp_form),
                                        LIMIT(dp_shard),
                                        LIMIT(reshard),
                                        LIMIT(offload_nvme),
                                        LIMIT(cp_inner),
                                        LIMIT(bucket_size),
                                        LIMIT(fsdp_unit),
                                        LIMIT(fsdp_prefetch),
                                        LIMIT(cuda_graph),
                                        LIMIT(dispatcher),
                                        LIMIT(overlap_shared_experts),
                                        LIMIT(mtp_ahead),
                                        LIMIT(vpp_group),
                                        LIMIT(recompute_modules),
                                        LIMIT(overlap_off),
                                        LIMIT(dtype),
                                        LIMIT(grad_dtype),
                                        LIMIT(grad_compression)};
    static const struct limit names[] = {LIMIT(schedule), LIMIT(order)};
    static const struct limit parts[] = {LIMIT(offload_optimizer),
                                         LIMIT(offload_weights),
                                         LIMIT(offload_activations)};
    char *limits = (char *)&t->scenario.limits;

    for (size_t i = 0; i < sizeof ints / sizeof ints[0]; i++) {
        struct mw_int_list *list = (void *)(limits + ints[i].offset);

        drop_list(t, ints[i].key, list, list->n, sizeof *list);
    }
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        struct mw_str_list *list = (void *)(limits + names[i].offset);

        drop_list(t, names[i].key, list, list->n, sizeof *list);
    }
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        struct mw_num_list *list = (void *)(limits + parts[i].offset);

        drop_list(t, parts[i].key, list, list->n, sizeof *list);
    }
}

static void drop_limits(struct trial *t)
{
    struct mw_limits *l = &t->scenario.limits;

    drop_lists(t);
    if (l->memory_bytes > 0) {
        l->memory_bytes = 0;
        try_it(t, "without limits: memory (all the device has)");
    }
    if (l->has_memory_fraction) {
        double asked = mw_step_usable_bytes(&t->scenario, &t->ctx);

        l->has_memory_fraction = false;
        if (mw_step_usable_bytes(&t->scenario, &t->ctx) > asked) {
            try_it(t, "the margin that our memory error asks for, not "
                      "memory_fraction or --memory-margin");
        } else {
            reset(t);
        }
    }
    if (l->framework != MW_FRAMEWORK_ANY) {
        l->framework = MW_FRAMEWORK_ANY;
        try_it(t, "limits: framework any");
    }
    if (l->max_tp < 1 || l->max_tp < t->ctx.n_nodes * t->ctx.gpus_per_node) {
        l->max_tp = t->ctx.n_nodes * t->ctx.gpus_per_node;
        try_it(t, "limits: max_tp (tensor parallelism across nodes)");
    }
}

static void add_nodes(struct trial *t)
{
    static const double more[] = {0, 0, 1.5, 2, 3, 4, 6, 8, 16, 32, 64};
    int n = t->given->n_nodes, last = n;

    for (size_t i = 0; i < sizeof more / sizeof more[0]; i++) {
        int nodes = i < 2 ? n + 1 + (int)i : (int)ceil(more[i] * n);
        char what[MW_PLAN_TEXT_MAX];

        if (nodes <= last || nodes > 1 << 20 ||
            mw_cost_ctx_init(&t->ctx, t->given->db, t->given->system->slug,
                             nodes, t->given->gpus_per_node, NULL) != MW_OK) {
            continue;
        }
        mw_cost_set_domain(&t->ctx, t->from->cluster.domain_nodes);
        mw_cost_ctx_set_stack(&t->ctx, t->given->stack.name, NULL);
        last = nodes;
        t->scenario.cluster.n_nodes = nodes;
        snprintf(what, sizeof what, "%d nodes instead of %d", nodes, n);
        if (try_it(t, what)) {
            return;
        }
    }
}

enum mw_status mw_changes_find(const struct mw_scenario *scenario,
                               const struct mw_cost_ctx *ctx,
                               const struct mw_search_opts *opts,
                               struct mw_changes *out)
{
    struct trial *t = mw_calloc(1, sizeof *t);

    *out = (struct mw_changes){.n = 0};
    t->from = scenario;
    t->given = ctx;
    t->asked = opts;
    t->out = out;
    reset(t);
    free_fixed(t);
    drop_limits(t);
    add_nodes(t);
    mw_free(t);
    return out->n > 0 ? MW_OK : MW_ENO;
}
