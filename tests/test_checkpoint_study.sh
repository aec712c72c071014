#!/bin/sh
# Checkpoints in studies, in generate and in export, through the program: arms that open one or train
# it on; how its tokens are drawn; what is refused.
set -u
program=$1
source=$2
golden=$source/tests/golden/checkpoints
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failures=0
fail() {
    echo "FAILED: $*" >&2
    failures=$((failures + 1))
}
awk 'BEGIN { for (i = 0; i < 300; i++) print "line " i " of a text that models read" }' >"$work/text.txt"
data="data.corpus=$work/text.txt cache=$work/cache"

# ---- the study of one checkpoint, at small size ----
cd "$source" || exit 1
"$program" study studies/checkpoint.yaml eval.lengths=24,48 eval.tokens=96 out="$work/study" $data \
    >"$work/out" 2>"$work/err" || fail "studies/checkpoint.yaml: $(grep longshot: "$work/err")"
[ "$(grep -c '"name"' "$work/study/results.json")" -eq 7 ] || fail "not seven arms"
grep -q '1 arm from checkpoints at 192 tokens, 6 more' "$work/study/report.html" ||
    fail "the page does not say that a checkpoint was opened"
grep -q '"parameters": 15960' "$work/study/results.json" || fail "parameters of the checkpoint"
[ ! -e "$golden/llama-llama3-sharded/eval" ] || fail "the study wrote into the checkpoint"
[ "$(grep -c '"dtype": "f32"' "$work/study/results.json")" -eq 7 ] || fail "no dtype in results.json"
cp "$work/study/results.json" "$work/before.json"
"$program" study studies/checkpoint.yaml eval.lengths=24,48 eval.tokens=96 out="$work/study" $data \
    >/dev/null 2>"$work/err" || fail "again"
grep -q '0 of 7 jobs to do' "$work/err" || fail "evaluations were made again"
cmp -s "$work/before.json" "$work/study/results.json" || fail "results.json changed"

# ---- its arithmetic: of all arms, or of one ----
cat >"$work/in.yaml" <<END
eval: {lengths: 24, tokens: 96}
suites: passkey
suite: {samples: 1, depths: 1, lengths: 192, candidates: 2, resamples: 2}
arms:
  own: {from: $golden/llama-llama3-sharded}
  bca: {from: own, extend: bca}
END
study_in() { # keys
    "$program" study "$work/in.yaml" out="$work/in" $data "$@" \
        >"$work/out" 2>"$work/err" || fail "$*: $(grep longshot: "$work/err")"
}
own_loss() {
    sed 's/"[^"]*"//g' "$work/in/results.csv" | awk -F, '$1 == "own" { print $12; exit }'
}
study_in dtype=bf16
grep -q 'Evaluated in bf16' "$work/in/report.html" || fail "the page does not say bf16"
[ "$(grep -c '"dtype": "bf16"' "$work/in/results.json")" -eq 3 ] || fail "bf16 in results.json"
bf16=$(own_loss)
asked() {
    sed -n 's/^ *"logprob": \(.*\),$/\1/p' "$work/in/arms/own/seed-1/suite-passkey.json" | head -1
}
asked_bf16=$(asked)
"$program" eval "$golden/llama-llama3-sharded" eval.lengths=24 eval.tokens=96 $data dtype=bf16 \
    --json >"$work/eval.json" || fail "eval in bf16"
grep -q '"dtype": "bf16"' "$work/eval.json" || fail "eval does not tell its arithmetic"
said=$(sed -n 's/^ *"loss": \([0-9.]*\),$/\1/p' "$work/eval.json" | head -1)
[ "$said" = "$bf16" ] || fail "the study has $bf16 in bf16, eval $said"
study_in arms.bca.dtype=f64
grep -q '4 of 4 jobs to do' "$work/err" || fail "results in bf16 were taken for f32"
[ "$(own_loss)" != "$bf16" ] || fail "bf16 changed nothing"
[ -n "$asked_bf16" ] && [ "$(asked)" != "$asked_bf16" ] || fail "bf16 changed nothing in a suite"
grep -q 'Evaluated in' "$work/in/report.html" && fail "one arithmetic was said of two"
grep -q '"dtype": "f64"' "$work/in/results.json" || fail "an arm has no arithmetic of its own"
for bad in dtype=f16 arms.bca.dtype=half; do
    "$program" study "$work/in.yaml" out="$work/in" $data $bad >/dev/null 2>"$work/err"
    [ $? -eq 2 ] && grep -q 'bf16' "$work/err" || fail "$bad: $(head -1 "$work/err")"
done

# ---- trained on, a run, and what they are compared with ----
cat >"$work/arms.yaml" <<END
seeds: [1, 2]
train: {batch: 2, length: 16, dtype: f32}
eval: {lengths: [16, 24], tokens: 96}
arms:
  own: {from: $golden/gpt2, train.steps: 0}
  tuned: {from: $golden/gpt2, train.steps: 2}
  tuned-window: {from: tuned, extend: window, extend.window: 4}
  run: {from: $work/runs/arms/tuned/seed-2}
  run-window: {from: $work/runs/arms/tuned/seed-2, extend: window, extend.window: 4}
END
sed '/run/d' "$work/arms.yaml" >"$work/runs.yaml" # first the runs that the others open
"$program" study "$work/runs.yaml" out="$work/runs" $data >"$work/out" 2>"$work/err" ||
    fail "arms from a checkpoint: $(grep longshot: "$work/err")"
"$program" study "$work/arms.yaml" out="$work/runs" $data >"$work/out" 2>"$work/err" ||
    fail "arms from a run: $(grep longshot: "$work/err")"
loss() { # arm
    sed 's/"[^"]*"//g' "$work/runs/results.csv" | awk -F, -v arm="$1" '$1 == arm { print $12; exit }'
}
[ -n "$(loss own)" ] && [ "$(loss own)" != "$(loss tuned)" ] || fail "two steps changed nothing"
[ "$(loss run)" != "$(loss run-window)" ] || fail "a window on a run changed nothing"
grep -q '"checkpoint": ' "$work/runs/results.json" || fail "results.json does not name the checkpoint"
"$program" study "$work/arms.yaml" check=true $data >"$work/out" 2>&1 || fail "check=true"
awk '$1 == "own" { own = $3 " " $4 " " $5 } $1 == "tuned" { ok = $3 " 0 -" == own && $4 == 64 && $5 > 0 }
    END { exit !ok }' "$work/out" || fail "check=true: parameters, tokens, memory: $(cat "$work/out")"
trained=$(sed -n 's/^ *"name": "\(.*\)",$/\1/p; s/^ *"trained_length": \([0-9]*\),$/\1/p' \
    "$work/runs/results.json" | paste -sd ' ')
case " $trained " in
    *" own 48 tuned 16 tuned-window 16 "*) ;;
    *) fail "trained lengths of arms: $trained" ;;
esac

refused() { # what the sentence has, arm
    printf 'eval: {lengths: 16}\narms:\n  a: {%s}\n' "$2" >"$work/bad.yaml"
    "$program" study "$work/bad.yaml" out="$work/bad" $data >/dev/null 2>"$work/err"
    [ $? -eq 2 ] || fail "accepted: $2"
    grep -q "$1" "$work/err" || fail "$2: $(head -1 "$work/err")"
}
refused 'no such arm, nor a folder' "from: $work/nothing"
refused 'give train.steps to train it on' "from: $golden/gpt2, train.lr: 1e-3"
refused 'did you mean window' "from: $golden/gpt2, train.steps: 1, extend: windwo"
refused 'is for training' "from: $golden/gpt2, mixer.heads: 2"
# each section of an arm is read as what the checkpoint is
refused 'choose one of shuffled' "from: $golden/gpt2, train.steps: 1, data.loader: nonsense"
refused 'choose one of f32' "from: $golden/gpt2, train.steps: 1, train.dtype: f17"
refused 'train.length=-1 is out of range' "from: $golden/gpt2, train.steps: 1, train.length: -1"
refused 'there is no protocol nonsense' "from: $golden/gpt2, eval.protocol: nonsense"
refused 'eval.tokens=-1 is out of range' "from: $golden/gpt2, eval.tokens: -1"
refused 'no task was trained' "from: $golden/gpt2, task.length: 5"
refused 'there is no suite nothing' "from: $golden/gpt2, suites: [nothing]"
refused 'there is no key data.nothing' "from: $golden/gpt2, data.nothing: 1"

# ---- how tokens are drawn ----
generate() {
    "$program" generate "$work/drawn" prompt=text tokens=8 "$@" 2>"$work/err"
}
"$program" export "$golden/gpt2" out="$work/drawn" >/dev/null || fail "export gpt2"
greedy=$(generate)
grep -q 'most likely token' "$work/err" || fail "greedy as the file says, unsaid"
[ "$greedy" = "$(generate temperature=0)" ] || fail "no do_sample is not greedy"
echo '{"do_sample": true, "temperature": 2.5, "top_k": 40, "min_p": 0.1}' \
    >"$work/drawn/generation_config.json"
drawn=$(generate)
grep -q 'temperature=2.5 top_k=40 top_p=1' "$work/err" || fail "the file's sampling is not said"
grep -q 'min_p, which is not followed' "$work/err" || fail "min_p is not said"
[ "$drawn" = "$(generate temperature=2.5 top_k=40 top_p=1)" ] || fail "the file's sampling"
[ "$greedy" = "$(generate top_k=1)" ] || fail "a key does not override the file"
echo '{"do_sample": true, "temperature": -1}' >"$work/drawn/generation_config.json"
generate >/dev/null
[ $? -eq 3 ] || fail "a temperature below 0"

# ---- export, through the program ----
"$program" export "$golden/gpt2" out="$work/drawn" >/dev/null 2>"$work/err"
[ $? -eq 2 ] && grep -q 'is there already: name another out=' "$work/err" || fail "a folder was overwritten"
"$program" export "$golden/llama-llama3-sharded" out="$work/half" dtype=bf16 >/dev/null ||
    fail "export in bf16"
"$program" inspect "$work/half/model.safetensors" | grep -q bf16 -i || fail "not bf16"
"$program" export "$golden/gpt2" out="$work/other" family=llama >/dev/null 2>"$work/err"
[ $? -eq 2 ] && grep -q 'is no llama' "$work/err" || fail "gpt2 as llama"
"$program" export "$golden/gpt2" to=gguf out="$work/gpt2.gguf" dtype=q8_0 tokenizer=false >/dev/null ||
    fail "export as GGUF"
# a tokenizer that came in a GGUF file goes on in one, of whatever kind it is
"$program" train model.layers=1 model.width=16 mixer.heads=2 model.position=rope model.norm=rms \
    model.activation=swiglu model.bias=false train.steps=0 train.length=16 out="$work/small" $data \
    >/dev/null 2>&1 || fail "a run for GGUF"
"$program" export "$work/small" to=gguf out="$work/own.gguf" >/dev/null || fail "a run as GGUF"
sed 's/gpt-2/qwen2/' "$work/own.gguf" >"$work/other.gguf" # its words are other ones then
"$program" export "$work/other.gguf" to=gguf out="$work/again.gguf" >/dev/null || fail "GGUF to GGUF"
grep -q qwen2 "$work/again.gguf" || fail "another tokenizer was written"
tokens() {
    "$program" tokenize "$1" text="Don't stop:  3 cafés, 12" --json
}
[ -n "$(tokens "$work/other.gguf")" ] && [ "$(tokens "$work/other.gguf")" = "$(tokens "$work/again.gguf")" ] ||
    fail "the tokenizer of a GGUF file that was written again"
"$program" eval "$golden/llama-llama3-sharded" eval.lengths=16 extend.llama3.factor=2 $data \
    >/dev/null 2>"$work/err" || fail "an override"
grep -q 'extend.llama3.factor=2 takes the place of 8' "$work/err" || fail "an override is not said"

[ $failures -eq 0 ] && echo "checkpoints in studies, generate and export: fine"
exit $((failures > 0))
