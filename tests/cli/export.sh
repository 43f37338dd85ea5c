#!/usr/bin/env bash
# `export`: what is written says the same as the plan; what a framework cannot do
# is refused with its rule, and no file is left.
. "${MW_SOURCE:?}/tests/cli/lib.sh"
mw=${MESHWRIGHT:?}
command -v python3 >/dev/null || exit 77

scenario() { # NAME MODEL NODES LAYOUT [WORKLOAD]
    printf 'format: 1\nname: %s\nmodel: %s\ncluster: {system: dgx-h100, nodes: %s}\nworkload: {seq: 8192, global_batch: 256%s}\nlayout: {%s}\n' \
        "$1" "$2" "$3" "${5:-}" "$4" >"$1.yaml"
}
# args EXPRESSION: of the options in out.args, o[name] (True for a flag).
args() {
    EXPRESSION=$1 python3 -c '
import os, sys
o = {}
for line in open("out.args"):
    words = line.split()
    o[words[0].lstrip("-")] = words[1] if len(words) > 1 else True
sys.exit(0 if eval(os.environ["EXPRESSION"]) else 1)' || fail "not true: $1 ($(tr '\n' ' ' <out.args))"
    n_checks=$((n_checks + 1))
}
toml() {
    EXPRESSION=$1 python3 -c '
import os, sys, tomllib
o = tomllib.load(open("out.toml", "rb"))
p = o["parallelism"]
sys.exit(0 if eval(os.environ["EXPRESSION"]) else 1)' || fail "not true: $1 ($(cat out.toml))"
    n_checks=$((n_checks + 1))
}

# --- Megatron-Core: interleaved, even; launch line
scenario even llama3-70b 8 'tp: 8, sp: true, pp: 4, vpp: 5, dp: 2, zero: 1, micro_batch: 1, schedule: interleaved-1f1b, recompute: selective'
expect 0 "$mw" export even.yaml --to megatron-core -o out.args
grep -qx 'CUDA_DEVICE_MAX_CONNECTIONS=1 torchrun --nnodes 8 --nproc-per-node 8 .* pretrain_gpt.py $(cat out.args)' stdout.txt || fail "launch: $(cat stdout.txt)"
grep -q placeholders stderr.txt || fail "no note"
args "o['tensor-model-parallel-size'] == '8' and o['pipeline-model-parallel-size'] == '4' and o['num-virtual-stages-per-pipeline-rank'] == '5'"
args "o['sequence-parallel'] and o['use-distributed-optimizer'] and o['recompute-granularity'] == 'selective'"
args "o['num-layers'] == '80' and o['hidden-size'] == '8192' and o['num-query-groups'] == '8' and o['swiglu'] and o['global-batch-size'] == '256'"
args "'data-parallel-size' not in o and 'pipeline-model-parallel-layout' not in o and o['bf16']"

# Tensor parallelism behind products: where the price hides it, with sequence
# parallelism and inside a node alone.
args "o['tp-comm-overlap']"
scenario serial llama3-70b 8 'tp: 8, sp: true, pp: 4, dp: 2, zero: 1, micro_batch: 1, overlap_off: [tp]'
expect 0 "$mw" export serial.yaml --to megatron-core -o out.args
args "'tp-comm-overlap' not in o and o['sequence-parallel']"
scenario nosp llama3-70b 8 'tp: 8, pp: 4, dp: 2, zero: 1, micro_batch: 1'
expect 0 "$mw" export nosp.yaml --to megatron-core -o out.args
args "'tp-comm-overlap' not in o and 'sequence-parallel' not in o"
grep -q 'tp-comm-overlap needs sequence parallelism' stderr.txt || fail "no note"
scenario wide llama2-7b 8 'tp: 16, sp: true, pp: 4, dp: 1, micro_batch: 1'
expect 0 "$mw" export wide.yaml --to megatron-core -o out.args
args "'tp-comm-overlap' not in o"
grep -q 'tp-comm-overlap works inside a node' stderr.txt || fail "no note"
scenario alone llama3-8b 2 'tp: 1, dp: 16, micro_batch: 1'
expect 0 "$mw" export alone.yaml --to megatron-core -o out.args
args "'tp-comm-overlap' not in o"

# gpt-oss: biases of all products, experts' among them, and clamps.
scenario oss gpt-oss-20b 1 'dp: 8, ep: 8, zero: 1, micro_batch: 1, dispatcher: alltoall'
expect 0 "$mw" export oss.yaml --to megatron-core -o out.args
args "o['window-size'] == '127,0' and o['softmax-type'] == 'learnable' and 'disable-bias-linear' not in o and o['num-experts'] == '32'"
grep -q 'activation-func-clamp-value' stderr.txt || fail "no note"

# Uneven layers, multi-token prediction, experts, latent attention.
scenario uneven deepseek-v3 128 'tp: 8, sp: true, pp: 8, dp: 16, ep: 16, zero: 1, micro_batch: 1, schedule: 1f1b, recompute: full' ', dtype: fp8'
expect 0 "$mw" export uneven.yaml --to megatron-core -o out.args
args "sum(int(s.strip('EmL')[2:]) for s in o['pipeline-model-parallel-layout'].split('|')) == 61"
args "o['pipeline-model-parallel-layout'].startswith('Et*') and o['pipeline-model-parallel-layout'].endswith('mL') and o['pipeline-model-parallel-layout'].count('|') == 7"
args "o['num-experts'] == '256' and o['expert-model-parallel-size'] == '16' and o['moe-layer-freq'] == '([0]*3+[1]*58)' and o['kv-lora-rank'] == '512' and o['fp8-format'] == 'hybrid'"
args "o['moe-router-score-function'] == 'sigmoid' and o['moe-router-enable-expert-bias'] and 'moe-router-num-groups' not in o"
grep -q 'overlap-moe-expert-parallel-comm needs chunks' stderr.txt || fail "no note on exchanges"
# Exchanges beside other work; experts on few nodes; every second layer.
scenario beside deepseek-v3 128 'tp: 1, pp: 8, vpp: 4, dp: 128, ep: 64, zero: 1, micro_batch: 2, schedule: interleaved-1f1b, recompute: selective, recompute_modules: [mla_up_proj]' ', dtype: bf16'
sed -i 's/global_batch: 256/global_batch: 2048/' beside.yaml
expect 0 "$mw" export beside.yaml --to megatron-core -o out.args
args "o['overlap-moe-expert-parallel-comm'] and o['moe-router-num-groups'] == '8' and o['moe-router-group-topk'] == '4'"
grep -q '^CUDA_DEVICE_MAX_CONNECTIONS=32 ' stdout.txt || fail "queues: $(cat stdout.txt)"
printf 'format: 1\nmodel: {hidden: 1024, layers: 6, heads: 8, ffn: 4096, vocab: 32768, moe: {experts: 8, top_k: 2, ffn: 1024, every: 2}}\ncluster: {system: dgx-h100, nodes: 1}\nworkload: {seq: 2048, global_batch: 64}\nlayout: {dp: 8, ep: 8, zero: 1, recompute: full}\n' >second.yaml
expect 0 "$mw" export second.yaml --to megatron-core -o out.args
args "o['moe-layer-freq'] == '([0]*1+[1]*1+[0]*1+[1]*1+[0]*1+[1]*1)' and 'overlap-moe-expert-parallel-comm' not in o"
grep -q 'excludes recomputation' stderr.txt || fail "no note on exchanges under recomputation"
# Windows: keys before the query's own, every second layer; sinks.
printf 'format: 1\nmodel: {hidden: 1024, layers: 6, heads: 8, ffn: 4096, vocab: 32768, attention_window: 128, global_every: 3, attention_sinks: true}\ncluster: {system: dgx-h100, nodes: 1}\nworkload: {seq: 2048, global_batch: 64}\nlayout: {dp: 8, zero: 1}\n' >windows.yaml
expect 0 "$mw" export windows.yaml --to megatron-core -o out.args
args "o['window-size'] == '127,0' and o['window-attn-skip-freq'] == '([1]*2+[0]*1+[1]*2+[0]*1)' and o['softmax-type'] == 'learnable' and o['attention-backend'] == 'auto'"
expect 1 "$mw" export windows.yaml --to nanotron -o out.yaml
grep -q 'nanotron_window' stderr.txt || fail "windows in nanotron: $(cat stderr.txt)"
# Ways to the experts.
dispatched='tp: 8, sp: true, pp: 8, dp: 16, ep: 16, zero: 1, micro_batch: 1, schedule: 1f1b, recompute: full'
for how in alltoall allgather deepep hybridep; do
    scenario "$how" deepseek-v3 128 "$dispatched, dispatcher: $how"
    expect 0 "$mw" export "$how.yaml" --to megatron-core -o out.args
    case $how in
    a*) args "o['moe-token-dispatcher-type'] == '$how' and 'moe-flex-dispatcher-backend' not in o" ;;
    *)
        args "o['moe-token-dispatcher-type'] == 'flex' and o['moe-flex-dispatcher-backend'] == '$how'"
        grep -q 'needs the package deep_ep' stderr.txt || fail "no note on $how"
        ;;
    esac
done
scenario habit deepseek-v3 128 "$dispatched"
expect 0 "$mw" export habit.yaml --to megatron-core -o out.args
grep -q 'alltoall prices what is written' stderr.txt || fail "no note on the habit"
scenario shared deepseek-v3 128 "$dispatched, dispatcher: alltoall, overlap_shared_experts: true"
expect 0 "$mw" export shared.yaml --to megatron-core -o out.args
args "o['moe-shared-expert-overlap'] and o['moe-token-dispatcher-type'] == 'alltoall'"
scenario titan_ep qwen3-30b-a3b 16 'tp: 1, dp: 128, zero: 3, ep: 16, micro_batch: 1, dispatcher: alltoall'
expect 0 "$mw" export titan_ep.yaml --to torchtitan -o out.toml
toml "p['expert_parallel_comm_backend'] == 'standard' and p['expert_parallel_degree'] == 16"
scenario capacity deepseek-v3 128 'tp: 8, sp: true, pp: 8, dp: 16, ep: 16, zero: 1, micro_batch: 1, schedule: 1f1b, recompute: full' ', capacity_factor: 1.25, pad_to_capacity: true'
expect 0 "$mw" export capacity.yaml --to megatron-core -o out.args
args "o['moe-expert-capacity-factor'] == '1.25' and o['moe-pad-expert-input-to-capacity']"

scenario ahead deepseek-v3 128 'tp: 8, sp: true, pp: 8, vpp: 2, dp: 16, ep: 16, zero: 1, micro_batch: 1, schedule: interleaved-1f1b, mtp_ahead: 1' ', dtype: fp8'
expect 0 "$mw" export ahead.yaml --to megatron-core -o out.args
args "(lambda s: sum(x.count('t') and int(x.strip('EmL')[2:]) for x in s) == 61 and s[-1] == 'L' and s[-2].endswith('m') and len(s) == 16)(o['pipeline-model-parallel-layout'].split('|'))"
args "o['mtp-num-layers'] == '1'"
expect 1 "$mw" export ahead.yaml --to torchtitan -o out.toml

# Context forms, HSDP, FSDP, offload.
scenario ring llama3-8b 2 'tp: 1, cp: 2, cp_form: ring, dp: 8, zero: 1, dp_shard: 4, micro_batch: 1'
expect 0 "$mw" export ring.yaml --to megatron-core -o out.args
args "o['cp-comm-type'] == 'p2p' and o['num-distributed-optimizer-instances'] == '2'"
scenario buckets llama3-8b 2 'tp: 1, dp: 16, zero: 1, bucket_size: 160000000, micro_batch: 1'
expect 0 "$mw" export buckets.yaml --to megatron-core -o out.args
args "o['ddp-bucket-size'] == '160000000' and o['overlap-grad-reduce']"
expect 1 "$mw" export buckets.yaml --to nanotron -o out.yaml
grep -q 'nanotron_bucket' stderr.txt || fail "buckets of ZeRO-1: $(cat stderr.txt)"
scenario groups llama3-8b 2 'tp: 2, sp: true, pp: 2, vpp: 4, vpp_group: 4, dp: 4, micro_batch: 1, schedule: interleaved-1f1b'
expect 0 "$mw" export groups.yaml --to megatron-core -o out.args
args "o['microbatch-group-size-per-virtual-pipeline-stage'] == '4'"
sed 's/dp: 4/dp: 4, zero: 2/' groups.yaml >sharded.yaml
expect 1 "$mw" export sharded.yaml --to torchtitan -o out.toml
grep -q 'titan_group' stderr.txt || fail "groups in torchtitan: $(cat stderr.txt)"
scenario replicas llama3-8b 2 'tp: 8, sp: true, dp: 2, zero: 0, bucket_size: 26214400, micro_batch: 1'
expect 0 "$mw" export replicas.yaml --to nanotron -o out.yaml
grep -qx '  ddp_bucket_cap_mb: 100' out.yaml || fail "buckets: $(cat out.yaml)"
scenario sixteen llama3-8b 2 'tp: 1, dp: 16, zero: 0, bucket_size: 26214400, micro_batch: 1'
expect 1 "$mw" export sixteen.yaml --to torchtitan -o out.toml
grep -q 'titan_bucket' stderr.txt || fail "buckets in torchtitan: $(cat stderr.txt)"
scenario inner llama3-8b 2 'tp: 1, cp: 8, cp_form: ring, cp_inner: 2, dp: 2, zero: 1, micro_batch: 1, recompute: full, recompute_layers: 4'
expect 0 "$mw" export inner.yaml --to megatron-core -o out.args
args "o['cp-comm-type'] == 'a2a+p2p' and o['recompute-method'] == 'block' and o['recompute-num-layers'] == '4'"
grep -qx -- '--hierarchical-context-parallel-sizes 2 4' out.args || fail "no hierarchical sizes"
scenario modules llama3-8b 2 'tp: 2, sp: true, dp: 8, micro_batch: 1, recompute: selective, recompute_modules: [mlp, core_attn, layernorm]'
expect 0 "$mw" export modules.yaml --to megatron-core -o out.args
grep -qx -- '--recompute-modules core_attn layernorm mlp' out.args || fail "modules: $(grep recompute out.args)"
expect 1 "$mw" export modules.yaml --to nanotron -o out.yaml
scenario units llama3-8b 2 'tp: 1, dp: 16, zero: 3, fsdp_prefetch: 2, micro_batch: 1'
expect 0 "$mw" export units.yaml --to megatron-core -o out.args
# 4096 x (4096 + 2 x 1024 + 4096 + 3 x 14336) + 2 x 4096 elements a layer, twice two of them
args "o['suggested-communication-unit-size'] == str(4 * (4096 * 53248 + 8192))"
expect 1 "$mw" export units.yaml --to torchtitan -o out.toml
grep -q 'titan_units' stderr.txt || fail "two units ahead in torchtitan: $(cat stderr.txt)"
scenario fsdp llama3-8b 2 'tp: 1, dp: 16, zero: 3, micro_batch: 1'
expect 0 "$mw" export fsdp.yaml --to megatron-core -o out.args
grep -q '^torchrun' stdout.txt || fail "FSDP under CUDA_DEVICE_MAX_CONNECTIONS: $(cat stdout.txt)"
args "o['data-parallel-sharding-strategy'] == 'optim_grads_params' and o['ckpt-format'] == 'fsdp_dtensor' and o['no-gradient-accumulation-fusion']"

# --- TorchTitan
scenario titan llama3-70b 8 'tp: 8, sp: true, pp: 4, vpp: 5, dp: 2, zero: 3, micro_batch: 1, schedule: interleaved-1f1b'
expect 0 "$mw" export titan.yaml --to torchtitan -o out.toml
if python3 -c 'import tomllib' 2>/dev/null; then
    toml "p['tensor_parallel_degree'] * p['pipeline_parallel_degree'] * p['data_parallel_shard_degree'] * p['data_parallel_replicate_degree'] == 64"
    toml "p['pipeline_parallel_schedule'] == 'Interleaved1F1B' and 80 // p['pipeline_parallel_layers_per_stage'] == 20"
    toml "o['training']['local_batch_size'] * 2 == o['training']['global_batch_size'] == 256 and o['model']['flavor'] == '70B'"
fi
# Unequal stages by modules; layers stay uncompiled under split backward passes;
# asynchronous tensor parallelism where the price has it; FP8's converters.
scenario stages llama3-8b 2 'tp: 1, pp: 4, dp: 4, zero: 3, micro_batch: 1, layers: [7, 9, 9, 7]'
expect 0 "$mw" export stages.yaml --to torchtitan -o out.toml
toml "[sum(m.startswith('layers.') for m in part) for part in p['module_fqns_per_model_part']] == [7, 9, 9, 7]"
toml "p['module_fqns_per_model_part'][0][0] == 'tok_embeddings' and p['module_fqns_per_model_part'][3][-2:] == ['norm', 'output']"
toml "sum(p['module_fqns_per_model_part'], [])[1:33] == ['layers.%d' % i for i in range(32)] and 'pipeline_parallel_layers_per_stage' not in p"
toml "o['compile']['components'] == ['model', 'loss'] and 'enable_async_tensor_parallel' not in p"
scenario split_back llama3-8b 2 'tp: 1, pp: 4, vpp: 2, dp: 4, zero: 3, micro_batch: 1, schedule: interleaved-zb'
expect 0 "$mw" export split_back.yaml --to torchtitan -o out.toml
toml "o['compile']['components'] == ['loss'] and p['pipeline_parallel_schedule'] == 'InterleavedZeroBubble'"
grep -q 'refuses compiled layers' stderr.txt || fail "no note on compiled layers"
for scaling in tensor/float8/tensorwise row/float8/rowwise; do
    IFS=/ read -r ours table recipe <<<"$scaling"
    scenario eight llama3-8b 2 'tp: 1, dp: 16, zero: 3' ", dtype: fp8, fp8_scaling: $ours"
    expect 0 "$mw" export eight.yaml --to torchtitan -o out.toml
    toml "o['model']['converters'] == ['quantize.linear.$table'] and o['quantize']['linear']['$table']['recipe_name'] == '$recipe' and o['training']['mixed_precision_param'] == 'bfloat16'"
done
expect 0 "$mw" export fsdp.yaml --to torchtitan --json
json "'data_parallel_shard_degree = 16' in o['file'] and 'local_batch_size = 1\n' in o['file'] and len(o['notes']) >= 1 and 'torchtitan.train' in o['launch']"

# --- Nanotron, to standard output
scenario nano llama3-70b 8 'tp: 8, sp: true, pp: 4, dp: 2, zero: 1, micro_batch: 1, schedule: gpipe, recompute: full'
expect 0 "$mw" export nano.yaml --to nanotron
for text in '  dp: 2' '  pp: 4' '  tp: 8' 'pp_engine: afab' 'REDUCE_SCATTER' 'recompute_layer: true' 'batch_accumulation_per_replica: 128' 'num_hidden_layers: 80'; do
    grep -qF -- "$text" stdout.txt || fail "nanotron lacks '$text'"
done

expect 0 "$mw" export nano.yaml --to nanotron -o out.yaml
grep -q 'estimate of costs gives it \[21, 20, 20, 19\]' stderr.txt || fail "no note on layers: $(cat stderr.txt)"
scenario own llama3-70b 8 'tp: 8, sp: true, pp: 4, dp: 2, zero: 1, micro_batch: 1, layers: [21, 20, 20, 19]'
expect 0 "$mw" export own.yaml --to nanotron -o out.yaml
if grep -q 'estimate of costs' stderr.txt; then fail "a note on layers that are Nanotron's"; fi

# --- what a framework cannot do: status 1, the rule, the old file
# --- CUDA graphs
scenario graph llama3-8b 2 'tp: 1, dp: 16, zero: 1, cuda_graph: layer'
expect 0 "$mw" export graph.yaml --to megatron-core -o out.args
grep -qx -- '--cuda-graph-scope attn mlp' out.args || fail "graphs: $(grep graph out.args)"
args "o['cuda-graph-impl'] == 'transformer_engine' and o['te-rng-tracker']"
scenario padded mixtral-8x7b 2 'tp: 1, dp: 16, ep: 8, zero: 1, cuda_graph: layer, dispatcher: alltoall' ', capacity_factor: 1, pad_to_capacity: true'
expect 0 "$mw" export padded.yaml --to megatron-core -o out.args
grep -qx -- '--cuda-graph-scope attn moe' out.args || fail "graphs: $(grep graph out.args)"
scenario whole llama3-8b 2 'tp: 1, dp: 16, zero: 1, cuda_graph: full_iteration'
expect 0 "$mw" export whole.yaml --to megatron-core -o out.args
args "o['cuda-graph-impl'] == 'local' and o['cuda-graph-scope'] == 'full_iteration' and o['no-check-for-nan-in-loss-and-grad']"
# --- the loss
scenario loss llama3-8b 2 'tp: 1, dp: 16, zero: 1' ', loss: fused'
expect 0 "$mw" export loss.yaml --to megatron-core -o out.args
args "o['cross-entropy-loss-fusion'] and o['cross-entropy-fusion-impl'] == 'te'"

# --- types: 16-bit gradients of fp16 are the default there, recipes of FP8 by
# what shares a scale; a tokenizer that adds a token
scenario half llama3-8b 2 'tp: 1, dp: 16, zero: 1' ', dtype: fp16, grad_dtype: fp32'
expect 0 "$mw" export half.yaml --to megatron-core -o out.args
args "o['fp16'] and o['accumulate-allreduce-grads-in-fp32'] and o['vocab-size'] == '128255'"
scenario halved llama3-8b 2 'tp: 1, dp: 16, zero: 1' ', dtype: fp16, grad_dtype: fp16'
expect 0 "$mw" export halved.yaml --to megatron-core -o out.args
args "o['fp16'] and 'accumulate-allreduce-grads-in-fp32' not in o and o['attention-backend'] == 'flash'"
for scaling in tensor/delayed block/blockwise; do
    scenario eight llama3-8b 2 'tp: 1, dp: 16, zero: 1' ", dtype: fp8, fp8_scaling: ${scaling%/*}"
    expect 0 "$mw" export eight.yaml --to megatron-core -o out.args
    args "o['fp8-format'] == 'hybrid' and o['fp8-recipe'] == '${scaling#*/}'"
done
scenario eight llama3-8b 2 'tp: 1, dp: 16, zero: 1, recompute: selective, recompute_modules: [layernorm]' ', dtype: fp8'
expect 0 "$mw" export eight.yaml --to megatron-core -o out.args
args "o['fp8-recipe'] == 'tensorwise'"
scenario latent deepseek-v3 128 'tp: 8, sp: true, pp: 8, dp: 16, ep: 16, zero: 1, micro_batch: 1, recompute: full'
expect 0 "$mw" export latent.yaml --to megatron-core -o out.args
args "o['attention-backend'] == 'auto' and 'moe-router-pre-softmax' not in o"
printf 'format: 1\nmodel: {hidden: 1024, layers: 8, heads: 8, ffn: 4096, vocab: 32768, moe: {experts: 8, top_k: 1, ffn: 1024}}\ncluster: {system: dgx-h100, nodes: 1}\nworkload: {seq: 2048, global_batch: 64}\nlayout: {dp: 8, ep: 8, zero: 1}\n' >switch.yaml
expect 0 "$mw" export switch.yaml --to megatron-core -o out.args
args "o['moe-router-topk'] == '1' and o['moe-router-pre-softmax']"

# --- clipping
scenario wild llama3-8b 2 'tp: 1, dp: 16, zero: 1' ', clip_grad: none'
expect 0 "$mw" export wild.yaml --to megatron-core -o out.args
args "o['clip-grad'] == '0.0'"
expect 0 "$mw" export wild.yaml --to nanotron -o out.yaml
grep -q '^  clip_grad: null$' out.yaml || fail "nanotron clips"

# --- optimizers
scenario muon llama3-8b 2 'tp: 1, dp: 16, zero: 1' ', optimizer: muon'
expect 0 "$mw" export muon.yaml --to megatron-core -o out.args
args "o['optimizer'] == 'dist_muon' and 'use-distributed-optimizer' not in o and o['overlap-param-gather'] and o['ckpt-format'] == 'torch'"
scenario states llama3-8b 2 'tp: 1, dp: 16, zero: 1' ', main_params_dtype: fp16, exp_avg_dtype: fp8, exp_avg_sq_dtype: bf16'
expect 0 "$mw" export states.yaml --to megatron-core -o out.args
args "o['use-precision-aware-optimizer'] and o['main-params-dtype'] == 'fp16' and o['exp-avg-dtype'] == 'fp8' and o['exp-avg-sq-dtype'] == 'bf16'"
# TorchTitan's bf16 moments, chosen by the layout.
scenario moments llama3-8b 2 'tp: 1, dp: 16, zero: 3, exp_avg_dtype: bf16, exp_avg_sq_dtype: bf16'
expect 0 "$mw" export moments.yaml --to torchtitan -o out.toml
grep -qx 'implementation = "fused_opt_states_bf16"' out.toml || fail "TorchTitan's moments"
scenario sgd llama3-8b 2 'tp: 1, dp: 16, zero: 1' ', optimizer: sgd'
expect 0 "$mw" export sgd.yaml --to megatron-core -o out.args
args "o['optimizer'] == 'sgd' and o['sgd-momentum'] == '0'"
expect 0 "$mw" export sgd.yaml --to nanotron
grep -qx -- '  optimizer_factory: {name: sgd}' stdout.txt || fail "nanotron: $(grep factory stdout.txt)"

echo keep >out.args
refused() { # FILE FRAMEWORK RULE
    expect 1 "$mw" export "$1" --to "$2" -o out.args
    first_line "^meshwright: $2 cannot run this plan: $3: "
    [ "$(cat out.args)" = keep ] || fail "a refusal wrote a file"
}
refused even.yaml torchtitan titan_zero
refused fsdp.yaml nanotron nanotron_zero
refused even.yaml nanotron nanotron_schedule
refused uneven.yaml torchtitan '(titan_zero|titan_model)'
scenario inside mixtral-8x7b 2 'tp: 1, pp: 2, dp: 8, ep: 8, zero: 1, micro_batch: 1, order: tp-cp-ep-pp-dp'
refused inside.yaml megatron-core megatron_order_experts
scenario wide llama3-70b 8 'tp: 16, sp: true, pp: 4, dp: 1, micro_batch: 1'
refused wide.yaml megatron-core megatron_kv_heads
scenario away llama3-8b 2 'tp: 1, dp: 16, zero: 1, offload_activations: 1'
refused away.yaml megatron-core megatron_offload_layers
scenario zbv llama3-70b 8 'tp: 8, sp: true, pp: 4, vpp: 2, dp: 2, zero: 0, micro_batch: 1, schedule: zb-v'
refused zbv.yaml megatron-core megatron_schedule
scenario split llama3-70b 8 'tp: 8, sp: true, pp: 4, dp: 2, zero: 2, micro_batch: 1, schedule: 1f1b'
refused split.yaml megatron-core megatron_zero
refused graph.yaml nanotron nanotron_graph
sed 's/layer}/layer, recompute: full}/' graph.yaml >again.yaml
refused again.yaml megatron-core megatron_graph_recompute
refused loss.yaml nanotron nanotron_loss
scenario wilder llama3-8b 2 'tp: 1, dp: 16, zero: 3' ', clip_grad: none'
refused wilder.yaml torchtitan titan_clip
sed 's/loss: fused/loss_chunks: 8/' loss.yaml >parts.yaml
refused parts.yaml megatron-core megatron_loss
refused muon.yaml nanotron nanotron_optimizer
refused states.yaml nanotron nanotron_states
sed 's/zero: 1/zero: 1, offload_optimizer: 1/' states.yaml >lent.yaml
refused lent.yaml megatron-core megatron_states_offload
scenario bare llama3-8b 2 'tp: 1, dp: 16, zero: 1' ', main_params_dtype: none'
refused bare.yaml megatron-core megatron_main_params
scenario plain llama3-8b 2 'tp: 1, dp: 16, zero: 0' ', exp_avg_dtype: bf16'
refused plain.yaml megatron-core megatron_states
scenario small llama3-8b 2 'tp: 1, dp: 16, zero: 3' ', optimizer: adam8bit'
refused small.yaml megatron-core megatron_optimizer
refused small.yaml torchtitan titan_optimizer
sed -i 's/, schedule/, layers: [21, 20, 20, 19], schedule/' split.yaml
expect 0 "$mw" export split.yaml --to torchtitan -o out.toml
scenario copies llama3-8b 2 'tp: 2, sp: true, dp: 8, zero: 0, micro_batch: 1'
refused copies.yaml torchtitan titan_ddp
scenario deep qwen3-30b-a3b 16 'tp: 1, dp: 128, zero: 3, ep: 16, micro_batch: 1, dispatcher: deepep'
refused deep.yaml torchtitan titan_model_dispatcher
scenario select llama3-70b 8 'tp: 8, sp: true, pp: 4, dp: 2, zero: 1, micro_batch: 1, schedule: 1f1b, recompute: selective'
refused select.yaml nanotron nanotron_recompute
scenario lora llama3-8b 2 'tp: 1, dp: 16, micro_batch: 1' ', lora_rank: 8'
refused lora.yaml megatron-core lora
scenario packed llama3-8b 2 'tp: 1, dp: 16, micro_batch: 1' ', doc_tokens: 1024'
refused packed.yaml megatron-core documents
expect 0 "$mw" plan select.yaml --fix tp=8,pp=4,dp=2,schedule=1f1b,micro_batch=1 --order -o listed.yaml --quiet
refused listed.yaml megatron-core schedule_order

# --- hosts in the order of the plan's ranks; what stands by is left out
cat >spread.yaml <<'YAML'
format: 1
model: mixtral-8x7b
cluster: {system: dgx-h100, nodes: 7, spare_nodes: 1, leaves: [1, 4, 2], oversubscription: 4}
workload: {seq: 4096, global_batch: 48}
YAML
expect 0 "$mw" plan spread.yaml --fix tp=2,pp=3,dp=8,ep=8,order=tp-cp-ep-dp-pp,schedule=1f1b,zero=1 --quiet -o spread.plan.yaml
grep -q '^Nodes of the best .* (proved best of all orders; as allocated ' stdout.txt || fail "no order of nodes"
for i in 0 1 2 3 4 5 6; do echo "host$i"; done >hosts
expect 0 "$mw" export spread.plan.yaml --to hosts --hosts hosts -o ordered
want=$(sed -n 's/^  nodes: \[\(.*\)\]$/\1/p' spread.plan.yaml | tr -d ' ' | tr , '\n' | sed 's/^/host/')
[ "$(cat ordered)" = "$want" ] || fail "hosts: $(cat ordered)"
[ "$(sort ordered | uniq | wc -l)" -eq 6 ] || fail "not six hosts"
grep -qx 'SLURM_HOSTFILE=ordered srun --distribution=arbitrary --nodes 6 --ntasks 6 ...' stdout.txt || fail "$(cat stdout.txt)"
expect 0 "$mw" export spread.plan.yaml --to megatron-core -o out.args
grep -q -- '--node-rank $SLURM_PROCID' stdout.txt || fail "$(cat stdout.txt)"
grep -q 'export --to hosts writes' stderr.txt || fail "no note on hosts"
expect 2 "$mw" export spread.plan.yaml --to hosts
expect 2 "$mw" export spread.plan.yaml --to megatron-core --hosts hosts
sed -i 6d hosts
expect 3 "$mw" export spread.plan.yaml --to hosts --hosts hosts -o ordered
first_line '^meshwright: .*hosts: 6 hosts but .* allocation has 7 nodes'
sed -i 's/host1/host0/; $ahost7' hosts
expect 3 "$mw" export spread.plan.yaml --to hosts --hosts hosts -o ordered
first_line '^meshwright: .*hosts: host host0 is listed twice'
[ "$(cat ordered)" = "$want" ] || fail "a refusal wrote a file"

# --- usage and bad input
expect 2 "$mw" export even.yaml
expect 2 "$mw" export --to megatron-core
expect 2 "$mw" export even.yaml --to tensorflow
first_line "--to: 'tensorflow' is not a framework"
expect 3 "$mw" export missing.yaml --to megatron-core
expect 3 "$mw" export even.yaml --to megatron-core -o nowhere/out.args
finish
