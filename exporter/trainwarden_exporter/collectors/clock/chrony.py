"""What chronyd knows of the clock, where it runs: it corrects it in its own way, of which the kernel knows nothing."""

from __future__ import annotations

import math
import shutil
import subprocess

from trainwarden_exporter.sampling.calls import calling

TIMEOUT_SECONDS = 2.0
_COMMAND = ("chronyc", "-c", "-n", "tracking")
_SYSTEM_TIME, _LEAP_STATUS, _FIELDS = 4, 13, 14


def chrony_offset() -> float | None:
    """Return by how many seconds the clock is ahead; None where chronyd is not there, or not synchronized itself."""
    if shutil.which(_COMMAND[0]) is None:
        return None
    try:
        with calling("chronyc"):
            done = subprocess.run(_COMMAND, capture_output=True, text=True, check=False, timeout=TIMEOUT_SECONDS)
    except (OSError, subprocess.TimeoutExpired, UnicodeDecodeError):
        return None
    return offset_of(done.stdout) if done.returncode == 0 else None


def offset_of(tracking: str) -> float | None:
    """Return the offset that the answer of `chronyc -c tracking` holds, as `chrony_offset`."""
    fields = tracking.strip().split(",")
    if len(fields) < _FIELDS or fields[_LEAP_STATUS] == "Not synchronised":
        return None
    try:
        behind = float(fields[_SYSTEM_TIME])
    except ValueError:
        return None
    return -behind + 0.0 if math.isfinite(behind) else None
