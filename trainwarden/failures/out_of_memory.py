"""The numbers in PyTorch's message of a full GPU, and what follows from them for the next start.

Two wordings are read, that of PyTorch 2 and the older one:

    Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.14 GiB of which 1.00 GiB is free. Including non-PyTorch
    memory, this process has 78.14 GiB memory in use. Of the allocated memory 70.00 GiB is allocated by PyTorch, and
    6.00 GiB is reserved by PyTorch but unallocated.

    Tried to allocate 2.00 GiB (GPU 0; 79.15 GiB total capacity; 77.00 GiB already allocated; 0.50 GiB free; 77.50 GiB
    reserved in total by PyTorch)
"""

from __future__ import annotations

import math
import re

TYPE_CHECKING = False
if TYPE_CHECKING:
    from trainwarden.failures.failure import Failure

_SIZE = r"(\d{1,9}(?:\.\d{1,9})?) ([KMGT]?)i?B"
_TRIED = rf"Tried to allocate {_SIZE}"
_TOTAL = rf"total capacity of {_SIZE}|{_SIZE} total capacity"
_FREE = rf"{_SIZE} (?:is )?free"
_ALLOCATED = rf"{_SIZE} (?:is|already) allocated"
_UNALLOCATED = rf"{_SIZE} is reserved by PyTorch but unallocated"
_RESERVED = rf"{_SIZE} reserved in total"
_OWN = rf"this process has {_SIZE} memory in use"
_OTHERS = rf"\bProcess \d{{1,9}} has {_SIZE} memory in use"
_UNITS = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}
_GIB = 2**30


def is_left_over(message: str) -> bool:
    """Return whether other processes hold most of the full GPU.

    In a container a process may be listed by a number that is not its own, so it counts only where this process is
    named as well.
    """
    if "memory in use" not in message:
        return False
    total = _bytes(_TOTAL, message)
    if total is None or not re.search(_OWN, message):
        return False
    return sum(_size(*found) for found in re.findall(_OTHERS, message)) >= total / 2


def suggestion(failure: Failure, message: str, batch_size: float | None = None) -> str:
    """Return what to change after a failure: with numbers where its message states them, else the failure's own hint.

    Args:
        failure: as it was classified.
        message: of the exception, whole.
        batch_size: with which the GPU ran full, where it is known.
    """
    if failure.slug != "cuda_oom":
        return failure.hint
    tried, allocated, free = _bytes(_TRIED, message), _bytes(_ALLOCATED, message), _bytes(_FREE, message)
    if tried is None or allocated is None or free is None:
        return failure.hint
    reserved, unallocated = _bytes(_RESERVED, message), _bytes(_UNALLOCATED, message)
    if unallocated is None:
        unallocated = 0.0 if reserved is None else max(0.0, reserved - allocated)
    needed, room = allocated + tried, allocated + unallocated + free
    is_smallest = batch_size is not None and 1 <= batch_size < 2
    if needed <= room:
        lower = "the sequence length" if is_smallest else "the batch size or the sequence length"
        return (
            f"{_size_text(unallocated + free)} were unused, in pieces too small for {_size_text(tried)}: set "
            f"PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True, or lower {lower}."
        )
    numbers = f"The step needed at least {_size_text(needed)}, and there were {_size_text(room)}: "
    if is_smallest:
        return (
            f"{numbers}the batch size of 1 cannot be lowered, and gradient accumulation is no help; use a shorter "
            "sequence, activation checkpointing or sharding."
        )
    if batch_size is not None and math.isfinite(batch_size) and batch_size >= 2:
        # An upper bound: parameters and optimizer take the same memory whatever the batch.
        most = max(1, min(math.floor(batch_size * room / needed), math.ceil(batch_size) - 1))
        change = f"use a batch size of {most} at most instead of {batch_size:g}, or a shorter sequence."
    else:
        percent = math.ceil(100 * (needed - room) / needed)
        change = f"lower the batch size per device or the sequence length, by {percent} % at least."
    return f"{numbers}{change} Activation checkpointing and sharding save memory, too."


def _bytes(pattern: str, message: str) -> float | None:
    found = re.search(pattern, message)
    if not found:
        return None
    number, unit = (part for part in found.groups() if part is not None)
    return _size(number, unit)


def _size_text(size: float) -> str:
    """Return a number of bytes in GiB, or in MiB below one."""
    return f"{size / _GIB:.1f} GiB" if size >= _GIB else f"{size / 2**20:.0f} MiB"


def _size(number: str, unit: str) -> float:
    return float(number) * _UNITS[unit]
