/*
 * List scheduling in time: the device that can act first acts. A device that is
 * free prefers a backward, then the forward of its last chunk, then another
 * forward (or forwards first while few are in flight: rule.lead), and puts W
 * passes where it would wait, or when memory keeps a forward waiting. Best
 * where memory is so short (fewer than p micro-batches) that rows serialise.
 *
 * The pass chosen at a time t can be trusted: every pass that starts before t
 * is known by then, so nothing unknown arrives before t.
 *
 * Following a base order, the pass that comes first in it goes first; one that
 * has arrived may overtake up to `look` places where memory stays sufficient
 * for those it overtakes.
 *
 * A forward leaves one place for each deeper chunk of its device, without which
 * first-chunk forwards could fill the memory and stop everything.
 */
#include "sim/pipe/zb_lane.h"

struct list {
    struct mw_zb *z;
    struct mw_zb_run *r;
    const struct mw_zb_list_rule *rule;
    struct mw_zb_order *out;
    int *place; /* [p][codes][m]: where the base order has a pass */
    int *head;  /* [p]: first position of the base order not yet run */
    struct plan {
        mw_time at;
        uint8_t code;
    } * next; /* [p]: what each device would do; at NEVER: nothing yet */
};

static bool fits(const struct list *x, int d, int c)
{
    const struct mw_zb *z = x->z;
    int64_t keep = (z->v - 1 - c) * z->mem_f;

    return x->r->lane[d].memory + z->mem_f + keep <= z->limit[d];
}

static int w_chunk(const struct list *x, int d)
{
    const struct mw_zb *z = x->z;

    return z->v == 1 ? 0
                     : x->r->queue[(size_t)d * (size_t)z->m * (size_t)z->v +
                                   (size_t)x->r->lane[d].n_drained];
}

/* Better candidate of the two by time, then by rank. */
static void offer(struct plan *best, mw_time *rank, mw_time at, uint8_t code,
                  mw_time r)
{
    if (at < best->at || (at == best->at && r < *rank)) {
        best->at = at;
        best->code = code;
        *rank = r;
    }
}

/* ---- following a base order -------------------------------------------- */
enum { CODES = 4 * MW_ZB_CHUNKS_MAX };

static int place_of(const struct list *x, int d, int code, int k)
{
    return x->place[((size_t)d * CODES + (size_t)code) * (size_t)x->z->m +
                    (size_t)k];
}

static int count_of(const struct list *x, int d, int code)
{
    int i = d * x->z->v + MW_ZB_CHUNK(code);

    return MW_ZB_TYPE(code) == MW_ZB_F ? x->r->n_f[i] : x->r->n_b[i];
}

static void index_base(struct list *x)
{
    const struct mw_zb *z = x->z;
    int d, i;

    x->place = mw_calloc((size_t)z->p * CODES * (size_t)z->m, sizeof *x->place);
    x->head = mw_calloc((size_t)z->p, sizeof *x->head);
    for (d = 0; d < z->p; d++) {
        const uint8_t *code = mw_zb_list(x->rule->base, d);
        int n[CODES] = {0};

        for (i = 0; i < x->rule->base->n[d]; i++) {
            x->place[((size_t)d * CODES + code[i]) * (size_t)z->m +
                     (size_t)n[code[i]]++] = i;
        }
    }
}

/* Index among its kind of the pass at a position of the base order, from the
 * number that the head's prefix holds. */
static bool is_done(const struct list *x, int d, int at)
{
    int code = mw_zb_list(x->rule->base, d)[at];
    int n = count_of(x, d, code);

    return n > 0 && place_of(x, d, code, n - 1) >= at;
}

/*
 * May the pass at position `to` run before those in front of it? A forward
 * takes memory earlier: all forwards it overtakes must still fit, W passes
 * assumed done as soon as they can.
 */
static bool may_overtake(const struct list *x, int d, int to)
{
    const struct mw_zb *z = x->z;
    const struct mw_zb_lane *l = &x->r->lane[d];
    const uint8_t *code = mw_zb_list(x->rule->base, d);
    int64_t held = l->n_forwards - l->n_queued, most = z->k_max[d];
    int at;

    if (MW_ZB_TYPE(code[to]) == MW_ZB_B) {
        return true;
    }
    held++;
    for (at = x->head[d]; held <= most && at < to; at++) {
        if (!is_done(x, d, at)) {
            held += MW_ZB_TYPE(code[at]) == MW_ZB_F ? 1 : -1;
        }
    }
    return held <= most;
}

static void advance_head(struct list *x, int d)
{
    const struct mw_zb_order *base = x->rule->base;

    while (x->head[d] < base->n[d] && is_done(x, d, x->head[d])) {
        x->head[d]++;
    }
}

/* As first_pass, the candidates ranked by their place in the base order. */
static struct plan first_of_base(struct list *x, int d, bool *is_short)
{
    const struct mw_zb *z = x->z;
    const struct mw_zb_lane *l = &x->r->lane[d];
    struct plan best = {MW_ZB_NEVER, 0};
    int code, look = x->rule->look;
    mw_time rank = 0;

    *is_short = false;
    advance_head(x, d);
    if (x->head[d] >= x->rule->edge &&
        x->head[d] < x->rule->base->n[d] - x->rule->edge) {
        look = 0;
    }
    for (code = 0; code < 4 * z->v; code++) {
        int type = MW_ZB_TYPE(code), n, at;
        mw_time t;

        if (type > MW_ZB_B || (n = count_of(x, d, code)) == z->m) {
            continue;
        }
        at = place_of(x, d, code, n);
        t = mw_zb_ready(z, x->r, d * z->v + MW_ZB_CHUNK(code), type);
        if (t < 0 || at - x->head[d] > look || !may_overtake(x, d, at)) {
            continue;
        }
        t = t > l->t ? t : l->t;
        if (type == MW_ZB_F && l->memory + z->mem_f > z->limit[d]) {
            *is_short |= t <= l->t;
            continue;
        }
        offer(&best, &rank, t, (uint8_t)code, at);
    }
    return best;
}

/* Lower goes first: the preferred kind, then by the rule among equals. */
static mw_time rank_of(const struct list *x, bool is_late, int type, int c,
                       mw_time arrived)
{
    mw_time second = x->z->v - 1 - c;

    if (x->rule->among == MW_ZB_BY_ARRIVAL) {
        second = arrived;
    } else if (x->rule->among == MW_ZB_FARTHEST && type == MW_ZB_B) {
        second = c;
    }
    return is_late ? MW_ZB_NEVER / 2 + second : second;
}

/* Earliest F or B of a device. is_short: a forward waits for memory alone. */
static struct plan first_pass(const struct list *x, int d, bool *is_short)
{
    const struct mw_zb *z = x->z;
    const struct mw_zb_lane *l = &x->r->lane[d];
    struct plan best = {MW_ZB_NEVER, 0};
    bool lead = l->n_forwards - l->n_queued < x->rule->lead;
    mw_time rank = 0;
    int c;

    *is_short = false;
    for (c = z->v - 1; c >= 0; c--) {
        int i = d * z->v + c, k;
        mw_time t;

        for (k = 0; k < 2; k++) {
            int type = k == 0 ? MW_ZB_B : MW_ZB_F;
            mw_time arrived;

            if ((k == 0 ? x->r->n_b[i] : x->r->n_f[i]) == z->m) {
                continue;
            }
            t = mw_zb_ready(z, x->r, i, type);
            if (t < 0) {
                continue;
            }
            arrived = t;
            t = t > l->t ? t : l->t;
            if (type == MW_ZB_F && !fits(x, d, c)) {
                *is_short |= t <= l->t;
                continue;
            }
            offer(&best, &rank, t, MW_ZB_CODE(type, c),
                  rank_of(x, (type == MW_ZB_F) != lead, type, c, arrived));
        }
    }
    return best;
}

static void propose(struct list *x, int d)
{
    const struct mw_zb *z = x->z;
    const struct mw_zb_lane *l = &x->r->lane[d];
    bool is_short;
    struct plan best = x->rule->base != NULL ? first_of_base(x, d, &is_short)
                                             : first_pass(x, d, &is_short);

    if (l->n_drained < l->n_queued) {
        int c = w_chunk(x, d);
        double gap = (double)(best.at - l->t);
        double w = (double)z->w[d * z->v + c];

        if (best.at == MW_ZB_NEVER ||
            (gap > 0 && gap >= x->rule->patience * w) ||
            (is_short && MW_ZB_TYPE(best.code) != MW_ZB_B) ||
            (is_short && best.at > l->t)) {
            best.at = l->t;
            best.code = MW_ZB_CODE(MW_ZB_W, c);
        }
    }
    x->next[d] = best;
}

static void run_pass(struct list *x, int d)
{
    const struct mw_zb *z = x->z;
    struct mw_zb_lane *l = &x->r->lane[d];
    uint8_t code = x->next[d].code;
    int c = MW_ZB_CHUNK(code), type = MW_ZB_TYPE(code);

    l->t = x->next[d].at;
    if (x->out->n[d] == 0) {
        x->r->start[d] = l->t;
    }
    if (type == MW_ZB_F) {
        l->memory += z->mem_f;
        l->n_forwards++;
    } else if (type == MW_ZB_B) {
        x->r->queue[(size_t)d * (size_t)z->m * (size_t)z->v +
                    (size_t)l->n_queued++] = (uint8_t)c;
        l->memory -= z->mem_b;
    } else {
        l->n_drained++;
        l->memory -= z->mem_w;
    }
    mw_zb_finish(z, x->r, d, c, type);
    x->r->end[d] = l->t;
    mw_zb_add(x->out, d, code);
}

/* Devices whose candidates a pass of device d may have changed. */
static void propose_around(struct list *x, int d)
{
    const struct mw_zb *z = x->z;
    int c;

    propose(x, d);
    for (c = 0; c < z->v; c++) {
        int k = z->vs[d * z->v + c];

        if (k > 0 && z->dev[k - 1] != d) {
            propose(x, z->dev[k - 1]);
        }
        if (k + 1 < z->n_virtual && z->dev[k + 1] != d) {
            propose(x, z->dev[k + 1]);
        }
    }
}

mw_time mw_zb_list_run(struct mw_zb *z, struct mw_zb_run *r,
                       const struct mw_zb_list_rule *rule,
                       struct mw_zb_order *out)
{
    struct list x = {.z = z, .r = r, .rule = rule, .out = out};
    int d, left = 3 * z->m * z->n_virtual;

    mw_zb_run_reset(z, r);
    z->effort += 2.0 * left; /* slower than a longest path */
    x.next = mw_calloc((size_t)z->p, sizeof *x.next);
    if (rule->base != NULL) {
        index_base(&x);
    }
    for (d = 0; d < z->p; d++) {
        out->n[d] = 0;
        propose(&x, d);
    }
    for (; left > 0; left--) {
        int best = 0;

        for (d = 1; d < z->p; d++) {
            best = x.next[d].at < x.next[best].at ? d : best;
        }
        if (x.next[best].at == MW_ZB_NEVER) {
            break;
        }
        run_pass(&x, best);
        propose_around(&x, best);
    }
    mw_free(x.next);
    mw_free(x.place);
    mw_free(x.head);
    return left > 0 ? MW_ZB_NEVER : mw_zb_objective(z, r);
}

/* The F and B of a full order. */
void mw_zb_strip(const struct mw_zb *z, const struct mw_zb_order *full,
                 struct mw_zb_order *fb)
{
    int d, i;

    for (d = 0; d < z->p; d++) {
        const uint8_t *code = mw_zb_list(full, d);

        fb->n[d] = 0;
        for (i = 0; i < full->n[d]; i++) {
            if (MW_ZB_TYPE(code[i]) != MW_ZB_W) {
                mw_zb_add(fb, d, code[i]);
            }
        }
    }
}

/* Keeps the list's own order when it is the best so far. */
static void keep(struct mw_zb *z, const struct mw_zb_order *o, mw_time v,
                 struct mw_zb_best *best)
{
    if (v < best->value) {
        mw_zb_order_copy(&best->order, o, z->p);
        best->value = v;
        best->found_by = "list";
    }
}

void mw_zb_lists(struct mw_zb *z, struct mw_zb_run *r, struct mw_zb_best *best)
{
    static const double patience[] = {1, 0.5, 0, 2};
    struct mw_zb_order full, fb;
    int lead, most = z->p * z->v;
    size_t i;

    mw_zb_order_init(&full, z);
    mw_zb_order_init(&fb, z);
    for (lead = 0; lead <= most; lead += (most + 7) / 8) {
        for (i = 0; i < 3 * sizeof patience / sizeof patience[0]; i++) {
            struct mw_zb_list_rule rule = {.patience = patience[i / 3],
                                           .lead = lead,
                                           .among = (enum mw_zb_among)(i % 3)};
            struct mw_zb_rule w = {.target = best->bound,
                                   .target_tail = best->bound,
                                   .fill_f = true,
                                   .fill_b = true};

            mw_time v = mw_zb_list_run(z, r, &rule, &full);

            if (v == MW_ZB_NEVER) {
                continue;
            }
            keep(z, &full, v, best);
            mw_zb_strip(z, &full, &fb);
            if (mw_zb_try(z, r, &fb, &w, best, "list")) {
                break;
            }
            w.target = w.target_tail = best->value - 1;
            if (mw_zb_try(z, r, &fb, &w, best, "list")) {
                break;
            }
        }
    }
    mw_zb_order_release(&full);
    mw_zb_order_release(&fb);
}
