"""The result of verifying a checkpoint, and the findings that it is derived from."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

Answer = Literal["complete", "incomplete", "unverifiable"]

_MAX_LINES = 12
_MAX_LETTERS = 240


@dataclass(frozen=True)
class CheckpointVerdict:
    """Whether a checkpoint can be resumed from, and the evidence.

    `unverifiable`: no defect was found, and nothing proves that it is complete. `evidence` holds at most 12 printable
    lines, the decisive ones first; `layouts` are the kinds of checkpoint whose files were recognised.
    """

    answer: Answer
    evidence: tuple[str, ...]
    layouts: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.answer}: {'; '.join(self.evidence)}"


@dataclass
class Findings:
    """Proofs, doubts and defects of a checkpoint. `claimed` are the files that a layout accounts for."""

    layouts: list[str] = field(default_factory=list)
    proofs: list[str] = field(default_factory=list)
    doubts: list[str] = field(default_factory=list)
    defects: list[str] = field(default_factory=list)
    claimed: set[str] = field(default_factory=set)

    def add(self, other: Findings) -> None:
        """Add the findings of another check."""
        self.layouts += other.layouts
        self.proofs += other.proofs
        self.doubts += other.doubts
        self.defects += other.defects
        self.claimed |= other.claimed

    def verdict(self) -> CheckpointVerdict:
        """Return incomplete if there is a defect, complete if there are proofs and no doubts, else unverifiable."""
        answer: Answer = "incomplete" if self.defects else "unverifiable"
        if self.proofs and not self.defects and not self.doubts:
            answer = "complete"
        # Proofs are irrelevant beside a defect.
        lines = self.defects + self.doubts + ([] if self.defects else self.proofs)
        more = len(lines) - _MAX_LINES
        if more > 0:
            lines = [*lines[: _MAX_LINES - 1], f"and {more + 1} more lines"]
        return CheckpointVerdict(answer, tuple(map(printable, lines)), tuple(dict.fromkeys(self.layouts)))


def abbreviated(names: list[str], limit: int = 3) -> str:
    """Return a few of the names, and how many more there are."""
    shown = ", ".join(sorted(names)[:limit])
    return shown if len(names) <= limit else f"{shown} and {len(names) - limit} more"


def printable(text: str) -> str:
    """Return one line of printable characters: names of files may hold control characters."""
    line = "".join(letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}" for letter in text)
    return line if len(line) <= _MAX_LETTERS else f"{line[: _MAX_LETTERS - 1]}…"
