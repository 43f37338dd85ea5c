/*
 * Rules of gpus.csv and systems.csv.
 *
 * Devices: links x link = total and x 2 = both directions; the link is that of
 * the NVLink generation; the dense fp16 peak does not exceed SMs x clock x
 * FLOP per clock of the architecture (a brochure's figure with sparsity is
 * twice that).
 * Systems: GPUs x NICs, the domain against its NVSwitch row, the bandwidth
 * inside against the links of the GPU, the NIC against its port speed.
 */
#include "hwdb/hwdb_int.h"

#include <ctype.h>
#include <math.h>
#include <string.h>

static const double ROUNDING = 1e-3;
/* A domain up to this size is one node; beyond it is a rack of trays. */
enum { NODE_GPUS_MAX = 16 };

/* ---- gpus -------------------------------------------------------------------
 */

static void check_status(struct hw_check *c, size_t i, const char *status)
{
    if (!hw_list_has("past;ga;china;cloud;announced;host", status)) {
        hw_bad(c, i, "status",
               "'%s' must be past, ga, china, cloud, announced or host",
               status);
    }
}

/* Generation digit of "NVLink4 bridge (pair)", 0 when it is no NVLink. */
static char nvlink_digit(const char *scaleup)
{
    static const char *const prefix = "NVLink";
    size_t n = strlen(prefix);
    return strncmp(scaleup, prefix, n) == 0 ? scaleup[n] : '\0';
}

/* Whether a generation "3" or "3-ga102" belongs to the digit. */
static bool is_generation(const char *generation, char digit)
{
    return generation[0] == digit &&
           (generation[1] == '\0' || generation[1] == '-');
}

/* The row of the generation whose link has this rate; *out_any is any row of
 * the generation, for the message. */
static long nvlink_row(const struct mw_hwdb *db, char digit, double link,
                       long *out_any)
{
    const struct hw_nvlink_row *rows =
        HW_ROWS(db, HW_NVLINK, struct hw_nvlink_row);
    *out_any = -1;
    for (size_t i = 0; i < hw_n_rows(db, HW_NVLINK); i++) {
        if (!is_generation(rows[i].generation, digit)) {
            continue;
        }
        if (*out_any < 0) {
            *out_any = (long)i;
        }
        if (mw_near(rows[i].link_GBps_per_dir, link, ROUNDING, 0)) {
            return (long)i;
        }
    }
    return -1;
}

static void check_gpu_nvlink(struct hw_check *c, size_t i,
                             const struct hw_gpu_row *r)
{
    char digit = nvlink_digit(r->scaleup);
    if (digit == '\0') {
        return;
    }
    const struct hw_table *t = &c->db->tables[HW_NVLINK];
    const struct hw_nvlink_row *rows = t->rows;
    long any;
    long at = nvlink_row(c->db, digit, r->link_GBps_per_dir, &any);
    if (any < 0) {
        hw_bad(c, i, "scaleup", "no generation %c in nvlink.csv", digit);
        return;
    }
    if (at < 0) {
        hw_bad(c, i, "link_GBps_per_dir",
               "is %g but a link of NVLink %c has %g GB/s per direction "
               "(%s:%d)",
               r->link_GBps_per_dir, digit, rows[any].link_GBps_per_dir,
               t->row_file[any], t->csv.line[any]);
        return;
    }
    bool is_cut = hw_casecmp(r->status, "china") == 0 ||
                  strstr(r->scaleup, "bridge") != NULL;
    if (r->links > rows[at].links_per_gpu ||
        (!is_cut && r->links != rows[at].links_per_gpu)) {
        hw_bad(c, i, "links", "is %lld but NVLink %s has %lld a GPU (%s:%d)",
               (long long)r->links, rows[at].generation,
               (long long)rows[at].links_per_gpu, t->row_file[at],
               t->csv.line[at]);
    }
}

/* FLOP per clock and SM by compute capability, else by architecture. */
static const struct mw_constant *tensor_rate(const struct mw_hwdb *db,
                                             const struct hw_gpu_row *r)
{
    static const char *const what = "tensor_flop_per_clock";
    return hw_constant_of(db, what, *r->cc != '\0' ? r->cc : r->arch, NULL);
}

static void check_gpu_peak(struct hw_check *c, size_t i,
                           const struct hw_gpu_row *r)
{
    double any = isnan(r->fp32_tflops) ? r->bf16_tflops : r->fp32_tflops;
    if (isnan(any)) {
        hw_bad(c, i, "bf16_tflops",
               "a device needs the peak of fp32 or bf16 at least");
    }
    const struct mw_constant *rate = tensor_rate(c->db, r);
    if (rate == NULL || r->sms == 0 || isnan(r->boost_MHz)) {
        return;
    }
    double peak = (double)r->sms * r->boost_MHz * 1e6 * rate->value / 1e12;
    const double tflops[] = {r->fp16_tflops, r->bf16_tflops};
    const char *const cols[] = {"fp16_tflops", "bf16_tflops"};
    for (size_t k = 0; k < 2; k++) {
        if (tflops[k] > 1.02 * peak) {
            hw_bad(c, i, cols[k],
                   "is %g but %lld SMs x %g MHz x %g FLOP a clock give %.5g: "
                   "dense rates are wanted, a rate with sparsity is twice "
                   "that",
                   tflops[k], (long long)r->sms, r->boost_MHz, rate->value,
                   peak);
        }
    }
    if (!isnan(r->bf16_tflops)) {
        hw_expect_max(c, i, "tf32_tflops", r->tf32_tflops, r->bf16_tflops,
                      "bf16_tflops");
        if (r->fp8_tflops < r->bf16_tflops) {
            hw_bad(c, i, "fp8_tflops", "is %g, below bf16's %g", r->fp8_tflops,
                   r->bf16_tflops);
        }
    }
}

static void check_gpu_positive(struct hw_check *c, size_t i,
                               const struct hw_gpu_row *r)
{
    const double v[] = {r->fp32_tflops, r->tf32_tflops, r->fp16_tflops,
                        r->bf16_tflops, r->fp8_tflops,  r->fp4_tflops,
                        r->mem_GiB,     r->mem_bw_GBps};
    const char *const cols[] = {"fp32_tflops", "tf32_tflops", "fp16_tflops",
                                "bf16_tflops", "fp8_tflops",  "fp4_tflops",
                                "mem_GiB",     "mem_bw_GBps"};
    for (size_t k = 0; k < sizeof v / sizeof *v; k++) {
        if (v[k] <= 0) {
            hw_bad(c, i, cols[k],
                   "must be positive; leave the cell empty when "
                   "there is no such rate");
        }
    }
}

static bool has_pcie(const struct mw_hwdb *db, const char *gen)
{
    const struct hw_pcie_row *rows = HW_ROWS(db, HW_PCIE, struct hw_pcie_row);
    for (size_t i = 0; i < hw_n_rows(db, HW_PCIE); i++) {
        if (strcmp(rows[i].gen, gen) == 0) {
            return true;
        }
    }
    return *gen == '\0';
}

void hw_check_gpus(struct hw_check *c)
{
    const struct hw_gpu_row *rows = HW_ROWS(c->db, HW_GPUS, struct hw_gpu_row);
    for (size_t i = 0; i < hw_n_rows(c->db, HW_GPUS); i++) {
        const struct hw_gpu_row *r = &rows[i];
        check_status(c, i, r->status);
        check_gpu_positive(c, i, r);
        check_gpu_peak(c, i, r);
        check_gpu_nvlink(c, i, r);
        if (!isnan(r->link_GBps_per_dir)) {
            hw_expect(c, i, "scaleup_GBps_per_dir", r->scaleup_GBps_per_dir,
                      (double)r->links * r->link_GBps_per_dir, ROUNDING,
                      "%lld links x %g GB/s per direction", (long long)r->links,
                      r->link_GBps_per_dir);
        }
        hw_expect(c, i, "scaleup_total_bidir_GBps", r->scaleup_total_bidir_GBps,
                  2 * r->scaleup_GBps_per_dir, ROUNDING,
                  "2 x %g GB/s per direction", r->scaleup_GBps_per_dir);
        if (!has_pcie(c->db, r->pcie_gen)) {
            hw_bad(c, i, "pcie_gen", "no generation '%s' in pcie.csv",
                   r->pcie_gen);
        }
    }
}

/* ---- systems ----------------------------------------------------------------
 */

static long nvswitch_row(const struct mw_hwdb *db,
                         const struct hw_system_row *s)
{
    const struct hw_nvswitch_row *rows =
        HW_ROWS(db, HW_NVSWITCH, struct hw_nvswitch_row);
    for (size_t i = 0; i < hw_n_rows(db, HW_NVSWITCH); i++) {
        if (strcmp(rows[i].generation, s->nvswitch_gen) == 0 &&
            rows[i].chips_per_system == s->nvswitch_chips) {
            return (long)i;
        }
    }
    return -1;
}

static void check_domain(struct hw_check *c, size_t i,
                         const struct hw_system_row *s)
{
    bool is_switched = *s->nvswitch_gen != '\0';
    if (!is_switched && strstr(s->intra_fabric, "NVSwitch") != NULL) {
        hw_bad(c, i, "nvswitch_gen",
               "'%s' needs nvswitch_gen and nvswitch_chips", s->intra_fabric);
    }
    if (s->scaleup_domain_gpus < s->gpus_per_node ||
        s->scaleup_domain_gpus % s->gpus_per_node != 0) {
        hw_bad(c, i, "scaleup_domain_gpus",
               "is %lld, no multiple of the %lld GPUs of a node",
               (long long)s->scaleup_domain_gpus, (long long)s->gpus_per_node);
    }
    if (!is_switched) {
        return;
    }
    const struct hw_table *t = &c->db->tables[HW_NVSWITCH];
    const struct hw_nvswitch_row *rows = t->rows;
    long at = nvswitch_row(c->db, s);
    if (at < 0) {
        hw_bad(c, i, "nvswitch_chips",
               "no system with %lld chips of NVSwitch %s in nvswitch.csv",
               (long long)s->nvswitch_chips, s->nvswitch_gen);
        return;
    }
    int64_t domain = rows[at].gpus_per_domain;
    if (s->scaleup_domain_gpus != domain) {
        hw_bad(c, i, "scaleup_domain_gpus",
               "is %lld but %s has %lld GPUs in a domain (%s:%d)",
               (long long)s->scaleup_domain_gpus, rows[at].system,
               (long long)domain, t->row_file[at], t->csv.line[at]);
    } else if (domain <= NODE_GPUS_MAX && s->gpus_per_node != domain) {
        hw_bad(c, i, "gpus_per_node",
               "is %lld but the %lld GPUs of %s are one node (%s:%d)",
               (long long)s->gpus_per_node, (long long)domain, rows[at].system,
               t->row_file[at], t->csv.line[at]);
    }
}

static double pcie_theory(const struct mw_hwdb *db, char gen)
{
    const struct hw_pcie_row *rows = HW_ROWS(db, HW_PCIE, struct hw_pcie_row);
    for (size_t i = 0; i < hw_n_rows(db, HW_PCIE); i++) {
        if (rows[i].gen[0] == gen && rows[i].gen[1] == '\0') {
            return rows[i].x16_GBps_per_dir_theory;
        }
    }
    return NAN;
}

static void check_intra(struct hw_check *c, size_t i,
                        const struct hw_system_row *s,
                        const struct hw_gpu_row *gpu)
{
    double intra = s->intra_GBps_per_gpu_per_dir;
    char digit = nvlink_digit(gpu->scaleup);
    if (strncmp(s->intra_class, "nvlink", 6) == 0) {
        if (s->intra_class[6] != digit) {
            hw_bad(c, i, "intra_class", "is '%s' but %s has %s", s->intra_class,
                   gpu->slug, gpu->scaleup);
        }
        hw_expect(c, i, "intra_GBps_per_gpu_per_dir", intra,
                  gpu->scaleup_GBps_per_dir, ROUNDING,
                  "%lld links x %g GB/s per direction of %s",
                  (long long)gpu->links, gpu->link_GBps_per_dir, gpu->slug);
    } else if (strncmp(s->intra_class, "pcie", 4) == 0) {
        hw_expect_max(c, i, "intra_GBps_per_gpu_per_dir", intra,
                      pcie_theory(c->db, s->intra_class[4]),
                      "a %s x16 slot in one direction", s->intra_class);
    } else if (gpu->scaleup_GBps_per_dir > 0) {
        hw_expect_max(c, i, "intra_GBps_per_gpu_per_dir", intra,
                      gpu->scaleup_GBps_per_dir, "all links of %s", gpu->slug);
    }
    if (*s->nvswitch_gen != '\0') {
        hw_expect(c, i, "peer_GBps_per_dir", s->peer_GBps_per_dir, intra,
                  ROUNDING, "a switched fabric (all links reach every peer)");
    }
    hw_expect_max(c, i, "peer_GBps_per_dir", s->peer_GBps_per_dir, intra,
                  "intra_GBps_per_gpu_per_dir");
    if (!(intra > 0) || !(s->peer_GBps_per_dir > 0)) {
        hw_bad(c, i, "intra_GBps_per_gpu_per_dir", "must be positive");
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
static void check_nic(struct hw_check *c, size_t i,
                      const struct hw_system_row *s)
{
    const struct hw_infiniband_row *ib =
        HW_ROWS(c->db, HW_INFINIBAND, struct hw_infiniband_row);
    const struct hw_ethernet_row *eth =
        HW_ROWS(c->db, HW_ETHERNET, struct hw_ethernet_row);
    bool is_speed = false;
    for (size_t k = 0; k < hw_n_rows(c->db, HW_ETHERNET); k++) {
        is_speed |= mw_near(s->nic_Gbps, eth[k].rate_Gbps, 1e-9, 0);
    }
    for (size_t k = 0; k < hw_n_rows(c->db, HW_INFINIBAND); k++) {
        is_speed |= mw_near(s->nic_Gbps, ib[k].link_4x_Gbps_nominal, 1e-9, 0);
        if (has_word(s->nic_type, ib[k].name)) {
            hw_expect(c, i, "nic_Gbps", s->nic_Gbps, ib[k].link_4x_Gbps_nominal,
                      1e-9, "a port of InfiniBand %s", ib[k].name);
        }
    }
    if (!is_speed) {
        hw_bad(c, i, "nic_Gbps",
               "%g Gb/s is no port speed of infiniband.csv or ethernet.csv "
               "(GB/s or a sum over NICs?)",
               s->nic_Gbps);
    }
}

static void check_net(struct hw_check *c, size_t i,
                      const struct hw_system_row *s)
{
    hw_expect(c, i, "node_net_GBps_per_dir", s->node_net_GBps_per_dir,
              (double)s->nics_per_node * s->nic_Gbps / 8, ROUNDING,
              "%lld NICs x %g Gb/s / 8", (long long)s->nics_per_node,
              s->nic_Gbps);
    if (s->nics_per_node > 0) {
        check_nic(c, i, s);
    }
    if ((s->nics_per_node > 0) == (hw_casecmp(s->inter_class, "none") == 0)) {
        hw_bad(c, i, "inter_class",
               "is '%s' with %lld NICs; 'none' is for "
               "systems without one",
               s->inter_class, (long long)s->nics_per_node);
    }
    if (s->rails > s->nics_per_node) {
        hw_bad(c, i, "rails", "%lld rails but %lld NICs", (long long)s->rails,
               (long long)s->nics_per_node);
    }
}

static void check_classes(struct hw_check *c, size_t i)
{
    const struct mw_system *s = &c->db->systems[i];
    if (s->intra_alpha == NULL || s->intra_eff == NULL) {
        hw_bad(c, i, "intra_class",
               "constants.csv has no intra_alpha_s.%s and intra_efficiency.%s",
               s->intra_class, s->intra_class);
    }
    if (s->node_net_bw_Bps > 0 &&
        (s->inter_alpha == NULL || s->inter_eff == NULL)) {
        hw_bad(c, i, "inter_class",
               "constants.csv has no inter_alpha_s.%s and inter_efficiency.%s",
               s->inter_class, s->inter_class);
    }
}

void hw_check_systems(struct hw_check *c)
{
    const struct hw_system_row *rows =
        HW_ROWS(c->db, HW_SYSTEMS, struct hw_system_row);
    const struct hw_gpu_row *gpus = HW_ROWS(c->db, HW_GPUS, struct hw_gpu_row);
    for (size_t i = 0; i < hw_n_rows(c->db, HW_SYSTEMS); i++) {
        const struct hw_system_row *s = &rows[i];
        long gpu = hw_gpu_row(c->db, s->gpu);
        if (gpu < 0) {
            const char *near = hw_nearest(c->db, s->gpu);
            hw_bad(c, i, "gpu", "no device '%s' in gpus.csv%s%s%s", s->gpu,
                   near ? "; did you mean '" : "", near ? near : "",
                   near ? "'?" : "");
            continue;
        }
        if (s->gpus_per_node < 1) {
            hw_bad(c, i, "gpus_per_node", "must be at least 1");
            continue;
        }
        check_domain(c, i, s);
        check_intra(c, i, s, &gpus[gpu]);
        check_net(c, i, s);
        check_classes(c, i);
    }
}
