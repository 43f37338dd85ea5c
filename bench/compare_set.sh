#!/usr/bin/env bash
# Predicted against measured on this machine, by one command: the whole set of
# scenarios/matrix on the virtual clock, held to what `compare --check` asks, then
# three of its plans with products slowed by 30 % on purpose, which must show, and
# its plans of two ranks on the wall clock (mean error within 10 %; for a machine
# of two cores or more with nothing else to do).
#
#   bench/compare_set.sh [BUILD] [OUT]        (defaults: build, out/matrix)
#
# Takes 5 to 25 minutes, by how busy the machine is. OUT keeps calibrations,
# timelines, matrix.html, matrix.json, matrix.txt. Exit status: 0 all of it holds.
set -eu
here=$(cd "$(dirname "$0")/.." && pwd)
mw=$(cd "${1:-$here/build}" && pwd)/meshwright
out=${2:-out/matrix}
mkdir -p "$out"
status=0
echo "load before: $(cut -d' ' -f1-3 /proc/loadavg)"
"$mw" compare --set "$here/scenarios/matrix" -o "$out" --json >"$out/matrix.json"
"$mw" compare --set "$here/scenarios/matrix" -o "$out" --reuse --quiet --check \
    --html "$out/matrix.html" >"$out/matrix.txt" || status=$?
tail -n 20 "$out/matrix.txt"
echo "load after: $(cut -d' ' -f1-3 /proc/loadavg)"

# The same calibration; the run alone is slowed.
set_dir=$out/slow-set
rm -rf "$set_dir"
mkdir -p "$set_dir"
for plan in g8-tp2-pp2-dp2 g8-pp8 g8-pp4-dp2-zbv; do
    sed "s|^scenario: .*|scenario: \"$here/scenarios/gpt-small-this-machine.yaml\"|" \
        "$here/scenarios/matrix/$plan.yaml" >"$set_dir/$plan.yaml"
done
"$mw" compare --set "$set_dir" -o "$out/slow" --slow gemm=1.3 --quiet --json \
    --hwdb "$out/hwdb-gpt-small-this-machine" >"$out/slow.json"
python3 - "$out" <<'PY' || status=1
import json, sys
plain = {p['name']: p for p in json.load(open(sys.argv[1] + '/matrix.json'))['plans']}
for p in json.load(open(sys.argv[1] + '/slow.json'))['plans']:
    rise = p['measured_s'] / plain[p['name']]['measured_s'] - 1
    print('products slowed by 30 %%: %s takes %.1f %% longer, its error goes from '
          '%+.1f %% to %+.1f %%' % (p['name'], 100 * rise,
                                    100 * plain[p['name']]['error'], 100 * p['error']))
    # Products are a third to three quarters of these steps.
    assert 0.06 < rise < 0.35 and p['error'] < plain[p['name']]['error'] - 0.05
PY

# The wall clock, first of all hurt by other work: say how much of it there was.
if [ "$(nproc)" -ge 2 ]; then
    echo "programs running beside: $(($(cut -d' ' -f4 /proc/loadavg | cut -d/ -f1) - 1))"
    rm -rf "$out/wall" # a calibration ages with the machine's clock
    "$mw" compare --set "$here/scenarios/matrix" -o "$out/wall" --clock wall \
        --max-ranks 2 --quiet --max-error 0.1 >"$out/wall.txt" || status=$?
    cat "$out/wall.txt"
fi
exit $status
