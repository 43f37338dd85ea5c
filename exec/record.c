/*
 * The recorder of record.h. The first recorded step defines the list of
 * events; later steps must repeat it, which is asserted: a step that did
 * something else could not be compared with it.
 */
#include "exec/record.h"

#include "base/err.h"
#include "base/log.h"

void mw_rec_init(struct mw_rec *rec, struct mw_dev *dev)
{
    *rec = (struct mw_rec){.dev = dev};
}

void mw_rec_release(struct mw_rec *rec)
{
    mw_array_release(&rec->events);
    mw_array_release(&rec->times);
}

static void note(struct mw_rec *rec, const struct mw_rec_event *event,
                 const struct mw_rec_time *time)
{
    if (rec->n_steps == 0) {
        mw_array_push(&rec->events, *event);
    } else {
        MW_ASSERT(rec->cursor < rec->events.n, "event %zu of %zu (%s)",
                  rec->cursor, rec->events.n, event->name);
        const struct mw_rec_event *first = &rec->events.v[rec->cursor];
        MW_ASSERT(first->type == event->type && first->tag == event->tag &&
                      first->microbatch == event->microbatch,
                  "event %zu is %s, was %s", rec->cursor, event->name,
                  first->name);
    }
    rec->cursor++;
    mw_array_push(&rec->times, *time);
}

void mw_rec_step_begin(struct mw_rec *rec)
{
    rec->cursor = 0;
}

void mw_rec_step_end(struct mw_rec *rec)
{
    mw_rec_idle(rec);
    if (rec->is_on) {
        MW_ASSERT(rec->cursor == rec->events.n, "%zu events of %zu",
                  rec->cursor, rec->events.n);
        rec->n_steps++;
    }
}

static void open_segment(struct mw_rec *rec)
{
    rec->is_open = true;
    rec->open_wall_ns = mw_clock_wall_ns();
    rec->open_busy_ns = rec->dev->ops->busy_ns(rec->dev);
}

static void close_segment(struct mw_rec *rec)
{
    int64_t busy_ns = rec->dev->ops->busy_ns(rec->dev);
    const struct mw_rec_time time = {.busy_ns = busy_ns - rec->open_busy_ns,
                                     .rows = rec->open_rows,
                                     .begin_ns = rec->open_wall_ns,
                                     .end_ns = mw_clock_wall_ns()};
    rec->is_open = false;
    note(rec, &rec->label, &time);
}

void mw_rec_work(struct mw_rec *rec, enum mw_span_kind span, const char *name,
                 int microbatch, int stage)
{
    mw_beat_note(rec->beat, name, microbatch, stage, false);
    if (!rec->is_on) {
        return;
    }
    mw_rec_idle(rec);
    rec->label = (struct mw_rec_event){.type = MW_REC_COMPUTE,
                                       .span = span,
                                       .name = name,
                                       .microbatch = microbatch,
                                       .stage = stage};
    open_segment(rec);
}

void mw_rec_idle(struct mw_rec *rec)
{
    if (rec->is_on && rec->is_open) {
        close_segment(rec);
    }
}

/* A segment with the label of the open one. */
static void cut(struct mw_rec *rec, bool is_routed, int64_t rows)
{
    if (!rec->is_on || !rec->is_open) {
        return;
    }
    close_segment(rec);
    rec->label.is_routed = is_routed;
    rec->open_rows = rows;
    open_segment(rec);
}

void mw_rec_routed_begin(struct mw_rec *rec, int64_t rows)
{
    cut(rec, true, rows);
}

void mw_rec_routed_end(struct mw_rec *rec)
{
    cut(rec, false, 0);
}

void mw_rec_rest(struct mw_rec *rec, const char *name)
{
    mw_beat_note(rec->beat, name, -1, -1, true);
}

int64_t mw_rec_comm_begin(struct mw_rec *rec)
{
    if (rec->beat) {
        rec->beat->is_waiting = true;
        mw_beat_tick(rec->beat);
    }
    if (!rec->is_on) {
        return 0;
    }
    if (rec->is_open) {
        close_segment(rec);
        rec->is_open = true; /* to be opened again by comm_end */
    }
    return mw_clock_wall_ns();
}

void mw_rec_comm_end(struct mw_rec *rec, int64_t begin_ns,
                     const struct mw_rec_event *event)
{
    if (rec->beat) {
        rec->beat->is_waiting = false;
        mw_beat_tick(rec->beat);
    }
    if (!rec->is_on) {
        return;
    }
    const struct mw_rec_time time = {.begin_ns = begin_ns,
                                     .end_ns = mw_clock_wall_ns()};
    note(rec, event, &time);
    if (rec->is_open) {
        open_segment(rec);
    }
}

const struct mw_rec_time *mw_rec_time(const struct mw_rec *rec, int step,
                                      size_t i)
{
    return &rec->times.v[(size_t)step * rec->events.n + i];
}

void mw_rec_traffic(const struct mw_rec *rec, struct mw_traffic *out)
{
    *out = (struct mw_traffic){{{0}}, {{0}}};
    for (size_t i = 0; i < rec->events.n; i++) {
        const struct mw_rec_event *e = &rec->events.v[i];
        if (e->type == MW_REC_COLL || e->type == MW_REC_SEND) {
            out->count[e->dim][e->coll] += 1;
            out->bytes[e->dim][e->coll] += e->bytes;
        }
    }
}
