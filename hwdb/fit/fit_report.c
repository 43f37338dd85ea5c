/*
 * Tables of a fit. Errors are predicted / measured - 1: of the fit, and of
 * rows predicted with constants that were fitted without their cell. A group is
 * a file and what its rows have in common that an accuracy may depend on:
 * framework and GPU where a file has few of them, else model family and
 * precision.
 */
#include "hwdb/fit/fit_report.h"

#include "hwdb/fit/fit_program.h"
#include "hwdb/fit/stack_errors.h"

#include "hwdb/fit/tensor_report.h"

#include "base/file.h"
#include "base/stats.h"
#include "plots/plot.h"

#include <math.h>
#include <string.h>

enum { TEMPLATE_MAX = 1 << 20, GROUPS_MAX = 128, FEW = 8, WORST = 25 };

static const char *base_name(const char *path)
{
    const char *slash = strrchr(path, '/');

    return slash != NULL ? slash + 1 : path;
}

/* ---- groups ----------------------------------------------------------------
 */
struct group {
    const char *file, *label; /* label NULL: all rows of the file */
};
struct errors {
    size_t n;
    double fitted, fitted_median; /* mean and median of absolute errors */
    double out, out_p50, out_p90, out_p99, bias;
    double quiet_out; /* mean without noisy rows */
};

static const struct mw_validate_row *row_of(const struct mw_fit *f, size_t i)
{
    return &f->v->rows.v[f->row[i]];
}

static bool is_in(const struct mw_validate_row *r, const struct group *g)
{
    return r->file == g->file &&
           (g->label == NULL || strcmp(r->group, g->label) == 0 ||
            strcmp(r->family, g->label) == 0);
}

static struct errors errors_of(const struct mw_fit *f, const struct group *g)
{
    struct errors e = {0};
    double *fitted = mw_calloc(f->n + 1, sizeof *fitted);
    double *out = mw_calloc(f->n + 1, sizeof *out);
    double quiet = 0;
    size_t n_quiet = 0;

    for (size_t i = 0; i < f->n; i++) {
        if (g->file != NULL && !is_in(row_of(f, i), g)) {
            continue;
        }
        fitted[e.n] = fabs(exp(f->r[i]) - 1);
        out[e.n] = fabs(exp(f->left_out[i]) - 1);
        e.bias += exp(f->left_out[i]) - 1;
        if (!row_of(f, i)->is_noisy) {
            quiet += out[e.n];
            n_quiet++;
        }
        e.n++;
    }
    e.bias /= (double)e.n;
    e.fitted = mw_mean(fitted, e.n);
    e.fitted_median = mw_median(fitted, e.n);
    e.out = mw_mean(out, e.n);
    e.out_p50 = mw_median(out, e.n);
    e.out_p90 = mw_quantile(out, e.n, 0.9);
    e.out_p99 = mw_quantile(out, e.n, 0.99);
    e.quiet_out = n_quiet > 0 ? quiet / (double)n_quiet : (double)NAN;
    mw_free(fitted);
    mw_free(out);
    return e;
}

static size_t add_label(struct group *groups, size_t n, const char *file,
                        const char *label)
{
    for (size_t i = 0; i < n; i++) {
        if (groups[i].file == file &&
            (groups[i].label == label ||
             (groups[i].label != NULL && label != NULL &&
              strcmp(groups[i].label, label) == 0))) {
            return n;
        }
    }
    if (n < GROUPS_MAX) {
        groups[n++] = (struct group){file, label};
    }
    return n;
}

static size_t labels_of(const struct mw_fit *f, const char *file,
                        bool by_family, struct group *out)
{
    size_t n = 0;

    for (size_t i = 0; i < f->n; i++) {
        const struct mw_validate_row *r = row_of(f, i);

        if (r->file == file) {
            n = add_label(out, n, file, by_family ? r->family : r->group);
        }
    }
    return n;
}

/* Every file, followed by its parts where there are several. */
static size_t all_groups(const struct mw_fit *f, struct group *out)
{
    struct group parts[GROUPS_MAX];
    size_t n = 0;

    for (size_t i = 0; i < f->n; i++) {
        const char *file = row_of(f, i)->file;
        size_t before = n, m;

        n = add_label(out, n, file, NULL);
        if (n == before) {
            continue;
        }
        m = labels_of(f, file, false, parts);
        if (m > FEW) {
            m = labels_of(f, file, true, parts);
        }
        for (size_t k = 0; m > 1 && k < m; k++) {
            n = add_label(out, n, parts[k].file, parts[k].label);
        }
    }
    return n;
}

/* ---- terminal --------------------------------------------------------------
 */
void mw_fit_print_errors(const struct mw_fit *f)
{
    struct group groups[GROUPS_MAX];
    size_t n = all_groups(f, groups);

    printf("\n%-72s %4s %6s %6s %6s %6s %6s %6s\n", "per cent", "n", "fit",
           "out", "quiet", "p50", "p90", "bias");
    groups[n++] = (struct group){NULL, NULL};
    for (size_t i = 0; i < n; i++) {
        struct errors e = errors_of(f, &groups[i]);

        printf("%s%-*.70s %4zu %6.1f %6.1f %6.1f %6.1f %6.1f %+6.1f\n",
               groups[i].label != NULL ? "  " : "",
               groups[i].label != NULL ? 70 : 72,
               groups[i].label != NULL  ? groups[i].label
               : groups[i].file != NULL ? base_name(groups[i].file)
                                        : "all",
               e.n, 100 * e.fitted, 100 * e.out, 100 * e.quiet_out,
               100 * e.out_p50, 100 * e.out_p90, 100 * e.bias);
    }
}

void mw_fit_print(const struct mw_fit *f)
{
    struct mw_fitted result = mw_fit_result(f);

    mw_fitted_print(&result);
    mw_fit_print_errors(f);
}

void mw_fit_print_rows(const struct mw_fit *f)
{
    for (size_t i = 0; i < f->n; i++) {
        const struct mw_validate_row *r = row_of(f, i);

        printf("%-44s %-36s %9.4f %+6.1f %+6.1f%s", r->id, r->layout,
               r->measured_s, 100 * (exp(f->r[i]) - 1),
               100 * (exp(f->left_out[i]) - 1), r->is_noisy ? " noisy" : "");
        for (int kind = 0; kind < MW_SPAN_KIND_COUNT; kind++) {
            if (r->breakdown_s[kind] > 0.005 * r->predicted_s) {
                printf(" %s %.1f", mw_span_kind_name((enum mw_span_kind)kind),
                       100 * r->breakdown_s[kind] / r->predicted_s);
            }
        }
        printf("\n");
    }
}

/* ---- document --------------------------------------------------------------
 */
static void doc_errors(const struct mw_fit *f, FILE *out)
{
    struct group groups[GROUPS_MAX];
    size_t n = all_groups(f, groups);

    fprintf(out, "| rows | n | fitted MAPE | left out: MAPE | without noisy | "
                 "median | p90 | bias |\n|---|--:|--:|--:|--:|--:|--:|--:|\n");
    groups[n++] = (struct group){NULL, NULL};
    for (size_t i = 0; i < n; i++) {
        struct errors e = errors_of(f, &groups[i]);
        const char *mark = groups[i].label != NULL ? "" : "**";

        fprintf(out, "| %s%s%s | %zu | %.1f %% | %.1f %% | ", mark,
                groups[i].label != NULL  ? groups[i].label
                : groups[i].file != NULL ? base_name(groups[i].file)
                                         : "all",
                mark, e.n, 100 * e.fitted, 100 * e.out);
        if (isnan(e.quiet_out)) {
            fprintf(out, "- ");
        } else {
            fprintf(out, "%.1f %% ", 100 * e.quiet_out);
        }
        fprintf(out, "| %.1f %% | %.1f %% | %+.1f %% |\n", 100 * e.out_p50,
                100 * e.out_p90, 100 * e.bias);
    }
}

static void doc_constants(const struct mw_fit *f, FILE *out)
{
    struct mw_fitted result = mw_fit_result(f);

    mw_fitted_doc(&result, out);
}

static void doc_worst(const struct mw_fit *f, FILE *out)
{
    bool *is_done = mw_calloc(f->n + 1, sizeof *is_done);

    fprintf(out, "| row | layout | measured | left-out error |\n"
                 "|---|---|--:|--:|\n");
    for (int round = 0; round < WORST && (size_t)round < f->n; round++) {
        size_t worst = f->n;

        for (size_t i = 0; i < f->n; i++) {
            if (!is_done[i] &&
                (worst == f->n ||
                 fabs(f->left_out[i]) > fabs(f->left_out[worst]))) {
                worst = i;
            }
        }
        const struct mw_validate_row *r = row_of(f, worst);

        is_done[worst] = true;
        fprintf(out, "| %s%s | %s | %.4g s | %+.1f %% |\n", r->id,
                r->is_noisy ? " (noisy)" : "", r->layout, r->measured_s,
                100 * (exp(f->left_out[worst]) - 1));
    }
    mw_free(is_done);
}

static void doc_filled(const struct mw_fit *f, FILE *out)
{
    fprintf(out, "| rule | rows | what it does |\n|---|--:|---|\n");
    for (int fill = 0; fill < MW_FILL_COUNT; fill++) {
        size_t n = 0;

        for (size_t i = 0; i < f->n; i++) {
            n += (row_of(f, i)->fills >> fill & 1) != 0;
        }
        if (n > 0) {
            fprintf(out, "| `%s` | %zu | %s |\n",
                    mw_fill_name((enum mw_fill)fill), n,
                    mw_fill_text((enum mw_fill)fill));
        }
    }
}

/* Rows that a rule filled apart from those that say all. */
static void doc_specified(const struct mw_fit *f, FILE *out)
{
    static const char *const names[] = {"fully specified", "filled by a rule"};
    double *fitted = mw_calloc(f->n + 1, sizeof *fitted);
    double *left = mw_calloc(f->n + 1, sizeof *left);

    fprintf(out, "| rows | n | fitted MAPE | left out: MAPE | median |\n"
                 "|---|--:|--:|--:|--:|\n");
    for (int filled = 0; filled < 2; filled++) {
        size_t n = 0;

        for (size_t i = 0; i < f->n; i++) {
            if (mw_validate_is_filled(row_of(f, i)) == (filled == 1)) {
                fitted[n] = fabs(exp(f->r[i]) - 1);
                left[n++] = fabs(exp(f->left_out[i]) - 1);
            }
        }
        fprintf(out, "| %s | %zu | %.1f %% | %.1f %% | %.1f %% |\n",
                names[filled], n, 100 * mw_mean(fitted, n),
                100 * mw_mean(left, n), 100 * mw_median(left, n));
    }
    mw_free(fitted);
    mw_free(left);
}

static void floor_row(const struct mw_fit *f, const char *file, bool one_layout,
                      FILE *out)
{
    struct mw_release_floor e;

    mw_release_floor(f->v, file, one_layout, &e);
    if (e.runs > 0) {
        fprintf(out, "| %s | %s | %llu | %.1f %% | %.1f %% | %.0f %% |\n",
                base_name(file),
                one_layout ? "one layout and precision" : "any layout",
                (unsigned long long)e.runs, 100 * e.median, 100 * e.p90,
                100 * e.far);
    }
}

static void doc_releases(const struct mw_fit *f, FILE *out)
{
    const char *done = NULL; /* pairs of a file are together */

    fprintf(out, "| file | pairs of | runs | median | p90 | above 5 %% |\n"
                 "|---|---|--:|--:|--:|--:|\n");
    for (size_t i = 0; i < f->v->releases.n; i++) {
        const char *file = f->v->releases.v[i].file;

        if (done == NULL || strcmp(file, done) != 0) {
            floor_row(f, file, false, out);
            floor_row(f, file, true, out);
        }
        done = file;
    }
}

static void doc_skipped(const struct mw_fit *f, FILE *out)
{
    fprintf(out, "| file | rows | reason |\n|---|--:|---|\n");
    for (size_t i = 0; i < f->v->rows.n; i++) {
        const struct mw_validate_row *r = &f->v->rows.v[i];
        size_t n = 0;
        bool is_first = r->skipped != NULL;

        for (size_t j = 0; r->skipped != NULL && j < f->v->rows.n; j++) {
            const struct mw_validate_row *o = &f->v->rows.v[j];
            bool is_same = o->skipped != NULL && o->file == r->file &&
                           strcmp(o->skipped, r->skipped) == 0;

            is_first = is_first && !(is_same && j < i);
            n += is_same;
        }
        if (is_first) {
            fprintf(out, "| %s | %zu | %s |\n", base_name(r->file), n,
                    r->skipped);
        }
    }
}

static void doc_memory(const struct mw_fit *f, FILE *out)
{
    if (f->memory) {
        mw_tensor_doc_errors(f->memory, out);
    }
}

static void doc_fits(const struct mw_fit *f, FILE *out)
{
    if (f->memory) {
        mw_tensor_doc_fits(f->memory, out);
    }
}

static void doc_memory_constants(const struct mw_fit *f, FILE *out)
{
    if (f->memory) {
        mw_tensor_doc_constants(f->memory, out);
    }
}

static void doc_line(const void *ctx, const char *line, size_t len, FILE *out)
{
    const struct mw_fit *f = ctx;
    static const struct {
        const char *mark;
        void (*write)(const struct mw_fit *, FILE *);
    } marks[] = {{"@ERRORS@\n", doc_errors},
                 {"@WORST@\n", doc_worst},
                 {"@CONSTANTS@\n", doc_constants},
                 {"@MEMORY@\n", doc_memory},
                 {"@FITS@\n", doc_fits},
                 {"@MEMORY_CONSTANTS@\n", doc_memory_constants},
                 {"@STRONG@\n", mw_fit_doc_strong},
                 {"@FILLED@\n", doc_filled},
                 {"@SPECIFIED@\n", doc_specified},
                 {"@RELEASES@\n", doc_releases},
                 {"@SKIPPED@\n", doc_skipped}};

    for (size_t i = 0; i < sizeof marks / sizeof marks[0]; i++) {
        if (len == strlen(marks[i].mark) &&
            strncmp(line, marks[i].mark, len) == 0) {
            marks[i].write(f, out);
            return;
        }
    }
    fwrite(line, 1, len, out);
}

enum mw_status mw_fit_write_doc(const struct mw_fit *f, const char *template,
                                const char *path, struct mw_err *err)
{
    return mw_fit_copy_lines(template, path, doc_line, f, err);
}

/* "training_vtrain_multi_node.csv" -> "vtrain multi node". */
static const char *series_name(struct mw_arena *arena, const char *file)
{
    const char *name = base_name(file);
    char *out;

    name += strncmp(name, "training_", 9) == 0 ? 9 : 0;
    out = mw_arena_printf(arena, "%.*s", (int)strcspn(name, "."), name);
    for (char *c = out; *c != '\0'; c++) {
        *c = *c == '_' ? ' ' : *c;
    }
    return out;
}

enum mw_status mw_fit_plot(const struct mw_fit *f, const char *path,
                           struct mw_err *err)
{
    const struct mw_plot_axes axes = {
        .title = "Step time, each row's cell left out of the fit",
        .x = {.label = "measured (s)", .is_log = true},
        .y = {.label = "predicted (s)", .is_log = true},
        .band = 0.1};
    struct mw_plot_series series[GROUPS_MAX];
    struct mw_arena arena;
    size_t n = 0;

    mw_arena_init(&arena);
    double *x = mw_arena_alloc(&arena, f->n + 1, sizeof *x);
    double *y = mw_arena_alloc(&arena, f->n + 1, sizeof *y);

    for (size_t i = 0; i < f->n; i++) { /* rows of a file are together */
        const char *file = row_of(f, i)->file;

        x[i] = row_of(f, i)->measured_s;
        y[i] = x[i] * exp(f->left_out[i]);
        if (i == 0 || row_of(f, i - 1)->file != file) {
            series[n++] = (struct mw_plot_series){
                .label = series_name(&arena, file), .x = x + i, .y = y + i};
        }
        series[n - 1].n++;
    }
    enum mw_status status = mw_plot_scatter(&axes, series, n, path, err);

    mw_arena_release(&arena);
    return status;
}

enum mw_status mw_fit_write_errors(const struct mw_fit *f, const char *path,
                                   struct mw_err *err)
{
    struct group groups[GROUPS_MAX];
    size_t n = all_groups(f, groups);
    struct mw_outfile out = {0};
    enum mw_status status = mw_outfile_open(&out, path, err);

    if (status == MW_OK) {
        fprintf(out.f,
                "# Errors of predicted step times and memory, abs(predicted / "
                "measured - 1), with each row's\n# cell left out of the fit of "
                "the constants; bias keeps the sign. Made by fit_step.\n"
                "file,group,rows,p50,p90,p99,bias\n");
        for (size_t i = 0; i < n; i++) {
            struct errors e = errors_of(f, &groups[i]);

            fprintf(out.f, "%s,\"%s\",%zu,%.4f,%.4f,%.4f,%.4f\n",
                    base_name(groups[i].file),
                    groups[i].label != NULL ? groups[i].label : "all", e.n,
                    e.out_p50, e.out_p90, e.out_p99, e.bias);
        }
        mw_fit_write_stack_errors(f, out.f);
        if (f->memory) {
            mw_tensor_write_errors(f->memory, out.f);
        }
        status = mw_outfile_commit(&out, err);
    }
    mw_outfile_abort(&out);
    return status;
}
