#!/bin/sh
# Mechanisms that act in training: trained from a base, recorded, tested; resumed to the same bits;
# what cannot be is refused.
# Tier: slow.
set -u
program=$1
. "$2/tests/scratch.sh"
mkdir corpus
for i in 1 2 3 4 5 6; do
    seq "$i" 7 2500 | awk '{printf "%d is followed by %d. ", $1, $1 + 7}' >corpus/$i.txt
done
small="data.corpus=corpus data.borders=true train.batch=4 train.warmup=1"
"$program" train $small model.layers=2 model.width=32 mixer.heads=4 model.position=rope \
    model.length=32 train.steps=6 out=base >out 2>&1 || { cat out >&2; fail base; }
for way in "interpolation,pose extend.interpolation.factor=4 train.length=32" \
    "interpolation,pose extend.interpolation.factor=4 train.length=32 extend.pose.draw=every" \
    "clex extend.max_factor=8 train.length=32 train.from_part=true" \
    "clex extend.max_factor=4 train.length=80 train.from_part=true" \
    "interpolation,s2_attention extend.interpolation.factor=4"; do
    rm -rf run parts
    # words on purpose
    "$program" train train.from=base $small extend=$way model.length=128 train.steps=6 out=run \
        >out 2>&1 || { cat out >&2; fail "extend=$way"; }
    "$program" eval run eval.lengths=32,128 eval.tokens=512 >eval 2>&1 || fail "eval of $way"
    grep -q "^nonoverlap  *128 " eval || fail "no figures of $way"
    # stopped and gone on: the same weights
    "$program" train train.from=base $small extend=$way model.length=128 train.steps=6 \
        train.checkpoint_every=3 train.keep=3 out=parts >out 2>&1 || fail "parts of $way"
    rm -rf parts/checkpoints/step-00000006
    "$program" train train.from=base $small extend=$way model.length=128 train.steps=6 \
        train.checkpoint_every=3 train.keep=3 out=parts >out 2>&1 || { cat out >&2; fail "going on with $way"; }
    cmp run/checkpoints/step-00000006/model.safetensors \
        parts/checkpoints/step-00000006/model.safetensors || fail "bits of $way"
done
# train.state_lr is the rate of CLEX's network alone: within the trained length nothing changes
for rate in 0 0.1; do
    rm -rf run
    "$program" train train.from=base $small extend=clex extend.max_factor=4 train.from_part=true model.length=128 \
        train.steps=3 train.lr=1e-9 train.state_lr=$rate out=run >out 2>&1 || { cat out >&2; fail "state_lr=$rate"; }
    "$program" eval run eval.lengths=32,128 eval.tokens=512 eval.excess=false --json 2>/dev/null |
        awk '/"loss": [0-9]/ {print $2}' >"losses.$rate"
    sed -n 1p "losses.$rate" | cut -c1-6 >"near.$rate"
    sed -n 2p "losses.$rate" >"far.$rate"
done
[ -s far.0 ] || fail "no losses"
cmp -s near.0 near.0.1 || fail "state_lr changed more than the network"
cmp -s far.0 far.0.1 && fail "state_lr had no effect"
refused 2 "acts in training alone" eval base extend=pose
refused 2 "acts in training alone" eval base extend=s2_attention
refused 2 "nothing to draw" train train.from=base $small extend=pose out=none
refused 2 "go with layers alone" train $small model.width=32 mixer.heads=4 model.position=rope \
    model.length=64 train.length=32 model.segment=16 model.memory=2 extend=pose out=none
refused 2 "takes no positions that are drawn" train $small model.width=32 model.mixer=longformer \
    mixer.heads=4 model.position=rope model.length=64 train.length=32 extend=pose out=none
refused 2 "even number of heads" train $small model.width=30 mixer.heads=3 model.position=rope \
    model.length=32 extend=s2_attention out=none
refused 2 "without a decay" train $small model.width=32 mixer.heads=4 model.position=xpos \
    model.length=32 extend=clex out=none
[ "$failures" -eq 0 ]
