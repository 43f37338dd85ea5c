/*
 * Reading what nccl-tests prints (all_reduce_perf and its siblings): the table
 * of sizes with out-of-place and in-place times, as pasted, with other lines
 * around it. Source of the layout: NVIDIA/nccl-tests, src/common.cu.
 */
#ifndef MW_SIM_COLL_NCCL_LOG_H
#define MW_SIM_COLL_NCCL_LOG_H

#include "base/err.h"
#include "base/mem.h"

#include <stdbool.h>
#include <stddef.h>

enum { MW_NCCL_LOG_SIZE_MAX = 16 << 20 };

struct mw_nccl_log_row {
    double bytes;
    double time_s, busbw_Bps;                   /* out of place */
    double in_place_time_s, in_place_busbw_Bps; /* 0: not printed */
    long long wrong; /* errors found by the check; -1: not checked */
    char type[12], redop[8];
};
struct mw_nccl_log {
    MW_ARRAY(struct mw_nccl_log_row) row;
    int n_ranks; /* lines "#  Rank  k ... on HOST device": 0 if none */
    int n_hosts;
    char op[24]; /* from "Collective test starting"; "" if not printed */
};

/* MW_EINPUT "FILE:LINE: ..." for a file without such a table or with a broken
 * row in it. Release with mw_nccl_log_release. */
enum mw_status mw_nccl_log_parse(const char *name, const char *text, size_t len,
                                 struct mw_nccl_log *out, struct mw_err *err);
enum mw_status mw_nccl_log_load(const char *path, struct mw_nccl_log *out,
                                struct mw_err *err);
void mw_nccl_log_release(struct mw_nccl_log *log);

#endif
