"""From metric families to the bytes of a page: encoded when sampled, ages made true when read."""

from __future__ import annotations

import functools
import itertools
import math
import operator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from trainwarden_exporter.core.metric import Family

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence


CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
OPENMETRICS_CONTENT_TYPE = "application/openmetrics-text; version=1.0.0; charset=utf-8"
AGE_SUFFIX = "_age_seconds"
# Of longer families some sample always is another, and to keep what they were made of takes memory.
SHORT = 64
_WORDS = {"inf": b"+Inf", "-inf": b"-Inf", "nan": b"NaN"}


class AnySample(Protocol):
    """A sample of prometheus_client."""

    @property
    def name(self) -> str:
        """With the suffix of its kind."""

    @property
    def labels(self) -> dict[str, str]:
        """By name."""

    @property
    def value(self) -> float:
        """As exposed."""


class AnyFamily(Protocol):
    """A family of ours or of prometheus_client."""

    @property
    def name(self) -> str:
        """Of a counter, without its suffix."""

    @property
    def documentation(self) -> str:
        """HELP."""

    @property
    def type(self) -> str:
        """TYPE, as in OpenMetrics."""

    @property
    def samples(self) -> Sequence[AnySample]:
        """In the order in which they are exposed."""


@dataclass(frozen=True)
class Block:
    """One family of one sample, encoded: `body` are its lines; `ages` (line up to the value, seconds when sampled)."""

    name: str
    kind: str
    help: str
    body: bytes
    ages: tuple[tuple[bytes, float], ...] = ()


@dataclass(frozen=True)
class Encoded:
    """The encoded sample of one task; `series`: of each family, the beginnings of its lines, unique per series."""

    blocks: tuple[Block, ...] = ()
    series: tuple[Sequence[bytes], ...] = ()


@dataclass(frozen=True)
class _EncodedFamily:
    """A family as it was encoded last: of each sample its key, the beginning of its line and its value."""

    keys: list[tuple[str, ...]]
    prefixes: list[bytes]
    values: list[float]
    block: Block


class Encoder:
    """Encodes the samples of one task.

    Name and labels of a series are rendered once and kept while it lives; a short family whose samples are those of
    before, as most counters of errors are, is not encoded again.
    """

    def __init__(self) -> None:
        self._kept: dict[str, _EncodedFamily] = {}
        self._encoded = Encoded()
        self._families: Iterable[AnyFamily] | None = None

    def encode(self, families: Iterable[AnyFamily]) -> Encoded:
        """Encode; raises `ValueError` if a family or a series occurs twice.

        The same object as before, which a task returns that has read nothing new, is not encoded again; and where every
        family is as before, the object is that of before.
        """
        if families is self._families:
            return self._encoded
        kept: dict[str, _EncodedFamily] = {}
        for family in families:
            if family.name in kept:
                raise ValueError(f"the family {family.name} was collected twice")
            kept[family.name] = _encoded(family, self._kept.get(family.name))
        blocks = tuple([each.block for each in kept.values()])
        series = tuple([each.prefixes for each in kept.values()])
        if not are_same_objects(blocks, self._encoded.blocks) or not are_same_objects(series, self._encoded.series):
            is_same = are_same_objects(series, self._encoded.series)
            self._encoded = Encoded(blocks, self._encoded.series if is_same else series)
        self._kept = kept
        # Of long families this would keep alive what they were made of.
        is_short = all(len(each.keys) <= SHORT for each in kept.values())
        self._families = families if kept and is_short else None
        return self._encoded


def are_same_objects(ones: Sequence[object], others: Sequence[object]) -> bool:
    """Return whether both have the same objects in the same order, as an `Encoder` returns for equal families."""
    return len(ones) == len(others) and all(map(operator.is_, ones, others))


def _encoded(family: AnyFamily, before: _EncodedFamily | None) -> _EncodedFamily:
    if isinstance(family, Family) and not family.suffixes:
        keys, values = family.labels, family.values
    else:
        keys, values = [row[3] for row in _rows(family)], [row[4] for row in _rows(family)]
    if before and keys == before.keys:
        if values == before.values:
            return before
        keys, prefixes = before.keys, before.prefixes
    else:
        known = dict(zip(before.keys, before.prefixes, strict=True)) if before else {}
        prefixes = [known.get(key) or _prefix(name, names, labels) for name, names, labels, key, _ in _rows(family)]
        if len(set(keys)) != len(keys):
            raise ValueError(f"the family {family.name} has a series twice")
    return _EncodedFamily(keys, prefixes, values, _block(family, prefixes, values))


def render(samples: Iterable[tuple[Encoded, float]], *, openmetrics: bool = False) -> bytes:
    """Return a page of encoded samples, each with its age in seconds; the lines of a family are adjacent."""
    lines: dict[str, list[bytes]] = {}
    for encoded, elapsed in samples:
        for block in encoded.blocks:
            under = lines.get(block.name)
            if under is None:
                under = lines[block.name] = [_head(block.name, block.kind, block.help, openmetrics)]
            under.append(block.body)
            under.extend(b"%s%.3f\n" % (prefix, age + elapsed) for prefix, age in block.ages)
    # One copy of all, for a page may be large.
    return b"".join(itertools.chain.from_iterable([*lines.values(), [b"# EOF\n"] if openmetrics else []]))


def encode_text(families: Iterable[AnyFamily]) -> bytes:
    """Encode families in the text format, version 0.0.4, ages as they were sampled."""
    return render([(Encoder().encode(families), 0.0)])


def _rows(family: AnyFamily) -> Iterator[tuple[str, tuple[str, ...], tuple[str, ...], tuple[str, ...], float]]:
    """Yield name, names of labels, labels, key within the family, and value of each sample."""
    if isinstance(family, Family):
        name, names = family.metric.name, family.metric.label_names
        for suffix, labels, value in family.rows:
            if suffix:
                yield name + suffix, (*names, "le") if suffix == "_bucket" else names, labels, (suffix, *labels), value
            else:
                yield name, names, labels, labels, value
    else:
        for sample in family.samples:
            names, labels = tuple(sample.labels), tuple(sample.labels.values())
            yield sample.name, names, labels, (sample.name, *names, *labels), sample.value


def _block(family: AnyFamily, prefixes: list[bytes], values: list[float]) -> Block:
    name = f"{family.name}_total" if family.type == "counter" else family.name
    kind = "untyped" if family.type == "unknown" else family.type
    if name.endswith(AGE_SUFFIX):
        return Block(name, kind, family.documentation, b"", tuple(zip(prefixes, values, strict=True)))
    numbers = map(float, values)
    if all(map(math.isfinite, values)):
        lines = [b"%s%a\n" % line for line in zip(prefixes, numbers, strict=True)]
    else:
        lines = [b"%s%s\n" % (prefix, _number(value)) for prefix, value in zip(prefixes, numbers, strict=True)]
    return Block(name, kind, family.documentation, b"".join(lines))


def _number(value: float) -> bytes:
    text = repr(value)
    return _WORDS.get(text) or text.encode()


def _prefix(name: str, label_names: tuple[str, ...], labels: tuple[str, ...]) -> bytes:
    """Return a line up to its value; a label that is empty is one that is absent, and is written all the same."""
    if not labels:
        return f"{name} ".encode()
    pairs = ",".join(f'{label}="{_escaped(value)}"' for label, value in zip(label_names, labels, strict=True))
    return f"{name}{{{pairs}}} ".encode("utf-8", "replace")


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')


@functools.lru_cache(maxsize=4096)
def _head(name: str, kind: str, text: str, openmetrics: bool) -> bytes:
    text = text.replace("\\", "\\\\").replace("\n", "\\n")
    if openmetrics:
        text = text.replace('"', '\\"')
        name = name.removesuffix("_total") if kind == "counter" else name
        kind = "unknown" if kind == "untyped" else kind
    return f"# HELP {name} {text}\n# TYPE {name} {kind}\n".encode("utf-8", "replace")
