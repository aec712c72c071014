#!/bin/sh
# A study tells the truth about its jobs and its data: a killed job is named as that, the command in results.json can be
# typed again, and data that are others than those of the stored results are said.
# Tier: slow.
set -u
program=$(realpath "$1")
. "$(dirname "$0")/scratch.sh"
export OMP_NUM_THREADS=2
write_text 400
cat >"a study.yaml" <<Y
model: {layers: 1, width: 16, length: 16}
data: {corpus: text.txt}
train: {steps: 1000000, batch: 2}
eval: {lengths: [16], tokens: 256}
arms:
  a: {train.lr: 1e-3}
Y
# a job that is killed
"$program" study "a study.yaml" jobs=1 out=killed >out.txt 2>err.txt &
study=$!
child=
while kill -0 $study 2>/dev/null && [ -z "$child" ]; do
    ls killed/arms/a/seed-1/metrics.jsonl >/dev/null 2>&1 && child=$(pgrep -P $study)
    sleep 0.1
done
kill -KILL $child
wait $study
code=$?
[ $code -eq 4 ] || fail "a study whose job was killed left with $code: $(cat err.txt)"
grep -q "a, seed 1: the training failed: it was killed by signal 9 (Killed)" err.txt || fail "killed: $(cat err.txt)"

# the command can be typed again
"$program" study "a study.yaml" jobs=1 train.steps=2 out="it's \$HOME" title='x; "y" `z`' >out.txt 2>err.txt ||
    fail "a study: $(cat err.txt)"
first="it's \$HOME"
cp "$first/results.json" first.json
command=$(python3 -c 'import json; print(json.load(open("first.json"))["command"])')
rm -r "$first"
mkdir bin
ln -s "$program" bin/longshot
PATH="$scratch/bin:$PATH" sh -c "$command" >out.txt 2>err.txt || fail "$command: $(cat err.txt)"
cmp first.json "$first/results.json" || fail "the command that is told makes another study: $command"

# the data are pinned
python3 - <<'P' || fail "data_hash"
import json, re
arm = json.load(open("first.json"))["arms"][0]
assert re.fullmatch("[0-9a-f]{16}", arm["data_hash"]), arm
P
same() { "$program" study "a study.yaml" jobs=1 train.steps=2 out="$first" title='x; "y" `z`' 2>&1; }
same | grep -q "other data" && fail "the same data are said to be others"
touch text.txt
same | grep -q "other data" && fail "a corpus that was only touched is said to be another"
echo "one line more" >>text.txt
same | grep -q "a: its results were made with other data" || fail "other data are not said"
[ $failures -eq 0 ]
