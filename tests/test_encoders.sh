#!/bin/sh
# Encoders with decoders and masked language models through the verbs: what each measures, learns
# and refuses. The values of public folders are compared in test_families.sh.
set -u
program=$1
golden=$2/tests/golden/checkpoints
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failures=0
fail() {
    echo "FAILED: $*" >&2
    failures=$((failures + 1))
}

awk 'BEGIN { for (i = 0; i < 400; i++) print "line " i " of a text that models read" }' >"$work/text.txt"
text="data.corpus=$work/text.txt cache=$work/cache"
loss() { # RUN arguments: the loss at 40 tokens
    "$program" eval "$@" $text eval.lengths=40 eval.tokens=800 --json 2>"$work/err" |
        sed -n 's/^ *"loss": \(.*\),$/\1/p' | head -1
}
refuses() { # WORDS command: exit 2 and the words
    words=$1
    shift
    "$program" "$@" >/dev/null 2>"$work/out"
    [ $? -eq 2 ] || fail "not refused as wrong use: $*"
    grep -q "$words" "$work/out" || { fail "no \`$words\` in:"; cat "$work/out" >&2; }
}
below() { # A B: whether A < B
    awk "BEGIN { exit !($1 < $2) }"
}

# ---- an encoder with a decoder ----
"$program" generate "$golden/t5" prompt="a text" tokens=4 temperature=0 >"$work/out" ||
    fail "generate t5"
grep -q 'a text' "$work/out" && fail "generate t5 repeats what its encoder read"
before=$(loss "$golden/t5")
grep -q 'first half of each window' "$work/err" || fail "eval t5 does not say what is scored"
"$program" train train.from="$golden/t5" $text train.steps=0 train.length=40 out="$work/same" \
    >/dev/null 2>&1 || fail "train from t5"
[ -n "$before" ] && [ "$(loss "$work/same")" = "$before" ] || fail "t5 after 0 steps"
"$program" train train.from="$golden/t5" $text train.steps=25 train.length=40 train.batch=4 \
    train.warmup=5 train.lr=1e-2 out="$work/t5" >/dev/null 2>&1 || fail "train on from t5"
below "$(loss "$work/t5")" "$before" || fail "t5 learned nothing: $before"
refuses "second half of a text" train model.position=rope model.encoder_layers=1 model.layers=1 model.width=16 mixer.heads=2 \
    model.cross_heads=2 $text train.steps=1 out="$work/none"
refuses 'carries a state' eval "$golden/t5" $text eval.lengths=40 eval.protocol=stream

# ---- a masked language model, from nothing ----
masked="model.head=masked model.causal=false model.width=24 model.layers=1 mixer.heads=2
    model.position=learned position.length=64 model.token_types=2 model.norm_place=post
    model.norm_embedding=true model.head_bias=true model.length=40 $text"
refuses 'model.mask_token' train $masked train.steps=1 out="$work/none"
refuses 'model.causal=false' train model.head=masked $text out="$work/none"
masked="$masked model.vocabulary=257 model.mask_token=256 train.batch=8 train.seed=3"
"$program" train $masked train.steps=0 out="$work/begun" >/dev/null 2>&1 || fail "train masked"
"$program" train $masked train.steps=40 train.warmup=5 train.lr=1e-2 out="$work/masked" \
    >/dev/null 2>&1 || fail "train masked"
first=$(loss "$work/begun")
last=$(loss "$work/masked")
below "$last" "$first" || fail "the masked model learned nothing: $first $last"
grep -q 'one in 7 being masked' "$work/err" || fail "eval does not say how it masks"
each=$(loss "$work/masked" eval.mask_every=0)
grep -q 'pseudo-perplexity' "$work/err" || fail "eval does not say pseudo-perplexity"
[ -n "$each" ] && [ "$each" != "$last" ] || fail "eval.mask_every has no effect"
refuses 'both sides' generate "$work/masked" prompt=x
refuses 'mask_every' eval "$golden/gpt2" $text eval.lengths=16 eval.mask_every=3
"$program" train $masked train.steps=4 train.checkpoint_every=2 out="$work/cut" >/dev/null 2>&1
rm -rf "$work/cut/checkpoints/step-00000004"
"$program" train $masked train.steps=4 train.checkpoint_every=2 out="$work/cut" >/dev/null 2>&1
"$program" train $masked train.steps=4 train.checkpoint_every=2 out="$work/whole" >/dev/null 2>&1
cmp -s "$work/cut/checkpoints/step-00000004/model.safetensors" \
    "$work/whole/checkpoints/step-00000004/model.safetensors" || fail "a resumed run masks other tokens"

# ---- a folder without a head, and a field that is not understood ----
cp -r "$golden/longformer-mlm" "$work/model"
chmod -R u+w "$work/model"
sed -i 's/"attention_window": \[/"attention_window": [6,/' "$work/model/config.json"
"$program" inspect "$work/model" >/dev/null 2>"$work/out" && fail "three windows for two layers"
grep -q 'must list 2 layers' "$work/out" || fail "windows: $(cat "$work/out")"
cp "$golden/longformer-mlm/config.json" "$work/model"
sed -i 's/"pad_token_id": 1/"pad_token_id": 60/' "$work/model/config.json"
"$program" inspect "$work/model" >/dev/null 2>"$work/out" && fail "positions behind the table"
grep -q 'ends before pad_token_id' "$work/out" || fail "positions: $(cat "$work/out")"

[ "$failures" -eq 0 ]
