/*
 * Slices of the parameter table; see shards.h.
 */
#include "exec/shards.h"

#include "base/rand.h"

#include <math.h>
#include <string.h>

/* On any route. */
static bool holds_stage(const struct mw_job *job, int stage, int k)
{
    const struct mw_schedule *s = job->schedule;
    for (int r = 0; r < s->n_routes; r++) {
        if (s->device[r * s->route_len + k] == stage) {
            return true;
        }
    }
    return false;
}

/* Does pipeline stage `stage` hold a parameter of this layer index? */
static bool holds_layer(const struct mw_job *job, int stage, int layer)
{
    if (layer < 0) {
        return holds_stage(job, stage, 0);
    }
    if (layer >= job->model->n_layers) {
        return holds_stage(job, stage, job->n_virtual - 1);
    }
    int first = 0;
    for (int k = 0; k < job->n_virtual; k++) {
        if (layer >= first && layer < first + job->layers[k]) {
            return holds_stage(job, stage, k);
        }
        first += job->layers[k];
    }
    return false;
}

/* Ranks that share a gradient: replicas, on two routes of both holders. */
static size_t data_ranks(const struct mw_job *job)
{
    return (size_t)job->layout.dp * (size_t)job->layout.cp *
           (size_t)job->schedule->n_routes;
}

/* Pads the open unit and begins the next one. */
static void close_unit(struct mw_shards *shards, const struct mw_job *job)
{
    size_t pad = 16 * data_ranks(job);
    size_t first = shards->units.n == 0
                       ? 0
                       : shards->units.v[shards->units.n - 1].offset +
                             shards->units.v[shards->units.n - 1].n;
    struct mw_unit u = {first, (shards->n_total - first + pad - 1) / pad * pad};
    if (u.n > 0) {
        mw_array_push(&shards->units, u);
        shards->n_total = u.offset + u.n;
    }
}

/* Own copies of a tensor: all, or of experts those of this rank's place in the
 * EP group. */
static void set_copies(struct mw_slice *s, const struct mw_layout *l,
                       struct mw_coord at)
{
    const struct mw_param *p = s->param;
    int ways = p->shard == MW_SHARD_EXPERT ? l->ep : 1;
    int place = ((at.dp * l->cp + at.cp) * l->tp + at.tp) % ways;
    s->n_outer = p->outer * p->n_copies / ways;
    s->first_outer = s->n_outer * place;
}

static void add_slice(struct mw_shards *shards, const struct mw_layout *layout,
                      int id, struct mw_coord at, bool is_tied)
{
    int tp_rank = at.tp;
    const struct mw_param *p = &shards->params.v[id];
    int64_t rows_ways = p->shard == MW_SHARD_ROWS ? layout->tp : 1;
    int64_t cols_ways = p->shard == MW_SHARD_COLS ? layout->tp : 1;
    struct mw_slice s = {.param = p,
                         .id = id,
                         .is_tied = is_tied,
                         .rows = p->rows / rows_ways,
                         .cols = p->cols / cols_ways,
                         .offset = shards->n_total,
                         .unit = (int)shards->units.n};
    s.first_row = rows_ways > 1 ? s.rows * tp_rank : 0;
    s.first_col = cols_ways > 1 ? s.cols * tp_rank : 0;
    set_copies(&s, layout, at);
    s.n = (size_t)(s.n_outer * s.rows * s.cols);
    /* Slices begin on cache lines: 16 floats. */
    shards->n_total += (s.n + 15) / 16 * 16;
    mw_array_push(&shards->slices, s);
}

/* The stage's slices; with `experts` those of experts alone, or without. */
static void add_stage(struct mw_shards *shards, const struct mw_job *job,
                      struct mw_coord at, bool experts)
{
    const struct mw_layout *l = &job->layout;
    int layer = -2;
    for (size_t i = 0; i < shards->params.n; i++) {
        const struct mw_param *p = &shards->params.v[i];
        bool is_apart = l->ep > 1 && p->shard == MW_SHARD_EXPERT;
        if (is_apart != experts || !holds_layer(job, at.pp, p->layer)) {
            continue;
        }
        if (l->zero >= 2 && p->layer != layer) {
            close_unit(shards, job);
        }
        layer = p->layer;
        add_slice(shards, l, (int)i, at, false);
    }
}

static int find_embedding(const struct mw_shards *shards)
{
    for (size_t i = 0; i < shards->params.n; i++) {
        if (strcmp(shards->params.v[i].name, "embed.weight") == 0) {
            return (int)i;
        }
    }
    return -1;
}

void mw_shards_make(struct mw_shards *shards, const struct mw_job *job,
                    struct mw_coord at)
{
    *shards = (struct mw_shards){0};
    mw_model_params(job->model, &shards->params);
    int embedding = find_embedding(shards);
    add_stage(shards, job, at, false);
    if (job->model->tied && embedding >= 0 &&
        holds_stage(job, at.pp, job->n_virtual - 1)) {
        add_slice(shards, &job->layout, embedding, at, true);
    }
    shards->n_dense = shards->n_total;
    add_stage(shards, job, at, true);
    close_unit(shards, job);
}

void mw_shards_release(struct mw_shards *shards)
{
    mw_array_release(&shards->params);
    mw_array_release(&shards->slices);
    mw_array_release(&shards->units);
}

const struct mw_slice *mw_shards_find(const struct mw_shards *shards,
                                      const char *name, int layer)
{
    for (size_t i = 0; i < shards->slices.n; i++) {
        const struct mw_slice *s = &shards->slices.v[i];
        if (!s->is_tied && s->param->layer == layer &&
            strcmp(s->param->name, name) == 0) {
            return s;
        }
    }
    return NULL;
}

const struct mw_slice *mw_shards_find_tied(const struct mw_shards *shards)
{
    for (size_t i = 0; i < shards->slices.n; i++) {
        if (shards->slices.v[i].is_tied) {
            return &shards->slices.v[i];
        }
    }
    return NULL;
}

uint64_t mw_slice_whole_index(const struct mw_slice *s, size_t i)
{
    uint64_t cols = (uint64_t)s->cols, rows = (uint64_t)s->rows;
    uint64_t col = i % cols, row = i / cols % rows, outer = i / cols / rows;
    uint64_t whole_row =
        (outer + (uint64_t)s->first_outer) * (uint64_t)s->param->rows +
        (uint64_t)s->first_row + row;
    return whole_row * (uint64_t)s->param->cols + (uint64_t)s->first_col + col;
}

static bool ends_branch(const struct mw_param *p)
{
    return strcmp(p->name, "attn.proj.weight") == 0 ||
           strcmp(p->name, "mlp.fc2.weight") == 0 ||
           strcmp(p->name, "moe.fc2.weight") == 0;
}

static bool is_norm_weight(const struct mw_param *p)
{
    size_t n = strlen(p->name);
    return p->is_norm_or_bias && n > 11 &&
           strcmp(p->name + n - 11, "norm.weight") == 0;
}

static void fill_slice(const struct mw_slice *s, const struct mw_model *m,
                       uint64_t seed, float *w)
{
    if (s->param->is_norm_or_bias) {
        float value = is_norm_weight(s->param) ? 1.0f : 0.0f;
        for (size_t i = 0; i < s->n; i++) {
            w[i] = value;
        }
        return;
    }
    double deviation = 0.02;
    if (ends_branch(s->param)) {
        deviation /= sqrt(2.0 * m->n_layers);
    }
    /* A uniform variable on [-a, a] has deviation a / sqrt(3). */
    double a = deviation * sqrt(3.0);
    for (size_t i = 0; i < s->n; i++) {
        double u =
            mw_rand_unit(seed, (uint64_t)s->id, mw_slice_whole_index(s, i));
        w[i] = (float)(a * (2.0 * u - 1.0));
    }
}

void mw_shards_fill(const struct mw_shards *shards, const struct mw_model *m,
                    uint64_t seed, float *w)
{
    for (size_t i = 0; i < shards->slices.n; i++) {
        const struct mw_slice *s = &shards->slices.v[i];
        fill_slice(s, m, seed, w + s->offset);
    }
}
