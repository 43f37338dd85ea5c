/*
 * From a plan to a job, what the executor can run, and the one-rank
 * reference.
 *
 * Order of sums: micro-batch m adds to a weight's gradient when its W (or BW)
 * is walked. On one rank the list F0 BW0 F1 BW1 ... adds in ascending order.
 * A plan whose lists add in another order is folded onto one rank that keeps
 * its virtual stages as chunks: all F, all B, then each stage's W in the
 * plan's order. With two routes there are two sets of chunks.
 */
#include "exec/job.h"

#include <string.h>

void mw_job_from_plan(struct mw_job *job, const struct mw_scenario *scenario,
                      const struct mw_plan *plan)
{
    *job = (struct mw_job){.model = &scenario->model,
                           .workload = &scenario->workload,
                           .layout = plan->layout,
                           .n_virtual = plan->n_virtual,
                           .layers = plan->layers,
                           .n_microbatches = plan->n_microbatches,
                           .schedule = &plan->schedule};
}

int mw_job_first_layer(const struct mw_job *job, int virtual_stage)
{
    int first = 0;
    for (int k = 0; k < virtual_stage; k++) {
        first += job->layers[k];
    }
    return first;
}

int mw_job_twin_stage(const struct mw_job *job, int stage)
{
    const struct mw_schedule *s = job->schedule;
    return s->n_routes == 2 ? s->n_stages - 1 - stage : stage;
}

bool mw_job_is_own_twin(const struct mw_job *job, int stage)
{
    return job->schedule->n_routes == 2 &&
           mw_job_twin_stage(job, stage) == stage;
}

/* ---- what can be run ---------------------------------------------------- */
/* Ways that the executor's tables of an all-to-all hold. */
enum { EP_MAX = 256 };

/* section, key: of the plan (layout, schedule) or the scenario, to blame. */
static enum mw_status lacks(struct mw_err *err, const char *section,
                            const char *key, const char *what,
                            const char *instead)
{
    return mw_fail_key(err, MW_EINPUT, section, key,
                       "the executor does not run %s; %s", what, instead);
}

static enum mw_status check_layout(const struct mw_layout *l,
                                   struct mw_err *err)
{
    if (l->ep > EP_MAX || l->etp > EP_MAX) {
        return lacks(err, "layout", l->ep > EP_MAX ? "ep" : "etp",
                     "more than 256 ways of experts",
                     "plan with less ep or etp");
    }
    return MW_OK;
}

/* kernels/ has AdamW alone, on float32 states. */
static enum mw_status check_optimizer(const struct mw_optimizer *o,
                                      struct mw_err *err)
{
    const char *key = o->kind != MW_OPTIMIZER_ADAMW ? "optimizer"
                      : o->main != MW_MAIN_FP32     ? "main_params_dtype"
                      : o->exp_avg != MW_FP32       ? "exp_avg_dtype"
                      : o->exp_avg_sq != MW_FP32    ? "exp_avg_sq_dtype"
                                                    : NULL;
    return key == NULL
               ? MW_OK
               : lacks(err, "workload", key,
                       "optimizers other than AdamW with fp32 states",
                       "take optimizer adamw and leave main_params_dtype, "
                       "exp_avg_dtype and exp_avg_sq_dtype out");
}

/* What the simulator prices and the interpreter does not do. */
static enum mw_status check_features(const struct mw_layout *l,
                                     const struct mw_workload *w,
                                     struct mw_err *err)
{
    if ((l->recompute_modules & ~MW_MODULE_CORE_ATTN) != 0) {
        return lacks(err, "layout", "recompute_modules",
                     "recomputation of modules other than core_attn",
                     "plan without recompute_modules");
    }
    if (l->grad_compression != MW_COMPRESS_NONE) {
        return lacks(err, "layout", "grad_compression", "compressed gradients",
                     "plan with grad_compression none");
    }
    if (l->offload_weights > 0 || l->offload_activations > 0) {
        return lacks(err, "layout",
                     l->offload_weights > 0 ? "offload_weights"
                                            : "offload_activations",
                     "offload of weights and activations",
                     "plan with offload_optimizer alone");
    }
    if (l->dtype != MW_DTYPE_OF_WORKLOAD ||
        l->grad_dtype != MW_DTYPE_OF_WORKLOAD) {
        return lacks(err, "layout",
                     l->dtype != MW_DTYPE_OF_WORKLOAD ? "dtype" : "grad_dtype",
                     "types of the layout's own",
                     "set the workload's dtype and grad_dtype");
    }
    if (l->main_params + l->exp_avg + l->exp_avg_sq > 0) {
        return lacks(err, "layout",
                     l->main_params > 0 ? "main_params_dtype"
                     : l->exp_avg > 0   ? "exp_avg_dtype"
                                        : "exp_avg_sq_dtype",
                     "types of states of the layout's own",
                     "set the workload's");
    }
    if (l->fsdp_unit == 0) {
        return lacks(err, "layout", "fsdp_unit",
                     "a stage and its ends as one unit",
                     "set fsdp_unit to the layers of a stage");
    }
    if (l->fsdp_prefetch > 0) {
        return lacks(err, "layout", "fsdp_prefetch", "gathers ahead",
                     "plan with fsdp_prefetch 0 or without");
    }
    if (l->cuda_graph != MW_GRAPH_STACK) {
        return lacks(err, "layout", "cuda_graph", "CUDA graphs",
                     "plan without cuda_graph");
    }
    if (l->dispatcher > MW_DISPATCH_ALLTOALL) {
        return lacks(err, "layout", "dispatcher",
                     "ways to the experts other than all-to-alls",
                     "plan with dispatcher alltoall");
    }
    if (l->overlap_shared_experts) {
        return lacks(err, "layout", "overlap_shared_experts",
                     "shared experts beside exchanges",
                     "plan without overlap_shared_experts");
    }
    if (l->overlap_off != 0) {
        return lacks(err, "layout", "overlap_off", "switches of overlap",
                     "plan without overlap_off");
    }
    if (l->offload_nvme != MW_NVME_NONE) {
        return lacks(err, "layout", "offload_nvme", "offload to drives",
                     "plan without offload_nvme");
    }
    if (w->capacity_factor > 0) {
        return lacks(err, "workload", "capacity_factor",
                     "capacities of experts", "leave capacity_factor out");
    }
    if (w->base_dtype != MW_BASE_SAME) {
        return lacks(err, "workload", "base_dtype", "weights in 4 bits",
                     "take base_dtype same");
    }
    if (w->lora_rank > 0 && l->etp > 1 && w->lora_targets == MW_LORA_ALL) {
        return lacks(err, "layout", "etp", "adapters of experts in parts",
                     "plan with etp 1 or take lora_targets attention");
    }
    if (w->loss != MW_LOSS_STACK || w->loss_chunks > 1) {
        return lacks(err, "workload",
                     w->loss_chunks > 1 ? "loss_chunks" : "loss",
                     "other kernels of the loss, nor the loss in parts",
                     "leave loss and loss_chunks out");
    }
    if (w->clip == MW_CLIP_NORM) {
        return lacks(err, "workload", "clip_grad", "clipping of gradients",
                     "leave clip_grad out");
    }
    return check_optimizer(&w->optimizer, err);
}

/* Do both holders of each stage run the same passes of the same virtual stages
 * in the same order, each on its own route? */
static bool is_mirrored(const struct mw_schedule *s)
{
    for (int d = 0; d < s->n_stages; d++) {
        int twin = s->n_stages - 1 - d;
        uint32_t n = s->first[d + 1] - s->first[d];
        if (twin == d || s->first[twin + 1] - s->first[twin] != n) {
            return false;
        }
        for (uint32_t i = 0; i < n; i++) {
            const struct mw_slot *a = &s->slot[s->first[d] + i];
            const struct mw_slot *b = &s->slot[s->first[twin] + i];
            if (a->pass != b->pass ||
                s->virtual_stage[d * s->n_chunks + a->chunk] !=
                    s->virtual_stage[twin * s->n_chunks + b->chunk]) {
                return false;
            }
        }
    }
    return true;
}

/* ZeRO-2 and 3 reduce and gather between both holders of a stage in the middle
 * of their passes. */
static enum mw_status check_schedule(const struct mw_schedule *s, int zero,
                                     struct mw_err *err)
{
    if (s->n_routes == 2 && zero > 1 && !is_mirrored(s)) {
        return lacks(err, "layout", "zero",
                     "ZeRO stages 2 and 3 on two routes that are no mirror "
                     "images",
                     "plan with zero 0 or 1, or with dualpipe or chimera");
    }
    if (s->is_forward_only) {
        return lacks(err, "schedule", "kind", "forward-only schedules",
                     "plan with a training schedule");
    }
    return MW_OK;
}

/* Parts of sequences: equal ones, not split again by cp. */
static enum mw_status check_parts(const struct mw_job *job, struct mw_err *err)
{
    int q = job->schedule->n_parts, tp = job->layout.tp;
    int64_t seq = job->workload->seq;
    if (q == 1) {
        return MW_OK;
    }
    if (job->layout.cp > 1) {
        return lacks(err, "layout", "cp",
                     "parts of sequences with context parallelism",
                     "plan with cp 1");
    }
    if (job->model->moe.n_experts > 0) { /* balanced over a micro-batch */
        return lacks(err, "schedule", "kind",
                     "mixtures of experts in parts of sequences",
                     "plan with schedule 1f1b");
    }
    if (seq % q != 0 ||
        (job->layout.sp && seq / q * job->layout.micro_batch % tp != 0)) {
        return mw_fail_key(err, MW_EINPUT, "workload", "seq",
                           "%d parts do not divide a sequence of %lld tokens "
                           "evenly%s; change workload.seq or the schedule",
                           q, (long long)seq,
                           seq % q == 0 ? " over the ranks of tp" : "");
    }
    return MW_OK;
}

/* Documents of a packed sequence: equal ones, each whole where its core runs.
 */
static enum mw_status check_documents(const struct mw_job *job,
                                      struct mw_err *err)
{
    const struct mw_workload *w = job->workload;
    const struct mw_layout *l = &job->layout;
    int64_t span = mw_work_span(w->seq, w->doc_tokens);
    bool is_whole = l->cp == 1 || l->cp_form == MW_CP_A2A;
    if (span == w->seq) {
        return MW_OK;
    }
    if (w->seq % span != 0) {
        return mw_fail_key(
            err, MW_EINPUT, "workload", "doc_tokens",
            "documents of %lld tokens do not divide a sequence of "
            "%lld evenly, as the executor packs them; change "
            "workload.doc_tokens or workload.seq",
            (long long)span, (long long)w->seq);
    }
    if (!is_whole || job->schedule->n_parts > 1) {
        return lacks(err, "workload", "doc_tokens",
                     "packed sequences in a ring, a gather or parts",
                     "plan with cp_form a2a, with cp 1, or without seq1f1b");
    }
    return MW_OK;
}

static enum mw_status check_model(const struct mw_model *m,
                                  const struct mw_layout *l, struct mw_err *err)
{
    if (m->moe.router_bias) {
        return lacks(err, "model", "moe", "biases of routers",
                     "take experts without them");
    }
    if (m->moe.bias || m->moe.clamp) {
        return lacks(err, "model", "moe", "biases and clamps of experts",
                     "take experts without them");
    }
    if (m->window.tokens > 0 || m->sinks) {
        return lacks(err, "model",
                     m->sinks ? "attention_sinks" : "attention_window",
                     "windows and sinks of attention",
                     "take a model whose layers attend to all tokens");
    }
    if (m->mla.on) {
        return lacks(err, "model", "mla", "latent attention",
                     "take a model with MHA or GQA");
    }
    if (m->position == MW_POS_ALIBI) {
        return lacks(err, "model", "position", "ALiBi positions",
                     "take learned or rotary");
    }
    if (m->qk_norm || m->sandwich_norm || m->n_mtp > 0) {
        return lacks(err, "model",
                     m->qk_norm         ? "qk_norm"
                     : m->sandwich_norm ? "sandwich_norm"
                                        : "mtp",
                     "qk_norm, sandwich norms and multi-token prediction",
                     "take a GPT or Llama model");
    }
    if (m->act != (m->is_gated ? MW_ACT_SILU : MW_ACT_GELU)) {
        return lacks(err, "model", "activation", "this activation",
                     "take GELU, or SiLU with a gated MLP");
    }
    if (m->n_kv_heads % l->tp != 0) {
        return lacks(err, "layout", "tp",
                     "shared key-value heads (tp beyond n_kv_heads)",
                     "plan with a smaller tp");
    }
    if (m->bias_head) {
        return lacks(err, "model", "bias_head", "a bias of the head",
                     "take a model without it");
    }
    if (!m->final_norm) {
        return lacks(err, "model", "final_norm", "a model without final norm",
                     "take a model with it");
    }
    return MW_OK;
}

/* float32; on a GPU bfloat16 with float32 gradients and masters as well. */
static enum mw_status check_dtype(const struct mw_workload *w,
                                  const char *backend, struct mw_err *err)
{
    bool is_cuda = strcmp(backend, "cuda") == 0;
    if (w->grad_dtype != MW_FP32) {
        return mw_fail_key(err, MW_EINPUT, "workload", "grad_dtype",
                           "the executor adds gradients up in fp32 but "
                           "workload.grad_dtype is %s; set it to fp32",
                           mw_dtype_name(w->grad_dtype));
    }
    if (w->dtype != MW_FP32 && (w->dtype != MW_BF16 || !is_cuda)) {
        return mw_fail_key(
            err, MW_EINPUT, "workload", "dtype",
            "the %s backend computes in fp32%s but workload.dtype "
            "is %s; set workload.dtype to fp32",
            backend, is_cuda ? " or bf16" : "", mw_dtype_name(w->dtype));
    }
    return MW_OK;
}

/* A GPU's kernel of attention wants an output that is not there. */
static enum mw_status check_backend(const struct mw_layout *l,
                                    const char *backend, struct mw_err *err)
{
    bool is_host = strcmp(backend, "host") == 0;
    return l->cp > 1 && l->cp_form == MW_CP_PASSQ && !is_host
               ? lacks(err, "layout", "cp_form",
                       "queries passed round a ring there",
                       "plan with cp_form ring")
               : MW_OK;
}

enum mw_status mw_job_check(const struct mw_job *job, const char *backend,
                            struct mw_err *err)
{
    enum mw_status st = check_layout(&job->layout, err);
    if (st == MW_OK) {
        st = check_features(&job->layout, job->workload, err);
    }
    if (st == MW_OK) {
        st = check_schedule(job->schedule, job->layout.zero, err);
    }
    if (st == MW_OK) {
        st = check_parts(job, err);
    }
    if (st == MW_OK) {
        st = check_documents(job, err);
    }
    if (st == MW_OK) {
        st = check_backend(&job->layout, backend, err);
    }
    if (st == MW_OK) {
        st = check_model(job->model, &job->layout, err);
    }
    return st == MW_OK ? check_dtype(job->workload, backend, err) : st;
}

void mw_job_blame(const char *plan_file, const struct mw_scenario *scenario,
                  struct mw_err *err)
{
    bool is_plans = strcmp(err->section, "layout") == 0 ||
                    strcmp(err->section, "schedule") == 0;

    mw_file_blame(is_plans ? plan_file : scenario->file, err);
}

/* ---- the reference ------------------------------------------------------ */
static bool is_weight_pass(const struct mw_slot *slot)
{
    return slot->pass == MW_PASS_W || slot->pass == MW_PASS_BW;
}

/* Do all chunks of all devices add micro-batches in ascending order? */
static bool is_ascending(const struct mw_schedule *s)
{
    for (int d = 0; d < s->n_stages; d++) {
        for (int c = 0; c < s->n_chunks; c++) {
            int route = s->route[d * s->n_chunks + c];
            int next = route * s->n_microbatches / 2;
            for (uint32_t i = s->first[d]; i < s->first[d + 1]; i++) {
                const struct mw_slot *slot = &s->slot[i];
                if (slot->chunk != c || !is_weight_pass(slot)) {
                    continue;
                }
                if (slot->microbatch != next++) {
                    return false;
                }
            }
        }
    }
    return true;
}

/* First chunk of micro-batch m's route, of n micro-batches. */
static int route_chunk(int m, int n, int n_routes, int route_len)
{
    return n_routes == 2 && 2 * m >= n ? route_len : 0;
}

static void list_simple(int n, int n_routes, struct mw_str *text)
{
    for (int m = 0; m < n; m++) {
        int c = route_chunk(m, n, n_routes, 1);
        mw_str_addf(text, "F%d.%d B%d.%d W%d.%d ", m, c, m, c, m, c);
    }
}

/* Passes of the plan's W in the order of the device at `place`: route and
 * virtual stage. Replica copies follow each other: the order within each is the
 * plan's. */
static void list_weights(const struct mw_job *job, int place,
                         struct mw_str *text)
{
    const struct mw_schedule *s = job->schedule;
    int d = s->device[place], c = s->chunk[place];
    for (int replica = 0; replica < job->layout.dp; replica++) {
        for (uint32_t i = s->first[d]; i < s->first[d + 1]; i++) {
            const struct mw_slot *slot = &s->slot[i];
            if (slot->chunk == c && is_weight_pass(slot)) {
                mw_str_addf(text, "W%d.%d ",
                            replica * job->n_microbatches + slot->microbatch,
                            place);
            }
        }
    }
}

static void list_by_stage(const struct mw_job *job, int n, struct mw_str *text)
{
    int n_routes = job->schedule->n_routes, len = job->n_virtual;
    for (int m = 0; m < n; m++) {
        for (int k = 0; k < len; k++) {
            int c = route_chunk(m, n, n_routes, len) + k;
            mw_str_addf(text, "F%d.%d ", m, c);
        }
    }
    for (int m = 0; m < n; m++) {
        for (int k = len - 1; k >= 0; k--) {
            int c = route_chunk(m, n, n_routes, len) + k;
            mw_str_addf(text, "B%d.%d ", m, c);
        }
    }
    for (int place = 0; place < n_routes * len; place++) {
        list_weights(job, place, text);
    }
}

/* May one chunk a route do? Yes if sums ascend, or where the order is free:
 * replicas of two routes, and parts, are compared within a tolerance. */
static bool is_simple_order(const struct mw_job *job)
{
    const struct mw_schedule *s = job->schedule;
    return is_ascending(s) || s->n_parts > 1 ||
           (s->n_routes == 2 && job->layout.dp > 1);
}

enum mw_status mw_job_fold(const struct mw_job *job, int *layers_storage,
                           struct mw_schedule *schedule, struct mw_job *out,
                           struct mw_err *err)
{
    bool is_simple = is_simple_order(job);
    int n = job->n_microbatches * job->layout.dp;
    int n_routes = job->schedule->n_routes;
    int n_virtual = is_simple ? 1 : job->n_virtual;
    const char *placement = n_routes == 2 ? "bidirectional" : "loop";
    struct mw_str text = {0};
    if (is_simple) {
        list_simple(n, n_routes, &text);
        layers_storage[0] = job->model->n_layers;
    } else {
        list_by_stage(job, n, &text);
        for (int k = 0; k < n_virtual; k++) {
            layers_storage[k] = job->layers[k];
        }
    }
    const char *list = text.s;
    enum mw_status st = mw_schedule_parse(&list, 1, n, n_routes * n_virtual,
                                          placement, schedule, err);
    mw_str_release(&text);
    if (st != MW_OK) {
        return st;
    }
    *out = *job;
    mw_layout_default(&out->layout);
    out->layout.micro_batch = job->layout.micro_batch;
    out->layout.vpp = n_virtual;
    out->n_virtual = n_virtual;
    out->layers = layers_storage;
    out->n_microbatches = n;
    out->schedule = schedule;
    return MW_OK;
}
