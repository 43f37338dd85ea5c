/*
 * Comparison with the one-rank reference; see verify.h.
 */
#include "exec/verify.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static enum mw_status open_on_root(struct mw_reference *ref,
                                   const struct mw_dev_ops *dev_ops,
                                   struct mw_err *err)
{
    MW_TRY(dev_ops->open(0, &ref->dev, err));
    mw_rec_init(&ref->rec, ref->dev);
    MW_TRY(
        mw_exec_open(&ref->ex, &ref->job, ref->self, ref->dev, &ref->rec, err));
    ref->is_open = true;
    return MW_OK;
}

enum mw_status mw_reference_open(struct mw_reference *ref,
                                 const struct mw_job *job,
                                 struct mw_comm *world,
                                 const struct mw_dev_ops *dev_ops,
                                 struct mw_err *err)
{
    const struct mw_coord origin = {0, 0, 0, 0};
    *ref = (struct mw_reference){0};
    MW_TRY(world->ops->split(world, world->rank, 0, &ref->self, err));
    ref->layers = mw_calloc((size_t)job->n_virtual, sizeof *ref->layers);
    MW_TRY(mw_job_fold(job, ref->layers, &ref->schedule, &ref->job, err));
    ref->has_job = true;
    mw_shards_make(&ref->shards, &ref->job, origin);
    ref->g = mw_calloc(ref->shards.n_learning, sizeof *ref->g);
    return world->rank == 0 ? open_on_root(ref, dev_ops, err) : MW_OK;
}

void mw_reference_close(struct mw_reference *ref)
{
    if (ref->is_open) {
        mw_exec_close(&ref->ex);
    }
    mw_rec_release(&ref->rec);
    if (ref->dev) {
        ref->dev->ops->close(ref->dev);
    }
    if (ref->self) {
        ref->self->ops->free(ref->self);
    }
    if (ref->has_job) {
        mw_schedule_release(&ref->schedule);
        mw_shards_release(&ref->shards);
    }
    mw_free(ref->layers);
    mw_free(ref->g);
    *ref = (struct mw_reference){0};
}

/* ---- tolerances --------------------------------------------------------- */
/* Pipelines of whole sequences add in the reference's order; from ZeRO-2 on two
 * routes add micro-batch by micro-batch. A host that updates a part of the
 * weights rounds otherwise than a GPU. */
static bool is_exact(const struct mw_exec *ex)
{
    const struct mw_job *job = ex->job;
    const struct mw_layout *l = &job->layout;
    bool adds_pairs = job->schedule->n_routes == 2 && l->zero >= 2;
    bool is_mixed = l->offload_optimizer > 0 && ex->dev->ops != &mw_dev_host;
    return l->tp == 1 && l->dp == 1 && l->cp == 1 &&
           job->schedule->n_parts == 1 && !adds_pairs && !is_mixed;
}

static double gradient_tolerance(const struct mw_exec *ex)
{
    const struct mw_layout *l = &ex->job->layout;
    if (is_exact(ex)) {
        return 0.0;
    }
    bool is_wide = ex->elem == MW_ELEM_F32;
    /* An expert that hears from several ranks multiplies more rows at once, and
     * BLAS adds those otherwise: bfloat16 then rounds the other way at times.
     */
    bool is_whole = is_wide || (ex->job->schedule->n_parts == 1 &&
                                l->etp == 1 && l->ep == 1);
    if (l->tp == 1 && l->cp == 1 && is_whole && ex->step == 0) {
        return 1e-5;
    }
    if (is_wide) {
        return 2e-4;
    }
    /* A token that is as good as undecided goes to another expert. */
    return ex->dims.n_experts > 0 ? 2e-1 : 5e-2;
}

static double loss_tolerance(const struct mw_exec *ex)
{
    if (is_exact(ex)) {
        return 0.0;
    }
    return ex->elem == MW_ELEM_F32 ? 2e-6 : 1e-3;
}

/* ---- one tensor --------------------------------------------------------- */
static const struct mw_slice *find_same(const struct mw_shards *shards,
                                        const struct mw_slice *s)
{
    for (size_t i = 0; i < shards->slices.n; i++) {
        const struct mw_slice *o = &shards->slices.v[i];
        if (o->id == s->id && o->is_tied == s->is_tied) {
            return o;
        }
    }
    return NULL;
}

static double max_abs(const float *v, size_t n)
{
    double max = 0.0;
    for (size_t i = 0; i < n; i++) {
        max = fmax(max, fabs((double)v[i]));
    }
    return max;
}

/*
 * Largest difference of the owned part of a slice, over the maximum of the
 * whole reference tensor. Not a number counts as infinite.
 */
static double slice_error(const struct mw_exec *ex, const struct mw_slice *s,
                          const float *mine, const float *ref, size_t n_ref)
{
    struct mw_range owned = mw_slice_owned(ex, s);
    if (owned.n == 0) {
        return 0.0;
    }
    size_t skip = owned.first - s->offset;
    mine += mw_stored_at(ex, MW_BUFFER_GRAD, &owned);
    double max = max_abs(ref, n_ref), worst = 0.0;
    for (size_t i = 0; i < owned.n; i++) {
        float r = ref[mw_slice_whole_index(s, skip + i)];
        if (memcmp(&mine[i], &r, sizeof r) == 0) {
            continue;
        }
        double d = fabs((double)mine[i] - (double)r);
        if (!(d <= 3e38)) {
            return HUGE_VAL;
        }
        worst = fmax(worst, d);
    }
    return worst == 0.0 ? 0.0 : worst / (max > 0.0 ? max : 1.0);
}

/* ---- all ranks ---------------------------------------------------------- */
struct finding {
    double error, tolerance;
    char tensor[MW_VERIFY_NAME_MAX];
};

static void name_slice(const struct mw_exec *ex, const struct mw_slice *s,
                       char out[MW_VERIFY_NAME_MAX])
{
    int layer = s->param->layer;
    if (layer >= 0 && layer < ex->job->model->n_layers) {
        snprintf(out, MW_VERIFY_NAME_MAX, "layer %d %s", layer, s->param->name);
    } else {
        snprintf(out, MW_VERIFY_NAME_MAX, "%s%s", s->param->name,
                 s->is_tied ? " (tied head)" : "");
    }
}

static void compare_gradients(const struct mw_exec *ex,
                              const struct mw_reference *ref, const float *mine,
                              struct finding *out)
{
    out->tolerance = gradient_tolerance(ex);
    out->error = -1.0;
    for (size_t i = 0; i < ex->shards.slices.n; i++) {
        const struct mw_slice *s = &ex->shards.slices.v[i];
        if (s->is_frozen) {
            continue;
        }
        const struct mw_slice *o = find_same(&ref->shards, s);
        MW_ASSERT(o, "the reference lacks %s", s->param->name);
        double error = slice_error(ex, s, mine, ref->g + o->offset, o->n);
        if (error > out->error) {
            out->error = error;
            name_slice(ex, s, out->tensor);
        }
    }
}

static bool is_wrong(const struct finding *f)
{
    return !(f->error <= f->tolerance);
}

/* Keeps the first wrong finding; until then, the largest error. */
static void judge(struct mw_verdict *v, const struct finding *f, int step,
                  int rank)
{
    bool is_first_wrong = v->is_right && is_wrong(f);
    if (is_first_wrong || (v->is_right && f->error > v->error)) {
        memcpy(v->tensor, f->tensor, sizeof v->tensor);
        v->step = step;
        v->rank = rank;
        v->error = f->error;
        v->tolerance = f->tolerance;
    }
    if (is_wrong(f)) {
        v->is_right = false;
    }
}

static enum mw_status collect(struct mw_exec *ex, const struct finding *mine,
                              struct mw_verdict *v)
{
    struct mw_comm *w = ex->world;
    size_t n = (size_t)w->size;
    struct finding *all = mw_calloc(n, sizeof *all);
    enum mw_status st = w->ops->gather(w, mine, sizeof *mine, all, 0, ex->err);
    if (st == MW_OK) {
        st = w->ops->broadcast(w, all, n * sizeof *all, 0, ex->err);
    }
    for (size_t r = 0; r < n && st == MW_OK; r++) {
        judge(v, &all[r], ex->step, (int)r);
        v->max_error = fmax(v->max_error, all[r].error);
    }
    mw_free(all);
    return st;
}

static void compare_loss(const struct mw_exec *ex, double loss, double ref_loss,
                         struct mw_verdict *v)
{
    struct finding f = {.tolerance = loss_tolerance(ex), .tensor = "loss"};
    f.error = fabs(loss - ref_loss) / fabs(ref_loss);
    if (!isfinite(f.error)) {
        f.error = HUGE_VAL;
    }
    v->max_loss_error = fmax(v->max_loss_error, f.error);
    if (is_wrong(&f)) {
        judge(v, &f, ex->step, 0);
    }
}

/* The reference's step on rank 0; its loss and gradients to all. */
static enum mw_status run_reference(struct mw_exec *ex,
                                    struct mw_reference *ref, double *out_loss)
{
    struct mw_comm *w = ex->world;
    size_t n = ref->shards.n_learning;
    double loss = 0.0;
    if (ref->is_open) {
        MW_TRY(mw_exec_walk(&ref->ex));
        MW_TRY(mw_exec_reduce_gradients(&ref->ex));
        MW_TRY(mw_exec_loss(&ref->ex, &loss));
        ref->dev->ops->to_host(ref->dev, ref->g, ref->ex.g, n * sizeof *ref->g);
        MW_TRY(mw_exec_update(&ref->ex));
    }
    MW_TRY(w->ops->broadcast(w, &loss, sizeof loss, 0, ex->err));
    *out_loss = loss;
    return w->ops->broadcast(w, ref->g, n * sizeof *ref->g, 0, ex->err);
}

enum mw_status mw_verify_step(struct mw_exec *ex, struct mw_reference *ref,
                              double loss, struct mw_verdict *verdict)
{
    struct finding worst = {0};
    double ref_loss;
    size_t n = mw_buffer_size(ex, MW_BUFFER_GRAD);
    MW_TRY(run_reference(ex, ref, &ref_loss));
    float *mine = mw_calloc(n, sizeof *mine);
    ex->dev->ops->to_host(ex->dev, mine, ex->g, n * sizeof *mine);
    compare_gradients(ex, ref, mine, &worst);
    mw_free(mine);
    compare_loss(ex, loss, ref_loss, verdict);
    return collect(ex, &worst, verdict);
}
