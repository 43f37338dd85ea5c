/*
 * Curves and scatter plots. Points that an axis cannot show (not finite, or not
 * positive on a log axis) are left out of data and picture alike. A scatter
 * plot of predicted against measured has the line y = x and one range for both
 * axes, so that distance from the line is error.
 */
#include "plots/plot.h"

#include "plots/plot_int.h"

#include <math.h>

enum { HEIGHT_PX = 640, SQUARE_PX = 760, TEXT_LINES = 30 };

/* Colours that stay apart for most colour-blind readers: Okabe and Ito, "Color
 * Universal Design", 2008 (yellow left out: too faint on white). */
static const char *const colours[] = {"#0072b2", "#d55e00", "#009e73",
                                      "#cc79a7", "#e69f00", "#56b4e9",
                                      "#000000"};
enum { N_COLOURS = sizeof colours / sizeof *colours };

/* Least and greatest coordinate shown on an axis. */
struct range {
    double min, max;
};

static void widen(struct range *range, double v)
{
    range->min = fmin(range->min, v);
    range->max = fmax(range->max, v);
}

static const char *axis_format(enum mw_plot_format format)
{
    switch (format) {
    case MW_PLOT_BYTES:
        return "%.0b %BB";
    case MW_PLOT_SECONDS:
        return "%.0s %cs";
    case MW_PLOT_BYTES_PER_S:
        return "%.0s %cB/s";
    case MW_PLOT_NUMBER:
        break;
    }
    return "%g";
}

/*
 * Tics of a log axis of bytes at powers of 2, at most about ten: gnuplot's own
 * binary prefixes are spelt "kiB" and leave a hole where there is none.
 */
static void put_byte_tics(struct mw_plot_job *job, char name,
                          const struct range *range)
{
    static const char *const prefixes[] = {"B",   "KiB", "MiB", "GiB",
                                           "TiB", "PiB", "EiB"};
    int low = (int)floor(log2(range->min)), high = (int)ceil(log2(range->max));
    low = low < 0 ? 0 : low;
    high = high > 69 ? 69 : high;
    int step = 1;
    while ((high - low) / step > 10) {
        step *= 2;
    }
    mw_str_addf(&job->commands, "set %ctics (", name);
    for (int p = (low + step - 1) / step * step; p <= high; p += step) {
        mw_str_addf(&job->commands, "%s'%d %s' %.0f",
                    p - step >= low ? ", " : "", 1 << p % 10, prefixes[p / 10],
                    exp2(p));
    }
    mw_str_add(&job->commands, ")\n");
}

static void put_axis(struct mw_plot_job *job, char name,
                     const struct mw_plot_axis *axis, const struct range *range)
{
    struct mw_str *out = &job->commands;
    mw_str_addf(out, "set %clabel ", name);
    mw_plot_job_quote(job, axis->label);
    mw_str_addf(out, "\nset format %c '%s'\n", name, axis_format(axis->format));
    if (axis->is_log) {
        int base = axis->format == MW_PLOT_BYTES ? 2 : 10;
        mw_str_addf(out, "set logscale %c %d\n", name, base);
        if (base == 2) {
            put_byte_tics(job, name, range);
        }
    }
}

static void put_frame(struct mw_plot_job *job, const struct mw_plot_axes *axes,
                      const struct range range[2])
{
    struct mw_str *out = &job->commands;
    mw_str_add(out, "set title ");
    mw_plot_job_quote(job, axes->title);
    mw_str_add(out, "\n");
    put_axis(job, 'x', &axes->x, &range[0]);
    put_axis(job, 'y', &axes->y, &range[1]);
    if (job->target != MW_PLOT_TEXT) {
        mw_str_add(out, "set border 3 lc rgb '#555555'\n"
                        "set xtics nomirror out\nset ytics nomirror out\n"
                        "set grid lt 1 lw 0.5 lc rgb '#dddddd' back\n");
    }
    mw_str_add(out, "set key left top Left reverse\n");
}

/* ---- data
 * -------------------------------------------------------------------------- */
static bool can_show(const struct mw_plot_axis *axis, double v)
{
    return isfinite(v) && (!axis->is_log || v > 0);
}

/* A block of data; false when it has no point (gnuplot then has no block). */
static bool put_series(struct mw_plot_job *job, const struct mw_plot_axes *axes,
                       const struct mw_plot_series *s, struct range range[2])
{
    bool has_points = false;
    mw_str_add(&job->data, "# ");
    mw_plot_job_comment(job, s->label);
    mw_str_add(&job->data, ": x y\n");
    for (size_t i = 0; i < s->n; i++) {
        if (can_show(&axes->x, s->x[i]) && can_show(&axes->y, s->y[i])) {
            mw_str_addf(&job->data, "%.9g %.9g\n", s->x[i], s->y[i]);
            widen(&range[0], s->x[i]);
            widen(&range[1], s->y[i]);
            has_points = true;
        }
    }
    if (has_points) {
        mw_str_add(&job->data, "\n\n");
    }
    return has_points;
}

/* What is drawn. */
struct xy {
    const struct mw_plot_axes *axes;
    const struct mw_plot_series *series;
    size_t n_series;
    bool is_scatter;
};

/* The series as plot elements; block[i] is the data block of series i, -1 when
 * it has no point. */
static void put_elements(struct mw_plot_job *job, const struct xy *xy,
                         const int *block)
{
    bool is_first = !xy->is_scatter;
    for (size_t i = 0; i < xy->n_series; i++) {
        if (block[i] < 0) {
            continue;
        }
        if (xy->series[i].is_marked) {
            mw_str_addf(&job->commands,
                        "%s$data index %d using 1:2 with points lc rgb "
                        "'#000000' pt 6 ps 1.6 lw 2 title ",
                        is_first ? "" : ", ", block[i]);
        } else {
            mw_str_addf(&job->commands,
                        "%s$data index %d using 1:2 with %s lc rgb '%s' pt %d "
                        "ps 0.7 title ",
                        is_first ? "" : ", ", block[i],
                        xy->is_scatter ? "points" : "linespoints lw 1.6",
                        colours[i % N_COLOURS], i % 2 ? 5 : 7);
        }
        mw_plot_job_quote(job, xy->series[i].label);
        is_first = false;
    }
    mw_str_add(&job->commands, "\n");
}

/* y = x and the band around it. */
static void put_identity(struct mw_plot_job *job, double band)
{
    mw_str_add(&job->commands, "x with lines lc rgb '#555555' title 'equal'");
    if (band > 0) {
        mw_str_addf(&job->commands,
                    ", x*%.9g with lines dt 2 lc rgb '#999999' title "
                    "'+-%.3g %%', x*%.9g with lines dt 2 lc rgb '#999999' "
                    "notitle",
                    1 + band, 100 * band, 1 - band);
    }
}

/* One range for both axes, a little wider than the points. */
static void put_range(struct mw_plot_job *job, const struct mw_plot_axes *axes,
                      const struct range range[2])
{
    bool is_log = axes->x.is_log && axes->y.is_log;
    double min = fmin(range[0].min, range[1].min);
    double max = fmax(range[0].max, range[1].max);
    double low = is_log ? min / 1.3 : fmin(0, min);
    double high = is_log ? max * 1.3 : max * 1.08;
    mw_str_addf(&job->commands,
                "set xrange [%.9g:%.9g]\nset yrange "
                "[%.9g:%.9g]\n",
                low, high, low, high);
}

/* The least x of a line's points from here on; infinite where there is none. */
static double next_point(const struct xy *xy, double from)
{
    double least = HUGE_VAL;

    for (size_t i = 0; i < xy->n_series; i++) {
        const struct mw_plot_series *s = &xy->series[i];

        for (size_t k = 0; k < s->n && !s->is_marked; k++) {
            if (can_show(&xy->axes->x, s->x[k]) &&
                can_show(&xy->axes->y, s->y[k]) && s->x[k] >= from) {
                least = fmin(least, s->x[k]);
            }
        }
    }
    return least;
}

/* A log axis just as wide as its points, with its tics at them, except where
 * labels would touch: a twentieth of the axis apart at least. */
static void put_points_axis(struct mw_plot_job *job, const struct xy *xy,
                            const struct range *range)
{
    double span = range->max / range->min;
    double room = span > 1 ? pow(span, 0.03) : 1.1;
    double step = span > 1 ? pow(span, 0.05) : 1.1;
    const char *sep = "";

    mw_str_addf(&job->commands, "set xrange [%.9g:%.9g]\nset xtics (",
                range->min / room, range->max * room);
    for (double at = next_point(xy, range->min); at <= range->max;
         at = next_point(xy, at * step)) {
        mw_str_addf(&job->commands, "%s'%.10g' %.17g", sep, at, at);
        sep = ", ";
    }
    mw_str_add(&job->commands, ")\n");
}

static void put_terminal(struct mw_plot_job *job, bool is_scatter)
{
    if (job->target == MW_PLOT_TEXT) {
        mw_plot_job_terminal(job, MW_PLOT_COLUMNS, TEXT_LINES);
    } else if (is_scatter) {
        mw_plot_job_terminal(job, SQUARE_PX, SQUARE_PX);
    } else {
        mw_plot_job_terminal(job, MW_PLOT_WIDTH_PX, HEIGHT_PX);
    }
}

static enum mw_status draw(struct mw_plot_job *job, const struct xy *xy,
                           struct mw_err *err)
{
    struct range range[2] = {{HUGE_VAL, -HUGE_VAL}, {HUGE_VAL, -HUGE_VAL}};
    int *block = mw_calloc(xy->n_series + 1, sizeof *block);
    int n_blocks = 0;
    enum mw_status status;
    mw_str_add(&job->data, "# ");
    mw_plot_job_comment(job, xy->axes->title);
    mw_str_add(&job->data, "\n");
    for (size_t i = 0; i < xy->n_series; i++) {
        bool has_points = put_series(job, xy->axes, &xy->series[i], range);
        block[i] = has_points ? n_blocks++ : -1;
    }
    if (n_blocks == 0) {
        status = mw_fail(err, MW_EINPUT,
                         "there is nothing to draw: no point fits the axes");
        goto out;
    }
    put_terminal(job, xy->is_scatter);
    put_frame(job, xy->axes, range);
    if (xy->is_scatter) {
        put_range(job, xy->axes, range);
    }
    if (xy->axes->x.is_log && xy->axes->x.is_at_points) {
        put_points_axis(job, xy, &range[0]);
    }
    mw_str_add(&job->commands, "plot ");
    if (xy->is_scatter) {
        put_identity(job, xy->axes->band);
    }
    put_elements(job, xy, block);
    status = mw_plot_job_run(job, err);
out:
    mw_free(block);
    return status;
}

static enum mw_status plot(const struct xy *xy, const char *path,
                           struct mw_err *err)
{
    struct mw_plot_job job;
    enum mw_status status = mw_plot_job_init(&job, path, err);
    if (status == MW_OK) {
        status = draw(&job, xy, err);
        mw_plot_job_release(&job);
    }
    return status;
}

enum mw_status mw_plot_curves(const struct mw_plot_axes *axes,
                              const struct mw_plot_series *series,
                              size_t n_series, const char *path,
                              struct mw_err *err)
{
    struct xy xy = {axes, series, n_series, false};
    return plot(&xy, path, err);
}

enum mw_status mw_plot_scatter(const struct mw_plot_axes *axes,
                               const struct mw_plot_series *series,
                               size_t n_series, const char *path,
                               struct mw_err *err)
{
    struct xy xy = {axes, series, n_series, true};
    return plot(&xy, path, err);
}
