"""Values of SLURM's JSON. Numbers and states have had three forms each since 22.05."""

from __future__ import annotations

import re

# From here on, SLURM's own marks for "none" and "infinite" begin (NO_VAL is 0xfffffffe), where a version prints them.
_NO_VALUE = 0xFFFFFFF0
# The same of what SLURM keeps in 16 bits: counts of requeues, signals.
_NO_VALUE_16 = 0xFFF0
# gpu, gpu:COUNT or gpu:TYPE:COUNT; a type may begin with a digit, as that of a part of a GPU does.
_GPUS = re.compile(r"gpu(?::(?!\d+(?:[,(]|$))[^,(:]+)?(?::(\d+)|\(CNT:(\d+)\))?(?=[,(]|$)")
_TRES_CPU = re.compile(r"(?:^|,)cpu=(?:(\d+)-)?(?:(\d+):)?(\d+):(\d+)(?:\.\d+)?(?=,|$)", re.ASCII)
_TRES_GPUS = re.compile(r"(?:^|,)gres/gpu=(\d+)(?=,|$)")


def number(value: object) -> int | None:
    """Return a number, plain or as {set, infinite, number}; None where it is unset, infinite or negative."""
    if isinstance(value, dict):
        if value.get("infinite") or not value.get("set", True):
            return None
        value = value.get("number")
    whole = value if isinstance(value, int) and not isinstance(value, bool) else None
    return whole if whole is not None and 0 <= whole < _NO_VALUE else None


def small_number(value: object) -> int | None:
    """Return a number that SLURM keeps in 16 bits; None as with `number`."""
    whole = number(value)
    return whole if whole is not None and whole < _NO_VALUE_16 else None


def tres_cpu_seconds(text: str) -> int:
    """Return the CPU time in what a step has used, such as `cpu=1-02:03:04,mem=1M`, in seconds; 0 where it has none."""
    found = _TRES_CPU.search(text)
    if found is None:
        return 0
    days, hours, minutes, seconds = (int(part or 0) for part in found.groups())
    return ((days * 24 + hours) * 60 + minutes) * 60 + seconds


def flag(value: object) -> bool | None:
    """Return a truth value, plain or as a number; None where it is unset."""
    if isinstance(value, bool):
        return value
    whole = small_number(value)
    return None if whole is None else bool(whole)


def timestamp(value: object) -> float | None:
    """Return a time, Unix seconds; None where it is 0 or unset."""
    found = number(value)
    return float(found) if found else None


def text(value: object) -> str:
    """Return a text; empty where the value is none."""
    return value if isinstance(value, str) else ""


def state_flags(*values: object) -> frozenset[str]:
    """Return states and flags in capitals.

    Args:
        values: `"RUNNING"`, `"RUNNING+COMPLETING"`, `["RUNNING", "COMPLETING"]` or None, which stands for none.

    Returns:
        All of them; none if a part of the values has another form, for the rest alone may mean something else.
    """
    found: set[str] = set()
    for value in values:
        for each in value if isinstance(value, list) else [value]:
            if isinstance(each, str):
                # An appended character is how sinfo marks a node that is down, powered off, drained and so on.
                found.update(flag.strip("*~#!%$@^-") for flag in each.upper().split("+"))
            elif each is not None or isinstance(value, list):
                return frozenset()
    return frozenset(found - {""})


def gpus_of_gres(gres: str) -> int:
    """Return how many GPUs a text such as `gpu:h100:4(S:0-1),gpu:2` or `gpu(CNT:2)` names."""
    total = 0
    for item in re.split(r",(?![^(]*\))", gres):
        match = _GPUS.match(item)
        if match:
            total += number(int(match[1] or match[2] or 1)) or 0
    return total


def gpus_of_tres(tres: str) -> int | None:
    """Return how many GPUs a text such as `cpu=8,gres/gpu=4` names; None where it names none."""
    match = _TRES_GPUS.search(tres)
    return number(int(match[1])) if match else None
