# A study over ranks: jobs go to whoever is free, with the results of one process; a rank that fails
# ends it with one sentence, and the same command goes on.
set -eu
program=$1
. "$2/tests/scratch.sh"
. "$2/tests/ranks.sh"
write_text 200
cat >study.yaml <<END
data.corpus: text.txt
data.tokenizer: byte
model.width: 16
model.layers: 1
train.length: 16
train.steps: 3
eval.lengths: 16
arms.near.mixer.window: 4
arms.far.model.mixer: attention
arms.scan.model.mixer: mamba
END
results() {
    sed -e '/"command"/d' -e '/"processors"/d' "$1/results.json" >"$1.txt"
}
"$program" study study.yaml out=one threads=1 --quiet >/dev/null
with_ranks 3 "$program" study study.yaml out=three
results one
results three
cmp -s one.txt three.txt || { diff one.txt three.txt | head -n 5; fail "three ranks have other results"; }
grep -q "6/6" rank.0.err || fail "rank 0 shows no progress"
[ ! -s rank.1.err ] && [ ! -s rank.2.out ] || fail "other ranks speak"
rm -f rank.*

# what is refused is said once
start_ranks 2 "$program" study study.yaml jobs=4 out=x
wait_ranks
[ "$codes" = "2 2" ] || fail "jobs with ranks gave $codes"
said "2 ranks have one job each"
with_ranks 2 "$program" study study.yaml check=true out=x
[ ! -e x ] || fail "check=true made a folder"
rm -f rank.*

# a rank that is killed
start_ranks 2 "$program" study study.yaml train.steps=100000 out=cut
tries=0
until ls cut/arms/*/seed-1/train.log >/dev/null 2>&1 || [ $tries -gt 500 ]; do sleep 0.02; tries=$((tries + 1)); done
set -- $rank_processes
kill -9 "$2"
wait_ranks
[ "$codes" = "4 137" ] || fail "a killed rank gave $codes"
said "rank 1 of 2 is gone"

# a signal to one of them, and a disk of rank 0 that takes no page: both hear of it
start_ranks 2 "$program" study study.yaml train.steps=100000 out=asked
tries=0
until ls asked/arms/*/seed-1/train.log >/dev/null 2>&1 || [ $tries -gt 500 ]; do sleep 0.02; tries=$((tries + 1)); done
set -- $rank_processes
kill -TERM "$2"
wait_ranks
[ "$codes" = "75 75" ] || { cat rank.*.err; fail "a signal gave $codes"; }
said "stopped: "
start_ranks 2 sh -c '[ "$RANK" -gt 0 ] || ulimit -f 4; exec "$@"' sh "$program" study study.yaml out=full
wait_ranks
[ "$codes" = "4 4" ] || { cat rank.*.err; fail "a full disk gave $codes"; }
said "File too large"
# another study on one of them
ranks_port=$((ranks_port + 1))
start_rank 0 2 "$program" study study.yaml out=x
rank_processes=$!
start_rank 1 2 "$program" study study.yaml train.steps=4 out=x
rank_processes="$rank_processes $!"
wait_ranks
[ "$codes" = "2 2" ] || { cat rank.*.err; fail "two studies gave $codes"; }
said "rank 1 has another study than rank 0"
exit $((failures > 0))
