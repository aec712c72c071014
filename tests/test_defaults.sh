#!/bin/sh
# What `help` prints as defaults is what a run takes and records, whatever else is given.
set -eu
program=$1
. "$2/tests/scratch.sh"
mkdir text
for i in 1 2 3 4 5 6 7 8; do seq $((i * 100)) $((i * 100 + 400)) >text/$i.txt; done

"$program" help train >help.txt
"$program" inspect attention >attention.txt
"$program" train train.steps=0 data.corpus=text out=bare >/dev/null 2>&1
"$program" train train.steps=0 data.corpus=text model.mixer=retnet out=other >/dev/null 2>&1
"$program" train train.steps=0 task=copy out=task >/dev/null 2>&1
echo 'train: {steps: 0}' >recipe.yaml
"$program" train recipe.yaml data.corpus=text out=recipe >/dev/null 2>&1
python3 - <<'P'
import re

def read_config(path):
    found, section = {}, ""
    for line in open(path):
        key, _, value = line.rstrip("\n").partition(":")
        if not key.startswith(" "): section = key
        else: found[section + "." + key.strip()] = value.strip().strip("'")
    return found

def same(a, b):
    try: return float(a) == float(b)
    except ValueError: return a == b

said = dict(re.findall(r"^  ((?:model|data|train)\.[a-z_0-9]+)=(.*?)  \(", open("help.txt").read(), re.M))
assert len(said) > 80, len(said)
# given above, or found out by the run: the tokenizer's tokens
free = {"train.steps", "data.corpus", "model.vocabulary"}
# where a task says them: its length, its head, the guard that suits it
task = free | {"model.length", "train.length", "train.guard_spread"}
for run, other in (("bare", free), ("other", free | {"model.mixer", "model.position"}), ("recipe", free), ("task", task)):
    config = read_config(run + "/config.yaml")
    checked = 0
    for key, value in said.items():
        if key in other or key not in config: continue # not in config: it has no effect there
        assert same(config[key], value), "%s: help says %s=%s, the run took %s" % (run, key, value, config[key])
        checked += 1
    assert checked > 55, (run, checked)
    for key in ("model.layers", "model.width", "train.batch", "train.lr", "train.schedule"):
        assert key in config, key
config = read_config("bare/config.yaml")
assert config["mixer.heads"] == "4", config["mixer.heads"]
for key, value in re.findall(r"^    mixer\.([a-z_]+)=(.*?)  \(", open("attention.txt").read(), re.M):
    if "mixer." + key in config:
        assert same(config["mixer." + key], value), (key, value, config["mixer." + key])
P
