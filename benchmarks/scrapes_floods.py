"""Scrapes while 500 clients ask and never read, and while thousands of records are written anew; against calm ones.

usage of the clients, in a process of their own: python -m benchmarks.scrapes_floods clients PORT
usage of the records, likewise: python -m benchmarks.scrapes_floods records FOLDER
"""

import contextlib
import os
import select
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.rounds import median_ratio, quantile, take_turns
from benchmarks.scrapes_client import Client
from benchmarks.scrapes_node import Node
from benchmarks.scrapes_process import pss_mib
from benchmarks.tables import Table, verdict
from trainwarden.record.clock import to_iso
from trainwarden.record.folder import write_json

_CLIENTS, _REQUESTS = 500, 50
_RECORDS = 2_000
_SAMPLES = 2_000
_ROUNDS = 5
_TAIL_RATIO = 3.0
_PSS_MIB = 64.0
# Longer than a page is kept, so that each scrape has one made.
_PAUSE_SECONDS = 0.11
_CONNECT_SECONDS = 30.0
# As often as the library writes a heartbeat.
_WRITTEN_SECONDS = 5.0


def floods() -> Table:
    """One exporter without a password: calm, beside each flood, and calm again, by turns."""
    cases = {
        "calm": "nobody else",
        "clients": f"{_CLIENTS} clients that send {_REQUESTS} requests each and never read",
        "records": f"{_RECORDS:,} records of another host, each written anew every 5 s",
    }
    with tempfile.TemporaryDirectory() as folder:
        node = Node(Path(folder))
        node.fill(_SAMPLES)
        with node.exporter() as (pid, port):
            scraper = _Scraper(pid, port, int(os.environ.get("SCRAPES", "1500")) // _ROUNDS)

            def turn(case: str) -> float:
                with _flood(case, port, node.runs):
                    return scraper.turn(case)

            turns = take_turns({case: lambda c=case: turn(c) for case in cases}, _ROUNDS)  # type: ignore[misc]  # bound early
            scraper.client.close()
    return Table(
        ["beside a scraper", "scrapes", "refused", "p50 ms", "p99 ms", "p99, ratio", "memory, MiB", "target"],
        [_row(case, title, scraper, turns) for case, title in cases.items()],
        f"A page of {_SAMPLES:,} samples, without a password; all from one address. Targets: none refused, p99 within "
        f"{_TAIL_RATIO:.0f} times (median of the ratios of {_ROUNDS} rounds), memory under {_PSS_MIB:.0f} MiB.",
    )


class _Scraper:
    """A client that stays, as Prometheus's does, and what its scrapes took by case."""

    def __init__(self, pid: int, port: int, scrapes: int) -> None:
        self._pid, self._port, self._scrapes = pid, port, scrapes
        self.client = Client(port)
        self.seconds: dict[str, list[float]] = {}
        self.refused: dict[str, int] = {}
        self.memory: dict[str, float] = {}

    def turn(self, case: str) -> float:
        """Scrape for one round; the 99th percentile of it."""
        taken = []
        for _ in range(self._scrapes):
            try:
                taken.append(self.client.scrape())
            except (OSError, RuntimeError, ValueError):
                self.refused[case] = self.refused.get(case, 0) + 1
                self.client.close()
                self.client = Client(self._port)
            time.sleep(_PAUSE_SECONDS)
        self.seconds.setdefault(case, []).extend(taken)
        self.memory[case] = max(self.memory.get(case, 0.0), pss_mib(self._pid))
        return quantile(sorted(taken), 0.99)


def _row(case: str, title: str, scraper: _Scraper, turns: dict[str, list[float]]) -> list[str]:
    seconds, refused = sorted(scraper.seconds[case]), scraper.refused.get(case, 0)
    ratio = median_ratio(turns[case], turns["calm"])
    met = not refused and ratio <= _TAIL_RATIO and scraper.memory[case] < _PSS_MIB
    shown = [f"{1e3 * statistics.median(seconds):.2f}", f"{1e3 * quantile(seconds, 0.99):.2f}"]
    judged = ["", f"{scraper.memory[case]:.1f}", ""] if case == "calm" else [
        f"{ratio:.2f}", f"{scraper.memory[case]:.1f}", verdict(met)
    ]  # fmt: skip
    return [title, f"{len(seconds) + refused:,}", str(refused), *shown, *judged]


@contextmanager
def _flood(case: str, port: int, runs: Path) -> Iterator[None]:
    """Have one of the floods go on in a process of its own; none when it is calm."""
    if case == "calm":
        yield
        return
    arguments = [case, str(port) if case == "clients" else str(runs)]
    process = subprocess.Popen([sys.executable, "-m", "benchmarks.scrapes_floods", *arguments], stdout=subprocess.PIPE)
    assert process.stdout is not None  # noqa: S101  # for mypy: it is a pipe
    process.stdout.readline()  # it is under way
    try:
        yield
    finally:
        process.terminate()
        process.communicate()


def _be_clients(port: int) -> None:
    """Ask and never read; who is cut off begins again."""
    asked = b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n" * _REQUESTS
    open_ones: dict[int, socket.socket] = {}
    ends = select.epoll()

    def begin() -> None:
        made = socket.create_connection(("127.0.0.1", port), timeout=_CONNECT_SECONDS)
        with contextlib.suppress(OSError):  # it was cut off at once
            made.sendall(asked)
        open_ones[made.fileno()] = made
        ends.register(made, select.EPOLLRDHUP)  # of what was sent to it nothing is reported

    for _ in range(_CLIENTS):
        begin()
    print("here", flush=True)
    while True:
        ended = [descriptor for descriptor, _ in ends.poll()]
        for descriptor in ended:
            ends.unregister(descriptor)
            open_ones.pop(descriptor).close()
        for _ in ended:  # all that were cut off within a second come back over the next one
            begin()
            time.sleep(1 / max(len(ended), 20))


def _be_writers(folder: Path) -> None:
    """Write the records of runs of another host, one after the other, each every few seconds, for ever."""
    number = 0
    while True:
        if number >= _RECORDS:
            time.sleep(_WRITTEN_SECONDS / _RECORDS)
        run = folder / f"flood-{number % _RECORDS:05d}"
        run.mkdir(exist_ok=True)
        now = to_iso(time.time())
        run_id, key = run.name, f"local:{number}-1:0"
        metadata = {"run_id": run_id, "version": 1, "status": "running", "attempt": 0, "attempt_key": key, "host": "x",
                    "start_time": now, "attempt_start_time": now, "last_update": now}  # fmt: skip
        write_json(run / "metadata.json", metadata)
        write_json(run / "progress.json", {"step": number, "last_updated": now, "attempt_key": key})
        number += 1
        if number == _RECORDS:
            print("here", flush=True)


if __name__ == "__main__":
    if sys.argv[1] == "clients":
        _be_clients(int(sys.argv[2]))
    else:
        _be_writers(Path(sys.argv[2]))
