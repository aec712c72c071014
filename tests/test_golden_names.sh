#!/bin/sh
# Nothing in a golden file passes for being unknown: with an output, a gradient or an input added that
# no one has heard of, every line of tests/golden/{cases,tables}.txt is refused; and every table of a
# position method has a line.
set -eu
program=$1
folder=$2/tests/golden
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
export GOMP_SPINCOUNT=100
python3 - "$program" "$folder" "$scratch" <<'P'
import json, os, re, struct, subprocess, sys
program, folder, scratch = sys.argv[1:]
def read(path):
    data = open(path, "rb").read()
    size = struct.unpack("<Q", data[:8])[0]
    return json.loads(data[8:8 + size]), data[8 + size:]
def with_more(path, name, to):
    header, data = read(path)
    header[name] = {"dtype": "F64", "shape": [1], "data_offsets": [len(data), len(data) + 8]}
    text = json.dumps(header).encode()
    open(to, "wb").write(struct.pack("<Q", len(text)) + text + data + struct.pack("<d", 1.0))
count, covered, wrong = 0, {}, []
for table in ("cases.txt", "tables.txt"):
    for line in open(os.path.join(folder, table)):
        if not line.strip() or line.startswith("#"):
            continue
        file, arguments, tolerances = (part.strip() for part in line.split("|"))
        loose = ["tol=1", "grad_tol=1"][:len(tolerances.split())]
        tensor = re.search(r"\btensor=(\S+)", arguments)
        if tensor:
            covered.setdefault(file, set()).add("out." + tensor[1])
        for name in ("out.unheard_of", "grad.w.unheard_of", "in.unheard_of") if not tensor else ("in.unheard_of",):
            with_more(os.path.join(folder, file), name, os.path.join(scratch, "more.safetensors"))
            done = subprocess.run([program, "apply", *arguments.split(), "golden=" + os.path.join(scratch, "more.safetensors"),
                                   *loose], capture_output=True, text=True)
            count += 1
            if done.returncode == 0 or "unheard_of" not in done.stderr:
                wrong.append((file, arguments, name, done.returncode, done.stderr[-200:]))
for file, names in covered.items():
    there = {n for n in read(os.path.join(folder, file))[0] if n.startswith("out.")}
    if there - names:
        wrong.append((file, "no line compares", sorted(there - names)))
for what in wrong:
    print("FAILED:", *what, file=sys.stderr)
print("%d files with a tensor too many, %d accepted" % (count, len(wrong)))
sys.exit(bool(wrong) or count < 200)
P
