/*
 * The program of columns as a GLPK model: in threshold form, where the columns
 * slower than a threshold are fixed at 0, and in the direct form with the
 * slowest time as a variable, for another solver.
 */
#include "planner/columns_int.h"

#include "base/mem.h"

bool mw_columns_have_places(const struct mw_column_problem *p)
{
    return p->n_places > 1;
}

bool mw_columns_have_uses(const struct mw_column_problem *p)
{
    return p->max_kinds > 0 && p->max_kinds < p->n_kinds;
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
    if (mw_columns_have_places(p) && c->stage > 0) {
        index[++n] = row_place(p, c->stage, c->begins);
        value[n] = -1;
    }
    if (mw_columns_have_places(p) && c->stage + 1 < p->n_stages) {
        index[++n] = row_place(p, c->stage + 1, c->ends);
        value[n] = 1;
    }
    return n;
}

static void add_rows(struct mw_column_solver *s)
{
    const struct mw_column_problem *p = s->p;
    int fixed = p->n_stages + 1 + p->n_kinds;
    int n_changes = has_changes(p) ? (p->n_stages - 1) * p->n_kinds : 0;
    int n_places =
        mw_columns_have_places(p) ? (p->n_stages - 1) * p->n_places : 0;

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

static void add_columns(struct mw_column_solver *s)
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

void mw_columns_build(struct mw_column_solver *s)
{
    s->lp = glp_create_prob();
    add_rows(s);
    add_columns(s);
}

/* ---- the direct form -------------------------------------------------------
 */
/* y_k is 1 where a stage uses kind k; of them no more than are allowed. */
static void write_uses(const struct mw_column_solver *s, glp_prob *lp,
                       int *index, double *value)
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

/* W and a row for each stage, where any has something to do after. */
static void add_after(const struct mw_column_solver *s, glp_prob *lp)
{
    int *index = mw_calloc((size_t)s->n_kept + 2, sizeof *index);
    double *value = mw_calloc((size_t)s->n_kept + 2, sizeof *value);
    int after = 0;

    for (int i = 0; i < s->p->n_stages; i++) {
        int n = 1;

        for (int k = 0; k < s->n_kept; k++) {
            const struct mw_column *c = &s->p->column[s->kept[k]];

            if (c->stage == i && c->after_s > 0) {
                index[++n] = k + 1;
                value[n] = -c->after_s;
            }
        }
        if (n > 1 && after == 0) {
            after = glp_add_cols(lp, 1);
            glp_set_col_bnds(lp, after, GLP_LO, 0, 0);
            glp_set_obj_coef(lp, after, 1);
        }
        if (n > 1) {
            int row = glp_add_rows(lp, 1);

            index[1] = after;
            value[1] = 1;
            glp_set_mat_row(lp, row, n, index, value);
            glp_set_row_bnds(lp, row, GLP_LO, 0, 0);
        }
    }
    mw_free(index);
    mw_free(value);
}

enum mw_status mw_columns_write_direct(const struct mw_column_solver *s,
                                       const char *path, struct mw_err *err)
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
    add_after(s, lp);
    if (mw_columns_have_uses(s->p)) {
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
