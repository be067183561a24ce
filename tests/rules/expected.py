"""The labels that each alert must carry, unless a scenario says otherwise."""

from __future__ import annotations

from tests.rules.promtool import Alert

IDENTITY = {"run_id": "r1", "job_id": "41", "attempt": "0", "scheduler": "slurm", "node": "n1"}
HANG = {"severity": "critical", "error_type": "hang"}


def failed(**labels: str) -> Alert:
    return "TrainRunFailed", {
        **IDENTITY,
        "severity": "critical",
        "failure_mode": "crash",
        "remediate": "true",
        **labels,
    }


def timed_out(**labels: str) -> Alert:
    ours = {"failure_mode": "timeout", "subsystem": "monitoring", "remediate": "true"}
    return "TrainRunTimedOut", {**IDENTITY, **HANG, **ours, **labels}


def stalled(**labels: str) -> Alert:
    ours = {"failure_mode": "stall", "subsystem": "distributed", "remediate": "true"}
    return "TrainRunStalled", {**IDENTITY, **HANG, **ours, **labels}


def never_started(**labels: str) -> Alert:
    ours = {"severity": "warning", "failure_mode": "timeout", "subsystem": "monitoring", "remediate": "false"}
    return "TrainRunNeverStarted", {**IDENTITY, **ours, **labels}


def degraded(**labels: str) -> Alert:
    ours = {"severity": "warning", "failure_mode": "stall", "subsystem": "monitoring", "remediate": "false"}
    return "TrainRunDegraded", {**IDENTITY, **ours, **labels}


def rank_silent(**labels: str) -> Alert:
    ours = {"failure_mode": "stall", "subsystem": "distributed", "remediate": "false"}
    return "TrainRankSilent", {**IDENTITY, **HANG, **ours, "severity": "warning", **labels}


def log_silent(**labels: str) -> Alert:
    return "TrainLogSilent", rank_silent(**labels)[1]


def unobserved(**labels: str) -> Alert:
    ours = {"severity": "critical", "failure_mode": "blind", "subsystem": "exporter", "remediate": "false"}
    return "TrainRunUnobserved", {"instance": "n1:9745", "node": "n1", "run_id": "r1", **ours, **labels}


def lacking(alert: Alert, *missing: str) -> Alert:
    """The same without labels, as where it is about several runs or nodes and names none of them."""
    name, labels = alert
    return name, {label: text for label, text in labels.items() if label not in missing}


def node_failed(**labels: str) -> Alert:
    job = {"run_id": "r1", "job_id": "41", "scheduler": "slurm", "state": "node_fail"}
    ours = {"severity": "critical", "failure_mode": "crash", "error_type": "node_failure", "subsystem": "scheduler"}
    return "TrainSlurmNodeFailed", {**job, **ours, "remediate": "false", **labels}


def succeeded(**labels: str) -> Alert:
    ours = {"severity": "info", "failure_mode": "success", "remediate": "false"}
    return "TrainRunSucceeded", {**IDENTITY, **ours, **labels}
