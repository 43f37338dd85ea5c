/*
 * A YAML file of Nanotron 0.4 (fields of src/nanotron/config) for a Llama-like
 * model. How many layers a stage gets is not in it: a note says how Nanotron
 * splits them (planner/nanotron_split.h), where the plan does otherwise.
 */
#include "planner/export/export_int.h"

#include "planner/nanotron_split.h"

#include <math.h>
#include <string.h>
#include <strings.h>

static enum mw_status check(const struct mw_export_in *in, struct mw_err *err)
{
    const struct mw_model *m = &in->scenario->model;

    if (m->norm != MW_NORM_RMS || !m->is_gated ||
        m->position != MW_POS_ROTARY || m->moe.n_experts > 0 || m->mla.on ||
        m->qk_norm || m->bias_mlp) {
        return mw_export_refuse(err, "nanotron_model",
                                "'%s' is no Llama (RMSNorm, rotary positions, "
                                "SwiGLU, no biases, no experts)",
                                m->name);
    }
    return MW_OK;
}

static const char *dtype_of(enum mw_dtype dtype)
{
    return dtype == MW_FP16 ? "float16" : "bfloat16";
}

/* MiB of gradients, which are summed in fp32; Nanotron's own default is 25. */
static int bucket_cap(const struct mw_layout *l)
{
    double mib = l->bucket_size * 4.0 / (1 << 20);

    return l->bucket_size == 0 ? 25 : (int)fmax(1, round(mib));
}

static void put_model(const struct mw_export_in *in, struct mw_str *f)
{
    const struct mw_model *m = &in->scenario->model;
    const struct mw_workload *w = &in->scenario->workload;
    long long seq = m->max_seq > w->seq ? m->max_seq : w->seq;

    mw_str_addf(f,
                "model:\n  ddp_bucket_cap_mb: %d\n  dtype: %s\n"
                "  init_method: {std: 0.02}\n"
                "  make_vocab_size_divisible_by: 1\n  model_config:\n"
                "    is_llama_config: true\n    hidden_act: silu\n"
                "    hidden_size: %d\n    intermediate_size: %d\n"
                "    num_hidden_layers: %d\n    num_attention_heads: %d\n"
                "    num_key_value_heads: %d\n"
                "    max_position_embeddings: %lld\n    vocab_size: %d\n"
                "    tie_word_embeddings: %s\n    attention_bias: %s\n",
                bucket_cap(&in->plan->layout), dtype_of(w->dtype), m->hidden,
                m->ffn, m->n_layers, m->n_heads, m->n_kv_heads, seq, m->vocab,
                m->tied ? "true" : "false", m->bias_qkv ? "true" : "false");
}

static void put_parallelism(const struct mw_export_in *in, struct mw_str *f)
{
    const struct mw_layout *l = &in->plan->layout;

    mw_str_addf(f,
                "parallelism:\n  dp: %d\n  pp: %d\n  tp: %d\n"
                "  pp_engine: %s\n  tp_mode: %s\n"
                "  tp_linear_async_communication: false\n"
                "  recompute_layer: %s\n  context_parallel_size: %d\n"
                "  expert_parallel_size: %d\n",
                l->dp, l->pp, l->tp,
                strcasecmp(l->schedule, "gpipe") == 0 ? "afab" : "1f1b",
                l->sp ? "REDUCE_SCATTER" : "ALL_REDUCE",
                l->recompute == MW_RECOMPUTE_FULL ? "true" : "false", l->cp,
                l->ep);
}

static void put_rest(const struct mw_export_in *in, struct mw_str *f)
{
    const struct mw_workload *w = &in->scenario->workload;

    mw_str_addf(f,
                "optimizer:\n  accumulate_grad_in_fp32: %s\n  clip_grad: %s\n"
                "  learning_rate_scheduler: {learning_rate: 0.00015, "
                "lr_decay_starting_step: null, lr_decay_steps: 900, "
                "lr_decay_style: cosine, lr_warmup_steps: 100, "
                "lr_warmup_style: linear, min_decay_lr: 1.5e-05}\n"
                "  optimizer_factory: %s\n"
                "  weight_decay: 0.1\n  zero_stage: %d\n",
                w->grad_dtype == MW_FP32 ? "true" : "false",
                w->clip == MW_CLIP_NONE ? "null" : "1.0",
                w->optimizer.kind == MW_OPTIMIZER_SGD
                    ? "{name: sgd}"
                    : "{adam_beta1: 0.9, adam_beta2: 0.95, adam_eps: 1.0e-08, "
                      "name: adamW, torch_adam_is_fused: true}",
                in->plan->layout.zero);
    mw_str_addf(f,
                "tokens:\n  sequence_length: %lld\n  micro_batch_size: %d\n"
                "  batch_accumulation_per_replica: %d\n  train_steps: 1000\n"
                "  val_check_interval: -1\n  limit_val_batches: 0\n"
                "  limit_test_batches: 0\n",
                (long long)w->seq, in->plan->layout.micro_batch,
                in->plan->n_microbatches);
}

/* What Nanotron makes of the layers, where it is not the plan's. */
static void note_layers(const struct mw_export_in *in, struct mw_export *out)
{
    int pp = in->plan->layout.pp;
    int *own = mw_calloc((size_t)pp, sizeof *own);
    struct mw_str text = {NULL, 0, 0};

    mw_nanotron_split(&in->scenario->model, pp, own);
    if (memcmp(own, in->plan->layers, (size_t)pp * sizeof *own) != 0) {
        for (int k = 0; k < pp; k++) {
            mw_str_addf(&text, "%s%d", k > 0 ? ", " : "", own[k]);
        }
        mw_export_note(out,
                       "no key says a stage's layers: Nanotron's own estimate "
                       "of costs gives it [%.200s], which layout: layers "
                       "prices",
                       text.s);
        mw_str_release(&text);
    }
    mw_free(own);
}

enum mw_status mw_export_nanotron(const struct mw_export_in *in,
                                  struct mw_export *out, struct mw_err *err)
{
    enum mw_status status = check(in, err);

    if (status != MW_OK) {
        return status;
    }
    mw_str_add(&out->file,
               "general: {project: plan, run: plan, seed: 42, "
               "ignore_sanity_checks: true}\n"
               "checkpoints: {checkpoint_interval: 1000, checkpoints_path: "
               "checkpoints, checkpoints_path_is_shared_file_system: true}\n"
               "data_stages:\n- {data: {dataset: null, num_loading_workers: 1, "
               "seed: 42}, name: main, start_training_step: 1}\n"
               "logging: {iteration_step_info_interval: 1, log_level: info, "
               "log_level_replica: warning}\n"
               "tokenizer: {tokenizer_name_or_path: YOUR_TOKENIZER}\n");
    put_model(in, &out->file);
    put_parallelism(in, &out->file);
    put_rest(in, &out->file);
    mw_str_add(&out->launch, "CUDA_DEVICE_MAX_CONNECTIONS=1 ");
    mw_export_torchrun(in, out);
    mw_str_addf(&out->launch, "run_train.py --config-file %s\n", in->file);
    note_layers(in, out);
    return MW_OK;
}
