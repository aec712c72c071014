#!/bin/sh
# Want of memory is told as that, exit 4, wherever it comes: never as a bad file, a broken promise or a signal. Every
# reader runs with no memory left from its n-th allocation on, for many n.
# Tier: slow.
set -u
program=$(realpath "$1")
preload=$(dirname "$program")/tests/libfail_memory.so
[ -e "$preload" ] || { echo "not built here: sanitizers have their own allocator"; exit 77; }
. "$(dirname "$0")/scratch.sh"
export OMP_NUM_THREADS=1
write_text 300
recipe="model.layers=1 model.width=16 model.length=16 data.corpus=text.txt train.batch=2 train.steps=2 --quiet"
"$program" train $recipe out=run >/dev/null 2>&1 || fail "a training"
"$program" data tokenizer data.corpus=text.txt data.vocabulary=300 out=tokenizer >/dev/null 2>&1 || fail "a tokenizer"
cat >study.yaml <<Y
model: {layers: 1, width: 16, length: 16}
data: {corpus: text.txt}
train: {steps: 2, batch: 2}
eval: {lengths: [16, 32]}
seeds: [1]
jobs: 1
arms:
  a: {train.lr: 1e-3}
  b: {train.lr: 2e-3}
Y
"$program" study study.yaml out=study --quiet >/dev/null 2>&1 || fail "a study"
echo '{"text": "one line"}' >lines.jsonl
echo '{"text": "and another"}' >>lines.jsonl

# (the OpenMP runtime ends a process by itself with 1, where it has no memory for its threads: libgomp says so, or nothing)
starve() { # WHAT COMMAND...
    what=$1
    shift
    LS_FAIL_COUNT=count.txt LD_PRELOAD=$preload "$@" >out.txt 2>err.txt || fail "$what fails by itself: $(cat err.txt)"
    all=$(cat count.txt)
    n=1
    points=0
    while [ $n -le "$all" ]; do
        code=0
        LS_FAIL_FROM=$n LD_PRELOAD=$preload timeout 60 "$@" >out.txt 2>err.txt || code=$?
        case $code in
        0 | 4) ;;
        1) [ $n -le $started ] || [ ! -s err.txt ] || grep -q '^libgomp: Out of memory' err.txt ||
            fail "$what, without memory from allocation $n of $all on: exit 1: $(head -n 1 err.txt)" ;;
        *) [ $n -lt $started ] || fail "$what, without memory from allocation $n of $all on: exit $code: $(head -n 1 err.txt)" ;;
        esac
        points=$((points + 1))
        n=$((n + 1 + all / ${LONGSHOT_TEST_STARVE:-40}))
    done
    echo "$what: $points of $all"
}
# what libraries take before main begins is theirs to fail by
LS_FAIL_COUNT=count.txt LD_PRELOAD=$preload "$program" --version >/dev/null
started=$(cat count.txt)
starve inspect "$program" inspect run
starve "inspect --json" "$program" inspect run --json
starve "inspect a file" "$program" inspect run/checkpoints/step-00000002/model.safetensors
starve tokenize "$program" tokenize tokenizer text="some text"
starve "data stats" "$program" data stats data.corpus=text.txt
starve "data stats of JSONL" "$program" data stats data.corpus=lines.jsonl
starve report "$program" report study
starve "a study's check" "$program" study study.yaml check=true
starve "a study that is done" "$program" study study.yaml out=study
starve "train, done before" "$program" train $recipe out=run
starve eval "$program" eval run eval.lengths=16 eval.tokens=256
starve generate "$program" generate run tokens=4
[ $failures -eq 0 ]
