/*
 * The same as an integer program, T the slowest stage or the bound of 1F1B:
 *
 *   n[i,s,r]  layers of run s on stage i with option r, integer
 *   z[s,i]    run s is finished by stage i, binary (runs but the last)
 *
 *   T >= m t_i + sum_{k<i} (t_k + 2 c)          t_i of extra_i and n[i,s,r];
 *                                               the slowest stage: T >= t_i
 *   sum_i,r n[i,s,r] = layers of s
 *   sum_s,r n[i,s,r] >= 1                       (the last stage: may_end_bare)
 *   memory of stage i
 *   sum_{j<=i},r n[j,s,r] >= layers_s z[s,i]    finished means all of it
 *   sum_r n[i,s+1,r] <= layers_{s+1} z[s,i]     the next run after that
 *
 * Layers that are alike are counts, so the program does not grow with depth.
 * The LP relaxation is a bound of every split; branch and bound proves small
 * cases and gives value and gap under a time limit.
 */
#include "planner/stage_split.h"

#include "base/log.h"
#include "base/mem.h"

#include <glpk.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

struct program {
    const struct mw_split_problem *p;
    glp_prob *lp;
    double unit_s; /* times in units of the longest layer, m times */
    double unit_bytes;
    int *index;
    double *value;
    int n_row; /* entries of the row being made */
};

static int col_n(const struct program *g, int i, int s, int r)
{
    return (i * g->p->n_runs + s) * MW_SPLIT_OPTIONS + r + 1;
}

static int n_counts(const struct program *g)
{
    return g->p->n_stages * g->p->n_runs * MW_SPLIT_OPTIONS;
}

static int col_z(const struct program *g, int s, int i)
{
    return n_counts(g) + s * g->p->n_stages + i + 1;
}

static int col_t(const struct program *g)
{
    return n_counts(g) + (g->p->n_runs - 1) * g->p->n_stages + 1;
}

static void entry(struct program *g, int column, double value)
{
    g->n_row++;
    g->index[g->n_row] = column;
    g->value[g->n_row] = value;
}

static void end_row(struct program *g, int type, double low, double high,
                    const char *name)
{
    int row = glp_add_rows(g->lp, 1);

    glp_set_row_name(g->lp, row, name);
    glp_set_row_bnds(g->lp, row, type, low, high);
    glp_set_mat_row(g->lp, row, g->n_row, g->index, g->value);
    g->n_row = 0;
}

static void add_columns(struct program *g)
{
    const struct mw_split_problem *p = g->p;
    char name[48];

    glp_set_obj_dir(g->lp, GLP_MIN);
    glp_add_cols(g->lp, col_t(g));
    for (int i = 0; i < p->n_stages; i++) {
        for (int s = 0; s < p->n_runs; s++) {
            for (int r = 0; r < MW_SPLIT_OPTIONS; r++) {
                int c = col_n(g, i, s, r);

                snprintf(name, sizeof name, "n_%d_%d_%d", i, s, r);
                glp_set_col_name(g->lp, c, name);
                glp_set_col_kind(g->lp, c, GLP_IV);
                glp_set_col_bnds(g->lp, c, GLP_DB, 0, p->run[s].n_layers);
            }
            if (s + 1 < p->n_runs) {
                snprintf(name, sizeof name, "z_%d_%d", s, i);
                glp_set_col_name(g->lp, col_z(g, s, i), name);
                glp_set_col_kind(g->lp, col_z(g, s, i), GLP_BV);
            }
        }
    }
    glp_set_col_name(g->lp, col_t(g), "T");
    glp_set_col_bnds(g->lp, col_t(g), GLP_LO, 0, 0);
    glp_set_obj_coef(g->lp, col_t(g), 1);
}

/* Of stages before i one micro-batch, of i all. */
static void add_time_row(struct program *g, int i)
{
    const struct mw_split_problem *p = g->p;
    double extra_s = 0;
    char name[48];

    for (int k = p->n_microbatches > 0 ? 0 : i; k <= i; k++) {
        double times = k == i && p->n_microbatches > 0 ? p->n_microbatches : 1;

        for (int s = 0; s < p->n_runs; s++) {
            for (int r = 0; r < MW_SPLIT_OPTIONS; r++) {
                entry(g, col_n(g, k, s, r),
                      -times * p->run[s].time_s[r] / g->unit_s);
            }
        }
        extra_s += times * p->extra_s[k] + (k < i ? 2 * p->transfer_s : 0);
    }
    entry(g, col_t(g), 1);
    snprintf(name, sizeof name, "time_%d", i);
    end_row(g, GLP_LO, extra_s / g->unit_s, 0, name);
}

static void add_stage_rows(struct program *g, int i)
{
    const struct mw_split_problem *p = g->p;
    char name[48];

    add_time_row(g, i);
    for (int s = 0; s < p->n_runs; s++) {
        for (int r = 0; r < MW_SPLIT_OPTIONS; r++) {
            entry(g, col_n(g, i, s, r),
                  (p->run[s].layer_bytes +
                   p->in_flight[i] * p->run[s].held_bytes[r]) /
                      g->unit_bytes);
        }
    }
    snprintf(name, sizeof name, "memory_%d", i);
    end_row(g, GLP_UP, 0, (p->limit_bytes - p->fixed_bytes[i]) / g->unit_bytes,
            name);
    for (int s = 0; s < p->n_runs; s++) {
        for (int r = 0; r < MW_SPLIT_OPTIONS; r++) {
            entry(g, col_n(g, i, s, r), 1);
        }
    }
    snprintf(name, sizeof name, "some_%d", i);
    end_row(g, GLP_LO, i + 1 < p->n_stages || !p->may_end_bare, 0, name);
}

static void add_run_rows(struct program *g, int s)
{
    const struct mw_split_problem *p = g->p;
    char name[48];

    for (int i = 0; i < p->n_stages; i++) {
        for (int r = 0; r < MW_SPLIT_OPTIONS; r++) {
            entry(g, col_n(g, i, s, r), 1);
        }
    }
    snprintf(name, sizeof name, "layers_%d", s);
    end_row(g, GLP_FX, p->run[s].n_layers, p->run[s].n_layers, name);
    for (int i = 0; s + 1 < p->n_runs && i < p->n_stages; i++) {
        for (int j = 0; j <= i; j++) {
            for (int r = 0; r < MW_SPLIT_OPTIONS; r++) {
                entry(g, col_n(g, j, s, r), 1);
            }
        }
        entry(g, col_z(g, s, i), -p->run[s].n_layers);
        snprintf(name, sizeof name, "finished_%d_%d", s, i);
        end_row(g, GLP_LO, 0, 0, name);
        for (int r = 0; r < MW_SPLIT_OPTIONS; r++) {
            entry(g, col_n(g, i, s + 1, r), 1);
        }
        entry(g, col_z(g, s, i), -p->run[s + 1].n_layers);
        snprintf(name, sizeof name, "next_%d_%d", s, i);
        end_row(g, GLP_UP, 0, 0, name);
    }
}

static void build(struct program *g)
{
    const struct mw_split_problem *p = g->p;
    size_t room;

    for (int s = 0; s < p->n_runs; s++) {
        for (int r = 0; r < MW_SPLIT_OPTIONS; r++) {
            g->unit_s = fmax(g->unit_s, p->run[s].time_s[r]);
        }
    }
    g->unit_s *= p->n_microbatches > 0 ? p->n_microbatches : 1;
    g->unit_bytes = p->limit_bytes;
    add_columns(g);
    room = (size_t)col_t(g) + 2;
    g->index = mw_calloc(room, sizeof *g->index);
    g->value = mw_calloc(room, sizeof *g->value);
    for (int i = 0; i < p->n_stages; i++) {
        add_stage_rows(g, i);
    }
    for (int s = 0; s < p->n_runs; s++) {
        add_run_rows(g, s);
    }
}

static void read_stages(const struct program *g, struct mw_split_stage *out)
{
    const struct mw_split_problem *p = g->p;

    for (int i = 0; i < p->n_stages; i++) {
        struct mw_split_stage *stage = &out[i];

        *stage = (struct mw_split_stage){.time_s = p->extra_s[i],
                                         .bytes = p->fixed_bytes[i]};
        for (int s = 0; s < p->n_runs; s++) {
            for (int r = 0; r < MW_SPLIT_OPTIONS; r++) {
                int n = (int)lround(glp_mip_col_val(g->lp, col_n(g, i, s, r)));

                stage->n[s][r] = n;
                stage->time_s += n * p->run[s].time_s[r];
                stage->bytes += n * (p->run[s].layer_bytes +
                                     p->in_flight[i] * p->run[s].held_bytes[r]);
            }
        }
    }
}

/* The best bound that branch and bound knew when it stopped. */
struct watch {
    double bound;
};

static void watch_bound(glp_tree *tree, void *info)
{
    struct watch *watch = info;
    int node = glp_ios_best_node(tree);

    if (node != 0) {
        watch->bound = glp_ios_node_bound(tree, node);
    }
}

static enum mw_status solve(struct program *g, double time_limit_s,
                            struct mw_split_answer *out, struct mw_err *err)
{
    struct watch watch = {-HUGE_VAL};
    glp_smcp simplex;
    glp_iocp mip;

    glp_init_smcp(&simplex);
    simplex.msg_lev = GLP_MSG_OFF;
    int code = glp_simplex(g->lp, &simplex);

    if (code == 0 && glp_get_status(g->lp) == GLP_NOFEAS) {
        return mw_fail(err, MW_ENO, "no split fits the memory limit");
    }
    if (code != 0 || glp_get_status(g->lp) != GLP_OPT) {
        return mw_fail(err, MW_EBACKEND,
                       "GLPK did not solve the relaxation (code %d)", code);
    }
    double root = glp_get_obj_val(g->lp);

    glp_init_iocp(&mip);
    mip.msg_lev = GLP_MSG_OFF;
    mip.mir_cuts = GLP_ON;
    mip.cb_func = watch_bound;
    mip.cb_info = &watch;
    mip.tm_lim = time_limit_s > 0 && time_limit_s < 2e6
                     ? (int)ceil(1e3 * time_limit_s)
                     : INT32_MAX;
    code = glp_intopt(g->lp, &mip);
    int status = glp_mip_status(g->lp);

    if (status == GLP_NOFEAS) {
        return mw_fail(err, MW_ENO, "no split fits the memory limit");
    }
    if ((code != 0 && code != GLP_ETMLIM) ||
        (status != GLP_OPT && status != GLP_FEAS)) {
        return mw_fail(err, MW_EBACKEND,
                       "GLPK found no split in %g s (code %d, status %d); the "
                       "bound is %.6g s",
                       time_limit_s, code, status, root * g->unit_s);
    }
    out->value_s = glp_mip_obj_val(g->lp) * g->unit_s;
    out->is_proved = status == GLP_OPT;
    out->bound_s =
        out->is_proved ? out->value_s : fmax(root, watch.bound) * g->unit_s;
    out->gap = out->value_s / out->bound_s - 1;
    return MW_OK;
}

enum mw_status mw_stage_split_ilp(const struct mw_split_problem *problem,
                                  double time_limit_s, const char *lp_path,
                                  struct mw_split_stage *out_stages,
                                  struct mw_split_answer *out,
                                  struct mw_err *err)
{
    int64_t start_ns = mw_clock_wall_ns();
    struct mw_split_answer answer = {0};
    struct program g = {.p = problem};
    enum mw_status status = MW_OK;

    glp_term_out(GLP_OFF);
    g.lp = glp_create_prob();
    build(&g);
    if (lp_path) {
        glp_set_obj_coef(g.lp, col_t(&g), g.unit_s); /* the value in seconds */
        if (glp_write_lp(g.lp, NULL, lp_path) != 0) {
            status =
                mw_fail(err, MW_EINPUT, "%s: cannot write the model", lp_path);
        }
        glp_set_obj_coef(g.lp, col_t(&g), 1);
    }
    if (status == MW_OK) {
        status = solve(&g, time_limit_s, &answer, err);
    }
    if (status == MW_OK) {
        read_stages(&g, out_stages);
        answer.solve_s = 1e-9 * (double)(mw_clock_wall_ns() - start_ns);
        *out = answer;
    }
    glp_delete_prob(g.lp);
    mw_free(g.index);
    mw_free(g.value);
    return status;
}
