"""The samples that other collectors have encoded, in a thread or in a child process, parsed again."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from trainwarden_exporter.core.exposition import Encoded
    from trainwarden_exporter.core.metric import Metric

_LINE = re.compile(r"^\w+(?:\{(.*)\})? (\S+)$", re.MULTILINE)
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
_ESCAPE = re.compile(r"\\(.)")


class EncodedSamples:
    """The samples of some families, by metric."""

    def __init__(self, encoded: Iterable[Encoded], families: frozenset[Metric]) -> None:
        names = {metric.name for metric in families}
        self._bodies: dict[str, list[bytes]] = {}
        for one in encoded:
            for block in one.blocks:
                if block.name in names:
                    self._bodies.setdefault(block.name, []).append(block.body)

    def of(self, metric: Metric) -> Iterator[tuple[Mapping[str, str], float]]:
        """Yield each sample of a family: its labels and its value."""
        for body in self._bodies.get(metric.name, ()):
            for found in _LINE.finditer(body.decode("utf-8", "replace")):
                labels = {key: _unescaped(value) for key, value in _LABEL.findall(found[1] or "")}
                yield labels, float(found[2])

    def by(self, label: str, metric: Metric) -> dict[str, float]:
        """Return the values of a family by one of its labels."""
        return {labels.get(label, ""): value for labels, value in self.of(metric)}


def _unescaped(text: str) -> str:
    if "\\" not in text:
        return text
    return _ESCAPE.sub(lambda found: "\n" if found[1] == "n" else found[1], text)
