#!/bin/sh
# What check=true says of memory, against the most that the system counted for each job (its resident set), beside the
# program itself, which a tiny arm tells: within 3%, with carried state, recomputation, parts of batches and bf16.
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
  bf16: {train.dtype: bf16}
Y
"$program" study study.yaml check=true out=s >said.txt 2>err.txt || { cat err.txt; exit 1; }
"$program" study study.yaml out=s --quiet >out.txt 2>err.txt || { cat err.txt; exit 1; }
python3 - <<'P'
import json, sys
said = {}
for line in open("said.txt").read().splitlines()[1:]:
    words = line.split()
    if not words: break  # what follows is of the whole study
    said[words[0]] = (float(words[4]) * 1e6, float(words[6]) * 1e6)
used = {a["name"]: (a["training"]["peak_bytes"], a["evaluation"]["peak_bytes"])
        for a in json.load(open("s/timing.json"))["arms"]}
wrong = 0
for kind in (0, 1):
    own = used["tiny"][kind] - said["tiny"][kind]
    for arm in said:
        above = said[arm][kind] / (used[arm][kind] - own) - 1
        bad = arm != "tiny" and abs(above) > 0.03
        wrong += bad
        print("%-10s %-5s said %7.1f MB, used %7.1f MB beside %5.1f: %+5.1f%%%s" % (
            arm, ("train", "test")[kind], said[arm][kind] / 1e6, (used[arm][kind] - own) / 1e6, own / 1e6, 100 * above,
            "  WRONG" if bad else ""))
sys.exit(wrong > 0)
P
