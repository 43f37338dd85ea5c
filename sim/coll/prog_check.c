/*
 * Running a program on symbols.
 *
 * The value of a chunk is (which data, set of ranks whose part is in it). Sums
 * must be of the same data and of disjoint sets. Messages queue between the
 * two ends of a connection (sender, receiver, channel), as many as like;
 * the real runtime has eight slots, which can only make waiting longer.
 */
#include "sim/coll/prog_int.h"

#include <stdlib.h>
#include <string.h>

enum { CHECK_BYTES_MAX = 512 << 20, CYCLE_MAX = 12 };

struct message {
    int count;
    struct prog_value *v;
};
struct prog_lane_state {
    int at;                         /* next step */
    MW_ARRAY(struct message) queue; /* to this lane, in order */
    size_t head;
    int from_lane; /* the lane at the other end of recv, -1 */
    int to_lane;   /* the receiving lane at send, -1 */
};
static const char *kind_text(int kind)
{
    static const char *const names[MW_STEP_KINDS] = {
        "nop", "s", "r", "rrc", "rcs", "rrs", "rrcs", "cpy", "re"};
    return names[kind];
}

static enum mw_status fail_at(const struct prog_machine *m, int rank, int lane,
                              int step, const char *what)
{
    return mw_fail(
        m->err, MW_EINPUT, "%s: rank %d, threadblock %d, step %d (%s): %s",
        m->p->name, rank, lane, step,
        kind_text(m->p->rank[rank].lane[lane].step[step].kind), what);
}

/* Blocks of in-place programs: where (buffer, index) really is. */
struct prog_value *prog_cell(const struct prog_machine *m, int rank, int buffer,
                             int index)
{
    const int *n = m->p->rank[rank].n_chunks;
    if (m->p->in_place && buffer != MW_BUF_SCRATCH) {
        int in = n[MW_BUF_INPUT], out = n[MW_BUF_OUTPUT];
        if (buffer == MW_BUF_INPUT && in < out) {
            index += rank * in;
        } else if (buffer == MW_BUF_OUTPUT && out < in) {
            index += rank * out;
        }
        buffer = in < out ? MW_BUF_OUTPUT : MW_BUF_INPUT;
    }
    return &m->buf[rank * MW_BUFFERS + buffer][index];
}

bool prog_in_range(const struct prog_machine *m, int rank, int buffer,
                   int index, int count)
{
    return index >= 0 && count >= 0 &&
           index + count <= m->p->rank[rank].n_chunks[buffer];
}

static void set_bit(uint64_t *set, int i)
{
    set[i >> 6] |= UINT64_C(1) << (i & 63);
}

/* Data that a rank holds at the beginning. */
void prog_give_inputs(struct prog_machine *m)
{
    const struct mw_prog *p = m->p;
    for (int r = 0; r < p->n_ranks; r++) {
        const int *n = p->rank[r].n_chunks;
        int in = n[MW_BUF_INPUT];
        bool gather = p->op == MW_PROG_ALL_GATHER;
        bool whole = p->in_place && gather && in == n[MW_BUF_OUTPUT];
        int own = whole ? in / p->n_ranks : in;
        bool rooted = p->op == MW_PROG_BROADCAST || p->op == MW_PROG_SCATTER;
        if (rooted && r != p->root) {
            continue;
        }
        for (int i = 0; i < own; i++) {
            int index = whole ? r * own + i : i;
            struct prog_value *v = prog_cell(m, r, MW_BUF_INPUT, index);
            v->id = gather ? r * own + i : i;
            set_bit(v->set, r);
        }
    }
}

/* ---- moving ---- */

static bool is_empty(const struct prog_machine *m, const struct prog_value *v)
{
    (void)m;
    return v->id < 0;
}

/* dst += v; false: other data, or a contribution twice. */
bool prog_add_value(const struct prog_machine *m, struct prog_value *dst,
                    const struct prog_value *v)
{
    if (is_empty(m, dst) || dst->id != v->id) {
        return false;
    }
    for (int w = 0; w < m->words; w++) {
        if (dst->set[w] & v->set[w]) {
            return false;
        }
    }
    for (int w = 0; w < m->words; w++) {
        dst->set[w] |= v->set[w];
    }
    return true;
}

void prog_copy_value(const struct prog_machine *m, struct prog_value *dst,
                     const struct prog_value *v)
{
    dst->id = v->id;
    memcpy(dst->set, v->set, (size_t)m->words * sizeof *dst->set);
}

struct prog_value *prog_new_values(struct prog_machine *m, int count)
{
    struct prog_value *v = mw_arena_alloc(&m->arena, (size_t)count, sizeof *v);
    uint64_t *set =
        mw_arena_alloc(&m->arena, (size_t)(count * m->words), sizeof *set);
    for (int i = 0; i < count; i++) {
        v[i].id = -1;
        v[i].set = set + i * m->words;
    }
    return v;
}

static void post(struct prog_machine *m, int rank, int lane,
                 const struct prog_value *v, int count)
{
    const struct mw_prog_lane *l = &m->p->rank[rank].lane[lane];
    struct prog_lane_state *to = &m->lane[l->send][m->lane[rank][lane].to_lane];
    struct message msg = {.count = count, .v = prog_new_values(m, count)};
    for (int i = 0; i < count; i++) {
        prog_copy_value(m, &msg.v[i], &v[i]);
    }
    mw_array_push(&to->queue, msg);
}

static bool receives(int kind)
{
    return kind == MW_STEP_RECV || kind == MW_STEP_RECV_REDUCE ||
           kind == MW_STEP_RECV_SEND || kind == MW_STEP_RECV_REDUCE_SEND ||
           kind == MW_STEP_RECV_REDUCE_COPY_SEND;
}

static bool sends(int kind)
{
    return kind == MW_STEP_SEND || kind == MW_STEP_RECV_SEND ||
           kind == MW_STEP_RECV_REDUCE_SEND ||
           kind == MW_STEP_RECV_REDUCE_COPY_SEND;
}

/* What a step reads from its own buffers, checked. */
static enum mw_status read_own(struct prog_machine *m, int rank, int lane,
                               int step, struct prog_value **out)
{
    const struct mw_prog_step *s = &m->p->rank[rank].lane[lane].step[step];
    if (!prog_in_range(m, rank, s->src_buf, s->src, s->count)) {
        return fail_at(m, rank, lane, step, "source outside the buffer");
    }
    struct prog_value *v = prog_new_values(m, s->count);
    for (int i = 0; i < s->count; i++) {
        const struct prog_value *from =
            prog_cell(m, rank, s->src_buf, s->src + i);
        if (is_empty(m, from)) {
            return fail_at(m, rank, lane, step,
                           "reads a chunk before it is written");
        }
        prog_copy_value(m, &v[i], from);
    }
    *out = v;
    return MW_OK;
}

/* Puts (or adds) values into the step's destination. */
static enum mw_status write_own(struct prog_machine *m, int rank, int lane,
                                int step, const struct prog_value *v, bool sum)
{
    const struct mw_prog_step *s = &m->p->rank[rank].lane[lane].step[step];
    if (!prog_in_range(m, rank, s->dst_buf, s->dst, s->count)) {
        return fail_at(m, rank, lane, step, "destination outside the buffer");
    }
    for (int i = 0; i < s->count; i++) {
        struct prog_value *dst = prog_cell(m, rank, s->dst_buf, s->dst + i);
        if (!sum) {
            prog_copy_value(m, dst, &v[i]);
        } else if (!prog_add_value(m, dst, &v[i])) {
            return fail_at(m, rank, lane, step,
                           "adds a contribution twice, or to other data");
        }
    }
    return MW_OK;
}

static enum mw_status run_receive(struct prog_machine *m, int rank, int lane,
                                  int step, const struct message *msg)
{
    const struct mw_prog_lane *l = &m->p->rank[rank].lane[lane];
    const struct mw_prog_step *s = &l->step[step];
    if (msg->count != s->count) {
        return mw_fail(m->err, MW_EINPUT,
                       "%s: rank %d sends %d chunks on channel %d but rank %d, "
                       "threadblock %d, step %d receives %d",
                       m->p->name, l->recv, msg->count, l->channel, rank, lane,
                       step, s->count);
    }
    enum mw_status st = MW_OK;
    const struct prog_value *v = msg->v;
    if (s->kind == MW_STEP_RECV_REDUCE_SEND) {
        struct prog_value *sum = NULL;
        st = read_own(m, rank, lane, step, &sum);
        for (int i = 0; i < s->count && st == MW_OK; i++) {
            if (!prog_add_value(m, &sum[i], &msg->v[i])) {
                st = fail_at(m, rank, lane, step,
                             "adds a contribution twice, or to other data");
            }
        }
        v = sum;
    } else {
        bool sum = s->kind == MW_STEP_RECV_REDUCE ||
                   s->kind == MW_STEP_RECV_REDUCE_COPY_SEND;
        st = write_own(m, rank, lane, step, msg->v, sum);
    }
    if (st != MW_OK || !sends(s->kind)) {
        return st;
    }
    if (s->kind == MW_STEP_RECV_REDUCE_COPY_SEND) {
        struct prog_value *now = prog_new_values(m, s->count);
        for (int i = 0; i < s->count; i++) {
            prog_copy_value(m, &now[i],
                            prog_cell(m, rank, s->dst_buf, s->dst + i));
        }
        v = now;
    }
    post(m, rank, lane, v, s->count);
    return MW_OK;
}

/* Runs the next step of a lane if it can; *ran says whether. */
static enum mw_status try_step(struct prog_machine *m, int rank, int lane,
                               bool *ran)
{
    const struct mw_prog_lane *l = &m->p->rank[rank].lane[lane];
    struct prog_lane_state *st = &m->lane[rank][lane];
    int step = st->at;
    *ran = false;
    if (step >= l->n_steps) {
        return MW_OK;
    }
    const struct mw_prog_step *s = &l->step[step];
    if (s->dep_lane >= 0 && m->lane[rank][s->dep_lane].at <= s->dep_step) {
        return MW_OK;
    }
    enum mw_status rc = MW_OK;
    if (receives(s->kind)) {
        if (st->head == st->queue.n) {
            return MW_OK;
        }
        rc = run_receive(m, rank, lane, step, &st->queue.v[st->head]);
        st->head++;
    } else if (s->kind != MW_STEP_NOP) {
        struct prog_value *v = NULL;
        rc = read_own(m, rank, lane, step, &v);
        if (rc == MW_OK && s->kind == MW_STEP_SEND) {
            post(m, rank, lane, v, s->count);
        } else if (rc == MW_OK) {
            rc = write_own(m, rank, lane, step, v, s->kind == MW_STEP_REDUCE);
        }
    }
    *ran = rc == MW_OK;
    st->at++;
    return rc;
}

/* ---- connections ---- */

static enum mw_status connect_lane(struct prog_machine *m, int rank, int lane)
{
    const struct mw_prog_lane *l = &m->p->rank[rank].lane[lane];
    struct prog_lane_state *st = &m->lane[rank][lane];
    bool any_send = false, any_recv = false;
    for (int i = 0; i < l->n_steps; i++) {
        const struct mw_prog_step *s = &l->step[i];
        any_send |= sends(s->kind);
        any_recv |= receives(s->kind);
        if (s->dep_lane >= m->p->rank[rank].n_lanes ||
            (s->dep_lane >= 0 &&
             s->dep_step >= m->p->rank[rank].lane[s->dep_lane].n_steps)) {
            return fail_at(m, rank, lane, i,
                           "waits for a step that is not there");
        }
    }
    st->to_lane = st->from_lane = -1;
    if ((any_send && (l->send < 0 || l->send >= prog_all(m->p))) ||
        (any_recv && (l->recv < 0 || l->recv >= prog_all(m->p)))) {
        return mw_fail(
            m->err, MW_EINPUT,
            "%s: rank %d, threadblock %d sends or receives without a "
            "peer",
            m->p->name, rank, lane);
    }
    const struct mw_prog_rank *peer = any_send ? &m->p->rank[l->send] : NULL;
    for (int k = 0; peer && k < peer->n_lanes; k++) {
        if (peer->lane[k].recv != rank || peer->lane[k].channel != l->channel) {
            continue;
        }
        if (st->to_lane >= 0 || m->lane[l->send][k].from_lane >= 0) {
            return mw_fail(m->err, MW_EINPUT,
                           "%s: ranks %d and %d are connected twice on channel "
                           "%d",
                           m->p->name, rank, l->send, l->channel);
        }
        st->to_lane = k;
        m->lane[l->send][k].from_lane = lane;
    }
    if (any_send && st->to_lane < 0) {
        return mw_fail(
            m->err, MW_EINPUT,
            "%s: rank %d, threadblock %d sends to rank %d on channel "
            "%d, where nobody receives",
            m->p->name, rank, lane, l->send, l->channel);
    }
    return MW_OK;
}

/* ---- the end ---- */

/* Follows who waits for whom until the circle closes, or at a lane that has
 * ended. */
static enum mw_status deadlock(struct prog_machine *m, int rank, int lane)
{
    struct mw_str text = {NULL, 0, 0};
    const struct mw_prog *p = m->p;
    for (int i = 0; i < CYCLE_MAX; i++) {
        int step = m->lane[rank][lane].at;
        if (step >= p->rank[rank].lane[lane].n_steps) {
            mw_str_addf(&text, "%srank %d tb %d, which has ended",
                        i ? " waits for " : "", rank, lane);
            break;
        }
        const struct mw_prog_step *s = &p->rank[rank].lane[lane].step[step];
        mw_str_addf(&text, "%srank %d tb %d step %d (%s)",
                    i ? " waits for " : "", rank, lane, step,
                    kind_text(s->kind));
        if (s->dep_lane >= 0 && m->lane[rank][s->dep_lane].at <= s->dep_step) {
            lane = s->dep_lane;
        } else {
            int from = m->lane[rank][lane].from_lane;
            int peer = p->rank[rank].lane[lane].recv;
            if (from < 0) {
                mw_str_addf(&text, " waits for rank %d, which never sends",
                            peer);
                break;
            }
            rank = peer;
            lane = from;
        }
    }
    enum mw_status s =
        mw_fail(m->err, MW_EINPUT, "%s: deadlock: %s", p->name, text.s);
    mw_str_release(&text);
    return s;
}

/* Expected data and set of an output chunk; false: it may hold anything. */
static bool expected(const struct mw_prog *p, int rank, int index, int *out_id,
                     int *out_only)
{
    const int *n = p->rank[rank].n_chunks;
    int per = n[MW_BUF_OUTPUT] / p->n_ranks;
    *out_only = -1; /* all ranks */
    *out_id = index;
    switch (p->op) {
    case MW_PROG_ALL_REDUCE:
        return true;
    case MW_PROG_ALL_GATHER:
        *out_only = index / (per > 0 ? per : 1);
        return true;
    case MW_PROG_REDUCE_SCATTER:
        if (n[MW_BUF_OUTPUT] < n[MW_BUF_INPUT]) {
            *out_id = rank * n[MW_BUF_OUTPUT] + index;
            return true;
        }
        return index / (per > 0 ? per : 1) == rank;
    case MW_PROG_ALL_TO_ALL:
        *out_only = index / (per > 0 ? per : 1);
        *out_id = rank * per + index % (per > 0 ? per : 1);
        return true;
    case MW_PROG_BROADCAST:
        *out_only = p->root;
        return true;
    case MW_PROG_REDUCE:
        return rank == p->root;
    case MW_PROG_GATHER:
        *out_only = index / (per > 0 ? per : 1);
        *out_id = index % (per > 0 ? per : 1);
        return rank == p->root;
    case MW_PROG_SCATTER:
        *out_only = p->root;
        *out_id = rank * n[MW_BUF_OUTPUT] + index;
        return true;
    case MW_PROG_OPS:
        break;
    }
    return false;
}

enum mw_status prog_check_outputs(struct prog_machine *m)
{
    const struct mw_prog *p = m->p;
    for (int r = 0; r < p->n_ranks; r++) {
        for (int i = 0; i < p->rank[r].n_chunks[MW_BUF_OUTPUT]; i++) {
            int id = 0, only = 0;
            if (!expected(p, r, i, &id, &only)) {
                continue;
            }
            const struct prog_value *v = prog_cell(m, r, MW_BUF_OUTPUT, i);
            if (v->id != id) {
                return mw_fail(m->err, MW_EINPUT,
                               "%s: rank %d ends with %s in output chunk %d",
                               p->name, r, v->id < 0 ? "nothing" : "other data",
                               i);
            }
            for (int k = 0; k < p->n_ranks; k++) {
                bool has = v->set[k >> 6] >> (k & 63) & 1;
                if (has != (only < 0 || only == k)) {
                    return mw_fail(
                        m->err, MW_EINPUT,
                        "%s: rank %d, output chunk %d %s rank %d", p->name, r,
                        i, has ? "has a part of" : "lacks the part of", k);
                }
            }
        }
    }
    return MW_OK;
}

static enum mw_status run_all(struct prog_machine *m)
{
    const struct mw_prog *p = m->p;
    bool progress = true;
    while (progress) {
        progress = false;
        for (int r = 0; r < prog_all(p); r++) {
            for (int l = 0; l < p->rank[r].n_lanes; l++) {
                bool ran = true;
                while (ran) {
                    enum mw_status s = try_step(m, r, l, &ran);
                    if (s != MW_OK) {
                        return s;
                    }
                    progress |= ran;
                }
            }
        }
    }
    for (int r = 0; r < prog_all(p); r++) {
        for (int l = 0; l < p->rank[r].n_lanes; l++) {
            if (m->lane[r][l].at < p->rank[r].lane[l].n_steps) {
                return deadlock(m, r, l);
            }
        }
    }
    for (int r = 0; r < prog_all(p); r++) {
        for (int l = 0; l < p->rank[r].n_lanes; l++) {
            if (m->lane[r][l].head < m->lane[r][l].queue.n) {
                return mw_fail(m->err, MW_EINPUT,
                               "%s: rank %d, threadblock %d never receives a "
                               "message of rank %d",
                               p->name, r, l, p->rank[r].lane[l].recv);
            }
        }
    }
    return prog_check_outputs(m);
}

/* In place the smaller buffer lies inside the larger one, rank after rank. */
static enum mw_status check_shape(const struct mw_prog *p, int words,
                                  struct mw_err *err)
{
    double chunks = 0;
    for (int r = 0; r < prog_all(p); r++) {
        const int *n = p->rank[r].n_chunks;
        int in = n[MW_BUF_INPUT], out = n[MW_BUF_OUTPUT];
        int64_t small = in < out ? in : out, large = in < out ? out : in;
        if (p->in_place && small < large && (r + 1) * small > large) {
            return mw_fail(err, MW_EINPUT,
                           "%s: rank %d: %d input and %d output chunks cannot "
                           "be in place on %d ranks",
                           p->name, r, in, out, p->n_ranks);
        }
        for (int b = 0; b < MW_BUFFERS; b++) {
            chunks += n[b];
        }
    }
    if (chunks * (16 + 8.0 * words) > CHECK_BYTES_MAX) {
        return mw_fail(err, MW_EINPUT,
                       "%s: too large to check (%.0f chunks on %d ranks)",
                       p->name, chunks, p->n_ranks);
    }
    return MW_OK;
}

enum mw_status prog_machine_init(struct prog_machine *m,
                                 const struct mw_prog *prog, struct mw_err *err)
{
    *m = (struct prog_machine){.p = prog, .err = err};
    m->words = (prog->n_ranks + 63) / 64;
    enum mw_status s = check_shape(prog, m->words, err);
    if (s != MW_OK) {
        return s;
    }
    size_t n = (size_t)prog_all(prog);
    mw_arena_init(&m->arena);
    m->buf = mw_arena_alloc(&m->arena, n * MW_BUFFERS, sizeof *m->buf);
    for (int r = 0; r < prog_all(prog); r++) {
        for (int b = 0; b < MW_BUFFERS; b++) {
            m->buf[r * MW_BUFFERS + b] =
                prog_new_values(m, prog->rank[r].n_chunks[b] + 1);
        }
    }
    prog_give_inputs(m);
    return MW_OK;
}

enum mw_status mw_prog_check(const struct mw_prog *prog, struct mw_err *err)
{
    struct prog_machine m;
    enum mw_status s = prog_machine_init(&m, prog, err);
    if (s != MW_OK) {
        return s;
    }
    m.lane = mw_arena_alloc(&m.arena, (size_t)prog_all(prog), sizeof *m.lane);
    for (int r = 0; r < prog_all(prog); r++) {
        m.lane[r] = mw_arena_alloc(&m.arena, (size_t)prog->rank[r].n_lanes + 1,
                                   sizeof *m.lane[r]);
        for (int l = 0; l < prog->rank[r].n_lanes; l++) {
            m.lane[r][l].to_lane = m.lane[r][l].from_lane = -1;
        }
    }
    for (int r = 0; r < prog_all(prog) && s == MW_OK; r++) {
        for (int l = 0; l < prog->rank[r].n_lanes && s == MW_OK; l++) {
            s = connect_lane(&m, r, l);
        }
    }
    if (s == MW_OK) {
        s = run_all(&m);
    }
    for (int r = 0; r < prog_all(prog); r++) {
        for (int l = 0; l < prog->rank[r].n_lanes; l++) {
            mw_array_release(&m.lane[r][l].queue);
        }
    }
    mw_arena_release(&m.arena);
    return s;
}
