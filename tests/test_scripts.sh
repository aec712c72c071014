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
[ $failures -eq 0 ]
