#!/bin/sh
# The page of a study: whole, offline, escaped. tests/test_report_page.sh opens it in a browser.
set -eu
program=$1
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
cd "$scratch"
export GOMP_SPINCOUNT=100
fail() { echo "FAILED: $*" >&2; exit 1; }

# results as a study writes them, with hostile names, missing numbers and an arm that failed
mkdir study
python3 - <<'P'
import json, math
lengths = [8, 16, 32, 64, 128]
def row(p, l, loss, n):
    return dict(protocol=p, length=l, stride=l, tokens=1024, windows=1024 // l, documents=3, loss=loss, loss_sd=0.01,
                loss_min=loss - 0.01, loss_max=loss + 0.01, ppl=math.exp(loss), ppl_min=math.exp(loss - 0.01),
                ppl_max=math.exp(loss + 0.01), excess=loss - 2 if l > 16 else None, excess_sd=0.01,
                excess_min=loss - 2.01 if l > 16 else None, excess_max=loss - 1.99 if l > 16 else None,
                bits_per_byte=loss / math.log(2), n=n, seeds=[])
def arm(name, label, slope, parent=None):
    rows = [row(p, l, 2 + slope * math.log2(l / 16), 2) for p in ("nonoverlap", "slide") for l in lengths]
    rows[0]["loss"] = rows[0]["ppl"] = None
    return {"name": name, "label": label, "from": parent, "settings": {"model.position": name}, "parameters": 1234567,
            "tokens_trained": 1000, "seeds": 2, "missing_seeds": [], "results": rows,
            "resolution": [dict(length=l, n=2, **{k + e: 0.1 / l for k in ("R_head", "R_layer", "M_head", "M_layer")
                                                  for e in ("", "_sd", "_min", "_max")}) for l in lengths],
            "positions": [dict(protocol=p, length=128, first=[0, 1, 2, 64], end=[1, 2, 64, 128],
                               loss=[3.0, 2.5, None, 2 + slope]) for p in ("nonoverlap", "slide")]}
arms = [arm("rope", "RoPE </script><b>\"'&", 0.5), arm("alibi", "ALiBi", -0.02),
        arm("rope-bca", "RoPE + BCA, with a name that is longer than a chart has room for", 0.0, "rope")]
arms.append(dict(arm("failed", "failed", 0), results=[], resolution=[], positions=[], missing_seeds=[1, 2], seeds=0,
                 parameters=None, tokens_trained=None))
json.dump({"format": "longshot-study-1", "study": "x", "title": "<i>title</i>", "about": "a & b", "finished": True,
           "longshot": "0", "command": "longshot study 'a b.yaml' <x>", "trained_length": 16,
           "machine": {"cpu": "<cpu>", "instructions": "<i>", "processors": 2}, "settings": {"data.corpus": "<c>"}, "arms": arms},
          open("study/results.json", "w"))
json.dump({"format": "longshot-timing-1", "arms": [
    {"name": a["name"], "training": {"seconds": 1.5, "peak_bytes": 1e6}, "evaluation": {"seconds": 1, "peak_bytes": 1e6},
     "results": [dict(protocol=r["protocol"], length=r["length"], seconds=1.0, tokens_per_second=1024.0 + r["length"],
                      bytes=1e6 * r["length"]) for r in a["results"]]} for a in arms]}, open("study/timing.json", "w"))
P
"$program" report study >/dev/null
python3 - <<'P'
import html.parser, re
text = open("study/report.html").read()
assert not re.search(r"(https?:)?//[a-z]", text.replace("\\2191", "")), "the page names another place"
for bad in ("<i>title", "</script><b>", "<cpu>", "<c>", "<x>"):
    assert bad not in text, bad + " came through unescaped"
void = {"meta", "link", "br", "path", "rect"}
class Check(html.parser.HTMLParser):
    stack, count = [], {}
    def handle_starttag(self, tag, attrs):
        self.count[tag] = self.count.get(tag, 0) + 1
        self.stack.append(tag) if tag not in ("meta", "link", "br") else None
    def handle_startendtag(self, tag, attrs):
        self.count[tag] = self.count.get(tag, 0) + 1
    def handle_endtag(self, tag):
        assert self.stack and self.stack[-1] == tag, (tag, self.stack[-3:], self.getpos())
        self.stack.pop()
page = Check()
page.feed(text)
page.close()
assert page.stack == [], page.stack
assert page.count["h1"] == 1 and page.count["table"] >= 4 and page.count["figure"] >= 12, page.count
for word in ("nan", "inf"):
    assert not re.search(r'[ "LM]-?%s\b' % word, text), "a number is " + word
squeezed = re.findall(r'textLength="\d+"[^>]*>([^<]*)<', text)
assert squeezed and all(name.startswith("RoPE + BCA, with") for name in squeezed), squeezed
assert text.count("trained at 16") >= 8 and "excess" in text and "results are missing" in text
P
cp study/report.html first.html
"$program" report study >/dev/null
cmp first.html study/report.html || fail "the same files gave another page"

# what is no study, or damaged, is refused
for damage in '{' '[]' '{"format": "other"}' '{"format": "longshot-study-1"}'; do
    mkdir -p broken
    echo "$damage" >broken/results.json
    code=0
    "$program" report broken >/dev/null 2>&1 || code=$?
    [ $code -eq 3 ] || fail "results.json holding $damage left with $code"
done
# so are members of the wrong kind
echo '{"format": "longshot-study-1", "arms": [1, {"name": 3, "results": {}, "positions": [4]}, {"results": [[], {"length": "x"}, {"length": 0, "ppl": -1}, {"length": 1e308, "ppl": 1e308}], "resolution": [{"length": 3, "R_head": 0}]}]}' >broken/results.json
code=0
"$program" report broken >/dev/null 2>&1 || code=$?
[ $code -eq 3 ] || fail "members of the wrong kind left with $code"

# words that results have nothing for: which of them is not known, and what it was perhaps meant to be
nothing_for() { # WORDS SAID
    printf '# x\n\n<!-- begin %s -->\n\n<!-- end -->\n' "$1" >words.md
    code=0
    "$program" report study to=markdown page=words.md >/dev/null 2>said.txt || code=$?
    [ $code -eq 3 ] && grep -q "^longshot: words.md:3: the results have nothing for \`${1#chart }\`$2$" said.txt ||
        fail "$1 left with $code: $(cat said.txt)"
}
nothing_for "pll nonoverlap" "; for pll, did you mean ppl?"
nothing_for "ppl nonoverlapp" "; for nonoverlapp, did you mean nonoverlap?"
nothing_for "ppl winmean" "; there is no winmean"
nothing_for "chart x.svg ppl nonoverlap alibl" "; for alibl, did you mean alibi?"
nothing_for "accuracy slide" ""

# results of hostile origin: numbers that cannot be are refused in one sentence, many arms take little time
cat >hostile.py <<'P'
import copy, json, os, resource, subprocess, sys
program, good = sys.argv[1], json.load(open("study/results.json"))
def run(what, results, seconds, timing=None):
    os.makedirs("hostile", exist_ok=True)
    json.dump(results, open("hostile/results.json", "w"))
    if timing is not None: json.dump(timing, open("hostile/timing.json", "w"))
    elif os.path.exists("hostile/timing.json"): os.remove("hostile/timing.json")
    done = subprocess.run([program, "report", "hostile"], capture_output=True, text=True, timeout=seconds)
    return done.returncode, done.stderr
def refused(what, results, timing=None):
    code, said = run(what, results, 60, timing)
    assert code == 3 and said.startswith("longshot: ") and said.count("longshot: ") == 1, (what, code, said)
def changed(path, value):
    new = copy.deepcopy(good)
    at = new
    for key in path[:-1]: at = at[key]
    at[path[-1]] = value
    return new
row, arm = ("arms", 0, "results", 1), ("arms", 0)
for path, values in ((arm + ("parameters",), (1e300, -1, "many", 2.0**60)), (arm + ("seeds",), (1e300, -1)),
                     (arm + ("tokens_trained",), (1e300,)), (("trained_length",), (1e300, -5, [])),
                     (row + ("accuracy",), (1e300, -0.5, 2, {})), (row + ("accuracy_max",), (1e300,)), (row + ("exact",), (1e300,)),
                     (row + ("length",), (1e300, -1, "8")), (row + ("n",), (1e300, -1)), (row + ("ppl",), (-1, "x")),
                     (arm + ("results",), ({}, 5, [5], [None])), (arm + ("resolution",), ({}, [1])),
                     (arm + ("resolution", 0, "O_layer"), (1e300, -1, "x")),
                     (arm + ("resolution", 0, "scores"), (7, [], {"score": [1]}, {"distance": [-1], "score": [1]}, {"distance": [1, 2], "score": [1]},
                                                          {"distance": [1], "score": ["x"]}, {"distance": [1], "score": [1], "expected": [1, 2]},
                                                          {"distance": [1], "score": [1], "score_sd": {}})),
                     (arm + ("resolution", 0, "by_layer"), (7, {"layer": [1], "R": [[]]}, {"layer": [1], "R": [1], "O": [1, 1]})),
                     (arm + ("positions",), ([[]], [{"loss": [1], "first": [0]}], [{"loss": [1], "first": ["a"], "end": [1]}])),
                     (("arms",), ({}, None, [5], [[]])), (arm + ("name",), ("", "alibi", None))):
    for value in values: refused((path, value), changed(path, value))
timing = json.load(open("study/timing.json"))
for value in (1e300, -1, "x"):
    new = copy.deepcopy(timing)
    new["arms"][0]["training"]["peak_bytes"] = value
    refused(("peak_bytes", value), good, new)
refused("timing", good, [])
# what older files have not, and what is not known
for value in (None, {}, {"distance": [], "score": []}, {"distance": [0, 1], "score": [0, None], "score_sd": [None, None]}):
    code, said = run(("scores", value), changed(arm + ("resolution", 0, "scores"), value), 60)
    assert code == 0, (value, said)
# numbers that can be, however large, and more of everything than there is room for
for path, value in ((row + ("ppl",), 1.7e308), (row + ("ppl_max",), 1.7e308), (row + ("excess",), -1.7e308), (row + ("loss",), 1e308)):
    code, said = run(path, changed(path, value), 60)
    assert code == 0, (path, said)
new = copy.deepcopy(good)
for protocols in (40, 1):
    new["arms"][0]["results"] = [dict(good["arms"][0]["results"][1], length=l, accuracy=1.0, accuracy_min=0.0, accuracy_max=1.0,
                                      exact=1.0, protocol="p%d" % (l % protocols)) for l in range(1, 1000)]
    code, said = run("many rows", new, 60)
    assert code == 0, (protocols, code, said)
first = good["arms"][0]
def seconds(arms): # of the processor, in a report of families of two
    new["arms"] = [dict(first, name="a%d" % i, results=first["results"][:2], positions=[], resolution=[],
                        **{"from": None if i < arms // 2 else "a%d" % (i - arms // 2)}) for i in range(arms)]
    before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
    code, said = run("%d arms" % arms, new, 300)
    assert code == 0, said
    return resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before
# four times the arms take four times as long; with work for every arm in every family 6,000 took 6.6 times as long as 1,500
few, many = (min(seconds(arms) for _ in range(2)) for arms in (1500, 6000))
print("1500 arms: %.2f s, 6000: %.2f" % (few, many))
assert many < 5.2 * few, (few, many)
P
python3 hostile.py "$program" || fail "results of hostile origin"
