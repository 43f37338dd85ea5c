/*
 * Measured kernels as utilisation: the base time of a shape, where a shape
 * lies among the measured ones, and the ratio of time to base there (formulas
 * and source in measured.h).
 *
 * Waves: leaving one row out, products of at least 512 rows have a mean error
 * of 7.2 % without and 6.4 % with them (A100, fp16), 10.9 and 8.1 % (A40), 9.1
 * and 8.6 % (L40S); on Hopper and Blackwell, whose kernels are persistent,
 * nothing changes, so they have none. With 128 x 128 tiles alone the error
 * grows: libraries choose others where those would waste a wave.
 */
#include "hwdb/measured.h"

#include "hwdb/hwdb_int.h"

#include <ctype.h>
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { NEAREST = 4, GROUP = 8 };
enum { FP32, TF32, BF16, FP16, FP8, FP4 };

static int dtype_index(const char *dtype)
{
    for (int d = 0; d < MW_HW_DTYPES; d++) {
        if (mw_hw_casecmp(mw_hw_dtype_names[d], dtype) == 0) {
            return d;
        }
    }
    return FP32;
}

/* The dtype whose path the device takes for it. */
static int path_of(const struct mw_gpu *gpu, int dtype)
{
    static const int wider[MW_HW_DTYPES] = {FP32, FP32, FP16, TF32, BF16, FP8};
    while (dtype != FP32 && isnan(gpu->peak_flops[dtype])) {
        dtype = wider[dtype];
    }
    return dtype;
}

enum mw_kernel_form mw_kernel_form_of(const char *op)
{
    if (strstr(op, "gemm") != NULL) {
        return MW_KERNEL_PRODUCT;
    }
    return strncmp(op, "attention", 9) == 0 ? MW_KERNEL_ATTENTION
                                            : MW_KERNEL_STREAM;
}

/* ---- base -------------------------------------------------------------------
 */

double mw_kernel_flops(const char *op, const struct mw_kernel_shape *s)
{
    switch (mw_kernel_form_of(op)) {
    case MW_KERNEL_PRODUCT:
        return 2 * s->batch * s->m * s->n * s->k;
    case MW_KERNEL_ATTENTION:
        /* Q K^T and P V. One token sees the whole cache; of m = n tokens each
         * sees those before it and itself. */
        return 4 * s->batch * s->m * s->n * s->k *
               (s->m > 1 ? 0.5 + 0.5 / s->n : 1);
    case MW_KERNEL_STREAM:
        break;
    }
    return 0;
}

double mw_kernel_bytes(const char *op, const char *dtype,
                       const struct mw_kernel_shape *s)
{
    static const double width[MW_HW_DTYPES] = {4, 4, 2, 2, 1, 0.5};
    double el = width[dtype_index(dtype)];
    double out = el < 2 ? 2 : el; /* narrow formats are for operands */
    switch (mw_kernel_form_of(op)) {
    case MW_KERNEL_PRODUCT:
        return s->batch * (el * s->k * (s->m + s->n) + out * s->m * s->n);
    case MW_KERNEL_ATTENTION:
        /* q and the result; k and v, of which prefill has one head for
         * GROUP query heads, and decoding counts nothing else. */
        return s->batch * s->k *
               (2 * out * s->m + 2 * el * s->n / (s->m > 1 ? GROUP : 1));
    case MW_KERNEL_STREAM:
        break;
    }
    /* Two inputs and one output, or one of each. */
    bool has_two = strcmp(op, "activation") == 0 || strcmp(op, "add") == 0;
    return (has_two ? 3 : 2) * out * s->m * s->n;
}

double mw_kernel_waves(const struct mw_kernel_rates *rates,
                       const struct mw_kernel_shape *s)
{
    static const struct {
        double m, n, share;
    } tiles[] = {{256, 128, 1},   {128, 256, 1},   {128, 128, 0.95},
                 {128, 64, 0.85}, {64, 128, 0.85}, {64, 64, 0.7}};
    double best = DBL_MAX, sms = rates->wave_sms;
    if (rates->wave_sms <= 0) {
        return 1;
    }
    for (size_t i = 0; i < sizeof tiles / sizeof tiles[0]; i++) {
        double n_tiles =
            s->batch * ceil(s->m / tiles[i].m) * ceil(s->n / tiles[i].n);
        double done = ceil(n_tiles / sms) * sms * tiles[i].m * tiles[i].n;
        best = fmin(best, done / tiles[i].share);
    }
    return best / (s->batch * s->m * s->n);
}

static enum mw_status constant(const struct mw_hwdb *db, const char *name,
                               double *out, struct mw_err *err)
{
    const struct mw_constant *c;
    enum mw_status status = mw_hwdb_constant(db, name, &c, err);
    if (status == MW_OK) {
        *out = c->value;
    }
    return status;
}

/* NAME.ARCH, in the spelling of constants. */
static enum mw_status of_arch(const struct mw_hwdb *db, const char *name,
                              const struct mw_gpu *gpu, double *out)
{
    char key[64];
    int n = snprintf(key, sizeof key, "%s.%s", name,
                     gpu->arch != NULL ? gpu->arch : "");
    for (int i = 0; i < n && i < (int)sizeof key; i++) {
        key[i] = key[i] == ' ' ? '-' : (char)tolower((unsigned char)key[i]);
    }
    return constant(db, key, out, NULL);
}

static bool has_waves(const struct mw_hwdb *db, const struct mw_gpu *gpu)
{
    double is_so = 0;
    return gpu->n_sms > 0 && of_arch(db, "gemm_waves", gpu, &is_so) == MW_OK &&
           is_so > 0;
}

static enum mw_status layout_factor(const struct mw_hwdb *db,
                                    const struct mw_gpu *gpu, const char *pass,
                                    double *out, struct mw_err *err)
{
    const char *name = mw_hw_casecmp(pass, "B") == 0 ? "gemm_layout_factor.b"
                                                     : "gemm_layout_factor.w";
    return of_arch(db, name, gpu, out) == MW_OK ? MW_OK
                                                : constant(db, name, out, err);
}

enum mw_status mw_hwdb_kernel_rates(const struct mw_hwdb *db,
                                    const struct mw_gpu *gpu, const char *op,
                                    const char *pass, const char *dtype,
                                    struct mw_kernel_rates *out,
                                    struct mw_err *err)
{
    enum mw_kernel_form form = mw_kernel_form_of(op);
    int d = path_of(gpu, dtype_index(dtype));
    bool is_forward = mw_hw_casecmp(pass, "F") == 0;
    double share = 1, floor_s = 0;
    enum mw_status status = constant(db, "kernel_floor_s", &floor_s, err);
    if (status == MW_OK && form == MW_KERNEL_ATTENTION) {
        status = constant(db,
                          is_forward ? "flash_efficiency_forward"
                                     : "flash_efficiency_backward",
                          &share, err);
    } else if (status == MW_OK && form == MW_KERNEL_PRODUCT && !is_forward) {
        status = layout_factor(db, gpu, pass, &share, err);
        share = 1 / share;
    }
    if (status == MW_OK) {
        *out = (struct mw_kernel_rates){
            gpu->peak_flops[d] * gpu->gemm_efficiency[d] * share,
            gpu->mem_bw_Bps * gpu->mem_efficiency, floor_s,
            form == MW_KERNEL_PRODUCT && has_waves(db, gpu) ? gpu->n_sms : 0};
    }
    return status;
}

/* ---- ratio ------------------------------------------------------------------
 */

void mw_kernel_place(enum mw_kernel_form form, const struct mw_kernel_shape *s,
                     double out_x[3])
{
    double root = 0.5 * log(s->batch);
    switch (form) {
    case MW_KERNEL_PRODUCT:
        out_x[0] = log(s->m) + root;
        out_x[1] = log(s->n) + root;
        out_x[2] = log(s->k);
        break;
    case MW_KERNEL_ATTENTION:
        /* A chunk of m queries against n keys is as long as a square. */
        out_x[0] = 0.5 * (log(s->m) + log(s->n));
        out_x[1] = log(s->batch);
        out_x[2] = log(s->k);
        break;
    case MW_KERNEL_STREAM:
        out_x[0] = log(s->m) + log(s->n);
        out_x[1] = out_x[2] = 0;
        break;
    }
}

static double distance2(const double a[3], const double b[3])
{
    double d0 = a[0] - b[0], d1 = a[1] - b[1], d2 = a[2] - b[2];
    return d0 * d0 + d1 * d1 + d2 * d2;
}

struct neighbour {
    const struct mw_kernel_point *point;
    double distance2;
};

/* The nearest rows, nearest first; ties keep the order of the table. */
static size_t find_nearest(const struct mw_kernel_table *set, const double x[3],
                           struct neighbour near[NEAREST])
{
    size_t n = 0;
    for (size_t i = 0; i < set->n; i++) {
        double d = distance2(set->point[i].x, x);
        if (n == NEAREST && d >= near[NEAREST - 1].distance2) {
            continue;
        }
        size_t at = n < NEAREST ? n++ : NEAREST - 1;
        for (; at > 0 && d < near[at - 1].distance2; at--) {
            near[at] = near[at - 1];
        }
        near[at] = (struct neighbour){&set->point[i], d};
    }
    return n;
}

double mw_kernel_ratio(const struct mw_kernel_table *set, const double x[3],
                       struct mw_kernel_near *near)
{
    struct neighbour found[NEAREST] = {{NULL, 0}};
    size_t n = find_nearest(set, x, found);
    double sum = 0, weights = 0;
    MW_ASSERT(n > 0, "no rows of %zu", set->n);
    for (size_t i = 0; i < n; i++) {
        double weight = 1 / fmax(found[i].distance2, 1e-12);
        sum += weight * found[i].point->log_ratio;
        weights += weight;
    }
    if (near != NULL) {
        *near =
            (struct mw_kernel_near){found[0].point, sqrt(found[0].distance2)};
    }
    return exp(sum / weights);
}

bool mw_kernel_time(const struct mw_kernel_table *table,
                    const struct mw_kernel_rates *rates,
                    const struct mw_kernel_shape *shape, double flops,
                    double bytes, double *out_time_s,
                    struct mw_kernel_near *near)
{
    struct mw_kernel_near found;
    double x[3];
    if (table->n == 0 || !(shape->m >= 1) || !(shape->n >= 1) ||
        !(shape->k >= 1) || !(shape->batch >= 1)) {
        return false;
    }
    mw_kernel_place(table->form, shape, x);
    double ratio = mw_kernel_ratio(table, x, &found);
    if (found.distance > MW_KERNEL_REACH) {
        return false;
    }
    *out_time_s = ratio * mw_kernel_base_s(rates, shape, flops, bytes);
    if (near != NULL) {
        *near = found;
    }
    return true;
}
