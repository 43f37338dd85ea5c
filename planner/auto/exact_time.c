/*
 * Time-indexed relaxation for "makespan <= T": x[i,t,q] passes of type t start
 * on stage i at tick q. Micro-batches are counts (first in, first out), so no
 * index for them is needed:
 *
 *   all run        sum_q x[i,t,q] = m
 *   one at a time  sum of x over passes under way at q <= 1
 *   precedence     passes started by q <= inputs ended (and arrived) by q
 *   memory         F started - (1 - w) B ended - w W ended <= limit
 *
 * A start lies between the earliest (head of the stage and what must run
 * before) and the latest (the way back to stage 0). If the LP has no solution,
 * no order has makespan <= T; with a solution nothing is known.
 */
#include "planner/auto/exact_int.h"

#include <math.h>

enum { COLUMNS_MAX = 20000 };

struct timed {
    struct exact_problem x;
    int ticks;         /* T */
    int *first, *last; /* [p * 3]: window of starts */
    int *column;       /* [p * 3]: column of the first start */
    glp_prob *lp;
    struct exact_row row;
};

static int at(int stage, int type)
{
    return stage * X_TYPES + type;
}

/* Earliest and latest start of any pass of a type. */
static void windows(struct timed *z)
{
    const struct exact_problem *x = &z->x;
    double after = 0; /* least time from end of B on the stage to the end */
    int i;

    for (i = 0; i < x->p; i++) {
        double f = exact_head(x, i), path = x->d[X_F][i];
        double tail;
        int j;

        for (j = i + 1; j < x->p; j++) {
            path += x->d[X_F][j] + x->d[X_B][j] + 2 * x->comm;
        }
        after = i == 0 ? x->d[X_W][0] : after + x->comm + x->d[X_B][i - 1];
        tail = after > x->d[X_W][i] ? after : x->d[X_W][i];
        z->first[at(i, X_F)] = (int)f;
        z->first[at(i, X_B)] = (int)(f + path);
        z->first[at(i, X_W)] = (int)(f + path + x->d[X_B][i]);
        z->last[at(i, X_W)] = z->ticks - (int)x->d[X_W][i];
        z->last[at(i, X_B)] = z->ticks - (int)(tail + x->d[X_B][i]);
        z->last[at(i, X_F)] = z->last[at(i, X_B)] - (int)path;
    }
}

/* Adds factor * (passes of a type started by tick q). */
static void add_started(struct timed *z, int stage, int type, int q,
                        double factor)
{
    int k = at(stage, type), s;

    for (s = z->first[k]; s <= q && s <= z->last[k]; s++) {
        exact_row_add(&z->row, z->column[k] + s - z->first[k], factor);
    }
}

/* started(a) by q <= started(b) by q - lag, for all q in a's window. */
static void precede(struct timed *z, int i, int a, int j, int b, double lag)
{
    int q;

    for (q = z->first[at(i, a)]; q <= z->last[at(i, a)]; q++) {
        add_started(z, i, a, q, 1);
        add_started(z, j, b, q - (int)lag, -1);
        exact_row_high(z->lp, &z->row, 0);
    }
}

static void add_stage(struct timed *z, int i)
{
    const struct exact_problem *x = &z->x;
    int t, q;

    for (t = 0; t < X_TYPES; t++) {
        add_started(z, i, t, z->ticks, 1);
        exact_row_low(z->lp, &z->row, x->m);
    }
    for (q = z->first[at(i, X_F)]; q < z->ticks; q++) {
        for (t = 0; t < X_TYPES; t++) {
            int k = at(i, t), s = q - (int)x->d[t][i] + 1;

            for (s = s > z->first[k] ? s : z->first[k];
                 s <= q && s <= z->last[k]; s++) {
                exact_row_add(&z->row, z->column[k] + s - z->first[k], 1);
            }
        }
        exact_row_high(z->lp, &z->row, 1);
        add_started(z, i, X_F, q, 1);
        add_started(z, i, X_B, q - (int)x->d[X_B][i], x->w_share - 1);
        add_started(z, i, X_W, q - (int)x->d[X_W][i], -x->w_share);
        exact_row_high(z->lp, &z->row, x->limit[i] + 1e-9);
    }
    if (i > 0) {
        precede(z, i, X_F, i - 1, X_F, x->d[X_F][i - 1] + x->comm);
    }
    if (i + 1 < x->p) {
        precede(z, i, X_B, i + 1, X_B, x->d[X_B][i + 1] + x->comm);
    }
    precede(z, i, X_B, i, X_F, x->d[X_F][i]);
    precede(z, i, X_W, i, X_B, x->d[X_B][i]);
}

/* Columns; false when there is no room for a type, or too many. */
static bool add_columns(struct timed *z, bool *out_is_void)
{
    int k, n = 0;

    *out_is_void = false;
    for (k = 0; k < z->x.p * X_TYPES; k++) {
        if (z->last[k] < z->first[k]) {
            *out_is_void = true;
            return false;
        }
        z->column[k] = n + 1;
        n += z->last[k] - z->first[k] + 1;
        if (n > COLUMNS_MAX) {
            return false;
        }
    }
    glp_add_cols(z->lp, n);
    for (k = 1; k <= n; k++) {
        glp_set_col_bnds(z->lp, k, GLP_DB, 0, 1);
    }
    exact_row_init(&z->row, 2 * n);
    return true;
}

static enum mw_exact_answer solve(struct timed *z, double time_limit_s)
{
    glp_smcp parm;
    int i, rc;

    for (i = 0; i < z->x.p; i++) {
        add_stage(z, i);
    }
    glp_init_smcp(&parm);
    parm.msg_lev = GLP_MSG_OFF;
    parm.presolve = GLP_ON;
    parm.tm_lim = (int)(1000 * time_limit_s);
    rc = glp_simplex(z->lp, &parm);
    if (rc == GLP_ENOPFS || (rc == 0 && glp_get_status(z->lp) == GLP_NOFEAS)) {
        return MW_EXACT_NO;
    }
    return MW_EXACT_UNDECIDED;
}

enum mw_exact_answer mw_exact_refute(const struct mw_auto_problem *problem,
                                     mw_time target_ps, double time_limit_s)
{
    enum mw_exact_answer answer = MW_EXACT_UNDECIDED;
    struct timed z = {.ticks = 0};
    size_t n;
    bool is_void;

    exact_problem_init(&z.x, problem);
    if (time_limit_s <= 0 || target_ps / z.x.tick_ps > COLUMNS_MAX) {
        exact_problem_release(&z.x);
        return answer;
    }
    n = (size_t)z.x.p * X_TYPES;
    z.ticks = (int)(target_ps / z.x.tick_ps);
    z.first = mw_calloc(3 * n, sizeof *z.first);
    z.last = z.first + n;
    z.column = z.first + 2 * n;
    glp_term_out(GLP_OFF);
    z.lp = glp_create_prob();
    glp_set_obj_dir(z.lp, GLP_MIN);
    windows(&z);
    if (add_columns(&z, &is_void)) {
        answer = solve(&z, time_limit_s);
        exact_row_release(&z.row);
    } else if (is_void) {
        answer = MW_EXACT_NO;
    }
    glp_delete_prob(z.lp);
    mw_free(z.first);
    exact_problem_release(&z.x);
    return answer;
}
