"""What the local stack asks of its Prometheus."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import requests

_SECONDS = 5


class NoAnswer(Exception):
    """Prometheus gave no usable answer; the message says why."""


@dataclass(frozen=True)
class Sample:
    """One series of an instant answer."""

    labels: dict[str, str]
    value: float


@dataclass(frozen=True)
class Series:
    """One series of a range answer: (Unix seconds, value) pairs in order."""

    labels: dict[str, str]
    points: list[tuple[float, float]]


@dataclass(frozen=True)
class Prometheus:
    """A Prometheus server by its address."""

    url: str

    def query(self, expression: str, time: float | None = None) -> list[Sample]:
        """An instant query, at `time` in Unix seconds. Raises NoAnswer."""
        parameters: dict[str, str | float] = {"query": expression}
        if time is not None:
            parameters["time"] = time
        result = self._get("query", parameters)
        return [Sample(item["metric"], float(item["value"][1])) for item in result]

    def query_range(self, expression: str, start: float, end: float, step: float = 1.0) -> list[Series]:
        """A range query over Unix seconds. Raises NoAnswer."""
        result = self._get("query_range", {"query": expression, "start": start, "end": end, "step": step})
        return [
            Series(item["metric"], [(float(time), float(value)) for time, value in item["values"]]) for item in result
        ]

    def _get(self, call: str, parameters: dict[str, Any]) -> list[dict[str, Any]]:
        try:
            answer = requests.get(f"{self.url}/api/v1/{call}", params=parameters, timeout=_SECONDS)
            body = answer.json()
        except (requests.RequestException, ValueError) as error:
            raise NoAnswer(str(error)) from None
        if body.get("status") != "success":
            raise NoAnswer(str(body.get("error", answer.status_code)))
        result: list[dict[str, Any]] = body["data"]["result"]
        return result
