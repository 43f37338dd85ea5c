#!/usr/bin/env bash
# Every launcher that cuda_kernels.h declares has a CUDA source, a launcher of
# the stand-in, a test on the emulator and, but for the one that only waits, a
# measurement in mw-gpu-check.
set -euo pipefail
fail() { echo "FAILED: $*" >&2; exit 1; }
cd "${MW_SOURCE:?}"
names=$(grep -oE '^int mw_k_[a-z0-9_]+_cuda\(' kernels/cuda/cuda_kernels.h |
    sed 's/^int //; s/($//')
[ "$(wc -l <<<"$names")" -gt 35 ] || fail "only: $names"
for name in $names; do
    grep -q "^int $name(" kernels/cuda/*.cu || fail "$name has no CUDA source"
    grep -q "^int $name(" tests/shim/shim_*.c || fail "$name is not in the stand-in"
    grep -q "$name(" tests/shim/test_emulated_*.c || fail "$name has no emulated test"
    grep -q "\b$name\b" exec/cuda/check_*.c || [ "$name" = mw_k_spin_cuda ] ||
        fail "$name is not measured"
done
