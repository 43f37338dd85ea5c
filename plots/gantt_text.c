/*
 * Gantt charts as text: each row of the chart is a line of characters, each
 * character the kind of work that is exposed longest in its slice of time
 * (mw_timeline_exposed), so that a narrow terminal shows where time goes
 * rather than whatever is drawn last. gnuplot's dumb terminal has the axis and
 * the frame; its plot area is made exactly one cell a slice.
 */
#include "plots/gantt_int.h"

#include <string.h>

enum {
    LEFT = 11, /* characters left and right of the plot area */
    RIGHT = 3,
    CELLS = MW_PLOT_COLUMNS - LEFT - RIGHT
};

static const char letters[MW_SPAN_KIND_COUNT + 1] = "FBWrtcepdoxh.";

static char cell(const struct mw_gantt *g, const struct mw_gantt_row *row,
                 int i)
{
    const struct mw_timeline *t = g->panels[row->panel].timeline;
    mw_time end_ps = mw_timeline_window_ps(t);
    mw_time from_ps = g->window_ps / CELLS * i;
    mw_time to_ps =
        i + 1 < CELLS ? g->window_ps / CELLS * (i + 1) : g->window_ps;
    to_ps = to_ps < end_ps ? to_ps : end_ps;
    if (from_ps >= to_ps) {
        return ' '; /* this panel's step has ended */
    }
    mw_time ps[MW_SPAN_KIND_COUNT];
    mw_timeline_exposed(row->spans, row->n_spans, from_ps, to_ps, ps);
    int best = MW_SPAN_BUBBLE;
    for (int k = 0; k < MW_SPAN_KIND_COUNT; k++) {
        best = ps[k] > ps[best] ? k : best;
    }
    return letters[best];
}

/* A label a character, at the middle of its cell. */
static void put_line(const struct mw_gantt *g, struct mw_plot_job *job,
                     const struct mw_gantt_row *row, double y)
{
    for (int i = 0; i < CELLS; i++) {
        char c = cell(g, row, i);
        if (c != ' ') {
            mw_str_addf(&job->data, "%.9g %.1f %c\n",
                        g->per_ps * (double)g->window_ps * (i + 0.5) / CELLS, y,
                        c);
        }
    }
}

/* Which letters the chart uses: from the data, not from the spans, as a kind
 * may be hidden everywhere. */
static void put_legend(const struct mw_gantt *g, struct mw_plot_job *job)
{
    struct mw_str legend = {.s = NULL};
    for (int k = 0; k < MW_SPAN_KIND_COUNT; k++) {
        if (!g->has_kind[k] && k != MW_SPAN_BUBBLE) {
            continue;
        }
        const char *title = mw_gantt_kind_title((enum mw_span_kind)k);
        bool says_letter = title[0] == letters[k] && title[1] == ' ';
        mw_str_addf(&legend, "%s%c %s", legend.n > 0 ? "  " : "", letters[k],
                    says_letter ? title + 2 : title);
    }
    mw_str_add(&job->commands, "set xlabel ");
    struct mw_str label = {.s = NULL};
    mw_str_addf(&label, "time (%s)   %s", g->unit, legend.s);
    mw_plot_job_quote(job, label.s);
    mw_str_add(&job->commands, "\n");
    mw_str_release(&label);
    mw_str_release(&legend);
}

/* Names of the rows as tics, titles of the panels as labels. */
static void put_lines(const struct mw_gantt *g, struct mw_plot_job *job,
                      int n_lines)
{
    char text[160], name[32];
    struct mw_str tics = {.s = NULL};
    double y = n_lines - 0.5;
    size_t row = 0;
    mw_str_addf(&job->data, "# time_%s line kind\n", g->unit);
    for (int p = 0; p < g->n_panels; p++) {
        mw_str_add(&job->commands, "set label ");
        mw_plot_job_quote(
            job, mw_gantt_panel_title(&g->panels[p], text, sizeof text));
        mw_str_addf(&job->commands, " at first 0,%.1f left offset 1,0\n", y);
        y -= 1;
        for (; row < g->rows.n && g->rows.v[row].panel == p; row++) {
            put_line(g, job, &g->rows.v[row], y);
            mw_str_addf(&tics, "%s'%s' %.1f", tics.n > 0 ? "," : "",
                        mw_gantt_row_name(&g->rows.v[row], name), y);
            y -= 1;
        }
    }
    mw_str_addf(&job->commands, "set ytics nomirror scale 0 (%s)\n", tics.s);
    mw_str_release(&tics);
}

void mw_gantt_text(const struct mw_gantt *g, struct mw_plot_job *job)
{
    int n_lines = (int)g->rows.n + g->n_panels;
    mw_plot_job_terminal(job, MW_PLOT_COLUMNS, n_lines + 7);
    mw_str_addf(&job->commands,
                "set lmargin %d\nset rmargin %d\nset tmargin 2\nset bmargin 4\n"
                "set xrange [0:%.9g]\nset yrange [0:%d]\n"
                "set border 1\nset xtics nomirror out\nunset key\n",
                LEFT, RIGHT, g->per_ps * (double)g->window_ps, n_lines);
    mw_str_add(&job->commands, "set title ");
    mw_plot_job_quote(job, g->title);
    mw_str_add(&job->commands, "\n");
    put_lines(g, job, n_lines);
    put_legend(g, job);
    mw_str_add(&job->commands,
               "plot $data using 1:2:3 with labels center notitle\n");
}
