"""Prometheus: instant and range queries, its alerts and its rules, over its HTTP API.

https://prometheus.io/docs/prometheus/latest/querying/api/
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from trainwarden.clients.http import HttpClient, HttpError

if TYPE_CHECKING:
    from collections.abc import Mapping

_DEFAULT_SECONDS = 5.0
_MAX_MESSAGE = 300
# Until 2.54 Prometheus counts its remarks on an expression among the warnings; the result is complete all the same.
_REMARK = "PromQL info:"


class PrometheusError(Exception):
    """Prometheus gave no usable answer; the message is the reason."""


@dataclass(frozen=True)
class PrometheusSample:
    """One series of an instant query.

    Attributes:
        labels: `__name__` among them.
        value: any number; NaN and ±Inf are numbers too.
    """

    labels: dict[str, str]
    value: float


@dataclass(frozen=True)
class PrometheusSeries:
    """One series of a range query.

    Attributes:
        labels: `__name__` among them.
        points: (Unix seconds, value) in order of time.
    """

    labels: dict[str, str]
    points: list[tuple[float, float]]


@dataclass(frozen=True)
class PrometheusRule:
    """A rule: `health` is ok, err or unknown (not yet evaluated)."""

    name: str
    health: str
    last_error: str


@dataclass(frozen=True)
class PrometheusAlert:
    """An alert that is not over: `state` is pending or firing, `alertname` among the labels."""

    labels: dict[str, str]
    state: str


class PrometheusClient:
    """Queries one Prometheus. Every method raises PrometheusError, also for an answer that may be incomplete.

    Args:
        url: of the server; a text stands for a client without credentials.
    """

    def __init__(self, url: str | HttpClient) -> None:
        self._http = HttpClient(url, _DEFAULT_SECONDS) if isinstance(url, str) else url

    @property
    def url(self) -> str:
        """The server's address."""
        return self._http.base_url

    def query(self, expression: str, time: float | None = None) -> list[PrometheusSample]:
        """Return the vector that `expression` gives at `time`, Unix seconds; now if None."""
        params = {"query": expression} | ({} if time is None else {"time": str(time)})
        result = self._result("/api/v1/query", params, "vector")
        try:
            return [PrometheusSample(_labels(each), float(each["value"][1])) for each in result]
        except (KeyError, TypeError, ValueError, IndexError, AttributeError):
            raise self._malformed("/api/v1/query", "a vector of samples") from None

    def query_range(self, expression: str, start: float, end: float, step: float = 1.0) -> list[PrometheusSeries]:
        """Return what `expression` gives each `step` seconds from `start` to `end`, Unix seconds."""
        params = {"query": expression, "start": start, "end": end, "step": step}
        result = self._result("/api/v1/query_range", params, "matrix")
        try:
            return [
                PrometheusSeries(_labels(each), [(float(time), float(value)) for time, value in each["values"]])
                for each in result
            ]
        except (KeyError, TypeError, ValueError, AttributeError):
            raise self._malformed("/api/v1/query_range", "a matrix of series") from None

    def rules(self) -> list[PrometheusRule]:
        """Return the rules of all groups, recording and alerting."""
        data = self._data("/api/v1/rules", {})
        try:
            return [
                PrometheusRule(str(rule["name"]), str(rule["health"]), str(rule.get("lastError", "")))
                for group in data["groups"]
                for rule in group["rules"]
            ]
        except (KeyError, TypeError, AttributeError):
            raise self._malformed("/api/v1/rules", "groups of rules") from None

    def alerts(self) -> list[PrometheusAlert]:
        """Return the pending and firing alerts, which ALERTS has from the third evaluation of a group on alone."""
        data = self._data("/api/v1/alerts", {})
        try:
            return [
                PrometheusAlert({str(name): str(value) for name, value in each["labels"].items()}, str(each["state"]))
                for each in data["alerts"]
            ]
        except (KeyError, TypeError, AttributeError):
            raise self._malformed("/api/v1/alerts", "a list of alerts") from None

    def _result(self, path: str, params: Mapping[str, Any], kind: str) -> list[Any]:
        data = self._data(path, params)
        result = data.get("result") if isinstance(data, dict) else None
        if not isinstance(result, list) or data.get("resultType") != kind:
            raise self._malformed(path, f"a {kind}")
        return result

    def _data(self, path: str, params: Mapping[str, Any]) -> Any:
        try:
            response = self._http.get(path, params)
        except HttpError as error:
            raise PrometheusError(f"Prometheus is unreachable: {error}") from None
        try:
            body = response.json()
        except HttpError:
            body = None
        where = f"{self.url}{path}"
        if isinstance(body, dict) and body.get("status") == "error":
            kind, message = body.get("errorType"), body.get("error")
            raise PrometheusError(
                f"Prometheus refused, status {response.status}: {where}: {_clean(f'{kind}: {message}')}"
            )
        if response.status != 200:
            raise PrometheusError(f"Prometheus answered {response.status}: {where}")
        if not isinstance(body, dict) or body.get("status") != "success" or "data" not in body:
            raise self._malformed(path, "JSON with status success and data")
        warnings = body.get("warnings")
        for warning in warnings if isinstance(warnings, list) else ():
            if not str(warning).startswith(_REMARK):
                raise PrometheusError(
                    f"Prometheus warns: {where}: {_clean(str(warning))}; its answer may be incomplete"
                )
        return body["data"]

    def _malformed(self, path: str, expected: str) -> PrometheusError:
        return PrometheusError(f"Prometheus gave an unexpected answer: {self.url}{path}: expected {expected}")


def _labels(entry: Mapping[str, Any]) -> dict[str, str]:
    return {str(name): str(value) for name, value in entry["metric"].items()}


def _clean(text: str) -> str:
    """Return one line of the server's text, cut to a length that fits into a log."""
    return "".join(each if each.isprintable() else " " for each in text[:_MAX_MESSAGE])
