/* Loads of experts from a CSV: see expert_loads.h. */
#include "cli/expert_loads.h"

#include "base/csv.h"

#include <stddef.h>

/* A row of the file: experts in their order. */
struct load_row {
    double load;
};
static const struct mw_csv_field fields[] = {
    {.name = "load",
     .type = MW_C_NUM,
     .offset = offsetof(struct load_row, load),
     .required = true},
    {.name = NULL}};

static enum mw_status check_loads(const struct mw_csv *csv, const double *load,
                                  struct mw_err *err)
{
    double sum = 0;

    for (size_t e = 0; e < csv->n_rows; e++) {
        if (load[e] < 0) {
            return mw_csv_fail(csv, e, mw_csv_col(csv, "load"), err,
                               "a load is not below 0");
        }
        sum += load[e];
    }
    return sum > 0 ? MW_OK
                   : mw_fail(err, MW_EINPUT, "%s: no expert has any load",
                             csv->file);
}

enum mw_status mw_cli_expert_loads(const char *path, int n_experts,
                                   struct mw_arena *arena, const double **out,
                                   struct mw_err *err)
{
    struct mw_csv csv;
    void *rows = NULL;
    enum mw_status status = mw_csv_load(path, arena, &csv, err);

    if (status == MW_OK) {
        status = mw_csv_bind(&csv, fields, sizeof(struct load_row), true, arena,
                             &rows, err);
    }
    if (status == MW_OK && csv.n_rows != (size_t)n_experts) {
        status =
            mw_fail(err, MW_EINPUT, "%s: loads of %zu experts but there are %d",
                    path, csv.n_rows, n_experts);
    }
    if (status == MW_OK) {
        double *load = mw_arena_alloc(arena, (size_t)n_experts, sizeof *load);
        for (int e = 0; e < n_experts; e++) {
            load[e] = ((struct load_row *)rows)[e].load;
        }
        *out = load;
        status = check_loads(&csv, load, err);
    }
    return status;
}
