/* Private to the built-in programs. */
#ifndef MW_SIM_COLL_PROG_INT_H
#define MW_SIM_COLL_PROG_INT_H

#include "sim/coll/program.h"

/* Lanes and steps are collected here and copied into the arena at the end. */
struct prog_draft_lane {
    int send, recv, channel;
    MW_ARRAY(struct mw_prog_step) step;
};
struct prog_draft {
    const struct mw_prog_spec *spec;
    struct mw_prog *prog;
    int n, chunks;                           /* of the buffer */
    MW_ARRAY(struct prog_draft_lane) * lane; /* per rank */
    struct mw_err *err;
};

static inline int prog_mod(int a, int n)
{
    return (a % n + n) % n;
}

/* A new lane of a rank; returns its number. */
int prog_add_lane(struct prog_draft *d, int rank, int send, int recv,
                  int channel);
/* A step behind the others of a lane; valid until the next one is added. */
struct mw_prog_step *prog_add_step(struct prog_draft *d, int rank, int lane,
                                   enum mw_prog_kind kind, int src, int dst,
                                   int count);

/* All ranks, and the switches behind them. */
static inline int prog_all(const struct mw_prog *prog)
{
    return prog->n_ranks + prog->n_switches;
}

/* The step that chunk 0 of a stream waits for; chunk c waits for the c-th step
 * behind it. lane -1: nothing. */
struct prog_after {
    int lane, step;
};
#define PROG_NOTHING ((struct prog_after){-1, 0})

/* A lane that does one kind of step to chunks [first, first + count), one by
 * one; returns where they are. A switch works in its scratch. */
struct prog_after prog_stream(struct prog_draft *d, int rank, int send,
                              int recv, int channel, enum mw_prog_kind kind,
                              int first, int count, struct prog_after after);

/* Chunks up a tree and down again. parent[r] -1: root, -2: takes no part.
 * ready (may be NULL): when a rank's own part is there; done (may be NULL):
 * when a rank has the result. */
struct prog_tree {
    const int *parent;
    int first, count, channel;
    bool up, down;
    const struct prog_after *ready;
    struct prog_after *done;
};
void prog_add_tree(struct prog_draft *d, const struct prog_tree *t);

void prog_build_tree(struct prog_draft *d);
void prog_build_double_tree(struct prog_draft *d);
void prog_build_halving_doubling(struct prog_draft *d);
void prog_build_recursive_doubling(struct prog_draft *d);
void prog_build_bruck(struct prog_draft *d);
void prog_build_pat(struct prog_draft *d);
/* NVLS, NVLSTree, CollNet. */
void prog_build_switched(struct prog_draft *d);

/* Chunks that the nccl-tests size of a program has. */
int prog_chunks_of_message(const struct mw_prog *prog);

/* ---- symbols ---- */

struct prog_value {
    int32_t id; /* -1: nothing written yet */
    uint64_t *set;
};
/* The buffers of all ranks, in symbols. */
struct prog_lane_state;
struct prog_machine {
    const struct mw_prog *p;
    struct mw_err *err;
    int words;
    struct mw_arena arena;
    struct prog_value **buf; /* [rank * MW_BUFFERS + buffer] */
    struct prog_lane_state **lane;
};
/* Buffers with the inputs in place; MW_EINPUT for shapes that cannot be or are
 * too large. The arena is the caller's to release. */
enum mw_status prog_machine_init(struct prog_machine *m,
                                 const struct mw_prog *prog,
                                 struct mw_err *err);
void prog_give_inputs(struct prog_machine *m);
struct prog_value *prog_new_values(struct prog_machine *m, int count);
bool prog_in_range(const struct prog_machine *m, int rank, int buffer,
                   int index, int count);
/* A chunk of a buffer; in place, wherever it really is. */
struct prog_value *prog_cell(const struct prog_machine *m, int rank, int buffer,
                             int index);
void prog_copy_value(const struct prog_machine *m, struct prog_value *dst,
                     const struct prog_value *v);
/* dst += v; false: other data, or a contribution twice. */
bool prog_add_value(const struct prog_machine *m, struct prog_value *dst,
                    const struct prog_value *v);
enum mw_status prog_check_outputs(struct prog_machine *m);

#endif
