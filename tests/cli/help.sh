#!/usr/bin/env bash
# --help of every verb is complete: usage, every common option, examples, exit
# status; nothing on stderr. --version names version and commit.
. "${MW_SOURCE:?}/tests/cli/lib.sh"
mw=${MESHWRIGHT:?}

expect 0 "$mw" --version
grep -qE '^meshwright [0-9]+\.[0-9]+\.[0-9]+ \(commit [0-9a-f]+|unknown\)$' stdout.txt ||
    fail "version: $(cat stdout.txt)"
expect 0 "$mw" --help
verbs=$(sed -nE '/^Verbs:/,/^$/ s/^  ([a-z]+) .*/\1/p' stdout.txt)
[ "$(echo "$verbs" | wc -w)" -ge 8 ] || fail "verbs: $verbs"
for verb in $verbs; do
    expect 0 "$mw" "$verb" --help
    [ -s stderr.txt ] && fail "$verb --help writes to stderr"
    for text in "Usage: meshwright $verb" --json --quiet --hwdb xample "xit status"; do
        grep -qF -e "$text" stdout.txt || fail "$verb --help lacks '$text'"
    done
    expect 2 "$mw" "$verb" --no-such-option
    first_line "^meshwright $verb: .*no-such-option"
done
finish
