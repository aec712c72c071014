# For shell tests, which read it with `.`: a folder of their own that is removed at the end, failures that are
# counted ($failures), and a text to train on.
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
cd "$scratch"
export XDG_CACHE_HOME="$scratch/cache" GOMP_SPINCOUNT=100
failures=0
fail() {
    echo "FAILED: $*" >&2
    failures=$((failures + 1))
}
write_text() { # LINES, into text.txt
    awk -v lines="$1" \
        'BEGIN { for (i = 0; i < lines; i++) print "line " i " of a text that is long enough to learn a little from" }' >text.txt
}
unbroken() { # FILE: messages whose lists go on below, in one line each
    sed -e :a -e '$!N; s/\n \{12\}/ /; ta' -e 'P; D' "$1"
}
refused() { # code, part of the sentence, arguments of $program
    wanted=$1 part=$2
    shift 2
    code=0
    "$program" "$@" >out.txt 2>err.txt || code=$?
    [ $code -eq "$wanted" ] || { cat err.txt; fail "$* gave $code, not $wanted"; }
    unbroken err.txt | grep -q -- "$part" || { cat err.txt; fail "$* does not say: $part"; }
}
write_corpus() { # DOCUMENTS, of 60 lines each, into corpus/
    mkdir -p corpus
    d=1
    while [ $d -le "$1" ]; do
        awk -v d=$d 'BEGIN { for (i = 0; i < 60; i++) print "document " d ", line " i ": what follows is much like what came before." }' >corpus/$d.txt
        d=$((d + 1))
    done
}
