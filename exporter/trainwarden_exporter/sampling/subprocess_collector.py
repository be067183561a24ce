"""A collector in a process of its own: a driver that never returns delays nothing else."""

from __future__ import annotations

import json
import logging
import threading
import time
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Protocol

from trainwarden.service_log import current_format
from trainwarden_exporter.core.scrape_times import LONGEST_SECONDS
from trainwarden_exporter.sampling.child_process import END_SECONDS, ChildProcess, InvalidMessage
from trainwarden_exporter.sampling.messages import View, apply_message, kept_value
from trainwarden_exporter.sampling.sampler import status_of
from trainwarden_exporter.sampling.task import DISCOVERY, Status

if TYPE_CHECKING:
    from collections.abc import Mapping

    from trainwarden_exporter.core.exposition import Encoded

log = logging.getLogger(__name__)

# The child sends its state every second; a machine short of everything may delay it.
SILENT_SECONDS = 15.0
# A child none of whose devices answers is replaced after this time, once: the next may hang just the same.
GIVE_UP_SECONDS = 60.0
MAX_HANGING = 2
# Tolerated lines that are no messages: a library may print to standard output.
MAX_INVALID_LINES = 100
LOOK_SECONDS = 1.0
RESTART_SECONDS = 1.0
BACKOFF_SECONDS = 60.0
SLACK_SECONDS = 2.0


class Keeper(Protocol):
    """Keeps a value beyond the end of a child, for the next one."""

    def value(self) -> Any:
        """Return the value for a new child, of JSON."""

    def keep(self, value: Any) -> None:
        """Take over what a child reports; raises `ValueError` if it is no such value. Called in one thread."""


@dataclass(frozen=True)
class ChildSpec:
    """What a child runs; times in seconds.

    Attributes:
        module: has a `build(settings)` that returns the collector, which calls its attribute `keep` if it has one.
        follows_scrapes: samples are taken shortly before scrapes; the interval is the shortest pause.
        keepers: of what one child leaves to the next, by name; a child finds each value in its settings.
    """

    collector: str
    module: str
    interval: float
    timeout: float
    settings: Mapping[str, Any] = field(default_factory=dict)
    keepers: Mapping[str, Keeper] = field(default_factory=dict)
    follows_scrapes: bool = False

    def line(self) -> bytes:
        """Return the first line of the child's input."""
        message = {
            "module": self.module,
            "settings": {**self.settings, **{name: keeper.value() for name, keeper in self.keepers.items()}},
            "interval": self.interval,
            "timeout": self.timeout,
            "follows_scrapes": self.follows_scrapes,
            "log_level": logging.getLogger().getEffectiveLevel(),
            "log_format": current_format(),
        }
        return json.dumps(message).encode() + b"\n"


class SubprocessCollector:
    """Runs a collector in a child process; restarts it when it dies, and once when all its devices hang."""

    def __init__(self, spec: ChildSpec) -> None:
        self.name = spec.collector
        self._spec = spec
        self._views: dict[tuple[str, str], View] = {}
        self._last_message: float | None = None
        self._error: str | None = None
        self._process: ChildProcess | None = None
        self._left: list[ChildProcess] = []
        self._released = False
        self._replaced = False
        self._invalid_lines = 0
        self._wanted = threading.Event()
        self._stopped = threading.Event()
        self._lock = threading.Lock()

    @property
    def scrape_listener(self) -> SubprocessCollector | None:
        """What to call at each scrape."""
        return self if self._spec.follows_scrapes else None

    def scraped(self, client: str) -> None:
        """Pass a scrape on to the child."""
        process = self._process
        if process is not None:
            process.send(json.dumps({"scraped": client}).encode() + b"\n")

    def start(self) -> None:
        """Start the child and the thread that watches it."""
        self._wanted.set()
        threading.Thread(target=self._watch, name=f"child-{self.name}", daemon=True).start()

    def stop(self) -> None:
        """End the child; leave one that hangs behind after a few seconds."""
        self._stopped.set()
        self.release()
        self._wanted.set()  # wakes the watching thread, which ends

    def release(self) -> bool:
        """End the child, which releases every device; return False if it hangs and may still hold some."""
        self._released = True
        self._wanted.clear()
        with self._lock:
            process = self._process
        self._drop_views(None)
        if process is not None and not process.end():
            self._left.append(process)
        return self._hanging() == 0

    def resume(self) -> None:
        """Start a child again."""
        self._released = False
        self._wanted.set()

    def sample_once(self) -> None:
        """Start the child and wait for the first sample of each task, or for the deadlines."""
        self.start()
        deadline = time.monotonic() + 2 * self._spec.timeout + END_SECONDS
        while time.monotonic() < deadline:
            # Only discovery lists all tasks: a task that is done before it may not be the only one.
            discovered = DISCOVERY in self._views or not self._views
            if discovered and all(status.attempted for status in self.statuses()):
                return
            time.sleep(0.02)

    def statuses(self) -> list[Status]:
        """Return the status of each task, by the child's last messages."""
        now = time.monotonic()
        last_message, views = self._last_message, self._views
        if self._released or (last_message is None and self._hanging()):
            return [self._without_child()]
        found = [self._status(view, now) for view in views.values()]
        if not found:
            found = [Status(self.name, self._error is not None, False, 0.0, None, self._error)]
        if last_message is None:
            return found
        if now - last_message > SILENT_SECONDS:
            last_success = found[0].last_success
            silent = f"no message from its process for {now - last_message:.0f} s"
            found[0] = Status(
                self.name, True, False, now - last_message, last_success, silent, stuck=True, call="process"
            )
        return found

    def ready(self) -> list[tuple[Encoded, float]]:
        """Return the good samples that are not older than the interval of their task allows."""
        now = time.monotonic()
        good = [view.last for view in self._views.values() if self._status(view, now).success]
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
                self._drop_views(why)
                log.warning("collector %s: %s; starting it again", self.name, why)
                pause = (
                    RESTART_SECONDS if time.monotonic() - begun > BACKOFF_SECONDS else min(2 * pause, BACKOFF_SECONDS)
                )
                self._stopped.wait(pause)

    def _live(self) -> str:
        """Start a child and read its messages until it ends or is given up; return the reason."""
        try:
            process = ChildProcess(self._spec.line())
        except OSError as error:
            return f"its process cannot be started: {error}"
        with self._lock:
            # A release or a stop in the meantime did not see this child.
            wanted = self._wanted.is_set() and not self._stopped.is_set()
            self._process = process if wanted else None
            self._last_message, self._invalid_lines = time.monotonic() if wanted else None, 0
        try:
            why = self._read_messages(process)
        except InvalidMessage as error:
            why = str(error)
        if self._process is not process and wanted:
            process.drain()  # another thread ends it
        elif not process.end():
            log.warning("collector %s: its process %d hangs and is left behind", self.name, process.pid)
            self._left.append(process)
        process.close()
        return why or f"its process {process.why_ended()}"

    def _read_messages(self, process: ChildProcess) -> str:
        """Apply the child's messages until it ends, is ended or is given up; return the reason."""
        next_look = 0.0
        while self._process is process:
            # Not after each message: to look at all tasks takes longer than to apply one.
            if (now := time.monotonic()) >= next_look:
                next_look = now + LOOK_SECONDS
                if self._must_be_replaced():
                    return "none of its devices answers"
            lines = process.lines(1.0)
            if lines is None:
                break
            for line in lines:
                self._apply(process, line)
        return ""

    def _apply(self, process: ChildProcess, line: bytes) -> None:
        try:
            kept = kept_value(line)
            if kept is not None:
                name, value = kept
                self._spec.keepers[name].keep(value)
                return
            views = apply_message(line, self.name, self._views)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            self._invalid_lines += 1
            if self._invalid_lines == 1:
                log.warning("collector %s: its process wrote what is no message: %s", self.name, error)
            if self._invalid_lines > MAX_INVALID_LINES:
                raise InvalidMessage("its process writes what is no message") from error
            return
        with self._lock:
            if self._process is process:  # else its views were dropped with it
                self._views, self._last_message = views, time.monotonic()

    def _must_be_replaced(self) -> bool:
        """Return whether the child hangs as a whole; True once, until it works again."""
        statuses = self.statuses()
        devices = [status for status in statuses if status.device]
        good = [status.success for status in devices or statuses]
        if any(good) if devices else all(good):
            self._replaced = False
        silent = self._last_message is not None and time.monotonic() - self._last_message > GIVE_UP_SECONDS
        hung = [status.stuck and status.duration > GIVE_UP_SECONDS for status in devices or statuses]
        hangs = all(hung) if devices else any(hung)  # discovery that hangs may be why there is no device yet
        if self._replaced or not (silent or hangs):
            return False
        self._replaced = True
        return True

    def _hanging(self) -> int:
        self._left = [process for process in self._left if process.hangs()]
        return len(self._left)

    def _status(self, view: View, now: float) -> Status:
        """Return the status of a task; one without a new sample when it is due has failed."""
        status = status_of(view.task, view.last, view.running, now)
        pause = max(view.task.interval, LONGEST_SECONDS if self._spec.follows_scrapes else 0.0)
        elapsed = now - view.last.begun
        if status.success and elapsed > pause + view.task.timeout + SLACK_SECONDS:
            return replace(status, success=False, error=f"no sample for {elapsed:.0f} s")
        return status

    def _drop_views(self, error: str | None) -> None:
        with self._lock:
            self._process = None
            self._views, self._last_message, self._error = {}, None, error
