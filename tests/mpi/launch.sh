#!/usr/bin/env bash
# What `meshwright run` says and returns when something is not as it should be:
# wrong number of ranks, no MPI, no GPU, a stale calibration, a rank that dies.
. "${MW_SOURCE:?}/tests/cli/lib.sh"
mw=${MESHWRIGHT:?}
command -v python3 >/dev/null || exit 77

cat >small.yaml <<'YAML'
format: 1
name: small
model: {preset: gpt-small, hidden: 32, heads: 4, head_dim: 8, ffn: 64, vocab: 64,
        max_seq: 16, layers: 4}
cluster: {system: this-machine, nodes: 1, gpus_per_node: 2}
workload: {seq: 16, global_batch: 8, dtype: fp32, grad_dtype: fp32}
YAML
expect 0 "$mw" plan small.yaml --fix tp=1,pp=2,dp=1 -o plan.yaml

# A run, with every key that others read.
expect 0 "$mw" run plan.yaml --backend host --steps 5 --verify --json --trace t.json
json "o['steps'] == 5 and len(o['loss']) == 5 and o['loss'][4] < o['loss'][0]"
json "o['verified'] is True and o['max_gradient_error'] == 0"
json "len(o['peak_bytes']) == 2 and min(o['peak_bytes']) > 0"
json "o['step_time_s'] > 0 and o['virtual_step_time_s'] > 0"
expect 0 "$mw" sim small.yaml --plan plan.yaml --trace s.json
expect 0 "$mw" compare s.json t.json --json
json "o['measured_step_time_s'] > 0"
expect 0 "$mw" run plan.yaml --backend host --steps 4 --clock wall --trace w.json
grep -q '"wall"' w.json || fail "the wall clock's name is not in the trace"
expect 0 "$mw" run plan.yaml --backend host --steps 1

# Usage.
expect 2 "$mw" run plan.yaml --backend host --ranks 4
first_line '^meshwright: --ranks: plan.yaml needs 2 ranks'
expect 2 "$mw" run plan.yaml
first_line 'backend host or --backend cuda'
expect 2 "$mw" run plan.yaml --backend host --slow gemm=fast
expect 2 "$mw" run plan.yaml --backend host --steps 0
expect 3 "$mw" run missing.yaml --backend host
first_line '^meshwright: missing.yaml'
expect 3 "$mw" run plan.yaml --backend host --hwdb nowhere
first_line '^meshwright: nowhere: '
expect 3 "$mw" run plan.yaml --backend host --trace no/such/folder/t.json
first_line 'no/such/folder/t.json'

# The launch line: nothing is run.
expect 0 "$mw" run plan.yaml --backend host --print-launch
grep -q 'mpirun -np 2.*meshwright-exec run plan.yaml' stdout.txt || fail "no mpirun line"
grep -q 'srun .*-n 2' stdout.txt || fail "no srun line"

# A thread for each rank instead of a process.
expect 0 "$mw" run plan.yaml --backend host --comm local --steps 5 --verify --json
json "o['ranks'] == 2 and o['verified'] is True and o['max_gradient_error'] == 0"
json "{t['dim'] for t in o['traffic']} == {'pp'}"
cp stdout.txt sample.json

# Any file to learn from: two bytes in turn are learned sooner than a story.
printf 'ab%.0s' $(seq 500) >two.txt
expect 0 "$mw" run plan.yaml --backend host --comm local --steps 5 --verify \
    --text two.txt --json
json "o['verified'] is True and o['loss'][4] < json.load(open('sample.json'))['loss'][4]"
printf a >one.txt
expect 3 "$mw" run plan.yaml --backend host --comm local --text one.txt
first_line '^meshwright: one.txt: has 1 bytes; training needs a text of 2 or more'
expect 3 "$mw" run plan.yaml --backend host --comm local --text none.txt
first_line '^meshwright: none.txt'
expect 0 "$mw" run plan.yaml --backend host --comm local --print-launch
grep -q 'meshwright-exec run plan.yaml.*--comm local' stdout.txt || fail "no line"
! grep -q mpirun stdout.txt || fail "mpirun without need"
expect 2 "$mw" run plan.yaml --backend host --comm tcp
expect 3 "$mw" run plan.yaml --backend host --comm local --hwdb nowhere

# What is missing at run time; on a machine with a GPU and the module, nothing.
sed 's/gpus_per_node: 2/gpus_per_node: 1/' small.yaml >one.yaml
expect 0 "$mw" plan one.yaml --fix tp=1,pp=1,dp=1 -o one-plan.yaml
if nvidia-smi -L 2>/dev/null | grep -q '^GPU' && [ -e "$(dirname "$mw")/mw_cuda.so" ]; then
    expect 0 "$mw" run one-plan.yaml --backend cuda --steps 4
    expect 0 "$mw" run plan.yaml --backend cuda --comm local --steps 4 --verify
else
    expect 4 "$mw" run one-plan.yaml --backend cuda --steps 4
    first_line '^meshwright: the cuda backend is not available'
    expect 4 "$mw" run plan.yaml --backend cuda --comm local --slow gemm=2
    first_line '^meshwright: the cuda backend is not available'
fi
mkdir bare && ln -s "$(command -v env)" bare/env
expect 4 env PATH="$PWD/bare" "$mw" run plan.yaml --backend host
first_line '^meshwright: mpirun is not in PATH'
expect 0 env PATH="$PWD/bare" "$mw" run plan.yaml --backend host --comm local

# A calibration of another machine.
mkdir stale
printf 'key,value\ncpu,"Babbage"\nblas_core,"Brass"\nmode,dedicated\n' >stale/machine.csv
printf 'device,op,pass,dtype,m,n,k,time_s,source\nhost-cpu,norm,F,fp32,16,32,0,1e-6,test\n' >stale/kernels.csv
expect 3 "$mw" run plan.yaml --backend host --hwdb stale
first_line "stale/machine.csv: stale calibration: cpu was 'Babbage'"

# Ranks in the middle of a step: each has computed for 0.3 s (30 ticks of
# utime). mpirun itself may hang when a rank dies while it starts the others.
children() { cat /proc/"$1"/task/*/children 2>/dev/null; }
has_computed() {
    local ticks
    ticks=$(cut -d' ' -f14 "/proc/$1/stat" 2>/dev/null) || return 1
    grep -q meshwright-exec "/proc/$1/comm" 2>/dev/null && [ "${ticks:-0}" -ge 30 ]
}
# Starts a long run; sets run, mpirun, rank (a rank's process) and others.
start_run() {
    "$mw" run plan.yaml --backend host --steps 100000 --hang-timeout "$2" \
        --checkpoint "$1.ckpt" --checkpoint-every 1 \
        >"$1.out" 2>"$1.err" &
    run=$!
    rank=
    for _ in $(seq 600); do
        mpirun=$(children "$run" | cut -d' ' -f1)
        ranks=$([ -n "$mpirun" ] && children "$mpirun")
        n_ready=0
        for pid in $ranks; do has_computed "$pid" && n_ready=$((n_ready + 1)); done
        [ "$n_ready" -eq 2 ] && rank=${ranks%% *} && break
        sleep 0.05
    done
    [ -n "$rank" ] || fail "no ranks were started"
    others=$(children "$mpirun")
}
# Gone within 10 s; a process that nobody has waited for yet (Z) is gone too.
is_alive() { grep -q '^State:[[:space:]]*[^ZX]' "/proc/$1/status" 2>/dev/null; }
all_gone() {
    for pid in $others; do
        for _ in $(seq 100); do
            is_alive "$pid" || break
            sleep 0.1
        done
        ! is_alive "$pid" || fail "rank process $pid is still there"
    done
}

# A rank that is killed: the others are gone, one line says which.
start_run killed 8s
kill -9 "$rank"
wait "$run"
[ $? -eq 5 ] || fail "exit status after a rank was killed"
grep -qE '^meshwright: rank [01] (was ended by signal 9|died in )' killed.err ||
    fail "message: $(cat killed.err)"
all_gone

# The last whole checkpoint goes on, under another layout too.
expect 0 "$mw" plan small.yaml --fix tp=2,pp=1,dp=1 -o tp.yaml
expect 0 "$mw" run tp.yaml --backend host --steps 2 --resume killed.ckpt --json
json "o['first_step'] > 0 and o['loss'][1] < 4"
cp killed.ckpt cut.ckpt && truncate -s -4 cut.ckpt
expect 3 "$mw" run tp.yaml --backend host --resume cut.ckpt
first_line '^meshwright: cut.ckpt: has .* bytes instead of'

# A rank that stops answering is named, with what it was at.
start_run hung 3s
kill -STOP "$rank"
wait "$run"
[ $? -eq 5 ] || fail "exit status after a rank hung"
grep -qE '^meshwright: rank [01] (hangs|waits forever) in .*: no rank moved for 3 s' \
    hung.err || fail "message: $(cat hung.err)"
all_gone
expect 2 "$mw" run plan.yaml --backend host --hang-timeout soon
finish
