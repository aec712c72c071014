"""What the peers share: they prepare, print one JSON line, and then measure once for every line
"go" on their standard input, printing one JSON line each time."""
import json
import statistics
import sys
import time


def say(**row):
    print(json.dumps(row), flush=True)


def median_seconds(step, seconds):
    """The median duration of a step over about so many seconds, at least three steps."""
    times, began = [], time.perf_counter()
    while len(times) < 3 or time.perf_counter() - began < seconds:
        start = time.perf_counter()
        step()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def serve(measure):
    """measure() returns a dict; called once per line "go"."""
    for line in sys.stdin:
        if line.strip() == "go":
            say(**measure())
