/*
 * Local search on complete orders: move one pass along its device's list,
 * mostly one on the critical path, keep what is better or (simulated annealing)
 * slightly worse, until the bound is met or the effort is spent.
 *
 * Energy: objective + 1/50 of the mean stage span, so that stages off the
 * critical path do not drift. The random numbers are counter-based (seed 1):
 * the same input gives the same moves.
 */
#include "sim/pipe/zb_lane.h"

#include "base/rand.h"

#include <math.h>
#include <string.h>

/* Where a pass of (device, chunk) i comes from or goes to. */
struct neighbour {
    int i, device; /* -1: none */
    mw_time comm;
    size_t cell; /* of its first micro-batch in f_end and b_end */
};

struct polish {
    struct mw_zb *z;
    struct mw_zb_run *r;
    struct mw_zb_order *o;       /* current */
    struct neighbour *down, *up; /* [p v]: a virtual stage lower, higher */
    mw_time *start;              /* [p * stride]: of every pass */
    int *at_f, *at_b;            /* [p v][m]: position of a pass in its list */
    int *path; /* critical passes: device * stride + position */
    int n_path;
    int *count; /* [p * stride]: micro-batch of every pass */
    double energy;
    mw_time value;
    uint64_t draw;
};

static double draw(struct polish *x)
{
    return mw_rand_unit(1, 0, x->draw++);
}

static int below(struct polish *x, int n)
{
    return (int)(draw(x) * n);
}

static void find_neighbours(struct polish *x)
{
    const struct mw_zb *z = x->z;

    for (int i = 0; i < z->p * z->v; i++) {
        for (int way = -1; way <= 1; way += 2) {
            struct neighbour *to = way < 0 ? &x->down[i] : &x->up[i];
            int k = z->vs[i] + way;

            *to = (struct neighbour){.i = -1, .device = -1};
            if (k >= 0 && k < z->n_virtual) {
                to->i = z->dev[k] * z->v + z->chunk[k];
                to->device = z->dev[k];
                to->comm = to->device == z->dev[z->vs[i]] ? 0 : z->comm;
                to->cell = (size_t)k * (size_t)z->m;
            }
        }
    }
}

/* Starts the next pass of (device, chunk) i, of which counts[i] are done, when
 * its neighbour's has come and t is over; false when that is not known yet. */
static inline bool pass(struct mw_zb_run *r, const struct neighbour *from,
                        const struct neighbour *to, int d, int i, size_t cell,
                        mw_time work, int *counts, mw_time *ends, mw_time *t,
                        mw_time *out_start)
{
    int n = counts[i];

    if (from->i >= 0) {
        if (counts[from->i] <= n) {
            return false;
        }
        mw_time ready = ends[from->cell + (size_t)n] + from->comm;

        *t = ready > *t ? ready : *t;
    }
    *out_start = *t;
    *t += work;
    ends[cell + (size_t)n] = *t;
    counts[i] = n + 1;
    if (to->i >= 0 && to->device != d) {
        mw_zb_wake(r, to->device);
    }
    return true;
}

/* Moves keep F before B before W, so what a pass needs of its own device is
 * there: the neighbour's pass is all that B and F wait for, and W waits for
 * nothing. Else as mw_zb_ready and mw_zb_finish. */
static void run_device(struct polish *x, int d)
{
    const struct mw_zb *z = x->z;
    struct mw_zb_run *r = x->r;
    struct mw_zb_lane *l = &r->lane[d];
    const uint8_t *code = mw_zb_list(x->o, d);
    mw_time *start = x->start + (size_t)d * (size_t)x->o->stride, t = l->t;
    int at = l->at, n = x->o->n[d];

    for (; at < n; at++) {
        int type = MW_ZB_TYPE(code[at]);
        int i = d * z->v + MW_ZB_CHUNK(code[at]);
        const struct neighbour *down = &x->down[i], *up = &x->up[i];
        size_t cell = (size_t)z->vs[i] * (size_t)z->m;

        if (type == MW_ZB_W) {
            start[at] = t;
            t += z->w[i];
            r->n_w[i]++;
        } else if (!(type == MW_ZB_F
                         ? pass(r, down, up, d, i, cell, z->f[i], r->n_f,
                                r->f_end, &t, &start[at])
                         : pass(r, up, down, d, i, cell, z->b[i], r->n_b,
                                r->b_end, &t, &start[at]))) {
            break;
        }
    }
    l->at = at;
    l->t = t;
    if (at == n) {
        r->start[d] = start[0];
        r->end[d] = t;
    }
}

/* Objective of the current order (memory is checked by the moves). */
static mw_time evaluate(struct polish *x, double *out_energy)
{
    struct mw_zb *z = x->z;
    struct mw_zb_run *r = x->r;
    double sum = 0;
    mw_time v;
    int d;

    mw_zb_run_reset(z, r);
    z->effort += 3.0 * z->m * z->n_virtual;
    while (r->n_stacked > 0) {
        d = r->stack[--r->n_stacked];
        r->is_stacked[d] = false;
        run_device(x, d);
    }
    for (d = 0; d < z->p; d++) {
        if (r->lane[d].at < x->o->n[d]) {
            return MW_ZB_NEVER;
        }
        sum += (double)(r->end[d] - r->start[d]);
    }
    v = mw_zb_objective(z, r);
    *out_energy = (double)v + 0.02 * sum / z->p;
    return v;
}

/* ---- critical path ----------------------------------------------------- */
static mw_time work_of(const struct mw_zb *z, int d, uint8_t code)
{
    int i = d * z->v + MW_ZB_CHUNK(code), type = MW_ZB_TYPE(code);

    return type == MW_ZB_F ? z->f[i] : type == MW_ZB_B ? z->b[i] : z->w[i];
}

/* The pass that the one at (d, i) waited for, as device * stride + position;
 * -1 at the start. */
static int cause(const struct polish *x, int d, int i)
{
    const struct mw_zb *z = x->z;
    const uint8_t *code = mw_zb_list(x->o, d);
    int stride = x->o->stride, at = d * stride + i;
    int c = MW_ZB_CHUNK(code[i]), type = MW_ZB_TYPE(code[i]);
    int k = z->vs[d * z->v + c], from;
    size_t n = (size_t)x->count[at];

    if (i > 0 &&
        x->start[at - 1] + work_of(z, d, code[i - 1]) == x->start[at]) {
        return at - 1;
    }
    if (type == MW_ZB_F) {
        from = k - 1;
        return k == 0 ? -1
                      : z->dev[from] * stride +
                            x->at_f[(size_t)from * (size_t)z->m + n];
    }
    from = k + 1;
    if (type == MW_ZB_B && from < z->n_virtual) {
        return z->dev[from] * stride + x->at_b[(size_t)from * (size_t)z->m + n];
    }
    return i > 0 ? at - 1 : -1;
}

/* Micro-batch of every pass, and where each micro-batch's are, by counting. */
static void count_passes(const struct polish *x)
{
    const struct mw_zb *z = x->z;
    int d, i;

    for (d = 0; d < z->p; d++) {
        int n[4 * MW_ZB_CHUNKS_MAX] = {0};
        const uint8_t *code = mw_zb_list(x->o, d);

        for (i = 0; i < x->o->n[d]; i++) {
            int type = MW_ZB_TYPE(code[i]), m = n[code[i]]++;
            int cell = z->vs[d * z->v + MW_ZB_CHUNK(code[i])] * z->m + m;

            x->count[d * x->o->stride + i] = m;
            if (type == MW_ZB_F) {
                x->at_f[cell] = i;
            } else if (type == MW_ZB_B) {
                x->at_b[cell] = i;
            }
        }
    }
}

static void trace(struct polish *x)
{
    const struct mw_zb *z = x->z;
    const struct mw_zb_run *r = x->r;
    int d, worst = 0, at;

    for (d = 1; d < z->p; d++) {
        mw_time a = r->end[d] - (z->is_span ? r->start[d] : 0);
        mw_time b = r->end[worst] - (z->is_span ? r->start[worst] : 0);

        worst = a > b ? d : worst;
    }
    count_passes(x);
    x->n_path = 0;
    at = worst * x->o->stride + x->o->n[worst] - 1;
    while (at >= 0 && x->n_path < z->p * x->o->stride) {
        x->path[x->n_path++] = at;
        at = cause(x, at / x->o->stride, at % x->o->stride);
    }
}

/* ---- moves ------------------------------------------------------------- */
static void shift(uint8_t *code, int from, int to)
{
    uint8_t moved = code[from];

    if (from < to) {
        memmove(code + from, code + from + 1, (size_t)(to - from));
    } else {
        memmove(code + to + 1, code + to, (size_t)(from - to));
    }
    code[to] = moved;
}

/* F before B before W by count, chunk by chunk, and within memory. */
static bool is_legal(const struct polish *x, int d)
{
    const struct mw_zb *z = x->z;
    const uint8_t *code = mw_zb_list(x->o, d);
    int n[4 * MW_ZB_CHUNKS_MAX] = {0}, i;
    int64_t memory = 0;

    for (i = 0; i < x->o->n[d]; i++) {
        int type = MW_ZB_TYPE(code[i]);

        n[code[i]]++;
        if (type == MW_ZB_F) {
            memory += z->mem_f;
            if (memory > z->limit[d]) {
                return false;
            }
        } else if (n[code[i]] > n[code[i] - 1]) {
            return false;
        } else {
            memory -= type == MW_ZB_B ? z->mem_b : z->mem_w;
        }
    }
    return true;
}

/* Picks a pass and where it goes; false when nothing would change. */
static bool pick(struct polish *x, int *out_d, int *out_from, int *out_to)
{
    int d, from, to, reach = 1 + below(x, 4);
    const uint8_t *code;

    if (x->n_path > 0 && draw(x) < 0.7) {
        int at = x->path[below(x, x->n_path)];

        d = at / x->o->stride;
        from = at % x->o->stride;
    } else {
        d = below(x, x->z->p);
        from = below(x, x->o->n[d]);
    }
    code = mw_zb_list(x->o, d);
    to = from;
    if (draw(x) < 0.5) {
        while (to > 0 && reach > 0) {
            to--;
            reach -= code[to] != code[from];
        }
    } else {
        while (to + 1 < x->o->n[d] && reach > 0) {
            to++;
            reach -= code[to] != code[from];
        }
    }
    *out_d = d;
    *out_from = from;
    *out_to = to;
    return code[to] != code[from];
}

static double pass_time(const struct mw_zb *z)
{
    double sum = 0;
    int d;

    for (d = 0; d < z->p; d++) {
        sum += (double)z->work[d];
    }
    return sum / (3.0 * z->m * z->n_virtual);
}

/* One step at a temperature; true when the current order changed. */
static bool step(struct polish *x, double temperature)
{
    int d, from, to;
    double energy = 0;
    mw_time v;

    if (!pick(x, &d, &from, &to)) {
        return false;
    }
    shift(mw_zb_list(x->o, d), from, to);
    v = is_legal(x, d) ? evaluate(x, &energy) : MW_ZB_NEVER;
    if (v == MW_ZB_NEVER ||
        (energy > x->energy &&
         draw(x) >= exp((x->energy - energy) / temperature))) {
        shift(mw_zb_list(x->o, d), to, from);
        return false;
    }
    x->energy = energy;
    x->value = v;
    return true;
}

/* One cooling from the best order, from `heat` mean pass times to nothing. */
static void anneal(struct polish *x, double effort, double heat,
                   struct mw_zb_best *best)
{
    struct mw_zb *z = x->z;
    double begin = z->effort, scale = heat * pass_time(z);

    mw_zb_order_copy(x->o, &best->order, z->p);
    x->value = evaluate(x, &x->energy);
    trace(x);
    while (z->effort - begin < effort && best->value > best->bound) {
        double left = 1 - (z->effort - begin) / effort;

        z->effort += 8; /* moves that are refused at once cost a little too */
        if (!step(x, scale * left + 1)) {
            continue;
        }
        if (x->value < best->value) {
            mw_zb_order_copy(&best->order, x->o, z->p);
            best->value = x->value;
            best->found_by = "local search";
        }
        trace(x);
    }
}

void mw_zb_polish(struct mw_zb *z, struct mw_zb_run *r, double effort,
                  struct mw_zb_best *best)
{
    static const struct {
        double heat, share;
    } phase[] = {{0.01, 0.5}, {0.1, 0.25}, {0.3, 0.25}};
    size_t cells = (size_t)z->n_virtual * (size_t)z->m, i;
    size_t passes = (size_t)z->p * (size_t)best->order.stride;
    size_t lanes = (size_t)z->p * (size_t)z->v;
    struct mw_zb_order o;
    struct polish x = {.z = z, .r = r, .o = &o};

    mw_zb_order_init(&o, z);
    x.start = mw_calloc(passes, sizeof *x.start);
    x.down = mw_calloc(2 * lanes, sizeof *x.down);
    x.up = x.down + lanes;
    find_neighbours(&x);
    x.at_f = mw_calloc(2 * cells, sizeof *x.at_f);
    x.at_b = x.at_f + cells;
    x.path = mw_calloc(2 * passes, sizeof *x.path);
    x.count = x.path + passes;
    for (i = 0; i < sizeof phase / sizeof phase[0]; i++) {
        anneal(&x, effort * phase[i].share, phase[i].heat, best);
    }
    mw_free(x.start);
    mw_free(x.down);
    mw_free(x.at_f);
    mw_free(x.path);
    mw_zb_order_release(&o);
}
