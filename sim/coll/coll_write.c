/* Writing the tables of the fit; the readers are in coll_fit.c. */
#include "sim/coll/coll_fit.h"

#include "base/file.h"

#include <stdio.h>

static const char knots_head[] =
    "# Measured collectives against the model that sim/coll/coll_base.c\n"
    "# describes, and the weights that make corrections of them: the log\n"
    "# of a correction is the sum of weight x likeness (coll_kernel.c).\n"
    "# campaign: the table of measurements (docs/collectives.md names\n"
    "# them), of collections also machine and NCCL version; class:\n"
    "# architecture.inside of a node, or architecture.network; ranks of a\n"
    "# node and nodes, where an NVLink domain is one node; share: of the\n"
    "# latency in the model's time; net: of the network between nodes;\n"
    "# ratio: measured / model's time, the median of `points` rows nearest to\n"
    "# that power of two, overhead of the harness (coll_harness.csv) taken\n"
    "# off. Written by the program coll_fit (source: those tables; confidence\n"
    "# M: fitted).\n"
    "campaign,machine,class,op,algo,proto,ranks,nodes,log2_bytes,share,net,"
    "ratio,points,weight\n";

static const char overheads_head[] =
    "# What a harness adds to a collective on one node, campaign by\n"
    "# campaign; the median of a harness is used. one-process (nccl-tests\n"
    "# -g N) and torch: measured less predicted time of small messages;\n"
    "# profiler: the time itself, which no kernel of a collective stays\n"
    "# below while its ranks arrive apart. nccl-tests with a process for\n"
    "# every GPU: nothing. Written by coll_fit (source: the tables named\n"
    "# as campaigns; confidence M: fitted).\n"
    "harness,campaign,overhead_us\n";

static const char engines_head[] =
    "# All-reduce kernels of inference engines (sim/coll/coll_engine.h):\n"
    "# time = us + bytes a rank reads / GBps, in a graph; launch_us: the\n"
    "# least that an eager call takes, copy_us: what its copy of the "
    "input\n"
    "# takes besides the bytes. kernels: custom (vllm, sglang) or trtllm.\n"
    "# error: median |error| of the points in graphs. Written by coll_fit\n"
    "# (source: custom all-reduce timings published with aiconfigurator,\n"
    "# Apache-2.0, 095f58a of 2026-08-21; confidence M: fitted).\n"
    "kernels,class,one_shot_us,one_shot_GBps,two_shot_us,two_shot_GBps,"
    "launch_us,copy_us,points,error\n";

/* A new file with its comment head and column names. */
static enum mw_status open_table(const char *path, const char *head,
                                 struct mw_outfile *out, struct mw_err *err)
{
    enum mw_status s = mw_outfile_open(out, path, err);
    if (s == MW_OK) {
        fputs(head, out->f);
    }
    return s;
}

enum mw_status mw_coll_fit_write(const struct mw_coll_fit *fit,
                                 const char *path, struct mw_err *err)
{
    struct mw_outfile o;
    enum mw_status s = open_table(path, knots_head, &o, err);
    if (s != MW_OK) {
        return s;
    }
    for (size_t i = 0; i < fit->knot.n; i++) {
        const struct mw_coll_knot *k = &fit->knot.v[i];
        fprintf(o.f, "%s,%s,%s,%s,%s,%s,%d,%d,%.0f,%.5g,%.5g,%.5g,%d,%.6g\n",
                k->campaign, k->machine, k->cls, k->op, k->algo, k->proto,
                k->ranks, k->nodes, k->log2_bytes, k->share, k->net, k->ratio,
                k->n_points, k->weight);
    }
    return mw_outfile_commit(&o, err);
}

enum mw_status mw_coll_overhead_write(const struct mw_coll_fit *fit,
                                      const char *path, struct mw_err *err)
{
    struct mw_outfile o;
    enum mw_status s = open_table(path, overheads_head, &o, err);
    if (s != MW_OK) {
        return s;
    }
    for (size_t i = 0; i < fit->overhead.n; i++) {
        const struct mw_coll_overhead *v = &fit->overhead.v[i];
        fprintf(o.f, "%s,%s,%.2f\n", mw_coll_harness_name(v->harness),
                v->campaign, v->seconds * 1e6);
    }
    return mw_outfile_commit(&o, err);
}

enum mw_status mw_coll_engine_write(const struct mw_coll_fit *fit,
                                    const char *path, struct mw_err *err)
{
    struct mw_outfile o;
    enum mw_status s = open_table(path, engines_head, &o, err);
    if (s != MW_OK) {
        return s;
    }
    for (size_t i = 0; i < fit->engine.n; i++) {
        const struct mw_engine_row *e = &fit->engine.v[i];
        fprintf(o.f, "%s,%s,%.3f,%.4g,%.3f,%.4g,%.3f,%.3f,%d,%.3f\n",
                e->is_trtllm ? "trtllm" : "custom", e->cls,
                e->one_alpha_s * 1e6, e->one_Bps * 1e-9, e->two_alpha_s * 1e6,
                e->two_Bps * 1e-9, e->launch_s * 1e6, e->copy_s * 1e6,
                e->n_points, e->error);
    }
    return mw_outfile_commit(&o, err);
}
