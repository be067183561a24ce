"""How a job ended, by its scheduler first, and by the end of its log where the scheduler names no cause."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

from trainwarden.exec.outcome import command_outcome
from trainwarden.failures.judge import STEPS_THAT_PROVE_LIFE
from trainwarden.failures.records import cause_in
from trainwarden.record.store import UNKNOWN_END
from trainwarden.signals.progress.rises import last_rises
from trainwarden.taxonomy import FAILURES
from trainwarden.training.outcome import SUCCEEDED, AttemptOutcome

if TYPE_CHECKING:
    from trainwarden.clients.ray import RayJob
    from trainwarden.clients.slurm.jobs import SlurmJob
    from trainwarden.exec.tail import Tail
    from trainwarden.failures.judge import Evidence

# States of a job that are no failure of its training: the reason, and the slug of the taxonomy.
_NO_FAILURES = {
    "cancelled": ("cancelled through the scheduler", "cancelled"),
    "timeout": ("time limit", "time_limit"),
    "deadline": ("time limit", "time_limit"),
    "preempted": ("preempted", "preempted"),
}
# What slurmstepd writes into the log of a job that is ended for these reasons.
_REASONS = {slug: reason for reason, slug in _NO_FAILURES.values()}
_REQUEUE_SIGNAL = "slurm_requeue"
REQUEUED = "requeued"
_FAILURES = {"node_fail": "node_fail", "boot_fail": "node_fail", "out_of_memory": "host_oom"}
# By the scheduler's accounting: it may be wrong where the scheduler does not list the job, and nothing follows.
_LIVE = frozenset(("pending", "running", "suspended", "requeued", "resizing"))
_MESSAGE = 500
_REQUESTS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)


def slurm_outcome(job: SlurmJob, tail: Tail) -> AttemptOutcome:
    """Return how a job ended that has one of the states of `ENDED_STATES`."""
    if job.end == "completed":
        return SUCCEEDED
    if job.end in _NO_FAILURES:
        reason, slug = _NO_FAILURES[job.end]
        return AttemptOutcome("cancelled", reason, FAILURES[slug])
    if job.end in _FAILURES:
        reason = f"SLURM ended job {job.job_id} as {job.end.upper()}"
        return AttemptOutcome("failed", reason, FAILURES[_FAILURES[job.end]])
    return status_outcome(job.exit_code or 0, job.exit_signal or 0, tail)


def ray_outcome(job: RayJob, tail: Tail) -> AttemptOutcome:
    """Return how a job of Ray ended that is neither pending nor running."""
    if job.state == "succeeded":
        return SUCCEEDED
    if job.state == "stopped":
        return AttemptOutcome("cancelled", "stopped through Ray", FAILURES["cancelled"])
    if job.exit_code is None:
        # Its entrypoint never ran, or what runs it was lost.
        reason = f"Ray ended job {job.submission_id}: {(job.error_type or 'unknown').upper()}"
        return log_outcome(tail) or AttemptOutcome("failed", reason, FAILURES[UNKNOWN_END])
    code = int(job.exit_code)
    return status_outcome(max(code, 0), max(-code, 0), tail)


def status_outcome(code: int, number: int, tail: Tail) -> AttemptOutcome:
    """Return how a batch script ended that failed, by its exit code, or the signal that ended it, and its log.

    A script that was asked to end by none of the scheduler's states was ended by a launcher, most often because a rank
    elsewhere had failed: that is a failure, of unknown cause if the log names none.
    """
    ended_by = (code or 128 + number) - 128
    if ended_by in _REQUESTS:
        name = signal.Signals(ended_by).name
        return log_outcome(tail) or AttemptOutcome(
            "failed", f"its script was ended by {name}, and its log names no cause", FAILURES[UNKNOWN_END]
        )
    cause = _cause(tail)
    if ended_by == signal.SIGKILL and cause is not None and (cause.failure, cause.role) == ("host_oom", "root"):
        # Of what the OOM killer did SLURM may show the SIGKILL alone.
        reason = f"its script was ended by SIGKILL; {cause.source.text.strip()[:_MESSAGE]}"
        return AttemptOutcome("failed", reason, FAILURES["host_oom"], exit_code=128 + signal.SIGKILL)
    return command_outcome(-number if number else code or 1, tail)


def log_outcome(tail: Tail) -> AttemptOutcome | None:
    """Return how the log shows at its end that the training ended; None where it shows nothing.

    A log that ends with slurmstepd's report of a cancellation, a requeue, a preemption or a time limit is no failure's.
    """
    cause = _cause(tail)
    if cause is None:
        return None
    if cause.failure in _REASONS:
        reason = REQUEUED if cause.source.signal == _REQUEUE_SIGNAL else _REASONS[cause.failure]
        return AttemptOutcome("cancelled", reason, FAILURES[cause.failure])
    return command_outcome(1, tail)


def _cause(tail: Tail) -> Evidence | None:
    text = tail.text()
    return cause_in(text, last_rises(f"{text}\n".encode(), STEPS_THAT_PROVE_LIFE))


def lost_outcome(state: str, tail: Tail) -> AttemptOutcome | None:
    """Return how a job ended that the scheduler no longer lists.

    Args:
        state: of it by the scheduler's accounting, such as `OUT_OF_MEMORY`; empty where there is none.
        tail: the end of its log.

    Returns:
        None where neither shows how: that it is gone is no failure.
    """
    state = state.lower()
    if state in _LIVE:
        return None
    if state == "completed":
        return SUCCEEDED
    if state in _NO_FAILURES:
        reason, slug = _NO_FAILURES[state]
        return AttemptOutcome("cancelled", reason, FAILURES[slug])
    if state in _FAILURES:
        return AttemptOutcome("failed", f"SLURM ended the job as {state.upper()}", FAILURES[_FAILURES[state]])
    found = log_outcome(tail)
    return command_outcome(1, tail) if found is None and state == "failed" else found
