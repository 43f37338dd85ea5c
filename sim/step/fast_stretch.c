/*
 * A pipeline stage as a function of the layers that it has, which lie one after
 * another: time of a micro-batch and peak memory of n of them from `first` on,
 * for n = 1, 2, .. Layers of two kinds (dense and MoE, with a window and
 * without) are counted by kind, so that where a stage begins decides its price.
 *
 * Left out, as in mw_fast_memory_rows: several chunks a device.
 */
#include "sim/step/fast_int.h"

static void price_units(const struct mw_step_price *p, double *out_s)
{
    for (int unit = 0; unit < p->n_kinds; unit++) {
        out_s[unit] = mw_fast_unit_s(p, (enum mw_step_unit)unit);
    }
}

/* Seconds of the update of n layers from `first` on, the host's part with it.
 */
static double update_s(const struct mw_step_price *p, int stage, int first,
                       int n)
{
    int units[MW_UNIT_COUNT];
    struct mw_tail tail;

    mw_vstage_count(p, stage, p->layout->pp, first, n, units);
    mw_tail_of(p, stage, units, mw_step_holds(&p->holders, stage), &tail);
    return 1e-12 * (double)(tail.optimizer_ps + tail.offload_ps);
}

/* With the layout's offload, less that without. */
static void price_updates(struct mw_fast *f, const struct mw_layout *layout,
                          int stage, int first, int n_most,
                          struct mw_fast_stretch *out)
{
    struct mw_layout plain = *layout;
    const struct mw_step_price *p = &f->frame.price;

    plain.offload_optimizer = 0;
    for (int n = 1; n <= n_most; n++) {
        out[n - 1].offload_s = update_s(p, stage, first, n);
    }
    p = mw_fast_price_of(f, &plain);
    for (int n = 1; n <= n_most; n++) {
        double more = out[n - 1].offload_s - update_s(p, stage, first, n);

        out[n - 1].offload_s = more > 0 ? more : 0;
    }
}

enum mw_status mw_fast_stretches(struct mw_fast *f,
                                 const struct mw_layout *layout, int stage,
                                 int first, int n_most,
                                 struct mw_fast_stretch *out,
                                 struct mw_err *err)
{
    const struct mw_step_price *p = mw_fast_price_of(f, layout);
    const struct mw_fast_shape *shape = mw_fast_shape_of(f, layout, true);
    double unit_s[MW_UNIT_COUNT] = {0};

    if (shape->status != MW_OK) {
        return mw_fail(err, shape->status, "%s", shape->text);
    }
    MW_ASSERT(
        shape->n_chunks == 1 && first + n_most <= f->scenario->model.n_layers,
        "%d chunks, layers %d to %d", shape->n_chunks, first, first + n_most);
    f->frame.price.holders =
        mw_step_holders(&f->frame.price, &shape->ends, shape->n_routes);
    price_units(p, unit_s);
    for (int n = 1; n <= n_most; n++) {
        int units[MW_UNIT_COUNT];
        struct mw_stage_memory memory;
        double time_s = 0;

        mw_vstage_count(p, stage, layout->pp, first, n, units);
        for (int unit = 0; unit < p->n_kinds; unit++) {
            time_s += units[unit] * unit_s[unit];
        }
        mw_stage_memory_of(
            p, units, mw_step_holds(&p->holders, stage),
            shape->held[stage] * mw_vstage_activation_bytes(p, units), &memory);
        out[n - 1] = (struct mw_fast_stretch){time_s, memory.total_bytes,
                                              memory.host_bytes, 0};
    }
    if (layout->offload_optimizer > 0) {
        price_updates(f, layout, stage, first, n_most, out);
    }
    return MW_OK;
}
