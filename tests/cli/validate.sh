#!/usr/bin/env bash
# What `validate` says beside its errors: rows that say all apart from rows that
# a rule filled, the worst rows with their breakdown, what releases differ by,
# and the picture.
. "${MW_SOURCE:?}/tests/cli/lib.sh"
mw=${MESHWRIGHT:?}
command -v python3 >/dev/null || exit 77

header=id,kind,model,hidden,layers,heads,kv_heads,ffn,vocab,seq,global_batch,micro_batch,gpus,nodes,gpu,tp,pp,dp,zero,seq_parallel,recompute,dtype,schedule,framework,step_time_s
gpt=pretrain,gpt,2048,24,16,16,8192,51200,2048
machine=8,1,H100-SXM5-80GB
cat >rows.csv <<CSV
$header
given,$gpt,64,2,$machine,2,2,2,1,1,full,bf16,1f1b,NeMo 24.12,3
one-way,$gpt,128,2,$machine,1,1,8,1,,full,bf16,,NeMo 24.12,3
guessed,$gpt,256,,$machine,2,2,2,1,1,full,bf16,1f1b,NeMo 24.12,300
older,$gpt,64,2,$machine,2,2,2,1,1,full,bf16,1f1b,NeMo 24.07,3.3
oldest,$gpt,64,4,$machine,1,2,4,1,0,full,bf16,1f1b,NeMo 24.05,3.12
CSV
expect 0 "$mw" validate rows.csv --json
# Nothing is guessed where a way of one needs no cell.
json "o['fully_specified']['rows'] == 2 and o['filled_by_rule']['rows'] == 1"
json "o['filled']['micro_batch_twin'] == 1 and 'seq_parallel' not in o['filled']"
json "abs(2 * o['fully_specified']['mape'] + o['filled_by_rule']['mape'] - 3 * o['overall']['mape']) < 1e-12"
# 300 s is a hundred times too slow.
json "o['worst'][0] == 'guessed' and sorted(o['worst']) == ['given', 'guessed', 'one-way']"
json "all(abs(sum(r['breakdown'].values()) - r['predicted_s']) < 1e-6 * r['predicted_s'] for r in o['per_row'] if 'predicted_s' in r)"
# 3.3 and 3.12 beside 3: 10 and 4 %, the first in the same layout.
json "o['releases']['runs'] == 2 and abs(o['releases']['median'] - 0.07) < 1e-9 and o['releases']['above_5_percent'] == 0.5"
json "o['releases']['one_layout']['runs'] == 1 and abs(o['releases']['one_layout']['p90'] - 0.1) < 1e-9"

expect 0 "$mw" validate rows.csv
grep -q 'fully specified' stdout.txt || fail "specified rows are not apart"
grep -q 'one layout and precision: 1 runs, median 10.0 %' stdout.txt ||
    fail "what releases differ by is not said"

expect 2 "$mw" validate rows.csv --plot rows.pdf
[ -e rows.pdf ] && fail "a file of another ending was written"
expect 2 "$mw" validate rows.csv --plot - --json
if command -v gnuplot >/dev/null; then
    expect 0 "$mw" validate rows.csv --plot rows.svg
    # Three points beside two lines of comment.
    [ "$(grep -c '^[0-9]' rows.dat)" = 3 ] || fail "points: $(cat rows.dat)"
    grep -q '</svg>' rows.svg || fail "no picture"
else
    expect 4 "$mw" validate rows.csv --plot rows.svg
fi

# A figure of memory is of the kind that its file says, and kinds are explained.
cat >memory.csv <<CSV
$header,mem_gib_per_gpu,mem_def
tensors,$gpt,64,2,$machine,2,2,2,1,1,full,bf16,1f1b,NeMo 24.12,3,9,allocated
smi,$gpt,64,2,$machine,2,2,2,1,1,full,bf16,1f1b,NeMo 24.12,3,9,nvidia-smi
rounded,$gpt,64,2,$machine,2,2,2,1,1,full,bf16,1f1b,NeMo 24.12,3,9,GB rounded up
CSV
expect 0 "$mw" validate memory.csv --json
json "[r['memory'][0]['kind'] for r in o['per_row']] == ['allocated', 'device', 'device']"
json "{g['kind']: g['what'] for g in o['memory']['groups']}['device'].endswith('nvidia-smi')"
expect 0 "$mw" validate memory.csv
grep -q '^allocated: tensors at the high-water mark' stdout.txt ||
    fail "kinds of memory are not explained"
grep -q '^reserved:' stdout.txt && fail "a kind that no row has is explained"
finish
