"""How an attempt ended: from an exception, an exit status or a signal, and from what the record holds."""

from __future__ import annotations

import logging
import signal
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from trainwarden.classify import classify_exception, classify_exit
from trainwarden.identity import host_name, process_lives
from trainwarden.record.crash import Crash, read_crash, traces
from trainwarden.record.rank import RankBeat, read_ranks
from trainwarden.record.sentinels import GRACE_SECONDS, Sentinel, announcement_age, current_error
from trainwarden.record.store import UNKNOWN_END
from trainwarden.taxonomy import FAILURES, Failure
from trainwarden.training.termination import PREEMPTED, TIME_LIMIT, ReceivedSignal

# For so long after its announcement a restart explains any end.
ANNOUNCEMENT_SECONDS = 120.0
# Launchers number the ranks of one host consecutively; a thousand ranks must not read a thousand files each, where
# each has a file of its own.
_NEIGHBOURS = 15
_FEW_RANKS = 64
_POLL_SECONDS = 0.1
# How `signal_outcome`, `exit_outcome` and Lightning's exception state a SIGTERM that nothing explains.
_UNKNOWN_SENDER = ("SIGTERM", f"exit status {128 + signal.SIGTERM}")
_CAUSES = {TIME_LIMIT: "time_limit", PREEMPTED: "preempted"}

logger = logging.getLogger("trainwarden")


class AmbiguousExit(Exception):
    """The interpreter ended in a way that may be success or failure; the message describes it."""


@dataclass(frozen=True)
class AttemptOutcome:
    """The end of this process's part in an attempt.

    `signalled`: a signal, or an exit status that stands for one, ended it.
    `unknown`: the process cannot see whether it succeeded or failed.
    `rank`, `host`: of the rank that failed, where it is another one.
    """

    status: Literal["succeeded", "failed", "cancelled"]
    reason: str | None = None
    failure: Failure | None = None
    exception_type: str | None = None
    traceback: str | None = None
    exit_code: int | None = None
    signalled: bool = False
    unknown: bool = False
    rank: int | None = None
    host: str | None = None

    @property
    def has_unknown_sender(self) -> bool:
        """Whether SIGTERM ended the process: a user, a scheduler and a launcher that lost a rank all send it."""
        return self.signalled and self.reason in _UNKNOWN_SENDER


SUCCEEDED = AttemptOutcome("succeeded")


def exception_outcome(exc: BaseException) -> AttemptOutcome:
    """Return the outcome of an uncaught exception."""
    if isinstance(exc, KeyboardInterrupt):
        return AttemptOutcome("cancelled", "SIGINT", signalled=True)
    if type(exc).__name__ == "SIGTERMException":
        # Lightning raises it after a SIGTERM, with the exit status of a success.
        return AttemptOutcome("cancelled", "SIGTERM", signalled=True, unknown=True)
    if isinstance(exc, SystemExit):
        return exit_outcome(exc.code)
    if is_cancellation(exc):
        what = "generator was closed" if isinstance(exc, GeneratorExit) else "task was cancelled"
        return AttemptOutcome("cancelled", f"its {what} before it came to its end", unknown=True)
    if isinstance(exc, AmbiguousExit):
        return AttemptOutcome("cancelled", str(exc), unknown=True)
    name = type(exc).__name__
    try:
        text = str(exc)
    except Exception:  # noqa: BLE001  # the __str__ of a user's class
        text = ""
    return AttemptOutcome("failed", text or name, classify_exception(exc), name, _traceback(exc))


def exit_outcome(code: Any) -> AttemptOutcome:
    """Return the outcome of `sys.exit(code)`."""
    if code is None or code == 0:
        return SUCCEEDED
    status = code if isinstance(code, int) else 1
    failure = classify_exit(status)
    if failure and failure.error_type == "cancelled":
        return AttemptOutcome("cancelled", f"exit status {status}", signalled=True)
    reason = f"exit status {status}" if isinstance(code, int) else str(code)
    return AttemptOutcome("failed", reason, failure, "SystemExit", exit_code=status)


def signal_outcome(received: ReceivedSignal) -> AttemptOutcome:
    """Return the outcome of a signal that asked the process to end."""
    cause = FAILURES[_CAUSES.get(received.reason, "cancelled")]
    return AttemptOutcome("cancelled", received.reason, cause, signalled=True)


def infer_outcome(
    outcome: AttemptOutcome,
    received: ReceivedSignal | None,
    step: int | None,
    total: int | None,
    now: float,
    *,
    high_water: int | None = None,
) -> AttemptOutcome:
    """Correct an outcome by the progress of the loop and by an earlier signal.

    A process that was asked to end, saves and exits with status 0 was cancelled, not successful.

    Args:
        outcome: as the process ended.
        received: the last signal that asked it to end, if any.
        step: the last step reported.
        total: the step after which the run is finished.
        now: Unix seconds.
        high_water: the highest step of all attempts.
    """
    is_done = total is not None and step is not None and step >= total
    if outcome.unknown and is_done:
        outcome = SUCCEEDED
    left_early = not is_done and (outcome.status == "succeeded" or outcome.unknown)
    if received is not None and (
        (left_early and received.explains_leaving(now))
        or (outcome.status == "failed" and received.explains_failing(now))
    ):
        return signal_outcome(received)
    if outcome.unknown:
        logger.warning("%s; a `with` block around all of the loop has its end recorded", outcome.reason)
    if outcome.status == "succeeded" and total is not None and not is_done:
        if step is None and high_water is not None and high_water >= total:
            return replace(outcome, reason="was finished already")
        at = "before the first step" if step is None else f"at step {step}"
        return replace(outcome, reason=f"ended {at} of {total}")
    return outcome


def reconcile(
    outcome: AttemptOutcome,
    folder: Path,
    key: str,
    rank: int,
    attempt_start: float,
    *,
    world_size: int | None = None,
) -> AttemptOutcome:
    """Return the outcome of the whole attempt, from this process's outcome and what others wrote into the record.

    Another rank's `_error`, an announced restart, the crash of another rank, or a dead rank without an end in its file
    explain this process's end: launchers end all other ranks by SIGTERM then, and that is not a user's cancellation.
    Where some ranks are out of sight, a SIGTERM without such evidence is a failure of unknown cause.

    Args:
        outcome: of this process.
        folder: of the run.
        key: of the attempt.
        rank: of this process.
        attempt_start: Unix seconds; older sentinels without a key belong to earlier attempts.
        world_size: the number of ranks; None if unknown.
    """
    error = current_error(folder, key, attempt_start)
    if isinstance(error, Sentinel) and not (error.failure == UNKNOWN_END and outcome.has_unknown_sender):
        return outcome if outcome.status == "failed" else AttemptOutcome("failed", error.message)
    if outcome.status == "succeeded":
        return outcome
    age = announcement_age(folder, key)
    # When one rank is ended, the others may only see a broken connection.
    if age < ANNOUNCEMENT_SECONDS:
        return replace(outcome, status="cancelled", reason="restart")
    if not outcome.signalled or outcome.reason == "SIGINT":
        return outcome
    others = OtherRanks(folder, key, rank, attempt_start)
    cause = others.failure(outcome.reason)
    if cause is None and age < GRACE_SECONDS:
        return replace(outcome, reason="restart")
    if cause is not None or not outcome.has_unknown_sender or (world_size or 1) == 1 or others.all_here(world_size):
        return cause or outcome
    reason = f"ended from outside ({outcome.reason}), cause unknown"
    return AttemptOutcome("failed", reason, FAILURES[UNKNOWN_END], signalled=True)


class OtherRanks:
    """What the record holds about the ends of the other ranks of an attempt.

    Args:
        folder: of the run.
        key: of the attempt.
        rank: of this process, whose own files do not count.
        attempt_start: Unix seconds; as for `reconcile`.
    """

    def __init__(self, folder: Path, key: str, rank: int, attempt_start: float) -> None:
        self._folder = folder
        self._key = key
        self._rank = rank
        self._start = attempt_start

    def failure(self, ended_by: str | None) -> AttemptOutcome | None:
        """Return the failure of a rank that explains why this one was ended (`ended_by`); None if there is none."""
        error = current_error(self._folder, self._key, self._start)
        if isinstance(error, Sentinel) and error.failure != UNKNOWN_END:
            return AttemptOutcome("failed", error.message)
        crash = self._crash()
        if crash is not None:
            failure = FAILURES["crash_signal"]
            return AttemptOutcome(
                "failed", crash.message, failure, None, crash.trace, crash.exit_code, rank=crash.rank, host=crash.host
            )
        dead = find_dead_neighbour(self._folder, self._key, self._rank)
        if dead is not None:
            died = f"rank {dead.rank} (process {dead.pid}) died without recording its end"
            reason = f"{died}; this one then ended ({ended_by})"
            return AttemptOutcome("failed", reason, FAILURES["killed"], rank=dead.rank, host=dead.host)
        return None

    def await_failure(self, ended_by: str | None, seconds: float) -> AttemptOutcome | None:
        """Wait for the evidence of ranks on other hosts: as `failure`, None after `seconds`."""
        deadline = time.monotonic() + seconds
        while (cause := self.failure(ended_by)) is None and time.monotonic() < deadline:
            time.sleep(_POLL_SECONDS)
        return cause

    def all_here(self, world_size: int | None) -> bool:
        """Whether every rank is one of this host that lives or has recorded its end: none of them was lost."""
        if world_size is None or world_size > _FEW_RANKS:
            return False
        beats = [beat for beat in read_ranks(self._folder, host=host_name()) if isinstance(beat, RankBeat)]
        ours = {beat.rank for beat in beats if (beat.attempt_key, beat.host) == (self._key, host_name())}
        return ours >= set(range(world_size))

    def _crash(self) -> Crash | None:
        found = (read_crash(path) for path in traces(self._folder))
        ours = (crash for crash in found if crash and crash.attempt_key == self._key and crash.rank != self._rank)
        return min(ours, key=lambda crash: crash.time, default=None)


def find_dead_neighbour(folder: Path, key: str, rank: int) -> RankBeat | None:
    """Return a rank of the attempt `key` on this host whose process is gone and which is recorded as running.

    Only the file of this host is read, and those of neighbours of `rank`.
    """
    neighbours = range(max(0, rank - _NEIGHBOURS), rank + _NEIGHBOURS + 1)
    for beat in read_ranks(folder, ranks=neighbours, host=host_name()):
        if (
            isinstance(beat, RankBeat)
            and beat.rank != rank
            and (beat.attempt_key, beat.host, beat.status) == (key, host_name(), "running")
            and beat.pid is not None
            and not process_lives(beat.pid)
        ):
            return beat
    return None


def is_cancellation(exc: BaseException) -> bool:
    """Whether the caller of the loop stopped it: a cancelled task or a closed generator.

    How the caller ends decides the outcome then.
    """
    # Compared by name: asyncio and trio need not be installed or loaded.
    return isinstance(exc, GeneratorExit) or (
        not isinstance(exc, Exception) and type(exc).__name__ in {"CancelledError", "Cancelled"}
    )


def _traceback(exc: BaseException) -> str | None:
    import traceback  # noqa: PLC0415  # loaded before by the recorder

    try:
        return "".join(traceback.format_exception(type(exc), exc, exc.__traceback__))
    except Exception:  # noqa: BLE001  # a traceback that cannot be formatted must not hide the failure itself
        return None
