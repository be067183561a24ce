"""`retry`: calls again what failed for a reason that may pass while the process lives on."""

import functools
import inspect
import logging
import math
import random as randomness
import sys
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, TypeVar, overload

from trainwarden import log
from trainwarden.classify import classify_exception
from trainwarden.taxonomy import Failure

# After these the GPU context or the communicator of the process is gone, whoever wants to go on.
_SPENT = frozenset(("cuda_error", "gpu_hardware", "nccl", "nccl_timeout"))
_MOST_DOUBLINGS = 60

On = type[Exception] | tuple[type[Exception], ...] | Callable[[Exception], bool]
F = TypeVar("F", bound=Callable[..., Any])

logger = logging.getLogger("trainwarden")
log.protect()


@overload
def retry(function: F, /) -> F: ...


@overload
def retry(
    *,
    attempts: int = 5,
    base_seconds: float = 1.0,
    max_seconds: float = 60.0,
    max_elapsed_seconds: float | None = None,
    on: On | None = None,
    sleep: Callable[[float], Any] | None = None,
    clock: Callable[[], float] = time.monotonic,
    random: Callable[[], float] = randomness.random,
) -> Callable[[F], F]: ...


def retry(
    function: Callable[..., Any] | None = None,
    /,
    *,
    attempts: int = 5,
    base_seconds: float = 1.0,
    max_seconds: float = 60.0,
    max_elapsed_seconds: float | None = None,
    on: On | None = None,
    sleep: Callable[[float], Any] | None = None,
    clock: Callable[[], float] = time.monotonic,
    random: Callable[[], float] = randomness.random,
) -> Any:
    """Call a function or coroutine function again if it fails for a reason that the taxonomy calls passing.

    Used as `@retry`, `@retry(attempts=3)` or `retry(attempts=3)(function)`. What is raised last is raised on,
    unchanged. An interrupt, an exit or a cancellation ends it at once, and so does every failure after which the
    process cannot go on (a broken GPU context or communicator): that takes a restart of the job.

    Args:
        function: what is called; the other arguments are given by name.
        attempts: calls in all, 1 or more.
        base_seconds: the longest wait before the second call; it doubles with each call.
        max_seconds: the longest wait of all. Each is drawn evenly from nothing to the longest ("full jitter").
        max_elapsed_seconds: no call is begun later than this after the first one.
        on: exceptions that are retried too, whatever the taxonomy says: types, or a function that is asked.
        sleep: waits that many seconds; of a coroutine function it is awaited.
        clock: seconds that only go forward.
        random: a number from 0 up to 1.

    Raises:
        TypeError: what is given cannot be called again, as a generator function.
        ValueError: a number is out of its range.
    """
    _check(attempts, base_seconds, max_seconds, max_elapsed_seconds)
    _check_on(on)
    patience = _Patience(attempts, base_seconds, max_seconds, max_elapsed_seconds, on, clock, random)

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        _check_function(function)
        if _is_coroutine_function(function):
            return _retrying_coroutine(function, patience, sleep)
        return _retrying(function, patience, sleep or time.sleep)

    return decorate if function is None else decorate(function)


@dataclass(frozen=True)
class _Patience:
    attempts: int
    base_seconds: float
    max_seconds: float
    max_elapsed_seconds: float | None
    on: On | None
    clock: Callable[[], float]
    random: Callable[[], float]

    def wait(self, call: "_Call", exc: Exception) -> float | None:
        """Seconds until the next call; None if there is to be none."""
        failure = classify_exception(exc, ambient=call.ambient)
        if call.number >= self.attempts or not self._wanted(exc, failure):
            return None
        longest = min(self.max_seconds, self.base_seconds * 2.0 ** min(call.number - 1, _MOST_DOUBLINGS))
        seconds = self.random() * longest
        if self.max_elapsed_seconds is not None:
            elapsed = self.clock() - call.begun
            if elapsed + seconds > self.max_elapsed_seconds:
                return None
        _tell(call, exc, failure, self.attempts, seconds)
        return seconds

    def _wanted(self, exc: Exception, failure: Failure) -> bool:
        if failure.error_type in _SPENT or any(kind.__name__ == "CancelledError" for kind in type(exc).__mro__):
            return False
        return failure.retryable_in_process or _matches(self.on, exc)


class _Call:
    """One call from outside, which may become several of the function."""

    def __init__(self, function: Callable[..., Any], begun: float) -> None:
        self.name = str(getattr(function, "__qualname__", type(function).__qualname__))
        self.begun = begun
        self.number = 1
        # What the caller is handling has no part in what the function raises.
        self.ambient = sys.exc_info()[1]


def _retrying(function: Callable[..., Any], patience: _Patience, sleep: Callable[[float], Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def call_again(*args: Any, **kwargs: Any) -> Any:
        call = _Call(function, patience.clock())
        while True:
            try:
                return function(*args, **kwargs)
            except Exception as exc:
                seconds = patience.wait(call, exc)
                if seconds is None:
                    raise
            # Outside of the handler, so that the next exception does not drag this one along.
            call.number += 1
            sleep(seconds)

    return call_again


def _retrying_coroutine(
    function: Callable[..., Awaitable[Any]], patience: _Patience, sleep: Callable[[float], Any] | None
) -> Callable[..., Any]:
    import asyncio  # noqa: PLC0415  # most programs have none of it

    pause = sleep or asyncio.sleep

    @functools.wraps(function)
    async def call_again(*args: Any, **kwargs: Any) -> Any:
        call = _Call(function, patience.clock())
        while True:
            try:
                return await function(*args, **kwargs)
            except Exception as exc:
                seconds = patience.wait(call, exc)
                if seconds is None:
                    raise
            call.number += 1
            await pause(seconds)

    return call_again


def _tell(call: _Call, exc: Exception, failure: Failure, attempts: int, seconds: float) -> None:
    # Without the message, which may hold an address with a token in it.
    kind = type(exc).__name__
    said = "%s raised %s (%s): call %d of %d in %.1f s"
    logger.warning(said, call.name, kind, failure.slug, call.number + 1, attempts, seconds)
    # Where that is not loaded there is no run.
    if "trainwarden.training.current" in sys.modules:
        from trainwarden.training.current import note  # noqa: PLC0415  # a run is in progress, or was

        details = {"function": call.name, "exception_type": kind, "failure": failure.slug}
        note("retry", **details, call=call.number + 1, calls=attempts, delay_seconds=round(seconds, 3))


def _matches(on: On | None, exc: Exception) -> bool:
    if on is None:
        return False
    if isinstance(on, (type, tuple)):
        return isinstance(exc, on)
    try:
        return bool(on(exc))
    except Exception:  # the answer is missing, and what is to be raised is the function's own exception
        logger.exception("retry: on=%r raised; no retry", on)
        return False


def _is_coroutine_function(function: Callable[..., Any]) -> bool:
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(getattr(function, "__call__", None))  # noqa: B004  # its kind is asked, not whether there is one


def _check_function(function: Any) -> None:
    if isinstance(function, type) and issubclass(function, BaseException):
        raise TypeError(f"retry({function.__name__}): exceptions are given by name: retry(on={function.__name__})")
    if isinstance(function, (staticmethod, classmethod)):
        raise TypeError(f"retry: put it below @{type(function).__name__}, not above")
    if not callable(function):
        raise TypeError(f"retry({function!r}): expected a function; options are given by name, as in retry(attempts=3)")
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        name = getattr(function, "__qualname__", repr(function))
        raise TypeError(f"retry: {name} is a generator function: it fails while it is read, not when it is called")


def _check(attempts: Any, base: Any, longest: Any, elapsed: Any) -> None:
    if isinstance(attempts, bool) or not isinstance(attempts, int) or attempts < 1:
        raise ValueError(f"retry: attempts={attempts!r}: expected a whole number, 1 or more")
    limits = {"base_seconds": base, "max_seconds": longest}
    if elapsed is not None:
        limits["max_elapsed_seconds"] = elapsed
    for name, value in limits.items():
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value) or value < 0:
            raise ValueError(f"retry: {name}={value!r}: expected seconds, 0 or more")


def _check_on(on: Any) -> None:
    types = isinstance(on, tuple) and all(isinstance(each, type) for each in on)
    if not (on is None or types or callable(on)):
        raise TypeError(f"retry: on={on!r}: expected an exception type, a tuple of them or a function")
