"""What was found out about a checkpoint, and what follows from it."""

from dataclasses import dataclass, field
from typing import Literal

Answer = Literal["complete", "incomplete", "unverifiable"]

_MAX_LINES = 12
_MAX_LETTERS = 240


@dataclass(frozen=True)
class Verdict:
    """Whether a checkpoint can be resumed from, and why.

    `unverifiable`: nothing speaks against the checkpoint, and nothing known proves it. `evidence` holds at most 12
    printable lines, what decides first; `layouts` are the kinds of checkpoint whose files were recognised.
    """

    answer: Answer
    evidence: tuple[str, ...]
    layouts: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.answer}: {'; '.join(self.evidence)}"


@dataclass
class Report:
    """What one look brought: proof, doubts, and what speaks against it. `claimed` files are accounted for."""

    layouts: list[str] = field(default_factory=list)
    proof: list[str] = field(default_factory=list)
    doubts: list[str] = field(default_factory=list)
    against: list[str] = field(default_factory=list)
    claimed: set[str] = field(default_factory=set)

    def add(self, other: "Report") -> None:
        """Take over what another look brought."""
        self.layouts += other.layouts
        self.proof += other.proof
        self.doubts += other.doubts
        self.against += other.against
        self.claimed |= other.claimed

    def verdict(self) -> Verdict:
        """What speaks against it counts most, then doubts; no proof is a doubt too."""
        answer: Answer = "incomplete" if self.against else "unverifiable"
        if self.proof and not self.against and not self.doubts:
            answer = "complete"
        # What is there proves nothing beside what is missing.
        lines = self.against + self.doubts + ([] if self.against else self.proof)
        more = len(lines) - _MAX_LINES
        if more > 0:
            lines = [*lines[: _MAX_LINES - 1], f"and {more + 1} more lines"]
        return Verdict(answer, tuple(map(printable, lines)), tuple(dict.fromkeys(self.layouts)))


def named(names: list[str], limit: int = 3) -> str:
    """A few of the names, and how many more there are."""
    shown = ", ".join(sorted(names)[:limit])
    return shown if len(names) <= limit else f"{shown} and {len(names) - limit} more"


def printable(text: str) -> str:
    """One line that any terminal takes: names of files may hold anything."""
    line = "".join(letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}" for letter in text)
    return line if len(line) <= _MAX_LETTERS else f"{line[: _MAX_LETTERS - 1]}…"
