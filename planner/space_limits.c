/*
 * What the scenario's limits allow of a layout: lists of sizes, types, sets and
 * parts. An empty list allows all; lists say nothing about what a layout does
 * not have (buckets without gradients that wait, tp's transfers with tp 1).
 * Frameworks' rules are rows of rules.h, those of every layout in
 * sim/model/rules.c.
 */
#include "planner/space.h"

#include <stdio.h>
#include <string.h>

bool mw_int_list_holds(const struct mw_int_list *list, int value)
{
    for (size_t i = 0; i < list->n; i++) {
        if (list->v[i] == value) {
            return true;
        }
    }
    return false;
}

bool mw_limits_list_allows(const struct mw_int_list *list, int value)
{
    return list->n == 0 || mw_int_list_holds(list, value);
}

static bool names_allow(const struct mw_str_list *list, const char *name)
{
    for (size_t i = 0; i < list->n; i++) {
        if (strcmp(list->v[i], name) == 0) {
            return true;
        }
    }
    return list->n == 0;
}

/* What is wrong with a schedule that the limits name; NULL: nothing. */
static const char *schedule_fault(const char *name)
{
    const struct mw_sched_kind *kind = mw_schedule_kind_find(name);

    return !kind                   ? "is unknown; see meshwright sched --help"
           : kind->is_forward_only ? "is for inference; a training step needs "
                                     "backward passes, for example 1f1b"
                                   : NULL;
}

enum mw_status mw_limits_check_names(const struct mw_scenario *scenario,
                                     struct mw_err *err)
{
    const struct mw_limits *l = &scenario->limits;

    for (size_t i = 0; i < l->schedule.n; i++) {
        const char *fault = schedule_fault(l->schedule.v[i]);

        if (fault) {
            mw_err_set_key(err, "limits", "schedule");
            return mw_fail(err, MW_EINPUT, "schedule '%.64s' %s",
                           l->schedule.v[i], fault);
        }
    }
    for (size_t i = 0; i < l->order.n; i++) {
        if (!mw_layout_order_valid(l->order.v[i])) {
            mw_err_set_key(err, "limits", "order");
            return mw_fail(err, MW_EINPUT,
                           "order '%.64s' must name tp, cp, dp and pp, as in "
                           "tp-cp-ep-dp-pp",
                           l->order.v[i]);
        }
    }
    if (l->order.n > MW_SPACE_ORDERS_MAX) {
        mw_err_set_key(err, "limits", "order");
        return mw_fail(err, MW_EINPUT, "order lists %zu; at most %d",
                       l->order.n, MW_SPACE_ORDERS_MAX);
    }
    return MW_OK;
}

/* Lists say nothing about what a layout does not have: a stage of ZeRO without
 * a gradient group, a schedule without a pipeline, a form without cp. */
static bool names_and_stages_allow(const struct mw_limits *limits,
                                   const struct mw_layout *l)
{
    return mw_limits_list_allows(&limits->recompute, (int)l->recompute) &&
           (l->recompute == MW_RECOMPUTE_NONE ||
            mw_limits_list_allows(&limits->recompute_layers,
                                  l->recompute_layers)) &&
           (l->dp * l->cp == 1 ||
            mw_limits_list_allows(&limits->zero, l->zero)) &&
           (l->tp == 1 || mw_limits_list_allows(&limits->sp, l->sp)) &&
           (l->pp == 1 || names_allow(&limits->schedule, l->schedule)) &&
           names_allow(&limits->order, l->order) &&
           (l->cp == 1 ||
            mw_limits_list_allows(&limits->cp_form, (int)l->cp_form)) &&
           (l->zero == 0 ||
            mw_limits_list_allows(&limits->dp_shard, l->dp_shard)) &&
           (l->zero < 3 ||
            mw_limits_list_allows(&limits->reshard, l->reshard)) &&
           (!mw_layout_can_spill(l) ||
            mw_limits_list_allows(&limits->offload_nvme, (int)l->offload_nvme));
}

bool mw_layout_can_spill(const struct mw_layout *l)
{
    return l->offload_optimizer > 0 || l->offload_weights > 0;
}

static bool parts_allow(const struct mw_num_list *list, double part)
{
    bool is_allowed = list->n == 0;

    for (size_t i = 0; i < list->n; i++) {
        is_allowed = is_allowed || !(list->v[i] < part || list->v[i] > part);
    }
    return is_allowed;
}

bool mw_layout_has_buckets(const struct mw_layout *l)
{
    return l->zero <= 1 && l->grad_compression == MW_COMPRESS_NONE &&
           l->dp * l->cp > 1;
}

bool mw_layout_can_overlap_shared(const struct mw_layout *l,
                                  const struct mw_model *m)
{
    return l->ep > 1 && l->dispatcher == MW_DISPATCH_ALLTOALL &&
           m->moe.shared_ffn > 0;
}

int mw_layout_can_show(const struct mw_layout *l)
{
    return (l->dp * l->cp > 1 ? MW_OVERLAP_GRADS | MW_OVERLAP_PARAMS : 0) |
           (l->tp > 1 ? MW_OVERLAP_TP : 0) | (l->ep > 1 ? MW_OVERLAP_EP : 0);
}

bool mw_limits_sets_allow(const struct mw_int_list *sets, int set, int has)
{
    bool is_allowed = sets->n == 0;

    for (size_t i = 0; i < sets->n; i++) {
        is_allowed = is_allowed || ((sets->v[i] ^ set) & has) == 0;
    }
    return is_allowed;
}

bool mw_space_allows_rare(const struct mw_space *s, const struct mw_layout *l)
{
    const struct mw_limits *limits = &s->scenario->limits;
    const struct mw_workload *w = &s->scenario->workload;
    const struct mw_optimizer o = mw_work_optimizer(l, w);

    return names_and_stages_allow(limits, l) &&
           (s->scenario->model.moe.n_experts == 0 ||
            mw_limits_list_allows(&limits->etp, l->etp)) &&
           mw_limits_list_allows(&limits->dtype, (int)mw_work_dtype(l, w)) &&
           mw_limits_list_allows(&limits->grad_dtype,
                                 (int)mw_work_grad_dtype(l, w)) &&
           mw_limits_list_allows(&limits->main_params, (int)o.main) &&
           mw_limits_list_allows(&limits->exp_avg, (int)o.exp_avg) &&
           mw_limits_list_allows(&limits->exp_avg_sq, (int)o.exp_avg_sq) &&
           mw_limits_list_allows(&limits->grad_compression,
                                 (int)l->grad_compression) &&
           mw_limits_list_allows(&limits->cuda_graph, (int)l->cuda_graph) &&
           (l->ep == 1 ||
            mw_limits_list_allows(&limits->dispatcher, (int)l->dispatcher)) &&
           (!mw_layout_can_overlap_shared(l, &s->scenario->model) ||
            mw_limits_list_allows(&limits->overlap_shared_experts,
                                  l->overlap_shared_experts)) &&
           mw_limits_list_allows(&limits->mtp_ahead, l->mtp_ahead) &&
           (l->vpp == 1 || !mw_layout_is_grouped(l) ||
            mw_limits_list_allows(&limits->vpp_group, l->vpp_group)) &&
           (!mw_layout_has_buckets(l) ||
            mw_limits_list_allows(&limits->bucket_size, l->bucket_size)) &&
           (l->zero < 3 ||
            (mw_limits_list_allows(&limits->fsdp_unit, l->fsdp_unit) &&
             mw_limits_list_allows(&limits->fsdp_prefetch,
                                   l->fsdp_prefetch))) &&
           (l->recompute != MW_RECOMPUTE_SELECTIVE ||
            mw_limits_sets_allow(&limits->recompute_modules,
                                 mw_layout_modules(l), -1)) &&
           mw_limits_sets_allow(&limits->overlap_off, l->overlap_off,
                                mw_layout_can_show(l)) &&
           parts_allow(&limits->offload_optimizer, l->offload_optimizer) &&
           parts_allow(&limits->offload_weights, l->offload_weights) &&
           parts_allow(&limits->offload_activations, l->offload_activations);
}

const char *mw_space_limit_rule(const struct mw_space *s,
                                const struct mw_layout *l)
{
    const struct mw_limits *limits = &s->scenario->limits;
    int max_tp = limits->max_tp > 0 ? limits->max_tp : s->ctx->gpus_per_node;

    if (l->tp > max_tp) {
        return "tp_node";
    }
    if (!(s->ctx->gpu->peak_flops[mw_work_dtype(l, &s->scenario->workload)] >
          0)) {
        return "dtype_rate";
    }
    return mw_limits_list_allows(&limits->tp, l->tp) &&
                   mw_limits_list_allows(&limits->pp, l->pp) &&
                   mw_limits_list_allows(&limits->dp, l->dp) &&
                   mw_limits_list_allows(&limits->cp, l->cp) &&
                   mw_limits_list_allows(&limits->ep, l->ep) &&
                   mw_limits_list_allows(&limits->vpp, l->vpp) &&
                   mw_limits_list_allows(&limits->micro_batch,
                                         l->micro_batch) &&
                   (l->cp == 1 ||
                    mw_limits_list_allows(&limits->cp_inner, l->cp_inner))
               ? NULL
               : "limits";
}

/* The limits that exclude a layout: "tp, pp". */
static const char *excluding(const struct mw_space *s,
                             const struct mw_layout *l, char buf[64])
{
    const struct mw_limits *m = &s->scenario->limits;
    const struct {
        const char *key;
        const struct mw_int_list *list;
        int value;
    } sizes[] = {{"tp", &m->tp, l->tp},
                 {"pp", &m->pp, l->pp},
                 {"dp", &m->dp, l->dp},
                 {"cp", &m->cp, l->cp},
                 {"ep", &m->ep, l->ep},
                 {"vpp", &m->vpp, l->vpp},
                 {"micro_batch", &m->micro_batch, l->micro_batch}};
    size_t n = 0;

    buf[0] = '\0';
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        if (!mw_limits_list_allows(sizes[i].list, sizes[i].value)) {
            n += (size_t)snprintf(buf + n, 64 - n, "%s%s", n > 0 ? ", " : "",
                                  sizes[i].key);
        }
    }
    return n > 0 ? buf : "keys other than sizes";
}

const char *mw_space_forbids(const struct mw_space *space,
                             const struct mw_layout *layout,
                             char text[MW_PLAN_TEXT_MAX])
{
    char buf[MW_PLAN_TEXT_MAX];
    const char *rule = mw_space_limit_rule(space, layout);
    struct mw_err err = {0};
    const struct mw_rule *row;

    text = text ? text : buf;
    if (!rule && !mw_space_allows_rare(space, layout)) {
        rule = "limits";
    }
    if (rule && strcmp(rule, "dtype_rate") == 0) {
        snprintf(
            text, MW_PLAN_TEXT_MAX, "%s has no %s rate", space->ctx->gpu->slug,
            mw_dtype_name(mw_work_dtype(layout, &space->scenario->workload)));
        return rule;
    }
    if (rule && strcmp(rule, "tp_node") == 0) {
        snprintf(text, MW_PLAN_TEXT_MAX,
                 "tp %d crosses nodes of %d ranks; limits.max_tp allows it",
                 layout->tp, space->ctx->gpus_per_node);
        return rule;
    }
    if (rule) {
        char what[MW_PLAN_TEXT_MAX], keys[64];

        snprintf(text, MW_PLAN_TEXT_MAX, "%.150s is excluded by limits: %s",
                 mw_layout_text(layout, what), excluding(space, layout, keys));
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
