/*
 * The certifier's order of work: the cheap refutation first, then where the W
 * passes go, then the order of everything; and what the programs share.
 */
#include "planner/auto/exact_int.h"

#include "sim/pipe/pipe_stats.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static mw_time gcd(mw_time a, mw_time b)
{
    while (b != 0) {
        mw_time t = a % b;

        a = b;
        b = t;
    }
    return a;
}

void exact_problem_init(struct exact_problem *x,
                        const struct mw_auto_problem *q)
{
    const mw_time *d[X_TYPES] = {q->f_ps, q->b_ps, q->w_ps};
    mw_time g = q->comm_ps;
    int t, i;

    memset(x, 0, sizeof *x);
    x->q = q;
    x->p = q->n_stages;
    x->m = q->n_microbatches;
    x->w_share = q->w_share;
    x->is_span = q->objective == MW_OBJECTIVE_SPAN;
    for (t = 0; t < X_TYPES; t++) {
        for (i = 0; i < x->p; i++) {
            g = gcd(g, d[t][i]);
        }
    }
    x->tick_ps = g > 0 ? g : 1;
    x->comm = (double)(q->comm_ps / x->tick_ps);
    for (t = 0; t < X_TYPES; t++) {
        x->d[t] = mw_calloc((size_t)x->p, sizeof *x->d[t]);
        for (i = 0; i < x->p; i++) {
            x->d[t][i] = (double)(d[t][i] / x->tick_ps);
        }
    }
    x->limit = mw_calloc((size_t)x->p, sizeof *x->limit);
    for (i = 0; i < x->p; i++) {
        double limit =
            q->stage_limit != NULL ? q->stage_limit[i] : q->memory_limit;

        x->limit[i] = limit > 0 && limit < x->m ? limit : x->m;
    }
}

void exact_problem_release(struct exact_problem *x)
{
    int t;

    for (t = 0; t < X_TYPES; t++) {
        mw_free(x->d[t]);
    }
    mw_free(x->limit);
    memset(x, 0, sizeof *x);
}

double exact_head(const struct exact_problem *x, int stage)
{
    double t = 0;
    int i;

    for (i = 0; i < stage; i++) {
        t += x->d[X_F][i] + x->comm;
    }
    return t;
}

int exact_in_flight(const struct exact_problem *x, int stage)
{
    return (int)(x->limit[stage] * (1 + 1e-9));
}

double exact_now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* ---- rows -------------------------------------------------------------- */
void exact_row_init(struct exact_row *r, int cap)
{
    r->n = 0;
    r->index = mw_calloc((size_t)cap + 1, sizeof *r->index);
    r->value = mw_calloc((size_t)cap + 1, sizeof *r->value);
}

void exact_row_release(struct exact_row *r)
{
    mw_free(r->index);
    mw_free(r->value);
}

void exact_row_add(struct exact_row *r, int column, double value)
{
    r->n++;
    r->index[r->n] = column;
    r->value[r->n] = value;
}

static void finish_row(glp_prob *lp, struct exact_row *r, int type, double v)
{
    int row = glp_add_rows(lp, 1);

    glp_set_row_bnds(lp, row, type, v, v);
    glp_set_mat_row(lp, row, r->n, r->index, r->value);
    r->n = 0;
}

void exact_row_low(glp_prob *lp, struct exact_row *r, double low)
{
    finish_row(lp, r, GLP_LO, low);
}

void exact_row_high(glp_prob *lp, struct exact_row *r, double high)
{
    finish_row(lp, r, GLP_UP, high);
}

/* ---- schedules --------------------------------------------------------- */
static struct mw_pipe_times times_of(const struct exact_problem *x)
{
    return (struct mw_pipe_times){.f_ps = x->q->f_ps,
                                  .b_ps = x->q->b_ps,
                                  .w_ps = x->q->w_ps,
                                  .comm_ps = x->q->comm_ps};
}

bool exact_ends(const struct exact_problem *x, const struct mw_schedule *s,
                double *end)
{
    struct mw_pipe_times times = times_of(x);
    struct mw_pipe_run run;
    uint32_t i;
    int d;

    if (s->n_stages != x->p || s->n_microbatches != x->m || s->n_chunks != 1 ||
        s->n_parts != 1 || mw_schedule_check(s, NULL) != MW_OK ||
        mw_pipe_replay(s, &times, &run, NULL) != MW_OK) {
        return false;
    }
    for (d = 0; d < x->p; d++) {
        for (i = s->first[d]; i < s->first[d + 1]; i++) {
            const struct mw_slot *y = &s->slot[i];
            double *e = end + (d * x->m + y->microbatch) * 3;
            double at = (double)(run.end_ps[i] / x->tick_ps);

            if (y->pass == MW_PASS_BW) {
                e[X_B] = at - x->d[X_W][d];
                e[X_W] = at;
            } else {
                e[y->pass == MW_PASS_F   ? X_F
                  : y->pass == MW_PASS_B ? X_B
                                         : X_W] = at;
            }
        }
    }
    mw_pipe_run_release(&run);
    return true;
}

/* A pass while a stage's are sorted. */
struct pass {
    double end;
    int type, j;
};

static int by_end(const void *a, const void *b)
{
    const struct pass *x = a, *y = b;

    if (fabs(x->end - y->end) > 1e-6) {
        return x->end < y->end ? -1 : 1;
    }
    return x->type != y->type ? x->type - y->type : x->j - y->j;
}

static void list_of(const struct exact_problem *x, int d, const double *end,
                    struct mw_str *text)
{
    static const char letter[] = "FBW";
    size_t n = 3 * (size_t)x->m;
    struct pass *v = mw_calloc(n, sizeof *v);
    int j, t, i;

    for (j = 0; j < x->m; j++) {
        for (t = 0; t < X_TYPES; t++) {
            v[3 * j + t] = (struct pass){end[(d * x->m + j) * 3 + t], t, j};
        }
    }
    qsort(v, n, sizeof *v, by_end);
    for (i = 0; i < 3 * x->m; i++) {
        mw_str_addf(text, "%c%d ", letter[v[i].type], v[i].j);
    }
    mw_free(v);
}

enum mw_status exact_schedule(const struct exact_problem *x, const double *end,
                              struct mw_schedule *out, struct mw_err *err)
{
    size_t p = (size_t)x->p;
    struct mw_str *text = mw_calloc(p, sizeof *text);
    const char **list = mw_calloc(p, sizeof *list);
    enum mw_status st;
    int d;

    for (d = 0; d < x->p; d++) {
        list_of(x, d, end, &text[d]);
        list[d] = text[d].s;
    }
    st = mw_schedule_parse(list, x->p, x->m, 1, "loop", out, err);
    for (d = 0; d < x->p; d++) {
        mw_str_release(&text[d]);
    }
    mw_free(text);
    mw_free(list);
    if (st == MW_OK) {
        out->name = "zb-auto";
    }
    return st;
}

mw_time exact_value(const struct exact_problem *x, const struct mw_schedule *s)
{
    struct mw_pipe_times times = times_of(x);
    struct mw_pipe_run run;
    mw_time v;
    int d;

    if (mw_schedule_check(s, NULL) != MW_OK) {
        return -1;
    }
    for (d = 0; d < x->p; d++) {
        if (x->q->stage_limit == NULL &&
            mw_schedule_check_memory(s, x->limit[d], x->w_share, NULL) !=
                MW_OK) {
            return -1;
        }
    }
    if (mw_pipe_replay(s, &times, &run, NULL) != MW_OK) {
        return -1;
    }
    v = x->is_span ? run.longest_span_ps : run.makespan_ps;
    mw_pipe_run_release(&run);
    return v;
}

void exact_adopt(const struct exact_problem *x, const double *end,
                 const char *by, struct mw_exact *out)
{
    struct mw_schedule s;
    mw_time v;

    if (exact_schedule(x, end, &s, NULL) != MW_OK) {
        return;
    }
    v = exact_value(x, &s);
    if (v < 0 || v >= out->value_ps) {
        mw_schedule_release(&s);
        return;
    }
    if (out->has_schedule) {
        mw_schedule_release(&out->schedule);
    }
    out->schedule = s;
    out->has_schedule = true;
    out->value_ps = v;
    out->by = by;
}

void mw_exact_release(struct mw_exact *exact)
{
    if (exact->has_schedule) {
        mw_schedule_release(&exact->schedule);
    }
    memset(exact, 0, sizeof *exact);
}

/* ---- order of work ------------------------------------------------------- */
/* Refutes the next better value in ticks, as often as it goes. */
static void refute(const struct exact_problem *x, double until,
                   struct mw_exact *out)
{
    mw_time target = out->value_ps - x->tick_ps;

    if (x->is_span || target < out->bound_ps) {
        return;
    }
    if (mw_exact_refute(x->q, target, until - exact_now()) == MW_EXACT_NO) {
        out->bound_ps = out->value_ps;
        out->by = "time-indexed";
    }
}

static const struct mw_schedule *best_of(const struct mw_exact *out,
                                         const struct mw_schedule *incumbent)
{
    return out->has_schedule ? &out->schedule : incumbent;
}

static enum mw_status close_gap(const struct exact_problem *x,
                                const struct mw_schedule *incumbent,
                                double until, struct mw_exact *out,
                                struct mw_err *err)
{
    struct mw_exact_opts opts = {.is_lazy = true, .use_hints = true};
    int cells = x->p * x->m;
    enum mw_status st = MW_OK;

    if (cells <= MW_EXACT_WEIGHT_CELLS_MAX) {
        refute(x, exact_now() + (until - exact_now()) / 3, out);
    }
    if (out->value_ps > out->bound_ps && cells <= MW_EXACT_WEIGHT_CELLS_MAX) {
        st = mw_exact_weight(x->q, best_of(out, incumbent),
                             (until - exact_now()) / 3, out, err);
    }
    if (st == MW_OK && out->value_ps > out->bound_ps &&
        cells <= MW_EXACT_CELLS_MAX) {
        opts.time_limit_s = until - exact_now();
        st = mw_exact_disjunctive(x->q, best_of(out, incumbent), &opts, out,
                                  err);
    }
    return st;
}

enum mw_status mw_exact_solve(const struct mw_auto_problem *problem,
                              const struct mw_schedule *incumbent,
                              double time_limit_s, struct mw_exact *out,
                              struct mw_err *err)
{
    double until = exact_now() + time_limit_s;
    struct exact_problem x;
    enum mw_status st;

    memset(out, 0, sizeof *out);
    out->by = "bound";
    if (problem->n_chunks != 1) {
        return mw_fail(err, MW_EUSAGE,
                       "the exact programs know one chunk per stage, not %d",
                       problem->n_chunks);
    }
    st = mw_schedule_bound(problem, &out->bound_ps, NULL, err);
    if (st != MW_OK) {
        return st;
    }
    exact_problem_init(&x, problem);
    out->value_ps = exact_value(&x, incumbent);
    if (out->value_ps < 0) {
        st = mw_fail(err, MW_EUSAGE,
                     "the incumbent is not a schedule of the problem");
    } else if (out->value_ps > out->bound_ps) {
        st = close_gap(&x, incumbent, until, out, err);
    }
    out->is_proved = out->value_ps == out->bound_ps;
    exact_problem_release(&x);
    if (st != MW_OK) {
        mw_exact_release(out);
    }
    return st;
}
