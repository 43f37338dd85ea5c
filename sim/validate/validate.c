/*
 * Reads files of measurements, makes a scenario and a plan of each row, and
 * simulates it. See validate.h for the figures and the filling rules.
 */
#include "sim/validate/validate_int.h"

#include "base/csv.h"

#include <ctype.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

static const struct {
    const char *name, *text;
} fill_rules[MW_FILL_COUNT] = {
#define MW_FILL_ROW(name, key, text) {key, text},
    MW_FILL_MAP(MW_FILL_ROW)
#undef MW_FILL_ROW
};

const char *mw_fill_name(enum mw_fill fill)
{
    return fill_rules[fill].name;
}

const char *mw_fill_text(enum mw_fill fill)
{
    return fill_rules[fill].text;
}

bool mw_fill_is_guess(enum mw_fill fill)
{
    static const uint64_t says_what_no_column_does =
        UINT64_C(1) << MW_FILL_COMPOSED | UINT64_C(1) << MW_FILL_LAYERS |
        UINT64_C(1) << MW_FILL_ATTENTION | UINT64_C(1) << MW_FILL_GRAD_DTYPE |
        UINT64_C(1) << MW_FILL_STACK | UINT64_C(1) << MW_FILL_GPU_VARIANT |
        UINT64_C(1) << MW_FILL_SYSTEM | UINT64_C(1) << MW_FILL_TIED |
        UINT64_C(1) << MW_FILL_FAMILY | UINT64_C(1) << MW_FILL_MUON |
        UINT64_C(1) << MW_FILL_ETP | UINT64_C(1) << MW_FILL_VPP_OVERLAP |
        UINT64_C(1) << MW_FILL_RECIPE;
    static const uint64_t follows_from_others =
        UINT64_C(1) << MW_FILL_DP | UINT64_C(1) << MW_FILL_MICRO_BATCH_STEPS |
        UINT64_C(1) << MW_FILL_STEP_TIME | UINT64_C(1) << MW_FILL_ZERO_BUBBLE |
        UINT64_C(1) << MW_FILL_ZERO_GROUP | UINT64_C(1) << MW_FILL_HSDP;

    return ((says_what_no_column_does | follows_from_others) >> fill & 1) == 0;
}

/* ---- text ---------------------------------------------------------------- */
bool mw_text_has(const char *text, const char *word)
{
    size_t n = strlen(word);

    for (; *text != '\0'; text++) {
        if (strncasecmp(text, word, n) == 0) {
            return true;
        }
    }
    return false;
}

const char *mw_text_head(struct mw_arena *arena, const char *text)
{
    size_t n = strcspn(text, "(");

    while (n > 0 && isspace((unsigned char)text[n - 1])) {
        n--;
    }
    return mw_arena_printf(arena, "%.*s", (int)n, text);
}

void mw_case_skip(struct mw_case *c, const char *fmt, ...)
{
    char text[256];
    va_list args;

    if (c->skipped != NULL) {
        return;
    }
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    c->skipped = mw_arena_strdup(c->arena, text);
}

/* ---- rows ---------------------------------------------------------------- */
#define TEXT(column, is_required)                                              \
    {                                                                          \
        .name = #column, .type = MW_C_STR,                                     \
        .offset = offsetof(struct mw_measured, column),                        \
        .required = (is_required)                                              \
    }
#define NUMBER(column, least)                                                  \
    {                                                                          \
        .name = #column, .type = MW_C_NUM,                                     \
        .offset = offsetof(struct mw_measured, column), .min = (least),        \
        .max = 1e12, .absent = (double)NAN                                     \
    }

static const struct mw_csv_field row_fields[] = {
    TEXT(id, true),
    TEXT(kind, false),
    TEXT(model, true),
    TEXT(gpu, false),
    TEXT(interconnect, false),
    TEXT(zero, false),
    TEXT(seq_parallel, false),
    TEXT(recompute, false),
    TEXT(offload, false),
    TEXT(dtype, false),
    TEXT(schedule, false),
    TEXT(framework, false),
    TEXT(tflops_def, false),
    TEXT(flops_attention, false),
    TEXT(mem_gib_per_gpu, false),
    TEXT(mem_def, false),
    TEXT(note, false),
    TEXT(method, false),
    TEXT(quantisation, false),
    TEXT(flags, false),
    TEXT(source, false),
    NUMBER(hidden, 1),
    NUMBER(layers, 1),
    NUMBER(heads, 1),
    NUMBER(kv_heads, 1),
    NUMBER(ffn, 1),
    NUMBER(vocab, 1),
    NUMBER(experts, 0),
    NUMBER(topk, 1),
    NUMBER(moe_ffn, 1),
    NUMBER(gated_mlp, 0),
    NUMBER(seq, 1),
    NUMBER(global_batch, 0),
    NUMBER(micro_batch, 0),
    NUMBER(grad_accum, 0),
    NUMBER(gpus, 1),
    NUMBER(nodes, 0),
    NUMBER(tp, 0),
    NUMBER(pp, 0),
    NUMBER(vpp, 0),
    NUMBER(dp, 0),
    NUMBER(cp, 0),
    NUMBER(ep, 0),
    NUMBER(microbatches, 1),
    NUMBER(mem_gb, 0),
    NUMBER(peak_mem_gb, 0),
    NUMBER(oom, 0),
    NUMBER(seq_max, 1),
    NUMBER(rank, 0),
    NUMBER(model_states_MB, 0),
    NUMBER(activation_MB, 0),
    NUMBER(activation_peak_MB, 0),
    NUMBER(step_time_s, 0),
    NUMBER(samples_per_s, 0),
    NUMBER(tokens_per_s_per_gpu, 0),
    NUMBER(tflops_per_gpu, 0),
    {.name = NULL}};

static bool has_time(const struct mw_case *c, const struct mw_validate_row *out)
{
    return !out->is_oom && mw_case_has_time(c->row);
}

static void take_memory(const struct mw_case *c,
                        const struct mw_step_result *result,
                        struct mw_validate_row *out)
{
    out->peak_bytes = result->peak_bytes;
    out->fits =
        result->reserved_bytes + result->peak_bytes - result->allocated_bytes <=
        result->capacity_bytes;
    mw_case_memory(c, result, out);
}

static void take_result(struct mw_case *c, const struct mw_step_result *result,
                        struct mw_validate_row *out)
{
    take_memory(c, result, out);
    if (has_time(c, out)) {
        out->measured_s = mw_case_measured_s(c, result);
        out->predicted_s = result->step_time_s;
        out->full_rate_s =
            result->model_flops /
            (mw_layout_ranks(&c->layout) *
             mw_cost_peak_flops(&c->ctx, c->scenario.workload.dtype));
        memcpy(out->breakdown_s, result->breakdown_s, sizeof out->breakdown_s);
    } else if (out->n_memory == 0 && !out->is_oom) {
        mw_case_skip(c, "no measured time and no measured memory");
    }
}

/* Simulates; in memory alone where nothing else was measured. */
static void simulate(struct mw_case *c, bool is_memory_only,
                     struct mw_validate_row *out)
{
    struct mw_plan plan;
    struct mw_step_result result;
    struct mw_err why = {0};

    if (mw_plan_make(&c->scenario, &c->layout, c->layers, &plan, &why) !=
        MW_OK) {
        mw_case_skip(c, "%s", why.text);
        return;
    }
    struct mw_step_opts opts = {.memory_only = is_memory_only};

    if (mw_step_simulate(&c->scenario, &plan, &c->ctx, &opts, &result, &why) !=
        MW_OK) {
        mw_case_skip(c, "%s", why.text);
    } else {
        take_result(c, &result, out);
        mw_step_result_release(&result);
    }
    mw_plan_release(&plan);
}

double mw_validate_again(struct mw_validate *v, size_t i)
{
    struct mw_case *c = v->rows.v[i].state;
    double time_s = 0;

    if (!mw_validate_is_timed(&v->rows.v[i])) {
        return 0;
    }
    mw_case_machine(c);
    if (c->skipped != NULL ||
        mw_step_estimate(&c->scenario, &c->layout, c->layers, &c->ctx, &time_s,
                         NULL, NULL) != MW_OK) {
        return 0;
    }
    return time_s;
}

bool mw_validate_memory_again(struct mw_validate *v, size_t i)
{
    struct mw_validate_row *row = &v->rows.v[i];
    struct mw_case *c = row->state;
    struct mw_step_opts opts = {.memory_only = true};
    struct mw_step_result result;
    struct mw_plan plan;

    if (row->skipped != NULL || (row->n_memory == 0 && !row->is_oom)) {
        return false;
    }
    mw_case_machine(c);
    if (mw_plan_make(&c->scenario, &c->layout, c->layers, &plan, NULL) !=
        MW_OK) {
        return false;
    }
    bool is_done = mw_step_simulate(&c->scenario, &plan, &c->ctx, &opts,
                                    &result, NULL) == MW_OK;

    if (is_done) {
        take_memory(c, &result, row);
        mw_step_result_release(&result);
    }
    mw_plan_release(&plan);
    return is_done;
}

static const char *layout_text(struct mw_arena *arena,
                               const struct mw_layout *l)
{
    char cp[16] = "", vpp[16] = "", zero[16] = "", ep[16] = "";

    if (l->cp > 1) {
        snprintf(cp, sizeof cp, " cp%d", l->cp);
    }
    if (l->vpp > 1) {
        snprintf(vpp, sizeof vpp, " vpp%d", l->vpp);
    }
    if (l->zero > 0) {
        snprintf(zero, sizeof zero, " zero%d", l->zero);
    }
    if (l->ep > 1) {
        snprintf(ep, sizeof ep, " ep%d", l->ep);
    }
    return mw_arena_printf(arena, "tp%d%s%s pp%d%s dp%d%s%s mbs%d %s", l->tp,
                           l->sp ? "s" : "", cp, l->pp, vpp, l->dp, ep, zero,
                           l->micro_batch, mw_recompute_name(l->recompute));
}

/* One row stands for a composed cell: the one with the most layers and
 * micro-batches, then the first. */
static double work_of(const struct mw_measured *r)
{
    return r->layers * r->grad_accum;
}

static bool is_spare(const struct mw_measured *all, size_t n, size_t i)
{
    const struct mw_measured *r = &all[i];

    for (size_t j = 0; j < n && mw_case_is_composed(r); j++) {
        const struct mw_measured *o = &all[j];

        if (j != i && mw_case_is_composed(o) && o->hidden == r->hidden &&
            o->tp == r->tp && o->pp == r->pp &&
            o->micro_batch == r->micro_batch &&
            (work_of(o) > work_of(r) || (work_of(o) == work_of(r) && j < i))) {
            return true;
        }
    }
    return false;
}

static void predict(struct mw_validate *v, const struct mw_measured *all,
                    size_t n_all, size_t i, bool is_superseded,
                    struct mw_validate_row *out)
{
    struct mw_case *c = mw_arena_alloc(&v->arena, 1, sizeof *c);

    *c = (struct mw_case){.arena = &v->arena,
                          .db = v->db,
                          .row = &all[i],
                          .all = all,
                          .n_all = n_all};
    out->is_oom = mw_case_is_oom(c->row);
    mw_case_read_memory(c->row, out);
    c->scenario.name = all[i].id;
    c->scenario.file = out->file;
    mw_limits_default(&c->scenario.limits);
    mw_case_take_table(c);
    if (is_spare(all, n_all, i)) {
        mw_case_skip(c, "another row stands for its (hidden, tp, pp, "
                        "micro-batch) cell");
    }
    if (is_superseded) {
        mw_case_skip(c, "the file has the same run with a newer release");
    }
    if (c->skipped == NULL) {
        mw_case_layout(c);
    }
    if (c->skipped == NULL) {
        mw_case_model(c);
    }
    if (c->skipped == NULL) {
        mw_case_workload(c);
    }
    if (c->skipped == NULL) {
        mw_case_recipe(c);
        mw_case_partition(c);
        mw_case_machine(c);
    }
    if (c->skipped == NULL) {
        out->layout = layout_text(&v->arena, &c->layout);
        out->stack = c->ctx.stack.name;
        out->device = c->ctx.gpu->slug;
        /* Composed rows are timings of kernels, with the host's floor in them:
         * no line, and no series. */
        out->micro_batch =
            mw_case_is_composed(&all[i]) ? 0 : c->layout.micro_batch;
        out->series = mw_arena_printf(
            &v->arena, "%s|%d %d|%d %d %d %d %d %d %d|%s|%s", out->job,
            c->scenario.model.hidden, c->scenario.model.n_heads, c->layout.tp,
            c->layout.sp, c->layout.cp, c->layout.pp, c->layout.vpp,
            c->layout.dp, c->layout.zero, c->row->recompute, c->row->schedule);
        /* No table has the rate of fused attention with sinks. */
        out->is_unmeasured = c->scenario.model.sinks;
        out->family = mw_arena_printf(
            &v->arena, "%s%s %s",
            c->scenario.model.moe.n_experts > 0 ? "MoE" : "dense",
            c->scenario.model.sinks ? " with sinks" : "",
            mw_dtype_name(c->scenario.workload.dtype));
        out->state = c;
        simulate(c, !has_time(c, out), out);
    }
    out->fills = c->fills;
    out->skipped = c->skipped;
}

static bool is_wanted(const struct mw_validate *v, const struct mw_measured *r)
{
    if (v->model != NULL && !mw_text_has(r->model, v->model)) {
        return false;
    }
    return v->id_prefix == NULL ||
           strncmp(r->id, v->id_prefix, strlen(v->id_prefix)) == 0;
}

static void add_row(struct mw_validate *v, const struct mw_csv *csv,
                    const struct mw_measured *all, size_t i)
{
    const struct mw_measured *r = &all[i];
    const char *gpu = mw_text_head(&v->arena, r->gpu);
    struct mw_validate_row row = {
        .file = csv->file,
        .id = r->id,
        .model = r->model,
        .line = csv->line[i],
        .layout = "",
        .series = "",
        .is_noisy = mw_text_has(r->note, "noise"),
        .family = "",
        .cell = mw_case_is_composed(r)
                    ? mw_arena_printf(&v->arena, "%s|%.0f %.0f %.0f %.0f",
                                      csv->file, r->hidden, r->tp, r->pp,
                                      r->micro_batch)
                    : mw_arena_printf(&v->arena, "%s|%s|%s|%.0f", csv->file,
                                      r->model, gpu, r->hidden),
        .group = mw_arena_printf(&v->arena, "%s%s%s", r->framework,
                                 r->framework[0] != '\0' ? ", " : "", gpu),
        .job =
            mw_arena_printf(&v->arena, "%s|%s|%.0f|%s|%.0f|%.0f|%.0f|%s|%s",
                            csv->file, r->model, r->layers, gpu, r->seq,
                            r->global_batch, r->gpus, r->dtype, r->framework),
        .peers = mw_arena_printf(&v->arena, "%s|%s|%s|%s|%s", csv->file,
                                 r->model, gpu, r->dtype, r->framework),
        .tokens_per_gpu = r->gpus > 0 ? r->seq * r->global_batch / r->gpus : 0};

    size_t newest = mw_case_newest_release(all, csv->n_rows, i);
    bool is_superseded = newest < csv->n_rows;

    if (is_superseded) {
        mw_validate_note_release(v, csv->file, r, &all[newest]);
    }
    predict(v, all, csv->n_rows, i, is_superseded, &row);
    mw_array_push(&v->rows, row);
}

void mw_validate_init(struct mw_validate *v, const struct mw_hwdb *db)
{
    *v = (struct mw_validate){.db = db};
    mw_arena_init(&v->arena);
}

void mw_validate_release(struct mw_validate *v)
{
    mw_array_release(&v->rows);
    mw_array_release(&v->groups);
    mw_array_release(&v->memory);
    mw_array_release(&v->releases);
    mw_arena_release(&v->arena);
}

enum mw_status mw_validate_add(struct mw_validate *v, const char *path,
                               struct mw_err *err)
{
    struct mw_csv csv;
    void *rows;
    size_t first = v->rows.n;
    enum mw_status status = mw_csv_load(path, &v->arena, &csv, err);

    if (status == MW_OK && mw_csv_col(&csv, "gpu") < 0 &&
        mw_csv_col(&csv, "model_states_MB") < 0) {
        status = mw_fail(err, MW_EINPUT,
                         "%s:1: there is no column 'gpu'; docs/validate.md "
                         "lists the columns",
                         path);
    }
    if (status == MW_OK) {
        status = mw_csv_bind(&csv, row_fields, sizeof(struct mw_measured),
                             false, &v->arena, &rows, err);
    }
    for (size_t i = 0; status == MW_OK && i < csv.n_rows; i++) {
        if (is_wanted(v, &((const struct mw_measured *)rows)[i])) {
            add_row(v, &csv, rows, i);
        }
    }
    mw_validate_mark_noisy(v, first);
    return status;
}
