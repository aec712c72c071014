#!/bin/sh
# What check=true says of memory, against the most that the system counted for each job (its resident set), beside the
# program itself, which a tiny arm tells: within 3%, with carried state, recomputation, parts of batches and bf16, and where
# a task's images are kept; and of one of four ranks, whose moments and master weights are cut.
# Tier: slow.
set -u
program=$(realpath "$1")
. "$(dirname "$0")/scratch.sh"
write_text 30000
cat >study.yaml <<Y
model: {layers: 2, width: 256, length: 256, position: none}
data: {corpus: text.txt}
train: {steps: 2, batch: 16, checkpoint_every: 1}
eval: {lengths: [256, 4096], tokens: 8192, chunk: 256}
seeds: [1]
jobs: 1
threads: 2
arms:
  tiny: {model.layers: 1, model.width: 32, train.batch: 1, model.length: 16, eval.lengths: [16]}
  plain: {train.lr: 1e-3}
  carry: {data.loader: stream, train.carry: 4096}
  xl: {model.mixer: transformer_xl, data.loader: stream, train.carry: 1024}
  recompute: {train.recompute: true}
  parts: {train.accumulate: 2}
  tiny-bf16: {model.layers: 1, model.width: 32, train.batch: 1, model.length: 16, eval.lengths: [16], train.dtype: bf16}
  bf16: {train.dtype: bf16}
Y
cat >kept.yaml <<Y
task: pathfinder
model: {layers: 1, width: 16}
mixer.heads: 1
train: {steps: 2, batch: 10, warmup: 1}
eval: {samples: 10}
seeds: [1]
jobs: 1
threads: 1
arms:
  tiny: {task.samples: 10}
  kept: {task.samples: 20000}
Y
cat >compare.py <<'P'
import json, sys
said = {}
for line in open(sys.argv[1] + ".txt").read().splitlines()[1:]:
    words = line.split()
    if not words: break  # what follows is of the whole study
    said[words[0]] = (float(words[4]) * 1e6, float(words[6]) * 1e6)
used = {a["name"]: (a["training"]["peak_bytes"], a["evaluation"]["peak_bytes"])
        for a in json.load(open(sys.argv[1] + "/timing.json"))["arms"]}
kinds = ("train", "test")
wrong = 0
for kind in map(kinds.index, sys.argv[2:]):
    for arm in said: # what a program is by itself depends on the libraries that its products take
        tiny = "tiny-bf16" if "bf16" in arm else "tiny"
        own = used[tiny][kind] - said[tiny][kind]
        above = said[arm][kind] / (used[arm][kind] - own) - 1
        bad = arm != tiny and abs(above) > 0.03
        wrong += bad
        print("%-10s %-5s said %7.1f MB, used %7.1f MB beside %5.1f: %+5.1f%%%s" % (
            arm, kinds[kind], said[arm][kind] / 1e6, (used[arm][kind] - own) / 1e6, own / 1e6, 100 * above,
            "  WRONG" if bad else ""))
sys.exit(wrong > 0)
P
held_against() { # STUDY KIND...
    "$program" study $1.yaml check=true out=$1 >$1.txt 2>err.txt || { cat err.txt; exit 1; }
    "$program" study $1.yaml out=$1 --quiet >out.txt 2>err.txt || { cat err.txt; exit 1; }
    python3 compare.py "$@" || failures=1
}
held_against study train test
held_against kept train # tests keep no images
cat >ranks.py <<'P'
import json, os, subprocess, sys
program, port = sys.argv[1], 20000 + os.getpid() % 12000
recipe = ["data.corpus=text.txt", "data.tokenizer=byte", "model.position=none", "train.steps=2", "train.shards=4",
          "train.batch=4", "train.checkpoint_every=1", "threads=1"]
def said(words):
    done = subprocess.run([program, "train"] + recipe + words + ["check=true", "--json"], capture_output=True, text=True)
    return next(one["bytes"] for one in json.loads(done.stdout)["ranks"] if one["ranks"] == 4)
def used(words, out):
    global port
    port += 1
    ranks = []
    for rank in range(4):
        launch = dict(os.environ, RANK=str(rank), WORLD_SIZE="4", MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
        ranks.append(subprocess.Popen([program, "train"] + recipe + words + ["out=" + out, "--quiet"], env=launch,
                                      stdout=subprocess.DEVNULL))
    most = 0
    for rank in ranks:
        _, code, usage = os.wait4(rank.pid, 0)
        if code != 0: sys.exit("a rank failed")
        most = max(most, 1024 * usage.ru_maxrss)
    return most
tiny = ["model.layers=1", "model.width=32", "train.length=16", "train.dtype=bf16"]
own = used(tiny, "tiny") - said(tiny)
wrong = 0
for dtype in ("f32", "bf16"):
    words = ["model.layers=8", "model.width=384", "train.length=64", "train.dtype=" + dtype]
    forecast, taken = said(words), used(words, dtype) - own
    bad = abs(forecast / taken - 1) > 0.03
    wrong += bad
    print("%-10s rank  said %7.1f MB, used %7.1f MB beside %5.1f: %+5.1f%%%s" % (
        dtype, forecast / 1e6, taken / 1e6, own / 1e6, 100 * (forecast / taken - 1), "  WRONG" if bad else ""))
sys.exit(wrong > 0)
P
python3 ranks.py "$program" || failures=1
exit $((failures > 0))
