/*
 * Two ways in which a right schedule can still fail when it runs: sends that
 * block, and memory.
 *
 * Sends: every device goes through receive, pass, send of one slot after the
 * other. A receive takes the message from the channel (one a pair of devices
 * and direction of the pass); a send puts it there when fewer than `buffers`
 * lie in it, or hands it over when the receiver stands at that receive.
 * 1F1B blocks with rendezvous alone (a forward and a backward meet) and needs
 * one buffer, or the paired send-receive of Megatron-LM.
 */
#include "sim/pipe/pipe_stats.h"
#include "sim/pipe/replay_int.h"

#include <string.h>

enum step { STEP_RECEIVE, STEP_SEND };

struct post {
    const struct mw_schedule *s;
    int buffers, items;
    uint32_t *at;    /* per device: slot */
    enum step *step; /* per device */
    bool *is_there;  /* [2][route_len * items]: message in a channel */
    int *in_channel; /* messages lying, per sending virtual stage, F or B */
};

static size_t local(const struct mw_schedule *s, int d, int chunk)
{
    return (size_t)d * (size_t)s->n_chunks + (size_t)chunk;
}

/* Peer of a slot: virtual stage that it receives from (delta towards it) or
 * sends to on another device; -1: none. */
static int peer(const struct post *p, int d, const struct mw_slot *x,
                bool is_send)
{
    const struct mw_schedule *s = p->s;
    size_t at = local(s, d, x->chunk);
    int k = s->virtual_stage[at];
    int to = (x->pass == MW_PASS_F) == is_send ? k + 1 : k - 1;

    if (x->pass == MW_PASS_W || to < 0 || to >= s->route_len ||
        s->device[s->route[at] * s->route_len + to] == d) {
        return -1;
    }
    return to;
}

static size_t message(const struct post *p, const struct mw_slot *x, int sender)
{
    size_t half = (size_t)p->s->route_len * (size_t)p->items;

    return (x->pass == MW_PASS_F ? 0 : half) +
           (size_t)sender * (size_t)p->items + (size_t)x->microbatch;
}

/* Channel counter of what virtual stage `sender` of the slot's route sends. */
static int *channel(struct post *p, int d, const struct mw_slot *x, int sender)
{
    const struct mw_schedule *s = p->s;
    int route = s->route[local(s, d, x->chunk)];

    return &p->in_channel[(route * s->route_len + sender) * 2 +
                          (x->pass != MW_PASS_F)];
}

/* Does the receiver stand at the receive of this very message? */
static bool is_awaited(const struct post *p, int d, const struct mw_slot *x,
                       int to)
{
    const struct mw_schedule *s = p->s;
    int e = s->device[s->route[local(s, d, x->chunk)] * s->route_len + to];
    const struct mw_slot *y = &s->slot[p->at[e]];

    return p->at[e] < s->first[e + 1] && p->step[e] == STEP_RECEIVE &&
           (y->pass == MW_PASS_F) == (x->pass == MW_PASS_F) &&
           y->pass != MW_PASS_W && y->microbatch == x->microbatch &&
           s->virtual_stage[local(s, e, y->chunk)] == to;
}

static bool do_receive(struct post *p, int d, const struct mw_slot *x)
{
    int from = peer(p, d, x, false);

    if (from >= 0) {
        size_t m = message(p, x, from);

        if (!p->is_there[m]) {
            return false;
        }
        p->is_there[m] = false;
        --*channel(p, d, x, from);
    }
    p->step[d] = STEP_SEND;
    return true;
}

static bool do_send(struct post *p, int d, const struct mw_slot *x)
{
    int to = peer(p, d, x, true);

    if (to >= 0) {
        int k = p->s->virtual_stage[local(p->s, d, x->chunk)];
        int *lying = channel(p, d, x, k);

        if (p->buffers >= 0 && *lying >= p->buffers &&
            !is_awaited(p, d, x, to)) {
            return false;
        }
        p->is_there[message(p, x, k)] = true;
        ++*lying;
    }
    p->step[d] = STEP_RECEIVE;
    p->at[d]++;
    return true;
}

/* Sweeps over the devices until none moves. True when all are done. */
static bool deliver(struct post *p)
{
    const struct mw_schedule *s = p->s;
    bool moved = true, is_done = true;
    int d;

    while (moved) {
        moved = false;
        for (d = 0; d < s->n_stages; d++) {
            while (p->at[d] < s->first[d + 1]) {
                const struct mw_slot *x = &s->slot[p->at[d]];

                if (!(p->step[d] == STEP_RECEIVE ? do_receive(p, d, x)
                                                 : do_send(p, d, x))) {
                    break;
                }
                moved = true;
            }
        }
    }
    for (d = 0; d < s->n_stages; d++) {
        is_done &= p->at[d] == s->first[d + 1];
    }
    return is_done;
}

static enum mw_status say_blocked(const struct post *p, struct mw_err *err)
{
    const struct mw_schedule *s = p->s;
    char a[MW_SLOT_NAME_MAX];
    const struct mw_slot *x;
    int d, to = -1;

    /* Somebody waits to send: with only receivers waiting the check of the
     * lists themselves has failed already. */
    for (d = 0; d < s->n_stages; d++) {
        if (p->at[d] < s->first[d + 1] && p->step[d] == STEP_SEND) {
            break;
        }
    }
    if (d == s->n_stages) {
        return mw_fail(err, MW_EINPUT,
                       "deadlock: every stage waits to receive");
    }
    x = &s->slot[p->at[d]];
    to = s->device[s->route[local(s, d, x->chunk)] * s->route_len +
                   peer(p, d, x, true)];
    return mw_fail(err, MW_EINPUT,
                   "deadlock with blocking sends: stage %d waits to send the "
                   "result of %s to stage %d, which is not ready to receive it",
                   d, mw_slot_name(s, x, a), to);
}

enum mw_status mw_schedule_check_sends(const struct mw_schedule *s, int buffers,
                                       struct mw_err *err)
{
    struct post p = {.s = s, .buffers = buffers, .items = mw_schedule_items(s)};
    size_t cells = (size_t)s->route_len * (size_t)p.items;
    enum mw_status st = MW_OK;
    int d;

    p.at = mw_calloc((size_t)s->n_stages, sizeof *p.at);
    p.step = mw_calloc((size_t)s->n_stages, sizeof *p.step);
    p.is_there = mw_calloc(2 * cells, sizeof *p.is_there);
    p.in_channel = mw_calloc((size_t)s->n_routes * (size_t)s->route_len * 2,
                             sizeof *p.in_channel);
    for (d = 0; d < s->n_stages; d++) {
        p.at[d] = s->first[d];
    }
    if (!deliver(&p)) {
        st = say_blocked(&p, err);
    }
    mw_free(p.at);
    mw_free(p.step);
    mw_free(p.is_there);
    mw_free(p.in_channel);
    return st;
}

int mw_schedule_send_buffers(const struct mw_schedule *s)
{
    int low = -1, high = 0; /* low fails, high does not */

    while (high < s->n_microbatches &&
           mw_schedule_check_sends(s, high, NULL) != MW_OK) {
        low = high;
        high = high == 0 ? 1 : 2 * high;
    }
    high = high < s->n_microbatches ? high : s->n_microbatches;
    while (high - low > 1) {
        int middle = low + (high - low) / 2;

        if (mw_schedule_check_sends(s, middle, NULL) == MW_OK) {
            high = middle;
        } else {
            low = middle;
        }
    }
    return high;
}

enum mw_status mw_schedule_check_memory(const struct mw_schedule *s,
                                        double limit, double w_share,
                                        struct mw_err *err)
{
    double unit = mw_schedule_route_chunks(s) * s->n_parts;
    int d;

    for (d = 0; limit > 0 && d < s->n_stages; d++) {
        double held = 0;
        uint32_t i;

        for (i = s->first[d]; i < s->first[d + 1]; i++) {
            const struct mw_slot *x = &s->slot[i];

            held += mw_pipe_held(x, w_share);
            if (x->pass == MW_PASS_F && held / unit > limit * (1 + 1e-9)) {
                char name[MW_SLOT_NAME_MAX];

                return mw_fail(err, MW_EINPUT,
                               "stage %d: %s makes it hold %g activations; the "
                               "limit is %g",
                               d, mw_slot_name(s, x, name), held / unit, limit);
            }
        }
    }
    return MW_OK;
}
