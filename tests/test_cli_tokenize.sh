#!/bin/sh
# The verbs tokenize and detokenize: ids, special tokens, bytes there and back, refusals.
set -u
program=$1 golden=$2/tests/golden/tokenizers
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
cd "$scratch" || exit 1
failures=0

# prints WANTED ARGUMENT...
prints() {
    wanted=$1
    shift
    got=$("$program" "$@" 2>err.txt)
    [ "$got" = "$wanted" ] && return
    echo "FAILED: longshot $*: wanted \"$wanted\", got \"$got\"" >&2
    cat err.txt >&2
    failures=1
}

# refuses CODE WORDS-IN-THE-MESSAGE ARGUMENT...
refuses() {
    wanted=$1 words=$2
    shift 2
    "$program" "$@" >out.txt 2>err.txt
    code=$?
    [ $code -eq "$wanted" ] && grep -q "^longshot: .*$words" err.txt && [ ! -s out.txt ] && return
    echo "FAILED: longshot $*: exit $code, wanted $wanted and \"$words\", got:" >&2
    cat err.txt >&2
    failures=1
}

prints "97 98 99" tokenize byte text=abc
prints "423 75 424 295 426 264 289 314" tokenize "$golden/llama2" text="Hello world"
prints "1 423 75 424 295 426 264 289 314" tokenize "$golden/llama2" text="Hello world" special=true
prints '{"ids": [1], "tokens": 1, "bytes": 3}' tokenize "$golden/llama2" text="<s>" --json
prints "Hello world" detokenize "$golden/llama2" ids=423,75,424,295,426,264,289,314
prints "Hello" detokenize "$golden/llama2" ids="1 423 75 424 295 426" special=false
prints '{
 "text": "<s> e"
}' detokenize "$golden/llama2" ids=1,423,424 --json

# special tokens of a text are ids only where they may be
"$program" tokenize "$golden/gpt2" text="a<|endoftext|>" >parsed.txt
"$program" tokenize "$golden/gpt2" text="a<|endoftext|>" parse=false >plain.txt
grep -qw 0 parsed.txt || { echo "FAILED: <|endoftext|> is not recognised" >&2; failures=1; }
grep -qw 0 plain.txt && { echo "FAILED: text forges <|endoftext|>" >&2; failures=1; }

# any bytes, from a file and back, with every kind that keeps them
printf 'bytes \377\376 and \000 caf\303\251\r\n\n  x' >any.bin
for source in byte "$golden/gpt2/tokenizer.json" "$golden/llama3" "$golden/roberta"; do
    "$program" tokenize "$source" file=any.bin >ids.txt &&
        "$program" detokenize "$source" file=ids.txt >back.bin && cmp any.bin back.bin || failures=1
done

# a run folder has its tokenizer inside
mkdir -p run/tokenizer && cp "$golden/qwen2/tokenizer.json" run/tokenizer/
prints "$("$program" tokenize "$golden/qwen2" text='1234 words')" tokenize run text="1234 words"

refuses 2 "which text" tokenize byte
refuses 2 "which text" tokenize byte text=a file=any.bin
refuses 2 "which ids" detokenize byte
refuses 2 "no id" detokenize byte ids=1,x
refuses 3 "the id 256 is outside the vocabulary of 256" detokenize byte ids=72,256,108
refuses 3 "holds no tokenizer" tokenize "$scratch" text=a
refuses 3 "nowhere" tokenize nowhere text=a
printf '{"model": {"type": "WordLevel"}}' >odd.json
refuses 3 "WordLevel" tokenize odd.json text=a
exit $failures
