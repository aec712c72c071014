"""Short records of the benchmark suites, taken from vector files that the official code made.

python suites.py VECTORS OUT: VECTORS has metrics-*.jsonl, prompts-*-*.jsonl and readers-*.jsonl, one
record of the official code's output a line (README.md names the code). Chosen are, in the order of
the files, the first records of each kind that are short; nothing in a record is changed.
"""
import glob
import json
import sys


def lines(folder, pattern):
    for path in sorted(glob.glob(f"{folder}/{pattern}")):
        with open(path, encoding="utf-8") as file:
            yield from ((json.loads(line), line) for line in file)


def choose(records, kind, most, longest, keep=lambda record: True):
    """The first `most` of each kind, of at most `longest` bytes."""
    taken = {}
    for record, line in records:
        name = kind(record)
        if len(line.encode()) > longest or taken.get(name, 0) >= most or not keep(record):
            continue
        taken[name] = taken.get(name, 0) + 1
        yield line


def needs_words(record):
    """Chinese data sets are scored by words that only single records carry."""
    return record["options"].get("dataset") in ("multifieldqa_zh", "dureader", "vcsum")


def main():
    folder, out = sys.argv[1:]
    chosen = {
        "metrics": choose(
            lines(folder, "metrics-*.jsonl"),
            lambda r: (r["suite"], r["metric"], r["options"].get("backend")), 6, 420,
            lambda r: not needs_words(r)),
        "ruler": choose(
            lines(folder, "prompts-ruler-*.jsonl"), lambda r: r["task"], 1, 6000,
            lambda r: r["task"] in ("niah_single_1", "niah_multikey_3", "vt", "cwe", "fwe")),
        "needle": choose(
            lines(folder, "prompts-needle-*.jsonl"), lambda r: r["kind"], 4, 1000,
            lambda r: r["kind"] in ("landmark", "grid", "lceg_prompt")),
        "readers": choose(lines(folder, "readers-*.jsonl"), lambda r: r["reader"], 3, 3000),
    }
    for name, records in chosen.items():
        with open(f"{out}/{name}.jsonl", "w", encoding="utf-8") as file:
            file.writelines(records)


main()
