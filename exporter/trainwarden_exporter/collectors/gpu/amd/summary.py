"""What is said of all AMD GPUs of the node, without asking the driver: it is there while one of them hangs."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from trainwarden_exporter.collectors.gpu import metrics
from trainwarden_exporter.collectors.gpu.amd.library import NOT_INSTALLED, NOT_LOADED
from trainwarden_exporter.collectors.gpu.node import add_node
from trainwarden_exporter.collectors.gpu.state import PATIENCE, wait_for_first_samples
from trainwarden_exporter.core.metric import Families

if TYPE_CHECKING:
    from collections.abc import Mapping

    from trainwarden_exporter.collectors.gpu.amd.gpu import Gpu
    from trainwarden_exporter.collectors.gpu.amd.library import Library
    from trainwarden_exporter.collectors.gpu.state import DriverTime, GpuState
    from trainwarden_exporter.core.metric import Family

VENDOR = "amd"
SLACK_SECONDS = 2.0
_UNKNOWN = {"model": "", "serial": "", "vbios": "", "driver": ""}


class Summary:
    """The node's GPUs together; for one thread.

    Args:
        gpus: by bus address; others may be added meanwhile.
        interval, timeout: of their fast samples, seconds.
        expected: how many there should be; None where nobody says.
    """

    def __init__(
        self,
        gpus: Mapping[str, Gpu],
        library: Library,
        spent: DriverTime,
        *,
        interval: float,
        timeout: float,
        expected: int | None,
    ) -> None:
        self._gpus = gpus
        self._library = library
        self._spent = spent
        self._timeout = timeout
        self._fresh = interval + timeout + SLACK_SECONDS
        self._expected = expected

    def read(self) -> list[Family]:
        """Return the families; waits at first until each GPU was asked once, or is over its deadline soon."""
        gpus, begun = list(self._gpus.values()), time.monotonic()
        self._library.wait(PATIENCE * self._timeout)  # what opens slowly does not hang
        wait_for_first_samples([gpu.state for gpu in gpus], self._timeout - (time.monotonic() - begun))
        families, now = Families(), time.monotonic()
        failure = self._library.failure
        # Without the tools nothing is known of any GPU: that none is up would be as wrong as that all are.
        unknown = failure in {NOT_INSTALLED, NOT_LOADED}
        down: dict[str, str] = {}
        awake = [gpu.state for gpu in gpus if not self._sleeps(families, gpu)]
        for state in [] if unknown else awake:
            why = failure or state.why_down(now, self._timeout, self._fresh)
            if why is not None:
                down[state.bus] = why
            _add_up(families, state, why)
        for gpu in gpus:
            _add_identity(families, gpu.state)
        readings = [state.good[1] for state in awake if failure is None and state.bus not in down and state.good]
        add_node(families, VENDOR, readings, None if unknown else len(down))
        self._counts(families, failure, known=failure is not None or self._library.is_open)
        return families.collected()

    def _sleeps(self, families: Families, gpu: Gpu) -> bool:
        asleep = gpu.asleep
        families.add(metrics.GPU_SUSPENDED, asleep, gpu=gpu.state.index, uuid=gpu.state.uuid)
        return asleep

    def _counts(self, families: Families, failure: str | None, *, known: bool) -> None:
        expected = len(self._gpus) if self._expected is None else self._expected
        families.add(metrics.GPU_DEVICES_EXPECTED, expected, vendor=VENDOR)
        families.add(metrics.GPU_DEVICES_VISIBLE, len(self._library.handles) if known else None, vendor=VENDOR)
        if failure is not None:
            families.add(metrics.GPU_DRIVER_ERROR_INFO, 1, vendor=VENDOR, error=failure)
        for tier, seconds in self._spent.totals().items():
            families.add(metrics.TRAINWARDEN_DRIVER_SECONDS_TOTAL, seconds, collector=VENDOR, tier=tier)


def _add_up(families: Families, state: GpuState, why: str | None) -> None:
    gpu = {"gpu": state.index, "uuid": state.uuid}
    families.add(metrics.GPU_UP, why is None, **gpu)
    if why is not None:
        families.add(metrics.GPU_ERROR_INFO, 1, error=why, **gpu)


def _add_identity(families: Families, state: GpuState) -> None:
    gpu = {"gpu": state.index, "uuid": state.uuid}
    families.add(metrics.GPU_INFO, 1, vendor=VENDOR, pci_bus_id=state.bus, **(state.info or _UNKNOWN), **gpu)
    for error, number in state.read_errors.copy().items():
        families.add(metrics.GPU_READ_ERRORS_TOTAL, number, error=error, **gpu)
