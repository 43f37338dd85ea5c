/* What coll_fit prints: campaigns, classes, small all-to-all. */
#include "sim/coll/coll_fit_report.h"

#include <stdio.h>

enum { COLUMNS = 4 };

struct report {
    const struct mw_coll_rows *rows;
    enum mw_coll_class *cls;
    double *time_s[COLUMNS]; /* nccl, fitted, left out, event */
    int n_columns;
    bool is_markdown;
    FILE *out;
};

static void print_head(const struct report *r, const char *first)
{
    static const char *const names[COLUMNS] = {"nccl", "fitted", "left out",
                                               "event"};
    if (r->is_markdown) {
        fprintf(r->out, "| %s | class | nodes | rows |", first);
        for (int c = 0; c < r->n_columns; c++) {
            fprintf(r->out, " %s |", names[c]);
        }
        fprintf(r->out, "\n|---|---|---|---|");
        for (int c = 0; c < r->n_columns; c++) {
            fprintf(r->out, "---|");
        }
        fprintf(r->out, "\n");
        return;
    }
    fprintf(r->out, "%-58s %-24s %5s %6s", first, "class", "nodes", "rows");
    for (int c = 0; c < r->n_columns; c++) {
        fprintf(r->out, " | %15s", names[c]);
    }
    fprintf(r->out, "\n");
}

static void print_cell(const struct report *r, const struct mw_coll_error *e)
{
    char big[16] = "-";
    if (e->big_rows > 0) {
        snprintf(big, sizeof big, "%.1f", 100 * e->big_median);
    }
    fprintf(r->out, r->is_markdown ? " %.1f / %s |" : " | %6.1f / %6s",
            100 * e->median, big);
}

static void print_units(const struct report *r)
{
    struct mw_coll_score *v[COLUMNS] = {NULL};
    size_t n = 0, of_nccl = 0, good = 0, worse = 0;
    for (int c = 0; c < r->n_columns; c++) {
        n = mw_coll_score_units(r->rows, r->cls, r->time_s[c], &v[c]);
    }
    print_head(r, "campaign");
    for (size_t i = 0; i < n; i++) {
        const struct mw_coll_score *u = &v[0][i];
        fprintf(r->out,
                r->is_markdown ? "| %s | %s | %d | %zu |"
                               : "%-58s %-24s %5d %6zu",
                u->unit, mw_coll_class_name(u->cls), u->n_nodes, u->error.rows);
        for (int c = 0; c < r->n_columns; c++) {
            print_cell(r, &v[c][i].error);
        }
        fprintf(r->out, "\n");
        if (u->cls == MW_COLL_ENGINE) {
            continue;
        }
        of_nccl++;
        good += v[2][i].error.median <= u->error.median;
        worse += v[2][i].error.median > u->error.median + .02;
    }
    fprintf(r->out,
            "\nLeft out, the fit is at least as good as NCCL's own model in "
            "%zu of %zu campaigns, worse by more than 2 points in %zu.\n",
            good, of_nccl, worse);
    for (int c = 0; c < r->n_columns; c++) {
        mw_free(v[c]);
    }
}

static void print_classes(const struct report *r)
{
    struct mw_coll_class_score s[COLUMNS][MW_COLL_CLASSES];
    for (int c = 0; c < r->n_columns; c++) {
        mw_coll_score_classes(r->rows, r->cls, r->time_s[c], s[c]);
    }
    fprintf(r->out, "\n");
    print_head(r, "median over");
    for (int k = 0; k < MW_COLL_CLASSES; k++) {
        for (int over = 0; over < 2; over++) {
            const struct mw_coll_class_score *first = &s[0][k];
            size_t n = over ? first->rows.rows : first->units.rows;
            if (n == 0) {
                continue;
            }
            fprintf(r->out,
                    r->is_markdown ? "| %s | %s | | %zu |"
                                   : "%-58s %-24s       %6zu",
                    over ? "rows" : "campaigns",
                    mw_coll_class_name((enum mw_coll_class)k), n);
            for (int c = 0; c < r->n_columns; c++) {
                print_cell(r, over ? &s[c][k].rows : &s[c][k].units);
            }
            fprintf(r->out, "\n");
        }
    }
    size_t rows = 0, within = 0;
    mw_coll_small_all_to_all(r->rows, r->time_s[2], &rows, &within);
    fprintf(r->out,
            "\nAll-to-all below 64 KiB (not in the classes): %zu of %zu rows "
            "within a factor of 2, left out.\n",
            within, rows);
}

void coll_fit_report(struct mw_coll_atlas *atlas,
                     const struct mw_coll_rows *rows,
                     const struct mw_coll_learn *learn,
                     const struct coll_fit_report_opts *o)
{
    struct report r = {.rows = rows,
                       .n_columns = o->with_event ? 4 : 3,
                       .is_markdown = o->is_markdown,
                       .out = o->out};
    enum mw_coll_group by = o->by;
    struct mw_coll_fit fit;
    mw_coll_learn_table(learn, by, NULL, &fit);
    mw_coll_atlas_set_fit(atlas, &fit);
    r.cls = mw_calloc(rows->row.n + 1, sizeof *r.cls);
    for (int c = 0; c < COLUMNS; c++) {
        r.time_s[c] = mw_calloc(rows->row.n + 1, sizeof(double));
    }
    mw_coll_predict_rows(atlas, rows, MW_COLL_NCCL, NULL, by, r.time_s[0]);
    mw_coll_predict_rows(atlas, rows, MW_COLL_FIT, NULL, by, r.time_s[1]);
    if (o->with_event) {
        mw_coll_predict_rows(atlas, rows, MW_COLL_EVENT, NULL, by, r.time_s[3]);
    }
    mw_coll_classify(atlas, rows, &fit, by, r.cls);
    mw_coll_predict_rows(atlas, rows, MW_COLL_FIT, learn, by, r.time_s[2]);
    print_units(&r);
    print_classes(&r);
    mw_coll_fit_release(&fit);
    mw_free(r.cls);
    for (int c = 0; c < COLUMNS; c++) {
        mw_free(r.time_s[c]);
    }
}
