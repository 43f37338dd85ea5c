/*
 * Private to sim/step: collectives over parameters and gradients, as units and
 * their ZeRO stage need them: which they are, what they take, which of them go
 * in units of several layers, and the memory of what is gathered.
 */
#ifndef MW_SIM_STEP_STEP_ZERO_INT_H
#define MW_SIM_STEP_STEP_ZERO_INT_H

#include "sim/step/step_price_int.h"

struct mw_vstage;

/* ---- zero_colls.c: collectives over parameters and gradients ---------------
 */
enum mw_zero_when { MW_ZERO_FORWARD, MW_ZERO_BACKWARD, MW_ZERO_SCATTER };
struct mw_zero_coll {
    enum mw_zero_when when;
    enum mw_coll_op op;
    double bytes, pieces; /* of all pieces, equal ones */
    struct mw_group group;
};
enum { MW_ZERO_COLLS_MAX = 8 };
struct mw_zero_colls {
    struct mw_zero_coll v[MW_ZERO_COLLS_MAX];
    int n;
};
/* What ZeRO-2 and -3 do for a unit and micro-batch (_many: for so many units of
 * each kind at once), and what reduces gradients
 * once a step under ZeRO-0 and -1 (params: dense, of experts), without the
 * all-reduce over replicas. groups: who shares gradients of the dense part, of
 * experts, with the other copies of the model. */
void mw_zero_unit_colls(const struct mw_step_price *p, enum mw_step_unit unit,
                        const struct mw_group groups[2],
                        struct mw_zero_colls *out);
void mw_zero_many_colls(const struct mw_step_price *p,
                        const int n_units[MW_UNIT_COUNT],
                        const struct mw_group groups[2],
                        struct mw_zero_colls *out);
/* ZeRO-3: of a layer's weights, what is gathered a third time, since it was
 * freed between recomputation and the backward pass; 0 to 1. */
double mw_zero_again(const struct mw_step_price *p, enum mw_step_unit unit);
void mw_zero_reduce_colls(const struct mw_step_price *p, const double params[2],
                          const double pieces[2],
                          const struct mw_group groups[2],
                          struct mw_zero_colls *out);
double mw_zero_colls_s(const struct mw_step_price *p,
                       const struct mw_zero_colls *colls,
                       enum mw_zero_when when);
struct mw_pieces {
    double all_s, last_s; /* one piece of each collective */
};
struct mw_pieces mw_zero_colls_pieces(const struct mw_step_price *p,
                                      const struct mw_zero_colls *colls,
                                      enum mw_zero_when when);
/* Of messages to other ranks, as mw_cost_coll counts them. */
double mw_zero_colls_bytes(const struct mw_zero_colls *colls,
                           enum mw_zero_when when);
/* Adds what they take while they run, but for their time. */
void mw_zero_colls_load(const struct mw_step_price *p,
                        const struct mw_zero_colls *colls,
                        enum mw_zero_when when, struct mw_comm_load *load);
/* Device time of compression, 0 without: spreading gathered weights of a unit,
 * packing its gradients; packing the momentum of so many parameters, of which
 * the rank sums a share. Counted as the bytes of the passes over memory. */
double mw_zero_spread_s(const struct mw_step_price *p, enum mw_step_unit unit);
double mw_zero_pack_s(const struct mw_step_price *p, enum mw_step_unit unit);
double mw_onebit_pack_s(const struct mw_step_price *p, double params,
                        double share);
/* Memory of it: errors that are fed back; the rank's part of its node's copy of
 * so many bytes of weights. */
double mw_onebit_error_bytes(const struct mw_step_price *p, double params,
                             double share);
double mw_zero_node_copy_bytes(const struct mw_step_price *p, double dense,
                               double expert);
bool mw_zero_has_node_copy(const struct mw_step_price *p,
                           const struct mw_group *g);

/* ---- fsdp_units.c: units of several layers (mw_layout_wraps) --------------
 */
/* How many units a virtual stage is gathered in, in the order of a forward
 * pass, and what the i-th has. */
int mw_fsdp_units(const struct mw_step_price *p, const struct mw_vstage *v);
void mw_fsdp_unit(const struct mw_step_price *p, const struct mw_vstage *v,
                  int i, int n_units[MW_UNIT_COUNT]);
/* Fills v->wrap_s and wrap_part; the work of units must be priced. */
void mw_fsdp_expose(const struct mw_step_price *p, struct mw_vstage *v);
/* Are two virtual stages gathered alike that have the same units? */
bool mw_fsdp_is_alike(const struct mw_step_price *p);
/* Of a device with so many units, at the fullest moment of the backward pass
 * of a unit of a kind: weights that are gathered, and parameters whose
 * gradients are not yet scattered. `ends_are_root`: the embedding and the head
 * are gathered all the time and counted elsewhere. */
double mw_fsdp_gathered_bytes(const struct mw_step_price *p,
                              const int n_units[MW_UNIT_COUNT],
                              enum mw_step_unit unit, bool ends_are_root);
double mw_fsdp_whole_params(const struct mw_step_price *p,
                            const int n_units[MW_UNIT_COUNT],
                            enum mw_step_unit unit);
/* All-reduce of the rank's shares of so many gradients over the replicas: time
 * of one of so many pieces; all bytes. */
double mw_step_replicas_s(const struct mw_step_price *p, double dense,
                          double expert, double pieces);
double mw_step_replicas_bytes(const struct mw_step_price *p, double dense,
                              double expert);

#endif
