/*
 * One training step, fast form.
 *
 * GPipe, 1F1B and interleaved 1F1B (m a multiple of p) in closed form, other
 * schedules by replaying their list without a timeline (then fast and event
 * form are equal).
 *
 * For p devices with passes f, b, w (t = f + b + w), transfers c and m
 * micro-batches:
 *
 *   GPipe   a flow shop of equal jobs, forward and back:
 *           sum t + 2 sum c + (m-1) (max(f, c) + max(b + w, c))
 *   1F1B    sum t + 2 sum c + (m-1) period, or where one device is slower than
 *           the others, m of its passes, the way to it, and what is left of the
 *           way from it and back after its warm-up (not where gradients leave
 *           before W)
 *
 * where the period of steady 1F1B is the largest mean over cycles of the
 * dependency graph. Device i runs F of micro-batch j + p - i after B of j, so
 * a gradient that goes down from device e to s and an activation that goes
 * back up advance e - s + 1 micro-batches:
 *
 *   period = max over s <= e of (sum_{s..e} t + 2 sum_{s..e-1} c) / (e-s+1)
 *
 * and no less than a device's two transfers of a micro-batch, which share its
 * stream (cycle mean of a timed event graph: Baccelli et al., "Synchronization
 * and Linearity", 1992, section 2.5). Transfers are thus not hidden by 1F1B,
 * which is why eager schedules exist. Where the gradient leaves before W (our
 * executor), w of the devices above s is not on the cycle.
 *
 *   interleaved, v chunks a device:
 *           m max_i sum_chunks t + sum of the others' first t
 *           + 2 sum c + 2 (v-1) (sum c + wrap-around)
 *
 * Steady interleaved 1F1B has two micro-batches of slack between neighbours,
 * which hides transfers up to a quarter of a pass; only the rounds of warm-up
 * and cool-down show them. Longer transfers are replayed. Then the tails,
 * device by device, each from the end of its last pass.
 */
#include "sim/step/tasks_int.h"

#include <math.h>
#include <string.h>

/* Times in seconds of one device's passes; c to the next device. */
struct lane {
    double f, b, w, c;
};

enum { STAGES_MAX = 1024 };

static double sum_to_next(const struct lane *v, int n)
{
    double sum = 0;

    for (int i = 0; i < n; i++) {
        sum += v[i].f + v[i].b + v[i].w + 2 * v[i].c;
    }
    return sum;
}

/* with_single: a device alone counts as a cycle as well. */
static double period_1f1b(const struct lane *v, int n, bool sends_early,
                          bool with_single)
{
    double most = 0;

    for (int s = 0; s < n; s++) {
        double sum = v[s].f + v[s].b + v[s].w;

        most = with_single || s == n - 1 ? fmax(most, sum) : most;
        most = fmax(most, v[s].c + (s > 0 ? v[s - 1].c : 0));
        for (int e = s + 1; e < n; e++) {
            sum +=
                v[e].f + v[e].b + (sends_early ? 0 : v[e].w) + 2 * v[e - 1].c;
            most = fmax(most, sum / (e - s + 1));
        }
    }
    return most;
}

/* W of the devices above the first is off the way of the last gradient. */
static double off_path_s(const struct lane *v, int n, bool sends_early)
{
    double sum = 0;

    for (int i = 1; i < n && sends_early; i++) {
        sum += v[i].w;
    }
    return sum;
}

/* A device s that is slower than the others works without a gap once the first
 * gradient is there; it has done n-1-s more forwards by then, which the way to
 * the last device and back hides. */
static double time_of_slow(const struct lane *v, int n, int m, int s)
{
    double after = 0;

    for (int i = s + 1; i < n; i++) {
        after += v[i].f + v[i].b + v[i].w + 2 * v[i - 1].c;
    }
    return sum_to_next(v, s) + m * (v[s].f + v[s].b + v[s].w) +
           fmax(0, after - (n - 1 - s) * v[s].f);
}

static double time_1f1b(const struct lane *v, int n, int m, bool sends_early)
{
    double most = sum_to_next(v, n) - off_path_s(v, n, sends_early) +
                  (m - 1) * period_1f1b(v, n, sends_early, sends_early);

    for (int s = 0; s < n && !sends_early; s++) {
        most = fmax(most, time_of_slow(v, n, m, s));
    }
    return most;
}

static double time_gpipe(const struct lane *v, int n, int m, bool sends_early)
{
    double most_f = 0, most_b = 0;

    for (int i = 0; i < n; i++) {
        most_f = fmax(most_f, fmax(v[i].f, v[i].c));
        most_b = fmax(most_b, fmax(v[i].b + v[i].w, v[i].c));
    }
    return sum_to_next(v, n) - off_path_s(v, n, sends_early) +
           (m - 1) * (most_f + most_b);
}

/* End of the step when device 0 ends its last pass at end_s: device i ends
 * earlier by the way of the last gradient. */
static double with_tails(const struct mw_step_frame *f, const struct lane *v,
                         double end_s, bool sends_early)
{
    const struct mw_holders *h = &f->price.holders;
    double last = 0, met = -HUGE_VAL, ends[STAGES_MAX] = {end_s};

    for (int i = 1; i < f->n_devices; i++) {
        ends[i] = ends[i - 1] - v[i - 1].b - v[i - 1].w - v[i - 1].c +
                  (sends_early ? v[i].w : 0);
    }
    for (int i = 0; i < h->n; i++) {
        met = fmax(met, ends[h->device[i]]);
    }
    for (int i = 0; i < h->n; i++) {
        ends[h->device[i]] =
            met + mw_time_to_s(f->tail[h->device[0]].embedding_ps);
    }
    for (int i = 0; i < f->n_devices; i++) {
        const struct mw_tail *tail = &f->tail[i];

        last = fmax(last,
                    ends[i] + mw_time_to_s(tail->reduce_ps + tail->shared_ps +
                                           tail->optimizer_ps +
                                           tail->offload_ps + tail->gather_ps));
    }
    return last;
}

/* Chunks of all devices do the work of m micro-batches; the others' first
 * chunks fill and drain, and the warm-up and the cool-down go v - 1 times
 * round the ring of transfers. In steady state transfers are hidden. */
static double time_loop(const struct mw_step_frame *f, const struct lane *v,
                        double wrap_s, int m)
{
    int n = f->n_devices, rounds = f->n_virtual / n - 1, busiest = 0;
    double most = 0, fill = 0, ring = wrap_s, way = 0;

    for (int i = 0; i < n; i++) {
        double busy = 0;

        for (int k = i; k < f->n_virtual; k += n) {
            busy += mw_time_to_s(f->vstage[k].f_ps + f->vstage[k].b_ps +
                                 f->vstage[k].w_ps);
        }
        if (busy > most) {
            most = busy;
            busiest = i;
        }
        way += i + 1 < n ? v[i].c : 0;
    }
    for (int i = 0; i < n; i++) {
        fill += i != busiest ? v[i].f + v[i].b + v[i].w : 0;
    }
    ring += way;
    if (4 * ring / n > most / (rounds + 1)) {
        return (double)NAN; /* transfers are not hidden: replay */
    }
    return m * most + fill + 2 * way + 2 * rounds * ring;
}

/* First chunk of every device, with the transfer to the next. */
static void fill_lanes(const struct mw_step_frame *f, struct lane *v)
{
    const struct mw_step_price *p = &f->price;
    double crossing = -1, inside = -1;
    bool is_uneven = mw_step_is_uneven(p); /* each pair on leaves of its own */

    for (int i = 0; i < f->n_devices; i++) {
        const struct mw_vstage *s = &f->vstage[i];

        v[i] = (struct lane){mw_time_to_s(s->f_ps), mw_time_to_s(s->b_ps),
                             mw_time_to_s(s->w_ps), 0};
        if (i + 1 < f->n_devices) {
            double *c = mw_cost_pp_crosses(p->layout, i, p->ctx->domain_gpus)
                            ? &crossing
                            : &inside;

            if (*c < 0 || is_uneven) {
                *c = mw_time_to_s(mw_step_transfer_ps(p, i, i + 1, 1));
            }
            v[i].c = *c;
            if (mw_step_states(p, i) > 1) {
                v[i].c = mw_time_to_s(
                    mw_step_transfer_ps(p, i, i + 1, mw_step_states(p, i)));
            }
        }
    }
}

double mw_plain_time_s(const struct mw_step_frame *f, enum mw_plain plain,
                       int m)
{
    struct lane v[STAGES_MAX];
    int n = f->n_devices;
    bool early = mw_step_sends_early(&f->price, false);
    double end_s;

    fill_lanes(f, v);
    if (plain == MW_PLAIN_GPIPE) {
        end_s = time_gpipe(v, n, m, early);
    } else if (plain == MW_PLAIN_1F1B) {
        end_s = time_1f1b(v, n, m, early);
    } else {
        end_s = time_loop(
            f, v, mw_time_to_s(mw_step_transfer_ps(&f->price, n - 1, 0, 1)), m);
    }
    return isnan(end_s) ? end_s : with_tails(f, v, end_s, early);
}

enum mw_plain mw_plain_of(const struct mw_layout *layout, int m)
{
    const struct mw_sched_kind *kind = mw_schedule_kind_find(layout->schedule);

    if (kind == NULL || layout->pp * layout->vpp > STAGES_MAX) {
        return MW_PLAIN_NO;
    }
    /* Gathers of sharded layers make chunks too unequal for the closed form. */
    if (strcmp(kind->name, "interleaved-1f1b") == 0 && layout->pp > 1 &&
        layout->vpp > 1 && m % layout->pp == 0 && layout->zero < 2 &&
        layout->mtp_ahead == 0 && layout->vpp_group == 0) {
        return MW_PLAIN_LOOP;
    }
    if (layout->vpp > 1) {
        return MW_PLAIN_NO;
    }
    if (strcmp(kind->name, "1f1b") == 0) {
        return MW_PLAIN_1F1B;
    }
    return strcmp(kind->name, "gpipe") == 0 ? MW_PLAIN_GPIPE : MW_PLAIN_NO;
}

/* ---- other schedules: the list itself ---------------------------------------
 */
enum mw_status mw_step_replay(const struct mw_scenario *scenario,
                              const struct mw_layout *layout, const int *layers,
                              const struct mw_cost_ctx *ctx, double *out_time_s,
                              double *out_peak_bytes, struct mw_err *err)
{
    struct mw_plan plan;
    struct mw_step_result result;
    struct mw_step_opts opts = {.memory_only = out_time_s == NULL,
                                .no_breakdown = true,
                                .no_sharing = true};
    enum mw_status status = mw_plan_make(scenario, layout, layers, &plan, err);

    if (status != MW_OK) {
        return status;
    }
    status = mw_step_simulate(scenario, &plan, ctx, &opts, &result, err);
    if (status == MW_OK) {
        if (out_time_s != NULL) {
            *out_time_s = result.step_time_s;
        }
        if (out_peak_bytes != NULL) {
            *out_peak_bytes = result.peak_bytes;
        }
        mw_step_result_release(&result);
    }
    mw_plan_release(&plan);
    return status;
}

/* Both figures of a kind in closed form. */
static enum mw_status estimate_plain(const struct mw_scenario *scenario,
                                     const struct mw_layout *layout,
                                     const int *layers,
                                     const struct mw_cost_ctx *ctx,
                                     enum mw_plain plain, double *out_time_s,
                                     double *out_peak_bytes, struct mw_err *err)
{
    int m = mw_microbatches(layout, &scenario->workload);
    int even[STAGES_MAX];
    struct mw_step_frame frame;

    if (layers == NULL) {
        mw_plan_even_of(&scenario->model, layout, even);
        layers = even;
    }
    mw_step_frame_init(&frame, scenario, layout, layers, NULL, ctx,
                       out_time_s != NULL, NULL);
    enum mw_status status =
        out_time_s != NULL ? mw_step_frame_check(&frame, err) : MW_OK;

    if (status == MW_OK && out_time_s != NULL) {
        *out_time_s = mw_plain_time_s(&frame, plain, m);
    }
    if (status == MW_OK && out_peak_bytes != NULL) {
        *out_peak_bytes = mw_plain_peak_bytes(&frame, plain, m);
    }
    mw_step_frame_release(&frame);
    return status;
}

enum mw_status mw_step_estimate(const struct mw_scenario *scenario,
                                const struct mw_layout *layout,
                                const int *layers,
                                const struct mw_cost_ctx *ctx,
                                double *out_time_s, double *out_peak_bytes,
                                struct mw_err *err)
{
    enum mw_plain plain =
        mw_plain_of(layout, mw_microbatches(layout, &scenario->workload));
    enum mw_status status = mw_step_check_rates(scenario, ctx, err);

    status =
        status != MW_OK ? status : mw_step_check_features(layout, ctx, err);
    if (status != MW_OK) {
        return status;
    }
    if (plain != MW_PLAIN_NO) {
        status = estimate_plain(scenario, layout, layers, ctx, plain,
                                out_time_s, out_peak_bytes, err);
        if (status != MW_OK || out_time_s == NULL || !isnan(*out_time_s)) {
            return status;
        }
    }
    return mw_step_replay(scenario, layout, layers, ctx, out_time_s,
                          out_peak_bytes, err);
}
