#!/bin/sh
# A sample of the system calls that fail and of the power cuts; script/test-long tries all of them. The last lines show
# that both see something: a preload that says nothing, and a journal in which no fsync counts, must not pass.
set -eu
tools=$(dirname "$1")/tests/faults
[ -x "$tools/drive_faults" ] || { echo "not built here: a sanitizer's own library must come first"; exit 77; }
[ -w /dev/shm ] && TMPDIR=${TMPDIR:-/dev/shm} && export TMPDIR # fsync costs nothing there
faults() { "$tools/drive_faults" "$program" "$tools/faults_preload.so" "$@"; }
program=$1 sample=8
[ -z "${LONGSHOT_TEST_BRIEF:-}" ] || sample=3
faults sample=0 # each row of its table is called by some scenario
faults sample=$sample train resume eval offload report kept refused
# all of those that few scenarios call
faults row=lstat kept
faults row=readlink kept
faults row=realpath offload refused
faults row=posix_fallocate offload
faults row=exec sample=4 study
faults sample=4 study
faults stops=1 study # while jobs are started
"$tools/drive_power" "$1" "$tools/faults_preload.so" sample=$sample chances=1 train
if "$tools/drive_power" "$1" "$tools/faults_preload.so" sample=2 chances=1 unsynced=1 train >/dev/null; then
    echo "FAILED: a program that never calls fsync would pass" >&2
    exit 1
fi
