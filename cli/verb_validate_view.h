/* How `validate` shows errors: tables for people, or one JSON object. */
#ifndef MW_CLI_VERB_VALIDATE_VIEW_H
#define MW_CLI_VERB_VALIDATE_VIEW_H

#include "cli/cli.h"

#include "sim/validate/validate.h"

void mw_validate_view_print(const struct mw_validate *v, bool as_json,
                            bool all_rows);

/* What `--max-mape` looks at. */
struct mw_validate_gate {
    size_t rows, predicted;
    double mape;
};
struct mw_validate_coll_opts {
    const char *const *files;
    int n_files;
    const char *model_name; /* NULL: fit */
    bool is_left_out;       /* also fitted without each unit in turn */
    bool is_json;
};
/*
 * Tables of measured collectives: predicts and prints. MW_EUSAGE for an
 * unknown model, MW_EINPUT for a bad file.
 */
enum mw_status mw_validate_coll(const struct mw_hwdb *db,
                                const struct mw_validate_coll_opts *opts,
                                struct mw_validate_gate *out_gate,
                                struct mw_err *err);

/* validate_memory_view.c: tables, and parts of the JSON object. */
void mw_validate_memory_rows(const struct mw_validate *v);
void mw_validate_memory_print(const struct mw_validate *v);
json_t *mw_validate_memory_json(const struct mw_validate *v);
json_t *mw_validate_fits_json(const struct mw_validate_group *g);
json_t *mw_validate_row_memory_json(const struct mw_validate_row *r);
/* validate_worst.c: the worst rows and where their time goes, releases, and
 * predicted against measured as a picture (errors of plots/plot.h). */
void mw_validate_worst_print(const struct mw_validate *v);
json_t *mw_validate_worst_json(const struct mw_validate *v);
json_t *mw_validate_breakdown_json(const struct mw_validate_row *r);
void mw_validate_releases_print(const struct mw_validate *v);
json_t *mw_validate_releases_json(const struct mw_validate *v);
enum mw_status mw_validate_plot(const struct mw_validate *v, const char *path,
                                struct mw_err *err);
/* validate_regret.c: how well the predictions choose. */
void mw_validate_regret_print(const struct mw_validate *v);
json_t *mw_validate_regret_json(const struct mw_validate *v);

#endif
