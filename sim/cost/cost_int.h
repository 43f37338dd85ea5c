/* Private to sim/cost: the measured kernel table as a rung of the ladder. */
#ifndef MW_SIM_COST_COST_INT_H
#define MW_SIM_COST_COST_INT_H

#include "sim/cost/cost.h"

/* Prices an operator from the measured rows; false when the table says
 * nothing about it. The time is without the in-situ factor; *out_source is
 * the nearest row's. */
bool mw_kernel_table_price(const struct mw_cost_ctx *ctx,
                           const struct mw_op *op, struct mw_cost *out,
                           const char **out_source);

/* FLOP/s that the power limit sustains; infinite where not known. */
double mw_cost_limit_flops(const struct mw_cost_ctx *ctx, enum mw_dtype dtype);

/* Looks up the shipped measurements of the device; none on a CPU. */
enum mw_status mw_measured_index(struct mw_cost_ctx *ctx, struct mw_err *err);
/* Prices a product or fused attention by the utilisation of its neighbours;
 * false when none is near. */
bool mw_measured_price(const struct mw_cost_ctx *ctx, const struct mw_op *op,
                       struct mw_cost *out, const char **out_source);

/* stack_memory.c: the habits of a stack that stack.c knows. */
void mw_stack_memory_read(const struct mw_hwdb *db, const char *stack,
                          struct mw_stack_memory *out);
/* stack_bucket.c: the same of how it reduces gradients, by stack->name. */
enum mw_status mw_stack_bucket_read(const struct mw_hwdb *db,
                                    struct mw_stack *stack, struct mw_err *err);

#endif
