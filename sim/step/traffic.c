/*
 * Which wires the tasks of a step use: see step_wires.c for what a wire is and
 * how much of it a task takes.
 *
 * What the stack hides of the gradient reduction runs beside the last passes of
 * its device, from the pass on from which they take as long as it does, and
 * what it hides of the parameter gather from the start of the step; so alone
 * they end in time and change nothing. Neither is a span.
 */
#include "sim/step/walk_int.h"

void mw_traffic_use(struct walk *w, mw_task_id task, int from, int to,
                    const double part[MW_WIRE_KINDS])
{
    for (int kind = 0; kind < MW_WIRE_KINDS; kind++) {
        mw_graph_use(w->t->graph, task, w->wire[from].out[kind], part[kind]);
        mw_graph_use(w->t->graph, task, w->wire[to].in[kind], part[kind]);
    }
}

/* Traffic over dp (and cp) that passes hide. */
static mw_task_id add_hidden(struct walk *w, int device, double time_s,
                             const double part[MW_WIRE_KINDS])
{
    struct mw_span span =
        mw_walk_span(w, device, MW_STREAM_DP, MW_SPAN_BUBBLE, "");
    mw_task_id id = mw_graph_task(w->t->graph, mw_graph_stream(w->t->graph),
                                  mw_time_from_s(time_s), w->t->spans.n);

    mw_array_push(&w->t->spans, span);
    mw_traffic_use(w, id, device, device, part);
    return id;
}

static mw_time slot_ps(const struct walk *w, int device, uint32_t i)
{
    const struct mw_slot *slot = &w->s->slot[i];
    int k = w->s->virtual_stage[device * w->s->n_chunks + slot->chunk];
    mw_time sum = 0;

    for (int phase = 0; phase < MW_PHASE_COUNT; phase++) {
        bool is_in = phase == MW_PHASE_F ? slot->pass == MW_PASS_F
                     : phase == MW_PHASE_W
                         ? slot->pass == MW_PASS_W || slot->pass == MW_PASS_BW
                         : slot->pass == MW_PASS_B || slot->pass == MW_PASS_BW;

        for (int lane = 0; is_in && lane < MW_LANE_COUNT; lane++) {
            sum += w->frame->vstage[k].ps[phase][lane] / w->s->n_parts;
        }
    }
    return sum;
}

/* The last slot from which on passes take as long as the hidden reduction. */
static uint32_t hidden_from(const struct walk *w, int device)
{
    mw_time ps = mw_time_from_s(w->frame->tail[device].hidden_reduce_s);
    uint32_t i = w->s->first[device + 1];

    while (i > w->s->first[device] && ps > 0) {
        i--;
        ps -= slot_ps(w, device, i);
    }
    return i;
}

/* An empty task, so that the reduction begins when the pass can. */
void mw_traffic_start_hidden(struct walk *w, int device)
{
    const struct mw_tail *tail = &w->frame->tail[device];
    struct mw_span span =
        mw_walk_span(w, device, MW_STREAM_COMPUTE, MW_SPAN_BUBBLE, "");
    mw_task_id begin = mw_walk_chain(w, device, 0, &span);

    w->hidden[device] =
        add_hidden(w, device, tail->hidden_reduce_s, tail->reduce_part);
    mw_graph_dep(w->t->graph, begin, w->hidden[device], 0);
}

/* Is there traffic of this kind beside that of passes? Else nothing that they
 * do to it can meet anything. */
static bool is_shared(const struct walk *w, enum mw_wire_kind kind)
{
    const struct mw_step_frame *f = w->frame;
    const struct mw_step_price *p = &f->price;
    const struct mw_group *grads[] = {&p->grad_group, &p->expert_group,
                                      &p->replica_group};

    for (int i = 0; i < 3; i++) {
        if (grads[i]->n_ranks > 1 && (i != 1 || p->layer[MW_UNIT_MOE] >= 0) &&
            (grads[i]->n_nodes > 1) == (kind == MW_WIRE_NIC)) {
            return true;
        }
    }
    for (int d = 0; d < w->s->n_stages; d++) {
        for (int e = 0; e < w->s->n_stages; e++) {
            bool crosses =
                mw_cost_stages_cross(p->layout, d, e, p->ctx->domain_gpus);

            if (d != e && crosses == (kind == MW_WIRE_NIC)) {
                return true;
            }
        }
    }
    return false;
}

static void fill_parts(struct walk *w)
{
    bool shared[MW_WIRE_KINDS];

    for (int kind = 0; kind < MW_WIRE_KINDS; kind++) {
        shared[kind] = is_shared(w, (enum mw_wire_kind)kind);
    }
    for (int k = 0; k < w->frame->n_virtual; k++) {
        for (int phase = 0; phase < MW_PHASE_COUNT; phase++) {
            for (int lane = 0; lane < MW_LANE_COUNT; lane++) {
                double *part = w->part[k].of[phase][lane];

                mw_wires_part(&w->frame->vstage[k], (enum mw_phase)phase,
                              (enum mw_lane)lane, part);
                for (int kind = 0; kind < MW_WIRE_KINDS; kind++) {
                    part[kind] = shared[kind] ? part[kind] : 0;
                }
            }
        }
    }
}

static void twin_part(struct walk *w)
{
    const struct mw_step_price *p = &w->frame->price;
    struct mw_group group = mw_step_holders_group(p, &p->holders);
    struct mw_wire_load load = {
        MW_ALL_REDUCE, w->frame->tail[p->holders.device[0]].embedding_bytes,
        &group};

    mw_wires_coll_part(p, &load, w->twin_part);
}

void mw_traffic_init(struct walk *w)
{
    size_t n = (size_t)w->s->n_stages;

    w->wire = mw_arena_alloc(&w->arena, n, sizeof *w->wire);
    w->part =
        mw_arena_alloc(&w->arena, (size_t)w->frame->n_virtual, sizeof *w->part);
    w->transfer_part = mw_arena_alloc(&w->arena, mw_walk_transfers(w),
                                      sizeof *w->transfer_part);
    w->hidden = mw_arena_alloc(&w->arena, n, sizeof *w->hidden);
    w->hidden_from = mw_arena_alloc(&w->arena, n, sizeof *w->hidden_from);
    for (int d = 0; d < w->s->n_stages; d++) {
        const struct mw_tail *tail = &w->frame->tail[d];

        for (int kind = 0; kind < MW_WIRE_KINDS; kind++) {
            w->wire[d].out[kind] = mw_graph_wire(w->t->graph);
            w->wire[d].in[kind] = mw_graph_wire(w->t->graph);
        }
        w->hidden[d] = NO_TASK;
        w->hidden_from[d] = hidden_from(w, d);
        if (tail->hidden_gather_s > 0) {
            add_hidden(w, d, tail->hidden_gather_s, tail->gather_part);
        }
    }
    fill_parts(w);
    if (w->frame->price.holders.n > 0) {
        twin_part(w);
    }
}
