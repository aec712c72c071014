#!/bin/sh
# Documents keep their form: lines of at most 100 columns outside tables and blocks (commands, files,
# formulas) and lines that are a link alone; blocks and tables within bounds of their own; a README of
# fewer than 120 lines; links between documents that lead somewhere; a page of results begins with what
# was found. Pages that the program writes are held to the same.
set -u
source=$2
failed=0
documents() {
    cd "$source" || exit 1
    ls README.md CONTRIBUTING.md SECURITY.md CHANGELOG.md
    find docs src tests examples bench -name '*.md' 2>/dev/null | sort
}

# check FILE: prints what is wrong with it.
check() {
    LC_ALL=C.UTF-8 awk -v columns=100 -v in_block=160 -v in_table=900 '
        /^ *```/ { block = !block; next }
        { limit = block || /^    / ? in_block : /^\|/ ? in_table : columns }
        !block && /^ *(- )?!?\[[^]]*\]\([^)]*\)[.,:;]?$/ { next }
        length($0) > limit { printf "%s:%d: %d columns, where %d are allowed\n", FILENAME, FNR, length($0), limit }
        END { if (block) printf "%s: a block is not closed\n", FILENAME }' "$1"
    # relative links, without what names a place within a page
    folder=$(dirname "$1")
    sed '/^ *```/,/^ *```$/d' "$1" | grep -o ']([^)]*)' | sed 's/^](//; s/)$//; s/#.*//' |
        grep -v '^[a-z]*:' | sort -u | while IFS= read -r link; do
        [ -z "$link" ] || [ -e "$folder/$link" ] || echo "$1: there is no $link"
    done
}

# The check itself can fail: each of these has one fault.
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
long=$(printf '%0101d' 0)
fault() {
    printf '%b' "$1" >"$work/fault.md"
    [ -n "$(check "$work/fault.md")" ] || { echo "the check does not see: $2"; failed=1; }
}
fault "$long\n" "a line of 101 columns"
fault "- item $long\n" "a long item of a list"
fault '```sh\n'"$long$long"'\n```\n' "a block of 202 columns"
fault 'text\n```\nblock\n' "an open block"
fault '[a page](nowhere.md)\n' "a link to nothing"
printf '%b' "${long%0}\n| $long |\n[a link]($long)\n" >"$work/right.md"
: >"$work/$long"
[ -z "$(check "$work/right.md")" ] || { check "$work/right.md"; echo "the check refuses what is right"; failed=1; }

found=$(cd "$source" && documents | while IFS= read -r file; do check "$file"; done)
[ -z "$found" ] || { echo "$found"; failed=1; }

lines=$(wc -l <"$source/README.md")
[ "$lines" -lt 120 ] || { echo "README.md has $lines lines, where 119 are allowed"; failed=1; }
for word in script/demo script/test docs/report.png; do
    grep -q "$word" "$source/README.md" || { echo "README.md does not show $word"; failed=1; }
done

# One page per study, each listed in the index and beginning with what was found.
pages=0
for page in "$source"/docs/results/*.md; do
    pages=$((pages + 1))
    name=results/${page##*/}
    grep -q "($name)" "$source/docs/results.md" || { echo "docs/results.md does not list $name"; failed=1; }
    sed -n 3p "$page" | grep -q '^\*\*Found\.\*\*' || { echo "docs/$name does not begin with what was found"; failed=1; }
    for part in Question Machine; do
        grep -q "^\*\*$part\.\*\*" "$page" || { echo "docs/$name does not say: $part"; failed=1; }
    done
done
[ "$pages" -ge 8 ] || { echo "only $pages pages of results were found"; failed=1; }

# Every line of docs/departures.md has a test, and there is such a case, or such values.
held() { # NAME: whether there is a test of this name that is run
    case $1 in
    test_golden.*) grep -q "^${1#*.}\.safetensors |" "$source/tests/golden/cases.txt" ;;
    test_suites.*) grep -q "golden/${1#*.}\.jsonl" "$source/tests/test_suites.sh" ;;
    *) grep -qs "cmocka_unit_test[a-z_]*(${1#*.}[,)]" "$source/tests/${1%%.*}.c" ;;
    esac
}
for name in test_golden.h3-none test_suites.none test_mamba.test_none test_none.test_definition; do
    ! held "$name" || { echo "$name is held for a test"; failed=1; }
done
lines=$(grep '^| ' "$source/docs/departures.md" | grep -v '^| where | \|^|---')
[ "$(printf '%s\n' "$lines" | wc -l)" -ge 90 ] || { echo "docs/departures.md has lost lines"; failed=1; }
missing=$(printf '%s\n' "$lines" | while IFS= read -r line; do
    name=$(printf '%s\n' "$line" | sed -n 's/.*| `\(test_[a-z0-9_]*\.[a-z0-9_-]*\)` |$/\1/p')
    [ -n "$name" ] || { echo "docs/departures.md: no test in: $line"; continue; }
    held "$name" || echo "docs/departures.md: there is no $name"
    # options that it names are there
    for option in $(printf '%s\n' "$line" | grep -o '`\(mixer\|position\|extend\|model\|train\)\.[a-z0-9_]*' | tr -d '`'); do
        grep -q "^| \`$option\` |" "$source/docs/options.md" ||
            echo "docs/departures.md: there is no option $option"
    done
done)
[ -z "$missing" ] || { echo "$missing"; failed=1; }

# What the pages tell one to make in a clone is not offered to the next commit.
for made in runs/ models/ corpora/ venv/ own/ own.yaml own.tex own-test.md; do
    grep -qx "/$made" "$source/.gitignore" || { echo ".gitignore does not have /$made"; failed=1; }
done
exit $failed
