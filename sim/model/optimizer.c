/*
 * Optimizers' states and traffic; see optimizer.h for formulas and sources.
 * Muon needs whole matrices: replicas either all do the same, or each is dealt
 * whole ones (Megatron-LM's layer-wise distributed optimizer), which is ZeRO-1
 * here. Left out: Muon over shards of FSDP, which gathers them first.
 */
#include "sim/model/optimizer.h"

#include "sim/model/model.h"

#include <string.h>

const struct mw_enum mw_optimizer_enums[] = {
    {"adamw", MW_OPTIMIZER_ADAMW},
    {"sgd", MW_OPTIMIZER_SGD},
    {"sgd-momentum", MW_OPTIMIZER_MOMENTUM},
    {"adam8bit", MW_OPTIMIZER_ADAM8BIT},
    {"muon", MW_OPTIMIZER_MUON},
    {"adafactor", MW_OPTIMIZER_ADAFACTOR},
    {NULL, 0}};
const struct mw_enum mw_main_params_enums[] = {{"fp32", MW_MAIN_FP32},
                                               {"fp16", MW_MAIN_FP16},
                                               {"none", MW_MAIN_NONE},
                                               {NULL, 0}};

const struct mw_state_set mw_state_sets[MW_STATE_SETS] = {
    {"fp32", MW_MAIN_FP32, MW_FP32, MW_FP32},
    {"bf16", MW_MAIN_FP32, MW_BF16, MW_BF16},
    {"fp8", MW_MAIN_FP32, MW_FP8, MW_FP8},
    {"fp16", MW_MAIN_FP16, MW_FP16, MW_FP16},
    {"fp8-lm", MW_MAIN_FP16, MW_FP8, MW_FP16}};

/* bitsandbytes/optim/optimizer.py: min_8bit_size, block size. */
enum { SMALL_ELEMENTS = 4096, BLOCK_ELEMENTS = 256 };
static const double fp32_bytes = 4;
static const double adam8bit_bytes = 2 * (1 + 4.0 / BLOCK_ELEMENTS);

const char *mw_optimizer_name(enum mw_optimizer_kind kind)
{
    const struct mw_enum *e = mw_optimizer_enums;

    while (e->name != NULL && e->value != (int)kind) {
        e++;
    }
    return e->name != NULL ? e->name : "?";
}

bool mw_optimizer_has_exp_avg(const struct mw_optimizer *o)
{
    return o->kind == MW_OPTIMIZER_ADAMW || o->kind == MW_OPTIMIZER_MOMENTUM ||
           o->kind == MW_OPTIMIZER_MUON;
}

bool mw_optimizer_has_exp_avg_sq(const struct mw_optimizer *o)
{
    return o->kind == MW_OPTIMIZER_ADAMW || o->kind == MW_OPTIMIZER_MUON;
}

bool mw_optimizer_has_main(const struct mw_optimizer *o, enum mw_dtype dtype)
{
    return dtype != MW_FP32 && dtype != MW_TF32 && o->main != MW_MAIN_NONE;
}

/* Of a large matrix, without the main copy. */
static double moment_bytes(const struct mw_optimizer *o)
{
    switch (o->kind) {
    case MW_OPTIMIZER_ADAMW:
        return mw_dtype_bytes(o->exp_avg) + mw_dtype_bytes(o->exp_avg_sq);
    case MW_OPTIMIZER_MOMENTUM:
    case MW_OPTIMIZER_MUON:
        return mw_dtype_bytes(o->exp_avg);
    case MW_OPTIMIZER_ADAM8BIT:
        return adam8bit_bytes;
    case MW_OPTIMIZER_SGD:
    case MW_OPTIMIZER_ADAFACTOR:
        break;
    }
    return 0;
}

static double main_bytes(const struct mw_optimizer *o, enum mw_dtype dtype)
{
    return !mw_optimizer_has_main(o, dtype) ? 0
           : o->main == MW_MAIN_FP16        ? 2
                                            : fp32_bytes;
}

double mw_optimizer_bytes(const struct mw_optimizer *o, enum mw_dtype dtype)
{
    return main_bytes(o, dtype) + moment_bytes(o);
}

/* A norm's weight and a bias have one column. */
static bool is_matrix(const struct mw_param *p)
{
    return !p->is_norm_or_bias;
}

bool mw_optimizer_is_muon_matrix(const struct mw_optimizer *o,
                                 const struct mw_param *p)
{
    return o->kind == MW_OPTIMIZER_MUON && is_matrix(p) && p->layer >= 0 &&
           strcmp(p->name, "head.weight") != 0;
}

bool mw_optimizer_is_uniform(const struct mw_optimizer *o)
{
    return o->kind == MW_OPTIMIZER_ADAMW || o->kind == MW_OPTIMIZER_SGD ||
           o->kind == MW_OPTIMIZER_MOMENTUM;
}

double mw_optimizer_more_bytes(const struct mw_optimizer *o,
                               const struct mw_param *shard)
{
    double n = (double)mw_param_count(shard);
    double copies = (double)shard->n_copies;

    switch (o->kind) {
    case MW_OPTIMIZER_ADAM8BIT:
        return n / copies < SMALL_ELEMENTS
                   ? n * (2 * fp32_bytes - adam8bit_bytes)
                   : 0;
    case MW_OPTIMIZER_MUON:
        return mw_optimizer_is_muon_matrix(o, shard)
                   ? 0
                   : n * mw_dtype_bytes(o->exp_avg_sq);
    case MW_OPTIMIZER_ADAFACTOR:
        return fp32_bytes *
               (is_matrix(shard)
                    ? copies *
                          (double)(shard->outer * shard->rows + shard->cols)
                    : n);
    case MW_OPTIMIZER_ADAMW:
    case MW_OPTIMIZER_SGD:
    case MW_OPTIMIZER_MOMENTUM:
        break;
    }
    return 0;
}

double mw_optimizer_traffic_bytes(const struct mw_optimizer *o,
                                  enum mw_dtype dtype, double grad_bytes,
                                  double weight_bytes)
{
    bool has_main = mw_optimizer_has_main(o, dtype);
    double readings = o->kind == MW_OPTIMIZER_ADAFACTOR ? 3 : 1;
    double updated =
        mw_optimizer_bytes(o, dtype) + (has_main ? 0 : weight_bytes);

    return readings * grad_bytes + 2 * updated + (has_main ? weight_bytes : 0);
}

const char *mw_optimizer_refuses(const struct mw_optimizer *o,
                                 const struct mw_layout *layout)
{
    bool is_muon = o->kind == MW_OPTIMIZER_MUON;

    if (is_muon && layout->zero >= 2) {
        return "optimizer muon needs whole matrices of gradients; zero is 0, "
               "or 1 to deal them out to replicas";
    }
    if (is_muon && layout->dp_shard > 0 && layout->dp_shard < layout->dp) {
        return "optimizer muon deals matrices out over all of dp; leave "
               "dp_shard out";
    }
    if (is_muon && layout->offload_optimizer > 0) {
        return "optimizer muon multiplies matrices on the device; set "
               "offload_optimizer to 0";
    }
    if (layout->grad_compression == MW_COMPRESS_ONEBIT &&
        (o->kind != MW_OPTIMIZER_ADAMW || o->exp_avg != MW_FP32)) {
        return "grad_compression onebit sends an fp32 momentum of Adam; take "
               "optimizer adamw with exp_avg_dtype fp32";
    }
    return NULL;
}
