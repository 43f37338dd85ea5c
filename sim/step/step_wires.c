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
                       enum mw_phase first, enum mw_phase last,
                       enum mw_wire_kind kind, double full_s)
{
    double sum = 0;

    for (int phase = (int)first; phase <= (int)last; phase++) {
        sum += p->cost[unit].phase[phase].s[MW_LANE_COMPUTE];
    }
    for (int phase = (int)first; phase <= (int)last && sum > 0; phase++) {
        p->wires->s[unit][phase][MW_LANE_COMPUTE][kind] +=
            full_s * p->cost[unit].phase[phase].s[MW_LANE_COMPUTE] / sum;
    }
}

/* Seconds of some collectives, and for which of them each wire is full. */
struct filled {
    double time_s, wire_s[MW_WIRE_KINDS];
};

/* One after another, of load.bytes each. */
static void fill(const struct mw_step_price *p, const struct mw_wire_load *load,
                 double pieces, struct filled *sum)
{
    double time_s =
        pieces *
        mw_cost_coll(p->ctx, load->op, load->bytes, load->group, NULL).time_s;

    sum->time_s += time_s;
    mw_wires_add(p, load, time_s, sum->wire_s);
}

static void fill_colls(const struct mw_step_price *p,
                       const struct mw_zero_colls *colls,
                       enum mw_zero_when when, struct filled *sum)
{
    for (int i = 0; i < colls->n; i++) {
        const struct mw_zero_coll *c = &colls->v[i];
        struct mw_wire_load load = {c->op, c->bytes / c->pieces, &c->group};

        if (c->when == when) {
            fill(p, &load, c->pieces, sum);
        }
    }
}

static void fill_replicas(const struct mw_step_price *p, double dense,
                          double expert, double pieces, struct filled *sum)
{
    struct mw_wire_load load = {
        MW_ALL_REDUCE, mw_step_replicas_bytes(p, dense, expert) / pieces,
        &p->replica_group};

    if (load.bytes > 0) {
        fill(p, &load, pieces, sum);
    }
}

/* shown_s of them stand in the DP lane of `phase`, the rest beside the compute
 * of the phases from `first` on. */
static void lay(struct mw_step_price *p, enum mw_step_unit unit,
                enum mw_phase first, enum mw_phase phase,
                const struct filled *sum)
{
    double shown_s = p->cost[unit].phase[phase].s[MW_LANE_DP];
    double shown = mw_layout_wraps(p->layout) ? 1 /* until mw_wires_part */
                   : sum->time_s > 0          ? shown_s / sum->time_s
                                              : 0;

    for (int kind = 0; kind < MW_WIRE_KINDS; kind++) {
        p->wires->s[unit][phase][MW_LANE_DP][kind] += shown * sum->wire_s[kind];
        add_hidden(p, unit, first, phase, (enum mw_wire_kind)kind,
                   (1 - shown) * sum->wire_s[kind]);
    }
}

void mw_wires_add_zero(struct mw_step_price *p, enum mw_step_unit unit,
                       const struct mw_zero_colls *colls)
{
    const struct mw_unit_size *size = &p->size[unit];
    struct filled forward = {0}, backward = {0};

    fill_colls(p, colls, MW_ZERO_FORWARD, &forward);
    fill_colls(p, colls, MW_ZERO_BACKWARD, &backward);
    fill_colls(p, colls, MW_ZERO_SCATTER, &backward);
    fill_replicas(p, size->dense_params + mw_step_copy_params(p, unit),
                  size->expert_params, 1, &backward);
    lay(p, unit, MW_PHASE_F, MW_PHASE_F, &forward);
    lay(p, unit, MW_PHASE_R, MW_PHASE_W, &backward);
}

static void set_part(double all_s, const struct filled *sum,
                     double part[MW_WIRE_KINDS])
{
    for (int kind = 0; kind < MW_WIRE_KINDS && all_s > 0; kind++) {
        part[kind] = fmin(sum->wire_s[kind] / all_s, 1);
    }
}

static void fill_tail(const struct mw_step_price *p, int device,
                      const int n_units[MW_UNIT_COUNT], bool has_tied_twin,
                      struct mw_tail *tail)
{
    const struct mw_group groups[] = {
        mw_step_sharers(p, mw_step_grad_group(p, false, device), device),
        mw_step_sharers(p, mw_step_grad_group(p, true, device), device)};
    const struct mw_share share =
        mw_share_of(p, device, n_units, has_tied_twin, groups);
    double copies = mw_step_copies_on(p, device);
    struct filled reduce = {0}, gather = {0};
    struct mw_zero_colls colls;

    if (p->layout->zero < 2) {
        mw_zero_reduce_colls(p, share.params, share.buckets, groups, &colls);
        fill_colls(p, &colls, MW_ZERO_SCATTER, &reduce);
        fill_replicas(p, share.params[0] * copies, share.params[1] * copies,
                      share.buckets[0], &reduce);
    }
    for (int i = 0; i < 2; i++) {
        struct mw_wire_load load = {
            MW_ALL_GATHER, share.params[i] * p->weight_bytes / share.buckets[i],
            &groups[i]};

        fill(p, &load, share.buckets[i], &gather);
    }
    set_part(mw_time_to_s(tail->reduce_ps) - tail->slowed_reduce_s +
                 tail->hidden_reduce_s,
             &reduce, tail->reduce_part);
    set_part(mw_time_to_s(tail->gather_ps) - tail->slowed_gather_s +
                 tail->hidden_gather_s,
             &gather, tail->gather_part);
}

void mw_wires_tail(const struct mw_step_price *p, int device,
                   const int n_units[MW_UNIT_COUNT], bool has_tied_twin,
                   struct mw_tail *tail)
{
    if (p->wires != NULL) {
        fill_tail(p, device, n_units, has_tied_twin, tail);
    }
}

static double full_s_of(const struct mw_vstage *v, enum mw_phase phase,
                        enum mw_lane lane, int kind)
{
    double sum = 0;

    for (int unit = 0; unit < MW_UNIT_COUNT; unit++) {
        sum += v->n_units[unit] * v->price->wires->s[unit][phase][lane][kind];
    }
    return sum;
}

/* Gathers and scatters of units of layers stand whole in the DP lane: the part
 * that the stage's work hides goes to its compute. */
static double moved_s(const struct mw_vstage *v, enum mw_phase phase,
                      enum mw_lane lane, int kind)
{
    bool is_back = phase != MW_PHASE_F;
    enum mw_phase last = is_back ? MW_PHASE_W : MW_PHASE_F;
    double hidden_s =
        (1 - v->wrap_part[is_back]) * full_s_of(v, last, MW_LANE_DP, kind);
    mw_time all_ps = 0;

    if (lane == MW_LANE_DP) {
        return phase == last ? -hidden_s : 0;
    }
    for (int i = is_back ? MW_PHASE_R : MW_PHASE_F; i <= (int)last; i++) {
        all_ps += v->ps[i][MW_LANE_COMPUTE];
    }
    return lane == MW_LANE_COMPUTE && all_ps > 0
               ? hidden_s * mw_time_to_s(v->ps[phase][MW_LANE_COMPUTE]) /
                     mw_time_to_s(all_ps)
               : 0;
}

void mw_wires_part(const struct mw_vstage *v, enum mw_phase phase,
                   enum mw_lane lane, double out[MW_WIRE_KINDS])
{
    double lane_s = mw_time_to_s(v->ps[phase][lane]);
    bool wraps = mw_layout_wraps(v->price->layout);

    for (int kind = 0; kind < MW_WIRE_KINDS; kind++) {
        double full_s = full_s_of(v, phase, lane, kind) +
                        (wraps ? moved_s(v, phase, lane, kind) : 0);

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
                            int n_states, double out[MW_WIRE_KINDS])
{
    struct mw_group pair = mw_step_pair(p, from, to);
    struct mw_wire_load load = {MW_SEND_RECV,
                                n_states * mw_boundary_bytes(&p->work), &pair};

    if (p->ctx->stack.scatters_boundary && !p->layout->sp) {
        load.bytes /= p->layout->tp;
    }
    mw_wires_coll_part(p, &load, out);
}
