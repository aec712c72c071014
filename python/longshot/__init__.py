"""longshot: sequence models in Python. Train short, test long, see what breaks.

    import longshot

    model = longshot.open("runs/attention-rope")      # or a Hugging Face folder, or a .gguf file
    ids = model.tokenize("What follows is much like what came before.")
    model.loss(ids)                                   # nats of every token but the first
    model.logits(ids)                                 # [count, vocabulary], float32
    for token in model.generate("What follows", 50, temperature=0.8, seed=1):
        print(token, end="")

    stream = model.stream(capacity=65536)             # prefill once, go on in several ways
    stream.feed(ids)
    other = stream.fork()

    run = longshot.train({"model": {"layers": 2}, "data": {"corpus": "text.txt"}}, out="run",
                         on_step=lambda step: print(step["loss"]))
    curve = longshot.eval("run", {"eval.lengths": [256, 512, 1024]})
    curve.plot()                                      # where matplotlib is installed
    curve.to_pandas()                                 # where pandas is installed
    longshot.study("studies/quick.yaml")

    longshot.apply("attention", {"x": x}, weights, heads=4, position="rope")

Arrays: numpy arrays come back, float32. What is given may be anything with the buffer protocol or
DLPack (numpy, torch); int32 ids and arrays for `out=` are used without a copy.
Errors are subclasses of longshot.Error, with the library's sentence. Ctrl-C ends what runs; a
training keeps its checkpoint, and the same call goes on.
Threads: the GIL is released while the library computes. Calls on one engine wait for each other.
Settings are those of the program (docs/options.md), as nested or dotted keys.
"""
from __future__ import annotations

from . import _c
from ._apply import apply, compare
from ._engine import Engine
from ._errors import (Error, FileError, InputError, InternalError, OutOfMemory, Stopped,
                      UsageError)
from ._model import Model, Stream, Token, Tokenizer
from ._model import open_model as open
from ._results import Results
from ._runs import eval, study, train

__version__: str = _c.library().longshot_version().decode()
__all__ = ["Engine", "Error", "FileError", "InputError", "InternalError", "Model", "OutOfMemory",
           "Results", "Stopped", "Stream", "Token", "Tokenizer", "UsageError", "apply",
           "catalogue", "compare", "eval", "open", "study", "train"]


def catalogue(subject: str) -> list[dict]:
    """What there is to choose from, with options: subject is "mixers", "positions", "extensions",
    "presets", "tasks" or "operations"."""
    from ._engine import engine_for

    return engine_for(None, "cpu", 0).catalogue(subject)
