/*
 * Rules of systems.csv: GPUs x NICs, the domain against its NVSwitch row, the
 * bandwidth inside against the links of the GPU, the NIC against the port
 * speeds, the classes against constants.csv.
 */
#include "hwdb/hwdb_int.h"

#include <ctype.h>
#include <math.h>
#include <string.h>

static const double ROUNDING = 1e-3;
/* A domain up to this size is one node; beyond it is a rack of trays. */
enum { NODE_GPUS_MAX = 16 };

static long nvswitch_row(const struct mw_hwdb *db,
                         const struct mw_hw_system_row *s)
{
    const struct mw_hw_nvswitch_row *rows =
        MW_HW_ROWS(db, MW_HW_NVSWITCH, struct mw_hw_nvswitch_row);
    for (size_t i = 0; i < mw_hw_n_rows(db, MW_HW_NVSWITCH); i++) {
        if (strcmp(rows[i].generation, s->nvswitch_gen) == 0 &&
            rows[i].chips_per_system == s->nvswitch_chips) {
            return (long)i;
        }
    }
    return -1;
}

static void check_domain(struct mw_hw_check *c, size_t i,
                         const struct mw_hw_system_row *s)
{
    bool is_switched = *s->nvswitch_gen != '\0';
    if (!is_switched && strstr(s->intra_fabric, "NVSwitch") != NULL) {
        mw_hw_bad(c, i, "nvswitch_gen",
                  "'%s' needs nvswitch_gen and nvswitch_chips",
                  s->intra_fabric);
    }
    if (s->scaleup_domain_gpus < s->gpus_per_node ||
        s->scaleup_domain_gpus % s->gpus_per_node != 0) {
        mw_hw_bad(c, i, "scaleup_domain_gpus",
                  "is %lld, no multiple of the %lld GPUs of a node",
                  (long long)s->scaleup_domain_gpus,
                  (long long)s->gpus_per_node);
    }
    if (!is_switched) {
        return;
    }
    const struct mw_hw_table *t = &c->db->tables[MW_HW_NVSWITCH];
    const struct mw_hw_nvswitch_row *rows = t->rows;
    long at = nvswitch_row(c->db, s);
    if (at < 0) {
        mw_hw_bad(c, i, "nvswitch_chips",
                  "no system with %lld chips of NVSwitch %s in nvswitch.csv",
                  (long long)s->nvswitch_chips, s->nvswitch_gen);
        return;
    }
    int64_t domain = rows[at].gpus_per_domain;
    if (s->scaleup_domain_gpus != domain) {
        mw_hw_bad(c, i, "scaleup_domain_gpus",
                  "is %lld but %s has %lld GPUs in a domain (%s:%d)",
                  (long long)s->scaleup_domain_gpus, rows[at].system,
                  (long long)domain, t->row_file[at], t->csv.line[at]);
    } else if (domain <= NODE_GPUS_MAX && s->gpus_per_node != domain) {
        mw_hw_bad(c, i, "gpus_per_node",
                  "is %lld but the %lld GPUs of %s are one node (%s:%d)",
                  (long long)s->gpus_per_node, (long long)domain,
                  rows[at].system, t->row_file[at], t->csv.line[at]);
    }
}

static double pcie_theory(const struct mw_hwdb *db, const char *gen)
{
    const struct mw_hw_pcie_row *rows =
        MW_HW_ROWS(db, MW_HW_PCIE, struct mw_hw_pcie_row);
    for (size_t i = 0; i < mw_hw_n_rows(db, MW_HW_PCIE); i++) {
        if (strcmp(rows[i].gen, gen) == 0) {
            return rows[i].x16_GBps_per_dir_theory;
        }
    }
    return (double)NAN;
}

static void check_intra(struct mw_hw_check *c, size_t i,
                        const struct mw_hw_system_row *s,
                        const struct mw_hw_gpu_row *gpu)
{
    double intra = s->intra_GBps_per_gpu_per_dir;
    char digit = mw_hw_nvlink_digit(gpu->scaleup);
    if (strncmp(s->intra_class, "nvlink", 6) == 0) {
        if (s->intra_class[6] != digit) {
            mw_hw_bad(c, i, "intra_class", "is '%s' but %s has %s",
                      s->intra_class, gpu->slug, gpu->scaleup);
        }
        mw_hw_expect(c, i, "intra_GBps_per_gpu_per_dir", intra,
                     gpu->scaleup_GBps_per_dir, ROUNDING,
                     "%lld links x %g GB/s per direction of %s",
                     (long long)gpu->links, gpu->link_GBps_per_dir, gpu->slug);
    } else if (strncmp(s->intra_class, "pcie", 4) == 0) {
        mw_hw_expect_max(c, i, "intra_GBps_per_gpu_per_dir", intra,
                         pcie_theory(c->db, s->intra_class + 4),
                         "a %s x16 slot in one direction", s->intra_class);
    } else if (gpu->scaleup_GBps_per_dir > 0) {
        mw_hw_expect_max(c, i, "intra_GBps_per_gpu_per_dir", intra,
                         gpu->scaleup_GBps_per_dir, "all links of %s",
                         gpu->slug);
    }
    if (*s->nvswitch_gen != '\0') {
        mw_hw_expect(c, i, "peer_GBps_per_dir", s->peer_GBps_per_dir, intra,
                     ROUNDING,
                     "a switched fabric (all links reach every peer)");
    }
    mw_hw_expect_max(c, i, "peer_GBps_per_dir", s->peer_GBps_per_dir, intra,
                     "intra_GBps_per_gpu_per_dir");
    if (!(intra > 0) || !(s->peer_GBps_per_dir > 0)) {
        mw_hw_bad(c, i, "intra_GBps_per_gpu_per_dir", "must be positive");
    }
}

/* Whether text has the word, not followed by a letter or digit. */
static bool has_word(const char *text, const char *word)
{
    size_t n = strlen(word);
    for (const char *at = strstr(text, word); at; at = strstr(at + 1, word)) {
        bool is_start = at == text || !isalnum((unsigned char)at[-1]);
        if (is_start && !isalnum((unsigned char)at[n])) {
            return true;
        }
    }
    return false;
}

/* NIC speeds are port speeds of InfiniBand or Ethernet; a GB/s figure in the
 * Gb/s column, or a node's total, is not. */
static void check_nic(struct mw_hw_check *c, size_t i,
                      const struct mw_hw_system_row *s)
{
    const struct mw_hw_infiniband_row *ib =
        MW_HW_ROWS(c->db, MW_HW_INFINIBAND, struct mw_hw_infiniband_row);
    const struct mw_hw_ethernet_row *eth =
        MW_HW_ROWS(c->db, MW_HW_ETHERNET, struct mw_hw_ethernet_row);
    bool is_speed = false;
    for (size_t k = 0; k < mw_hw_n_rows(c->db, MW_HW_ETHERNET); k++) {
        is_speed |= mw_near(s->nic_Gbps, eth[k].rate_Gbps, 1e-9, 0);
    }
    for (size_t k = 0; k < mw_hw_n_rows(c->db, MW_HW_INFINIBAND); k++) {
        is_speed |= mw_near(s->nic_Gbps, ib[k].link_4x_Gbps_nominal, 1e-9, 0);
        if (has_word(s->nic_type, ib[k].name)) {
            mw_hw_expect(c, i, "nic_Gbps", s->nic_Gbps,
                         ib[k].link_4x_Gbps_nominal, 1e-9,
                         "a port of InfiniBand %s", ib[k].name);
        }
    }
    if (!is_speed) {
        mw_hw_bad(c, i, "nic_Gbps",
                  "%g Gb/s is no port speed of infiniband.csv or ethernet.csv "
                  "(GB/s or a sum over NICs?)",
                  s->nic_Gbps);
    }
}

static void check_net(struct mw_hw_check *c, size_t i,
                      const struct mw_hw_system_row *s,
                      const struct mw_hw_gpu_row *gpu)
{
    mw_hw_expect(c, i, "node_net_GBps_per_dir", s->node_net_GBps_per_dir,
                 (double)s->nics_per_node * s->nic_Gbps / 8, ROUNDING,
                 "%lld NICs x %g Gb/s / 8", (long long)s->nics_per_node,
                 s->nic_Gbps);
    if (s->nics_per_node > 0) {
        check_nic(c, i, s);
        double slot = pcie_theory(c->db, gpu->pcie_gen);
        if (s->nic_Gbps / 8 > slot) {
            mw_hw_bad(c, i, "nic_Gbps",
                      "%g Gb/s for one NIC do not fit the %g GB/s of a PCIe %s "
                      "x16 slot, the link of %s (a sum over NICs?)",
                      s->nic_Gbps, slot, gpu->pcie_gen, gpu->slug);
        }
    }
    if ((s->nics_per_node > 0) ==
        (mw_hw_casecmp(s->inter_class, "none") == 0)) {
        mw_hw_bad(c, i, "inter_class",
                  "is '%s' with %lld NICs; 'none' is for "
                  "systems without one",
                  s->inter_class, (long long)s->nics_per_node);
    }
    if (s->rails > s->nics_per_node) {
        mw_hw_bad(c, i, "rails", "%lld rails but %lld NICs",
                  (long long)s->rails, (long long)s->nics_per_node);
    }
}

static void check_classes(struct mw_hw_check *c, size_t i)
{
    const struct mw_system *s = &c->db->systems[i];
    if (s->intra_alpha == NULL || s->intra_eff == NULL) {
        mw_hw_bad(
            c, i, "intra_class",
            "constants.csv has no intra_alpha_s.%s and intra_efficiency.%s",
            s->intra_class, s->intra_class);
    }
    if (s->node_net_bw_Bps > 0 &&
        (s->inter_alpha == NULL || s->inter_eff == NULL)) {
        mw_hw_bad(
            c, i, "inter_class",
            "constants.csv has no inter_alpha_s.%s and inter_efficiency.%s",
            s->inter_class, s->inter_class);
    }
}

void mw_hw_check_systems(struct mw_hw_check *c)
{
    const struct mw_hw_system_row *rows =
        MW_HW_ROWS(c->db, MW_HW_SYSTEMS, struct mw_hw_system_row);
    const struct mw_hw_gpu_row *gpus =
        MW_HW_ROWS(c->db, MW_HW_GPUS, struct mw_hw_gpu_row);
    for (size_t i = 0; i < mw_hw_n_rows(c->db, MW_HW_SYSTEMS); i++) {
        const struct mw_hw_system_row *s = &rows[i];
        long gpu = mw_hw_find_gpu(c->db, s->gpu);
        if (gpu < 0) {
            const char *near = mw_hwdb_nearest(c->db, s->gpu);
            mw_hw_bad(c, i, "gpu", "no device '%s' in gpus.csv%s%s%s", s->gpu,
                      near ? "; did you mean '" : "", near ? near : "",
                      near ? "'?" : "");
            continue;
        }
        if (s->gpus_per_node < 1) {
            mw_hw_bad(c, i, "gpus_per_node", "must be at least 1");
            continue;
        }
        check_domain(c, i, s);
        check_intra(c, i, s, &gpus[gpu]);
        check_net(c, i, s, &gpus[gpu]);
        check_classes(c, i);
    }
}
