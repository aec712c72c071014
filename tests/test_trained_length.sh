#!/bin/sh
# The trained length is the length that was trained: train.length, not model.length. Evaluations, extensions and
# studies measure against it.
# Tier: slow.
set -u
program=$(realpath "$1")
. "$(dirname "$0")/scratch.sh"
export OMP_NUM_THREADS=2
write_text 3000
common="model.layers=1 model.width=32 mixer.heads=2 data.corpus=text.txt train.batch=4 train.steps=60 train.lr=3e-3 --quiet"
# the same training, with a model that says no length of its own and with one that is made for more
"$program" train $common model.length=32 out=short >/dev/null 2>&1 || fail "a training"
"$program" train $common model.length=256 train.length=32 out=long >/dev/null 2>&1 || fail "a training"
cmp -s short/checkpoints/step-00000060/model.safetensors long/checkpoints/step-00000060/model.safetensors ||
    fail "the weights differ, so nothing can be compared"
for extend in "" extend=bca extend=yarn extend=window; do
    for run in short long; do
        "$program" eval $run eval.lengths=32,256 eval.tokens=4096 $extend --json >$run.json 2>err.txt || fail "eval: $(cat err.txt)"
    done
    python3 - "$extend" <<'P' || fail "eval $extend"
import json, sys
short, long = (json.load(open(n + ".json")) for n in ("short", "long"))
assert short["trained_length"] == long["trained_length"] == 32, (short["trained_length"], long["trained_length"])
for a, b in zip(short["results"], long["results"]):
    assert a["loss"] == b["loss"] and a["excess"] == b["excess"], (sys.argv[1], a["length"], a["excess"], b["excess"])
P
done
"$program" eval long eval.tokens=4096 --json >out.json 2>/dev/null || fail "eval at its own lengths"
python3 -c 'import json; assert [r["length"] for r in json.load(open("out.json"))["results"]] == [32, 64, 128]' ||
    fail "the default lengths are not those of the trained one"

# suites too
for run in short long; do
    "$program" eval $run suite=heads suite.samples=1 --json >$run.json 2>err.txt ||
        fail "a suite: $(cat err.txt)"
done
python3 - <<'P' || fail "a suite of a run whose model is made for more"
import json
short, long = (json.load(open(n + ".json")) for n in ("short", "long"))
assert short["trained_length"] == long["trained_length"] == 32, long["trained_length"]
assert [c["length"] for c in short["cells"]] == [c["length"] for c in long["cells"]], long["cells"]
P

# arms of different lengths: each its own
cat >study.yaml <<Y
model: {layers: 1, width: 16, length: 128}
data: {corpus: text.txt}
train: {steps: 4, batch: 2}
eval: {lengths: [32, 256], tokens: 2048}
arms:
  a: {train.length: 32}
  b: {train.length: 64}
Y
"$program" study study.yaml out=s jobs=1 --quiet >/dev/null 2>err.txt || fail "a study: $(cat err.txt)"
python3 - <<'P' || fail "results.json"
import json
arms = json.load(open("s/results.json"))["arms"]
assert [a["trained_length"] for a in arms] == [32, 64], arms
assert [a["label"] for a in arms] == ["a, trained at 32", "b, trained at 64"], [a["label"] for a in arms]
P
"$program" study study.yaml out=s2 eval.lengths=32,64 check=true >check.txt 2>err.txt || fail "check: $(cat err.txt)"
[ "$(awk '/^[ab] / { print $6 }' check.txt | sort -u)" = 64 ] || fail "check=true counts with another length: $(cat check.txt)"
grep -q "2 arms trained at 32 to 64 tokens" s/report.html || fail "the page names one length for all"
[ $failures -eq 0 ]
