# Tier: slow
# Several processes evaluate one model: the results of one process, every digit of them, on any number
# of ranks; only rank 0 speaks and writes; failures of one that all hear of.
set -eu
program=$1
. "$2/tests/scratch.sh"
. "$2/tests/ranks.sh"
write_text 600
awk 'BEGIN { for (i = 0; i < 9; i++) printf "{\"text\": \"a line of some words that is line %d\"}\n", i }' >lines.jsonl
plain() { sed 's/"\(seconds\|tokens_per_second\)": *[0-9.e+-]*//' "$1"; } # what is the same each time
try() { # run, ranks, keys: the JSON, and what was written, beside one process's
    run=$1 count=$2
    shift 2
    rm -rf "$run/eval"
    "$program" eval "$run" "$@" --json >one.json
    mv "$run/eval" alone
    with_ranks "$count" "$program" eval "$run" "$@" --json
    plain one.json >one
    plain rank.0.out >several
    cmp -s one several || { diff one several | head -5; fail "$run on $count ranks: $*"; }
    [ ! -s rank.1.out ] && [ ! -s rank.1.err ] || fail "rank 1 speaks"
    for file in alone/*.json; do
        plain "$file" >one
        plain "$run/eval/${file#alone/}" >several
        cmp -s one several || fail "$run on $count ranks writes another ${file#alone/}"
    done
    rm -rf alone
}
"$program" train data.corpus=text.txt data.tokenizer=byte model.width=16 model.layers=2 train.length=32 \
    train.batch=4 train.steps=4 data.test_share=0.5 out=lm --quiet >/dev/null
# 2 and 3 ranks; batches that do not come out even; protocols with windows of several lengths
try lm 2 eval.lengths=32,64,96 eval.protocol=nonoverlap,slide,winmean eval.batch=3 eval.tokens=2000
try lm 3 eval.lengths=32,200 eval.protocol=slide,stream eval.batch=2 eval.tokens=3000 eval.resolution=true \
    eval.resolution_tokens=128
# more ranks than batches; the losses of all tokens
"$program" eval lm eval.lengths=64 eval.batch=64 eval.tokens=500 eval.losses=one.losses >/dev/null
with_ranks 4 "$program" eval lm eval.lengths=64 eval.batch=64 eval.tokens=500 eval.losses=four.losses
cmp -s one.losses four.losses || fail "losses of tokens differ"
with_ranks 4 "$program" eval lm eval.lengths=64 eval.batch=1 eval.tokens=500 eval.losses=many.losses
cmp -s one.losses many.losses || fail "losses of tokens differ between batches"

# read whole: masked, one token at a time and several at once; tasks that answer tokens and classes
"$program" train data.corpus=text.txt data.tokenizer=byte model.width=16 model.layers=1 model.head=masked model.position=none model.mask_token=0 \
    model.causal=false train.length=32 train.batch=4 train.steps=2 data.test_share=0.5 out=masked --quiet \
    >/dev/null
try masked 3 eval.lengths=32,48 eval.batch=2 eval.tokens=300
try masked 2 eval.lengths=32 eval.batch=2 eval.tokens=100 eval.mask_every=0
"$program" train task=copy model.width=16 model.layers=1 train.length=24 train.batch=4 train.steps=2 \
    out=task --quiet >/dev/null
try task 3 eval.lengths=24,48 eval.samples=10 eval.batch=2
"$program" train task=listops model.width=16 model.layers=1 train.length=48 train.batch=4 train.steps=2 \
    out=class --quiet >/dev/null
try class 2 eval.samples=9 eval.batch=2

# suites: groups, batches and what looks at the model itself; the same samples in the same order, also where some are there
suite() { # name, ranks, keys
    name=$1 count=$2
    shift 2
    "$program" eval lm suite=$name "$@" suite.out=$name.1 --json >one.json
    with_ranks "$count" "$program" eval lm suite=$name "$@" suite.out=$name.n --json
    for file in samples.jsonl results.json; do
        cmp -s $name.1/$file $name.n/$file || fail "$file of $name on $count ranks"
    done
    cmp -s one.json rank.0.out || fail "results of $name on $count ranks"
    [ ! -s rank.1.out ] && [ ! -s rank.1.err ] || fail "rank 1 speaks"
    sed -n '1p;4p;6p' $name.1/samples.jsonl >$name.n/samples.jsonl # half of a batch that rank 1 takes
    rm $name.n/results.json
    with_ranks 2 "$program" eval lm suite=$name "$@" suite.out=$name.n --json
    cmp -s one.json rank.0.out || fail "results of $name that went on"
    sort $name.1/samples.jsonl >one
    sort $name.n/samples.jsonl >several
    cmp -s one several || fail "samples of $name that went on"
}
suite passkey 3 suite.lengths=300,400 suite.samples=4
suite lambada 2 suite.path=lines.jsonl suite.batch=2
suite heads 2 suite.lengths=32,48 suite.samples=3
ranks_port=$((ranks_port + 1))
start_rank 0 2 "$program" eval lm suite=heads suite.lengths=32 suite.out=other
rank_processes=$!
start_rank 1 2 "$program" eval lm suite=heads suite.lengths=48 suite.out=other
rank_processes="$rank_processes $!"
wait_ranks
[ "$codes" = "2 2" ] || fail "other lengths gave $codes"
said "rank 1 has another model, other data or other settings than rank 0"

# refusals and failures: one sentence
ranks_port=$((ranks_port + 1))
start_rank 0 2 "$program" eval lm eval.tokens=500
rank_processes=$!
start_rank 1 2 "$program" eval lm eval.tokens=600
rank_processes="$rank_processes $!"
wait_ranks
[ "$codes" = "2 2" ] || fail "other settings gave $codes"
said "rank 1 has another model, other data or other settings than rank 0"
# results that rank 0 cannot write
start_ranks 2 sh -c '[ "$RANK" -gt 0 ] || ulimit -f 1; exec "$@"' sh "$program" eval lm \
    eval.tokens=500 eval.batch=1 eval.losses=full.losses
wait_ranks
[ "$codes" = "4 4" ] || { cat rank.*.err; fail "a full disk gave $codes"; }
said "File too large"
for signal in KILL TERM; do
    start_ranks 2 "$program" eval lm eval.lengths=4096 eval.chunk=1 eval.batch=1 eval.tokens=0 eval.documents=all
    set -- $rank_processes
    wait_for_sockets "$2" 1
    sleep 0.2 # they may meet still, or evaluate
    kill -$signal "$2"
    wait_ranks
    case "$signal $codes" in
        "KILL 4 137") said "rank 1 of 2 is gone" ;;
        "TERM 75 75") said "rank 1: stopped" ;;
        *) cat rank.*.err; fail "$signal gave $codes" ;;
    esac
done
exit $((failures > 0))
