"""What one sample of a collector takes, encoded and ready for a scrape."""

import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks import scrapes_gpus
from benchmarks.scrapes_cycles import CYCLES, Cycle, cycle_of
from benchmarks.scrapes_node import HOST, RANKS, Node, write_run
from benchmarks.tables import Table, verdict
from tests.unit.exporter.contexts import context
from trainwarden.record.thresholds import Thresholds
from trainwarden_exporter.collectors.rdma import efa as spec
from trainwarden_exporter.collectors.runs.collector import RunsCollector
from trainwarden_exporter.core.memory import look_for_cycles_seldom
from trainwarden_exporter.core.node import Node as Watched
from trainwarden_exporter.core.shared_state import SharedState
from trainwarden_exporter.flags import build_parser
from trainwarden_exporter.sampling.sampler import Sampler
from trainwarden_exporter.sampling.task import single_task

_RUNS = 1_000
_LIVE_RUNS = 500
# Records are read as often as they are scraped: as the shipped configuration does, and as Prometheus usually does.
_SCRAPE_SECONDS = (5.0, 15.0)
_LIVE_SHARE = 0.05


def sampling() -> Table:
    """Cycles of one collector each, nothing else at work."""
    look_for_cycles_seldom()  # as the exporter does
    flags = vars(build_parser().parse_args([]))
    with tempfile.TemporaryDirectory() as name:
        node = Node(Path(name))
        rows = [*_gpus(flags), *_efa(node, flags), *_runs(node, flags)]
    note = (
        f"Processor time of one cycle, the median of {CYCLES}, and its share of one core at the default cadence. "
        f"NVIDIA's library is a stand-in that answers at once. Target of live runs: under {100 * _LIVE_SHARE:g} %."
    )
    return Table(["", "samples", "ms per cycle", "of one core", "target"], rows, note)


def _gpus(flags: dict[str, Any]) -> list[list[str]]:
    cadences = {"fast": flags["collector.nvidia.interval"], "slow": flags["collector.nvidia.slow_interval"]}
    found = scrapes_gpus.cycles(cadences["fast"], flags["collector.nvidia.timeout"])
    return [
        _row(f"{scrapes_gpus.GPUS} NVIDIA GPUs, what is {tier} to read", cadences[tier], cycle)
        for tier, cycle in found.items()
    ]


def _efa(node: Node, flags: dict[str, Any]) -> list[list[str]]:
    fleet = spec.create(context(spec.SPEC, Watched(HOST, sysfs=node.sysfs), flags))
    (look,) = fleet.samplers()
    look.sample()
    samplers = fleet.samplers()
    counters = [file for file in node.sysfs.glob("class/infiniband/*/ports/1/hw_counters/*") if file.name != "lifespan"]

    def count(number: int) -> None:
        for file in counters:
            file.write_text(f"{10**12 + number}\n")

    rows = [
        _row(f"32 EFA devices, {what}", look.task.interval, cycle)
        for what, cycle in (
            ("whose ports all count on", cycle_of(samplers, count)),
            ("that have nothing to do", cycle_of(samplers)),
        )
    ]
    fleet.release()
    return rows


def _runs(node: Node, flags: dict[str, Any]) -> list[list[str]]:
    node.add_runs(_RUNS)
    collector = RunsCollector(
        node.runs, SharedState(), host=HOST, all_hosts=False, limit=2 * _RUNS, defaults=Thresholds()
    )
    sampler = Sampler(single_task(collector, flags["collector.runs.interval"], 60.0))
    sampler.sample()
    time.sleep(2.1)  # what has just changed is read each time
    rows = [_row(f"{_RUNS:,} runs of {RANKS} ranks, nothing changed", sampler.task.interval, cycle_of([sampler]))]
    with tempfile.TemporaryDirectory() as name:
        live = RunsCollector(
            Path(name), SharedState(), host=HOST, all_hosts=False, limit=_LIVE_RUNS, defaults=Thresholds()
        )
        samplers = [Sampler(single_task(live, max(_SCRAPE_SECONDS), 60.0))]

        def train(steps: int) -> None:
            for number in range(_LIVE_RUNS):
                write_run(Path(name, f"run-{number}"), number, steps)

        cycle = cycle_of(samplers, train)
        for seconds in _SCRAPE_SECONDS:
            title = f"{_LIVE_RUNS} runs of {RANKS} ranks, all of which train, every {seconds:.0f} s"
            rows.append(_row(title, seconds, cycle, _LIVE_SHARE))
    return rows


def _row(title: str, interval: float, cycle: Cycle, target: float | None = None) -> list[str]:
    share = cycle.seconds / interval
    met = "" if target is None else verdict(share < target)
    return [title, f"{cycle.samples:,}", f"{1e3 * cycle.seconds:.1f}", f"{100 * share:.2f} %", met]
