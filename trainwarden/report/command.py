"""`trainwarden report RUN`: one HTML page about a run, to look at, to keep and to send."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trainwarden.clients.prometheus import PrometheusClient, PrometheusError
from trainwarden.command_line import CommandLine
from trainwarden.errors import UsageError
from trainwarden.record.document import JsonObject, read_json
from trainwarden.record.folder import METADATA, replace_file
from trainwarden.redaction import label_text, plain
from trainwarden.report.measured import add_metrics, story_of_metrics, window
from trainwarden.report.page import html_page
from trainwarden.report.record import story_of_record
from trainwarden.report.story import BAD, CALM, WARN, Decision, Moment, Story
from trainwarden.report.timeline import Timeline, timeline
from trainwarden.runs.arguments import (
    GPU_HOUR_DOLLARS,
    add_stale_argument,
    gpu_count,
    gpu_price,
    service_url,
    stale_seconds,
)
from trainwarden.runs.assessment import assess
from trainwarden.runs.places import (
    CannotRead,
    RecordFolder,
    RecordPrefix,
    RunNotFound,
    add_place_arguments,
    fetch_run,
    open_place,
)
from trainwarden.runs.table import duration_text

_MAX_DECISIONS = 64 * 2**20
_TONES = {"escalate": BAD, "none": WARN}
_AROUND_SECONDS = 300.0


def main(argv: list[str]) -> int:
    """Write the page. Return 0 once it is written, 2 for misuse or no such run, 3 if that cannot be read."""
    parser = CommandLine(
        prog="trainwarden report",
        description="Write one HTML page about a run: what happened, was measured, decided and found, what it cost.",
        epilog="exit status: 0 the page is written, however the run is; 2 misuse, or no such run; 3 cannot tell",
    )
    parser.add_argument("run", metavar="RUN", help="the run's id; `trainwarden runs` lists them")
    add_place_arguments(parser)
    parser.add_argument(
        "--prometheus",
        type=service_url,
        metavar="URL",
        help="adds plots and alerts; without a record it is all there is",
    )
    parser.add_argument(
        "--decisions",
        metavar="FILE",
        help="adds decisions: what `trainwarden-remediator decisions --format json` printed, - reads it from a pipe",
    )
    parser.add_argument("--incident", metavar="ID", help="show only the time around this incident of --decisions")
    parser.add_argument("-o", "--output", type=Path, metavar="FILE", help="the page (default: RUN.html; - prints it)")
    parser.add_argument("--gpus", type=gpu_count, help="GPUs of the run, where its record does not show how many")
    parser.add_argument(
        "--gpu-hour-dollars", type=gpu_price, default=GPU_HOUR_DOLLARS, metavar="PRICE",
        help=f"of one GPU for one hour, where no Prometheus has it (default: {GPU_HOUR_DOLLARS:g})",
    )  # fmt: skip
    parser.add_argument("--json", action="store_true", help="print where the page is, the verdict and the status")
    add_stale_argument(parser)
    arguments = parser.parse_args(argv)
    output = arguments.output or Path(f"{arguments.run}.html")
    try:
        if arguments.json and str(arguments.output) == "-":
            raise UsageError("--json: expected --output FILE, not -, which prints the page")
        incidents = read_decisions(arguments.decisions, arguments.run) if arguments.decisions else []
        if arguments.incident and not any(_is(each, arguments.incident) for each in incidents):
            raise UsageError(f"--incident {arguments.incident}: --decisions has no such incident of {arguments.run}")
        with open_place(arguments) as place:
            page = _page(place, arguments, incidents)
        if str(output) == "-":
            sys.stdout.write(page.html)
            return 0
        write_page(output, page.html)
    except UsageError as error:
        parser.error(plain(str(error)))
    except OSError as error:
        parser.error(plain(f"--output {output}: {error.strerror}"))
    except (CannotRead, PrometheusError) as error:
        print(f"trainwarden report: {plain(str(error))}", file=sys.stderr)
        return 2 if isinstance(error, CannotRead) and error.is_final else 3
    path = str(output.absolute())
    print(json.dumps({"path": path, "verdict": page.verdict, "status": page.status}) if arguments.json else path)
    return 0


@dataclass(frozen=True)
class ReportPage:
    """The page, with its headline and the status of the run, as `trainwarden status` has it."""

    html: str
    verdict: str
    status: str


def report(
    folder: Path,
    *,
    prometheus: PrometheusClient | None = None,
    incidents: Sequence[Mapping[str, Any]] = (),
    where: str | None = None,
    fetched: bool = False,
    run_id: str | None = None,
    stale: float | None = None,
    gpus: int | None = None,
    gpu_hour_dollars: float = GPU_HOUR_DOLLARS,
    incident: str | None = None,
) -> ReportPage:
    """Return the page about the run whose record is in `folder`.

    Args:
        folder: of the record, with its history.
        prometheus: has the run's metrics.
        incidents: of the remediator about this run, as its API and `decisions --format json` have them.
        where: the record is, for people; the folder if None.
        fetched: whether the folder is a copy from elsewhere.
        run_id: the folder's name if None.
        stale: seconds after which a heartbeat is stale, as for `assess`.
        gpus: of the run, where its record does not show how many.
        gpu_hour_dollars: the price of one GPU for one hour.
        incident: its id, or its beginning: only the time around it is shown.
    """
    run = assess(folder, time.time(), stale, fetched=fetched, run_id=run_id)
    story = story_of_record(folder, run, gpus, gpu_hour_dollars)
    story.sources.append(f"the record {where or folder}")
    document = read_json(folder / METADATA)
    return _finished(
        story, prometheus, incidents, document.values if isinstance(document, JsonObject) else {}, incident
    )


def write_page(path: Path, page: str) -> None:
    """Write the page, as a whole or not at all. Raises OSError."""
    replace_file(path, page.encode("utf-8", "replace"))


def read_decisions(file: str, run_id: str) -> list[Mapping[str, Any]]:
    """Return the incidents of the run in a file of `decisions --format json`; raises UsageError."""
    expected = "the list that `trainwarden-remediator decisions --format json` prints"
    try:
        with sys.stdin if file == "-" else Path(file).open(encoding="utf-8") as stream:
            found = json.loads(stream.read(_MAX_DECISIONS))
    except OSError as error:
        raise UsageError(f"--decisions {file}: {error.strerror}") from None
    except (ValueError, RecursionError):
        raise UsageError(f"--decisions {file}: expected {expected}") from None
    if not isinstance(found, list) or not all(isinstance(each, dict) for each in found):
        raise UsageError(f"--decisions {file}: expected {expected}")
    return [each for each in found if each.get("run_id") == run_id]


def _page(
    place: RecordFolder | RecordPrefix, arguments: argparse.Namespace, incidents: Sequence[Mapping[str, Any]]
) -> ReportPage:
    client = PrometheusClient(arguments.prometheus) if arguments.prometheus else None
    try:
        folder = fetch_run(place, arguments.run, history=True)
    except (RunNotFound, CannotRead) as error:
        story = story_of_metrics(client, arguments.run, time.time()) if client else None
        if story is None:
            raise
        story.missing.append(str(error))
        return _finished(story, client, incidents, {}, arguments.incident)
    return report(
        folder,
        prometheus=client,
        incidents=incidents,
        where=place.where(arguments.run),
        fetched=isinstance(place, RecordPrefix),
        run_id=arguments.run,
        stale=stale_seconds(arguments),
        gpus=arguments.gpus,
        gpu_hour_dollars=arguments.gpu_hour_dollars,
        incident=arguments.incident,
    )


def _finished(
    story: Story,
    prometheus: PrometheusClient | None,
    incidents: Sequence[Mapping[str, Any]],
    record: Mapping[str, Any],
    incident: str | None,
) -> ReportPage:
    if prometheus is not None:
        add_metrics(story, prometheus)
        story.sources.append(f"Prometheus {prometheus.url}")
    else:
        story.missing.append("No Prometheus was given (--prometheus URL): alerts, and what was measured over time")
    if incidents:
        # The journal's lines about them are the same decisions, in fewer words.
        story.decisions = [_decision(each, record, prometheus) for each in incidents]
        story.course = [line for each in incidents for line in _course(each, record, prometheus)]
        story.sources.append("the decisions of the remediator")
        story.moments += [
            Moment(decision.time, decision.title, decision.reason, _TONES.get(str(each.get("action")), CALM))
            for decision, each in zip(story.decisions, incidents, strict=True)
            if decision.time is not None
        ]
    shown = window(story)
    if incident:
        times = [at for each in incidents if _is(each, incident) for at, _, _ in _steps(each)]
        shown = (
            (max(shown[0], min(times) - _AROUND_SECONDS), min(shown[1], max(times) + _AROUND_SECONDS))
            if times
            else shown
        )
    return ReportPage(html_page(story, shown), story.verdict, story.status)


def _decision(incident: Mapping[str, Any], record: Mapping[str, Any], prometheus: PrometheusClient | None) -> Decision:
    steps = _steps(incident)
    action = {"restart": "Restart", "none": "No restart", "escalate": "A person must look", "release": "Release"}
    name = action.get(str(incident.get("action")), str(incident.get("action") or "decision"))
    title = f"{name}: {incident.get('alert') or incident.get('failure_mode') or ''}, attempt {incident.get('attempt')}"
    times = _timeline(incident, record, prometheus)
    lines = times.lines()[1:] if times is not None else ()
    return Decision(
        label_text(title, 200),
        label_text(str(incident.get("reason") or ""), 500),
        steps,
        lines,
        steps[0][0] if steps else None,
    )


def _timeline(
    incident: Mapping[str, Any], record: Mapping[str, Any], prometheus: PrometheusClient | None
) -> Timeline | None:
    try:
        return timeline(incident, record, prometheus) if prometheus is not None else None
    except (KeyError, TypeError, ValueError):  # a file of another version
        return None


def _course(
    incident: Mapping[str, Any], record: Mapping[str, Any], prometheus: PrometheusClient | None
) -> Sequence[str]:
    """Return in one sentence how soon an incident was noticed, acted on and over."""
    times = _timeline(incident, record, prometheus)
    if times is None or times.fault is None:
        return ()
    parts = [
        f"{name} after {duration_text(at - times.fault)}"
        for name, at in (("noticed", times.detected), ("restarted", times.restarted), ("recovered", times.recovered))
        if at is not None and at >= times.fault
    ]
    if times.steps_lost is not None:
        parts.append(f"{times.steps_lost} steps trained again")
    return (f"{label_text(times.alert, 80)} in attempt {times.attempt}: {', '.join(parts)}.",) if parts else ()


def _steps(incident: Mapping[str, Any]) -> list[tuple[float, str, str]]:
    steps = []
    for event in incident.get("events") or ():
        if isinstance(event, dict) and isinstance(event.get("time"), int | float):
            text = label_text(str(event.get("detail") or ""), 300)
            steps.append((float(event["time"]), label_text(str(event.get("state") or ""), 40), text))
    return sorted(steps)


def _is(incident: Mapping[str, Any], wanted: str) -> bool:
    return str(incident.get("id") or "").startswith(wanted) and len(wanted) >= 4
