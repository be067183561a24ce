"""Samples every device of a collector by itself; devices come and go."""

from __future__ import annotations

import threading
import time
from dataclasses import replace
from typing import TYPE_CHECKING

from trainwarden_exporter.sampling.round_robin import RoundRobinSampler
from trainwarden_exporter.sampling.sampler import Sampler
from trainwarden_exporter.sampling.task import SampleTask

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from trainwarden_exporter.core.exposition import AnyFamily, Encoded
    from trainwarden_exporter.sampling.task import DeviceCollector, Status


class DeviceGroup:
    """A collector and its devices: one thread looks which there are, and each has a thread of its own, or its turn.

    Args:
        collector: whose devices are sampled.
        interval: pause between two looks at which devices there are, seconds.
        timeout: after which a look counts as hung, seconds.
        done: called after each sample, in its thread.
        in_turn: sample the devices one after the other, at the pace of the looks; for those that are quick to read.
    """

    def __init__(
        self,
        collector: DeviceCollector,
        interval: float,
        timeout: float,
        done: Callable[[Sampler], None] | None = None,
        *,
        in_turn: bool = False,
    ) -> None:
        self.collector = collector
        self.name = collector.name
        self._done = done
        self._look = Sampler(SampleTask(collector.name, self._found, interval, timeout), done)
        self._devices: dict[tuple[str, str], Sampler] = {}
        self._lock = threading.Lock()
        self._round = RoundRobinSampler(lambda: self.samplers()[1:], interval) if in_turn else None
        self._started = False
        self._released = False

    def start(self) -> None:
        """Start sampling in the background."""
        self._started = True
        self._look.start()
        if self._round is not None:
            self._round.start()

    def stop(self) -> None:
        """Let each part end after the sample that it is taking."""
        self._look.stop()
        if self._round is not None:
            self._round.stop()
        with self._lock:
            for sampler in self._devices.values():
                sampler.stop()

    def samplers(self) -> list[Sampler]:
        """Return every part there is: the look itself first."""
        with self._lock:
            return [self._look, *self._devices.values()]

    def sample_once(self) -> None:
        """Look which devices there are, take one sample of each, and look again: at what they make together."""
        self._look.sample_once()
        threads = [threading.Thread(target=each.sample_once, daemon=True) for each in self.samplers()[1:]]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if threads:
            self._look.sample_once()

    def statuses(self) -> list[Status]:
        """Return how each part is doing."""
        found = [sampler.status() for sampler in self.samplers()]
        return [replace(each, released=not each.stuck) for each in found] if self._released else found

    def ready(self) -> list[tuple[Encoded, float]]:
        """Return the good samples."""
        return [encoded for sampler in self.samplers() for encoded in sampler.ready()]

    def release(self) -> bool:
        """Let go of every device; False if one is in the middle of a sample that does not end."""
        self._released = True
        deadline = time.monotonic() + 2.0
        while self._stop_devices() and time.monotonic() < deadline:
            time.sleep(0.01)  # as long as samples that are being taken need to end
        self.collector.close()
        holding = self._stop_devices()
        with self._lock:  # one that hangs stays in sight
            self._devices = {key: sampler for key, sampler in self._devices.items() if not sampler.over}
        return not holding

    def resume(self) -> None:
        """Take the devices again at the next look."""
        self._released = False

    def _found(self) -> Iterable[AnyFamily]:
        if self._released:
            return ()
        families = self.collector.collect()
        self._update({part.key: part for part in self.collector.parts()})
        return families

    def _stop_devices(self) -> bool:
        """Let no device take another sample; True while one is being taken."""
        samplers = self.samplers()
        for sampler in samplers[1:]:
            sampler.stop()
        return any(sampler.running() for sampler in samplers)

    def _update(self, found: dict[tuple[str, str], SampleTask]) -> None:
        with self._lock:
            for key in self._devices.keys() - found.keys():
                # One that hangs is kept in sight, and no second thread is put on the same device.
                self._devices[key].stop()
            for key in [key for key, sampler in self._devices.items() if sampler.over]:
                del self._devices[key]
            new = [key for key in found if key not in self._devices]
            for key in new:
                sampler = Sampler(found[key], self._done)
                if self._started and self._round is None:
                    sampler.start()  # raises where no thread is to be had: then the next look tries again
                self._devices[key] = sampler
        if new and self._round is not None:
            self._round.wake()
