/*
 * The ledger walks the same operator lists as price.c, unit by unit, times the
 * micro-batches; then what ZeRO adds per unit, transfers between stages, and
 * what comes once after the last pass (vstage.c).
 *
 * Textbook counts that tests compare with: Narayanan et al., SC 2021 (tensor
 * and pipeline parallelism), Korthikanti et al., 2022 (sequence parallelism),
 * Rajbhandari et al., SC 2020 (ZeRO).
 */
#include "sim/step/ledger.h"

#include "sim/step/step_int.h"

#include <stdlib.h>

struct sums {
    const struct mw_step_frame *f;
    struct mw_ledger rows; /* in the order in which they were met */
};

static double wire_share(enum mw_coll_op op, int n)
{
    if (op == MW_SEND_RECV) {
        return 1;
    }
    return (op == MW_ALL_REDUCE ? 2.0 : 1.0) * (n - 1) / n;
}

static struct mw_ledger_row *row_of(struct sums *s, enum mw_dim dim,
                                    enum mw_coll_op op,
                                    const struct mw_group *group)
{
    struct mw_ledger_row fresh = {.dim = dim,
                                  .op = op,
                                  .n_ranks = group->n_ranks,
                                  .n_nodes = group->n_nodes,
                                  .crosses_nodes = group->n_nodes > 1};

    for (size_t i = 0; i < s->rows.n; i++) {
        struct mw_ledger_row *row = &s->rows.v[i];

        if (row->dim == dim && row->op == op &&
            row->n_ranks == group->n_ranks && row->n_nodes == group->n_nodes) {
            return row;
        }
    }
    mw_array_push(&s->rows, fresh);
    return &s->rows.v[s->rows.n - 1];
}

static void add_timed(struct sums *s, enum mw_dim dim, enum mw_coll_op op,
                      double count, double bytes, const struct mw_group *group,
                      double each_s)
{
    if (group->n_ranks <= 1 || !(count * bytes > 0)) {
        return;
    }
    struct mw_ledger_row *row = row_of(s, dim, op, group);

    row->count += count;
    row->message_bytes += count * bytes;
    row->wire_bytes += count * bytes * wire_share(op, group->n_ranks);
    row->time_s += count * each_s;
}

static void add(struct sums *s, enum mw_dim dim, enum mw_coll_op op,
                double count, double bytes, const struct mw_group *group)
{
    add_timed(s, dim, op, count, bytes, group,
              mw_cost_coll(s->f->price.ctx, op, bytes, group, NULL).time_s);
}

/* Collectives inside the passes of n units. */
static void add_unit(struct sums *s, enum mw_step_unit unit, double n,
                     bool is_forward_only)
{
    const struct mw_step_price *p = &s->f->price;
    struct mw_ops ops = {NULL, 0, 0};

    for (int phase = 0; phase < (is_forward_only ? 1 : MW_PHASE_COUNT);
         phase++) {
        mw_step_unit_ops(p, unit, (enum mw_phase)phase, &ops);
    }
    for (size_t i = 0; i < ops.n; i++) {
        const struct mw_op *op = &ops.v[i];

        if (op->kind == MW_OP_COLL) {
            add_timed(s, op->dim, op->coll, n * mw_op_times(op),
                      mw_step_coll_bytes(p, op), mw_step_op_group(p, op),
                      mw_step_coll_cost(p, op, NULL).time_s);
        }
    }
    mw_array_release(&ops);
}

/* The rank's shares of dense and expert gradients, over the replicas. */
static void add_replicas(struct sums *s, double n, double pieces,
                         const double params[2])
{
    const struct mw_step_price *p = &s->f->price;

    add(s, MW_DIM_DP, MW_ALL_REDUCE, n * pieces,
        mw_step_share(p, params[0], params[1]) * p->grad_bytes / pieces,
        &p->replica_group);
}

static void add_colls(struct sums *s, double n,
                      const struct mw_zero_colls *colls)
{
    for (int i = 0; i < colls->n; i++) {
        const struct mw_zero_coll *c = &colls->v[i];

        add(s, MW_DIM_DP, c->op, n * c->pieces, c->bytes / c->pieces,
            &c->group);
    }
}

/* Parameters of n units: gathered in both directions under ZeRO-3, gradients
 * scattered under ZeRO-2 and -3. */
static void add_zero(struct sums *s, enum mw_step_unit unit, double n)
{
    const struct mw_step_price *p = &s->f->price;
    const double params[] = {p->size[unit].dense_params +
                                 mw_step_copy_params(p, unit),
                             p->size[unit].expert_params};
    const struct mw_group groups[] = {mw_step_sharers(p, p->grad_group, 0),
                                      mw_step_sharers(p, p->expert_group, 0)};
    struct mw_zero_colls colls;

    mw_zero_unit_colls(p, unit, groups, &colls);
    add_colls(s, n, &colls);
    if (p->layout->zero >= 2) {
        add_replicas(s, n, 1, params);
    }
}

/* The same in units of several layers; m micro-batches. */
static void add_wrapped(struct sums *s, const struct mw_vstage *v, double m)
{
    const struct mw_step_price *p = &s->f->price;
    const struct mw_group groups[] = {mw_step_sharers(p, p->grad_group, 0),
                                      mw_step_sharers(p, p->expert_group, 0)};

    for (int i = 0; i < mw_fsdp_units(p, v); i++) {
        int n_units[MW_UNIT_COUNT];
        double params[] = {0, 0};
        struct mw_zero_colls colls;

        mw_fsdp_unit(p, v, i, n_units);
        for (int unit = 0; unit < MW_UNIT_COUNT; unit++) {
            params[0] += n_units[unit] *
                         (p->size[unit].dense_params +
                          mw_step_copy_params(p, (enum mw_step_unit)unit));
            params[1] += n_units[unit] * p->size[unit].expert_params;
        }
        mw_zero_many_colls(p, n_units, groups, &colls);
        add_colls(s, m, &colls);
        add_replicas(s, m, 1, params);
    }
}

/* Once per step. */
static void add_tail(struct sums *s, int d)
{
    const struct mw_step_price *p = &s->f->price;
    const struct mw_group groups[] = {
        mw_step_sharers(p, mw_step_grad_group(p, false, d), d),
        mw_step_sharers(p, mw_step_grad_group(p, true, d), d)};
    const struct mw_share share = mw_share_of(
        p, d, s->f->units[d], mw_step_frame_is_twin(s->f, d), groups);
    int copies = mw_step_copies_on(p, d);
    const double params[] = {share.params[0] * copies,
                             share.params[1] * copies};
    double shared = 0;
    struct mw_zero_colls colls;

    for (int unit = 0; unit < MW_UNIT_COUNT; unit++) {
        shared += s->f->units[d][unit] * p->size[unit].shared_params;
    }
    mw_zero_reduce_colls(p, share.params, share.buckets, groups, &colls);
    add_colls(s, 1, &colls);
    add(s, MW_DIM_COUNT, MW_ALL_REDUCE, s->f->tail[d].once.n_reduces,
        MW_ONCE_NUMBER_BYTES, &s->f->tail[d].once.group);
    for (int i = 0; i < 2; i++) {
        if (p->layout->zero == 1 || p->layout->zero == 2) {
            double n = mw_share_gathers(p, &share, i);

            add(s, MW_DIM_DP, mw_share_gather_op(p), n,
                share.params[i] * p->weight_bytes / n, &groups[i]);
        }
    }
    if (p->layout->zero < 2) {
        add_replicas(s, 1, share.buckets[0], params);
    }
    if (p->layout->sp || p->work.lora_rank > 0) {
        add(s, MW_DIM_TP, MW_ALL_REDUCE, 1,
            mw_step_shared_grads(p, shared) * p->grad_bytes,
            &p->group[MW_DIM_TP]);
    }
    if (mw_step_frame_is_twin(s->f, d)) {
        struct mw_group group = mw_step_holders_group(p, &p->holders);

        add(s, MW_DIM_PP, MW_ALL_REDUCE, 1,
            mw_step_tied_grads(p) * p->grad_bytes, &group);
    }
}

/* What a device sends: activations up, gradients down. */
static void add_transfers(struct sums *s, const struct mw_plan *plan, int d,
                          int chunk, double n)
{
    const struct mw_step_price *p = &s->f->price;
    const struct mw_schedule *sched = &plan->schedule;
    int at = d * sched->n_chunks + chunk, k = sched->virtual_stage[at];
    const int16_t *devices =
        sched->device + sched->route[at] * sched->route_len;
    double bytes = mw_boundary_bytes(&p->work);

    if (p->ctx->stack.scatters_boundary && !p->layout->sp) {
        bytes /= p->layout->tp;
    }
    for (int way = -1; way <= 1; way += 2) {
        int next = k + way;
        struct mw_group pair;

        if ((way < 0 && sched->is_forward_only) || next < 0 ||
            next >= sched->route_len || devices[next] == d) {
            continue;
        }
        pair = mw_step_pair(p, d, devices[next]);
        add(s, MW_DIM_PP, MW_SEND_RECV, n,
            bytes * mw_step_states(p, way > 0 ? k : next), &pair);
    }
}

/* By dimension and collective, then the larger group first. */
static int in_order(const void *a, const void *b)
{
    const struct mw_ledger_row *x = a, *y = b;

    if (x->dim != y->dim) {
        return x->dim < y->dim ? -1 : 1;
    }
    if (x->op != y->op) {
        return x->op < y->op ? -1 : 1;
    }
    if (x->n_ranks != y->n_ranks) {
        return x->n_ranks > y->n_ranks ? -1 : 1;
    }
    return (x->n_nodes < y->n_nodes) - (x->n_nodes > y->n_nodes);
}

void mw_step_ledger(const struct mw_scenario *scenario,
                    const struct mw_plan *plan, const struct mw_cost_ctx *ctx,
                    int device, struct mw_ledger *out)
{
    const struct mw_schedule *sched = &plan->schedule;
    struct mw_step_frame frame;
    struct sums s = {.f = &frame};

    mw_step_frame_init(&frame, scenario, &plan->layout, plan->layers, sched,
                       ctx, true, NULL);
    for (int c = 0; c < sched->n_chunks; c++) {
        int k = sched->virtual_stage[device * sched->n_chunks + c];
        double m = (double)plan->n_microbatches / sched->n_routes;

        for (int unit = 0; unit < MW_UNIT_COUNT; unit++) {
            double n = m * frame.vstage[k].n_units[unit];

            if (n > 0) {
                add_unit(&s, (enum mw_step_unit)unit, n,
                         sched->is_forward_only);
            }
            if (n > 0 && !sched->is_forward_only &&
                !mw_layout_wraps(&plan->layout)) {
                add_zero(&s, (enum mw_step_unit)unit, n);
            }
        }
        if (mw_layout_wraps(&plan->layout) && !sched->is_forward_only) {
            add_wrapped(&s, &frame.vstage[k], m);
        }
        add_transfers(&s, plan, device, c, m);
    }
    if (!sched->is_forward_only) {
        add_tail(&s, device);
    }
    if (s.rows.n > 0) {
        qsort(s.rows.v, s.rows.n, sizeof *s.rows.v, in_order);
    }
    for (size_t i = 0; i < s.rows.n; i++) {
        mw_array_push(out, s.rows.v[i]);
    }
    mw_array_release(&s.rows);
    mw_step_frame_release(&frame);
}

struct mw_ledger_row mw_ledger_sum(const struct mw_ledger *ledger,
                                   enum mw_dim dim, enum mw_coll_op op)
{
    struct mw_ledger_row sum = {0};

    for (size_t i = 0; i < ledger->n; i++) {
        const struct mw_ledger_row *row = &ledger->v[i];

        if (row->dim != dim || row->op != op) {
            continue;
        }
        if (sum.n_ranks == 0) {
            sum = *row;
            continue;
        }
        sum.count += row->count;
        sum.message_bytes += row->message_bytes;
        sum.wire_bytes += row->wire_bytes;
        sum.time_s += row->time_s;
        sum.exposed_s += row->exposed_s;
        sum.crosses_nodes = sum.crosses_nodes || row->crosses_nodes;
    }
    return sum;
}

static enum mw_span_kind kind_of(enum mw_dim dim)
{
    switch (dim) {
    case MW_DIM_TP:
        return MW_SPAN_TP;
    case MW_DIM_CP:
        return MW_SPAN_CP;
    case MW_DIM_EP:
    case MW_DIM_ETP:
        return MW_SPAN_EP;
    case MW_DIM_PP:
        return MW_SPAN_PP;
    case MW_DIM_DP:
    case MW_DIM_COUNT:
        break;
    }
    return MW_SPAN_DP;
}

void mw_ledger_expose(struct mw_ledger *ledger,
                      const double breakdown_s[MW_SPAN_KIND_COUNT])
{
    double alone_s[MW_SPAN_KIND_COUNT] = {0};

    for (size_t i = 0; i < ledger->n; i++) {
        alone_s[kind_of(ledger->v[i].dim)] +=
            ledger->v[i].dim == MW_DIM_COUNT ? 0 : ledger->v[i].time_s;
    }
    for (size_t i = 0; i < ledger->n; i++) {
        struct mw_ledger_row *row = &ledger->v[i];
        enum mw_span_kind kind = kind_of(row->dim);

        /* Of the whole step's numbers nothing is hidden. */
        row->exposed_s = row->dim == MW_DIM_COUNT
                             ? row->time_s
                             : breakdown_s[kind] * row->time_s / alone_s[kind];
    }
}
