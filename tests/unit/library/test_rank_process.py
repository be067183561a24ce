"""Which process and which GPU a rank is, by its variables; what counts within a container is no number of the host."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.cases import cases
from tests.unit.library.processes import Script
from trainwarden.identity import process_start_ticks
from trainwarden.record.rank import RankBeat, read_ranks
from trainwarden.training.gpu_memory import GpuDevice
from trainwarden.training.rank_process import RankProcess, gpu_of_rank

A, B = "GPU-8932f937-d72c-4106-c12f-20bd9faed9f6", "GPU-18932f93-7d72-4106-c12f-20bd9faed9f6"


@pytest.fixture
def devices(tmp_path: Path) -> str:
    (tmp_path / "nvidiactl").touch()
    return str(tmp_path)


@cases(
    ("environ", "found"),
    [
        ({}, (None, None)),
        ({"LOCAL_RANK": "3"}, (3, None)),
        ({"CUDA_VISIBLE_DEVICES": "4,5,6", "LOCAL_RANK": "1"}, (5, None)),
        ({"CUDA_VISIBLE_DEVICES": "7"}, (7, None)),
        ({"CUDA_VISIBLE_DEVICES": "7", "LOCAL_RANK": "2"}, (7, None)),
        ({"CUDA_VISIBLE_DEVICES": f"{A}, {B}", "LOCAL_RANK": "1"}, (None, B)),
        ({"CUDA_VISIBLE_DEVICES": "MIG-8932f937-d72c-4106-c12f-20bd9faed9f6"}, (None, f"MIG-{A[4:]}")),
        ({"CUDA_VISIBLE_DEVICES": "GPU-8932"}, (None, None)),
        ({"CUDA_VISIBLE_DEVICES": ""}, (None, None)),
        ({"CUDA_VISIBLE_DEVICES": "-1", "LOCAL_RANK": "0"}, (None, None)),
        ({"CUDA_VISIBLE_DEVICES": "0,1", "LOCAL_RANK": "2"}, (None, None)),
        ({"CUDA_VISIBLE_DEVICES": "0,1"}, (None, None)),
        ({"HIP_VISIBLE_DEVICES": "2,3", "LOCAL_RANK": "1"}, (3, None)),
        # SLURM lets a job see its GPUs as 0, 1, …; the host's numbers are in a variable of its own.
        (
            {"SLURM_JOB_ID": "1", "CUDA_VISIBLE_DEVICES": "0,1", "SLURM_JOB_GPUS": "4,6", "SLURM_LOCALID": "1"},
            (6, None),
        ),
        ({"SLURM_JOB_ID": "1", "SLURM_JOB_GPUS": "4,6", "SLURM_LOCALID": "1"}, (6, None)),
        (
            {"SLURM_JOB_ID": "1", "CUDA_VISIBLE_DEVICES": "0", "SLURM_STEP_GPUS": "4,6", "SLURM_LOCALID": "1"},
            (None, None),
        ),
        ({"SLURM_JOB_ID": "1", "CUDA_VISIBLE_DEVICES": "0,1", "SLURM_LOCALID": "1"}, (None, None)),
        ({"KUBERNETES_SERVICE_HOST": "10.0.0.1", "LOCAL_RANK": "1"}, (None, None)),
    ],
)
def test_the_gpu_of_a_rank_is_what_its_variables_leave_no_doubt_about(
    environ: dict[str, str], found: tuple[int | None, str | None], devices: str
) -> None:
    assert gpu_of_rank(environ, devices=devices) == found


def test_a_rank_on_a_host_without_gpus_has_none(tmp_path: Path) -> None:
    assert gpu_of_rank({"LOCAL_RANK": "0"}, devices=str(tmp_path)) == (None, None)


def test_the_device_that_is_in_use_counts_more_than_the_convention() -> None:
    process, environ = RankProcess(1, gpu=4), {"CUDA_VISIBLE_DEVICES": "4,5", "LOCAL_RANK": "0"}
    assert process.using(GpuDevice(1, B), environ) == RankProcess(1, gpu=5, uuid=B)
    assert process.using(GpuDevice(None, None), environ) == RankProcess(1, gpu=4)


def test_this_process_is_known_by_its_pid_start_and_namespace() -> None:
    current = RankProcess.current({})
    assert (current.pid, current.start) == (os.getpid(), process_start_ticks(os.getpid()))
    assert current.namespace == Path("/proc/self/ns/pid").stat().st_ino


_TORCH = """
import sys, types, trainwarden
from tests.waiting import wait_until
torch = types.ModuleType("torch")
torch.cuda = types.ModuleType("torch.cuda")
torch.version = types.SimpleNamespace(hip=None)
torch.cuda.is_initialized = lambda: True
torch.cuda.current_device = lambda: 1
torch.cuda.get_device_properties = lambda at: types.SimpleNamespace(uuid=uuids[at])
uuids = ["8932f937-d72c-4106-c12f-20bd9faed9f6", "18932f93-7d72-4106-c12f-20bd9faed9f6"]
sys.modules["torch"] = torch
"""


@pytest.mark.process
def test_a_rank_beside_rank_0_records_the_gpu_that_pytorch_uses(script: Script) -> None:
    done = script.run(
        _TORCH
        + """
with trainwarden.run("r", rank=1, world_size=2) as run:
    wait_until(lambda: run._recorder.gpu_memory.due)
    run.step(1)
    assert not hasattr(torch.cuda, "memory_stats")
""",
        CUDA_VISIBLE_DEVICES="4,5",
        TRAINWARDEN_ATTEMPT_KEY="local:1:0",
    )
    assert done.returncode == 0, done.stderr
    (beat,) = read_ranks(script.folder)
    assert isinstance(beat, RankBeat)
    assert (beat.gpu, beat.uuid) == (5, B)
    assert beat.process_start
    assert beat.pid_namespace == Path("/proc/self/ns/pid").stat().st_ino
