/*
 * Fitting and scoring dispatch and combine kernels: a class is a kernel on an
 * architecture with so many nodes and SMs, and has a latency and a bandwidth
 * for each phase:
 *
 *   minimise sum |(alpha + bytes / B) / t - 1|      (mw_coll_fit_line)
 */
#include "sim/coll/moe_fit.h"

#include "base/file.h"
#include "base/stats.h"
#include "sim/coll/coll_int.h"
#include "sim/coll/moe_int.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int nodes_of(const struct mw_moe_sample *s)
{
    return s->traffic.n_ranks / s->traffic.ranks_per_node;
}

static int by_class(const void *a, const void *b)
{
    const struct mw_moe_sample *x = *(const struct mw_moe_sample *const *)a;
    const struct mw_moe_sample *y = *(const struct mw_moe_sample *const *)b;
    int d = (int)x->query.kernel - (int)y->query.kernel;
    d = d ? d : strcmp(x->arch, y->arch);
    d = d ? d : nodes_of(x) - nodes_of(y);
    return d ? d : x->query.sms - y->query.sms;
}

static struct mw_fit_line fit_phase(const struct mw_moe_sample *const *s,
                                    size_t n, bool is_combine,
                                    size_t *out_points)
{
    double *x = mw_calloc(n + 1, sizeof *x), *t = mw_calloc(n + 1, sizeof *t);
    struct mw_fit_line l = {0, 0, 0};
    size_t k = 0;
    for (size_t i = 0; i < n; i++) {
        if (s[i]->is_combine == is_combine) {
            double per = is_combine ? s[i]->query.combine_bytes
                                    : s[i]->query.dispatch_bytes;
            x[k] = s[i]->elements * per;
            t[k++] = s[i]->time_s;
        }
    }
    if (k > 0) {
        l = mw_coll_fit_line(x, t, k, 1e-6);
    }
    *out_points = k;
    mw_free(x);
    mw_free(t);
    return l;
}

static void write_head(FILE *f)
{
    fprintf(
        f,
        "# Latency and bandwidth of expert dispatch and combine kernels:\n"
        "# time = alpha + bytes of the busiest rank / bandwidth (bytes as\n"
        "# sim/coll/moe.h counts them: fp8 with scales, 1.03125 bytes a\n"
        "# dispatched element, 2 a combined one; over several nodes a token\n"
        "# once per node for normal kernels). error: median of\n"
        "# |fit - measured| / measured. Written by moe_fit.\n"
        "# source: normal and low_latency: DeepEP timings published with\n"
        "# aiconfigurator (Apache-2.0, snapshot 095f58a of 2026-08-21) and\n"
        "# DeepEP's README; two_sided and one_sided: TensorRT-LLM timings of\n"
        "# the same; confidence M.\n"
        "kernel,arch,nodes,sms,dispatch_alpha_s,dispatch_Bps,"
        "combine_alpha_s,combine_Bps,points,dispatch_error,combine_error\n");
}

/* One class: into the table, and to the file. */
static void fit_class(const struct mw_moe_sample *const *s, size_t n,
                      struct mw_moe_table *table, struct moe_row *row, FILE *f)
{
    size_t n_dispatch = 0, n_combine = 0;
    struct mw_fit_line d = fit_phase(s, n, false, &n_dispatch);
    struct mw_fit_line c = fit_phase(s, n, true, &n_combine);
    if (n_dispatch < 8 || n_combine < 8) {
        return; /* figures of a page, not a sweep */
    }
    row[table->n++] =
        (struct moe_row){.kernel = mw_moe_kernel_name(s[0]->query.kernel),
                         .arch = mw_arena_strdup(&table->arena, s[0]->arch),
                         .nodes = nodes_of(s[0]),
                         .sms = s[0]->query.sms,
                         .dispatch_alpha_s = d.alpha_s,
                         .dispatch_Bps = d.Bps,
                         .combine_alpha_s = c.alpha_s,
                         .combine_Bps = c.Bps};
    if (f) {
        char sms[16] = "";
        if (s[0]->query.sms > 0) {
            snprintf(sms, sizeof sms, "%d", s[0]->query.sms);
        }
        fprintf(f, "%s,%s,%d,%s,%.3g,%.4g,%.3g,%.4g,%zu,%.3f,%.3f\n",
                mw_moe_kernel_name(s[0]->query.kernel), s[0]->arch,
                nodes_of(s[0]), sms, d.alpha_s, d.Bps, c.alpha_s, c.Bps,
                n_dispatch, d.error, c.error);
    }
}

enum mw_status mw_moe_fit(const struct mw_moe_samples *samples,
                          const char *without, const char *path,
                          struct mw_moe_table **out, struct mw_err *err)
{
    struct mw_outfile o;
    size_t n = 0;
    if (path) {
        enum mw_status s = mw_outfile_open(&o, path, err);
        if (s != MW_OK) {
            return s;
        }
        write_head(o.f);
    }
    const struct mw_moe_sample **v = mw_calloc(samples->v.n + 1, sizeof *v);
    for (size_t i = 0; i < samples->v.n; i++) {
        const struct mw_moe_sample *s = &samples->v.v[i];
        if (!s->why_not && (!without || strcmp(s->unit, without) != 0)) {
            v[n++] = s;
        }
    }
    if (n > 0) {
        qsort(v, n, sizeof *v, by_class);
    }
    struct mw_moe_table *table = mw_calloc(1, sizeof *table);
    mw_arena_init(&table->arena);
    struct moe_row *row = mw_arena_alloc(&table->arena, n + 1, sizeof *row);
    table->row = row;
    for (size_t i = 0; i < n;) {
        size_t k = 1;
        while (i + k < n && by_class(&v[i], &v[i + k]) == 0) {
            k++;
        }
        fit_class(v + i, k, table, row, path ? o.f : NULL);
        i += k;
    }
    mw_free(v);
    if (out) {
        *out = table;
    } else {
        mw_moe_table_free(table);
    }
    return path ? mw_outfile_commit(&o, err) : MW_OK;
}

/* ---- scoring ---- */

static double predict(const struct mw_hwdb *db,
                      const struct mw_moe_table *table,
                      const struct mw_moe_sample *s)
{
    const struct mw_system *system = NULL;
    struct mw_moe_time t;
    return s->why_not ||
                   mw_hwdb_system(db, s->system, &system, NULL) != MW_OK ||
                   mw_moe_predict(table, system, &s->traffic, &s->query, &t,
                                  NULL) != MW_OK
               ? (double)NAN
           : s->is_combine ? t.combine_s
                           : t.dispatch_s;
}

/* As a row of a collective, for the common scores: no operation of NCCL's. */
static struct mw_coll_row row_of(const struct mw_moe_sample *s)
{
    struct mw_coll_row r;
    memset(&r, 0, sizeof r);
    snprintf(r.system, sizeof r.system, "%s", s->system);
    snprintf(r.unit, sizeof r.unit, "%s", s->unit);
    r.query.op = MW_COLL_OP_COUNT;
    r.query.bytes = s->elements * (s->is_combine ? s->query.combine_bytes
                                                 : s->query.dispatch_bytes);
    r.query.n_nodes = s->traffic.ranks_per_node > 0 ? nodes_of(s) : 1;
    r.time_s = s->time_s;
    r.why_not = s->why_not;
    return r;
}

/* Has another unit the same kernel on as many nodes of the architecture? */
static enum mw_coll_class class_of(const struct mw_moe_samples *all,
                                   const struct mw_moe_sample *s)
{
    if (s->why_not || nodes_of(s) == 1) {
        return MW_COLL_INSIDE;
    }
    for (size_t i = 0; i < all->v.n; i++) {
        const struct mw_moe_sample *o = &all->v.v[i];
        if (!o->why_not && strcmp(o->unit, s->unit) != 0 &&
            o->query.kernel == s->query.kernel &&
            strcmp(o->arch, s->arch) == 0 && nodes_of(o) == nodes_of(s)) {
            return MW_COLL_NET_SEEN;
        }
    }
    return MW_COLL_NET_UNSEEN;
}

/* Every unit with a table fitted without it. */
static enum mw_status leave_out(const struct mw_hwdb *db,
                                const struct mw_moe_samples *s, double *time_s,
                                struct mw_err *err)
{
    for (size_t i = 0; i < s->v.n; i++) {
        bool is_first = true;
        for (size_t j = 0; j < i && is_first; j++) {
            is_first = strcmp(s->v.v[j].unit, s->v.v[i].unit) != 0;
        }
        if (!is_first) {
            continue;
        }
        struct mw_moe_table *table = NULL;
        enum mw_status st = mw_moe_fit(s, s->v.v[i].unit, NULL, &table, err);
        if (st != MW_OK) {
            return st;
        }
        for (size_t j = i; j < s->v.n; j++) {
            if (strcmp(s->v.v[j].unit, s->v.v[i].unit) == 0) {
                time_s[j] = predict(db, table, &s->v.v[j]);
            }
        }
        mw_moe_table_free(table);
    }
    return MW_OK;
}

enum mw_status mw_moe_validate(const struct mw_hwdb *db,
                               const char *const *paths, size_t n_paths,
                               bool is_left_out, struct mw_coll_validation *out,
                               struct mw_err *err)
{
    struct mw_moe_samples s = {{NULL, 0, 0}};
    struct mw_moe_table *table = NULL;
    struct mw_coll_rows rows = {{NULL, 0, 0}, {NULL, 0, 0}};
    enum mw_status st = mw_moe_table_load(db, &table, err);
    memset(out, 0, sizeof *out);
    for (size_t i = 0; i < n_paths && st == MW_OK; i++) {
        st = mw_moe_samples_load(paths[i], &s, err);
    }
    double *t = mw_calloc(s.v.n + 1, sizeof *t);
    double *left = mw_calloc(s.v.n + 1, sizeof *left);
    enum mw_coll_class *cls = mw_calloc(s.v.n + 1, sizeof *cls);
    for (size_t i = 0; i < s.v.n && st == MW_OK; i++) {
        struct mw_coll_row r = row_of(&s.v.v[i]);
        mw_array_push(&rows.row, r);
        t[i] = predict(db, table, &s.v.v[i]);
        cls[i] = class_of(&s, &s.v.v[i]);
    }
    if (st == MW_OK && is_left_out) {
        st = leave_out(db, &s, left, err);
    }
    if (st == MW_OK) {
        mw_coll_validation_fill(&rows, cls, t, is_left_out ? left : NULL, out);
    }
    mw_free(t);
    mw_free(left);
    mw_free(cls);
    mw_coll_rows_release(&rows);
    mw_moe_table_free(table);
    mw_array_release(&s.v);
    return st;
}
