/*
 * What the module mw_cuda.so exports: the device table and NCCL behind the
 * communication table. No CUDA type shows here.
 *
 *   mw_dev_cuda.open(rank, &dev, &err);
 *   mw_comm_nccl_wrap(dev, world, peers, n_peers, &comm, &err);
 */
#ifndef MW_EXEC_MW_CUDA_H
#define MW_EXEC_MW_CUDA_H

#include "exec/comm.h"
#include "exec/dev.h"

/* float32; GPU number local_rank modulo those that are visible. MW_EMISSING
 * without a driver or a GPU. */
extern const struct mw_dev_ops mw_dev_cuda;
/* Activations and weights bfloat16; bias, gamma and beta too. */
extern const struct mw_dev_ops mw_dev_cuda_bf16;

/*
 * NCCL among the ranks of `host`, on the buffers of `dev` (a CUDA device, which
 * must outlive the result). Collective over host, which stays the caller's and
 * must live as long. The table's calls also take host buffers; those and
 * barrier, broadcast and gather go through `host`.
 *
 * Sends and receives are possible with `peers` (ranks of host; the relation is
 * symmetric: if b is a peer of a, a is one of b) on the result itself, not on
 * what is split from it. Messages are matched by tag in any order.
 *
 * An error of NCCL, or no end of an operation within the time limit, aborts
 * all communicators of the device and returns MW_EBACKEND.
 */
enum mw_status mw_comm_nccl_wrap(struct mw_dev *dev, struct mw_comm *host,
                                 const int *peers, int n_peers,
                                 struct mw_comm **out, struct mw_err *err);

/* Seconds after which a wait gives up; 0: never. 120 at first. */
void mw_cuda_set_timeout(struct mw_dev *dev, double timeout_s);

#endif
