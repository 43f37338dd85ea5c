/*
 * A sweep run: each point searched, or found among the rows that are known. A
 * row is known by what it answers and not by its place in some grid. What a
 * file already has is kept in it, whatever the grid asks for.
 */
#include "planner/sweep.h"

#include "base/file.h"
#include "planner/domains.h"
#include "planner/sweep_int.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* The point as a row without an answer. */
static void name_point(const struct mw_sweep_point *p,
                       const struct mw_scenario *from,
                       const struct mw_sweep_opts *opts, struct mw_arena *arena,
                       struct mw_sweep_row *row)
{
    const struct mw_scenario *s = &p->scenario;

    *row = (struct mw_sweep_row){
        .scenario = mw_arena_printf(
            arena, "%016" PRIx64,
            mw_sweep_question(from, opts->search, opts->stack, p->ctx.db)),
        .model = mw_arena_strdup(arena, s->model.name ? s->model.name : ""),
        .system = mw_arena_strdup(arena, p->ctx.system->slug),
        .stack = p->ctx.stack.name,
        .nodes = s->cluster.n_nodes,
        .gpus = (int64_t)p->ctx.n_nodes * p->ctx.gpus_per_node,
        .seq = s->workload.seq,
        .global_batch = s->workload.global_batch,
        .domain_nodes = s->cluster.domains.n > 1 ? s->cluster.domain_nodes : 0,
        .nics = p->nics,
        .net = p->net,
        .recompute = "",
        .schedule = "",
        .order = "",
        .reason = ""};
}

static bool same_point(const struct mw_sweep_row *a,
                       const struct mw_sweep_row *b)
{
    return strcmp(a->scenario, b->scenario) == 0 &&
           strcmp(a->model, b->model) == 0 &&
           strcmp(a->system, b->system) == 0 &&
           strcmp(a->stack, b->stack) == 0 && a->nodes == b->nodes &&
           (b->domain_nodes > 0 || a->gpus == b->gpus) && a->seq == b->seq &&
           a->global_batch == b->global_batch && a->nics == b->nics &&
           mw_near(a->net, b->net, 1e-12, 0);
}

static void fill_plan(const struct mw_sweep_point *p,
                      const struct mw_search_result *r, struct mw_arena *arena,
                      struct mw_sweep_row *row)
{
    const struct mw_candidate *c = &r->plans[0];
    const struct mw_layout *l = &c->layout;
    double tokens = (double)p->scenario.workload.global_batch *
                    (double)p->scenario.workload.seq;

    row->is_feasible = 1;
    row->is_proved = r->proved_optimal;
    row->step_time_s = c->step_time_s;
    row->tokens_per_s = tokens / c->step_time_s;
    row->tokens_per_s_per_gpu = row->tokens_per_s / (double)row->gpus;
    row->mfu = c->mfu;
    row->peak_bytes = c->peak_bytes;
    row->gpu_hours_per_ttoken = 1e12 / row->tokens_per_s_per_gpu / 3600;
    row->tp = l->tp;
    row->cp = l->cp;
    row->pp = l->pp;
    row->vpp = l->vpp;
    row->dp = l->dp;
    row->ep = l->ep;
    row->etp = l->etp;
    row->zero = l->zero;
    row->sp = l->sp;
    row->micro_batch = l->micro_batch;
    row->recompute = mw_recompute_name(l->recompute);
    row->schedule = mw_arena_strdup(arena, l->schedule);
    row->order = mw_arena_strdup(arena, l->order);
}

/* Is the key that a failure is about an axis of the sweep? Then no line of the
 * scenario is to blame. */
static bool is_varied(const struct mw_sweep_grid *grid,
                      const struct mw_err *err)
{
    for (int i = 0; i < grid->n_axes; i++) {
        const char *name = mw_sweep_key_name(grid->axis[i]->key);

        if (strcmp(err->key, name) == 0 || strcmp(err->section, name) == 0) {
            return true;
        }
    }
    return false;
}

static enum mw_status blame(const struct mw_scenario *scenario,
                            const struct mw_sweep_grid *grid,
                            enum mw_status status, struct mw_err *err)
{
    if (status == MW_EINPUT && err != NULL && is_varied(grid, err)) {
        mw_err_prefix(err, "--vary");
    } else if (status == MW_EINPUT && err != NULL && err->section[0] != '\0') {
        mw_scenario_blame(scenario, err);
    }
    return status;
}

/* Nothing feasible is an answer; only wrong input and interrupts end a sweep.
 */
static enum mw_status search_point(const struct mw_sweep_point *p,
                                   const struct mw_sweep_opts *opts,
                                   struct mw_arena *arena,
                                   struct mw_sweep_row *row, struct mw_err *err)
{
    struct mw_search_result r;
    struct mw_err why = {0};
    struct mw_domains *cut = mw_calloc(1, sizeof *cut);
    bool is_choice = p->scenario.cluster.domains.n > 1;
    enum mw_status status =
        is_choice ? mw_domains_search(&p->scenario, &p->ctx, opts->search, cut,
                                      &r, &why)
                  : mw_search(&p->scenario, &p->ctx, opts->search, &r, &why);

    if (status == MW_OK) {
        if (is_choice) {
            row->domain_nodes = cut->choice[cut->best].domain_nodes;
            row->gpus = cut->choice[cut->best].n_gpus;
        }
        fill_plan(p, &r, arena, row);
        row->is_proved = row->is_proved && (!is_choice || cut->is_proved);
    } else if (status == MW_ENO) {
        row->reason = r.n_reasons > 0
                          ? mw_arena_strdup(arena, r.reasons[0].nearest)
                          : "no layout divides the ranks";
        status = MW_OK;
    } else if (err) {
        *err = why;
    }
    mw_search_result_release(&r);
    mw_free(cut);
    return status;
}

/* Rows read before, and which of them the grid has asked for. */
struct known {
    const struct mw_sweep_row *v;
    size_t n;
    bool *is_used;
};

/* What is known of a point; marks all rows of it. A row that is proved goes
 * before one that a time limit cut short; two that are proved agree. */
static enum mw_status find_known(struct known *known,
                                 const struct mw_sweep_row *row,
                                 const struct mw_sweep_row **out,
                                 struct mw_err *err)
{
    const struct mw_sweep_row *best = NULL;

    for (size_t i = 0; i < known->n; i++) {
        const struct mw_sweep_row *r = &known->v[i];

        if (!same_point(r, row)) {
            continue;
        }
        known->is_used[i] = true;
        if (best && best->is_proved && r->is_proved &&
            !mw_near(best->step_time_s, r->step_time_s, 1e-9, 0)) {
            return mw_fail(err, MW_EINPUT,
                           "two files differ about one point (%s, %" PRId64
                           " GPUs, seq %" PRId64 ", batch %" PRId64
                           "): %.6g s and %.6g s; were they made with the same "
                           "version and database?",
                           r->system, r->gpus, r->seq, r->global_batch,
                           best->step_time_s, r->step_time_s);
        }
        if (!best || (r->is_proved && !best->is_proved)) {
            best = r;
        }
    }
    *out = best;
    return MW_OK;
}

/* The rows so far, and behind them what else the file had: points that are
 * still to come, or of another grid. */
static enum mw_status write_rows(const struct mw_sweep_rows *rows,
                                 const struct known *known,
                                 const struct mw_sweep_opts *opts,
                                 struct mw_err *err)
{
    struct mw_sweep_rows all = {.n = 0};

    if (!opts->csv) {
        return MW_OK;
    }
    for (size_t i = 0; i < rows->n; i++) {
        mw_array_push(&all, rows->v[i]);
    }
    for (size_t i = opts->n_merged; i < known->n; i++) {
        if (!known->is_used[i]) {
            mw_array_push(&all, known->v[i]);
        }
    }
    enum mw_status status = mw_sweep_write(&all, opts->csv, err);

    mw_array_release(&all);
    return status;
}

static size_t shard_size(size_t n, const struct mw_sweep_opts *opts)
{
    size_t of = opts->n_shards > 0 ? (size_t)opts->n_shards : 1;
    size_t at = opts->n_shards > 0 ? (size_t)opts->shard - 1 : 0;

    return at < n ? (n - at + of - 1) / of : 0;
}

enum mw_status mw_sweep_run(const struct mw_scenario *scenario,
                            const struct mw_hwdb *db,
                            const struct mw_sweep_grid *grid,
                            const struct mw_sweep_opts *opts,
                            const struct mw_sweep_rows *known,
                            struct mw_sweep_rows *out, struct mw_err *err)
{
    size_t n = mw_sweep_points(grid), n_missing = 0;
    size_t step = opts->n_shards > 0 ? (size_t)opts->n_shards : 1;
    size_t first = opts->n_shards > 0 ? (size_t)opts->shard - 1 : 0;
    enum mw_status status = MW_OK;
    struct mw_sweep_point *p = mw_calloc(1, sizeof *p);
    struct known old_rows = {.v = known ? known->v : NULL,
                             .n = known ? known->n : 0};

    old_rows.is_used = mw_calloc(old_rows.n + 1, sizeof *old_rows.is_used);
    mw_arena_init(&out->arena);
    for (size_t i = first; i < n && status == MW_OK; i += step) {
        struct mw_sweep_row row;
        const struct mw_sweep_row *old = NULL;

        status = blame(
            scenario, grid,
            mw_sweep_point_make(scenario, db, opts->stack, grid, i, p, err),
            err);
        if (status != MW_OK) {
            break;
        }
        name_point(p, scenario, opts, &out->arena, &row);
        status = find_known(&old_rows, &row, &old, err);
        if (status != MW_OK) {
            break;
        }
        if (old) {
            mw_sweep_copy(&out->arena, old, &row);
        } else if (opts->is_merge) {
            n_missing++;
            continue;
        } else {
            status = blame(scenario, grid,
                           search_point(p, opts, &out->arena, &row, err), err);
        }
        if (status == MW_OK) {
            mw_array_push(out, row);
            status = old ? MW_OK : write_rows(out, &old_rows, opts, err);
        }
        if (opts->on_point) {
            opts->on_point(opts->arg, out->n, shard_size(n, opts));
        }
    }
    mw_free(p);
    if (status == MW_OK) {
        status = write_rows(out, &old_rows, opts, err);
    }
    mw_free(old_rows.is_used);
    if (status == MW_OK && n_missing > 0) {
        status = mw_fail(err, MW_ENO, "%zu of %zu points are in no file",
                         n_missing, n);
    }
    return status;
}

void mw_sweep_rows_release(struct mw_sweep_rows *rows)
{
    mw_array_release(rows);
    mw_arena_release(&rows->arena);
}
