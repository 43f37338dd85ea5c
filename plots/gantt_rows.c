/*
 * What every Gantt chart begins with: its rows (one for each pipeline stage, or
 * each rank where spans name no stage), its unit, colours and names.
 */
#include "plots/gantt_int.h"

#include <stdio.h>
#include <string.h>

/* Forward blue, input gradient cyan, weight gradient green, optimizer grey,
 * communication in orange tones; the second colour is for odd chunks. */
static const struct {
    const char *title;
    const char *colour, *light;
} looks[MW_SPAN_KIND_COUNT] = {
    [MW_SPAN_F] = {"F forward", "#2f6fd0", "#86aee8"},
    [MW_SPAN_B] = {"B input grad", "#12a5b8", "#7fd0da"},
    [MW_SPAN_W] = {"W weight grad", "#3a9d55", "#8fcda0"},
    [MW_SPAN_RECOMPUTE] = {"recompute", "#7e6bc4", "#b7acdf"},
    [MW_SPAN_TP] = {"TP", "#f2a33a", "#f2a33a"},
    [MW_SPAN_CP] = {"CP", "#f7c873", "#f7c873"},
    [MW_SPAN_EP] = {"EP", "#d98e04", "#d98e04"},
    [MW_SPAN_PP] = {"PP", "#e8702a", "#e8702a"},
    [MW_SPAN_DP] = {"DP", "#c2481a", "#c2481a"},
    [MW_SPAN_OPTIMIZER] = {"optimizer", "#8b9097", "#8b9097"},
    [MW_SPAN_OFFLOAD] = {"offload", "#b08a63", "#b08a63"},
    [MW_SPAN_HOST] = {"host", "#5d6169", "#5d6169"},
    [MW_SPAN_BUBBLE] = {"bubble", "#ffffff", "#ffffff"}};

const char *mw_gantt_kind_title(enum mw_span_kind kind)
{
    return looks[kind].title;
}

const char *mw_gantt_colour(enum mw_span_kind kind, bool light)
{
    return light ? looks[kind].light : looks[kind].colour;
}

const char *mw_gantt_panel_title(const struct mw_plot_panel *panel, char *buf,
                                 size_t len)
{
    char seconds[MW_FMT_MAX];
    double step_s = mw_time_to_s(mw_timeline_window_ps(panel->timeline));
    snprintf(buf, len, "%s: %s", panel->title, mw_fmt_seconds(step_s, seconds));
    return buf;
}

const char *mw_gantt_row_name(const struct mw_gantt_row *row, char buf[32])
{
    if (row->stage >= 0) {
        snprintf(buf, 32, "stage %d", row->stage);
    } else {
        snprintf(buf, 32, "rank %d", row->rank);
    }
    return buf;
}

/* ---- rows
 * ---------------------------------------------------------------------- */
static void add_row(struct mw_gantt *g, int panel,
                    const struct mw_rank_stage *rank, int stage)
{
    struct mw_gantt_row row = {
        .panel = panel,
        .rank = rank->rank,
        .stage = stage,
        .spans = &g->panels[panel].timeline->spans.v[rank->first],
        .n_spans = rank->n};
    mw_array_push(&g->rows, row);
    for (size_t i = 0; i < row.n_spans; i++) {
        g->has_kind[row.spans[i].kind] = true;
    }
}

/* The first rank of the smallest stage above `after`, or NULL. */
static const struct mw_rank_stage *
next_stage(const struct mw_rank_stages *ranks, int after)
{
    const struct mw_rank_stage *best = NULL;
    for (size_t i = 0; i < ranks->n; i++) {
        const struct mw_rank_stage *r = &ranks->v[i];
        if (r->stage > after && (!best || r->stage < best->stage)) {
            best = r;
        }
    }
    return best;
}

static void add_panel(struct mw_gantt *g, int panel)
{
    struct mw_timeline *t = g->panels[panel].timeline;
    struct mw_rank_stages ranks = {.v = NULL};
    size_t before = g->rows.n;
    mw_timeline_stages(t, &ranks);
    const struct mw_rank_stage *r = next_stage(&ranks, -1);
    for (; r; r = next_stage(&ranks, r->stage)) {
        add_row(g, panel, r, r->stage);
    }
    for (size_t i = 0; i < ranks.n && g->rows.n == before + i; i++) {
        add_row(g, panel, &ranks.v[i], -1); /* no stage at all: by rank */
    }
    mw_array_release(&ranks);
    int n = (int)(g->rows.n - before);
    g->n_stages = n > g->n_stages ? n : g->n_stages;
    mw_time window_ps = mw_timeline_window_ps(t);
    g->window_ps = window_ps > g->window_ps ? window_ps : g->window_ps;
}

static void set_unit(struct mw_gantt *g)
{
    double s = mw_time_to_s(g->window_ps);
    g->unit = s >= 1 ? "s" : s >= 1e-3 ? "ms" : s >= 1e-6 ? "us" : "ns";
    g->per_ps = s >= 1 ? 1e-12 : s >= 1e-3 ? 1e-9 : s >= 1e-6 ? 1e-6 : 1e-3;
}

bool mw_gantt_is_light(const struct mw_gantt *g, const struct mw_gantt_row *row,
                       const struct mw_span *s)
{
    return row->stage >= 0 && s->stage > row->stage &&
           s->stage / g->n_stages % 2 == 1;
}

static enum mw_status check(const struct mw_gantt *g, struct mw_err *err)
{
    if (g->rows.n == 0 || g->window_ps == 0) {
        return mw_fail(err, MW_EINPUT,
                       "there is nothing to draw: the timeline has no spans");
    }
    if (g->rows.n > MW_PLOT_ROWS_MAX) {
        return mw_fail(err, MW_EINPUT,
                       "a chart of %zu rows; at most %d can be told apart",
                       g->rows.n, MW_PLOT_ROWS_MAX);
    }
    return MW_OK;
}

enum mw_status mw_gantt_open(struct mw_gantt *g, const char *title,
                             const struct mw_plot_panel *panels,
                             size_t n_panels, struct mw_err *err)
{
    MW_ASSERT(n_panels >= 1 && n_panels <= MW_PLOT_PANELS_MAX, "%zu panels",
              n_panels);
    *g = (struct mw_gantt){
        .title = title, .panels = panels, .n_panels = (int)n_panels};
    for (int p = 0; p < g->n_panels; p++) {
        add_panel(g, p);
    }
    set_unit(g);
    return check(g, err);
}
