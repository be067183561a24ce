"""`trainwarden status RUN`: how one run is, from its record alone; once, or as long as somebody watches."""

from __future__ import annotations

import argparse
import json
import sys
import time

from trainwarden.command_line import CommandLine
from trainwarden.errors import UsageError
from trainwarden.redaction import label_text, name_text, plain
from trainwarden.runs.arguments import add_stale_argument, interval_seconds, stale_seconds
from trainwarden.runs.assessment import ENDED, UNKNOWN, Assessment, assess, eta_seconds, gpus_document, ranks_document
from trainwarden.runs.places import (
    CannotRead,
    RecordFolder,
    RecordPrefix,
    add_place_arguments,
    fetch_run,
    open_place,
)
from trainwarden.runs.table import age_text, duration_text, number_text, shown, write

_INTERVAL_SECONDS = 5.0
_CLEAR = "\033[H\033[2J"
_WIDTH = 12


def main(argv: list[str]) -> int:
    """Print it. Return 0 if the run is well, 1 if not, 2 for misuse, 3 if that cannot be read."""
    parser = CommandLine(
        prog="trainwarden status",
        description="Show how a run is, from its record alone.",
        epilog="exit status: 0 it runs or has succeeded; 1 it failed, timed out, stands still or is degraded; "
        "2 misuse, or no such run; 3 cannot tell",
    )
    parser.add_argument("run", metavar="RUN", help="the run's id; `trainwarden runs` lists them")
    add_place_arguments(parser)
    parser.add_argument("--once", action="store_true", help="print it once; the default unless a person watches")
    parser.add_argument(
        "--interval",
        type=interval_seconds,
        help="print it again so often, until it ends (in a terminal: 5 s)",
    )
    add_stale_argument(parser)
    parser.add_argument("--json", action="store_true", help="print one object a look")
    arguments = parser.parse_args(argv)
    try:
        with open_place(arguments) as place:
            return _show(place, arguments)
    except UsageError as error:
        parser.error(plain(str(error)))
    except CannotRead as error:
        print(f"trainwarden status: {plain(str(error))}", file=sys.stderr)
        return 2 if error.is_final else 3
    return 2


def _show(place: RecordFolder | RecordPrefix, arguments: argparse.Namespace) -> int:
    is_live = sys.stdout.isatty() and not arguments.json
    interval = arguments.interval or (_INTERVAL_SECONDS if is_live else None)
    stale = stale_seconds(arguments)
    while True:
        folder = fetch_run(place, arguments.run)
        run = assess(folder, time.time(), stale, fetched=isinstance(place, RecordPrefix), run_id=arguments.run)
        if arguments.json:
            print(json.dumps(run.to_json() | {"record": place.where(arguments.run)}), flush=True)
        else:
            write((_CLEAR if is_live and not arguments.once else "") + status_text(run, place.where(arguments.run)))
        if arguments.once or interval is None or run.status in ENDED:
            return exit_status(run)
        time.sleep(interval)


def exit_status(run: Assessment) -> int:
    """Return the exit status for a run."""
    if run.is_bad:
        return 1
    return 3 if run.status == UNKNOWN else 0


def status_text(run: Assessment, where: str) -> str:
    """Return what people read: the state on the first line, then a name and a text a line."""
    metadata = run.metadata
    state = "STALLED" if run.stall_seconds is not None and run.status == "RUNNING" else run.status
    first = "  ".join(part for part in (run.run_id, state, run.phase) if part)
    stood = run.stall_seconds
    lines = [
        ("Reason", run.reason or (f"no new step for {duration_text(stood)}" if stood is not None else "")),
        ("Do", run.action),
        ("Step", _step(run)),
        ("Loss", _loss(run)),
        ("Speed", _speed(run)),
        ("Heartbeats", _heartbeats(run)),
        ("Attempt", _attempt(run)),
        ("Duration", duration_text(run.duration_seconds) if run.duration_seconds is not None else ""),
        ("Ranks", _ranks(run)),
        ("GPUs", _gpus(run)),
        ("Checkpoint", _checkpoint(run)),
        ("Model", label_text(metadata.model, 128) if metadata and metadata.model else ""),
        ("Last log", run.last_log or ""),
        ("Record", where),
        *(("Note", note) for note in run.notes),
    ]  # fmt: skip
    told = [f"{name:<{_WIDTH}}{shown(text)}" for name, text in lines if text]
    return "\n".join((shown(first), *told)) + "\n"


def step_text(run: Assessment) -> str:
    """Return step and last step of a run."""
    progress = run.progress
    if progress is None or progress.step is None:
        return "-"
    return str(progress.step) + (f"/{progress.total_steps}" if progress.total_steps is not None else "")


def _step(run: Assessment) -> str:
    progress = run.progress
    if progress is None or progress.step is None:
        return ""
    parts = [step_text(run)]
    if progress.total_steps:
        parts.append(f"{100 * progress.step / progress.total_steps:.1f} %")
    left = eta_seconds(run)
    if left is not None and left > 0:
        parts.append(f"{duration_text(left)} left")
    if progress.epoch is not None:
        parts.append(f"epoch {progress.epoch:g}")
    return ", ".join(parts)


def _loss(run: Assessment) -> str:
    progress = run.progress
    if progress is None or progress.loss is None:
        return ""
    more = [("learning rate", progress.learning_rate), ("gradient norm", progress.grad_norm)]
    return ", ".join(
        (number_text(progress.loss), *(f"{name} {number_text(value)}" for name, value in more if value is not None))
    )


def _speed(run: Assessment) -> str:
    progress = run.progress
    if progress is None:
        return ""
    rates = [("tokens/s", progress.tokens_per_second), ("samples/s", progress.samples_per_second)]
    return ", ".join(f"{number_text(value)} {name}" for name, value in rates if value is not None)


def _heartbeats(run: Assessment) -> str:
    ages = [("metadata", run.metadata_age), ("progress", run.progress_age)]
    known = [f"{name} {age_text(age)}" for name, age in ages if age is not None]
    return ", ".join(known) + f" (stale after {duration_text(run.stale_seconds)})" if known else ""


def _attempt(run: Assessment) -> str:
    metadata = run.metadata
    if metadata is None:
        return ""
    host = name_text(metadata.host, 128) if metadata.host else run.instance_id
    parts = [None if run.attempt is None else str(run.attempt), run.attempt_key, host and f"on {host}"]
    return ", ".join(part for part in parts if part)


def _ranks(run: Assessment) -> str:
    found = ranks_document(run)
    if found is None:
        return ""
    text = str(found["count"]) + (f" on {found['hosts']} hosts" if (found["hosts"] or 0) > 1 else "")
    if behind := found["behind"]:
        text += f"; rank {behind['rank']} is behind, at step {behind['step']}"
        text += f", on {behind['host']}" if behind["host"] else ""
    if silent := found["silent"]:
        text += f"; silent: {', '.join(map(str, silent[:8]))}{' …' if len(silent) > 8 else ''}"
    return text


def _checkpoint(run: Assessment) -> str:
    saved = run.progress.checkpoint if run.progress else None
    if saved is None:
        return ""
    parts = [None if saved.step is None else f"step {saved.step}"]
    parts.append(None if saved.time is None else age_text(run.time - saved.time))
    parts.append(label_text(saved.path, 300))
    return ", ".join(part for part in parts if part)


def _gpus(run: Assessment) -> str:
    found = gpus_document(run)
    if found is None:
        return ""
    text = f"{found['count']} x {found['type'] or 'GPU'}" if found["count"] is not None else ""
    taken = [f"{each['bytes'] / 2**30:.1f} GiB of rank {each['rank']}'s" for each in found["taken"][:8]]
    if taken:
        more = " …" if len(found["taken"]) > 8 else ""
        text += f"{'; ' if text else ''}before the training other processes used {', '.join(taken)}{more}: nvidia-smi"
    return text
