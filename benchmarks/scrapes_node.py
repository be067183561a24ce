"""A node as its exporter sees it: 32 EFA devices, and as many runs with logs as a page of some size takes."""

import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from benchmarks.scrapes_client import Client, is_listening
from tests.devices.nvml import FakeNvml
from tests.nodes.fixtures import P5_GPUS, p5
from trainwarden.record.clock import to_iso
from trainwarden.record.folder import write_json
from trainwarden.record.rank import HostBeats, RankBeat, host_file
from trainwarden.stack.ports import free_port

HOST = "measured"
RANKS = 8
_START_SECONDS = 30.0
# Neither changes while a run trains.
_STARTED, _SAVED = to_iso(time.time() - 900), to_iso(time.time() - 600)
_COLLECTORS = ("runs", "logs", "efa")
_ALL_COLLECTORS = ("runs", "logs", "transport", "nvidia", "gpu-jobs", "efa", "infiniband", "kernel", "clock", "process")


class Node:
    """Folders below `root`, and the exporter that watches them with the collectors and the environment given."""

    def __init__(
        self, root: Path, collectors: Sequence[str] = _COLLECTORS, environment: Mapping[str, str] | None = None
    ) -> None:
        self._environment = environment
        self._tree = p5(root / "node")
        self._runs = root / "runs"
        self._runs.mkdir()
        self._count = 0
        self._flags = [
            "--collector.disable-defaults",
            *(f"--collector.{name}" for name in collectors),
            *self._tree.flags,
            f"--collector.runs.path={self._runs}",
            f"--collector.logs.state={root / 'state'}",
            f"--instance-host={HOST}",
            "--log.level=error",
        ]

    @property
    def sysfs(self) -> Path:
        """Its fixture tree of /sys."""
        return self._tree.sysfs

    @property
    def runs(self) -> Path:
        """Its runs folder."""
        return self._runs

    def add_runs(self, count: int) -> None:
        """Add runs that are under way, each with ranks and a log."""
        for number in range(self._count, self._count + count):
            write_run(self._runs / f"run-{number:05d}", number)
        self._count += count

    def fill(self, samples: int) -> None:
        """Add runs until the page has about so many samples."""
        self.add_runs(1)
        one = self.samples_once()
        self.add_runs(2)
        each = (self.samples_once() - one) / 2
        self.add_runs(max(0, round((samples - one) / each) - 2))

    def samples_once(self) -> int:
        """How many samples a page has."""
        command = [sys.executable, "-m", "trainwarden_exporter", "--once", *self._flags]
        page = subprocess.run(command, check=True, capture_output=True).stdout
        return count_samples(page)

    @contextmanager
    def exporter(self, *flags: str, authorization: str = "") -> Iterator[tuple[int, int]]:
        """Run an exporter, its logs read and all; yields the process and its port on loopback."""
        samples = self.samples_once()
        port = free_port()
        command = [sys.executable, "-m", "trainwarden_exporter", *self._flags, *flags]
        process = subprocess.Popen([*command, f"--web.listen-address=127.0.0.1:{port}"], env=self._environment)
        try:
            deadline = time.monotonic() + _START_SECONDS
            while not is_listening(port) or _samples(port, authorization) < samples:
                if process.poll() is not None or time.monotonic() > deadline:
                    raise RuntimeError("the exporter did not start")
                time.sleep(0.1)
            yield process.pid, port
        finally:
            process.terminate()
            process.wait()


class GpuNode(Node):
    """A node with 8 GPUs too, behind a stand-in of NVIDIA's library; its exporter has every collector of a node."""

    def __init__(self, root: Path, environment: Mapping[str, str] | None = None) -> None:
        (root / "nvml").mkdir()
        self.nvml = FakeNvml(root / "nvml").gpus(len(P5_GPUS))
        for gpu, bus in enumerate(P5_GPUS):
            self.nvml.set(gpu, bus=bus)
        super().__init__(root, _ALL_COLLECTORS, {**self.nvml.environment(), **(environment or {})})


def write_run(folder: Path, number: int, steps: int = 0) -> None:
    """Write the record of a run that is under way, and was `steps` steps ago before."""
    now, key = to_iso(time.time()), f"local:{number}-1:0"
    (folder / "ranks").mkdir(parents=True, exist_ok=True)
    (folder / "logs").mkdir(exist_ok=True)
    step = 1000 + number + steps
    metadata = {
        "run_id": folder.name, "version": 1, "status": "running", "phase": "train", "attempt": 0, "attempt_key": key,
        "job_id": f"{number}-1", "scheduler": "local", "framework": "torch", "model": "llama-3-8b", "method": "sft",
        "start_time": _STARTED, "attempt_start_time": _STARTED, "phase_time": _STARTED, "last_update": now,
        "host": HOST,
    }  # fmt: skip
    saved = {"path": "/checkpoints/1000", "step": 1000, "time": _SAVED, "size_bytes": 16_000_000_000, "count": 1}
    progress = {
        "step": step, "total_steps": 100_000, "loss": 2.25, "learning_rate": 3e-4, "grad_norm": 0.75,
        "tokens_per_second": 41_000.5, "samples_per_second": 20.25, "epoch": 0.5, "high_water": step,
        "steps_completed": step, "nonfinite": 0, "last_updated": now, "step_time": now, "moved_time": now,
        "attempt_key": key, "checkpoint": saved,
    }  # fmt: skip
    write_json(folder / "metadata.json", metadata)
    write_json(folder / "progress.json", progress)
    beats = tuple(
        RankBeat(rank=rank, step=step, phase="train", time=time.time(), host=HOST, attempt_key=key)
        for rank in range(RANKS)
    )
    write_json(folder / host_file(HOST, f"{number:08x}"), HostBeats(host=HOST, ranks=beats).to_json())
    with (folder / "logs" / "training_log_latest.txt").open("a" if steps else "w") as log:
        log.write(f"step {step} loss 2.25\n" * (1 if steps else 20))


def count_samples(page: bytes) -> int:
    """How many samples a page in text has."""
    return sum(1 for line in page.splitlines() if line and not line.startswith(b"#"))


def _samples(port: int, authorization: str) -> int:
    client = Client(port, authorization)
    try:
        return count_samples(client.page())
    finally:
        client.close()
