/*
 * How far predictions were off under each training stack and on each device,
 * with the row's cell left out of the fit: what a planner must allow for when
 * it compares plans priced as that stack (mw_hwdb_model_error). Groups by file,
 * which docs/accuracy.md shows, answer another question: which table.
 */
#include "hwdb/fit/stack_errors.h"

#include "base/stats.h"
#include "sim/cost/cost.h"

#include <math.h>
#include <string.h>

static const struct mw_validate_row *row_of(const struct mw_fit *f, size_t i)
{
    return &f->v->rows.v[f->row[i]];
}

/* NAME or NAME-WORD; NULL: any. */
static bool is_of(const char *stack, const char *of)
{
    size_t n = of != NULL ? strlen(of) : 0;

    return of == NULL || (strncmp(stack, of, n) == 0 &&
                          (stack[n] == '\0' || stack[n] == '-'));
}

/* Writes the row of a stack and device (NULL: all); nothing without figures. */
static void write_group(const struct mw_fit *f, const char *stack,
                        const char *device, FILE *out)
{
    double *e = mw_calloc(f->n + 1, sizeof *e);
    double bias = 0;
    size_t n = 0;

    for (size_t i = 0; i < f->n; i++) {
        const struct mw_validate_row *r = row_of(f, i);

        if (is_of(r->stack, stack) &&
            (device == NULL || strcmp(r->device, device) == 0)) {
            e[n++] = fabs(exp(f->left_out[i]) - 1);
            bias += exp(f->left_out[i]) - 1;
        }
    }
    if (n > 0) {
        fprintf(out, "stacks,\"%s%s%s\",%zu,%.4f,%.4f,%.4f,%.4f\n",
                stack != NULL ? stack : "all", device != NULL ? ", " : "",
                device != NULL ? device : "", n, mw_median(e, n),
                mw_quantile(e, n, 0.9), mw_quantile(e, n, 0.99),
                bias / (double)n);
    }
    mw_free(e);
}

void mw_fit_write_stack_errors(const struct mw_fit *f, FILE *out)
{
    write_group(f, NULL, NULL, out);
    for (size_t k = 0; mw_stack_name(k) != NULL; k++) {
        const char *stack = mw_stack_name(k);

        write_group(f, stack, NULL, out);
        for (size_t i = 0; i < mw_hwdb_gpu_count(f->db); i++) {
            write_group(f, stack, mw_hwdb_gpu_at(f->db, i)->slug, out);
        }
    }
}
