/*
 * Communication between virtual ranks of one process, on host buffers: each
 * rank is a thread, and one runs at a time. A rank keeps the turn (the world's
 * mutex) while it computes and gives it away while it waits, so nothing here or
 * in a rank runs beside anything else: a BLAS that is not safe for threads will
 * do, and sums come out the same whoever arrives last.
 *
 *   collective   members leave their buffers; the last to come does the work
 *                for all, in the order of ranks, and wakes them
 *   send         copies into the receiver's box; recv takes it out, by sender
 *                and tag; no send waits
 *
 * A rank that fails aborts the world: whoever waits then fails with its words.
 * Left out: device buffers (exec/cuda/comm_shared.c), ranks on other machines.
 */
#include "exec/comm.h"

#include "base/mem.h"

#include <pthread.h>
#include <string.h>

/* A message that has not been received. */
struct letter {
    struct letter *next;
    int from, to, tag;
    size_t bytes;
    void *data;
};

/* What a member leaves for a collective. */
struct post {
    const void *from;
    void *to;
    const size_t *n_from, *n_to;
    int color, key;
    struct mw_comm *made; /* by a split */
};

struct world {
    pthread_mutex_t turn;
    pthread_cond_t news;
    bool is_aborted;
    struct mw_err reason;
};

/* What the members of a communicator share. */
struct group {
    struct world *world;
    int size, n_here, n_left; /* arrived at the collective; not yet freed */
    unsigned round;           /* collectives done */
    struct post *post;        /* [size] */
    struct letter *letters;
};

struct comm_local {
    struct mw_comm base;
    struct group *group;
};

static const struct mw_comm_ops local_ops;

static struct group *group_of(const struct mw_comm *comm)
{
    return ((const struct comm_local *)comm)->group;
}

/* ---- waiting --------------------------------------------------------------
 */
static enum mw_status aborted(const struct world *w, struct mw_err *err)
{
    return mw_fail(err, MW_EBACKEND, "another rank failed: %s",
                   w->reason.len ? w->reason.text : "no reason given");
}

/* Until another rank has done something; false: the world is aborted. */
static bool wait_for_news(struct world *w)
{
    if (!w->is_aborted) {
        pthread_cond_wait(&w->news, &w->turn);
    }
    return !w->is_aborted;
}

/* `work` on what all members left, by the last of them; MW_OK when done. */
static enum mw_status meet(struct mw_comm *comm, const struct post *mine,
                           void (*work)(struct group *g, void *arg), void *arg,
                           struct mw_err *err)
{
    struct group *g = group_of(comm);
    unsigned round = g->round;
    if (g->world->is_aborted) {
        return aborted(g->world, err);
    }
    g->post[comm->rank] = *mine;
    if (++g->n_here == g->size) {
        g->n_here = 0;
        g->round++;
        work(g, arg);
        pthread_cond_broadcast(&g->world->news);
        return MW_OK;
    }
    while (g->round == round) {
        if (!wait_for_news(g->world)) {
            return aborted(g->world, err);
        }
    }
    return MW_OK;
}

/* ---- reductions -----------------------------------------------------------
 */
static void reduce_f32(float *y, const float *x, size_t n, enum mw_reduce op)
{
    for (size_t i = 0; i < n; i++) {
        y[i] = op == MW_REDUCE_SUM ? y[i] + x[i] : x[i] > y[i] ? x[i] : y[i];
    }
}

static void reduce_f64(double *y, const double *x, size_t n, enum mw_reduce op)
{
    for (size_t i = 0; i < n; i++) {
        y[i] = op == MW_REDUCE_SUM ? y[i] + x[i] : x[i] > y[i] ? x[i] : y[i];
    }
}

static void reduce_i64(int64_t *y, const int64_t *x, size_t n,
                       enum mw_reduce op)
{
    for (size_t i = 0; i < n; i++) {
        y[i] = op == MW_REDUCE_SUM ? y[i] + x[i] : x[i] > y[i] ? x[i] : y[i];
    }
}

static void reduce(void *y, const void *x, size_t n, enum mw_elem elem,
                   enum mw_reduce op)
{
    switch (elem) {
    case MW_ELEM_F32:
        reduce_f32(y, x, n, op);
        break;
    case MW_ELEM_F64:
        reduce_f64(y, x, n, op);
        break;
    case MW_ELEM_I64:
        reduce_i64(y, x, n, op);
        break;
    case MW_ELEM_BF16:
        MW_ASSERT(false, "element %d lives on devices", (int)elem);
    }
}

/* ---- collectives ----------------------------------------------------------
 */
struct whole {
    size_t n;
    enum mw_elem elem;
    enum mw_reduce op;
    int root;
};

static void *at(const void *p, size_t n, enum mw_elem elem)
{
    return (char *)(uintptr_t)p + n * mw_elem_bytes(elem);
}

static void do_all_reduce(struct group *g, void *arg)
{
    const struct whole *a = arg;
    void *sum = g->post[0].to;
    for (int r = 1; r < g->size; r++) {
        reduce(sum, g->post[r].to, a->n, a->elem, a->op);
    }
    for (int r = 1; r < g->size; r++) {
        memcpy(g->post[r].to, sum, a->n * mw_elem_bytes(a->elem));
    }
}

static enum mw_status local_all_reduce(struct mw_comm *comm, void *buf,
                                       size_t n, enum mw_elem elem,
                                       enum mw_reduce op, struct mw_err *err)
{
    struct whole a = {.n = n, .elem = elem, .op = op};
    return meet(comm, &(struct post){.to = buf}, do_all_reduce, &a, err);
}

/* Sum of the counts before member r. */
static size_t before(const size_t *n, int r)
{
    size_t sum = 0;
    for (int i = 0; i < r; i++) {
        sum += n[i];
    }
    return sum;
}

/* Own blocks to all; post.n_to says how long they are. */
static void do_all_gather(struct group *g, void *arg)
{
    const struct whole *a = arg;
    for (int from = 0; from < g->size; from++) {
        const size_t *n = g->post[0].n_to;
        size_t first = before(n, from);
        for (int to = 0; to < g->size; to++) {
            if (to != from) {
                memcpy(at(g->post[to].to, first, a->elem),
                       at(g->post[from].to, first, a->elem),
                       n[from] * mw_elem_bytes(a->elem));
            }
        }
    }
}

static enum mw_status local_all_gather_v(struct mw_comm *comm, void *buf,
                                         const size_t *n, enum mw_elem elem,
                                         struct mw_err *err)
{
    struct whole a = {.elem = elem};
    return meet(comm, &(struct post){.to = buf, .n_to = n}, do_all_gather, &a,
                err);
}

static void do_reduce_scatter(struct group *g, void *arg)
{
    const struct whole *a = arg;
    const size_t *n = g->post[0].n_to;
    for (int to = 0; to < g->size; to++) {
        size_t first = before(n, to);
        void *sum = at(g->post[0].to, first, a->elem);
        for (int r = 1; r < g->size; r++) {
            reduce(sum, at(g->post[r].to, first, a->elem), n[to], a->elem,
                   MW_REDUCE_SUM);
        }
        if (to > 0) {
            memcpy(at(g->post[to].to, first, a->elem), sum,
                   n[to] * mw_elem_bytes(a->elem));
        }
    }
}

static enum mw_status local_reduce_scatter_v(struct mw_comm *comm, void *buf,
                                             const size_t *n, enum mw_elem elem,
                                             struct mw_err *err)
{
    struct whole a = {.elem = elem};
    return meet(comm, &(struct post){.to = buf, .n_to = n}, do_reduce_scatter,
                &a, err);
}

static void do_all_to_all(struct group *g, void *arg)
{
    const struct whole *a = arg;
    for (int from = 0; from < g->size; from++) {
        for (int to = 0; to < g->size; to++) {
            const size_t *n = g->post[from].n_from;
            memcpy(at(g->post[to].to, before(g->post[to].n_to, from), a->elem),
                   at(g->post[from].from, before(n, to), a->elem),
                   n[to] * mw_elem_bytes(a->elem));
        }
    }
}

static enum mw_status local_all_to_all_v(struct mw_comm *comm, const void *from,
                                         const size_t *n_from, void *to,
                                         const size_t *n_to, enum mw_elem elem,
                                         struct mw_err *err)
{
    struct whole a = {.elem = elem};
    const struct post p = {
        .from = from, .to = to, .n_from = n_from, .n_to = n_to};
    return meet(comm, &p, do_all_to_all, &a, err);
}

/* The same with equal blocks. */
static size_t *equal(const struct mw_comm *comm, size_t n)
{
    size_t *v = mw_calloc((size_t)comm->size, sizeof *v);
    for (int i = 0; i < comm->size; i++) {
        v[i] = n;
    }
    return v;
}

static enum mw_status local_all_gather(struct mw_comm *comm, void *buf,
                                       size_t n, enum mw_elem elem,
                                       struct mw_err *err)
{
    size_t *v = equal(comm, n);
    enum mw_status st = local_all_gather_v(comm, buf, v, elem, err);
    mw_free(v);
    return st;
}

static enum mw_status local_reduce_scatter(struct mw_comm *comm, void *buf,
                                           size_t n, enum mw_elem elem,
                                           struct mw_err *err)
{
    size_t *v = equal(comm, n);
    enum mw_status st = local_reduce_scatter_v(comm, buf, v, elem, err);
    mw_free(v);
    return st;
}

static enum mw_status local_all_to_all(struct mw_comm *comm, const void *from,
                                       void *to, size_t n, enum mw_elem elem,
                                       struct mw_err *err)
{
    size_t *v = equal(comm, n);
    enum mw_status st = local_all_to_all_v(comm, from, v, to, v, elem, err);
    mw_free(v);
    return st;
}

static void do_nothing(struct group *g, void *arg)
{
    (void)g;
    (void)arg;
}

static enum mw_status local_barrier(struct mw_comm *comm, struct mw_err *err)
{
    return meet(comm, &(struct post){.to = NULL}, do_nothing, NULL, err);
}

static void do_broadcast(struct group *g, void *arg)
{
    const struct whole *a = arg;
    for (int r = 0; r < g->size; r++) {
        if (r != a->root) {
            memcpy(g->post[r].to, g->post[a->root].to, a->n);
        }
    }
}

static enum mw_status local_broadcast(struct mw_comm *comm, void *buf,
                                      size_t bytes, int root,
                                      struct mw_err *err)
{
    struct whole a = {.n = bytes, .root = root};
    return meet(comm, &(struct post){.to = buf}, do_broadcast, &a, err);
}

static void do_gather(struct group *g, void *arg)
{
    const struct whole *a = arg;
    for (int r = 0; r < g->size; r++) {
        memcpy((char *)g->post[a->root].to + (size_t)r * a->n, g->post[r].from,
               a->n);
    }
}

static enum mw_status local_gather(struct mw_comm *comm, const void *buf,
                                   size_t bytes, void *out, int root,
                                   struct mw_err *err)
{
    struct whole a = {.n = bytes, .root = root};
    return meet(comm, &(struct post){.from = buf, .to = out}, do_gather, &a,
                err);
}

/* ---- messages -------------------------------------------------------------
 */
static enum mw_status local_send(struct mw_comm *comm, const void *buf,
                                 size_t n, enum mw_elem elem, int peer, int tag,
                                 struct mw_send *out, struct mw_err *err)
{
    struct group *g = group_of(comm);
    struct letter *l = mw_calloc(1, sizeof *l), **end = &g->letters;
    (void)err;
    *l = (struct letter){.from = comm->rank,
                         .to = peer,
                         .tag = tag,
                         .bytes = n * mw_elem_bytes(elem)};
    l->data = mw_calloc(l->bytes + 1, 1);
    memcpy(l->data, buf, l->bytes);
    while (*end) {
        end = &(*end)->next;
    }
    *end = l;
    out->handle = NULL;
    pthread_cond_broadcast(&g->world->news);
    return MW_OK;
}

static struct letter **find_letter(struct group *g, int from, int to, int tag)
{
    struct letter **l = &g->letters;
    while (*l && ((*l)->from != from || (*l)->to != to || (*l)->tag != tag)) {
        l = &(*l)->next;
    }
    return l;
}

static void free_letter(struct letter *l)
{
    mw_free(l->data);
    mw_free(l);
}

static enum mw_status local_recv(struct mw_comm *comm, void *buf, size_t n,
                                 enum mw_elem elem, int peer, int tag,
                                 struct mw_err *err)
{
    struct group *g = group_of(comm);
    struct letter **place;
    while (!*(place = find_letter(g, peer, comm->rank, tag))) {
        if (!wait_for_news(g->world)) {
            return aborted(g->world, err);
        }
    }
    struct letter *l = *place;
    *place = l->next;
    MW_ASSERT(l->bytes == n * mw_elem_bytes(elem), "%zu bytes for %zu",
              l->bytes, n * mw_elem_bytes(elem));
    memcpy(buf, l->data, l->bytes);
    free_letter(l);
    return MW_OK;
}

static enum mw_status local_wait(struct mw_comm *comm, struct mw_send *send,
                                 struct mw_err *err)
{
    (void)comm;
    (void)send;
    (void)err;
    return MW_OK;
}

/* ---- making and ending ----------------------------------------------------
 */
static struct group *group_new(struct world *w, int size)
{
    struct group *g = mw_calloc(1, sizeof *g);
    *g = (struct group){.world = w, .size = size, .n_left = size};
    g->post = mw_calloc((size_t)size, sizeof *g->post);
    return g;
}

static struct mw_comm *member_new(struct group *g, int rank)
{
    struct comm_local *c = mw_calloc(1, sizeof *c);
    c->base =
        (struct mw_comm){.ops = &local_ops, .rank = rank, .size = g->size};
    c->group = g;
    return &c->base;
}

/* By key, equal ones by rank. */
static bool comes_before(const struct group *g, int a, int b)
{
    const struct post *p = g->post;
    return p[a].key < p[b].key || (p[a].key == p[b].key && a < b);
}

static void do_split(struct group *g, void *arg)
{
    (void)arg;
    for (int r = 0; r < g->size; r++) {
        int size = 0, rank = 0, first = g->size;
        for (int i = 0; i < g->size; i++) {
            if (g->post[i].color == g->post[r].color) {
                size++;
                rank += comes_before(g, i, r);
                first = i < first ? i : first;
            }
        }
        struct group *made = first == r ? group_new(g->world, size)
                                        : group_of(g->post[first].made);
        g->post[r].made = member_new(made, rank);
    }
}

static enum mw_status local_split(struct mw_comm *parent, int color, int key,
                                  struct mw_comm **out, struct mw_err *err)
{
    enum mw_status st = meet(parent, &(struct post){.color = color, .key = key},
                             do_split, NULL, err);
    if (st == MW_OK) {
        *out = group_of(parent)->post[parent->rank].made;
    }
    return st;
}

static void local_free(struct mw_comm *comm)
{
    if (!comm) {
        return;
    }
    struct group *g = group_of(comm);
    mw_free(comm);
    if (--g->n_left > 0) {
        return;
    }
    while (g->letters) {
        struct letter *l = g->letters;
        g->letters = l->next;
        free_letter(l);
    }
    mw_free(g->post);
    mw_free(g);
}

static const struct mw_comm_ops local_ops = {
    .name = "local",
    .split = local_split,
    .free = local_free,
    .all_reduce = local_all_reduce,
    .all_gather = local_all_gather,
    .reduce_scatter = local_reduce_scatter,
    .all_to_all = local_all_to_all,
    .all_to_all_v = local_all_to_all_v,
    .all_gather_v = local_all_gather_v,
    .reduce_scatter_v = local_reduce_scatter_v,
    .send = local_send,
    .recv = local_recv,
    .wait = local_wait,
    .barrier = local_barrier,
    .broadcast = local_broadcast,
    .gather = local_gather,
};

void mw_comm_local_abort(struct mw_comm *comm, const struct mw_err *reason)
{
    struct world *w = group_of(comm)->world;
    if (!w->is_aborted) {
        w->is_aborted = true;
        w->reason = *reason;
        pthread_cond_broadcast(&w->news);
    }
}

/* ---- threads --------------------------------------------------------------
 */
struct virtual_rank {
    pthread_t thread;
    struct mw_comm *comm;
    struct world *world;
    mw_local_fn fn;
    void *arg;
};

static void *run(void *p)
{
    struct virtual_rank *r = p;
    pthread_mutex_lock(&r->world->turn);
    r->fn(r->comm, r->arg);
    pthread_mutex_unlock(&r->world->turn);
    return NULL;
}

enum mw_status mw_comm_local_run(int n_ranks, mw_local_fn fn, void *arg,
                                 struct mw_err *err)
{
    struct world w = {.is_aborted = false};
    struct virtual_rank *ranks = mw_calloc((size_t)n_ranks, sizeof *ranks);
    int n_begun = 0;
    pthread_mutex_init(&w.turn, NULL);
    pthread_cond_init(&w.news, NULL);
    struct group *g = group_new(&w, n_ranks);
    pthread_mutex_lock(&w.turn); /* nobody begins before all are there */
    for (int i = 0; i < n_ranks; i++) {
        ranks[i] = (struct virtual_rank){
            .comm = member_new(g, i), .world = &w, .fn = fn, .arg = arg};
    }
    while (n_begun < n_ranks && pthread_create(&ranks[n_begun].thread, NULL,
                                               run, &ranks[n_begun]) == 0) {
        n_begun++;
    }
    w.is_aborted = n_begun < n_ranks;
    pthread_mutex_unlock(&w.turn);
    for (int i = 0; i < n_begun; i++) {
        pthread_join(ranks[i].thread, NULL);
    }
    for (int i = 0; i < n_ranks; i++) {
        local_free(ranks[i].comm);
    }
    pthread_cond_destroy(&w.news);
    pthread_mutex_destroy(&w.turn);
    mw_free(ranks);
    return n_begun == n_ranks
               ? MW_OK
               : mw_fail(err, MW_EFAILED, "no thread for rank %d of %d",
                         n_begun, n_ranks);
}
