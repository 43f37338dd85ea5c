/*
 * Is a schedule right? Every pass of every item on every virtual stage exactly
 * once, F before B before W on its device, items on the route that the device's
 * chunk serves, parts of a micro-batch in the order that causal attention
 * needs, and no deadlock with non-blocking sends (by replay in unit times).
 */
#include "sim/pipe/replay_int.h"

#include <string.h>

/* What a (chunk, item) of the device has seen so far. */
enum { SEEN_F = 1, SEEN_B = 2, SEEN_W = 4 };

struct checker {
    const struct mw_schedule *s;
    int d, items;
    uint8_t *seen; /* [n_chunks * items] */
    struct mw_err *err;
};

static uint8_t *seen_at(const struct checker *c, const struct mw_slot *x)
{
    return &c->seen[(size_t)x->chunk * (size_t)c->items +
                    (size_t)x->microbatch];
}

static enum mw_status bad_range(const struct checker *c,
                                const struct mw_slot *x)
{
    return mw_fail(c->err, MW_EINPUT,
                   "stage %d: micro-batch %d, chunk %d is out of range; there "
                   "are %d micro-batches and %d chunks",
                   c->d, (int)x->microbatch, (int)x->chunk, c->items,
                   c->s->n_chunks);
}

static enum mw_status too_early(const struct checker *c,
                                const struct mw_slot *x, enum mw_pass need,
                                int item)
{
    char a[MW_SLOT_NAME_MAX], b[MW_SLOT_NAME_MAX];
    struct mw_slot first = *x;

    first.pass = (uint8_t)need;
    first.microbatch = item;
    return mw_fail(c->err, MW_EINPUT, "stage %d: %s comes before %s", c->d,
                   mw_slot_name(c->s, x, a), mw_slot_name(c->s, &first, b));
}

static enum mw_status twice(const struct checker *c, const struct mw_slot *x)
{
    char name[MW_SLOT_NAME_MAX];

    return mw_fail(c->err, MW_EINPUT, "stage %d: %s runs twice", c->d,
                   mw_slot_name(c->s, x, name));
}

/* Parts: F of part j needs part j-1 before it, B of part j part j+1. */
static enum mw_status check_part(const struct checker *c,
                                 const struct mw_slot *x)
{
    int q = c->s->n_parts, part = x->microbatch % q;
    struct mw_slot other = *x;
    bool is_f = x->pass == MW_PASS_F;

    if (q == 1 || x->pass == MW_PASS_W || part == (is_f ? 0 : q - 1)) {
        return MW_OK;
    }
    other.microbatch += is_f ? -1 : 1;
    if ((*seen_at(c, &other) & (is_f ? SEEN_F : SEEN_B)) == 0) {
        return too_early(c, x, (enum mw_pass)x->pass, other.microbatch);
    }
    return MW_OK;
}

static enum mw_status check_slot(const struct checker *c,
                                 const struct mw_slot *x)
{
    static const uint8_t gives[] = {SEEN_F, SEEN_B, SEEN_W, SEEN_B | SEEN_W};
    const struct mw_schedule *s = c->s;
    uint8_t *seen;

    if (x->microbatch < 0 || x->microbatch >= c->items || x->chunk < 0 ||
        x->chunk >= s->n_chunks || x->pass >= MW_PASS_COUNT) {
        return bad_range(c, x);
    }
    if (s->route[(size_t)c->d * (size_t)s->n_chunks + (size_t)x->chunk] !=
        mw_schedule_route_of(s, x->microbatch)) {
        char name[MW_SLOT_NAME_MAX];

        return mw_fail(c->err, MW_EINPUT,
                       "stage %d: %s is on the wrong route; the first half of "
                       "the micro-batches goes down (chunk 0)",
                       c->d, mw_slot_name(s, x, name));
    }
    seen = seen_at(c, x);
    if ((*seen & gives[x->pass]) != 0) {
        return twice(c, x);
    }
    if (x->pass != MW_PASS_F && (*seen & SEEN_F) == 0) {
        return too_early(c, x, MW_PASS_F, x->microbatch);
    }
    if (x->pass == MW_PASS_W && (*seen & SEEN_B) == 0) {
        return too_early(c, x, MW_PASS_B, x->microbatch);
    }
    *seen |= gives[x->pass];
    return check_part(c, x);
}

static enum mw_status check_complete(const struct checker *c)
{
    int chunk, item, want = c->s->is_forward_only ? SEEN_F : 7;

    for (chunk = 0; chunk < c->s->n_chunks; chunk++) {
        size_t at = (size_t)c->d * (size_t)c->s->n_chunks + (size_t)chunk;

        for (item = 0; item < c->items; item++) {
            struct mw_slot x = {item, (int16_t)chunk, MW_PASS_F, 0};
            char name[MW_SLOT_NAME_MAX];
            int has = *seen_at(c, &x);

            if (c->s->route[at] != mw_schedule_route_of(c->s, item) ||
                has == want) {
                continue;
            }
            if ((has & ~want) != 0) {
                return mw_fail(c->err, MW_EINPUT,
                               "stage %d: micro-batch %d has a backward pass "
                               "in a forward-only schedule",
                               c->d, item);
            }
            x.pass = (has & SEEN_F) == 0   ? MW_PASS_F
                     : (has & SEEN_B) == 0 ? MW_PASS_B
                                           : MW_PASS_W;
            return mw_fail(c->err, MW_EINPUT, "stage %d: %s is missing", c->d,
                           mw_slot_name(c->s, &x, name));
        }
    }
    return MW_OK;
}

static enum mw_status check_pairs(const struct checker *c)
{
    uint32_t i, end = c->s->first[c->d + 1];

    for (i = c->s->first[c->d]; i < end; i++) {
        const struct mw_slot *x = &c->s->slot[i];
        char name[MW_SLOT_NAME_MAX];

        if ((x->flags & MW_SLOT_PAIR) == 0) {
            continue;
        }
        if (i + 1 == end || (x[1].flags & MW_SLOT_PAIR) != 0 ||
            (x->pass == MW_PASS_F) == (x[1].pass == MW_PASS_F) ||
            (x->chunk == x[1].chunk && x->microbatch == x[1].microbatch)) {
            return mw_fail(c->err, MW_EINPUT,
                           "stage %d: %s overlaps with its next pass; a pair "
                           "is one forward and one backward of another "
                           "micro-batch or chunk",
                           c->d, mw_slot_name(c->s, x, name));
        }
    }
    return MW_OK;
}

static enum mw_status check_device(struct checker *c)
{
    enum mw_status st = MW_OK;
    uint32_t i;

    memset(c->seen, 0, (size_t)c->s->n_chunks * (size_t)c->items);
    for (i = c->s->first[c->d]; st == MW_OK && i < c->s->first[c->d + 1]; i++) {
        st = check_slot(c, &c->s->slot[i]);
    }
    if (st == MW_OK) {
        st = check_complete(c);
    }
    return st == MW_OK ? check_pairs(c) : st;
}

static enum mw_status check_deadlock(const struct mw_schedule *s,
                                     struct mw_err *err)
{
    size_t n = (size_t)s->n_stages * (size_t)s->n_chunks, i;
    mw_time *unit = mw_calloc(n, sizeof *unit);
    struct mw_pipe_times times = {.f_ps = unit, .b_ps = unit, .w_ps = unit};
    struct mw_pipe_run run;
    enum mw_status st;

    for (i = 0; i < n; i++) {
        unit[i] = 1;
    }
    st = mw_pipe_replay(s, &times, &run, err);
    if (st == MW_OK) {
        mw_pipe_run_release(&run);
    }
    mw_free(unit);
    return st;
}

enum mw_status mw_schedule_check(const struct mw_schedule *s,
                                 struct mw_err *err)
{
    struct checker c = {s, 0, mw_schedule_items(s), NULL, err};
    enum mw_status st = MW_OK;

    c.seen = mw_calloc((size_t)s->n_chunks * (size_t)c.items, 1);
    for (c.d = 0; st == MW_OK && c.d < s->n_stages; c.d++) {
        st = check_device(&c);
    }
    mw_free(c.seen);
    return st == MW_OK ? check_deadlock(s, err) : st;
}
