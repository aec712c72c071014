"""A bar for what takes long: a line in a terminal, a widget-free line of HTML in a notebook."""
from __future__ import annotations

import html
import sys
import time


def _notebook() -> bool:
    shell = sys.modules.get("IPython")
    if shell is None:
        return False
    return type(shell.get_ipython()).__name__ == "ZMQInteractiveShell"


class Bar:
    """Shown where somebody looks: in a notebook, or where stderr is a terminal; never elsewhere
    unless asked for."""

    def __init__(self, title: str, wanted: bool | None) -> None:
        self._title = title
        self._html = _notebook() and wanted is not False
        live = sys.stderr is not None and sys.stderr.isatty()
        self._line = not self._html and (live if wanted is None else wanted)
        self._start = time.monotonic()
        self._last = 0.0
        self._display = None

    def show(self, share: float, text: str, *, now: bool = False) -> None:
        """At most ten times a second."""
        clock = time.monotonic()
        if not (self._html or self._line) or (not now and clock - self._last < 0.1):
            return
        self._last = clock
        seconds = clock - self._start
        if 0 < share < 1:
            text += f", {seconds / share - seconds:.0f} s left"
        if self._line:
            full = int(20 * share)
            print(f"\r{self._title} {'#' * full}{'.' * (20 - full)} {100 * share:3.0f} % {text}"
                  "\033[K", end="", file=sys.stderr, flush=True)
            return
        from IPython.display import HTML, display

        page = HTML(f"<div>{html.escape(self._title)} <progress value='{share:.4f}' max='1'>"
                    f"</progress> {100 * share:.0f} % {html.escape(text)}</div>")
        if self._display is None:
            self._display = display(page, display_id=True)
        else:
            self._display.update(page)

    def end(self, text: str) -> None:
        """What came out, in the place of the progress."""
        self.show(1.0, text, now=True)

    def __enter__(self) -> "Bar":
        return self

    def __exit__(self, *_: object) -> None:
        """The last state stays, also where what ran has failed."""
        if self._line and self._last:
            print(file=sys.stderr)
