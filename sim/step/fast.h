/*
 * Bounds for a search: what a step takes at least, and holds at least, from
 * prices that are worked out once per group of layouts.
 *
 * Most layouts of a search share their operators: they differ in pipeline
 * depth, chunks, schedule or rank order. A mw_fast remembers
 *
 *   prices   of a dense layer, an MoE layer, the embedding and the head, by
 *            what a rank computes with and how its groups lie on the machine
 *   shapes   of pipeline schedules, by kind, stages, chunks and micro-batches:
 *            which device holds which virtual stage, and how many activations
 *            it holds at most
 *
 * and adds them up. Prices are those of mw_step_simulate, to the picosecond;
 * nothing is priced here. The bounds hold (to 1e-9) for every order of passes
 * the kind of schedule allows (docs/planner.md derives them), so a layout whose
 * bound exceeds a time that was simulated cannot be the fastest.
 *
 * Not for several threads at once: one mw_fast each.
 */
#ifndef MW_SIM_STEP_FAST_H
#define MW_SIM_STEP_FAST_H

#include "sim/step/step.h"

struct mw_fast;
/* Keeps pointers to scenario and ctx. Release with mw_fast_free. */
struct mw_fast *mw_fast_new(const struct mw_scenario *scenario,
                            const struct mw_cost_ctx *ctx);
void mw_fast_free(struct mw_fast *f);

/* MW_EINPUT when the device has no rate for the workload's dtype: nothing can
 * be priced then. */
enum mw_status mw_fast_check(const struct mw_scenario *scenario,
                             const struct mw_cost_ctx *ctx, struct mw_err *err);

/*
 * The fast form of a layout, with the prices that are remembered: step time and
 * peak memory, to the bit those of mw_step_estimate (sim/step/step.h), errors
 * as well. Only unit prices (and, from one call to the next, sums of a stage
 * that stays the same) are remembered; transfers, tails, the closed form and
 * the memory of every stage are worked out each time. Schedules without a
 * closed form are replayed. layers NULL: even; either output may be NULL.
 */
enum mw_status mw_fast_estimate(struct mw_fast *f,
                                const struct mw_layout *layout,
                                const int *layers, double *out_time_s,
                                double *out_peak_bytes, struct mw_err *err);

struct mw_fast_bound {
    double time_s;      /* the event form takes at least this */
    double work_s;      /* passes of the busiest device */
    double tail_s;      /* gradients, optimizer, parameters of that device */
    double way_s;       /* to its first pass and from its last */
    double least_bytes; /* peak memory with one micro-batch in flight */
    double host_bytes;  /* of the fullest rank then, in the host's memory */
};
/*
 * Bounds of a legal layout (mw_layout_check) whose layers per virtual stage
 * are given; NULL: even. MW_EUSAGE with the schedule's own words when the kind
 * cannot be made for these stages and chunks at all. O(pp vpp).
 */
enum mw_status mw_fast_bound(struct mw_fast *f, const struct mw_layout *layout,
                             const int *layers, struct mw_fast_bound *out,
                             struct mw_err *err);
/* The same; when even least_bytes is beyond limit_bytes, memory alone: the
 * times stay 0. */
enum mw_status mw_fast_bound_within(struct mw_fast *f,
                                    const struct mw_layout *layout,
                                    const int *layers, double limit_bytes,
                                    struct mw_fast_bound *out,
                                    struct mw_err *err);
/*
 * Peak memory of the fullest device under the schedule's list: equal to the
 * simulator's when all chunks have the same layers, never above it. layers as
 * before. MW_EUSAGE when the schedule cannot be made with so many
 * micro-batches. The list is made once and forgotten, its peaks are kept.
 */
enum mw_status mw_fast_peak_bytes(struct mw_fast *f,
                                  const struct mw_layout *layout,
                                  const int *layers, double *out_bytes,
                                  struct mw_err *err);
/* The same of each device: [pp]. */
enum mw_status mw_fast_stage_bytes(struct mw_fast *f,
                                   const struct mw_layout *layout,
                                   const int *layers, double *out_bytes,
                                   struct mw_err *err);
/*
 * Memory of pipeline device d as a function of its layers, for kinds with one
 * chunk a device: total_bytes = fixed + slope * layers (exact where the layers
 * are alike). Arrays of pp. Otherwise as mw_fast_peak_bytes.
 */
enum mw_status mw_fast_memory_rows(struct mw_fast *f,
                                   const struct mw_layout *layout,
                                   double *out_slope_bytes,
                                   double *out_fixed_bytes, struct mw_err *err);
/* One micro-batch through one layer, the embedding, the head (all passes and
 * what blocks them): the weights of a partition. mtp_s: multi-token prediction
 * where it lies ahead of the head, else part of the head's. */
struct mw_fast_units {
    double layer_s, embedding_s, head_s, mtp_s;
    double local_s; /* a layer with a window beside others without; 0: none */
};
void mw_fast_units_of(struct mw_fast *f, const struct mw_layout *layout,
                      struct mw_fast_units *out);

/*
 * A stage of consecutive layers, `first` the first of them: out[n - 1] for n =
 * 1 .. n_most layers, which end within the model. Memory is that of the
 * layout's schedule. For kinds with one chunk a device; otherwise as
 * mw_fast_peak_bytes.
 */
struct mw_fast_stretch {
    double time_s;     /* one micro-batch, all passes and what blocks them */
    double bytes;      /* peak of a rank */
    double host_bytes; /* of a rank, in the host's memory */
    double offload_s;  /* what the update takes longer for what of it the host
                          does, once a step */
};
enum mw_status mw_fast_stretches(struct mw_fast *f,
                                 const struct mw_layout *layout, int stage,
                                 int first, int n_most,
                                 struct mw_fast_stretch *out,
                                 struct mw_err *err);

/* Activations of one chunk and micro-batch that each device holds at the peak
 * of the layout's schedule: [pp]. As mw_fast_peak_bytes. */
enum mw_status mw_fast_held(struct mw_fast *f, const struct mw_layout *layout,
                            double *out_held, struct mw_err *err);

/*
 * What an order of nodes (layout->nodes) decides of a layout's prices on leaves
 * of several sizes: how many share the NICs, by kind of group and stage, and by
 * pair of neighbouring stages. An order of which no mark is larger than
 * another's is not slower. out has room for MW_ORDER_MARKS pp; returns how many
 * were written, the same for all orders of a layout.
 */
enum { MW_ORDER_MARKS = 9 };
size_t mw_fast_order_marks(const struct mw_scenario *scenario,
                           const struct mw_cost_ctx *ctx,
                           const struct mw_layout *layout, int *out);

/* How often a price or a shape was worked out and not remembered. */
void mw_fast_counts(const struct mw_fast *f, uint64_t *out_prices,
                    uint64_t *out_shapes);

#endif
