/*
 * Shared experts beside exchanges (layout: overlap_shared_experts). While
 * tokens travel to the routed experts, the shared ones compute their first
 * product, and while results come back their second; backward the gradients of
 * the second go on while those of results travel, of the first while those of
 * tokens do (Megatron-LM, core/transformer/moe/shared_experts.py and
 * token_dispatcher.py, MoEAlltoAllTokenDispatcher):
 *
 *   hidden = sum over both exchanges of min(exchange, products beside it)
 *
 * A backward pass that is not split has the weight gradients in the same
 * window. What is left is hidden by the rest of the pass as far as the stack
 * hides exchanges, of which what stood beside shared experts is no part.
 *
 * Left out: multiprocessors that the exchange takes from the products; shared
 * experts' collectives of tensor parallelism, which stay where they are.
 */
#include "sim/step/shared_experts.h"

#include "sim/pipe/schedule.h"

#include <math.h>

void mw_step_note_beside(const struct mw_op *op, double time_s,
                         struct mw_beside_s *out)
{
    if (op->beside != MW_BESIDE_NONE) {
        out->work_s[op->beside == MW_BESIDE_COMBINE] += time_s;
    } else if (op->kind == MW_OP_COLL && op->dim == MW_DIM_EP &&
               op->coll == MW_ALL_TO_ALL) {
        out->exchange_s[op->is_return == (op->pass == MW_PASS_F)] += time_s;
    }
}

bool mw_step_splits_backward(const struct mw_layout *layout)
{
    const struct mw_sched_kind *kind =
        layout->pp > 1 ? mw_schedule_kind_find(layout->schedule) : NULL;

    return kind != NULL && kind->is_split;
}

static double hidden_s(const struct mw_step_price *p, enum mw_phase phase,
                       const struct mw_beside_s beside[MW_PHASE_COUNT])
{
    bool has_w = phase == MW_PHASE_B && !mw_step_splits_backward(p->layout);
    double sum = 0;

    for (int i = 0; i < 2 && p->layout->overlap_shared_experts; i++) {
        sum += fmin(beside[phase].exchange_s[i],
                    beside[phase].work_s[i] +
                        (has_w ? beside[MW_PHASE_W].work_s[i] : 0));
    }
    return sum;
}

double mw_step_hide_beside(struct mw_step_price *p, enum mw_step_unit unit,
                           enum mw_phase phase,
                           const struct mw_beside_s beside[MW_PHASE_COUNT])
{
    double s = hidden_s(p, phase, beside);

    if (s > 0) {
        mw_step_move_behind(p, unit, phase, MW_LANE_EP, phase, s);
    }
    return s;
}

void mw_step_explain_beside(const struct mw_step_price *p, enum mw_phase phase,
                            const struct mw_beside_s beside[MW_PHASE_COUNT],
                            struct mw_explain *explain)
{
    double s = hidden_s(p, phase, beside);

    if (s > 0) {
        mw_explain_child(explain, "exchanges behind shared experts", -s,
                         "sum of min(exchange, products beside it), taken off",
                         NULL);
    }
}

/* A lane's collectives of which `hidden_s` run beside the compute of a phase,
 * and so on the wires. */
void mw_step_move_behind(struct mw_step_price *p, enum mw_step_unit unit,
                         enum mw_phase phase, enum mw_lane lane,
                         enum mw_phase beside, double hidden_s)
{
    double *s = &p->cost[unit].phase[phase].s[lane];
    double part = *s > 0 ? hidden_s / *s : 0;

    *s -= hidden_s;
    for (int kind = 0; p->wires != NULL && kind < MW_WIRE_KINDS; kind++) {
        double moved = part * p->wires->s[unit][phase][lane][kind];

        p->wires->s[unit][phase][lane][kind] -= moved;
        p->wires->s[unit][beside][MW_LANE_COMPUTE][kind] += moved;
    }
}
