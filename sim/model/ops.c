/*
 * From the forward steps of a layer to the operators of each pass.
 *
 * FLOPs of a matrix product [m,k] x [k,n]: 2 m n k. Backward: dX and dW cost
 * one forward each. Flash attention recomputes the scores in its backward
 * pass: 5 products instead of 2, 2.5 times the forward (arXiv:2205.14135,
 * appendix B), all of it in B. Bytes are each operand once.
 *
 * Under FP8 and FP4 the rank that made an operand casts it, before it is
 * gathered over TP (Transformer Engine, pytorch/module): a gather moves narrow
 * elements, a reduction those of bf16.
 *
 * Element-wise work has bytes and no FLOPs (model.h). Passes of element-wise
 * kinds: norm F reads x and writes y, B reads x and dy and writes dx, W reads
 * x and dy; activation B reads dy and what was kept and writes as much; the
 * residual's B adds the two branches of the gradient.
 */
#include "sim/model/ops_int.h"

#include <string.h>

struct mw_sizes mw_sizes_of(const struct mw_work *work)
{
    const struct mw_layout *l = work->layout;
    double bytes = mw_dtype_bytes(work->dtype);
    /* Narrow formats are for GEMM operands; the rest stays in bf16. */
    bool is_narrow = bytes < 2;
    struct mw_sizes s = {.work = work,
                         .m = work->model,
                         .el = is_narrow ? 2 : bytes,
                         .gemm_el = bytes,
                         .act = is_narrow ? MW_BF16 : work->dtype,
                         .tokens = l->micro_batch * work->seq / l->cp,
                         .tp = l->tp,
                         .is_sp = l->sp && l->tp > 1};

    s.own_tokens = s.is_sp ? s.tokens / s.tp : s.tokens;
    return s;
}

/* ---- builders --------------------------------------------------------------
 */
struct mw_fstep *mw_fstep_add(struct mw_fsteps *steps, const struct mw_sizes *s,
                              enum mw_op_kind kind, const char *name,
                              int64_t rows, int64_t width)
{
    struct mw_fstep *step;

    mw_array_reserve(steps, 1);
    step = &steps->v[steps->n++]; /* in place: steps are hundreds of bytes */
    memset(step, 0, sizeof *step);
    step->op.kind = kind;
    step->op.pass = MW_PASS_F;
    step->op.name = name;
    step->op.m = rows;
    step->op.n = width;
    step->op.batch = 1;
    step->op.dtype = s->act;
    step->op.work_fraction = 1;
    step->coll_f = step->coll_b = NO_COLL;
    step->gather_share = step->cast_out_share = 1;
    return step;
}

double mw_gemm_bytes(const struct mw_sizes *s, int64_t m, int64_t n, int64_t k,
                     int64_t batch)
{
    double a = (double)m * (double)k, b = (double)k * (double)n;

    return (double)batch *
           (s->gemm_el * (a + b) + s->el * (double)m * (double)n);
}

struct mw_fstep *mw_fstep_linear(struct mw_fsteps *steps,
                                 const struct mw_sizes *s, const char *name,
                                 int64_t rows, int64_t out, int64_t in)
{
    struct mw_fstep *step = mw_fstep_add(steps, s, MW_OP_GEMM, name, rows, out);

    step->op.k = in;
    step->op.dtype = s->work->dtype;
    step->op.scaling = s->work->scaling;
    step->op.flops = step->op.model_flops =
        2 * (double)rows * (double)out * (double)in;
    step->op.bytes = mw_gemm_bytes(s, rows, out, in, 1);
    step->op.save_bytes = s->gemm_el * (double)rows * (double)in;
    step->op.cast_elements = (double)rows * (double)in;
    step->has_weight = true;
    return step;
}

struct mw_fstep *mw_fstep_simple(struct mw_fsteps *steps,
                                 const struct mw_sizes *s, enum mw_op_kind kind,
                                 const char *name, int64_t rows, int64_t width,
                                 double bytes, double save)
{
    struct mw_fstep *step = mw_fstep_add(steps, s, kind, name, rows, width);

    step->op.bytes = bytes;
    step->op.save_bytes = save;
    return step;
}

int mw_fstep_ranks(const struct mw_sizes *s, enum mw_dim dim)
{
    const struct mw_layout *layout = s->work->layout;

    switch (dim) {
    case MW_DIM_TP:
        return layout->tp;
    case MW_DIM_CP:
        return layout->cp;
    case MW_DIM_EP:
        return layout->ep;
    case MW_DIM_ETP:
        return layout->etp;
    case MW_DIM_PP:
        return layout->pp;
    case MW_DIM_DP:
        return layout->dp;
    case MW_DIM_COUNT:
        break;
    }
    return 1;
}

struct mw_fstep *mw_fstep_coll(struct mw_fsteps *steps,
                               const struct mw_sizes *s, const char *name,
                               enum mw_dim dim, int coll_f, int coll_b,
                               double bytes)
{
    struct mw_fstep *step;

    if (mw_fstep_ranks(s, dim) <= 1) {
        return NULL;
    }
    step = mw_fstep_add(steps, s, MW_OP_COLL, name, 0, 0);
    step->coll_f = coll_f;
    step->coll_b = coll_b;
    step->op.dim = dim;
    step->op.coll_bytes = bytes;
    return step;
}

static void add_tp_coll(struct mw_fsteps *steps, const struct mw_sizes *s,
                        const char *name, int coll_f, int coll_b, int64_t width)
{
    struct mw_fstep *step =
        mw_fstep_coll(steps, s, name, MW_DIM_TP, coll_f, coll_b,
                      s->el * (double)s->tokens * (double)width);

    if (step != NULL) {
        step->gather_share = s->gemm_el / s->el;
    }
}

void mw_fstep_tp_enter(struct mw_fsteps *steps, const struct mw_sizes *s,
                       const char *name, int64_t width)
{
    add_tp_coll(steps, s, name, s->is_sp ? (int)MW_ALL_GATHER : NO_COLL,
                s->is_sp ? MW_REDUCE_SCATTER : MW_ALL_REDUCE, width);
}

void mw_fstep_tp_exit(struct mw_fsteps *steps, const struct mw_sizes *s,
                      const char *name, int64_t width)
{
    if (s->is_sp && steps->n > 0 && steps->v[steps->n - 1].has_weight) {
        steps->v[steps->n - 1].cast_out_share = 1 / (double)s->tp;
    }
    add_tp_coll(steps, s, name, s->is_sp ? MW_REDUCE_SCATTER : MW_ALL_REDUCE,
                s->is_sp ? (int)MW_ALL_GATHER : NO_COLL, width);
}

void mw_fstep_sharded_input(struct mw_fstep *step, const struct mw_sizes *s,
                            int64_t width)
{
    if (!s->is_sp) {
        return;
    }
    step->op.save_bytes /= s->tp;
    step->op.cast_elements /= s->tp;
    step->has_w_gather = true;
    step->w_gather_bytes = s->gemm_el * (double)s->tokens * (double)width;
}

void mw_fstep_norm(struct mw_fsteps *steps, const struct mw_sizes *s,
                   const char *name, int64_t rows, int64_t width)
{
    double x = s->el * (double)rows * (double)width;

    mw_fstep_simple(steps, s, MW_OP_NORM, name, rows, width, 2 * x, x);
}

/* ---- passes ----------------------------------------------------------------
 */
int mw_again_of(const struct mw_layout *layout)
{
    return layout->recompute == MW_RECOMPUTE_FULL ? MW_AGAIN_ALL
                                                  : mw_layout_modules(layout);
}

static int modules_of(const struct mw_fstep *step)
{
    return step->modules | (step->is_core ? MW_MODULE_CORE_ATTN : 0);
}

bool mw_fstep_is_again(const struct mw_fstep *step, int again)
{
    return again == MW_AGAIN_ALL || (modules_of(step) & again) != 0;
}

void mw_fsteps_tag(struct mw_fsteps *steps, size_t first, int modules,
                   int dropped_with)
{
    for (size_t i = first; i < steps->n; i++) {
        steps->v[i].modules |= modules;
        steps->v[i].dropped_with |= dropped_with;
    }
}

double mw_step_saved_bytes(const struct mw_fstep *step, int again,
                           bool is_first)
{
    double core = step->core_save_bytes, saved = step->op.save_bytes;

    if (again == MW_AGAIN_ALL) {
        return is_first ? saved : 0;
    }
    if ((step->dropped_with & again) != 0) {
        saved = core;
    }
    return (again & MW_MODULE_CORE_ATTN) != 0 ? saved - core : saved;
}

static void push(struct mw_ops *out, const struct mw_op *op)
{
    mw_array_push(out, *op);
}

static void emit_coll(const struct mw_fstep *step, enum mw_pass pass, int coll,
                      struct mw_ops *out)
{
    struct mw_op op = step->op;

    if (coll != NO_COLL) {
        if (pass != MW_PASS_F && step->bytes_b > 0) {
            op.coll_bytes = step->bytes_b;
        }
        op.pass = pass;
        op.is_return =
            op.dim == MW_DIM_EP && step->op.is_return == (pass == MW_PASS_F);
        op.coll = (enum mw_coll_op)coll;
        op.coll_bytes *= coll == MW_ALL_GATHER ? step->gather_share : 1;
        push(out, &op);
    }
}

static void emit_forward(const struct mw_fstep *step, double save_bytes,
                         struct mw_ops *out)
{
    struct mw_op op = step->op;

    if (op.kind == MW_OP_COLL) {
        emit_coll(step, MW_PASS_F, step->coll_f, out);
        return;
    }
    op.save_bytes = save_bytes;
    push(out, &op);
}

/* A backward GEMM made from a forward one. */
static void push_gemm(const struct mw_sizes *s, const struct mw_fstep *step,
                      int64_t m, int64_t n, int64_t k, struct mw_ops *out)
{
    struct mw_op op = step->op;

    op.pass = MW_PASS_B;
    op.save_bytes = 0;
    op.cast_elements =
        step->has_weight
            ? step->cast_out_share * (double)(op.m * op.n) * (double)op.batch
            : 0;
    op.m = m;
    op.n = n;
    op.k = k;
    op.bytes = mw_gemm_bytes(s, m, n, k, op.batch);
    push(out, &op);
}

/* A linear layer has one input gradient, dX[m, k] = dY[m, n] W[n, k]. A
 * product of two activations has two, both in B: of the scores S = Q K^T,
 * dQ = dS K and dK = dS^T Q; of O = P V, dP = dO V^T and dV = P^T dO. */
static void emit_gemm_b(const struct mw_sizes *s, const struct mw_fstep *step,
                        struct mw_ops *out)
{
    int64_t m = step->op.m, n = step->op.n, k = step->op.k;

    push_gemm(s, step, m, k, n, out);
    if (step->is_probs_v) {
        push_gemm(s, step, k, n, m, out);
    } else if (!step->has_weight) {
        push_gemm(s, step, n, k, m, out);
    }
}

static void emit_attention_b(const struct mw_fstep *step, struct mw_ops *out)
{
    struct mw_op op = step->op;

    op.pass = MW_PASS_B;
    op.save_bytes = 0;
    op.flops *= 2.5;
    op.model_flops *= 2;
    /* Reads q, k, v, o, do and the statistics, writes dq, dk, dv: twice the
     * forward's reads and writes, near enough for a bound. */
    op.bytes *= 2;
    push(out, &op);
}

static void emit_simple_b(const struct mw_fstep *step, struct mw_ops *out)
{
    struct mw_op op = step->op;

    op.pass = MW_PASS_B;
    op.save_bytes = 0;
    if (step->bytes_b > 0) {
        op.bytes = step->bytes_b;
    } else if (op.kind == MW_OP_NORM || op.kind == MW_OP_SOFTMAX) {
        op.bytes *= 1.5;
    } else if (op.kind == MW_OP_ACTIVATION) {
        /* F reads a and writes y; B reads a and dy and writes da. */
        op.bytes += step->op.save_bytes;
    }
    push(out, &op);
}

static void emit_backward(const struct mw_sizes *s, const struct mw_fstep *step,
                          struct mw_ops *out)
{
    switch (step->op.kind) {
    case MW_OP_COLL:
        if (!step->coll_in_w) {
            emit_coll(step, MW_PASS_B, step->coll_b, out);
        }
        break;
    case MW_OP_GEMM:
        emit_gemm_b(s, step, out);
        break;
    case MW_OP_ATTENTION:
        emit_attention_b(step, out);
        break;
    case MW_OP_EMBEDDING:
        break; /* token ids have no gradient */
    case MW_OP_NORM:
    case MW_OP_ROTARY:
    case MW_OP_ACTIVATION:
    case MW_OP_ADD:
    case MW_OP_SOFTMAX:
    case MW_OP_CROSS_ENTROPY:
    case MW_OP_ROUTER:
    case MW_OP_PERMUTE:
    case MW_OP_OPTIMIZER:
    case MW_OP_KIND_COUNT:
        emit_simple_b(step, out);
        break;
    }
}

/* dW[out, in] += dY^T X: the gradient is read and written where it
 * accumulates; of the time of dropout, the product was written on its own and
 * read again to be added, until products added to it themselves. */
static void emit_linear_w(const struct mw_sizes *s, const struct mw_fstep *step,
                          struct mw_ops *out)
{
    struct mw_op op = step->op;
    double rows = (double)op.m * (double)op.batch;
    double weights = (double)op.n * (double)op.k * (double)op.batch;

    if (step->has_w_gather) {
        struct mw_op gather = {.kind = MW_OP_COLL,
                               .pass = MW_PASS_W,
                               .name = op.name,
                               .batch = 1,
                               .dtype = s->act,
                               .coll = MW_ALL_GATHER,
                               .dim = MW_DIM_TP,
                               .coll_bytes = step->w_gather_bytes,
                               .is_attention = op.is_attention,
                               .work_fraction = 1};

        push(out, &gather);
    }
    op.pass = MW_PASS_W;
    op.save_bytes = op.cast_elements = 0;
    op.bytes =
        s->gemm_el * rows * (double)(op.n + op.k) +
        (2 * mw_dtype_bytes(s->work->grad_dtype) +
         (s->work->has_dropout && !s->work->sums_in_place ? 2 * s->el : 0)) *
            weights;
    op.m = step->op.n;
    op.n = step->op.k;
    op.k = step->op.m;
    push(out, &op);
}

static void emit_weight(const struct mw_sizes *s, const struct mw_fstep *step,
                        struct mw_ops *out)
{
    struct mw_op op = step->op;

    if (step->is_frozen) {
        return;
    }
    if (step->has_weight) {
        emit_linear_w(s, step, out);
    } else if (op.kind == MW_OP_NORM) {
        op.pass = MW_PASS_W;
        op.save_bytes = 0;
        push(out, &op);
    } else if (op.kind == MW_OP_EMBEDDING) {
        /* Reads dY, reads and writes the rows that the tokens name. */
        op.pass = MW_PASS_W;
        op.save_bytes = 0;
        op.bytes = (double)op.m * (double)op.n *
                   (s->el + 2 * mw_dtype_bytes(s->work->grad_dtype));
        push(out, &op);
    } else if (step->coll_in_w) {
        emit_coll(step, MW_PASS_W, step->coll_b, out);
    }
}

void mw_steps_emit(const struct mw_sizes *s, const struct mw_fsteps *steps,
                   enum mw_pass pass, int again, struct mw_ops *out)
{
    if (pass == MW_PASS_F) {
        for (size_t i = 0; i < steps->n; i++) {
            emit_forward(&steps->v[i],
                         mw_step_saved_bytes(&steps->v[i], again, i == 0), out);
        }
        return;
    }
    if (pass == MW_PASS_B || pass == MW_PASS_BW) {
        for (size_t i = steps->n; i-- > 0;) {
            emit_backward(s, &steps->v[i], out);
        }
    }
    if (pass == MW_PASS_W || pass == MW_PASS_BW) {
        for (size_t i = steps->n; i-- > 0;) {
            emit_weight(s, &steps->v[i], out);
        }
    }
}
