/*
 * Private to sim/step: communication beside computation. Formulas and sources
 * stand in contend.c.
 */
#ifndef MW_SIM_STEP_CONTEND_H
#define MW_SIM_STEP_CONTEND_H

#include "sim/cost/cost.h"

struct mw_step_price;

/* Exposed seconds of a transfer of which `overlap` can hide behind window_s of
 * work: the rest, and what the window is too short for. */
double mw_step_exposed_s(double transfer_s, double overlap, double window_s);
/* Collectives of one kind: what their kernels take while they run. */
struct mw_comm_load {
    double time_s;
    double bytes;    /* read and written in the device's memory */
    double sm_bytes; /* the same times the multiprocessors of each */
};
/* Adds a collective of so many bytes to a load, but for its time. dim: of TP
 * and EP the stack may have kernels of its own; DP for all others. */
void mw_step_load_add(const struct mw_step_price *p, enum mw_coll_op op,
                      enum mw_dim dim, double bytes,
                      const struct mw_group *group, struct mw_comm_load *load);
/* Multiprocessors that such a collective takes. */
double mw_step_coll_sms(const struct mw_step_price *p, enum mw_coll_op op,
                        enum mw_dim dim, const struct mw_group *group);
/* How much longer work takes beside such a load, as a part of the work, of
 * which matrix_part is products and attention. */
double mw_step_growth(const struct mw_step_price *p,
                      const struct mw_comm_load *load, double matrix_part);
/* The same of all_s of work of which only compute_s is slowed, matrix_s of that
 * in products and attention; 0 without work. */
double mw_step_work_growth(const struct mw_step_price *p,
                           const struct mw_comm_load *load, double all_s,
                           double compute_s, double matrix_s);
/* A transfer of which `overlap` can hide behind window_s of work that takes
 * 1 + growth meanwhile: what shows, what is hidden, and what the work takes
 * longer. shown_s + slowed_s is what it adds to the step. */
struct mw_overlapped {
    double shown_s, hidden_s, slowed_s;
};
struct mw_overlapped mw_step_beside(double transfer_s, double overlap,
                                    double window_s, double growth);

#endif
