#!/usr/bin/env bash
# From a fresh clone to a plan for a real cluster, and a plan that really ran on
# this machine with predicted and measured step time side by side.
#   ./quickstart.sh          install what is missing, build, run; output in out/
set -euo pipefail
cd "$(dirname "$0")"
. cmake/packages.sh

say() { printf '\n== %s\n' "$*"; }

say "Packages"
mw_install_packages "${MW_RUN_PACKAGES[@]}"

say "Build (build/)"
cmake --preset release -DBUILD_TESTING=OFF >/dev/null
cmake --build build --parallel "$(mw_jobs)" | tail -n 1
mw=build/meshwright
mkdir -p out

say "Plan: Llama 3 8B on two DGX H100"
$mw plan scenarios/llama3-8b-2xdgx-h100.yaml -o out/llama3-8b-plan.yaml

say "Calibrate this machine (out/hwdb)"
$mw calibrate --backend host -o out/hwdb \
    --scenario scenarios/gpt-small-this-machine.yaml

say "Plan, simulate and run a small GPT on this machine's ranks"
$mw plan scenarios/gpt-small-this-machine.yaml --hwdb out/hwdb \
    --fix tp=2,pp=2,dp=2 -o out/plan.yaml --top 3
$mw sim scenarios/gpt-small-this-machine.yaml --plan out/plan.yaml \
    --hwdb out/hwdb --trace out/simulated.json
$mw run out/plan.yaml --backend host --hwdb out/hwdb --trace out/measured.json

say "Predicted against measured"
$mw compare out/simulated.json out/measured.json --plot out/compare.svg
$mw compare out/simulated.json out/measured.json --plot out/compare.png \
    --quiet >/dev/null

say "Done. Look at out/compare.png; open out/simulated.json and out/measured.json in Perfetto"
