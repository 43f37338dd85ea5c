#!/usr/bin/env bash
# Rewrites the expected outputs: MESHWRIGHT=build/meshwright tests/golden/regold.sh
set -eu
: "${MESHWRIGHT:?path of the built command}"
export MESHWRIGHT
here=$(cd "$(dirname "$0")" && pwd)
export MW_SOURCE=${MW_SOURCE:-$(cd "$here/../.." && pwd)}
for cmd in "$here"/*/cmd; do
    bash "$cmd" >"$(dirname "$cmd")/expected" 2>&1
done
