"""What scrapes are like while everything on the node is sick, and what a hundred thousand of them leave behind.

The environment says how many: `FAULT_SCRAPES`, and `SCRAPES` for each of the two that are compared.
"""

import os
import statistics
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.rounds import median_ratio, quantile, take_turns
from benchmarks.scrapes_client import Client
from benchmarks.scrapes_node import GpuNode, write_run
from benchmarks.scrapes_process import GROWTH, GROWTH_TARGETS, Growth, pss_mib
from benchmarks.steps import black_hole
from benchmarks.tables import Table, verdict

_ROUNDS = 5
_RUNS = 3
_PSS_MIB = 64.0
# Of the one exporter of a cluster that reads S3, whose third process has botocore.
_S3_PSS_MIB = 96.0
# Longer than a page is kept, so that each scrape has one made.
_PAUSE_SECONDS = 0.11
# "As it was" leaves room for what two equal servers differ by on a noisy machine.
_TAIL_RATIO = 1.5
_STEP_SECONDS = 0.25


def measure() -> list[Table]:
    """A healthy node beside sick ones, without and with S3; then the latter alone, with faults that come and go."""
    with ExitStack() as stack:
        well = _SickNode(Path(stack.enter_context(tempfile.TemporaryDirectory())), {})
        hole = stack.enter_context(black_hole())
        flags = ["--collector.s3", f"--collector.s3.url={hole['TRAINWARDEN_S3_URL']}"]
        sick = _SickNode(Path(stack.enter_context(tempfile.TemporaryDirectory())), hole, flags)
        hung = _SickNode(Path(stack.enter_context(tempfile.TemporaryDirectory())), {})
        nodes = {"well": well, "hung": hung, "sick": sick}
        servers = {name: stack.enter_context(node.serving()) for name, node in nodes.items()}
        for name in ("hung", "sick"):
            nodes[name].nvml.hang(3, "nvmlDeviceGetUtilizationRates")
            servers[name].wait_for(b"trainwarden_collector_stuck{")
        compared = _compared(servers)
        memory = {name: pss_mib(server.pid) for name, server in servers.items()}
        endured = _endured(sick, servers["sick"])
    return [_compared_table(compared, memory), endured]


@dataclass
class _Server:
    pid: int
    client: Client
    seconds: list[float]

    def turn(self, scrapes: int) -> float:
        """Scrape for one round; the 99th percentile of it."""
        taken = []
        for _ in range(scrapes):
            taken.append(self.client.scrape())
            time.sleep(_PAUSE_SECONDS)
        self.seconds += taken
        return quantile(sorted(taken), 0.99)

    def wait_for(self, text: bytes, seconds: float = 60.0) -> None:
        """Wait until the page holds a text."""
        deadline = time.monotonic() + seconds
        while text not in self.client.page():
            if time.monotonic() > deadline:
                raise RuntimeError(f"the page never held {text!r}")
            time.sleep(0.2)


class _SickNode:
    """A node with GPUs whose driver does what a script says."""

    def __init__(self, root: Path, environment: Mapping[str, str], flags: list[str] | None = None) -> None:
        self.node = GpuNode(root, environment)
        self.nvml = self.node.nvml
        self.node.add_runs(_RUNS)
        self._flags = [*(flags or []), f"--collector.s3.cache={root / 's3'}"]

    @contextmanager
    def serving(self) -> Iterator[_Server]:
        """Run its exporter until all GPUs are on its page."""
        with self.node.exporter(*self._flags) as (pid, port):
            client = Client(port)
            server = _Server(pid, client, [])
            try:
                server.wait_for(b'gpu_power_watts{gpu="7"')
                yield server
            finally:
                client.close()

    def break_things(self, number: int) -> None:
        """Do the next harm, and mend the one before."""
        efa = sorted((self.node.sysfs / "class/infiniband").iterdir())
        counter = efa[number % 8] / "ports/1/hw_counters/rx_bytes"
        run = self.node.runs / f"coming-and-going-{number // 2 % 50}"
        gpu = 4 + number // 2 % 4
        if number % 2 == 0:
            self.nvml.set(gpu, lost=1)
            self.nvml.slow(gpu - 1 if gpu > 4 else 7, "nvmlDeviceGetPowerUsage", 300)
            self.nvml.xid(gpu, 79)
            counter.rename(counter.with_name("rx_bytes.gone"))
            if not run.exists():
                write_run(run, number)
            (run / "progress.json").unlink(missing_ok=True)
            os.mkfifo(run / "progress.json")
        else:
            self.nvml.set(gpu, lost=None)
            self.nvml.slow(gpu - 1 if gpu > 4 else 7, "nvmlDeviceGetPowerUsage", 0)
            (efa[(number - 1) % 8] / "ports/1/hw_counters/rx_bytes.gone").rename(
                efa[(number - 1) % 8] / "ports/1/hw_counters/rx_bytes"
            )
            (run / "progress.json").unlink()


def _compared(servers: Mapping[str, _Server]) -> dict[str, tuple[list[float], list[float]]]:
    """Tails by round, and all scrapes, of each."""
    scrapes = int(os.environ.get("SCRAPES", "1500")) // _ROUNDS
    turns = take_turns({name: lambda s=server: s.turn(scrapes) for name, server in servers.items()}, _ROUNDS)  # type: ignore[misc]  # bound early
    return {name: (turns[name], sorted(server.seconds)) for name, server in servers.items()}


def _compared_table(compared: Mapping[str, tuple[list[float], list[float]]], memory: Mapping[str, float]) -> Table:
    titles = {
        "well": "all is well",
        "hung": "a GPU's driver hangs",
        "sick": "the one with S3: a GPU's driver hangs, S3 is a black hole",
    }
    limits = {"well": _PSS_MIB, "hung": _PSS_MIB, "sick": _S3_PSS_MIB}
    ratios = {name: median_ratio(compared[name][0], compared["well"][0]) for name in titles}
    met = {name: memory[name] < limits[name] and ratios[name] <= _TAIL_RATIO for name in titles}
    rows = [
        [
            titles[name],
            f"{len(seconds):,}",
            f"{1e3 * statistics.median(seconds):.2f}",
            f"{1e3 * quantile(seconds, 0.99):.2f}",
            f"{memory[name]:.1f}",
            verdict(met[name]),
        ]
        for name, (_, seconds) in compared.items()
    ]
    note = (
        f"All collectors of a node with 8 GPUs, 32 EFA devices and {_RUNS} runs; with S3 there is one more process, "
        f"with boto3. Targets: memory of the whole tree under {_PSS_MIB:.0f} MiB, of the one exporter of a cluster "
        f"that reads S3 under {_S3_PSS_MIB:.0f} MiB; p99 as it was: within {_TAIL_RATIO} times (median of the ratios "
        f"of {_ROUNDS} rounds: {ratios['hung']:.2f} and {ratios['sick']:.2f})."
    )
    return Table(["", "scrapes", "p50 ms", "p99 ms", "memory, MiB", "target"], rows, note)


def _endured(sick: _SickNode, server: _Server) -> Table:
    """Scrape on while things break and are mended; what is held before and after, once all is mended."""
    scrapes = int(os.environ.get("FAULT_SCRAPES", "100000"))
    stop, harm = threading.Event(), [0]
    breaking = threading.Thread(target=_break_and_mend, args=(sick, stop, harm))
    breaking.start()
    slowest, errors = 0.0, 0
    growth = Growth(server.pid, scrapes)
    for number in range(scrapes):
        try:
            slowest = max(slowest, server.client.scrape())
        except (OSError, RuntimeError, ValueError):
            errors += 1
        growth.scraped(number)
    stop.set()
    breaking.join()
    rows = [
        ["scrapes while something breaks or is mended", f"{scrapes:,}", ""],
        ["faults", f"{harm[0]:,}", ""],
        ["errors", f"{errors}", verdict(errors == 0)],
        ["slowest scrape", f"{1e3 * slowest:.0f} ms", verdict(slowest < 1.0)],
        *growth.rows(),
    ]
    note = (
        f"{GROWTH} The whole process tree. Targets: no error, none over a second, {GROWTH_TARGETS}: some are always "
        "under way."
    )
    return Table(["", "measured", "target"], rows, note)


def _break_and_mend(sick: _SickNode, stop: threading.Event, harm: list[int]) -> None:
    while not stop.wait(_STEP_SECONDS) or harm[0] % 2:
        sick.break_things(harm[0])
        harm[0] += 1
