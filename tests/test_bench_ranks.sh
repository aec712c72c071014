# What exchanges between processes take: a table and a line through it, from rank 0 alone.
set -eu
program=$1
. "$2/tests/scratch.sh"
. "$2/tests/ranks.sh"
with_ranks 2 "$program" bench what=ranks
awk '/over sockets/ { head = 1 } $1 ~ /^[0-9]+$/ && NF == 4 { n++; if (!($2 >= $3 && $3 > 0)) exit 1 }
    /^fitted to the fastest: [0-9.]+ us and [0-9]+ MB.s/ { fit = 1 } END { exit !(head && n == 7 && fit) }' rank.0.out ||
    { cat rank.0.out; fail "the table"; }
[ ! -s rank.1.out ] || fail "rank 1 speaks"
with_ranks 2 "$program" bench what=ranks --json
grep -q '"latency"' rank.0.out && grep -q '"bandwidth"' rank.0.out || fail "no figures in JSON"
refused 2 "measures between processes: mpirun" bench what=ranks
refused 2 "goes with no other part" bench what=gemm,ranks
start_ranks 2 "$program" bench what=gemm
wait_ranks
[ "$codes" = "2 2" ] || fail "another part gave $codes"
said "several processes measure what=ranks alone"
start_ranks 3 "$program" bench what=ranks
wait_ranks
[ "$codes" = "2 2 2" ] || fail "three ranks gave $codes"
said "an even number of ranks"
exit $((failures > 0))
