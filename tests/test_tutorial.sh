#!/bin/sh
# The commands of docs/tutorial.md, as they stand there and in their order, with smaller models: at the end there are a
# page and a LaTeX table of four mixers at three lengths. Installing is left out.
# Tier: slow.
set -eu
program=$1
source=$2
. "$source/tests/scratch.sh"
mkdir -p clone/build
ln -s "$program" clone/build/longshot
cp -r "$source/docs" "$source/README.md" clone/
cd clone
awk '/^```sh$/ { in_block = 1; n++; next } /^```$/ { in_block = 0 }
    in_block { print >("../command-" sprintf("%02d", n)) }' docs/tutorial.md
[ "$(ls ../command-* | wc -l)" -eq 10 ] || { echo "not ten commands"; exit 1; }
installing=0
for command in ../command-*; do
    case $(cat "$command") in
        "git clone "*) installing=$((installing + 1)); continue;;
        script/*) [ -x "$source/$(cat "$command")" ] || { echo "no $(cat "$command")"; exit 1; }
            installing=$((installing + 1)); continue;;
        "longshot study own.yaml"*) # the same with less to do
            sed -i 's/$/ model.layers=1 model.width=16 train.steps=4 train.batch=2 eval.tokens=2048 threads=1/' "$command";;
    esac
    set +e # a shell may end within a file it reads, whatever stands behind
    . "$command" >>../out.txt 2>&1
    code=$?
    set -e
    [ $code -eq 0 ] || { cat "$command"; tail -n 5 ../out.txt; exit 1; }
done
[ $installing -eq 3 ] || { echo "$installing commands that install"; exit 1; }
python3 - <<'P'
import json, re
results = json.load(open("runs/own/results.json"))
assert results["finished"] and len(results["arms"]) == 12
assert {a["trained_length"] for a in results["arms"]} == {32, 64, 128}
for arm in results["arms"]:
    assert arm["seeds"] == 2 and [r["length"] for r in arm["results"]] == [32, 64, 128, 256, 512, 1024], arm["name"]
page = open("runs/own/report.html").read()
maps = re.findall(r"<figcaption>Trained and tested length, (\w+)<", page)
assert '<p class="finding">' in page and maps == ["attention", "Mamba", "RetNet", "Hyena"], maps
table = open("own.tex").read()
assert table.count("\\begin{tabular}") == 5 and len(re.findall(r"^Mamba, trained at (?:32|64|128) & ", table, re.M)) == 15
P
