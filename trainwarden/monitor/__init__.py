"""`trainwarden monitor`: alerts from the run records alone, without a Prometheus."""

from trainwarden.monitor.alerts import AlertManager

__all__ = ["AlertManager"]
