/*
 * moe_fit FILE -o coll_moe.csv: fits latency and bandwidth of the dispatch and
 * combine kernels on a table of DeepEP timings (columns mode, gpu, gpus,
 * nodes, hidden, tokens_per_rank, topk, experts, dispatch_us, dispatch_sms,
 * combine_us), one pair a phase for every kernel, architecture, number of
 * nodes and number of SMs.
 *
 *   minimise sum |(alpha + bytes / B) / t - 1|
 *
 * by least squares re-weighted with 1 / sqrt(max(|error|, 2 %)), 30 rounds.
 */
#include "sim/coll/moe.h"

#include "base/csv.h"
#include "base/file.h"
#include "base/stats.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct point {
    char kernel[16], arch[24];
    int nodes, sms;
    double elements, dispatch_s, combine_s;
};
struct line {
    double alpha_s, Bps, error;
};
static const double DISPATCH_BYTES = 1.03125, COMBINE_BYTES = 2;

static const char *arch_of(const char *gpu)
{
    return strncmp(gpu, "GB", 2) == 0     ? "Blackwell-rack"
           : strncmp(gpu, "B200", 4) == 0 ? "Blackwell"
           : strncmp(gpu, "B300", 4) == 0 ? "Blackwell"
           : strncmp(gpu, "H100", 4) == 0 ? "Hopper"
           : strncmp(gpu, "H200", 4) == 0 ? "Hopper"
                                          : NULL;
}

static double num(const struct mw_csv *csv, size_t r, const char *col)
{
    double v = 0;
    mw_csv_num_or(csv, r, mw_csv_col(csv, col), 0, &v, NULL);
    return v;
}

static bool read_point(const struct mw_csv *csv, size_t r, struct point *p)
{
    const char *arch = arch_of(mw_csv_str(csv, r, mw_csv_col(csv, "gpu")));
    int n = (int)num(csv, r, "gpus"), experts = (int)num(csv, r, "experts");
    memset(p, 0, sizeof *p);
    p->nodes = (int)num(csv, r, "nodes");
    p->sms = (int)num(csv, r, "dispatch_sms");
    p->dispatch_s = num(csv, r, "dispatch_us") * 1e-6;
    p->combine_s = num(csv, r, "combine_us") * 1e-6;
    if (!arch || n < 1 || experts % n != 0 || p->nodes < 1 ||
        p->dispatch_s <= 0 || p->combine_s <= 0) {
        return false;
    }
    snprintf(p->kernel, sizeof p->kernel, "%s",
             mw_csv_str(csv, r, mw_csv_col(csv, "mode")));
    snprintf(p->arch, sizeof p->arch, "%s", arch);
    struct mw_moe_traffic t = {.n_experts = experts,
                               .top_k = (int)num(csv, r, "topk"),
                               .n_ranks = n,
                               .ranks_per_node = n / p->nodes};
    struct mw_moe_load load;
    if (mw_moe_load(&t, &load, NULL) != MW_OK) {
        return false;
    }
    double copies = strcmp(p->kernel, "low_latency") == 0 ? t.top_k
                    : p->nodes > 1                        ? load.nodes_per_token
                                   : load.copies_per_token;
    mw_moe_load_release(&load);
    p->elements =
        num(csv, r, "tokens_per_rank") * copies * num(csv, r, "hidden");
    return true;
}

static int by_class(const void *a, const void *b)
{
    const struct point *x = a, *y = b;
    int d = strcmp(x->kernel, y->kernel);
    d = d ? d : strcmp(x->arch, y->arch);
    d = d ? d : x->nodes - y->nodes;
    return d ? d : x->sms - y->sms;
}

static double time_of(const struct point *p, bool combine)
{
    return combine ? p->combine_s : p->dispatch_s;
}

static struct line fit(const struct point *p, size_t n, bool combine)
{
    double per = combine ? COMBINE_BYTES : DISPATCH_BYTES;
    double *w = mw_calloc(n, sizeof *w), *e = mw_calloc(n, sizeof *e);
    double a = 0, b = 0;
    for (size_t i = 0; i < n; i++) {
        w[i] = 1 / time_of(&p[i], combine);
    }
    for (int round = 0; round < 30; round++) {
        double s = 0, sx = 0, sy = 0, sxx = 0, sxy = 0;
        for (size_t i = 0; i < n; i++) {
            double v = w[i] * w[i], x = p[i].elements * per;
            double y = time_of(&p[i], combine);
            s += v;
            sx += v * x;
            sy += v * y;
            sxx += v * x * x;
            sxy += v * x * y;
        }
        b = (s * sxy - sx * sy) / (s * sxx - sx * sx);
        a = (sy - b * sx) / s;
        a = a > 1e-6 ? a : 1e-6;
        for (size_t i = 0; i < n; i++) {
            double y = time_of(&p[i], combine);
            e[i] = fabs((a + b * p[i].elements * per) / y - 1);
            w[i] = 1 / y / sqrt(e[i] > .02 ? e[i] : .02);
        }
    }
    struct line l = {.alpha_s = a, .Bps = 1 / b, .error = mw_median(e, n)};
    mw_free(w);
    mw_free(e);
    return l;
}

static void write_rows(FILE *f, const struct point *p, size_t n)
{
    fprintf(
        f,
        "# Latency and bandwidth of expert dispatch and combine kernels:\n"
        "# time = alpha + bytes of the busiest rank / bandwidth (bytes as\n"
        "# sim/coll/moe.h counts them: fp8 with scales, 1.03125 bytes a\n"
        "# dispatched element, 2 a combined one; over several nodes a token\n"
        "# once per node for normal kernels). error: median of\n"
        "# |fit - measured| / measured. Written by moe_fit.\n"
        "# source: DeepEP timings published with aiconfigurator (Apache-2.0,\n"
        "# snapshot 095f58a of 2026-08-21) and DeepEP's README; confidence M.\n"
        "kernel,arch,nodes,sms,dispatch_alpha_s,dispatch_Bps,"
        "combine_alpha_s,combine_Bps,points,dispatch_error,combine_error\n");
    for (size_t i = 0; i < n;) {
        size_t k = 1;
        while (i + k < n && by_class(&p[i], &p[i + k]) == 0) {
            k++;
        }
        if (k >= 8) { /* fewer are figures of a page, not a sweep */
            struct line d = fit(p + i, k, false), c = fit(p + i, k, true);
            char sms[16] = "";
            if (p[i].sms > 0) {
                snprintf(sms, sizeof sms, "%d", p[i].sms);
            }
            fprintf(f, "%s,%s,%d,%s,%.3g,%.4g,%.3g,%.4g,%zu,%.3f,%.3f\n",
                    p[i].kernel, p[i].arch, p[i].nodes, sms, d.alpha_s, d.Bps,
                    c.alpha_s, c.Bps, k, d.error, c.error);
        }
        i += k;
    }
}

int main(int argc, char **argv)
{
    struct mw_err err = {.status = MW_OK};
    struct mw_arena arena;
    struct mw_csv csv;
    struct mw_outfile o;
    MW_ARRAY(struct point) pts = {NULL, 0, 0};
    if (argc != 4 || strcmp(argv[2], "-o") != 0) {
        fprintf(stderr, "usage: %s FILE -o coll_moe.csv\n", argv[0]);
        return 2;
    }
    mw_arena_init(&arena);
    enum mw_status s = mw_csv_load(argv[1], &arena, &csv, &err);
    if (s == MW_OK) {
        s = mw_outfile_open(&o, argv[3], &err);
    }
    if (s == MW_OK) {
        for (size_t r = 0; r < csv.n_rows; r++) {
            struct point p;
            if (read_point(&csv, r, &p)) {
                mw_array_push(&pts, p);
            }
        }
        if (pts.n > 0) {
            qsort(pts.v, pts.n, sizeof pts.v[0], by_class);
        }
        write_rows(o.f, pts.v, pts.n);
        s = mw_outfile_commit(&o, &err);
    }
    if (s != MW_OK) {
        fprintf(stderr, "moe_fit: %s\n", err.text);
    }
    mw_array_release(&pts);
    mw_arena_release(&arena);
    return mw_status_exit(s);
}
