# Runs every command that the README and the docs show in their ```sh blocks, in order, in a folder of
# its own. Long ones are cut short by further words, which override what stands before them.
# Tier: slow.
set -eu
program=$1
source=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir "$work/bin"
ln -s "$program" "$work/bin/longshot"
ln -s "$source/studies" "$source/tests" "$source/bench" "$work/"
PATH="$work/bin:$PATH"
export PATH
cd "$work"
# block KIND FILE: the lines of its blocks, those that end in a backslash joined.
block() {
    sed -n "/^\`\`\`$1\$/,/^\`\`\`\$/p" "$2" | grep -v '^```' | sed -e ':join' -e '/\\$/{N;s/\\\n *//;b join' -e '}'
}
count=0
: >"$work/checked"
for page in "$source/README.md" "$source"/docs/*.md "$source"/docs/results/*.md; do
    [ "${page##*/}" != tutorial.md ] || continue # tests/test_tutorial.sh
    block sh "$page" | grep -v '^ *#' >"$work/commands" || :
    while IFS= read -r line; do
        [ -n "$line" ] || continue
        count=$((count + 1))
        case $line in
            script/*) [ -x "$source/${line%% *}" ] || { echo "$page: $line: there is no such script"; exit 1; }; continue;;
            "longshot train"*) line="$line train.steps=4 train.checkpoint_every=2";;
            *"check=true"*)
                ! grep -qxF "$line" "$work/checked" || continue # another page shows it too
                echo "$line" >>"$work/checked"
                ;;
            "longshot study"*) line="$line seeds=1 train.steps=2 train.warmup=1 eval.tokens=2048 eval.resolution=false suites= jobs=2";;
            "longshot bench"*) line="$line what=gemm seconds=0.1 rounds=1 peer=none";;
            "longshot eval"*"eval.tokens="*|"longshot eval"*"eval.samples="*) ;; # tokens are of a corpus
            "longshot eval"*" suite="*) ;;
            "longshot reach"*) line="$line budget=20s";;
            "longshot eval"*) line="$line eval.tokens=8192";;
        esac
        if ! sh -c "$line" >"$work/out" 2>&1; then
            echo "$page: $line"
            tail -n 5 "$work/out"
            exit 1
        fi
    done <"$work/commands"
done
[ "$count" -gt 10 ] || { echo "only $count commands were found"; exit 1; }

# What stands within a sentence or in a ```text block is too long to run here, or needs a device: its keys
# must at least exist.
checked=0
for page in "$source/README.md" "$source"/docs/*.md "$source"/docs/results/*.md; do
    [ "${page##*/}" != options.md ] || continue
    {
        sed '/^```/,/^```$/d' "$page" | tr '\n' ' ' | grep -o '`longshot [a-z]* [^`]*`' || :
        block text "$page" | grep '^longshot ' || :
    } | tr ' `[' '\n\n\n' | sed -n 's/^\([a-z_][a-z_.0-9]*\)=.*/\1/p' | sort -u >"$work/keys"
    while IFS= read -r key; do
        checked=$((checked + 1))
        case $key in
            key|extend|extend.*) continue;;
            task.*.*) key=task.${key##*.};; # of one task among several
            mixer.*.*) key=mixer.${key##*.};; # of the mixer with that label
        esac
        grep -q "^| \`$key\` |" "$source/docs/options.md" || { echo "$page: there is no key $key"; exit 1; }
    done <"$work/keys"
done
[ "$checked" -gt 100 ] || { echo "only $checked keys were found"; exit 1; }
