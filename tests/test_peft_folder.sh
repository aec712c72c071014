#!/bin/sh
# Folders that peft writes: the logits of public code (tests/golden/lora-*.safetensors), merged and
# not, in f64 and in f32; trained on, evaluated, written with; fields that are not understood.
set -u
program=$1
source=$2
. "$2/tests/scratch.sh"
cat >make.py <<'P'
"""Folders base/ and adapter/ as transformers and peft write them, from a golden file."""
import json, os, struct, sys
path, into, precision = sys.argv[1:]
data = open(path, "rb").read()
size = struct.unpack("<Q", data[:8])[0]
header, data = json.loads(data[8:8 + size]), data[8 + size:]
about = header.pop("__metadata__")
config, adapter = json.loads(about["config"]), json.loads(about["adapter_config"])

def values(name):
    begin, end = header[name]["data_offsets"]
    return data[begin:end], header[name]["shape"], header[name]["dtype"]

def narrow(raw, dtype):
    if dtype != "F64" or precision == "F64":
        return raw, dtype
    numbers = struct.unpack("<%dd" % (len(raw) // 8), raw)
    return struct.pack("<%df" % len(numbers), *numbers), "F32"

def write(to, tensors):
    text, body = {}, b""
    for name in sorted(tensors):
        raw, shape, dtype = tensors[name]
        raw, dtype = narrow(raw, dtype)
        text[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(body), len(body) + len(raw)]}
        body += raw
    text = json.dumps(text).encode()
    open(to, "wb").write(struct.pack("<Q", len(text)) + text + body)

base, lora = {}, {}
for name in header:
    if name.startswith("w.base_model.model."):
        short = name[len("w.base_model.model."):]
        if ".lora_" in short:
            lora["base_model.model." + short.replace(".default.", ".")] = values(name)
        else:
            base[short.replace(".base_layer.", ".")] = values(name)
os.makedirs(into + "/base"), os.makedirs(into + "/adapter")
json.dump({"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_act": "silu",
           "hidden_size": config["d"], "intermediate_size": config["inner"], "vocab_size": config["vocab"],
           "num_hidden_layers": config["layers"], "num_attention_heads": config["heads"],
           "num_key_value_heads": config["kv"], "rms_norm_eps": config["rms_norm_eps"],
           "rope_theta": config["base"], "max_position_embeddings": 64, "tie_word_embeddings": False},
          open(into + "/base/config.json", "w"))
write(into + "/base/model.safetensors", base)
adapter["base_model_name_or_path"] = into + "/base"
json.dump(adapter, open(into + "/adapter/adapter_config.json", "w"))
write(into + "/adapter/adapter_model.safetensors", lora)
merged = {n[len("out.merged."):]: values(n) for n in header if n.startswith("out.merged.")}
os.makedirs(into + "/merged")
write(into + "/merged/model.safetensors", {**base, **merged})
open(into + "/merged/config.json", "w").write(open(into + "/base/config.json").read())
precision = "F64"
def expect(to, out):
    write(to, {"a.input_ids": values("in.tokens"), "a.logits64": values(out)})
expect(into + "/with.safetensors", "out.y")
expect(into + "/without.safetensors", "out.base")
P
# transformers in f32 is 7.9e-6 of the largest logit from these values, which were made in f64; twice that is allowed
narrow=1.6e-5
for name in lora-llama lora-longlora; do
    for precision in F64 F32; do
        tol=1e-11
        type=f64
        [ $precision = F32 ] && tol=$narrow type=f32
        rm -rf case
        python3 make.py "$source/tests/golden/$name.safetensors" case $precision || fail "$name: folders"
        for folder in adapter merged; do
            "$program" apply model from=case/$folder golden=case/with.safetensors dtype=$type \
                tol=$tol >out 2>&1 || { cat out >&2; fail "$name $folder in $type"; }
        done
        "$program" apply model from=case/base golden=case/without.safetensors dtype=$type tol=$tol \
            >out 2>&1 || { cat out >&2; fail "$name without its adapter in $type"; }
        "$program" apply model from=case/adapter golden=case/without.safetensors dtype=$type tol=1e-3 \
            >/dev/null 2>&1 && fail "$name: the adapter does nothing"
    done
done
# used as any checkpoint
"$program" inspect case/adapter >out 2>&1 || { cat out >&2; fail inspect; }
# what is not understood is refused by name
edited() {
    rm -rf odd
    cp -r case/adapter odd
    python3 -c "import json, sys
c = json.load(open('odd/adapter_config.json'))
c.update(json.loads(sys.argv[1]))
json.dump(c, open('odd/adapter_config.json', 'w'))" "$1"
}
refuses_edit() { # FIELDS WORDS
    edited "$1"
    refused 3 "$2" apply model from=odd golden=case/with.safetensors
}
refuses_edit '{"use_dora": true}' "use_dora"
refuses_edit '{"bias": "all"}' "bias"
refuses_edit '{"init_lora_weights": "pissa"}' "init_lora_weights"
refuses_edit '{"peft_type": "IA3"}' "peft_type"
refuses_edit '{"r": 3}' "does not fit"
refuses_edit '{"r": 1e30}' "\`r\`"
refuses_edit '{"something_new": 3}' "something_new"
refuses_edit '{"base_model_name_or_path": "nobody/nothing"}' "nobody/nothing"
refuses_edit '{"base_model_name_or_path": "odd"}' "no folder of a public checkpoint"
edited '{"rank_pattern": {"q_proj": 2, "layers.0.self_attn.k_proj": 2}, "r": 2}'
"$program" apply model from=odd golden=case/with.safetensors dtype=f32 tol=$narrow >out 2>&1 ||
    { cat out >&2; fail "rank_pattern"; }
rm odd/adapter_model.safetensors
refused 3 "adapter_model.safetensors" apply model from=odd golden=case/with.safetensors
[ "$failures" -eq 0 ]
