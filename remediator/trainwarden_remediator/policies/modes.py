"""Whether a decision is carried out: observed only, on a part of the runs, or on all."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from fnmatch import fnmatchcase
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

Mode = Literal["observe", "canary", "act"]
# From the most cautious on.
MODES: tuple[Mode, ...] = ("observe", "canary", "act")
# Of a cluster: a run is acted upon if it has opted in, and only observed if not.
OPT_IN = "opt-in"

Glob = Annotated[str, Field(min_length=1, max_length=128)]


class CanaryRuns(BaseModel):
    """The runs that are acted upon in the mode canary: those that a pattern matches, and a share of all others."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)

    share: float = Field(default=0.1, ge=0, le=1)
    runs: list[Glob] = []

    def includes(self, run_id: str) -> bool:
        """Return whether a run is among them: always the same for one run, and more runs with a larger share."""
        digest = hashlib.sha256(run_id.encode()).digest()
        chance = int.from_bytes(digest[:8], "big") / 2**64
        return chance < self.share or any(fnmatchcase(run_id, pattern) for pattern in self.runs)


def most_cautious(modes: Iterable[Mode]) -> Mode | None:
    """Return the most cautious of several modes; None of none."""
    return min(modes, key=MODES.index, default=None)
