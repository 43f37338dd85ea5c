/*
 * Every rank of a step in one task graph.
 *
 *   stage d, place j    j = tp + tp' (cp + cp' dp), the rank's coordinates
 *   compute, host       a task of the rank
 *   tp, cp, ep, dp      one task on the streams of all members of the group: it
 *                       starts when the last of them is there
 *   transfer            from place j of a stage to place j of the next
 *
 * Groups are places first, first + step, ...: of tp in a row, of cp in steps of
 * tp', of experts ep etp in a row (parallel folding), of gradients all with the
 * same tp. Order, durations and parts of wires are the folded walk's
 * (passes.c, traffic.c), of which this is the product with the ranks. With
 * dp_shard the replicas of one set meet when parameters are gathered, all when
 * gradients are added. Left out: spans; gradients of experts join those of the
 * dense part.
 */
#include "sim/step/unfold.h"

#include "base/log.h"
#include "sim/step/walk_int.h"

struct unfold {
    struct walk *w; /* of the folded step: durations and parts of wires */
    struct mw_graph *g;
    const double *pace; /* by rank; NULL: 1 */
    int n;              /* ranks of a stage */
    int *rank;          /* [seat]; a seat is stage * n + place */
    mw_task_id *last, *hidden;
    struct slot_tasks *slots; /* [slot * n + place] */
};

/* Places that join a collective, of which there are n / count. */
struct joined {
    int count, step,
        period; /* group q begins at q % step + q / step * period */
};

/* replicas: of the dp ones, those that meet. */
static struct joined joined_of(const struct unfold *u, enum mw_lane lane,
                               int replicas)
{
    const struct mw_layout *l = u->w->frame->price.layout;
    int experts = l->ep * l->etp;

    switch (lane) {
    case MW_LANE_TP:
        return (struct joined){l->tp, 1, l->tp};
    case MW_LANE_CP:
        return (struct joined){l->cp, l->tp, l->tp * l->cp};
    case MW_LANE_EP:
        return (struct joined){experts, 1, experts};
    case MW_LANE_DP:
        return (struct joined){l->cp * replicas, l->tp,
                               l->tp * l->cp * replicas};
    case MW_LANE_COMPUTE:
    case MW_LANE_OFFLOAD:
    case MW_LANE_HOST:
    case MW_LANE_COUNT:
        break;
    }
    return (struct joined){1, 1, 1};
}

/* ---- tasks -----------------------------------------------------------------
 */
static void use(struct unfold *u, mw_task_id task, int from, int to,
                const double part[MW_WIRE_KINDS])
{
    for (int kind = 0; u->w->wire != NULL && kind < MW_WIRE_KINDS; kind++) {
        mw_wire_id of = (mw_wire_id)(2 * kind);

        mw_graph_use(u->g, task, (mw_wire_id)(2 * MW_WIRE_KINDS * from) + of,
                     part[kind]);
        mw_graph_use(u->g, task, (mw_wire_id)(2 * MW_WIRE_KINDS * to) + of + 1,
                     part[kind]);
    }
}

static mw_stream_id stream_of(int seat, enum mw_stream_kind kind)
{
    return (mw_stream_id)(seat * MW_STREAM_COUNT + (int)kind);
}

static void take(struct unfold *u, int seat, mw_task_id task)
{
    if (u->last[seat] != NO_TASK) {
        mw_graph_dep(u->g, u->last[seat], task, 0);
    }
    u->last[seat] = task;
}

/* One task of the seats first, first + step, ... after their last ones. */
static mw_task_id add(struct unfold *u, int first, const struct joined *by,
                      enum mw_stream_kind stream, mw_time ps)
{
    mw_task_id task =
        mw_graph_task(u->g, stream_of(first, stream), ps, (uint64_t)first);

    take(u, first, task);
    for (int i = 1; i < by->count; i++) {
        int seat = first + i * by->step;

        mw_graph_also_on(u->g, task, stream_of(seat, stream));
        take(u, seat, task);
    }
    return task;
}

static mw_time paced(const struct unfold *u, int seat, mw_time ps)
{
    double pace = u->pace != NULL ? u->pace[u->rank[seat]] : 1;

    return pace != 1 ? mw_time_from_s(mw_time_to_s(ps) * pace) : ps;
}

/* A lane's task on every rank of a stage, for the members of a group one. part
 * NULL: none. */
static void add_lane(struct unfold *u, int stage, enum mw_lane lane,
                     int replicas, mw_time ps, const double *part)
{
    struct joined by = joined_of(u, lane, replicas);
    bool is_own = lane == MW_LANE_COMPUTE || lane == MW_LANE_HOST;

    for (int q = 0; q < u->n / by.count; q++) {
        int first = stage * u->n + q % by.step + q / by.step * by.period;
        mw_task_id task = add(u, first, &by, mw_walk_stream_of_lane[lane],
                              is_own ? paced(u, first, ps) : ps);

        for (int i = 0; part != NULL && i < by.count; i++) {
            use(u, task, first + i * by.step, first + i * by.step, part);
        }
    }
}

/* ---- passes ----------------------------------------------------------------
 */
static void add_phase(struct unfold *u, int stage, const struct mw_slot *slot,
                      enum mw_phase phase)
{
    const struct walk *w = u->w;
    int k = w->s->virtual_stage[stage * w->s->n_chunks + slot->chunk];
    /* Forward, parameters are gathered inside a set of shards; backward the
     * gradients' shares are added over the sets as well. */
    const struct mw_layout *l = w->frame->price.layout;
    int replicas = phase == MW_PHASE_F ? mw_layout_shard_ways(l) : l->dp;

    for (int lane = 0; lane < MW_LANE_COUNT; lane++) {
        mw_time ps = w->frame->vstage[k].ps[phase][lane] / w->s->n_parts;

        MW_ASSERT(ps == 0 || w->frame->vstage[k].ps[phase][0] > 0 ||
                      phase != MW_PHASE_R,
                  "recomputation without compute in stage %d", k);
        if (ps > 0 || (lane == MW_LANE_COMPUTE && phase != MW_PHASE_R)) {
            add_lane(u, stage, (enum mw_lane)lane, replicas, ps,
                     w->wire != NULL ? w->part[k].of[phase][lane] : NULL);
        }
    }
}

static void add_transfers(struct unfold *u, int stage, uint32_t i)
{
    const struct mw_slot *slot = &u->w->s->slot[i];
    int to = mw_walk_receiver(u->w, stage, slot);
    int n_states = mw_walk_states(u->w, stage, slot);
    mw_time ps = to < 0 || to == stage
                     ? 0
                     : mw_walk_transfer_ps(u->w, stage, to, n_states);

    for (int j = 0; j < u->n; j++) {
        struct slot_tasks *tasks =
            &u->slots[(size_t)i * (size_t)u->n + (size_t)j];
        int seat = stage * u->n + j;

        tasks->ready = u->last[seat];
        tasks->transfer = NO_TASK;
        if (to < 0 || to == stage) {
            continue;
        }
        tasks->transfer = mw_graph_task(u->g, stream_of(seat, MW_STREAM_PP), ps,
                                        (uint64_t)seat);
        mw_graph_dep(u->g, tasks->ready, tasks->transfer, 0);
        if (u->w->wire != NULL) {
            use(u, tasks->transfer, seat, to * u->n + j,
                u->w->transfer_part[mw_walk_transfer_at(u->w, stage, to,
                                                        n_states)]);
        }
    }
}

/* Traffic over dp behind passes, on a stream of its own. */
static mw_task_id add_hidden(struct unfold *u, int seat, double time_s,
                             const double part[MW_WIRE_KINDS])
{
    mw_task_id task = mw_graph_task(u->g, mw_graph_stream(u->g),
                                    mw_time_from_s(time_s), (uint64_t)seat);

    use(u, task, seat, seat, part);
    return task;
}

static void start_hidden(struct unfold *u, int stage)
{
    const struct mw_tail *tail = &u->w->frame->tail[stage];
    struct joined own = {1, 1, 1};

    for (int j = 0; j < u->n; j++) {
        int seat = stage * u->n + j;
        mw_task_id begin = add(u, seat, &own, MW_STREAM_COMPUTE, 0);

        u->hidden[seat] =
            add_hidden(u, seat, tail->hidden_reduce_s, tail->reduce_part);
        mw_graph_dep(u->g, begin, u->hidden[seat], 0);
    }
}

/* The slot's first task of each place: its next on the compute stream, or where
 * the hidden reduction starts, the empty one before it. */
static void note_first(struct unfold *u, uint32_t i, bool starts_hidden)
{
    for (int j = 0; j < u->n; j++) {
        u->slots[(size_t)i * (size_t)u->n + (size_t)j].first =
            (mw_task_id)mw_graph_size(u->g) +
            (mw_task_id)(starts_hidden ? 2 * j : j);
    }
}

static void add_slot(struct unfold *u, int stage, uint32_t i)
{
    const struct mw_slot *slot = &u->w->s->slot[i];
    bool is_back = slot->pass == MW_PASS_B || slot->pass == MW_PASS_BW;
    bool early = u->w->sends_early;
    bool starts_hidden = u->w->wire != NULL && i == u->w->hidden_from[stage];

    note_first(u, i, starts_hidden);
    if (starts_hidden) {
        start_hidden(u, stage);
    }
    if (slot->pass == MW_PASS_F) {
        add_phase(u, stage, slot, MW_PHASE_F);
    }
    if (is_back) {
        add_phase(u, stage, slot, MW_PHASE_R);
        add_phase(u, stage, slot, MW_PHASE_B);
    }
    if (early) {
        add_transfers(u, stage, i);
    }
    if (slot->pass == MW_PASS_W || slot->pass == MW_PASS_BW) {
        add_phase(u, stage, slot, MW_PHASE_W);
    }
    if (!early) {
        add_transfers(u, stage, i);
    }
}

/* Slot of a stage that makes what slot i waits for; NULL: none. */
static const struct slot_tasks *source_of(const struct unfold *u, int stage,
                                          uint32_t i, const uint32_t *slot_at)
{
    const struct mw_schedule *s = u->w->s;
    const struct mw_slot *slot = &s->slot[i];
    int at = stage * s->n_chunks + slot->chunk;
    bool is_f = slot->pass == MW_PASS_F;
    int from = s->virtual_stage[at] + (is_f ? -1 : 1);

    if (slot->pass == MW_PASS_W || from < 0 || from >= s->route_len) {
        return NULL;
    }
    int place = s->route[at] * s->route_len + from;
    size_t key = ((size_t)s->device[place] * (size_t)s->n_chunks +
                  (size_t)s->chunk[place]) *
                     (size_t)mw_schedule_items(s) +
                 (size_t)slot->microbatch;

    return &u->slots[(size_t)slot_at[2 * key + !is_f] * (size_t)u->n];
}

static void add_deps(struct unfold *u, int stage, uint32_t i,
                     const uint32_t *slot_at)
{
    const struct slot_tasks *source = source_of(u, stage, i, slot_at);

    for (int j = 0; source != NULL && j < u->n; j++) {
        mw_task_id before = source[j].transfer != NO_TASK ? source[j].transfer
                                                          : source[j].ready;

        mw_graph_dep(u->g, before,
                     u->slots[(size_t)i * (size_t)u->n + (size_t)j].first, 0);
    }
}

/* ---- tail ------------------------------------------------------------------
 */
static void add_holders(struct unfold *u)
{
    const struct mw_step_frame *f = u->w->frame;
    const struct mw_holders *h = &f->price.holders;

    if (h->n == 0 || f->tail[h->device[0]].embedding_ps == 0) {
        return;
    }
    for (int j = 0; j < u->n; j++) {
        mw_task_id task =
            add(u, h->device[0] * u->n + j, &(struct joined){1, 1, 1},
                MW_STREAM_PP, f->tail[h->device[0]].embedding_ps);

        for (int i = 1; i < h->n; i++) {
            int seat = h->device[i] * u->n + j;

            mw_graph_also_on(u->g, task, stream_of(seat, MW_STREAM_PP));
            take(u, seat, task);
        }
        for (int i = 0; i < h->n && u->w->wire != NULL; i++) {
            use(u, task, h->device[i] * u->n + j,
                h->device[(i + 1) % h->n] * u->n + j, u->w->twin_part);
        }
    }
}

static void add_tail(struct unfold *u, int stage)
{
    const struct mw_tail *tail = &u->w->frame->tail[stage];
    const struct mw_layout *layout = u->w->frame->price.layout;
    int all = layout->dp;

    if (tail->reduce_ps > 0) {
        add_lane(u, stage, MW_LANE_DP, all, tail->reduce_ps,
                 u->w->wire != NULL ? tail->reduce_part : NULL);
    }
    for (int j = 0; j < u->n && u->w->wire != NULL && tail->reduce_ps > 0;
         j++) {
        int seat = stage * u->n + j;

        if (u->hidden[seat] != NO_TASK) {
            mw_graph_dep(u->g, u->hidden[seat], u->last[seat], 0);
        }
    }
    if (tail->shared_ps > 0) {
        add_lane(u, stage, MW_LANE_TP, all, tail->shared_ps, NULL);
    }
    if (tail->optimizer_ps > 0) {
        struct joined own = {1, 1, 1};

        for (int j = 0; j < u->n; j++) {
            add(u, stage * u->n + j, &own, MW_STREAM_COMPUTE,
                tail->optimizer_ps);
        }
    }
    if (tail->offload_ps > 0) {
        add_lane(u, stage, MW_LANE_OFFLOAD, all, tail->offload_ps, NULL);
    }
    if (tail->gather_ps > 0) {
        add_lane(u, stage, MW_LANE_DP, mw_layout_shard_ways(layout),
                 tail->gather_ps,
                 u->w->wire != NULL ? tail->gather_part : NULL);
    }
}

/* ---- whole -----------------------------------------------------------------
 */
static void add_hidden_gathers(struct unfold *u)
{
    for (int d = 0; d < u->w->s->n_stages; d++) {
        const struct mw_tail *tail = &u->w->frame->tail[d];

        for (int j = 0; j < u->n && tail->hidden_gather_s > 0; j++) {
            add_hidden(u, d * u->n + j, tail->hidden_gather_s,
                       tail->gather_part);
        }
    }
}

static void seat_ranks(struct unfold *u)
{
    const struct mw_layout *l = u->w->frame->price.layout;

    for (int seat = 0; seat < u->n * l->pp; seat++) {
        int j = seat % u->n;
        struct mw_coord at = {.tp = j % l->tp,
                              .cp = j / l->tp % l->cp,
                              .dp = j / l->tp / l->cp,
                              .pp = seat / u->n};

        u->rank[seat] = mw_layout_rank(l, at);
        u->last[seat] = u->hidden[seat] = NO_TASK;
        for (int kind = 0; kind < MW_STREAM_COUNT; kind++) {
            mw_graph_stream(u->g);
        }
        for (int kind = 0; u->w->wire != NULL && kind < 2 * MW_WIRE_KINDS;
             kind++) {
            mw_graph_wire(u->g);
        }
    }
}

/* Slot by 2 (device, chunk, item) + is it backward. */
static uint32_t *index_slots(const struct mw_schedule *s,
                             struct mw_arena *arena)
{
    size_t n_items = (size_t)mw_schedule_items(s);
    uint32_t *at = mw_arena_alloc(
        arena, 2 * (size_t)s->n_stages * (size_t)s->n_chunks * n_items,
        sizeof *at);

    for (int d = 0; d < s->n_stages; d++) {
        for (uint32_t i = s->first[d]; i < s->first[d + 1]; i++) {
            const struct mw_slot *slot = &s->slot[i];
            size_t key =
                ((size_t)d * (size_t)s->n_chunks + (size_t)slot->chunk) *
                    n_items +
                (size_t)slot->microbatch;

            if (slot->pass != MW_PASS_W) {
                at[2 * key + (slot->pass != MW_PASS_F)] = i;
            }
        }
    }
    return at;
}

static void build(struct unfold *u)
{
    const struct mw_schedule *s = u->w->s;
    const uint32_t *slot_at = index_slots(s, &u->w->arena);

    seat_ranks(u);
    if (u->w->wire != NULL) {
        add_hidden_gathers(u);
    }
    for (int d = 0; d < s->n_stages; d++) {
        for (uint32_t i = s->first[d]; i < s->first[d + 1]; i++) {
            add_slot(u, d, i);
        }
    }
    for (int d = 0; d < s->n_stages; d++) {
        for (uint32_t i = s->first[d]; i < s->first[d + 1]; i++) {
            add_deps(u, d, i, slot_at);
        }
    }
    if (!s->is_forward_only) {
        add_holders(u);
        for (int d = 0; d < s->n_stages; d++) {
            add_tail(u, d);
        }
    }
}

static enum mw_status run(struct unfold *u, struct mw_unfold *out,
                          struct mw_err *err)
{
    size_t n = mw_graph_size(u->g);
    mw_time *times = mw_calloc(2 * n + 1, sizeof *times), end_ps = 0;
    enum mw_status status =
        mw_graph_run(u->g, times, times + n, &end_ps, NULL, err);

    mw_free(times);
    out->n_tasks = n;
    out->step_time_s = mw_time_to_s(end_ps);
    return status;
}

/* Tasks of a pass are at most its phases' lanes and a transfer; most are
 * computing. */
static enum mw_status check_size(const struct mw_plan *plan, int n_stage,
                                 struct mw_err *err)
{
    const struct mw_schedule *s = &plan->schedule;
    double n_tasks = 4.0 * n_stage * (double)s->first[s->n_stages];

    if (n_tasks > MW_UNFOLD_TASKS_MAX) {
        return mw_fail(err, MW_EINPUT,
                       "every rank simulated takes about %.3g tasks, more than "
                       "%d; simulate the folded step, or fewer micro-batches",
                       n_tasks, MW_UNFOLD_TASKS_MAX);
    }
    return MW_OK;
}

static enum mw_status unfold_frame(struct mw_step_frame *frame,
                                   const struct mw_plan *plan,
                                   const double *pace, struct mw_unfold *out,
                                   struct mw_err *err)
{
    int n_ranks = mw_layout_ranks(&plan->layout);
    size_t n = (size_t)n_ranks;
    struct mw_step_tasks folded;
    struct mw_timeline names;
    struct walk w;
    struct unfold u = {.w = &w,
                       .g = mw_graph_new(),
                       .pace = pace,
                       .n = n_ranks / plan->layout.pp};

    mw_timeline_init(&names);
    mw_step_tasks_init(&folded, &names);
    mw_walk_init(&w, &folded, frame, &plan->schedule);
    u.rank = mw_arena_alloc(&w.arena, n, sizeof *u.rank);
    u.last = mw_arena_alloc(&w.arena, n, sizeof *u.last);
    u.hidden = mw_arena_alloc(&w.arena, n, sizeof *u.hidden);
    u.slots = mw_arena_alloc(&w.arena, (size_t)u.n * w.s->first[w.s->n_stages],
                             sizeof *u.slots);
    build(&u);
    out->n_ranks = n_ranks;
    enum mw_status status = run(&u, out, err);

    mw_graph_free(u.g);
    mw_walk_release(&w);
    mw_step_tasks_release(&folded);
    mw_timeline_release(&names);
    return status;
}

enum mw_status mw_step_unfold(const struct mw_scenario *scenario,
                              const struct mw_plan *plan,
                              const struct mw_cost_ctx *ctx, const double *pace,
                              struct mw_unfold *out, struct mw_err *err)
{
    int64_t begin_ns = mw_clock_wall_ns();
    struct mw_unfold result = {0};
    struct mw_step_frame frame;
    enum mw_status status = mw_step_check_rates(scenario, ctx, err);

    if (status == MW_OK) {
        status = mw_step_check_features(&plan->layout, ctx, err);
    }
    if (status == MW_OK) {
        status = check_size(
            plan, mw_layout_ranks(&plan->layout) / plan->layout.pp, err);
    }
    if (status != MW_OK) {
        return status;
    }
    mw_step_frame_init(&frame, scenario, &plan->layout, plan->layers,
                       &plan->schedule, ctx, true, NULL);
    status = mw_step_frame_check(&frame, err);
    if (status == MW_OK) {
        status = unfold_frame(&frame, plan, pace, &result, err);
    }
    mw_step_frame_release(&frame);
    result.wall_time_s = (double)(mw_clock_wall_ns() - begin_ns) / 1e9;
    if (status == MW_OK) {
        *out = result;
    }
    return status;
}
