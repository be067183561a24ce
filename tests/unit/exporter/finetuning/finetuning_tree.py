"""Runs and GPUs as members of a collection, and the view of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tests.unit.exporter.runs_tree import HOST, RunsTree, samples_of
from trainwarden_exporter.collectors.gpu import metrics as gpu_metrics
from trainwarden_exporter.core.exposition import AnyFamily, encode_text
from trainwarden_exporter.core.metric import Families, Family, gauge
from trainwarden_exporter.finetuning.view import FinetuningView
from trainwarden_exporter.sampling.sampler import Sampler
from trainwarden_exporter.sampling.task import SampleTask


class FinetuningTree:
    """A runs folder, GPUs of this node, and what the view makes of them."""

    def __init__(self, runs: RunsTree) -> None:
        self.runs = runs
        self.fails = False
        self.gpus: list[Family] = []
        self.jobs: list[Family] = []
        self._samplers = [
            Sampler(SampleTask("runs", self._read, 1, 10)),
            Sampler(SampleTask("nvidia", lambda: self.gpus, 1, 10)),
            Sampler(SampleTask("gpu_jobs", lambda: self.jobs, 1, 10)),
        ]
        self.view = FinetuningView(self._samplers, HOST)

    def gpu(self, *utilizations: float) -> None:
        """GPUs 0, 1, … with this utilisation, 10 bytes of 80 used on each."""
        families = Families()
        for number, utilization in enumerate(utilizations):
            labels = {"gpu": str(number), "uuid": f"GPU-{number}"}
            families.add(gpu_metrics.GPU_UTILIZATION_RATIO, utilization, **labels)
            families.add(gpu_metrics.GPU_MEMORY_USED_BYTES, 10, **labels)
            families.add(gpu_metrics.GPU_MEMORY_SIZE_BYTES, 80, **labels)
        self.gpus = families.collected()

    def attribute(self, name: str, gpus: Mapping[int, Mapping[str, str]]) -> None:
        """An info metric of GPUs with these labels besides their own."""
        more = sorted({label for labels in gpus.values() for label in labels})
        family = Family(gauge(name, " ".join(["gpu", "uuid", *more]), "1", "."))
        for number, labels in gpus.items():
            family.add((str(number), f"GPU-{number}", *(labels[label] for label in more)), 1)
        self.jobs = [family]

    def _read(self) -> Iterable[AnyFamily]:
        if self.fails:
            raise OSError("the runs folder cannot be read")
        return self.runs.collector.collect()

    def text(self) -> str:
        for sampler in self._samplers:
            sampler.sample()
        return encode_text(self.view.collect()).decode()

    def samples(self) -> dict[str, dict[frozenset[tuple[str, str]], float]]:
        return samples_of(self.text())

    def value(self, name: str, job_name: str = "r", **labels: str) -> float | None:
        """The value of a job's only sample of this name with these labels; None if there is none."""
        wanted = {("job_name", job_name), *labels.items()}
        found = [value for key, value in self.samples().get(f"finetuning_{name}", {}).items() if wanted <= key]
        assert len(found) <= 1
        return found[0] if found else None
