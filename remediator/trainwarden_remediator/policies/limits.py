"""`limits` of a policy file: bounds on top of the budgets of its failure modes."""

from __future__ import annotations

import datetime as dt
import re
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from trainwarden.record.clock import from_iso, to_iso

DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_DAY_SECONDS = 86400.0
_CLOCK = re.compile(r"([01]\d|2[0-3]):([0-5]\d)")
_CONFIG = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)


def _moment(value: object) -> float:
    """Return Unix seconds of what YAML makes of a time with a date."""
    if isinstance(value, dt.datetime):
        zone = value.tzinfo or dt.timezone.utc
        return value.replace(tzinfo=zone).timestamp()
    found = from_iso(value) if isinstance(value, str) else None
    if found is None:
        raise ValueError(f"{value!r}: expected a time such as 2027-01-31T22:00Z")
    return found


def _time_of_day(value: object) -> float:
    """Return the seconds since midnight. YAML 1.1 makes the number of minutes of 22:00 without quotes."""
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 24 * 60:
        return value * 60.0
    found = _CLOCK.fullmatch(value) if isinstance(value, str) else None
    if found is None:
        raise ValueError(f"{value!r}: expected a time of day in UTC such as 22:00")
    return int(found[1]) * 3600.0 + int(found[2]) * 60.0


Moment = Annotated[float, BeforeValidator(_moment)]
TimeOfDay = Annotated[float, BeforeValidator(_time_of_day)]


class Window(BaseModel):
    """At most `restarts` of a run within any `hours`."""

    model_config = _CONFIG

    restarts: int = Field(ge=0, le=1000)
    hours: float = Field(gt=0, le=24 * 365)


class ExcludeNodes(BaseModel):
    """Whether a restart avoids nodes that have evidence of a defect.

    At most `at_most` nodes of a run at once, and at most the `share` of all nodes; an exclusion ends after `hours`.
    """

    model_config = _CONFIG

    at_most: int = Field(default=2, ge=1, le=64)
    share: float = Field(default=0.1, gt=0, le=1)
    hours: float = Field(default=24.0, gt=0, le=24 * 365)


class Once(BaseModel):
    """A maintenance from one moment to another."""

    model_config = _CONFIG

    start: Moment = Field(alias="from")
    end: Moment = Field(alias="to")

    @model_validator(mode="after")
    def _forwards(self) -> Once:
        if self.end <= self.start:
            raise ValueError(f"to: {to_iso(self.end)}: expected a time after from, {to_iso(self.start)}")
        return self

    def until(self, now: float) -> float | None:
        """Return when the maintenance that is on now ends; None where none is."""
        return self.end if self.start <= now < self.end else None


class Weekly(BaseModel):
    """A maintenance on days of the week, in UTC. One that ends before it begins lasts into the next day."""

    model_config = _CONFIG

    days: list[Literal["mon", "tue", "wed", "thu", "fri", "sat", "sun"]] = Field(min_length=1)
    start: TimeOfDay = Field(alias="from")
    end: TimeOfDay = Field(alias="to")

    def until(self, now: float) -> float | None:
        """Return when the maintenance that is on now ends; None where none is."""
        length = (self.end - self.start) % _DAY_SECONDS or _DAY_SECONDS
        midnight = now // _DAY_SECONDS * _DAY_SECONDS
        for begun in (midnight, midnight - _DAY_SECONDS):
            day = DAYS[dt.datetime.fromtimestamp(begun, dt.timezone.utc).weekday()]
            if day in self.days and begun + self.start <= now < begun + self.start + length:
                return begun + self.start + length
        return None


def _kind(value: Any) -> Any:
    """Choose the form of a maintenance by its keys, so that an error names those of one form."""
    return (Weekly if "days" in value else Once).model_validate(value) if isinstance(value, dict) else value


Maintenance = Annotated[Weekly | Once, BeforeValidator(_kind)]


class Limits(BaseModel):
    """Bounds of all failure modes together. None is no bound."""

    model_config = _CONFIG

    restarts: int | None = Field(default=None, ge=0, le=10_000)
    window: Window | None = None
    same_cause: int | None = Field(default=None, ge=0, le=1000)
    restarts_per_hour: int | None = Field(default=None, ge=0, le=10_000)
    exclude_nodes: ExcludeNodes | None = None
    maintenance: list[Maintenance] = []
    approval_above_gpu_hours: float | None = Field(default=None, ge=0, le=1e9)
    veto_seconds: float | None = Field(default=None, gt=0, le=86400)

    @model_validator(mode="after")
    def _veto_of_something(self) -> Limits:
        if self.veto_seconds is not None and self.approval_above_gpu_hours is None:
            raise ValueError("veto_seconds: expected approval_above_gpu_hours beside it")
        return self

    def maintained_until(self, now: float) -> float | None:
        """Return when the maintenance that is on now ends, the latest of several; None where none is."""
        ends = [end for each in self.maintenance if (end := each.until(now)) is not None]
        return max(ends, default=None)
