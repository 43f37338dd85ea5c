/*
 * The page of a plan, from what to why: headline, layout, timeline, where the
 * time goes, memory, communication, what would help, how every figure came
 * about.
 */
#include "cli/report_page.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { EXPLAIN_DEPTH = 8, STAGES_MAX = 64, RANKS_MAX = 512 };

/* ---- headline and layout ---------------------------------------------------
 */
static void add_headline(struct mw_page *page, const struct mw_report *r)
{
    const struct mw_diff_side *s = r->side;
    const struct mw_step_result *x = &s->result;
    const struct mw_workload *w = &s->scenario->workload;
    char step[MW_FMT_MAX], peak[MW_FMT_MAX], usable[MW_FMT_MAX];
    mw_page_text(page,
                 "%s on %d x %s: one step of %" PRId64 " sequences of %" PRId64
                 " tokens takes %s; %.1f tokens per second and GPU, MFU "
                 "%.1f %%.",
                 s->scenario->model.name, s->ctx->n_nodes, s->ctx->system->name,
                 w->global_batch, w->seq, mw_fmt_seconds(x->step_time_s, step),
                 x->tokens_per_s_per_gpu, 100 * x->mfu);
    mw_page_text(page, "The fullest rank holds %s of %s usable: %s.",
                 mw_fmt_bytes(x->peak_bytes, peak),
                 mw_fmt_bytes(x->usable_bytes, usable),
                 x->fits ? "it fits" : "it does not fit");
    mw_page_text(page,
                 "Predicted by meshwright, priced for the training stack "
                 "%s; figures are explained at the end.",
                 s->ctx->stack.name);
}

static void layout_row(struct mw_page *page, const char *what, const char *text)
{
    mw_page_table_row(page);
    mw_page_table_cell(page, "%s", what);
    mw_page_table_cell(page, "%s", text);
}

static void list_row(struct mw_page *page, const char *what,
                     const struct mw_int_list *list)
{
    struct mw_str text = {NULL, 0, 0};

    for (size_t i = 0; i < list->n; i++) {
        mw_str_addf(&text, "%s%lld", i > 0 ? " " : "", (long long)list->v[i]);
    }
    layout_row(page, what, text.s != NULL ? text.s : "");
    mw_str_release(&text);
}

static void layout_count(struct mw_page *page, const char *what, int n)
{
    char text[16];
    snprintf(text, sizeof text, "%d", n);
    layout_row(page, what, text);
}

static const char *layers_text(const struct mw_plan *plan, char *buf,
                               size_t len)
{
    size_t n = 0;
    buf[0] = '\0';
    for (int k = 0; k < plan->n_virtual && n + 8 < len; k++) {
        n += (size_t)snprintf(buf + n, len - n, "%s%d", k > 0 ? ", " : "",
                              plan->layers[k]);
    }
    return buf;
}

static void add_offload(struct mw_page *page, const struct mw_layout *l)
{
    char text[128];
    if (l->offload_optimizer > 0 || l->offload_weights > 0 ||
        l->offload_activations > 0) {
        snprintf(text, sizeof text,
                 "%.0f %% of optimizer, %.0f %% of weights, %.0f %% of "
                 "activations",
                 100 * l->offload_optimizer, 100 * l->offload_weights,
                 100 * l->offload_activations);
        layout_row(page, "in the host's memory", text);
    }
}

static void add_layout(struct mw_page *page, const struct mw_report *r)
{
    static const char *const columns[] = {"what", "value"};
    const struct mw_plan *plan = r->side->plan;
    const struct mw_layout *l = &plan->layout;
    char text[1024];
    mw_page_heading(page, "Layout");
    mw_page_table_begin(page, columns, 2);
    layout_count(page, "ranks", mw_layout_ranks(l));
    layout_count(page, "tensor parallel", l->tp);
    layout_row(page, "sequence parallel", l->sp ? "yes" : "no");
    snprintf(text, sizeof text, "%d%s%s", l->cp, l->cp > 1 ? ", " : "",
             l->cp > 1 ? mw_cp_form_name(l->cp_form) : "");
    layout_row(page, "context parallel", text);
    layout_count(page, "pipeline stages", l->pp);
    layout_count(page, "chunks per stage", l->vpp);
    layout_count(page, "data parallel", l->dp);
    layout_count(page, "ZeRO stage", l->zero);
    if (r->side->scenario->model.moe.n_experts > 0) {
        layout_count(page, "expert parallel", l->ep);
        layout_count(page, "tensor parallel of experts", l->etp);
    }
    layout_count(page, "sequences per micro-batch", l->micro_batch);
    layout_count(page, "micro-batches per replica", plan->n_microbatches);
    layout_row(page, "schedule", l->schedule);
    layout_row(page, "recomputation", mw_recompute_name(l->recompute));
    if (l->recompute_modules != 0) {
        struct mw_str names = {NULL, 0, 0};

        mw_recompute_modules_add(&names, l->recompute_modules, ", ");
        layout_row(page, "recomputed modules", names.s);
        mw_str_release(&names);
    }
    if (l->recompute_layers > 0) {
        layout_count(page, "layers of a stage recomputed", l->recompute_layers);
    }
    if (l->stage_recompute_layers.n > 0) {
        list_row(page, "layers recomputed by stage",
                 &l->stage_recompute_layers);
    }
    if (l->cuda_graph != MW_GRAPH_STACK) {
        layout_row(page, "CUDA graphs", mw_cuda_graph_name(l->cuda_graph));
    }
    if (l->dispatcher != MW_DISPATCH_STACK) {
        layout_row(page, "tokens to experts",
                   mw_dispatcher_name(l->dispatcher));
    }
    if (l->overlap_shared_experts) {
        layout_row(page, "shared experts", "beside exchanges");
    }
    if (l->mtp_ahead > 0) {
        layout_row(page, "multi-token prediction", "a stage ahead of the head");
    }
    if (l->vpp_group > 0) {
        layout_count(page, "micro-batches a chunk in turn", l->vpp_group);
    }
    if (l->bucket_size > 0) {
        layout_count(page, "gradients of a bucket", l->bucket_size);
    }
    if (l->dp_shard > 0) {
        layout_count(page, "replicas that shard among each other", l->dp_shard);
    }
    if (l->fsdp_unit != 1) {
        layout_count(page, "layers gathered at once (0: a stage)",
                     l->fsdp_unit);
    }
    if (l->fsdp_prefetch >= 0) {
        layout_count(page, "units gathered ahead", l->fsdp_prefetch);
    }
    add_offload(page, l);
    layout_row(page, "order of ranks, fastest first", l->order);
    layout_row(page, "layers of virtual stages",
               layers_text(plan, text, sizeof text));
    mw_page_table_end(page);
}

/* Which global ranks make up a node, and where each stands. */
static void add_ranks(struct mw_page *page, const struct mw_report *r)
{
    static const char *const columns[] = {">rank", ">node", ">stage",
                                          ">dp",   ">cp",   ">tp"};
    const struct mw_layout *l = &r->side->plan->layout;
    int n = mw_layout_ranks(l), per_node = r->side->ctx->gpus_per_node;
    mw_page_fold_begin(page, "Ranks and their coordinates");
    mw_page_table_begin(page, columns, sizeof columns / sizeof *columns);
    for (int rank = 0; rank < n && rank < RANKS_MAX; rank++) {
        struct mw_coord at = mw_layout_coord(l, rank);
        const int cells[] = {rank, rank / per_node, at.pp, at.dp, at.cp, at.tp};
        mw_page_table_row(page);
        for (size_t i = 0; i < sizeof cells / sizeof *cells; i++) {
            mw_page_table_cell(page, "%d", cells[i]);
        }
    }
    mw_page_table_end(page);
    if (n > RANKS_MAX) {
        mw_page_text(page, "and %d more.", n - RANKS_MAX);
    }
    mw_page_fold_end(page);
}

/* ---- time ------------------------------------------------------------------
 */
static void add_timeline(struct mw_page *page, const struct mw_report *r)
{
    struct mw_plot_panel panels[2] = {{&r->side->timeline, "predicted"},
                                      {r->measured, "measured"}};
    mw_page_heading(page, "Timeline");
    mw_page_gantt(page, panels, r->measured != NULL ? 2 : 1);
    mw_page_text(page, "A row is a rank of a pipeline stage: compute above, "
                       "communication below; white is bubble. Numbers are "
                       "micro-batches.");
}

static void fill_bars(const struct mw_report *r, double *value,
                      const char **rows, char (*names)[32], const int *kinds,
                      size_t n_kinds, size_t n_rows)
{
    for (size_t d = 0; d < n_rows; d++) {
        double seconds[MW_SPAN_KIND_COUNT];
        mw_timeline_breakdown_rank(
            &r->side->timeline,
            mw_layout_rank(&r->side->plan->layout,
                           (struct mw_coord){.pp = (int)d}),
            seconds);
        snprintf(names[d], sizeof names[d], "stage %zu", d);
        rows[d] = names[d];
        for (size_t k = 0; k < n_kinds; k++) {
            value[d * n_kinds + k] = seconds[kinds[k]];
        }
    }
}

static size_t stages_shown(const struct mw_report *r)
{
    int n = r->side->n_stages;
    return (size_t)(n < STAGES_MAX ? n : STAGES_MAX);
}

static void add_time(struct mw_page *page, const struct mw_report *r)
{
    const char *parts[MW_SPAN_KIND_COUNT], *colours[MW_SPAN_KIND_COUNT];
    const char *rows[STAGES_MAX];
    char names[STAGES_MAX][32];
    int kinds[MW_SPAN_KIND_COUNT];
    size_t n = 0, n_rows = stages_shown(r);
    for (int k = 0; k < MW_SPAN_KIND_COUNT; k++) {
        if (r->side->result.breakdown_s[k] > 0) {
            kinds[n] = k;
            parts[n] = mw_span_kind_name((enum mw_span_kind)k);
            colours[n++] = k == MW_SPAN_BUBBLE
                               ? "#e9ebee"
                               : mw_page_kind_colour((enum mw_span_kind)k);
        }
    }
    double *value = mw_calloc(n * n_rows + 1, sizeof *value);
    fill_bars(r, value, rows, names, kinds, n, n_rows);
    const struct mw_page_bars bars = {rows, n_rows, parts,           colours,
                                      n,    value,  MW_PLOT_SECONDS, 0};
    mw_page_heading(page, "Where the time goes");
    mw_page_text(page, "What a rank computes, else what it waits for, else "
                       "bubble; each bar sums to the step.");
    mw_page_bars(page, &bars);
    mw_free(value);
}

/* ---- memory ----------------------------------------------------------------
 */
enum { MEMORY_PARTS = 7 };

static void add_memory(struct mw_page *page, const struct mw_report *r)
{
    static const char *const parts[MEMORY_PARTS] = {
        "weights",   "gradients", "optimizer", "activations",
        "temporary", "buffers",   "context"};
    static const char *const colours[MEMORY_PARTS] = {
        "#2f6fd0", "#3a9d55", "#8b9097", "#f2a33a",
        "#e8702a", "#b7acdf", "#5d6169"};
    const char *rows[STAGES_MAX];
    char names[STAGES_MAX][32];
    size_t n_rows = stages_shown(r);
    double *value = mw_calloc(MEMORY_PARTS * n_rows + 1, sizeof *value);
    for (size_t d = 0; d < n_rows; d++) {
        const struct mw_stage_memory *m = &r->side->result.memory[d];
        const double bytes[MEMORY_PARTS] = {
            m->weight_bytes,     m->grad_bytes,      m->optimizer_bytes,
            m->activation_bytes, m->temporary_bytes, m->buffer_bytes,
            m->overhead_bytes};
        memcpy(value + d * MEMORY_PARTS, bytes, sizeof bytes);
        snprintf(names[d], sizeof names[d], "stage %zu", d);
        rows[d] = names[d];
    }
    const struct mw_page_bars bars = {
        rows,         n_rows, parts,         colours,
        MEMORY_PARTS, value,  MW_PLOT_BYTES, r->side->result.usable_bytes};
    mw_page_heading(page, "Memory of a rank");
    mw_page_text(page, "At its fullest moment; the dashed line is what may be "
                       "used.");
    mw_page_bars(page, &bars);
    mw_free(value);
}

/* ---- communication ---------------------------------------------------------
 */
static void add_ledger_row(struct mw_page *page, int stage,
                           const struct mw_ledger_row *row)
{
    char text[MW_FMT_MAX];
    mw_page_table_row(page);
    mw_page_table_cell(page, "%d", stage);
    mw_page_table_cell(page, "%s%s", mw_dim_name(row->dim),
                       row->crosses_nodes ? " (between nodes)" : "");
    mw_page_table_cell(page, "%s", mw_coll_op_name(row->op));
    mw_page_table_cell(page, "%d", row->n_ranks);
    mw_page_table_cell(page, "%.0f", row->count);
    mw_page_table_cell(page, "%s",
                       mw_fmt_bytes(row->message_bytes / row->count, text));
    mw_page_table_cell(page, "%s", mw_fmt_bytes(row->wire_bytes, text));
    mw_page_table_cell(page, "%s", mw_fmt_seconds(row->time_s, text));
    mw_page_table_cell(page, "%s", mw_fmt_seconds(row->exposed_s, text));
}

static void add_ledger(struct mw_page *page, const struct mw_report *r)
{
    static const char *const columns[] = {">stage", "dimension", "collective",
                                          ">ranks", ">a step",   ">message",
                                          ">sent",  ">alone",    ">exposed"};
    const struct mw_diff_side *s = r->side;
    mw_page_heading(page, "Communication");
    mw_page_text(page, "Of a rank in a step; \"alone\" is the time without "
                       "overlap or waiting.");
    mw_page_table_begin(page, columns, sizeof columns / sizeof *columns);
    for (int d = 0; d < s->n_stages; d++) {
        bool is_shown = d <= 1 || d == s->n_stages - 1;
        for (size_t i = 0; i < s->ledger[d].n && is_shown; i++) {
            add_ledger_row(page, d, &s->ledger[d].v[i]);
        }
    }
    mw_page_table_end(page);
    if (s->n_stages > 3) {
        mw_page_text(page, "First, second and last stage.");
    }
}

/* ---- why -------------------------------------------------------------------
 */
static void add_shares(struct mw_page *page, const struct mw_report *r)
{
    static const char *const columns[] = {"resource", ">share of the step"};
    mw_page_heading(page, "What would help");
    mw_page_text(page, "The share of the step that goes with each resource: "
                       "with a share of 20 %%, 10 %% more of it saves about "
                       "2 %%.");
    mw_page_table_begin(page, columns, 2);
    for (int i = 0; i < MW_RESOURCE_COUNT; i++) {
        mw_page_table_row(page);
        mw_page_table_cell(page, "%s", mw_resource_name((enum mw_resource)i));
        mw_page_table_cell(page, "%.1f %%", 100 * r->share[i]);
    }
    mw_page_table_end(page);
}

static void add_explain(struct mw_page *page, const struct mw_report *r)
{
    char *text = NULL;
    size_t len = 0;
    FILE *f = open_memstream(&text, &len);
    if (f == NULL) {
        return;
    }
    mw_explain_print(r->explain, EXPLAIN_DEPTH, f);
    fclose(f);
    mw_page_heading(page, "How every time came about");
    mw_page_fold_begin(page, "Operators, formulas, sources");
    mw_page_verbatim(page, text);
    mw_page_fold_end(page);
    free(text); /* the stream's own memory */
}

static void add_origin(struct mw_page *page, const struct mw_report *r)
{
    const struct mw_diff_side *s = r->side;
    const char *overlay = mw_hwdb_overlay_dir(s->ctx->db);
    char line[512] = "";
    size_t n = 0;
    for (int i = 0; i < MW_RUNG_COUNT && n + 80 < sizeof line; i++) {
        if (s->result.rung_count[i] > 0) {
            n += (size_t)snprintf(line + n, sizeof line - n, "%s%" PRIu64 " %s",
                                  n > 0 ? ", " : "", s->result.rung_count[i],
                                  mw_rung_name((enum mw_rung)i));
        }
    }
    mw_page_heading(page, "Origin");
    mw_page_text(page, "%s, scenario %s (%s), plan hash %016" PRIx64 ".",
                 r->file, s->scenario->name, s->scenario->file,
                 mw_plan_hash(s->plan));
    mw_page_text(page, "Distinct operators and collectives priced by: %s%s%s.",
                 line, overlay != NULL ? "; database overlay " : "",
                 overlay != NULL ? overlay : "");
}

void mw_report_page(const struct mw_report *r, struct mw_page *page)
{
    char title[512], text[MW_PLAN_TEXT_MAX];
    snprintf(title, sizeof title, "%s: %s", r->side->scenario->name,
             mw_layout_text(&r->side->plan->layout, text));
    mw_page_begin(page, title);
    add_headline(page, r);
    add_layout(page, r);
    add_ranks(page, r);
    add_timeline(page, r);
    add_time(page, r);
    add_memory(page, r);
    add_ledger(page, r);
    add_shares(page, r);
    add_explain(page, r);
    add_origin(page, r);
}
