"""How the scheduler ended a job whose ranks recorded only that they, or their peers, were ended from outside."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from trainwarden.record.store import UNKNOWN_END
from trainwarden.taxonomy import FAILURES

if TYPE_CHECKING:
    from trainwarden_exporter.collectors.runs.record import FailureVerdict, RunRecord
    from trainwarden_exporter.core.shared_state import JobEnd, SharedState

# How much the clocks of a node and of slurmctld may differ.
_SKEW_SECONDS = 10.0
# A job is read every 30 s, and its processes have `KillWait`, 30 s, to end.
WAIT_SECONDS = 90.0
# What is no failure of the training, and the reason for it.
_REASONS = {
    "cancelled": "cancelled through the scheduler",
    "timeout": "time limit",
    "deadline": "time limit",
    "preempted": "preempted",
}
_FAILURES = {"node_fail": "node_fail", "boot_fail": "node_fail", "out_of_memory": "host_oom"}


class SchedulerEnds:
    """Decides what an end of unknown cause was.

    Args:
        shared: has the ends of jobs.
        wait: seconds that such an end is held back until its scheduler has ended the job.
    """

    def __init__(self, shared: SharedState, wait: float = WAIT_SECONDS) -> None:
        self._shared = shared
        self._wait = wait

    def is_awaited(self, record: RunRecord, verdict: FailureVerdict, now: float) -> bool:
        """Return whether the scheduler may still name how the attempt was ended.

        The failure of a peer is not held back: most often it is one, and it is shown at once.
        """
        ends, key = self._shared.ended_jobs, record.attempt_key or ""
        if verdict.failure != UNKNOWN_END or ends is None or not key.startswith("slurm:") or key in ends:
            return False
        return verdict.time is not None and 0 <= now - verdict.time < self._wait

    def applied(self, record: RunRecord, verdict: FailureVerdict) -> tuple[RunRecord, FailureVerdict | None]:
        """Return the record and its verdict with what the scheduler states; unchanged where it names no cause."""
        end = (self._shared.ended_jobs or {}).get(record.attempt_key or "")
        if end is None or record.metadata is None:
            return record, verdict
        by_signal = verdict.failure == UNKNOWN_END
        if (reason := _REASONS.get(end.state)) and (by_signal or self._followed(verdict, end)):
            metadata = record.metadata.replace(status="cancelled", reason=reason)
            return replace(record, error=None, metadata=metadata), None
        failure = FAILURES.get(_FAILURES.get(end.state, ""))
        if failure is None or not by_signal:
            return record, verdict
        return record, replace(
            verdict,
            error_type=failure.error_type,
            failure=failure.slug,
            subsystem=failure.subsystem,
            severity=failure.severity,
            message=f"{verdict.message}; SLURM: {end.state.upper()}",
            hint=failure.hint,
        )

    def _followed(self, verdict: FailureVerdict, end: JobEnd) -> bool:
        """Return whether a rank lost its peers because the job was being ended: some ranks end before others."""
        known = FAILURES.get(verdict.failure)
        if known is None or not known.cascade or verdict.time is None or end.time is None:
            return False
        return -_SKEW_SECONDS <= verdict.time - end.time <= self._wait
