/*
 * Measured kernels that are shipped with the database, one file a device:
 * data/kernels/SLUG.csv, read when the device is first asked for (a program
 * pays for the devices that it prices and for no other), made by
 * hwdb/import from public measurements.
 *
 * They are carried over to other shapes as *utilisation*:
 *
 *   base(shape) = FLOPs x waves(shape) / rate + bytes / bandwidth + floor
 *   time(shape) = base(shape) * ratio(shape)
 *   ratio       = measured time / base, averaged in the log over the nearest
 *                 measured shapes with weights 1 / distance^2 (Shepard, "A
 *                 two-dimensional interpolation function for irregularly
 *                 spaced data", ACM National Conference 1968)
 *
 * with rate and bandwidth those that the device reaches (its peaks times its
 * efficiencies), and waves what products lose to a last wave of output tiles
 * that does not fill the device (mw_kernel_waves). The ratio varies much less
 * than a time or a rate does: base has the bandwidth of thin shapes and the
 * floor of small ones in it. What a row measured (forward products of an
 * inference engine) is carried over to backward passes in the same way: their
 * base has their own FLOPs and bytes. docs/kernel-tables.md has the error of
 * this, measured.
 *
 *   struct mw_kernel_table set;
 *   double x[3];
 *   mw_hwdb_measured(db, "h100-sxm", "gemm", "bf16", &set, &err);
 *   mw_kernel_place(set.form, &(struct mw_kernel_shape){4096, 8192, 8192, 1},
 *                   x);
 *   mw_kernel_ratio(&set, x, NULL);                 1.02, say
 */
#ifndef MW_HWDB_MEASURED_H
#define MW_HWDB_MEASURED_H

#include "hwdb/hwdb.h"

/*
 * Sizes of a kernel; sizes that an operator has not are 1.
 *   gemm, grouped_gemm, gemm_block   m, n, k of `batch` products (gemm_block:
 *                    FP8 with one scale per 1 x 128 and 128 x 128 elements)
 *   attention        fused, causal: m tokens, heads of k elements, batch =
 *                    heads * sequences; n = m
 *   attention_decode one token a sequence: m = 1, n = tokens in the cache,
 *                    k elements, batch = key heads * sequences
 *   norm activation add rotary softmax embedding   m rows, n = width
 */
struct mw_kernel_shape {
    double m, n, k, batch;
};

/* What bounds a kernel on a device. */
struct mw_kernel_rates {
    double flops_per_s, bytes_per_s, floor_s;
    int wave_sms; /* of a product whose tiles run in waves; 0: they do not */
};
/*
 * What the device does of a batch of products, in whole waves, over what is
 * asked for: 1 where tiles do not run in waves. The library takes the best tile
 * (NVIDIA, "Matrix Multiplication Background User's Guide", sections 3.1 and
 * 3.2: 256 x 128 and 128 x 256 are the most efficient, smaller ones lose
 * operand reuse and fill the device better):
 *   min over tiles of  waves x SMs x area / (share of the tile x m n batch)
 * Since Hopper kernels are persistent and share out the last tiles.
 */
double mw_kernel_waves(const struct mw_kernel_rates *rates,
                       const struct mw_kernel_shape *s);
static inline double mw_kernel_base_s(const struct mw_kernel_rates *rates,
                                      const struct mw_kernel_shape *s,
                                      double flops, double bytes)
{
    return flops * mw_kernel_waves(rates, s) / rates->flops_per_s +
           bytes / rates->bytes_per_s + rates->floor_s;
}
/*
 * The rates of an operator (names as in the table above), pass ("F" "B" "W")
 * and dtype on a device: peak rate of the dtype (of the next wider one where
 * the device has no such path: fp4 fp8 bf16 fp16 tf32 fp32) times
 * gemm_efficiency; for attention times the constant
 * flash_efficiency_forward or _backward; for gemm B and W divided by the
 * constant gemm_layout_factor.b or .w (of its architecture where there is
 * one). Memory bandwidth times mem_efficiency.
 * The floor is the constant kernel_floor_s. Products run in waves where there
 * is a constant gemm_waves.ARCH. MW_EINPUT when a constant is
 * missing.
 */
enum mw_status mw_hwdb_kernel_rates(const struct mw_hwdb *db,
                                    const struct mw_gpu *gpu, const char *op,
                                    const char *pass, const char *dtype,
                                    struct mw_kernel_rates *out,
                                    struct mw_err *err);

/* FLOPs and bytes of a forward kernel of the table, as its base counts them:
 * each operand once; causal attention half of the square, with a key head for
 * 8 query heads (what was measured); activations are gated (two inputs). */
double mw_kernel_flops(const char *op, const struct mw_kernel_shape *s);
double mw_kernel_bytes(const char *op, const char *dtype,
                       const struct mw_kernel_shape *s);

/* A row, ready for look-up. */
struct mw_kernel_point {
    double x[3];      /* its place: mw_kernel_place */
    double log_ratio; /* log(time / base) on the device of the set */
    struct mw_kernel_shape shape;
    double time_s;
    const char *source, *confidence;
    const char *includes; /* "" or what was timed beside the kernel */
};
/* On what the ratio of a kernel depends. */
enum mw_kernel_form {
    MW_KERNEL_PRODUCT,   /* m, n, k */
    MW_KERNEL_ATTENTION, /* tokens, heads * sequences, elements of a head */
    MW_KERNEL_STREAM     /* m * n: bound by memory */
};
/* The rows of one (device, op, dtype), ascending in (k, n, m, batch). */
struct mw_kernel_table {
    const struct mw_kernel_point *point;
    size_t n;
    const struct mw_gpu *gpu; /* on which it was measured: another one of the
                                 same chip where the device has no rows */
    enum mw_kernel_form form;
};

/*
 * The measured forward kernels of a device, op and dtype; out->n is 0 when
 * there are none. bf16 and fp16 stand in for one another (the same rate on
 * every device), and data/kernels/siblings.csv names devices of the same chip.
 * Valid as long as db; safe to call from several threads. MW_EINPUT with
 * FILE:LINE when a row is wrong.
 */
enum mw_status mw_hwdb_measured(const struct mw_hwdb *db, const char *device,
                                const char *op, const char *dtype,
                                struct mw_kernel_table *out,
                                struct mw_err *err);

/* Where a shape lies among the rows of a set: logs of the sizes. A batch of
 * products lies where one product with as many output tiles does:
 * (m sqrt(batch), n sqrt(batch), k). */
enum mw_kernel_form mw_kernel_form_of(const char *op);
void mw_kernel_place(enum mw_kernel_form form, const struct mw_kernel_shape *s,
                     double out_x[3]);

/* What mw_kernel_ratio found out beside the ratio. */
struct mw_kernel_near {
    const struct mw_kernel_point *point; /* the nearest row */
    double distance; /* to it, in logs; 0 is a row of the table */
};
/*
 * time / base of a shape; x from mw_kernel_place. A shape that is a row has
 * the row's ratio. O(rows) without a logarithm. The set
 * must not be empty. `near` may be NULL.
 */
double mw_kernel_ratio(const struct mw_kernel_table *set, const double x[3],
                       struct mw_kernel_near *near);

/*
 * The time of a kernel: its base by `rates` (of its own device, pass and
 * dtype) from its own FLOPs and bytes, times the ratio of its shape. False,
 * and nothing set, when the table is empty or every row is farther than
 * MW_KERNEL_REACH: the caller's roofline answers. `near` may be NULL.
 */
#define MW_KERNEL_REACH 2.0 /* a factor e^2 in one size, 3.2 in all three */
bool mw_kernel_time(const struct mw_kernel_table *table,
                    const struct mw_kernel_rates *rates,
                    const struct mw_kernel_shape *shape, double flops,
                    double bytes, double *out_time_s,
                    struct mw_kernel_near *near);

/* Reads the files of all devices: MW_EINPUT with every wrong row. n_rows may
 * be NULL. */
enum mw_status mw_hwdb_measured_check(const struct mw_hwdb *db, size_t *n_rows,
                                      struct mw_err *err);

#endif
