/*
 * Speed of the planner, beside what is published of its peers.
 *
 *   search       layouts decided a second on one core: enumerated, ruled out,
 *                bounded or simulated, until the best ten are proved
 *   bound        one layout weighed, prices remembered
 *   stage split  126 layers, 16 stages, 3 options of recomputation
 *   columns      474 columns a stage, 16 stages, 96 + 32 devices
 *   whole choice one job's layout as one integer program over priced columns
 *                (portfolio.h), beside plain enumeration of the same space
 *
 * Peers, measured elsewhere on the same kind of machine (one core): Calculon
 * caa4b11 62 to 143 evaluations a CPU second, 467,808 layouts of GPT-3 175B on
 * 64 GPUs in 1.9 h and 1,693,208 on 1024 in 7.1 h without offload; SimuMax 1.2
 * 8 a second.
 */
#include "base/log.h"
#include "base/mem.h"
#include "base/rand.h"
#include "planner/columns.h"
#include "planner/portfolio.h"
#include "planner/search_int.h"
#include "planner/stage_split.h"
#include "sim/coll/coll_library.h"
#include "sim/model/model.h"
#include "sim/step/fast.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

struct world {
    struct mw_hwdb *db;
    struct mw_scenario scenario;
    struct mw_cost_ctx ctx;
};

static void open_world(struct world *w, const char *model, const char *system,
                       int nodes, int seq, int batch)
{
    char text[512];
    struct mw_err err = {0};
    int n = snprintf(text, sizeof text,
                     "format: 1\nmodel: %s\ncluster: {system: %s, nodes: %d}\n"
                     "workload: {seq: %d, global_batch: %d, dtype: bf16}\n",
                     model, system, nodes, seq, batch);

    if (mw_hwdb_load(NULL, &w->db, &err) != MW_OK) {
        fprintf(stderr, "planner_bench: %s\n", err.text);
        abort();
    }
    mw_coll_library_lend(w->db);
    if (mw_scenario_parse("bench", text, (size_t)n, &w->scenario, &err) !=
            MW_OK ||
        mw_cost_ctx_init(&w->ctx, w->db, system, nodes, 0, &err) != MW_OK) {
        fprintf(stderr, "planner_bench: %s\n", err.text);
        abort();
    }
    w->scenario.cluster.gpus_per_node = w->ctx.gpus_per_node;
}

static void close_world(struct world *w)
{
    mw_scenario_release(&w->scenario);
    mw_hwdb_free(w->db);
}

static double peak_mib(void)
{
    struct rusage usage;

    getrusage(RUSAGE_SELF, &usage);
    return (double)usage.ru_maxrss / 1024;
}

static double cpu_s(void)
{
    struct rusage u;

    getrusage(RUSAGE_SELF, &u);
    return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) +
           1e-6 * (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec);
}

static void time_search(const char *what, const struct world *w, bool is_full)
{
    struct mw_search_opts opts;
    struct mw_search_result r;

    mw_search_opts_default(&opts);
    opts.is_quiet = true;
    opts.jobs = 1;
    opts.is_full = is_full;
    double start = cpu_s();

    mw_search(&w->scenario, &w->ctx, &opts, &r, NULL);
    double took = cpu_s() - start;

    printf("%-44s %11llu layouts %7.2f s %9.0f /s %4llu simulated %s  "
           "(%.0f MiB so far)\n",
           what, (unsigned long long)r.enumerated, took,
           (double)r.enumerated / took, (unsigned long long)r.simulated,
           r.proved_optimal ? "proved" : "not proved", peak_mib());
    mw_search_result_release(&r);
}

static void bench_search(const char *what, const char *model,
                         const char *system, int nodes, int seq, int batch,
                         bool is_full)
{
    struct world w;

    open_world(&w, model, system, nodes, seq, batch);
    time_search(what, &w, is_full);
    close_world(&w);
}

/* Rows of experts that differ by layer, up to threefold, and by sequence. */
static int64_t *draw_counts(const struct mw_model *m, int batch)
{
    int n_layers = mw_model_moe_layers(m, m->n_layers);
    int n_experts = m->moe.n_experts;
    size_t n = (size_t)n_layers * (size_t)batch * (size_t)n_experts;
    int64_t *rows = mw_calloc(n, sizeof *rows);

    for (size_t i = 0; i < n; i++) {
        size_t e = i % (size_t)n_experts;
        size_t layer = i / (size_t)n_experts / (size_t)batch;
        double mean = 512 * (1 + 2 * mw_rand_unit(1, layer, e));

        rows[i] = (int64_t)(mean * (0.5 + mw_rand_unit(2, layer, i)));
    }
    return rows;
}

static void bench_counts(void)
{
    struct world w;

    open_world(&w, "mixtral-8x7b", "dgx-h100", 8, 4096, 256);
    time_search("Mixtral 8x7B, 64 H100, batch 256", &w, false);
    int64_t *rows = draw_counts(&w.scenario.model, 256);

    w.scenario.router.rows = rows;
    w.scenario.router.n_seqs = 256;
    time_search("the same with counts of its routers", &w, false);
    close_world(&w);
    mw_free(rows);
}

static void bench_bound(void)
{
    enum { N = 200000 };
    struct world w;
    struct mw_layout layout;
    struct mw_fast_bound bound;
    double sum = 0;

    open_world(&w, "gpt3-175b", "dgx-a100", 8, 2048, 64);
    struct mw_fast *f = mw_fast_new(&w.scenario, &w.ctx);

    mw_layout_default(&layout);
    layout.tp = layout.pp = 8;
    layout.sp = true;
    double start = cpu_s();

    for (int i = 0; i < N; i++) {
        layout.zero = i % 2;
        mw_fast_bound(f, &layout, NULL, &bound, NULL);
        sum += bound.time_s;
    }
    double took = cpu_s() - start;

    printf("%-44s %9.2f us each (mean bound %.3f s)\n", "bound of one layout",
           1e6 * took / N, sum / N);
    mw_fast_free(f);
    close_world(&w);
}

static void bench_split(void)
{
    double extra[16] = {0.2}, fixed[16], held[16];
    struct mw_split_problem p = {
        .n_runs = 1,
        .run = {{126, {1, 1.05, 1.3}, {1.6e9, 0.9e9, 0.1e9}, 2e9}},
        .n_stages = 16,
        .extra_s = extra,
        .fixed_bytes = fixed,
        .in_flight = held,
        .limit_bytes = 74e9};
    struct mw_split_stage stages[16];
    struct mw_split_answer a;

    extra[15] = 1.5;
    for (int i = 0; i < 16; i++) {
        fixed[i] = 2e9;
        held[i] = 16 - i;
    }
    for (p.n_microbatches = 0; p.n_microbatches <= 64; p.n_microbatches += 64) {
        double start = cpu_s();

        mw_stage_split_dp(&p, stages, &a, NULL);
        printf("%-44s %9.2f ms, value %.3f\n",
               p.n_microbatches ? "stage split, 1F1B bound of 64 micro-batches"
                                : "stage split, slowest stage",
               1e3 * (cpu_s() - start), a.value_s);
    }
}

static void bench_columns(void)
{
    static const double slow[3] = {1, 1.04, 1.3};
    struct mw_column *column = mw_calloc(12000, sizeof *column);
    struct mw_column_problem p = {.n_stages = 16,
                                  .n_layers = 128,
                                  .n_kinds = 2,
                                  .n_microbatches = 64,
                                  .devices = {96, 32},
                                  .change_s = 0.002,
                                  .column = column};
    struct mw_column_answer a;
    int chosen[16];

    for (int i = 0; i < 16; i++) {
        for (int k = 0; k < 8; k++) {
            int tp = 1 << k % 4, kind = k / 4;
            double rate = (kind ? 2.6 : 1) * tp * (1 - 0.03 * tp);

            for (int r = 0; r < 3; r++) {
                for (int n = 1; n <= 17 + 4 * r - (r == 2); n++) {
                    column[p.n_columns++] = (struct mw_column){
                        i, 0.1 * n * slow[r] / rate, n, kind, tp, r, 0, 0, 0};
                }
            }
        }
    }
    double start = cpu_s();

    if (mw_columns_choose(&p, 0, NULL, chosen, &a, NULL) == MW_OK) {
        printf("%-44s %9.2f ms, %zu columns, %d LPs, %d ILPs, %s\n",
               "columns of a mixed cluster", 1e3 * (cpu_s() - start),
               p.n_columns, a.n_lps, a.n_ilps,
               a.is_proved ? "proved" : "not proved");
    }
    mw_free(column);
}

/* ---- the whole choice as one program ---------------------------------------
 */
/* Columns of every legal layout that fits: the fast form's time. */
struct pricing {
    struct search s;
    struct weigher w;
    struct mw_sweep_rows rows;
    uint64_t n;
};

static void price_column(void *arg, const struct mw_layout *layout, uint64_t at)
{
    struct pricing *p = arg;
    const struct mw_workload *work = &p->s.scenario->workload;
    enum mw_status status;
    double peak, time_s;

    (void)at;
    p->n++;
    if (mw_weigh_layers(&p->w, layout, &peak, &status, NULL) &&
        mw_fast_estimate(p->w.fast, layout, p->w.layers, &time_s, &peak,
                         NULL) == MW_OK &&
        peak <= p->s.usable_bytes) {
        struct mw_sweep_row row = {.scenario = "",
                                   .model = "",
                                   .system = p->s.scenario->cluster.system,
                                   .gpus = mw_layout_ranks(layout),
                                   .is_feasible = 1,
                                   .tokens_per_s = (double)work->global_batch *
                                                   (double)work->seq / time_s,
                                   .step_time_s = time_s};

        mw_array_push(&p->rows, row);
    }
}

static void price_columns(struct pricing *p, const struct world *w,
                          const struct mw_search_opts *opts)
{
    struct mw_tally *tally = mw_calloc(1, sizeof *tally);

    *p = (struct pricing){
        .s = {.scenario = &w->scenario, .ctx = &w->ctx, .opts = opts}};
    p->s.usable_bytes = mw_step_usable_bytes(&w->scenario, &w->ctx);
    mw_space_init(&p->s.space, &w->scenario, &w->ctx, opts);
    mw_weigher_init(&p->w, &p->s);
    for (size_t i = 0; i < p->s.space.outer.n; i++) {
        mw_space_walk(&p->s.space, i, MW_WALK_ALL, tally, price_column, p);
    }
    mw_weigher_release(&p->w);
    mw_space_release(&p->s.space);
    mw_free(tally);
}

/* Both answers are within the 3 % between the two forms of a step. 1F1B has a
 * closed form; most of all schedules (NULL) are replayed for their price. */
static void bench_whole(const char *what, const char *model, const char *system,
                        int nodes, int seq, int batch, const char *schedule)
{
    struct world w;
    struct mw_search_opts opts;
    struct mw_search_result r;
    struct pricing p;
    struct mw_portfolio found;

    open_world(&w, model, system, nodes, seq, batch);
    mw_search_opts_default(&opts);
    opts.is_quiet = true;
    opts.jobs = 1;
    opts.schedule = schedule;
    opts.is_full = schedule != NULL;
    double start = cpu_s();

    mw_search(&w.scenario, &w.ctx, &opts, &r, NULL);
    double plain_s = cpu_s() - start;

    start = cpu_s();
    price_columns(&p, &w, &opts);
    double price_s = cpu_s() - start;
    struct mw_portfolio_budget budget = {.n_gpus = w.ctx.n_nodes *
                                                   w.ctx.gpus_per_node};
    struct mw_portfolio_problem problem = {
        .rows = &p.rows, .tokens = 1e12, .budget = &budget, .n_budgets = 1};

    snprintf(budget.system, sizeof budget.system, "%s",
             w.scenario.cluster.system);
    start = cpu_s();
    if (mw_portfolio_choose(&problem, NULL, &found, NULL) == MW_OK) {
        printf(
            "%-44s enumeration %6.2f s, %.3f s a step; one program %6.2f s "
            "(%llu layouts priced %.2f s, %zu columns solved %.2f s), %.3f s "
            "a step\n",
            what, plain_s, r.plans[0].step_time_s, price_s + cpu_s() - start,
            (unsigned long long)p.n, price_s, p.rows.n, cpu_s() - start,
            p.rows.v[found.row[0]].step_time_s);
    }
    mw_array_release(&p.rows);
    mw_search_result_release(&r);
    close_world(&w);
}

int main(void)
{
    mw_log_setup("planner_bench", true);
    bench_bound();
    bench_split();
    bench_columns();
    bench_whole("whole choice: Llama-3 8B, 16 H100, 1F1B", "llama3-8b",
                "dgx-h100", 2, 8192, 128, "1f1b");
    bench_whole("whole choice: GPT-3 175B, 64 A100, 1F1B", "gpt3-175b",
                "dgx-a100", 8, 2048, 64, "1f1b");
    bench_whole("whole choice: Llama-3 8B, 8 H100, all kinds", "llama3-8b",
                "dgx-h100", 1, 8192, 32, NULL);
    bench_search("GPT-3 175B, 64 A100, batch 64", "gpt3-175b", "dgx-a100", 8,
                 2048, 64, false);
    bench_search("Llama-3 405B, 16,384 H100, batch 2048", "llama3.1-405b",
                 "dgx-h100", 2048, 8192, 2048, false);
    bench_counts();
    bench_search("GPT-3 175B, 64 A100, batch 64, full space", "gpt3-175b",
                 "dgx-a100", 8, 2048, 64, true);
    bench_search("GPT-3 175B, 1024 A100, batch 1536", "gpt3-175b", "dgx-a100",
                 128, 2048, 1536, false);
    bench_search("GPT-3 175B, 1024 A100, batch 1536, full space", "gpt3-175b",
                 "dgx-a100", 128, 2048, 1536, true);
    return 0;
}
