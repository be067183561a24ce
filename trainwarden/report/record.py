"""The story of a run by its record alone."""

from __future__ import annotations

import itertools
import math
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from trainwarden.record.document import FileContent, JsonObject, read_file
from trainwarden.record.folder import ERRORS
from trainwarden.record.snapshot import read_snapshot
from trainwarden.redaction import label_text, redact
from trainwarden.report.story import (
    BAD,
    CALM,
    GOOD,
    TONES,
    WARN,
    Decision,
    Evidence,
    Line,
    Moment,
    Plot,
    Span,
    Story,
    clock_text,
)
from trainwarden.runs.assessment import ENDED, Assessment
from trainwarden.runs.attempts import AttemptHistory, attempts_of
from trainwarden.runs.journal import MAX_JOURNAL_BYTES, Event, parsed_line, read_events
from trainwarden.runs.places import log_tail
from trainwarden.runs.status import step_text
from trainwarden.runs.table import duration_text, number_text
from trainwarden.signals.progress import ProgressReader
from trainwarden.taxonomy import FAILURES

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_LOG_BYTES = 2 * 2**20
_LOG_LINES = 40
_MAX_ERRORS = 5
_MAX_MOMENTS = 200
_MEGABYTE = 1e6
_SKIPPED = frozenset(
    ("gpu_stats", "lines_dropped", "phase_changed", "checkpoint_digests", "progress_noted", "training_configuration")
)
# Events of the remediator in the journal, and the tone of each.
_DECISIONS = {
    "attempt_restarted": CALM,
    "attempt_resubmitted": CALM,
    "attempt_not_restarted": WARN,
    "person_needed": BAD,
}


def story_of_record(folder: Path, run: Assessment, gpus: int | None, gpu_hour_dollars: float) -> Story:
    """Return what the record in `folder` shows.

    Args:
        folder: of the record, with its history.
        run: how the run is now.
        gpus: that each attempt held; what the record shows if None.
        gpu_hour_dollars: the price of one GPU for one hour.
    """
    attempts = attempts_of(folder, run, gpus)
    status = "STALLED" if run.stall_seconds is not None and run.status == "RUNNING" else run.status
    start = min((each.start_time for each in attempts if each.start_time is not None), default=None)
    end = _end(run, attempts)
    story = Story(
        run_id=run.run_id,
        made=run.time,
        status=status,
        verdict=_verdict(run, status, attempts),
        tone=TONES.get(status, WARN),
        advice=run.action,
        start=start,
        end=end,
        facts=_facts(run, attempts),
        attempts=[_attempt_row(each) for each in attempts],
        costs=_costs(run, attempts, gpu_hour_dollars),
        evidence=_evidence(folder, run),
    )
    events = read_events(folder)
    until = end if end is not None else run.time
    story.spans = [*_attempt_spans(attempts, until), *_phase_spans(events, attempts, until)]
    story.moments = _moments(events)
    story.decisions = _decisions(events)
    story.plots = [*_plots_of_events(events, run), *_plots_of_log(folder)]
    story.missing = [*run.notes]
    return story


def verdict_of(status: str, restarts: int, reason: str) -> str:
    """Return the headline; of a success the reason is why it came before the last step."""
    again = "" if not restarts else f" after {restarts} restart{'s' if restarts > 1 else ''}"
    texts = {
        "SUCCEEDED": f"The run has succeeded{again}{reason and f': {reason}'}.",
        "RUNNING": f"The run goes on{again}.",
        "PENDING": "The run has not begun.",
        "CANCELLED": f"The run was cancelled{again}.",
        "STALLED": f"The process lives, and the step stands still{again}.",
        "TIMED_OUT": f"The run gives no sign of life any more{again}.",
    }
    return texts.get(status) or (f"{reason.removesuffix('.')}{again}." if reason else f"{status.lower()}{again}.")


def _verdict(run: Assessment, status: str, attempts: Sequence[AttemptHistory]) -> str:
    restarts = max(0, len(attempts) - 1)
    reason = run.reason.removeprefix("Error: ")
    if status == "FAILED":
        return verdict_of("FAILED", restarts, f"The run has failed: {reason}")
    if status == "SUCCEEDED":
        reason = "" if run.metadata is None else label_text(run.metadata.reason or "", 300)
    return verdict_of(status, restarts, reason)


def _end(run: Assessment, attempts: Sequence[AttemptHistory]) -> float | None:
    if run.status not in ENDED:
        return None if run.status in ("RUNNING", "PENDING") else run.last_sign
    return max((each.end_time for each in attempts if each.end_time is not None), default=run.last_sign)


def _facts(run: Assessment, attempts: Sequence[AttemptHistory]) -> list[tuple[str, str]]:
    progress, metadata = run.progress, run.metadata
    checkpoint = progress.checkpoint if progress else None
    facts = [
        ("Step", step_text(run)),
        ("Loss", number_text(progress.loss) if progress and progress.loss is not None else ""),
        ("Duration", duration_text(run.duration_seconds) if run.duration_seconds is not None else ""),
        ("Attempts", str(len(attempts))),
        ("Last checkpoint", f"step {checkpoint.step}" if checkpoint and checkpoint.step is not None else ""),
        ("Failure", run.failure or ""),
        ("Model", metadata.model if metadata and metadata.model else ""),
        ("Ranks", str(metadata.world_size) if metadata and metadata.world_size else ""),
        ("Scheduler and job", " ".join(filter(None, (metadata.scheduler, metadata.job_id))) if metadata else ""),
        ("Host of rank 0", metadata.host or "" if metadata else ""),
    ]
    return [(name, label_text(text, 300)) for name, text in facts if text]


def _attempt_row(each: AttemptHistory) -> Sequence[str]:
    return (
        str(each.attempt),
        each.status or "-",
        clock_text(each.start_time),
        duration_text(each.duration_seconds),
        "-" if each.steps is None else str(each.steps),
        number_text(each.loss),
        each.failure or "-",
    )


def _costs(run: Assessment, attempts: Sequence[AttemptHistory], gpu_hour_dollars: float) -> list[tuple[str, str]]:
    hours = [each.gpu_hours for each in attempts]
    busy = sum(each.duration_seconds or 0.0 for each in attempts)
    costs = [("Time in attempts", duration_text(busy))]
    down = [
        after.start_time - before.end_time
        for before, after in itertools.pairwise(attempts)
        if before.end_time is not None and after.start_time is not None
    ]
    if down:
        costs.append(("Time between attempts", duration_text(sum(max(0.0, each) for each in down))))
    resumed = {each.attempt: each.resume_step for each in run.metadata.attempts} if run.metadata else {}
    again = [
        before.final_step - step + 1
        for before, after in itertools.pairwise(attempts)
        if before.final_step is not None and (step := resumed.get(after.attempt)) is not None
    ]
    if again:
        costs.append(("Steps done twice", str(sum(max(0, each) for each in again))))
    if any(each is not None for each in hours):
        total = sum(each or 0.0 for each in hours)
        costs += [("GPU hours", number_text(total)), ("Price", f"{total * gpu_hour_dollars:.2f} $")]
    return costs


def _attempt_spans(attempts: Sequence[AttemptHistory], until: float) -> list[Span]:
    spans = []
    for each, following in zip(attempts, [*attempts[1:], None], strict=True):
        if each.start_time is None:
            continue
        end = each.end_time if each.end_time is not None else (following.start_time if following else None)
        tone = TONES.get(each.status or "", CALM)
        spans.append(Span("Attempts", f"attempt {each.attempt}", each.start_time, end or until, tone))
    return spans


def _phase_spans(events: Sequence[Event], attempts: Sequence[AttemptHistory], until: float) -> list[Span]:
    spans: list[Span] = []
    changes = [(at, data.text("phase") or "?") for at, event, data in events if event == "phase_changed"]
    begun = [(at, "init") for at, event, _ in events if event == "training_started"]
    ends = [each.end_time for each in attempts if each.end_time is not None]
    marks = sorted([*changes, *begun])
    for (at, phase), following in zip(marks, [*marks[1:], None], strict=False):
        end = following[0] if following else until
        end = min([end, *(each for each in ends if at < each < end)])
        if phase not in ("done", "idle"):
            spans.append(Span("Phases", label_text(phase, 40), at, max(at, end), _PHASES.get(phase, CALM)))
    return spans


_PHASES = {"train": GOOD, "eval": CALM, "checkpoint": WARN}


def _moments(events: Sequence[Event]) -> list[Moment]:
    moments = []
    attempt = 0
    for at, event, data in events:
        if event in _SKIPPED:
            continue
        name = event.replace("_", " ")
        if event == "training_started":
            attempt = data.integer("attempt") or 0
            name = f"attempt {attempt} started"
            shown = [(key, data.values.get(key)) for key in ("framework", "model", "world_size", "total_steps")]
            text, tone = ", ".join(f"{key.replace('_', ' ')} {value}" for key, value in shown if value), CALM
        elif event == "checkpoint_saved":
            text, tone = f"step {data.values.get('step')}", CALM
        elif event in ("error", "attempt_lost"):
            child = data.child("error")
            text = data.text("error_message") or (child.text("message") if child else None) or "no end was recorded"
            text, tone = f"{data.text('exception_type') or ''} {text}".strip(), BAD
        elif event == "training_completed":
            name = f"attempt {attempt} ended"
            text, tone = ", ".join(filter(None, (data.text("status"), data.text("reason")))), CALM
        elif event in _DECISIONS:
            text, tone = data.text("reason") or "", _DECISIONS[event]
        else:
            simple = [(key, value) for key, value in data.values.items() if isinstance(value, str | int | float)]
            text, tone = ", ".join(f"{key} {value}" for key, value in simple[:6]), CALM
        moments.append(Moment(at, label_text(name, 60), label_text(text, 300), tone))
    # Saves are many; what else happened is not crowded out by them.
    saves = [each for each in moments if each.what == "checkpoint saved"]
    if len(moments) > _MAX_MOMENTS:
        dropped = set(map(id, saves[1:-1]))
        moments = [each for each in moments if id(each) not in dropped][-_MAX_MOMENTS:]
    return moments


def _decisions(events: Sequence[Event]) -> list[Decision]:
    return [
        Decision(
            f"{event.replace('_', ' ')}: {data.text('alert') or data.text('action') or ''}".removesuffix(": "),
            label_text(data.text("reason") or "", 500),
            time=at,
        )
        for at, event, data in events
        if event in _DECISIONS
    ]


def _plots_of_events(events: Sequence[Event], run: Assessment) -> list[Plot]:
    """Return what the journal keeps of the past: step, loss, throughput and GPU memory over time."""
    steps = _points(events, ("progress_noted", "checkpoint_saved", "attempt_lost"), "step")
    progress = run.progress
    if progress and progress.step is not None and (moved := progress.step_time or progress.last_updated):
        steps.append((moved, float(progress.step)))
    of_progress = partial(_points, events, ("progress_noted",))
    of_gpus = partial(_points, events, ("gpu_stats",), factor=_MEGABYTE)
    plots = [
        _plot("Step", "The step as the run noted it, ever more rarely, and at each save.", "", {"step": sorted(steps)}),
        _plot("Loss", "As the run noted it, ever more rarely.", "", {"loss": of_progress("loss")}),
        _plot("Throughput", "As the run noted it, ever more rarely.", "", {
            "tokens/s": of_progress("tokens_per_second"),
            "samples/s": of_progress("samples_per_second"),
        }),
        _plot("GPU memory of rank 0", "As PyTorch counts it, once a minute.", "bytes", {
            "allocated": of_gpus("allocated_mb"),
            "reserved": of_gpus("reserved_mb"),
            "peak": of_gpus("peak_allocated_mb"),
        }),
    ]  # fmt: skip
    return [plot for plot in plots if plot is not None]


def _points(events: Sequence[Event], names: Sequence[str], key: str, factor: float = 1.0) -> list[tuple[float, float]]:
    found = [(event.time, event.data.number(key)) for event in events if event.name in names]
    return [(at, value * factor) for at, value in found if value is not None]


def _plot(title: str, question: str, unit: str, values: Mapping[str, list[tuple[float, float]]]) -> Plot | None:
    lines = [Line(name, points) for name, points in values.items() if len(points) > 1]
    return Plot(title, question, unit, lines) if lines else None


def _plots_of_log(folder: Path) -> list[Plot]:
    """Return loss and throughput by step, as far as the output shows them."""
    values: dict[str, dict[float, float]] = {"loss": {}, "tokens/s": {}, "samples/s": {}}
    reader = ProgressReader()
    for line in log_tail(folder, _LOG_BYTES).splitlines(keepends=True):
        reader.feed(line)
        read = reader.progress()
        if read.step is None:
            continue
        found = {"loss": read.loss, "tokens/s": read.tokens_per_second, "samples/s": read.samples_per_second}
        for name, value in found.items():
            if value is not None and math.isfinite(value):
                values[name][float(read.step)] = value
    plots = []
    if len(values["loss"]) > 1:
        question = "As the output of the run shows it; a step that was repeated shows its last value."
        plots.append(Plot("Loss by step", question, "", [Line("loss", sorted(values["loss"].items()))], by_step=True))
    rates = [Line(name, sorted(values[name].items())) for name in ("tokens/s", "samples/s") if len(values[name]) > 1]
    if rates:
        plots.append(Plot("Throughput by step", "As the output of the run shows it.", "", rates, by_step=True))
    return plots


def _evidence(folder: Path, run: Assessment) -> list[Evidence]:
    found = []
    error = read_snapshot(folder).error if run.status == "FAILED" else None
    failure = FAILURES.get(run.failure or "")
    if failure is not None:
        lines = (f"{failure.slug}: {failure.error_type}, category {failure.category}", failure.hint)
        found.append(Evidence("Verdict", "\n".join(lines)))
    if error is not None:
        where = ", ".join(
            f"{name} {value}"
            for name, value in (("rank", error.rank), ("host", error.host), ("step", error.step))
            if value is not None
        )
        found.append(Evidence("What the run left in _error", redact(f"{where}\n{error.told}".strip())))
        if error.traceback:
            found.append(Evidence("Trace", redact(error.traceback)))
    for number, values in enumerate(_last_errors(folder)):
        text = f"{values.text('exception_type') or ''}: {values.text('error_message') or ''}"
        found.append(Evidence(f"Error {number + 1} of errors.jsonl, {values.text('timestamp') or ''}", redact(text)))
    tail = log_tail(folder, _LOG_BYTES).decode("utf-8", "replace").splitlines()[-_LOG_LINES:]
    if tail:
        found.append(Evidence("The last lines of the output", redact("\n".join(tail))))
    return found


def _last_errors(folder: Path) -> list[JsonObject]:
    content = read_file(folder / ERRORS, MAX_JOURNAL_BYTES)
    lines = content.data.splitlines()[-_MAX_ERRORS:] if isinstance(content, FileContent) else []
    return [JsonObject(values) for line in lines if isinstance(values := parsed_line(line), dict)]
