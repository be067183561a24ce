"""What is hard to search: the worst of many hostile lines, and storms in which every line matches."""

import math
import os
import time
from collections.abc import Callable, Sequence

from benchmarks.hostile_lines import hostile_lines
from benchmarks.rounds import take_turns
from benchmarks.tables import Table, verdict
from trainwarden.failures.records import evidence_in
from trainwarden.signals.model import Signal
from trainwarden.signals.scanner import Scanner
from trainwarden.signals.search import SignalSearch

_LINES = 400
_ROUNDS = 5
_WORST_MS = 50.0
_STORM_BYTES = 2 << 20
_PIECE_BYTES = 256 * 1024
_OOM = "{0}: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate {0}.00 GiB. GPU 0 has a total capacity\n"


def table(signals: Sequence[Signal], ordinary: bytes) -> Table:
    """Measure hostile lines and storms in one process.

    Args:
        signals: to search for.
        ordinary: the beginning of a log of a healthy training, against which storms are compared.
    """
    lines = [(signal, line) for signal in signals for line in hostile_lines(signal)]
    pairs = lines[:: max(1, len(lines) // int(os.environ.get("HOSTILE_LINES", _LINES)))]
    some = [line for _, line in pairs]
    scanner = Scanner(signals)
    rows = []
    for name, search in (("`scan` and the exporter", _scanned(scanner)), ("the library and `exec`", _judged)):
        milliseconds = 1000 * _worst(some, search)
        rows.append([f"the worst line, {name}", f"{milliseconds:.0f} ms", "", verdict(milliseconds <= _WORST_MS)])
    examples = [example for signal in signals for example in signal.examples if "\n" not in example]
    logs = {
        "a log of a healthy training": ordinary[:_STORM_BYTES],
        "a storm of one line": "".join(_OOM.format(number) for number in range(30_000)).encode()[:_STORM_BYTES],
        "a storm of all examples": ("\n".join(examples) + "\n").encode() * 20,
    }
    times = take_turns({name: _reading(signals, log) for name, log in logs.items()}, _ROUNDS)
    speeds = {name: len(log) / min(times[name]) for name, log in logs.items()}
    for name, speed in speeds.items():
        ratio = speed / next(iter(speeds.values()))
        rows.append([name, f"{speed / 1e6:.2f} MB/s", f"{ratio:.3f}", ""])
    # A pattern whose time grows with the square of a line's length is a thousand times slower than the others.
    worst = min(len(line) / _worst([line], _unlimited(signal)) for signal, line in pairs)
    ratio = worst / next(iter(speeds.values()))
    rows.append(
        ["the worst line, its own pattern alone, without limits", f"{worst / 1e6:.2f} MB/s", f"{ratio:.3f}", ""]
    )
    note = (
        f"The worst of {len(some)} of {len(lines)} lines of 64 KiB, made of texts that patterns require; the speed of "
        "the fastest engine that is installed, in storms and in the log of a healthy training. Processor time."
    )
    return Table(["", "", "÷ healthy", "target"], rows, note)


def _worst(lines: Sequence[bytes], search: Callable[[bytes], object]) -> float:
    """Return the seconds of the slowest line: of those that took longest once, the least of a few times."""

    def seconds(line: bytes) -> float:
        began = time.thread_time()
        search(line)
        return time.thread_time() - began

    for line in lines:
        search(line)  # compiles expressions
    slowest = sorted(lines, key=seconds)[-10:]
    return max(min(seconds(line) for _ in range(_ROUNDS)) for line in slowest)


def _scanned(scanner: Scanner) -> Callable[[bytes], object]:
    return lambda line: scanner.feed(line + b"\n")


def _unlimited(signal: Signal) -> Callable[[bytes], object]:
    return SignalSearch([signal], record_seconds=math.inf, search_limit=math.inf).search


def _judged(line: bytes) -> object:
    return evidence_in(f"step 1\n{line.decode(errors='replace')}\nend")


def _reading(signals: Sequence[Signal], log: bytes) -> Callable[[], float]:
    def once() -> float:
        scanner = Scanner(signals)
        scanner.feed(log[:_PIECE_BYTES])  # compiles expressions
        began = time.thread_time()
        for at in range(0, len(log), _PIECE_BYTES):
            scanner.feed(log[at : at + _PIECE_BYTES])
        return time.thread_time() - began

    return once
