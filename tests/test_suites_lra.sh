#!/bin/sh
# The Long Range Arena's retrieval, image, Pathfinder and Path-X as a suite: the test split of the
# user's files, or samples that the program makes.
set -eu
program=$1
. "$2/tests/scratch.sh"
fail() { echo "FAILED: $*" >&2; exit 1; }

python3 - <<'P'
import random
draw = random.Random(5)
word = lambda: "".join(draw.choice("abcde") for _ in range(5))
for split, count in ("train", 6), ("eval", 4), ("test", 9):
    with open(f"new_aan_pairs.{split}.tsv", "w") as file:
        for i in range(count):
            file.write(f"{i % 2}.0\t{i}\t{i + 1}\t{split} {word()} {word()}\t{word()} {i}\n")
for name, count in ("data_batch_1", 12), ("test_batch", 7):
    with open(f"{name}.bin", "wb") as file:
        for i in range(count):
            file.write(bytes([i % 10]) + draw.randbytes(3072))
P
mkdir aan cifar
mv new_aan_pairs.* aan
mv ./*.bin cifar

# train a step, ask the suite twice with other batches, and eval of the same samples
ask() { # name, task, length, samples, more
    name=$1 task=$2 length=$3 samples=$4
    shift 4
    "$program" train out="$name" task="$task" train.length="$length" model.layers=1 model.width=8 model.causal=false \
        train.steps=1 train.batch=2 --quiet "$@" >/dev/null || fail "$name is not trained"
    for batch in 4 3; do
        "$program" eval "$name" suite=lra suite.samples="$samples" suite.batch=$batch suite.resamples=0 \
            suite.out="$name/by-$batch" >out.txt || fail "$name is not asked"
    done
    for batch in 4 3; do sed 1d "$name/by-$batch/samples.jsonl" >"$name/$batch.jsonl"; done
    cmp "$name/4.jsonl" "$name/3.jsonl" || fail "$name: batches change the results"
    "$program" eval "$name" eval.lengths="$length" eval.samples="$samples" --json >"$name/eval.json"
}
ask retrieval documents 24 20 task.path=aan mixer.heads=2 model.position=rope
ask image cifar 1024 20 task.path=cifar mixer.heads=2 model.position=rope
ask pathfinder pathfinder 1024 10 mixer.heads=2 model.position=rope
ask path-x pathfinder 16384 4 model.mixing=false model.position=none
python3 - <<'P' || fail "the arena"
import json
for name, called, n, split, chance in (("retrieval", "Retrieval", 9, 9, 0.5), ("image", "Image", 7, 7, 0.1),
                                       ("pathfinder", "Pathfinder", 10, 20000, 0.5), ("path-x", "Path-X", 4, 20000, 0.5)):
    r = json.load(open(f"{name}/by-4/results.json"))
    assert r["n"] == n and r["chance"] == chance and r["data"]["of the test split"] == split, (name, r)
    assert [c["task"] for c in r["cells"]] == [called], r["cells"]
    items = [json.loads(line) for line in list(open(f"{name}/by-4/samples.jsonl"))[1:]]
    assert len({i["prompt"] for i in items}) == n and all(i["tokens"] > 0 for i in items), name
    right = [i["prediction"] == i["references"][0] for i in items]
    assert [bool(i["metrics"]["score"]) for i in items] == right and abs(r["score"] - sum(right) / n) < 1e-12
    own = json.load(open(f"{name}/eval.json"))["results"][0]
    assert abs(r["score"] - own["accuracy"]) < 1e-9, (name, r["score"], own)
    if name in ("retrieval", "image"): # labels of the files
        assert sorted(i["references"][0] for i in items) == sorted(i % (2 if name == "retrieval" else 10) for i in range(n))
    if name == "path-x":
        assert all(i["tokens"] == 16384 for i in items)
P

# wrong files: one sentence each
printf '2\t1\t2\ta\tb\n' >aan/new_aan_pairs.test.tsv
refused 3 "the label must be 0 or 1" eval retrieval suite=lra
printf '1\t1\t2\ta\n' >aan/new_aan_pairs.test.tsv
refused 3 "new_aan_pairs.test.tsv" eval retrieval suite=lra
head -c 3000 cifar/test_batch.bin >cut.bin
mv cut.bin cifar/test_batch.bin
refused 3 "test_batch.bin" eval image suite=lra
refused 2 "made by the program" eval pathfinder suite=lra suite.path=aan
