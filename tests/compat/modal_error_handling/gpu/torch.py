"""A stand-in for PyTorch on one Tesla T4 of 16 GiB: what a training without tensors asks of it.

`environment` of the tests puts this folder on the path of a program that is to have a GPU.
"""

from __future__ import annotations

import os
from types import SimpleNamespace
from typing import Any

_GIB = 2**30
_TOTAL = 16 * _GIB


class Cuda:
    """The module `torch.cuda`.

    Args:
        others: bytes that other processes use.
    """

    def __init__(self, others: int = _GIB) -> None:
        self.others = others
        self.is_initialized = lambda: True

    def is_available(self) -> bool:
        return True

    def device_count(self) -> int:
        return 1

    def current_device(self) -> int:
        return 0

    def get_device_name(self, _number: int = 0) -> str:
        return "Tesla T4"

    def get_device_properties(self, _number: int = 0) -> Any:
        return SimpleNamespace(name="Tesla T4", uuid="11111111-2222-3333-4444-555555555555")

    def memory_allocated(self, _number: int = 0) -> int:
        return _GIB

    def memory_reserved(self, _number: int = 0) -> int:
        return 4 * _GIB

    def max_memory_allocated(self, _number: int = 0) -> int:
        return 3 * _GIB

    def mem_get_info(self, _number: int = 0) -> tuple[int, int]:
        return _TOTAL - self.memory_reserved() - self.others, _TOTAL

    def memory_stats(self) -> dict[str, int]:
        return {
            "allocated_bytes.all.current": self.memory_allocated(),
            "allocated_bytes.all.peak": self.max_memory_allocated(),
            "reserved_bytes.all.current": self.memory_reserved(),
        }


def ones(*_size: int, device: str = "cpu") -> Any:
    """Return what `torch.ones(1, device=…)` is good for here: its one value."""
    return SimpleNamespace(item=lambda: 1.0, device=device)


cuda = Cuda(int(os.environ.get("OTHERS_BYTES", _GIB)))
version = SimpleNamespace(hip=None)
