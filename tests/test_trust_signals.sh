#!/bin/sh
# A signal is heeded within a second wherever nothing has to be kept first, with the documented exit code: while a
# corpus is read, a tokenizer learnt, a text tokenised, a study begun, its jobs started, something measured. A pipe in place of any file
# is refused.
# Tier: slow.
set -u
program=$(realpath "$1")
. "$(dirname "$0")/scratch.sh"
export OMP_NUM_THREADS=1
# large enough that reading, learning and tokenising take seconds each
python3 - <<'P'
import random
random.seed(1)
words = ["".join(random.choice("abcdefghijklmnopqrstuvwxyz") for _ in range(random.randint(2, 9))) for _ in range(200000)]
with open("words.txt", "w") as out:
    for _ in range(12):
        out.write(" ".join(random.choice(words) for _ in range(100000)) + "\n")
P
small="model.layers=1 model.width=16 mixer.heads=2 model.length=16 train.batch=2"
cat >study.yaml <<Y
model: {layers: 1, width: 16, length: 16}
data: {corpus: words.txt, tokenizer: train, vocabulary: 30000}
train: {steps: 1000000, batch: 2}
arms:
  a: {train.lr: 1e-3}
Y

pause=0.2
# WAIT until the error output shows a pattern, send the signal, and measure how long the end takes
heed() { # WHAT PATTERN COMMAND...
    what=$1
    pattern=$2
    shift 2
    : >err.txt
    "$@" >out.txt 2>err.txt &
    job=$!
    tries=0
    while kill -0 $job 2>/dev/null && [ -n "$pattern" ] && ! grep -q "$pattern" err.txt && [ $tries -lt 600 ]; do
        sleep 0.05
        tries=$((tries + 1))
    done
    sleep $pause
    kill -0 $job 2>/dev/null || { fail "$what: it ended before the signal: $(cat err.txt)"; return; }
    start=$(date +%s%N)
    kill -TERM $job
    wait $job
    code=$?
    took=$((($(date +%s%N) - start) / 1000000))
    [ $code -eq 75 ] || fail "$what: left with $code: $(cat err.txt)"
    [ $took -lt ${LONGSHOT_TEST_HEED:-1000} ] || fail "$what: took $took ms"
}
heed "training, reading the corpus" "reading the corpus" \
    "$program" train $small data.corpus=words.txt data.tokenizer=train data.vocabulary=30000 out=run
heed "training, learning a tokenizer" "learning a tokenizer" \
    "$program" train $small data.corpus=words.txt data.tokenizer=train data.vocabulary=30000 out=run
heed "data, learning a tokenizer" "learning a tokenizer" \
    "$program" data tokenizer data.corpus=words.txt data.vocabulary=30000 out=tokenizer
heed "a study's check" "learning a tokenizer" "$program" study study.yaml check=true
head -c 400000 words.txt >few.txt
"$program" data tokenizer data.corpus=few.txt data.vocabulary=2000 out=tokenizer >/dev/null 2>&1 || fail "a tokenizer"
heed "data, tokenising" "tokenising the train" \
    "$program" data prepare data.corpus=words.txt data.tokenizer=tokenizer out=prepared
for i in 1 2 3 4 5 6 7 8; do cat words.txt; done >long.txt
heed "tokenize" "" "$program" tokenize tokenizer file=long.txt
heed "bench" "" "$program" bench what=train peer=none seconds=100 rounds=3 threads=1
heed "bench of the machine" "" "$program" bench what=gemm peer=none
[ -z "$(find prepared -name '*.tokens')" ] || fail "a token file was finished"
[ -z "$(find cache prepared -name '*.tmp' 2>/dev/null)" ] || fail "left behind: $(find cache prepared -name '*.tmp')"
# a task's table of many records: while its lines are read, some are held out, and all are hashed
mkdir table
python3 - <<'P'
line = "1.0\ta\tb\tone text\tanother\n"
for name, count in ("train", 6000000), ("test", 10):
    with open("table/new_aan_pairs.%s.tsv" % name, "w") as out:
        for _ in range(0, count, 10): out.write(10 * line)
P
for moment in 0.2 0.5 0.9 1.3 1.7; do
    pause=$moment
    heed "a task's table, after $moment s" "" "$program" train task=documents task.path=table task.holdout=0.5 \
        model.causal=false model.head=match model.position=none $small train.steps=1000000 out=tabled
done
pause=0.2
rm -r table
# a report of many arms
python3 - <<'P'
import json, os
os.makedirs("many")
row = {"protocol": "nonoverlap", "length": 16, "loss": 0.5, "ppl": 1.6, "excess": 0.1, "n": 1}
arms = [{"name": "a%d" % i, "label": "a", "from": None, "parameters": 5, "tokens_trained": 5, "seeds": 1,
         "missing_seeds": [], "settings": {}, "results": [dict(row, length=16 + k) for k in range(100)],
         "resolution": [], "positions": []} for i in range(9000)]
json.dump({"format": "longshot-study-1", "study": "s", "title": "t", "about": "", "finished": True, "longshot": "0",
           "command": "c", "trained_length": 16, "machine": {}, "settings": {}, "arms": arms}, open("many/results.json", "w"))
P
heed "report" "" "$program" report many

# a study that starts one short job after another, stopped at many moments: whenever it is, no job is taken for a
# failed one, none goes on, and the same command makes the same results
head -c 4000 words.txt >starts.txt
cat >starts.yaml <<Y
model: {layers: 1, width: 16, length: 16}
data: {corpus: starts.txt}
train: {steps: 1, batch: 2}
eval: {protocol: nonoverlap, lengths: [16], tokens: 64}
jobs: 2
arms:
  a: {train.lr: 1e-3}
  b: {train.lr: 2e-3}
  c: {train.lr: 3e-3}
  d: {train.lr: 4e-3}
Y
"$program" study starts.yaml out="$scratch/starts" --quiet >/dev/null 2>err.txt || fail "a study: $(cat err.txt)"
mv starts undisturbed
delay=0
written() { # every file of the study's folder, with its time
    find starts -printf '%p %i %s %T@\n' 2>/dev/null | sort
}
while [ $delay -lt 400 ]; do
    before=$(written)
    "$program" study starts.yaml out="$scratch/starts" --quiet >/dev/null 2>err.txt &
    job=$!
    sleep "0.$(printf %03d $delay)"
    start=$(date +%s%N)
    kill -TERM $job 2>/dev/null
    wait $job
    code=$?
    took=$((($(date +%s%N) - start) / 1000000))
    case $code in
    0 | 75) ;;
    143) [ "$before" = "$(written)" ] || fail "a study after $delay ms: killed" ;; # before it took signals and did anything
    *) fail "a study, stopped after $delay ms: left with $code: $(cat err.txt)" ;;
    esac
    [ $took -lt ${LONGSHOT_TEST_HEED:-1000} ] || fail "a study, stopped after $delay ms: took $took ms"
    ! pgrep -f "out=$scratch/starts/" >/dev/null || fail "a study, stopped after $delay ms: jobs go on"
    [ $delay -ne 150 ] && [ $delay -ne 375 ] || {
        "$program" study starts.yaml out="$scratch/starts" --quiet >/dev/null 2>err.txt || fail "going on: $(cat err.txt)"
        cmp starts/results.json undisturbed/results.json || fail "a stopped study has other results"
        rm -r starts
    }
    delay=$((delay + 75))
done

# a pipe in place of any file: an error, never a wait
pipe() { # FILE COMMAND...
    file=$1
    shift
    [ ! -e "$file" ] || mv "$file" kept
    mkfifo "$file"
    timeout -k 1 30 "$@" >out.txt 2>err.txt
    code=$?
    [ $code -ne 124 ] && [ $code -ne 137 ] || { fail "$* waits for $file"; exit 1; } # and so would the rest
    [ $code -ne 0 ] || fail "$* took a pipe for $file"
    rm -f "$file"
    [ ! -e kept ] || mv kept "$file"
}
head -c 20000 words.txt >text.txt
tiny="$small data.corpus=text.txt train.steps=2"
pipe text.txt "$program" train $tiny out=piped --quiet
pipe text.txt "$program" data stats data.corpus=text.txt
pipe study.yaml "$program" study study.yaml check=true
pipe golden.safetensors "$program" apply mixer=attention golden=golden.safetensors
pipe weights.safetensors "$program" apply mixer=attention weights=weights.safetensors input=words.txt output=y.safetensors
pipe tokenizer.json "$program" tokenize tokenizer.json text=a
pipe vocab.txt "$program" tokenize vocab.txt text=a
pipe input.txt "$program" tokenize byte file=input.txt
mkdir -p public folder many2
echo '{"model_type": "gpt2"}' >public/config.json
for file in public/config.json public/model.safetensors public/model.safetensors.index.json; do
    pipe $file "$program" eval public
    pipe $file "$program" inspect public
done
pipe folder/tokenizer.json "$program" tokenize folder text=a
pipe many2/results.json "$program" report many2
cp many/results.json many2/
pipe many2/timing.json "$program" report many2
pipe losses.safetensors "$program" recl losses.safetensors
# the cache makes again what it cannot read, and never waits for it
"$program" train $tiny cache=own out=cached --quiet >/dev/null 2>&1 || fail "a training"
tokens=$(ls own/*-train.tokens)
rm "$tokens"
mkfifo "$tokens"
timeout 60 "$program" train $tiny cache=own out=again --quiet >out.txt 2>err.txt || fail "a pipe in the cache: $? $(cat err.txt)"
[ -f "$tokens" ] || fail "the token file was not made again"
[ $failures -eq 0 ]
