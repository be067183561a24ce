"""What can go wrong: errors, and `Unknown`, the third value of an answer.

RemediatorError
├── ConfigError     what the user wrote is wrong; carries every problem found
└── StoreError      the database cannot be used
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


class RemediatorError(Exception):
    """The root of all errors of this package."""


class ConfigError(RemediatorError):
    """Bad flags, files or policies. `problems` holds one line each: file, key, value, what was expected."""

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__("; ".join(problems))
        self.problems = tuple(problems)


class StoreError(RemediatorError):
    """The database is locked by another remediator, damaged, or of another version."""


@dataclass(frozen=True)
class Unknown:
    """No usable answer, with the reason. Nothing destructive ever follows from it."""

    reason: str
