"""One way to report a step, in a process of its own: `python -m benchmarks.stepping CASE FOLDER`.

Each line of standard input is a number of calls to make; the answer is the median of what one took, in nanoseconds.
When the input ends, the last answer sums up all calls, and says what the record holds.
"""

import array
import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.rounds import quantile

Report = Callable[[int], None]


def main(case: str, folder: Path) -> None:
    """Answer until the input ends."""
    taken: array.array[int] = array.array("q")
    report, close = CASES[case](folder)
    step = 0
    for line in sys.stdin:
        first, step = step + 1, step + int(line)
        part = _timed(report, first, step)
        taken.extend(part)
        _answer({"median_ns": quantile(sorted(part), 0.5)})
    began = time.monotonic()
    end = close()
    ordered = sorted(taken)
    slowest = {"p50_ns": 0.5, "p99_ns": 0.99, "p999_ns": 0.999, "max_ns": 1.0}
    quantiles = {name: quantile(ordered, share) for name, share in slowest.items()}
    _answer({"calls": step, **quantiles, "end_seconds": time.monotonic() - began, **end})


def _timed(report: Report, first: int, last: int) -> "array.array[int]":
    clock = time.perf_counter_ns
    taken = array.array("q", bytes(8 * (last - first + 1)))
    for step in range(first, last + 1):
        before = clock()
        report(step)
        taken[step - first] = clock() - before
    return taken


def _answer(document: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(document) + "\n")
    sys.stdout.flush()


def _empty(_: Path) -> tuple[Report, Callable[[], dict[str, Any]]]:
    return lambda _: None, dict


def _run(folder: Path) -> tuple[Report, Callable[[], dict[str, Any]]]:
    import trainwarden  # noqa: PLC0415  # each case loads what it measures

    run = trainwarden.run("measured", dir=folder)

    def report(step: int) -> None:
        run.step(step, loss=2.5, learning_rate=3e-4, grad_norm=1.25, tokens=4096)

    def close() -> dict[str, Any]:
        with run:
            pass
        progress = json.loads((run.folder / "progress.json").read_text())
        metadata = json.loads((run.folder / "metadata.json").read_text())
        return {
            "steps_completed": progress["steps_completed"],
            "status": metadata["status"],
            "s3": metadata.get("s3"),
        }

    return report, close


def _gauges(count: int) -> Callable[[Path], tuple[Report, Callable[[], dict[str, Any]]]]:
    def case(_: Path) -> tuple[Report, Callable[[], dict[str, Any]]]:
        from prometheus_client import CollectorRegistry, Gauge  # noqa: PLC0415  # each case loads what it measures

        registry = CollectorRegistry()
        values = (2.5, 3e-4, 1.25, 4096.0)
        step_gauge = Gauge("step", "The step.", registry=registry)
        others = [(Gauge(f"g{at}", "A value.", registry=registry), value) for at, value in enumerate(values)]
        others = others[: count - 1]

        def report(step: int) -> None:
            step_gauge.set(step)
            for gauge, value in others:
                gauge.set(value)

        return report, dict

    return case


def _json(folder: Path) -> tuple[Report, Callable[[], dict[str, Any]]]:
    path, temporary = folder / "plain.json", folder / "plain.json.tmp"

    def report(step: int) -> None:
        document = {"step": step, "loss": 2.5, "learning_rate": 3e-4, "grad_norm": 1.25, "tokens": 4096}
        temporary.write_text(json.dumps({**document, "time": time.time()}))
        os.replace(temporary, path)  # noqa: PTH105  # what one writes without a second thought

    return report, dict


CASES: dict[str, Callable[[Path], tuple[Report, Callable[[], dict[str, Any]]]]] = {
    "empty": _empty,
    "folder": _run,
    "s3": _run,
    "gauge": _gauges(1),
    "gauges": _gauges(5),
    "json": _json,
}

if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
