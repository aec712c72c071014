# Tier: slow
# Device to device through NCCL, on a machine that has neither: a stand-in of both (tests/stand_in).
# The same bytes on 1, 2 and 4 ranks, refusals, a rank that dies, and each call of NCCL that fails.
set -eu
original=$1
build=$(dirname "$1")
[ -e "$build/tests/libstand_in_nccl.so" ] || { echo "the stand-ins are not built here"; exit 77; }
. "$2/tests/scratch.sh"
. "$2/tests/ranks.sh"
mkdir lib # a plug-in is looked for beside the program
cp "$1" longshot
cp "$build/tests/libstand_in_device.so" lib/liblongshot-cuda.so
cp "$build/tests/libstand_in_nccl.so" libnccl.so.2
program=$scratch/longshot
chmod 755 "$scratch"
export LONGSHOT_NCCL="$scratch/libnccl.so.2" LONGSHOT_RANK_WAIT=10
write_text 300
small="device=cuda data.corpus=text.txt data.tokenizer=byte model.width=96 model.layers=2 train.length=32
    train.batch=8 train.steps=4 train.shards=4 threads=1"
told_way() { # SENTENCE: rank 0 has said once which way bytes go
    [ "$(cat rank.*.err | grep -c "^gradients and weights go ")" -eq 1 ] && grep -q "$1" rank.0.err ||
        { cat rank.*.err; fail "not once: $1"; }
}
directly="from device to device, through NCCL 2.27.3"

# the same bytes: on the processor, on a device, on devices through NCCL and through host memory
for kind in "attention f32" "mamba bf16"; do
    set -- $kind
    keys="$small model.mixer=$1 train.dtype=$2"
    "$program" train $keys device=cpu out=$2-cpu --quiet >/dev/null
    "$program" train $keys out=$2-1 --quiet >/dev/null
    same_run $2-cpu $2-1 0004
    for count in 2 4; do
        with_ranks $count "$program" train $keys out=$2-$count
        told_way "$directly"
        same_run $2-1 $2-$count 0004
    done
done
LONGSHOT_TRANSPORT=host with_ranks 2 "$program" train $keys out=host
! grep -q "device to device" rank.0.err || fail "LONGSHOT_TRANSPORT=host went through NCCL"
same_run bf16-1 host 0004
LONGSHOT_TRANSPORT=nccl with_ranks 2 "$program" train $keys out=asked
told_way "$directly"
same_run bf16-1 asked 0004
# alone it is opened where it is asked for; parts of sequences, whose sums do not overlap
LONGSHOT_TRANSPORT=nccl "$program" train $keys out=single 2>rank.0.err >/dev/null
told_way "$directly"
same_run bf16-1 single 0004
context="$small train.shards=2 train.context=2"
"$program" train $context out=c1 --quiet >/dev/null
with_ranks 4 "$program" train $context out=c4
told_way "$directly"
same_run c1 c4 0004

! LONGSHOT_TRANSPORT=nccl STAND_IN_NCCL=flip "$program" train $keys out=x >out 2>err || fail "alone: other bytes than were sent"
grep -q "NCCL brings other bytes than rank 0 sent" err || { cat err; fail "alone: other bytes than were sent"; }

# through MPI the id is handed over likewise
if [ -e "$build/lib/liblongshot-mpi.so" ] && command -v mpirun >/dev/null; then
    cp "$build/lib/liblongshot-mpi.so" lib
    env -u MASTER_ADDR mpirun --allow-run-as-root --oversubscribe -n 2 "$program" train $keys out=mpi >out 2>rank.0.err ||
        { cat rank.0.err; fail "two ranks through MPI"; }
    told_way "$directly"
    same_run bf16-1 mpi 0004
fi

# where NCCL cannot be: through host memory with the reason, the same bytes; refused where it was asked for
falls_back() { # REASON: of two ranks
    rm -rf fallen
    with_ranks 2 "$program" train $keys out=fallen
    told_way "through host memory: .*$1"
    same_run bf16-1 fallen 0004
    start_ranks 2 env LONGSHOT_TRANSPORT=nccl "$program" train $keys out=fallen2
    wait_ranks
    [ "$codes" = "2 2" ] || { cat rank.*.err; fail "asked for, and $1: $codes"; }
    said "LONGSHOT_TRANSPORT=nccl cannot be: .*$1"
}
STAND_IN_DEVICES=1 falls_back "Duplicate GPU detected"
STAND_IN_NCCL=version=2804 falls_back "NCCL 2.8.4 is too old: 2.18 or later"
STAND_IN_NCCL=version=21705 falls_back "NCCL 2.17.5 is too old"
LONGSHOT_NCCL=$scratch/nowhere.so falls_back "nowhere.so is no whole path"
mkdir open # anybody may put another link there
chmod 777 open
ln -s "$scratch/libnccl.so.2" open/libnccl.so.2
LONGSHOT_NCCL=$scratch/open/libnccl.so.2 falls_back "is no whole path of a file that only its owner may write"
LONGSHOT_NCCL=libnccl.so.2 falls_back "LONGSHOT_NCCL=libnccl.so.2 is no whole path"
LONGSHOT_NCCL=$scratch/lib/liblongshot-cuda.so falls_back "does not say its version"
for call in ncclGetVersion ncclGetUniqueId ncclCommInitRankConfig ncclCommGetAsyncError async \
    ncclGroupStart ncclSend ncclRecv ncclGroupEnd; do
    case $call in
    ncclGetVersion) reason="does not say its version" ;;
    ncclSend | ncclRecv | ncclCommInitRankConfig) reason="invalid usage: the stand-in was told" ;;
    *) reason="unhandled system error: the stand-in was told" ;;
    esac
    STAND_IN_NCCL=fail=$call falls_back "$reason"
done
# one rank alone fails: the other waits for it, for half of the limit
LONGSHOT_RANK_WAIT=4 STAND_IN_NCCL=fail=ncclCommInitRankConfig,only=1 falls_back "rank [01]: "
# ends of a communicator that fail harm nothing
for call in ncclCommFinalize ncclCommDestroy; do
    rm -rf ended
    STAND_IN_NCCL=fail=$call with_ranks 2 "$program" train $keys out=ended
    told_way "$directly"
    same_run bf16-1 ended 0004
done
start_ranks 2 env LONGSHOT_TRANSPORT=nccl "$program" train $keys device=cpu out=x
wait_ranks
[ "$codes" = "2 2" ] || fail "the processor took NCCL: $codes"
said "cannot be: rank 0: it computes on the processor"
start_ranks 2 env LONGSHOT_TRANSPORT=pigeon "$program" train $keys out=x
wait_ranks
[ "$codes" = "2 2" ] || fail "a transport that is none was taken: $codes"
said "LONGSHOT_TRANSPORT=pigeon: it is auto, host or nccl"
start_ranks 2 env STAND_IN_NCCL=flip "$program" train $keys out=x
wait_ranks
[ "$codes" = "4 4" ] || fail "other bytes than were sent: $codes"
said "NCCL brings other bytes than rank"

# amid training: a call that fails, and a rank that is killed or stopped, end the job with one sentence
long="$keys model.width=32 train.steps=600 train.log_every=1 train.checkpoint_every=200" # too few to measure a peak for
start_ranks 2 env STAND_IN_NCCL=fail=ncclSend:40,only=1 "$program" train $long out=broken
wait_ranks
[ "$codes" = "4 4" ] || { cat rank.*.err; fail "a call that fails amid training: $codes"; }
said "rank 1: NCCL failed in an exchange with rank 0: invalid usage"
start_ranks 4 "$program" train $long out=killed
wait_for_steps
set -- $rank_processes
kill -KILL "$3"
wait_ranks
[ "$codes" = "4 4 137 4" ] || { cat rank.*.err; fail "a rank that is killed: $codes"; }
said "rank 2 of 4 is gone: it was killed"
LONGSHOT_RANK_WAIT=3 start_ranks 2 "$program" train $long out=stopped
wait_for_steps
set -- $rank_processes
kill -STOP "$2"
first=0
wait "$1" || first=$?
kill -KILL "$2"
wait "$2" || true
[ $first -eq 4 ] || { cat rank.*.err; fail "a rank that is stopped: $first"; }
said "rank 1 of 2 has not answered for 3 seconds"
# what was killed goes on, with another number of ranks and another way
LONGSHOT_TRANSPORT=host with_ranks 2 "$program" train $long out=killed
"$program" train $long out=peace --quiet >/dev/null
same_run peace killed 0600

# doctor says what it found, or why not
"$original" doctor --json >out
grep -q '"nccl": "2.27.3"' out || fail "doctor does not find NCCL"
STAND_IN_NCCL=version=2804 "$original" doctor >out
grep -q "^NCCL  *NCCL 2.8.4 is too old" out || { cat out; fail "doctor takes an old NCCL"; }
exit $((failures > 0))
