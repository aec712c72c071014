#!/bin/sh
# Kendall's tau-b of the loss with suites, as pages print it, on the published numbers of arXiv 2409.12181:
# PG19 at 32k (table 2) with needle, many-shot and RULER (table 1), over the five exact fine-tuned methods.
# scipy.stats.kendalltau gives -0.949, 0.738 and -0.105 for them.
set -u
program=$1
source=$2
. "$source/tests/scratch.sh"
mkdir study
python3 - <<'P'
import json, math
table = {"pi": (5.95, 42.1, 75.5, 57.66), "ntk-32k": (5.79, 83.7, 71.0, 59.42), "yarn": (5.93, 46.7, 75.0, 36.95),
         "clex": (5.82, 71.1, 74.0, 52.17), "ntk-64k": (5.93, 69.1, 73.0, 60.03), "longlora": (9.89, 20.3, 55.5, 3.53)}
def suite(name, score, tasks=()):
    cells = [dict(length=32768, task=t, n=10, score=s / 100) for t, s in tasks]
    return dict(name=name, suite=name, form="generate", measure="x", chance=0, n=10, seeds=2, score=score / 100, cells=cells,
                x="length", curve=[], by_seed=[dict(seed=1, score=score / 100), dict(seed=2, score=-score / 100)])
def arm(name, ppl, needle, shots, ruler):
    loss = math.log(ppl)
    row = dict(protocol="slide", length=32768, loss=loss, ppl=ppl, n=2, seeds=[dict(seed=s, loss=loss) for s in (1, 2)])
    suites = [suite("needle", needle), suite("shots", shots), suite("ruler", ruler, (("s1", ruler), ("other", -ruler)))]
    return {"name": name, "label": name, "from": None, "settings": {}, "parameters": 1, "tokens_trained": 1, "seeds": 2,
            "missing_seeds": [], "results": [row], "suites": suites}
json.dump({"format": "longshot-study-1", "study": "x", "title": "t", "about": "a", "finished": True, "longshot": "0",
           "command": "c", "trained_length": 4096, "machine": {}, "settings": {},
           "arms": [arm(n, *v) for n, v in table.items()]}, open("study/results.json", "w"))
json.dump({"format": "longshot-timing-1", "arms": []}, open("study/timing.json", "w"))
P
arms="pi ntk-32k yarn clex ntk-64k"
cat >page.md <<P
RULER: -0.11<!-- tau ruler slide 32768 $arms -->, its other task +0.11<!-- tau ruler/other slide 32768 $arms -->.

<!-- begin tau slide 32768 $arms -->

<!-- end -->
P
"$program" report study to=markdown page=page.md || fail "no page"
for row in '| needle | 5 | -0.95 | -0.95 | +0.95 |' '| shots | 5 | +0.74 | -0.74 | +0.74 |' \
    '| ruler | 5 | -0.11 | -0.11 | +0.11 |' '| ruler, s1 | 5 | -0.11 | - | - |' '| ruler, other | 5 | +0.11 | - | - |'; do
    grep -qF -e "$row" page.md || fail "no row $row in $(cat page.md)"
done
sed 's/-0.11<!--/-0.12<!--/' page.md >other.md
"$program" report study to=markdown page=other.md check=true 2>message && fail "a wrong tau passes"
grep -q "it says -0.12, the results -0.11" message || fail "$(cat message)"
sed 's/clex ntk-64k -->$/nobody -->/' page.md >other.md
"$program" report study to=markdown page=other.md 2>message
[ $? -eq 3 ] || fail "an arm that is not there"
exit $failures
