"""What the peers share: they prepare, print one JSON line, and then measure once for every line
"go" on their standard input, printing one JSON line each time."""
import argparse
import json
import statistics
import sys
import time

import torch


def say(**row):
    print(json.dumps(row), flush=True)


def arguments(**sizes):
    """The words that every peer takes, and sizes of its own with their defaults; also seeds PyTorch
    and gives it its threads."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--dtype", choices=["f32", "bf16"], default="f32")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    for name, value in {"threads": 2, "grad": 0, "seconds": 1.0, **sizes}.items():
        parser.add_argument("--" + name, type=type(value), default=value)
    given = parser.parse_args()
    given.kind = torch.bfloat16 if given.dtype == "bf16" else torch.float32
    torch.manual_seed(1)
    torch.set_num_threads(given.threads)
    return given


def stepper(given, work, operands, cotangent):
    """A step: work(*operands), with the operands' gradients where they are asked for."""
    def step():
        if given.grad:
            torch.autograd.grad(work(*operands), operands, cotangent)
        else:
            with torch.no_grad():
                work(*operands)
        if given.device == "cuda":
            torch.cuda.synchronize()
    return step


def median_seconds(step, seconds):
    """The median duration of a step over about so many seconds, at least five steps, as ours."""
    times, began = [], time.perf_counter()
    while len(times) < 5 or time.perf_counter() - began < seconds:
        start = time.perf_counter()
        step()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def serve(measure):
    """measure() returns a dict; called once per line "go"."""
    for line in sys.stdin:
        if line.strip() == "go":
            say(**measure())
