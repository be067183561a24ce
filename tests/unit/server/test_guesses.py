"""Turns of those whose password has yet to be checked."""

from __future__ import annotations

import threading
from functools import partial

import pytest

from tests.waiting import wait_until
from trainwarden.server.guesses import TooManyGuesses, Turns


def has_waiting(turns: Turns, count: int) -> bool:
    return turns.waiting == count


def test_clients_have_turns_one_after_the_other_however_many_one_of_them_asks_for() -> None:
    turns = Turns()
    had: list[str] = []
    before = threading.active_count()

    def take(client: str) -> None:
        with turns.turn(client):
            had.append(client)

    with turns.turn("first"):
        for number, client in enumerate("aaaabbc"):
            threading.Thread(target=take, args=(client,)).start()
            wait_until(partial(has_waiting, turns, number + 1))
    wait_until(lambda: threading.active_count() == before)
    assert "".join(had) == "abcabaa"
    with turns.turn("again"):
        pass


def test_more_than_some_of_a_client_and_more_than_some_of_all_are_refused() -> None:
    turns = Turns(per_client=2, of_all=3)
    threads = []

    def take(client: str) -> None:
        with turns.turn(client):
            pass

    with turns.turn("a"):
        for number, client in enumerate("aab"):
            threads.append(threading.Thread(target=take, args=(client,)))
            threads[-1].start()
            wait_until(partial(has_waiting, turns, number + 1))
            if number == 1:
                with pytest.raises(TooManyGuesses), turns.turn("a"):
                    pass
        with pytest.raises(TooManyGuesses), turns.turn("c"):
            pass
    for thread in threads:
        thread.join(30)
    with turns.turn("c"):
        assert turns.waiting == 0
