"""Where the collector is on by default, and what it needs."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from tests.unit.exporter.contexts import context
from tests.unit.exporter.gpu_jobs.node_tree import NodeTree, uuid
from tests.unit.exporter.gpu_pods.kubelet import Kubelet, with_gpus
from trainwarden.errors import UsageError
from trainwarden_exporter.collectors.gpu_pods.spec import SOCKET, SPEC
from trainwarden_exporter.core.node import Node
from trainwarden_exporter.core.spec import Context
from trainwarden_exporter.flags import build_parser
from trainwarden_exporter.sampling.sampler import Sampler


def made(tree: NodeTree, *argv: str, root: Path | None = None) -> Context:
    flags: dict[str, Any] = vars(build_parser().parse_args([*argv, f"--path.state={tree.rootfs}"]))
    return context(SPEC, Node("n1", tree.sysfs, tree.procfs, root or tree.rootfs), flags)


def test_it_is_on_where_there_are_the_socket_and_a_gpu(tree: NodeTree, tmp_path: Path, kubelet: Kubelet) -> None:
    there = f"--collector.gpu-pods.socket={kubelet.socket}"
    assert SPEC.enabled(made(tree, there))
    assert not SPEC.enabled(made(tree))
    assert not SPEC.enabled(made(tree, f"--collector.gpu-pods.socket={tree.rootfs}"))
    assert not SPEC.enabled(made(NodeTree(tmp_path / "other", gpus=0), there))


def test_the_socket_is_that_of_the_node_s_file_system(tree: NodeTree, kubelet: Kubelet) -> None:
    root = kubelet.socket.parent
    (root / SOCKET).parent.mkdir(parents=True)
    kubelet.socket.rename(root / SOCKET)
    here = made(tree, root=root)
    assert SPEC.enabled(here)
    kubelet.answer = with_gpus("a", uuid(0))
    sampler = SPEC.create(here)
    sampler.sample_once()
    ((page, _),) = sampler.ready()
    assert 'pod="a"' in repr(page)


@pytest.mark.parametrize("package", [("grpc", "grpcio"), ("google.protobuf", "protobuf"), ("google", "protobuf")])
def test_a_package_that_is_missing_is_named_with_the_command_that_installs_it(
    tree: NodeTree, kubelet: Kubelet, package: tuple[str, str], monkeypatch: Any, caplog: Any
) -> None:
    module, name = package
    for loaded in [loaded for loaded in sys.modules if f"{loaded}.".startswith(f"{module}.")]:
        monkeypatch.delitem(sys.modules, loaded)
    monkeypatch.setitem(sys.modules, module, None)
    here = made(tree, f"--collector.gpu-pods.socket={kubelet.socket}")
    assert not SPEC.enabled(here)
    command = f"{name} is not installed: pip install 'trainwarden[kubernetes]'"
    assert [record.getMessage() for record in caplog.records] == [f"pods of GPUs are not exported: {command}"]
    with pytest.raises(UsageError, match=r"--collector\.gpu-pods: ") as refused:
        SPEC.create(here)
    assert command in str(refused.value)


def test_nothing_is_logged_about_packages_where_there_is_no_kubelet(
    tree: NodeTree, monkeypatch: Any, caplog: Any
) -> None:
    monkeypatch.setitem(sys.modules, "grpc", None)
    assert not SPEC.enabled(made(tree))
    assert caplog.records == []


def test_a_call_ends_within_the_timeout_of_a_sample(tree: NodeTree, kubelet: Kubelet) -> None:
    kubelet.answers.clear()
    here = made(tree, f"--collector.gpu-pods.socket={kubelet.socket}", "--collector.gpu-pods.timeout=500ms")
    sampler = SPEC.create(here)
    assert isinstance(sampler, Sampler)
    sampler.sample()
    assert "DEADLINE_EXCEEDED" in str(sampler.status().error)
