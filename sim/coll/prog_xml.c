/*
 * MSCCL XML in and out, and MSCCL++-like JSON out.
 *
 *   <algo name proto nchannels ngpus coll inplace>
 *     <gpu id i_chunks o_chunks s_chunks>
 *       <tb id send recv chan>
 *         <step s type srcbuf srcoff dstbuf dstoff cnt depid deps hasdep/>
 *
 * Source: microsoft/msccl (src/graph/topo.cc, mscclGetAlgoFromXML...).
 * nchunksperloop and minBytes/maxBytes are read over.
 */
#include "sim/coll/program.h"

#include "base/json.h"
#include "sim/net/xml.h"

#include <stdlib.h>
#include <string.h>

static const char *const kinds[MW_STEP_KINDS] = {
    "nop", "s", "r", "rrc", "rcs", "rrs", "rrcs", "cpy", "re"};
static const char *const buffers[MW_BUFFERS] = {"i", "o", "s"};
static const char *const colls[MW_PROG_OPS] = {
    "allreduce", "allgather", "reduce_scatter", "alltoall",
    "broadcast", "reduce",    "gather",         "scatter"};

static int index_of(const char *const *names, int n, const char *text)
{
    for (int i = 0; text && i < n; i++) {
        if (strcmp(names[i], text) == 0) {
            return i;
        }
    }
    return -1;
}

static enum mw_status get(const struct mw_xml *x, const char *key, int64_t min,
                          int64_t max, int64_t absent, int *out,
                          struct mw_err *err)
{
    int64_t v = 0;
    enum mw_status s =
        mw_xml_int(x, key, min, max, absent != INT64_MIN, absent, &v, err);
    if (s == MW_OK) {
        *out = (int)v;
    }
    return s;
}

enum { CHUNKS_MAX = 1 << 20, REQUIRED = 0 };

static enum mw_status read_step(const struct mw_xml *x, int at,
                                struct mw_prog_step *out, struct mw_err *err)
{
    int number = 0, cnt = 0, src = 0, dst = 0, dep = -1, deps = -1;
    const char *type = mw_xml_attr(x, "type");
    int kind = index_of(kinds, MW_STEP_KINDS, type);
    enum mw_status s = get(x, "s", 0, CHUNKS_MAX, INT64_MIN, &number, err);
    if (s == MW_OK && number != at) {
        return mw_xml_fail(x, err, "step %d where step %d is due", number, at);
    }
    if (s == MW_OK && kind < 0) {
        return mw_xml_fail(x, err,
                           "step %d has type '%.20s'; known: nop s r rrc rcs "
                           "rrs rrcs cpy re",
                           at, type ? type : "");
    }
    if (s == MW_OK) {
        s = get(x, "srcoff", -1, CHUNKS_MAX, -1, &src, err);
    }
    if (s == MW_OK) {
        s = get(x, "dstoff", -1, CHUNKS_MAX, -1, &dst, err);
    }
    if (s == MW_OK) {
        s = get(x, "cnt", 0, CHUNKS_MAX, 0, &cnt, err);
    }
    if (s == MW_OK) {
        s = get(x, "depid", -1, CHUNKS_MAX, -1, &dep, err);
    }
    if (s == MW_OK) {
        s = get(x, "deps", -1, CHUNKS_MAX, -1, &deps, err);
    }
    if (s != MW_OK) {
        return s;
    }
    int sb = index_of(buffers, MW_BUFFERS, mw_xml_attr(x, "srcbuf"));
    int db = index_of(buffers, MW_BUFFERS, mw_xml_attr(x, "dstbuf"));
    out->kind = (uint8_t)kind;
    out->src_buf = (uint8_t)(sb < 0 ? MW_BUF_INPUT : sb);
    out->dst_buf = (uint8_t)(db < 0 ? MW_BUF_OUTPUT : db);
    out->src = src;
    out->dst = dst;
    out->count = kind == MW_STEP_NOP ? 0 : cnt;
    out->dep_lane = deps < 0 ? -1 : dep;
    out->dep_step = dep < 0 ? -1 : deps;
    return MW_OK;
}

static int count_children(const struct mw_xml *x, const char *name)
{
    int n = 0;
    for (const struct mw_xml *c = x->first_child; c; c = c->next) {
        n += strcmp(c->name, name) == 0;
    }
    return n;
}

static enum mw_status read_lane(struct mw_prog *p, const struct mw_xml *x,
                                int at, struct mw_prog_lane *out,
                                struct mw_err *err)
{
    int id = 0;
    enum mw_status s = get(x, "id", 0, CHUNKS_MAX, INT64_MIN, &id, err);
    if (s == MW_OK && id != at) {
        return mw_xml_fail(x, err, "threadblock %d where %d is due", id, at);
    }
    if (s == MW_OK) {
        s = get(x, "send", -1, p->n_ranks - 1, -1, &out->send, err);
    }
    if (s == MW_OK) {
        s = get(x, "recv", -1, p->n_ranks - 1, -1, &out->recv, err);
    }
    if (s == MW_OK) {
        s = get(x, "chan", 0, 1024, 0, &out->channel, err);
    }
    out->n_steps = count_children(x, "step");
    out->step =
        mw_arena_alloc(&p->arena, (size_t)out->n_steps + 1, sizeof *out->step);
    int i = 0;
    for (const struct mw_xml *c = x->first_child; c && s == MW_OK;
         c = c->next) {
        if (strcmp(c->name, "step") == 0) {
            s = read_step(c, i, &out->step[i], err);
            i++;
        }
    }
    return s;
}

static enum mw_status read_gpu(struct mw_prog *p, const struct mw_xml *x,
                               int at, struct mw_err *err)
{
    struct mw_prog_rank *r = &p->rank[at];
    int id = 0;
    enum mw_status s = get(x, "id", 0, CHUNKS_MAX, INT64_MIN, &id, err);
    if (s == MW_OK && id != at) {
        return mw_xml_fail(x, err, "gpu %d where gpu %d is due", id, at);
    }
    static const char *const keys[MW_BUFFERS] = {"i_chunks", "o_chunks",
                                                 "s_chunks"};
    for (int b = 0; b < MW_BUFFERS && s == MW_OK; b++) {
        s = get(x, keys[b], 0, CHUNKS_MAX, INT64_MIN, &r->n_chunks[b], err);
    }
    r->n_lanes = count_children(x, "tb");
    r->lane =
        mw_arena_alloc(&p->arena, (size_t)r->n_lanes + 1, sizeof *r->lane);
    int i = 0;
    for (const struct mw_xml *c = x->first_child; c && s == MW_OK;
         c = c->next) {
        if (strcmp(c->name, "tb") == 0) {
            s = read_lane(p, c, i, &r->lane[i], err);
            i++;
        }
    }
    return s;
}

static enum mw_status read_algo(struct mw_prog *p, const struct mw_xml *x,
                                struct mw_err *err)
{
    const char *coll = mw_xml_attr(x, "coll");
    int op = index_of(colls, MW_PROG_OPS, coll), in_place = 0;
    if (strcmp(x->name, "algo") != 0) {
        return mw_xml_fail(x, err, "the root is <%s>, not <algo>", x->name);
    }
    if (op < 0) {
        return mw_xml_fail(x, err,
                           "coll is '%.30s'; known: allreduce allgather "
                           "reduce_scatter alltoall broadcast reduce gather "
                           "scatter",
                           coll ? coll : "");
    }
    enum mw_status s = get(x, "ngpus", 1, 4096, INT64_MIN, &p->n_ranks, err);
    if (s == MW_OK) {
        s = get(x, "nchannels", 0, 1024, 1, &p->n_channels, err);
    }
    if (s == MW_OK) {
        s = get(x, "inplace", 0, 1, 0, &in_place, err);
    }
    if (s != MW_OK) {
        return s;
    }
    const char *name = mw_xml_attr(x, "name"), *proto = mw_xml_attr(x, "proto");
    p->name = mw_arena_strdup(&p->arena, name ? name : "program");
    p->proto = mw_arena_strdup(&p->arena, proto ? proto : "Simple");
    p->op = (enum mw_prog_op)op;
    p->in_place = in_place != 0;
    p->chunks_per_rank = 1;
    if (count_children(x, "gpu") != p->n_ranks) {
        return mw_xml_fail(x, err, "%d <gpu> elements but ngpus is %d",
                           count_children(x, "gpu"), p->n_ranks);
    }
    p->net_switch = -1;
    p->rank = mw_arena_alloc(&p->arena, (size_t)p->n_ranks, sizeof *p->rank);
    int i = 0;
    for (const struct mw_xml *c = x->first_child; c && s == MW_OK;
         c = c->next) {
        if (strcmp(c->name, "gpu") == 0) {
            s = read_gpu(p, c, i, err);
            i++;
        }
    }
    return s;
}

static enum mw_status from_xml(const struct mw_xml *root, struct mw_prog **out,
                               struct mw_err *err)
{
    struct mw_prog *p = mw_calloc(1, sizeof *p);
    mw_arena_init(&p->arena);
    enum mw_status s = read_algo(p, root, err);
    if (s == MW_OK) {
        s = mw_prog_check(p, err);
    }
    if (s != MW_OK) {
        mw_prog_free(p);
        return s;
    }
    *out = p;
    return MW_OK;
}

enum mw_status mw_prog_parse(const char *name, const char *text, size_t len,
                             struct mw_prog **out, struct mw_err *err)
{
    struct mw_arena arena;
    struct mw_xml *root = NULL;
    mw_arena_init(&arena);
    enum mw_status s = mw_xml_parse(name, text, len, &arena, &root, err);
    if (s == MW_OK) {
        s = from_xml(root, out, err);
    }
    mw_arena_release(&arena);
    return s;
}

enum mw_status mw_prog_load(const char *path, struct mw_prog **out,
                            struct mw_err *err)
{
    struct mw_arena arena;
    struct mw_xml *root = NULL;
    mw_arena_init(&arena);
    enum mw_status s = mw_xml_load(path, &arena, &root, err);
    if (s == MW_OK) {
        s = from_xml(root, out, err);
    }
    mw_arena_release(&arena);
    return s;
}

static int has_dependents(const struct mw_prog_rank *r, int lane, int step)
{
    for (int l = 0; l < r->n_lanes; l++) {
        for (int i = 0; i < r->lane[l].n_steps; i++) {
            if (r->lane[l].step[i].dep_lane == lane &&
                r->lane[l].step[i].dep_step == step) {
                return 1;
            }
        }
    }
    return 0;
}

void mw_prog_write_xml(const struct mw_prog *prog, struct mw_str *out)
{
    MW_ASSERT(prog->n_switches == 0, "%s has switches", prog->name);
    mw_str_addf(
        out,
        "<algo name=\"%s\" proto=\"%s\" nchannels=\"%d\" "
        "nchunksperloop=\"%d\" ngpus=\"%d\" coll=\"%s\" inplace=\"%d\">\n",
        prog->name, prog->proto, prog->n_channels,
        prog->rank[0].n_chunks[MW_BUF_INPUT], prog->n_ranks, colls[prog->op],
        prog->in_place);
    for (int r = 0; r < prog->n_ranks; r++) {
        const struct mw_prog_rank *rank = &prog->rank[r];
        mw_str_addf(out,
                    "  <gpu id=\"%d\" i_chunks=\"%d\" o_chunks=\"%d\" "
                    "s_chunks=\"%d\">\n",
                    r, rank->n_chunks[0], rank->n_chunks[1], rank->n_chunks[2]);
        for (int l = 0; l < rank->n_lanes; l++) {
            const struct mw_prog_lane *lane = &rank->lane[l];
            mw_str_addf(out,
                        "    <tb id=\"%d\" send=\"%d\" recv=\"%d\" "
                        "chan=\"%d\">\n",
                        l, lane->send, lane->recv, lane->channel);
            for (int i = 0; i < lane->n_steps; i++) {
                const struct mw_prog_step *s = &lane->step[i];
                mw_str_addf(out,
                            "      <step s=\"%d\" type=\"%s\" srcbuf=\"%s\" "
                            "srcoff=\"%d\" dstbuf=\"%s\" dstoff=\"%d\" "
                            "cnt=\"%d\" depid=\"%d\" deps=\"%d\" "
                            "hasdep=\"%d\"/>\n",
                            i, kinds[s->kind], buffers[s->src_buf], s->src,
                            buffers[s->dst_buf], s->dst, s->count, s->dep_lane,
                            s->dep_step, has_dependents(rank, l, i));
            }
            mw_str_add(out, "    </tb>\n");
        }
        mw_str_add(out, "  </gpu>\n");
    }
    mw_str_add(out, "</algo>\n");
}
