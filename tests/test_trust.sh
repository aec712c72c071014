#!/bin/sh
# What others do to a run while it is there: a second training in its folder, locks that were left behind, pipes in
# place of files. Nothing waits, nothing is spoilt.
# Tier: slow.
set -u
program=$(realpath "$1")
. "$(dirname "$0")/scratch.sh"
export OMP_NUM_THREADS=2
write_text 400
recipe="model.layers=1 model.width=16 mixer.heads=2 model.length=16 data.corpus=text.txt train.batch=2 train.checkpoint_every=2 --quiet"

# two trainings in one folder: the second is refused, the first goes on
"$program" train $recipe train.steps=1000000 out=both >/dev/null 2>&1 &
first=$!
while kill -0 $first 2>/dev/null && ! ls both/checkpoints/*/manifest.json >/dev/null 2>&1; do sleep 0.1; done
code=0
timeout 60 "$program" train $recipe train.steps=1000000 out=both >out.txt 2>err.txt || code=$?
[ $code -eq 2 ] && grep -q "process $first" err.txt || fail "a second training left with $code: $(cat err.txt)"
kill -0 $first 2>/dev/null || fail "the first training ended"
# killed hard, it leaves a lock behind that is none
kill -KILL $first
wait $first 2>/dev/null
[ -s both/.lock ] || fail "no note of the holder was left"
"$program" train $recipe train.steps=1000000 out=both >out.txt 2>err.txt &
first=$!
sleep 2
kill -TERM $first
wait $first
code=$?
[ $code -eq 75 ] || fail "after a kill training left with $code: $(cat err.txt)"
"$program" train $recipe train.steps=3 out=free >/dev/null 2>&1 || fail "a training"
"$program" train $recipe train.steps=3 out=free 2>&1 | grep -q "done before" || fail "the lock was not given back"

# a pipe in place of any file: an error at once, never a wait
pipe() { # FILE COMMAND...
    file=$1
    shift
    mv "$file" kept 2>/dev/null || : >kept.none
    mkfifo "$file"
    timeout -k 1 30 "$@" >out.txt 2>err.txt
    code=$?
    [ $code -ne 124 ] && [ $code -ne 137 ] || { fail "$* waits for $file"; exit 1; } # and so would the rest
    rm -f "$file"
    [ ! -e kept ] || mv kept "$file"
}
"$program" train $recipe train.steps=4 out=run >/dev/null 2>&1 || fail "a training"
step=run/checkpoints/step-00000004
train="$program train $recipe train.steps=4 out=run"
for file in run/config.yaml run/config.yaml.tmp run/env.json run/env.json.tmp run/metrics.jsonl run/metrics.csv \
    run/.lock run/tokenizer/byte_tokenizer.json $step/manifest.json $step/state.json $step/model.safetensors \
    $step/optimizer.safetensors text.txt; do
    pipe "$file" $train
done
for file in run/config.yaml $step/manifest.json $step/model.safetensors; do
    pipe "$file" "$program" eval run eval.lengths=16
    pipe "$file" "$program" inspect run
    pipe "$file" "$program" generate run
done
pipe "$step/model.safetensors" "$program" inspect "$step/model.safetensors"
pipe recipe.yaml "$program" train recipe.yaml
mkdir study
pipe study/results.json "$program" report study
$train 2>&1 | grep -q "done before" || fail "the run is not what it was"

# a limit of files' sizes is a full disk: an error of that kind, and nothing half written; jobs of a study too
full() { # COMMAND..., with files of at most 1 KiB (2 in some shells; the OpenMP of LLVM has one of 1); the folder made is `full`
    sh -c 'ulimit -f 2; exec "$@"' sh "$program" "$@" >out.txt 2>err.txt
    code=$?
    [ $code -eq 4 ] || fail "$* with small files gave $code: $(cat err.txt)"
    grep -q "File too large" err.txt || fail "$* does not say what is full: $(cat err.txt)"
    [ -z "$(find full -name '*.tmp' 2>/dev/null)" ] || fail "$* leaves $(find full -name '*.tmp')"
    rm -rf full
}
ulimit -c 0
full train $recipe train.steps=4 out=full
full export "$2/tests/golden/checkpoints/gpt2" out=full
cp -r run full
full eval full eval.lengths=16 eval.losses=full/losses.safetensors
[ $failures -eq 0 ]
