/*
 * One training step, event form.
 *
 * Figures:
 *   tokens/s/GPU       global batch x sequence / (step time x GPUs)
 *   model FLOPs        Megatron's count of the useful work, no recomputation,
 *                      no weight gradients of what is frozen under adapters
 *                      (Narayanan et al., SC 2021, equation 3, without its
 *                      recomputation), attention in full or causal
 *   hardware FLOPs     model FLOPs plus those of the recomputed operators
 *   MFU                model FLOPs / (step time x GPUs x peak of the dtype)
 *                      (Chowdhery et al., PaLM, 2022, appendix B)
 */
#include "sim/step/tasks_int.h"

#include "base/log.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

enum mw_status mw_step_check_rates(const struct mw_scenario *scenario,
                                   const struct mw_cost_ctx *ctx,
                                   struct mw_err *err)
{
    enum mw_dtype dtype = scenario->workload.dtype;
    const char *slug = ctx->gpu->slug;

    if (!(ctx->gpu->peak_flops[dtype] > 0)) {
        return mw_fail_key(err, MW_EINPUT, "workload", "dtype",
                           "%s has no %s rate; choose another workload dtype",
                           slug, mw_dtype_name(dtype));
    }
    if (scenario->workload.scaling == MW_SCALE_MX &&
        !(ctx->gpu->peak_flops[MW_FP4] > 0)) {
        return mw_fail_key(
            err, MW_EINPUT, "workload", "fp8_scaling",
            "%s has no products of MX formats (devices that have "
            "them have an fp4 rate); fp8_scaling is tensor, row or "
            "block",
            slug);
    }
    if (!(ctx->gpu->mem_bw_Bps > 0)) {
        return mw_fail_key(err, MW_EINPUT, "cluster", "system",
                           "%s has no memory bandwidth in the database", slug);
    }
    if (ctx->n_nodes * ctx->gpus_per_node > ctx->domain_gpus &&
        !(ctx->domain_net_Bps > 0)) {
        return mw_fail_key(
            err, MW_EINPUT, "cluster", "system",
            "%s has no network between nodes in the database; use "
            "one node, or another system",
            ctx->system->slug);
    }
    if (ctx->domain_gpus > 1 && !(ctx->system->intra_bw_Bps > 0)) {
        return mw_fail_key(err, MW_EINPUT, "cluster", "system",
                           "%s has no bandwidth between its devices in the "
                           "database",
                           ctx->system->slug);
    }
    return mw_router_check(ctx, scenario, err);
}

enum mw_status mw_step_check_features(const struct mw_layout *layout,
                                      const struct mw_cost_ctx *ctx,
                                      struct mw_err *err)
{
    if (mw_layout_offloads(layout) && !(ctx->host_link_Bps > 0)) {
        return mw_fail_key(
            err, MW_EINPUT, "cluster", "system",
            "offload needs the link between device and host, which "
            "the database does not know of %s; give its constant "
            "host_link_rate.%s",
            ctx->system->slug, ctx->system->slug);
    }
    if (layout->dtype != MW_DTYPE_OF_WORKLOAD &&
        !(ctx->gpu->peak_flops[layout->dtype - 1] > 0)) {
        return mw_fail_key(
            err, MW_EINPUT, "layout", "dtype",
            "%s has no %s rate; choose another dtype of the layout",
            ctx->gpu->slug, mw_dtype_choice_name(layout->dtype));
    }
    if (layout->offload_nvme != MW_NVME_NONE && !(ctx->nvme_read_Bps > 0)) {
        return mw_fail_key(
            err, MW_EINPUT, "cluster", "system",
            "offload_nvme needs the rate of the node's drives; give "
            "the constant nvme_rate.%s",
            ctx->system->slug);
    }
    return MW_OK;
}

/* ---- memory -----------------------------------------------------------------
 */
static bool fits_host(const struct mw_step_price *p,
                      const struct mw_step_result *r)
{
    double most = 0;

    for (int d = 0; d < r->n_stages; d++) {
        most = fmax(most, r->memory[d].host_bytes);
    }
    /* NaN: not known */
    return !(most * p->ctx->gpus_per_node > p->ctx->system->host_mem_bytes);
}

/* What the allocator holds on the fullest stage when the busiest rank of an
 * uneven router holds as much as at most in nine of ten. */
static double busy_reserved_bytes(struct mw_step_frame *f,
                                  const struct mw_schedule *s)
{
    double *act = mw_arena_alloc(&f->arena, (size_t)f->n_virtual, sizeof *act);
    struct mw_step_price p = f->price;
    double most = 0;

    p.router.held = p.router.held_p90;
    mw_step_size_memory(&p);
    for (int k = 0; k < f->n_virtual; k++) {
        act[k] = mw_vstage_activation_bytes(&p, f->vstage[k].n_units);
    }
    for (int d = 0; d < f->n_devices; d++) {
        struct mw_stage_memory m = {0};

        mw_stage_memory_of(&p, f->units[d], mw_step_frame_is_twin(f, d),
                           mw_schedule_high_water(s, d, act), &m);
        most = fmax(most, m.reserved_bytes);
    }
    return most;
}

static void fill_memory(struct mw_step_frame *f, const struct mw_schedule *s,
                        struct mw_step_result *out)
{
    double *act = mw_arena_alloc(&f->arena, (size_t)f->n_virtual, sizeof *act);
    const struct mw_step_price *p = &f->price;

    for (int k = 0; k < f->n_virtual; k++) {
        act[k] = mw_vstage_activation_bytes(p, f->vstage[k].n_units);
    }
    out->n_stages = f->n_devices;
    out->memory = mw_calloc((size_t)f->n_devices, sizeof *out->memory);
    out->capacity_bytes = mw_step_capacity_bytes(p->scenario, p->ctx);
    out->usable_bytes = mw_step_usable_bytes(p->scenario, p->ctx);
    for (int d = 0; d < f->n_devices; d++) {
        mw_stage_memory_of(p, f->units[d], mw_step_frame_is_twin(f, d),
                           mw_schedule_high_water(s, d, act), &out->memory[d]);
        mw_stage_memory_parts(p, f->units[d], &out->memory[d]);
        out->peak_bytes = fmax(out->peak_bytes, out->memory[d].total_bytes);
    }
    for (int d = 0; d < f->n_devices; d++) {
        out->allocated_bytes =
            fmax(out->allocated_bytes,
                 out->memory[d].total_bytes - out->memory[d].overhead_bytes);
    }
    for (int d = 0; d < f->n_devices; d++) {
        out->reserved_bytes =
            fmax(out->reserved_bytes, out->memory[d].reserved_bytes);
    }
    double busy = p->router.held_p90 > p->router.held
                      ? busy_reserved_bytes(f, s)
                      : out->reserved_bytes;

    out->reserved_p90_bytes = busy * p->ctx->stack.memory.reserve_spread;
    out->fits = out->peak_bytes <= out->usable_bytes && fits_host(p, out);
}

/* ---- figures ---------------------------------------------------------- */
/* FLOPs of recomputation: per rank and micro-batch, times all of them. */
static double recompute_flops(const struct mw_step_frame *f, int n_microbatches)
{
    const struct mw_layout *l = f->price.layout;
    double sum = 0;

    for (int k = 0; k < f->n_virtual; k++) {
        for (int unit = 0; unit < MW_UNIT_COUNT; unit++) {
            sum += f->vstage[k].n_units[unit] *
                   f->price.cost[unit].phase[MW_PHASE_R].counted_flops;
        }
    }
    return sum * l->tp * l->cp * l->dp * n_microbatches;
}

static double flops_per_token(const struct mw_scenario *s)
{
    const struct mw_workload *w = &s->workload;
    int64_t span = mw_work_span(w->seq, w->doc_tokens);

    return w->lora_rank > 0
               ? mw_lora_flops_per_token(&s->model, span, w->causal_flops,
                                         w->lora_rank, w->lora_targets)
               : mw_model_flops_per_token(&s->model, span, w->causal_flops);
}

static void fill_figures(const struct mw_step_frame *f, int n_microbatches,
                         struct mw_step_result *out)
{
    const struct mw_workload *w = &f->price.scenario->workload;
    double tokens = (double)w->global_batch * (double)w->seq;
    double gpu_s = out->step_time_s * mw_layout_ranks(f->price.layout);

    out->model_flops = tokens * flops_per_token(f->price.scenario);
    out->hardware_flops = out->model_flops + recompute_flops(f, n_microbatches);
    out->tokens_per_s_per_gpu = tokens / gpu_s;
    out->model_tflops_per_gpu = out->model_flops / gpu_s / 1e12;
    out->hardware_tflops_per_gpu = out->hardware_flops / gpu_s / 1e12;
    out->mfu = out->model_flops /
               (gpu_s * mw_cost_peak_flops(f->price.ctx, f->price.work.dtype));
    memcpy(out->rung_count, f->price.rung_count, sizeof out->rung_count);
}

static void name_timeline(struct mw_timeline *t, const struct mw_plan *plan,
                          double step_time_s)
{
    t->n_ranks = mw_layout_ranks(&plan->layout);
    t->is_measured = false;
    t->step_time_s = step_time_s;
    snprintf(t->clock, sizeof t->clock, "simulated");
    snprintf(t->plan_hash, sizeof t->plan_hash, "%016" PRIx64,
             mw_plan_hash(plan));
}

static void fill_stages(struct mw_timeline *t, const struct mw_layout *layout,
                        double (*out)[MW_SPAN_KIND_COUNT])
{
    for (int d = 0; out != NULL && d < layout->pp; d++) {
        mw_timeline_breakdown_rank(
            t, mw_layout_rank(layout, (struct mw_coord){.pp = d}), out[d]);
    }
}

/* Pace of the stages, by slot of the schedule; NULL: none was given. */
static double *slot_pace(const struct mw_schedule *s, const double *stage_pace)
{
    if (stage_pace == NULL) {
        return NULL;
    }
    double *pace = mw_calloc((size_t)s->first[s->n_stages], sizeof *pace);

    for (int d = 0; d < s->n_stages; d++) {
        for (uint32_t i = s->first[d]; i < s->first[d + 1]; i++) {
            pace[i] = stage_pace[d];
        }
    }
    return pace;
}

static enum mw_status fill_time(struct mw_step_frame *f,
                                const struct mw_plan *plan,
                                const struct mw_step_opts *opts,
                                struct mw_step_result *out, struct mw_err *err)
{
    struct mw_step_tasks tasks;
    struct mw_timeline own;
    struct mw_timeline *timeline =
        opts->timeline != NULL ? opts->timeline : &own;
    bool with_spans = opts->timeline != NULL || !opts->no_breakdown;
    mw_time end_ps = 0;

    mw_timeline_init(&own);
    mw_step_tasks_init(&tasks, timeline);
    tasks.no_sharing = opts->no_sharing;
    double *pace = slot_pace(&plan->schedule, opts->stage_pace);

    tasks.slot_pace = pace;
    mw_step_tasks_build(&tasks, f, &plan->schedule);
    enum mw_status status =
        mw_step_tasks_run(&tasks, with_spans, &end_ps, &out->events, err);

    if (status == MW_OK) {
        out->step_time_s = mw_time_to_s(end_ps);
        out->shared_wires_s =
            mw_time_to_s(end_ps - mw_graph_alone_ps(tasks.graph));
        if (with_spans) {
            name_timeline(timeline, plan, out->step_time_s);
            mw_timeline_breakdown(timeline, out->breakdown_s);
            fill_stages(timeline, &plan->layout, opts->stages_s);
        }
        out->router_load = f->price.router.synced;
        out->router_dropped = f->price.router.dropped;
        fill_figures(f, plan->n_microbatches, out);
    }
    mw_free(pace);
    mw_step_tasks_release(&tasks);
    mw_timeline_release(&own);
    return status;
}

/* Messages of a transfer over dp, of which so much is hidden. */
enum mw_status mw_step_simulate(const struct mw_scenario *scenario,
                                const struct mw_plan *plan,
                                const struct mw_cost_ctx *ctx,
                                const struct mw_step_opts *opts,
                                struct mw_step_result *out, struct mw_err *err)
{
    static const struct mw_step_opts defaults = {0};
    int64_t begin_ns = mw_clock_wall_ns();
    struct mw_step_result result = {0};
    struct mw_step_frame frame;
    enum mw_status status = mw_step_check_rates(scenario, ctx, err);

    status = status != MW_OK ? status
                             : mw_step_check_features(&plan->layout, ctx, err);
    if (status != MW_OK) {
        return status;
    }
    opts = opts != NULL ? opts : &defaults;
    struct mw_explain units = {
        .arena = opts->explain != NULL ? opts->explain->arena : NULL};

    mw_step_frame_init(&frame, scenario, &plan->layout, plan->layers,
                       &plan->schedule, ctx, !opts->memory_only,
                       opts->explain != NULL ? &units : NULL);
    fill_memory(&frame, &plan->schedule, &result);
    if (!opts->memory_only) {
        status = mw_step_frame_check(&frame, err);
    }
    if (status == MW_OK && !opts->memory_only) {
        status = fill_time(&frame, plan, opts, &result, err);
    }
    if (status == MW_OK && opts->explain != NULL) {
        opts->explain->value_s = result.step_time_s;
        mw_step_explain(&frame, &plan->schedule, &units, opts->explain);
    }
    mw_step_frame_release(&frame);
    result.wall_time_s = (double)(mw_clock_wall_ns() - begin_ns) / 1e9;
    if (status == MW_OK) {
        *out = result;
    } else {
        mw_step_result_release(&result);
    }
    return status;
}

void mw_step_result_release(struct mw_step_result *r)
{
    mw_free(r->memory);
    r->memory = NULL;
}
