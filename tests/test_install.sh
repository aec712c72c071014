#!/bin/sh
# Installs into an empty folder, moves it, and builds a program against it with pkg-config and CMake.
set -eu
program=$1
build=$(dirname "$1")
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
export XDG_CACHE_HOME="$scratch/cache" GOMP_SPINCOUNT=100

cmake --install "$build" --prefix "$scratch/first" >/dev/null
mv "$scratch/first" "$scratch/moved"
prefix=$scratch/moved
pc=$(dirname "$(find "$prefix" -name longshot.pc)")
library=$(dirname "$pc")
[ -s "$prefix/share/man/man1/longshot.1" ]
[ -s "$prefix/share/bash-completion/completions/longshot" ]
[ "$("$prefix/bin/longshot" --version)" = "$("$program" --version)" ]

i=0
while [ $i -lt 200 ]; do
    echo "document 1, line $i: what follows is much like what came before"
    i=$((i + 1))
done >"$scratch/text.txt"
"$prefix/bin/longshot" train model.layers=1 model.width=16 mixer.heads=2 model.length=16 \
    data.corpus="$scratch/text.txt" train.steps=2 train.batch=2 out="$scratch/run" --quiet

# flags of a sanitized build belong to whoever links the library
flags=$(sed -n 's/^LONGSHOT_SANITIZE:STRING=\(..*\)/-fsanitize=\1/p' "$build/CMakeCache.txt")
compiler=$(sed -n 's/^CMAKE_C_COMPILER:[A-Z]*=//p' "$build/CMakeCache.txt")
PKG_CONFIG_PATH=$pc "$compiler" -std=c17 -Wall -Wextra -Werror $flags "$2/tests/consumer.c" \
    $(PKG_CONFIG_PATH=$pc pkg-config --cflags --libs longshot) -lm -o "$scratch/consumer"
LD_LIBRARY_PATH=$library "$scratch/consumer" "$scratch/run"

mkdir "$scratch/project"
cat >"$scratch/project/CMakeLists.txt" <<C
cmake_minimum_required(VERSION 3.25)
project(consumer C)
find_package(longshot 0.1 REQUIRED)
add_executable(consumer $2/tests/consumer.c)
target_link_libraries(consumer PRIVATE longshot::longshot m)
C
cmake -G Ninja -S "$scratch/project" -B "$scratch/project/build" -DCMAKE_PREFIX_PATH="$prefix" \
    -DCMAKE_C_COMPILER="$compiler" -DCMAKE_C_FLAGS="$flags" >/dev/null
cmake --build "$scratch/project/build" >/dev/null
"$scratch/project/build/consumer" "$scratch/run"
