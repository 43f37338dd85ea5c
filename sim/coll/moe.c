/* Expert all-to-all-v; the model is described in moe.h. */
#include "sim/coll/moe.h"

#include "base/csv.h"
#include "base/file.h"
#include "base/rand.h"
#include "sim/coll/coll_int.h"
#include "sim/coll/moe_int.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* ---- loads ---- */

static enum mw_status check(const struct mw_moe_traffic *t, struct mw_err *err)
{
    bool power = t->routing == MW_MOE_POWER_LAW;
    if (t->top_k < 1 || t->top_k > t->n_experts) {
        return mw_fail(err, MW_EINPUT,
                       "top %d of %d experts; a token goes to 1 to %d of them",
                       t->top_k, t->n_experts, t->n_experts);
    }
    if (t->n_experts > 65536 || t->n_ranks < 1 ||
        t->n_experts % t->n_ranks != 0 || t->ranks_per_node < 1 ||
        t->n_ranks % t->ranks_per_node != 0) {
        return mw_fail(err, MW_EINPUT,
                       "%d experts, top %d, on %d ranks of %d a node: experts "
                       "must divide over ranks and ranks over nodes",
                       t->n_experts, t->top_k, t->n_ranks, t->ranks_per_node);
    }
    int64_t in_node = (int64_t)(t->n_experts / t->n_ranks) * t->ranks_per_node;
    if (t->n_nodes_max > 0 && t->top_k > t->n_nodes_max * in_node) {
        return mw_fail(err, MW_EINPUT,
                       "top %d of experts on %d nodes at most, of %lld each; "
                       "raise the node limit or lower top-k",
                       t->top_k, t->n_nodes_max, (long long)in_node);
    }
    if ((t->routing == MW_MOE_HISTOGRAM && !t->histogram) ||
        (power && !(t->low > 0 && t->high > t->low)) ||
        !isfinite(t->exponent) || t->exponent < 0) {
        return mw_fail(err, MW_EINPUT,
                       "routing needs weights above zero, an exponent of at "
                       "least 0 and a range low < high");
    }
    return MW_OK;
}

static double weight_of(const struct mw_moe_traffic *t, int i)
{
    double a = t->exponent;
    switch (t->routing) {
    case MW_MOE_UNIFORM:
        return 1;
    case MW_MOE_ZIPF:
        return pow(i + 1, -a);
    case MW_MOE_POWER_LAW: {
        double u = (i + .5) / t->n_experts;
        if (fabs(a - 1) < 1e-9) {
            return t->low * pow(t->high / t->low, u);
        }
        double lo = pow(t->low, 1 - a), hi = pow(t->high, 1 - a);
        return pow((hi - lo) * u + lo, 1 / (1 - a));
    }
    case MW_MOE_HISTOGRAM:
        return t->histogram[i];
    }
    return 1;
}

/* Fisher-Yates with counter-based numbers. */
static void shuffle(double *v, int n, uint64_t seed)
{
    for (int i = n - 1; i > 0; i--) {
        int j = (int)(mw_rand_u64(seed, 11, (uint64_t)i) % (uint64_t)(i + 1));
        double keep = v[i];
        v[i] = v[j];
        v[j] = keep;
    }
}

/* Probability that a token has one of its k experts in a part of the experts
 * with `count` of them and probability p. */
static double hits(const struct mw_moe_traffic *t, int count, double p)
{
    if (t->routing != MW_MOE_UNIFORM) {
        return 1 - pow(1 - (p < 1 ? p : 1), t->top_k);
    }
    double miss = 1; /* C(E - c, k) / C(E, k) */
    for (int i = 0; i < t->top_k; i++) {
        double left = t->n_experts - count - i;
        miss *= left > 0 ? left / (t->n_experts - i) : 0;
    }
    return 1 - miss;
}

enum mw_status mw_moe_load(const struct mw_moe_traffic *traffic,
                           struct mw_moe_load *out, struct mw_err *err)
{
    const struct mw_moe_traffic *t = traffic;
    enum mw_status s = check(t, err);
    if (s != MW_OK) {
        return s;
    }
    struct mw_moe_load l = {.n_ranks = t->n_ranks,
                            .n_nodes = t->n_ranks / t->ranks_per_node};
    l.p = mw_calloc((size_t)t->n_experts, sizeof *l.p);
    l.rank_share = mw_calloc((size_t)l.n_ranks, sizeof *l.rank_share);
    l.node_share = mw_calloc((size_t)l.n_nodes, sizeof *l.node_share);
    double sum = 0;
    for (int i = 0; i < t->n_experts; i++) {
        l.p[i] = weight_of(t, i);
        if (!(l.p[i] >= 0) || !isfinite(l.p[i])) {
            mw_moe_load_release(&l);
            return mw_fail(err, MW_EINPUT, "expert %d has weight %g", i,
                           l.p[i]);
        }
        sum += l.p[i];
    }
    if (!(sum > 0)) {
        mw_moe_load_release(&l);
        return mw_fail(err, MW_EINPUT, "all experts have weight 0");
    }
    if (t->shuffle) {
        shuffle(l.p, t->n_experts, t->seed);
    }
    int per = t->n_experts / t->n_ranks;
    double most = 0;
    double *node_p = mw_calloc((size_t)l.n_nodes, sizeof *node_p);
    for (int r = 0; r < l.n_ranks; r++) {
        double p = 0;
        for (int i = r * per; i < (r + 1) * per; i++) {
            l.p[i] /= sum;
            p += l.p[i];
        }
        node_p[r / t->ranks_per_node] += p;
        most = p > most ? p : most;
        l.rank_share[r] = hits(t, per, p);
        l.copies_per_token += l.rank_share[r];
    }
    for (int k = 0; k < l.n_nodes; k++) {
        l.node_share[k] = hits(t, per * t->ranks_per_node, node_p[k]);
        l.nodes_per_token += l.node_share[k];
    }
    /* A limit of nodes moves the choice to fewer of them: all scale alike. */
    if (t->n_nodes_max > 0 && l.nodes_per_token > t->n_nodes_max) {
        double f = t->n_nodes_max / l.nodes_per_token;
        for (int k = 0; k < l.n_nodes; k++) {
            l.node_share[k] *= f;
        }
        l.nodes_per_token = t->n_nodes_max;
    }
    l.max_over_mean = most * l.n_ranks;
    mw_free(node_p);
    *out = l;
    return MW_OK;
}

void mw_moe_load_release(struct mw_moe_load *load)
{
    mw_free(load->p);
    mw_free(load->rank_share);
    mw_free(load->node_share);
    memset(load, 0, sizeof *load);
}

/* ---- rows ---- */

static const char *const kernel_names[MW_MOE_KERNELS] = {
    "normal", "low_latency", "two_sided", "one_sided"};

const char *mw_moe_kernel_name(enum mw_moe_kernel kernel)
{
    return kernel_names[kernel];
}

bool mw_moe_kernel_find(const char *name, enum mw_moe_kernel *out)
{
    for (int i = 0; i < MW_MOE_KERNELS; i++) {
        if (strcasecmp(name, kernel_names[i]) == 0) {
            *out = (enum mw_moe_kernel)i;
            return true;
        }
    }
    return false;
}

enum mw_status mw_moe_table_load(const struct mw_hwdb *db,
                                 struct mw_moe_table **out, struct mw_err *err)
{
#define NUM(field, low, high)                                                  \
    {                                                                          \
#field, MW_C_NUM, offsetof(struct moe_row, field), true, low, high, 0  \
    }
    static const struct mw_csv_field fields[] = {
        {"kernel", MW_C_STR, offsetof(struct moe_row, kernel), true, 0, 0, 0},
        {"arch", MW_C_STR, offsetof(struct moe_row, arch), true, 0, 0, 0},
        {"nodes", MW_C_INT, offsetof(struct moe_row, nodes), true, 1, 1e5, 0},
        {"sms", MW_C_INT, offsetof(struct moe_row, sms), false, 0, 1e3, 0},
        NUM(dispatch_alpha_s, 1e-9, 1),
        NUM(dispatch_Bps, 1e6, 1e15),
        NUM(combine_alpha_s, 1e-9, 1),
        NUM(combine_Bps, 1e6, 1e15),
        {.name = NULL}};
#undef NUM
    struct mw_moe_table *t = mw_calloc(1, sizeof *t);
    struct mw_csv csv;
    char path[MW_COLL_PATH_MAX];
    void *rows = NULL;
    const char *overlay = mw_hwdb_overlay_dir(db);
    snprintf(path, sizeof path, "%s/coll_moe.csv", overlay ? overlay : "");
    if (!overlay || !mw_file_exists(path)) {
        snprintf(path, sizeof path, "%s/coll_moe.csv", mw_hwdb_data_dir(db));
    }
    mw_arena_init(&t->arena);
    enum mw_status s = mw_csv_load(path, &t->arena, &csv, err);
    if (s == MW_OK) {
        s = mw_csv_bind(&csv, fields, sizeof(struct moe_row), false, &t->arena,
                        &rows, err);
    }
    if (s != MW_OK) {
        mw_moe_table_free(t);
        return s;
    }
    t->row = rows;
    t->n = csv.n_rows;
    *out = t;
    return MW_OK;
}

void mw_moe_table_free(struct mw_moe_table *table)
{
    if (table) {
        mw_arena_release(&table->arena);
        mw_free(table);
    }
}

static bool is_arch(const char *row, const struct mw_system *s)
{
    /* "Blackwell Ultra" takes Blackwell's rows; racks have their own. */
    bool rack = s->scaleup_gpus > s->gpus_per_node;
    bool row_rack = strstr(row, "rack") != NULL;
    size_t n = strcspn(row, "-");
    return strncmp(row, s->gpu->arch, n) == 0 && rack == row_rack;
}

/* The row of the kernel and architecture nearest in nodes, then in SMs. */
static const struct moe_row *find(const struct mw_moe_table *t,
                                  const struct mw_system *s,
                                  enum mw_moe_kernel kernel, int nodes, int sms)
{
    const char *name = kernel_names[kernel];
    const struct moe_row *best = NULL;
    double distance = 0;
    for (size_t i = 0; i < t->n; i++) {
        const struct moe_row *r = &t->row[i];
        if (strcmp(r->kernel, name) != 0 || !is_arch(r->arch, s) ||
            (r->nodes > 1) != (nodes > 1)) {
            continue;
        }
        double d = 10 * fabs(log2((double)r->nodes / nodes));
        d += r->sms > 0 ? fabs(log2((double)r->sms / sms)) : 0;
        if (!best || d < distance) {
            best = r;
            distance = d;
        }
    }
    return best;
}

bool mw_moe_is_measured(const struct mw_moe_table *table,
                        const struct mw_system *system,
                        enum mw_moe_kernel kernel, int nodes)
{
    return find(table, system, kernel, nodes, 24) != NULL;
}

/* ---- times ---- */

/* Copies that the busiest rank takes, in units of one rank's tokens; balanced:
 * all ranks alike. Low-latency kernels send k copies, without sharing. */
static double busiest(const struct mw_moe_load *l,
                      const struct mw_moe_traffic *t, enum mw_moe_kernel kernel,
                      bool balanced)
{
    double mean = kernel == MW_MOE_LOW_LATENCY ? t->top_k : l->copies_per_token;
    if (balanced) {
        return mean;
    }
    double most = 0;
    int per = t->n_experts / t->n_ranks;
    for (int r = 0; r < l->n_ranks; r++) {
        double p = 0;
        for (int i = r * per; i < (r + 1) * per; i++) {
            p += l->p[i];
        }
        double v = kernel == MW_MOE_LOW_LATENCY ? p * t->top_k * l->n_ranks
                                                : l->rank_share[r] * l->n_ranks;
        most = v > most ? v : most;
    }
    return most > mean ? most : mean;
}

/* Over the network a node's token copies count once per node. */
static double busiest_node(const struct mw_moe_load *l, bool balanced)
{
    double mean = l->nodes_per_token, most = 0;
    for (int k = 0; k < l->n_nodes && !balanced; k++) {
        double v = l->node_share[k] * l->n_nodes;
        most = v > most ? v : most;
    }
    return most > mean ? most : mean;
}

double mw_moe_elements(const struct mw_moe_load *l,
                       const struct mw_moe_traffic *t,
                       const struct mw_moe_query *q, bool is_balanced)
{
    bool by_node = q->kernel == MW_MOE_NORMAL && l->n_nodes > 1;
    double copies = by_node ? busiest_node(l, is_balanced)
                            : busiest(l, t, q->kernel, is_balanced);
    return q->tokens_per_rank * copies * q->hidden;
}

static void phases(const struct moe_row *row, const struct mw_moe_query *q,
                   double elements, double *dispatch_s, double *combine_s)
{
    *dispatch_s = row->dispatch_alpha_s +
                  elements * q->dispatch_bytes / row->dispatch_Bps;
    *combine_s =
        row->combine_alpha_s + elements * q->combine_bytes / row->combine_Bps;
}

enum mw_status mw_moe_predict(const struct mw_moe_table *table,
                              const struct mw_system *system,
                              const struct mw_moe_traffic *traffic,
                              const struct mw_moe_query *query,
                              struct mw_moe_time *out, struct mw_err *err)
{
    if (!(query->tokens_per_rank >= 0) || query->hidden < 1 ||
        !(query->dispatch_bytes > 0) || !(query->combine_bytes > 0)) {
        return mw_fail(err, MW_EINPUT,
                       "%g tokens of %d elements of %g and %g bytes",
                       query->tokens_per_rank, query->hidden,
                       query->dispatch_bytes, query->combine_bytes);
    }
    struct mw_moe_load l;
    enum mw_status s = mw_moe_load(traffic, &l, err);
    if (s != MW_OK) {
        return s;
    }
    int nodes = l.n_nodes;
    const struct moe_row *row = find(table, system, query->kernel, nodes,
                                     query->sms > 0 ? query->sms : 24);
    double nic = system->n_nics > 0
                     ? system->node_net_bw_Bps / traffic->ranks_per_node
                     : system->intra_bw_Bps;
    struct moe_row plain = {.dispatch_alpha_s = 20e-6,
                            .combine_alpha_s = 20e-6};
    plain.dispatch_Bps = plain.combine_Bps =
        .85 * (nodes > 1 ? nic : system->intra_bw_Bps);
    out->source = !row ? "links at 0.85 of their bandwidth"
                  : query->kernel <= MW_MOE_LOW_LATENCY
                      ? "fitted on DeepEP"
                      : "fitted on TensorRT-LLM";
    row = row ? row : &plain;
    phases(row, query, mw_moe_elements(&l, traffic, query, true),
           &out->balanced_dispatch_s, &out->balanced_combine_s);
    phases(row, query, mw_moe_elements(&l, traffic, query, false),
           &out->dispatch_s, &out->combine_s);
    out->imbalance_s = (out->dispatch_s - out->balanced_dispatch_s) +
                       (out->combine_s - out->balanced_combine_s);
    mw_moe_load_release(&l);
    return MW_OK;
}
