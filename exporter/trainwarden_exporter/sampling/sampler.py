"""Samples one part again and again. What is read from it never waits for the part."""

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

    from trainwarden_exporter.sampling.task import SampleTask

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Taken:
    """The last sample: when it was begun (monotonic), how long it took, what came of it."""

    encoded: Encoded = field(default_factory=Encoded)
    begun: float = 0.0
    duration: float = 0.0
    error: str | None = None
    attempted: bool = False
    last_success: float | None = None


class Sampler:
    """One part in a thread of its own.

    Args:
        part: what is sampled.
        done: called in that thread after each sample.
        wall: the clock, Unix seconds.
        monotonic: the clock for durations.
    """

    def __init__(
        self,
        part: SampleTask,
        done: Callable[[Sampler], None] | None = None,
        wall: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self.part = part
        self.name = part.collector
        self._done = done
        self._wall = wall
        self._monotonic = monotonic
        self._encoder = Encoder()
        self._stop = threading.Event()
        self._background: threading.Thread | None = None
        self._thread: int | None = None
        # Both are replaced as a whole: a reader sees the one or the other, never half of either.
        self.taken = Taken()
        self._begun: float | None = None

    def start(self) -> None:
        """Start sampling in the background."""
        # A daemon, because one that hangs in a driver or on a dead mount must not keep the process alive.
        self._background = threading.Thread(target=self._run, name=f"collector-{self.name}", daemon=True)
        self._background.start()

    def stop(self) -> None:
        """Let it end after the sample that it is taking."""
        self._stop.set()
        if self._background is None and self.part.close is not None:
            self.part.close()

    def join(self, seconds: float) -> bool:
        """Wait until one that was stopped has ended; False if it did not in this time."""
        if self._background is not None:
            self._background.join(seconds)
        return not (self._background and self._background.is_alive())

    @property
    def over(self) -> bool:
        """It was stopped, and takes no sample any more."""
        return self._stop.is_set() and self._begun is None

    def release(self) -> bool:
        """Nothing is held between two samples."""
        return True

    def resume(self) -> None:
        """Nothing was released."""

    def sample_once(self) -> None:
        """Take one sample, and leave it behind as failed if it takes longer than its timeout."""
        thread = threading.Thread(target=self.sample, name=f"collector-{self.name}", daemon=True)
        thread.start()
        thread.join(self.part.timeout + 0.1)

    def sample(self) -> None:
        """Take one sample; whatever the part raises becomes a failed sample."""
        before = self.taken
        self._thread = threading.get_ident()
        begun = self._begun = self._monotonic()
        try:
            encoded = self._encoder.encode(self.part.read())
        except BaseException as error:  # a part must not end its thread, SystemExit included
            message = f"{type(error).__name__}: {error}"
            if message != before.error:
                log.warning("%s failed: %s", self._shown(), message, exc_info=log.isEnabledFor(logging.DEBUG))
            result = replace(before, encoded=Encoded(), error=message)
        else:
            if before.error is not None:
                log.info("%s works again", self._shown())
            result = Taken(encoded, begun, last_success=self._wall())
        self.taken = replace(result, duration=self._monotonic() - begun, attempted=True)
        self._begun = None
        calls.leave()
        if self._done is not None:
            self._done(self)

    def turn(self) -> None:
        """Take one sample for somebody who samples several in turn, unless this one was stopped."""
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
        """Return how the part is doing now; one that hangs has failed."""
        return status_of(self.part, self.taken, self.running(), self._monotonic())

    def statuses(self) -> list[Status]:
        """Return the one there is."""
        return [self.status()]

    def ready(self) -> list[tuple[Encoded, float]]:
        """Return a good last sample, else nothing, for stale series would lie."""
        taken = self.taken
        return [(taken.encoded, self._monotonic() - taken.begun)] if self.status().success else []

    def _run(self) -> None:
        while True:
            # Before the look at `_stop`: whoever sets that and sees no sample being taken may rely on it.
            self._begun = self._monotonic()
            if self._stop.is_set():
                break
            self.sample()
            self._stop.wait(self.part.interval)
        self._begun = None
        if self.part.close is not None:
            self.part.close()

    def _shown(self) -> str:
        return f"collector {self.name}" + (f", device {self.part.device}" if self.part.device else "")


def status_of(part: SampleTask, taken: Taken, running: tuple[float, str] | None, now: float) -> Status:
    """Return how a part is doing, given its last sample and the one that is being taken; `now` is monotonic."""
    if running is not None and now - running[0] > part.timeout:
        for_seconds, call = now - running[0], running[1]
        error = f"no answer for {for_seconds:.0f} s" + (f" from {call}" if call else "")
        return Status(
            part.collector, True, False, for_seconds, taken.last_success, error, part.device, stuck=True, call=call
        )
    success = taken.attempted and taken.error is None
    return Status(
        part.collector, taken.attempted, success, taken.duration, taken.last_success, taken.error, part.device
    )
