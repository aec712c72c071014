#!/bin/sh
# Extensions that are trained with: recorded with the weights, and used by whatever is done with them later, without
# being told. Another one at test stands behind it or in its place, and that is said.
# Tier: slow.
set -u
program=$(realpath "$1")
. "$(dirname "$0")/scratch.sh"
export OMP_NUM_THREADS=1
write_text 800
model="model.layers=1 model.width=32 mixer.heads=2 model.position=rope model.norm=rms model.activation=swiglu model.bias=false"
common="data.corpus=text.txt train.batch=2 train.steps=4 --quiet"
"$program" train $common $model model.length=32 out=base >/dev/null 2>err.txt || fail "base: $(cat err.txt)"
extended="train.from=base extend=yarn extend.factor=4 model.length=128"
"$program" train $common $extended out=yarn >/dev/null 2>err.txt || fail "yarn: $(cat err.txt)"

loss() { # MODEL words
    "$program" eval "$@" eval.lengths=128 eval.tokens=1024 data.corpus=text.txt --json 2>said.txt |
        python3 -c 'import json, sys; print(repr(json.load(sys.stdin)["results"][0]["loss"]))'
}
own=$(loss yarn)
# the same weights with the extension given by hand, and without one
mkdir -p bare/checkpoints && cp -r yarn/checkpoints/step-00000004 bare/checkpoints/ && rm bare/checkpoints/*/manifest.json
grep -v extend yarn/config.yaml | grep -v '^  \(factor\|beta_\|original\|ramp\|attention_factor\|truncate\)' >bare/config.yaml
[ "$own" = "$(loss bare/checkpoints/step-00000004 extend=yarn extend.factor=4 extend.original=32)" ] ||
    fail "the extension of the training is not the one of the test"
[ "$own" = "$(loss bare/checkpoints/step-00000004)" ] && fail "the extension has no effect, so nothing is tested"

# in the files of others: rope_scaling, and a GGUF file's keys
"$program" export yarn out=hf >/dev/null 2>err.txt || fail "export: $(cat err.txt)"
python3 - <<'P' || fail "rope_scaling"
import json
config = json.load(open("hf/config.json"))
scaling = config["rope_scaling"]
assert config["max_position_embeddings"] == 128, config
assert scaling["rope_type"] == "yarn" and scaling["factor"] == 4, scaling
assert scaling["original_max_position_embeddings"] == 32, scaling
P
"$program" export yarn to=gguf out=y.gguf >/dev/null 2>err.txt || fail "gguf: $(cat err.txt)"
for file in hf y.gguf; do
    [ "$own" = "$(loss $file)" ] || fail "$file computes something else"
done
"$program" inspect ./yarn | grep -q 'extend.yarn.trained_length=32' || fail "inspect"

# going on: the same command resumes, another training inherits
"$program" train $common $extended out=yarn >out.txt 2>err.txt && "$program" train $common train.from=yarn out=on >/dev/null 2>err.txt ||
    fail "going on: $(cat err.txt)"
grep -q '^extend: yarn' on/config.yaml && grep -q 'trained_length: 32' on/config.yaml || fail "a training that goes on has lost it"

# another form of it at test, another method behind it; both are said
wide=$(loss yarn extend.factor=8)
grep -q 'extend.yarn.factor=8 takes the place of 4' said.txt || fail "not said: $(cat said.txt)"
[ "$wide" = "$(loss yarn extend=yarn extend.factor=8)" ] || fail "two ways to say one thing differ"
[ "$wide" = "$(loss bare/checkpoints/step-00000004 extend=yarn extend.factor=8 extend.original=32)" ] || fail "a rescaled extension is measured by another length"
loss yarn extend=window extend.window=16 >/dev/null
grep -q 'extend=window acts behind the yarn that yarn has itself' said.txt || fail "not said: $(cat said.txt)"

refuses() { # WORDS, train words
    words=$1
    shift
    "$program" train $common "$@" out=refused >/dev/null 2>err.txt
    [ $? -eq 2 ] || fail "accepted: $*"
    grep -q "$words" err.txt || fail "$*: $(cat err.txt)"
}
refuses 'did you mean yarn' train.from=base extend=yarm
refuses 'must be a length' train.from=base extend=window extend.trained_length=0
refuses 'has no effect' train.from=base extend=interpolation extend.trained_length=16
# rules that measure by the trained length alone cannot be said to others
"$program" train $common train.from=base extend=ntk extend.dyn=fixed model.length=128 out=ntk >/dev/null 2>err.txt || fail "ntk"
"$program" export ntk out=hf-ntk >/dev/null 2>err.txt && fail "an export that computes something else"
grep -q 'trained_length' err.txt || fail "ntk: $(cat err.txt)"

# a study: arms that go on from another arm, in any order, with its seeds
cat >study.yaml <<Y
seeds: [1, 2]
model: {layers: 1, width: 32, length: 32, position: rope}
mixer: {heads: 2}
data: {corpus: text.txt}
train: {steps: 2, batch: 2}
eval: {lengths: [128], tokens: 512}
arms:
  pi: {from: base, extend: interpolation, extend.factor: 4, model.length: 128, train.steps: 2}
  base: {train.steps: 3}
  frozen: {from: base, extend: interpolation}
  rescaled: {from: pi, extend: interpolation, extend.factor: 8}
  on: {from: pi, train.steps: 1}
Y
"$program" study study.yaml check=true >out.txt 2>err.txt || fail "check: $(cat err.txt)"
"$program" study study.yaml out=s jobs=1 --quiet >/dev/null 2>err.txt || fail "a study: $(cat err.txt)"
python3 - <<'P' || fail "results.json"
import json
arms = {a["name"]: a for a in json.load(open("s/results.json"))["arms"]}
assert [arms[n]["trained_length"] for n in ("base", "pi", "frozen", "rescaled", "on")] == [32, 128, 32, 128, 128], arms
assert arms["pi"]["begins_with"] == "base" and arms["on"]["begins_with"] == "pi" and arms["rescaled"]["from"] == "pi"
assert arms["pi"]["tokens_trained"] == 2 * 2 * 128
P
grep -q "from: 's/arms/base/seed-2'" s/arms/pi/seed-2/config.yaml || fail "an arm begins with another seed's weights"
grep -q 'extend: interpolation' s/arms/on/seed-1/config.yaml || fail "an arm that goes on has lost the extension"
[ $failures -eq 0 ]
