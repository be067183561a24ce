"""The result of verifying a checkpoint, and the findings that it is derived from."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

Answer = Literal["complete", "incomplete", "unverifiable"]
# What counts as complete: what a known layout promises, whatever shows no defect, or what digests prove alone.
Trust = Literal["layout", "complete", "none"]
TRUSTS: tuple[Trust, ...] = ("layout", "complete", "none")

_MAX_LINES = 12
_MAX_LETTERS = 240


@dataclass(frozen=True)
class CheckpointVerdict:
    """Whether a checkpoint can be resumed from, and the evidence.

    `unverifiable`: no defect was found, and nothing proves that it is complete. `evidence` holds at most 12 printable
    lines, the decisive ones first; `layouts` are the kinds of checkpoint whose files were recognised. `is_suspect`:
    unverifiable because of a sign of damage; any other that is not incomplete is to be preferred.
    """

    answer: Answer
    evidence: tuple[str, ...]
    layouts: tuple[str, ...] = ()
    is_suspect: bool = False

    def __str__(self) -> str:
        return f"{self.answer}: {'; '.join(self.evidence)}"


@dataclass
class Findings:
    """What the checks of a checkpoint found.

    Attributes:
        layouts: the kinds of checkpoint whose files were recognised.
        proofs: why it is complete.
        doubts: what is unknown; the recorded size settles it, and so does an owner who vouches for the checkpoint.
        unread: what could not be read; the recorded size settles it.
        suspicions: signs of damage that may have another cause; only digests settle them.
        defects: proofs that it is incomplete.
        remarks: what is shown, and changes nothing.
        claimed: the files that a layout accounts for.
        content_is_proven: whether digests prove the content.
    """

    layouts: list[str] = field(default_factory=list)
    proofs: list[str] = field(default_factory=list)
    doubts: list[str] = field(default_factory=list)
    unread: list[str] = field(default_factory=list)
    suspicions: list[str] = field(default_factory=list)
    defects: list[str] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)
    claimed: set[str] = field(default_factory=set)
    content_is_proven: bool = False

    def add(self, other: Findings) -> None:
        """Add the findings of another check."""
        self.layouts += other.layouts
        self.proofs += other.proofs
        self.doubts += other.doubts
        self.unread += other.unread
        self.suspicions += other.suspicions
        self.defects += other.defects
        self.remarks += other.remarks
        self.claimed |= other.claimed

    def verdict(self, trust: Trust = "layout") -> CheckpointVerdict:
        """Return incomplete if there is a defect, complete if it is proven or vouched for, else unverifiable."""
        if not self.defects:
            self._apply(trust)
        open_questions = self.suspicions + self.unread + self.doubts
        answer: Answer = "incomplete" if self.defects else "unverifiable"
        if self.proofs and not self.defects and not open_questions:
            answer = "complete"
        # Proofs are irrelevant beside a defect.
        lines = self.defects + open_questions + ([] if self.defects else self.proofs) + self.remarks
        more = len(lines) - _MAX_LINES
        if more > 0:
            lines = [*lines[: _MAX_LINES - 1], f"and {more + 1} more lines"]
        is_suspect = answer == "unverifiable" and bool(self.suspicions)
        return CheckpointVerdict(answer, tuple(map(printable, lines)), tuple(dict.fromkeys(self.layouts)), is_suspect)

    def _apply(self, trust: Trust) -> None:
        if self.content_is_proven:
            self.remarks += self.suspicions + self.unread + self.doubts
            self.suspicions, self.unread, self.doubts = [], [], []
        elif trust == "none":
            self.doubts.append("no digests prove its content, and nothing else is trusted (trust: none)")
        elif trust == "complete" and self.doubts:
            self.proofs.append("no defect was found, and its owner vouches for it (trust: complete)")
            self.remarks += self.doubts
            self.doubts = []


def abbreviated(names: list[str], limit: int = 3) -> str:
    """Return a few of the names, and how many more there are."""
    shown = ", ".join(sorted(names)[:limit])
    return shown if len(names) <= limit else f"{shown} and {len(names) - limit} more"


def printable(text: str) -> str:
    """Return one line of printable characters: names of files may hold control characters."""
    line = "".join(letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}" for letter in text)
    return line if len(line) <= _MAX_LETTERS else f"{line[: _MAX_LETTERS - 1]}…"
