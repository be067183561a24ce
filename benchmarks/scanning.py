"""One way to search a log, in a process of its own: `python -m benchmarks.scanning ENGINE WHAT FILE`.

ENGINE is one of `trainwarden.signals.literals`, or `loop`: each pattern on each line. WHAT is `failures`: the signals
alone, or `all`: what `trainwarden scan` does. It prints how much was found, and a digest of where.
"""

import hashlib
import re
import sys
from collections.abc import Iterator
from pathlib import Path

from trainwarden.failures.records import is_calm
from trainwarden.scan import command
from trainwarden.signals.expressions import bounded
from trainwarden.signals.pack import load_pack
from trainwarden.signals.scanner import Scanner

# The packages that an engine must not have; the fastest that is left is taken.
_WITHOUT = {"hyperscan": (), "ahocorasick_rs": ("hyperscan",), "bytes.find": ("hyperscan", "ahocorasick_rs")}
_PIECE_BYTES = 256 * 1024
# What mtail and the loop read progress with: the two formats that are in the log.
PROGRESS = (
    (
        r"iteration +(?P<step>\d+)/ +(?P<total_steps>\d+) .*learning rate: (?P<learning_rate>\S+)"
        r" .*lm loss: (?P<loss>\S+)"
        r" .*grad norm: (?P<grad_norm>\S+)"
    ),
    r" (?P<step>\d+)/(?P<total_steps>\d+) \[.*loss=(?P<loss>\d+\.\d+)\]",
)

Pair = tuple[int, str]


def main(engine: str, what: str, path: Path) -> None:
    """Search the file and print the number of finds and their digest."""
    for package in _WITHOUT.get(engine, ()):
        sys.modules[package] = None  # type: ignore[assignment]  # how an import is made to fail
    if engine == "loop":
        pairs = _loop(path, with_progress=what == "all")
    elif what == "all":
        command.main(["--format", "json", str(path)])
        return
    else:
        pairs = _scan(path)
    count, digest = 0, hashlib.sha256()
    for offset, name in sorted(pairs):
        count += 1
        digest.update(f"{offset} {name}\n".encode())
    print(count, digest.hexdigest())


def _scan(path: Path) -> Iterator[Pair]:
    scanner = Scanner(load_pack().signals)
    with path.open("rb") as file:
        while piece := file.read(_PIECE_BYTES):
            yield from ((match.offset, match.signal.name) for match in scanner.feed(piece))
    yield from ((match.offset, match.signal.name) for match in scanner.finish())


def _loop(path: Path, *, with_progress: bool) -> Iterator[Pair]:
    signals = [(signal, re.compile(bounded(signal.pattern).encode(), re.MULTILINE)) for signal in load_pack().signals]
    progress = [re.compile(pattern.encode()) for pattern in PROGRESS] if with_progress else []
    values: dict[str, bytes] = {}
    offset = 0
    with path.open("rb") as file:
        for line in file:
            record = line.rstrip(b"\n")
            for signal, pattern in signals:
                match = pattern.search(record)
                if match and not (signal.ignore_warnings and is_calm(record, 0, len(record), match.start())):
                    yield offset, signal.name
            for expression in progress:
                if found := expression.search(record):
                    values.update(found.groupdict())
            offset += len(line)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], Path(sys.argv[3]))
