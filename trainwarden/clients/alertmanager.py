"""Alertmanager: the alerts that it holds, over its HTTP API v2.

https://github.com/prometheus/alertmanager/blob/main/api/v2/openapi.yaml
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from trainwarden.clients.http import HttpClient, HttpError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_DEFAULT_SECONDS = 5.0
_ALERTS = "/api/v2/alerts"


class AlertmanagerError(Exception):
    """Alertmanager gave no usable answer; the message is the reason."""


@dataclass(frozen=True)
class AlertmanagerAlert:
    """One alert as Alertmanager holds it.

    Attributes:
        labels: `alertname` among them.
        starts_at: RFC 3339, as Alertmanager writes it.
        state: unprocessed, active or suppressed.
        is_suppressed: whether it is silenced or inhibited.
        is_silenced: whether a person has silenced it.
    """

    labels: dict[str, str]
    starts_at: str
    state: str
    is_suppressed: bool
    is_silenced: bool = False


class AlertmanagerClient:
    """Talks to one Alertmanager. Every method raises AlertmanagerError.

    Args:
        url: of the server; a text stands for a client without credentials.
    """

    def __init__(self, url: str | HttpClient) -> None:
        self._http = HttpClient(url, _DEFAULT_SECONDS) if isinstance(url, str) else url

    def alerts(self, *matchers: str, silenced: bool = True, inhibited: bool = True) -> list[AlertmanagerAlert]:
        """Return the alerts that all `matchers` select, such as `run_id="a"`.

        Args:
            matchers: in Alertmanager's syntax.
            silenced: whether silenced alerts are wanted too.
            inhibited: whether inhibited alerts are wanted too.
        """
        # The server's defaults are stated, for they differ between versions of its clients.
        params = {
            "active": "true",
            "silenced": str(silenced).lower(),
            "inhibited": str(inhibited).lower(),
            "unprocessed": "true",
            "filter": list(matchers),
        }
        try:
            response = self._http.get(_ALERTS, params)
        except HttpError as error:
            raise AlertmanagerError(f"Alertmanager is unreachable: {error}") from None
        if response.status != 200:
            raise AlertmanagerError(f"Alertmanager answered {response.status}: {self._http.base_url}{_ALERTS}")
        try:
            alerts = response.json()
            if isinstance(alerts, list):
                return [_alert(each) for each in alerts]
        except (HttpError, KeyError, TypeError, AttributeError):
            pass
        expected = "expected a list of alerts with their state"
        raise AlertmanagerError(f"Alertmanager gave an unexpected answer: {self._http.base_url}{_ALERTS}: {expected}")

    def post_alerts(self, alerts: Sequence[Mapping[str, Any]]) -> None:
        """Report alerts as Prometheus does: `labels`, `annotations`, `startsAt`, `endsAt`, `generatorURL` of each."""
        try:
            response = self._http.post(_ALERTS, list(alerts))
        except HttpError as error:
            raise AlertmanagerError(f"Alertmanager is unreachable: {error}") from None
        if response.status != 200:
            raise AlertmanagerError(f"Alertmanager answered {response.status}: {self._http.base_url}{_ALERTS}")


def _alert(entry: Mapping[str, Any]) -> AlertmanagerAlert:
    status = entry["status"]
    return AlertmanagerAlert(
        labels={str(name): str(value) for name, value in entry["labels"].items()},
        starts_at=str(entry["startsAt"]),
        state=str(status["state"]),
        is_suppressed=bool(status["state"] == "suppressed" or status["silencedBy"] or status["inhibitedBy"]),
        is_silenced=bool(status["silencedBy"]),
    )
