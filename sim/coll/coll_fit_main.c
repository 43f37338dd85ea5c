/*
 * coll_fit FILE... [-o coll_fit.csv] [--harness coll_harness.csv]
 *          [--kernels coll_kernels.csv]
 *          [--by unit|file|shape] [--event] [--doc FILE.md]
 *
 * Fits the corrections of the collective model on tables of measurements, and
 * prints per campaign the median |error| of NCCL's own model, of the fitted
 * one, fitted with and without what `--by` leaves out together (a campaign;
 * a whole file; a machine's operation with so many ranks), and with --event of
 * the event form (fitted with it), over all sizes and over messages of 1 MiB
 * and more; then the medians of the classes. --doc: the tables go between the
 * two marks of that page instead.
 */
#include "base/file.h"
#include "sim/coll/coll_fit_report.h"

#include <stdio.h>
#include <string.h>

static int fail(const struct mw_err *err)
{
    fprintf(stderr, "coll_fit: %s\n", err->text);
    return mw_status_exit(err->status);
}

struct options {
    const char *fit_path, *harness_path, *kernels_path, *doc_path;
    struct coll_fit_report_opts report;
};

static enum mw_status read_options(int argc, char **argv, struct options *o,
                                   struct mw_coll_rows *rows,
                                   struct mw_err *err)
{
    for (int i = 1; i < argc; i++) {
        bool has_value = i + 1 < argc;
        if (strcmp(argv[i], "-o") == 0 && has_value) {
            o->fit_path = argv[++i];
        } else if (strcmp(argv[i], "--harness") == 0 && has_value) {
            o->harness_path = argv[++i];
        } else if (strcmp(argv[i], "--kernels") == 0 && has_value) {
            o->kernels_path = argv[++i];
        } else if (strcmp(argv[i], "--by") == 0 && has_value) {
            if (!mw_coll_group_find(argv[++i], &o->report.by)) {
                return mw_fail(err, MW_EUSAGE, "--by %s; unit, file or shape",
                               argv[i]);
            }
        } else if (strcmp(argv[i], "--event") == 0) {
            o->report.with_event = true;
        } else if (strcmp(argv[i], "--doc") == 0 && has_value) {
            o->doc_path = argv[++i];
        } else {
            enum mw_status s = mw_coll_rows_load(argv[i], rows, err);
            if (s != MW_OK) {
                return s;
            }
        }
    }
    return MW_OK;
}

enum { DOC_BYTES_MAX = 1 << 22 };
static const char first_mark[] = "<!-- coll_fit -->",
                  last_mark[] = "<!-- /coll_fit -->";

/* The page again, with the report between its marks. */
static enum mw_status write_doc(const char *path, struct mw_coll_atlas *atlas,
                                const struct mw_coll_rows *rows,
                                const struct mw_coll_learn *learn,
                                struct coll_fit_report_opts *opts,
                                struct mw_err *err)
{
    struct mw_outfile o;
    char *text = NULL;
    size_t len = 0;
    enum mw_status s = mw_file_read(path, DOC_BYTES_MAX, &text, &len, err);
    if (s != MW_OK) {
        return s;
    }
    char *first = strstr(text, first_mark);
    char *last = first ? strstr(first, last_mark) : NULL;
    if (!last) {
        mw_free(text);
        return mw_fail(err, MW_EINPUT, "%s: no marks %s and %s", path,
                       first_mark, last_mark);
    }
    s = mw_outfile_open(&o, path, err);
    if (s == MW_OK) {
        fprintf(o.f, "%.*s%s\n\n", (int)(first - text), text, first_mark);
        opts->out = o.f;
        opts->is_markdown = true;
        coll_fit_report(atlas, rows, learn, opts);
        fprintf(o.f, "\n%s", last);
        s = mw_outfile_commit(&o, err);
    }
    mw_free(text);
    return s;
}

int main(int argc, char **argv)
{
    struct mw_err err = {.status = MW_OK};
    struct mw_hwdb *db = NULL;
    struct mw_coll_rows rows = {{NULL, 0, 0}, {NULL, 0, 0}};
    struct options o = {.report = {.by = MW_COLL_BY_UNIT, .out = stdout}};
    if (mw_hwdb_load(NULL, &db, &err) != MW_OK ||
        read_options(argc, argv, &o, &rows, &err) != MW_OK) {
        return fail(&err);
    }
    struct mw_coll_atlas *atlas = mw_coll_atlas_new(db, NULL);
    struct mw_coll_learn *learn = mw_coll_learn_rows(atlas, &rows);
    struct mw_coll_fit fit;
    mw_coll_learn_table(learn, o.report.by, NULL, &fit);
    enum mw_status s = MW_OK;
    if (o.fit_path) {
        s = mw_coll_fit_write(&fit, o.fit_path, &err);
    }
    if (s == MW_OK && o.harness_path) {
        s = mw_coll_overhead_write(&fit, o.harness_path, &err);
    }
    if (s == MW_OK && o.kernels_path) {
        s = mw_coll_engine_write(&fit, o.kernels_path, &err);
    }
    fprintf(stderr, "%zu rows, %zu knots, %zu overheads\n", rows.row.n,
            fit.knot.n, fit.overhead.n);
    mw_coll_fit_release(&fit);
    if (s == MW_OK && o.doc_path) {
        s = write_doc(o.doc_path, atlas, &rows, learn, &o.report, &err);
    } else if (s == MW_OK) {
        coll_fit_report(atlas, &rows, learn, &o.report);
    }
    mw_coll_learn_free(learn);
    mw_coll_atlas_free(atlas);
    mw_coll_rows_release(&rows);
    mw_hwdb_free(db);
    return s == MW_OK ? 0 : fail(&err);
}
