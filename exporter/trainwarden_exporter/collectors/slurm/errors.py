"""What keeps SLURM from being read."""

from __future__ import annotations

# missing: no such command; timeout: no answer in time; authentication: it is refused, or munge is down; failed: the
# command says it could not; unreadable: the answer is not what it should be; too_much: it is too long.
REASONS = ("missing", "timeout", "authentication", "failed", "unreadable", "too_much")


class SlurmError(Exception):
    """SLURM could not be read; `reason` is one of `REASONS`."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(f"{reason}: {message}")
        self.reason = reason
