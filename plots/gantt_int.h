/* Private to the Gantt charts: rows, which a picture and a text chart share. */
#ifndef MW_PLOTS_GANTT_INT_H
#define MW_PLOTS_GANTT_INT_H

#include "plots/plot.h"
#include "plots/plot_int.h"

/* A row: one rank of one panel, its spans sorted. */
struct mw_gantt_row {
    int panel, rank, stage; /* stage -1: the row is named by its rank */
    const struct mw_span *spans;
    size_t n_spans;
};

struct mw_gantt {
    const char *title;
    const struct mw_plot_panel *panels;
    int n_panels;
    MW_ARRAY(struct mw_gantt_row) rows; /* by panel, then stage or rank */
    int n_stages;                       /* most rows of a panel */
    mw_time window_ps;                  /* longest step */
    bool has_kind[MW_SPAN_KIND_COUNT];
    const char *unit; /* "ms" */
    double per_ps;    /* ps to that unit */
};

/* Rows and unit of a chart; MW_EINPUT when there is nothing to draw or too much
 * to be told apart. Release g->rows in any case. */
enum mw_status mw_gantt_open(struct mw_gantt *g, const char *title,
                             const struct mw_plot_panel *panels,
                             size_t n_panels, struct mw_err *err);
/* "#2f6fd0"; light for odd chunks. */
const char *mw_gantt_colour(enum mw_span_kind kind, bool light);
/* Odd chunks of a device with several virtual stages are drawn lighter. */
bool mw_gantt_is_light(const struct mw_gantt *g, const struct mw_gantt_row *row,
                       const struct mw_span *s);
/* What the legend says of a kind. */
const char *mw_gantt_kind_title(enum mw_span_kind kind);
/* "predicted: 12.34 ms" into buf. */
const char *mw_gantt_panel_title(const struct mw_plot_panel *panel, char *buf,
                                 size_t len);
const char *mw_gantt_row_name(const struct mw_gantt_row *row, char buf[32]);
/* The chart as characters, one a cell, in job's data and commands. */
void mw_gantt_text(const struct mw_gantt *g, struct mw_plot_job *job);

#endif
