"""Calls of a driver's library for one GPU: what is unsupported is skipped for a while, what fails is counted."""

from __future__ import annotations

import logging
import time
from enum import Enum, auto
from typing import TYPE_CHECKING, Any, NamedTuple

from trainwarden_exporter.sampling.calls import enter

if TYPE_CHECKING:
    from collections.abc import Callable

log = logging.getLogger(__name__)

# A GPU may support more later: after a reset, without MIG, once a service of the driver runs.
FORGET_SECONDS = 600.0
NO_ANSWER = "no_answer"
CallKey = tuple[str, tuple[int, ...]]


class GpuDown(Exception):
    """The GPU answers no call; the message is the value of the label `error`."""


class LibraryDown(GpuDown):
    """No GPU answers: the library has to be initialised again."""


class Effect(Enum):
    """What follows from a failed call."""

    UNSUPPORTED = auto()  # skip the call from now on, count no error
    DENIED = auto()  # skip the call from now on, count one error
    FAILED = auto()  # count an error each time
    GPU_DOWN = auto()
    LIBRARY_DOWN = auto()


class CallFailure(NamedTuple):
    """A failed call: its value of the label `error`, and what follows from it."""

    error: str
    effect: Effect


class DriverCalls:
    """Calls with the handle of one GPU, for one thread.

    Args:
        module: the Python package of the library.
        handle: the GPU's, as the package returned it.
        bus: the GPU's address, for the log.
        errors: failed calls by error; added to.
        failure_of: classifies what a call raised.

    Attributes:
        answered: number of calls that returned a value.
        last_error: error of the last call that failed.
    """

    def __init__(
        self, module: Any, handle: Any, bus: str, errors: dict[str, int], failure_of: Callable[[Exception], CallFailure]
    ) -> None:
        self.module = module
        self.handle = handle
        self.answered = 0
        self.last_error = NO_ANSWER
        self._bus = bus
        self._errors = errors
        self._failure_of = failure_of
        self._skipped: dict[CallKey, float] = {}

    def call(self, function: str, *arguments: Any, variant: int = 0) -> Any:
        """Return the result of a function of the library; None if it is missing, unsupported or failed this time.

        Args:
            function: its name.
            arguments: after the handle; a call with other numbers may be supported where this one is not.
            variant: distinguishes calls whose arguments are no numbers.

        Raises:
            GpuDown: the failure means that the GPU, or every GPU, answers nothing.
        """
        return self.call_with(self.handle, function, *arguments, variant=variant)

    def call_with(self, handle: Any, function: str, *arguments: Any, variant: int = 0) -> Any:
        """Do the same with another handle: an instance of the GPU."""
        key = (function, (*(each for each in arguments if isinstance(each, int)), *([variant] if variant else [])))
        if self.is_skipped(key):
            return None
        call = getattr(self.module, function, None)
        if call is None:
            self._skip(key)
            return None
        enter(function)
        try:
            answer = call(handle, *arguments)
        except Exception as error:  # noqa: BLE001  # return codes, and errors in the package's own conversions
            self.fail(key, self._failure_of(error))
            return None
        self.answered += 1
        return answer

    def fail(self, key: CallKey, failure: CallFailure) -> None:
        """Take note of a failed call; raises `GpuDown` if it means that the GPU, or the library, is gone."""
        error, effect = failure
        if effect is Effect.UNSUPPORTED:
            self._skip(key)
            return
        if effect is Effect.LIBRARY_DOWN:
            raise LibraryDown(error)
        if effect is Effect.GPU_DOWN:
            raise GpuDown(error)
        if effect is Effect.DENIED:
            self._skip(key)
        if error not in self._errors:
            log.warning("GPU %s: %s fails: %s; its other calls go on", self._bus, key[0], error)
        self.last_error = error
        self._errors[error] = self._errors.get(error, 0) + 1

    def is_skipped(self, key: CallKey) -> bool:
        """Return whether the call was found unsupported less than `FORGET_SECONDS` ago."""
        since = self._skipped.get(key)
        return since is not None and time.monotonic() - since < FORGET_SECONDS

    def _skip(self, key: CallKey) -> None:
        self._skipped[key] = time.monotonic()
