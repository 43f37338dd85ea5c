/*
 * The rules, and the values that their conditions may name.
 *
 * Sources are files of the frameworks as they stood in August 2026 (Megatron-LM
 * d98e8a64, Megatron-DeepSpeed 4efb479d, TorchTitan b5bcd76c, Nanotron
 * 2411b022) with the line of the check; a rule is as strict as the strictest
 * version it stands for, so a plan that meets it runs on all of them.
 */
#include "planner/rules.h"

#include "planner/rule_expr.h"
#include "sim/pipe/schedule.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* clang-format off */
#define VALUES(X)                                                              \
    X(tp) X(cp) X(pp) X(vpp) X(dp) X(ep) X(etp) X(sp) X(zero) X(micro_batch)   \
    X(recompute) X(schedule) X(order) X(microbatches) X(ranks) X(layers)       \
    X(heads) X(kv_heads) X(experts) X(vocab) X(seq) X(batch) X(dtype) X(tied)  \
    X(uneven) X(node) X(cp_form) X(dp_shard) X(reshard) X(offload_optimizer)   \
    X(offload_weights) X(offload_activations) X(offload_part)       \
    X(grad_compression) X(recompute_layers) X(offload_nvme) X(cp_inner) X(recompute_modules) \
    X(grad_dtype) X(bucket_size) X(own_types) X(packed) X(off_grads) X(off_params) X(off_tp) \
    X(optimizer) X(main_params) X(exp_avg) X(exp_avg_sq) X(cuda_graph) X(loss) X(loss_chunks) \
    X(capacity) X(padded) X(dispatcher) X(topk) X(hidden) X(sm) X(short_dispatch) X(shared_overlap) \
    X(fsdp_unit) X(fsdp_prefetch) X(mtp_ahead) X(clip)
/* clang-format on */
enum value {
#define VALUE_ENUM(name) V_##name,
    VALUES(VALUE_ENUM)
#undef VALUE_ENUM
        VALUE_COUNT
};

#define MEG MW_FRAMEWORK_MEGATRON_CORE
#define MDS MW_FRAMEWORK_MEGATRON_DEEPSPEED
#define TT MW_FRAMEWORK_TORCHTITAN
#define NANO MW_FRAMEWORK_NANOTRON

/* clang-format off */
static const struct mw_rule rules[] = {
    {"megatron_schedule", MEG,
     "pp > 1 -> schedule == '1f1b' || schedule == 'interleaved-1f1b'",
     "{schedule} is not a schedule of Megatron-Core (1f1b, interleaved-1f1b)",
     "Megatron-LM megatron/core/pipeline_parallel/schedules.py"},
    {"megatron_chunks", MEG, "(vpp > 1) == (schedule == 'interleaved-1f1b') || pp == 1",
     "{schedule} with vpp {vpp}: chunks and interleaving go together",
     "Megatron-LM megatron/core/pipeline_parallel/schedules.py get_forward_backward_func"},
    {"megatron_interleaved_group", MEG, "vpp > 1 -> microbatches % pp == 0",
     "interleaving needs micro-batches in multiples of pp {pp}, not {microbatches}",
     "Megatron-LM megatron/core/pipeline_parallel/schedules.py:1159"},
    {"megatron_sp_tp", MEG, "sp -> tp > 1",
     "sequence parallelism needs tp of at least 2",
     "Megatron-LM megatron/core/model_parallel_config.py:504"},
    {"megatron_sp_seq", MEG, "sp -> seq % (cp * lcm(2, tp)) == 0",
     "sequences of {seq} tokens are not a multiple of cp x lcm(2, tp)",
     "Megatron-LM megatron/core/tensor_parallel/mappings.py:73"},
    {"megatron_zero", MEG,
     "zero >= 2 -> pp == 1 && ep == 1 && !tied",
     "ZeRO-{zero} is FSDP here, which excludes pipelines, experts in parallel and tied embeddings",
     "Megatron-LM megatron/training/arguments.py:1031"},
    {"megatron_expert_grid", MEG, "ranks % (etp * ep * pp) == 0",
     "etp {etp} x ep {ep} x pp {pp} does not divide {ranks} ranks",
     "Megatron-LM megatron/core/parallel_state.py:880"},
    {"megatron_order", MEG,
     "order == 'tp-cp-ep-dp-pp' || order == 'tp-cp-ep-pp-dp'",
     "order {order} is not one of tp-cp-ep-dp-pp, tp-cp-ep-pp-dp",
     "Megatron-LM megatron/core/parallel_state.py, --use-tp-pp-dp-mapping"},
    {"megatron_order_experts", MEG,
     "ep > 1 && etp != tp -> order == 'tp-cp-ep-dp-pp'",
     "order {order} with etp other than tp: the pipelines of both grids would differ",
     "Megatron-LM megatron/core/parallel_state.py:898"},
    {"megatron_fp8_rows", MEG,
     "dtype == 'fp8' -> seq * micro_batch % (16 * cp * (sp * tp + !sp)) == 0",
     "FP8 needs token rows in multiples of 16 on each rank",
     "Transformer Engine, shapes of FP8 GEMMs"},
    {"megatron_grad_dtype", MEG,
     "(grad_dtype == 'fp16' -> dtype == 'fp16') && (grad_dtype == 'bf16' -> dtype != 'fp16')",
     "gradients are summed in fp32 or in 16 bits of the kind that is computed in",
     "Megatron-LM megatron/training/arguments.py, --grad-reduce-in-bf16"},
    {"megatron_overlap", MEG, "off_grads && zero >= 1 -> off_params",
     "gathers of parameters overlap where reductions of gradients do",
     "Megatron-LM megatron/training/arguments.py, --overlap-param-gather"},
    {"megatron_bucket", MEG, "bucket_size > 0 -> !off_grads",
     "buckets have no end where the reduction of gradients does not overlap",
     "Megatron-LM megatron/core/distributed/distributed_data_parallel.py, --ddp-bucket-size"},
    {"megatron_optimizers", MEG,
     "dp_shard > 0 -> ranks / (etp * ep * pp) % (dp / dp_shard) == 0",
     "dp_shard {dp_shard} of dp {dp} makes groups that the experts' replicas do not divide into",
     "Megatron-LM megatron/core/parallel_state.py:922, --num-distributed-optimizer-instances"},
    {"megatron_reshard", MEG, "reshard",
     "weights that stay gathered are ZeRO-2 here (optim_grads)",
     "Megatron-LM megatron/training/arguments.py, --data-parallel-sharding-strategy"},
    {"megatron_units", MEG, "fsdp_unit == 1 && fsdp_prefetch != 0",
     "a unit is one layer, and the next one is gathered ahead (overlap_off has param_gather)",
     "Megatron-LM megatron/core/distributed/fsdp/mcore_fsdp_adapter.py, fsdp_unit_modules"},
    {"megatron_compression", MEG, "!grad_compression", "gradients go whole",
     "Megatron-LM megatron/core/distributed/param_and_grad_buffer.py"},
    {"megatron_optimizer", MEG, "optimizer != 'adam8bit' && optimizer != 'adafactor'",
     "{optimizer} is none of adam, sgd, muon",
     "Megatron-LM megatron/training/arguments.py, --optimizer"},
    {"megatron_states", MEG,
     "main_params == 1 || exp_avg != 'fp32' || exp_avg_sq != 'fp32' -> optimizer == 'adamw' && zero >= 1",
     "types of states are a distributed Adam's alone (ZeRO-1 or more)",
     "Megatron-LM megatron/core/optimizer/optimizer_config.py, --use-precision-aware-optimizer"},
    {"megatron_main_params", MEG, "main_params != 2", "weights of 16 bits have a main copy",
     "Megatron-LM megatron/core/optimizer/optimizer_config.py, --main-params-dtype"},
    {"megatron_graph_recompute", MEG, "cuda_graph == 2 || cuda_graph == 3 -> recompute != 'full'",
     "CUDA graphs of layers exclude full recomputation",
     "Megatron-LM megatron/core/transformer/transformer_config.py, cuda_graph_scope"},
    {"megatron_graph_experts", MEG, "cuda_graph == 4 -> experts == 0",
     "routing sends counts to the host: iterations with experts are not captured",
     "Megatron-LM megatron/core/transformer/transformer_config.py, cuda_graph_scope"},
    {"megatron_graph_offload", MEG, "cuda_graph >= 2 -> !offload_activations",
     "CUDA graphs exclude offload of activations",
     "Megatron-LM megatron/core/transformer/transformer_config.py, cpu_offloading"},
    {"megatron_capacity", MEG, "capacity -> dispatcher == 'stack' || dispatcher == 'alltoall'",
     "a capacity of experts goes with the alltoall dispatcher",
     "Megatron-LM megatron/core/transformer/transformer_config.py, moe_expert_capacity_factor"},
    {"megatron_loss", MEG, "loss_chunks <= 1", "head and loss take a micro-batch's tokens at once",
     "Megatron-LM megatron/core/models/gpt/gpt_model.py"},
    {"megatron_mtp", MEG, "mtp_ahead -> pp > 2",
     "multi-token prediction lies in the last chunk of a rank that is not the first: pp {pp} has none before the head's",
     "Megatron-LM megatron/core/transformer/pipeline_parallel_layer_layout.py validate_layer_layout"},
    {"megatron_pass_q", MEG, "cp_form != 'pass_q'", "a ring passes keys and values, not queries",
     "Megatron-LM megatron/core/extensions/transformer_engine.py, cp_comm_type"},
    {"megatron_cp_inner", MEG, "cp_inner > 1 -> cp_form == 'ring'",
     "all-to-alls inside a gather are no type of context parallelism (a2a+p2p is)",
     "Megatron-LM megatron/core/transformer/transformer_config.py, cp_comm_type"},
    {"megatron_nvme", MEG, "!offload_nvme", "nothing goes to drives",
     "Megatron-LM megatron/core/optimizer/cpu_offloading"},
    {"megatron_offload_optimizer", MEG, "offload_optimizer -> zero >= 1",
     "the optimizer is offloaded as a distributed one (ZeRO-1 or more)",
     "Megatron-LM megatron/training/arguments.py:1885"},
    {"megatron_offload_activations", MEG,
     "offload_activations -> pp == 1 && recompute == 'none'",
     "activations are offloaded by layers, without pipelines and recomputation",
     "Megatron-LM megatron/core/transformer/transformer_config.py:1887"},
    {"megatron_recompute_layers", MEG, "recompute_layers > 0 -> recompute == 'full'",
     "a number of recomputed layers (method block) goes with full recomputation",
     "Megatron-LM megatron/training/arguments.py, --recompute-method block"},
    {"megatron_offload_weights", MEG, "!offload_weights", "weights stay on the device",
     "Megatron-LM megatron/core/cpu_offloading"},

    {"mds_schedule", MDS, "pp > 1 -> schedule == '1f1b' || schedule == 'zb-h1'",
     "{schedule} is not a schedule of the DeepSpeed pipeline engine (1f1b, zb-h1)",
     "Megatron-DeepSpeed megatron/arguments.py:79"},
    {"mds_chunks", MDS, "vpp == 1", "the DeepSpeed pipeline engine has no chunks (vpp {vpp})",
     "Megatron-DeepSpeed megatron/arguments.py:173"},
    {"mds_zb_sp", MDS, "schedule == 'zb-h1' -> !sp", "zb-h1 excludes sequence parallelism",
     "Megatron-DeepSpeed megatron/arguments.py:79"},
    {"mds_zero_pp", MDS, "pp > 1 -> zero <= 1", "ZeRO-{zero} excludes pipelines; at most 1 with pp {pp}",
     "DeepSpeed deepspeed/runtime/pipe/engine.py:76"},
    {"mds_moe_zero", MDS, "experts > 0 -> zero <= 2", "experts exclude ZeRO-3",
     "DeepSpeed deepspeed/runtime/engine.py:1890"},
    {"mds_cp", MDS, "cp == 1", "no context parallelism (cp {cp})",
     "Megatron-DeepSpeed megatron/arguments.py"},
    {"mds_order", MDS, "order == 'tp-cp-ep-dp-pp'", "order is fixed: pipe, data, model",
     "DeepSpeed deepspeed/runtime/pipe/topology.py"},
    {"mds_recompute_layers", MDS, "recompute_layers == 0", "all layers are recomputed or none",
     "Megatron-DeepSpeed megatron/model/transformer.py"},
    {"mds_recompute_modules", MDS, "recompute_modules == 0", "whole layers are recomputed, no modules of them",
     "Megatron-DeepSpeed megatron/model/transformer.py"},
    {"mds_overlap", MDS, "!off_tp", "nothing of tensor parallelism overlaps that could be switched",
     "Megatron-DeepSpeed megatron/core/tensor_parallel/layers.py"},
    {"mds_bucket", MDS, "bucket_size > 0 -> zero == 1",
     "reduce_bucket_size is of ZeRO; without it 500,000,000 elements go at once",
     "DeepSpeed deepspeed/runtime/engine.py, MEMORY_OPT_ALLREDUCE_SIZE"},
    {"mds_mtp", MDS, "!mtp_ahead", "nothing predicts several tokens", "Megatron-DeepSpeed megatron/model/gpt_model.py"},
    {"mds_optimizer", MDS, "optimizer == 'adamw' || optimizer == 'sgd' || optimizer == 'sgd-momentum'",
     "{optimizer} is neither adam nor sgd", "Megatron-DeepSpeed megatron/optimizer/__init__.py"},
    {"mds_states", MDS, "main_params == 0 && exp_avg == 'fp32' && exp_avg_sq == 'fp32'",
     "states and main copies are fp32", "DeepSpeed deepspeed/runtime/zero/stage_1_and_2.py"},
    {"mds_graph", MDS, "cuda_graph <= 1", "nothing is captured in CUDA graphs", "DeepSpeed deepspeed/runtime/engine.py"},
    {"mds_dispatcher", MDS, "dispatcher == 'stack' || dispatcher == 'alltoall'", "tokens go by all-to-alls",
     "DeepSpeed deepspeed/moe/sharded_moe.py"},
    {"mds_shared_overlap", MDS, "!shared_overlap", "shared experts compute by themselves", "DeepSpeed deepspeed/moe/layer.py"},
    {"mds_loss", MDS, "loss == 0 && loss_chunks <= 1", "no option chooses the loss", "Megatron-DeepSpeed megatron/model/gpt_model.py"},
    {"mds_dtype", MDS, "dtype != 'fp8' && dtype != 'fp4'", "the engine computes in 32 or 16 bits",
     "DeepSpeed deepspeed/runtime/config.py, fp16 and bf16"},
    {"mds_dp_shard", MDS, "dp_shard > 0 -> zero == 3", "groups of replicas (MiCS, hpZ) need ZeRO-3, not {zero}",
     "DeepSpeed deepspeed/runtime/zero/mics.py"},
    {"mds_reshard", MDS, "reshard", "ZeRO-3 frees what it gathered", "DeepSpeed deepspeed/runtime/zero/partitioned_param_coordinator.py"},
    {"mds_units", MDS, "fsdp_unit == 1", "modules are gathered as they are called, never several layers at once",
     "DeepSpeed deepspeed/runtime/zero/partitioned_param_coordinator.py"},
    {"mds_compression", MDS, "grad_compression == 1 -> experts == 0",
     "1-bit Adam reduces all gradients over one group, experts have their own",
     "DeepSpeed deepspeed/runtime/comm/nccl.py"},
    {"mds_nvme", MDS, "offload_nvme -> zero == 3", "drives need ZeRO-3, not {zero}",
     "DeepSpeed deepspeed/runtime/zero/offload_config.py"},
    {"mds_offload_optimizer", MDS, "offload_optimizer -> zero >= 1", "optimizer offload needs ZeRO",
     "DeepSpeed deepspeed/runtime/zero/config.py"},
    {"mds_offload_weights", MDS, "offload_weights -> zero == 3", "parameter offload needs ZeRO-3, not {zero}",
     "DeepSpeed deepspeed/runtime/zero/config.py"},
    {"mds_offload_part", MDS, "offload_part -> zero == 3", "a part alone is offloaded with ZeRO-3",
     "DeepSpeed deepspeed/runtime/zero/config.py:392"},
    {"mds_offload_activations", MDS, "offload_activations -> recompute == 'full'",
     "activations go to the host as checkpoints (cpu_checkpointing)", "DeepSpeed deepspeed/runtime/activation_checkpointing/checkpointing.py"},

    {"titan_schedule", TT,
     "pp > 1 -> schedule == '1f1b' || schedule == 'gpipe' || schedule == 'interleaved-1f1b' || "
     "schedule == 'looped-bfs' || schedule == 'interleaved-zb' || schedule == 'zb-v' || schedule == 'dualpipev'",
     "{schedule} is not a schedule of torch.distributed.pipelining",
     "PyTorch torch/distributed/pipelining/schedules.py"},
    {"titan_kv_heads", TT, "kv_heads % tp == 0", "tp {tp} does not divide {kv_heads} key-value heads",
     "TorchTitan torchtitan/models/common/decoder.py:189"},
    {"titan_zero", TT, "zero != 1", "there is no optimizer sharding alone (ZeRO-1): replicate (0) or shard (2, 3)",
     "TorchTitan torchtitan/distributed/parallel_dims.py"},
    {"titan_tokens", TT,
     "seq * micro_batch % ((sp * tp + !sp) * (2 * cp * (cp > 1) + (cp == 1))) == 0",
     "tokens of a micro-batch are not a multiple of tp and 2 cp",
     "TorchTitan torchtitan/trainer.py:298"},
    {"titan_microbatches", TT, "pp > 1 && vpp == 1 -> microbatches >= pp",
     "{microbatches} micro-batches on pp {pp}: single-chunk schedules need one for each stage",
     "PyTorch pull request 144702"},
    {"titan_interleaved", TT,
     "schedule == 'interleaved-1f1b' || schedule == 'interleaved-zb' -> microbatches < pp || microbatches % (microbatches / pp) == 0",
     "{microbatches} micro-batches do not split into rounds of pp {pp}",
     "PyTorch torch/distributed/pipelining/schedules.py"},
    {"titan_dualpipev", TT, "schedule == 'dualpipev' -> microbatches >= 2 * pp",
     "dualpipev needs 2 pp micro-batches, not {microbatches}",
     "PyTorch torch/distributed/pipelining/schedules.py"},
    {"titan_tied", TT, "tied -> pp == 1", "tied embeddings exclude pipelines",
     "TorchTitan torchtitan/models/common/decoder.py:168"},
    {"titan_experts", TT, "dp * cp * tp % ep == 0", "ep {ep} does not divide dp x cp x tp",
     "TorchTitan torchtitan/distributed/parallel_dims.py:187"},
    {"titan_etp", TT, "etp == 1 || etp == tp", "etp {etp} must be 1 or tp {tp}",
     "TorchTitan torchtitan/distributed/parallel_dims.py"},
    {"titan_order", TT, "order == 'tp-cp-ep-dp-pp'", "the mesh is fixed: pp, dp, cp, tp",
     "TorchTitan torchtitan/distributed/parallel_dims.py:176"},
    {"titan_recompute_modules", TT, "recompute_modules == 0", "operators are recomputed, not modules", "torchtitan torchtitan/distributed/activation_checkpoint.py"},
    {"titan_recompute_layers", TT, "recompute_layers == 0", "all layers are recomputed or none",
     "TorchTitan torchtitan/distributed/activation_checkpoint.py"},
    {"titan_cp_form", TT, "cp > 1 -> cp_form != 'a2a' && cp_form != 'pass_q'", "context parallelism gathers or rotates keys and values",
     "PyTorch torch/distributed/tensor/experimental/_attention.py"},
    {"titan_experts_shard", TT, "dp_shard > 0 -> dp_shard * cp * tp % ep == 0", "ep {ep} does not divide dp_shard x cp x tp",
     "TorchTitan torchtitan/distributed/parallel_dims.py:187"},
    {"titan_overlap", TT, "!off_grads && !off_params", "FSDP2 always prefetches and reduces beside other work",
     "PyTorch torch/distributed/fsdp/_fully_shard"},
    {"titan_units", TT, "fsdp_unit == 1 && fsdp_prefetch != 0 && fsdp_prefetch <= 1",
     "each block is wrapped by itself, and one is gathered ahead",
     "TorchTitan torchtitan/models/llama3/parallelize.py, apply_fsdp"},
    {"titan_bucket", TT, "bucket_size == 0", "a wrapped layer is reduced at once, replicas in buckets of a fixed size",
     "PyTorch torch/distributed/fsdp/_fully_shard"},
    {"titan_grad_dtype", TT, "grad_dtype == 'fp32'", "gradients are reduced in fp32",
     "TorchTitan torchtitan/config/configs.py, mixed_precision_reduce"},
    {"titan_graph", TT, "cuda_graph <= 1", "no key asks for CUDA graphs", "TorchTitan torchtitan/config/configs.py"},
    {"titan_loss", TT, "loss == 0 && loss_chunks <= 1", "the loss is compiled, whole", "TorchTitan torchtitan/components/loss.py"},
    {"titan_dispatcher", TT, "dispatcher != 'allgather' && (dispatcher == 'deepep' || dispatcher == 'hybridep' -> etp == 1)",
     "tokens go by all-to-alls, or with etp 1 by DeepEP or HybridEP (expert_parallel_comm_backend)",
     "TorchTitan torchtitan/models/common/token_dispatcher.py"},
    {"titan_shared_overlap", TT, "!shared_overlap", "no key lets shared experts compute beside exchanges", "TorchTitan torchtitan/models/common/moe/moe.py"},
    {"titan_capacity", TT, "!capacity", "experts take all tokens that are routed to them", "TorchTitan torchtitan/models/common/moe/moe.py"},
    {"titan_mtp", TT, "!mtp_ahead", "nothing predicts several tokens", "TorchTitan torchtitan/models/deepseek_v3"},
    {"titan_clip", TT, "clip != 2", "gradients are clipped every step", "TorchTitan torchtitan/trainer.py, clip_grad_norm_"},
    {"titan_optimizer", TT, "optimizer == 'adamw'", "{optimizer} is neither Adam nor AdamW",
     "TorchTitan torchtitan/components/optimizer.py"},
    {"titan_states", TT, "main_params == 0 && exp_avg == 'fp32' && exp_avg_sq == 'fp32'",
     "states are fp32 as the sharded weights are", "TorchTitan torchtitan/config/configs.py, training.dtype"},
    {"titan_compression", TT, "!grad_compression", "gradients go whole", "PyTorch torch/distributed/fsdp/_fully_shard"},
    {"titan_cp_inner", TT, "cp_inner <= 1", "context parallelism gathers or rotates keys and values",
     "PyTorch torch/distributed/tensor/experimental/_attention.py"},
    {"titan_nvme", TT, "!offload_nvme", "nothing goes to drives", "PyTorch torch/distributed/fsdp/_fully_shard, CPUOffloadPolicy"},
    {"titan_offload", TT, "offload_weights == offload_optimizer && !offload_part",
     "parameters and optimizer are offloaded together and whole (enable_cpu_offload)", "TorchTitan torchtitan/config/configs.py"},
    {"titan_offload_zero", TT, "offload_weights -> zero >= 2", "offload is FSDP's: ZeRO-2 or -3, not {zero}",
     "PyTorch torch/distributed/fsdp/_fully_shard, CPUOffloadPolicy"},
    {"titan_offload_activations", TT, "!offload_activations", "activations stay on the device",
     "TorchTitan torchtitan/distributed/activation_checkpoint.py"},

    {"nanotron_schedule", NANO, "pp > 1 -> schedule == '1f1b' || schedule == 'gpipe'",
     "{schedule} is not an engine of Nanotron (1f1b, afab)", "Nanotron src/nanotron/parallel/pipeline_parallel/engine.py"},
    {"nanotron_chunks", NANO, "vpp == 1", "no chunks (vpp {vpp})",
     "Nanotron src/nanotron/parallel/pipeline_parallel/engine.py"},
    {"nanotron_kv_heads", NANO, "tp <= kv_heads", "tp {tp} exceeds {kv_heads} key-value heads",
     "Nanotron src/nanotron/models/llama.py"},
    {"nanotron_experts", NANO, "ep == 1", "the grid leaves no room for ep {ep}",
     "Nanotron src/nanotron/parallel/context.py:26"},
    {"nanotron_microbatches", NANO, "pp > 1 -> microbatches >= pp", "{microbatches} micro-batches on pp {pp} stages",
     "Nanotron issue 347"},
    {"nanotron_zero", NANO, "zero <= 1", "ZeRO-{zero}: 0 and 1 exist",
     "Nanotron src/nanotron/optim/zero.py"},
    {"nanotron_order", NANO, "order == 'tp-cp-ep-dp-pp'", "the grid is fixed: ep, pp, dp, cp, tp",
     "Nanotron src/nanotron/parallel/context.py"},
    {"nanotron_recompute_modules", NANO, "recompute_modules == 0", "whole layers are recomputed, no modules of them", "Nanotron src/nanotron/models/llama.py"},
    {"nanotron_recompute_layers", NANO, "recompute_layers == 0", "all layers are recomputed or none", "Nanotron src/nanotron/models/llama.py"},
    {"nanotron_cp", NANO, "cp == 1", "context parallelism is advertised but not usable (cp {cp})", "Nanotron issue 383"},
    {"nanotron_overlap", NANO, "!off_grads && !off_params && !off_tp", "no key of the configuration switches overlap",
     "Nanotron src/nanotron/config/parallelism_config.py"},
    {"nanotron_bucket", NANO, "bucket_size > 0 -> zero == 0", "ZeRO-1 reduces a tensor at a time, whatever the bucket",
     "Nanotron src/nanotron/optim/gradient_accumulator.py, ddp_bucket_cap_mb"},
    {"nanotron_graph", NANO, "cuda_graph <= 1", "no key of the configuration asks for CUDA graphs",
     "Nanotron src/nanotron/config/config.py"},
    {"nanotron_loss", NANO, "loss == 0 && loss_chunks <= 1", "no key of the configuration chooses the loss",
     "Nanotron src/nanotron/parallel/tensor_parallel/functional.py"},
    {"nanotron_dispatcher", NANO, "dispatcher == 'stack'", "no key of the configuration chooses a way to the experts",
     "Nanotron src/nanotron/config/models_config.py"},
    {"nanotron_shared_overlap", NANO, "!shared_overlap", "no key lets shared experts compute beside exchanges", "Nanotron src/nanotron/nn/moe.py"},
    {"nanotron_capacity", NANO, "!capacity", "experts take all tokens that are routed to them", "Nanotron src/nanotron/nn/moe.py"},
    {"nanotron_mtp", NANO, "!mtp_ahead", "nothing predicts several tokens", "Nanotron src/nanotron/models/llama.py"},
    {"nanotron_optimizer", NANO, "optimizer == 'adamw' || optimizer == 'sgd'",
     "{optimizer} is neither adamW nor sgd (without momentum)", "Nanotron src/nanotron/config/config.py, optimizer_factory"},
    {"nanotron_states", NANO, "main_params == 0 && exp_avg == 'fp32' && exp_avg_sq == 'fp32'",
     "states and main copies are fp32", "Nanotron src/nanotron/optim/optimizer_from_gradient_accumulator.py"},
    {"nanotron_dtype", NANO, "dtype != 'fp8' && dtype != 'fp4'", "no key of the configuration asks for 8 bits",
     "Nanotron src/nanotron/config/config.py (src/nanotron/fp8 is not wired to one)"},
    {"nanotron_dp_shard", NANO, "dp_shard == 0", "no groups of replicas", "Nanotron src/nanotron/optim/zero.py"},
    {"nanotron_compression", NANO, "!grad_compression", "gradients go whole", "Nanotron src/nanotron/optim/gradient_accumulator.py"},
    {"nanotron_offload", NANO, "!offload_optimizer && !offload_weights && !offload_activations",
     "nothing is offloaded", "Nanotron src/nanotron/config/config.py"},
};
/* clang-format on */
enum {
    N_OF_FRAMEWORKS = sizeof rules / sizeof rules[0],
    N_RULES = N_OF_FRAMEWORKS + MW_KERNEL_RULES
};

struct mw_rule_set {
    const struct mw_scenario *scenario;
    const struct mw_cost_ctx *ctx;
    const struct mw_rule *rule[N_RULES];
    struct mw_rule_code code[N_RULES];
    int n;
    bool allows_uneven;
};

const struct mw_rule *mw_rule_row(size_t i)
{
    return i < N_OF_FRAMEWORKS ? &rules[i]
           : i < N_RULES       ? &mw_kernel_rules[i - N_OF_FRAMEWORKS]
                               : NULL;
}

/* ---- names -----------------------------------------------------------------
 */
static const char *const value_names[VALUE_COUNT] = {
#define VALUE_NAME(name) #name,
    VALUES(VALUE_NAME)
#undef VALUE_NAME
};

static int name_index(const char *name, int len)
{
    for (int i = 0; i < VALUE_COUNT; i++) {
        if (strncmp(value_names[i], name, (size_t)len) == 0 &&
            value_names[i][len] == '\0') {
            return i;
        }
    }
    return -1;
}

/* Ids of texts: schedules by their place, then orders, recomputation, dtypes.
 * Ranges do not overlap, so a text compared with the wrong value is false. */
enum {
    ID_ORDER = 1000,
    ID_RECOMPUTE = 2000,
    ID_DTYPE = 3000,
    ID_FORM = 4000,
    ID_OPTIMIZER = 5000,
    ID_DISPATCHER = 6000
};

static int64_t enum_id(const struct mw_enum *e, const char *text, size_t n,
                       int64_t base)
{
    for (; e->name; e++) {
        if (strncmp(e->name, text, n) == 0 && e->name[n] == '\0') {
            return base + e->value;
        }
    }
    return -1;
}

static const char *const orders[] = {"tp-cp-ep-dp-pp", "tp-cp-ep-pp-dp"};

static int64_t order_id(const char *text, size_t n)
{
    for (int i = 0; i < 2; i++) {
        if (strncmp(orders[i], text, n) == 0 && orders[i][n] == '\0') {
            return ID_ORDER + i;
        }
    }
    return -1;
}

static int64_t text_id(const char *text, int len)
{
    size_t n = (size_t)len;
    int64_t id = order_id(text, n);

    for (size_t i = 0; mw_schedule_kind(i); i++) {
        const char *name = mw_schedule_kind(i)->name;

        if (strncmp(name, text, n) == 0 && name[n] == '\0') {
            return (int64_t)i;
        }
    }
    id = id < 0 ? enum_id(mw_recompute_enums, text, n, ID_RECOMPUTE) : id;
    id = id < 0 ? enum_id(mw_dtype_enums, text, n, ID_DTYPE) : id;
    id = id < 0 ? enum_id(mw_cp_form_enums, text, n, ID_FORM) : id;
    id = id < 0 ? enum_id(mw_dispatcher_enums, text, n, ID_DISPATCHER) : id;
    return id < 0 ? enum_id(mw_optimizer_enums, text, n, ID_OPTIMIZER) : id;
}

/* ---- sets ------------------------------------------------------------------
 */
static void add_rules(struct mw_rule_set *set, int framework)
{
    static const struct mw_rule_names names = {name_index, text_id};

    for (size_t i = 0; i < N_RULES; i++) {
        const struct mw_rule *rule = mw_rule_row(i);
        struct mw_err err = {0};

        if (rule->framework != framework) {
            continue;
        }
        MW_ASSERT(mw_rule_compile(rule->condition, &names, &set->code[set->n],
                                  &err) == MW_OK,
                  "rule %s: %s", rule->id, err.text);
        set->rule[set->n++] = rule;
    }
}

struct mw_rule_set *mw_rule_set_new(const struct mw_scenario *scenario,
                                    const struct mw_cost_ctx *ctx)
{
    struct mw_rule_set *set = mw_calloc(1, sizeof *set);
    int framework = scenario->limits.framework;

    set->scenario = scenario;
    set->ctx = ctx;
    /* Uneven stages: Megatron-Core takes a list (pipeline layout), DeepSpeed a
     * partition method, Nanotron its own blocks, TorchTitan lists of modules
     * (module_fqns_per_model_part); all may leave the embedding or the head
     * alone. */
    set->allows_uneven = true;
    if (scenario->model.moe.n_experts > 0) {
        add_rules(set, MW_FRAMEWORK_ANY);
    }
    if (framework != MW_FRAMEWORK_ANY) {
        add_rules(set, framework);
    }
    if (ctx->gpu->is_cpu && framework != MW_FRAMEWORK_HOST) {
        add_rules(set, MW_FRAMEWORK_HOST);
    }
    return set;
}

void mw_rule_set_free(struct mw_rule_set *set)
{
    mw_free(set);
}

bool mw_rule_set_allows_uneven(const struct mw_rule_set *set)
{
    return set->allows_uneven;
}

static bool is_part(double part)
{
    return part > 0 && part < 1;
}

static void fill_values(const struct mw_rule_set *set,
                        const struct mw_layout *l, int64_t v[VALUE_COUNT])
{
    const struct mw_model *m = &set->scenario->model;
    const struct mw_workload *w = &set->scenario->workload;
    int64_t order = order_id(l->order, strlen(l->order));

    v[V_tp] = l->tp;
    v[V_cp] = l->cp;
    v[V_pp] = l->pp;
    v[V_vpp] = l->vpp;
    v[V_dp] = l->dp;
    v[V_ep] = l->ep;
    v[V_etp] = l->etp;
    v[V_sp] = l->sp;
    v[V_zero] = l->zero;
    v[V_micro_batch] = l->micro_batch;
    v[V_recompute] = ID_RECOMPUTE + (int64_t)l->recompute;
    v[V_schedule] = text_id(l->schedule, (int)strlen(l->schedule));
    v[V_order] = order;
    v[V_microbatches] = mw_microbatches(l, w);
    v[V_ranks] = (int64_t)l->tp * l->cp * l->pp * l->dp;
    v[V_layers] = m->n_layers;
    v[V_heads] = m->n_heads;
    v[V_kv_heads] = m->mla.on ? m->n_heads : m->n_kv_heads;
    v[V_experts] = m->moe.n_experts;
    v[V_vocab] = m->vocab;
    v[V_seq] = w->seq;
    v[V_batch] = w->global_batch;
    v[V_dtype] = ID_DTYPE + (int64_t)mw_work_dtype(l, w);
    v[V_grad_dtype] = ID_DTYPE + (int64_t)mw_work_grad_dtype(l, w);
    v[V_bucket_size] = l->bucket_size;
    v[V_off_grads] = (l->overlap_off & MW_OVERLAP_GRADS) != 0;
    v[V_off_params] = (l->overlap_off & MW_OVERLAP_PARAMS) != 0;
    v[V_off_tp] = (l->overlap_off & MW_OVERLAP_TP) != 0;
    v[V_own_types] = l->dtype != MW_DTYPE_OF_WORKLOAD ||
                     l->grad_dtype != MW_DTYPE_OF_WORKLOAD;
    v[V_optimizer] = ID_OPTIMIZER + (int64_t)w->optimizer.kind;
    v[V_main_params] = (int64_t)w->optimizer.main;
    v[V_exp_avg] = ID_DTYPE + (int64_t)w->optimizer.exp_avg;
    v[V_exp_avg_sq] = ID_DTYPE + (int64_t)w->optimizer.exp_avg_sq;
    v[V_cuda_graph] = (int64_t)l->cuda_graph;
    v[V_mtp_ahead] = l->mtp_ahead;
    v[V_loss] = (int64_t)w->loss;
    v[V_loss_chunks] = w->loss_chunks;
    v[V_capacity] = w->capacity_factor > 0;
    v[V_shared_overlap] = l->overlap_shared_experts;
    v[V_padded] = w->pads_to_capacity;
    v[V_dispatcher] = ID_DISPATCHER + (int64_t)l->dispatcher;
    v[V_topk] = m->moe.top_k;
    v[V_hidden] = m->hidden;
    v[V_short_dispatch] = m->moe.fp8_dispatch;
    v[V_sm] = mw_compute_capability(set->ctx->gpu);
    v[V_clip] = (int64_t)w->clip;
    v[V_tied] = m->tied;
    v[V_packed] = mw_work_span(w->seq, w->doc_tokens) < w->seq;
    v[V_uneven] = m->n_layers % (l->pp * l->vpp) != 0;
    v[V_node] = set->ctx->gpus_per_node;
    v[V_cp_form] = ID_FORM + (int64_t)l->cp_form;
    v[V_dp_shard] = l->dp_shard;
    v[V_reshard] = l->reshard;
    v[V_fsdp_unit] = l->fsdp_unit;
    v[V_fsdp_prefetch] = l->fsdp_prefetch;
    v[V_offload_nvme] = (int64_t)l->offload_nvme;
    v[V_cp_inner] = l->cp_inner;
    v[V_grad_compression] = (int64_t)l->grad_compression;
    v[V_offload_optimizer] = l->offload_optimizer > 0;
    v[V_offload_weights] = l->offload_weights > 0;
    v[V_offload_activations] = l->offload_activations > 0;
    v[V_recompute_layers] = l->recompute_layers;
    v[V_recompute_modules] = l->recompute_modules;
    v[V_offload_part] = is_part(l->offload_optimizer) ||
                        is_part(l->offload_weights) ||
                        is_part(l->offload_activations);
}

const struct mw_rule *mw_rule_broken(const struct mw_rule_set *set,
                                     const struct mw_layout *layout)
{
    int64_t v[VALUE_COUNT];

    if (set->n == 0) {
        return NULL;
    }
    fill_values(set, layout, v);
    for (int i = 0; i < set->n; i++) {
        if (!mw_rule_eval(&set->code[i], v)) {
            return set->rule[i];
        }
    }
    return NULL;
}

static void add_value(const struct mw_layout *l, const int64_t *v, int index,
                      struct mw_str *out)
{
    if (index == V_schedule) {
        mw_str_add(out, l->schedule);
    } else if (index == V_order) {
        mw_str_add(out, l->order);
    } else if (index == V_optimizer) {
        mw_str_add(out, mw_optimizer_name(
                            (enum mw_optimizer_kind)(v[index] - ID_OPTIMIZER)));
    } else {
        mw_str_addf(out, "%" PRId64, v[index]);
    }
}

void mw_rule_explain(const struct mw_rule_set *set, const struct mw_rule *rule,
                     const struct mw_layout *layout, struct mw_str *out)
{
    int64_t v[VALUE_COUNT];
    const char *at = rule->message;

    fill_values(set, layout, v);
    while (*at != '\0') {
        const char *open = strchr(at, '{');
        const char *close = open ? strchr(open, '}') : NULL;

        if (!close) {
            mw_str_add(out, at);
            break;
        }
        mw_str_addf(out, "%.*s", (int)(open - at), at);
        int index = name_index(open + 1, (int)(close - open - 1));

        MW_ASSERT(index >= 0, "rule %s: %s", rule->id, open);
        add_value(layout, v, index, out);
        at = close + 1;
    }
    mw_str_addf(out, " (%s)", rule->source);
}
