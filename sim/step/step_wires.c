/*
 * What the traffic of a step does to wires. A rank has its part of the node's
 * NICs and its links inside the scale-up domain, each with two directions;
 * collectives are priced as if all groups of their kind ran at once (sharers in
 * mw_group), so traffic of the same kind is not counted again here. What is
 * left is traffic of different kinds on one rank: gradients being reduced while
 * activations go to the next stage, experts' all-to-alls beside both.
 *
 *   part of a wire = seconds at which it is full / seconds of the task
 *
 * A transfer takes the sender's way out and the receiver's way in, a collective
 * both of its rank. A task of compute carries what the stack hides behind it.
 * Left out: links inside the node under a group that spans nodes; switches.
 */
#include "sim/step/step_int.h"

#include <math.h>

static enum mw_wire_kind kind_of(const struct mw_group *g)
{
    return g->n_nodes > 1 ? MW_WIRE_NIC : MW_WIRE_LINK;
}

static double part_of(const struct mw_step_price *p,
                      const struct mw_wire_load *load)
{
    return load->group->n_ranks > 1 && load->bytes > 0
               ? mw_cost_coll_wire_part(p->ctx, load->op, load->bytes,
                                        load->group)
               : 0;
}

void mw_wires_add(const struct mw_step_price *p,
                  const struct mw_wire_load *load, double time_s,
                  double row[MW_WIRE_KINDS])
{
    if (time_s > 0) {
        row[kind_of(load->group)] += time_s * part_of(p, load);
    }
}

/* Spreads hidden seconds over the compute of phases first to last. */
static void add_hidden(struct mw_step_price *p, enum mw_step_unit unit,
                       enum mw_phase first, enum mw_phase last, double full_s)
{
    enum mw_wire_kind kind = kind_of(&p->grad_group);
    double sum = 0;

    for (int phase = (int)first; phase <= (int)last; phase++) {
        sum += p->cost[unit].phase[phase].s[MW_LANE_COMPUTE];
    }
    for (int phase = (int)first; phase <= (int)last && sum > 0; phase++) {
        p->wires->s[unit][phase][MW_LANE_COMPUTE][kind] +=
            full_s * p->cost[unit].phase[phase].s[MW_LANE_COMPUTE] / sum;
    }
}

void mw_wires_add_zero(struct mw_step_price *p, enum mw_step_unit unit,
                       double gather_s, double again_s, double scatter_s)
{
    enum mw_wire_kind kind = kind_of(&p->grad_group);
    const struct mw_phase_cost *phase = p->cost[unit].phase;
    struct mw_wire_load load = {MW_ALL_GATHER,
                                mw_unit_dense_bytes(p, &p->size[unit]) +
                                    mw_unit_expert_bytes(p, &p->size[unit]),
                                &p->grad_group};
    double part = part_of(p, &load);
    double shown_f_s = phase[MW_PHASE_F].s[MW_LANE_DP];
    double shown_w_s = phase[MW_PHASE_W].s[MW_LANE_DP];

    p->wires->s[unit][MW_PHASE_F][MW_LANE_DP][kind] += part * shown_f_s;
    p->wires->s[unit][MW_PHASE_W][MW_LANE_DP][kind] += part * shown_w_s;
    add_hidden(p, unit, MW_PHASE_F, MW_PHASE_F, part * (gather_s - shown_f_s));
    add_hidden(p, unit, MW_PHASE_R, MW_PHASE_W,
               part * (again_s + scatter_s - shown_w_s));
}

void mw_wires_part(const struct mw_step_frame *f, const struct mw_vstage *v,
                   enum mw_phase phase, enum mw_lane lane,
                   double out[MW_WIRE_KINDS])
{
    double lane_s = mw_time_to_s(v->ps[phase][lane]);

    for (int kind = 0; kind < MW_WIRE_KINDS; kind++) {
        double full_s = 0;

        for (int unit = 0; unit < MW_UNIT_COUNT; unit++) {
            full_s += v->n_units[unit] * f->wires.s[unit][phase][lane][kind];
        }
        out[kind] = full_s > 0 && lane_s > 0 ? fmin(full_s / lane_s, 1) : 0;
    }
}

void mw_wires_coll_part(const struct mw_step_price *p,
                        const struct mw_wire_load *load,
                        double out[MW_WIRE_KINDS])
{
    out[MW_WIRE_NIC] = out[MW_WIRE_LINK] = 0;
    out[kind_of(load->group)] = part_of(p, load);
}

void mw_wires_transfer_part(const struct mw_step_price *p, int from, int to,
                            double out[MW_WIRE_KINDS])
{
    int per_node = p->ctx->domain_gpus;
    bool crosses = mw_cost_stages_cross(p->layout, from, to, per_node);
    struct mw_group pair = {2, crosses ? 2 : 1, crosses ? 1 : 2,
                            mw_cost_pp_sharers(p->layout, per_node)};
    struct mw_wire_load load = {MW_SEND_RECV, mw_boundary_bytes(&p->work),
                                &pair};

    if (p->ctx->stack.scatters_boundary && !p->layout->sp) {
        load.bytes /= p->layout->tp;
    }
    mw_wires_coll_part(p, &load, out);
}
