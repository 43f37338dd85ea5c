/*
 * fit_memory FILE.csv... [--write CONSTANTS.csv] [--rows]
 *
 * Fits the constants of stacks' memory to measured figures, prints them, and
 * prints for every file the error with the fitted constants and the error of
 * figures whose cell (validate.h) was left out of the fit.
 *
 * Then, how far measured memory lies above our prediction: the 99th percentile
 * of measured / predicted - 1 over all left-out figures of what an allocator or
 * the device holds (nothing below 0), for each training stack (its variants
 * included) with at least ten of them and for all together. A plan leaves that
 * much room (docs/planner.md, Margin).
 * --write replaces the values of the fitted rows, and the rows
 * memory_error[.STACK] and memory_reserve_spread[.STACK] (1 + the 90th
 * percentile).
 */
#include "hwdb/fit/tensor_report.h"

#include "base/file.h"
#include "base/stats.h"
#include "sim/coll/coll_library.h"
#include "sim/validate/validate.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { FIGURES_MIN = 10, STACKS_MAX = 64, TABLE_MAX = 1 << 22 };

struct margin {
    const char *stack; /* NULL: all */
    size_t n;
    double p50, p90, p99;
};

static bool counts(const struct mw_validate_row *r, int k)
{
    enum mw_memory_kind kind = r->memory[k].kind;

    return kind == MW_MEMORY_RESERVED || kind == MW_MEMORY_DEVICE;
}

/* The stack, or a variant of it that has no row of its own. */
static bool is_of(const char *stack, const char *of)
{
    size_t n = strlen(of);

    return stack && strncmp(stack, of, n) == 0 &&
           (stack[n] == '\0' || stack[n] == '-');
}

static struct margin margin_of(const struct mw_tensor_fit *f, const char *stack)
{
    struct margin m = {.stack = stack};
    double *above = mw_calloc(f->n + 1, sizeof *above);

    for (size_t i = 0; i < f->n; i++) {
        const struct mw_validate_row *r = &f->v->rows.v[f->figure[i].row];

        if ((!stack || is_of(r->stack, stack)) && counts(r, f->figure[i].k)) {
            above[m.n++] = fmax(0, exp(-f->figure[i].left_out) - 1);
        }
    }
    m.p50 = mw_median(above, m.n);
    m.p90 = mw_quantile(above, m.n, 0.9);
    m.p99 = mw_quantile(above, m.n, 0.99);
    mw_free(above);
    return m;
}

static size_t all_margins(const struct mw_tensor_fit *f, struct margin *out)
{
    size_t n = 0;

    out[n++] = margin_of(f, NULL);
    for (size_t i = 0; mw_stack_name(i) && n < STACKS_MAX; i++) {
        struct margin m = margin_of(f, mw_stack_name(i));

        if (m.n >= FIGURES_MIN) {
            out[n++] = m;
        }
    }
    return n;
}

static void write_row(const struct margin *m, FILE *out)
{
    const struct {
        const char *name, *what;
        double value;
    } rows[] = {{"memory_error",
                 "p99 of measured over predicted memory, less 1", m->p99},
                {"memory_reserve_spread",
                 "p90 of measured over predicted memory", 1 + m->p90}};

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        fprintf(
            out,
            "%s%s%s,%.4f,ratio,\"fit_memory over measured memory "
            "(docs/planner.md, Margin)\",2026-11-29,M,\"%s: %zu figures\"\n",
            rows[i].name, m->stack ? "." : "", m->stack ? m->stack : "",
            rows[i].value, rows[i].what, m->n);
    }
}

/* A row that write_row makes. */
static bool is_margin(const char *line)
{
    return strncmp(line, "memory_error", strlen("memory_error")) == 0 ||
           strncmp(line, "memory_reserve_spread",
                   strlen("memory_reserve_spread")) == 0;
}

/* All other lines as they are, the margins behind them. */
static enum mw_status write_rows(const struct mw_tensor_fit *f,
                                 const struct margin *m, size_t n,
                                 const char *path, struct mw_err *err)
{
    char *text = NULL;
    size_t len = 0;
    struct mw_outfile out = {0};
    enum mw_status status = mw_file_read(path, TABLE_MAX, &text, &len, err);

    if (status == MW_OK) {
        status = mw_outfile_open(&out, path, err);
    }
    for (size_t at = 0; status == MW_OK && at < len;) {
        const char *end = memchr(text + at, '\n', len - at);
        size_t size = end ? (size_t)(end - text) + 1 - at : len - at;

        if (!is_margin(text + at) &&
            !mw_tensor_write_line(f, text + at, size, out.f)) {
            fwrite(text + at, 1, size, out.f);
        }
        at += size;
    }
    for (size_t i = 0; status == MW_OK && i < n; i++) {
        write_row(&m[i], out.f);
    }
    if (status == MW_OK) {
        status = mw_outfile_commit(&out, err);
    }
    mw_outfile_abort(&out);
    mw_free(text);
    return status;
}

static enum mw_status report(const struct mw_tensor_fit *f, const char *target,
                             struct mw_err *err)
{
    struct margin m[STACKS_MAX];
    size_t n = all_margins(f, m);

    printf("\nstack                   figures     p50     p90     p99\n");
    for (size_t i = 0; i < n; i++) {
        printf("%-22s %8zu  %6.4f  %6.4f  %6.4f\n",
               m[i].stack ? m[i].stack : "(all)", m[i].n, m[i].p50, m[i].p90,
               m[i].p99);
    }
    return target ? write_rows(f, m, n, target, err) : MW_OK;
}

static enum mw_status run(int argc, char **argv, struct mw_hwdb *db,
                          struct mw_validate *v, struct mw_err *err)
{
    struct mw_tensor_fit f = {0};
    const char *target = NULL;
    bool with_rows = false;
    enum mw_status status = MW_OK;

    for (int i = 1; i < argc && status == MW_OK; i++) {
        if (strcmp(argv[i], "--write") == 0 && i + 1 < argc) {
            target = argv[++i];
        } else if (strcmp(argv[i], "--rows") == 0) {
            with_rows = true;
        } else {
            status = mw_validate_add(v, argv[i], err);
        }
    }
    if (status == MW_OK) {
        status = mw_tensor_fit_init(&f, db, v, err);
    }
    if (status == MW_OK) {
        mw_tensor_fit_run(&f);
        mw_tensor_fit_leave_out(&f);
        mw_tensor_print(&f);
        if (with_rows) {
            mw_tensor_print_rows(&f);
        }
        status = report(&f, target, err);
    }
    mw_tensor_fit_release(&f);
    return status;
}

int main(int argc, char **argv)
{
    struct mw_hwdb *db = NULL;
    struct mw_validate v;
    struct mw_err err = {0};

    if (argc < 2) {
        fprintf(stderr, "usage: fit_memory FILE.csv... [--write CONSTANTS.csv] "
                        "[--rows]\n");
        return 2;
    }
    enum mw_status status = mw_hwdb_load(NULL, &db, &err);

    if (status == MW_OK) {
        mw_coll_library_lend(db);
        mw_validate_init(&v, db);
        status = run(argc, argv, db, &v, &err);
        mw_validate_release(&v);
        mw_hwdb_free(db);
    }
    if (status != MW_OK) {
        fprintf(stderr, "fit_memory: %s\n", err.text);
        return 3;
    }
    return 0;
}
