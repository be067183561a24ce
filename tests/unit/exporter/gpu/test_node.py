"""Which GPUs of a node are up, as their last samples show it."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any

from tests.cases import cases
from trainwarden_exporter.collectors.gpu.device import DriverTime
from trainwarden_exporter.collectors.gpu.node import GpuNode
from trainwarden_exporter.collectors.gpu.state import GpuReading, GpuState

INTERVAL, TIMEOUT = 5.0, 10.0


def up(state: GpuState) -> float:
    """Return `gpu_up` of the one GPU of a node."""
    driver: Any = SimpleNamespace(
        vendor="nvidia",
        version="570",
        is_open=True,
        missing_tools=frozenset(),
        error=lambda _: None,
        is_suspended=lambda _: None,
        visible=lambda answering: answering,
        add_to_node=lambda *_: None,
    )
    state.attempted.set()
    node = GpuNode({state.bus: state}, driver, DriverTime(), interval=INTERVAL, timeout=TIMEOUT, expected=None)
    (value,) = next(family.values for family in node.read() if family.metric.name == "gpu_up")
    return value


@cases(
    ("changes", "expected"),
    [
        ({}, 1),  # sampled for the scrape before, a minute ago
        ({"error": "gpu_is_lost"}, 0),
        ({"busy": time.monotonic() - 2 * TIMEOUT}, 0),
        ({"good": (time.monotonic() - 600, GpuReading())}, 0),
        ({"good": None}, 0),
    ],
)
def test_a_gpu_is_up_between_two_scrapes_that_are_a_minute_apart(changes: dict[str, Any], expected: float) -> None:
    state = GpuState("0000:3b:00.0", {"gpu": "0", "uuid": "GPU-a"}, good=(time.monotonic() - 60, GpuReading(0.9)))
    for name, value in changes.items():
        setattr(state, name, value)
    assert up(state) == expected
