"""Makes `trainwarden/failures/patterns.py`: the shipped signals as the library and `exec` need them, without YAML.

`make docs` runs it; a test compares its result with the file.
"""

from pathlib import Path

from trainwarden.signals.expressions import bounded
from trainwarden.signals.model import Signal
from trainwarden.signals.pack import load_pack
from trainwarden.signals.patterns import texts_of

MODULE = Path(__file__).parent.parent / "failures" / "patterns.py"

_HEAD = '''\
"""The patterns of `trainwarden/signals/packs/all`, made from them by `make docs`; change them there."""

from __future__ import annotations

# Name, role, slug of the failure, effect on other evidence, whether calm records are no match, whether the case of the
# texts is ignored, texts of which each match contains one (none: unknown), and the expression.
SIGNALS: tuple[tuple[str, str, str | None, str | None, bool, bool, tuple[bytes, ...], bytes], ...] = (
'''


def pattern_module() -> str:
    """Return the source of the module."""
    return "".join((_HEAD, *map(_row, load_pack().signals), ")\n"))


def _row(signal: Signal) -> str:
    texts, caseless = texts_of(signal)
    head = (signal.name, signal.role, signal.failure, signal.effect, signal.ignore_warnings, caseless)
    literals = tuple(text.encode() for text in texts)
    return f"    ({', '.join(map(repr, head))},\n     {literals!r},\n     {bounded(signal.pattern).encode()!r}),\n"


if __name__ == "__main__":
    MODULE.write_text(pattern_module(), encoding="utf-8")
