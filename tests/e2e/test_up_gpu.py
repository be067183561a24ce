"""`trainwarden up` around a training on a real GPU that hangs as in a collective: noticed, explained and restarted."""

import os
import shutil
import signal
import socket
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.e2e.running import Up, starts
from tests.waiting import wait_until
from trainwarden.clients.prometheus import PrometheusClient

pytestmark = [pytest.mark.e2e, pytest.mark.tools, pytest.mark.timeout(540)]

_TRAINING = """
import pathlib, sys
import torch, trainwarden
from tests.devices.gpu_work import Training, wait_for_peers

here = pathlib.Path(sys.argv[1])
with trainwarden.run(total_steps=400) as run:
    last = run.resume_checkpoint()
    start = int(pathlib.Path(last).read_text()) + 1 if last else 1
    with (here / "starts").open("a") as begun:
        begun.write(f"{start}\\n")
    training = Training(torch.bfloat16)
    for step in range(start, 401):
        loss = training.step()
        if step == 150 and start == 1:
            wait_for_peers()
        run.step(step, loss=loss)
        if step % 20 == 0:
            path = here / f"step_{step}"
            path.write_text(str(step))
            run.checkpoint_saved(str(path), step)
"""


@pytest.fixture
def training(tmp_path: Path) -> list[str]:
    if shutil.which("nvidia-smi") is None or not Path("/dev/nvidia0").exists() or find_spec("torch") is None:
        pytest.skip("no NVIDIA GPU is here")
    (tmp_path / "train.py").write_text(_TRAINING)
    return [sys.executable, str(tmp_path / "train.py"), str(tmp_path)]


@pytest.fixture
def environment() -> dict[str, str]:
    return {"PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}


def test_a_hang_on_a_busy_gpu_is_explained(
    up: Callable[..., Up], training: list[str], environment: dict[str, str]
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    prometheus = PrometheusClient(f"http://127.0.0.1:{port}")
    job = up(
        *("--policy", "observe", "--stall-seconds", "60", "--prometheus-port", str(port), "--", *training),
        **environment,
    )
    job.wait(lambda: job.step() == 149)

    def firing() -> dict[str, dict[str, str]]:
        return {each.labels["alertname"]: each.labels for each in prometheus.alerts() if each.state == "firing"}

    wait_until(lambda: "TrainRunCollectiveHung" in firing(), lambda: f"{firing()}\n{job.text[-6000:]}", timeout=240)
    found = firing()
    assert found["TrainRunCollectiveHung"]["run_id"] == "r1"
    assert "TrainRunDataStalled" not in found
    (compute,) = prometheus.query("run:training_hanging_gpus_compute:bool")
    assert compute.value == 0
    job.process.send_signal(signal.SIGINT)
    job.end()


def test_a_hang_on_a_busy_gpu_is_restarted_from_its_checkpoint_and_its_stack_is_kept(
    up: Callable[..., Up], training: list[str], environment: dict[str, str], tmp_path: Path
) -> None:
    job = up("--stall-seconds", "20", "--", *training, **environment)
    assert job.end() == 0, job.text[-6000:]
    assert starts(tmp_path) == [1, 141]
    (stacks,) = (tmp_path / "state/remediator/captures").glob("*/*.stacks")
    assert "wait_for_peers" in stacks.read_text()
    (node,) = (tmp_path / "state/remediator/captures").glob("*/*.node")
    assert "NVIDIA" in node.read_text()
