/*
 * A comparison as tables for people and as JSON for programs. All times of a
 * report are in one unit, chosen by the step time, so that columns compare at
 * a glance. Tables leave out kinds of work that neither side has.
 */
#include "exec/compare/compare.h"

#include "base/table.h"

#include <math.h>
#include <string.h>

struct unit {
    const char *name;
    double per_s;
};

static struct unit unit_for(const struct mw_comparison *c)
{
    double s = fmax(c->step.simulated_s, c->step.measured_s);
    return s >= 1      ? (struct unit){"s", 1}
           : s >= 1e-3 ? (struct unit){"ms", 1e3}
                       : (struct unit){"us", 1e6};
}

const char *mw_compare_headline(const struct mw_comparison *c,
                                char buf[MW_COMPARE_HEADLINE_MAX])
{
    char simulated[MW_FMT_MAX], measured[MW_FMT_MAX];
    snprintf(buf, MW_COMPARE_HEADLINE_MAX,
             "predicted %s, measured %s (%s clock), error %+.1f %%",
             mw_fmt_seconds(c->step.simulated_s, simulated),
             mw_fmt_seconds(c->step.measured_s, measured), c->clock,
             100 * c->error);
    return buf;
}

const char *mw_compare_clock_note(const struct mw_comparison *c)
{
    if (strcmp(c->clock, "virtual") == 0) {
        return "the virtual clock is the CPU time of the threads plus modelled "
               "communication: it tests compute, order and bubbles, not "
               "communication";
    }
    if (strcmp(c->clock, "wall") == 0) {
        return "the wall clock tests everything, but only on a quiet machine "
               "with no more ranks than cores";
    }
    return "no clock was kept: both sides are simulated";
}

/* ---- tables
 * ------------------------------------------------------------------------ */
static bool has_kind(const struct mw_comparison *c, int kind)
{
    bool has =
        c->by_kind[kind].simulated_s > 0 || c->by_kind[kind].measured_s > 0;
    for (size_t i = 0; i < c->stages.n && !has; i++) {
        const struct mw_compare_term *t = &c->stages.v[i].by_kind[kind];
        has = t->simulated_s > 0 || t->measured_s > 0;
    }
    return has;
}

static void error_cell(struct mw_table *table,
                       const struct mw_compare_term *term)
{
    double error = mw_compare_error(term);
    if (isfinite(error)) {
        mw_table_cell(table, "%+.1f %%", 100 * error);
    } else {
        mw_table_cell(table, "-");
    }
}

static void term_cells(struct mw_table *table, struct unit u,
                       const struct mw_compare_term *term)
{
    mw_table_cell(table, "%.3f", u.per_s * term->simulated_s);
    mw_table_cell(table, "%.3f", u.per_s * term->measured_s);
    mw_table_cell(table, "%+.3f", u.per_s * mw_compare_difference_s(term));
}

static void term_columns(struct mw_table *table, const char *first,
                         struct unit u)
{
    char name[48];
    mw_table_col(table, first, false);
    snprintf(name, sizeof name, "simulated %s", u.name);
    mw_table_col(table, name, true);
    snprintf(name, sizeof name, "measured %s", u.name);
    mw_table_col(table, name, true);
    mw_table_col(table, "difference", true);
    mw_table_col(table, "error", true);
}

static void print_kinds(const struct mw_comparison *c, struct unit u, FILE *f)
{
    struct mw_table *table = mw_table_new();
    term_columns(table, "kind", u);
    mw_table_col(table, "of the step", true);
    for (int k = 0; k < MW_SPAN_KIND_COUNT; k++) {
        const struct mw_compare_term *term = &c->by_kind[k];
        if (!has_kind(c, k)) {
            continue;
        }
        mw_table_row(table);
        mw_table_cell(table, "%s", mw_span_kind_name((enum mw_span_kind)k));
        term_cells(table, u, term);
        error_cell(table, term);
        mw_table_cell(table, "%+.1f %%",
                      100 * mw_compare_difference_s(term) / c->step.measured_s);
    }
    mw_table_row(table);
    mw_table_cell(table, "step");
    term_cells(table, u, &c->step);
    error_cell(table, &c->step);
    mw_table_cell(table, "%+.1f %%", 100 * c->error);
    mw_table_print(table, f);
    mw_table_free(table);
}

static void print_stages(const struct mw_comparison *c, struct unit u, FILE *f)
{
    struct mw_table *table = mw_table_new();
    term_columns(table, "stage", u);
    for (size_t i = 0; i < c->stages.n; i++) {
        const struct mw_compare_stage *s = &c->stages.v[i];
        mw_table_row(table);
        mw_table_cell(table, "%d", s->stage);
        term_cells(table, u, &s->busy);
        error_cell(table, &s->busy);
    }
    mw_table_print(table, f);
    mw_table_free(table);
}

/* Rows are stages, columns kinds; a cell is the measured time and by how much
 * the simulated one differs. */
static void print_matrix(const struct mw_comparison *c, struct unit u, FILE *f)
{
    struct mw_table *table = mw_table_new();
    mw_table_col(table, "stage", false);
    for (int k = 0; k < MW_SPAN_KIND_COUNT; k++) {
        if (has_kind(c, k)) {
            mw_table_col(table, mw_span_kind_name((enum mw_span_kind)k), true);
        }
    }
    for (size_t i = 0; i < c->stages.n; i++) {
        const struct mw_compare_stage *s = &c->stages.v[i];
        mw_table_row(table);
        mw_table_cell(table, "%d", s->stage);
        for (int k = 0; k < MW_SPAN_KIND_COUNT; k++) {
            if (has_kind(c, k)) {
                mw_table_cell(
                    table, "%.3f %+.3f", u.per_s * s->by_kind[k].measured_s,
                    u.per_s * mw_compare_difference_s(&s->by_kind[k]));
            }
        }
    }
    mw_table_print(table, f);
    mw_table_free(table);
}

static void print_deviation(const struct mw_comparison *c, FILE *f)
{
    char text[MW_DEVIATION_TEXT_MAX];
    fprintf(f,
            "\nfirst pass whose end is off by more than %g %% of the "
            "step: %s\n",
            100 * MW_COMPARE_TOLERANCE, mw_deviation_text(&c->deviation, text));
    if (c->deviation.n_unpaired > 0) {
        fprintf(f,
                "(%zu predicted passes were not measured: the orders "
                "differ)\n",
                c->deviation.n_unpaired);
    }
}

void mw_compare_print(const struct mw_comparison *c, FILE *f)
{
    char headline[MW_COMPARE_HEADLINE_MAX];
    struct unit u = unit_for(c);
    fprintf(f, "%s\n", mw_compare_headline(c, headline));
    fprintf(f, "(%s)\n", mw_compare_clock_note(c));
    if (!c->is_same_plan) {
        fprintf(f, "(the timelines are of different plans)\n");
    }
    fprintf(f, "\nexposed time by kind, average over ranks\n");
    print_kinds(c, u, f);
    if (c->stages.n > 0) {
        fprintf(f, "\nbusy time by stage (step less bubble)\n");
        print_stages(c, u, f);
        fprintf(f,
                "\nby stage and kind, %s: measured, and simulated less "
                "measured\n",
                u.name);
        print_matrix(c, u, f);
    }
    print_deviation(c, f);
}

/* ---- JSON
 * ----------------------------------------------------------------------------
 */
static json_t *kinds_json(const struct mw_compare_term *terms)
{
    json_t *kinds = json_object();
    for (int k = 0; k < MW_SPAN_KIND_COUNT; k++) {
        json_t *o = json_object();
        mw_json_set_real(o, "simulated_s", terms[k].simulated_s);
        mw_json_set_real(o, "measured_s", terms[k].measured_s);
        mw_json_set_real(o, "difference_s", mw_compare_difference_s(&terms[k]));
        mw_json_set_real(o, "error", mw_compare_error(&terms[k]));
        mw_json_set(kinds, mw_span_kind_name((enum mw_span_kind)k), o);
    }
    return kinds;
}

static json_t *stage_json(const struct mw_compare_stage *s)
{
    json_t *o = json_object();
    mw_json_set_int(o, "stage", s->stage);
    mw_json_set_real(o, "simulated_busy_s", s->busy.simulated_s);
    mw_json_set_real(o, "measured_busy_s", s->busy.measured_s);
    mw_json_set_real(o, "difference_s", mw_compare_difference_s(&s->busy));
    mw_json_set_real(o, "error", mw_compare_error(&s->busy));
    mw_json_set(o, "by_kind", kinds_json(s->by_kind));
    return o;
}

static json_t *deviation_json(const struct mw_deviation *d)
{
    static const char *const why[] = {"none", "own", "before", "waiting"};
    char text[MW_DEVIATION_TEXT_MAX];
    if (d->why == MW_DEVIATION_NONE) {
        return json_null();
    }
    json_t *o = json_object(), *before = json_object();
    mw_json_set_str(o, "text", mw_deviation_text(d, text));
    mw_json_set_str(o, "why", why[d->why]);
    mw_json_set_int(o, "rank", d->simulated.rank);
    mw_json_set_str(o, "kind",
                    mw_span_kind_name((enum mw_span_kind)d->simulated.kind));
    mw_json_set_int(o, "microbatch", d->simulated.microbatch);
    mw_json_set_int(o, "stage", d->simulated.stage);
    mw_json_set_real(o, "simulated_end_s", mw_time_to_s(d->simulated.end_ps));
    mw_json_set_real(o, "measured_end_s", mw_time_to_s(d->measured.end_ps));
    mw_json_set_real(o, "difference_s", d->difference_s);
    mw_json_set_real(o, "own_s", d->own_s);
    mw_json_set_real(o, "waiting_s", d->waiting_s);
    for (int k = 0; k < MW_SPAN_KIND_COUNT; k++) {
        mw_json_set_real(before, mw_span_kind_name((enum mw_span_kind)k),
                         d->by_kind_s[k]);
    }
    mw_json_set(o, "before_s", before);
    return o;
}

json_t *mw_compare_json(const struct mw_comparison *c)
{
    json_t *o = json_object();
    mw_json_set_real(o, "simulated_step_time_s", c->step.simulated_s);
    mw_json_set_real(o, "measured_step_time_s", c->step.measured_s);
    mw_json_set_real(o, "difference_s", mw_compare_difference_s(&c->step));
    mw_json_set_real(o, "error", c->error);
    mw_json_set_str(o, "clock", c->clock);
    mw_json_set_str(o, "clock_note", mw_compare_clock_note(c));
    mw_json_set_str(o, "plan_hash", c->plan_hash);
    mw_json_set_bool(o, "same_plan", c->is_same_plan);
    mw_json_set(o, "by_kind", kinds_json(c->by_kind));
    json_t *stages = json_array();
    for (size_t i = 0; i < c->stages.n; i++) {
        json_array_append_new(stages, stage_json(&c->stages.v[i]));
    }
    mw_json_set(o, "by_stage", stages);
    mw_json_set(o, "first_deviation", deviation_json(&c->deviation));
    return o;
}
