/*
 * fit_step FILE.csv... [--write CONSTANTS.csv] [--errors MODEL_ERROR.csv]
 *          [--doc TEMPLATE OUT.md] [--plot FILE.svg] [--rows]
 *          [--folds N] [--seed S]
 *
 * Fits the step model's constants to measured steps, prints them, and prints
 * for every file the error with the fitted constants and the error of rows
 * whose cell (validate.h) was left out of the fit. --write replaces values,
 * sources and confidences of the rows in CONSTANTS.csv; the others write
 * reports. --folds leaves a random Nth of the rows out at a time, then an Nth
 * of the cells, prints the errors of either, and writes nothing.
 */
#include "base/units.h"
#include "hwdb/fit/fit_program.h"
#include "hwdb/fit/fit_report.h"
#include "hwdb/fit/tensor_report.h"

#include <stdio.h>
#include <string.h>

/* Parameters' rows with the fit's value, source and confidence. */
static void write_line(const void *ctx, const char *line, size_t len, FILE *out)
{
    struct mw_fitted result = mw_fit_result(ctx);

    if (!mw_fitted_write_line(&result, line, len, out)) {
        fwrite(line, 1, len, out);
    }
}

struct outputs {
    const char *target, *errors, *template, *doc, *plot;
    bool with_rows;
    int64_t folds, seed; /* folds 0: cell by cell */
};

static enum mw_status write_all(const struct mw_fit *f, const struct outputs *o,
                                struct mw_err *err)
{
    enum mw_status status = MW_OK;

    if (o->target != NULL) {
        status = mw_fit_copy_lines(o->target, o->target, write_line, f, err);
    }
    if (status == MW_OK && o->errors != NULL) {
        status = mw_fit_write_errors(f, o->errors, err);
    }
    if (status == MW_OK && o->doc != NULL) {
        status = mw_fit_write_doc(f, o->template, o->doc, err);
    }
    if (status == MW_OK && o->plot != NULL) {
        status = mw_fit_plot(f, o->plot, err);
    }
    return status;
}

/* Reports tell of memory too, whose constants fit_memory writes. */
static enum mw_status with_memory(struct mw_fit *f, const struct outputs *o,
                                  struct mw_err *err)
{
    struct mw_tensor_fit memory = {0};
    enum mw_status status = MW_OK;

    if (o->errors != NULL || o->doc != NULL) {
        status = mw_tensor_fit_init(&memory, f->db, f->v, err);
        if (status == MW_OK) {
            mw_tensor_fit_run(&memory);
            mw_tensor_fit_leave_out(&memory);
            f->memory = &memory;
        }
    }
    if (status == MW_OK) {
        status = write_all(f, o, err);
    }
    f->memory = NULL;
    mw_tensor_fit_release(&memory);
    return status;
}

/* Two at least. */
static enum mw_status read_folds(const char *text, int64_t *out,
                                 struct mw_err *err)
{
    enum mw_status status = mw_int_parse(text, out, err);

    return status == MW_OK && *out < 2
               ? mw_fail(err, MW_EINPUT, "--folds %s: two or more", text)
               : status;
}

static void print_folds(struct mw_fit *f, const struct outputs *o)
{
    static const char *const what[] = {"rows", "cells"};

    for (int i = 0; i < 2; i++) {
        mw_fit_leave_folds(f, (size_t)o->folds, (uint64_t)o->seed, i == 1);
        printf("%lld folds of %s, seed %lld", (long long)o->folds, what[i],
               (long long)o->seed);
        mw_fit_print_errors(f);
        if (o->with_rows) {
            mw_fit_print_rows(f);
        }
    }
}

static bool writes(const struct outputs *o)
{
    return o->target != NULL || o->errors != NULL || o->doc != NULL ||
           o->plot != NULL;
}

static enum mw_status run(int argc, char **argv, struct mw_hwdb *db,
                          struct mw_validate *v, struct mw_err *err)
{
    struct outputs o = {0};
    struct mw_fit f = {0};
    enum mw_status status = MW_OK;

    for (int i = 1; i < argc && status == MW_OK; i++) {
        if (strcmp(argv[i], "--write") == 0 && i + 1 < argc) {
            o.target = argv[++i];
        } else if (strcmp(argv[i], "--rows") == 0) {
            o.with_rows = true;
        } else if (strcmp(argv[i], "--folds") == 0 && i + 1 < argc) {
            status = read_folds(argv[++i], &o.folds, err);
        } else if (strcmp(argv[i], "--seed") == 0 && i + 1 < argc) {
            status = mw_int_parse(argv[++i], &o.seed, err);
        } else if (strcmp(argv[i], "--plot") == 0 && i + 1 < argc) {
            o.plot = argv[++i];
        } else if (strcmp(argv[i], "--errors") == 0 && i + 1 < argc) {
            o.errors = argv[++i];
        } else if (strcmp(argv[i], "--doc") == 0 && i + 2 < argc) {
            o.template = argv[++i];
            o.doc = argv[++i];
        } else {
            status = mw_validate_add(v, argv[i], err);
        }
    }
    if (status == MW_OK && o.folds > 0 && writes(&o)) {
        status = mw_fail(err, MW_EINPUT, "--folds writes nothing");
    }
    if (status == MW_OK) {
        status = mw_fit_init(&f, db, v, err);
    }
    if (status == MW_OK) {
        mw_fit_run(&f);
    }
    if (status == MW_OK && o.folds > 0) {
        print_folds(&f, &o);
    } else if (status == MW_OK) {
        mw_fit_leave_out(&f);
        mw_fit_print(&f);
        if (o.with_rows) {
            mw_fit_print_rows(&f);
        }
        status = with_memory(&f, &o, err);
    }
    mw_fit_release(&f);
    return status;
}

int main(int argc, char **argv)
{
    return mw_fit_program(argc, argv,
                          "fit_step FILE.csv... [--write CONSTANTS.csv] "
                          "[--errors MODEL_ERROR.csv] [--doc TEMPLATE OUT.md] "
                          "[--plot FILE.svg] [--rows] [--folds N] [--seed S]",
                          run);
}
