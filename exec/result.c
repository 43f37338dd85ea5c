/*
 * The JSON object of a run. Keys that other programs rely on: steps,
 * step_time_s, virtual_step_time_s, loss, verified, max_gradient_error,
 * peak_bytes; the rest explains them.
 */
#include "exec/drive.h"

static json_t *reals(const double *v, int n)
{
    json_t *array = json_array();
    for (int i = 0; i < n; i++) {
        json_array_append_new(array, mw_json_real(v[i]));
    }
    return array;
}

static void add_verdict(json_t *o, const struct mw_drive_opts *opts,
                        const struct mw_drive_result *r)
{
    const struct mw_verdict *v = &r->verdict;
    if (!opts->verify) {
        mw_json_set(o, "verified", json_null());
        mw_json_set(o, "max_gradient_error", json_null());
        return;
    }
    mw_json_set_bool(o, "verified", v->is_right);
    mw_json_set_real(o, "max_gradient_error", v->max_error);
    mw_json_set_real(o, "max_loss_error", v->max_loss_error);
    json_t *worst = json_object();
    mw_json_set_str(worst, "tensor", v->tensor);
    mw_json_set_int(worst, "step", v->step);
    mw_json_set_int(worst, "rank", v->rank);
    mw_json_set_real(worst, "error", v->error);
    mw_json_set_real(worst, "tolerance", v->tolerance);
    mw_json_set(o, "worst", worst);
}

/* Sums over the ranks, of what there is. */
static json_t *traffic(const struct mw_drive_result *r)
{
    json_t *array = json_array();
    for (int i = 0; i < MW_DIM_COUNT * MW_COLL_OP_COUNT; i++) {
        int dim = i / MW_COLL_OP_COUNT, op = i % MW_COLL_OP_COUNT;
        double count = 0.0, bytes = 0.0;
        for (int rank = 0; rank < r->n_ranks; rank++) {
            count += r->traffic[rank].count[dim][op];
            bytes += r->traffic[rank].bytes[dim][op];
        }
        if (count > 0.0) {
            json_t *o = json_object();
            mw_json_set_str(o, "dim", mw_dim_name((enum mw_dim)dim));
            mw_json_set_str(o, "op", mw_coll_op_name((enum mw_coll_op)op));
            mw_json_set_real(o, "count", count);
            mw_json_set_real(o, "bytes", bytes);
            json_array_append_new(array, o);
        }
    }
    return array;
}

json_t *mw_drive_json(const struct mw_drive_opts *opts,
                      const struct mw_drive_result *r)
{
    json_t *o = json_object();
    mw_json_set_str(o, "backend", opts->backend);
    mw_json_set_int(o, "ranks", r->n_ranks);
    mw_json_set_int(o, "steps", r->steps);
    mw_json_set_int(o, "warmup", r->warmup);
    mw_json_set_int(o, "first_step", r->first_step);
    mw_json_set_real(o, "step_time_s", r->step_time_s);
    mw_json_set_real(o, "step_time_cv", r->step_time_cv);
    mw_json_set_real(o, "virtual_step_time_s", r->virtual_step_time_s);
    mw_json_set_real(o, "virtual_cv", r->virtual_cv);
    mw_json_set_real(o, "predicted_step_time_s", r->predicted_step_time_s);
    mw_json_set_str(o, "trace_clock",
                    opts->clock == MW_CLOCK_WALL ? "wall" : "virtual");
    mw_json_set_str(o, "mode", r->mode);
    mw_json_set_str(o, "plan_hash", r->plan_hash);
    mw_json_set(o, "loss", reals(r->loss, r->steps));
    add_verdict(o, opts, r);
    mw_json_set(o, "peak_bytes", reals(r->peak_bytes, r->n_ranks));
    mw_json_set(o, "activation_peak_bytes",
                reals(r->activation_peak_bytes, r->n_ranks));
    mw_json_set(o, "predicted_activation_bytes",
                reals(r->predicted_activation_bytes, r->n_ranks));
    mw_json_set(o, "kept_peak_bytes", reals(r->kept_peak_bytes, r->n_ranks));
    mw_json_set(o, "host_peak_bytes", reals(r->host_peak_bytes, r->n_ranks));
    mw_json_set(o, "driver_bytes", reals(r->driver_bytes, r->n_ranks));
    mw_json_set(o, "traffic", traffic(r));
    return o;
}
