#!/bin/sh
# Sweeps: arms from lists of values, the arm that validation chooses, the cost before anything runs.
# Tier: slow.
set -u
program=$(realpath "$1")
. "$(dirname "$0")/scratch.sh"
export OMP_NUM_THREADS=1
write_text 400
study() { "$program" study "$@" >out.txt 2>err.txt; }
cat >sweep.yaml <<'Y'
model: {layers: 1, width: 16, length: 16}
data: {corpus: text.txt, validation_share: 0.2}
train: {steps: 12, batch: 2, warmup: 2, validate_every: 4, validate_tokens: 200}
eval: {lengths: [16], tokens: 128}
seeds: [1, 2]
sweep: {train.lr: [1e-3, 3e-2], model.mixer: [retnet, attention]}
Y
study sweep.yaml check=true || fail "check: $(cat err.txt)"
awk 'NR > 1 && NF == 8 { print $1 }' out.txt | tr '\n' ' ' | grep -qx "lr1e-3-retnet lr1e-3-attention lr3e-2-retnet lr3e-2-attention " ||
    fail "the arms: $(cat out.txt)"
grep -q "^8 trainings and 8 evaluations" out.txt || fail "the number of runs: $(cat out.txt)"
grep -q "take about [0-9.e+-]* s" out.txt || fail "the time: $(cat out.txt)"
[ ! -e runs ] || fail "check left a folder behind"

study sweep.yaml jobs=2 || fail "the study: $(cat err.txt)"
python3 - <<'P' || fail "results"
import glob, json
results = json.load(open("runs/sweep/results.json"))
arms = {a["name"]: a for a in results["arms"]}
assert len(arms) == 4 and arms["lr3e-2-retnet"]["label"] == "lr 3e-2, retnet"
for name, arm in arms.items():   # the mean over seeds of what the metrics have as the lowest
    least = []
    for seed in (1, 2):
        rows = map(json.loads, open("runs/sweep/arms/%s/seed-%d/metrics.jsonl" % (name, seed)))
        least.append(min(r["validation_loss"] for r in rows if "validation_loss" in r))
    assert abs(arm["validation_loss"] - sum(least) / 2) < 1e-8 * abs(sum(least)), (name, least)
    assert len(glob.glob("runs/sweep/arms/%s/seed-1/checkpoints/best-*" % name)) == 1
best = min(arms, key=lambda n: arms[n]["validation_loss"])
assert results["best_arm"] == best and best.startswith("lr3e-2"), (best, results["best_arm"])
P
best=$(python3 -c 'import json; print(json.load(open("runs/sweep/results.json"))["best_arm"])')
grep -q "lowest validation loss: $best," out.txt || fail "the summary does not name the best: $(cat out.txt)"
grep -q "Validation loss" runs/sweep/report.html || fail "the page has no curve of the validation loss"
cp runs/sweep/results.json first.json
study sweep.yaml jobs=2 && cmp -s first.json runs/sweep/results.json || fail "the same command does not give the same"
study runs/sweep/study.yaml out=runs/again check=true || fail "study.yaml is no study: $(cat err.txt)"
grep -q "^lr3e-2-attention " out.txt || fail "study.yaml has other arms: $(cat out.txt)"

# zip, values with commas, arms that are swept, arms that follow them
study sweep.yaml sweep_by=zip check=true seeds=1 || fail "zip: $(cat err.txt)"
grep -q "^2 trainings" out.txt && grep -q "^lr1e-3-retnet" out.txt && grep -q "^lr3e-2-attention" out.txt || fail "zip: $(cat out.txt)"
cat >arms.yaml <<'Y'
model: {layers: 2, width: 16, length: 16}
data: {corpus: text.txt}
train: {steps: 2, batch: 2}
eval: {lengths: [16], tokens: 128}
sweep: {train.batch: [1, 2], extend.factor: [2, 4]}
arms:
  rope: {label: RoPE, model.position: rope}
  yarn: {from: rope, extend: yarn}
Y
study arms.yaml check=true || fail "arms: $(cat err.txt)"
grep -q "^4 trainings and 8 evaluations" out.txt && grep -q "^yarn-batch2-factor4 " out.txt || fail "arms: $(cat out.txt)"
study sweep.yaml check=true seeds=1 'sweep.model.layers=1;2' sweep.train.lr=1e-3 || fail "a list of lists: $(cat err.txt)"
grep -q "^lr1e-3-retnet-layers2 " out.txt || fail "values: $(cat out.txt)"

# on the command line
small="model.layers=1 model.width=16 model.length=16 data.corpus=text.txt train.batch=2 eval.tokens=128 --quiet"
"$program" train $small train.steps=2 -m train.lr=1e-3,2e-3 -m train.warmup=1,2 seed=3 jobs=2 >out.txt 2>err.txt || fail "-m: $(cat err.txt)"
[ "$(ls runs/sweep-lr-warmup/arms | tr '\n' ' ')" = "lr1e-3-warmup1 lr1e-3-warmup2 lr2e-3-warmup1 lr2e-3-warmup2 " ] || fail "-m: $(ls runs)"
[ -d runs/sweep-lr-warmup/arms/lr1e-3-warmup1/seed-3 ] || fail "-m: the seed"
grep -q "no arm is chosen" out.txt || fail "nothing says how the best would be found"

refused 2 "-m stands before" train $small -m
refused 2 "-m stands before" train $small -m train.lr
refused 2 "there is no flag" eval -m eval.lengths=1,2
refused 2 "listed twice" study sweep.yaml sweep.train.lr=1e-3,1e-3
refused 2 "value is missing" study sweep.yaml sweep.train.lr=1e-3,
refused 2 "zip" study sweep.yaml sweep_by=zip sweep.train.lr=1,2,3
refused 2 "train.lrr" study sweep.yaml sweep.train.lrr=1,2
refused 2 "which is swept" study arms.yaml arms.rope.train.batch=3
refused 2 "acts at test time" study sweep.yaml sweep.extend.factor=1,2
refused 2 "two arms the name" study sweep.yaml sweep.data.text_key=a.b,a_b
refused 2 "combinations" study sweep.yaml "sweep.train.seed=$(seq -s, 1 70)" "sweep.train.steps=$(seq -s, 1 70)"
refused 2 "no effect without sweep" study runs/sweep/study.yaml sweep_by=zip
[ $failures = 0 ] && echo "test_sweep: ok"
exit $failures
