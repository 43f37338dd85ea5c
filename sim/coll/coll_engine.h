/*
 * All-reduce kernels of inference engines, inside a node: every rank reads the
 * others' buffers over NVLink.
 *
 *   one shot   all of them, and adds      alpha + (n - 1) S / B
 *   two shots  reduce-scatter, then       alpha + 2 (n - 1) / n S / B
 *              all-gather
 *   NCCL       above the engine's limit, and between GPUs without NVLink
 *              (two may do without it where peer access works, which boxes of
 *              PCIe boards are not known for)
 *
 * Which by size is the engine's rule, from its source:
 *   vllm, sglang  one shot for 2 ranks, below 512 KiB for up to 4, below
 *                 256 KiB for up to 8; two shots to 8 MiB
 *                 (csrc/custom_all_reduce.cuh, custom_all_reduce.py)
 *   trtllm        one shot below 1 MB for up to 4 ranks (16 MB for 2), below
 *                 500 kB for up to 8; then NCCL (allreduceOp.cpp 1.0,
 *                 max_workspace_size_auto)
 * Not captured in a graph ("eager") a call costs at least a launch, and
 * vllm and sglang copy the input first:
 *
 *   t = max(launch, t_graph + copy + 2 S / memory bandwidth)
 *
 * alpha, B, launch and copy are rows of coll_kernels.csv, fitted per class of
 * machine by coll_fit. Left out: fused normalisation, quantised forms,
 * symmetric memory of newer versions, multi-node kernels.
 */
#ifndef MW_SIM_COLL_COLL_ENGINE_H
#define MW_SIM_COLL_COLL_ENGINE_H

#include "base/err.h"
#include "base/mem.h"
#include "hwdb/hwdb.h"

#include <stdbool.h>

enum mw_coll_engine {
    MW_ENGINE_NONE,
    MW_ENGINE_VLLM,
    MW_ENGINE_SGLANG,
    MW_ENGINE_TRTLLM,
    MW_ENGINES
};
const char *mw_coll_engine_name(enum mw_coll_engine engine); /* "vllm" */
/* False for another name. */
bool mw_coll_engine_find(const char *name, enum mw_coll_engine *out);

enum mw_engine_kernel {
    MW_KERNEL_ONE_SHOT,
    MW_KERNEL_TWO_SHOT,
    MW_KERNEL_NCCL
};
/* The engine's rule; has_nvlink: between all ranks. */
enum mw_engine_kernel mw_engine_kernel_of(enum mw_coll_engine engine,
                                          int n_ranks, double bytes,
                                          bool has_nvlink);
/* Bytes that a rank reads. */
double mw_engine_read_bytes(enum mw_engine_kernel kernel, int n_ranks,
                            double bytes);

/* Least |(alpha + x / B) / t - 1| through n points; alpha at least so much. */
struct mw_fit_line {
    double alpha_s, Bps, error; /* median |error| */
};
struct mw_fit_line mw_coll_fit_line(const double *x, const double *t, size_t n,
                                    double least_alpha_s);

/* Fitted constants of a family of kernels on a class of machine; a bandwidth
 * of 0 is not known. */
struct mw_engine_row {
    bool is_trtllm; /* else vllm and sglang, which share their kernels */
    bool is_fitted; /* on this class; else a mean of others */
    char cls[48];   /* "hopper.nvswitch" */
    double one_alpha_s, one_Bps;
    double two_alpha_s, two_Bps;
    double launch_s, copy_s;
    int n_points;
    double error; /* median of the points captured in graphs */
};
/* One measured time, for the fit. */
struct mw_engine_sample {
    char unit[64], cls[48], machine[32];
    enum mw_coll_engine engine;
    bool is_eager, has_nvlink;
    int n_ranks;
    double bytes, time_s, memory_Bps;
};
/* The row of a family and class from its samples; false without any. */
bool mw_engine_fit(const struct mw_engine_sample *samples, size_t n,
                   bool is_trtllm, const char *cls, struct mw_engine_row *out);

/* The row of a family and class; for a class with NVLink that has none the
 * geometric mean of the others. False: none. */
bool mw_engine_row_find(const struct mw_engine_row *rows, size_t n,
                        bool is_trtllm, const char *cls,
                        struct mw_engine_row *out);

#endif
