"""How the scheduler ended a job whose ranks recorded only that they were ended from outside."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from trainwarden.record.store import UNKNOWN_END
from trainwarden.taxonomy import FAILURES

if TYPE_CHECKING:
    from trainwarden_exporter.collectors.runs.record import FailureVerdict, RunRecord
    from trainwarden_exporter.core.exchange import RunExchange

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
        exchange: has the ends of jobs.
        wait: seconds that such an end is held back until its scheduler has ended the job.
    """

    def __init__(self, exchange: RunExchange, wait: float = WAIT_SECONDS) -> None:
        self._exchange = exchange
        self._wait = wait

    def is_awaited(self, record: RunRecord, verdict: FailureVerdict, now: float) -> bool:
        """Return whether the scheduler may still name how the attempt was ended."""
        ends, key = self._exchange.ended_jobs, record.attempt_key or ""
        if verdict.failure != UNKNOWN_END or ends is None or not key.startswith("slurm:") or key in ends:
            return False
        return verdict.time is not None and 0 <= now - verdict.time < self._wait

    def applied(self, record: RunRecord, verdict: FailureVerdict) -> tuple[RunRecord, FailureVerdict | None]:
        """Return the record and its verdict with what the scheduler states; unchanged where it names no cause."""
        end = (self._exchange.ended_jobs or {}).get(record.attempt_key or "", "")
        if verdict.failure != UNKNOWN_END or record.metadata is None:
            return record, verdict
        if reason := _REASONS.get(end):
            metadata = record.metadata.replace(status="cancelled", reason=reason)
            return replace(record, error=None, metadata=metadata), None
        failure = FAILURES.get(_FAILURES.get(end, ""))
        if failure is None:
            return record, verdict
        return record, replace(
            verdict,
            error_type=failure.error_type,
            failure=failure.slug,
            subsystem=failure.subsystem,
            severity=failure.severity,
            message=f"{verdict.message}; SLURM: {end.upper()}",
            hint=failure.hint,
        )
