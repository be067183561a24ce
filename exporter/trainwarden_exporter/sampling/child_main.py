"""The child process in which a driver is called: it may hang or die without the page.

The first line of its input names the collector and its settings (`ChildSpec.line`); at the end of its input it releases
every device and ends. It writes its samples to its output, see `messages`.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import select
import signal
import sys
import threading
import time
import weakref
from typing import TYPE_CHECKING, Any

from trainwarden.service_log import log_to_stderr
from trainwarden_exporter.core.memory import hide_from_oom_killer, keep_one_arena
from trainwarden_exporter.core.scrape_times import ScrapeTimes
from trainwarden_exporter.sampling.device_group import DeviceGroup
from trainwarden_exporter.sampling.messages import TaskState, kept_line, sample_line, state_line, task_states
from trainwarden_exporter.sampling.sampler import Sampler
from trainwarden_exporter.sampling.task import DISCOVERY, single_task

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from trainwarden_exporter.core.exposition import Encoded

STATE_SECONDS = 1.0
# So often the parent, which takes silence for a child that hangs, is sent a state that is as it was.
SAME_STATE_SECONDS = 5.0
# Less than the parent waits for the end.
RELEASE_SECONDS = 4.0


class SampleWriter:
    """Writes lines to the parent, from several threads; blocks that were sent last are not sent again."""

    def __init__(self) -> None:
        # A driver's library that prints must not break the messages: its output goes to the log.
        self._descriptor = os.dup(1)
        os.dup2(2, 1)
        self._lock = threading.Lock()
        self._sent: weakref.WeakKeyDictionary[Sampler, Encoded] = weakref.WeakKeyDictionary()
        self._states: list[TaskState] = []
        self._states_sent = 0.0

    def state(self, samplers: Callable[[], Iterable[Sampler]]) -> None:
        """Send the tasks and what each is doing."""
        with self._lock:  # read before a sample of a new task and sent after it, it would be wrong
            states, now = task_states(samplers()), time.monotonic()
            if states != self._states or now - self._states_sent >= SAME_STATE_SECONDS:
                self._write(state_line(states))
                self._states, self._states_sent = states, now

    def sample(self, sampler: Sampler) -> None:
        """Send the last sample of a task."""
        line = sample_line(sampler, self._sent.get(sampler))
        with self._lock:
            self._sent[sampler] = sampler.last.encoded
            self._write(line)

    def keep(self, name: str, value: Any) -> None:
        """Have the parent keep a value for the next child."""
        with self._lock:
            self._write(kept_line(name, value))

    def _write(self, line: bytes) -> None:
        """Write one line; end the process if the parent has closed the pipe."""
        try:
            while line:
                line = line[os.write(self._descriptor, line) :]
        except BrokenPipeError:
            os._exit(0)


def main() -> int:
    """Sample until the input ends."""
    signal.pthread_sigmask(signal.SIG_SETMASK, set())  # the parent has blocked what it waits for
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent acts upon it
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    hide_from_oom_killer()
    keep_one_arena()
    spec = json.loads(sys.stdin.buffer.readline())
    log_to_stderr(spec["log_level"], log_format=spec["log_format"])
    output = SampleWriter()

    def done(sampler: Sampler) -> None:
        if sampler.task.key == DISCOVERY:  # the parent must know all tasks before discovery counts as done
            output.state(samplers)
        output.sample(sampler)

    scrape_times = ScrapeTimes() if spec["follows_scrapes"] else None
    runner = _runner(spec, done, output.keep, scrape_times)
    samplers = runner.samplers if isinstance(runner, DeviceGroup) else lambda: [runner]
    runner.start()
    try:
        while _take_scrapes(STATE_SECONDS, scrape_times):
            output.state(samplers)
    finally:
        released = _released(runner)
        # Not by an orderly end of the interpreter: a thread that hangs in a driver would hold it up.
        sys.stderr.flush()
        os._exit(0 if released else 1)


def _take_scrapes(seconds: float, scrape_times: ScrapeTimes | None) -> bool:
    """Take note of the scrapes that the parent reports within `seconds`; return False at the end of the input."""
    if not select.select([sys.stdin], [], [], seconds)[0]:
        return True
    data = os.read(sys.stdin.fileno(), 2**16)
    for line in data.splitlines():
        with contextlib.suppress(ValueError):  # a line that was cut
            if scrape_times is not None:
                scrape_times.scraped(json.loads(line)["scraped"])
    return bool(data)


def _released(runner: DeviceGroup | Sampler) -> bool:
    """Release every device; return False if that takes longer: what hangs may hang here as well."""
    results: list[bool] = []
    thread = threading.Thread(target=lambda: results.append(runner.release()), daemon=True)
    thread.start()
    thread.join(RELEASE_SECONDS)
    return results == [True]


def _runner(
    spec: dict[str, Any],
    done: Callable[[Sampler], None],
    keep: Callable[[str, Any], None],
    scrape_times: ScrapeTimes | None,
) -> DeviceGroup | Sampler:
    collector = importlib.import_module(spec["module"]).build(spec["settings"])
    if hasattr(collector, "keep"):
        collector.keep = keep
    if hasattr(collector, "tasks"):
        return DeviceGroup(collector, spec["interval"], spec["timeout"], done, scrape_times=scrape_times)
    task = single_task(collector, spec["interval"], spec["timeout"])
    return Sampler(task, done, scrape_times=scrape_times)


if __name__ == "__main__":
    sys.exit(main())
