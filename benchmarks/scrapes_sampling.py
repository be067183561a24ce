"""What one sample of a collector takes, encoded and ready for a scrape."""

import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from benchmarks.scrapes_node import HOST, RANKS, Node
from benchmarks.tables import Table
from trainwarden.record.thresholds import Thresholds
from trainwarden_exporter.flags import build_parser
from trainwarden_exporter.node import Node as Watched
from trainwarden_exporter.registry import KINDS
from trainwarden_exporter.runs.collector import RunsCollector
from trainwarden_exporter.sampling.part import Member, whole
from trainwarden_exporter.sampling.sampler import Sampler

_CYCLES = 10
_RUNS = 1_000


def sampling() -> Table:
    """Cycles of one collector each, nothing else at work."""
    with tempfile.TemporaryDirectory() as name:
        node = Node(Path(name))
        efa = _efa(node)
        rows = [_row("32 EFA devices", 5.0, efa, efa.sample_once)]
        node.add_runs(_RUNS)
        collector = RunsCollector(node.runs, host=HOST, all_hosts=False, limit=2 * _RUNS, defaults=Thresholds())
        sampler = Sampler(whole(collector, 2.0, 60.0))
        sampler.sample()
        time.sleep(2.1)  # what has just changed is read each time
        rows.append(_row(f"{_RUNS:,} runs of {RANKS} ranks, nothing changed", 2.0, sampler, sampler.sample))
    note = f"Processor time of one cycle, the median of {_CYCLES}, and its share of one core at the default cadence."
    return Table(["", "samples", "ms per cycle", "of one core"], rows, note)


def _efa(node: Node) -> Member:
    flags = vars(build_parser().parse_args([]))
    kind = next(kind for kind in KINDS if kind.name == "efa")
    return kind.wiring.member(Watched(HOST, sysfs=node.sysfs), flags, None)


def _row(title: str, interval: float, member: Member, cycle: Callable[[], None]) -> list[str]:
    cycle()
    took = []
    for _ in range(_CYCLES):
        before = time.process_time()
        cycle()
        took.append(time.process_time() - before)
    median = statistics.median(took)
    samples = sum(len(family) for encoded, _ in member.ready() for family in encoded.series)
    return [title, f"{samples:,}", f"{1e3 * median:.1f}", f"{100 * median / interval:.2f} %"]
