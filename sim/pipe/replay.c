/*
 * Replay: each device runs its list in order; a pass starts when the device is
 * free and its inputs have arrived:
 *   F(k)  after F(k-1) + comm         (k: virtual stage on the pass's route)
 *   B(k)  after B(k+1) + comm, on the last stage after F of the same item
 *   W(k)  after B(k); BW is B then W as one pass, its gradient sent at its end
 * A longest path over the lists, found by running each device until it must
 * wait and waking it when the pass it waits for ends: O(slots).
 * Communication is a latency, it does not occupy the device; none on one
 * device. Sends are non-blocking.
 */
#include "sim/pipe/replay_int.h"

#include <string.h>

/* What the run of the lists keeps. done[] < 0: not run yet. */
struct machine {
    const struct mw_schedule *s;
    const struct mw_pipe_times *t;
    int items, last;        /* last virtual stage of a route */
    mw_time *f_end, *b_end; /* [route_len * items] */
    uint32_t *at;           /* per device: next slot */
    mw_time *free_ps;       /* per device */
    int *stack;             /* devices that may go on */
    bool *is_stacked;
    int n_stacked;
    mw_time *start, *end; /* per slot */
};

static void machine_init(struct machine *m, const struct mw_schedule *s,
                         const struct mw_pipe_times *t)
{
    size_t n, i;
    int d;

    memset(m, 0, sizeof *m);
    m->s = s;
    m->t = t;
    m->items = mw_schedule_items(s);
    m->last = s->route_len - 1;
    n = (size_t)s->route_len * (size_t)m->items;
    m->f_end = mw_calloc(n, sizeof *m->f_end);
    m->b_end = mw_calloc(n, sizeof *m->b_end);
    for (i = 0; i < n; i++) {
        m->f_end[i] = m->b_end[i] = -1;
    }
    m->at = mw_calloc((size_t)s->n_stages, sizeof *m->at);
    m->free_ps = mw_calloc((size_t)s->n_stages, sizeof *m->free_ps);
    m->stack = mw_calloc((size_t)s->n_stages, sizeof *m->stack);
    m->is_stacked = mw_calloc((size_t)s->n_stages, sizeof *m->is_stacked);
    for (d = s->n_stages - 1; d >= 0; d--) {
        m->at[d] = s->first[d];
        m->stack[m->n_stacked++] = d;
        m->is_stacked[d] = true;
    }
}

static void machine_release(struct machine *m)
{
    mw_free(m->f_end);
    mw_free(m->b_end);
    mw_free(m->at);
    mw_free(m->free_ps);
    mw_free(m->stack);
    mw_free(m->is_stacked);
}

static inline size_t local(const struct mw_schedule *s, int d, int chunk)
{
    return (size_t)d * (size_t)s->n_chunks + (size_t)chunk;
}

/* When the inputs of a slot of device d are there; -1 when they are not. */
static mw_time ready(const struct machine *m, int d, const struct mw_slot *x)
{
    const struct mw_schedule *s = m->s;
    size_t at = local(s, d, x->chunk);
    int k = s->virtual_stage[at], from;
    size_t cell = (size_t)k * (size_t)m->items + (size_t)x->microbatch;
    const int16_t *device = s->device + s->route[at] * s->route_len;
    mw_time t;

    if (x->pass == MW_PASS_W) {
        return m->b_end[cell];
    }
    if (x->pass == MW_PASS_F) {
        if (k == 0) {
            return 0;
        }
        from = k - 1;
        t = m->f_end[cell - (size_t)m->items];
    } else {
        if (m->f_end[cell] < 0 || k == m->last) {
            return m->f_end[cell];
        }
        from = k + 1;
        t = m->b_end[cell + (size_t)m->items];
    }
    return t < 0 || device[from] == d ? t : t + m->t->comm_ps;
}

static mw_time duration(const struct machine *m, int d, const struct mw_slot *x)
{
    size_t at = local(m->s, d, x->chunk);

    switch ((enum mw_pass)x->pass) {
    case MW_PASS_F:
        return m->t->f_ps[at];
    case MW_PASS_B:
        return m->t->b_ps[at];
    case MW_PASS_W:
        return m->t->w_ps[at];
    case MW_PASS_BW:
        return m->t->b_ps[at] + m->t->w_ps[at];
    case MW_PASS_COUNT:
        break;
    }
    return 0;
}

static void wake(struct machine *m, int d)
{
    if (!m->is_stacked[d] && m->at[d] < m->s->first[d + 1]) {
        m->is_stacked[d] = true;
        m->stack[m->n_stacked++] = d;
    }
}

/* Notes that a slot of device d ended, and wakes who may wait for it: true when
 * that is another device. */
static bool finish(struct machine *m, int d, uint32_t i, mw_time start,
                   mw_time end)
{
    const struct mw_schedule *s = m->s;
    const struct mw_slot *x = &s->slot[i];
    size_t at = local(s, d, x->chunk);
    int k = s->virtual_stage[at];
    size_t cell = (size_t)k * (size_t)m->items + (size_t)x->microbatch;
    const int16_t *device = s->device + s->route[at] * s->route_len;

    m->start[i] = start;
    m->end[i] = end;
    if (x->pass == MW_PASS_F) {
        m->f_end[cell] = end;
        k++;
    } else if (x->pass == MW_PASS_W) {
        return false;
    } else {
        m->b_end[cell] = end;
        k--;
    }
    if (k < 0 || k > m->last || device[k] == d) {
        return false;
    }
    wake(m, device[k]);
    return true;
}

static void run_device(struct machine *m, int d)
{
    const struct mw_schedule *s = m->s;
    uint32_t i = m->at[d], end = s->first[d + 1];

    while (i < end) {
        const struct mw_slot *x = &s->slot[i];
        bool is_pair = (x->flags & MW_SLOT_PAIR) != 0 && i + 1 < end;
        mw_time t = ready(m, d, x), t2 = is_pair ? ready(m, d, x + 1) : 0;
        mw_time took = duration(m, d, x);
        bool sends;

        if (t < 0 || t2 < 0) {
            break;
        }
        t = t2 > t ? t2 : t;
        t = m->free_ps[d] > t ? m->free_ps[d] : t;
        if (is_pair) {
            took += duration(m, d, x + 1);
            if (m->t->pair_ps != NULL) {
                const struct mw_slot *f = x->pass == MW_PASS_F ? x : x + 1;

                took = m->t->pair_ps[local(s, d, f->chunk)];
            }
        }
        m->free_ps[d] = t + took;
        m->at[d] = i + 1 + is_pair;
        sends = finish(m, d, i, t, t + took);
        if (is_pair) {
            sends |= finish(m, d, i + 1, t, t + took);
        }
        if (sends && m->t->is_blocking) {
            m->free_ps[d] += m->t->comm_ps;
        }
        i += 1 + (uint32_t)is_pair;
    }
    m->at[d] = i;
}

static void run_all(struct machine *m)
{
    while (m->n_stacked > 0) {
        int d = m->stack[--m->n_stacked];

        m->is_stacked[d] = false;
        run_device(m, d);
    }
}

/* Names the pass that the slot waits for. */
static enum mw_status deadlock(const struct machine *m, struct mw_err *err)
{
    const struct mw_schedule *s = m->s;
    int d = 0;

    while (m->at[d] == s->first[d + 1]) {
        d++;
    }
    const struct mw_slot *x = &s->slot[m->at[d]];
    char name[MW_SLOT_NAME_MAX], input[MW_SLOT_NAME_MAX];
    size_t at = local(s, d, x->chunk);
    int k = s->virtual_stage[at], r = s->route[at], from = k;
    struct mw_slot need = *x;

    if ((x->flags & MW_SLOT_PAIR) != 0 && ready(m, d, x) >= 0) {
        x++;
    }
    need.pass = MW_PASS_F;
    if (x->pass == MW_PASS_F) {
        from = k - 1;
    } else if (x->pass == MW_PASS_W ||
               m->f_end[(size_t)k * (size_t)m->items + (size_t)x->microbatch] >=
                   0) {
        need.pass = MW_PASS_B;
        from = x->pass == MW_PASS_W ? k : k + 1;
    }
    need.chunk = s->chunk[r * s->route_len + from];
    return mw_fail(err, MW_EINPUT,
                   "deadlock: stage %d waits before %s for %s of stage %d, "
                   "which never runs",
                   d, mw_slot_name(s, x, name), mw_slot_name(s, &need, input),
                   (int)s->device[r * s->route_len + from]);
}

static bool is_finished(const struct machine *m)
{
    int d;

    for (d = 0; d < m->s->n_stages; d++) {
        if (m->at[d] != m->s->first[d + 1]) {
            return false;
        }
    }
    return true;
}

double mw_pipe_held(const struct mw_slot *slot, double w_share)
{
    switch ((enum mw_pass)slot->pass) {
    case MW_PASS_F:
        return 1;
    case MW_PASS_B:
        return w_share - 1;
    case MW_PASS_W:
        return -w_share;
    case MW_PASS_BW:
        return -1;
    case MW_PASS_COUNT:
        break;
    }
    return 0;
}

double mw_pipe_peak_weighted(const struct mw_schedule *s, int device,
                             double w_share, const double *bytes)
{
    double now = 0, peak = 0;
    uint32_t i;

    for (i = s->first[device]; i < s->first[device + 1]; i++) {
        double size = bytes != NULL ? bytes[s->slot[i].chunk] : 1;

        now += mw_pipe_held(&s->slot[i], w_share) * size;
        peak = now > peak ? now : peak;
    }
    return peak / s->n_parts;
}

double mw_pipe_peak(const struct mw_schedule *s, int device, double w_share)
{
    return mw_pipe_peak_weighted(s, device, w_share, NULL);
}

static void summarise(const struct machine *m, struct mw_pipe_run *out)
{
    const struct mw_schedule *s = m->s;
    mw_time first = INT64_MAX, last = 0;
    int d;

    for (d = 0; d < s->n_stages; d++) {
        uint32_t a = s->first[d], z = s->first[d + 1];
        mw_time end;

        out->peak_activations[d] = mw_pipe_peak(s, d, 1);
        if (a == z) {
            continue;
        }
        end = m->end[z - 1] + (m->t->opt_ps != NULL ? m->t->opt_ps[d] : 0);
        first = m->start[a] < first ? m->start[a] : first;
        last = end > last ? end : last;
        if (end - m->start[a] > out->longest_span_ps) {
            out->longest_span_ps = end - m->start[a];
        }
    }
    out->makespan_ps = first == INT64_MAX ? 0 : last - first;
}

enum mw_status mw_pipe_replay(const struct mw_schedule *s,
                              const struct mw_pipe_times *times,
                              struct mw_pipe_run *out, struct mw_err *err)
{
    size_t n = s->first[s->n_stages];
    struct mw_pipe_run run = {0};
    enum mw_status st = MW_OK;
    struct machine m;

    machine_init(&m, s, times);
    run.start_ps = m.start = mw_calloc(n + 1, sizeof *m.start);
    run.end_ps = m.end = mw_calloc(n + 1, sizeof *m.end);
    run.peak_activations =
        mw_calloc((size_t)s->n_stages, sizeof *run.peak_activations);
    run_all(&m);
    if (is_finished(&m)) {
        summarise(&m, &run);
        *out = run;
    } else {
        st = deadlock(&m, err);
        mw_pipe_run_release(&run);
    }
    machine_release(&m);
    return st;
}

void mw_pipe_run_release(struct mw_pipe_run *run)
{
    mw_free(run->start_ps);
    mw_free(run->end_ps);
    mw_free(run->peak_activations);
    memset(run, 0, sizeof *run);
}
