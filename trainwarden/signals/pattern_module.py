"""Makes two modules from the shipped packs; `make docs` runs it, a test compares its results with the files.

`trainwarden/failures/patterns.py` has the signals as the library and `exec` need them, without YAML.
`trainwarden/signals/alternatives.py` has what is derived from the patterns, which takes 1.5 s.
"""

from collections.abc import Sequence
from pathlib import Path

from trainwarden.signals.model import Signal
from trainwarden.signals.pack import load_pack, shipped_packs
from trainwarden.signals.patterns import Pattern, split, texts_of

MODULE = Path(__file__).parent.parent / "failures" / "patterns.py"
ALTERNATIVES_MODULE = Path(__file__).parent / "alternatives.py"
# Of the texts that a pattern requires, so many bytes are in the index.
PREFIX = 3

_HEAD = '''\
"""The patterns of `trainwarden/signals/packs/all`, made from them by `make docs`; change them there.

Few large objects, for a shell command has no time to load many.
"""

from __future__ import annotations

# Separated by NUL: name, role, slug of the failure, effect on other evidence, `calm` where such records are no match;
# then for each alternative of the pattern: `caseless` where the case of the texts is ignored, texts of which each match
# contains one, a line each, the most bytes that a match spans, expression.
SIGNALS: tuple[bytes, ...] = (
'''

_ALTERNATIVES_HEAD = '''\
"""The alternatives of the shipped patterns, made from the packs by `make docs`; change them there."""

from __future__ import annotations

# Pattern and own literals of a signal → for each alternative: expression, texts of which each match contains one,
# whether their case is ignored, the most bytes that a match spans, whether digits matter.
_Alternative = tuple[str, "tuple[str, ...] | None", bool, "int | None", bool]
ALTERNATIVES: dict[tuple[str, tuple[str, ...]], tuple[_Alternative, ...]] = {
'''


def alternatives_module() -> str:
    """Return the source of the module of alternatives."""
    rows: dict[tuple[str, tuple[str, ...]], str] = {}
    for signal in (signal for name in shipped_packs() for signal in load_pack(name).signals):
        if signal.pattern_type != "substring":
            parts = (
                (each.text, each.required and each.required.texts, each.is_caseless, each.reach, each.sees_digits)
                for each in split(signal)
            )
            lines = "".join(f"        {part!r},\n" for part in parts)
            rows[signal.pattern, signal.literals] = f"    {(signal.pattern, signal.literals)!r}: (\n{lines}    ),\n"
    return "".join((_ALTERNATIVES_HEAD, *rows.values(), "}\n"))


def pattern_module() -> str:
    """Return the source of the module."""
    signals = load_pack().signals
    indexes = (_index("TEXTS", signals, caseless=False), _index("CASELESS_TEXTS", signals, caseless=True))
    return "".join((_HEAD, *map(_row, signals), ")\n", *indexes, _messages(signals)))


def _row(signal: Signal) -> str:
    fields = [signal.name, signal.role, signal.failure or "", signal.effect or ""]
    fields.append("calm" if signal.ignore_warnings else "")
    for part in split(signal):
        texts, caseless = _texts_of(part)
        if part.reach is None:
            raise ValueError(f"{signal.source}: signal {signal.name}: it has no bound: {part.text}")
        fields += ["caseless" if caseless else "", chr(10).join(texts), str(part.reach), part.text]
    return f"    {chr(0).join(fields).encode()!r},\n"


def _messages(signals: Sequence[Signal]) -> str:
    """Return the source of the whole messages that name a failure, and its slug."""
    named = [(text, signal.failure) for signal in signals for text in signal.messages]
    texts = [text for text, _ in named]
    if wrong := [text for text in texts if texts.count(text) > 1 or text != text.lower() or not text.isprintable()]:
        raise ValueError(f"messages: expected each once, in lower case, not {wrong}")
    lines = "".join(f"    {f'{text}{chr(9)}{slug}{chr(10)}'!r}\n" for text, slug in sorted(named))
    return f"# Whole messages that name a failure, and its slug.\nMESSAGES = (\n    {chr(10)!r}\n{lines})\n"


def _index(name: str, signals: Sequence[Signal], *, caseless: bool) -> str:
    """Return the source of an index: the first bytes of texts → the texts, each with the signals that require it."""
    found: dict[bytes, set[int]] = {}
    for number, signal in enumerate(signals):
        for texts, any_case in map(_texts_of, split(signal)):
            if min(map(len, texts), default=0) < PREFIX:
                raise ValueError(f"{signal.source}: {signal.name}: it requires no text of {PREFIX} letters: {texts}")
            for text in texts if any_case is caseless else ():
                found.setdefault(text.encode(), set()).add(number)
    lines: dict[bytes, list[bytes]] = {}
    for required in sorted(found):
        numbers = b" ".join(b"%d" % number for number in sorted(found[required]))
        lines.setdefault(required[:PREFIX], []).append(required + b"%c" % 0 + numbers)
    entries = "".join(f"    {start!r}: {(b'%c' % 10).join(each)!r},\n" for start, each in lines.items())
    note = (
        f"# The first {PREFIX} bytes of texts → a line for each: the text, NUL, numbers of the signals that require it."
    )
    return f"{note}\n{name}: dict[bytes, bytes] = {{\n{entries}}}\n"


def _texts_of(part: Pattern) -> tuple[tuple[str, ...], bool]:
    """Return texts of which each match contains one, and whether case is ignored: then they are lower."""
    texts, caseless = texts_of((part,))
    return (tuple(text.lower() for text in texts) if caseless else texts), caseless


if __name__ == "__main__":
    ALTERNATIVES_MODULE.write_text(alternatives_module(), encoding="utf-8")
    MODULE.write_text(pattern_module(), encoding="utf-8")
