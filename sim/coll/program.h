/*
 * A collective as a program: for every rank, lanes (threadblocks) of steps
 * over chunks, as in MSCCL's algorithm files.
 *
 *   rank: input, output and scratch buffers of chunks
 *   lane: at most one peer to send to, one to receive from, a channel; its
 *         steps run in order; a step may wait for a step of another lane
 *   step: send | receive | receive-reduce-copy | copy | reduce | fused forms
 *
 * Programs are built in (mw_prog_build), read from MSCCL XML (mw_prog_load)
 * and written (mw_prog_write). Each can be checked by running it on symbols:
 * every chunk of every rank must end with exactly the right contributions,
 * none lost, none twice, nothing read before it was written, no deadlock.
 *
 * Source of the form: MSCCL (microsoft/msccl, src/include/msccl and the files
 * that msccl-tools writes; Cowan et al., "MSCCLang", ASPLOS 2023).
 */
#ifndef MW_SIM_COLL_PROGRAM_H
#define MW_SIM_COLL_PROGRAM_H

#include "base/err.h"
#include "base/mem.h"
#include "sim/model/model.h"

#include <stdbool.h>
#include <stdint.h>

enum mw_prog_op {
    MW_PROG_ALL_REDUCE,
    MW_PROG_ALL_GATHER,
    MW_PROG_REDUCE_SCATTER,
    MW_PROG_ALL_TO_ALL,
    MW_PROG_BROADCAST,
    MW_PROG_REDUCE,
    MW_PROG_GATHER,
    MW_PROG_SCATTER,
    MW_PROG_OPS
};
enum mw_prog_kind {
    MW_STEP_NOP,
    MW_STEP_SEND,             /* s */
    MW_STEP_RECV,             /* r: copy into dst */
    MW_STEP_RECV_REDUCE,      /* rrc: dst += what arrives */
    MW_STEP_RECV_SEND,        /* rcs: copy into dst and send on */
    MW_STEP_RECV_REDUCE_SEND, /* rrs: src + what arrives is sent on, not kept */
    MW_STEP_RECV_REDUCE_COPY_SEND, /* rrcs: dst += arrives, sent on */
    MW_STEP_COPY,                  /* cpy */
    MW_STEP_REDUCE,                /* re: dst += src */
    MW_STEP_KINDS
};
enum mw_prog_buffer { MW_BUF_INPUT, MW_BUF_OUTPUT, MW_BUF_SCRATCH, MW_BUFFERS };

struct mw_prog_step {
    uint8_t kind, src_buf, dst_buf;
    int32_t src, dst, count;    /* chunks */
    int32_t dep_lane, dep_step; /* -1: none */
};
struct mw_prog_lane {
    int send, recv; /* ranks, -1: none */
    int channel;
    struct mw_prog_step *step;
    int n_steps;
};
struct mw_prog_rank {
    int n_chunks[MW_BUFFERS];
    struct mw_prog_lane *lane;
    int n_lanes;
};
struct mw_prog {
    struct mw_arena arena;
    const char *name, *proto;
    enum mw_prog_op op;
    int root; /* broadcast, reduce, gather, scatter */
    int n_ranks, n_channels;
    /* Switches that add up and copy (NVLS, SHARP) stand behind the ranks in
     * `rank`, with scratch alone; net_switch: which of them joins the nodes
     * (its place in `rank`), -1: none. */
    int n_switches, net_switch;
    bool in_place;       /* input and output are one buffer */
    int chunks_per_rank; /* per block for all_gather, ...; whole for all_reduce:
                            n_chunks of the input */
    struct mw_prog_rank *rank;
};

enum mw_prog_algo {
    MW_ALGO_RING,
    MW_ALGO_TREE,               /* binomial */
    MW_ALGO_DOUBLE_BINARY_TREE, /* all_reduce; two halves, chunks pipelined */
    MW_ALGO_HALVING_DOUBLING,   /* power of two ranks */
    MW_ALGO_RECURSIVE_DOUBLING, /* power of two ranks */
    MW_ALGO_BRUCK,              /* all_gather, reduce_scatter, all_to_all */
    MW_ALGO_PAIRWISE,           /* all_to_all, gather, scatter */
    MW_ALGO_HIERARCHICAL,       /* all_reduce over groups of `local` ranks */
    MW_ALGO_ALL_PAIRS_ONE_SHOT, /* all_reduce, all_gather */
    MW_ALGO_ALL_PAIRS_TWO_SHOT, /* all_reduce */
    MW_ALGO_NVLS,               /* the NVSwitch sums and copies; all_reduce also
                                   over nodes, by way of SHARP; all_gather and
                                   reduce_scatter inside one */
    MW_ALGO_NVLS_TREE,          /* all_reduce; two trees between the nodes */
    MW_ALGO_COLLNET_DIRECT,     /* all_reduce; heads sum their node's parts */
    MW_ALGO_COLLNET_CHAIN,      /* all_reduce; along a chain to the head */
    MW_ALGO_PAT,                /* all_gather, reduce_scatter */
    MW_ALGOS
};
const char *mw_prog_algo_name(enum mw_prog_algo algo); /* "ring" */
const char *mw_prog_op_name(enum mw_prog_op op);       /* "all_reduce" */

struct mw_prog_spec {
    enum mw_prog_op op;
    enum mw_prog_algo algo;
    int n_ranks;
    int local; /* ranks of a node (hierarchical, NVLS, CollNet); 0: none */
    int root;
    int pieces; /* pipelined chunks of trees; 0: 4 */
};
/* MW_EINPUT for an algorithm that has no such operation or number of ranks.
 * O(steps) memory. */
enum mw_status mw_prog_build(const struct mw_prog_spec *spec,
                             struct mw_prog **out, struct mw_err *err);
void mw_prog_free(struct mw_prog *prog);

/* MSCCL XML. Errors name file and line, and rank, lane and step. */
enum mw_status mw_prog_load(const char *path, struct mw_prog **out,
                            struct mw_err *err);
enum mw_status mw_prog_parse(const char *name, const char *text, size_t len,
                             struct mw_prog **out, struct mw_err *err);
/* For both ways to write: a program without switches (n_switches 0); MSCCL has
 * no step for them. */
void mw_prog_write_xml(const struct mw_prog *prog, struct mw_str *out);
/* As an MSCCL++ plan (onesided.h); MSCCL's fused and pipelined forms become
 * put, signal, wait, copy and re. The program must have passed its check. */
void mw_prog_write_json(const struct mw_prog *prog, struct mw_str *out);

/*
 * Runs the program on symbols. MW_EINPUT naming rank, threadblock and step for
 * a lost or doubled contribution, a read before the write, sizes that do not
 * match at both ends, or a deadlock (with the circle of who waits for whom).
 */
enum mw_status mw_prog_check(const struct mw_prog *prog, struct mw_err *err);

struct mw_topology;
struct mw_prog_run {
    const struct mw_topology *topo;
    const int *gpu_of_rank; /* NULL: rank r is GPU r */
    double bytes;           /* nccl-tests size */
    double latency_s;       /* of a message inside an NVLink domain; to or from
                               a switch half of it */
    double net_latency_s;   /* of one over NICs; 0: latency_s */
    double channel_Bps;     /* of one lane; 0: no limit */
};
struct mw_prog_time {
    double time_s;
    uint64_t n_messages;
    double *finish_s; /* per rank; mw_free */
};
/* Time on a topology: messages are flows, lanes in order, chunks pipelined.
 * The program must have passed mw_prog_check. */
void mw_prog_simulate(const struct mw_prog *prog, const struct mw_prog_run *run,
                      struct mw_prog_time *out);

#endif
