"""Scrapes with a password while others guess, sit idle and never finish their requests; against those of a calm hour.

usage of the crowd, in a process of its own: python -m benchmarks.scrapes_crowds PORT
"""

import base64
import contextlib
import os
import selectors
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import bcrypt

from benchmarks.rounds import median_ratio, quantile, take_turns
from benchmarks.scrapes_client import Client
from benchmarks.scrapes_node import Node
from benchmarks.scrapes_process import pss_mib
from benchmarks.tables import Table, verdict

_GUESSING, _IDLE, _UNFINISHED = 60, 450, 390
_HEAD_BYTES = 30_000
_ROUNDS = 5
_TAIL_RATIO = 3.0
_PSS_MIB = 64.0
# Longer than a page is kept, so that each scrape has one made.
_PAUSE_SECONDS = 0.11
_USER, _PASSWORD = "prometheus", "right"


def crowds() -> Table:
    """One exporter, calm and beset by turns."""
    scrapes = int(os.environ.get("SCRAPES", "1500")) // _ROUNDS
    seconds: dict[str, list[float]] = {"calm": [], "beset": []}
    refused = 0
    with tempfile.TemporaryDirectory() as folder:
        node = Node(Path(folder))
        node.fill(2_000)
        config = Path(folder) / "web.yml"
        hashed = bcrypt.hashpw(_PASSWORD.encode(), bcrypt.gensalt(10)).decode()
        config.write_text(f"basic_auth_users:\n  {_USER}: {hashed}\n")
        with node.exporter(f"--web.config.file={config}", authorization=_basic(_PASSWORD)) as (pid, port):
            client = Client(port, _basic(_PASSWORD))  # one that stays, as Prometheus's does

            def scrape(case: str) -> float:
                nonlocal refused, client
                taken = []
                for _ in range(scrapes):
                    try:
                        taken.append(client.scrape())
                    except (OSError, RuntimeError):
                        refused += 1
                        client.close()
                        client = Client(port, _basic(_PASSWORD))
                    time.sleep(_PAUSE_SECONDS)
                seconds[case] += taken
                return quantile(sorted(taken), 0.99)

            memory = [0.0]

            def beset() -> float:
                with _crowd(port):
                    tail = scrape("beset")
                    memory[0] = max(memory[0], pss_mib(pid))
                    return tail

            turns = take_turns({"calm": lambda: scrape("calm"), "beset": beset}, _ROUNDS)
            client.close()
    ratio = median_ratio(turns["beset"], turns["calm"])
    met = ratio <= _TAIL_RATIO and not refused and memory[0] < _PSS_MIB
    rows = [
        [
            title,
            f"{len(seconds[case]):,}",
            f"{1e3 * statistics.median(seconds[case]):.2f}",
            f"{1e3 * quantile(sorted(seconds[case]), 0.99):.2f}",
            memory_shown,
            result,
        ]
        for case, title, memory_shown, result in (
            ("calm", "nobody else", "", ""),
            ("beset", "a crowd", f"{memory[0]:.1f}", verdict(met)),
        )
    ]
    note = (
        f"A page of 2,000 samples, with a password. The crowd, again and again: {_GUESSING} that guess passwords, "
        f"{_IDLE} idle connections, {_UNFINISHED} heads of {_HEAD_BYTES:,} bytes that are never finished. Scrapes "
        f"refused: {refused}. Targets: none, p99 within {_TAIL_RATIO:.0f} times (median of the ratios of {_ROUNDS} "
        f"rounds: {ratio:.2f}), memory under {_PSS_MIB:.0f} MiB."
    )
    return Table(["beside a scraper", "scrapes", "p50 ms", "p99 ms", "memory, MiB", "target"], rows, note)


@contextmanager
def _crowd(port: int) -> Iterator[None]:
    process = subprocess.Popen([sys.executable, "-m", "benchmarks.scrapes_crowds", str(port)], stdout=subprocess.PIPE)
    assert process.stdout is not None  # noqa: S101  # for mypy: it is a pipe
    process.stdout.readline()  # all are connected
    try:
        yield
    finally:
        process.terminate()
        process.communicate()


def _basic(password: str) -> str:
    return "Basic " + base64.b64encode(f"{_USER}:{password}".encode()).decode()


def _beset(port: int) -> None:
    """Be the crowd until the process is ended: who is answered or cut off begins again."""
    kinds = ["guess"] * _GUESSING + ["idle"] * _IDLE + ["head"] * _UNFINISHED
    number = 0
    with selectors.DefaultSelector() as selector:

        def begin(kind: str) -> None:
            nonlocal number
            number += 1
            made = socket.create_connection(("127.0.0.1", port), timeout=30)
            if kind == "guess":
                head = f"GET /metrics HTTP/1.1\r\nHost: x\r\nAuthorization: {_basic(f'wrong {number}')}\r\n\r\n"
                made.sendall(head.encode())
            elif kind == "head":
                made.sendall(b"GET /metrics HTTP/1.1\r\nX: " + b"x" * _HEAD_BYTES)
            selector.register(made, selectors.EVENT_READ, kind)

        for kind in kinds:
            begin(kind)
        print("here", flush=True)
        while True:
            ended = []
            for key, _ in selector.select():
                selector.unregister(key.fileobj)
                with contextlib.suppress(OSError):
                    key.fileobj.recv(65536)  # type: ignore[union-attr]  # sockets alone are registered
                key.fileobj.close()  # type: ignore[union-attr]  # as above
                if key.data == "guess":
                    begin(key.data)
                else:
                    ended.append(key.data)
            for kind in ended:  # all that were cut off within a second come back over the next one
                begin(kind)
                time.sleep(1 / max(len(ended), 20))
            time.sleep(0.05)


if __name__ == "__main__":
    _beset(int(sys.argv[1]))
