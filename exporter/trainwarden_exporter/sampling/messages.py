"""The messages of a child process that samples to its parent: one JSON object a line."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from trainwarden_exporter.core.exposition import Block, Encoded
from trainwarden_exporter.sampling.sampler import LastSample
from trainwarden_exporter.sampling.task import SampleTask

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from trainwarden_exporter.core.exposition import AnyFamily
    from trainwarden_exporter.sampling.sampler import Sampler


# Device, tier, interval, timeout, and what `Sampler.running` returns.
TaskState = tuple[str, str, float, float, "tuple[float, str] | None"]


@dataclass
class View:
    """The parent's view of a task: its last sample, and since when (monotonic) and in which call the next is taken."""

    task: SampleTask
    last: LastSample
    running: tuple[float, str] | None


def sample_line(sampler: Sampler, sent: Encoded | None = None) -> bytes:
    """Return the last sample of a task as a line: of the blocks those that are not the very objects `sent` before."""
    last = sampler.last
    blocks = None if last.encoded is sent else _changed(last.encoded.blocks, sent.blocks if sent else ())
    message = {
        "task": [*sampler.task.key, sampler.task.interval, sampler.task.timeout],
        "begun": last.begun,
        "duration": last.duration,
        "error": last.error,
        "last_success": last.last_success,
        "blocks": blocks,
    }
    return json.dumps(message).encode() + b"\n"


def _changed(blocks: Sequence[Block], before: Sequence[Block]) -> list[list[Any] | None]:
    """Return each block as a list; None for one that is the same as before, which takes as many blocks as before."""
    if len(blocks) != len(before):
        before = [Block("", "", "", b"")] * len(blocks)
    return [
        None
        if block is known
        else [
            block.name,
            block.kind,
            block.help,
            block.body.decode(),
            [[prefix.decode(), age] for prefix, age in block.ages],
        ]
        for block, known in zip(blocks, before, strict=True)
    ]


def task_states(samplers: Iterable[Sampler]) -> list[TaskState]:
    """Return the tasks, and what each is doing."""
    return [(*each.task.key, each.task.interval, each.task.timeout, each.running()) for each in samplers]


def state_line(states: Sequence[TaskState]) -> bytes:
    """Return the tasks, and what each is doing, as a line."""
    return json.dumps({"tasks": states}).encode() + b"\n"


def kept_line(name: str, value: Any) -> bytes:
    """Return a value that the parent is to give to the next child as a line; see `Keeper`."""
    return json.dumps({"keep": [name, value]}).encode() + b"\n"


def kept_value(line: bytes) -> tuple[str, Any] | None:
    """Return the name and the value that a line has the parent keep; None if it is another message."""
    if not line.startswith(b'{"keep"'):
        return None
    name, value = json.loads(line)["keep"]
    return name, value


def apply_message(line: bytes, collector: str, views: dict[tuple[str, str], View]) -> dict[tuple[str, str], View]:
    """Return the views after one more line; raise `ValueError`, `KeyError` or `TypeError` if it is no message."""
    message = json.loads(line)
    if "tasks" in message:
        return dict(_view(state, collector, views) for state in message["tasks"])
    device, tier, interval, timeout = message["task"]
    blocks = message["blocks"]
    known = views.get((device, tier))
    if known is None and (blocks is None or None in blocks):
        return views  # the last sample of a task that is gone
    before = known.last.encoded.blocks if known else ()
    if blocks is None:
        if known is None or not known.last.attempted:
            raise ValueError("a sample refers to the one before, and there was none")
        encoded = known.last.encoded
    else:
        if None in blocks and len(blocks) != len(before):
            raise ValueError("a sample refers to blocks of the one before, which had others")
        encoded = Encoded(tuple(before[at] if each is None else _block(*each) for at, each in enumerate(blocks)))
    last = LastSample(
        encoded,
        message["begun"],
        message["duration"],
        message["error"],
        attempted=True,
        last_success=message["last_success"],
    )
    task = SampleTask(collector, _not_here, interval, timeout, device, tier)
    return {**views, task.key: View(task, last, None)}


def _view(state: Sequence[Any], collector: str, views: dict[tuple[str, str], View]) -> tuple[tuple[str, str], View]:
    device, tier, interval, timeout, running = state
    known = views.get((device, tier))
    now = (float(running[0]), str(running[1])) if running else None
    if known is not None and now is not None and now[0] <= known.last.begun:
        now = None  # the state is older than the sample
    task = SampleTask(collector, _not_here, interval, timeout, device, tier)
    return task.key, View(task, known.last if known else LastSample(), now)


def _block(name: str, kind: str, text: str, body: str, ages: Sequence[tuple[str, float]]) -> Block:
    # Many devices have the same families: keep their texts once.
    name, kind, text = sys.intern(name), sys.intern(kind), sys.intern(text)
    return Block(name, kind, text, body.encode(), tuple((prefix.encode(), age) for prefix, age in ages))


def _not_here() -> Iterable[AnyFamily]:
    raise RuntimeError("sampled in another process")
