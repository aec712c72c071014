#!/bin/sh
# The generated pages in docs/ are what the program writes now.
set -u
failed=0
for page in options errors; do
    "$1" help --$page | cmp - "$2/docs/$page.md" || {
        echo "docs/$page.md is old: longshot help --$page >docs/$page.md" >&2
        failed=1
    }
done
"$1" help --completion | bash -n || failed=1
if command -v man >/dev/null && command -v groff >/dev/null; then
    "$1" help --man | groff -man -Tutf8 -ww -z 2>&1 | grep -q . && failed=1
fi
exit $failed
