"""What the checks share: the program, a folder to work in, counting what failed."""

import os
import subprocess
import sys

os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")

program, work = os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2])
failures = 0

WORDS = "line of a text that models read: don't stop, 3 cafés, naïve — and 12,345 more."


def corpus():
    """A small text, written once."""
    path = os.path.join(work, "text.txt")
    if not os.path.exists(path):
        with open(path, "w") as file:
            for i in range(3000):
                file.write(f"{WORDS} {i} {i * 7 % 13}\n")
    return path


def longshot(*words, fails=False):
    """Runs the program; what it printed, or None where it should fail and does."""
    done = subprocess.run([program, *words], capture_output=True, text=True)
    if fails:
        return done.stderr if done.returncode == 2 else None
    if done.returncode != 0:
        raise RuntimeError(f"longshot {' '.join(words)}: {done.stdout[-300:]} {done.stderr[-600:]}")
    return done.stdout


def report(name, fine, detail=""):
    global failures
    failures += not fine
    print(f"{'ok    ' if fine else 'FAILED'} {name}{': ' if detail else ''}{detail}", flush=True)


def each(cases, check):
    """Calls check(name, case); an exception is a failure of that case alone."""
    for name, case in cases.items():
        try:
            check(name, case)
        except Exception as error:  # noqa: BLE001: whatever it is, the next case is checked
            report(name, False, f"{type(error).__name__}: {error}"[:600])
    sys.exit(1 if failures else 0)
