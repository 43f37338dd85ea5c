/*
 * import_kernels: public kernel measurements -> data/kernels/DEVICE.csv.
 *
 *   import_kernels MEASUREMENTS OUT [DOC]
 *
 * MEASUREMENTS is a folder with the files that import_read.c names (columns
 * as there; a `split` column other than "calibrate" keeps a row out), OUT the
 * folder of the tables, DOC a Markdown file whose generated part is replaced.
 * Prints each set with its errors. Deterministic.
 */
#include "hwdb/import/import_int.h"

#include <stdio.h>
#include <string.h>

/* What leaving out a row may cost: below the scatter of one benchmark run
 * twice (5 %). */
static const double tolerance = 0.03;

static void print_set(const struct mw_import *in, const struct mw_import_set *s)
{
    const struct mw_sample *first = &in->samples.v[s->first];
    printf("%-16s %-16s %-5s %4zu rows, %4zu kept; thinned p90 %.3f max %.3f; "
           "left out %.3f %.3f; new width %.3f %.3f\n",
           first->gpu->slug, first->op, first->dtype, s->n, s->n_kept,
           s->thinned.p90, s->thinned.max, s->left_out.median, s->left_out.p90,
           s->new_width.median, s->new_width.p90);
}

static enum mw_status run(struct mw_import *in, const char *out_dir,
                          const char *doc, struct mw_err *err)
{
    struct mw_import_set *sets = NULL;
    enum mw_status status = mw_import_read(in, err);
    if (status != MW_OK) {
        return status;
    }
    size_t n_merged = mw_import_sort(in);
    mw_import_take_quantise_off(in);
    size_t n = mw_import_cut_sets(in, &sets);
    for (size_t i = 0; status == MW_OK && i < n; i++) {
        status = mw_import_thin(in, &sets[i], tolerance, err);
        if (status == MW_OK) {
            print_set(in, &sets[i]);
        }
    }
    printf("%zu rows of the same shape merged\n", n_merged);
    if (status == MW_OK) {
        status = mw_import_write_tables(in, sets, n, out_dir, err);
    }
    if (status == MW_OK && doc != NULL) {
        status = mw_import_write_doc(in, sets, n, tolerance, doc, err);
    }
    return status;
}

int main(int argc, char **argv)
{
    struct mw_err err = {0};
    struct mw_hwdb *db = NULL;
    struct mw_arena arena;
    if (argc < 3 || argc > 4) {
        fprintf(stderr, "usage: import_kernels MEASUREMENTS OUT [DOC]\n");
        return mw_status_exit(MW_EUSAGE);
    }
    mw_arena_init(&arena);
    enum mw_status status = mw_hwdb_load(NULL, &db, &err);
    struct mw_import in = {.db = db, .dir = argv[1], .arena = &arena};
    if (status == MW_OK) {
        status = run(&in, argv[2], argc == 4 ? argv[3] : NULL, &err);
    }
    if (status != MW_OK) {
        fprintf(stderr, "import_kernels: %s\n", err.text);
    }
    mw_array_release(&in.samples);
    mw_array_release(&in.quantise);
    mw_hwdb_free(db);
    mw_arena_release(&arena);
    return mw_status_exit(status);
}
