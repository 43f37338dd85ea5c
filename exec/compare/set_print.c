/* A set as tables and as JSON. */
#include "exec/compare/set.h"

#include "base/table.h"

#include <math.h>

static void print_plans(const struct mw_set_plan *plans, int n, FILE *f)
{
    static const char *const columns[] = {
        "plan",         "scenario",    "ranks",  "layout",
        "predicted ms", "measured ms", "spread", "error"};
    struct mw_table *t = mw_table_new();

    for (size_t i = 0; i < sizeof columns / sizeof *columns; i++) {
        mw_table_col(t, columns[i], i >= 4 || i == 2);
    }
    for (int i = 0; i < n; i++) {
        const struct mw_set_plan *p = &plans[i];

        mw_table_row(t);
        mw_table_cell(t, "%s", p->name);
        mw_table_cell(t, "%s", p->scenario);
        mw_table_cell(t, "%d", p->n_ranks);
        mw_table_cell(t, "%s", p->layout);
        mw_table_cell(t, "%.2f", 1e3 * p->predicted_s);
        mw_table_cell(t, "%.2f", 1e3 * p->measured_s);
        mw_table_cell(t, "%.1f %%", 100 * p->spread_s / p->measured_s);
        mw_table_cell(t, "%+.1f %%", 100 * mw_set_plan_error(p));
    }
    mw_table_print(t, f);
    mw_table_free(t);
}

static void print_kinds(const struct mw_set_score *s, FILE *f)
{
    struct mw_table *t = mw_table_new();

    fprintf(f, "\nExposed time by kind, of the measured step, mean over "
               "plans:\n");
    mw_table_col(t, "kind", false);
    mw_table_col(t, "share", true);
    mw_table_col(t, "bias", true);
    mw_table_col(t, "mean error", true);
    for (int k = 0; k < MW_SPAN_KIND_COUNT; k++) {
        if (s->kind[k].share > 0 || s->kind[k].error > 0) {
            mw_table_row(t);
            mw_table_cell(t, "%s", mw_span_kind_name((enum mw_span_kind)k));
            mw_table_cell(t, "%.1f %%", 100 * s->kind[k].share);
            mw_table_cell(t, "%+.2f %%", 100 * s->kind[k].bias);
            mw_table_cell(t, "%.2f %%", 100 * s->kind[k].error);
        }
    }
    mw_table_print(t, f);
    mw_table_free(t);
}

static void print_summary(const struct mw_set_plan *plans,
                          const struct mw_set_score *s, FILE *f)
{
    fprintf(f,
            "\n%d plans: mean error %.1f %%, median %.1f %%, bias %+.1f "
            "%%, worst %+.1f %% (%s), %d past %g %%\n",
            s->n_plans, 100 * s->mean_error, 100 * s->median_error,
            100 * s->bias, 100 * mw_set_plan_error(&plans[s->worst]),
            plans[s->worst].name, s->n_past, 100 * MW_SET_PAST);
    if (s->n_pairs == 0) {
        fprintf(f, "no pair of plans differs enough to be ordered\n");
        return;
    }
    fprintf(f,
            "%d of %d pairs that differ by more than %g %% and %d spreads "
            "are ordered right (%.1f %%)\n",
            s->n_right, s->n_pairs, 100 * MW_SET_APART, MW_SET_SPREADS,
            100 * s->order_rate);
    for (size_t i = 0; i < s->wrong.n; i++) {
        fprintf(f, "  not: %s is faster than %s\n", plans[s->wrong.v[i].a].name,
                plans[s->wrong.v[i].b].name);
    }
}

static void print_deviations(const struct mw_set_plan *plans, int n, FILE *f)
{
    char text[MW_DEVIATION_TEXT_MAX];

    fprintf(f, "\nWhere the timelines part by more than %g %% of the step:\n",
            100 * MW_COMPARE_TOLERANCE);
    for (int i = 0; i < n; i++) {
        fprintf(f, "  %s: %s\n", plans[i].name,
                mw_deviation_text(&plans[i].comparison.deviation, text));
    }
}

void mw_set_print(const struct mw_set_plan *plans, const struct mw_set_score *s,
                  FILE *f)
{
    print_plans(plans, s->n_plans, f);
    print_kinds(s, f);
    print_deviations(plans, s->n_plans, f);
    print_summary(plans, s, f);
    fprintf(f, "(%s)\n", mw_compare_clock_note(&plans[0].comparison));
}

/* ---- JSON ------------------------------------------------------------------
 */
static json_t *plan_json(const struct mw_set_plan *p)
{
    json_t *o = json_object(), *whole = mw_compare_json(&p->comparison);
    static const char *const kept[] = {"by_kind", "by_stage",
                                       "first_deviation"};

    mw_json_set_str(o, "name", p->name);
    mw_json_set_str(o, "scenario", p->scenario);
    mw_json_set_str(o, "layout", p->layout);
    mw_json_set_int(o, "ranks", p->n_ranks);
    mw_json_set_real(o, "predicted_s", p->predicted_s);
    mw_json_set_real(o, "measured_s", p->measured_s);
    mw_json_set_real(o, "error", mw_set_plan_error(p));
    mw_json_set_real(o, "spread_s", p->spread_s);
    mw_json_set_real(o, "wall_s", p->wall_s);
    for (size_t i = 0; i < sizeof kept / sizeof *kept; i++) {
        mw_json_set(o, kept[i], json_incref(json_object_get(whole, kept[i])));
    }
    json_decref(whole);
    return o;
}

static json_t *kinds_json(const struct mw_set_score *s)
{
    json_t *kinds = json_object();

    for (int k = 0; k < MW_SPAN_KIND_COUNT; k++) {
        json_t *o = json_object();

        mw_json_set_real(o, "share", s->kind[k].share);
        mw_json_set_real(o, "bias", s->kind[k].bias);
        mw_json_set_real(o, "error", s->kind[k].error);
        mw_json_set(kinds, mw_span_kind_name((enum mw_span_kind)k), o);
    }
    return kinds;
}

static json_t *wrong_json(const struct mw_set_plan *plans,
                          const struct mw_set_score *s)
{
    json_t *list = json_array();

    for (size_t i = 0; i < s->wrong.n; i++) {
        json_t *o = json_object();

        mw_json_set_str(o, "faster", plans[s->wrong.v[i].a].name);
        mw_json_set_str(o, "slower", plans[s->wrong.v[i].b].name);
        json_array_append_new(list, o);
    }
    return list;
}

json_t *mw_set_json(const struct mw_set_plan *plans,
                    const struct mw_set_score *s)
{
    json_t *o = json_object(), *list = json_array();

    mw_json_set_real(o, "mean_error", s->mean_error);
    mw_json_set_real(o, "median_error", s->median_error);
    mw_json_set_real(o, "bias", s->bias);
    mw_json_set_str(o, "worst", plans[s->worst].name);
    mw_json_set_int(o, "past", s->n_past);
    mw_json_set_int(o, "pairs", s->n_pairs);
    mw_json_set_int(o, "pairs_right", s->n_right);
    mw_json_set_real(o, "order_rate", s->order_rate);
    mw_json_set(o, "wrong", wrong_json(plans, s));
    mw_json_set_str(o, "clock", plans[0].comparison.clock);
    mw_json_set_str(o, "clock_note",
                    mw_compare_clock_note(&plans[0].comparison));
    mw_json_set(o, "by_kind", kinds_json(s));
    for (int i = 0; i < s->n_plans; i++) {
        json_array_append_new(list, plan_json(&plans[i]));
    }
    mw_json_set(o, "plans", list);
    return o;
}
