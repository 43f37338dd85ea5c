#!/usr/bin/env bash
# plan from the command line: copies of experts, numbers of nodes, goals in
# order, mixed clusters, parts of a search, limits of time, interrupts.
. "${MW_SOURCE:?}/tests/cli/lib.sh"
mw=${MESHWRIGHT:?}
command -v python3 >/dev/null || exit 77
gpt=$MW_SOURCE/scenarios/gpt3-175b-8xdgx-a100.yaml
llama=$MW_SOURCE/scenarios/llama3-8b-2xdgx-h100.yaml

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

# Racks that can be cut in two ways: in parts, as one, and as a front.
cat >racks.yaml <<'EOF'
format: 1
name: racks
model: {preset: llama3-8b, layers: 4}
cluster: {system: gb200-nvl72, gpus_per_node: 1, nodes: 4, domain_nodes: [2, 4]}
workload: {seq: 2048, global_batch: 8}
EOF
"$mw" plan racks.yaml --fix schedule=1f1b --shard 1/2 --part r1.yaml -q >/dev/null || fail "racks 1/2"
"$mw" plan racks.yaml --fix schedule=1f1b --shard 2/2 --part r2.yaml -q >/dev/null || fail "racks 2/2"
"$mw" plan racks.yaml --fix schedule=1f1b -q -o whole.plan >/dev/null || fail "racks"
"$mw" plan racks.yaml --fix schedule=1f1b --merge r2.yaml --merge r1.yaml -q -o joined.plan >/dev/null || fail "racks joined"
cmp -s whole.plan joined.plan || fail "joined choices of domains differ from the whole"
"$mw" plan racks.yaml --fix schedule=1f1b --merge r2.yaml --merge r1.yaml -q --json >racks.json
grep -q '"domains_proved": *true' racks.json || fail "joined choices are not proved"
expect 0 "$mw" plan racks.yaml --fix schedule=1f1b --pareto time,memory --json
expect 2 "$mw" plan racks.yaml --pareto time,memory -o x.yaml
expect 0 "$mw" plan racks.yaml --fix schedule=1f1b,zero=1 --objective gpus --json

# Nodes that stand by, by the whole job; the plan is read under its own number.
cat >spares.yaml <<'YAML'
format: 1
model: {preset: llama3-8b, layers: 8}
cluster: {system: dgx-h100, nodes: 4}
workload: {seq: 2048, global_batch: 96}
limits: {spare_nodes: [0, 1, 2], tp: [1], pp: [1], micro_batch: [1]}
YAML
expect 0 "$mw" plan spares.yaml --tokens 1T --failures 300 --json -o spares.plan
json "min((s['time_s'], s['spare_nodes']) for s in o['spares'])[1] == o['spare_nodes']"
json "o['spare_nodes'] > 0 and o['spares_proved'] and o['plans'][0]['dp'] == 32 - 8 * o['spare_nodes'] and abs(o['job']['time_s'] / min(s['time_s'] for s in o['spares']) - 1) < 1e-9"
expect 0 "$mw" sim spares.yaml --plan spares.plan --tokens 1T --failures 300 --json
cp stdout.txt standing.txt
json "o['job']['nodes_standing_by'] > 0 and o['job']['waiting_s'] > 0"
# Checkpoints of the choice are of the types that its plan has.
sed 's/micro_batch: \[1\]/micro_batch: [1], exp_avg_dtype: bf16, exp_avg_sq_dtype: fp8/' spares.yaml >narrow.yaml
expect 0 "$mw" plan narrow.yaml --tokens 1T --failures 300 --json
json "abs(o['job']['time_s'] / min(s['time_s'] for s in o['spares']) - 1) < 1e-9"
json "14 * o['job']['checkpoint_bytes'] == 9 * json.load(open('standing.txt'))['job']['checkpoint_bytes']"
expect 2 "$mw" plan spares.yaml
expect 2 "$mw" plan spares.yaml --tokens 1T --within 3

# Too little time: an answer, and that it is not proved.
expect 0 "$mw" plan "$gpt" --time-limit 1ms --json -o quick.yaml
json "o['proved_optimal'] is False and len(o['plans']) > 0"
[ -s quick.yaml ] || fail "no plan was written under the time limit"

# An interrupt: the best so far is written, 130.
cat >large.yaml <<'YAML'
format: 1
model: gpt3-175b
cluster: {system: dgx-a100, nodes: 4096}
workload: {seq: 2048, global_batch: 32768, dtype: fp16}
YAML
"$mw" plan large.yaml --space full --quiet -o stopped.yaml >stopped.txt 2>&1 &
pid=$!
sleep 1
kill -INT $pid
wait $pid
[ $? -eq 130 ] || fail "interrupted plan did not exit with 130"
[ -s stopped.yaml ] || fail "interrupted plan wrote nothing"
finish
