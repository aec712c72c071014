#!/bin/sh
# Scripts that test do not pass where they test nothing.
set -u
source=$(realpath "$2")
. "$(dirname "$0")/scratch.sh"
leaves() { # CODE SENTENCE COMMAND...
    wanted=$1 part=$2
    shift 2
    code=0
    "$@" >out.txt 2>err.txt || code=$?
    [ $code -eq "$wanted" ] && grep -q -- "$part" out.txt err.txt || fail "$* gave $code: $(cat out.txt err.txt)"
}
# a machine without a device
mkdir none
printf '#!/bin/sh\necho "CUDA           no device"\n' >none/longshot
chmod +x none/longshot
leaves 77 "nothing was tested" "$source/script/test-gpu" "$scratch/none"
# a device without tests: each tool says so
printf '#!/bin/sh\necho CUDA\n' >none/longshot
leaves 1 "no tests in" "$source/script/test-gpu" "$scratch/none"
export LONG_RESULTS="$scratch/long"
leaves 2 "usage:.*parts: tests" "$source/script/test-long" tests nothing
# fuzzing counts the time that a target uses, not the time that passes; stand-ins for targets, in a tree of their own
mkdir -p tree/script tree/build-fuzz/tests
cp "$source/script/fuzz" tree/script
target() { # NAME, with its lines in stdin
    mkdir -p "tree/tests/fuzz/seeds/$1"
    { echo '#!/bin/sh'; cat; } >"tree/build-fuzz/tests/$1"
    chmod +x "tree/build-fuzz/tests/$1"
}
counted() { cat "$FUZZ_CORPORA/$1.seconds"; }
below() { awk -v a="$1" -v b="$2" 'BEGIN { exit !(a < b) }'; }
export FUZZ_CORPORA="$scratch/found"
for name in fuzz_idle fuzz_busy; do
    target $name <<'END'
for word; do case $word in -max_total_time=*) turn=${word#*=} ;; esac; done
case $0 in
*idle) sleep $turn ;;
*) awk -v steps=$((turn * 10)) 'BEGIN { for (i = 0; i < 1000000 * steps; i++) sum += i }' ;; # some of the turn
esac
echo "Done 1 runs in $turn second(s)"
END
done
target fuzz_broken <<'END'
echo "SUMMARY: a finding"
exit 77
END
leaves 0 "fuzz_idle: Done 1 runs in 2" tree/script/fuzz 2 fuzz_idle
below "$(counted fuzz_idle)" 1 || fail "a target that slept is counted with $(counted fuzz_idle) s"
leaves 75 "1 targets below 1 s" env FUZZ_GOAL=1 tree/script/fuzz 2 fuzz_idle
leaves 0 "0 targets below 1 s" env FUZZ_GOAL=1 tree/script/fuzz 60 fuzz_busy # turns follow each other up to the goal
below 0.99 "$(counted fuzz_busy)" || fail "a goal is reached with $(counted fuzz_busy) s"
echo 900 >found/fuzz_broken.seconds
leaves 1 "a finding" tree/script/fuzz 2 fuzz_broken
[ "$(counted fuzz_broken)" = 0 ] || fail "the count goes on after a finding"
# a limit by the clock is a finding where the input, a command here, does not end well by itself
target fuzz_late <<'END'
for word; do case $word in -artifact_prefix=*) found=${word#*=}timeout-1 ;; esac; done
[ -n "${found:-}" ] || exec sh "$1"
echo "$LATE" >"$found"
echo "Test unit written to $found"
exit 70
END
echo 900 >found/fuzz_late.seconds
leaves 0 "fuzz_late" env LATE=true tree/script/fuzz 1 fuzz_late
below 899.99 "$(counted fuzz_late)" || fail "the count ends where other work kept a target waiting"
leaves 1 "Test unit written" env LATE=false tree/script/fuzz 1 fuzz_late
[ "$(counted fuzz_late)" = 0 ] || fail "an input that takes too long is no finding"
# a signal before the target listens for it
target fuzz_ended <<'END'
kill -TERM $$
END
echo 900 >found/fuzz_ended.seconds
leaves 0 "fuzz_ended" tree/script/fuzz 1 fuzz_ended
below 899.99 "$(counted fuzz_ended)" || fail "the count ends where a target was ended from outside"
leaves 2 "usage:" tree/script/fuzz fuzz_busy
# corpora that are kept: what was found goes from one folder to another with its count, without the seeds
target fuzz_finder <<'END'
for word; do
    case $word in
    -merge=1) merge=yes ;;
    -*) ;;
    *) first=${first:-$word} last=$word ;;
    esac
done
store() { cp "$1" "$first/$(sha1sum <"$1" | cut -c1-40)"; }
if [ -n "${merge:-}" ]; then
    for file in "$last"/*; do store "$file"; done
else
    echo "$*" >"${0%/*}/finding" && store "${0%/*}/finding"
    echo "Done with $(ls "$first" | wc -l) inputs"
fi
END
echo seed >tree/tests/fuzz/seeds/fuzz_finder/small
leaves 0 "with 1 inputs" tree/script/fuzz 1 fuzz_finder
found=$(ls found/fuzz_finder)
echo 1234.50 >found/fuzz_finder.seconds
leaves 0 "fuzz_finder: 1 inputs" tree/script/fuzz keep fuzz_finder
[ "$(tar -tzf tree/tests/fuzz/corpora/fuzz_finder.tar.gz)" = "./
./$found" ] || fail "what is kept is not what was found: $(tar -tzf tree/tests/fuzz/corpora/fuzz_finder.tar.gz)"
cp -r tree/tests/fuzz/corpora first
sleep 1
umask 077
leaves 0 "1 inputs" tree/script/fuzz keep fuzz_finder
diff -r first tree/tests/fuzz/corpora || fail "the same inputs are kept in other bytes"
export FUZZ_CORPORA="$scratch/elsewhere"
tree/script/fuzz unpack || fail "nothing is unpacked"
[ "$(ls elsewhere/fuzz_finder)" = "$found" ] || fail "what is kept is not unpacked"
leaves 0 "with 2 inputs" tree/script/fuzz 1 fuzz_finder
below 1234.49 "$(counted fuzz_finder)" || fail "the count does not go on: $(counted fuzz_finder)"
# a planted mistake is caught by a test that fails; one that is skipped has neither passed nor failed
mkdir -p planted/script planted/src planted/tests/plants tools
cp "$source/script/test-plants" planted/script
echo right >planted/src/line.c
plant() { # NUMBER-NAME TEST...
    file=planted/tests/plants/$1.patch
    shift
    printf 'What: a line is wrong\nTest: %s\n\n--- a/src/line.c\n+++ b/src/line.c\n@@ -1 +1 @@\n-right\n+wrong\n' "$*" >"$file"
}
plant 001-seen test_absent test_seeing
plant 002-seen-in-part test_partly
plant 003-unseen test_blind
plant 004-untried test_absent test_blind
printf '#!/bin/sh\n' >tools/cmake
cat >tools/ctest <<'END'
#!/bin/sh
line=$(cat "${2%/build}/src/line.c")
case "$*" in
*test_seeing*) [ $line = right ] ;;
*test_partly*) [ $line = right ] && echo "***Skipped" ;;
*test_absent*) echo "***Skipped" ;;
esac
END
chmod +x tools/*
(cd planted && git init -q && git add . && git -c user.name=n -c user.email=e commit -qm first) || fail "no git here"
export PLANTS_FOLDER="$scratch/plants"
planted() { PATH=$scratch/tools:$PATH planted/script/test-plants "$@"; }
leaves 0 "2 plants caught, 0 not, 0 left out" planted 001 002
leaves 1 "0 plants caught, 1 not, 0 left out" planted 003
leaves 0 "004-untried  *left out: test_absent is skipped here" planted 004
grep -q "0 plants caught, 0 not, 1 left out" out.txt || fail "a skipped test is counted: $(cat out.txt)"
grep -n '[^_]skip();' "$source"/tests/test_*.c && fail "ctest does not show what is skipped: see test_skip in device.h"
# the project's own
for archive in "$source"/tests/fuzz/corpora/*.tar.gz; do
    [ -e "$archive" ] || continue
    name=$(basename "$archive" .tar.gz)
    [ -e "$source/tests/fuzz/$name.c" ] || fail "$archive belongs to no target"
    [ "$(grep -c "^$name [0-9.]*\$" "$source/tests/fuzz/corpora/seconds")" = 1 ] || fail "$name has no count"
    mkdir "$name" && tar -xzf "$archive" -C "$name" && (cd "$name" && sha1sum -- * | awk '$1 != $2 { exit 1 }') ||
        fail "$archive has files of other names than their contents'"
done
[ $failures -eq 0 ]
