#!/bin/sh
# Of the arms that a sweep makes of one, validation chooses which has further seeds and is tested; and arms
# can be held to the same number of parameters.
set -u
program=$1
source=$2
. "$source/tests/scratch.sh"
write_text 4000
cat >s.yaml <<'Y'
seeds: [1, 2]
model: {layers: 1, width: 16, length: 32}
mixer: {heads: 2}
data: {corpus: text.txt, validation_share: 0.2, test_share: 0.2}
train: {steps: 20, batch: 2, validate_every: 10, validate_tokens: 256, warmup: 2}
eval: {lengths: [32, 64], tokens: 512}
sweep: {train.lr: [1e-6, 1e-2]}
sweep_keep: best
equal_parameters: 5
arms:
  rope: {model.position: rope}
  alibi: {model.position: alibi}
  rope-bca: {from: rope, extend: bca}
Y
"$program" study s.yaml check=true >check.txt 2>&1 || { cat check.txt; fail "check=true"; }
grep -q "^6 trainings and 6 evaluations" check.txt || { cat check.txt; fail "the cost counts what is not run"; }
"$program" study s.yaml jobs=2 --quiet >out.txt 2>&1 || { cat out.txt; fail "the study"; }
grep -q "rope-lr1e-6 .*not chosen: validation loss" out.txt || fail "the table does not say what was not chosen"
python3 - <<'P' || fail "results"
import json, os
r = json.load(open("runs/s/results.json"))
arms = {a["name"]: a for a in r["arms"]}
assert r["finished"] and len(arms) == 6
for base in ("rope", "alibi", "rope-bca"):
    bad, good = arms[base + "-lr1e-6"], arms[base + "-lr1e-2"]
    assert good["chosen"] and good["seeds"] == 2 and len(good["results"]) == 2, good
    assert bad["chosen"] is False and bad["seeds"] == 0 and bad["missing_seeds"] == [] and bad["trial_loss"] > good["trial_loss"]
# keys and values of one sequence: 16 channels of 4 bytes, twice
assert [row["state_bytes"] for row in arms["rope-lr1e-2"]["results"]] == [128 * 32, 128 * 64]
# the loss is that of the first seed's training, and nothing else was done for the others
said = json.load(open("runs/s/arms/rope-lr1e-2/seed-1/trained.json"))["said"]
assert arms["rope-lr1e-2"]["trial_loss"] == said["validation"]["loss"]
assert sorted(os.listdir("runs/s/arms/rope-lr1e-6")) == ["seed-1"] and not os.path.exists("runs/s/arms/rope-lr1e-6/seed-1/result.json")
P
cp runs/s/results.json whole.json
# cut after the first trainings, with another number of jobs: the same results; study.yaml is the study
rm -rf runs/s/arms/*/seed-2 runs/s/arms/alibi-lr1e-2 runs/s/arms/*/seed-1/result.json
"$program" study s.yaml jobs=1 --quiet >out.txt 2>&1 || fail "the study again"
sed '/"command"/d' whole.json >a.json
sed '/"command"/d' runs/s/results.json >b.json
cmp a.json b.json || fail "a study that was cut chose otherwise"
"$program" study runs/s/study.yaml out=runs/s --quiet >out.txt 2>&1 || { cat out.txt; fail "study.yaml is not the study"; }
"$program" report runs/s to=markdown >tables.md
grep -q "lr 1e-6" tables.md && fail "a table has an arm that was not chosen"
grep -v "^sweep:" s.yaml >plain.yaml
refused 2 "sweep_keep has no effect without sweep" study plain.yaml out=x
refused 2 "needs train.validate_every" study s.yaml train.validate_every=0 data.validation_share=0 out=x
refused 2 "arm alibi-lr1e-6 has .* parameters, .* more than the median" study s.yaml arms.alibi.model.hidden=90 out=x
refused 2 "equal_parameters allows 5" study s.yaml arms.alibi.model.hidden=90 out=x check=true
# arms that train on from another compete too; what is tested of them follows
cat >on.yaml <<'Y'
seeds: [1, 2]
model: {layers: 1, width: 16, length: 32, position: rope}
mixer: {heads: 2}
data: {corpus: text.txt, validation_share: 0.2, test_share: 0.2}
train: {steps: 10, batch: 2, validate_every: 10, validate_tokens: 256, warmup: 2, lr: 1e-2}
eval: {lengths: [32], tokens: 256}
arms:
  base: {label: base}
  low: {from: base, one_of: pi, train.steps: 10, train.lr: 1e-7, extend: interpolation, extend.factor: 2}
  high: {from: base, one_of: pi, train.steps: 10, extend: interpolation, extend.factor: 2}
  low-more: {from: low, extend: interpolation, extend.factor: 4}
  high-more: {from: high, extend: interpolation, extend.factor: 4}
Y
"$program" study on.yaml jobs=2 --quiet >out.txt 2>&1 || { cat out.txt; fail "a study of arms that train on"; }
python3 - <<'P' || fail "results of arms that train on"
import json, os
arms = {a["name"]: a for a in json.load(open("runs/on/results.json"))["arms"]}
assert [arms[n]["seeds"] for n in ("base", "low", "high", "low-more", "high-more")] == [2, 0, 2, 0, 2]
assert arms["low"]["chosen"] is False and arms["high"]["chosen"] and arms["low-more"]["chosen"] is False
assert arms["low"]["trial_loss"] > arms["high"]["trial_loss"] and "chosen" not in arms["base"]
assert os.listdir("runs/on/arms/low") == ["seed-1"]
P
refused 2 "one_of is no choice within another, that of arm base" study on.yaml arms.base.one_of=x out=x
refused 2 "one_of is for arms that train" study on.yaml arms.low-more.one_of=x out=x
exit $failures
