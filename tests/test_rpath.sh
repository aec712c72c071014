#!/bin/sh
# No code of the current folder is run: what is built and packed names no empty or relative place to find libraries
# in, and hostile libraries, plug-ins and Python files around the program are left alone.
set -u
program=$(realpath "$1")
build=$(dirname "$program")
scratch=$(realpath "$(mktemp -d)")
trap 'rm -rf "$scratch"' EXIT
export XDG_CACHE_HOME="$scratch/cache" GOMP_SPINCOUNT=100
failures=0
fail() {
    echo "FAILED: $*" >&2
    failures=$((failures + 1))
}

# paths FILE...: every element of a search path is absolute or begins at the file itself
seen=0
paths() {
    for file in "$@"; do
        [ -f "$file" ] && readelf -h "$file" >/dev/null 2>&1 || continue
        seen=$((seen + 1))
        for path in $(readelf -d "$file" | sed -n 's/.*(\(RPATH\|RUNPATH\)).*\[\(.*\)\]$/[\2]/p'); do
            path=${path#?} path=${path%?}
            case ":$path:" in *::*) fail "$file: an empty element in [$path]" ;; esac
            old=$IFS IFS=:
            for element in $path; do
                case $element in
                    /* | "\$ORIGIN" | "\$ORIGIN"/*) ;;
                    *) fail "$file: [$element] is a relative place" ;;
                esac
            done
            IFS=$old
        done
    done
}
paths "$program" "$build"/*.so* "$build"/lib/* "$build"/tests/test_*
BUILD=$build "$2/script/pack" --tests "$scratch/pack" >/dev/null || fail "script/pack"
paths "$scratch"/pack/longshot "$scratch"/pack/lib/* "$scratch"/pack/tests/*
[ $seen -gt 20 ] || fail "only $seen files were looked at"

# libraries that tell when they are loaded
compiler=$(sed -n 's/^CMAKE_C_COMPILER:[A-Z]*=//p' "$build/CMakeCache.txt")
cat >"$scratch/hostile.c" <<'C'
#include <fcntl.h>
#include <stdlib.h>
__attribute__((constructor)) static void loaded(void) {
    if (open(getenv("LOADED"), O_CREAT | O_WRONLY, 0600) < 0) abort();
}
C
export LOADED="$scratch/loaded"
"$compiler" -shared -fPIC "$scratch/hostile.c" -o "$scratch/hostile.so" || fail "the compiler"
for folder in here here/lib here/tests; do
    mkdir -p "$scratch/$folder"
    for name in liblongshot-cuda.so libjansson.so.4 libzstd.so.1 libnccl.so.2; do cp "$scratch/hostile.so" "$scratch/$folder/$name"; done
done
# untouched WHAT COMMAND...
untouched() {
    what=$1; shift
    rm -f "$LOADED"
    "$@" >"$scratch/out" 2>&1
    [ ! -e "$LOADED" ] || fail "$what: a foreign file was run"
}
cd "$scratch/here"
device="train device=cuda train.steps=1 data.corpus=/dev/null"
untouched "the current folder" "$program" doctor
untouched "the current folder, device" "$program" $device
mkdir nccl # beside it there is nothing else that the loader would take
mv libnccl.so.2 nccl
cd nccl
for path in : lib: .:/usr/lib /usr/lib:; do
    LD_LIBRARY_PATH=$path untouched "NCCL by LD_LIBRARY_PATH=$path" "$program" doctor
done
LONGSHOT_NCCL=libnccl.so.2 untouched "NCCL by a name" "$program" doctor
cd ..
untouched "the packed program" "$scratch/pack/longshot" doctor
untouched "the packed program, device" "$scratch/pack/longshot" $device
ln -s "$program" longshot
untouched "the folder it is started from" ./longshot $device
untouched "the folder it is started from, whole path" "$scratch/here/longshot" $device
PATH="$scratch/here:$PATH" untouched "the folder on PATH" longshot $device

# a copy has nothing of what lies above it; what others may write is left alone; its own plug-in is opened
mkdir -p "$scratch/tree/bin" "$scratch/tree/lib"
cp "$program" "$scratch/tree/bin/longshot"
cp "$scratch/hostile.so" "$scratch/tree/liblongshot-cuda.so"
untouched "the folder above" "$scratch/tree/bin/longshot" $device
cp "$scratch/hostile.so" "$scratch/tree/lib/liblongshot-cuda.so"
chmod 777 "$scratch/tree/lib/liblongshot-cuda.so"
untouched "a plug-in that anybody may write" "$scratch/tree/bin/longshot" $device
chmod 755 "$scratch/tree/lib/liblongshot-cuda.so"
chmod 777 "$scratch/tree/lib"
untouched "a plug-in that anybody may replace" "$scratch/tree/bin/longshot" $device
chmod 755 "$scratch/tree/lib"
"$scratch/tree/bin/longshot" $device >/dev/null 2>&1
[ -e "$LOADED" ] || fail "the program's own plug-in is not opened: this test sees nothing"

# peers are measured by scripts of the program's own, with modules of Python's own
mkdir -p bench/peers
cp "$2"/bench/peers/*.py bench/peers
echo 'import os; open(os.environ["LOADED"], "w")' >torch.py
small="bench what=conv lengths=256 seconds=0"
untouched "a module in the current folder" "$program" $small
cat >python <<'P'
#!/bin/sh
case $1 in bench/* | "$PWD"/bench/*) : >"$LOADED" ;; esac
exit 0
P
chmod +x python
untouched "scripts in the current folder" "$program" $small peer="$scratch/here/python"
grep -q "ended early" "$scratch/out" || fail "no peer was started: $(cat "$scratch/out")"
[ $failures -eq 0 ]
