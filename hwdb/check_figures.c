/*
 * Rules of the tables of figures: latencies, prices, fits, measured matrix
 * products, constants, and what an overlay brings (kernels, curves). Every
 * name that they mention must be in the database, and nothing measured may
 * exceed its theory.
 */
#include "hwdb/hwdb_int.h"

#include <math.h>
#include <string.h>

static const char *row_nearest(const struct hw_check *c, const char *name)
{
    const char *near = hw_nearest(c->db, name);
    return near != NULL ? near : "see `hw list`";
}

/* Row of the device, or a finding and -1. */
static long need_gpu(struct hw_check *c, size_t i, const char *col,
                     const char *name)
{
    long gpu = hw_gpu_row(c->db, name);
    if (gpu < 0) {
        hw_bad(c, i, col, "no device '%s' in gpus.csv (nearest: %s)", name,
               row_nearest(c, name));
    }
    return gpu;
}

static long need_system(struct hw_check *c, size_t i, const char *col,
                        const char *name)
{
    long sys = hw_system_row(c->db, name);
    if (sys < 0) {
        hw_bad(c, i, col, "no system '%s' in systems.csv (nearest: %s)", name,
               row_nearest(c, name));
    }
    return sys;
}

void hw_check_latency(struct hw_check *c)
{
    const struct hw_latency_row *rows =
        HW_ROWS(c->db, HW_LATENCY, struct hw_latency_row);
    for (size_t i = 0; i < hw_n_rows(c->db, HW_LATENCY); i++) {
        const struct hw_latency_row *r = &rows[i];
        hw_expect_max(c, i, "low_ns", r->low_ns, r->typical_ns, "typical_ns");
        hw_expect_max(c, i, "typical_ns", r->typical_ns, r->high_ns, "high_ns");
        if (!(r->low_ns > 0)) {
            hw_bad(c, i, "low_ns", "must be positive");
        }
    }
}

void hw_check_costs(struct hw_check *c)
{
    const struct hw_cost_row *rows =
        HW_ROWS(c->db, HW_COSTS, struct hw_cost_row);
    for (size_t i = 0; i < hw_n_rows(c->db, HW_COSTS); i++) {
        const struct hw_cost_row *r = &rows[i];
        need_gpu(c, i, "gpu", r->gpu);
        hw_expect_max(c, i, "usd_per_gpu_hour_low", r->usd_per_gpu_hour_low,
                      r->usd_per_gpu_hour_high, "usd_per_gpu_hour_high");
        if (!(r->usd_per_gpu_hour_low > 0)) {
            hw_bad(c, i, "usd_per_gpu_hour_low", "must be positive");
        }
    }
}

void hw_check_alpha_beta(struct hw_check *c)
{
    const struct hw_alpha_beta_row *rows =
        HW_ROWS(c->db, HW_ALPHA_BETA, struct hw_alpha_beta_row);
    for (size_t i = 0; i < hw_n_rows(c->db, HW_ALPHA_BETA); i++) {
        const struct hw_alpha_beta_row *r = &rows[i];
        hw_expect(c, i, "link_GBps_per_dir", r->link_GBps_per_dir,
                  1000 / r->beta_us_per_MB, 5e-3,
                  "1000 / %g us per MB of 10^6 bytes", r->beta_us_per_MB);
        long at = need_system(c, i, "system", r->system);
        if (at < 0) {
            continue;
        }
        const struct mw_system *s = &c->db->systems[at];
        if (strcmp(r->scope, "intra") == 0) {
            hw_expect_max(c, i, "link_GBps_per_dir", r->link_GBps_per_dir,
                          s->intra_bw_Bps / 1e9, "all links of one GPU of %s",
                          s->slug);
        } else if (strcmp(r->scope, "inter") == 0) {
            hw_expect_max(c, i, "link_GBps_per_dir", r->link_GBps_per_dir,
                          s->node_net_bw_Bps / 1e9, "all NICs of %s", s->slug);
        } else {
            hw_bad(c, i, "scope", "'%s' must be intra or inter", r->scope);
        }
    }
}

static int dtype_index(const char *name)
{
    for (int d = 0; d < MW_HW_DTYPES; d++) {
        if (hw_casecmp(hw_dtype_names[d], name) == 0) {
            return d;
        }
    }
    return -1;
}

static int need_dtype(struct hw_check *c, size_t i, const char *name)
{
    int d = dtype_index(name);
    if (d < 0) {
        hw_bad(c, i, "dtype", "'%s' must be fp32, tf32, bf16, fp16, fp8 or fp4",
               name);
    }
    return d;
}

void hw_check_achieved(struct hw_check *c)
{
    const struct hw_achieved_row *rows =
        HW_ROWS(c->db, HW_ACHIEVED, struct hw_achieved_row);
    for (size_t i = 0; i < hw_n_rows(c->db, HW_ACHIEVED); i++) {
        const struct hw_achieved_row *r = &rows[i];
        hw_expect_max(c, i, "measured_tflops", r->measured_tflops,
                      r->theory_tflops, "theory_tflops");
        hw_expect(c, i, "efficiency", r->efficiency,
                  r->measured_tflops / r->theory_tflops, 1.5e-3,
                  "%g / %g TFLOP/s", r->measured_tflops, r->theory_tflops);
        long gpu = need_gpu(c, i, "gpu", r->gpu);
        int d = need_dtype(c, i, r->dtype);
        if (gpu < 0 || d < 0) {
            continue;
        }
        double peak = c->db->gpus[gpu].peak_flops[d] / 1e12;
        if (isnan(peak)) {
            hw_bad(c, i, "dtype", "%s has no %s rate in gpus.csv",
                   c->db->gpus[gpu].slug, r->dtype);
        }
        hw_expect(c, i, "theory_tflops", r->theory_tflops, peak, 0.01,
                  "the dense %s peak of %s in gpus.csv", r->dtype,
                  c->db->gpus[gpu].slug);
    }
}

/* ---- constants --------------------------------------------------------------
 */

static bool has_prefix(const char *text, const char *prefix)
{
    return strncmp(text, prefix, strlen(prefix)) == 0;
}

/* The unit that a name's ending or family asks for; NULL when free. */
static const char *unit_of(const char *name)
{
    static const char *const ratios[] = {
        "intra_efficiency.", "inter_efficiency.", "gemm_efficiency.",
        "mem_efficiency.", "nvls_ratio."};
    for (size_t i = 0; i < sizeof ratios / sizeof *ratios; i++) {
        if (has_prefix(name, ratios[i])) {
            return "ratio";
        }
    }
    if (has_prefix(name, "tensor_flop_per_clock.")) {
        return "FLOP/clock";
    }
    size_t stem = strcspn(name, ".");
    return stem > 2 && strncmp(name + stem - 2, "_s", 2) == 0 ? "s" : NULL;
}

static void check_constant(struct hw_check *c, size_t i,
                           const struct mw_constant *r)
{
    static const char *const ok = "abcdefghijklmnopqrstuvwxyz0123456789._-";
    const char *unit = unit_of(r->name);
    if (r->name[strspn(r->name, ok)] != '\0') {
        hw_bad(c, i, "name",
               "'%s' may have lower-case letters, digits, '_', "
               "'-' and '.' alone",
               r->name);
    }
    if (!hw_list_has("s;ratio;B;B/s;FLOP;FLOP/s;FLOP/clock;W;count;elements",
                     r->unit)) {
        hw_bad(
            c, i, "unit",
            "'%s' must be SI: s, ratio, B, B/s, FLOP, FLOP/s, FLOP/clock, W, "
            "count or elements",
            r->unit);
    } else if (unit != NULL && strcmp(unit, r->unit) != 0) {
        hw_bad(c, i, "unit", "is '%s' but %s is in '%s'", r->unit, r->name,
               unit);
    }
    bool may_be_zero = strcmp(r->unit, "s") == 0;
    if (!(r->value > 0 || (may_be_zero && r->value >= 0))) {
        hw_bad(c, i, "value", "must be positive");
    }
    if (strcmp(r->unit, "ratio") == 0) {
        /* In-switch reduction sends less than the bus bandwidth counts. */
        double limit = has_prefix(r->name, "nvls_ratio.") ? 2 : 1;
        hw_expect_max(c, i, "value", r->value, limit,
                      "a fraction (0.08, not 8)");
    } else if (strcmp(r->unit, "s") == 0) {
        hw_expect_max(c, i, "value", r->value, 1,
                      "a latency in seconds (1.5e-6, not 1.5)");
    }
}

void hw_check_constants(struct hw_check *c)
{
    const struct mw_constant *rows =
        HW_ROWS(c->db, HW_CONSTANTS, struct mw_constant);
    for (size_t i = 0; i < hw_n_rows(c->db, HW_CONSTANTS); i++) {
        check_constant(c, i, &rows[i]);
    }
    if (hw_constant(c->db, "gemm_efficiency.default") == NULL ||
        hw_constant(c->db, "mem_efficiency.default") == NULL) {
        mw_fail(c->err, MW_EINPUT,
                "%s: gemm_efficiency.default and mem_efficiency.default are "
                "needed",
                c->db->tables[HW_CONSTANTS].csv.file);
        c->n_bad++;
    }
}

/* ---- overlays ---------------------------------------------------------------
 */

void hw_check_kernels(struct hw_check *c)
{
    const struct mw_kernel_row *rows =
        HW_ROWS(c->db, HW_KERNELS, struct mw_kernel_row);
    for (size_t i = 0; i < hw_n_rows(c->db, HW_KERNELS); i++) {
        need_gpu(c, i, "device", rows[i].device);
        need_dtype(c, i, rows[i].dtype);
        if (!(rows[i].time_s > 0)) {
            hw_bad(c, i, "time_s", "must be positive");
        }
        hw_expect_max(c, i, "time_s", rows[i].time_s, 1e4,
                      "one kernel in seconds (microseconds?)");
    }
}

void hw_check_curves(struct hw_check *c)
{
    const struct mw_curve_row *rows =
        HW_ROWS(c->db, HW_CURVES, struct mw_curve_row);
    for (size_t i = 0; i < hw_n_rows(c->db, HW_CURVES); i++) {
        need_system(c, i, "system", rows[i].system);
        if (!(rows[i].time_s > 0)) {
            hw_bad(c, i, "time_s", "must be positive");
        }
        if (rows[i].ranks < 1) {
            hw_bad(c, i, "ranks", "must be at least 1");
        }
    }
}
