/* `sim --tokens`: the whole training job of a step. */
#ifndef MW_CLI_SIM_JOB_H
#define MW_CLI_SIM_JOB_H

#include "base/json.h"
#include "sim/cost/cost.h"
#include "sim/model/scenario.h"
#include "sim/step/step.h"
#include "sim/step/whole_job.h"

#include <argp.h>
#include <stdbool.h>

/* What the options say; 0 tokens: no job is asked for, NaN: the database's. */
struct mw_sim_job_args {
    double tokens, failures_per_1000_node_days, restart_s, interval_s;
    double storage_Bps, usd_per_gpu_hour;
    bool expected_only; /* no failures simulated (mw_job_spec) */
};
/* A child parser; its input is a mw_sim_job_args, set by mw_sim_job_default. */
extern const struct argp mw_sim_job_argp;
void mw_sim_job_default(struct mw_sim_job_args *args);

struct mw_sim_job {
    struct mw_job_spec spec;
    struct mw_job job;
    double gpu_hours;
    double usd_low, usd_high; /* NaN: no price */
    double node_power_w;
    bool is_gpu_power;     /* no row for the node: its GPUs' alone */
    double energy_J;       /* at most */
    double least_energy_J; /* NaN: not known */
};
/* The scenario with the types that a layout chose, which checkpoints
 * are made of. */
struct mw_scenario mw_sim_job_of(const struct mw_scenario *scenario,
                                 const struct mw_layout *layout);
/* MW_EINPUT when a constant of the database is missing. */
enum mw_status mw_sim_job_make(const struct mw_sim_job_args *args,
                               const struct mw_scenario *scenario,
                               const struct mw_cost_ctx *ctx,
                               double step_time_s, struct mw_sim_job *out,
                               struct mw_err *err);
/* Sets least_energy_J from the step's breakdown: mean over the stages of the
 * part in which a rank computes. */
enum mw_status mw_sim_job_bound_energy(struct mw_sim_job *job,
                                       const struct mw_cost_ctx *ctx,
                                       const struct mw_step_result *step,
                                       struct mw_err *err);
void mw_sim_job_print(const struct mw_sim_job *job);
json_t *mw_sim_job_json(const struct mw_sim_job *job);

#endif
