"""The GPU's memory is recorded where PyTorch is in use, without side effects where it is not."""

import json
from typing import Any

import pytest

from tests.unit.library.processes import Script
from trainwarden.record.rank import RankBeat, read_ranks

pytestmark = pytest.mark.process

# What the library sees of PyTorch; every use is written down.
_FAKE = """
import sys, threading, time, types, trainwarden
from tests.waiting import wait_until
from trainwarden.training import gpu_memory
MB = 2**20
uses = []
state = types.SimpleNamespace(allocated=100 * MB, ready=True, broken=False)
def memory_stats():
    assert state.ready, "asked before CUDA was initialised"
    uses.append(threading.current_thread().name)
    if state.broken:
        raise RuntimeError("CUDA error: an illegal memory access was encountered")
    return {
        "allocated_bytes.all.current": state.allocated,
        "reserved_bytes.all.current": 2 * state.allocated,
        "allocated_bytes.all.peak": 3 * state.allocated,
    }
torch = types.ModuleType("torch")
torch.cuda = types.ModuleType("torch.cuda")
torch.cuda.is_initialized = lambda: state.ready
torch.cuda.memory_stats = memory_stats
torch.cuda.mem_get_info = lambda: (taken[0] * MB, 1000 * MB)
taken = [750]
torch.version = types.SimpleNamespace(hip=None)
torch.cuda.current_device = lambda: 1
torch.cuda.device_count = lambda: 4
torch.cuda.get_device_properties = lambda number: types.SimpleNamespace(
    name="NVIDIA H100", uuid="8932f937-d72c-4106-c12f-20bd9faed9f6"
)
def sample(run, step, allocated):
    state.allocated = allocated * MB
    run._recorder.gpu_memory._armed_time = float("-inf")
    wait_until(lambda: run._recorder.gpu_memory.due)
    run.step(step)
"""


def _events(script: Script) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in (script.folder / "events.jsonl").read_text().splitlines()]
    return [line["data"] for line in lines if line["event_type"] == "gpu_stats"]


def test_samples_are_taken_by_the_loop_and_summed_up(script: Script) -> None:
    done = script.run(
        _FAKE
        + """
sys.modules["torch"] = torch
with trainwarden.run("r") as run:
    start = len(uses)
    sample(run, 1, 100)
    sample(run, 2, 300)
    assert uses[start:] == ["MainThread", "MainThread"], uses
"""
    )
    assert done.returncode == 0, done.stderr
    assert script.read("summary.json")["gpu_stats"] == {
        "samples": 2,
        "avg_allocated_mb": 200.0,
        "max_allocated_mb": 300.0,
        "max_reserved_mb": 600.0,
        "peak_allocated_mb": 900.0,
        "healthy_before_start": True,
    }
    (event,) = _events(script)
    assert event == {"allocated_mb": 100.0, "reserved_mb": 200.0, "peak_allocated_mb": 300.0}


# In the first order CUDA is in use when the run begins; in the other, as in every example, only from the first step on.
_ORDERS = {
    "before": 'sys.modules["torch"] = torch\nrun = trainwarden.run("r")\nsample(run, 1, 100)\n',
    "after": 'run = trainwarden.run("r")\nsys.modules["torch"] = torch\nsample(run, 1, 100)\n',
}


@pytest.mark.parametrize("order", _ORDERS)
def test_a_device_that_somebody_else_has_filled_is_reported_before_the_training(script: Script, order: str) -> None:
    """A warning, an event, and the rank's heartbeat say how much of which GPU is taken, once."""
    fill = "taken[0] = 60_000\ntorch.cuda.mem_get_info = lambda: (20_000 * MB, 80_000 * MB)\nstate.allocated = 0\n"
    done = script.run(_FAKE + fill + _ORDERS[order].replace("100)", "0)") + "sample(run, 2, 0)\n")
    assert done.returncode == 0, done.stderr
    assert script.read("summary.json")["gpu_stats"]["healthy_before_start"] is False
    assert done.stderr.count("other processes use 58.6 of 78.1 GiB of the memory of GPU 1 (NVIDIA H100)") == 1
    events = [json.loads(line) for line in (script.folder / "events.jsonl").read_text().splitlines()]
    [event] = [event["data"] for event in events if event["event_type"] == "gpu_unhealthy"]
    assert event == {
        "gpu": 1,
        "uuid": "GPU-8932f937-d72c-4106-c12f-20bd9faed9f6",
        "gpu_type": "NVIDIA H100",
        "used_by_others_mb": 60_000.0,
        "total_mb": 80_000.0,
    }
    metadata = script.read("metadata.json")
    assert (metadata["gpu_type"], metadata["gpu_count"]) == ("NVIDIA H100", 4)
    [beat] = read_ranks(script.folder)
    assert isinstance(beat, RankBeat)
    assert beat.gpu_taken_bytes == 60_000 * 2**20


@pytest.mark.parametrize("order", _ORDERS)
def test_of_a_device_that_the_training_has_for_itself_nothing_is_reported(script: Script, order: str) -> None:
    done = script.run(_FAKE + _ORDERS[order])
    assert "other processes" not in done.stderr
    assert "gpu_unhealthy" not in (script.folder / "events.jsonl").read_text()
    [beat] = read_ranks(script.folder)
    assert isinstance(beat, RankBeat)
    assert beat.gpu_taken_bytes is None


def test_every_rank_measures_its_own_device(script: Script) -> None:
    fill = 'import os\nos.environ.update(RANK="3", WORLD_SIZE="4")\ntaken[0] = 100\nstate.allocated = 0\n'
    done = script.run(_FAKE + fill + 'sys.modules["torch"] = torch\nrun = trainwarden.run("r")\n')
    assert done.returncode == 0, done.stderr
    assert "other processes use 0.9 of 1.0 GiB of the memory of GPU 1" in done.stderr
    [beat] = read_ranks(script.folder)
    assert isinstance(beat, RankBeat)
    assert (beat.rank, beat.gpu_taken_bytes) == (3, 900 * 2**20)


def test_cuda_is_never_initialised_and_torch_never_imported(script: Script) -> None:
    """PyTorch may come while the run goes on; until the training itself uses the GPU, nothing is known."""
    done = script.run(
        _FAKE
        + """
run = trainwarden.run("r")
assert not any(name.partition(".")[0] == "torch" for name in sys.modules)
with run:
    run.step(1)
    state.ready = False
    sys.modules["torch"] = torch
    sample(run, 2, 50)
    assert not uses
    state.ready = True
    sample(run, 3, 50)
    assert len(uses) == 1
"""
    )
    assert done.returncode == 0, done.stderr
    said = script.read("summary.json")["gpu_stats"]
    assert (said["samples"], said["max_allocated_mb"], said["healthy_before_start"]) == (1, 50.0, True)


def test_a_device_that_was_first_used_after_the_start_is_measured_with_the_first_sample(script: Script) -> None:
    """In this order every example uses it: the run, then the model on the device."""
    done = script.run(
        _FAKE
        + """
torch.cuda.mem_get_info = lambda: (taken[0] * MB, 80000 * MB)
taken[0] = 60000
with trainwarden.run("r") as run:
    sys.modules["torch"] = torch
    sample(run, 1, 5000)
"""
    )
    assert done.returncode == 0, done.stderr
    assert script.read("summary.json")["gpu_stats"]["healthy_before_start"] is False


def test_a_torch_that_is_half_imported_is_left_alone(script: Script) -> None:
    done = script.run(
        _FAKE
        + """
half = types.ModuleType("torch")
half.__getattr__ = lambda name: uses.append(name)
sys.modules["torch"] = half
with trainwarden.run("r") as run:
    sample(run, 1, 50)
    sys.modules["torch"] = None
    sample(run, 2, 50)
    assert not uses, uses
"""
    )
    assert done.returncode == 0, done.stderr


def test_a_gpu_that_raises_is_not_asked_again_and_training_goes_on(script: Script) -> None:
    done = script.run(
        _FAKE
        + """
sys.modules["torch"] = torch
with trainwarden.run("r") as run:
    sample(run, 1, 50)
    state.broken = True
    sample(run, 2, 50)
    before = len(uses)
    memory = run._recorder.gpu_memory
    memory._armed_time = float("-inf")
    memory.arm()
    assert not memory.due
    run.step(3)
    assert len(uses) == before
"""
    )
    assert done.returncode == 0, done.stderr
    assert "illegal memory access" in done.stderr
    assert (script.read("progress.json")["step"], script.read("metadata.json")["status"]) == (3, "succeeded")
    assert script.read("summary.json")["gpu_stats"]["samples"] == 1


def test_a_gpu_that_hangs_silences_no_sign_of_life(script: Script) -> None:
    done = script.run(
        _FAKE
        + """
from trainwarden.training import writer
import json
writer.LIVENESS_SECONDS = 0
sys.modules["torch"] = torch
entered, left = threading.Event(), threading.Event()
with trainwarden.run("r") as run:
    def hang():
        entered.set()
        left.wait(20)
        return {}
    torch.cuda.memory_stats = hang
    loop = threading.Thread(target=sample, args=(run, 1, 50))
    loop.start()
    assert entered.wait(20)
    read = lambda: json.loads((run.folder / "metadata.json").read_text())["last_update"]
    before = read()
    wait_until(lambda: read() != before)
    left.set()
    loop.join()
"""
    )
    assert done.returncode == 0, done.stderr


def test_samples_are_far_apart(script: Script) -> None:
    done = script.run(
        _FAKE
        + """
sys.modules["torch"] = torch
with trainwarden.run("r") as run:
    sample(run, 1, 50)
    memory = run._recorder.gpu_memory
    memory.arm()
    assert not memory.due
    memory._armed_time -= gpu_memory.SAMPLE_SECONDS
    memory.arm()
    assert memory.due
"""
    )
    assert done.returncode == 0, done.stderr
