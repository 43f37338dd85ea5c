#!/usr/bin/env bash
# Measures the GPU of this machine within 8 minutes: whole training steps of
# two models, with and without recomputation, and of 8 virtual ranks (predicted
# and measured, with memory), then products, kernels, copies, latencies, layers. Writes an overlay of the hardware database with
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

export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export OPENBLAS_NUM_THREADS=1
begin=$(date +%s)
runs=()
# Seconds until 450 have passed, less those that $1 needs.
left() { echo $((450 - $(date +%s) + begin - $1)); }

# Plans a model with what --fix says, predicts and runs it:
#   run step|virtual NAME RANKS MODEL SEQ,BATCH,DTYPE FIX SECONDS [OPTION...]
# A step is one process with the GPU to itself; virtual ranks are threads that
# share it and take turns. SECONDS end a run; it is not begun in the time that
# the rest of the measurements needs.
run() {
    local kind=$1 name=$2 ranks=$3 model=$4 seq batch dtype fix=$6 limit=$7
    IFS=, read -r seq batch dtype <<<"$5"
    shift 7
    local dir=$out/$kind-$name status=0 start=("$mpirun" -np 1)
    if [ "$(left 150)" -lt "$limit" ]; then
        limit=$(left 150)
    fi
    if [ "$limit" -lt 20 ]; then
        echo "gpu_check.sh: $name is left out: no time" >&2
        runs+=(--left-out "$kind-$name")
        return 0
    fi
    mkdir -p "$dir"
    cat >"$dir/scenario.yaml" <<YAML
format: 1
name: $name
model: $model
cluster: {system: dgx-h200, nodes: 1, gpus_per_node: $ranks}
workload: {seq: $seq, global_batch: $batch, dtype: $dtype, grad_dtype: fp32}
YAML
    "$mw" plan "$dir/scenario.yaml" --fix "$fix" -o "$dir/plan.yaml" \
        >"$dir/plan.txt"
    "$mw" sim "$dir/scenario.yaml" --plan "$dir/plan.yaml" --json >"$dir/sim.json"
    if [ "$kind" = virtual ]; then
        start=()
        set -- "$@" --comm local
    fi
    timeout "$limit" "${start[@]}" "$exec_program" run "$dir/plan.yaml" \
        --backend cuda --trace "$dir/trace.json" "$@" \
        >"$dir/result.json" || status=$?
    if [ $status = 4 ]; then
        exit 4
    elif [ $status != 0 ]; then
        echo "gpu_check.sh: $name is left out: exit status $status" >&2
        runs+=(--left-out "$kind-$name")
        return 0
    fi
    runs+=("--$kind" "$dir/result.json,$dir/sim.json")
}

# Whole steps in both kinds of recomputation and two sizes (drawing the weights
# of 1.3e9 parameters takes one core 40 s); 8 virtual ranks in three dimensions
# and three schedules, gradients against one rank.
alone=tp=1,pp=1,dp=1,micro_batch=1
pipe=tp=1,pp=4,dp=2,micro_batch=1,recompute=none
if [ ${#quick[@]} -gt 0 ]; then
    tiny="{preset: gpt2, hidden: 32, heads: 4, head_dim: 8, ffn: 64, vocab: 64, max_seq: 16, layers: 4}"
    run step tiny 1 "$tiny" 16,4,bf16 $alone,recompute=none 60 --steps 6
    run step tiny-full 1 "$tiny" 16,4,bf16 $alone,recompute=full 60 --steps 6
    run virtual tp2-pp2-dp2 8 "$tiny" 16,8,fp32 \
        tp=2,pp=2,dp=2,micro_batch=1,recompute=none 60 --steps 5 --verify
    run virtual zb-h1 8 "$tiny" 16,8,bf16 $pipe,schedule=zb-h1 60 --steps 5 --verify
else
    medium="{preset: gpt2-medium}"
    small="{preset: gpt2, hidden: 1024, layers: 8, heads: 16, head_dim: 64, ffn: 4096}"
    run step gpt2-medium 1 "$medium" 1024,8,bf16 $alone,recompute=none 90 --steps 6
    run step gpt2-medium-full 1 "$medium" 1024,8,bf16 $alone,recompute=full 90 --steps 6
    run step gpt-1.3b 1 \
        "{preset: gpt2, hidden: 2048, layers: 24, heads: 16, head_dim: 128, ffn: 8192}" \
        1024,4,bf16 $alone,recompute=none 150 --steps 6
    run virtual tp2-pp2-dp2 8 "$small" 512,8,fp32 \
        tp=2,pp=2,dp=2,micro_batch=1,recompute=none 60 --steps 6 --verify
    for schedule in gpipe 1f1b zb-h1; do
        run virtual $schedule 8 "$small" 512,16,bf16 $pipe,schedule=$schedule 60 \
            --steps 6 --verify
    done
fi
seconds=$(left 0)
"$check" -o "$out" --seconds "$((seconds > 30 ? seconds : 30))" "${quick[@]}" \
    "${device[@]}" "${runs[@]}"
echo "gpu_check.sh: $out/gpu_check.json after $(($(date +%s) - begin)) s"
