#!/bin/sh
# The generated pages in docs/ are what the program writes now; SECURITY.md names what is fuzzed.
set -u
failed=0
for page in options errors; do
    "$1" help --$page | cmp - "$2/docs/$page.md" || {
        echo "docs/$page.md is old: longshot help --$page >docs/$page.md" >&2
        failed=1
    }
done
# every reader that is fuzzed is named, and no other
for target in "$2"/tests/fuzz/fuzz_*.c; do basename "$target" .c; done | sort >"${TMPDIR:-/tmp}/longshot-targets.$$"
grep -o '`fuzz_[a-z_]*`' "$2/SECURITY.md" | tr -d '`' | sort -u | diff "${TMPDIR:-/tmp}/longshot-targets.$$" - || {
    echo "SECURITY.md does not name the targets of tests/fuzz" >&2
    failed=1
}
rm -f "${TMPDIR:-/tmp}/longshot-targets.$$"
"$1" help --completion | bash -n || failed=1
if command -v man >/dev/null && command -v groff >/dev/null; then
    "$1" help --man | groff -man -Tutf8 -ww -z 2>&1 | grep -q . && failed=1
fi
exit $failed
