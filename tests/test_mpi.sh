# Tier: slow
# Ranks through MPI: Open MPI's mpirun, or LONGSHOT_MPIRUN with the plug-in of the same MPI, such as
# mpich's "mpiexec.hydra". The same bytes as one process, and one sentence where a rank fails.
set -eu
program=$1
. "$2/tests/scratch.sh"
. "$2/tests/ranks.sh"
unset MASTER_ADDR # they meet through MPI
mpirun=${LONGSHOT_MPIRUN:-mpirun --allow-run-as-root --oversubscribe}
command -v ${mpirun%% *} >/dev/null || { echo "there is no ${mpirun%% *}"; exit 77; }
"$program" doctor | grep -q "MPI plug-in$" || { echo "there is no MPI plug-in"; exit 77; }
! "$program" doctor | grep -q "no MPI plug-in" || { echo "there is no MPI plug-in"; exit 77; }
write_text 300
small="data.corpus=text.txt data.tokenizer=byte model.width=32 model.layers=1 train.length=32 train.batch=8
    train.steps=6 train.shards=8 threads=1"
"$program" train $small out=a1 --quiet >/dev/null
for count in 2 4; do
    $mpirun -n $count "$program" train $small out=a$count >out 2>err || { cat err; fail "$count ranks"; }
    same_run a1 a$count 0006
done
context="$small train.shards=1 train.context=4 model.mixer=mamba"
"$program" train $context out=c1 --quiet >/dev/null
$mpirun -n 4 "$program" train $context out=c4 >out 2>err || { cat err; fail "parts of sequences"; }
same_run c1 c4 0006
"$program" eval a1 eval.lengths=32,96 eval.batch=3 eval.losses=one threads=1 >/dev/null
$mpirun -n 3 "$program" eval a1 eval.lengths=32,96 eval.batch=3 eval.losses=three threads=1 >out 2>err ||
    { cat err; fail "an evaluation"; }
cmp -s one three || fail "an evaluation gives other losses on three ranks"

# one sentence of the job, beside what mpirun says
once() { # sentence
    [ "$(grep -c "^longshot: " err)" -eq 1 ] && grep -q "^longshot: $1" err || { cat err; fail "not once: $1"; }
}
! $mpirun -n 3 "$program" train $small out=x >out 2>err || fail "three ranks were taken"
once "3 ranks cannot share train.shards=8 evenly"
! $mpirun -n 1 "$program" train $small out=x : -n 1 "$program" train $small train.lr=0.5 out=x >out 2>err ||
    fail "two recipes were taken"
once "rank 1 has another recipe than rank 0"
# another version
version=$("$program" --version | sed 's/.* //')
mkdir -p older/lib
LC_ALL=C sed "s/$version/$(echo "$version" | tr 0-9 1-90)/g" "$program" >older/longshot
chmod 755 older older/lib older/longshot
cp "$(dirname "$program")/lib/liblongshot-mpi.so" older/lib
[ "$(older/longshot --version)" != "longshot $version" ] || fail "there is no other version to try"
! $mpirun -n 1 "$program" train $small out=x : -n 1 older/longshot train $small out=x >out 2>err ||
    fail "two versions were taken"
once "rank 1 has another version or build of longshot than rank 0"
# a killed rank ends the job, and the same command goes on
long="$small train.steps=200 train.checkpoint_every=20 train.log_every=5"
"$program" train $long out=k1 --quiet >/dev/null
$mpirun -n 2 "$program" train $long out=k2 >rank.0.out 2>rank.0.err &
job=$!
wait_for_steps
for process in $(ls /proc | grep '^[0-9]*$'); do # one of the job's that is no launcher
    case "$(tr '\0' ' ' 2>/dev/null <"/proc/$process/cmdline" || true)" in
        "$program train"*"out=k2 ") victim=$process ;;
    esac
done
kill -9 "$victim"
! wait $job || fail "a killed rank was not noticed"
$mpirun -n 2 "$program" train $long out=k2 >out 2>err || { cat err; fail "the run does not go on"; }
same_run k1 k2 0200
exit $((failures > 0))
