/*
 * Measurements of collectives: reading the tables, knowing which system a row
 * was taken on, fitting corrections, scoring models.
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
    enum mw_nccl_version version; /* whose model is used */
    char env[96]; /* settings of the job: "NAME=VALUE NAME=VALUE" */
    double time_s;
    const char *why_not; /* reason why it is not scored, or NULL */
    bool no_fit;         /* scored, but not good enough to fit on */
};
/* What was not known and was taken as the default. */
struct mw_coll_notice {
    char text[120];
    size_t rows;
};
struct mw_coll_rows {
    MW_ARRAY(struct mw_coll_row) row;
    MW_ARRAY(struct mw_coll_notice) notice;
};

/*
 * Appends the rows of a table with the columns collective, gpu, gpus, nodes,
 * gpus_per_node, interconnect, nccl_version, software, dtype, size_bytes,
 * time_us (file name, machine and version make the unit). MW_EINPUT for a file
 * of another form.
 */
enum mw_status mw_coll_rows_load(const char *path, struct mw_coll_rows *out,
                                 struct mw_err *err);
void mw_coll_rows_release(struct mw_coll_rows *rows);
/* The row's query with the row's network. */
struct mw_coll_query mw_coll_row_query(const struct mw_coll_row *row);

/* A world for every system and version, made when needed. */
struct mw_coll_atlas;
struct mw_coll_atlas *mw_coll_atlas_new(const struct mw_hwdb *db,
                                        const struct mw_nccl_opts *opts);
void mw_coll_atlas_free(struct mw_coll_atlas *atlas);
enum mw_status mw_coll_atlas_world(struct mw_coll_atlas *atlas,
                                   const struct mw_coll_row *row,
                                   struct mw_coll_world **out,
                                   struct mw_err *err);
/* Other corrections for all worlds made so far and later. */
void mw_coll_atlas_set_fit(struct mw_coll_atlas *atlas,
                           const struct mw_coll_fit *fit);

/* ---- fitting ---- */
/* What is left out together: a campaign, a whole file, or a machine's
 * operation with so many ranks. */
enum mw_coll_group { MW_COLL_BY_UNIT, MW_COLL_BY_FILE, MW_COLL_BY_SHAPE };
bool mw_coll_group_find(const char *name, enum mw_coll_group *out);
/* Name of a row's or knot's group; `out` of 160 bytes. */
void mw_coll_group_name(enum mw_coll_group by, const char *unit,
                        const char *machine, const char *op, int n_ranks,
                        char *out);

/* Knots and the inverse of their covariance. Memory grows with the square of
 * the knots, time with the cube (3,000 knots: 140 MB, some 10 s). */
struct mw_coll_learn;
/* From measured rows: medians of a campaign's rows at each power of two,
 * overheads of the harnesses first. */
struct mw_coll_learn *mw_coll_learn_rows(struct mw_coll_atlas *atlas,
                                         const struct mw_coll_rows *rows);
/* From a table: its knots and overheads. */
struct mw_coll_learn *mw_coll_learn_fit(const struct mw_coll_fit *fit);
void mw_coll_learn_free(struct mw_coll_learn *learn);
/* Knots with weights, fitted without the group of this name (NULL: on all);
 * overheads without its campaigns. Release with mw_coll_fit_release. */
void mw_coll_learn_table(const struct mw_coll_learn *learn,
                         enum mw_coll_group by, const char *without,
                         struct mw_coll_fit *out);
/* Writes coll_fit.csv, coll_harness.csv or coll_kernels.csv with its comment
 * head. */
enum mw_status mw_coll_fit_write(const struct mw_coll_fit *fit,
                                 const char *path, struct mw_err *err);
enum mw_status mw_coll_overhead_write(const struct mw_coll_fit *fit,
                                      const char *path, struct mw_err *err);
enum mw_status mw_coll_engine_write(const struct mw_coll_fit *fit,
                                    const char *path, struct mw_err *err);

/* ---- scoring ---- */
/* Inside one node or NVLink domain; over a network of a class, and at a
 * number of nodes, that other groups of the fit have (within a factor of
 * two); over one that they have not. */
enum mw_coll_class {
    MW_COLL_INSIDE,
    MW_COLL_NET_SEEN,
    MW_COLL_NET_UNSEEN,
    MW_COLL_ENGINE, /* an engine's kernels instead of NCCL */
    MW_COLL_CLASSES
};
const char *mw_coll_class_name(enum mw_coll_class cls);

/*
 * Predicted time of every row, NAN where there is none. learn NULL: with the
 * corrections that the atlas has; otherwise each row with the corrections
 * fitted without its group.
 */
void mw_coll_predict_rows(struct mw_coll_atlas *atlas,
                          const struct mw_coll_rows *rows,
                          enum mw_coll_model model,
                          const struct mw_coll_learn *learn,
                          enum mw_coll_group by, double *out_time_s);
/* Class of every row, as seen by a fit without the row's group. */
void mw_coll_classify(struct mw_coll_atlas *atlas,
                      const struct mw_coll_rows *rows,
                      const struct mw_coll_fit *fit, enum mw_coll_group by,
                      enum mw_coll_class *out);

/* |model - measured| / measured of some rows. */
struct mw_coll_error {
    size_t rows, big_rows; /* scored; of at least 1 MiB */
    double median, big_median;
};
/* One unit. */
struct mw_coll_score {
    char unit[64];
    int n_nodes;
    enum mw_coll_class cls; /* the least seen of its rows */
    struct mw_coll_error error;
};
size_t mw_coll_score_units(const struct mw_coll_rows *rows,
                           const enum mw_coll_class *cls, const double *time_s,
                           struct mw_coll_score **out); /* mw_free */
/* Rows of a class; medians over its units of their medians. All-to-all below
 * 64 KiB is left out of both (mw_coll_small_all_to_all). */
struct mw_coll_class_score {
    struct mw_coll_error rows, units;
};
void mw_coll_score_classes(const struct mw_coll_rows *rows,
                           const enum mw_coll_class *cls, const double *time_s,
                           struct mw_coll_class_score out[MW_COLL_CLASSES]);
/* All-to-all below 64 KiB: rows, and those predicted within a factor of 2. */
void mw_coll_small_all_to_all(const struct mw_coll_rows *rows,
                              const double *time_s, size_t *out_rows,
                              size_t *out_within);

/* ---- for the verb `validate` ---- */
/* Totals over files, a row per unit, classes. */
struct mw_coll_validation {
    size_t rows, predicted, skipped;
    double mape, median_ape, p90_ape, bias;
    size_t n_units;
    struct mw_coll_score *units;    /* mw_free, as the two below */
    struct mw_coll_score *left_out; /* with left_out: unit by unit */
    struct mw_coll_notice *notices;
    size_t n_notices;
    struct mw_coll_class_score cls[MW_COLL_CLASSES];
    struct mw_coll_class_score left_out_cls[MW_COLL_CLASSES];
    size_t small_rows, small_within; /* all-to-all below 64 KiB */
    size_t n_reasons;                /* why rows were skipped */
    struct {
        const char *why;
        size_t rows;
    } reasons[16];
};
/* True if the header of the file is that of a collective table. */
bool mw_coll_is_table(const char *path);
/*
 * Predicts every row of the files and compares, with the shipped corrections.
 * is_left_out: also with corrections fitted without each campaign in turn
 * (fit only; takes some 10 s). MW_EINPUT for a file that cannot be read.
 */
enum mw_status mw_coll_validate(const struct mw_hwdb *db,
                                const char *const *paths, size_t n_paths,
                                enum mw_coll_model model, bool is_left_out,
                                struct mw_coll_validation *out,
                                struct mw_err *err);
/* Totals, units and classes of predictions (NAN: none) of rows; left_out_s may
 * be NULL. */
void mw_coll_validation_fill(const struct mw_coll_rows *rows,
                             const enum mw_coll_class *cls,
                             const double *time_s, const double *left_out_s,
                             struct mw_coll_validation *out);
void mw_coll_validation_release(struct mw_coll_validation *v);

#endif
