/*
 * Measured dispatch and combine kernels: reading the tables (DeepEP's timings;
 * TensorRT-LLM's), fitting latency and bandwidth per kernel, architecture,
 * nodes and SMs, scoring.
 */
#ifndef MW_SIM_COLL_MOE_FIT_H
#define MW_SIM_COLL_MOE_FIT_H

#include "sim/coll/coll_fit.h"
#include "sim/coll/moe.h"

/* One measured phase. */
struct mw_moe_sample {
    char unit[64]; /* file, machine and kernel */
    char system[32], arch[24];
    struct mw_moe_traffic traffic;
    struct mw_moe_query query;
    bool is_combine;
    double time_s;
    double elements; /* that bound the phase (mw_moe_elements) */
    const char *why_not;
};
struct mw_moe_samples {
    MW_ARRAY(struct mw_moe_sample) v;
};

/* True if the header of the file is that of one of the two forms: columns
 * mode, dispatch_us, combine_us; or op, kernel, ep, time_us. */
bool mw_moe_is_table(const char *path);
/* Appends two samples for every row of DeepEP's form, one of the other. */
enum mw_status mw_moe_samples_load(const char *path, struct mw_moe_samples *out,
                                   struct mw_err *err);
/* Fits all classes with 8 samples or more, without a unit (NULL: with all).
 * Writes them to path, if there is one; *out (may be NULL) is the table. */
enum mw_status mw_moe_fit(const struct mw_moe_samples *samples,
                          const char *without, const char *path,
                          struct mw_moe_table **out, struct mw_err *err);
/* As mw_coll_validate, on these tables. */
enum mw_status mw_moe_validate(const struct mw_hwdb *db,
                               const char *const *paths, size_t n_paths,
                               bool is_left_out, struct mw_coll_validation *out,
                               struct mw_err *err);

#endif
