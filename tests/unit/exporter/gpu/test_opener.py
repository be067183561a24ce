"""A library that is opened in a thread of its own."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pytest

from tests.waiting import wait_until
from trainwarden_exporter.collectors.gpu.opener import Opener
from trainwarden_exporter.sampling.calls import calling, current


@pytest.fixture
def go() -> Iterator[threading.Event]:
    """What an attempt of a test waits for; set at its end, so that no thread is left."""
    event = threading.Event()
    yield event
    event.set()


def void(_: object) -> None:
    """Return nothing, as an attempt does."""


def test_while_an_attempt_is_under_way_no_other_begins(go: threading.Event) -> None:
    begun: list[int] = []
    opener = Opener("driver", "init")

    def attempt() -> None:
        begun.append(1)
        go.wait()

    assert opener.wait()
    opener.begin(attempt)
    opener.begin(attempt)
    assert not opener.wait(0.0)
    go.set()
    assert opener.wait(30)
    assert len(begun) == 1
    opener.begin(attempt)
    assert opener.wait(30)
    assert len(begun) == 2


def test_an_attempt_that_has_had_its_time_is_not_waited_for_again(go: threading.Event) -> None:
    opener = Opener("driver", "init")
    opener.begin(lambda: void(go.wait()))
    assert not opener.wait(0.5)
    begun = time.monotonic()
    for _ in range(100):
        assert not opener.wait(0.5)
    assert time.monotonic() - begun < 25, "each of them would have waited for half a second"


def test_whoever_follows_an_attempt_is_in_the_call_that_hangs(go: threading.Event) -> None:
    opener = Opener("driver", "init")
    second = threading.Event()

    def attempt() -> None:
        go.wait()
        with calling("version"):
            second.wait()

    opener.begin(attempt)
    assert opener.call == "init"
    follower = threading.Thread(target=opener.follow)
    follower.start()
    wait_until(lambda: current(follower.ident) == "init")
    go.set()
    wait_until(lambda: current(follower.ident) == "version")
    second.set()
    follower.join(30)
    assert not follower.is_alive()
    assert not opener.busy
