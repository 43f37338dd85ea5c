/*
 * Counts of a scenario's routers, and their sums over the first sequences and
 * the first experts:
 *
 *   below(l, q, e) = sum of rows(l, q', e') over q' < q and e' < e
 *
 * so that what some sequences in a row send to some experts in a row takes four
 * of them, however many those are (Crow, "Summed-area tables for texture
 * mapping", SIGGRAPH 1984). Sums of whole numbers: exact, whatever the order.
 */
#include "sim/step/router_load.h"

#include "hwdb/hwdb.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

struct counts {
    const int64_t *rows;                    /* [layer][sequence][expert] */
    size_t stride;                          /* from one to the next */
    int n_layers, n_seqs, n_experts, batch; /* as of mw_router_sums */
};

static void take_sizes(const struct mw_scenario *s, struct counts *out)
{
    out->n_layers = mw_model_moe_layers(&s->model, s->model.n_layers);
    out->n_experts = s->model.moe.n_experts;
    out->batch = (int)s->workload.global_batch;
}

/* Those of an overlay, if they are of this scenario, as many as its sizes ask
 * for. */
static bool find_overlay(const struct mw_cost_ctx *ctx,
                         const struct mw_scenario *s, struct counts *out)
{
    const char *of = mw_hwdb_machine(ctx->db, "router_scenario");
    const struct mw_router_row *row;
    size_t n = mw_hwdb_router(ctx->db, &row);
    char hash[24];

    snprintf(hash, sizeof hash, "%016" PRIx64, s->hash);
    take_sizes(s, out);
    if (of == NULL || n == 0 || out->n_layers == 0 || strcmp(of, hash) != 0) {
        return false;
    }
    size_t each = (size_t)out->n_layers * (size_t)out->n_experts;

    out->rows = &row->rows;
    out->stride = sizeof *row / sizeof row->rows;
    out->n_seqs = (int)(n / each);
    return n % each == 0 && out->n_seqs >= out->batch &&
           out->n_seqs % out->batch == 0;
}

/* The scenario's own, which reading it has checked, or an overlay's. */
static bool find_counts(const struct mw_cost_ctx *ctx,
                        const struct mw_scenario *s, struct counts *out)
{
    if (s->router.rows == NULL) {
        return find_overlay(ctx, s, out);
    }
    take_sizes(s, out);
    out->rows = s->router.rows;
    out->stride = 1;
    out->n_seqs = s->router.n_seqs;
    return out->n_layers > 0;
}

/* A row of sums more: those of the sequence before and its own. */
static void add_sequence(const int64_t *rows, size_t stride, size_t n,
                         const int64_t *before, int64_t *out)
{
    int64_t sum = 0;

    for (size_t e = 0; e < n; e++) {
        sum += rows[e * stride];
        out[e + 1] = before[e + 1] + sum;
    }
}

bool mw_router_sums_init(struct mw_router_sums *out,
                         const struct mw_cost_ctx *ctx,
                         const struct mw_scenario *scenario)
{
    struct counts c;

    *out = (struct mw_router_sums){.below = NULL};
    if (scenario->model.moe.n_experts == 0 || !find_counts(ctx, scenario, &c)) {
        return false;
    }
    size_t n = (size_t)c.n_experts, row = n + 1;

    *out = (struct mw_router_sums){c.n_layers, c.n_seqs, c.n_experts, c.batch,
                                   NULL};
    out->below = mw_calloc((size_t)c.n_layers * ((size_t)c.n_seqs + 1) * row,
                           sizeof *out->below);
    int64_t *at = out->below;

    for (int l = 0; l < c.n_layers; l++, at += row) {
        for (int q = 0; q < c.n_seqs; q++, at += row) {
            add_sequence(c.rows, c.stride, n, at, at + row);
            c.rows += n * c.stride;
        }
    }
    return true;
}

void mw_router_sums_release(struct mw_router_sums *sums)
{
    mw_free(sums->below);
    *sums = (struct mw_router_sums){.below = NULL};
}

/* ---- the table -------------------------------------------------------------
 */
static bool is_at(const struct mw_router_row *row, int layer, int q, int e)
{
    return row->layer == layer && row->sequence == q && row->expert == e;
}

enum mw_status mw_router_check(const struct mw_cost_ctx *ctx,
                               const struct mw_scenario *scenario,
                               struct mw_err *err)
{
    const char *of = mw_hwdb_machine(ctx->db, "router_scenario");
    const char *dir = mw_hwdb_overlay_dir(ctx->db);
    const struct mw_model *model = &scenario->model;
    const struct mw_router_row *row;
    struct counts c;
    size_t n = mw_hwdb_router(ctx->db, &row);
    char hash[24];
    size_t i = 0;

    snprintf(hash, sizeof hash, "%016" PRIx64, scenario->hash);
    if (of == NULL || n == 0 || strcmp(of, hash) != 0) {
        return MW_OK;
    }
    if (!find_overlay(ctx, scenario, &c)) {
        return mw_fail(err, MW_EINPUT,
                       "%s/router.csv: %zu rows are not those of %d layers of "
                       "%d experts and whole steps of %lld sequences; "
                       "calibrate again",
                       dir, n, mw_model_moe_layers(model, model->n_layers),
                       model->moe.n_experts,
                       (long long)scenario->workload.global_batch);
    }
    for (int layer = 0; layer < model->n_layers; layer++) {
        if (!mw_model_layer_is_moe(model, layer)) {
            continue;
        }
        for (int q = 0; q < c.n_seqs; q++) {
            for (int e = 0; e < c.n_experts; e++) {
                if (!is_at(&row[i++], layer, q, e)) {
                    return mw_fail(err, MW_EINPUT,
                                   "%s/router.csv: row %zu is not of layer "
                                   "%d, sequence %d, expert %d; calibrate "
                                   "again",
                                   dir, i, layer, q, e);
                }
            }
        }
    }
    return MW_OK;
}
