"""Exceptions that PyTorch, Gloo and safetensors really raise, and their classification."""

import os
import signal
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch.utils.data import DataLoader

from tests.integrations.writers import safetensors_file, torch_file
from trainwarden.classify import classify_exception


def _cut(path: Path) -> Path:
    path.write_bytes(path.read_bytes()[:100])
    return path


class _Killed(torch.utils.data.Dataset):
    def __init__(self, number: int) -> None:
        self.number = number

    def __len__(self) -> int:
        return 2

    def __getitem__(self, index: int) -> int:
        os.kill(os.getpid(), self.number)
        return index


def _store() -> torch.distributed.TCPStore:
    wait = timedelta(seconds=1)
    return torch.distributed.TCPStore("127.0.0.1", 0, is_master=True, timeout=wait, wait_for_workers=False)


def _nobody_listens(_: Path) -> None:
    listening = _store()
    port = listening.port
    del listening
    torch.distributed.TCPStore("127.0.0.1", port, is_master=False, timeout=timedelta(seconds=1))


def _a_rank_is_missing(folder: Path) -> None:
    # Rank 1 of two never comes.
    torch.distributed.init_process_group(
        "gloo",
        init_method=f"file://{folder}/store",
        rank=0,
        world_size=2,
        timeout=timedelta(seconds=1),
    )


RAISED: dict[str, tuple[Callable[[Path], Any], str]] = {
    "shapes that do not fit": (lambda _: torch.zeros(2, 3) @ torch.zeros(4, 5), "exception"),
    "an index out of range": (lambda _: torch.nn.Embedding(4, 2)(torch.tensor([9])), "exception"),
    "types that do not fit": (lambda _: torch.zeros(2, dtype=torch.long) @ torch.zeros(2), "exception"),
    "no gradient": (lambda _: torch.zeros(()).backward(), "exception"),
    "an attribute of None": (lambda _: None.shape, "exception"),  # type: ignore[attr-defined]  # that is the failure
    "a state of another size": (
        lambda _: torch.nn.Linear(2, 2).load_state_dict(torch.nn.Linear(3, 3).state_dict()),
        "checkpoint",
    ),
    "a state without a key": (lambda _: torch.nn.Linear(2, 2).load_state_dict({}), "checkpoint"),
    "a file of torch.save that was cut": (lambda folder: torch.load(_cut(torch_file(folder))), "checkpoint"),
    "a file of safetensors that was cut": (lambda folder: load_file(_cut(safetensors_file(folder))), "checkpoint"),
    "a checkpoint that is not there": (lambda folder: torch.load(folder / "step-7.pt"), "checkpoint"),
    "data that are not there": (lambda folder: (folder / "tokens.bin").read_bytes(), "storage"),
    "more memory than there is": (lambda _: torch.empty(2**55), "host_oom"),
    "a worker that crashed": (lambda _: list(DataLoader(_Killed(signal.SIGSEGV), num_workers=1)), "data_loading"),
    "a worker that was killed": (lambda _: list(DataLoader(_Killed(signal.SIGKILL), num_workers=1)), "host_oom"),
    "a store that nobody serves": (_nobody_listens, "distributed_timeout"),
    "a key that nobody sets": (lambda _: _store().get("never"), "distributed_timeout"),
    "a rank that never comes": (_a_rank_is_missing, "distributed_timeout"),
    "a network interface that is none": (
        lambda _: torch.distributed.ProcessGroupGloo.create_device(interface="nowhere0"),
        "configuration",
    ),
}


@pytest.mark.parametrize("name", RAISED)
def test_what_is_really_raised_is_the_failure_that_it_is(name: str, tmp_path: Path) -> None:
    act, error_type = RAISED[name]
    with pytest.raises(Exception) as raised:  # which one is what the test asks
        act(tmp_path)
    found = classify_exception(raised.value)
    assert found.error_type == error_type, f"{found.slug}: {type(raised.value).__name__}: {raised.value}"
