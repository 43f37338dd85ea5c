#!/bin/sh
# Another solver agrees: the integer program that `sched --write-lp` writes,
# solved by CBC, has the objective that the automatic schedule reaches and
# proves. Skipped (77) where cbc is not installed.
set -eu
cbc=$(command -v cbc) || { echo "cbc is not installed"; exit 77; }
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT

check() {
    "$MESHWRIGHT" sched --kind zb-auto --stages "$1" --microbatches "$2" \
        --memory-limit "$3" --times "$4" --objective "$5" --exact 20 \
        --write-lp "$dir/p.lp" --json >"$dir/ours.json"
    grep -q '"proved_optimal": true' "$dir/ours.json" || {
        echo "p $1 m $2 limit $3 times $4: not proved"; exit 1; }
    ours=$(sed -n "s/^  \"$5_s\": \([0-9.]*\).*/\1/p" "$dir/ours.json")
    "$cbc" "$dir/p.lp" sec 60 solve quit >"$dir/cbc.txt"
    grep -q "Optimal solution found" "$dir/cbc.txt"
    theirs=$(sed -n 's/^Objective value: *\([0-9.]*\).*/\1/p' "$dir/cbc.txt")
    awk -v a="$ours" -v b="$theirs" \
        'BEGIN { exit !(a - b < 1e-4 && b - a < 1e-4) }' || {
        echo "p $1 m $2 limit $3 times $4 $5: ours $ours, cbc $theirs"; exit 1; }
    echo "p $1 m $2 limit $3 times $4 $5: $ours"
}

check 2 3 2 3,4,2 makespan
check 2 4 2 4,4,3,1 span
check 3 3 2 3,5,2,1 makespan
check 3 3 3 5,4,3,1 span
check 2 4 3 1,1,1 makespan
