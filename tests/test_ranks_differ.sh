# Ranks that do not belong together, and an environment that makes no sense: all end at once, with one
# sentence that names what differs.
set -eu
program=$1
. "$2/tests/scratch.sh"
. "$2/tests/ranks.sh"
write_text 100
small="data.corpus=text.txt data.tokenizer=byte model.width=16 model.layers=1 train.length=16 train.batch=8
    train.steps=2 threads=1"
pair() { # words of rank 0, words of rank 1: two ranks; their exit codes
    ranks_port=$((ranks_port + 1))
    rm -f rank.*
    start_rank 0 2 "$program" $1
    rank_processes=$!
    start_rank 1 2 "$program" $2
    rank_processes="$rank_processes $!"
    wait_ranks
}
# train.shards given to one of them alone: of the same number they train, of another they do not
"$program" train $small train.shards=8 out=one --quiet >/dev/null
for given in 0 1; do
    words="train $small out=given$given"
    [ $given -eq 0 ] && pair "$words train.shards=8" "$words" || pair "$words" "$words train.shards=8"
    [ "$codes" = "0 0" ] || { cat rank.*.err; fail "train.shards of rank $given alone gave $codes"; }
    same_run one given$given 0002
done
pair "train $small out=x" "train $small train.shards=4 out=x"
[ "$codes" = "2 2" ] || { cat rank.*.err; fail "two numbers of shards gave $codes"; }
said "rank 1 has another recipe than rank 0"
# other sources of the same version
identity=$("$program" doctor --json | sed -n 's/.*"sources": "\([0-9a-f]*\)".*/\1/p')
LC_ALL=C sed "s/$identity/$(echo "$identity" | tr 0-9a-f 1-9a-f0)/" "$program" >other-build
chmod 755 other-build
[ ${#identity} -eq 64 ] && [ "$(./other-build --version)" = "$("$program" --version)" ] || fail "no other build to try"
rm -f rank.*
ranks_port=$((ranks_port + 1))
start_rank 0 2 "$program" train $small out=x
rank_processes=$!
start_rank 1 2 ./other-build train $small out=x
rank_processes="$rank_processes $!"
wait_ranks
[ "$codes" = "2 2" ] || { cat rank.*.err; fail "two builds gave $codes"; }
said "rank 1 has another version or build of longshot than rank 0"
# another command
pair "eval one" "train $small out=x"
[ "$codes" = "2 2" ] || { cat rank.*.err; fail "two commands gave $codes"; }
said "rank 1 has another command than rank 0"
# other documents for validation, by which all decide alike when training ends
mkdir other
cp text.txt other
cp text.txt held.txt
sed 's/line/LINE/' text.txt >other/held.txt
words="train $small data.validation=held.txt train.validate_every=1 train.validate_tokens=64 out=$scratch/v"
ranks_port=$((ranks_port + 1))
start_rank 0 2 "$program" $words
rank_processes=$!
cd other
start_rank 1 2 "$program" $words
cd ..
rank_processes="$rank_processes $!"
wait_ranks
mv other/rank.1.* .
[ "$codes" = "2 2" ] || { cat rank.*.err; fail "other validation documents gave $codes"; }
said "rank 1 has other data than rank 0"

# a machine that rounds differently: by losses that hardly change all decide as rank 0 does which is the best
unlike=$(dirname "$program")/tests/libround_up.so
if [ -e "$unlike" ]; then
    words="train $small train.steps=40 train.lr=1e-9 train.validate_every=1 train.validate_tokens=256
        data.validation_share=0.2 out=u"
    ranks_port=$((ranks_port + 1))
    start_rank 0 2 "$program" $words
    rank_processes=$!
    start_rank 1 2 env LD_PRELOAD="$unlike" "$program" $words
    rank_processes="$rank_processes $!"
    wait_ranks
    [ "$codes" = "0 0" ] || { cat rank.*.err; fail "machines that round differently gave $codes"; }
fi

# one that meets the others and then sends what nobody waits for: it is told so
if command -v python3 >/dev/null; then
    hear_hello train $small out=x
    ranks_port=$((ranks_port + 1))
    start_rank 0 2 "$program" train $small out=x
    rank_processes=$!
    python3 - "$ranks_port" >heard <<'END'
import socket, struct, sys, time
for attempt in range(500):
    try:
        link = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
        break
    except OSError:
        time.sleep(0.02)
def take(count):  # with a timeout a socket brings what has come
    held = b""
    while len(held) < count:
        piece = link.recv(count - len(held))
        assert piece, "the other has left"
        held += piece
    return held
link.settimeout(20)
link.sendall(open("hello", "rb").read())
take(488 + 2 * 20)  # all have come, and where they are
link.sendall(struct.pack("<ii480s", 1, 0, b""))  # linked with all others
take(488)
link.sendall(struct.pack("<IIQ", 0x4C534431, 0, 1 << 40))  # a message without end
kind, _, length = struct.unpack("<IIQ", take(16))
while kind != 0x4C534631:  # what it sends first
    take(length)
    kind, _, length = struct.unpack("<IIQ", take(16))
rank, code, message = struct.unpack("<ii480s", take(length))
print(rank, code, message.rstrip(b"\0").decode())
END
    wait_ranks
    [ "$codes" = 4 ] || { cat rank.*.err; fail "a message without end gave $codes"; }
    said "rank 1 of 2 sends what does not belong here"
    grep -q "^0 -8 rank 1 of 2 sends what does not belong here$" heard || { cat heard; fail "nobody told the other"; }
fi

# numbers that make no sense
sets() { # sentence, NAME=VALUE ...
    sentence=$1
    shift
    code=0
    env "$@" "$program" train $small out=x --quiet >out 2>err || code=$?
    [ $code -eq 2 ] && grep -q "^longshot: $sentence" err || { cat err; fail "$* gave $code"; }
}
sets "RANK=1 without WORLD_SIZE: a launcher sets both" RANK=1
sets "OMPI_COMM_WORLD_RANK=0 without OMPI_COMM_WORLD_SIZE" OMPI_COMM_WORLD_RANK=0
sets "OMPI_COMM_WORLD_SIZE=four: it must be a number" OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=four
sets "OMPI_COMM_WORLD_SIZE=99999999999999999999" OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=99999999999999999999
sets "PMI_RANK=-1: it must be a number" PMI_RANK=-1 PMI_SIZE=2
sets "SLURM_PROCID=2 and SLURM_STEP_NUM_TASKS=2: ranks count" SLURM_PROCID=2 SLURM_STEP_NUM_TASKS=2
sets "RANK=0 and WORLD_SIZE=0: ranks count" RANK=0 WORLD_SIZE=0
sets "LOCAL_RANK= 1: it must be a number" "LOCAL_RANK= 1"
sets "SLURM_LOCALID=x: it must be a number" SLURM_LOCALID=x
sets "MASTER_PORT=70000: it must be a number" RANK=0 WORLD_SIZE=2 MASTER_PORT=70000
sets "MASTER_PORT=0 leaves no port" RANK=0 WORLD_SIZE=2 MASTER_PORT=0
sets "LONGSHOT_RANK_WAIT=nan" RANK=0 WORLD_SIZE=2 MASTER_PORT=29000 LONGSHOT_RANK_WAIT=nan
sets "LONGSHOT_TRANSPORT=pigeon: it is auto, host or nccl" LONGSHOT_TRANSPORT=pigeon
# a batch script of Slurm is one process; so is one that counts those it will start
env SLURM_PROCID=0 WORLD_SIZE=4 "$program" train $small out=batch --quiet >/dev/null || fail "a batch script is refused"

# a rank has a socket for each other: the soft limit is raised, and a hard one is told of at once
start_ranks 4 sh -c 'ulimit -Sn 8; exec "$@"' sh "$program" train $small out=soft
wait_ranks
[ "$codes" = "0 0 0 0" ] || { cat rank.*.err; fail "a soft limit of files gave $codes"; }
export LONGSHOT_RANK_WAIT=15
asked=$(date +%s)
ranks_port=$((ranks_port + 1))
start_rank 0 4 sh -c 'ulimit -n 7; exec "$@"' sh "$program" train $small out=hard
rank_processes=$!
for number in 1 2 3; do
    start_rank $number 4 "$program" train $small out=hard
    rank_processes="$rank_processes $!"
done
wait_ranks
[ "$codes" = "4 4 4 4" ] || { cat rank.*.err; fail "a hard limit of files gave $codes"; }
said "rank 0 of 4 gets no more sockets: Too many open files"
[ $(($(date +%s) - asked)) -lt 12 ] || fail "a hard limit of files was told of after $(($(date +%s) - asked)) seconds"
exit $((failures > 0))
