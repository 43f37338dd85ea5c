#!/usr/bin/env bash
# exec/gpu_check.sh to its end on the stand-in: every file is there, every time
# is a positive number, the tables load as an overlay.
set -euo pipefail
fail() { echo "FAILED: $*" >&2; exit 1; }
command -v python3 >/dev/null || exit 77
rm -rf out bad
export MW_SHIM_SEED=5
"${MW_SOURCE:?}/exec/gpu_check.sh" -o "$PWD/out" --quick --device h200-sxm

python3 - <<'PY'
import csv, json, math
o = json.load(open("out/gpu_check.json"))
def times(x, path=""):
    if isinstance(x, dict):
        for k, v in x.items():
            if k.endswith("_s") and k != "predicted_step_time_s":
                yield path + k, v
            yield from times(v, path + k + ".")
    elif isinstance(x, list):
        for i, v in enumerate(x):
            yield from times(v, f"{path}{i}.")
found = list(times({k: v for k, v in o.items()
                    if k not in ("steps", "virtual_ranks")}))
assert len(found) > 40, len(found)
for k, v in found:
    assert v is not None and math.isfinite(v) and v > 0, (k, v)
assert o["left_out"] == [], o["left_out"]
assert len(o["gemm"]) == 12 and {g["pass"] for g in o["gemm"]} == set("FBW")
assert {k["op"] for k in o["kernels"]} == {"norm", "activation", "add", "rotary",
    "embedding", "cross_entropy", "optimizer"}
assert {c["direction"] for c in o["copies"]} == {"h2d", "d2h", "both", "d2d"}
assert o["layers"][0]["bytes"] == o["layers"][0]["bytes_by_driver"]
more = {k["op"] for k in o["other_kernels"]}
assert {"attention", "router", "groups", "reduce"} <= more, more
assert {k["way"] for k in o["other_kernels"] if k["op"] == "groups"} == {
    "one launch", "one by one"}
plain, full = o["steps"]
for s in o["steps"]:
    assert s["backend"] == "cuda" and s["peak_bytes"][0] > 0, s
    assert s["predicted"]["step_time_s"] > 0 and s["predicted"]["memory"]
    # What the driver counts: ours, and each allocation of the library's own.
    assert s["driver_bytes"][0] >= s["peak_bytes"][0] // 2, s["driver_bytes"]
assert full["activation_peak_bytes"][0] < plain["activation_peak_bytes"][0]
assert [v["ranks"] for v in o["virtual_ranks"]] == [8, 8]
for v in o["virtual_ranks"]:
    assert v["verified"] is True and v["virtual_step_time_s"] > 0, v
rows = list(csv.DictReader(open("out/kernels.csv")))
assert len(rows) == len(o["gemm"]) + len(o["kernels"]) + 2
assert {r["pass"] for r in rows if r["op"] == "attention"} == {"F", "B"}

# Every kernel of the header is measured, but the one that only waits.
import os, re
header = open(os.environ["MW_SOURCE"] + "/kernels/cuda/cuda_kernels.h").read()
names = set(re.findall(r"^int (mw_k_\w+_cuda)\(", header, re.M))
seen = {n for k in o["kernels"] + o["other_kernels"] for n in k["symbols"].split()}
assert names - seen == {"mw_k_spin_cuda"} and len(names) > 35, names - seen
assert {r["device"] for r in rows} == {"h200-sxm"}
PY
"${MESHWRIGHT:?}" hw check --hwdb out >/dev/null || fail "the overlay is refused"
[ -s out/raw_samples.csv ] && [ -s out/machine.csv ] || fail "files are missing"

# The same program behind `calibrate`, which adds what a launch costs.
rm -rf cal
"$MESHWRIGHT" calibrate --backend cuda -o "$PWD/cal" --quick --device h200-sxm --json >cal.json ||
    fail "calibrate --backend cuda"
python3 -c 'import json; o = json.load(open("cal.json")); assert o["kernel_launch_s"] > 0 and o["h2d_Bps"] > 0 and o["overlap_slowdown"] > 0, o'
"$MESHWRIGHT" hw check --hwdb cal >/dev/null || fail "the calibration is refused"
grep -q '^kernel_launch_s,' cal/constants.csv || fail "no constants"

# No GPU, and one that fails in the middle: a message, and no tables.
status=0
MW_SHIM_FAIL=400 "${MW_GPU_CHECK:?}" -o bad --quick --device h200-sxm 2>err.txt ||
    status=$?
[ $status = 5 ] || fail "status $status of a failing device"
grep -q "made to fail" err.txt || fail "no reason: $(cat err.txt)"
[ ! -e bad/kernels.csv ] && [ ! -e bad/gpu_check.json ] || fail "partial files"
