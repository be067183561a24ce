"""The node agent: what runs on this machine, as Prometheus metrics."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from trainwarden_exporter.finetuning.known import FineTuningMetricsExporter, TrainingMetrics
    from trainwarden_exporter.finetuning.metrics_exporter import JobMetrics, MetricsExporter

__all__ = ["FineTuningMetricsExporter", "JobMetrics", "MetricsExporter", "TrainingMetrics"]

# For trainings; the agent itself never loads them.
_HOMES = {
    "FineTuningMetricsExporter": "known",
    "TrainingMetrics": "known",
    "JobMetrics": "metrics_exporter",
    "MetricsExporter": "metrics_exporter",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module  # noqa: PLC0415  # see above

    return getattr(import_module(f"trainwarden_exporter.finetuning.{_HOMES[name]}"), name)
