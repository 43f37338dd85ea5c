/*
 * What one unit occupies on a rank: parameters of its shard and activations of
 * one micro-batch. The parameter table is that of a model cut down to the
 * first layers, as far as both kinds of layers are in it: equal layers have
 * equal tensors, and the table of hundreds of layers is not needed for sums.
 * Under adapters the model's own weights are frozen and the adapters are what
 * has gradients and optimizer state.
 */
#include "sim/step/step_int.h"

#include <math.h>
#include <string.h>

enum mw_step_unit mw_step_unit_of(const struct mw_step_price *p,
                                  const struct mw_param *param, int n_layers)
{
    if (param->layer < 0) {
        return MW_UNIT_EMBEDDING;
    }
    if (param->layer >= n_layers) {
        return param->is_mtp && p->layout->mtp_ahead > 0 ? MW_UNIT_MTP
                                                         : MW_UNIT_HEAD;
    }
    if (param->layer == p->layer[MW_UNIT_DENSE]) {
        return MW_UNIT_DENSE;
    }
    return param->layer == p->layer[MW_UNIT_MOE] ? MW_UNIT_MOE : MW_UNIT_COUNT;
}

static void count_learning(struct mw_step_price *p,
                           const struct mw_params *params, int n_layers)
{
    for (size_t i = 0; i < params->n; i++) {
        const struct mw_param *param = &params->v[i];
        enum mw_step_unit unit = mw_step_unit_of(p, param, n_layers);
        double n = (double)mw_param_shard_count(param, p->layout);

        if (unit == MW_UNIT_COUNT) {
            continue;
        }
        mw_step_count_update(p, param, &p->size[unit]);
        if (param->shard == MW_SHARD_EXPERT) {
            p->size[unit].expert_params += n;
            p->size[unit].expert_tensors++;
            continue;
        }
        p->size[unit].dense_params += n;
        p->size[unit].dense_tensors++;
        /* Positions are added to rows of all ranks. */
        if (param->shard == MW_SHARD_NONE &&
            strcmp(param->name, "embed.position") != 0) {
            p->size[unit].shared_params += n;
        }
    }
}

static void count_frozen(struct mw_step_price *p,
                         const struct mw_params *params, int n_layers)
{
    for (size_t i = 0; i < params->n; i++) {
        const struct mw_param *param = &params->v[i];
        enum mw_step_unit unit = mw_step_unit_of(p, param, n_layers);
        bool is_4bit =
            p->work.base_dtype == MW_BASE_NF4 && mw_param_is_quantised(param);
        bool is_expert = param->shard == MW_SHARD_EXPERT;
        double n = (double)mw_param_shard_count(param, p->layout);

        if (unit == MW_UNIT_COUNT) {
            continue;
        }
        *(is_expert ? &p->size[unit].frozen_expert_bytes
                    : &p->size[unit].frozen_dense_bytes) +=
            n * (is_4bit ? MW_NF4_BYTES : p->weight_bytes);
        if (is_4bit) {
            p->size[unit].spread_bytes =
                fmax(p->size[unit].spread_bytes, n * p->weight_bytes);
        }
    }
}

static void count_params(struct mw_step_price *p)
{
    struct mw_model small = p->scenario->model;
    struct mw_params params = {NULL, 0, 0}, adapters = {NULL, 0, 0};
    int last = p->layer[MW_UNIT_DENSE] > p->layer[MW_UNIT_MOE]
                   ? p->layer[MW_UNIT_DENSE]
                   : p->layer[MW_UNIT_MOE];

    small.n_layers = last + 1;
    mw_model_params(&small, &params);
    if (p->work.lora_rank > 0) {
        mw_lora_params(&params, p->work.lora_rank, p->work.lora_targets,
                       &adapters);
        count_frozen(p, &params, small.n_layers);
        count_learning(p, &adapters, small.n_layers);
    } else {
        count_learning(p, &params, small.n_layers);
    }
    mw_step_count_shapes(p, &params, small.n_layers);
    mw_array_release(&params);
    mw_array_release(&adapters);
}

double mw_unit_dense_bytes(const struct mw_step_price *p,
                           const struct mw_unit_size *size)
{
    return size->dense_params * p->weight_bytes + size->frozen_dense_bytes;
}

double mw_unit_expert_bytes(const struct mw_step_price *p,
                            const struct mw_unit_size *size)
{
    return size->expert_params * p->weight_bytes + size->frozen_expert_bytes;
}

void mw_step_size_units(struct mw_step_price *p)
{
    count_params(p);
    mw_step_size_memory(p);
}
