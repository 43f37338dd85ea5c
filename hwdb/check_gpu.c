/*
 * Rules of gpus.csv: links x link = total and x 2 = both directions; the link
 * is that of the NVLink generation; the dense 16-bit peak does not exceed
 * SMs x clock x FLOP per clock of the architecture (a brochure's figure with
 * sparsity is twice that).
 */
#include "hwdb/hwdb_int.h"

#include <math.h>
#include <string.h>

static const double ROUNDING = 1e-3;

static void check_status(struct mw_hw_check *c, size_t i, const char *status)
{
    if (!mw_hw_list_has("past;ga;china;cloud;announced;host", status)) {
        mw_hw_bad(c, i, "status",
                  "'%s' must be past, ga, china, cloud, announced or host",
                  status);
    }
}

char mw_hw_nvlink_digit(const char *scaleup)
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
    const struct mw_hw_nvlink_row *rows =
        MW_HW_ROWS(db, MW_HW_NVLINK, struct mw_hw_nvlink_row);
    *out_any = -1;
    for (size_t i = 0; i < mw_hw_n_rows(db, MW_HW_NVLINK); i++) {
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

static void check_gpu_nvlink(struct mw_hw_check *c, size_t i,
                             const struct mw_hw_gpu_row *r)
{
    char digit = mw_hw_nvlink_digit(r->scaleup);
    if (digit == '\0') {
        return;
    }
    const struct mw_hw_table *t = &c->db->tables[MW_HW_NVLINK];
    const struct mw_hw_nvlink_row *rows = t->rows;
    long any;
    long at = nvlink_row(c->db, digit, r->link_GBps_per_dir, &any);
    if (any < 0) {
        mw_hw_bad(c, i, "scaleup", "no generation %c in nvlink.csv", digit);
        return;
    }
    if (at < 0) {
        mw_hw_bad(c, i, "link_GBps_per_dir",
                  "is %g but a link of NVLink %c has %g GB/s per direction "
                  "(%s:%d)",
                  r->link_GBps_per_dir, digit, rows[any].link_GBps_per_dir,
                  t->row_file[any], t->csv.line[any]);
        return;
    }
    bool is_cut = mw_hw_casecmp(r->status, "china") == 0 ||
                  strstr(r->scaleup, "bridge") != NULL;
    if (r->links > rows[at].links_per_gpu ||
        (!is_cut && r->links != rows[at].links_per_gpu)) {
        mw_hw_bad(c, i, "links", "is %lld but NVLink %s has %lld a GPU (%s:%d)",
                  (long long)r->links, rows[at].generation,
                  (long long)rows[at].links_per_gpu, t->row_file[at],
                  t->csv.line[at]);
    }
}

/* FLOP per clock and SM by compute capability, else by architecture. */
static const struct mw_constant *tensor_rate(const struct mw_hwdb *db,
                                             const struct mw_hw_gpu_row *r)
{
    static const char *const what = "tensor_flop_per_clock";
    return mw_hw_constant_of(db, what, *r->cc != '\0' ? r->cc : r->arch, NULL);
}

static void check_gpu_peak(struct mw_hw_check *c, size_t i,
                           const struct mw_hw_gpu_row *r)
{
    double any = isnan(r->fp32_tflops) ? r->bf16_tflops : r->fp32_tflops;
    if (isnan(any)) {
        mw_hw_bad(c, i, "bf16_tflops",
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
            mw_hw_bad(
                c, i, cols[k],
                "is %g but %lld SMs x %g MHz x %g FLOP a clock give %.5g: "
                "dense rates are wanted, a rate with sparsity is twice "
                "that",
                tflops[k], (long long)r->sms, r->boost_MHz, rate->value, peak);
        }
    }
    if (!isnan(r->bf16_tflops)) {
        mw_hw_expect_max(c, i, "tf32_tflops", r->tf32_tflops, r->bf16_tflops,
                         "bf16_tflops");
        if (r->fp8_tflops < r->bf16_tflops) {
            mw_hw_bad(c, i, "fp8_tflops", "is %g, below bf16's %g",
                      r->fp8_tflops, r->bf16_tflops);
        }
    }
}

static void check_gpu_positive(struct mw_hw_check *c, size_t i,
                               const struct mw_hw_gpu_row *r)
{
    const double v[] = {r->fp32_tflops, r->tf32_tflops, r->fp16_tflops,
                        r->bf16_tflops, r->fp8_tflops,  r->fp4_tflops,
                        r->mem_GiB,     r->mem_bw_GBps};
    const char *const cols[] = {"fp32_tflops", "tf32_tflops", "fp16_tflops",
                                "bf16_tflops", "fp8_tflops",  "fp4_tflops",
                                "mem_GiB",     "mem_bw_GBps"};
    for (size_t k = 0; k < sizeof v / sizeof *v; k++) {
        if (v[k] <= 0) {
            mw_hw_bad(c, i, cols[k],
                      "must be positive; leave the cell empty when "
                      "there is no such rate");
        }
    }
}

static bool has_pcie(const struct mw_hwdb *db, const char *gen)
{
    const struct mw_hw_pcie_row *rows =
        MW_HW_ROWS(db, MW_HW_PCIE, struct mw_hw_pcie_row);
    for (size_t i = 0; i < mw_hw_n_rows(db, MW_HW_PCIE); i++) {
        if (strcmp(rows[i].gen, gen) == 0) {
            return true;
        }
    }
    return *gen == '\0';
}

void mw_hw_check_gpus(struct mw_hw_check *c)
{
    const struct mw_hw_gpu_row *rows =
        MW_HW_ROWS(c->db, MW_HW_GPUS, struct mw_hw_gpu_row);
    for (size_t i = 0; i < mw_hw_n_rows(c->db, MW_HW_GPUS); i++) {
        const struct mw_hw_gpu_row *r = &rows[i];
        check_status(c, i, r->status);
        check_gpu_positive(c, i, r);
        check_gpu_peak(c, i, r);
        check_gpu_nvlink(c, i, r);
        if (!isnan(r->link_GBps_per_dir)) {
            mw_hw_expect(c, i, "scaleup_GBps_per_dir", r->scaleup_GBps_per_dir,
                         (double)r->links * r->link_GBps_per_dir, ROUNDING,
                         "%lld links x %g GB/s per direction",
                         (long long)r->links, r->link_GBps_per_dir);
        }
        mw_hw_expect(c, i, "scaleup_total_bidir_GBps",
                     r->scaleup_total_bidir_GBps, 2 * r->scaleup_GBps_per_dir,
                     ROUNDING, "2 x %g GB/s per direction",
                     r->scaleup_GBps_per_dir);
        if (!has_pcie(c->db, r->pcie_gen)) {
            mw_hw_bad(c, i, "pcie_gen", "no generation '%s' in pcie.csv",
                      r->pcie_gen);
        }
    }
}
