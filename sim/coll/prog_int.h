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

void prog_build_tree(struct prog_draft *d);
void prog_build_double_tree(struct prog_draft *d);
void prog_build_halving_doubling(struct prog_draft *d);
void prog_build_recursive_doubling(struct prog_draft *d);
void prog_build_bruck(struct prog_draft *d);

#endif
