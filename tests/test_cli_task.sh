#!/bin/sh
# Tasks from the command line: train, cut, go on, test, study, refuse.
set -eu
program=$1
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
cd "$scratch"
export XDG_CACHE_HOME="$scratch/cache" GOMP_SPINCOUNT=100
fail() { echo "FAILED: $*" >&2; exit 1; }

# a task that is learnt in seconds: the whole way, without a corpus
tiny="task=induction task.vocabulary=6 train.length=8 model.layers=1 model.width=32 model.mixer=mamba
    model.norm=rms model.feed_forward=false train.batch=16 train.lr=5e-3 train.warmup=10"
"$program" train $tiny train.steps=250 out=run --quiet >out.txt
grep -q "^run: step 250, " out.txt || fail "the run did not end"
[ ! -e run/tokenizer ] && [ ! -e cache ] || fail "a task needs no corpus"
grep -q "^task: induction" run/config.yaml && grep -q "^  length: 8" run/config.yaml || fail "config.yaml"
"$program" eval run eval.lengths=4,8,32 eval.samples=40 --json >first.json
"$program" eval run eval.lengths=4,8,32 eval.samples=40 eval.chunk=5 eval.batch=7 --json >second.json
"$program" eval run eval.lengths=4,8,32 eval.samples=40 seed=2 --json >third.json
python3 - <<'P'
import json
first, second, third = (json.load(open(n + ".json")) for n in ("first", "second", "third"))
assert first["trained_length"] == 8 and first["task"] == "induction" and "corpus" not in first
for a, b in zip(first["results"], second["results"]):
    assert a["protocol"] == "task" and a["windows"] == a["tokens"] == 40
    assert a["accuracy"] == b["accuracy"] == a["exact"] and abs(a["loss"] - b["loss"]) < 1e-4, (a, b)
assert [r["length"] for r in first["results"]] == [4, 8, 32]
assert first["results"][1]["accuracy"] > 0.9, first["results"][1]
assert [r["loss"] for r in first["results"]] != [r["loss"] for r in third["results"]]
P
"$program" eval run eval.lengths=8 eval.samples=3 | grep -q "^ *8 *3 *3 " || fail "the table"
ls run/eval/task-8-*.json >/dev/null || fail "no file of the result"

# cut and continued: the same weights
"$program" train $tiny train.steps=40 train.checkpoint_every=10 out=whole --quiet >/dev/null
"$program" train $tiny train.steps=40 train.checkpoint_every=10 out=cut --quiet >/dev/null 2>&1 &
child=$!
sleep 0.3
kill -TERM $child 2>/dev/null || :
wait $child || [ $? -eq 75 ] || fail "SIGTERM was not a stop"
"$program" train $tiny train.steps=40 train.checkpoint_every=10 out=cut --quiet >/dev/null
cmp whole/checkpoints/step-00000040/model.safetensors cut/checkpoints/step-00000040/model.safetensors ||
    fail "a run that was cut has other weights"

# many answers in each sample; the question may be changed at test time
"$program" train task=mqar task.vocabulary=64 task.pairs=2 model.layers=1 model.width=32 mixer.heads=2 \
    train.steps=4 train.batch=4 out=mqar --quiet >/dev/null
"$program" eval mqar task.pairs=5 eval.lengths=64 eval.samples=6 --json | python3 -c '
import json, sys
row = json.load(sys.stdin)["results"][0]
assert row["tokens"] == 30 and row["windows"] == 6 and 0 <= row["exact"] <= row["accuracy"] <= 1, row'

# a task with classes: head and classes come from it, samples are padded, tests read them whole
"$program" train task=listops train.length=32 model.layers=1 model.width=16 model.mixer=s4d model.causal=false \
    train.steps=6 train.batch=4 train.warmup=2 out=lists --quiet >/dev/null
grep -q "^  head: classify" lists/config.yaml && grep -q "^  classes: 10" lists/config.yaml || fail "the head"
grep -q "^  vocabulary: 15" lists/config.yaml || fail "the vocabulary of listops"
"$program" eval lists eval.lengths=16,32,48 eval.samples=20 --json >first.json
"$program" eval lists eval.lengths=16,32,48 eval.samples=20 eval.batch=3 --json >second.json
"$program" eval lists task.min_length=30 eval.lengths=48 eval.samples=20 --json >third.json
python3 - <<'P'
import json
first, second, third = (json.load(open(n + ".json"))["results"] for n in ("first", "second", "third"))
assert [r["length"] for r in first] == [16, 32, 48]
for a, b in zip(first, second):
    assert a["windows"] == a["tokens"] == 20 and 0 <= a["accuracy"] <= 1 and a["accuracy"] == a["exact"]
    assert a["accuracy"] == b["accuracy"] and abs(a["loss"] - b["loss"]) < 1e-4, (a, b)
assert third[0]["loss"] != first[2]["loss"]
P
cat >lists.yaml <<'Y'
title: Lists
seeds: [1]
task: listops
model: {layers: 1, width: 16, length: 24, causal: false}
train: {steps: 3, batch: 4, warmup: 1, checkpoint_every: 0}
eval: {lengths: [24, 32], samples: 8}
arms:
  s4d: {model.mixer: s4d}
  attention: {model.position: sinusoidal, mixer.heads: 2}
Y
"$program" study lists.yaml check=true | grep -q "^attention " || fail "check=true with classes"
"$program" study lists.yaml out=list-study --quiet >out.txt
grep -q "right answers" out.txt || fail "the table of classes"
grep -q "Right answers against length" list-study/report.html || fail "the page of classes"

# an encoder reads what comes before the first answer, and a decoder that streams answers
"$program" train task=reverse task.symbols=4 train.length=8 model.layers=1 model.encoder_layers=1 model.width=32 \
    mixer.heads=2 model.cross_heads=2 model.position=learned train.batch=16 train.lr=5e-3 train.warmup=10 train.steps=250 \
    out=reversed --quiet >/dev/null
"$program" eval reversed eval.lengths=6,8 eval.samples=40 --json >first.json
"$program" eval reversed eval.lengths=6,8 eval.samples=40 eval.chunk=3 eval.batch=7 --json >second.json
"$program" train task=mqar task.vocabulary=32 task.pairs=2 train.length=16 model.layers=1 model.encoder_layers=longt5 model.width=16 \
    mixer.heads=2 model.cross_heads=2 model.position=t5 mixer.global_block=4 train.steps=3 train.batch=4 out=asked --quiet >/dev/null
"$program" eval asked eval.lengths=16,24 eval.samples=6 --json >third.json
python3 - <<'P'
import json
first, second, third = (json.load(open(n + ".json"))["results"] for n in ("first", "second", "third"))
for a, b in zip(first, second):
    assert a["windows"] == 40 and a["tokens"] == 20 * a["length"]
    assert a["accuracy"] == b["accuracy"] and abs(a["loss"] - b["loss"]) < 1e-4, (a, b)
assert first[1]["accuracy"] > 0.95, first[1]
assert [r["tokens"] for r in third] == [12, 12], third
P

# samples from files: one text each, or two; the part to test on is chosen
python3 - <<'P'
import os, random
random.seed(1)
for part in ("train", "test"):
    for label, letter in (("pos", "a"), ("neg", "b")):
        os.makedirs(f"reviews/{part}/{label}")
        for i in range(10):
            text = "".join(random.choice(letter + "xyz") for _ in range(random.randint(8, 24)))
            open(f"reviews/{part}/{label}/{i}_1.txt", "w").write(text)
os.makedirs("papers")
for part in ("train", "eval", "test"):
    with open(f"papers/new_aan_pairs.{part}.tsv", "w") as f:
        for i in range(12):
            f.write(f"{i % 2}.0\tA\tB\t{'ab'[i % 2] * 9}\t{'a' * 7}\n")
P
"$program" train task=text task.path=reviews task.holdout=0.2 train.length=16 model.layers=1 model.width=16 mixer.heads=2 \
    model.position=rope model.causal=false train.steps=4 train.batch=4 out=texts --quiet >/dev/null
"$program" train task=documents task.path=papers train.length=16 model.layers=1 model.width=16 model.mixer=s4d \
    model.causal=false train.steps=4 train.batch=4 out=pairs --quiet >/dev/null
grep -q "^  head: match" pairs/config.yaml && grep -q "^  vocabulary: 256" pairs/config.yaml || fail "the head of pairs"
"$program" eval texts --json >test.json
"$program" eval texts task.split=validation --json >validation.json
"$program" eval pairs eval.samples=5 --json >pairs.json
python3 - <<'P'
import json
counts = [json.load(open(n + ".json"))["results"][0]["tokens"] for n in ("test", "validation", "pairs")]
assert counts == [20, 4, 5], counts
P
printf '7\tno label\n' >papers/new_aan_pairs.train.tsv
code=0
"$program" train task=documents task.path=papers out=bad >/dev/null 2>err.txt || code=$?
[ $code -eq 3 ] && grep -q "train.tsv, line 1: there must be 5 fields" err.txt || { cat err.txt >&2; fail "bad rows: $code"; }

# a study of a task: results, table and page speak of answers
cat >study.yaml <<'Y'
title: Induction at 8
seeds: [1, 2]
task: induction
task.vocabulary: 6
model: {layers: 1, width: 32, length: 8, feed_forward: false, norm: rms}
train: {steps: 60, batch: 8, lr: 5e-3, checkpoint_every: 0, log_every: 20}
eval: {lengths: [4, 8, 16], samples: 20}
arms:
  mamba: {model.mixer: mamba}
  rope: {model.position: rope, mixer.heads: 2, eval.lengths: [4, 8]}
  rope-pi: {from: rope, extend: interpolation, extend.factor: 2}
Y
"$program" study study.yaml check=true | grep -q "^mamba " || fail "check=true"
"$program" study study.yaml out=study --quiet >out.txt
grep -q "right answers" out.txt || fail "the table of the study"
python3 - <<'P'
import csv, json, math
study = json.load(open("study/results.json"))
arms = {a["name"]: a for a in study["arms"]}
assert study["trained_length"] == 8 and study["settings"]["task"] == "induction"
assert [r["length"] for r in arms["mamba"]["results"]] == [4, 8, 16]
assert [r["length"] for r in arms["rope"]["results"]] == [4, 8]
for a in arms.values():
    for r in a["results"]:
        each = [s["accuracy"] for s in r["seeds"]]
        assert len(each) == 2 and math.isclose(r["accuracy"], sum(each) / 2)
        assert r["accuracy_min"] == min(each) and r["accuracy_max"] == max(each)
        assert r["excess"] is None and r["protocol"] == "task"
rows = list(csv.DictReader(open("study/results.csv")))
flat = [r for a in study["arms"] for r in a["results"]]
assert [float(x["accuracy"]) for x in rows] == [r["accuracy"] for r in flat]
page = open("study/report.html").read()
assert "Right answers against length" in page and "trained at 8" in page and "Perplexity against" not in page
P

# wrong use
refuses() {
    words=$1
    shift
    code=0
    "$program" "$@" >/dev/null 2>err.txt || code=$?
    [ $code -eq 2 ] && grep -q "^longshot: .*$words" err.txt || { cat err.txt >&2; fail "$*: $code"; }
}
refuses "did you mean induction" train task=inductoin
refuses "task.vocabulary" train task=induction task.vocabluary=3
refuses "at least 3" train task=induction train.length=2
refuses "makes its own data" train task=induction data.corpus=corpus
refuses "is too small: task mqar" train task=mqar model.vocabulary=100
refuses "there is no key task.pairs" train task.pairs=3
refuses "asks for a class" train task=listops task.loss=all
refuses "model.head must be classify, not lm" train task=listops model.head=lm
refuses "model.head must be lm, not classify" train task=induction model.head=classify
refuses "has 10 classes" train task=listops model.classes=3
refuses "task.path=FOLDER" train task=text
refuses "model.head must be match, not classify" train task=documents model.head=classify
refuses "the length is one of these" train task=pathfinder train.length=1000
refuses "a classifier is an encoder by itself" train task=listops model.encoder_layers=1
refuses "does not predict its source" train task=reverse model.encoder_layers=1 model.position=rope task.loss=all
refuses "every sample of task reverse begins anew" train task=reverse model.encoder_layers=1 model.position=rope train.carry=96 out=carried
refuses "there are none" eval lists eval.lengths=1
refuses "knows no text" generate run
refuses "its own protocol" eval run eval.protocol=slide
refuses "at least 3" eval run eval.lengths=8,2
refuses "the model knows 6" eval run task.vocabulary=7
refuses "arm mamba: .*did you mean" study study.yaml task=inductoin
refuses "arms that train" study study.yaml arms.rope-pi.task=mqar
"$program" inspect tasks --json | python3 -c '
import json, sys
names = [t["name"] for t in json.load(sys.stdin)]
assert {"induction", "selective_copy", "associative_recall", "h3_induction", "mqar"} <= set(names), names
assert {"copy", "reverse", "retrieval", "passkey", "facts", "listops"} <= set(names), names'
