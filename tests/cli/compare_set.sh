#!/usr/bin/env bash
# `compare --set`: a folder of plans run, scored, drawn as one page; runs taken
# again; the plan that a calibration was fitted to refused; bad folders.
. "${MW_SOURCE:?}/tests/cli/lib.sh"
mw=${MESHWRIGHT:?}
command -v python3 >/dev/null || exit 77
scenario=$MW_SOURCE/scenarios/matrix/gpt-small-2-ranks.yaml

# --- usage and bad folders: nothing is started
mkdir empty overlay
printf 'key,value\n' >overlay/machine.csv
expect 2 "$mw" compare --set empty
first_line '.*-o DIR'
expect 2 "$mw" compare --set empty -o out a.json b.json
expect 2 "$mw" compare a.json b.json --html x.html
expect 2 "$mw" compare --set empty -o out --steps 2
expect 2 "$mw" compare --set empty -o out --clock sun
expect 2 "$mw" compare a.json b.json --max-ranks 2
expect 3 "$mw" compare --set empty -o out
first_line '^meshwright: empty: has no plan'
expect 3 "$mw" compare --set missing -o out
first_line '^meshwright: missing: cannot read'
mkdir bad
cp "$scenario" bad/
sed 's/^  tp: .*/  tp: 3/' "$MW_SOURCE/scenarios/matrix/g2-tp2.yaml" >bad/bad.yaml
expect 3 "$mw" compare --set bad -o out --hwdb overlay
first_line '^meshwright: bad/bad\.yaml:[0-9]+:[0-9]+: '

# --- two plans on two ranks, priced by the shipped figures of a CPU
mkdir set
cp "$scenario" "$MW_SOURCE"/scenarios/matrix/g2-{tp2,pp2}.yaml set/
expect 0 "$mw" compare --set set -o out --hwdb overlay --steps 5 --json --html page.html
json "[p['name'] for p in o['plans']] == ['g2-pp2', 'g2-tp2']"
json "all(p['measured_s'] > 0 and p['ranks'] == 2 for p in o['plans'])"
json "all(abs(p['predicted_s'] / p['measured_s'] - 1 - p['error']) < 1e-12 for p in o['plans'])"
json "abs(o['mean_error'] - sum(abs(p['error']) for p in o['plans']) / 2) < 1e-12"
json "o['clock'] == 'virtual' and o['pairs'] <= 1"
json "abs(sum(k['share'] for k in o['by_kind'].values()) - 1) < 1e-9"
json "all(abs(sum(k['simulated_s'] for k in p['by_kind'].values()) / p['predicted_s'] - 1) < 1e-9 for p in o['plans'])"
grep -q '</html>' page.html || fail "no page"
[ "$(grep -c '<svg' page.html)" -eq 3 ] || fail "pictures: $(grep -c '<svg' page.html)"
cp stdout.txt first.txt

# --- again from what was left: the same figures, nothing run
expect 0 "$mw" compare --set set -o out --hwdb overlay --reuse --json
grep -q running stderr.txt && fail "--reuse ran a plan"
python3 - <<'PY' || fail "--reuse gave other figures"
import json
a, b = json.load(open('first.txt')), json.load(open('stdout.txt'))
assert a == b, (a, b)
PY
expect 0 "$mw" compare --set set -o out --hwdb overlay --reuse
grep -q '2 plans: mean error' stdout.txt || fail "no summary"
expect 1 "$mw" compare --set set -o out --hwdb overlay --reuse --max-error 0

# --- the wall clock takes no run that was made for the virtual one
expect 3 "$mw" compare --set set -o out --hwdb overlay --max-ranks 1
first_line '^meshwright: set: no plan has 1 ranks or fewer'
sed "s|^scenario: .*|scenario: \"$MW_SOURCE/scenarios/gpt-small-this-machine.yaml\"|" \
    "$MW_SOURCE/scenarios/matrix/g8-pp8.yaml" >set/g8-pp8.yaml
expect 0 "$mw" compare --set set -o out --hwdb overlay --reuse --clock wall --max-ranks 2 --steps 5 --json
[ "$(grep -c running stderr.txt)" -eq 2 ] || fail "ran $(grep -c running stderr.txt) plans, not 2"
json "o['clock'] == 'wall' and all(p['measured_s'] == p['wall_s'] for p in o['plans'])"

# --- what was calibrated on is not compared
cp set/g2-pp2.yaml overlay/insitu-plan.yaml
cp "$scenario" overlay/
expect 3 "$mw" compare --set set -o out --hwdb overlay --reuse
first_line '^meshwright: set/g2-pp2\.yaml: overlay was calibrated on this plan'
finish
