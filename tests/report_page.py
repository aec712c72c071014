"""What a browser draws of a study's page, number by number against the study's files.

    report_page.py make FOLDER      two studies, text and task, in which no two numbers are alike
    report_page.py open PAGE COPY   a copy of a page that writes down what it shows
    report_page.py compare STUDY DOM

Drawn places are turned into numbers by the labels of the axes alone."""
import csv
import html
import json
import math
import random
import re
import sys

LENGTHS = [8, 16, 32, 64, 128]
TRAINED = 16

# ---- studies ----


def spread(draw, row, key, value):
    row[key] = value
    row[key + "_sd"] = 0.1 * abs(value)
    row[key + "_min"], row[key + "_max"] = value * (1 - draw.uniform(0.1, 0.4)), value * (1 + draw.uniform(0.1, 0.4))


def text_row(draw, protocol, length):
    row = dict(protocol=protocol, length=length, stride=length, tokens=draw.randrange(10**6), windows=7, documents=3, n=3,
               seeds=[], loss=draw.uniform(1, 4), bits_per_byte=draw.uniform(1, 4))
    row.update(loss_sd=0.1, loss_min=row["loss"] - 0.2, loss_max=row["loss"] + 0.3)
    spread(draw, row, "ppl", math.exp(draw.uniform(0.5, 6)))
    spread(draw, row, "excess", draw.uniform(-1, 2))
    if length <= TRAINED:
        row.update(excess=None, excess_sd=None, excess_min=None, excess_max=None)
    return row


def task_row(draw, protocol, length):
    row = dict(text_row(draw, protocol, length), exact=draw.uniform(0.05, 0.95))
    value = draw.uniform(0.2, 0.8)
    row.update(accuracy=value, accuracy_min=value - draw.uniform(0.05, 0.2), accuracy_max=value + draw.uniform(0.05, 0.2))
    return row


def make_arm(draw, name, label, parent, make_row, protocols):
    resolution = []
    for length in LENGTHS:
        row = dict(length=length, n=3)
        for key in ("R_head", "R_layer"):
            spread(draw, row, key, math.exp(draw.uniform(-7, -1)))
        for key in ("M_head", "M_layer"):
            spread(draw, row, key, draw.uniform(0.3, 0.7))
        resolution.append(row)
    first = [0, 1, 2, 3, 4, 6, 8, 9, 10, 11, 12, 14, 16, 20, 24, 28, 32, 48, 64, 80, 96, 112]
    return {"name": name, "label": label, "from": parent, "settings": {"model.position": name, "train.seed": "1"},
            "parameters": draw.randrange(10**5, 10**8), "tokens_trained": draw.randrange(10**6, 10**9), "seeds": 3,
            "missing_seeds": [], "resolution": resolution,
            "results": [make_row(draw, p, l) for p in protocols for l in LENGTHS],
            "positions": [dict(protocol=p, length=128, first=first, end=first[1:] + [128],
                               loss=[draw.uniform(1, 5) for _ in first]) for p in protocols]}


def make_study(draw, make_row, protocols):
    arms = [make_arm(draw, name, label, parent, make_row, protocols) for name, label, parent in (
        ("rope", "RoPE", None), ("alibi", "ALiBi", None), ("rope-bca", "RoPE + BCA", "rope"), ("xpos", "xPos", None),
        ("rope-ntk", "RoPE, NTK", "rope"))]
    arms[1]["results"][2].update(loss=None, ppl=None, ppl_min=None, ppl_max=None, excess=None)  # a seed that never came
    arms[4]["results"] = [r for r in arms[4]["results"] if r["length"] != 32]  # nor this length
    arms.append(dict(make_arm(draw, "failed", "failed", None, make_row, protocols), results=[], resolution=[], positions=[],
                     missing_seeds=[1, 2], seeds=0, parameters=None, tokens_trained=None))
    timing = [{"name": a["name"], "training": {"seconds": draw.uniform(1, 90), "peak_bytes": draw.randrange(10**6, 10**9)},
               "evaluation": {"seconds": draw.uniform(1, 90), "peak_bytes": draw.randrange(10**6, 10**9)},
               "results": [dict(protocol=r["protocol"], length=r["length"], seconds=draw.uniform(1, 9),
                                tokens_per_second=math.exp(draw.uniform(5, 10)), bytes=draw.randrange(10**6, 10**9))
                           for r in a["results"]]} for a in arms]
    results = {"format": "longshot-study-1", "study": "x", "title": "numbers", "about": "", "finished": True, "longshot": "0",
               "command": "longshot study x", "trained_length": TRAINED, "settings": {}, "arms": arms,
               "machine": {"cpu": "c", "instructions": "i", "processors": 2}}
    return results, {"format": "longshot-timing-1", "arms": timing}


def make(folder):
    import os
    for name, make_row, protocols in (("text", text_row, ["nonoverlap", "slide"]), ("task", task_row, ["task"])):
        path = os.path.join(folder, name)
        os.makedirs(path)
        for file, content in zip(("results.json", "timing.json"), make_study(random.Random(name), make_row, protocols)):
            json.dump(content, open(os.path.join(path, file), "w"))


# ---- in the browser ----

COLLECT = r"""
const problems = [];
window.onerror = m => problems.push(String(m));
const box = e => { const b = e.getBBox(); return [b.x, b.y, b.width, b.height]; };
const text = e => e == null ? null : e.textContent;
const before = (e, tag) => { for (; e != null; e = e.previousElementSibling ?? e.parentElement)
    if (e.tagName === tag) return e.textContent; return null; };
const cell = td => ({text: td.firstChild == null ? "" : td.firstChild.nodeType === 3 ? td.firstChild.data : td.textContent,
                     small: text(td.querySelector("small")), value: td.dataset.value});
const read = () => ({
    figures: [...document.querySelectorAll("figure")].map(f => ({
        caption: text(f.querySelector("figcaption")), heading: before(f, "H2"),
        shown: f.querySelector("svg.chart").getBoundingClientRect().width > 200,
        ticks: [...f.querySelectorAll("svg.chart > text.tick")].filter(t => t.previousElementSibling.matches(".grid, .axis"))
            .map(t => ({text: text(t), line: box(t.previousElementSibling)})),
        mark: [...f.querySelectorAll("svg.chart > path.mark")].map(m => ({line: box(m), text: text(m.nextElementSibling)})),
        names: [...f.querySelectorAll("svg.chart > text.name")].map(text),
        legend: [...f.querySelectorAll(".legend > *")].map(e => ({arm: e.dataset.arm ?? null, text: e.textContent})),
        series: [...f.querySelectorAll("g.series")].map(g => ({
            arm: g.dataset.arm, name: text(g.querySelector(":scope > text.tick")),
            line: g.querySelector("path.line")?.getAttribute("d") ?? null,
            band: g.querySelector("path.band")?.getAttribute("d") ?? null,
            points: [...g.querySelectorAll("path.point")].map(p => ({d: p.getAttribute("d"), title: text(p)})),
            bars: [...g.querySelectorAll("rect.bar")].map(r => ({number: +r.classList[1].slice(1), box: box(r),
                whisker: r.nextElementSibling.matches(".whisker") ? box(r.nextElementSibling) : null,
                value: text(r.nextElementSibling.matches(".whisker") ? r.nextElementSibling.nextElementSibling
                                                                     : r.nextElementSibling)}))}))})),
    tables: [...document.querySelectorAll("table")].map(t => ({
        title: before(t.parentElement, "H3"), section: before(t.parentElement, "H2"),
        header: [...t.tHead.rows[0].cells].map(text),
        rows: [...t.tBodies[0].rows].map(r => ({arm: r.dataset.arm, cells: [...r.cells].map(cell)}))}))});
const drawn = read();
const visible = arm => [...document.querySelectorAll(`.series[data-arm=${arm}]`)]
    .filter(e => e.getBoundingClientRect().width > 0).length;
drawn.hiding = [visible("alibi")];
document.querySelector(".legend button[data-arm=alibi]").click();
drawn.hiding.push(visible("alibi"), visible("rope"));
const sort = document.querySelectorAll("table thead button")[4];
sort.click(); sort.click();
drawn.sorted = [...sort.closest("table").tBodies[0].rows].map(r => r.dataset.arm);
drawn.problems = problems;
document.documentElement.dataset.drawn = JSON.stringify(drawn);
"""


def open_page(page, copy):
    text = open(page).read()
    assert text.count("</body>") == 1
    open(copy, "w").write(text.replace("</body>", "<script>" + COLLECT + "</script></body>"))


# ---- comparison ----

compared = 0


def same(what, got, want, tolerance):
    global compared
    compared += 1
    assert abs(got - want) <= tolerance, "%s: %.6g is shown where %.6g belongs" % (what, got, want)


def shows(what, text, value):
    """A printed number is the value, to half a unit of its last digit."""
    match = re.fullmatch(r"([+-]?[\d,]+)(\.\d+)?(e[+-]\d+)?", text)
    assert match, "%s: %r where %r belongs" % (what, text, value)
    unit = 10.0 ** -(len(match[2] or ".") - 1) * float("1" + (match[3] or ""))
    if match[2] is None and value != round(value) and abs(value) < 1:
        unit = 1e-3 * abs(value)
    same(what, float(text.replace(",", "")), value, 0.5001 * unit)


class Axis:
    """Drawn place and number, from two labels; the others must agree."""

    def __init__(self, what, ticks, log):
        self.scale = math.log if log else float
        marks = []
        for text, place in ticks:
            marks.append((self.scale(float(text.rstrip("k")) * (1e3 if text.endswith("k") else 1)), place))
        marks.sort()
        assert len(marks) >= 2, what + ": an axis with fewer than two labels"
        (a, x), (b, y) = marks[0], marks[-1]
        self.slope, self.start = (y - x) / (b - a), x - a * (y - x) / (b - a)
        for value, place in marks:
            same(what + ", labels of an axis", place, self.start + self.slope * value, 0.11)

    def place(self, value):
        return self.start + self.slope * self.scale(value)


def path(d):
    return [(float(x), float(y)) for x, y in re.findall(r"[ML](-?[\d.]+) (-?[\d.]+)", d or "")]


def finite(value):
    return value is not None and math.isfinite(value)


NEAR = 0.2  # of a unit of the drawing; places are written to a tenth


def check_places(what, got, want, x, y):
    assert len(got) == len(want), "%s: %d places in place of %d" % (what, len(got), len(want))
    for (at_x, at_y), (value_x, value_y) in zip(got, want):
        same(what + ", across", at_x, x.place(value_x), NEAR)
        same(what + ", up", at_y, y.place(value_y), NEAR)


def check_lines(figure, series, y_log, labels, markers=True):
    """series: arm to rows of (x, y, low, high)."""
    what = figure["caption"]
    assert figure["shown"], what + " has no size"
    across = [(t["text"], t["line"][0]) for t in figure["ticks"] if t["line"][3] > 0]
    up = [(t["text"], t["line"][1]) for t in figure["ticks"] if t["line"][3] == 0]
    x, y = Axis(what, across, True), Axis(what, up, y_log)
    assert [s["arm"] for s in figure["series"]] == list(series), (what, [s["arm"] for s in figure["series"]])
    assert [(e["arm"], e["text"]) for e in figure["legend"]] == [(a, labels[a]) for a in series], what
    assert len(figure["mark"]) == 1 and figure["mark"][0]["text"] == "trained at %d" % TRAINED, what
    same(what + ", the training length", figure["mark"][0]["line"][0], x.place(TRAINED), NEAR)
    for drawn in figure["series"]:
        rows = [r for r in series[drawn["arm"]] if finite(r[1])]
        here = what + ", " + drawn["arm"]
        check_places(here, path(drawn["line"]), [r[:2] for r in rows], x, y)
        if rows and rows[0][2] is not None:
            check_places(here + ", band", path(drawn["band"]),
                         [(r[0], r[3]) for r in rows] + [(r[0], r[2]) for r in reversed(rows)], x, y)
        if not markers:
            continue
        assert len(drawn["points"]) == len(rows), here
        for point, row in zip(drawn["points"], rows):
            check_places(here + ", marker", path(point["d"])[:1], [row[:2]], x, y)
            match = re.fullmatch(r"(.*) at (\d+): (\S+?)(?: \(seeds: (\S+) to (\S+)\))?", point["title"])
            assert match and match[1] == labels[drawn["arm"]] and int(match[2]) == row[0], point["title"]
            for text, value in zip(match.groups()[2:], row[1:]):
                assert (text is None) == (value is None), point["title"]
                if text is not None:
                    shows(here + ", title", text, value)


def check_bars(figure, lengths, series, labels):
    what = figure["caption"]
    x = Axis(what, [(t["text"], t["line"][0]) for t in figure["ticks"]], False)
    assert [e["text"] for e in figure["legend"]] == ["at %d" % l for l in lengths], what
    assert [s["arm"] for s in figure["series"]] == list(series), what
    for drawn in figure["series"]:
        rows = series[drawn["arm"]]
        assert drawn["name"] == labels[drawn["arm"]], drawn["name"]
        want = [i for i, l in enumerate(lengths) if l in rows and finite(rows[l][0])]
        assert [b["number"] for b in drawn["bars"]] == want, what
        for bar in drawn["bars"]:
            value, low, high = rows[lengths[bar["number"]]]
            here = "%s, %s at %d" % (what, drawn["arm"], lengths[bar["number"]])
            ends = sorted((x.place(0), x.place(value)))
            same(here, bar["box"][0], ends[0], NEAR)
            same(here, bar["box"][0] + bar["box"][2], ends[1], NEAR)
            shows(here, bar["value"], value)
            assert (bar["whisker"] is not None) == (low < high), here
            if bar["whisker"]:
                same(here + ", least", bar["whisker"][0], x.place(min(low, high)), NEAR)
                same(here + ", most", bar["whisker"][0] + bar["whisker"][2], x.place(max(low, high)), NEAR)


def joined(positions):
    """Losses by position: neighbours are joined until a doubling has at most four points."""
    rows, begin, total, width = [], None, 0.0, 0
    last = len(positions["loss"]) - 1
    for i, (first, end, loss) in enumerate(zip(positions["first"], positions["end"], positions["loss"])):
        begin = first + 1 if begin is None else begin
        total, width = total + (end - first) * loss, width + end - first
        if end + 1 >= 2 ** 0.25 * begin or i == last:
            rows.append((math.sqrt(begin * end), total / width, None, None))
            begin, total, width = None, 0.0, 0
    return rows


def groups(arms):
    trained = [a for a in arms if not a["from"]]
    yield "as trained", trained
    for arm in trained:
        children = [a for a in arms if a["from"] == arm["name"]]
        if children:
            yield arm["label"], [arm] + children


def column(rows, protocol, key, scale=1, spread=True):
    return [(r["length"],) + tuple(None if r[k] is None else scale * r[k] for k in (key, key + "_min", key + "_max")[:3 if spread else 1])
            + (() if spread else (None, None)) for r in rows if protocol is None or r["protocol"] == protocol]


def check_figures(drawn, results, timing):
    arms, labels = results["arms"], {a["name"]: a["label"] for a in results["arms"]}
    figures = {}
    for f in drawn["figures"]:
        assert (f["heading"], f["caption"]) not in figures
        figures[f["heading"], f["caption"]] = f
    protocols = list(dict.fromkeys(r["protocol"] for r in arms[0]["results"]))
    judged = "accuracy" in arms[0]["results"][0]

    def take(heading, caption):
        assert (heading, caption) in figures, "no chart `%s` below `%s`" % (caption, heading)
        return figures.pop((heading, caption))

    for index, (title, group) in enumerate(groups(arms)):
        rest = title + ("" if index == 0 else " and methods at test time")
        for p in protocols:
            def of(key, scale=1, list_name="results", protocol=p):
                return {a["name"]: column(a[list_name], protocol, key, scale) for a in group}
            if judged:
                check_lines(take("Right answers against length", "Right answers, " + rest), of("accuracy", 100), False, labels)
            else:
                heading = "Perplexity against length: " + p
                check_lines(take(heading, "Perplexity, " + rest), of("ppl"), True, labels)
                bars = {a["name"]: {r["length"]: (r["excess"], r["excess_min"], r["excess_max"]) for r in a["results"]
                                    if r["protocol"] == p} for a in group}
                check_bars(take(heading, "Excess over the flat tail, " + title), [l for l in LENGTHS if l > TRAINED], bars, labels)
            lines = {a["name"]: joined(next((x for x in a["positions"] if x["protocol"] == p), dict(first=[], end=[], loss=[])))
                     for a in group}
            check_lines(take("Loss by position: " + p, "Loss by position, " + rest), lines, False, labels, markers=False)
        for caption, key, scale, log in (("Resolution, ", "R_head", 100, True), ("Monotonicity M, ", "M_head", 1, False)):
            check_lines(take("Attention resolution", caption + rest), of(key, scale, "resolution", None), log, labels)
    for caption, key, scale in (("Throughput", "tokens_per_second", 1), ("Memory", "bytes", 1e-6)):
        lines = {t["name"]: column(t["results"], protocols[0], key, scale, spread=False) for t in timing["arms"]}
        check_lines(take("What testing costs", caption), lines, True, labels)
    assert not figures, "charts that nothing was compared with: %s" % list(figures)


def check_cell(what, cell, value, half=None, small=()):
    if not finite(value):
        assert cell["text"] == "-" and cell["value"] == "", what
        return
    same(what + ", sorted by", float(cell["value"]), value, 1e-8 * abs(value))
    text, _, rest = cell["text"].partition(" \u00b1")
    shows(what, text, value)
    if half is not None:
        same(what + ", half the range", float(rest), half, 0.5001 * 10.0 ** -len(text.partition(".")[2]))
    shown = re.findall(r"[^, ]+", cell["small"] or "")
    assert len(shown) == len([s for s in small if finite(s)]), (what, cell)
    for text, value in zip(shown, small):
        shows(what + ", below", text, value)


def check_tables(drawn, results, timing):
    arms = results["arms"]
    for table in drawn["tables"]:
        assert [r["arm"] for r in table["rows"]] == [a["name"] for a in arms]
        title = table["title"] or ""
        for row, arm, cost in zip(table["rows"], arms, timing["arms"]):
            assert row["cells"][0]["text"] == arm["label"]
            for name, cell in zip(table["header"][1:], row["cells"][1:]):
                what = "%s: %s, %s" % (title, arm["name"], name)
                if name == "parameters":
                    check_cell(what, cell, arm["parameters"])
                elif table["section"] == "Arms and what they cost":
                    values = {"tokens trained": arm["tokens_trained"], "seeds": arm["seeds"],
                              "training, s": cost["training"]["seconds"], "its memory, MB": 1e-6 * cost["training"]["peak_bytes"],
                              "testing, s": cost["evaluation"]["seconds"]}
                    if name == "settings":
                        assert cell["text"].split() == ["%s=%s" % s for s in arm["settings"].items()], cell
                    else:
                        check_cell(what, cell, values[name])
                elif title.startswith("100 R"):
                    found = [r for r in arm["resolution"] if r["length"] == int(name)]
                    r = found[0] if found else dict.fromkeys(("R_head", "R_layer", "M_head"))
                    if found:
                        same(what, float(cell["value"]), r["R_head"], 1e-8)
                        cell = dict(cell, value=str(100 * r["R_head"]))
                        check_cell(what, cell, 100 * r["R_head"], None, (100 * r["R_layer"], r["M_head"]))
                    else:
                        check_cell(what, cell, None)
                else:
                    protocol = title.rpartition(": ")[2]
                    found = [r for r in arm["results"] if r["length"] == int(name) and r["protocol"] == protocol]
                    if not found:
                        check_cell(what, cell, None)
                    elif "accuracy" in found[0]:
                        r = found[0]
                        check_cell(what, cell, 100 * r["accuracy"], 50 * (r["accuracy_max"] - r["accuracy_min"]), (100 * r["exact"],))
                    else:
                        r = found[0]
                        half = (r["ppl_max"] - r["ppl_min"]) / 2 if finite(r["ppl"]) else None
                        check_cell(what, cell, r["ppl"], half, (r["excess"],))
    titles = [t["title"] or "" for t in drawn["tables"]]
    protocols = list(dict.fromkeys(r["protocol"] for r in arms[0]["results"]))
    assert len(titles) == len(protocols) + 2 and all(any(t.endswith(": " + p) for t in titles) for p in protocols), titles


def check_csv(path, results):
    rows = iter(list(csv.DictReader(open(path, newline=""))))
    for arm in results["arms"]:
        for result in arm["results"]:
            row = next(rows)
            assert (row["arm"], row["label"], row["from"]) == (arm["name"], arm["label"], arm["from"] or ""), row
            resolution = [r for r in arm["resolution"] if r["length"] == result["length"]][0]
            for key in list(row)[3:]:
                want = arm.get(key, result.get(key, resolution.get(key)))
                if isinstance(want, (int, float)):
                    same("results.csv, %s, %s" % (arm["name"], key), float(row[key]), want, 0)
                else:
                    assert row[key] == (want or ""), (key, row)
    assert next(rows, None) is None


def compare(study, dom):
    match = re.search(r'data-drawn="([^"]*)"', open(dom).read())
    assert match, "the page's script did not run to its end"
    drawn = json.loads(html.unescape(match[1]))
    results, timing = json.load(open(study + "/results.json")), json.load(open(study + "/timing.json"))
    assert drawn["problems"] == [], drawn["problems"]
    check_figures(drawn, results, timing)
    check_tables(drawn, results, timing)
    check_csv(study + "/results.csv", results)
    before, after, others = drawn["hiding"]
    assert before > 0 and after == 0 and others > 0, drawn["hiding"]
    first = drawn["tables"][0]
    key = {r["arm"]: float(r["cells"][4]["value"] or "nan") for r in first["rows"]}
    known = sorted((a for a in key if key[a] == key[a]), key=key.get, reverse=True)
    assert drawn["sorted"][:len(known)] == known, drawn["sorted"]
    print("%s: %d numbers compared, %d charts, %d tables" % (study, compared, len(drawn["figures"]), len(drawn["tables"])))


if __name__ == "__main__":
    {"make": make, "open": open_page, "compare": compare}[sys.argv[1]](*sys.argv[2:])
