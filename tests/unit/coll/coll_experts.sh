#!/usr/bin/env bash
# `meshwright coll --experts` (loads, times, imbalance, refusals) and
# `--congestion` (off by default, each refinement by its formula).
. "${MW_SOURCE:?}/tests/cli/lib.sh"
mw=${MESHWRIGHT:?}
command -v python3 >/dev/null || exit 77

# Conservation: every token goes to top-k experts, whatever the routing; an
# even routing loses nothing, an uneven one the difference to it.
ep=(coll --system dgx-h100 --nodes 2 --experts 64 --top-k 4 --tokens 1000 --json)
for r in uniform zipf power_law; do
    expect 0 "$mw" "${ep[@]}" --routing $r
    json "abs(sum(r['expert_tokens'] for r in o['ranks']) - 16 * 1000 * 4) < 1e-6"
    json "len(o['ranks']) == 16 and o['ranks'][8]['node'] == 1"
    json "abs(o['dispatch_s'] + o['combine_s'] - o['balanced_dispatch_s'] - o['balanced_combine_s'] - o['imbalance_s']) < 1e-12"
    json "(o['imbalance_s'] > 0) == ('$r' != 'uniform')"
done
expect 0 "$mw" "${ep[@]}" --routing zipf --shuffle 7
json "o['seed'] == 7 and o['max_over_mean'] > 1"
# 64 experts, 1 of them with all the load: its rank takes every copy
{ echo load; echo 5; for _ in $(seq 63); do echo 0; done; } >one.csv
expect 0 "$mw" "${ep[@]}" --routing one.csv
json "abs(o['max_over_mean'] - 16) < 1e-9 and o['ranks'][0]['tokens_received'] == 16000"
json "abs(o['copies_per_token'] - 1) < 1e-12"
# A limit of nodes: a token of 8 experts on 4 nodes visits at most two.
four=(coll --system dgx-h100 --nodes 4 --experts 256 --json)
expect 0 "$mw" "${four[@]}"
json "o['nodes_per_token'] > 3"
expect 0 "$mw" "${four[@]}" --node-limit 2
json "o['nodes_per_token'] == 2"
# Low-latency kernels are faster for few tokens, normal ones for many.
for t in 8 16384; do
    for k in normal low_latency; do
        expect 0 "$mw" "${four[@]}" --tokens $t --kernel $k --op moe_dispatch
        json "o['op'] == 'moe_dispatch' and o['kernel'] == '$k'"
        cp stdout.txt $k.json
    done
    python3 - $t <<'PY' || fail "the wrong kernel wins at $t tokens"
import json, sys
n, l = (json.load(open(f + ".json"))["dispatch_s"]
        for f in ("normal", "low_latency"))
sys.exit((l < n) != (sys.argv[1] == "8"))
PY
done

expect 2 "$mw" coll --system dgx-h100 --experts 60 --nodes 2
first_line '60 experts'
expect 2 "$mw" coll --system dgx-h100 --op moe_combine
first_line 'need --experts'
expect 2 "$mw" coll --system dgx-h100 --experts 64 --op all_reduce
expect 2 "$mw" coll --system dgx-h100 --experts 64 --range 3,1
expect 3 "$mw" coll --system dgx-h100 --experts 32 --routing one.csv
first_line 'one\.csv: loads of 64 experts'
sed 's/^5$/-5/' one.csv >minus.csv
expect 3 "$mw" coll --system dgx-h100 --experts 64 --routing minus.csv
first_line '^meshwright: minus\.csv:2'

# Congestion: half the links between leaves is twice the time of an
# all-to-all that they bound; k senders on a NIC cost 1 + F (k - 1).
a2a=(coll --system gcp-a3-ultra --nodes 4 --model event --op all_to_all
    --topology "rail, leaf 2, oversub 2" --min-bytes 1GiB --max-bytes 1GiB
    --json)
expect 0 "$mw" "${a2a[@]}"
cp stdout.txt off.json
expect 0 "$mw" "${a2a[@]}" --congestion buffer=1
json "o['rows'] == __import__('json').load(open('off.json'))['rows']"
expect 0 "$mw" "${a2a[@]}" --congestion buffer=0.5
json "abs(o['rows'][0]['time_s'] / __import__('json').load(open('off.json'))['rows'][0]['time_s'] - 2) < 0.02"
one=(coll --system gcp-a3-ultra --nodes 2 --gpus-per-node 8 --model event
    --op all_to_all --topology one-switch --min-bytes 1GiB --max-bytes 1GiB
    --json)
expect 0 "$mw" "${one[@]}"
cp stdout.txt off.json
expect 0 "$mw" "${one[@]}" --congestion incast=0.1
json "abs(o['rows'][0]['time_s'] / __import__('json').load(open('off.json'))['rows'][0]['time_s'] - 1.7) < 0.02"
expect 2 "$mw" coll --system dgx-h100 --congestion incast
first_line 'needs --model event'
expect 2 "$mw" coll --system dgx-h100 --model event --congestion pause
first_line "'pause' is not incast"
finish
