#!/usr/bin/env bash
# What a reviewer would look for first: no source file over 600 lines, file
# names unique, a comment at the head of every file, no left-over marks.
set -u
status=0
complain() {
    echo "$*"
    status=1
}
files=$(find base hwdb sim planner plots kernels exec cli bench tests \
    -name '*.[ch]' -o -name '*.cu' -o -name '*.cuh' | sort)
[ "$(echo "$files" | wc -l)" -gt 50 ] || complain "found only: $files"
# shellcheck disable=SC2086  (file names have no spaces)
found=$(awk '
    FNR == 1 {
        if (NR > 1 && lines > 600)
            print name " has " lines " lines; split it by job (600 at most)"
        if ($0 !~ /^\/\*/) print FILENAME " does not begin with a comment"
        name = FILENAME
    }
    { lines = FNR }
    /(^|[^:"])\/\/ / && !/"[^"]*\/\/[^"]*"/ && !/https?:\/\// {
        print FILENAME ":" FNR ": // comment"
    }
    /(^|[^A-Za-z_])(TODO|FIXME|XXX)([^A-Za-z_]|$)/ {
        print FILENAME ":" FNR ": left-over mark"
    }
    END { if (lines > 600) print name " has " lines " lines" }
' $files)
[ -z "$found" ] || complain "$found"
twice=$(echo "$files" | grep -v '^tests/' | xargs -n 1 basename | sort | uniq -d)
[ -z "$twice" ] || complain "file names used twice: $twice"
exit $status
