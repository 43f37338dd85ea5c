/*
 * The hardware database: CSV tables in hwdb/data (bandwidth per direction,
 * a source and a confidence per row), read into one immutable object.
 * An overlay folder (--hwdb DIR or MESHWRIGHT_HWDB) adds rows and replaces
 * rows of the same key.
 */
#ifndef MW_HWDB_HWDB_H
#define MW_HWDB_HWDB_H

#include "base/err.h"
#include "base/mem.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Rates per dtype are dense peak rates; NaN when the device has no such path.
 * Indices are those of enum mw_dtype (sim/model/layout.h): fp32 tf32 bf16
 * fp16 fp8 fp4. */
enum { MW_HW_DTYPES = 6 };

struct mw_gpu {
    const char *slug;    /* "h100-sxm" */
    const char *name;    /* "H100-SXM5-80GB" */
    const char *aliases; /* separated by ';' */
    const char *vendor, *form, *arch;
    double peak_flops[MW_HW_DTYPES];
    double gemm_efficiency[MW_HW_DTYPES]; /* achieved / peak of large GEMMs:
                                             from achieved_matmul, else from
                                             the device class default */
    const char *gemm_efficiency_source[MW_HW_DTYPES];
    double mem_bytes, mem_bw_Bps, mem_efficiency;
    double tdp_w;
    int n_sms;
    const char *scaleup;
    int n_links;
    double link_bw_Bps;   /* one link, one direction */
    const char *confidence, *source;
    bool is_cpu;
};

struct mw_system {
    const char *slug, *name, *aliases;
    int gpus_per_node;
    const struct mw_gpu *gpu;
    const char *intra_fabric;
    double intra_bw_Bps;   /* per GPU and direction inside the scale-up domain */
    int scaleup_gpus;      /* GPUs of the scale-up domain (8, 16, 72, ...) */
    int n_nics;            /* per node */
    double nic_bw_Bps;     /* one NIC, one direction */
    double node_net_bw_Bps; /* per direction: n_nics * nic_bw_Bps */
    double intra_alpha_s;  /* per-hop latency of a collective inside a node */
    double inter_alpha_s;  /* and between nodes */
    double intra_efficiency, inter_efficiency; /* achieved / wire of large
                                                  messages; from constants */
    const char *confidence, *source;
};

/* A named constant: `value, unit, source, date, confidence`. */
struct mw_constant {
    const char *name;
    double value; /* SI */
    const char *unit, *confidence, *source, *note;
};

/* A measured kernel time: key (device, op, pass, dtype, m, n, k). */
struct mw_kernel_row {
    const char *device, *op, *pass, *dtype;
    int64_t m, n, k;
    double time_s;
    const char *source;
};
/* A measured collective or p2p time: key (system, op, ranks, bytes). */
struct mw_curve_row {
    const char *system, *op;
    int64_t ranks, bytes;
    double time_s;
    const char *source;
};

struct mw_hwdb;

/*
 * Loads the shipped tables and then the overlay (NULL: MESHWRIGHT_HWDB if
 * set, else none). The data folder is MESHWRIGHT_DATA if set, else the source
 * tree's or the installed one. Any wrong row is MW_EINPUT with FILE:LINE.
 */
enum mw_status mw_hwdb_load(const char *overlay_dir, struct mw_hwdb **out,
                            struct mw_err *err);
void mw_hwdb_free(struct mw_hwdb *db);

/* By slug, name or alias, any case. Unknown: MW_EINPUT naming the nearest. */
enum mw_status mw_hwdb_gpu(const struct mw_hwdb *db, const char *name,
                           const struct mw_gpu **out, struct mw_err *err);
enum mw_status mw_hwdb_system(const struct mw_hwdb *db, const char *name,
                              const struct mw_system **out, struct mw_err *err);
size_t mw_hwdb_gpu_count(const struct mw_hwdb *db);
const struct mw_gpu *mw_hwdb_gpu_at(const struct mw_hwdb *db, size_t i);
size_t mw_hwdb_system_count(const struct mw_hwdb *db);
const struct mw_system *mw_hwdb_system_at(const struct mw_hwdb *db, size_t i);

/* The constant, or MW_EINPUT when there is no such row. */
enum mw_status mw_hwdb_constant(const struct mw_hwdb *db, const char *name,
                                const struct mw_constant **out,
                                struct mw_err *err);

/* Measured kernels of one (device, op, pass, dtype), sorted by (k, n, m);
 * *out points into the database. n = 0 when there is none. */
size_t mw_hwdb_kernels(const struct mw_hwdb *db, const char *device,
                       const char *op, const char *pass, const char *dtype,
                       const struct mw_kernel_row **out);
/* Measured curve of one (system, op, ranks), ascending in bytes. */
size_t mw_hwdb_curve(const struct mw_hwdb *db, const char *system,
                     const char *op, int64_t ranks,
                     const struct mw_curve_row **out);

/* ---- calibration records ------------------------------------------------- */
/* machine.csv of an overlay: key,value pairs (cpu, blas_core, blas_config,
 * mpi, mode, clock, date, insitu_factor ...). NULL when absent. */
const char *mw_hwdb_machine(const struct mw_hwdb *db, const char *key);
const char *mw_hwdb_overlay_dir(const struct mw_hwdb *db); /* or NULL */

/* ---- generic access, for `hw list|show|check` ------------------------------ */
/* Names of the tables ("gpus", "nvlink", ...), NULL past the end. */
const char *mw_hwdb_table_name(size_t i);
struct mw_csv;
const struct mw_csv *mw_hwdb_table(const struct mw_hwdb *db, const char *name);
/* Verifies every row; findings are collected in err (all of them are also
 * written to `report` if not NULL, one a line). MW_EINPUT when any. */
enum mw_status mw_hwdb_check(const struct mw_hwdb *db, struct mw_err *err);

#endif
