/* Normal equations by Cholesky's factorisation; see the header. */
#include "hwdb/fit/fit_solve.h"

#include "base/mem.h"

#include <math.h>

static double huber_weight(double r)
{
    return fabs(r) <= MW_FIT_DELTA ? 1 : MW_FIT_DELTA / fabs(r);
}

/* a[p * p] becomes its lower factor. */
static bool factorise(double *a, size_t p)
{
    for (size_t i = 0; i < p; i++) {
        for (size_t j = 0; j <= i; j++) {
            double sum = a[i * p + j];

            for (size_t k = 0; k < j; k++) {
                sum -= a[i * p + k] * a[j * p + k];
            }
            if (i == j && !(sum > 0)) {
                return false;
            }
            a[i * p + j] = i == j ? sqrt(sum) : sum / a[j * p + j];
        }
    }
    return true;
}

static void substitute(const double *l, size_t p, double *b)
{
    for (size_t i = 0; i < p; i++) {
        for (size_t k = 0; k < i; k++) {
            b[i] -= l[i * p + k] * b[k];
        }
        b[i] /= l[i * p + i];
    }
    for (size_t i = p; i-- > 0;) {
        for (size_t k = i + 1; k < p; k++) {
            b[i] -= l[k * p + i] * b[k];
        }
        b[i] /= l[i * p + i];
    }
}

bool mw_fit_step(size_t n, size_t p, const double *r, const double *jacobian,
                 const double *weight, const double *x, const double *prior,
                 const double *sd, double *step)
{
    double *a = mw_calloc(p * p, sizeof *a);

    for (size_t k = 0; k < p; k++) {
        a[k * p + k] = 1 / (sd[k] * sd[k]);
        step[k] = (prior[k] - x[k]) / (sd[k] * sd[k]);
    }
    for (size_t i = 0; i < n; i++) {
        const double *row = jacobian + i * p;
        double w = weight[i] * huber_weight(r[i]);

        for (size_t k = 0; w > 0 && k < p; k++) {
            step[k] -= w * row[k] * r[i];
            for (size_t j = 0; j <= k; j++) {
                a[k * p + j] += w * row[k] * row[j];
            }
        }
    }
    bool is_regular = factorise(a, p);

    if (is_regular) {
        substitute(a, p, step);
    }
    mw_free(a);
    return is_regular;
}

bool mw_fit_step_within(const struct mw_fit_problem *q, double *step)
{
    const double held_sd = 1e-6, slack = 1e-9;
    double *prior = mw_calloc(2 * q->p, sizeof *prior), *sd = prior + q->p;
    bool is_regular = true, again = true;

    for (size_t k = 0; k < q->p; k++) {
        prior[k] = q->prior[k];
        sd[k] = q->sd[k];
    }
    while (is_regular && again) {
        again = false;
        is_regular = mw_fit_step(q->n, q->p, q->r, q->jacobian, q->weight, q->x,
                                 prior, sd, step);
        for (size_t k = 0; is_regular && k < q->p; k++) {
            double to = q->x[k] + step[k];
            double held = fmin(fmax(to, q->low[k]), q->high[k]);

            if (sd[k] > held_sd && fabs(to - held) > slack) {
                prior[k] = held;
                sd[k] = held_sd;
                again = true;
            }
        }
    }
    mw_free(prior);
    return is_regular;
}

double mw_fit_loss(size_t n, size_t p, const double *r, const double *weight,
                   const double *x, const double *prior, const double *sd)
{
    double sum = 0;

    for (size_t i = 0; i < n; i++) {
        double far = fabs(r[i]);

        sum += weight[i] * (far <= MW_FIT_DELTA
                                ? far * far
                                : MW_FIT_DELTA * (2 * far - MW_FIT_DELTA));
    }
    for (size_t k = 0; k < p; k++) {
        double z = (x[k] - prior[k]) / sd[k];

        sum += z * z;
    }
    return sum;
}
