/*
 * Speed of one training step's two forms.
 *
 * evaluation: the fast form of a plan, step time and peak memory of the fullest
 * rank. Twelve plans in turn, no two alike in a row (micro-batch,
 * recomputation, ZeRO-0 or -1), by mw_fast_estimate: what one layer, embedding
 * and head cost is remembered, everything else is worked out: sums of stages,
 * transfers, gradient reductions, optimizer, gathers, closed form, memory of
 * the stages.
 *
 * alone: the same plans by mw_step_estimate, with nothing remembered.
 *
 * sweep: every legal plan of a space (tp, pp, micro-batch, recomputation, ZeRO,
 * GPipe and 1F1B) once, the mean, with the pricing of units the first time they
 * are met. `first` also models the collectives that it is the first to need,
 * which the database then keeps (NCCL's choice at each size); `again` finds
 * them.
 *
 * event form, folded: task graph of one rank a stage, with memory and the
 * breakdown of exposed time; plan and prices made anew.
 *
 * unfolded: task graph of every rank, with the memory of the process so far.
 *
 * Times are of CPU, means of many; of the last one the wall clock, once.
 */
#include "base/log.h"
#include "base/mem.h"
#include "sim/coll/coll_library.h"
#include "sim/step/fast.h"
#include "sim/step/unfold.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>

struct job {
    const char *name, *model, *system;
    int nodes, seq, batch;
    int tp, pp, dp;
};

static const struct job jobs[] = {
    {"GPT-3 175B, 512 A100", "gpt3-175b", "dgx-a100", 64, 2048, 512, 8, 8, 8},
    {"GPT-3 175B, 1,024 A100", "gpt3-175b", "dgx-a100", 128, 2048, 1536, 8, 8,
     16},
    {"Llama-3 405B, 16,384 H100", "llama3.1-405b", "dgx-h100", 2048, 8192, 2048,
     8, 16, 128}};

struct world {
    struct mw_hwdb *db;
    struct mw_scenario scenario;
    struct mw_cost_ctx ctx;
};

static void open_world(struct world *w, const struct job *job)
{
    char text[512];
    struct mw_err err = {0};
    int n = snprintf(text, sizeof text,
                     "format: 1\nmodel: %s\ncluster: {system: %s, nodes: %d}\n"
                     "workload: {seq: %d, global_batch: %d, dtype: bf16}\n",
                     job->model, job->system, job->nodes, job->seq, job->batch);

    if (mw_hwdb_load(NULL, &w->db, &err) != MW_OK) {
        fprintf(stderr, "step_bench: %s\n", err.text);
        abort();
    }
    mw_coll_library_lend(w->db);
    if (mw_scenario_parse("bench", text, (size_t)n, &w->scenario, &err) !=
            MW_OK ||
        mw_cost_ctx_init(&w->ctx, w->db, job->system, job->nodes, 0, &err) !=
            MW_OK) {
        fprintf(stderr, "step_bench: %s\n", err.text);
        abort();
    }
    w->scenario.cluster.gpus_per_node = w->ctx.gpus_per_node;
}

static void close_world(struct world *w)
{
    mw_scenario_release(&w->scenario);
    mw_hwdb_free(w->db);
}

static double cpu_s(void)
{
    struct rusage u;

    getrusage(RUSAGE_SELF, &u);
    return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) +
           1e-6 * (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec);
}

static double gib(double bytes)
{
    return bytes / 1024 / 1024 / 1024;
}

/* Plan i of twelve. */
static struct mw_layout plan_of(const struct job *job, int i)
{
    struct mw_layout l;

    mw_layout_default(&l);
    l.tp = job->tp;
    l.sp = true;
    l.pp = job->pp;
    l.dp = job->dp;
    l.zero = i % 2;
    l.recompute = (enum mw_recompute)(i % 3);
    l.micro_batch = i / 6 + 1;
    return l;
}

/* ---- fast form -------------------------------------------------------------
 */
/* f NULL: alone. The mean over n plans. */
static double evaluate_s(const struct world *w, const struct job *job,
                         struct mw_fast *f, int n, double *out_step_s,
                         double *out_bytes)
{
    struct mw_layout plan[12];
    double start;

    for (int i = 0; i < 12; i++) {
        plan[i] = plan_of(job, i);
    }
    start = cpu_s();
    for (int i = 0; i < n; i++) {
        const struct mw_layout *l = &plan[i % 12];

        if (f != NULL) {
            mw_fast_estimate(f, l, NULL, out_step_s, out_bytes, NULL);
        } else {
            mw_step_estimate(&w->scenario, l, NULL, &w->ctx, out_step_s,
                             out_bytes, NULL);
        }
    }
    return (cpu_s() - start) / n;
}

static void bench_evaluation(const struct world *w, const struct job *job)
{
    struct mw_fast *f = mw_fast_new(&w->scenario, &w->ctx);
    double step_s, bytes, alone_s, each_s;

    evaluate_s(w, job, f, 12, &step_s, &bytes); /* prices are known now */
    each_s = evaluate_s(w, job, f, 240000, &step_s, &bytes);
    alone_s = evaluate_s(w, job, NULL, 24000, &step_s, &bytes);
    printf("%-26s evaluation %6.2f us, alone %6.2f us  (the last: %.2f s, "
           "%.1f GiB)\n",
           job->name, 1e6 * each_s, 1e6 * alone_s, step_s, gib(bytes));
    mw_fast_free(f);
}

/* ---- a space, each plan once ----------------------------------------------
 */
struct sweep {
    const struct world *w;
    struct mw_fast *fast;
    int n_gpus;
    uint64_t n;
    double best_s;
};

static void visit(struct sweep *s, struct mw_layout *l)
{
    double step_s, bytes;

    if (s->n_gpus % (l->tp * l->pp) != 0) {
        return;
    }
    l->dp = s->n_gpus / (l->tp * l->pp);
    if (mw_layout_check(l, &s->w->scenario.model, &s->w->scenario.workload,
                        s->n_gpus, NULL, NULL) != MW_OK ||
        mw_fast_estimate(s->fast, l, NULL, &step_s, &bytes, NULL) != MW_OK) {
        return;
    }
    s->n++;
    if (bytes <= mw_step_usable_bytes(&s->w->scenario, &s->w->ctx) &&
        step_s < s->best_s) {
        s->best_s = step_s;
    }
}

static void sweep_stages(struct sweep *s, struct mw_layout *l)
{
    static const char *const schedules[] = {"1f1b", "gpipe"};

    for (l->pp = 1; l->pp <= 64; l->pp *= 2) {
        for (int i = 0; i < 2; i++) {
            l->schedule = schedules[i];
            for (l->zero = 0; l->zero <= 3; l->zero++) {
                visit(s, l);
            }
        }
    }
}

static void bench_sweep(const struct world *w, const struct job *job,
                        const char *when)
{
    struct sweep s = {.w = w,
                      .fast = mw_fast_new(&w->scenario, &w->ctx),
                      .n_gpus = 8 * job->nodes,
                      .best_s = 1e9};
    struct mw_layout l;
    uint64_t prices, shapes;
    double start = cpu_s(), took;

    mw_layout_default(&l);
    for (l.tp = 1; l.tp <= 8; l.tp *= 2) {
        l.sp = l.tp > 1;
        for (l.micro_batch = 1; l.micro_batch <= 8; l.micro_batch *= 2) {
            for (int r = 0; r <= MW_RECOMPUTE_FULL; r++) {
                l.recompute = (enum mw_recompute)r;
                sweep_stages(&s, &l);
            }
        }
    }
    took = cpu_s() - start;
    mw_fast_counts(s.fast, &prices, &shapes);
    printf("%-26s sweep, %s: %llu plans (%llu prices), %6.2f us each  (best "
           "that fits: %.2f s)\n",
           job->name, when, (unsigned long long)s.n, (unsigned long long)prices,
           1e6 * took / (double)s.n, s.best_s);
    mw_fast_free(s.fast);
}

/* ---- event form ------------------------------------------------------------
 */
static void bench_event(const struct world *w, const struct job *job)
{
    enum { N = 20 };
    struct mw_layout l = plan_of(job, 0);
    struct mw_step_opts opts = {0};
    struct mw_step_result r = {0};
    struct mw_plan plan;
    uint64_t events = 0;
    double start = cpu_s();

    for (int i = 0; i < N; i++) {
        if (mw_plan_make(&w->scenario, &l, NULL, &plan, NULL) != MW_OK ||
            mw_step_simulate(&w->scenario, &plan, &w->ctx, &opts, &r, NULL) !=
                MW_OK) {
            abort();
        }
        events = r.events;
        mw_step_result_release(&r);
        mw_plan_release(&plan);
    }
    printf("%-26s event form, folded %8.2f ms, %llu events\n", job->name,
           1e3 * (cpu_s() - start) / N, (unsigned long long)events);
}

static void bench_unfolded(const struct world *w, const struct job *job)
{
    struct mw_layout l = plan_of(job, 0);
    struct mw_unfold all;
    struct mw_plan plan;
    struct rusage u;

    if (mw_plan_make(&w->scenario, &l, NULL, &plan, NULL) != MW_OK ||
        mw_step_unfold(&w->scenario, &plan, &w->ctx, NULL, &all, NULL) !=
            MW_OK) {
        abort();
    }
    getrusage(RUSAGE_SELF, &u);
    printf("%-26s unfolded, %d ranks %8.2f s, %llu tasks, %.2f GiB so far\n",
           job->name, all.n_ranks, all.wall_time_s,
           (unsigned long long)all.n_tasks, gib(1024 * (double)u.ru_maxrss));
    mw_plan_release(&plan);
}

int main(void)
{
    mw_log_setup("step_bench", true);
    for (size_t i = 0; i < sizeof jobs / sizeof jobs[0]; i++) {
        struct world w;

        open_world(&w, &jobs[i]);
        bench_evaluation(&w, &jobs[i]);
        bench_sweep(&w, &jobs[i], "first");
        bench_sweep(&w, &jobs[i], "again");
        bench_event(&w, &jobs[i]);
        bench_unfolded(&w, &jobs[i]);
        close_world(&w);
    }
    return 0;
}
