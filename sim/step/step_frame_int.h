/*
 * Private to sim/step: all of a plan that time and memory need, and who reads
 * it: the tree of explanations, the shared wires, closed forms without a list.
 */
#ifndef MW_SIM_STEP_STEP_FRAME_INT_H
#define MW_SIM_STEP_STEP_FRAME_INT_H

#include "sim/step/step_stage_int.h"
#include "sim/step/step_zero_int.h"

/* ---- frame.c ---------------------------------------------------------- */
/* Everything of a plan that time and memory need, in one arena. */
struct mw_step_frame {
    struct mw_arena arena;
    struct mw_step_price price;
    int n_virtual, n_devices;
    struct mw_vstage *vstage;    /* [n_virtual] */
    struct mw_tail *tail;        /* [n_devices] */
    int (*units)[MW_UNIT_COUNT]; /* [n_devices] */
    struct mw_step_wires wires;  /* with a schedule, on a GPU */
    /* [n_devices] Where groups of one kind differ from stage to stage: what
     * each has priced by its own, alike ones once. NULL: all as `price`. */
    struct mw_step_price **stage;
};
/* schedule NULL: virtual stage k on device k mod p. */
void mw_step_frame_init(struct mw_step_frame *f,
                        const struct mw_scenario *scenario,
                        const struct mw_layout *layout, const int *layers,
                        const struct mw_schedule *schedule,
                        const struct mw_cost_ctx *ctx, bool with_time,
                        struct mw_explain *explain);
/* Without a schedule, the stages summed: units, holders and tails of devices.
 */
void mw_step_frame_devices(struct mw_step_frame *f, bool with_time);
/* MW_EINPUT when a term of the step is beyond MW_STEP_TERM_MAX_S. */
enum mw_status mw_step_frame_check(const struct mw_step_frame *f,
                                   struct mw_err *err);
/* The price under which device d's passes and tail are. */
static inline const struct mw_step_price *
mw_step_frame_price(const struct mw_step_frame *f, int d)
{
    return f->stage != NULL ? f->stage[d] : &f->price;
}
/* Is device d one of several that hold the embedding's matrix? */
bool mw_step_frame_is_twin(const struct mw_step_frame *f, int d);
void mw_step_frame_release(struct mw_step_frame *f);

/* ---- step_explain.c --------------------------------------------------- */
/* Hangs the tree of a simulated step under root, whose value is its time;
 * units: the nodes that mw_step_frame_init made, one a kind. */
void mw_step_explain(const struct mw_step_frame *f, const struct mw_schedule *s,
                     const struct mw_explain *units, struct mw_explain *root);

/* ---- step_wires.c: who fills which wire ------------------------------------
 */
struct mw_wire_load {
    enum mw_coll_op op;
    double bytes;
    const struct mw_group *group;
};
/* Adds `time_s` of the collective to the row of a lane: its bandwidth part, on
 * the NICs where the group spans nodes, else on the links. */
void mw_wires_add(const struct mw_step_price *p,
                  const struct mw_wire_load *load, double time_s,
                  double row[MW_WIRE_KINDS]);
/* Gathers and scatters of a sharded unit, of which the DP lanes' seconds are
 * exposed; each on the wire of its own group. */
void mw_wires_add_zero(struct mw_step_price *p, enum mw_step_unit unit,
                       const struct mw_zero_colls *colls);
/* Fills reduce_part and gather_part of a device's tail, which has its times. */
void mw_wires_tail(const struct mw_step_price *p, int device,
                   const int n_units[MW_UNIT_COUNT], bool has_tied_twin,
                   struct mw_tail *tail);
/* Part of each wire that a lane of a stage's phase takes. */
void mw_wires_part(const struct mw_vstage *v, enum mw_phase phase,
                   enum mw_lane lane, double out[MW_WIRE_KINDS]);
/* The same of a transfer between two devices, and of a collective. */
void mw_wires_transfer_part(const struct mw_step_price *p, int from, int to,
                            int n_states, double out[MW_WIRE_KINDS]);
void mw_wires_coll_part(const struct mw_step_price *p,
                        const struct mw_wire_load *load,
                        double out[MW_WIRE_KINDS]);

/* ---- estimate_memory.c: high-water marks without a list ---------------------
 */
/* Kinds whose order is known without making it. */
enum mw_plain { MW_PLAIN_NO, MW_PLAIN_1F1B, MW_PLAIN_GPIPE, MW_PLAIN_LOOP };
enum mw_plain mw_plain_of(const struct mw_layout *layout, int m);
/* Bytes of the fullest rank; m micro-batches. */
double mw_plain_peak_bytes(const struct mw_step_frame *f, enum mw_plain plain,
                           int m);
/* estimate.c: seconds of the step in closed form; NAN where only the list
 * tells. */
double mw_plain_time_s(const struct mw_step_frame *f, enum mw_plain plain,
                       int m);
/* Both figures from the schedule's list; either may be NULL. */
enum mw_status mw_step_replay(const struct mw_scenario *scenario,
                              const struct mw_layout *layout, const int *layers,
                              const struct mw_cost_ctx *ctx, double *out_time_s,
                              double *out_peak_bytes, struct mw_err *err);

#endif
