# What the recipes of the Long Range Arena ask for has its effect: weights after two steps differ from those of a run
# without the option, parameters have the stated shapes, and dropout acts in training alone.
set -eu
program=$1
. "$2/tests/scratch.sh"
base="task=listops task.min_length=8 model.layers=2 model.width=16 model.length=32 model.causal=false train.batch=4
    train.steps=2 train.warmup=0 threads=1 --quiet"
mega="model.mixer=mega mixer.key_width=8 mixer.value_width=16 model.hidden=16"
s5="model.mixer=s5 mixer.d_state=8 mixer.blocks=2 model.feed_forward=false train.state_lr=1e-2"
s4="model.mixer=s4 mixer.d_state=4 model.feed_forward=false train.state_lr=1e-2"
weights() { echo "$1/checkpoints/step-00000002/model.safetensors"; }
run() { # NAME options...
    name=$1
    shift
    # words on purpose
    "$program" train $base "$@" out="$name" >/dev/null || fail "$name: $*"
}
run mega $mega
run s5 $s5
run s4 $s4
tried=0
for pair in "mega mixer.dropout=0.3" "mega mixer.hidden_dropout=0.3" "mega mixer.residual=stream" \
    "mega model.embedding_dropout=0.3" "mega model.mixer_dropout=0.3" "mega model.embedding_init=0.5" \
    "mega model.head_init=0.5" "mega model.head_hidden=12" "mega model.numbers=true" "mega train.decay=all" \
    "s5 mixer.dropout=0.3" "s5 mixer.b_decay=true" "s5 mixer.b_own_rate=true" "s5 mixer.dt_own_rate=false" \
    "s4 mixer.dt_own_rate=false" "s4 mixer.c_own_rate=true"; do
    of=${pair%% *} option=${pair#* } tried=$((tried + 1))
    case $of in mega) words=$mega ;; s5) words=$s5 ;; s4) words=$s4 ;; esac
    run "with$tried" $words "$option"
    ! cmp -s "$(weights "$of")" "$(weights "with$tried")" || fail "$option of $of has no effect"
done
run each $mega model.dropout=0.3
run tied $mega model.dropout=0.3 model.dropout_tied=true
! cmp -s "$(weights each)" "$(weights tied)" || fail "model.dropout_tied has no effect"

# shapes: one column for the numbers in place of one for each token, and the classifier's layer between
shape() { # RUN NAME
    tr -d ' ' <"$(weights "$1")" | grep -a -o "\"$2\":{\"dtype\":\"F32\",\"shape\":\[[0-9,]*\]" | sed 's/.*\[//; s/\]//'
}
run shaped $mega model.head_hidden=12 model.numbers=true
classes=$(shape mega head.weight | cut -d, -f1)
for wanted in "mega head.weight $classes,16" "shaped head.weight $classes,12" "shaped head.hidden.weight 12,16" \
    "shaped embed.weight 16,1"; do
    set -- $wanted
    [ "$(shape "$1" "$2")" = "$3" ] || fail "$2 of $1: '$(shape "$1" "$2")', not $3"
done

# at a learning rate of 0 the weights stay the initial ones, with which an evaluation scores the same
still="train.lr=0 train.weight_decay=0"
run without $mega $still
run dropped $mega $still mixer.dropout=0.3 mixer.hidden_dropout=0.3 model.dropout=0.3 model.embedding_dropout=0.3 \
    model.mixer_dropout=0.3 model.dropout_tied=true
for name in without dropped; do
    "$program" eval $name eval.lengths=32 eval.samples=16 --quiet | awk "NR == 2 { print \$3, \$4, \$6 }" >$name.txt
done
{ [ -s without.txt ] && cmp -s without.txt dropped.txt; } || fail "dropout acts in an evaluation"
[ $failures = 0 ]
