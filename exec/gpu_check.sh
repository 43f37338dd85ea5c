#!/usr/bin/env bash
# Measures the GPU of this machine within 8 minutes: whole training steps of
# two models (predicted and measured, with peak memory), then products, kernels,
# copies, latencies, layers. Writes an overlay of the hardware database with
# one JSON beside the tables.
#
#   exec/gpu_check.sh [-o DIR] [--quick] [--device SLUG]
#
# The build is looked for in $MW_BUILD (default build/). Use the overlay with
# `--hwdb DIR`. Exit status: 0 done; 4 no GPU or no build; else what failed.
set -euo pipefail
cd "$(dirname "$0")/.."
build=${MW_BUILD:-build}
mw=${MESHWRIGHT:-$build/meshwright}
exec_program=${MESHWRIGHT_EXEC:-$build/meshwright-exec}
check=${MW_GPU_CHECK:-$build/mw-gpu-check}
mpirun=${MPIRUN:-mpirun}
out=gpu-check
quick=()
device=()
while [ $# -gt 0 ]; do
    case $1 in
    -o) out=$2; shift 2 ;;
    --quick) quick=(--quick); shift ;;
    --device) device=(--device "$2"); shift 2 ;;
    *) echo "usage: exec/gpu_check.sh [-o DIR] [--quick] [--device SLUG]" >&2
       exit 2 ;;
    esac
done
for program in "$mw" "$exec_program" "$check"; do
    if [ ! -x "$program" ]; then
        echo "gpu_check.sh: $program is not there; build with CUDA first" >&2
        exit 4
    fi
done
mkdir -p "$out"

# One step of the whole model on one GPU: name, preset, sequence, batch.
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export OPENBLAS_NUM_THREADS=1
results=()
step() {
    local name=$1 model=$2 seq=$3 batch=$4 dir
    dir=$out/step-$1
    mkdir -p "$dir"
    cat >"$dir/scenario.yaml" <<YAML
format: 1
name: $name
model: $model
cluster: {system: dgx-h200, nodes: 1, gpus_per_node: 1}
workload: {seq: $seq, global_batch: $batch, dtype: fp32, grad_dtype: fp32}
YAML
    "$mw" plan "$dir/scenario.yaml" --fix tp=1,pp=1,dp=1,micro_batch=1,recompute=none \
        -o "$dir/plan.yaml" >"$dir/plan.txt"
    # Drawing the weights of 1.3e9 parameters takes one core 40 s.
    local status=0
    timeout 150 "$mpirun" -np 1 "$exec_program" run "$dir/plan.yaml" \
        --backend cuda --steps 6 --trace "$dir/trace.json" \
        >"$dir/result.json" || status=$?
    if [ $status = 4 ]; then
        exit 4
    elif [ $status != 0 ]; then
        echo "gpu_check.sh: $name is left out: exit status $status" >&2
        return 0
    fi
    "$mw" sim "$dir/scenario.yaml" --plan "$dir/plan.yaml" --json >"$dir/sim.json"
    results+=(--step "$dir/result.json")
}
begin=$(date +%s)
if [ ${#quick[@]} -gt 0 ]; then
    step tiny "{preset: gpt2, hidden: 32, heads: 4, head_dim: 8, ffn: 64, vocab: 64, max_seq: 16, layers: 2}" 16 4
else
    step gpt2-medium "{preset: gpt2-medium}" 1024 8
    step gpt-1.3b "{preset: gpt2, hidden: 2048, layers: 24, heads: 16, head_dim: 128, ffn: 8192}" 1024 4
fi
left=$((450 - $(date +%s) + begin))
"$check" -o "$out" --seconds "$((left > 30 ? left : 30))" "${quick[@]}" \
    "${device[@]}" "${results[@]}"
echo "gpu_check.sh: $out/gpu_check.json after $(($(date +%s) - begin)) s"
