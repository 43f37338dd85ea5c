/*
 * Speed of the engine: task graphs built and run, events queued, spans written
 * and read. Each figure is the best of REPEATS runs (the minimum is the least
 * disturbed one), in millions a second of wall time.
 *
 * The graph is a pipeline's: for each stage and micro-batch a forward, a
 * transfer and a backward task, tied to the neighbouring stages, on a compute
 * and a transfer stream a stage; about 2.7 edges a task, streams included. The
 * queue is held at a constant length (the "hold model": Vaucher and Duval, CACM
 * 18(4), 1975): one pop, one push at a random later time.
 */
#include "base/log.h"
#include "base/rand.h"
#include "sim/engine/engine.h"
#include "sim/engine/timeline.h"

#include <inttypes.h>
#include <stdio.h>
#include <unistd.h>

enum { REPEATS = 7, N_STAGES = 16 };

static double seconds_since(int64_t start_ns)
{
    return (double)(mw_clock_wall_ns() - start_ns) * 1e-9;
}

static void keep_least(double *least, double v)
{
    *least = *least == 0 || v < *least ? v : *least;
}

/* ---- graph
 * --------------------------------------------------------------------- */
static void build_stage(struct mw_graph *g, int stage, uint32_t n_microbatches,
                        mw_task_id base)
{
    mw_stream_id compute = mw_graph_stream(g), wire = mw_graph_stream(g);
    uint32_t per_stage = 3 * n_microbatches;
    for (uint32_t m = 0; m < n_microbatches; m++) {
        mw_task_id f = mw_graph_task(g, compute, 1000 + m % 7, m);
        mw_task_id send = mw_graph_task(g, wire, 50, m);
        mw_graph_dep(g, f, send, 0);
        if (stage > 0) { /* the transfer of the stage before */
            mw_graph_dep(g, base - per_stage + 3 * m + 1, f, 10);
        }
        mw_graph_task(g, compute, 2000 + m % 5, m);
    }
}

static void build(struct mw_graph *g, uint32_t n_microbatches)
{
    mw_graph_clear(g);
    for (int s = 0; s < N_STAGES; s++) {
        build_stage(g, s, n_microbatches, (mw_task_id)mw_graph_size(g));
    }
}

static void bench_graph(uint32_t n_microbatches)
{
    struct mw_graph *g = mw_graph_new();
    build(g, n_microbatches);
    size_t n = mw_graph_size(g);
    mw_time *start_ps = mw_calloc(n, sizeof *start_ps);
    mw_time *end_ps = mw_calloc(n, sizeof *end_ps);
    mw_time total_ps = 0;
    double build_s = 0, run_s = 0;
    for (int r = 0; r < REPEATS; r++) {
        int64_t begin_ns = mw_clock_wall_ns();
        build(g, n_microbatches);
        keep_least(&build_s, seconds_since(begin_ns));
        begin_ns = mw_clock_wall_ns();
        if (mw_graph_run(g, start_ps, end_ps, &total_ps, NULL, NULL) != MW_OK) {
            printf("the graph does not end\n");
        }
        keep_least(&run_s, seconds_since(begin_ns));
    }
    printf("graph of %9zu tasks: build %6.1f M/s, run %6.1f M/s (ends at "
           "%" PRId64 " ps)\n",
           n, (double)n / build_s * 1e-6, (double)n / run_s * 1e-6, total_ps);
    mw_free(start_ps);
    mw_free(end_ps);
    mw_graph_free(g);
}

/* ---- event queue
 * ---------------------------------------------------------------- */
static void bench_queue(uint64_t length)
{
    enum { HOLDS = 2000000 };
    double least_s = 0;
    mw_time last_ps = 0;
    for (int r = 0; r < REPEATS; r++) {
        struct mw_evq q;
        struct mw_event e = {.t_ps = 0};
        mw_evq_init(&q);
        for (uint64_t i = 0; i < length; i++) {
            mw_evq_push(&q, (mw_time)(mw_rand_u64(1, 0, i) % 1000000), 0, 0);
        }
        int64_t begin_ns = mw_clock_wall_ns();
        for (uint64_t i = 0; i < HOLDS; i++) {
            mw_evq_pop(&q, &e);
            mw_evq_push(&q, e.t_ps + (mw_time)(mw_rand_u64(1, 1, i) % 1000000),
                        0, 0);
        }
        keep_least(&least_s, seconds_since(begin_ns));
        last_ps = e.t_ps;
        mw_evq_release(&q);
    }
    printf("queue of %9" PRIu64 " events: %6.1f M pop + push/s (last at "
           "%" PRId64 " ps)\n",
           length, HOLDS / least_s * 1e-6, last_ps);
}

/* ---- timeline files
 * --------------------------------------------------------------- */
static void fill(struct mw_timeline *t, int n)
{
    mw_timeline_init(t);
    for (int i = 0; i < n; i++) {
        struct mw_span s = {.rank = i % 64,
                            .start_ps = (mw_time)i * 1234567,
                            .end_ps = (mw_time)i * 1234567 + 1000000,
                            .kind = (uint16_t)(i % 3),
                            .microbatch = i / 64,
                            .flops = 1e12 / 3,
                            .name = mw_timeline_name(t, "forward")};
        mw_timeline_add(t, &s);
    }
}

static void bench_trace(void)
{
    enum { N = 200000 };
    static const char path[] = "engine_bench.json";
    struct mw_timeline t, back;
    double write_s = 0, read_s = 0;
    fill(&t, N);
    for (int r = 0; r < REPEATS; r++) {
        int64_t begin_ns = mw_clock_wall_ns();
        if (mw_timeline_write_chrome(&t, path, NULL) != MW_OK) {
            printf("cannot write %s\n", path);
            break;
        }
        keep_least(&write_s, seconds_since(begin_ns));
        begin_ns = mw_clock_wall_ns();
        if (mw_timeline_load(path, &back, NULL) == MW_OK) {
            keep_least(&read_s, seconds_since(begin_ns));
            mw_timeline_release(&back);
        }
    }
    printf("trace of %9d spans: write %6.2f M/s, read %6.2f M/s\n", N,
           N / write_s * 1e-6, N / read_s * 1e-6);
    unlink(path);
    mw_timeline_release(&t);
}

int main(void)
{
    bench_graph(200);
    bench_graph(2000);
    bench_graph(40000);
    bench_queue(1000);
    bench_queue(100000);
    bench_trace();
    return 0;
}
