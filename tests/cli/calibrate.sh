#!/usr/bin/env bash
# `calibrate` where nothing is measured: logs of nccl-tests become curves that
# the simulator takes; without GPU or driver cuda says so; bad logs and usage.
. "${MW_SOURCE:?}/tests/cli/lib.sh"
mw=${MESHWRIGHT:?}
command -v python3 >/dev/null || exit 77

log() { # NAME PROGRAM RANKS: sizes 1 KiB to 1 GiB at 100 GB/s and 10 us
    {
        echo "# Collective test starting: $2"
        for r in $(seq 0 $(($3 - 1))); do
            echo "#  Rank  $r Group  0 Pid  $r on  node-a device  $r [0x07] NVIDIA H100"
        done
        echo "#   size  count  type  redop  root  time  algbw  busbw #wrong  time  algbw busbw #wrong"
        python3 -c '
for k in range(10, 31, 4):
    n = 2 ** k
    t = 10 + n / 100e3
    print(n, n // 4, "float", "sum", -1, "%.2f" % t, "%.2f" % (n / t / 1e3), 1.0, 0, "%.2f" % (2 * t), 1.0, 1.0, 0)'
    } >"$1"
}
log reduce.log all_reduce_perf 8
log gather.log all_gather_perf 8
expect 0 "$mw" calibrate --nccl-log reduce.log --nccl-log gather.log --system dgx-h100 -o out --json
json "o['curves'] == 2 and o['rows'] == 12 and o['bytes_min'] == 1024 and o['bytes_max'] == 2 ** 30"
python3 - <<'PY' || fail "other rows: $(cat out/curves.csv)"
import csv
rows = list(csv.DictReader(open('out/curves.csv')))
assert len(rows) == 12 and {r['op'] for r in rows} == {'all_reduce', 'all_gather'}
assert {r['ranks'] for r in rows} == {'8'} and {r['system'] for r in rows} == {'dgx-h100'}
for r in rows:
    t = 1e-5 + int(r['bytes']) / 100e9
    assert abs(float(r['time_s']) / t - 1) < 1e-3, r
PY
expect 0 "$mw" hw check --hwdb out

# The simulator takes them: eight ranks of a node split every layer.
sed -E '/^layout:/,$d; s/^  nodes: .*/  nodes: 1/' "$MW_SOURCE/scenarios/llama3-8b-2xdgx-h100.yaml" >one.yaml
printf 'layout:\n  tp: 8\n  micro_batch: 1\n' >>one.yaml
expect 0 "$mw" sim one.yaml --json
json "'measured curve' not in o['priced_by'] or o['priced_by']['measured curve'] == 0"
expect 0 "$mw" sim one.yaml --hwdb out --json
json "o['priced_by']['measured curve'] > 0"

# In place, a headless log named on the command line, an old curves.csv kept.
expect 0 "$mw" calibrate --nccl-log reduce.log --system dgx-h100 --in-place -o inplace
grep -q ',1024,2.002e-05,\|,1024,2.004e-05,' inplace/curves.csv || fail "in place: $(head -3 inplace/curves.csv)"
grep -v Collective reduce.log >headless.log
cp out/curves.csv before.csv
expect 3 "$mw" calibrate --nccl-log headless.log --system dgx-h100 -o out
first_line '^meshwright: headless\.log: does not say which collective.*all_reduce=headless\.log'
expect 0 "$mw" calibrate --nccl-log reduce_scatter=headless.log --system 'DGX H100' -o named
grep -q '^dgx-h100,reduce_scatter,8,' named/curves.csv || fail "no reduce_scatter"
grep -v Rank reduce.log >rankless.log
expect 3 "$mw" calibrate --nccl-log rankless.log --system dgx-h100 -o out
first_line '^meshwright: rankless\.log: .*Rank'
expect 3 "$mw" calibrate --nccl-log reduce.log --nccl-log reduce.log --system dgx-h100 -o out
first_line 'reduce\.log: all_reduce over 8 ranks is in an earlier log'
sed 's/ 0 20.04/ 3 20.04/; s/ 1.0 0 / 1.0 7 /' reduce.log >wrong.log
expect 3 "$mw" calibrate --nccl-log wrong.log --system dgx-h100 -o out
first_line '^meshwright: wrong\.log: 7 wrong results'
echo nothing >empty.log
expect 3 "$mw" calibrate --nccl-log empty.log --system dgx-h100 -o out
first_line '^meshwright: empty\.log'
cmp -s out/curves.csv before.csv || fail "curves.csv was changed by a failure"

# --- usage
expect 2 "$mw" calibrate --nccl-log reduce.log -o out
expect 2 "$mw" calibrate --nccl-log reduce.log --system dgx-h1000 -o out
first_line '^meshwright: --system: .*dgx-h100'
expect 2 "$mw" calibrate --nccl-log sum=reduce.log --system dgx-h100 -o out
expect 2 "$mw" calibrate --nccl-log reduce.log --system dgx-h100 --backend host -o out
expect 2 "$mw" calibrate --backend host --system dgx-h100 -o out
expect 2 "$mw" calibrate -o out
expect 2 "$mw" calibrate --backend host
expect 2 "$mw" calibrate --backend metal -o out
expect 2 "$mw" calibrate --backend cuda -o out --time-limit soon

# --- cuda without the program, and with one that reports as ours do
MW_GPU_CHECK=$PWD/none expect 4 "$mw" calibrate --backend cuda -o gpu
first_line '^meshwright: .*none: cannot start'
stand_in() { printf '#!/bin/sh\n%s\n' "$1" >check; chmod +x check; }
export MW_GPU_CHECK=$PWD/check
stand_in 'echo "mw-gpu-check: no driver here" >&2; exit 4'
expect 4 "$mw" calibrate --backend cuda -o gpu
first_line '^meshwright: no driver here$'
stand_in 'echo "mw-gpu-check: the device failed" >&2; echo more >&2; exit 5'
expect 5 "$mw" calibrate --backend cuda -o gpu
first_line '^meshwright: the device failed$'
stand_in 'kill -9 $$'
expect 5 "$mw" calibrate --backend cuda -o gpu
first_line '^meshwright: mw-gpu-check failed$'
stand_in 'echo nothing written'
expect 3 "$mw" calibrate --backend cuda -o gpu
first_line 'gpu/gpu_check\.json: '
cat >gpu_check.json <<'JSON'
{"latency": {"launch_device_s": 2.5e-06}, "overlap": {"slowdown": 1.2},
 "copies": [{"direction": "h2d", "bytes": 1024, "bytes_per_s_per_direction": 1e9},
            {"direction": "h2d", "bytes": 1048576, "bytes_per_s_per_direction": 5e10},
            {"direction": "d2h", "bytes": 1048576, "bytes_per_s_per_direction": 4e10}]}
JSON
stand_in 'echo "$@" >args.txt; mkdir -p gpu; cp gpu_check.json gpu/'
expect 0 "$mw" calibrate --backend cuda -o gpu --device h200-sxm --quick --time-limit 60s --json
json "o['kernel_launch_s'] == 2.5e-6 and o['h2d_Bps'] == 5e10 and o['d2h_Bps'] == 4e10 and o['d2d_Bps'] is None and o['overlap_slowdown'] == 1.2"
expect 0 "$mw" calibrate --backend cuda -o gpu --device h200-sxm --quick --time-limit 60s
grep -q '^kernel_launch_s,2.5e-06,s,' gpu/constants.csv || fail "constants: $(cat gpu/constants.csv)"
expect 0 "$mw" hw check --hwdb gpu
grep -qx -- '-o gpu --seconds=60 --device=h200-sxm --quick' args.txt || fail "arguments: $(cat args.txt)"
finish
