#!/bin/sh
# Suites as measurements of a study: every arm is asked, results and page have them, the same bytes
# after a cut, keys that have no place. Tasks may be asked otherwise at test. Tier: slow
set -eu
program=$1
. "$2/tests/scratch.sh"
fail() { echo "FAILED: $*" >&2; exit 1; } # what follows rests on what went before
write_corpus 6
cat >ask.yaml <<'Y'
title: Suites
seeds: [1, 2]
model: {layers: 1, width: 16, length: 64}
mixer: {heads: 2}
train: {steps: 2, batch: 2}
data: {corpus: corpus, tokenizer: byte}
eval: {lengths: [64]}
suites: [needle, middle, needle:tall]
suite: {samples: 2, questions: 1, depths: 3, candidates: 4, lengths: [192, 256], pairs: [4, 8], tall.lengths: [192], resamples: 20}
arms:
  rope: {model.position: rope}
  alibi: {label: ALiBi, model.position: alibi, suites: needle, seeds: 1}
  longer: {from: rope, extend: interpolation, extend.factor: 2}
Y
"$program" study ask.yaml out=whole --quiet >out.txt
python3 - <<'P' || fail "results"
import json
arms = {a["name"]: a for a in json.load(open("whole/results.json"))["arms"]}
names = {n: [s["name"] for s in a["suites"]] for n, a in arms.items()}
assert names == {"rope": ["needle", "middle", "tall"], "alibi": ["needle"], "longer": ["needle", "middle", "tall"]}, names
needle, middle, tall = arms["rope"]["suites"]
assert needle["seeds"] == 2 and needle["chance"] == 0.25 and needle["suite"] == tall["suite"] == "needle"
assert len(needle["cells"]) == 6 and len(tall["cells"]) == 3 and len(middle["cells"]) == 6
assert needle["x"] == "length" and [r["length"] for r in needle["curve"]] == [192, 256]
assert middle["x"] == "position" and {r["group"] for r in middle["curve"]} == {"4 pairs", "8 pairs"}
# the numbers are those of the jobs: means over seeds, their range, and pooled over depths
said = [json.load(open(f"whole/arms/rope/seed-{s}/suite-needle.json"))["said"] for s in (1, 2)]
mean = lambda v: sum(v) / len(v)
assert abs(needle["score"] - mean([s["score"] for s in said])) < 1e-12
both = [s["score"] for s in said]
half = 12.7062047 * abs(both[0] - both[1]) / 2  # t of one degree of freedom times sd / sqrt(2)
near = lambda a, b: abs(a - b) < 1e-7
def wilson(share, n, z=1.959963984540054):
    middle = (share + z * z / (2 * n)) / (1 + z * z / n)
    half = z / (1 + z * z / n) * (share * (1 - share) / n + z * z / (4 * n * n)) ** 0.5
    return max(0, middle - half), min(1, middle + half)
assert needle["shares"] is True and needle["n"] == 12
least = wilson(mean(both), 2 * 12)  # seeds that agree are no surer than all their answers
assert near(needle["low"], max(0, min(least[0], mean(both) - half))), needle
assert near(needle["high"], min(1, max(least[1], mean(both) + half))), needle
assert all(row["low"] < row["high"] for s in (needle, middle, tall) for row in s["cells"] + s["curve"])
for i, cell in enumerate(needle["cells"]):
    assert cell["depth"] == said[0]["cells"][i]["depth"]
    assert abs(cell["score"] - mean([s["cells"][i]["score"] for s in said])) < 1e-12
at = [mean([c["score"] for c in s["cells"] if c["length"] == 256]) for s in said]
assert abs(needle["curve"][1]["score"] - mean(at)) < 1e-12 and needle["curve"][1]["n"] == 6
# one seed: the interval over questions
one = arms["alibi"]["suites"][0]
row = one["curve"][0]
assert one["seeds"] == 1 and row["low"] <= row["score"] <= row["high"] and row["low"] < row["high"]
page = open("whole/report.html").read()
for text in ("Suite needle", "needle: ALiBi", "chance", "Suite middle", "middle, 8 pairs", "Suite tall"):
    assert text in page, text
rows = open("whole/results.csv").read().splitlines()
assert sum(",needle,192," in r for r in rows) == 3 and len({r.count(",") for r in rows}) == 1
P
# the suite of a study is that of eval
"$program" eval whole/arms/rope/seed-1 suite=needle suite.samples=2 suite.questions=1 suite.depths=3 \
    suite.candidates=4 suite.lengths=192,256 suite.resamples=20 suite.out=alone --json >alone.json
python3 -c 'import json
said = json.load(open("whole/arms/rope/seed-1/suite-needle.json"))["said"]
assert said == json.load(open("alone.json"))' || fail "another suite than that of eval"
same() { # arms of two results.json; the command in them differs
    python3 -c 'import json, sys
one, two = (json.load(open(n)) for n in sys.argv[1:])
assert one["arms"] == two["arms"]' "$1" "$2"
}
# it goes on: nothing is asked twice, and a cut leaves no trace
cp whole/results.json before.json
"$program" study ask.yaml out=whole 2>err.txt >out.txt
grep -q "0 of" err.txt || fail "jobs were done again"
same before.json whole/results.json || fail "another result"
rm whole/arms/rope/seed-2/suite-middle.json
samples=$(ls -d whole/arms/rope/seed-2/middle-*)/samples.jsonl
head -c 900 "$samples" >part && mv part "$samples"
"$program" study ask.yaml out=whole --quiet >out.txt
cmp before.json whole/results.json || fail "a cut changed the results"
# other settings of one suite: it alone is asked again
"$program" study ask.yaml out=whole suite.tall.depths=2 2>err.txt >out.txt
grep -q "4 of 21 jobs" err.txt || { cat err.txt; fail "more was asked again"; }
"$program" report whole >out.txt
# a signal: what was asked is kept, and the end is the same
cat >slow.yaml <<'Y'
model: {layers: 1, width: 16, length: 64}
mixer: {heads: 2}
train: {steps: 2, batch: 2}
data: {corpus: corpus, tokenizer: byte}
eval: {lengths: [64]}
suites: [needle]
suite: {samples: 16, questions: 1, depths: 10, lengths: [512]}
arms: {rope: {model.position: rope}}
Y
"$program" study slow.yaml out=cut --quiet >out.txt 2>&1 &
job=$!
for i in $(seq 100); do
    [ "$(cat cut/arms/rope/seed-1/needle-*/samples.jsonl 2>/dev/null | wc -l)" -gt 3 ] && break
    sleep 0.1
done
kill -TERM $job
code=0
wait $job || code=$?
[ $code -eq 75 ] || [ $code -eq 0 ] || { cat out.txt; fail "stopped with $code"; }
"$program" study slow.yaml out=cut --quiet >out.txt
"$program" study slow.yaml out=uncut --quiet >out.txt
same cut/results.json uncut/results.json || fail "a signal changed the results"
# what a suite, or an evaluation, left behind is checked where it is read, and named
stored=uncut/arms/rope/seed-1
forged() { # FILE, CHANGE (of `said`), part of the sentence
    cp "$stored/$1" kept
    python3 -c 'import json, sys
path, change = sys.argv[1:]
result = json.load(open(path))
said = result["said"]
exec(change)
json.dump(result, open(path, "w"))' "$stored/$1" "$2"
    refused 3 "$1: $3" study slow.yaml out=uncut
    mv kept "$stored/$1"
}
forged suite-needle.json 'del said["form"]' ".form. must be a text"
forged suite-needle.json 'said["form"] = 3' ".form. must be a text"
forged suite-needle.json 'said["cells"][0]["n"] = -1' ".n. of cells must be a number from 0"
forged suite-needle.json 'said["cells"] = [5]' "cells must be an object"
forged suite-needle.json 'result["said"] = []' ".said. must be an object"
forged result.json 'said["results"][0]["length"] = -5' ".length. of results must be a number from 0"
forged result.json 'said["results"][0]["positions"]["loss"] = [1]' ".* must be a list as long as"
forged result.json 'result["cost"]["seconds"] = -1' ".seconds. of .cost. must be a number from 0"
forged trained.json 'said["parameters"] = -1' ".parameters. of .said. must be a number from 0"
# keys
refused 2 "no suite needel" study ask.yaml out=no suites=needel
refused 2 "suite.pairs has no effect on any" study ask.yaml out=no suites=needle
refused 2 "suite.documents has no effect on any" study ask.yaml out=no suites=needle,middle suite.documents=3
refused 2 "suite.pairs has no effect on any" study ask.yaml out=no suites=needle,middle suite.middle.path=x.jsonl suite.pairs=16
refused 2 "none of the suites has that name" study ask.yaml out=no suite.other.samples=2
refused 2 "is there twice" study ask.yaml out=no suites=needle,needle,middle,needle:tall
refused 2 "suite.out has no place" study ask.yaml out=no suite.out=x
refused 2 "no key suite.sampels" study ask.yaml out=no suite.sampels=2
refused 2 "has no effect without suites" study slow.yaml out=no suites= arms.rope.suite.samples=2
# a sentence about a long path, or word, says what is wrong
deep=$(printf 'folder/%.0s' $(seq 60))none.jsonl
sed '/^suite/d; /alibi:/d; /longer:/d; s/\[1, 2\]/[1]/' ask.yaml >deep.yaml
refused 3 "rope, seed 1, suite lambada: the evaluation failed: folder.*none.jsonl: No such file" \
    study deep.yaml out=deep suites=lambada suite.path=$deep
refused 2 "arm rope: there is no position method folder.*none.jsonl; there are .* t5" study deep.yaml out=no arms.rope.model.position=$deep

# ---- tasks asked otherwise at test ----
cat >task.yaml <<'Y'
model: {layers: 1, width: 16}
mixer: {heads: 2}
task: passkey
task.digits: 2
train: {steps: 2, batch: 2, length: 32}
eval: {lengths: [32, 64], samples: 8}
arms:
  rope: {model.position: rope}
  early: {from: rope, task.depth: 0}
  late: {from: rope, task.depth: 1}
Y
"$program" study task.yaml out=task --quiet >out.txt
"$program" eval task/arms/rope/seed-1 task.depth=1 eval.lengths=32,64 eval.samples=8 --json >late.json
python3 - <<'P' || fail "task at test"
import json
arms = {a["name"]: a["results"] for a in json.load(open("task/results.json"))["arms"]}
late = json.load(open("late.json"))["results"]
assert [r["loss"] for r in arms["late"]] == [r["loss"] for r in late]
assert arms["early"][0]["loss"] != arms["late"][0]["loss"] != arms["rope"][0]["loss"]
P
refused 2 "asks a language model" study task.yaml out=no suites=needle
refused 2 "no key task.deptt" study task.yaml out=no arms.late.task.deptt=1
refused 2 "tokens are more than the model has" study task.yaml out=no arms.late.task.filler=99
refused 2 "no task was trained" study slow.yaml out=no arms.a.from=rope arms.a.task.depth=1
[ $failures -eq 0 ]
