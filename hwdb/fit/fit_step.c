/*
 * Fitting: the database's constants are set to the parameters, every row is
 * predicted again by the fast form, residuals are logs of predicted over
 * measured. Derivatives by one-sided differences of 2 %.
 *
 * Priors are physical guesses made without the data: a device keeps 0.9 of its
 * benchmark clock (0.97 in FP4, whose benchmarks reach half of the peak and
 * leave the power limit alone), eager PyTorch issues an operator of ours (two
 * to three kernels) in about 25 us, ranks differ by half a per cent.
 * FlashAttention 3 reaches 616 TFLOP/s forward and 561 backward on an H100
 * whose products reach 794 (Shah et al., arXiv:2407.08608, figures 5 and 6; 16k
 * tokens, heads of 128). What DeepSpeed's engine leaves between two operators
 * is anything from a gap of the device to twice the time that the host takes to
 * issue one. A B200's products of a TFLOP and more keep 0.62 of the best one
 * when they follow one another, and experts' products 0.9 of their rate
 * (kernels timed for SimuMax, configs/system/b200_bf16_ceperm.json); some
 * hundred small kernels of ten microseconds route a layer of experts. Of a
 * transfer that a stack hides, half is taken to cost time inside a layer, three
 * tenths beside the other product, a tenth beside other layers; a fifth of what
 * is hidden is the work's slowing (sim/step/contend.c: 24 channels of an H100's
 * 132 multiprocessors), so that 3/8, 1/8 and next to nothing are left as shown.
 * Megatron's Python of 2024 issues a collective as that of 2021 did; the slower
 * of two sockets takes a fifth more.
 *
 * Priors of a stack and of its variants go together (fit_base.h).
 */
#include "hwdb/fit/fit_step.h"

#include "hwdb/fit/fit_base.h"
#include "hwdb/fit/fit_folds.h"
#include "hwdb/fit/fit_solve.h"

#include <math.h>
#include <string.h>

const struct mw_fit_param mw_fit_params[] = {
    {"sustained_clock.volta", 0.90, 0.5, 1, 0.1},
    {"sustained_clock.ampere", 0.90, 0.5, 1, 0.1},
    {"sustained_clock.ampere.fp16", 0.90, 0.5, 1.15, 0.1},
    {"sustained_clock.hopper", 0.90, 0.5, 1, 0.1},
    {"sustained_clock.hopper.fp8", 0.85, 0.4, 1, 0.15},
    {"sustained_clock.blackwell", 0.85, 0.4, 1, 0.15},
    {"power_limit.b200-sxm.bf16", 0.62, 0.4, 1, 0.05},
    {"sustained_clock.blackwell.fp8", 0.85, 0.4, 1, 0.15},
    {"sustained_clock.blackwell.fp4", 0.97, 0.4, 1, 0.1},
    {"sustained_clock.blackwell-ultra", 0.85, 0.4, 1, 0.15},
    {"sustained_clock.blackwell-ultra.fp8", 0.85, 0.4, 1, 0.15},
    {"sustained_clock.blackwell-ultra.fp4", 0.97, 0.4, 1, 0.1},
    {"host_op_s", 10e-6, 2e-6, 1e-4, 0.4},
    {"host_op_s.megatron-2021", 50e-6, 5e-6, 2e-4, 0.5},
    {"host_op_s.megatron-deepspeed", 50e-6, 5e-6, 2e-4, 0.5},
    {"host_op_s.torch-fsdp", 25e-6, 2e-6, 2e-4, 0.5},
    {"host_op_s.nanotron", 25e-6, 2e-6, 2e-4, 0.5},
    {"host_op_s.megatron-core", 1e-4, 2e-6, 5e-4, 0.5},
    {"host_socket_factor", 1.2, 1, 3, 0.3},
    {"host_coll_s", 2e-5, 2e-6, 5e-4, 0.7},
    {"host_coll_s.megatron-2021", 1e-4, 1e-5, 1e-3, 0.5},
    {"host_coll_s.megatron-core", 1e-4, 1e-5, 1e-3, 0.5},
    {"host_moe_s", 4e-3, 1e-4, 0.05, 0.5},
    {"grouped_share", 0.85, 0.3, 1, 0.2},
    {"grouped_share.megatron-core-serial", 0.9, 0.3, 1.2, 0.2},
    {"host_moe_s.megatron-core-serial", 4e-3, 1e-4, 0.05, 0.5},
    {"host_moe_s.megatron-core", 6e-3, 1e-4, 0.05, 0.5},
    {"op_gap_s", 2e-6, 1e-7, 3e-5, 0.7},
    {"op_gap_s.megatron-2021", 5e-6, 1e-7, 5e-5, 0.7},
    {"op_gap_s.megatron-deepspeed", 2e-5, 1e-7, 1e-4, 1.2},
    {"op_gap_s.torch-fsdp", 5e-6, 1e-7, 5e-5, 0.7},
    {"op_gap_s.nanotron", 5e-6, 1e-7, 5e-5, 0.7},
    {"op_gap_s.zero-bubble", 5e-6, 1e-7, 5e-5, 0.7},
    {"coll_gap_s", 1e-5, 1e-6, 2e-4, 0.7},
    {"moe_gap_s.megatron-core-serial", 1e-3, 1e-5, 5e-3, 0.7},
    {"coll_gap_s.megatron-core-serial", 2e-5, 1e-6, 2e-4, 0.7},
    {"op_gap_s.megatron-core-serial", 5e-6, 1e-7, 5e-5, 0.7},
    {"coll_gap_s.megatron-2021", 2e-5, 1e-6, 5e-4, 0.7},
    {"coll_gap_s.megatron-deepspeed", 2e-5, 1e-6, 5e-4, 0.7},
    {"host_step_s", 5e-3, 1e-4, 0.2, 1},
    {"host_step_s.megatron-core", 5e-3, 1e-4, 0.2, 1},
    {"host_step_s.megatron-core-serial", 5e-3, 1e-4, 0.2, 1},
    {"host_step_s.torch-fsdp", 1e-2, 1e-4, 0.2, 1},
    {"host_step_s.nanotron", 1e-2, 1e-4, 0.2, 1},
    {"host_step_s.megatron-2021-composed", 1e-3, 1e-5, 0.2, 1},
    {"step_param_bytes.megatron-2021-composed", 4, 0.5, 60, 0.7},
    {"host_step_s.megatron-2021", 1e-2, 1e-4, 0.2, 1},
    {"host_step_s.megatron-deepspeed", 1e-2, 1e-4, 0.2, 1},
    {"flash_efficiency_backward.hopper", 0.59, 0.3, 1, 0.2},
    {"flash_efficiency_backward.blackwell", 0.59, 0.3, 1, 0.2},
    {"fa2_share.hopper", 0.6, 0.3, 1, 0.2},
    {"attention_share.torch-fsdp", 0.8, 0.1, 1, 0.4},
    {"gemm_layout_factor.b", 1, 0.7, 1.4, 0.1},
    {"gemm_layout_factor.w", 1, 0.7, 1.4, 0.1},
    {"gemm_unaligned_share", 0.5, 0.1, 1, 0.4},
    {"head_unaligned_share", 0.25, 0.02, 1, 0.7},
    {"quantise_bytes.fp8", 5, 1, 20, 0.4},
    {"quantise_bytes.fp8-mx", 8, 1, 40, 0.5},
    {"fp8_row_share", 0.7, 0.2, 1, 0.3},
    {"quantise_bytes.fp4", 5.1, 1, 40, 0.5},
    {"straggler_spread", 0.005, 0.0005, 0.03, 0.7},
    {"elementwise_efficiency", 0.8, 0.2, 1.15, 0.15},
    {"elementwise_efficiency.megatron-2021", 0.7, 0.2, 1.15, 0.2},
    {"elementwise_efficiency.megatron-deepspeed", 0.7, 0.2, 1.15, 0.2},
    {"elementwise_efficiency.torch-fsdp", 0.5, 0.15, 1, 0.3},
    {"elementwise_efficiency.nanotron", 0.5, 0.15, 1, 0.3},
    {"elementwise_efficiency.zero-bubble", 0.6, 0.15, 1, 0.3},
    {"host_op_s.zero-bubble", 50e-6, 5e-6, 2e-4, 0.5},
    {"elementwise_efficiency.internevo", 0.4, 0.15, 1, 0.5},
    {"exposed_reduce.internevo", 0.05, 0.005, 1, 0.7},
    {"exposed_reduce.nanotron", 0.05, 0.005, 1, 0.7},
    {"elementwise_efficiency.jax", 0.5, 0.15, 1, 0.3},
    {"step_param_bytes", 4, 0.5, 40, 0.5},
    {"straggler_spread.megatron-2021", 0.005, 0.0005, 0.03, 0.7},
    {"straggler_spread.megatron-deepspeed", 0.005, 0.0005, 0.1, 0.7},
    {"exposed_reduce.megatron-core", 0.03, 0.003, 1, 0.7},
    {"exposed_gather.megatron-core", 0.03, 0.003, 1, 0.7},
    {"exposed_fsdp", 0.03, 0.003, 1, 0.7},
    {"exposed_fsdp.jax", 0.1, 0.01, 1, 0.7},
    {"exposed_tp.megatron-core", 0.375, 0.03, 1, 0.5},
    {"exposed_ep.megatron-core", 0.375, 0.03, 1, 0.5},
    {"exposed_tp.torchtitan", 0.75, 0.1, 1, 0.3},
    {"exposed_tp.torchtitan-async", 0.3, 0.03, 1, 0.4},
    {"elementwise_efficiency.torchtitan-eager", 0.5, 0.15, 1, 0.3},
    {"elementwise_efficiency.torchtitan", 0.8, 0.2, 1, 0.15},
    {"attention_share.torchtitan", 0.9, 0.2, 1, 0.2},
    {"host_op_s.megatron-core-serial", 1e-4, 2e-6, 5e-4, 0.5},
    {"elementwise_efficiency.megatron-core-serial", 0.5, 0.15, 1, 0.3},
    {"exposed_cp.megatron-core", 0.125, 0.01, 1, 0.5},
    {"host_adam_efficiency", 0.43, 0.05, 1, 0.5},
    {"exposed_tp_back.megatron-core", 0.125, 0.01, 1, 0.5},
    {"exposed_tp_back.megatron-core-serial", 0.375, 0.03, 1, 0.5},
    {"exposed_tp_back.megatron-2021-async", 0.125, 0.01, 1, 0.5},
    {"grouped_share.megatron-core-nemo-graphs", 0.85, 0.3, 1.2, 0.2},
    {"attention_share.megatron-core-lm", 0.8, 0.2, 1.2, 0.3},
    {"attention_back_share.megatron-core-lm", 0.8, 0.2, 1.2, 0.3},
    {"elementwise_efficiency.megatron-core-lm", 0.7, 0.2, 1.15, 0.3},
    {"attention_share.nanotron", 0.9, 0.3, 1, 0.2},
    {"exposed_tp_back.nanotron", 0.25, 0.03, 1, 0.5},
    {"attention_share.deepspeed", 1.11, 0.3, 2.5, 0.3},
    {"attention_back_share.deepspeed", 1.15, 0.3, 2.5, 0.3},
    {"attention_back_share.torch-fsdp", 0.8, 0.1, 1, 0.4},
    {"attention_back_share.torchtitan", 0.9, 0.2, 1, 0.2},
    {"attention_back_share.nanotron", 0.9, 0.3, 1, 0.2},
    {"op_gap_s.megatron-2021-composed", 5e-6, 1e-7, 5e-5, 0.7},
    {"coll_gap_s.megatron-2021-composed", 2e-5, 1e-6, 5e-4, 0.7},
    {"host_op_s.megatron-2021-composed", 50e-6, 5e-6, 2e-4, 0.5},
    {"host_coll_s.megatron-2021-composed", 1e-4, 1e-5, 1e-3, 0.5},
    {"elementwise_efficiency.megatron-2021-composed", 0.7, 0.2, 1.15, 0.2}};

enum { N_PARAMS = sizeof mw_fit_params / sizeof mw_fit_params[0], ROUNDS = 12 };

/* Where the fit sets out: at the prior, but for a host that the prior hides
 * behind its device on every row, which has no slope there. */
static double start_of(const struct mw_fit_param *param)
{
    return strcmp(param->name, "host_op_s.megatron-core-serial") == 0
               ? 2 * param->prior
               : param->prior;
}

size_t mw_fit_param_count(void)
{
    return N_PARAMS;
}

static double clamp(size_t k, double x)
{
    return mw_fit_clamp(&mw_fit_params[k], x);
}

static void set_all(const struct mw_fit *f, const double *x)
{
    mw_fit_params_set(f->db, mw_fit_params, f->p, x);
}

static double residual(const struct mw_fit *f, size_t i)
{
    double predicted_s = mw_validate_again(f->v, f->row[i]);

    MW_ASSERT(predicted_s > 0, "row %s", f->v->rows.v[f->row[i]].id);
    return log(predicted_s / f->v->rows.v[f->row[i]].measured_s);
}

static void residuals(const struct mw_fit *f, const double *x, double *out)
{
    set_all(f, x);
    for (size_t i = 0; i < f->n; i++) {
        out[i] = residual(f, i);
    }
}

static void weigh(struct mw_fit *f)
{
    for (size_t i = 0; i < f->n; i++) {
        const struct mw_validate_row *r = &f->v->rows.v[f->row[i]];
        size_t same = 0;

        for (size_t j = 0; j < f->n; j++) {
            same += f->v->rows.v[f->row[j]].file == r->file;
        }
        /* Every file weighs the same, as much against the priors as 25 rows of
         * which each knows its time within 1 / sqrt(200), 7 %. */
        f->weight[i] =
            r->is_noisy || r->is_unmeasured ? 0 : 25 * 200 / (double)same;
    }
}

/* A guess of the layout is good for a slope, which the report prints. */
static bool is_slope_only(const struct mw_validate_row *r)
{
    return (r->fills >> MW_FILL_STRONG_SCALING & 1) != 0;
}

enum mw_status mw_fit_init(struct mw_fit *f, struct mw_hwdb *db,
                           struct mw_validate *v, struct mw_err *err)
{
    size_t n = v->rows.n;

    *f = (struct mw_fit){.db = db, .v = v, .p = N_PARAMS};
    enum mw_status status = mw_fit_params_check(db, mw_fit_params, f->p, err);

    if (status != MW_OK) {
        return status;
    }
    f->row = mw_calloc(n + 1, sizeof *f->row);
    f->weight = mw_calloc(n + 1, sizeof *f->weight);
    f->r = mw_calloc(n + 1, sizeof *f->r);
    f->left_out = mw_calloc(n + 1, sizeof *f->left_out);
    f->jacobian = mw_calloc((n + 1) * f->p, sizeof *f->jacobian);
    f->x = mw_calloc(f->p, sizeof *f->x);
    for (size_t i = 0; i < n; i++) {
        if (v->rows.v[i].skipped == NULL && !is_slope_only(&v->rows.v[i]) &&
            mw_validate_again(v, i) > 0) {
            f->row[f->n++] = i;
        }
    }
    for (size_t k = 0; k < f->p; k++) {
        f->x[k] = log(start_of(&mw_fit_params[k]));
    }
    weigh(f);
    return MW_OK;
}

struct mw_fitted mw_fit_result(const struct mw_fit *f)
{
    return (struct mw_fitted){.param = mw_fit_params,
                              .p = f->p,
                              .x = f->x,
                              .n = f->n,
                              .jacobian = f->jacobian,
                              .weight = f->weight,
                              .program = "fit_step",
                              .data = "published training steps",
                              .datum = "measured step"};
}

void mw_fit_release(struct mw_fit *f)
{
    mw_free(f->row);
    mw_free(f->weight);
    mw_free(f->r);
    mw_free(f->left_out);
    mw_free(f->jacobian);
    mw_free(f->x);
}

/* Rows that a constant does not reach keep their zero: all of its stack are
 * looked at in the first round and in every fourth. */
static void differentiate(struct mw_fit *f, int round)
{
    const double h = log(1.02);

    residuals(f, f->x, f->r);
    for (size_t k = 0; k < f->p; k++) {
        /* Away from the bound that the constant may sit on. */
        double way = f->x[k] + h > log(mw_fit_params[k].most) ? -h : h;
        double kept = f->x[k];

        f->x[k] = kept + way;
        set_all(f, f->x);
        for (size_t i = 0; i < f->n; i++) {
            const char *stack = f->v->rows.v[f->row[i]].stack;
            double *at = &f->jacobian[i * f->p + k];

            if ((round % 4 == 0 || fabs(*at) > 0) &&
                mw_fit_reaches(mw_fit_params[k].name, stack)) {
                *at = (residual(f, i) - f->r[i]) / way;
            }
        }
        f->x[k] = kept;
    }
}

struct priors {
    double mean[N_PARAMS], sd[N_PARAMS], low[N_PARAMS], high[N_PARAMS];
    size_t base[N_PARAMS];
};

static void split_params(struct priors *prior)
{
    for (size_t k = 0; k < N_PARAMS; k++) {
        prior->mean[k] = log(mw_fit_params[k].prior);
        prior->sd[k] = mw_fit_params[k].sd;
        prior->low[k] = log(mw_fit_params[k].least);
        prior->high[k] = log(mw_fit_params[k].most);
        prior->base[k] = mw_fit_base_of(mw_fit_params, N_PARAMS, k);
    }
}

static struct mw_fit_problem problem_of(const struct mw_fit *f,
                                        const double *weight,
                                        const struct priors *prior)
{
    return (struct mw_fit_problem){.n = f->n,
                                   .p = f->p,
                                   .r = f->r,
                                   .jacobian = f->jacobian,
                                   .weight = weight,
                                   .x = f->x,
                                   .prior = prior->mean,
                                   .sd = prior->sd,
                                   .low = prior->low,
                                   .high = prior->high,
                                   .base = prior->base};
}

void mw_fit_run(struct mw_fit *f)
{
    double step[N_PARAMS], next[N_PARAMS];
    double *r = mw_calloc(f->n + 1, sizeof *r);
    struct priors prior;

    split_params(&prior);
    const struct mw_fit_problem q = problem_of(f, f->weight, &prior);

    for (int round = 0; round < ROUNDS; round++) {
        double loss, scale = 1;

        differentiate(f, round);
        loss = mw_fit_loss_of(&q, f->r, f->x);
        if (!mw_fit_step_within(&q, step)) {
            break;
        }
        for (; scale > 0.05; scale /= 2) {
            for (size_t k = 0; k < f->p; k++) {
                next[k] = clamp(k, f->x[k] + scale * step[k]);
            }
            residuals(f, next, r);
            if (mw_fit_loss_of(&q, r, next) < loss) {
                break;
            }
        }
        if (scale <= 0.05) {
            break;
        }
        memcpy(f->x, next, sizeof next);
    }
    differentiate(f, 0);
    mw_free(r);
}

/* Index of the first row of each row's cell. */
static void cells_of(const struct mw_fit *f, size_t *out)
{
    for (size_t i = 0; i < f->n; i++) {
        const char *cell = f->v->rows.v[f->row[i]].cell;

        out[i] = 0;
        while (strcmp(f->v->rows.v[f->row[out[i]]].cell, cell) != 0) {
            out[i]++;
        }
    }
}

/* The step without the rows whose part is `out`, and those rows with it. */
static void leave_part(struct mw_fit *f, const size_t *part, size_t out,
                       double *weight)
{
    double step[N_PARAMS], x[N_PARAMS];
    struct priors prior;

    split_params(&prior);
    const struct mw_fit_problem q = problem_of(f, weight, &prior);

    for (size_t i = 0; i < f->n; i++) {
        weight[i] = part[i] == out ? 0 : f->weight[i];
    }
    mw_fit_step_within(&q, step);
    for (size_t k = 0; k < f->p; k++) {
        x[k] = clamp(k, f->x[k] + step[k]);
    }
    set_all(f, x);
    for (size_t i = 0; i < f->n; i++) {
        if (part[i] == out) {
            f->left_out[i] = residual(f, i);
        }
    }
}

/* Each part below n once. */
static void leave_parts(struct mw_fit *f, const size_t *part)
{
    double *weight = mw_calloc(f->n + 1, sizeof *weight);
    bool *is_done = mw_calloc(f->n + 1, sizeof *is_done);

    for (size_t i = 0; i < f->n; i++) {
        if (!is_done[part[i]]) {
            is_done[part[i]] = true;
            leave_part(f, part, part[i], weight);
        }
    }
    set_all(f, f->x);
    mw_free(weight);
    mw_free(is_done);
}

void mw_fit_leave_out(struct mw_fit *f)
{
    size_t *cell = mw_calloc(f->n + 1, sizeof *cell);

    cells_of(f, cell);
    leave_parts(f, cell);
    mw_free(cell);
}

void mw_fit_leave_folds(struct mw_fit *f, size_t folds, uint64_t seed,
                        bool whole_cells)
{
    size_t *unit = mw_calloc(2 * f->n + 1, sizeof *unit), *fold = unit + f->n;

    cells_of(f, unit);
    for (size_t i = 0; !whole_cells && i < f->n; i++) {
        unit[i] = i;
    }
    mw_fit_folds(unit, f->n, folds, seed, fold);
    leave_parts(f, fold);
    mw_free(unit);
}
