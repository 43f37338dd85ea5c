#!/usr/bin/env bash
# `report`: one page with everything, whole or not at all, the same bytes for
# the same input; a timeline of another plan is refused.
. "${MW_SOURCE:?}/tests/cli/lib.sh"
mw=${MESHWRIGHT:?}
command -v python3 >/dev/null || exit 77
small=$MW_SOURCE/scenarios/gpt-small-this-machine.yaml

expect 0 "$mw" plan "$small" --fix tp=2,pp=2,dp=2,schedule=1f1b -o p.yaml --quiet
expect 0 "$mw" report p.yaml -o r.html
grep -q '^Report written to r.html$' stdout.txt || fail "$(cat stdout.txt)"
cat >page.py <<'PY'
import re, sys, xml.dom.minidom
text = open(sys.argv[1]).read()
for name in ('Layout', 'Timeline', 'Where the time goes', 'Memory of a rank',
             'Communication', 'What would help', 'How every time came about', 'Origin'):
    assert '<h2>%s</h2>' % name in text, name
pictures = re.findall(r'<svg.*?</svg>', text, re.S)
assert len(pictures) == 3, len(pictures)
for p in pictures:
    xml.dom.minidom.parseString(p)
rest = text
for p in pictures:
    rest = rest.replace('xmlns="http://www.w3.org/2000/svg"', '')
assert 'src=' not in rest and '<script' not in rest and '@import' not in rest
assert len(re.findall(r'>measured: ', text)) == int(sys.argv[2])
assert text.rstrip().endswith('</html>')
PY
python3 page.py r.html 0 || fail "the page is not whole"
cp r.html first.html
expect 0 "$mw" report p.yaml -o r.html --quiet
[ -s stdout.txt ] && fail "--quiet prints"
cmp -s r.html first.html || fail "the same plan gave other bytes"

# A run's timeline beside the predicted one, if it is of this plan.
expect 0 "$mw" sim "$small" --plan p.yaml --trace t.json
expect 0 "$mw" report p.yaml -o r.html --measured t.json --json
json "o['page'] == 'r.html' and o['step_time_s'] > 0 and o['peak_bytes'] > 0"
python3 page.py r.html 1 || fail "no second timeline"
expect 0 "$mw" plan "$small" --fix tp=1,pp=4,dp=2,schedule=1f1b -o q.yaml --quiet
cp r.html keep.html
expect 3 "$mw" report q.yaml -o r.html --measured t.json
first_line '^meshwright: t\.json: plan hash [0-9a-f]+, but q\.yaml has'
cmp -s r.html keep.html || fail "a failure changed the page"

# A scenario, 512 ranks of eight stages.
expect 0 "$mw" report "$MW_SOURCE/scenarios/gpt3-175b-64xdgx-a100.yaml" -o big.html --stack megatron-core
python3 page.py big.html 0 || fail "the page of 512 ranks is not whole"
grep -q 'training stack megatron-core' big.html || fail "no stack"

# --- usage and bad input
expect 2 "$mw" report p.yaml
expect 2 "$mw" report -o r.html
expect 2 "$mw" report p.yaml q.yaml -o r.html
expect 2 "$mw" report p.yaml -o r.html --stack no-such-stack
expect 3 "$mw" report missing.yaml -o r.html
first_line '^meshwright: missing\.yaml: '
expect 3 "$mw" report p.yaml -o nowhere/r.html
first_line '^meshwright: nowhere/r\.html: '
expect 3 "$mw" report p.yaml -o r.html --measured p.yaml
first_line '^meshwright: p\.yaml:'
finish
