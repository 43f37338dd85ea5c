/*
 * Pictures by gnuplot: Gantt charts of timelines, curves, scatter plots.
 *
 * Every function takes a path that says what is drawn: FILE.svg, FILE.png, or
 * "-" for text in the terminal (gnuplot's dumb terminal, 110 columns). Beside
 * a file, FILE.dat gets the numbers of the picture as a table; then gnuplot is
 * started. Both files appear whole or not at all. Same input, same bytes (for
 * SVG and text everywhere, for PNG with the same fonts).
 *
 * Errors, for all of them: MW_EUSAGE for another ending; MW_EINPUT when a file
 * cannot be written; MW_EMISSING "gnuplot is not installed; the data file is
 * FILE.dat" (for "-": meshwright-plot.dat), the data file being there;
 * MW_EFAILED with gnuplot's own words when it fails.
 */
#ifndef MW_PLOTS_PLOT_H
#define MW_PLOTS_PLOT_H

#include "base/err.h"
#include "sim/engine/timeline.h"

#include <stdbool.h>
#include <stddef.h>

/* NULL when the path has a known ending, else what is right: for checking an
 * option before long work. */
const char *mw_plot_path_wrong(const char *path);

/* ---- Gantt charts -----------------------------------------------------------
 */
/* One timeline of a chart; it is sorted. */
struct mw_plot_panel {
    struct mw_timeline *timeline;
    const char *title; /* "predicted"; the step time is put behind it */
};

/*
 * Timelines one above the other on one time axis. Each has a row for every
 * pipeline stage (the lowest rank of the stage), or for every rank when its
 * spans name no stage: compute in the upper part, communication below it.
 *
 *   struct mw_plot_panel p[] = {{&simulated, "predicted"},
 *                               {&measured, "measured"}};
 *   mw_plot_gantt("gpt-small, tp=2 pp=2", p, 2, "out/compare.svg", &err);
 */
enum { MW_PLOT_PANELS_MAX = 8, MW_PLOT_ROWS_MAX = 256 };
enum mw_status mw_plot_gantt(const char *title,
                             const struct mw_plot_panel *panels,
                             size_t n_panels, const char *path,
                             struct mw_err *err);

/* ---- curves and scatter plots
 * -------------------------------------------------- */
/* How an axis is labelled: plain numbers, 64 KiB, 250 us, 12 GB/s. */
enum mw_plot_format {
    MW_PLOT_NUMBER,
    MW_PLOT_BYTES,
    MW_PLOT_SECONDS,
    MW_PLOT_BYTES_PER_S
};
struct mw_plot_axis {
    const char *label;
    enum mw_plot_format format;
    bool is_log;
    bool
        is_at_points; /* log x: tics at the lines' points, no wider than they */
};
struct mw_plot_axes {
    const char *title;
    struct mw_plot_axis x, y;
    double band; /* scatter: lines at y = x (1 +- band); 0: none */
};
/* A series; points that are not finite (or not positive on a log axis) are left
 * out. */
struct mw_plot_series {
    const char *label;
    const double *x, *y;
    size_t n;
    bool is_marked; /* points that are marked, without a line */
};
/* Lines through points, in the order given. */
enum mw_status mw_plot_curves(const struct mw_plot_axes *axes,
                              const struct mw_plot_series *series,
                              size_t n_series, const char *path,
                              struct mw_err *err);
/* Points with the line y = x, both axes of the same range: predicted against
 * measured. */
enum mw_status mw_plot_scatter(const struct mw_plot_axes *axes,
                               const struct mw_plot_series *series,
                               size_t n_series, const char *path,
                               struct mw_err *err);

#endif
