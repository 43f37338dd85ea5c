/*
 * Reading tables of measured collectives and knowing the machines by the words
 * of their columns `gpu` and `interconnect`.
 */
#include "sim/coll/coll_fit.h"

#include "base/csv.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void mw_coll_rows_release(struct mw_coll_rows *rows)
{
    mw_array_release(&rows->row);
    mw_array_release(&rows->notice);
}

struct mw_coll_query mw_coll_row_query(const struct mw_coll_row *row)
{
    struct mw_coll_query q = row->query;
    q.fabric = row->fabric[0] ? row->fabric : NULL;
    return q;
}

static void notice(struct mw_coll_rows *rows, const char *what,
                   const char *value, const char *taken)
{
    struct mw_coll_notice n = {.rows = 1};
    snprintf(n.text, sizeof n.text, "%s %.40s taken as %s", what, value, taken);
    for (size_t i = 0; i < rows->notice.n; i++) {
        if (strcmp(rows->notice.v[i].text, n.text) == 0) {
            rows->notice.v[i].rows++;
            return;
        }
    }
    mw_array_push(&rows->notice, n);
}

/* First match wins: words in gpu, in interconnect (NULL: any), system, fabric
 * ("" : the system's). */
static const struct {
    const char *gpu, *link, *system, *fabric;
} machines[] = {
    {"not stated (A100-class, 32", NULL, "", ""},
    {"pairwise", NULL, "", ""},
    {"pairs", NULL, "", ""},
    {"H100-PCIe", NULL, "", ""},
    {"GB10", NULL, "", ""},
    {"Arc", NULL, "", ""},
    {"V100", "EFA", "aws-p3dn", ""},
    {"V100", NULL, "dgx-1v", ""},
    {"A100", "EFA", "aws-p4d", ""},
    {"A100", "HGX A100, Quantum HDR", "coreweave-a100", ""},
    {"A100", NULL, "dgx-a100", ""},
    {"GH200", NULL, "alps-gh200", ""},
    {"H100", "EFA", "aws-p5", ""},
    {"H100", "TCPXO", "gcp-a3-mega", ""},
    {"H100", "a3-mega", "gcp-a3-mega", ""},
    {"H100", "plain TCP", "gcp-a3-high", "tcp"},
    {"H100", "TCPX", "gcp-a3-high", ""},
    {"H100", "a3-high", "gcp-a3-high", ""},
    {"H100", NULL, "dgx-h100", ""},
    {"H200", "RoCE", "gcp-a3-ultra", ""},
    {"H200", "GCP", "gcp-a3-ultra", ""},
    {"H200", NULL, "dgx-h200", ""},
    {"GB200", "RoCE", "gb200-nvl72", "roce"},
    {"GB200", NULL, "gb200-nvl72", ""},
    {"GB300", "A4X Max", "gcp-a4x-max", ""},
    {"GB300", "RoCE", "gb300-nvl72", "roce"},
    {"GB300", NULL, "gb300-nvl72", ""},
    {"B200", "EFA", "aws-p6-b200", ""},
    {"B200", "RoCE", "dgx-b200", "roce"},
    {"B200", NULL, "dgx-b200", ""},
    {"B300", "RoCE", "dgx-b300", "roce"},
    {"B300", NULL, "dgx-b300", ""},
    {"L40S", NULL, "pcie-8x-l40s", ""},
    {"RTX PRO 6000", NULL, "pcie-8x-rtx-pro-6000", ""},
    {"RTX 4090", NULL, "pcie-8x-rtx-4090", ""},
    {"MI355X", NULL, "mi355x-node", ""},
};

static void find_machine(const char *gpu, const char *link,
                         struct mw_coll_row *row)
{
    for (size_t i = 0; i < sizeof machines / sizeof machines[0]; i++) {
        if (strstr(gpu, machines[i].gpu) &&
            (!machines[i].link || strstr(link, machines[i].link))) {
            snprintf(row->system, sizeof row->system, "%s", machines[i].system);
            snprintf(row->fabric, sizeof row->fabric, "%s", machines[i].fabric);
            break;
        }
    }
    if (!row->system[0]) {
        row->why_not = "the database has no such machine";
    }
}

/* Harness by words of the columns software and source; first match wins.
 * Azure's guide runs nccl-tests with -g 8; the post about RTX 4090s shows one
 * process with eight GPUs in its log. */
static const struct {
    const char *software, *source;
    enum mw_coll_harness harness;
} harnesses[] = {
    {"one process", "", MW_HARNESS_ONE_PROCESS},
    {"nccl-tests", "Azure/AI-benchmarking-guide", MW_HARNESS_ONE_PROCESS},
    {"nccl-tests", "RTX4090 GPUDirect P2P Unlocked", MW_HARNESS_ONE_PROCESS},
    {"nccl-tests", "", MW_HARNESS_TESTS},
    {"all_reduce_bench.py", "", MW_HARNESS_TORCH},
    {"Kineto", "", MW_HARNESS_PROFILER},
    {"torch profiler", "", MW_HARNESS_PROFILER},
};

static enum mw_coll_harness find_harness(const char *software,
                                         const char *source,
                                         struct mw_coll_rows *rows)
{
    for (size_t i = 0; i < sizeof harnesses / sizeof harnesses[0]; i++) {
        if (strstr(software, harnesses[i].software) &&
            strstr(source, harnesses[i].source)) {
            return harnesses[i].harness;
        }
    }
    notice(rows, "harness", *software ? software : "(not stated)",
           "nccl-tests, a process for every GPU");
    return MW_HARNESS_TESTS;
}

/* Settings of the job, where the column software tells them: "algo Ring", or
 * "env NAME_VALUE_NAME_VALUE", of which only the known ones are taken. */
static void read_env(const char *software, char *out, size_t size)
{
    static const struct {
        const char *words, *pair;
    } known[] = {{"algo Ring", "NCCL_ALGO=ring"},
                 {"algo NVLS", "NCCL_ALGO=nvls"}};
    static const char *const names[] = {"NCCL_CROSS_NIC",
                                        "FI_CXI_SAFE_DEVMEM_COPY_THRESHOLD",
                                        "FI_HMEM_CUDA_USE_GDRCOPY"};
    size_t n = 0;
    out[0] = '\0';
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        if (strstr(software, known[i].words)) {
            snprintf(out, size, "%s", known[i].pair);
            return;
        }
    }
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        const char *at = strstr(software, names[i]);
        const char *value = at ? at + strlen(names[i]) + 1 : "";
        int digits = (int)strspn(value, "0123456789");
        if (digits > 0 && n + strlen(names[i]) + 14 < size) {
            n += (size_t)snprintf(out + n, size - n, "%s%s=%.*s", n ? " " : "",
                                  names[i], digits > 12 ? 12 : digits, value);
        }
    }
}

static enum mw_nccl_type type_of(const char *text)
{
    static const struct {
        const char *name;
        enum mw_nccl_type type;
    } known[] = {{"fp32", MW_NCCL_FLOAT32},  {"float", MW_NCCL_FLOAT32},
                 {"int8", MW_NCCL_INT8},     {"uint8", MW_NCCL_INT8},
                 {"int32", MW_NCCL_INT32},   {"fp8", MW_NCCL_FLOAT8},
                 {"double", MW_NCCL_FLOAT64}};
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        if (strcmp(text, known[i].name) == 0) {
            return known[i].type;
        }
    }
    return MW_NCCL_FLOAT16;
}

static bool op_of(const char *text, enum mw_coll_op *out)
{
    if (strcmp(text, "alltoall") == 0) {
        *out = MW_ALL_TO_ALL;
        return true;
    }
    for (int i = 0; i < MW_COLL_OP_COUNT; i++) {
        if (strcmp(text, mw_coll_op_name((enum mw_coll_op)i)) == 0) {
            *out = (enum mw_coll_op)i;
            return true;
        }
    }
    return false;
}

struct columns {
    int op, gpu, gpus, nodes, ppn, link, version, software, dtype, bytes, time;
    int bus, note, source;
};

static enum mw_status find_columns(const struct mw_csv *csv, struct columns *c,
                                   struct mw_err *err)
{
    const struct {
        const char *name;
        int *at;
        bool optional;
    } want[] = {{"collective", &c->op, false},
                {"gpu", &c->gpu, false},
                {"gpus", &c->gpus, false},
                {"nodes", &c->nodes, false},
                {"gpus_per_node", &c->ppn, true},
                {"interconnect", &c->link, false},
                {"nccl_version", &c->version, true},
                {"software", &c->software, true},
                {"dtype", &c->dtype, true},
                {"size_bytes", &c->bytes, false},
                {"time_us", &c->time, false},
                {"busbw_GBps", &c->bus, true},
                {"note", &c->note, true},
                {"source", &c->source, true}};
    for (size_t i = 0; i < sizeof want / sizeof want[0]; i++) {
        *want[i].at = mw_csv_col(csv, want[i].name);
        if (*want[i].at < 0 && !want[i].optional) {
            return mw_fail(err, MW_EINPUT,
                           "%s:1: no column '%s'; a table of measured "
                           "collectives has one",
                           csv->file, want[i].name);
        }
    }
    return MW_OK;
}

/* The unit: the file, and of collections over machines also machine and
 * version, each of which is one campaign of measurements. */
static void name_unit(const struct mw_csv *csv, size_t r,
                      const struct columns *c, struct mw_coll_row *row)
{
    const char *slash = strrchr(csv->file, '/');
    const char *base = slash ? slash + 1 : csv->file;
    int len = (int)strcspn(base, ".");
    if (strncmp(base, "collectives_", 12) == 0 || strstr(base, "oci_")) {
        snprintf(row->unit, sizeof row->unit, "%.*s/%s/%s", len < 28 ? len : 28,
                 base, row->system, mw_csv_str(csv, r, c->version));
    } else {
        snprintf(row->unit, sizeof row->unit, "%.*s", len, base);
    }
}

/* Is it to be scored, and to be fitted on? */
static void judge_row(const struct mw_csv *csv, size_t r,
                      const struct columns *c, bool has_op, double bus,
                      struct mw_coll_row *row)
{
    const struct mw_coll_query *q = &row->query;
    const char *software = mw_csv_str(csv, r, c->software);
    const char *link = mw_csv_str(csv, r, c->link);
    /* Medians of a profiler with the ranks' skew in them; NICs of a rate that
     * is not printed. */
    row->no_fit = (strstr(software, "Kineto") && q->bytes < 1048576) ||
                  strstr(link, "NIC count not stated");
    if (!has_op) {
        row->why_not = "operation not modelled";
    } else if (q->bytes <= 0 || row->time_s <= 0 || q->ranks_per_node < 1) {
        row->why_not = "no size, time or number of GPUs";
    } else if (bus < .1 &&
               strstr(mw_csv_str(csv, r, c->note), "busbw printed")) {
        row->why_not = "time derived from a bandwidth printed too coarsely";
    } else if (strstr(link, "network not stated") && q->n_nodes > 1) {
        row->why_not = "the table does not say which network";
    } else if (strcmp(row->system, "alps-gh200") == 0 &&
               q->n_nodes * q->ranks_per_node >= 1024) {
        row->why_not = "collapse of Slingshot at 1024 GPUs, reported apart";
    }
}

/* "sglang 0.5.10 custom allreduce kernel: SGLang_CustomAllReduce_eager ..."
 * The kernel says more than the program that called it. */
static void read_engine(const char *software, struct mw_coll_row *row)
{
    struct mw_coll_query *q = &row->query;
    q->engine = strstr(software, "TRTLLM")   ? MW_ENGINE_TRTLLM
                : strstr(software, "SGLang") ? MW_ENGINE_SGLANG
                                             : MW_ENGINE_VLLM;
    q->is_eager = strstr(software, "eager") != NULL;
    snprintf(row->unit, sizeof row->unit, "custom_allreduce/%s/%s", row->system,
             mw_coll_engine_name(q->engine));
}

/* What ran: harness, forced algorithm, version; or an engine's kernel. */
static void read_software(const struct mw_csv *csv, size_t r,
                          const struct columns *c, struct mw_coll_rows *rows,
                          struct mw_coll_row *row)
{
    const char *software = mw_csv_str(csv, r, c->software);
    const char *version = mw_csv_str(csv, r, c->version);
    if (strstr(software, "custom allreduce")) {
        read_engine(software, row);
        return;
    }
    row->query.harness =
        find_harness(software, mw_csv_str(csv, r, c->source), rows);
    read_env(software, row->env, sizeof row->env);
    if (!mw_nccl_version_find(version, &row->version)) {
        notice(rows, "NCCL version", *version ? version : "(not stated)",
               mw_nccl_version_name(row->version));
    }
}

static enum mw_status read_row(const struct mw_csv *csv, size_t r,
                               const struct columns *c,
                               struct mw_coll_rows *rows,
                               struct mw_coll_row *row, struct mw_err *err)
{
    int64_t gpus = 0, nodes = 0, bytes = 0;
    double us = 0, bus = 0;
    enum mw_status s = mw_csv_int_or(csv, r, c->gpus, 0, &gpus, err);
    if (s == MW_OK) {
        s = mw_csv_int_or(csv, r, c->nodes, 1, &nodes, err);
    }
    if (s == MW_OK) {
        s = mw_csv_int_or(csv, r, c->bytes, 0, &bytes, err);
    }
    if (s == MW_OK) {
        s = mw_csv_num_or(csv, r, c->time, 0, &us, err);
    }
    if (s == MW_OK) {
        s = mw_csv_num_or(csv, r, c->bus, 1, &bus, err);
    }
    if (s != MW_OK) {
        return s;
    }
    find_machine(mw_csv_str(csv, r, c->gpu), mw_csv_str(csv, r, c->link), row);
    name_unit(csv, r, c, row);
    struct mw_coll_query *q = &row->query;
    q->bytes = (double)bytes;
    q->type = type_of(mw_csv_str(csv, r, c->dtype));
    q->redop = MW_NCCL_SUM;
    row->time_s = us * 1e-6;
    if (strstr(mw_csv_str(csv, r, c->link), "two NVLink domains")) {
        q->domain_trays = 1;
    }
    q->n_nodes = nodes > 0 && nodes < 1000000 ? (int)nodes : 1;
    q->ranks_per_node = gpus > 0 && gpus < 1000000 ? (int)gpus / q->n_nodes : 0;
    bool has_op = op_of(mw_csv_str(csv, r, c->op), &q->op);
    judge_row(csv, r, c, has_op, bus, row);
    if (!row->why_not) {
        read_software(csv, r, c, rows, row);
    }
    return MW_OK;
}

enum mw_status mw_coll_rows_load(const char *path, struct mw_coll_rows *out,
                                 struct mw_err *err)
{
    struct mw_arena arena;
    struct mw_csv csv;
    struct columns c;
    mw_arena_init(&arena);
    enum mw_status s = mw_csv_load(path, &arena, &csv, err);
    if (s == MW_OK) {
        s = find_columns(&csv, &c, err);
    }
    for (size_t r = 0; s == MW_OK && r < csv.n_rows; r++) {
        struct mw_coll_row row;
        memset(&row, 0, sizeof row);
        s = read_row(&csv, r, &c, out, &row, err);
        if (s == MW_OK) {
            mw_array_push(&out->row, row);
        }
    }
    mw_arena_release(&arena);
    return s;
}

bool mw_coll_is_table(const char *path)
{
    struct mw_arena arena;
    struct mw_csv csv;
    mw_arena_init(&arena);
    bool yes = mw_csv_load(path, &arena, &csv, NULL) == MW_OK &&
               mw_csv_col(&csv, "collective") >= 0 &&
               mw_csv_col(&csv, "size_bytes") >= 0 &&
               mw_csv_col(&csv, "time_us") >= 0;
    mw_arena_release(&arena);
    return yes;
}
