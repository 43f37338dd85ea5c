#!/usr/bin/env bash
# --json prints one object with the keys that other programs rely on.
. "${MW_SOURCE:?}/tests/cli/lib.sh"
mw=${MESHWRIGHT:?}
command -v python3 >/dev/null || exit 77

llama=$MW_SOURCE/scenarios/llama3-8b-2xdgx-h100.yaml
keys() { json "set('$1'.split()) <= set(o)"; }

expect 0 "$mw" sim "$MW_SOURCE/scenarios/gpt3-175b-64xdgx-a100.yaml" --json
[ -s stderr.txt ] && fail "sim --json writes to stderr"
keys "step_time_s tokens_per_s_per_gpu model_tflops_per_gpu hardware_tflops_per_gpu mfu breakdown memory events wall_time_s"
json "set('peak_bytes capacity_bytes fits stages'.split()) <= set(o['memory'])"
json "abs(sum(o['breakdown'].values()) / o['step_time_s'] - 1) < 1e-9"
json "0 < o['mfu'] < 1 and o['hardware_tflops_per_gpu'] >= o['model_tflops_per_gpu'] > 0"
json "len(o['memory']['stages']) == 8 and o['memory']['fits'] is True"

expect 0 "$mw" sim "$MW_SOURCE/scenarios/gpt3-175b-64xdgx-a100.yaml" --json --jitter 20 --seed 9
json "o['jitter']['draws'] == 20 and o['jitter']['seed'] == 9 and o['jitter']['expected_s'] == o['step_time_s']"
json "o['jitter']['least_s'] <= o['jitter']['p10_s'] <= o['jitter']['mean_s'] <= o['jitter']['p90_s'] <= o['jitter']['most_s']"
expect 0 "$mw" sim "$MW_SOURCE/scenarios/gpt3-175b-64xdgx-a100.yaml" --json --unfold
json "o['unfolded']['step_time_s'] == o['step_time_s'] and o['unfolded']['ranks'] == 512 and o['unfolded']['slow'] == []"
expect 0 "$mw" sim "$MW_SOURCE/scenarios/gpt3-175b-64xdgx-a100.yaml" --json --slow 3=1.5,100=1.1
json "o['unfolded']['step_time_s'] > o['step_time_s'] and o['unfolded']['slow'][1] == {'rank': 100, 'factor': 1.1}"
expect 2 "$mw" sim "$MW_SOURCE/scenarios/gpt3-175b-64xdgx-a100.yaml" --slow 512=2
first_line 'rank 512, but the plan has ranks 0 to 511'
expect 2 "$mw" sim "$MW_SOURCE/scenarios/gpt3-175b-64xdgx-a100.yaml" --slow 3=0
expect 2 "$mw" sim "$MW_SOURCE/scenarios/gpt3-175b-64xdgx-a100.yaml" --slow 3=1.3,3=2
first_line 'rank 3 has two factors'
expect 2 "$mw" sim "$MW_SOURCE/scenarios/gpt3-175b-64xdgx-a100.yaml" --slow 3
first_line 'for example 17=1.3'
expect 2 "$mw" sim "$MW_SOURCE/scenarios/gpt3-175b-64xdgx-a100.yaml" --slow 3:2
expect 2 "$mw" sim "$MW_SOURCE/scenarios/gpt3-175b-64xdgx-a100.yaml" --jitter 0
expect 2 "$mw" sim "$MW_SOURCE/scenarios/gpt3-175b-64xdgx-a100.yaml" --seed 9

# Energy: 76 % of 10.2 kW while a rank computes, of two nodes, and all of it.
expect 0 "$mw" sim "$MW_SOURCE/scenarios/llama3-8b-2xdgx-h100.yaml" --tokens 1T --json
json "abs(o['job']['energy_J'] / (2 * 10200 * o['job']['time_s']) - 1) < 1e-12"
json "abs(o['job']['least_energy_J'] / (2 * 0.76 * 10200 * (o['job']['productive_s'] + o['job']['repeated_s']) * sum(v for k, v in o['breakdown'].items() if k in 'F B W recompute optimizer'.split()) / o['step_time_s']) - 1) < 1e-9"
json "0.3 < o['job']['least_energy_J'] / o['job']['energy_J'] < 0.76"

# A checkpoint: weights of 2 bytes, main copy and moments.
checkpoint() { # OPTIMIZER BYTES-A-PARAMETER
    sed "s/^  global_batch: [0-9]*/&\n  optimizer: $1/" "$MW_SOURCE/scenarios/llama3-8b-2xdgx-h100.yaml" >optimizer.yaml
    expect 0 "$mw" sim optimizer.yaml --tokens 1T --json
    json "o['job']['checkpoint_bytes'] == $2 * 8030261248"
}
checkpoint adamw 14
checkpoint sgd 6
checkpoint sgd-momentum 10
checkpoint 'adamw\n  main_params_dtype: none\n  exp_avg_dtype: bf16\n  exp_avg_sq_dtype: fp8' 5

expect 0 "$mw" plan "$MW_SOURCE/scenarios/llama3-8b-2xdgx-h100.yaml" --json
keys "enumerated pruned evaluated simulated proved_optimal wall_time_s plans"
json "set('tp sp cp pp vpp dp zero ep etp micro_batch schedule recompute step_time_s peak_bytes'.split()) <= set(o['plans'][0])"
json "o['enumerated'] == sum(o['pruned'].values()) + len(o['plans'])"
json "all(p['tp'] * p['pp'] * p['dp'] == 16 for p in o['plans'])"

# Whole matrices for Muon; graphs as listed.
sed 's/^  global_batch: [0-9]*/&\n  optimizer: muon/' "$llama" >muon.yaml
expect 0 "$mw" plan muon.yaml --json --fix tp=2,pp=1,micro_batch=1
json "{p['zero'] for p in o['plans']} == {0, 1} and o['pruned']['optimizer'] > 0"
sed 's/^limits:/&\n  cuda_graph: [none, layer]/' "$llama" >graph.yaml
expect 0 "$mw" plan graph.yaml --json --fix tp=2,pp=1,micro_batch=1,zero=1
json "{p['cuda_graph'] for p in o['plans']} == {'none', 'layer'}"
expect 0 "$mw" plan graph.yaml --json --fix tp=2,pp=1,micro_batch=1,zero=1,cuda_graph=layer
json "{p['cuda_graph'] for p in o['plans']} == {'layer'}"

expect 0 "$mw" plan "$MW_SOURCE/scenarios/llama3-8b-2xdgx-h100.yaml" --json --fix pp=4,schedule=1f1b,vpp=1
json "o['layers_proved'] is True and sum(o['plans'][0]['layers']) == 32"

expect 1 "$mw" plan "$MW_SOURCE/scenarios/gpt3-175b-8xdgx-a100.yaml" --json --fix tp=1,pp=1,dp=64,zero=1
json "o['plans'] == [] and o['pruned']['memory'] == o['evaluated'] > 0"

expect 0 "$mw" sched --kind 1f1b --stages 4 --microbatches 8 --times 1,1,1 --json
keys "kind objective memory_model stages microbatches chunks makespan_s span_s bubble_rate_makespan bubble_rate_span lower_bound_s proved_optimal peak_activations solve_time_s solver"
# (p - 1) (F + B + W) of bubble beside m (F + B + W) of work.
json "abs(o['bubble_rate_makespan'] - 3 / 11) < 1e-12"

# One object and nothing else: no second text on stdout beside it.
both() { # VERB ARGS... OPTION
    expect 2 "$mw" "$@" - --json
    first_line "--json and ${!#} - both want stdout"
    [ -s stdout.txt ] && fail "$1 ${!#} -: output on stdout"
}
both sim "$llama" --trace
both sim "$llama" --csv
both plan "$llama" -o
both sched --kind 1f1b --stages 4 --microbatches 8 --plot
expect 2 "$mw" sched --kind 1f1b --stages 4 --microbatches 8 --parts 3
both sched --kind 1f1b --stages 4 --microbatches 8 --to-csv
both coll --system dgx-h100 --plot
both sweep "$llama" --vary nodes=1,2 --plot
both sweep "$llama" --vary nodes=1,2 --csv

# A table of collectives is known by its columns; 1 GiB at the ring's pace.
cat >coll.csv <<'CSV'
id,collective,gpu,gpus,nodes,gpus_per_node,interconnect,nccl_version,dtype,size_bytes,time_us,algbw_GBps,busbw_GBps,in_place,source,note
a,all_reduce,H100-SXM5-80GB,8,1,8,NVSwitch,2.26.2,fp32,1073741824,4000,268.4,469.8,0,made up,
CSV
expect 0 "$mw" validate coll.csv --model nccl --json
keys "rows predicted skipped filled overall groups"
json "o['rows'] == o['predicted'] == 1 and 0 <= o['overall']['mape'] < 1"
expect 1 "$mw" validate coll.csv --model nccl --max-mape 0.000001
expect 2 "$mw" validate coll.csv --model none
printf 'id,kind\na,pretrain\n' >steps.csv
expect 2 "$mw" validate coll.csv steps.csv
first_line 'validated apart'
finish
