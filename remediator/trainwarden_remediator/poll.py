"""Alertmanager's own list of what fires: the truth about an alert, and the net under every lost webhook."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from trainwarden.record.clock import from_iso
from trainwarden_remediator.errors import Unreachable
from trainwarden_remediator.fetch import Fetch
from trainwarden_remediator.incident import Alert
from trainwarden_remediator.unknown import Unknown

# Asked for by the server, and checked again here: an answer that ignores the parameters must not widen what we act on.
_PARAMETERS = {
    "active": "true",
    "silenced": "false",
    "inhibited": "false",
    "unprocessed": "true",
    "filter": 'remediate="true"',
}

Firing = list[Alert] | Unknown


class AlertSource(Protocol):
    """Where the alerts that fire right now are listed."""

    def firing(self) -> Firing:
        """Every remediable alert that is active, not silenced and not inhibited."""


class AlertmanagerAlerts:
    """Asks one Alertmanager."""

    def __init__(self, url: str, timeout: float) -> None:
        self._fetch = Fetch(url, timeout)

    def firing(self) -> Firing:
        """The list, or why there is none."""
        try:
            response = self._fetch.get("/api/v2/alerts", _PARAMETERS)
        except Unreachable as error:
            return Unknown(f"Alertmanager is unreachable: {error}")
        if response.status != 200 or not isinstance(response.body, list):
            return Unknown(f"Alertmanager answered {response.status}")
        try:
            return [alert for each in response.body if (alert := _firing(each)) is not None]
        except (KeyError, TypeError, AttributeError):
            return Unknown("Alertmanager gave an unexpected answer")


def _firing(entry: Mapping[str, Any]) -> Alert | None:
    status = entry["status"]
    if status["state"] == "suppressed" or status["silencedBy"] or status["inhibitedBy"]:
        return None
    labels = {str(name): str(value) for name, value in entry["labels"].items()}
    alert = Alert(labels, from_iso(str(entry["startsAt"])))
    return alert if alert.remediable else None
