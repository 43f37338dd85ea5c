#!/usr/bin/env bash
# Every folder here is a command (cmd) and its exact standard output
# (expected). regold.sh rewrites them; the commit explains what changed.
set -u
here=$(cd "$(dirname "$0")" && pwd)
status=0 n=0
for cmd in "$here"/*/cmd; do
    dir=$(dirname "$cmd")
    n=$((n + 1))
    if ! bash "$cmd" 2>&1 | diff -u "$dir/expected" - >golden.diff; then
        echo "FAILED: $(basename "$dir")"
        head -n 40 golden.diff
        status=1
    fi
done
rm -f golden.diff
[ "$n" -gt 0 ] || status=1
echo "$n commands compared"
exit $status
