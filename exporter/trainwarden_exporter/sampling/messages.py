"""What a child that samples tells its parent: one JSON object a line."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from trainwarden_exporter.core.exposition import Block, Encoded
from trainwarden_exporter.sampling.sampler import Taken
from trainwarden_exporter.sampling.task import SampleTask

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from trainwarden_exporter.core.exposition import AnyFamily
    from trainwarden_exporter.sampling.sampler import Sampler


@dataclass
class View:
    """What the parent knows of a part: its last sample; since when (monotonic) and in which call another is taken."""

    part: SampleTask
    taken: Taken
    running: tuple[float, str] | None


def sample_line(sampler: Sampler, told: Encoded | None = None) -> bytes:
    """Return the last sample of a part as a line; without what it says, if that is the very one `told` last."""
    taken = sampler.taken
    blocks = (
        [
            [
                block.name,
                block.kind,
                block.help,
                block.body.decode(),
                [[prefix.decode(), age] for prefix, age in block.ages],
            ]
            for block in taken.encoded.blocks
        ]
        if taken.encoded is not told
        else None
    )
    message = {
        "part": [*sampler.part.key, sampler.part.interval, sampler.part.timeout],
        "begun": taken.begun,
        "duration": taken.duration,
        "error": taken.error,
        "last_success": taken.last_success,
        "blocks": blocks,
    }
    return json.dumps(message).encode() + b"\n"


def state_line(samplers: Iterable[Sampler]) -> bytes:
    """Return which parts there are and what each is doing as a line."""
    parts = [[*each.part.key, each.part.interval, each.part.timeout, each.running()] for each in samplers]
    return json.dumps({"parts": parts}).encode() + b"\n"


def take_in(line: bytes, collector: str, views: dict[tuple[str, str], View]) -> dict[tuple[str, str], View]:
    """Return the views after one more line; raises `ValueError`, `KeyError` or `TypeError` if it is none of ours."""
    message = json.loads(line)
    if "parts" in message:
        return dict(_state(part, collector, views) for part in message["parts"])
    device, tier, interval, timeout = message["part"]
    blocks = message["blocks"]
    if blocks is not None:
        encoded = Encoded(tuple(_block(*block) for block in blocks))
    elif (device, tier) not in views:
        return views  # the last of a part that is gone
    elif views[device, tier].taken.attempted:
        encoded = views[device, tier].taken.encoded
    else:
        raise ValueError("a sample is said to be as before, and there was none")
    taken = Taken(
        encoded,
        message["begun"],
        message["duration"],
        message["error"],
        attempted=True,
        last_success=message["last_success"],
    )
    part = SampleTask(collector, _not_here, interval, timeout, device, tier)
    return {**views, part.key: View(part, taken, None)}


def _state(state: Sequence[Any], collector: str, views: dict[tuple[str, str], View]) -> tuple[tuple[str, str], View]:
    device, tier, interval, timeout, running = state
    known = views.get((device, tier))
    now = (float(running[0]), str(running[1])) if running else None
    if known is not None and now is not None and now[0] <= known.taken.begun:
        now = None  # said before the sample came that ended it
    part = SampleTask(collector, _not_here, interval, timeout, device, tier)
    return part.key, View(part, known.taken if known else Taken(), now)


def _block(name: str, kind: str, text: str, body: str, ages: Sequence[tuple[str, float]]) -> Block:
    # Many devices have the same families: keep their texts once.
    name, kind, text = sys.intern(name), sys.intern(kind), sys.intern(text)
    return Block(name, kind, text, body.encode(), tuple((prefix.encode(), age) for prefix, age in ages))


def _not_here() -> Iterable[AnyFamily]:
    raise RuntimeError("sampled in another process")
