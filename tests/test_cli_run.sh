#!/bin/sh
# A run from beginning to end: train, stop, continue, evaluate, generate, inspect, damage.
set -eu
program=$1
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
cd "$scratch"
export XDG_CACHE_HOME="$scratch/cache" GOMP_SPINCOUNT=100
fail() { echo "FAILED: $*" >&2; exit 1; }
is_json() { python3 -c 'import json, sys; json.load(sys.stdin)'; }

mkdir corpus
for d in 1 2 3 4 5 6; do
    i=0
    while [ $i -lt 100 ]; do
        echo "document $d, line $i: what follows is much like what came before"
        i=$((i + 1))
    done >corpus/$d.txt
done
cat >recipe.yaml <<'Y'
model: {layers: 2, width: 32, length: 32, position: rope}
mixer:
  heads: 2
data:
  corpus: corpus
train: {steps: 12, batch: 4, log_every: 4, checkpoint_every: 4, lr: 1e-3}
Y

# the same command on a finished run says so; other settings are refused
"$program" train recipe.yaml out=runs/a --json | is_json
"$program" train recipe.yaml out=runs/a | grep -q "done before"
code=0
"$program" train recipe.yaml out=runs/a train.lr=2e-3 2>err.txt || code=$?
[ $code -eq 2 ] || fail "other settings were not refused"
grep -q "train.lr" err.txt || fail "the difference was not named"
for file in config.yaml env.json metrics.jsonl metrics.csv tokenizer checkpoints; do
    [ -e runs/a/$file ] || fail "no $file"
done

# a run that an older version began does not name what came later, and names what has no effect: it goes on as it is described
mkdir -p runs/older
grep -v "label_smoothing\|from_part" runs/a/config.yaml |
    sed 's/^train:$/&\n  decay_share: 0.7/; s/^model:$/&\n  memory_temperature: 2/' >runs/older/config.yaml
grep -q "decay_share" runs/older/config.yaml || fail "nothing was put into the older run's settings"
! grep -q "decay_share\|memory_temperature\|adaptive_divisor" runs/a/config.yaml || fail "what has no effect is printed"
cp runs/older/config.yaml older.yaml
code=0
"$program" train recipe.yaml out=runs/older train.label_smoothing=0.1 --quiet >/dev/null 2>err.txt || code=$?
[ $code -eq 2 ] || fail "settings that an older run did not have were not refused"
"$program" train recipe.yaml out=runs/older --quiet >/dev/null
"$program" train recipe.yaml out=runs/older | grep -q "done before" || fail "an older run does not go on"
cmp older.yaml runs/older/config.yaml || fail "an older run's settings were written anew"
cmp runs/a/checkpoints/step-00000012/model.safetensors runs/older/checkpoints/step-00000012/model.safetensors
"$program" eval runs/older eval.lengths=32 eval.tokens=256 >/dev/null || fail "an older run is not tested"
echo "extra: 1" >>runs/older/config.yaml
code=0
"$program" train recipe.yaml out=runs/older --quiet >/dev/null 2>err.txt || code=$?
[ $code -eq 2 ] || fail "a setting that is not known here was not refused"

# what would be ignored is refused, and so is another share of the corpus: it holds what was trained on
refuses() {
    said=$1
    shift
    code=0
    "$program" "$@" >/dev/null 2>err.txt || code=$?
    [ $code -eq 2 ] || fail "$*: left with $code"
    grep -q "$said" err.txt || fail "$*: $(cat err.txt)"
}
refuses "data.loader has no effect here: it needs training" eval runs/a data.loader=stream
refuses "data.borders has no effect here: it needs training" eval runs/a data.borders=true
refuses "data.tokenizer has no effect here: the run has its own" eval runs/a data.tokenizer=byte
refuses "data.vocabulary has no effect here" eval runs/a data.vocabulary=300
refuses "documents that it was trained on" eval runs/a data.test_share=0.3
refuses "documents that it was trained on" eval runs/a data.test_share=0.3 data.corpus=./corpus/
refuses "eval.samples has no effect here: it needs task" eval runs/a eval.samples=3
refuses "eval.stride has no effect here" eval runs/a eval.stride=3
refuses "not a whole number" eval runs/a eval.lengths=16.5
refuses "not a whole number" bench lengths=256.5
refuses "train.power has no effect here: it needs schedule=polynomial" \
    train recipe.yaml out=runs/never train.power=2 train.schedule=cosine
refuses "train.guard_rejections has no effect here: it needs guard!=stop" \
    train recipe.yaml out=runs/never train.guard=stop train.guard_rejections=3
for verb in "train recipe.yaml out=runs/never" "eval runs/a data.corpus=1.txt" "eval runs/a data.test=1.txt" "data data.corpus=corpus"; do
    cp corpus/1.txt 1.txt
    refuses "data.text_key has no effect here: no file is JSONL" $verb data.text_key=text
done
refuses "train.matmul=tf32 is for device=cuda" train recipe.yaml out=runs/never train.matmul=tf32
refuses "train.matmul has no effect here: it needs dtype=f32" \
    train recipe.yaml out=runs/never train.matmul=tf32 train.dtype=bf16 device=cpu
refuses "matmul=tf32 is for device=cuda" bench what=train dtype=f32 matmul=tf32
[ ! -e runs/never ] || fail "a refused run was begun"
mkdir other
cp corpus/1.txt corpus/2.txt corpus/3.txt other
printf '{"body": "one two three four five six"}\n{"body": "seven eight nine ten eleven"}\n' >other.jsonl
"$program" eval runs/a data.test=other.jsonl data.text_key=body eval.lengths=16 eval.documents=all >/dev/null
"$program" eval runs/a data.corpus=other data.test_share=0.5 eval.lengths=32 eval.tokens=256 >/dev/null

# cut by a time limit and continued, the weights are the same bytes
code=0
"$program" train recipe.yaml out=runs/b train.max_minutes=1e-9 --quiet 2>err.txt || code=$?
[ $code -eq 75 ] || fail "a stopped run left with $code"

# the next stage of a curriculum begins with a run's weights, at another length
"$program" train recipe.yaml out=runs/stage train.from=runs/a train.length=64 train.steps=0 --quiet >/dev/null
python3 - <<'P'
def data(path):
    whole = open(path, "rb").read()
    return whole[8 + int.from_bytes(whole[:8], "little"):]
first, second = ("runs/a/checkpoints/step-00000012", "runs/stage/checkpoints/step-00000000")
assert data(first + "/model.safetensors") == data(second + "/model.safetensors")
P
code=0
"$program" train recipe.yaml out=runs/nothing train.from=runs/none --quiet >/dev/null 2>err.txt || code=$?
[ $code -eq 3 ] && grep -q "runs/none" err.txt || fail "weights from nowhere left with $code"
# a memory is added to a model that was trained without one: what it lacks is drawn, on demand only
code=0
"$program" train recipe.yaml out=runs/memory train.from=runs/a model.segment=8 model.memory=2 train.steps=0 --quiet >/dev/null 2>err.txt || code=$?
[ $code -eq 3 ] && grep -q "has no tensor" err.txt || fail "weights that are not there left with $code"
"$program" train recipe.yaml out=runs/memory train.from=runs/a train.from_part=true model.segment=8 model.memory=2 train.steps=0 >/dev/null 2>err.txt
grep -q "tensors are not in runs/a: they are drawn" err.txt || fail "nothing is said of weights that are drawn"
python3 - <<'P'
import json
def tensors(path):
    whole = open(path, "rb").read()
    size = int.from_bytes(whole[:8], "little")
    about = json.loads(whole[8:8 + size])
    about.pop("__metadata__", None)
    return {name: whole[8 + size + t["data_offsets"][0]:8 + size + t["data_offsets"][1]] for name, t in about.items()}
before = tensors("runs/a/checkpoints/step-00000012/model.safetensors")
after = tensors("runs/memory/checkpoints/step-00000000/model.safetensors")
assert set(before) < set(after), "only some are new"
assert all(after[name] == before[name] for name in before)
P

# losses of single tokens, and what is made of them
"$program" eval runs/a eval.protocol=slide eval.stride=4 eval.lengths=8,16,32 eval.tokens=256 \
    eval.losses=losses.safetensors --quiet >/dev/null
"$program" recl a:8:losses.safetensors a:16:losses.safetensors a:32:losses.safetensors --json >recl.json
python3 - <<'P'
import json
said = json.load(open("recl.json"))
assert said["contexts"] == [8, 16, 32] and [r["share"] for r in said["results"]] == [0.1, 0.5, 1], said
for r in said["results"]:
    good = [g >= 0.01 for g in r["gain"]] + [False]
    assert all(g >= 0 for g in r["gain"]) and r["recl"] == said["contexts"][good.index(False)], r
P
code=0
"$program" recl a:8:losses.safetensors a:64:losses.safetensors 2>err.txt || code=$?
[ $code -eq 3 ] && grep -q "context of 64" err.txt || fail "a missing context left with $code"
code=0
"$program" recl losses.safetensors 2>err.txt || code=$?
[ $code -eq 2 ] && grep -q "MODEL:CONTEXT:FILE" err.txt || fail "a bare file left with $code"

# the memory in its last column is in MB of 10^6 bytes
"$program" eval runs/a eval.lengths=16,64 eval.tokens=0 >table.txt
"$program" eval runs/a eval.lengths=16,64 eval.tokens=0 --json | python3 -c '
import json, sys
wanted = ["MB"] + ["%.1f" % (1e-6 * row["bytes"]) for row in json.load(sys.stdin)["results"]]
got = [line.split()[-1] for line in open("table.txt") if line.split()[:1] in (["protocol"], ["nonoverlap"])]
assert got == wanted, (got, wanted)
' || fail "the memory of eval is in another unit"

# evaluation: the same numbers however it is chunked, in a file and as JSON
"$program" eval runs/a eval.lengths=16,32,64 eval.tokens=0 --json >one.json
"$program" eval runs/a eval.lengths=16,32,64 eval.tokens=0 eval.chunk=7 eval.batch=3 --json >two.json
python3 - <<'P'
import glob, json
one, two = (json.load(open(f)) for f in ("one.json", "two.json"))
kept = [json.load(open(f)) for f in glob.glob("runs/a/eval/nonoverlap-16+32+64-step*-*.json")]
assert len(kept) == 2, "each evaluation keeps its own file"
kept = [k for k in kept if k["settings"]["chunk"] == one["settings"]["chunk"]][0]
for a, b, c in zip(one["results"], two["results"], kept["results"]):
    assert a["length"] == b["length"] == c["length"] and a["tokens"] == b["tokens"] == c["tokens"]
    assert abs(a["loss"] - b["loss"]) < 1e-5 * a["loss"], (a, b)
    assert sum(a["positions"]["tokens"]) == a["tokens"]
assert len({r["tokens"] for r in one["results"]}) == 1
assert one["results"][1]["excess"] == 0 and one["results"][2]["excess"] != 0
P
"$program" eval runs/a eval.protocol=slide,lex eval.lengths=32,64 eval.stride=8 eval.resolution=true \
    eval.tokens=512 --json | python3 -c '
import json, sys
got = json.load(sys.stdin)
assert [r["protocol"] for r in got["results"]] == ["slide", "slide", "lex", "lex"]
assert [r["stride"] for r in got["results"]] == [8, 8, 32, 64]
assert [r["length"] for r in got["resolution"]] == [32, 64]
assert all(-1 < r["R_head"] < 1 and 0 <= r["M_head"] <= 1 for r in got["resolution"])'
ls runs/a/eval/slide+lex-stride8-32+64-*.json >/dev/null || fail "no file for protocols and stride"
"$program" eval runs/a eval.lengths=64 extend=yarn extend.factor=2 | grep -q "^nonoverlap *64 "
ls runs/a/eval/nonoverlap-64-yarn-factor2-*.json >/dev/null || fail "no result of the extension"
code=0
"$program" eval runs/a eval.lengths=1000000 2>err.txt || code=$?
[ $code -eq 3 ] || fail "a length that no document has left with $code"
grep -q "no test document is long enough" err.txt || fail "the refusal does not say why"
code=0
"$program" eval runs/a eval.protocol=sliding 2>err.txt || code=$?
[ $code -eq 2 ] || fail "an unknown protocol left with $code"

# generation: reproducible, and what the prompt began
"$program" generate runs/a prompt="document 1" tokens=20 seed=3 >one.txt
"$program" generate runs/a prompt="document 1" tokens=20 seed=3 >two.txt
cmp one.txt two.txt
head -c 10 one.txt | grep -q "^document 1$" || fail "the prompt is missing"
"$program" generate runs/a generate.tokens=5 generate.temperature=0 >/dev/null

# listings are JSON
for subject in mixers positions extensions presets tasks operations runs/a \
    runs/a/checkpoints/step-00000012/model.safetensors; do
    "$program" inspect $subject --json | is_json
    "$program" inspect $subject >/dev/null
done
"$program" inspect xpos --json | python3 -c '
import json, sys
row = json.load(sys.stdin)[0]["expected"]
assert row["width"] == 64 and row["distance"][:4] == [0, 1, 2, 4] and row["score"][0] == 1, row
assert abs(32 * row["score"][row["distance"].index(256)] - 10.358944) < 1e-6, row' || fail "inspect xpos"
"$program" inspect xpos | grep -q "^ *16  0.600846$" || fail "inspect xpos has no expected scores"
"$program" inspect alibi | grep -q "expected score" && fail "ALiBi does not rotate"
"$program" data data.corpus=corpus --json | is_json
"$program" data tokenizer data.corpus=corpus data.vocabulary=300 out=tok >/dev/null
[ -e tok/merges.txt ] || fail "no tokenizer"
"$program" data prepare data.corpus=corpus data.tokenizer=tok out=prepared >/dev/null
ls prepared/*.tokens >/dev/null

# a damaged checkpoint is told, and the one before it is used
printf 'x' | dd of=runs/a/checkpoints/step-00000012/model.safetensors bs=1 seek=3000 conv=notrunc 2>/dev/null
"$program" inspect runs/a >list.txt 2>/dev/null
grep -q "step-00000012: damaged" list.txt || fail "the damage went unnoticed"
grep -q "step-00000008: intact" list.txt || fail "the older checkpoint is not named"
"$program" eval runs/a eval.lengths=16 >/dev/null 2>&1

# a full disk: an error, and the run stands
if [ -d /dev/shm ] && [ "$(id -u)" -eq 0 ] && mkdir full && mount -t tmpfs -o size=600k tmpfs full 2>/dev/null; then
    code=0
    "$program" train recipe.yaml out=full/run --quiet 2>err.txt || code=$?
    umount full
    [ $code -eq 4 ] || fail "a full disk left with $code"
fi

# a signal: a checkpoint, exit 75, and the same command goes on
"$program" train recipe.yaml out=runs/c train.steps=100000 --quiet 2>err.txt &
child=$!
sleep 3
kill -TERM $child
code=0
wait $child || code=$?
[ $code -eq 75 ] || fail "SIGTERM left with $code"
"$program" inspect runs/c | grep -q intact || fail "no checkpoint after SIGTERM"

# layers with different mixers: trained, read back from the run, streamed; a state of constant size
cat >hybrid.yaml <<'Y'
model: {layers: [mamba, attention], width: 32, length: 32, position: rope}
mixer: {heads: 2, d_state: 4, mamba.expand: 1}
data: {corpus: corpus}
train: {steps: 4, batch: 4, lr: 1e-3}
Y
"$program" train hybrid.yaml --quiet
grep -q "^mixer.mamba:" runs/mamba+attention-rope/config.yaml || fail "a mixer's options were not kept"
"$program" train hybrid.yaml 2>&1 | grep -q "done before" || fail "the same recipe is not the same run"
"$program" eval runs/mamba+attention-rope eval.lengths=32,64 --json >one.json
"$program" eval runs/mamba+attention-rope eval.lengths=32,64 eval.chunk=5 --json >two.json
python3 - <<'P'
import json
for a, b in zip(*(json.load(open(f))["results"] for f in ("one.json", "two.json"))):
    assert abs(a["loss"] - b["loss"]) < 1e-5 * a["loss"], (a, b)
P
# layers of one mixer with options of their own by a label, kept with the run, and changed at test for one or for all
"$program" train out=runs/l model.layers=transformer_xl:far,transformer_xl model.width=32 model.length=32 mixer.heads=2 mixer.segment=16 \
    mixer.memory=16 mixer.far.memory=32 data.corpus=corpus train.steps=4 train.batch=4 --quiet
for change in "" mixer.far.memory=8 mixer.transformer_xl.memory=8 mixer.memory=8; do
    "$program" eval runs/l eval.lengths=64 eval.tokens=1024 eval.protocol=stream $change --json
done >labels.json
python3 - <<'P'
import json
text, at, losses = open("labels.json").read(), 0, []
while text[at:].strip():
    result, end = json.JSONDecoder().raw_decode(text[at:].lstrip())
    at += end + len(text[at:]) - len(text[at:].lstrip())
    losses.append(result["results"][0]["loss"])
plain, one, of_type, every = losses
assert of_type == every and len({plain, one, every}) == 3, losses
P
"$program" train hybrid.yaml out=runs/m model.layers=2 model.mixer=mamba mixer.heads=2 2>err.txt && fail "a key of another mixer passed"
grep -q "mixer.heads" err.txt || fail "the wrong key was not named"
