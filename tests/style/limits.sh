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
for f in $files; do
    lines=$(wc -l <"$f")
    [ "$lines" -le 600 ] || complain "$f has $lines lines; split it by job (600 at most)"
    head -n 1 "$f" | grep -q '^/\*' || complain "$f does not begin with a comment"
    grep -nE '(^|[^:])//' "$f" | grep -vE '"[^"]*//[^"]*"|https?://' | head -n 3 |
        grep -q . && complain "$f has // comments"
    grep -nE '\b(TODO|FIXME|XXX)\b' "$f" && complain "$f has left-over marks"
done
twice=$(echo "$files" | grep -v '^tests/' | xargs -n 1 basename | sort | uniq -d)
[ -z "$twice" ] || complain "file names used twice: $twice"
exit $status
