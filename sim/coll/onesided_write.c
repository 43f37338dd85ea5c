/*
 * A program of sends and receives as an MSCCL++ plan. Every message has its
 * own slot in the receiver's scratch buffer behind the program's own chunks,
 * so that no handshake is needed: a send is put and signal, a receive wait and
 * copy (or add). A dependency between threadblocks is a semaphore.
 */
#include "sim/coll/onesided_int.h"

#include "base/json.h"

#include <stdlib.h>

struct lane_out {
    int peer_lane;                  /* at send; -1: none */
    int send_channel, recv_channel; /* of the rank; -1 */
    int remote;                     /* of the rank's remote buffers */
    int first_slot;                 /* scratch chunk of its first message */
    int next_step, next_slot;       /* the next message that arrives here */
};
struct writer {
    const struct mw_prog *p;
    struct lane_out **lane; /* [rank][lane] */
    json_t **connected;     /* per rank */
    json_t **remote;
    int *scratch; /* chunks with the slots */
};
/* Dependencies of a rank in order of the waiting steps; also semaphores. */
struct waits {
    MW_ARRAY(struct mw_prog_step) on; /* dep_lane, dep_step only */
};

static bool has_recv(int k)
{
    return k == MW_STEP_RECV || k == MW_STEP_RECV_REDUCE ||
           k == MW_STEP_RECV_SEND || k == MW_STEP_RECV_REDUCE_SEND ||
           k == MW_STEP_RECV_REDUCE_COPY_SEND;
}

static void number_slots(struct writer *w)
{
    for (int r = 0; r < w->p->n_ranks; r++) {
        const struct mw_prog_rank *rank = &w->p->rank[r];
        int at = rank->n_chunks[MW_BUF_SCRATCH];
        for (int l = 0; l < rank->n_lanes; l++) {
            struct lane_out *o = &w->lane[r][l];
            *o = (struct lane_out){-1, -1, -1, -1, at, 0, at};
            for (int i = 0; i < rank->lane[l].n_steps; i++) {
                const struct mw_prog_step *s = &rank->lane[l].step[i];
                at += has_recv(s->kind) ? s->count : 0;
            }
        }
        w->scratch[r] = at;
        w->connected[r] = json_array();
        w->remote[r] = json_array();
    }
}

static int add_channel(struct writer *w, int rank, int peer)
{
    json_array_append_new(w->connected[rank], json_integer(peer));
    return (int)json_array_size(w->connected[rank]) - 1;
}

/* Both ends of a connection get their channel at once, so that the k-th from
 * a to b and the k-th from b to a belong together. */
static void connect(struct writer *w)
{
    const struct mw_prog *p = w->p;
    for (int r = 0; r < p->n_ranks; r++) {
        for (int l = 0; l < p->rank[r].n_lanes; l++) {
            const struct mw_prog_lane *a = &p->rank[r].lane[l];
            struct lane_out *o = &w->lane[r][l];
            for (int k = 0; a->send >= 0 && k < p->rank[a->send].n_lanes; k++) {
                const struct mw_prog_lane *b = &p->rank[a->send].lane[k];
                if (b->recv != r || b->channel != a->channel ||
                    o->peer_lane >= 0) {
                    continue;
                }
                json_t *buffer = json_object();
                mw_json_set_int(buffer, "rank", a->send);
                mw_json_set_str(buffer, "type", "s");
                mw_json_set(buffer, "access_channel_types",
                            json_pack("[s]", "memory"));
                json_array_append_new(w->remote[r], buffer);
                o->peer_lane = k;
                o->remote = (int)json_array_size(w->remote[r]) - 1;
                o->send_channel = add_channel(w, r, a->send);
                w->lane[a->send][k].recv_channel = add_channel(w, a->send, r);
            }
        }
    }
}

/* ---- steps ---- */

/* One buffer of all blocks, as the built-in programs have it. */
static bool is_whole(const struct mw_prog *p)
{
    const int *n = p->rank[0].n_chunks;
    return p->in_place && n[MW_BUF_INPUT] == n[MW_BUF_OUTPUT];
}

/* In-place gathers name the output, in-place scatters the input. */
static const char *type_of(const struct mw_prog *p, int buf)
{
    if (buf == MW_BUF_SCRATCH) {
        return "s";
    }
    if (is_whole(p) && p->op == MW_PROG_ALL_GATHER) {
        return "o";
    }
    if (is_whole(p) && p->op == MW_PROG_REDUCE_SCATTER) {
        return "i";
    }
    return buf == MW_BUF_INPUT ? "i" : "o";
}

static json_t *ref(const struct mw_prog *p, int buf, int index, int count)
{
    return json_pack("{s:s,s:i,s:i}", "type", type_of(p, buf), "index", index,
                     "size", count);
}

static json_t *named(json_t *ops, const char *name)
{
    json_t *op = json_object();
    mw_json_set_str(op, "name", name);
    json_array_append_new(ops, op);
    return op;
}

static void on_channel(json_t *ops, const char *name, int id)
{
    json_t *op = named(ops, name);
    mw_json_set(op, "channel_ids", json_pack("[i]", id));
    mw_json_set_str(op, "channel_type", "memory");
}

static void semaphore(json_t *ops, const char *name, int id)
{
    mw_json_set(named(ops, name), "semaphore_ids", json_pack("[i]", id));
}

/* dst = a, or dst = a + b with b not NULL. */
static void local(json_t *ops, json_t *a, json_t *b, json_t *dst)
{
    json_t *op = named(ops, b ? "re" : "copy"), *src = json_array();
    json_array_append_new(src, a);
    if (b) {
        json_array_append_new(src, b);
    }
    mw_json_set(op, "src_buff", src);
    mw_json_set(op, "dst_buff", json_pack("[o]", dst));
    if (b) {
        mw_json_set_str(op, "reduce_op", "sum");
    }
    named(ops, "nop");
}

static void put(struct writer *w, int rank, int lane, json_t *ops, json_t *src,
                int count)
{
    int to = w->p->rank[rank].lane[lane].send;
    struct lane_out *peer = &w->lane[to][w->lane[rank][lane].peer_lane];
    json_t *op = named(ops, "put");
    mw_json_set(op, "src_buff", json_pack("[o]", src));
    mw_json_set(op, "dst_buff",
                json_pack("[{s:i,s:i,s:i}]", "buffer_id", 0, "index",
                          peer->next_slot, "size", count));
    mw_json_set_str(op, "channel_type", "memory");
    peer->next_slot += count;
    named(ops, "nop");
    on_channel(ops, "signal", 0);
}

static void write_step(struct writer *w, int rank, int lane, int step,
                       int *slot, json_t *ops)
{
    const struct mw_prog *p = w->p;
    const struct mw_prog_step *s = &p->rank[rank].lane[lane].step[step];
    const struct lane_out *o = &w->lane[rank][lane];
    int n = s->count, in = *slot;
    if (has_recv(s->kind)) {
        on_channel(ops, "wait", o->send_channel >= 0 ? 1 : 0);
        named(ops, "nop");
        *slot += n;
    }
    json_t *dst = ref(p, s->dst_buf, s->dst, n);
    json_t *src = ref(p, s->src_buf, s->src, n);
    json_t *msg = ref(p, MW_BUF_SCRATCH, in, n);
    switch ((enum mw_prog_kind)s->kind) {
    case MW_STEP_SEND:
        put(w, rank, lane, ops, json_incref(src), n);
        break;
    case MW_STEP_RECV:
    case MW_STEP_RECV_SEND:
        local(ops, json_incref(msg), NULL, json_incref(dst));
        break;
    case MW_STEP_RECV_REDUCE:
    case MW_STEP_RECV_REDUCE_COPY_SEND:
        local(ops, json_incref(dst), json_incref(msg), json_incref(dst));
        break;
    case MW_STEP_RECV_REDUCE_SEND:
        local(ops, json_incref(src), json_incref(msg), json_incref(msg));
        break;
    case MW_STEP_COPY:
        local(ops, json_incref(src), NULL, json_incref(dst));
        break;
    case MW_STEP_REDUCE:
        local(ops, json_incref(dst), json_incref(src), json_incref(dst));
        break;
    case MW_STEP_NOP:
    case MW_STEP_KINDS:
        break;
    }
    if (s->kind == MW_STEP_RECV_SEND ||
        s->kind == MW_STEP_RECV_REDUCE_COPY_SEND) {
        put(w, rank, lane, ops, json_incref(dst), n);
    } else if (s->kind == MW_STEP_RECV_REDUCE_SEND) {
        put(w, rank, lane, ops, json_incref(msg), n);
    }
    json_decref(dst);
    json_decref(src);
    json_decref(msg);
}

static json_t *write_ops(struct writer *w, int rank, int lane,
                         const struct waits *waits, int *next_wait)
{
    const struct mw_prog_lane *l = &w->p->rank[rank].lane[lane];
    json_t *ops = json_array();
    int slot = w->lane[rank][lane].first_slot;
    for (int i = 0; i < l->n_steps; i++) {
        if (l->step[i].dep_lane >= 0) {
            semaphore(ops, "sem_acquire", (*next_wait)++);
        }
        write_step(w, rank, lane, i, &slot, ops);
        for (size_t k = 0; k < waits->on.n; k++) {
            if (waits->on.v[k].dep_lane == lane &&
                waits->on.v[k].dep_step == i) {
                semaphore(ops, "sem_release", (int)k);
            }
        }
    }
    return ops;
}

/* ---- the whole ---- */

static json_t *write_block(struct writer *w, int rank, int lane,
                           const struct waits *waits, int *next_wait)
{
    const struct lane_out *o = &w->lane[rank][lane];
    json_t *b = json_object(), *ids = json_array();
    mw_json_set_int(b, "id", lane);
    mw_json_set(b, "ops", write_ops(w, rank, lane, waits, next_wait));
    if (o->send_channel >= 0) {
        json_array_append_new(ids, json_integer(o->send_channel));
    }
    if (o->recv_channel >= 0) {
        json_array_append_new(ids, json_integer(o->recv_channel));
    }
    mw_json_set(b, "channels",
                json_array_size(ids) ? json_pack("[{s:s,s:O}]", "channel_type",
                                                 "memory", "channel_ids", ids)
                                     : json_array());
    json_decref(ids);
    mw_json_set(b, "remote_buffer_refs",
                o->remote >= 0
                    ? json_pack("[{s:s,s:[i]}]", "access_channel_type",
                                "memory", "remote_buffer_ids", o->remote)
                    : json_array());
    return b;
}

static json_t *write_rank(struct writer *w, int r)
{
    const struct mw_prog *p = w->p;
    const struct mw_prog_rank *rank = &p->rank[r];
    int in = rank->n_chunks[MW_BUF_INPUT], out = rank->n_chunks[MW_BUF_OUTPUT];
    json_t *g = json_object(), *blocks = json_array(), *sems = json_array();
    struct waits waits = {{NULL, 0, 0}};
    bool whole = is_whole(p);
    int next_wait = 0;
    for (int l = 0; l < rank->n_lanes; l++) {
        for (int i = 0; i < rank->lane[l].n_steps; i++) {
            if (rank->lane[l].step[i].dep_lane >= 0) {
                mw_array_push(&waits.on, rank->lane[l].step[i]);
                json_array_append_new(sems,
                                      json_pack("{s:i}", "init_value", 0));
            }
        }
    }
    mw_json_set_int(g, "id", r);
    mw_json_set_int(g, "input_chunks",
                    whole && p->op == MW_PROG_ALL_GATHER ? in / p->n_ranks
                                                         : in);
    mw_json_set_int(g, "output_chunks",
                    whole && p->op == MW_PROG_REDUCE_SCATTER ? out / p->n_ranks
                                                             : out);
    mw_json_set_int(g, "scratch_chunks", w->scratch[r]);
    for (int l = 0; l < rank->n_lanes; l++) {
        json_array_append_new(blocks, write_block(w, r, l, &waits, &next_wait));
    }
    mw_json_set(g, "threadblocks", blocks);
    mw_json_set(g, "channels",
                json_pack("[{s:s,s:O}]", "channel_type", "memory",
                          "connected_to", w->connected[r]));
    mw_json_set(g, "remote_buffers", json_incref(w->remote[r]));
    mw_json_set(g, "semaphores", sems);
    mw_array_release(&waits.on);
    return g;
}

void mw_prog_write_json(const struct mw_prog *prog, struct mw_str *out)
{
    MW_ASSERT(prog->n_switches == 0, "%s has switches", prog->name);
    static const char *const colls[MW_PROG_OPS] = {
        "allreduce", "allgather", "reducescatter", "alltoall",
        "broadcast", "reduce",    "gather",        "scatter"};
    size_t n = (size_t)prog->n_ranks;
    struct writer w = {.p = prog};
    w.lane = mw_calloc(n, sizeof(struct lane_out *));
    w.connected = mw_calloc(n, sizeof(json_t *));
    w.remote = mw_calloc(n, sizeof(json_t *));
    w.scratch = mw_calloc(n, sizeof *w.scratch);
    for (size_t r = 0; r < n; r++) {
        w.lane[r] = mw_calloc((size_t)prog->rank[r].n_lanes + 1,
                              sizeof(struct lane_out));
    }
    number_slots(&w);
    connect(&w);
    json_t *o = json_object(), *gpus = json_array();
    mw_json_set_str(o, "name", prog->name);
    mw_json_set_str(o, "collective", colls[prog->op]);
    mw_json_set_str(o, "protocol", "Simple");
    mw_json_set_bool(o, "inplace", prog->in_place);
    mw_json_set_bool(o, "reuse_resources", false);
    if (prog->root != 0) {
        mw_json_set_int(o, "root", prog->root);
    }
    for (int r = 0; r < prog->n_ranks; r++) {
        json_array_append_new(gpus, write_rank(&w, r));
    }
    mw_json_set(o, "gpus", gpus);
    mw_json_set_int(o, "num_threads_per_block", 1024);
    mw_json_set_bool(o, "use_double_scratch_buffer", false);
    mw_json_set_int(o, "buffer_alignment", 16);
    char *text = json_dumps(o, JSON_INDENT(1));
    mw_str_add(out, text ? text : "");
    free(text);
    json_decref(o);
    for (size_t r = 0; r < n; r++) {
        json_decref(w.connected[r]);
        json_decref(w.remote[r]);
        mw_free(w.lane[r]);
    }
    mw_free(w.lane);
    mw_free(w.connected);
    mw_free(w.remote);
    mw_free(w.scratch);
}
