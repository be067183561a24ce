"""Every metric of the exporter, once: collectors take their families from here, docs/metrics.md is made from here."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

from trainwarden_exporter.logs.catalog import LOG_ROWS

if TYPE_CHECKING:
    from prometheus_client.core import Metric


@dataclass(frozen=True)
class Entry:
    """One metric: `name` as it is exposed, `kind` gauge or counter, `unit` for readers."""

    name: str
    kind: str
    labels: tuple[str, ...]
    unit: str
    help: str

    def family(self) -> CounterMetricFamily | GaugeMetricFamily:
        """Return an empty family of this metric."""
        make = CounterMetricFamily if self.kind == "counter" else GaugeMetricFamily
        return make(self.name, self.help, labels=self.labels)


def _table(*rows: tuple[str, str, str, str, str]) -> dict[str, Entry]:
    entries = (Entry(name, kind, tuple(labels.split()), unit, text) for name, kind, labels, unit, text in rows)
    return {entry.name: entry for entry in entries}


METRICS = _table(
    (
        "training_run_info",
        "gauge",
        "run_id attempt_key job_id scheduler framework model method instance_id host policy",
        "1",
        "Who and where the run is, and the restart policy that it asks for; always 1.",
    ),
    ("training_run_attempt", "gauge", "run_id", "", "Number of the attempt that owns the record, from 0."),
    (
        "training_attempt_start_timestamp_seconds",
        "gauge",
        "run_id",
        "Unix seconds",
        "Start of the attempt; of a folder without a first heartbeat: its last change.",
    ),
    (
        "training_run_state",
        "gauge",
        "run_id state",
        "0/1",
        "1 for the state the run is in: what its record says, corrected by its sentinels.",
    ),
    (
        "training_run_end_timestamp_seconds",
        "gauge",
        "run_id",
        "Unix seconds",
        "End of the attempt; absent while it runs.",
    ),
    (
        "training_phase",
        "gauge",
        "run_id phase",
        "0/1",
        "1 for the phase the run is in; an unknown one counts as train.",
    ),
    ("training_phase_start_timestamp_seconds", "gauge", "run_id", "Unix seconds", "Last change of the phase."),
    (
        "training_heartbeat_timestamp_seconds",
        "gauge",
        "run_id source",
        "Unix seconds",
        "Last sign of life: metadata is the process, progress is the training loop.",
    ),
    (
        "training_heartbeat_age_seconds",
        "gauge",
        "run_id source",
        "seconds",
        "Time since the last sign of life, at the moment of the scrape.",
    ),
    (
        "training_rank_heartbeat_timestamp_seconds",
        "gauge",
        "run_id rank",
        "Unix seconds",
        "Last sign of life of one rank of the attempt.",
    ),
    ("training_rank_step", "gauge", "run_id rank", "steps", "Step the rank's training loop is at."),
    ("training_step", "gauge", "run_id", "steps", "Step the training loop is at."),
    ("training_steps_target", "gauge", "run_id", "steps", "Step at which the run is complete."),
    (
        "training_steps_completed_total",
        "counter",
        "run_id",
        "steps",
        "Steps done over the whole run; steps repeated after a restart count again.",
    ),
    (
        "training_step_timestamp_seconds",
        "gauge",
        "run_id",
        "Unix seconds",
        "When the step last passed the high-water mark of its own attempt.",
    ),
    (
        "training_step_change_timestamp_seconds",
        "gauge",
        "run_id",
        "Unix seconds",
        "When the training loop last reported another step than before, a higher or a lower one.",
    ),
    ("training_step_high_water", "gauge", "run_id", "steps", "Highest step of the whole run, across attempts."),
    ("training_epoch", "gauge", "run_id", "epochs", "Epoch, as reported."),
    ("training_loss", "gauge", "run_id", "", "Loss, as reported; absent while it is not a finite number."),
    ("training_learning_rate", "gauge", "run_id", "", "Learning rate, as reported."),
    ("training_grad_norm", "gauge", "run_id", "", "Gradient norm, as reported; absent while it is not finite."),
    ("training_tokens_per_second", "gauge", "run_id", "tokens/s", "Throughput in tokens."),
    ("training_samples_per_second", "gauge", "run_id", "samples/s", "Throughput in samples."),
    (
        "training_nonfinite_total",
        "counter",
        "run_id",
        "reports",
        "Reports whose loss or gradient norm was NaN or infinite.",
    ),
    ("training_checkpoint_step", "gauge", "run_id", "steps", "Step of the last checkpoint saved."),
    ("training_checkpoint_timestamp_seconds", "gauge", "run_id", "Unix seconds", "When the last checkpoint was saved."),
    ("training_checkpoint_size_bytes", "gauge", "run_id", "bytes", "Size of the last checkpoint saved."),
    ("training_checkpoints_total", "counter", "run_id", "checkpoints", "Checkpoints saved over the whole run."),
    (
        "training_failure_info",
        "gauge",
        "run_id attempt error_type failure subsystem severity",
        "1",
        "The verdict on a failed attempt, one per attempt and never changed; always 1.",
    ),
    ("training_failure_timestamp_seconds", "gauge", "run_id", "Unix seconds", "When the attempt failed."),
    (
        "training_failure_message_info",
        "gauge",
        "run_id message last_line hint",
        "1",
        "What the failed, or long quiet, attempt said last; secrets redacted; always 1.",
    ),
    (
        "training_stale_threshold_seconds",
        "gauge",
        "run_id",
        "seconds",
        "Without any heartbeat for longer, the run counts as timed out.",
    ),
    (
        "training_stall_threshold_seconds",
        "gauge",
        "run_id phase",
        "seconds",
        "Without a new step for longer in this phase, the run counts as stalled.",
    ),
    *LOG_ROWS,
    ("trainwarden_runs", "gauge", "outcome", "runs", "Folders of the runs folder, by what became of them."),
    (
        "trainwarden_runs_unreadable",
        "gauge",
        "reason",
        "problems",
        "What of the records could not be used: whole files and single values; the log names them.",
    ),
    ("trainwarden_collector_success", "gauge", "collector", "0/1", "1 if the collector's last sample is good."),
    (
        "trainwarden_collector_duration_seconds",
        "gauge",
        "collector",
        "seconds",
        "Time the last sample took; of one that hangs: so far.",
    ),
    (
        "trainwarden_collector_last_success_timestamp_seconds",
        "gauge",
        "collector",
        "Unix seconds",
        "When the collector's last good sample was finished.",
    ),
    ("trainwarden_build_info", "gauge", "version component python", "1", "What is running; always 1."),
)


class Families:
    """The families of one collection, made from the catalogue as samples arrive.

    A name or a set of labels that the catalogue does not have is a programming error and raises `KeyError`.
    """

    def __init__(self) -> None:
        self._families: dict[str, CounterMetricFamily | GaugeMetricFamily] = {}

    def add(self, name: str, value: float | None, **labels: str) -> None:
        """Add one sample; None and what is not finite are left out, for missing is not zero."""
        entry = METRICS[name]
        if labels.keys() != set(entry.labels):
            raise KeyError(f"{name} has the labels {entry.labels}, not {tuple(labels)}")
        if value is None or not math.isfinite(value):
            return
        if name not in self._families:
            self._families[name] = entry.family()
        self._families[name].add_metric([labels[label] for label in entry.labels], value)

    def collected(self) -> list[Metric]:
        """Return the families that have samples, in the order of the catalogue."""
        return [self._families[name] for name in METRICS if name in self._families]


def document() -> str:
    """Return docs/metrics.md."""
    lines = [
        "# Metrics of the exporter",
        "",
        "Made from the catalogue by `python -m trainwarden_exporter.catalog > docs/metrics.md`; change it there.",
        "",
        "A value that could not be read is not exported: missing is not zero. What is exported when, and by which",
        "exporter, is in [exporter.md](exporter.md).",
        "",
        "| metric | type | unit | labels | meaning |",
        "|---|---|---|---|---|",
    ]
    for entry in METRICS.values():
        labels = ", ".join(f"`{label}`" for label in entry.labels)
        lines.append(f"| `{entry.name}` | {entry.kind} | {entry.unit} | {labels} | {entry.help} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    print(document(), end="")
