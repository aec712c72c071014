"""What the tests share: a folder, a corpus and a small run, made once."""
import atexit
import os
import subprocess
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = os.environ.get("LONGSHOT_PROGRAM") or str(ROOT / "build" / "longshot")
GOLDEN = ROOT / "tests" / "golden"
RECIPE = {"model": {"layers": 1, "width": 16, "length": 16}, "mixer": {"heads": 2},
          "train": {"steps": 20, "batch": 2, "lr": 1e-3, "checkpoint_every": 5}}

import longshot  # noqa: E402

scratch = None
_held = None


def folder() -> Path:
    global scratch, _held
    if scratch is None:
        _held = tempfile.TemporaryDirectory(prefix="longshot-tests-")
        scratch = Path(_held.name)
        atexit.register(_held.cleanup)
        os.environ["XDG_CACHE_HOME"] = str(scratch / "cache")
        lines = (f"document 1, line {i}: what follows is much like what came before\n"
                 for i in range(200))
        (scratch / "text.txt").write_text("".join(lines))
    return scratch


def recipe(**sections):
    """The small recipe with other values in some sections."""
    whole = {**RECIPE, "data": {"corpus": folder() / "text.txt"}}
    return {**whole, **{name: {**whole.get(name, {}), **more} for name, more in sections.items()}}


def run() -> str:
    """A trained run folder."""
    path = folder() / "run"
    if not path.exists():
        longshot.train(recipe(), out=path)
    return str(path)


def program(*words) -> str:
    """What the program prints."""
    done = subprocess.run([PROGRAM, *map(str, words)], capture_output=True, check=True)
    return done.stdout.decode(errors="replace")


class Case(unittest.TestCase):
    def refused(self, kind, sentence):
        """The call in it raises an error of this kind, whose sentence has these words."""
        return self.assertRaisesRegex(kind, sentence)
