/*
 * Software profiles: what a training framework does when nobody says
 * otherwise. An empty cell of a measurement file, or an option that a scenario
 * does not give, takes its profile's value.
 *
 * The table (data/profiles.csv) has one row a figure, with its own source:
 * framework, version range [from_version, to_version), model family, field,
 * value. Of the rows that apply, one for the family goes before one for all
 * families, and the framework's before that of the framework "any", which has
 * every field. Versions are compared by their numbers: 24.07 < 24.12 < 25.2,
 * 2021.01 < 2021.4; what is no digit separates.
 *
 *   struct mw_profile p;
 *   mw_hwdb_profile(db, "megatron-bridge", "26.06", "llama", &p, &err);
 *   p.cell[MW_PROFILE_OVERLAP_P2P].value        "interleaved"
 *   p.cell[MW_PROFILE_OVERLAP_P2P].source       where that is written
 *   mw_profile_number(&p, MW_PROFILE_COMM_SMS_TP_REDUCE)  24
 */
#ifndef MW_HWDB_PROFILE_H
#define MW_HWDB_PROFILE_H

#include "hwdb/hwdb.h"

/* X(name, "column value", "allowed values; # is a number >= 0") */
#define MW_PROFILE_MAP(X)                                                      \
    X(ATTENTION, "attention", "flash;unfused")                                 \
    X(FUSIONS, "fusions",                                                      \
      "none;softmax;bias-gelu;bias-dropout-add;norm;swiglu;rope;"              \
      "cross-entropy;permute;compile")                                         \
    X(LAUNCHES_FORWARD, "launches_forward", "#")                               \
    X(LAUNCHES_BACKWARD, "launches_backward", "#")                             \
    X(GRAD_REDUCE_DTYPE, "grad_reduce_dtype", "fp32;bf16;fp16;model")          \
    X(BUCKET, "bucket_elements", "all;block;#")                                \
    X(BUCKET_PER_RANK, "bucket_elements_per_rank", "#")                        \
    X(FSDP_PREFETCH, "fsdp_prefetch", "#")                                     \
    X(OVERLAP_GRAD_REDUCE, "overlap_grad_reduce", "yes;no")                    \
    X(OVERLAP_PARAM_GATHER, "overlap_param_gather", "yes;no")                  \
    X(OVERLAP_TP, "overlap_tp", "yes;no")                                      \
    X(OVERLAP_P2P, "overlap_p2p", "yes;no;interleaved")                        \
    X(OVERLAP_EP, "overlap_ep", "yes;no")                                      \
    X(RECOMPUTE, "recompute", "none;selective;full")                           \
    X(CUDA_GRAPH, "cuda_graph", "none;layer;iteration")                        \
    X(COMM_SMS, "comm_sms", "nccl;#")                                          \
    X(COMM_SMS_TP_GATHER, "comm_sms_tp_gather", "nccl;#")                      \
    X(COMM_SMS_TP_REDUCE, "comm_sms_tp_reduce", "nccl;#")                      \
    X(COMM_SMS_EP, "comm_sms_ep", "nccl;#")

/*
 * attention          of the core: one fused kernel, or products and softmax
 * fusions            ';' separated; of more than one operator into a kernel
 * launches_*         kernels per dense layer and micro-batch
 * grad_reduce_dtype  "model": the parameters' own
 * bucket_elements    gradients of one reduction: a number, "block" (one wrapped
 *                    layer) or "all" (after the backward pass); at least
 *                    bucket_elements_per_rank times the data-parallel ranks
 * fsdp_prefetch      units that ZeRO-3 gathers ahead of the one that computes
 * overlap_*          with computation; p2p "interleaved": where a stage has
 *                    several chunks
 * cuda_graph         what is captured
 * comm_sms           multiprocessors that overlapped communication takes:
 *                    "nccl", the channels that NCCL chooses for it, or as many
 * comm_sms_tp_*      of tensor parallelism's gathers, and its reductions
 * comm_sms_ep        of kernels made for experts' dispatch and combine
 */
enum mw_profile_field {
#define MW_PROFILE_ENUM(name, text, values) MW_PROFILE_##name,
    MW_PROFILE_MAP(MW_PROFILE_ENUM)
#undef MW_PROFILE_ENUM
        MW_PROFILE_FIELDS
};
const char *mw_profile_field_name(enum mw_profile_field field);

struct mw_profile_cell {
    const char *value, *source, *confidence;
    const char *framework; /* whose row it is: "any" is a general default */
};
struct mw_profile {
    struct mw_profile_cell cell[MW_PROFILE_FIELDS];
};

/*
 * The profile of a framework. version NULL or "": the newest; family NULL or
 * "": none in particular. Any case. Strings live as long as db. An unknown
 * framework is MW_EINPUT naming the nearest; an unknown family is not: it has
 * the rows of all families.
 */
enum mw_status mw_hwdb_profile(const struct mw_hwdb *db, const char *framework,
                               const char *version, const char *family,
                               struct mw_profile *out, struct mw_err *err);
/* i-th framework in the order of the table, NULL past the end. */
const char *mw_hwdb_profile_framework(const struct mw_hwdb *db, size_t i);

bool mw_profile_is(const struct mw_profile *profile,
                   enum mw_profile_field field, const char *value);
/* Of a ';' separated field. */
bool mw_profile_has(const struct mw_profile *profile,
                    enum mw_profile_field field, const char *item);
/* NaN when the value is no number. */
double mw_profile_number(const struct mw_profile *profile,
                         enum mw_profile_field field);
/* < 0, 0, > 0 as version a is before, equal to or after b. */
int mw_profile_version_cmp(const char *a, const char *b);

#endif
