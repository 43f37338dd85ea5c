/*
 * The result of `sim`: rates, exposed time by kind, memory by stage, and the
 * explanation tree. JSON keys are those of the design document; numbers are
 * numbers and ratios fractions.
 */
#include "cli/verb_sim_view.h"

#include "base/table.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>

enum { EXPLAIN_DEPTH = 8 };

/* ---- people ----------------------------------------------------------------
 */
static void print_head(const struct mw_sim_view *v)
{
    const struct mw_layout *l = &v->plan->layout;
    const char *overlay = mw_hwdb_overlay_dir(v->ctx->db);

    printf("%s: %s on %d x %s, %d ranks\n", v->scenario->name,
           v->scenario->model.name, v->ctx->n_nodes, v->ctx->system->name,
           mw_layout_ranks(l));
    printf("tp %d%s, cp %d, pp %d, vpp %d, dp %d, zero %d, ep %d, micro-batch "
           "%d, %s, recompute %s\n",
           l->tp, l->sp ? " (sp)" : "", l->cp, l->pp, l->vpp, l->dp, l->zero,
           l->ep, l->micro_batch, l->schedule, mw_recompute_name(l->recompute));
    printf("priced as %s\n", v->ctx->stack.name);
    if (overlay != NULL) {
        printf("database overlay %s\n", overlay);
    }
}

/* Like MFU, with the recomputed operators counted. */
static double hfu(const struct mw_step_result *r)
{
    return r->model_tflops_per_gpu > 0
               ? r->mfu * r->hardware_tflops_per_gpu / r->model_tflops_per_gpu
               : 0;
}

static void print_rates(const struct mw_sim_view *v)
{
    const struct mw_step_result *r = v->result;
    enum mw_dtype dtype =
        mw_work_dtype(&v->plan->layout, &v->scenario->workload);
    char text[MW_FMT_MAX];

    printf("\nstep time               %s\n",
           mw_fmt_seconds(r->step_time_s, text));
    printf("tokens/s/GPU            %.1f\n", r->tokens_per_s_per_gpu);
    printf("model TFLOP/s/GPU       %.4g (no recomputation, %s attention)\n",
           r->model_tflops_per_gpu,
           v->scenario->workload.causal_flops ? "causal" : "full");
    printf("hardware TFLOP/s/GPU    %.4g (with recomputation)\n",
           r->hardware_tflops_per_gpu);
    printf("MFU                     %.1f %% (HFU %.1f %%) of %s in %s\n",
           100 * r->mfu, 100 * hfu(r),
           mw_fmt_flops(mw_cost_peak_flops(v->ctx, dtype), text),
           mw_dtype_name(dtype));
}

static void print_breakdown(const struct mw_step_result *r)
{
    struct mw_table *t = mw_table_new();
    char text[MW_FMT_MAX];

    printf("\nExposed time, mean of the stages:\n");
    mw_table_col(t, "kind", false);
    mw_table_col(t, "time", true);
    mw_table_col(t, "share", true);
    for (int kind = 0; kind < MW_SPAN_KIND_COUNT; kind++) {
        if (r->breakdown_s[kind] > 0) {
            mw_table_row(t);
            mw_table_cell(t, "%s", mw_span_kind_name((enum mw_span_kind)kind));
            mw_table_cell(t, "%s", mw_fmt_seconds(r->breakdown_s[kind], text));
            mw_table_cell(t, "%.1f %%",
                          100 * r->breakdown_s[kind] / r->step_time_s);
        }
    }
    mw_table_print(t, stdout);
    mw_table_free(t);
    if (r->shared_wires_s > 0) {
        printf("%s of the step since transfers of different kinds meet on "
               "NICs and links\n",
               mw_fmt_seconds(r->shared_wires_s, text));
    }
}

static void print_routers(const struct mw_sim_view *v)
{
    const struct mw_step_result *r = v->result;
    const struct mw_workload *w = &v->scenario->workload;
    const char *how = w->expert_imbalance > 1 ? "as expert_imbalance says"
                      : v->scenario->router.rows != NULL
                          ? "as router_counts says"
                      : r->router_load > 1 && !(w->capacity_factor > 0)
                          ? "as counted by calibrate"
                          : "with a capacity";

    if (r->router_load > 1 || r->router_load < 1) {
        printf("routers %s: the busiest rank's experts have %.2f times the "
               "mean\n",
               how, r->router_load);
    }
    if (r->router_dropped > 0) {
        printf("%.1f %% of what is routed finds no room at its expert "
               "(capacity_factor) and is dropped\n",
               100 * r->router_dropped);
    }
}

static void print_memory(const struct mw_step_result *r)
{
    static const char *const names[] = {
        "stage",     "weights", "gradients", "optimizer", "activations",
        "temporary", "buffers", "overhead",  "total",     "fullest at"};
    struct mw_table *t = mw_table_new();
    char text[MW_FMT_MAX], usable[MW_FMT_MAX];
    double host_bytes = 0, nvme_bytes = 0;

    printf("\nMemory of a rank by stage:\n");
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        mw_table_col(t, names[i], i + 1 < sizeof names / sizeof names[0]);
    }
    for (int d = 0; d < r->n_stages; d++) {
        const struct mw_stage_memory *m = &r->memory[d];
        const double parts[] = {m->weight_bytes,    m->grad_bytes,
                                m->optimizer_bytes, m->activation_bytes,
                                m->temporary_bytes, m->buffer_bytes,
                                m->overhead_bytes,  m->total_bytes};

        mw_table_row(t);
        mw_table_cell(t, "%d", d);
        for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
            mw_table_cell(t, "%s", mw_fmt_bytes(parts[i], text));
        }
        mw_table_cell(t, "%s", m->moment);
    }
    mw_table_print(t, stdout);
    mw_table_free(t);
    printf("peak %s, usable %s: %s\n", mw_fmt_bytes(r->peak_bytes, text),
           mw_fmt_bytes(r->usable_bytes, usable),
           r->fits ? "fits" : "does not fit");
    if (r->reserved_p90_bytes > r->reserved_bytes) {
        printf("the allocator holds %s for %s of tensors in one run of two, ",
               mw_fmt_bytes(r->reserved_bytes, text),
               mw_fmt_bytes(r->allocated_bytes, usable));
        printf("at most %s in nine of ten\n",
               mw_fmt_bytes(r->reserved_p90_bytes, text));
    }
    for (int d = 0; d < r->n_stages; d++) {
        host_bytes = fmax(host_bytes, r->memory[d].host_bytes);
        nvme_bytes = fmax(nvme_bytes, r->memory[d].nvme_bytes);
    }
    if (host_bytes > 0) {
        printf("in the host's memory, at most: %s a rank\n",
               mw_fmt_bytes(host_bytes, text));
    }
    if (nvme_bytes > 0) {
        printf("on the node's drives, at most: %s a rank\n",
               mw_fmt_bytes(nvme_bytes, text));
    }
}

static int fullest_stage(const struct mw_step_result *r)
{
    int most = 0;

    for (int d = 1; d < r->n_stages; d++) {
        most =
            r->memory[d].total_bytes > r->memory[most].total_bytes ? d : most;
    }
    return most;
}

/* Which tensors are on the fullest rank, at which moment. */
static void print_memory_parts(const struct mw_step_result *r)
{
    int d = fullest_stage(r);
    const struct mw_stage_memory *m = &r->memory[d];
    char text[MW_FMT_MAX];

    printf("\nStage %d is fullest at '%s':\n", d, m->moment);
    for (int i = 0; i < m->n_parts; i++) {
        printf("  %10s  %5.1f %%  %s\n", mw_fmt_bytes(m->parts[i].bytes, text),
               100 * m->parts[i].bytes / m->total_bytes, m->parts[i].name);
    }
}

static void print_sources(const struct mw_step_result *r)
{
    const char *separator = "";

    printf("\nPriced by: ");
    for (int rung = 0; rung < MW_RUNG_COUNT; rung++) {
        if (r->rung_count[rung] > 0) {
            printf("%s%" PRIu64 " %s", separator, r->rung_count[rung],
                   mw_rung_name((enum mw_rung)rung));
            separator = ", ";
        }
    }
    printf(" (distinct operators and collectives); %" PRIu64
           " events in %.2g s\n",
           r->events, r->wall_time_s);
}

static void print_shares(const double *share)
{
    printf("\nShare of the step that goes with each resource (a share of "
           "20 %%: 10 %% more of it saves about 2 %%):\n");
    for (int r = 0; r < MW_RESOURCE_COUNT; r++) {
        printf("  %-9s %5.1f %%\n", mw_resource_name((enum mw_resource)r),
               100 * share[r]);
    }
}

/* First, second and last stage stand for all. */
static bool is_shown(int device, int n)
{
    return device <= 1 || device == n - 1;
}

static void make_ledger(const struct mw_sim_view *v, int stage,
                        struct mw_ledger *out)
{
    mw_step_ledger(v->scenario, v->plan, v->ctx, stage, out);
    mw_ledger_expose(out, v->stages_s[stage]);
}

static void print_ledger(const struct mw_sim_view *v)
{
    static const char *const names[] = {"stage",   "dimension", "collective",
                                        "ranks",   "a step",    "message",
                                        "on wire", "alone",     "exposed"};
    struct mw_table *t = mw_table_new();
    char text[MW_FMT_MAX];

    printf("\nCommunication of a rank in a step:\n");
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        mw_table_col(t, names[i], i == 0 || i > 2);
    }
    for (int d = 0; d < v->plan->layout.pp; d++) {
        struct mw_ledger ledger = {NULL, 0, 0};

        if (is_shown(d, v->plan->layout.pp)) {
            make_ledger(v, d, &ledger);
        }
        for (size_t i = 0; i < ledger.n; i++) {
            const struct mw_ledger_row *r = &ledger.v[i];

            mw_table_row(t);
            mw_table_cell(t, "%d", d);
            mw_table_cell(t, "%s%s", mw_dim_name(r->dim),
                          r->crosses_nodes ? " (between nodes)" : "");
            mw_table_cell(t, "%s", mw_coll_op_name(r->op));
            mw_table_cell(t, "%d", r->n_ranks);
            mw_table_cell(t, "%.0f", r->count);
            mw_table_cell(t, "%s",
                          mw_fmt_bytes(r->message_bytes / r->count, text));
            mw_table_cell(t, "%s", mw_fmt_bytes(r->wire_bytes, text));
            mw_table_cell(t, "%s", mw_fmt_seconds(r->time_s, text));
            mw_table_cell(t, "%s", mw_fmt_seconds(r->exposed_s, text));
        }
        mw_array_release(&ledger);
    }
    mw_table_print(t, stdout);
    mw_table_free(t);
}

static void print_jitter(const struct mw_sim_view *v)
{
    const struct mw_jitter *j = v->jitter;
    char text[MW_FMT_MAX];

    printf("\nStep time over %d draws of the ranks (seed %" PRIu64
           ", spread %.3g):\n",
           j->n_draws, j->seed, v->ctx->stack.straggler);
    const struct {
        const char *name;
        double time_s;
    } rows[] = {{"mean", j->mean_s},        {"p10", j->p10_s},
                {"p90", j->p90_s},          {"least", j->least_s},
                {"most", j->most_s},        {"all ranks alike", j->even_s},
                {"expected", j->expected_s}};

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        printf("  %-16s %10s  %+.2f %%\n", rows[i].name,
               mw_fmt_seconds(rows[i].time_s, text),
               100 * (rows[i].time_s / j->expected_s - 1));
    }
}

static void print_people(const struct mw_sim_view *v)
{
    print_head(v);
    print_rates(v);
    print_breakdown(v->result);
    print_routers(v);
    print_memory(v->result);
    print_sources(v->result);
    if (v->has_ledger) {
        print_ledger(v);
    }
    if (v->share != NULL) {
        print_shares(v->share);
    }
    if (v->jitter != NULL) {
        print_jitter(v);
    }
    if (v->unfold->is_asked) {
        mw_sim_unfold_print(v->unfold, v->result->step_time_s);
    }
    if (v->job != NULL) {
        mw_sim_job_print(v->job);
    }
    if (v->explain != NULL) {
        printf("\n");
        mw_explain_print(v->explain, EXPLAIN_DEPTH, stdout);
        print_memory_parts(v->result);
    }
}

/* ---- JSON ------------------------------------------------------------------
 */
static json_t *explain_json(const struct mw_explain *node, int depth)
{
    json_t *o = json_object(), *children = json_array();

    mw_json_set_str(o, "name", node->name);
    mw_json_set_real(o, "value_s", node->value_s);
    mw_json_set_real(o, "count", node->count);
    if (node->bound != NULL) {
        mw_json_set_str(o, "bound", node->bound);
    }
    if (node->formula != NULL) {
        mw_json_set_str(o, "formula", node->formula);
    }
    if (node->source != NULL) {
        mw_json_set_str(o, "source", node->source);
    }
    for (const struct mw_explain *c = node->first_child;
         c != NULL && depth < EXPLAIN_DEPTH; c = c->next) {
        json_array_append_new(children, explain_json(c, depth + 1));
    }
    mw_json_set(o, "children", children);
    return o;
}

static json_t *memory_json(const struct mw_step_result *r)
{
    json_t *o = json_object(), *stages = json_array();

    mw_json_set_real(o, "peak_bytes", r->peak_bytes);
    mw_json_set_real(o, "capacity_bytes", r->capacity_bytes);
    mw_json_set_real(o, "usable_bytes", r->usable_bytes);
    mw_json_set_real(o, "allocated_bytes", r->allocated_bytes);
    mw_json_set_real(o, "reserved_p50_bytes", r->reserved_bytes);
    mw_json_set_real(o, "reserved_p90_bytes", r->reserved_p90_bytes);
    mw_json_set_bool(o, "fits", r->fits);
    for (int d = 0; d < r->n_stages; d++) {
        const struct mw_stage_memory *m = &r->memory[d];
        json_t *stage = json_object(), *parts = json_array();

        mw_json_set_int(stage, "stage", d);
        mw_json_set_real(stage, "weight_bytes", m->weight_bytes);
        mw_json_set_real(stage, "grad_bytes", m->grad_bytes);
        mw_json_set_real(stage, "optimizer_bytes", m->optimizer_bytes);
        mw_json_set_real(stage, "activation_bytes", m->activation_bytes);
        mw_json_set_real(stage, "temporary_bytes", m->temporary_bytes);
        mw_json_set_real(stage, "buffer_bytes", m->buffer_bytes);
        mw_json_set_real(stage, "overhead_bytes", m->overhead_bytes);
        mw_json_set_real(stage, "total_bytes", m->total_bytes);
        mw_json_set_real(stage, "host_bytes", m->host_bytes);
        mw_json_set_real(stage, "nvme_bytes", m->nvme_bytes);
        mw_json_set_real(stage, "reserved_bytes", m->reserved_bytes);
        mw_json_set_str(stage, "moment", m->moment);
        for (int i = 0; i < m->n_parts; i++) {
            json_t *part = json_object();

            mw_json_set_str(part, "name", m->parts[i].name);
            mw_json_set_real(part, "bytes", m->parts[i].bytes);
            json_array_append_new(parts, part);
        }
        mw_json_set(stage, "parts", parts);
        json_array_append_new(stages, stage);
    }
    mw_json_set(o, "stages", stages);
    return o;
}

static json_t *breakdown_json(const struct mw_step_result *r)
{
    json_t *o = json_object();

    for (int kind = 0; kind < MW_SPAN_KIND_COUNT; kind++) {
        mw_json_set_real(o, mw_span_kind_name((enum mw_span_kind)kind),
                         r->breakdown_s[kind]);
    }
    return o;
}

static json_t *ledger_json(const struct mw_sim_view *v)
{
    json_t *rows = json_array();

    for (int d = 0; d < v->plan->layout.pp; d++) {
        struct mw_ledger ledger = {NULL, 0, 0};

        make_ledger(v, d, &ledger);
        for (size_t i = 0; i < ledger.n; i++) {
            const struct mw_ledger_row *r = &ledger.v[i];
            json_t *o = json_object();

            mw_json_set_int(o, "stage", d);
            mw_json_set_str(o, "dimension", mw_dim_name(r->dim));
            mw_json_set_str(o, "collective", mw_coll_op_name(r->op));
            mw_json_set_int(o, "ranks", r->n_ranks);
            mw_json_set_bool(o, "crosses_nodes", r->crosses_nodes);
            mw_json_set_real(o, "count", r->count);
            mw_json_set_real(o, "message_bytes", r->message_bytes);
            mw_json_set_real(o, "wire_bytes", r->wire_bytes);
            mw_json_set_real(o, "time_s", r->time_s);
            mw_json_set_real(o, "exposed_s", r->exposed_s);
            json_array_append_new(rows, o);
        }
        mw_array_release(&ledger);
    }
    return rows;
}

static json_t *shares_json(const double *share)
{
    json_t *o = json_object();

    for (int r = 0; r < MW_RESOURCE_COUNT; r++) {
        mw_json_set_real(o, mw_resource_name((enum mw_resource)r), share[r]);
    }
    return o;
}

static json_t *jitter_json(const struct mw_sim_view *v)
{
    const struct mw_jitter *j = v->jitter;
    json_t *o = json_object();

    mw_json_set_int(o, "draws", j->n_draws);
    mw_json_set_int(o, "seed", (long long)j->seed);
    mw_json_set_real(o, "spread", v->ctx->stack.straggler);
    mw_json_set_real(o, "persistent", v->ctx->stack.persistent);
    mw_json_set_real(o, "mean_s", j->mean_s);
    mw_json_set_real(o, "p10_s", j->p10_s);
    mw_json_set_real(o, "p90_s", j->p90_s);
    mw_json_set_real(o, "least_s", j->least_s);
    mw_json_set_real(o, "most_s", j->most_s);
    mw_json_set_real(o, "even_s", j->even_s);
    mw_json_set_real(o, "expected_s", j->expected_s);
    mw_json_set_int(o, "graphs", (long long)j->n_graphs);
    return o;
}

static json_t *view_json(const struct mw_sim_view *v)
{
    const struct mw_step_result *r = v->result;
    json_t *o = json_object(), *priced = json_object();
    const char *overlay = mw_hwdb_overlay_dir(v->ctx->db);
    char hash[17];

    snprintf(hash, sizeof hash, "%016" PRIx64, mw_plan_hash(v->plan));
    mw_json_set_real(o, "step_time_s", r->step_time_s);
    mw_json_set_real(o, "tokens_per_s_per_gpu", r->tokens_per_s_per_gpu);
    mw_json_set_real(o, "model_tflops_per_gpu", r->model_tflops_per_gpu);
    mw_json_set_real(o, "hardware_tflops_per_gpu", r->hardware_tflops_per_gpu);
    mw_json_set_real(o, "mfu", r->mfu);
    mw_json_set_real(o, "hfu", hfu(r));
    mw_json_set(o, "breakdown", breakdown_json(r));
    mw_json_set_real(o, "shared_wires_s", r->shared_wires_s);
    mw_json_set_real(o, "router_load", r->router_load);
    mw_json_set_real(o, "router_dropped", r->router_dropped);
    mw_json_set(o, "memory", memory_json(r));
    mw_json_set_int(o, "events", (long long)r->events);
    mw_json_set_real(o, "wall_time_s", r->wall_time_s);
    for (int rung = 0; rung < MW_RUNG_COUNT; rung++) {
        mw_json_set_int(priced, mw_rung_name((enum mw_rung)rung),
                        (long long)r->rung_count[rung]);
    }
    mw_json_set(o, "priced_by", priced);
    mw_json_set_str(o, "plan_hash", hash);
    mw_json_set_str(o, "stack", v->ctx->stack.name);
    if (v->has_ledger) {
        mw_json_set(o, "ledger", ledger_json(v));
    }
    if (v->share != NULL) {
        mw_json_set(o, "sensitivity", shares_json(v->share));
    }
    if (v->jitter != NULL) {
        mw_json_set(o, "jitter", jitter_json(v));
    }
    if (v->unfold->is_asked) {
        mw_json_set(o, "unfolded", mw_sim_unfold_json(v->unfold));
    }
    if (v->job != NULL) {
        mw_json_set(o, "job", mw_sim_job_json(v->job));
    }
    if (overlay != NULL) {
        mw_json_set_str(o, "overlay", overlay);
    }
    if (v->explain != NULL) {
        mw_json_set(o, "explain", explain_json(v->explain, 0));
    }
    return o;
}

void mw_sim_view_print(const struct mw_sim_view *view, bool as_json)
{
    if (as_json) {
        mw_cli_print_json(view_json(view));
    } else {
        print_people(view);
    }
}
