/*
 * Measuring this machine: operators in loops over rotated buffers, and
 * communication curves. What `meshwright calibrate` runs; rows in the columns
 * of the hardware database's kernels and curves.
 */
#ifndef MW_EXEC_BENCH_H
#define MW_EXEC_BENCH_H

#include "exec/comm.h"
#include "exec/dev.h"

/*
 * Times every operator of the scenario's model, for each tp and each cp (in
 * every form) that its cluster allows and micro-batches of 1, 4 and 16
 * sequences, and writes kernels.csv rows (with header) to `path`.
 */
enum mw_status mw_bench_kernels(const char *scenario, const char *path,
                                struct mw_err *err);

/*
 * Times all_reduce, all_gather and reduce_scatter over the ranks of world
 * (send_recv when there are two) and writes curves.csv rows on rank 0, for the
 * scenario's system. Collective.
 */
enum mw_status mw_bench_comm(const char *scenario, const char *path,
                             struct mw_comm *world, struct mw_err *err);

/*
 * Trains the scenario's model for 7 steps and counts where its routers send the
 * tokens of the last 4 steps' sequences: those that a run times first; writes
 * router.csv rows (with header) to `path`. Rank 0 works, alone.
 */
enum mw_status mw_bench_routing(const char *scenario, const char *path,
                                struct mw_comm *world, struct mw_err *err);

/* ---- shared ------------------------------------------------------------- */
/*
 * Memory that operators are timed on: `next` returns pieces one after the
 * other and starts again at the end, so that a loop finds its operands no
 * longer in the core's own cache. Filled with values in [-1, 1).
 */
struct mw_pool {
    float *v;
    size_t n, at;
};
void mw_pool_init(struct mw_pool *pool, size_t n, uint64_t stream);
void mw_pool_release(struct mw_pool *pool);
float *mw_pool_next(struct mw_pool *pool, size_t n);

#endif
