/* Private to sim/validate. */
#ifndef MW_SIM_VALIDATE_VALIDATE_INT_H
#define MW_SIM_VALIDATE_VALIDATE_INT_H

#include "sim/validate/validate.h"

/* A row of the file. Numbers of empty cells are NaN. */
struct mw_measured {
    const char *id, *kind, *model, *gpu, *interconnect, *zero, *seq_parallel,
        *recompute, *offload, *dtype, *schedule, *framework, *tflops_def,
        *flops_attention, *mem_gib_per_gpu, *mem_def, *note, *method,
        *quantisation, *flags, *source;
    double hidden, layers, heads, kv_heads, ffn, vocab, experts, topk, moe_ffn,
        gated_mlp, seq, global_batch, micro_batch, grad_accum, gpus, nodes, tp,
        pp, vpp, dp, cp, ep;
    double microbatches, mem_gb, peak_mem_gb, oom, seq_max, rank;
    double model_states_MB, activation_MB, activation_peak_MB;
    double step_time_s, samples_per_s, tokens_per_s_per_gpu, tflops_per_gpu;
};

/* A row on its way to a prediction. */
struct mw_case {
    struct mw_arena *arena;
    const struct mw_hwdb *db;
    const struct mw_measured *row;
    const struct mw_measured *all; /* the file's rows, for twins */
    size_t n_all;
    uint64_t fills;
    const char *skipped; /* set by the step that cannot go on */
    struct mw_scenario scenario;
    struct mw_layout layout;
    struct mw_system system; /* the database's with the row's NICs */
    struct mw_gpu gpu;       /* the database's with what the row says of it */
    struct mw_cost_ctx ctx;
    int *layers; /* of virtual stages; NULL: even */
};

static inline void mw_case_fill(struct mw_case *c, enum mw_fill fill)
{
    c->fills |= UINT64_C(1) << fill;
}
/* "unknown GPU 'TPU v4'" and the like; the first reason stays. */
void mw_case_skip(struct mw_case *c, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

/* Is `word` in `text`, in any case? */
bool mw_text_has(const char *text, const char *word);
/* Text up to the first '(' or, when at_space, space; trimmed; in the arena. */
const char *mw_text_head(struct mw_arena *arena, const char *text);

/* noise.c: marks rows from `first` on whose series scatters. */
void mw_validate_mark_noisy(struct mw_validate *v, size_t first);

/* memory_stats.c: fills v->memory and memory_overall. */
void mw_validate_finish_memory(struct mw_validate *v);

/* Training stack by the framework's name and the GPU (case_stack.c). */
const char *mw_case_stack_of(const struct mw_measured *r);
/* Megatron and its descendants before fused attention (2022-06). */
bool mw_case_is_before_flash(const struct mw_measured *r);
/* vTrain's single-node table is composed: within one (hidden, tp, pp,
 * micro-batch) its times are exactly linear in layers and micro-batches. */
bool mw_case_is_composed(const struct mw_measured *r);
/* Megatron-Core and what is built on it, since 2024. */
bool mw_case_is_core(const struct mw_measured *r);

/* releases.c: the newest release of row i's run that is later than row i's
 * own, the first of several in the file; n when there is none. The second notes
 * in v->releases how far the two times lie apart. */
size_t mw_case_newest_release(const struct mw_measured *all, size_t n,
                              size_t i);
void mw_validate_note_release(struct mw_validate *v, const char *file,
                              const struct mw_measured *older,
                              const struct mw_measured *newest);

/* case_model.c, case_layout.c, case_machine.c: each fills its part or sets
 * skipped. */
void mw_case_model(struct mw_case *c);
void mw_case_workload(struct mw_case *c);
void mw_case_layout(struct mw_case *c);
void mw_case_machine(struct mw_case *c);
/* The device that the row's GPU is called in the database, NULL: none is. */
const struct mw_gpu *mw_case_gpu(const struct mw_case *c);
/* case_recipe.c: what a published recipe says of the run; needs model, workload
 * and layout. */
void mw_case_recipe(struct mw_case *c);
/* Layers of the stages; needs model and layout. */
void mw_case_partition(struct mw_case *c);
/* Does the row print a time, or a rate that a time follows from? */
bool mw_case_has_time(const struct mw_measured *r);
/* Measured seconds of the row; 0 when it has none. Needs the prediction's
 * FLOPs, which do not depend on the time. */
double mw_case_measured_s(struct mw_case *c, const struct mw_step_result *r);

/* case_tables.c: a row of a table of memory alone becomes one of the common
 * form. */
void mw_case_take_table(struct mw_case *c);
/* case_memory.c: what the row says of memory; fills measured bytes. */
void mw_case_read_memory(const struct mw_measured *r,
                         struct mw_validate_row *out);
bool mw_case_is_oom(const struct mw_measured *r);
/* Fills predicted bytes. */
void mw_case_memory(const struct mw_case *c, const struct mw_step_result *r,
                    struct mw_validate_row *out);

#endif
