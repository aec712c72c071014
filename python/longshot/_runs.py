"""Training, evaluation and studies."""
from __future__ import annotations

import ctypes
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Callable

from . import _c, _settings
from ._engine import Engine, Guard, engine_for
from ._progress import Bar
from ._results import Results


def _words(*groups: Mapping[str, Any] | None):
    words: list[str] = []
    for group in groups:
        words += _settings.words_of(group)
    return _settings.array_of(words)


def _fields(struct: ctypes.Structure) -> dict[str, Any]:
    names = [name for name, *_ in struct._fields_ if name != "size"]
    return {name: getattr(struct, name) for name in names}


def _nothing(*_: Any) -> None:
    """A callback that nobody gave."""


def train(recipe: str | os.PathLike | Mapping[str, Any] | None = None,
          settings: Mapping[str, Any] | None = None, *,
          on_step: Callable[[dict], Any] | None = None, progress: bool | None = None,
          device: str = "cpu", threads: int = 0, engine: Engine | None = None,
          **more: Any) -> Results:
    """Trains as `longshot train` does: makes a run folder, or goes on with the one that is there.

    recipe: path of a YAML file, or a dictionary such as
    {"model": {"layers": 2}, "train": {"steps": 100}, "data": {"corpus": "text.txt"}}.
    settings and keywords come before it: out="runs/x", seed=3, train={"lr": 1e-3}.
    on_step: called after every step with a dictionary (step, steps, tokens, loss, learning_rate,
    gradient_norm, accepted). Something true in return ends the run after a checkpoint; so do an
    exception and Ctrl-C, which are raised then. The same call goes on.
    progress: a bar; by default in notebooks and terminals.

    The result has folder, parameters, resumed, step, tokens, rejected, loss and stopped; its rows
    are the steps."""
    engine = engine_for(engine, device, threads)
    bar = Bar("train", progress)
    guard = Guard(engine)
    rows: list[dict] = []

    def tell(_user: Any, at: Any) -> int:
        row = _fields(at.contents)
        row["accepted"] = bool(row["accepted"])
        rows.append(row)
        bar.show(row["step"] / max(row["steps"], 1),
                 f"step {row['step']} of {row['steps']}, loss {row['loss']:.4f}")
        # a copy: what the caller does to it stays its own
        return guard.call(on_step or _nothing, dict(row))

    file = os.fsencode(recipe) if isinstance(recipe, (str, os.PathLike)) else None
    words = _words(recipe if isinstance(recipe, Mapping) else None, settings, more)
    hook = _c.step_fn(tell)
    options = _c.train_options(recipe=file, settings=words, on_step=hook)
    result = _c.train_result()
    with bar:
        engine.run(guard, "longshot_train", engine.handle.open, ctypes.byref(options),
                   ctypes.byref(result))
        values = _fields(result)
        values["folder"] = os.fsdecode(values["folder"])
        values["stopped"] = guard.asked
        bar.end(f"{values['folder']}: step {values['step']}, loss {values['loss']:.4f}")
    return Results(values, rows, kind="train", x="step", y="loss", folder=values["folder"])


def eval(path: str | os.PathLike, settings: Mapping[str, Any] | None = None, *,
         on_row: Callable[[dict], Any] | None = None, write: bool = False,
         progress: bool | None = None, device: str = "cpu", threads: int = 0,
         engine: Engine | None = None, **more: Any) -> Results:
    """Measures as `longshot eval PATH` does: loss by protocol and length, or a task's answers.

    settings and keywords: {"eval.lengths": [256, 512], "eval.protocol": "slide"}, extend="yarn".
    on_row: called with each row once all are measured. write: also into eval/ of the run folder.
    The result is what the program prints with --json; its rows are those of "results"."""
    engine = engine_for(engine, device, threads)
    bar = Bar("eval", progress)
    guard = Guard(engine)

    def tell(_user: Any, what: bytes, length: int, share: float) -> int:
        bar.show(share, f"{what.decode()} at {length} tokens")
        return guard.call(_nothing)

    hook = _c.eval_progress_fn(tell)
    options = _c.eval_options(settings=_words(settings, more), on_progress=hook, write=int(write))
    text = ctypes.c_void_p()
    with bar:
        engine.run(guard, "longshot_eval", engine.handle.open, os.fsencode(path),
                   ctypes.byref(options), ctypes.byref(text))
        values = json.loads(engine.take_text(text))
        rows = values.get("results", [])
        bar.end(f"{len(rows)} rows")
    for row in rows:
        if on_row and on_row(dict(row)):
            break
    return Results(values, rows, kind="eval", x="length", y="loss", group="protocol",
                   folder=os.fspath(path))


def study(path: str | os.PathLike, settings: Mapping[str, Any] | None = None, *,
          on_progress: Callable[[str, int, int], Any] | None = None,
          progress: bool | None = None, program: str | os.PathLike | None = None,
          device: str = "cpu", threads: int = 0, engine: Engine | None = None,
          **more: Any) -> Results:
    """Runs a study as `longshot study FILE` does, or goes on with it; its jobs are processes.

    settings and keywords come before the file: out="studies/x", jobs=2, seeds=[1, 2].
    on_progress: called with a line, the jobs done and their number. program: the `longshot` that
    runs the jobs, in place of the one installed with the library. The result is results.json of
    the study's folder with "summary", the table for people; its rows are arms by length, and a
    notebook shows its page."""
    engine = engine_for(engine, device, threads)
    bar = Bar("study", progress)
    guard = Guard(engine)

    def tell(_user: Any, line: bytes, done: int, count: int) -> int:
        said = line.decode(errors="replace")
        bar.show(done / max(count, 1), said, now=True)
        return guard.call(on_progress or _nothing, said, done, count)

    program = program or os.environ.get("LONGSHOT_PROGRAM")
    hook = _c.study_progress_fn(tell)
    options = _c.study_options(settings=_words(settings, more), on_progress=hook,
                               program=os.fsencode(program) if program else None)
    result = _c.study_result()
    with bar:
        engine.run(guard, "longshot_study", engine.handle.open, os.fsencode(path),
                   ctypes.byref(options), ctypes.byref(result))
        folder = os.fsdecode(result.folder) if result.folder else ""
        summary = engine.take_text(result.summary) if result.summary else ""
        bar.end(folder)
    found = Path(folder, "results.json")
    values = json.loads(found.read_text(encoding="utf-8")) if folder and found.exists() else {}
    values["summary"] = summary
    rows = [{"arm": arm["name"], **row} for arm in values.get("arms", [])
            for row in arm.get("results", [])]
    for row in rows:
        row["curve"] = f"{row['arm']}, {row.get('protocol', '')}".rstrip(", ")
    return Results(values, rows, kind="study", x="length", y="loss", group="curve", folder=folder)
