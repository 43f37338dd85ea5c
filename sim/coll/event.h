/*
 * Collectives as flows over a topology, alone or at the same time.
 *
 * A collective in its steady state is a set of streams: each edge of a ring
 * carries 2 (n-1)/n of its channel's share, each edge of the two trees half of
 * it up and down, a GPU behind a reducing switch sends and receives its data
 * once. All streams of a collective begin after its latency and run side by
 * side, max-min fair with everything else on the links.
 *
 *   t = L + last stream;   bytes of the streams x k
 *
 * L is NCCL's latency and k makes the collective, alone on the plain fabric of
 * its system, take the time of the fit: k holds protocol, copies and pipeline.
 * Contention, oversubscription and slow links then come from the flows.
 * Left out: the order of chunks inside a stream (mw_prog_simulate has it).
 */
#ifndef MW_SIM_COLL_EVENT_H
#define MW_SIM_COLL_EVENT_H

#include "sim/coll/coll.h"
#include "sim/net/topology.h"

struct mw_coll_job {
    struct mw_coll_query query;
    int first_node; /* the group lies on nodes first_node, first_node + 1, ...
                     */
    int first_gpu;  /* and there on GPUs first_gpu, ... of the node */
    double start_s;
};
struct mw_coll_job_time {
    double end_s;
    double alone_s; /* the same job by itself on the plain fabric */
    size_t n_streams;
};
/*
 * Runs the jobs together on a topology (NULL: one switch over as many nodes as
 * needed). MW_EINPUT for groups that do not fit. A job of n ranks has about
 * n x channels streams; all-to-all of more than 512 ranks is taken per GPU
 * instead of per pair.
 */
enum mw_status mw_coll_event_run(struct mw_coll_world *world,
                                 const struct mw_topology *topo,
                                 const struct mw_coll_job *jobs, size_t n_jobs,
                                 struct mw_coll_job_time *out,
                                 struct mw_err *err);

/* Readings of the sources below, confidence L. */
#define MW_INCAST_LOSS 0.02
#define MW_BUFFER_SHARE 0.7

/* Congestion refinements; both off (zero) by default. */
struct mw_congestion {
    /*
     * RoCE under incast: the capacity of a link into a GPU's NIC that `k`
     * senders share is divided by 1 + incast (k - 1). PFC pauses spread to
     * links that are not full themselves (Zhu et al., "Congestion Control for
     * Large-Scale RDMA Deployments", SIGCOMM 2015, figures 2 to 4: 10 to 50 %
     * loss for victims; 0.02 a sender is our reading, confidence L).
     */
    double incast;
    /*
     * All-to-all through switches with small buffers: the capacity of links
     * between switches is multiplied by this (Alibaba HPN, SIGCOMM 2024,
     * section 2: hash collisions leave 0.5 to 0.9 of it; confidence L).
     */
    double alltoall_fabric; /* 0: 1 */
};
void mw_coll_world_set_congestion(struct mw_coll_world *world,
                                  const struct mw_congestion *congestion);

#endif
