#!/bin/sh
# Runs with low-rank adapters: stored alone, opened on their base and on no other, merged by export, trained under an
# extension, cut and resumed to the same bytes; arms of a study. (Gradients and merging: test_lora.c.)
# Tier: slow.
set -u
program=$(realpath "$1")
. "$(dirname "$0")/scratch.sh"
export OMP_NUM_THREADS=1
write_text 800
model="model.layers=2 model.width=32 mixer.heads=2 model.position=rope model.norm=rms model.activation=swiglu model.bias=false"
common="data.corpus=text.txt train.batch=2 train.lr=1e-2 train.warmup=0 --quiet"
"$program" train $common $model model.length=32 train.steps=6 out=base >/dev/null 2>err.txt || fail "base: $(cat err.txt)"
lora="train.from=base train.lora.rank=2 train.lora.norms=true train.lora.embeddings=true train.lora.dropout=0.1 train.steps=8"
"$program" train $common $lora extend=yarn model.length=64 out=run >/dev/null 2>err.txt || fail "run: $(cat err.txt)"
"$program" train $common train.from=base train.lora.rank=2 train.steps=8 out=alone >/dev/null 2>err.txt || fail "alone: $(cat err.txt)"
[ -e run/checkpoints/step-00000008/model.safetensors ] && fail "the base is stored too"
python3 - <<'P' || fail "files of an adapter"
import json, struct
folder = "run/checkpoints/step-00000008/"
with open(folder + "adapter_model.safetensors", "rb") as f:
    names = json.loads(f.read(struct.unpack("<Q", f.read(8))[0]))
assert names["base_model.model.layers.1.mixer.qkv.lora_A.weight"]["shape"] == [2, 32], names
assert "base_model.model.embed.weight" in names and "base_model.model.norm.weight" in names, names
config = json.load(open(folder + "adapter_config.json"))
assert config["peft_type"] == "LORA" and config["r"] == 2 and "layers.0.mixer.out" in config["target_modules"]
assert "embed" in config["modules_to_save"], config
with open("alone/checkpoints/step-00000008/adapter_model.safetensors", "rb") as f:
    names = json.loads(f.read(struct.unpack("<Q", f.read(8))[0]))
assert all("lora_" in n for n in names if n != "__metadata__"), names
P

loss() {
    "$program" eval "$@" eval.lengths=64 eval.tokens=512 data.corpus=text.txt dtype=f32 --json 2>said.txt |
        python3 -c 'import json, sys; print(repr(json.load(sys.stdin)["results"][0]["loss"]))'
}
own=$(loss run)
[ "$own" = "$(loss base)" ] && fail "the adapter has no effect, so nothing is tested"
"$program" export run out=hf >/dev/null 2>err.txt || fail "export: $(cat err.txt)"
"$program" export run to=gguf out=run.gguf >/dev/null 2>err.txt || fail "gguf: $(cat err.txt)"
for file in hf run.gguf run/checkpoints/step-00000008; do
    [ "$own" = "$(loss $file)" ] || fail "$file computes something else: $own, $(loss $file)"
done
"$program" export run to=peft out=peft >/dev/null 2>err.txt || fail "peft: $(cat err.txt)"
grep -q 'self_attn.q_proj' peft/adapter_config.json || fail "peft's names"
# a folder of peft on a public base is read as the run itself: evaluated, written with, trained on
"$program" export base out=public >/dev/null 2>err.txt || fail "public: $(cat err.txt)"
"$program" train $common train.from=public train.lora.rank=2 train.lora.norms=true train.lora.embeddings=true \
    train.steps=8 out=lora >/dev/null 2>err.txt || fail "lora: $(cat err.txt)"
"$program" export lora to=peft out=folder >/dev/null 2>err.txt || fail "folder: $(cat err.txt)"
ours=$(loss lora) theirs=$(loss folder)
python3 -c "import sys; a, b = map(float, sys.argv[1:]); sys.exit(abs(a - b) > 1e-6 * a)" "$ours" "$theirs" ||
    fail "a folder of peft: $theirs, the run $ours"
[ "$theirs" = "$(loss public)" ] && fail "a folder of peft is its base"
"$program" generate folder prompt="line 3" tokens=4 >/dev/null 2>err.txt || fail "generate: $(cat err.txt)"
"$program" train $common train.from=folder train.steps=2 out=further >/dev/null 2>err.txt ||
    fail "train.from a folder of peft: $(cat err.txt)"
"$program" export base to=peft out=no >/dev/null 2>err.txt && fail "an adapter of a run without one"
[ -e no ] && fail "something was left"

# the base is found from elsewhere, and where lora.base says; another one is refused by its hash
(cd run && [ "$own" = "$("$program" eval . eval.lengths=64 eval.tokens=512 data.corpus=../text.txt dtype=f32 --json 2>/dev/null |
    python3 -c 'import json, sys; print(repr(json.load(sys.stdin)["results"][0]["loss"]))')" ]) || fail "the base is not found from the run's folder"
mv base moved
loss run >/dev/null 2>&1 && fail "an adapter without its base"
grep -q "run is an adapter of base (train.from), which is not there: say where it is with lora.base=PATH" said.txt || fail "$(cat said.txt)"
[ "$own" = "$(loss run lora.base=moved)" ] || fail "lora.base: $(cat said.txt)"
"$program" train $common $model model.length=32 train.steps=3 out=base >/dev/null 2>err.txt
loss run >/dev/null 2>&1 && fail "an adapter on other weights"
grep -q "was trained on other weights than those of" said.txt || fail "$(cat said.txt)"
rm -r base
mv moved base
loss base lora.base=run >/dev/null 2>&1 && fail "lora.base of a run that is no adapter"
grep -q "base is not an adapter" said.txt || fail "$(cat said.txt)"

# an adapter on an adapter
"$program" train $common train.from=run train.lora.rank=1 train.steps=2 out=second >/dev/null 2>err.txt || fail "second: $(cat err.txt)"
[ -n "$(loss second)" ] || fail "an adapter on an adapter: $(cat said.txt)"

# cut and resumed: the same bytes
"$program" train $common $lora extend=yarn model.length=64 train.checkpoint_every=3 out=whole >/dev/null 2>err.txt
"$program" train $common $lora extend=yarn model.length=64 train.checkpoint_every=3 out=cut >/dev/null 2>err.txt
rm -r cut/checkpoints/step-00000008
"$program" train $common $lora extend=yarn model.length=64 train.checkpoint_every=3 out=cut >/dev/null 2>err.txt || fail "resume: $(cat err.txt)"
for file in adapter_model.safetensors optimizer.safetensors; do
    cmp -s whole/checkpoints/step-00000008/$file cut/checkpoints/step-00000008/$file || fail "resumed to another $file"
done

# memory: what is frozen has neither gradient nor moments
bytes() {
    "$program" train $common model.preset=small model.vocabulary=256 train.steps=1 "$@" check=true --json |
        python3 -c 'import json, sys; print(json.load(sys.stdin)["bytes"])'
}
full=$(bytes) lora8=$(bytes train.from=nothing train.lora.rank=8)
[ $((lora8 * 10)) -lt $((full * 6)) ] || fail "an adapter takes $lora8 bytes, all weights $full"

# what cannot be
refuses() { # CODE WORDS words
    code=$1 words=$2
    shift 2
    "$program" "$@" >/dev/null 2>err.txt
    got=$?
    [ $got -eq $code ] && grep -q "$words" err.txt || fail "$*: $got, $(cat err.txt)"
}
refuses 2 'needs from' train $common $model train.lora.rank=2 train.steps=1 out=x
refuses 2 'lora.rank' train $common $model train.lora.alpha=2 train.from=base train.steps=1 out=x
refuses 2 '`nothing`' train $common train.from=base train.lora.rank=2 train.lora.targets=nothing train.steps=1 out=x
refuses 2 'all weights' train $common train.from=base train.from_part=true train.lora.rank=2 train.steps=1 out=x
mv base kept
refuses 3 'which is not there' eval run eval.tokens=64 eval.lengths=32
"$program" train $common $model model.length=32 train.steps=7 out=base >/dev/null 2>&1
refuses 3 'trained on other weights' eval run eval.tokens=64 eval.lengths=32
refuses 3 'trained on other weights' train $common $lora extend=yarn model.length=64 out=run
rm -r base && mv kept base
[ "$own" = "$(loss run)" ] || fail "the base is back, the run is not"

cat >study.yaml <<Y
model: {layers: 1, width: 32, length: 32, position: rope}
mixer: {heads: 2}
data: {corpus: text.txt}
train: {steps: 2, batch: 2}
eval: {lengths: [64], tokens: 256}
arms:
  base: {train.steps: 2}
  lora: {from: base, train.steps: 2, train.lora.rank: 2, extend: interpolation, model.length: 64}
  tested: {from: lora, extend: window, extend.window: 16}
Y
"$program" study study.yaml check=true >/dev/null 2>err.txt || fail "check: $(cat err.txt)"
"$program" study study.yaml out=s jobs=1 --quiet >/dev/null 2>err.txt || fail "a study: $(cat err.txt)"
[ -e s/arms/lora/seed-1/checkpoints/step-00000002/adapter_model.safetensors ] || fail "an arm with an adapter"
[ $failures -eq 0 ]
