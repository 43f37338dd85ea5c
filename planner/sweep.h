/*
 * What if: the best plan at every point of a grid over nodes, systems, models,
 * batches, sequence lengths, network speeds and NICs.
 *
 * A grid is a list of axes; a point takes one value of each, the first axis
 * slowest. Rows are written to a CSV file that gnuplot reads and that a later
 * run continues: a point whose row is there, made from the same scenario, is
 * not searched again. Shards take every n-th point, so that an existing
 * scheduler can run them as an array; their files are merged by being read
 * together.
 */
#ifndef MW_PLANNER_SWEEP_H
#define MW_PLANNER_SWEEP_H

#include "planner/planner.h"

enum mw_sweep_key {
    MW_SWEEP_NODES,
    MW_SWEEP_SYSTEM,
    MW_SWEEP_MODEL, /* a preset */
    MW_SWEEP_SEQ,
    MW_SWEEP_BATCH,    /* global batch, sequences */
    MW_SWEEP_NET,      /* factor on the bandwidth between nodes */
    MW_SWEEP_PER_NODE, /* GPUs used of a node */
    MW_SWEEP_NICS,     /* NICs of a node, each at its rate */
    MW_SWEEP_KEY_COUNT
};
extern const struct mw_enum mw_sweep_key_enums[];

enum {
    MW_SWEEP_VALUES_MAX = 256,
    MW_SWEEP_TEXT_MAX = 64,
    MW_SWEEP_AXES_MAX = MW_SWEEP_KEY_COUNT,
    MW_SWEEP_POINTS_MAX = 1 << 20
};
struct mw_sweep_axis {
    enum mw_sweep_key key;
    int n;
    char value[MW_SWEEP_VALUES_MAX][MW_SWEEP_TEXT_MAX];
};
struct mw_sweep_grid {
    struct mw_sweep_axis *axis[MW_SWEEP_AXES_MAX];
    int n_axes;
    bool is_weak; /* the batch grows with the nodes, from the scenario's */
};
/* Adds "nodes=8,16,32". MW_EUSAGE names what is wrong. */
enum mw_status mw_sweep_grid_add(struct mw_sweep_grid *grid, const char *text,
                                 struct mw_err *err);
void mw_sweep_grid_release(struct mw_sweep_grid *grid);
size_t mw_sweep_points(const struct mw_sweep_grid *grid);

/* One row: the point, the best plan there. Numbers are 0 where nothing is
 * feasible. */
struct mw_sweep_row {
    const char *scenario; /* hash of what is varied, in hex */
    const char *model, *system, *stack;
    int64_t nodes, gpus, seq, global_batch;
    int64_t nics; /* varied; 0: the system's */
    /* Of several ways to cut racks the best plan's, with its GPUs (nodes are
     * those of the first way); 0: there is no choice. */
    int64_t domain_nodes;
    double net;
    int64_t is_feasible, is_proved;
    double step_time_s, tokens_per_s, tokens_per_s_per_gpu, mfu, peak_bytes;
    double gpu_hours_per_ttoken; /* for 10^12 tokens */
    int64_t tp, cp, pp, vpp, dp, ep, etp, zero, sp, micro_batch;
    const char *recompute, *schedule, *order;
    const char *reason; /* why nothing is feasible */
};
struct mw_sweep_rows {
    struct mw_arena arena;
    struct mw_sweep_row *v;
    size_t n, cap;
};
void mw_sweep_rows_release(struct mw_sweep_rows *rows);

/* Reads rows of earlier runs or shards, to be continued or merged. */
enum mw_status mw_sweep_read(const char *path, struct mw_sweep_rows *rows,
                             struct mw_err *err);
/* The same of rows that answer a question (mw_sweep_question): MW_EINPUT where
 * the file has rows, but none that does; is_strict: where any does not. */
enum mw_status mw_sweep_read_of(const char *path, uint64_t question,
                                bool is_strict, struct mw_sweep_rows *rows,
                                struct mw_err *err);
enum mw_status mw_sweep_write(const struct mw_sweep_rows *rows,
                              const char *path, struct mw_err *err);

struct mw_sweep_opts {
    const struct mw_search_opts *search;
    const char *stack;   /* training software; NULL: the framework's */
    int shard, n_shards; /* 1 .. n_shards; 0: all */
    const char *csv;     /* written after every point; NULL: not */
    size_t n_merged;     /* known rows before those of the csv itself, whose
                            other rows stay in it behind the grid's */
    bool is_merge;       /* search nothing: rows must be there */
    void (*on_point)(void *arg, size_t done, size_t total);
    void *arg;
};
/*
 * Fills `out` with a row for each point of the shard, in grid order; `known`
 * holds rows read before. MW_EINPUT for a value that the scenario cannot take
 * (unknown system or model) and for known rows that contradict; MW_ENO when a
 * merge misses points; MW_EINTR with the rows done so far.
 */
enum mw_status mw_sweep_run(const struct mw_scenario *scenario,
                            const struct mw_hwdb *db,
                            const struct mw_sweep_grid *grid,
                            const struct mw_sweep_opts *opts,
                            const struct mw_sweep_rows *known,
                            struct mw_sweep_rows *out, struct mw_err *err);

/* Hash of what a row or a part answers: the scenario, what of a plan is pinned
 * or freed, the stack, what the database's overlay says. */
uint64_t mw_sweep_question(const struct mw_scenario *from,
                           const struct mw_search_opts *search,
                           const char *stack, const struct mw_hwdb *db);

/* "3/8" to a shard; "auto": from SLURM_ARRAY_TASK_*, SLURM_PROCID or
 * OMPI_COMM_WORLD_RANK. MW_EUSAGE. */
enum mw_status mw_sweep_shard(const char *text, int *out_shard, int *out_n,
                              struct mw_err *err);

#endif
