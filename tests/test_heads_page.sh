#!/bin/sh
# The page of the suite `heads` grows with the cells that its file has, whatever numbers they have,
# and takes as many as the suite itself writes.
set -eu
program=$1
. "$2/tests/scratch.sh"
results() { # LAYERS HEADS LENGTHS: all of them; `diagonal N`: as many heads of as many layers
    mkdir -p page
    awk -v a="$1" -v b="$2" -v c="${3:-1}" 'BEGIN {
        printf "{\"suite\": \"heads\", \"form\": \"patterns\", \"n\": 1, \"score\": 0.5, \"cells\": ["
        if (a == "diagonal")
            for (i = 0; i < b; i++) cell(i, i, 64)
        else
            for (t = 0; t < c; t++) for (l = 0; l < a; l++) for (h = 0; h < b; h++) cell(l, h, 64 * 2 ^ t)
        print "]}"
    }
    function cell(layer, head, tokens) {
        printf "%s{\"length\": %d, \"layer\": %d, \"head\": %d, \"n\": 1, \"score\": 0.5, \"metrics\": {\"prefix_matching\": %.4f}}",
            before, tokens, layer, head, tokens / 1024
        before = ", "
    }' >page/results.json
}
results diagonal 3000
begun=$(date +%s)
"$program" report page >out.txt || fail "heads of different layers"
[ $(($(date +%s) - begun)) -lt 20 ] || fail "3000 cells took long"
[ "$(wc -c <page/report.html)" -lt $((20 * $(wc -c <page/results.json))) ] || fail "3000 cells make $(wc -c <page/report.html) bytes"
[ "$(grep -c 'data-value="layer' page/report.html)" -eq 3000 ] || fail "the table has not one row for each head"

results 64 32 3 # as large models have
"$program" report page >out.txt || fail "what the suite writes is refused"
[ "$(grep -c 'data-value="layer' page/report.html)" -eq 2048 ] || fail "the table has not all heads"
grep -q 'layer 63, head 31</td><td data-value="0.0625">0.062<small>0.125, 0.250</small>' page/report.html ||
    fail "a row has not the values of its head at all lengths"
[ "$(grep -c '<title>layer [0-9]*, head [0-9]*: 0.0625' page/report.html)" -eq 2048 ] || fail "the map has not all heads"
[ "$(grep -c '<title>layer [0-9]*, head [0-9]*: 0.1875' page/report.html)" -eq 2048 ] || fail "the map of changes has not all heads"
[ $failures -eq 0 ] || exit 1
echo "the page of heads: good"
