/*
 * The forward steps of a layer's attention block:
 *
 *   norm1  [f|ag]  qkv  rotary  core  proj  [g|rs]  add1
 *
 * with f, g, all-gather (ag) and reduce-scatter (rs) over the TP group. The
 * core is one flash operator or scores, softmax and context. Products of the
 * core for s query and n key tokens, h heads of d (values of d_v) elements:
 * 2 s n h (d + d_v) FLOPs. A causal flash kernel skips the masked half:
 * s (s + 1) / 2 of s^2 pairs. Kept: q, k, v, and either s x n probabilities
 * or one fp32 logsumexp per query and head (arXiv:2205.14135).
 *
 * Latent attention (arXiv:2405.04434, section 2.1) puts q_down, kv_down, their
 * norms, q_up and kv_up in the place of qkv; the down projections work on the
 * rank's own tokens with replicated weights, as Megatron-LM does.
 *
 * Packed sequences: a query meets the keys of its document alone. seq / doc
 * cores of doc tokens stand in the place of one of seq, each split over the
 * ranks of the CP group (Transformer Engine's thd layout); doc is the mean over
 * tokens, E[l^2] / E[l] of the documents' lengths.
 *
 * A layer with a window (window.c): a flash kernel does the pairs that are
 * kept, and the others of the tiles on its edges; keys and values are read once
 * each as ever. Unfused products are whole, and masked. Sinks add an element to
 * each row of the softmax, which is not counted.
 *
 * Context parallelism over n ranks, t = s / n tokens each:
 *
 *   gather  keys and values of the other ranks are gathered before the core,
 *           and again before its backward pass, which scatters their gradients
 *   ring    (arXiv:2310.01889) n cores of t queries over the t keys at hand,
 *           which go round: n - 1 exchanges of K and V forward, n - 1 of them
 *           and n of dK and dV backward (the last brings a block's gradient
 *           home). Rank i holds pieces i and 2n-1-i of the 2n (zigzag), so
 *           that each core does half of t x t pairs: the causal half of its own
 *           block, all queries over half of an earlier rank's keys, or half
 *           the queries over a later rank's. Partial outputs are merged by
 *           their logsumexp, gradients added up, in memory
 *   pass_q  (Yang et al., arXiv:2411.01783, section 3.3) keys and values stay,
 *           queries go round: n - 1 exchanges of Q forward, then an all-to-all
 *           brings the n partial outputs of each query, and their logsumexps,
 *           to its owner, who merges them. Backward (the same turned round; the
 *           paper serves only) Q goes round with dO and two statistics a row,
 *           dK and dV are added up where they are, and n exchanges bring dQ
 *           home, added to on its way
 *   a2a     (DeepSpeed Ulysses, arXiv:2309.14509) all-to-alls turn t tokens of
 *           all heads into s tokens of h / n heads: q, k, v before the core,
 *           its output after it, and their gradients. A flash core's backward
 *           pass reads its output, so that is kept of the own heads, and of
 *           the own tokens as the projection's input
 *   cp_inner (Fang and Zhao, arXiv:2405.07719; Megatron-LM's a2a+p2p) sets of
 *           so many neighbours deal out heads as in a2a, after which each set
 *           is one rank of a ring or gather of s / (n / cp_inner) tokens and a
 *           cp_inner-th of the heads
 */
#include "sim/model/ops_int.h"

/* Heads and tokens of one rank. */
struct heads {
    int64_t q, kv;     /* heads */
    int64_t d, v;      /* elements of a query or key, of a value */
    int64_t sequences; /* of the micro-batch */
    int64_t q_tokens;  /* of one sequence that a core takes */
    int64_t kv_tokens; /* keys that they meet in one core */
    int64_t own_kv;    /* keys of one sequence that the rank keeps */
    int n_cores;       /* one after another: the ring's steps, else 1 */
    int64_t documents; /* of a sequence */
    double span;       /* part of kv_tokens that a query meets */
    const struct mw_window *window; /* NULL: the layer has none that cuts */
};

/* Tokens a side of what fused kernels compute at once, for heads of 64 and 128
 * elements (Dao-AILab/flash-attention, csrc/flash_attn/src/
 * flash_fwd_launch_template.h). */
enum { TILE = 128 };

static struct heads heads_of(const struct mw_sizes *s, int layer)
{
    const struct mw_layout *l = s->work->layout;
    int kv = s->m->mla.on ? s->m->n_heads : s->m->n_kv_heads;
    int64_t span = mw_work_span(s->work->seq, s->work->doc_tokens);
    bool is_cut = mw_model_layer_is_local(s->m, layer) &&
                  mw_window_keys(span, &s->m->window) < span;

    return (struct heads){.q = s->m->n_heads / s->tp,
                          .kv = kv > s->tp ? kv / s->tp : 1,
                          .d = mw_model_qk_dim(s->m),
                          .v = mw_model_v_dim(s->m),
                          .sequences = l->micro_batch,
                          .q_tokens = s->work->seq / l->cp,
                          .kv_tokens = s->work->seq,
                          .own_kv = s->work->seq / l->cp,
                          .n_cores = 1,
                          .documents = (s->work->seq + span - 1) / span,
                          .span = (double)span / (double)s->work->seq,
                          .window = is_cut ? &s->m->window : NULL};
}

/* The same as the core sees them under the layout's form of CP. */
static struct heads core_heads(const struct mw_sizes *s, const struct heads *h)
{
    struct heads core = *h;
    int cp = s->work->layout->cp, inner = s->work->layout->cp_inner;

    if (inner > 1) {
        core.q /= inner;
        core.kv /= inner;
        core.q_tokens *= inner;
        core.own_kv *= inner;
    }

    switch (s->work->layout->cp_form) {
    case MW_CP_GATHER:
        break;
    case MW_CP_RING:
        core.kv_tokens = core.own_kv;
        core.n_cores = mw_layout_cp_outer(s->work->layout);
        break;
    case MW_CP_PASSQ: /* the same pieces; the other side of them travels */
        core.kv_tokens = core.own_kv;
        core.n_cores = mw_layout_cp_outer(s->work->layout);
        break;
    case MW_CP_A2A:
        core.q /= cp;
        core.kv /= cp;
        core.q_tokens = core.own_kv = core.kv_tokens;
        break;
    }
    return core;
}

static double x_bytes(const struct mw_sizes *s, int64_t rows, int64_t width)
{
    return s->el * (double)rows * (double)width;
}

/* ---- projections -----------------------------------------------------------
 */
static void add_rotary(const struct mw_sizes *s, int64_t width,
                       struct mw_fsteps *out)
{
    if (s->m->position == MW_POS_ROTARY) {
        mw_fstep_simple(out, s, MW_OP_ROTARY, "rotary", s->tokens, width,
                        2 * x_bytes(s, s->tokens, width), 0);
    }
}

static void add_qkv(const struct mw_sizes *s, const struct heads *h,
                    struct mw_fsteps *out)
{
    mw_fstep_tp_enter(out, s, "qkv", s->m->hidden);
    mw_fstep_sharded_input(mw_fstep_linear(out, s, "qkv", s->tokens,
                                           (h->q + 2 * h->kv) * h->d,
                                           s->m->hidden),
                           s, s->m->hidden);
    mw_fsteps_tag(out, out->n - 1, 0, MW_MODULE_LAYERNORM);
    if (s->m->qk_norm) {
        mw_fstep_norm(out, s, "qk_norm", s->tokens * (h->q + h->kv), h->d);
    }
    add_rotary(s, (h->q + h->kv) * h->d, out);
}

/* From a latent of the rank's own tokens to heads: norm, gather, project. */
static void add_latent_up(const struct mw_sizes *s, const char *norm,
                          const char *up, int64_t latent, int64_t message,
                          int64_t width, struct mw_fsteps *out)
{
    mw_fstep_norm(out, s, norm, s->own_tokens, latent);
    size_t first = out->n;

    mw_fstep_tp_enter(out, s, up, message);
    mw_fstep_sharded_input(
        mw_fstep_linear(out, s, up, s->tokens, width, latent), s, message);
    mw_fsteps_tag(out, first, MW_MODULE_MLA_UP_PROJ, 0);
}

/* Rotary embedding takes what the projection gave apart: keys are written with
 * the rotated part that their heads share, values as the core wants them
 * (Megatron-LM, core/fusions/fused_mla_yarn_rope_apply.py). */
static double build_bytes(const struct mw_sizes *s, const struct heads *h)
{
    const struct mw_mla *a = &s->m->mla;

    return x_bytes(s, s->tokens, h->kv * (a->nope_dim + a->v_dim)) +
           x_bytes(s, s->tokens, h->kv * (h->d + a->v_dim));
}

static void add_mla_qkv(const struct mw_sizes *s, const struct heads *h,
                        struct mw_fsteps *out)
{
    const struct mw_mla *a = &s->m->mla;
    int64_t hidden = s->m->hidden;

    if (a->q_lora > 0) {
        mw_fstep_linear(out, s, "q_down", s->own_tokens, a->q_lora, hidden)
            ->dropped_with = MW_MODULE_LAYERNORM;
        add_latent_up(s, "q_norm", "q_up", a->q_lora, a->q_lora, h->q * h->d,
                      out);
    } else {
        mw_fstep_tp_enter(out, s, "q", hidden);
        mw_fstep_sharded_input(
            mw_fstep_linear(out, s, "q", s->tokens, h->q * h->d, hidden), s,
            hidden);
        mw_fsteps_tag(out, out->n - 1, MW_MODULE_MLA_UP_PROJ,
                      MW_MODULE_LAYERNORM);
    }
    /* Its input is that of the query's projection, kept there. */
    mw_fstep_linear(out, s, "kv_down", s->own_tokens, a->kv_lora + a->rope_dim,
                    hidden)
        ->op.save_bytes = 0;
    add_latent_up(s, "kv_norm", "kv_up", a->kv_lora, a->kv_lora + a->rope_dim,
                  h->kv * (a->nope_dim + a->v_dim), out);
    size_t rotary = out->n;

    add_rotary(s, (h->q + 1) * a->rope_dim, out);
    if (out->n > rotary) {
        out->v[rotary].op.bytes += build_bytes(s, h);
    }
    mw_fsteps_tag(out, rotary, MW_MODULE_MLA_UP_PROJ, 0);
}

/* ---- core ------------------------------------------------------------------
 */
/* Tokens of one document, no less than one. */
static int64_t part_of(int64_t tokens, int64_t documents)
{
    return tokens > documents ? tokens / documents : 1;
}

/* What a window leaves of a core: of the rectangle of queries and the keys that
 * one meets at most, and that rectangle of all keys. */
static void cut_flash(const struct mw_sizes *s, const struct heads *h,
                      struct mw_op *op)
{
    int64_t span = mw_work_span(s->work->seq, s->work->doc_tokens);
    double keys = (double)mw_window_keys(span, h->window);

    op->window = h->window->tokens;
    op->tile_work = mw_window_tile_work(span, h->window, TILE);
    op->work_fraction =
        mw_window_pairs(span, h->window) / ((double)span * keys);
    op->model_flops *= keys / (double)span;
}

static void add_flash(const struct mw_sizes *s, const struct heads *h,
                      struct mw_fsteps *out)
{
    struct mw_fstep *step = mw_fstep_add(out, s, MW_OP_ATTENTION, "attn",
                                         part_of(h->q_tokens, h->documents), 0);
    struct mw_op *op = &step->op;
    double queries = (double)(h->q * h->sequences) * (double)h->q_tokens;
    double keys = (double)(h->kv * h->sequences) * (double)h->kv_tokens;
    double statistics = 4 * queries;

    op->n = part_of(h->kv_tokens, h->documents);
    op->k = h->d;
    op->v_dim = h->v;
    op->batch = h->q * h->sequences * h->documents;
    op->kv_batch = h->kv * h->sequences * h->documents;
    op->is_causal = true;
    op->repeat = h->n_cores;
    op->work_fraction = 0.5 + 0.5 / (h->span * (double)s->work->seq);
    op->model_flops =
        2 * queries * (h->span * (double)h->kv_tokens) * (double)(h->d + h->v);
    if (h->window != NULL) {
        cut_flash(s, h, op);
    }
    op->flops = op->model_flops * op->work_fraction;
    op->bytes = s->el * (double)(h->d + h->v) * (queries + keys) + statistics;
    op->save_bytes =
        x_bytes(s, h->sequences * h->q_tokens, h->q * h->d) +
        x_bytes(s, h->sequences * h->own_kv, h->kv * (h->d + h->v)) +
        statistics;
    step->core_save_bytes = statistics;
    step->is_core = true;
}

static struct mw_fstep *add_product(const struct mw_sizes *s,
                                    const struct heads *h, const char *name,
                                    int64_t n, int64_t k, struct mw_fsteps *out)
{
    struct mw_fstep *step =
        mw_fstep_add(out, s, MW_OP_GEMM, name, h->q_tokens, n);

    step->op.k = k;
    step->op.batch = h->q * h->sequences;
    step->op.flops = step->op.model_flops = 2 * (double)step->op.batch *
                                            (double)h->q_tokens * (double)n *
                                            (double)k;
    step->op.bytes = mw_gemm_bytes(s, h->q_tokens, n, k, step->op.batch);
    step->is_core = true;
    return step;
}

/* Of scores, softmax and context, the last three: what a window keeps. */
static void cut_useful(const struct mw_sizes *s, const struct heads *h,
                       struct mw_fsteps *out)
{
    double seq = (double)s->work->seq;

    for (size_t i = out->n - 3; i < out->n; i++) {
        out->v[i].op.model_flops *=
            (double)mw_window_keys(s->work->seq, h->window) / seq;
    }
}

static void add_unfused(const struct mw_sizes *s, const struct heads *h,
                        struct mw_fsteps *out)
{
    double pairs = (double)(h->q * h->sequences) * (double)h->q_tokens *
                   (double)h->kv_tokens;
    bool has_mask = s->work->has_dropout;
    struct mw_fstep *step;

    step = add_product(s, h, "scores", h->kv_tokens, h->d, out);
    step->op.save_bytes = x_bytes(s, h->sequences * h->q_tokens, h->q * h->d) +
                          x_bytes(s, h->sequences * h->own_kv, h->kv * h->d);
    /* Scale, mask and softmax are one kernel, dropout is one more, with a mask
     * of bytes. Backward: dropout reads two and writes one, softmax the same.
     * Kept: the probabilities; with dropout its output and the mask. */
    step = mw_fstep_simple(out, s, MW_OP_SOFTMAX, "softmax",
                           h->q * h->sequences * h->q_tokens, h->kv_tokens,
                           pairs * (has_mask ? 4 * s->el + 1 : 2 * s->el),
                           pairs * (has_mask ? 2 * s->el + 1 : s->el));
    step->bytes_b = pairs * (has_mask ? 5 * s->el + 1 : 3 * s->el);
    step->core_save_bytes = step->op.save_bytes;
    step->is_core = true;
    step = add_product(s, h, "context", h->v, h->kv_tokens, out);
    step->op.save_bytes = x_bytes(s, h->sequences * h->own_kv, h->kv * h->v);
    step->is_probs_v = true;
    if (h->window != NULL) {
        cut_useful(s, h, out);
    }
}

static void add_fused_or_not(const struct mw_sizes *s, const struct heads *h,
                             struct mw_fsteps *out)
{
    if (s->work->is_flash) {
        add_flash(s, h, out);
    } else {
        add_unfused(s, h, out);
    }
}

/* ---- context parallelism ---------------------------------------------------
 */
static void add_gathered_core(const struct mw_sizes *s, const struct heads *h,
                              struct mw_fsteps *out)
{
    double kv_bytes =
        x_bytes(s, h->sequences * h->kv_tokens, h->kv * (h->d + h->v));

    mw_fstep_coll(out, s, "cp_kv", MW_DIM_CP, MW_ALL_GATHER, MW_REDUCE_SCATTER,
                  kv_bytes);
    add_fused_or_not(s, h, out);
    /* After the core in this list: before its backward pass. */
    mw_fstep_coll(out, s, "cp_kv", MW_DIM_CP, NO_COLL, MW_ALL_GATHER, kv_bytes);
}

/* `n` exchanges a pass of a block's keys and values, or of their gradients. */
static void add_exchange(const struct mw_sizes *s, const char *name, int coll_f,
                         int n, double bytes, struct mw_fsteps *out)
{
    struct mw_fstep *step =
        mw_fstep_coll(out, s, name, MW_DIM_CP, coll_f, MW_SEND_RECV, bytes);

    step->op.repeat = n;
    step->op.is_ring = true;
    step->is_core = true;
}

/* Merging reads what there is and what is new and writes the sum: outputs
 * forward, gradients of queries, keys and values backward. */
static void add_merge(const struct mw_sizes *s, const struct heads *h,
                      struct mw_fsteps *out)
{
    int64_t rows = h->sequences * h->q_tokens;
    double kv = x_bytes(s, h->sequences * h->own_kv, h->kv * (h->d + h->v));
    struct mw_fstep *step =
        mw_fstep_simple(out, s, MW_OP_ADD, "cp_merge", rows, h->q * h->v,
                        3 * x_bytes(s, rows, h->q * h->v), 0);

    step->op.repeat = h->n_cores - 1;
    step->bytes_b = 3 * (x_bytes(s, rows, h->q * h->d) + kv);
    step->is_core = true;
}

static void add_ring_core(const struct mw_sizes *s, const struct heads *h,
                          struct mw_fsteps *out)
{
    int n = h->n_cores;
    double block = x_bytes(s, h->sequences * h->own_kv, h->kv * (h->d + h->v));

    add_flash(s, h, out);
    add_merge(s, h, out);
    add_exchange(s, "cp_kv", MW_SEND_RECV, n - 1, block, out);
    add_exchange(s, "cp_dkv", NO_COLL, n, block, out);
}

/* Merging reads n partial outputs and writes one, in n - 1 parts; backward dK,
 * dV and dQ are added to n - 1 times. */
static void add_passq_core(const struct mw_sizes *s, const struct heads *h,
                           struct mw_fsteps *out)
{
    int n = h->n_cores;
    int64_t rows = h->sequences * h->q_tokens;
    double q = x_bytes(s, rows, h->q * h->d), o = x_bytes(s, rows, h->q * h->v);
    double kv = x_bytes(s, h->sequences * h->own_kv, h->kv * (h->d + h->v));
    double row = 4 * (double)(rows * h->q); /* a statistic in fp32 */
    struct mw_fstep *step;

    add_flash(s, h, out);
    add_exchange(s, "cp_q", MW_SEND_RECV, n - 1, q, out);
    out->v[out->n - 1].bytes_b = q + o + 2 * row;
    step = mw_fstep_coll(out, s, "cp_o", MW_DIM_CP, MW_ALL_TO_ALL, NO_COLL,
                         n * (o + row));
    step->is_core = true;
    step = mw_fstep_simple(out, s, MW_OP_ADD, "cp_merge", rows, h->q * h->v,
                           (n + 1) * o / (n - 1), 0);
    step->op.repeat = n - 1;
    step->bytes_b = 3 * (q + kv);
    step->is_core = true;
    add_exchange(s, "cp_dq", NO_COLL, n, q, out);
}

/* One all-to-all of a buffer of the rank's own tokens, and of its gradient. */
static void add_exchange_heads(const struct mw_sizes *s, const char *name,
                               int64_t width, struct mw_fsteps *out)
{
    struct mw_fstep *step =
        mw_fstep_coll(out, s, name, MW_DIM_CP, MW_ALL_TO_ALL, MW_ALL_TO_ALL,
                      x_bytes(s, s->tokens, width));

    step->is_core = true;
    step->op.is_inner = s->work->layout->cp_inner > 1;
}

/* A core between the ranks that hold the same heads. */
static void add_own_core(const struct mw_sizes *s, const struct heads *core,
                         struct mw_fsteps *out)
{
    switch (s->work->layout->cp_form) {
    case MW_CP_GATHER:
        add_gathered_core(s, core, out);
        break;
    case MW_CP_RING:
        add_ring_core(s, core, out);
        break;
    case MW_CP_PASSQ:
        add_passq_core(s, core, out);
        break;
    case MW_CP_A2A:
        add_fused_or_not(s, core, out);
        break;
    }
}

static void add_dealt_core(const struct mw_sizes *s, const struct heads *own,
                           const struct heads *core, struct mw_fsteps *out)
{
    double o = x_bytes(s, core->sequences * core->q_tokens, core->q * core->v);
    size_t first = out->n;

    add_exchange_heads(s, "cp_q", own->q * own->d, out);
    add_exchange_heads(s, "cp_k", own->kv * own->d, out);
    add_exchange_heads(s, "cp_v", own->kv * own->v, out);
    add_own_core(s, core, out);
    for (size_t i = first; i < out->n; i++) {
        /* Beside what the projection keeps of it. */
        if (out->v[i].op.kind == MW_OP_ATTENTION) {
            out->v[i].op.save_bytes += o;
            out->v[i].core_save_bytes += o;
        }
    }
    add_exchange_heads(s, "cp_o", own->q * own->v, out);
}

static void add_core(const struct mw_sizes *s, const struct heads *h,
                     struct mw_fsteps *out)
{
    const struct mw_layout *l = s->work->layout;
    struct heads core = core_heads(s, h);
    size_t first = out->n;

    if (l->cp == 1) {
        add_fused_or_not(s, h, out);
    } else if (l->cp_form == MW_CP_A2A || l->cp_inner > 1) {
        add_dealt_core(s, h, &core, out);
    } else {
        add_own_core(s, &core, out);
    }
    mw_fsteps_tag(out, first, 0, MW_MODULE_MLA_UP_PROJ); /* q, k and v */
}

void mw_steps_attention(const struct mw_sizes *s, int layer,
                        struct mw_fsteps *out)
{
    struct heads h = heads_of(s, layer);
    int64_t hidden = s->m->hidden;
    double x = x_bytes(s, s->own_tokens, hidden);
    double mask =
        s->work->has_dropout ? (double)s->own_tokens * (double)hidden : 0;

    mw_fstep_norm(out, s, "norm1", s->own_tokens, hidden);
    mw_fsteps_tag(out, out->n - 1, MW_MODULE_LAYERNORM, 0);
    if (s->m->mla.on) {
        add_mla_qkv(s, &h, out);
    } else {
        add_qkv(s, &h, out);
    }
    add_core(s, &h, out);
    mw_fstep_linear(out, s, "proj", s->tokens, hidden, h.q * h.v);
    mw_fstep_tp_exit(out, s, "proj", hidden);
    if (s->m->sandwich_norm) {
        mw_fstep_norm(out, s, "post_norm1", s->own_tokens, hidden);
    }
    mw_fstep_simple(out, s, MW_OP_ADD, "add1", s->own_tokens, hidden,
                    3 * x + mask, mask);
}
