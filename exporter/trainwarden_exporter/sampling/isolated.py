"""A collector in a process of its own, so that a driver that never returns costs nobody else anything."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import select
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from trainwarden_exporter.sampling.messages import View, take_in
from trainwarden_exporter.sampling.part import Status
from trainwarden_exporter.sampling.sampler import status_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from trainwarden_exporter.exposition import Encoded

log = logging.getLogger(__name__)

LOG_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"
# It says every second what it is doing; a machine that is short of everything gets some patience.
SILENT_SECONDS = 15.0
# A child of which nothing answers any more is replaced after this time, once, for the next may hang just the same.
GIVE_UP_SECONDS = 60.0
END_SECONDS = 5.0
BACKOFF_SECONDS = 60.0
SLACK_SECONDS = 2.0


@dataclass(frozen=True)
class Order:
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


class Isolated:
    """A collector in a child process, started again when it dies, and once more when all of it hangs."""

    def __init__(self, order: Order) -> None:
        self.name = order.collector
        self._order = order
        self._views: dict[tuple[str, str], View] = {}
        self._heard: float | None = None
        self._error: str | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._left: list[subprocess.Popen[bytes]] = []
        self._released = False
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
        if process is not None and not _ended(process):
            self._left.append(process)
        return not self._hanging()

    def resume(self) -> None:
        """Start a child again."""
        self._released = False
        self._wanted.set()

    def sample_once(self) -> None:
        """Start the child and wait for the first sample of all that it finds, or for the deadlines."""
        self.start()
        deadline = time.monotonic() + 2 * self._order.timeout + END_SECONDS
        while time.monotonic() < deadline and not all(status.attempted for status in self.statuses()):
            time.sleep(0.02)

    def statuses(self) -> list[Status]:
        """Return how each part is doing, as the child said last."""
        now = time.monotonic()
        heard, views = self._heard, self._views
        if self._released:
            return [self._let_go()]
        if heard is None or not views:
            return [Status(self.name, self._error is not None, False, 0.0, None, self._error)]
        found = [status_of(view.part, view.taken, view.running, now) for view in views.values()]
        if now - heard > SILENT_SECONDS:
            last = found[0].last_success
            silent = f"its process says nothing for {now - heard:.0f} s"
            found[0] = Status(self.name, True, False, now - heard, last, silent, stuck=True, call="process")
        return found

    def ready(self) -> list[tuple[Encoded, float]]:
        """Return the samples that are good and not older than the cadence of their part allows."""
        now = time.monotonic()
        good = []
        for view in self._views.values():
            elapsed = now - view.taken.begun
            fresh = elapsed <= view.part.interval + view.part.timeout + SLACK_SECONDS
            if fresh and status_of(view.part, view.taken, view.running, now).success:
                good.append((view.taken.encoded, elapsed))
        return good

    def _let_go(self) -> Status:
        if self._hanging():
            error = "its process does not end, and may still hold a device"
            return Status(self.name, True, False, 0.0, None, error, stuck=True, call="process")
        return Status(self.name, False, False, 0.0, None, None, released=True)

    def _watch(self) -> None:
        pause = 1.0
        while not self._stopped.is_set():
            self._wanted.wait()
            if self._stopped.is_set():
                return
            if self._hanging():
                self._stopped.wait(1.0)  # one that hangs is enough
                continue
            begun = time.monotonic()
            why = self._live()
            if self._wanted.is_set() and not self._stopped.is_set():
                self._forget(why)
                log.warning("collector %s: %s; starting it again", self.name, why)
                pause = 1.0 if time.monotonic() - begun > BACKOFF_SECONDS else min(2 * pause, BACKOFF_SECONDS)
                self._stopped.wait(pause)

    def _live(self) -> str:
        """Start a child and listen until it ends or must be given up; returns why."""
        command = [sys.executable, "-m", "trainwarden_exporter.sampling.child"]
        try:
            process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        except OSError as error:
            return f"its process cannot be started: {error}"
        with self._lock:
            self._process = process
        self._heard = time.monotonic()
        _tell(process, self._order.line())
        if not self._listen(process):
            return f"its process ended with status {process.wait()}"
        if self._process is process:
            log.warning("collector %s: nothing of it answers, its process %d is given up", self.name, process.pid)
            if not _ended(process):
                self._left.append(process)
        return "nothing of it answered any more"

    def _listen(self, process: subprocess.Popen[bytes]) -> bool:
        """Take in what the child says; False when it has ended, True when all of it hangs or somebody else ends it."""
        output = process.stdout.fileno() if process.stdout else -1
        rest = b""
        ready = select.poll()  # unlike select, it takes descriptors above 1023
        ready.register(output, select.POLLIN)
        while self._process is process and not self._gives_up():
            if ready.poll(1000):
                data = os.read(output, 2**20)
                if not data:
                    return False
                *lines, rest = (rest + data).split(b"\n")
                for line in lines:
                    self._take_in(line)
        return True

    def _take_in(self, line: bytes) -> None:
        try:
            self._views = take_in(line, self.name, self._views)
        except (ValueError, KeyError, TypeError) as error:
            log.warning("collector %s: its process said what is no message: %s", self.name, error)
            return
        self._heard = time.monotonic()

    def _gives_up(self) -> bool:
        statuses = self.statuses()
        silent = self._heard is not None and time.monotonic() - self._heard > GIVE_UP_SECONDS
        return silent or all(status.stuck and status.duration > GIVE_UP_SECONDS for status in statuses)

    def _hanging(self) -> bool:
        self._left = [process for process in self._left if process.poll() is None]
        return bool(self._left)

    def _forget(self, error: str | None) -> None:
        self._views, self._heard, self._error = {}, None, error
        with self._lock:
            self._process = None


def _tell(process: subprocess.Popen[bytes], line: bytes) -> None:
    if process.stdin is not None:
        with contextlib.suppress(OSError):  # it has ended already, and will be started again
            process.stdin.write(line)
            process.stdin.flush()


def _ended(process: subprocess.Popen[bytes]) -> bool:
    """Ask the child to end, then tell it to.

    Never with SIGKILL: killed in the middle of a call, it may leave a GPU unusable.
    """
    with contextlib.suppress(OSError):
        if process.stdin is not None:
            process.stdin.close()
    if _waited(process, END_SECONDS):
        return True
    process.terminate()
    return _waited(process, 1.0)


def _waited(process: subprocess.Popen[bytes], seconds: float) -> bool:
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        return False
    return True
