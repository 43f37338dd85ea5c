/* Counts of layouts by the rule that drops them, with the nearest miss; layouts
 * as text. */
#include "planner/space.h"

#include <stdio.h>
#include <string.h>

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

const char *mw_layout_rare_text(const struct mw_layout *l,
                                char buf[MW_PLAN_TEXT_MAX])
{
    struct mw_str text = {0};

    if (l->cp > 1 && l->cp_form != MW_CP_GATHER) {
        mw_str_addf(&text, ", cp_form %s", mw_cp_form_name(l->cp_form));
    }
    if (l->cp_inner > 1) {
        mw_str_addf(&text, ", cp_inner %d", l->cp_inner);
    }
    if (l->dp_shard > 0) {
        mw_str_addf(&text, ", dp_shard %d", l->dp_shard);
    }
    if (!l->reshard) {
        mw_str_add(&text, ", no reshard");
    }
    if (l->fsdp_unit != 1) {
        mw_str_addf(&text, ", fsdp_unit %d", l->fsdp_unit);
    }
    if (l->fsdp_prefetch >= 0) {
        mw_str_addf(&text, ", fsdp_prefetch %d", l->fsdp_prefetch);
    }
    if (l->grad_compression != MW_COMPRESS_NONE) {
        mw_str_addf(&text, ", grad_compression %s",
                    mw_grad_compression_name(l->grad_compression));
    }
    if (l->dtype != MW_DTYPE_OF_WORKLOAD) {
        mw_str_addf(&text, ", %s", mw_dtype_choice_name(l->dtype));
    }
    if (l->grad_dtype != MW_DTYPE_OF_WORKLOAD) {
        mw_str_addf(&text, ", gradients %s",
                    mw_dtype_choice_name(l->grad_dtype));
    }
    if (l->main_params != MW_DTYPE_OF_WORKLOAD) {
        mw_str_addf(&text, ", main copy %s",
                    mw_main_params_choice_name(l->main_params));
    }
    if (l->exp_avg + l->exp_avg_sq > 0) {
        mw_str_addf(&text, ", moments %s/%s", mw_dtype_choice_name(l->exp_avg),
                    mw_dtype_choice_name(l->exp_avg_sq));
    }
    if (l->recompute_layers > 0) {
        mw_str_addf(&text, ", %d layers recomputed", l->recompute_layers);
    }
    if (l->stage_recompute_layers.n > 0) {
        mw_str_add(&text, ", layers recomputed by stage");
    }
    if (l->recompute_modules != 0) {
        mw_str_add(&text, ", recomputes ");
        mw_recompute_modules_add(&text, l->recompute_modules, " ");
    }
    if (l->overlap_off != 0) {
        mw_str_add(&text, ", no overlap of ");
        mw_overlap_off_add(&text, l->overlap_off, " ");
    }
    if (l->cuda_graph != MW_GRAPH_STACK) {
        mw_str_addf(&text, ", cuda_graph %s",
                    mw_cuda_graph_name(l->cuda_graph));
    }
    if (l->dispatcher != MW_DISPATCH_STACK) {
        mw_str_addf(&text, ", dispatcher %s",
                    mw_dispatcher_name(l->dispatcher));
    }
    if (l->overlap_shared_experts) {
        mw_str_add(&text, ", shared experts beside exchanges");
    }
    if (l->mtp_ahead > 0) {
        mw_str_add(&text, ", mtp_ahead 1");
    }
    if (l->vpp_group > 0) {
        mw_str_addf(&text, ", groups of %d", l->vpp_group);
    }
    if (l->bucket_size > 0) {
        mw_str_addf(&text, ", buckets of %d", l->bucket_size);
    }
    if (mw_layout_offloads(l)) {
        mw_str_addf(&text, ", offload %g/%g/%g of o/w/a", l->offload_optimizer,
                    l->offload_weights, l->offload_activations);
    }
    if (l->offload_nvme != MW_NVME_NONE) {
        mw_str_addf(&text, ", drives hold %s",
                    mw_offload_nvme_name(l->offload_nvme));
    }
    snprintf(buf, MW_PLAN_TEXT_MAX, "%.200s", text.n > 2 ? text.s + 2 : "");
    mw_str_release(&text);
    return buf;
}

const char *mw_layout_text(const struct mw_layout *l,
                           char buf[MW_PLAN_TEXT_MAX])
{
    char more[MW_PLAN_TEXT_MAX] = "", rare[MW_PLAN_TEXT_MAX];
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
        n += snprintf(more + n, sizeof more - (size_t)n, ", vpp %d", l->vpp);
    }
    if (*mw_layout_rare_text(l, rare)) {
        snprintf(more + n, sizeof more - (size_t)n, ", %.150s", rare);
    }
    snprintf(buf, MW_PLAN_TEXT_MAX,
             "tp %d, pp %d, dp %d, micro-batch %d, zero %d, recompute %s%.160s",
             l->tp, l->pp, l->dp, l->micro_batch, l->zero,
             mw_recompute_name(l->recompute), more);
    return buf;
}
