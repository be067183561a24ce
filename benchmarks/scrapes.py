"""What a scrape costs, against node_exporter serving as many samples; what the exporter takes while nobody asks.

The environment says how long: `SCRAPES` of each size, `FAULTY_SCRAPES`, `IDLE_SECONDS`.
"""

import os
import statistics
import tempfile
import time
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.node_exporter import node_exporter, serving, serving_its_own
from benchmarks.rounds import median_ratio, quantile, take_turns
from benchmarks.scrapes_client import Client
from benchmarks.scrapes_crowds import crowds
from benchmarks.scrapes_faulty import faulty
from benchmarks.scrapes_floods import floods
from benchmarks.scrapes_idle import idle
from benchmarks.scrapes_node import Node, count_samples
from benchmarks.scrapes_process import cpu_seconds, pss_mib
from benchmarks.scrapes_sampling import sampling
from benchmarks.tables import Table, verdict

SIZES = (2_000, 10_000)
_ROUNDS = 5
_PSS_MIB = 40.0
_CPU_RATIO = 2.0
# Longer than a page is kept, so that each scrape has one made.
_PAUSE_SECONDS = 0.11
_IDLE_SHARE = 0.005
_COLUMNS = ("", "samples", "scrapes", "p50 ms", "p99 ms", "CPU ms per scrape", "memory, MiB", "target")


@dataclass
class Server:
    """An exporter, and what scrapes of it took: seconds each, and processor seconds per scrape by turn."""

    pid: int
    client: Client
    scrapes: int
    seconds: list[float] = field(default_factory=list)
    memory: float = 0.0

    def turn(self) -> float:
        """Scrape for one round; the processor time of one scrape, sampling and all."""
        before = cpu_seconds(self.pid)
        for _ in range(self.scrapes):
            self.seconds.append(self.client.scrape())
            time.sleep(_PAUSE_SECONDS)
        self.memory = max(self.memory, pss_mib(self.pid))
        return (cpu_seconds(self.pid) - before) / self.scrapes


def measure() -> list[Table]:
    """Pages of each size; the exporter idle; a sample of each collector."""
    scrapes = int(os.environ.get("SCRAPES", "1500"))
    rows: list[list[str]] = []
    program = node_exporter()
    for size in SIZES:
        with tempfile.TemporaryDirectory() as folder:
            rows += _compare(Path(folder), size, scrapes, program)
    note = (
        f"One connection, a tenth of a second apart, compressed, alternating; {_ROUNDS} rounds. The exporter goes on "
        "sampling runs, logs and 32 EFA devices meanwhile. Memory: proportional set size of the whole process tree. "
        "Targets: p99 not "
        "above either of `node_exporter`'s, processor time of a scrape at most "
        f"{_CPU_RATIO:.0f} times its textfile's (median of the ratios of all rounds), memory under {_PSS_MIB:.0f} MiB."
        + ("" if program else " Not measured, because Debian's package could not be had: node_exporter.")
    )
    return [Table(_COLUMNS, rows, note), crowds(), floods(), faulty(), _idle(), idle(), sampling()]


def _compare(folder: Path, size: int, scrapes: int, program: Path | None) -> list[list[str]]:
    node = Node(folder)
    node.fill(size)
    with ExitStack() as stack:
        pid, port = stack.enter_context(node.exporter())
        client = Client(port)
        stack.callback(client.close)
        page = client.page()
        servers = {"ours": Server(pid, client, scrapes // _ROUNDS)}
        shown = {name: count_samples(page) for name in ("ours", "theirs")}
        if program:
            text = page.replace(b"# EOF\n", b"")
            pid, port = stack.enter_context(serving(program, folder / "textfile", _as_text(text)))
            other = Client(port)
            stack.callback(other.close)
            _same_size(count_samples(page), count_samples(other.page()))
            # It takes many times as long.
            servers["theirs"] = Server(pid, other, max(20, scrapes // _ROUNDS // 10))
            pid, port = stack.enter_context(serving_its_own(program))
            own = Client(port)
            stack.callback(own.close)
            servers["own"] = Server(pid, own, max(20, scrapes // _ROUNDS // 10))
            shown["own"] = count_samples(own.page())
        turns = take_turns({name: server.turn for name, server in servers.items()}, _ROUNDS)
    return _rows(shown, servers, turns)


def _rows(samples: dict[str, int], servers: dict[str, Server], turns: dict[str, list[float]]) -> list[list[str]]:
    tails = {name: quantile(sorted(server.seconds), 0.99) for name, server in servers.items()}
    met = servers["ours"].memory < _PSS_MIB
    if "theirs" in servers:
        met = (
            met
            and tails["ours"] <= min(tails["theirs"], tails["own"])
            and median_ratio(turns["ours"], turns["theirs"]) <= _CPU_RATIO
        )
    titles = {
        "ours": "`trainwarden-exporter`",
        "theirs": "`node_exporter`, textfile",
        "own": "`node_exporter`, its own collectors",
    }
    return [
        [
            titles[name],
            f"{samples[name]:,}",
            f"{len(server.seconds):,}",
            f"{1e3 * statistics.median(server.seconds):.2f}",
            f"{1e3 * tails[name]:.2f}",
            f"{1e3 * statistics.median(turns[name]):.2f}",
            f"{server.memory:.1f}",
            verdict(met) if name == "ours" else "",
        ]
        for name, server in servers.items()
    ]


def _as_text(page: bytes) -> bytes:
    """A page in the OpenMetrics format as the text format has it: a counter's family has the name of its samples."""
    lines: list[bytes] = []
    for line in page.splitlines(keepends=True):
        words = line.split(b" ", 3)
        if words[0] == b"#" and words[1] == b"TYPE" and words[3] == b"counter\n":
            family = words[2]
            help_line = lines.pop().replace(family, family + b"_total", 1)
            lines += [help_line, line.replace(family, family + b"_total", 1)]
        elif words[0] == b"#" and words[1] == b"TYPE" and words[3] == b"unknown\n":
            lines.append(line.replace(b"unknown", b"untyped"))
        else:
            lines.append(line)
    return b"".join(lines)


def _same_size(ours: int, theirs: int) -> None:
    # Besides the page it shows a few samples of its own.
    if not 0 <= theirs - ours <= 40:
        raise RuntimeError(f"node_exporter shows {theirs} samples of a page of {ours}")


def _idle() -> Table:
    """Processor time while nobody scrapes, each collector at a cadence of 5 s."""
    seconds = float(os.environ.get("IDLE_SECONDS", "20"))
    flags = [f"--collector.{name}.interval=5s" for name in ("runs", "logs", "efa")]
    with tempfile.TemporaryDirectory() as folder:
        node = Node(Path(folder))
        node.add_runs(1)
        with node.exporter(*flags) as (pid, _):
            time.sleep(2.5)  # what comes with the first samples is over
            before, begun = cpu_seconds(pid), time.monotonic()
            time.sleep(seconds)
            share = (cpu_seconds(pid) - before) / (time.monotonic() - begun)
            memory = pss_mib(pid)
    row = ["one run, its log, 32 EFA devices", f"{100 * share:.2f} %", f"{memory:.1f}", verdict(share < _IDLE_SHARE)]
    note = f"Over {seconds:.0f} s. Target: under {100 * _IDLE_SHARE} % of one core."
    return Table(["idle, a sample every 5 s", "of one core", "memory, MiB", "target"], [row], note)
