"""Whose a GPU is, in the labels of dcgm-exporter."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from prometheus_client.parser import text_string_to_metric_families

from trainwarden_exporter.collectors.gpu import metrics as gpu
from trainwarden_exporter.collectors.gpu.roster import NodeRoster
from trainwarden_exporter.collectors.gpu_jobs.metrics import SLURM_GPU_JOB_INFO
from trainwarden_exporter.collectors.gpu_pods.metrics import GPU_POD_INFO
from trainwarden_exporter.core.exposition import encode_text
from trainwarden_exporter.core.metric import Families
from trainwarden_exporter.dcgm import DcgmView
from trainwarden_exporter.sampling.sampler import Sampler
from trainwarden_exporter.sampling.task import single_task

if TYPE_CHECKING:
    from collections.abc import Iterable

    from trainwarden_exporter.core.metric import Family, Metric


class Source:
    """A collector of one metric, whose rows a test changes."""

    def __init__(self, name: str, metric: Metric) -> None:
        self.name = name
        self.rows: list[dict[str, str]] = []
        self._metric = metric

    def collect(self) -> Iterable[Family]:
        families = Families()
        for row in self.rows:
            families.add(self._metric, 1, **{name: row.get(name, "") for name in self._metric.label_names})
            if self.name == "nvidia":
                families.add(gpu.GPU_UTILIZATION_RATIO, 0.5, gpu=row["gpu"], uuid=row["uuid"])
        return families.collected()


class GpuNode:
    """Two GPUs, and the view of them."""

    def __init__(self) -> None:
        self.gpus = Source("nvidia", gpu.GPU_INFO)
        self.pods = Source("gpu_pods", GPU_POD_INFO)
        self.jobs = Source("gpu_jobs", SLURM_GPU_JOB_INFO)
        self.gpus.rows = [{"gpu": str(index), "uuid": f"GPU-{index}"} for index in range(2)]
        self._samplers = [Sampler(single_task(each, 1, 60)) for each in (self.gpus, self.pods, self.jobs)]
        self._view = DcgmView(self._samplers, "n1", NodeRoster())

    def owner(self, index: int = 0) -> dict[str, str]:
        """The labels of a GPU that say whose it is, of those that are not empty."""
        for sampler in self._samplers:
            sampler.sample()
        text = encode_text(self._view.collect()).decode()
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                if sample.name == "DCGM_FI_DEV_GPU_UTIL" and sample.labels["gpu"] == str(index):
                    owners = ("namespace", "pod", "container", "hpc_job")
                    return {name: sample.labels[name] for name in owners if sample.labels[name]}
        raise AssertionError(text)


@pytest.fixture
def node() -> GpuNode:
    """A node whose GPUs nobody has."""
    return GpuNode()


def pod(name: str, uuid: str = "GPU-0", **more: str) -> dict[str, str]:
    return {"uuid": uuid, "namespace": "train", "pod": name, "container": "main", **more}


def test_a_gpu_has_the_labels_of_its_pod_and_of_its_job_as_long_as_they_have_it(node: GpuNode) -> None:
    assert node.owner() == {}
    node.pods.rows, node.jobs.rows = [pod("llm-0")], [{"uuid": "GPU-1", "job_id": "4711"}]
    assert node.owner(0) == {"namespace": "train", "pod": "llm-0", "container": "main"}
    assert node.owner(1) == {"hpc_job": "4711"}
    node.pods.rows, node.jobs.rows = [], []
    assert node.owner(0) == node.owner(1) == {}


def test_a_gpu_that_several_have_is_nobodys(node: GpuNode) -> None:
    node.pods.rows = [pod("llm-0"), pod("llm-1"), pod("llm-2", "GPU-1", mig_uuid="MIG-1")]
    node.jobs.rows = [{"uuid": "GPU-0", "job_id": "1"}, {"uuid": "GPU-0", "job_id": "2"}]
    assert node.owner(0) == node.owner(1) == {}


def test_two_steps_of_a_job_are_one_job(node: GpuNode) -> None:
    node.jobs.rows = [{"uuid": "GPU-0", "job_id": "1", "step_id": step} for step in ("0", "1")]
    assert node.owner() == {"hpc_job": "1"}
