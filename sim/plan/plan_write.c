/*
 * Plans out: YAML, one key a line, in a fixed order (docs/plan.md). Numbers
 * keep 17 digits, so that reading and writing again gives the same bytes.
 */
#include "sim/plan/plan_int.h"

#include "base/file.h"

#include <inttypes.h>

/* A double-quoted YAML scalar: quotes, backslashes, control characters. */
static void add_quoted(struct mw_str *text, const char *s)
{
    mw_str_add(text, "\"");
    for (; *s != '\0'; s++) {
        if (*s == '"' || *s == '\\') {
            mw_str_addf(text, "\\%c", *s);
        } else if ((unsigned char)*s < 0x20 || *s == 0x7f) {
            mw_str_addf(text, "\\x%02x", (unsigned)(unsigned char)*s);
        } else {
            mw_str_addf(text, "%c", *s);
        }
    }
    mw_str_add(text, "\"");
}

static void add_part(struct mw_str *text, const char *key, double part)
{
    if (part > 0) {
        mw_str_addf(text, "  %s: %.17g\n", key, part);
    }
}

static void add_list(struct mw_str *text, const char *key,
                     const struct mw_int_list *list)
{
    mw_str_addf(text, "  %s: [", key);
    for (size_t i = 0; i < list->n; i++) {
        mw_str_addf(text, "%s%lld", i > 0 ? ", " : "", (long long)list->v[i]);
    }
    mw_str_add(text, "]\n");
}

/* Keys that layouts got later, where they say anything. */
static void add_young_keys(struct mw_str *text, const struct mw_layout *l)
{
    if (l->recompute_layers > 0) {
        mw_str_addf(text, "  recompute_layers: %d\n", l->recompute_layers);
    }
    if (l->stage_recompute_layers.n > 0) {
        mw_str_add(text, "  # recomputed layers of each virtual stage\n");
        add_list(text, "stage_recompute_layers", &l->stage_recompute_layers);
    }
    if (l->recompute_modules != 0) {
        mw_str_add(text, "  recompute_modules: [");
        mw_recompute_modules_add(text, l->recompute_modules, ", ");
        mw_str_add(text, "]\n");
    }
    if (l->overlap_off != 0) {
        mw_str_add(text, "  overlap_off: [");
        mw_overlap_off_add(text, l->overlap_off, ", ");
        mw_str_add(text, "]\n");
    }
    if (l->domain_nodes > 0) {
        mw_str_addf(text, "  domain_nodes: %d\n", l->domain_nodes);
    }
    if (l->nodes.n > 0) {
        mw_str_add(text, "  # node of the allocation of each node's worth of "
                         "ranks\n");
        add_list(text, "nodes", &l->nodes);
    }
    if (l->cp_form != MW_CP_GATHER) {
        mw_str_addf(text, "  cp_form: %s\n", mw_cp_form_name(l->cp_form));
    }
    if (l->cp_inner > 1) {
        mw_str_addf(text, "  cp_inner: %d\n", l->cp_inner);
    }
    if (l->cuda_graph != MW_GRAPH_STACK) {
        mw_str_addf(text, "  cuda_graph: %s\n",
                    mw_cuda_graph_name(l->cuda_graph));
    }
    if (l->dispatcher != MW_DISPATCH_STACK) {
        mw_str_addf(text, "  dispatcher: %s\n",
                    mw_dispatcher_name(l->dispatcher));
    }
    if (l->overlap_shared_experts) {
        mw_str_add(text, "  overlap_shared_experts: true\n");
    }
    if (l->bucket_size > 0) {
        mw_str_addf(text, "  bucket_size: %d\n", l->bucket_size);
    }
    if (l->vpp_group > 0) {
        mw_str_addf(text, "  vpp_group: %d\n", l->vpp_group);
    }
    if (l->mtp_ahead > 0) {
        mw_str_addf(text, "  mtp_ahead: %d\n", l->mtp_ahead);
    }
    if (l->dp_shard > 0) {
        mw_str_addf(text, "  dp_shard: %d\n", l->dp_shard);
    }
    if (!l->reshard) {
        mw_str_add(text, "  reshard: false\n");
    }
    if (l->fsdp_unit != 1) {
        mw_str_addf(text, "  fsdp_unit: %d\n", l->fsdp_unit);
    }
    if (l->fsdp_prefetch >= 0) {
        mw_str_addf(text, "  fsdp_prefetch: %d\n", l->fsdp_prefetch);
    }
    if (l->grad_compression != MW_COMPRESS_NONE) {
        mw_str_addf(text, "  grad_compression: %s\n",
                    mw_grad_compression_name(l->grad_compression));
    }
    if (l->offload_nvme != MW_NVME_NONE) {
        mw_str_addf(text, "  offload_nvme: %s\n",
                    mw_offload_nvme_name(l->offload_nvme));
    }
    if (l->dtype != MW_DTYPE_OF_WORKLOAD) {
        mw_str_addf(text, "  dtype: %s\n", mw_dtype_choice_name(l->dtype));
    }
    if (l->main_params != MW_DTYPE_OF_WORKLOAD) {
        mw_str_addf(text, "  main_params_dtype: %s\n",
                    mw_main_params_choice_name(l->main_params));
    }
    if (l->exp_avg != MW_DTYPE_OF_WORKLOAD) {
        mw_str_addf(text, "  exp_avg_dtype: %s\n",
                    mw_dtype_choice_name(l->exp_avg));
    }
    if (l->exp_avg_sq != MW_DTYPE_OF_WORKLOAD) {
        mw_str_addf(text, "  exp_avg_sq_dtype: %s\n",
                    mw_dtype_choice_name(l->exp_avg_sq));
    }
    if (l->grad_dtype != MW_DTYPE_OF_WORKLOAD) {
        mw_str_addf(text, "  grad_dtype: %s\n",
                    mw_dtype_choice_name(l->grad_dtype));
    }
    add_part(text, "offload_optimizer", l->offload_optimizer);
    add_part(text, "offload_weights", l->offload_weights);
    add_part(text, "offload_activations", l->offload_activations);
}

static void add_layout(struct mw_str *text, const struct mw_layout *l)
{
    mw_str_addf(text, "layout:\n  tp: %d\n  sp: %s\n  cp: %d\n  pp: %d\n",
                l->tp, l->sp ? "true" : "false", l->cp, l->pp);
    mw_str_addf(text, "  vpp: %d\n  dp: %d\n  zero: %d\n  ep: %d\n  etp: %d\n",
                l->vpp, l->dp, l->zero, l->ep, l->etp);
    mw_str_addf(text,
                "  micro_batch: %d\n  recompute: %s\n  order: ", l->micro_batch,
                mw_recompute_name(l->recompute));
    add_quoted(text, l->order);
    mw_str_add(text, "\n");
    add_young_keys(text, l);
}

static void add_layers(struct mw_str *text, const struct mw_plan *plan)
{
    mw_str_add(text, "# layers of each virtual stage, in the order of the "
                     "model\nlayers: [");
    for (int k = 0; k < plan->n_virtual; k++) {
        mw_str_addf(text, "%s%d", k > 0 ? ", " : "", plan->layers[k]);
    }
    mw_str_add(text, "]\n");
}

static void add_schedule(struct mw_str *text, const struct mw_plan *plan,
                         bool explicit_order)
{
    mw_str_add(text, "schedule:\n  kind: ");
    add_quoted(text, plan->layout.schedule);
    mw_str_add(text, "\n");
    if (plan->schedule.n_parts > 1) {
        mw_str_addf(text, "  parts: %d\n", plan->schedule.n_parts);
    }
    if (!explicit_order) {
        return;
    }
    mw_str_addf(text, "  placement: %s\n  order:\n",
                mw_placement_name(plan->schedule.placement));
    for (int d = 0; d < plan->schedule.n_stages; d++) {
        mw_str_add(text, "    - \"");
        mw_schedule_format(&plan->schedule, d, text);
        mw_str_add(text, "\"\n");
    }
}

static void add_predicted(struct mw_str *text, const struct mw_plan *plan)
{
    if (!plan->has_predicted) {
        return;
    }
    mw_str_addf(text,
                "predicted:\n  step_time: %.17gs\n  peak_memory: %.17gB\n"
                "  mfu: %.17g\n",
                plan->predicted.step_time_s, plan->predicted.peak_bytes,
                plan->predicted.mfu);
}

void mw_plan_text(const struct mw_plan *plan, const char *path,
                  bool explicit_order, struct mw_str *out)
{
    struct mw_arena arena;
    const char *scenario = plan->scenario_file;

    mw_arena_init(&arena);
    if (plan->file != NULL) {
        scenario = mw_plan_path_resolve(&arena, plan->file, scenario);
    }
    mw_str_addf(out, "format: %d\nname: ", MW_PLAN_FORMAT);
    add_quoted(out, plan->name);
    mw_str_add(out, "\nscenario: ");
    add_quoted(out, mw_plan_path_relative(&arena, path, scenario));
    mw_str_addf(out, "\nscenario_hash: \"%016" PRIx64 "\"\n",
                plan->scenario_hash);
    add_layout(out, &plan->layout);
    add_layers(out, plan);
    add_schedule(out, plan, explicit_order || plan->has_schedule_order);
    add_predicted(out, plan);
    mw_arena_release(&arena);
}

enum mw_status mw_plan_save(const struct mw_plan *plan, const char *path,
                            bool explicit_order, struct mw_err *err)
{
    struct mw_str text = {NULL, 0, 0};
    struct mw_outfile out;
    enum mw_status status = mw_outfile_open(&out, path, err);

    if (status != MW_OK) {
        return status;
    }
    mw_plan_text(plan, path, explicit_order, &text);
    fwrite(text.s, 1, text.n, out.f);
    mw_str_release(&text);
    return mw_outfile_commit(&out, err);
}
