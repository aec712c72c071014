"""Checks of reach.json and its page, worked out from the jobs alone.

finding FOLDER            the finding and the sentence are what the jobs say
same FOLDER FOLDER        jobs that both have gave the same numbers; prints how many
page FOLDER DOM           the page, as a browser sees it, shows the numbers of reach.json
"""
import html
import json
import math
import re
import sys


def read(folder):
    with open(folder + "/reach.json") as file:
        return json.load(file)


def fail(*what):
    sys.exit("FAILED: " + " ".join(str(w) for w in what))


def close(a, b):
    return abs(a - b) <= 1e-9 * max(1, abs(a), abs(b))


def rows(state, variant):
    """token loss above the flat tail of the model as it is, by length"""
    jobs = state["jobs"]
    out = {}
    for key, job in jobs.items():
        kind, name, size = key.split("/")[:3]
        own = jobs.get("perplexity/as it is/" + size, {})
        if kind == "perplexity" and name == variant and "flat" in own and "token_loss" in job:
            out[int(size)] = job["token_loss"] - own["flat"]
    return out


def useful(state, variant):
    last, last_excess = 0, 0
    for length, excess in sorted(rows(state, variant).items()):
        if length < state["trained_length"]:
            continue
        if excess >= 0.1:
            if last == 0:
                return 0, False
            share = (0.1 - last_excess) / (excess - last_excess)
            found = 2 ** (math.log2(last) + share * math.log2(length / last))
            unit = 10 ** max(0, len(str(int(found))) - 2)
            return max(last, int(found / unit) * unit), False
        last, last_excess = length, excess
    return last, last > 0


def needle_cells(state, variant):
    cells = {}
    for key, job in state["jobs"].items():
        if key.startswith("needle/" + variant + "/"):
            for cell in job.get("cells", []):
                at = cells.setdefault((cell["length"], cell["depth"]), [0, 0])
                at[0] += cell["n"] * cell["score"]
                at[1] += cell["n"]
    return cells


def finding(folder):
    state = read(folder)
    found = state["finding"]
    for reading in found["reads"]:
        length, at_least = useful(state, reading["variant"])
        if length != reading["length"] or at_least != reading["at_least"]:
            fail(reading, "is not", length, at_least)
    for needle in found["needle"]:
        cells = needle_cells(state, needle["variant"])
        bad = [at[0] for at, (right, n) in cells.items() if right / n < 0.5]
        good = [at[0] for at in cells if at[0] < min(bad, default=math.inf)]
        if needle["length"] != max(good, default=0) or needle["at_least"] != (not bad):
            fail(needle, "is not", max(good, default=0))
    sentence = state["sentence"]
    if not sentence.startswith("Trained at {:,}. ".format(state["trained_length"])):
        fail("the sentence begins otherwise:", sentence)
    own = found["reads"][0]
    numbers = [int(n.replace(",", "")) for n in re.findall(r"\d[\d,]*\d|\d", sentence)]
    if numbers[1] != own["length"] or own["at_least"] != ("to at least" in sentence.split(" as it is")[0]):
        fail("the sentence and the finding differ:", sentence, own)
    if (found["best"] is not None) != (" with " in sentence.split(";")[0]):
        fail("the best extension and the sentence differ:", sentence)


def plain(value):
    """without what a clock says"""
    if isinstance(value, dict):
        timed = ("seconds", "tokens_per_second", "took")
        return {k: plain(v) for k, v in value.items() if k not in timed}
    return [plain(v) for v in value] if isinstance(value, list) else value


def at_once(plan):
    return plan["chunk"], plan["batch"]


def near(a, b):
    """the same but for rounding"""
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(near(a[key], b[key]) for key in a if key != "bytes")
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(near, a, b))
    numbers = isinstance(a, float) and isinstance(b, float)
    return math.isclose(a, b, rel_tol=1e-4, abs_tol=1e-4) if numbers else a == b


def same(one, two):
    first, second = read(one), read(two)
    a, b = first["jobs"], second["jobs"]
    common = [key for key in a if key in b]
    # a machine that was busy when its speed was measured takes fewer tokens at once
    alike = at_once(first["plan"]) == at_once(second["plan"])
    for key in common:
        x, y = plain(a[key]), plain(b[key])
        if x != y if alike else not near(x, y):
            fail("the job", key, "differs")
    print(len(common))


def heads(folder):
    """LAMBADA and heads are in the state, and the page has a map with a cell for each head."""
    jobs = read(folder)["jobs"]
    lambada = [job for key, job in jobs.items() if key.startswith("lambada/as it is/")]
    if len(lambada) != 1 or lambada[0]["n"] != 2 or lambada[0]["data"]["variant"] != "openai":
        fail("LAMBADA is not of both passages:", lambada)
    first = jobs["heads/as it is/64/1"]
    if [(c["layer"], c["head"]) for c in first["cells"]] != [(0, 0), (0, 1), (1, 0), (1, 1)]:
        fail("other heads than the model's")
    rounds = [job for key, job in jobs.items() if key.startswith("heads/as it is/64/")]
    with open(f"{folder}/reach.html") as file:
        text = file.read()
    for part in ("<h2>Attention heads</h2>", "Prefix matching at 64 tokens", "layer 1, head 1: "):
        if part not in text:
            fail("the page lacks", part)
    own = [job["model_scores"][0]["metrics"]["repeat_gain"] for job in rounds]
    whole = text[text.index("Of the whole model"): text.index("All heads:")]
    if whole.count('<td data-value="64">64</td>') != 1 or f"{sum(own) / len(own):.3f}" not in whole:
        fail("the model's scores are not the mean over rounds", own)
    table = text[text.index("All heads:"):]
    row = table[table.index("layer 1, head 1"):].split("</tr>")[0]
    own = [job["cells"][3]["metrics"]["text_previous_token"] for job in rounds]
    mean = sum(own) / len(own)
    shown = [float(value) for value in re.findall('data-value="([^"]+)"', row)]
    if not any(math.isclose(value, mean, rel_tol=1e-6) for value in shown):
        fail("the row of a head lacks", mean, ":", row[:300])


def page(folder, dom):
    state = read(folder)
    with open(dom) as file:
        text = file.read()
    shown = html.unescape(re.search(r'<p class="finding">(.*?)</p>', text, re.S).group(1))
    if shown != state["sentence"]:
        fail("the page says:", shown)
    drawn = {}
    for length, depth, percent, n in re.findall(
        r"<title>([\d,]+) tokens, depth (\d+) %: (\d+) % of (\d+) right", text
    ):
        drawn.setdefault((int(length.replace(",", "")), int(depth)), []).append((int(percent), int(n)))
    count = 0
    for variant in state["variants"]:
        for (length, depth), (right, n) in needle_cells(state, variant["name"]).items():
            cell = (round(100 * right / n), round(n))
            near = [c for c in drawn.get((length, round(depth)), []) if c[1] == cell[1] and abs(c[0] - cell[0]) <= 1]
            if not near:
                fail("no cell for", length, depth, cell)
            count += 1
    if count == 0 or count != sum(len(c) for c in drawn.values()):
        fail(count, "cells are known, and others drawn")
    for variant in state["variants"]:
        table = text[text.index("<h2>Perplexity by length") :]
        row = re.search(r'<td data-value="' + re.escape(html.escape(variant["name"])) + r'">.*?</tr>', table, re.S)
        values = [float(v) for v in re.findall(r'data-value="([^"]+)"', row.group(0))[1:]]
        known = [
            job["ppl"]
            for key, job in sorted(state["jobs"].items(), key=lambda k: k[1]["size"])
            if key.startswith("perplexity/" + variant["name"] + "/")
        ]
        if len(values) != len(known) or any(abs(v / k - 1) > 1e-6 for v, k in zip(values, known)):
            fail("the table's perplexities of", variant["name"], "differ")


{"finding": finding, "heads": heads, "same": same, "page": page}[sys.argv[1]](*sys.argv[2:])
