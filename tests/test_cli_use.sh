#!/bin/sh
# Wrong use and bad input: the right exit code, one sentence that names the trouble, no result.
set -u
program=$1
golden=$(cd "$(dirname "$0")/golden" && pwd)
. "$(dirname "$0")/scratch.sh"

# refuses CODE WORDS-IN-THE-MESSAGE ARGUMENT...
refuses() {
    wanted=$1 words=$2
    shift 2
    "$program" "$@" >out.txt 2>err.txt
    code=$?
    if [ $code -ne "$wanted" ] || ! unbroken err.txt | grep -q "^longshot: .*$words" ||
        [ "$(grep -c '^longshot: ' err.txt)" -ne 1 ]; then
        echo "FAILED: longshot $*: exit $code, wanted $wanted and \"$words\", got:" >&2
        cat err.txt >&2
        failures=$((failures + 1))
    fi
}

write_text 400
: >empty.txt
mkdir folder

# the program itself
refuses 2 "say what to do"
refuses 2 "did you mean train" trian
refuses 2 "no flag --jsn" inspect mixers --jsn
refuses 2 "no verb nothing" help nothing

# keys
refuses 2 "did you mean train.steps" train train.stesp=3 data.corpus=text.txt
refuses 2 "train.state_lr acts on the state spaces" train train.state_lr=1e-3 train.steps=1 model.layers=1 \
    model.width=16 mixer.heads=2 data.corpus=text.txt out=rates
refuses 2 "did you mean model.layers" train model.layer=3 data.corpus=text.txt
refuses 2 "there is no key models.layers" train models.layers=3 data.corpus=text.txt
refuses 2 "did you mean threads" train thread=3 data.corpus=text.txt
refuses 2 "no key lr: did you mean train.lr?" train lr=1e-3 data.corpus=text.txt
refuses 2 "no key heads: did you mean mixer.heads?" train heads=2 data.corpus=text.txt
refuses 2 "no key heds: did you mean mixer.heads?" train heds=2 data.corpus=text.txt
refuses 2 "no key steps: did you mean train.steps?" train steps=3 data.corpus=text.txt
refuses 2 "no key position: did you mean model.position?" train position=rope data.corpus=text.txt
# a key of another section, before one that is spelled much alike, which is said too where but a
# letter is wrong; not where two sections have it
refuses 2 "no key mixer.head: did you mean model.head or mixer.heads?" train mixer.head=4 data.corpus=text.txt
refuses 2 "no key model.heads: did you mean mixer.heads or model.head?" train model.heads=4 data.corpus=text.txt
refuses 2 "no key model.d_state: did you mean mixer.d_state?" train model.mixer=mamba model.d_state=4 data.corpus=text.txt
refuses 2 "no key model.batch: did you mean train.batch?" train model.batch=4 data.corpus=text.txt
refuses 2 "no key train.threads: did you mean threads?" train train.threads=4 data.corpus=text.txt
refuses 2 "no key mixer.width: did you mean model.width?" train mixer.width=4 data.corpus=text.txt
refuses 2 "no key data.length: did you mean model.length?" train data.length=4 data.corpus=text.txt
refuses 2 "no key mixer.d_state here" train mixer.d_state=4 data.corpus=text.txt
printf 'arms: {a: {model.heads: 4}}\n' >arms.yaml
refuses 2 "arm a: there is no key model.heads: did you mean mixer.heads or model.head?" study arms.yaml data.corpus=text.txt
printf 'arms: {a: {lr: 1e-3}}\n' >arms.yaml
refuses 2 "arm a: there is no key lr: did you mean train.lr?" study arms.yaml data.corpus=text.txt
refuses 2 "\`longshot study arms.yaml\` runs it" train arms.yaml data.corpus=text.txt
refuses 2 "out of range" train model.length=0 data.corpus=text.txt
refuses 2 "out of range" train train.length=0 data.corpus=text.txt
# a seed that a study takes is one of trainings
printf 'arms: {a: {}}\n' >arms.yaml
for words in "study arms.yaml seeds" "train train.seed" "train seed"; do
    # shellcheck disable=SC2086 # words
    refuses 2 "=9000000000000001 is out of range: use 0 to 9e+15" $words=9000000000000001 data.corpus=text.txt
done
refuses 2 "not a whole number" train train.steps=many data.corpus=text.txt
refuses 2 "7 heads (mixer.heads) do not divide a width of 100 (model.width)" train model.width=100 mixer.heads=7 data.corpus=text.txt
refuses 2 "what is .foo." doctor foo
refuses 2 ".foo. is neither key=value nor the one run" eval run foo
printf hello >five.txt
refuses 3 "the training text of five.txt has 5 tokens: too few for one sequence of train.length=256" train data.corpus=five.txt train.steps=1 out=five
printf 'a\0b%.0s' 1 2 3 4 >binary.txt
refuses 3 "is no text" train data.corpus=binary.txt train.steps=1 out=binary
[ -e /dev/nvidia0 ] || refuses 2 "device=cuda cannot be used" train device=cuda data.corpus=text.txt
refuses 2 "choose one of" train device=tpu data.corpus=text.txt
refuses 2 "did you mean attention" train model.mixer=atention data.corpus=text.txt
refuses 2 "there are study, report, train" unrelated
# long lists go on below, between the name of the program and the hint
refuses 2 "there are associative_recall, .*[a-z], text_pairs$" train task=unrelated data.corpus=text.txt
[ "$(wc -l <err.txt)" -eq 4 ] && ! grep -q '.\{101\}' err.txt ||
    { echo "FAILED: a list of names has other lines: $(cat err.txt)" >&2; failures=$((failures + 1)); }
refuses 2 "there are alibi, .*, xpos" train model.position=unrelated data.corpus=text.txt
refuses 2 "did you mean xpos" train model.position=xpso data.corpus=text.txt
refuses 2 "did you mean tiny" train model.preset=tinny data.corpus=text.txt
refuses 2 "longshot eval" train extend=bca data.corpus=text.txt
refuses 2 "too small" train model.vocabulary=100 data.corpus=text.txt
refuses 2 "vocabulary in clusters" train model.adaptive_cutoffs=100 train.label_smoothing=0.1 data.corpus=text.txt
refuses 2 "out of range" train train.label_smoothing=1 data.corpus=text.txt
# the engine's refusal, with the keys of a recipe that were its cause
refuses 2 "set data.borders=false, or another train.length" train model.mixer=transformer_xl mixer.segment=12 \
    train.length=16 train.carry=64 data.loader=stream data.borders=true data.corpus=text.txt
# a state that nothing carries
refuses 2 "needs data.loader=stream" train train.carry=4096 data.corpus=text.txt
refuses 2 "takes two train.length of 64" train train.carry=127 train.length=64 data.loader=stream data.corpus=text.txt
printf 'train: {steps: 1}\n' >good.yaml
refuses 2 "neither key=value" train good.yaml other.yaml

# data
refuses 3 "the corpus nowhere: No such file or directory in $scratch; paths are" train data.corpus=nowhere
refuses 3 "the corpus /nowhere: No such file or directory$" train data.corpus=/nowhere
refuses 3 "empty" train data.corpus=empty.txt
refuses 3 "folder" train data.corpus=folder
refuses 2 "stats, prepare, tokenizer or get" data states
refuses 2 "out=FOLDER" data tokenizer data.corpus=text.txt
refuses 2 "stats writes nothing" data out=x data.corpus=text.txt

# recipes
refuses 3 "the recipe nothing.yaml: No such file or directory in $scratch; paths are" train nothing.yaml
refuses 3 "the recipe nothing.yaml: No such file or directory in $scratch; paths are" study nothing.yaml
refuses 3 "no folder of a run" train folder
refuses 3 "folder is a folder, where a file is wanted" study folder
mkdir old
printf 'arms: {a: {}}\n' >old/study.yaml
refuses 2 "\`longshot study old/study.yaml out=old\` goes on" study old
refuses 2 "\`longshot study old/study.yaml out=old\` goes on" train old
refuses 2 "text.txt is a file: name a folder" train train.steps=1 model.layers=1 model.width=16 mixer.heads=2 \
    data.corpus=text.txt out=text.txt
printf 'a: [1, 2\n' >broken.yaml
refuses 3 "broken.yaml" train broken.yaml
printf 'a: &a [1]\nb: *a\n' >alias.yaml
refuses 3 "" train alias.yaml
printf 'train:\n  steps: 1\ntrain.steps: 2\n' >twice.yaml
refuses 3 "twice" train twice.yaml
head -c 2000000 /dev/zero | tr '\0' 'a' >large.yaml
refuses 3 "at most" train large.yaml
python3 - <<'P' 2>/dev/null || printf 'a: {b: {c: {d: {e: {f: {g: {h: {i: {j: {k: {l: {m: {n: {o: {p: {q: {r: {s: 1}}}}}}}}}}}}}}}}}}}\n' >deep.yaml
open("deep.yaml", "w").write("{a: " * 3000 + "1" + "}" * 3000)
P
refuses 3 "" train deep.yaml
head -c 5000 /dev/urandom >noise.yaml
refuses 3 "noise.yaml" train noise.yaml

# runs and files
refuses 3 "there is no nowhere: name the folder of a run" eval nowhere
grep -q 'check the path' err.txt || fail "the hint for a path that is not there"
refuses 3 "text.txt is neither the folder" eval text.txt
refuses 3 "name one of its runs, old/arms/ARM/seed-N" eval old
refuses 3 "folder has no results.json: name the folder of a study" report folder
refuses 3 "there is no folder nowhere" report nowhere
refuses 3 "good.yaml is a file: name the folder of a study" report good.yaml
# a prompt that does not fit is refused before it is printed
refuses 2 "learned positions end at 48 and cannot reach .* tokens: use fewer" generate \
    "$golden/checkpoints/gpt2" prompt_file=text.txt
[ ! -s out.txt ] || fail "a prompt that is refused was printed"
refuses 3 "holds neither" eval folder
refuses 2 "say which run" eval
refuses 2 "say which run" generate
refuses 2 "neither a list" inspect nowhere
refuses 2 "did you mean mixers" inspect mixrs
# what a study makes more of is said, and no folder of results is taken for texts
printf 'train: {lr: 1e-3}\nsweep: {train.length: [16, 32]}\narms: {a: {}, b: {model.mixer: mamba}}\n' >swept.yaml
"$program" inspect swept.yaml | tr -s '\n ' ' ' |
    grep -q "swept.yaml: 2 arms, of which a sweep makes more" || failures=$((failures + 1))
mkdir -p reached && echo '{}' >reached/reach.json
refuses 3 "reached holds neither" inspect reached
refuses 2 "model.width is a key: write model.width=VALUE" train model.width
# what is listed fits 100 columns, wherever there is a blank to break a line at
for list in mixers positions extensions presets tasks suites operations; do
    "$program" inspect $list
done >out.txt
for verb in $("$program" help | sed -n 's/^  \([a-z]*\)  *[A-Z].*/\1/p'); do "$program" help "$verb"; done >>out.txt
[ "$(wc -l <out.txt)" -gt 2000 ] || fail "little is listed"
if awk 'length($0) > 100 && substr($0, 1, 101) ~ /[^ ] +[^ ]/' out.txt | grep .; then fail "lines of more than 100 columns"; fi
grep ' $' out.txt && fail "blanks at the end of a line"
refuses 2 "did you mean yarn" inspect yran
cp text.txt text.bin
refuses 3 "text.bin" inspect text.bin
refuses 2 "say what to inspect" inspect
refuses 2 "say what to apply" apply
refuses 2 "give weights=" apply mixer=attention
refuses 2 "no mixer" apply mixer=attenton golden=x
refuses 3 "No such file" apply mixer=attention golden=missing.safetensors
refuses 2 "choose from gemm, train, .*, memory" bench what=nothing
refuses 2 "what=mem: choose from" bench what=mem
refuses 2 "what=train,: choose from" bench what=train,
refuses 2 "choose from" bench what=
grep -q 'see `longshot help bench`' err.txt || {
    echo "FAILED: the hint does not name the verb" >&2
    exit 1
}
refuses 2 "only=unrelated" bench what=train only=unrelated
"$program" bench what=sparse only=longt5 dtype=bf16 lengths=64 rounds=1 peer=none --json >rows.json
[ "$(grep -c '"kind"' rows.json)" = 2 ] && ! grep -q '"dtype": "f32"' rows.json || {
    echo "FAILED: only=longt5 dtype=bf16 beside all pairs" >&2
    exit 1
}

# figures that are held against kept ones: slower is exit code 1
small="bench what=sparse only=longt5 dtype=bf16 lengths=64 rounds=1 peer=none"
cp rows.json kept.json
sed 's/"seconds": [0-9.e-]*/"seconds": 1e-9/' kept.json >fast.json
sed 's/"name": "[^"]*"/"name": "another"/' kept.json >other.json
refuses 1 "2 rows are slower than in fast.json" $small compare=fast.json out=kept.json
grep -q '"slower"' kept.json || {
    echo "FAILED: out= where rows are slower" >&2
    exit 1
}
refuses 3 "another machine" $small compare=other.json
# and added to kept ones: the same rows are replaced, others stay
"$program" $small out=sum.json >out.txt 2>err.txt
# lines as it goes on to standard error, one table at the end to the output
grep -q '^ *bf16 .*longt5, side tokens' err.txt && ! grep -q '^ *bf16 ' out.txt &&
    [ "$(grep -c '^sparse, ms  *ours  spread$' out.txt)" = 1 ] &&
    [ "$(grep -c '^  longt5, side tokens, bf16, 1 x 64, 12 heads of 64.* 0.0%$' out.txt)" = 1 ] ||
    { cat out.txt err.txt; echo "FAILED: the table of a run" >&2; exit 1; }
"$program" $small --quiet >out.txt 2>err.txt
[ ! -s err.txt ] && [ -s out.txt ] || { cat err.txt; echo "FAILED: bench --quiet" >&2; exit 1; }
"$program" $small out=sum.json add=true >out.txt
[ "$(grep -c '"kind"' sum.json)" = 2 ] || { echo "FAILED: add=true twice the same" >&2; exit 1; }
"$program" $small out=sum.json add=true lengths=32 >out.txt
[ "$(grep -c '"kind"' sum.json)" = 4 ] || { echo "FAILED: add=true" >&2; exit 1; }
"$program" report sum.json to=markdown >out.txt
[ "$(grep -c '^| longt5, side tokens, bf16, 1 x \(64\|32\), 12 heads of 64 | [0-9.]* | 0.0% |' out.txt)" = 2 ] &&
    grep -q '^Taken [-0-9]* with longshot [0-9.]*, 1 turn\.$' out.txt ||
    { cat out.txt; echo "FAILED: the tables of kept figures" >&2; exit 1; }
"$program" report kept.json sum.json to=latex >out.txt
grep -q '^longt5, side tokens, bf16, 1 x 32' out.txt || { echo "FAILED: two files as one" >&2; exit 1; }
refuses 3 "another machine" $small out=other.json add=true
refuses 3 "two machines" report sum.json other.json to=markdown
refuses 2 "to=markdown" report sum.json
sed 's/"spread": [0-9.e-]*/"spread": -1/' sum.json >bad.json
refuses 3 "bad.json: .spread. of sparse, row 1, must be a number from 0" report bad.json to=markdown
refuses 3 "bad.json: .spread." $small out=bad.json add=true
refuses 3 "bad.json: .spread." $small compare=bad.json
head -c 300 sum.json >bad.json
refuses 3 "bad.json" report bad.json to=markdown
refuses 2 "has no effect here" bench add=true
refuses 3 "missing.json" $small compare=missing.json

# the table of an evaluation fits 100 columns, numbers below what they are
"$program" train model.layers=1 model.width=16 mixer.heads=2 model.length=16 train.steps=0 data.corpus=text.txt \
    out=measured --quiet >/dev/null 2>&1
"$program" eval measured eval.lengths=16,64 eval.tokens=128 --quiet >out.txt 2>/dev/null
[ "$(awk 'NR <= 3 { print length($0) }' out.txt | sort -u)" = 100 ] || {
    echo "FAILED: the table of eval" >&2
    failures=$((failures + 1))
}

# every verb explains itself
for verb in study report train eval generate bench data inspect apply doctor help; do
    "$program" help $verb >help.txt && grep -q "^longshot $verb" help.txt || {
        echo "FAILED: help $verb" >&2
        failures=$((failures + 1))
    }
    "$program" $verb --help >/dev/null || failures=$((failures + 1))
done
# lists are shown as the command line takes them
layers=$("$program" help train | tr -s ' \n' ' ' | sed -n 's/.*the mixer of each: \([^ ;]*\);.*/\1/p')
labels=$("$program" help train | tr -s ' \n' ' ' | sed -n 's/.*options of their own: \([^ ;]*\) with.*/\1/p')
for example in "$layers" "$labels"; do
    [ -n "$example" ] && "$program" train model.layers="$example" model.width=32 train.steps=0 \
        data.corpus=text.txt out=listed-$example --quiet >/dev/null || {
        echo "FAILED: the example model.layers=$example of help train" >&2
        failures=$((failures + 1))
    }
done
"$program" --version | grep -q '^longshot [0-9]' || failures=$((failures + 1))
"$program" --help >/dev/null || failures=$((failures + 1))

# results that cannot be written are an error
if [ -w /dev/full ]; then
    "$program" help >/dev/full 2>err.txt
    [ $? -eq 4 ] || { echo "FAILED: a full disk went unnoticed" >&2; failures=$((failures + 1)); }
fi
[ $failures -eq 0 ]
