/*
 * Rules of the tables of figures: latencies, prices, fits, measured matrix
 * products, constants, and what an overlay brings (kernels, curves). Every
 * name that they mention must be in the database, and nothing measured may
 * exceed its theory.
 */
#include "hwdb/hwdb_int.h"

#include <math.h>
#include <string.h>

static const char *row_nearest(const struct mw_hw_check *c, const char *name)
{
    const char *near = mw_hwdb_nearest(c->db, name);
    return near != NULL ? near : "see `hw list`";
}

/* Row of the device, or a finding and -1. */
static long need_gpu(struct mw_hw_check *c, size_t i, const char *col,
                     const char *name)
{
    long gpu = mw_hw_find_gpu(c->db, name);
    if (gpu < 0) {
        mw_hw_bad(c, i, col, "no device '%s' in gpus.csv (nearest: %s)", name,
                  row_nearest(c, name));
    }
    return gpu;
}

static long need_system(struct mw_hw_check *c, size_t i, const char *col,
                        const char *name)
{
    long sys = mw_hw_find_system(c->db, name);
    if (sys < 0) {
        mw_hw_bad(c, i, col, "no system '%s' in systems.csv (nearest: %s)",
                  name, row_nearest(c, name));
    }
    return sys;
}

void mw_hw_check_latency(struct mw_hw_check *c)
{
    const struct mw_hw_latency_row *rows =
        MW_HW_ROWS(c->db, MW_HW_LATENCY, struct mw_hw_latency_row);
    for (size_t i = 0; i < mw_hw_n_rows(c->db, MW_HW_LATENCY); i++) {
        const struct mw_hw_latency_row *r = &rows[i];
        mw_hw_expect_max(c, i, "low_ns", r->low_ns, r->typical_ns,
                         "typical_ns");
        mw_hw_expect_max(c, i, "typical_ns", r->typical_ns, r->high_ns,
                         "high_ns");
        if (!(r->low_ns > 0)) {
            mw_hw_bad(c, i, "low_ns", "must be positive");
        }
    }
}

void mw_hw_check_costs(struct mw_hw_check *c)
{
    const struct mw_hw_cost_row *rows =
        MW_HW_ROWS(c->db, MW_HW_COSTS, struct mw_hw_cost_row);
    for (size_t i = 0; i < mw_hw_n_rows(c->db, MW_HW_COSTS); i++) {
        const struct mw_hw_cost_row *r = &rows[i];
        need_gpu(c, i, "gpu", r->gpu);
        mw_hw_expect_max(c, i, "usd_per_gpu_hour_low", r->usd_per_gpu_hour_low,
                         r->usd_per_gpu_hour_high, "usd_per_gpu_hour_high");
        if (!(r->usd_per_gpu_hour_low > 0)) {
            mw_hw_bad(c, i, "usd_per_gpu_hour_low", "must be positive");
        }
    }
}

void mw_hw_check_alpha_beta(struct mw_hw_check *c)
{
    const struct mw_hw_alpha_beta_row *rows =
        MW_HW_ROWS(c->db, MW_HW_ALPHA_BETA, struct mw_hw_alpha_beta_row);
    for (size_t i = 0; i < mw_hw_n_rows(c->db, MW_HW_ALPHA_BETA); i++) {
        const struct mw_hw_alpha_beta_row *r = &rows[i];
        mw_hw_expect(c, i, "link_GBps_per_dir", r->link_GBps_per_dir,
                     1000 / r->beta_us_per_MB, 5e-3,
                     "1000 / %g us per MB of 10^6 bytes", r->beta_us_per_MB);
        long at = need_system(c, i, "system", r->system);
        if (at < 0) {
            continue;
        }
        const struct mw_system *s = &c->db->systems[at];
        if (strcmp(r->scope, "intra") == 0) {
            mw_hw_expect_max(c, i, "link_GBps_per_dir", r->link_GBps_per_dir,
                             s->intra_bw_Bps / 1e9,
                             "all links of one GPU of %s", s->slug);
        } else if (strcmp(r->scope, "inter") == 0) {
            mw_hw_expect_max(c, i, "link_GBps_per_dir", r->link_GBps_per_dir,
                             s->node_net_bw_Bps / 1e9, "all NICs of %s",
                             s->slug);
        } else {
            mw_hw_bad(c, i, "scope", "'%s' must be intra or inter", r->scope);
        }
    }
}

static int dtype_index(const char *name)
{
    for (int d = 0; d < MW_HW_DTYPES; d++) {
        if (mw_hw_casecmp(mw_hw_dtype_names[d], name) == 0) {
            return d;
        }
    }
    return -1;
}

static int need_dtype(struct mw_hw_check *c, size_t i, const char *name)
{
    int d = dtype_index(name);
    if (d < 0) {
        mw_hw_bad(c, i, "dtype",
                  "'%s' must be fp32, tf32, bf16, fp16, fp8 or fp4", name);
    }
    return d;
}

void mw_hw_check_achieved(struct mw_hw_check *c)
{
    const struct mw_hw_achieved_row *rows =
        MW_HW_ROWS(c->db, MW_HW_ACHIEVED, struct mw_hw_achieved_row);
    for (size_t i = 0; i < mw_hw_n_rows(c->db, MW_HW_ACHIEVED); i++) {
        const struct mw_hw_achieved_row *r = &rows[i];
        mw_hw_expect_max(c, i, "measured_tflops", r->measured_tflops,
                         r->theory_tflops, "theory_tflops");
        mw_hw_expect(c, i, "efficiency", r->efficiency,
                     r->measured_tflops / r->theory_tflops, 1.5e-3,
                     "%g / %g TFLOP/s", r->measured_tflops, r->theory_tflops);
        long gpu = need_gpu(c, i, "gpu", r->gpu);
        int d = need_dtype(c, i, r->dtype);
        if (gpu < 0 || d < 0) {
            continue;
        }
        double peak = c->db->gpus[gpu].peak_flops[d] / 1e12;
        if (isnan(peak)) {
            mw_hw_bad(c, i, "dtype", "%s has no %s rate in gpus.csv",
                      c->db->gpus[gpu].slug, r->dtype);
        }
        mw_hw_expect(c, i, "theory_tflops", r->theory_tflops, peak, 0.01,
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
    static const char *const ratios[] = {"intra_efficiency.",
                                         "inter_efficiency.",
                                         "gemm_efficiency.", "mem_efficiency."};
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

static void check_constant(struct mw_hw_check *c, size_t i,
                           const struct mw_constant *r)
{
    static const char *const ok = "abcdefghijklmnopqrstuvwxyz0123456789._-";
    const char *unit = unit_of(r->name);
    if (r->name[strspn(r->name, ok)] != '\0') {
        mw_hw_bad(c, i, "name",
                  "'%s' may have lower-case letters, digits, '_', "
                  "'-' and '.' alone",
                  r->name);
    }
    if (!mw_hw_list_has(
            "s;1/s;ratio;B;B/s;FLOP;FLOP/s;FLOP/clock;W;count;elements",
            r->unit)) {
        mw_hw_bad(c, i, "unit",
                  "'%s' must be SI: s, 1/s, ratio, B, B/s, FLOP, FLOP/s, "
                  "FLOP/clock, W, "
                  "count or elements",
                  r->unit);
    } else if (unit != NULL && strcmp(unit, r->unit) != 0) {
        mw_hw_bad(c, i, "unit", "is '%s' but %s is in '%s'", r->unit, r->name,
                  unit);
    }
    bool may_be_zero =
        strcmp(r->unit, "s") == 0 || has_prefix(r->name, "overlap_");
    if (!(r->value > 0 || (may_be_zero && r->value >= 0))) {
        mw_hw_bad(c, i, "value", "must be positive");
    }
    if (strcmp(r->unit, "ratio") == 0) {
        /* A factor corrects a time and may lengthen it. */
        bool is_factor = strstr(r->name, "_factor") != NULL ||
                         has_prefix(r->name, "memory_reserve");
        /* A stack's kernel may beat the one that was measured. */
        bool is_relative = has_prefix(r->name, "attention_") ||
                           has_prefix(r->name, "grouped_share") ||
                           has_prefix(r->name, "sustained_clock") ||
                           has_prefix(r->name, "elementwise_efficiency");
        double limit = is_factor ? 10 : is_relative ? 2 : 1;
        mw_hw_expect_max(c, i, "value", r->value, limit,
                         "a fraction (0.08, not 8)");
    } else if (strcmp(r->unit, "s") == 0 && !has_prefix(r->name, "job_")) {
        mw_hw_expect_max(c, i, "value", r->value, 1,
                         "a latency in seconds (1.5e-6, not 1.5)");
    }
}

void mw_hw_check_constants(struct mw_hw_check *c)
{
    const struct mw_constant *rows =
        MW_HW_ROWS(c->db, MW_HW_CONSTANTS, struct mw_constant);
    for (size_t i = 0; i < mw_hw_n_rows(c->db, MW_HW_CONSTANTS); i++) {
        check_constant(c, i, &rows[i]);
    }
    if (mw_hw_constant(c->db, "gemm_efficiency.default") == NULL ||
        mw_hw_constant(c->db, "mem_efficiency.default") == NULL) {
        mw_fail(c->err, MW_EINPUT,
                "%s: gemm_efficiency.default and mem_efficiency.default are "
                "needed",
                c->db->tables[MW_HW_CONSTANTS].csv.file);
        c->n_bad++;
    }
}

/* ---- overlays ---------------------------------------------------------------
 */

void mw_hw_check_kernels(struct mw_hw_check *c)
{
    const struct mw_kernel_row *rows =
        MW_HW_ROWS(c->db, MW_HW_KERNELS, struct mw_kernel_row);
    for (size_t i = 0; i < mw_hw_n_rows(c->db, MW_HW_KERNELS); i++) {
        need_gpu(c, i, "device", rows[i].device);
        need_dtype(c, i, rows[i].dtype);
        if (!(rows[i].time_s > 0)) {
            mw_hw_bad(c, i, "time_s", "must be positive");
        }
        mw_hw_expect_max(c, i, "time_s", rows[i].time_s, 1e4,
                         "one kernel in seconds (microseconds?)");
    }
}

void mw_hw_check_curves(struct mw_hw_check *c)
{
    const struct mw_curve_row *rows =
        MW_HW_ROWS(c->db, MW_HW_CURVES, struct mw_curve_row);
    for (size_t i = 0; i < mw_hw_n_rows(c->db, MW_HW_CURVES); i++) {
        need_system(c, i, "system", rows[i].system);
        if (!(rows[i].time_s > 0)) {
            mw_hw_bad(c, i, "time_s", "must be positive");
        }
        if (rows[i].ranks < 1) {
            mw_hw_bad(c, i, "ranks", "must be at least 1");
        }
    }
}
