"""Samples every device of a collector by itself; devices come and go."""

from __future__ import annotations

import threading
import time
from dataclasses import replace
from typing import TYPE_CHECKING

from trainwarden_exporter.core.scrape_times import SUMMED_SHARE
from trainwarden_exporter.sampling.sampler import Sampler
from trainwarden_exporter.sampling.task import SampleTask

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from trainwarden_exporter.core.exposition import AnyFamily, Encoded
    from trainwarden_exporter.core.scrape_times import ScrapeTimes
    from trainwarden_exporter.sampling.task import DeviceCollector, Status

# A device that takes longer keeps its thread; another thread goes on with the others.
STUCK_SECONDS = 0.5


class DeviceGroup:
    """Samples a collector and its devices: one thread discovers devices, each device has a thread of its own.

    Args:
        collector: discovers devices and yields their tasks.
        interval: pause between two discoveries, seconds.
        timeout: after which a discovery counts as hung, seconds.
        done: called after each sample, in its thread.
        in_turn: sample all devices in one thread, one after the other, at `interval`; for devices that are quick to
            read: waking a thread for each of 32 takes longer than reading them.
        scrape_times: when samples are due, at the earliest after their interval; without it, at each interval.
    """

    def __init__(
        self,
        collector: DeviceCollector,
        interval: float,
        timeout: float,
        done: Callable[[Sampler], None] | None = None,
        *,
        in_turn: bool = False,
        scrape_times: ScrapeTimes | None = None,
    ) -> None:
        self.collector = collector
        self.name = collector.name
        self._done = done
        self._scrape_times = scrape_times
        # It sums up what the devices count.
        pause = interval if scrape_times is None else SUMMED_SHARE * interval
        self._discovery = self._sampler(SampleTask(collector.name, self._discover, pause, timeout))
        self._devices: dict[tuple[str, str], Sampler] = {}
        self._lock = threading.Lock()
        turns = RoundRobinSampler(lambda: self.samplers()[1:], interval, scrape_times) if in_turn else None
        self._round_robin = turns
        self._started = False
        self._released = False

    @property
    def scrape_listener(self) -> ScrapeTimes | None:
        """What to call at each scrape."""
        return self._scrape_times

    def start(self) -> None:
        """Start sampling in the background."""
        self._started = True
        self._discovery.start()
        if self._round_robin is not None:
            self._round_robin.start()

    def stop(self) -> None:
        """Stop each task after the sample that it is taking."""
        self._discovery.stop()
        if self._round_robin is not None:
            self._round_robin.stop()
        with self._lock:
            for sampler in self._devices.values():
                sampler.stop()

    def samplers(self) -> list[Sampler]:
        """Return the sampler of each task, discovery first."""
        with self._lock:
            return [self._discovery, *self._devices.values()]

    def sample_once(self) -> None:
        """Discover devices, sample each once, and discover again, for the totals that the samples changed."""
        self._discovery.sample_once()
        threads = [threading.Thread(target=each.sample_once, daemon=True) for each in self.samplers()[1:]]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if threads:
            self._discovery.sample_once()

    def statuses(self) -> list[Status]:
        """Return the status of each task."""
        found = [sampler.status() for sampler in self.samplers()]
        return [replace(each, released=not each.stuck) for each in found] if self._released else found

    def ready(self) -> list[tuple[Encoded, float]]:
        """Return the good samples."""
        return [encoded for sampler in self.samplers() for encoded in sampler.ready()]

    def release(self) -> bool:
        """Release every device; return False if a sample of one does not end."""
        self._released = True
        deadline = time.monotonic() + 2.0
        while self._stop_devices() and time.monotonic() < deadline:
            time.sleep(0.01)  # until the samples under way have ended
        self.collector.close()
        holding = self._stop_devices()
        with self._lock:  # one that hangs stays on the page
            self._devices = {key: sampler for key, sampler in self._devices.items() if not sampler.over}
        return not holding

    def resume(self) -> None:
        """Open the devices again at the next discovery."""
        self._released = False

    def _sampler(self, task: SampleTask) -> Sampler:
        return Sampler(task, self._done, scrape_times=self._scrape_times)

    def _discover(self) -> Iterable[AnyFamily]:
        if self._released:
            return ()
        families = self.collector.collect()
        self._update({task.key: task for task in self.collector.tasks()})
        return families

    def _stop_devices(self) -> bool:
        """Stop the sampling of devices; return True while a sample is being taken."""
        samplers = self.samplers()
        for sampler in samplers[1:]:
            sampler.stop()
        return any(sampler.running() for sampler in samplers)

    def _update(self, found: dict[tuple[str, str], SampleTask]) -> None:
        with self._lock:
            for key in self._devices.keys() - found.keys():
                # One that hangs stays on the page, and no second thread is started for its device.
                self._devices[key].stop()
            for key in [key for key, sampler in self._devices.items() if sampler.over]:
                del self._devices[key]
            new = [key for key in found if key not in self._devices]
            for key in new:
                sampler = self._sampler(found[key])
                if self._started and self._round_robin is None:
                    sampler.start()  # raises where no thread can be started: the next discovery tries again
                self._devices[key] = sampler
        if new and self._round_robin is not None:
            self._round_robin.wake()


class RoundRobinSampler:
    """Samples `samplers()` one after the other in each `interval` (seconds); one that hangs delays no other.

    A second thread watches the first, and replaces it while it hangs.
    """

    def __init__(
        self,
        samplers: Callable[[], Sequence[Sampler]],
        interval: float,
        scrape_times: ScrapeTimes | None = None,
    ) -> None:
        self._samplers = samplers
        self._interval = interval
        self._scrape_times = scrape_times
        self._stopped = threading.Event()
        self._due = threading.Event()
        self._under_way = threading.Event()
        self._current: Sampler | None = None
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Start sampling in the background."""
        threading.Thread(target=self._watch, name="round", daemon=True).start()

    def stop(self) -> None:
        """Stop after the sample that is being taken."""
        self._stopped.set()
        self.wake()
        self._under_way.set()

    def wake(self) -> None:
        """Begin the next round now, for there are new devices."""
        self._due.set()
        if self._scrape_times is not None:
            self._scrape_times.wake()

    def _watch(self) -> None:
        while not self._stopped.is_set():
            if self._thread is None or self._is_stuck():
                # The thread before is left behind, and ends when its device answers.
                self._thread = threading.Thread(target=self._run, name="round-samples", daemon=True)
                self._thread.start()
            self._under_way.wait(self._interval)  # nothing to watch between two rounds
            self._stopped.wait(STUCK_SECONDS)

    def _is_stuck(self) -> bool:
        current = self._current
        running = current.running() if current else None
        return running is not None and time.monotonic() - running[0] > STUCK_SECONDS

    def _run(self) -> None:
        me = threading.current_thread()
        while not self._stopped.is_set():
            self._due.clear()
            begun = time.monotonic()
            self._under_way.set()
            for sampler in self._samplers():
                if sampler.running() is not None:
                    continue  # another thread hangs on it
                self._current = sampler
                sampler.sample_unless_stopped()
                if self._thread is not me:
                    return
            self._current = None
            self._under_way.clear()
            if self._scrape_times is None:
                self._due.wait(self._interval)
            else:
                self._scrape_times.wait(begun, time.monotonic(), self._interval, self._due)
            if self._thread is not me:
                return
