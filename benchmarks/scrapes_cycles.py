"""What one cycle of samplers takes, encoded and ready for a scrape."""

import statistics
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

from trainwarden_exporter.sampling.sampler import Sampler

CYCLES = 10


class Cycle(NamedTuple):
    """How many samples a cycle makes, and the processor seconds that it takes: the median of `CYCLES`."""

    samples: int
    seconds: float


def cycle_of(samplers: Sequence[Sampler], prepare: Callable[[int], None] = lambda _: None) -> Cycle:
    """Sample all in turn, again and again, nothing else at work; `prepare(number)` is called before each cycle.

    Raises:
        RuntimeError: one fails.
    """
    took = []
    for number in range(CYCLES + 1):
        prepare(number)
        before = time.process_time()
        for sampler in samplers:
            sampler.sample()
        took.append(time.process_time() - before)
    errors = [sampler.last.error for sampler in samplers if sampler.last.error]
    if errors:
        raise RuntimeError(errors[0])
    series = [family for sampler in samplers for family in sampler.last.encoded.series]
    return Cycle(sum(map(len, series)), statistics.median(took[1:]))
