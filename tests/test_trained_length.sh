#!/bin/sh
# The trained length is the length that was trained, and there is one: model.length and train.length are the same unless
# training goes on from weights that were made for another. Evaluations, extensions, suites and studies measure by it.
# Tier: slow.
set -u
program=$(realpath "$1")
. "$(dirname "$0")/scratch.sh"
export OMP_NUM_THREADS=2
write_text 3000
common="model.layers=1 model.width=32 mixer.heads=2 data.corpus=text.txt train.batch=4 train.steps=60 train.lr=3e-3 --quiet"
lengths() { # of a run: the model's, the training's
    echo $(awk '/^[a-z]/ { part = $1 } $1 == "length:" && (part == "model:" || part == "train:") { print $2 }' "$1/config.yaml")
}
# the same training, with a model that is made for its length and from weights that are made for more
"$program" train $common model.length=32 out=short >/dev/null 2>&1 || fail "a training"
"$program" train $common model.length=256 train.steps=0 out=made >/dev/null 2>&1 || fail "a training"
"$program" train $common train.from=made train.length=32 out=long >/dev/null 2>&1 || fail "a training"
[ "$(lengths long)" = "256 32" ] || fail "weights that were made for 256 tokens lost that"
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

# one that is given is the other's too: also beside a preset, a mixer's own measure, a table of positions
settled() { # length, settings of a training
    length=$1
    shift
    rm -rf one
    "$program" train data.corpus=text.txt train.steps=1 train.batch=2 out=one --quiet "$@" >/dev/null 2>err.txt ||
        fail "$*: $(cat err.txt)"
    [ "$(lengths one)" = "$length $length" ] || fail "$*: $(lengths one)"
}
settled 32 model.preset=tiny train.length=32
settled 128 model.preset=tiny
settled 48 model.layers=1 model.width=16 mixer.heads=1 model.length=48
settled 48 model.layers=1 model.width=16 mixer.heads=1 model.length=48 train.length=48
settled 256 model.layers=1 model.width=16 mixer.heads=1
settled 32 model.layers=1 model.width=16 model.mixer=hyena train.length=32
settled 32 model.layers=1 model.width=16 mixer.heads=1 model.position=learned train.length=32
"$program" eval one suite=needle suite.lengths=64 >out.txt 2>err.txt
[ $? -eq 2 ] && grep -q "the model can take 32" err.txt || fail "a suite reads positions that were not learned: $(cat err.txt)"
# and learned further, by training on at a longer length
"$program" train data.corpus=text.txt model.layers=1 model.width=16 mixer.heads=1 model.position=learned train.from=one \
    train.length=64 train.steps=1 train.batch=2 out=on --quiet >/dev/null 2>err.txt || fail "a longer one: $(cat err.txt)"
"$program" eval on suite=needle suite.lengths=128 >out.txt 2>err.txt
[ $? -eq 2 ] && grep -q "the model can take 64" err.txt || fail "a suite forgets positions that were learned: $(cat err.txt)"

# two lengths are refused, by a training and by a study, and both keys are named
both="model.length=64 and train.length=32 both name the trained length"
"$program" train $common model.length=64 train.length=32 out=none >/dev/null 2>err.txt
[ $? -eq 2 ] && grep -q "$both" err.txt && [ ! -e none ] || fail "two lengths are taken: $(cat err.txt)"
"$program" train task=copy model.layers=1 model.width=16 model.length=64 train.length=32 out=none >/dev/null 2>err.txt
[ $? -eq 2 ] && grep -q "$both" err.txt || fail "two lengths of a task are taken: $(cat err.txt)"
printf 'model.length: 64\nmodel.width: 16\ndata.corpus: text.txt\ntrain.steps: 1\narms:\n  a: {train.length: 32}\n  b: {}\n' >two.yaml
"$program" study two.yaml out=none >/dev/null 2>err.txt
[ $? -eq 2 ] && grep -q "$both" err.txt && [ ! -e none ] || fail "two lengths of an arm are taken: $(cat err.txt)"

# the arena asks at the length of the training
listops="task=listops task.max_depth=3 model.layers=1 model.width=8 mixer.heads=1 model.causal=false model.position=none
    train.batch=2 --quiet"
"$program" train $listops model.length=128 train.steps=0 out=wide >/dev/null 2>err.txt || fail "listops: $(cat err.txt)"
"$program" train $listops train.from=wide model.length=128 train.length=64 train.steps=1 out=narrow >/dev/null 2>err.txt || fail "listops: $(cat err.txt)"
"$program" eval narrow suite=lra suite.samples=4 --json >out.json 2>err.txt || fail "lra: $(cat err.txt)"
python3 -c 'import json; d = json.load(open("out.json"))["data"]; assert d["length"] == 64, d' || fail "lra asks at another length"

# arms of different lengths: each its own
cat >study.yaml <<Y
model: {layers: 1, width: 16}
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
