#!/usr/bin/env bash
# Installs what a fresh Debian 12 lacks, builds with warnings as errors, runs
# every test, then the whole suite again under AddressSanitizer and UBSan.
#   ./check.sh           everything
#   ./check.sh --quick   without the sanitizer run
set -euo pipefail
cd "$(dirname "$0")"
. cmake/packages.sh

say() { printf '\n== %s\n' "$*"; }

say "Packages"
mw_install_packages "${MW_RUN_PACKAGES[@]}" "${MW_TEST_PACKAGES[@]}"

# Tests that start MPI ranks run alone (RUN_SERIAL), so -j is safe.
run_suite() {
    cmake --preset "$1" >/dev/null
    cmake --build "build-$1" --parallel "$(mw_jobs)" | tail -n 1
    ctest --test-dir "build-$1" --output-on-failure --timeout 600 \
        -j "$(mw_jobs)"
}

if [ "${1:-}" != "--quick" ]; then
    say "AddressSanitizer and UBSan (build-asan/)"
    run_suite asan
fi
say "Warnings as errors (build-dev/)"
run_suite dev
