"""What the GPU collector needs of a vendor's driver: open its library in time, open a GPU, read its two tiers."""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Protocol

from trainwarden_exporter.collectors.gpu.opener import Opener

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

    from trainwarden_exporter.collectors.gpu.state import GpuReading, GpuState
    from trainwarden_exporter.core.metric import Families, Family

log = logging.getLogger(__name__)

# After a failed attempt: where the driver is not loaded, each attempt runs a setuid helper that tries to load it.
RETRY_SECONDS = 30.0


class DriverUnavailable(Exception):
    """No GPU of the vendor can be read; `error` is the value of the label `error`."""

    def __init__(self, error: str, message: str) -> None:
        super().__init__(message)
        self.error = error

    def again(self) -> DriverUnavailable:
        """Return a copy to raise: an exception that is raised repeatedly collects every traceback."""
        return DriverUnavailable(self.error, str(self))


class NodeTask(NamedTuple):
    """What a driver samples beside its GPUs: the task's tier, its pause in seconds, what reads it."""

    tier: str
    interval: float
    read: Callable[[], Sequence[Family]]


class OpenGpu(NamedTuple):
    """A GPU that was opened: its handle, its uuid, its number in /dev/nvidia<minor>, labels of `gpu_info`.

    What could not be read is empty.
    """

    handle: Any
    uuid: str = ""
    minor: int | None = None
    info: Mapping[str, str] = {}


class FastTier(Protocol):
    """Reads of one open GPU what changes from second to second; for one thread."""

    @property
    def answered(self) -> int:
        """Number of calls that returned a value so far."""

    @property
    def last_error(self) -> str:
        """Error of the last call that failed."""

    def read(self, families: Families, gpu: dict[str, str]) -> GpuReading:
        """Add the series of one sample, each with the labels `gpu`; raises `GpuDown`."""


class SlowTier(Protocol):
    """Reads of one open GPU what is slow to read or seldom changes; for one thread."""

    def read(self, families: Families, gpu: dict[str, str]) -> None:
        """Add the series of one sample, each with the labels `gpu`; raises `GpuDown`."""


class GpuDriver(ABC):
    """A vendor's library, opened in a thread of its own; handles are valid for one `generation` of it.

    Args:
        retry_seconds: pause after a failed attempt to open it.

    Attributes:
        vendor: value of the label `vendor`, and the collector's name.
        pci_vendor: the vendor's number on the PCI bus.
        library: name of the library in messages.
        opening: the call that initialises it.
        reopen_seconds: least pause between a good attempt and the next, which follows where the driver was lost.
        closes_under_calls: whether the library may be shut down while another thread is in a call of it.
        max_open_pause: longest pause between two attempts to open one broken GPU, seconds; 0: try at each sample.
        missing_tools: errors that mean that the library is not installed: the state of the GPUs is unknown then.
        is_open: GPUs can be read.
        generation: how often it was opened.
        version: of the vendor's driver, where one serves all GPUs; empty before it was opened.
        found: bus addresses of the GPUs that the library lists; see `look`.
        failure: why the last finished attempt failed; None after a good one, and before the first.
    """

    vendor: ClassVar[str]
    pci_vendor: ClassVar[int]
    library: ClassVar[str]
    opening: ClassVar[str]
    reopen_seconds: ClassVar[float] = 0.0
    closes_under_calls: ClassVar[bool] = True
    max_open_pause: ClassVar[float] = 0.0
    missing_tools: ClassVar[frozenset[str]] = frozenset()

    def __init__(self, retry_seconds: float = RETRY_SECONDS) -> None:
        self.is_open = False
        self.generation = 0
        self.version = ""
        self.found: tuple[str, ...] = ()
        self.failure: DriverUnavailable | None = None
        self._retry_seconds = retry_seconds
        self._opener = Opener(self.library.lower(), self.opening)
        self._lost = False
        self._not_before = 0.0
        self._initialised = False
        self._users = 0
        self._lock = threading.Lock()

    # What the collector and its devices use.

    def open(self) -> None:
        """Begin to open the library unless it is open, again if it was lost or failed a while ago; return at once."""
        with self._lock:
            due = not self.is_open or self._lost
            if self._opener.busy or not due or time.monotonic() < self._not_before:
                return
            if self._users and not self.closes_under_calls:
                return
            self._opener.begin(self._open)

    def wait(self, seconds: float) -> bool:
        """Wait until opening ends, at most until `seconds` after it began; return False if it goes on."""
        return self._opener.wait(seconds)

    def follow(self) -> None:
        """Wait until opening ends; meanwhile this thread counts as being in the call that hangs."""
        self._opener.follow()

    def error(self, seconds: float) -> str | None:
        """Return why no GPU can be read, None while they can; wait as `wait` does."""
        if not self._opener.wait(seconds):
            return f"{self._opener.call}_hangs"
        return self.failure.error if self.failure is not None else None

    def reopen(self) -> None:
        """Have the next `open` initialise the library again: its driver was lost, or GPUs came."""
        self._lost = True

    @contextlib.contextmanager
    def used(self) -> Iterator[None]:
        """Count this thread as being in calls of the library until the block is left."""
        with self._lock:
            self._users += 1
        try:
            yield
        finally:
            with self._lock:
                self._users -= 1

    def close(self) -> None:
        """Shut the library down; waits while opening it hangs, for that may hold a GPU."""
        self._opener.wait()
        self._close()

    # What a vendor's driver implements.

    @abstractmethod
    def look(self, on_bus: Collection[str], states: Collection[GpuState], *, known: bool) -> None:
        """Open the library if that is needed to sample, or to list the GPUs; return at once.

        Args:
            on_bus: the vendor's GPUs on the PCI bus.
            states: of the GPUs known so far.
            known: whether a GPU is known without the library, from the bus or from before.
        """

    @abstractmethod
    def initialise(self) -> None:
        """Initialise the library, in its own thread; raises `DriverUnavailable`. Sets `needs_shut_down`."""

    @abstractmethod
    def shut_down(self) -> None:
        """Undo `initialise`; raises nothing."""

    @abstractmethod
    def open_gpu(self, state: GpuState) -> OpenGpu:
        """Open a GPU and identify it; raises `GpuDown`."""

    @abstractmethod
    def fast_tier(self, handle: Any, state: GpuState) -> FastTier:
        """Return what reads the fast tier of an open GPU."""

    @abstractmethod
    def slow_tier(self, handle: Any, state: GpuState) -> SlowTier:
        """Return what reads the slow tier of an open GPU."""

    @abstractmethod
    def visible(self, answering: int) -> int | None:
        """Return how many GPUs the library lists and can open, given how many answer; None where not known."""

    def is_suspended(self, bus: str) -> bool | None:  # noqa: ARG002  # for the vendors whose kernel driver suspends
        """Return whether the kernel has suspended the GPU, which a call would wake; None where that is not read."""
        return None

    def node_tasks(self) -> Sequence[NodeTask]:
        """Return what is sampled beside the GPUs."""
        return ()

    def add_to_node(self, families: Families, states: Sequence[GpuState]) -> None:  # noqa: B027  # a driver may have nothing to add
        """Add what the driver reports of the node without a call of the library."""

    # Opening and closing, in the opener's thread.

    def needs_shut_down(self) -> None:
        """Note that the library holds something from now on; for `initialise`, which may fail after that."""
        self._initialised = True

    def begin(self, attempt: Callable[[], None]) -> None:
        """Run something else in the thread that opens the library, unless that is busy."""
        self._opener.begin(attempt)

    def _open(self) -> None:
        if not self._close():
            return  # a call began meanwhile; the next look tries again
        try:
            self.initialise()
        except DriverUnavailable as error:
            self.failure = error
        except Exception as error:  # noqa: BLE001  # whatever the library's package raises is why no GPU can be read
            self.failure = DriverUnavailable(type(error).__name__, f"{self.library} does not start: {error}")
        else:
            self.failure, self._lost = None, False
            self.generation += 1
            self.is_open = True
        pause = self._retry_seconds if self.failure is not None else min(self.reopen_seconds, self._retry_seconds)
        self._not_before = time.monotonic() + pause

    def _close(self) -> bool:
        """Shut the library down if it is initialised; return False if it may not be, for a thread is in a call."""
        with self._lock:
            if not self._initialised:
                return True
            if self._users and not self.closes_under_calls:
                return False
            self.is_open = self._initialised = False
        self.shut_down()
        return True
