/*
 * The hardware database: CSV tables in hwdb/data (bandwidth per direction,
 * a source and a confidence per row), read into one immutable object.
 * An overlay folder (--hwdb DIR or MESHWRIGHT_HWDB) adds rows and replaces
 * rows of the same key; columns that its file does not have keep the shipped
 * values. Its files are named like the tables; any other *.csv is refused
 * (a misspelt table would be ignored without a word) unless its name begins
 * with "raw".
 *
 *   struct mw_hwdb *db;
 *   if (mw_hwdb_load(NULL, &db, &err) == MW_OK) {
 *       const struct mw_system *dgx;
 *       mw_hwdb_system(db, "DGX H100", &dgx, &err);  8 GPUs, 450e9 B/s
 *       mw_hwdb_free(db);
 *   }
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
    /* achieved / peak of large GEMMs: the constant gemm_efficiency.SLUG, else
     * achieved_matmul (fp16 takes the bf16 row), else the constants of the
     * architecture. NaN and "" where peak_flops is NaN. */
    double gemm_efficiency[MW_HW_DTYPES];
    const char *gemm_efficiency_source[MW_HW_DTYPES];
    const char *gemm_efficiency_confidence[MW_HW_DTYPES];
    /* mem_bytes: vendors print GB and mean 2^30 bytes. mem_bw is the wire
     * rate; times mem_efficiency it is what a stream reaches. */
    double mem_bytes, mem_bw_Bps, mem_efficiency;
    const char *mem_efficiency_source, *mem_efficiency_confidence;
    double tdp_w;
    int n_sms;
    const char *scaleup;
    int n_links;
    double link_bw_Bps;    /* one link, one direction; NaN when not known */
    double scaleup_bw_Bps; /* all links, one direction; 0 without, NaN when
                              not known */
    const char *confidence, *source;
    bool is_cpu;
};

struct mw_system {
    const char *slug, *name, *aliases;
    int gpus_per_node;
    const struct mw_gpu *gpu;
    const char *intra_fabric;
    double intra_bw_Bps; /* per GPU and direction inside the scale-up domain */
    int scaleup_gpus;    /* GPUs of the scale-up domain (8, 16, 72, ...) */
    int n_nics;          /* per node */
    double nic_bw_Bps;   /* one NIC, one direction */
    double node_net_bw_Bps; /* per direction: n_nics * nic_bw_Bps */
    double intra_alpha_s;   /* per-hop latency of a collective inside a node */
    double inter_alpha_s;   /* and between nodes */
    double intra_efficiency, inter_efficiency; /* achieved / wire of large
                                                  messages; from constants */
    const char *confidence, *source;
    /* Bandwidth to one peer inside the domain: intra_bw behind a switch, less
     * in a mesh (64e9 of 448e9 for MI300X). */
    double peer_bw_Bps;
    int n_rails;
    int n_sockets;         /* of the node's host; 0 when not known */
    double host_mem_bytes; /* of the node; NaN when not known */
    /* A device's own copies to or from the host's memory, one direction, while
     * its neighbours copy too; wire rate of the node's host memory. NaN when
     * not known. */
    double host_link_Bps, host_mem_Bps;
    double nvme_read_Bps, nvme_write_Bps;  /* of a node's drives together */
    const char *intra_class, *inter_class; /* "nvlink4", "ib"; "none" */
    /* The rows behind the four figures above; the inter pair is NULL (and the
     * figures 0 and 1) where the node has no NIC. A constant NAME.SLUG of this
     * system comes before NAME.CLASS. */
    const struct mw_constant *intra_alpha, *intra_eff, *inter_alpha, *inter_eff;
};

/* A named constant: `value, unit, source, date, confidence`. */
struct mw_constant {
    const char *name;
    double value; /* SI */
    const char *unit, *confidence, *source, *note, *date;
};

/* A measured kernel time: key (device, op, pass, dtype, m, n, k, kv). kv is of
 * attention whose m queries meet another number of keys: part of a sequence; 0:
 * as many as queries. */
struct mw_kernel_row {
    const char *device, *op, *pass, *dtype;
    int64_t m, n, k, kv;
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

/*
 * What a folder above works out from the tables and keeps with them, so that
 * all who hold the database see the same: it begins with this head, and free
 * is called before the tables go. One a database; the second is an error of
 * the program. NULL where nothing was lent.
 */
struct mw_hwdb_loan {
    void (*free)(struct mw_hwdb_loan *loan);
};
void mw_hwdb_lend(struct mw_hwdb *db, struct mw_hwdb_loan *loan);
struct mw_hwdb_loan *mw_hwdb_loan(const struct mw_hwdb *db);

/* By slug, name or alias, any case. Unknown: MW_EINPUT naming the nearest. */
enum mw_status mw_hwdb_gpu(const struct mw_hwdb *db, const char *name,
                           const struct mw_gpu **out, struct mw_err *err);
enum mw_status mw_hwdb_system(const struct mw_hwdb *db, const char *name,
                              const struct mw_system **out, struct mw_err *err);
/* The slug nearest to a name that is not there, or NULL. */
const char *mw_hwdb_nearest(const struct mw_hwdb *db, const char *name);
size_t mw_hwdb_gpu_count(const struct mw_hwdb *db);
const struct mw_gpu *mw_hwdb_gpu_at(const struct mw_hwdb *db, size_t i);
size_t mw_hwdb_system_count(const struct mw_hwdb *db);
const struct mw_system *mw_hwdb_system_at(const struct mw_hwdb *db, size_t i);

/* The constant, or MW_EINPUT when there is no such row. */
enum mw_status mw_hwdb_constant(const struct mw_hwdb *db, const char *name,
                                const struct mw_constant **out,
                                struct mw_err *err);

/* Errors of our own predictions, |predicted / measured - 1|, of one group of
 * measured rows, each predicted with constants fitted without it. */
struct mw_model_error {
    const char *file, *group;
    int64_t rows;
    double p50, p90, p99, bias; /* bias keeps the sign */
};
/*
 * That of step times under a training stack on a device: of the rows of that
 * stack and device where there are MW_MODEL_ERROR_ROWS of them, else of the
 * stack, else of the stack without the last word of its name
 * ("torchtitan-async", "torchtitan") in the same way, else of all rows. NULL
 * where a database has none.
 */
enum { MW_MODEL_ERROR_ROWS = 8 };
const struct mw_model_error *mw_hwdb_model_error(const struct mw_hwdb *db,
                                                 const char *stack,
                                                 const char *gpu_slug);

/* Prices of a device in US dollars per GPU and hour: the lowest and highest row
 * of costs.csv of that kind ("on-demand"; NULL: any). false: there is none. */
bool mw_hwdb_price(const struct mw_hwdb *db, const char *gpu_slug,
                   const char *kind, double *out_low, double *out_high);

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
/* router.csv of an overlay: the tokens (times top k) of a sequence that a
 * layer's router sends to an expert when training begins, sequences numbered
 * through steps. The rows as they stand; returns how many (0: no such table).
 */
struct mw_router_row {
    int64_t layer, sequence, expert, rows;
};
size_t mw_hwdb_router(const struct mw_hwdb *db,
                      const struct mw_router_row **out);
const char *mw_hwdb_overlay_dir(const struct mw_hwdb *db); /* or NULL */
/* Of what the overlay's tables contain, wherever they lie; 0 without one. */
uint64_t mw_hwdb_overlay_hash(const struct mw_hwdb *db);
/* The folder of the shipped tables. */
const char *mw_hwdb_data_dir(const struct mw_hwdb *db);

/* ---- generic access, for `hw list|show|check` ------------------------------
 */
/* Names of the tables ("gpus", "nvlink", ...), NULL past the end. */
const char *mw_hwdb_table_name(size_t i);
struct mw_csv;
/* The merged table, NULL for an unknown name (any case). */
const struct mw_csv *mw_hwdb_table(const struct mw_hwdb *db, const char *name);
/* The file that row i of a table came from. */
const char *mw_hwdb_row_file(const struct mw_hwdb *db, const char *table,
                             size_t i);
/* Whether a column of a table holds numbers (others hold text). */
bool mw_hwdb_is_number(const char *table, const char *column);
/* Verifies every row of every table: links x lanes x rate = total, per
 * direction x 2 = bidirectional, encoding overhead, GPUs x NICs, ports, domain
 * sizes, sources, confidences, unique names (docs/hwdb.md lists the rules).
 * Findings are collected in err, FILE:LINE each. MW_EINPUT when any.
 * mw_hwdb_load has called it: a loaded database passes. */
enum mw_status mw_hwdb_check(const struct mw_hwdb *db, struct mw_err *err);

#endif
