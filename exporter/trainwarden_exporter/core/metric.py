"""Metrics, and the families of samples that one collection yields."""

from __future__ import annotations

import functools
import itertools
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from typing import TypeAlias

# Ends an example that asks how a run is: one that has ended stays on the page for a day, with its last values.
WHILE_RUNNING = ' and on (instance, run_id) training_run_state{state="running"} == 1'


@dataclass(frozen=True, eq=False)
class Metric:
    """One metric: the constants in each `metrics` module, from which docs/metrics.md is made.

    Attributes:
        name: as exposed, with `_total` if it is a counter.
        kind: gauge, counter, histogram, summary or untyped.
        labels: names, separated by blanks.
        unit: for readers.
        help: one sentence, exposed as HELP.
        source: where the value is read.
        example: a query that uses it.
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


def gauge(name: str, labels: str, unit: str, help: str, source: str = "", example: str = "") -> Metric:  # noqa: A002
    """Define a gauge; arguments as the attributes of `Metric`."""
    return Metric(name, "gauge", labels, unit, help, source, example)


def counter(name: str, labels: str, unit: str, help: str, source: str = "", example: str = "") -> Metric:  # noqa: A002
    """Define a counter."""
    return Metric(name, "counter", labels, unit, help, source, example)


def histogram(name: str, labels: str, unit: str, help: str, source: str = "", example: str = "") -> Metric:  # noqa: A002
    """Define a histogram."""
    return Metric(name, "histogram", labels, unit, help, source, example)


def summary(name: str, labels: str, unit: str, help: str, source: str = "", example: str = "") -> Metric:  # noqa: A002
    """Define quantiles that were computed elsewhere, by the label `quantile`; without a sum and a count."""
    return Metric(name, "summary", labels, unit, help, source, example)


def untyped(name: str, labels: str, unit: str, help: str, source: str = "", example: str = "") -> Metric:  # noqa: A002
    """Define a metric of which it is not known whether it only rises."""
    return Metric(name, "untyped", labels, unit, help, source, example)


class Row(NamedTuple):
    """One sample: what follows the metric's name, the values of its labels (for a bucket, `le` last), its value."""

    suffix: str
    labels: tuple[str, ...]
    value: float


# The samples of one metric: labels and values.
Columns: TypeAlias = "tuple[Metric, list[tuple[str, ...]], list[float]]"


class Sample(NamedTuple):
    """One sample as prometheus_client's encoders read it."""

    name: str
    labels: dict[str, str]
    value: float
    timestamp: None = None
    exemplar: None = None
    native_histogram: None = None


class Family:
    """All samples of one metric. It has what prometheus_client expects of a `Metric`, without importing it.

    Attributes:
        labels, values: of each sample; columns, as an object for each of many thousands takes more time than all else.
        suffixes: of a histogram, what follows the metric's name in each sample; empty for all other kinds.
    """

    unit = ""

    def __init__(self, metric: Metric) -> None:
        self.metric = metric
        self.name = metric.name.removesuffix("_total") if metric.kind == "counter" else metric.name
        self.documentation = metric.help
        self.type = "unknown" if metric.kind == "untyped" else metric.kind
        self.labels: list[tuple[str, ...]] = []
        self.values: list[float] = []
        self.suffixes: list[str] = []

    def add(self, labels: tuple[str, ...], value: float) -> None:
        """Add one sample."""
        self.labels.append(labels)
        self.values.append(value)

    def add_histogram(self, labels: tuple[str, ...], buckets: Sequence[tuple[float, int]], total: float) -> None:
        """Add a histogram; `buckets` are (upper bound, observations up to it), the last infinite, `total` their sum."""
        for bound, count in buckets:
            self.add((*labels, "+Inf" if math.isinf(bound) else repr(float(bound))), count)
        self.add(labels, buckets[-1][1])
        self.add(labels, total)
        self.suffixes += ["_bucket"] * len(buckets) + ["_count", "_sum"]

    @property
    def rows(self) -> list[Row]:
        """The samples, one by one."""
        return list(map(Row, self.suffixes or itertools.repeat(""), self.labels, self.values))

    @property
    def samples(self) -> list[Sample]:
        """The samples as prometheus_client reads them."""
        names = self.metric.label_names
        return [
            Sample(
                self.metric.name + row.suffix,
                dict(zip((*names, "le") if row.suffix == "_bucket" else names, row.labels, strict=True)),
                row.value,
            )
            for row in self.rows
        ]


class Families:
    """The families of one collection, made as samples arrive. Wrong labels are a programming error: `KeyError`."""

    def __init__(self) -> None:
        self._families: dict[Metric, Family] = {}
        # Most samples of a run or a device have the labels of another: kept once, they take a fraction of the memory.
        self._labels: dict[tuple[str, ...], tuple[str, ...]] = {}

    def add(self, metric: Metric, value: float | None, /, **labels: str) -> None:
        """Add one sample; leave out None and what is not finite, for missing is not zero."""
        ordered = tuple(labels.values()) if tuple(labels) == metric.label_names else _ordered(metric, labels)
        if value is not None and math.isfinite(value):
            family = self._families.get(metric) or self._family(metric)
            family.labels.append(self._labels.setdefault(ordered, ordered))
            family.values.append(value)

    def add_in_order(self, metric: Metric, value: float | None, labels: tuple[str, ...]) -> None:
        """Add one sample as `add`; `labels` are the values of its labels in their order, for what many devices have."""
        if value is not None and math.isfinite(value):
            family = self._families.get(metric)
            if family is None:
                _check_order(metric, labels)
                family = self._family(metric)
            family.labels.append(labels)
            family.values.append(value)

    def add_each(self, metric: Metric, values: Sequence[float | None], labels: Sequence[tuple[str, ...]]) -> None:
        """Add samples of one metric, each as `add_in_order`."""
        finite = [value for value in values if value is not None and math.isfinite(value)]
        if finite and len(finite) == len(labels):
            _check_order(metric, labels[0])
            family = self._families.get(metric) or self._family(metric)
            family.labels += labels
            family.values += finite
        else:
            for each, value in zip(labels, values, strict=True):
                self.add_in_order(metric, value, each)

    def add_histogram(
        self, metric: Metric, buckets: Sequence[tuple[float, int]], total: float, /, **labels: str
    ) -> None:
        """Add a histogram; `buckets` are (upper bound, observations up to it), the last infinite, `total` their sum."""
        self._family(metric).add_histogram(_ordered(metric, labels), buckets, total)

    def columns(self) -> list[Columns]:
        """Return what was added, but for histograms, to be kept and added again by `extend`."""
        return [(metric, family.labels, family.values) for metric, family in self._families.items()]

    def extend(self, columns: Iterable[Columns]) -> None:
        """Add what `columns` returned."""
        for metric, labels, values in columns:
            family = self._families.get(metric) or self._family(metric)
            family.labels += labels
            family.values += values

    def collected(self) -> list[Family]:
        """Return the families that have samples, by name."""
        return sorted(self._families.values(), key=lambda family: family.metric.name)

    def _family(self, metric: Metric) -> Family:
        family = self._families.get(metric)
        if family is None:
            family = self._families[metric] = Family(metric)
        return family


@dataclass(frozen=True)
class CachedSamples:
    """The samples of one target, and the state that they were made from: valid while that state is equal."""

    made_from: object
    columns: list[Columns]


def _check_order(metric: Metric, labels: tuple[str, ...]) -> None:
    if len(labels) != len(metric.label_names):
        raise KeyError(f"{metric.name} has the labels {metric.label_names}, not {len(labels)} of them")


def _ordered(metric: Metric, labels: dict[str, str]) -> tuple[str, ...]:
    names = metric.label_names
    if labels.keys() != set(names):
        raise KeyError(f"{metric.name} has the labels {names}, not {tuple(labels)}")
    return tuple(labels[label] for label in names)
