"""The attempts of a run as its record keeps them: summaries, the list of attempts, the journal of events."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainwarden.record.clock import to_iso
from trainwarden.record.document import JsonObject, read_json
from trainwarden.record.folder import SUMMARY
from trainwarden.redaction import label_text
from trainwarden.runs.journal import read_events

if TYPE_CHECKING:
    from trainwarden.runs.assessment import Assessment

_MAX_ATTEMPTS = 1000
_STATUSES = {"completed": "SUCCEEDED", "failed": "FAILED", "cancelled": "CANCELLED"}


@dataclass(frozen=True)
class AttemptHistory:
    """One attempt; what is unknown is None. Times are Unix seconds.

    Attributes:
        steps: how many it made.
        tokens_per_second: mean over the attempt, as `samples_per_second`; of one that runs, of the last seconds.
        gpus: how many it held.
    """

    attempt: int
    attempt_key: str | None = None
    status: str | None = None
    start_time: float | None = None
    end_time: float | None = None
    duration_seconds: float | None = None
    steps: int | None = None
    final_step: int | None = None
    loss: float | None = None
    tokens_per_second: float | None = None
    samples_per_second: float | None = None
    errors: int | None = None
    failure: str | None = None
    gpus: int | None = None

    @property
    def steps_per_second(self) -> float | None:
        """Steps by duration."""
        return None if self.steps is None or not self.duration_seconds else self.steps / self.duration_seconds

    @property
    def gpu_hours(self) -> float | None:
        """GPUs by duration."""
        return None if self.gpus is None or self.duration_seconds is None else self.gpus * self.duration_seconds / 3600

    def to_json(self, gpu_hour_dollars: float) -> dict[str, Any]:
        """Return it as JSON; null is unknown."""
        hours = self.gpu_hours
        return {
            **vars(self),
            "start_time": None if self.start_time is None else to_iso(self.start_time),
            "end_time": None if self.end_time is None else to_iso(self.end_time),
            "steps_per_second": self.steps_per_second,
            "gpu_hours": hours,
            "cost_dollars": None if hours is None else hours * gpu_hour_dollars,
        }


def attempts_of(folder: Path, run: Assessment, gpus: int | None = None) -> list[AttemptHistory]:
    """Return the attempts of the record in `folder`, the oldest first.

    Args:
        folder: of the record, with its history.
        run: how the run is now.
        gpus: that each attempt held; what the record shows if None.
    """
    found: dict[int, AttemptHistory] = {}
    summaries = {}
    for path in [folder / SUMMARY, *folder.glob("summary.*.json")][:_MAX_ATTEMPTS]:
        source = read_json(path)
        number = source.integer("attempt") if isinstance(source, JsonObject) else None
        if isinstance(source, JsonObject):
            summaries[number or 0] = source
    known_gpus = gpus or _gpus(run, summaries.values())
    metadata = run.metadata
    for listed in metadata.attempts if metadata else ():
        found[listed.attempt] = AttemptHistory(listed.attempt, listed.key, start_time=listed.start_time)
    _add_events(folder, found)
    for number, source in summaries.items():
        found[number] = _summed_up(found.get(number, AttemptHistory(number)), source)
    present = run.attempt or 0
    if present not in summaries:
        found[present] = _running(found.get(present, AttemptHistory(present)), run)
    ordered = [found[number] for number in sorted(found)]
    return [replace(each, gpus=known_gpus) for each in _own_steps(ordered)]


def _summed_up(known: AttemptHistory, source: JsonObject) -> AttemptHistory:
    training = source.child("training") or JsonObject({})
    errors = source.values.get("errors")
    final_loss = training.number("final_loss")
    status = training.text("status") or ""
    return replace(
        known,
        attempt_key=_text(source.text("attempt_key")) or known.attempt_key,
        status=_STATUSES.get(status, label_text(status, 20).upper() or None),
        start_time=training.time("start_time") or known.start_time,
        end_time=training.time("end_time"),
        duration_seconds=training.number("duration_seconds"),
        steps=training.integer("steps_completed"),  # over the run; `_own_steps` makes it the attempt's own
        final_step=training.integer("final_step"),
        loss=training.number("final_metric") if final_loss is None else final_loss,
        tokens_per_second=training.number("tokens_per_second"),
        samples_per_second=training.number("samples_per_second"),
        errors=len(errors) if isinstance(errors, list) else None,
        failure=_text(training.text("failure") or (training.text("reason") if status == "failed" else None)),
    )


def _running(known: AttemptHistory, run: Assessment) -> AttemptHistory:
    """Return the attempt that has left no summary: it runs, or was killed."""
    metadata, progress = run.metadata, run.progress
    start = known.start_time or (metadata and (metadata.attempt_start_time or metadata.start_time)) or None
    ended = metadata.end_time if metadata and not metadata.is_live else None
    until = ended if ended is not None else run.last_sign
    return replace(
        known,
        attempt_key=run.attempt_key or known.attempt_key,
        status=run.status,
        start_time=start,
        end_time=ended,
        duration_seconds=None if start is None or until is None else max(0.0, until - start),
        steps=progress.steps_completed if progress else None,
        final_step=progress.step if progress else None,
        loss=progress.loss if progress else None,
        tokens_per_second=progress.tokens_per_second if progress else None,
        samples_per_second=progress.samples_per_second if progress else None,
        failure=run.failure or known.failure,
    )


def _add_events(folder: Path, found: dict[int, AttemptHistory]) -> None:
    """Complete attempts that left no summary from the journal: when they began, and how they were lost."""
    for when, event, data in read_events(folder, ("training_started", "attempt_lost")):
        number = data.integer("attempt")
        if number is None or number >= _MAX_ATTEMPTS:
            continue
        known = found.get(number, AttemptHistory(number))
        if event == "training_started":
            found[number] = replace(
                known, start_time=known.start_time or when, attempt_key=_text(data.text("attempt_key"))
            )
        elif event == "attempt_lost":
            error = data.child("error")
            last = data.time("last_update")
            start = known.start_time
            found[number] = replace(
                known,
                status="FAILED" if error else "LOST",
                end_time=last,
                duration_seconds=None if last is None or start is None else max(0.0, last - start),
                final_step=data.integer("step"),
                failure=_text(error.text("failure") or error.text("message")) if error else "no end recorded",
            )


def _own_steps(attempts: list[AttemptHistory]) -> list[AttemptHistory]:
    """Return the attempts with the steps of each: records count them over the whole run."""
    own, before = [], 0
    for each in attempts:
        total = each.steps
        if total is None:
            own.append(each)
            continue
        own.append(replace(each, steps=max(0, total - before)))
        before = max(before, total)
    return own


def _gpus(run: Assessment, summaries: Any) -> int | None:
    """Return how many GPUs the run holds: ranks that name one, else every rank where PyTorch used a GPU."""
    with_gpu = sum(1 for rank in run.ranks if rank.gpu is not None or rank.uuid)
    if with_gpu:
        return with_gpu
    stats = [source.child("gpu_stats") for source in summaries]
    used = any(each is not None and (each.integer("samples") or 0) > 0 for each in stats)
    return run.metadata.world_size if used and run.metadata else None


def _text(text: str | None) -> str | None:
    return label_text(text, 200) if text else None
