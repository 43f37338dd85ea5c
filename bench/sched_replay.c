/*
 * Speed of the list replay: p = 64, m = 1024, 2 chunks (393,216 passes with
 * their transfers), best of 9 runs. Prints passes, milliseconds and ns a pass.
 */
#include "sim/pipe/schedule.h"

#include <stdio.h>
#include <time.h>

static double now_s(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int run_kind(const char *kind)
{
    enum { P = 64, M = 1024, V = 2, N = P * V };
    struct mw_sched_args a = {
        .n_stages = P, .n_microbatches = M, .n_chunks = V};
    struct mw_err err = {0};
    struct mw_schedule s;
    mw_time f[N], b[N], w[N];
    struct mw_pipe_times times = {
        .f_ps = f, .b_ps = b, .w_ps = w, .comm_ps = 500000};
    double best = 1e9, made = now_s();
    mw_time makespan = 0;

    if (mw_schedule_make(kind, &a, &s, &err) != MW_OK) {
        fprintf(stderr, "%s\n", err.text);
        return 1;
    }
    made = now_s() - made;
    for (int i = 0; i < N; i++) {
        f[i] = 9447000;
        b[i] = 9644000;
        w[i] = 7193000;
    }
    for (int k = 0; k < 9; k++) {
        struct mw_pipe_run run;
        double start = now_s();

        if (mw_pipe_replay(&s, &times, &run, &err) != MW_OK) {
            fprintf(stderr, "%s\n", err.text);
            return 1;
        }
        start = now_s() - start;
        best = start < best ? start : best;
        makespan = run.makespan_ps;
        mw_pipe_run_release(&run);
    }
    printf("%-17s %7u passes  made in %6.1f ms  replayed in %5.2f ms  "
           "%4.1f ns a pass  makespan %.6f s\n",
           kind, (unsigned)s.first[P], 1e3 * made, 1e3 * best,
           1e9 * best / s.first[P], mw_time_to_s(makespan));
    mw_schedule_release(&s);
    return 0;
}

int main(void)
{
    return run_kind("zb-v") | run_kind("interleaved-zb") |
           run_kind("interleaved-1f1b");
}
