/*
 * The machine of a measured row: the DGX (or the first system) that has the
 * row's GPU, with as many GPUs per node as the row says, and the NICs that its
 * interconnect column prints ("8x200Gb HDR IB" is 8 of 25 GB/s a direction).
 */
#include "sim/validate/validate_int.h"

#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* Names that sources use for what the database calls otherwise. */
static const char *gpu_alias(const char *name)
{
    static const struct {
        const char *said, *meant;
    } alias[] = {{"A100", "a100-sxm-80gb"},
                 {"A100-80GB", "a100-sxm-80gb"},
                 {"A100-40GB", "a100-sxm-40gb"},
                 {"V100", "v100-sxm-32gb"},
                 {"V100-SXM2-32GB", "v100-sxm-32gb"},
                 {"H100-96GB", "h100-sxm"},
                 {"B300-SXM", "b300-sxm"},
                 {"B200-SXM", "b200-sxm"}};

    for (size_t i = 0; i < sizeof alias / sizeof alias[0]; i++) {
        if (strcmp(name, alias[i].said) == 0) {
            return alias[i].meant;
        }
    }
    return name;
}

/* The number before a unit: 2.4 of "H100-96GB HBM2e 2.4TB/s 500W". */
static double stated(const char *text, const char *unit)
{
    const char *at = strstr(text, unit);
    const char *begin = at;

    while (at != NULL && begin > text &&
           (isdigit((unsigned char)begin[-1]) || begin[-1] == '.')) {
        begin--;
    }
    return at != NULL && begin < at ? strtod(begin, NULL) : (double)NAN;
}

/* A variant of a known device: memory and power as its name says. The clock
 * that a power limit allows goes with its cube root (power is close to f V^2
 * and voltage to f; Horowitz, "Computing's energy problem", ISSCC 2014). */
static void take_variant(struct mw_case *c)
{
    double bw = 1e12 * stated(c->row->gpu, "TB/s");
    double memory = stated(c->row->gpu, "GB ");
    double clock = cbrt(stated(c->row->gpu, "W ") / c->gpu.tdp_w);
    double bw_ratio = isnan(bw) ? 1 : bw / c->gpu.mem_bw_Bps;

    if (isnan(bw) && isnan(clock)) {
        return;
    }
    mw_case_fill(c, MW_FILL_GPU_VARIANT);
    clock = isnan(clock) ? 1 : clock;
    c->gpu.mem_bw_Bps *= bw_ratio;
    c->gpu.mem_bytes = isnan(memory) ? c->gpu.mem_bytes : memory * 0x1p30;
    for (int dtype = 0; dtype < MW_DTYPE_COUNT; dtype++) {
        c->ctx.sustained[dtype] *= clock;
        c->ctx.power_limit[dtype] *= clock;
        for (int op = 0; op < MW_MEASURED_OP_COUNT; op++) {
            for (int pass = 0; pass < MW_PASS_BW; pass++) {
                struct mw_kernel_rates *rates =
                    &c->ctx.measured[op][dtype].rates[pass];

                rates->flops_per_s *= clock;
                rates->bytes_per_s *= bw_ratio;
            }
        }
    }
}

static bool is_alike(const struct mw_gpu *a, const struct mw_gpu *b)
{
    return strcmp(a->arch, b->arch) == 0 && a->link_bw_Bps == b->link_bw_Bps &&
           a->n_links == b->n_links;
}

/* Is the word in the text, in any case, and no part of a longer one? (EFA is
 * not in "default".) */
static bool names(const char *text, const char *word)
{
    size_t n = strlen(word);

    for (const char *at = text; *at != '\0'; at++) {
        bool begins = at == text || !isalpha((unsigned char)at[-1]);

        if (begins && strncasecmp(at, word, n) == 0 &&
            !isalpha((unsigned char)at[n])) {
            return true;
        }
    }
    return false;
}

/* The site's own node with such a device, where the row names a site that the
 * database knows. */
static const struct mw_system *site_system(const struct mw_hwdb *db,
                                           const struct mw_gpu *gpu,
                                           const char *interconnect)
{
    static const struct {
        const char *said, *slug;
    } sites[] = {{"Jean Zay", "jean-zay-"}};

    for (size_t k = 0; k < sizeof sites / sizeof sites[0]; k++) {
        for (size_t i = 0;
             names(interconnect, sites[k].said) && i < mw_hwdb_system_count(db);
             i++) {
            const struct mw_system *s = mw_hwdb_system_at(db, i);

            if (strncmp(s->slug, sites[k].slug, strlen(sites[k].slug)) == 0 &&
                is_alike(s->gpu, gpu)) {
                return s;
            }
        }
    }
    return NULL;
}

/* The DGX with that device first, else the first system in the table; one with
 * the same architecture and links when the exact memory size has none. */
static const struct mw_system *find_system(const struct mw_hwdb *db,
                                           const struct mw_gpu *gpu)
{
    const struct mw_system *exact = NULL, *alike = NULL;

    for (size_t i = 0; i < mw_hwdb_system_count(db); i++) {
        const struct mw_system *s = mw_hwdb_system_at(db, i);
        bool is_dgx = strncmp(s->slug, "dgx-", 4) == 0;

        if (s->gpu == gpu && (exact == NULL || is_dgx)) {
            exact = s;
            if (is_dgx) {
                return s;
            }
        }
        if (alike == NULL && is_dgx && is_alike(s->gpu, gpu)) {
            alike = s;
        }
    }
    return exact != NULL ? exact : alike;
}

/* "8x200Gb", "8x400G", "4x100Gb": NICs of a node. */
static bool parse_nics(const char *text, int *out_n, double *out_bw_Bps)
{
    for (const char *p = text; (p = strchr(p, 'x')) != NULL; p++) {
        const char *begin = p;
        char *end;

        while (begin > text && isdigit((unsigned char)begin[-1])) {
            begin--;
        }
        double gbit = strtod(p + 1, &end);

        if (begin < p && end > p + 1 && (end[0] == 'G' || end[0] == 'g')) {
            *out_n = atoi(begin);
            *out_bw_Bps = gbit * 1e9 / 8;
            return *out_n > 0 && gbit > 0;
        }
    }
    return false;
}

/* "2x100Gb per 2 GPUs": NICs of so many GPUs, not of the node. */
static int nics_of_node(const char *text, int n, int gpus_per_node)
{
    const char *per = strstr(text, " per ");
    long gpus = per != NULL ? strtol(per + strlen(" per "), NULL, 10) : 0;

    return gpus > 0 && gpus_per_node % gpus == 0
               ? (int)(n * gpus_per_node / gpus)
               : n;
}

/* The class of the network that the row names; the system's when it names
 * none. */
static const char *class_of(const char *text, const char *otherwise)
{
    static const struct {
        const char *word, *class;
    } known[] = {{"EFA", "efa"},       {"RoCE", "roce"},
                 {"InfiniBand", "ib"}, {"NDR", "ib"},
                 {"HDR", "ib"},        {"Slingshot", "slingshot"},
                 {"TCPX", "tcpx"},     {"OmniPath", "opa"}};

    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        if (names(text, known[i].word)) {
            return known[i].class;
        }
    }
    return otherwise;
}

static void take_network(struct mw_case *c, int gpus_per_node)
{
    int n;
    double bw_Bps;

    c->system.inter_class =
        class_of(c->row->interconnect, c->system.inter_class);
    if (parse_nics(c->row->interconnect, &n, &bw_Bps)) {
        n = nics_of_node(c->row->interconnect, n, gpus_per_node);
        c->system.n_nics = n;
        c->system.nic_bw_Bps = bw_Bps;
        c->system.node_net_bw_Bps = n * bw_Bps;
        c->ctx.domain_net_Bps =
            n * bw_Bps * (c->ctx.domain_gpus / (double)gpus_per_node);
    }
    mw_cost_ctx_take_curves(&c->ctx);
}

const struct mw_gpu *mw_case_gpu(const struct mw_case *c)
{
    const char *name = gpu_alias(mw_text_head(c->arena, c->row->gpu));
    const struct mw_gpu *gpu;

    if (mw_hwdb_gpu(c->db, name, &gpu, NULL) == MW_OK) {
        return gpu;
    }
    name = gpu_alias(
        mw_arena_printf(c->arena, "%.*s", (int)strcspn(name, " "), name));
    return mw_hwdb_gpu(c->db, name, &gpu, NULL) == MW_OK ? gpu : NULL;
}

void mw_case_machine(struct mw_case *c)
{
    const struct mw_measured *r = c->row;
    const struct mw_gpu *gpu = mw_case_gpu(c);
    const struct mw_system *system;
    int gpus = (int)r->gpus, nodes = isnan(r->nodes) ? 0 : (int)r->nodes;
    struct mw_err why = {0};

    if (gpu == NULL) {
        mw_case_skip(c, "unknown GPU '%s'", r->gpu);
        return;
    }
    system = site_system(c->db, gpu, r->interconnect);
    if (system == NULL) {
        system = find_system(c->db, gpu);
    }
    if (system == NULL) {
        mw_case_skip(c, "no system with %s", gpu->slug);
        return;
    }
    int per_node = nodes > 0 && gpus % nodes == 0 ? gpus / nodes
                   : gpus < system->gpus_per_node ? gpus
                                                  : system->gpus_per_node;

    if (per_node > system->gpus_per_node) {
        per_node = system->gpus_per_node;
    }
    mw_case_fill(c, MW_FILL_SYSTEM);
    c->scenario.cluster.system = system->slug;
    c->scenario.cluster.n_nodes = (gpus + per_node - 1) / per_node;
    c->scenario.cluster.gpus_per_node = 0; /* the layout's product decides */
    if (mw_cost_ctx_init(&c->ctx, c->db, system->slug,
                         c->scenario.cluster.n_nodes, per_node,
                         &why) != MW_OK ||
        mw_cost_ctx_set_stack(&c->ctx, mw_case_stack_of(r), &why) != MW_OK) {
        mw_case_skip(c, "%s", why.text);
        return;
    }
    mw_case_fill(c, MW_FILL_STACK);
    c->system = *system;
    c->gpu = *gpu;
    c->system.gpu = &c->gpu;
    c->ctx.system = &c->system;
    c->ctx.gpu = &c->gpu;
    take_network(c, per_node);
    take_variant(c);
}
