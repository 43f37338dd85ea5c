/*
 * Fitting memory: the constants of stacks are set to the parameters, every row
 * is predicted again in memory alone, residuals are logs of predicted over
 * measured. Derivatives by one-sided differences of 2 %; a step of all
 * parameters by fit_solve.h.
 *
 * Priors are what the sources of the software say, or what a caching allocator
 * is known to waste, made without the data. One per cent of error is
 * one unit of a figure on its own: memory of static shapes is exact.
 */
#include "hwdb/fit/tensor_fit.h"

#include "hwdb/fit/fit_solve.h"

#include <math.h>
#include <string.h>

const struct mw_fit_param mw_tensor_params[] = {
    {"memory_reserve_factor.megatron-core", 1.02, 1.0001, 1.3, 0.02},
    {"memory_reserve_vocab_bytes.megatron-core", 2, 0.1, 8, 0.7},
    {"memory_reserve_factor.zero-bubble", 1.04, 1.0001, 1.3, 0.01},
    {"memory_reserve_factor.megatron-deepspeed", 1.04, 1.0001, 1.3, 0.01},
    {"memory_reserve_pass.megatron-deepspeed", 1, 0.05, 4, 0.7},
    {"memory_reserve_factor.internevo", 1.04, 1.0001, 1.3, 0.01},
    {"memory_reserve_factor.internevo-fsdp", 1.06, 1.0001, 1.3, 0.03},
    {"memory_kept_factor.nanotron", 1.2, 1, 3, 0.2},
    {"memory_reserve_queued.nanotron", 32, 1, 200, 0.7},
    {"memory_logit_peak_bytes.nanotron", 10, 2, 24, 0.3},
    {"memory_reserve_factor.nanotron", 1.04, 1.0001, 1.3, 0.01},
    {"memory_reserve_factor.torchtitan", 1.04, 1.0001, 1.3, 0.01},
    {"memory_reserve_factor.torchtitan-eager", 1.06, 1.0001, 1.3, 0.01},
    {"memory_logit_peak_bytes.torchtitan", 6, 2, 24, 0.3},
    {"memory_logit_peak_bytes.torchtitan-2024", 14, 2, 24, 0.3},
    {"memory_kept_factor.litgpt", 1.3, 1, 3, 0.2},
    {"memory_kept_frozen.litgpt", 1, 0.1, 3, 0.5},
    {"memory_load_whole.litgpt", 1.05, 1, 1.5, 0.1},
    {"memory_grads_factor.galvatron", 0.5, 0.2, 3, 0.4},
    {"memory_tp_kept.galvatron", 0.5, 0.1, 3, 0.5},
    {"memory_workspace_bytes.deepspeed", 8e9, 1e8, 2e10, 0.5},
    {"memory_reserve_factor.deepspeed", 1.04, 1.0001, 1.3, 0.01},
};

enum {
    N_PARAMS = sizeof mw_tensor_params / sizeof mw_tensor_params[0],
    ROUNDS = 30
};

size_t mw_tensor_param_count(void)
{
    return N_PARAMS;
}

static double clamp(size_t k, double x)
{
    return mw_fit_clamp(&mw_tensor_params[k], x);
}

static void set_all(const struct mw_tensor_fit *f, const double *x)
{
    mw_fit_params_set(f->db, mw_tensor_params, f->p, x);
}

static const struct mw_validate_row *row_of(const struct mw_tensor_fit *f,
                                            size_t i)
{
    return &f->v->rows.v[f->figure[i].row];
}

/* Figures of a row follow each other: the first predicts them all. */
static double residual(const struct mw_tensor_fit *f, size_t i)
{
    const struct mw_tensor_figure *g = &f->figure[i];

    if (i == 0 || f->figure[i - 1].row != g->row) {
        bool is_predicted = mw_validate_memory_again(f->v, g->row);

        MW_ASSERT(is_predicted, "row %s", row_of(f, i)->id);
    }
    const struct mw_validate_memory *m = &row_of(f, i)->memory[g->k];

    return log(m->predicted_bytes / m->measured_bytes);
}

static void residuals(const struct mw_tensor_fit *f, const double *x,
                      double *out)
{
    set_all(f, x);
    for (size_t i = 0; i < f->n; i++) {
        out[i] = residual(f, i);
    }
}

/* ---- data ------------------------------------------------------------------
 */
static void weigh(struct mw_tensor_fit *f)
{
    for (size_t i = 0; i < f->n; i++) {
        size_t same = 0;

        for (size_t j = 0; j < f->n; j++) {
            same += row_of(f, j)->file == row_of(f, i)->file;
        }
        f->figure[i].weight = 1e4 / sqrt((double)same);
    }
}

enum mw_status mw_tensor_fit_init(struct mw_tensor_fit *f, struct mw_hwdb *db,
                                  struct mw_validate *v, struct mw_err *err)
{
    size_t most = MW_MEMORY_PER_ROW * v->rows.n + 1;

    *f = (struct mw_tensor_fit){.db = db, .v = v, .p = N_PARAMS};
    enum mw_status status =
        mw_fit_params_check(db, mw_tensor_params, f->p, err);

    if (status != MW_OK) {
        return status;
    }
    f->figure = mw_calloc(most, sizeof *f->figure);
    f->jacobian = mw_calloc(most * f->p, sizeof *f->jacobian);
    f->x = mw_calloc(f->p, sizeof *f->x);
    for (size_t i = 0; i < v->rows.n; i++) {
        for (int k = 0; v->rows.v[i].skipped == NULL && !v->rows.v[i].is_oom &&
                        k < v->rows.v[i].n_memory;
             k++) {
            f->figure[f->n++] = (struct mw_tensor_figure){.row = i, .k = k};
        }
    }
    for (size_t k = 0; k < f->p; k++) {
        f->x[k] = log(mw_tensor_params[k].prior);
    }
    weigh(f);
    return MW_OK;
}

void mw_tensor_fit_release(struct mw_tensor_fit *f)
{
    mw_free(f->figure);
    mw_free(f->jacobian);
    mw_free(f->x);
}

/* ---- steps -----------------------------------------------------------------
 */
struct work {
    double prior[N_PARAMS], sd[N_PARAMS];
    double *r, *weight, *trial; /* [n] */
};

static struct work work_of(const struct mw_tensor_fit *f)
{
    struct work w = {.r = mw_calloc(f->n + 1, sizeof *w.r),
                     .weight = mw_calloc(f->n + 1, sizeof *w.weight),
                     .trial = mw_calloc(f->n + 1, sizeof *w.trial)};

    for (size_t k = 0; k < N_PARAMS; k++) {
        w.prior[k] = log(mw_tensor_params[k].prior);
        w.sd[k] = mw_tensor_params[k].sd;
    }
    for (size_t i = 0; i < f->n; i++) {
        w.weight[i] = f->figure[i].weight;
    }
    return w;
}

static void release_work(struct work *w)
{
    mw_free(w->r);
    mw_free(w->weight);
    mw_free(w->trial);
}

/* Of all figures that weigh anything; the others' slopes are not needed. */
static void differentiate(struct mw_tensor_fit *f, double *x, struct work *w)
{
    const double h = log(1.02);

    residuals(f, x, w->r);
    for (size_t k = 0; k < f->p; k++) {
        /* Away from the bound that the constant may sit on. */
        double way = x[k] + h > log(mw_tensor_params[k].most) ? -h : h;
        double kept = x[k];

        x[k] = kept + way;
        residuals(f, x, w->trial);
        for (size_t i = 0; i < f->n; i++) {
            f->jacobian[i * f->p + k] = (w->trial[i] - w->r[i]) / way;
        }
        x[k] = kept;
    }
}

/* Constants of one stack and its variants ("torchtitan-eager") share rows. */
static bool share_rows(size_t a, size_t b)
{
    const char *s = strrchr(mw_tensor_params[a].name, '.');
    const char *t = strrchr(mw_tensor_params[b].name, '.');

    while (s && t && *s == *t && *s != '\0') {
        s++;
        t++;
    }
    return (!s && !t) ||
           (s && t && (*s == '\0' || *s == '-') && (*t == '\0' || *t == '-'));
}

static double loss_of(const struct mw_tensor_fit *f, const double *x,
                      struct work *w)
{
    residuals(f, x, w->trial);
    return mw_fit_loss(f->n, f->p, w->trial, w->weight, x, w->prior, w->sd);
}

/* Moves the constants of k's stack along the step, halved until the loss
 * falls; what is left of the loss. */
static double search_line(const struct mw_tensor_fit *f, size_t k, double loss,
                          const double *step, double *x, struct work *w)
{
    double next[N_PARAMS];

    for (double scale = 1; scale > 0.01; scale /= 2) {
        memcpy(next, x, sizeof next);
        for (size_t o = k; o < f->p; o++) {
            if (share_rows(k, o)) {
                next[o] = clamp(o, x[o] + scale * step[o]);
            }
        }
        double now = loss_of(f, next, w);

        if (now < loss) {
            memcpy(x, next, sizeof next);
            return now;
        }
    }
    return loss;
}

/* One step of all constants, stack by stack. False: there is nothing to gain.
 */
static bool improve(struct mw_tensor_fit *f, double *x, struct work *w)
{
    double step[N_PARAMS];

    differentiate(f, x, w);
    double before =
        mw_fit_loss(f->n, f->p, w->r, w->weight, x, w->prior, w->sd);
    double loss = before;

    if (!mw_fit_step(f->n, f->p, w->r, f->jacobian, w->weight, x, w->prior,
                     w->sd, step)) {
        return false;
    }
    for (size_t k = 0; k < f->p; k++) {
        bool is_first = true;

        for (size_t o = 0; o < k; o++) {
            is_first = is_first && !share_rows(k, o);
        }
        if (is_first) {
            loss = search_line(f, k, loss, step, x, w);
        }
    }
    return loss < before * (1 - 1e-5);
}

void mw_tensor_fit_run(struct mw_tensor_fit *f)
{
    struct work w = work_of(f);

    for (int round = 0; round < ROUNDS && improve(f, f->x, &w); round++) {
    }
    differentiate(f, f->x, &w);
    residuals(f, f->x, w.r);
    for (size_t i = 0; i < f->n; i++) {
        f->figure[i].r = w.r[i];
    }
    release_work(&w);
}

static void leave_out_cell(struct mw_tensor_fit *f, const char *cell,
                           struct work *w)
{
    double step[N_PARAMS], x[N_PARAMS];

    for (size_t i = 0; i < f->n; i++) {
        bool is_out = strcmp(row_of(f, i)->cell, cell) == 0;

        w->r[i] = f->figure[i].r;
        w->weight[i] = is_out ? 0 : f->figure[i].weight;
    }
    memcpy(x, f->x, sizeof x);
    if (mw_fit_step(f->n, f->p, w->r, f->jacobian, w->weight, x, w->prior,
                    w->sd, step)) {
        for (size_t k = 0; k < f->p; k++) {
            x[k] = clamp(k, x[k] + step[k]);
        }
    }
    residuals(f, x, w->trial);
    for (size_t i = 0; i < f->n; i++) {
        if (strcmp(row_of(f, i)->cell, cell) == 0) {
            f->figure[i].left_out = w->trial[i];
        }
    }
}

void mw_tensor_fit_leave_out(struct mw_tensor_fit *f)
{
    struct work w = work_of(f);

    for (size_t i = 0; i < f->n; i++) {
        bool is_first = true;

        for (size_t j = 0; j < i && is_first; j++) {
            is_first = strcmp(row_of(f, j)->cell, row_of(f, i)->cell) != 0;
        }
        if (is_first) {
            leave_out_cell(f, row_of(f, i)->cell, &w);
        }
    }
    residuals(f, f->x, w.r);
    release_work(&w);
}
