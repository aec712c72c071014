# For shell tests of several processes, which read it with `.` after scratch.sh: they meet on this
# machine, at a port below those that the system hands out. A test takes up to 64, one after another:
# tests that begin side by side, with processes of neighbouring numbers, do not meet.
ranks_port=$((20000 + $$ % 187 * 64))
export LONGSHOT_RANK_WAIT=30 MASTER_ADDR=127.0.0.1 OMP_NUM_THREADS=1
start_rank() { # RANK SIZE command...: in the background, into rank.RANK.out and rank.RANK.err; its process is $!
    start_number=$1 start_size=$2
    shift 2
    RANK=$start_number LOCAL_RANK=$start_number WORLD_SIZE=$start_size MASTER_PORT=$ranks_port "$@" \
        >"rank.$start_number.out" 2>"rank.$start_number.err" &
}
start_ranks() { # SIZE command...: $rank_processes has them in order
    ranks_port=$((ranks_port + 1))
    rank_processes="" rank_count=$1
    shift
    rank_number=0
    while [ $rank_number -lt "$rank_count" ]; do
        start_rank $rank_number "$rank_count" "$@"
        rank_processes="$rank_processes $!"
        rank_number=$((rank_number + 1))
    done
}
wait_ranks() { # $codes: their exit codes in order
    codes=""
    for process in $rank_processes; do
        code=0
        wait "$process" || code=$?
        codes="$codes$code "
    done
    codes=${codes% }
}
with_ranks() { # SIZE command...: all must do it
    start_ranks "$@"
    wait_ranks
    case "$codes" in *[!0\ ]*) cat rank.*.err; fail "$* gave $codes" ;; esac
}
same_run() { # A B STEP: the same checkpoint, but for the time that it took
    for file in model.safetensors optimizer.safetensors memory.bin; do
        a=$1/checkpoints/step-0000$3/$file b=$2/checkpoints/step-0000$3/$file
        [ ! -e "$a" ] && [ ! -e "$b" ] && continue
        cmp -s "$a" "$b" || fail "$file of $1 and $2 differ"
    done
    for run in "$1" "$2"; do
        sed 's/"seconds": *[0-9.e+-]*//' "$run/checkpoints/step-0000$3/state.json" >"$run.state"
    done
    cmp -s "$1.state" "$2.state" || fail "state.json of $1 and $2 differ"
}
said() { # the one sentence of the job, on rank 0's side or with $2 on another's
    speaker=${2:-0}
    grep -q -- "$1" "rank.$speaker.err" || { cat rank.*.err; fail "rank $speaker does not say: $1"; }
    for err in rank.*.err; do
        [ "$err" = "rank.$speaker.err" ] || ! grep -q "^longshot:" "$err" ||
            { cat "$err"; fail "$err speaks as well"; }
    done
    rm -f rank.*.err rank.*.out
}
wait_for_sockets() { # PROCESS COUNT: until it has as many
    tries=0
    until [ "$(ls -l "/proc/$1/fd" 2>/dev/null | grep -c socket:)" -ge "$2" ] || [ $tries -gt 1000 ]; do
        sleep 0.02
        tries=$((tries + 1))
    done
}
wait_for_steps() { # until rank 0 has shown some
    tries=0
    until grep -q "^step.*loss" rank.0.err || [ $tries -gt 1000 ]; do
        sleep 0.02
        tries=$((tries + 1))
    done
}
hear_hello() { # arguments of $program: what rank 1 of 2 says first, into the file hello
    ranks_port=$((ranks_port + 1))
    python3 - "$ranks_port" <<'END' &
import socket, sys
door = socket.create_server(("127.0.0.1", int(sys.argv[1])))
link, _ = door.accept()
open("hello", "wb").write(link.recv(48, socket.MSG_WAITALL))
END
    door=$!
    start_rank 1 2 "$program" "$@"
    rank_processes=$!
    wait $door
    wait_ranks
    rm -f rank.*
}
