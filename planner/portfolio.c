/* One integer program over the rows of several sweeps: see portfolio.h. */
#include "planner/portfolio.h"

#include "base/mem.h"

#include <glpk.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

struct column {
    size_t row;
    int job, kind;
    double gpus, time_s, usd;
};
struct portfolio {
    const struct mw_portfolio_problem *p;
    struct {
        struct column *v;
        size_t n, cap;
    } columns;
    int n_jobs;
    glp_prob *lp;
    double time_unit, usd_unit;
    int n_ilps;
};

/* ---- columns ---------------------------------------------------------------
 */
static bool same_job(const struct mw_sweep_row *a, const struct mw_sweep_row *b)
{
    return strcmp(a->scenario, b->scenario) == 0 &&
           strcmp(a->model, b->model) == 0;
}

/* Jobs in the order in which they first appear; -1: too many. */
static int job_of(const struct mw_sweep_rows *rows, size_t i, size_t *first,
                  int *n_jobs)
{
    for (int j = 0; j < *n_jobs; j++) {
        if (same_job(&rows->v[first[j]], &rows->v[i])) {
            return j;
        }
    }
    if (*n_jobs == MW_PORTFOLIO_JOBS_MAX) {
        return -1;
    }
    first[*n_jobs] = i;
    return (*n_jobs)++;
}

static int kind_of(const struct mw_portfolio_problem *p, const char *system)
{
    for (int k = 0; k < p->n_budgets; k++) {
        if (strcmp(p->budget[k].system, system) == 0) {
            return k;
        }
    }
    return -1;
}

static enum mw_status fill_columns(struct portfolio *f, struct mw_err *err)
{
    const struct mw_portfolio_problem *p = f->p;
    size_t first[MW_PORTFOLIO_JOBS_MAX];

    for (size_t i = 0; i < p->rows->n; i++) {
        const struct mw_sweep_row *r = &p->rows->v[i];
        struct column c = {.row = i,
                           .job = job_of(p->rows, i, first, &f->n_jobs),
                           .kind = kind_of(p, r->system)};

        if (c.job < 0) {
            return mw_fail(err, MW_EUSAGE, "more than %d jobs",
                           MW_PORTFOLIO_JOBS_MAX);
        }
        if (c.kind < 0 || !r->is_feasible) {
            continue;
        }
        c.gpus = (double)r->gpus;
        c.time_s = p->tokens / r->tokens_per_s;
        c.usd =
            c.gpus * c.time_s / 3600 *
            (p->usd_per_gpu_hour ? p->usd_per_gpu_hour[c.kind] : (double)NAN);
        if ((p->cap_usd > 0 || p->by_cost) && isnan(c.usd)) {
            return mw_fail(err, MW_EUSAGE,
                           "the database has no price of %s; --price says it",
                           r->system);
        }
        if (p->deadline_s > 0 && c.time_s > p->deadline_s) {
            continue;
        }
        f->time_unit = fmax(f->time_unit, c.time_s);
        f->usd_unit = fmax(f->usd_unit, c.usd);
        mw_array_push(&f->columns, c);
    }
    return MW_OK;
}

/* ---- the program -----------------------------------------------------------
 */
struct row {
    int *index;
    double *value;
    int n;
};

static void entry(struct row *r, int column, double value)
{
    r->index[++r->n] = column;
    r->value[r->n] = value;
}

static void end_row(glp_prob *lp, struct row *r, int type, double low,
                    double high)
{
    int row = glp_add_rows(lp, 1);

    glp_set_mat_row(lp, row, r->n, r->index, r->value);
    glp_set_row_bnds(lp, row, type, low, high);
    r->n = 0;
}

/* Columns 1..n are x, then y of each kind. */
static int col_y(const struct portfolio *f, int kind)
{
    return (int)f->columns.n + kind + 1;
}

static double cost_of(const struct portfolio *f, const struct column *c)
{
    return f->p->by_cost ? c->usd / f->usd_unit : c->time_s / f->time_unit;
}

static void add_conditions(struct portfolio *f, struct row *r)
{
    const struct mw_portfolio_problem *p = f->p;
    int n = (int)f->columns.n;

    for (int k = 0; k < p->n_budgets; k++) {
        for (int i = 0; i < n; i++) {
            if (f->columns.v[i].kind == k) {
                entry(r, i + 1, f->columns.v[i].gpus);
            }
        }
        entry(r, col_y(f, k), -p->budget[k].n_gpus);
        end_row(f->lp, r, GLP_UP, 0, 0);
    }
    if (p->max_kinds > 0) {
        for (int k = 0; k < p->n_budgets; k++) {
            entry(r, col_y(f, k), 1);
        }
        end_row(f->lp, r, GLP_UP, 0, p->max_kinds);
    }
    if (p->cap_usd > 0) {
        for (int i = 0; i < n; i++) {
            entry(r, i + 1, f->columns.v[i].usd / f->usd_unit);
        }
        end_row(f->lp, r, GLP_UP, 0, p->cap_usd / f->usd_unit);
    }
}

static void build(struct portfolio *f, struct row *r)
{
    int n = (int)f->columns.n;

    f->lp = glp_create_prob();
    glp_set_obj_dir(f->lp, GLP_MIN);
    glp_add_cols(f->lp, n + f->p->n_budgets);
    for (int c = 1; c <= n + f->p->n_budgets; c++) {
        glp_set_col_kind(f->lp, c, GLP_BV);
    }
    for (int i = 0; i < n; i++) {
        glp_set_obj_coef(f->lp, i + 1, cost_of(f, &f->columns.v[i]));
    }
    for (int j = 0; j < f->n_jobs; j++) {
        for (int i = 0; i < n; i++) {
            if (f->columns.v[i].job == j) {
                entry(r, i + 1, 1);
            }
        }
        end_row(f->lp, r, GLP_FX, 1, 1);
    }
    add_conditions(f, r);
}

/* T in seconds as a variable, or the money: for another solver. */
static enum mw_status write_direct(const struct portfolio *f, struct row *r,
                                   const char *path, struct mw_err *err)
{
    glp_prob *lp = glp_create_prob();
    int n = (int)f->columns.n;
    enum mw_status status = MW_OK;

    glp_copy_prob(lp, f->lp, GLP_OFF);
    glp_set_obj_dir(lp, GLP_MIN);
    for (int i = 0; i < n; i++) {
        glp_set_obj_coef(lp, i + 1, f->p->by_cost ? f->columns.v[i].usd : 0);
    }
    int t = glp_add_cols(lp, 1);

    glp_set_col_bnds(lp, t, GLP_LO, 0, 0);
    glp_set_obj_coef(lp, t, f->p->by_cost ? 0 : 1);
    for (int j = 0; j < f->n_jobs; j++) {
        entry(r, t, 1);
        for (int i = 0; i < n; i++) {
            if (f->columns.v[i].job == j) {
                entry(r, i + 1, -f->columns.v[i].time_s);
            }
        }
        end_row(lp, r, GLP_LO, 0, 0);
    }
    if (glp_write_lp(lp, NULL, path) != 0) {
        status = mw_fail(err, MW_EINPUT, "%s: cannot write the model", path);
    }
    glp_delete_prob(lp);
    return status;
}

/* ---- solving ---------------------------------------------------------------
 */
/* Least cost with columns up to time t; false: none. */
static enum mw_status solve(struct portfolio *f, double t, bool *out_found,
                            struct mw_err *err)
{
    glp_smcp simplex;
    glp_iocp mip;

    for (size_t i = 0; i < f->columns.n; i++) {
        bool is_in = f->columns.v[i].time_s <= t;

        glp_set_col_bnds(f->lp, (int)i + 1, is_in ? GLP_DB : GLP_FX, 0, is_in);
    }
    glp_init_smcp(&simplex);
    simplex.msg_lev = GLP_MSG_OFF;
    glp_init_iocp(&mip);
    mip.msg_lev = GLP_MSG_OFF;
    f->n_ilps++;
    glp_std_basis(f->lp);
    int code = glp_simplex(f->lp, &simplex);
    int status = glp_get_status(f->lp);

    *out_found = false;
    if (code == 0 && (status == GLP_NOFEAS || status == GLP_INFEAS)) {
        return MW_OK;
    }
    if (code == 0 && status == GLP_OPT) {
        code = glp_intopt(f->lp, &mip);
        status = glp_mip_status(f->lp);
        *out_found = status == GLP_OPT;
        if (code == 0 && (status == GLP_OPT || status == GLP_NOFEAS)) {
            return MW_OK;
        }
    }
    return mw_fail(err, MW_EBACKEND,
                   "GLPK did not solve the choice of %zu columns (code %d, "
                   "status %d)",
                   f->columns.n, code, status);
}

static void take(const struct portfolio *f, struct mw_portfolio *out)
{
    bool used[MW_COLUMN_KINDS_MAX] = {false};

    *out = (struct mw_portfolio){
        .n_jobs = f->n_jobs, .n_ilps = f->n_ilps, .is_proved = true};
    for (size_t i = 0; i < f->columns.n; i++) {
        const struct column *c = &f->columns.v[i];

        if (glp_mip_col_val(f->lp, (int)i + 1) > 0.5) {
            out->row[c->job] = c->row;
            out->longest_s = fmax(out->longest_s, c->time_s);
            out->sum_s += c->time_s;
            out->usd += c->usd;
            out->n_kinds += !used[c->kind];
            used[c->kind] = true;
        }
    }
}

static int compare_times(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

/* The least threshold with a choice, by halving; leaves its solution. */
static enum mw_status least_end(struct portfolio *f, bool *out_found,
                                struct mw_err *err)
{
    size_t n = f->columns.n, low = 0, high = n;
    double *t = mw_calloc(n + 1, sizeof *t);
    bool is_found = false;
    enum mw_status status = MW_OK;

    for (size_t i = 0; i < n; i++) {
        t[i] = f->columns.v[i].time_s;
    }
    qsort(t, n, sizeof *t, compare_times);
    while (low < high && status == MW_OK) {
        size_t middle = (low + high) / 2;

        status = solve(f, t[middle], &is_found, err);
        if (is_found) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    *out_found = false;
    if (status == MW_OK && low < n) {
        status = solve(f, t[low], out_found, err);
    }
    mw_free(t);
    return status;
}

static enum mw_status check(const struct mw_portfolio_problem *p,
                            struct mw_err *err)
{
    return p->n_budgets >= 1 && p->n_budgets <= MW_COLUMN_KINDS_MAX
               ? MW_OK
               : mw_fail(err, MW_EUSAGE,
                         "1 to %d systems have a budget, not %d",
                         MW_COLUMN_KINDS_MAX, p->n_budgets);
}

static enum mw_status say_no(const struct portfolio *f, struct mw_err *err)
{
    const struct mw_portfolio_problem *p = f->p;

    if (p->cap_usd > 0 || p->deadline_s > 0 || p->max_kinds > 0) {
        return mw_fail(err, MW_ENO,
                       "no choice for the %d jobs is within the GPUs, the "
                       "money, the kinds and the time",
                       f->n_jobs);
    }
    if (f->columns.n == 0) {
        return mw_fail(err, MW_ENO, "no row has a plan on these systems");
    }
    return mw_fail(err, MW_ENO, "the GPUs are too few for all %d jobs at once",
                   f->n_jobs);
}

enum mw_status mw_portfolio_choose(const struct mw_portfolio_problem *p,
                                   const char *lp_path,
                                   struct mw_portfolio *out, struct mw_err *err)
{
    struct portfolio f = {.p = p};
    struct row r = {.n = 0};
    bool is_found = false;
    enum mw_status status = check(p, err);

    if (status == MW_OK) {
        status = fill_columns(&f, err);
    }
    if (status == MW_OK && f.columns.n > 0) {
        size_t room = f.columns.n + (size_t)p->n_budgets + 2;

        r.index = mw_calloc(room, sizeof *r.index);
        r.value = mw_calloc(room, sizeof *r.value);
        f.usd_unit = f.usd_unit > 0 ? f.usd_unit : 1;
        glp_term_out(GLP_OFF);
        build(&f, &r);
        status = lp_path ? write_direct(&f, &r, lp_path, err) : MW_OK;
        if (status == MW_OK) {
            status = p->by_cost ? solve(&f, HUGE_VAL, &is_found, err)
                                : least_end(&f, &is_found, err);
        }
        if (is_found) {
            take(&f, out);
        }
        glp_delete_prob(f.lp);
    }
    if (status == MW_OK && !is_found) {
        status = say_no(&f, err);
    }
    mw_free(r.index);
    mw_free(r.value);
    mw_array_release(&f.columns);
    return status;
}
