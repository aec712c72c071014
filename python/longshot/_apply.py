"""One mechanism alone on arrays: its outputs and gradients."""
from __future__ import annotations

import ctypes
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from . import _c, _safetensors, _settings
from ._engine import Engine, Guard, engine_for


def _run(engine: Engine | None, what: str, words: Mapping[str, Any]) -> list[dict]:
    engine = engine_for(engine, "cpu", 0)
    rows: list[dict] = []
    guard = Guard(engine)

    def tell(_user: Any, at: Any) -> int:
        row = at.contents
        rows.append({"tensor": row.tensor.decode(), "difference": row.difference,
                     "tolerance": row.tolerance, "good": bool(row.good)})
        return guard.call(lambda: None)

    hook = _c.apply_row_fn(tell)
    options = _c.apply_options(settings=_settings.array_of(_settings.words_of(words)), on_row=hook)
    engine.run(guard, "longshot_apply", engine.handle.open, what.encode(), ctypes.byref(options))
    return rows


def apply(mixer: str, inputs: Mapping[str, Any] | Any, weights: Mapping[str, Any], *,
          engine: Engine | None = None, **options: Any) -> dict[str, np.ndarray]:
    """Runs a mixer on arrays, as `longshot apply mixer=NAME` does, on the processor.

        got = longshot.apply("attention", {"x": x, "cot": dy}, weights, heads=4, position="rope")
        got["y"], got["grad.x"], got["grad.query"]

    inputs: x [batch, time, width], or a dictionary with "x", optionally "cot" (the gradient of a
    loss by y; gradients are given back then) and "state.NAME". weights: arrays under our names or
    the official ones. options: the mixer's own, position=, dtype="f32" or "f64" (the default),
    causal=, cut=[8, 24]. Returns y, the state, and grad.x and grad.PARAMETER.

    Arrays go through the machine's temporary folder, in memory where that is /dev/shm."""
    given = dict(inputs) if isinstance(inputs, Mapping) else {"x": inputs}
    shared = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="longshot-", dir=shared) as scratch:
        files = {name: Path(scratch, name) for name in ("weights", "input", "output")}
        _safetensors.write(files["weights"], weights)
        _safetensors.write(files["input"], given)
        _run(engine, "mixer", {"mixer": mixer, **files, "grad": "cot" in given, **options})
        return _safetensors.read(files["output"])  # mapped: the file goes, the memory stays


def compare(what: str, golden: str | os.PathLike, *, engine: Engine | None = None,
            **options: Any) -> list[dict]:
    """Holds a mechanism against the values of a file, as `longshot apply golden=FILE` does. what:
    "mixer", "position", "model", "scan" or "tables". A row for each tensor: tensor, difference,
    tolerance, good."""
    return _run(engine, what, {"golden": golden, **options})
