/*
 * From one step to a whole training job: time, failures, checkpoints, spare
 * nodes.
 *
 * Nodes fail independently at a constant rate; the job then starts again from
 * its last checkpoint. With M the mean time between failures of the job, T the
 * productive time, tau the work between checkpoints, d the time a checkpoint
 * blocks and R a restart, the expected time is (Daly, "A higher order estimate
 * of the optimum checkpoint interval", FGCS 22(3), 2006, section 3)
 *
 *     wall = M e^(R/M) (e^((tau + d)/M) - 1) T / tau
 *
 * and the best tau about sqrt(2 d M) (Young, CACM 17(9), 1974) or, to a higher
 * order, Daly's equation 37. The same process is simulated failure by failure.
 */
#ifndef MW_SIM_STEP_WHOLE_JOB_H
#define MW_SIM_STEP_WHOLE_JOB_H

#include <stdbool.h>
#include <stdint.h>

struct mw_job_spec {
    double tokens, tokens_per_step, step_time_s;
    int n_nodes;
    double checkpoint_bytes; /* of all ranks together */
    double storage_Bps;      /* at which all nodes together write them */
    double node_failures_per_day;
    double restart_s;  /* from a failure to the first step, lost work apart */
    double repair_s;   /* until a failed node is back */
    double interval_s; /* work between checkpoints; 0: Daly's best */
    uint64_t seed;
    bool expected_only; /* simulate no failures: what is simulated stays 0 */
};

struct mw_job {
    double n_steps, productive_s;
    double mtbf_s;       /* of the job; infinite without failures */
    double checkpoint_s; /* blocked by one */
    double young_s, daly_s, interval_s;
    double wall_s;                 /* expected */
    double goodput;                /* productive / wall */
    double failures;               /* expected */
    double saving_s;               /* of the wall time: in checkpoints, */
    double restart_s;              /* in restarts, */
    double lost_s;                 /* in work that is done again */
    double simulated_goodput;      /* over 100,000 failures */
    double wall_p10_s, wall_p90_s; /* over 200 simulated jobs; wall_s beyond
                                      100,000 failures */
    int spares; /* failed nodes at a time that are not exceeded 99 % of it */
};

/* All of spec positive (rates and interval may be 0). A job that fails 5 times
 * in a period and a restart never ends: wall_s is infinite, what follows it 0.
 */
void mw_job_predict(const struct mw_job_spec *spec, struct mw_job *out);

/*
 * Least energy of the job: nodes at `busy_power_w` each while their devices
 * compute, `working` of each step, in work that lasts and in work that is done
 * again; nothing while they wait, save or start again.
 */
double mw_job_least_energy_J(const struct mw_job_spec *spec,
                             const struct mw_job *job, double busy_power_w,
                             double working);

/* sqrt(2 d M), and Daly's equation 37 (M for d >= 2 M). */
double mw_job_young_s(double checkpoint_s, double mtbf_s);
double mw_job_daly_s(double checkpoint_s, double mtbf_s);

#endif
