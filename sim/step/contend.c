/*
 * What communication takes from the computation beside it. A collective of the
 * compute fabric is a kernel: its blocks hold multiprocessors, and it reads and
 * writes the device's memory. Of S multiprocessors k, and of a bandwidth B as
 * much as d bytes a second, are not there for the work that it runs beside:
 *
 *   products, attention    take  S / (S - k)  of their time
 *   the rest               take  B / (B - d)
 *
 * With g the mean of the two by the time that the work has of each, less 1, a
 * second of work done beside takes 1 + g. Of a transfer t beside work W of
 * which a part o can be hidden,
 *
 *   hidden   h = min(o t, o W (1 + g))
 *   shown    t - h
 *   slowed   h g / (1 + g)       the work done meanwhile, h / (1 + g), x g
 *
 * so that work and transfer never take less than the longer nor more than both.
 * k: NCCL's channels (a block each), or what the stack's software profile says
 * of its own kernels. Bytes of n ranks, S the whole buffer: a gather reads what
 * it sends and writes what it gets, 2 (n-1)/n S; a reduction reads what came,
 * and its own part, and writes what comes, 3 (n-1)/n S; an all-reduce is both.
 *
 * Left out: sums in switches, which read less; copies to the host's memory, by
 * engines of their own; transfers between stages; that a kernel of whole waves
 * loses more, or nothing, with the multiprocessors that it loses.
 */
#include "sim/step/step_int.h"

#include <math.h>

/* No kernel of communication takes more than half of a device. */
static const double most = 0.5;

static double times_read_and_written(enum mw_coll_op op)
{
    switch (op) {
    case MW_ALL_REDUCE:
        return 5;
    case MW_REDUCE_SCATTER:
    case MW_REDUCE:
        return 3;
    case MW_ALL_GATHER:
    case MW_ALL_TO_ALL:
    case MW_BROADCAST:
    case MW_SEND_RECV:
    case MW_COLL_OP_COUNT:
        break;
    }
    return 2;
}

double mw_step_coll_sms(const struct mw_step_price *p, enum mw_coll_op op,
                        enum mw_dim dim, const struct mw_group *group)
{
    const struct mw_stack *stack = &p->ctx->stack;
    double sms = stack->comm_sms;

    if (dim == MW_DIM_EP) {
        sms = mw_step_sends_once(p) ? stack->ep_sms : MW_SMS_NCCL;
    } else if (dim == MW_DIM_TP && op == MW_ALL_GATHER) {
        sms = stack->tp_gather_sms;
    } else if (dim == MW_DIM_TP && op == MW_REDUCE_SCATTER) {
        sms = stack->tp_reduce_sms;
    }
    return sms < 0 ? mw_cost_coll_sms(p->ctx, op, group) : sms;
}

void mw_step_load_add(const struct mw_step_price *p, enum mw_coll_op op,
                      enum mw_dim dim, double bytes,
                      const struct mw_group *group, struct mw_comm_load *load)
{
    double n = group->n_ranks;

    if (!p->ctx->stack.contends || n <= 1 || !(bytes > 0)) {
        return;
    }
    double part = op == MW_SEND_RECV ? 1 : (n - 1) / n;
    double touched = times_read_and_written(op) * part * bytes;

    load->bytes += touched;
    load->sm_bytes += touched * mw_step_coll_sms(p, op, dim, group);
}

double mw_step_growth(const struct mw_step_price *p,
                      const struct mw_comm_load *load, double matrix_part)
{
    const struct mw_gpu *gpu = p->ctx->gpu;

    if (!(load->bytes > 0) || !(load->time_s > 0)) {
        return 0;
    }
    double bw_Bps = gpu->mem_bw_Bps * gpu->mem_efficiency;
    double sms = gpu->n_sms > 0
                     ? fmin(load->sm_bytes / load->bytes / gpu->n_sms, most)
                     : 0;
    double bw = fmin(load->bytes / load->time_s / bw_Bps, most);

    return matrix_part / (1 - sms) + (1 - matrix_part) / (1 - bw) - 1;
}

double mw_step_work_growth(const struct mw_step_price *p,
                           const struct mw_comm_load *load, double all_s,
                           double compute_s, double matrix_s)
{
    if (!(compute_s > 0) || !(all_s > 0)) {
        return 0;
    }
    return mw_step_growth(p, load, fmin(matrix_s / compute_s, 1)) * compute_s /
           all_s;
}

struct mw_overlapped mw_step_beside(double transfer_s, double overlap,
                                    double window_s, double growth)
{
    double shown_s =
        mw_step_exposed_s(transfer_s, overlap, window_s * (1 + growth));
    double hidden_s = transfer_s - shown_s;

    return (struct mw_overlapped){shown_s, hidden_s,
                                  hidden_s * growth / (1 + growth)};
}
