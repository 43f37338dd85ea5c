/*
 * A TOML file of TorchTitan 0.2.2 (the last version with files; its fields are
 * those of torchtitan/config/job_config.py). Models are TorchTitan's own, by
 * name and flavor. With a pipeline the local batch is the replica's whole
 * batch, split into micro-batches by the schedule; without one it is a
 * micro-batch, and gradients accumulate up to the global batch.
 */
#include "planner/export/export_int.h"

#include "sim/pipe/schedule.h"

#include <strings.h>

/* Presets that are a flavor of TorchTitan (torchtitan/models). */
static const struct {
    const char *preset, *name, *flavor;
} flavors[] = {
    {"llama3-8b", "llama3", "8B"},       {"llama3-70b", "llama3", "70B"},
    {"llama3.1-8b", "llama3", "8B"},     {"llama3.1-70b", "llama3", "70B"},
    {"llama3.1-405b", "llama3", "405B"}, {"qwen3-0.6b", "qwen3", "0.6B"},
    {"qwen3-1.7b", "qwen3", "1.7B"},     {"qwen3-4b", "qwen3", "4B"},
    {"qwen3-8b", "qwen3", "8B"},         {"qwen3-14b", "qwen3", "14B"},
    {"qwen3-32b", "qwen3", "32B"},       {"qwen3-30b-a3b", "qwen3", "30B-A3B"}};
enum { N_FLAVORS = sizeof flavors / sizeof flavors[0] };

/* Our schedules by PyTorch's names. */
static const struct {
    const char *ours, *theirs;
} schedules[] = {{"1f1b", "1F1B"},
                 {"gpipe", "GPipe"},
                 {"interleaved-1f1b", "Interleaved1F1B"},
                 {"looped-bfs", "LoopedBFS"},
                 {"interleaved-zb", "InterleavedZeroBubble"},
                 {"zb-v", "ZBVZeroBubble"},
                 {"dualpipev", "DualPipeV"}};
enum { N_SCHEDULES = sizeof schedules / sizeof schedules[0] };

static int flavor_of(const struct mw_model *model)
{
    for (int i = 0; i < N_FLAVORS; i++) {
        if (strcasecmp(flavors[i].preset, model->name) == 0) {
            return i;
        }
    }
    return -1;
}

static const char *schedule_of(const struct mw_layout *l)
{
    for (int i = 0; i < N_SCHEDULES; i++) {
        if (strcasecmp(schedules[i].ours, l->schedule) == 0) {
            return schedules[i].theirs;
        }
    }
    return NULL;
}

static enum mw_status check(const struct mw_export_in *in, struct mw_err *err)
{
    const struct mw_layout *l = &in->plan->layout;
    const struct mw_workload *w = &in->scenario->workload;

    if (flavor_of(&in->scenario->model) < 0) {
        return mw_export_refuse(err, "titan_model",
                                "'%s' is no model of TorchTitan's; the Llama 3 "
                                "and Qwen 3 presets are",
                                in->scenario->model.name);
    }
    if (in->scenario->model.window.tokens > 0 || in->scenario->model.sinks) {
        return mw_export_refuse(err, "titan_model",
                                "its Llama 3 and Qwen 3 have neither windows "
                                "nor sinks");
    }
    if (l->dispatcher == MW_DISPATCH_DEEPEP) {
        return mw_export_refuse(err, "titan_model_dispatcher",
                                "its Qwen 3 exchanges tokens by all-to-alls; "
                                "DeepEP is DeepSeek's and Llama 4's alone");
    }
    if (w->dtype == MW_FP8 && in->scenario->model.moe.n_experts > 0) {
        return mw_export_refuse(err, "titan_dtype",
                                "FP8 is written for dense models; experts' "
                                "products have converters of their own "
                                "(quantize.grouped_mm)");
    }
    return MW_OK;
}

/* Even stages by their size; others by lists of modules. */
static void put_layers(const struct mw_plan *plan, struct mw_str *f)
{
    int layer = 0;

    if (mw_plan_is_even(plan)) {
        mw_str_addf(f,
                    "pipeline_parallel_layers_per_stage = %d\n"
                    "pipeline_parallel_first_stage_less_layers = 0\n"
                    "pipeline_parallel_last_stage_less_layers = 0\n",
                    plan->layers[0]);
        return;
    }
    mw_str_add(f, "module_fqns_per_model_part = [\n");
    for (int k = 0; k < plan->n_virtual; k++) {
        const char *gap = "";

        mw_str_add(f, "    [");
        if (k == 0) {
            mw_str_add(f, "\"tok_embeddings\"");
            gap = ", ";
        }
        for (int end = layer + plan->layers[k]; layer < end; layer++) {
            mw_str_addf(f, "%s\"layers.%d\"", gap, layer);
            gap = ", ";
        }
        if (k == plan->n_virtual - 1) {
            mw_str_addf(f, "%s\"norm\", \"output\"", gap);
        }
        mw_str_add(f, "],\n");
    }
    mw_str_add(f, "]\n");
}

/* PyTorch's schedules with passes of weight gradients refuse compiled layers
 * (torch/distributed/pipelining/schedules.py,
 * _check_torch_compile_compatibility). */
static bool is_split(const struct mw_export_in *in)
{
    const struct mw_layout *l = &in->plan->layout;
    const struct mw_sched_kind *kind = mw_schedule_kind_find(l->schedule);

    return l->pp > 1 && kind != NULL && kind->is_split;
}

/* Does the price cut products so that collectives run beside them, and may they
 * (of compiled layers, among GPUs that reach each other's memory:
 * torchtitan/distributed/tensor_parallel.py, maybe_enable_async_tp)? */
static bool hides_tp(const struct mw_export_in *in)
{
    const struct mw_layout *l = &in->plan->layout;

    return l->tp > 1 && in->ctx->stack.chunks_tp && !is_split(in) &&
           l->tp <= in->ctx->domain_gpus &&
           (l->overlap_off & MW_OVERLAP_TP) == 0;
}

static void put_parallelism(const struct mw_export_in *in, struct mw_str *f)
{
    const struct mw_layout *l = &in->plan->layout;
    int shard = l->zero < 2 ? 1 : l->dp_shard > 0 ? l->dp_shard : l->dp;

    mw_str_addf(f,
                "[parallelism]\n"
                "data_parallel_replicate_degree = %d\n"
                "data_parallel_shard_degree = %d\n",
                l->dp / shard, shard);
    if (l->zero >= 2) {
        mw_str_addf(f, "fsdp_reshard_after_forward = \"%s\"\n",
                    l->zero == 3 && l->reshard ? "always" : "never");
    }
    mw_str_addf(f,
                "tensor_parallel_degree = %d\npipeline_parallel_degree = %d\n",
                l->tp, l->pp);
    if (l->pp > 1) {
        mw_str_addf(f,
                    "pipeline_parallel_schedule = \"%s\"\n"
                    "pipeline_parallel_microbatch_size = %d\n",
                    schedule_of(l), l->micro_batch);
        put_layers(in->plan, f);
    }
    if (hides_tp(in)) {
        mw_str_add(f, "enable_async_tensor_parallel = true\n");
    }
    mw_str_addf(f, "context_parallel_degree = %d\n", l->cp);
    if (l->cp > 1) {
        mw_str_addf(f, "context_parallel_rotate_method = \"%s\"\n",
                    l->cp_form == MW_CP_RING ? "alltoall" : "allgather");
    }
    if (in->scenario->model.moe.n_experts > 0) {
        mw_str_addf(f,
                    "expert_parallel_degree = %d\n"
                    "expert_tensor_parallel_degree = %d\n",
                    l->ep, l->etp);
        if (l->dispatcher != MW_DISPATCH_STACK) {
            mw_str_addf(f, "expert_parallel_comm_backend = \"%s\"\n",
                        l->dispatcher == MW_DISPATCH_ALLTOALL
                            ? "standard"
                            : mw_dispatcher_name(l->dispatcher));
        }
    }
    mw_str_add(f, "\n");
}

static void put_training(const struct mw_export_in *in, struct mw_export *out)
{
    struct mw_str *f = &out->file;
    const struct mw_layout *l = &in->plan->layout;
    const struct mw_workload *w = &in->scenario->workload;
    long long local =
        l->pp > 1 ? w->global_batch / l->dp : (long long)l->micro_batch;

    mw_str_addf(f,
                "[training]\nlocal_batch_size = %lld\nglobal_batch_size = "
                "%lld\nseq_len = %lld\nsteps = 1000\ndataset = \"c4\"\n"
                "mixed_precision_param = \"%s\"\n",
                local, (long long)w->global_batch, (long long)w->seq,
                w->dtype == MW_FP32 ? "float32" : "bfloat16");
    if (l->offload_optimizer > 0) {
        mw_str_add(f, "enable_cpu_offload = true\n");
    }
    mw_str_add(f, "\n[optimizer]\nname = \"AdamW\"\nlr = 1.5e-4\n");
    if (w->optimizer.exp_avg == MW_BF16) {
        mw_str_add(f, "implementation = \"fused_opt_states_bf16\"\n");
        mw_export_note(out, "implementation fused_opt_states_bf16 is in "
                            "TorchTitan's main branch of 2026, not in 0.2");
    }
    mw_str_add(f, "\n");
}

/* Converters of products to FP8; the head keeps its type, as it does here. */
static void put_converters(const struct mw_export_in *in, struct mw_str *f)
{
    enum mw_scaling scaling = in->scenario->workload.scaling;
    const char *name = scaling == MW_SCALE_MX ? "mx" : "float8";

    if (in->scenario->workload.dtype != MW_FP8) {
        return;
    }
    mw_str_addf(f,
                "converters = [\"quantize.linear.%s\"]\n\n"
                "[quantize.linear.%s]\nrecipe_name = \"%s\"\n"
                "filter_fqns = [\"output\"]\n",
                name, name,
                scaling == MW_SCALE_MX    ? "mxfp8_cublas"
                : scaling == MW_SCALE_ROW ? "rowwise"
                                          : "tensorwise");
}

static void put_rest(const struct mw_export_in *in, struct mw_str *f)
{
    static const char *const modes[] = {[MW_RECOMPUTE_NONE] = "none",
                                        [MW_RECOMPUTE_SELECTIVE] = "selective",
                                        [MW_RECOMPUTE_FULL] = "full"};
    enum mw_recompute recompute = in->plan->layout.recompute;

    mw_str_addf(f, "[activation_checkpoint]\nmode = \"%s\"\n",
                modes[recompute]);
    if (recompute == MW_RECOMPUTE_SELECTIVE) {
        mw_str_add(f, "selective_ac_option = \"op\"\n");
    }
    mw_str_addf(f, "\n[compile]\nenable = true\ncomponents = [%s\"loss\"]\n",
                is_split(in) ? "" : "\"model\", ");
}

enum mw_status mw_export_torchtitan(const struct mw_export_in *in,
                                    struct mw_export *out, struct mw_err *err)
{
    enum mw_status status = check(in, err);

    if (status != MW_OK) {
        return status;
    }
    int i = flavor_of(&in->scenario->model);

    mw_str_addf(&out->file,
                "[job]\ndump_folder = \"./outputs\"\n\n[model]\nname = "
                "\"%s\"\nflavor = \"%s\"\nhf_assets_path = \"./assets/hf\"\n",
                flavors[i].name, flavors[i].flavor);
    put_converters(in, &out->file);
    mw_str_add(&out->file, "\n");
    put_training(in, out);
    put_parallelism(in, &out->file);
    put_rest(in, &out->file);
    mw_export_torchrun(in, out);
    mw_str_addf(&out->launch, "-m torchtitan.train --job.config_file %s\n",
                in->file);
    if (is_split(in)) {
        mw_export_note(out,
                       "%s refuses compiled layers: they are left as they are, "
                       "and the step may be longer than predicted",
                       schedule_of(&in->plan->layout));
    }
    if (in->plan->layout.recompute == MW_RECOMPUTE_SELECTIVE) {
        mw_export_note(out, "TorchTitan's selective checkpointing keeps "
                            "products by operator; ours computes attention "
                            "again alone");
    }
    return MW_OK;
}
