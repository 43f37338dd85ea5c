/*
 * One self-contained HTML page: text, tables and pictures as inline SVG; no
 * script, no font, nothing from elsewhere, so that it opens in any browser and
 * prints. Same input, same bytes. No gnuplot is needed.
 *
 *   struct mw_page page = {0};
 *   mw_page_begin(&page, "gpt-small, tp 2, pp 2");
 *   mw_page_heading(&page, "Step");
 *   mw_page_text(&page, "predicted %s", text);
 *   mw_page_gantt(&page, panels, 2);
 *   mw_page_save(&page, "report.html", &err);
 *
 * Every text is escaped. mw_page_release frees a page that is not saved.
 */
#ifndef MW_PLOTS_PAGE_H
#define MW_PLOTS_PAGE_H

#include "base/mem.h"
#include "plots/plot.h"

struct mw_page {
    struct mw_str html;
    int n_pictures; /* names their parts apart */
};

void mw_page_begin(struct mw_page *page, const char *title);
void mw_page_heading(struct mw_page *page, const char *text);
/* A paragraph. */
void mw_page_text(struct mw_page *page, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
/* Text as it stands, spaces and lines kept. */
void mw_page_verbatim(struct mw_page *page, const char *text);

/* A table: names of its columns, then row after row of as many cells. A column
 * whose name begins with '>' is aligned to the right (the sign is dropped). */
void mw_page_table_begin(struct mw_page *page, const char *const *columns,
                         size_t n);
void mw_page_table_row(struct mw_page *page);
void mw_page_table_cell(struct mw_page *page, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
void mw_page_table_end(struct mw_page *page);

/* A part that opens on a click. */
void mw_page_fold_begin(struct mw_page *page, const char *summary);
void mw_page_fold_end(struct mw_page *page);

/* Writes the page (atomically) and releases it. */
enum mw_status mw_page_save(struct mw_page *page, const char *path,
                            struct mw_err *err);
void mw_page_release(struct mw_page *page);

/* ---- pictures --------------------------------------------------------------
 */
/* Timelines one above the other on one time axis, as mw_plot_gantt draws them;
 * spans narrower than a quarter of a pixel that touch become one. Where there
 * is nothing to draw, or more rows than can be told apart, a line says so. */
void mw_page_gantt(struct mw_page *page, const struct mw_plot_panel *panels,
                   size_t n_panels);

/* Points with the line y = x and lines at y = x (1 +- band), both axes of one
 * logarithmic range of seconds. Each point shows its name on hovering. */
struct mw_page_point {
    double x, y;
    const char *name;
    int series; /* 0 and up: colours */
};
void mw_page_scatter(struct mw_page *page, const char *x_label,
                     const char *y_label, double band,
                     const struct mw_page_point *points, size_t n);

/* Horizontal bars of parts that are stacked, one bar a row, for shares of a
 * whole: memory, exposed time. value[row * n_parts + part] >= 0. */
struct mw_page_bars {
    const char *const *rows;
    size_t n_rows;
    const char *const *parts;
    const char *const *colours; /* "#2f6fd0" */
    size_t n_parts;
    const double *value;
    enum mw_plot_format format;
    double limit; /* a vertical line; 0, or beyond 3 times the bars: none */
};
void mw_page_bars(struct mw_page *page, const struct mw_page_bars *bars);
/* The colour of a kind of work in every picture. */
const char *mw_page_kind_colour(enum mw_span_kind kind);

#endif
