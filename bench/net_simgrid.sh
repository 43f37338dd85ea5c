#!/bin/sh
# Runs the same problems through our flow network and through SimGrid, and
# prints simulated times and CPU seconds side by side.
#
#   bench/net_simgrid.sh PATH/TO/net_flow [long]
#
# Needs Debian's libsimgrid-dev and a C++ compiler; says so and stops (exit 0)
# where they are not installed. Half a minute; with `long` two minutes more.
set -eu

here=$(CDPATH= cd -- "$(dirname -- "$0")" && pwd)
flow=${1:?"usage: $0 PATH/TO/net_flow"}
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
if ! "${CXX:-c++}" -O2 -std=c++17 -o "$dir/net_simgrid" \
    "$here/net_simgrid.cpp" -lsimgrid 2>"$dir/log"; then
    echo "SimGrid is left out (apt-get install libsimgrid-dev):" >&2
    head -n 3 "$dir/log" >&2
    exit 0
fi

field() { # field NAME < json
    sed -n "s/.*\"$1\":\([0-9.]*\).*/\1/p"
}
printf '%-42s %14s %14s %9s %9s %8s\n' problem 'simgrid us' 'ours us' \
    'simgrid s' 'ours s' faster
compare() { # compare TITLE OPTIONS...
    title=$1
    shift
    theirs=$("$dir/net_simgrid" "$@")
    ours=$("$flow" "$@")
    echo "$title|$(echo "$theirs" | field sim_us)|$(echo "$ours" |
        field sim_us)|$(echo "$theirs" | field cpu_s)|$(echo "$ours" |
        field cpu_s)" | awk -F'|' '{
        d = ($2 - $3) / $2; d = d < 0 ? -d : d
        printf "%-42s %14.3f %14.3f %9.3f %9.4f %7.0fx%s\n", $1, $2, $3, $4,
               $5, $4 / $5, (d > 1e-6 ? "  (times differ)" : "") }'
}
compare 'ring, 256 hosts' --op ring --hosts 256
compare 'ring, 1024 hosts' --op ring --hosts 1024
compare 'all-to-all, 256 hosts, 8 open' --op a2a --hosts 256 --window 8
compare 'all-to-all, 128 hosts, all open' --op a2a --hosts 128
compare 'all-to-all, 64 hosts, 8 open, +-10 %' \
    --op a2a --hosts 64 --window 8 --jitter 0.1
compare 'all-to-all, 128 hosts, 8 open, +-10 %' \
    --op a2a --hosts 128 --window 8 --jitter 0.1
if [ "${2:-}" = long ]; then
    compare 'all-to-all, 256 hosts, 8 open, +-10 %' \
        --op a2a --hosts 256 --window 8 --jitter 0.1
fi
