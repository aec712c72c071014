#!/bin/sh
# The pages of docs/results are what the data in results/ give: tables, charts, and the numbers of their
# sentences; so are the pages that have figures of bench/history. A digit that is changed anywhere in them, or in the
# data, is noticed.
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
    elif [ -e "$source/results/$name/runs.json" ]; then
        head -n 12 "$page" | grep -q '^<!-- begin runs about -->$' || fail "$page does not begin with what it is of"
    elif ! grep -q '^<!-- begin figures ' "$page"; then
        head -n 12 "$page" | grep -q "Not of a study" || fail "$page has neither data nor a word about it"
    fi
done
for folder in "$source"/results/*/; do
    [ ! -e "$folder/runs.json" ] || grep -q '^<!-- begin runs about -->$' "$source/docs/results/$(basename "$folder").md" ||
        fail "the page of $folder does not say what its single runs are"
    [ -e "$source/docs/results/$(basename "$folder").md" ] || fail "no page for $folder"
    [ "$(du -sk "$folder" | cut -f1)" -lt 1024 ] || fail "$folder is large: keep results.json, timing.json, study.yaml, runs.json"
done

# changed digits: of a page, of its data, of a drawing
cat >change.py <<'P'
import glob, os, random, re, shutil, subprocess, sys
program, source = sys.argv[1:]
draw, tried = random.Random(1), 0
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
for name, data, drawings in ("selective-copy", "runs.json", [""]), ("needle", "results.json", ["", "-map-rope"]):
    fresh()
    assert code().returncode == 0, code().stderr
    page = "copy/docs/%s.md" % name
    flip(page, digits(r"^\| .*"), 15)           # a table
    flip(page, digits(r"[0-9.,]+(?=<!--)"), 8)  # a sentence
    flip("copy/%s/%s" % (name, data), digits(r"[0-9.]+"), 15)
    for drawing in drawings: flip("copy/docs/%s%s.svg" % (name, drawing), digits(r"[0-9.]+"), 5)
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

# what pages have of figures is what bench/history gives: each name is a file's, and each file has a part
cat >figures.py <<'P'
import collections, glob, os, re, shutil, subprocess, sys
program, source = sys.argv[1:]
files = {os.path.basename(f)[:-5]: f for f in glob.glob(source + "/bench/history/*.json")}
pages = collections.defaultdict(set)  # of each file
for page in glob.glob(source + "/docs/*.md") + glob.glob(source + "/docs/results/*.md"):
    text = re.sub(r"```.*?```|`[^`]*`", "", open(page).read(), flags=re.S)
    for words in [comment.split() for comment in re.findall(r"<!--(.*?)-->", text, re.S)]:
        if "figures" in words: pages[words[words.index("figures") + 1]].add(page)
assert set(files) == set(pages) and files, (set(files) ^ set(pages), "a file without a page, or a name without a file")
tried = 0
def code(name):
    return subprocess.run([program, "report", name + ".json", "to=markdown", "page=page.md", "check=true"],
                          capture_output=True, text=True)
def noticed(name, what):
    global tried
    done = code(name)
    assert done.returncode in (1, 3) and done.stderr, ("not noticed", what)
    tried += 1
def flip(text, at):
    return text[:at] + ("1" if text[at] != "1" else "3") + text[at + 1:]
def some(places):
    return places[::max(1, len(places) // 20)]
for name, path in sorted((name, path) for name in files for path in pages[name]):
    page, data = open(path).read(), open(files[name]).read()
    for drawing in re.findall(r"begin chart (\S+)\s+figures " + name, page):
        shutil.copyfile(os.path.join(os.path.dirname(path), drawing), drawing)
    open(name + ".json", "w").write(data)
    open("page.md", "w").write(page)
    assert code(name).returncode == 0
    parts = "".join(m.group(0) if m.group(1) == name else " " * len(m.group(0)) for m in re.finditer(
        r"<!-- begin figures (\S+).*?<!-- end -->|.", page, re.S))
    cells = [m.start(1) for line in re.finditer(r"^\|.*$", parts, re.M)
             for m in re.compile("([0-9])").finditer(parts, line.start(), line.end())]
    said = [m.start() for m in re.finditer(r"[0-9](?=[0-9.,]*<!--\s+figures\s+" + name + r"\s)", page)]
    for at in some(cells) + some(said):
        open("page.md", "w").write(flip(page, at))
        noticed(name, page[at - 40:at + 10])
    open("page.md", "w").write(page)
    for m in some(list(re.finditer(r'"(seconds|tokens_per_second)": [0-9.]*?([1-9])', data))):
        open(name + ".json", "w").write(flip(data, m.start(2)))
        noticed(name, data[m.start() - 40:m.end() + 10])
assert tried >= 10
print(tried, "changes of figures noticed")
P
python3 figures.py "$program" "$source" || fail "pages with figures"
refused 2 "has no effect here" report "$source/results/needle" page=x.md
refused 3 "x.md" report "$source/results/needle" to=markdown page=x.md
: >x.md
refused 3 "empty" report "$source/results/needle" to=markdown page=x.md
exit $failures
