/*
 * Tables of router counts: rows (tokens times top k) that the router of a layer
 * sends to an expert, of a sequence.
 *
 *   layer,sequence,expert,rows    as `calibrate` writes them: layers of experts
 *                                 by their number in the model, sequences
 *                                 numbered through whole steps
 *   expert,rows                   the same in every layer and sequence
 *
 * in any order of rows, each once. Left out: sequences of other lengths than
 * the scenario's (counts are shares, only their ratios matter).
 */
#include "sim/model/scenario_int.h"

#include "base/csv.h"
#include "base/file.h"

#include <inttypes.h>

enum { ROWS_MAX = 1 << 24, COUNT_MAX = 1 << 30 };

struct table {
    struct mw_csv csv;
    int layer, sequence, expert, rows; /* columns; layer may be absent */
    int n_seqs, n_experts;
    int *place; /* of the model's layers: which layer of experts, or -1 */
    int64_t *out;
    struct mw_err *err;
};

static enum mw_status find_columns(struct table *t)
{
    t->layer = mw_csv_col(&t->csv, "layer");
    t->sequence = mw_csv_col(&t->csv, "sequence");
    t->expert = mw_csv_col(&t->csv, "expert");
    t->rows = mw_csv_col(&t->csv, "rows");
    if (t->expert < 0 || t->rows < 0 || (t->layer < 0) != (t->sequence < 0) ||
        t->csv.n_cols != (t->layer < 0 ? 2 : 4)) {
        return mw_fail(t->err, MW_EINPUT,
                       "%s:1: the columns are not those of router counts; "
                       "layer,sequence,expert,rows or expert,rows",
                       t->csv.file);
    }
    return MW_OK;
}

/* A cell from 0 to most - 1. */
static enum mw_status read_index(const struct table *t, size_t row, int col,
                                 int64_t most, int64_t *out)
{
    enum mw_status st = MW_OK;

    *out = 0;
    if (col >= 0) {
        st = mw_csv_int_or(&t->csv, row, col, -1, out, t->err);
    }
    if (st == MW_OK && (*out < 0 || *out >= most)) {
        return mw_csv_fail(&t->csv, row, col, t->err,
                           "not a number from 0 to %" PRId64, most - 1);
    }
    return st;
}

static enum mw_status read_row(const struct table *t, size_t row, int n_layers)
{
    int64_t layer = 0, q, e, n;
    enum mw_status st = read_index(t, row, t->layer, n_layers, &layer);
    int place = t->layer < 0 ? 0 : t->place[layer];

    st = st != MW_OK ? st : read_index(t, row, t->sequence, t->n_seqs, &q);
    st = st != MW_OK ? st : read_index(t, row, t->expert, t->n_experts, &e);
    st = st != MW_OK ? st : read_index(t, row, t->rows, COUNT_MAX, &n);
    if (st != MW_OK) {
        return st;
    }
    if (place < 0) {
        return mw_csv_fail(&t->csv, row, t->layer, t->err,
                           "layer %" PRId64 " of the model has no experts",
                           layer);
    }
    int64_t *at = &t->out[((int64_t)place * t->n_seqs + q) * t->n_experts + e];

    if (*at >= 0) {
        return mw_csv_fail(&t->csv, row, t->expert, t->err,
                           "layer, sequence and expert stand here again; give "
                           "each once");
    }
    *at = n;
    return MW_OK;
}

static void number_layers(struct table *t, const struct mw_model *model,
                          struct mw_arena *arena)
{
    int n = 0;

    t->place = mw_arena_alloc(arena, (size_t)model->n_layers, sizeof *t->place);
    for (int i = 0; i < model->n_layers; i++) {
        t->place[i] = mw_model_layer_is_moe(model, i) ? n++ : -1;
    }
}

/* Sequences of the table: those of whole steps, or all alike. */
static enum mw_status count_sequences(struct table *t, int n_layers,
                                      int64_t batch)
{
    size_t each = (size_t)n_layers * (size_t)t->n_experts;
    size_t n = t->csv.n_rows;

    if (t->layer < 0 && n == (size_t)t->n_experts) {
        t->n_seqs = (int)batch;
    } else if (t->layer >= 0 && n > 0 && n % each == 0 &&
               n / each % (size_t)batch == 0) {
        t->n_seqs = (int)(n / each);
    } else {
        return mw_fail(t->err, MW_EINPUT,
                       "%s: %zu rows are not those of %d layers of %d experts "
                       "and whole steps of %" PRId64 " sequences; give each "
                       "once, or columns expert,rows with %d rows",
                       t->csv.file, n, n_layers, t->n_experts, batch,
                       t->n_experts);
    }
    if ((double)each * t->n_seqs > ROWS_MAX) {
        return mw_fail(t->err, MW_EINPUT,
                       "%s: counts of %d layers, %d sequences and %d experts; "
                       "at most %d are read",
                       t->csv.file, n_layers, t->n_seqs, t->n_experts,
                       ROWS_MAX);
    }
    return MW_OK;
}

/* The first layer and sequence, for all others. */
static void spread(const struct table *t, size_t n_each)
{
    size_t n = (size_t)t->n_experts;

    for (size_t i = n; t->layer < 0 && i < n_each * (size_t)t->n_seqs; i++) {
        t->out[i] = t->out[i - n];
    }
}

enum mw_status mw_router_counts_read(const char *path, const char *folder,
                                     const struct mw_model *model,
                                     int64_t global_batch,
                                     struct mw_arena *arena,
                                     struct mw_router_counts *out,
                                     struct mw_err *err)
{
    struct table t = {.n_experts = model->moe.n_experts, .err = err};
    int n_layers = mw_model_moe_layers(model, model->n_layers);
    const char *file =
        path[0] == '/' ? path : mw_arena_printf(arena, "%s/%s", folder, path);
    enum mw_status st = mw_csv_load(file, arena, &t.csv, err);

    st = st != MW_OK ? st : find_columns(&t);
    st = st != MW_OK ? st : count_sequences(&t, n_layers, global_batch);
    if (st != MW_OK) {
        return st;
    }
    size_t n_each = (size_t)n_layers * (size_t)t.n_experts;

    number_layers(&t, model, arena);
    t.out = mw_arena_alloc(arena, n_each * (size_t)t.n_seqs, sizeof *t.out);
    for (size_t i = 0; i < n_each * (size_t)t.n_seqs; i++) {
        t.out[i] = -1;
    }
    for (size_t row = 0; st == MW_OK && row < t.csv.n_rows; row++) {
        st = read_row(&t, row, model->n_layers);
    }
    if (st == MW_OK) {
        spread(&t, n_each);
        *out = (struct mw_router_counts){
            .file = file, .rows = t.out, .n_seqs = t.n_seqs};
    }
    return st;
}

uint64_t mw_router_counts_hash(uint64_t h,
                               const struct mw_router_counts *counts,
                               const struct mw_model *model)
{
    size_t n = (size_t)mw_model_moe_layers(model, model->n_layers) *
               (size_t)counts->n_seqs * (size_t)model->moe.n_experts;

    for (size_t i = 0; i < n; i++) {
        uint32_t v = (uint32_t)counts->rows[i];
        unsigned char bytes[] = {(unsigned char)v, (unsigned char)(v >> 8),
                                 (unsigned char)(v >> 16),
                                 (unsigned char)(v >> 24)};

        h = mw_hash64(h, bytes, sizeof bytes);
    }
    return h;
}
