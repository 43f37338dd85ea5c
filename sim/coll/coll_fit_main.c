/*
 * coll_fit FILE... [--event] [-o coll_fit.csv]: fits the ratios of the
 * collective model on tables of measurements, and prints per unit the median
 * |error| of NCCL's own model, of the fitted one, fitted with and without that
 * unit (leave-one-file-out), and with --event of the event form (fitted with
 * it), over all sizes and over messages of 1 MiB and more.
 */
#include "sim/coll/coll_fit.h"

#include "base/stats.h"

#include <stdio.h>
#include <string.h>

static int fail(const struct mw_err *err)
{
    fprintf(stderr, "coll_fit: %s\n", err->text);
    return mw_status_exit(err->status);
}

static void print_scores(struct mw_coll_atlas *atlas,
                         const struct mw_coll_rows *rows, bool with_event)
{
    struct mw_coll_score *nccl = NULL, *in = NULL, *out = NULL, *event = NULL;
    struct mw_coll_fit fit;
    mw_coll_fit_make(atlas, rows, NULL, &fit);
    size_t n = mw_coll_score_units(atlas, rows, MW_COLL_NCCL, false, &nccl);
    mw_coll_atlas_set_fit(atlas, &fit);
    mw_coll_fit_release(&fit);
    mw_coll_score_units(atlas, rows, MW_COLL_FIT, false, &in);
    if (with_event) {
        mw_coll_score_units(atlas, rows, MW_COLL_EVENT, false, &event);
    }
    mw_coll_score_units(atlas, rows, MW_COLL_FIT, true, &out);
    printf("%-58s %5s %6s | %17s | %17s | %17s | %17s\n", "", "", "",
           "nccl all/>=1M", "fitted", "left out", with_event ? "event" : "");
    double one[512], one_big[512], more[512], more_big[512];
    size_t k1 = 0, kb1 = 0, k2 = 0, kb2 = 0;
    for (size_t i = 0; i < n && i < 512; i++) {
        const struct mw_coll_score *cols[] = {&nccl[i], &in[i], &out[i],
                                              event ? &event[i] : NULL};
        printf("%-58s %5d %6zu", nccl[i].unit, nccl[i].n_nodes, nccl[i].rows);
        for (size_t c = 0; c < 4 && cols[c]; c++) {
            printf(" | %7.1f%% %7.1f%%", 100 * cols[c]->median_ape,
                   100 * cols[c]->big_median_ape);
        }
        printf("\n");
        if (nccl[i].n_nodes == 1) {
            one[k1++] = out[i].median_ape;
            one_big[kb1] = out[i].big_median_ape;
            kb1 += out[i].big_rows > 0;
        } else {
            more[k2++] = out[i].median_ape;
            more_big[kb2] = out[i].big_median_ape;
            kb2 += out[i].big_rows > 0;
        }
    }
    printf("median over units, left out: one node %.1f%% (>= 1 MiB %.1f%%), "
           "several %.1f%% (%.1f%%)\n",
           100 * mw_median(one, k1), 100 * mw_median(one_big, kb1),
           100 * mw_median(more, k2), 100 * mw_median(more_big, kb2));
    mw_free(nccl);
    mw_free(in);
    mw_free(out);
    mw_free(event);
}

int main(int argc, char **argv)
{
    struct mw_err err = {.status = MW_OK};
    struct mw_hwdb *db = NULL;
    struct mw_coll_rows rows = {{NULL, 0, 0}};
    const char *path = NULL;
    bool with_event = false;
    if (mw_hwdb_load(NULL, &db, &err) != MW_OK) {
        return fail(&err);
    }
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "-o") == 0 && i + 1 < argc) {
            path = argv[++i];
        } else if (strcmp(argv[i], "--event") == 0) {
            with_event = true;
        } else if (mw_coll_rows_load(argv[i], &rows, &err) != MW_OK) {
            return fail(&err);
        }
    }
    struct mw_coll_atlas *atlas = mw_coll_atlas_new(db, NULL);
    struct mw_coll_fit fit;
    mw_coll_fit_make(atlas, &rows, NULL, &fit);
    printf("%zu rows, %zu knots\n", rows.row.n, fit.knot.n);
    if (path && mw_coll_fit_write(&fit, path, &err) != MW_OK) {
        return fail(&err);
    }
    mw_coll_fit_release(&fit);
    print_scores(atlas, &rows, with_event);
    mw_coll_atlas_free(atlas);
    mw_coll_rows_release(&rows);
    mw_hwdb_free(db);
    return 0;
}
