"""Whether a million steps leave anything behind in memory, and all of them in the record."""

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

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
    """One process, watched from outside."""
    with tempfile.TemporaryDirectory() as folder:
        arguments = [sys.executable, "-c", _PROGRAM, folder, str(_WARM_UP), str(STEPS)]
        process = subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True)
        path = Path(folder, "measured", "progress.json")
        oldest = _oldest_while_it_runs(process, path)
        said = (process.communicate()[0] or "").split()
        progress: dict[str, Any] = json.loads(path.read_text())
    before, after = (int(word) for word in said)
    total = _WARM_UP + STEPS
    rows = [
        ["resident memory after the first 100,000 steps", f"{before / 1024:.1f} MiB", ""],
        [f"resident memory {STEPS:,} steps later", f"{after / 1024:.1f} MiB", verdict(after - before <= _FLAT_KIB)],
        ["steps in the record at the end", f"{progress['steps_completed']:,}", verdict(progress["step"] == total)],
        ["oldest record while it ran", f"{oldest:.2f} s", verdict(oldest <= _AGE_SECONDS)],
    ]
    return [Table(["", "measured", "target"], rows, f"Targets: at most {_FLAT_KIB} KiB more; {total:,} steps; 1 s.")]


def _oldest_while_it_runs(process: "subprocess.Popen[str]", path: Path) -> float:
    """The greatest age of the newest step in the record; the loop reports a new one every few microseconds."""
    oldest, seen = 0.0, None
    while process.poll() is None:
        if path.exists():
            content = path.read_text()
            now = time.monotonic()
            if content != (seen and seen[0]):
                if seen:
                    oldest = max(oldest, now - seen[1])
                seen = (content, now)
        time.sleep(_LOOK_SECONDS)
    return oldest
