/*
 * Replays tables of NCCL 2.28.9's own decisions against sim/coll/nccl.h.
 * Used by the unit test (thinned tables) and by the program nccl_replay
 * (whole tables).
 */
#ifndef MW_TESTS_NCCL_REPLAY_H
#define MW_TESTS_NCCL_REPLAY_H

#include "base/err.h"

/* Rows compared and rows that differ; the first few differences are written
 * to stderr. A folder holds topologies/NAME.xml beside the tables. */
struct replay_count {
    long rows, wrong;
};
enum mw_status replay_graphs(const char *dir, struct replay_count *out,
                             struct mw_err *err);
enum mw_status replay_latbw(const char *dir, struct replay_count *out,
                            struct mw_err *err);
enum mw_status replay_choice(const char *dir, struct replay_count *out,
                             struct mw_err *err);
enum mw_status replay_trees(const char *dir, struct replay_count *out,
                            struct mw_err *err);
enum mw_status replay_p2p_schedule(const char *dir, struct replay_count *out,
                                   struct mw_err *err);
enum mw_status replay_orders(const char *dir, struct replay_count *out,
                             struct mw_err *err);
enum mw_status replay_cells(const char *dir, struct replay_count *out,
                            struct mw_err *err);
enum mw_status replay_alltoall(const char *dir, struct replay_count *out,
                               struct mw_err *err);

#endif
