/*
 * The threshold form with GLPK: one model with all columns, a threshold fixes
 * the slow ones at 0 and keeps the basis, so that a solve is a few dual simplex
 * steps after the last.
 */
#include "planner/columns.h"

#include "base/log.h"
#include "base/mem.h"

#include <glpk.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

struct solver {
    const struct mw_column_problem *p;
    int *kept; /* indices of columns, by (stage, time) */
    int n_kept;
    double *threshold; /* distinct times, ascending */
    int n_thresholds;
    glp_prob *lp;
    double unit_s;
    double best;
    bool is_found;  /* a choice of that value, not only one to beat */
    int *best_kept; /* [n_stages] */
    bool is_out[MW_COLUMN_KINDS_MAX]; /* kinds that are not to be used */
    double least_open;                /* bound of what was left undecided */
    double limit_s;
    int64_t start_ns;
    struct mw_column_answer *out;
    enum mw_status status;
};

static bool has_places(const struct mw_column_problem *p)
{
    return p->n_places > 1;
}

/* Does stage i begin where the one before it ends? */
static bool follows(const struct mw_column_problem *p, const int *chosen, int i)
{
    return !has_places(p) || p->column[chosen[i]].begins ==
                                 (i > 0 ? p->column[chosen[i - 1]].ends : 0);
}

double mw_columns_value(const struct mw_column_problem *p, const int *chosen)
{
    double slowest = 0, sum = 0;
    int layers = 0, used[MW_COLUMN_KINDS_MAX] = {0};

    for (int i = 0; i < p->n_stages; i++) {
        const struct mw_column *c = &p->column[chosen[i]];

        if (c->stage != i || !follows(p, chosen, i)) {
            return HUGE_VAL;
        }
        slowest = fmax(slowest, c->time_s);
        sum += c->time_s;
        layers += c->n_layers;
        used[c->kind] += c->n_devices;
        if (i > 0 && p->column[chosen[i - 1]].kind != c->kind) {
            sum += 2 * p->change_s;
        }
    }
    int n_kinds = 0;

    for (int k = 0; k < p->n_kinds; k++) {
        if (used[k] > p->devices[k]) {
            return HUGE_VAL;
        }
        n_kinds += used[k] > 0;
    }
    if (p->max_kinds > 0 && n_kinds > p->max_kinds) {
        return HUGE_VAL;
    }
    return layers == p->n_layers ? (p->n_microbatches - 1) * slowest + sum
                                 : HUGE_VAL;
}

/* ---- useful columns --------------------------------------------------------
 */
/* Can b stand wherever a can, but for its devices? */
static bool are_peers(const struct mw_column *a, const struct mw_column *b)
{
    return a->stage == b->stage && a->n_layers == b->n_layers &&
           a->kind == b->kind && a->begins == b->begins && a->ends == b->ends;
}

/* Is b as good as a wherever a could stand? Equal ones: the first stays. */
static bool dominates(const struct mw_column *b, const struct mw_column *a,
                      bool b_is_first)
{
    return are_peers(b, a) && b->n_devices <= a->n_devices &&
           b->time_s <= a->time_s &&
           (b->n_devices < a->n_devices || b->time_s < a->time_s || b_is_first);
}

/* By stage, layers, kind, places, time, so that what dominates comes before. */
struct order {
    const struct mw_column *c;
    int index;
};

static int compare_order(const void *a, const void *b)
{
    const struct order *x = a, *y = b;

    if (x->c->stage != y->c->stage) {
        return x->c->stage < y->c->stage ? -1 : 1;
    }
    if (x->c->n_layers != y->c->n_layers) {
        return x->c->n_layers < y->c->n_layers ? -1 : 1;
    }
    if (x->c->kind != y->c->kind) {
        return x->c->kind < y->c->kind ? -1 : 1;
    }
    if (x->c->begins != y->c->begins) {
        return x->c->begins < y->c->begins ? -1 : 1;
    }
    if (x->c->ends != y->c->ends) {
        return x->c->ends < y->c->ends ? -1 : 1;
    }
    if (x->c->time_s != y->c->time_s) {
        return x->c->time_s < y->c->time_s ? -1 : 1;
    }
    return x->index < y->index ? -1 : 1;
}

static void keep_useful(struct solver *s)
{
    size_t n = s->p->n_columns;
    struct order *sorted = mw_calloc(n, sizeof *sorted);

    for (size_t i = 0; i < n; i++) {
        sorted[i] = (struct order){&s->p->column[i], (int)i};
    }
    qsort(sorted, n, sizeof *sorted, compare_order);
    s->kept = mw_calloc(n, sizeof *s->kept);
    for (size_t i = 0; i < n; i++) {
        bool is_useful = !has_places(s->p) || sorted[i].c->stage > 0 ||
                         sorted[i].c->begins == 0;

        for (int k = s->n_kept - 1; k >= 0 && is_useful; k--) {
            const struct mw_column *other = &s->p->column[s->kept[k]];

            if (!are_peers(other, sorted[i].c)) {
                break;
            }
            is_useful = !dominates(other, sorted[i].c, true);
        }
        if (is_useful) {
            s->kept[s->n_kept++] = sorted[i].index;
        }
    }
    mw_free(sorted);
}

static int compare_times(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return x < y ? -1 : x > y;
}

static void find_thresholds(struct solver *s)
{
    int n = 0;

    s->threshold = mw_calloc((size_t)s->n_kept + 1, sizeof *s->threshold);
    for (int i = 0; i < s->n_kept; i++) {
        s->threshold[i] = s->p->column[s->kept[i]].time_s;
    }
    qsort(s->threshold, (size_t)s->n_kept, sizeof *s->threshold, compare_times);
    for (int i = 0; i < s->n_kept; i++) {
        if (n == 0 || s->threshold[i] > s->threshold[n - 1]) {
            s->threshold[n++] = s->threshold[i];
        }
    }
    s->n_thresholds = n;
    s->unit_s = n > 0 ? s->threshold[n - 1] : 1;
}

/* ---- the model -------------------------------------------------------------
 */
/* Rows: stage i; layers; kinds; changes, two kinds of each sign; places. */
static int row_changes(const struct mw_column_problem *p, int i, int kind)
{
    return p->n_stages + 1 + p->n_kinds + (i - 1) * p->n_kinds + kind + 1;
}

static bool has_changes(const struct mw_column_problem *p)
{
    return p->change_s > 0 && p->n_kinds > 1;
}

static bool has_uses(const struct mw_column_problem *p)
{
    return p->max_kinds > 0 && p->max_kinds < p->n_kinds;
}

/* Between stages i - 1 and i. */
static int row_place(const struct mw_column_problem *p, int i, int place)
{
    int n_changes = has_changes(p) ? (p->n_stages - 1) * p->n_kinds : 0;

    return p->n_stages + 1 + p->n_kinds + n_changes + (i - 1) * p->n_places +
           place + 1;
}

/* Kind k on stage i but not on i - 1: u_i >= sum x_ik - sum x_(i-1)k. */
static int column_entries(const struct mw_column_problem *p,
                          const struct mw_column *c, int *index, double *value)
{
    int n = 0;

    index[++n] = c->stage + 1;
    value[n] = 1;
    index[++n] = p->n_stages + 1;
    value[n] = c->n_layers;
    index[++n] = p->n_stages + 1 + c->kind + 1;
    value[n] = c->n_devices;
    if (has_changes(p) && c->stage > 0) {
        index[++n] = row_changes(p, c->stage, c->kind);
        value[n] = -1;
    }
    if (has_changes(p) && c->stage + 1 < p->n_stages) {
        index[++n] = row_changes(p, c->stage + 1, c->kind);
        value[n] = 1;
    }
    if (has_places(p) && c->stage > 0) {
        index[++n] = row_place(p, c->stage, c->begins);
        value[n] = -1;
    }
    if (has_places(p) && c->stage + 1 < p->n_stages) {
        index[++n] = row_place(p, c->stage + 1, c->ends);
        value[n] = 1;
    }
    return n;
}

static void add_rows(struct solver *s)
{
    const struct mw_column_problem *p = s->p;
    int fixed = p->n_stages + 1 + p->n_kinds;
    int n_changes = has_changes(p) ? (p->n_stages - 1) * p->n_kinds : 0;
    int n_places = has_places(p) ? (p->n_stages - 1) * p->n_places : 0;

    glp_add_rows(s->lp, fixed + n_changes + n_places);
    for (int i = 1; i <= p->n_stages; i++) {
        glp_set_row_bnds(s->lp, i, GLP_FX, 1, 1);
    }
    glp_set_row_bnds(s->lp, p->n_stages + 1, GLP_FX, p->n_layers, p->n_layers);
    for (int k = 0; k < p->n_kinds; k++) {
        glp_set_row_bnds(s->lp, p->n_stages + 2 + k, GLP_UP, 0, p->devices[k]);
    }
    for (int i = 1; i <= n_changes; i++) {
        glp_set_row_bnds(s->lp, fixed + i, GLP_LO, 0, 0);
    }
    for (int i = 1; i <= n_places; i++) {
        glp_set_row_bnds(s->lp, fixed + n_changes + i, GLP_FX, 0, 0);
    }
}

static void add_columns(struct solver *s)
{
    const struct mw_column_problem *p = s->p;
    int index[8];
    double value[8];
    int *rows = mw_calloc((size_t)p->n_kinds + 1, sizeof *rows);
    double *ones = mw_calloc((size_t)p->n_kinds + 1, sizeof *ones);

    glp_add_cols(s->lp, s->n_kept + (has_changes(p) ? p->n_stages - 1 : 0));
    for (int i = 0; i < s->n_kept; i++) {
        const struct mw_column *c = &p->column[s->kept[i]];
        int n = column_entries(p, c, index, value);

        glp_set_col_kind(s->lp, i + 1, GLP_BV);
        glp_set_obj_coef(s->lp, i + 1, c->time_s / s->unit_s);
        glp_set_mat_col(s->lp, i + 1, n, index, value);
    }
    for (int i = 1; has_changes(p) && i < p->n_stages; i++) {
        int c = s->n_kept + i;

        for (int k = 0; k < p->n_kinds; k++) {
            rows[k + 1] = row_changes(p, i, k);
            ones[k + 1] = 1;
        }
        glp_set_col_bnds(s->lp, c, GLP_DB, 0, 1);
        glp_set_obj_coef(s->lp, c, 2 * p->change_s / s->unit_s);
        glp_set_mat_col(s->lp, c, p->n_kinds, rows, ones);
    }
    mw_free(rows);
    mw_free(ones);
}

/* ---- thresholds ------------------------------------------------------------
 */
static void set_threshold(struct solver *s, double t)
{
    for (int i = 0; i < s->n_kept; i++) {
        const struct mw_column *c = &s->p->column[s->kept[i]];
        bool is_in = c->time_s <= t && !s->is_out[c->kind];

        if (is_in != (glp_get_col_ub(s->lp, i + 1) > 0.5)) {
            glp_set_col_bnds(s->lp, i + 1, is_in ? GLP_DB : GLP_FX, 0,
                             is_in ? 1 : 0);
        }
    }
}

/* Least sum with columns up to threshold i, relaxed; HUGE_VAL: none. */
static double relax(struct solver *s, int i)
{
    glp_smcp simplex;

    set_threshold(s, s->threshold[i]);
    glp_init_smcp(&simplex);
    simplex.msg_lev = GLP_MSG_OFF;
    simplex.meth = GLP_DUALP;
    s->out->n_lps++;
    int code = glp_simplex(s->lp, &simplex);
    int status = glp_get_status(s->lp);

    if (code != 0 || status == GLP_UNDEF) { /* a bad basis: begin anew */
        glp_std_basis(s->lp);
        code = glp_simplex(s->lp, &simplex);
        status = glp_get_status(s->lp);
    }
    if (status == GLP_NOFEAS || status == GLP_INFEAS) {
        return HUGE_VAL;
    }
    if (code != 0 || status != GLP_OPT) {
        s->status = MW_EBACKEND;
        return HUGE_VAL;
    }
    return glp_get_obj_val(s->lp) * s->unit_s;
}

static void take_solution(struct solver *s)
{
    int *chosen = mw_calloc((size_t)s->p->n_stages, sizeof *chosen);

    for (int i = 0; i < s->n_kept; i++) {
        if (glp_mip_col_val(s->lp, i + 1) > 0.5) {
            chosen[s->p->column[s->kept[i]].stage] = s->kept[i];
        }
    }
    double value = mw_columns_value(s->p, chosen);

    if (value < s->best) {
        s->best = value;
        s->is_found = true;
        memcpy(s->best_kept, chosen, (size_t)s->p->n_stages * sizeof *chosen);
    }
    mw_free(chosen);
}

static double spent_s(const struct solver *s)
{
    return 1e-9 * (double)(mw_clock_wall_ns() - s->start_ns);
}

/* The relaxation of threshold i is in the model. Cuts off what cannot beat
 * the best. */
static void solve_whole(struct solver *s, int i)
{
    glp_iocp mip;

    glp_init_iocp(&mip);
    mip.msg_lev = GLP_MSG_OFF;
    if (s->limit_s > 0) {
        double left = s->limit_s - spent_s(s);

        mip.tm_lim = left > 0 ? (int)ceil(1e3 * left) : 1;
    }
    s->out->n_ilps++;
    int code = glp_intopt(s->lp, &mip);
    int status = glp_mip_status(s->lp);

    if (status == GLP_OPT || status == GLP_FEAS) {
        take_solution(s);
    }
    if (code == GLP_ETMLIM) {
        s->least_open =
            fmin(s->least_open, (s->p->n_microbatches - 1) * s->threshold[i] +
                                    glp_get_obj_val(s->lp) * s->unit_s);
    } else if (code != 0) {
        s->status = MW_EBACKEND;
    }
}

/* All thresholds low .. high. */
static void search(struct solver *s, int low, int high)
{
    double relaxed = relax(s, high);
    double bound = (s->p->n_microbatches - 1) * s->threshold[low] + relaxed;

    if (s->status != MW_OK || isinf(relaxed) ||
        bound >= s->best * (1 - 1e-12)) {
        return;
    }
    if (s->limit_s > 0 && spent_s(s) > s->limit_s) {
        s->least_open = fmin(s->least_open, bound);
        return;
    }
    if (low == high) {
        solve_whole(s, low);
        return;
    }
    int middle = (low + high) / 2;

    search(s, low, middle);
    search(s, middle + 1, high);
}

/* Every set of max_kinds kinds: what uses fewer is in one of them. A search
 * under a set is a small program without y, whose relaxation says much; with y
 * as variables it says next to nothing. */
static void search_sets(struct solver *s)
{
    const struct mw_column_problem *p = s->p;

    for (unsigned set = 0; set < 1U << p->n_kinds; set++) {
        int n = 0;

        for (int k = 0; k < p->n_kinds; k++) {
            s->is_out[k] = (set >> k & 1) == 0;
            n += !s->is_out[k];
        }
        if (n == (has_uses(p) ? p->max_kinds : p->n_kinds)) {
            search(s, 0, s->n_thresholds - 1);
        }
    }
}

/* y_k is 1 where a stage uses kind k; of them no more than are allowed. */
static void write_uses(const struct solver *s, glp_prob *lp, int *index,
                       double *value)
{
    const struct mw_column_problem *p = s->p;
    int first = glp_add_cols(lp, p->n_kinds), n = 0;

    for (int k = 0; k < p->n_kinds; k++) {
        glp_set_col_kind(lp, first + k, GLP_BV);
        index[++n] = first + k;
        value[n] = 1;
    }
    int row = glp_add_rows(lp, 1);

    glp_set_mat_row(lp, row, n, index, value);
    glp_set_row_bnds(lp, row, GLP_UP, 0, p->max_kinds);
    for (int i = 0; i < p->n_stages * p->n_kinds; i++) {
        int kind = i % p->n_kinds;

        n = 1;
        index[1] = first + kind;
        value[1] = 1;
        for (int c = 0; c < s->n_kept; c++) {
            const struct mw_column *column = &p->column[s->kept[c]];

            if (column->stage == i / p->n_kinds && column->kind == kind) {
                index[++n] = c + 1;
                value[n] = -1;
            }
        }
        row = glp_add_rows(lp, 1);
        glp_set_mat_row(lp, row, n, index, value);
        glp_set_row_bnds(lp, row, GLP_LO, 0, 0);
    }
}

/* The direct form, for another solver: T is a variable, in seconds. */
static enum mw_status write_direct(const struct solver *s, const char *path,
                                   struct mw_err *err)
{
    glp_prob *lp = glp_create_prob();
    size_t room = (size_t)s->n_kept + MW_COLUMN_KINDS_MAX + 2;
    int *index = mw_calloc(room, sizeof *index);
    double *value = mw_calloc(room, sizeof *value);
    enum mw_status status = MW_OK;

    glp_copy_prob(lp, s->lp, GLP_OFF);
    glp_set_obj_dir(lp, GLP_MIN);
    for (int c = 1; c <= glp_get_num_cols(lp); c++) {
        glp_set_obj_coef(lp, c, glp_get_obj_coef(lp, c) * s->unit_s);
    }
    int t = glp_add_cols(lp, 1);

    glp_set_col_bnds(lp, t, GLP_LO, 0, 0);
    glp_set_obj_coef(lp, t, s->p->n_microbatches - 1);
    for (int i = 0; i < s->p->n_stages; i++) {
        int row = glp_add_rows(lp, 1), n = 1;

        index[1] = t;
        value[1] = 1;
        for (int k = 0; k < s->n_kept; k++) {
            if (s->p->column[s->kept[k]].stage == i) {
                index[++n] = k + 1;
                value[n] = -s->p->column[s->kept[k]].time_s;
            }
        }
        glp_set_mat_row(lp, row, n, index, value);
        glp_set_row_bnds(lp, row, GLP_LO, 0, 0);
    }
    if (has_uses(s->p)) {
        write_uses(s, lp, index, value);
    }
    if (glp_write_lp(lp, NULL, path) != 0) {
        status = mw_fail(err, MW_EINPUT, "%s: cannot write the model", path);
    }
    glp_delete_prob(lp);
    mw_free(index);
    mw_free(value);
    return status;
}

static void solver_begin(struct solver *s)
{
    keep_useful(s);
    find_thresholds(s);
    glp_term_out(GLP_OFF);
    s->lp = glp_create_prob();
    add_rows(s);
    add_columns(s);
}

static void solver_end(struct solver *s)
{
    glp_delete_prob(s->lp);
    mw_free(s->kept);
    mw_free(s->threshold);
    mw_free(s->best_kept);
}

enum mw_status mw_columns_write(const struct mw_column_problem *problem,
                                const char *path, struct mw_err *err)
{
    struct solver s = {.p = problem};

    solver_begin(&s);
    enum mw_status status = write_direct(&s, path, err);

    solver_end(&s);
    return status;
}

enum mw_status mw_columns_choose(const struct mw_column_problem *problem,
                                 double time_limit_s, const char *lp_path,
                                 int *out_chosen, struct mw_column_answer *out,
                                 struct mw_err *err)
{
    struct mw_column_answer answer = {0};
    struct solver s = {.p = problem,
                       .best = problem->beat_s > 0 ? problem->beat_s : HUGE_VAL,
                       .least_open = HUGE_VAL,
                       .limit_s = time_limit_s,
                       .start_ns = mw_clock_wall_ns(),
                       .out = &answer,
                       .status = MW_OK};
    enum mw_status status;

    s.best_kept = mw_calloc((size_t)problem->n_stages, sizeof *s.best_kept);
    solver_begin(&s);
    if (lp_path) {
        s.status = write_direct(&s, lp_path, err);
    }
    if (s.status == MW_OK && s.n_thresholds > 0) {
        search_sets(&s);
    }
    status = s.status;
    if (status == MW_EBACKEND) {
        mw_fail(err, status, "GLPK failed on %d columns", s.n_kept);
    } else if (status == MW_OK && !s.is_found) {
        out->is_proved = isinf(s.least_open);
        status = mw_fail(err, MW_ENO,
                         isinf(s.least_open)
                             ? "no choice of columns takes all %d layers "
                               "within the devices"
                             : "none of the columns for %d layers was decided "
                               "within the time limit",
                         problem->n_layers);
    }
    if (status == MW_OK) {
        memcpy(out_chosen, s.best_kept,
               (size_t)problem->n_stages * sizeof *out_chosen);
        answer.value_s = s.best;
        answer.bound_s = fmin(s.best, s.least_open);
        answer.is_proved = s.least_open >= s.best * (1 - 1e-12);
        for (int i = 0; i < problem->n_stages; i++) {
            answer.slowest_s =
                fmax(answer.slowest_s, problem->column[s.best_kept[i]].time_s);
        }
        answer.n_kept = (size_t)s.n_kept;
        answer.solve_s = spent_s(&s);
        *out = answer;
    }
    solver_end(&s);
    return status;
}
