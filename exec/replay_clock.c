/*
 * Replay of a recorded step on the virtual clock; see replay_clock.h. Clock
 * values travel in messages of one double, with the tags of the step's own.
 */
#include "exec/replay_clock.h"

#include "base/stats.h"

void mw_replay_busy(const struct mw_rec *rec, int step, double *out)
{
    for (size_t i = 0; i < rec->events.n; i++) {
        out[i] = 1e-9 * (double)mw_rec_time(rec, step, i)->busy_ns;
    }
}

/* Lower quartile over the steps: of an event, or of a row of it. */
static double usual_of(const struct mw_rec *rec, size_t i, bool is_row,
                       double *room)
{
    size_t n = 0;
    for (int s = 0; s < rec->n_steps; s++) {
        const struct mw_rec_time *t = mw_rec_time(rec, s, i);
        if (!is_row || t->rows > 0) {
            room[n++] =
                1e-9 * (double)t->busy_ns / (is_row ? (double)t->rows : 1.0);
        }
    }
    return n > 0 ? mw_quantile(room, n, 0.25) : 0.0;
}

void mw_replay_usual(const struct mw_rec *rec, int step, double *out)
{
    double *room = mw_calloc((size_t)rec->n_steps + 1, sizeof *room);
    for (size_t i = 0; i < rec->events.n; i++) {
        bool is_routed = rec->events.v[i].is_routed;
        double rows = (double)mw_rec_time(rec, step, i)->rows;
        out[i] = usual_of(rec, i, is_routed, room) * (is_routed ? rows : 1.0);
    }
    mw_free(room);
}

/* ---- prices ------------------------------------------------------------- */
static int stage_of_rank(const struct mw_exec *ex, int rank)
{
    return mw_layout_coord(&ex->job->layout, rank).pp;
}

static double receive_cost(const struct mw_exec *ex,
                           const struct mw_cost_ctx *ctx,
                           const struct mw_rec_event *e)
{
    const struct mw_layout *l = &ex->job->layout;
    int per_node = ctx->gpus_per_node;
    bool crosses = mw_cost_stages_cross(l, stage_of_rank(ex, e->peer),
                                        ex->at.pp, per_node);
    int sharers = mw_cost_pp_sharers(l, per_node);
    return mw_cost_p2p(ctx, e->bytes, crosses, sharers, NULL).time_s;
}

/* The pair of first and last stage that share a tied embedding. */
static struct mw_group pair_group(const struct mw_exec *ex,
                                  const struct mw_cost_ctx *ctx)
{
    const struct mw_job *job = ex->job;
    int first = job->schedule->device[0];
    int last = job->schedule->device[job->n_virtual - 1];
    bool crosses =
        mw_cost_stages_cross(&job->layout, first, last, ctx->gpus_per_node);
    return (struct mw_group){
        2, crosses ? 2 : 1, crosses ? 1 : 2,
        mw_cost_pp_sharers(&job->layout, ctx->gpus_per_node)};
}

/* Replicas; on two routes the other holder's as well, as sim/step prices it. */
static struct mw_group gradient_group(const struct mw_exec *ex,
                                      const struct mw_cost_ctx *ctx,
                                      bool is_expert)
{
    const struct mw_layout *l = &ex->job->layout;
    struct mw_group g = mw_cost_shard_group(l, is_expert, ctx->gpus_per_node);
    int twin = mw_job_twin_stage(ex->job, ex->at.pp);
    if (twin != ex->at.pp) {
        bool crosses =
            mw_cost_stages_cross(l, ex->at.pp, twin, ctx->gpus_per_node);
        g.n_ranks *= 2;
        g.n_nodes *= crosses ? 2 : 1;
        g.ranks_per_node *= crosses ? 1 : 2;
    }
    return g;
}

static double collective_cost(const struct mw_exec *ex,
                              const struct mw_cost_ctx *ctx,
                              const struct mw_rec_event *e)
{
    const struct mw_layout *l = &ex->job->layout;
    struct mw_group g;
    if (e->is_copy) {
        g = mw_cost_replica_group(l, ctx->gpus_per_node);
    } else if (e->dim == MW_DIM_DP) {
        g = gradient_group(ex, ctx, e->is_expert);
    } else if (e->dim == MW_DIM_PP) {
        g = pair_group(ex, ctx);
    } else if (e->dim == MW_DIM_CP) {
        bool is_inner = e->is_dealt && l->cp_inner > 1;
        g = mw_cost_cp_group(l, is_inner, ctx->gpus_per_node);
    } else {
        g = mw_cost_group(l, e->dim, ctx->gpus_per_node);
    }
    return mw_cost_coll(ctx, e->coll, e->bytes, &g, NULL).time_s;
}

void mw_replay_costs(const struct mw_exec *ex, const struct mw_cost_ctx *ctx,
                     double *out)
{
    for (size_t i = 0; i < ex->rec->events.n; i++) {
        const struct mw_rec_event *e = &ex->rec->events.v[i];
        out[i] = 0.0;
        if (e->type == MW_REC_RECV) {
            out[i] = receive_cost(ex, ctx, e);
        } else if (e->type == MW_REC_COLL) {
            out[i] = collective_cost(ex, ctx, e);
        }
    }
}

/* ---- replay ------------------------------------------------------------- */
static struct mw_comm *group_of(const struct mw_exec *ex,
                                const struct mw_rec_event *e)
{
    switch (e->dim) {
    case MW_DIM_PP:
        return ex->ends; /* the pair that shares a tied embedding */
    case MW_DIM_EP:
        return ex->ep;
    case MW_DIM_ETP:
        return ex->etp;
    case MW_DIM_CP:
        return e->is_dealt ? ex->cp_deal : ex->cp_ring;
    case MW_DIM_DP:
        return e->is_copy ? ex->copies : e->is_expert ? ex->edp : ex->dp;
    case MW_DIM_TP:
    case MW_DIM_COUNT:
        break;
    }
    return ex->tp;
}

struct replay {
    const struct mw_exec *ex;
    double vt;
    double pp_free_s; /* end of the last transfer shown on this rank */
    struct mw_send *sends;
    double *sent; /* values under way: kept until the sends have ended */
    struct mw_err *err;
};

static enum mw_status replay_collective(struct replay *r,
                                        const struct mw_rec_event *e,
                                        double cost_s, struct mw_moment *at)
{
    struct mw_comm *group = group_of(r->ex, e);
    double begin = r->vt;
    MW_TRY(group->ops->all_reduce(group, &begin, 1, MW_ELEM_F64, MW_REDUCE_MAX,
                                  r->err));
    r->vt = begin + cost_s;
    *at = (struct mw_moment){begin, r->vt};
    return MW_OK;
}

static enum mw_status replay_receive(struct replay *r,
                                     const struct mw_rec_event *e,
                                     double cost_s, struct mw_moment *at)
{
    struct mw_comm *w = r->ex->world;
    double sent;
    MW_TRY(w->ops->recv(w, &sent, 1, MW_ELEM_F64, e->peer, e->tag, r->err));
    double arrival = sent + cost_s;
    /* A stream shows one transfer at a time. */
    double start = sent > r->pp_free_s ? sent : r->pp_free_s;
    *at = (struct mw_moment){start < arrival ? start : arrival, arrival};
    if (arrival > r->pp_free_s) {
        r->pp_free_s = arrival;
    }
    if (arrival > r->vt) {
        r->vt = arrival;
    }
    return MW_OK;
}

static enum mw_status replay_event(struct replay *r, size_t i, double busy_s,
                                   double cost_s, struct mw_moment *at)
{
    const struct mw_rec_event *e = &r->ex->rec->events.v[i];
    struct mw_comm *w = r->ex->world;
    switch (e->type) {
    case MW_REC_COMPUTE:
        *at = (struct mw_moment){r->vt, r->vt + busy_s};
        r->vt += busy_s;
        break;
    case MW_REC_SEND:
        *at = (struct mw_moment){r->vt, r->vt};
        r->sent[i] = r->vt;
        return w->ops->send(w, &r->sent[i], 1, MW_ELEM_F64, e->peer, e->tag,
                            &r->sends[i], r->err);
    case MW_REC_COLL:
        return replay_collective(r, e, cost_s, at);
    case MW_REC_RECV:
        return replay_receive(r, e, cost_s, at);
    }
    return MW_OK;
}

enum mw_status mw_replay(const struct mw_exec *ex, const double *busy_s,
                         const double *cost_s, struct mw_moment *out,
                         double *out_step_s, struct mw_err *err)
{
    size_t n = ex->rec->events.n;
    struct replay r = {.ex = ex,
                       .sends = mw_calloc(n + 1, sizeof *r.sends),
                       .sent = mw_calloc(n + 1, sizeof *r.sent),
                       .err = err};
    enum mw_status st = MW_OK;
    for (size_t i = 0; i < n && st == MW_OK; i++) {
        struct mw_moment at;
        st = replay_event(&r, i, busy_s[i], cost_s[i], &at);
        if (out && st == MW_OK) {
            out[i] = at;
        }
    }
    for (size_t i = 0; i < n && st == MW_OK; i++) {
        st = ex->world->ops->wait(ex->world, &r.sends[i], err);
    }
    if (st == MW_OK) {
        st = ex->world->ops->all_reduce(ex->world, &r.vt, 1, MW_ELEM_F64,
                                        MW_REDUCE_MAX, err);
    }
    *out_step_s = r.vt;
    mw_free(r.sends);
    mw_free(r.sent);
    return st;
}
