"""What the collectors of runs and of logs tell each other, each from its own thread and without waiting."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from trainwarden.signals.progress import Progress


@dataclass(frozen=True)
class WatchedRun:
    """A run whose logs are to be followed, as its record has it.

    Attributes:
        folder: of the record; None where there is none, only logs.
        owned: all its logs are this exporter's; else only those that name this node.
        attempt: tells one attempt from another; empty where nothing does.
        attempt_start: Unix seconds.
        ended: the attempt has ended.
        quiet: it runs and has used up half of a threshold.
        values: what templates of paths may name.
        signals: the pack that the record asks for.
        log_path: the template that the record states.
    """

    run_id: str
    folder: Path | None = None
    owned: bool = True
    attempt: str = ""
    attempt_start: float | None = None
    ended: bool = False
    quiet: bool = False
    values: Mapping[str, str] = field(default_factory=dict)
    signals: str | None = None
    log_path: str | None = None


@dataclass(frozen=True)
class LogVerdict:
    """What a log says was the cause; empty where unknown. `message` is the record that says so."""

    error_type: str
    failure: str
    subsystem: str
    severity: str
    message: str
    hint: str
    signal: str
    role: str


@dataclass(frozen=True)
class LogView:
    """What is known from the logs of one run.

    Attributes:
        attempt: that it is about.
        settled: the attempt has ended, its logs were read to their end, and `verdict` will not change.
        verdict: the cause of the failure, or of the silence of an attempt that runs; None if there is none.
        progress: None where the logs say nothing.
        moved: when the step last changed, Unix seconds.
        taken: when this was true, Unix seconds.
    """

    attempt: str
    settled: bool
    verdict: LogVerdict | None
    progress: Progress | None
    moved: float | None
    taken: float


class Board:
    """Both sides replace what they show as a whole: a reader sees the old or the new, never half of either."""

    def __init__(self) -> None:
        self.runs: tuple[WatchedRun, ...] | None = None
        self.others: frozenset[str] = frozenset()  # runs of other exporters
        self.views: Mapping[str, LogView] = {}
        self.log_only: tuple[str, ...] = ()  # runs that have logs and no folder
