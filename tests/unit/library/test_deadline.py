"""A call that may never return delays its caller until the deadline and no longer."""

import threading
import time

import pytest

from trainwarden.deadline import Deadline, DeadlineExceeded, call_with_deadline


def test_a_result_comes_back_and_an_exception_is_raised_in_the_caller() -> None:
    assert call_with_deadline(lambda: None, 60, thread_name="t") is None
    assert call_with_deadline(threading.current_thread, 60, thread_name="named").name == "named"
    with pytest.raises(ZeroDivisionError):
        call_with_deadline(lambda: 1 // 0, 60, thread_name="t")


def test_a_call_that_does_not_return_is_left_behind_in_a_thread_that_keeps_no_process_alive() -> None:
    over = threading.Event()
    started = time.monotonic()
    try:
        with pytest.raises(DeadlineExceeded, match=r"gave up after 0\.1 s"):
            call_with_deadline(over.wait, 0.1, thread_name="left-behind")
        assert time.monotonic() - started < 30
        (thread,) = (each for each in threading.enumerate() if each.name == "left-behind")
        assert thread.daemon
    finally:
        over.set()
    thread.join(60)


def test_without_a_thread_the_call_is_made_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", fail)
    assert call_with_deadline(lambda: 7, 60, thread_name="t") == 7


def test_a_deadline_has_time_left_until_it_has_none() -> None:
    deadline = Deadline(60)
    deadline.check()
    assert 0 < deadline.remaining <= 60
    with pytest.raises(DeadlineExceeded, match="gave up after 0 s"):
        Deadline(0).check()
    assert Deadline(0).remaining == 0
