"""A collector in a process of its own, so that a driver that never returns costs nobody else anything."""

from __future__ import annotations

import json
import logging
import threading
import time
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from trainwarden_exporter.sampling.messages import View, take_in
from trainwarden_exporter.sampling.process import END_SECONDS, ChildProcess, NoMessage
from trainwarden_exporter.sampling.sampler import status_of
from trainwarden_exporter.sampling.task import LOOK, Status

if TYPE_CHECKING:
    from collections.abc import Mapping

    from trainwarden_exporter.core.exposition import Encoded

log = logging.getLogger(__name__)

LOG_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"
# It says every second what it is doing; a machine that is short of everything gets some patience.
SILENT_SECONDS = 15.0
# A child none of whose devices answers any more is replaced after this time, once, for the next may hang just the same.
GIVE_UP_SECONDS = 60.0
MAX_HANGING = 2
# A library that prints where it should not is suffered for so long.
MAX_RUBBISH_LINES = 100
RESTART_SECONDS = 1.0
BACKOFF_SECONDS = 60.0
SLACK_SECONDS = 2.0


@dataclass(frozen=True)
class ChildSpec:
    """What the child is to do: `module` has a `build(settings)` that returns the collector; times in seconds."""

    collector: str
    module: str
    interval: float
    timeout: float
    settings: Mapping[str, Any] = field(default_factory=dict)

    def line(self) -> bytes:
        """Return it as the child's first line of input."""
        told = {
            "module": self.module,
            "settings": dict(self.settings),
            "interval": self.interval,
            "timeout": self.timeout,
            "log_level": logging.getLogger().getEffectiveLevel(),
            "log_format": LOG_FORMAT,
        }
        return json.dumps(told).encode() + b"\n"


class SubprocessCollector:
    """A collector in a child process, started again when it dies, and once more when all of it hangs."""

    def __init__(self, order: ChildSpec) -> None:
        self.name = order.collector
        self._order = order
        self._views: dict[tuple[str, str], View] = {}
        self._heard: float | None = None
        self._error: str | None = None
        self._process: ChildProcess | None = None
        self._left: list[ChildProcess] = []
        self._released = False
        self._replaced = False
        self._rubbish = 0
        self._wanted = threading.Event()
        self._stopped = threading.Event()
        self._lock = threading.Lock()

    def start(self) -> None:
        """Start the child and what watches it."""
        self._wanted.set()
        threading.Thread(target=self._watch, name=f"child-{self.name}", daemon=True).start()

    def stop(self) -> None:
        """End the child; one that hangs is left behind after a few seconds."""
        self._stopped.set()
        self.release()
        self._wanted.set()  # so that the watch sees that it is over

    def release(self) -> bool:
        """End the child, which lets go of every device; False if it hangs and still holds some."""
        self._released = True
        self._wanted.clear()
        with self._lock:
            process = self._process
        self._forget(None)
        if process is not None and not process.end():
            self._left.append(process)
        return self._hanging() == 0

    def resume(self) -> None:
        """Start a child again."""
        self._released = False
        self._wanted.set()

    def sample_once(self) -> None:
        """Start the child and wait for the first sample of all that it finds, or for the deadlines."""
        self.start()
        deadline = time.monotonic() + 2 * self._order.timeout + END_SECONDS
        while time.monotonic() < deadline:
            # Only the look knows all parts: one that is done before it is not all there is.
            looked = LOOK in self._views or not self._views
            if looked and all(status.attempted for status in self.statuses()):
                return
            time.sleep(0.02)

    def statuses(self) -> list[Status]:
        """Return how each part is doing, as the child said last."""
        now = time.monotonic()
        heard, views = self._heard, self._views
        if self._released or (heard is None and self._hanging()):
            return [self._without_child()]
        found = [_status(view, now) for view in views.values()]
        if not found:
            found = [Status(self.name, self._error is not None, False, 0.0, None, self._error)]
        if heard is None:
            return found
        if now - heard > SILENT_SECONDS:
            last = found[0].last_success
            silent = f"its process says nothing for {now - heard:.0f} s"
            found[0] = Status(self.name, True, False, now - heard, last, silent, stuck=True, call="process")
        return found

    def ready(self) -> list[tuple[Encoded, float]]:
        """Return the samples that are good and not older than the cadence of their part allows."""
        now = time.monotonic()
        good = [view.taken for view in self._views.values() if _status(view, now).success]
        return [(taken.encoded, now - taken.begun) for taken in good]

    def _without_child(self) -> Status:
        if self._hanging():
            error = "its process does not end, and may still hold a device"
            return Status(self.name, True, False, 0.0, None, error, stuck=True, call="process")
        return Status(self.name, False, False, 0.0, None, None, released=True)

    def _watch(self) -> None:
        pause = RESTART_SECONDS
        while not self._stopped.is_set():
            self._wanted.wait()
            if self._stopped.is_set():
                return
            if self._hanging() >= MAX_HANGING:
                self._stopped.wait(1.0)
                continue
            begun = time.monotonic()
            why = self._live()
            if self._wanted.is_set() and not self._stopped.is_set():
                self._forget(why)
                log.warning("collector %s: %s; starting it again", self.name, why)
                pause = (
                    RESTART_SECONDS if time.monotonic() - begun > BACKOFF_SECONDS else min(2 * pause, BACKOFF_SECONDS)
                )
                self._stopped.wait(pause)

    def _live(self) -> str:
        """Start a child and listen until it ends or must be given up; returns why."""
        try:
            process = ChildProcess(self._order.line())
        except OSError as error:
            return f"its process cannot be started: {error}"
        with self._lock:
            # Whoever released or stopped it meanwhile did not see this one.
            wanted = self._wanted.is_set() and not self._stopped.is_set()
            self._process = process if wanted else None
            self._heard, self._rubbish = time.monotonic() if wanted else None, 0
        try:
            why = self._listen(process)
        except NoMessage as error:
            why = str(error)
        if self._process is not process and wanted:
            process.drain()  # somebody else ends it
        elif not process.end():
            log.warning("collector %s: its process %d hangs and is left behind", self.name, process.pid)
            self._left.append(process)
        process.close()
        return why or f"its process {process.why_ended()}"

    def _listen(self, process: ChildProcess) -> str:
        """Take in what the child says until it ends, somebody ends it, or it must be given up: then return why."""
        while self._process is process:
            if self._gives_up():
                return "nothing of it answers any more"
            lines = process.lines(1.0)
            if lines is None:
                break
            for line in lines:
                self._take_in(process, line)
        return ""

    def _take_in(self, process: ChildProcess, line: bytes) -> None:
        try:
            views = take_in(line, self.name, self._views)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            self._rubbish += 1
            if self._rubbish == 1:
                log.warning("collector %s: its process said what is no message: %s", self.name, error)
            if self._rubbish > MAX_RUBBISH_LINES:
                raise NoMessage("its process says what is no message") from error
            return
        with self._lock:
            if self._process is process:  # else somebody let go of it, and of all that it said
                self._views, self._heard = views, time.monotonic()

    def _gives_up(self) -> bool:
        statuses = self.statuses()
        devices = [status for status in statuses if status.device]
        well = [status.success for status in devices or statuses]
        if any(well) if devices else all(well):
            self._replaced = False
        silent = self._heard is not None and time.monotonic() - self._heard > GIVE_UP_SECONDS
        hung = [status.stuck and status.duration > GIVE_UP_SECONDS for status in devices or statuses]
        hangs = all(hung) if devices else any(hung)  # one part that hangs may be why no device was found yet
        if self._replaced or not (silent or hangs):
            return False
        self._replaced = True
        return True

    def _hanging(self) -> int:
        self._left = [process for process in self._left if process.hangs()]
        return len(self._left)

    def _forget(self, error: str | None) -> None:
        with self._lock:
            self._process = None
            self._views, self._heard, self._error = {}, None, error


def _status(view: View, now: float) -> Status:
    """Return how a part is doing; one of which nothing new was heard when it should have been is not well."""
    status = status_of(view.part, view.taken, view.running, now)
    elapsed = now - view.taken.begun
    if status.success and elapsed > view.part.interval + view.part.timeout + SLACK_SECONDS:
        return replace(status, success=False, error=f"no sample for {elapsed:.0f} s")
    return status
