#!/bin/sh
# The mistakes of tests/plants can still be planted: each applies to the sources as they are, changes
# one line or two, and names tests that there are. script/test-plants plants them.
set -eu
source=$2
fail() { echo "FAILED: $*" >&2; exit 1; }
command -v git >/dev/null || fail "git is needed"
cd "$source"
count=0
for patch in tests/plants/*.patch; do
    name=$(basename "$patch")
    case $name in [0-9][0-9][0-9]-*.patch) ;; *) fail "$name has no number" ;; esac
    [ "$(ls tests/plants/"${name%%-*}"-*.patch | wc -l)" -eq 1 ] || fail "there are two plants ${name%%-*}"
    grep -q '^What: .' "$patch" || fail "$name does not say what is wrong"
    tests=$(sed -n 's/^Test: //p' "$patch")
    [ -n "$tests" ] || fail "$name names no test"
    ! grep '^Needs:' "$patch" | grep -qv '^Needs: [a-z0-9_ ]*$' || fail "$name needs what no processor has"
    for test in $tests; do
        [ -e "tests/$test.c" ] || [ -e "tests/$test.sh" ] || fail "$name: there is no $test"
    done
    added=$(grep -c '^+[^+]' "$patch" || :) removed=$(grep -c '^-[^-]' "$patch" || :)
    [ "$added" -le 2 ] && [ "$removed" -le 2 ] && [ "$removed" -ge 1 ] || fail "$name changes $removed lines"
    grep -q '^+++ b/\(src/\|script/\|CMakeLists\)' "$patch" || fail "$name plants nothing that is built or run"
    git apply -C0 --check "$patch" || fail "$name no longer applies: make it anew, or drop it with its line of code"
    count=$((count + 1))
done
[ "$count" -ge 100 ] || fail "$count plants; at least 100 are wanted"
echo "$count plants apply"
