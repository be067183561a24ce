"""The collector of the networks that NCCL uses, run by run."""

from __future__ import annotations

import logging
import time
from collections import Counter, deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

from trainwarden.signals.tailing.opening import Refused
from trainwarden.signals.tailing.template import InvalidTemplate, Template
from trainwarden_exporter.catalog import Families
from trainwarden_exporter.infiniband.devices import RdmaDevices
from trainwarden_exporter.logs.run import logs_of
from trainwarden_exporter.redaction import plain
from trainwarden_exporter.sampling.calls import enter
from trainwarden_exporter.transport.run import RunTransport
from trainwarden_exporter.transport.verdict import Fabric, is_ok

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from trainwarden_exporter.logs.board import Board, WatchedRun
    from trainwarden_exporter.metric import Family
    from trainwarden_exporter.node import Node
    from trainwarden_exporter.transport.init_log import InitLog

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
        self, board: Board, node: Node, settings: TransportSettings, now: Callable[[], float] = time.time
    ) -> None:
        self._board = board
        self._node = node
        self._devices = RdmaDevices(node.sysfs)
        self._settings = settings
        self._now = now
        self._runs: dict[str, RunTransport] = {}
        self._unreadable: set[str] = set()
        self._dropped = 0

    def collect(self) -> Iterable[Family]:
        """Read what is new in the logs and return the families."""
        now = self._now()
        self._update(now)
        unread = self._read(self._look(now))
        for run in self._runs.values():
            if run.run.ended and not run.over and unread.isdisjoint(run.logs):
                run.over = True
                run.close()
        return self._families()

    def _update(self, now: float) -> None:
        """Take in which runs there are: those that run, and those that were seen running."""
        if self._board.runs is None:
            return  # nobody has looked yet
        there = {run.run_id: run for run in self._board.runs}
        for run_id in self._runs.keys() - there.keys():
            self._runs.pop(run_id).close()
        for run_id, watched in there.items():
            known = self._runs.get(run_id)
            if known is not None:
                known.update(watched)
            elif not watched.ended:
                known = self._runs[run_id] = RunTransport(watched)
            if known is not None and not known.over:
                known.ask(self._node, now)

    def _look(self, now: float) -> list[tuple[RunTransport, InitLog]]:
        """See which logs there are and what became of them; returns those that may be read."""
        readable: list[tuple[RunTransport, InitLog]] = []
        unreadable: set[str] = set()
        self._dropped = 0
        for run in self._runs.values():
            if run.over:
                continue
            enter(f"logs of {run.run.run_id}")
            room = self._settings.max_files - sum(len(each.logs) for each in self._runs.values())
            paths = logs_of(run.run, self._templates(run.run))
            self._dropped += run.follow(paths, self._settings.roots, max(0, room))
            readable += [(run, each) for each in run.logs.values() if self._polled(each, now, unreadable)]
        self._unreadable = unreadable
        return readable

    def _read(self, readable: list[tuple[RunTransport, InitLog]]) -> set[str]:
        """Give each log a turn, again and again, until the look has done its share; returns the paths left unread."""
        queue = deque(readable)
        deadline, left = time.monotonic() + LOOK_SECONDS, LOOK_BYTES
        while queue and left > 0 and time.monotonic() < deadline:
            run, each = queue.popleft()
            enter(f"logs of {run.run.run_id}")
            data = self._taken(each)
            if data:
                left -= len(data)
                run.take(data)
                queue.append((run, each))
        return {each.path for _, each in queue}

    def _polled(self, each: InitLog, now: float, unreadable: set[str]) -> bool:
        try:
            each.poll(now)
        except (OSError, Refused) as error:
            unreadable.add(each.path)
            self._complain(each.path, error)
            return False
        return True

    def _taken(self, each: InitLog) -> bytes | None:
        try:
            return each.take()
        except (OSError, Refused) as error:
            self._complain(each.path, error)
            self._unreadable.add(each.path)
            return None

    def _complain(self, path: str, error: Exception) -> None:
        """Name a log that cannot be read, once."""
        if path not in self._unreadable:
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
        for run_id, run in sorted(self._runs.items()):
            uses = run.uses(self._node.host)
            shown: Counter[tuple[str, str]] = Counter()
            for use, count in uses.items():
                shown[use.transport, use.provider] += count
            for (transport, provider), count in sorted(shown.items()):
                families.add("training_nccl_transport", count, run_id=run_id, transport=transport, provider=provider)
            for word, count in sorted(run.requested.items()):
                families.add("training_nccl_transport_requested", count, run_id=run_id, transport=word)
            ok = None if run.on_one_host else is_ok(uses, fabric, run.requested)
            families.add("training_nccl_transport_ok", ok, run_id=run_id)
        followed = sum(len(run.logs) for run in self._runs.values()) - len(self._unreadable)
        for outcome, count in (
            ("followed", followed),
            ("unreadable", len(self._unreadable)),
            ("dropped", self._dropped),
        ):
            families.add("trainwarden_transport_files", count, outcome=outcome)
        return families.collected()

    def _fabric(self) -> Fabric:
        try:
            devices = self._devices.look()
        except OSError:
            return Fabric()
        hardware = [device for device in devices if device.pci_bus_id]
        return Fabric(efa=any(device.is_efa for device in hardware), ib=any(not device.is_efa for device in hardware))
