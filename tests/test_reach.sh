#!/bin/sh
# longshot reach: keeps its budget, says what its numbers say, goes on after a signal with the same
# numbers, and draws them. Tier: slow
set -eu
program=$1
source=$2
. "$source/tests/scratch.sh"
fail() { echo "FAILED: $*" >&2; exit 1; } # what follows rests on what went before
check() { python3 "$source/tests/reach_check.py" "$@" || fail "$*"; }

write_corpus 8
"$program" train out=run data.corpus=corpus data.tokenizer=byte model.layers=2 model.width=16 \
    model.length=64 mixer.heads=2 train.steps=30 train.batch=8 --quiet >/dev/null

# ---- keys of others ----
for word in eval.lengths=7 eval.protocol=lex extend=window task.length=3 suite.depths=3; do
    code=0
    "$program" reach run out=never $word >out.txt 2>&1 || code=$?
    [ $code -eq 2 ] && unbroken out.txt | grep -q "no key ${word%%=*}\|the key ${word%%=*}" out.txt || fail "$word: $code, $(cat out.txt)"
done
[ ! -e never ] || fail "a refused call was begun"

# ---- the budget ----
# One thread: its clock runs no faster than everybody's, so who worked for longer than that did not keep the budget,
# however many others wait for the machine. What is asked would take hours.
(ulimit -t 12; exec "$program" reach run budget=10s times=64 tokens=1000000 threads=1 out=brief --quiet) >/dev/null ||
    fail "a budget of 10 s"
grep -q '"left_out": \[\]' brief/reach.json && fail "nothing was left out of what takes hours"

# ---- what is found ----
# Everything that these keys, and those below, ask for is done in seconds, however slow the machine is.
cat >lambada.jsonl <<'J'
{"text": "The document goes on and on until it comes to its own end"}
{"text": "what follows is much like what came before"}
J
"$program" reach run budget=300s times=4 tokens=16384 lambada=lambada.jsonl --quiet >said.txt
check finding run/reach-30
sentence=$(python3 -c 'import json; print(json.load(open("run/reach-30/reach.json"))["sentence"])')
[ "$(head -n 1 said.txt)" = "$sentence" ] || fail "another sentence is printed"
grep -q "^run/reach-30/reach.html$" said.txt || fail "the page is not named"
grep -q "http" run/reach-30/reach.html && fail "the page names an address"

grep -q "<h2>LAMBADA</h2>" run/reach-30/reach.html || fail "the page has no LAMBADA"
check heads run/reach-30

# ---- a signal, and going on ----
# Only the signal ends a call early.
all="budget=300s times=2 tokens=16384"
"$program" reach run $all out=cut --quiet >/dev/null 2>&1 &
job=$!
tries=0 # the signal comes while it works
while [ $tries -lt 600 ] && { ! grep -q '"perplexity/as it is/128"' cut/reach.json || ! grep -q '"middle/' cut/reach.json; } 2>/dev/null; do
    sleep 0.05
    tries=$((tries + 1))
done
kill -TERM $job
code=0
wait $job || code=$?
[ $code -eq 75 ] || fail "a signal gave $code"
before=$(check same cut cut)
[ "$before" -ge 2 ] || fail "a signal kept $before jobs"
check finding cut
cp -r cut kept
"$program" reach run $all out=cut --quiet >/dev/null
"$program" reach run $all out=whole --quiet >/dev/null
[ "$(check same kept cut)" -eq "$before" ] || fail "jobs that were done are gone"
done=$(check same whole whole)
[ "$done" -gt "$before" ] || fail "the signal came too late"
[ "$(check same cut whole)" -eq "$done" ] || fail "the second call did not do the rest"
[ "$(check same cut cut)" -eq "$done" ] || fail "the two calls did something else"
grep -q '"left_out": \[\]' whole/reach.json || fail "something was left out"

# ---- what is wrong ----
refused 2 "budget=soon is not a time" reach run budget=soon
refused 2 "say which model" reach
refused 2 "of other weights, another corpus or another seed" reach run out=cut seed=9 budget=2s
echo '{"text": "another file"}' >other.jsonl
refused 2 "is not the LAMBADA of" reach run budget=2s lambada=other.jsonl
refused 3 "missing.jsonl" reach run out=none budget=2s lambada=missing.jsonl
mkdir broken
echo '{"format": "longshot-reach-1", "jobs": {}}' >broken/reach.json
refused 3 "is not the reach of a model" reach run out=broken budget=2s
sed 's/"room": [0-9]*/"room": -3/' cut/reach.json >broken/reach.json
refused 3 "room" reach run out=broken budget=2s
forged() { # CHANGE (of `state`), part of the sentence
    python3 -c 'import json, sys
state = json.load(open("cut/reach.json"))
jobs = state["jobs"]
of = lambda kind: next(job for name, job in jobs.items() if name.startswith(kind + "/") and "refused" not in job)
exec(sys.argv[1])
json.dump(state, open("broken/reach.json", "w"))' "$1"
    refused 3 "$2" reach run out=broken budget=2s
}
forged 'state["trained_length"] = -5' "trained_length. must be 64 to 64"
forged 'state["spent_seconds"] = -1e300' "spent_seconds. of the reach must be a number from 0"
forged 'of("middle")["cells"][0]["n"] = 1e300' "n. of cells must be a number from 0"
# many cells take no longer than few: seconds of the processor
python3 -c 'import json
state = json.load(open("cut/reach.json"))
cells = [{"length": i, "depth": 50, "n": 1, "score": 0.5} for i in range(1, 60001)]
state["jobs"]["needle/as it is/64/1"] = {"cells": cells, "kind": 1, "size": 64, "took": 0.1}
state["plan"]["rounds"] = 100
json.dump(state, open("broken/reach.json", "w"))'
(ulimit -t 20; exec "$program" reach run out=broken budget=3s --quiet) >/dev/null || fail "60,000 cells"
"$program" train out=task task=copy model.layers=1 model.width=16 mixer.heads=2 train.steps=1 --quiet >/dev/null
refused 2 "trained on a task" reach task budget=2s

# ---- pages ----
"$program" eval run suite=needle suite.lengths=512 suite.samples=1 suite.questions=2 suite.out=needle --quiet >/dev/null
cp needle/report.html first.html
"$program" report needle | grep -q "^needle/report.html$" || fail "the page of a suite is not made again"
cmp -s first.html needle/report.html || fail "the same results gave another page"
[ "$(grep -c 'class="heat h[0-9]"><rect' needle/report.html)" -eq 10 ] || fail "the heat map has no ten cells"
browser=$(command -v chromium || command -v chromium-browser || command -v google-chrome || :)
if [ -z "$browser" ]; then
    echo "SKIPPED: no Chromium here, so no page was drawn; script/bootstrap test installs it" >&2
    exit 77
fi
timeout 120 "$browser" --headless --no-sandbox --disable-gpu --user-data-dir="$scratch/profile" --window-size=390,900 \
    --dump-dom "file://$scratch/run/reach-30/reach.html" >reach.dom 2>browser.log || fail "the browser failed"
if grep -i "uncaught\|syntaxerror" browser.log; then fail "script errors"; fi
check page run/reach-30 reach.dom
