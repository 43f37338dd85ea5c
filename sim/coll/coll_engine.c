/* Kernels of inference engines: rules, and fitting their constants. The model
 * is described in coll_engine.h. */
#include "sim/coll/coll_engine.h"

#include "base/stats.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

static const char *const names[MW_ENGINES] = {"none", "vllm", "sglang",
                                              "trtllm"};

const char *mw_coll_engine_name(enum mw_coll_engine engine)
{
    return names[engine];
}

bool mw_coll_engine_find(const char *name, enum mw_coll_engine *out)
{
    for (int i = MW_ENGINE_VLLM; i < MW_ENGINES; i++) {
        if (strcasecmp(name, names[i]) == 0) {
            *out = (enum mw_coll_engine)i;
            return true;
        }
    }
    return false;
}

enum mw_engine_kernel mw_engine_kernel_of(enum mw_coll_engine engine,
                                          int n_ranks, double bytes,
                                          bool has_nvlink)
{
    const double KiB = 1024, MiB = 1048576;
    if (n_ranks > 8 || !has_nvlink) {
        return MW_KERNEL_NCCL;
    }
    if (engine == MW_ENGINE_TRTLLM) {
        double limit = n_ranks <= 2 ? 16e6 : n_ranks <= 4 ? 1e6 : 500e3;
        return bytes < limit ? MW_KERNEL_ONE_SHOT : MW_KERNEL_NCCL;
    }
    double one_shot = n_ranks <= 4 ? 512 * KiB : 256 * KiB;
    return bytes >= 8 * MiB                   ? MW_KERNEL_NCCL
           : n_ranks == 2 || bytes < one_shot ? MW_KERNEL_ONE_SHOT
                                              : MW_KERNEL_TWO_SHOT;
}

double mw_engine_read_bytes(enum mw_engine_kernel kernel, int n_ranks,
                            double bytes)
{
    double n = n_ranks;
    return kernel == MW_KERNEL_ONE_SHOT ? (n - 1) * bytes
                                        : 2 * (n - 1) / n * bytes;
}

/* ---- fitting ---- */

/* Re-weighted least squares with 1 / sqrt(max(|error|, 2 %)), 30 rounds. */
struct mw_fit_line mw_coll_fit_line(const double *x, const double *t, size_t n,
                                    double least_alpha_s)
{
    double *w = mw_calloc(n + 1, sizeof *w), *e = mw_calloc(n + 1, sizeof *e);
    double alpha = 0, slope = 0;
    for (size_t i = 0; i < n; i++) {
        w[i] = 1 / t[i];
    }
    for (int round = 0; round < 30; round++) {
        double s = 0, sx = 0, sy = 0, sxx = 0, sxy = 0;
        for (size_t i = 0; i < n; i++) {
            double v = w[i] * w[i];
            s += v;
            sx += v * x[i];
            sy += v * t[i];
            sxx += v * x[i] * x[i];
            sxy += v * x[i] * t[i];
        }
        double det = s * sxx - sx * sx;
        slope = det > 0 ? (s * sxy - sx * sy) / det : 0;
        slope = slope > 1e-15 ? slope : 1e-15;
        alpha = (sy - slope * sx) / s;
        alpha = alpha > least_alpha_s ? alpha : least_alpha_s;
        for (size_t i = 0; i < n; i++) {
            e[i] = fabs((alpha + slope * x[i]) / t[i] - 1);
            w[i] = 1 / t[i] / sqrt(e[i] > .02 ? e[i] : .02);
        }
    }
    struct mw_fit_line l = {alpha, 1 / slope, mw_median(e, n)};
    mw_free(w);
    mw_free(e);
    return l;
}

static bool is_wanted(const struct mw_engine_sample *s, bool is_trtllm,
                      const char *cls)
{
    return (s->engine == MW_ENGINE_TRTLLM) == is_trtllm &&
           strcmp(s->cls, cls) == 0;
}

/* Points of one kernel; false with fewer than 8. */
static bool fit_kernel(const struct mw_engine_sample *s, size_t n,
                       bool is_trtllm, const char *cls,
                       enum mw_engine_kernel kernel, struct mw_fit_line *out)
{
    double *x = mw_calloc(n + 1, sizeof *x), *t = mw_calloc(n + 1, sizeof *t);
    size_t k = 0;
    for (size_t i = 0; i < n; i++) {
        if (is_wanted(&s[i], is_trtllm, cls) && !s[i].is_eager &&
            mw_engine_kernel_of(s[i].engine, s[i].n_ranks, s[i].bytes,
                                s[i].has_nvlink) == kernel) {
            x[k] = mw_engine_read_bytes(kernel, s[i].n_ranks, s[i].bytes);
            t[k++] = s[i].time_s;
        }
    }
    if (k >= 8) {
        *out = mw_coll_fit_line(x, t, k, .2e-6);
    }
    mw_free(x);
    mw_free(t);
    return k >= 8;
}

static double graph_s(const struct mw_engine_row *row,
                      const struct mw_engine_sample *s,
                      enum mw_engine_kernel kernel)
{
    double read = mw_engine_read_bytes(kernel, s->n_ranks, s->bytes);
    return kernel == MW_KERNEL_ONE_SHOT
               ? row->one_alpha_s + read / row->one_Bps
               : row->two_alpha_s + read / row->two_Bps;
}

/* Launch: the small messages; copy: what is missing where the kernel is
 * longer than a launch. */
static void fit_eager(const struct mw_engine_sample *s, size_t n,
                      struct mw_engine_row *row)
{
    double *launch = mw_calloc(n + 1, sizeof *launch);
    double *copy = mw_calloc(n + 1, sizeof *copy);
    size_t k = 0, c = 0;
    for (size_t i = 0; i < n; i++) {
        if (!is_wanted(&s[i], row->is_trtllm, row->cls) || !s[i].is_eager) {
            continue;
        }
        enum mw_engine_kernel kernel = mw_engine_kernel_of(
            s[i].engine, s[i].n_ranks, s[i].bytes, s[i].has_nvlink);
        if (s[i].bytes <= 65536) {
            launch[k++] = s[i].time_s;
        } else if (s[i].bytes >= 2097152 && kernel != MW_KERNEL_NCCL &&
                   (kernel == MW_KERNEL_ONE_SHOT || row->two_Bps > 0)) {
            double moved_s = 2 * s[i].bytes / s[i].memory_Bps;
            copy[c++] =
                fmax(0, s[i].time_s - moved_s - graph_s(row, &s[i], kernel));
        }
    }
    row->launch_s = k ? mw_median(launch, k) : 0;
    row->copy_s = c ? mw_median(copy, c) : 0;
    mw_free(launch);
    mw_free(copy);
}

bool mw_engine_fit(const struct mw_engine_sample *samples, size_t n,
                   bool is_trtllm, const char *cls, struct mw_engine_row *out)
{
    struct mw_fit_line one = {0, 0, 0}, two = {0, 0, 0};
    struct mw_engine_row row = {.is_trtllm = is_trtllm, .is_fitted = true};
    snprintf(row.cls, sizeof row.cls, "%s", cls);
    for (size_t i = 0; i < n; i++) {
        row.n_points += is_wanted(&samples[i], is_trtllm, cls);
    }
    if (row.n_points == 0) {
        return false;
    }
    fit_kernel(samples, n, is_trtllm, cls, MW_KERNEL_ONE_SHOT, &one);
    fit_kernel(samples, n, is_trtllm, cls, MW_KERNEL_TWO_SHOT, &two);
    row.one_alpha_s = one.alpha_s;
    row.one_Bps = one.Bps;
    row.two_alpha_s = two.alpha_s;
    row.two_Bps = two.Bps;
    row.error = fmax(one.error, two.error);
    fit_eager(samples, n, &row);
    *out = row;
    return true;
}

bool mw_engine_row_find(const struct mw_engine_row *rows, size_t n,
                        bool is_trtllm, const char *cls,
                        struct mw_engine_row *out)
{
    struct mw_engine_row mean = {.is_trtllm = is_trtllm};
    double logs[4] = {0}, n_one = 0, n_two = 0;
    for (size_t i = 0; i < n; i++) {
        const struct mw_engine_row *r = &rows[i];
        if (r->is_trtllm != is_trtllm) {
            continue;
        }
        if (strcmp(r->cls, cls) == 0) {
            *out = *r;
            return true;
        }
        if (r->one_Bps > 0 && !strstr(r->cls, ".pcie")) {
            logs[0] += log(r->one_alpha_s);
            logs[1] += log(r->one_Bps);
            n_one++;
        }
        if (r->two_Bps > 0) {
            logs[2] += log(r->two_alpha_s);
            logs[3] += log(r->two_Bps);
            n_two++;
        }
    }
    if (n_one == 0 || strstr(cls, ".pcie")) {
        return false;
    }
    snprintf(mean.cls, sizeof mean.cls, "%s", cls);
    mean.one_alpha_s = exp(logs[0] / n_one);
    mean.one_Bps = exp(logs[1] / n_one);
    mean.two_alpha_s = n_two > 0 ? exp(logs[2] / n_two) : 0;
    mean.two_Bps = n_two > 0 ? exp(logs[3] / n_two) : 0;
    *out = mean;
    return true;
}
