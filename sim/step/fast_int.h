/* Private to sim/step: what a mw_fast remembers. */
#ifndef MW_SIM_STEP_FAST_INT_H
#define MW_SIM_STEP_FAST_INT_H

#include "sim/step/fast.h"
#include "sim/step/step_int.h"

/* A schedule without its list. */
struct mw_fast_shape {
    size_t kind; /* of mw_schedule_kind */
    int n_stages, vpp, n_microbatches;
    bool is_split;
    int n_chunks, n_routes, n_parts;
    int group;             /* mw_sched_args */
    enum mw_status status; /* of making it; text says why not */
    char *text;
    int16_t *virtual_stage, *route; /* [n_stages * n_chunks] */
    struct mw_ends ends;            /* of route 0 */
    double *held; /* [n_stages] micro-batch x chunk units at the peak */
};

/* How the communicators of a unit's passes lie, and those of gradients. */
struct mw_unit_groups {
    struct mw_group tp, cp, cp_inner, ep, etp;
};
struct mw_grad_groups {
    struct mw_group grad, expert, replica;
};
/* What unit prices depend on. No padding that is not zero, so
 * that bytes can be compared. */
struct mw_fast_key {
    int tp, sp, cp, cp_form, n_copies, ep, etp, micro_batch, recompute, zero;
    int recompute_layers; /* whether some are not */
    int reshard, grad_compression, offload_nvme;
    int cp_inner, has_tied_copy, recompute_modules, dtype, grad_dtype,
        overlap_off, cuda_graph, dispatcher, shared_overlap, fsdp_unit,
        fsdp_prefetch, mtp_ahead, states;
    struct mw_router_load router;
    double offload_optimizer, offload_weights, offload_activations;
    /* Kept sets of groups: many prices have the same. grads: NULL under ZeRO-0
     * and -1. */
    const struct mw_unit_groups *groups;
    const struct mw_grad_groups *grads;
};
/* fast_router.c: mw_router_load_of the layout, remembered: a search asks for
 * the same loads again and again. */
struct mw_router_load mw_fast_router_load(struct mw_fast *f,
                                          const struct mw_layout *layout);
void mw_fast_loads_free(struct mw_fast *f);

/* Of n_bytes, a multiple of 8, word by word: a search asks half a million times
 * a second. */
size_t mw_fast_hash(const void *data, size_t n_bytes);

/* The price and the size of one unit; of its costs only times. */
struct mw_fast_unit {
    int unit;
    double s[MW_PHASE_COUNT][MW_LANE_COUNT], host_s[MW_PHASE_COUNT];
    double matrix_s[MW_PHASE_COUNT];
    const struct mw_unit_size *size; /* kept: it knows nothing of groups */
};
/* Things of one size by content: an embedding or a head is the same under most
 * layouts. Addresses choose slots and nothing else. */
struct mw_store {
    void **slot; /* open addressing, n_slots a power of 2 */
    size_t n_slots, n;
};
/* The one that the store keeps of all that are alike, to the bit (padding too:
 * clear it first), n_bytes a multiple of 8 and the same for all. Lives as long
 * as the store, which begins as zeros. */
const void *mw_store_keep(struct mw_store *store, const void *thing,
                          size_t n_bytes);
void mw_store_release(struct mw_store *store);

/* Only units that the model has are kept: a search remembers 10^5 of these. */
struct mw_fast_price {
    struct mw_fast_key key;
    double fetch_s, flush_s;
    int n_units;
    const struct mw_fast_unit *unit[]; /* [n_units]; the others are all 0 */
};

struct mw_fast {
    const struct mw_scenario *scenario;
    const struct mw_cost_ctx *ctx;
    /* price: of the last layout, groups and prices; arrays with room for
     * room_virtual stages. */
    struct mw_step_frame frame;
    int room_virtual;
    double *before; /* scratch of the bound: two numbers a virtual stage */
    struct mw_layout layout;     /* that frame.price.layout points to */
    bool has_price, is_staged;   /* it is of one stage's groups */
    struct mw_fast_price **slot; /* open addressing, n_slots a power of 2 */
    size_t n_slots, n_prices;
    struct mw_store units, sizes, groups, grads;
    struct mw_router_sums router;
    struct mw_fast_load *loads;       /* by hash; NULL until asked for */
    const struct mw_fast_price *last; /* what the price holds now */
    struct {
        struct mw_fast_shape **v;
        size_t n, cap;
    } shapes;
    /* The first n_summed stages are sums of these units under this price. */
    const struct mw_fast_price *summed;
    int n_summed;
};

/* Sets f->price for the layout; valid until the next call. */
const struct mw_step_price *mw_fast_price_of(struct mw_fast *f,
                                             const struct mw_layout *layout);
/* The same layout under other groups, one stage's; until the next call of
 * either. Are there such, where groups differ from stage to stage? */
const struct mw_step_price *
mw_fast_price_under(struct mw_fast *f, const struct mw_step_groups *groups);
/* One micro-batch through one unit: all passes and what blocks them. */
double mw_fast_unit_s(const struct mw_step_price *p, enum mw_step_unit unit);
bool mw_fast_has_stages(const struct mw_step_price *p);
/* fast_stages.c: sums the virtual stages of every device, which have their
 * units, under its own price, and its tail from the device's units.
 * device_of[k] of virtual stage k. Leaves f's price that of mw_fast_price_of.
 */
void mw_fast_sum_by_stage(struct mw_fast *f, const struct mw_layout *layout,
                          const int *device_of,
                          const int (*units)[MW_UNIT_COUNT],
                          const bool *is_twin, struct mw_tail *tail);
/* fast_bound.c: units and times of every virtual stage under the last price. */
void mw_fast_fill_stages(struct mw_fast *f, const struct mw_step_price *p,
                         const int *layers, bool with_time);
/* Never NULL; look at its status. with_list false: the shape for any number
 * of micro-batches where one is known (held is then of no use). */
const struct mw_fast_shape *mw_fast_shape_of(struct mw_fast *f,
                                             const struct mw_layout *layout,
                                             bool with_list);
void mw_fast_shapes_free(struct mw_fast *f);

#endif
