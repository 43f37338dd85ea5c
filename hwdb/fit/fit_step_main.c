/*
 * fit_step FILE.csv... [--write CONSTANTS.csv]
 *
 * Fits the step model's constants to measured steps, prints them, and prints
 * for every file the error with the fitted constants and the error of rows
 * whose cell (validate.h) was left out of the fit. --write replaces the values
 * of the rows in CONSTANTS.csv.
 */
#include "hwdb/fit/fit_step.h"

#include "base/file.h"
#include "base/stats.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { TABLE_MAX = 1 << 22 };

static const char *base_name(const char *path)
{
    const char *slash = strrchr(path, '/');

    return slash != NULL ? slash + 1 : path;
}

/* Mean and median of |predicted / measured - 1| over rows of one file. */
static void print_errors(const struct mw_fit *f, const char *file,
                         bool with_noisy)
{
    double *fitted = mw_calloc(f->n + 1, sizeof *fitted);
    double *left = mw_calloc(f->n + 1, sizeof *left);
    double bias = 0;
    size_t n = 0;

    for (size_t i = 0; i < f->n; i++) {
        const struct mw_validate_row *r = &f->v->rows.v[f->row[i]];

        if ((file == NULL || r->file == file) && (with_noisy || !r->is_noisy)) {
            fitted[n] = fabs(exp(f->r[i]) - 1);
            left[n] = fabs(exp(f->left_out[i]) - 1);
            bias += exp(f->left_out[i]) - 1;
            n++;
        }
    }
    if (n > 0) {
        printf("%-46s %-5s %5zu  %6.1f %6.1f   %6.1f %6.1f   %+6.1f\n",
               file != NULL ? base_name(file) : "all",
               with_noisy ? "all" : "quiet", n, 100 * mw_mean(fitted, n),
               100 * mw_median(fitted, n), 100 * mw_mean(left, n),
               100 * mw_median(left, n), 100 * bias / (double)n);
    }
    mw_free(fitted);
    mw_free(left);
}

static void print_report(const struct mw_fit *f)
{
    const char *last = NULL;

    printf("%-46s %-5s %5s  %6s %6s   %6s %6s   %6s\n", "per cent", "rows", "n",
           "MAPE", "median", "out", "median", "bias");
    for (size_t i = 0; i < f->n; i++) {
        const char *file = f->v->rows.v[f->row[i]].file;

        if (file != last) {
            print_errors(f, file, true);
            print_errors(f, file, false);
            last = file;
        }
    }
    print_errors(f, NULL, true);
}

static void print_constants(const struct mw_fit *f)
{
    for (size_t k = 0; k < f->p; k++) {
        double grip = 0;

        for (size_t i = 0; i < f->n; i++) {
            grip += f->weight[i] * f->jacobian[i * f->p + k] *
                    f->jacobian[i * f->p + k];
        }
        printf("%-44s %10.4g  prior %10.4g  data/prior %8.2f\n",
               mw_fit_params[k].name, exp(f->x[k]), mw_fit_params[k].prior,
               grip * mw_fit_params[k].sd * mw_fit_params[k].sd);
    }
    printf("\n");
}

/* The line with its second cell replaced, if its first is a parameter. */
static void write_line(const struct mw_fit *f, const char *line, size_t len,
                       FILE *out)
{
    for (size_t k = 0; k < f->p; k++) {
        size_t n = strlen(mw_fit_params[k].name);
        const char *rest;

        if (len > n && strncmp(line, mw_fit_params[k].name, n) == 0 &&
            line[n] == ',' &&
            (rest = memchr(line + n + 1, ',', len - n - 1)) != NULL) {
            fprintf(out, "%s,%.4g%.*s", mw_fit_params[k].name, exp(f->x[k]),
                    (int)(line + len - rest), rest);
            return;
        }
    }
    fwrite(line, 1, len, out);
}

static enum mw_status write_constants(const struct mw_fit *f, const char *path,
                                      struct mw_err *err)
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
        size_t n = end != NULL ? (size_t)(end - text) + 1 - at : len - at;

        write_line(f, text + at, n, out.f);
        at += n;
    }
    if (status == MW_OK) {
        status = mw_outfile_commit(&out, err);
    }
    mw_outfile_abort(&out);
    mw_free(text);
    return status;
}

static enum mw_status run(int argc, char **argv, struct mw_hwdb *db,
                          struct mw_validate *v, struct mw_err *err)
{
    const char *target = NULL;
    struct mw_fit f = {0};
    enum mw_status status = MW_OK;

    for (int i = 1; i < argc && status == MW_OK; i++) {
        if (strcmp(argv[i], "--write") == 0 && i + 1 < argc) {
            target = argv[++i];
        } else {
            status = mw_validate_add(v, argv[i], err);
        }
    }
    if (status == MW_OK) {
        status = mw_fit_init(&f, db, v, err);
    }
    if (status == MW_OK) {
        mw_fit_run(&f);
        mw_fit_leave_out(&f);
        print_constants(&f);
        print_report(&f);
        status = target != NULL ? write_constants(&f, target, err) : MW_OK;
    }
    mw_fit_release(&f);
    return status;
}

int main(int argc, char **argv)
{
    struct mw_hwdb *db = NULL;
    struct mw_validate v;
    struct mw_err err = {0};

    if (argc < 2) {
        fprintf(stderr,
                "usage: fit_step FILE.csv... [--write CONSTANTS.csv]\n");
        return 2;
    }
    enum mw_status status = mw_hwdb_load(NULL, &db, &err);

    if (status == MW_OK) {
        mw_validate_init(&v, db);
        status = run(argc, argv, db, &v, &err);
        mw_validate_release(&v);
        mw_hwdb_free(db);
    }
    if (status != MW_OK) {
        fprintf(stderr, "fit_step: %s\n", err.text);
        return 3;
    }
    return 0;
}
