# Tier: slow
# Several processes train one model: the same bytes for any number of them, also where the run is cut
# and goes on with another number; and failures of one that all hear of.
set -eu
program=$1
. "$2/tests/scratch.sh"
. "$2/tests/ranks.sh"
write_text 300
small="data.corpus=text.txt data.tokenizer=byte model.width=32 model.layers=2
    train.length=32 train.batch=8 train.steps=8 train.checkpoint_every=4 train.shards=8"
train() { # folder, ranks, keys
    train_out=$1 train_ranks=$2
    shift 2
    with_ranks "$train_ranks" "$program" train $small "$@" out="$train_out"
}

# attention with dropout, clipping, drawn batches, validation and parts of leaves
several="model.dropout=0.1 train.clip=0.5 train.batch=16 train.accumulate=2 train.validate_every=2
    data.validation_share=0.2 train.validate_tokens=512"
"$program" train $small $several out=a1 --quiet >/dev/null
train a2 2 $several
train a4 4 $several
same_run a1 a2 0008
same_run a1 a4 0008
cmp -s a1/checkpoints/best-*/model.safetensors a4/checkpoints/best-*/model.safetensors ||
    fail "another checkpoint is the best on four ranks"
# only rank 0 reports
grep -q "step 8/8" rank.0.err || fail "rank 0 shows no progress"
[ ! -s rank.1.err ] && [ ! -s rank.3.out ] || fail "other ranks speak"
# Mamba in bf16 and recurrent memory with a carried state
"$program" train $small model.mixer=mamba train.dtype=bf16 out=m1 --quiet >/dev/null
train m8 8 model.mixer=mamba train.dtype=bf16
same_run m1 m8 0008
memory="model.segment=16 model.memory=2 data.loader=stream train.carry=128"
"$program" train $small $memory out=r1 --quiet >/dev/null
train r4 4 $memory
same_run r1 r4 0008

# a gradient of many buckets, whose sums go while the backward part does; also of bf16 and of adapters
wide="model.width=256 train.length=16 train.steps=3 train.checkpoint_every=3 train.dtype=bf16"
"$program" train $small $wide out=w1 --quiet >/dev/null
train w2 2 $wide
train w4 4 $wide
same_run w1 w2 0003
same_run w1 w4 0003
fine="data.corpus=text.txt train.from=w1 train.lora.rank=128 train.length=16 train.batch=8 train.steps=3
    train.checkpoint_every=3 train.shards=8"
"$program" train $fine out=l1 --quiet >/dev/null
with_ranks 4 "$program" train $fine out=l4
same_run l1 l4 0003

# cut after two steps on four ranks, on alone, on with two: train.shards is the folder's
without="data.corpus=text.txt data.tokenizer=byte model.width=32 model.layers=2
    train.length=32 train.batch=8 train.steps=8 train.checkpoint_every=1 $memory train.schedule=constant"
"$program" train $without train.shards=8 out=c1 --quiet >/dev/null
with_ranks 4 "$program" train $without train.steps=2 out=c4
"$program" train $without train.steps=5 out=c4 --quiet >/dev/null
with_ranks 2 "$program" train $without out=c4
same_run c1 c4 0008
# the same in bf16, whose master weights are cut; also the best checkpoint
narrow="data.corpus=text.txt data.tokenizer=byte model.width=64 model.layers=2 train.length=16 train.batch=8
    train.steps=8 train.checkpoint_every=1 train.shards=8 train.dtype=bf16 train.schedule=constant train.validate_every=1
    data.validation_share=0.2 train.validate_tokens=256"
"$program" train $narrow out=n1 --quiet >/dev/null
with_ranks 4 "$program" train $narrow train.steps=3 out=n4
"$program" train $narrow train.steps=5 out=n4 --quiet >/dev/null
with_ranks 2 "$program" train $narrow out=n4
same_run n1 n4 0008
cmp -s n1/checkpoints/best-*/model.safetensors n4/checkpoints/best-*/model.safetensors ||
    fail "another checkpoint is the best of cut master weights"

# refusals: one sentence, and nobody hangs
start_ranks 3 "$program" train $small out=x
wait_ranks
[ "$codes" = "2 2 2" ] || fail "three ranks gave $codes"
said "3 ranks cannot share train.shards=8 evenly"
ranks_port=$((ranks_port + 1))
start_rank 0 2 "$program" train $small out=x
rank_processes=$!
start_rank 1 2 "$program" train $small train.lr=0.5 out=x
rank_processes="$rank_processes $!"
wait_ranks
[ "$codes" = "2 2" ] || fail "two recipes gave $codes"
said "rank 1 has another recipe than rank 0"
apart() { # two ranks, the second in the folder `other`; no text lies above the run's folder
    ranks_port=$((ranks_port + 1))
    far=$(mktemp -d)
    start_rank 0 2 "$program" train $small out="$far/run"
    rank_processes=$!
    cd other
    start_rank 1 2 "$program" train $small out="$far/run"
    cd ..
    rank_processes="$rank_processes $!"
    wait_ranks
    mv other/rank.1.* .
    rm -rf "$far"
}
mkdir other
sed 's/line/Line/' text.txt >other/text.txt
apart
[ "$codes" = "2 2" ] || fail "two texts gave $codes"
said "rank 1 has other data than rank 0"
rm other/text.txt
apart
[ "$codes" = "3 3" ] || fail "a missing text gave $codes"
said "rank 1: .*text.txt"
# one that does not come
LONGSHOT_RANK_WAIT=1 start_rank 0 2 "$program" train $small out=x
rank_processes=$!
wait_ranks
[ "$codes" = 4 ] || fail "a missing rank gave $codes"
said "rank 1 of 2 has not come within 1 seconds"
RANK=2 WORLD_SIZE=2 refused 2 "ranks count from 0" train $small out=x
RANK=0 WORLD_SIZE=2 MASTER_ADDR= refused 2 "MASTER_ADDR and MASTER_PORT" train $small out=x
RANK=0 WORLD_SIZE=2 MASTER_ADDR=192.0.2.1 MASTER_PORT=29000 refused 2 "cannot listen at MASTER_ADDR" \
    train $small out=x
RANK=0 WORLD_SIZE=2 LONGSHOT_RANK_WAIT=soon MASTER_PORT=29000 refused 2 "LONGSHOT_RANK_WAIT" train $small
[ ! -e x ] || fail "a refused job left a folder"

# strangers at the door are sent away; one that knows the job and is another program ends it
if command -v python3 >/dev/null; then
    knock() { # bytes of the hello, as Python says them; until rank 0 listens
        python3 - "$ranks_port" "$1" <<'END'
import socket, struct, sys, time
for attempt in range(500):
    try:
        link = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
        break
    except OSError:
        time.sleep(0.02)
link.sendall(eval(sys.argv[2]))
link.settimeout(20)
sys.exit(0 if len(link.recv(4096)) in (0, 488) else 1)
END
    }
    ranks_port=$((ranks_port + 1))
    start_rank 0 2 "$program" train $small out=z
    rank_processes=$!
    knock 'b"GET / HTTP/1.1\r\nHost: localhost\r\nAccept: */*\r\n\r\n"' || fail "a stranger was answered"
    start_rank 1 2 "$program" train $small out=z
    rank_processes="$rank_processes $!"
    wait_ranks
    [ "$codes" = "0 0" ] || { cat rank.*.err; fail "a stranger disturbed the ranks: $codes"; }
    rm -f rank.*
    ranks_port=$((ranks_port + 1))
    start_rank 0 2 "$program" train $small out=z
    rank_processes=$!
    # the hash of no job, and a version that never was
    knock 'b"longshot ranks 1" + struct.pack("<QQIIII", 0x2d06800538d394c2, 7, 1, 2, 9, 0)' ||
        fail "another version was not answered"
    wait_ranks
    [ "$codes" = 2 ] || fail "another version gave $codes"
    said "rank 1 has another version or build of longshot than rank 0"
    # what rank 1 says first, said again by one that is no rank at all
    rm -f rank.*
    hear_hello train $small out=z
    ranks_port=$((ranks_port + 1))
    start_rank 0 2 "$program" train $small out=z
    rank_processes=$!
    knock 'open("hello", "rb").read()[:32] + struct.pack("<IIII", 5, 2, 9, 0)' || fail "rank 5 of 2 was not answered"
    wait_ranks
    [ "$codes" = 2 ] || fail "rank 5 of 2 gave $codes"
    said "one of 2 says that it is rank 5"
fi

# the more ranks, the less each of them takes
"$program" train model.width=256 train.batch=8 train.shards=8 data.corpus=text.txt check=true >said
awk '/at one time/ { last = $(NF - 4) } /^on [248] ranks/ { n++; if (!($6 < last)) exit 1; last = $6 } END { if (n != 3) exit 1 }' said ||
    { cat said; fail "memory per rank"; }
# and what it sends is that of halving and doubling: 8 P (1 - 1/R) bytes and some sums, where parts of the weights are
# cut at whole pieces and so not all of one size
awk 'NR == 1 { p = $1 } /^on [248] ranks/ { n++; want = 8e-6 * p * (1 - 1 / $2); if ($9 < 0.98 * want || $9 > 1.02 * want) exit 1 }
    END { if (n != 3) exit 1 }' said || { cat said; fail "bytes per rank"; }

# a killed rank, and the same command once more
long="$small train.steps=150 train.checkpoint_every=10 train.log_every=5"
"$program" train $long out=k1 --quiet >/dev/null
for victim in 0 1; do
    start_ranks 2 "$program" train $long out=k2
    wait_for_steps
    set -- $rank_processes
    shift $victim
    kill -9 "$1"
    wait_ranks
    case "$victim $codes" in
        "0 137 4" | "1 4 137") ;;
        *) fail "a killed rank $victim gave $codes" ;;
    esac
    said "rank $victim of 2 is gone" $((1 - victim))
done
with_ranks 2 "$program" train $long out=k2
same_run k1 k2 0150

# a signal to one of them: all end after a checkpoint, and go on alone
start_ranks 2 "$program" train $long out=t
wait_for_steps
set -- $rank_processes
kill -TERM "$2"
wait_ranks
[ "$codes" = "75 75" ] || fail "a signal gave $codes"
said "stopped after step"
"$program" train $long out=t --quiet >/dev/null
same_run k1 t 0150

# a full disk of rank 0, where checkpoints go; and one that another cannot write its token file to
ranks_port=$((ranks_port + 1))
start_rank 0 2 sh -c 'ulimit -f 40; exec "$@"' sh "$program" train $small model.width=128 out=f
rank_processes=$!
start_rank 1 2 "$program" train $small model.width=128 out=f
rank_processes="$rank_processes $!"
wait_ranks
[ "$codes" = "4 4" ] || fail "a full disk gave $codes"
said "File too large"
ranks_port=$((ranks_port + 1))
start_rank 0 2 "$program" train $small out=f
rank_processes=$!
start_rank 1 2 env XDG_CACHE_HOME=/dev/null/none "$program" train $small out=f
rank_processes="$rank_processes $!"
wait_ranks
[ "$codes" = "4 4" ] || fail "a bad disk of rank 1 gave $codes"
said "rank 1: .*/dev/null"

# a rank that hangs
LONGSHOT_RANK_WAIT=3
start_ranks 2 "$program" train $long train.steps=1000 out=h
wait_for_steps
set -- $rank_processes
kill -STOP "$2"
code=0
wait "$1" || code=$?
kill -9 "$2"
wait "$2" || true
[ $code -eq 4 ] || fail "a rank that hangs gave $code"
said "rank 1 of 2 has not answered for 3 seconds"
exit $((failures > 0))
