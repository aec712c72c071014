#!/bin/sh
# What is built tells nothing of where and when: no path of the source or of the build folder, no date, and archives
# without times. script/test-long builds twice and compares.
set -u
build=$(dirname "$(realpath "$1")")
source=$(realpath "$2")
failures=0
fail() { echo "FAILED: $*" >&2; failures=$((failures + 1)); }

# traces FILE: paths of this build in it
traces() { grep -a -c -F -e "$source/" -e "$build/" "$1"; }
looked=0
for file in "$build/longshot" "$build"/liblongshot.so* "$build/liblongshot.a" "$build"/lib/liblongshot-cuda.so; do
    [ -f "$file" ] || continue
    looked=$((looked + 1))
    case $(sed -n 's/^CMAKE_BUILD_TYPE:[A-Z]*=//p' "$build/CMakeCache.txt") in Debug) ;; *)
        [ "$(traces "$file")" = 0 ] || fail "$file names $(strings -a "$file" | grep -m 1 -F -e "$source/" -e "$build/")" ;;
    esac
done
[ $looked -ge 3 ] || fail "only $looked files were looked at"
printf 'x%s/src/file.c' "$source" >"${TMPDIR:-/tmp}/longshot-traces.$$"
[ "$(traces "${TMPDIR:-/tmp}/longshot-traces.$$")" = 1 ] || fail "a path would not be seen"
rm -f "${TMPDIR:-/tmp}/longshot-traces.$$"

# every member of an archive is of 1970
TZ=UTC ar tv "$build/liblongshot.a" | grep -v ' 1970 ' | head -n 1 | grep . && fail "an archive holds a time"
grep -rnE '__(DATE|TIME|TIMESTAMP)__' "$source/src" "$source/include" && fail "a source asks for the date"

# the bill of materials names what the loader names
"$1" doctor --json >"${TMPDIR:-/tmp}/longshot-doctor.$$" || fail "doctor"
ldd "$1" | sed -n 's/.* => \(\/[^ ]*\) .*/\1/p' | python3 -c '
import json, os, sys
listed = json.load(open(sys.argv[1]))["libraries"]
there = {os.path.basename(l["path"]) for l in listed}
missing = [p for p in sys.stdin.read().split() if os.path.basename(p) not in there]
known = [l for l in listed if l["version"] and l["licence"]]
for l in listed: assert set(l) == {"name", "version", "licence", "path"}, l
assert not missing, missing
assert any(l["name"] == "Jansson" for l in known) and len(known) >= 6, listed
' "${TMPDIR:-/tmp}/longshot-doctor.$$" || fail "the bill of materials"
rm -f "${TMPDIR:-/tmp}/longshot-doctor.$$"
[ $failures -eq 0 ]
