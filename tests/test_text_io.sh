#!/bin/sh
# Text in and out: prompts by word, key, file and standard input; ids as JSON there and back.
set -u
program=$(realpath "$1")
. "$(dirname "$0")/scratch.sh"
export OMP_NUM_THREADS=1
write_text 100
"$program" train model.layers=1 model.width=16 mixer.heads=1 model.length=16 train.batch=2 train.steps=4 data.corpus=text.txt \
    out=run --quiet >/dev/null 2>&1 || fail "a training"
generate() { "$program" generate run "$@" tokens=12 seed=5 2>err.txt; }
generate prompt="line 7 of" >key.txt || fail "prompt=: $(cat err.txt)"
same() { # WHAT, after the text is in got.txt
    cmp -s key.txt got.txt || fail "$1: $(cat err.txt; head -c 100 got.txt)"
}
generate "line 7 of" >got.txt
same "the second word"
printf 'line 7 of' | generate prompt=- >got.txt
same "prompt=-"
echo 'line 7 of' | generate - >got.txt
same "a word that is the standard input, with a newline"
echo 'line 7 of' >prompt.txt
generate prompt_file=prompt.txt >got.txt
same "prompt_file="
generate prompt_file=- <prompt.txt >got.txt
same "prompt_file=-"
generate generate.prompt="line 7 of" >got.txt
same "generate.prompt="
head -c 9 key.txt | grep -qx "line 7 of" || fail "the prompt does not stand before what follows: $(head -c 40 key.txt)"
# longer than a key's value may be elsewhere: it is read whole
long=$(awk 'BEGIN { for (i = 0; i < 400; i++) printf "word%d ", i }')
printf '%s' "$long" >long.txt
generate prompt="$long" >key.txt || fail "a long prompt: $(cat err.txt)"
generate prompt_file=long.txt >got.txt
same "a long prompt"
head -c "$(wc -c <long.txt)" key.txt | cmp -s - long.txt || fail "a long prompt is cut"
: >empty.txt
generate prompt_file=empty.txt >got.txt || fail "an empty prompt: $(cat err.txt)"
generate >key.txt
same "an empty prompt is none"
refused 2 "more than once" generate run a prompt=b
refused 2 "more than once" generate run prompt=b prompt_file=prompt.txt
refused 2 "say which run" generate run a b
refused 3 "nowhere" generate run prompt_file=nowhere
printf 'a\0b' >zero.txt
refused 3 "zero byte" generate run prompt_file=zero.txt

# ids
printf 'caf\303\251 \n and more' >text.bin
"$program" tokenize run file=text.bin --json >ids.json || fail "tokenize"
python3 -c 'import json; d = json.load(open("ids.json")); assert d["ids"] == list(open("text.bin", "rb").read()) and d["tokens"] == 16' || fail "ids"
"$program" tokenize run file=- --json <text.bin | cmp -s - ids.json || fail "tokenize of the standard input"
back() { cmp -s text.bin got.txt || fail "$1: $(cat err.txt; od -c got.txt | head -2)"; }
"$program" detokenize run file=ids.json >got.txt 2>err.txt
back "a file of JSON"
"$program" detokenize run file=- <ids.json >got.txt 2>err.txt
back "the standard input"
"$program" tokenize run file=- --json <text.bin | "$program" detokenize run file=- >got.txt 2>err.txt
back "there and back"
python3 -c 'import json; print(json.dumps(json.load(open("ids.json"))["ids"]))' >list.json
"$program" detokenize run file=list.json >got.txt 2>err.txt
back "a list"
"$program" detokenize run ids="$(cat list.json)" >got.txt 2>err.txt
back "ids= with a list"
tr -d '[]' <list.json >plain.txt
"$program" detokenize run file=plain.txt >got.txt 2>err.txt
back "ids between commas"
for wrong in '[1, "2"]' '[1, 2.5]' '[-1]' '[4294967296]' '{"id": [1]}' '{"ids": 1}' '[1' '[1] 2' '[[1]]'; do
    refused 3 "ids" detokenize run ids="$wrong"
done
printf '1 2\0 3' >zero.txt
refused 3 "zero byte" detokenize run file=zero.txt
refused 2 "no id" detokenize run ids="1 x"

# a terminal gets no control characters, whatever a model writes; a file gets its bytes
steering=97,27,93,48,59,120,7,194,155,155,195,169,9,98,13,194,10
"$program" detokenize run ids=$steering >got.txt
printf 'a\033]0;x\007\302\233\233\303\251\tb\r\302\n' | cmp -s - got.txt || fail "bytes in a file: $(od -c got.txt)"
if script -qec true /dev/null </dev/null >/dev/null 2>&1; then
    script -qec "$program detokenize run ids=$steering" /dev/null </dev/null | tr -d '\r' >got.txt
    printf 'a?]0;x???\303\251\tb?\302\n' | cmp -s - got.txt || fail "bytes on a terminal: $(od -c got.txt)"
    printf 'a\033[2J' >escape.txt
    script -qec "$program generate run prompt_file=escape.txt tokens=40 temperature=3" /dev/null </dev/null | tr -d '\r\n\t' >got.txt
    head -c 5 got.txt | grep -qF 'a?[2J' || fail "a prompt on a terminal: $(od -c got.txt | head -2)"
    LC_ALL=C grep -q '[[:cntrl:]]' got.txt && fail "control characters on a terminal: $(od -c got.txt)"
else
    echo "no pseudo-terminal can be had here: what goes to one is not looked at" >&2
fi
[ $failures = 0 ] && echo "test_text_io: ok"
exit $failures
