/*
 * Gantt charts as pictures.
 *
 *   predicted: 12.34 ms
 *   stage 0 |FFFFFFFF   BBBBWWWW |   compute in the upper part of a row,
 *           |   ==    ==         |   a lane for each communication stream
 *   stage 1 |   FFFFFBBBBWWWW    |   below; what stays white is bubble
 *
 * All panels lie in one plot, so they share one time axis; y counts rows
 * downwards. Boxes of one kind are one data block, drawn in the kind's colour.
 * Spans of one kind and micro-batch that touch (closer than a quarter of a
 * pixel) are drawn as one, which keeps pictures of long steps small.
 */
#include "plots/gantt_int.h"

#include <math.h>
#include <string.h>

/* Pixels of the picture. */
enum {
    LEFT_PX = 84,
    RIGHT_PX = 28,
    TOP_PX = 92,
    BOTTOM_PX = 62,
    ROW_PX = 46,
    ROWS_PX_MAX = 1400, /* all rows together, then rows get lower */
    LABEL_PX = 15       /* narrowest box that gets its micro-batch */
};
static const int PLOT_PX = MW_PLOT_WIDTH_PX - LEFT_PX - RIGHT_PX;

/* In rows: room for a panel's title, and between panels. */
static const double TITLE_ROWS = 0.62, GAP_ROWS = 0.25;

/* ---- geometry
 * ------------------------------------------------------------------- */
struct canvas {
    const struct mw_gantt *g;
    struct mw_plot_job *job;
    double row_y[MW_PLOT_ROWS_MAX];     /* top of each row */
    double title_y[MW_PLOT_PANELS_MAX]; /* top of each panel's title */
    double total_y;
    int lane[MW_STREAM_COUNT]; /* from 1; 0: the stream has no spans */
    int n_lanes;
    mw_time px_ps; /* time of a pixel */
};

static void place(struct canvas *c)
{
    const struct mw_gantt *g = c->g;
    double y = 0;
    size_t row = 0;
    for (int p = 0; p < g->n_panels; p++) {
        y += p > 0 ? GAP_ROWS : 0;
        c->title_y[p] = y;
        y += TITLE_ROWS;
        for (; row < g->rows.n && g->rows.v[row].panel == p; row++) {
            c->row_y[row] = y;
            y += 1;
        }
    }
    c->total_y = y;
    c->px_ps = g->window_ps / PLOT_PX + 1;
    bool is_used[MW_STREAM_COUNT] = {false};
    for (size_t r = 0; r < g->rows.n; r++) {
        for (size_t i = 0; i < g->rows.v[r].n_spans; i++) {
            is_used[g->rows.v[r].spans[i].stream] = true;
        }
    }
    for (int s = MW_STREAM_COMPUTE + 1; s < MW_STREAM_COUNT; s++) {
        c->lane[s] = is_used[s] ? ++c->n_lanes : 0;
    }
}

/* Top and bottom of a stream's lane in a row, from its top, in rows. */
static void lane_bounds(const struct canvas *c, int stream, double *top,
                        double *bottom)
{
    double comm = c->n_lanes == 0 ? 0 : c->n_lanes == 1 ? 0.2 : 0.34;
    if (c->lane[stream] == 0) {
        *top = 0.06;
        *bottom = 0.92 - comm;
        return;
    }
    double height = comm / c->n_lanes;
    *top = 0.94 - comm + height * (c->lane[stream] - 1);
    *bottom = *top + 0.86 * height;
}

/* ---- boxes
 * ------------------------------------------------------------------------ */
static void put_box(struct canvas *c, size_t row, const struct mw_span *s,
                    mw_time end_ps)
{
    double top, bottom;
    lane_bounds(c, s->stream, &top, &bottom);
    const struct mw_gantt_row *r = &c->g->rows.v[row];
    mw_str_addf(&c->job->data, "%.9g %.9g %.4f %.4f %d %d %d %d\n",
                c->g->per_ps * (double)s->start_ps,
                c->g->per_ps * (double)end_ps, c->row_y[row] + top,
                c->row_y[row] + bottom, r->panel, r->rank, s->stage,
                s->microbatch);
}

/* Boxes of a row of one kind and shade; touching spans become one box. */
static size_t put_row(struct canvas *c, size_t row, int kind, bool light)
{
    const struct mw_gantt_row *r = &c->g->rows.v[row];
    const struct mw_span *open = NULL;
    mw_time end_ps = 0;
    size_t n = 0;
    for (size_t i = 0; i < r->n_spans; i++) {
        const struct mw_span *s = &r->spans[i];
        if (s->kind != kind || mw_gantt_is_light(c->g, r, s) != light ||
            s->end_ps == s->start_ps) {
            continue;
        }
        bool joins = open && open->stream == s->stream &&
                     open->microbatch == s->microbatch &&
                     open->stage == s->stage &&
                     s->start_ps - end_ps <= c->px_ps / 4;
        if (open && !joins) {
            put_box(c, row, open, end_ps);
            n++;
        }
        open = joins ? open : s;
        end_ps = s->end_ps;
    }
    if (open) {
        put_box(c, row, open, end_ps);
        n++;
    }
    return n;
}

static size_t put_block(struct canvas *c, int kind, bool light)
{
    size_t n = 0;
    size_t mark = c->job->data.n;
    mw_str_addf(&c->job->data,
                "# %s%s: start_%s end_%s y_top y_bottom panel rank stage "
                "microbatch\n",
                mw_span_kind_name((enum mw_span_kind)kind),
                light ? " (odd chunks)" : "", c->g->unit, c->g->unit);
    for (size_t row = 0; row < c->g->rows.n; row++) {
        n += put_row(c, row, kind, light);
    }
    if (n == 0) { /* gnuplot counts blocks by their data */
        c->job->data.n = mark;
        if (c->job->data.s) {
            c->job->data.s[mark] = '\0';
        }
        return 0;
    }
    mw_str_add(&c->job->data, "\n\n");
    return n;
}

/* ---- the rest of the picture
 * ---------------------------------------------------- */
/* White tracks behind the rows: what stays of them is bubble. Block 0. */
static void put_tracks(struct canvas *c)
{
    const struct mw_gantt *g = c->g;
    mw_str_addf(&c->job->data, "# steps: start_%s end_%s y_top y_bottom\n",
                g->unit, g->unit);
    for (size_t r = 0; r < g->rows.n; r++) {
        const struct mw_timeline *t = g->panels[g->rows.v[r].panel].timeline;
        mw_str_addf(&c->job->data, "0 %.9g %.4f %.4f\n",
                    g->per_ps * (double)mw_timeline_window_ps(t),
                    c->row_y[r] + 0.02, c->row_y[r] + 0.98);
    }
    mw_str_add(&c->job->data, "\n\n");
}

static void put_frame(struct canvas *c, double height_px)
{
    struct mw_str *out = &c->job->commands;
    const struct mw_gantt *g = c->g;
    mw_str_addf(out,
                "set lmargin at screen %.5f\nset rmargin at screen %.5f\n"
                "set tmargin at screen %.5f\nset bmargin at screen %.5f\n",
                (double)LEFT_PX / MW_PLOT_WIDTH_PX,
                1 - (double)RIGHT_PX / MW_PLOT_WIDTH_PX, 1 - TOP_PX / height_px,
                BOTTOM_PX / height_px);
    mw_str_addf(out,
                "set xrange [0:%.9g]\nset yrange [%.4f:0]\n"
                "set border 1 lc rgb '#555555'\n"
                "set xtics nomirror out scale 0.6 tc rgb '#333333'\n"
                "set grid xtics lt 1 lw 0.5 lc rgb '#dddddd' back\n"
                "set xlabel 'time (%s)' tc rgb '#333333'\n",
                g->per_ps * (double)g->window_ps, c->total_y, g->unit);
    mw_str_add(out, "set label ");
    mw_plot_job_quote(c->job, g->title);
    mw_str_addf(out,
                " at screen %.5f,%.5f left font ',%d' tc rgb '#111111'\n"
                "set key at screen 0.5,%.5f center top horizontal Left "
                "reverse samplen 1.6 width 2 tc rgb '#333333'\n",
                (double)LEFT_PX / MW_PLOT_WIDTH_PX, 1 - 24 / height_px,
                c->job->target == MW_PLOT_PNG ? 12 : 16, 1 - 44 / height_px);
}

static void put_names(struct canvas *c)
{
    struct mw_str *out = &c->job->commands;
    char text[160], name[32];
    mw_str_add(out, "set ytics scale 0 tc rgb '#333333' (");
    for (size_t r = 0; r < c->g->rows.n; r++) {
        mw_str_add(out, r > 0 ? ", " : "");
        mw_plot_job_quote(c->job, mw_gantt_row_name(&c->g->rows.v[r], name));
        mw_str_addf(out, " %.4f", c->row_y[r] + 0.5);
    }
    mw_str_add(out, ")\n");
    for (int p = 0; p < c->g->n_panels; p++) {
        mw_str_add(out, "set label ");
        mw_plot_job_quote(
            c->job, mw_gantt_panel_title(&c->g->panels[p], text, sizeof text));
        mw_str_addf(out, " at first 0,%.4f left offset 0,0 tc rgb '#111111'\n",
                    c->title_y[p] + TITLE_ROWS * 0.55);
    }
}

/* The end of a panel's step, through its rows. */
static void put_ends(struct canvas *c)
{
    const struct mw_gantt *g = c->g;
    for (int p = 0; p < g->n_panels; p++) {
        double bottom =
            p + 1 < g->n_panels ? c->title_y[p + 1] - GAP_ROWS : c->total_y;
        double x =
            g->per_ps * (double)mw_timeline_window_ps(g->panels[p].timeline);
        mw_str_addf(&c->job->commands,
                    "set arrow from %.9g,%.4f to %.9g,%.4f nohead front lw "
                    "1 dt (6,4) lc rgb '#333333'\n",
                    x, c->title_y[p] + 0.25, x, bottom);
    }
}

/* Micro-batch numbers inside the boxes that have room. `i_block` is the box
 * block. */
static void put_labels(struct canvas *c, int i_block, double px, double row_px)
{
    if (row_px < 16) {
        return;
    }
    mw_str_addf(&c->job->commands,
                ", $data index %d using ($2-$1 > %.9g && $8 >= 0 ? "
                "($1+$2)/2 : NaN):(($3+$4)/2):(sprintf('%%d',$8)) with labels "
                "center font ',%d' tc rgb '#ffffff' notitle",
                i_block, LABEL_PX * px, c->job->target == MW_PLOT_PNG ? 7 : 9);
}

/*
 * A box a pixel narrower than its span when it is wide enough, so that
 * neighbours of one colour can be told apart.
 */
static void put_plot(struct canvas *c, double row_px)
{
    struct mw_str *out = &c->job->commands;
    const struct mw_gantt *g = c->g;
    double px = g->per_ps * (double)c->px_ps;
    mw_str_add(out, "plot $data index 0 using (($1+$2)/2):(($3+$4)/2):1:2:3:4 "
                    "with boxxyerror fs solid 1 border lc rgb '#cccccc' lc rgb "
                    "'#ffffff' notitle");
    int i_block = 1;
    for (int k = 0; k < MW_SPAN_BUBBLE; k++) {
        for (int light = 0; light < 2 && g->has_kind[k]; light++) {
            if (put_block(c, k, light) == 0) {
                continue;
            }
            mw_str_addf(out,
                        ", $data index %d using (($1+$2)/2):(($3+$4)/2):1:"
                        "($2-($2-$1 > %.9g ? %.9g : 0)):3:4 with boxxyerror "
                        "fs solid 1 noborder lc rgb '%s' ",
                        i_block, 4 * px, 0.8 * px,
                        mw_gantt_colour((enum mw_span_kind)k, light));
            if (light) {
                mw_str_add(out, "notitle");
            } else {
                mw_str_add(out, "title ");
                mw_plot_job_quote(c->job,
                                  mw_gantt_kind_title((enum mw_span_kind)k));
            }
            if (k <= MW_SPAN_RECOMPUTE) {
                put_labels(c, i_block, px, row_px);
            }
            i_block++;
        }
    }
    /* No point of it is drawn: the legend's white box, last in its place. */
    mw_str_add(out, ", NaN with boxes fs solid 1 border lc rgb '#999999' lc "
                    "rgb '#ffffff' title 'bubble'\n");
}

static void draw(const struct mw_gantt *g, struct mw_plot_job *job)
{
    struct canvas *c = mw_calloc(1, sizeof *c);
    c->g = g;
    c->job = job;
    place(c);
    double row_px = fmin(ROW_PX, ROWS_PX_MAX / c->total_y);
    double height_px = ceil(TOP_PX + BOTTOM_PX + c->total_y * row_px);
    mw_plot_job_terminal(job, MW_PLOT_WIDTH_PX, (int)height_px);
    put_frame(c, height_px);
    put_names(c);
    put_ends(c);
    put_tracks(c);
    put_plot(c, row_px);
    mw_free(c);
}

static void put_head(const struct mw_gantt *g, struct mw_plot_job *job)
{
    char text[160];
    mw_str_add(&job->data, "# ");
    mw_plot_job_comment(job, g->title);
    mw_str_add(&job->data, "\n");
    for (int p = 0; p < g->n_panels; p++) {
        mw_str_addf(&job->data, "# panel %d ", p);
        mw_plot_job_comment(
            job, mw_gantt_panel_title(&g->panels[p], text, sizeof text));
        mw_str_add(&job->data, "\n");
    }
}

enum mw_status mw_plot_gantt(const char *title,
                             const struct mw_plot_panel *panels,
                             size_t n_panels, const char *path,
                             struct mw_err *err)
{
    struct mw_plot_job job;
    enum mw_status status = mw_plot_job_init(&job, path, err);
    if (status != MW_OK) {
        return status;
    }
    struct mw_gantt g;
    status = mw_gantt_open(&g, title, panels, n_panels, err);
    if (status == MW_OK) {
        put_head(&g, &job);
        if (job.target == MW_PLOT_TEXT) {
            mw_gantt_text(&g, &job);
        } else {
            draw(&g, &job);
        }
        status = mw_plot_job_run(&job, err);
    }
    mw_array_release(&g.rows);
    mw_plot_job_release(&job);
    return status;
}
