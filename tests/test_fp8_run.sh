# Training in fp8 (train.dtype=fp8): what it says, what it refuses, the same bytes when it goes on and
# for any number of ranks, losses beside those of bf16, and that its runs are evaluated.
set -eu
program=$1
. "$2/tests/scratch.sh"
. "$2/tests/ranks.sh"
write_text 400
small="data.corpus=text.txt data.tokenizer=byte model.width=32 model.layers=2
    train.length=32 train.batch=4 train.log_every=1 threads=1"

said=$("$program" train $small train.dtype=fp8 train.steps=2 out=never check=true)
echo "$said" | grep -q "^8 of 8 linear layers are multiplied in fp8" || fail "check: $said"
"$program" train $small train.dtype=fp8 train.steps=2 out=never check=true --json |
    grep -q '"layers_fp8": *8' || fail "check as JSON"
# mamba's steps come from a product that is narrower than 16
said=$("$program" train $small model.mixer=mamba train.dtype=fp8 train.steps=2 out=never check=true)
echo "$said" | grep -q "^[1-9][0-9]* of [0-9]* linear layers" || fail "mamba: $said"
refused 2 "train.dtype=fp8 would change nothing" train $small train.dtype=fp8 train.length=7 \
    train.batch=3 out=never
refused 2 "train.matmul has no effect here" train $small train.dtype=fp8 train.matmul=tf32 out=never
refused 2 "dtype=fp8 is for what=train alone" bench dtype=fp8 what=attention
refused 2 "choose one of" eval never dtype=fp8

# stopped and taken up again; shared by two ranks
run="$small train.dtype=fp8 train.steps=6 train.checkpoint_every=2 train.shards=2"
"$program" train $run out=whole --quiet >/dev/null
cp -r whole cut
rm -r cut/checkpoints/step-00000006
"$program" train $run out=cut --quiet >/dev/null
same_run whole cut 0006
with_ranks 2 "$program" train $run out=two
same_run whole two 0006
"$program" eval whole eval.lengths=32 eval.tokens=256 --quiet >/dev/null || fail "eval of a run"

# the same seed in both: other bits, much the same way down
for seed in 1 2; do
    for dtype in bf16 fp8; do
        "$program" train $small train.steps=120 train.checkpoint_every=0 train.log_every=5 \
            train.seed=$seed train.dtype=$dtype out=$dtype.$seed --quiet >/dev/null
    done
    cmp -s bf16.$seed/metrics.jsonl fp8.$seed/metrics.jsonl && fail "fp8 is bf16"
    awk -F'"loss":|,"lr"' 'FNR > 12 { if (NR == FNR) a += $2; else b += $2; n += NR == FNR }
        END { print a / n, b / n; exit !(n >= 12 && (a - b) ^ 2 < (0.05 * a) ^ 2) }' \
        bf16.$seed/metrics.jsonl fp8.$seed/metrics.jsonl >losses || fail "losses: $(cat losses)"
done
exit $failures
