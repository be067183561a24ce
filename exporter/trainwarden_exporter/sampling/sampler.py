"""Samples one task again and again; reading the last sample never waits for the task."""

from __future__ import annotations

import logging
import threading
import time
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from trainwarden_exporter.core.exposition import Encoded, Encoder
from trainwarden_exporter.sampling import calls
from trainwarden_exporter.sampling.task import Status

if TYPE_CHECKING:
    from collections.abc import Callable

    from trainwarden_exporter.core.scrape_times import ScrapeTimes
    from trainwarden_exporter.sampling.task import SampleTask

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class LastSample:
    """The last sample: when it began (monotonic), how long it took, and its result."""

    encoded: Encoded = field(default_factory=Encoded)
    begun: float = 0.0
    duration: float = 0.0
    error: str | None = None
    attempted: bool = False
    last_success: float | None = None


class Sampler:
    """Samples one task in a thread of its own.

    Args:
        task: what is sampled.
        done: called in that thread after each sample.
        wall: the clock, Unix seconds.
        monotonic: the clock for durations.
        scrape_times: when samples are due, at the earliest after the task's interval; without it, at each interval.
    """

    def __init__(
        self,
        task: SampleTask,
        done: Callable[[Sampler], None] | None = None,
        wall: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
        *,
        scrape_times: ScrapeTimes | None = None,
    ) -> None:
        self.task = task
        self.name = task.collector
        self._done = done
        self._wall = wall
        self._monotonic = monotonic
        self._scrape_times = scrape_times
        self._encoder = Encoder()
        self._stop = threading.Event()
        self._background: threading.Thread | None = None
        self._thread: int | None = None
        # Both are replaced as a whole: a reader sees the old or the new value.
        self.last = LastSample()
        self._begun: float | None = None

    @property
    def scrape_listener(self) -> ScrapeTimes | None:
        """What to call at each scrape."""
        return self._scrape_times

    def start(self) -> None:
        """Start sampling in the background."""
        # A daemon, because one that hangs in a driver or on a dead mount must not keep the process alive.
        self._background = threading.Thread(target=self._run, name=f"collector-{self.name}", daemon=True)
        self._background.start()

    def stop(self) -> None:
        """Stop sampling after the sample that is being taken."""
        self._stop.set()
        if self._scrape_times is not None:
            self._scrape_times.wake()
        if self._background is None and self.task.close is not None:
            self.task.close()

    def join(self, seconds: float) -> bool:
        """Wait until a stopped sampler has ended; return False if it has not within `seconds`."""
        if self._background is not None:
            self._background.join(seconds)
        return not (self._background and self._background.is_alive())

    @property
    def over(self) -> bool:
        """Whether it was stopped and takes no more samples."""
        return self._stop.is_set() and self._begun is None

    def release(self) -> bool:
        """Return True: a task that is sampled as a whole holds no device between two samples."""
        return True

    def resume(self) -> None:
        """Do nothing: nothing was released."""

    def sample_once(self) -> None:
        """Take one sample; return without it once its timeout is over."""
        thread = threading.Thread(target=self.sample, name=f"collector-{self.name}", daemon=True)
        thread.start()
        thread.join(self.task.timeout + 0.1)

    def sample(self) -> None:
        """Take one sample; whatever the task raises becomes a failed sample."""
        before = self.last
        self._thread = threading.get_ident()
        begun = self._begun = self._monotonic()
        try:
            encoded = self._encoder.encode(self.task.read())
        except BaseException as error:  # a task must not end its thread, SystemExit included
            message = f"{type(error).__name__}: {error}"
            if message != before.error:
                log.warning("%s failed: %s", self._shown(), message, exc_info=log.isEnabledFor(logging.DEBUG))
            result = replace(before, encoded=Encoded(), error=message)
        else:
            if before.error is not None:
                log.info("%s works again", self._shown())
            result = LastSample(encoded, begun, last_success=self._wall())
            if self._scrape_times is not None and encoded.series is not before.encoded.series:
                self._scrape_times.shown_has_changed()
        self.last = replace(result, duration=self._monotonic() - begun, attempted=True)
        self._begun = None
        calls.leave()
        if self._done is not None:
            self._done(self)

    def sample_unless_stopped(self) -> None:
        """Take one sample, in the thread of a `RoundRobinSampler`, unless this sampler was stopped."""
        self._begun = self._monotonic()
        if self._stop.is_set():
            self._begun = None
        else:
            self.sample()

    def running(self) -> tuple[float, str] | None:
        """Return since when a sample is being taken (monotonic), and the call it is in; None between two samples."""
        begun = self._begun
        return None if begun is None else (begun, calls.current(self._thread))

    def status(self) -> Status:
        """Return the task's status; one that hangs has failed."""
        return status_of(self.task, self.last, self.running(), self._monotonic())

    def statuses(self) -> list[Status]:
        """Return the status of the one task."""
        return [self.status()]

    def ready(self) -> list[tuple[Encoded, float]]:
        """Return the last sample if it is good; stale series must not stay on the page."""
        taken = self.last
        return [(taken.encoded, self._monotonic() - taken.begun)] if self.status().success else []

    def _run(self) -> None:
        while True:
            # Before `_stop` is read: a thread that sets it and then sees no sample being taken may rely on that.
            begun = self._begun = self._monotonic()
            if self._stop.is_set():
                break
            self.sample()
            if self._scrape_times is None:
                self._stop.wait(self.task.interval)
            else:
                self._scrape_times.wait(begun, self._monotonic(), self.task.interval, self._stop)
        self._begun = None
        if self.task.close is not None:
            self.task.close()

    def _shown(self) -> str:
        return f"collector {self.name}" + (f", device {self.task.device}" if self.task.device else "")


def status_of(task: SampleTask, last: LastSample, running: tuple[float, str] | None, now: float) -> Status:
    """Return the status of a task from its last sample and the one that is being taken; `now` is monotonic."""
    if running is not None and now - running[0] > task.timeout:
        for_seconds, call = now - running[0], running[1]
        error = f"no answer for {for_seconds:.0f} s" + (f" from {call}" if call else "")
        return Status(
            task.collector, True, False, for_seconds, last.last_success, error, task.device, stuck=True, call=call
        )
    success = last.attempted and last.error is None
    return Status(task.collector, last.attempted, success, last.duration, last.last_success, last.error, task.device)
