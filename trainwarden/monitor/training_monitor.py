"""The calls of the S3 monitor's engine, for scripts that were written for it: a thin layer over `Monitor`.

New scripts run `trainwarden monitor`.
"""

from __future__ import annotations

import time
from enum import Enum
from typing import TYPE_CHECKING, Any

from trainwarden.clients.s3_location import MONITORING_PREFIX, parse_s3_url
from trainwarden.monitor.alerts import AlertManager
from trainwarden.monitor.history import AlertHistory
from trainwarden.monitor.watch import Monitor
from trainwarden.runs.places import RecordPrefix

if TYPE_CHECKING:
    from pathlib import Path


class RunState(str, Enum):
    """How a run is; docs/monitor.md says when."""

    PENDING = "PENDING"
    RUNNING = "RUNNING"
    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"
    CANCELLED = "CANCELLED"
    TIMED_OUT = "TIMED_OUT"
    WARNING = "WARNING"
    UNKNOWN = "UNKNOWN"


class TrainingMonitor:
    """Watches runs below `training-runs/` of a bucket, and alerts once for each change, as long as it lives.

    Args:
        bucket: its name.
        region: of it; boto3's own if None.
        stale_minutes: a heartbeat older than this is stale.

    Raises:
        InvalidLocation: it is no name of a bucket.
        UsageError: boto3 is not installed.
    """

    def __init__(self, bucket: str, region: str | None = None, stale_minutes: float = 10.0) -> None:
        self._bucket, self._region = bucket, region
        self._stale_seconds = 60.0 * stale_minutes
        self._place = RecordPrefix(parse_s3_url(f"s3://{bucket}/{MONITORING_PREFIX}", region, source="bucket"))
        self._history = AlertHistory()
        self._alerts = AlertManager()
        self._monitors: dict[str, Monitor] = {}

    def __enter__(self) -> TrainingMonitor:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Remove what was read; a script that ends may leave it out."""
        self._place.__exit__()

    def configure_alerts(self, slack_webhook: str | Path | None = None, sns_topic_arn: str | None = None) -> None:
        """Send alerts there from now on; raises ValueError where one of them is not usable."""
        self._alerts = AlertManager(slack_webhook, sns_topic_arn, self._region, self._bucket)
        self._monitors.clear()

    def evaluate_run(self, run_id: str) -> tuple[RunState, str, dict[str, Any]]:
        """Return state, reason and context of a run; UNKNOWN where it has no record yet, or S3 gives no answer.

        The context has what is known of action, instance_id, phase, duration_minutes and last_log_line.
        """
        return self._look(run_id, self._monitor(run_id, AlertManager(), AlertHistory()))

    def check_and_alert(self, run_id: str) -> RunState:
        """Evaluate a run, and alert if its state has changed since the last call."""
        monitor = self._monitors.get(run_id)
        if monitor is None:
            monitor = self._monitors[run_id] = self._monitor(run_id, self._alerts, self._history)
        return self._look(run_id, monitor)[0]

    def _monitor(self, run_id: str, alerts: AlertManager, history: AlertHistory) -> Monitor:
        return Monitor(self._place, history, alerts, run_ids=(run_id,), stale_seconds=self._stale_seconds)

    def _look(self, run_id: str, monitor: Monitor) -> tuple[RunState, str, dict[str, Any]]:
        found = monitor.look(time.time())
        if not found.runs:
            return RunState.UNKNOWN, "; ".join(found.problems) or f"{run_id}: there is no record yet", {}
        run = found.runs[0]
        context = {
            "action": run.action or None,
            "instance_id": run.instance_id,
            "phase": run.phase,
            "duration_minutes": None if run.duration_seconds is None else run.duration_seconds / 60,
            "last_log_line": run.last_log,
        }
        return RunState(run.status), run.reason, {name: value for name, value in context.items() if value is not None}
