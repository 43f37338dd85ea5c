/* Scatter plots and stacked bars as inline SVG. */
#include "plots/page_int.h"

#include <math.h>
#include <stdio.h>

enum {
    SIDE_PX = 460,
    LEFT_PX = 80,
    BOTTOM_PX = 46,
    TOP_PX = 10,
    RIGHT_PX = 14,
    BAR_PX = 24,
    BAR_WIDTH_PX = 900,
    BAR_LEFT_PX = 110,
    BAR_RIGHT_PX = 90,
    LIMIT_FAR = 3
};

/* ---- scatter ---------------------------------------------------------------
 */
static const char *const colours[] = {"#2f6fd0", "#c2481a", "#3a9d55",
                                      "#7e6bc4", "#12a5b8", "#8b9097"};
enum { N_COLOURS = sizeof colours / sizeof *colours };

struct axes {
    struct mw_str *out;
    double low, high; /* of both axes */
};

static bool is_drawable(const struct mw_page_point *p)
{
    return isfinite(p->x) && isfinite(p->y) && p->x > 0 && p->y > 0;
}

/* 0 at the low end, 1 at the high one. */
static double place(const struct axes *a, double v)
{
    return log(v / a->low) / log(a->high / a->low);
}

static double x_px(const struct axes *a, double v)
{
    return LEFT_PX + place(a, v) * (SIDE_PX - LEFT_PX - RIGHT_PX);
}

static double y_px(const struct axes *a, double v)
{
    return SIDE_PX - BOTTOM_PX - place(a, v) * (SIDE_PX - BOTTOM_PX - TOP_PX);
}

static void put_line(const struct axes *a, double factor, const char *dash)
{
    double x1 = fmax(a->low, a->low / factor);
    double x2 = fmin(a->high, a->high / factor);
    mw_str_addf(a->out,
                "<line x1=\"%.2f\" y1=\"%.2f\" x2=\"%.2f\" y2=\"%.2f\" "
                "stroke=\"#999\" stroke-dasharray=\"%s\"/>\n",
                x_px(a, x1), y_px(a, factor * x1), x_px(a, x2),
                y_px(a, factor * x2), dash);
}

static void put_tick(const struct axes *a, double v)
{
    char text[MW_FMT_MAX];
    mw_fmt_seconds(v, text);
    mw_str_addf(a->out,
                "<text x=\"%.2f\" y=\"%d\" text-anchor=\"middle\">%s</text>"
                "<text x=\"%d\" y=\"%.2f\" text-anchor=\"end\">%s</text>\n",
                x_px(a, v), SIDE_PX - BOTTOM_PX + 16, text, LEFT_PX - 6,
                y_px(a, v) + 4, text);
}

/* 1, 2 and 5 of each decade. */
static void put_ticks(const struct axes *a)
{
    static const double of_decade[] = {1, 2, 5};
    for (double ten = pow(10, floor(log10(a->low))); ten <= a->high;
         ten *= 10) {
        for (size_t i = 0; i < 3; i++) {
            double v = of_decade[i] * ten;
            if (v >= a->low && v <= a->high) {
                put_tick(a, v);
            }
        }
    }
}

static void put_labels(const struct axes *a, const char *x, const char *y)
{
    mw_str_addf(a->out, "<text x=\"%d\" y=\"%d\" text-anchor=\"middle\">",
                (LEFT_PX + SIDE_PX - RIGHT_PX) / 2, SIDE_PX - 8);
    mw_page_escape(a->out, x);
    mw_str_addf(a->out,
                "</text><text transform=\"translate(14 %d) rotate(-90)\" "
                "text-anchor=\"middle\">",
                (TOP_PX + SIDE_PX - BOTTOM_PX) / 2);
    mw_page_escape(a->out, y);
    mw_str_add(a->out, "</text>\n");
}

static void put_point(const struct axes *a, const struct mw_page_point *p)
{
    char x[MW_FMT_MAX], y[MW_FMT_MAX];
    mw_str_addf(a->out,
                "<circle cx=\"%.2f\" cy=\"%.2f\" r=\"4\" fill=\"%s\" "
                "fill-opacity=\"0.75\"><title>",
                x_px(a, p->x), y_px(a, p->y),
                colours[(size_t)p->series % N_COLOURS]);
    mw_page_escape(a->out, p->name);
    mw_str_addf(a->out, ": %s, %s</title></circle>\n", mw_fmt_seconds(p->x, x),
                mw_fmt_seconds(p->y, y));
}

static bool find_range(const struct mw_page_point *points, size_t n,
                       struct axes *a)
{
    a->low = (double)INFINITY;
    a->high = 0;
    for (size_t i = 0; i < n; i++) {
        if (is_drawable(&points[i])) {
            a->low = fmin(a->low, fmin(points[i].x, points[i].y));
            a->high = fmax(a->high, fmax(points[i].x, points[i].y));
        }
    }
    a->low /= 1.15;
    a->high *= 1.15;
    return a->high > 0;
}

void mw_page_scatter(struct mw_page *page, const char *x_label,
                     const char *y_label, double band,
                     const struct mw_page_point *points, size_t n)
{
    struct axes a = {.out = &page->html};
    if (!find_range(points, n, &a)) {
        mw_page_text(page, "there is nothing to draw");
        return;
    }
    mw_str_addf(a.out,
                "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" "
                "height=\"%d\" viewBox=\"0 0 %d %d\" role=\"img\">\n"
                "<rect x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\" "
                "fill=\"none\" stroke=\"#ccc\"/>\n",
                SIDE_PX, SIDE_PX, SIDE_PX, SIDE_PX, LEFT_PX, TOP_PX,
                SIDE_PX - LEFT_PX - RIGHT_PX, SIDE_PX - BOTTOM_PX - TOP_PX);
    put_line(&a, 1, "none");
    if (band > 0) {
        put_line(&a, 1 + band, "5 4");
        put_line(&a, 1 - band, "5 4");
    }
    put_ticks(&a);
    put_labels(&a, x_label, y_label);
    for (size_t i = 0; i < n; i++) {
        if (is_drawable(&points[i])) {
            put_point(&a, &points[i]);
        }
    }
    mw_str_add(a.out, "</svg>\n");
}

/* ---- bars ------------------------------------------------------------------
 */
static double sum_of(const struct mw_page_bars *b, size_t row)
{
    double sum = 0;
    for (size_t p = 0; p < b->n_parts; p++) {
        sum += b->value[row * b->n_parts + p];
    }
    return sum;
}

static void put_part(struct mw_str *out, const struct mw_page_bars *b,
                     size_t part, double x, double y, double w, double v)
{
    char text[MW_FMT_MAX];
    mw_str_addf(out,
                "<rect x=\"%.2f\" y=\"%.2f\" width=\"%.2f\" height=\"%d\" "
                "fill=\"%s\"><title>",
                x, y, w, BAR_PX - 6, b->colours[part]);
    mw_page_escape(out, b->parts[part]);
    mw_str_addf(out, ": %s</title></rect>\n",
                mw_page_value(v, b->format, text));
}

static void put_bar(struct mw_str *out, const struct mw_page_bars *b,
                    size_t row, double y, double px_per_unit)
{
    double x = BAR_LEFT_PX;
    char text[MW_FMT_MAX];
    mw_str_addf(out, "<text x=\"%d\" y=\"%.2f\" text-anchor=\"end\">",
                BAR_LEFT_PX - 6, y + 13);
    mw_page_escape(out, b->rows[row]);
    mw_str_add(out, "</text>");
    for (size_t p = 0; p < b->n_parts; p++) {
        double v = b->value[row * b->n_parts + p];
        if (v > 0) {
            put_part(out, b, p, x, y, v * px_per_unit, v);
            x += v * px_per_unit;
        }
    }
    mw_str_addf(out, "<text x=\"%.2f\" y=\"%.2f\">%s</text>\n", x + 6, y + 13,
                mw_page_value(sum_of(b, row), b->format, text));
}

static void put_parts_legend(struct mw_str *out, const struct mw_page_bars *b)
{
    double x = BAR_LEFT_PX;
    for (size_t p = 0; p < b->n_parts; p++) {
        mw_str_addf(out,
                    "<rect x=\"%.0f\" y=\"4\" width=\"12\" height=\"12\" "
                    "fill=\"%s\" stroke=\"#999\"/><text x=\"%.0f\" y=\"14\">",
                    x, b->colours[p], x + 16);
        mw_page_escape(out, b->parts[p]);
        mw_str_add(out, "</text>\n");
        x += 110;
    }
}

void mw_page_bars(struct mw_page *page, const struct mw_page_bars *b)
{
    struct mw_str *out = &page->html;
    double most = 0, y = BAR_PX;
    for (size_t row = 0; row < b->n_rows; row++) {
        most = fmax(most, sum_of(b, row));
    }
    /* A limit far away would leave nothing of the bars. */
    double limit = b->limit <= LIMIT_FAR * most ? b->limit : 0;
    most = fmax(most, limit);
    if (!(most > 0)) {
        mw_page_text(page, "there is nothing to draw");
        return;
    }
    double per_unit = (BAR_WIDTH_PX - BAR_LEFT_PX - BAR_RIGHT_PX) / most;
    double height = BAR_PX * ((double)b->n_rows + 1.5);
    double width = fmax(BAR_WIDTH_PX, BAR_LEFT_PX + 110.0 * (double)b->n_parts);
    mw_str_addf(out,
                "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%.0f\" "
                "height=\"%.0f\" viewBox=\"0 0 %.0f %.0f\" role=\"img\">\n",
                width, height, width, height);
    put_parts_legend(out, b);
    for (size_t row = 0; row < b->n_rows; row++, y += BAR_PX) {
        put_bar(out, b, row, y, per_unit);
    }
    if (limit > 0) {
        double x = BAR_LEFT_PX + limit * per_unit;
        mw_str_addf(out,
                    "<line x1=\"%.2f\" y1=\"%d\" x2=\"%.2f\" y2=\"%.2f\" "
                    "stroke=\"#c00\" stroke-dasharray=\"4 3\"/>\n",
                    x, BAR_PX - 4, x, y);
    }
    mw_str_add(out, "</svg>\n");
}
