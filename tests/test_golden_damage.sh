#!/bin/sh
# Files of reference values whose lines and tensors are not what they must be: each is refused by a
# sentence that says why, and none takes long. The inputs are those that once broke something.
set -eu
program=$1
seeds=$2/tests/fuzz/seeds/fuzz_golden
. "$2/tests/scratch.sh"
export LC_ALL=C
damaged() { # SEED, WHAT, part of the sentence; of prompts a NUL ends the file
    tail -c +2 "$seeds/$1" >golden
    more=""
    [ "$2" != prompt ] || more=input=.
    [ "$2" = heads ] || { tr '\000' '\001' <golden | sed 's/\x01.*//' >golden.jsonl; mv golden.jsonl golden; }
    refused 3 "$3" apply "$2" golden=golden $more
}
damaged entry-no-text reader "an entry of vocabulary is not a text"
echo '{"reader": "listops_s4", "input": "[MAX 1", "options": {"vocabulary": {"1": "one"}}, "ids": []}' >golden
refused 3 "an entry of vocabulary is not a whole number" apply reader golden=golden
echo '{"reader": "grey", "input": [[256, 0, 0]], "grey_lra": [0], "grey_s4": [0]}' >golden
refused 3 "a colour is not a whole number of 0 to 255" apply reader golden=golden

damaged draws-no-text prompt "draws is not what the task draws"
damaged needle-beyond prompt "input is not a prompt with its needles inside"
begun=$(date +%s)
damaged many-words prompt "draws is not what the task draws"
[ $(($(date +%s) - begun)) -lt 20 ] || fail "a number of words in a small file took long"
echo '{"ordered_kv_records": [["a", "b"], ["c", "d"]], "key": "zz"}' >items.jsonl
damaged key-not-there prompt "an item whose pairs have its key once"
echo '{"suite": "lost_in_the_middle", "kind": "kv", "source": {"file": "../items.jsonl", "index": 0}}' >golden
refused 3 "source.file is not the name of a file" apply prompt golden=golden input=.
echo '{"suite": "niah", "kind": "single", "context_length": 8, "buffer": 0, "depth_percent": 100, "needle": "a", "context": "bca"}
{"suite": "niah", "kind": "single", "context_length": 8, "buffer": 0, "depth_percent": 1e300, "needle": "a", "context": "bca"}' >golden
refused 3 "depth_percent. must be 0 to 100" apply prompt golden=golden from=byte

damaged period-below heads "period_explore. must be 1 to"
damaged period-lowest heads "period_explore. must be 1 to"
damaged period-cut heads "config, line 1"
[ $failures -eq 0 ] || exit 1
echo "golden files with damage: good"
