/*
 * Remembered shapes of schedules: made once by the generator, then only its
 * placement and the activations held at the peak are kept (a list of hundreds
 * of micro-batches is megabytes). Where the number of micro-batches does not
 * matter, the shape with two micro-batches a stage stands for all: every
 * generator accepts it, if it accepts the stages and chunks at all.
 */
#include "sim/step/fast_int.h"

#include <string.h>

static size_t kind_index(const char *name)
{
    const struct mw_sched_kind *kind = mw_schedule_kind_find(name);
    size_t i = 0;

    while (mw_schedule_kind(i) != NULL && mw_schedule_kind(i) != kind) {
        i++;
    }
    return i;
}

static void keep_placement(const struct mw_schedule *s,
                           struct mw_fast_shape *shape)
{
    size_t n = (size_t)s->n_stages * (size_t)s->n_chunks;

    shape->n_chunks = s->n_chunks;
    shape->n_routes = s->n_routes;
    shape->n_parts = s->n_parts;
    shape->virtual_stage = mw_calloc(n, sizeof *shape->virtual_stage);
    shape->route = mw_calloc(n, sizeof *shape->route);
    memcpy(shape->virtual_stage, s->virtual_stage,
           n * sizeof *shape->virtual_stage);
    memcpy(shape->route, s->route, n * sizeof *shape->route);
    for (size_t i = 0; i < n; i++) {
        int device = (int)i / s->n_chunks;

        int from_end = s->route_len - 1 - s->virtual_stage[i];

        if (s->route[i] == 0 && s->virtual_stage[i] == 0) {
            shape->ends.first = device;
        }
        if (s->route[i] == 0 && from_end == 1) {
            shape->ends.ahead = device;
        }
        if (s->route[i] == 0 && from_end == 0) {
            shape->ends.last = device;
        }
    }
}

/* Peak in units of one chunk's activations of one micro-batch. */
static void keep_peaks(const struct mw_schedule *s, struct mw_fast_shape *shape)
{
    size_t n_virtual = (size_t)s->n_stages * (size_t)s->n_chunks;
    double *one = mw_calloc(n_virtual, sizeof *one);

    for (size_t k = 0; k < n_virtual; k++) {
        one[k] = 1;
    }
    shape->held = mw_calloc((size_t)s->n_stages, sizeof *shape->held);
    for (int d = 0; d < s->n_stages; d++) {
        shape->held[d] = mw_schedule_high_water(s, d, one);
    }
    mw_free(one);
}

/* What a shape is remembered by. */
struct shape_key {
    size_t kind;
    int n_stages, vpp, n_microbatches, group;
};

static struct mw_fast_shape *make_shape(const struct shape_key *key)
{
    int vpp = key->vpp, n_stages = key->n_stages;
    const struct mw_sched_kind *k = mw_schedule_kind(key->kind);
    struct mw_fast_shape *shape = mw_calloc(1, sizeof *shape);
    struct mw_schedule s;
    struct mw_err err = {0};
    struct mw_sched_args args = {.n_stages = n_stages,
                                 .n_microbatches = key->n_microbatches,
                                 .n_chunks =
                                     k->min_chunks > vpp ? k->min_chunks : vpp,
                                 .n_parts = 1,
                                 .group = key->group};

    *shape = (struct mw_fast_shape){.kind = key->kind,
                                    .n_stages = n_stages,
                                    .vpp = vpp,
                                    .n_microbatches = key->n_microbatches,
                                    .group = key->group,
                                    .is_split = k->is_split};
    shape->status = mw_schedule_make(k->name, &args, &s, &err);
    if (shape->status == MW_OK && s.route_len != n_stages * vpp) {
        shape->status = mw_fail(&err, MW_EUSAGE,
                                "schedule %s needs vpp %d, "
                                "not %d",
                                k->name, s.route_len / n_stages, vpp);
        mw_schedule_release(&s);
    }
    if (shape->status != MW_OK) {
        shape->text = mw_strdup(err.text);
        return shape;
    }
    keep_placement(&s, shape);
    keep_peaks(&s, shape);
    mw_schedule_release(&s);
    return shape;
}

static struct mw_fast_shape *find_shape(struct mw_fast *f,
                                        const struct shape_key *key)
{
    for (size_t i = 0; i < f->shapes.n; i++) {
        struct mw_fast_shape *s = f->shapes.v[i];

        if (s->kind == key->kind && s->n_stages == key->n_stages &&
            s->vpp == key->vpp && s->n_microbatches == key->n_microbatches &&
            s->group == key->group) {
            if (i > 0) { /* searches ask for the same ones again and again */
                f->shapes.v[i] = f->shapes.v[i - 1];
                f->shapes.v[i - 1] = s;
            }
            return s;
        }
    }
    struct mw_fast_shape *made = make_shape(key);

    mw_array_push(&f->shapes, made);
    return made;
}

const struct mw_fast_shape *mw_fast_shape_of(struct mw_fast *f,
                                             const struct mw_layout *layout,
                                             bool with_list)
{
    size_t kind = kind_index(layout->schedule);
    int m = mw_microbatches(layout, &f->scenario->workload);

    MW_ASSERT(mw_schedule_kind(kind) != NULL, "schedule %s", layout->schedule);
    struct shape_key key = {kind, layout->pp, layout->vpp, 2 * layout->pp, 0};

    if (!with_list) {
        struct mw_fast_shape *any = find_shape(f, &key);

        if (any->status == MW_OK) {
            return any;
        }
    }
    key.n_microbatches = m;
    key.group = layout->vpp_group;
    return find_shape(f, &key);
}

void mw_fast_shapes_free(struct mw_fast *f)
{
    for (size_t i = 0; i < f->shapes.n; i++) {
        struct mw_fast_shape *s = f->shapes.v[i];

        mw_free(s->text);
        mw_free(s->virtual_stage);
        mw_free(s->route);
        mw_free(s->held);
        mw_free(s);
    }
    mw_array_release(&f->shapes);
}
