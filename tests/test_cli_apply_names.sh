#!/bin/sh
# `longshot apply`: names of one's own for a mixer, tensors that nobody knows, tables that follow from
# options, infinite references, sizes that shapes tell, options that have no effect.
set -eu
program=$1
golden=$2/tests/golden
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
cd "$scratch"
export GOMP_SPINCOUNT=100
fail() { echo "FAILED: $*" >&2; exit 1; }
exits() { # CODE ARGUMENT...
    wanted=$1 code=0
    shift
    "$program" apply "$@" >out.txt 2>err.txt || code=$?
    [ $code -eq "$wanted" ] || { cat err.txt >&2; fail "apply $*: exit $code, wanted $wanted"; }
}
says() { grep -q "$1" err.txt || { cat err.txt >&2; fail "not said: $1"; }; }
shows() { grep -q "$1" out.txt || { cat out.txt >&2; fail "not shown: $1"; }; }

cat >files.py <<'P'
"""Golden files with names or values changed."""
import array, json, struct, sys

golden = sys.argv[1]

def read(name):
    data = open(f"{golden}/{name}.safetensors", "rb").read()
    size = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8:8 + size])
    header.pop("__metadata__", None)
    return {n: (t["dtype"], t["shape"], data[8 + size + t["data_offsets"][0]:8 + size + t["data_offsets"][1]])
            for n, t in header.items()}

def write(path, tensors, drop=(), **more):
    tensors = {n: t for n, t in tensors.items() if n not in drop}
    tensors.update({n.replace("__", "."): t for n, t in more.items()})
    header, blob = {}, b""
    for name, (kind, shape, raw) in sorted(tensors.items(), key=lambda t: (t[1][0] == "U8", t[0])):
        header[name] = {"dtype": kind, "shape": shape, "data_offsets": [len(blob), len(blob) + len(raw)]}
        blob += raw
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    open(path + ".safetensors", "wb").write(struct.pack("<Q", len(text)) + text + blob)

def renamed(case, *pairs):
    out = {}
    for name, tensor in case.items():
        for old, new in pairs:
            name = name.replace(old, new)
        out[name] = tensor
    return out

def changed(tensor, index, value):
    values = array.array("d", tensor[2])
    values[index] = value
    return tensor[0], tensor[1], values.tobytes()

inf, nan = float("inf"), float("nan")
rope = read("rope-attn-half")
write("renamed", renamed(rope, ("w.q_proj", "w.first.query"), ("w.k_proj", "w.first.key"), ("w.v_proj", "w.first.value"),
                         ("w.o_proj", "w.last"), ("w.inv_freq", "w.turns"), ("in.x", "in.hidden"), ("out.y", "out.result"),
                         ("cot", "cot.result")))
write("in-a-model", renamed(rope, ("w.", "w.model.layers.3.self_attn.")))
some = ("F64", [1, 45], bytes(8 * 45))
write("odd-input", rope, in__masc=some)
write("odd-output", rope, out__answer=some)
write("odd-kind", rope, extra=some)
write("odd-cot", rope, cot__probs=some)
write("odd-gradient", rope, grad__in__z=some)
write("no-cot", rope, ["cot"])
write("two-inputs", rope, in__hidden=rope["in.x"])
write("bent", rope, w__inv_freq=changed(rope["w.inv_freq"], 2, 0.05))
write("short", rope, w__inv_freq=("F64", [5], rope["w.inv_freq"][2][:40]))
write("narrow", rope, w__inv_freq=("F32", [6], array.array("f", array.array("d", rope["w.inv_freq"][2])).tobytes()))
write("inf-gradient", rope, grad__w__q_proj__weight=changed(rope["grad.w.q_proj.weight"], 7, inf))
write("nan-gradient", rope, grad__in__x=changed(rope["grad.in.x"], 7, nan))
write("inf-output", rope, out__y=changed(rope["out.y"], 3, -inf))
for name, tensor in (("alibi-attn", "w.slopes"), ("hyena-order2", "w.filter_fn.modulation.deltas"),
                     ("retnet-parallel-eps0", "w.retnet_rel_pos.decay")):
    case = read(name)
    write("bent-" + name, {**case, tensor: changed(case[tensor], 1, 0.3)})
case = read("bigbird-train")
write("bent-blocks", {**case, "in.rand_blocks": ("I32", case["in.rand_blocks"][1], bytes(len(case["in.rand_blocks"][2])))})
xl = read("xl")
frequencies = array.array("d", [10000 ** (-2 * i / 16) for i in range(8)])
write("xl-table", xl, w__pos_emb__inv_freq=("F64", [8], frequencies.tobytes()))
frequencies[3] *= 1.01
write("xl-bent", xl, w__pos_emb__inv_freq=("F64", [8], frequencies.tobytes()))
write("x-alone", {"x": rope["in.x"]})
write("x-masc", {"x": rope["in.x"], "masc": some})
write("w-alone", {n[2:]: t for n, t in rope.items() if n.startswith("w.")})
P
python3 files.py "$golden"
rope="mixer=attention heads=2 position=rope position.layout=halves"

# names of one's own, and those of a model's layers
cat >rules.txt <<'T'
w.first.query.* = q_proj.*
w.first.key.*   = k_proj.*
w.first.value.* = layers.0.mixer.v_proj.*
w.last.weight   = out.weight
w.turns         = inv_freq
in.hidden       = x
out.result      = y
T
exits 0 $rope names=rules.txt golden=renamed.safetensors cut=1,7
for tensor in out.result "out.result (cut)" grad.in.hidden grad.w.first.value.weight w.turns; do
    shows "^$tensor .*good"
done
exits 3 $rope golden=renamed.safetensors
says "no tensor in.x"
exits 0 $rope names=llama golden=in-a-model.safetensors
shows "^grad.w.model.layers.3.self_attn.q_proj.weight .*good"
shows "^w.model.layers.3.self_attn.inv_freq .*good"
exits 3 $rope golden=in-a-model.safetensors
exits 2 $rope names=nonsense golden=renamed.safetensors
says "neither a file nor one of"
echo "out.result = answers" >odd-rules.txt
cat rules.txt >>odd-rules.txt
exits 2 $rope names=odd-rules.txt golden=renamed.safetensors
says "is no input, or no output"
echo "out.result = -" >no-output.txt
cat rules.txt >>no-output.txt
exits 3 $rope names=no-output.txt golden=renamed.safetensors

# what nobody knows is refused, by its name
for name in odd-input:in.masc odd-output:out.answer odd-kind:extra odd-cot:cot.probs odd-gradient:grad.in.z; do
    exits 3 $rope golden=${name%%:*}.safetensors
    says "can make nothing of ${name##*:}"
done
exits 3 $rope golden=no-cot.safetensors
says "but no cotangent"
echo "in.hidden = x" >twice.txt
exits 3 $rope names=twice.txt golden=two-inputs.safetensors
says "in.hidden and in.x are the same thing"
exits 0 $rope weights=w-alone.safetensors input=x-alone.safetensors output=y.safetensors
exits 3 $rope weights=w-alone.safetensors input=x-masc.safetensors output=y.safetensors
says "can make nothing of masc"
# what is known, but computed nowhere here, is said
exits 0 mixer=h3 d_state=16 golden=$golden/h3.safetensors
says "not compared, as nothing here computes it: out.kernel, out.shift_kernel"

# tables that follow from options
exits 0 $rope golden=$golden/rope-attn-half.safetensors
shows "^w.inv_freq .*good"
exits 1 $rope golden=bent.safetensors
shows "^w.inv_freq .*BEYOND"
shows "^out.y .*good"
exits 1 $rope golden=short.safetensors
shows "^w.inv_freq .*inf  BEYOND"
exits 0 $rope golden=narrow.safetensors
exits 1 mixer=attention position=alibi bias=true heads=4 golden=bent-alibi-attn.safetensors
shows "^w.slopes .*BEYOND"
exits 1 mixer=hyena l_max=64 filter_width=16 emb_dim=5 w=10 features=trained beyond=cut golden=bent-hyena-order2.safetensors
shows "^w.filter_fn.modulation.deltas .*BEYOND"
exits 1 mixer=retnet heads=4 value_width=8 eps=0 golden=bent-retnet-parallel-eps0.safetensors
shows "^w.retnet_rel_pos.decay .*BEYOND"
exits 1 mixer=bigbird causal=false heads=2 block=4 seed=3 golden=bent-blocks.safetensors
shows "^in.rand_blocks .*BEYOND"
words() { # FILE: its arguments in the table of cases
    sed -n "s/^$1 *|\(.*\)|.*/\1/p" "$golden/cases.txt"
}
xl=$(words xl.safetensors)
[ -n "$xl" ] || fail "no case"
exits 0 $xl golden=xl-table.safetensors
shows "^w.pos_emb.inv_freq .*good"
exits 1 $xl golden=xl-bent.safetensors
shows "^w.pos_emb.inv_freq .*BEYOND"

# references that are no numbers, or infinite
exits 1 $rope golden=inf-gradient.safetensors
shows "^grad.w.q_proj.weight .*inf  BEYOND"
shows "^grad.w.k_proj.weight .*good"
exits 1 $rope golden=nan-gradient.safetensors
shows "^grad.in.x .*BEYOND"
exits 1 $rope golden=inf-output.safetensors --json
python3 - <<'P'
import json
rows = {row["tensor"]: row for row in json.load(open("out.txt"))}
assert rows["out.y"]["difference"] is None and not rows["out.y"]["good"], rows["out.y"]
assert rows["w.inv_freq"]["good"]
P

# sizes that shapes tell
exits 0 mixer=mamba conv_bias=false bias=true golden=$golden/mamba-narrow.safetensors
says "from the shapes of the file: d_state=5 d_conv=3 expand=1.5 dt_rank=3"
exits 0 mixer=attention position=t5 position.scaled=false golden=$golden/t5-attn-causal.safetensors
says "heads=2 key_width=6 value_width=6"
exits 0 mixer=attention position=alibi bias=true golden=$golden/alibi-attn.safetensors
exits 0 mixer=linformer heads=2 causal=false golden=$golden/linformer-attn.safetensors
exits 0 mixer=hyena w=10 features=trained beyond=cut golden=$golden/hyena-order2.safetensors
exits 1 mixer=s4 dt=exp activation=none output=none golden=$golden/s4-plain.safetensors
shows "^w.layer.kernel.l_kernel .*BEYOND"
exits 0 mixer=s4 dt=exp tilde=19 activation=none output=none golden=$golden/s4-plain.safetensors
exits 0 mixer=perceiver causal=false output=latents layers=0 heads=2 qk_width=8 v_width=12 cross_widening=3 \
    golden=$golden/perceiver-cross.safetensors
exits 0 model model.activation=gelu_tanh model.position=learned mixer.heads=2 mixer.bias=true model.segment=14 names=gpt2 \
    golden=$golden/rmt-gpt2-left.safetensors
says "model.memory=3 model.width=16 model.hidden=64 position.length=32 model.layers=2 model.vocabulary=29"
exits 0 model model.norm=rms model.epsilon=1e-6 model.activation=swiglu model.bias=false model.tied=false model.position=rope \
    position.layout=halves mixer.heads=4 model.segment=7 names=llama cut=2,7,7,7 golden=$golden/rmt-llama-right.safetensors
says "kv_heads=2"
# what is typed counts, and what then does not fit is not the file's fault
exits 2 mixer=mamba conv_bias=false bias=true d_state=6 golden=$golden/mamba-narrow.safetensors
says "with these options"
exits 2 model model.width=32 names=gpt2 golden=$golden/rmt-gpt2-left.safetensors
says "model.width=32 does not fit the file, where .* makes it 16"
! grep -q "replace the file" err.txt || fail "a wrong option is the file's fault"

# keys that have no effect
exits 2 mixer=mamba extend=yarn golden=$golden/mamba-block.safetensors
says "extend has no effect"
exits 2 position=rope width=24 heads=2 extend=yarn
says "extend has no effect"
exits 2 $rope softplus=false golden=$golden/rope-attn-half.safetensors
says "softplus has no effect"
exits 2 scan names=mamba golden=$golden/mamba-scan.safetensors
says "names has no effect"
exits 2 $xl golden=$golden/xl.safetensors model.segment=13
says "mixer.memory has no effect"
exits 2 $xl golden=$golden/xl.safetensors grad=true
says "grad has no effect"
