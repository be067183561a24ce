"""Alertmanager's webhook body, version 4: unknown fields are ignored, and only what is used is required."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from trainwarden.record.clock import from_iso
from trainwarden.server.messages import BadRequest
from trainwarden_remediator.incidents.incident import Alert
from trainwarden_remediator.validation import problems_of

MAX_BODY_BYTES = 1 << 20
MAX_ALERTS = 1000
MAX_LABELS = 256  # of one alert


class _Alert(BaseModel):
    model_config = ConfigDict(extra="ignore", strict=True)

    status: Literal["firing", "resolved"]
    labels: dict[str, str] = Field(max_length=MAX_LABELS)
    startsAt: str  # noqa: N815  # Alertmanager's name


class _Payload(BaseModel):
    model_config = ConfigDict(extra="ignore", strict=True)

    version: Literal["4"]
    alerts: list[_Alert]
    truncatedAlerts: int = Field(default=0, ge=0)  # noqa: N815  # Alertmanager's name


@dataclass(frozen=True)
class Delivery:
    """One accepted body.

    Attributes:
        firing: the remediable alerts of this cluster that fire.
        truncated: how many alerts, remediable or not, were cut off.
        watchdog: whether this cluster's watchdog is among the alerts that fire.
        foreign: how many remediable alerts of other clusters were left out.
    """

    sha256: str
    firing: tuple[Alert, ...]
    truncated: int
    watchdog: bool = False
    foreign: int = 0


def read_delivery(body: bytes, cluster: str = "") -> Delivery:
    """Check one body. Raises BadRequest with 400 (no JSON), 413 (too much) or 422 (another shape).

    Args:
        body: as it was received.
        cluster: the one whose runs are restarted; where it is empty, alerts of every cluster are taken.
    """
    if len(body) > MAX_BODY_BYTES:
        raise BadRequest(413, f"the body has more than {MAX_BODY_BYTES} bytes")
    payload = _check(_load(body))
    firing = [Alert(each.labels, from_iso(each.startsAt)) for each in payload.alerts if each.status == "firing"]
    ours = [alert.in_cluster(cluster) for alert in firing if alert.is_of_cluster(cluster)]
    return Delivery(
        sha256=hashlib.sha256(body).hexdigest(),
        firing=tuple(alert for alert in ours if alert.remediable),
        truncated=payload.truncatedAlerts,
        watchdog=any(alert.is_watchdog for alert in ours),
        foreign=sum(alert.remediable and not alert.is_of_cluster(cluster) for alert in firing),
    )


def _load(body: bytes) -> Any:
    try:
        return json.loads(body)
    except (ValueError, RecursionError) as error:
        raise BadRequest(400, f"the body is no JSON: {error}") from None


def _check(data: Any) -> _Payload:
    if isinstance(data, dict) and isinstance(data.get("alerts"), list) and len(data["alerts"]) > MAX_ALERTS:
        raise BadRequest(413, f"more than {MAX_ALERTS} alerts; set max_alerts lower or group by more labels")
    try:
        return _Payload.model_validate(data)
    except ValidationError as error:
        raise BadRequest(422, "; ".join(problems_of(error)[:5])) from None
