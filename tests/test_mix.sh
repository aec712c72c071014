#!/bin/sh
# A corpus with samples of tasks among its windows (data.mix): shares, going on after a cut, other
# tokenizers, and what does not go together. Tier: slow
set -eu
program=$1
. "$2/tests/scratch.sh"
fail() { echo "FAILED: $*" >&2; exit 1; } # what follows rests on what went before
write_corpus 6
train() { # out, more
    out=$1
    shift
    "$program" train out="$out" data.corpus=corpus model.layers=1 model.width=16 model.length=256 \
        mixer.heads=2 train.steps=6 train.batch=4 train.checkpoint_every=2 train.log_every=1 --quiet "$@" >/dev/null
}
train plain
train mixed data.mix=text_needle:0.25,text_pairs:0.25,copy:0.25 task.text_needle.needles=1
grep -q "^task.text_needle.needles: 1" mixed/config.yaml || fail "options of a task are not kept"
grep -q "^task.copy.symbols: 8" mixed/config.yaml || fail "options of a task are not kept"
cmp -s plain/metrics.jsonl mixed/metrics.jsonl && fail "the mixture has no effect"
losses() { python3 -c 'import json, sys
print([(r["step"], r["loss"]) for r in map(json.loads, open(sys.argv[1] + "/metrics.jsonl"))])' "$1"; }
# the same after a cut
cp -r mixed cut
rm -rf cut/checkpoints/*6 # what a kill leaves: the last whole one is of step 4
train cut data.mix=text_needle:0.25,text_pairs:0.25,copy:0.25 task.text_needle.needles=1
[ "$(losses cut)" = "$(losses mixed)" ] || fail "a cut changed the run"
# other options are another run
refused 2 "settings" train out=cut data.corpus=corpus model.layers=1 model.width=16 model.length=256 \
    mixer.heads=2 train.steps=6 train.batch=4 train.checkpoint_every=2 train.log_every=1 data.mix=text_needle:0.5
# a run of a mixture is one of text: it is evaluated, asked and goes on writing
"$program" eval mixed eval.lengths=256 --json >out.txt
grep -q '"nonoverlap"' out.txt || fail "no perplexity"
"$program" eval mixed suite=needle suite.lengths=256 suite.samples=1 suite.questions=1 >out.txt
"$program" generate mixed prompt=a tokens=3 >out.txt
# a tokenizer with several bytes a token
train pairs data.mix=text_needle:0.5,text_copy:0.5 data.tokenizer=train data.vocabulary=300
# a task of bytes alone
"$program" train out=alone task=text_pairs model.layers=1 model.width=16 mixer.heads=2 train.steps=2 \
    train.batch=2 train.length=256 --quiet >/dev/null
"$program" eval alone eval.lengths=256,512 eval.samples=4 >out.txt

# in a study: of all arms, or of one
cat >mix.yaml <<'Y'
model: {layers: 1, width: 16, length: 256}
mixer: {heads: 2}
data: {corpus: corpus, mix: "text_needle:0.5"}
task.text_needle.needles: 1
train: {steps: 1, batch: 2}
eval: {lengths: [256]}
arms:
  rope: {model.position: rope}
  more: {model.position: rope, task.text_needle.needles: 2}
Y
"$program" study mix.yaml out=mixes --quiet >/dev/null
grep -q "^task.text_needle.needles: 2" mixes/arms/more/seed-1/config.yaml || fail "an arm's own options"
refused 2 "no key task.text_needle.needels" study mix.yaml out=no task.text_needle.needels=1
refused 2 "no task text_nedle" train data.mix=text_nedle:0.5
refused 2 "must be TASK:SHARE" train data.mix=text_needle
refused 2 "must be a number above 0" train data.mix=text_needle:0
refused 2 "more than 1" train data.mix=text_needle:0.6,text_copy:0.5
refused 2 "is there twice" train data.mix=text_needle:0.1,text_needle:0.1
refused 2 "asks for a class" train data.mix=listops:0.1
refused 2 "needs a length of at least" train out=no data.corpus=corpus model.layers=1 model.width=16 model.length=64 mixer.heads=2 data.mix=text_pairs:0.5 
refused 2 "has 8192 tokens" train out=no data.corpus=corpus model.layers=1 model.width=16 model.length=256 mixer.heads=2 data.mix=mqar:0.5
refused 2 "no train.carry" train out=no data.corpus=corpus model.layers=1 model.width=16 model.length=256 mixer.heads=2 data.mix=text_copy:0.5 data.loader=stream
refused 2 "for language models" train out=no data.corpus=corpus model.layers=1 model.width=16 model.length=256 mixer.heads=2 data.mix=text_copy:0.5 model.head=masked model.mask_token=1 model.causal=false model.position=rope
refused 2 "no key task.text_copy.digits" train data.mix=text_copy:0.5 task.text_copy.digits=3
refused 2 "task.text_pairs.digits" train data.mix=text_copy:0.5 task.text_pairs.digits=3
refused 2 "data.mix is of no use" train task=copy data.mix=text_copy:0.5
[ $failures -eq 0 ]
