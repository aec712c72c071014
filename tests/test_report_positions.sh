#!/bin/sh
# Loss by position in pages: means over ranges that double, each position of a bucket counted.
set -u
program=$1
source=$2
. "$source/tests/scratch.sh"
mkdir study
python3 - <<'P'
import json
first = [0, 1, 2, 16, 24, 32, 64, 96]
def arm(name, loss):
    row = dict(protocol="lex", length=128, loss=1.0, n=2, seeds=[dict(seed=s, loss=1.0) for s in (1, 2)])
    where = dict(protocol="lex", length=128, first=first, end=first[1:] + [128], loss=loss)
    return {"name": name, "label": name, "from": None, "settings": {}, "parameters": 1, "tokens_trained": 1, "seeds": 2,
            "missing_seeds": [], "results": [row], "positions": [where]}
json.dump({"format": "longshot-study-1", "study": "x", "title": "t", "about": "a", "finished": True, "longshot": "0",
           "command": "c", "trained_length": 64, "machine": {}, "settings": {},
           "arms": [arm("all", [5.0, 4.0, 2.0, 2.0, 1.0, 1.7, 1.3, 1.1]), arm("gap", [5.0, 4.0, 2.0, None, 1.0, 1.7, 1.3, 1.1])]},
          open("study/results.json", "w"))
json.dump({"format": "longshot-timing-1", "arms": []}, open("study/timing.json", "w"))
P
cat >page.md <<'P'
It begins with 2.31<!-- positions all lex 0 -->, and ends with 1.20<!-- positions all lex 64 -->.

<!-- begin chart lines.svg positions lex all -->

<!-- end -->

<!-- begin positions lex -->

<!-- end -->
P
"$program" report study to=markdown page=page.md || fail "no page"
for row in '| arm | seeds | 0 | 16 | 32 | 64 |' '| all | 2 | 2.312 | 1.500 | 1.700 | 1.200 |' '| gap | 2 | 2.312 | - | 1.700 | 1.200 |'; do
    grep -qF -e "$row" page.md || fail "no row $row in $(cat page.md)"
done
grep -q "position in the window" lines.svg || fail "the chart does not say what it is over"
sed 's/2.31<!--/2.21<!--/' page.md >other.md
"$program" report study to=markdown page=other.md check=true 2>message && fail "a wrong number passes"
grep -q "it says 2.21, the results 2.31" message || fail "$(cat message)"
for words in 'positions all lex 48' 'positions nobody lex 0' 'positions all lex'; do
    sed "s/positions all lex 0 -->/$words -->/" page.md >other.md
    "$program" report study to=markdown page=other.md 2>message
    [ $? -eq 3 ] || fail "$words is found"
done
exit $failures
