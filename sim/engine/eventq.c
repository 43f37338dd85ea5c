/*
 * Event queue: a 4-ary heap ordered by (time, sequence number).
 *
 * Four children a node instead of two halve the height; the four keys that a
 * step down compares lie side by side (96 bytes), so the extra comparisons cost
 * less than the cache misses saved (LaMarca and Ladner, "The influence of
 * caches on the performance of heaps", ACM JEA 1, 1996, section 5). The
 * sequence number makes the order total: equal times leave in the order in
 * which they were pushed, and a run is a function of its input.
 *
 *   node i: children 4 i + 1 .. 4 i + 4, parent (i - 1) / 4
 */
#include "sim/engine/engine.h"

enum { ARITY = 4 };

static bool earlier(const struct mw_event *a, const struct mw_event *b)
{
    return a->t_ps < b->t_ps || (a->t_ps == b->t_ps && a->seq < b->seq);
}

void mw_evq_init(struct mw_evq *q)
{
    *q = (struct mw_evq){.v = NULL};
}

void mw_evq_release(struct mw_evq *q)
{
    mw_array_release(q);
    q->next_seq = 0;
}

void mw_evq_push(struct mw_evq *q, mw_time t_ps, uint32_t kind, uint32_t arg)
{
    struct mw_event e = {
        .t_ps = t_ps, .seq = q->next_seq++, .kind = kind, .arg = arg};
    mw_array_reserve(q, 1);
    size_t i = q->n++;
    while (i > 0) {
        size_t parent = (i - 1) / ARITY;
        if (!earlier(&e, &q->v[parent])) {
            break;
        }
        q->v[i] = q->v[parent];
        i = parent;
    }
    q->v[i] = e;
}

/* Index of the earliest child of i, or n when i is a leaf. */
static size_t first_child(const struct mw_evq *q, size_t i)
{
    size_t child = ARITY * i + 1;
    if (child >= q->n) {
        return q->n;
    }
    size_t end = child + ARITY < q->n ? child + ARITY : q->n;
    size_t best = child;
    for (size_t c = child + 1; c < end; c++) {
        if (earlier(&q->v[c], &q->v[best])) {
            best = c;
        }
    }
    return best;
}

bool mw_evq_pop(struct mw_evq *q, struct mw_event *out)
{
    if (q->n == 0) {
        return false;
    }
    *out = q->v[0];
    struct mw_event last = q->v[--q->n];
    size_t i = 0;
    for (;;) {
        size_t child = first_child(q, i);
        if (child >= q->n || !earlier(&q->v[child], &last)) {
            break;
        }
        q->v[i] = q->v[child];
        i = child;
    }
    if (q->n > 0) {
        q->v[i] = last;
    }
    return true;
}

bool mw_evq_check(const struct mw_evq *q)
{
    for (size_t i = 1; i < q->n; i++) {
        if (earlier(&q->v[i], &q->v[(i - 1) / ARITY])) {
            return false;
        }
    }
    return q->n <= q->cap;
}
