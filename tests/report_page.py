"""What a browser draws of a study's page, number by number against the study's files.

    report_page.py make FOLDER      studies of text, a task and lengths, in which no two numbers are alike
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
WIDTH = 480  # of a drawing

SEEDS = 3
T = 4.302652729696  # Student's t, 0.975, with two degrees of freedom

# ---- studies ----


def wilson(share, n):
    z = 1.959963984540054
    middle, spread = (share + z * z / (2 * n)) / (1 + z * z / n), math.sqrt(share * (1 - share) / n + z * z / (4 * n * n))
    return middle - z / (1 + z * z / n) * spread, middle + z / (1 + z * z / n) * spread


def band(row, key):
    """The 95 % interval of the mean over seeds; of a share no narrower than Wilson's over all samples."""
    if row.get(key) is None:
        return None, None
    if key == "ppl":
        return tuple(math.exp(e) for e in band(row, "loss"))
    half = T * row[key + "_sd"] / math.sqrt(SEEDS)
    ends = row[key] - half, row[key] + half
    if key not in ("accuracy", "exact"):
        return ends
    least = wilson(row[key], row["windows"] * row["n"])
    return max(0, min(ends[0], least[0])), min(1, max(ends[1], least[1]))


def at_chance(row):
    """Wilson's interval over all samples reaches down to chance."""
    return wilson(row["accuracy"], row["windows"] * row["n"])[0] <= row["chance"]


def spread(draw, row, key, value):
    row[key] = value
    row[key + "_sd"] = 0.1 * abs(value)
    row[key + "_min"], row[key + "_max"] = value * (1 - draw.uniform(0.1, 0.4)), value * (1 + draw.uniform(0.1, 0.4))


def text_row(draw, protocol, length):
    row = dict(protocol=protocol, length=length, stride=length, tokens=draw.randrange(10**6), windows=7, documents=3, n=SEEDS,
               seeds=[], loss=draw.uniform(0.5, 6), bits_per_byte=draw.uniform(1, 4))
    row.update(loss_sd=draw.uniform(0.02, 0.2), loss_min=row["loss"] - 0.2, loss_max=row["loss"] + 0.3)
    row.update(ppl=math.exp(row["loss"]), ppl_min=math.exp(row["loss_min"]), ppl_max=math.exp(row["loss_max"]))
    spread(draw, row, "excess", draw.uniform(-1, 2))
    if length <= TRAINED:
        row.update(excess=None, excess_sd=None, excess_min=None, excess_max=None)
    return row


def task_row(draw, protocol, length):
    row = dict(text_row(draw, protocol, length), exact=draw.uniform(0.05, 0.95))
    value = draw.uniform(0.2, 0.8)
    row.update(chance=draw.uniform(0.05, 0.5), accuracy=value, accuracy_sd=draw.uniform(0.01, 0.2), exact_sd=0.02,
               accuracy_min=value - draw.uniform(0.05, 0.2), accuracy_max=value + draw.uniform(0.05, 0.2))
    return row


def make_arm(draw, name, label, parent, make_row, protocols):
    resolution = []
    for length in LENGTHS:
        row = dict(length=length, n=3)
        for key in ("R_head", "R_layer"):
            spread(draw, row, key, math.exp(draw.uniform(-7, -1)))
        for key in ("M_head", "M_layer"):
            spread(draw, row, key, draw.uniform(0.3, 0.7))
        own = random.Random("%s %d" % (name, length))
        for key in ("O_head", "O_layer"):
            spread(own, row, key, own.uniform(0.05, 0.5))
        row["by_layer"] = dict(layer=[1, 2, 3])
        for key, most in (("R", 0.5), ("R_sd", 0.1), ("O", 0.5), ("O_sd", 0.1)):
            row["by_layer"][key] = [own.uniform(0.1 * most, most) for _ in range(3)]
        distance = [d for d in (0, 1, 2, 3, 5, 8, 13, 21, 34, 55, 89) if d < length]
        far = 30 if name == "alibi" else 1  # a bias by distance, beside which all other curves are level
        row["scores"] = dict(distance=distance, score=[0.0] + [far * own.uniform(-4, 1) for _ in distance[1:]],
                             score_sd=[0.0] + [own.uniform(0.1, 0.3) for _ in distance[1:]])
        if name != "alibi":  # which does not rotate
            row["scores"]["expected"] = [1.0] + [own.uniform(-0.2, 1) for _ in distance[1:]]
        resolution.append(row)
    steps = sorted(draw.sample(range(1, 1000), 30))
    curve = dict(step=steps, loss=[draw.uniform(2, 5) for _ in steps])
    curve.update(loss_min=[v - draw.uniform(0.1, 1) for v in curve["loss"]], loss_max=[v + draw.uniform(0.1, 1) for v in curve["loss"]])
    first = [0, 1, 2, 3, 4, 6, 8, 9, 10, 11, 12, 14, 16, 20, 24, 28, 32, 48, 64, 80, 96, 112]
    return {"name": name, "label": label, "from": parent, "settings": {"model.position": name, "train.seed": "1"},
            "parameters": draw.randrange(10**5, 10**8), "tokens_trained": draw.randrange(10**6, 10**9), "seeds": 3,
            "missing_seeds": [], "resolution": resolution, **({} if parent else {"training": curve}),
            "results": [make_row(draw, p, l) for p in protocols for l in LENGTHS],
            "positions": [dict(protocol=p, length=128, first=first, end=first[1:] + [128],
                               loss=[draw.uniform(1, 5) for _ in first]) for p in protocols]}


def make_lengths(draw, make_row, protocols):
    """Two families at three lengths each, and one that tests the weights of a third of them."""
    arms = []
    for name, length in (("mamba", 32), ("mamba", 8), ("retnet", 8), ("mamba", 16), ("retnet", 16), ("retnet", 32)):
        label = {"mamba": "Mamba", "retnet": "Retention of many scales"}[name]  # too long for the end of a line
        arm = make_arm(draw, "%s-%d" % (name, length), "%s, trained at %d" % (label, length), None, make_row, protocols)
        arm.update(trained_length=length, settings={"label": label, "model.mixer": name, "train.length": str(length)})
        arms.append(arm)
    arms.append(dict(make_arm(draw, "alibi", "ALiBi, trained at 16", None, make_row, protocols), trained_length=16))
    return arms


def make_positions(draw, make_row, protocols):
    arms = [make_arm(draw, name, label, parent, make_row, protocols) for name, label, parent in (
        ("rope", "RoPE", None), ("alibi", "ALiBi", None), ("rope-bca", "RoPE + BCA", "rope"), ("xpos", "xPos", None),
        ("rope-ntk", "RoPE, NTK", "rope"))]
    arms[1]["results"][2].update(loss=None, ppl=None, ppl_min=None, ppl_max=None, excess=None)  # a seed that never came
    arms[4]["results"] = [r for r in arms[4]["results"] if r["length"] != 32]  # nor this length
    arms.append(dict(make_arm(draw, "failed", "failed", None, make_row, protocols), results=[], resolution=[], positions=[],
                     missing_seeds=[1, 2], seeds=0, parameters=None, tokens_trained=None, training=dict(step=[], loss=[])))
    return arms


def make_tasks(draw, make_row, protocols):
    """Arms that are asked different things: the study's task, or their own."""
    arms = make_positions(draw, make_row, protocols)
    own = {"rope": {"task": "copy", "task.symbols": "7"}, "xpos": {"task.symbols": "7", "task.loss": "all", "task": "copy", "task.samples": "99"},
           "rope-ntk": {"task.symbols": "9"}, "alibi": {"task.symbols": "8"}}
    for arm in arms:
        arm["settings"].update(own.get(arm["name"], {}))
    return arms


def make_study(draw, make_arms, make_row, protocols):
    arms = make_arms(draw, make_row, protocols)
    timing = [{"name": a["name"], "training": {"seconds": draw.uniform(1, 90), "peak_bytes": draw.randrange(10**6, 10**9)},
               "evaluation": {"seconds": draw.uniform(1, 90), "peak_bytes": draw.randrange(10**6, 10**9)},
               "results": [dict(protocol=r["protocol"], length=r["length"], seconds=draw.uniform(1, 9),
                                tokens_per_second=math.exp(draw.uniform(5, 10)), bytes=draw.randrange(10**6, 10**9))
                           for r in a["results"]]} for a in arms]
    results = {"format": "longshot-study-1", "study": "x", "title": "numbers", "about": "", "finished": True, "longshot": "0",
               "command": "longshot study x", "trained_length": TRAINED,
               "settings": {"task": "reverse", "task.symbols": "8"} if make_arms == make_tasks else {}, "arms": arms,
               "machine": {"cpu": "c", "instructions": "i", "processors": 2}}
    return results, {"format": "longshot-timing-1", "arms": timing}


def make(folder):
    import os
    for name, make_arms, make_row, protocols in (("text", make_positions, text_row, ["nonoverlap", "slide"]),
                                                 ("task", make_positions, task_row, ["task"]),
                                                 ("tasks", make_tasks, task_row, ["task"]),
                                                 ("lengths", make_lengths, text_row, ["nonoverlap"])):
        path = os.path.join(folder, name)
        os.makedirs(path)
        for file, content in zip(("results.json", "timing.json"), make_study(random.Random(name), make_arms, make_row, protocols)):
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
                     small: [...td.querySelectorAll("small")].map(text).join(", "), value: td.dataset.value});
const read = () => ({
    figures: [...document.querySelectorAll("figure")].map(f => ({
        caption: text(f.querySelector("figcaption")), heading: before(f, "H2"),
        shown: f.querySelector("svg.chart").getBoundingClientRect().width > 200,
        ticks: [...f.querySelectorAll("svg.chart > g.axes > text.tick")]
            .map(t => ({text: text(t), line: box(t.previousElementSibling)})),
        mark: [...f.querySelectorAll("g.trained > path.mark")].map(m => ({line: box(m), text: text(m.nextElementSibling)})),
        leaving: text(f.querySelector("text.leaving")),
        bound: [...f.querySelectorAll("g.bound > path.mark")].map(m => ({line: box(m), text: text(m.nextElementSibling)})),
        cells: [...f.querySelectorAll("g.heat")].map(g => ({shade: +g.classList[1].slice(1), box: box(g.querySelector("rect")),
                                                            text: text(g.querySelector("text")), title: text(g.querySelector("title"))})),
        borders: [...f.querySelectorAll("path.border")].map(box),
        labels: [...f.querySelectorAll("svg.chart > text.tick")].map(t => ({text: text(t), x: +t.getAttribute("x"), y: +t.getAttribute("y")})),
        names: [...f.querySelectorAll("svg.chart > text.name")].map(text),
        legend: [...f.querySelectorAll(".legend > *")].map(e => ({arm: e.dataset.arm ?? null, text: e.textContent})),
        series: [...f.querySelectorAll("g.series")].map(g => ({
            arm: g.dataset.arm, look: [...g.classList], hidden: g.getBoundingClientRect().width === 0,
            end: g.querySelector("text.end") && {text: text(g.querySelector("text.end")), y: +g.querySelector("text.end").getAttribute("y"),
                                                 right: box(g.querySelector("text.end"))[0] + box(g.querySelector("text.end"))[2],
                                                 lead: g.querySelector("path.lead").getAttribute("d")},
            name: text(g.querySelector(":scope > text.tick")),
            line: g.querySelector("path.line")?.getAttribute("d") ?? null,
            band: g.querySelector("path.band")?.getAttribute("d") ?? null,
            own: g.querySelector("path.own") && box(g.querySelector("path.own")),
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
drawn.finding = text(document.querySelector("p.finding"));
drawn.contents = [...document.querySelectorAll("nav a")].map(a => [a.textContent, text(document.querySelector(a.getAttribute("href")))]);
drawn.headings = [...document.querySelectorAll("h2")].map(text);
drawn.saved = [...document.querySelectorAll("figure")].map(f => {
    const svg = asFile(f.querySelector("svg.chart")), page = new DOMParser().parseFromString(svg, "image/svg+xml");
    return {error: page.querySelector("parsererror") !== null, variables: svg.includes("var("), elements: page.querySelectorAll("*").length,
            from: f.querySelectorAll("svg.chart *").length, button: text(f.querySelector(".tools button"))};
});
drawn.pointed = [...document.querySelectorAll("figure")].filter(f => f.querySelector("svg[data-kind=lines] .band")).map(f => {
    const button = f.querySelector(".legend button"), all = [...f.querySelectorAll("g.series")].filter(g => g.querySelector(".band"));
    const bands = () => all.map(g => [g.dataset.arm === button.dataset.arm, +getComputedStyle(g.querySelector(".band")).opacity]);
    button.dispatchEvent(new PointerEvent("pointerenter"));
    const during = bands();
    button.dispatchEvent(new PointerEvent("pointerleave"));
    return {during, after: bands(), lines: f.querySelectorAll("g.series").length};
});
drawn.readings = [...document.querySelectorAll("figure")].map(f => {
    const svg = f.querySelector("svg.chart[data-kind=lines]");
    if (svg === null) return null;
    svg.scrollIntoView();
    const at = svg.getBoundingClientRect();
    svg.dispatchEvent(new PointerEvent("pointermove", {clientX: at.x + 0.45 * at.width, clientY: at.y + 0.5 * at.height}));
    const panel = f.querySelector(".read");
    const read = {clear: panel.getBoundingClientRect().top >= at.bottom - 1, x: +panel.dataset.x, unit: panel.firstChild.data, rows: [...panel.querySelectorAll("tr")].map(r => [r.dataset.arm, ...[...r.cells].map(text)])};
    svg.dispatchEvent(new PointerEvent("pointerleave"));
    return Object.assign(read, {left: f.querySelector(".read, .cross") !== null});
});
const shown = arm => [...document.querySelectorAll(`.series[data-arm=${arm}]`)]
    .filter(e => e.getBoundingClientRect().width > 0).length;
drawn.hiding = [shown("alibi")];
document.querySelector(".legend button[data-arm=alibi]").click();
drawn.hiding.push(shown("alibi"), shown(document.querySelector("tr[data-arm]").dataset.arm));
drawn.rest = read().figures;
document.querySelector(".legend button[data-arm=alibi]").click();
drawn.again = read().figures;
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


left_frame = 0
TOP, FLOOR = 22, 278  # of the frame
NEAR = 0.2  # of a unit of the drawing; places are written to a tenth


def check_places(what, got, want, x, y):
    assert len(got) == len(want), "%s: %d places in place of %d" % (what, len(got), len(want))
    for (at_x, at_y), (value_x, value_y) in zip(got, want):
        same(what + ", across", at_x, x.place(value_x), NEAR)
        up = y.place(value_y)  # an axis is read off its labels: far outside of the frame less exactly
        same(what + ", up", at_y, up, NEAR + 1e-3 * max(0, TOP - up, up - FLOOR))


def check_ends(what, figure, labels):
    """Names stand at the ends of their lines, in the order of the lines, and do not overlap."""
    ends = [(path(s["line"])[-1], s["end"], labels[s["arm"]]) for s in figure["series"] if path(s["line"]) and not s["hidden"]]
    for place, end, label in ends:
        shown = end["text"].replace(" @", ", trained at ")
        first, cut, last = shown.partition("\u2026")  # a long name loses its middle
        assert shown == label or (cut and label.startswith(first) and label.endswith(last)), (what, shown, label)
        lead = re.match(r"M(-?[\d.]+) (-?[\d.]+)L", end["lead"])
        same(what + ", the end of a line", float(lead[1]), place[0] + 4, NEAR)
        same(what + ", the end of a line", float(lead[2]), min(max(place[1], TOP), FLOOR), NEAR)
        assert end["right"] <= WIDTH, "%s: `%s` is cut off at the edge" % (what, end["text"])
    assert len({end["text"] for _, end, _ in ends}) == len({label for _, _, label in ends}), (what, "two arms under one name")
    heights = [end["y"] for _, end, _ in sorted(ends, key=lambda e: e[0][1])]
    assert all(b - a >= 11.5 for a, b in zip(heights, heights[1:])), (what, heights)


def check_leaving(figure, lines, hidden, key):
    """Lines that reach more than four times as far as all others leave the frame, where they are the fewer."""
    if key != "score":
        assert figure["leaving"] is None
        return figure
    reach = {arm: max((r[1] for r in rows if finite(r[1])), key=abs, default=0) for arm, rows in lines.items() if arm not in hidden}
    order = sorted((arm for arm in reach if reach[arm] != 0), key=lambda arm: -abs(reach[arm]))
    left = []
    for i in range(1, min(len(order), 5)):
        if 2 * i < len(order) and abs(reach[order[i - 1]]) > 4 * abs(reach[order[i]]):
            left = order[:i]
    ends = [s["end"]["text"] for s in figure["series"] if s["arm"] in left]
    match = re.fullmatch(r"(.*) leaves? the frame, to (\S+)", figure["leaving"])
    assert (match is not None) == (left != []) and (match or figure["leaving"] == ""), (figure["leaving"], left)
    if left:
        assert match[1] == (ends[0] if len(ends) == 1 else "%d lines" % len(ends)), match[1]
        shows("how far a line goes", match[2], reach[order[0]])
    global left_frame
    left_frame += left != []
    return dict(figure, series=[s for s in figure["series"] if s["arm"] not in left])


def check_own(what, figure, series, own, x, y):
    """A tick across each line at the length its arm was trained at."""
    for s in figure["series"]:
        if s["hidden"]:
            continue
        left, top, _, height = s["own"]
        same(what + ", its trained length", left, x.place(own[s["arm"]]), NEAR)
        near = [r[1] for r in series[s["arm"]] if r[0] == own[s["arm"]]]
        if near:
            same(what + ", its tick", top + height / 2, y.place(near[0]), NEAR)


def check_pointed(pointed):
    """Of many lines only the one whose name is pointed at has a band that is seen."""
    for p in pointed:
        assert any(own for own, _ in p["during"]) and all(seen > 0.1 for own, seen in p["during"] if own), p
        assert all((seen > 0.1) == (p["lines"] <= 6) for _, seen in p["after"]), p


def check_lines(figure, series, y_log, labels, markers=True, x_log=True, trained=TRAINED, bound=None, own=None):
    """series: arm to rows of (x, y, low, high)."""
    what = figure["caption"]
    assert figure["shown"], what + " has no size"
    across = [(t["text"], t["line"][0]) for t in figure["ticks"] if t["line"][3] > 0]
    up = [(t["text"], t["line"][1]) for t in figure["ticks"] if t["line"][3] == 0]
    x, y = Axis(what, across, x_log), Axis(what, up, y_log)
    check_ends(what, figure, labels)
    assert [s["arm"] for s in figure["series"]] == list(series), (what, [s["arm"] for s in figure["series"]])
    assert [(e["arm"], e["text"]) for e in figure["legend"]] == [(a, labels[a]) for a in series], what
    assert len(figure["mark"]) == (trained is not None), what
    if x_log and own is not None:
        check_own(what, figure, series, own, x, y)
    else:
        assert all(s["own"] is None for s in figure["series"]), what
    if trained is not None:
        assert figure["mark"][0]["text"] == "trained at %d" % trained, what
        same(what + ", the training length", figure["mark"][0]["line"][0], x.place(trained), NEAR)
    assert len(figure["bound"]) == (bound is not None), what
    if bound is not None:
        shows(what + ", chance", re.fullmatch(r"chance (\S+) %", figure["bound"][0]["text"])[1], bound)
        same(what + ", chance", figure["bound"][0]["line"][1], y.place(bound), NEAR)
    for drawn in figure["series"]:
        if drawn["hidden"]:
            continue
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
            match = re.fullmatch(r"(.*) at (\d+): (\S+?)(?: \(95 %: (\S+) to (\S+)\))?", point["title"])
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
        if drawn["hidden"]:
            continue
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
    return [(r["length"],) + tuple(None if v is None else scale * v for v in (r[key],) + (band(r, key) if spread else (None, None)))
            for r in rows if protocol is None or r["protocol"] == protocol]


def columns(arm, part, x, key, scale=1):
    """Columns of the resolution at the largest length, with the interval over seeds where there are deviations."""
    found = [r for r in arm["resolution"] if r["length"] == LENGTHS[-1]]
    of = found[0][part] if found else {}
    rows = []
    for i, (at, value) in enumerate(zip(of.get(x, []), of.get(key, []))):
        half = scale * T * of[key + "_sd"][i] / math.sqrt(SEEDS) if key + "_sd" in of else None
        rows.append((at, scale * value) + ((None, None) if half is None else (scale * value - half, scale * value + half)))
    return [r for r in rows if x != "distance" or r[0] > 0]  # a logarithmic axis has no 0


def check_scale(what, figures, hidden):
    """Small multiples have the same labels on their axes; the axes fit the lines that are shown: bands do not widen them."""
    seen = {tuple(t["text"] for t in f["ticks"] if t["line"][3] == 0) for f in figures if any(not s["hidden"] for s in f["series"])}
    assert len(seen) == 1, (what, seen)
    for f in figures:
        for s in f["series"]:
            assert s["hidden"] == (s["arm"] in hidden or not (s["line"] or s["bars"])), (what, s["arm"])
    places = [y for f in figures for s in f["series"] if not s["hidden"] for x, y in path(s["line"])]
    if figures[0]["bound"] == [] and places:
        assert min(places) < 70 and max(places) > 225, (what, "does not fill its axis", min(places), max(places))


def check_heats(take, arms, protocol):
    families = {}
    for a in arms:
        families.setdefault(a["settings"].get("model.mixer"), []).append(a)
    values = [r["loss"] for a in arms for r in a["results"] if r["protocol"] == protocol]
    best, worst = min(values), max(values)
    for family in (f for name, f in families.items() if name):
        family = sorted(family, key=lambda a: a["trained_length"])
        figure = take("Trained length against tested length: " + protocol,
                      "Trained and tested length, " + family[0]["label"].partition(",")[0])
        assert figure["cells"] and len(figure["cells"]) == len(family) * len(LENGTHS)
        cells = iter(figure["cells"])
        rows = [t["text"] for t in figure["labels"][:len(family)]]
        assert rows == [str(a["trained_length"]) for a in family], rows
        for a, border in zip(family, figure["borders"]):
            last = 0
            for length in LENGTHS:
                row = next(r for r in a["results"] if r["length"] == length and r["protocol"] == protocol)
                cell = next(cells)
                match = re.fullmatch(r"(\d+) tokens, (\d+): (\S+) nats per token \(95 %: (\S+) to (\S+)\)", cell["title"])
                assert match and int(match[1]) == length and int(match[2]) == a["trained_length"], cell
                for text, value in zip(match.groups()[2:], (row["loss"],) + band(row, "loss")):
                    shows("heat map", text, value)
                shows("heat map", cell["text"], row["loss"])
                same("heat map, shade", cell["shade"], min(9, math.floor(10 * (worst - row["loss"]) / (worst - best) + 1e-9)), 0)
                if length <= a["trained_length"]:
                    last = cell["box"][0] + cell["box"][2] + 1
            same("heat map, end of training", border[0], last, NEAR)


def nats(value):
    return ("%.2f" if abs(value) >= 0.0995 else "%.3f") % abs(value)


def asked(results, arm):
    """What an arm was asked: the study's task, below that of the arm whose weights it tests, below its own."""
    parent = next((a["settings"] for a in results["arms"] if a["name"] == arm["from"]), {})
    return {k: v for s in (results["settings"], parent, arm["settings"]) for k, v in s.items()
            if k.split(".")[0] == "task" and k not in ("task.loss", "task.samples")}


def check_finding(found, results, protocol):
    """The first sentences of the page, written anew; of answers one for each task."""
    arms = results["arms"]
    def longest(a, key):
        return max((r for r in a["results"] if r["protocol"] == protocol and finite(r[key])), key=lambda r: r["length"], default=None)
    def times(a, row):
        return "at %.3gx its trained length" % (row["length"] / a.get("trained_length", TRAINED))
    def overlap(high, low, key):
        return " (seeds overlap)" if low[key + "_max"] >= high[key + "_min"] else ""
    trained = [a for a in arms if not a["from"] and a["results"]]
    if "accuracy" in trained[0]["results"][0]:
        tasks = []
        for arm in arms:
            tasks += [asked(results, arm)] * (asked(results, arm) not in tasks)
        sentences = []
        for task in tasks:
            among = sorted((a for a in trained if asked(results, a) == task), key=lambda a: -longest(a, "accuracy")["accuracy"])
            if not among:
                continue
            best, worst = among[0], among[-1]
            high, low = longest(best, "accuracy"), longest(worst, "accuracy")
            sentences.append("%s has %.1f %% of answers right %s" % (best["label"], 100 * high["accuracy"], times(best, high)))
            if worst is not best:
                sentences[-1] += "; %s %.1f %%%s" % (worst["label"], 100 * low["accuracy"], overlap(high, low, "accuracy"))
            sentences[-1] += "; chance %.1f %%." % (100 * high["chance"])
        want = " ".join(sentences)
    else:
        # one that never went beyond its trained length loses nothing there
        trained = [a for a in trained if longest(a, "excess")["length"] > a.get("trained_length", TRAINED)]
        parents = [a for a in trained if any(b["from"] == a["name"] for b in arms)] or trained
        worst = max(parents, key=lambda a: longest(a, "excess")["excess"])
        row = longest(worst, "excess")
        want = "%s loses %s nats per token %s" % (worst["label"], nats(row["excess"]), times(worst, row))
        methods = [(next((r for r in a["results"] if r["length"] == row["length"] and r["protocol"] == protocol), None), a)
                   for a in arms if a["from"] == worst["name"]]
        if methods:
            best, arm = min((m for m in methods if m[0]), key=lambda m: m[0]["loss"])
            name = re.sub(r"^[+,] ", "", arm["label"][len(worst["label"]):].strip())
            want += "; with %s%s%s%s" % (name, " it gains " if best["excess"] < 0 else " ", nats(best["excess"]), overlap(row, best, "excess"))
        least = min(trained, key=lambda a: longest(a, "excess")["excess"])
        if least is not worst:
            best = longest(least, "excess")
            want += "; %s%s %s%s%s%s" % (
                least["label"], ", as trained," if any(a["from"] for a in arms) else "", "gains " if best["excess"] < 0 else "", nats(best["excess"]),
                times(least, best).replace("at", " at").split(" its")[0] if times(least, best) != times(worst, row) else "",
                overlap(row, best, "excess"))
        rows = [(r, a) for a in arms for r in a["results"] if r["length"] == 128 and r["protocol"] == protocol and finite(r["ppl"])]
        low, arm = min(rows, key=lambda r: r[0]["ppl"])
        want += ". Lowest perplexity at 128 tokens: %s, " % arm["label"]
        assert found.startswith(want), (found, want)
        match = re.fullmatch(r"(\S+) \((\S+) nats per token, (\S+) bits per byte\)\.", found[len(want):])
        for text, key in zip(match.groups(), ("ppl", "loss", "bits_per_byte")):
            shows("finding", text, low[key])
        return
    assert found == want, (found, want)


def check_readings(drawn, arms):
    """At a pointer all lines of a chart are read at one place."""
    for figure, reading, saved in zip(drawn["figures"], drawn["readings"], drawn["saved"]):
        assert not saved["error"] and not saved["variables"] and saved["elements"] >= 0.8 * saved["from"], saved
        assert saved["button"] == "save as SVG"
        if reading is None:
            continue
        assert not reading["left"] and reading["rows"], figure["caption"]
        assert reading["clear"], "%s: what is read hides the lines" % figure["caption"]
        for name, label, value, *rest in reading["rows"]:
            series = next(s for s in figure["series"] if s["arm"] == name)
            titles = [t["title"] for t in series["points"] if " at %.7g: " % reading["x"] in t["title"]]
            if series["points"]:
                assert titles and " at %.7g: %s" % (reading["x"], value) in titles[0] and titles[0].startswith(label), (titles, reading)
                assert rest[0] in titles[0], (rest, titles)
            if figure["caption"].startswith("Perplexity"):
                row = next(r for a in arms if a["name"] == name for r in a["results"]
                           if r["length"] == reading["x"] and figure["heading"].endswith(": " + r["protocol"]))
                shows("bits per byte at the pointer", rest[1], row["bits_per_byte"])
                assert reading["unit"].endswith("bits per byte"), reading["unit"]
        if not figure["caption"].startswith(("Loss by", "Training", "Scores", "Expected")):
            shown = [s["arm"] for s in figure["series"] if any(" at %.7g: " % reading["x"] in t["title"] for t in s["points"])]
            assert sorted(shown) == sorted(r[0] for r in reading["rows"]), (shown, reading)


def check_looks(drawn, arms):
    """An arm and what tests its weights have one colour; methods differ in dashes, and have the same for every arm."""
    looks = {s["arm"]: s["look"] for f in drawn["figures"] for s in f["series"] if len(s["look"]) > 1}
    for a in arms:
        if a["name"] in looks and a["from"]:
            assert looks[a["name"]][1] == looks[a["from"]][1] and looks[a["name"]][2] != "d0", looks
        elif a["name"] in looks:
            assert looks[a["name"]][2] == "d0", looks
    assert len({tuple(v) for v in looks.values()}) == len(looks), looks
    for family in ("mamba", "retnet"):
        assert len({v[1] for k, v in looks.items() if k.startswith(family)}) <= 1, looks


def check_figures(drawn, results, timing, hidden=()):
    arms, labels = results["arms"], {a["name"]: a["label"] for a in results["arms"]}
    figures, lengths = {}, {a.get("trained_length", TRAINED) for a in arms}
    trained = TRAINED if lengths == {TRAINED} else None
    own = {a["name"]: a["trained_length"] for a in arms} if trained is None else None
    for f in drawn:
        assert (f["heading"], f["caption"]) not in figures
        figures[f["heading"], f["caption"]] = f
    protocols = list(dict.fromkeys(r["protocol"] for r in arms[0]["results"]))
    judged = "accuracy" in arms[0]["results"][0]

    def take(heading, caption):
        assert (heading, caption) in figures, "no chart `%s` below `%s`" % (caption, heading)
        return figures.pop((heading, caption))

    def take_lines(heading, caption, *rest, **more):
        figure = take(heading, caption)
        check_lines(figure, *rest, **dict(dict(trained=trained, own=own), **more))
        shared.setdefault((heading, caption.partition(",")[0]), []).append(figure)

    shared = {}
    chance = max((100 * r.get("chance", 0) for a in arms for r in a["results"]), default=0) or None
    for index, (title, group) in enumerate(groups(arms)):
        rest = title + ("" if index == 0 else " and methods at test time")
        for p in protocols:
            def of(key, scale=1, list_name="results", protocol=p):
                return {a["name"]: column(a[list_name], protocol, key, scale) for a in group}
            if judged:
                take_lines("Right answers against length", "Right answers, " + rest, of("accuracy", 100), False, labels, bound=chance)
            else:
                heading = "Perplexity against length: " + p
                take_lines(heading, "Perplexity, " + rest, of("ppl"), True, labels)
                bars = {a["name"]: {r["length"]: (r["excess"],) + band(r, "excess") for r in a["results"] if r["protocol"] == p
                                    and r["length"] > a.get("trained_length", TRAINED)} for a in group}
                check_bars(take(heading, "Excess over the flat tail, " + title), [l for l in LENGTHS if l > min(lengths)], bars, labels)
            lines = {a["name"]: joined(next((x for x in a["positions"] if x["protocol"] == p), dict(first=[], end=[], loss=[])))
                     for a in group}
            take_lines("Loss by position: " + p, "Loss by position, " + rest, lines, False, labels, markers=False)
        for caption, key, scale, log in (("Resolution, ", "R_head", 100, True), ("Monotonicity M, ", "M_head", 1, False),
                                         ("Oscillation O, ", "O_layer", 1, False)):
            take_lines("Attention resolution", caption + rest, of(key, scale, "resolution", None), log, labels)
        take_lines("Attention resolution", "Resolution by layer in windows of 128, " + rest,
                   {a["name"]: columns(a, "by_layer", "layer", "R", 100) for a in group}, False, labels, x_log=False, trained=None)
        for caption, key in (("Scores in windows of 128, ", "score"), ("Expected scores, ", "expected")):
            lines = {a["name"]: columns(a, "scores", "distance", key) for a in group}
            figure = take("Scores by distance", caption + rest)  # with axes of its own
            check_lines(figure, lines, False, labels, markers=False, trained=trained, own=own)
            check_scale(caption, [check_leaving(figure, lines, hidden, key)], hidden)
        for caption, key, scale in (("Throughput", "tokens_per_second", 1), ("Memory", "bytes", 1e-6)):
            names = [a["name"] for a in group]
            lines = {t["name"]: column(t["results"], protocols[0], key, scale, spread=False) for t in timing["arms"] if t["name"] in names}
            take_lines("What testing costs", caption + ", " + rest, dict(sorted(lines.items(), key=lambda l: names.index(l[0]))), True, labels)
    curves = {a["name"]: list(zip(*(a["training"][k] for k in ("step", "loss", "loss_min", "loss_max"))))
              for a in arms if a.get("training", {}).get("step")}
    check_lines(take("Learning curves", "Training loss"), curves, False, labels, markers=False, x_log=False, trained=None)
    if trained is None:
        check_heats(take, arms, protocols[0])
    for what, several in shared.items():
        check_scale(what, several, hidden)
    assert not figures, "charts that nothing was compared with: %s" % list(figures)


def check_cell(what, cell, value, half=None, small=()):
    if not finite(value):
        assert cell["text"] == "-" and cell["value"] == "", what
        return
    same(what + ", sorted by", float(cell["value"]), value, 1e-8 * abs(value))
    text, _, rest = cell["text"].partition(" \u00b1")
    shows(what, text, value)
    if half is not None:
        same(what + ", half the interval", float(rest), half, 0.5001 * 10.0 ** -len(text.partition(".")[2]))
    shown, small = re.findall(r"[^, ]+", cell["small"] or ""), [s for s in small if finite(s)]
    assert len(shown) == len(small), (what, cell)
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
                if name in ("parameters", "seeds"):
                    check_cell(what, cell, arm[name])
                elif table["section"] == "Arms and what they cost":
                    values = {"tokens trained": arm["tokens_trained"],
                              "training, s": cost["training"]["seconds"], "its memory, MB": 1e-6 * cost["training"]["peak_bytes"],
                              "testing, s": cost["evaluation"]["seconds"]}
                    if name == "settings":
                        assert cell["text"].split() == ["%s=%s" % s for s in arm["settings"].items() if s[0] != "label"], cell
                    else:
                        check_cell(what, cell, values[name])
                elif title.startswith("100 R"):
                    found = [r for r in arm["resolution"] if r["length"] == int(name)]
                    r = found[0] if found else dict.fromkeys(("R_head", "R_layer", "M_head", "O_layer"))
                    if found:
                        same(what, float(cell["value"]), r["R_head"], 1e-8)
                        cell = dict(cell, value=str(100 * r["R_head"]))
                        check_cell(what, cell, 100 * r["R_head"], None, (100 * r["R_layer"], r["M_head"], r["O_layer"]))
                    else:
                        check_cell(what, cell, None)
                else:
                    protocol = title.rpartition(": ")[2]
                    found = [r for r in arm["results"] if r["length"] == int(name) and r["protocol"] == protocol]
                    if not found:
                        check_cell(what, cell, None)
                    elif "accuracy" in found[0]:
                        r = found[0]
                        low, high = band(r, "accuracy")
                        assert at_chance(r) == (", at chance" in cell["small"]), (what, cell)
                        cell = dict(cell, small=cell["small"].replace(", at chance", ""))
                        check_cell(what, cell, 100 * r["accuracy"], 50 * (high - low), (100 * r["exact"],))
                    else:
                        r = found[0]
                        low, high = band(r, "ppl")
                        half = (high - low) / 2 if finite(r["ppl"]) else None
                        cell = dict(cell, small=(cell["small"] or "").replace(" bpb", ""))
                        check_cell(what, cell, r["ppl"], half, (r["excess"], r["bits_per_byte"]))
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


def check_paper(study, results):
    """Tables of LaTeX and Markdown: every cell against the results, the best of each task in a column bold."""
    measures = {"Perplexity": ("ppl", 1), "Loss in nats per token": ("loss", 1), "Bits per byte": ("bits_per_byte", 1),
                "Excess over the flat tail in nats per token": ("excess", 1), "Right answers in percent": ("accuracy", 100),
                "Samples with no wrong answer in percent": ("exact", 100), "100 R, the attention resolution by head": ("R_head", 100),
                "O, the oscillation of scores by layer": ("O_layer", 1)}
    for ending, title, row in (("tex", r"\\caption\{(.*?)(?: \((.*)\))?, by tokens", r"(.*\S) \\\\"), ("md", r"([A-Z1].*?)(?: \((.*)\))?, by tokens", r"\| (.*) \|")):
        tables, lengths = {}, None
        for line in open(study + "." + ending):
            if found := re.match(title, line):
                rows = tables[found[1], found[2]] = []
            elif found := re.match(row, line):
                cells = re.split(r" & " if ending == "tex" else r" \| ", found[1])
                if cells[0] == "arm":
                    assert cells[1] == "seeds" and [int(c) for c in cells[2:] if c.isdigit()] == LENGTHS, cells
                else:
                    rows.append(cells)
        for (name, protocol), rows in tables.items():
            key, scale = measures[name]
            assert [r[0].replace("\\", "") for r in rows] == [a["label"] for a in results["arms"]], rows
            for i, length in enumerate(LENGTHS):
                bold = []
                for cells, arm in zip(rows, results["arms"]):
                    assert re.sub(r"\$", "", cells[1]) == str(arm["seeds"]), cells
                    found = [r for r in arm["resolution" if protocol is None else "results"] if (r["length"], r.get("protocol")) == (length, protocol)]
                    value = found[0][key] if found else None
                    if not finite(value):
                        assert cells[2 + i] in ("-", "--"), cells
                        continue
                    text = re.sub(r"[$*{}]|\\mathbf", "", cells[2 + i])
                    bold += [(asked(results, arm), value)] * ("bf" in cells[2 + i] or "**" in cells[2 + i])
                    mean, _, half = re.sub(r"\\pm", "\u00b1", text).partition(" \u00b1 ")
                    shows("%s, %s at %d" % (name, arm["name"], length), mean, scale * value)
                    if key + "_sd" in found[0] or key == "ppl":
                        low, high = band(found[0], key)
                        shows(name, half, scale * (high - low) / 2)
                best = []
                for arm in results["arms"]:
                    task = asked(results, arm)
                    values = [r[key] for a in results["arms"] if asked(results, a) == task
                              for r in a["resolution" if protocol is None else "results"]
                              if (r["length"], r.get("protocol")) == (length, protocol) and finite(r[key])]
                    if len(set(values)) > 1 and (task, (max if scale == 100 else min)(values)) not in best:
                        best.append((task, (max if scale == 100 else min)(values)))  # of equals none is
                assert sorted(bold, key=str) == sorted(best, key=str), (name, length, bold, best)
        assert ending == "md" or open(study + ".tex").read().isascii(), "signs that a LaTeX document may not know"
        protocols = {r["protocol"] for r in results["arms"][0]["results"]}
        assert len(tables) == len(protocols) * (2 if "accuracy" in results["arms"][0]["results"][0] else 4) + 2, list(tables)


def compare(study, dom):
    match = re.search(r'data-drawn="([^"]*)"', open(dom).read())
    assert match, "the page's script did not run to its end"
    drawn = json.loads(html.unescape(match[1]))
    results, timing = json.load(open(study + "/results.json")), json.load(open(study + "/timing.json"))
    assert drawn["problems"] == [], drawn["problems"]
    check_figures(drawn["figures"], results, timing)
    check_figures(drawn["rest"], results, timing, hidden={"alibi"})  # without one arm, drawn by the script
    check_figures(drawn["again"], results, timing)  # with it again, drawn by the script as well
    assert left_frame > 0, "no line left the frame"
    check_finding(drawn["finding"], results, results["arms"][0]["results"][0]["protocol"])
    check_readings(drawn, results["arms"])
    check_pointed(drawn["pointed"])
    check_looks(drawn, results["arms"])
    assert drawn["contents"] == [[h, h] for h in drawn["headings"]] and len(drawn["contents"]) > 5, drawn["contents"]
    check_tables(drawn, results, timing)
    check_csv(study + "/results.csv", results)
    check_paper(study, results)
    before, after, others = drawn["hiding"]
    assert before > 0 and after == 0 and others > 0, drawn["hiding"]
    first = drawn["tables"][0]
    key = {r["arm"]: float(r["cells"][4]["value"] or "nan") for r in first["rows"]}
    known = sorted((a for a in key if key[a] == key[a]), key=key.get, reverse=True)
    assert drawn["sorted"][:len(known)] == known, drawn["sorted"]
    print("%s: %d numbers compared, %d charts, %d tables" % (study, compared, len(drawn["figures"]), len(drawn["tables"])))


if __name__ == "__main__":
    {"make": make, "open": open_page, "compare": compare}[sys.argv[1]](*sys.argv[2:])
