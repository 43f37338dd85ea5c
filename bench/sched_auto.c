/*
 * Automatic schedules: the authors' profiled rows with times of both, large
 * instances, and random instances with uneven stages.
 *
 *   sched_auto [DIR [N [EFFORT [CSV]]]]
 *       DIR: tests/oracles/schedules; N: random instances a class (200);
 * EFFORT: local search in millions of passes (20); CSV: the instances with our
 *       results, for sched_vs_authors.py
 *
 * Random instances (seed 20240701): p of 4, 8, 16; m from p to 8p; F 10000, B
 * 0.8 to 1.2 F, W 0.4 to 1 F, transfer up to 0.15 F; W holds 0.25, 0.43, 0.5 or
 * all of an activation; limit p to 3p. Classes: none; last: last stage 1.3
 * times as long; rand: F, B, W of each stage +-15 %; moe: stages 1.25 times as
 * long with probability 1/2. Gap: objective (span) over the lower bound.
 */
#include "base/csv.h"
#include "base/rand.h"
#include "sim/pipe/auto.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#ifndef MW_SOURCE_DIR /* set by the build */
#define MW_SOURCE_DIR "."
#endif
enum { P_MAX = 64, SEED = 20240701 };

static double now_s(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

struct instance {
    struct mw_auto_problem q;
    mw_time t[3 * 2 * P_MAX];
};

static void set_uniform(struct instance *x, int p, int m, int v,
                        const double t[4], double limit, double w_share)
{
    int n = p * v;

    for (int i = 0; i < n; i++) {
        for (int k = 0; k < 3; k++) {
            x->t[k * n + i] = (mw_time)t[k];
        }
    }
    x->q = (struct mw_auto_problem){.n_stages = p,
                                    .n_microbatches = m,
                                    .n_chunks = v,
                                    .f_ps = x->t,
                                    .b_ps = x->t + n,
                                    .w_ps = x->t + 2 * n,
                                    .comm_ps = (mw_time)t[3],
                                    .w_share = w_share,
                                    .memory_limit = limit,
                                    .objective = MW_OBJECTIVE_SPAN};
}

static struct mw_auto_result solve(const struct mw_auto_problem *q,
                                   double *out_s)
{
    struct mw_auto_result r;
    struct mw_err err = {0};
    double start = now_s();

    if (mw_schedule_auto(q, &r, &err) != MW_OK) {
        fprintf(stderr, "%s\n", err.text);
        exit(1);
    }
    *out_s = now_s() - start;
    mw_schedule_release(&r.schedule);
    return r;
}

static void run_rows(const char *dir, const char *name)
{
    struct mw_arena arena;
    struct mw_csv csv;
    struct mw_err err = {0};
    int proved = 0, better = 0, worse = 0;
    double total_s = 0, worst_s = 0;

    mw_arena_init(&arena);
    if (mw_csv_load(mw_arena_printf(&arena, "%s/%s", dir, name), &arena, &csv,
                    &err) != MW_OK) {
        fprintf(stderr, "%s\n", err.text);
        exit(3);
    }
    for (size_t i = 0; i < csv.n_rows; i++) {
        static const char *const col[] = {
            "f",      "b",       "w",      "comm",
            "limit",  "w_share", "stages", "microbatches",
            "chunks", "bubble"};
        double v[10], s;
        struct instance x;

        for (int k = 0; k < 10; k++) {
            if (mw_csv_num(&csv, i, mw_csv_col(&csv, col[k]), &v[k], &err) !=
                MW_OK) {
                fprintf(stderr, "%s\n", err.text);
                exit(3);
            }
        }
        set_uniform(&x, (int)v[6], (int)v[7], (int)v[8], v, v[4], v[5]);
        struct mw_auto_result r = solve(&x.q, &s);
        double bubble =
            1 - v[7] * v[8] * (v[0] + v[1] + v[2]) / (double)r.value_ps;

        proved += r.is_proved;
        better += bubble < v[9] - 5e-5;
        worse += bubble > v[9] + 5e-5;
        total_s += s;
        worst_s = s > worst_s ? s : worst_s;
        printf("  %-8s p %2g m %3g limit %4g w %.3f  theirs %.4f  ours %.4f  "
               "%7.2f ms  %s%s\n",
               mw_csv_str(&csv, i, mw_csv_col(&csv, "kind")), v[6], v[7], v[4],
               v[5], v[9], bubble, 1e3 * s, r.found_by,
               r.is_proved ? ", proved" : "");
    }
    printf("%s: %zu rows, %d proved, %d better, %d worse, %.1f ms together, "
           "longest %.1f ms\n",
           name, csv.n_rows, proved, better, worse, 1e3 * total_s,
           1e3 * worst_s);
    mw_arena_release(&arena);
}

static void run_large(void)
{
    static const double t[4] = {10408, 10204, 7703, 408},
                        v[4] = {9447, 9644, 7193, 887};
    static const double limit[] = {64, 128, 128, 192};
    static const double share[] = {1, 0.4324, 1, 1};
    struct instance x;
    struct mw_auto_result r;
    double s;

    for (int i = 0; i < 4; i++) {
        set_uniform(&x, 64, 512, 1, t, limit[i], share[i]);
        r = solve(&x.q, &s);
        printf("p 64 m 512 limit %g w %.3f: bubble %.5f, %s in %.1f ms\n",
               limit[i], share[i],
               1 - 512 * (t[0] + t[1] + t[2]) / (double)r.value_ps,
               r.is_proved ? "proved" : "not proved", 1e3 * s);
    }
    set_uniform(&x, 32, 256, 2, v, 32, 1);
    r = solve(&x.q, &s);
    printf("V p 32 m 256: bubble %.4f in %.1f ms\n",
           1 - 512 * (v[0] + v[1] + v[2]) / (double)r.value_ps, 1e3 * s);
}

static double uniform(int class, int i, int k)
{
    return mw_rand_unit(SEED, (uint64_t) class * 1000 + (uint64_t)i,
                        (uint64_t)k);
}

static void set_random(struct instance *x, int class, int i)
{
    static const double share[] = {0.25, 0.4324, 0.5, 1};
    int p = 4 << (int)(3 * uniform(class, i, 0));
    int m = p + (int)(7 * p * uniform(class, i, 1));
    double f = 10000;
    double t[4] = {f, f * (0.8 + 0.4 * uniform(class, i, 2)),
                   f * (0.4 + 0.6 * uniform(class, i, 3)),
                   0.15 * f * uniform(class, i, 4)};

    set_uniform(x, p, m, 1, t, (int)(p * (1 + 2 * uniform(class, i, 6))),
                share[(int)(4 * uniform(class, i, 5))]);
    for (int d = 0; d < p; d++) {
        double by = 1;

        by = class == 1 && d == p - 1 ? 1.3 : by;
        by = class == 3 && uniform(class, i, 50 + d) < 0.5 ? 1.25 : by;
        for (int k = 0; k < 3; k++) {
            double own = class == 2
                             ? 0.85 + 0.3 * uniform(class, i, 100 + 30 * k + d)
                             : 1;

            x->t[k * p + d] = (mw_time)(t[k] * by * own);
        }
    }
}

/* One line: what the instance is, what we found, in how many seconds. */
static void write_instance(FILE *f, const char *class, const struct instance *x,
                           const struct mw_auto_result *r, double s)
{
    const struct mw_auto_problem *q = &x->q;

    fprintf(f, "%s,%d,%d,%lld,%.17g,%.17g,%lld,%lld,%.6f", class, q->n_stages,
            q->n_microbatches, (long long)q->comm_ps, q->memory_limit,
            q->w_share, (long long)r->value_ps, (long long)r->bound_ps, s);
    for (int i = 0; i < 3 * q->n_stages; i++) {
        fprintf(f, ",%lld", (long long)x->t[i]);
    }
    fprintf(f, "\n");
}

static void run_random(int n, double effort, const char *path)
{
    FILE *f = path != NULL ? fopen(path, "w") : NULL;

    static const char *const name[] = {"none", "last", "rand", "moe"};

    for (int class = 0; class < 4; class ++) {
        double sum = 0, most = 0, total_s = 0;
        int proved = 0;

        for (int i = 0; i < n; i++) {
            struct instance x;
            struct mw_auto_result r;
            double gap, s;

            set_random(&x, class, i);
            x.q.effort = effort;
            r = solve(&x.q, &s);
            gap = (double)r.value_ps / (double)r.bound_ps - 1;
            sum += gap;
            most = gap > most ? gap : most;
            proved += r.is_proved;
            total_s += s;
            if (f != NULL) {
                write_instance(f, name[class], &x, &r, s);
            }
        }
        printf(
            "%s: %d instances, mean gap %.3f %%, largest %.2f %%, %d proved, "
            "%.1f ms each\n",
            name[class], n, 100 * sum / n, 100 * most, proved,
            1e3 * total_s / n);
    }
    if (f != NULL) {
        fclose(f);
    }
}

int main(int argc, char **argv)
{
    const char *dir =
        argc > 1 ? argv[1] : MW_SOURCE_DIR "/tests/oracles/schedules";

    run_rows(dir, "authors_zb.csv");
    run_rows(dir, "authors_v.csv");
    run_large();
    run_random(argc > 2 ? atoi(argv[2]) : 200, argc > 3 ? atof(argv[3]) : 20,
               argc > 4 ? argv[4] : NULL);
    return 0;
}
