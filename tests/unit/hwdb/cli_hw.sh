#!/usr/bin/env bash
# `meshwright hw`: list, show and check, for people and as JSON; exit statuses.
. "${MW_SOURCE:?}/tests/cli/lib.sh"
mw=${MESHWRIGHT:?}
unset MESHWRIGHT_HWDB MESHWRIGHT_DATA
command -v python3 >/dev/null || exit 77

says() {
    grep -qF -- "$1" stdout.txt || fail "stdout does not say '$1'"
    n_checks=$((n_checks + 1))
}

expect 0 "$mw" hw check
grep -qE '^[0-9]+ rows of 15 tables and [0-9]+ measured kernels checked$' stdout.txt || fail "hw check"
expect 0 "$mw" hw check --json
json "o['ok'] is True and o['rows'] > 290 and o['tables'] == 15"

expect 0 "$mw" hw list
says dgx-h100
says h100-sxm
says nvswitch
expect 0 "$mw" hw list --json
json "'dgx-h100' in o['systems'] and 'h100-sxm' in o['gpus']"
json "o['tables']['latency'] == 19 and o['tables']['kernels'] == 0"
expect 0 "$mw" hw list nvlink --json
json "[r['link_GBps_per_dir'] for r in o['rows'] if r['generation'] == '4'] == [25]"
json "[r['raw_link_GBps_per_dir'] for r in o['rows'] if r['generation'] == '6'] == [None]"
for table in nvlink nvswitch pcie infiniband ethernet latency systems gpus \
    costs alpha_beta achieved_matmul constants profiles recipes kernels curves machine model_error; do
    expect 0 "$mw" hw list "$table"
    [ -s stderr.txt ] && fail "hw list $table writes to stderr"
    expect 0 "$mw" hw list "$table" --json
    json "o['table'] == '$table' and isinstance(o['rows'], list)"
done

expect 0 "$mw" hw show "DGX H100"
says "DGX H100 (dgx-h100)"
says "[1] "
expect 0 "$mw" hw show dgx-h100 --json
json "(o['kind'] == 'system' and o['slug'] == 'dgx-h100')"
json "all(f['source'] and f['confidence'] in 'HML' for f in o['figures'])"
json "{f['name']: f['value'] for f in o['figures']}['node_net_GBps_per_dir'] == 400"
expect 0 "$mw" hw show h100-sxm5 --json
json "o['kind'] == 'gpu' and 'H100-SXM5' in o['aliases']"
json "{f['name']: f['value'] for f in o['figures']}['bf16_tflops'] == 989.4"
json "abs({f['name']: f['value'] for f in o['figures']}['gemm_efficiency.bf16'] - 794.5 / 989.4) < 1e-5"

expect 2 "$mw" hw
first_line '^meshwright hw: list, show, check or topo\?'
expect 2 "$mw" hw lst
first_line "did you mean 'list'"
expect 2 "$mw" hw show
expect 2 "$mw" hw show dgx h100
expect 2 "$mw" hw show dgx-h10
first_line "^meshwright: no system or device 'dgx-h10'.*did you mean 'dgx-h100'"
expect 2 "$mw" hw list nvlnk
first_line "did you mean 'nvlink'"

# The mistake that circulates, through an overlay.
mkdir overlay
cat >overlay/nvlink.csv <<'END'
generation,link_GBps_bidir,links_per_gpu,gpu_GBps_bidir,confidence,source
4,100,18,900,H,a table of the web
END
expect 3 "$mw" hw check --hwdb overlay
first_line "^meshwright: overlay/nvlink\.csv:2: column 'link_GBps_bidir': is 100 but .* gives 50"
expect 3 "$mw" hw check --hwdb overlay --json
json "o['ok'] is False and len(o['findings']) == 2"
expect 3 env MESHWRIGHT_HWDB=overlay "$mw" hw list
[ -s stdout.txt ] && fail "hw list prints although the database is wrong"
expect 3 "$mw" hw list --hwdb no-such-folder

cat >overlay/nvlink.csv <<'END'
generation,nccl_model_link_GBps_per_dir,confidence,source
4,21,M,a later version
END
expect 0 "$mw" hw check --hwdb overlay
finish
