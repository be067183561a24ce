"""A running `trainwarden up`, and a training of somebody else for it to run."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from tests.waiting import wait_until

_SECONDS = 240.0

# A training of somebody else: one process, a counter for a model, a checkpoint every few steps.
_TRAINING = """
import pathlib, sys, time
import trainwarden

here = pathlib.Path(sys.argv[1])
with trainwarden.run(total_steps=int(sys.argv[2])) as run:
    last = run.resume_checkpoint()
    start = int(pathlib.Path(last).read_text()) + 1 if last else 1
    with (here / "starts").open("a") as starts:
        starts.write(f"{start}\\n")
    for step in range(start, int(sys.argv[2]) + 1):
        time.sleep(0.05)
        if (here / "fail").exists() and step > 40:
            raise ConnectionResetError(104, "Connection reset by peer")
        run.step(step, loss=1.0 / step)
        if step % 20 == 0:
            path = here / f"step_{step}"
            path.write_text(str(step))
            run.checkpoint_saved(str(path), step)
"""


class Up:
    """A running `trainwarden up`, with its output as it comes."""

    def __init__(self, folder: Path, *arguments: str, run_id: str = "r1", **environment: str) -> None:
        self.folder = folder
        self.run = folder / "state" / "runs" / run_id
        self._output = folder / f"output-{run_id}"
        with self._output.open("wb") as output:
            self.process = subprocess.Popen(
                [
                    *(sys.executable, "-m", "trainwarden", "up", "--run-id", run_id),
                    *("--state-dir", str(folder / "state"), *arguments),
                ],
                stdout=output,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                env={name: value for name, value in os.environ.items() if not name.startswith("TRAINWARDEN_RUN")}
                | environment,
            )

    @property
    def text(self) -> str:
        return self._output.read_text(errors="replace")

    def wait(self, what: Callable[[], bool]) -> None:
        def there() -> bool:
            assert self.process.poll() is None, self.text[-6000:]
            return what()

        wait_until(there, lambda: self.text[-6000:], timeout=_SECONDS)

    def step(self) -> int:
        try:
            return int(json.loads((self.run / "progress.json").read_text())["step"])
        except (OSError, ValueError, KeyError):
            return -1

    def pid(self) -> int:
        return int(json.loads((self.run / "metadata.json").read_text())["pid"])

    def end(self) -> int:
        return self.process.wait(_SECONDS)


def training(folder: Path, steps: int) -> list[str]:
    (folder / "train.py").write_text(_TRAINING)
    return [sys.executable, str(folder / "train.py"), str(folder), str(steps)]


def starts(folder: Path) -> list[int]:
    return [int(line) for line in (folder / "starts").read_text().split()]


def state(job: Up) -> str:
    return str(json.loads((job.run / "metadata.json").read_text())["status"])


def pid_of(word: str, folder: Path) -> int:
    """The one process whose command line has the word; what it is just about to start looks the same for a moment."""

    def found() -> list[int] | None:
        pids = [pid for pid, words in commands(folder).items() if any(each.startswith(word) for each in words)]
        return pids if len(pids) == 1 else None

    return wait_until(found, f"one process with {word}")[0]


def commands(folder: Path) -> dict[int, list[str]]:
    """The command lines that name the folder, by process."""
    found = {}
    for cmdline in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = cmdline.read_bytes().decode(errors="replace").split("\0")
        except OSError:
            continue
        if any(str(folder) in word for word in words):
            found[int(cmdline.parent.name)] = words
    return found
