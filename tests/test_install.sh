#!/bin/sh
# Installs into an empty folder, moves it, and builds the examples against it with pkg-config and
# CMake: the installed header is the only one they see. Each is run, and so are their refusals.
set -eu
program=$1
build=$(dirname "$1")
examples=$2/examples
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
export XDG_CACHE_HOME="$scratch/cache" GOMP_SPINCOUNT=100
fail() { echo "FAILED: $*" >&2; exit 1; }

cmake --install "$build" --prefix "$scratch/first" >/dev/null
mv "$scratch/first" "$scratch/moved"
prefix=$scratch/moved
pc=$(dirname "$(find "$prefix" -name longshot.pc)")
library=$(dirname "$pc")
[ -s "$prefix/share/man/man1/longshot.1" ]
[ -s "$prefix/share/bash-completion/completions/longshot" ]
[ "$("$prefix/bin/longshot" --version)" = "$("$program" --version)" ]
[ "$(find "$prefix/include" -type f)" = "$prefix/include/longshot/longshot.h" ] ||
    fail "other headers are installed"

# flags of a sanitized build belong to whoever links the library
flags=$(sed -n 's/^LONGSHOT_SANITIZE:STRING=\(..*\)/-fsanitize=\1/p' "$build/CMakeCache.txt")
compiler=$(sed -n 's/^CMAKE_C_COMPILER:[A-Z]*=//p' "$build/CMakeCache.txt")
PKG_CONFIG_PATH=$pc
export PKG_CONFIG_PATH
for name in score_text generate_text train_recipe custom_loop; do
    "$compiler" -std=c17 -pedantic -Wall -Wextra -Werror $flags "$examples/$name.c" \
        $(pkg-config --cflags --libs longshot) -lm -o "$scratch/$name"
done
printf '#include <longshot/longshot.h>\nint main() { return longshot_version() == nullptr; }\n' >"$scratch/plus.cpp"
if command -v c++ >/dev/null; then
    c++ -std=c++17 -pedantic -Wall -Wextra -Werror $(pkg-config --cflags longshot) -fsyntax-only "$scratch/plus.cpp"
fi

i=0
while [ $i -lt 200 ]; do
    echo "document 1, line $i: what follows is much like what came before"
    i=$((i + 1))
done >"$scratch/text.txt"
cat >"$scratch/recipe.yaml" <<Y
model: {layers: 1, width: 16, length: 16}
mixer: {heads: 2}
data: {corpus: $scratch/text.txt}
train: {steps: 20, batch: 2, lr: 1e-3}
Y
run() { LD_LIBRARY_PATH=$library "$@"; }
cd "$scratch"
run ./train_recipe recipe.yaml run >trained
grep -q "^step 10 of 20: loss" trained || fail "no step was told"
grep -q "^run: .* parameters, 20 steps" trained || fail "no result"
grep -q "^nonoverlap at 64 tokens: loss" trained || fail "no evaluation"
run ./train_recipe recipe.yaml run train.lr=2e-3 2>why >/dev/null && fail "other settings went on with a run"
grep -q "run" why || fail "no sentence"

text="document 1, line 2: what follows"
run ./score_text run "$text" >scored
[ "$(wc -l <scored)" = ${#text} ] || fail "not a line for every token and one for all"
grep -q "^31 tokens, perplexity" scored || fail "no perplexity"
run ./score_text no/such/folder "$text" 2>why && fail "scored nothing"
grep -q "no/such/folder" why || fail "the sentence does not name the folder"

run ./generate_text run "document" 8 7 >first
run ./generate_text run "document" 8 7 >second
cmp first second || fail "the seed does not decide"
[ "$(wc -c <first)" = 9 ] || fail "not eight tokens"

run ./custom_loop run "document 1" 12 1 >one
run ./custom_loop run "document 1" 12 16 >many
nats() { sed -n 's/ nats per token$//p' "$1"; }
awk -v a="$(nats one)" -v b="$(nats many)" 'BEGIN { exit !(b > 0 && b <= a) }' ||
    fail "the best of sixteen is worse than the first: $(nats one), $(nats many)"

mkdir project
cat >project/CMakeLists.txt <<C
cmake_minimum_required(VERSION 3.25)
project(consumer C)
find_package(longshot 0.2 REQUIRED)
add_executable(consumer $examples/score_text.c)
target_link_libraries(consumer PRIVATE longshot::longshot m)
C
cmake -G Ninja -S project -B project/build -DCMAKE_PREFIX_PATH="$prefix" \
    -DCMAKE_C_COMPILER="$compiler" -DCMAKE_C_FLAGS="$flags" >/dev/null
cmake --build project/build >/dev/null
project/build/consumer run "$text" >again
cmp scored again || fail "the program that CMake built scores otherwise"
