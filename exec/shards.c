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

int mw_shards_sharers(const struct mw_job *job, int stage, bool is_expert)
{
    const struct mw_layout *l = &job->layout;
    int n = mw_layout_shard_ways(l) * l->cp;
    if (is_expert) {
        n = n * l->tp / (l->ep * l->etp);
    }
    return mw_job_twin_stage(job, stage) == stage ? n : 2 * n;
}

/* ---- units -------------------------------------------------------------- */
/* A kind of unit: of experts or not, frozen or not. */
struct kind {
    bool is_expert, is_frozen;
};

/* Layers that are gathered at once with this one: the virtual stage's in sets
 * of fsdp_unit. Ends of the model are by themselves. */
struct span {
    int first, last;
};

static struct span span_of(const struct mw_job *job, int layer)
{
    int begin = 0, k = 0, size = job->layout.fsdp_unit;
    if (layer < 0 || layer >= job->model->n_layers || size == 1 ||
        job->layout.zero < 3) {
        return (struct span){layer, layer};
    }
    while (layer >= begin + job->layers[k]) {
        begin += job->layers[k++];
    }
    int end = begin + job->layers[k];
    int first = begin + (layer - begin) / size * size;
    return (struct span){first, (first + size < end ? first + size : end) - 1};
}

static void open_unit(struct mw_shards *shards, struct span layers,
                      struct kind kind)
{
    struct mw_unit u = {.offset = shards->n_total,
                        .stored = shards->n_stored,
                        .layer = layers.first,
                        .last = layers.last,
                        .is_expert = kind.is_expert,
                        .is_frozen = kind.is_frozen};
    for (size_t i = 0; i < shards->units.n; i++) {
        const struct mw_unit *before = &shards->units.v[i];
        u.place += before->layer == u.layer ? before->n : 0;
    }
    mw_array_push(&shards->units, u);
}

static struct mw_unit *last_unit(const struct mw_shards *shards)
{
    return &shards->units.v[shards->units.n - 1];
}

/* Pads the last unit. */
static void close_unit(struct mw_shards *shards, const struct mw_job *job,
                       int stage)
{
    struct mw_unit *u = last_unit(shards);
    size_t ways = (size_t)mw_shards_sharers(job, stage, u->is_expert);
    size_t n = shards->n_total - u->offset, pad = 16 * ways;
    u->n = (n + pad - 1) / pad * pad;
    shards->n_total = u->offset + u->n;
    shards->n_stored = u->stored + u->n / ways;
}

/* ---- slices ------------------------------------------------------------- */
/* Where one rank is along the axes that may split a tensor. */
struct place {
    int tp, n_tp, ep, n_ep; /* of experts: tp is etp */
};

static struct place place_of(const struct mw_param *p,
                             const struct mw_layout *l, struct mw_coord at)
{
    int in_stage = (at.dp * l->cp + at.cp) * l->tp + at.tp;
    if (p->shard != MW_SHARD_EXPERT) {
        return (struct place){at.tp, l->tp, 0, 1};
    }
    return (struct place){in_stage % l->etp, l->etp, in_stage / l->etp % l->ep,
                          l->ep};
}

static void add_slice(struct mw_shards *shards, const struct mw_layout *layout,
                      int id, struct mw_coord at, bool is_tied)
{
    const struct mw_param *p = &shards->params.v[id];
    struct place w = place_of(p, layout, at);
    enum mw_shard axis =
        p->shard == MW_SHARD_EXPERT ? p->expert_shard : p->shard;
    int64_t rows_ways = axis == MW_SHARD_ROWS ? w.n_tp : 1;
    int64_t cols_ways = axis == MW_SHARD_COLS ? w.n_tp : 1;
    struct mw_slice s = {.param = p,
                         .id = id,
                         .is_tied = is_tied,
                         .is_frozen = (size_t)id < shards->n_frozen_params,
                         .rows = p->rows / rows_ways,
                         .cols = p->cols / cols_ways,
                         .n_outer = p->outer * p->n_copies / w.n_ep,
                         .offset = shards->n_total,
                         .unit = (int)shards->units.n - 1};
    s.first_row = rows_ways > 1 ? s.rows * w.tp : 0;
    s.first_col = cols_ways > 1 ? s.cols * w.tp : 0;
    s.first_outer = s.n_outer * w.ep;
    s.n = (size_t)(s.n_outer * s.rows * s.cols);
    last_unit(shards)->n_used += s.n;
    /* Slices begin on cache lines: 16 floats. */
    shards->n_total += (s.n + 15) / 16 * 16;
    mw_array_push(&shards->slices, s);
}

static bool is_of_kind(const struct mw_shards *shards, size_t id, struct kind k)
{
    return (shards->params.v[id].shard == MW_SHARD_EXPERT) == k.is_expert &&
           (id < shards->n_frozen_params) == k.is_frozen;
}

static bool is_embedding(const struct mw_param *p)
{
    return strcmp(p->name, "embed.weight") == 0;
}

/* Does a unit end before this tensor? From ZeRO-2 on, before another set of
 * layers; and a matrix that is tied has a unit of its own, so that both copies
 * fall into shares alike and their gradients can be added share by share. */
static bool begins_unit(const struct mw_shards *shards,
                        const struct mw_job *job, const struct mw_param *p)
{
    const struct mw_slice *before = &shards->slices.v[shards->slices.n - 1];
    return job->layout.zero >= 2 &&
           (span_of(job, p->layer).first != last_unit(shards)->layer ||
            (job->model->tied && is_embedding(before->param)));
}

/* The stage's tensors of a kind; returns whether there are any. The last unit
 * is left open. */
static bool add_stage(struct mw_shards *shards, const struct mw_job *job,
                      struct mw_coord at, struct kind kind)
{
    bool is_open = false;
    for (size_t i = 0; i < shards->params.n; i++) {
        const struct mw_param *p = &shards->params.v[i];
        if (!is_of_kind(shards, i, kind) ||
            !holds_layer(job, at.pp, p->layer)) {
            continue;
        }
        if (is_open && begins_unit(shards, job, p)) {
            close_unit(shards, job, at.pp);
            is_open = false;
        }
        if (!is_open) {
            open_unit(shards, span_of(job, p->layer), kind);
        }
        is_open = true;
        add_slice(shards, &job->layout, (int)i, at, false);
    }
    return is_open;
}

/* The table of the model and, behind it, of the adapters. */
static void make_params(struct mw_shards *shards, const struct mw_job *job)
{
    const struct mw_workload *w = job->workload;
    struct mw_params adapters = {0};
    mw_model_params(job->model, &shards->params);
    if (w->lora_rank == 0) {
        return;
    }
    mw_lora_params(&shards->params, w->lora_rank, w->lora_targets, &adapters);
    shards->n_frozen_params = shards->params.n;
    for (size_t i = 0; i < adapters.n; i++) {
        mw_array_push(&shards->params, adapters.v[i]);
    }
    mw_array_release(&adapters);
}

static int find_embedding(const struct mw_shards *shards)
{
    for (size_t i = 0; i < shards->params.n; i++) {
        if (is_embedding(&shards->params.v[i])) {
            return (int)i;
        }
    }
    return -1;
}

/* The head's copy of the embedding, behind the tensors of its kind. */
static void add_tied(struct mw_shards *shards, const struct mw_job *job, int id,
                     struct mw_coord at, struct kind kind)
{
    if (job->layout.zero >= 2) {
        close_unit(shards, job, at.pp);
        open_unit(shards, span_of(job, job->model->n_layers), kind);
    }
    add_slice(shards, &job->layout, id, at, true);
}

void mw_shards_make(struct mw_shards *shards, const struct mw_job *job,
                    struct mw_coord at)
{
    *shards = (struct mw_shards){0};
    static const struct kind kinds[] = {
        {false, false}, {true, false}, {false, true}, {true, true}};
    make_params(shards, job);
    int embedding = find_embedding(shards);
    bool is_last = job->model->tied && embedding >= 0 &&
                   holds_stage(job, at.pp, job->n_virtual - 1);
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        bool is_open = add_stage(shards, job, at, kinds[i]);
        if (is_last && is_of_kind(shards, (size_t)embedding, kinds[i])) {
            add_tied(shards, job, embedding, at, kinds[i]);
        }
        if (is_open) {
            close_unit(shards, job, at.pp);
        }
        if (!kinds[i].is_frozen) {
            shards->n_learning = shards->n_total;
            shards->n_learning_stored = shards->n_stored;
        }
    }
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
           strcmp(p->name, "moe.fc2.weight") == 0 ||
           strcmp(p->name, "moe.shared.fc2.weight") == 0;
}

static bool ends_with(const char *name, const char *end)
{
    size_t n = strlen(name), n_end = strlen(end);
    return n >= n_end && strcmp(name + n - n_end, end) == 0;
}

static bool is_norm_weight(const struct mw_param *p)
{
    return p->is_norm_or_bias && ends_with(p->name, "norm.weight");
}

/* Half the width of the uniform distribution of a matrix. A uniform variable on
 * [-a, a] has deviation a / sqrt(3). */
static double half_width(const struct mw_param *p, const struct mw_model *m)
{
    if (ends_with(p->name, ".lora_a")) {
        return 1.0 / sqrt((double)p->cols);
    }
    double deviation = ends_branch(p) ? 0.02 / sqrt(2.0 * m->n_layers) : 0.02;
    return ends_with(p->name, ".lora_b") ? 0.0 : deviation * sqrt(3.0);
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
    double a = half_width(s->param, m);
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
