/*
 * The disjunctive program. E[t,i,j]: end of pass t of micro-batch j on stage i,
 * in ticks; T the objective; for k < j and (a, b) in (F,B), (F,W), (B,W) a
 * binary y = 1 when a_j runs before b_k:
 *
 *   E[t,i,j] >= E[t,i,j-1] + d         first in, first out
 *   E[F,i] >= E[F,i-1] + c + d,  E[B,i] >= E[B,i+1] + c + d,
 *   E[B] >= E[F] + d,  E[W] >= E[B] + d
 *   E[b_k] >= E[a_j] + d_b - M (1 - y),  E[a_j] >= E[b_k] + d_a - M y
 *   memory at F_j: (j+1) - sum_k (1-w)(1 - y^FB_jk) - sum_k w (1 - y^FW_jk)
 *                  <= limit
 *   T >= E[W,i,m-1] (- E[F,i,0] + F_i for the span)
 *
 * M is the incumbent's objective: two passes of a stage are never farther apart
 * in a schedule that is not worse. Lazily, no y is there at first; pairs that
 * overlap in a solution, and all pairs of an F that overflows memory, are added
 * until the solution is a schedule. Every round's optimum is a lower bound.
 */
#include "planner/auto/exact_int.h"

#include <math.h>
#include <string.h>

enum kind { KIND_FB, KIND_FW, KIND_BW, KINDS };

struct milp {
    const struct exact_problem *x;
    const struct mw_exact_opts *opts;
    struct mw_exact *out;
    glp_prob *lp;
    struct exact_row row;
    int *y;           /* [KINDS][p][m][m]: column of the pair (j, k), 0: none */
    bool *has_memory; /* [p * m] */
    double *end;      /* [p * m * 3]: of the incumbent */
    double big_m, until;
    double bound; /* best bound of the tree, in ticks */
    bool is_offered;
};

static int column(const struct milp *z, int t, int i, int j)
{
    return 1 + (i * z->x->m + j) * X_TYPES + t;
}

static int objective(const struct milp *z)
{
    return 1 + X_TYPES * z->x->p * z->x->m;
}

static int *pair(const struct milp *z, enum kind kind, int i, int j, int k)
{
    int m = z->x->m;

    return &z->y[(((int)kind * z->x->p + i) * m + j) * m + k];
}

static void types_of(enum kind kind, int *a, int *b)
{
    *a = kind == KIND_BW ? X_B : X_F;
    *b = kind == KIND_FB ? X_B : X_W;
}

/* E[t2,i2,j2] >= E[t1,i1,j1] + lag + d */
static void precede(struct milp *z, int t1, int i1, int j1, int t2, int i2,
                    int j2, double lag)
{
    exact_row_add(&z->row, column(z, t2, i2, j2), 1);
    exact_row_add(&z->row, column(z, t1, i1, j1), -1);
    exact_row_low(z->lp, &z->row, lag + z->x->d[t2][i2]);
}

static void add_cell(struct milp *z, int i, int j)
{
    const struct exact_problem *x = z->x;
    int t;

    for (t = 0; j > 0 && t < X_TYPES; t++) {
        precede(z, t, i, j - 1, t, i, j, 0);
    }
    if (i > 0) {
        precede(z, X_F, i - 1, j, X_F, i, j, x->comm);
    }
    if (i + 1 < x->p) {
        precede(z, X_B, i + 1, j, X_B, i, j, x->comm);
    }
    precede(z, X_F, i, j, X_B, i, j, 0);
    precede(z, X_B, i, j, X_W, i, j, 0);
}

static void add_base(struct milp *z)
{
    const struct exact_problem *x = z->x;
    int i, j, t, last = objective(z);

    glp_add_cols(z->lp, last);
    glp_set_obj_dir(z->lp, GLP_MIN);
    glp_set_obj_coef(z->lp, last, 1);
    for (i = 0; i < x->p; i++) {
        for (j = 0; j < x->m; j++) {
            for (t = 0; t < X_TYPES; t++) {
                glp_set_col_bnds(z->lp, column(z, t, i, j), GLP_LO, x->d[t][i],
                                 0);
            }
            add_cell(z, i, j);
        }
        exact_row_add(&z->row, last, 1);
        exact_row_add(&z->row, column(z, X_W, i, x->m - 1), -1);
        if (x->is_span) {
            exact_row_add(&z->row, column(z, X_F, i, 0), 1);
            exact_row_low(z->lp, &z->row, x->d[X_F][i]);
        } else {
            exact_row_low(z->lp, &z->row, 0);
        }
    }
    glp_set_col_bnds(
        z->lp, last, GLP_LO,
        z->opts->use_hints ? (double)(z->out->bound_ps / x->tick_ps) : 0, 0);
}

/* The pair's binary and its two rows; y falls with j and rises with k. */
static void add_pair(struct milp *z, enum kind kind, int i, int j, int k)
{
    const struct exact_problem *x = z->x;
    int *y = pair(z, kind, i, j, k), a, b;

    if (*y != 0) {
        return;
    }
    types_of(kind, &a, &b);
    *y = glp_add_cols(z->lp, 1);
    glp_set_col_kind(z->lp, *y, GLP_BV);
    exact_row_add(&z->row, column(z, b, i, k), 1);
    exact_row_add(&z->row, column(z, a, i, j), -1);
    exact_row_add(&z->row, *y, -z->big_m);
    exact_row_low(z->lp, &z->row, x->d[b][i] - z->big_m);
    exact_row_add(&z->row, column(z, a, i, j), 1);
    exact_row_add(&z->row, column(z, b, i, k), -1);
    exact_row_add(&z->row, *y, z->big_m);
    exact_row_low(z->lp, &z->row, x->d[a][i]);
    if (k > 0 && *pair(z, kind, i, j, k - 1) != 0) {
        exact_row_add(&z->row, *y, 1);
        exact_row_add(&z->row, *pair(z, kind, i, j, k - 1), -1);
        exact_row_low(z->lp, &z->row, 0);
    }
    if (j > k + 1 && *pair(z, kind, i, j - 1, k) != 0) {
        exact_row_add(&z->row, *pair(z, kind, i, j - 1, k), 1);
        exact_row_add(&z->row, *y, -1);
        exact_row_low(z->lp, &z->row, 0);
    }
}

/* Memory at F_j of stage i with all its pairs. */
static void add_memory(struct milp *z, int i, int j)
{
    const struct exact_problem *x = z->x;
    int k;

    if (z->has_memory[i * x->m + j] || j + 1 <= x->limit[i]) {
        return;
    }
    z->has_memory[i * x->m + j] = true;
    for (k = 0; k < j; k++) {
        add_pair(z, KIND_FB, i, j, k);
        add_pair(z, KIND_FW, i, j, k);
    }
    for (k = 0; k < j; k++) {
        exact_row_add(&z->row, *pair(z, KIND_FB, i, j, k), 1 - x->w_share);
        exact_row_add(&z->row, *pair(z, KIND_FW, i, j, k), x->w_share);
    }
    exact_row_high(z->lp, &z->row, x->limit[i] - 1 + 1e-9);
}

static void add_everything(struct milp *z)
{
    int i, j, k, kind;

    for (i = 0; i < z->x->p; i++) {
        for (j = 0; j < z->x->m; j++) {
            for (k = 0; k < j; k++) {
                for (kind = 0; kind < KINDS; kind++) {
                    add_pair(z, (enum kind)kind, i, j, k);
                }
            }
            add_memory(z, i, j);
        }
    }
}

/* Adds what the solution gets wrong; false when it is a schedule. */
static bool add_violated(struct milp *z, const double *end)
{
    const struct exact_problem *x = z->x;
    bool is_wrong = false;
    int i, j, k, kind, a, b;

    for (i = 0; i < x->p; i++) {
        for (j = 0; j < x->m; j++) {
            double held = j + 1;
            const double *e = end + i * x->m * 3;
            double start = e[j * 3 + X_F] - x->d[X_F][i];

            for (k = 0; k < j; k++) {
                for (kind = 0; kind < KINDS; kind++) {
                    types_of((enum kind)kind, &a, &b);
                    if (*pair(z, (enum kind)kind, i, j, k) == 0 &&
                        e[k * 3 + b] > e[j * 3 + a] - x->d[a][i] + 1e-6 &&
                        e[j * 3 + a] > e[k * 3 + b] - x->d[b][i] + 1e-6) {
                        add_pair(z, (enum kind)kind, i, j, k);
                        is_wrong = true;
                    }
                }
                held -= e[k * 3 + X_B] <= start + 1e-6 ? 1 - x->w_share : 0;
                held -= e[k * 3 + X_W] <= start + 1e-6 ? x->w_share : 0;
            }
            if (held > x->limit[i] + 1e-6 && !z->has_memory[i * x->m + j]) {
                add_memory(z, i, j);
                is_wrong = true;
            }
        }
    }
    return is_wrong;
}

/* ---- solving ------------------------------------------------------------- */
/* Values of all columns for the incumbent. */
static double *incumbent_values(const struct milp *z)
{
    const struct exact_problem *x = z->x;
    double *v = mw_calloc((size_t)glp_get_num_cols(z->lp) + 1, sizeof *v);
    int i, j, k, kind, a, b;

    memcpy(v + 1, z->end, 3 * (size_t)x->p * (size_t)x->m * sizeof *v);
    v[objective(z)] = (double)(z->out->value_ps / x->tick_ps);
    for (kind = 0; kind < KINDS; kind++) {
        types_of((enum kind)kind, &a, &b);
        for (i = 0; i < x->p; i++) {
            for (j = 0; j < x->m; j++) {
                for (k = 0; k < j; k++) {
                    int y = *pair(z, (enum kind)kind, i, j, k);
                    const double *e = z->end + i * x->m * 3;

                    if (y != 0) {
                        v[y] = e[j * 3 + a] < e[k * 3 + b];
                    }
                }
            }
        }
    }
    return v;
}

static void callback(glp_tree *tree, void *info)
{
    struct milp *z = info;
    int node = glp_ios_best_node(tree);

    if (node != 0) {
        z->bound = glp_ios_node_bound(tree, node);
    }
    if (glp_ios_reason(tree) == GLP_IHEUR && z->opts->use_hints &&
        !z->is_offered) {
        double *v = incumbent_values(z);

        z->is_offered = true;
        glp_ios_heur_sol(tree, v);
        mw_free(v);
    }
}

static int solve_mip(struct milp *z)
{
    glp_smcp simplex;
    glp_iocp parm;
    int rc;

    glp_init_smcp(&simplex);
    simplex.msg_lev = GLP_MSG_OFF;
    simplex.tm_lim = (int)(1000 * fmax(0, z->until - exact_now())) + 1;
    glp_adv_basis(z->lp, 0);
    rc = glp_simplex(z->lp, &simplex);
    if (rc != 0 || glp_get_status(z->lp) != GLP_OPT) {
        return rc != 0 ? rc : GLP_ENOPFS;
    }
    z->bound = glp_get_obj_val(z->lp);
    z->is_offered = false;
    glp_init_iocp(&parm);
    parm.msg_lev = GLP_MSG_OFF;
    parm.cb_func = callback;
    parm.cb_info = z;
    parm.tm_lim = (int)(1000 * fmax(0, z->until - exact_now())) + 1;
    return glp_intopt(z->lp, &parm);
}

/* A bound in ticks as ps: the objective is a whole number of ticks. */
static void raise_bound(struct milp *z, double ticks)
{
    mw_time bound = (mw_time)ceil(ticks - 1e-6) * z->x->tick_ps;

    if (bound > z->out->bound_ps && bound <= z->out->value_ps) {
        z->out->bound_ps = bound;
    }
}

static void read_ends(const struct milp *z, double *end)
{
    int n = X_TYPES * z->x->p * z->x->m, i;

    for (i = 0; i < n; i++) {
        end[i] = glp_mip_col_val(z->lp, i + 1);
    }
}

/* One round; true when the work is over. */
static bool run_round(struct milp *z, double *end)
{
    const char *by = z->opts->is_lazy ? "lazy" : "disjunctive";
    mw_time before = z->out->bound_ps;
    int rc = solve_mip(z), status;

    z->out->rounds++;
    z->out->rows = glp_get_num_rows(z->lp);
    z->out->columns = glp_get_num_cols(z->lp);
    z->out->integers = glp_get_num_int(z->lp);
    if (rc != 0 && rc != GLP_ETMLIM && rc != GLP_EMIPGAP) {
        return true;
    }
    status = glp_mip_status(z->lp);
    raise_bound(z, status == GLP_OPT ? glp_mip_obj_val(z->lp) : z->bound);
    if (z->out->bound_ps > before) {
        z->out->by = by;
    }
    if (z->out->bound_ps >= z->out->value_ps ||
        (status != GLP_OPT && status != GLP_FEAS)) {
        return true;
    }
    read_ends(z, end);
    if (!add_violated(z, end)) {
        exact_adopt(z->x, end, by, z->out);
        return true;
    }
    return rc == GLP_ETMLIM || exact_now() >= z->until;
}

static void milp_init(struct milp *z, const struct exact_problem *x)
{
    size_t p = (size_t)x->p, m = (size_t)x->m;

    z->x = x;
    z->lp = glp_create_prob();
    exact_row_init(&z->row, 8 + 2 * x->m);
    z->y = mw_calloc(KINDS * p * m * m, sizeof *z->y);
    z->has_memory = mw_calloc(p * m, sizeof *z->has_memory);
    z->end = mw_calloc(2 * 3 * p * m, sizeof *z->end);
}

static void milp_release(struct milp *z)
{
    glp_delete_prob(z->lp);
    exact_row_release(&z->row);
    mw_free(z->y);
    mw_free(z->has_memory);
    mw_free(z->end);
}

enum mw_status mw_exact_disjunctive(const struct mw_auto_problem *problem,
                                    const struct mw_schedule *incumbent,
                                    const struct mw_exact_opts *opts,
                                    struct mw_exact *out, struct mw_err *err)
{
    struct exact_problem x;
    struct milp z = {.opts = opts, .out = out};
    enum mw_status st = MW_OK;

    glp_term_out(GLP_OFF);
    exact_problem_init(&x, problem);
    milp_init(&z, &x);
    z.until = exact_now() + opts->time_limit_s;
    z.big_m = (double)(out->value_ps / x.tick_ps);
    if (!exact_ends(&x, incumbent, z.end)) {
        st = mw_fail(err, MW_EUSAGE,
                     "the incumbent is not a schedule of the problem");
    } else {
        add_base(&z);
        if (!opts->is_lazy || opts->lp_file != NULL) {
            add_everything(&z);
        }
        if (opts->lp_file != NULL) {
            if (glp_write_lp(z.lp, NULL, opts->lp_file) != 0) {
                st = mw_fail(err, MW_EINPUT, "%s: cannot write", opts->lp_file);
            }
        } else {
            while (!run_round(&z, z.end + 3 * x.p * x.m)) {
            }
        }
    }
    out->is_proved = st == MW_OK && out->value_ps == out->bound_ps;
    milp_release(&z);
    exact_problem_release(&x);
    return st;
}
