"""`retry`: a decorator that repeats a call after a transient failure."""

from __future__ import annotations

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

# After these the GPU context or the communicator of the process is unusable, whatever `on` allows.
_NEVER_RETRIED = frozenset(("cuda_error", "gpu_hardware", "nccl", "nccl_timeout"))
_MOST_DOUBLINGS = 60
_MOST_FACTOR = 1000

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
    factor: float = 2.0,
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
    factor: float = 2.0,
    on: On | None = None,
    sleep: Callable[[float], Any] | None = None,
    clock: Callable[[], float] = time.monotonic,
    random: Callable[[], float] = randomness.random,
) -> Any:
    """Repeat the call of a function or coroutine function after a failure that the taxonomy calls transient.

    Used as `@retry`, `@retry(attempts=3)` or `retry(attempts=3)(function)`. The last exception is raised unchanged. An
    interrupt, an exit or a cancellation is never retried, nor is a failure after which the process cannot continue (a
    broken GPU context or communicator): that takes a restart of the job.

    Args:
        function: to call; all other arguments are passed by name.
        attempts: number of calls in all, 1 or more.
        base_seconds: upper bound of the wait before the second call; it grows with each call.
        max_seconds: upper bound of every wait. Each wait is uniform between 0 and its bound ("full jitter").
        max_elapsed_seconds: no call begins later than this after the first one.
        factor: by which that bound grows.
        on: exceptions to retry besides the taxonomy's: types, or a function that returns whether to retry.
        sleep: waits for a number of seconds; for a coroutine function its result is awaited.
        clock: returns seconds, monotonic.
        random: returns a number from 0 up to 1.

    Raises:
        TypeError: the function cannot be repeated, such as a generator function.
        ValueError: a number is out of range.
    """
    _check(attempts, base_seconds, max_seconds, max_elapsed_seconds, factor)
    _check_on(on)
    policy = _RetryPolicy(attempts, base_seconds, max_seconds, max_elapsed_seconds, factor, on, clock, random)

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        _check_function(function)
        if _is_coroutine_function(function):
            return _retrying_coroutine(function, policy, sleep)
        return _retrying(function, policy, sleep or time.sleep)

    return decorate if function is None else decorate(function)


@dataclass(frozen=True)
class _RetryPolicy:
    attempts: int
    base_seconds: float
    max_seconds: float
    max_elapsed_seconds: float | None
    factor: float
    on: On | None
    clock: Callable[[], float]
    random: Callable[[], float]

    def wait(self, call: _Call, exc: Exception) -> float | None:
        """Return the seconds until the next call; None to raise `exc` instead."""
        failure = classify_exception(exc, ambient=call.ambient)
        if call.number >= self.attempts or not self._is_retryable(exc, failure):
            return None
        longest = min(self.max_seconds, self.base_seconds * self.factor ** min(call.number - 1, _MOST_DOUBLINGS))
        seconds = self.random() * longest
        if self.max_elapsed_seconds is not None:
            elapsed = self.clock() - call.begun
            if elapsed + seconds > self.max_elapsed_seconds:
                return None
        _log_retry(call, exc, failure, self.attempts, seconds)
        return seconds

    def _is_retryable(self, exc: Exception, failure: Failure) -> bool:
        if failure.error_type in _NEVER_RETRIED or any(kind.__name__ == "CancelledError" for kind in type(exc).__mro__):
            return False
        return failure.retryable_in_process or _matches(self.on, exc)


class _Call:
    """One call of the decorated function, with its repetitions."""

    def __init__(self, function: Callable[..., Any], begun: float) -> None:
        self.name = str(getattr(function, "__qualname__", type(function).__qualname__))
        self.begun = begun
        self.number = 1
        # The exception that the caller is handling, which is not a cause of the function's failure.
        self.ambient = sys.exc_info()[1]


def _retrying(function: Callable[..., Any], policy: _RetryPolicy, sleep: Callable[[float], Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def call_again(*args: Any, **kwargs: Any) -> Any:
        call = _Call(function, policy.clock())
        while True:
            try:
                return function(*args, **kwargs)
            except Exception as exc:
                seconds = policy.wait(call, exc)
                if seconds is None:
                    raise
            # Outside of the handler, so that the next exception does not have this one as its context.
            call.number += 1
            sleep(seconds)

    return call_again


def _retrying_coroutine(
    function: Callable[..., Awaitable[Any]], policy: _RetryPolicy, sleep: Callable[[float], Any] | None
) -> Callable[..., Any]:
    import asyncio  # noqa: PLC0415  # slow to import, and seldom needed

    pause = sleep or asyncio.sleep

    @functools.wraps(function)
    async def call_again(*args: Any, **kwargs: Any) -> Any:
        call = _Call(function, policy.clock())
        while True:
            try:
                return await function(*args, **kwargs)
            except Exception as exc:
                seconds = policy.wait(call, exc)
                if seconds is None:
                    raise
            call.number += 1
            await pause(seconds)

    return call_again


def _log_retry(call: _Call, exc: Exception, failure: Failure, attempts: int, seconds: float) -> None:
    # Without the message, which may hold a URL with a token.
    kind = type(exc).__name__
    line = "%s raised %s (%s): call %d of %d in %.1f s"
    logger.warning(line, call.name, kind, failure.slug, call.number + 1, attempts, seconds)
    # If the module is not loaded, no run is in progress.
    if "trainwarden.training.current" in sys.modules:
        from trainwarden.training.current import note  # noqa: PLC0415  # loaded already

        details = {"function": call.name, "exception_type": kind, "failure": failure.slug}
        note("retry", **details, call=call.number + 1, calls=attempts, delay_seconds=round(seconds, 3))


def _matches(on: On | None, exc: Exception) -> bool:
    if on is None:
        return False
    if isinstance(on, (type, tuple)):
        return isinstance(exc, on)
    try:
        return bool(on(exc))
    except Exception:  # raise the function's own exception then
        logger.exception("retry: on=%r raised; no retry", on)
        return False


def _is_coroutine_function(function: Callable[..., Any]) -> bool:
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(getattr(function, "__call__", None))  # noqa: B004  # the kind of the method matters


def _check_function(function: Any) -> None:
    if isinstance(function, type) and issubclass(function, BaseException):
        raise TypeError(f"retry({function.__name__}): exceptions are passed by name: retry(on={function.__name__})")
    if isinstance(function, (staticmethod, classmethod)):
        raise TypeError(f"retry: put it below @{type(function).__name__}, not above")
    if not callable(function):
        raise TypeError(f"retry({function!r}): expected a function; pass options by name: retry(attempts=3)")
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        name = getattr(function, "__qualname__", repr(function))
        raise TypeError(f"retry: {name} is a generator function: it fails when it is iterated, not when it is called")


def _check(attempts: Any, base: Any, longest: Any, elapsed: Any, factor: Any) -> None:
    if isinstance(attempts, bool) or not isinstance(attempts, int) or attempts < 1:
        raise ValueError(f"retry: attempts={attempts!r}: expected a whole number, 1 or more")
    if isinstance(factor, bool) or not isinstance(factor, (int, float)) or not 1 <= factor <= _MOST_FACTOR:
        raise ValueError(f"retry: factor={factor!r}: expected a number from 1 to {_MOST_FACTOR}")
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
