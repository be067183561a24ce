"""Whether a million steps leave anything behind in memory, and all of them in the record."""

import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.steps import black_hole
from benchmarks.tables import Table, verdict

STEPS = 1_000_000
_WARM_UP = 100_000
_LOOK_SECONDS = 0.05
# What an allocator may keep of its own accord.
_FLAT_KIB = 512
_AGE_SECONDS = 1.0

_PROGRAM = """
import sys, trainwarden
def resident():
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("VmRSS:"))
run = trainwarden.run("measured", dir=sys.argv[1])
warm_up, steps = int(sys.argv[2]), int(sys.argv[3])
with run:
    for step in range(1, warm_up + 1):
        run.step(step, loss=2.5, learning_rate=3e-4, grad_norm=1.25, tokens=4096, accuracy=0.5)
    before = resident()
    for step in range(warm_up + 1, warm_up + steps + 1):
        run.step(step, loss=2.5, learning_rate=3e-4, grad_norm=1.25, tokens=4096, accuracy=0.5)
    print(before, resident(), flush=True)
"""


def measure() -> list[Table]:
    """One process after the other, watched from outside."""
    with black_hole() as hole:
        cases = {"to a folder": _watch({}), "to a folder and a black-holed S3": _watch(hole)}
    total = _WARM_UP + STEPS
    rows = []
    for name, case in cases.items():
        rows += [
            [f"{name}: resident memory after {_WARM_UP:,} steps", f"{case.before_kib / 1024:.1f} MiB", ""],
            [f"{STEPS:,} steps later", f"{case.after_kib / 1024:.1f} MiB", verdict(case.grown_kib <= _FLAT_KIB)],
            ["steps in the record at the end", f"{case.steps:,}", verdict(case.steps == total)],
            ["oldest record while it ran", f"{case.oldest:.2f} s", verdict(case.oldest <= _AGE_SECONDS)],
        ]
    return [Table(["", "measured", "target"], rows, f"Targets: at most {_FLAT_KIB} KiB more; {total:,} steps; 1 s.")]


@dataclass(frozen=True)
class _Watched:
    before_kib: int
    after_kib: int
    steps: int
    oldest: float

    @property
    def grown_kib(self) -> int:
        return self.after_kib - self.before_kib


def _watch(environment: dict[str, str]) -> _Watched:
    with tempfile.TemporaryDirectory() as folder:
        arguments = [sys.executable, "-c", _PROGRAM, folder, str(_WARM_UP), str(STEPS)]
        process = subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True, env={**os.environ, **environment})
        path = Path(folder, "measured", "progress.json")
        oldest = _oldest_while_it_runs(process, path)
        before, after = (int(word) for word in (process.communicate()[0] or "").split())
        progress: dict[str, Any] = json.loads(path.read_text())
        return _Watched(before, after, progress["steps_completed"], oldest)


def _oldest_while_it_runs(process: "subprocess.Popen[str]", path: Path) -> float:
    """The longest that the record stayed as it was, while a loop reported a new step every few microseconds."""
    oldest, content, since = 0.0, None, 0.0
    while process.poll() is None:
        time.sleep(_LOOK_SECONDS)
        now = time.monotonic()
        newest = path.read_text() if path.exists() else None
        if newest is None or newest == content:
            continue
        if content is not None:
            oldest = max(oldest, now - since)
        content, since = newest, now
    return oldest
