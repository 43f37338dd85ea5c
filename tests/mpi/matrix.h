/*
 * What the MPI tests share: a small scenario in a file of its own, a plan made
 * from a layout, and a run of it on the ranks of this job.
 */
#ifndef MW_TESTS_MATRIX_H
#define MW_TESTS_MATRIX_H

#include "mw_test.h"

#include "exec/drive.h"

/* The models that the tests train. */
enum matrix_model {
    MATRIX_GPT,    /* LayerNorm, learned positions, biases, GELU, tied head */
    MATRIX_LLAMA,  /* RMSNorm, rotary, grouped queries, SwiGLU */
    MATRIX_MOE,    /* the same, every second layer 4 experts of which 2 */
    MATRIX_SHARED, /* the same, with a gated shared expert */
    MATRIX_MODELS
};

struct matrix_case {
    enum matrix_model model;
    int tp, pp, vpp, dp, zero, micro_batch;
    int dp_shard;   /* 0: dp */
    int bucket;     /* elements; 0: all at once */
    int unit;       /* layers of ZeRO-3's units; 0: 1 */
    bool keeps_all; /* reshard: false */
    const char *schedule;
    int parts;            /* of a sequence; 0: what the schedule has */
    const char *lists[3]; /* an order of two routes instead of a schedule */
    bool sp;
    int cp, cp_inner, ep, etp; /* 0: 1 */
    int doc_tokens;            /* of a packed sequence; 0: it is one */
    enum mw_cp_form cp_form;
    enum mw_recompute recompute;
    int recompute_layers; /* 0: all */
    bool is_by_stage;     /* counts of recomputed layers, one each */
    int lora_rank;        /* adapters; 0: none */
    enum mw_lora_targets lora_targets;
    bool is_bf16;    /* weights and activations; else float32 */
    int offload_pct; /* of the optimizer's states, in the host's memory */
    bool bare_ends;  /* no layers beside embedding and head */
    int ranks;       /* of the cluster it is planned for; 0: this job's */
};

enum { MATRIX_WHY_MAX = 256 };
/* Name of the plan that a case's run wrote. */
void matrix_plan_name(char *out, size_t room, int ranks);
/* Writes a case's plan for so many ranks under that name, and its scenario. */
void matrix_write(const struct matrix_case *c, int ranks);
/* Pipelines of whole sequences add in the reference's order: equal to the bit.
 */
bool matrix_is_exact(const struct matrix_case *c);
/* "tp 2 sp 1 ...: why", for messages. */
void matrix_describe(const struct matrix_case *c, const char *why, char *out,
                     size_t room);

/* Says what is wrong with a verified run of `ranks`; "" when nothing is:
 * losses, memory, traffic (matrix_judge.c). Rank 0. */
void matrix_judge(const struct matrix_case *c, int ranks,
                  const struct mw_drive_result *r, char out[MATRIX_WHY_MAX]);

/* A case from text (matrix_text.c), which must be well formed. */
struct matrix_case matrix_read(const char *text);

/* Opens the world and writes the scenarios into the working folder. */
void matrix_begin(struct mw_comm **out_world);
void matrix_end(struct mw_comm *world);

/*
 * Runs the case with verification; the status, and the result when MW_OK or
 * MW_ENO (release it with mw_drive_result_release in any case).
 */
enum mw_status matrix_run(struct mw_comm *world, const struct matrix_case *c,
                          const struct mw_drive_opts *opts,
                          struct mw_drive_result *out, struct mw_err *err);

/* Runs, and asserts that it is verified within what its layout allows, and
 * that each rank held the activations that the model predicts, to the byte. */
void matrix_verify(struct mw_comm *world, const struct matrix_case *c);

#endif
