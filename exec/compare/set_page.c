/*
 * A set as one page: the summary, predicted against measured as a scatter plot,
 * the table, errors by kind of work, and for each plan the two timelines on one
 * time axis with the first pass that deviates.
 */
#include "exec/compare/set_run.h"

#include "plots/page.h"

#include <math.h>
#include <string.h>

static void add_summary(struct mw_page *page, const struct mw_set *s,
                        const struct mw_set_score *score)
{
    char lacks[MW_SET_TEXT_MAX];
    const char *missing = mw_set_score_lacks(score, lacks);
    mw_page_text(page,
                 "%d plans: mean error %.1f %%, median %.1f %%, bias %+.1f %%; "
                 "%d past %g %%; worst %+.1f %% (%s).",
                 score->n_plans, 100 * score->mean_error,
                 100 * score->median_error, 100 * score->bias, score->n_past,
                 100 * MW_SET_PAST,
                 100 * mw_set_plan_error(&s->plans[score->worst]),
                 s->plans[score->worst].name);
    mw_page_text(page,
                 "%d of %d pairs of plans of one scenario that differ by more "
                 "than %g %% and by %d spreads are ordered right.",
                 score->n_right, score->n_pairs, 100 * MW_SET_APART,
                 MW_SET_SPREADS);
    mw_page_text(page, "%s%s.",
                 missing ? "Not good enough: "
                         : "All that is asked of a set "
                           "holds",
                 missing ? missing : "");
    mw_page_text(page, "%s.", mw_compare_clock_note(&s->plans[0].comparison));
}

/* Scenarios in the order of their first plan: colours. */
static int series_of(const struct mw_set *s, int plan)
{
    int n = 0;
    for (int i = 0; i < plan; i++) {
        bool is_first = true;
        for (int j = 0; j < i && is_first; j++) {
            is_first = strcmp(s->plans[j].scenario, s->plans[i].scenario) != 0;
        }
        if (strcmp(s->plans[i].scenario, s->plans[plan].scenario) == 0) {
            return is_first ? n : series_of(s, i);
        }
        n += is_first;
    }
    return n;
}

static void add_scatter(struct mw_page *page, const struct mw_set *s)
{
    struct mw_page_point *points = mw_calloc((size_t)s->n, sizeof *points);
    for (int i = 0; i < s->n; i++) {
        points[i] = (struct mw_page_point){s->plans[i].measured_s,
                                           s->plans[i].predicted_s,
                                           s->plans[i].name, series_of(s, i)};
    }
    mw_page_scatter(page, "measured step", "predicted step", MW_SET_PAST,
                    points, (size_t)s->n);
    mw_free(points);
    mw_page_text(page,
                 "A colour for each scenario; the dashed lines are %g %% "
                 "off.",
                 100 * MW_SET_PAST);
}

static void add_plans(struct mw_page *page, const struct mw_set *s)
{
    static const char *const columns[] = {"plan",    "scenario",   ">ranks",
                                          "layout",  ">predicted", ">measured",
                                          ">spread", ">error"};
    mw_page_table_begin(page, columns, sizeof columns / sizeof *columns);
    for (int i = 0; i < s->n; i++) {
        const struct mw_set_plan *p = &s->plans[i];
        char text[MW_FMT_MAX];
        mw_page_table_row(page);
        mw_page_table_cell(page, "%s", p->name);
        mw_page_table_cell(page, "%s", p->scenario);
        mw_page_table_cell(page, "%d", p->n_ranks);
        mw_page_table_cell(page, "%s", p->layout);
        mw_page_table_cell(page, "%s", mw_fmt_seconds(p->predicted_s, text));
        mw_page_table_cell(page, "%s", mw_fmt_seconds(p->measured_s, text));
        mw_page_table_cell(page, "%.1f %%", 100 * p->spread_s / p->measured_s);
        mw_page_table_cell(page, "%+.1f %%", 100 * mw_set_plan_error(p));
    }
    mw_page_table_end(page);
}

static void add_kinds(struct mw_page *page, const struct mw_set_score *score)
{
    static const char *const columns[] = {"kind", ">share", ">bias",
                                          ">mean error"};
    mw_page_table_begin(page, columns, sizeof columns / sizeof *columns);
    for (int k = 0; k < MW_SPAN_KIND_COUNT; k++) {
        if (!(score->kind[k].share > 0) && !(score->kind[k].error > 0)) {
            continue;
        }
        mw_page_table_row(page);
        mw_page_table_cell(page, "%s", mw_span_kind_name((enum mw_span_kind)k));
        mw_page_table_cell(page, "%.1f %%", 100 * score->kind[k].share);
        mw_page_table_cell(page, "%+.2f %%", 100 * score->kind[k].bias);
        mw_page_table_cell(page, "%.2f %%", 100 * score->kind[k].error);
    }
    mw_page_table_end(page);
}

static void add_stages(struct mw_page *page, const struct mw_comparison *c)
{
    static const char *const columns[] = {"stage", ">predicted busy",
                                          ">measured busy", ">error"};
    mw_page_table_begin(page, columns, sizeof columns / sizeof *columns);
    for (size_t i = 0; i < c->stages.n; i++) {
        const struct mw_compare_stage *stage = &c->stages.v[i];
        char text[MW_FMT_MAX];
        mw_page_table_row(page);
        mw_page_table_cell(page, "%d", stage->stage);
        mw_page_table_cell(page, "%s",
                           mw_fmt_seconds(stage->busy.simulated_s, text));
        mw_page_table_cell(page, "%s",
                           mw_fmt_seconds(stage->busy.measured_s, text));
        mw_page_table_cell(page, "%+.1f %%",
                           100 * mw_compare_error(&stage->busy));
    }
    mw_page_table_end(page);
}

static void add_plan(struct mw_page *page, struct mw_set_plan *p)
{
    char headline[MW_COMPARE_HEADLINE_MAX], text[MW_DEVIATION_TEXT_MAX];
    char summary[512];
    const struct mw_plot_panel panels[2] = {{&p->simulated, "predicted"},
                                            {&p->measured, "measured"}};
    snprintf(summary, sizeof summary, "%s: %s", p->name,
             mw_compare_headline(&p->comparison, headline));
    mw_page_fold_begin(page, summary);
    mw_page_text(page, "%s", p->layout);
    mw_page_text(page, "Beyond %g %% of the step: %s.",
                 100 * MW_COMPARE_TOLERANCE,
                 mw_deviation_text(&p->comparison.deviation, text));
    mw_page_gantt(page, panels, 2);
    add_stages(page, &p->comparison);
    mw_page_fold_end(page);
}

enum mw_status mw_set_page(struct mw_set *s, const struct mw_set_score *score,
                           const char *path, struct mw_err *err)
{
    struct mw_page page = {.n_pictures = 0};
    mw_page_begin(&page, "Predicted and measured");
    add_summary(&page, s, score);
    add_scatter(&page, s);
    mw_page_heading(&page, "Plans");
    add_plans(&page, s);
    mw_page_heading(&page, "Errors by kind of work, of the measured step");
    add_kinds(&page, score);
    mw_page_heading(&page, "Timelines");
    for (int i = 0; i < s->n; i++) {
        add_plan(&page, &s->plans[i]);
    }
    return mw_page_save(&page, path, err);
}
