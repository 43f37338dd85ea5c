/*
 * Tables of a fit of memory. Errors are predicted / measured - 1: of the fit,
 * and of figures predicted with constants that were fitted without their cell.
 * A group is what validate makes one: rows of a file with the same framework
 * and GPU, and a kind of figure.
 */
#include "hwdb/fit/tensor_report.h"

#include <math.h>
#include <string.h>

enum { GROUPS_MAX = 64 };

static const char *base_name(const char *path)
{
    const char *slash = strrchr(path, '/');

    return slash ? slash + 1 : path;
}

static const struct mw_validate_row *row_of(const struct mw_tensor_fit *f,
                                            size_t i)
{
    return &f->v->rows.v[f->figure[i].row];
}

static enum mw_memory_kind kind_of(const struct mw_tensor_fit *f, size_t i)
{
    return row_of(f, i)->memory[f->figure[i].k].kind;
}

/* ---- groups ----------------------------------------------------------------
 */
struct group {
    const char *file, *label; /* label NULL: all of the file; file NULL: all */
    enum mw_memory_kind kind;
    struct mw_memory_group fitted, out;
};

static bool is_in(const struct mw_tensor_fit *f, size_t i,
                  const struct group *g)
{
    const struct mw_validate_row *r = row_of(f, i);

    return !g->file || (r->file == g->file &&
                        (!g->label || (strcmp(r->group, g->label) == 0 &&
                                       kind_of(f, i) == g->kind)));
}

static void count(const struct mw_tensor_fit *f, struct group *g)
{
    double *fitted = mw_calloc(f->n + 1, sizeof *fitted);
    double *out = mw_calloc(f->n + 1, sizeof *out);
    size_t n = 0;

    for (size_t i = 0; i < f->n; i++) {
        if (is_in(f, i, g)) {
            fitted[n] = exp(f->figure[i].r);
            out[n++] = exp(f->figure[i].left_out);
        }
    }
    mw_memory_stats(fitted, n, &g->fitted);
    mw_memory_stats(out, n, &g->out);
    mw_free(fitted);
    mw_free(out);
}

static size_t add_group(struct group *groups, size_t n, struct group g)
{
    for (size_t i = 0; i < n; i++) {
        const struct group *o = &groups[i];

        if (o->file == g.file && (o->label != NULL) == (g.label != NULL) &&
            (!g.label ||
             (o->kind == g.kind && strcmp(o->label, g.label) == 0))) {
            return n;
        }
    }
    if (n < GROUPS_MAX) {
        groups[n++] = g;
    }
    return n;
}

/* Every file, followed by its parts; then all. */
static size_t all_groups(const struct mw_tensor_fit *f, struct group *out)
{
    size_t n = 0;

    for (size_t i = 0; i < f->n; i++) {
        const char *file = row_of(f, i)->file;
        size_t before = n;

        n = add_group(out, n, (struct group){.file = file});
        for (size_t j = i; n > before && j < f->n; j++) {
            const struct mw_validate_row *r = row_of(f, j);

            if (r->file == file) {
                n = add_group(out, n,
                              (struct group){.file = file,
                                             .label = r->group,
                                             .kind = kind_of(f, j)});
            }
        }
    }
    if (n < GROUPS_MAX) {
        out[n++] = (struct group){0};
    }
    for (size_t i = 0; i < n; i++) {
        count(f, &out[i]);
    }
    return n;
}

static double grip_of(const struct mw_tensor_fit *f, size_t k)
{
    double grip = 0, sd = mw_tensor_params[k].sd;

    for (size_t i = 0; i < f->n; i++) {
        double slope = f->jacobian[i * f->p + k];

        grip += f->figure[i].weight * slope * slope;
    }
    return grip * sd * sd;
}

/* ---- terminal --------------------------------------------------------------
 */
void mw_tensor_print(const struct mw_tensor_fit *f)
{
    struct group groups[GROUPS_MAX];
    size_t n = all_groups(f, groups);

    for (size_t k = 0; k < f->p; k++) {
        printf("%-44s %10.4g  prior %10.4g  data/prior %8.2f\n",
               mw_tensor_params[k].name, exp(f->x[k]),
               mw_tensor_params[k].prior, grip_of(f, k));
    }
    printf("\n%-72s %4s %6s %6s %6s %6s %6s\n", "per cent", "n", "fit", "out",
           "p50", "p90", "bias");
    for (size_t i = 0; i < n; i++) {
        const struct group *g = &groups[i];

        printf("%s%-12s %-*.59s %4zu %6.2f %6.2f %6.2f %6.2f %+6.2f\n",
               g->label ? "  " : "",
               g->label ? mw_memory_kind_name(g->kind) : "", g->label ? 57 : 59,
               g->label  ? g->label
               : g->file ? base_name(g->file)
                         : "all",
               (size_t)g->out.rows, 100 * g->fitted.mape, 100 * g->out.mape,
               100 * g->out.median_ape, 100 * g->out.p90_ape,
               100 * g->out.bias);
    }
}

void mw_tensor_print_rows(const struct mw_tensor_fit *f)
{
    for (size_t i = 0; i < f->n; i++) {
        const struct mw_validate_row *r = row_of(f, i);
        const struct mw_validate_memory *m = &r->memory[f->figure[i].k];

        printf("%-44s %-38s %-11s %8.3f %+6.2f %+6.2f\n", r->id, r->layout,
               mw_memory_kind_name(m->kind), m->measured_bytes / 0x1p30,
               100 * (exp(f->figure[i].r) - 1),
               100 * (exp(f->figure[i].left_out) - 1));
    }
}

/* ---- documents -------------------------------------------------------------
 */
void mw_tensor_doc_errors(const struct mw_tensor_fit *f, FILE *out)
{
    struct group groups[GROUPS_MAX];
    size_t n = all_groups(f, groups);

    fprintf(out, "| figures | kind | n | fitted MAPE | left out: MAPE | median "
                 "| p90 | bias |\n|---|---|--:|--:|--:|--:|--:|--:|\n");
    for (size_t i = 0; i < n; i++) {
        const struct group *g = &groups[i];
        const char *mark = g->label ? "" : "**";

        fprintf(out,
                "| %s%s%s | %s | %zu | %.1f %% | %.1f %% | %.1f %% | %.1f %% | "
                "%+.1f %% |\n",
                mark,
                g->label  ? g->label
                : g->file ? base_name(g->file)
                          : "all",
                mark, g->label ? mw_memory_kind_name(g->kind) : "",
                (size_t)g->out.rows, 100 * g->fitted.mape, 100 * g->out.mape,
                100 * g->out.median_ape, 100 * g->out.p90_ape,
                100 * g->out.bias);
    }
}

void mw_tensor_doc_fits(const struct mw_tensor_fit *f, FILE *out)
{
    const struct mw_validate_row *rows = f->v->rows.v;
    size_t n = f->v->rows.n;
    struct mw_validate_group all = {0};

    fprintf(out, "| file | ran out of memory | predicted not to fit | ran | "
                 "predicted to fit |\n|---|--:|--:|--:|--:|\n");
    for (size_t i = 0; i <= n; i++) {
        struct mw_validate_group g = {0};

        if (i < n && i > 0 && rows[i].file == rows[i - 1].file) {
            continue;
        }
        for (size_t j = i; j < n && rows[j].file == rows[i].file; j++) {
            bool is_out = rows[j].is_oom, is_row = rows[j].skipped == NULL;

            g.oom_rows += is_row && is_out;
            g.oom_right += is_row && is_out && !rows[j].fits;
            g.ran_rows += is_row && !is_out;
            g.ran_right += is_row && !is_out && rows[j].fits;
        }
        all.oom_rows += g.oom_rows;
        all.oom_right += g.oom_right;
        all.ran_rows += g.ran_rows;
        all.ran_right += g.ran_right;
        g = i < n ? g : all;
        fprintf(out, "| %s | %zu | %zu | %zu | %zu |\n",
                i < n ? base_name(rows[i].file) : "**all**", (size_t)g.oom_rows,
                (size_t)g.oom_right, (size_t)g.ran_rows, (size_t)g.ran_right);
    }
}

void mw_tensor_doc_constants(const struct mw_tensor_fit *f, FILE *out)
{
    fprintf(out, "| constant | fitted | prior | weight of the data |\n"
                 "|---|--:|--:|--:|\n");
    for (size_t k = 0; k < f->p; k++) {
        fprintf(out, "| `%s` | %.4g | %.4g | %.1f |\n",
                mw_tensor_params[k].name, exp(f->x[k]),
                mw_tensor_params[k].prior, grip_of(f, k));
    }
}

void mw_tensor_write_errors(const struct mw_tensor_fit *f, FILE *out)
{
    struct group groups[GROUPS_MAX];
    size_t n = all_groups(f, groups);

    for (size_t i = 0; i < n; i++) {
        const struct group *g = &groups[i];

        fprintf(out, "%s,\"memory%s%s%s%s\",%zu,%.4f,%.4f,%.4f,%.4f\n",
                g->file ? base_name(g->file) : "all", g->label ? " " : "",
                g->label ? mw_memory_kind_name(g->kind) : "",
                g->label && *g->label ? ", " : "", g->label ? g->label : "",
                (size_t)g->out.rows, g->out.median_ape, g->out.p90_ape,
                g->out.p99_ape, g->out.bias);
    }
}

bool mw_tensor_write_line(const struct mw_tensor_fit *f, const char *line,
                          size_t len, FILE *out)
{
    for (size_t k = 0; k < f->p; k++) {
        size_t n = strlen(mw_tensor_params[k].name);
        const char *rest;

        if (len > n && strncmp(line, mw_tensor_params[k].name, n) == 0 &&
            line[n] == ',' &&
            (rest = memchr(line + n + 1, ',', len - n - 1)) != NULL) {
            fprintf(out, "%s,%.4g%.*s", mw_tensor_params[k].name, exp(f->x[k]),
                    (int)(line + len - rest), rest);
            return true;
        }
    }
    return false;
}
