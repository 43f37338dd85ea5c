/*
 * Rows that scatter by themselves, found from the measurements alone.
 *
 * A series is the rows of one job that differ in the micro-batch only. Its time
 * is close to a straight line: in 1 / micro-batch where there is no pipeline
 * (fewer, larger kernels), in the micro-batch where there is one (the bubble is
 * as long as pp - 1 of them). A series of three or more rows whose relative
 * residuals from the least-squares line exceed LIMIT (root mean square, with
 * the two degrees of freedom taken off) is noisy as a whole: nothing says which
 * of its rows is the odd one.
 */
#include "sim/validate/validate_int.h"

#include <math.h>
#include <string.h>

#define LIMIT 0.04

struct sums {
    double n, x, y, xx, xy;
};

static double x_of(const struct mw_validate_row *r)
{
    return strstr(r->layout, " pp1 ") != NULL ? 1 / r->micro_batch
                                              : r->micro_batch;
}

static bool is_of(const struct mw_validate_row *r, const char *series)
{
    return mw_validate_is_timed(r) && strcmp(r->series, series) == 0;
}

static bool scatters(const struct mw_validate *v, size_t first,
                     const char *series)
{
    struct sums s = {0};
    double squares = 0;

    for (size_t i = first; i < v->rows.n; i++) {
        const struct mw_validate_row *r = &v->rows.v[i];

        if (is_of(r, series)) {
            s.n++;
            s.x += x_of(r);
            s.y += r->measured_s;
            s.xx += x_of(r) * x_of(r);
            s.xy += x_of(r) * r->measured_s;
        }
    }
    double spread = s.n * s.xx - s.x * s.x;

    if (s.n < 3 || !(spread > 1e-9 * s.n * s.xx)) {
        return false;
    }
    double slope = (s.n * s.xy - s.x * s.y) / spread;
    double start = (s.y - slope * s.x) / s.n;

    for (size_t i = first; i < v->rows.n; i++) {
        const struct mw_validate_row *r = &v->rows.v[i];

        if (is_of(r, series)) {
            double error = (start + slope * x_of(r)) / r->measured_s - 1;

            squares += error * error;
        }
    }
    return sqrt(squares / (s.n - 2)) > LIMIT;
}

void mw_validate_mark_noisy(struct mw_validate *v, size_t first)
{
    for (size_t i = first; i < v->rows.n; i++) {
        struct mw_validate_row *r = &v->rows.v[i];

        if (mw_validate_is_timed(r) && !r->is_noisy && r->micro_batch > 0 &&
            scatters(v, first, r->series)) {
            for (size_t j = i; j < v->rows.n; j++) {
                v->rows.v[j].is_noisy |= is_of(&v->rows.v[j], r->series);
            }
        }
    }
}
