# Tier: slow
# Runs with model.norm=batch: the same bits on 1, 2 and 4 ranks, gone on after a stop, whatever the threads; running
# statistics are weights of the checkpoint and what evaluation reads; a stream may be cut anywhere; refusals.
set -eu
program=$1
. "$2/tests/scratch.sh"
. "$2/tests/ranks.sh"
words="task=listops task.min_length=8 model.mixer=s5 model.layers=2 model.width=16 model.feed_forward=false model.length=32
    model.causal=false mixer.d_state=8 mixer.blocks=2 model.norm=batch train.batch=8 train.steps=8 train.warmup=0
    train.checkpoint_every=4 train.decay=all mixer.b_decay=true mixer.dropout=0.1 model.dropout=0.1 model.dropout_tied=true"
"$program" train $words train.shards=4 out=alone threads=1 --quiet >/dev/null
for size in 2 4; do
    with_ranks $size "$program" train $words train.shards=4 out=ranks$size --quiet
    same_run alone ranks$size 0008
done
"$program" train $words train.shards=4 out=threads threads=2 --quiet >/dev/null
same_run alone threads 0008

# gone on with after the first checkpoint
cp -r alone again
rm -r again/checkpoints/step-00000008
"$program" train $words train.shards=4 out=again --quiet >/dev/null
same_run alone again 0008

# parts of a batch have their own statistics, whose mean runs along: not those of the whole batch
"$program" train $words out=whole --quiet >/dev/null
"$program" train $words train.accumulate=4 out=parts --quiet >/dev/null
cmp -s whole/checkpoints/step-00000008/model.safetensors parts/checkpoints/step-00000008/model.safetensors &&
    fail "statistics of parts are those of the batch"

# evaluation reads what ran along: it does not depend on the other lists of a batch, and not on padding
"$program" eval alone eval.lengths=32 eval.samples=24 eval.batch=8 >eight
"$program" eval alone eval.lengths=32 eval.samples=24 eval.batch=3 >three
awk '$1 == 32 { print $2, $3, $4, $5, $6 }' eight >a
awk '$1 == 32 { print $2, $3, $4, $5, $6 }' three >b
[ -s a ] || fail "no row in: $(cat eight)"
cmp -s a b || fail "evaluation depends on the batch: $(cat a b)"

lm="task=induction model.mixer=retnet model.layers=1 model.width=16 mixer.heads=2 train.length=32 train.batch=4
    train.steps=2 out=no"
refused 2 "not for model.segment" train $lm model.norm=batch model.segment=16
refused 2 "norm_momentum" train $lm model.norm=layer model.norm_momentum=0.2
refused 2 "model.inner_norm" train $lm model.norm=batch model.inner_norm=true
exit $((failures > 0))
