/*
 * Inside of the kernel importer: what is read from the measurement files
 * (samples), sets of samples of one device, operator and dtype, thinning, and
 * the two outputs.
 */
#ifndef MW_HWDB_IMPORT_IMPORT_INT_H
#define MW_HWDB_IMPORT_IMPORT_INT_H

#include "base/csv.h"
#include "hwdb/measured.h"

/* Where rows come from; the order is that of sources.csv. */
enum mw_import_source {
    MW_SRC_AIC_TRTLLM,
    MW_SRC_AIC_TRTLLM_QUANTISE,
    MW_SRC_AIC_VLLM,
    MW_SRC_VIDUR,
    MW_SRC_LLMCOMPASS,
    MW_SRC_INFERSIM,
    MW_SRC_DEEPGEMM,
    MW_SRC_COUNT
};
struct mw_import_source_info {
    const char *id, *citation, *includes, *confidence;
};
extern const struct mw_import_source_info mw_import_sources[MW_SRC_COUNT];

struct mw_sample {
    const struct mw_gpu *gpu;
    const char *op, *dtype; /* static or in the arena */
    int64_t m, n, k, batch;
    double time_s;
    enum mw_import_source source;
};
struct mw_samples {
    struct mw_sample *v;
    size_t n, cap;
};

/* Rows of one file that were read and why the others were not used. */
enum mw_import_drop {
    MW_DROP_NONE,
    MW_DROP_SPLIT,  /* marked as not for calibration */
    MW_DROP_DTYPE,  /* a precision that the cost model has not */
    MW_DROP_DEVICE, /* no device of this name in the database */
    MW_DROP_OTHER,  /* another measurer serves the same set */
    MW_DROP_EASY,   /* beats what the device reaches with random inputs */
    MW_DROP_INFER,  /* a kernel that training does not run */
    MW_DROP_CACHE,  /* writes a key cache, which training has not */
    MW_DROP_MIXED,  /* not one kernel, or sizes not stated */
    MW_DROP_COUNT
};
extern const char *const mw_import_drop_text[MW_DROP_COUNT];
struct mw_import_file {
    const char *name;
    size_t rows, dropped[MW_DROP_COUNT];
};
enum { MW_IMPORT_FILES = 10 };
/* What was taken off the products of a set (import_quantise.c). */
struct mw_import_quantise {
    struct mw_sample first; /* of the set */
    double bytes_per_element, start_s;
    size_t n, n_dropped;
};
struct mw_import {
    const struct mw_hwdb *db;
    const char *dir;
    struct mw_arena *arena;
    struct mw_samples samples;
    struct mw_import_file files[MW_IMPORT_FILES];
    MW_ARRAY(struct mw_import_quantise) quantise;
};
/* Of one device, operator and dtype? */
bool mw_import_is_same_set(const struct mw_sample *a,
                           const struct mw_sample *b);

/* import_read.c: every file of the folder; MW_EINPUT when one is missing or
 * has a column too few. */
enum mw_status mw_import_read(struct mw_import *in, struct mw_err *err);

/* Errors |time / measured - 1| of a set. */
struct mw_import_error {
    size_t n;
    double median, p90, max;
};
/* Samples [first, first + n) of one (device, op, dtype), sorted. */
struct mw_import_set {
    size_t first, n, n_kept;
    bool *is_kept;                    /* n of them */
    struct mw_import_error thinned;   /* of all samples, by the rows kept */
    struct mw_import_error left_out;  /* of each sample, by all others */
    struct mw_import_error new_width; /* by those of another (n, k) */
};

/* import_quantise.c: takes the quantisation of activations off the times of
 * sorted samples; rows that are mostly that go. */
void mw_import_take_quantise_off(struct mw_import *in);

/* import_thin.c */
/* Sorts by (device, op, dtype, k, n, m, batch) and merges equal shapes to
 * their median; returns how many rows that took away. */
size_t mw_import_sort(struct mw_import *in);
/* Cuts sorted samples into sets, in in->arena; returns how many. */
size_t mw_import_cut_sets(struct mw_import *in, struct mw_import_set **out);
/* Marks the rows to keep and fills the errors. */
enum mw_status mw_import_thin(const struct mw_import *in,
                              struct mw_import_set *set, double tolerance,
                              struct mw_err *err);

/* import_write.c */
enum mw_status mw_import_write_tables(const struct mw_import *in,
                                      const struct mw_import_set *sets,
                                      size_t n_sets, const char *out_dir,
                                      struct mw_err *err);
/* Replaces what stands between the two marker lines of a Markdown file. */
enum mw_status mw_import_write_doc(const struct mw_import *in,
                                   const struct mw_import_set *sets,
                                   size_t n_sets, double tolerance,
                                   const char *doc, struct mw_err *err);

#endif
