/*
 * Lower bounds of time and memory.
 *
 * Device d does m passes of each kind on each of its virtual stages. Before
 * the first of them the first micro-batch has gone forward through the stages
 * before it; after the last one, if it is a fused backward pass, the gradient
 * still goes down to the first stage:
 *
 *   T >= min_k sum_{j<k} f_j + m sum_k (f_k + b_k + w_k)
 *        + max( tail_d, min_k sum_{j<k} (b_j + w_j) + tail_first )
 *
 * k over the virtual stages of d, tail: what mw_tail_of adds after the last
 * pass. Where B and W are apart the last pass may be a W, and nothing need
 * follow it. Where a gradient leaves before W (our executor), the way down is
 * sum_{j<k} b_j + w_0 - w_k. Two routes: each device does its half of the
 * micro-batches of either; a micro-batch in parts: a part of the ways. For 1F1B
 * and interleaved 1F1B over equal stages without transfers the bound is the
 * time: (m v + p - 1) t / v.
 *
 * Left out: transfers, waiting inside the steady state.
 */
#include "sim/step/fast_int.h"

#include <math.h>
#include <string.h>

static void make_room(struct mw_fast *f, int n)
{
    struct mw_step_frame *frame = &f->frame;

    frame->vstage = mw_realloc(frame->vstage, (size_t)n, sizeof *frame->vstage);
    frame->tail = mw_realloc(frame->tail, (size_t)n, sizeof *frame->tail);
    frame->units = mw_realloc(frame->units, (size_t)n, sizeof *frame->units);
    f->before = mw_realloc(f->before, 2 * (size_t)n, sizeof *f->before);
    f->room_virtual = n;
}

/* Units and times of every virtual stage; equal ones are summed once, and not
 * again for the next layout where price and units stay: those of a run differ
 * in schedule and ZeRO stage alone. */
void mw_fast_fill_stages(struct mw_fast *f, const struct mw_step_price *p,
                         const int *layers, bool with_time)
{
    int n = p->layout->pp * p->layout->vpp;
    int first = 0;

    if (n > f->room_virtual) {
        make_room(f, n);
    }
    if (f->summed != f->last) {
        f->summed = f->last;
        f->n_summed = 0;
    }
    for (int k = 0; k < n; k++) {
        struct mw_vstage *v = &f->frame.vstage[k];
        int count = layers != NULL ? layers[k]
                                   : mw_plan_even_share_of(&p->scenario->model,
                                                           p->layout, k);
        int n_units[MW_UNIT_COUNT];

        mw_vstage_count(p, k, n, first, count, n_units);
        v->first = first;
        first += count;
        if (k < f->n_summed && mw_fsdp_is_alike(p) &&
            memcmp(n_units, v->n_units, sizeof n_units) == 0) {
            continue;
        }
        f->n_summed = k < f->n_summed ? k : f->n_summed;
        memcpy(v->n_units, n_units, sizeof n_units);
        if (!with_time) {
            continue;
        }
        f->n_summed += f->n_summed == k;
        if (k > 0 && mw_fsdp_is_alike(p) &&
            memcmp(v->n_units, v[-1].n_units, sizeof v->n_units) == 0) {
            v->f_ps = v[-1].f_ps;
            v->b_ps = v[-1].b_ps;
            v->w_ps = v[-1].w_ps;
        } else {
            mw_vstage_sum(p, v);
        }
    }
}

/* Sets the price's holders: of this shape. */
static void find_holders(struct mw_fast *f, const struct mw_fast_shape *shape)
{
    f->frame.price.holders =
        mw_step_holders(&f->frame.price, &shape->ends, shape->n_routes);
}

static void device_units(const struct mw_fast *f,
                         const struct mw_fast_shape *shape, int d,
                         int n_units[MW_UNIT_COUNT])
{
    memset(n_units, 0, MW_UNIT_COUNT * sizeof *n_units);
    for (int c = 0; c < shape->n_chunks; c++) {
        int k = shape->virtual_stage[d * shape->n_chunks + c];

        for (int unit = 0; unit < f->frame.price.n_kinds; unit++) {
            n_units[unit] += f->frame.vstage[k].n_units[unit];
        }
    }
}

/* ---- time ------------------------------------------------------------------
 */
/* Sums in doubles: absurd layouts of a search must not overflow. */
struct device {
    double work_ps, head_ps, down_ps;
};

static struct device device_times(const struct mw_fast *f,
                                  const struct mw_fast_shape *shape, int d,
                                  const double *before_f,
                                  const double *before_b, int m, bool early)
{
    struct device out = {0, HUGE_VAL, HUGE_VAL};

    for (int c = 0; c < shape->n_chunks; c++) {
        int at = d * shape->n_chunks + c, k = shape->virtual_stage[at];
        const struct mw_vstage *v = &f->frame.vstage[k];
        int items = shape->n_routes == 1    ? m
                    : shape->route[at] == 0 ? (m + 1) / 2
                                            : m / 2;
        double down = before_b[k];

        if (early && k > 0) {
            down += (double)(f->frame.vstage[0].w_ps - v->w_ps);
            down = fmax(down, 0);
        }
        if (items == 0) {
            continue;
        }
        out.work_ps += (double)items * (double)(v->f_ps + v->b_ps + v->w_ps);
        out.head_ps = fmin(before_f[k], out.head_ps);
        out.down_ps = fmin(down, out.down_ps);
    }
    if (shape->is_split || isinf(out.down_ps)) {
        out.down_ps = 0;
    }
    out.head_ps = isinf(out.head_ps) ? 0 : out.head_ps / shape->n_parts;
    out.down_ps /= shape->n_parts;
    return out;
}

static double sum_ps(const struct mw_tail *tail)
{
    return (double)(tail->reduce_ps + tail->embedding_ps + tail->shared_ps +
                    tail->optimizer_ps + tail->offload_ps + tail->gather_ps);
}

static double tail_ps(const struct mw_step_price *p, int d,
                      const int n_units[MW_UNIT_COUNT])
{
    struct mw_tail tail;

    mw_tail_of(p, d, n_units, mw_step_holds(&p->holders, d), &tail);
    return sum_ps(&tail);
}

/* Each stage by its own groups, its tail into the frame's. */
static void sum_by_stage(struct mw_fast *f, const struct mw_step_price *p,
                         const struct mw_fast_shape *shape,
                         const struct mw_layout *layout)
{
    size_t n = (size_t)shape->n_stages;
    int *device_of = mw_calloc(n * (size_t)layout->vpp, sizeof *device_of);
    int(*units)[MW_UNIT_COUNT] = mw_calloc(n, sizeof *units);
    bool *twins = mw_calloc(n, sizeof *twins);

    for (int d = 0; d < shape->n_stages; d++) {
        for (int c = 0; c < shape->n_chunks; c++) {
            device_of[shape->virtual_stage[d * shape->n_chunks + c]] = d;
        }
        device_units(f, shape, d, units[d]);
        twins[d] = mw_step_holds(&p->holders, d);
    }
    mw_fast_sum_by_stage(f, layout, device_of,
                         (const int(*)[MW_UNIT_COUNT])units, twins,
                         f->frame.tail);
    mw_free(device_of);
    mw_free(units);
    mw_free(twins);
}

static void prefix_sums(const struct mw_fast *f, int n, bool early,
                        double *before_f, double *before_b)
{
    double sum_f = 0, sum_b = 0;

    for (int k = 0; k < n; k++) {
        before_f[k] = sum_f;
        before_b[k] = sum_b;
        sum_f += (double)f->frame.vstage[k].f_ps;
        sum_b += (double)(f->frame.vstage[k].b_ps +
                          (early ? 0 : f->frame.vstage[k].w_ps));
    }
}

static void bound_time(struct mw_fast *f, const struct mw_step_price *p,
                       const struct mw_fast_shape *shape,
                       struct mw_fast_bound *out)
{
    int n = p->layout->pp * p->layout->vpp;
    double *before = f->before;
    int m = mw_microbatches(p->layout, &f->scenario->workload);
    bool early = mw_step_sends_early(p, shape->is_split);
    int units[MW_UNIT_COUNT], last_units[MW_UNIT_COUNT] = {-1};
    double tail = 0, first_tail = 0, most = -1;

    prefix_sums(f, n, early, before, before + n);
    for (int d = 0; d < shape->n_stages; d++) {
        struct device at =
            device_times(f, shape, d, before, before + n, m, early);

        device_units(f, shape, d, units);
        if (mw_fast_has_stages(p)) {
            tail = sum_ps(&f->frame.tail[d]);
        } else if (mw_step_is_uneven(p) ||
                   memcmp(units, last_units, sizeof units) != 0) {
            tail = tail_ps(p, d, units);
            memcpy(last_units, units, sizeof units);
        }
        first_tail = d == 0 ? tail : first_tail;
        double after =
            at.down_ps > 0 ? fmax(tail, at.down_ps + first_tail) : tail;
        double total = at.head_ps + at.work_ps + after;

        if (at.work_ps > 0 && total > most) {
            most = total;
            out->time_s = 1e-12 * total;
            out->work_s = 1e-12 * at.work_ps;
            out->tail_s = 1e-12 * tail;
            out->way_s = 1e-12 * (total - at.work_ps - tail);
        }
    }
}

/* ---- memory ---------------------------------------------------------------
 */
/* Of device d, which holds so many chunks of a micro-batch. */
static void device_memory(const struct mw_fast *f,
                          const struct mw_step_price *p,
                          const struct mw_fast_shape *shape, int d, double held,
                          struct mw_stage_memory *out)
{
    int units[MW_UNIT_COUNT];
    double least = HUGE_VAL;

    device_units(f, shape, d, units);
    for (int c = 0; c < shape->n_chunks; c++) {
        int k = shape->virtual_stage[d * shape->n_chunks + c];

        least = fmin(least,
                     mw_vstage_activation_bytes(p, f->frame.vstage[k].n_units));
    }
    mw_stage_memory_of(p, units, mw_step_holds(&p->holders, d), held * least,
                       out);
}

/* held NULL: one chunk of one micro-batch. out_host_bytes (may be NULL): the
 * most of any rank in the host's memory. */
static double peak_bytes(const struct mw_fast *f, const struct mw_step_price *p,
                         const struct mw_fast_shape *shape, const double *held,
                         double *out_host_bytes)
{
    double peak = 0, host = 0;

    for (int d = 0; d < shape->n_stages; d++) {
        struct mw_stage_memory memory;

        device_memory(f, p, shape, d, held != NULL ? held[d] : 1, &memory);
        peak = fmax(peak, memory.total_bytes);
        host = fmax(host, memory.host_bytes);
    }
    if (out_host_bytes != NULL) {
        *out_host_bytes = host;
    }
    return peak;
}

enum mw_status mw_fast_bound(struct mw_fast *f, const struct mw_layout *layout,
                             const int *layers, struct mw_fast_bound *out,
                             struct mw_err *err)
{
    return mw_fast_bound_within(f, layout, layers, HUGE_VAL, out, err);
}

enum mw_status mw_fast_bound_within(struct mw_fast *f,
                                    const struct mw_layout *layout,
                                    const int *layers, double limit_bytes,
                                    struct mw_fast_bound *out,
                                    struct mw_err *err)
{
    const struct mw_step_price *p = mw_fast_price_of(f, layout);
    const struct mw_fast_shape *shape = mw_fast_shape_of(f, layout, false);
    enum mw_status status = mw_step_check_features(layout, f->ctx, err);

    if (status != MW_OK) {
        return status;
    }
    if (shape->status != MW_OK) {
        return mw_fail(err, shape->status, "%s", shape->text);
    }
    *out = (struct mw_fast_bound){0};
    find_holders(f, shape);
    mw_fast_fill_stages(f, p, layers, true);
    out->least_bytes = peak_bytes(f, p, shape, NULL, &out->host_bytes);
    if (out->least_bytes > limit_bytes) {
        return MW_OK;
    }
    if (mw_fast_has_stages(p)) {
        sum_by_stage(f, p, shape, layout);
    }
    bound_time(f, p, shape, out);
    return MW_OK;
}

/* The price and the shape of a layout, with what its stages hold filled in. */
static enum mw_status
fill_memory(struct mw_fast *f, const struct mw_layout *layout,
            const int *layers, const struct mw_step_price **out_price,
            const struct mw_fast_shape **out_shape, struct mw_err *err)
{
    const struct mw_step_price *p = mw_fast_price_of(f, layout);
    const struct mw_fast_shape *shape = mw_fast_shape_of(f, layout, true);

    if (shape->status != MW_OK) {
        return mw_fail(err, shape->status, "%s", shape->text);
    }
    find_holders(f, shape);
    mw_fast_fill_stages(f, p, layers, false);
    *out_price = p;
    *out_shape = shape;
    return MW_OK;
}

enum mw_status mw_fast_peak_bytes(struct mw_fast *f,
                                  const struct mw_layout *layout,
                                  const int *layers, double *out_bytes,
                                  struct mw_err *err)
{
    const struct mw_step_price *p;
    const struct mw_fast_shape *shape;
    enum mw_status status = fill_memory(f, layout, layers, &p, &shape, err);

    if (status != MW_OK) {
        return status;
    }
    *out_bytes = peak_bytes(f, p, shape, shape->held, NULL);
    return MW_OK;
}

enum mw_status mw_fast_stage_bytes(struct mw_fast *f,
                                   const struct mw_layout *layout,
                                   const int *layers, double *out_bytes,
                                   struct mw_err *err)
{
    const struct mw_step_price *p;
    const struct mw_fast_shape *shape;
    enum mw_status status = fill_memory(f, layout, layers, &p, &shape, err);

    if (status != MW_OK) {
        return status;
    }
    for (int d = 0; d < shape->n_stages; d++) {
        struct mw_stage_memory memory;

        device_memory(f, p, shape, d, shape->held[d], &memory);
        out_bytes[d] = memory.total_bytes;
    }
    return MW_OK;
}

/* n layers of stage k, the first of them recomputed. */
static void set_layers(const struct mw_layout *l, enum mw_step_unit layer,
                       int k, int n, int units[MW_UNIT_COUNT])
{
    units[layer] = mw_layout_recomputed(l, k, n);
    units[layer == MW_UNIT_MOE ? MW_UNIT_MOE_KEPT : MW_UNIT_DENSE_KEPT] =
        n - units[layer];
}

enum mw_status mw_fast_memory_rows(struct mw_fast *f,
                                   const struct mw_layout *layout,
                                   double *out_slope_bytes,
                                   double *out_fixed_bytes, struct mw_err *err)
{
    const struct mw_step_price *p = mw_fast_price_of(f, layout);
    const struct mw_fast_shape *shape = mw_fast_shape_of(f, layout, true);
    enum mw_step_unit layer =
        p->layer[MW_UNIT_DENSE] >= 0 ? MW_UNIT_DENSE : MW_UNIT_MOE;

    if (shape->status != MW_OK) {
        return mw_fail(err, shape->status, "%s", shape->text);
    }
    /* The fullest moment depends on how much a pass keeps: a tangent there. */
    int even = p->scenario->model.n_layers / layout->pp;

    MW_ASSERT(shape->n_chunks == 1, "%d chunks", shape->n_chunks);
    find_holders(f, shape);
    for (int d = 0; d < layout->pp; d++) {
        double total[2];

        for (int i = 0; i < 2; i++) {
            int units[MW_UNIT_COUNT] = {0};
            struct mw_stage_memory memory;

            set_layers(layout, layer, d, (even > 1 ? even : 1) + i, units);
            units[MW_UNIT_EMBEDDING] = d == 0;
            units[MW_UNIT_HEAD] = d == layout->pp - 1;
            units[MW_UNIT_MTP] = layout->mtp_ahead > 0 && d == layout->pp - 2;
            mw_stage_memory_of(
                p, units, mw_step_holds(&p->holders, d),
                shape->held[d] * mw_vstage_activation_bytes(p, units), &memory);
            total[i] = memory.total_bytes;
        }
        out_slope_bytes[d] = total[1] - total[0];
        out_fixed_bytes[d] =
            total[0] - (even > 1 ? even : 1) * out_slope_bytes[d];
    }
    return MW_OK;
}

enum mw_status mw_fast_held(struct mw_fast *f, const struct mw_layout *layout,
                            double *out_held, struct mw_err *err)
{
    const struct mw_fast_shape *shape = mw_fast_shape_of(f, layout, true);

    if (shape->status != MW_OK) {
        return mw_fail(err, shape->status, "%s", shape->text);
    }
    memcpy(out_held, shape->held, (size_t)layout->pp * sizeof *out_held);
    return MW_OK;
}
