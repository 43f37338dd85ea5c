/*
 * The problem of the automatic scheduler: units, derived quantities, orders,
 * and evaluation of a complete order by longest path.
 *
 * Memory is counted in 2^20ths of a chunk's activation, so that B + W frees
 * exactly what F took.
 */
#include "sim/pipe/zb_int.h"
#include "sim/pipe/zb_lane.h"

#include <math.h>
#include <string.h>

enum { MEMORY_UNIT = 1 << 20 };

/* Memory units that a device may hold. */
static int64_t limit_units(const struct mw_auto_problem *q, int d)
{
    double limit = q->stage_limit != NULL ? q->stage_limit[d] : q->memory_limit;
    double most = (double)q->n_microbatches * q->n_chunks;
    double chunks = limit > 0 ? limit * q->n_chunks : most;

    /* A limit written as 1.125 * 8 must not lose an activation to rounding. */
    return (int64_t)((chunks < most ? chunks : most) * MEMORY_UNIT + 0.5);
}

static void init_places(struct mw_zb *z)
{
    int k;

    for (k = 0; k < z->n_virtual; k++) {
        int w = k % (2 * z->p);

        z->dev[k] = w < z->p ? w : 2 * z->p - 1 - w;
        z->chunk[k] = k / z->p;
        z->vs[z->dev[k] * z->v + z->chunk[k]] = k;
    }
}

static void init_derived(struct mw_zb *z)
{
    mw_time at = 0;
    int d, c;

    for (d = 0; d < z->p; d++) {
        z->head[d] = at;
        at += z->f[d * z->v] + z->comm;
        z->work[d] = 0;
        for (c = 0; c < z->v; c++) {
            int i = d * z->v + c;

            z->work[d] += z->m * (z->f[i] + z->b[i] + z->w[i]);
        }
        z->k_max[d] = (int)(z->limit[d] / z->mem_f);
        if (z->k_max[d] > z->m * z->v) {
            z->k_max[d] = z->m * z->v;
        }
    }
}

void mw_zb_init(struct mw_zb *z, const struct mw_auto_problem *q)
{
    size_t p = (size_t)q->n_stages, n = p * (size_t)q->n_chunks;
    double passes;

    memset(z, 0, sizeof *z);
    z->p = q->n_stages;
    z->m = q->n_microbatches;
    z->v = q->n_chunks;
    z->n_virtual = z->p * z->v;
    z->is_span = q->objective == MW_OBJECTIVE_SPAN;
    z->dev = mw_calloc(3 * n, sizeof *z->dev);
    z->chunk = z->dev + n;
    z->vs = z->dev + 2 * n;
    z->f = mw_calloc(3 * n, sizeof *z->f);
    z->b = z->f + n;
    z->w = z->f + 2 * n;
    memcpy(z->f, q->f_ps, n * sizeof *z->f);
    memcpy(z->b, q->b_ps, n * sizeof *z->b);
    memcpy(z->w, q->w_ps, n * sizeof *z->w);
    z->comm = q->comm_ps;
    z->is_fused = q->is_fused;
    for (size_t i = 0; z->is_fused && i < n; i++) {
        z->b[i] += z->w[i];
        z->w[i] = 0;
    }
    z->mem_f = MEMORY_UNIT;
    z->mem_w = q->is_fused ? 0 : llround(q->w_share * MEMORY_UNIT);
    z->mem_b = z->mem_f - z->mem_w;
    z->limit = mw_calloc(p, sizeof *z->limit);
    z->work = mw_calloc(p, sizeof *z->work);
    z->head = mw_calloc(p, sizeof *z->head);
    z->k_max = mw_calloc(p, sizeof *z->k_max);
    for (int d = 0; d < z->p; d++) {
        z->limit[d] = limit_units(q, d);
    }
    init_places(z);
    init_derived(z);
    /* What construction may cost: enough runs for every base order. */
    passes = 3.0 * z->m * z->n_virtual;
    z->effort_limit =
        z->v == 1 ? fmax(3e7, 150 * passes) : fmax(3e6, 60 * passes);
}

void mw_zb_set_times(struct mw_zb *z, mw_time *fbw, mw_time comm)
{
    z->f = fbw;
    z->b = fbw + z->n_virtual;
    z->w = fbw + 2 * (size_t)z->n_virtual;
    z->comm = comm;
    init_derived(z);
}

void mw_zb_release(struct mw_zb *z)
{
    mw_free(z->dev);
    mw_free(z->f);
    mw_free(z->limit);
    mw_free(z->work);
    mw_free(z->head);
    mw_free(z->k_max);
    memset(z, 0, sizeof *z);
}

/* A V device must hold a micro-batch's forward of both chunks (B of the second
 * comes before B of the first), one chunk a device needs one. */
int mw_zb_min_chunks(int p, int m, int v)
{
    (void)p;
    (void)m;
    return v;
}

static enum mw_status check_times(const struct mw_auto_problem *q,
                                  struct mw_err *err)
{
    int i, n = q->n_stages * q->n_chunks;

    for (i = 0; i < n; i++) {
        if (q->f_ps[i] <= 0 || q->b_ps[i] <= 0 || q->w_ps[i] < 0) {
            return mw_fail(err, MW_EUSAGE,
                           "stage %d: forward and input-gradient times must be "
                           "positive and the weight-gradient time not negative",
                           i / q->n_chunks);
        }
    }
    if (q->comm_ps < 0) {
        return mw_fail(err, MW_EUSAGE, "the transfer time is negative");
    }
    return MW_OK;
}

static enum mw_status check_memory(const struct mw_auto_problem *q,
                                   struct mw_err *err)
{
    int d, need = mw_zb_min_chunks(q->n_stages, q->n_microbatches, q->n_chunks);

    for (d = 0; d < q->n_stages; d++) {
        if (limit_units(q, d) < (int64_t)need * MEMORY_UNIT) {
            return mw_fail(err, MW_EUSAGE,
                           "a memory limit of %g activations is below the "
                           "minimum of %g: every device must hold one "
                           "micro-batch",
                           q->stage_limit != NULL ? q->stage_limit[d]
                                                  : q->memory_limit,
                           (double)need / q->n_chunks);
        }
    }
    return MW_OK;
}

enum mw_status mw_zb_check(const struct mw_auto_problem *q, struct mw_err *err)
{
    enum mw_status st;

    if (q->n_stages < 1 || q->n_stages > MW_SCHED_STAGES_MAX ||
        q->n_microbatches < 1 ||
        q->n_microbatches > MW_SCHED_MICROBATCHES_MAX) {
        return mw_fail(err, MW_EUSAGE,
                       "an automatic schedule needs 1 to %d stages and 1 to %d "
                       "micro-batches, not %d and %d",
                       MW_SCHED_STAGES_MAX, MW_SCHED_MICROBATCHES_MAX,
                       q->n_stages, q->n_microbatches);
    }
    if (q->n_chunks != 1 && (q->n_chunks < 2 || q->n_chunks % 2 != 0 ||
                             q->n_chunks > MW_ZB_CHUNKS_MAX)) {
        return mw_fail(err, MW_EUSAGE,
                       "an automatic schedule has 1 chunk per stage or an even "
                       "number up to %d (V placement), not %d",
                       MW_ZB_CHUNKS_MAX, q->n_chunks);
    }
    if (!(q->w_share >= 0 && q->w_share <= 1)) {
        return mw_fail(err, MW_EUSAGE,
                       "the part of an activation that only W frees is %g; it "
                       "must be from 0 to 1",
                       q->w_share);
    }
    st = check_times(q, err);
    return st == MW_OK ? check_memory(q, err) : st;
}

/* ---- orders ------------------------------------------------------------ */
void mw_zb_order_init(struct mw_zb_order *o, const struct mw_zb *z)
{
    o->stride = 3 * z->m * z->v;
    o->code = mw_calloc((size_t)z->p * (size_t)o->stride, 1);
    o->n = mw_calloc((size_t)z->p, sizeof *o->n);
}

void mw_zb_order_release(struct mw_zb_order *o)
{
    mw_free(o->code);
    mw_free(o->n);
    memset(o, 0, sizeof *o);
}

void mw_zb_order_copy(struct mw_zb_order *to, const struct mw_zb_order *from,
                      int p)
{
    memcpy(to->code, from->code, (size_t)p * (size_t)from->stride);
    memcpy(to->n, from->n, (size_t)p * sizeof *to->n);
}

/* ---- runs -------------------------------------------------------------- */
void mw_zb_run_init(struct mw_zb_run *r, const struct mw_zb *z)
{
    size_t n = (size_t)z->n_virtual, p = (size_t)z->p;

    memset(r, 0, sizeof *r);
    r->f_end = mw_calloc(2 * n * (size_t)z->m, sizeof *r->f_end);
    r->b_end = r->f_end + n * (size_t)z->m;
    r->n_f = mw_calloc(3 * n, sizeof *r->n_f);
    r->n_b = r->n_f + n;
    r->n_w = r->n_f + 2 * n;
    r->lane = mw_calloc(p, sizeof *r->lane);
    r->queue = mw_calloc(n * (size_t)z->m, 1);
    r->stack = mw_calloc(p, sizeof *r->stack);
    r->is_stacked = mw_calloc(p, sizeof *r->is_stacked);
    r->start = mw_calloc(2 * p, sizeof *r->start);
    r->end = r->start + p;
}

void mw_zb_run_release(struct mw_zb_run *r)
{
    mw_free(r->f_end);
    mw_free(r->n_f);
    mw_free(r->lane);
    mw_free(r->queue);
    mw_free(r->stack);
    mw_free(r->is_stacked);
    mw_free(r->start);
    memset(r, 0, sizeof *r);
}

void mw_zb_run_reset(const struct mw_zb *z, struct mw_zb_run *r)
{
    int d;

    memset(r->n_f, 0, 3 * (size_t)z->n_virtual * sizeof *r->n_f);
    memset(r->lane, 0, (size_t)z->p * sizeof *r->lane);
    r->n_stacked = 0;
    for (d = z->p - 1; d >= 0; d--) {
        r->stack[r->n_stacked++] = d;
        r->is_stacked[d] = true;
    }
}

mw_time mw_zb_objective(const struct mw_zb *z, const struct mw_zb_run *r)
{
    mw_time longest = 0, first = INT64_MAX, last = 0;
    int d;

    for (d = 0; d < z->p; d++) {
        mw_time span = r->end[d] - r->start[d];

        longest = span > longest ? span : longest;
        first = r->start[d] < first ? r->start[d] : first;
        last = r->end[d] > last ? r->end[d] : last;
    }
    return z->is_span ? longest : last - first;
}

/* ---- longest path of a full order -------------------------------------- */
/* Runs a device until it must wait. False when memory is exceeded. */
static bool eval_device(const struct mw_zb *z, struct mw_zb_run *r,
                        const struct mw_zb_order *o, int d)
{
    struct mw_zb_lane *l = &r->lane[d];
    const uint8_t *code = mw_zb_list(o, d);

    for (; l->at < o->n[d]; l->at++) {
        int c = MW_ZB_CHUNK(code[l->at]), i = d * z->v + c;
        int type = MW_ZB_TYPE(code[l->at]);
        mw_time ready = mw_zb_ready(z, r, i, type);

        if (ready < 0) {
            return true;
        }
        l->memory += type == MW_ZB_F   ? z->mem_f
                     : type == MW_ZB_B ? -z->mem_b
                                       : -z->mem_w;
        if (l->memory > z->limit[d]) {
            return false;
        }
        l->t = ready > l->t ? ready : l->t;
        if (l->at == 0) {
            r->start[d] = l->t;
        }
        mw_zb_finish(z, r, d, c, type);
        r->end[d] = l->t;
    }
    return true;
}

mw_time mw_zb_eval(struct mw_zb *z, struct mw_zb_run *r,
                   const struct mw_zb_order *o)
{
    int d;

    mw_zb_run_reset(z, r);
    z->effort += 3.0 * z->m * z->n_virtual;
    while (r->n_stacked > 0) {
        d = r->stack[--r->n_stacked];
        r->is_stacked[d] = false;
        if (!eval_device(z, r, o, d)) {
            return MW_ZB_NEVER;
        }
    }
    for (d = 0; d < z->p; d++) {
        if (r->lane[d].at < o->n[d]) {
            return MW_ZB_NEVER;
        }
    }
    return mw_zb_objective(z, r);
}
