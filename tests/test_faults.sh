#!/bin/sh
# A sample of the system calls that fail and of the power cuts; script/test-long tries all of them. The last lines show
# that both see something: a preload that says nothing, and a journal in which no fsync counts, must not pass.
set -eu
tools=$(dirname "$1")/tests/faults
[ -x "$tools/drive_faults" ] || { echo "not built here: a sanitizer's own library must come first"; exit 77; }
[ -w /dev/shm ] && TMPDIR=${TMPDIR:-/dev/shm} && export TMPDIR # fsync costs nothing there
sample=8
[ -z "${LONGSHOT_TEST_BRIEF:-}" ] || sample=3
"$tools/drive_faults" "$1" "$tools/faults_preload.so" sample=$sample train resume eval report
"$tools/drive_faults" "$1" "$tools/faults_preload.so" sample=4 study
"$tools/drive_faults" "$1" "$tools/faults_preload.so" stops=1 study # while jobs are started
"$tools/drive_power" "$1" "$tools/faults_preload.so" sample=$sample chances=1 train
if "$tools/drive_power" "$1" "$tools/faults_preload.so" sample=2 chances=1 unsynced=1 train >/dev/null; then
    echo "FAILED: a program that never calls fsync would pass" >&2
    exit 1
fi
