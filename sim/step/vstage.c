/*
 * Virtual stages as sums of units, and what a device does after its last pass:
 *
 *   embedding: all-reduce of its gradient between the stages that hold it
 *   reduce gradients over dp (all-reduce; reduce-scatter with ZeRO-1, then an
 *   all-reduce of the shares over the replicas that dp_shard makes)
 *   gradients that TP ranks share, with sequence parallelism or adapters
 *   optimizer over the device's (ZeRO-1: its share of) parameters; what the
 *   host's part takes longer (offload.c)
 *   gather parameters (ZeRO-1, -2)
 *
 * The stack says which part of reduce and gather the backward and forward work
 * of one micro-batch (interleaved: of several) can hide; the rest is here. The
 * optimizer reads and writes each parameter's state once: gradient in, moments
 * in and out, master or weight in and out, and the low-precision weight out
 * (sim/model/optimizer.h);
 * with it goes what the stack does once per step (norm, unscaling, zeroing,
 * synchronisation).
 *
 * A pass takes as long as its slower side, device or host: the host runs ahead
 * of the device inside a pass, not over its end. Then the spread between ranks:
 * everyone waits for the slowest.
 */
#include "sim/step/step_int.h"

#include <math.h>
#include <string.h>

/* Picoseconds of one term; absurd ones end at the limit and are refused by
 * mw_step_frame_check. */
static mw_time step_ps(double seconds)
{
    return mw_time_from_s(fmin(seconds, MW_STEP_TERM_MAX_S));
}

void mw_vstage_count(const struct mw_step_price *p, int k, int n, int first,
                     int n_layers, int n_units[MW_UNIT_COUNT])
{
    const struct mw_model *model = &p->scenario->model;

    int recomputed = mw_layout_recomputed(p->layout, k, n_layers);

    memset(n_units, 0, MW_UNIT_COUNT * sizeof *n_units);
    n_units[MW_UNIT_EMBEDDING] = k == 0;
    n_units[MW_UNIT_HEAD] = k == n - 1;
    n_units[MW_UNIT_MTP] = p->layout->mtp_ahead > 0 && k == n - 2;
    if (model->moe.n_experts == 0 && p->local[MW_UNIT_DENSE] < 0) {
        n_units[MW_UNIT_DENSE] = recomputed;
        n_units[MW_UNIT_DENSE_KEPT] = n_layers - recomputed;
        return;
    }
    for (int layer = first; layer < first + n_layers; layer++) {
        n_units[mw_step_layer_unit(p, layer, layer >= first + recomputed)]++;
    }
}

void mw_host_wait(const double host_s[MW_PHASE_COUNT],
                  const double device_s[MW_PHASE_COUNT],
                  double out[MW_PHASE_COUNT])
{
    double host_b = 0, device_b = 0;

    for (int phase = MW_PHASE_R; phase < MW_PHASE_COUNT; phase++) {
        host_b += host_s[phase];
        device_b += device_s[phase];
    }
    out[MW_PHASE_F] = fmax(0, host_s[MW_PHASE_F] - device_s[MW_PHASE_F]);
    for (int phase = MW_PHASE_R; phase < MW_PHASE_COUNT; phase++) {
        out[phase] = host_b > device_b
                         ? (host_b - device_b) * host_s[phase] / host_b
                         : 0;
    }
}

double mw_step_exposed_s(double transfer_s, double overlap, double window_s)
{
    return fmax(transfer_s * (1 - overlap), transfer_s - overlap * window_s);
}

/* Host waits and stragglers, on the sums of a stage. */
static void slow_down(const struct mw_step_price *p,
                      const double host_s[MW_PHASE_COUNT],
                      double s[MW_PHASE_COUNT][MW_LANE_COUNT])
{
    double device_s[MW_PHASE_COUNT] = {0}, wait_s[MW_PHASE_COUNT];
    double factor =
        mw_cost_straggler_factor(p->ctx, mw_layout_ranks(p->layout));

    for (int phase = 0; phase < MW_PHASE_COUNT; phase++) {
        for (int lane = 0; lane < MW_LANE_HOST; lane++) {
            device_s[phase] += s[phase][lane];
        }
    }
    mw_host_wait(host_s, device_s, wait_s);
    for (int phase = 0; phase < MW_PHASE_COUNT; phase++) {
        s[phase][MW_LANE_COMPUTE] *= factor;
        s[phase][MW_LANE_HOST] = wait_s[phase] * factor;
    }
}

static void add_units(const struct mw_step_price *p, struct mw_vstage *v,
                      double host_s[MW_PHASE_COUNT],
                      double s[MW_PHASE_COUNT][MW_LANE_COUNT])
{
    for (int unit = 0; unit < p->n_kinds; unit++) {
        int n = v->n_units[unit];

        for (int phase = 0; n > 0 && phase < MW_PHASE_COUNT; phase++) {
            const struct mw_phase_cost *cost = &p->cost[unit].phase[phase];

            v->flops[phase] += n * cost->flops;
            host_s[phase] += n * cost->host_s;
            for (int lane = 0; lane < MW_LANE_COUNT; lane++) {
                s[phase][lane] += n * cost->s[lane];
                v->bytes[phase][lane] += n * cost->bytes[lane];
            }
        }
    }
}

void mw_vstage_sum(const struct mw_step_price *p, struct mw_vstage *v)
{
    double s[MW_PHASE_COUNT][MW_LANE_COUNT] = {{0}};
    double host_s[MW_PHASE_COUNT] = {0};

    memset(v->bytes, 0, sizeof v->bytes);
    memset(v->flops, 0, sizeof v->flops);
    add_units(p, v, host_s, s);
    mw_fsdp_expose(p, v);
    s[MW_PHASE_F][MW_LANE_DP] += p->fetch_s + v->wrap_s[0];
    s[MW_PHASE_W][MW_LANE_DP] += p->flush_s + v->wrap_s[1];
    slow_down(p, host_s, s);
    v->f_ps = v->b_ps = v->w_ps = 0;
    for (int lane = 0; lane < MW_LANE_COUNT; lane++) {
        for (int phase = 0; phase < MW_PHASE_COUNT; phase++) {
            double lane_s = s[phase][lane]; /* most are 0 */

            v->ps[phase][lane] = lane_s > 0 ? step_ps(lane_s) : 0;
        }
        v->f_ps += v->ps[MW_PHASE_F][lane];
        v->b_ps += v->ps[MW_PHASE_R][lane] + v->ps[MW_PHASE_B][lane];
        v->w_ps += v->ps[MW_PHASE_W][lane];
    }
}

int mw_step_states(const struct mw_step_price *p, int k)
{
    const struct mw_layout *l = p->layout;

    return l->mtp_ahead > 0 && k >= l->pp * l->vpp - 2
               ? 1 + p->scenario->model.n_mtp
               : 1;
}

mw_time mw_step_transfer_ps(const struct mw_step_price *p, int from, int to,
                            int n_states)
{
    double bytes = n_states * mw_boundary_bytes(&p->work), gather_s = 0;
    struct mw_group pair = mw_step_pair(p, from, to);

    if (p->ctx->stack.scatters_boundary && !p->work.layout->sp) {
        gather_s = mw_cost_coll(p->ctx, MW_ALL_GATHER, bytes,
                                &p->group[MW_DIM_TP], NULL)
                       .time_s;
        bytes /= p->layout->tp;
    }
    return step_ps(
        mw_cost_coll(p->ctx, MW_SEND_RECV, bytes, &pair, NULL).time_s +
        gather_s);
}

int mw_step_copies_on(const struct mw_step_price *p, int d)
{
    return 2 * d == p->layout->pp - 1 ? p->n_copies : 1;
}

struct mw_group mw_step_sharers(const struct mw_step_price *p,
                                struct mw_group g, int d)
{
    int copies = p->n_copies / mw_step_copies_on(p, d);

    if (copies > 1) {
        bool crosses = mw_cost_stages_cross(p->layout, d, p->layout->pp - 1 - d,
                                            p->ctx->domain_gpus);

        g.n_ranks *= copies;
        g.n_nodes *= crosses ? copies : 1;
        g.ranks_per_node *= crosses ? 1 : copies;
    }
    return g;
}

struct owned {
    double dense, expert, shared;
    double tensors[2]; /* dense, of experts */
};

static struct owned owned_params(const struct mw_step_price *p,
                                 const int n_units[MW_UNIT_COUNT],
                                 bool has_tied_twin)
{
    struct owned sum = {0, 0, 0, {0, 0}};

    for (int unit = 0; unit < p->n_kinds; unit++) {
        sum.dense += n_units[unit] * p->size[unit].dense_params;
        sum.expert += n_units[unit] * p->size[unit].expert_params;
        sum.shared += n_units[unit] * p->size[unit].shared_params;
        sum.tensors[0] += n_units[unit] * p->size[unit].dense_tensors;
        sum.tensors[1] += n_units[unit] * p->size[unit].expert_tensors;
    }
    int copies = has_tied_twin ? mw_step_copies_held(p, n_units) : 0;

    if (copies > 0) {
        sum.dense += copies * mw_step_tied_params(p);
    }
    return sum;
}

double mw_step_replicas_bytes(const struct mw_step_price *p, double dense,
                              double expert)
{
    return p->replica_group.n_ranks > 1
               ? mw_step_share(p, dense, expert) * p->grad_bytes
               : 0;
}

double mw_step_replicas_s(const struct mw_step_price *p, double dense,
                          double expert, double pieces)
{
    double bytes = mw_step_replicas_bytes(p, dense, expert) / pieces;

    return bytes > 0 ? mw_cost_coll(p->ctx, MW_ALL_REDUCE, bytes,
                                    &p->replica_group, NULL)
                           .time_s
                     : 0;
}

/* Work of one micro-batch, and of it compute, and of that products. */
struct work {
    double all_s, compute_s, matrix_s;
};

/* On a device from phase `first` to `last`. */
static struct work work_of(const struct mw_step_price *p,
                           const int n_units[MW_UNIT_COUNT],
                           enum mw_phase first, enum mw_phase last)
{
    struct work sum = {0, 0, 0};

    for (int unit = 0; unit < p->n_kinds; unit++) {
        for (int phase = (int)first; n_units[unit] > 0 && phase <= (int)last;
             phase++) {
            const struct mw_phase_cost *cost = &p->cost[unit].phase[phase];
            double device_s = 0;

            for (int lane = 0; lane < MW_LANE_COUNT; lane++) {
                device_s += cost->s[lane];
            }
            sum.all_s += n_units[unit] * fmax(device_s, cost->host_s);
            sum.compute_s += n_units[unit] * cost->s[MW_LANE_COMPUTE];
            sum.matrix_s += n_units[unit] * cost->matrix_s;
        }
    }
    return sum;
}

/*
 * Micro-batches whose work can hide what is done once a step. The interleaved
 * schedule takes pp micro-batches, or vpp_group, through one of its v chunks
 * before the next:
 * the chunks are first needed, and their gradients complete, that far apart.
 */
static double windows(const struct mw_step_price *p)
{
    const struct mw_layout *l = p->layout;
    double n = (double)p->scenario->workload.global_batch /
               ((double)l->dp * l->micro_batch);

    if (l->pp == 1 || l->vpp == 1 ||
        strcmp(l->schedule, "interleaved-1f1b") != 0) {
        return 1;
    }
    double group = l->vpp_group > 0 ? l->vpp_group : l->pp;

    return fmax(1, fmin(group, n) * (l->vpp - 1) / l->vpp);
}

/* What is done once a step in pieces, beside such work. */
static struct mw_overlapped beside_work(const struct mw_step_price *p,
                                        const struct mw_pieces *pieces,
                                        double overlap, const struct work *work,
                                        struct mw_comm_load load)
{
    double growth = 0;

    load.time_s = pieces->all_s;
    if (overlap > 0) {
        growth = mw_step_work_growth(p, &load, work->all_s, work->compute_s,
                                     work->matrix_s);
    }
    return mw_step_beside(pieces->all_s,
                          mw_step_pieces_overlap(overlap, pieces),
                          windows(p) * work->all_s, growth);
}

/* Parameters that the rank updates. */
static double updated(const struct mw_step_price *p, const struct owned *owned)
{
    return p->layout->zero >= 1 ? mw_step_share(p, owned->dense, owned->expert)
                                : owned->dense + owned->expert;
}

/* The device's part of it. */
static double optimizer_s(const struct mw_step_price *p,
                          const struct owned *owned,
                          const struct mw_step_update *update,
                          struct mw_tail *out)
{
    static const struct mw_optimizer adamw = {.kind = MW_OPTIMIZER_ADAMW};
    const struct mw_stack *stack = &p->ctx->stack;
    double on_device = 1 - p->layout->offload_optimizer;
    double n = updated(p, owned) * on_device;
    double whole = owned->dense + owned->expert;

    if (!(whole > 0)) {
        return 0;
    }
    /* Measured rows are of AdamW: as many of its parameters as have the bytes.
     */
    double like_adamw = p->update_bytes / mw_optimizer_traffic_bytes(
                                              &adamw, p->work.dtype,
                                              p->grad_bytes, p->weight_bytes);
    struct mw_op op = {.kind = MW_OP_OPTIMIZER,
                       .pass = MW_PASS_F,
                       .name = "optimizer",
                       .m = (int64_t)(n * like_adamw),
                       .n = 1,
                       .batch = 1,
                       .dtype = p->work.dtype,
                       .bytes =
                           n * (p->update_bytes + stack->step_param_bytes) +
                           2 * update->state_bytes * on_device};

    out->once = mw_step_once_of(p, whole, n);
    out->update_bytes = op.bytes;
    op.bytes += mw_step_once_bytes(&out->once);
    return mw_cost_op(p->ctx, &op, NULL).time_s + out->once.reduce_s +
           stack->host_step_s + update->muon_s;
}

/* Time of the reduction; the rank's shares over the replicas in as many
 * messages as the dense part. */
static struct mw_pieces reduction(const struct mw_step_price *p,
                                  const struct owned *n,
                                  const struct mw_share *sent,
                                  const struct mw_zero_colls *colls)
{
    /* Shares that the stack may move in pieces of its own. */
    bool is_own = p->layout->zero == 1 && !mw_step_reduces_whole(p) &&
                  p->layout->grad_compression == MW_COMPRESS_NONE &&
                  p->ctx->stack.share != MW_SHARE_FLAT;
    struct mw_pieces sum =
        is_own ? mw_share_reduce(p, sent)
               : mw_zero_colls_pieces(p, colls, MW_ZERO_SCATTER);
    double replica_s =
        mw_step_replicas_s(p, n->dense, n->expert, sent->buckets[0]);

    sum.all_s += sent->buckets[0] * replica_s;
    sum.last_s += replica_s;
    return sum;
}

static double messages(const struct mw_share *share)
{
    return (share->params[0] > 0 ? share->buckets[0] : 0) +
           (share->params[1] > 0 ? share->buckets[1] : 0);
}

/* The momentum that 1-bit Adam reduces is made after the backward pass, which
 * hides nothing of it. */
static void reduce_gradients(const struct mw_step_price *p,
                             const int n_units[MW_UNIT_COUNT],
                             const struct owned *n, const struct mw_share *sent,
                             struct mw_tail *out)
{
    bool is_late = p->layout->grad_compression == MW_COMPRESS_ONEBIT;
    struct mw_zero_colls colls;

    mw_zero_reduce_colls(p, sent->params, sent->buckets, sent->groups, &colls);

    struct mw_pieces all = reduction(p, n, sent, &colls);
    double overlap = is_late ? 0
                             : mw_step_overlap(p, MW_OVERLAP_GRADS,
                                               p->ctx->stack.overlap_reduce);
    struct work work = work_of(p, n_units, MW_PHASE_R, MW_PHASE_W);
    struct mw_comm_load load = {0};

    if (overlap > 0) {
        mw_zero_colls_load(p, &colls, MW_ZERO_SCATTER, &load);
    }
    struct mw_overlapped at = beside_work(p, &all, overlap, &work, load);

    out->reduce_ps =
        step_ps(at.shown_s + at.slowed_s +
                mw_onebit_pack_s(p, n->dense + n->expert,
                                 mw_step_share(p, n->dense, n->expert)));
    out->hidden_reduce_s = at.hidden_s;
    out->slowed_reduce_s = at.slowed_s;
    out->reduce_bytes += mw_zero_colls_bytes(&colls, MW_ZERO_SCATTER) +
                         mw_step_replicas_bytes(p, n->dense, n->expert);
    out->reduce_buckets = messages(sent);
}

/* What ZeRO-1 and -2 update in shares, from where the next step needs it. */
static void gather_parameters(const struct mw_step_price *p,
                              const int n_units[MW_UNIT_COUNT],
                              const struct mw_share *sent, struct mw_tail *out)
{
    struct mw_pieces all = mw_share_gather(p, sent);
    double overlap =
        mw_step_overlap(p, MW_OVERLAP_PARAMS, p->ctx->stack.overlap_gather);
    struct work work = work_of(p, n_units, MW_PHASE_F, MW_PHASE_F);
    struct mw_comm_load load = {0};

    for (int i = 0; overlap > 0 && i < 2; i++) {
        mw_step_load_add(p, mw_share_gather_op(p), MW_DIM_DP,
                         sent->params[i] * p->weight_bytes, &sent->groups[i],
                         &load);
    }
    struct mw_overlapped at = beside_work(p, &all, overlap, &work, load);

    out->gather_ps = step_ps(at.shown_s + at.slowed_s);
    out->hidden_gather_s = at.hidden_s;
    out->slowed_gather_s = at.slowed_s;
    out->gather_bytes = (sent->params[0] + sent->params[1]) * p->weight_bytes;
    out->gather_buckets = messages(sent);
}

/* One of several copies on the device: they are added up there first. ZeRO-2
 * gathers in one piece. */
static struct mw_share once(const struct mw_step_price *p, int device,
                            const struct owned *n,
                            const struct mw_group groups[2])
{
    int copies = mw_step_copies_on(p, device);
    bool is_tensors =
        p->layout->zero == 1 && p->ctx->stack.share == MW_SHARE_BY_TENSOR;
    struct mw_share share = {{n->dense / copies, n->expert / copies},
                             {n->tensors[0] / copies, n->tensors[1] / copies},
                             {1, 1},
                             groups};

    for (int i = 0; i < 2 && p->layout->zero < 2; i++) {
        share.buckets[i] =
            is_tensors ? fmax(1, share.tensors[i])
                       : mw_step_buckets(p, device, share.params[i], i == 1);
    }
    return share;
}

struct mw_share mw_share_of(const struct mw_step_price *p, int device,
                            const int n_units[MW_UNIT_COUNT],
                            bool has_tied_twin, const struct mw_group groups[2])
{
    const struct owned n = owned_params(p, n_units, has_tied_twin);

    return once(p, device, &n, groups);
}

void mw_tail_of(const struct mw_step_price *p, int device,
                const int n_units[MW_UNIT_COUNT], bool has_tied_twin,
                struct mw_tail *out)
{
    const struct mw_layout *layout = p->layout;
    struct owned n = owned_params(p, n_units, has_tied_twin);
    const struct mw_group groups[] = {
        mw_step_sharers(p, mw_step_grad_group(p, false, device), device),
        mw_step_sharers(p, mw_step_grad_group(p, true, device), device)};
    const struct mw_share sent = once(p, device, &n, groups);

    *out = (struct mw_tail){0};
    if (layout->zero < 2) {
        reduce_gradients(p, n_units, &n, &sent, out);
    }
    if (has_tied_twin) {
        const struct mw_group group = mw_step_holders_group(p, &p->holders);

        out->embedding_bytes = mw_step_tied_grads(p) * p->grad_bytes;
        out->embedding_ps =
            step_ps(mw_cost_coll(p->ctx, MW_ALL_REDUCE, out->embedding_bytes,
                                 &group, NULL)
                        .time_s);
    }
    if ((layout->sp || p->work.lora_rank > 0) && layout->tp > 1) {
        out->shared_bytes = mw_step_shared_grads(p, n.shared) * p->grad_bytes;
        out->shared_ps =
            step_ps(mw_cost_coll(p->ctx, MW_ALL_REDUCE, out->shared_bytes,
                                 &p->group[MW_DIM_TP], NULL)
                        .time_s);
    }
    struct mw_step_update update = mw_step_update_of(p, n_units, has_tied_twin);
    double update_s = optimizer_s(p, &n, &update, out);

    out->optimizer_ps = step_ps(update_s);
    out->muon_ps = update.muon_s > 0 ? step_ps(update.muon_s) : 0;
    out->offload_ps =
        step_ps(fmax(0, mw_offload_optimizer_s(p, updated(p, &n)) - update_s));
    if (layout->zero == 1 || layout->zero == 2) {
        gather_parameters(p, n_units, &sent, out);
    }
}
