#!/bin/sh
# `longshot apply` beyond the golden table: files in and out, cuts, states, types, failures.
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
xpos="mixer=attention heads=2 bias=true position=xpos"

# however x is cut the outputs are the same; coarser types need coarser bars; a bar can fail
exits 0 $xpos golden=$golden/xpos-attn.safetensors cut=1,7,2,16
grep -q "out.y (cut)" out.txt || fail "the cut was not compared"
exits 0 $xpos golden=$golden/xpos-attn.safetensors dtype=f32 tol=2e-5 grad_tol=2e-4
exits 0 $xpos golden=$golden/xpos-attn.safetensors dtype=bf16 tol=0.1 grad_tol=0.2
exits 1 $xpos golden=$golden/xpos-attn.safetensors tol=0
exits 1 mixer=attention heads=2 bias=true position=rope golden=$golden/xpos-attn.safetensors
"$program" apply $xpos golden=$golden/xpos-attn.safetensors --json >rows.json
exits 2 mixer=attention heads=2 position=xpos golden=$golden/xpos-attn.safetensors
exits 2 $xpos windw=3 golden=$golden/xpos-attn.safetensors
exits 3 mixer=attention heads=2 position=t5 golden=$golden/rope-attn-half.safetensors
# bare heads, padding and global tokens: what does not fit is said
exits 2 mixer=attention causal=false golden=$golden/performer-softmax.safetensors
exits 2 mixer=bigbird causal=false heads=2 block=4 golden=$golden/longformer-attn.safetensors
exits 2 mixer=longformer causal=false heads=2 window=8 cut=4 golden=$golden/longformer-attn.safetensors
exits 1 mixer=longformer causal=false heads=2 window=6 golden=$golden/longformer-attn.safetensors
exits 1 mixer=performer features=20 stabiliser=global eps=1e-4 golden=$golden/performer-causal.safetensors
exits 3 mixer=linformer heads=2 causal=false k=10 length=45 golden=$golden/longt5-local.safetensors
exits 2 position=sinusoidal tensor=y position.layot=xl width=4
exits 0 position=alibi heads=2
[ "$(wc -l <out.txt)" -gt 0 ] || fail "no table"

cat >files.py <<'P'
"""Splits a golden case into files of weights and inputs, and compares what came out."""
import array, json, struct, sys

def read(path):
    data = open(path, "rb").read()
    size = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8:8 + size])
    header.pop("__metadata__", None)
    kinds = {"F64": "d", "F32": "f", "I64": "q", "U8": "B"}
    return {name: (t["dtype"], t["shape"], array.array(
        kinds[t["dtype"]], data[8 + size + t["data_offsets"][0]:8 + size + t["data_offsets"][1]]))
        for name, t in header.items()}

def write(path, tensors):
    header, blob = {}, b""
    for name, (kind, shape, values) in sorted(tensors.items(), key=lambda t: (t[1][0] == "U8", t[0])):
        raw = values.tobytes()
        header[name] = {"dtype": kind, "shape": shape, "data_offsets": [len(blob), len(blob) + len(raw)]}
        blob += raw
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    open(path, "wb").write(struct.pack("<Q", len(text)) + text + blob)

def part(tensor, first, end):
    kind, (B, T, D), values = tensor
    rows = array.array(values.typecode)
    for b in range(B):
        rows += values[(b * T + first) * D:(b * T + end) * D]
    return kind, [B, end - first, D], rows

def close(ours, wanted, bar=1e-11):
    scale = max(abs(v) for v in wanted[2])
    assert ours[1] == wanted[1], (ours[1], wanted[1])
    assert max(abs(a - b) for a, b in zip(ours[2], wanted[2])) <= bar * scale

case = read(sys.argv[2])
if sys.argv[1] == "split":
    write("w.safetensors", {n[2:]: t for n, t in case.items() if n.startswith("w.")})
    write("x.safetensors", {"x": case["in.x"], "cot": case["cot"]})
    write("x1.safetensors", {"x": part(case["in.x"], 0, 20)})
elif sys.argv[1] == "second":
    write("x2.safetensors", {"x": part(case["in.x"], 20, case["in.x"][1][1]),
                             "state": read("y1.safetensors")["state"]})
else:
    y = read("y.safetensors")
    close(y["y"], case["out.y"])
    close(y["grad.x"], case["grad.in.x"], 1e-10)
    close(y["grad.out.bias"], case["grad.w.out_proj.bias"], 1e-10)
    close(read("y1.safetensors")["y"], part(case["out.y"], 0, 20))
    close(read("y2.safetensors")["y"], part(case["out.y"], 20, case["out.y"][1][1]))
    assert all(row["good"] for row in json.load(open("rows.json")))
P
case=$golden/xpos-attn.safetensors
python3 files.py split "$case"
exits 0 $xpos weights=w.safetensors input=x.safetensors output=y.safetensors grad=true
exits 0 $xpos weights=w.safetensors input=x1.safetensors output=y1.safetensors cut=7 capacity=53
python3 files.py second "$case"
exits 0 $xpos weights=w.safetensors input=x2.safetensors output=y2.safetensors cut=7 capacity=53
python3 files.py check "$case"

# keys that this kind does not read, are read with other keys alone, or by extensions alone
told() { # SENTENCE, words
    said=$1
    shift
    exits 2 "$@"
    grep -qe "$said" err.txt || fail "$*: $(cat err.txt)"
}
case=$golden/xpos-attn.safetensors
for word in input=not-there weights=not-there output=y2.safetensors grad=true; do
    told "${word%%=*} has no effect here: it needs what=mixer" $xpos golden=$case $word
    told "${word%%=*} has no effect here" $xpos golden=$case apply.$word
done
told "tol has no effect here: it needs golden" $xpos weights=w.safetensors input=x.safetensors output=y.safetensors tol=1
told "trained_length has no effect here: it needs what=mixer and extend" $xpos golden=$case trained_length=9
told "trained_length has no effect here" $xpos golden=$case extend=window extend.window=9 trained_length=9
told "width has no effect here: it needs what=position" $xpos golden=$case width=16
told "grad_tol has no effect here: it needs golden and what=mixer" tables golden=$golden/s4-hippo.safetensors grad_tol=1
told "tensor has no effect here: it needs what=position and golden" position=alibi tensor=H8
told "cut has no effect here" position=alibi cut=3
told "source_cut has no effect here" position=alibi source_cut=3

# mixers with options `input` and `output` of their own
s4="mixer=s4 d_state=6 dt=exp tilde=19 activation=none mixer.output=none"
python3 files.py split $golden/s4-plain.safetensors
exits 0 $s4 weights=w.safetensors input=x.safetensors output=y.safetensors grad=true
[ -s y.safetensors ] || fail "s4 wrote nothing"
exits 0 $s4 golden=$golden/s4-plain.safetensors
s4d="mixer=s4d d_state=10 dt=exp upper=true mixer.input=one"
python3 files.py split $golden/s4d-minimal.safetensors
exits 0 $s4d weights=w.safetensors input=x.safetensors output=y.safetensors
exits 2 $s4 mixer.outptu=none golden=$golden/s4-plain.safetensors

# ---- tables ----

exits 0 tables golden=$golden/longt5-blockids.safetensors
grep -q "^out.n50_pad13.globals .*good" out.txt || fail "a table was not compared"
exits 2 tables golden=$golden/longt5-blockids.safetensors block=8
exits 1 tables golden=$golden/s4-hippo.safetensors tol=0
grep -q "^out.legt64.nplr_P .*BEYOND" out.txt || fail "a table was not compared"
"$program" apply tables golden=$golden/bigbird-randblocks.safetensors --json | python3 -m json.tool >/dev/null
exits 2 tables
grep -q "give golden=" err.txt || fail "no word of golden="
exits 2 tables more golden=$golden/s4-hippo.safetensors
exits 2 tables golden=$golden/s4-hippo.safetensors mixer=s4
exits 2 tables golden=$golden/s4-hippo.safetensors blok=8
exits 2 $xpos block=8 golden=$golden/xpos-attn.safetensors
exits 3 tables golden=$golden/xpos-attn.safetensors
cat >tables.py <<'P'
"""Tables of one file each: code and name, then what is in it."""
import array, json, struct, sys

def write(path, name, kind, shape, values):
    raw = array.array({"F64": "d", "I32": "i"}[kind], values).tobytes()
    text = json.dumps({name: {"dtype": kind, "shape": shape, "data_offsets": [0, len(raw)]}} if name else {}).encode()
    text += b" " * (-len(text) % 8)
    open(path, "wb").write(struct.pack("<Q", len(text)) + text + raw)

clipped = [-0.2870198600903755, -2.0, 0.6462349417307153, 0.719260931358442]
cases = [
    (0, "out.n5", "I32", [5], [-1] * 5),
    (1, "out.n5", "I32", [5], [-1, -1, -1, -1, 0]),
    (0, "out.n20_pad20.globals", "I32", [1], [0]),
    (3, "out.n20_pad21", "I32", [20], [-1] * 20),
    (3, "out.n5.globals", "I32", [1], [1]),
    (3, "out.n5_", "I32", [5], [-1] * 5),
    (3, "out.n99999999.globals", "I32", [1], [1]),
    (0, "out.legs4.nplr_B", "F64", [2, 2], clipped),
    (0, "out.legs4.nplr_B", "F64", [2, 2], [0.2870198600903755, 2.0] + clipped[2:]),
    (1, "out.legs4.nplr_B", "F64", [2, 2], [clipped[0], -1.99] + clipped[2:]),
    (1, "out.legs4.nplr_B", "F64", [2, 2], [2.7, 0.0] + clipped[2:]),
    (1, "out.legs4.nplr_B_noclip", "F64", [2, 2], clipped),
    (1, "out.legs4.nplr_B", "F64", [2, 2], [float("nan")] * 4),
    (1, "out.fout2.nplr_P", "F64", [1, 1, 2], [0.0, 0.0]),
    (0, "out.fout2.nplr_P", "F64", [1, 1, 2], [0.0, -0.5 ** 0.5]),
    (3, "out.fout2.nplr_P", "F64", [2, 1, 2], [0.0] * 4),
    (3, "out.legt4.nplr_P", "F64", [1, 2, 2], [0.0] * 4),
    (3, "out.legs3.A", "F64", [3, 3], [0.0] * 9),
    (3, "out.legs514.nplr_W", "F64", [257, 2], [0.0] * 514),
    (3, "out.legs4.C", "F64", [4, 1], [1.0] * 4),
    (3, "out.lagt4.A", "F64", [4, 4], [0.0] * 16),
    (0, "out.diag_real.A", "F64", [2, 2, 2], [-1.0, 0.0, -2.0, 0.0] * 2),
    (1, "out.diag_real.A", "F64", [2, 2, 2], [-1.0, 0.0, -2.0, 0.0] + [-1.0, 0.0, -2.5, 0.0]),
    (3, "out.diag_real.A", "F64", [2, 2], [-1.0, 0.0, -2.0, 0.0]),
    (3, "out.diag_real.P", "F64", [1, 1, 2], [0.0, 0.0]),
    (3, "out.T56_bs0_r3_seed0", "I32", [1, 12, 3], [0] * 36),
    (3, "out.T57_bs4_r3_seed0", "I32", [1, 12, 3], [0] * 36),
    (3, "out.T40_bs4_r3_seed0", "I32", [1, 8, 3], [0] * 24),
    (3, "out.T56_bs4_r3_seed0", "I32", [1, 12, 2], [0] * 24),
    (1, "out.T56_bs4_r3_seed0", "I32", [1, 12, 3], [0] * 36),
    (3, "", "I32", [0], []),
]
for i, (code, *what) in enumerate(cases):
    write(f"table{i}.safetensors", *what)
    print(code, f"table{i}.safetensors", what[0])
P
python3 tables.py >tables.txt
while read -r code file name; do
    exits "$code" tables golden=$file tol=1e-12
    [ "$(grep -c . err.txt)" -le 2 ] || fail "$name: not one sentence"
    if [ "$code" -eq 1 ]; then grep -q "^$name .*BEYOND" out.txt || fail "$name: not compared"; fi
done <tables.txt
[ "$(wc -l <tables.txt)" -gt 30 ] || fail "no tables"

# ---- whole models ----

words() { # FILE: its arguments in the table of cases
    sed -n "s/^$1 *|\(.*\)|.*/\1/p" "$golden/cases.txt"
}
says() { grep -q "$1" err.txt || { cat err.txt >&2; fail "not said: $1"; }; }
xl=$(words xl.safetensors) compressive=$(words compressive.safetensors)
rmt=$(words rmt-gpt2-left.safetensors) memformer=$(words memformer.safetensors)
[ -n "$xl" ] && [ -n "$compressive" ] && [ -n "$rmt" ] && [ -n "$memformer" ] || fail "no cases"

# outputs, states and gradients are all there; coarser types; what is compared can fail
exits 0 $xl golden=$golden/xl.safetensors
for tensor in out.nll2 out.mem2.1 grad.w.r_w_bias; do
    grep -q "^$tensor .*good" out.txt || fail "$tensor was not compared"
done
exits 0 $compressive golden=$golden/compressive.safetensors
for tensor in out.aux3 out.cmem3 grad.w.pos_emb grad.aux.attn_layers.1.fn.fn.compress_mem_fn.conv.weight; do
    grep -q "^$tensor .*good" out.txt || fail "$tensor was not compared"
done
exits 0 $memformer golden=$golden/memformer.safetensors dtype=f32 tol=2e-5 grad_tol=2e-4
exits 1 $memformer golden=$golden/memformer.safetensors position.exchanged=false
exits 1 $compressive golden=$golden/compressive.safetensors mixer.loss_weight=1
exits 1 $xl golden=$golden/xl.safetensors mixer.memory=20 mixer.clamp_len=5
exits 1 $rmt golden=$golden/rmt-gpt2-left.safetensors grad_tol=0
says "grad.w"
"$program" apply $rmt golden=$golden/rmt-gpt2-left.safetensors --json | python3 -m json.tool >/dev/null

# segments of other lengths, as code that aligns them to the right has them
exits 0 $rmt golden=$golden/rmt-gpt2-left.safetensors cut=14
exits 1 $rmt golden=$golden/rmt-gpt2-left.safetensors cut=9,14
exits 2 $rmt golden=$golden/rmt-gpt2-left.safetensors cut=15,14,8
says "at most model.segment=14"

# options that do not fit the file
exits 2 $xl
says "give golden="
exits 2 $xl golden=$golden/xl.safetensors mixer=transformer_xl
exits 2 $xl golden=$golden/xl.safetensors model.layrs=2
exits 2 $xl golden=$golden/xl.safetensors names=transformer_xl
says "neither a file nor one of transformer-xl,"
exits 2 $xl golden=$golden/xl.safetensors model.layers=1
says "model.layers=1 does not fit the file"
exits 2 $xl golden=$golden/xl.safetensors model.layers=3
says "model.layers=3 does not fit the file, where w.layers.1"
exits 2 $xl golden=$golden/xl.safetensors model.hidden=23
says "CoreNet.3.weight makes it 24"
exits 2 $xl golden=$golden/xl.safetensors model.vocabulary=36
exits 2 $xl golden=$golden/xl.safetensors mixer.head_width=7
says "with these options"
exits 2 $xl golden=$golden/xl.safetensors cut=13
says "hidden2 is not \[10,2,16\], which cut= makes of it"
! grep -q "replace the file" err.txt || fail "a wrong option is the file's fault"
exits 2 $memformer golden=$golden/memformer.safetensors source_cut=16
says "equal pieces"
exits 3 $rmt golden=$golden/memformer.safetensors
exits 3 $xl golden=nowhere.safetensors

# a naming of one's own, and files that lack something or have too much
cat >rules.txt <<'T'
# shorter names
w.start = memory.start
w.words = embed.weight
w.places = position.embedding
w.last.* = norm.*
w.{n}.ln_{m}.* = layers.{n}.norm{m}.*
w.{n}.attn.* = layers.{n}.mixer.*
w.{n}.fc.weight = layers.{n}.ffn.up.weight turned
w.{n}.fc.bias = layers.{n}.ffn.up.bias
w.{n}.proj.weight = layers.{n}.ffn.down.weight turned
w.{n}.proj.bias = layers.{n}.ffn.down.bias
in.ids = tokens
out.scores = logits
out.carried{s} = segment memory
out.note = -
T
python3 - "$golden/rmt-gpt2-left.safetensors" <<'P'
import json, struct, sys
data = open(sys.argv[1], "rb").read()
size = struct.unpack("<Q", data[:8])[0]
header = json.loads(data[8:8 + size])
header.pop("__metadata__")
case = {n: (t["dtype"], t["shape"], data[8 + size + t["data_offsets"][0]:8 + size + t["data_offsets"][1]])
        for n, t in header.items()}

def write(path, tensors):
    header, blob = {}, b""
    for name, (kind, shape, raw) in sorted(tensors.items()):
        header[name] = {"dtype": kind, "shape": shape, "data_offsets": [len(blob), len(blob) + len(raw)]}
        blob += raw
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    open(path, "wb").write(struct.pack("<Q", len(text)) + text + blob)

def short(name):
    for old, new in (("memory_cell.memory", "start"), ("memory_cell.model.transformer.", ""), ("wte.weight", "words"),
                     ("wpe.weight", "places"), ("ln_f.", "last."), ("h.", ""), ("mlp.c_", ""), ("in.tokens", "in.ids"),
                     ("out.y", "out.scores"), ("out.memory", "out.carried"), ("out.loss", "out.note")):
        name = name.replace(old, new, 1)
    return "cot.scores" if name == "cot" else name
write("short.safetensors", {short(n): t for n, t in case.items()})

def spoiled(path, drop=(), **more):
    write(path, {**{n: t for n, t in case.items() if n not in drop},
                 **{n.replace("__", "."): t for n, t in more.items()}})
some = ("F64", [2], bytes(16))
spoiled("no-weight.safetensors", ["w.memory_cell.model.transformer.h.1.ln_2.bias"])
spoiled("no-tokens.safetensors", ["in.tokens"])
spoiled("no-outputs.safetensors", [n for n in case if n.startswith("out.")])
spoiled("stray.safetensors", grad__in__tokens=some)
spoiled("stranger.safetensors", w__memory_cell__model__other=some)
spoiled("odd-output.safetensors", out__attention=some)
spoiled("odd-cot.safetensors", cot=some)
spoiled("odd-piece.safetensors", out__memory7=case["out.memory0"])
spoiled("odd-tokens.safetensors", in__tokens=("F64", [2, 1], struct.pack("<2d", 0.5, 1)))
spoiled("large-token.safetensors", in__tokens=("I64", [2, 37], struct.pack("<74q", *[29] * 74)))
spoiled("flat-tokens.safetensors", in__tokens=("I64", [74], case["in.tokens"][2]))
spoiled("flat-weight.safetensors", **{"w__memory_cell__model__transformer__h__0__mlp__c_fc__weight":
                                      ("F64", [1024], case["w.memory_cell.model.transformer.h.0.mlp.c_fc.weight"][2])})
spoiled("empty-weight.safetensors", **{"w__memory_cell__memory": ("F64", [0, 16], b"")})
spoiled("odd-gradient.safetensors", **{"grad__w__memory_cell__memory": ("F64", [1, 16], bytes(128))})
spoiled("nan-cot.safetensors", cot=("F64", [2, 37, 29], struct.pack("<d", float("nan")) * (2 * 37 * 29)))
open("cut-off.safetensors", "wb").write(data[:-8])
open("hostile.safetensors", "wb").write(struct.pack("<Q", 1 << 62) + data[8:])
P
exits 0 $rmt names=rules.txt golden=short.safetensors
grep -q "^out.carried2 .*good" out.txt && grep -q "^grad.w.1.fc.weight .*good" out.txt || fail "rules"
exits 3 $rmt golden=short.safetensors
echo "w.start memory.start" >bad-rules.txt
exits 3 $rmt names=bad-rules.txt golden=short.safetensors
says "line 1"
echo "out.y = answers" >odd-rules.txt
exits 2 $rmt names=odd-rules.txt golden=$golden/rmt-gpt2-left.safetensors
for file in no-weight no-tokens no-outputs stray stranger odd-output odd-cot odd-piece odd-tokens large-token flat-tokens \
    flat-weight empty-weight odd-gradient cut-off hostile; do
    exits 3 $rmt golden=$file.safetensors
    [ "$(grep -c . err.txt)" -le 2 ] || fail "$file: not one sentence"
done
exits 1 $rmt golden=nan-cot.safetensors

# ---- the selective scan ----

scan=$golden/mamba-scan.safetensors groups=$golden/mamba-scan-groups.safetensors
plain=$golden/mamba-scan-plain-step.safetensors
exits 0 scan golden=$scan cut=1,7,2,16
for tensor in out.y out.last_state grad.in.A "grad.in.delta_bias (cut)" "out.last_state (cut)"; do
    grep -q "^$tensor .*good" out.txt || fail "$tensor was not compared"
done
exits 0 scan golden=$groups dtype=f32 tol=2e-5 grad_tol=2e-4 cut=3
half=$golden/mamba-scan-half-constant.safetensors # the other one has values beyond f32
exits 0 scan golden=$half softplus=false dtype=f32 tol=2e-5 grad_tol=2e-4
exits 0 scan golden=$half softplus=false dtype=bf16 tol=0.02 grad_tol=0.05
complex=$golden/mamba-scan-complex.safetensors
exits 0 scan golden=$complex dtype=f32 tol=2e-5 grad_tol=2e-4 cut=3
exits 0 scan golden=$complex dtype=bf16 tol=0.02 grad_tol=0.05
exits 1 scan golden=$complex softplus=false
exits 1 scan golden=$plain
exits 1 scan golden=$scan softplus=false
exits 1 scan golden=$scan tol=0
"$program" apply scan golden=$scan --json | python3 -m json.tool >/dev/null
exits 2 scan
says "give golden="
exits 2 scan golden=$scan mixer=mamba
exits 2 scan golden=$scan sofplus=false
exits 2 scan golden=$scan cut=1.5
exits 2 skan golden=$scan
exits 3 scan golden=nowhere.safetensors
exits 3 scan golden=$golden/mamba-block.safetensors
cat >scans.py <<'P'
import json, math, struct, sys
from array import array
data = open(sys.argv[1], "rb").read()
size = struct.unpack("<Q", data[:8])[0]
header = json.loads(data[8:8 + size])
header.pop("__metadata__")
case = {n: (t["shape"], array("d", data[8 + size + t["data_offsets"][0]:8 + size + t["data_offsets"][1]]))
        for n, t in header.items()}

def write(path, drop=(), **more):
    tensors = {n: t for n, t in case.items() if n not in drop}
    tensors.update({n.replace("__", "."): t for n, t in more.items()})
    header, blob = {}, b""
    for name, (shape, values) in sorted(tensors.items()):
        raw = array("d", values).tobytes()
        header[name] = {"dtype": "F64", "shape": shape, "data_offsets": [len(blob), len(blob) + len(raw)]}
        blob += raw
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    open(path + ".safetensors", "wb").write(struct.pack("<Q", len(text)) + text + blob)

def with_first(name, value):
    shape, values = case[name]
    return shape, [value] + list(values[1:])
B, D, L = case["in.u"][0]
N = case["in.A"][0][1]
grads = [n for n in case if n.startswith("grad.")]
halves = lambda *shape: (list(shape), [0.5] * math.prod(shape))
# fewer comparisons, the same numbers
write("scan-forward", grads + ["cot", "cot.last_state", "out.last_state"])
write("scan-few", ["grad.in.A", "grad.in.z", "out.last_state"])
# one group, and the same B once for each of two groups
write("scan-one", ["grad.in.B"], in__B=([B, 1, N, L], case["in.B"][1]))
write("scan-two", ["grad.in.B"], in__B=([B, 2, N, L], sum(([*case["in.B"][1][b * N * L:(b + 1) * N * L]] * 2 for b in range(B)), [])))
# what is wrong
for name in ("u", "delta", "A", "B", "C"):
    write("bad-no-" + name, ["in." + name, "grad.in." + name])
write("bad-no-y", ["out.y"])
write("bad-no-cot", ["cot", "cot.last_state"])
write("bad-lost-z", ["in.z"])
write("bad-u", in__u=([B * D, L], case["in.u"][1]))
write("bad-delta", in__delta=([B, L, D], case["in.delta"][1]))
write("bad-z", in__z=halves(B, D, 1))
write("bad-A", in__A=halves(D, N, 2))
complex_A = lambda D: ([D, N, 2], [-0.5] * (D * N * 2))
pairs = halves(B, N, 2 * L)
write("bad-A-deep", in__A=halves(D, N, 3))
write("bad-A-right", in__A=halves(D, N, 2), in__B=pairs, in__C=pairs)
write("bad-A-turns", in__A=([D, N, 2], [-0.5, float("inf")] * (D * N)), in__B=pairs, in__C=pairs)
write("bad-C-real", in__A=complex_A(D), in__B=pairs, in__C=halves(D, N))
write("bad-state-real", in__A=complex_A(D), in__B=pairs, in__C=pairs)
write("bad-constant", list(case), in__u=halves(3, 3, 1), in__delta=halves(3, 3, 1), in__A=complex_A(3),
      in__B=halves(3, N, 2), in__C=halves(3, N, 2), out__y=halves(3, 3, 1))
write("bad-A-turned", in__A=([N, D], case["in.A"][1]))
write("bad-A-sign", in__A=with_first("in.A", 0.25))
write("bad-A-zero", in__A=with_first("in.A", 0.0))
write("bad-A-nan", in__A=with_first("in.A", float("nan")))
write("bad-A-inf", in__A=with_first("in.A", -float("inf")))
write("bad-B", in__B=halves(B, N, 2 * L))
write("bad-B-groups", in__B=halves(B, 4, N, L))
write("bad-B-no-groups", in__B=([B, 0, N, L], []))
write("bad-B-flat", in__B=halves(L))
write("bad-C", in__C=halves(N, D))
write("bad-C-deep", in__C=halves(1, B, 1, N, L))
write("bad-D", in__D=halves(D + 1))
write("bad-bias", in__delta_bias=halves(1, D))
write("bad-y", out__y=halves(B, L, D))
write("bad-state", out__last_state=halves(B, N, D))
write("bad-cot", cot=halves(B, D))
write("bad-cot-state", **{"cot.last_state": halves(B, D, 1)})
write("bad-gradient", grad__in__u=halves(B, D, 1))
write("bad-stranger", in__x=halves(2))
write("bad-empty", in__u=([B, D, 0], []))
for name in ("in.u", "in.delta", "in.C", "in.D", "in.delta_bias", "cot"):
    write("nan-scan-" + name, **{name: with_first(name, float("nan"))})
P
python3 scans.py "$scan"
for file in forward few one two; do
    exits 0 scan golden=scan-$file.safetensors cut=7
done
[ "$(grep -c good out.txt)" -gt 10 ] || fail "little was compared"
for file in bad-*.safetensors; do
    exits 3 scan golden=$file
    [ "$(grep -c . err.txt)" -le 2 ] || fail "$file: not one sentence"
done
exits 3 scan golden=bad-A.safetensors
says "in.B is not \[2,5,106\]"
exits 3 scan golden=bad-A-right.safetensors
says "of negative real part and finite"
exits 3 scan golden=bad-C-real.safetensors
says "as in.A is complex"
exits 3 scan golden=bad-state-real.safetensors
says "is not \[2,6,5,2\]"
exits 3 scan golden=bad-constant.safetensors
says "does not tell"
exits 3 scan golden=bad-A-sign.safetensors
says "must be negative and finite"
exits 3 scan golden=bad-delta.safetensors
says "in.delta is not \[2,6,53\]"
exits 3 scan golden=bad-B-groups.safetensors
says "6 channels are not 4 groups"
for file in nan-scan-*.safetensors; do
    exits 1 scan golden=$file
done

# ---- other namings: a Llama written out, and for the others that every weight finds its place ----

cat >namings.py <<'P'
import array, json, math, random, struct
random.seed(3)
V, D, H, G, F, T, LAYERS = 11, 8, 4, 2, 6, 7, 2

def write(path, tensors):
    header, blob = {}, b""
    for name, (kind, shape, values) in sorted(tensors.items()):
        raw = array.array({"F64": "d", "I64": "q"}[kind], values).tobytes()
        header[name] = {"dtype": kind, "shape": shape, "data_offsets": [len(blob), len(blob) + len(raw)]}
        blob += raw
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    open(path, "wb").write(struct.pack("<Q", len(text)) + text + blob)

def draw(*shape):
    return "F64", list(shape), [random.gauss(0, 0.5) for _ in range(math.prod(shape))]

def case(path, weights, source=False):
    tokens = [random.randrange(V) for _ in range(T)]
    tensors = {"w." + n: draw(*s) for n, s in weights.items()}
    tensors["in.decoder_input_ids" if source else "in.input_ids"] = ("I64", [1, T], tokens)
    if source: tensors["in.input_ids"] = ("I64", [1, T], tokens)
    return path, tokens, tensors

def finish(path, tensors, logits):
    write(path, {**tensors, "out.logits": ("F64", [1, T, V], logits)})

def times(weight, x):
    _, (rows, width), values = weight
    return [sum(values[r * width + i] * x[i] for i in range(width)) for r in range(rows)]

def norm(weight, x):
    scale = 1 / math.sqrt(sum(v * v for v in x) / len(x) + 1e-5)
    return [g * v * scale for g, v in zip(weight[2], x)]

def rotated(x, n):
    e, y = D // H, list(x)
    for first in range(0, len(x), e):
        for i in range(e // 2):
            angle = n * 10000 ** (-2 * i / e)
            a, b = x[first + i], x[first + e // 2 + i]
            y[first + i] = a * math.cos(angle) - b * math.sin(angle)
            y[first + e // 2 + i] = b * math.cos(angle) + a * math.sin(angle)
    return y

def llama(w, tokens):
    rows, e = [w["model.embed_tokens.weight"][2][t * D:(t + 1) * D] for t in tokens], D // H
    for layer in range(LAYERS):
        of = lambda name: w[f"model.layers.{layer}.{name}.weight"]
        x = [norm(of("input_layernorm"), r) for r in rows]
        q = [rotated(times(of("self_attn.q_proj"), r), n) for n, r in enumerate(x)]
        k = [rotated(times(of("self_attn.k_proj"), r), n) for n, r in enumerate(x)]
        v = [times(of("self_attn.v_proj"), r) for r in x]
        for n in range(T):
            mixed = []
            for h in range(H):
                at = h // (H // G) * e
                scores = [sum(q[n][h * e + i] * k[m][at + i] for i in range(e)) / math.sqrt(e) for m in range(n + 1)]
                weight = [math.exp(s) for s in scores]
                mixed += [sum(p * v[m][at + i] for m, p in enumerate(weight)) / sum(weight) for i in range(e)]
            rows[n] = [a + b for a, b in zip(rows[n], times(of("self_attn.o_proj"), mixed))]
            y = norm(of("post_attention_layernorm"), rows[n])
            up, gate = times(of("mlp.up_proj"), y), times(of("mlp.gate_proj"), y)
            hidden = [u * g / (1 + math.exp(-g)) for u, g in zip(up, gate)]
            rows[n] = [a + b for a, b in zip(rows[n], times(of("mlp.down_proj"), hidden))]
    return [l for r in rows for l in times(w["lm_head.weight"], norm(w["model.norm.weight"], r))]

def layers(prefix, shapes):
    return {f"{prefix}{n}.{name}": shape for n in range(LAYERS) for name, shape in shapes.items()}

path, tokens, tensors = case("llama.safetensors", {
    "model.embed_tokens.weight": (V, D), "lm_head.weight": (V, D), "model.norm.weight": (D,), **layers("model.layers.", {
        "input_layernorm.weight": (D,), "post_attention_layernorm.weight": (D,), "self_attn.q_proj.weight": (D, D),
        "self_attn.k_proj.weight": (D * G // H, D), "self_attn.v_proj.weight": (D * G // H, D), "self_attn.o_proj.weight": (D, D),
        "mlp.gate_proj.weight": (F, D), "mlp.up_proj.weight": (F, D), "mlp.down_proj.weight": (D, F)})})
finish(path, tensors, llama({n[2:]: t for n, t in tensors.items()}, tokens))

# Transformer-XL whose layer adds nothing: two norms between adaptive embeddings and softmax. The columns of clusters count from the end.
def layer_norm(x):
    mean = sum(x) / len(x)
    scale = 1 / math.sqrt(sum((v - mean) ** 2 for v in x) / len(x) + 1e-5)
    return [(v - mean) * scale for v in x]

def log_softmax(x):
    most = max(x)
    return [v - most - math.log(sum(math.exp(u - most) for u in x)) for v in x]

cuts, widths = [0, 4, 7, V], [8, 4, 2]
shapes = {"crit.cluster_weight": (2, D), "crit.cluster_bias": (2,), "crit.out_projs.0": (D, D), "r_w_bias": (H, 2), "r_r_bias": (H, 2),
    "layers.0.dec_attn.qkv_net.weight": (3 * D, D), "layers.0.dec_attn.r_net.weight": (D, D), "layers.0.pos_ff.CoreNet.0.weight": (F, D),
    "layers.0.pos_ff.CoreNet.0.bias": (F,)}
for i in range(3):
    shapes |= {f"word_emb.emb_layers.{i}.weight": (cuts[i + 1] - cuts[i], widths[i]), f"word_emb.emb_projs.{i}": (D, widths[i]),
               f"crit.out_layers.{i}.bias": (cuts[i + 1] - cuts[i],)}
path, tokens, tensors = case("adaptive.safetensors", shapes)
for name, shape, value in (("dec_attn.o_net.weight", (D, D), 0), ("pos_ff.CoreNet.3.weight", (D, F), 0), ("pos_ff.CoreNet.3.bias", (D,), 0),
                           ("dec_attn.layer_norm.weight", (D,), 1), ("dec_attn.layer_norm.bias", (D,), 0),
                           ("pos_ff.layer_norm.weight", (D,), 1), ("pos_ff.layer_norm.bias", (D,), 0)):
    tensors["w.layers.0." + name] = ("F64", list(shape), [value] * math.prod(shape))
def across(matrix, x): # by its columns
    _, (rows, width), values = matrix
    return [sum(values[r * width + c] * x[r] for r in range(rows)) for c in range(width)]
def cluster_of(t):
    return max(i for i in range(3) if cuts[i] <= t)
def scores(i, h, w):
    proj = w["crit.out_projs.0"] if i == 0 else w[f"word_emb.emb_projs.{i}"]
    table, bias = w[f"word_emb.emb_layers.{i}.weight"], list(w[f"crit.out_layers.{i}.bias"][2])
    x = across(proj, h)
    y = times(table, x)
    if i == 0: y, bias = y + times(w["crit.cluster_weight"], x), bias + list(w["crit.cluster_bias"][2])
    return log_softmax([a + b for a, b in zip(y, bias)])
w, losses = {n[2:]: t for n, t in tensors.items()}, []
for token, follows in zip(tokens, tokens[1:]):
    i, j = cluster_of(token), cluster_of(follows)
    table = w[f"word_emb.emb_layers.{i}.weight"][2]
    row = table[(token - cuts[i]) * widths[i]:(token - cuts[i] + 1) * widths[i]]
    h = layer_norm(layer_norm([v * math.sqrt(D) for v in times(w[f"word_emb.emb_projs.{i}"], row)]))
    head = scores(0, h, w)
    losses.append(-head[follows] if j == 0 else -head[-j] - scores(j, h, w)[follows - cuts[j]])
assert {cluster_of(t) for t in tokens[1:]} == {0, 1, 2}
write(path, {**tensors, "out.nll0": ("F64", [1, T - 1], losses)})

def placed(path, weights, source=False):
    path, _, tensors = case(path, weights, source)
    finish(path, tensors, [1] * (T * V))
gate = {f"{place}_layers.{{}}.gru.{kind}_{of}": (3 * D, D)[:2 if kind == "weight" else 1]
        for place in ("attn", "ff") for kind in ("weight", "bias") for of in ("ih", "hh")}
inside = {"attn_layers.{}.fn.norm.weight": (D,), "attn_layers.{}.fn.norm.bias": (D,), "attn_layers.{}.fn.fn.to_q.weight": (D, D),
    "attn_layers.{}.fn.fn.to_kv.weight": (2 * D, D), "attn_layers.{}.fn.fn.to_out.weight": (D, D), "attn_layers.{}.fn.fn.to_out.bias": (D,),
    "attn_layers.{}.fn.fn.compress_mem_fn.conv.weight": (D, D, 2), "attn_layers.{}.fn.fn.compress_mem_fn.conv.bias": (D,),
    "ff_layers.{}.fn.norm.weight": (D,), "ff_layers.{}.fn.norm.bias": (D,), "ff_layers.{}.fn.fn.w1.weight": (2 * F, D),
    "ff_layers.{}.fn.fn.w1.bias": (2 * F,), "ff_layers.{}.fn.fn.w2.weight": (D, F), "ff_layers.{}.fn.fn.w2.bias": (D,), **gate}
placed("compressive.safetensors", {"token_emb.weight": (V, D), "to_logits.1.weight": (V, D), "to_logits.1.bias": (V,), "pos_emb": (H, 10, D // H),
    **{name.format(n): shape for n in range(LAYERS) for name, shape in inside.items()}})
placed("mpt.safetensors", {"transformer.wte.weight": (V, D), "transformer.norm_f.weight": (D,), **layers("transformer.blocks.", {
    "norm_1.weight": (D,), "norm_2.weight": (D,), "attn.Wqkv.weight": (3 * D, D), "attn.out_proj.weight": (D, D),
    "ffn.up_proj.weight": (4 * D, D), "ffn.down_proj.weight": (D, 4 * D)})})
placed("mamba.safetensors", {"backbone.embeddings.weight": (V, D), "backbone.norm_f.weight": (D,), **layers("backbone.layers.", {
    "norm.weight": (D,), "mixer.in_proj.weight": (4 * D, D), "mixer.conv1d.weight": (2 * D, 1, 4), "mixer.conv1d.bias": (2 * D,),
    "mixer.x_proj.weight": (1 + 2 * 4, 2 * D), "mixer.dt_proj.weight": (2 * D, 1), "mixer.dt_proj.bias": (2 * D,),
    "mixer.A_log": (2 * D, 4), "mixer.D": (2 * D,), "mixer.out_proj.weight": (D, 2 * D)})})
placed("retnet.safetensors", {"decoder.embed_tokens.weight": (V, D), "decoder.output_projection.weight": (V, D),
    "decoder.layer_norm.weight": (D,), "decoder.retnet_rel_pos.decay": (H,), **layers("decoder.layers.", {
    "retention_layer_norm.weight": (D,), "final_layer_norm.weight": (D,), "retention.q_proj.weight": (D, D),
    "retention.k_proj.weight": (D, D), "retention.v_proj.weight": (2 * D, D), "retention.g_proj.weight": (2 * D, D),
    "retention.out_proj.weight": (D, 2 * D), "ffn.fc1.weight": (F, D), "ffn.gate.weight": (F, D), "ffn.fc2.weight": (D, F)})})
attention = {f"{n}.weight": (D, D) for n in "qkvo"}
feed_forward = {"wi_0.weight": (F, D), "wi_1.weight": (F, D), "wo.weight": (D, F)}
below = lambda prefix, names: {prefix + n: s for n, s in names.items()}
placed("t5.safetensors", {"shared.weight": (V, D), "lm_head.weight": (V, D), "encoder.final_layer_norm.weight": (D,),
    "decoder.final_layer_norm.weight": (D,), "encoder.block.0.layer.0.TransientGlobalSelfAttention.relative_attention_bias.weight": (32, H),
    "encoder.block.0.layer.0.TransientGlobalSelfAttention.global_relative_attention_bias.weight": (32, H),
    "decoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight": (32, H),
    **layers("encoder.block.", {"layer.0.layer_norm.weight": (D,), "layer.1.layer_norm.weight": (D,),
        **below("layer.0.TransientGlobalSelfAttention.", {**attention, "global_input_layer_norm.weight": (D,)}), **below("layer.1.DenseReluDense.", feed_forward)}),
    **layers("decoder.block.", {**{f"layer.{i}.layer_norm.weight": (D,) for i in range(3)},
        **below("layer.0.SelfAttention.", attention), **below("layer.1.EncDecAttention.", attention),
        **below("layer.2.DenseReluDense.", feed_forward)})}, True)
P
python3 namings.py
all="model model.layers=2 model.width=8 model.vocabulary=11"
plain="model.bias=false mixer.bias=false"
exits 0 $all $plain names=llama golden=llama.safetensors model.hidden=6 model.norm=rms model.activation=swiglu model.tied=false \
    model.position=rope position.layout=halves mixer.heads=4 mixer.kv_heads=2
exits 0 $all names=transformer-xl golden=adaptive.safetensors cut=6 model.layers=1 model.mixer=transformer_xl model.norm_place=post model.hidden=6 \
    model.activation=relu model.scale_embedding=true mixer.heads=4 mixer.segment=6 model.adaptive_cutoffs=4,7 model.adaptive_divisor=2
placed() { # NAME ARGUMENT...: all is found, and the numbers are compared
    name=$1
    shift
    exits 0 $all names=$name golden=$name.safetensors tol=1e9 "$@"
    exits 1 $all names=$name golden=$name.safetensors "$@"
}
placed compressive model.mixer=compressive mixer.heads=4 mixer.segment=4 mixer.memory=4 mixer.compressed=2 mixer.rate=2 \
    mixer.positions=table mixer.out_bias=true model.last_norm=false model.tied=false model.head_bias=true model.residual=gru \
    model.activation=geglu model.hidden=6 cut=4
placed mpt $plain model.position=alibi mixer.heads=4
placed mamba model.mixer=mamba mixer.d_state=4 model.norm=rms model.feed_forward=false model.position=none
placed retnet model.mixer=retnet model.position=none mixer.heads=4 mixer.value_width=4 model.hidden=6 model.norm=rms model.bias=false \
    model.activation=geglu model.tied=false
placed t5 model.encoder_layers=2 model.encoder_mixer=longt5 mixer.heads=4 model.cross_heads=4 model.cross_scaled=false model.position=t5 \
    position.scaled=false model.norm=rms model.bias=false model.activation=geglu_tanh model.tied=false model.hidden=6 mixer.attention.bias=false

# distances that are none
cat >distances.py <<'P'
import array, json, struct
for i, value in enumerate((1e300, float("nan"), float("inf"), -2.0**63, 0.5)):
    raw = array.array("d", [1.0, value]).tobytes()
    text = json.dumps({"in.rel": {"dtype": "F64", "shape": [2], "data_offsets": [0, 16]},
                       "out.buckets": {"dtype": "F64", "shape": [2], "data_offsets": [16, 32]}}).encode()
    text += b" " * (-len(text) % 8)
    open("distances-%d.safetensors" % i, "wb").write(struct.pack("<Q", len(text)) + text + raw + raw)
P
python3 distances.py
for i in 0 1 2 3 4; do
    exits 3 position=t5 golden=distances-$i.safetensors tensor=buckets
    grep -q "which is no distance" err.txt || fail "distances-$i: $(cat err.txt)"
done
