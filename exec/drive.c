/*
 * A run: load, check, open, train, verify, time, report.
 *
 *   steps     0 .. warmup - 1      warm-up; compared with the reference when
 *                                  verifying
 *             warmup .. steps - 1  timed on both clocks
 *
 * A failure in the middle of a step leaves other ranks waiting, so it is
 * returned at once and main aborts the job.
 */
#include "exec/drive.h"

#include "base/file.h"
#include "base/log.h"
#include "base/stats.h"
#include "exec/checkpoint.h"
#include "exec/fingerprint.h"
#include "exec/predict.h"
#include "exec/replay_clock.h"
#include "exec/trace.h"
#include "hwdb/hwdb.h"
#include "sim/coll/coll_library.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* Every rank reads all of it. */
enum { TEXT_BYTES_MAX = 1 << 30 };
/* Steps that are timed at most: more would only use memory. */
enum { TIMED_MAX = 64 };

struct drive {
    const struct mw_drive_opts *opts;
    struct mw_comm *world;
    struct mw_comm *comm; /* world, or what the device makes of it */
    struct mw_scenario scenario;
    struct mw_plan plan;
    bool has_plan;
    struct mw_hwdb *db;
    struct mw_cost_ctx cost;
    const struct mw_dev_ops *dev_ops;
    struct mw_dev *dev;
    size_t driver_bytes; /* of the device in use before anything is made */
    struct mw_job job;
    struct mw_rec rec;
    struct mw_exec ex;
    bool is_open;
    struct mw_reference ref;
    char *text;
    struct mw_beat *beats; /* [ranks] or NULL */
    struct mw_err *err;
    struct mw_drive_result *out;
};

/* ---- set-up ------------------------------------------------------------- */
static enum mw_status check_ranks(const struct drive *d)
{
    int want = mw_layout_ranks(&d->plan.layout);
    if (want != d->world->size) {
        return mw_fail(
            d->err, MW_EUSAGE,
            "%s needs %d ranks (tp %d x cp %d x pp %d x dp %d) but %d "
            "run",
            d->opts->plan, want, d->plan.layout.tp, d->plan.layout.cp,
            d->plan.layout.pp, d->plan.layout.dp, d->world->size);
    }
    return MW_OK;
}

/* A token needs one behind it. */
static enum mw_status read_text(struct drive *d)
{
    const char *file = d->opts->text;
    if (!file) {
        return MW_OK;
    }
    MW_TRY(mw_file_read(file, TEXT_BYTES_MAX, &d->text, &d->job.text_bytes,
                        d->err));
    if (d->job.text_bytes < 2) {
        return mw_fail(d->err, MW_EINPUT,
                       "%s: has %zu bytes; training needs a text of 2 or more",
                       file, d->job.text_bytes);
    }
    d->job.text = d->text;
    return MW_OK;
}

static enum mw_status load(struct drive *d)
{
    const struct mw_drive_opts *o = d->opts;
    MW_TRY(mw_plan_load_own(o->plan, &d->scenario, &d->plan, d->err));
    d->has_plan = true;
    MW_TRY(check_ranks(d));
    mw_job_from_plan(&d->job, &d->scenario, &d->plan);
    enum mw_status st = mw_job_check(&d->job, o->backend, d->err);
    if (st != MW_OK) {
        mw_job_blame(o->plan, &d->scenario, d->err);
        return st;
    }
    MW_TRY(read_text(d));
    MW_TRY(mw_hwdb_load(o->hwdb, &d->db, d->err));
    mw_coll_library_lend(d->db);
    MW_TRY(mw_fingerprint_check(d->db, d->world->size, d->err));
    const struct mw_cluster *c = &d->scenario.cluster;
    st = mw_cost_ctx_init(&d->cost, d->db, c->system, c->n_nodes,
                          c->gpus_per_node, d->err);
    if (st == MW_EINPUT) {
        mw_scenario_blame(&d->scenario, d->err);
    }
    return st;
}

/* Messages go between the stages that have all other coordinates in common, and
 * between neighbours in a ring of context parallelism. */
static int peers_of(const struct mw_layout *l, int rank, int *peers)
{
    const struct mw_coord own = mw_layout_coord(l, rank);
    int n = 0;
    for (int i = 0; i < l->pp; i++) {
        struct mw_coord at = own;
        at.pp = i;
        if (i != own.pp) {
            peers[n++] = mw_layout_rank(l, at);
        }
    }
    bool is_ring = l->cp_form == MW_CP_RING || l->cp_form == MW_CP_PASSQ;
    for (int i = 0; i < l->cp && is_ring; i++) {
        struct mw_coord at = own;
        int ahead = (i - own.cp + l->cp) % l->cp, step = mw_context_ways(l);
        at.cp = i;
        if (ahead == step || (ahead > step && ahead == l->cp - step)) {
            peers[n++] = mw_layout_rank(l, at);
        }
    }
    return n;
}

static enum mw_status open_comm(struct drive *d)
{
    const struct mw_layout *l = &d->plan.layout;
    if (!d->dev_ops->wrap_comm) {
        d->comm = d->world;
        return MW_OK;
    }
    int *peers = mw_calloc((size_t)(l->pp + l->cp), sizeof *peers);
    int n = peers_of(l, d->world->rank, peers);
    enum mw_status st =
        d->dev_ops->wrap_comm(d->dev, d->world, peers, n, &d->comm, d->err);
    mw_free(peers);
    return st;
}

static void open_beat(struct drive *d)
{
    if (d->opts->beats) {
        d->beats = mw_beats_open(d->opts->beats, d->world->size);
    }
    if (d->beats) {
        d->rec.beat = &d->beats[d->world->rank];
        d->rec.beat->pid = (int32_t)getpid();
    }
}

static size_t driver_bytes(const struct drive *d)
{
    return d->dev_ops->driver_bytes ? d->dev_ops->driver_bytes(d->dev) : 0;
}

/* Apart from what follows, which is collective: a rank may lack its device. */
static enum mw_status open_device(struct drive *d)
{
    MW_TRY(mw_dev_find(d->opts->backend, d->scenario.workload.dtype,
                       &d->dev_ops, d->err));
    MW_TRY(d->dev_ops->open(d->world->device, &d->dev, d->err));
    d->dev->slow = d->opts->slow;
    d->driver_bytes = driver_bytes(d);
    mw_rec_init(&d->rec, d->dev);
    open_beat(d);
    return MW_OK;
}

static enum mw_status open_all(struct drive *d)
{
    MW_TRY(open_comm(d));
    MW_TRY(mw_exec_open(&d->ex, &d->job, d->comm, d->dev, &d->rec, d->err));
    d->is_open = true;
    if (d->opts->verify) {
        MW_TRY(
            mw_reference_open(&d->ref, &d->job, d->world, d->dev_ops, d->err));
        d->ref.rec.beat = d->rec.beat;
    }
    return MW_OK;
}

/* Every rank must have succeeded before any of them may wait for another;
 * the message of the lowest failed rank stands for all. */
static enum mw_status agree(struct drive *d, enum mw_status st)
{
    struct mw_comm *w = d->world;
    double worst = st == MW_OK ? 0.0 : (double)(w->size - w->rank);
    MW_TRY(
        w->ops->all_reduce(w, &worst, 1, MW_ELEM_F64, MW_REDUCE_MAX, d->err));
    if (worst == 0.0) {
        return MW_OK;
    }
    int root = w->size - (int)worst;
    struct mw_err shared = *d->err;
    MW_TRY(w->ops->broadcast(w, &shared, sizeof shared, root, d->err));
    *d->err = shared;
    return shared.status;
}

/* ---- steps -------------------------------------------------------------- */
/* Loss is reduced outside of what is timed: a real run logs it now and then. */
static enum mw_status one_step(struct drive *d, int step)
{
    struct mw_drive_result *r = d->out;
    mw_rec_rest(&d->rec, "the beginning of a step");
    MW_TRY(d->world->ops->barrier(d->world, d->err));
    d->rec.is_on = step >= r->warmup && d->rec.n_steps < TIMED_MAX;
    mw_rec_step_begin(&d->rec);
    MW_TRY(mw_exec_walk(&d->ex));
    MW_TRY(mw_exec_reduce_gradients(&d->ex));
    bool is_checked =
        d->opts->verify && step < MW_VERIFY_STEPS && step < r->steps;
    if (is_checked) {
        mw_rec_rest(&d->rec, "verification");
        MW_TRY(mw_exec_loss(&d->ex, &r->loss[step]));
        MW_TRY(mw_verify_step(&d->ex, &d->ref, r->loss[step], &r->verdict));
    }
    MW_TRY(mw_exec_update(&d->ex));
    mw_rec_step_end(&d->rec);
    mw_rec_rest(&d->rec, "the end of a step");
    return is_checked ? MW_OK : mw_exec_loss(&d->ex, &r->loss[step]);
}

/* ---- checkpoints --------------------------------------------------------- */
static enum mw_status save(struct drive *d)
{
    const char *path = d->opts->checkpoint;
    bool is_root = d->world->rank == 0;
    enum mw_status st = MW_OK;
    if (is_root) {
        st = mw_checkpoint_begin(&d->ex, path, d->err);
    }
    MW_TRY(agree(d, st));
    MW_TRY(agree(d, mw_checkpoint_write(&d->ex, path, d->err)));
    if (is_root) {
        st = mw_checkpoint_finish(&d->ex, path, d->err);
    }
    return agree(d, st);
}

static bool saves_after(const struct drive *d, int step)
{
    int every = d->opts->checkpoint_every;
    return d->opts->checkpoint && (step == d->out->steps - 1 ||
                                   (every > 0 && (step + 1) % every == 0));
}

/* All ranks read a file that rank 0 has checked; the reference too. */
static enum mw_status read_from(struct drive *d, const char *path, bool is_base)
{
    enum mw_status st = MW_OK;
    if (!path) {
        return MW_OK;
    }
    if (d->world->rank == 0) {
        st = mw_checkpoint_check(&d->ex, path, is_base, d->err);
    }
    MW_TRY(agree(d, st));
    st = mw_checkpoint_read(&d->ex, path, is_base, d->err);
    if (st == MW_OK && d->ref.is_open) {
        st = mw_checkpoint_read(&d->ref.ex, path, is_base, d->err);
    }
    return agree(d, st);
}

static enum mw_status resume(struct drive *d)
{
    if (d->opts->base && d->job.workload->lora_rank == 0) {
        return mw_fail(d->err, MW_EUSAGE,
                       "--base: %s has no adapters, which alone leave weights "
                       "as they are; --resume goes on from a checkpoint",
                       d->opts->plan);
    }
    MW_TRY(read_from(d, d->opts->base, true));
    MW_TRY(read_from(d, d->opts->resume, false));
    d->out->first_step = d->ex.step;
    return MW_OK;
}

static enum mw_status train(struct drive *d)
{
    struct mw_drive_result *r = d->out;
    for (int step = 0; step < r->steps; step++) {
        MW_TRY(one_step(d, step));
        if (saves_after(d, step)) {
            mw_rec_rest(&d->rec, "a checkpoint");
            MW_TRY(save(d));
        }
        if (!isfinite(r->loss[step])) {
            return mw_fail(d->err, MW_EFAILED, "the loss of step %d is %g",
                           step, r->loss[step]);
        }
    }
    if (d->rec.beat) {
        d->rec.beat->is_done = true;
    }
    r->is_verified = d->opts->verify && r->verdict.is_right;
    return MW_OK;
}

/* ---- clocks ------------------------------------------------------------- */
/* Wall duration of each timed step: from the first rank's begin to the last
 * rank's end. */
static enum mw_status wall_steps(struct drive *d, double *out)
{
    const struct mw_rec *rec = &d->rec;
    size_t last = rec->events.n - 1;
    for (int s = 0; s < rec->n_steps; s++) {
        double ends[2] = {-1e-9 * (double)mw_rec_time(rec, s, 0)->begin_ns,
                          1e-9 * (double)mw_rec_time(rec, s, last)->end_ns};
        MW_TRY(d->world->ops->all_reduce(d->world, ends, 2, MW_ELEM_F64,
                                         MW_REDUCE_MAX, d->err));
        out[s] = ends[1] + ends[0];
    }
    return MW_OK;
}

static int index_of_median(const double *v, int n)
{
    int best = 0;
    double *copy = mw_calloc((size_t)n, sizeof *copy);
    memcpy(copy, v, (size_t)n * sizeof *copy);
    double median = mw_median(copy, (size_t)n);
    mw_free(copy);
    for (int i = 1; i < n; i++) {
        if (fabs(v[i] - median) < fabs(v[best] - median)) {
            best = i;
        }
    }
    return best;
}

static enum mw_status write_trace(struct drive *d, const struct mw_moment *at,
                                  double step_s)
{
    struct mw_timeline t;
    mw_timeline_init(&t);
    snprintf(t.clock, sizeof t.clock, "%s",
             d->opts->clock == MW_CLOCK_WALL ? "wall" : "virtual");
    snprintf(t.plan_hash, sizeof t.plan_hash, "%s", d->out->plan_hash);
    t.step_time_s = step_s;
    enum mw_status st = mw_trace_gather(&d->ex, at, &t, d->err);
    if (st == MW_OK && d->world->rank == 0) {
        st = mw_timeline_write_chrome(&t, d->opts->trace, d->err);
    }
    mw_timeline_release(&t);
    return st;
}

struct clocks {
    double *busy_s, *cost_s, *wall_s, *virtual_s;
    struct mw_moment *at;
};

/* All steps usually take as long, but for what routers send to whom: the step
 * in the middle then stands for all. */
static enum mw_status usual_step(struct drive *d, struct clocks *c, int *out)
{
    *out = 0;
    for (int s = 0; s < d->rec.n_steps && d->plan.layout.ep > 1; s++) {
        mw_replay_usual(&d->rec, s, c->busy_s);
        MW_TRY(mw_replay(&d->ex, c->busy_s, c->cost_s, NULL, &c->virtual_s[s],
                         d->err));
    }
    if (d->plan.layout.ep > 1) {
        *out = index_of_median(c->virtual_s, d->rec.n_steps);
    }
    return MW_OK;
}

static enum mw_status measure_virtual(struct drive *d, struct clocks *c)
{
    int step;
    struct mw_drive_result *r = d->out;
    mw_replay_costs(&d->ex, &d->cost, c->cost_s);
    for (int s = 0; s < d->rec.n_steps; s++) {
        mw_replay_busy(&d->rec, s, c->busy_s);
        MW_TRY(mw_replay(&d->ex, c->busy_s, c->cost_s, NULL, &c->virtual_s[s],
                         d->err));
    }
    r->virtual_cv = mw_cv(c->virtual_s, (size_t)d->rec.n_steps);
    MW_TRY(usual_step(d, c, &step));
    mw_replay_usual(&d->rec, step, c->busy_s);
    return mw_replay(&d->ex, c->busy_s, c->cost_s, c->at,
                     &r->virtual_step_time_s, d->err);
}

static enum mw_status measure_all(struct drive *d, struct clocks *c)
{
    struct mw_drive_result *r = d->out;
    size_t n = (size_t)d->rec.n_steps;
    MW_TRY(measure_virtual(d, c));
    MW_TRY(wall_steps(d, c->wall_s));
    int median = index_of_median(c->wall_s, d->rec.n_steps);
    if (d->opts->trace) {
        bool is_wall = d->opts->clock == MW_CLOCK_WALL;
        if (is_wall) {
            MW_TRY(mw_trace_wall_moments(&d->ex, median, c->at, d->err));
        }
        MW_TRY(write_trace(
            d, c->at, is_wall ? c->wall_s[median] : r->virtual_step_time_s));
    }
    r->step_time_cv = mw_cv(c->wall_s, n);
    r->step_time_s = mw_median(c->wall_s, n);
    return MW_OK;
}

static enum mw_status measure(struct drive *d)
{
    struct mw_arena *a = &d->out->arena;
    size_t n = d->rec.events.n, steps = (size_t)d->rec.n_steps;
    struct clocks c = {.busy_s = mw_arena_alloc(a, n, sizeof(double)),
                       .cost_s = mw_arena_alloc(a, n, sizeof(double)),
                       .wall_s = mw_arena_alloc(a, steps, sizeof(double)),
                       .virtual_s = mw_arena_alloc(a, steps, sizeof(double)),
                       .at = mw_arena_alloc(a, n, sizeof *c.at)};
    return measure_all(d, &c);
}

/* ---- report ------------------------------------------------------------- */
static enum mw_status gather_memory(struct drive *d)
{
    struct mw_drive_result *r = d->out;
    struct mw_comm *w = d->world;
    const struct {
        double mine;
        double *all;
    } marks[] = {
        {(double)d->dev->peak_bytes, r->peak_bytes},
        {(double)d->ex.act_peak_bytes, r->activation_peak_bytes},
        {mw_job_activation_peak(&d->job, d->ex.at.pp),
         r->predicted_activation_bytes},
        {(double)d->ex.kept_peak_bytes, r->kept_peak_bytes},
        {(double)d->dev->host_peak_bytes, r->host_peak_bytes},
        {(double)driver_bytes(d) - (double)d->driver_bytes, r->driver_bytes}};
    for (size_t i = 0; i < sizeof marks / sizeof *marks; i++) {
        MW_TRY(w->ops->gather(w, &marks[i].mine, sizeof(double), marks[i].all,
                              0, d->err));
    }
    return MW_OK;
}

static enum mw_status gather_traffic(struct drive *d)
{
    struct mw_comm *w = d->world;
    struct mw_traffic mine;
    mw_rec_traffic(&d->rec, &mine);
    return w->ops->gather(w, &mine, sizeof mine, d->out->traffic, 0, d->err);
}

static enum mw_status verdict_status(struct drive *d)
{
    const struct mw_verdict *v = &d->out->verdict;
    if (!d->opts->verify || v->is_right) {
        return MW_OK;
    }
    return mw_fail(d->err, MW_ENO,
                   "not verified: %s of step %d on rank %d differs from the "
                   "one-rank run by %.3g of its maximum (allowed %.3g)",
                   v->tensor, v->step, v->rank, v->error, v->tolerance);
}

static void begin_result(struct drive *d)
{
    struct mw_drive_result *r = d->out;
    size_t n = (size_t)d->world->size;
    r->n_ranks = d->world->size;
    r->steps = d->opts->steps;
    int warmup = d->opts->warmup ? d->opts->warmup : MW_VERIFY_STEPS;
    r->warmup = r->steps > warmup ? warmup : r->steps - 1;
    r->verdict.is_right = true;
    r->verdict.error = -1.0;
    r->loss = mw_arena_alloc(&r->arena, (size_t)r->steps, sizeof *r->loss);
    r->peak_bytes = mw_arena_alloc(&r->arena, n, sizeof *r->peak_bytes);
    r->activation_peak_bytes = mw_arena_alloc(&r->arena, n, sizeof(double));
    r->predicted_activation_bytes =
        mw_arena_alloc(&r->arena, n, sizeof(double));
    r->kept_peak_bytes = mw_arena_alloc(&r->arena, n, sizeof(double));
    r->host_peak_bytes = mw_arena_alloc(&r->arena, n, sizeof(double));
    r->driver_bytes = mw_arena_alloc(&r->arena, n, sizeof(double));
    r->traffic = mw_arena_alloc(&r->arena, n, sizeof *r->traffic);
    r->predicted_step_time_s =
        d->plan.has_predicted ? d->plan.predicted.step_time_s : (double)NAN;
    snprintf(r->plan_hash, sizeof r->plan_hash, "%016" PRIx64,
             mw_plan_hash(&d->plan));
    snprintf(r->mode, sizeof r->mode, "%s", mw_fingerprint_mode(r->n_ranks));
}

static enum mw_status run(struct drive *d)
{
    MW_TRY(agree(d, load(d)));
    MW_TRY(agree(d, open_device(d)));
    MW_TRY(agree(d, open_all(d)));
    begin_result(d);
    MW_TRY(resume(d));
    MW_TRY(train(d));
    mw_reference_close(&d->ref);
    MW_TRY(measure(d));
    MW_TRY(gather_memory(d));
    MW_TRY(gather_traffic(d));
    return verdict_status(d);
}

static void close_all(struct drive *d)
{
    mw_reference_close(&d->ref);
    if (d->is_open) {
        mw_exec_close(&d->ex);
    }
    mw_rec_release(&d->rec);
    if (d->comm && d->comm != d->world) {
        d->comm->ops->free(d->comm);
    }
    if (d->dev) {
        d->dev->ops->close(d->dev);
    }
    mw_beats_close(d->beats, d->world->size);
    mw_hwdb_free(d->db);
    mw_free(d->text);
    if (d->has_plan) {
        mw_plan_release(&d->plan);
        mw_scenario_release(&d->scenario);
    }
}

enum mw_status mw_drive_run(const struct mw_drive_opts *opts,
                            struct mw_comm *world, struct mw_drive_result *out,
                            struct mw_err *err)
{
    struct drive *d = mw_calloc(1, sizeof *d);
    *out = (struct mw_drive_result){0};
    mw_arena_init(&out->arena);
    d->opts = opts;
    d->world = world;
    d->err = err;
    d->out = out;
    enum mw_status st = run(d);
    close_all(d);
    mw_free(d);
    return st;
}

void mw_drive_result_release(struct mw_drive_result *r)
{
    mw_arena_release(&r->arena);
}
