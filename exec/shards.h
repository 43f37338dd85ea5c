/*
 * This rank's slices of the parameters: one flat buffer of weights, one of
 * gradients, one of each optimizer moment, all with the offsets below. Built
 * from the model's parameter table, which sizes memory for the planner as
 * well. Sharding, initialisation, comparison and the optimizer read it.
 *
 *   whole tensor [outer][rows][cols]      slice of tp rank i of t
 *     MW_SHARD_ROWS  rows i*rows/t ...    of each outer part
 *     MW_SHARD_COLS  cols i*cols/t ...
 *     MW_SHARD_NONE  all of it
 *
 * Experts' tensors are split over the ranks of EP (whole experts) and ETP (rows
 * or columns of each), and their gradients are shared by other ranks than those
 * of the rest, so they stand in units of their own, behind.
 *
 * Under low-rank adapters (workload.lora_rank) all tensors of the model are
 * frozen: they have weights alone and stand behind the adapters.
 *
 * A tied head is a second slice of the embedding's tensor with its own
 * gradient, on the last stage (`is_tied`); the two gradients are added once
 * at the end of a step, so that any pipeline adds in the same order. From
 * ZeRO-2 on both are units of their own, alike in size and shares.
 */
#ifndef MW_EXEC_SHARDS_H
#define MW_EXEC_SHARDS_H

#include "base/mem.h"
#include "exec/job.h"

struct mw_slice {
    const struct mw_param *param;
    int id;             /* index in the model's table: the random stream */
    bool is_tied;       /* the head's copy of the embedding */
    bool is_frozen;     /* has no gradient: adapters alone learn */
    int64_t rows, cols; /* local; outer is the parameter's */
    int64_t first_row, first_col; /* place in the whole tensor */
    int64_t n_outer, first_outer; /* outer parts of all own copies (experts) */
    size_t offset, n;             /* elements in the flat buffers */
    int unit;
};

/* Consecutive slices that are reduced and gathered together (layer_units.c). */
struct mw_unit {
    size_t offset, n; /* a multiple of 16 times the group's ranks */
    size_t n_used;    /* elements of tensors among them */
    size_t stored;    /* where the own part is in a buffer that is split */
    size_t place;     /* among the units of its layers */
    int layer, last;  /* the first and the last layer whose tensors it may have;
                         with one unit for all layers the first alone */
    bool is_frozen;   /* adapters alone learn */
    bool is_expert;   /* shared by the ranks that have the same experts */
};

struct mw_shards {
    struct mw_params params; /* the model's table, then adapters */
    size_t n_frozen_params;  /* under adapters: the model's; else 0 */
    struct {
        struct mw_slice *v;
        size_t n, cap;
    } slices;
    /* One, and one of experts; from ZeRO-2 on so many for each layer, or with
     * fsdp_unit for so many layers of a virtual stage. */
    MW_ARRAY(struct mw_unit) units;
    size_t n_total;  /* elements, the units' padding included */
    size_t n_stored; /* those of them that one rank of each group owns */
    size_t n_learning, n_learning_stored; /* of the units that learn: first */
};

/* Ranks that share the gradients of a stage's tensors: replicas, on two routes
 * those of both holders; of experts, all ranks of the stage with the same. */
int mw_shards_sharers(const struct mw_job *job, int stage, bool is_expert);

/* Slices of the rank at `at`. */
void mw_shards_make(struct mw_shards *shards, const struct mw_job *job,
                    struct mw_coord at);
void mw_shards_release(struct mw_shards *shards);
/* By name and layer (-1 embedding side, n_layers head side); NULL: none. */
const struct mw_slice *mw_shards_find(const struct mw_shards *shards,
                                      const char *name, int layer);
const struct mw_slice *mw_shards_find_tied(const struct mw_shards *shards);

/*
 * Initial weights into w[n_total]: value = f(seed, id, index in the whole
 * tensor), so any slicing draws the same numbers. Matrices are uniform with
 * standard deviation 0.02 (Radford et al., GPT-2, 2019), those that end a
 * residual branch scaled by 1 / sqrt(2 layers); norm weights 1, biases 0. Of an
 * adapter A is uniform in +-1 / sqrt(in) (He et al., 2015, with a = sqrt 5, as
 * Hugging Face PEFT draws it) and B zero.
 */
void mw_shards_fill(const struct mw_shards *shards, const struct mw_model *m,
                    uint64_t seed, float *w);

/* Index in the whole tensor of local element i of a slice. */
uint64_t mw_slice_whole_index(const struct mw_slice *s, size_t i);

#endif
