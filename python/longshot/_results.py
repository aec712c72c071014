"""Results: plain dictionaries that can also be shown, plotted and made a table of."""
from __future__ import annotations

import html
import math
from pathlib import Path
from typing import Any

from ._errors import UsageError


def _plain(value: Any) -> bool:
    return value is None or isinstance(value, (bool, int, float, str))


def _cell(value: Any) -> str:
    if isinstance(value, float):
        return "" if math.isnan(value) else f"{value:.4g}"
    return f"{value:,}" if isinstance(value, int) else html.escape(str(value))


class Results(dict):
    """What a training, an evaluation or a study gave: the dictionary itself, `rows` for tables,
    and ways to look at them. json.dumps(results) works."""

    def __init__(self, values: dict, rows: list[dict], *, kind: str, x: str, y: str,
                 group: str | None = None, folder: str | None = None) -> None:
        super().__init__(values)
        self.rows: list[dict] = rows
        self.kind = kind
        self.folder = folder
        self._axes = (x, y, group)

    def to_pandas(self):
        """The rows as a pandas DataFrame."""
        try:
            import pandas  # type: ignore[import-untyped]
        except ImportError as why:
            raise UsageError("to_pandas() needs pandas: pip install pandas") from why
        return pandas.DataFrame(self.rows)

    def curves(self, y: str | None = None) -> dict[str, tuple[list, list]]:
        """What is drawn: for each curve its name, x and y."""
        x, usual, group = self._axes
        if y is None and self.rows and usual not in self.rows[0]:
            usual = "accuracy"  # of a task
        y = y or usual
        out: dict[str, tuple[list, list]] = {}
        for row in self.rows:
            if row.get(y) is None or row.get(x) is None:
                continue
            xs, ys = out.setdefault(str(row.get(group, y)) if group else y, ([], []))
            xs.append(row[x])
            ys.append(row[y])
        if not out:
            raise UsageError(f"no row has {x} and {y}")
        return out

    def plot(self, y: str | None = None, ax: Any = None):
        """Draws the curves with matplotlib, and returns the axes."""
        try:
            import matplotlib.pyplot as plt
        except ImportError as why:
            raise UsageError("plot() needs matplotlib: pip install matplotlib") from why
        curves = self.curves(y)
        if ax is None:
            _, ax = plt.subplots()
        for name, (xs, ys) in curves.items():
            ax.plot(xs, ys, marker="" if len(xs) > 40 else "o", label=name)
        ax.set_xlabel(self._axes[0])
        ax.set_ylabel(y or self._axes[1])
        if self._axes[0] == "length":
            ax.set_xscale("log", base=2)
            if "trained_length" in self and not y:
                ax.axvline(self["trained_length"], linestyle=":", color="grey")
        if len(curves) > 1:
            ax.legend()
        return ax

    def _svg(self) -> str:
        """A chart without matplotlib."""
        curves = self.curves()
        width, height, left, low = 520, 240, 60, 30
        log = self._axes[0] == "length"
        place = (lambda v: math.log2(max(v, 1))) if log else float
        xs = [place(v) for c in curves.values() for v in c[0]]
        ys = [v for c in curves.values() for v in c[1] if math.isfinite(v)] or [0.0]
        spread_x, spread_y = max(xs) - min(xs) or 1, max(ys) - min(ys) or 1
        colours = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00")
        parts = []

        def at(x: float, y: float) -> str:
            return (f"{left + (place(x) - min(xs)) / spread_x * (width - left - 10):.1f},"
                    f"{10 + (max(ys) - y) / spread_y * (height - low - 20):.1f}")

        for i, (name, (cx, cy)) in enumerate(curves.items()):
            line = " ".join(at(x, y) for x, y in zip(cx, cy) if math.isfinite(y))
            colour = colours[i % len(colours)]
            parts.append(f"<polyline points='{line}' fill='none' stroke='{colour}' "
                         "stroke-width='2'/>"
                         f"<text x='{width - 12}' y='{20 + 14 * i}' text-anchor='end' "
                         f"fill='{colour}'>{html.escape(name)}</text>")
        first, last = min(v for c in curves.values() for v in c[0]), max(
            v for c in curves.values() for v in c[0])
        return (f"<svg viewBox='0 0 {width} {height}' width='{width}' font-size='11' "
                "font-family='sans-serif' fill='currentColor' role='img'>"
                f"<text x='4' y='18'>{max(ys):.3g}</text>"
                f"<text x='4' y='{height - low}'>{min(ys):.3g}</text>"
                f"<text x='{left}' y='{height - 8}'>{first}</text>"
                f"<text x='{width - 12}' y='{height - 8}' text-anchor='end'>{last} "
                f"{html.escape(self._axes[0])}</text>" + "".join(parts) + "</svg>")

    def _table(self) -> str:
        columns = [key for key in self.rows[0] if all(_plain(row.get(key)) for row in self.rows)]
        head = "".join(f"<th>{html.escape(key)}</th>" for key in columns)
        shown = self.rows[:20]
        body = "".join("<tr>" + "".join(f"<td>{_cell(row.get(key, ''))}</td>" for key in columns)
                       + "</tr>" for row in shown)
        more = f"<p>{len(self.rows) - 20} more rows</p>" if len(self.rows) > 20 else ""
        return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{more}"

    def _repr_html_(self) -> str:
        """In a notebook: the page of a study, or a chart and the first rows."""
        page = Path(self.folder, "report.html") if self.kind == "study" and self.folder else None
        if page is not None and page.exists():
            text = html.escape(page.read_text(encoding="utf-8"), quote=True)
            # the page is kept apart from the notebook: it may run its own scripts, nothing else
            return (f'<iframe srcdoc="{text}" sandbox="allow-scripts" width="100%" height="640" '
                    'style="border:0"></iframe>')
        if not self.rows:
            return f"<pre>{html.escape(repr(dict(self)))}</pre>"
        try:
            return self._svg() + self._table()
        except UsageError:
            return self._table()

    def __repr__(self) -> str:
        return f"longshot.Results({self.kind}, {len(self.rows)} rows: {dict.__repr__(self)[:300]})"
