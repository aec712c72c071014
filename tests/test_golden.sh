#!/bin/sh
# Every line of tests/golden/{cases,tables}.txt: FILE | arguments of `longshot apply` | tol grad_tol.
set -u
program=$1
folder=$2/tests/golden
failures=0
for table in cases tables; do
    cases=0
    while IFS='|' read -r file arguments tolerances; do
        case $file in '' | \#*) continue ;; esac
        file=$(echo "$file" | tr -d ' ')
        set -- $tolerances
        cases=$((cases + 1))
        # arguments are words on purpose
        if ! "$program" apply $arguments golden="$folder/$file" tol="$1" grad_tol="${2:-$1}"; then
            echo "FAILED: $file $arguments" >&2
            failures=$((failures + 1))
        fi
    done <"$folder/$table.txt"
    echo "$table: $cases cases"
    [ "$cases" -gt 0 ] || failures=$((failures + 1))
done
# what produced each file is written down
for file in "$folder"/*.safetensors; do
    name=$(basename "$file" .safetensors)
    if ! grep -q "^| $name |" "$folder/README.md"; then
        echo "README.md does not say what produced $name" >&2
        failures=$((failures + 1))
    fi
done
[ "$failures" -eq 0 ]
