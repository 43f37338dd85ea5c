/*
 * Where routers send tokens when training begins: the scenario's model is
 * trained on one rank for some steps, and what its routers decide is counted.
 * Sequences and weights depend on the seed alone, so under any layout routers
 * decide alike, but for rounding. No time is measured.
 */
#include "exec/bench.h"

#include "base/file.h"
#include "exec/exec_int.h"
#include "sim/plan/plan.h"

#include <inttypes.h>
#include <stdio.h>

/* Steps that a run does not time, and some of those that it does. */
enum { WARMUP_STEPS = 3, ROUTER_STEPS = 4 };

static size_t rows_of_step(const struct mw_scenario *s)
{
    return (size_t)mw_model_moe_layers(&s->model, s->model.n_layers) *
           (size_t)s->workload.global_batch * (size_t)s->model.moe.n_experts;
}

static enum mw_status walk_steps(struct mw_exec *ex, size_t each, int64_t *out)
{
    for (int step = 0; step < WARMUP_STEPS + ROUTER_STEPS; step++) {
        ex->routed = step < WARMUP_STEPS
                         ? NULL
                         : out + (size_t)(step - WARMUP_STEPS) * each;
        MW_TRY(mw_exec_walk(ex));
        MW_TRY(mw_exec_reduce_gradients(ex));
        MW_TRY(mw_exec_update(ex));
    }
    return MW_OK;
}

/* out: [step][layer of experts][sequence][expert] */
static enum mw_status count(const struct mw_scenario *s,
                            const struct mw_plan *plan, struct mw_comm *self,
                            int64_t *out, struct mw_err *err)
{
    const struct mw_dev_ops *ops;
    struct mw_dev *dev;
    struct mw_rec rec;
    struct mw_exec ex;
    struct mw_job job;
    mw_job_from_plan(&job, s, plan);
    MW_TRY(mw_job_check(&job, "host", err));
    MW_TRY(mw_dev_find("host", s->workload.dtype, &ops, err));
    MW_TRY(ops->open(0, &dev, err));
    mw_rec_init(&rec, dev);
    enum mw_status st = mw_exec_open(&ex, &job, self, dev, &rec, err);
    if (st == MW_OK) {
        st = walk_steps(&ex, rows_of_step(s), out);
        mw_exec_close(&ex);
    }
    mw_rec_release(&rec);
    ops->close(dev);
    return st;
}

static void write_rows(const struct mw_scenario *s, const int64_t *n, FILE *f)
{
    const struct mw_model *m = &s->model;
    int64_t batch = s->workload.global_batch;
    fprintf(f, "layer,sequence,expert,rows\n");
    for (int layer = 0; layer < m->n_layers; layer++) {
        int64_t before = mw_model_moe_layers(m, layer);
        for (int64_t q = 0;
             q < ROUTER_STEPS * batch && mw_model_layer_is_moe(m, layer); q++) {
            const int64_t *row =
                n + (size_t)(q / batch) * rows_of_step(s) +
                (size_t)((before * batch + q % batch) * m->moe.n_experts);
            for (int e = 0; e < m->moe.n_experts; e++) {
                fprintf(f, "%d,%" PRId64 ",%d,%" PRId64 "\n", layer, q, e,
                        row[e]);
            }
        }
    }
}

static enum mw_status bench(const struct mw_scenario *s, const char *path,
                            struct mw_comm *self, struct mw_err *err)
{
    struct mw_layout layout;
    struct mw_plan plan;
    struct mw_outfile o = {0};
    mw_layout_default(&layout);
    MW_TRY(mw_plan_make(s, &layout, NULL, &plan, err));
    int64_t *n = mw_calloc(ROUTER_STEPS * rows_of_step(s) + 1, sizeof *n);
    enum mw_status st = count(s, &plan, self, n, err);
    if (st == MW_OK) {
        st = mw_outfile_open(&o, path, err);
    }
    if (st == MW_OK) {
        write_rows(s, n, o.f);
        st = mw_outfile_commit(&o, err);
    }
    mw_outfile_abort(&o);
    mw_free(n);
    mw_plan_release(&plan);
    return st;
}

enum mw_status mw_bench_routing(const char *scenario, const char *path,
                                struct mw_comm *world, struct mw_err *err)
{
    struct mw_scenario s;
    struct mw_comm *self = NULL;
    MW_TRY(mw_scenario_load(scenario, &s, err));
    s.cluster.n_nodes = s.cluster.gpus_per_node =
        1; /* for a plan of one rank */
    enum mw_status st = world->ops->split(world, world->rank, 0, &self, err);
    if (st == MW_OK && world->rank == 0) {
        st = bench(&s, path, self, err);
    }
    if (self) {
        self->ops->free(self);
    }
    mw_scenario_release(&s);
    return st;
}
