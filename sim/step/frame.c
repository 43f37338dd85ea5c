/*
 * A plan priced: every virtual stage summed, every device's tail, who shares
 * a tied embedding. One allocation for all of it.
 */
#include "sim/step/step_int.h"

#include <string.h>

/* ---- stages on leaves of several sizes -------------------------------------
 */
/* A price whose groups are a stage's. */
static struct mw_step_price *price_under(struct mw_step_frame *f,
                                         const struct mw_step_groups *g)
{
    struct mw_step_groups own = mw_step_groups_of(&f->price);
    struct mw_step_price *p;

    if (memcmp(&own, g, sizeof own) == 0) {
        return &f->price;
    }
    p = mw_arena_alloc(&f->arena, 1, sizeof *p);
    *p = f->price;
    memset(p->cost, 0, sizeof p->cost);
    p->fetch_s = p->flush_s = 0;
    if (p->wires != NULL) {
        p->wires = mw_arena_alloc(&f->arena, 1, sizeof *p->wires);
        memset(p->wires, 0, sizeof *p->wires);
    }
    mw_step_use_groups(p, g);
    mw_step_price_units(p, NULL);
    return p;
}

/* Two routes hold a stage on two devices: there all stages wait for the
 * slowest. */
static void price_stages(struct mw_step_frame *f)
{
    const struct mw_layout *layout = f->price.layout;
    size_t n = (size_t)f->n_devices;

    f->stage = NULL;
    if (n == 1 || f->price.n_copies > 1 || !mw_step_is_uneven(&f->price)) {
        return;
    }
    struct mw_step_groups *of = mw_arena_alloc(&f->arena, n, sizeof *of);

    f->stage = mw_arena_alloc(&f->arena, n, sizeof *f->stage);
    mw_step_stage_groups(&f->price, layout, of);
    for (size_t d = 0; d < n; d++) {
        f->stage[d] = NULL;
        for (size_t e = 0; e < d && f->stage[d] == NULL; e++) {
            f->stage[d] =
                memcmp(&of[e], &of[d], sizeof *of) == 0 ? f->stage[e] : NULL;
        }
        if (f->stage[d] == NULL) {
            f->stage[d] = price_under(f, &of[d]);
        }
    }
}

/* Device of a virtual stage on the first route. */
static int device_of(const struct mw_step_frame *f, const struct mw_schedule *s,
                     int k)
{
    return s != NULL ? s->device[k] : k % f->n_devices;
}

/* ---- sums ------------------------------------------------------------------
 */
/* Stages of the same units under the same price are summed once. */
static void sum_stages(struct mw_step_frame *f, const int *layers,
                       const struct mw_schedule *schedule, bool with_time)
{
    int first = 0;

    for (int k = 0; k < f->n_virtual; k++) {
        struct mw_vstage *v = &f->vstage[k];

        mw_vstage_count(&f->price, k, f->n_virtual, first, layers[k],
                        v->n_units);
        v->first = first;
        v->price = mw_step_frame_price(f, device_of(f, schedule, k));
        first += layers[k];
        if (with_time && k > 0 && mw_fsdp_is_alike(&f->price) &&
            v->price == v[-1].price &&
            memcmp(v->n_units, v[-1].n_units, sizeof v->n_units) == 0) {
            *v = v[-1];
        } else if (with_time) {
            mw_vstage_sum(v->price, v);
        }
    }
}

static void sum_devices(struct mw_step_frame *f, const struct mw_schedule *s)
{
    for (int d = 0; d < f->n_devices; d++) {
        for (int c = 0; c < s->n_chunks; c++) {
            int k = s->virtual_stage[d * s->n_chunks + c];

            for (int unit = 0; unit < MW_UNIT_COUNT; unit++) {
                f->units[d][unit] += f->vstage[k].n_units[unit];
            }
        }
    }
}

/* Without a schedule: virtual stage k on device k mod p. */
static void sum_loop_devices(struct mw_step_frame *f)
{
    for (int k = 0; k < f->n_virtual; k++) {
        for (int unit = 0; unit < MW_UNIT_COUNT; unit++) {
            f->units[k % f->n_devices][unit] += f->vstage[k].n_units[unit];
        }
    }
}

/* On two routes each end has both embedding and head, as one device would: the
 * two are added there, and the sum goes with the other gradients. */
static void find_holders(struct mw_step_frame *f, const struct mw_schedule *s)
{
    int n = s != NULL ? s->route_len : f->n_virtual;
    struct mw_ends ends = {0, (n - 2) % f->n_devices, f->n_devices - 1};

    if (s != NULL) {
        ends = (struct mw_ends){s->device[0], s->device[n > 1 ? n - 2 : 0],
                                s->device[n - 1]};
    }
    f->price.holders =
        mw_step_holders(&f->price, &ends, s != NULL ? s->n_routes : 1);
    for (int d = 0; f->stage != NULL && d < f->n_devices; d++) {
        f->stage[d]->holders = f->price.holders;
    }
}

bool mw_step_frame_is_twin(const struct mw_step_frame *f, int d)
{
    return mw_step_holds(&f->price.holders, d);
}

/* Of devices in a row with the same units, one, where none has a twin. */
static void make_tails(struct mw_step_frame *f)
{
    bool was_twin = false;

    for (int d = 0; d < f->n_devices; d++) {
        const struct mw_step_price *p = mw_step_frame_price(f, d);
        bool is_twin = mw_step_frame_is_twin(f, d);

        if (d > 0 && !is_twin && !was_twin && p->n_copies == 1 &&
            !mw_step_is_uneven(p) &&
            memcmp(f->units[d], f->units[d - 1], sizeof f->units[d]) == 0) {
            f->tail[d] = f->tail[d - 1];
        } else {
            mw_tail_of(p, d, f->units[d], is_twin, &f->tail[d]);
            mw_wires_tail(p, d, f->units[d], is_twin, &f->tail[d]);
        }
        was_twin = is_twin;
    }
}

void mw_step_frame_devices(struct mw_step_frame *f, bool with_time)
{
    memset(f->units, 0, (size_t)f->n_devices * sizeof *f->units);
    sum_loop_devices(f);
    find_holders(f, NULL);
    if (with_time) {
        make_tails(f);
    }
}

void mw_step_frame_init(struct mw_step_frame *f,
                        const struct mw_scenario *scenario,
                        const struct mw_layout *layout, const int *layers,
                        const struct mw_schedule *schedule,
                        const struct mw_cost_ctx *ctx, bool with_time,
                        struct mw_explain *explain)
{
    f->n_devices = layout->pp;
    f->n_virtual = layout->pp * layout->vpp;
    mw_arena_init(&f->arena);
    f->vstage =
        mw_arena_alloc(&f->arena, (size_t)f->n_virtual, sizeof *f->vstage);
    f->tail = mw_arena_alloc(&f->arena, (size_t)f->n_devices, sizeof *f->tail);
    f->units =
        mw_arena_alloc(&f->arena, (size_t)f->n_devices, sizeof *f->units);
    mw_step_price_begin(&f->price, scenario, layout, ctx);
    if (schedule != NULL) { /* its lists may be of another kind than its name */
        f->price.n_copies = schedule->n_routes;
    }
    if (with_time && schedule != NULL && !ctx->gpu->is_cpu) {
        memset(&f->wires, 0, sizeof f->wires);
        f->price.wires = &f->wires;
    }
    f->stage = NULL;
    if (with_time) {
        mw_step_price_units(&f->price, explain);
        price_stages(f);
    }
    sum_stages(f, layers, schedule, with_time);
    if (schedule == NULL) {
        mw_step_frame_devices(f, with_time);
        return;
    }
    sum_devices(f, schedule);
    find_holders(f, schedule);
    if (with_time && !schedule->is_forward_only) {
        make_tails(f);
    }
}

enum mw_status mw_step_frame_check(const struct mw_step_frame *f,
                                   struct mw_err *err)
{
    const mw_time limit = mw_time_from_s(MW_STEP_TERM_MAX_S);

    for (int k = 0; k < f->n_virtual; k++) {
        const struct mw_vstage *v = &f->vstage[k];

        if (v->f_ps >= limit || v->b_ps >= limit || v->w_ps >= limit) {
            return mw_fail(err, MW_EINPUT,
                           "one micro-batch takes virtual stage %d more than "
                           "%g s; check seq, micro_batch and the rates of %s",
                           k, MW_STEP_TERM_MAX_S, f->price.ctx->system->slug);
        }
    }
    for (int d = 0; d < f->n_devices; d++) {
        const struct mw_tail *t = &f->tail[d];

        if (t->reduce_ps >= limit || t->gather_ps >= limit ||
            t->optimizer_ps >= limit || t->offload_ps >= limit) {
            return mw_fail(err, MW_EINPUT,
                           "reducing the gradients of stage %d takes more than "
                           "%g s; check the rates of %s",
                           d, MW_STEP_TERM_MAX_S, f->price.ctx->system->slug);
        }
    }
    return MW_OK;
}

void mw_step_frame_release(struct mw_step_frame *f)
{
    mw_arena_release(&f->arena);
}
