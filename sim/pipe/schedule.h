/*
 * A pipeline schedule: for each device an ordered list of passes. The one
 * description that a generator or the ILP makes, the simulator replays and
 * the executor walks.
 *
 *   device 0 | F0 F1 F2 F3 B0 W0 B1 W1 ...      a slot is (pass, micro-batch,
 *   device 1 |    F0 F1 B0 W0 F2 B1 ...          chunk); lists are run in order
 *
 * A model is cut into virtual stages. A route is the way of a micro-batch
 * through them: one route for ordinary schedules, two (opposite directions)
 * for bidirectional ones (Chimera, DualPipe). Placement says which device and
 * which local chunk hold virtual stage k of route r, so interleaved (loop),
 * V-shaped and bidirectional placements are data, not cases.
 */
#ifndef MW_SIM_PIPE_SCHEDULE_H
#define MW_SIM_PIPE_SCHEDULE_H

#include "base/err.h"
#include "base/mem.h"
#include "sim/model/model.h" /* enum mw_pass */

#include <assert.h>
#include <stdbool.h>
#include <stdint.h>

struct mw_slot {
    int32_t microbatch; /* with parts: microbatch * n_parts + part */
    int16_t chunk;      /* local chunk of the device, 0 .. n_chunks - 1 */
    uint8_t pass;       /* enum mw_pass: F, B, W, or BW (fused) */
    uint8_t flags;      /* MW_SLOT_PAIR */
};
/* Runs overlapped with the next slot of the list as one operation: starts when
 * both can, both end together (DualPipe's F & BW). An executor that cannot
 * overlap runs the two in order. */
enum { MW_SLOT_PAIR = 1 };
static_assert(sizeof(struct mw_slot) == 8, "slots are packed");

/* How virtual stages lie on devices: k mod p; to and fro (k mod 2p, mirrored);
 * two routes in opposite directions, chunk r of each device on route r. */
enum mw_placement { MW_PLACE_LOOP, MW_PLACE_V, MW_PLACE_BIDIRECTIONAL };

struct mw_schedule {
    const char *name; /* generator, or "custom" */
    enum mw_placement placement;
    int n_stages;       /* devices of the pipeline */
    int n_microbatches; /* per step, all routes together */
    int n_chunks;       /* virtual stages per device, all routes together */
    int n_routes;       /* 1, or 2 for bidirectional: the first half of the
                           micro-batches takes route 0, the other route 1 */
    int n_parts;        /* sequence parts of a micro-batch (Seq1F1B), else 1 */
    bool is_forward_only;
    int route_len; /* virtual stages of a route */
    /* [n_routes * route_len]: where virtual stage k of route r lives. */
    int16_t *device, *chunk;
    /* [n_stages * n_chunks]: the inverse: virtual stage and route. */
    int16_t *virtual_stage, *route;
    /* Slots of device d are slot[first[d]] .. slot[first[d + 1] - 1]. */
    uint32_t *first;
    struct mw_slot *slot;
};

/* Arguments of a generator. Times (seconds, may be 0 = unit times F=B=W=1)
 * and the memory limit matter to generators that plan with them. */
struct mw_sched_args {
    int n_stages, n_microbatches, n_chunks;
    double f_s, b_s, w_s, comm_s;
    double
        memory_limit; /* activations of one micro-batch on one stage; 0: no */
    int n_parts;
    int group; /* interleaved kinds: micro-batches that go through a chunk
                  before the next; 0: as many as stages, or m div (m div p) */
};

/*
 * Makes the named schedule ("gpipe", "1f1b", "interleaved-1f1b", "zb-h1", ...;
 * any case). Preconditions that fail are MW_EUSAGE and say what is needed.
 * Unknown name: MW_EUSAGE with the nearest. Release with mw_schedule_release.
 */
enum mw_status mw_schedule_make(const char *kind,
                                const struct mw_sched_args *args,
                                struct mw_schedule *out, struct mw_err *err);
void mw_schedule_release(struct mw_schedule *schedule);
/* Name, one-line description, citation of the i-th generator; NULL past the
 * end. */
struct mw_sched_kind {
    const char *name, *what, *source;
    bool is_split; /* separate B and W passes */
    int min_chunks, max_chunks;
    bool is_forward_only; /* inference: no training step has it */
    bool has_two_routes;  /* micro-batches from both ends: the model twice */
};
const struct mw_sched_kind *mw_schedule_kind(size_t i);
/* By name, any case; NULL when there is none. */
const struct mw_sched_kind *mw_schedule_kind_find(const char *name);

/*
 * From explicit lists ("F0 F1 B0 W0", chunk as "F0.1"): text of one device,
 * for plan files. Errors name device, token and what is right (MW_EINPUT).
 */
enum mw_status mw_schedule_parse(const char *const *device_lists, int n_stages,
                                 int n_microbatches, int n_chunks,
                                 const char *placement, /* "loop" "v"
                                                           "bidirectional" */
                                 struct mw_schedule *out, struct mw_err *err);
/* The same with n_parts parts of a micro-batch: "F7" is then item 7, part 7 mod
 * n_parts of micro-batch 7 / n_parts. */
enum mw_status mw_schedule_parse_parts(const char *const *device_lists,
                                       int n_stages, int n_microbatches,
                                       int n_chunks, int n_parts,
                                       const char *placement,
                                       struct mw_schedule *out,
                                       struct mw_err *err);
/* The list of one device in that form, appended to text. */
void mw_schedule_format(const struct mw_schedule *s, int device,
                        struct mw_str *text);

/* "loop" "v" "bidirectional". */
const char *mw_placement_name(enum mw_placement placement);
/* Name of a slot for messages and lists: "F3", "BW0.1" when there are chunks.
 * buf has at least MW_SLOT_NAME_MAX bytes and is returned. */
enum { MW_SLOT_NAME_MAX = 32 };
const char *mw_slot_name(const struct mw_schedule *s,
                         const struct mw_slot *slot,
                         char buf[MW_SLOT_NAME_MAX]);
/* Micro-batches x parts: what mw_slot.microbatch counts. */
static inline int mw_schedule_items(const struct mw_schedule *s)
{
    return s->n_microbatches * s->n_parts;
}
/* Route of an item. */
static inline int mw_schedule_route_of(const struct mw_schedule *s, int item)
{
    return s->n_routes == 1 || 2 * (item / s->n_parts) < s->n_microbatches ? 0
                                                                           : 1;
}

/*
 * Complete, no pass twice, dependencies in order, deadlock-free with
 * non-blocking sends. The message names stage, micro-batch and pass:
 * "stage 2: B3 comes before F3". MW_EINPUT.
 */
enum mw_status mw_schedule_check(const struct mw_schedule *s,
                                 struct mw_err *err);

/* ---- replay ------------------------------------------------------------ */
/* Durations in ps per device and chunk ([n_stages * n_chunks]); comm is the
 * transfer between consecutive virtual stages on different devices (0 on the
 * same device), `opt` per device after its last pass. */
struct mw_pipe_times {
    const mw_time *f_ps, *b_ps, *w_ps; /* BW takes b + w */
    mw_time comm_ps;
    const mw_time *opt_ps; /* NULL: none */
    /* Duration of an overlapped F & BW pair, indexed as f_ps by the forward's
     * chunk; NULL: the sum of the two. */
    const mw_time *pair_ps;
    /* A stage waits for each of its sends (comm_ps long) before it goes on:
     * Megatron-LM without overlap_p2p_communication. */
    bool is_blocking;
};
struct mw_pipe_run {
    mw_time makespan_ps;
    mw_time longest_span_ps;    /* of first start to last end per stage */
    mw_time *start_ps, *end_ps; /* per slot, as in schedule->slot */
    /* Per device: micro-batch x chunk units (a part counts 1 / n_parts); all
     * of it is held until W or BW ends. */
    double *peak_activations;
};
/* Runs the lists with given times. MW_EINPUT when it deadlocks. O(slots). */
enum mw_status mw_pipe_replay(const struct mw_schedule *s,
                              const struct mw_pipe_times *times,
                              struct mw_pipe_run *out, struct mw_err *err);
void mw_pipe_run_release(struct mw_pipe_run *run);

#endif
