#!/usr/bin/env bash
# Bad inputs: one clear first line with the place, the documented exit status,
# nothing on standard output, no partial or changed output file.
. "${MW_SOURCE:?}/tests/cli/lib.sh"
mw=${MESHWRIGHT:?}
scenarios=$MW_SOURCE/scenarios

good=$scenarios/llama3-8b-2xdgx-h100.yaml
small=$scenarios/gpt-small-this-machine.yaml

# write NAME SED-SCRIPT [SCENARIO]: a scenario with one thing wrong.
write() {
    sed -E "$2" "${3:-$good}" >"$1"
    cmp -s "$1" "${3:-$good}" && fail "the edit '$2' changed nothing"
}

# plan_fails FILE REGEX: status 3, and plan.yaml is as it was.
plan_fails() {
    echo keep >plan.yaml
    expect 3 "$mw" plan "$1" -o plan.yaml
    first_line "^meshwright: $2"
    [ -s stdout.txt ] && fail "output on stdout for $1"
    [ "$(cat plan.yaml)" = keep ] || fail "plan.yaml was changed by $1"
    [ "$(find . -name '*.tmp*' | wc -l)" -eq 0 ] || fail "left a temporary"
}

# --- scenarios: keys, types, units, ranges
write s1.yaml 's/^workload:/worklode:/'
plan_fails s1.yaml "s1\.yaml:[0-9]+:1: .*worklode.*workload"
write s2.yaml 's/^( +)nodes:/\1nodes_count_of_all: 3\n\1nodes:/'
plan_fails s2.yaml "s2\.yaml:[0-9]+:[0-9]+: unknown key 'nodes_count_of_all'"
write s3.yaml 's/^( +)nodes:/\1nodse:/'
plan_fails s3.yaml "s3\.yaml:[0-9]+:[0-9]+: .*nodse.*nodes"
write s4.yaml 's/^( +)nodes: .*/\1nodes: -3/'
plan_fails s4.yaml "s4\.yaml:[0-9]+:[0-9]+: .*-3"
write s5.yaml 's/^( +)nodes: .*/\1nodes: two/'
plan_fails s5.yaml "s5\.yaml:[0-9]+:[0-9]+: .*two"
write s6.yaml 's/^( +)nodes: .*/\1nodes: .nan/'
plan_fails s6.yaml "s6\.yaml:[0-9]+:[0-9]+: "
write s7.yaml 's/^( +)nodes: .*/\1nodes: 2\n\1nodes: 4/'
plan_fails s7.yaml "s7\.yaml:[0-9]+:[0-9]+: key 'nodes' is given twice"
cat >limits_head.awk <<'AWK'
/^limits:/ { skip = 1; next }
/^[a-z]/ { skip = 0 }
!skip { print }
AWK
with_limits() { # NAME TEXT: the good scenario with these limits alone
    { awk -f limits_head.awk "$good"; printf 'limits:\n  %s\n' "$2"; } >"$1"
}
with_limits s8.yaml 'memory: 80'
plan_fails s8.yaml "s8\.yaml:[0-9]+:[0-9]+: .*'80' needs a unit"
with_limits s9.yaml 'memory: 80Gb'
plan_fails s9.yaml "s9\.yaml:[0-9]+:[0-9]+: .*bits"
with_limits s10.yaml 'memory: -80GiB'
plan_fails s10.yaml "s10\.yaml:[0-9]+:[0-9]+: "
with_limits s11.yaml 'memory: nan GiB'
plan_fails s11.yaml "s11\.yaml:[0-9]+:[0-9]+: "
with_limits s12.yaml 'memory: 80 GiB/s'
plan_fails s12.yaml "s12\.yaml:[0-9]+:[0-9]+: "
write s13.yaml 's/^format: 1/format: 2/'
plan_fails s13.yaml "s13\.yaml:[0-9]+:[0-9]+: .*format"
write s14.yaml 's/^( +)system: .*/\1system: dgx-h1000/'
plan_fails s14.yaml "s14\.yaml:[0-9]+:[0-9]+: .*dgx-h1000.*dgx-h100"
write s16.yaml 's/^( +)dtype: .*/\1dtype: fp4/'
plan_fails s16.yaml "s16\.yaml:[0-9]+:[0-9]+: h100-sxm has no fp4 rate"
write s17.yaml 's/^( +)dtype: .*/\1dtype: fp8\n\1fp8_scaling: mx/'
plan_fails s17.yaml "s17\.yaml:[0-9]+:[0-9]+: h100-sxm has no products of MX"
write s18.yaml 's/^( +)zero: 1/\1schedule: 1f2b/'
expect 3 "$mw" sim s18.yaml
first_line "^meshwright: s18\.yaml:[0-9]+:[0-9]+: there is no schedule '1f2b'"
write s15.yaml '/^layout:/,/^[^ ]/ s/^( +)tp: .*/\1tp: 7/'
expect 3 "$mw" sim s15.yaml
first_line "^meshwright: s15\.yaml:[0-9]+:[0-9]+: .*tp 7.*heads"

# --- files that are no scenario at all
: >empty.yaml
plan_fails empty.yaml 'empty\.yaml: .*empty'
head -c 4096 /dev/urandom | tr '\n' '\0' >binary.yaml
plan_fails binary.yaml 'binary\.yaml: .*not text'
mkdir folder
plan_fails folder 'folder: .*directory'
plan_fails missing.yaml 'missing\.yaml: .*'
truncate -s 1G hole.yaml
plan_fails hole.yaml 'hole\.yaml: is 1.0+ GiB'
head -c 200000 /dev/zero | tr '\0' '[' >deep.yaml
plan_fails deep.yaml 'deep\.yaml:1:[0-9]+: .*(deep|nest)'
head -c 8388608 /dev/zero | tr '\0' '[' >long.yaml
plan_fails long.yaml 'long\.yaml:1:[0-9]+: '
head -c 1073741824 /dev/zero | tr '\0' '[' >brackets.yaml
plan_fails brackets.yaml 'brackets\.yaml: is 1.0+ GiB'
rm -f brackets.yaml hole.yaml
printf 'format: 1\nname: "unterminated\n' >quote.yaml
plan_fails quote.yaml 'quote\.yaml:[0-9]+:[0-9]+: '

# --- plans
expect 0 "$mw" plan "$small" --fix tp=1,pp=2,dp=4 -o good-plan.yaml --order
plan_fails good-plan.yaml "good-plan\.yaml:[0-9]+:[0-9]+: this is a plan, where a scenario is wanted"
cp good-plan.yaml plan-of-another.yaml
expect 3 "$mw" sim "$good" --plan plan-of-another.yaml
first_line '^meshwright: plan-of-another\.yaml:[0-9]+:[0-9]+: .*scenario'
# The first stage's backward of micro-batch 0 before its forward: a deadlock.
python3 - <<'PY'
import re
t = open('good-plan.yaml').read()
out = re.sub(r'F0\b(.*?)\b(BW?0)\b', r'\2\1F0', t, count=1, flags=re.S)
assert out != t, t
open('deadlock.yaml', 'w').write(out)
PY
expect 3 "$mw" sim "$small" --plan deadlock.yaml
first_line '^meshwright: deadlock\.yaml:[0-9]+:[0-9]+: .*stage 0'
write layers.yaml 's/^layers: \[[0-9]+/layers: [99/' good-plan.yaml
expect 3 "$mw" sim "$small" --plan layers.yaml
first_line '^meshwright: layers\.yaml:[0-9]+:[0-9]+: .*layers'
write future.yaml 's/^format: 1/format: 9/' good-plan.yaml
expect 3 "$mw" sim "$small" --plan future.yaml
first_line '^meshwright: future\.yaml:[0-9]+:[0-9]+: .*format'

# --- whole jobs
expect 2 "$mw" sim "$good" --tokens 15TT
first_line "--tokens: '15TT' is no number of tokens"
expect 2 "$mw" sim "$good" --price 3
first_line "need --tokens"
expect 2 "$mw" sim "$good" --tokens 1T --restart 5
first_line "--restart: '5' needs a unit"
expect 2 "$mw" sim "$good" --tokens 1T --failures -1
first_line "--failures: '-1' is no number"
expect 3 "$mw" sim "$good" --tokens 1T --failures 1e6
first_line "fails so often that the job never ends"

# --- tables
mkdir overlay
printf 'slug,name\nx\n' >overlay/gpus.csv
expect 3 "$mw" hw list --hwdb overlay
first_line '^meshwright: overlay/gpus\.csv:2: '
printf 'id,kind\na,b,c\n' >short.csv
expect 3 "$mw" validate short.csv
first_line '^meshwright: short\.csv:2: '
printf 'id,kind\n"a,b\n' >quote.csv
expect 3 "$mw" validate quote.csv
first_line '^meshwright: quote\.csv'


# --- experts
experts() { "$mw" coll --system dgx-h100 --nodes 4 --experts 256 "$@"; }
expect 2 experts --top-k 257
first_line 'top 257 of 256 experts'
expect 2 experts --top-k 100 --node-limit 1
first_line 'top 100 of experts on 1 nodes at most, of 64 each'
expect 2 experts --routing power_law --range 1,inf
printf 'share\n1\n' >share.csv
expect 3 experts --routing share.csv
first_line "^meshwright: share\\.csv: column 'load' is missing"
{ echo load; yes 0 | head -n 256; } >zero.csv
expect 3 experts --routing zero.csv
first_line '^meshwright: zero\.csv: no expert has any load'

# --- sweeps: the line of the scenario, unless the key is what varies
expect 3 "$mw" sweep s16.yaml --vary nodes=1,2
first_line '^meshwright: s16\.yaml:[0-9]+:[0-9]+: h100-sxm has no fp4 rate'
expect 3 "$mw" sweep s14.yaml --vary nodes=1,2
first_line "^meshwright: s14\.yaml:[0-9]+:[0-9]+: .*dgx-h1000.*dgx-h100"
expect 3 "$mw" sweep "$good" --vary system=dgx-h1000
first_line "^meshwright: --vary: .*dgx-h1000.*dgx-h100"

# --- output that cannot be written, usage
expect 3 "$mw" plan "$small" -o nowhere/plan.yaml
first_line '^meshwright: nowhere/plan\.yaml: '
expect 3 "$mw" plan "$small" -o folder
first_line '^meshwright: folder: '
expect 2 "$mw" plan
expect 2 "$mw" plan "$small" --fix tp=two
expect 2 "$mw" plan "$small" --fix tq=2
first_line "unknown key 'tq'"
expect 2 "$mw" plan "$small" --time-limit 30
expect 2 "$mw" pan
first_line "unknown verb 'pan'; did you mean 'plan'"
expect 2 "$mw"
finish
