"""From metric families to the bytes of a page: encoded when sampled, ages made true when read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from prometheus_client.exposition import generate_latest

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from prometheus_client.core import Metric

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
AGE_SUFFIX = "_age_seconds"


@dataclass(frozen=True)
class Encoded:
    """What one collector sampled: `text` as it is served; `ages` as (text up to the value, seconds when sampled)."""

    text: bytes = b""
    ages: tuple[tuple[bytes, float], ...] = ()
    names: frozenset[str] = frozenset()

    def page(self, elapsed: float) -> bytes:
        """Return the exposition as it is true `elapsed` seconds after the sample was taken."""
        if not self.ages:
            return self.text
        return self.text + b"".join(b"%s%.3f\n" % (prefix, age + elapsed) for prefix, age in self.ages)


def encode(families: Iterable[Metric]) -> Encoded:
    """Encode one collector's families; raises `ValueError` if two of them have the same name."""
    fixed: list[Metric] = []
    ages: list[tuple[bytes, float]] = []
    names: set[str] = set()
    for family in families:
        if family.name in names:
            raise ValueError(f"the family {family.name} was collected twice")
        names.add(family.name)
        if family.name.endswith(AGE_SUFFIX):
            ages.extend(_age_lines(family))
        else:
            fixed.append(family)
    return Encoded(encode_text(fixed), tuple(ages), frozenset(names))


def encode_text(families: Iterable[Metric]) -> bytes:
    """Encode families in the text format, version 0.0.4."""
    return generate_latest(_Collected(families))


def _age_lines(family: Metric) -> Iterator[tuple[bytes, float]]:
    """Take an encoded family apart; its HELP and TYPE lines go in front of its first sample."""
    head = b""
    for line in encode_text([family]).splitlines(keepends=True):
        if line.startswith(b"#"):
            head += line
        else:
            prefix, _, value = line.rpartition(b" ")
            yield head + prefix + b" ", float(value)
            head = b""


class _Collected:
    """Families as the registry that prometheus_client's encoder expects."""

    def __init__(self, families: Iterable[Metric]) -> None:
        self._families = families

    def collect(self) -> Iterable[Metric]:
        return self._families
