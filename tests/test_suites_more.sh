#!/bin/sh
# Suites: BOS once, closed book and oracle, RULER's questions, the Long Range Arena, wrong files.
# Tier: slow
set -eu
program=$1
. "$2/tests/scratch.sh"
fail() { echo "FAILED: $*" >&2; exit 1; } # what follows rests on what went before
checkpoints=$2/tests/golden/checkpoints
write_corpus 6
"$program" train out=run data.corpus=corpus data.tokenizer=byte model.layers=1 model.width=16 \
    model.length=64 mixer.heads=2 train.steps=2 train.batch=2 --quiet >/dev/null

# a run in bf16 keeps its weights in bf16 alone
"$program" train out=half data.corpus=corpus data.tokenizer=byte model.layers=1 model.width=32 model.length=64 \
    mixer.heads=1 train.steps=1 train.batch=2 train.dtype=bf16 --quiet >/dev/null
"$program" eval half suite=needle suite.lengths=192 suite.samples=1 suite.questions=1 suite.depths=2 suite.out=half1 >out.txt
"$program" eval half suite=needle suite.lengths=192 suite.samples=1 suite.questions=1 suite.depths=2 suite.out=half1 >out.txt

# ---- BOS ----
cat >lambada.jsonl <<'J'
{"text": "The cat sat on the mat"}
{"text": "<|begin_of_text|>The cat sat on the mat"}
J
count() { # folder, more: tokens of the context alone
    "$program" tokenize "$@" text="The cat sat on the" --json | python3 -c 'import json, sys; print(json.load(sys.stdin)["tokens"])'
}
tokens() { python3 -c 'import json, sys
print(*(r["tokens"] for r in map(json.loads, open(sys.argv[1] + "/samples.jsonl")) if "id" in r))' "$1"; }
llama=$checkpoints/llama-llama3-sharded
plain=$(count "$llama")
"$program" eval "$llama" suite=lambada suite.path=lambada.jsonl suite.out=bos >out.txt
[ "$(tokens bos)" = "$((plain + 1)) $((plain + 1))" ] || fail "BOS: $(tokens bos), not one more than $plain"
grep -q '"start token 0": 0' bos/results.json || fail "the start is not told"
head -1 lambada.jsonl >one.jsonl
plain=$(count "$checkpoints/gpt2")
"$program" eval "$checkpoints/gpt2" suite=lambada suite.path=one.jsonl suite.out=nobos >out.txt
[ "$(tokens nobos)" = "$plain" ] || fail "GPT-2 has a start"
# prompts of other suites begin with it too: the same question, one token more than its pieces
"$program" eval "$llama" suite=middle suite.pairs=4 suite.samples=1 suite.depths=1 suite.questions=1 \
    suite.candidates=2 suite.out=bos2 >out.txt
"$program" eval run suite=middle suite.pairs=4 suite.samples=1 suite.depths=1 suite.questions=1 \
    suite.candidates=2 suite.out=bytes >out.txt
python3 - "$program" "$llama" <<'P' || fail "BOS in middle"
import json, subprocess, sys
first = lambda n: [json.loads(l) for l in open(n + "/samples.jsonl")][1]
assert first("bos2")["prompt"] != first("bytes")["prompt"]
assert json.load(open("bos2/results.json"))["data"]["start token 0"] == 0
P

# ---- closed book and oracle ----
"$program" eval run suite=middle suite.pairs=4,8 suite.samples=2 suite.depths=2 suite.questions=2 \
    suite.candidates=4 suite.out=refs >out.txt
cat >kv.jsonl <<'J'
{"ordered_kv_records": [["k1", "v1"], ["k2", "v2"], ["k3", "v3"]], "key": "k2", "value": "v2"}
{"ordered_kv_records": [["a1", "w1"], ["a2", "w2"], ["a3", "w3"]], "key": "a3", "value": "w3"}
J
"$program" eval run suite=middle suite.path=kv.jsonl suite.candidates=2 suite.depths=3 suite.out=kv >out.txt
"$program" eval run suite=middle suite.path=kv.jsonl suite.form=generate suite.depths=3 suite.out=kvg >out.txt
python3 - <<'P' || fail "references"
import json
r = json.load(open("refs/results.json"))
assert r["n"] == 8 and sum(c["n"] for c in r["cells"]) == 8, r["n"]
got = {(c["reference"], c["pairs"]): c["n"] for c in r["references"]}
assert got == {(k, p): 2 for k in ("oracle", "closed book") for p in (4, 8)}, got
for name in ("kv", "kvg"):
    r = json.load(open(name + "/results.json"))
    assert r["n"] == 6 and {c["reference"]: c["n"] for c in r["references"]} == {"oracle": 2, "closed book": 2}
items = {i["id"]: i for i in map(json.loads, list(open("refs/samples.jsonl"))[1:])}
assert items["4-0-oracle"]["references"] == items["4-0-0"]["references"]
assert items["4-0-closed"]["tokens"] < items["4-0-oracle"]["tokens"] < items["4-0-0"]["tokens"]
assert "gain" not in items["4-0-closed"]["metrics"] and "gain" in items["4-0-oracle"]["metrics"]
assert "oracle, 4 pairs" in open("refs/report.html").read()
P
# forking and computing each question alone give the same bytes
"$program" eval run suite=middle suite.pairs=4,8 suite.samples=2 suite.depths=2 suite.questions=2 \
    suite.candidates=4 suite.share=false suite.out=alone >out.txt
cmp refs/samples.jsonl alone/samples.jsonl || fail "forking changes scores"

# ---- RULER's questions ----
python3 - <<'P'
import json
para = lambda a, p: f"Paragraph {p} of article {a} says that thing {a}{p} is number {a}{p}{a}{p}."
json.dump({"data": [{"title": f"A{a}", "paragraphs": [{"context": para(a, p), "qas": [
    {"question": f"Which number is thing {a}{p}?", "id": f"{a}{p}", "is_impossible": False,
     "answers": [{"text": f"{a}{p}{a}{p}", "answer_start": 1}, {"text": f"number {a}{p}{a}{p}", "answer_start": 1}]},
    {"question": "Nobody knows?", "id": "x", "is_impossible": True, "answers": []}]}
    for p in range(3)]} for a in range(4)]}, open("squad.json", "w"))
json.dump([{"question": f"Who is {i}?", "answer": f"person {i}",
            "context": [[f"T{i}{d}", [f"Sentence {d}.", f" It is about {i}."]] for d in range(3)]}
           for i in range(12)], open("hotpot.json", "w"))
P
"$program" eval run suite=ruler suite.tasks=qa_1,qa_2 suite.path=squad.json,hotpot.json suite.lengths=1024 \
    suite.samples=3 suite.candidates=4 suite.out=qa >out.txt
"$program" eval run suite=ruler suite.tasks=qa_1,qa_2 suite.path=hotpot.json,squad.json suite.lengths=1024 \
    suite.samples=2 suite.form=generate suite.out=qag >out.txt
python3 - <<'P' || fail "RULER's questions"
import json
r = json.load(open("qa/results.json"))
assert {c["task"]: c["n"] for c in r["cells"]} == {"qa_1": 3, "qa_2": 3} and abs(r["chance"] - 0.25) < 1e-9
items = [json.loads(l) for l in list(open("qa/samples.jsonl"))[1:]]
assert items[0]["references"] == ["0000", "number 0000"] and items[3]["references"] == ["person 0"]
assert all(i["tokens"] + 32 <= 1024 for i in items) and max(i["tokens"] for i in items) > 800
assert sorted(r["data"]) == ["haystack", "hotpot.json", "squad.json"]
P

# ---- the Long Range Arena ----
lra() { # out, task, more
    out=$1 task=$2
    shift 2
    "$program" train out="$out" task="$task" model.layers=1 model.width=16 mixer.heads=2 model.position=rope \
        model.causal=false train.steps=1 train.batch=2 --quiet "$@" >/dev/null
}
lra listops listops train.length=64 task.max_depth=4
"$program" eval listops suite=lra suite.samples=37 suite.out=lra1 >out.txt
"$program" eval listops suite=lra suite.samples=37 suite.batch=5 suite.out=lra2 >out.txt
"$program" eval listops eval.lengths=64 eval.samples=37 --json >eval.json
python3 - <<'P' || fail "lra"
import json
one, two = (json.load(open(f"lra{n}/results.json")) for n in (1, 2))
assert one["n"] == 37 and one["chance"] == 0.1 and one["cells"][0]["task"] == "ListOps"
assert one["data"]["of the test split"] == 2000 and one["score"] == two["score"]
# the suite and eval ask the same samples of the same model
assert abs(one["score"] - json.load(open("eval.json"))["results"][0]["accuracy"]) < 1e-9
P
# it goes on where it was cut
cp -r lra1 lra3
head -n 9 lra1/samples.jsonl >lra3/samples.jsonl
"$program" eval listops suite=lra suite.samples=37 suite.out=lra3 >out.txt
cmp lra1/results.json lra3/results.json || fail "a cut changes lra"
mkdir -p reviews/train/pos reviews/train/neg reviews/test/pos reviews/test/neg
for i in 1 2 3; do
    for s in train test; do
        echo "good $i" >reviews/$s/pos/$i.txt
        echo "bad $i" >reviews/$s/neg/$i.txt
    done
done
lra text text train.length=32 task.path=reviews
"$program" eval text suite=lra suite.out=lratext >out.txt
python3 -c 'import json
r = json.load(open("lratext/results.json"))
assert r["n"] == 6 and r["cells"][0]["task"] == "Text" and r["data"]["of the test split"] == 6' || fail "lra text"
cp -r reviews other
rm -r other/test/neg other/test/pos
refused 3 "finds no samples of the test set\|is not a folder\|no such\|No such" eval text suite=lra suite.path=other
refused 2 "made by the program" eval listops suite=lra suite.path=reviews
refused 2 "trained on a task with classes" eval run suite=lra
refused 2 "knows no text\|asks a language model" eval listops suite=needle

# ---- wrong files ----
ask() { # code, part, file's content, suite and more
    wanted=$1 part=$2
    printf "$3" >wrong.jsonl
    shift 3
    refused "$wanted" "$part" eval run "$@" suite.path=wrong.jsonl
}
ask 3 "has no text .text." '{"words": "a b"}\n' suite=lambada
ask 3 "line 2 is not UTF-8" '{"text": "a b"}\n{"text": "caf\351 b"}\n' suite=lambada
ask 3 "is no JSON object" '[1, 2]\n' suite=middle
ask 3 "neither .question. nor" '{"a": 1}\n' suite=middle
ask 3 "or an empty one" '{"question": "q", "answers": [], "ctxs": [{"title": "t", "text": "x"}]}\n' suite=middle suite.documents=1 suite.candidates=2
ask 3 "no document with" '{"question": "q", "answers": ["a"], "ctxs": []}\n' suite=middle suite.documents=1 suite.candidates=2
ask 3 "fewer than two pairs" '{"ordered_kv_records": [], "key": "k", "value": "v"}\n' suite=middle
ask 3 "has no lines" '' suite=middle
printf '{"data": 3}' >wrong.json
refused 3 "neither SQuAD" eval run suite=ruler suite.tasks=qa_1 suite.path=wrong.json
printf '{"data": [{"paragraphs": [{"qas": []}]}]}' >wrong.json
refused 3 "has no text .context." eval run suite=ruler suite.tasks=qa_1 suite.path=wrong.json
printf '{"data": []}' >wrong.json
refused 3 "has no questions" eval run suite=ruler suite.tasks=qa_1 suite.path=wrong.json
printf '{"data": [{"paragraphs": [{"context": "c", "qas": [{"question": "q", "answers": []}]}]}]}' >wrong.json
refused 3 "has no .answers." eval run suite=ruler suite.tasks=qa_1 suite.path=wrong.json
printf '[{"question": "q", "answer": "a", "context": [["t"]]}]' >wrong.json
refused 3 "has no .context." eval run suite=ruler suite.tasks=qa_2 suite.path=wrong.json
printf '[{"question": "q", "context": [["t", ["s"]]]}]' >wrong.json
refused 3 "has no .question." eval run suite=ruler suite.tasks=qa_2 suite.path=wrong.json
printf '[{"question": "caf\351"}]' >wrong.json
refused 3 "wrong.json" eval run suite=ruler suite.tasks=qa_2 suite.path=wrong.json
refused 2 "reads a .json file of SQuAD" eval run suite=ruler suite.tasks=qa_1
refused 2 "two files of SQuAD" eval run suite=ruler suite.path=squad.json,squad.json
# longer than the model can take
"$program" train out=short data.corpus=corpus data.tokenizer=byte model.layers=1 model.width=16 \
    model.length=64 mixer.heads=2 model.position=learned train.steps=1 train.batch=2 --quiet >/dev/null
refused 2 "the model can take 64" eval short suite=needle suite.lengths=128
refused 2 "the model can take 64" eval short suite=middle suite.pairs=16
refused 2 "the model can take 64" eval short suite=middle suite.path=kv.jsonl suite.candidates=2
[ $failures -eq 0 ]
