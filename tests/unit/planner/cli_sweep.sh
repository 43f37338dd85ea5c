#!/usr/bin/env bash
# sweep from the command line: rows, resuming, shards, curves, axes, jobs that
# share a budget, bad input.
. "${MW_SOURCE:?}/tests/cli/lib.sh"
mw=${MESHWRIGHT:?}
command -v python3 >/dev/null || exit 77
gpt=$MW_SOURCE/scenarios/gpt3-175b-8xdgx-a100.yaml
llama=$MW_SOURCE/scenarios/llama3-8b-2xdgx-h100.yaml

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
# So is a file that cannot be written: there is no row, and nothing is left.
for file in --csv --plot --crossings; do
    rm -f early.csv
    [ $file = --csv ] || early="--csv early.csv"
    expect 3 "$mw" sweep "$gpt" --vary nodes=8,16 ${early:-} $file none/out.svg
    first_line '^meshwright: none/out.svg: cannot write: '
    [ ! -e early.csv ] || fail "$file was looked at after the search"
done
expect 3 "$mw" sweep --share dgx-a100=128 --merge m.csv --write-lp none/out.lp
first_line '^meshwright: none/out.lp: cannot write: '
# Curves: what they need is said before any search.
if command -v gnuplot >/dev/null; then
    for curve in rate efficiency days cost; do
        expect 0 "$mw" sweep "$gpt" --vary nodes=8,16 --csv curve.csv --tokens 1e12 --price 2 --plot $curve.svg --curve $curve
    done
    grep -q 'scaling efficiency' efficiency.svg || fail "no axis of efficiency"
    grep -q 'days to train on 1e+12 tokens' days.svg || fail "no axis of days"
    grep -q 'US dollars to train on 1e+12 tokens at 2 USD per GPU hour' cost.svg || fail "no axis of cost"
    grep -q '>1000<' rate.svg && fail "an axis of 10 to 1000 for 64 and 128 GPUs"
    [ "$(grep -cE '>(64|128)<' efficiency.svg)" = 2 ] || fail "no tics at the points"
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
# NICs at their rate are a factor on the network.
quick="--fix schedule=1f1b,vpp=1,recompute=none,zero=1"
expect 0 "$mw" sweep "$llama" --vary nics=2,8 $quick --csv nics.csv --json
cp stdout.txt nics.txt
json "[r['nics'] for r in o['rows']] == [2, 8]"
expect 0 "$mw" sweep "$llama" --vary net=0.25,1 $quick --json
json "[r['step_time_s'] for r in o['rows']] == [r['step_time_s'] for r in json.load(open('nics.txt'))['rows']]"
expect 0 "$mw" sweep "$llama" --vary nics=2,8 $quick --csv nics.csv --json
cmp -s stdout.txt nics.txt || fail "a resumed sweep of NICs changed its rows"
expect 2 "$mw" sweep "$llama" --vary nics=0
# Of several ways to cut racks each point has the best.
cat >racks.yaml <<'YAML'
format: 1
model: {preset: mixtral-8x7b, layers: 8}
cluster: {system: gb200-nvl72, nodes: 18, domain_nodes: [18, 16, 9]}
workload: {seq: 4096, global_batch: 512}
limits: {tp: [1], pp: [1], micro_batch: [1]}
YAML
expect 0 "$mw" sweep racks.yaml --vary seq=2048,4096 --csv racks.csv --json
cp stdout.txt racks.txt
json "[(r['gpus'], r['domain_nodes']) for r in o['rows']] == [(64, 16), (64, 16)]"
expect 0 "$mw" plan racks.yaml --json
json "min((d['step_time_s'], d['domain_nodes']) for d in o['domains'] if d['feasible']) == (json.load(open('racks.txt'))['rows'][1]['step_time_s'], 16)"
expect 0 "$mw" sweep racks.yaml --vary seq=2048,4096 --csv racks.csv --json
cmp -s stdout.txt racks.txt || fail "a resumed sweep of racks changed its rows"
# Where curves cross on straight lines over log x, and where layouts change.
expect 0 "$mw" sweep "$llama" --vary nodes=4,16 --vary system=dgx-h100,dgx-a100 --vary net=0.02,1 $quick --csv cross.csv --crossings turns.csv --json
cat >turns.py <<'PY'
import csv, json, math
o = json.load(open('stdout.txt'))
at = {(r['nodes'], r['system'], r['net']): r for r in o['rows']}
rate = lambda n, s, net: at[n, s, net]['tokens_per_s_per_gpu']
series = [(s, net) for s in ('dgx-h100', 'dgx-a100') for net in (0.02, 1)]
found = {}
for i, a in enumerate(series):
    for b in series[i + 1:]:
        d0, d1 = (rate(n, *a) - rate(n, *b) for n in (4, 16))
        if d0 * d1 < 0:
            up, down = (a, b) if d1 > 0 else (b, a)
            x = math.exp(math.log(32) + d0 / (d0 - d1) * math.log(4))
            found['%s, %g' % up, '%s, %g' % down] = x
assert len(found) > 0
assert {(c['series'], c['overtakes']) for c in o['crossings']} == set(found)
for c in o['crossings']:
    assert abs(c['at'] / found[c['series'], c['overtakes']] - 1) < 1e-9
    assert (c['from'], c['to']) == (32, 128)
keys = ('tp', 'cp', 'pp', 'vpp', 'ep', 'etp', 'zero', 'micro_batch', 'recompute')
moved = {'%s, %g' % s for s in series if any(at[(4,) + s][k] != at[(16,) + s][k] for k in keys)}
assert moved == {c['series'] for c in o['layout_changes']} and len(moved) > 0
rows = list(csv.DictReader(l for l in open('turns.csv') if l[0] != '#'))
assert len(rows) == len(o['crossings']) + len(o['layout_changes'])
assert [float(r['at']) for r in rows if r['kind'] == 'crossing'] == [c['at'] for c in o['crossings']]
PY
python3 turns.py || fail "crossings: $(cat turns.csv)"
if command -v gnuplot >/dev/null; then
    expect 0 "$mw" sweep "$llama" --vary nodes=4,16 --vary system=dgx-h100,dgx-a100 --vary net=0.02,1 $quick --csv cross.csv --plot cross.svg
    grep -q 'change places' cross.svg || fail "crossings are not marked"
    grep -q 'Curves that cross, by GPUs' stdout.txt || fail "no table of crossings"
fi
# Quick points from here on.
quick="--fix schedule=1f1b,vpp=1,recompute=none,zero=1"
axes="--vary nodes=2,4 --vary net=0.5,1 $quick"
expect 0 "$mw" sweep "$llama" $axes --csv w4.csv --json
expect 0 "$mw" sweep "$llama" $axes --shard 1/2 --csv w1.csv --json
expect 0 "$mw" sweep "$llama" $axes --shard 2/2 --csv w2.csv --json
# Tasks of an array with a step, and lists, which have none.
for task in 1 5 9; do
    SLURM_ARRAY_TASK_ID=$task SLURM_ARRAY_TASK_MIN=1 SLURM_ARRAY_TASK_MAX=9 SLURM_ARRAY_TASK_STEP=4 SLURM_ARRAY_TASK_COUNT=3 \
        "$mw" sweep "$llama" $axes --shard auto --csv step$task.csv >/dev/null || fail "array with a step, task $task"
done
expect 0 "$mw" sweep "$llama" $axes --merge step1.csv --merge step5.csv --merge step9.csv --csv stepped.csv
cmp -s stepped.csv w4.csv || fail "tasks 1-9:4 differ from the whole"
export SLURM_ARRAY_TASK_ID=7 SLURM_ARRAY_TASK_MIN=1 SLURM_ARRAY_TASK_MAX=7 SLURM_ARRAY_TASK_STEP=4 SLURM_ARRAY_TASK_COUNT=3
expect 2 "$mw" sweep "$llama" $axes --shard auto
first_line "SLURM_ARRAY_TASK_ID '7' of SLURM_ARRAY_TASK_COUNT '3'"
unset SLURM_ARRAY_TASK_ID SLURM_ARRAY_TASK_MIN SLURM_ARRAY_TASK_MAX SLURM_ARRAY_TASK_STEP SLURM_ARRAY_TASK_COUNT
# Nothing that was searched is lost: a grid that grows in its middle, another
# grid, another scenario.
expect 0 "$mw" sweep "$llama" $quick --vary nodes=2,4 --csv grow.csv
cp grow.csv ends.csv
expect 0 "$mw" sweep "$llama" $quick --vary nodes=2,3,4 --csv grow.csv
expect 0 "$mw" sweep "$llama" $quick --vary nodes=3 --csv grow.csv
[ "$(grep -c dgx-h100 grow.csv)" = 3 ] || fail "rows of a wider grid were dropped"
expect 0 "$mw" sweep "$llama" $quick --vary nodes=2,4 --merge grow.csv --csv ends2.csv
cmp -s ends.csv ends2.csv || fail "rows changed on the way"
cp grow.csv before.csv
expect 3 "$mw" sweep "$llama" --vary nodes=2 --fix tp=8 --csv grow.csv
first_line 'grow.csv: 3 of its 3 rows answer another scenario'
expect 3 "$mw" sweep "$gpt" --vary nodes=8 --csv grow.csv
cmp -s grow.csv before.csv || fail "rows of another scenario were touched"
expect 0 "$mw" sweep "$llama" --vary nodes=2 --fix tp=8 --again --csv grow.csv
expect 3 "$mw" sweep "$llama" $axes --merge grow.csv
first_line 'grow.csv: 1 of its 1 rows answer another scenario'
# Rows priced with another database are another answer; the folder's place and
# its raw samples have no say.
mkdir fast slow moved
memory() { printf 'name,value,unit,source,date,confidence,note\nmem_efficiency.hopper,%s,ratio,test,2026-11-30,L,\n' "$1"; }
memory 0.8 >fast/constants.csv
memory 0.4 >slow/constants.csv
cp fast/constants.csv moved
echo 1 >moved/raw.csv
expect 0 "$mw" sweep "$llama" $quick --vary nodes=2 --csv hw.csv --hwdb fast
cp hw.csv before.csv
for other in "--hwdb slow" ""; do
    expect 3 "$mw" sweep "$llama" $quick --vary nodes=2 --csv hw.csv $other
    first_line 'hw.csv: 1 of its 1 rows answer another scenario or other options \(--fix, --stack, --hwdb\)'
    cmp -s hw.csv before.csv || fail "rows of another database were touched"
done
expect 0 "$mw" sweep "$llama" $quick --vary nodes=2 --csv hw.csv --hwdb moved
cmp -s hw.csv before.csv || fail "the same tables elsewhere are another database"
expect 0 "$mw" sweep "$llama" $quick --vary nodes=2 --csv slow.csv --hwdb slow
cut -d, -f2- hw.csv >hw.txt
cut -d, -f2- slow.csv | cmp -s - hw.txt && fail "slower memory changes no row"
expect 2 "$mw" sweep "$llama" --vary nodes=2 --fix tp=1,pp=1,tp=2
first_line '^meshwright sweep: --fix: tp is given twice, as 1 and as 2; give it once'
# Files that contradict; what is proved goes before what is not.
awk -F, -v OFS=, 'NR == 3 { $12 = 1 } { print }' w1.csv >lie.csv
expect 3 "$mw" sweep "$llama" $axes --merge w1.csv --merge w2.csv --merge lie.csv
first_line 'two files differ about one point'
awk -F, -v OFS=, 'NR == 3 { $12 = 1; $11 = 0 } { print }' w1.csv >short.csv
expect 0 "$mw" sweep "$llama" $axes --merge short.csv --merge w2.csv --merge w1.csv --csv wm.csv
cmp -s wm.csv w4.csv || fail "a row that is not proved went before one that is"
expect 0 "$mw" sweep "$llama" $axes --merge short.csv --merge w2.csv
grep -q '^1 of 4 points: the best found, not proved' stdout.txt || fail "not said to be unproved"
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
for bad in "nodes=0" "nodes=x" "node=1" "nodes" "net=-1" "nodes=1,,2" "seq=1.5" "nodes=8,8"; do
    expect 2 "$mw" sweep "$gpt" --vary "$bad"
done
expect 2 "$mw" sweep "$gpt" --vary nodes=8 --shard 3/2
expect 3 "$mw" sweep "$gpt" --vary system=dgx-9000
expect 3 "$mw" sweep "$gpt" --vary model=gpt9
finish
