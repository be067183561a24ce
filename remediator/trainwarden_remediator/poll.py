"""The alerts that Alertmanager lists as firing. They decide, and stand in for every lost webhook."""

from __future__ import annotations

from typing import Protocol

from trainwarden.clients.alertmanager import AlertmanagerClient, AlertmanagerError
from trainwarden.record.clock import from_iso
from trainwarden_remediator.incident import Alert
from trainwarden_remediator.unknown import Unknown

Firing = list[Alert] | Unknown


class AlertSource(Protocol):
    """Where the alerts that fire right now are listed."""

    def firing(self) -> Firing:
        """Every remediable alert that is active, not silenced and not inhibited."""


class AlertmanagerAlerts:
    """The alerts of one Alertmanager."""

    def __init__(self, alertmanager: AlertmanagerClient) -> None:
        self._alertmanager = alertmanager

    def firing(self) -> Firing:
        """Return the list, or why there is none."""
        try:
            alerts = self._alertmanager.alerts('remediate="true"', silenced=False, inhibited=False)
        except AlertmanagerError as error:
            return Unknown(str(error))
        # Checked again: an answer that ignores the parameters must not lead to more actions.
        found = (Alert(each.labels, from_iso(each.starts_at)) for each in alerts if not each.is_suppressed)
        return [alert for alert in found if alert.remediable]
