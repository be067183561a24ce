"""`trainwarden monitor`: alerts from the run records alone, without a Prometheus."""

from trainwarden.monitor.alerts import AlertManager
from trainwarden.monitor.training_monitor import RunState, TrainingMonitor

__all__ = ["AlertManager", "RunState", "TrainingMonitor"]
