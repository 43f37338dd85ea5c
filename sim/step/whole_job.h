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
 *
 * With s spare nodes a failed node is replaced at once while at most s are in
 * repair; with s + 1 the job waits for one to come back. Nodes fail only while
 * the job runs, so the number in repair is that of busy lines of a telephone
 * exchange with s + 1 lines at a load of a = repairs going on without a limit
 * (n nodes x rate x time of a repair), and the job waits for the part of the
 * time in which all are busy (Erlang, 1917; for any distribution of repairs,
 * Sevastyanov, 1957):
 *
 *     B(0) = 1,  B(k) = a B(k-1) / (k + a B(k-1)),  wall / (1 - B(s + 1))
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
    bool counts_spares; /* else a spare node is always there */
    int n_spares;
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
    double lost_s;                 /* in work that is done again, */
    double waiting_s;              /* for a node out of repair */
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

/* The part of the time in which all of n lines are busy: Erlang's B. */
double mw_erlang_b(int n, double load);

/* sqrt(2 d M), and Daly's equation 37 (M for d >= 2 M). */
double mw_job_young_s(double checkpoint_s, double mtbf_s);
double mw_job_daly_s(double checkpoint_s, double mtbf_s);

#endif
