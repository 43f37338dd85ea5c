#!/usr/bin/env bash
# meshwright-exec needs no symbol and no library of CUDA, cuBLAS or NCCL; the
# module, where it is built, exports its four names and says without a driver
# what is missing.
set -euo pipefail
fail() { echo "FAILED: $*" >&2; exit 1; }
exec_program=${MESHWRIGHT_EXEC:?}
command -v nm >/dev/null && command -v readelf >/dev/null || exit 77
if nm -u "$exec_program" | grep -iE ' (cuda|cublas|nccl|mw_k_.*_cuda|mw_dev_cuda)'; then
    fail "$exec_program needs symbols of the CUDA side"
fi
if readelf -d "$exec_program" | grep NEEDED | grep -iE 'cuda|cublas|nccl'; then
    fail "$exec_program needs libraries of the CUDA side"
fi
[ -n "${MW_MODULE:-}" ] || exit 0
got=$(nm -D --defined-only "$MW_MODULE" | awk '{print $3}' | sort | tr '\n' ' ')
[ "$got" = "mw_comm_nccl_wrap mw_cuda_set_timeout mw_dev_cuda mw_dev_cuda_bf16 " ] ||
    fail "the module exports: $got"
