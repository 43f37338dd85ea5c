/* Shared by the files of `meshwright sched`: what was asked, one schedule made
 * and measured, and the ways to show it. */
#ifndef MW_CLI_SCHED_H
#define MW_CLI_SCHED_H

#include "cli/cli.h"

#include "sim/pipe/auto.h"
#include "sim/pipe/pipe_stats.h"

struct mw_sched_ask {
    struct mw_cli cli;
    const char *kind, *from_csv, *to_csv, *lp_file, *plot, *stage_times, *sweep;
    int stages, microbatches, chunks, parts, group;
    double f_s, b_s, w_s, comm_s, opt_s;
    bool has_times;
    double memory_limit;
    bool is_paper;  /* memory model */
    double w_share; /* what only W frees; negative: by the model */
    enum mw_pipe_objective objective;
    double effort;  /* local search, millions of passes; 0: default */
    double exact_s; /* seconds GLPK may take; 0: not asked */
    double activation_bytes, boundary_bytes;
    bool is_blocking, compare, order;
};
/* What is made of it. Arrays are [n_stages * n_chunks]. */
struct mw_sched_made {
    struct mw_schedule s;
    mw_time *f_ps, *b_ps, *w_ps, *opt_ps;
    struct mw_pipe_times times;
    struct mw_pipe_run run;
    struct mw_pipe_stats stats;
    mw_time bound_ps;
    const char *bound_by, *solver;
    bool is_proved;
    double solve_time_s;
};

double mw_sched_w_share(const struct mw_sched_ask *ask);
const char *mw_sched_memory_model(const struct mw_sched_ask *ask);

/*
 * Makes, checks, replays and measures the schedule asked for. is_whole: times
 * are of a whole stage and are divided among its chunks or parts.
 */
enum mw_status mw_sched_make(const struct mw_sched_ask *ask, bool is_whole,
                             struct mw_sched_made *out, struct mw_err *err);
void mw_sched_made_release(struct mw_sched_made *made);
mw_time mw_sched_value(const struct mw_sched_ask *ask,
                       const struct mw_sched_made *made);

json_t *mw_sched_json(const struct mw_sched_ask *ask,
                      const struct mw_sched_made *made);
void mw_sched_print(const struct mw_sched_ask *ask,
                    const struct mw_sched_made *made);
/* Every kind at these stages, micro-batches and memory; an exit status. */
int mw_sched_compare(const struct mw_sched_ask *ask);
/* Memory limits FROM:TO:STEP: bubble against memory; an exit status. */
int mw_sched_sweep(const struct mw_sched_ask *ask);
/* Gantt chart: a file, or "-" for the terminal. */
enum mw_status mw_sched_plot(const struct mw_sched_made *made, const char *path,
                             struct mw_err *err);

#endif
