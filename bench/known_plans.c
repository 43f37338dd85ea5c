/*
 * Known good answers: each published layout of scenarios/published beside what
 * was measured and beside our best, as Markdown (docs/known-plans.md).
 *
 *   known_plans [DIR [HWDB]]
 *
 * "Then" is the search with the stack and the features of that software and
 * date, "today" with the framework's of now. A gap of more than 5 % is
 * accounted for by kind of exposed time; the terms sum to it.
 */
#include "base/log.h"
#include "planner/published.h"
#include "planner/why.h"
#include "sim/coll/coll_library.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { ROWS_MAX = 64 };

struct line {
    const struct mw_published *row;
    struct mw_published_case c;
    double then_s, published_today_s, today_s;
    struct mw_comparison gap_then, gap_today;
    char best_then[MW_PLAN_TEXT_MAX], best_today[MW_PLAN_TEXT_MAX];
    bool is_proved_then, is_proved_today;
};

static const double GAP = 0.05;

/* The best plan now, compared with the published layout. */
static enum mw_status compare_best(struct line *l, double *out_best_s,
                                   struct mw_comparison *gap, char *text,
                                   bool *out_proved, struct mw_err *err)
{
    struct mw_search_result r;
    struct mw_search_opts opts = l->c.then;

    opts.is_quiet = true;
    opts.top = 1;
    opts.jobs = 1;
    enum mw_status status =
        mw_search(&l->c.scenario, &l->c.ctx, &opts, &r, err);

    if (status == MW_OK) {
        *out_best_s = r.plans[0].step_time_s;
        *out_proved = r.proved_optimal;
        mw_layout_text(&r.plans[0].layout, text);
        status = mw_plans_compare(&l->c.scenario, &l->c.ctx, &r.plans[0],
                                  &l->c.published, gap, err);
    }
    mw_search_result_release(&r);
    return status;
}

static enum mw_status fill(struct line *l, const struct mw_hwdb *db,
                           const char *dir, struct mw_err *err)
{
    enum mw_status status = mw_published_open(db, dir, l->row, &l->c, err);

    if (status == MW_OK) {
        status = compare_best(l, &l->then_s, &l->gap_then, l->best_then,
                              &l->is_proved_then, err);
    }
    return status;
}

static enum mw_status fill_today(struct line *l, struct mw_err *err)
{
    enum mw_status status = mw_published_today(&l->c, err);

    if (status == MW_OK) {
        l->published_today_s = l->c.published.step_time_s;
        status = compare_best(l, &l->today_s, &l->gap_today, l->best_today,
                              &l->is_proved_today, err);
    }
    return status;
}

static void print_head(void)
{
    printf("# Known good answers\n\n"
           "Made by `ninja known-plans`: the published layouts of "
           "`scenarios/published`, what\nwas measured, what we predict for "
           "them, and our best plan under the framework's\nrules: with the "
           "software and features of then, and with today's. A best plan\n"
           "marked * is proved best of the space searched.\n\n"
           "| layout | GPUs | measured | predicted | error in time | memory | "
           "best then | faster | "
           "published today | best today | faster |\n"
           "|---|--:|--:|--:|--:|---|--:|--:|--:|--:|--:|\n");
}

static const char *unit_of(const struct mw_published *row)
{
    return strcmp(row->measure, "step_s") == 0 ? "s" : "TFLOP/s";
}

static void print_line(const struct line *l, double published_then_s)
{
    const struct mw_published *p = l->row;
    double gib = l->c.needed_bytes / (1 << 30);

    printf("| %s | %d | %.4g %s | %.4g | %+.1f %% | %.1f GiB%s%s%s%s | "
           "%.4g s%s | %.1f %% | %.4g s | %.4g s%s | %.1f %% |\n",
           p->scenario, l->c.ctx.n_nodes * l->c.ctx.gpus_per_node, p->value,
           unit_of(p), l->c.predicted, 100 * l->c.error, gib,
           l->c.fits ? "" : ", too much", *p->fits_with ? " (" : "",
           p->fits_with, *p->fits_with ? ")" : "", l->then_s,
           l->is_proved_then ? "*" : "",
           100 * (published_then_s / l->then_s - 1), l->published_today_s,
           l->today_s, l->is_proved_today ? "*" : "",
           100 * (l->published_today_s / l->today_s - 1));
}

static void print_gap(const char *name, const char *when, const char *best,
                      const struct mw_comparison *c)
{
    double gap = c->other_s / c->best_s - 1, sum = 0;

    if (gap <= GAP) {
        return;
    }
    printf("- %s, %s: %s is %.1f %% faster:", name, when, best, 100 * gap);
    for (int i = 0; i < c->n_time; i++) {
        double d = (c->time[i].other - c->time[i].best) / c->best_s;

        sum += d;
        if (fabs(d) >= 0.0005) {
            printf("%s %s %+.1f", i > 0 ? "," : "", c->time[i].name, 100 * d);
        }
    }
    printf("; together %+.1f %%\n", 100 * sum);
}

static int report(const char *dir, const struct mw_published_rows *rows,
                  const struct mw_hwdb *db, struct line *line)
{
    struct mw_err err = {0};
    int n_wrong = 0;

    print_head();
    for (size_t i = 0; i < rows->n && i < ROWS_MAX; i++) {
        line[i].row = &rows->v[i];
        if (fill(&line[i], db, dir, &err) != MW_OK) {
            fprintf(stderr, "known_plans: %s: %s\n", rows->v[i].scenario,
                    err.text);
            return 1;
        }
        double then_s = line[i].c.published.step_time_s;

        if (fill_today(&line[i], &err) != MW_OK) {
            fprintf(stderr, "known_plans: %s: %s\n", rows->v[i].scenario,
                    err.text);
            return 1;
        }
        print_line(&line[i], then_s);
        fflush(stdout);
        n_wrong += line[i].c.broken != NULL || !line[i].c.fits;
        mw_published_close(&line[i].c);
    }
    printf("\nWhere our best is more than 5 %% faster, by kind of exposed time "
           "(percent of the\nbest step):\n\n");
    for (size_t i = 0; i < rows->n && i < ROWS_MAX; i++) {
        print_gap(rows->v[i].scenario, "then", line[i].best_then,
                  &line[i].gap_then);
        print_gap(rows->v[i].scenario, "today", line[i].best_today,
                  &line[i].gap_today);
    }
    return n_wrong > 0;
}

int main(int argc, char **argv)
{
    struct mw_published_rows rows;
    struct mw_hwdb *db;
    struct mw_err err = {0};
    const char *dir = argc > 1 ? argv[1] : MW_SCENARIOS "/published";

    mw_log_setup("known_plans", true);
    if (mw_hwdb_load(argc > 2 ? argv[2] : NULL, &db, &err) != MW_OK ||
        mw_published_load(dir, &rows, &err) != MW_OK) {
        fprintf(stderr, "known_plans: %s\n", err.text);
        return 3;
    }
    mw_coll_library_lend(db);
    struct line *line = mw_calloc(ROWS_MAX, sizeof *line);
    int status = report(dir, &rows, db, line);

    mw_free(line);
    mw_published_release(&rows);
    mw_hwdb_free(db);
    return status;
}
