#!/bin/sh
# The pages of docs/results are what the data in results/ give: tables, charts, and the numbers of their
# sentences. A digit that is changed anywhere in them, or in the data, is noticed.
set -u
program=$1
source=$2
. "$source/tests/scratch.sh"
(cd "$source" && LONGSHOT="$program" script/results check) || fail "run script/results, and read what it changes"
for page in "$source"/docs/results/*.md; do
    name=$(basename "$page" .md)
    if [ -e "$source/results/$name/results.json" ]; then
        grep -q '^<!-- begin about -->$' "$page" || fail "$page does not say what was run (begin about)"
        for file in study.yaml timing.json; do
            [ -e "$source/results/$name/$file" ] || fail "results/$name has no $file"
        done
    else
        head -n 12 "$page" | tr '\n' ' ' | grep -q "Taken before results were kept as data\|Not of a study" ||
            fail "$page has neither data nor a word about it"
    fi
done
for folder in "$source"/results/*/; do
    [ -e "$source/docs/results/$(basename "$folder").md" ] || fail "no page for $folder"
    [ "$(du -sk "$folder" | cut -f1)" -lt 1024 ] || fail "$folder is large: keep results.json, timing.json, study.yaml"
done

# changed digits: of a page, of its data, of a drawing
cat >change.py <<'P'
import glob, os, random, re, shutil, subprocess, sys
program, source = sys.argv[1:]
draw, name, tried = random.Random(1), "needle", 0
def fresh():
    shutil.rmtree("copy", ignore_errors=True)
    os.makedirs("copy/docs")
    shutil.copytree(source + "/results/" + name, "copy/" + name)
    for file in glob.glob(source + "/docs/results/" + name + "*"): shutil.copy(file, "copy/docs")
    for folder, _, files in os.walk("copy"): # the source may be read-only
        for file in files: os.chmod(os.path.join(folder, file), 0o644)
def code():
    return subprocess.run([program, "report", "copy/" + name, "to=markdown", "page=copy/docs/%s.md" % name, "check=true"],
                          capture_output=True, text=True)
def flip(path, places, count):
    global tried
    text = open(path).read()
    places = places(text)
    assert len(places) >= 3, path
    for at in draw.sample(places, min(count, len(places))):
        other = draw.choice([d for d in "123456789" if d != text[at]])
        open(path, "w").write(text[:at] + other + text[at + 1:])
        done = code()
        tried += 1
        assert done.returncode in (1, 3) and done.stderr, ("not noticed", path, text[at - 40:at + 10], other)
    open(path, "w").write(text)
    assert code().returncode == 0
def digits(pattern):
    return lambda text: [i for m in re.finditer(pattern, text, re.M) for i in range(m.start(), m.end()) if text[i].isdigit()]
fresh()
assert code().returncode == 0, code().stderr
page = "copy/docs/%s.md" % name
flip(page, digits(r"^\| .*"), 15)           # a table
flip(page, digits(r"[0-9.,]+(?=<!--)"), 8)  # a sentence
flip("copy/%s/results.json" % name, digits(r"[0-9.]+"), 15)
flip("copy/docs/%s.svg" % name, digits(r"[0-9.]+"), 5)
flip("copy/docs/%s-map-rope.svg" % name, digits(r"[0-9.]+"), 3)
def refuses(what, code_wanted, old, new):
    global tried
    text = open(page).read()
    assert old in text, old
    open(page, "w").write(text.replace(old, new, 1))
    done = code()
    assert done.returncode == code_wanted and what in done.stderr, (what, done)
    open(page, "w").write(text)
    tried += 1
refuses("nothing says where 4.75 comes from", 1, "Thirty questions", "Thirty questions, 4.75 points each,")
refuses("nothing for `suite needle nobody`", 3, "suite needle alibi -->", "suite needle nobody -->")
refuses("does not end", 3, "<!-- end -->\n\nThirty", "Thirty")
refuses("nothing for `ppl slide`", 3, "begin ppl nonoverlap", "begin ppl slide")
refuses("nothing for `needle-map-rope.svg heat needle nobody`", 3, "heat needle rope", "heat needle nobody")
refuses("a chart is", 3, "chart needle.svg", "chart ../needle.svg")
print(tried, "changes noticed")
P
python3 change.py "$program" "$source" || fail "a change was not noticed"
refused 2 "has no effect here" report "$source/results/needle" page=x.md
refused 3 "x.md" report "$source/results/needle" to=markdown page=x.md
: >x.md
refused 3 "empty" report "$source/results/needle" to=markdown page=x.md
exit $failures
