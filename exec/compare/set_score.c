/* The figures of a set: see set.h for the formulas. */
#include "exec/compare/set.h"

#include "base/stats.h"

#include <math.h>
#include <string.h>

double mw_set_plan_error(const struct mw_set_plan *p)
{
    return p->predicted_s / p->measured_s - 1;
}

static void score_errors(const struct mw_set_plan *plans, int n,
                         struct mw_set_score *out)
{
    double *size = mw_calloc((size_t)n + 1, sizeof *size);

    for (int i = 0; i < n; i++) {
        double error = mw_set_plan_error(&plans[i]);

        size[i] = fabs(error);
        out->bias += error / n;
        out->mean_error += size[i] / n;
        out->n_past += size[i] > MW_SET_PAST;
        if (out->worst < 0 ||
            size[i] > fabs(mw_set_plan_error(&plans[out->worst]))) {
            out->worst = i;
        }
    }
    out->median_error = mw_median(size, (size_t)n);
    mw_free(size);
}

static bool counts(const struct mw_set_plan *fast,
                   const struct mw_set_plan *slow)
{
    double apart = slow->measured_s - fast->measured_s;

    return strcmp(fast->scenario, slow->scenario) == 0 &&
           apart > MW_SET_APART * fast->measured_s &&
           apart > MW_SET_SPREADS * hypot(fast->spread_s, slow->spread_s);
}

static void score_pair(const struct mw_set_plan *plans, int a, int b,
                       struct mw_set_score *out)
{
    bool is_a_fast = plans[a].measured_s <= plans[b].measured_s;
    struct mw_set_pair pair = {is_a_fast ? a : b, is_a_fast ? b : a, false};

    if (!counts(&plans[pair.a], &plans[pair.b])) {
        return;
    }
    pair.is_right = plans[pair.a].predicted_s < plans[pair.b].predicted_s;
    out->n_pairs++;
    out->n_right += pair.is_right;
    if (!pair.is_right) {
        mw_array_push(&out->wrong, pair);
    }
}

static void score_kinds(const struct mw_set_plan *plans, int n,
                        struct mw_set_score *out)
{
    for (int i = 0; i < n; i++) {
        const struct mw_comparison *c = &plans[i].comparison;

        for (int k = 0; k < MW_SPAN_KIND_COUNT; k++) {
            const struct mw_compare_term *t = &c->by_kind[k];
            double d = mw_compare_difference_s(t) / c->step.measured_s;

            out->kind[k].bias += d / n;
            out->kind[k].error += fabs(d) / n;
            out->kind[k].share += t->measured_s / c->step.measured_s / n;
        }
    }
}

void mw_set_score(const struct mw_set_plan *plans, int n,
                  struct mw_set_score *out)
{
    *out = (struct mw_set_score){.n_plans = n, .worst = -1};
    score_errors(plans, n, out);
    for (int a = 0; a < n; a++) {
        for (int b = a + 1; b < n; b++) {
            score_pair(plans, a, b, out);
        }
    }
    out->order_rate =
        out->n_pairs > 0 ? (double)out->n_right / out->n_pairs : (double)NAN;
    score_kinds(plans, n, out);
}

void mw_set_score_release(struct mw_set_score *s)
{
    mw_array_release(&s->wrong);
}

const char *mw_set_score_lacks(const struct mw_set_score *s,
                               char buf[MW_SET_TEXT_MAX])
{
    if (!(s->mean_error <= MW_SET_MEAN)) {
        snprintf(buf, MW_SET_TEXT_MAX,
                 "the mean error of %.1f %% is past %g %%", 100 * s->mean_error,
                 100 * MW_SET_MEAN);
        return buf;
    }
    if (s->n_past > MW_SET_PAST_RATE * s->n_plans) {
        snprintf(buf, MW_SET_TEXT_MAX,
                 "%d of %d plans are off by more than %g %%; one in twenty may "
                 "be",
                 s->n_past, s->n_plans, 100 * MW_SET_PAST);
        return buf;
    }
    if (s->n_pairs > 0 && !(s->order_rate >= MW_SET_ORDER)) {
        snprintf(buf, MW_SET_TEXT_MAX,
                 "%d of %d pairs are ordered right; %g %% should be",
                 s->n_right, s->n_pairs, 100 * MW_SET_ORDER);
        return buf;
    }
    return NULL;
}
