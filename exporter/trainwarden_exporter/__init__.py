"""The node agent: what runs on this machine, as Prometheus metrics."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from trainwarden_exporter.finetuning.metrics_exporter import (
        FineTuningMetricsExporter,
        JobMetrics,
        MetricsExporter,
        TrainingMetrics,
    )
    from trainwarden_exporter.finetuning.validation import FineTuningValidator, ModelComparison, ValidationResult

__all__ = [
    "FineTuningMetricsExporter",
    "FineTuningValidator",
    "JobMetrics",
    "MetricsExporter",
    "ModelComparison",
    "TrainingMetrics",
    "ValidationResult",
]

_VALIDATION = ("FineTuningValidator", "ModelComparison", "ValidationResult")


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    # For training scripts; the agent itself never loads them.
    if name in _VALIDATION:
        from trainwarden_exporter.finetuning import validation  # noqa: PLC0415

        return getattr(validation, name)
    from trainwarden_exporter.finetuning import metrics_exporter  # noqa: PLC0415

    return getattr(metrics_exporter, name)
