"""What the training side asks of the thread that writes its record."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Note:
    """A line for `events.jsonl`. `time` is Unix seconds; `data` has a JSON form already."""

    time: float
    event: str
    data: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Caught:
    """A line for `errors.jsonl`: an exception that the training caught and goes on from. `time` is Unix seconds."""

    time: float
    exception_type: str
    message: str
    severity: str
    category: str
    error_type: str
    failure: str
    traceback: str | None = None
    context: Mapping[str, Any] = field(default_factory=dict)
