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
        *) [ $n -le $started ] || fail "$what, without memory from allocation $n of $all on: exit $code: $(head -n 1 err.txt)" ;;
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

# threads that a limit forbids: this program's sentence, also where the OpenMP runtime finds out first
crowd() { # THREADS
    (
        ulimit -v 1500000
        "$program" train $recipe out=crowd threads="$1" >out.txt 2>err.txt
        echo $? >code.txt
    )
    rm -rf crowd
}
crowd 2
[ "$(cat code.txt)" = 0 ] || fail "two threads: $(cat err.txt)"
crowd 900
[ "$(cat code.txt)" = 4 ] || fail "900 threads: exit $(cat code.txt): $(cat err.txt)"
grep -q '^longshot: only [0-9]* of 900 threads can be started' err.txt || fail "900 threads: $(cat err.txt)"
most=$(sed -n 's/^longshot: only \([0-9]*\) of 900.*/\1/p' err.txt)
for threads in $most $((most - 1)) $((most - 2)) $((most / 2)); do
    crowd "$threads"
    case $(cat code.txt) in
    0) ;;
    4) grep -q '^longshot: ' err.txt || fail "$threads threads: $(cat err.txt)" ;;
    *) fail "$threads threads: exit $(cat code.txt): $(cat err.txt)" ;;
    esac
done
[ $failures -eq 0 ]
