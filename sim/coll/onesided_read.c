/*
 * Reading MSCCL++ plans. Channels of a rank are numbered in file order per
 * type; the k-th channel from a to b and the k-th from b to a are the two ends
 * of one. A threadblock lists the channels and the remote buffers it uses, and
 * its steps count within those lists.
 */
#include "sim/coll/onesided_int.h"

#include "base/file.h"
#include "base/json.h"

#include <stdio.h>
#include <string.h>

enum {
    TYPES = 2, /* memory, port */
    RANKS_MAX = 4096,
    CHUNKS_MAX = 1 << 20,
    LIST_MAX = 4096
};

/* Lists of one rank, by type of channel. */
struct gpu_lists {
    int *peer[TYPES], n_channels[TYPES];
    int first_counter[TYPES];
    int n_semaphores, first_semaphore;
    int *remote_rank, *remote_buf, n_remote;
};
/* Lists of one threadblock. */
struct block_lists {
    int *channel[TYPES], n_channels[TYPES];
    int *remote[TYPES], n_remote[TYPES];
};
struct reader {
    struct mw_oneside *plan;
    const char *name;
    struct gpu_lists *gpu;
    int rank, block, op; /* where we are; -1: above */
    struct mw_err *err;
};

static enum mw_status fail(const struct reader *r, const char *what,
                           const char *detail)
{
    char place[96] = "";
    int n = 0;
    if (r->rank >= 0) {
        n = snprintf(place, sizeof place, "gpus[%d]", r->rank);
    }
    if (r->rank >= 0 && r->block >= 0) {
        n += snprintf(place + n, sizeof place - (size_t)n, ".threadblocks[%d]",
                      r->block);
    }
    if (r->rank >= 0 && r->block >= 0 && r->op >= 0) {
        n += snprintf(place + n, sizeof place - (size_t)n, ".ops[%d]", r->op);
    }
    return mw_fail(r->err, MW_EINPUT, "%s: %s%s%s%s", r->name, place,
                   n ? ": " : "", what, detail);
}

/* An integer in [min, max]; absent: `absent` unless that is below min - 1. */
static bool get_int(const json_t *o, const char *key, long long min,
                    long long max, int absent, int *out)
{
    const json_t *v = json_object_get(o, key);
    if (!v) {
        *out = absent;
        return absent >= min - 1;
    }
    if (!json_is_integer(v) || json_integer_value(v) < min ||
        json_integer_value(v) > max) {
        return false;
    }
    *out = (int)json_integer_value(v);
    return true;
}

static int type_of(const json_t *o, const char *key)
{
    const char *t = json_string_value(json_object_get(o, key));
    return !t                         ? -1
           : strcmp(t, "memory") == 0 ? 0
           : strcmp(t, "port") == 0   ? 1
                                      : -1;
}

static int buffer_of(const json_t *o, const char *key)
{
    const char *t = json_string_value(json_object_get(o, key));
    return !t                    ? -1
           : strcmp(t, "i") == 0 ? MW_BUF_INPUT
           : strcmp(t, "o") == 0 ? MW_BUF_OUTPUT
           : strcmp(t, "s") == 0 ? MW_BUF_SCRATCH
                                 : -1;
}

/* Integers of an array behind those in list; false: no such array. */
static bool append_ints(struct reader *r, const json_t *array, int max,
                        int **list, int *n)
{
    size_t add = json_array_size(array);
    if (!json_is_array(array) || add > LIST_MAX ||
        *n + (int)add > LIST_MAX * 16) {
        return false;
    }
    int *grown =
        mw_arena_alloc(&r->plan->arena, (size_t)*n + add + 1, sizeof *grown);
    if (*n > 0) {
        memcpy(grown, *list, (size_t)*n * sizeof *grown);
    }
    for (size_t i = 0; i < add; i++) {
        const json_t *v = json_array_get(array, i);
        if (!json_is_integer(v) || json_integer_value(v) < 0 ||
            json_integer_value(v) >= max) {
            return false;
        }
        grown[*n + (int)i] = (int)json_integer_value(v);
    }
    *list = grown;
    *n += (int)add;
    return true;
}

/* ---- a rank ---- */

static enum mw_status read_remote(struct reader *r, const json_t *gpu)
{
    struct gpu_lists *g = &r->gpu[r->rank];
    const json_t *list = json_object_get(gpu, "remote_buffers");
    size_t n = json_array_size(list);
    if (n > LIST_MAX) {
        return fail(r, "too many remote_buffers", "");
    }
    g->remote_rank = mw_arena_alloc(&r->plan->arena, n + 1, sizeof(int));
    g->remote_buf = mw_arena_alloc(&r->plan->arena, n + 1, sizeof(int));
    for (size_t i = 0; i < n; i++) {
        const json_t *b = json_array_get(list, i);
        g->remote_buf[i] = buffer_of(b, "type");
        if (!get_int(b, "rank", 0, r->plan->shape.n_ranks - 1, -2,
                     &g->remote_rank[i]) ||
            g->remote_buf[i] < 0) {
            return fail(r, "remote_buffers need a rank and a type i, o or s",
                        "");
        }
    }
    g->n_remote = (int)n;
    return MW_OK;
}

static enum mw_status read_gpu(struct reader *r, const json_t *gpu)
{
    struct gpu_lists *g = &r->gpu[r->rank];
    int *n = r->plan->shape.rank[r->rank].n_chunks, id = 0;
    if (!get_int(gpu, "id", r->rank, r->rank, -2, &id) ||
        !get_int(gpu, "input_chunks", 0, CHUNKS_MAX, -2, &n[MW_BUF_INPUT]) ||
        !get_int(gpu, "output_chunks", 0, CHUNKS_MAX, -2, &n[MW_BUF_OUTPUT]) ||
        !get_int(gpu, "scratch_chunks", 0, CHUNKS_MAX, -2,
                 &n[MW_BUF_SCRATCH])) {
        return fail(r,
                    "id, input_chunks, output_chunks and scratch_chunks are "
                    "missing or wrong (ids in order)",
                    "");
    }
    size_t i = 0;
    const json_t *channel = NULL;
    json_array_foreach(json_object_get(gpu, "channels"), i, channel)
    {
        int t = type_of(channel, "channel_type");
        if (t < 0) {
            return fail(r,
                        "channels of this type are not modelled; known: "
                        "memory, port",
                        "");
        }
        if (!append_ints(r, json_object_get(channel, "connected_to"),
                         r->plan->shape.n_ranks, &g->peer[t],
                         &g->n_channels[t])) {
            return fail(r, "connected_to must be a list of ranks", "");
        }
    }
    g->n_semaphores = (int)json_array_size(json_object_get(gpu, "semaphores"));
    return g->n_semaphores > LIST_MAX ? fail(r, "too many semaphores", "")
                                      : read_remote(r, gpu);
}

/* A counter for the signals that come in by each channel, and per semaphore. */
static enum mw_status number_counters(struct reader *r, const json_t *gpus)
{
    struct mw_oneside *p = r->plan;
    int total = 0;
    for (int k = 0; k < p->shape.n_ranks; k++) {
        struct gpu_lists *g = &r->gpu[k];
        for (int t = 0; t < TYPES; t++) {
            g->first_counter[t] = total;
            total += g->n_channels[t];
        }
        g->first_semaphore = total;
        total += g->n_semaphores;
    }
    size_t n = (size_t)total + 1;
    p->n_counters = total;
    p->counter_init = mw_arena_alloc(&p->arena, n, sizeof(int));
    p->counter_rank = mw_arena_alloc(&p->arena, n, sizeof(int));
    p->counter_peer = mw_arena_alloc(&p->arena, n, sizeof(int));
    for (int k = 0; k < p->shape.n_ranks; k++) {
        const struct gpu_lists *g = &r->gpu[k];
        const json_t *sems =
            json_object_get(json_array_get(gpus, (size_t)k), "semaphores");
        for (int t = 0; t < TYPES; t++) {
            for (int i = 0; i < g->n_channels[t]; i++) {
                p->counter_rank[g->first_counter[t] + i] = k;
                p->counter_peer[g->first_counter[t] + i] = g->peer[t][i];
            }
        }
        for (int i = 0; i < g->n_semaphores; i++) {
            int c = g->first_semaphore + i;
            p->counter_rank[c] = p->counter_peer[c] = k;
            r->rank = k;
            if (!get_int(json_array_get(sems, (size_t)i), "init_value", 0,
                         1 << 20, 0, &p->counter_init[c])) {
                return fail(r, "init_value of a semaphore", "");
            }
        }
    }
    return MW_OK;
}

/* The counter at the other end of a rank's channel; -1: there is none. */
static int other_end(const struct reader *r, int rank, int type, int channel)
{
    const struct gpu_lists *g = &r->gpu[rank];
    int peer = g->peer[type][channel], nth = 0;
    for (int i = 0; i < channel; i++) {
        nth += g->peer[type][i] == peer;
    }
    const struct gpu_lists *o = &r->gpu[peer];
    for (int i = 0; i < o->n_channels[type]; i++) {
        if (o->peer[type][i] == rank && nth-- == 0) {
            return o->first_counter[type] + i;
        }
    }
    return -1;
}

/* ---- a step ---- */

static const struct op_row {
    const char *name;
    enum oneside_kind kind;
    bool signals, waits_data;
} rows[] = {{"nop", ONE_NOP, false, false},
            {"flush", ONE_NOP, false, false},
            {"barrier", ONE_BARRIER, false, false},
            {"put", ONE_MOVE, false, false},
            {"pws", ONE_MOVE, true, false},
            {"pwsf", ONE_MOVE, true, false},
            {"get", ONE_MOVE, false, false},
            {"copy", ONE_MOVE, false, false},
            {"ppkt", ONE_MOVE, false, false},
            {"cpkt", ONE_MOVE, false, false},
            {"rppkt", ONE_MOVE, false, true},
            {"upkt", ONE_MOVE, false, true},
            {"re", ONE_REDUCE, false, false},
            {"res", ONE_REDUCE, false, false},
            {"rre", ONE_REDUCE, false, false},
            {"rres", ONE_REDUCE, false, false},
            {"repkt", ONE_REDUCE, false, true},
            {"respkt", ONE_REDUCE, false, true},
            {"recpkt", ONE_REDUCE, false, true},
            {"recspkt", ONE_REDUCE, false, true},
            {"signal", ONE_SIGNAL, false, false},
            {"rlxsignal", ONE_SIGNAL, false, false},
            {"sem_release", ONE_SIGNAL, false, false},
            {"wait", ONE_WAIT, false, false},
            {"rlxwait", ONE_WAIT, false, false},
            {"sem_acquire", ONE_WAIT, false, false}};

static bool read_ref(const struct reader *r, const json_t *o,
                     const struct block_lists *lists, int type,
                     struct oneside_ref *out)
{
    int id = 0;
    if (!get_int(o, "index", 0, CHUNKS_MAX, -2, &out->index) ||
        !get_int(o, "size", 1, CHUNKS_MAX, -2, &out->size)) {
        return false;
    }
    if (json_object_get(o, "type")) {
        out->rank = r->rank;
        out->buf = buffer_of(o, "type");
    } else {
        if (type < 0 ||
            !get_int(o, "buffer_id", 0, lists->n_remote[type] - 1, -2, &id)) {
            return false;
        }
        const struct gpu_lists *g = &r->gpu[r->rank];
        out->rank = g->remote_rank[lists->remote[type][id]];
        out->buf = g->remote_buf[lists->remote[type][id]];
    }
    return out->buf >= 0 &&
           out->index + out->size <=
               r->plan->shape.rank[out->rank].n_chunks[out->buf];
}

static bool read_refs(const struct reader *r, const json_t *array,
                      const struct block_lists *lists, int type,
                      struct oneside_ref **out, int *out_n)
{
    size_t n = json_array_size(array);
    if (n > LIST_MAX) {
        return false;
    }
    *out = mw_arena_alloc(&r->plan->arena, n + 1, sizeof **out);
    *out_n = (int)n;
    for (size_t i = 0; i < n; i++) {
        if (!read_ref(r, json_array_get(array, i), lists, type, &(*out)[i])) {
            return false;
        }
    }
    return true;
}

static bool sizes_fit(const struct oneside_op *op)
{
    if (op->n_src < 1 || op->n_dst < 1 ||
        (op->kind == ONE_MOVE && op->n_src != 1 && op->n_src != op->n_dst)) {
        return false;
    }
    for (int k = 0; k < op->n_src; k++) {
        if (op->kind == ONE_REDUCE && op->src[k].size != op->src[0].size) {
            return false;
        }
    }
    for (int k = 0; k < op->n_dst; k++) {
        int from = op->kind == ONE_MOVE && op->n_src > 1 ? k : 0;
        if (op->dst[k].size != op->src[from].size) {
            return false;
        }
    }
    return true;
}

static enum mw_status read_counters(struct reader *r, const json_t *o,
                                    const struct block_lists *lists, int type,
                                    struct oneside_op *op)
{
    const struct gpu_lists *g = &r->gpu[r->rank];
    bool sem = strncmp(op->name, "sem_", 4) == 0;
    int max = sem ? g->n_semaphores : type < 0 ? 0 : lists->n_channels[type];
    if (!append_ints(r,
                     json_object_get(o, sem ? "semaphore_ids" : "channel_ids"),
                     max, &op->counter, &op->n_counters)) {
        return fail(r,
                    "channel_ids or semaphore_ids are missing or not among "
                    "those of the threadblock",
                    "");
    }
    for (int k = 0; k < op->n_counters; k++) {
        if (sem) {
            op->counter[k] += g->first_semaphore;
            continue;
        }
        int channel = lists->channel[type][op->counter[k]];
        op->counter[k] = op->kind == ONE_WAIT
                             ? g->first_counter[type] + channel
                             : other_end(r, r->rank, type, channel);
        if (op->counter[k] < 0) {
            return fail(r, "signals by a channel that the peer does not have",
                        "");
        }
    }
    return MW_OK;
}

static enum mw_status read_op(struct reader *r, const json_t *o,
                              const struct block_lists *lists,
                              struct oneside_op *op)
{
    const char *name = json_string_value(json_object_get(o, "name"));
    const struct op_row *row = NULL;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        row = name && strcmp(name, rows[i].name) == 0 ? &rows[i] : row;
    }
    int group = 1, type = type_of(o, "channel_type");
    if (!row || (json_object_get(o, "tbg_info") &&
                 (!get_int(json_object_get(o, "tbg_info"), "tbg_size", 1, 1, 1,
                           &group)))) {
        return fail(r, "not modelled: ",
                    !name ? "a step without name"
                    : row ? "groups of threadblocks"
                          : name);
    }
    op->kind = (uint8_t)row->kind;
    op->name = row->name;
    op->signals = row->signals;
    op->waits_data = row->waits_data;
    if (row->kind == ONE_MOVE || row->kind == ONE_REDUCE) {
        if (!read_refs(r, json_object_get(o, "src_buff"), lists, type, &op->src,
                       &op->n_src) ||
            !read_refs(r, json_object_get(o, "dst_buff"), lists, type, &op->dst,
                       &op->n_dst) ||
            !sizes_fit(op)) {
            return fail(r,
                        "src_buff and dst_buff: chunks outside a buffer, an "
                        "unknown buffer or sizes that differ",
                        "");
        }
    }
    if (row->kind == ONE_BARRIER) {
        struct oneside_rank *rank = &r->plan->rank[r->rank];
        if (!get_int(o, "barrier_id", 0, LIST_MAX, -2, &op->barrier) ||
            !get_int(o, "num_threadblocks", 1, rank->n_blocks, -2,
                     &op->n_blocks)) {
            return fail(r, "barrier_id or num_threadblocks", "");
        }
        if (op->barrier >= rank->n_barriers) {
            rank->n_barriers = op->barrier + 1;
        }
    }
    bool counts =
        row->kind == ONE_SIGNAL || row->kind == ONE_WAIT || row->signals;
    return counts ? read_counters(r, o, lists, type, op) : MW_OK;
}

static enum mw_status read_block_lists(struct reader *r, const json_t *block,
                                       struct block_lists *out)
{
    size_t i = 0;
    const json_t *o = NULL;
    const struct gpu_lists *g = &r->gpu[r->rank];
    json_array_foreach(json_object_get(block, "channels"), i, o)
    {
        int t = type_of(o, "channel_type");
        if (t < 0 ||
            !append_ints(r, json_object_get(o, "channel_ids"), g->n_channels[t],
                         &out->channel[t], &out->n_channels[t])) {
            return fail(r, "channels are not those of the rank", "");
        }
    }
    json_array_foreach(json_object_get(block, "remote_buffer_refs"), i, o)
    {
        int t = type_of(o, "access_channel_type");
        if (t < 0 ||
            !append_ints(r, json_object_get(o, "remote_buffer_ids"),
                         g->n_remote, &out->remote[t], &out->n_remote[t])) {
            return fail(r, "remote_buffer_refs are not those of the rank", "");
        }
    }
    return MW_OK;
}

static enum mw_status read_blocks(struct reader *r, const json_t *gpu)
{
    struct oneside_rank *rank = &r->plan->rank[r->rank];
    const json_t *blocks = json_object_get(gpu, "threadblocks");
    enum mw_status s = MW_OK;
    r->block = r->op = -1;
    if (!json_is_array(blocks) || json_array_size(blocks) > LIST_MAX) {
        return fail(r, "threadblocks are missing or too many", "");
    }
    rank->n_blocks = (int)json_array_size(blocks);
    rank->block = mw_arena_alloc(&r->plan->arena, (size_t)rank->n_blocks + 1,
                                 sizeof *rank->block);
    for (r->block = 0; r->block < rank->n_blocks && s == MW_OK; r->block++) {
        const json_t *b = json_array_get(blocks, (size_t)r->block);
        const json_t *ops = json_object_get(b, "ops");
        struct oneside_block *out = &rank->block[r->block];
        struct block_lists lists = {0};
        r->op = -1;
        s = read_block_lists(r, b, &lists);
        out->op = mw_arena_alloc(&r->plan->arena, json_array_size(ops) + 1,
                                 sizeof *out->op);
        out->n_ops = (int)json_array_size(ops);
        for (r->op = 0; r->op < out->n_ops && s == MW_OK; r->op++) {
            s = read_op(r, json_array_get(ops, (size_t)r->op), &lists,
                        &out->op[r->op]);
        }
    }
    return s;
}

/* ---- the whole ---- */

static enum mw_status read_head(struct reader *r, const json_t *root)
{
    static const struct {
        const char *name;
        enum mw_prog_op op;
    } colls[] = {{"allreduce", MW_PROG_ALL_REDUCE},
                 {"allgather", MW_PROG_ALL_GATHER},
                 {"reducescatter", MW_PROG_REDUCE_SCATTER},
                 {"alltoall", MW_PROG_ALL_TO_ALL},
                 {"broadcast", MW_PROG_BROADCAST},
                 {"reduce", MW_PROG_REDUCE},
                 {"gather", MW_PROG_GATHER},
                 {"scatter", MW_PROG_SCATTER}};
    struct mw_prog *shape = &r->plan->shape;
    const char *name = json_string_value(json_object_get(root, "name"));
    const char *coll = json_string_value(json_object_get(root, "collective"));
    shape->op = MW_PROG_OPS;
    for (size_t i = 0; coll && i < sizeof colls / sizeof colls[0]; i++) {
        if (strcmp(coll, colls[i].name) == 0) {
            shape->op = colls[i].op;
        }
    }
    size_t n = json_array_size(json_object_get(root, "gpus"));
    if (shape->op == MW_PROG_OPS || n < 1 || n > RANKS_MAX) {
        return fail(r,
                    "not an MSCCL++ plan: `collective` (allreduce, allgather, "
                    "reducescatter, alltoall, broadcast, reduce, gather, "
                    "scatter) and `gpus` are needed",
                    "");
    }
    shape->name = mw_arena_strdup(&r->plan->arena, name ? name : r->name);
    shape->in_place = json_is_true(json_object_get(root, "inplace"));
    shape->n_ranks = (int)n;
    shape->rank = mw_arena_alloc(&r->plan->arena, n, sizeof *shape->rank);
    r->plan->rank = mw_arena_alloc(&r->plan->arena, n, sizeof *r->plan->rank);
    r->gpu = mw_arena_alloc(&r->plan->arena, n, sizeof *r->gpu);
    if (!get_int(root, "root", 0, shape->n_ranks - 1, 0, &shape->root)) {
        return fail(r, "root is not a rank", "");
    }
    return MW_OK;
}

static enum mw_status read_plan(struct reader *r, const json_t *root)
{
    enum mw_status s = read_head(r, root);
    const json_t *gpus = json_object_get(root, "gpus");
    int n = r->plan->shape.n_ranks;
    for (r->rank = 0; r->rank < n && s == MW_OK; r->rank++) {
        s = read_gpu(r, json_array_get(gpus, (size_t)r->rank));
    }
    if (s == MW_OK) {
        s = number_counters(r, gpus);
    }
    for (r->rank = 0; r->rank < n && s == MW_OK; r->rank++) {
        s = read_blocks(r, json_array_get(gpus, (size_t)r->rank));
    }
    return s;
}

enum mw_status mw_oneside_parse(const char *name, const char *text, size_t len,
                                struct mw_oneside **out, struct mw_err *err)
{
    json_error_t e;
    json_t *root = len > MW_PLAN_SIZE_MAX ? NULL : json_loadb(text, len, 0, &e);
    if (!root) {
        return len > MW_PLAN_SIZE_MAX
                   ? mw_fail(err, MW_EINPUT, "%s: too large", name)
                   : mw_fail(err, MW_EINPUT, "%s:%d:%d: %s", name, e.line,
                             e.column, e.text);
    }
    struct mw_oneside *plan = mw_calloc(1, sizeof *plan);
    mw_arena_init(&plan->arena);
    struct reader r = {.plan = plan,
                       .name = name,
                       .rank = -1,
                       .block = -1,
                       .op = -1,
                       .err = err};
    enum mw_status s = read_plan(&r, root);
    json_decref(root);
    if (s != MW_OK) {
        mw_oneside_free(plan);
        return s;
    }
    *out = plan;
    return MW_OK;
}

enum mw_status mw_oneside_load(const char *path, struct mw_oneside **out,
                               struct mw_err *err)
{
    char *text = NULL;
    size_t len = 0;
    enum mw_status s = mw_file_read(path, MW_PLAN_SIZE_MAX, &text, &len, err);
    if (s == MW_OK) {
        s = mw_oneside_parse(path, text, len, out, err);
        mw_free(text);
    }
    return s;
}

void mw_oneside_free(struct mw_oneside *plan)
{
    if (plan) {
        mw_arena_release(&plan->arena);
        mw_free(plan);
    }
}

int mw_oneside_ranks(const struct mw_oneside *plan)
{
    return plan->shape.n_ranks;
}

enum mw_prog_op mw_oneside_op(const struct mw_oneside *plan)
{
    return plan->shape.op;
}
