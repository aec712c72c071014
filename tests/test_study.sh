#!/bin/sh
# Studies: complete results, the same bytes however they were cut, pages made again, failures.
# Tier: slow.
set -eu
program=$1
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
cd "$scratch"
export XDG_CACHE_HOME="$scratch/cache" GOMP_SPINCOUNT=100
fail() { echo "FAILED: $*" >&2; exit 1; }

mkdir corpus
for d in 1 2 3 4 5 6; do
    i=0
    while [ $i -lt 100 ]; do
        echo "document $d, line $i: what follows is much like what came before"
        i=$((i + 1))
    done >corpus/$d.txt
done
cat >tiny.yaml <<'Y'
title: A study of <tests> & "quotes"
about: Nothing is learnt here.
seeds: [1, 2]
model: {layers: 1, width: 16, length: 16}
mixer: {heads: 2}
data: {corpus: corpus}
train: {steps: 60, batch: 4, log_every: 20, checkpoint_every: 10, lr: 1e-3}
eval: {protocol: "nonoverlap,slide", lengths: [8, 16, 64], tokens: 512, resolution: true, resolution_tokens: 128}
arms:
  rope: {label: "RoPE <b>", model.position: rope}
  alibi: {model.position: alibi, train.steps: 40, seeds: [3]}
  rope-bca: {from: rope, extend: bca}
  rope-yarn:
    from: rope
    extend: yarn
    extend.factor: 2
Y

# undisturbed
"$program" study tiny.yaml out=whole --quiet >out.txt
grep -q "whole/report.html" out.txt || fail "the page is not named"
for file in study.yaml results.json timing.json results.csv report.html arms/rope/seed-1/config.yaml \
    arms/rope-bca/seed-2/result.json arms/alibi/seed-3/trained.json; do
    [ -e whole/$file ] || fail "no $file"
done
cp whole/results.json first.json
find whole/arms -name '*.json' -exec stat -c '%n %Y %i' {} + | sort >before.txt
"$program" study tiny.yaml out=whole --quiet >/dev/null
find whole/arms -name '*.json' -exec stat -c '%n %Y %i' {} + | sort >after.txt
cmp before.txt after.txt || fail "finished jobs were done again"
cmp first.json whole/results.json || fail "a second call changed the results"

# every number that was asked for, the same in the table as in results.json
python3 - <<'P'
import csv, json, math
study = json.load(open("whole/results.json"))
timing = json.load(open("whole/timing.json"))
arms = {a["name"]: a for a in study["arms"]}
assert list(arms) == ["rope", "alibi", "rope-bca", "rope-yarn"], list(arms)
assert study["finished"] and study["trained_length"] == 16 and study["title"].startswith("A study of <tests>")
assert study["command"].startswith("longshot study tiny.yaml out=whole")
assert study["settings"]["train.batch"] == "4" and study["machine"]["cpu"]
for name, a in arms.items():
    assert a["parameters"] > 0 and a["missing_seeds"] == []
    assert a["tokens_trained"] == (40 if name == "alibi" else 60) * 4 * 16
    assert a["seeds"] == (1 if name == "alibi" else 2)
    got = [(r["protocol"], r["length"]) for r in a["results"]]
    assert got == [(p, l) for p in ("nonoverlap", "slide") for l in (8, 16, 64)], got
    for r in a["results"]:
        assert r["tokens"] > 0 and math.isclose(r["ppl"], math.exp(r["loss"]), rel_tol=1e-12)
        losses = [s["loss"] for s in r["seeds"]]
        assert len(losses) == r["n"] == a["seeds"]
        assert math.isclose(r["loss"], sum(losses) / len(losses), rel_tol=1e-12)
        assert r["loss_min"] == min(losses) and r["loss_max"] == max(losses)
        if len(losses) == 2:
            assert math.isclose(r["loss_sd"], abs(losses[0] - losses[1]) / math.sqrt(2), rel_tol=1e-9)
        else:
            assert r["loss_sd"] is None
        assert r["excess"] is not None or r["length"] < 16, (name, r)
        own = json.load(open(f"whole/arms/{name}/seed-{r['seeds'][0]['seed']}/result.json"))["said"]["results"]
        assert any(o["loss"] == losses[0] and o["length"] == r["length"] for o in own)
    assert [r["length"] for r in a["resolution"]] == [8, 16, 64]
    for r in a["resolution"]:
        own = [next(o for o in json.load(open(f"whole/arms/{name}/seed-{s['seed']}/result.json"))["said"]["resolution"]
                    if o["length"] == r["length"]) for s in a["results"][0]["seeds"]]
        mean = lambda lists: [sum(v) / len(v) for v in zip(*lists)]
        same = lambda got, want: len(got) == len(want) and all(math.isclose(g, w, rel_tol=1e-9, abs_tol=1e-12) for g, w in zip(got, want))
        assert same(r["by_layer"]["R"], mean(o["by_layer"] for o in own)) and same(r["by_layer"]["O"], mean(o["O_by_layer"] for o in own))
        assert r["by_layer"]["layer"] == list(range(1, len(own[0]["by_layer"]) + 1))
        assert r["scores"]["distance"] == own[0]["scores"]["distance"] and r["scores"]["distance"][0] == 0
        assert same(r["scores"]["score"], mean(o["scores"]["score"] for o in own)) and r["scores"]["score"][0] == 0
        assert ("expected" in r["scores"]) == (name != "alibi") and all((v is None) == (len(own) == 1) for v in r["scores"]["score_sd"])
        assert 0 <= r["O_layer"] <= 1 and math.isclose(r["O_layer"], sum(o["O_layer"] for o in own) / len(own), rel_tol=1e-9)
    assert [p["length"] for p in a["positions"]] == [64, 64]
assert arms["rope-bca"]["from"] == "rope" and arms["rope"]["from"] is None
at = lambda n: [r["loss"] for r in arms[n]["results"] if r["length"] == 64]
assert at("rope") != at("rope-bca") != at("rope-yarn")
rows = list(csv.DictReader(open("whole/results.csv")))
assert len(rows) == 4 * 6
flat = [(a, r) for a in study["arms"] for r in a["results"]]
for row, (a, r) in zip(rows, flat):
    assert row["arm"] == a["name"] and row["label"] == a["label"] and row["protocol"] == r["protocol"]
    R = next(x for x in a["resolution"] if x["length"] == r["length"])
    for key, value in row.items():
        source = r if key in r else R if key in R else None
        if source is None or isinstance(source[key], str): continue
        assert (float(value) if value else None) == source[key], (key, value, source[key])
assert [a["name"] for a in timing["arms"]] == list(arms)
assert all(r["tokens_per_second"] > 0 and r["bytes"] > 0 for a in timing["arms"] for r in a["results"])
P

# the page and the table come from the folder alone, byte for byte
mkdir moved
cp whole/results.json whole/timing.json moved
"$program" report moved >/dev/null
cmp whole/report.html moved/report.html || fail "the page is not the same"
cmp whole/results.csv moved/results.csv || fail "the table is not the same"

# killed hard at random moments, and asked to stop, then run again: the same results
for how in KILL KILL TERM; do
    "$program" study tiny.yaml out=whole.cut --quiet >/dev/null 2>&1 &
    child=$!
    sleep "$(awk -v seed="$$$how$(date +%N)" 'BEGIN { srand(seed % 1000003); print 0.2 + 1.2 * rand() }')"
    kill -$how $child 2>/dev/null || :
    code=0
    wait $child 2>/dev/null || code=$?
    [ $how != TERM ] || [ $code -eq 75 ] || [ $code -eq 0 ] || fail "SIGTERM left with $code"
done
"$program" study tiny.yaml out=whole.cut --quiet >/dev/null
sed 's/out=whole\.cut/out=whole/' whole.cut/results.json | cmp - first.json || fail "a cut study has other results"

# more threads at once than there are processors: that is said, and others are not bothered with it
"$program" study tiny.yaml out=crowd seeds=1 train.steps=2 jobs=$(($(env -u OMP_NUM_THREADS nproc) + 1)) threads=1 >/dev/null 2>err.txt || fail "many jobs: $(cat err.txt)"
grep -q "^[0-9]* threads at once on [0-9]* processors: they wait for one another; jobs= and threads= say" err.txt || fail "many threads are not said: $(cat err.txt)"
"$program" study tiny.yaml out=quiet seeds=1 train.steps=2 jobs=1 threads=1 >/dev/null 2>err.txt || fail "one job: $(cat err.txt)"
! grep -q "at once on" err.txt || fail "one thread is too many"

# what was written is itself a study
"$program" study whole/study.yaml out=again check=true | grep -q "^rope-yarn" || fail "study.yaml is not a study"
# times of long trainings are plain numbers
"$program" study whole/study.yaml out=again check=true train.steps=100000000000 >check.txt || fail "check=true"
grep -q "the trainings take about [0-9]* hours" check.txt && ! grep -q 'e+' check.txt || fail "$(cat check.txt)"

# an arm that fails is told in a sentence and does not take the others along
code=0
nowhere="nowhere, one, of, many, names, so, that, the, sentence, is, longer, than, its, line, in, the, log"
"$program" study tiny.yaml out=part "arms.bad.data.corpus=$nowhere" \
    arms.bad-bca.from=bad arms.bad-bca.extend=bca seeds=1 \
    train.steps=2 >/dev/null 2>err.txt || code=$?
[ $code -eq 3 ] || fail "a failed arm left with $code"
sed -e :a -e '$!N; s/\n \{12\}/ /; ta' -e 'P; D' err.txt >said.txt # without its breaks
grep -q "^longshot: bad, seed 1: the training failed: the corpus $nowhere: No such file" said.txt ||
    fail "the failed arm is not named: $(cat err.txt)"
python3 - <<'P'
import json
arms = {a["name"]: a for a in json.load(open("part/results.json"))["arms"]}
assert arms["bad"]["missing_seeds"] == [1] and arms["bad"]["results"] == []
assert arms["bad-bca"]["missing_seeds"] == [1]
assert len(arms["rope"]["results"]) == 6
P
grep -q "results are missing" part/report.html || fail "the page hides what is missing"

# other settings on the same folder: training refuses
code=0
"$program" study tiny.yaml out=whole train.lr=2e-3 >/dev/null 2>err.txt || code=$?
[ $code -eq 2 ] && grep -q "lr" err.txt || fail "other settings were not refused"

# wrong use
refuses() {
    words=$1
    shift
    code=0
    "$program" study "$@" >/dev/null 2>err.txt || code=$?
    [ $code -eq 2 ] && grep -q "^longshot: .*$words" err.txt || { cat err.txt >&2; fail "study $*: $code"; }
}
refuses "say which study"
refuses "did you mean train.steps" tiny.yaml train.stesp=3
refuses "did you mean title" tiny.yaml titel=x
refuses "arm rope: .*did you mean model.position" tiny.yaml arms.rope.model.positon=rope
refuses "did you mean from" tiny.yaml arms.rope-bca.form=rope
refuses "did you mean eval.lengths" tiny.yaml eval.length=3
refuses "no such arm" tiny.yaml arms.x.from=nothing
refuses "arms that train" tiny.yaml arms.rope-bca.train.lr=3
refuses "in the end" tiny.yaml arms.x.from=y arms.x.train.steps=1 arms.y.from=x arms.y.train.steps=1
refuses "has no seed 9" tiny.yaml arms.x.from=rope arms.x.train.steps=1 arms.x.seeds=9
refuses "mixer.heads is for training" tiny.yaml arms.rope-bca.mixer.heads=1
refuses "does not train itself" tiny.yaml arms.x.from=rope-bca
refuses "given twice" tiny.yaml seeds=1,1
refuses "made of a-z" tiny.yaml arms..from=rope
# an arm with nothing of its own is one, also where the folder tells of it
cat >plain.yaml <<'Y'
model: {layers: 1, width: 16, length: 16}
data: {corpus: corpus}
train: {steps: 1, batch: 2}
eval: {lengths: [16], tokens: 64}
arms:
  plain: {}
  fast: {train.lr: 1e-2}
  bare:
Y
"$program" study plain.yaml out=plain --quiet >/dev/null || fail "arms with nothing of their own"
"$program" inspect plain >inspected.txt
for arm in plain fast bare; do
    grep -q "\"name\": \"$arm\"" plain/results.json && grep -q "^$arm (1 seed done)" inspected.txt || fail "arm $arm is lost"
done
printf 'seeds: [1]\n' >none.yaml
refuses "needs arms" none.yaml
code=0
"$program" report corpus 2>err.txt || code=$?
[ $code -eq 3 ] || fail "a folder without results left with $code"

# names of any length leave the columns of both tables below each other
cat >names.yaml <<'Y'
model: {layers: 1, width: 16, length: 16}
mixer: {heads: 2}
data: {corpus: corpus}
train: {steps: 1, batch: 2}
eval: {lengths: [8, 16], tokens: 64}
arms:
  a: {}
  an-arm-whose-name-is-longer-than-others: {model.position: alibi}
Y
"$program" study names.yaml check=true >check.txt
"$program" study names.yaml out=names --quiet >out.txt
python3 - <<'P'
import re
def ends(line, count):  # where the first numbers of a line end
    return [m.end() for m in re.finditer(r" +[-+]?[0-9.]+", line)][:count]
for file, head, count in (("check.txt", "arm ", 3), ("out.txt", "nonoverlap ", 4)):
    lines = open(file).read().splitlines()
    at = next(i for i, line in enumerate(lines) if line.startswith(head))
    rows = [line for line in lines[at + 1:at + 3]]
    assert rows[0].startswith("a ") and rows[1].startswith("an-arm-"), rows
    first, second = (ends(re.sub(r"^\S+", lambda m: "x" * len(m[0]), row), count) for row in rows)
    assert len(first) == count and first == second, rows
    heads = [m.end() for m in re.finditer(r"[^ ,]+(, [^ ]+)?", lines[at])][1:]
    assert heads[0] == (first[0] if file == "check.txt" else first[1]), (lines[at], rows)
P
