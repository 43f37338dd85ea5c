/*
 * The task graph of a step: the schedule's lists walked device by device.
 *
 *   compute  |F0|  |F1|  |R B W  |        a pass is a chain: compute, then the
 *   tp       |  |tp|  |tp|        |tp|    collectives that block it
 *   pp          +--> transfer of F0 ...   starts when its pass has ended, on
 *                                         the sender's stream, and gates the
 *                                         receiver's pass
 *
 * A transfer is free for the sender. Autograd sends the gradient of a fused BW
 * when all of it is done; our executor, which is what runs on a CPU, sends it
 * before W. After the last pass: the tail (vstage.c). Passes that a schedule
 * overlaps as a pair run one after the other here.
 *
 * Tasks share the NICs and links of their ranks (step_wires.c). What the stack
 * hides of the gradient reduction and the parameter gather runs beside the last
 * backward and the first forward passes and is no span.
 */
#include "sim/step/walk_int.h"

const enum mw_stream_kind mw_walk_stream_of_lane[MW_LANE_COUNT] = {
    MW_STREAM_COMPUTE, MW_STREAM_TP,      MW_STREAM_CP,  MW_STREAM_EP,
    MW_STREAM_DP,      MW_STREAM_OFFLOAD, MW_STREAM_HOST};
static const enum mw_span_kind kind_of_lane[MW_LANE_COUNT] = {
    MW_SPAN_F,  MW_SPAN_TP,      MW_SPAN_CP,  MW_SPAN_EP,
    MW_SPAN_DP, MW_SPAN_OFFLOAD, MW_SPAN_HOST};
static const enum mw_span_kind kind_of_phase[MW_PHASE_COUNT] = {
    MW_SPAN_F, MW_SPAN_RECOMPUTE, MW_SPAN_B, MW_SPAN_W};

static size_t key_of(const struct walk *w, int device, int chunk, int item)
{
    return ((size_t)device * (size_t)w->s->n_chunks + (size_t)chunk) *
               (size_t)mw_schedule_items(w->s) +
           (size_t)item;
}

mw_task_id mw_walk_chain(struct walk *w, int device, mw_time ps,
                         const struct mw_span *span)
{
    mw_task_id id = mw_graph_task(w->t->graph, w->stream[device][span->stream],
                                  ps, w->t->spans.n);

    mw_array_push(&w->t->spans, *span);
    if (w->last[device] != NO_TASK) {
        mw_graph_dep(w->t->graph, w->last[device], id, 0);
    }
    w->last[device] = id;
    return id;
}

struct mw_span mw_walk_span(const struct walk *w, int device,
                            enum mw_stream_kind stream, enum mw_span_kind kind,
                            const char *name)
{
    struct mw_coord at = {0, 0, 0, device};

    return (struct mw_span){.rank = mw_layout_rank(w->frame->price.layout, at),
                            .stream = (uint16_t)stream,
                            .kind = (uint16_t)kind,
                            .microbatch = -1,
                            .stage = -1,
                            .name = mw_timeline_name(w->t->timeline, name)};
}

/* ---- passes ----------------------------------------------------------------
 */
/* A duration of a slot, of which draws across ranks make more or less. */
static mw_time paced_ps(const struct walk *w, const struct mw_slot *slot,
                        int lane, mw_time ps)
{
    double pace =
        w->t->slot_pace != NULL ? w->t->slot_pace[slot - w->s->slot] : 1;
    bool is_own = lane == MW_LANE_COMPUTE || lane == MW_LANE_HOST;

    return is_own && pace != 1 ? mw_time_from_s(mw_time_to_s(ps) * pace) : ps;
}

/* One phase of a pass: compute, then what blocks it. The compute task is added
 * even when empty, so that every pass has one. */
static void add_phase(struct walk *w, int device, const struct mw_slot *slot,
                      enum mw_phase phase)
{
    const struct mw_schedule *s = w->s;
    int k = s->virtual_stage[device * s->n_chunks + slot->chunk];
    const struct mw_vstage *v = &w->frame->vstage[k];

    for (int lane = 0; lane < MW_LANE_COUNT; lane++) {
        enum mw_span_kind kind =
            lane == MW_LANE_COMPUTE ? kind_of_phase[phase] : kind_of_lane[lane];
        mw_time ps = paced_ps(w, slot, lane, v->ps[phase][lane] / s->n_parts);
        struct mw_span span = {0};

        if (ps == 0 && (lane != MW_LANE_COMPUTE || phase == MW_PHASE_R)) {
            continue;
        }
        span = mw_walk_span(w, device, mw_walk_stream_of_lane[lane], kind,
                            mw_span_kind_name(kind));
        span.microbatch = slot->microbatch / s->n_parts;
        span.stage = k;
        span.bytes = v->bytes[phase][lane] / s->n_parts;
        span.flops = lane == MW_LANE_COMPUTE ? v->flops[phase] / s->n_parts : 0;
        mw_task_id task = mw_walk_chain(w, device, ps, &span);

        if (w->wire != NULL) {
            mw_traffic_use(w, task, device, device, w->part[k].of[phase][lane]);
        }
    }
}

/* Device that takes the slot's result, or -1. */
int mw_walk_receiver(const struct walk *w, int device,
                     const struct mw_slot *slot)
{
    const struct mw_schedule *s = w->s;
    int at = device * s->n_chunks + slot->chunk;
    int next = s->virtual_stage[at] + (slot->pass == MW_PASS_F ? 1 : -1);

    if (slot->pass == MW_PASS_W || next < 0 || next >= s->route_len) {
        return -1;
    }
    return s->device[s->route[at] * s->route_len + next];
}

int mw_walk_states(const struct walk *w, int device, const struct mw_slot *slot)
{
    int k = w->s->virtual_stage[device * w->s->n_chunks + slot->chunk];

    return mw_step_states(&w->frame->price,
                          slot->pass == MW_PASS_F ? k : k - 1);
}

size_t mw_walk_transfers(const struct walk *w)
{
    size_t n = (size_t)w->s->n_stages;

    return (w->frame->price.layout->mtp_ahead > 0 ? 2 : 1) * n * n;
}

size_t mw_walk_transfer_at(const struct walk *w, int from, int to, int n_states)
{
    size_t n = (size_t)w->s->n_stages;

    return ((size_t)(n_states > 1) * n + (size_t)from) * n + (size_t)to;
}

mw_time mw_walk_transfer_ps(struct walk *w, int from, int to, int n_states)
{
    size_t at = mw_walk_transfer_at(w, from, to, n_states);
    mw_time *known = &w->transfer_ps[at];

    if (*known < 0) {
        if (w->wire != NULL) {
            mw_wires_transfer_part(&w->frame->price, from, to, n_states,
                                   w->transfer_part[at]);
        }
        *known = mw_step_transfer_ps(mw_step_frame_price(w->frame, to), from,
                                     to, n_states);
    }
    return *known / w->s->n_parts;
}

static void add_transfer(struct walk *w, int device, const struct mw_slot *slot,
                         struct slot_tasks *tasks)
{
    int to = mw_walk_receiver(w, device, slot);
    int n_states = mw_walk_states(w, device, slot);
    struct mw_span span;

    tasks->transfer = NO_TASK;
    if (to < 0 || to == device) {
        return;
    }
    span = mw_walk_span(w, to, MW_STREAM_PP, MW_SPAN_PP,
                        slot->pass == MW_PASS_F ? "receive F" : "receive B");
    span.microbatch = slot->microbatch / w->s->n_parts;
    span.stage = w->s->virtual_stage[device * w->s->n_chunks + slot->chunk] +
                 (slot->pass == MW_PASS_F ? 1 : -1);
    span.bytes =
        n_states * mw_boundary_bytes(&w->frame->price.work) / w->s->n_parts;
    tasks->transfer = mw_graph_task(
        w->t->graph, w->stream[device][MW_STREAM_PP],
        mw_walk_transfer_ps(w, device, to, n_states), w->t->spans.n);
    mw_array_push(&w->t->spans, span);
    mw_graph_dep(w->t->graph, tasks->ready, tasks->transfer, 0);
    if (w->wire != NULL) {
        mw_traffic_use(
            w, tasks->transfer, device, to,
            w->transfer_part[mw_walk_transfer_at(w, device, to, n_states)]);
    }
}

static void add_slot(struct walk *w, int device, uint32_t i)
{
    const struct mw_slot *slot = &w->s->slot[i];
    struct slot_tasks *tasks = &w->slots[i];
    size_t key = key_of(w, device, slot->chunk, slot->microbatch);

    tasks->first = (mw_task_id)mw_graph_size(w->t->graph);
    if (w->wire != NULL && i == w->hidden_from[device]) {
        mw_traffic_start_hidden(w, device);
    }
    if (slot->pass == MW_PASS_F) {
        add_phase(w, device, slot, MW_PHASE_F);
        w->f_slot[key] = i;
    }
    if (slot->pass == MW_PASS_B || slot->pass == MW_PASS_BW) {
        add_phase(w, device, slot, MW_PHASE_R);
        add_phase(w, device, slot, MW_PHASE_B);
        w->b_slot[key] = i;
    }
    tasks->ready = w->last[device];
    if (w->sends_early) {
        add_transfer(w, device, slot, tasks);
    }
    if (slot->pass == MW_PASS_W || slot->pass == MW_PASS_BW) {
        add_phase(w, device, slot, MW_PHASE_W);
    }
    tasks->last = w->last[device];
    if (!w->sends_early) {
        tasks->ready = tasks->last;
        add_transfer(w, device, slot, tasks);
    }
}

/* The pass waits for its predecessor on the route: its transfer, or its end
 * where both are on one device. */
static void add_deps(struct walk *w, int device, uint32_t i)
{
    const struct mw_schedule *s = w->s;
    const struct mw_slot *slot = &s->slot[i];
    int at = device * s->n_chunks + slot->chunk;
    bool is_f = slot->pass == MW_PASS_F;
    int from = s->virtual_stage[at] + (is_f ? -1 : 1);

    if (slot->pass == MW_PASS_W || from < 0 || from >= s->route_len) {
        return;
    }
    int place = s->route[at] * s->route_len + from;
    size_t key = key_of(w, s->device[place], s->chunk[place], slot->microbatch);
    const struct slot_tasks *source =
        &w->slots[is_f ? w->f_slot[key] : w->b_slot[key]];

    mw_graph_dep(w->t->graph,
                 source->transfer != NO_TASK ? source->transfer : source->ready,
                 w->slots[i].first, 0);
}

/* ---- tail ------------------------------------------------------------------
 */
static void add_tail_task(struct walk *w, int device,
                          enum mw_stream_kind stream, enum mw_span_kind kind,
                          const char *name, mw_time ps, double bytes)
{
    struct mw_span span = mw_walk_span(w, device, stream, kind, name);

    span.bytes = bytes;
    if (ps > 0) {
        mw_walk_chain(w, device, ps, &span);
    }
}

/* One task on all devices that hold the embedding; each gets a span. A ring:
 * each sends to the next one. */
static void add_holders_reduction(struct walk *w)
{
    const struct mw_holders *h = &w->frame->price.holders;
    int a = h->device[0];

    if (h->n == 0 || w->frame->tail[a].embedding_ps == 0) {
        return;
    }
    const struct mw_tail *tail = &w->frame->tail[a];

    add_tail_task(w, a, MW_STREAM_PP, MW_SPAN_PP, "tied gradient",
                  tail->embedding_ps, tail->embedding_bytes);
    w->t->n_held = h->n;
    for (int i = 0; i < h->n; i++) {
        int d = h->device[i];

        if (i > 0) {
            mw_graph_also_on(w->t->graph, w->last[a],
                             w->stream[d][MW_STREAM_PP]);
            if (w->last[d] != NO_TASK) {
                mw_graph_dep(w->t->graph, w->last[d], w->last[a], 0);
            }
            w->last[d] = w->last[a];
        }
        if (w->wire != NULL) {
            mw_traffic_use(w, w->last[a], d, h->device[(i + 1) % h->n],
                           w->twin_part);
        }
        w->t->held_rank[i] =
            mw_layout_rank(w->frame->price.layout, (struct mw_coord){.pp = d});
    }
    w->t->held_task = w->last[a];
}

/* Collectives over parameters, on the wires of their groups. */
static void use_for_tail(struct walk *w, int device, mw_time ps,
                         const double part[MW_WIRE_KINDS])
{
    if (ps > 0 && w->wire != NULL) {
        mw_traffic_use(w, w->last[device], device, device, part);
    }
}

static void add_reduction(struct walk *w, int device)
{
    const struct mw_tail *tail = &w->frame->tail[device];

    add_tail_task(w, device, MW_STREAM_DP, MW_SPAN_DP, "reduce gradients",
                  tail->reduce_ps, tail->reduce_bytes);
    use_for_tail(w, device, tail->reduce_ps, tail->reduce_part);
    if (w->wire != NULL && w->hidden[device] != NO_TASK &&
        tail->reduce_ps > 0) {
        mw_graph_dep(w->t->graph, w->hidden[device], w->last[device], 0);
    }
}

static void add_tails(struct walk *w)
{
    const struct mw_tail *tail = w->frame->tail;

    add_holders_reduction(w);
    for (int d = 0; d < w->s->n_stages; d++) {
        add_reduction(w, d);
        add_tail_task(w, d, MW_STREAM_TP, MW_SPAN_TP, "shared gradients",
                      tail[d].shared_ps, tail[d].shared_bytes);
        add_tail_task(w, d, MW_STREAM_COMPUTE, MW_SPAN_OPTIMIZER, "optimizer",
                      tail[d].optimizer_ps, 0);
        add_tail_task(w, d, MW_STREAM_OFFLOAD, MW_SPAN_OFFLOAD,
                      "optimizer on the host", tail[d].offload_ps, 0);
        add_tail_task(w, d, MW_STREAM_DP, MW_SPAN_DP, "gather parameters",
                      tail[d].gather_ps, tail[d].gather_bytes);
        use_for_tail(w, d, tail[d].gather_ps, tail[d].gather_part);
    }
}

/* ---- whole ------------------------------------------------------------------
 */
static bool has_w_passes(const struct mw_schedule *s)
{
    for (uint32_t i = 0; i < s->first[s->n_stages]; i++) {
        if (s->slot[i].pass == MW_PASS_W) {
            return true;
        }
    }
    return false;
}

void mw_walk_init(struct walk *w, struct mw_step_tasks *t,
                  const struct mw_step_frame *frame,
                  const struct mw_schedule *s)
{
    size_t n = (size_t)s->n_stages;
    size_t n_keys = n * (size_t)s->n_chunks * (size_t)mw_schedule_items(s);

    *w = (struct walk){.t = t, .frame = frame, .s = s};
    mw_arena_init(&w->arena);
    w->stream = mw_arena_alloc(&w->arena, n, sizeof *w->stream);
    w->last = mw_arena_alloc(&w->arena, n, sizeof *w->last);
    w->slots = mw_arena_alloc(&w->arena, s->first[n], sizeof *w->slots);
    w->f_slot = mw_arena_alloc(&w->arena, n_keys, sizeof *w->f_slot);
    w->b_slot = mw_arena_alloc(&w->arena, n_keys, sizeof *w->b_slot);
    size_t n_ways = mw_walk_transfers(w);

    w->transfer_ps = mw_arena_alloc(&w->arena, n_ways, sizeof *w->transfer_ps);
    for (size_t i = 0; i < n_ways; i++) {
        w->transfer_ps[i] = -1;
    }
    for (size_t d = 0; d < n; d++) {
        w->last[d] = NO_TASK;
        for (int stream = 0; stream < MW_STREAM_COUNT; stream++) {
            w->stream[d][stream] = mw_graph_stream(t->graph);
        }
    }
    w->sends_early = mw_step_sends_early(&frame->price, has_w_passes(s));
    t->held_task = NO_TASK;
    if (frame->price.wires != NULL && !t->no_sharing && !s->is_forward_only) {
        mw_traffic_init(w);
    }
}

void mw_walk_release(struct walk *w)
{
    mw_arena_release(&w->arena);
}

void mw_step_tasks_build(struct mw_step_tasks *t,
                         const struct mw_step_frame *frame,
                         const struct mw_schedule *s)
{
    struct walk w;

    mw_walk_init(&w, t, frame, s);
    for (int d = 0; d < s->n_stages; d++) {
        for (uint32_t i = s->first[d]; i < s->first[d + 1]; i++) {
            add_slot(&w, d, i);
        }
    }
    for (int d = 0; d < s->n_stages; d++) {
        for (uint32_t i = s->first[d]; i < s->first[d + 1]; i++) {
            add_deps(&w, d, i);
        }
    }
    if (!s->is_forward_only) {
        add_tails(&w);
    }
    mw_walk_release(&w);
}
