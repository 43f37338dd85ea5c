#!/usr/bin/env bash
# plan and sweep from the command line: explanations, limits of time,
# interrupts, resuming, shards, bad input.
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
{ scenario 8 64; echo 'limits: {framework: megatron}'; } >frame.yaml
expect 3 "$mw" plan frame.yaml
grep -q 'megatron-core-0.14' stderr.txt || fail "frameworks not listed"
scenario 0 64 >zero.yaml
expect 3 "$mw" plan zero.yaml

# The margin is an input: less memory, other plans; never beyond it.
expect 0 "$mw" plan "$gpt" --memory-margin 30GiB --json
json "all(p['peak_bytes'] <= 50.1 * 2**30 for p in o['plans'])"
expect 2 "$mw" plan "$gpt" --memory-margin 300GiB
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
grep -q '^End' s.lp || fail "no program was written"
expect 2 "$mw" plan "$gpt" --fix schedule=zb-v --stage-recompute

# A training stack's habits: other times, the simulator's.
expect 0 "$mw" plan "$gpt" --stack megatron-core --fix tp=8,pp=8,schedule=1f1b -o stack.yaml --json
cp stdout.txt stack.txt
expect 0 "$mw" sim "$gpt" --plan stack.yaml --stack megatron-core --json
json "abs(o['step_time_s'] / json.load(open('stack.txt'))['plans'][0]['step_time_s'] - 1) < 1e-9"
expect 2 "$mw" plan "$gpt" --stack megatron-9000
expect 2 "$mw" sweep "$gpt" --stack megatron-9000

# Dimensions that are one way unless asked for.
llama=$MW_SOURCE/scenarios/llama3-8b-2xdgx-h100.yaml
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

# Copies of experts on ranks: all experts, no more than the bound says.
printf 'load\n60\n25\n10\n30\n5\n1\n9\n12\n' >loads.csv
printf 'format: 1\nmodel: mixtral-8x7b\ncluster: {system: dgx-h100, nodes: 1}\nworkload: {seq: 4096, global_batch: 64}\n' >moe.yaml
expect 0 "$mw" plan moe.yaml --experts loads.csv --redundant 4 --fix ep=4 --write-lp e.lp --json
json "o['proved_optimal'] and sorted(set(sum(o['ranks'], []))) == list(range(8))"
json "o['worst_over_mean'] < o['plain_over_mean'] and all(len(r) <= 3 for r in o['ranks'])"
grep -q Subject e.lp || fail "no program was written"
expect 2 "$mw" plan moe.yaml --experts loads.csv --redundant 3 --fix ep=4
expect 2 "$mw" plan "$gpt" --experts loads.csv --fix ep=4
expect 3 "$mw" plan moe.yaml --experts missing.csv --fix ep=4
expect 2 "$mw" plan moe.yaml --experts loads.csv --redundant 1000000 --fix ep=4
first_line "ep 4 ranks have use for 24"
expect 2 "$mw" plan moe.yaml --redundant 4
expect 2 "$mw" plan moe.yaml --experts loads.csv --fix ep=4 --why-not tp=2
first_line "one at a time"
sed 's/12/-12/' loads.csv >below.csv
expect 3 "$mw" plan moe.yaml --experts below.csv --fix ep=4
first_line "below\.csv:9: .*a load is not below 0"
sed 's/[0-9].*/0/' loads.csv >idle.csv
expect 3 "$mw" plan moe.yaml --experts idle.csv --fix ep=4
first_line "idle\.csv: no expert has any load"

# Plans that no other beats over numbers of nodes, and the whole job.
expect 0 "$mw" plan "$llama" --pareto time,gpus,cost --tokens 1T --within 200 --json
json "[p['nodes'] for p in o['front']] == [1, 2] and o['proved_optimal']"
json "o['front'][0]['job']['time_s'] > o['front'][1]['job']['time_s'] and o['fewest_gpus_in_time'] in (8, 16)"
expect 2 "$mw" plan "$llama" --pareto time
expect 2 "$mw" plan "$llama" --within 200
first_line "--within needs --tokens"
expect 2 "$mw" plan "$llama" --within 200 --tokens 1T --pareto time,memory
expect 2 "$mw" plan "$llama" --pareto time,money
expect 2 "$mw" plan "$llama" --within soon
expect 0 "$mw" plan "$llama" --tokens 300B --top 1 --json
json "o['job']['time_s'] > 300e9 / (128 * 8192) * o['plans'][0]['step_time_s']"

# Goals in order: of the plans within 5 % of the fastest the one with the least
# memory; the fewest nodes that end in time, as the front says; a file's list.
expect 0 "$mw" plan "$llama" --top 40 --json
cp stdout.txt ranked.txt
expect 0 "$mw" plan "$llama" --objective 'step_time within 5 %, memory' --json
json "abs(o['objective']['goals'][0]['value'] / json.load(open('ranked.txt'))['plans'][0]['step_time_s'] - 1) < 1e-9"
json "o['objective']['proved_optimal'] and o['plans'][0]['peak_bytes'] <= o['objective']['goals'][1]['value'] * (1 + 1e-9)"
json "all(p['peak_bytes'] >= o['plans'][0]['peak_bytes'] for p in json.load(open('ranked.txt'))['plans'] if p['step_time_s'] <= o['objective']['goals'][0]['limit'])"
expect 0 "$mw" plan "$llama" --objective gpus --tokens 1T --within 200 --json
json "o['objective']['gpus'] == o['objective']['goals'][0]['value'] and o['job']['time_s'] <= 200 * 86400"
cp stdout.txt fewest.txt
expect 0 "$mw" plan "$llama" --pareto time,gpus,cost --tokens 1T --within 200 --json
json "o['fewest_gpus_in_time'] == json.load(open('fewest.txt'))['objective']['gpus']"
expect 1 "$mw" plan "$llama" --objective gpus --tokens 1000T --within 1
{ cat "$llama"; echo 'objective: [cost_per_token within 20 %, memory]'; } >goals.yaml
expect 0 "$mw" plan goals.yaml --why --robust --json -o goal-plan.yaml
json "[g['goal'] for g in o['objective']['goals']] == ['cost_per_token', 'memory'] and o['why']['best_s'] > 0"
sed 's/nodes: 2/nodes: 8/' "$llama" >eight.yaml
expect 0 "$mw" plan eight.yaml --tokens 1T --cap 1e9 --price 2 --json
json "o['objective']['nodes'] == 8 and o['job']['usd_low'] <= 1e9"
cp stdout.txt rich.txt
cap=$(python3 -c "import json; print(0.99 * json.load(open('rich.txt'))['job']['usd_low'])")
expect 0 "$mw" plan eight.yaml --tokens 1T --cap "$cap" --price 2 --json
json "o['job']['usd_low'] <= $cap and o['objective']['nodes'] < 8 and o['plans'][0]['step_time_s'] > json.load(open('rich.txt'))['plans'][0]['step_time_s']"
expect 1 "$mw" plan "$llama" --tokens 1T --cap 1 --price 2
expect 2 "$mw" plan "$llama" --cap 1e6
expect 2 "$mw" plan "$llama" --tokens 1T --cap much
expect 2 "$mw" plan "$llama" --objective speed
expect 2 "$mw" plan "$llama" --objective memory --pareto time,memory
{ cat "$llama"; echo 'objective: [memory, memory]'; } >twice.yaml
expect 3 "$mw" plan twice.yaml
first_line "twice\.yaml:[0-9]+:[0-9]+: objective: goal memory is named twice"

# A checkpoint holds what learns: rank 16 on every projection of 32 layers of
# Llama 3 8B, r (in + out) each, 14 bytes a parameter.
sed 's/^workload:/workload:\n  lora_rank: 16/' "$llama" >lora.yaml
expect 0 "$mw" sim lora.yaml --tokens 1T --json
json "o['job']['checkpoint_bytes'] == 14 * 32 * 16 * (2 * (4096 + 4096) + 2 * (4096 + 1024) + 3 * (4096 + 14336))"

# A100 and H100 nodes: all layers, within the GPUs of each, faster together.
expect 0 "$mw" plan "$gpt" --mixed dgx-a100=4,dgx-h100=2 --fix micro_batch=1 --json
json "sum(s['layers'] for s in o['stages']) == 96 and o['proved_optimal']"
json "sum(s['gpus'] for s in o['stages'] if s['system'] == 'dgx-a100') <= 32"
json "sum(s['gpus'] for s in o['stages'] if s['system'] == 'dgx-h100') <= 16"
cp stdout.txt both.txt
expect 0 "$mw" plan "$gpt" --mixed dgx-a100=6 --fix micro_batch=1 --json
json "o['pipeline_s'] > json.load(open('both.txt'))['pipeline_s']"
expect 1 "$mw" plan "$gpt" --mixed dgx-a100=1
expect 3 "$mw" plan "$gpt" --mixed dgx-9000=1
expect 2 "$mw" plan "$gpt" --mixed dgx-a100

# A search in parts: the joined plan is the plan; parts of others are refused.
expect 0 "$mw" plan "$llama" --json
cp stdout.txt whole.json
expect 0 "$mw" plan "$llama" --shard 1/3 --part part-1.yaml --json
expect 0 "$mw" plan "$llama" --shard 3/3 --part part-3.yaml
expect 1 "$mw" plan "$llama" --merge part-1.yaml --merge part-3.yaml
first_line "1 of 3 shards are missing, the first is 2/3"
OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=3 \
    "$mw" plan "$llama" --shard auto --part part-2.yaml -q >/dev/null || fail "plan --shard auto"
expect 0 "$mw" plan "$llama" --merge part-3.yaml --merge part-1.yaml --merge part-2.yaml -o joined.yaml --why --json
json "o['plans'][:10] == json.load(open('whole.json'))['plans'][:10] and o['n_proved'] == 10 and 'why' in o"
json "all(o[k] == json.load(open('whole.json'))[k] for k in ('enumerated', 'evaluated', 'proved_optimal'))"
expect 0 "$mw" plan "$llama" -o whole.yaml
cmp -s joined.yaml whole.yaml || fail "the plan of the joined parts differs"
expect 3 "$mw" plan "$llama" --fix tp=8 --merge part-1.yaml
first_line "^meshwright: part-1\.yaml:5:[0-9]+: part of a search of another"
expect 3 "$mw" plan "$llama" --merge joined.yaml
expect 2 "$mw" plan "$llama" --shard 1/3
expect 2 "$mw" plan "$llama" --shard 4/3 --part x.yaml
expect 2 "$mw" plan "$llama" --shard 1/3 --part x.yaml --robust
expect 2 "$mw" plan "$llama" --shard 1/3 --part x.yaml --objective gpus
[ ! -e x.yaml ] || fail "a refused shard wrote a part"

# Too little time: an answer, and that it is not proved.
expect 0 "$mw" plan "$gpt" --time-limit 1ms --json -o quick.yaml
json "o['proved_optimal'] is False and len(o['plans']) > 0"
[ -s quick.yaml ] || fail "no plan was written under the time limit"

# An interrupt: the best so far is written, 130.
scenario 4096 32768 >large.yaml
"$mw" plan large.yaml --space full --quiet -o stopped.yaml >stopped.txt 2>&1 &
pid=$!
sleep 1
kill -INT $pid
wait $pid
[ $? -eq 130 ] || fail "interrupted plan did not exit with 130"
[ -s stopped.yaml ] || fail "interrupted plan wrote nothing"

# Sweeps: rows, resuming, shards, merging.
expect 0 "$mw" sweep "$gpt" --vary nodes=1,8,16 --preset weak --csv s.csv --json --price 2 --tokens 1e12
json "o['points'] == 3 and [r['feasible'] for r in o['rows']] == [False, True, True]"
json "[r['global_batch'] for r in o['rows']] == [8, 64, 128]"
json "abs(o['rows'][1]['usd'] / (2 * o['rows'][1]['gpu_hours_per_ttoken']) - 1) < 1e-9"
expect 0 "$mw" sweep "$gpt" --vary nodes=8,16,32 --tokens 1e10 --within 10 --json
json "o['fewest_gpus_in_time'] == min([r['gpus'] for r in o['rows'] if r['train_s'] <= 864000])"
expect 0 "$mw" sweep "$gpt" --vary nodes=8,16 --tokens 1e15 --within 1 --json
json "o['fewest_gpus_in_time'] is None"
expect 2 "$mw" sweep "$gpt" --vary nodes=8 --within 10
cp s.csv before.csv
expect 0 "$mw" sweep "$gpt" --vary nodes=1,8,16 --preset weak --csv s.csv --json
cmp -s s.csv before.csv || fail "a resumed sweep changed its rows"
axes="--vary nodes=8,16 --vary net=0.5,1"
expect 0 "$mw" sweep "$gpt" $axes --csv whole.csv --json
expect 0 "$mw" sweep "$gpt" $axes --shard 1/2 --csv a.csv --json
json "o['points'] == 2"
expect 1 "$mw" sweep "$gpt" $axes --merge a.csv --csv m.csv
SLURM_ARRAY_TASK_ID=1 SLURM_ARRAY_TASK_MIN=0 SLURM_ARRAY_TASK_COUNT=2 \
    "$mw" sweep "$gpt" $axes --shard auto --csv b.csv >/dev/null || fail "shard auto"
expect 0 "$mw" sweep "$gpt" $axes --merge a.csv --merge b.csv --csv m.csv
cmp -s m.csv whole.csv || fail "merged shards differ from the whole"
# Curves: what they need is said before any search.
if command -v gnuplot >/dev/null; then
    for curve in rate efficiency days cost; do
        expect 0 "$mw" sweep "$gpt" --vary nodes=8,16 --csv curve.csv --tokens 1e12 --price 2 --plot $curve.svg --curve $curve
    done
    grep -q 'scaling efficiency' efficiency.svg || fail "no axis of efficiency"
    grep -q 'days to train' days.svg || fail "no axis of days"
    grep -q 'US dollars to train' cost.svg || fail "no axis of cost"
fi
expect 2 "$mw" sweep "$gpt" --vary nodes=8 --plot x.svg --curve speed
expect 2 "$mw" sweep "$gpt" --vary nodes=8 --plot x.svg --curve days
expect 2 "$mw" sweep "$gpt" --vary nodes=8 --plot x.svg --curve cost --tokens 1e12
expect 2 "$mw" sweep "$gpt" --vary nodes=8 --curve rate --curve days --tokens 1e12
# GPUs used of a node: the scenario that says so, whichever axis comes first.
expect 0 "$mw" sweep "$llama" --vary gpus_per_node=4,8 --vary system=dgx-h100,dgx-a100 --csv pernode.csv --json
json "[(r['gpus'], r['system']) for r in o['rows']] == [(8, 'dgx-h100'), (8, 'dgx-a100'), (16, 'dgx-h100'), (16, 'dgx-a100')]"
cp stdout.txt pernode.txt
sed -e 's/nodes: 2/nodes: 2\n  gpus_per_node: 4/' -e '/^layout:/,$d' "$llama" >four.yaml
expect 0 "$mw" plan four.yaml --json
json "o['plans'][0]['step_time_s'] == json.load(open('pernode.txt'))['rows'][0]['step_time_s']"
expect 3 "$mw" sweep "$llama" --vary gpus_per_node=9
# Two jobs on one budget.
expect 0 "$mw" sweep "$gpt" --vary nodes=8,16,32 --csv one.csv --json
expect 0 "$mw" sweep "$MW_SOURCE/scenarios/llama3-8b-2xdgx-h100.yaml" --vary nodes=2,4 --csv two.csv --json
expect 0 "$mw" sweep --share dgx-a100=128,dgx-h100=64 --merge one.csv --merge two.csv --tokens 1e11 --json
json "[j['gpus'] for j in o['jobs']] == [128, 32] and o['proved_optimal']"
json "o['longest_s'] == max(j['train_s'] for j in o['jobs'])"
cp stdout.txt plain.txt
expect 0 "$mw" sweep --share dgx-a100=128,dgx-h100=64 --merge one.csv --merge two.csv --tokens 1e11 --minimise cost --write-lp share.lp --json
json "o['usd'] > 0 and o['longest_s'] >= json.load(open('plain.txt'))['longest_s']"
grep -q Subject share.lp || fail "no program was written"
expect 1 "$mw" sweep --share dgx-a100=128,dgx-h100=64 --merge one.csv --merge two.csv --tokens 1e11 --cap 1
expect 1 "$mw" sweep --share dgx-a100=128,dgx-h100=64 --merge one.csv --merge two.csv --tokens 1e11 --kinds 1
expect 2 "$mw" sweep --share dgx-a100=128 --merge one.csv --minimise money
expect 1 "$mw" sweep --share dgx-a100=32,dgx-h100=64 --merge one.csv --merge two.csv
expect 2 "$mw" sweep --share dgx-a100=32
expect 2 "$mw" sweep --share dgx-a100 --merge one.csv
expect 2 "$mw" sweep --share dgx-a100=32,dgx-a100=64 --merge one.csv
first_line "dgx-a100 is given twice"
expect 2 "$mw" sweep
for bad in "nodes=0" "nodes=x" "node=1" "nodes" "net=-1" "nodes=1,,2" "seq=1.5"; do
    expect 2 "$mw" sweep "$gpt" --vary "$bad"
done
expect 2 "$mw" sweep "$gpt" --vary nodes=8 --shard 3/2
expect 3 "$mw" sweep "$gpt" --vary system=dgx-9000
expect 3 "$mw" sweep "$gpt" --vary model=gpt9
finish
