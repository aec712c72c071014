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
        if ! "$program" apply $arguments golden="$folder/$file" tol="$1" ${2:+grad_tol="$2"}; then
            echo "FAILED: $file $arguments" >&2
            failures=$((failures + 1))
        fi
    done <"$folder/$table.txt"
    echo "$table: $cases cases"
    [ "$cases" -gt 0 ] || failures=$((failures + 1))
done
# what produced each file is written down, and its driver kept
for file in "$folder"/*.safetensors; do
    name=$(basename "$file" .safetensors)
    line=$(grep "^| $name |" "$folder/README.md")
    driver=$(echo "$line" | sed -n 's/.*| `\([a-z0-9_]*\.py\)` |$/\1/p')
    case $line in
    *"**own reference, not public**"*) ;;
    *)
        if [ -z "$driver" ] || ! grep -q "\"$name\"" "$folder/make/$driver"; then
            echo "README.md names no driver that produces $name" >&2
            failures=$((failures + 1))
        fi
        ;;
    esac
done
[ "$failures" -eq 0 ]
