/*
 * A whole training job; see whole_job.h. Left out: failures of the job that
 * are nobody's node (software), checkpoints that are flushed beside training,
 * and failures of nodes that stand by.
 */
#include "sim/step/whole_job.h"

#include "base/mem.h"
#include "base/rand.h"
#include "base/stats.h"

#include <math.h>

static const double day_s = 86400;
enum { FAILURES = 100000, JOBS = 200 };
/* Failures in a period and a restart from which on a job gets nowhere: one
 * attempt in e^5 succeeds. */
static const double hopeless = 5;

double mw_job_least_energy_J(const struct mw_job_spec *spec,
                             const struct mw_job *job, double busy_power_w,
                             double working)
{
    return spec->n_nodes * busy_power_w * working *
           (job->productive_s + job->lost_s);
}

double mw_job_young_s(double checkpoint_s, double mtbf_s)
{
    return sqrt(2 * checkpoint_s * mtbf_s);
}

double mw_job_daly_s(double checkpoint_s, double mtbf_s)
{
    double x = checkpoint_s / (2 * mtbf_s);

    if (x >= 1) {
        return mtbf_s;
    }
    return mw_job_young_s(checkpoint_s, mtbf_s) * (1 + sqrt(x) / 3 + x / 9) -
           checkpoint_s;
}

/* Work between failures, as it is drawn: of a stream of failures. */
struct draw {
    uint64_t seed, stream, index;
    double mtbf_s, period_s, restart_s;
};

static double next_failure_s(struct draw *d)
{
    /* 1 - u: the unit draw may be 0, never 1 */
    return -d->mtbf_s * log(1 - mw_rand_unit(d->seed, d->stream, d->index++));
}

/* One stretch from the end of a restart to the end of the next: whole periods
 * done, and how long it took. At most `most` periods: then no failure ends it.
 */
static double stretch(struct draw *d, double most, double *out_s)
{
    double up_s = next_failure_s(d);
    double periods = floor(up_s / d->period_s);

    if (periods >= most) {
        *out_s = most * d->period_s;
        return most;
    }
    /* A failure in a restart begins it again. */
    for (double f = next_failure_s(d); f < d->restart_s;
         f = next_failure_s(d)) {
        up_s += f;
    }
    *out_s = up_s + d->restart_s;
    return periods;
}

static double simulate_goodput(struct draw d, double work_s)
{
    double periods = 0, time_s = 0;

    for (int i = 0; i < FAILURES; i++) {
        double s = 0;

        periods += stretch(&d, HUGE_VAL, &s);
        time_s += s;
    }
    return periods * work_s / time_s;
}

static double simulate_wall(struct draw d, double periods)
{
    double time_s = 0;

    while (periods > 0) {
        double s = 0;

        periods -= stretch(&d, periods, &s);
        time_s += s;
    }
    return time_s;
}

/* The smallest k that a Poisson number of mean `mean` exceeds at most 1 % of
 * the time. */
static int poisson_p99(double mean)
{
    double log_term = -mean, sum = exp(log_term);
    int k = 0;

    while (sum < .99 && k < 1000000) {
        k++;
        log_term += log(mean / k);
        sum += exp(log_term);
    }
    return k;
}

/* Nothing fails: one checkpoint at the end, or as often as asked for. */
static void without_failures(const struct mw_job_spec *spec, struct mw_job *j)
{
    j->mtbf_s = j->young_s = j->daly_s = HUGE_VAL;
    j->interval_s = spec->interval_s > 0 ? spec->interval_s : j->productive_s;
    j->saving_s = j->productive_s / j->interval_s * j->checkpoint_s;
    j->wall_s = j->productive_s + j->saving_s;
    j->goodput = j->simulated_goodput = j->productive_s / j->wall_s;
    j->wall_p10_s = j->wall_p90_s = j->wall_s;
}

static void with_failures(const struct mw_job_spec *spec, struct mw_job *j)
{
    double m = j->mtbf_s, periods = j->productive_s / j->interval_s;
    double period_s = j->interval_s + j->checkpoint_s;
    double up = m * expm1(period_s / m); /* a period with its repeats */

    j->wall_s = periods * exp(spec->restart_s / m) * up;
    j->goodput = j->productive_s / j->wall_s;
    j->failures = j->wall_s / m;
    j->saving_s = periods * j->checkpoint_s;
    j->lost_s = periods * up - j->productive_s - j->saving_s;
    j->restart_s = j->wall_s - periods * up;
}

static void simulate(const struct mw_job_spec *spec, struct mw_job *j)
{
    struct draw d = {.seed = spec->seed,
                     .mtbf_s = j->mtbf_s,
                     .period_s = j->interval_s + j->checkpoint_s,
                     .restart_s = spec->restart_s};
    double wall_s[JOBS];

    j->simulated_goodput = simulate_goodput(d, j->interval_s);
    j->wall_p10_s = j->wall_p90_s = j->wall_s;
    if (j->failures >
        FAILURES) { /* so many that nothing is left of the spread */
        return;
    }
    for (int i = 0; i < JOBS; i++) {
        d.stream = (uint64_t)i + 1;
        wall_s[i] = simulate_wall(d, ceil(j->productive_s / j->interval_s));
    }
    j->wall_p10_s = mw_quantile(wall_s, JOBS, .1);
    j->wall_p90_s = mw_quantile(wall_s, JOBS, .9);
}

double mw_erlang_b(int n, double load)
{
    double b = 1;

    for (int k = 1; k <= n; k++) {
        b = load * b / (k + load * b);
    }
    return b;
}

/* Time goes by without work, checkpoints and failures. */
static void wait_for_nodes(const struct mw_job_spec *spec, double load,
                           struct mw_job *j)
{
    double runs = 1 - mw_erlang_b(spec->n_spares + 1, load);

    j->waiting_s = j->wall_s / runs - j->wall_s;
    j->wall_s /= runs;
    j->wall_p10_s /= runs;
    j->wall_p90_s /= runs;
    j->goodput *= runs;
    j->simulated_goodput *= runs;
}

void mw_job_predict(const struct mw_job_spec *spec, struct mw_job *out)
{
    double failures_per_s = spec->n_nodes * spec->node_failures_per_day / day_s;

    *out = (struct mw_job){0};
    out->n_steps = ceil(spec->tokens / spec->tokens_per_step);
    out->productive_s = out->n_steps * spec->step_time_s;
    out->checkpoint_s = spec->checkpoint_bytes / spec->storage_Bps;
    if (!(failures_per_s > 0)) {
        without_failures(spec, out);
        return;
    }
    out->mtbf_s = 1 / failures_per_s;
    out->young_s = mw_job_young_s(out->checkpoint_s, out->mtbf_s);
    out->daly_s = mw_job_daly_s(out->checkpoint_s, out->mtbf_s);
    out->interval_s = spec->interval_s > 0 ? spec->interval_s : out->daly_s;
    if (out->interval_s > out->productive_s) {
        out->interval_s = out->productive_s;
    }
    if ((spec->restart_s + out->interval_s + out->checkpoint_s) / out->mtbf_s >
        hopeless) {
        out->wall_s = HUGE_VAL;
        return;
    }
    with_failures(spec, out);
    if (!spec->expected_only) {
        simulate(spec, out);
    }
    if (spec->counts_spares) {
        wait_for_nodes(spec, failures_per_s * spec->repair_s, out);
    }
    out->spares = poisson_p99(failures_per_s * spec->repair_s);
    if (out->spares > spec->n_nodes) {
        out->spares = spec->n_nodes;
    }
}
