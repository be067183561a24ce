"""Which pod has which AMD GPU: by the same label and uuid as the GPU's own series."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest

from tests.devices.amd import AmdMachine, uuid
from tests.unit.exporter.gpu_pods.kubelet import Kubelet, with_gpus

pytestmark = pytest.mark.process


def test_the_pod_of_a_gpu_is_joined_to_it_by_its_uuid(tmp_path: Path) -> None:
    machine = AmdMachine(tmp_path / "node", gpus=2)
    (tmp_path / "proc").mkdir()
    with tempfile.TemporaryDirectory() as folder:  # a socket's path has 107 bytes at most
        kubelet = Kubelet(
            Path(folder) / "kubelet.sock", with_gpus("llm-0", machine.addresses[1], resource="amd.com/gpu")
        )
        where = (f"--collector.gpu-pods.socket={kubelet.socket}", f"--path.procfs={tmp_path / 'proc'}")
        page = machine.page("--collector.gpu-pods", *where)
        kubelet.stop()
    own = f'gpu="1",uuid="{uuid(1)}"'
    assert f'\ngpu_pod_info{{{own},mig_uuid="",namespace="train",pod="llm-0",container="main"}} 1.0\n' in page
    assert f"gpu_power_watts{{{own}}} " in page
