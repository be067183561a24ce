"""Recognises GPU memory held by other processes in PyTorch's out-of-memory message."""

import re

_SIZE = r"(\d+(?:\.\d+)?) ([kmgt])ib"
_TOTAL = rf"total capacity of {_SIZE}"
_OWN = rf"this process has {_SIZE} memory in use"
_OTHERS = rf"\bprocess \d+ has {_SIZE} memory in use"
_UNITS = {"k": 1, "m": 2**10, "g": 2**20, "t": 2**30}


def is_left_over(text: str) -> bool:
    """Return whether other processes hold most of the full GPU, by a message in lower case.

    In a container a process may be listed by a number that is not its own, so it counts only where this process is
    named as well.
    """
    total, own = re.search(_TOTAL, text), re.search(_OWN, text)
    if not total or not own:
        return False
    return sum(_size(*found) for found in re.findall(_OTHERS, text)) >= _size(*total.groups()) / 2


def _size(number: str, unit: str) -> float:
    return float(number) * _UNITS[unit]
