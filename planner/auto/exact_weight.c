/*
 * W insertion for a fixed order of F and B, without big-M. On stage i the g-th
 * of the 2m F and B passes starts at S[i,g]; n[i,g] whole W passes run just
 * before it, n[i,2m] after the last:
 *
 *   S[i,g] >= S[i,g-1] + d + W_i n[i,g]
 *   cross-stage rows between starts
 *   C[i,g] = n[i,0] + ... + n[i,g]:  C <= B passes before g
 *            at an F: w C >= F so far + 1 - (1-w) B so far - limit
 *            in all m
 *   T >= S[i,2m-1] + d + W_i n[i,2m] - S[i,0]   (span), or without S (makespan)
 *
 * The LP is nearly integral; T >= bound is a row and the incumbent's counts are
 * offered to the search.
 */
#include "planner/auto/exact_int.h"

#include <math.h>
#include <string.h>

struct weight {
    const struct exact_problem *x;
    struct mw_exact *out;
    const struct mw_schedule *incumbent;
    glp_prob *lp;
    struct exact_row row;
    int *type;   /* [p][2m]: F or B */
    int *count;  /* [p][2m]: micro-batch */
    int *where;  /* [2][p][m]: position of F_j, B_j */
    int *given;  /* [p][2m + 1]: W passes of the incumbent */
    double *end; /* [p * m * 3] */
    bool is_offered;
    double bound;
};

static int slots(const struct weight *z)
{
    return 2 * z->x->m;
}

static int start_column(const struct weight *z, int i, int g)
{
    return 1 + i * (2 * slots(z) + 1) + g;
}

static int n_column(const struct weight *z, int i, int g)
{
    return start_column(z, i, slots(z)) + g;
}

static int objective(const struct weight *z)
{
    return 1 + z->x->p * (2 * slots(z) + 1);
}

static int *where(const struct weight *z, int type, int i, int j)
{
    return &z->where[(type * z->x->p + i) * z->x->m + j];
}

/* The order of F and B, and where the incumbent has its W passes. */
static void read_order(struct weight *z)
{
    const struct mw_schedule *s = z->incumbent;
    int i, n = slots(z);
    uint32_t a;

    for (i = 0; i < z->x->p; i++) {
        int g = 0;

        for (a = s->first[i]; a < s->first[i + 1]; a++) {
            const struct mw_slot *y = &s->slot[a];
            int type = y->pass == MW_PASS_F ? X_F : X_B;

            if (y->pass != MW_PASS_W) {
                z->type[i * n + g] = type;
                z->count[i * n + g] = y->microbatch;
                *where(z, type, i, y->microbatch) = g++;
            }
            if (y->pass == MW_PASS_W || y->pass == MW_PASS_BW) {
                z->given[i * (n + 1) + g]++;
            }
        }
    }
}

/* S[i2,g2] >= S[i1,g1] + lag */
static void precede(struct weight *z, int i1, int g1, int i2, int g2,
                    double lag)
{
    exact_row_add(&z->row, start_column(z, i2, g2), 1);
    exact_row_add(&z->row, start_column(z, i1, g1), -1);
    exact_row_low(z->lp, &z->row, lag);
}

static double time_of(const struct weight *z, int i, int g)
{
    return z->x->d[z->type[i * slots(z) + g]][i];
}

/* Sum of n[i,0..g] into the row. */
static void add_counts(struct weight *z, int i, int g, double factor)
{
    int h;

    for (h = 0; h <= g; h++) {
        exact_row_add(&z->row, n_column(z, i, h), factor);
    }
}

static void add_slot(struct weight *z, int i, int g, int n_f, int n_b)
{
    const struct exact_problem *x = z->x;
    int type = z->type[i * slots(z) + g], j = z->count[i * slots(z) + g];

    if (g > 0) {
        exact_row_add(&z->row, start_column(z, i, g), 1);
        exact_row_add(&z->row, start_column(z, i, g - 1), -1);
        exact_row_add(&z->row, n_column(z, i, g), -x->d[X_W][i]);
        exact_row_low(z->lp, &z->row, time_of(z, i, g - 1));
    }
    add_counts(z, i, g, 1);
    exact_row_high(z->lp, &z->row, n_b);
    if (type == X_F) {
        double need = n_f + 1 - (1 - x->w_share) * n_b - x->limit[i];

        if (need > 1e-9) {
            add_counts(z, i, g, x->w_share);
            exact_row_low(z->lp, &z->row, need - 1e-9);
        }
        if (i > 0) {
            precede(z, i - 1, *where(z, X_F, i - 1, j), i, g,
                    x->d[X_F][i - 1] + x->comm);
        }
    } else if (i + 1 < x->p) {
        precede(z, i + 1, *where(z, X_B, i + 1, j), i, g,
                x->d[X_B][i + 1] + x->comm);
    } else {
        precede(z, i, *where(z, X_F, i, j), i, g, x->d[X_F][i]);
    }
}

static void add_stage(struct weight *z, int i)
{
    const struct exact_problem *x = z->x;
    int n = slots(z), g, n_f = 0, n_b = 0;

    for (g = 0; g < n; g++) {
        add_slot(z, i, g, n_f, n_b);
        n_f += z->type[i * n + g] == X_F;
        n_b += z->type[i * n + g] == X_B;
    }
    add_counts(z, i, n, 1);
    exact_row_low(z->lp, &z->row, x->m);
    exact_row_add(&z->row, objective(z), 1);
    exact_row_add(&z->row, start_column(z, i, n - 1), -1);
    exact_row_add(&z->row, n_column(z, i, n), -x->d[X_W][i]);
    if (x->is_span) {
        exact_row_add(&z->row, start_column(z, i, 0), 1);
    }
    exact_row_low(z->lp, &z->row, time_of(z, i, n - 1));
}

static void build(struct weight *z)
{
    int i, g, n = slots(z), last = objective(z);

    glp_add_cols(z->lp, last);
    glp_set_obj_dir(z->lp, GLP_MIN);
    glp_set_obj_coef(z->lp, last, 1);
    glp_set_col_bnds(z->lp, last, GLP_LO,
                     (double)(z->out->bound_ps / z->x->tick_ps), 0);
    for (i = 0; i < z->x->p; i++) {
        for (g = 0; g < n; g++) {
            glp_set_col_bnds(z->lp, start_column(z, i, g), GLP_LO, 0, 0);
        }
        for (g = 0; g <= n; g++) {
            glp_set_col_bnds(z->lp, n_column(z, i, g), GLP_DB, 0, z->x->m);
            glp_set_col_kind(z->lp, n_column(z, i, g), GLP_IV);
        }
        add_stage(z, i);
    }
}

static void offer(struct weight *z, glp_tree *tree)
{
    double *v = mw_calloc((size_t)objective(z) + 1, sizeof *v);
    int i, g, n = slots(z);

    for (i = 0; i < z->x->p; i++) {
        for (g = 0; g < n; g++) {
            int at = (i * z->x->m + z->count[i * n + g]) * 3;

            v[start_column(z, i, g)] =
                z->end[at + z->type[i * n + g]] - time_of(z, i, g);
        }
        for (g = 0; g <= n; g++) {
            v[n_column(z, i, g)] = z->given[i * (n + 1) + g];
        }
    }
    v[objective(z)] = (double)(z->out->value_ps / z->x->tick_ps);
    glp_ios_heur_sol(tree, v);
    mw_free(v);
}

static void callback(glp_tree *tree, void *info)
{
    struct weight *z = info;

    if (glp_ios_reason(tree) == GLP_IHEUR && !z->is_offered) {
        z->is_offered = true;
        offer(z, tree);
    }
}

/* Ends of all passes from the solution: W passes right before their slot. */
static void read_solution(struct weight *z)
{
    const struct exact_problem *x = z->x;
    int i, g, n = slots(z);

    for (i = 0; i < x->p; i++) {
        int w = 0;

        for (g = 0; g <= n; g++) {
            int k,
                many = (int)lround(glp_mip_col_val(z->lp, n_column(z, i, g)));
            double s =
                g < n ? glp_mip_col_val(z->lp, start_column(z, i, g)) : 1e15;

            for (k = 0; k < many && w < x->m; k++, w++) {
                z->end[(i * x->m + w) * 3 + X_W] =
                    s - 1e-3 * (many - k) * fmin(1, x->d[X_W][i] + 1e-3);
            }
            if (g < n) {
                z->end[(i * x->m + z->count[i * n + g]) * 3 +
                       z->type[i * n + g]] = s + time_of(z, i, g);
            }
        }
    }
}

static void solve(struct weight *z, double time_limit_s)
{
    double until = exact_now() + time_limit_s;
    glp_smcp simplex;
    glp_iocp parm;

    glp_init_smcp(&simplex);
    simplex.msg_lev = GLP_MSG_OFF;
    simplex.tm_lim = (int)(1000 * time_limit_s) + 1;
    glp_adv_basis(z->lp, 0);
    if (glp_simplex(z->lp, &simplex) != 0 || glp_get_status(z->lp) != GLP_OPT) {
        return;
    }
    glp_init_iocp(&parm);
    parm.msg_lev = GLP_MSG_OFF;
    parm.cb_func = callback;
    parm.cb_info = z;
    parm.tm_lim = (int)(1000 * fmax(0, until - exact_now())) + 1;
    glp_intopt(z->lp, &parm);
    z->out->rows = glp_get_num_rows(z->lp);
    z->out->columns = glp_get_num_cols(z->lp);
    z->out->integers = glp_get_num_int(z->lp);
    if (glp_mip_status(z->lp) == GLP_OPT || glp_mip_status(z->lp) == GLP_FEAS) {
        read_solution(z);
        exact_adopt(z->x, z->end, "weight", z->out);
    }
}

enum mw_status mw_exact_weight(const struct mw_auto_problem *problem,
                               const struct mw_schedule *incumbent,
                               double time_limit_s, struct mw_exact *out,
                               struct mw_err *err)
{
    struct exact_problem x;
    struct weight z = {.x = &x, .out = out, .incumbent = incumbent};
    enum mw_status st = MW_OK;
    size_t n, p;

    glp_term_out(GLP_OFF);
    exact_problem_init(&x, problem);
    p = (size_t)x.p;
    n = 2 * (size_t)x.m;
    z.type = mw_calloc(2 * p * n, sizeof *z.type);
    z.count = z.type + p * n;
    z.where = mw_calloc(p * n, sizeof *z.where);
    z.given = mw_calloc(p * (n + 1), sizeof *z.given);
    z.end = mw_calloc(3 * p * (size_t)x.m, sizeof *z.end);
    if (!exact_ends(&x, incumbent, z.end)) {
        st = mw_fail(err, MW_EUSAGE,
                     "the incumbent is not a schedule of the problem");
    } else {
        z.lp = glp_create_prob();
        exact_row_init(&z.row, (int)n + 4);
        read_order(&z);
        build(&z);
        solve(&z, time_limit_s);
        glp_delete_prob(z.lp);
        exact_row_release(&z.row);
    }
    mw_free(z.type);
    mw_free(z.where);
    mw_free(z.given);
    mw_free(z.end);
    exact_problem_release(&x);
    out->is_proved = out->value_ps == out->bound_ps;
    return st;
}
