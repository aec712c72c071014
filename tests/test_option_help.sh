#!/bin/sh
# The help of every option is a sentence: it begins with a capital, unless it begins with a key, which
# is never capitalised, and ends with a full stop.
set -u
"$1" help --options | python3 -c '
import re, sys

rows = failed = 0
for line in sys.stdin:
    cells = re.split(r"(?<!\\) \| ", line.strip().strip("|").strip())
    if not line.startswith("| `") or len(cells) < 3:
        continue
    rows += 1
    key, help = cells[0].strip("`").split(".")[-1], cells[-1]
    first = re.match(r"\w*", help).group()
    wrong = None
    if first != key and not first[:1].isupper():
        wrong = "begins with neither a capital nor its key"
    elif not help.endswith("."):
        wrong = "has no full stop"
    elif re.search(r"\b[A-Z][a-z_]+=", help):
        wrong = "capitalises a key"
    elif "  " in help or ".." in help.replace("...", ""):
        wrong = "has a blank or a stop too many"
    if wrong:
        failed = 1
        print(f"{cells[0]} {wrong}: {help}", file=sys.stderr)
if rows < 300:
    failed = 1
    print(f"only {rows} options were found", file=sys.stderr)
sys.exit(failed)
'
