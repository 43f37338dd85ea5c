/* `meshwright sched --compare` and `--sweep`: all schedules at one size, and
 * bubble against memory. */
#include "cli/sched.h"

#include "base/table.h"
#include "base/units.h"
#include "plots/plot.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct row {
    const char *name;
    bool is_out; /* left out, text says why */
    double makespan_s, span_s, bubble_makespan, bubble_span, peak, exposed_s;
    bool is_proved;
    int buffers, weights; /* copies of the weights */
    char text[192];
};

static double peak_of(const struct mw_sched_made *m)
{
    double peak = 0;

    for (int d = 0; d < m->s.n_stages; d++) {
        peak = fmax(peak, m->stats.stage[d].peak);
    }
    return peak;
}

static void fill_row(const struct mw_sched_ask *a, struct row *r)
{
    struct mw_sched_made m = {0};
    struct mw_err err = {0};

    if (mw_sched_make(a, true, &m, &err) != MW_OK) {
        snprintf(r->text, sizeof r->text, "%.*s", (int)sizeof r->text - 1,
                 err.text);
        r->is_out = true;
        return;
    }
    r->makespan_s = mw_time_to_s(m.run.makespan_ps);
    r->span_s = mw_time_to_s(m.run.longest_span_ps);
    r->bubble_makespan = m.stats.bubble_makespan;
    r->bubble_span = m.stats.bubble_span;
    r->peak = peak_of(&m);
    r->exposed_s = mw_time_to_s(m.stats.exposed_ps);
    r->is_proved = m.is_proved;
    r->buffers = mw_schedule_send_buffers(&m.s);
    r->weights = m.s.n_routes;
    mw_sched_made_release(&m);
}

static int by_value(const void *x, const void *y)
{
    const struct row *a = x, *b = y;

    if (a->is_out != b->is_out) {
        return a->is_out ? 1 : -1;
    }
    if (a->makespan_s != b->makespan_s) {
        return a->makespan_s < b->makespan_s ? -1 : 1;
    }
    return strcmp(a->name, b->name);
}

static int by_span(const void *x, const void *y)
{
    const struct row *a = x, *b = y;

    if (!a->is_out && !b->is_out && a->span_s != b->span_s) {
        return a->span_s < b->span_s ? -1 : 1;
    }
    return by_value(x, y);
}

static void print_rows(const struct row *r, size_t n)
{
    struct mw_table *t = mw_table_new();
    static const char *const name[] = {"schedule",
                                       "makespan",
                                       "bubble",
                                       "span",
                                       "bubble of span",
                                       "peak",
                                       "waits for transfers",
                                       "weights",
                                       "sends"};

    for (size_t i = 0; i < sizeof name / sizeof name[0]; i++) {
        mw_table_col(t, name[i], i > 0 && i < 8);
    }
    for (size_t i = 0; i < n && !r[i].is_out; i++) {
        char buf[MW_FMT_MAX];

        mw_table_row(t);
        mw_table_cell(t, "%s%s", r[i].name, r[i].is_proved ? " *" : "");
        mw_table_cell(t, "%s", mw_fmt_seconds(r[i].makespan_s, buf));
        mw_table_cell(t, "%.2f %%", 100 * r[i].bubble_makespan);
        mw_table_cell(t, "%s", mw_fmt_seconds(r[i].span_s, buf));
        mw_table_cell(t, "%.2f %%", 100 * r[i].bubble_span);
        mw_table_cell(t, "%.4g", r[i].peak);
        mw_table_cell(t, "%s", mw_fmt_seconds(r[i].exposed_s, buf));
        mw_table_cell(t, "x%d", r[i].weights);
        mw_table_cell(t, "%s", r[i].buffers == 0 ? "may block" : "buffered");
    }
    mw_table_print(t, stdout);
    mw_table_free(t);
    printf("\n* proved optimal for its placement and memory. Not possible "
           "here:\n");
    for (size_t i = 0; i < n; i++) {
        if (r[i].is_out) {
            printf("  %s: %s\n", r[i].name, r[i].text);
        }
    }
}

static json_t *row_json(const struct row *r)
{
    json_t *o = json_object();

    mw_json_set_str(o, "kind", r->name);
    if (r->is_out) {
        mw_json_set_str(o, "left_out", r->text);
        return o;
    }
    mw_json_set_real(o, "makespan_s", r->makespan_s);
    mw_json_set_real(o, "span_s", r->span_s);
    mw_json_set_real(o, "bubble_rate_makespan", r->bubble_makespan);
    mw_json_set_real(o, "bubble_rate_span", r->bubble_span);
    mw_json_set_real(o, "peak_activations", r->peak);
    mw_json_set_real(o, "exposed_transfer_s", r->exposed_s);
    mw_json_set_bool(o, "proved_optimal", r->is_proved);
    mw_json_set_int(o, "weight_copies", r->weights);
    mw_json_set_int(o, "send_buffers", r->buffers);
    return o;
}

int mw_sched_compare(const struct mw_sched_ask *ask)
{
    struct mw_sched_ask a = *ask;
    size_t n = 0, i;
    struct row *r;
    int status = 0;

    while (mw_schedule_kind(n) != NULL) {
        n++;
    }
    r = mw_calloc(n, sizeof *r);
    for (i = 0; i < n; i++) {
        const struct mw_sched_kind *k = mw_schedule_kind(i);

        a.kind = r[i].name = k->name;
        a.chunks = ask->chunks >= k->min_chunks && ask->chunks <= k->max_chunks
                       ? ask->chunks
                       : k->min_chunks;
        if (strcmp(k->name, "forward-only") == 0) {
            r[i].is_out = true;
            snprintf(r[i].text, sizeof r[i].text, "it has no backward");
            continue;
        }
        fill_row(&a, &r[i]);
    }
    qsort(r, n, sizeof *r,
          a.objective == MW_OBJECTIVE_SPAN ? by_span : by_value);
    if (a.cli.json) {
        json_t *o = json_object(), *rows = json_array();

        for (i = 0; i < n; i++) {
            json_array_append_new(rows, row_json(&r[i]));
        }
        mw_json_set_int(o, "stages", a.stages);
        mw_json_set_int(o, "microbatches", a.microbatches);
        mw_json_set(o, "rows", rows);
        status = mw_cli_print_json(o);
    } else {
        print_rows(r, n);
    }
    mw_free(r);
    return status;
}

/* ---- sweep over memory limits -------------------------------------------- */
enum { SWEEP_MAX = 200 };
struct point {
    double limit[SWEEP_MAX], bubble[2][SWEEP_MAX], bound[2][SWEEP_MAX];
    bool is_proved[2][SWEEP_MAX];
    size_t n;
};

static enum mw_status parse_sweep(const char *text, struct point *p,
                                  struct mw_err *err)
{
    double from = 0, to = 0, by = 0;
    char rest;

    if (sscanf(text, "%lf:%lf:%lf%c", &from, &to, &by, &rest) != 3 ||
        !(from > 0 && to >= from && by > 0) || (to - from) / by >= SWEEP_MAX) {
        return mw_fail(err, MW_EUSAGE,
                       "--sweep: '%s' is not FROM:TO:STEP with at most %d "
                       "limits; for example 4:16:1",
                       text, SWEEP_MAX);
    }
    for (p->n = 0; from + (double)p->n * by <= to * (1 + 1e-12); p->n++) {
        p->limit[p->n] = from + (double)p->n * by;
    }
    return MW_OK;
}

static void sweep_kind(const struct mw_sched_ask *ask, int which,
                       struct point *p)
{
    struct mw_sched_ask a = *ask;

    a.kind = which == 0 ? "zb-auto" : "zbv-auto";
    a.chunks = which + 1;
    for (size_t i = 0; i < p->n; i++) {
        struct mw_sched_made m = {0};
        mw_time value;

        p->bubble[which][i] = p->bound[which][i] = (double)NAN;
        a.memory_limit = p->limit[i];
        if (mw_sched_make(&a, true, &m, NULL) != MW_OK) {
            continue;
        }
        value = mw_sched_value(&a, &m);
        p->bubble[which][i] = a.objective == MW_OBJECTIVE_SPAN
                                  ? m.stats.bubble_span
                                  : m.stats.bubble_makespan;
        p->bound[which][i] =
            1 - (1 - p->bubble[which][i]) * (double)value / (double)m.bound_ps;
        p->is_proved[which][i] = m.is_proved;
        mw_sched_made_release(&m);
    }
}

static void print_sweep(const struct point *p)
{
    struct mw_table *t = mw_table_new();
    static const char *const name[] = {"limit", "zb-auto", "at least",
                                       "zbv-auto", "at least"};

    for (size_t i = 0; i < sizeof name / sizeof name[0]; i++) {
        mw_table_col(t, name[i], true);
    }
    for (size_t i = 0; i < p->n; i++) {
        mw_table_row(t);
        mw_table_cell(t, "%.4g", p->limit[i]);
        for (int k = 0; k < 2; k++) {
            if (isnan(p->bubble[k][i])) {
                mw_table_cell(t, "-");
                mw_table_cell(t, "-");
                continue;
            }
            mw_table_cell(t, "%.2f %%%s", 100 * p->bubble[k][i],
                          p->is_proved[k][i] ? " *" : "");
            mw_table_cell(t, "%.2f %%", 100 * fmax(0, p->bound[k][i]));
        }
    }
    mw_table_print(t, stdout);
    mw_table_free(t);
    printf("\nlimit: activations of one micro-batch on one stage; * proved "
           "optimal; at least: no order has a smaller bubble\n");
}

static json_t *sweep_json(const struct mw_sched_ask *a, const struct point *p)
{
    json_t *o = json_object(), *rows = json_array();

    for (int k = 0; k < 2; k++) {
        for (size_t i = 0; i < p->n; i++) {
            json_t *r = json_object();

            mw_json_set_str(r, "kind", k == 0 ? "zb-auto" : "zbv-auto");
            mw_json_set_real(r, "memory_limit", p->limit[i]);
            mw_json_set_real(r, "bubble_rate", p->bubble[k][i]);
            mw_json_set_real(r, "bubble_rate_bound", p->bound[k][i]);
            mw_json_set_bool(r, "proved_optimal", p->is_proved[k][i]);
            json_array_append_new(rows, r);
        }
    }
    mw_json_set_int(o, "stages", a->stages);
    mw_json_set_int(o, "microbatches", a->microbatches);
    mw_json_set(o, "rows", rows);
    return o;
}

static int plot_sweep(const struct mw_sched_ask *a, const struct point *p)
{
    struct mw_plot_axes axes = {
        .title = "Pipeline bubble against memory",
        .x = {.label = "activations of a micro-batch on a stage"},
        .y = {.label = "bubble rate"}};
    struct mw_plot_series s[] = {
        {"zb-auto", p->limit, p->bubble[0], p->n, false},
        {"zb bound", p->limit, p->bound[0], p->n, false},
        {"zbv-auto (V)", p->limit, p->bubble[1], p->n, false}};
    struct mw_err err = {0};

    return mw_plot_curves(&axes, s, 3, a->plot, &err) == MW_OK
               ? 0
               : mw_cli_fail(&err);
}

int mw_sched_sweep(const struct mw_sched_ask *a)
{
    struct point *p = mw_calloc(1, sizeof *p);
    struct mw_err err = {0};
    int status = 0;

    if (parse_sweep(a->sweep, p, &err) != MW_OK) {
        status = mw_cli_fail(&err);
    } else {
        sweep_kind(a, 0, p);
        sweep_kind(a, 1, p);
        if (a->cli.json) {
            status = mw_cli_print_json(sweep_json(a, p));
        } else {
            print_sweep(p);
        }
        if (status == 0 && a->plot != NULL) {
            status = plot_sweep(a, p);
        }
    }
    mw_free(p);
    return status;
}
