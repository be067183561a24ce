"""`trainwarden heartbeat` and `trainwarden phase`: a shell script's run lives, made this step, is in this phase."""

from __future__ import annotations

import os
import time

from trainwarden.record.folder import METADATA, PHASES, PROGRESS
from trainwarden.record.metadata import VERSION, Metadata
from trainwarden.record.progress import Progress
from trainwarden.record.rank import RankBeat, rank_file, read_rank
from trainwarden.record.steps import StepCounter, is_nonfinite
from trainwarden.shell.arguments import Flag, Misuse, metric, number, parse, whole
from trainwarden.shell.attempt import values_of_attempt
from trainwarden.shell.command import OPTIONS, NotRecorded, change_record, command_context, publish, run

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from trainwarden.shell.command import CommandContext

HEARTBEAT_USAGE = """\
usage: trainwarden heartbeat [--run-id ID] [--step N] [--total-steps N] [--loss X] [--learning-rate X] [--grad-norm X]
                             [--epoch X] [--tokens-per-second X] [--samples-per-second X] [--metric NAME=X]...
                             [--runs-dir DIR] [--strict]

Records that the run lives and, with --step, that its loop has made that step. Where nothing can be recorded it prints
why and ends with status 0, because a training must not end for want of a heartbeat; with --strict it ends with 1. 2 is
misuse.
"""
PHASE_USAGE = f"""\
usage: trainwarden phase NAME [--run-id ID] [--runs-dir DIR] [--strict]

Records what the run does now: {", ".join(PHASES)}. Each has its own stall budget.
Where nothing can be recorded it prints why and ends with status 0; with --strict it ends with 1. 2 is misuse.
"""
_VALUES = {
    "--step": whole,
    "--total-steps": whole,
    "--loss": number,
    "--learning-rate": number,
    "--grad-norm": number,
    "--epoch": number,
    "--tokens-per-second": number,
    "--samples-per-second": number,
    "--metric": metric,
}
# Options whose value is that of a key of `progress.json`.
_PLAIN = ("total-steps", "loss", "learning-rate", "grad-norm", "epoch", "tokens-per-second", "samples-per-second")
# Keys of `progress.json` that hold across attempts.
_OF_THE_RUN = ("total_steps", "high_water", "steps_completed", "nonfinite", "checkpoint", "checkpoints")
# The phases that the first step ends; a run that has shown no step yet is idle.
_BEFORE_TRAINING = ("init", "compile", "load", "idle")
_INFINITY = float("inf")


def heartbeat(arguments: list[str]) -> int:
    """Record that the run lives, and its step; returns the exit status."""

    def body() -> list[str]:
        options, others = parse(arguments, {**OPTIONS, **_VALUES, "--strict": Flag})
        if others:
            raise Misuse(f"{others[0]!r}: only options were expected")
        report = {name: value for name, value in options.items() if f"--{name}" in _VALUES}
        context = command_context(options, os.environ)
        return publish(context, record_life(context, report=report), strict="strict" in options)

    return run("heartbeat", HEARTBEAT_USAGE, body, lenient="--strict" not in arguments)


def phase(arguments: list[str]) -> int:
    """Record the phase of the run; returns the exit status."""

    def body() -> list[str]:
        options, others = parse(arguments, {**OPTIONS, "--strict": Flag})
        name = others[0].strip().lower() if others else ""
        name = "train" if name == "training" else name
        if len(others) != 1 or name not in PHASES:
            raise Misuse(f"{' '.join(others)!r}: one phase was expected, of {', '.join(PHASES)}")
        context = command_context(options, os.environ)
        return publish(context, record_life(context, phase=name), strict="strict" in options)

    return run("phase", PHASE_USAGE, body, lenient="--strict" not in arguments)


def record_life(
    context: CommandContext, *, phase: str | None = None, report: Mapping[str, Any] | None = None
) -> list[str]:
    """Write that the run lives, its phase and its step; begin the attempt where the record does not list it.

    Args:
        context: of the command.
        phase: that the run is in; as before if None.
        report: values of options of `trainwarden heartbeat`, by their names.

    Returns:
        The names of the files that were written.

    Raises:
        NotRecorded: the attempt is over, the record belongs to another process, or the folder cannot be written.
    """
    write = _write_run if context.rank == 0 else _write_rank
    return change_record(context, lambda: write(context, phase, report or {}))


def _write_run(context: CommandContext, phase: str | None, report: Mapping[str, Any]) -> list[str]:
    values = values_of_attempt(context)
    metadata = Metadata.from_json(values)
    if not metadata.is_live:
        raise NotRecorded(f"{context.folder}: this attempt is over: {metadata.status}")
    now = time.time()
    if phase is None:
        # A run that shows no steps is idle: it may stand still for ever.
        phase = "idle" if (metadata.status, metadata.phase) == ("pending", "init") else metadata.phase or "idle"
        phase = "train" if "step" in report and phase in _BEFORE_TRAINING else phase
    changes = Metadata(status="running", last_update=now)
    if phase != metadata.phase:
        changes = changes.replace(phase=phase, phase_time=now)
    written = [METADATA]
    if report:
        before = context.store.values(PROGRESS)
        kept, progress = advance(before, report, str(context.key), metadata.attempt or 0, now)
        context.store.update(PROGRESS, kept, progress)
        written.append(PROGRESS)
    context.store.update(METADATA, _with_first_step(values, report), changes)
    return written + _write_rank(context, phase, report)


def _with_first_step(values: dict[str, Any], report: Mapping[str, Any]) -> dict[str, Any]:
    attempts = values.get("attempts")
    last = attempts[-1] if isinstance(attempts, list) and attempts else None
    if "step" in report and isinstance(last, dict) and last.get("key") == values.get("attempt_key"):
        # Set in place, to keep the keys of other tools in it.
        last.setdefault("resume_step", report["step"])
    return values


def advance(
    values: Mapping[str, Any], report: Mapping[str, Any], key: str, attempt: int, now: float
) -> tuple[dict[str, Any], Progress]:
    """Return what a report changes in `progress.json`: the values that are kept, and the new fields.

    Args:
        values: of the file as it was, of whichever attempt; empty if there is none.
        report: values of options of `trainwarden heartbeat`, by their names.
        key: of the attempt.
        attempt: its number.
        now: Unix seconds.
    """
    before = Progress.from_json(values)
    is_same = before.attempt_key == key
    kept = {name: value for name, value in values.items() if is_same or name in _OF_THE_RUN}
    steps = StepCounter.of_attempt(before) if is_same else StepCounter.of_run(before)
    fields: dict[str, Any] = {name.replace("-", "_"): _finite(report[name]) for name in _PLAIN if name in report}
    if report.get("metric"):
        metrics = {name: _finite(value) for name, value in report["metric"].items()}
        fields["metrics"] = {**(before.metrics if is_same else {}), **metrics}
    steps.nonfinite += is_nonfinite(report.get("loss"), report.get("grad-norm"))
    progress = Progress(version=VERSION, attempt=attempt, attempt_key=key, nonfinite=steps.nonfinite)
    if "step" in report:
        steps.advance(report["step"], now)
        progress = progress.replace(last_updated=now, attempt_high=steps.attempt_high, **steps.as_fields())
    return kept, progress.replace(**fields)


def _write_rank(context: CommandContext, phase: str | None, report: Mapping[str, Any]) -> list[str]:
    name = rank_file(context.rank)
    known = read_rank(context.folder, context.rank, key=str(context.key), host=context.host)
    before = known if isinstance(known, RankBeat) else RankBeat(rank=context.rank)
    if before.status not in (None, "running"):
        raise NotRecorded(f"{context.folder}/{name}: this rank is over: {before.status}")
    last = before.phase or "idle"
    beat = RankBeat(
        rank=context.rank,
        step=report.get("step", before.step),
        phase=phase or ("train" if "step" in report and last in _BEFORE_TRAINING else last),
        status="running",
        time=time.time(),
        host=context.host,
        # Of the process that stands for the rank all the time; a command like this one is gone at once.
        pid=before.pid if before.host == context.host else None,
        attempt_key=str(context.key),
    )
    context.store.write(name, beat)
    return [name]


def _finite(value: float) -> float | None:
    return value if -_INFINITY < value < _INFINITY else None
