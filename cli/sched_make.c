/* `meshwright sched`: makes the schedule that was asked for, replays it in real
 * times and bounds it. */
#include "cli/sched.h"

#include "base/csv.h"
#include "base/file.h"
#include "base/units.h"
#include "planner/auto/exact.h"
#include "sim/pipe/torch_csv.h"

#include <math.h>
#include <string.h>
#include <time.h>

double mw_sched_w_share(const struct mw_sched_ask *a)
{
    if (a->w_share >= 0) {
        return a->w_share;
    }
    return a->is_paper ? MW_W_SHARE_PAPER : 1;
}

const char *mw_sched_memory_model(const struct mw_sched_ask *a)
{
    if (a->w_share >= 0) {
        return "custom";
    }
    return a->is_paper ? "paper" : "all_at_W";
}

static double now_s(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* ---- times --------------------------------------------------------------- */
struct stage_row {
    int64_t stage, chunk;
    double f_s, b_s, w_s, opt_s;
};

static const struct mw_csv_field stage_fields[] = {
    {"stage", MW_C_INT, offsetof(struct stage_row, stage), true, 0, 4095, 0},
    {"chunk", MW_C_INT, offsetof(struct stage_row, chunk), false, -1, 1023, -1},
    {"f_s", MW_C_NUM, offsetof(struct stage_row, f_s), true, 1e-12, 1e4, 0},
    {"b_s", MW_C_NUM, offsetof(struct stage_row, b_s), true, 1e-12, 1e4, 0},
    {"w_s", MW_C_NUM, offsetof(struct stage_row, w_s), true, 0, 1e4, 0},
    {"opt_s", MW_C_NUM, offsetof(struct stage_row, opt_s), false, 0, 1e4, 0},
    {.name = NULL}};

static void set_row(struct mw_sched_made *m, int p, int v,
                    const struct stage_row *r)
{
    for (int c = 0; c < v; c++) {
        int i = (int)r->stage * v + c;

        if (r->stage < p && (r->chunk < 0 || r->chunk == c)) {
            m->f_ps[i] = mw_time_from_s(r->f_s);
            m->b_ps[i] = mw_time_from_s(r->b_s);
            m->w_ps[i] = mw_time_from_s(r->w_s);
            m->opt_ps[r->stage] = mw_time_from_s(r->opt_s);
        }
    }
}

static enum mw_status check_rows(const struct mw_csv *csv,
                                 const struct stage_row *row,
                                 const struct mw_sched_made *m, int p, int v,
                                 struct mw_err *err)
{
    for (size_t i = 0; i < csv->n_rows; i++) {
        if (row[i].stage >= p || row[i].chunk >= v) {
            return mw_csv_fail(csv, i, mw_csv_col(csv, "stage"), err,
                               "there are %d stages of %d chunks", p, v);
        }
    }
    for (int i = 0; i < p * v; i++) {
        if (m->f_ps[i] == 0) {
            return mw_fail(err, MW_EINPUT, "%s: stage %d chunk %d has no row",
                           csv->file, i / v, i % v);
        }
    }
    return MW_OK;
}

static enum mw_status read_stage_times(const struct mw_sched_ask *a,
                                       struct mw_sched_made *m, int p, int v,
                                       struct mw_err *err)
{
    struct mw_arena arena;
    struct mw_csv csv;
    void *rows = NULL;
    enum mw_status st;

    mw_arena_init(&arena);
    memset(m->f_ps, 0, (size_t)p * (size_t)v * sizeof *m->f_ps);
    st = mw_csv_load(a->stage_times, &arena, &csv, err);
    if (st == MW_OK) {
        st = mw_csv_bind(&csv, stage_fields, sizeof(struct stage_row), true,
                         &arena, &rows, err);
    }
    for (size_t i = 0; st == MW_OK && i < csv.n_rows; i++) {
        set_row(m, p, v, &((const struct stage_row *)rows)[i]);
    }
    if (st == MW_OK) {
        st = check_rows(&csv, rows, m, p, v, err);
    }
    mw_arena_release(&arena);
    return st;
}

/* The times of all chunks; share: part of the asked times a chunk takes. */
static enum mw_status set_times(const struct mw_sched_ask *a, int p, int v,
                                double share, struct mw_sched_made *m,
                                struct mw_err *err)
{
    size_t n = (size_t)p * (size_t)v;

    m->f_ps = mw_calloc(3 * n, sizeof *m->f_ps);
    m->b_ps = m->f_ps + n;
    m->w_ps = m->f_ps + 2 * n;
    m->opt_ps = mw_calloc((size_t)p, sizeof *m->opt_ps);
    for (size_t i = 0; i < n; i++) {
        m->f_ps[i] = mw_time_from_s((a->has_times ? a->f_s : 1) * share);
        m->b_ps[i] = mw_time_from_s((a->has_times ? a->b_s : 1) * share);
        m->w_ps[i] = mw_time_from_s((a->has_times ? a->w_s : 1) * share);
    }
    for (int d = 0; d < p; d++) {
        m->opt_ps[d] = mw_time_from_s(a->opt_s);
    }
    m->times = (struct mw_pipe_times){.f_ps = m->f_ps,
                                      .b_ps = m->b_ps,
                                      .w_ps = m->w_ps,
                                      .comm_ps = mw_time_from_s(a->comm_s),
                                      .opt_ps = m->opt_ps,
                                      .is_blocking = a->is_blocking};
    return a->stage_times != NULL ? read_stage_times(a, m, p, v, err) : MW_OK;
}

/* ---- schedules -------------------------------------------------------------
 */
static struct mw_auto_problem problem_of(const struct mw_sched_ask *a,
                                         const struct mw_sched_made *m, int p,
                                         int v, int n_microbatches)
{
    return (struct mw_auto_problem){.n_stages = p,
                                    .n_microbatches = n_microbatches,
                                    .n_chunks = v,
                                    .f_ps = m->f_ps,
                                    .b_ps = m->b_ps,
                                    .w_ps = m->w_ps,
                                    .comm_ps = m->times.comm_ps,
                                    .w_share = mw_sched_w_share(a),
                                    .memory_limit = a->memory_limit,
                                    .objective = a->objective,
                                    .effort = a->effort};
}

static bool is_auto(const struct mw_sched_kind *k)
{
    return k != NULL && (strcmp(k->name, "zb-auto") == 0 ||
                         strcmp(k->name, "zbv-auto") == 0);
}

/* GLPK proves the order or finds a better one, if it can in time. */
static enum mw_status run_exact(const struct mw_sched_ask *a,
                                const struct mw_auto_problem *q,
                                struct mw_sched_made *m, struct mw_err *err)
{
    struct mw_exact_opts write = {.lp_file = a->lp_file};
    struct mw_exact e = {.value_ps = 0};
    enum mw_status st = mw_exact_solve(q, &m->s, a->exact_s, &e, err);

    if (st == MW_OK && a->lp_file != NULL) {
        st = mw_exact_disjunctive(q, e.has_schedule ? &e.schedule : &m->s,
                                  &write, &e, err);
    }
    if (st != MW_OK) {
        return st;
    }
    if (e.has_schedule) {
        mw_schedule_release(&m->s);
        m->s = e.schedule;
        e.has_schedule = false;
        m->solver = "glpk";
    }
    if (e.is_proved && !m->is_proved) {
        m->bound_by = e.by;
    }
    m->bound_ps = e.bound_ps;
    m->is_proved = e.is_proved;
    mw_exact_release(&e);
    return MW_OK;
}

static enum mw_status make_auto(const struct mw_sched_ask *a, int v,
                                struct mw_sched_made *m, struct mw_err *err)
{
    struct mw_auto_problem q = problem_of(a, m, a->stages, v, a->microbatches);
    struct mw_auto_result r;
    enum mw_status st = mw_schedule_auto(&q, &r, err);

    if (st == MW_OK) {
        m->s = r.schedule;
        m->bound_ps = r.bound_ps;
        m->bound_by = r.bound_by;
        m->is_proved = r.is_proved;
        m->solver = r.found_by;
        if (a->exact_s > 0 || a->lp_file != NULL) {
            st = run_exact(a, &q, m, err);
        }
    }
    return st;
}

/* The args' mean times: what time-aware fixed kinds plan with. */
static enum mw_status make_fixed(const struct mw_sched_ask *a, int v,
                                 double share, struct mw_sched_made *m,
                                 struct mw_err *err)
{
    struct mw_sched_args args = {.n_stages = a->stages,
                                 .n_microbatches = a->microbatches,
                                 .n_chunks = v,
                                 .n_parts = a->parts,
                                 .group = a->group,
                                 .f_s = a->f_s * share,
                                 .b_s = a->b_s * share,
                                 .w_s = a->w_s * share,
                                 .comm_s = a->comm_s,
                                 .memory_limit = a->memory_limit};

    m->solver = "generator";
    return mw_schedule_make(a->kind, &args, &m->s, err);
}

static enum mw_status read_order(const struct mw_sched_ask *a,
                                 struct mw_sched_made *m, struct mw_err *err)
{
    char *text = NULL;
    size_t len = 0;
    enum mw_status st =
        mw_file_read(a->from_csv, MW_TORCH_CSV_MAX, &text, &len, err);

    if (st == MW_OK) {
        st = mw_torch_csv_parse(a->from_csv, text, len, &m->s, err);
        mw_free(text);
    }
    if (st == MW_OK) {
        st = mw_schedule_check(&m->s, err);
        if (st != MW_OK) {
            mw_err_prefix(err, "%s", a->from_csv);
        }
    }
    m->solver = "file";
    return st;
}

/* A bound for any order with the placement of this one and no more memory. */
static void bound_fixed(const struct mw_sched_ask *a, struct mw_sched_made *m)
{
    const struct mw_schedule *s = &m->s;
    struct mw_auto_problem q =
        problem_of(a, m, s->n_stages, s->n_chunks, s->n_microbatches);
    double peak = 0;
    int d;

    for (d = 0; d < s->n_stages; d++) {
        const struct mw_pipe_stage_stats *x = &m->stats.stage[d];
        mw_time work = x->busy_ps - m->opt_ps[d];

        peak = x->peak > peak ? x->peak : peak;
        m->bound_ps = work > m->bound_ps ? work : m->bound_ps;
    }
    m->bound_by = "work";
    q.memory_limit = a->memory_limit > 0 ? a->memory_limit : peak;
    if (!s->is_forward_only && s->n_routes == 1 && s->n_parts == 1 &&
        (s->n_chunks == 1 ||
         (s->n_chunks == 2 && s->placement == MW_PLACE_V))) {
        mw_schedule_bound(&q, &m->bound_ps, &m->bound_by, NULL);
    }
}

mw_time mw_sched_value(const struct mw_sched_ask *a,
                       const struct mw_sched_made *m)
{
    return a->objective == MW_OBJECTIVE_SPAN ? m->run.longest_span_ps
                                             : m->run.makespan_ps;
}

static enum mw_status measure(const struct mw_sched_ask *a,
                              struct mw_sched_made *m, struct mw_err *err)
{
    size_t n = (size_t)m->s.n_stages * (size_t)m->s.n_chunks;
    struct mw_pipe_stats_opts opts = {.w_share = mw_sched_w_share(a),
                                      .boundary_bytes = a->boundary_bytes};
    double *bytes = mw_calloc(n, sizeof *bytes);
    enum mw_status st = mw_pipe_replay(&m->s, &m->times, &m->run, err);

    for (size_t i = 0; i < n; i++) {
        bytes[i] = a->activation_bytes;
    }
    opts.activation_bytes = bytes;
    if (st == MW_OK) {
        mw_pipe_stats(&m->s, &m->times, &m->run, &opts, &m->stats);
    }
    mw_free(bytes);
    if (st == MW_OK && a->memory_limit > 0) {
        st = mw_schedule_check_memory(&m->s, a->memory_limit,
                                      mw_sched_w_share(a), err);
        if (st != MW_OK) {
            double peak = 0;

            for (int d = 0; d < m->s.n_stages; d++) {
                peak = fmax(peak, m->stats.stage[d].peak);
            }
            mw_err_clear(err);
            st = mw_fail(err, MW_EUSAGE,
                         "--memory-limit: %s needs %g activations, more than "
                         "the limit of %g",
                         m->s.name, peak, a->memory_limit);
        }
    }
    return st;
}

/* Chunks of the kind: what was asked, or its least. */
static int chunks_of(const struct mw_sched_ask *a,
                     const struct mw_sched_kind *k)
{
    return a->chunks > 0 || k == NULL ? a->chunks : k->min_chunks;
}

static enum mw_status make(const struct mw_sched_ask *a, bool is_whole,
                           struct mw_sched_made *m, struct mw_err *err)
{
    const struct mw_sched_kind *k =
        a->kind != NULL ? mw_schedule_kind_find(a->kind) : NULL;
    int v = chunks_of(a, k), parts = a->parts > 1 ? a->parts : 2;
    double share = 1, start = now_s();
    enum mw_status st;

    if (is_whole && k != NULL) {
        share = strcmp(k->name, "seq1f1b") == 0          ? 1.0 / parts
                : k->max_chunks > 1 && k->min_chunks > 1 ? 1.0 / v
                                                         : 1;
    }
    if (is_auto(k)) {
        if (v < k->min_chunks || v > k->max_chunks) {
            return mw_fail(err, MW_EUSAGE,
                           "--chunks: %s needs exactly %d per stage, not %d",
                           k->name, k->min_chunks, v);
        }
        st = set_times(a, a->stages, v, share, m, err);
        return st == MW_OK ? make_auto(a, v, m, err) : st;
    }
    st = a->from_csv != NULL ? read_order(a, m, err)
                             : make_fixed(a, v, share, m, err);
    m->solve_time_s = now_s() - start;
    return st == MW_OK
               ? set_times(a, m->s.n_stages, m->s.n_chunks, share, m, err)
               : st;
}

enum mw_status mw_sched_make(const struct mw_sched_ask *a, bool is_whole,
                             struct mw_sched_made *m, struct mw_err *err)
{
    double start = now_s();
    enum mw_status st;

    memset(m, 0, sizeof *m);
    st = make(a, is_whole, m, err);
    m->solve_time_s = now_s() - start;
    if (st == MW_OK) {
        st = measure(a, m, err);
    }
    if (st == MW_OK && m->bound_ps == 0) {
        bound_fixed(a, m);
        m->is_proved = mw_sched_value(a, m) == m->bound_ps;
    }
    if (st != MW_OK) {
        mw_sched_made_release(m);
    }
    return st;
}

void mw_sched_made_release(struct mw_sched_made *m)
{
    mw_pipe_stats_release(&m->stats);
    mw_pipe_run_release(&m->run);
    mw_schedule_release(&m->s);
    mw_free(m->f_ps);
    mw_free(m->opt_ps);
    memset(m, 0, sizeof *m);
}
