"""What one collector of devices says of a tree, look by look."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.unit.exporter.runs_tree import samples_of
from trainwarden_exporter.sampling.collection import Collection
from trainwarden_exporter.sampling.device_group import DeviceGroup

if TYPE_CHECKING:
    from trainwarden_exporter.sampling.task import DeviceCollector


class Watched:
    """Each `look` samples everything once; `page` is what would be served then."""

    def __init__(self, collector: DeviceCollector, timeout: float = 30.0) -> None:
        self.group = DeviceGroup(collector, 1.0, timeout)
        self.page = ""
        self.samples: dict[str, dict[frozenset[tuple[str, str]], float]] = {}

    def look(self) -> None:
        self.group.sample_once()
        self.page = Collection([self.group]).page().decode()
        self.samples = samples_of(self.page)

    def value(self, name: str, /, **labels: str) -> float | None:
        """The sample with exactly these labels; None if there is none."""
        return self.samples.get(name, {}).get(frozenset(labels.items()))

    def labelled(self, name: str, label: str) -> dict[str, float]:
        """The values of a metric by one of its labels."""
        return {dict(labels)[label]: value for labels, value in self.samples.get(name, {}).items()}

    @property
    def success(self) -> float | None:
        return self.value("trainwarden_collector_success", collector=self.group.name)
