# Sourced by the scripts of this folder: a scratch folder and checks that stop
# at the first failure with what was seen.
set -u
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
cd "$scratch" || exit 1
n_checks=0

fail() {
    echo "FAILED: $*" >&2
    exit 1
}

# expect STATUS COMMAND...: runs it; output in stdout.txt and stderr.txt.
expect() {
    local wanted=$1
    shift
    "$@" >stdout.txt 2>stderr.txt </dev/null
    local got=$?
    n_checks=$((n_checks + 1))
    [ "$got" -eq "$wanted" ] || {
        cat stdout.txt stderr.txt >&2
        fail "exit status $got instead of $wanted: $*"
    }
}

# first_line REGEX: of standard error.
first_line() {
    head -n 1 stderr.txt | grep -qE -- "$1" ||
        fail "first line '$(head -n 1 stderr.txt)' does not match '$1'"
    n_checks=$((n_checks + 1))
}

# json EXPRESSION: true of the object `o` on stdout.txt.
json() {
    EXPRESSION=$1 python3 -c '
import json, os, sys
o = json.load(open("stdout.txt"))
sys.exit(0 if eval(os.environ["EXPRESSION"]) else 1)
' || fail "not true: $1 ($(head -c 2000 stdout.txt))"
    n_checks=$((n_checks + 1))
}

finish() { echo "$n_checks checks passed"; }
