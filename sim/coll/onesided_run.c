/*
 * Running MSCCL++ plans: with a topology, data moves as flows and signals take
 * a latency; without one everything takes no time. Data are symbols either
 * way, and take effect when the step that moves them ends.
 */
#include "sim/coll/onesided_int.h"

#include "sim/coll/prog_int.h"
#include "sim/net/flow.h"
#include "sim/net/topology.h"

#include <stdio.h>
#include <string.h>

struct block_state {
    int rank, block, at;
    int pending; /* flows of the step under way */
};
struct runner {
    const struct mw_oneside *plan;
    const struct mw_prog_run *run; /* NULL: no time */
    struct mw_fluid *net;
    struct prog_machine m;
    struct block_state *state;
    int *first;   /* state of a rank's first block */
    int *counter; /* signals that have arrived */
    int *arrived; /* blocks at a barrier: [rank * n_barriers + id] */
    int n_barriers;
    double chunk_bytes;
    uint64_t n_messages;
    double *finish_s;
    enum mw_status status;
};

/* Tags of flows are blocks; those of signals have this bit. */
#define SIGNAL_TAG (UINT64_C(1) << 40)

static const struct oneside_op *op_of(const struct runner *r,
                                      const struct block_state *b)
{
    return &r->plan->rank[b->rank].block[b->block].op[b->at];
}

static void fail_at(struct runner *r, const struct block_state *b,
                    const char *what)
{
    if (r->status == MW_OK) {
        r->status = mw_fail(r->m.err, MW_EINPUT,
                            "%s: rank %d, threadblock %d, step %d (%s): %s",
                            r->plan->shape.name, b->rank, b->block, b->at,
                            op_of(r, b)->name, what);
    }
}

static struct prog_value *at(const struct runner *r,
                             const struct oneside_ref *ref, int i)
{
    return prog_cell(&r->m, ref->rank, ref->buf, ref->index + i);
}

/* ---- when a step may begin ---- */

static bool has_data(const struct runner *r, const struct oneside_op *op)
{
    for (int k = 0; k < op->n_src; k++) {
        for (int i = 0; i < op->src[k].size; i++) {
            if (at(r, &op->src[k], i)->id < 0) {
                return false;
            }
        }
    }
    return true;
}

static bool take_signals(struct runner *r, const struct oneside_op *op)
{
    for (int k = 0; k < op->n_counters; k++) {
        if (r->counter[op->counter[k]] == 0) {
            return false;
        }
    }
    for (int k = 0; k < op->n_counters; k++) {
        r->counter[op->counter[k]]--;
    }
    return true;
}

/* A block that has come is marked by pending -1 until all have. */
static bool pass_barrier(struct runner *r, struct block_state *b)
{
    const struct oneside_op *op = op_of(r, b);
    int *n = &r->arrived[b->rank * r->n_barriers + op->barrier];
    if (b->pending == 0) {
        b->pending = -1;
        ++*n;
    }
    if (*n < op->n_blocks) {
        return false;
    }
    *n = 0;
    const struct oneside_rank *rank = &r->plan->rank[b->rank];
    for (int k = 0; k < rank->n_blocks; k++) {
        struct block_state *o = &r->state[r->first[b->rank] + k];
        if (o->pending == -1 && op_of(r, o)->barrier == op->barrier) {
            o->pending = 0;
            o->at += o != b;
        }
    }
    return true;
}

/* ---- what a step does ---- */

static void move_data(struct runner *r, const struct block_state *b,
                      const struct oneside_op *op)
{
    for (int k = 0; k < op->n_dst; k++) {
        const struct oneside_ref *from = &op->src[op->n_src == 1 ? 0 : k];
        for (int i = 0; i < op->dst[k].size; i++) {
            if (at(r, from, i)->id < 0) {
                fail_at(r, b, "reads a chunk before it is written");
                return;
            }
            prog_copy_value(&r->m, at(r, &op->dst[k], i), at(r, from, i));
        }
    }
}

static void reduce_data(struct runner *r, const struct block_state *b,
                        const struct oneside_op *op)
{
    struct prog_value *sum = prog_new_values(&r->m, 1);
    for (int i = 0; i < op->src[0].size; i++) {
        for (int k = 0; k < op->n_src; k++) {
            const struct prog_value *v = at(r, &op->src[k], i);
            if (v->id < 0) {
                fail_at(r, b, "reads a chunk before it is written");
                return;
            }
            if (k == 0) {
                prog_copy_value(&r->m, sum, v);
            } else if (!prog_add_value(&r->m, sum, v)) {
                fail_at(r, b, "adds a contribution twice, or to other data");
                return;
            }
        }
        for (int k = 0; k < op->n_dst; k++) {
            prog_copy_value(&r->m, at(r, &op->dst[k], i), sum);
        }
    }
}

static void raise(struct runner *r, int from, const struct oneside_op *op)
{
    for (int k = 0; k < op->n_counters; k++) {
        int c = op->counter[k], to = r->plan->counter_rank[c];
        if (!r->run || to == from) {
            r->counter[c]++;
            continue;
        }
        const int *g = r->run->gpu_of_rank;
        bool far = r->run->net_latency_s > 0 &&
                   !mw_topology_same_domain(r->run->topo, g ? g[from] : from,
                                            g ? g[to] : to);
        mw_fluid_timer(r->net, far ? r->run->net_latency_s : r->run->latency_s,
                       SIGNAL_TAG | (uint64_t)c);
    }
}

static void finish_step(struct runner *r, struct block_state *b)
{
    const struct oneside_op *op = op_of(r, b);
    if (op->kind == ONE_MOVE) {
        move_data(r, b, op);
    } else if (op->kind == ONE_REDUCE) {
        reduce_data(r, b, op);
    }
    if (op->kind == ONE_SIGNAL || op->signals) {
        raise(r, b->rank, op);
    }
    if (r->status == MW_OK) {
        b->at++;
    }
}

static void flow(struct runner *r, struct block_state *b, int from, int to,
                 int chunks)
{
    uint32_t links[MW_ROUTE_HOPS_MAX];
    const int *g = r->run->gpu_of_rank;
    int f = g ? g[from] : from, t = g ? g[to] : to;
    uint64_t tag = (uint64_t)(b - r->state);
    int n = mw_topology_route(r->run->topo, f, t, -1, tag, links);
    bool far = r->run->net_latency_s > 0 &&
               !mw_topology_same_domain(r->run->topo, f, t);
    b->pending++;
    r->n_messages++;
    mw_fluid_send(r->net, links, n, chunks * r->chunk_bytes,
                  far ? r->run->net_latency_s : r->run->latency_s, tag);
}

/* Starts the flows of a step; none: it is done at once. */
static void start_flows(struct runner *r, struct block_state *b)
{
    const struct oneside_op *op = op_of(r, b);
    for (int k = 0; k < op->n_src; k++) {
        if (op->src[k].rank != b->rank) {
            flow(r, b, op->src[k].rank, b->rank, op->src[k].size);
        }
    }
    for (int k = 0; k < op->n_dst; k++) {
        if (op->dst[k].rank != b->rank) {
            flow(r, b, b->rank, op->dst[k].rank, op->dst[k].size);
        }
    }
}

static bool may_begin(struct runner *r, struct block_state *b)
{
    const struct oneside_op *op = op_of(r, b);
    return op->kind == ONE_WAIT      ? take_signals(r, op)
           : op->kind == ONE_BARRIER ? pass_barrier(r, b)
           : op->waits_data          ? has_data(r, op)
                                     : true;
}

/* Runs a block as far as it goes; true if it moved. */
static bool advance(struct runner *r, struct block_state *b)
{
    bool moved = false;
    while (r->status == MW_OK && b->pending <= 0 &&
           b->at < r->plan->rank[b->rank].block[b->block].n_ops &&
           may_begin(r, b)) {
        if (r->run) {
            start_flows(r, b);
        }
        if (b->pending > 0) {
            break;
        }
        finish_step(r, b);
        moved = true;
    }
    return moved;
}

static void advance_rank(struct runner *r, int rank)
{
    bool moved = true;
    while (moved && r->status == MW_OK) {
        moved = false;
        for (int k = 0; k < r->plan->rank[rank].n_blocks; k++) {
            moved |= advance(r, &r->state[r->first[rank] + k]);
        }
    }
    if (r->run) {
        r->finish_s[rank] = mw_time_to_s(mw_fluid_now(r->net));
    }
}

static void on_done(void *ctx, struct mw_fluid *net, uint64_t tag)
{
    (void)net;
    struct runner *r = ctx;
    if (tag & SIGNAL_TAG) {
        int c = (int)(tag & (SIGNAL_TAG - 1));
        r->counter[c]++;
        advance_rank(r, r->plan->counter_rank[c]);
        return;
    }
    struct block_state *b = &r->state[tag];
    if (--b->pending > 0) {
        return;
    }
    const struct oneside_op *op = op_of(r, b);
    finish_step(r, b);
    advance_rank(r, b->rank);
    for (int k = 0; k < op->n_dst; k++) {
        if (op->dst[k].rank != b->rank) {
            advance_rank(r, op->dst[k].rank);
        }
    }
}

/* ---- ends ---- */

static void check_finished(struct runner *r)
{
    const struct mw_oneside *p = r->plan;
    for (int k = 0; k < p->shape.n_ranks && r->status == MW_OK; k++) {
        for (int l = 0; l < p->rank[k].n_blocks && r->status == MW_OK; l++) {
            struct block_state *b = &r->state[r->first[k] + l];
            if (b->at == p->rank[k].block[l].n_ops) {
                continue;
            }
            const struct oneside_op *op = op_of(r, b);
            char what[96] = "waits for ever for data";
            if (op->kind == ONE_BARRIER) {
                snprintf(what, sizeof what,
                         "waits for ever: %d of %d threadblocks came",
                         r->arrived[k * r->n_barriers + op->barrier],
                         op->n_blocks);
            }
            for (int c = 0; op->kind == ONE_WAIT && c < op->n_counters; c++) {
                if (r->counter[op->counter[c]] == 0) {
                    snprintf(what, sizeof what,
                             "waits for ever for a signal of rank %d",
                             p->counter_peer[op->counter[c]]);
                    break;
                }
            }
            fail_at(r, b, what);
        }
    }
    if (r->status == MW_OK) {
        r->status = prog_check_outputs(&r->m);
    }
}

static enum mw_status runner_init(struct runner *r,
                                  const struct mw_oneside *plan,
                                  const struct mw_prog_run *run,
                                  struct mw_err *err)
{
    *r = (struct runner){.plan = plan, .run = run, .n_barriers = 1};
    enum mw_status s = prog_machine_init(&r->m, &plan->shape, err);
    if (s != MW_OK) {
        return s;
    }
    int n = plan->shape.n_ranks, n_blocks = 0;
    for (int k = 0; k < n; k++) {
        n_blocks += plan->rank[k].n_blocks;
        if (plan->rank[k].n_barriers > r->n_barriers) {
            r->n_barriers = plan->rank[k].n_barriers;
        }
    }
    r->first = mw_calloc((size_t)n, sizeof *r->first);
    r->finish_s = mw_calloc((size_t)n, sizeof *r->finish_s);
    r->state = mw_calloc((size_t)n_blocks + 1, sizeof *r->state);
    r->counter = mw_calloc((size_t)plan->n_counters + 1, sizeof *r->counter);
    r->arrived =
        mw_calloc((size_t)n * (size_t)r->n_barriers, sizeof *r->arrived);
    n_blocks = 0;
    for (int k = 0; k < n; k++) {
        r->first[k] = n_blocks;
        for (int l = 0; l < plan->rank[k].n_blocks; l++) {
            r->state[n_blocks].rank = k;
            r->state[n_blocks++].block = l;
        }
    }
    for (int c = 0; c < plan->n_counters; c++) {
        r->counter[c] = plan->counter_init[c];
    }
    return MW_OK;
}

static void runner_release(struct runner *r)
{
    mw_arena_release(&r->m.arena);
    mw_free(r->first);
    mw_free(r->finish_s);
    mw_free(r->state);
    mw_free(r->counter);
    mw_free(r->arrived);
}

static void advance_all(struct runner *r)
{
    for (int k = 0; k < r->plan->shape.n_ranks; k++) {
        advance_rank(r, k);
    }
}

enum mw_status mw_oneside_check(const struct mw_oneside *plan,
                                struct mw_err *err)
{
    struct runner r;
    enum mw_status s = runner_init(&r, plan, NULL, err);
    if (s != MW_OK) {
        return s;
    }
    bool moved = true;
    while (moved && r.status == MW_OK) {
        moved = false;
        for (int k = 0; k < plan->shape.n_ranks; k++) {
            for (int l = 0; l < plan->rank[k].n_blocks; l++) {
                moved |= advance(&r, &r.state[r.first[k] + l]);
            }
        }
    }
    check_finished(&r);
    s = r.status;
    runner_release(&r);
    return s;
}

enum mw_status mw_oneside_simulate(const struct mw_oneside *plan,
                                   const struct mw_prog_run *run,
                                   struct mw_prog_time *out, struct mw_err *err)
{
    struct runner r;
    enum mw_status s = runner_init(&r, plan, run, err);
    if (s != MW_OK) {
        return s;
    }
    r.chunk_bytes = run->bytes / prog_chunks_of_message(&plan->shape);
    struct mw_fluid_opts o = {.on_done = on_done, .ctx = &r};
    r.net = mw_fluid_new(mw_topology_links(run->topo),
                         mw_topology_capacity(run->topo), &o);
    advance_all(&r);
    out->time_s = mw_time_to_s(mw_fluid_run(r.net));
    mw_fluid_free(r.net);
    check_finished(&r);
    s = r.status;
    out->n_messages = r.n_messages;
    out->finish_s = s == MW_OK ? r.finish_s : NULL;
    r.finish_s = s == MW_OK ? NULL : r.finish_s;
    runner_release(&r);
    return s;
}
