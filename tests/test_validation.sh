#!/bin/sh
# Documents for training, validation and test by their paths; validation loss, the best checkpoint, early stopping; all of it
# the same after an interruption.
# Tier: slow.
set -u
program=$(realpath "$1")
. "$(dirname "$0")/scratch.sh"
export OMP_NUM_THREADS=1
write_text 2000
awk 'BEGIN { for (i = 0; i < 200; i++) print "row " 7 * i " of other things" }' >other.txt
small="model.layers=1 model.width=16 mixer.heads=1 model.length=16 train.batch=4 train.warmup=2 train.lr=1e-2 --quiet"
train() { "$program" train $small "$@" >out.txt 2>err.txt; }

# paths: whole, and scored whole
train data.train=0.5*text.txt,0.5*other.txt data.test=other.txt train.steps=4 out=mix || fail "a mixture: $(cat err.txt)"
"$program" eval mix eval.lengths=16 --json >own.json 2>/dev/null || fail "its own test"
"$program" eval mix eval.lengths=16 data.test=text.txt,other.txt --json >two.json 2>err.txt || fail "two files"
grep -q "trained on" err.txt || fail "what was trained on is scored without a word"
python3 - <<'P' || fail "what is scored"
import json, os
own, two = json.load(open("own.json")), json.load(open("two.json"))
n, m = os.path.getsize("other.txt"), os.path.getsize("text.txt")
assert own["results"][0]["tokens"] == n - 1, own["results"][0]["tokens"]
assert two["results"][0]["tokens"] == n + m - 2 and two["results"][0]["documents"] == 2
assert own["corpus"] == "other.txt" and two["corpus"] == "text.txt,other.txt"
P
train data.train=text.txt train.steps=2 out=bare || fail "no test: $(cat err.txt)"
refused 3 "data.test=PATH" eval bare eval.lengths=16
"$program" eval bare eval.lengths=16 data.test=other.txt >/dev/null 2>&1 || fail "a test file for a run without one"
mv text.txt away.txt
"$program" eval bare eval.lengths=16 data.test=other.txt >/dev/null 2>&1 || fail "a test needs the training text"
mv away.txt text.txt
refused 2 "no effect" train $small data.train=text.txt data.corpus=other.txt out=x
refused 2 "no effect" train $small data.train=text.txt data.test_share=0.2 out=x
refused 2 "or none" train $small data.train=0.5*text.txt,other.txt out=x
refused 2 "no effect without train.validate_every" train $small data.train=text.txt data.validation=other.txt out=x
refused 2 "needs documents" train $small data.train=text.txt train.validate_every=2 out=x
refused 2 "never reached" train $small data.train=text.txt data.validation=other.txt train.validate_every=9 train.steps=8 out=x
refused 2 "needs" train $small data.train=text.txt train.patience=2 out=x
refused 3 "nowhere" train $small data.train=text.txt,nowhere.txt out=x
refused 2 "for training" eval bare data.train=other.txt

# a validation that soon gets worse: other text is trained on, with a rate that is too high
worse="data.train=other.txt data.validation=text.txt train.validate_every=5 train.validate_tokens=800 train.steps=200 train.log_every=7 train.checkpoint_every=15"
train $worse train.patience=3 out=whole || fail "early stopping: $(cat err.txt)"
grep -q "lowest validation loss" out.txt || fail "the result does not name the best: $(cat out.txt)"
"$program" train $small $worse train.patience=3 out=cut >/dev/null 2>&1 &
sleep 0.15
kill -TERM $! 2>/dev/null
wait
train $worse train.patience=3 out=cut || fail "going on: $(cat err.txt)"
python3 - <<'P' || fail "the best and the end"
import glob, json
rows = [json.loads(l) for l in open("whole/metrics.jsonl")]
seen = [(r["validation_loss"], r["step"]) for r in rows if "validation_loss" in r]
least = min(seen)
assert [s for _, s in seen] == list(range(5, seen[-1][1] + 1, 5))
assert seen[-1][1] < 200 and seen[-1][1] - least[1] == 15, (seen[-1], least)   # three in vain
assert glob.glob("whole/checkpoints/best-*") == ["whole/checkpoints/best-%08d" % least[1]]
head, *lines = open("whole/metrics.csv").read().splitlines()
assert head.endswith(",validation_loss")
assert sum(not l.endswith(",") for l in lines) == len(seen)
cut = [json.loads(l) for l in open("cut/metrics.jsonl")]
def plain(rows): return [{k: v for k, v in r.items() if k not in ("seconds", "tokens_per_second", "peak_share")} for r in rows]
assert plain(cut) == plain(rows)
def same(pattern):
    a, b = glob.glob("whole/checkpoints/" + pattern), glob.glob("cut/checkpoints/" + pattern)
    return a and [p.split("/")[-2:] for p in a] == [p.split("/")[-2:] for p in b] and all(open(p, "rb").read() == open(q, "rb").read() for p, q in zip(a, b))
assert same("best-*/model.safetensors")
last = "step-%08d/model.safetensors" % seen[-1][1]
assert same(last)
events = glob.glob("whole/events.out.tfevents.*")
assert any(b"validation/loss" in open(e, "rb").read() for e in events)
P
train $worse train.patience=3 out=whole && grep -q "done before" out.txt || fail "an early end is no end: $(cat out.txt)"
train $worse train.patience=3 train.select=last out=last || fail "train.select=last"
"$program" eval last eval.lengths=16 data.test=text.txt --json >last.json 2>/dev/null
"$program" eval whole eval.lengths=16 data.test=text.txt --json >best.json 2>/dev/null
python3 - <<'P' || fail "which checkpoint stands for the run"
import glob, json
best, last = (json.load(open(n)) for n in ("best.json", "last.json"))
assert best["step"] == int(glob.glob("whole/checkpoints/best-*")[0][-8:]) < last["step"], (best["step"], last["step"])
assert best["results"][0]["loss"] < last["results"][0]["loss"]
P
# damage is named, and no other weights are measured in its place
best=$(ls -d whole/checkpoints/best-*)
cp -r "$best" keep
printf x >>"$best/model.safetensors"
refused 3 "$best" eval whole eval.lengths=16 data.test=text.txt
rm -r "$best"
mv keep "$best"
step=$(ls -d last/checkpoints/step-* | tail -1)
sed -i 's/"stale": [0-9]*/"stale": 0/' "$step/state.json"
"$program" train ${small% --quiet} $worse train.patience=3 train.select=last out=last >/dev/null 2>err.txt
grep -q "state.json is damaged" err.txt || fail "a damaged state.json is believed: $(cat err.txt)"

# a task has samples of its own for it
train task=copy train.steps=4 train.validate_every=2 train.validate_tokens=64 out=task || fail "a task: $(cat err.txt)"
grep -c validation_loss task/metrics.jsonl | grep -qx 2 || fail "a task's validation"

# near duplicates are named
mkdir corpus held
for i in 1 2 3; do awk -v i=$i 'BEGIN { srand(i); for (l = 0; l < 200; l++) print "line " int(1e6 * rand()) " of " i }' >corpus/$i.txt; done
cp corpus/2.txt held/copy.txt
awk 'BEGIN { srand(9); for (l = 0; l < 200; l++) print "line " int(1e6 * rand()) " of 9" }' >held/new.txt
"$program" data data.train=corpus data.test=held >out.txt 2>/dev/null || fail "data"
grep -q "100.0% of copy.txt (test), most in 2.txt" out.txt || fail "a copy is not named: $(tail -3 out.txt)"
grep -q "1 of 2 held-out" out.txt || fail "what is new is named: $(tail -3 out.txt)"

# and with data.duplicates=remove they are not held out
mkdir twice
for i in 1 2 3 4 5 6 7 8; do
    awk -v i=$i 'BEGIN { srand(i); for (l = 0; l < 99; l++) print "line " int(1e6 * rand()) }' >twice/$i.txt
    [ $i -gt 6 ] || cp twice/$i.txt twice/$i-again.txt
done
for how in keep remove; do
    "$program" data data.corpus=twice data.test_share=0.3 data.duplicates=$how >$how.txt 2>err.txt || fail "data: $(cat err.txt)"
done
grep -q "half or more of [1-9]" keep.txt || fail "copies are not named: $(tail -3 keep.txt)"
grep -q "half or more of 0 of" remove.txt || fail "copies are held out: $(tail -3 remove.txt)"
"$program" data data.train=corpus data.test=held data.duplicates=remove >out.txt 2>&1 && fail "a test of one's own is cut"
grep -q "data.duplicates" out.txt || fail "the key is not named: $(cat out.txt)"
[ $failures = 0 ] && echo "test_validation: ok"
exit $failures
