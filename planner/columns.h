/*
 * Choice of a column for each pipeline stage on a mixed cluster.
 *
 * A column of a stage is one way to build it: so many layers on so many
 * devices of one kind, with its tp, recomputation and so on, priced, and
 * already within memory. Chosen together, columns share the layers of the
 * model and the devices of each kind:
 *
 *   minimise  (m - 1) T + sum t x + 2 c sum u + W
 *   sum_k x_ik = 1          one column a stage
 *   sum n x = layers        all layers
 *   sum g x <= devices      of each kind
 *   T >= t of every chosen column
 *   W >= what each has to do once, after the last pass
 *   sum x of kind k on stage i <= y_k, sum y <= K     at most K kinds
 *   u_i >= kind changes between stage i - 1 and i, at c seconds a transfer
 *   sum x of stage i - 1 that end at place q
 *     = sum x of stage i that begin there         where layers are not alike
 *
 * Places are what tells first layers of a stage apart: the first stage begins
 * at place 0, and a column's time holds wherever its place is met. Where the
 * last one ends is left to the row of all layers.
 *
 * Solved in threshold form: for a fixed T the columns slower than it are gone
 * and the rest is a small program with a nearly integral relaxation. LP(T)
 * falls as T grows, so for any interval of thresholds (m - 1) T_low +
 * LP(T_high) bounds all of them, and intervals are halved only while the bound
 * is below the best found. When none is left the answer is proved. W has
 * thresholds as well: then rectangles are halved. At most K
 * kinds: one such search for each set of K of them. (In the
 * direct form T is a variable and the relaxation says next to nothing.)
 */
#ifndef MW_PLANNER_COLUMNS_H
#define MW_PLANNER_COLUMNS_H

#include "base/err.h"

#include <signal.h>
#include <stdbool.h>
#include <stddef.h>

enum { MW_COLUMN_KINDS_MAX = 8 };

struct mw_column {
    int stage;
    double time_s; /* one micro-batch, all passes */
    int n_layers;
    int kind; /* of device, 0 .. n_kinds - 1 */
    int n_devices;
    int tag; /* the caller's */
    /* Places in the model, 0 .. n_places - 1, of its first layer and of the
     * one after its last. */
    int begins, ends;
    double after_s; /* once, after the last pass */
};
struct mw_column_problem {
    int n_stages, n_layers, n_kinds, n_microbatches;
    int devices[MW_COLUMN_KINDS_MAX];
    int max_kinds;   /* K; 0: any */
    int n_places;    /* of layers that are not alike; 0: none to keep */
    double change_s; /* c */
    double beat_s;   /* only choices below this value are wanted; 0: all */
    const struct mw_column *column;
    size_t n_columns;
};
struct mw_column_answer {
    double value_s, bound_s, slowest_s;
    bool is_proved;
    size_t n_kept; /* columns that no other makes useless */
    int n_lps, n_ilps;
    double solve_s;
};
/*
 * out_chosen[n_stages] gets indices of columns. time_limit_s 0: none; when it
 * ends, the best so far with is_proved false. MW_ENO when there is no choice
 * (below beat_s; out->is_proved says whether that is certain, and is the only
 * field set then);
 * MW_EBACKEND when GLPK fails. lp_path (or NULL): the program is also written
 * there, mw_columns_write.
 */
enum mw_status mw_columns_choose(const struct mw_column_problem *problem,
                                 double time_limit_s, const char *lp_path,
                                 int *out_chosen, struct mw_column_answer *out,
                                 struct mw_err *err);
/* The program in its direct form (T a variable, the value in seconds) as CPLEX
 * LP, for another solver. */
enum mw_status mw_columns_write(const struct mw_column_problem *problem,
                                const char *path, struct mw_err *err);
/* Value of a choice by the definition; HUGE_VAL when it breaks a row. */
double mw_columns_value(const struct mw_column_problem *problem,
                        const int *chosen);

#endif
