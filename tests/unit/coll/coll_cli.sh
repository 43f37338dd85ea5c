#!/usr/bin/env bash
# `meshwright coll`: columns of nccl-tests, one JSON object, logs that are and
# are not nccl-tests output, exit statuses.
. "${MW_SOURCE:?}/tests/cli/lib.sh"
mw=${MESHWRIGHT:?}
command -v python3 >/dev/null || exit 77

expect 0 "$mw" coll --system dgx-h100 --nodes 2 --max-bytes 64MiB
grep -qE '^ *1024 +512 +fp16 +sum .*(tree|ring) ' stdout.txt ||
    fail "no row of 1 KiB"
[ "$(grep -cE '^ *[0-9]+ ' stdout.txt)" -eq 17 ] || fail "not 17 sizes"
[ "$(tail -c 1 stdout.txt | wc -l)" -eq 1 ] || fail "no newline at the end"

# NCCL's choice for a DGX H100: NVLS for a large all-reduce; forced otherwise.
expect 0 "$mw" coll --system dgx-h100 --min-bytes 1GiB --max-bytes 1GiB \
    --model nccl --json
json "[r['algo'] for r in o['rows']] == ['nvls']"
json "abs(o['rows'][0]['busbw_Bps'] / o['rows'][0]['algbw_Bps'] - 1.75) < 1e-9"
expect 0 "$mw" coll --system dgx-h100 --min-bytes 1GiB --max-bytes 1GiB \
    --model nccl --env NCCL_ALGO=ring --json
json "[r['algo'] for r in o['rows']] == ['ring']"

# The event form alone is the fit; half the fabric is not faster.
for model in fit event; do
    expect 0 "$mw" coll --system dgx-h100 --nodes 2 --min-bytes 256MiB \
        --max-bytes 256MiB --model $model --json
    cp stdout.txt $model.json
done
python3 - <<'PY' || fail "event differs from fit"
import json, sys
fit, event = (json.load(open(f + ".json"))["rows"][0]["time_s"]
              for f in ("fit", "event"))
sys.exit(abs(event / fit - 1) > 0.02)
PY

# A pasted log is compared; other files are refused with the place.
cat >log.txt <<'LOG'
# Collective test starting: all_reduce_perf
#      size     count   type  redop  root    time   algbw   busbw  #wrong
#       (B)  (elements)                      (us)  (GB/s)  (GB/s)
    1048576    262144  float    sum    -1   38.85   26.99   47.23       0
  268435456  67108864  float    sum    -1  1050.0  255.65  447.39       0
LOG
expect 0 "$mw" coll --system dgx-h100 --against log.txt --json
json "[r['measured_s'] for r in o['rows']] == [38.85e-6, 1050e-6]"
json "0 < o['median_ape'] < 0.2"
echo hello >other.txt
expect 3 "$mw" coll --system dgx-h100 --against other.txt
first_line '^meshwright: other\.txt:.*no table'

# Programs: built in, written, read again with the same times; a broken one
# is named with rank, threadblock and step.
one=(--system dgx-h100 --nodes 2 --min-bytes 1MiB --max-bytes 1MiB --json)
expect 0 "$mw" coll "${one[@]}" --program hierarchical --write-program p.xml
cp stdout.txt built-in.json
expect 0 "$mw" coll "${one[@]}" --program p.xml
cmp -s stdout.txt built-in.json || fail "p.xml takes another time"
expect 0 "$mw" coll "${one[@]}" --program ring --write-program p.json
expect 0 "$mw" coll "${one[@]}" --program p.json
json "o['op'] == 'all_reduce' and o['rows'][0]['time_s'] > 0"
sed '0,/type="rrc"/s//type="r"/' p.xml >broken.xml
expect 3 "$mw" coll "${one[@]}" --program broken.xml
first_line '^meshwright: .*rank [0-9]+'
expect 3 "$mw" coll --system dgx-h100 --program p.xml
first_line 'p\.xml: a program of 16 ranks on a group of 8'
expect 2 "$mw" coll --system dgx-h100 --gpus-per-node 6 --program \
    halving_doubling
expect 2 "$mw" coll --system dgx-h100 --write-program p.xml

# What is not known takes the default and says so, on stderr and in the JSON;
# a harness that is known adds its overhead.
expect 0 "$mw" coll --system dgx-h100 --max-bytes 1KiB --json
cp stdout.txt plain.json
expect 0 "$mw" coll --system dgx-h100 --max-bytes 1KiB --json \
    --nccl-version 2.11.4 --env NCCL_DEBUG=INFO --harness slurm
json "len(o['notices']) == 3 and '2.11.4' in o['notices'][0]"
json "o['rows'] == __import__('json').load(open('plain.json'))['rows']"
[ "$(grep -c 'warning' stderr.txt)" -eq 3 ] || fail "not 3 warnings"
expect 0 "$mw" coll --system dgx-h100 --max-bytes 1KiB --json --harness torch
json "o['notices'] == [] and o['rows'][0]['overhead_s'] > 5e-6"

# Kernels of an engine on one node.
expect 0 "$mw" coll --system dgx-h100 --engine sglang --min-bytes 64KiB \
    --max-bytes 1GiB --factor 16384 --json
json "[r['algo'] for r in o['rows']] == ['one_shot', 'nvls']"
expect 2 "$mw" coll --system dgx-h100 --engine vllm --nodes 2
expect 2 "$mw" coll --system dgx-h100 --engine vlm
first_line "--engine: 'vlm'"

# No size twice, and no sweep that ends before --max-bytes.
expect 0 "$mw" coll --system dgx-h100 --min-bytes 8 --max-bytes 16 \
    --factor 1.01 --json
json "[r['bytes'] for r in o['rows']] == list(range(8, 17))"
expect 2 "$mw" coll --system dgx-h100 --factor 1.0000001
first_line "--factor: 1.0000001 from --min-bytes to --max-bytes is more than 4096"

expect 2 "$mw" coll --system dgx-h100 --model guess
first_line "guess"
expect 2 "$mw" coll --system dgx-h100 --env NCCL_ALGO=fast
first_line "fast"
expect 2 "$mw" coll --system dgx-h100 --min-bytes -4
expect 2 "$mw" coll --system no-such-machine
first_line "no-such-machine"
finish
