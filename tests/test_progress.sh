#!/bin/sh
# Who watches a study sees each job's step, loss, speed and time left, and the whole's; the page is there from the
# beginning, with learning curves. Without a terminal there is one line for each event.
set -eu
program=$1
. "$(dirname "$0")/scratch.sh"
write_text 400
cat >study.yaml <<'Y'
seeds: [1]
jobs: 2
model: {layers: 1, width: 16, length: 16}
data: {corpus: text.txt}
train: {steps: 1000000, batch: 2, log_every: 10, checkpoint_every: 1000000}
eval: {lengths: [16, 32], tokens: 512}
arms:
  a: {label: first}
  b: {model.position: rope}
Y
cat >watch.py <<'P'
import os, pty, re, select, signal, sys, time
child, terminal = pty.fork()
if child == 0:
    os.execv(sys.argv[1], ["longshot", "study", "study.yaml", "out=run", "threads=1"])
said, wanted, begun = "", {
    "a job": r"  a, seed 1  step \d+/1000000  loss \d\.\d+  [\d.]+[kM]? tokens/s  [\dhms]+ left",
    "the other": r"  b, seed 1  step \d+/1000000  loss",
    "the whole": r"  0 of 4 jobs done, about [\dhms]+ left",
}, time.time()
page, early = "", None
while wanted or "Training loss" not in page:
    assert time.time() - begun < 120, (list(wanted), page[:200], said[-500:])
    said += os.read(terminal, 65536).decode(errors="replace")
    wanted = {k: v for k, v in wanted.items() if not re.search(v, said)}
    if os.path.exists("run/report.html"):
        page = open("run/report.html").read()
        if early is None: early = page
assert 'http-equiv="refresh"' in early and "This study is running: 2 results" in early
curve = re.search(r'data-arm="a" data-x="([^"]*)" data-y="([^"]*)"', page)
assert len(curve[1].split()) == len(curve[2].split()) >= 2, curve
# a pipe where a job's metrics were has no row, and is not waited for
def shown():
    assert select.select([terminal], [], [], 60)[0], "the study shows nothing any more: " + said[-500:]
    return os.read(terminal, 65536).decode(errors="replace")
os.unlink("run/arms/a/seed-1/metrics.jsonl")
os.mkfifo("run/arms/a/seed-1/metrics.jsonl")
said = ""
while not re.search(r"  a, seed 1  starting", said): said += shown()
os.kill(child, signal.SIGTERM)
try:
    while shown(): pass
except OSError: pass
code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
assert code == 75, code
P
skipped=
if python3 -c 'import os; os.openpty()' 2>/dev/null; then
    python3 watch.py "$program" || fail "watching a study"
    [ -n "$(find run -name metrics.jsonl)" ] || fail "no run was begun"
else
    skipped="no pseudo-terminal can be had here, so nobody watches"
fi

sed -i 's/1000000/20/g' study.yaml
"$program" study study.yaml out=short threads=1 >/dev/null 2>lines.txt || fail "a short study"
[ "$(grep -c '^\[[1-4]/4\] [ab], seed 1: \(trained\|evaluated\) in' lines.txt)" -eq 4 ] || fail "not one line for each job: $(cat lines.txt)"
grep -q 'tokens/s' lines.txt && fail "lines of progress where nobody watches"
[ $failures -eq 0 ]
[ -z "$skipped" ] || { echo "SKIPPED: $skipped" >&2; exit 77; }
