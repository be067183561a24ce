"""Lines that are hard to search: repeated texts that patterns require, with and without gaps."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainwarden.signals.patterns import compiled

if TYPE_CHECKING:
    from collections.abc import Iterator

    from trainwarden.signals.model import Signal

# As long as what is searched of a record.
LINE_BYTES = 64 * 1024 - 1
GAPS = (b"", b" ", b"x" * 30, b"1234567 ", b" a.b" * 20)


def hostile_lines(signal: Signal, size: int = LINE_BYTES) -> Iterator[bytes]:
    """Yield a line for each text that a signal requires, and each beginning of an example, with each gap."""
    seeds = {text for pattern in compiled(signal) if pattern.required for text in pattern.required.texts}
    for example in signal.examples:
        line = example.partition("\n")[0]
        seeds |= {line[: len(line) * quarter // 4] for quarter in (1, 2, 3, 4)}
    for seed in sorted(seeds - {""}):
        for gap in GAPS:
            unit = seed.encode() + gap
            yield (unit * (size // len(unit) + 1))[:size]
