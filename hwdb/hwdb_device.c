/*
 * Devices and systems as the cost model wants them: SI units, the efficiency
 * of each precision with the row that gave it, and the latency and efficiency
 * class of each fabric resolved to its constants.
 *
 * Efficiency of large matrix products (achieved / dense peak), first that is
 * there: constant gemm_efficiency.SLUG.DTYPE, .SLUG; a measured row of
 * achieved_matmul (fp16 takes the bf16 row: the same tensor-core rate);
 * constants .ARCH.DTYPE, .ARCH, .default.
 */
#include "hwdb/hwdb_int.h"

#include <math.h>

const char *const mw_hw_dtype_names[MW_HW_DTYPES] = {"fp32", "tf32", "bf16",
                                                     "fp16", "fp8",  "fp4"};
enum { BF16 = 2, FP16 = 3 };

static const struct mw_hw_achieved_row *achieved(const struct mw_hwdb *db,
                                                 long gpu, const char *dtype)
{
    const struct mw_hw_achieved_row *rows =
        MW_HW_ROWS(db, MW_HW_ACHIEVED, struct mw_hw_achieved_row);
    for (size_t i = 0; i < mw_hw_n_rows(db, MW_HW_ACHIEVED); i++) {
        if (mw_hw_find_gpu(db, rows[i].gpu) == gpu &&
            mw_hw_casecmp(rows[i].dtype, dtype) == 0) {
            return &rows[i];
        }
    }
    return NULL;
}

/* Sets efficiency and source of one precision from a constant, if any. */
static bool from_constant(struct mw_gpu *g, int dtype,
                          const struct mw_constant *c)
{
    if (c == NULL) {
        return false;
    }
    g->gemm_efficiency[dtype] = c->value;
    g->gemm_efficiency_source[dtype] = c->source;
    g->gemm_efficiency_confidence[dtype] = c->confidence;
    return true;
}

static void set_gemm_efficiency(struct mw_hwdb *db, long gpu, int dtype)
{
    static const char *const what = "gemm_efficiency";
    struct mw_gpu *g = &db->gpus[gpu];
    const char *name = mw_hw_dtype_names[dtype];
    g->gemm_efficiency[dtype] = (double)NAN;
    g->gemm_efficiency_source[dtype] = "";
    g->gemm_efficiency_confidence[dtype] = "";
    if (isnan(g->peak_flops[dtype])) {
        return;
    }
    if (from_constant(g, dtype, mw_hw_constant_of(db, what, g->slug, name)) ||
        from_constant(g, dtype, mw_hw_constant_of(db, what, g->slug, NULL))) {
        return;
    }
    const struct mw_hw_achieved_row *row = achieved(db, gpu, name);
    if (row == NULL && dtype == FP16) {
        row = achieved(db, gpu, mw_hw_dtype_names[BF16]);
    }
    if (row != NULL) {
        g->gemm_efficiency[dtype] =
            row->measured_tflops * 1e12 / g->peak_flops[dtype];
        g->gemm_efficiency_source[dtype] = row->source;
        g->gemm_efficiency_confidence[dtype] = row->confidence;
        return;
    }
    if (!from_constant(g, dtype, mw_hw_constant_of(db, what, g->arch, name)) &&
        !from_constant(g, dtype, mw_hw_constant_of(db, what, g->arch, NULL))) {
        from_constant(g, dtype, mw_hw_constant_of(db, what, "default", NULL));
    }
}

static void set_mem_efficiency(const struct mw_hwdb *db, struct mw_gpu *g)
{
    static const char *const what = "mem_efficiency";
    const struct mw_constant *c = mw_hw_constant_of(db, what, g->slug, NULL);
    if (c == NULL) {
        c = mw_hw_constant_of(db, what, g->arch, NULL);
    }
    if (c == NULL) {
        c = mw_hw_constant_of(db, what, "default", NULL);
    }
    g->mem_efficiency = c != NULL ? c->value : (double)NAN;
    g->mem_efficiency_source = c != NULL ? c->source : "";
    g->mem_efficiency_confidence = c != NULL ? c->confidence : "";
}

static void build_gpu(struct mw_hwdb *db, size_t i)
{
    const struct mw_hw_gpu_row *r =
        &MW_HW_ROWS(db, MW_HW_GPUS, struct mw_hw_gpu_row)[i];
    struct mw_gpu *g = &db->gpus[i];
    const double tflops[MW_HW_DTYPES] = {r->fp32_tflops, r->tf32_tflops,
                                         r->bf16_tflops, r->fp16_tflops,
                                         r->fp8_tflops,  r->fp4_tflops};
    *g = (struct mw_gpu){.slug = r->slug,
                         .name = r->name,
                         .aliases = r->aliases,
                         .vendor = r->vendor,
                         .form = r->form,
                         .arch = r->arch,
                         .mem_bytes = r->mem_GiB * 1073741824.0,
                         .mem_bw_Bps = r->mem_bw_GBps * 1e9,
                         .tdp_w = r->tdp_W,
                         .n_sms = (int)r->sms,
                         .scaleup = r->scaleup,
                         .n_links = (int)r->links,
                         .link_bw_Bps = r->link_GBps_per_dir * 1e9,
                         .scaleup_bw_Bps = r->scaleup_GBps_per_dir * 1e9,
                         .confidence = r->confidence,
                         .source = r->source,
                         .is_cpu = mw_hw_casecmp(r->form, "cpu") == 0};
    for (int d = 0; d < MW_HW_DTYPES; d++) {
        g->peak_flops[d] = tflops[d] * 1e12;
        set_gemm_efficiency(db, (long)i, d);
    }
    set_mem_efficiency(db, g);
}

/* NAME.SLUG before NAME.CLASS; NULL when neither is there. */
static const struct mw_constant *class_constant(const struct mw_hwdb *db,
                                                const char *what,
                                                const char *slug,
                                                const char *fabric_class)
{
    const struct mw_constant *c = mw_hw_constant_of(db, what, slug, NULL);
    return c != NULL ? c : mw_hw_constant_of(db, what, fabric_class, NULL);
}

static void set_classes(const struct mw_hwdb *db, struct mw_system *s)
{
    s->intra_alpha =
        class_constant(db, "intra_alpha_s", s->slug, s->intra_class);
    s->intra_eff =
        class_constant(db, "intra_efficiency", s->slug, s->intra_class);
    if (s->node_net_bw_Bps > 0) {
        s->inter_alpha =
            class_constant(db, "inter_alpha_s", s->slug, s->inter_class);
        s->inter_eff =
            class_constant(db, "inter_efficiency", s->slug, s->inter_class);
    }
    s->intra_alpha_s = s->intra_alpha != NULL ? s->intra_alpha->value : 0;
    s->intra_efficiency = s->intra_eff != NULL ? s->intra_eff->value : 1;
    s->inter_alpha_s = s->inter_alpha != NULL ? s->inter_alpha->value : 0;
    s->inter_efficiency = s->inter_eff != NULL ? s->inter_eff->value : 1;
}

static void build_system(struct mw_hwdb *db, size_t i)
{
    const struct mw_hw_system_row *r =
        &MW_HW_ROWS(db, MW_HW_SYSTEMS, struct mw_hw_system_row)[i];
    long gpu = mw_hw_find_gpu(db, r->gpu);
    db->systems[i] =
        (struct mw_system){.slug = r->slug,
                           .name = r->name,
                           .aliases = r->aliases,
                           .gpus_per_node = (int)r->gpus_per_node,
                           .gpu = gpu >= 0 ? &db->gpus[gpu] : NULL,
                           .intra_fabric = r->intra_fabric,
                           .intra_bw_Bps = r->intra_GBps_per_gpu_per_dir * 1e9,
                           .scaleup_gpus = (int)r->scaleup_domain_gpus,
                           .n_nics = (int)r->nics_per_node,
                           .nic_bw_Bps = r->nic_Gbps * 1e9 / 8,
                           .node_net_bw_Bps = r->node_net_GBps_per_dir * 1e9,
                           .confidence = r->confidence,
                           .source = r->source,
                           .peer_bw_Bps = r->peer_GBps_per_dir * 1e9,
                           .n_rails = (int)r->rails,
                           .n_sockets = (int)r->cpu_sockets,
                           .host_mem_bytes = r->host_mem_GB * 1e9,
                           .intra_class = r->intra_class,
                           .inter_class = r->inter_class};
    set_classes(db, &db->systems[i]);
    mw_hw_set_host(db, r, &db->systems[i]);
}

void mw_hw_devices_build(struct mw_hwdb *db)
{
    size_t n_gpus = mw_hw_n_rows(db, MW_HW_GPUS),
           n_sys = mw_hw_n_rows(db, MW_HW_SYSTEMS);
    db->gpus = mw_arena_alloc(&db->arena, n_gpus, sizeof *db->gpus);
    db->systems = mw_arena_alloc(&db->arena, n_sys, sizeof *db->systems);
    for (size_t i = 0; i < n_gpus; i++) {
        build_gpu(db, i);
    }
    for (size_t i = 0; i < n_sys; i++) {
        build_system(db, i);
    }
}
