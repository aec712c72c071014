# Kills random ranks at random moments, and goes on each time with 1, 2 or 4 of them: in the end the
# bytes are those of a run that was left in peace.
# sh ranks_kill.sh PROGRAM SOURCE [KILLS [SEED [KEY=VALUE ...]]]: without keys a recurrent memory
set -eu
program=$1
. "$2/tests/scratch.sh"
. "$2/tests/ranks.sh"
kills=${3:-20} seed=${4:-1}
[ $# -lt 4 ] && shift $# || shift 4
keys="model.segment=16 model.memory=2 data.loader=stream train.carry=128 train.shards=8"
[ $# -eq 0 ] || keys=$*
write_text 300
recipe="data.corpus=text.txt data.tokenizer=byte model.width=32 model.layers=2 $keys
    train.length=32 train.batch=8 train.checkpoint_every=5 train.log_every=5 train.steps=$((kills * 40))"
last=$(printf '%04d' $((kills * 40)))
draw() { # below: a number that follows from the seed
    seed=$(awk -v s="$seed" 'BEGIN { print (s * 16807) % 2147483647 }')
    echo "$seed" >seed
    drawn=$(awk -v s="$seed" -v n="$1" 'BEGIN { print int(s / 64) % n }')
}
"$program" train $recipe out=whole --quiet >/dev/null
done_kills=0
while [ $done_kills -lt "$kills" ]; do
    draw 2
    size=$((2 + 2 * drawn))
    start_ranks $size "$program" train $recipe out=cut
    draw $size
    victim=$drawn
    draw 150
    # some within the meeting, most while it trains
    [ $drawn -lt 15 ] || wait_for_steps
    sleep "$(awk -v d="$drawn" 'BEGIN { print d / 300 }')"
    set -- $rank_processes
    shift "$victim"
    kill -9 "$1" 2>/dev/null || break # it is over
    LONGSHOT_RANK_WAIT=30 wait_ranks
    done_kills=$((done_kills + 1))
    speakers=$(grep -l "^longshot:" rank.*.err | wc -l)
    [ "$speakers" -le 1 ] || { cat rank.*.err; fail "$speakers ranks speak after kill $done_kills"; }
    grep -qh "rank $victim of $size\|rank $victim is\|rank $victim does not listen\|rank 0 of $size\|step.*left" rank.*.err ||
        { cat rank.*.err; fail "nobody names rank $victim"; }
    rm -f rank.*.err rank.*.out
done
with_ranks 2 "$program" train $recipe out=cut
same_run whole cut "$last"
echo "$done_kills ranks killed"
exit $((failures > 0))
