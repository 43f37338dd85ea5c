/*
 * Tasks that share wires. The run without sharing (graph.c) stands up to the
 * first moment at which a wire is too narrow for those that use it; from there
 * the events are taken in the order of time:
 *
 *   level of a wire   the share L with sum of min(part, L) = 1 over the tasks
 *                     that use it now; no limit while the parts fit
 *   pace of a task    min over its wires of min(1, L / part)
 *   end               what is left / pace, anew whenever the pace changes
 *
 * Max-min fairness per wire (Bertsekas and Gallager, "Data Networks", 1992,
 * section 6.5.2). Left out: what a task that is held up on one wire leaves
 * unused on another is not handed out again.
 */
#include "sim/engine/graph_int.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Parts that add up to one are added with rounding. */
#define FULL (1 + 1e-9)

struct flow {
    double left_ps, pace; /* pace 0: has just started */
    mw_time since_ps;     /* left_ps is as of then */
    uint32_t version;     /* of its end in the queue */
};

struct wire {
    MW_ARRAY(mw_task_id) active; /* in the order in which they started */
    MW_ARRAY(double) part;
    double level;
    bool is_dirty;
};

struct share {
    struct mw_graph *g;
    mw_time *start_ps, *end_ps, now_ps;
    size_t n;
    uint32_t *waits;
    uint32_t *first_use; /* [n + 1] into use */
    struct wire_use *use;
    struct flow *flow;
    struct wire *wire;
    MW_ARRAY(mw_wire_id) dirty;
    struct mw_evq queue;
};

enum { EVENT_START = 0 }; /* others: the end, of version kind - 1 */

mw_wire_id mw_graph_wire(struct mw_graph *g)
{
    return g->n_wires++;
}

void mw_graph_use(struct mw_graph *g, mw_task_id task, mw_wire_id wire,
                  double part)
{
    MW_ASSERT(task < g->duration_ps.n && wire < g->n_wires,
              "task %u of %zu, wire %u of %u", task, g->duration_ps.n, wire,
              g->n_wires);
    MW_ASSERT(part >= 0 && part <= FULL, "part %g", part);
    struct wire_use use = {.task = task, .wire = wire, .part = part};
    if (part > 0) {
        mw_array_push(&g->uses, use);
    }
}

/* ---- when is a wire too narrow for the first time? ---- */
struct stay {
    mw_wire_id wire;
    mw_time start_ps, end_ps;
    double part;
};

static int by_wire_and_start(const void *a, const void *b)
{
    const struct stay *x = a, *y = b;
    if (x->wire != y->wire) {
        return x->wire < y->wire ? -1 : 1;
    }
    return (x->start_ps > y->start_ps) - (x->start_ps < y->start_ps);
}

/* Those of v[first..i) that are still there when v[i] comes. */
static bool is_too_many(const struct stay *v, size_t *first, size_t i)
{
    double sum = v[i].part;
    size_t keep = *first;
    for (; keep < i && v[keep].end_ps <= v[i].start_ps; keep++) {
    }
    *first = keep; /* early ends behind a long stay are skipped below */
    for (size_t k = keep; k < i; k++) {
        sum += v[k].end_ps > v[i].start_ps ? v[k].part : 0;
    }
    return sum > FULL;
}

static bool first_conflict(const struct mw_graph *g, const mw_time *start_ps,
                           const mw_time *end_ps, mw_time *out_ps)
{
    struct stay *v = mw_calloc(g->uses.n + 1, sizeof *v);
    size_t n = 0, first = 0;
    mw_time earliest_ps = INT64_MAX;
    for (size_t i = 0; i < g->uses.n; i++) {
        const struct wire_use *u = &g->uses.v[i];
        if (end_ps[u->task] > start_ps[u->task]) {
            v[n++] = (struct stay){u->wire, start_ps[u->task], end_ps[u->task],
                                   u->part};
        }
    }
    qsort(v, n, sizeof *v, by_wire_and_start);
    for (size_t i = 0; i < n; i++) {
        if (i == 0 || v[i].wire != v[i - 1].wire) {
            first = i;
        }
        if (v[i].start_ps < earliest_ps && is_too_many(v, &first, i)) {
            earliest_ps = v[i].start_ps;
        }
    }
    mw_free(v);
    *out_ps = earliest_ps;
    return earliest_ps < INT64_MAX;
}

/* ---- pace ---- */
static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double level_of(const struct wire *w)
{
    double sum = 0, left = 1, level = (double)INFINITY;
    for (size_t i = 0; i < w->part.n; i++) {
        sum += w->part.v[i];
    }
    if (sum <= FULL) {
        return level;
    }
    double *part = mw_calloc(w->part.n, sizeof *part);
    memcpy(part, w->part.v, w->part.n * sizeof *part);
    qsort(part, w->part.n, sizeof *part, by_size);
    for (size_t i = 0; i < w->part.n; i++) {
        level = left / (double)(w->part.n - i);
        if (part[i] > level) {
            break;
        }
        left -= part[i];
    }
    mw_free(part);
    return level;
}

static double pace_of(const struct share *s, mw_task_id t)
{
    double pace = 1;
    for (uint32_t i = s->first_use[t]; i < s->first_use[t + 1]; i++) {
        pace = fmin(pace, s->wire[s->use[i].wire].level / s->use[i].part);
    }
    return pace;
}

static void touch(struct share *s, mw_wire_id wire)
{
    if (!s->wire[wire].is_dirty) {
        s->wire[wire].is_dirty = true;
        mw_array_push(&s->dirty, wire);
    }
}

/* The task goes on at a new pace. False when its end is out of range. */
static bool set_pace(struct share *s, mw_task_id t, double pace)
{
    struct flow *f = &s->flow[t];
    if (!(fabs(pace - f->pace) > 0)) {
        return true;
    }
    f->left_ps =
        fmax(0, f->left_ps - (double)(s->now_ps - f->since_ps) * f->pace);
    f->since_ps = s->now_ps;
    f->pace = pace;
    f->version++;
    double ends = ceil(f->left_ps / pace) + (double)s->now_ps;
    if (ends >= 9e18) {
        return false;
    }
    mw_evq_push(&s->queue, s->now_ps + (mw_time)ceil(f->left_ps / pace),
                f->version + 1, t);
    return true;
}

static bool update_paces(struct share *s, mw_task_id *out_task)
{
    for (size_t i = 0; i < s->dirty.n; i++) {
        struct wire *w = &s->wire[s->dirty.v[i]];
        w->level = level_of(w);
    }
    for (size_t i = 0; i < s->dirty.n; i++) {
        struct wire *w = &s->wire[s->dirty.v[i]];
        w->is_dirty = false;
        for (size_t k = 0; k < w->active.n; k++) {
            *out_task = w->active.v[k];
            if (!set_pace(s, *out_task, pace_of(s, *out_task))) {
                return false;
            }
        }
    }
    mw_array_clear(&s->dirty);
    return true;
}

/* ---- events ---- */
static void enter_wires(struct share *s, mw_task_id t)
{
    for (uint32_t i = s->first_use[t]; i < s->first_use[t + 1]; i++) {
        struct wire *w = &s->wire[s->use[i].wire];
        mw_array_push(&w->active, t);
        mw_array_push(&w->part, s->use[i].part);
        touch(s, s->use[i].wire);
    }
}

static void leave_wires(struct share *s, mw_task_id t)
{
    for (uint32_t i = s->first_use[t]; i < s->first_use[t + 1]; i++) {
        struct wire *w = &s->wire[s->use[i].wire];
        size_t k = 0;
        while (w->active.v[k] != t) {
            k++;
        }
        for (w->active.n--, w->part.n--; k < w->active.n; k++) {
            w->active.v[k] = w->active.v[k + 1];
            w->part.v[k] = w->part.v[k + 1];
        }
        touch(s, s->use[i].wire);
    }
}

static bool is_flow(const struct share *s, mw_task_id t)
{
    return s->first_use[t + 1] > s->first_use[t] && s->g->duration_ps.v[t] > 0;
}

static void begin(struct share *s, mw_task_id t)
{
    mw_time ps = s->g->duration_ps.v[t];
    s->start_ps[t] = s->now_ps;
    if (is_flow(s, t)) {
        s->flow[t] =
            (struct flow){.left_ps = (double)ps, .since_ps = s->now_ps};
        enter_wires(s, t);
    } else {
        mw_evq_push(&s->queue, s->now_ps + ps, 1, t);
    }
}

/* false: a time that overflows. */
static bool finish(struct share *s, mw_task_id t)
{
    const struct mw_graph *g = s->g;
    s->end_ps[t] = s->now_ps;
    if (is_flow(s, t)) {
        leave_wires(s, t);
    }
    for (uint32_t i = g->first.v[t]; i < g->first.v[t + 1]; i++) {
        mw_task_id after = g->out.v[i].after;
        mw_time at_ps;
        if (__builtin_add_overflow(s->now_ps, g->out.v[i].lag_ps, &at_ps) ||
            at_ps > INT64_MAX - g->duration_ps.v[after]) {
            return false;
        }
        if (at_ps > s->start_ps[after]) {
            s->start_ps[after] = at_ps;
        }
        if (--s->waits[after] > 0) {
            continue;
        }
        if (s->start_ps[after] > s->now_ps) {
            mw_evq_push(&s->queue, s->start_ps[after], EVENT_START, after);
        } else {
            begin(s, after);
        }
    }
    return true;
}

static bool take_events(struct share *s, uint64_t *n_events,
                        mw_task_id *out_task)
{
    struct mw_event e;
    for (;;) {
        if (s->dirty.n > 0 &&
            (s->queue.n == 0 || s->queue.v[0].t_ps > s->now_ps) &&
            !update_paces(s, out_task)) {
            return false;
        }
        if (!mw_evq_pop(&s->queue, &e)) {
            return true;
        }
        ++*n_events;
        s->now_ps = e.t_ps;
        *out_task = e.arg;
        if (e.kind == EVENT_START) {
            begin(s, e.arg);
        } else if (e.kind == s->flow[e.arg].version + 1 && !finish(s, e.arg)) {
            return false;
        }
    }
}

/* ---- from the run without sharing ---- */
static void sort_uses(struct share *s)
{
    const struct mw_graph *g = s->g;
    for (size_t i = 0; i < g->uses.n; i++) {
        s->first_use[g->uses.v[i].task + 1]++;
    }
    for (size_t t = 0; t < s->n; t++) {
        s->first_use[t + 1] += s->first_use[t];
    }
    uint32_t *next = mw_calloc(s->n + 1, sizeof *next);
    memcpy(next, s->first_use, s->n * sizeof *next);
    for (size_t i = 0; i < g->uses.n; i++) {
        s->use[next[g->uses.v[i].task]++] = g->uses.v[i];
    }
    mw_free(next);
}

/* Tasks that have started by now_ps stand; the others wait anew for those that
 * have not ended by then. */
static void rewind_to(struct share *s)
{
    const struct mw_graph *g = s->g;
    for (size_t i = 0; i < g->edges.n; i++) {
        const struct edge *e = &g->edges.v[i];
        MW_ASSERT(e->lag_ps >= 0, "lag %lld ps", (long long)e->lag_ps);
        s->waits[e->after] += s->end_ps[e->before] > s->now_ps;
    }
    for (size_t t = 0; t < s->n; t++) {
        mw_task_id id = (mw_task_id)t;
        if (s->start_ps[t] > s->now_ps) {
            if (s->waits[t] == 0) {
                mw_evq_push(&s->queue, s->start_ps[t], EVENT_START, id);
            } else {
                s->start_ps[t] = 0;
            }
        } else if (s->end_ps[t] > s->now_ps && is_flow(s, id)) {
            s->flow[t] =
                (struct flow){.left_ps = (double)(s->end_ps[t] - s->now_ps),
                              .since_ps = s->now_ps};
            enter_wires(s, id);
        } else if (s->end_ps[t] > s->now_ps) {
            mw_evq_push(&s->queue, s->end_ps[t], 1, id);
        }
    }
    /* lags of predecessors that have ended */
    for (size_t i = 0; i < g->edges.n; i++) {
        const struct edge *e = &g->edges.v[i];
        mw_time at_ps = s->end_ps[e->before] + e->lag_ps;
        if (s->end_ps[e->before] <= s->now_ps && s->waits[e->after] > 0 &&
            at_ps > s->start_ps[e->after]) {
            s->start_ps[e->after] = at_ps;
        }
    }
}

static void share_init(struct share *s, struct mw_graph *g)
{
    s->n = g->duration_ps.n;
    s->waits = mw_calloc(s->n + 1, sizeof *s->waits);
    s->first_use = mw_calloc(s->n + 2, sizeof *s->first_use);
    s->use = mw_calloc(g->uses.n + 1, sizeof *s->use);
    s->flow = mw_calloc(s->n + 1, sizeof *s->flow);
    s->wire = mw_calloc(g->n_wires + 1, sizeof *s->wire);
    for (uint32_t w = 0; w < g->n_wires; w++) {
        s->wire[w].level = (double)INFINITY;
    }
    mw_evq_init(&s->queue);
}

static void share_release(struct share *s)
{
    for (uint32_t w = 0; w < s->g->n_wires; w++) {
        mw_array_release(&s->wire[w].active);
        mw_array_release(&s->wire[w].part);
    }
    mw_array_release(&s->dirty);
    mw_evq_release(&s->queue);
    mw_free(s->waits);
    mw_free(s->first_use);
    mw_free(s->use);
    mw_free(s->flow);
    mw_free(s->wire);
}

enum mw_status mw_graph_share_wires(struct mw_graph *g, mw_time *start_ps,
                                    mw_time *end_ps, uint64_t *n_events,
                                    struct mw_err *err)
{
    struct share s = {.g = g, .start_ps = start_ps, .end_ps = end_ps};
    enum mw_status status = MW_OK;
    mw_task_id at_task = 0;
    if (g->uses.n < 2 || !first_conflict(g, start_ps, end_ps, &s.now_ps)) {
        return MW_OK;
    }
    share_init(&s, g);
    sort_uses(&s);
    rewind_to(&s);
    if (!take_events(&s, n_events, &at_task)) {
        status = mw_graph_fail_overflow(g, at_task, err);
    }
    share_release(&s);
    return status;
}
