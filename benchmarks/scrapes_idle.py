"""What the exporter takes of a core with all collectors of a node, as Prometheus scrapes it: idle, and at work."""

import os
import tempfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from benchmarks.scrapes_client import Client
from benchmarks.scrapes_node import GpuNode, write_run
from benchmarks.scrapes_process import cpu_seconds, pss_mib
from benchmarks.tables import Table, verdict
from trainwarden_exporter.core.scrape_times import LEARNING_SECONDS

_SCRAPE_SECONDS = 15.0
_RUNS = 3
_MOVING_SECONDS = 1.0
_IDLE_SHARE, _MOVING_SHARE = 0.005, 0.01


def idle() -> Table:
    """All collectors at their own cadences, scraped every 15 s; the first minute, in which all is learned, is over."""
    seconds = float(os.environ.get("IDLE_SECONDS", "60"))
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        node = GpuNode(Path(folder))
        node.add_runs(_RUNS)
        with node.exporter() as (pid, port):
            _scrape(port, LEARNING_SECONDS + _SCRAPE_SECONDS)
            rows.append(_row("nothing moves", pid, port, seconds, _IDLE_SHARE))
            with _moving(node):
                _scrape(port, _SCRAPE_SECONDS)
                rows.append(_row("every counter moves each second", pid, port, seconds, _MOVING_SHARE))
    note = (
        f"8 GPUs, 32 EFA devices, {_RUNS} runs and their logs, the kernel's log; scraped every "
        f"{_SCRAPE_SECONDS:.0f} s, over {seconds:.0f} s. Targets: under {100 * _IDLE_SHARE:g} % and "
        f"{100 * _MOVING_SHARE:g} % of one core."
    )
    return Table(["all collectors of a node", "of one core", "memory, MiB", "target"], rows, note)


def _row(title: str, pid: int, port: int, seconds: float, target: float) -> list[str]:
    before, begun = cpu_seconds(pid), time.monotonic()
    _scrape(port, seconds)
    share = (cpu_seconds(pid) - before) / (time.monotonic() - begun)
    return [title, f"{100 * share:.2f} %", f"{pss_mib(pid):.1f}", verdict(share < target)]


def _scrape(port: int, seconds: float) -> None:
    client = Client(port)
    end = time.monotonic() + seconds
    while (left := end - time.monotonic()) > 0:
        client.scrape()
        time.sleep(min(left, _SCRAPE_SECONDS))
    client.close()


@contextmanager
def _moving(node: GpuNode) -> Iterator[None]:
    """Have counters of devices and the steps of runs move, from a thread of this process, whose error is raised."""
    stop = threading.Event()
    with ThreadPoolExecutor(1) as thread:
        moves = thread.submit(_move, node, stop)
        try:
            yield
        finally:
            stop.set()
        moves.result()


def _move(node: GpuNode, stop: threading.Event) -> None:
    counters = [file for file in node.sysfs.glob("class/infiniband/*/ports/1/hw_counters/*") if file.name != "lifespan"]
    runs = [folder for folder in node.runs.iterdir() if folder.is_dir()]
    number = 0
    while not stop.wait(_MOVING_SECONDS):
        number += 1
        for file in counters:
            file.write_text(f"{10**12 + number}\n")
        for run in runs:
            write_run(run, int(run.name.rpartition("-")[2]), number)
