/* What `meshwright coll` prints: table, JSON, picture. */
#include "cli/verb_coll.h"

#include "base/stats.h"
#include "base/table.h"
#include "plots/plot.h"

#include <math.h>
#include <stdio.h>

static void print_head(const struct coll_args *a, const struct mw_coll_query *q,
                       const struct mw_coll_world *world)
{
    const struct mw_system *s = mw_coll_world_system(world);
    printf("# %s on %d x %s, %d GPUs each (%d ranks), %s %s",
           mw_coll_op_name(q->op), q->n_nodes, s->name, q->ranks_per_node,
           q->n_nodes * q->ranks_per_node, a->program ? "program" : "model",
           a->program ? a->program : mw_coll_model_name(a->model));
    for (int i = 0; i < a->n_env; i++) {
        printf(", %s", a->env[i]);
    }
    if (q->engine != MW_ENGINE_NONE) {
        printf(", kernels of %s%s", mw_coll_engine_name(q->engine),
               q->is_eager ? ", eager" : "");
    }
    if (q->harness != MW_HARNESS_TESTS) {
        printf(", under %s", mw_coll_harness_name(q->harness));
    }
    printf("\n");
}

static bool has_redop(enum mw_coll_op op)
{
    return op == MW_ALL_REDUCE || op == MW_REDUCE_SCATTER || op == MW_REDUCE;
}

static void print_row(struct mw_table *t, const struct coll_args *a,
                      const struct mw_coll_query *q, const struct coll_row *r)
{
    mw_table_row(t);
    mw_table_cell(t, "%.0f", r->bytes);
    mw_table_cell(t, "%.0f", r->bytes / a->elem_bytes);
    mw_table_cell(t, "%s", a->type_name);
    mw_table_cell(t, "%s", has_redop(q->op) ? "sum" : "none");
    mw_table_cell(t, "%.2f", r->a.time_s * 1e6);
    mw_table_cell(t, "%.2f", r->a.algbw_Bps * 1e-9);
    mw_table_cell(t, "%.2f", r->a.busbw_Bps * 1e-9);
    if (r->a.has_choice) {
        mw_table_cell(t, "%s", mw_nccl_algo_name(r->a.algo));
        mw_table_cell(t, "%s", mw_nccl_proto_name(r->a.proto));
        mw_table_cell(t, "%d", r->a.n_channels);
        mw_table_cell(t, "%d", r->a.n_threads);
    } else {
        mw_table_cell(t, "%s", r->a.kernel ? r->a.kernel : "-");
        for (int i = 0; i < 3; i++) {
            mw_table_cell(t, "-");
        }
    }
    if (a->against) {
        mw_table_cell(t, "%.2f", r->measured_s * 1e6);
        mw_table_cell(t, "%+.1f%%",
                      100 * (r->a.time_s - r->measured_s) / r->measured_s);
    }
}

static double median_error(const struct coll_rows *rows)
{
    double *e = mw_calloc(rows->v.n + 1, sizeof *e);
    for (size_t i = 0; i < rows->v.n; i++) {
        const struct coll_row *r = &rows->v.v[i];
        e[i] = fabs(r->a.time_s - r->measured_s) / r->measured_s;
    }
    double m = mw_median(e, rows->v.n);
    mw_free(e);
    return m;
}

void coll_view_print(const struct coll_args *a, const struct mw_coll_query *q,
                     const struct mw_coll_world *world,
                     const struct coll_rows *rows)
{
    static const char *const names[] = {"size",  "count", "type",  "redop",
                                        "time",  "algbw", "busbw", "algo",
                                        "proto", "chan",  "thr"};
    struct mw_table *t = mw_table_new();
    print_head(a, q, world);
    printf("# size in bytes, count in elements, time in us, algbw and busbw in "
           "GB/s\n");
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        mw_table_col(t, names[i], i != 2 && i != 3 && i != 7 && i != 8);
    }
    if (a->against) {
        mw_table_col(t, "measured", true);
        mw_table_col(t, "error", true);
    }
    for (size_t i = 0; i < rows->v.n; i++) {
        print_row(t, a, q, &rows->v.v[i]);
    }
    mw_table_print(t, stdout);
    mw_table_free(t);
    if (rows->v.n > 0 && (a->program || a->model == MW_COLL_FIT)) {
        printf("# %s\n", rows->v.v[rows->v.n - 1].a.source);
    }
    if (a->against && rows->v.n > 0) {
        printf("# median |error| %.1f %% of %zu sizes\n",
               100 * median_error(rows), rows->v.n);
    }
}

static const char *model_text(const struct coll_args *a)
{
    return a->program ? "program" : mw_coll_model_name(a->model);
}

static json_t *row_json(const struct coll_args *a, const struct coll_row *r)
{
    json_t *o = json_object();
    mw_json_set_real(o, "bytes", r->bytes);
    mw_json_set_str(o, "model", model_text(a));
    if (r->a.has_choice) {
        mw_json_set_str(o, "algo", mw_nccl_algo_name(r->a.algo));
        mw_json_set_str(o, "proto", mw_nccl_proto_name(r->a.proto));
        mw_json_set_int(o, "channels", r->a.n_channels);
        mw_json_set_int(o, "threads", r->a.n_threads);
    } else {
        mw_json_set(o, "algo",
                    r->a.kernel ? json_string(r->a.kernel) : json_null());
        mw_json_set(o, "proto", json_null());
        mw_json_set(o, "channels", json_null());
        mw_json_set(o, "threads", json_null());
    }
    mw_json_set_real(o, "time_s", r->a.time_s);
    mw_json_set_real(o, "algbw_Bps", r->a.algbw_Bps);
    mw_json_set_real(o, "busbw_Bps", r->a.busbw_Bps);
    mw_json_set_real(o, "ratio", r->a.ratio);
    mw_json_set_real(o, "overhead_s", r->a.overhead_s);
    mw_json_set_str(o, "source", r->a.source);
    if (a->against) {
        mw_json_set_real(o, "measured_s", r->measured_s);
    }
    return o;
}

int coll_view_json(const struct coll_args *a, const struct mw_coll_query *q,
                   const struct mw_coll_world *world,
                   const struct coll_rows *rows)
{
    json_t *o = json_object(), *list = json_array();
    mw_json_set_str(o, "system", mw_coll_world_system(world)->slug);
    mw_json_set_str(o, "op", mw_coll_op_name(q->op));
    mw_json_set_str(o, "dtype", a->type_name);
    mw_json_set_int(o, "nodes", q->n_nodes);
    mw_json_set_int(o, "gpus_per_node", q->ranks_per_node);
    mw_json_set_int(o, "ranks", q->n_nodes * q->ranks_per_node);
    mw_json_set_str(o, "model", model_text(a));
    mw_json_set_str(o, "harness", mw_coll_harness_name(q->harness));
    mw_json_set(o, "engine",
                q->engine != MW_ENGINE_NONE
                    ? json_string(mw_coll_engine_name(q->engine))
                    : json_null());
    json_t *notices = json_array();
    for (size_t i = 0; i < a->notice.n; i++) {
        json_array_append_new(notices, json_string(a->notice.v[i]));
    }
    mw_json_set(o, "notices", notices);
    if (a->against && rows->v.n > 0) {
        mw_json_set_real(o, "median_ape", median_error(rows));
    }
    for (size_t i = 0; i < rows->v.n; i++) {
        json_array_append_new(list, row_json(a, &rows->v.v[i]));
    }
    mw_json_set(o, "rows", list);
    return mw_cli_print_json(o);
}

enum mw_status coll_view_plot(const struct coll_args *a,
                              const struct mw_coll_query *q,
                              const struct coll_rows *rows, struct mw_err *err)
{
    size_t n = rows->v.n;
    double *x = mw_calloc(n + 1, sizeof *x), *y = mw_calloc(n + 1, sizeof *y);
    double *z = mw_calloc(n + 1, sizeof *z);
    int ranks = q->n_nodes * q->ranks_per_node;
    for (size_t i = 0; i < n; i++) {
        const struct coll_row *r = &rows->v.v[i];
        x[i] = r->bytes;
        y[i] = r->a.busbw_Bps;
        z[i] = r->measured_s > 0
                   ? r->bytes / r->measured_s * mw_coll_bus_factor(q->op, ranks)
                   : 0;
    }
    struct mw_plot_series series[2] = {
        {.label = mw_coll_model_name(a->model), .x = x, .y = y, .n = n},
        {.label = "measured", .x = x, .y = z, .n = n}};
    struct mw_plot_axes axes = {
        .title = mw_coll_op_name(q->op),
        .x = {.label = "message", .format = MW_PLOT_BYTES, .is_log = true},
        .y = {.label = "bus bandwidth", .format = MW_PLOT_BYTES_PER_S}};
    enum mw_status s =
        mw_plot_curves(&axes, series, a->against ? 2 : 1, a->plot, err);
    mw_free(x);
    mw_free(y);
    mw_free(z);
    return s;
}
