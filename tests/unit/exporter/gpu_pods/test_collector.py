"""Which pod has which GPU, by the answers of a kubelet."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.unit.exporter.gpu_jobs.node_tree import MINORS, NodeTree, uuid
from tests.unit.exporter.gpu_pods.kubelet import Kubelet, claimed, container, devices, field, pod, with_gpus
from trainwarden_exporter.collectors.gpu.roster import NodeRoster, RosterGpu
from trainwarden_exporter.collectors.gpu_jobs.gpus import GpuSearch
from trainwarden_exporter.collectors.gpu_pods.collector import MAX_SERIES, GpuPodsCollector
from trainwarden_exporter.collectors.gpu_pods.pod_resources import (
    MAX_ANSWER_BYTES,
    MAX_DEVICES,
    KubeletError,
    PodResources,
)
from trainwarden_exporter.core.exposition import encode_text
from trainwarden_exporter.core.node import Node
from trainwarden_exporter.sampling.sampler import Sampler
from trainwarden_exporter.sampling.task import single_task

MIG = "MIG-5c5c1c5e-0000-1111-2222-333344445555"
SECONDS = 60.0


def collector(
    tree: NodeTree, kubelet: Kubelet, amd: NodeRoster | None = None, *, timeout: float = SECONDS
) -> GpuPodsCollector:
    node = Node("n1", tree.sysfs, tree.procfs, tree.rootfs)
    return GpuPodsCollector(GpuSearch(node, NodeRoster(), amd or NodeRoster()), PodResources(kubelet.socket, timeout))


def page(made: GpuPodsCollector) -> list[str]:
    text = encode_text(made.collect()).decode()
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    return [line.removesuffix(" 1.0") if line.startswith("gpu_pod_info") else line for line in lines]


def info(gpu: str, uuid: str, name: str, *, mig: str = "", namespace: str = "train", container: str = "main") -> str:
    return (
        f'gpu_pod_info{{gpu="{gpu}",uuid="{uuid}",mig_uuid="{mig}",namespace="{namespace}",pod="{name}",'
        f'container="{container}"}}'
    )


def of_gpu(index: int, name: str, **labels: str) -> str:
    return info(str(index), uuid(index), name, **labels)


@pytest.fixture
def shown(tree: NodeTree, kubelet: Kubelet) -> Callable[..., list[str]]:
    """The lines about pods for an answer; all its GPUs must be known unless the test says how many are not."""

    def of(*pods: bytes, unmatched: int = 0, dropped: int = 0) -> list[str]:
        kubelet.answer = b"".join(pods)
        *lines, left_out, missing = page(collector(tree, kubelet))
        assert left_out == f"trainwarden_gpu_pods_dropped {dropped}.0"
        assert missing == f"trainwarden_gpu_pods_unmatched {unmatched}.0"
        return lines

    return of


def test_each_gpu_has_the_container_that_the_kubelet_gave_it_to(shown: Callable[..., list[str]]) -> None:
    two = pod(
        "llm-0",
        container("main", devices("nvidia.com/gpu", uuid(0)), devices("rdma/hca", "mlx5_0")),
        container("sidecar"),
        container("eval", devices("nvidia.com/gpu", uuid(1))),
        namespace="research",
    )
    assert shown(two, pod("dns-x7k", container("dns")), with_gpus("llm-1", uuid(3).upper())) == [
        of_gpu(0, "llm-0", namespace="research"),
        of_gpu(1, "llm-0", namespace="research", container="eval"),
        of_gpu(3, "llm-1"),
    ]


def test_a_node_without_pods_has_no_series(shown: Callable[..., list[str]]) -> None:
    assert shown() == []


def test_an_instance_is_named_by_its_uuid_which_gpu_mig_info_has_too(shown: Callable[..., list[str]]) -> None:
    old = f"MIG-{uuid(2)}/7/0"
    pods = (
        with_gpus("a", MIG, resource="nvidia.com/mig-1g.10gb"),
        with_gpus("b", MIG.replace("5c", "6d"), resource="nvidia.com/gpu"),  # strategy single
        with_gpus("c", old, resource="nvidia.com/mig-3g.40gb"),
        with_gpus("d", f"{MIG.replace('5c', '7e')}::1", resource="nvidia.com/mig-1g.10gb.shared"),
    )
    assert shown(*pods) == [
        info("", "", "a", mig=MIG),
        info("", "", "b", mig=MIG.replace("5c", "6d")),
        info("", "", "d", mig=MIG.replace("5c", "7e")),
        of_gpu(2, "c", mig=old),
    ]


def test_pods_that_share_a_gpu_have_it_once_each_however_many_replicas(shown: Callable[..., list[str]]) -> None:
    pods = (
        with_gpus("a", f"{uuid(1)}::0", f"{uuid(1)}::11"),
        with_gpus("b", f"{uuid(1)}::3", resource="nvidia.com/gpu.shared"),
    )
    assert shown(*pods) == [of_gpu(1, "a"), of_gpu(1, "b")]


def test_the_plugin_of_gke_counts_by_device_files(shown: Callable[..., list[str]]) -> None:
    pods = (with_gpus("a", "nvidia0"), with_gpus("b", "nvidia1/vgpu3"), with_gpus("c", "nvidia2/gi1/vgpu0"))
    assert shown(*pods) == sorted(of_gpu(MINORS.index(minor), name) for minor, name in enumerate("abc"))


def test_only_gpus_that_the_node_does_not_know_count_as_unmatched(shown: Callable[..., list[str]]) -> None:
    unknown = ("GPU-99999999-1111-2222-3333-444444444444", "nvidia9", "MIG-1", "", "x" * 5000)
    pods = (
        with_gpus("a", *unknown),
        with_gpus("b", "amdgpu_xcp_30", "0000:0c:00.0", resource="amd.com/gpu"),
        with_gpus("c", "0000:9d:00.1", resource="nvidia.com/hostdev"),
        with_gpus("d", uuid(0), resource="vendor.example/nvidia.com/gpu"),
        with_gpus("e", uuid(2), resource="nvidia.com/H100"),  # a plugin may be configured to name it so
    )
    assert shown(*pods, unmatched=7) == [of_gpu(2, "e")]


def test_gpus_of_amd_are_known_by_their_address(tmp_path: Path, kubelet: Kubelet) -> None:
    amd = NodeRoster()
    amd.is_sampled = True
    amd.replace_by([RosterGpu(0, "0000:0c:00.0", "aa-1"), RosterGpu(1, "0000:8c:00.0", "aa-2")])
    kubelet.answer = with_gpus("a", "0000:8C:00.0", "amdgpu_xcp_30", resource="amd.com/gpu")
    lines = page(collector(NodeTree(tmp_path, gpus=0), kubelet, amd))
    assert [lines[0], lines[-1]] == [info("1", "aa-2", "a"), "trainwarden_gpu_pods_unmatched 1.0"]


def test_names_stay_what_kubernetes_has_and_other_text_is_made_fit(shown: Callable[..., list[str]]) -> None:
    like_a_token = "sk-learn-train-0"  # is redacted in any other text
    hostile = 'evil"} 1\nup{x="\x1b[31m'
    first, second, third = shown(
        with_gpus(like_a_token, uuid(0)), with_gpus(hostile, uuid(1)), with_gpus("\u00e9" * 999, uuid(2))
    )
    assert first == of_gpu(0, like_a_token)
    assert r'pod="evil\"} 1 up{x=\""' in second
    name = re.search('pod="([^"]*)"', third)
    assert name
    assert len(name[1].encode()) <= 253


def test_the_series_are_bounded(shown: Callable[..., list[str]]) -> None:
    pods = [with_gpus(f"p{number}", f"{uuid(0)}::{number}") for number in range(MAX_SERIES + 5)]
    assert len(shown(*pods, dropped=5)) == MAX_SERIES


def test_a_pod_that_ended_is_gone_with_the_next_sample(tree: NodeTree, kubelet: Kubelet) -> None:
    made = collector(tree, kubelet)
    kubelet.answer = with_gpus("a", uuid(0))
    assert of_gpu(0, "a") in page(made)
    kubelet.answer = with_gpus("b", uuid(0))
    assert page(made)[:-2] == [of_gpu(0, "b")]


def test_a_kubelet_that_hangs_costs_one_sample_and_leaves_no_old_pods(tree: NodeTree, kubelet: Kubelet) -> None:
    kubelet.answer = with_gpus("a", uuid(0))
    made = Sampler(single_task(collector(tree, kubelet, timeout=0.3), 1, SECONDS))
    made.sample()
    assert made.ready()
    kubelet.answers.clear()
    made.sample()
    assert made.ready() == []
    assert re.search("DEADLINE_EXCEEDED", made.status().error or "")
    assert not made.status().stuck
    kubelet.answers.set()
    made.sample()
    assert made.ready()


def test_a_kubelet_that_starts_again_is_asked_at_its_new_socket(tree: NodeTree, kubelet: Kubelet) -> None:
    kubelet.answer = with_gpus("a", uuid(0))
    made = collector(tree, kubelet)
    assert of_gpu(0, "a") in page(made)
    kubelet.stop()
    messages = set()
    for _ in range(3):
        with pytest.raises(KubeletError, match=r"kubelet\.sock: UNAVAILABLE: .*No such file") as refused:
            page(made)
        messages.add(str(refused.value))
    assert len(messages) == 1  # the log has it once
    kubelet.start()
    assert of_gpu(0, "a") in page(made)
    assert set(kubelet.calls) == {"/v1.PodResourcesLister/List"}


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (field(1, b"\0" * (MAX_ANSWER_BYTES + 1)), "RESOURCE_EXHAUSTED"),
        (b"\x0a\xff", "no ListPodResourcesResponse"),
        (field(1, field(1, b"\xff\xfe")), "no ListPodResourcesResponse"),
        (with_gpus("p", *[""] * (MAX_DEVICES + 1)), "more than 100000 devices"),
    ],
    ids=["oversized", "cut off", "no UTF-8", "countless"],
)
def test_an_answer_that_cannot_be_read_is_an_error(
    tree: NodeTree, kubelet: Kubelet, answer: bytes, message: str
) -> None:
    kubelet.answer = answer
    with pytest.raises(KubeletError, match=message):
        page(collector(tree, kubelet))


def test_gpus_of_a_claim_have_the_containers_that_share_it(shown: Callable[..., list[str]]) -> None:
    """The driver names a GPU by the number of its device file."""
    claim = claimed("gpu.nvidia.com", f"gpu-{MINORS[1]}")
    two = pod("llm-0", container("a", claims=claim), container("b", claims=claim))
    assert shown(two) == [of_gpu(1, "llm-0", container=name) for name in ("a", "b")]


def test_a_device_of_a_claim_that_is_no_whole_gpu_is_counted(shown: Callable[..., list[str]]) -> None:
    names = ("gpu-0-mig-9-0-1", "gpu-0-mig-1g10gb-0", "gpu-vfio-0", "gpu-99", "gpu-", "gpu-0/../1", "")
    assert not shown(pod("p", container("c", claims=claimed("gpu.nvidia.com", *names))), unmatched=len(names))
    assert not shown(pod("p", container("c", claims=claimed("gpu.amd.com", "gpu-0"))), unmatched=1)
    assert not shown(pod("p", container("c", claims=claimed("dra.example.org", "gpu-0"))))
