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
    kinds = {"F64": "d", "F32": "f", "U8": "B"}
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
