/*
 * One job in several releases of a framework. Tables that grow with each
 * release (NeMo, Megatron-Bridge) print the same run again and again; the
 * newest is scored. How far the others lie from it is what a prediction that
 * does not know the release can be wrong by at the least:
 *
 *   difference = |step time of the older / of the newest - 1|
 *
 * of the same column of both rows (a time, or a rate, which needs no FLOPs as
 * the job is one). Layouts may change with a release; pairs of one layout are
 * counted apart.
 */
#include "sim/validate/validate_int.h"

#include "base/stats.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const double FAR = 0.05; /* what counts as another time */

/* The dotted number of a framework's name: "NeMo 24.07" -> {24, 7}. */
static void release_of(const char *framework, long out[4])
{
    const char *at = framework + strcspn(framework, "0123456789");

    for (int i = 0; i < 4; i++) {
        char *end;

        out[i] = strtol(at, &end, 10);
        at = *end == '.' ? end + 1 : "";
    }
}

static bool same_number(double a, double b)
{
    return (isnan(a) && isnan(b)) || a == b;
}

/* Ways of scaling ("fp8-cs", "mxfp8") are one precision here, as they are in
 * the cost model. */
static bool same_dtype(const char *a, const char *b)
{
    static const char *const words[] = {"fp4", "fp8", "bf16", "fp16"};

    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        if (mw_text_has(a, words[i]) != mw_text_has(b, words[i])) {
            return false;
        }
    }
    return true;
}

/* The same job; layouts change with releases. */
static bool same_run(const struct mw_measured *a, const struct mw_measured *b)
{
    size_t n = strcspn(a->framework, " 0123456789");
    const double x[] = {a->seq, a->global_batch, a->gpus, a->layers};
    const double y[] = {b->seq, b->global_batch, b->gpus, b->layers};

    for (size_t i = 0; i < sizeof x / sizeof x[0]; i++) {
        if (!same_number(x[i], y[i])) {
            return false;
        }
    }
    return strcmp(a->model, b->model) == 0 && strcmp(a->gpu, b->gpu) == 0 &&
           same_dtype(a->dtype, b->dtype) && strcmp(a->kind, b->kind) == 0 &&
           strncmp(a->framework, b->framework, n) == 0;
}

/* Is x a later release than y? */
static bool is_later(const struct mw_measured *x, const struct mw_measured *y)
{
    long a[4], b[4];

    release_of(x->framework, a);
    release_of(y->framework, b);
    for (int k = 0; k < 4; k++) {
        if (a[k] != b[k]) {
            return a[k] > b[k];
        }
    }
    return false;
}

size_t mw_case_newest_release(const struct mw_measured *all, size_t n, size_t i)
{
    size_t newest = i;

    if (!mw_case_is_core(&all[i])) {
        return n;
    }
    for (size_t j = 0; j < n; j++) {
        if (same_run(&all[i], &all[j]) && is_later(&all[j], &all[newest])) {
            newest = j;
        }
    }
    return newest == i ? n : newest;
}

/* Step time of a over that of b, by the first column that both print; 0 when
 * there is none. */
static double time_ratio(const struct mw_measured *a,
                         const struct mw_measured *b)
{
    if (a->step_time_s > 0 && b->step_time_s > 0) {
        return a->step_time_s / b->step_time_s;
    }
    if (a->tokens_per_s_per_gpu > 0 && b->tokens_per_s_per_gpu > 0) {
        return b->tokens_per_s_per_gpu / a->tokens_per_s_per_gpu;
    }
    if (a->samples_per_s > 0 && b->samples_per_s > 0) {
        return b->samples_per_s / a->samples_per_s;
    }
    if (a->tflops_per_gpu > 0 && b->tflops_per_gpu > 0 &&
        strcmp(a->tflops_def, b->tflops_def) == 0) {
        return b->tflops_per_gpu / a->tflops_per_gpu;
    }
    return 0;
}

static bool same_layout(const struct mw_measured *a,
                        const struct mw_measured *b)
{
    const double x[] = {a->tp, a->pp, a->vpp,         a->dp,
                        a->cp, a->ep, a->micro_batch, a->grad_accum};
    const double y[] = {b->tp, b->pp, b->vpp,         b->dp,
                        b->cp, b->ep, b->micro_batch, b->grad_accum};

    for (size_t i = 0; i < sizeof x / sizeof x[0]; i++) {
        if (!same_number(x[i], y[i])) {
            return false;
        }
    }
    return strcmp(a->dtype, b->dtype) == 0 &&
           strcmp(a->recompute, b->recompute) == 0;
}

void mw_validate_note_release(struct mw_validate *v, const char *file,
                              const struct mw_measured *older,
                              const struct mw_measured *newest)
{
    double ratio = time_ratio(older, newest);

    if (ratio > 0) {
        struct mw_release_pair pair = {file, fabs(ratio - 1),
                                       same_layout(older, newest)};

        mw_array_push(&v->releases, pair);
    }
}

void mw_release_floor(const struct mw_validate *v, const char *file,
                      bool one_layout, struct mw_release_floor *out)
{
    double *difference = mw_calloc(v->releases.n + 1, sizeof *difference);
    size_t n = 0, far = 0;

    for (size_t i = 0; i < v->releases.n; i++) {
        const struct mw_release_pair *p = &v->releases.v[i];

        if ((file == NULL || strcmp(p->file, file) == 0) &&
            (!one_layout || p->is_same_layout)) {
            far += p->difference > FAR;
            difference[n++] = p->difference;
        }
    }
    *out = (struct mw_release_floor){.runs = n,
                                     .median = mw_median(difference, n),
                                     .p90 = mw_quantile(difference, n, 0.9),
                                     .far = n > 0 ? (double)far / (double)n
                                                  : (double)NAN};
    mw_free(difference);
}
