# For shell tests, which read it with `.`: a folder of their own that is removed at the end, failures that are
# counted ($failures), and a text to train on.
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
cd "$scratch"
export XDG_CACHE_HOME="$scratch/cache" GOMP_SPINCOUNT=100
failures=0
fail() {
    echo "FAILED: $*" >&2
    failures=$((failures + 1))
}
write_text() { # LINES, into text.txt
    awk -v lines="$1" \
        'BEGIN { for (i = 0; i < lines; i++) print "line " i " of a text that is long enough to learn a little from" }' >text.txt
}
