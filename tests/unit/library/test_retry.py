"""`retry` repeats transient failures, raises all others at once, and never changes the exception."""

import asyncio
import concurrent.futures
import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import trainwarden
from tests.cases import cases
from trainwarden import retry

RESET = ConnectionResetError(104, "Connection reset by peer")
ILLEGAL = RuntimeError("CUDA error: an illegal memory access was encountered")


class Clock:
    """A clock that only sleeping moves."""

    def __init__(self) -> None:
        self.now = 0.0
        self.slept: list[float] = []

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds

    async def pause(self, seconds: float) -> None:
        self.sleep(seconds)


class Failing:
    """A function that raises what it was given, one exception a call, and then returns what it was called with."""

    def __init__(self, *errors: BaseException) -> None:
        self.errors = list(errors)
        self.calls = 0

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        self.calls += 1
        if self.errors:
            raise self.errors.pop(0)
        return args, kwargs


def patient(function: Callable[..., Any], clock: Clock, random: float = 1.0, **options: Any) -> Callable[..., Any]:
    return retry(sleep=clock.sleep, clock=clock, random=lambda: random, **options)(function)


def test_what_passes_is_called_again_with_the_same_arguments() -> None:
    clock, function = Clock(), Failing(RESET, TimeoutError("timed out"), OSError(116, "Stale file handle"))
    assert patient(function, clock)(1, a=2) == ((1,), {"a": 2})
    assert function.calls == 4


def test_the_wait_doubles_up_to_its_limit_and_is_drawn_from_nothing_up() -> None:
    clock = Clock()
    patient(Failing(*[RESET] * 5), clock, attempts=6, base_seconds=2, max_seconds=9)()
    assert clock.slept == [2, 4, 8, 9, 9]
    clock = Clock()
    patient(Failing(*[RESET] * 3), clock, random=0.25, base_seconds=2)()
    assert clock.slept == [0.5, 1, 2]


@pytest.mark.slow
def test_more_attempts_than_the_stack_is_deep_do_not_overflow() -> None:
    clock = Clock()
    assert patient(Failing(*[RESET] * 1499), clock, attempts=1500)() == ((), {})
    assert max(clock.slept) == 60


@pytest.mark.parametrize("attempts", [1, 3])
def test_attempts_are_calls_in_all_and_the_last_exception_is_raised_unchanged(attempts: int) -> None:
    errors = [ConnectionResetError(n) for n in range(5)]
    function = Failing(*errors)
    with pytest.raises(ConnectionResetError) as raised:
        patient(function, Clock(), attempts=attempts)()
    assert raised.value is errors[attempts - 1]
    assert (raised.value.__context__, raised.value.__cause__) == (None, None)
    assert function.calls == attempts


def test_no_call_begins_after_the_time_that_it_may_take() -> None:
    clock, function = Clock(), Failing(*[RESET] * 9)
    with pytest.raises(ConnectionResetError):
        patient(function, clock, attempts=9, base_seconds=10, max_elapsed_seconds=35)()
    assert (clock.slept, function.calls) == ([10, 20], 3)


@cases(
    "error",
    [
        ValueError("a bug"),
        KeyError("memory"),
        MemoryError(),
        RuntimeError("CUDA out of memory. Tried to allocate 2 GiB"),
        ILLEGAL,
        RuntimeError("NCCL error in: x.cpp:1, unhandled system error"),
        OSError(28, "No space left on device"),
        KeyboardInterrupt(),
        SystemExit(1),
        asyncio.CancelledError(),
        concurrent.futures.CancelledError(),
    ],
    ids=repr,
)
def test_what_a_second_call_cannot_cure_is_raised_at_once(error: BaseException) -> None:
    clock, function = Clock(), Failing(error)
    with pytest.raises(type(error)) as raised:
        patient(function, clock)()
    assert raised.value is error
    assert (function.calls, clock.slept) == (1, [])


@cases("on", [ValueError, (KeyError, ValueError), lambda error: "flaky" in str(error)])
def test_on_names_what_is_retried_too(on: Any) -> None:
    function = Failing(ValueError("flaky"), RESET)
    patient(function, Clock(), on=on)()
    assert function.calls == 3


@pytest.mark.parametrize("error", [ILLEGAL, concurrent.futures.CancelledError()], ids=repr)
def test_on_covers_neither_a_spent_process_nor_a_cancellation(error: Exception) -> None:
    function = Failing(error)
    with pytest.raises(type(error)):
        patient(function, Clock(), on=Exception)()
    assert function.calls == 1


def test_a_question_that_fails_is_a_no_and_hides_nothing(caplog: pytest.LogCaptureFixture) -> None:
    error = ValueError("x")
    with pytest.raises(ValueError, match="x") as raised:
        patient(Failing(error), Clock(), on=lambda error: error.nothing)()
    assert raised.value is error
    assert "no retry" in caplog.text


def test_what_the_caller_is_handling_has_no_part_in_it() -> None:
    function = Failing(ValueError("a bug"))
    try:
        raise RESET
    except ConnectionResetError:
        with pytest.raises(ValueError, match="a bug"):
            patient(function, Clock())()
    assert function.calls == 1


def test_a_coroutine_function_is_awaited_again() -> None:
    clock, failing = Clock(), Failing(RESET, RESET)

    @retry(sleep=clock.pause, clock=clock, random=lambda: 1.0)
    async def fetch(name: str) -> Any:
        return failing(name)

    assert asyncio.run(fetch("a")) == (("a",), {})
    assert clock.slept == [1, 2]


def test_a_cancelled_coroutine_ends_at_once() -> None:
    failing = Failing(*[RESET] * 5)

    @retry(base_seconds=1000, max_seconds=1000, random=lambda: 1.0)
    async def fetch() -> Any:
        return failing()

    async def cancel_while_it_waits() -> None:
        task = asyncio.create_task(fetch())
        while not failing.calls:
            await asyncio.sleep(0)
        task.cancel()
        await task

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(cancel_while_it_waits())
    assert failing.calls == 1


def test_it_decorates_bare_functions_and_methods_and_keeps_their_names() -> None:
    class Reader:
        @retry
        def read(self, name: str) -> str:
            """Read it."""
            return name

        @staticmethod
        @retry(attempts=2)
        def count() -> int:
            return 3

    assert (Reader().read("a"), Reader.count()) == ("a", 3)
    assert (Reader.read.__name__, Reader.read.__doc__) == ("read", "Read it.")


def _numbers() -> Any:
    yield 1


async def _pages() -> Any:
    yield 1


@cases(
    ("given", "said"),
    [
        (_numbers, "_numbers is a generator function"),
        (_pages, "_pages is a generator function"),
        (3, "expected a function"),
        (ConnectionError, r"retry\(on=ConnectionError\)"),
        (staticmethod(_numbers), "below @staticmethod"),
    ],
)
def test_what_cannot_be_called_again_is_refused(given: Any, said: str) -> None:
    with pytest.raises(TypeError, match=said):
        retry(given)


@cases(
    ("options", "said"),
    [
        ({"attempts": 0}, "attempts=0: expected a whole number, 1 or more"),
        ({"attempts": True}, "attempts=True"),
        ({"base_seconds": -1}, "base_seconds=-1: expected seconds, 0 or more"),
        ({"max_seconds": float("nan")}, "max_seconds=nan"),
        ({"max_elapsed_seconds": "5"}, "max_elapsed_seconds='5'"),
    ],
)
def test_a_number_out_of_range_is_named(options: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        retry(**options)


def test_on_must_name_exceptions() -> None:
    with pytest.raises(TypeError, match="on="):
        retry(on=["ValueError"])  # type: ignore[call-overload]  # the mistake that is tested


def test_a_retry_is_logged_without_the_message_and_noted_in_the_run(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    secret = ConnectionResetError("https://user:token@host/")
    with caplog.at_level(logging.WARNING, "trainwarden"), trainwarden.run("r", dir=tmp_path):
        patient(Failing(secret), Clock())()
    assert "ConnectionResetError (peer_reset): call 2 of 5 in 1.0 s" in caplog.text
    assert "token" not in caplog.text
    events = [json.loads(line) for line in (tmp_path / "r" / "events.jsonl").read_text().splitlines()]
    noted = [event for event in events if event["event_type"] == "retry"]
    assert [line["data"] for line in noted] == [
        {
            "function": "Failing",
            "exception_type": "ConnectionResetError",
            "failure": "peer_reset",
            "call": 2,
            "calls": 5,
            "delay_seconds": 1.0,
        }
    ]
