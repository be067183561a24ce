"""The table of all shipped signals: `python -m trainwarden.signals.listing > docs/signal-list.md`."""

from itertools import groupby
from pathlib import Path

from trainwarden.signals.diagnosis import error_type_of
from trainwarden.signals.model import Signal
from trainwarden.signals.pack import load_pack, shipped_packs

_HEAD = """# Signals

Made by `make docs` from the packs in `trainwarden/signals/packs`. [Log signals](signals.md) says how to write one
and to test it. `role` says what a signal may win against, `failure` is its entry in the taxonomy; `-`: it has none.
"""
_COLUMNS = "| signal | error type | failure | role | printed by | for example |\n|---|---|---|---|---|---|\n"
_EXAMPLE = 90


def listing() -> str:
    """Return the page, in Markdown."""
    return "\n".join((_HEAD, *(_pack(name) for name in shipped_packs())))


def _pack(name: str) -> str:
    signals = load_pack(name).signals
    count = f"{len(signals)} signals"
    parts = [f"## {name}\n\n{count}, those of other packs included.\n"]
    for source, group in groupby(signals, key=lambda signal: Path(signal.source.rpartition(":")[0])):
        rows = "".join(map(_row, group))
        heading = f"### {source.stem}\n\n" if source.parent.name == name or source.stem != name else ""
        parts.append(f"{heading}{_COLUMNS}{rows}")
    return "\n".join(parts)


def _row(signal: Signal) -> str:
    example = signal.examples[0].strip().replace("|", "\\|").replace("`", "'").replace("\n", " ")
    example = example[: _EXAMPLE - 1].rstrip("\\ ") + "…" if len(example) > _EXAMPLE else example
    kind = error_type_of(signal) or "-"
    printer = signal.framework or ""
    return f"| `{signal.name}` | {kind} | {signal.failure or '-'} | {signal.role} | {printer} | `{example}` |\n"


if __name__ == "__main__":
    print(listing(), end="")
