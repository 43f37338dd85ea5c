/*
 * Built-in programs. Each is rank -> lanes -> steps; in place, so that input
 * and output are one buffer of n blocks (chunks).
 *
 * Sources: ring, recursive halving and doubling, Bruck, pairwise: Thakur,
 * Rabenseifner, Gropp, IJHPCA 19(1), 2005. Two trees: Sanders, Speck, Traeff
 * 2009. All-pairs: the one- and two-shot all-reduce of inference engines
 * (TensorRT-LLM, vLLM), which read peers' buffers directly.
 */
#include "sim/coll/prog_int.h"

#include "sim/coll/nccl.h"

#include <string.h>

static const char *const algo_names[MW_ALGOS] = {"ring",
                                                 "tree",
                                                 "double_binary_tree",
                                                 "halving_doubling",
                                                 "recursive_doubling",
                                                 "bruck",
                                                 "pairwise",
                                                 "hierarchical",
                                                 "one_shot",
                                                 "two_shot",
                                                 "nvls",
                                                 "nvlstree",
                                                 "collnetdirect",
                                                 "collnetchain",
                                                 "pat"};
static const char *const op_names[MW_PROG_OPS] = {
    "all_reduce", "all_gather", "reduce_scatter", "all_to_all",
    "broadcast",  "reduce",     "gather",         "scatter"};

const char *mw_prog_algo_name(enum mw_prog_algo algo)
{
    return algo_names[algo];
}

const char *mw_prog_op_name(enum mw_prog_op op)
{
    return op_names[op];
}

static int pow2_floor(int v)
{
    int p = 1;
    while (2 * p <= v) {
        p *= 2;
    }
    return p;
}

int prog_add_lane(struct prog_draft *d, int rank, int send, int recv,
                  int channel)
{
    struct prog_draft_lane l = {.send = send, .recv = recv, .channel = channel};
    mw_array_push(&d->lane[rank], l);
    return (int)d->lane[rank].n - 1;
}

struct mw_prog_step *prog_add_step(struct prog_draft *d, int rank, int lane,
                                   enum mw_prog_kind kind, int src, int dst,
                                   int count)
{
    struct prog_draft_lane *l = &d->lane[rank].v[lane];
    struct mw_prog_step s = {.kind = (uint8_t)kind,
                             .src = src,
                             .dst = dst,
                             .count = count,
                             .dep_lane = -1,
                             .dep_step = -1};
    mw_array_push(&l->step, s);
    return &l->step.v[l->step.n - 1];
}

/* ---- rings ---- */

static void ring(struct prog_draft *d, const int *order, int n, int first_chunk,
                 int per_block, bool reduce, bool gather)
{
    for (int i = 0; i < n; i++) {
        int r = order[i];
        int lane = prog_add_lane(d, r, order[prog_mod(i + 1, n)],
                                 order[prog_mod(i - 1, n)], 0);
        int base = first_chunk;
        for (int s = 0; reduce && s < n - 1; s++) {
            prog_add_step(d, r, lane, MW_STEP_SEND,
                          base + prog_mod(i - s - 1, n) * per_block, 0,
                          per_block);
            prog_add_step(d, r, lane, MW_STEP_RECV_REDUCE, 0,
                          base + prog_mod(i - s - 2, n) * per_block, per_block);
        }
        for (int s = 0; gather && s < n - 1; s++) {
            prog_add_step(d, r, lane, MW_STEP_SEND,
                          base + prog_mod(i - s, n) * per_block, 0, per_block);
            prog_add_step(d, r, lane, MW_STEP_RECV, 0,
                          base + prog_mod(i - s - 1, n) * per_block, per_block);
        }
    }
}

static void build_ring(struct prog_draft *d)
{
    int *order = mw_arena_alloc(&d->prog->arena, (size_t)d->n, sizeof *order);
    for (int i = 0; i < d->n; i++) {
        order[i] = i;
    }
    enum mw_prog_op op = d->spec->op;
    if (op == MW_PROG_BROADCAST || op == MW_PROG_REDUCE) {
        /* A pipeline from (to) the root: chunk after chunk. */
        for (int i = 0; i < d->n; i++) {
            int r = prog_mod(d->spec->root + i, d->n);
            bool up = op == MW_PROG_REDUCE;
            int next = i + 1 < d->n ? prog_mod(r + 1, d->n) : -1;
            int prev = i > 0 ? prog_mod(r - 1, d->n) : -1;
            int lane =
                prog_add_lane(d, r, up ? prev : next, up ? next : prev, 0);
            bool recv = up ? next >= 0 : prev >= 0;
            bool send = up ? prev >= 0 : next >= 0;
            for (int c = 0; c < d->chunks; c++) {
                if (recv) {
                    prog_add_step(d, r, lane,
                                  up ? MW_STEP_RECV_REDUCE : MW_STEP_RECV, 0, c,
                                  1);
                }
                if (send) {
                    prog_add_step(d, r, lane, MW_STEP_SEND, c, 0, 1);
                }
            }
        }
        return;
    }
    ring(d, order, d->n, 0, 1, op != MW_PROG_ALL_GATHER,
         op != MW_PROG_REDUCE_SCATTER);
}

/* ---- everybody with everybody ---- */

static void build_all_pairs(struct prog_draft *d, bool two_shot)
{
    int n = d->n;
    bool reduce = d->spec->op == MW_PROG_ALL_REDUCE;
    for (int r = 0; r < n; r++) {
        int all = reduce && !two_shot ? d->chunks : 1;
        int last = -1;
        if (!reduce) { /* all-gather: my block to all */
            for (int k = 1; k < n; k++) {
                int l = prog_add_lane(d, r, prog_mod(r + k, n),
                                      prog_mod(r - k, n), 0);
                prog_add_step(d, r, l, MW_STEP_SEND, r, 0, 1);
                prog_add_step(d, r, l, MW_STEP_RECV, 0, prog_mod(r - k, n), 1);
            }
            continue;
        }
        /* Peers' values land in scratch, then are added in turn. */
        for (int k = 1; k < n; k++) {
            int to = prog_mod(r + k, n), from = prog_mod(r - k, n);
            int l = prog_add_lane(d, r, to, from, 0);
            prog_add_step(d, r, l, MW_STEP_SEND, two_shot ? to : 0, 0, all);
            struct mw_prog_step *s =
                prog_add_step(d, r, l, MW_STEP_RECV, 0, (k - 1) * all, all);
            s->dst_buf = MW_BUF_SCRATCH;
        }
        int sum = prog_add_lane(d, r, -1, -1, 0);
        for (int k = 1; !two_shot && k < n; k++) { /* all have my old value */
            struct mw_prog_step *s =
                prog_add_step(d, r, sum, MW_STEP_NOP, 0, 0, 0);
            s->dep_lane = k - 1;
            s->dep_step = 0;
        }
        for (int k = 1; k < n; k++) {
            struct mw_prog_step *s =
                prog_add_step(d, r, sum, MW_STEP_REDUCE, (k - 1) * all,
                              two_shot ? r : 0, all);
            s->src_buf = MW_BUF_SCRATCH;
            s->dep_lane = k - 1;
            s->dep_step = 1;
            last = k - 1;
        }
        for (int k = 1; two_shot && k < n; k++) {
            int l =
                prog_add_lane(d, r, prog_mod(r + k, n), prog_mod(r - k, n), 1);
            struct mw_prog_step *s =
                prog_add_step(d, r, l, MW_STEP_SEND, r, 0, 1);
            s->dep_lane = sum;
            s->dep_step = last;
            /* The block that arrives was sent on before the sum was ready. */
            s = prog_add_step(d, r, l, MW_STEP_RECV, 0, prog_mod(r - k, n), 1);
        }
    }
}

/* Block b of rank r goes to rank b; not in place: input and output differ. */
static void build_pairwise(struct prog_draft *d)
{
    int n = d->n;
    enum mw_prog_op op = d->spec->op;
    for (int r = 0; r < n; r++) {
        int root = d->spec->root;
        if (op == MW_PROG_ALL_TO_ALL || r == root) {
            int own = prog_add_lane(d, r, -1, -1, 0);
            struct mw_prog_step *s = prog_add_step(
                d, r, own, MW_STEP_COPY, op == MW_PROG_GATHER ? 0 : r,
                op == MW_PROG_SCATTER ? 0 : r, 1);
            s->dst_buf = MW_BUF_OUTPUT;
        }
        for (int k = 1; k < n; k++) {
            int to = prog_mod(r + k, n), from = prog_mod(r - k, n);
            bool sends = op == MW_PROG_ALL_TO_ALL ||
                         (op == MW_PROG_GATHER && to == root) ||
                         (op == MW_PROG_SCATTER && r == root);
            bool recvs = op == MW_PROG_ALL_TO_ALL ||
                         (op == MW_PROG_GATHER && r == root) ||
                         (op == MW_PROG_SCATTER && from == root);
            if (!sends && !recvs) {
                continue;
            }
            int l = prog_add_lane(d, r, sends ? to : -1, recvs ? from : -1, 0);
            if (sends) {
                prog_add_step(d, r, l, MW_STEP_SEND,
                              op == MW_PROG_GATHER ? 0 : to, 0, 1);
            }
            if (recvs) {
                struct mw_prog_step *s =
                    prog_add_step(d, r, l, MW_STEP_RECV, 0,
                                  op == MW_PROG_SCATTER ? 0 : from, 1);
                s->dst_buf = MW_BUF_OUTPUT;
            }
        }
    }
}

/*
 * Reduce-scatter inside each group, all-reduce of every shard over the groups,
 * all-gather inside: n_groups * local blocks, rings throughout.
 */
static void build_hierarchical(struct prog_draft *d)
{
    int local = d->spec->local, groups = d->n / local;
    for (int r = 0; r < d->n; r++) {
        int g = r / local, i = r % local;
        int inner = prog_add_lane(d, r, g * local + prog_mod(i + 1, local),
                                  g * local + prog_mod(i - 1, local), 0);
        for (int s = 0; s < local - 1; s++) {
            prog_add_step(d, r, inner, MW_STEP_SEND,
                          prog_mod(i - s - 1, local) * groups, 0, groups);
            prog_add_step(d, r, inner, MW_STEP_RECV_REDUCE, 0,
                          prog_mod(i - s - 2, local) * groups, groups);
        }
        int outer = prog_add_lane(d, r, prog_mod(g + 1, groups) * local + i,
                                  prog_mod(g - 1, groups) * local + i, 1);
        int base = i * groups; /* the shard that this rank has summed */
        for (int s = 0; s < 2 * (groups - 1); s++) {
            bool sum = s < groups - 1;
            int k = sum ? s : s - (groups - 1);
            int send =
                sum ? prog_mod(g - k - 1, groups) : prog_mod(g - k, groups);
            int recv =
                sum ? prog_mod(g - k - 2, groups) : prog_mod(g - k - 1, groups);
            struct mw_prog_step *st =
                prog_add_step(d, r, outer, MW_STEP_SEND, base + send, 0, 1);
            if (s == 0 && local > 1) {
                st->dep_lane = inner;
                st->dep_step = 2 * (local - 1) - 1;
            }
            prog_add_step(d, r, outer, sum ? MW_STEP_RECV_REDUCE : MW_STEP_RECV,
                          0, base + recv, 1);
        }
        int back = prog_add_lane(d, r, g * local + prog_mod(i + 1, local),
                                 g * local + prog_mod(i - 1, local), 2);
        for (int s = 0; s < local - 1; s++) {
            struct mw_prog_step *st =
                prog_add_step(d, r, back, MW_STEP_SEND,
                              prog_mod(i - s, local) * groups, 0, groups);
            if (s == 0) {
                bool has_outer = groups > 1;
                st->dep_lane = has_outer ? outer : inner;
                st->dep_step =
                    has_outer ? 4 * (groups - 1) - 1 : 2 * (local - 1) - 1;
            }
            prog_add_step(d, r, back, MW_STEP_RECV, 0,
                          prog_mod(i - s - 1, local) * groups, groups);
        }
    }
}

/* ---- putting it together ---- */

static bool is_possible(const struct mw_prog_spec *s)
{
    enum mw_prog_op op = s->op;
    bool pow2 = s->n_ranks == pow2_floor(s->n_ranks);
    bool ar = op == MW_PROG_ALL_REDUCE, ag = op == MW_PROG_ALL_GATHER;
    bool rs = op == MW_PROG_REDUCE_SCATTER;
    bool to_root = op == MW_PROG_BROADCAST || op == MW_PROG_REDUCE;
    bool whole = s->local > 0 && s->n_ranks % s->local == 0;
    switch (s->algo) {
    case MW_ALGO_RING:
        return ar || ag || rs || to_root;
    case MW_ALGO_TREE:
        return ar || to_root;
    case MW_ALGO_DOUBLE_BINARY_TREE:
        return ar;
    case MW_ALGO_HALVING_DOUBLING:
        return pow2 && (ar || ag || rs);
    case MW_ALGO_RECURSIVE_DOUBLING:
        return pow2 && (ar || ag);
    case MW_ALGO_BRUCK:
        return ag || rs || op == MW_PROG_ALL_TO_ALL;
    case MW_ALGO_PAIRWISE:
        return op == MW_PROG_ALL_TO_ALL || op == MW_PROG_GATHER ||
               op == MW_PROG_SCATTER;
    case MW_ALGO_HIERARCHICAL:
        return ar && whole;
    case MW_ALGO_ALL_PAIRS_ONE_SHOT:
        return ar || ag;
    case MW_ALGO_ALL_PAIRS_TWO_SHOT:
        return ar;
    case MW_ALGO_NVLS:
        return whole && s->local > 1 &&
               (ar || ((ag || rs) && s->local == s->n_ranks));
    case MW_ALGO_NVLS_TREE:
        return ar && whole && s->local > 1 && s->local < s->n_ranks;
    case MW_ALGO_COLLNET_DIRECT:
    case MW_ALGO_COLLNET_CHAIN:
        return ar && whole && s->local < s->n_ranks;
    case MW_ALGO_PAT:
        return ag || rs;
    case MW_ALGOS:
        break;
    }
    return false;
}

static bool is_switched(enum mw_prog_algo algo)
{
    return algo == MW_ALGO_NVLS || algo == MW_ALGO_NVLS_TREE ||
           algo == MW_ALGO_COLLNET_DIRECT || algo == MW_ALGO_COLLNET_CHAIN;
}

static int chunks_of(const struct mw_prog_spec *s)
{
    int pieces = s->pieces > 0 ? s->pieces : 4;
    if (is_switched(s->algo)) {
        return s->local * pieces;
    }
    bool piped = s->algo == MW_ALGO_TREE ||
                 s->algo == MW_ALGO_DOUBLE_BINARY_TREE ||
                 s->op == MW_PROG_BROADCAST || s->op == MW_PROG_REDUCE;
    if (piped) {
        return s->algo == MW_ALGO_DOUBLE_BINARY_TREE ? 2 * pieces : pieces;
    }
    return s->n_ranks;
}

static void build_steps(struct prog_draft *d)
{
    switch (d->spec->algo) {
    case MW_ALGO_RING:
        build_ring(d);
        break;
    case MW_ALGO_TREE:
        prog_build_tree(d);
        break;
    case MW_ALGO_DOUBLE_BINARY_TREE:
        prog_build_double_tree(d);
        break;
    case MW_ALGO_HALVING_DOUBLING:
        prog_build_halving_doubling(d);
        break;
    case MW_ALGO_RECURSIVE_DOUBLING:
        prog_build_recursive_doubling(d);
        break;
    case MW_ALGO_BRUCK:
        prog_build_bruck(d);
        break;
    case MW_ALGO_PAIRWISE:
        build_pairwise(d);
        break;
    case MW_ALGO_HIERARCHICAL:
        build_hierarchical(d);
        break;
    case MW_ALGO_ALL_PAIRS_ONE_SHOT:
        build_all_pairs(d, false);
        break;
    case MW_ALGO_ALL_PAIRS_TWO_SHOT:
        build_all_pairs(d, true);
        break;
    case MW_ALGO_NVLS:
    case MW_ALGO_NVLS_TREE:
    case MW_ALGO_COLLNET_DIRECT:
    case MW_ALGO_COLLNET_CHAIN:
        prog_build_switched(d);
        break;
    case MW_ALGO_PAT:
        prog_build_pat(d);
        break;
    case MW_ALGOS:
        break;
    }
}

static void copy_lanes(struct prog_draft *d)
{
    struct mw_prog *p = d->prog;
    for (int r = 0; r < prog_all(p); r++) {
        struct mw_prog_rank *rank = &p->rank[r];
        rank->n_lanes = (int)d->lane[r].n;
        rank->lane =
            mw_arena_alloc(&p->arena, d->lane[r].n, sizeof *rank->lane);
        for (size_t l = 0; l < d->lane[r].n; l++) {
            struct prog_draft_lane *from = &d->lane[r].v[l];
            struct mw_prog_lane *to = &rank->lane[l];
            to->send = from->send;
            to->recv = from->recv;
            to->channel = from->channel;
            to->n_steps = (int)from->step.n;
            to->step =
                mw_arena_alloc(&p->arena, from->step.n, sizeof *to->step);
            if (from->step.n > 0) {
                memcpy(to->step, from->step.v, from->step.n * sizeof *to->step);
            }
            mw_array_release(&from->step);
        }
        mw_array_release(&d->lane[r]);
    }
}

static void size_buffers(struct prog_draft *d)
{
    const struct mw_prog_spec *spec = d->spec;
    struct mw_prog *p = d->prog;
    bool shot = spec->algo == MW_ALGO_ALL_PAIRS_ONE_SHOT ||
                spec->algo == MW_ALGO_ALL_PAIRS_TWO_SHOT;
    bool bruck = spec->algo == MW_ALGO_BRUCK && !p->in_place;
    int all = spec->algo == MW_ALGO_ALL_PAIRS_ONE_SHOT ? d->chunks : 1;

    for (int r = 0; r < d->n; r++) {
        int *n = p->rank[r].n_chunks;

        n[MW_BUF_INPUT] = n[MW_BUF_OUTPUT] = d->chunks;
        n[MW_BUF_SCRATCH] = shot                        ? (d->n - 1) * all
                            : bruck                     ? 3 * d->n
                            : spec->algo == MW_ALGO_PAT ? 2 * d->n
                                                        : 0;
        if (spec->op == MW_PROG_GATHER) {
            n[MW_BUF_INPUT] = 1;
        } else if (spec->op == MW_PROG_SCATTER) {
            n[MW_BUF_OUTPUT] = 1;
        }
    }
    for (int r = d->n; r < prog_all(p); r++) {
        p->rank[r].n_chunks[MW_BUF_SCRATCH] = d->chunks;
    }
}

static void count_channels(struct prog_draft *d)
{
    for (int r = 0; r < d->n; r++) {
        for (size_t l = 0; l < d->lane[r].n; l++) {
            int needed = d->lane[r].v[l].channel + 1;

            d->prog->n_channels =
                needed > d->prog->n_channels ? needed : d->prog->n_channels;
        }
    }
}

enum mw_status mw_prog_build(const struct mw_prog_spec *spec,
                             struct mw_prog **out, struct mw_err *err)
{
    if (spec->n_ranks < 2 || spec->n_ranks > 65536 || !is_possible(spec) ||
        spec->root < 0 || spec->root >= spec->n_ranks) {
        return mw_fail(err, MW_EINPUT,
                       "there is no %s by %s over %d ranks (halving and "
                       "doubling need a power of two, hierarchical whole "
                       "groups, nvlstree and collnet several nodes)",
                       mw_prog_op_name(spec->op), mw_prog_algo_name(spec->algo),
                       spec->n_ranks);
    }
    struct mw_prog *p = mw_calloc(1, sizeof *p);
    mw_arena_init(&p->arena);
    p->name =
        mw_arena_printf(&p->arena, "%s_%s_%d", mw_prog_algo_name(spec->algo),
                        mw_prog_op_name(spec->op), spec->n_ranks);
    p->proto = "Simple";
    p->op = spec->op;
    p->root = spec->root;
    p->n_ranks = spec->n_ranks;
    p->in_place =
        spec->algo != MW_ALGO_PAIRWISE && spec->op != MW_PROG_ALL_TO_ALL;
    p->chunks_per_rank = 1;
    p->n_switches =
        is_switched(spec->algo) ? spec->n_ranks / spec->local + 1 : 0;
    p->net_switch = p->n_switches > 0 ? prog_all(p) - 1 : -1;
    p->rank = mw_arena_alloc(&p->arena, (size_t)prog_all(p), sizeof *p->rank);
    struct prog_draft d = {.spec = spec,
                           .prog = p,
                           .n = spec->n_ranks,
                           .chunks = chunks_of(spec),
                           .err = err};
    d.lane = mw_calloc((size_t)prog_all(p), sizeof *d.lane);
    size_buffers(&d);
    build_steps(&d);
    count_channels(&d);
    copy_lanes(&d);
    mw_free(d.lane);
    *out = p;
    return MW_OK;
}

void mw_prog_free(struct mw_prog *prog)
{
    if (prog) {
        mw_arena_release(&prog->arena);
        mw_free(prog);
    }
}
