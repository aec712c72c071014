#!/bin/sh
# Every number that a browser draws of a study's page is the one in the study's files. Without
# Chromium this is skipped (77), and says so.
set -eu
program=$1
source=$2
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
cd "$scratch"
export GOMP_SPINCOUNT=100
fail() { echo "FAILED: $*" >&2; exit 1; }
browser=$(command -v chromium || command -v chromium-browser || command -v google-chrome || :)
if [ -z "$browser" ]; then
    echo "SKIPPED: no Chromium here, so no page was drawn; script/bootstrap test installs it" >&2
    exit 77
fi
browse() {
    timeout 120 "$browser" --headless --no-sandbox --disable-gpu --enable-logging=stderr --user-data-dir="$scratch/profile" "$@" 2>browser.log ||
        { tail -n 5 browser.log >&2; fail "the browser failed"; }
    if grep -i "uncaught\|syntaxerror" browser.log; then fail "script errors"; fi
}

python3 "$source/tests/report_page.py" make .
for study in text task tasks lengths; do
    "$program" report $study >/dev/null
    "$program" report $study to=latex >$study.tex
    "$program" report $study to=markdown >$study.md
    python3 "$source/tests/report_page.py" open $study/report.html $study.html
    browse --window-size=390,900 --dump-dom "file://$scratch/$study.html" >$study.dom
    python3 "$source/tests/report_page.py" compare $study $study.dom || fail "the page of the study $study"
done
browse --window-size=1000,1400 --screenshot="$scratch/page.png" "file://$scratch/text/report.html" >/dev/null
[ "$(stat -c %s page.png)" -gt 30000 ] || fail "the picture is empty"
