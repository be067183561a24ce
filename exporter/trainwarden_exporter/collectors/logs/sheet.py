"""What a run's logs were last shown as."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from trainwarden_exporter.core.metric import Metric, Row


@dataclass(frozen=True)
class CachedSamples:
    """The series of a run's signals, what they were made of, how many there are and how many had no room."""

    made_of: object
    rows: list[tuple[Metric, list[Row]]]
    shown: int
    dropped: int
