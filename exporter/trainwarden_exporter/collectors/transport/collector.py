"""The collector of the networks that NCCL uses, run by run."""

from __future__ import annotations

import logging
import time
from collections import Counter
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from trainwarden.signals.tailing.opening import Refused
from trainwarden.signals.tailing.template import InvalidTemplate, Template
from trainwarden_exporter.collectors.logs.run import logs_of
from trainwarden_exporter.collectors.rdma.devices import RdmaDevices
from trainwarden_exporter.collectors.transport import metrics
from trainwarden_exporter.collectors.transport.run import RunTransport
from trainwarden_exporter.collectors.transport.verdict import Fabric, is_ok
from trainwarden_exporter.core.metric import Families
from trainwarden_exporter.core.redaction import plain
from trainwarden_exporter.sampling.blocking_io import BlockingIoPool, add_blocked
from trainwarden_exporter.sampling.calls import enter

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from trainwarden_exporter.collectors.transport.init_log import InitLog
    from trainwarden_exporter.core.exchange import RunExchange, WatchedRun
    from trainwarden_exporter.core.metric import Family
    from trainwarden_exporter.core.node import Node

log = logging.getLogger(__name__)

# Of one look: a long log, seen for the first time, must not keep the others waiting.
LOOK_BYTES = 32 * 2**20
LOOK_SECONDS = 2.0


@dataclass(frozen=True)
class TransportSettings:
    """What the flags say of logs: where more are, folders outside of which nothing is read, how many at most."""

    templates: tuple[Template, ...]
    roots: tuple[str, ...]
    max_files: int = 1024


class TransportCollector:
    """Exports which networks the runs on the board use.

    Args:
        board: where the runs are known from.
        node: whose devices and processes are looked at.
        settings: what is to be read.
        now: the clock, Unix seconds.
    """

    name = "transport"

    def __init__(
        self, board: RunExchange, node: Node, settings: TransportSettings, now: Callable[[], float] = time.time
    ) -> None:
        self._board = board
        self._node = node
        self._devices = RdmaDevices(node.sysfs)
        self._settings = settings
        self._now = now
        self._runs: dict[str, RunTransport] = {}
        self._looker: BlockingIoPool[RunTransport] = BlockingIoPool()
        self._until, self._left = 0.0, 0
        self._unreadable: set[str] = set()
        self._complained: set[str] = set()  # at the look before
        self._dropped = 0

    def collect(self) -> Iterable[Family]:
        """Read what is new in the logs and return the families."""
        now = self._now()
        self._update()
        for run in self._read(now):
            if run.run.ended and not run.over:
                run.over = True
                run.close()
        return self._families()

    def _read(self, now: float) -> list[RunTransport]:
        """Give each log a turn, again and again, until the look has done its share; returns runs that are read."""
        self._until, self._left = time.monotonic() + LOOK_SECONDS, LOOK_BYTES
        self._complained, self._unreadable = self._unreadable, set()
        self._dropped = 0
        going_on = [run for run in self._runs.values() if not run.over]
        return self._looker.map_in_rounds(going_on, partial(self._first, now), self._next, self._goes_on)

    def _answering(self) -> dict[str, RunTransport]:
        """Return the runs in whose logs nobody hangs."""
        return {run_id: run for run_id, run in self._runs.items() if not self._looker.is_blocked(run)}

    def _update(self) -> None:
        """Take in which runs there are: those that run, and those that were seen running."""
        if self._board.runs is None:
            return  # nobody has looked yet
        there = {run.run_id: run for run in self._board.runs}
        answering = self._answering()
        for run_id in self._runs.keys() - there.keys():
            del self._runs[run_id]
            if run_id in answering:
                answering[run_id].close()
        for run_id, watched in there.items():
            if run_id in answering:
                answering[run_id].update(watched)
            elif run_id not in self._runs and not watched.ended:
                self._runs[run_id] = RunTransport(watched)

    def _first(self, now: float, run: RunTransport) -> list[InitLog]:
        """See which logs a run has and what became of them, and read a piece of each; returns those to be read on."""
        enter("environment")
        run.ask(self._node, now)
        enter("list")
        room = self._settings.max_files - sum(len(each.logs) for each in list(self._runs.values()))
        paths = logs_of(run.run, self._templates(run.run))
        self._dropped += run.follow(paths, self._settings.roots, max(0, room))
        enter("stat")
        readable = [each for each in run.logs.values() if self._polled(each, now)]
        return self._next(run, readable)

    def _next(self, run: RunTransport, unread: list[InitLog]) -> list[InitLog]:
        """Read one more piece of each of these logs of a run; returns those that are not read to their end."""
        enter("read")
        return [each for each in unread if not self._goes_on() or self._read_on(run, each)]

    def _read_on(self, run: RunTransport, each: InitLog) -> bool:
        data = self._taken(each)
        if not data:
            return False
        self._left -= len(data)
        run.take(data)
        return True

    def _goes_on(self) -> bool:
        return self._left > 0 and time.monotonic() < self._until

    def _polled(self, each: InitLog, now: float) -> bool:
        try:
            each.poll(now)
        except (OSError, Refused) as error:
            self._complain(each.path, error)
            return False
        return True

    def _taken(self, each: InitLog) -> bytes | None:
        try:
            return each.take()
        except (OSError, Refused) as error:
            self._complain(each.path, error)
            return None

    def _complain(self, path: str, error: Exception) -> None:
        """Count a log that cannot be read, and name it once."""
        self._unreadable.add(path)
        if path not in self._complained:
            log.warning("%s", plain(f"{path}: {error}")[:500])

    def _templates(self, run: WatchedRun) -> list[Template]:
        templates = list(self._settings.templates)
        if run.log_path:
            try:
                templates.append(Template.parse(run.log_path))
            except InvalidTemplate:  # the collector of logs has said so
                return templates
        return templates

    def _families(self) -> list[Family]:
        families = Families()
        fabric = self._fabric()
        add_blocked(families, self.name, {each.key.run.run_id: each.call for each in self._looker.blocked})
        for run_id, run in sorted(self._answering().items()):
            uses = run.uses(self._node.host)
            shown: Counter[tuple[str, str]] = Counter()
            for use, count in uses.items():
                shown[use.transport, use.provider] += count
            for (transport, provider), count in sorted(shown.items()):
                families.add(
                    metrics.TRAINING_NCCL_TRANSPORT, count, run_id=run_id, transport=transport, provider=provider
                )
            for word, count in sorted(run.requested.items()):
                families.add(metrics.TRAINING_NCCL_TRANSPORT_REQUESTED, count, run_id=run_id, transport=word)
            ok = None if run.on_one_host else is_ok(uses, fabric, run.requested)
            families.add(metrics.TRAINING_NCCL_TRANSPORT_OK, ok, run_id=run_id)
        followed = sum(len(run.logs) for run in self._runs.values()) - len(self._unreadable)
        for outcome, count in (
            ("followed", followed),
            ("unreadable", len(self._unreadable)),
            ("dropped", self._dropped),
        ):
            families.add(metrics.TRAINWARDEN_TRANSPORT_FILES, count, outcome=outcome)
        return families.collected()

    def _fabric(self) -> Fabric:
        try:
            devices = self._devices.list()
        except OSError:
            return Fabric()
        hardware = [device for device in devices if device.pci_bus_id]
        return Fabric(efa=any(device.is_efa for device in hardware), ib=any(not device.is_efa for device in hardware))
