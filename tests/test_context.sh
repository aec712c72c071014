# Sequences cut over ranks (train.context): the same bytes for any number of ranks, the gradients of a
# sequence that is not cut, less memory, and refusals.
set -eu
program=$1
. "$2/tests/scratch.sh"
. "$2/tests/ranks.sh"
write_text 300
small="data.corpus=text.txt data.tokenizer=byte model.width=32 model.layers=2 train.length=64
    train.batch=4 train.steps=4 train.log_every=1 train.shards=1"
try() { # name, ranks, keys
    name=$1 count=$2
    shift 2
    "$program" train $small train.context=4 "$@" out="$name.1" --quiet >/dev/null
    with_ranks "$count" "$program" train $small train.context=4 "$@" out="$name.$count"
    same_run "$name.1" "$name.$count" 0004
}
# attention with dropout, validation and parts that follow one another; windows in bf16; recurrent
# memory; a recurrence and short convolutions beside each other, two sequences on two ranks each
try a 4 model.dropout=0.1 train.accumulate=2 train.validate_every=2 data.validation_share=0.2 \
    train.validate_tokens=256
try w 2 mixer.window=9 train.dtype=bf16
try r 4 model.segment=16 model.memory=2
try m 4 model.mixer=mamba train.shards=2

# losses and gradient norms of f64 are those of whole sequences, with other sums
"$program" train $small train.dtype=f64 out=whole --quiet >/dev/null
"$program" train $small train.dtype=f64 train.context=4 out=cut --quiet >/dev/null
awk -F'"loss":|,"lr"|"grad_norm":|,"auxiliary"' 'NR == FNR { loss[FNR] = $2; norm[FNR] = $4; next }
    { n++; if ($2 != loss[FNR] || $4 != norm[FNR]) bad = 1 }
    END { exit n != 4 || bad }' whole/metrics.jsonl cut/metrics.jsonl ||
    fail "sequences in parts learn something else: $(tail -qn 1 whole/metrics.jsonl cut/metrics.jsonl)"

# a length that does not fit the memory of one process trains on four
long="data.corpus=text.txt data.tokenizer=byte model.width=64 model.layers=2 mixer.window=64
    train.length=16384 train.batch=1 train.steps=1 train.shards=1"
code=0
(
    ulimit -v 150000
    "$program" train $long out=l1 --quiet 2>said
) || code=$?
[ $code -eq 4 ] || { cat said; fail "a length that does not fit gave $code"; }
with_ranks 4 sh -c 'ulimit -v 150000; exec "$@"' sh "$program" train $long train.context=4 out=l4

# a forecast of what would take 500 MB takes little itself
if command -v python3 >/dev/null; then
    taken=$(python3 - "$program" train data.corpus=text.txt data.tokenizer=byte model.width=64 model.layers=2 \
        mixer.window=1024 train.length=4096 train.batch=64 train.accumulate=64 train.shards=1 train.context=4 \
        check=true <<'END'
import resource, subprocess, sys
subprocess.run(sys.argv[1:], check=True, stdout=subprocess.DEVNULL)
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)
END
    )
    [ "$taken" -lt 200000 ] || fail "check=true took $taken KB"
fi

refused 2 "cannot be cut into train.context=16 parts" train $small train.length=40 train.context=16 out=x
refused 2 "train.context=3 must be a power of two" train $small train.context=3 out=x
refused 2 "they do not go together" train $small data.loader=stream train.carry=128 train.context=2 out=x
refused 2 "no multiple of the 24 tokens" train $small train.length=96 model.segment=24 model.memory=2 \
    train.context=8 out=x
refused 2 "pass no gradient.*set train.context=1" train $small model.mixer=compressive train.context=2 out=x
start_ranks 8 "$program" train $small train.context=4 out=x
wait_ranks
[ "$codes" = "2 2 2 2 2 2 2 2" ] || fail "too many ranks gave $codes"
said "8 ranks cannot share train.shards=1 times train.context=4 evenly"
exit $((failures > 0))
