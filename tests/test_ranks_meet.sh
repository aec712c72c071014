# A rank that is killed, stopped or fails while the ranks still meet: one of them says so, in one
# sentence, and none is waited for.
set -eu
program=$1
. "$2/tests/scratch.sh"
. "$2/tests/ranks.sh"
write_text 50
one="$program train data.corpus=text.txt data.tokenizer=byte model.width=16 model.layers=1
    train.length=16 train.batch=4 train.steps=2 train.shards=4 out=x"
begin() { # a job of four, of which these ranks come first; $process_RANK has each
    ranks_port=$((ranks_port + 1))
    rm -f rank.*
    come "$@"
    [ "$1" -ne 0 ] || wait_for_sockets $process_0 $# # its own, and one of each that has come
}
come() {
    for number in "$@"; do
        start_rank "$number" 4 $one
        eval "process_$number=$!"
    done
}
ends() { # what, exit codes of ranks 0 to 3 as they must be; in far less than LONGSHOT_RANK_WAIT
    rank_processes="${process_0:-} ${process_1:-} ${process_2:-} ${process_3:-}"
    asked=$(date +%s)
    wait_ranks
    [ "$codes" = "$2" ] || { cat rank.*.err; fail "$1 gave $codes"; }
    [ $(($(date +%s) - asked)) -lt 25 ] || fail "$1 took $(($(date +%s) - asked)) seconds"
    unset process_0 process_1 process_2 process_3
}

# one that has come is killed before the last one comes
begin 0 2 3
kill -9 $process_2
come 1
ends "a rank killed among those that wait" "4 4 137 4"
said "rank 2 of 4 is gone"

# one that comes after that and does not belong there ends with wrong use, the last one as all do
begin 0 2 3
kill -9 $process_2
wait $process_3 || :
unset process_3
code=0
start_rank 1 3 $one
wait $! || code=$?
[ $code -eq 2 ] || fail "a stranger after the end gave $code"
come 1
ends "a rank killed before a stranger came" "4 4 137"
said "rank 2 of 4 is gone"

# one is killed when all have come and not all are linked: it stands still until then
begin 0 1 2
kill -STOP $process_2
come 3
wait_for_sockets $process_0 4
kill -9 $process_2
ends "a rank killed while they connect" "4 4 137 4"
said "rank 2 of 4 is gone"

# rank 0 is killed: rank 1 speaks
begin 0 1 2
kill -9 $process_0
ends "rank 0 killed" "137 4 4"
said "rank 0 of 4 is gone" 1

# rank 0 never comes
export LONGSHOT_RANK_WAIT=1
begin 1 2 3
ends "no rank 0" "4 4 4"
said "rank 0 does not listen at 127.0.0.1:.* within 1 seconds" 1
export LONGSHOT_RANK_WAIT=30

# a signal to one of them; another comes later
begin 0 1 2
kill -TERM $process_1
sleep 1 # rank 0 ends the job meanwhile
come 3
ends "a signal" "75 75 75 75"
said "rank 1: stopped while the ranks met"

# one that knows another job speaks itself, as nobody else can; the others still wait for it
begin 0 1
LONGSHOT_JOB=another come 2
wait $process_2 && fail "another job was taken in"
grep -q "rank 0 of 4 does not take rank 2 in: it has another job" rank.2.err ||
    { cat rank.2.err; fail "another job is not named"; }
come 2 3
ends "a stranger" "0 0 0 0"
exit $((failures > 0))
