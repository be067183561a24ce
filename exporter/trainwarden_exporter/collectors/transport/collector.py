"""The collector of the networks that NCCL uses, run by run."""

from __future__ import annotations

import threading
import time
from collections import Counter
from typing import TYPE_CHECKING

from trainwarden_exporter.collectors.rdma.devices import RdmaDevices
from trainwarden_exporter.collectors.transport import metrics
from trainwarden_exporter.collectors.transport.run_transport import (
    MAX_PROCESSES_OF_USER,
    Fabric,
    RunTransport,
    is_ok,
)
from trainwarden_exporter.core.metric import Families
from trainwarden_exporter.sampling.blocking_io import TIMEOUT_SECONDS, BlockingIoPool, add_blocked
from trainwarden_exporter.sampling.calls import enter

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from trainwarden_exporter.core.metric import Family
    from trainwarden_exporter.core.node import Node
    from trainwarden_exporter.core.shared_state import SharedState, WatchedRun


class TransportCollector:
    """Exports which networks the runs use. It is a `LogConsumer`: the log reader feeds it the lines of NCCL.

    Args:
        shared: lists the runs, their log files, and the consumers of logs.
        node: whose devices and processes are read.
        now: the clock, Unix seconds.
        timeout: seconds until a run's folder counts as blocked.
    """

    name = "transport"

    def __init__(
        self,
        shared: SharedState,
        node: Node,
        now: Callable[[], float] = time.time,
        timeout: float = TIMEOUT_SECONDS,
    ) -> None:
        self._shared = shared
        self._node = node
        self._devices = RdmaDevices(node.sysfs)
        self._now = now
        self._lock = threading.Lock()
        self._runs: dict[str, RunTransport] = {}
        self._processes: Counter[int] = Counter()  # that are known, by user
        self._environments: BlockingIoPool[RunTransport] = BlockingIoPool(timeout, _user_of)
        shared.add_log_consumer(self)

    def wants(self, run: WatchedRun) -> bool:
        """Return whether the run has a record and was seen running."""
        with self._lock:
            known = self._runs.get(run.run_id)
            if known is None and run.recorded and not run.ended:
                known = self._runs[run.run_id] = RunTransport(run)
        if known is not None:
            known.update(run)
        return known is not None

    def feed(self, run: WatchedRun, source: str, data: bytes) -> None:
        """Take the next bytes of one of the run's logs."""
        with self._lock:
            known = self._runs.get(run.run_id)
        if known is not None:
            user = _user_of(known)
            new = known.feed(source, data, MAX_PROCESSES_OF_USER - self._processes[user])
            with self._lock:
                self._processes[user] += new

    def collect(self) -> Iterable[Family]:
        """Return the families of what the log reader has found so far, and of what the environments ask for."""
        runs = self._known_runs()
        now = self._now()

        def read_environment(run: RunTransport) -> None:
            enter("environment")
            run.read_environment(self._node, now)

        self._environments.map(
            [run for run in runs.values() if run.needs_environment and not self._is_over(run)], read_environment
        )
        return self._families(runs)

    def close(self) -> None:
        """Take no more lines."""
        self._shared.remove_log_consumer(self)

    def _known_runs(self) -> dict[str, RunTransport]:
        """Return the runs that are still in the shared state, and forget the others."""
        with self._lock:
            if self._shared.runs is not None:
                there = {run.run_id for run in self._shared.runs}
                self._runs = {run_id: run for run_id, run in self._runs.items() if run_id in there}
            self._processes = Counter()
            for run in self._runs.values():
                self._processes[_user_of(run)] += run.processes
            return dict(self._runs)

    def _is_over(self, run: RunTransport) -> bool:
        """Return whether the attempt has ended and its logs were read to their end."""
        view = self._shared.views.get(run.run.run_id)
        return view is not None and view.settled and view.attempt == run.run.attempt

    def _families(self, runs: dict[str, RunTransport]) -> list[Family]:
        families = Families()
        fabric = self._fabric()
        files = {run_id: found for run_id, found in self._shared.log_files.items() if run_id in runs}
        blocked = {run_id: found.blocked for run_id, found in files.items() if found.blocked}
        blocked |= {each.key.run.run_id: each.call for each in self._environments.blocked}
        add_blocked(families, self.name, blocked)
        for run_id, run in sorted(runs.items()):
            if run_id not in blocked:
                self._add_run(families, run, fabric)
        read = [found for run_id, found in files.items() if not self._is_over(runs[run_id])]
        for outcome, count in (
            ("followed", sum(found.followed for found in read)),
            ("unreadable", sum(found.unreadable for found in read)),
            ("dropped", sum(found.dropped for found in read)),
        ):
            families.add(metrics.TRAINWARDEN_TRANSPORT_FILES, count, outcome=outcome)
        return families.collected()

    def _add_run(self, families: Families, run: RunTransport, fabric: Fabric) -> None:
        run_id, requested = run.run.run_id, run.requested
        uses = run.uses(self._node.host)
        processes: Counter[tuple[str, str]] = Counter()
        for use, count in uses.items():
            processes[use.transport, use.provider] += count
        for (transport, provider), count in sorted(processes.items()):
            families.add(metrics.TRAINING_NCCL_TRANSPORT, count, run_id=run_id, transport=transport, provider=provider)
        for network, count in sorted(requested.items()):
            families.add(metrics.TRAINING_NCCL_TRANSPORT_REQUESTED, count, run_id=run_id, transport=network)
        ok = None if run.on_one_host else is_ok(uses, fabric, requested)
        families.add(metrics.TRAINING_NCCL_TRANSPORT_OK, ok, run_id=run_id)

    def _fabric(self) -> Fabric:
        try:
            devices = self._devices.list()
        except OSError:
            return Fabric()
        hardware = [device for device in devices if device.pci_bus_id]
        return Fabric(efa=any(device.is_efa for device in hardware), ib=any(not device.is_efa for device in hardware))


def _user_of(run: RunTransport) -> int:
    return -1 if run.run.owner is None else run.run.owner
