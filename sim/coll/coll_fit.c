/*
 * The fit: NCCL's model times a correction.
 *
 *   t = t_model x exp(sum over knots of weight x likeness) + overhead
 *
 * Knots and weights are the table coll_fit.csv (coll_learn.c solves them),
 * likeness is coll_kernel.c. A correction is summed at powers of two of the
 * message and interpolated linearly between them, with the algorithm and
 * protocol of the question; the sums are remembered. The overhead of the
 * harness is added, or the time of a profiler's kernel raised to it.
 */
#include "sim/coll/coll_fit.h"

#include "base/csv.h"
#include "base/file.h"
#include "base/stats.h"
#include "sim/coll/coll_int.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

void mw_coll_fit_release(struct mw_coll_fit *fit)
{
    mw_array_release(&fit->knot);
    mw_array_release(&fit->overhead);
    mw_array_release(&fit->engine);
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

/* Architecture and link or network. PCIe boxes differ by board and host: their
 * kind is "pcie", and the machine tells them apart. */
static void class_of(const struct mw_coll_world *w,
                     const struct mw_coll_query *q, bool is_multi, int trays,
                     char *out, size_t size)
{
    const struct mw_system *s = w->system;
    if (is_multi) {
        bool is_rack = s->scaleup_gpus > s->gpus_per_node && trays > 1;
        snprintf(out, size, "%s.%s%s", arch_of(w), is_rack ? "racks-" : "",
                 q->fabric ? q->fabric : s->inter_class);
    } else {
        bool is_pcie = w->has_nccl && w->shape.n_links == 0;
        snprintf(out, size, "%s.%s", arch_of(w),
                 is_pcie ? "pcie" : inside_of(w));
    }
}

void mw_coll_keys(struct mw_coll_world *world,
                  const struct mw_coll_query *query,
                  const struct mw_coll_answer *answer, struct mw_coll_knot *out)
{
    struct coll_place p = coll_place_of(world, query);
    memset(out, 0, sizeof *out);
    class_of(world, query, p.n_nodes > 1, p.trays, out->cls, sizeof out->cls);
    snprintf(out->machine, sizeof out->machine, "%s", world->system->slug);
    snprintf(out->op, sizeof out->op, "%s", mw_coll_op_name(query->op));
    snprintf(out->algo, sizeof out->algo, "%s",
             !world->has_nccl     ? "plain"
             : answer->has_choice ? mw_nccl_algo_name(answer->algo)
                                  : "p2p");
    snprintf(out->proto, sizeof out->proto, "%s",
             answer->has_choice ? mw_nccl_proto_name(answer->proto) : "-");
    out->ranks = p.ppn * p.trays;
    out->nodes = p.n_nodes;
    out->log2_bytes = log2(query->bytes);
    struct mw_coll_time t = mw_coll_base(world, query, answer, query->bytes);
    out->share = t.latency_s / t.time_s;
    out->net = t.net_s / t.time_s;
}

/* ---- looking up ---- */

void coll_fit_prepare(struct mw_coll_world *world)
{
    size_t n = world->fit.knot.n;
    mw_free(world->features);
    world->features = mw_calloc(n + 1, sizeof *world->features);
    for (size_t i = 0; i < n; i++) {
        coll_feature_of(&world->fit.knot.v[i], &world->features[i]);
    }
    memset(world->memo, 0, COLL_MEMOS * sizeof *world->memo);
}

void coll_fit_copy(const struct mw_coll_fit *from, struct mw_coll_fit *to)
{
    mw_array_clear(&to->knot);
    mw_array_clear(&to->overhead);
    mw_array_clear(&to->engine);
    for (size_t i = 0; i < from->knot.n; i++) {
        mw_array_push(&to->knot, from->knot.v[i]);
    }
    for (size_t i = 0; i < from->overhead.n; i++) {
        mw_array_push(&to->overhead, from->overhead.v[i]);
    }
    for (size_t i = 0; i < from->engine.n; i++) {
        mw_array_push(&to->engine, from->engine.v[i]);
    }
}

void mw_coll_world_set_fit(struct mw_coll_world *world,
                           const struct mw_coll_fit *fit)
{
    coll_fit_copy(fit, &world->fit);
    coll_fit_prepare(world);
}

double mw_coll_fit_overhead_s(const struct mw_coll_fit *fit,
                              enum mw_coll_harness harness)
{
    double *v = mw_calloc(fit->overhead.n + 1, sizeof *v);
    size_t n = 0;
    for (size_t i = 0; i < fit->overhead.n; i++) {
        const struct mw_coll_overhead *o = &fit->overhead.v[i];
        if (o->harness == harness) {
            v[n++] = o->seconds;
        }
    }
    double m = n ? mw_median(v, n) : 0;
    mw_free(v);
    return m;
}

static uint32_t text_hash(const char *s)
{
    uint32_t h = 2166136261U;
    for (; s && *s; s++) {
        h = (h ^ (unsigned char)*s) * 16777619U;
    }
    return h;
}

static struct coll_memo_key memo_key(const struct mw_coll_query *q,
                                     const struct mw_coll_answer *a, int octave)
{
    struct coll_memo_key k;
    memset(&k, 0, sizeof k);
    k.octave = octave;
    k.n_nodes = q->n_nodes;
    k.ppn = q->ranks_per_node;
    k.domain_trays = q->domain_trays;
    k.sharers = q->nic_sharers;
    k.fabric = text_hash(q->fabric);
    k.op = (uint8_t)q->op;
    k.algo = a->has_choice ? (uint8_t)(1 + a->algo) : 0;
    k.proto = a->has_choice ? (uint8_t)a->proto : 0;
    return k;
}

static size_t memo_slot(const struct coll_memo_key *k)
{
    uint64_t h = 14695981039346656037U;
    const int parts[] = {k->octave,  k->n_nodes,      k->ppn,
                         k->sharers, k->domain_trays, (int)k->fabric,
                         k->op,      k->algo,         k->proto};
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        h = (h ^ (uint32_t)parts[i]) * 1099511628211U;
    }
    return (size_t)(h ^ h >> 29) % COLL_MEMOS;
}

/* The correction at 2^octave bytes. */
static const struct coll_memo *at_octave(struct mw_coll_world *w,
                                         const struct mw_coll_query *query,
                                         const struct mw_coll_answer *a,
                                         int octave)
{
    struct coll_memo_key key = memo_key(query, a, octave);
    struct coll_memo *m = &w->memo[memo_slot(&key)];
    if (m->is_set && memcmp(&m->key, &key, sizeof key) == 0) {
        return m;
    }
    struct mw_coll_query q = *query;
    struct mw_coll_knot knot;
    struct coll_feature f;
    q.bytes = ldexp(1, octave);
    mw_coll_keys(w, &q, a, &knot);
    coll_feature_of(&knot, &f);
    double sum = 0;
    for (size_t i = 0; i < w->fit.knot.n; i++) {
        sum += w->fit.knot.v[i].weight * coll_kernel(&w->features[i], &f);
    }
    m->key = key;
    m->log_ratio = sum;
    m->kinship = coll_kinship_of(w->features, w->fit.knot.n, &f);
    m->is_set = true;
    return m;
}

static const char *source_of(enum coll_kinship kinship)
{
    switch (kinship) {
    case COLL_KIN_SEEN:
        return "fitted on this class of machine and scale";
    case COLL_KIN_CLASS:
        return "fitted on this class of machine at another scale";
    case COLL_KIN_GPU:
        return "fitted on these GPUs with other links, and on what all "
               "machines share";
    case COLL_KIN_NONE:
        break;
    }
    return "no measurements of this class: NCCL's figures and what all "
           "machines share";
}

static double overhead_of(const struct mw_coll_world *w,
                          const struct mw_coll_query *q)
{
    return q->harness == MW_HARNESS_TESTS
               ? 0
               : mw_coll_fit_overhead_s(&w->fit, q->harness);
}

void coll_fit_apply(struct mw_coll_world *world,
                    const struct mw_coll_query *query, struct mw_coll_answer *a)
{
    double at = log2(query->bytes) > 0 ? log2(query->bytes) : 0;
    int below = (int)floor(at);
    double part = at - below;
    const struct coll_memo *m = at_octave(world, query, a, below);
    double log_ratio = (1 - part) * m->log_ratio;
    a->source = source_of(m->kinship);
    if (part > 0) {
        log_ratio += part * at_octave(world, query, a, below + 1)->log_ratio;
    }
    a->ratio = exp(log_ratio);
    if (query->engine != MW_ENGINE_NONE) {
        a->time_s *= a->ratio;
        coll_engine_apply(world, query, a);
        return;
    }
    double corrected_s = a->time_s * a->ratio;
    double overhead_s = overhead_of(world, query);
    /* A profiler's kernel lasts at least until the last rank has come. */
    a->time_s = query->harness != MW_HARNESS_PROFILER ? corrected_s + overhead_s
                : query->op == MW_SEND_RECV           ? corrected_s
                                            : fmax(corrected_s, overhead_s);
    a->overhead_s = a->time_s - corrected_s;
}

/* ---- engines ---- */

void coll_engine_apply(struct mw_coll_world *world,
                       const struct mw_coll_query *q, struct mw_coll_answer *a)
{
    struct coll_place p = coll_place_of(world, q);
    int n = p.ppn * p.trays;
    char cls[48];
    class_of(world, q, false, p.trays, cls, sizeof cls);
    struct mw_engine_row row;
    bool has_row = mw_engine_row_find(world->fit.engine.v, world->fit.engine.n,
                                      q->engine == MW_ENGINE_TRTLLM, cls, &row);
    enum mw_engine_kernel kernel = mw_engine_kernel_of(
        q->engine, n, q->bytes, world->has_nccl && world->shape.n_links > 0);
    bool has_kernel =
        kernel == MW_KERNEL_NCCL ||
        (kernel == MW_KERNEL_ONE_SHOT ? row.one_Bps : row.two_Bps) > 0;
    if (!has_row || q->op != MW_ALL_REDUCE || p.n_nodes > 1 || !has_kernel) {
        a->source = "no measurements of the engine on this class: NCCL's time";
        return;
    }
    double read = mw_engine_read_bytes(kernel, n, q->bytes);
    if (kernel != MW_KERNEL_NCCL) {
        bool is_one = kernel == MW_KERNEL_ONE_SHOT;
        a->kernel = is_one ? "one_shot" : "two_shot";
        a->has_choice = false;
        a->ratio = 1;
        a->time_s = is_one ? row.one_alpha_s + read / row.one_Bps
                           : row.two_alpha_s + read / row.two_Bps;
        a->source = row.is_fitted ? "fitted on the engine's kernels"
                                  : "the engine's kernels on other GPUs";
    }
    if (q->is_eager) {
        double moved_s = 2 * q->bytes / world->system->gpu->mem_bw_Bps;
        double copied_s = a->time_s + row.copy_s + moved_s;
        double before_s = a->time_s;
        a->time_s = fmax(row.launch_s, copied_s);
        a->overhead_s = a->time_s - before_s;
    }
}

/* ---- files ---- */

/* A table's rows, bound to structs of `size` bytes in the arena. */
struct bound {
    struct mw_arena arena;
    struct mw_csv csv;
    void *rows;
    size_t n;
};

/* Release the arena in either case. */
static enum mw_status bind_table(const char *path,
                                 const struct mw_csv_field *fields, size_t size,
                                 struct bound *out, struct mw_err *err)
{
    out->rows = NULL;
    out->n = 0;
    mw_arena_init(&out->arena);
    enum mw_status s = mw_csv_load(path, &out->arena, &out->csv, err);
    if (s == MW_OK) {
        s = mw_csv_bind(&out->csv, fields, size, false, &out->arena, &out->rows,
                        err);
    }
    out->n = s == MW_OK ? out->csv.n_rows : 0;
    return s;
}

static enum mw_status load_knots(const char *path, struct mw_coll_fit *fit,
                                 struct mw_err *err)
{
    struct row {
        const char *campaign, *machine, *cls, *op, *algo, *proto;
        int64_t ranks, nodes, n_points;
        double log2_bytes, share, net, ratio, weight;
    };
    static const struct mw_csv_field fields[] = {
        {"campaign", MW_C_STR, offsetof(struct row, campaign), true, 0, 0, 0},
        {"machine", MW_C_STR, offsetof(struct row, machine), true, 0, 0, 0},
        {"class", MW_C_STR, offsetof(struct row, cls), true, 0, 0, 0},
        {"op", MW_C_STR, offsetof(struct row, op), true, 0, 0, 0},
        {"algo", MW_C_STR, offsetof(struct row, algo), true, 0, 0, 0},
        {"proto", MW_C_STR, offsetof(struct row, proto), true, 0, 0, 0},
        {"ranks", MW_C_INT, offsetof(struct row, ranks), true, 1, 1e6, 0},
        {"nodes", MW_C_INT, offsetof(struct row, nodes), true, 1, 1e6, 0},
        {"log2_bytes", MW_C_NUM, offsetof(struct row, log2_bytes), true, 0, 60,
         0},
        {"share", MW_C_NUM, offsetof(struct row, share), true, 1e-9, 1, 0},
        {"net", MW_C_NUM, offsetof(struct row, net), false, 0, 1, 0},
        {"ratio", MW_C_NUM, offsetof(struct row, ratio), true, 1e-3, 1e4, 0},
        {"points", MW_C_INT, offsetof(struct row, n_points), false, 0, 1e9, 0},
        {"weight", MW_C_NUM, offsetof(struct row, weight), true, -1e6, 1e6, 0},
        {.name = NULL}};
    struct bound b;
    enum mw_status s = bind_table(path, fields, sizeof(struct row), &b, err);
    for (size_t i = 0; s == MW_OK && i < b.n; i++) {
        const struct row *r = (const struct row *)b.rows + i;
        struct mw_coll_knot k = {.ranks = (int)r->ranks,
                                 .nodes = (int)r->nodes,
                                 .log2_bytes = r->log2_bytes,
                                 .share = r->share,
                                 .net = r->net,
                                 .ratio = r->ratio,
                                 .weight = r->weight,
                                 .n_points = (int)r->n_points};
        snprintf(k.campaign, sizeof k.campaign, "%s", r->campaign);
        snprintf(k.machine, sizeof k.machine, "%s", r->machine);
        snprintf(k.cls, sizeof k.cls, "%s", r->cls);
        snprintf(k.op, sizeof k.op, "%s", r->op);
        snprintf(k.algo, sizeof k.algo, "%s", r->algo);
        snprintf(k.proto, sizeof k.proto, "%s", r->proto);
        mw_array_push(&fit->knot, k);
    }
    mw_arena_release(&b.arena);
    return s;
}

static enum mw_status load_overheads(const char *path, struct mw_coll_fit *fit,
                                     struct mw_err *err)
{
    struct row {
        const char *harness, *campaign;
        double us;
    };
    static const struct mw_csv_field fields[] = {
        {"harness", MW_C_STR, offsetof(struct row, harness), true, 0, 0, 0},
        {"campaign", MW_C_STR, offsetof(struct row, campaign), true, 0, 0, 0},
        {"overhead_us", MW_C_NUM, offsetof(struct row, us), true, 0, 1e6, 0},
        {.name = NULL}};
    struct bound b;
    enum mw_status s = bind_table(path, fields, sizeof(struct row), &b, err);
    for (size_t i = 0; s == MW_OK && i < b.n; i++) {
        const struct row *r = (const struct row *)b.rows + i;
        struct mw_coll_overhead o = {.seconds = r->us * 1e-6};
        snprintf(o.campaign, sizeof o.campaign, "%s", r->campaign);
        if (!mw_coll_harness_find(r->harness, &o.harness)) {
            s = mw_csv_fail(&b.csv, i, mw_csv_col(&b.csv, "harness"), err,
                            "no harness '%.40s'", r->harness);
        }
        mw_array_push(&fit->overhead, o);
    }
    mw_arena_release(&b.arena);
    return s;
}

static enum mw_status load_engines(const char *path, struct mw_coll_fit *fit,
                                   struct mw_err *err)
{
    struct row {
        const char *kernels, *cls;
        double one_us, one_GBps, two_us, two_GBps, launch_us, copy_us;
    };
    static const struct mw_csv_field fields[] = {
        {"kernels", MW_C_STR, offsetof(struct row, kernels), true, 0, 0, 0},
        {"class", MW_C_STR, offsetof(struct row, cls), true, 0, 0, 0},
        {"one_shot_us", MW_C_NUM, offsetof(struct row, one_us), true, 0, 1e6,
         0},
        {"one_shot_GBps", MW_C_NUM, offsetof(struct row, one_GBps), true, 0,
         1e6, 0},
        {"two_shot_us", MW_C_NUM, offsetof(struct row, two_us), false, 0, 1e6,
         0},
        {"two_shot_GBps", MW_C_NUM, offsetof(struct row, two_GBps), false, 0,
         1e6, 0},
        {"launch_us", MW_C_NUM, offsetof(struct row, launch_us), false, 0, 1e6,
         0},
        {"copy_us", MW_C_NUM, offsetof(struct row, copy_us), false, 0, 1e6, 0},
        {.name = NULL}};
    struct bound b;
    enum mw_status s = bind_table(path, fields, sizeof(struct row), &b, err);
    for (size_t i = 0; s == MW_OK && i < b.n; i++) {
        const struct row *r = (const struct row *)b.rows + i;
        struct mw_engine_row e = {.is_trtllm =
                                      strcmp(r->kernels, "trtllm") == 0,
                                  .is_fitted = true,
                                  .one_alpha_s = r->one_us * 1e-6,
                                  .one_Bps = r->one_GBps * 1e9,
                                  .two_alpha_s = r->two_us * 1e-6,
                                  .two_Bps = r->two_GBps * 1e9,
                                  .launch_s = r->launch_us * 1e-6,
                                  .copy_s = r->copy_us * 1e-6};
        snprintf(e.cls, sizeof e.cls, "%s", r->cls);
        mw_array_push(&fit->engine, e);
    }
    mw_arena_release(&b.arena);
    return s;
}

static enum mw_status load_folder(const char *dir, struct mw_coll_fit *fit,
                                  struct mw_err *err)
{
    char path[MW_COLL_PATH_MAX];
    enum mw_status s = MW_OK;
    snprintf(path, sizeof path, "%s/coll_fit.csv", dir);
    if (mw_file_exists(path)) {
        s = load_knots(path, fit, err);
    }
    snprintf(path, sizeof path, "%s/coll_harness.csv", dir);
    if (s == MW_OK && mw_file_exists(path)) {
        s = load_overheads(path, fit, err);
    }
    snprintf(path, sizeof path, "%s/coll_kernels.csv", dir);
    if (s == MW_OK && mw_file_exists(path)) {
        s = load_engines(path, fit, err);
    }
    return s;
}

enum mw_status mw_coll_fit_load(const struct mw_hwdb *db,
                                struct mw_coll_fit *out, struct mw_err *err)
{
    const char *overlay = mw_hwdb_overlay_dir(db);
    enum mw_status s = load_folder(mw_hwdb_data_dir(db), out, err);
    if (s == MW_OK && overlay) {
        s = load_folder(overlay, out, err);
    }
    return s;
}
