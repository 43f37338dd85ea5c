/*
 * Measured kernels and communication curves, sorted so that the rows of one
 * (device, op, pass, dtype) or (system, op, ranks) lie together and are found
 * by bisection. Devices and systems are written as their slugs, so that an
 * overlay may use any alias.
 */
#include "hwdb/hwdb_int.h"

#include <stdlib.h>
#include <string.h>

static int int_cmp(int64_t a, int64_t b)
{
    return a < b ? -1 : a > b;
}

static int kernel_group_cmp(const struct mw_kernel_row *x,
                            const struct mw_kernel_row *y)
{
    int c = mw_hw_casecmp(x->device, y->device);
    c = c != 0 ? c : mw_hw_casecmp(x->op, y->op);
    c = c != 0 ? c : mw_hw_casecmp(x->pass, y->pass);
    return c != 0 ? c : mw_hw_casecmp(x->dtype, y->dtype);
}

static int kernel_cmp(const void *a, const void *b)
{
    const struct mw_kernel_row *x = a, *y = b;
    int c = kernel_group_cmp(x, y);
    c = c != 0 ? c : int_cmp(x->k, y->k);
    c = c != 0 ? c : int_cmp(x->n, y->n);
    c = c != 0 ? c : int_cmp(x->m, y->m);
    return c != 0 ? c : int_cmp(x->kv, y->kv);
}

static int curve_group_cmp(const struct mw_curve_row *x,
                           const struct mw_curve_row *y)
{
    int c = mw_hw_casecmp(x->system, y->system);
    c = c != 0 ? c : mw_hw_casecmp(x->op, y->op);
    return c != 0 ? c : int_cmp(x->ranks, y->ranks);
}

static int curve_cmp(const void *a, const void *b)
{
    const struct mw_curve_row *x = a, *y = b;
    int c = curve_group_cmp(x, y);
    return c != 0 ? c : int_cmp(x->bytes, y->bytes);
}

static const char *gpu_slug(const struct mw_hwdb *db, const char *name)
{
    long i = mw_hw_find_gpu(db, name);
    return i < 0 ? name
                 : MW_HW_ROWS(db, MW_HW_GPUS, struct mw_hw_gpu_row)[i].slug;
}

static const char *system_slug(const struct mw_hwdb *db, const char *name)
{
    long i = mw_hw_find_system(db, name);
    return i < 0
               ? name
               : MW_HW_ROWS(db, MW_HW_SYSTEMS, struct mw_hw_system_row)[i].slug;
}

void mw_hw_curves_build(struct mw_hwdb *db)
{
    size_t n_kernels = mw_hw_n_rows(db, MW_HW_KERNELS);
    size_t n_curves = mw_hw_n_rows(db, MW_HW_CURVES);
    db->kernels =
        mw_arena_alloc(&db->arena, n_kernels + 1, sizeof *db->kernels);
    db->curves = mw_arena_alloc(&db->arena, n_curves + 1, sizeof *db->curves);
    for (size_t i = 0; i < n_kernels; i++) {
        db->kernels[i] = MW_HW_ROWS(db, MW_HW_KERNELS, struct mw_kernel_row)[i];
        db->kernels[i].device = gpu_slug(db, db->kernels[i].device);
    }
    for (size_t i = 0; i < n_curves; i++) {
        db->curves[i] = MW_HW_ROWS(db, MW_HW_CURVES, struct mw_curve_row)[i];
        db->curves[i].system = system_slug(db, db->curves[i].system);
    }
    qsort(db->kernels, n_kernels, sizeof *db->kernels, kernel_cmp);
    qsort(db->curves, n_curves, sizeof *db->curves, curve_cmp);
}

size_t mw_hwdb_kernels(const struct mw_hwdb *db, const char *device,
                       const char *op, const char *pass, const char *dtype,
                       const struct mw_kernel_row **out)
{
    const struct mw_kernel_row want = {
        .device = gpu_slug(db, device), .op = op, .pass = pass, .dtype = dtype};
    size_t lo = 0, hi = mw_hw_n_rows(db, MW_HW_KERNELS), n = hi;
    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;
        if (kernel_group_cmp(&db->kernels[mid], &want) < 0) {
            lo = mid + 1;
        } else {
            hi = mid;
        }
    }
    size_t end = lo;
    while (end < n && kernel_group_cmp(&db->kernels[end], &want) == 0) {
        end++;
    }
    *out = &db->kernels[lo];
    return end - lo;
}

size_t mw_hwdb_curve(const struct mw_hwdb *db, const char *system,
                     const char *op, int64_t ranks,
                     const struct mw_curve_row **out)
{
    size_t lo = 0, hi = mw_hw_n_rows(db, MW_HW_CURVES), n = hi;
    if (n == 0) { /* nothing was measured here: asked for every collective */
        return 0;
    }
    const struct mw_curve_row want = {
        .system = system_slug(db, system), .op = op, .ranks = ranks};
    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;
        if (curve_group_cmp(&db->curves[mid], &want) < 0) {
            lo = mid + 1;
        } else {
            hi = mid;
        }
    }
    size_t end = lo;
    while (end < n && curve_group_cmp(&db->curves[end], &want) == 0) {
        end++;
    }
    *out = &db->curves[lo];
    return end - lo;
}
