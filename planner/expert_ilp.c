/*
 * The placement of expert replicas as an integer program: see expert_place.h.
 *
 * Ranks are alike, so their loads are ordered (rank r no less than r + 1), and
 * an expert of no load gets one copy. Loads are in units of the mean of a rank.
 */
#include "base/log.h"
#include "base/mem.h"
#include "planner/expert_place.h"

#include <glpk.h>
#include <math.h>

static const double DEFAULT_LIMIT_S = 5;

/* Columns: y_ek, then x_ekr, then T. Counts k run from 1 to k_max. */
struct model {
    const struct mw_expert_problem *p;
    glp_prob *lp;
    int k_max;
    double unit;
    int *index; /* of one row */
    double *value;
    int n;
};

static int col_y(const struct model *m, int e, int k)
{
    return e * m->k_max + k;
}

static int col_x(const struct model *m, int e, int k, int r)
{
    return m->p->n_experts * m->k_max + (e * m->k_max + k - 1) * m->p->n_ranks +
           r + 1;
}

static int col_t(const struct model *m)
{
    return m->p->n_experts * m->k_max * (1 + m->p->n_ranks) + 1;
}

static void entry(struct model *m, int column, double value)
{
    m->index[++m->n] = column;
    m->value[m->n] = value;
}

static void end_row(struct model *m, int type, double low, double high)
{
    int row = glp_add_rows(m->lp, 1);

    glp_set_mat_row(m->lp, row, m->n, m->index, m->value);
    glp_set_row_bnds(m->lp, row, type, low, high);
    m->n = 0;
}

static double share(const struct model *m, int e, int k)
{
    return m->p->load[e] / k / m->unit;
}

static void add_columns(struct model *m)
{
    glp_add_cols(m->lp, col_t(m));
    for (int c = 1; c < col_t(m); c++) {
        glp_set_col_kind(m->lp, c, GLP_BV);
    }
    for (int e = 0; e < m->p->n_experts; e++) {
        for (int k = 2; !(m->p->load[e] > 0) && k <= m->k_max; k++) {
            glp_set_col_bnds(m->lp, col_y(m, e, k), GLP_FX, 0, 0);
        }
    }
    glp_set_col_bnds(m->lp, col_t(m), GLP_LO, 1, 0);
    glp_set_obj_coef(m->lp, col_t(m), 1);
}

static void add_expert_rows(struct model *m)
{
    for (int e = 0; e < m->p->n_experts; e++) {
        for (int k = 1; k <= m->k_max; k++) {
            entry(m, col_y(m, e, k), 1);
        }
        end_row(m, GLP_FX, 1, 1);
        for (int k = 1; k <= m->k_max; k++) {
            for (int r = 0; r < m->p->n_ranks; r++) {
                entry(m, col_x(m, e, k, r), 1);
            }
            entry(m, col_y(m, e, k), -k);
            end_row(m, GLP_FX, 0, 0);
        }
    }
}

static void add_rank_rows(struct model *m)
{
    for (int r = 0; r < m->p->n_ranks; r++) {
        for (int e = 0; e < m->p->n_experts; e++) {
            for (int k = 1; k <= m->k_max; k++) {
                entry(m, col_x(m, e, k, r), 1);
            }
        }
        end_row(m, GLP_UP, 0, m->p->n_slots);
        for (int e = 0; e < m->p->n_experts; e++) {
            for (int k = 1; k <= m->k_max; k++) {
                entry(m, col_x(m, e, k, r), share(m, e, k));
            }
        }
        entry(m, col_t(m), -1);
        end_row(m, GLP_UP, 0, 0);
        for (int e = 0; r + 1 < m->p->n_ranks && e < m->p->n_experts; e++) {
            for (int k = 1; k <= m->k_max; k++) {
                entry(m, col_x(m, e, k, r), share(m, e, k));
                entry(m, col_x(m, e, k, r + 1), -share(m, e, k));
            }
        }
        if (m->n > 0) {
            end_row(m, GLP_LO, 0, 0);
        }
    }
}

static void take(const struct model *m, int *slot)
{
    const struct mw_expert_problem *p = m->p;

    for (int r = 0; r < p->n_ranks; r++) {
        int n = 0;

        for (int e = 0; e < p->n_experts; e++) {
            for (int k = 1; k <= m->k_max; k++) {
                if (glp_mip_col_val(m->lp, col_x(m, e, k, r)) > 0.5 &&
                    n < p->n_slots) {
                    slot[r * p->n_slots + n++] = e;
                }
            }
        }
        for (; n < p->n_slots; n++) {
            slot[r * p->n_slots + n] = -1;
        }
    }
}

/* A solution worse than what is known is not looked for. */
struct hook {
    double best; /* in units */
    double bound;
};

static void on_node(glp_tree *tree, void *arg)
{
    struct hook *hook = arg;
    int reason = glp_ios_reason(tree);

    if (reason == GLP_IBINGO || reason == GLP_ISELECT) {
        int node = glp_ios_best_node(tree);

        if (node > 0) {
            hook->bound = fmax(hook->bound, glp_ios_node_bound(tree, node));
        }
    }
}

static enum mw_status solve(struct model *m, double limit_s, double best,
                            bool *out_found, double *out_bound,
                            struct mw_err *err)
{
    struct hook hook = {best, 0};
    glp_smcp simplex;
    glp_iocp mip;

    glp_set_col_bnds(m->lp, col_t(m), GLP_DB, 1, fmax(1, best * (1 - 1e-9)));
    glp_init_smcp(&simplex);
    simplex.msg_lev = GLP_MSG_OFF;
    simplex.tm_lim = (int)(1000 * limit_s);
    int code = glp_simplex(m->lp, &simplex);

    *out_found = false;
    if (code == GLP_ETMLIM) {
        *out_bound = 1; /* the mean */
        return MW_OK;
    }
    if (code == 0 && glp_get_status(m->lp) == GLP_NOFEAS) {
        *out_bound = best;
        return MW_OK;
    }
    if (code != 0 || glp_get_status(m->lp) != GLP_OPT) {
        return mw_fail(err, MW_EBACKEND,
                       "GLPK did not solve the relaxation of expert placement "
                       "(code %d, status %d)",
                       code, glp_get_status(m->lp));
    }
    hook.bound = glp_get_obj_val(m->lp);
    glp_init_iocp(&mip);
    mip.msg_lev = GLP_MSG_OFF;
    mip.tm_lim = (int)(1000 * limit_s);
    mip.mip_gap = 1e-9;
    mip.cb_func = on_node;
    mip.cb_info = &hook;
    code = glp_intopt(m->lp, &mip);
    if (code != 0 && code != GLP_ETMLIM && code != GLP_EMIPGAP) {
        return mw_fail(err, MW_EBACKEND,
                       "GLPK did not solve expert placement (code %d)", code);
    }
    int status = glp_mip_status(m->lp);

    *out_found = status == GLP_OPT || status == GLP_FEAS;
    *out_bound = code == 0 ? (status == GLP_OPT ? glp_mip_obj_val(m->lp) : best)
                           : hook.bound;
    return MW_OK;
}

static void build(struct model *m)
{
    const struct mw_expert_problem *p = m->p;
    size_t room =
        2 * (size_t)p->n_experts * (size_t)m->k_max + (size_t)p->n_ranks + 2;

    m->index = mw_calloc(room, sizeof *m->index);
    m->value = mw_calloc(room, sizeof *m->value);
    m->lp = glp_create_prob();
    glp_set_obj_dir(m->lp, GLP_MIN);
    add_columns(m);
    add_expert_rows(m);
    add_rank_rows(m);
}

/* Most copies of one expert: one a rank, and room for the others. */
static int most_copies(const struct mw_expert_problem *p)
{
    int spare = p->n_ranks * p->n_slots - p->n_experts + 1;

    return spare < p->n_ranks ? spare : p->n_ranks;
}

enum mw_status mw_experts_solve(const struct mw_expert_problem *p,
                                double time_limit_s, const char *lp_path,
                                int *out_slot, struct mw_expert_answer *out,
                                struct mw_err *err)
{
    struct model m = {.p = p, .k_max = most_copies(p), .unit = out->mean};
    bool is_found = false;
    double bound = 0;
    int64_t start = mw_clock_wall_ns();
    enum mw_status status = MW_OK;

    if (out->is_proved && !lp_path) {
        return MW_OK;
    }
    glp_term_out(GLP_OFF);
    build(&m);
    if (lp_path && glp_write_lp(m.lp, NULL, lp_path) != 0) {
        status = mw_fail(err, MW_EFAILED, "cannot write %s", lp_path);
    }
    if (status == MW_OK && !out->is_proved) {
        status = solve(&m, time_limit_s > 0 ? time_limit_s : DEFAULT_LIMIT_S,
                       out->worst / m.unit, &is_found, &bound, err);
    }
    if (is_found) {
        take(&m, out_slot);
        out->worst = mw_experts_worst(p, out_slot);
    }
    if (status == MW_OK) {
        out->bound = fmax(out->bound, fmin(bound * m.unit, out->worst));
        out->is_proved = out->worst <= out->bound * (1 + 1e-8);
    }
    out->solve_s = 1e-9 * (double)(mw_clock_wall_ns() - start);
    glp_delete_prob(m.lp);
    mw_free(m.index);
    mw_free(m.value);
    return status;
}
