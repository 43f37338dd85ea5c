/*
 * The threshold form with GLPK: one model with all columns, a threshold fixes
 * the slow ones at 0 and keeps the basis, so that a solve is a few dual simplex
 * steps after the last.
 */
#include "planner/columns_int.h"

#include "base/log.h"
#include "base/mem.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Does stage i begin where the one before it ends? */
static bool follows(const struct mw_column_problem *p, const int *chosen, int i)
{
    return !mw_columns_have_places(p) ||
           p->column[chosen[i]].begins ==
               (i > 0 ? p->column[chosen[i - 1]].ends : 0);
}

double mw_columns_value(const struct mw_column_problem *p, const int *chosen)
{
    double slowest = 0, sum = 0, after = 0;
    int layers = 0, used[MW_COLUMN_KINDS_MAX] = {0};

    for (int i = 0; i < p->n_stages; i++) {
        const struct mw_column *c = &p->column[chosen[i]];

        if (c->stage != i || !follows(p, chosen, i)) {
            return HUGE_VAL;
        }
        slowest = fmax(slowest, c->time_s);
        sum += c->time_s;
        after = fmax(after, c->after_s);
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
    return layers == p->n_layers
               ? (p->n_microbatches - 1) * slowest + sum + after
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
           b->time_s <= a->time_s && b->after_s <= a->after_s &&
           (b->n_devices < a->n_devices || b->time_s < a->time_s ||
            b->after_s < a->after_s || b_is_first);
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

static void keep_useful(struct mw_column_solver *s)
{
    size_t n = s->p->n_columns;
    struct order *sorted = mw_calloc(n, sizeof *sorted);

    for (size_t i = 0; i < n; i++) {
        sorted[i] = (struct order){&s->p->column[i], (int)i};
    }
    qsort(sorted, n, sizeof *sorted, compare_order);
    s->kept = mw_calloc(n, sizeof *s->kept);
    for (size_t i = 0; i < n; i++) {
        bool is_useful = !mw_columns_have_places(s->p) ||
                         sorted[i].c->stage > 0 || sorted[i].c->begins == 0;

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

/* Sorts n values and leaves each once; how many there are. */
static int sort_once(double *v, int n)
{
    int n_once = 0;

    qsort(v, (size_t)n, sizeof *v, compare_times);
    for (int i = 0; i < n; i++) {
        if (n_once == 0 || v[i] > v[n_once - 1]) {
            v[n_once++] = v[i];
        }
    }
    return n_once;
}

static void find_thresholds(struct mw_column_solver *s)
{
    size_t room = (size_t)s->n_kept + 1;

    s->threshold = mw_calloc(room, sizeof *s->threshold);
    s->after = mw_calloc(room, sizeof *s->after);
    for (int i = 0; i < s->n_kept; i++) {
        s->threshold[i] = s->p->column[s->kept[i]].time_s;
        s->after[i] = s->p->column[s->kept[i]].after_s;
    }
    s->n_thresholds = sort_once(s->threshold, s->n_kept);
    s->n_after = sort_once(s->after, s->n_kept);
    s->unit_s = s->n_thresholds > 0 ? s->threshold[s->n_thresholds - 1] : 1;
}

/* ---- thresholds ------------------------------------------------------------
 */
/* Of the slowest stage's time and of the longest time after: indices. */
struct corner {
    int t, w;
};

static double value_of(const struct mw_column_solver *s, struct corner at)
{
    return (s->p->n_microbatches - 1) * s->threshold[at.t] + s->after[at.w];
}

static void set_threshold(struct mw_column_solver *s, double t, double after)
{
    for (int i = 0; i < s->n_kept; i++) {
        const struct mw_column *c = &s->p->column[s->kept[i]];
        bool is_in =
            c->time_s <= t && c->after_s <= after && !s->is_out[c->kind];

        if (is_in != (glp_get_col_ub(s->lp, i + 1) > 0.5)) {
            glp_set_col_bnds(s->lp, i + 1, is_in ? GLP_DB : GLP_FX, 0,
                             is_in ? 1 : 0);
        }
    }
}

/* Least sum with columns up to a corner, relaxed; HUGE_VAL: none. */
static double relax(struct mw_column_solver *s, struct corner high)
{
    glp_smcp simplex;

    set_threshold(s, s->threshold[high.t], s->after[high.w]);
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

static void take_solution(struct mw_column_solver *s)
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

static double spent_s(const struct mw_column_solver *s)
{
    return 1e-9 * (double)(mw_clock_wall_ns() - s->start_ns);
}

/* The relaxation of the corner is in the model. Cuts off what cannot beat the
 * best. */
static void solve_whole(struct mw_column_solver *s, struct corner at)
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
            fmin(s->least_open,
                 value_of(s, at) + glp_get_obj_val(s->lp) * s->unit_s);
    } else if (code != 0) {
        s->status = MW_EBACKEND;
    }
}

/* All thresholds low .. high of both. Halves what weighs more. */
static void search(struct mw_column_solver *s, struct corner low,
                   struct corner high)
{
    double relaxed = relax(s, high);
    double bound = value_of(s, low) + relaxed;

    if (s->status != MW_OK || isinf(relaxed) ||
        bound >= s->best * (1 - 1e-12)) {
        return;
    }
    if (s->limit_s > 0 && spent_s(s) > s->limit_s) {
        s->least_open = fmin(s->least_open, bound);
        return;
    }
    if (low.t == high.t && low.w == high.w) {
        solve_whole(s, low);
        return;
    }
    double times = value_of(s, (struct corner){high.t, low.w});
    double after = value_of(s, (struct corner){low.t, high.w});
    struct corner end = high, next = low;

    if (low.w == high.w || (low.t < high.t && times >= after)) {
        end.t = (low.t + high.t) / 2;
        next.t = end.t + 1;
    } else {
        end.w = (low.w + high.w) / 2;
        next.w = end.w + 1;
    }
    search(s, low, end);
    search(s, next, high);
}

/* Every set of max_kinds kinds: what uses fewer is in one of them. A search
 * under a set is a small program without y, whose relaxation says much; with y
 * as variables it says next to nothing. */
static void search_sets(struct mw_column_solver *s)
{
    const struct mw_column_problem *p = s->p;

    for (unsigned set = 0; set < 1U << p->n_kinds; set++) {
        int n = 0;

        for (int k = 0; k < p->n_kinds; k++) {
            s->is_out[k] = (set >> k & 1) == 0;
            n += !s->is_out[k];
        }
        if (n == (mw_columns_have_uses(p) ? p->max_kinds : p->n_kinds)) {
            search(s, (struct corner){0, 0},
                   (struct corner){s->n_thresholds - 1, s->n_after - 1});
        }
    }
}

static void solver_begin(struct mw_column_solver *s)
{
    keep_useful(s);
    find_thresholds(s);
    glp_term_out(GLP_OFF);
    mw_columns_build(s);
}

static void solver_end(struct mw_column_solver *s)
{
    glp_delete_prob(s->lp);
    mw_free(s->kept);
    mw_free(s->threshold);
    mw_free(s->after);
    mw_free(s->best_kept);
}

enum mw_status mw_columns_write(const struct mw_column_problem *problem,
                                const char *path, struct mw_err *err)
{
    struct mw_column_solver s = {.p = problem};

    solver_begin(&s);
    enum mw_status status = mw_columns_write_direct(&s, path, err);

    solver_end(&s);
    return status;
}

enum mw_status mw_columns_choose(const struct mw_column_problem *problem,
                                 double time_limit_s, const char *lp_path,
                                 int *out_chosen, struct mw_column_answer *out,
                                 struct mw_err *err)
{
    struct mw_column_answer answer = {0};
    struct mw_column_solver s = {.p = problem,
                                 .best = problem->beat_s > 0 ? problem->beat_s
                                                             : HUGE_VAL,
                                 .least_open = HUGE_VAL,
                                 .limit_s = time_limit_s,
                                 .start_ns = mw_clock_wall_ns(),
                                 .out = &answer,
                                 .status = MW_OK};
    enum mw_status status;

    s.best_kept = mw_calloc((size_t)problem->n_stages, sizeof *s.best_kept);
    solver_begin(&s);
    if (lp_path) {
        s.status = mw_columns_write_direct(&s, lp_path, err);
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
