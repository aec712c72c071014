#!/bin/sh
# Arms against one of them, seed by seed, as pages print it. The losses are made so that what seeds have in common is
# large and their differences are 0.1, 0.2 and 0.3: mean 0.2, standard deviation 0.1, half an interval 4.303 x 0.1 /
# sqrt(3) = 0.248. Bits per byte, here twice the loss, have twice its interval.
set -u
program=$1
source=$2
. "$source/tests/scratch.sh"
mkdir study
python3 - <<'P'
import json, math
def arm(name, losses, tokens=64, accuracy=None, seeds=(1, 2, 3)):
    loss = sum(losses) / len(losses)
    row = dict(protocol="stream", length=32, stride=32, tokens=tokens, windows=2, documents=2, loss=loss, loss_sd=1,
               ppl=math.exp(loss), bits_per_byte=2 * loss, n=len(losses), excess=None,
               seeds=[dict(seed=s, loss=l, excess=None) for s, l in zip(seeds, losses)])
    if accuracy is not None:
        for entry, a in zip(row["seeds"], accuracy): entry["accuracy"] = a
    return {"name": name, "label": name, "from": None, "settings": {}, "parameters": 1, "tokens_trained": 1,
            "seeds": len(losses), "missing_seeds": [], "results": [row]}
arms = [arm("base", [1, 2, 3], accuracy=[0.5, 0.25, 0.125]), arm("worse", [1.1, 2.2, 3.3], accuracy=[0.75, 0.5, 0.375]),
        arm("other", [1, 2, 3], tokens=128), arm("short", [1.5], seeds=[2]), arm("none", [1.5], seeds=[4]),
        arm("turned", [3.3, 2.2, 1.1], seeds=[3, 2, 1]), arm("failed", [1])]
arms[-1].update(results=[], seeds=0)
json.dump({"format": "longshot-study-1", "study": "x", "title": "t", "about": "a", "finished": True, "longshot": "0",
           "command": "c", "trained_length": 16, "machine": {}, "settings": {}, "arms": arms},
          open("study/results.json", "w"))
json.dump({"format": "longshot-timing-1", "arms": []}, open("study/timing.json", "w"))
P
cat >page.md <<'P'
Worse by 0.20<!-- against base loss worse stream 32 --> nats, give or take
0.248<!-- band-against base loss worse stream 32 -->; +0.40<!-- against base bits_per_byte worse stream 32 --> bits.

<!-- begin against base loss stream -->

<!-- end -->

<!-- begin bits_per_byte stream -->

<!-- end -->

<!-- begin against worse accuracy stream -->

<!-- end -->

<!-- begin chart against.svg against base bits_per_byte stream 32 worse turned -->

<!-- end -->
P
"$program" report study to=markdown page=page.md || fail "no page"
for row in '| worse | 3 | +0.200 ± 0.248 |' '| turned | 3 | +0.200 ± 0.248 |' '| other | 0 | - |' '| short | 1 | -0.500 |' \
    '| none | 0 | - |' '| failed | 0 | - |' '| base | 3 | -25.0 ± 0.0 |' '| base | 3 | 4.000 ± 4.968 |' 'Tested on other tokens, so not compared: other.' \
    '![Bits per byte against base: stream](against.svg)'; do
    grep -qF -e "$row" page.md || fail "no row $row in $(cat page.md)"
done
[ "$(grep -c '| base |' page.md)" -eq 2 ] || fail "an arm against itself"
[ "$(grep -c 'class="bar b0" data-value="0.4"' against.svg)" -eq 2 ] || fail "not two bars of 0.4"
[ "$(grep -c 'class="whisker"' against.svg)" -eq 2 ] || fail "not two intervals"
python3 -c 'import xml.dom.minidom; xml.dom.minidom.parse("against.svg")' || fail "no drawing"
"$program" report study to=markdown page=page.md check=true || fail "the page is not what it was just written to be"
wrong() { # the change, the code, what is said
    sed "$1" page.md >other.md
    "$program" report study to=markdown page=other.md check=true 2>message
    [ $? -eq "$2" ] || fail "$1: not code $2"
    grep -qF -e "$3" message || fail "$1: $(cat message)"
}
wrong 's/0.248<!--/0.249<!--/' 1 "it says 0.249, the results 0.248"
wrong 's/against base loss worse/against nobody loss worse/' 3 'nothing for `against nobody loss worse'
wrong 's/against base loss worse/against base loss other/' 3 'nothing for `against base loss other'
wrong 's/begin against base loss/begin against base state_bytes/' 3 'nothing for `against base state_bytes'
wrong 's/begin against base loss stream/begin against base loss slide/' 3 'nothing for `against base loss slide'
wrong 's/stream 32 worse turned/stream 64 worse turned/' 3 'nothing for `against.svg against base bits_per_byte stream 64'
wrong 's/stream 32 worse turned/stream 32 other/' 3 'nothing for `against.svg against base bits_per_byte stream 32 other'
exit $failures
