#!/bin/sh
# Runs that grow: more steps on a run that is done are the run that had them from the start, where the learning rate allows
# it; a run goes on by its folder; evaluations keep their own files.
# Tier: slow.
set -u
program=$(realpath "$1")
. "$(dirname "$0")/scratch.sh"
export OMP_NUM_THREADS=1
write_text 400
small="model.layers=1 model.width=16 mixer.heads=1 model.length=16 train.batch=2 train.warmup=4 train.lr=1e-2 train.log_every=4 data.corpus=text.txt --quiet"
train() { "$program" train "$@" >out.txt 2>err.txt; }
weights() { cat "$(ls -d "$1"/checkpoints/step-* | tail -1)/model.safetensors"; }

train $small train.schedule=constant train.steps=40 out=constant-long || fail "constant: $(cat err.txt)"
train $small train.schedule=constant train.steps=12 out=constant || fail "constant: $(cat err.txt)"
train constant train.steps=40 --quiet || fail "constant grows: $(cat err.txt)"
cmp -s constant/config.yaml constant-long/config.yaml || fail "the settings are not those of the longer run"
# wsd, stopped before its decay: 1600 of 2000 steps
"$program" train $small train.schedule=wsd train.steps=2000 out=wsd >/dev/null 2>&1 &
while [ ! -e wsd/metrics.jsonl ]; do sleep 0.05; done
kill -TERM $!
wait
reached=$(ls -d wsd/checkpoints/step-* | tail -1)
reached=$(echo "${reached#*step-}" | sed 's/^0*//')
if [ "$reached" -lt 1600 ]; then
    train wsd train.steps=2400 --quiet || fail "wsd grows: $(cat err.txt)"
    train $small train.schedule=wsd train.steps=2400 out=wsd-long || fail "wsd: $(cat err.txt)"
    weights wsd >a
    weights wsd-long >b
    cmp -s a b || fail "wsd: the weights are not those of the longer run"
fi
weights constant >a
weights constant-long >b
cmp -s a b || fail "constant: the weights are not those of the longer run"
python3 - <<'P' || fail "the metrics of a run that grew"
import json
rows = lambda run: [(r["step"], r["loss"], r["lr"]) for r in map(json.loads, open(run + "/metrics.jsonl"))]
assert rows("constant") == rows("constant-long")
P
"$program" eval constant eval.lengths=16 --quiet >/dev/null || fail "a run that grew cannot be measured"
train constant --quiet && grep -q "all 40 steps were done before" out.txt || fail "a run by its folder: $(cat err.txt)"
refused 2 "other settings" train constant train.steps=30
refused 2 "other settings: there .train.steps: 40., here .train.steps: 50" train constant train.steps=50 train.lr=2e-2
grep -q "steps: 40" constant/config.yaml || fail "a refusal changed the settings"

# a run that an older version began, which does not name what came later
mkdir older
sed '/label_smoothing/d; s/steps: 40/steps: 12/' constant/config.yaml >older/config.yaml
train older --quiet || fail "an older run: $(cat err.txt)"
grep -v label_smoothing constant/config.yaml >older.yaml
train older train.steps=40 --quiet || fail "an older run does not grow: $(cat err.txt)"
cmp -s older.yaml older/config.yaml || fail "the settings of an older run that grew are others"
weights older >a
weights constant-long >b
cmp -s a b || fail "an older run that grew: the weights are not those of the longer run"

# a rate that has begun to fall: the longer run would have been another
for schedule in polynomial cosine wsd; do
    train $small train.schedule=$schedule train.steps=20 out=done-$schedule || fail "$schedule: $(cat err.txt)"
    refused 2 "train.from=done-$schedule" train done-$schedule train.steps=40
    grep -q "steps: 20" done-$schedule/config.yaml || fail "$schedule: a refusal changed the settings"
    train done-$schedule --quiet || fail "$schedule: it does not stand as it was: $(cat err.txt)"
done
# settings by hand do not get round that
sed -i 's/  steps: 20/  steps: 40/' done-cosine/config.yaml
refused 2 "train.from=done-cosine" train done-cosine
# before it falls all may grow
train $small train.steps=4 train.warmup=8 out=warm || fail "warm-up"
train warm train.steps=20 --quiet || fail "in the warm-up: $(cat err.txt)"
train $small train.warmup=8 train.steps=20 out=warm-long || fail "warm-up"
weights warm >a
weights warm-long >b
cmp -s a b || fail "warm-up: the weights are not those of the longer run"
"$program" train nowhere >out.txt 2>err.txt && fail "a folder that is not there"
mkdir empty
"$program" train empty >out.txt 2>err.txt
[ $? = 3 ] && grep -q "no folder of a run" err.txt || fail "an empty folder: $(cat err.txt)"

# a second process is refused
"$program" train $small train.schedule=constant train.steps=100000 out=busy >/dev/null 2>&1 &
busy=$!
while [ ! -e busy/config.yaml ] && kill -0 $busy; do sleep 0.1; done
refused 2 "another longshot" train busy
kill -TERM $busy
wait $busy
[ $? = 75 ] || fail "the first process was disturbed"

# evaluations beside each other
for words in eval.lengths=16 eval.lengths=16,32 "eval.lengths=16 eval.tokens=64" "eval.lengths=16 data.test=text.txt" "eval.lengths=16 eval.protocol=slide"; do
    "$program" eval warm $words --quiet >/dev/null || fail "eval $words"
done
"$program" eval warm eval.lengths=16 --quiet >/dev/null # the same again is the same file
[ "$(ls warm/eval | wc -l)" = 5 ] || fail "files of evaluations: $(ls warm/eval)"
train warm train.steps=20 --quiet
"$program" eval "$(ls -d constant-long/checkpoints/step-* | tail -1)" eval.lengths=16 --quiet >/dev/null || fail "a checkpoint"
ls constant-long/eval | grep -q "^nonoverlap-16.*[.]json$" || fail "the file of a checkpoint: $(ls constant-long/eval)"
[ $failures = 0 ] && echo "test_growth: ok"
exit $failures
