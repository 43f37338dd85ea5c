/* Normal equations by Cholesky's factorisation; see the header. */
#include "hwdb/fit/fit_solve.h"

#include "base/mem.h"

#include <math.h>
#include <string.h>

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

/* What is expected of constant k: off its prior by `slope` of what its base is
 * off its own, with 1 / variance `weight`. */
struct expected {
    size_t base; /* p: none */
    double slope, weight;
};

static struct expected expect(const struct mw_fit_problem *q, size_t k)
{
    size_t base = q->base != NULL ? q->base[k] : q->p;
    double own = base < q->p ? 1 - MW_FIT_KIN * MW_FIT_KIN : 1;

    return (struct expected){
        base, base < q->p ? MW_FIT_KIN * q->sd[k] / q->sd[base] : 0,
        1 / (q->sd[k] * q->sd[k] * own)};
}

static double off_expected(const struct mw_fit_problem *q, const double *x,
                           size_t k, const struct expected *e)
{
    return x[k] - q->prior[k] -
           (e->base < q->p ? e->slope * (x[e->base] - q->prior[e->base]) : 0);
}

/* The normal equations a step = b; of a, [p * p], the lower triangle. */
static void add_priors(const struct mw_fit_problem *q, double *a, double *b)
{
    size_t p = q->p;

    for (size_t k = 0; k < p; k++) {
        const struct expected e = expect(q, k);
        double pull = e.weight * off_expected(q, q->x, k, &e);

        a[k * p + k] += e.weight;
        b[k] -= pull;
        if (e.base < p) {
            a[e.base * p + e.base] += e.weight * e.slope * e.slope;
            a[k > e.base ? k * p + e.base : e.base * p + k] -=
                e.weight * e.slope;
            b[e.base] += e.slope * pull;
        }
    }
}

static void add_data(const struct mw_fit_problem *q, double *a, double *b)
{
    size_t p = q->p;

    for (size_t i = 0; i < q->n; i++) {
        const double *row = q->jacobian + i * p;
        double w = q->weight[i] * huber_weight(q->r[i]);

        for (size_t k = 0; w > 0 && k < p; k++) {
            b[k] -= w * row[k] * q->r[i];
            for (size_t j = 0; j <= k; j++) {
                a[k * p + j] += w * row[k] * row[j];
            }
        }
    }
}

/* Takes constant k, whose step is known, out of the equations. */
static void hold(size_t p, double *a, double *b, size_t k, double step)
{
    for (size_t i = 0; i < p; i++) {
        double *at = i < k ? &a[k * p + i] : &a[i * p + k];

        b[i] = i == k ? step : b[i] - *at * step;
        *at = i == k;
    }
}

/* step[k] of a held constant is given. */
static bool solve(const struct mw_fit_problem *q, const bool *is_held,
                  double *step)
{
    double *a = mw_calloc(q->p * q->p + q->p, sizeof *a);
    double *b = a + q->p * q->p;

    add_priors(q, a, b);
    add_data(q, a, b);
    for (size_t k = 0; is_held != NULL && k < q->p; k++) {
        if (is_held[k]) {
            hold(q->p, a, b, k, step[k]);
        }
    }
    bool is_regular = factorise(a, q->p);

    if (is_regular) {
        substitute(a, q->p, b);
        memcpy(step, b, q->p * sizeof *b);
    }
    mw_free(a);
    return is_regular;
}

bool mw_fit_step(size_t n, size_t p, const double *r, const double *jacobian,
                 const double *weight, const double *x, const double *prior,
                 const double *sd, double *step)
{
    return solve(&(struct mw_fit_problem){.n = n,
                                          .p = p,
                                          .r = r,
                                          .jacobian = jacobian,
                                          .weight = weight,
                                          .x = x,
                                          .prior = prior,
                                          .sd = sd},
                 NULL, step);
}

bool mw_fit_step_within(const struct mw_fit_problem *q, double *step)
{
    const double slack = 1e-9;
    bool *is_held = mw_calloc(q->p, sizeof *is_held);
    bool is_regular = true, again = true;

    while (is_regular && again) {
        again = false;
        is_regular = solve(q, is_held, step);
        for (size_t k = 0; is_regular && k < q->p; k++) {
            double to = q->x[k] + step[k];
            double held = fmin(fmax(to, q->low[k]), q->high[k]);

            if (!is_held[k] && fabs(to - held) > slack) {
                step[k] = held - q->x[k];
                is_held[k] = again = true;
            }
        }
    }
    mw_free(is_held);
    return is_regular;
}

double mw_fit_loss_of(const struct mw_fit_problem *q, const double *r,
                      const double *x)
{
    double sum = 0;

    for (size_t i = 0; i < q->n; i++) {
        double far = fabs(r[i]);

        sum += q->weight[i] * (far <= MW_FIT_DELTA
                                   ? far * far
                                   : MW_FIT_DELTA * (2 * far - MW_FIT_DELTA));
    }
    for (size_t k = 0; k < q->p; k++) {
        const struct expected e = expect(q, k);
        double off = off_expected(q, x, k, &e);

        sum += e.weight * off * off;
    }
    return sum;
}

double mw_fit_loss(size_t n, size_t p, const double *r, const double *weight,
                   const double *x, const double *prior, const double *sd)
{
    return mw_fit_loss_of(
        &(struct mw_fit_problem){
            .n = n, .p = p, .weight = weight, .prior = prior, .sd = sd},
        r, x);
}
