"""Load for a real NVIDIA GPU, one kind per process, until that is ended: `python -m tests.devices.gpu_work KIND`.

Each kind is what the GPU of a training does in one of its states. Prints `ready` once it is under way. Takes PyTorch
with CUDA, and Triton, which comes with it.
"""

import argparse
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch
import triton
from torch import nn
from triton import language as tl

# Of a collective of NCCL on NVLink: blocks of its kernel, one for each channel.
_CHANNELS = 24
# Reads of the flag after which the kernel ends by itself, if its process was not ended: some six minutes on an H200.
_LONGEST_WAIT = 2**31 - 1


@triton.jit  # type: ignore[untyped-decorator]  # it has no types
def wait_for_flag(flag, longest) -> None:  # type: ignore[no-untyped-def]  # it takes no annotation
    """Poll a number in the GPU's memory until it is no longer 0, as a collective polls the flags of its peers."""
    reads = 0
    while (tl.load(flag, volatile=True) == 0) & (reads < longest):
        reads += 1


@triton.jit  # type: ignore[untyped-decorator]  # it has no types
def write_outside(pointer) -> None:  # type: ignore[no-untyped-def]  # it takes no annotation
    """Write to an address that is not the process's own."""
    tl.store(pointer + (1 << 44), 1.0)


def wait_for_peers(warps: int = 1) -> None:
    """Hang in a kernel that polls like one of NCCL whose peers do not come.

    Args:
        warps: of each block that poll; in NCCL one per peer does, the others wait at a barrier.
    """
    flag = torch.zeros(1, dtype=torch.int32, device="cuda")
    wait_for_flag[(_CHANNELS,)](flag, _LONGEST_WAIT, num_warps=warps)
    torch.cuda.synchronize()


class Training:
    """A transformer of 0.6 billion parameters, and a step of it."""

    def __init__(self, dtype: torch.dtype) -> None:
        width, layers = 2048, 12
        with torch.device("cuda"):
            layer = nn.TransformerEncoderLayer(width, 16, 4 * width, dropout=0.0, batch_first=True, norm_first=True)
            self._model = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self._optimizer = torch.optim.AdamW(self._model.parameters(), lr=1e-4, fused=True)
        self._dtype = dtype
        self._tokens = 1024
        self._width = width

    def step(self) -> float:
        """Train on random values; returns the loss, once the GPU has it."""
        inputs = torch.randn(8, self._tokens, self._width, device="cuda")
        with torch.autocast("cuda", self._dtype, enabled=self._dtype != torch.float32):
            loss = (self._model(inputs) - inputs.sin()).square().mean()
        loss.backward()
        self._optimizer.step()
        self._optimizer.zero_grad()
        return float(loss.detach())

    def generate(self) -> None:
        """Run one token through the model, as generating text does."""
        with torch.no_grad(), torch.autocast("cuda", self._dtype):
            self._model(torch.randn(1, 1, self._width, device="cuda"))

    def state(self) -> dict[str, object]:
        """Return what a checkpoint holds."""
        return {"model": self._model.state_dict(), "optimizer": self._optimizer.state_dict()}


def _train(dtype: torch.dtype, *, tf32: bool = False, pause: float = 0.0) -> None:
    torch.backends.cuda.matmul.allow_tf32 = tf32
    training = Training(dtype)
    training.step()
    _ready()
    while True:
        training.step()
        time.sleep(pause)


def _generate() -> None:
    training = Training(torch.bfloat16)
    training.generate()
    _ready()
    while True:
        training.generate()


def _wait_for_peers(warps: int) -> None:
    Training(torch.bfloat16).step()
    _ready()
    wait_for_peers(warps)


def _wait_for_data() -> None:
    training = Training(torch.bfloat16)  # its memory stays taken
    training.step()
    torch.cuda.synchronize()
    _ready()
    while True:
        time.sleep(60)


def _checkpoint() -> None:
    training = Training(torch.bfloat16)
    training.step()
    with tempfile.TemporaryDirectory() as folder:
        _ready()
        while True:
            torch.save(training.state(), Path(folder, "checkpoint"))


def _copy() -> None:
    source = torch.randn(1 << 28, device="cuda")
    target = torch.empty_like(source)
    _ready()
    while True:
        for _ in range(50):
            target.copy_(source)
        torch.cuda.synchronize()


def _fault() -> None:
    values = torch.zeros(1, device="cuda")
    _ready()
    write_outside[(1,)](values)
    torch.cuda.synchronize()


KINDS: dict[str, Callable[[], None]] = {
    "train_bf16": lambda: _train(torch.bfloat16),
    "train_tf32": lambda: _train(torch.float32, tf32=True),
    "train_float32": lambda: _train(torch.float32),
    "slow_data": lambda: _train(torch.bfloat16, pause=1.0),
    "generate": _generate,
    "wait_for_peers": lambda: _wait_for_peers(1),
    "wait_for_peers_16_warps": lambda: _wait_for_peers(16),
    "wait_for_data": _wait_for_data,
    "checkpoint": _checkpoint,
    "copy": _copy,
    "fault": _fault,
}


def _ready() -> None:
    print("ready", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("kind", choices=KINDS)
    KINDS[parser.parse_args().kind]()
