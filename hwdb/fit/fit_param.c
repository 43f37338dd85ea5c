/* Parameters of a fit; see the header. */
#include "hwdb/fit/fit_param.h"

#include <math.h>
#include <string.h>

double mw_fit_clamp(const struct mw_fit_param *param, double x)
{
    return fmin(fmax(x, log(param->least)), log(param->most));
}

void mw_fit_params_set(struct mw_hwdb *db, const struct mw_fit_param *param,
                       size_t p, const double *x)
{
    for (size_t k = 0; k < p; k++) {
        const struct mw_constant *row;

        if (mw_hwdb_constant(db, param[k].name, &row, NULL) == MW_OK) {
            ((struct mw_constant *)row)->value =
                exp(mw_fit_clamp(&param[k], x[k]));
        }
    }
}

enum mw_status mw_fit_params_check(const struct mw_hwdb *db,
                                   const struct mw_fit_param *param, size_t p,
                                   struct mw_err *err)
{
    enum mw_status status = MW_OK;

    for (size_t k = 0; status == MW_OK && k < p; k++) {
        const struct mw_constant *row;

        status = mw_hwdb_constant(db, param[k].name, &row, err);
    }
    return status;
}

/* ---- results ---------------------------------------------------------------
 */
double mw_fitted_grip(const struct mw_fitted *f, size_t k)
{
    double grip = 0, sd = f->param[k].sd;

    for (size_t i = 0; i < f->n; i++) {
        double slope = f->jacobian[i * f->p + k];

        grip += f->weight[i] * slope * slope;
    }
    return grip * sd * sd;
}

void mw_fitted_print(const struct mw_fitted *f)
{
    for (size_t k = 0; k < f->p; k++) {
        printf("%-44s %10.4g  prior %10.4g  data/prior %8.2f\n",
               f->param[k].name, exp(f->x[k]), f->param[k].prior,
               mw_fitted_grip(f, k));
    }
}

void mw_fitted_doc(const struct mw_fitted *f, FILE *out)
{
    fprintf(out, "| constant | fitted | prior | weight of the data |\n"
                 "|---|--:|--:|--:|\n");
    for (size_t k = 0; k < f->p; k++) {
        fprintf(out, "| `%s` | %.4g | %.4g | %.1f |\n", f->param[k].name,
                exp(f->x[k]), f->param[k].prior, mw_fitted_grip(f, k));
    }
}

/* ---- constants.csv ---------------------------------------------------------
 */
enum { NAME, VALUE, UNIT, SOURCE, DATE, CONFIDENCE, NOTE, N_CELLS };

/* Lengths of the row's cells, quotes included; each has a comma or the end
 * behind it. */
static bool split(const char *line, size_t len, size_t cell[N_CELLS])
{
    size_t n = 0, begin = 0;
    bool is_quoted = false;

    for (size_t i = 0; i <= len && n < N_CELLS; i++) {
        is_quoted ^= i < len && line[i] == '"';
        if (i == len || (line[i] == ',' && !is_quoted && n + 1 < N_CELLS)) {
            cell[n++] = i - begin;
            begin = i + 1;
        }
    }
    return n == N_CELLS;
}

static size_t index_of(const struct mw_fitted *f, const char *name, size_t len)
{
    size_t k = 0;

    while (k < f->p && (strlen(f->param[k].name) != len ||
                        strncmp(f->param[k].name, name, len) != 0)) {
        k++;
    }
    return k;
}

static void write_source(const struct mw_fitted *f, bool is_decided, FILE *out)
{
    if (is_decided) {
        fprintf(out, "\"%s over %s (docs/accuracy.md)\"", f->program, f->data);
    } else {
        fprintf(out, "\"prior of %s: no %s decides (docs/accuracy.md)\"",
                f->program, f->datum);
    }
}

bool mw_fitted_write_line(const struct mw_fitted *f, const char *line,
                          size_t len, FILE *out)
{
    size_t cell[N_CELLS], k;

    if (!split(line, len, cell) ||
        (k = index_of(f, line, cell[NAME])) == f->p) {
        return false;
    }
    bool is_decided = mw_fitted_grip(f, k) >= 1;
    const char *at = line;

    for (int c = 0; c < N_CELLS; c++) {
        if (c == VALUE) {
            fprintf(out, "%.4g", exp(f->x[k]));
        } else if (c == SOURCE) {
            write_source(f, is_decided, out);
        } else if (c == CONFIDENCE) {
            fputc(is_decided ? 'M' : 'L', out);
        } else {
            fwrite(at, 1, cell[c], out);
        }
        fputs(c < NOTE ? "," : "", out);
        at += cell[c] + 1;
    }
    return true;
}
