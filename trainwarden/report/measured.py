"""What a Prometheus adds to the story of a run, or tells of it alone."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from trainwarden.clients.prometheus import PrometheusClient, PrometheusError, PrometheusSeries
from trainwarden.redaction import label_text
from trainwarden.report.record import verdict_of
from trainwarden.report.story import BAD, CALM, GOOD, TONES, WARN, Evidence, Line, Moment, Plot, Span, Story
from trainwarden.runs.table import duration_text, number_text

_POINTS = 400
_LANES = 12
_TONE = {"critical": BAD, "warning": WARN}
_STATUS = {
    "running": "RUNNING",
    "pending": "PENDING",
    "succeeded": "SUCCEEDED",
    "failed": "FAILED",
    "cancelled": "CANCELLED",
}
_MARGIN = 0.03
# 0 of a run without GPUs.
_OF_GPUS = (
    "run:training_gpu_hours:sum",
    "run:training_gpu_hours_lost:sum",
    "run:training_cost_dollars:sum",
    "run:training_restart_gpu_hours:current",
)
_LOOK_BACK = "30d"


@dataclass(frozen=True)
class _Panel:
    title: str
    question: str
    unit: str
    queries: Sequence[tuple[str, str]]  # (name, expression); `%` stands for the matcher of the run


_PANELS = (
    _Panel(
        "Step",
        "Flat while the run lives is a stall; a drop is a restart from a checkpoint.",
        "",
        (
            ("step", "max(training_step%)"),
            ("high-water mark", "max(training_step_high_water%)"),
            ("last checkpoint", "max(training_checkpoint_step%)"),
        ),
    ),
    _Panel("Loss", "A gap is a loss that was not finite.", "", (("loss", "max(training_loss%)"),)),
    _Panel(
        "Throughput",
        "As the training reports it; without that, the steps that it makes.",
        "/s",
        (
            ("tokens", "max(training_tokens_per_second%)"),
            ("samples", "max(training_samples_per_second%)"),
            ("steps", "max(rate(training_steps_completed_total%[1m]))"),
        ),
    ),
    _Panel(
        "Heartbeats",
        "How long the process (metadata) and its loop (progress) were silent, against the thresholds.",
        "seconds",
        (
            ("metadata", 'max(run:training_heartbeat_silence_seconds:current{source="metadata",%})'),
            ("progress", 'max(run:training_heartbeat_silence_seconds:current{source="progress",%})'),
            ("without a step", "max(run:training_standstill_seconds:current%)"),
            ("stall budget", "max(run:training_stall_threshold_seconds:current%)"),
            ("stale threshold", "max(run:training_stale_threshold_seconds:current%)"),
        ),
    ),
    _Panel(
        "GPUs at work",
        "Busy while no unit works and the step stands still is a collective that waits.",
        "ratio",
        (("busy", "max(run:gpu_utilization:avg%)"), ("units", "max(run:gpu_units_active:avg%)")),
    ),
    _Panel(
        "Power of the GPUs", "Of all that the run alone uses.", "watts", (("power", "max(run:gpu_power_watts:sum%)"),)
    ),
    _Panel(
        "Network",
        "Nothing while the step stands still is a hang before the collective.",
        "bytes/s",
        (
            ("EFA sent", "max(run:efa_tx_bytes:rate5m%)"),
            ("EFA received", "max(run:efa_rx_bytes:rate5m%)"),
            ("InfiniBand sent", "max(run:infiniband_tx_bytes:rate2m%)"),
            ("InfiniBand received", "max(run:infiniband_rx_bytes:rate2m%)"),
        ),
    ),
)


def story_of_metrics(client: PrometheusClient, run_id: str, now: float) -> Story | None:
    """Return the story of a run of which there is no record here; None if Prometheus has nothing of it for 30 days.

    Raises:
        PrometheusError: it gave no answer.
    """
    its = _matcher(run_id)
    seen = f"timestamp(training_run_info{its})[{_LOOK_BACK}:1m]"
    first, last = _value(client, f"min(min_over_time({seen}))", now), _value(client, f"max(max_over_time({seen}))", now)
    if first is None or last is None:
        return None
    states = client.query(f"topk(1, max by (state) (timestamp(training_run_state{its} == 1)))", last)
    status = _STATUS.get(states[0].labels.get("state", "") if states else "", "UNKNOWN")
    if status == "RUNNING" and last < now - 300:
        status = "TIMED_OUT"
    starts = _points(client, f"max(training_attempt_start_timestamp_seconds{its})", first, last)
    begun = sorted({value for _, value in starts})
    restarts = max(0, len(begun) - 1)
    failures = client.query(f"training_failure_info{its}", last)
    failure = failures[0].labels.get("failure", "") if failures else ""
    ended = _value(client, f"max(training_run_end_timestamp_seconds{its})", last)
    start = min([first, *begun])
    end = None if status in ("RUNNING", "PENDING") else ended or last
    story = Story(
        run_id=run_id,
        made=now,
        status=status,
        verdict=verdict_of(status, restarts, f"The run has failed: {failure}" if status == "FAILED" else ""),
        tone=TONES.get(status, WARN),
        start=start,
        end=end,
    )
    step, loss = (_value(client, f"max({name}{its})", last) for name in ("training_step", "training_loss"))
    facts = [
        ("Step", "" if step is None else f"{step:.0f}"),
        ("Loss", "" if loss is None else number_text(loss)),
        ("Duration", duration_text((end or now) - start)),
        ("Attempts", str(max(1, len(begun)))),
        ("Failure", failure),
    ]
    story.facts = [(name, label_text(text, 300)) for name, text in facts if text]
    ends = [*begun[1:], end or now]
    story.spans = [
        Span("Attempts", f"attempt {number}", at, until, story.tone if until == ends[-1] else WARN)
        for number, (at, until) in enumerate(zip(begun, ends, strict=False))
    ]
    story.moments = [
        Moment(at, "training started" if not number else "restarted", f"attempt {number}")
        for number, at in enumerate(begun)
    ]
    for sample in client.query(f"training_failure_message_info{its}", last)[:1]:
        told = [(key, sample.labels.get(key, "")) for key in ("message", "last_line", "hint")]
        text = "\n".join(f"{key.replace('_', ' ')}: {label_text(value, 500)}" for key, value in told if value)
        story.evidence.append(Evidence("What the run said last", text))
        story.advice = story.advice or label_text(sample.labels.get("hint", ""), 300)
    return story


def add_metrics(story: Story, client: PrometheusClient) -> None:
    """Add plots, alerts, phases and what it cost to a story; what cannot be read is named in `missing`."""
    start, end = window(story)
    its = _matcher(story.run_id)
    try:
        plots = [_plot(client, panel, story.run_id, start, end) for panel in _PANELS]
        alerts = _alerts(client, its, start, end)
        incidents = _spans(
            client, f"max by (state) (trainwarden_remediator_incident_timestamp_seconds{its})", start, end,
            "Remediation", lambda labels: labels.get("state", "").lower().replace("_", " "), lambda _: CALM,
        )  # fmt: skip
        phases = _spans(
            client, f"max by (phase) (training_phase{its} == 1)", start, end,
            "Phases", lambda labels: labels.get("phase", ""),
            lambda labels: GOOD if labels.get("phase") == "train" else CALM,
        )  # fmt: skip
        costs = _costs(client, its, end)
        suspects = _suspects(client, its, alerts, end)
    except PrometheusError as error:
        story.missing.append(f"Prometheus: {error}")
        return
    found = [plot for plot in plots if plot.lines]
    if not found and not alerts:
        story.missing.append(f"{client.url} has nothing of this run between the times that are shown")
        return
    titles = {plot.title for plot in found}
    # What Prometheus measured is more than what a record keeps.
    story.plots = [*found, *(plot for plot in story.plots if plot.title.removesuffix(" by step") not in titles)]
    if not any(span.lane == "Phases" for span in story.spans):
        story.spans += phases
    story.spans += [*alerts, *incidents]
    story.moments += [Moment(each.start, f"{each.name} fires", "", each.tone) for each in alerts]
    story.evidence[:0] = suspects
    # What the record counts is exact, also of a run that was shorter than the rules' rounds.
    recorded = dict(story.costs)
    story.costs = [(name, recorded.get(name, text)) for name, text in costs] or story.costs


def window(story: Story) -> tuple[float, float]:
    """Return the time that is shown: the run, and a little before and after."""
    end = story.end if story.end is not None else story.made
    start = story.start if story.start is not None else end - 3600
    margin = max(10.0, (end - start) * _MARGIN)
    return start - margin, min(end + margin, max(story.made, end))


def _matcher(run_id: str) -> str:
    return "{run_id=" + json.dumps(run_id) + "}"


def _value(client: PrometheusClient, expression: str, time: float) -> float | None:
    found = client.query(expression, time)
    return found[0].value if found and math.isfinite(found[0].value) else None


def _step(start: float, end: float) -> float:
    return max(1.0, math.ceil((end - start) / _POINTS))


def _points(client: PrometheusClient, expression: str, start: float, end: float) -> list[tuple[float, float]]:
    series = client.query_range(expression, start, end, _step(start, end))
    return [(time, value) for each in series for time, value in each.points if math.isfinite(value)]


def _plot(client: PrometheusClient, panel: _Panel, run_id: str, start: float, end: float) -> Plot:
    inside = f"run_id={json.dumps(run_id)}"
    lines = []
    for name, expression in panel.queries:
        filled = expression.replace(",%}", f",{inside}}}").replace("%", "{" + inside + "}")
        points = _points(client, filled, start, end)
        if len(points) > 1:
            lines.append(Line(name, points))
    if panel.title == "Throughput" and len(lines) > 1:
        lines = [line for line in lines if line.name != "steps"]
    return Plot(panel.title, panel.question, panel.unit, lines)


def _alerts(client: PrometheusClient, its: str, start: float, end: float) -> list[Span]:
    firing = its.replace("{", '{alertstate="firing",severity!="none",')
    return _spans(
        client, f"max by (alertname, severity) (ALERTS{firing})", start, end,
        "Alerts", lambda labels: labels.get("alertname", ""),
        lambda labels: _TONE.get(labels.get("severity", ""), CALM),
    )[: _LANES * 10]  # fmt: skip


def _spans(
    client: PrometheusClient, expression: str, start: float, end: float, lane: str, name: Any, tone: Any
) -> list[Span]:
    """Return when each series had a value: a gap of more than two points ends a span."""
    step = _step(start, end)
    spans = []
    for each in client.query_range(expression, start, end, step):
        for first, last in _runs(each, 2.5 * step):
            spans.append(Span(lane, label_text(name(each.labels), 80), first, min(last + step, end), tone(each.labels)))
    return sorted(spans, key=lambda span: span.start)


def _runs(series: PrometheusSeries, gap: float) -> list[tuple[float, float]]:
    runs: list[tuple[float, float]] = []
    for time, _ in series.points:
        if runs and time - runs[-1][1] <= gap:
            runs[-1] = (runs[-1][0], time)
        else:
            runs.append((time, time))
    return runs


def _costs(client: PrometheusClient, its: str, end: float) -> list[tuple[str, str]]:
    def last(name: str) -> float | None:
        return _value(client, f"max(last_over_time({name}{its}[1h]))", end)

    uses = client.query(f"max by (use) (last_over_time(run:training_use_seconds:sum{its}[1h]))", end)
    costs = []
    texts: tuple[tuple[str, str, Any], ...] = (
        ("Goodput", "run:training_goodput:ratio", lambda value: f"{100 * value:.1f} %"),
        ("With the time between attempts (ETTR)", "run:training_ettr:ratio", lambda value: f"{100 * value:.1f} %"),
        ("Steps done twice", "run:training_lost_steps:sum", lambda value: f"{value:.0f}"),
        ("GPU hours", "run:training_gpu_hours:sum", number_text),
        ("GPU hours without progress", "run:training_gpu_hours_lost:sum", number_text),
        ("Price", "run:training_cost_dollars:sum", lambda value: f"{value:.2f} $"),
        (
            "A restart now would lose",
            "run:training_restart_gpu_hours:current",
            lambda value: f"{number_text(value)} GPU h",
        ),
    )
    for name, metric, text in texts:
        value = last(metric)
        if value is not None and not (value == 0 and metric in _OF_GPUS):
            costs.append((name, text(value)))
    by_use = sorted(uses, key=lambda sample: -sample.value)
    told: Mapping[str, str] = {
        f"Time: {each.labels.get('use', '')}": duration_text(each.value) for each in by_use if each.value
    }
    return [*costs, *told.items()]


def _suspects(client: PrometheusClient, its: str, alerts: Sequence[Span], end: float) -> list[Evidence]:
    """Return the ranks and nodes at which it began, as they were while an alert fired."""
    at = min(alerts[-1].end, end) if alerts else end
    found = []
    for why, name in (
        ("has not joined the collective", "run_rank:training_absent:suspect"),
        ("its process is gone or stuck", "run_rank:training_suspect:node"),
        ("slower than the others", "run_rank:training_straggler:node"),
        ("silent", "run_node:training_silent_ranks_seconds:max"),
        ("faulty GPU", "gpu:gpu_fault:identified"),
    ):
        for sample in client.query(f"{name}{its}", at)[:8]:
            labels = {
                key: value for key, value in sample.labels.items() if key in ("rank", "ranks", "node", "gpu", "fault")
            }
            found.append(label_text(f"{why}: " + ", ".join(f"{key} {value}" for key, value in labels.items()), 200))
    return [Evidence("Suspects", "\n".join(found))] if found else []
