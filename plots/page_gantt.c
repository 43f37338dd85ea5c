/*
 * Gantt charts as inline SVG: the geometry of gantt.c without gnuplot. A row
 * has compute in its upper part and a lane for each communication stream below;
 * what stays white is bubble. Hovering shows kind, micro-batch, stage and time.
 */
#include "plots/gantt_int.h"
#include "plots/page_int.h"

#include <math.h>
#include <stdio.h>

enum {
    WIDTH_PX = 1200,
    LEFT_PX = 80,
    RIGHT_PX = 16,
    TITLE_PX = 24,
    ROW_PX = 34,
    ROWS_PX_MAX = 1400,
    AXIS_PX = 34,
    LEGEND_PX = 26,
    TICKS = 8,
    HOVER_PX = 1, /* narrowest box that can be hovered over */
    LABEL_PX = 14 /* narrowest box that gets its micro-batch */
};
static const int PLOT_PX = WIDTH_PX - LEFT_PX - RIGHT_PX;

struct canvas {
    const struct mw_gantt *g;
    struct mw_str *out;
    double row_px;
    double px_per_ps;
    int lane[MW_STREAM_COUNT]; /* from 1; 0: the stream has no spans */
    int n_lanes;
};

static void find_lanes(struct canvas *c)
{
    bool is_used[MW_STREAM_COUNT] = {false};
    for (size_t r = 0; r < c->g->rows.n; r++) {
        for (size_t i = 0; i < c->g->rows.v[r].n_spans; i++) {
            is_used[c->g->rows.v[r].spans[i].stream] = true;
        }
    }
    for (int s = MW_STREAM_COMPUTE + 1; s < MW_STREAM_COUNT; s++) {
        c->lane[s] = is_used[s] ? ++c->n_lanes : 0;
    }
}

/* Top and height of a stream's lane in a row, as parts of it. */
static void lane_bounds(const struct canvas *c, int stream, double *top,
                        double *height)
{
    double comm = c->n_lanes == 0 ? 0 : c->n_lanes == 1 ? 0.2 : 0.34;
    if (c->lane[stream] == 0) {
        *top = 0.06;
        *height = 0.86 - comm;
        return;
    }
    double lane = comm / c->n_lanes;
    *top = 0.94 - comm + lane * (c->lane[stream] - 1);
    *height = 0.86 * lane;
}

static double x_of(const struct canvas *c, mw_time ps)
{
    return LEFT_PX + c->px_per_ps * (double)ps;
}

static void put_box(struct canvas *c, double y, const struct mw_gantt_row *row,
                    const struct mw_span *s, mw_time end_ps)
{
    double top, height, x = x_of(c, s->start_ps), w = x_of(c, end_ps) - x;
    char start[MW_FMT_MAX], length[MW_FMT_MAX];
    enum mw_span_kind kind = (enum mw_span_kind)s->kind;
    lane_bounds(c, s->stream, &top, &height);
    mw_str_addf(c->out,
                "<rect x=\"%.2f\" y=\"%.2f\" width=\"%.2f\" height=\"%.2f\" "
                "fill=\"%s\"",
                x, y + top * c->row_px, w > 4 ? w - 0.8 : fmax(w, 0.3),
                height * c->row_px,
                mw_gantt_colour(kind, mw_gantt_is_light(c->g, row, s)));
    if (w < HOVER_PX) {
        mw_str_add(c->out, "/>\n");
        return;
    }
    mw_str_addf(c->out, "><title>%s", mw_gantt_kind_title(kind));
    if (s->microbatch >= 0) {
        mw_str_addf(c->out, ", micro-batch %d", s->microbatch);
    }
    mw_str_addf(c->out, ": %s long from %s</title></rect>\n",
                mw_fmt_seconds(mw_time_to_s(end_ps - s->start_ps), length),
                mw_fmt_seconds(mw_time_to_s(s->start_ps), start));
    if (s->stream == MW_STREAM_COMPUTE && s->microbatch >= 0 && w >= LABEL_PX &&
        c->row_px >= 16) {
        mw_str_addf(c->out,
                    "<text x=\"%.2f\" y=\"%.2f\" text-anchor=\"middle\" "
                    "fill=\"#fff\" font-size=\"9\" pointer-events=\"none\">%d"
                    "</text>\n",
                    x + w / 2, y + (top + height / 2) * c->row_px + 3,
                    s->microbatch);
    }
}

/* Spans of a row; touching ones of one kind and micro-batch become one box. */
static void put_row(struct canvas *c, double y, const struct mw_gantt_row *row)
{
    const struct mw_span *open = NULL;
    mw_time end_ps = 0, near_ps = (mw_time)(0.25 / c->px_per_ps);
    for (size_t i = 0; i < row->n_spans; i++) {
        const struct mw_span *s = &row->spans[i];
        if (s->end_ps == s->start_ps || s->kind == MW_SPAN_BUBBLE) {
            continue;
        }
        bool joins = open != NULL && open->stream == s->stream &&
                     open->kind == s->kind &&
                     open->microbatch == s->microbatch &&
                     open->stage == s->stage && s->start_ps - end_ps <= near_ps;
        if (open != NULL && !joins) {
            put_box(c, y, row, open, end_ps);
        }
        open = joins ? open : s;
        end_ps = s->end_ps;
    }
    if (open != NULL) {
        put_box(c, y, row, open, end_ps);
    }
}

static void put_track(struct canvas *c, double y,
                      const struct mw_gantt_row *row)
{
    const struct mw_timeline *t = c->g->panels[row->panel].timeline;
    char name[32];
    mw_str_addf(c->out,
                "<rect x=\"%d\" y=\"%.2f\" width=\"%.2f\" height=\"%.2f\" "
                "fill=\"#fff\" stroke=\"#d5d8dc\"/>\n"
                "<text x=\"%d\" y=\"%.2f\" text-anchor=\"end\">%s</text>\n",
                LEFT_PX, y + 0.02 * c->row_px,
                x_of(c, mw_timeline_window_ps(t)) - LEFT_PX, 0.96 * c->row_px,
                LEFT_PX - 6, y + 0.5 * c->row_px + 4,
                mw_gantt_row_name(row, name));
}

static void put_axis(struct canvas *c, double y)
{
    double whole = c->g->per_ps * (double)c->g->window_ps;
    double raw = whole / TICKS, ten = pow(10, floor(log10(raw)));
    double step = raw / ten > 5   ? 10 * ten
                  : raw / ten > 2 ? 5 * ten
                  : raw / ten > 1 ? 2 * ten
                                  : ten;
    for (int i = 0; i * step <= whole * (1 + 1e-9); i++) {
        double x = LEFT_PX + PLOT_PX * (i * step / whole);
        mw_str_addf(c->out,
                    "<line x1=\"%.2f\" y1=\"%.2f\" x2=\"%.2f\" y2=\"%.2f\" "
                    "stroke=\"#888\"/><text x=\"%.2f\" y=\"%.2f\" "
                    "text-anchor=\"middle\">%.6g %s</text>\n",
                    x, y, x, y + 4, x, y + 16, i * step, c->g->unit);
    }
}

static void put_legend(struct canvas *c, double y)
{
    double x = LEFT_PX;
    for (int k = 0; k < MW_SPAN_KIND_COUNT; k++) {
        if (!c->g->has_kind[k] && k != MW_SPAN_BUBBLE) {
            continue;
        }
        mw_str_addf(c->out,
                    "<rect x=\"%.0f\" y=\"%.0f\" width=\"12\" height=\"12\" "
                    "fill=\"%s\" stroke=\"#999\"/><text x=\"%.0f\" y=\"%.0f\">"
                    "%s</text>\n",
                    x, y, mw_gantt_colour((enum mw_span_kind)k, false), x + 16,
                    y + 10, mw_gantt_kind_title((enum mw_span_kind)k));
        x += 115;
    }
}

static void put_panels(struct canvas *c, double y)
{
    size_t row = 0;
    char title[160];
    for (int p = 0; p < c->g->n_panels; p++) {
        mw_str_addf(c->out, "<text x=\"%d\" y=\"%.2f\" font-size=\"13\">",
                    LEFT_PX, y + 16);
        mw_page_escape(c->out, mw_gantt_panel_title(&c->g->panels[p], title,
                                                    sizeof title));
        mw_str_add(c->out, "</text>\n");
        y += TITLE_PX;
        for (; row < c->g->rows.n && c->g->rows.v[row].panel == p; row++) {
            put_track(c, y, &c->g->rows.v[row]);
            put_row(c, y, &c->g->rows.v[row]);
            y += c->row_px;
        }
    }
    put_axis(c, y + 4);
}

static void draw(const struct mw_gantt *g, struct mw_str *out)
{
    double rows = (double)g->rows.n;
    struct canvas c = {.g = g,
                       .out = out,
                       .row_px = fmin(ROW_PX, ROWS_PX_MAX / rows),
                       .px_per_ps = PLOT_PX / (double)g->window_ps};
    double height =
        LEGEND_PX + g->n_panels * TITLE_PX + rows * c.row_px + AXIS_PX;
    find_lanes(&c);
    mw_str_addf(out,
                "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" "
                "height=\"%.0f\" viewBox=\"0 0 %d %.0f\" role=\"img\">\n",
                WIDTH_PX, height, WIDTH_PX, height);
    put_legend(&c, 4);
    put_panels(&c, LEGEND_PX);
    mw_str_add(out, "</svg>\n");
}

void mw_page_gantt(struct mw_page *page, const struct mw_plot_panel *panels,
                   size_t n_panels)
{
    struct mw_gantt g;
    struct mw_err err = {0};
    if (mw_gantt_open(&g, "", panels, n_panels, &err) == MW_OK) {
        draw(&g, &page->html);
    } else {
        mw_page_text(page, "%s", err.text);
    }
    mw_array_release(&g.rows);
}

const char *mw_page_kind_colour(enum mw_span_kind kind)
{
    return mw_gantt_colour(kind, false);
}
