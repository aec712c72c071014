#!/bin/sh
# What is damaged, edited or hostile is named and never taken for good: token files that change under a training,
# weights that are not finite, rejected last steps, edited settings, names that steer a terminal or a spreadsheet.
# Tier: slow.
set -u
program=$(realpath "$1")
. "$(dirname "$0")/scratch.sh"
export OMP_NUM_THREADS=2
write_text 4000
recipe="model.layers=1 model.width=16 mixer.heads=2 model.length=16 data.corpus=text.txt train.batch=2 --quiet"

# a token file that is cut or overwritten while a training reads it: named, exit 3, no signal
change_tokens() { # WHAT COMMAND
    rm -rf run cache
    timeout 60 "$program" train $recipe train.steps=1000000 train.checkpoint_every=50 out=run >out.txt 2>err.txt &
    job=$!
    while kill -0 $job 2>/dev/null && ! ls run/checkpoints/*/manifest.json >/dev/null 2>&1; do sleep 0.1; done
    file=$(ls cache/longshot/*-train.tokens)
    eval "$2"
    wait $job
    code=$?
    [ $code -eq 3 ] || fail "$1: left with $code: $(cat err.txt)"
    grep -q "$(basename "$file")" err.txt || fail "$1: $(cat err.txt)"
    ls run/checkpoints/*/manifest.json >/dev/null || fail "$1: no checkpoint is left"
}
change_tokens "a cut token file" 'truncate -s 1000 "$file"'
change_tokens "an overwritten token file" \
    'dd if=/dev/zero of="$file" bs=1000 seek=1 count=400 conv=notrunc 2>/dev/null'

# what killed processes left in the cache, in a run and in a study is cleared; what is in use is not
rm -rf run cache
mkdir -p cache/longshot run/checkpoints/step-00000009.tmp
: >cache/longshot/0123456789abcdef-train.tokens.4711-0.tmp
mkdir cache/longshot/bpe-0123456789abcdef-300.4711-0.tmp
: >cache/longshot/held-test.tokens.4712-0.tmp
: >cache/longshot/foreign.tmp
: >run/config.yaml.tmp
flock --no-fork cache/longshot/held-test.tokens.4712-0.tmp sleep 60 >/dev/null 2>&1 &
holder=$!
"$program" train $recipe train.steps=2 out=run >/dev/null 2>&1 || fail "a training"
left=$(find cache run -name '*.tmp' | sort | tr '\n' ' ')
[ "$left" = "cache/longshot/foreign.tmp cache/longshot/held-test.tokens.4712-0.tmp " ] || fail "left behind: $left"
kill $holder

# metrics that lost rows: said when the run goes on
loud=$(echo "$recipe" | sed 's/ --quiet//')
train_a_while() {
    "$program" train $loud train.steps=1000000 train.log_every=5 train.checkpoint_every=50 out=rows >out.txt 2>err.txt &
    job=$!
    seen=$(ls rows/checkpoints 2>/dev/null | tail -n 1)
    while kill -0 $job 2>/dev/null && [ "$(ls rows/checkpoints 2>/dev/null | grep -v tmp | tail -n 1)" = "$seen" ]; do
        sleep 0.1
    done
    kill -TERM $job
    wait $job
    code=$?
    [ $code -eq 75 ] || fail "a training that was stopped left with $code"
}
train_a_while
train_a_while
! grep -q "are lost" err.txt || fail "rows were said to be lost: $(grep "are lost" err.txt)"
sed -i '4s/.*/damaged/' rows/metrics.jsonl
train_a_while
grep -q "rows/metrics.jsonl .*rows of steps 16 to [0-9]* are lost" err.txt || fail "lost rows are not said"

# weights that are not finite: no result
step=$(ls -d run/checkpoints/step-*)
mkdir nan
cp -r run nan/
python3 - nan/run/checkpoints/step-00000002 <<'P' || fail "no python3"
import json, struct, sys
path = sys.argv[1] + "/model.safetensors"
data = bytearray(open(path, "rb").read())
head = struct.unpack("<Q", data[:8])[0]
at = 8 + head + json.loads(data[8:8 + head])["embed.weight"]["data_offsets"][0]
data[at:at + 4] = struct.pack("<f", float("nan"))
open(path, "wb").write(data)
P
for verb in eval generate "eval dtype=bf16"; do
    code=0
    "$program" $verb nan/run/checkpoints/step-00000002 >out.txt 2>err.txt || code=$?
    [ $code -eq 3 ] && grep -q "not finite" err.txt || fail "$verb of weights that are not finite: $code, $(cat err.txt)"
done

# an edited config.yaml: refused, with what to do
cp run/config.yaml kept.yaml
sed -i 's/width: 16/width: 16 /; s/seed: 1/seed: 2/' run/config.yaml
cmp -s kept.yaml run/config.yaml && fail "nothing was edited"
for path in run $step; do
    code=0
    "$program" eval "$path" eval.lengths=16 >out.txt 2>err.txt || code=$?
    [ $code -eq 3 ] && grep -q "config.yaml was changed" err.txt && grep -q "train.from" err.txt ||
        fail "an edited config.yaml: $code, $(cat err.txt)"
done
"$program" inspect run >out.txt 2>&1 || fail "inspect of an edited run"
grep -q "config.yaml was changed" out.txt || fail "inspect does not tell of an edited config.yaml"
# a training does not go on with it, and does not take the weights for damaged ones
for edit in "s/seed: 1/seed: 2/" "s/width: 16/width: 32/"; do
    sed "$edit" kept.yaml >run/config.yaml
    code=0
    "$program" train run >out.txt 2>err.txt || code=$?
    [ $code -eq 3 ] && grep -q "config.yaml was changed" err.txt || fail "a training after $edit: $code, $(cat err.txt)"
done
cp kept.yaml run/config.yaml
"$program" eval run eval.lengths=16 >/dev/null 2>&1 || fail "an evaluation"

# rejected last steps: not done, also when it is asked again
rejecting="train.guard=skip train.guard_rejections=1000 train.guard_window=4 train.lr=1000"
for again in 1 2; do
    code=0
    "$program" train $recipe train.steps=30 $rejecting train.warmup=0 train.clip=0 out=rejected >out.txt 2>err.txt || code=$?
    [ $code -eq 3 ] && grep -q "rejected the last" err.txt || fail "rejected last steps, time $again: $code $(cat err.txt)"
done

# names in files: no control characters on a terminal
python3 - <<'P'
import json, struct
name = "evil\x1b]0;owned\x07\x9b"
head = json.dumps({"__metadata__": {"a\x1b[2J": "b\x1b[2J"},
                   name: {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}).encode()
open("evil.safetensors", "wb").write(struct.pack("<Q", len(head)) + head + b"\0\0\0\0")
P
"$program" inspect evil.safetensors >out.txt 2>&1 || fail "inspect: $(cat out.txt)"
grep -q evil out.txt || fail "inspect shows no names"
LC_ALL=C grep -q "$(printf '[\001-\011\013-\037\177]')" out.txt && fail "inspect prints control characters"
LC_ALL=C grep -q "$(printf '\302\233')" out.txt && fail "inspect prints a control character of two bytes"
"$program" inspect "$(printf 'no\033[2Jfile')" >out.txt 2>&1 && fail "a file that is not there"
LC_ALL=C grep -q "$(printf '\033')" out.txt && fail "a message prints control characters"

# CSV: no text is a formula; numbers stay numbers
mkdir csv
python3 - <<'P'
import json
row = {"protocol": "@nonoverlap", "length": 16, "loss": -0.5, "excess": -1.25, "n": 1}
arms = [{"name": n, "label": l, "from": None, "parameters": 5, "tokens_trained": 5, "seeds": 1,
         "missing_seeds": [], "settings": {}, "results": [row], "resolution": [], "positions": []}
        for n, l in (("a", "=cmd()"), ("b", "+1"), ("c", "-1"), ("d", '@x,"y'), ("e", "\tplain"))]
json.dump({"format": "longshot-study-1", "study": "s", "title": "t", "about": "", "finished": True, "longshot": "0",
           "command": "c", "trained_length": 16, "machine": {}, "settings": {}, "arms": arms}, open("csv/results.json", "w"))
P
"$program" report csv >out.txt 2>&1 || fail "report: $(cat out.txt)"
python3 - <<'P' || fail "results.csv"
import csv
rows = list(csv.DictReader(open("csv/results.csv", newline="")))
assert [r["label"] for r in rows] == ["'=cmd()", "'+1", "'-1", "'@x,\"y", "'\tplain"], rows
assert all(r["protocol"] == "'@nonoverlap" and float(r["loss"]) == -0.5 and float(r["excess"]) == -1.25 for r in rows)
P
[ $failures -eq 0 ]
