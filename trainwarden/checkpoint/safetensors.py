"""A safetensors file says in its header how long it is."""

import json
import struct
from typing import Any

from trainwarden.checkpoint.contents import MAX_READ, Contents, Damaged


def check(contents: Contents, path: str) -> str:
    """What proves the file whole: 8 bytes of length, a JSON header, and data that end where the file does.

    Raises:
        Damaged: it is not whole.
    """
    size = contents.files[path]
    start = contents.read(path, 0, 8)
    if len(start) < 8:
        raise Damaged(f"{path} has no safetensors header")
    (length,) = struct.unpack("<Q", start)
    if length > size - 8:
        raise Damaged(f"{path} is cut off or no safetensors file: a header of {length} bytes in a file of {size}")
    if length > MAX_READ:
        raise OSError(f"the header of {path} has {length} bytes, too many to be read")
    header = contents.read(path, 8, length)
    try:
        tensors = json.loads(header)
    except (ValueError, RecursionError) as error:
        raise Damaged(f"the safetensors header of {path} is no JSON") from error
    expected = 8 + length + _end(tensors, path)
    if size != expected:
        raise Damaged(f"{path} has {size} bytes, and its header promises {expected}")
    return f"{path} has the {size} bytes that its header promises"


def _end(tensors: Any, path: str) -> int:
    """Where the last tensor ends, counted from the end of the header."""
    if not isinstance(tensors, dict):
        raise Damaged(f"the safetensors header of {path} names no tensors")
    end = 0
    for name, tensor in tensors.items():
        if name == "__metadata__":
            continue
        offsets = tensor.get("data_offsets") if isinstance(tensor, dict) else None
        if not (isinstance(offsets, list) and len(offsets) == 2 and all(type(one) is int for one in offsets)):
            raise Damaged(f"the safetensors header of {path} gives a tensor no place")
        end = max(end, offsets[1])
    return end
