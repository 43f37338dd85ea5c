/* `meshwright coll`: a collective over a range of sizes. */
#include "cli/coll_experts.h"

#include "base/log.h"
#include "plots/plot.h"
#include "sim/model/scenario.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* Machine and group: options first, then the scenario's cluster. */
static void take_cluster(struct coll_args *a, const struct mw_scenario *s)
{
    a->system = a->system ? a->system : s->cluster.system;
    a->n_nodes = a->n_nodes ? a->n_nodes : s->cluster.n_nodes;
    a->gpus_per_node =
        a->gpus_per_node ? a->gpus_per_node : s->cluster.gpus_per_node;
}

static enum mw_status make_world(struct coll_args *a, const struct mw_hwdb *db,
                                 struct mw_coll_query *q,
                                 struct mw_coll_world **out, struct mw_err *err)
{
    struct mw_nccl_opts opts;
    enum mw_status s = coll_settings(a, &opts, q, err);
    if (s != MW_OK) {
        return s;
    }
    s = mw_coll_world_new(db, a->system, &opts, out, err);
    /* An unknown name on the command line is a usage error. */
    return s == MW_EINPUT && !a->scenario ? MW_EUSAGE : s;
}

static enum mw_status
add_row(struct mw_coll_world *world, const struct mw_topology *topo,
        const struct coll_args *a, struct mw_coll_query *q, double bytes,
        double measured_s, struct coll_rows *rows, struct mw_err *err)
{
    struct coll_row row = {.bytes = bytes, .measured_s = measured_s};
    q->bytes = bytes;
    enum mw_status s =
        mw_coll_predict(world, topo ? MW_COLL_FIT : a->model, q, &row.a, err);
    if (s == MW_OK && topo) {
        struct mw_coll_job job = {.query = *q};
        struct mw_coll_job_time t;
        s = mw_coll_event_run(world, topo, &job, 1, &t, err);
        double factor = s == MW_OK ? row.a.time_s / t.end_s : 1;
        row.a.time_s /= factor;
        row.a.algbw_Bps *= factor;
        row.a.busbw_Bps *= factor;
        row.a.source = "streams on the given fabric, alone";
    }
    if (s == MW_OK) {
        mw_array_push(&rows->v, row);
    }
    return s;
}

static enum mw_status sweep(struct mw_coll_world *world,
                            const struct mw_topology *topo,
                            const struct coll_args *a, struct mw_coll_query *q,
                            struct coll_rows *rows, struct mw_err *err)
{
    enum mw_status s = MW_OK;

    for (double bytes = a->min_bytes; bytes <= a->max_bytes && s == MW_OK;
         bytes = coll_next_size(a, bytes)) {
        s = add_row(world, topo, a, q, floor(bytes), 0, rows, err);
    }
    return s;
}

/* The sizes of the log; ranks and operation of it where not given. */
static enum mw_status follow_log(struct mw_coll_world *world,
                                 const struct coll_args *a,
                                 struct mw_coll_query *q,
                                 struct coll_rows *rows, struct mw_err *err)
{
    struct mw_nccl_log log;
    enum mw_status s = mw_nccl_log_load(a->against, &log, err);
    if (s != MW_OK) {
        return s;
    }
    if (log.n_ranks > 0 && !a->n_nodes && !a->gpus_per_node) {
        q->n_nodes = log.n_hosts > 0 ? log.n_hosts : 1;
        q->ranks_per_node = log.n_ranks / q->n_nodes;
    }
    for (int i = 0; i < MW_COLL_OP_COUNT && !a->has_op; i++) {
        if (strcmp(log.op, mw_coll_op_name((enum mw_coll_op)i)) == 0) {
            q->op = (enum mw_coll_op)i;
        }
    }
    for (size_t i = 0; i < log.row.n && s == MW_OK; i++) {
        const struct mw_nccl_log_row *r = &log.row.v[i];
        if (r->bytes > 0 && r->time_s > 0) {
            s = add_row(world, NULL, a, q, r->bytes, r->time_s, rows, err);
        }
    }
    mw_nccl_log_release(&log);
    return s;
}

static enum mw_status run(struct coll_args *a, const struct mw_hwdb *db,
                          int *out_rc, struct mw_err *err)
{
    struct mw_coll_world *world = NULL;
    struct mw_coll_query q = {.op = a->op,
                              .type = a->type,
                              .redop = MW_NCCL_SUM,
                              .engine = a->engine,
                              .is_eager = a->is_eager,
                              .n_nodes = a->n_nodes ? a->n_nodes : 1,
                              .ranks_per_node = a->gpus_per_node};
    enum mw_status s = make_world(a, db, &q, &world, err);
    if (s != MW_OK) {
        return s;
    }
    if (!q.ranks_per_node) {
        q.ranks_per_node = mw_coll_world_system(world)->gpus_per_node;
    }
    mw_coll_world_set_congestion(world, &a->congestion);
    if (a->experts.traffic.n_experts) {
        s = coll_experts(a, db, mw_coll_world_system(world), &q, out_rc, err);
        mw_coll_world_free(world);
        return s;
    }
    struct coll_rows rows = {{NULL, 0, 0}};
    struct mw_topology *topo = NULL;
    s = coll_topology(a, db, &q, &topo, err);
    if (s == MW_OK && a->concurrent) {
        s = coll_concurrent(a, db, world, &q, out_rc, err);
        mw_topology_free(topo);
        mw_coll_world_free(world);
        return s;
    }
    if (s == MW_OK) {
        s = a->program   ? coll_program(a, world, topo, &q, &rows, err)
            : a->against ? follow_log(world, a, &q, &rows, err)
                         : sweep(world, topo, a, &q, &rows, err);
    }
    mw_topology_free(topo);
    if (s == MW_EINPUT && !a->against && !a->program && !a->scenario) {
        s = MW_EUSAGE; /* a group that the machine does not have */
    }
    if (s == MW_OK && a->cli.json) {
        *out_rc = coll_view_json(a, &q, world, &rows);
    } else if (s == MW_OK) {
        coll_view_print(a, &q, world, &rows);
    }
    if (s == MW_OK && a->plot) {
        s = coll_view_plot(a, &q, &rows, err);
    }
    mw_array_release(&rows.v);
    mw_coll_world_free(world);
    return s;
}

int mw_verb_coll(int argc, char **argv)
{
    struct coll_args a;
    struct mw_err err = {0};
    struct mw_hwdb *db = NULL;
    int rc = 0;
    if (coll_args_read(&a, argc, argv) != MW_OK) {
        return 2;
    }
    const char *wrong = a.plot ? mw_plot_path_wrong(a.plot) : NULL;
    if (wrong) {
        mw_fail(&err, MW_EUSAGE, "--plot: %s", wrong);
        return mw_cli_fail(&err);
    }
    struct mw_scenario scenario;
    enum mw_status s = mw_hwdb_load(a.cli.hwdb, &db, &err);
    bool has_scenario = false;
    if (s == MW_OK && a.scenario) {
        s = mw_scenario_load(a.scenario, &scenario, &err);
        has_scenario = s == MW_OK;
    }
    if (s == MW_OK) {
        if (has_scenario) {
            take_cluster(&a, &scenario);
        }
        s = run(&a, db, &rc, &err);
    }
    if (has_scenario) {
        mw_scenario_release(&scenario);
    }
    mw_hwdb_free(db);
    coll_args_release(&a);
    if (s != MW_OK) {
        err.status = s;
        return mw_cli_fail(&err);
    }
    return rc;
}
