"""Every metric of the exporter, once: collectors take their families from here, docs/metrics.md is made from here."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from trainwarden_exporter.amd.catalog import AMD_ROWS
from trainwarden_exporter.clock.catalog import CLOCK_ROWS
from trainwarden_exporter.efa.catalog import EFA_ROWS
from trainwarden_exporter.finetuning.catalog import FINETUNING_ROWS
from trainwarden_exporter.gpu.catalog import GPU_ROWS
from trainwarden_exporter.gpu_jobs.catalog import GPU_JOBS_ROWS
from trainwarden_exporter.infiniband.catalog import INFINIBAND_ROWS
from trainwarden_exporter.kernel.catalog import KERNEL_ROWS
from trainwarden_exporter.logs.catalog import LOG_ROWS
from trainwarden_exporter.metric import Family
from trainwarden_exporter.nvidia.catalog import NVIDIA_ROWS
from trainwarden_exporter.process.catalog import PROCESS_ROWS
from trainwarden_exporter.ray.catalog import RAY_ROWS
from trainwarden_exporter.runs.catalog import RUN_ROWS
from trainwarden_exporter.s3.catalog import S3_ROWS
from trainwarden_exporter.sampling.catalog import OWN_ROWS
from trainwarden_exporter.slurm.catalog import SLURM_ROWS
from trainwarden_exporter.transport.catalog import TRANSPORT_ROWS

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from trainwarden_exporter.metric import Entry, Row

_ROOMS = {
    "Runs": RUN_ROWS,
    "Logs": LOG_ROWS,
    "Networks of runs": TRANSPORT_ROWS,
    "GPUs": (*GPU_ROWS, *NVIDIA_ROWS, *AMD_ROWS),
    "Jobs of GPUs": GPU_JOBS_ROWS,
    "EFA": EFA_ROWS,
    "InfiniBand": INFINIBAND_ROWS,
    "Kernel": KERNEL_ROWS,
    "Clock": CLOCK_ROWS,
    "SLURM": SLURM_ROWS,
    "Ray": RAY_ROWS,
    "Records in S3": S3_ROWS,
    "The exporter's process": PROCESS_ROWS,
    "Runs by the names of the fine-tuning exporter": FINETUNING_ROWS,
    "The exporter itself": OWN_ROWS,
}
METRICS = {entry.name: entry for rows in _ROOMS.values() for entry in rows}
_ORDER = {name: place for place, name in enumerate(METRICS)}


class Families:
    """The families of one collection, made from the catalogue as samples arrive.

    A name or a set of labels that the catalogue does not have is a programming error and raises `KeyError`.
    """

    def __init__(self) -> None:
        self._families: dict[str, Family] = {}
        # Most samples of a run or a device have the labels of another: kept once, they take a fraction of the memory.
        self._labels: dict[tuple[str, ...], tuple[str, ...]] = {}

    def add(self, name: str, value: float | None, /, **labels: str) -> None:
        """Add one sample; None and what is not finite are left out, for missing is not zero."""
        ordered = self._ordered(name, labels)
        if value is not None and math.isfinite(value):
            self._family(name).add(self._labels.setdefault(ordered, ordered), value)

    def add_histogram(self, name: str, buckets: Sequence[tuple[float, int]], total: float, **labels: str) -> None:
        """Add a histogram; `buckets` are (upper bound, observations up to it), the last infinite, `total` their sum."""
        self._family(name).add_histogram(self._ordered(name, labels), buckets, total)

    def rows(self) -> list[tuple[str, list[Row]]]:
        """Return what was added, to be kept and taken over again."""
        return [(name, family.rows) for name, family in self._families.items()]

    def take(self, rows: Iterable[tuple[str, list[Row]]]) -> None:
        """Add what `rows` returned."""
        for name, found in rows:
            self._family(name).rows.extend(found)

    def collected(self) -> list[Family]:
        """Return the families that have samples, in the order of the catalogue."""
        return sorted(self._families.values(), key=lambda family: _ORDER[family.entry.name])

    def _family(self, name: str) -> Family:
        family = self._families.get(name)
        if family is None:
            family = self._families[name] = Family(METRICS[name])
        return family

    def _ordered(self, name: str, labels: dict[str, str]) -> tuple[str, ...]:
        names = METRICS[name].label_names
        if tuple(labels) == names:
            return tuple(labels.values())
        if labels.keys() != set(names):
            raise KeyError(f"{name} has the labels {names}, not {tuple(labels)}")
        return tuple(labels[label] for label in names)


def document() -> str:
    """Return docs/metrics.md."""
    lines = [
        "# Metrics of the exporter",
        "",
        "Made from the catalogue by `python -m trainwarden_exporter.catalog > docs/metrics.md`; change it there.",
        "",
        "A value that could not be read is not exported: missing is not zero. What is exported when, and by which",
        "exporter, is in [exporter.md](exporter.md). Below each table is a query for each of its metrics; its",
        "threshold is a start, to be moved to what is usual on your nodes.",
    ]
    for title, rows in _ROOMS.items():
        lines += [
            "",
            f"## {title}",
            "",
            "| metric | type | unit | labels | meaning | from |",
            "|---" * 6 + "|",
        ]
        for entry in rows:
            labels = ", ".join(f"`{label}`" for label in entry.label_names)
            cells = (f"`{entry.name}`", entry.kind, entry.unit, labels, entry.help, entry.source)
            lines.append(f"| {' | '.join(cells)} |")
        # Not in the table: there a `|` has to be escaped, and what is copied from the file itself is no query.
        lines += ["", "```promql", *_examples(rows), "```"]
    return "\n".join(lines) + "\n"


def _examples(rows: Sequence[Entry]) -> list[str]:
    """Return each query once, below the names of the metrics that it is for."""
    named: dict[str, list[str]] = {}
    for entry in rows:
        named.setdefault(entry.example, []).append(entry.name)
    return [line for query, names in named.items() for line in (f"# {', '.join(names)}", query)]


if __name__ == "__main__":
    print(document(), end="")
