/*
 * Measurements of collectives: reading the tables, knowing which system a row
 * was taken on, fitting ratios, scoring models.
 */
#ifndef MW_SIM_COLL_COLL_FIT_H
#define MW_SIM_COLL_COLL_FIT_H

#include "sim/coll/coll.h"

/* One measured time. */
struct mw_coll_row {
    char system[32]; /* slug; empty: none that the database knows */
    char fabric[16]; /* network class; empty: the system's */
    char unit[64];   /* file; of a collection also machine and version */
    struct mw_coll_query query;
    double time_s;
    const char *why_not; /* reason why it is not scored, or NULL */
    bool no_fit;         /* scored, but too noisy to fit on */
};
struct mw_coll_rows {
    MW_ARRAY(struct mw_coll_row) row;
};

/*
 * Appends the rows of a table with the columns collective, gpu, gpus, nodes,
 * gpus_per_node, interconnect, nccl_version, dtype, size_bytes, time_us (file
 * name and version make the unit). MW_EINPUT for a file of another form.
 */
enum mw_status mw_coll_rows_load(const char *path, struct mw_coll_rows *out,
                                 struct mw_err *err);
void mw_coll_rows_release(struct mw_coll_rows *rows);

/* A world for every system, made when needed. */
struct mw_coll_atlas;
struct mw_coll_atlas *mw_coll_atlas_new(const struct mw_hwdb *db,
                                        const struct mw_nccl_opts *opts);
void mw_coll_atlas_free(struct mw_coll_atlas *atlas);
enum mw_status mw_coll_atlas_world(struct mw_coll_atlas *atlas,
                                   const char *system,
                                   struct mw_coll_world **out,
                                   struct mw_err *err);

/* Other ratios for all worlds made so far. */
void mw_coll_atlas_set_fit(struct mw_coll_atlas *atlas,
                           const struct mw_coll_fit *fit);

/* Ratios from the rows (medians per knot, gaps between ranks filled from the
 * sibling operations); rows of the unit `without` (may be NULL) are left out.
 */
void mw_coll_fit_make(struct mw_coll_atlas *atlas,
                      const struct mw_coll_rows *rows, const char *without,
                      struct mw_coll_fit *out);
/* Writes the table with its comment head. */
enum mw_status mw_coll_fit_write(const struct mw_coll_fit *fit,
                                 const char *path, struct mw_err *err);

/* Errors of a model on rows of one unit. */
struct mw_coll_score {
    char unit[64];
    int n_nodes;
    size_t rows, big_rows;             /* scored; of at least 1 MiB */
    double median_ape, big_median_ape; /* |model - measured| / measured */
};
/* Scores every unit; leave_one_out: with ratios fitted without it. The array
 * is the caller's (mw_free). */
size_t mw_coll_score_units(struct mw_coll_atlas *atlas,
                           const struct mw_coll_rows *rows,
                           enum mw_coll_model model, bool leave_one_out,
                           struct mw_coll_score **out);

/* ---- for the verb `validate` ---- */
/* Totals over files, and a row per unit. */
struct mw_coll_validation {
    size_t rows, predicted, skipped;
    double mape, median_ape, p90_ape, bias;
    size_t n_units;
    struct mw_coll_score *units; /* mw_free */
    size_t n_reasons;            /* why rows were skipped */
    struct {
        const char *why;
        size_t rows;
    } reasons[16];
};
/* True if the header of the file is that of a collective table. */
bool mw_coll_is_table(const char *path);
/*
 * Predicts every row of the files and compares. MW_EINPUT for a file that
 * cannot be read. The shipped ratios are used for `fit`.
 */
enum mw_status mw_coll_validate(const struct mw_hwdb *db,
                                const char *const *paths, size_t n_paths,
                                enum mw_coll_model model,
                                struct mw_coll_validation *out,
                                struct mw_err *err);

#endif
