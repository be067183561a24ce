"""The one way in which tests wait: for a condition, never for a time."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

TIMEOUT_SECONDS = 120.0
_FIRST_PAUSE, _LONGEST_PAUSE = 0.005, 0.1

T = TypeVar("T")


def wait_until(
    condition: Callable[[], T | None], message: str | Callable[[], str] = "", *, timeout: float = TIMEOUT_SECONDS
) -> T:
    """Return the first true answer of `condition`, which is asked at growing intervals of 5 to 100 ms.

    Args:
        condition: what to wait for; its exceptions pass through.
        message: what is expected, for the failure; a callable is asked only then, e.g. for the end of a log.
        timeout: seconds. Long, because it ends only tests that fail; a busy machine must not end the others.

    Raises:
        AssertionError: the condition did not hold in time; it names the message and the last answer.
    """
    deadline = time.monotonic() + timeout
    pause = _FIRST_PAUSE
    while not (answer := condition()):
        if time.monotonic() > deadline:
            expected = message() if callable(message) else message
            raise AssertionError(
                f"not within {timeout:g} s: {expected or 'the condition'}; the last answer: {answer!r}"
            )
        time.sleep(pause)
        pause = min(1.5 * pause, _LONGEST_PAUSE)
    return answer
