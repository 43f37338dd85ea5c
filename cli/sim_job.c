/*
 * `sim --tokens 15T`: time, GPU-hours, money, energy, failures, checkpoints and
 * spare nodes of training on so many tokens at the step that was simulated.
 * Rates are rows of the database (constants job_*, node_power_w.*, costs)
 * unless options say otherwise. Energy lies between two bounds, both without
 * cooling and the network's switches: the nodes' greatest power over the whole
 * time, and what training takes of it (node_busy_power) while a rank computes
 * and nothing while it waits.
 */
#include "cli/sim_job.h"

#include "cli/cli.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const double day_s = 86400;

enum {
    OPT_TOKENS = 0x2100,
    OPT_FAILURES,
    OPT_RESTART,
    OPT_INTERVAL,
    OPT_STORAGE,
    OPT_PRICE
};

static const struct argp_option options[] = {
    {"tokens", OPT_TOKENS, "N", 0,
     "Report the whole job of training on N tokens (300B, 15T): time, money, "
     "energy, failures, checkpoints",
     0},
    {"failures", OPT_FAILURES, "RATE", 0,
     "Failures per 1000 nodes and day (default: the database's)", 0},
    {"restart", OPT_RESTART, "TIME", 0,
     "From a failure to the first step again: 10min", 0},
    {"checkpoint-every", OPT_INTERVAL, "TIME", 0,
     "Work between checkpoints (default: Daly's best)", 0},
    {"storage", OPT_STORAGE, "RATE", 0,
     "At which all nodes together write a checkpoint: 2000GB/s", 0},
    {"price", OPT_PRICE, "USD", 0,
     "Dollars per GPU and hour (default: the database's on-demand prices)", 0},
    {0}};

/* "15T", "300B", "2e12". */
static bool read_tokens(const char *text, double *out)
{
    static const struct {
        char suffix;
        double factor;
    } scales[] = {{'\0', 1}, {'K', 1e3}, {'M', 1e6}, {'B', 1e9}, {'T', 1e12}};
    char *end = NULL;
    double v = strtod(text, &end);

    for (size_t i = 0; i < sizeof scales / sizeof scales[0]; i++) {
        bool is_whole = end[0] == '\0' || end[1] == '\0';

        if (end != text && is_whole && *end == scales[i].suffix) {
            *out = v * scales[i].factor;
            return *out >= 1 && *out <= 1e18;
        }
    }
    return false;
}

static double quantity(struct argp_state *state, const char *option,
                       const char *text, enum mw_quantity kind)
{
    struct mw_err err = {0};
    double v = 0;

    if (mw_quantity_parse(text, kind, &v, &err) != MW_OK) {
        argp_error(state, "%s: %s", option, err.text);
    } else if (!(v > 0) && kind != MW_Q_SECONDS) {
        argp_error(state, "%s must be positive", option);
    }
    return v;
}

static double number(struct argp_state *state, const char *option,
                     const char *text, double max)
{
    double v = 0;

    if (mw_double_parse(text, &v, NULL) != MW_OK || !(v >= 0) || v > max) {
        argp_error(state, "%s: '%s' is no number from 0 to %g", option, text,
                   max);
    }
    return v;
}

static void check_set(const struct mw_sim_job_args *a, struct argp_state *state)
{
    bool any = !isnan(a->failures_per_1000_node_days) || !isnan(a->restart_s) ||
               a->interval_s > 0 || !isnan(a->storage_Bps) ||
               !isnan(a->usd_per_gpu_hour);

    if (any && !(a->tokens > 0)) {
        argp_error(state, "--failures, --restart, --checkpoint-every, "
                          "--storage and --price need --tokens");
    }
}

static error_t parse(int key, char *arg, struct argp_state *state)
{
    struct mw_sim_job_args *a = state->input;

    switch (key) {
    case OPT_TOKENS:
        if (!read_tokens(arg, &a->tokens)) {
            argp_error(state,
                       "--tokens: '%s' is no number of tokens; for example "
                       "300B or 15T",
                       arg);
        }
        return 0;
    case OPT_FAILURES:
        a->failures_per_1000_node_days = number(state, "--failures", arg, 1e6);
        return 0;
    case OPT_RESTART:
        a->restart_s = quantity(state, "--restart", arg, MW_Q_SECONDS);
        return 0;
    case OPT_INTERVAL:
        a->interval_s =
            quantity(state, "--checkpoint-every", arg, MW_Q_SECONDS);
        if (!(a->interval_s > 0)) {
            argp_error(state, "--checkpoint-every must be positive");
        }
        return 0;
    case OPT_STORAGE:
        a->storage_Bps = quantity(state, "--storage", arg, MW_Q_BYTES_PER_S);
        return 0;
    case OPT_PRICE:
        a->usd_per_gpu_hour = number(state, "--price", arg, 1e6);
        return 0;
    case ARGP_KEY_END:
        check_set(a, state);
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

const struct argp mw_sim_job_argp = {.options = options, .parser = parse};

void mw_sim_job_default(struct mw_sim_job_args *args)
{
    *args = (struct mw_sim_job_args){.failures_per_1000_node_days = (double)NAN,
                                     .restart_s = (double)NAN,
                                     .storage_Bps = (double)NAN,
                                     .usd_per_gpu_hour = (double)NAN};
}

/* ---- making ----------------------------------------------------------------
 */

static double constant(const struct mw_hwdb *db, const char *name,
                       enum mw_status *status, struct mw_err *err)
{
    const struct mw_constant *c = NULL;

    if (*status == MW_OK) {
        *status = mw_hwdb_constant(db, name, &c, err);
    }
    return c != NULL ? c->value : (double)NAN;
}

/* Bytes of a checkpoint: of every parameter that learns (adapters alone where
 * there are some) weight and optimizer state. */
static double checkpoint_bytes(const struct mw_scenario *scenario)
{
    const struct mw_workload *w = &scenario->workload;
    bool is_fp32 = w->dtype == MW_FP32 || w->dtype == MW_TF32;
    struct mw_params base = {0}, adapters = {0};
    const struct mw_params *learns = &base;
    double n = 0, more = 0;

    mw_model_params(&scenario->model, &base);
    if (w->lora_rank > 0) {
        mw_lora_params(&base, w->lora_rank, w->lora_targets, &adapters);
        learns = &adapters;
    }
    for (size_t i = 0; i < learns->n; i++) {
        n += (double)mw_param_count(&learns->v[i]);
        more += mw_optimizer_more_bytes(&w->optimizer, &learns->v[i]);
    }
    mw_array_release(&base);
    mw_array_release(&adapters);
    return n * ((is_fp32 ? 4 : 2) +
                mw_optimizer_bytes(&w->optimizer, w->dtype)) +
           more;
}

/* The mean time to a failure overflows nothing: at most 1e6 per 1000 node-days
 * and 1e6 nodes. */
static enum mw_status make_spec(const struct mw_sim_job_args *a,
                                const struct mw_scenario *scenario,
                                const struct mw_cost_ctx *ctx,
                                double step_time_s, struct mw_job_spec *out,
                                struct mw_err *err)
{
    const struct mw_workload *w = &scenario->workload;
    enum mw_status s = MW_OK;

    *out = (struct mw_job_spec){
        .tokens = a->tokens,
        .tokens_per_step = (double)w->global_batch * (double)w->seq,
        .step_time_s = step_time_s,
        .n_nodes = ctx->n_nodes,
        .checkpoint_bytes = checkpoint_bytes(scenario),
        .storage_Bps =
            ctx->n_nodes * constant(ctx->db, "job_storage_node_rate", &s, err),
        .node_failures_per_day =
            day_s * constant(ctx->db, "job_node_failure_rate", &s, err),
        .restart_s = constant(ctx->db, "job_restart_s", &s, err),
        .repair_s = constant(ctx->db, "job_repair_s", &s, err),
        .interval_s = a->interval_s,
        .seed = w->seed,
        .expected_only = a->expected_only,
        .counts_spares = scenario->cluster.spare_nodes > 0 ||
                         scenario->limits.spare_nodes.n > 0,
        .n_spares = scenario->cluster.spare_nodes};
    if (!isnan(a->failures_per_1000_node_days)) {
        out->node_failures_per_day = a->failures_per_1000_node_days / 1000;
    }
    if (!isnan(a->restart_s)) {
        out->restart_s = a->restart_s;
    }
    if (!isnan(a->storage_Bps)) {
        out->storage_Bps = a->storage_Bps;
    }
    return s;
}

static void price(const struct mw_sim_job_args *a,
                  const struct mw_cost_ctx *ctx, struct mw_sim_job *out)
{
    double low = (double)NAN, high = (double)NAN;

    if (!isnan(a->usd_per_gpu_hour)) {
        low = high = a->usd_per_gpu_hour;
    } else if (!mw_hwdb_price(ctx->db, ctx->gpu->slug, "on-demand", &low,
                              &high)) {
        low = high = (double)NAN;
    }
    out->usd_low = low * out->gpu_hours;
    out->usd_high = high * out->gpu_hours;
}

static void power(const struct mw_cost_ctx *ctx, struct mw_sim_job *out)
{
    const struct mw_constant *c = NULL;
    char name[96];

    snprintf(name, sizeof name, "node_power_w.%s", ctx->system->slug);
    out->is_gpu_power = mw_hwdb_constant(ctx->db, name, &c, NULL) != MW_OK ||
                        ctx->gpus_per_node < ctx->system->gpus_per_node;
    out->node_power_w =
        out->is_gpu_power ? ctx->gpus_per_node * ctx->gpu->tdp_w : c->value;
    out->energy_J = out->node_power_w * ctx->n_nodes * out->job.wall_s;
    out->least_energy_J = (double)NAN;
}

enum mw_status mw_sim_job_bound_energy(struct mw_sim_job *job,
                                       const struct mw_cost_ctx *ctx,
                                       const struct mw_step_result *step,
                                       struct mw_err *err)
{
    static const enum mw_span_kind work[] = {
        MW_SPAN_F, MW_SPAN_B, MW_SPAN_W, MW_SPAN_RECOMPUTE, MW_SPAN_OPTIMIZER};
    enum mw_status s = MW_OK;
    double busy = constant(ctx->db, "node_busy_power", &s, err), sum = 0;

    for (size_t i = 0; i < sizeof work / sizeof work[0]; i++) {
        sum += step->breakdown_s[work[i]];
    }
    job->least_energy_J =
        mw_job_least_energy_J(&job->spec, &job->job, busy * job->node_power_w,
                              sum / step->step_time_s);
    return s;
}

struct mw_scenario mw_sim_job_of(const struct mw_scenario *scenario,
                                 const struct mw_layout *layout)
{
    struct mw_scenario of = *scenario;

    of.workload.optimizer = mw_work_optimizer(layout, &scenario->workload);
    of.workload.dtype = mw_work_dtype(layout, &scenario->workload);
    return of;
}

enum mw_status mw_sim_job_make(const struct mw_sim_job_args *args,
                               const struct mw_scenario *scenario,
                               const struct mw_cost_ctx *ctx,
                               double step_time_s, struct mw_sim_job *out,
                               struct mw_err *err)
{
    enum mw_status s =
        make_spec(args, scenario, ctx, step_time_s, &out->spec, err);

    if (s != MW_OK) {
        return s;
    }
    mw_job_predict(&out->spec, &out->job);
    if (!isfinite(out->job.wall_s)) {
        return mw_fail(err, MW_EINPUT,
                       "a node fails so often that the job never ends: %g "
                       "failures per 1000 node-days on %d nodes are one every "
                       "%.3g s, a restart takes %.3g s, and %.3g s of work a "
                       "checkpoint of %.3g s",
                       1000 * out->spec.node_failures_per_day, ctx->n_nodes,
                       out->job.mtbf_s, out->spec.restart_s,
                       out->job.interval_s, out->job.checkpoint_s);
    }
    /* Spare nodes are paid for. */
    out->gpu_hours = out->job.wall_s *
                     (ctx->n_nodes + scenario->cluster.spare_nodes) *
                     ctx->gpus_per_node / 3600;
    price(args, ctx, out);
    power(ctx, out);
    return MW_OK;
}

/* ---- showing ---------------------------------------------------------------
 */

/* "54.2 days", "3.1 h", "12 s". */
static const char *long_time(double s, char buf[MW_FMT_MAX])
{
    if (!isfinite(s)) {
        snprintf(buf, MW_FMT_MAX, "never");
    } else if (s >= 2 * day_s) {
        snprintf(buf, MW_FMT_MAX, "%.1f days", s / day_s);
    } else if (s >= 7200) {
        snprintf(buf, MW_FMT_MAX, "%.2f h", s / 3600);
    } else {
        mw_fmt_seconds(s, buf);
    }
    return buf;
}

static void print_money(const struct mw_sim_job *j)
{
    printf("GPU-hours               %.4g\n", j->gpu_hours);
    if (isnan(j->usd_low)) {
        printf("cost                    no price in the database; --price\n");
    } else if (j->usd_low < j->usd_high) {
        printf("cost                    %.3g to %.3g US dollars (costs "
               "table, on demand)\n",
               j->usd_low, j->usd_high);
    } else {
        printf("cost                    %.3g US dollars\n", j->usd_low);
    }
    printf("energy                  at most %.4g MWh (%.4g kW a node%s)",
           j->energy_J / 3.6e9, j->node_power_w / 1e3,
           j->is_gpu_power ? ", its GPUs alone" : "");
    if (!isnan(j->least_energy_J)) {
        printf(", at least %.4g (while ranks compute)",
               j->least_energy_J / 3.6e9);
    }
    printf("\n");
}

void mw_sim_job_print(const struct mw_sim_job *j)
{
    const struct mw_job *k = &j->job;
    char a[MW_FMT_MAX], b[MW_FMT_MAX], c[MW_FMT_MAX];

    printf("\nWhole job, %.4g tokens in %.0f steps:\n", j->spec.tokens,
           k->n_steps);
    printf("time                    %s expected (%s to %s, p10 to p90)\n",
           long_time(k->wall_s, a), long_time(k->wall_p10_s, b),
           long_time(k->wall_p90_s, c));
    printf("goodput                 %.1f %% (%.1f %% simulated): checkpoints "
           "%.1f %%, work done again %.1f %%, restarts %.1f %%",
           100 * k->goodput, 100 * k->simulated_goodput,
           100 * k->saving_s / k->wall_s, 100 * k->lost_s / k->wall_s,
           100 * k->restart_s / k->wall_s);
    if (j->spec.counts_spares) {
        printf(", waiting for a node %.2g %% (%d stand by)",
               100 * k->waiting_s / k->wall_s, j->spec.n_spares);
    }
    printf("\n");
    printf("failures                %.1f, one every %s; spare nodes %d "
           "(enough 99 %% of the time)\n",
           k->failures, long_time(k->mtbf_s, a), k->spares);
    printf("checkpoint              %s in %s, every %s (Daly %s, Young %s)\n",
           mw_fmt_bytes(j->spec.checkpoint_bytes, a),
           mw_fmt_seconds(k->checkpoint_s, b), long_time(k->interval_s, c),
           long_time(k->daly_s, (char[MW_FMT_MAX]){0}),
           long_time(k->young_s, (char[MW_FMT_MAX]){0}));
    print_money(j);
}

static void set_finite(json_t *o, const char *key, double v)
{
    if (isfinite(v)) {
        mw_json_set_real(o, key, v);
    } else {
        mw_json_set(o, key, json_null());
    }
}

json_t *mw_sim_job_json(const struct mw_sim_job *j)
{
    const struct mw_job *k = &j->job;
    json_t *o = json_object();

    mw_json_set_real(o, "tokens", j->spec.tokens);
    mw_json_set_real(o, "steps", k->n_steps);
    mw_json_set_real(o, "time_s", k->wall_s);
    mw_json_set_real(o, "time_p10_s", k->wall_p10_s);
    mw_json_set_real(o, "time_p90_s", k->wall_p90_s);
    mw_json_set_real(o, "productive_s", k->productive_s);
    mw_json_set_real(o, "checkpoints_s", k->saving_s);
    mw_json_set_real(o, "repeated_s", k->lost_s);
    mw_json_set_real(o, "restarts_s", k->restart_s);
    if (j->spec.counts_spares) {
        mw_json_set_int(o, "nodes_standing_by", j->spec.n_spares);
        mw_json_set_real(o, "waiting_s", k->waiting_s);
    }
    mw_json_set_real(o, "goodput", k->goodput);
    mw_json_set_real(o, "simulated_goodput", k->simulated_goodput);
    mw_json_set_real(o, "failures", k->failures);
    set_finite(o, "mtbf_s", k->mtbf_s);
    mw_json_set_int(o, "spare_nodes", k->spares);
    mw_json_set_real(o, "checkpoint_bytes", j->spec.checkpoint_bytes);
    mw_json_set_real(o, "checkpoint_s", k->checkpoint_s);
    mw_json_set_real(o, "checkpoint_interval_s", k->interval_s);
    set_finite(o, "daly_interval_s", k->daly_s);
    set_finite(o, "young_interval_s", k->young_s);
    mw_json_set_real(o, "gpu_hours", j->gpu_hours);
    set_finite(o, "usd_low", j->usd_low);
    set_finite(o, "usd_high", j->usd_high);
    mw_json_set_real(o, "node_power_w", j->node_power_w);
    mw_json_set_real(o, "energy_J", j->energy_J);
    set_finite(o, "least_energy_J", j->least_energy_J);
    return o;
}
