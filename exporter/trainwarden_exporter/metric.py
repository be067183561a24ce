"""One metric: its entry in the catalogue, and the samples of it that one collection found."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

KINDS = ("gauge", "counter", "histogram", "untyped")
# Ends an example that asks how a run is: one that has ended stays on the page for a day, with what it said last.
WHILE_RUNNING = ' and on (instance, run_id) training_run_state{state="running"} == 1'


@dataclass(frozen=True)
class Entry:
    """One metric: `name` as it is exposed, `kind` of `KINDS`, `labels` a blank between, `unit` for readers.

    `source` is where the value comes from; `example` a query that uses it.
    """

    name: str
    kind: str
    labels: str
    unit: str
    help: str
    source: str = ""
    example: str = ""

    @functools.cached_property
    def label_names(self) -> tuple[str, ...]:
        """The labels, in the order in which they are exposed."""
        return tuple(self.labels.split())


class Row(NamedTuple):
    """One sample: what follows the metric's name, the values of its labels (for a bucket, `le` last), its value."""

    suffix: str
    labels: tuple[str, ...]
    value: float


class Sample(NamedTuple):
    """One sample as prometheus_client's encoders read it."""

    name: str
    labels: dict[str, str]
    value: float
    timestamp: None = None
    exemplar: None = None
    native_histogram: None = None


class Family:
    """All samples of one metric. It has what prometheus_client expects of a `Metric`, without importing it."""

    unit = ""

    def __init__(self, entry: Entry) -> None:
        self.entry = entry
        self.name = entry.name.removesuffix("_total") if entry.kind == "counter" else entry.name
        self.documentation = entry.help
        self.type = "unknown" if entry.kind == "untyped" else entry.kind
        self.rows: list[Row] = []

    def add(self, labels: tuple[str, ...], value: float) -> None:
        """Add one sample."""
        self.rows.append(Row("", labels, value))

    def add_histogram(self, labels: tuple[str, ...], buckets: Sequence[tuple[float, int]], total: float) -> None:
        """Add a histogram; `buckets` are (upper bound, observations up to it), the last infinite, `total` their sum."""
        for bound, count in buckets:
            le = "+Inf" if math.isinf(bound) else repr(float(bound))
            self.rows.append(Row("_bucket", (*labels, le), count))
        self.rows.append(Row("_count", labels, buckets[-1][1]))
        self.rows.append(Row("_sum", labels, total))

    @property
    def samples(self) -> list[Sample]:
        """The samples as prometheus_client reads them."""
        names = self.entry.label_names
        return [
            Sample(
                self.entry.name + row.suffix,
                dict(zip((*names, "le") if row.suffix == "_bucket" else names, row.labels, strict=True)),
                row.value,
            )
            for row in self.rows
        ]
