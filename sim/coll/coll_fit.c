/*
 * The table of ratios: reading, writing, looking up.
 *
 * A knot is (class, operation, algorithm, scale, log2 bytes) -> ratio. Between
 * sizes and between scales log ratio is interpolated linearly in the logs;
 * outside the knots the nearest one holds. What is not in the table is taken
 * from the nearest kin: the same operation by another algorithm, the sibling
 * operation, the same kind of fabric of other GPUs; else the ratio is 1.
 */
#include "sim/coll/coll_fit.h"

#include "base/csv.h"
#include "base/file.h"
#include "sim/coll/coll_int.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void mw_coll_fit_release(struct mw_coll_fit *fit)
{
    mw_array_release(&fit->knot);
}

/* ---- keys ---- */

static const char *arch_of(const struct mw_coll_world *w)
{
    int sm = w->shape.sm;
    if (!w->has_nccl) {
        return w->system->gpu->arch;
    }
    return sm < 80    ? "volta"
           : sm < 86  ? "ampere"
           : sm < 90  ? "ada" /* GA102 and AD102 boards */
           : sm < 100 ? "hopper"
           : sm < 120 ? "blackwell"
                      : "blackwell-rtx";
}

static const char *inside_of(const struct mw_coll_world *w)
{
    bool is_rack = w->system->scaleup_gpus > w->system->gpus_per_node;
    return !w->has_nccl                       ? w->system->intra_class
           : is_rack && w->shape.has_nvswitch ? "rack"
           : w->shape.has_nvswitch            ? "nvswitch"
           : w->shape.is_cube_mesh            ? "cube"
           : w->shape.n_links > 0             ? "mesh"
                                              : w->system->intra_class;
}

void mw_coll_keys(struct mw_coll_world *world,
                  const struct mw_coll_query *query,
                  const struct mw_coll_answer *nccl, struct mw_coll_knot *out)
{
    struct coll_place p = coll_place_of(world, query);
    memset(out, 0, sizeof *out);
    if (p.n_nodes > 1) {
        const char *fabric =
            query->fabric ? query->fabric : world->system->inter_class;
        bool is_rack =
            world->system->scaleup_gpus > world->system->gpus_per_node;
        snprintf(out->cls, sizeof out->cls, "%s.%s%s", arch_of(world),
                 is_rack && p.trays > 1 ? "racks-" : "", fabric);
        out->scale = p.n_nodes;
    } else if (world->has_nccl && world->shape.n_links == 0) {
        /* PCIe boxes differ by board and host: each its own class. */
        snprintf(out->cls, sizeof out->cls, "%s-%s", world->system->intra_class,
                 world->system->gpu->slug);
        out->scale = query->n_nodes * query->ranks_per_node;
    } else {
        snprintf(out->cls, sizeof out->cls, "%s.%s", arch_of(world),
                 inside_of(world));
        out->scale = query->n_nodes * query->ranks_per_node;
    }
    snprintf(out->op, sizeof out->op, "%s", mw_coll_op_name(query->op));
    snprintf(out->algo, sizeof out->algo, "%s",
             nccl->has_choice ? mw_nccl_algo_name(nccl->algo) : "p2p");
}

static int by_key(const void *a, const void *b)
{
    const struct mw_coll_knot *x = a, *y = b;
    int d = strcmp(x->cls, y->cls);
    d = d ? d : strcmp(x->op, y->op);
    d = d ? d : strcmp(x->algo, y->algo);
    d = d ? d : (x->scale > y->scale) - (x->scale < y->scale);
    return d ? d
             : (x->log2_bytes > y->log2_bytes) -
                   (x->log2_bytes < y->log2_bytes);
}

void coll_fit_sort(struct mw_coll_fit *fit)
{
    if (fit->knot.n > 0) {
        qsort(fit->knot.v, fit->knot.n, sizeof fit->knot.v[0], by_key);
    }
}

/* ---- looking up ---- */

/* Knots [first, end) of a class: all look-ups stay inside them. */
struct range {
    size_t first, end;
};

/* First knot whose class does not come before `cls` (after it, if past). */
static size_t bound_of(const struct mw_coll_fit *fit, const char *cls,
                       bool past)
{
    size_t low = 0, high = fit->knot.n;
    while (low < high) {
        size_t mid = low + (high - low) / 2;
        int d = strcmp(fit->knot.v[mid].cls, cls);
        if (d < 0 || (past && d == 0)) {
            low = mid + 1;
        } else {
            high = mid;
        }
    }
    return low;
}

static struct range range_of(const struct mw_coll_fit *fit, const char *cls)
{
    return (struct range){bound_of(fit, cls, false), bound_of(fit, cls, true)};
}

static bool is_cell(const struct mw_coll_knot *k, const char *op,
                    const char *algo)
{
    return strcmp(k->op, op) == 0 && (!algo || strcmp(k->algo, algo) == 0);
}

/* log ratio of one run of knots [i, end) of the same scale. */
static double along_size(const struct mw_coll_knot *k, size_t n, double at)
{
    /* Below the smallest size the correction fades, by e in four octaves. */
    if (at <= k[0].log2_bytes) {
        return log(k[0].ratio) * exp((at - k[0].log2_bytes) / 4);
    }
    for (size_t i = 1; i < n; i++) {
        if (at <= k[i].log2_bytes) {
            double f = (at - k[i - 1].log2_bytes) /
                       (k[i].log2_bytes - k[i - 1].log2_bytes);
            return (1 - f) * log(k[i - 1].ratio) + f * log(k[i].ratio);
        }
    }
    return log(k[n - 1].ratio);
}

/* Over the scales of (class, op, algo); algo must be one. */
static bool cell_ratio(const struct mw_coll_fit *fit, struct range in,
                       const char *op, const char *algo, int scale, double at,
                       double *out)
{
    double below = 0, above = 0;
    int s_below = 0, s_above = 0;
    for (size_t i = in.first; i < in.end;) {
        const struct mw_coll_knot *k = &fit->knot.v[i];
        size_t n = 1;
        if (!is_cell(k, op, algo)) {
            i++;
            continue;
        }
        while (i + n < in.end && is_cell(&k[n], op, algo) &&
               k[n].scale == k->scale) {
            n++;
        }
        if (k->scale <= scale) {
            below = along_size(k, n, at);
            s_below = k->scale;
        } else if (!s_above) {
            above = along_size(k, n, at);
            s_above = k->scale;
        }
        i += n;
    }
    if (!s_below && !s_above) {
        return false;
    }
    if (!s_below || !s_above) {
        /* Outside the scales as well, by e in a factor of eight. */
        double far = fabs(log2(scale) - log2(s_below ? s_below : s_above));
        *out = (s_below ? below : above) * exp(-far / 3);
        return true;
    }
    double f = (log2(scale) - log2(s_below)) / (log2(s_above) - log2(s_below));
    *out = (1 - f) * below + f * above;
    return true;
}

/* Mean over the algorithms of an operation. */
static bool any_algo(const struct mw_coll_fit *fit, struct range in,
                     const char *op, int scale, double at, double *out)
{
    double sum = 0;
    int n = 0;
    const char *last = "";
    for (size_t i = in.first; i < in.end; i++) {
        const struct mw_coll_knot *k = &fit->knot.v[i];
        double v = 0;
        if (is_cell(k, op, NULL) && strcmp(k->algo, last) != 0 &&
            cell_ratio(fit, in, op, k->algo, scale, at, &v)) {
            sum += v;
            n++;
            last = k->algo;
        }
    }
    *out = n ? sum / n : 0;
    return n > 0;
}

static const char *sibling(const char *op)
{
    static const char *const pairs[][2] = {
        {"all_gather", "reduce_scatter"}, {"reduce_scatter", "all_gather"},
        {"all_reduce", "reduce_scatter"}, {"broadcast", "all_gather"},
        {"reduce", "reduce_scatter"},     {"send_recv", "all_to_all"},
        {"all_to_all", "send_recv"}};
    for (size_t i = 0; i < sizeof pairs / sizeof pairs[0]; i++) {
        if (strcmp(op, pairs[i][0]) == 0) {
            return pairs[i][1];
        }
    }
    return NULL;
}

static bool class_ratio(const struct mw_coll_fit *fit, struct range in,
                        const struct mw_coll_knot *key, double at, double *out)
{
    const char *op = key->op, *kin = sibling(op);
    return cell_ratio(fit, in, op, key->algo, key->scale, at, out) ||
           any_algo(fit, in, op, key->scale, at, out) ||
           (kin && cell_ratio(fit, in, kin, key->algo, key->scale, at, out)) ||
           (kin && any_algo(fit, in, kin, key->scale, at, out)) ||
           (strcmp(op, "all_reduce") == 0 &&
            any_algo(fit, in, "all_gather", key->scale, at, out)) ||
           (strcmp(op, "all_gather") == 0 &&
            any_algo(fit, in, "all_reduce", key->scale, at, out));
}

static const char *kind_of(const char *cls)
{
    const char *dot = strchr(cls, '.');
    return dot ? dot + 1 : cls;
}

static bool ends_with(const char *s, const char *end)
{
    size_t n = strlen(s), m = strlen(end);
    return n >= m && strcmp(s + n - m, end) == 0;
}

/* InfiniBand and RoCE through the same verbs are one family, NVSwitches of a
 * node and of a rack another. */
static bool is_same_family(const char *a, const char *b)
{
    bool rdma_a = ends_with(a, "ib") || ends_with(a, "roce");
    bool rdma_b = ends_with(b, "ib") || ends_with(b, "roce");
    bool racks_a = strncmp(a, "racks-", 6) == 0;
    bool racks_b = strncmp(b, "racks-", 6) == 0;
    bool switch_a = strcmp(a, "nvswitch") == 0 || strcmp(a, "rack") == 0;
    bool switch_b = strcmp(b, "nvswitch") == 0 || strcmp(b, "rack") == 0;
    return strcmp(a, b) == 0 || (rdma_a && rdma_b && racks_a == racks_b) ||
           (switch_a && switch_b);
}

static bool is_same_arch(const char *a, const char *b)
{
    size_t n = strcspn(a, ".");
    return n == strcspn(b, ".") && strncmp(a, b, n) == 0;
}

/* Mean over the classes of the same fabric (or its family). */
static bool kin_ratio(const struct mw_coll_fit *fit,
                      const struct mw_coll_knot *key, double at, bool same_arch,
                      bool family, double *out)
{
    double sum = 0;
    int n = 0;
    for (size_t i = 0, end; i < fit->knot.n; i = end) {
        const struct mw_coll_knot *k = &fit->knot.v[i];
        double v = 0;
        end = bound_of(fit, k->cls, true);
        bool fits = family ? is_same_family(kind_of(k->cls), kind_of(key->cls))
                           : strcmp(kind_of(k->cls), kind_of(key->cls)) == 0;
        if (!fits || (same_arch && !is_same_arch(k->cls, key->cls))) {
            continue;
        }
        if (class_ratio(fit, (struct range){i, end}, key, at, &v)) {
            sum += v;
            n++;
        }
    }
    *out = n ? sum / n : 0;
    return n > 0;
}

double coll_fit_ratio(const struct mw_coll_fit *fit,
                      const struct mw_coll_knot *key, double log2_bytes,
                      const char **out_source)
{
    /* What other GPUs show of a fabric is believed half (in the log). */
    const double trust = .5;
    double lr = 0;
    if (class_ratio(fit, range_of(fit, key->cls), key, log2_bytes, &lr)) {
        *out_source = "fitted on this class of machine";
        return exp(lr);
    }
    if (kin_ratio(fit, key, log2_bytes, true, true, &lr)) {
        *out_source = "fitted on the sibling fabric of the same GPUs";
        return exp(lr);
    }
    if (kin_ratio(fit, key, log2_bytes, false, false, &lr) ||
        kin_ratio(fit, key, log2_bytes, false, true, &lr)) {
        *out_source = "half of what other GPUs show on this fabric";
        return exp(trust * lr);
    }
    *out_source = "no measurements of this class: NCCL's own figures";
    return 1;
}

/* ---- files ---- */

static enum mw_status load_one(const char *path, struct mw_coll_fit *fit,
                               struct mw_err *err)
{
    struct row {
        const char *cls, *op, *algo;
        int64_t scale, n_points;
        double log2_bytes, ratio;
    };
    static const struct mw_csv_field fields[] = {
        {"class", MW_C_STR, offsetof(struct row, cls), true, 0, 0, 0},
        {"op", MW_C_STR, offsetof(struct row, op), true, 0, 0, 0},
        {"algo", MW_C_STR, offsetof(struct row, algo), true, 0, 0, 0},
        {"scale", MW_C_INT, offsetof(struct row, scale), true, 1, 1e7, 0},
        {"log2_bytes", MW_C_NUM, offsetof(struct row, log2_bytes), true, 0, 60,
         0},
        {"ratio", MW_C_NUM, offsetof(struct row, ratio), true, 1e-3, 1e4, 0},
        {"points", MW_C_INT, offsetof(struct row, n_points), false, 0, 1e9, 0},
        {.name = NULL}};
    struct mw_arena arena;
    struct mw_csv csv;
    void *rows = NULL;
    mw_arena_init(&arena);
    enum mw_status s = mw_csv_load(path, &arena, &csv, err);
    if (s == MW_OK) {
        s = mw_csv_bind(&csv, fields, sizeof(struct row), false, &arena, &rows,
                        err);
    }
    for (size_t i = 0; s == MW_OK && i < csv.n_rows; i++) {
        const struct row *r = (const struct row *)rows + i;
        struct mw_coll_knot k = {.scale = (int)r->scale,
                                 .log2_bytes = r->log2_bytes,
                                 .ratio = r->ratio,
                                 .n_points = (int)r->n_points};
        snprintf(k.cls, sizeof k.cls, "%s", r->cls);
        snprintf(k.op, sizeof k.op, "%s", r->op);
        snprintf(k.algo, sizeof k.algo, "%s", r->algo);
        mw_array_push(&fit->knot, k);
    }
    mw_arena_release(&arena);
    return s;
}

enum mw_status mw_coll_fit_load(const struct mw_hwdb *db,
                                struct mw_coll_fit *out, struct mw_err *err)
{
    char path[MW_COLL_PATH_MAX];
    enum mw_status s = MW_OK;
    snprintf(path, sizeof path, "%s/coll_fit.csv", mw_hwdb_data_dir(db));
    if (mw_file_exists(path)) {
        s = load_one(path, out, err);
    }
    const char *overlay = mw_hwdb_overlay_dir(db);
    if (s == MW_OK && overlay) {
        snprintf(path, sizeof path, "%s/coll_fit.csv", overlay);
        s = mw_file_exists(path) ? load_one(path, out, err) : MW_OK;
    }
    coll_fit_sort(out);
    return s;
}

enum mw_status mw_coll_fit_write(const struct mw_coll_fit *fit,
                                 const char *path, struct mw_err *err)
{
    struct mw_outfile o;
    enum mw_status s = mw_outfile_open(&o, path, err);
    if (s != MW_OK) {
        return s;
    }
    fprintf(
        o.f,
        "# Corrections of NCCL's cost model: measured time / model's time,\n"
        "# the median over units at each power of two of the message.\n"
        "# class: architecture.inside of the node, or architecture.fabric;\n"
        "# scale: ranks inside a node, nodes across. points 0: carried over\n"
        "# from the sibling operation. Written by the program coll_fit from\n"
        "# the measured tables named in docs/collectives.md (source: those\n"
        "# tables; confidence M: fitted). Bytes are nccl-tests sizes.\n"
        "class,op,algo,scale,log2_bytes,ratio,points\n");
    for (size_t i = 0; i < fit->knot.n; i++) {
        const struct mw_coll_knot *k = &fit->knot.v[i];
        fprintf(o.f, "%s,%s,%s,%d,%g,%.4f,%d\n", k->cls, k->op, k->algo,
                k->scale, k->log2_bytes, k->ratio, k->n_points);
    }
    return mw_outfile_commit(&o, err);
}
