#!/usr/bin/env bash
# plan from the command line: explanations, what does not fit, racks, the margin,
# recomputation by stage, what a space holds.
. "${MW_SOURCE:?}/tests/cli/lib.sh"
mw=${MESHWRIGHT:?}
command -v python3 >/dev/null || exit 77
gpt=$MW_SOURCE/scenarios/gpt3-175b-8xdgx-a100.yaml

# A scenario without a layout, on other numbers of nodes.
scenario() { # nodes batch
    cat <<YAML
format: 1
model: gpt3-175b
cluster: {system: dgx-a100, nodes: $1}
workload: {seq: 2048, global_batch: $2, dtype: fp16}
YAML
}

# Explanations.
expect 0 "$mw" plan "$gpt" --why=schedule=1f1b --json
json "abs(sum(t['best'] for t in o['why']['time_s']) / o['why']['best_s'] - 1) < 1e-9"
json "abs(sum(t['other'] for t in o['why']['time_s']) / o['why']['other_s'] - 1) < 1e-9"
json "o['n_proved'] == 10 and o['gap'] == 0"
expect 0 "$mw" plan "$gpt" --why-not tp=4,pp=2 --json
json "o['slower'] > 0 and o['why']['other_s'] > o['why']['best_s']"
expect 1 "$mw" plan "$gpt" --why-not tp=1,pp=1,zero=0 --json
json "any('zero' in c['change'] for c in o['changes'])"
expect 1 "$mw" plan "$gpt" --why-not tp=3
grep -q 'tp 3 does not divide' stderr.txt || fail "tp=3: no rule named"

# An alternative that is none is an answer with reasons, beside the plan; one
# that does not fit or is not in the space is said to be so; wrong words are
# found before any search.
quick="--fix schedule=1f1b,vpp=1,zero=1"
llama=$MW_SOURCE/scenarios/llama3-8b-2xdgx-h100.yaml
sed '/^layout:/,$d' "$llama" >bare.yaml
expect 1 "$mw" plan bare.yaml $quick --why=tp=3 --json
json "len(o['plans']) > 0 and not o['why']['feasible'] and o['why']['reasons'][0]['rule'] == 'tp_heads'"
first_line '^meshwright: --why=tp=3: no feasible plan'
expect 1 "$mw" plan bare.yaml --why-not tp=3 --json
json "not o['feasible'] and 'tp 3 does not divide' in o['reasons'][0]['nearest'] and len(o['changes']) > 0"
for bad in layout foo=1 tp; do
    expect 2 "$mw" plan bare.yaml --why=$bad -o never.yaml --json
    [ ! -e never.yaml ] || fail "a plan was written before --why=$bad was refused"
done
first_line "^meshwright: --why: 'tp' is not KEY=VALUE"
{ cat bare.yaml; echo 'layout: {dp: 16}'; } >large.yaml
expect 0 "$mw" plan large.yaml $quick --why=layout
grep -q '^The other does not fit: it needs .* usable' stdout.txt || fail "not said not to fit"
{ cat bare.yaml; echo 'layout: {dp: 8, cp: 2, zero: 3}'; } >beside.yaml
expect 0 "$mw" plan beside.yaml --fix zero=3,recompute=full --why=layout
grep -q '^The other is faster: it is not among the layouts enumerated' stdout.txt || fail "not said to be elsewhere"
expect 0 "$mw" plan beside.yaml --fix zero=3,recompute=full --why-not cp=2,recompute=none
grep -q 'faster than the best of all enumerated' stdout.txt || fail "slower by less than nothing"
expect 2 "$mw" plan bare.yaml --why-not tp=2 -o never.yaml
# Nor is a file that cannot be written found after the search.
for output in "-o none/f" "--shard 1/2 --part none/f" "--stage-recompute --write-lp none/f" "-o $scratch"; do
    expect 3 "$mw" plan bare.yaml $quick $output
    first_line '^meshwright: .*: cannot write: '
    [ ! -s stdout.txt ] && [ "$(wc -l <stderr.txt)" = 1 ] || fail "searched before $output was refused"
done
# A key twice: the last does not win without a word.
for twice in "--why=tp=1,tp=2" "--why-not tp=1,tp=2" "--fix tp=1,tp=2"; do
    expect 2 "$mw" plan bare.yaml $twice
    first_line "^meshwright( plan)?: ${twice%%[= ]*}: tp is given twice, as 1 and as 2; give it once"
done
expect 2 "$mw" plan bare.yaml --pareto time,gpus -o never.yaml
expect 1 "$mw" plan bare.yaml --pareto time,gpus --memory-margin 78GiB --json
json "o['front'] == []"
expect 2 "$mw" plan bare.yaml --fix schedule=interleaved-1f1b --stage-recompute --json
json "len(o['plans']) > 0"

# An interrupt ends plans of slow schedules and goals, with what there is.
interrupted() { # SECONDS ARGUMENT...: exit status 130 and an object
    timeout --preserve-status --signal=INT "$1" "$mw" plan "${@:2}" --json >stdout.txt 2>stderr.txt
    local got=$?
    [ $got = 0 ] && return # it was over before
    [ $got = 130 ] || fail "exit status $got of an interrupt: $*"
    json "'plans' in o or 'front' in o"
    grep -q '^meshwright: interrupted' stderr.txt || fail "not said to be interrupted: $*"
}
interrupted 0.5 "$gpt" --fix schedule=hanayo,tp=8 -o stopped.yaml
interrupted 1 "$gpt" --objective 'cost_per_token within 1 %, memory' --space full
interrupted 0.5 "$gpt" --pareto time,gpus,cost --space full

# Types of states: a layout's are written, priced and saved as the workload's are.
states() { # FILE WORKLOAD LAYOUT
    printf 'format: 1\nmodel: llama3-8b\ncluster: {system: dgx-h100, nodes: 1}\nworkload: {seq: 8192, global_batch: 32%s}\nlayout: {dp: 8, zero: 1%s}\n' "$2" "$3" >"$1"
}
states given.yaml ', exp_avg_dtype: bf16, main_params_dtype: fp16' ''
states own.yaml '' ', exp_avg_dtype: bf16, main_params_dtype: fp16'
expect 0 "$mw" sim given.yaml --tokens 1e12 --json
GIVEN=$(python3 -c 'import json; o = json.load(open("stdout.txt")); print(o["step_time_s"], o["memory"]["peak_bytes"], o["job"]["checkpoint_bytes"])')
expect 0 "$mw" sim own.yaml --tokens 1e12 --json
export GIVEN
json "os.environ['GIVEN'] == '%s %s %s' % (o['step_time_s'], o['memory']['peak_bytes'], o['job']['checkpoint_bytes'])"
expect 0 "$mw" plan own.yaml --fix tp=1,pp=1,dp=8,zero=3,exp_avg_dtype=bf16 --quiet -o own.plan.yaml
grep -qx '  exp_avg_dtype: bf16' own.plan.yaml || fail "states: $(cat own.plan.yaml)"
# The sets that stacks use, where asked for by name; the narrowest wins.
states plain.yaml '' ''
expect 0 "$mw" plan plain.yaml --top 1 --json
cp stdout.txt plain.txt
json "o['plans'][0]['exp_avg_dtype'] == 'workload'"
expect 0 "$mw" plan plain.yaml --free state_dtype --top 1 --json
json "(o['plans'][0]['main_params_dtype'], o['plans'][0]['exp_avg_dtype'], o['plans'][0]['exp_avg_sq_dtype']) == ('fp16', 'fp8', 'fp16') and o['proved_optimal']"
json "o['enumerated'] == 5 * json.load(open('plain.txt'))['enumerated'] and o['plans'][0]['step_time_s'] < json.load(open('plain.txt'))['plans'][0]['step_time_s']"
printf 'limits: {framework: torchtitan-0.2}\n' | cat plain.yaml - >titan.yaml
expect 0 "$mw" plan titan.yaml --free state_dtype --top 1 --json
json "o['plans'][0]['main_params_dtype'] == 'workload' and o['plans'][0]['exp_avg_dtype'] == o['plans'][0]['exp_avg_sq_dtype'] == 'bf16'"
expect 0 "$mw" plan plain.yaml --fix state_dtype=fp8,tp=1,pp=1,zero=1 --top 1 --json
json "(o['plans'][0]['main_params_dtype'], o['plans'][0]['exp_avg_dtype']) == ('workload', 'fp8')"
expect 2 "$mw" plan plain.yaml --fix state_dtype=int8

# Infeasible: what binds and what would help.
scenario 1 64 >small.yaml
expect 1 "$mw" plan small.yaml --json
json "o['plans'] == [] and o['pruned']['memory'] > 0"
json "any('nodes instead of 1' in c['change'] for c in o['changes'])"
expect 1 "$mw" plan small.yaml
grep -q 'nodes instead of 1' stderr.txt || fail "no change printed"

# Racks cut in two ways: the choice is in the plan, and priced as it says.
cat >racks.yaml <<'YAML'
format: 1
model: mixtral-8x7b
cluster: {system: gb200-nvl72, nodes: 18, domain_nodes: [18, 16]}
workload: {seq: 4096, global_batch: 256}
YAML
expect 0 "$mw" plan racks.yaml --fix tp=1,pp=1,ep=8,micro_batch=1 --json -o racks.plan.yaml
json "[(d['domain_nodes'], d['gpus'], d['spare_nodes'], d['feasible']) for d in o['domains']] == [(18, 72, 0, False), (16, 64, 2, True)]"
json "o['domains_proved'] and o['plans'][0]['nodes'] == list(range(16))"
planned=$(python3 -c 'import json; print(json.load(open("stdout.txt"))["plans"][0]["step_time_s"])')
expect 0 "$mw" sim racks.yaml --plan racks.plan.yaml --json
PLANNED=$planned json "abs(o['step_time_s'] / float(os.environ['PLANNED']) - 1) < 1e-12"
expect 0 "$mw" plan racks.yaml --fix tp=1,pp=1,ep=8,micro_batch=1 --quiet
grep -q '^How the racks are cut:' stdout.txt || fail "no table of cuts"
grep -q 'taken, proved best' stdout.txt || fail "no choice"
# --why-not asks about every cut: 16 here, though 18 comes first.
for values in ep=8 ep=4; do
    expect 0 "$mw" plan racks.yaml --fix tp=1,pp=1,micro_batch=1 --why-not $values --json
    json "o['feasible'] and (o['domain_nodes'], o['best_domain_nodes']) == (16, 16) and o['slower'] >= 0"
    cp stdout.txt why_not.txt
    expect 0 "$mw" plan racks.yaml --fix tp=1,pp=1,micro_batch=1,$values --json
    json "abs(o['plans'][0]['step_time_s'] / json.load(open('why_not.txt'))['why']['other_s'] - 1) < 1e-12"
done
expect 0 "$mw" plan racks.yaml --fix tp=1,pp=1,micro_batch=1 --why-not ep=8
grep -q '^It has domains of 16 nodes, the best of all of 16' stdout.txt || fail "cuts are not named"
for i in $(seq 18); do echo "tray$i"; done >trays
expect 0 "$mw" export racks.plan.yaml --to hosts --hosts trays -o ordered
[ "$(cat ordered)" = "$(head -16 trays)" ] || fail "hosts: $(cat ordered)"
sed 's/\[18, 16\]/[19]/' racks.yaml >rack19.yaml
expect 3 "$mw" plan rack19.yaml
first_line 'rack19.yaml:3:[0-9]+: 19 nodes in one scale-up domain but gb200-nvl72 joins 18'
sed 's/\[18, 16\]/[16], spare_nodes: 2/' racks.yaml >rack_spare.yaml
expect 3 "$mw" plan rack_spare.yaml
first_line 'rack_spare.yaml:3:[0-9]+: with domain_nodes what is left of a rack stands by'

# A prime number of GPUs; limits that contradict each other.
sed 's/nodes: 1}/nodes: 13, gpus_per_node: 1}/' small.yaml >prime.yaml
expect 1 "$mw" plan prime.yaml
{ scenario 8 64; echo 'limits: {tp: [8], dp: [64]}'; } >contra.yaml
expect 1 "$mw" plan contra.yaml
grep -q 'limits: tp' stderr.txt || fail "contradiction: no limit named"
grep -q 'is excluded by limits: tp' stderr.txt || fail "not said which limits exclude"
expect 1 "$mw" plan "$llama" --fix dp=16,zero=0
sed -n 2p stderr.txt | grep -q 'fell to memory.* short$' || fail "memory binds: $(cat stderr.txt)"
grep -q '^  zero=1 instead of 0: ' stderr.txt || fail "no nearest value"
{ scenario 8 64; echo 'limits: {framework: megatron}'; } >frame.yaml
expect 3 "$mw" plan frame.yaml
grep -q 'megatron-core-0.14' stderr.txt || fail "frameworks not listed"
scenario 0 64 >zero.yaml
expect 3 "$mw" plan zero.yaml

# The margin is an input: less memory, other plans; never beyond it.
expect 0 "$mw" plan "$gpt" --memory-margin 30GiB --json
json "all(p['peak_bytes'] <= 50.1 * 2**30 for p in o['plans'])"
expect 2 "$mw" plan "$gpt" --memory-margin 300GiB
expect 0 "$mw" plan "$gpt" $quick --memory-margin 0B --json
json "abs(o['usable_bytes'] / 80 / 2**30 - 1) < 1e-9"
# A margin of one's own may go back to that of our error, not beyond it.
expect 1 "$mw" plan bare.yaml $quick --memory-margin 79GiB --json
json "any('our memory error asks for' in c['change'] and c['peak_bytes'] < 76 * 2**30 for c in o['changes'])"
expect 2 "$mw" plan "$gpt" --memory-margin 30
expect 0 "$mw" plan "$gpt" --pareto time,memory --json
json "len(o['plans']) > 3"
json "all(a['peak_bytes'] > b['peak_bytes'] and a['step_time_s'] <= b['step_time_s'] for a, b in zip(o['plans'], o['plans'][1:]))"
expect 2 "$mw" plan "$gpt" --pareto gpus

expect 0 "$mw" plan "$gpt" --robust --top 3 --json
json "len(o['robust']) == 3 and all(len(r['cases']) == 5 for r in o['robust'])"
json "all(r['first_rank'] <= i + 1 <= r['last_rank'] for i, r in enumerate(o['robust']))"
json "all(p['within_model_error'] == (p['step_time_s'] / o['plans'][0]['step_time_s'] - 1 <= o['model_error']['p90']) for p in o['plans'])"

# Recomputation by stage: all layers, within memory, no slower than one setting.
expect 0 "$mw" plan "$gpt" --fix schedule=1f1b,tp=8,pp=8 --write-lp s.lp --json
json "sum(s['none'] + s['selective'] + s['full'] for s in o['stages']['stages']) == 96"
json "o['stages']['bound_s'] <= o['stages']['uniform_bound_s'] * (1 + 1e-9)"
json "all(s['bytes'] <= o['usable_bytes'] * (1 + 1e-9) for s in o['stages']['stages'])"
expect 0 "$mw" plan "$gpt" --fix schedule=1f1b,tp=8,pp=8 --stage-recompute -o staged.yaml --json
cp stdout.txt staged.txt
json "o['stages']['written'] and o['stages']['plan']['step_time_s'] < o['plans'][0]['step_time_s']"
json "sum(o['stages']['plan']['layers']) == 96 and len(o['stages']['plan']['stage_recompute_layers']) == 8"
json "o['stages']['plan']['peak_bytes'] <= o['usable_bytes']"
expect 0 "$mw" sim "$gpt" --plan staged.yaml --json
json "abs(o['step_time_s'] / json.load(open('staged.txt'))['stages']['plan']['step_time_s'] - 1) < 1e-9"
expect 1 "$mw" export staged.yaml --to megatron-core -o staged.args
grep -q 'one number of recomputed layers holds for all stages' stderr.txt || fail "no rule named"
sed 's/^layout:/limits: {framework: megatron-core-0.14}\nlayout:/' "$gpt" >megatron.yaml
expect 0 "$mw" plan megatron.yaml --fix schedule=1f1b,tp=8,pp=8 --stage-recompute -o megatron.plan
grep -q '^By stage a plan takes .*one number of recomputed layers holds' stdout.txt || fail "no rule said"
! grep -q '^No plan says it' stdout.txt || fail "nothing is said to fit"
! grep -q stage_recompute_layers megatron.plan || fail "a plan was written that Megatron-Core cannot run"
grep -q '^End' s.lp || fail "no program was written"
# Another solver finds the printed value in the program that was written.
cat >split.yaml <<'YAML'
format: 1
model: {preset: gpt3-175b, layers: 12}
cluster: {system: dgx-a100, nodes: 2}
workload: {seq: 2048, global_batch: 64}
limits: {memory: 31.2GiB, tp: 4, pp: 4, micro_batch: 2, schedule: 1f1b, zero: 0}
YAML
expect 0 "$mw" plan split.yaml --stage-recompute --write-lp split.lp --json
if command -v cbc >/dev/null; then
    VALUE=$(cbc split.lp solve | awk '/Objective value:/ {print $3}')
    export VALUE
    json "abs(float(os.environ['VALUE']) / o['stages']['bound_s'] - 1) < 1e-6"
fi
json "o['stages']['bound_s'] < 0.9 * o['stages']['uniform_bound_s']"
expect 2 "$mw" plan "$gpt" --fix schedule=zb-v --stage-recompute

# A training stack's habits: other times, the simulator's.
expect 0 "$mw" plan "$gpt" --stack megatron-core --fix tp=8,pp=8,schedule=1f1b -o stack.yaml --json
cp stdout.txt stack.txt
expect 0 "$mw" sim "$gpt" --plan stack.yaml --stack megatron-core --json
json "abs(o['step_time_s'] / json.load(open('stack.txt'))['plans'][0]['step_time_s'] - 1) < 1e-9"
expect 2 "$mw" plan "$gpt" --stack megatron-9000
expect 2 "$mw" sweep "$gpt" --stack megatron-9000

# Dimensions that are one way unless asked for.
expect 0 "$mw" plan "$llama" --fix cp_form=ring,cp=2,zero=3 --free reshard,dp_shard --top 1 --json
json "o['plans'][0]['cp_form'] == 'ring' and o['proved_optimal']"
cp stdout.txt freed.txt
expect 0 "$mw" plan "$llama" --fix cp_form=ring,cp=2,zero=3 --top 1 --json
json "o['plans'][0]['step_time_s'] >= json.load(open('freed.txt'))['plans'][0]['step_time_s']"
json "o['enumerated'] < json.load(open('freed.txt'))['enumerated']"
expect 2 "$mw" plan "$llama" --free sp
expect 1 "$mw" plan "$llama" --fix reshard=0,zero=1

# Types that a layout chooses are those of a workload that has them.
start='format: 1\nmodel: llama3-8b\ncluster: {system: dgx-h100, nodes: 2}\nworkload: {seq: 8192, global_batch: 64, '
printf "$start"'dtype: fp8, grad_dtype: bf16}\nlayout: {tp: 4, sp: true, dp: 4, zero: 1}\n' >of_workload.yaml
printf "$start"'dtype: bf16}\nlayout: {tp: 4, sp: true, dp: 4, zero: 1, dtype: fp8, grad_dtype: bf16}\n' >of_layout.yaml
expect 0 "$mw" sim of_workload.yaml --json
cp stdout.txt of_workload.txt
expect 0 "$mw" sim of_layout.yaml --json
json "all(o[k] == json.load(open('of_workload.txt'))[k] for k in ('step_time_s', 'mfu', 'memory'))"
# Lists of the limits are enumerated; what is not listed is not.
printf 'format: 1\nmodel: llama3-8b\ncluster: {system: dgx-h100, nodes: 2}\nworkload: {seq: 8192, global_batch: 64}\nlimits: {dtype: [bf16, fp8], grad_dtype: [fp32, bf16], offload_optimizer: [0, 0.5]}\n' >lists.yaml
expect 0 "$mw" plan lists.yaml --top 1 -o lists.plan --json
json "o['plans'][0]['dtype'] == 'fp8' and o['proved_optimal']"
cp stdout.txt lists.txt
expect 0 "$mw" plan lists.yaml --top 1 --fix dtype=bf16 --json
json "o['plans'][0]['dtype'] == 'workload' and o['plans'][0]['step_time_s'] > json.load(open('lists.txt'))['plans'][0]['step_time_s']"
expect 1 "$mw" plan lists.yaml --fix offload_optimizer=1
sed 's/0, 0.5]/0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8]/' lists.yaml >long.yaml
expect 3 "$mw" plan long.yaml
expect 0 "$mw" export lists.plan --to megatron-core -o lists.args
grep -q -e --fp8-format lists.args || fail "the export does not say FP8"
expect 1 "$mw" plan "$gpt" --fix dtype=fp8
# A list that the device cannot meet: dropping it is proposed.
sed 's/dgx-h100/dgx-a100/; s/bf16, fp8/fp8/' lists.yaml >fp8.yaml
expect 1 "$mw" plan fp8.yaml
grep -q 'without limits: dtype' stdout.txt stderr.txt || fail "the list is not named"
# Overlap that is switched off costs time, and its options are not written.
expect 0 "$mw" plan lists.yaml --top 1 --fix overlap_off=grad_reduce+param_gather,zero=1 -o serial.plan --json
json "o['plans'][0]['overlap_off'] == 'grad_reduce param_gather' and o['plans'][0]['step_time_s'] > json.load(open('lists.txt'))['plans'][0]['step_time_s']"
expect 0 "$mw" export serial.plan --to megatron-core -o serial.args
if grep -q -e --overlap serial.args; then fail "the export overlaps"; fi
expect 0 "$mw" plan "$llama" --fix pp=1,cp=8,cp_form=ring,zero=1 --free cp_inner,grad_dtype --top 1 --json

# The scenario's own layout is no better than the best, and its terms add up.
expect 0 "$mw" plan "$gpt" --why=layout --top 1 --json
json "o['stack'] == 'megatron-core' and o['why']['other_s'] >= o['why']['best_s']"
finish
