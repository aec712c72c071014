# Tier: slow
# Texts cut over ranks (eval.context): the losses of one rank, by position and token, for mixers and positions
# of every kind; less memory; what fits no rank alone; refusals and failures.
set -eu
program=$1
. "$2/tests/scratch.sh"
. "$2/tests/ranks.sh"
awk 'BEGIN { for (i = 0; i < 500; i++) print "line " i " of a text, whose number is " i * 7919 % 1000 ": keep it" }' >text.txt
small="data.corpus=text.txt data.tokenizer=byte model.width=32 model.layers=2 train.length=64
    train.batch=4 train.steps=12 train.lr=1e-2 data.test_share=0.5"
# JSON line by line: the same words, numbers within $1 of each other; time and memory aside
alike() {
    awk -v bar="$1" '
        /"(seconds|tokens_per_second|bytes|state_bytes|context|losses)":/ { next }
        { line = $0; number = ""
          if (match(line, /-?[0-9.]+(e[-+]?[0-9]+)?,?$/)) {
              number = substr(line, RSTART) + 0; line = substr(line, 1, RSTART - 1) } }
        NR == FNR { words[++count] = line; numbers[count] = number; next }
        { n++; off = number - numbers[n]; if (off < 0) off = -off; size = number < 0 ? -number : number
          if (line != words[n] || off > bar * (1 + size)) { print words[n] numbers[n], "is", $0; bad++ } }
        END { exit bad > 0 || n != count || n < 20 }' "$2" "$3"
}
train() { # name, keys
    name=$1
    shift
    "$program" train $small "$@" out="$name" --quiet >/dev/null
}
state() { sed -n 's/.*"state_bytes": *\([0-9]*\).*/\1/p' "$1" | tail -n 1; }
try() { # run, bar, how many times smaller the state is on four ranks, in tenths; keys
    run=$1 bar=$2 less=$3
    shift 3
    "$program" eval "$run" "$@" --json >one.json
    for size in 2 4; do
        with_ranks $size "$program" eval "$run" "$@" eval.context=$size --json
        alike "$bar" one.json rank.0.out >differs || { head -5 differs; fail "$run on $size ranks: $*"; }
        [ ! -s rank.1.out ] && [ ! -s rank.1.err ] || fail "rank 1 speaks"
    done
    [ $((10 * $(state one.json))) -ge $((less * $(state rank.0.out))) ] ||
        fail "$run: a state of $(state rank.0.out) bytes on four ranks, of $(state one.json) on one"
}
long="eval.lengths=64,300 eval.tokens=900"
train rope model.position=rope
try rope 1e-11 39 dtype=f64 $long eval.protocol=nonoverlap,slide,winmean,prefix,lex,stream eval.chunk=37
try rope 1e-5 39 $long extend=yarn eval.batch=2
try rope 1e-3 39 dtype=bf16 $long
train alibi model.position=alibi
try alibi 1e-11 39 dtype=f64 $long
train xpos model.position=xpos
try xpos 1e-11 39 dtype=f64 $long
try xpos 1e-11 39 dtype=f64 $long extend=bca extend.block=256 # longer than a part
try xpos 1e-11 10 dtype=f64 eval.lengths=300 eval.tokens=900 extend=bca extend.block=16 eval.chunk=16
train landmark model.position=rope extend=landmark extend.block=15 train.length=128
try landmark 1e-11 33 dtype=f64 $long extend.offload=false
train xl model.mixer=transformer_xl
try xl 1e-5 10 $long
train hybrid model.layers=mamba,attention,retnet model.position=rope
try hybrid 1e-11 20 dtype=f64 $long
train hyena model.mixer=hyena
try hyena 1e-5 15 eval.lengths=64,200 eval.tokens=400

# two groups of two ranks each: batches go by turns to them; the loss of every token
"$program" eval rope dtype=f64 $long eval.batch=1 eval.losses=one.losses --json >one.json
with_ranks 4 "$program" eval rope dtype=f64 $long eval.batch=1 eval.context=2 eval.losses=four.losses --json
alike 1e-11 one.json rank.0.out >differs || { head -5 differs; fail "two groups"; }
[ "$(wc -c <one.losses)" -eq "$(wc -c <four.losses)" ] || fail "other losses are written"
# recurrences alone have nothing to cut: the bits of one process
train mamba model.mixer=mamba
"$program" eval mamba $long --json >one.json
with_ranks 4 "$program" eval mamba $long eval.context=4 --json
alike 0 one.json rank.0.out >differs || { head -5 differs; fail "a recurrence"; }
grep -q "nothing for eval.context to cut" rank.0.err || fail "nobody says that nothing was cut"
# a task's samples
"$program" train task=copy model.width=16 model.layers=1 train.length=24 train.batch=4 train.steps=2 out=task \
    --quiet >/dev/null
"$program" eval task dtype=f64 eval.lengths=24,48 eval.samples=6 --json >one.json
with_ranks 4 "$program" eval task dtype=f64 eval.lengths=24,48 eval.samples=6 eval.context=4 --json
alike 1e-11 one.json rank.0.out >differs || { head -5 differs; fail "a task"; }

# a text that fits no rank alone is read by four, and the forecast says so
awk 'BEGIN { for (i = 0; i < 200; i++) printf "words %d of one long text ", i }' >long.txt
train wide model.width=256 model.layers=20 model.hidden=16 train.length=16 train.batch=1 train.steps=1
text="data.test=long.txt eval.lengths=2048 eval.tokens=2048 eval.positions=false eval.excess=false eval.chunk=64"
code=0
(
    ulimit -v 110000
    "$program" eval wide $text threads=1 2>err.txt
) >out.txt || code=$?
[ $code -eq 4 ] || { cat out.txt err.txt; fail "a text that does not fit gave $code"; }
with_ranks 4 sh -c 'ulimit -v 110000; exec "$@"' sh "$program" eval wide $text threads=1 eval.context=4
"$program" eval wide $text threads=1 eval.context=4 check=true >forecast
awk 'NR == 1 { one = $3 } { last = $(NF - 2) } END { exit NR != 3 || one < 2.2 * last }' forecast ||
    { cat forecast; fail "another forecast"; }

refused 2 "eval.context=3 is no power of two" eval rope eval.context=3
refused 2 "there is 1: start a multiple" eval rope eval.context=2
refused 2 "eval.resolution wants all scores" eval rope eval.context=2 eval.resolution=true
refused 2 "eval.context" eval rope suite=passkey eval.context=2
start_ranks 2 "$program" eval rope eval.context=4
wait_ranks
[ "$codes" = "2 2" ] || fail "too few ranks gave $codes"
said "eval.context=4 cuts a text over so many ranks, and there are 2"
# a rank with another text; one that is killed while the others wait for its part
sed 's/keep/kept/' text.txt >other.txt
ranks_port=$((ranks_port + 1))
start_rank 0 2 "$program" eval rope $long eval.context=2
rank_processes=$!
start_rank 1 2 "$program" eval rope $long eval.context=2 data.corpus=other.txt
rank_processes="$rank_processes $!"
wait_ranks
[ "$codes" = "2 2" ] || fail "another text gave $codes"
said "rank 1 has another model, other data or other settings than rank 0"
start_ranks 4 "$program" eval rope eval.lengths=4096 eval.chunk=1 eval.tokens=0 eval.documents=all eval.context=4
set -- $rank_processes
wait_for_sockets "$3" 3
sleep 0.3
kill -KILL "$3"
wait_ranks
[ "$codes" = "4 4 137 4" ] || fail "a killed rank gave $codes"
said "rank 2 of 4 is gone"
exit $((failures > 0))
