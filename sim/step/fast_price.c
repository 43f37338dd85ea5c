/*
 * Remembered prices of units. The key is everything that mw_step_price_units
 * reads of a layout: the sizes that a rank computes with, and how its groups
 * lie on the machine (which stands for pipeline depth, replicas and rank
 * order). Gradient groups matter to units under ZeRO-2 and -3 alone.
 */
#include "sim/step/fast_int.h"

#include "sim/step/shared_experts.h"

#include <assert.h>
#include <string.h>

enum { FIRST_SLOTS = 256 };

enum mw_status mw_fast_check(const struct mw_scenario *scenario,
                             const struct mw_cost_ctx *ctx, struct mw_err *err)
{
    return mw_step_check_rates(scenario, ctx, err);
}

struct mw_fast *mw_fast_new(const struct mw_scenario *scenario,
                            const struct mw_cost_ctx *ctx)
{
    struct mw_fast *f = mw_calloc(1, sizeof *f);

    f->scenario = scenario;
    f->ctx = ctx;
    f->n_slots = FIRST_SLOTS;
    f->slot = mw_calloc(f->n_slots, sizeof *f->slot);
    return f;
}

void mw_fast_free(struct mw_fast *f)
{
    if (f == NULL) {
        return;
    }
    for (size_t i = 0; i < f->n_slots; i++) {
        mw_free(f->slot[i]);
    }
    mw_free(f->slot);
    mw_store_release(&f->units);
    mw_store_release(&f->sizes);
    mw_store_release(&f->groups);
    mw_store_release(&f->grads);
    mw_fast_loads_free(f);
    mw_free(f->frame.vstage);
    mw_free(f->frame.tail);
    mw_free(f->frame.units);
    mw_free(f->before);
    mw_fast_shapes_free(f);
    mw_free(f);
}

static bool same_place(const struct mw_layout *a, const struct mw_layout *b)
{
    return a->tp == b->tp && a->cp == b->cp && a->pp == b->pp &&
           a->dp == b->dp && a->dp_shard == b->dp_shard &&
           a->cp_inner == b->cp_inner && a->ep == b->ep && a->etp == b->etp &&
           a->nodes.n == 0 && b->nodes.n == 0 &&
           (a->order == b->order || strcmp(a->order, b->order) == 0);
}

/* Layouts come in runs whose groups stay. */
static const struct mw_unit_groups *keep_groups(struct mw_fast *f)
{
    const struct mw_step_price *p = &f->frame.price;
    struct mw_unit_groups g = {p->group[MW_DIM_TP], p->group[MW_DIM_CP],
                               p->cp_inner_group, p->group[MW_DIM_EP],
                               p->group[MW_DIM_ETP]};

    if (f->last != NULL && memcmp(f->last->key.groups, &g, sizeof g) == 0) {
        return f->last->key.groups;
    }
    return mw_store_keep(&f->groups, &g, sizeof g);
}

static const struct mw_grad_groups *keep_grads(struct mw_fast *f)
{
    const struct mw_step_price *p = &f->frame.price;
    struct mw_grad_groups g = {p->grad_group, p->expert_group,
                               p->replica_group};

    if (f->last != NULL && f->last->key.grads != NULL &&
        memcmp(f->last->key.grads, &g, sizeof g) == 0) {
        return f->last->key.grads;
    }
    return mw_store_keep(&f->grads, &g, sizeof g);
}

static void set_key(struct mw_fast *f, const struct mw_layout *l,
                    struct mw_fast_key *key)
{
    bool is_sharded = l->zero >= 2;

    memset(key, 0, sizeof *key); /* groups that do not matter stay zero */
    key->tp = l->tp;
    key->sp = l->sp;
    key->cp = l->cp;
    key->cp_form = (int)l->cp_form;
    key->router = f->frame.price.router;
    key->cp_inner = l->cp_inner > 1 ? l->cp_inner : 0;
    key->ep = l->ep;
    key->etp = l->etp;
    key->micro_batch = l->micro_batch;
    key->recompute = (int)l->recompute;
    key->recompute_modules = mw_layout_modules(l);
    key->recompute_layers = mw_layout_keeps_layers(l);
    key->zero = is_sharded ? l->zero : 0;
    key->overlap_off = l->overlap_off;
    key->cuda_graph = (int)l->cuda_graph;
    key->dispatcher = (int)l->dispatcher;
    key->shared_overlap =
        l->overlap_shared_experts ? 1 + mw_step_splits_backward(l) : 0;
    key->mtp_ahead = l->mtp_ahead;
    key->dtype = l->dtype;
    key->grad_dtype = l->grad_dtype;
    key->states = l->main_params | l->exp_avg << 8 | l->exp_avg_sq << 16;
    key->offload_nvme = (int)l->offload_nvme;
    key->offload_optimizer = l->offload_optimizer;
    key->offload_weights = l->offload_weights;
    key->offload_activations = l->offload_activations;
    key->groups = keep_groups(f);
    if (is_sharded) {
        key->grads = keep_grads(f);
        key->reshard = l->reshard;
        key->fsdp_unit = mw_layout_wraps(l) ? l->fsdp_unit : 1;
        key->fsdp_prefetch = mw_layout_wraps(l) ? l->fsdp_prefetch : -1;
        key->grad_compression = (int)l->grad_compression;
        key->n_copies = f->frame.price.n_copies;
        key->has_tied_copy = f->frame.price.has_tied_copy;
    }
}

/* The slot that holds the key, or the empty one where it belongs. */
static struct mw_fast_price **find_slot(struct mw_fast *f,
                                        const struct mw_fast_key *key)
{
    size_t i = mw_fast_hash(key, sizeof *key);

    static_assert(sizeof *key % sizeof(uint64_t) == 0, "whole words");
    for (;; i++) {
        struct mw_fast_price **slot = &f->slot[i & (f->n_slots - 1)];

        if (*slot == NULL || memcmp(&(*slot)->key, key, sizeof *key) == 0) {
            return slot;
        }
    }
}

static void grow(struct mw_fast *f)
{
    struct mw_fast_price **old = f->slot;
    size_t n_old = f->n_slots;

    f->n_slots *= 2;
    f->slot = mw_calloc(f->n_slots, sizeof *f->slot);
    for (size_t i = 0; i < n_old; i++) {
        if (old[i] != NULL) {
            *find_slot(f, &old[i]->key) = old[i];
        }
    }
    mw_free(old);
}

static bool is_all_zero(const void *p, size_t n)
{
    const unsigned char *byte = p;

    for (size_t i = 0; i < n; i++) {
        if (byte[i] != 0) {
            return false;
        }
    }
    return true;
}

static const struct mw_fast_unit *
keep_unit(struct mw_fast *f, const struct mw_step_price *p, int unit)
{
    struct mw_fast_unit u;

    memset(&u, 0, sizeof u);
    u.unit = unit;
    u.size = mw_store_keep(&f->sizes, &p->size[unit], sizeof *u.size);
    for (int phase = 0; phase < MW_PHASE_COUNT; phase++) {
        const struct mw_phase_cost *c = &p->cost[unit].phase[phase];

        memcpy(u.s[phase], c->s, sizeof u.s[phase]);
        u.host_s[phase] = c->host_s;
        u.matrix_s[phase] = c->matrix_s;
    }
    return mw_store_keep(&f->units, &u, sizeof u);
}

static struct mw_fast_price *add_price(struct mw_fast *f,
                                       const struct mw_fast_key *key)
{
    struct mw_step_price whole;
    struct mw_fast_price *made;
    int used[MW_UNIT_COUNT], n = 0;

    if (2 * (f->n_prices + 1) > f->n_slots) {
        grow(f);
    }
    mw_step_price_begin_under(&whole, f->scenario, &f->layout, f->ctx,
                              &f->frame.price.router);
    const struct mw_step_groups groups = mw_step_groups_of(&f->frame.price);

    mw_step_use_groups(&whole, &groups);
    mw_step_price_units(&whole, NULL);
    for (int unit = 0; unit < MW_UNIT_COUNT; unit++) {
        if (!is_all_zero(&whole.cost[unit], sizeof whole.cost[unit]) ||
            !is_all_zero(&whole.size[unit], sizeof whole.size[unit])) {
            used[n++] = unit;
        }
    }
    made = mw_calloc(1, sizeof *made + (size_t)n * sizeof made->unit[0]);
    made->key = *key;
    made->fetch_s = whole.fetch_s;
    made->flush_s = whole.flush_s;
    made->n_units = n;
    for (int i = 0; i < n; i++) {
        made->unit[i] = keep_unit(f, &whole, used[i]);
    }
    *find_slot(f, key) = made;
    f->n_prices++;
    return made;
}

/* Makes f->frame.price say what `known` does. */
static void recall(struct mw_fast *f, const struct mw_fast_price *known)
{
    struct mw_step_price *p = &f->frame.price;

    if (f->last == NULL || f->last->n_units > known->n_units) {
        memset(p->cost, 0, sizeof p->cost);
        memset(p->size, 0, sizeof p->size);
    }
    for (int i = 0; i < known->n_units; i++) {
        const struct mw_fast_unit *u = known->unit[i];

        p->size[u->unit] = *u->size;
        for (int phase = 0; phase < MW_PHASE_COUNT; phase++) {
            struct mw_phase_cost *c = &p->cost[u->unit].phase[phase];

            memcpy(c->s, u->s[phase], sizeof c->s);
            c->host_s = u->host_s[phase];
            c->matrix_s = u->matrix_s[phase];
        }
    }
    p->fetch_s = known->fetch_s;
    p->flush_s = known->flush_s;
    f->last = known;
}

/* What the price's groups and f->layout make of units. */
static const struct mw_step_price *look_up(struct mw_fast *f)
{
    struct mw_fast_key key;

    set_key(f, &f->layout, &key);
    /* Layouts come in runs that differ in what prices do not depend on. */
    if (f->last != NULL && memcmp(&f->last->key, &key, sizeof key) == 0) {
        return &f->frame.price;
    }
    const struct mw_fast_price *known = *find_slot(f, &key);

    recall(f, known != NULL ? known : add_price(f, &key));
    return &f->frame.price;
}

const struct mw_step_price *
mw_fast_price_under(struct mw_fast *f, const struct mw_step_groups *groups)
{
    mw_step_use_groups(&f->frame.price, groups);
    f->is_staged = true;
    return look_up(f);
}

bool mw_fast_has_stages(const struct mw_step_price *p)
{
    return p->layout->pp > 1 && p->n_copies == 1 && mw_step_is_uneven(p);
}

const struct mw_step_price *mw_fast_price_of(struct mw_fast *f,
                                             const struct mw_layout *layout)
{
    bool is_placed =
        f->has_price && !f->is_staged && same_place(&f->layout, layout);
    const struct mw_router_load load = mw_fast_router_load(f, layout);

    f->layout = *layout;
    if (!f->has_price) {
        mw_step_price_begin_under(&f->frame.price, f->scenario, &f->layout,
                                  f->ctx, &load);
        f->has_price = true;
    } else if (!is_placed) {
        mw_step_place_groups(&f->frame.price, layout);
    }
    mw_step_set_types(&f->frame.price, layout);
    f->frame.price.n_copies = mw_step_copies_of(layout);
    f->frame.price.has_tied_copy = mw_step_copies_tied(f->scenario, layout);
    f->frame.price.router = load;
    f->frame.price.n_kinds = mw_step_unit_kinds(&f->frame.price);
    f->is_staged = false;
    return look_up(f);
}

double mw_fast_unit_s(const struct mw_step_price *p, enum mw_step_unit unit)
{
    double sum = 0;

    for (int phase = 0; phase < MW_PHASE_COUNT; phase++) {
        for (int lane = 0; lane < MW_LANE_COUNT; lane++) {
            sum += p->cost[unit].phase[phase].s[lane];
        }
    }
    return sum;
}

void mw_fast_units_of(struct mw_fast *f, const struct mw_layout *layout,
                      struct mw_fast_units *out)
{
    const struct mw_step_price *p = mw_fast_price_of(f, layout);

    out->layer_s = mw_fast_unit_s(
        p, p->layer[MW_UNIT_DENSE] >= 0 ? MW_UNIT_DENSE : MW_UNIT_MOE);
    bool is_moe = p->layer[MW_UNIT_DENSE] < 0;

    out->local_s = p->local[is_moe] >= 0
                       ? mw_fast_unit_s(p, mw_unit_of(is_moe, true, false))
                       : 0;
    out->embedding_s = mw_fast_unit_s(p, MW_UNIT_EMBEDDING);
    out->head_s = mw_fast_unit_s(p, MW_UNIT_HEAD);
    out->mtp_s = layout->mtp_ahead > 0 ? mw_fast_unit_s(p, MW_UNIT_MTP) : 0;
}

void mw_fast_counts(const struct mw_fast *f, uint64_t *out_prices,
                    uint64_t *out_shapes)
{
    *out_prices = f->n_prices;
    *out_shapes = f->shapes.n;
}
