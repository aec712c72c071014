#!/bin/sh
# Corpora of Debian packages: with a package client that stands in for the system's, and without one.
set -u
program=$(realpath "$1")
source=$2
. "$source/tests/scratch.sh"
mkdir bin plain
for tool in gzip env sh mkdir printf ln cat grep; do ln -s "$(command -v $tool)" plain/$tool; done
cat >bin/apt-get <<'S'
#!/bin/sh
[ "$*" = "-q download vim-runtime" ] || { echo "E: no package $*"; exit 100; }
: >vim-runtime_1_all.deb
S
cat >bin/dpkg-deb <<'S'
#!/bin/sh
[ "$1 $2 $3" = "-x vim-runtime_1_all.deb tree" ] || exit 2
doc=tree/usr/share/vim/vim90/doc
mkdir -p $doc/more tree/usr/share/other
printf 'first document\n' >$doc/a.txt
printf 'first document\n' >$doc/same.txt
printf 'second document, packed\n' | gzip >$doc/more/b.txt.gz
printf 'bin\000ary' >$doc/c.txt
printf 'not of this kind' >$doc/d.html
printf 'outside' >tree/usr/share/other/e.txt
: >$doc/empty.txt
ln -s /etc/passwd $doc/link.txt
S
chmod +x bin/apt-get bin/dpkg-deb
PATH="$scratch/bin:$scratch/plain" "$program" data get vim >out.txt 2>err.txt || { cat err.txt; fail "get vim"; }
[ "$(ls corpora)" = vim ] || fail "corpora holds $(ls corpora)"
[ "$(ls corpora/vim | tr '\n' ' ')" = "vim90-doc-a.txt vim90-doc-more-b.txt " ] || fail "documents: $(ls corpora/vim)"
[ "$(cat corpora/vim/vim90-doc-more-b.txt)" = "second document, packed" ] || fail "a packed document"
grep -q "corpora/vim: 2 documents" out.txt && grep -q "1 that are the same" out.txt || { cat out.txt; fail "what is said"; }
old=$PATH
PATH="$scratch/bin:$scratch/plain"
refused 2 "is there already" data get vim
refused 3 "does not get the package git-doc: E: no package -q download git-doc" data get git
[ ! -e corpora/git ] && [ ! -e corpora/git.part ] || fail "a failure leaves something"
refused 2 "there is no corpus .pile" data get pile
refused 2 "say which corpus" data get
PATH="$scratch/bin:$old"
# a slash behind the folder is as good; a signal ends the client too, and leaves nothing
"$program" data get vim out=slash/ >out.txt 2>err.txt || fail "out=slash/: $(cat err.txt)"
[ "$(ls slash | tr '\n' ' ')" = "vim90-doc-a.txt vim90-doc-more-b.txt " ] || fail "out=slash/ holds $(ls slash)"
mv bin/apt-get bin/quick
printf '#!/bin/sh\necho $$ >"%s/client"\nexec sleep 30\n' "$scratch" >bin/apt-get
chmod +x bin/apt-get
"$program" data get vim out=stopped >/dev/null 2>err.txt &
process=$!
for i in $(seq 100); do [ -s client ] || sleep 0.1; done
kill -TERM $process
code=0
wait $process || code=$?
[ $code -eq 75 ] || fail "a signal gave $code: $(cat err.txt)"
kill -0 "$(cat client)" 2>/dev/null && fail "the package client goes on after a signal"
[ ! -e stopped ] && [ ! -e stopped.part ] || fail "a signal leaves something"
mv bin/quick bin/apt-get
PATH="$scratch/bin:$scratch/plain"
printf '#!/bin/sh\nexit 0\n' >bin/dpkg-deb
refused 3 "holds no documents" data get vim out=other
PATH="$scratch/plain"
refused 2 "apt-get is not here" data get vim out=other
PATH=$old
# the page lists them all
"$program" help data | tr '\n' ' ' | grep -o 'client: [a-z, ]*' | sed 's/client: //' | tr ',' '\n' | while read -r name; do
    grep -q "^| \`$name\` |" "$source/docs/data.md" || echo "$name"
done >missing.txt
[ ! -s missing.txt ] || fail "docs/data.md does not list $(cat missing.txt)"
exit $failures
