#!/bin/sh
# A run is opened, measured and gone on with from any folder, also where it was moved with what it was trained on, though
# its config.yaml names that by relative paths: the same bytes.
set -u
program=$(realpath "$1")
. "$(dirname "$0")/scratch.sh"
export OMP_NUM_THREADS=1
mkdir home other
cd home
write_text 1500
awk 'BEGIN { for (i = 0; i < 300; i++) print "row " 7 * i " of other things" }' >rows.txt
mkdir -p reviews/train/pos reviews/train/neg reviews/test/pos reviews/test/neg
for i in 1 2 3 4 5 6 7 8; do
    for part in train test; do
        echo "what $i was told was good" >reviews/$part/pos/$i.txt
        echo "it was $i hours too long" >reviews/$part/neg/$i.txt
    done
done
small="model.layers=1 model.width=16 mixer.heads=1 train.length=16 train.batch=4 train.warmup=2 train.checkpoint_every=2 --quiet"
train() { "$program" train $small "$@" >"$scratch/out.txt" 2>"$scratch/err.txt"; }
begin() { # NAME WORD...: a whole run, and one that stops half way
    name=$1
    shift
    train "$@" train.steps=4 out=runs/$name-whole || fail "$name: $(cat "$scratch/err.txt")"
    train "$@" train.steps=4 out=runs/$name || fail "$name: $(cat "$scratch/err.txt")"
    rm -r runs/$name/checkpoints/step-00000004
}
begin corpus data.corpus=text.txt
begin lists data.train=0.5*text.txt,0.5*rows.txt data.validation=rows.txt data.test=text.txt,rows.txt train.validate_every=2
begin task task=text task.path=reviews
cp -r "$2/tests/golden/checkpoints/gpt2" public
echo '{"text": "a row and a line and a row"}' >lambada.jsonl
printf '1 Mary went to the hallway.\n2 Where is Mary? \thallway\t1\n' >qa1_hall.txt
awk 'BEGIN { for (i = 0; i < 40; i++) print "Then " i " of the people in the long street saw that it was raining over all of the town." }' >street.txt
cat >study.yaml <<'Y'
seeds: [1]
data: {corpus: text.txt}
model: {layers: 1, width: 16, length: 16}
mixer: {heads: 1}
train: {batch: 4, steps: 2}
eval: {lengths: [16]}
arms:
  rope: {model.position: rope}
  further: {model.position: none, train.from: runs/corpus-whole}
  checkpoint: {from: public, data.corpus: rows.txt, suites: lambada, suite.path: lambada.jsonl}
  two-files: {from: runs/corpus-whole, suites: babilong, suite.path: "qa1_hall.txt,street.txt", suite.lengths: [2000], suite.samples: 1}
Y
"$program" study study.yaml out=runs/study --quiet >/dev/null 2>../err.txt || fail "a study: $(cat ../err.txt)"

# what it was trained on, and what it is judged by, is what it goes on with
changed() { # FILE SED NAME WHAT
    cp "$1" ../kept
    sed "$2" ../kept >"$1"
    refused 2 "runs/$3: the $4 are others than those the run began with" train runs/$3
    cp ../kept "$1"
}
changed text.txt '300s/line/LINE/' corpus data
changed rows.txt '7s/row/ROW/' lists data
changed reviews/train/neg/5.txt 's/long/short/' task "task's records"
begin judged data.train=text.txt data.validation=rows.txt train.validate_every=2
changed rows.txt '7s/row/ROW/' judged "validation documents"
"$program" eval runs/corpus-whole eval.lengths=16 --json >../at-home.json 2>../err.txt || fail "eval: $(cat ../err.txt)"
"$program" eval runs/task-whole --json >../task-at-home.json 2>../err.txt || fail "eval of a task: $(cat ../err.txt)"

cd ..
mv home moved
go_on() { # from the present folder
    for name in corpus lists task judged; do
        "$program" train "$1/$name" --quiet >"$scratch/out.txt" 2>"$scratch/err.txt" || fail "$name goes on: $(cat "$scratch/err.txt")"
        for file in model.safetensors optimizer.safetensors; do
            cmp "$1/$name/checkpoints/step-00000004/$file" "$1/$name-whole/checkpoints/step-00000004/$file" || fail "$name: another $file"
        done
        cmp "$1/$name/config.yaml" "$1/$name-whole/config.yaml" || fail "$name: another config.yaml"
    done
}
cd other
go_on ../moved/runs
# so does a study, whose trainings are runs of their own
mv ../moved/runs/study ../moved/runs/whole
mkdir ../moved/runs/study
cp ../moved/runs/whole/study.yaml ../moved/runs/study
"$program" study ../moved/runs/study/study.yaml out=../moved/runs/study >/dev/null 2>../err.txt || fail "a study from elsewhere: $(cat ../err.txt)"
for arm in rope further; do
    last=arms/$arm/seed-1/checkpoints/step-00000002/model.safetensors
    cmp ../moved/runs/study/$last ../moved/runs/whole/$last || fail "a study from elsewhere trains another $arm"
done
# and what it measures, and with what, leads where the rest of it does
grep -q "rows.txt of the study is ../moved/runs/study/../../rows.txt" ../err.txt || fail "what a study measured with is not said: $(cat ../err.txt)"
python3 -c '
import json
then, now = (json.load(open("../moved/runs/%s/results.json" % name))["arms"] for name in ("whole", "study"))
assert len(then) == 4 and then == now, (then, now)' 2>>../err.txt || fail "a study from elsewhere has other results: $(cat ../err.txt)"
"$program" study ../moved/runs/study/study.yaml out=../moved/runs/study check=true >/dev/null 2>../err.txt ||
    fail "check=true of a study from elsewhere: $(cat ../err.txt)"
same() { # THEN NOW: the same result but for the time it took
    python3 - "$1" "$2" <<'P'
import json, sys
then, now = (json.load(open(name)) for name in sys.argv[1:])
sys.exit(any(then.get(key) != now.get(key) for key in ("corpus", "data_hash", "task")) or
         any(a[key] != b[key] for a, b in zip(then["results"], now["results"]) for key in ("length", "loss", "tokens", "accuracy") if key in a))
P
}
"$program" eval ../moved/runs/corpus-whole eval.lengths=16 --json >../now.json 2>../err.txt || fail "eval from elsewhere: $(cat ../err.txt)"
same ../at-home.json ../now.json || fail "another result from elsewhere"
grep -q "text.txt of the run is ../moved/runs/corpus-whole/../../text.txt" ../err.txt || fail "what was read is not said: $(cat ../err.txt)"
"$program" eval ../moved/runs/task-whole --json >../now.json 2>../err.txt || fail "eval of a task from elsewhere: $(cat ../err.txt)"
same ../task-at-home.json ../now.json || fail "another result of a task from elsewhere"
# the run's corpus by another path is the same corpus, of which another share was trained on
refused 2 "data.test_share differs from the run's on the same corpus" eval ../moved/runs/corpus-whole data.corpus="$scratch/moved/text.txt" \
    data.test_share=0.3
# what is there goes before; what the call itself names, and a run that is not there yet, have the present folder alone
cp ../moved/rows.txt text.txt
"$program" eval ../moved/runs/corpus-whole eval.lengths=16 --json >../now.json 2>../err.txt || fail "eval: $(cat ../err.txt)"
same ../at-home.json ../now.json && fail "a text of the present folder is passed over"
rm text.txt
refused 3 "paths are those of the folder" eval ../moved/runs/corpus-whole data.corpus=rows.txt
refused 3 "paths are those of the folder" train data.corpus=text.txt out=../moved/runs/new
refused 3 "task.path: reviews is not a folder" eval ../moved/runs/task-whole task.path=reviews
[ $failures -eq 0 ]
