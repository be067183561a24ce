"""What several webhooks bring at once is committed together; each is durable before its answer, or refused alone."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from tests.waiting import wait_until
from trainwarden_remediator.store.intake import Intake


class Disk:
    """Commits one after the other, each when it is let go; refuses all of a commit with a bad item in it."""

    def __init__(self) -> None:
        self.gate = threading.Semaphore(0)
        self.begun: list[list[int]] = []
        self.kept: list[int] = []

    def commit(self, items: Sequence[int]) -> None:
        self.begun.append(list(items))
        assert self.gate.acquire(timeout=60)
        if any(each < 0 for each in items):
            raise ValueError(items)
        self.kept += items


@pytest.fixture
def disk() -> Disk:
    return Disk()


@pytest.fixture
def intake(disk: Disk) -> Intake[int]:
    return Intake(disk.commit)


def begin(intake: Intake[int], disk: Disk, items: Sequence[int], threads: ThreadPoolExecutor) -> list[Future[None]]:
    """Begin with item 0, whose commit takes its time; the others come meanwhile."""
    first = threads.submit(intake.take, 0)
    wait_until(lambda: disk.begun, "the first commit")
    others = [threads.submit(intake.take, each) for each in items]
    wait_until(lambda: len(intake._waiting) == len(items), "the others to wait")  # nothing else shows it
    return [first, *others]


def test_what_comes_during_a_commit_is_in_the_next_one_and_answered_after_it(disk: Disk, intake: Intake[int]) -> None:
    with ThreadPoolExecutor(9) as threads:
        futures = begin(intake, disk, range(1, 9), threads)
        disk.gate.release()
        wait_until(lambda: len(disk.begun) == 2, "the second commit")
        assert not any(each.done() for each in futures[1:]), "none is answered before its commit has ended"
        disk.gate.release()
    assert sorted(disk.kept) == list(range(9))
    assert [len(each) for each in disk.begun] == [1, 8]


def test_what_cannot_be_stored_is_refused_alone(disk: Disk, intake: Intake[int]) -> None:
    with ThreadPoolExecutor(9) as threads:
        futures = begin(intake, disk, [1, -2, 3], threads)
        disk.gate.release(100)
    assert [type(each.exception()) for each in futures] == [type(None), type(None), ValueError, type(None)]
    assert sorted(disk.kept) == [0, 1, 3]
