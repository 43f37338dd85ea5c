/*
 * What a layer's backward pass holds at its worst moment, from the forward
 * steps of the layer walked backwards (autograd's order):
 *
 *   before step i     kept tensors of steps 0 .. i, the gradient of the layer's
 *                     residual stream, the gradient of step i's output
 *   at step i         the gradient of its inputs as well, and what was gathered
 *                     for it
 *   after step i      kept tensors of step i and its output's gradient are gone
 *
 * The figure is what all this is more than the layer keeps between its passes,
 * so that it adds to the activations in flight. Under full recomputation it is
 * what there is beside the whole layer, which has come back; under selective
 * recomputation a module's part comes back while its steps run.
 * Gradients of weights are not in it: they belong to a stack's habits
 * (sim/step).
 *
 * Example, SwiGLU without tensor parallelism: at the activation x + f for the
 * residual's gradient and the gradient of fc2's input and 2 f for that of the
 * activation's input, less f that fc2 had kept: x + 2 f.
 *
 * Left out: workspaces of kernels, tensors of routers, the moment at which two
 * gradients of one tensor are added.
 */
#include "sim/model/ops_int.h"

#include <math.h>
#include <string.h>

struct walk {
    const struct mw_sizes *s;
    double x;       /* a gradient of the residual stream */
    double grads;   /* gradients alive */
    double freed;   /* of what the layer keeps */
    double core;    /* of what is computed again, what is there now */
    bool is_shared; /* the next step's output gradient is the residual's */
    struct mw_layer_peak peak;
};

/* Of the rows that a router sent here over the mean. */
static double load_of(const struct mw_sizes *s, const struct mw_op *op)
{
    bool is_exchange = op->kind == MW_OP_COLL &&
                       (op->dim == MW_DIM_EP || op->dim == MW_DIM_ETP) &&
                       s->work->layout->dispatcher != MW_DISPATCH_ALLGATHER;
    bool is_routed = op->is_routed || is_exchange;

    return is_routed && s->work->routed_load > 0 ? s->work->routed_load : 1;
}

static double dense_bytes(const struct mw_sizes *s, const struct mw_op *op)
{
    return s->el * (double)op->m * (double)op->n * (double)op->batch *
           load_of(s, op);
}

/* Bytes of a step's output. */
static double out_bytes(const struct mw_sizes *s, const struct mw_fstep *step)
{
    const struct mw_op *op = &step->op;

    switch (op->kind) {
    case MW_OP_ATTENTION:
        return s->el * (double)op->batch * (double)op->m * (double)op->v_dim;
    case MW_OP_PERMUTE: /* x + routed in bytes; one of them goes in */
        return op->save_bytes > 0 ? dense_bytes(s, op)
                                  : op->bytes - dense_bytes(s, op);
    case MW_OP_ROUTER:
    case MW_OP_COLL:
        return 0;
    case MW_OP_GEMM:
    case MW_OP_NORM:
    case MW_OP_ROTARY:
    case MW_OP_ACTIVATION:
    case MW_OP_ADD:
    case MW_OP_SOFTMAX:
    case MW_OP_EMBEDDING:
    case MW_OP_CROSS_ENTROPY:
    case MW_OP_OPTIMIZER:
    case MW_OP_KIND_COUNT:
        break;
    }
    return dense_bytes(s, op);
}

/* Bytes of the gradients of a step's inputs. */
static double in_bytes(const struct mw_sizes *s, const struct mw_fstep *step)
{
    const struct mw_op *op = &step->op;
    double m = (double)op->m, n = (double)op->n, k = (double)op->k;

    switch (op->kind) {
    case MW_OP_GEMM:
        return s->el * (double)op->batch * load_of(s, op) *
               (step->has_weight   ? m * k
                : step->is_probs_v ? m * k + k * n
                                   : (m + n) * k);
    case MW_OP_ATTENTION:
        return op->save_bytes - step->core_save_bytes;
    case MW_OP_ACTIVATION:
        return op->save_bytes;
    case MW_OP_PERMUTE:
        return op->save_bytes > 0 ? op->bytes - dense_bytes(s, op)
                                  : dense_bytes(s, op);
    case MW_OP_ROUTER:
    case MW_OP_COLL:
        return 0;
    case MW_OP_NORM:
    case MW_OP_ROTARY:
    case MW_OP_ADD:
    case MW_OP_SOFTMAX:
    case MW_OP_EMBEDDING:
    case MW_OP_CROSS_ENTROPY:
    case MW_OP_OPTIMIZER:
    case MW_OP_KIND_COUNT:
        break;
    }
    return dense_bytes(s, op);
}

static void look(struct walk *w, const char *name, double more)
{
    double bytes = w->grads + w->core + more - w->freed;

    if (bytes > w->peak.bytes) {
        w->peak.bytes = bytes;
        w->peak.at = name;
    }
}

static double whole_of(const struct mw_sizes *s, const struct mw_fstep *step)
{
    return step->op.coll_bytes * load_of(s, &step->op);
}

static double part_of(const struct mw_sizes *s, const struct mw_fstep *step)
{
    return whole_of(s, step) / mw_fstep_ranks(s, step->op.dim);
}

/* The conjugate of a collective turns one gradient into another. */
static void walk_coll(struct walk *w, const struct mw_fstep *step)
{
    double whole = whole_of(w->s, step), part = whole;

    if (step->coll_b == NO_COLL || step->op.is_ring) {
        return;
    }
    if (step->coll_b == (int)MW_ALL_GATHER) {
        look(w, step->op.name, whole);
        part = w->is_shared ? 0 : part_of(w->s, step);
        w->grads += whole - part;
        w->is_shared = false;
    } else if (step->coll_b == (int)MW_REDUCE_SCATTER) {
        part = part_of(w->s, step);
        look(w, step->op.name, part);
        w->grads += part - whole;
    } else if (step->coll_b == (int)MW_ALL_TO_ALL) {
        look(w, step->op.name, whole);
    }
    w->grads = fmax(w->grads, w->x);
}

/* Adapters and the spreading of 4 bits run beside a product, whose gradients
 * are theirs. */
static bool is_beside(const struct mw_fstep *step)
{
    return strncmp(step->op.name, "lora_", 5) == 0 ||
           strcmp(step->op.name, "dequantise") == 0;
}

static void walk_step(struct walk *w, const struct mw_fstep *step,
                      double saved_bytes)
{
    bool is_residual = step->op.kind == MW_OP_ADD && !step->is_core;
    double in = in_bytes(w->s, step), gathered = 0;

    if (step->op.kind == MW_OP_COLL) {
        walk_coll(w, step);
        return;
    }
    if (is_beside(step)) {
        w->freed += saved_bytes;
        return;
    }
    if (is_residual) { /* both of its inputs have its output's gradient */
        w->is_shared = true;
        w->freed += saved_bytes;
        return;
    }
    if (step->has_w_gather) {
        gathered = step->w_gather_bytes;
    }
    look(w, step->op.name, in + gathered);
    w->grads += in - (w->is_shared ? 0 : out_bytes(w->s, step));
    w->grads = fmax(w->grads, w->x);
    w->is_shared = false;
    w->freed += saved_bytes;
}

/* Is what step j keeps, but for the core's part, there again while the backward
 * pass is at step i >= j? A module's part comes back at its own last step, a
 * norm's output with the block's gradient (Megatron-Core hooks the
 * recomputation to it), an activation's with the product behind it. */
static bool is_back(const struct mw_fsteps *steps, size_t j, size_t i,
                    int again)
{
    const int whole = MW_MODULE_MLP | MW_MODULE_MOE | MW_MODULE_SHARED_EXPERTS;
    int with = steps->v[j].dropped_with & again;

    return (with & MW_MODULE_LAYERNORM) != 0 ||
           ((with & MW_MODULE_MLA_UP_PROJ) != 0 && steps->v[i].is_core) ||
           (with & whole & steps->v[i].modules) != 0 ||
           ((with & MW_MODULE_MOE_ACT) != 0 && i == j);
}

/* Bytes that have come back at step i and are not yet gone. */
static double back_bytes(const struct mw_fsteps *steps, size_t i, int again)
{
    double sum = 0;

    for (size_t j = 0; j < steps->n; j++) {
        const struct mw_fstep *step = &steps->v[j];
        double core = step->core_save_bytes;

        if ((again & MW_MODULE_CORE_ATTN) != 0 && steps->v[i].is_core) {
            sum += core;
        }
        if (j <= i && (step->dropped_with & again) != 0 &&
            is_back(steps, j, i, again)) {
            sum += step->op.save_bytes - core;
        }
    }
    return sum;
}

/* The first step of a block is its norm: there the branch's gradient joins the
 * residual's. */
static void walk_block(struct walk *w, const struct mw_fsteps *steps, int again,
                       bool has_input)
{
    for (size_t i = steps->n; i-- > 0;) {
        const struct mw_fstep *step = &steps->v[i];

        w->core = again != MW_AGAIN_NONE ? back_bytes(steps, i, again) : 0;
        walk_step(w, step,
                  mw_step_saved_bytes(step, again, has_input && i == 0));
    }
    w->grads = w->x;
}

void mw_layer_backward_peak(const struct mw_work *work, int layer,
                            struct mw_layer_peak *out)
{
    struct mw_sizes s = mw_sizes_of(work);
    int again = mw_layout_modules(work->layout); /* full: all has come back */
    double x = s.el * (double)s.own_tokens * s.m->hidden;
    struct walk w = {
        .s = &s, .x = x, .grads = x, .peak = {.bytes = x, .at = "residual"}};
    struct mw_fsteps attention = {0}, mlp = {0};

    mw_steps_attention(&s, layer, &attention);
    mw_steps_mlp(&s, layer, &mlp);
    if (work->lora_rank > 0) {
        mw_steps_freeze(&s, true, &attention);
        mw_steps_freeze(&s, true, &mlp);
    }
    walk_block(&w, &mlp, again, false);
    walk_block(&w, &attention, again, true);
    mw_array_release(&attention);
    mw_array_release(&mlp);
    *out = w.peak;
}
