/*
 * The store behind coll_curve.h: a fixed number of buckets, each a list that
 * only grows at its head, so that a reader needs no lock; points are logs of
 * seconds, 0 while unknown (a collective of exactly one second is stored as
 * the next double).
 */
#include "sim/cost/coll_curve.h"

#include "base/mem.h"

#include <float.h>
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>

/* From 1 byte to 2^47, two points an octave. */
enum { N_POINTS = 95, N_BUCKETS = 1024 };

struct curve {
    struct curve *next;
    enum mw_coll_op op;
    struct mw_group group;
    bool is_known; /* does the model answer for this shape? */
    int n_channels;
    _Atomic double log_s[N_POINTS];
};

struct mw_coll_curves {
    mw_coll_point_fn point;
    void *owner;
    pthread_mutex_t lock; /* around point and around adding */
    _Atomic(struct curve *) bucket[N_BUCKETS];
};

struct mw_coll_curves *mw_coll_curves_new(mw_coll_point_fn point, void *owner)
{
    struct mw_coll_curves *c = mw_calloc(1, sizeof *c);

    c->point = point;
    c->owner = owner;
    pthread_mutex_init(&c->lock, NULL);
    for (int i = 0; i < N_BUCKETS; i++) {
        atomic_init(&c->bucket[i], NULL);
    }
    return c;
}

void mw_coll_curves_free(struct mw_coll_curves *curves)
{
    if (curves == NULL) {
        return;
    }
    for (int i = 0; i < N_BUCKETS; i++) {
        struct curve *next, *c = atomic_load(&curves->bucket[i]);

        for (; c != NULL; c = next) {
            next = c->next;
            mw_free(c);
        }
    }
    pthread_mutex_destroy(&curves->lock);
    mw_free(curves);
}

static unsigned bucket_of(enum mw_coll_op op, const struct mw_group *g)
{
    uint32_t h = (uint32_t)op;

    h = h * 31U + (uint32_t)g->n_ranks;
    h = h * 31U + (uint32_t)g->n_nodes;
    h = h * 31U + (uint32_t)g->ranks_per_node;
    h = h * 31U + (uint32_t)g->nic_sharers;
    h *= 0x9e3779b1U; /* 2^32 over the golden ratio: Knuth, TAOCP 3, 6.4 */
    return h >> 22;
}

static struct curve *find(const struct curve *from, enum mw_coll_op op,
                          const struct mw_group *g)
{
    for (const struct curve *c = from; c != NULL; c = c->next) {
        if (c->op == op && c->group.n_ranks == g->n_ranks &&
            c->group.n_nodes == g->n_nodes &&
            c->group.ranks_per_node == g->ranks_per_node &&
            c->group.nic_sharers == g->nic_sharers) {
            return (struct curve *)c;
        }
    }
    return NULL;
}

static struct curve *add(struct mw_coll_curves *curves, unsigned at,
                         enum mw_coll_op op, const struct mw_group *g)
{
    struct mw_coll_point tried = {.n_channels = 0};
    struct curve *c = mw_calloc(1, sizeof *c);

    c->op = op;
    c->group = *g;
    c->next = atomic_load_explicit(&curves->bucket[at], memory_order_relaxed);
    c->is_known =
        curves->point(curves->owner, op, 67108864, &c->group, &tried) &&
        tried.time_s > 0;
    c->n_channels = c->is_known ? tried.n_channels : 0;
    for (int i = 0; i < N_POINTS; i++) {
        atomic_init(&c->log_s[i], 0);
    }
    atomic_store_explicit(&curves->bucket[at], c, memory_order_release);
    return c;
}

static struct curve *curve_of(struct mw_coll_curves *curves, enum mw_coll_op op,
                              const struct mw_group *g)
{
    unsigned at = bucket_of(op, g);
    struct curve *head =
        atomic_load_explicit(&curves->bucket[at], memory_order_acquire);
    struct curve *c = find(head, op, g);

    if (c == NULL) {
        pthread_mutex_lock(&curves->lock);
        head = atomic_load_explicit(&curves->bucket[at], memory_order_relaxed);
        c = find(head, op, g);
        if (c == NULL) {
            c = add(curves, at, op, g);
        }
        pthread_mutex_unlock(&curves->lock);
    }
    return c;
}

static double point_of(struct mw_coll_curves *curves, struct curve *c, int i)
{
    double log_s = atomic_load_explicit(&c->log_s[i], memory_order_relaxed);

    if (!(fabs(log_s) > 0)) {
        struct mw_coll_point p = {.time_s = DBL_MIN};

        pthread_mutex_lock(&curves->lock);
        curves->point(curves->owner, c->op, exp2(i / 2.0), &c->group, &p);
        pthread_mutex_unlock(&curves->lock);
        log_s = log(p.time_s);
        log_s = fabs(log_s) > 0 ? log_s : DBL_EPSILON;
        atomic_store_explicit(&c->log_s[i], log_s, memory_order_relaxed);
    }
    return log_s;
}

bool mw_coll_curves_time(struct mw_coll_curves *curves, enum mw_coll_op op,
                         double bytes, const struct mw_group *group,
                         double *out_s)
{
    struct curve *c = curve_of(curves, op, group);
    double x = 2 * log2(bytes);
    int i = (int)fmin(fmax(x, 0), N_POINTS - 2);

    if (!c->is_known) {
        return false;
    }
    double low = point_of(curves, c, i), high = point_of(curves, c, i + 1);

    *out_s = exp(low + (x - i) * (high - low));
    return true;
}

int mw_coll_curves_channels(struct mw_coll_curves *curves, enum mw_coll_op op,
                            const struct mw_group *group)
{
    return curve_of(curves, op, group)->n_channels;
}

bool mw_coll_curves_ask(struct mw_coll_curves *curves, enum mw_coll_op op,
                        double bytes, const struct mw_group *group,
                        struct mw_coll_point *out)
{
    pthread_mutex_lock(&curves->lock);
    bool is_known = curves->point(curves->owner, op, bytes, group, out);

    pthread_mutex_unlock(&curves->lock);
    return is_known;
}
