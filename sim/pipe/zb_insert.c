/*
 * Weight-gradient insertion: the order of F and B is fixed, each device decides
 * as it goes where its W passes fit.
 *
 *   Before a pass that can start at `ready` while the device is free from `t`:
 *     a W that ends by then goes in front of it;
 *     a W that would delay it goes in front of it only when waiting would use
 *     more idle time than the target leaves: idle + wait > target - work
 *     (- head for the makespan);
 *     memory short before an F: W until it fits.
 *   The device's first stage without forwards left delays nobody with its B,
 *   so it drains W before it waits.
 *
 * All arrivals are final when they are read (each device runs its own list in
 * order), so the result does not depend on which device is advanced first.
 * Trying the lower bound itself as target finds most optima at once.
 */
#include "sim/pipe/zb_lane.h"

struct insertion {
    struct mw_zb *z;
    struct mw_zb_run *r;
    const struct mw_zb_order *fb;
    const struct mw_zb_rule *rule;
    struct mw_zb_order *out;
    mw_time cutoff;
};

static void record(const struct insertion *x, int d, uint8_t code)
{
    if (x->out != NULL) {
        mw_zb_add(x->out, d, code);
    }
}

/* Chunk of the W that is next in the queue (order of B). */
static int next_w_chunk(const struct insertion *x, int d)
{
    const struct mw_zb_run *r = x->r;
    const struct mw_zb *z = x->z;

    if (z->v == 1) {
        return 0;
    }
    return r->queue[(size_t)d * (size_t)z->m * (size_t)z->v +
                    (size_t)r->lane[d].n_drained];
}

static void run_w(const struct insertion *x, int d)
{
    struct mw_zb_lane *l = &x->r->lane[d];
    int c = next_w_chunk(x, d);

    mw_zb_finish(x->z, x->r, d, c, MW_ZB_W);
    l->n_drained++;
    l->memory -= x->z->mem_w;
    record(x, d, MW_ZB_CODE(MW_ZB_W, c));
}

static mw_time next_w_time(const struct insertion *x, int d)
{
    return x->z->w[d * x->z->v + next_w_chunk(x, d)];
}

/* Idle time of the stage that has waited longest. */
static mw_time longest_idle(const struct insertion *x)
{
    mw_time most = 0;
    int i;

    for (i = 0; i < x->z->p; i++) {
        most = x->r->lane[i].idle > most ? x->r->lane[i].idle : most;
    }
    return most;
}

/* Idle time that the target leaves to a device. */
static mw_time budget(const struct insertion *x, int d)
{
    const struct mw_zb *z = x->z;
    bool has_forwards = x->r->lane[d].n_forwards < z->m * z->v;
    mw_time target = has_forwards ? x->rule->target : x->rule->target_tail;

    if (x->rule->is_level) {
        return longest_idle(x);
    }
    if (target == MW_ZB_NEVER) {
        return target;
    }
    return target - z->work[d] - (z->is_span ? 0 : z->head[d]);
}

/* Fills the time until `ready`; then the pass may start. */
static void fill(const struct insertion *x, int d, int type, mw_time ready)
{
    struct mw_zb_lane *l = &x->r->lane[d];
    bool may_delay = type == MW_ZB_F ? x->rule->fill_f : x->rule->fill_b;
    bool is_free = d == 0 && l->n_forwards == x->z->m * x->z->v;

    while (l->t < ready && l->n_drained < l->n_queued) {
        if (ready - l->t < next_w_time(x, d) && !is_free &&
            !(may_delay && l->idle + ready - l->t > budget(x, d))) {
            break;
        }
        run_w(x, d);
    }
    if (l->t < ready) {
        if (l->at > 0) {
            l->idle += ready - l->t;
        }
        l->t = ready;
    }
}

static bool make_room(const struct insertion *x, int d)
{
    struct mw_zb_lane *l = &x->r->lane[d];

    while (l->memory + x->z->mem_f > x->z->limit[d]) {
        if (l->n_drained == l->n_queued) {
            return false;
        }
        run_w(x, d);
    }
    l->memory += x->z->mem_f;
    l->n_forwards++;
    return true;
}

static void queue_w(const struct insertion *x, int d, int c)
{
    struct mw_zb_lane *l = &x->r->lane[d];

    if (x->z->v > 1) {
        x->r->queue[(size_t)d * (size_t)x->z->m * (size_t)x->z->v +
                    (size_t)l->n_queued] = (uint8_t)c;
    }
    l->n_queued++;
    l->memory -= x->z->mem_b;
}

/* Runs one F or B of device d that can start at ready, with what W passes go in
 * front of it. False when memory forbids it, or only at cutoff or worse. */
static bool place(const struct insertion *x, int d, uint8_t code, mw_time ready)
{
    struct mw_zb *z = x->z;
    struct mw_zb_lane *l = &x->r->lane[d];
    int c = MW_ZB_CHUNK(code), type = MW_ZB_TYPE(code);

    if (type == MW_ZB_F && !make_room(x, d)) {
        return false;
    }
    fill(x, d, type, ready);
    if (l->idle + z->work[d] + (z->is_span ? 0 : z->head[d]) >= x->cutoff) {
        return false;
    }
    if (l->at == 0) {
        x->r->start[d] = l->t;
    }
    if (type == MW_ZB_B) {
        queue_w(x, d, c);
    }
    mw_zb_finish(z, x->r, d, c, type);
    record(x, d, code);
    l->at++;
    return true;
}

static void drain(const struct insertion *x, int d)
{
    struct mw_zb_lane *l = &x->r->lane[d];

    while (l->n_drained < l->n_queued) {
        run_w(x, d);
    }
    x->r->end[d] = l->t;
}

/* Goes on with the list of d until it must wait; false as place() says. */
static bool insert_device(const struct insertion *x, int d)
{
    struct mw_zb_lane *l = &x->r->lane[d];
    const uint8_t *code = mw_zb_list(x->fb, d);

    while (l->at < x->fb->n[d]) {
        int i = d * x->z->v + MW_ZB_CHUNK(code[l->at]);
        mw_time ready = mw_zb_ready(x->z, x->r, i, MW_ZB_TYPE(code[l->at]));

        if (ready < 0) {
            return true;
        }
        if (!place(x, d, code[l->at], ready)) {
            return false;
        }
    }
    drain(x, d);
    return true;
}

mw_time mw_zb_insert(struct mw_zb *z, struct mw_zb_run *r,
                     const struct mw_zb_order *fb,
                     const struct mw_zb_rule *rule, mw_time cutoff,
                     struct mw_zb_order *out)
{
    struct insertion x = {z, r, fb, rule, out, cutoff};
    bool is_alive = true;
    mw_time value;
    int d;

    mw_zb_run_reset(z, r);
    for (d = 0; out != NULL && d < z->p; d++) {
        out->n[d] = 0;
    }
    while (is_alive && r->n_stacked > 0) {
        d = r->stack[--r->n_stacked];
        r->is_stacked[d] = false;
        is_alive = insert_device(&x, d);
    }
    for (d = 0; d < z->p; d++) {
        is_alive &= r->lane[d].at == 2 * z->m * z->v;
        z->effort += r->lane[d].at + r->lane[d].n_drained;
    }
    value = is_alive ? mw_zb_objective(z, r) : MW_ZB_NEVER;
    return value < cutoff ? value : MW_ZB_NEVER;
}

/* ---- rows -------------------------------------------------------------- */
/*
 * May stage i leave out its F of this row? The next stage has two to run still,
 * the F would keep the next B waiting, and waiting for that B (the next stage
 * does an F and it) does not make this the stage that has waited longest.
 */
static bool wants_to_skip(const struct insertion *x, int i)
{
    const struct mw_zb *z = x->z;
    const struct mw_zb_lane *l = &x->r->lane[i], *next = &x->r->lane[i + 1];
    mw_time arrival = next->t + z->f[i + 1] + z->b[i + 1] + z->comm;
    int64_t over = l->memory + z->mem_f - z->limit[i];
    mw_time drain = 0;

    if (x->r->n_f[i] - x->r->n_f[i + 1] < 2) {
        return false;
    }
    if (l->t >= arrival) {
        return true;
    }
    if (over > 0 && z->mem_w > 0) {
        drain = (over + z->mem_w - 1) / z->mem_w * z->w[i];
    }
    return l->t + z->f[i] + drain > arrival &&
           arrival - l->t <= longest_idle(x) - l->idle;
}

/* First stage that runs an F in this row: those above it skip theirs. */
static int first_running(const struct insertion *x)
{
    int i;

    for (i = x->z->p - 2; x->rule->may_skip && i >= 0; i--) {
        if (x->r->n_f[i] < x->z->m && wants_to_skip(x, i)) {
            return i + 1;
        }
    }
    return 0;
}

static bool run_row(const struct insertion *x)
{
    const struct mw_zb *z = x->z;
    int i;

    for (i = first_running(x); i < z->p; i++) {
        if (x->r->n_f[i] < z->m &&
            !place(x, i, MW_ZB_F, mw_zb_ready(z, x->r, i, MW_ZB_F))) {
            return false;
        }
    }
    for (i = z->p - 1; i >= 0; i--) {
        mw_time ready = mw_zb_ready(z, x->r, i, MW_ZB_B);

        if (ready < 0 || !place(x, i, MW_ZB_B, ready)) {
            return false;
        }
    }
    return true;
}

static bool run_rows(const struct insertion *x, const int *warm)
{
    const struct mw_zb *z = x->z;
    int i, k;

    for (i = 0; i < z->p; i++) {
        for (k = 0; k < warm[i] && k < z->m; k++) {
            if (!place(x, i, MW_ZB_F, mw_zb_ready(z, x->r, i, MW_ZB_F))) {
                return false;
            }
        }
    }
    for (i = z->p - 1; i >= 0; i--) {
        if (!place(x, i, MW_ZB_B, mw_zb_ready(z, x->r, i, MW_ZB_B))) {
            return false;
        }
    }
    for (k = 1; k < z->m; k++) {
        if (!run_row(x)) {
            return false;
        }
    }
    for (i = 0; i < z->p; i++) {
        drain(x, i);
    }
    return true;
}

mw_time mw_zb_rows(struct mw_zb *z, struct mw_zb_run *r, const int *warm,
                   const struct mw_zb_rule *rule, mw_time cutoff,
                   struct mw_zb_order *out)
{
    struct insertion x = {z, r, NULL, rule, out, cutoff};
    mw_time value = MW_ZB_NEVER;
    int i;

    mw_zb_run_reset(z, r);
    for (i = 0; out != NULL && i < z->p; i++) {
        out->n[i] = 0;
    }
    if (run_rows(&x, warm)) {
        value = mw_zb_objective(z, r);
    }
    for (i = 0; i < z->p; i++) {
        z->effort += r->lane[i].at + r->lane[i].n_drained;
    }
    return value < cutoff ? value : MW_ZB_NEVER;
}
