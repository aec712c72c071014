#!/bin/sh
# Folders of public checkpoints: what they hold agrees with the code they come from, every verb that
# takes a model takes them, and what is not understood is refused by name.
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

# ---- values ----
# more folders of this kind: tests/golden/make/checkpoints.py; gguf-types holds no model
for expected in "$golden"/*/expected.safetensors \
    ${LONGSHOT_CHECKPOINTS:+"$LONGSHOT_CHECKPOINTS"/*/expected.safetensors}; do
    folder=${expected%/*}
    [ "${folder##*/}" != gguf-types ] || continue
    "$program" apply model from="$folder" golden="$expected" tol=1e-9 grad_tol=1e-8 ||
        fail "$folder in f64"
    "$program" apply model from="$folder" golden="$expected" dtype=f32 tol=1e-4 grad_tol=1e-3 \
        >/dev/null || fail "$folder in f32"
    # and the comparison can fail
    "$program" apply model from="$folder" golden="$expected" tol=1e-19 >/dev/null 2>&1
    [ $? -eq 1 ] || fail "$folder with a tolerance that nothing meets"
done
"$program" apply model from="$golden/gpt2" golden="$golden/gpt_neox-parallel/expected.safetensors" \
    >/dev/null 2>&1 && fail "another model's values"

# ---- verbs ----
awk 'BEGIN { for (i = 0; i < 400; i++) print "line " i " of a text that models read" }' >"$work/text.txt"
for family in gpt2 llama-llama3-sharded; do
    folder=$golden/$family
    "$program" generate "$folder" prompt=text tokens=5 temperature=0 >"$work/out" ||
        fail "generate $family"
    grep -q '^text' "$work/out" || fail "generate $family does not begin with the prompt"
    "$program" inspect "$folder" >"$work/out" || fail "inspect $family"
    grep -q 'model.vocabulary=300' "$work/out" || fail "inspect $family does not describe the model"
    "$program" eval "$folder" data.corpus="$work/text.txt" eval.lengths=16 cache="$work/cache" \
        >"$work/out" || fail "eval $family"
    [ ! -e "$folder/eval" ] || fail "eval $family wrote into the checkpoint"
done
# what inspect foresees is what eval takes
foreseen() { # KEY: its value in f32
    sed -n '/"f32": {/,/}/s/^ *"'"$1"'": \([0-9]*\),*$/\1/p' "$work/inspect.json"
}
"$program" inspect "$folder" --json >"$work/inspect.json"
"$program" eval "$folder" data.corpus="$work/text.txt" eval.lengths=192 eval.batch=1 \
    cache="$work/cache" dtype=f32 --json >"$work/eval.json"
grep -q "\"state_bytes\": $(foreseen state)," "$work/eval.json" || fail "the state that inspect foresees"
weights=$(foreseen weights) # 15,960 parameters, and what describes them
[ "$weights" -ge 63840 ] && [ "$weights" -lt 90000 ] || fail "inspect foresees weights of $weights bytes"
[ "$(foreseen scoring)" -gt "$(foreseen state)" ] || fail "inspect foresees no memory for scoring"
eval_loss() { # FOLDER arguments: the loss
    "$program" eval "$@" data.corpus="$work/text.txt" eval.lengths=40 cache="$work/cache" --json |
        sed -n 's/^ *"loss": \(.*\),$/\1/p' | head -1
}
own=$(eval_loss "$golden/llama-llama3-sharded")
with=$(eval_loss "$golden/llama-llama3-sharded" extend=window extend.window=8)
other=$(eval_loss "$golden/llama-llama3-sharded" extend=llama3 extend.factor=1)
[ -n "$own" ] && [ "$own" != "$with" ] && [ "$own" != "$other" ] && [ "$with" != "$other" ] ||
    fail "extensions of a checkpoint: $own $with $other"
"$program" eval "$golden/gpt_neox-parallel" data.corpus="$work/text.txt" 2>"$work/out" &&
    fail "eval without a tokenizer"
grep -q 'no tokenizer' "$work/out" || fail "eval without a tokenizer does not say so"

# training goes on from the checkpoint: no step changes nothing, and the run opens
"$program" train train.from="$golden/gpt2" data.corpus="$work/text.txt" train.steps=0 \
    train.length=16 out="$work/run" cache="$work/cache" >/dev/null 2>&1 || fail "train from gpt2"
[ "$(eval_loss "$work/run")" = "$(eval_loss "$golden/gpt2")" ] || fail "weights after 0 steps"
# keys that are given go before the checkpoint's, or beside them, and that is said
"$program" train train.from="$golden/gpt2" data.corpus="$work/text.txt" train.steps=0 \
    model.activation=relu mixer.window=8 train.length=16 out="$work/keys" cache="$work/cache" \
    >/dev/null 2>"$work/out" || fail "train from gpt2 with keys"
grep -q 'model.activation=relu goes before the gelu_tanh of' "$work/out" &&
    grep -q 'mixer.window=8 is given beside what .* says' "$work/out" ||
    { fail "keys beside a checkpoint are not said:"; cat "$work/out" >&2; }
! grep -q 'train.length=16' "$work/out" || fail "keys of the training are said"

# as many layers with labels as there may be are listed
layers=$(awk 'BEGIN { for (i = 0; i < 60; i++) printf "%sattention:near,attention", i ? "," : "" }')
"$program" train model.layers="$layers" mixer.near.window=4 model.width=8 mixer.heads=1 \
    model.position=rope data.corpus="$work/text.txt" data.tokenizer=byte train.steps=0 \
    train.length=16 out="$work/deep" cache="$work/cache" >/dev/null 2>&1 || fail "120 layers"
[ -n "$(eval_loss "$work/deep")" ] || fail "eval of 120 layers"

# ---- GGUF ----
gguf=$golden/gguf-llama/model.gguf
"$program" inspect "$gguf" >"$work/out" || fail "inspect $gguf"
grep -q 'family llama' "$work/out" && grep -q 'position.base=5000' "$work/out" &&
    grep -q 'attn_q.weight *Q8_0 *\[32, 32\]' "$work/out" || fail "inspect does not describe a GGUF file"
"$program" inspect "$2/tests/golden/gguf-types.gguf" >"$work/out" || fail "inspect gguf-types"
grep -q 'Q4_K *Q4_K *\[1, 256\]' "$work/out" || fail "inspect does not list the tensors of a GGUF file"
"$program" eval "$gguf" data.corpus="$work/text.txt" 2>"$work/out" && fail "eval of a GGUF file without a tokenizer"
grep -q 'no tokenizer' "$work/out" || fail "a GGUF file without a tokenizer is not said to be one"
# with a tokenizer that is given, training goes on from the file: no step changes nothing
"$program" train train.from="$gguf" data.tokenizer="$golden/gpt2" data.corpus="$work/text.txt" \
    train.steps=0 train.length=16 out="$work/gguf-run" cache="$work/cache" >/dev/null 2>"$work/out" &&
    fail "a tokenizer with more ids than a GGUF file's model"
refuses_gguf() { # WORDS, OLD, NEW of the same length: the changed file is refused with the words
    LC_ALL=C sed "s/$2/$3/" "$gguf" >"$work/changed.gguf"
    "$program" inspect "$work/changed.gguf" >/dev/null 2>"$work/out" &&
        "$program" generate "$work/changed.gguf" tokens=1 >/dev/null 2>"$work/out" &&
        fail "accepted: $1"
    grep -q "$1" "$work/out" || { fail "no \`$1\` in:"; cat "$work/out" >&2; }
}
refuses_gguf 'architecture `lxama` is not known' 'llama' 'lxama'
refuses_gguf 'llama.rope.freq_bose' 'rope.freq_base' 'rope.freq_bose'
refuses_gguf 'other.block_count' 'llama.block_count' 'other.block_count'
refuses_gguf 'no place' 'blk.0.ffn_gate' 'blk.0.ffn_gatx'
refuses_gguf 'token_embd' 'token_embd' 'token_embx'
refuses_gguf 'no GGUF' '^GGUF' 'GGML'
refuses_gguf 'this is no model' 'general.architecture' 'general.architectura'
# a file in parts opens by the first, and only with all of them
parts=$golden/gguf-llama/split
"$program" apply model from="$parts/model-00001-of-00003.gguf" tol=1e-9 \
    golden="$golden/gguf-llama/expected.safetensors" >/dev/null || fail "a GGUF file in parts"
"$program" generate "$parts/model-00002-of-00003.gguf" tokens=1 2>"$work/out"
[ $? -eq 3 ] && grep -q 'open the first, ...-00001-of-00003.gguf' "$work/out" ||
    fail "the second part of a GGUF file"
mkdir "$work/parts" && cp "$parts"/model-0000[12]-of-00003.gguf "$work/parts"
"$program" generate "$work/parts/model-00001-of-00003.gguf" tokens=1 2>"$work/out"
[ $? -eq 3 ] && grep -q '00003-of-00003.gguf' "$work/out" || fail "a GGUF file without its last part"
cp "$parts/model-00002-of-00003.gguf" "$work/parts/model-00003-of-00003.gguf"
"$program" generate "$work/parts/model-00001-of-00003.gguf" tokens=1 2>"$work/out"
[ $? -eq 3 ] && grep -q 'is part 2 of 3' "$work/out" || fail "a part of a GGUF file twice"
head -c 9000 "$gguf" >"$work/changed.gguf"
"$program" inspect "$work/changed.gguf" >/dev/null 2>"$work/out"
[ $? -eq 3 ] && grep -q 'leaves the file' "$work/out" || fail "a GGUF file that was cut"


# ---- refusals ----
copy() { # FAMILY: a fresh copy in $work/model
    rm -rf "$work/model"
    cp -r "$golden/$1" "$work/model"
    chmod -R u+w "$work/model"
}
refuses() { # WORDS: the folder is not opened, and the message has them
    "$program" inspect "$work/model" >/dev/null 2>"$work/out" &&
        "$program" generate "$work/model" tokens=1 >/dev/null 2>"$work/out" &&
        fail "accepted: $1"
    grep -q "$1" "$work/out" || { fail "no \`$1\` in:"; cat "$work/out" >&2; }
}
edit() { # SED WORDS: config.json of a copy of gpt2 is refused after the edit
    copy gpt2
    sed -i "$1" "$work/model/config.json"
    refuses "$2"
}
edit 's/"model_type": "gpt2"/"model_type": "codegen"/' 'four groups'
edit 's/"model_type": "gpt2"/"model_type": "unheard"/' 'family `unheard` is not known'
edit '/"model_type"/d' 'model_type'
edit 's/"n_embd": 24/"n_embd": 24, "new_trick": true/' 'new_trick'
edit 's/"n_embd": 24/"n_embd": 24, "quantization_config": {}/' 'quantization_config'
edit 's/"n_embd": 24/"n_embd": 24, "num_experts": 8/' 'experts'
edit 's/"n_embd": 24/"n_embd": -24/' 'must be 1 to 65536'
edit 's/"n_embd": 24/"n_embd": 2.4e1/' 'must be a whole number'
edit 's/"n_embd": 24/"n_embd": 99999999999999999999/' 'config.json'
edit 's/"n_embd": 24/"n_embd": 24, "hidden_size": 32/' 'contradict'
edit 's/"n_embd": 24/"n_embd": 24, "n_embd": 24/' 'duplicate'
edit 's/"n_embd": 24/"n_embd": 25/' 'do not divide'
edit 's/"n_head": 3/"n_head": 0/' 'must be 1 to 4096'
edit 's/"n_layer": 2/"n_layer": 1/' 'no parameter\|no place'
edit 's/"n_layer": 2/"n_layer": 3/' 'not given whole'
edit 's/"n_inner": 40/"n_inner": 48/' 'mlp.c_proj'
edit 's/"gelu_new"/"gelu_odd"/' 'gelu_odd'
edit 's/"gelu_new"/7/' 'must be a text'
edit 's/"scale_attn_by_inverse_layer_idx": false/"scale_attn_by_inverse_layer_idx": true/' 'depends on the layer'
edit 's/"add_cross_attention": false/"add_cross_attention": 0/' 'true or false'
copy gpt2
echo '[1, 2]' >"$work/model/config.json"
refuses 'no object'
copy gpt2
rm "$work/model/model.safetensors"
refuses 'neither model.safetensors'
: >"$work/model/pytorch_model.bin"
refuses 'convert it'

index=$work/model/model.safetensors.index.json
llama() { # SED FILE WORDS
    copy llama-llama3-sharded
    sed -i "$1" "$work/model/$2"
    refuses "$3"
}
llama 's/"model.norm.weight": "[^"]*"/"model.norm.weight": "..\/other.safetensors"/' \
    model.safetensors.index.json 'in no file of this folder'
llama 's/"model.norm.weight": "[^"]*"/"model.norm.weight": 3/' model.safetensors.index.json \
    'in no file of this folder'
llama 's/"model.norm.weight"/"model.other.weight"/' model.safetensors.index.json 'of which the files hold'
llama 's/"weight_map"/"map"/' model.safetensors.index.json 'weight_map'
llama 's/"llama3"/"llama9"/' config.json 'llama9'
llama 's/"factor": 8.0,//' config.json 'no factor'
llama 's/"factor": 8.0/"factor": -8.0/' config.json 'factor'
llama 's/"rope_scaling": {/"rope_scaling": {"x": 1}, "rope_scalings": {/' config.json 'rope_scalings'
llama 's/"tie_word_embeddings": true/"tie_word_embeddings": false/' config.json 'lm_head.weight is missing'
copy llama-llama3-sharded # a tensor that the index does not name is not there
sed -i '/"model.norm.weight"/d; s/\("model.layers.1.self_attn.v_proj.weight": "[^"]*"\),/\1/' "$index"
refuses 'norm.weight'
copy llama-llama3-sharded
rm "$work/model/model-00002-of-00003.safetensors"
refuses 'model-00002-of-00003'

[ "$failures" -eq 0 ]
