"""The process in which a driver is called: it may hang, die or be asked to let go without taking the page along.

Its first line of input says which collector it runs and with which settings; at the end of its input it releases every
device and ends. What it samples goes to its output, see `messages`.
"""

from __future__ import annotations

import importlib
import json
import logging
import os
import select
import signal
import sys
import threading
import weakref
from typing import TYPE_CHECKING, Any

from trainwarden_exporter.sampling.device_group import DeviceGroup
from trainwarden_exporter.sampling.messages import sample_line, state_line
from trainwarden_exporter.sampling.sampler import Sampler
from trainwarden_exporter.sampling.task import LOOK, whole

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from trainwarden_exporter.core.exposition import Encoded

STATE_SECONDS = 1.0
# Less than the parent waits for the end.
RELEASE_SECONDS = 4.0


class Output:
    """Lines to the parent, from several threads; a sample that is as it was told last is not told again."""

    def __init__(self) -> None:
        # A library of a driver that prints would spoil it: that goes to the log.
        self._descriptor = os.dup(1)
        os.dup2(2, 1)
        self._lock = threading.Lock()
        self._told: weakref.WeakKeyDictionary[Sampler, Encoded] = weakref.WeakKeyDictionary()

    def state(self, samplers: Callable[[], Iterable[Sampler]]) -> None:
        """Say which parts there are and what each is doing."""
        with self._lock:  # seen before a sample of a new part and told after it, it would be a lie
            self._write(state_line(samplers()))

    def sample(self, sampler: Sampler) -> None:
        """Tell the last sample of a part."""
        line = sample_line(sampler, self._told.get(sampler))
        with self._lock:
            self._told[sampler] = sampler.taken.encoded
            self._write(line)

    def _write(self, line: bytes) -> None:
        """Write one line; ends the process if nobody reads any more."""
        try:
            while line:
                line = line[os.write(self._descriptor, line) :]
        except BrokenPipeError:
            os._exit(0)


def main() -> int:
    """Sample until the input ends."""
    signal.pthread_sigmask(signal.SIG_SETMASK, set())  # the parent has blocked what it waits for
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # for the parent to act upon
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    order = json.loads(sys.stdin.buffer.readline())
    logging.basicConfig(stream=sys.stderr, level=order["log_level"], format=order["log_format"])
    output = Output()

    def done(sampler: Sampler) -> None:
        if sampler.part.key == LOOK:  # whoever waits for all parts must know them before this one is done
            output.state(samplers)
        output.sample(sampler)

    member = _member(order, done)
    samplers = member.samplers if isinstance(member, DeviceGroup) else lambda: [member]
    member.start()
    try:
        while not select.select([sys.stdin], [], [], STATE_SECONDS)[0]:
            output.state(samplers)
    finally:
        released = _released(member)
        # Not by an orderly end of the interpreter: a thread that hangs in a driver would hold it up.
        sys.stderr.flush()
        os._exit(0 if released else 1)


def _released(member: DeviceGroup | Sampler) -> bool:
    """Release every device; False if one cannot be, in this time: what hangs may hang here as well."""
    results: list[bool] = []
    thread = threading.Thread(target=lambda: results.append(member.release()), daemon=True)
    thread.start()
    thread.join(RELEASE_SECONDS)
    return results == [True]


def _member(order: dict[str, Any], done: Callable[[Sampler], None]) -> DeviceGroup | Sampler:
    collector = importlib.import_module(order["module"]).build(order["settings"])
    if hasattr(collector, "parts"):
        return DeviceGroup(collector, order["interval"], order["timeout"], done)
    return Sampler(whole(collector, order["interval"], order["timeout"]), done)


if __name__ == "__main__":
    sys.exit(main())
