/*
 * The schedule object: placement of virtual stages on devices, lists packed
 * one after another, and the builder that generators and the reader fill.
 *
 * Placements for p devices and v chunks a device, virtual stage k:
 *   loop           device k mod p, chunk k / p
 *   v              r = k mod 2p; device r < p ? r : 2p-1-r
 *   bidirectional  route 0: device k, chunk 0; route 1: device p-1-k, chunk 1;
 *                  all on one device: chunks of route 0, then those of route 1
 */
#include "sim/pipe/schedule_int.h"

#include <string.h>

const char *mw_placement_name(enum mw_placement placement)
{
    static const char *const name[] = {"loop", "v", "bidirectional"};
    return name[placement];
}

/* Device and local chunk of virtual stage k on route r. */
static void place(const struct mw_schedule *s, int r, int k, int *device,
                  int *chunk)
{
    int p = s->n_stages, w;

    switch (s->placement) {
    case MW_PLACE_LOOP:
        *device = k % p;
        *chunk = k / p;
        return;
    case MW_PLACE_V:
        w = k % (2 * p);
        *device = w < p ? w : 2 * p - 1 - w;
        *chunk = k / p;
        return;
    case MW_PLACE_BIDIRECTIONAL:
        *device = p == 1 ? 0 : r == 0 ? k : p - 1 - k;
        *chunk = p == 1 ? r * s->route_len + k : r;
        return;
    }
}

static void place_all(struct mw_schedule *s)
{
    int r, k, device = 0, chunk = 0;
    size_t n = (size_t)s->n_stages * (size_t)s->n_chunks, i;

    s->device = mw_calloc(n, sizeof *s->device);
    s->chunk = mw_calloc(n, sizeof *s->chunk);
    s->virtual_stage = mw_calloc(n, sizeof *s->virtual_stage);
    s->route = mw_calloc(n, sizeof *s->route);
    for (r = 0; r < s->n_routes; r++) {
        for (k = 0; k < s->route_len; k++) {
            place(s, r, k, &device, &chunk);
            i = (size_t)r * (size_t)s->route_len + (size_t)k;
            s->device[i] = (int16_t)device;
            s->chunk[i] = (int16_t)chunk;
            i = (size_t)device * (size_t)s->n_chunks + (size_t)chunk;
            s->virtual_stage[i] = (int16_t)k;
            s->route[i] = (int16_t)r;
        }
    }
}

void mw_sched_begin(struct mw_sched_build *b,
                    const struct mw_sched_shape *shape)
{
    struct mw_schedule *s = &b->s;

    memset(b, 0, sizeof *b);
    s->name = shape->name;
    s->placement = shape->placement;
    s->n_stages = shape->n_stages;
    s->n_microbatches = shape->n_microbatches;
    s->n_chunks = shape->n_chunks;
    s->n_routes = shape->placement == MW_PLACE_BIDIRECTIONAL ? 2 : 1;
    s->n_parts = shape->n_parts > 0 ? shape->n_parts : 1;
    s->route_len = s->n_stages * s->n_chunks / s->n_routes;
    place_all(s);
    b->list = mw_calloc((size_t)s->n_stages, sizeof *b->list);
}

void mw_sched_push(struct mw_sched_build *b, int device, enum mw_pass pass,
                   int item, int chunk)
{
    struct mw_slot slot = {item, (int16_t)chunk, (uint8_t)pass, 0};

    mw_array_push(&b->list[device], slot);
}

void mw_sched_pair(struct mw_sched_build *b, int device)
{
    struct mw_sched_list *l = &b->list[device];

    MW_ASSERT(l->n > 0, "device %d has no slot to pair", device);
    l->v[l->n - 1].flags |= MW_SLOT_PAIR;
}

void mw_sched_end(struct mw_sched_build *b, struct mw_schedule *out)
{
    struct mw_schedule *s = &b->s;
    size_t n = 0;
    int d;

    s->first = mw_calloc((size_t)s->n_stages + 1, sizeof *s->first);
    for (d = 0; d < s->n_stages; d++) {
        s->first[d] = (uint32_t)n;
        n += b->list[d].n;
    }
    s->first[s->n_stages] = (uint32_t)n;
    s->slot = mw_calloc(n > 0 ? n : 1, sizeof *s->slot);
    for (d = 0; d < s->n_stages; d++) {
        if (b->list[d].n > 0) {
            memcpy(s->slot + s->first[d], b->list[d].v,
                   b->list[d].n * sizeof *s->slot);
        }
    }
    *out = *s;
    memset(s, 0, sizeof *s);
    for (d = 0; d < out->n_stages; d++) {
        mw_array_release(&b->list[d]);
    }
    mw_free(b->list);
    b->list = NULL;
}

void mw_sched_drop(struct mw_sched_build *b)
{
    int d;

    for (d = 0; b->list != NULL && d < b->s.n_stages; d++) {
        mw_array_release(&b->list[d]);
    }
    mw_free(b->list);
    b->list = NULL;
    mw_schedule_release(&b->s);
}

void mw_schedule_release(struct mw_schedule *s)
{
    mw_free(s->device);
    mw_free(s->chunk);
    mw_free(s->virtual_stage);
    mw_free(s->route);
    mw_free(s->first);
    mw_free(s->slot);
    memset(s, 0, sizeof *s);
}
