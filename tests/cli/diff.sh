#!/usr/bin/env bash
# `diff`: terms and causes sum to the difference of the step times, plans and
# scenarios mix, bad input is one line with its exit status.
. "${MW_SOURCE:?}/tests/cli/lib.sh"
mw=${MESHWRIGHT:?}
command -v python3 >/dev/null || exit 77
small=$MW_SOURCE/scenarios/gpt-small-this-machine.yaml
big=$MW_SOURCE/scenarios/gpt3-175b-8xdgx-a100.yaml
llama=$MW_SOURCE/scenarios/llama3-8b-2xdgx-h100.yaml

sums() {
    json "abs(sum(t['difference_s'] for t in o['time']) - o['difference_s']) <= 1e-12 * (o['a']['step_time_s'] + o['b']['step_time_s'])"
    json "all(abs(sum(c['difference_s'] for c in t['causes']) - t['difference_s']) <= 1e-12 * o['a']['step_time_s'] for t in o['time'] if t['causes'])"
    json "abs(o['b']['step_time_s'] - o['a']['step_time_s'] - o['difference_s']) <= 1e-15"
    json "all(abs(s['busy_s'] + s['bubble_s'] - o[k]['step_time_s']) < 1e-9 for k in 'ab' for s in o[k]['stages'])"
}

expect 0 "$mw" plan "$small" --fix tp=2,pp=2,dp=2,schedule=1f1b -o p.yaml --quiet
expect 0 "$mw" plan "$small" --fix tp=1,pp=4,dp=2,schedule=1f1b -o q.yaml --quiet
expect 0 "$mw" diff p.yaml q.yaml --json
[ -s stderr.txt ] && fail "diff --json writes to stderr"
sums
json "{'layout.tp', 'layout.pp'} <= {s['setting'] for s in o['settings']}"
json "sum(m['a_bytes'] for m in o['memory']) == o['a']['peak_bytes']"
json "len(o['a']['stages']) == 2 and len(o['b']['stages']) == 4"

# A plan against a scenario, two scenarios, one plan twice.
expect 0 "$mw" diff p.yaml "$small" --json
sums
expect 0 "$mw" diff "$big" "$MW_SOURCE/scenarios/gpt3-175b-64xdgx-a100.yaml" --json
sums
json "o['a']['tokens'] * 8 == o['b']['tokens']"
json "[c['collective'] for c in o['ledger'] if c['dimension'] == 'all'] == ['all_reduce']"
expect 0 "$mw" diff p.yaml p.yaml
grep -q 'take the same time' stdout.txt || fail "equal plans differ"
grep -q 'No setting differs' stdout.txt || fail "equal plans have settings"
expect 0 "$mw" diff "$llama" "$llama" --stack megatron-core-serial --stack-b megatron-core --json
sums
json "[s['setting'] for s in o['settings']] == ['stack']"

# The same layout on a cluster of other links.
sed 's/dgx-h100/dgx-a100/' "$llama" >other.yaml
expect 0 "$mw" diff "$llama" other.yaml --same-layout --json
sums
json "'cluster.system' in [s['setting'] for s in o['settings']]"
json "not any(s['setting'].startswith('layout') for s in o['settings'])"
json "all(abs(t['causes'][0]['difference_s']) < 1e-9 for t in o['time'] if t['kind'] in ('F', 'B', 'W'))"
expect 0 "$mw" diff p.yaml q.yaml --plot d.svg
grep -q '<svg' d.svg || fail "no picture"

# --- bad input
expect 3 "$mw" diff p.yaml "$big" --same-layout
first_line 'layout of the other side: .*ranks'
expect 3 "$mw" diff p.yaml missing.yaml
first_line '^meshwright: missing\.yaml: '
sed 's/^  tp: .*/  tp: 3/' p.yaml >bad.yaml
expect 3 "$mw" diff bad.yaml p.yaml
first_line '^meshwright: bad\.yaml:[0-9]+:[0-9]+: '
[ -s stdout.txt ] && fail "output on stdout for a bad plan"
echo '[1, 2]' >list.yaml
expect 3 "$mw" diff list.yaml p.yaml
first_line '^meshwright: list\.yaml:'
expect 2 "$mw" diff p.yaml
expect 2 "$mw" diff p.yaml q.yaml p.yaml
expect 2 "$mw" diff p.yaml q.yaml --stack no-such-stack
expect 2 "$mw" diff p.yaml q.yaml --plot d.pdf
expect 2 "$mw" diff p.yaml q.yaml --json --plot -
finish
