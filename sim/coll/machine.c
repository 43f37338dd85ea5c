/* Writing a machine description from the database; see machine.h. */
#include "sim/coll/machine.h"

#include "base/csv.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* Cell of the row whose slug is `slug`; "" when there is none. */
static const char *raw(const struct mw_hwdb *db, const char *table,
                       const char *slug, const char *column)
{
    const struct mw_csv *csv = mw_hwdb_table(db, table);
    int key = csv ? mw_csv_col(csv, "slug") : -1;
    const char *found = "";
    for (size_t r = 0; key >= 0 && r < csv->n_rows; r++) {
        if (strcasecmp(mw_csv_str(csv, r, key), slug) == 0) {
            found = mw_csv_str(csv, r, mw_csv_col(csv, column));
        }
    }
    return found;
}

static int raw_int(const struct mw_hwdb *db, const char *table,
                   const char *slug, const char *column)
{
    return (int)strtol(raw(db, table, slug, column), NULL, 10);
}

bool mw_machine_has_nccl(const struct mw_hwdb *db,
                         const struct mw_system *system)
{
    return raw_int(db, "gpus", system->gpu->slug, "cc") > 0;
}

/* Family 6 models in the order of NCCL's bandwidth classes: Broadwell and
 * before, Skylake to Ice Lake, Sapphire Rapids, Emerald Rapids and later. */
static void describe_cpu(const char *cpu, struct mw_machine_shape *s)
{
    static const struct {
        const char *text;
        int model;
    } intel[] = {{"E5-", 79},     {"8168", 85},      {"8175", 85},
                 {"8275", 85},    {"8570", 207},     {"Emerald", 207},
                 {"Xeon 6", 207}, {"Sapphire", 143}, {"SPR", 143}};
    s->cpu_arch = "x86_64";
    s->cpu_vendor = "GenuineIntel";
    s->cpu_family = 6;
    s->cpu_model = 143;
    if (strstr(cpu, "Grace") || strstr(cpu, "Vera") || strstr(cpu, "Kunpeng")) {
        s->cpu_arch = "arm64";
        s->cpu_vendor = NULL;
    } else if (strstr(cpu, "EPYC") || strncmp(cpu, "AMD", 3) == 0) {
        s->cpu_vendor = "AuthenticAMD";
        s->cpu_family = 23;
        s->cpu_model = 49;
    }
    for (size_t i = 0; i < sizeof intel / sizeof intel[0]; i++) {
        if (s->cpu_family == 6 && strstr(cpu, intel[i].text)) {
            s->cpu_model = intel[i].model;
        }
    }
}

/* "2 GPUs + 1 NIC per PCIe switch", "1 NIC per GPU", "4 NICs per GPU",
 * "2 GPUs share 1 NIC", "shared", "host". */
static void describe_switches(const char *text, struct mw_machine_shape *s)
{
    int gpus = 1;
    if (strncmp(text, "2 GPU", 5) == 0 || strstr(text, "PCIe pairs")) {
        gpus = 2;
    }
    bool on_socket = *text == '\0' || strcmp(text, "host") == 0 || s->has_c2c;
    s->gpus_per_switch = on_socket ? 0 : gpus;
    int n_switches = on_socket ? 0 : s->n_gpus / gpus;
    s->nics_per_switch = n_switches > 0 ? s->n_nics / n_switches : 0;
}

/* The EFA plugin shows the NICs nearest to a GPU as one device of several
 * rails (aws-ofi-nccl, src/nccl_ofi_topo.c: groups of NICs): p5's 32 NICs of
 * 100 Gb/s are 8 devices of 400. */
static void merge_rails(const char *nic_type, struct mw_machine_shape *s)
{
    if (strncmp(nic_type, "EFA", 3) == 0 && s->n_nics > s->n_gpus &&
        s->n_nics % s->n_gpus == 0) {
        s->nic_Mbps *= s->n_nics / s->n_gpus;
        s->n_nics = s->n_gpus;
    }
}

enum mw_status mw_machine_describe(const struct mw_hwdb *db,
                                   const struct mw_system *system,
                                   struct mw_machine_shape *out,
                                   struct mw_err *err)
{
    const char *slug = system->slug, *gpu = system->gpu->slug;
    struct mw_machine_shape s = {.n_gpus = system->gpus_per_node,
                                 .n_nics = system->n_nics};
    s.sm = raw_int(db, "gpus", gpu, "cc");
    if (s.sm == 0) {
        return mw_fail(err, MW_EINPUT,
                       "%s: NCCL does not run on %s; only the fit and event "
                       "models know this system",
                       slug, gpu);
    }
    const char *link = raw(db, "systems", slug, "gpu_host_link");
    const char *fabric = raw(db, "systems", slug, "intra_fabric");
    s.has_c2c = strncmp(link, "C2C", 3) == 0;
    s.pcie_gen = strncmp(link, "PCIe", 4) == 0 ? atoi(link + 4) : 5;
    s.n_sockets = raw_int(db, "systems", slug, "cpu_sockets");
    s.n_sockets = s.n_sockets > 0 ? s.n_sockets : 2;
    s.nic_Mbps = (int)lround(system->nic_bw_Bps * 8e-6);
    s.n_links = raw_int(db, "gpus", gpu, "links");
    s.has_nvswitch = *raw(db, "systems", slug, "nvswitch_gen") != '\0';
    s.is_cube_mesh = strstr(fabric, "cube mesh") != NULL;
    if (strncmp(system->intra_class, "nvlink", 6) != 0) {
        s.n_links = 0;
    } else if (!s.has_nvswitch && !s.is_cube_mesh && s.n_gpus > 1) {
        s.mesh_links = s.n_links / (s.n_gpus - 1);
    }
    merge_rails(raw(db, "systems", slug, "nic_type"), &s);
    describe_cpu(raw(db, "systems", slug, "cpu"), &s);
    describe_switches(raw(db, "systems", slug, "gpu_to_nic"), &s);
    *out = s;
    return MW_OK;
}

/* ---- XML ---- */

struct writer {
    const struct mw_machine_shape *s;
    int gpus, stride, host, own_nics_only;
    int next_nic; /* device number over all trays */
    struct mw_str *out;
};

static bool is_chosen(const struct writer *w, int gpu)
{
    return gpu % w->stride == 0 && gpu / w->stride < w->gpus;
}

/* Domain = host, bus = 16 + index. */
static void add_busid(struct writer *w, const char *key, int bus)
{
    mw_str_addf(w->out, "%s=\"%04x:%02x:00.0\"", key, w->host, bus);
}

static const char *gen_speed(int gen)
{
    static const char *const speed[] = {"2.5",  "5.0",  "8.0",
                                        "16.0", "32.0", "64.0"};
    return speed[gen < 1 ? 0 : gen > 6 ? 5 : gen - 1];
}

static int gpu_bus(int gpu)
{
    return 0x40 + gpu;
}

static void open_pci(struct writer *w, int bus, const char *cls)
{
    mw_str_add(w->out, "<pci ");
    add_busid(w, "busid", bus);
    mw_str_addf(
        w->out,
        " class=\"%s\" link_speed=\"%s GT/s PCIe\" link_width=\"16\">\n", cls,
        gen_speed(w->s->pcie_gen));
}

/* Links between the V100s of a hybrid cube mesh (DGX-1V): inside a half 1, 1
 * and 2, across 1 or 2. Source: DGX-1 system architecture white paper,
 * WP-08437-002, figure 4; the pairs as nvidia-smi topo -m prints them. */
static int cube_links(int a, int b)
{
    static const char rows[8][9] = {"01122000", "10210200", "12020010",
                                    "21200001", "20000112", "02001021",
                                    "00101202", "00012120"};
    return rows[a & 7][b & 7] - '0';
}

static void write_gpu(struct writer *w, int gpu)
{
    const struct mw_machine_shape *s = w->s;
    open_pci(w, gpu_bus(gpu), "0x030200");
    mw_str_addf(w->out, "<gpu dev=\"%d\" sm=\"%d\" rank=\"%d\" gdr=\"1\">\n",
                w->host * s->n_gpus + gpu, s->sm,
                w->host * w->gpus + gpu / w->stride);
    if (s->has_nvswitch) {
        mw_str_addf(w->out,
                    "<nvlink target=\"fffffff:ffff:ff\" count=\"%d\" "
                    "tclass=\"0x068000\"/>\n",
                    s->n_links);
    }
    for (int p = 0; p < s->n_gpus && !s->has_nvswitch; p++) {
        int count = p == gpu || !is_chosen(w, p) ? 0
                    : s->is_cube_mesh            ? cube_links(gpu, p)
                                                 : s->mesh_links;
        if (count > 0) {
            mw_str_add(w->out, "<nvlink ");
            add_busid(w, "target", gpu_bus(p));
            mw_str_addf(w->out, " count=\"%d\" tclass=\"0x030200\"/>\n", count);
        }
    }
    if (s->has_c2c) {
        mw_str_add(w->out, "<c2c bw=\"44712\" count=\"10\"/>\n");
    }
    mw_str_add(w->out, "</gpu></pci>\n");
}

static void write_nic(struct writer *w, int nic)
{
    if (w->s->nic_mask != 0 && (nic > 63 || !(w->s->nic_mask >> nic & 1))) {
        return;
    }
    open_pci(w, 0x80 + nic, "0x020700");
    mw_str_addf(w->out,
                "<nic><net name=\"nic%d\" dev=\"%d\" speed=\"%d\" port=\"1\" "
                "guid=\"0x%x\" gdr=\"%d\" coll=\"0\"/></nic></pci>\n",
                nic, w->next_nic, w->s->nic_Mbps, 0x1000 + w->next_nic,
                !w->s->no_gdr);
    w->next_nic++;
}

static void write_switch(struct writer *w, int at)
{
    const struct mw_machine_shape *s = w->s;
    int first = at * s->gpus_per_switch, n_chosen = 0;
    for (int g = first; g < first + s->gpus_per_switch; g++) {
        n_chosen += is_chosen(w, g);
    }
    if (n_chosen == 0 && w->own_nics_only) {
        return;
    }
    open_pci(w, 0x10 + at, "0x060400");
    for (int g = first; g < first + s->gpus_per_switch; g++) {
        if (is_chosen(w, g)) {
            write_gpu(w, g);
        }
    }
    int nics = s->nics_per_switch;
    int from = at * nics;
    if (nics == 0 && at == 0) {
        nics = s->n_nics; /* fewer NICs than switches: on the first one */
    }
    for (int k = 0; k < nics; k++) {
        /* A NIC of a pair belongs to the GPU of its number. */
        bool is_own = is_chosen(w, k * s->gpus_per_switch / nics + first);
        if (is_own || !w->own_nics_only) {
            write_nic(w, from + k);
        }
    }
    mw_str_add(w->out, "</pci>\n");
}

/* Devices i of n that belong to socket c of m. */
static int share(int n, int c, int m)
{
    return (n * c + m - 1) / m;
}

static void write_socket(struct writer *w, int c)
{
    const struct mw_machine_shape *s = w->s;
    int m = s->n_sockets;
    mw_str_addf(w->out, "<cpu host_hash=\"0x%x\" numaid=\"%d\" arch=\"%s\"",
                w->host, c, s->cpu_arch);
    if (s->cpu_vendor) {
        mw_str_addf(w->out, " vendor=\"%s\" familyid=\"%d\" modelid=\"%d\"",
                    s->cpu_vendor, s->cpu_family, s->cpu_model);
    }
    mw_str_add(w->out, ">\n");
    if (s->gpus_per_switch > 0) {
        int n = s->n_gpus / s->gpus_per_switch;
        for (int i = share(n, c, m); i < share(n, c + 1, m); i++) {
            write_switch(w, i);
        }
    } else {
        for (int g = share(s->n_gpus, c, m); g < share(s->n_gpus, c + 1, m);
             g++) {
            if (is_chosen(w, g)) {
                write_gpu(w, g);
            }
        }
        for (int k = share(s->n_nics, c, m); k < share(s->n_nics, c + 1, m);
             k++) {
            bool is_own =
                is_chosen(w, k * s->n_gpus / (s->n_nics > 0 ? s->n_nics : 1));
            if (is_own || !w->own_nics_only) {
                write_nic(w, k);
            }
        }
    }
    mw_str_add(w->out, "</cpu>\n");
}

void mw_machine_xml(const struct mw_machine_shape *shape,
                    const struct mw_machine_part *part, struct mw_str *out)
{
    struct writer w = {.s = shape,
                       .gpus = part->gpus,
                       .stride = part->stride > 0 ? part->stride : 1,
                       .own_nics_only = part->own_nics_only,
                       .out = out};
    mw_str_add(out, "<system version=\"1\">\n");
    for (w.host = 0; w.host < part->n_trays; w.host++) {
        for (int c = 0; c < shape->n_sockets; c++) {
            write_socket(&w, c);
        }
    }
    mw_str_add(out, "</system>\n");
}
