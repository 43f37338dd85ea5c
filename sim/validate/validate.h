/*
 * Predictions against a table of measured training steps.
 *
 * A file is CSV, one measured run a row, with the columns of docs/validate.md
 * (unknown columns are ignored, missing ones are empty cells). Each row
 * becomes a scenario and a plan and is simulated. A cell that the source does
 * not print is filled by a written rule, never by looking at the measured
 * value; every use of a rule is counted. A row that cannot be expressed is
 * listed with the reason.
 *
 *   error         = predicted / measured - 1
 *   MAPE          mean of |error|; median_ape, p90_ape its quantiles
 *   bias          mean of error
 *   order_rate    of the pairs of rows that run the same job (model, batch,
 *                 sequence, GPUs), the part whose order is predicted right
 *   regret        of the row that the prediction picks for a job: how much
 *                 longer it takes than the job's fastest row; median over jobs
 *
 * Memory is scored beside time, by what the source says it measured (a row may
 * state several figures), and runs that ran out of memory apart from those
 * that fitted. A row without a time is predicted in memory alone.
 */
#ifndef MW_SIM_VALIDATE_VALIDATE_H
#define MW_SIM_VALIDATE_VALIDATE_H

#include "sim/step/step.h"

/* X(name, what is filled and how) */
#define MW_FILL_MAP(X)                                                         \
    X(MODEL, "model", "architecture from the preset of the model's name")      \
    X(MOE, "moe",                                                              \
      "mixture of experts from the preset; cut to fewer layers it has one "    \
      "leading dense layer and no further prediction")                         \
    X(FAMILY, "family",                                                        \
      "norms, biases, positions and a tied head of the preset whose sizes "    \
      "the row has")                                                           \
    X(KV_HEADS, "kv_heads", "as many key-value heads as heads")                \
    X(FFN, "ffn", "4 x hidden, or 8/3 x hidden when gated")                    \
    X(VOCAB, "vocab", "51200, Megatron-LM's padded GPT-2 vocabulary")          \
    X(COMPOSED, "composed",                                                    \
      "vTrain's single-node table: 50257 tokens, not padded, and nothing "     \
      "recomputed, as the program has it that composed the table "             \
      "(src/config.py and src/predictor.py: no recomputation on the last "     \
      "stage, and the times per layer are the same on all)")                   \
    X(TP, "tp", "1")                                                           \
    X(PP, "pp", "1")                                                           \
    X(DP, "dp", "GPUs / (tp pp cp)")                                           \
    X(VPP_TWIN, "vpp_twin",                                                    \
      "of another row with the same model, GPU, tp and pp")                    \
    X(VPP_INTERLEAVED, "vpp_interleaved",                                      \
      "2 where the schedule is interleaved and nothing says more "             \
      "(torchtitan's default: two stages a rank)")                             \
    X(MICRO_BATCH_STEPS, "micro_batch_steps",                                  \
      "global batch / (dp x accumulation steps)")                              \
    X(MICRO_BATCH_TWIN, "micro_batch_twin",                                    \
      "of another row with the same model, tp, pp and dp")                     \
    X(MICRO_BATCH_WHOLE, "micro_batch_whole",                                  \
      "global batch / dp for Megatron-LM of 2020, which did not accumulate, "  \
      "and for Megatron-Core r0.8 without a pipeline, where nothing asks for " \
      "accumulation")                                                          \
    X(MICRO_BATCH, "micro_batch", "1")                                         \
    X(ZERO, "zero", "1 for Megatron-Core since 2024, else 0")                  \
    X(ZERO_GROUP, "zero_group", "ZeRO-1 with FSDP as ZeRO-3")                  \
    X(HSDP, "hsdp", "HSDP shards within a node")                               \
    X(LORA, "lora",                                                            \
      "rank 16 on linear_qkv, as in the recipes of NeMo and Megatron-Bridge")  \
    X(PACKED, "packed",                                                        \
      "fine-tuning in NeMo's performance summaries: examples of SQuAD packed " \
      "to the sequence, as they say, of some 200 tokens each")                 \
    X(MUON, "muon",                                                            \
      "Muon for Kimi K2 in Megatron-Bridge, whose recipe has it "              \
      "(recipes/kimi/kimi_k2.py), else AdamW")                                 \
    X(VPP_OVERLAP, "vpp_overlap",                                              \
      "interleaved for Megatron-Core r0.8, whose README has pipeline "         \
      "transfers overlapped: chunks of two layers as NeMo 24.07's recipe of "  \
      "GPT-3, of one where that does not divide")                              \
    X(STRONG_SCALING, "strong_scaling",                                        \
      "Megatron-LM's strong scaling of GPT-3 on H100: tp 8, pp 6, dp = GPUs "  \
      "/ 48, interleaved in chunks of two layers as NeMo 24.07's recipe of "   \
      "that model; scored by the slope alone")                                 \
    X(SP, "seq_parallel",                                                      \
      "with tp > 1 for Megatron-Core since 2024 and nanotron (its "            \
      "benchmark's "                                                           \
      "REDUCE_SCATTER mode), else no")                                         \
    X(TIED, "tied",                                                            \
      "nanotron's scaling_benchmarks.py ties the embedding where ffn < 10000") \
    X(OFFLOAD, "offload",                                                      \
      "BigScience's V100 runs with ZeRO-3: checkpoints (PA_CPU), optimizer "   \
      "and weights in the host's memory where the table or its section says "  \
      "so")                                                                    \
    X(ETP, "etp",                                                              \
      "the tensor-parallel ways, Megatron-Core's default; 1 for "              \
      "Megatron-Bridge, whose recipes say so")                                 \
    X(MEGASCALE, "megascale",                                                  \
      "MegaScale's Megatron-LM of 2023: sequence parallelism and selective "   \
      "recomputation (Korthikanti et al.), without which it does not fit")     \
    X(CP_FORM, "cp_form",                                                      \
      "a2a for SimuMax's runs on B200 (--cp-comm-type a2a, its guide to "      \
      "repeating them, section 7), else what the row says, or p2p")            \
    X(RECIPE, "recipe",                                                        \
      "the published recipe of the release, model, device and layout "         \
      "(recipes.csv): recomputation and offload where the row says none, "     \
      "CUDA graphs, the experts' dispatcher and capacity")                     \
    X(RECOMPUTE, "recompute", "none")                                          \
    X(DTYPE, "dtype", "bf16")                                                  \
    X(SCHEDULE, "schedule", "1f1b, or interleaved-1f1b with vpp > 1")          \
    X(ZERO_BUBBLE, "zero_bubble",                                              \
      "zb-h1 for ZB-1p, zb-h2 for ZB-2p, zb-v for ZB-V; global batch from "    \
      "the "                                                                   \
      "micro-batches")                                                         \
    X(LAYERS, "layers",                                                        \
      "one layer less on the first and the last stage where that makes the "   \
      "others equal; modules of multi-token prediction and their head as "     \
      "layers of the last stage; InternEvo's last stages have one more; else " \
      "even")                                                                  \
    X(ATTENTION, "attention",                                                  \
      "unfused with dropout masks for Megatron before flash attention, else "  \
      "flash without dropout")                                                 \
    X(GRAD_DTYPE, "grad_dtype",                                                \
      "fp16 for fp16 training, bf16 for Megatron-Core with overlap (not for "  \
      "Megatron-LM's own script, arguments.py), else fp32")                    \
    X(STACK, "stack", "training stack by the framework's name")                \
    X(GPU_VARIANT, "gpu_variant",                                              \
      "memory and bandwidth as the GPU's name says; clock by the cube root "   \
      "of its power over the usual one")                                       \
    X(SYSTEM, "system",                                                        \
      "the site's own node where the database has it, else the DGX of the "    \
      "GPU; NICs and network as the row says")                                 \
    X(GLOBAL_BATCH, "global_batch",                                            \
      "where memory alone was measured: micro-batch x dp x pp")                \
    X(FINETUNE, "finetune",                                                    \
      "fine-tuning tables: the longest sequence of the data; one replica a "   \
      "GPU, sharded (ZeRO-3) where there are several; LitGPT's LoRA of rank "  \
      "8 on attention, torchtune's of 16 on all with recomputation")           \
    X(PROFILE, "profile",                                                      \
      "Galvatron's profile: A100, one micro-batch a replica, gpipe, ZeRO-3; "  \
      "4096 tokens unless the source's name gives a length")                   \
    X(STEP_TIME, "step_time",                                                  \
      "measured: from tokens/s, samples/s or TFLOP/s and their definition")

/* X(name, "what", what a source measured) */
#define MW_MEMORY_MAP(X)                                                       \
    X(ALLOCATED, "allocated", "tensors at the high-water mark")                \
    X(RESERVED, "reserved", "what the caching allocator held for them")        \
    X(DEVICE, "device", "that, the context and communicators: nvidia-smi")     \
    X(STATES, "states", "tensors between two steps' activations")              \
    X(KEPT, "kept", "activations between forward and backward pass")           \
    X(OVER, "over states", "high-water mark of tensors, less the states")

enum mw_memory_kind {
#define MW_MEMORY_ENUM(name, key, text) MW_MEMORY_##name,
    MW_MEMORY_MAP(MW_MEMORY_ENUM)
#undef MW_MEMORY_ENUM
        MW_MEMORY_KIND_COUNT
};
const char *mw_memory_kind_name(enum mw_memory_kind kind);
const char *mw_memory_kind_text(enum mw_memory_kind kind);

enum mw_fill {
#define MW_FILL_ENUM(name, key, text) MW_FILL_##name,
    MW_FILL_MAP(MW_FILL_ENUM)
#undef MW_FILL_ENUM
        MW_FILL_COUNT
};
const char *mw_fill_name(enum mw_fill fill);
const char *mw_fill_text(enum mw_fill fill);
/* Does the rule stand in for an empty cell of a column? The others say what no
 * column does (the stack of a framework's name, its kernels, a machine) or
 * what follows from other cells. */
bool mw_fill_is_guess(enum mw_fill fill);

/* One measured figure of memory, in bytes of the fullest rank (or of the rank
 * that the source names), and the prediction by the same definition. */
struct mw_validate_memory {
    enum mw_memory_kind kind;
    double measured_bytes, predicted_bytes;
};
enum { MW_MEMORY_PER_ROW = 3 };

struct mw_validate_row {
    const char *file, *id, *model;
    const char *group;     /* framework (or method) and GPU */
    const char *layout;    /* "tp8 pp4 vpp3 dp32 mbs2 full" */
    const char *job;       /* rows with the same one are alternatives */
    const char *stack;     /* training stack that prices it; NULL: skipped */
    const char *device;    /* slug of its GPU; NULL: skipped */
    const char *peers;     /* rows with the same one compare by tokens/s/GPU */
    double tokens_per_gpu; /* of a step */
    int line;
    const char *family; /* "dense bf16", "MoE fp8", "MoE with sinks bf16" */
    const char *cell;   /* rows with the same one are near copies, or share
                           what makes them: left out together in a fit */
    const char *series; /* rows with the same one differ in micro-batch only */
    double micro_batch;
    bool is_noisy;       /* its series scatters by itself; see noise.c */
    bool is_unmeasured;  /* one of its kernels is in no table, and priced as
                            another: no constant is fitted on it */
    const char *skipped; /* reason, NULL when predicted */
    uint64_t fills;      /* bits of enum mw_fill */
    double measured_s;   /* 0: none, memory alone is predicted */
    double predicted_s;
    double full_rate_s; /* at an MFU of 1 */
    double breakdown_s[MW_SPAN_KIND_COUNT];
    double peak_bytes;
    bool fits;   /* what the allocator holds, context and communicators are no
                    more than the device has */
    bool is_oom; /* measured to run out of memory: no time */
    struct mw_validate_memory memory[MW_MEMORY_PER_ROW];
    int n_memory;          /* the first one is the row's own figure */
    struct mw_case *state; /* private */
};

struct mw_validate_group {
    const char *name;
    uint64_t rows; /* predicted ones */
    double mape, median_ape, p90_ape, bias;
    double order_rate, regret_median; /* NaN without alternatives */
    uint64_t memory_rows; /* figures of memory: the rows' own, with a peak */
    double memory_mape, memory_bias;
    uint64_t oom_rows, oom_right; /* ran out, and predicted not to fit */
    uint64_t ran_rows, ran_right; /* ran, and predicted to fit */
};

/* Errors of one kind of measured memory in one group of rows. */
struct mw_memory_group {
    const char *name; /* "Megatron-LM, A100-SXM4-80GB" */
    enum mw_memory_kind kind;
    uint64_t rows;
    double mape, median_ape, p90_ape, p99_ape, bias;
};

/* A superseded row: how far its time lies from the newest release's of the same
 * run, |older / newest - 1|. */
struct mw_release_pair {
    const char *file;
    double difference;
    bool is_same_layout; /* and same precision, to the letter */
};

struct mw_validate {
    struct mw_arena arena;
    const struct mw_hwdb *db;
    const char *model;     /* only rows whose model contains this; NULL: all */
    const char *id_prefix; /* only rows whose id begins so; NULL: all */
    struct {
        struct mw_validate_row *v;
        size_t n, cap;
    } rows;
    struct {
        struct mw_validate_group *v;
        size_t n, cap;
    } groups;
    struct mw_validate_group overall;
    struct mw_validate_group quiet; /* overall without noisy rows */
    struct {
        struct mw_memory_group *v;
        size_t n, cap;
    } memory; /* by group and kind, in order of first appearance */
    struct mw_memory_group
        memory_overall; /* every figure; kind means nothing */
    struct {
        struct mw_release_pair *v;
        size_t n, cap;
    } releases;
    /* Time of rows whose table says all that it has columns for, and of rows
     * where a rule stood in for an empty cell (mw_fill_is_guess). */
    struct mw_validate_group specified, filled;
};

void mw_validate_init(struct mw_validate *v, const struct mw_hwdb *db);
void mw_validate_release(struct mw_validate *v);
/* Reads a file and predicts its rows. MW_EINPUT for a file that is wrong (a
 * row that cannot be expressed is no error). */
enum mw_status mw_validate_add(struct mw_validate *v, const char *path,
                               struct mw_err *err);
/* Predicts row i again, by the fast form, with the constants that the database
 * has now: for fitting. 0 when it cannot be predicted. */
double mw_validate_again(struct mw_validate *v, size_t i);
/* The same for the row's figures of memory, in place: predicted_bytes and
 * fits. False when there is nothing to predict. */
bool mw_validate_memory_again(struct mw_validate *v, size_t i);
/* Was the row's time measured and predicted? */
static inline bool mw_validate_is_timed(const struct mw_validate_row *r)
{
    return r->skipped == NULL && r->measured_s > 0;
}
/* Did a rule stand in for an empty cell of the row (mw_fill_is_guess)? */
bool mw_validate_is_filled(const struct mw_validate_row *r);
/* Rows that were predicted, in time or in memory. */
uint64_t mw_validate_predicted(const struct mw_validate *v);
/* Statistics of all rows so far: groups in order of first appearance. */
void mw_validate_finish(struct mw_validate *v);

/* Statistics of n rows (skipped ones are left out). */
void mw_validate_stats(const struct mw_validate_row *const *rows, size_t n,
                       struct mw_validate_group *out);
/* Errors of n ratios predicted / measured: fills all but name and kind. */
void mw_memory_stats(const double *ratio, size_t n,
                     struct mw_memory_group *out);

/* One job with at least three layouts: what the prediction picks. */
struct mw_validate_job {
    size_t n_layouts;
    const struct mw_validate_row *picked, *best;
    double regret;
};
/* Pairs of one model, device, type and framework whose measured rates differ
 * by more than 3 %; right: those predicted in that order, equal ones half. */
struct mw_pair_order {
    uint64_t n;
    double right;
};
struct mw_validate_regret {
    struct {
        struct mw_validate_job *v;
        size_t n, cap;
    } jobs;
    double mean, max;           /* of the regrets; mean NaN without jobs */
    struct mw_pair_order runs;  /* every two rows */
    struct mw_pair_order quiet; /* neither row is noisy */
    struct mw_pair_order other; /* neither row's job is in jobs */
    /* Every two layouts, runs of one layout and job counting once, with the
     * fastest: repeats have no order that a layout could tell. */
    struct mw_pair_order layouts, other_layouts;
    double runs_possible; /* the most of runs that could be right, given that
                             rows of one layout and job are predicted alike */
};
/* Of all rows so far, which must outlive it. Release with the next. */
void mw_validate_regret(const struct mw_validate *v,
                        struct mw_validate_regret *out);
void mw_validate_regret_release(struct mw_validate_regret *r);

/* What the same runs differ by between releases: a floor of the error of any
 * prediction that does not know the release. */
struct mw_release_floor {
    uint64_t runs;
    double median, p90, far; /* of differences; far: the part above 5 % */
};
/* Of one file, or all (NULL); with one_layout, of pairs of one layout and
 * precision alone. NaN without runs. */
void mw_release_floor(const struct mw_validate *v, const char *file,
                      bool one_layout, struct mw_release_floor *out);

#endif
