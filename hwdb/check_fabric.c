/*
 * Rules of the link tables: what a link carries follows from its lanes, its
 * signalling rate and its encoding, and every total follows from the link.
 * The mistakes that circulate (per link taken for both directions, per chip
 * for per system, Gb/s for GB/s) each break one of these products.
 *
 * Sources of the encodings: PCI Express base specification (128b/130b from
 * 3.0; 242 of 256 bytes a FLIT from 6.0); InfiniBand architecture (8b/10b,
 * 64b/66b, RS(544,514) with 256b/257b = 16/17 from HDR on).
 */
#include "hwdb/hwdb_int.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Relative error that rounding in a table may leave. */
static const double ROUNDING = 1e-3;

void mw_hw_check_nvlink(struct mw_hw_check *c)
{
    const struct mw_hw_nvlink_row *rows =
        MW_HW_ROWS(c->db, MW_HW_NVLINK, struct mw_hw_nvlink_row);
    for (size_t i = 0; i < mw_hw_n_rows(c->db, MW_HW_NVLINK); i++) {
        const struct mw_hw_nvlink_row *r = &rows[i];
        bool is_announced = strstr(r->gpu, "announced") != NULL;
        bool is_c2c = strncmp(r->generation, "c2c", 3) == 0;
        if (isnan(r->raw_link_GBps_per_dir) && !is_announced && !is_c2c) {
            mw_hw_bad(c, i, "raw_link_GBps_per_dir",
                      "signalling rate, lanes and raw rate are needed (only "
                      "announced hardware may lack them)");
        }
        mw_hw_expect(c, i, "raw_link_GBps_per_dir", r->raw_link_GBps_per_dir,
                     r->lanes_per_link_per_dir * r->signalling_Gbps_per_lane /
                         8,
                     ROUNDING, "%g lanes x %g Gb/s / 8",
                     r->lanes_per_link_per_dir, r->signalling_Gbps_per_lane);
        mw_hw_expect_max(
            c, i, "link_GBps_per_dir", r->link_GBps_per_dir,
            r->raw_link_GBps_per_dir, "%g lanes x %g Gb/s / 8 in one direction",
            r->lanes_per_link_per_dir, r->signalling_Gbps_per_lane);
        if (r->link_GBps_per_dir < 0.9 * r->raw_link_GBps_per_dir) {
            mw_hw_bad(
                c, i, "link_GBps_per_dir",
                "is %g, less than 90 %% of the raw %g: encoding and error "
                "correction never cost as much",
                r->link_GBps_per_dir, r->raw_link_GBps_per_dir);
        }
        mw_hw_expect(c, i, "link_GBps_bidir", r->link_GBps_bidir,
                     2 * r->link_GBps_per_dir, ROUNDING,
                     "2 x %g GB/s per direction", r->link_GBps_per_dir);
        mw_hw_expect(c, i, "gpu_GBps_per_dir", r->gpu_GBps_per_dir,
                     (double)r->links_per_gpu * r->link_GBps_per_dir, ROUNDING,
                     "%lld links x %g GB/s per direction",
                     (long long)r->links_per_gpu, r->link_GBps_per_dir);
        mw_hw_expect(c, i, "gpu_GBps_bidir", r->gpu_GBps_bidir,
                     (double)r->links_per_gpu * r->link_GBps_bidir, ROUNDING,
                     "%lld links x %g GB/s (both directions)",
                     (long long)r->links_per_gpu, r->link_GBps_bidir);
        mw_hw_expect_max(c, i, "nccl_model_link_GBps_per_dir",
                         r->nccl_model_link_GBps_per_dir, r->link_GBps_per_dir,
                         "link_GBps_per_dir");
    }
}

static const struct mw_hw_nvlink_row *nvlink_of(const struct mw_hwdb *db,
                                                const char *generation)
{
    const struct mw_hw_nvlink_row *rows =
        MW_HW_ROWS(db, MW_HW_NVLINK, struct mw_hw_nvlink_row);
    for (size_t i = 0; i < mw_hw_n_rows(db, MW_HW_NVLINK); i++) {
        if (mw_hw_casecmp(rows[i].generation, generation) == 0) {
            return &rows[i];
        }
    }
    return NULL;
}

/* Each pair of a per-direction and a bidirectional column. */
static void check_pair(struct mw_hw_check *c, size_t i, const char *col,
                       double bidir, double per_dir)
{
    mw_hw_expect(c, i, col, bidir, 2 * per_dir, ROUNDING,
                 "2 x %g GB/s per direction", per_dir);
}

static void check_switch_chip(struct mw_hw_check *c, size_t i,
                              const struct mw_hw_nvswitch_row *r,
                              const struct mw_hw_nvlink_row *link)
{
    check_pair(c, i, "port_GBps_bidir", r->port_GBps_bidir,
               r->port_GBps_per_dir);
    check_pair(c, i, "chip_GBps_bidir", r->chip_GBps_bidir,
               r->chip_GBps_per_dir);
    mw_hw_expect(c, i, "port_GBps_per_dir", r->port_GBps_per_dir,
                 link->link_GBps_per_dir, ROUNDING, "a link of NVLink %s",
                 r->nvlink);
    mw_hw_expect(c, i, "chip_GBps_per_dir", r->chip_GBps_per_dir,
                 (double)r->ports_per_chip * r->port_GBps_per_dir, ROUNDING,
                 "%lld ports x %g GB/s per direction",
                 (long long)r->ports_per_chip, r->port_GBps_per_dir);
    mw_hw_expect(c, i, "chip_GBps_bidir", r->chip_GBps_bidir,
                 (double)r->ports_per_chip * r->port_GBps_bidir, ROUNDING,
                 "%lld ports x %g GB/s (both directions)",
                 (long long)r->ports_per_chip, r->port_GBps_bidir);
    mw_hw_expect(c, i, "chip_Tbps_bidir", r->chip_Tbps_bidir,
                 r->chip_GBps_bidir * 8 / 1000, ROUNDING, "%g GB/s x 8 / 1000",
                 r->chip_GBps_bidir);
}

/* GPUs take 44 to 100 % of the ports in every system built so far (DGX-2 96 of
 * 216, DGX H100 144 of 256, NVL72 all). Far less means that GPUs were left out
 * (DGX-2 with 8) or ports made up (64 ports for NVSwitch 2). */
static void check_switch_ports(struct mw_hw_check *c, size_t i,
                               const struct mw_hw_nvswitch_row *r,
                               const struct mw_hw_nvlink_row *link)
{
    int64_t ports = r->chips_per_system * r->ports_per_chip;
    int64_t used = r->gpus_per_domain * link->links_per_gpu;
    if (used > ports) {
        mw_hw_bad(c, i, "chips_per_system",
                  "%lld chips x %lld ports cannot take the %lld links of %lld "
                  "GPUs",
                  (long long)r->chips_per_system, (long long)r->ports_per_chip,
                  (long long)used, (long long)r->gpus_per_domain);
    } else if (3 * used < ports) {
        mw_hw_bad(
            c, i, "gpus_per_domain",
            "%lld GPUs use %lld of the %lld ports of %lld chips; at least a "
            "third is in use in any real system: more GPUs, fewer chips or "
            "fewer ports would be right",
            (long long)r->gpus_per_domain, (long long)used, (long long)ports,
            (long long)r->chips_per_system);
    }
}

void mw_hw_check_nvswitch(struct mw_hw_check *c)
{
    const struct mw_hw_nvswitch_row *rows =
        MW_HW_ROWS(c->db, MW_HW_NVSWITCH, struct mw_hw_nvswitch_row);
    for (size_t i = 0; i < mw_hw_n_rows(c->db, MW_HW_NVSWITCH); i++) {
        const struct mw_hw_nvswitch_row *r = &rows[i];
        const struct mw_hw_nvlink_row *link = nvlink_of(c->db, r->nvlink);
        if (link == NULL) {
            mw_hw_bad(c, i, "nvlink", "no generation '%s' in nvlink.csv",
                      r->nvlink);
            continue;
        }
        check_switch_chip(c, i, r, link);
        check_switch_ports(c, i, r, link);
        check_pair(c, i, "bisection_GBps_bidir", r->bisection_GBps_bidir,
                   r->bisection_GBps_per_dir);
        check_pair(c, i, "aggregate_gpu_GBps_bidir",
                   r->aggregate_gpu_GBps_bidir, r->aggregate_gpu_GBps_per_dir);
        mw_hw_expect(c, i, "aggregate_gpu_GBps_per_dir",
                     r->aggregate_gpu_GBps_per_dir,
                     (double)r->gpus_per_domain * link->gpu_GBps_per_dir,
                     ROUNDING, "%lld GPUs x %g GB/s per direction",
                     (long long)r->gpus_per_domain, link->gpu_GBps_per_dir);
        mw_hw_expect(c, i, "bisection_GBps_per_dir", r->bisection_GBps_per_dir,
                     r->aggregate_gpu_GBps_per_dir / 2, ROUNDING,
                     "half of the %g GB/s of all GPUs",
                     r->aggregate_gpu_GBps_per_dir);
    }
}

/* Data bits per signalled bit; NaN for an encoding that is not known. */
static double encoding_rate(const char *encoding)
{
    static const struct {
        const char *name;
        double rate;
    } known[] = {{"8b/10b", 0.8},
                 {"64b/66b", 64.0 / 66},
                 {"128b/130b", 128.0 / 130},
                 {"PAM4 + RS-FEC", 16.0 / 17},
                 {"PAM4 1b/1b FLIT 242/256", 242.0 / 256}};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        if (mw_hw_casecmp(encoding, known[i].name) == 0) {
            return known[i].rate;
        }
    }
    return (double)NAN;
}

static double known_encoding(struct mw_hw_check *c, size_t i,
                             const char *encoding)
{
    double rate = encoding_rate(encoding);
    if (isnan(rate)) {
        mw_hw_bad(
            c, i, "encoding",
            "'%s' is not known; one of 8b/10b, 64b/66b, 128b/130b, PAM4 + "
            "RS-FEC, PAM4 1b/1b FLIT 242/256",
            encoding);
    }
    return rate;
}

void mw_hw_check_pcie(struct mw_hw_check *c)
{
    const struct mw_hw_pcie_row *rows =
        MW_HW_ROWS(c->db, MW_HW_PCIE, struct mw_hw_pcie_row);
    for (size_t i = 0; i < mw_hw_n_rows(c->db, MW_HW_PCIE); i++) {
        const struct mw_hw_pcie_row *r = &rows[i];
        double rate = known_encoding(c, i, r->encoding);
        mw_hw_expect(c, i, "x16_GBps_per_dir_theory",
                     r->x16_GBps_per_dir_theory, r->GTps * 16 / 8 * rate,
                     ROUNDING, "%g GT/s x 16 lanes / 8 x %.4f (%s)", r->GTps,
                     rate, r->encoding);
        mw_hw_expect_max(c, i, "x16_GBps_per_dir_achieved",
                         r->x16_GBps_per_dir_achieved,
                         r->x16_GBps_per_dir_theory, "theory per direction");
        mw_hw_expect_max(c, i, "nccl_model_x16_GBps_per_dir",
                         r->nccl_model_x16_GBps_per_dir,
                         r->x16_GBps_per_dir_theory, "theory per direction");
    }
}

void mw_hw_check_infiniband(struct mw_hw_check *c)
{
    const struct mw_hw_infiniband_row *rows =
        MW_HW_ROWS(c->db, MW_HW_INFINIBAND, struct mw_hw_infiniband_row);
    for (size_t i = 0; i < mw_hw_n_rows(c->db, MW_HW_INFINIBAND); i++) {
        const struct mw_hw_infiniband_row *r = &rows[i];
        double rate = known_encoding(c, i, r->encoding);
        mw_hw_expect(c, i, "link_4x_data_Gbps", r->link_4x_data_Gbps,
                     4 * r->lane_signalling_Gbps * rate, ROUNDING,
                     "4 lanes x %g Gb/s x %.4f (%s)", r->lane_signalling_Gbps,
                     rate, r->encoding);
        mw_hw_expect(c, i, "link_4x_GBps_per_dir", r->link_4x_GBps_per_dir,
                     r->link_4x_data_Gbps / 8, ROUNDING, "%g Gb/s / 8",
                     r->link_4x_data_Gbps);
        check_pair(c, i, "link_4x_GBps_bidir", r->link_4x_GBps_bidir,
                   r->link_4x_GBps_per_dir);
        mw_hw_expect_max(c, i, "link_4x_data_Gbps", r->link_4x_data_Gbps,
                         r->link_4x_Gbps_nominal, "link_4x_Gbps_nominal");
        mw_hw_expect_max(c, i, "nccl_lane_Mbps", 4 * r->nccl_lane_Mbps / 1000,
                         r->link_4x_Gbps_nominal,
                         "link_4x_Gbps_nominal (4 lanes, Gb/s)");
    }
}

/* "4x53 or 2x106": each alternative must signal 0 to 8 % above the rate. */
static void check_lanes(struct mw_hw_check *c, size_t i,
                        const struct mw_hw_ethernet_row *r)
{
    for (const char *at = r->lanes_typical; at != NULL;) {
        char *end = NULL;
        double lanes = strtod(at, &end);
        double each = *end == 'x' ? strtod(end + 1, &end) : (double)NAN;
        double total = lanes * each;
        if (!(total >= 0.999 * r->rate_Gbps && total <= 1.08 * r->rate_Gbps)) {
            mw_hw_bad(c, i, "lanes_typical",
                      "'%s' signals %g Gb/s; a rate of %g Gb/s needs 0 to 8 %% "
                      "more than that",
                      at, total, r->rate_Gbps);
        }
        at = strstr(end, " or ");
        at = at != NULL ? at + strlen(" or ") : NULL;
    }
}

void mw_hw_check_ethernet(struct mw_hw_check *c)
{
    const struct mw_hw_ethernet_row *rows =
        MW_HW_ROWS(c->db, MW_HW_ETHERNET, struct mw_hw_ethernet_row);
    for (size_t i = 0; i < mw_hw_n_rows(c->db, MW_HW_ETHERNET); i++) {
        const struct mw_hw_ethernet_row *r = &rows[i];
        check_lanes(c, i, r);
        mw_hw_expect(c, i, "GBps_per_dir", r->GBps_per_dir, r->rate_Gbps / 8,
                     ROUNDING, "%g Gb/s / 8", r->rate_Gbps);
        check_pair(c, i, "GBps_bidir", r->GBps_bidir, r->GBps_per_dir);
        mw_hw_expect_max(c, i, "roce_latency_us_low", r->roce_latency_us_low,
                         r->roce_latency_us_high, "roce_latency_us_high");
        mw_hw_expect_max(c, i, "tcp_latency_us_low", r->tcp_latency_us_low,
                         r->tcp_latency_us_high, "tcp_latency_us_high");
    }
}
