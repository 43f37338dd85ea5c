/* Reading tables of measured dispatch and combine kernels. */
#include "sim/coll/moe_fit.h"

#include "base/csv.h"

#include <stdio.h>
#include <string.h>

/* First match wins: beginning of the column gpu, system, architecture. */
static const struct {
    const char *gpu, *system, *arch;
} machines[] = {{"GB200", "gb200-nvl72", "Blackwell-rack"},
                {"GB300", "gb300-nvl72", "Blackwell-rack"},
                {"B200", "dgx-b200", "Blackwell"},
                {"B300", "dgx-b300", "Blackwell"},
                {"H100", "dgx-h100", "Hopper"},
                {"H200", "dgx-h200", "Hopper"}};

static const char *text(const struct mw_csv *csv, size_t r, const char *col)
{
    return mw_csv_str(csv, r, mw_csv_col(csv, col));
}

static enum mw_status num(const struct mw_csv *csv, size_t r, const char *col,
                          double *out, struct mw_err *err)
{
    return mw_csv_num_or(csv, r, mw_csv_col(csv, col), 0, out, err);
}

static enum mw_status whole(const struct mw_csv *csv, size_t r, const char *col,
                            int *out, struct mw_err *err)
{
    int64_t v = 0;
    enum mw_status s = mw_csv_int_or(csv, r, mw_csv_col(csv, col), 0, &v, err);
    *out = v < 0 || v > 1000000 ? 0 : (int)v;
    return s;
}

static void find_machine(const char *gpu, struct mw_moe_sample *s)
{
    for (size_t i = 0; i < sizeof machines / sizeof machines[0]; i++) {
        if (strncmp(gpu, machines[i].gpu, strlen(machines[i].gpu)) == 0) {
            snprintf(s->system, sizeof s->system, "%s", machines[i].system);
            snprintf(s->arch, sizeof s->arch, "%s", machines[i].arch);
            return;
        }
    }
    s->why_not = "the database has no such machine";
}

/* Unit and bound; after everything else is read. */
static void finish(const struct mw_csv *csv, struct mw_moe_sample *s)
{
    const char *slash = strrchr(csv->file, '/');
    const char *base = slash ? slash + 1 : csv->file;
    struct mw_moe_load load;
    snprintf(s->unit, sizeof s->unit, "%.*s/%s/%s", (int)strcspn(base, "."),
             base, s->system, mw_moe_kernel_name(s->query.kernel));
    if (s->why_not) {
        return;
    }
    if (!(s->time_s > 0) || !(s->query.tokens_per_rank > 0) ||
        s->query.hidden < 1) {
        s->why_not = "no tokens, size or time";
    } else if (mw_moe_load(&s->traffic, &load, NULL) != MW_OK) {
        s->why_not = "experts do not divide over the ranks";
    } else {
        s->elements = mw_moe_elements(&load, &s->traffic, &s->query, true);
        mw_moe_load_release(&load);
    }
}

/* Common columns of both forms. */
static enum mw_status read_shape(const struct mw_csv *csv, size_t r,
                                 const char *tokens, struct mw_moe_sample *s,
                                 struct mw_err *err)
{
    enum mw_status st = whole(csv, r, "hidden", &s->query.hidden, err);
    if (st == MW_OK) {
        st = num(csv, r, tokens, &s->query.tokens_per_rank, err);
    }
    if (st == MW_OK) {
        st = whole(csv, r, "topk", &s->traffic.top_k, err);
    }
    return st == MW_OK ? whole(csv, r, "experts", &s->traffic.n_experts, err)
                       : st;
}

static enum mw_status read_deepep(const struct mw_csv *csv, size_t r,
                                  struct mw_moe_samples *out,
                                  struct mw_err *err)
{
    struct mw_moe_sample s;
    int gpus = 0, nodes = 0;
    double us[2] = {0, 0};
    memset(&s, 0, sizeof s);
    find_machine(text(csv, r, "gpu"), &s);
    enum mw_status st = read_shape(csv, r, "tokens_per_rank", &s, err);
    st = st == MW_OK ? whole(csv, r, "gpus", &gpus, err) : st;
    st = st == MW_OK ? whole(csv, r, "nodes", &nodes, err) : st;
    st = st == MW_OK ? whole(csv, r, "dispatch_sms", &s.query.sms, err) : st;
    st = st == MW_OK ? num(csv, r, "dispatch_us", &us[0], err) : st;
    st = st == MW_OK ? num(csv, r, "combine_us", &us[1], err) : st;
    if (st != MW_OK) {
        return st;
    }
    if (!mw_moe_kernel_find(text(csv, r, "mode"), &s.query.kernel)) {
        s.why_not = "no such kernel";
    }
    s.traffic.n_ranks = gpus;
    s.traffic.ranks_per_node = nodes > 0 ? gpus / nodes : gpus;
    s.query.dispatch_bytes = MW_MOE_FP8_BYTES;
    s.query.combine_bytes = 2;
    for (int i = 0; i < 2; i++) {
        s.is_combine = i == 1;
        s.time_s = us[i] * 1e-6;
        finish(csv, &s);
        mw_array_push(&out->v, s);
    }
    return MW_OK;
}

static double bytes_of(const char *dtype)
{
    /* nvfp4: half a byte and a byte of scale for 16 elements */
    return strcmp(dtype, "nvfp4") == 0 ? .5625
           : strcmp(dtype, "fp8") == 0 ? 1
                                       : 2;
}

static enum mw_status read_trtllm(const struct mw_csv *csv, size_t r,
                                  struct mw_moe_samples *out,
                                  struct mw_err *err)
{
    struct mw_moe_sample s;
    const char *op = text(csv, r, "op");
    double us = 0;
    memset(&s, 0, sizeof s);
    find_machine(text(csv, r, "gpu"), &s);
    enum mw_status st = read_shape(csv, r, "tokens", &s, err);
    st = st == MW_OK ? whole(csv, r, "ep", &s.traffic.n_ranks, err) : st;
    st = st == MW_OK ? num(csv, r, "time_us", &us, err) : st;
    if (st != MW_OK) {
        return st;
    }
    s.traffic.ranks_per_node = s.traffic.n_ranks; /* one NVLink domain */
    s.query.kernel = strcmp(text(csv, r, "kernel"), "NVLinkOneSided") == 0
                         ? MW_MOE_ONE_SIDED
                         : MW_MOE_TWO_SIDED;
    s.query.dispatch_bytes = bytes_of(text(csv, r, "moe_dtype"));
    s.query.combine_bytes = 2;
    s.is_combine = strcmp(op, "alltoall_combine") == 0;
    s.time_s = us * 1e-6;
    if (!s.is_combine && strcmp(op, "alltoall_dispatch") != 0) {
        s.why_not = "preparation and low-precision combine: not modelled";
    } else if (strcmp(text(csv, r, "distribution"), "balanced") != 0) {
        s.why_not = "the table does not give the loads of the experts";
    }
    finish(csv, &s);
    mw_array_push(&out->v, s);
    return MW_OK;
}

static bool is_deepep(const struct mw_csv *csv)
{
    return mw_csv_col(csv, "mode") >= 0 &&
           mw_csv_col(csv, "dispatch_us") >= 0 &&
           mw_csv_col(csv, "combine_us") >= 0;
}

static bool is_trtllm(const struct mw_csv *csv)
{
    return mw_csv_col(csv, "op") >= 0 && mw_csv_col(csv, "kernel") >= 0 &&
           mw_csv_col(csv, "ep") >= 0 && mw_csv_col(csv, "time_us") >= 0;
}

bool mw_moe_is_table(const char *path)
{
    struct mw_arena arena;
    struct mw_csv csv;
    mw_arena_init(&arena);
    bool yes = mw_csv_load(path, &arena, &csv, NULL) == MW_OK &&
               (is_deepep(&csv) || is_trtllm(&csv));
    mw_arena_release(&arena);
    return yes;
}

enum mw_status mw_moe_samples_load(const char *path, struct mw_moe_samples *out,
                                   struct mw_err *err)
{
    struct mw_arena arena;
    struct mw_csv csv;
    mw_arena_init(&arena);
    enum mw_status s = mw_csv_load(path, &arena, &csv, err);
    if (s == MW_OK && !is_deepep(&csv) && !is_trtllm(&csv)) {
        s = mw_fail(err, MW_EINPUT,
                    "%s:1: no table of dispatch and combine: columns mode, "
                    "dispatch_us, combine_us, or op, kernel, ep, time_us",
                    csv.file);
    }
    for (size_t r = 0; s == MW_OK && r < csv.n_rows; r++) {
        s = is_deepep(&csv) ? read_deepep(&csv, r, out, err)
                            : read_trtllm(&csv, r, out, err);
    }
    mw_arena_release(&arena);
    return s;
}
