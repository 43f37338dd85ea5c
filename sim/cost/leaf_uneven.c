/*
 * Leaves of several sizes under nodes in any order: see leaf.h. Groups are
 * listed member by member in the order of their ranks, which is the order of
 * their rings, and what they send over each leaf's links up is added up.
 *
 * A rank of stage s with coordinates tp, cp, dp has place
 * q = tp + TP (cp + CP dp) in its stage; every kind of group splits these
 * places, as group.c does for rank 0's.
 */
#include "sim/cost/leaf.h"

#include <math.h>
#include <string.h>

/* Do the nodes lie as they would if the layout said nothing? */
static bool is_plain_order(const struct mw_cluster *c,
                           const struct mw_int_list *nodes)
{
    for (size_t i = 0; i < nodes->n; i++) {
        if (nodes->v[i] != mw_cluster_slot_node(c, (int)i)) {
            return false;
        }
    }
    return true;
}

bool mw_leaf_is_uneven(const struct mw_cluster *c,
                       const struct mw_layout *layout)
{
    return c->oversubscription > 1 &&
           (c->leaves.n > 1 ||
            (c->leaf_nodes > 0 && !is_plain_order(c, &layout->nodes)));
}

/* ---- the machine -----------------------------------------------------------
 */
struct field {
    const struct mw_leaf_view *v;
    int n_leaves, n_units;
    int *leaf;       /* [n_units] under which a unit is */
    double *cap;     /* [n_leaves] links up, in NICs of a unit */
    double *out;     /* [n_leaves] load of the links up */
    double *in;      /* [n_leaves] and down */
    bool *is_across; /* [pp * n_leaves] a group of the stage leaves it */
};

static void field_init(struct field *f, const struct mw_leaf_view *v)
{
    const struct mw_cluster *c = v->cluster;
    const struct mw_layout *l = v->layout;
    int per_unit = v->unit_ranks / v->gpus_per_node;
    int n_all = mw_cluster_allocated(c), n_ranks = mw_layout_ranks(l);

    f->v = v;
    f->n_leaves = mw_leaf_of_node(c, n_all - 1) + 1;
    f->n_units = (n_ranks + v->unit_ranks - 1) / v->unit_ranks;
    f->leaf = mw_calloc((size_t)f->n_units, sizeof *f->leaf);
    f->cap = mw_calloc(3 * (size_t)f->n_leaves, sizeof *f->cap);
    f->out = f->cap + f->n_leaves;
    f->in = f->out + f->n_leaves;
    f->is_across =
        mw_calloc((size_t)f->n_leaves * (size_t)l->pp, sizeof *f->is_across);
    for (int node = 0; node < n_all; node++) {
        f->cap[mw_leaf_of_node(c, node)] +=
            1 / (per_unit * c->oversubscription);
    }
    for (int u = 0; u < f->n_units; u++) {
        size_t slot = (size_t)u * (size_t)per_unit;

        f->leaf[u] = mw_leaf_of_node(
            c, slot < l->nodes.n ? l->nodes.v[slot]
                                 : mw_cluster_slot_node(c, (int)slot));
    }
}

static void field_release(struct field *f)
{
    mw_free(f->leaf);
    mw_free(f->cap);
    mw_free(f->is_across);
}

/* ---- groups ----------------------------------------------------------------
 */
struct place {
    int group, index;
};
struct split {
    int tp, cp, dp, inner, shard, etp, ep, n_expert;
};

static struct split split_of(const struct mw_layout *l)
{
    int n = l->tp * l->cp * mw_layout_shard_ways(l) / (l->ep * l->etp);

    return (struct split){.tp = l->tp,
                          .cp = l->cp,
                          .dp = l->dp,
                          .inner = l->cp_inner > 1 ? l->cp_inner : 1,
                          .shard = mw_layout_shard_ways(l),
                          .etp = l->etp,
                          .ep = l->ep,
                          .n_expert = n > 1 ? n : 1};
}

static struct place place_of(const struct split *s, enum mw_leaf_kind kind,
                             int q)
{
    int tp = q % s->tp, cp = q / s->tp % s->cp, dp = q / (s->tp * s->cp);
    int step = s->ep * s->etp, outer = s->cp / s->inner;

    switch (kind) {
    case MW_LEAF_TP:
        return (struct place){q / s->tp, tp};
    case MW_LEAF_CP:
        return (struct place){tp + s->tp * (cp % s->inner + s->inner * dp),
                              cp / s->inner};
    case MW_LEAF_CP_INNER:
        return (struct place){tp + s->tp * (cp / s->inner + outer * dp),
                              cp % s->inner};
    case MW_LEAF_DP:
        return (struct place){tp + s->tp * cp, dp};
    case MW_LEAF_GRAD:
        return (struct place){tp + s->tp * (dp / s->shard),
                              cp + s->cp * (dp % s->shard)};
    case MW_LEAF_REPLICA:
        return (struct place){tp + s->tp * (cp + s->cp * (dp % s->shard)),
                              dp / s->shard};
    case MW_LEAF_ETP:
        return (struct place){q / s->etp, q % s->etp};
    case MW_LEAF_EP:
        return (struct place){q % s->etp + s->etp * (q / step),
                              q / s->etp % s->ep};
    case MW_LEAF_EXPERT:
        return (struct place){q % step + step * (q / (step * s->n_expert)),
                              q / step % s->n_expert};
    case MW_LEAF_KINDS:
        break;
    }
    return (struct place){0, 0};
}

/* Strides of ranks along tp, cp, dp, pp. */
struct strides {
    int tp, cp, dp, pp;
};

static struct strides strides_of(const struct mw_layout *l)
{
    struct strides s = {0, 0, 0, 0};

    s.tp = l->tp > 1 ? mw_layout_rank(l, (struct mw_coord){1, 0, 0, 0}) : 0;
    s.cp = l->cp > 1 ? mw_layout_rank(l, (struct mw_coord){0, 1, 0, 0}) : 0;
    s.dp = l->dp > 1 ? mw_layout_rank(l, (struct mw_coord){0, 0, 1, 0}) : 0;
    s.pp = l->pp > 1 ? mw_layout_rank(l, (struct mw_coord){0, 0, 0, 1}) : 0;
    return s;
}

static int rank_of(const struct split *s, const struct strides *by, int stage,
                   int q)
{
    return q % s->tp * by->tp + q / s->tp % s->cp * by->cp +
           q / (s->tp * s->cp) * by->dp + stage * by->pp;
}

/* Mostly in order already. */
static void sort(int *v, int n)
{
    for (int i = 1; i < n; i++) {
        int x = v[i], k = i;

        for (; k > 0 && v[k - 1] > x; k--) {
            v[k] = v[k - 1];
        }
        v[k] = x;
    }
}

/* ---- traffic ---------------------------------------------------------------
 */
/* A ring through the units of one group, at the NICs' rate over `sharers`. */
static void add_ring(struct field *f, int stage, const int *ranks, int n,
                     double sharers)
{
    for (int i = 0; i < n; i++) {
        int from = ranks[i] / f->v->unit_ranks;
        int to = ranks[(i + 1) % n] / f->v->unit_ranks;
        int a = f->leaf[from], b = f->leaf[to];

        if (from != to && a != b) {
            f->out[a] += 1 / sharers;
            f->in[b] += 1 / sharers;
            f->is_across[stage * f->n_leaves + a] = true;
            f->is_across[stage * f->n_leaves + b] = true;
        }
    }
}

/* Everyone to everyone of n, r of them on a unit. */
static void add_all_to_all(struct field *f, int stage, const int *ranks, int n,
                           int r, double sharers)
{
    int *here = mw_calloc((size_t)f->n_leaves, sizeof *here);

    for (int i = 0; i < n; i++) {
        here[f->leaf[ranks[i] / f->v->unit_ranks]]++;
    }
    for (int leaf = 0; leaf < f->n_leaves; leaf++) {
        if (here[leaf] > 0 && here[leaf] < n && r < n) {
            double load =
                (double)here[leaf] * (n - here[leaf]) / (sharers * r * (n - r));

            f->out[leaf] += load;
            f->in[leaf] += load;
            f->is_across[stage * f->n_leaves + leaf] = true;
        }
    }
    mw_free(here);
}

static double part_of_leaf(const struct field *f, int leaf)
{
    double load = fmax(f->out[leaf], f->in[leaf]);

    return load > f->cap[leaf] ? f->cap[leaf] / load : 1;
}

void mw_leaf_uneven_parts(const struct mw_leaf_view *v, enum mw_leaf_kind kind,
                          const struct mw_group *g, bool is_all_to_all,
                          double *out_part)
{
    const struct mw_layout *l = v->layout;
    struct split s = split_of(l);
    struct strides by = strides_of(l);
    int n_places = l->tp * l->cp * l->dp, n = g->n_ranks;
    struct field f;

    for (int stage = 0; stage < l->pp; stage++) {
        out_part[stage] = 1;
    }
    if (g->n_nodes <= 1) {
        return;
    }
    int *ranks = mw_calloc((size_t)n_places, sizeof *ranks);

    field_init(&f, v);
    for (int stage = 0; stage < l->pp; stage++) {
        for (int q = 0; q < n_places; q++) {
            struct place at = place_of(&s, kind, q);

            ranks[at.group * n + at.index] = rank_of(&s, &by, stage, q);
        }
        for (int first = 0; first + n <= n_places; first += n) {
            sort(ranks + first, n);
            if (is_all_to_all) {
                add_all_to_all(&f, stage, ranks + first, n, g->ranks_per_node,
                               g->nic_sharers);
            } else {
                add_ring(&f, stage, ranks + first, n, g->nic_sharers);
            }
        }
    }
    for (int i = 0; i < l->pp * f.n_leaves; i++) {
        double *part = &out_part[i / f.n_leaves];

        *part = f.is_across[i] ? fmin(*part, part_of_leaf(&f, i % f.n_leaves))
                               : *part;
    }
    mw_free(ranks);
    field_release(&f);
}

double mw_leaf_uneven_stage_part(const struct mw_leaf_view *v, int from, int to)
{
    const struct mw_layout *l = v->layout;
    struct split s = split_of(l);
    struct strides by = strides_of(l);
    double senders = mw_cost_pp_sharers(l, v->unit_ranks), part = 1;
    struct field f;

    field_init(&f, v);
    for (int q = 0; q < l->tp * l->cp * l->dp; q++) {
        int a = f.leaf[rank_of(&s, &by, from, q) / v->unit_ranks];
        int b = f.leaf[rank_of(&s, &by, to, q) / v->unit_ranks];

        f.out[a] += a != b ? 1 / senders : 0;
        f.in[b] += a != b ? 1 / senders : 0;
    }
    for (int leaf = 0; leaf < f.n_leaves; leaf++) {
        part = fmin(part, part_of_leaf(&f, leaf));
    }
    field_release(&f);
    return part;
}
