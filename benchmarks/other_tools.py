"""The shipped patterns in the dialect that ripgrep and mtail share, and the programs themselves."""

import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from trainwarden.signals.model import Signal
from trainwarden.signals.patterns import compiled, texts_of
from trainwarden.stack.debian import PackagesUnavailable, unpack

_FOLDER = Path(__file__).resolve().parents[1] / ".tools" / "benchmarks"
_LOOK_AROUND = re.compile(r"\(\?<?[=!]")
_NEEDLESS_ESCAPE = re.compile(r"(?<!\\)\\([\"' ])")


def program(name: str, package: str) -> Path | None:
    """The program out of Debian's package; None where that can't be had."""
    try:
        return unpack([package], _FOLDER) / "usr" / "bin" / name
    except PackagesUnavailable:
        return None


def dialect(signals: Iterable[Signal]) -> list[str]:
    """One pattern for each signal. They know no look-around: without it a pattern finds a little more."""
    return [_plain(re.escape(one.pattern) if one.pattern_type == "substring" else one.pattern) for one in signals]


def of_bytes(patterns: Iterable[str]) -> list[str]:
    """The patterns as ripgrep is fastest with them, and as we search: their classes are of ASCII."""
    return [f"(?-u:{pattern})" if pattern.isascii() else pattern for pattern in patterns]


def mtail_program(patterns: Sequence[str], progress: Sequence[str] = ()) -> str:
    """A program that counts the records of each signal, and sets gauges from progress lines.

    Each group of a pattern in `progress` is a gauge of that name.
    """
    lines = ["counter found by signal"]
    gauges = sorted({name for pattern in progress for name in re.compile(pattern).groupindex})
    lines += [f"gauge {name}" for name in gauges]
    for index, pattern in enumerate(patterns):
        escaped = pattern.replace("/", r"\/")
        lines.append(f'/{escaped}/ {{\n  found["{index}"]++\n}}')
    for pattern in progress:
        sets = "\n".join(f"  {name} = float(${name})" for name in re.compile(pattern).groupindex)
        lines.append(f"/{pattern.replace('/', chr(92) + '/')}/ {{\n{sets}\n}}")
    return "\n".join(lines) + "\n"


def _plain(pattern: str) -> str:
    pattern = re.sub(r"\(\?P<\w+>", "(?:", pattern)
    pattern = _NEEDLESS_ESCAPE.sub(r"\1", pattern)  # ripgrep refuses it
    while found := _LOOK_AROUND.search(pattern):
        pattern = pattern[: found.start()] + pattern[_end(pattern, found.start()) :]
    return pattern


def _end(pattern: str, at: int) -> int:
    """Behind the bracket that closes the one at this position."""
    depth, in_class = 0, False
    while True:
        letter = pattern[at]
        if letter == "\\":
            at += 1
        elif in_class:
            in_class = letter != "]"
        elif letter == "[":
            in_class = True
        else:
            depth += {"(": 1, ")": -1}.get(letter, 0)
        at += 1
        if depth == 0:
            return at


def required(signals: Iterable[Signal]) -> list[str]:
    """The texts that the signals are looked for with."""
    return sorted({text for signal in signals for text in texts_of(compiled(signal))[0]})
