/*
 * `meshwright sched --plot`: Gantt charts of a schedule. Files go through
 * plots/ (gnuplot); the terminal's is drawn here, a row a stage, a character a
 * slice of time with the pass that starts or runs in it, in the colours of the
 * literature (F blue, B cyan, W green, optimizer grey) when standard output is
 * a terminal.
 */
#include "cli/sched.h"

#include "plots/plot.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* ---- files ------------------------------------------------------------------
 */
static void add_span(struct mw_timeline *t, const struct mw_sched_made *m,
                     int d, const struct mw_slot *x, enum mw_span_kind kind,
                     mw_time start, mw_time end)
{
    char name[MW_SLOT_NAME_MAX];
    struct mw_span s = {.start_ps = start,
                        .end_ps = end,
                        .rank = d,
                        .microbatch = x->microbatch / m->s.n_parts,
                        .stage = d,
                        .stream = MW_STREAM_COMPUTE,
                        .kind = (uint16_t)kind};

    s.name = mw_timeline_name(t, mw_slot_name(&m->s, x, name));
    mw_timeline_add(t, &s);
}

/* BW as B then W; the passes of a pair one after the other in its time. */
static void add_slot(struct mw_timeline *t, const struct mw_sched_made *m,
                     int d, const struct mw_slot *x, mw_time start, mw_time end)
{
    size_t at = (size_t)d * (size_t)m->s.n_chunks + (size_t)x->chunk;
    mw_time both = m->b_ps[at] + m->w_ps[at], turn;

    switch ((enum mw_pass)x->pass) {
    case MW_PASS_F:
        add_span(t, m, d, x, MW_SPAN_F, start, end);
        break;
    case MW_PASS_B:
        add_span(t, m, d, x, MW_SPAN_B, start, end);
        break;
    case MW_PASS_W:
        add_span(t, m, d, x, MW_SPAN_W, start, end);
        break;
    case MW_PASS_BW:
        turn = start + (mw_time)((double)(end - start) * (double)m->b_ps[at] /
                                 (double)(both > 0 ? both : 1));
        add_span(t, m, d, x, MW_SPAN_B, start, turn);
        add_span(t, m, d, x, MW_SPAN_W, turn, end);
        break;
    case MW_PASS_COUNT:
        break;
    }
}

static void add_device(struct mw_timeline *t, const struct mw_sched_made *m,
                       int d)
{
    const struct mw_schedule *s = &m->s;
    struct mw_slot none = {.pass = MW_PASS_COUNT};
    uint32_t i;

    for (i = s->first[d]; i < s->first[d + 1]; i++) {
        mw_time start = m->run.start_ps[i], end = m->run.end_ps[i];
        mw_time half = start + (end - start) / 3;

        if ((s->slot[i].flags & MW_SLOT_PAIR) != 0) {
            add_slot(t, m, d, &s->slot[i], start, half);
            i++;
            start = half;
        }
        add_slot(t, m, d, &s->slot[i], start, end);
    }
    if (i > s->first[d] && m->opt_ps[d] > 0) {
        mw_time end = m->run.end_ps[i - 1];

        add_span(t, m, d, &none, MW_SPAN_OPTIMIZER, end, end + m->opt_ps[d]);
    }
}

static enum mw_status plot_file(const struct mw_sched_made *m, const char *path,
                                struct mw_err *err)
{
    struct mw_timeline t;
    struct mw_plot_panel panel = {&t, m->s.name};
    char title[128];
    enum mw_status st;

    mw_timeline_init(&t);
    t.n_ranks = m->s.n_stages;
    t.step_time_s = mw_time_to_s(m->run.makespan_ps);
    snprintf(t.clock, sizeof t.clock, "simulated");
    for (int d = 0; d < m->s.n_stages; d++) {
        add_device(&t, m, d);
    }
    snprintf(title, sizeof title, "%s, %d stages, %d micro-batches", m->s.name,
             m->s.n_stages, m->s.n_microbatches);
    st = mw_plot_gantt(title, &panel, 1, path, err);
    mw_timeline_release(&t);
    return st;
}

/* ---- terminal
 * ---------------------------------------------------------------- */
enum { CELLS_MAX = 160, ROWS_MAX = 128 };

/* What a cell shows: 0 waiting, 'F', 'B', 'W', 'O'. */
static char letter_at(const struct mw_sched_made *m, int d, uint32_t *at,
                      mw_time t)
{
    const struct mw_schedule *s = &m->s;
    uint32_t end = s->first[d + 1], i;
    size_t c;

    while (*at < end && m->run.end_ps[*at] <= t) {
        ++*at;
    }
    i = *at;
    if (i == end) {
        return i > s->first[d] && t < m->run.end_ps[i - 1] + m->opt_ps[d] ? 'O'
                                                                          : 0;
    }
    if (m->run.start_ps[i] > t) {
        return 0;
    }
    c = (size_t)d * (size_t)s->n_chunks + (size_t)s->slot[i].chunk;
    switch ((enum mw_pass)s->slot[i].pass) {
    case MW_PASS_F:
        return 'F';
    case MW_PASS_B:
        return 'B';
    case MW_PASS_W:
        return 'W';
    case MW_PASS_BW:
        return t < m->run.start_ps[i] + m->b_ps[c] ? 'B' : 'W';
    case MW_PASS_COUNT:
        break;
    }
    return 0;
}

static void put_cell(char letter, int chunk_shade, bool is_colour)
{
    static const char letters[] = "FBWO";
    static const int background[] = {44, 46, 42, 100};
    const char *found = letter != 0 ? strchr(letters, letter) : NULL;

    if (found == NULL) {
        putchar(' ');
    } else if (is_colour) {
        printf("\033[%d;%dm%c\033[0m", chunk_shade ? 97 : 30,
               background[found - letters], letter);
    } else {
        putchar(letter);
    }
}

static void draw_row(const struct mw_sched_made *m, int d, int cells,
                     mw_time from, bool is_colour)
{
    uint32_t at = m->s.first[d];

    printf("%4d |", d);
    for (int i = 0; i < cells; i++) {
        mw_time t = from + (mw_time)(((double)i + 0.5) *
                                     (double)m->run.makespan_ps / cells);
        char letter = letter_at(m, d, &at, t);
        int shade = at < m->s.first[d + 1] && m->s.slot[at].chunk % 2 == 1;

        put_cell(letter, shade, is_colour);
    }
    printf("|\n");
}

static void plot_terminal(const struct mw_sched_made *m)
{
    mw_time from = INT64_MAX, shortest = INT64_MAX;
    int rows = m->s.n_stages < ROWS_MAX ? m->s.n_stages : ROWS_MAX, cells;
    size_t n = (size_t)m->s.n_stages * (size_t)m->s.n_chunks;

    for (int d = 0; d < m->s.n_stages; d++) {
        mw_time start = m->run.start_ps[m->s.first[d]];

        from = start < from ? start : from;
    }
    for (size_t i = 0; i < n; i++) {
        shortest = m->f_ps[i] < shortest ? m->f_ps[i] : shortest;
    }
    /* One cell the shortest forward, when that fits. */
    cells = shortest > 0 && m->run.makespan_ps / shortest < CELLS_MAX
                ? (int)(m->run.makespan_ps / shortest)
                : CELLS_MAX;
    printf("\n");
    for (int d = 0; d < rows; d++) {
        draw_row(m, d, cells > 0 ? cells : 1, from, isatty(1) != 0);
    }
    printf("F forward, B input gradient, W weight gradient%s\n",
           m->opt_ps[0] > 0 ? ", O optimizer" : "");
}

enum mw_status mw_sched_plot(const struct mw_sched_made *m, const char *path,
                             struct mw_err *err)
{
    if (strcmp(path, "-") == 0) {
        plot_terminal(m);
        return MW_OK;
    }
    return plot_file(m, path, err);
}
