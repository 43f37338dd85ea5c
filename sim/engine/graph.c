/*
 * A task graph run: the start of every task by longest paths.
 *
 * The order of the tasks on a stream is fixed when they are added, so "one at
 * a time, in order" is an edge from each task to the next one of the stream,
 * and a task on several streams has an edge from the last task of each. What
 * is left is max-plus arithmetic over a directed graph:
 *
 *   start(t) = max(0, max over edges (p -> t, lag) of end(p) + lag)
 *   end(t)   = start(t) + duration(t)
 *
 * computed in one pass in topological order (Kahn, CACM 5(11), 1962). No time
 * order and no heap are needed: O(tasks + edges). The result does not depend on
 * the order in which ready tasks are taken, as a maximum does not. Where the
 * order of service depends on time (tasks that share a wire), wires.c goes on
 * from here. A cycle leaves tasks that never become ready; one that lies on
 * it is named.
 *
 * Memory: edges as they come, sorted by their source (counting sort) into flat
 * arrays before the run; nothing is allocated inside the loop.
 */
#include "sim/engine/graph_int.h"

#include <inttypes.h>
#include <string.h>

struct mw_graph *mw_graph_new(void)
{
    return mw_calloc(1, sizeof(struct mw_graph));
}

void mw_graph_free(struct mw_graph *g)
{
    if (!g) {
        return;
    }
    mw_array_release(&g->duration_ps);
    mw_array_release(&g->tag);
    mw_array_release(&g->last);
    mw_array_release(&g->edges);
    mw_array_release(&g->waits);
    mw_array_release(&g->first);
    mw_array_release(&g->out);
    mw_array_release(&g->ready);
    mw_array_release(&g->uses);
    mw_free(g);
}

void mw_graph_clear(struct mw_graph *g)
{
    mw_array_clear(&g->duration_ps);
    mw_array_clear(&g->tag);
    mw_array_clear(&g->last);
    mw_array_clear(&g->edges);
    mw_array_clear(&g->uses);
    g->n_wires = 0;
}

size_t mw_graph_size(const struct mw_graph *g)
{
    return g->duration_ps.n;
}

uint64_t mw_graph_tag(const struct mw_graph *g, mw_task_id task)
{
    MW_ASSERT(task < g->tag.n, "task %u of %zu", task, g->tag.n);
    return g->tag.v[task];
}

static const mw_task_id NO_TASK = UINT32_MAX;

mw_stream_id mw_graph_stream(struct mw_graph *g)
{
    MW_ASSERT(g->last.n < UINT32_MAX, "%zu streams", g->last.n);
    mw_array_push(&g->last, NO_TASK);
    return (mw_stream_id)(g->last.n - 1);
}

/* Puts the task at the end of the stream. */
static void append(struct mw_graph *g, mw_task_id task, mw_stream_id stream)
{
    MW_ASSERT(stream < g->last.n, "stream %u of %zu", stream, g->last.n);
    mw_task_id prev = g->last.v[stream];
    if (prev == task) {
        return; /* already there */
    }
    if (prev != NO_TASK) {
        mw_graph_dep(g, prev, task, 0);
    }
    g->last.v[stream] = task;
}

mw_task_id mw_graph_task(struct mw_graph *g, mw_stream_id stream,
                         mw_time duration_ps, uint64_t tag)
{
    MW_ASSERT(duration_ps >= 0, "duration %" PRId64 " ps", duration_ps);
    MW_ASSERT(g->duration_ps.n < NO_TASK, "%zu tasks", g->duration_ps.n);
    mw_task_id id = (mw_task_id)g->duration_ps.n;
    mw_array_push(&g->duration_ps, duration_ps);
    mw_array_push(&g->tag, tag);
    append(g, id, stream);
    return id;
}

void mw_graph_also_on(struct mw_graph *g, mw_task_id task, mw_stream_id stream)
{
    MW_ASSERT(task < g->tag.n, "task %u of %zu", task, g->tag.n);
    append(g, task, stream);
}

void mw_graph_dep(struct mw_graph *g, mw_task_id before, mw_task_id after,
                  mw_time lag_ps)
{
    size_t n = g->duration_ps.n;
    MW_ASSERT(before < n && after < n, "edge %u -> %u of %zu tasks", before,
              after, n);
    MW_ASSERT(g->edges.n < UINT32_MAX, "%zu edges", g->edges.n);
    struct edge e = {.before = before, .after = after, .lag_ps = lag_ps};
    mw_array_push(&g->edges, e);
}

/* Counts predecessors and sorts edges by source, keeping their order. */
static void prepare(struct mw_graph *g)
{
    size_t n = g->duration_ps.n, n_edges = g->edges.n;
    mw_array_clear(&g->waits);
    mw_array_clear(&g->first);
    mw_array_clear(&g->out);
    mw_array_clear(&g->ready);
    mw_array_reserve(&g->waits, n + 1);
    mw_array_reserve(&g->first, n + 2);
    mw_array_reserve(&g->out, n_edges + 1);
    mw_array_reserve(&g->ready, n + 1);
    memset(g->waits.v, 0, (n + 1) * sizeof *g->waits.v);
    memset(g->first.v, 0, (n + 2) * sizeof *g->first.v);
    /* first[i + 2] counts task i; after the sums first[i + 1] is where the next
     * edge of task i goes, and after the filling where task i + 1 begins. */
    for (size_t i = 0; i < n_edges; i++) {
        g->waits.v[g->edges.v[i].after]++;
        g->first.v[g->edges.v[i].before + 2]++;
    }
    for (size_t i = 2; i < n + 2; i++) {
        g->first.v[i] += g->first.v[i - 1];
    }
    for (size_t i = 0; i < n_edges; i++) {
        const struct edge *e = &g->edges.v[i];
        g->out.v[g->first.v[e->before + 1]++] =
            (struct out_edge){.lag_ps = e->lag_ps, .after = e->after};
    }
}

/*
 * Names a task on a cycle. Every task left waits for another one left, so
 * going from predecessor to predecessor ends in a cycle after at most n steps.
 */
static enum mw_status fail_cycle(struct mw_graph *g, struct mw_err *err)
{
    size_t n = g->duration_ps.n;
    mw_task_id *pred = mw_calloc(n, sizeof *pred);
    for (size_t i = 0; i < g->edges.n; i++) {
        const struct edge *e = &g->edges.v[i];
        if (g->waits.v[e->before] > 0 && g->waits.v[e->after] > 0) {
            pred[e->after] = e->before;
        }
    }
    mw_task_id t = 0;
    while (g->waits.v[t] == 0) {
        t++;
    }
    for (size_t i = 0; i < n; i++) {
        t = pred[t];
    }
    /* The smallest task of the cycle, so that the message is stable. */
    mw_task_id least = t;
    size_t length = 1;
    for (mw_task_id u = pred[t]; u != t; u = pred[u], length++) {
        least = u < least ? u : least;
    }
    mw_task_id waits_for = pred[least];
    mw_free(pred);
    return mw_fail(err, MW_EFAILED,
                   "the task graph cannot end: task %u (tag %" PRIu64
                   ") waits for task %u (tag %" PRIu64
                   "), which waits for it, on a cycle of %zu tasks",
                   least, g->tag.v[least], waits_for, g->tag.v[waits_for],
                   length);
}

enum mw_status mw_graph_fail_overflow(const struct mw_graph *g, mw_task_id t,
                                      struct mw_err *err)
{
    return mw_fail(err, MW_EFAILED,
                   "simulated time passes 106 days at task %u (tag %" PRIu64
                   ")",
                   t, g->tag.v[t]);
}

/* Takes ready tasks until none is left; false at a time that overflows, with
 * the task in *out_task. */
static bool take_ready(struct mw_graph *g, mw_time *start_ps, mw_time *end_ps,
                       mw_task_id *out_task)
{
    const mw_time *duration_ps = g->duration_ps.v;
    const struct out_edge *out = g->out.v;
    uint32_t *waits = g->waits.v;
    for (size_t head = 0; head < g->ready.n; head++) {
        mw_task_id t = g->ready.v[head];
        *out_task = t;
        if (__builtin_add_overflow(start_ps[t], duration_ps[t], &end_ps[t])) {
            return false;
        }
        for (uint32_t i = g->first.v[t]; i < g->first.v[t + 1]; i++) {
            mw_task_id after = out[i].after;
            mw_time at_ps;
            if (__builtin_add_overflow(end_ps[t], out[i].lag_ps, &at_ps)) {
                return false;
            }
            if (at_ps > start_ps[after]) {
                start_ps[after] = at_ps;
            }
            if (--waits[after] == 0) {
                g->ready.v[g->ready.n++] = after;
            }
        }
    }
    return true;
}

static mw_time last_end(const mw_time *end_ps, size_t n)
{
    mw_time last_ps = 0;
    for (size_t t = 0; t < n; t++) {
        last_ps = end_ps[t] > last_ps ? end_ps[t] : last_ps;
    }
    return last_ps;
}

enum mw_status mw_graph_run(struct mw_graph *g, mw_time *start_ps,
                            mw_time *end_ps, mw_time *out_end_ps,
                            uint64_t *out_events, struct mw_err *err)
{
    size_t n = g->duration_ps.n;
    prepare(g);
    for (size_t t = 0; t < n; t++) {
        start_ps[t] = 0;
        if (g->waits.v[t] == 0) {
            g->ready.v[g->ready.n++] = (mw_task_id)t;
        }
    }
    mw_task_id at_task = 0;
    if (!take_ready(g, start_ps, end_ps, &at_task)) {
        return mw_graph_fail_overflow(g, at_task, err);
    }
    if (g->ready.n < n) {
        return fail_cycle(g, err);
    }
    uint64_t n_events = n;
    g->alone_ps = last_end(end_ps, n);
    enum mw_status status =
        mw_graph_share_wires(g, start_ps, end_ps, &n_events, err);
    if (status != MW_OK) {
        return status;
    }
    *out_end_ps = last_end(end_ps, n);
    if (out_events) {
        *out_events = n_events;
    }
    return MW_OK;
}

mw_time mw_graph_alone_ps(const struct mw_graph *g)
{
    return g->alone_ps;
}
