/*
 * Runs a step's task graph and turns tasks into spans. A transfer is shown on
 * the receiver, which is who waits for it; where two transfers to one rank
 * overlap (an activation and a gradient), the later one is shown from the end
 * of the earlier, because a stream of a timeline carries one span at a time.
 */
#include "sim/step/tasks_int.h"

#include <stdlib.h>

void mw_step_tasks_init(struct mw_step_tasks *t, struct mw_timeline *timeline)
{
    *t = (struct mw_step_tasks){
        .graph = mw_graph_new(), .timeline = timeline, .held_task = UINT32_MAX};
}

void mw_step_tasks_release(struct mw_step_tasks *t)
{
    mw_graph_free(t->graph);
    mw_array_release(&t->spans);
}

static int compare_transfers(const void *a, const void *b)
{
    const struct mw_span *x = a, *y = b;

    if (x->rank != y->rank) {
        return x->rank < y->rank ? -1 : 1;
    }
    if (x->end_ps != y->end_ps) {
        return x->end_ps < y->end_ps ? -1 : 1;
    }
    if (x->start_ps != y->start_ps) {
        return x->start_ps < y->start_ps ? -1 : 1;
    }
    return (x->stage > y->stage) - (x->stage < y->stage);
}

static void add_transfers(struct mw_timeline *timeline, struct mw_span *v,
                          size_t n)
{
    qsort(v, n, sizeof *v, compare_transfers);
    for (size_t i = 0; i < n; i++) {
        if (i > 0 && v[i].rank == v[i - 1].rank &&
            v[i].start_ps < v[i - 1].end_ps) {
            v[i].start_ps = v[i - 1].end_ps;
        }
        mw_timeline_add(timeline, &v[i]);
    }
}

static void add_spans(struct mw_step_tasks *t, const mw_time *start_ps,
                      const mw_time *end_ps)
{
    struct {
        struct mw_span *v;
        size_t n, cap;
    } transfers = {NULL, 0, 0};

    for (size_t i = 0; i < t->spans.n; i++) {
        struct mw_span span = t->spans.v[i];

        span.start_ps = start_ps[i];
        span.end_ps = end_ps[i];
        if (span.start_ps == span.end_ps || span.kind == MW_SPAN_BUBBLE) {
            continue;
        }
        if (span.kind != MW_SPAN_PP) {
            mw_timeline_add(t->timeline, &span);
            continue;
        }
        mw_array_push(&transfers, span);
        for (int k = 1; i == t->held_task && k < t->n_held; k++) {
            span.rank = t->held_rank[k];
            mw_array_push(&transfers, span);
        }
    }
    if (transfers.n > 0) {
        add_transfers(t->timeline, transfers.v, transfers.n);
    }
    mw_array_release(&transfers);
}

enum mw_status mw_step_tasks_run(struct mw_step_tasks *t, bool with_spans,
                                 mw_time *out_end_ps, uint64_t *out_events,
                                 struct mw_err *err)
{
    size_t n = mw_graph_size(t->graph);
    mw_time *times = mw_calloc(2 * n + 1, sizeof *times);
    enum mw_status status =
        mw_graph_run(t->graph, times, times + n, out_end_ps, out_events, err);

    if (status == MW_OK && with_spans) {
        add_spans(t, times, times + n);
    }
    mw_free(times);
    return status;
}
