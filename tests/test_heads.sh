#!/bin/sh
# The suite `heads`: scores against those of transformers' patterns, any chunk, going on after a cut,
# position methods and mixers, models without patterns; its page.
set -eu
program=$1
golden=$2/tests/golden
. "$2/tests/scratch.sh"

# ---- against transformers ----
python3 - "$golden" "$program" <<'P' || fail "scores differ from those of transformers' patterns"
import json, subprocess, sys
golden, program = sys.argv[1:]
wanted = json.load(open(f"{golden}/suites/head-scores.json"))
open("text.txt", "w").write(wanted["text"])
def look(name, lengths, out, *more):
    subprocess.run([program, "eval", f"{golden}/checkpoints/{name}", "suite=heads",
                    f"suite.samples={wanted['samples']}", "suite.path=text.txt",
                    f"suite.lengths={','.join(map(str, lengths))}", f"suite.out={out}", *more],
                   check=True, stdout=subprocess.DEVNULL)
    return {r["id"]: r for r in map(json.loads, open(f"{out}/samples.jsonl").readlines()[1:])}
worst = {"dtype=f64": 0, "dtype=f32": 0}
for name, about in wanted["folders"].items():
    for kind in worst:
        records = look(name, about["lengths"], f"{name}-{kind}", kind)
        for sample in about["samples"]:
            number = sample["id"].split("-")[0]
            whole = records[sample["id"]]
            for key in "repeated", "text":
                assert whole[key] == sample[key], f"other tokens: remake head-scores.json ({key})"
            pairs = [(whole["metrics"], sample["model"])]
            for head in sample["heads"]:
                record = records[f"{number}-{head['layer']}.{head['head']}"]
                assert record["cell"] == {"length": sample["length"], "layer": head["layer"],
                                          "head": head["head"]}
                assert set(record["metrics"]) == {"score", *head["scores"]}, record["metrics"]
                pairs.append((record["metrics"], head["scores"]))
            for got, want in pairs:
                for key, value in want.items():
                    size = abs(got[key] - value) / max(1, abs(value))
                    worst[kind] = max(worst[kind], size)
    records = sum(len(s["heads"]) + 1 for s in about["samples"])
    results = json.load(open(f"{name}-dtype=f64/results.json"))
    assert results["form"] == "patterns" and results["n"] == wanted["samples"]
    best = max((s for s in results["cells"] if s["length"] == about["lengths"][0]),
               key=lambda s: s["metrics"]["prefix_matching"])
    assert results["score"] == best["score"] and len(results["model_scores"]) == len(about["lengths"])
print("largest differences:", worst)
assert worst["dtype=f64"] < 1e-10 and worst["dtype=f32"] < 1e-4, worst
P

# ---- any chunk, and after a cut ----
checkpoint=$golden/checkpoints/llama-llama3-sharded
look() { # NAME, more settings
    out=$1
    shift
    "$program" eval "$checkpoint" suite=heads suite.lengths=64,101 suite.samples=2 dtype=f64 \
        suite.out="$out" suite.path=text.txt "$@" >/dev/null
}
look whole
look pieces suite.chunk=7
look cut
python3 - <<'P'
lines = open("cut/samples.jsonl").readlines()
open("cut/samples.jsonl", "w").writelines(lines[: len(lines) // 2] + [lines[len(lines) // 2][:20]])
P
look cut
cmp -s whole/results.json cut/results.json || fail "going on gives other results"
python3 - <<'P' || fail "chunks change scores"
import json
one, two = (json.load(open(f"{n}/results.json"))["cells"] for n in ("whole", "pieces"))
assert len(one) == len(two) == 2 * 8
for a, b in zip(one, two):
    assert all(abs(v - b["metrics"][k]) < 1e-11 * max(1, abs(v)) for k, v in a["metrics"].items())
P

"$program" eval "$checkpoint" suite=heads suite.lengths=64 suite.samples=1 dtype=bf16 suite.out=narrow \
    >/dev/null || fail "weights that are kept in bf16 alone"

# ---- methods and mixers ----
train() { # NAME, settings
    out=$1
    shift
    "$program" train out="$out" data.corpus=text.txt data.tokenizer=byte model.layers=2 \
        model.width=16 model.length=32 train.steps=1 train.batch=1 --quiet "$@" >/dev/null
}
suite() { # NAME, settings: the sum of attention is 1, so no score is above it
    out=$1
    shift
    "$program" eval "$out" suite=heads suite.samples=1 "$@" --json >"$out.json" || {
        fail "heads of $out $*"
        return 0
    }
    python3 - "$out.json" <<'P' || fail "$out $*: scores that cannot be"
import json, sys
cells = json.load(open(sys.argv[1]))["cells"]
for cell in cells:
    for key, value in cell["metrics"].items():
        if "distance" not in key and "copying" not in key and not key.endswith("tropy"):
            assert -1e-6 <= value <= 1 + 1e-5, (key, value)
        assert value == value
assert {c["length"] for c in cells} == {32, 64, 128} and {c["layer"] for c in cells} == {0, 1}
P
}
for position in none alibi xpos t5; do
    train $position model.position=$position mixer.heads=2
    suite $position
done
train rope model.position=rope mixer.heads=4 mixer.kv_heads=2
suite rope
suite rope extend=sinks
suite rope extend=yarn
train window model.position=rope mixer.heads=2 mixer.window=24
suite window
suite xpos extend=bca
train xl model.mixer=transformer_xl mixer.heads=2
suite xl
train hybrid model.layers=mamba,attention mixer.attention.heads=2
"$program" eval hybrid suite=heads suite.samples=1 suite.lengths=64 --json >hybrid.json
python3 -c 'import json; assert {c["layer"] for c in json.load(open("hybrid.json"))["cells"]} == {1}' ||
    fail "layers of a hybrid"
for mixer in mamba retnet; do
    train $mixer model.mixer=$mixer
    refused 2 "no layer of this model has attention patterns" eval $mixer suite=heads
done
train learned model.position=learned mixer.heads=2
refused 2 "64 tokens, and the model can take 32" eval learned suite=heads suite.lengths=64
refused 2 "suite.form has no effect here" eval rope suite=heads suite.form=generate
refused 2 "suite.candidates" eval rope suite=heads suite.candidates=4
>empty.txt
refused 3 "no text" eval rope suite=heads suite.path=empty.txt

# ---- for people ----
"$program" inspect suites | tr -d '\n' | grep -q "heads: [^:]*patterns" || fail "not listed"
"$program" eval rope suite=heads suite.samples=1 suite.path=text.txt suite.out=page >out.txt
grep -q "^prefix_matching, strongest heads: layer" out.txt || fail "the strongest heads are not told"
grep -q "^changes at 128: layer" out.txt || fail "changes are not told"
[ $failures -eq 0 ]
