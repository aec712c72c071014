#!/bin/sh
# Benchmark suites: metrics, prompts and readers against the official code's, runs of each suite,
# going on after a cut, and files that are wrong. With LONGSHOT_SUITES, a folder with more vectors
# and a checkpoint, those too. Tier: slow
set -eu
program=$1
golden=$2/tests/golden/suites
. "$2/tests/scratch.sh"
fail() { echo "FAILED: $*" >&2; exit 1; } # what follows rests on what went before

# ---- against the official code ----
"$program" apply metric golden="$golden/metrics.jsonl" >out.txt || { cat out.txt; fail metrics; }
[ "$(wc -l <out.txt)" -ge 25 ] || fail "metrics are missing"
"$program" apply prompt golden="$golden/ruler.jsonl" >out.txt || { cat out.txt; fail ruler; }
"$program" apply prompt golden="$golden/needle.jsonl" >out.txt || { cat out.txt; fail needle; }
"$program" apply reader golden="$golden/readers.jsonl" >out.txt || { cat out.txt; fail readers; }
# a difference is told
sed 's/"score": 1.0,/"score": 0.99,/' "$golden/metrics.jsonl" >wrong.jsonl
refused 1 "differs" apply metric golden=wrong.jsonl
sed 's/green/greem/' "$golden/ruler.jsonl" >wrong.jsonl
refused 1 "differs" apply prompt golden=wrong.jsonl
sed 's/"ids": \[104/"ids": [105/; s/"grey_lra": \[0/"grey_lra": [1/' "$golden/readers.jsonl" >wrong.jsonl
refused 1 "differs" apply reader golden=wrong.jsonl
# what is no vector is refused
echo '{"suite": "longbench"}' >wrong.jsonl
refused 3 "line 1: metric is not a text" apply metric golden=wrong.jsonl
echo '{"suite": "longbench", "metric": "beauty", "prediction": "a"}' >wrong.jsonl
refused 3 "metric is not one that is known" apply metric golden=wrong.jsonl
echo '{"suite": "ruler", "task": "vt", "draws": [1]}' >wrong.jsonl
refused 3 "line 1" apply prompt golden=wrong.jsonl
: >wrong.jsonl
refused 3 "no records" apply metric golden=wrong.jsonl
refused 2 "give golden=" apply metric

# ---- suites on a run ----
write_corpus 6
"$program" train out=run data.corpus=corpus data.tokenizer=byte model.layers=1 model.width=16 \
    model.length=64 mixer.heads=2 train.steps=2 train.batch=2 --quiet >/dev/null
"$program" inspect suites | tr -d '\n' | grep -q "needle: [^:]*likelihood, *generate" || fail "not listed"

cat >lambada.jsonl <<'J'
{"text": "The cat sat on the mat"}
{"text": "one two three four\n five"}
{"text": "word"}
{"text": "a much longer passage, which goes on and on until it comes to its very own end"}
J
"$program" eval run suite=lambada suite.path=lambada.jsonl suite.out=one >out.txt
grep -q "^perplexity" out.txt || fail "no perplexity"
[ "$(wc -l <one/samples.jsonl)" -eq 5 ] || fail "samples are missing"
# a batch of one gives the same
"$program" eval run suite=lambada suite.path=lambada.jsonl suite.out=two suite.batch=1 >/dev/null
python3 - <<'P' || fail "batches change results"
import json
one, two = (json.load(open(f"{n}/results.json")) for n in ("one", "two"))
assert abs(one["metrics"]["logprob"] - two["metrics"]["logprob"]) < 1e-4
assert one["n"] == 4 and one["chance"] == 0 and one["form"] == "likelihood"
assert 0 <= one["low"] <= one["score"] <= one["high"] <= 1 and one["shares"] is True
for row in [one] + one["cells"]:  # Wilson's, which is never empty
    n, p, z = row["n"], row["score"], 1.959963984540054
    half = z / (1 + z * z / n) * (p * (1 - p) / n + z * z / (4 * n * n)) ** 0.5
    assert row["low"] < row["high"] and abs(row["high"] - min(1, (p + z * z / (2 * n)) / (1 + z * z / n) + half)) < 1e-9
P
# the plain file is the other variant
echo "The cat sat on the mat" >plain.txt
"$program" eval run suite=lambada suite.path=plain.txt suite.out=plain --json | grep -q '"standard"' ||
    fail "the variant is not told"

# needles: a shared context gives what each alone gives; seeds differ; going on gives the same
needle="eval run suite=needle suite.lengths=512,1024 suite.depths=3 suite.questions=3 suite.samples=2"
"$program" $needle suite.out=n1 >out.txt
grep -q "chance 0.1" out.txt || fail "chance is not told"
"$program" $needle suite.share=false suite.out=n2 >/dev/null
cmp n1/samples.jsonl n2/samples.jsonl || fail "sharing changes samples"
cp n1/results.json whole.json
head -n 9 n1/samples.jsonl | head -c -20 >cut.jsonl # a kill in the middle of a line
mv cut.jsonl n1/samples.jsonl
"$program" $needle suite.out=n1 >/dev/null
cmp n1/results.json whole.json || fail "going on gives other results"
[ "$(wc -l <n1/samples.jsonl)" -eq 13 ] || fail "not 12 samples"
# a signal ends it with what is done kept; the same command goes on
code=0
timeout -s TERM 2 "$program" $needle suite.samples=5000 suite.resamples=0 suite.out=n4 \
    >/dev/null 2>err.txt || code=$?
[ $code -eq 124 ] || [ $code -eq 75 ] || { cat err.txt; fail "a signal gave $code"; }
grep -q "goes on from here" err.txt || { cat err.txt; fail "the stop is not told"; }
[ "$(wc -l <n4/samples.jsonl)" -gt 1 ] || fail "nothing was kept"
[ ! -e n4/results.json ] || fail "results of a part"
refused 2 "another model, data or settings" $needle seed=2 suite.out=n1
"$program" $needle seed=2 suite.out=n3 >/dev/null
cmp -s n1/samples.jsonl n3/samples.jsonl && fail "the seed has no effect"
python3 - <<'P' || fail "cells are wrong"
import json
r = json.load(open("n1/results.json"))
cells = {(c["length"], c["depth"]): c for c in r["cells"]}
assert sorted(cells) == [(l, d) for l in (512, 1024) for d in (0, 50, 100)], sorted(cells)
assert all(c["n"] == 2 for c in cells.values()) and r["n"] == 12
samples = [json.loads(l) for l in open("n1/samples.jsonl")][1:]
assert all(s["tokens"] <= s["cell"]["length"] for s in samples)
assert all(len(s["prompt"]) == 16 and s["references"] for s in samples)
truths = [s["metrics"]["score"] for s in samples]
assert abs(sum(truths) / 12 - r["score"]) < 1e-12
P
# each other suite, in both forms
"$program" eval run suite=needle suite.form=generate suite.lengths=512 suite.depths=2 >/dev/null
"$program" eval run suite=passkey suite.lengths=400 suite.depths=2 suite.samples=2 >/dev/null
"$program" eval run suite=passkey suite.form=generate suite.lengths=400 suite.depths=2 \
    suite.samples=1 >/dev/null
"$program" eval run suite=middle suite.pairs=16 suite.depths=3 suite.questions=3 suite.samples=2 \
    >out.txt
grep -q "pairs *position" out.txt || fail "no positions"
i=0
while [ $i -lt 12 ]; do
    echo "{\"question\": \"what is thing $i\", \"answers\": [\"it is $i\"], \"ctxs\": [{\"title\": \"T$i\", \"text\": \"thing $i: it is $i\"}]}"
    i=$((i + 1))
done >nq.jsonl
"$program" eval run suite=middle suite.path=nq.jsonl suite.documents=3 suite.depths=3 \
    suite.samples=2 suite.candidates=4 >/dev/null
cat >kv.jsonl <<'J'
{"ordered_kv_records": [["k1", "v1"], ["k2", "v2"], ["k3", "v3"]], "key": "k2", "value": "v2"}
J
"$program" eval run suite=middle suite.path=kv.jsonl suite.candidates=3 suite.depths=3 \
    >/dev/null
"$program" eval run suite=middle suite.path=kv.jsonl suite.depths=3 suite.form=generate >/dev/null

# ruler: sizes fit, every task has its cell
"$program" eval run suite=ruler suite.lengths=2048 suite.samples=1 suite.path=corpus/1.txt \
    suite.out=ruler >out.txt
grep -q "^effective_length" out.txt || fail "no effective length"
"$program" eval run suite=ruler suite.lengths=900 suite.samples=1 suite.form=generate \
    suite.tasks=niah_single_1,fwe >/dev/null
python3 - <<'P' || fail "tasks of ruler"
import json
r = json.load(open("ruler/results.json"))
assert len(r["cells"]) == 11 and r["n"] == 11, len(r["cells"])
assert {c["task"]: c["chance"] for c in r["cells"]}["vt"] == 1 / 6
for line in list(open("ruler/samples.jsonl"))[1:]:
    s = json.loads(line)
    assert 0.7 * 2048 < s["tokens"] <= 2048 or s["cell"]["task"] == "cwe", (s["cell"], s["tokens"])
P
# longbench: a class, an answer among others, a cut in the middle, buckets of -E
mkdir longbench
cat >longbench/trec.jsonl <<'J'
{"input": "Question: what?\nType:", "context": "Question: who?\nType: Person", "answers": ["Thing"], "length": 9, "all_classes": ["Person", "Thing"]}
J
i=0
while [ $i -lt 12 ]; do
    echo "{\"input\": \"why $i?\", \"context\": \"because of $i. \", \"answers\": [\"of $i\"], \"length\": $((i * 1000)), \"all_classes\": null}"
    i=$((i + 1))
done >longbench/qasper_e.jsonl
"$program" eval run suite=longbench suite.path=longbench suite.out=lb >/dev/null
"$program" eval run suite=longbench suite.path=longbench suite.out=lbg suite.form=generate \
    suite.window=300 suite.samples=1 >out.txt
grep -q "^average" out.txt || fail "no average"
python3 - <<'P' || fail "cells of longbench"
import json
r = json.load(open("lb/results.json"))
cells = {(c["dataset"], c.get("bucket")): c["n"] for c in r["cells"]}
assert cells == {("trec", None): 1, ("qasper", "0-4k"): 4, ("qasper", "4-8k"): 4,
                 ("qasper", "8k+"): 4}, cells
tokens = [json.loads(l)["tokens"] for l in list(open("lbg/samples.jsonl"))[1:]]
assert max(tokens) <= 300 - 64, tokens # cut in the middle
P
# babilong and manyshot
cat >qa1_test.txt <<'B'
1 Mary moved to the bathroom.
2 John went to the hallway.
3 Where is Mary? 	bathroom	1
B
babilong="eval run suite=babilong suite.path=qa1_test.txt,corpus/1.txt"
"$program" $babilong suite.lengths=2000 >/dev/null
"$program" $babilong suite.lengths=2000 suite.form=generate >/dev/null
for i in 1 2 3 4; do printf 'animal\ta dog %d\nplant\ta tree %d\n' $i $i; done >shots.tsv
"$program" eval run suite=manyshot suite.path=shots.tsv suite.samples=2 >out.txt
grep -q "chance 0.5" out.txt || fail "chance of manyshot"

# ---- what is wrong is refused in one sentence ----
refused 2 "did you mean needle" eval run suite=needel
refused 2 "give suite.path=" eval run suite=lambada
refused 2 "has no effect here" eval run suite=lambada suite.path=plain.txt suite.depths=3
refused 2 "no form generate" eval run suite=lambada suite.path=plain.txt suite.form=generate
refused 2 "too short for" eval run suite=needle suite.lengths=64
refused 2 "too short" eval run suite=passkey suite.lengths=64
refused 2 "can take 600" eval run suite=needle suite.lengths=1024 suite.window=600
refused 2 "fewer values" eval run suite=middle suite.pairs=4
echo '{"passage": "a b"}' >wrong.jsonl
refused 3 "line 1 has no text .text." eval run suite=lambada suite.path=wrong.jsonl
printf '{"text": "a b"}\n{"text": "caf\351 au lait"}\n' >wrong.jsonl
refused 3 "line 2 is not UTF-8" eval run suite=lambada suite.path=wrong.jsonl
printf '{"text": "a b"}\n[1]\n' >wrong.jsonl
refused 3 "line 2 is no JSON object" eval run suite=lambada suite.path=wrong.jsonl
: >wrong.jsonl
refused 3 "has no lines" eval run suite=lambada suite.path=wrong.jsonl
echo "no JSON at all" >wrong.jsonl
refused 3 "wrong.jsonl, line 1" eval run suite=lambada suite.path=wrong.jsonl
printf 'a text\nin Latin-1: caf\351\n' >latin.txt
for suite in needle heads "ruler suite.tasks=niah_single_2"; do
    refused 3 "latin.txt: line 2 is not UTF-8" eval run suite=$suite suite.path=latin.txt
done
sed '1s/\["it is 0"\]/[]/' nq.jsonl >wrong.jsonl
refused 3 "line 1 has no list of texts .answers., or an empty one" eval run suite=middle \
    suite.path=wrong.jsonl suite.documents=3 suite.candidates=4
sed '1s/"title"/"name"/' nq.jsonl >wrong.jsonl
refused 3 "line 1 has no document" eval run suite=middle suite.path=wrong.jsonl suite.documents=3 \
    suite.candidates=4
refused 3 "too few for 20 documents" eval run suite=middle suite.path=nq.jsonl suite.documents=20
sed 's/"key": "k2"/"key": "k9"/' kv.jsonl >wrong.jsonl
refused 3 "asks for a key that it has not" eval run suite=middle suite.path=wrong.jsonl \
    suite.candidates=3
sed 's/\["k3", "v3"\]/["k3"]/' kv.jsonl >wrong.jsonl
refused 3 "a record that is no pair" eval run suite=middle suite.path=wrong.jsonl suite.candidates=3
echo '{"a": 1}' >wrong.jsonl
refused 3 "neither" eval run suite=middle suite.path=wrong.jsonl
refused 2 "too short for task" eval run suite=ruler suite.lengths=300
refused 2 "hides in a text" eval run suite=ruler suite.tasks=niah_single_2
refused 2 "did you mean" eval run suite=ruler suite.tasks=niah_singel_1
refused 2 "not named after a data set" eval run suite=longbench suite.path=nq.jsonl
refused 3 "no file DATASET" eval run suite=longbench suite.path=corpus
sed 's/"Thing"\], "l/"Animal"], "l/' longbench/trec.jsonl >trec.jsonl
refused 3 "none of the candidates" eval run suite=longbench suite.path=trec.jsonl
sed 's/"context"/"text"/' longbench/trec.jsonl >trec.jsonl
refused 3 "line 1 has no text .context." eval run suite=longbench suite.path=trec.jsonl
refused 2 "two files" eval run suite=babilong suite.path=qa1_test.txt
refused 2 "too short" $babilong suite.lengths=300
refused 2 "not named after a task" eval run suite=babilong suite.path=corpus/1.txt,corpus/2.txt
echo "Mary moved" >qa2_test.txt
refused 3 "does not begin with its number" eval run suite=babilong \
    suite.path=qa2_test.txt,corpus/1.txt
printf '1 Mary moved.\n   \n2 Where is Mary? \thall\t1\n' >qa2_test.txt
refused 3 "line 2 does not begin with its number" eval run suite=babilong suite.path=qa2_test.txt,corpus/1.txt
refused 3 "not label, tab, text" eval run suite=manyshot suite.path=plain.txt
printf 'a\tb\na\tc\n' >one.tsv
refused 3 "one label alone" eval run suite=manyshot suite.path=one.tsv
refused 3 "missing.jsonl" eval run suite=lambada suite.path=missing.jsonl
echo '{"group": 77}' >>one/samples.jsonl
refused 3 "is no sample of this suite" eval run suite=lambada suite.path=lambada.jsonl suite.out=one

# what a file decides
refused 2 "suite.documents has no effect here: the file has pairs" eval run suite=middle \
    suite.path=kv.jsonl suite.documents=3 suite.candidates=3
refused 2 "suite.candidates has no effect here: the files have their own" eval run suite=longbench \
    suite.path=longbench/trec.jsonl suite.candidates=3
# a text of which a tokenizer keeps nothing: no prompt is ever long enough
printf '%s\n' '[PAD]' '[UNK]' '[CLS]' '[SEP]' '[MASK]' the '##e' a b '##b' c '##c' . 1 2 '##1' '##2' >vocab.txt
printf '  \n \n' >blank.txt
"$program" train out=words data.corpus=corpus data.tokenizer=vocab.txt model.layers=1 model.width=16 \
    model.length=64 mixer.heads=2 train.steps=1 train.batch=2 --quiet >/dev/null
for suite in "needle suite.questions=1" "needle suite.form=generate" heads; do
    code=0
    timeout -k 1 120 "$program" eval words suite=$suite suite.lengths=512 suite.samples=1 suite.path=blank.txt >out.txt 2>err.txt || code=$?
    [ $code -eq 3 ] && grep -q "text of suite.path has no tokens" err.txt || fail "$suite: $code: $(cat err.txt)"
done
printf 'a b. c.\n\n' >short.txt
refused 3 "no sentence of 10 tokens" $babilong suite.lengths=1024 suite.path=qa1_test.txt,short.txt

# ---- more vectors ----
if [ -n "${LONGSHOT_SUITES:-}" ]; then
    "$program" apply metric golden="$LONGSHOT_SUITES/metrics-dev.jsonl" >/dev/null || fail "metrics"
    "$program" apply reader golden="$LONGSHOT_SUITES/readers-dev.jsonl" >/dev/null || fail "readers"
    "$program" apply heads golden="$LONGSHOT_SUITES/heads-dev.safetensors" >/dev/null || fail "heads"
    for name in ruler needle babilong; do
        "$program" apply prompt golden="$LONGSHOT_SUITES/prompts-$name-dev.jsonl" \
            from="$LONGSHOT_SUITES/lambada-model-dev" >/dev/null || fail "$name"
    done
fi
echo "suites: good"
