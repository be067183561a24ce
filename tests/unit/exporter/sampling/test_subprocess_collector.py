"""A collector in a process of its own: what it may do without costing anybody else anything."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.unit.exporter.sampling.conftest import page, starts
from tests.waiting import wait_until
from trainwarden_exporter.sampling import child_process, messages, subprocess_collector
from trainwarden_exporter.sampling.child_process import ChildProcess
from trainwarden_exporter.sampling.subprocess_collector import SubprocessCollector

pytestmark = pytest.mark.process

Make = Callable[..., SubprocessCollector]
SAMPLE = 'gpu_utilization_ratio{gpu="0",uuid=""} 0.5'


def pid(member: SubprocessCollector) -> int:
    child = member._process
    assert child is not None
    return child.pid


def pid_or_none(member: SubprocessCollector) -> int | None:
    child = member._process
    return child.pid if child else None


def has_started(member: SubprocessCollector, folder: Path, times: int) -> Callable[[], bool]:
    return lambda: starts(folder) == times and member._process is not None


def count(what: str) -> int:
    return len(list(Path("/proc/self", what).iterdir()))


def is_there(process_id: int) -> bool:
    return Path(f"/proc/{process_id}").exists()


def test_one_look_waits_for_all_devices_that_it_finds(make: Make) -> None:
    member = make(devices=5, seconds=0.2)
    member.sample_once()
    assert page(member).count("\ngpu_utilization_ratio{") == 5


def test_a_part_whose_samples_are_too_old_to_be_shown_is_not_reported_to_be_well(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(subprocess_collector, "SLACK_SECONDS", 0.0)
    monkeypatch.setattr(subprocess_collector, "SILENT_SECONDS", 60.0)
    member = make(timeout=1.0)
    member.start()
    wait_until(lambda: SAMPLE in page(member))
    stopped = pid(member)
    os.kill(stopped, signal.SIGSTOP)
    wait_until(lambda: not page(member))
    assert [each.success for each in member.statuses()] == [False] * len(member.statuses())
    os.kill(stopped, signal.SIGCONT)
    wait_until(lambda: SAMPLE in page(member))
    wait_until(lambda: all(each.success for each in member.statuses()))


def test_a_device_that_hangs_is_named_and_costs_the_others_nothing(make: Make) -> None:
    member = make(devices=3, hanging=[1])
    member.start()
    wait_until(lambda: [(each.device, each.call) for each in member.statuses() if each.stuck] == [("1", "toy_call")])
    wait_until(lambda: page(member).count("\ngpu_utilization_ratio{") == 2)


def test_a_child_that_dies_is_started_again_and_leaves_nothing_behind(make: Make, tmp_path: Path) -> None:
    member = make()
    member.start()
    wait_until(lambda: SAMPLE in page(member))
    before_all = count("fd"), count("task")
    for _ in range(3):
        before = pid(member)
        os.kill(before, signal.SIGKILL)
        wait_until(lambda: not page(member))
        wait_until(lambda: SAMPLE in page(member))
        assert not is_there(before), "a zombie"
    assert starts(tmp_path) == 4
    # Fewer where a test before this one has left a thread that has ended now.
    wait_until(lambda: count("fd") <= before_all[0] and count("task") <= before_all[1])


def test_a_silent_child_is_named_then_replaced(make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(child_process, "END_SECONDS", 0.5)
    monkeypatch.setattr(child_process, "TERMINATE_SECONDS", 30.0)
    member = make()
    member.start()
    wait_until(lambda: SAMPLE in page(member))
    stopped = pid(member)
    os.kill(stopped, signal.SIGSTOP)
    monkeypatch.setattr(subprocess_collector, "SILENT_SECONDS", 1.5)
    monkeypatch.setattr(subprocess_collector, "GIVE_UP_SECONDS", 3.0)
    wait_until(lambda: [each.call for each in member.statuses() if each.stuck] == ["process"])
    wait_until(lambda: pid_or_none(member) not in (stopped, None))
    monkeypatch.setattr(subprocess_collector, "GIVE_UP_SECONDS", 60.0)
    wait_until(lambda: starts(tmp_path) == 2 and SAMPLE in page(member))
    assert not is_there(stopped), "it was told to go on, so that it can end"


def test_a_child_of_which_no_device_answers_is_replaced_once(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(child_process, "END_SECONDS", 1.0)
    monkeypatch.setattr(child_process, "TERMINATE_SECONDS", 30.0)
    monkeypatch.setattr(subprocess_collector, "GIVE_UP_SECONDS", 1.5)
    member = make(devices=2, hanging=[0, 1])
    member.start()
    wait_until(lambda: starts(tmp_path) == 2)
    second = pid(member)
    limit = 2.5 * subprocess_collector.GIVE_UP_SECONDS
    wait_until(lambda: [each.duration > limit for each in member.statuses() if each.device] == [True, True])
    assert (starts(tmp_path), pid(member)) == (2, second)
    member.stop()
    assert not is_there(second), "it hangs outside of the kernel, where it can end"


@pytest.mark.nightly
def test_a_child_whose_driver_hangs_before_it_found_a_device_is_replaced_once(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(child_process, "END_SECONDS", 1.0)
    monkeypatch.setattr(child_process, "TERMINATE_SECONDS", 30.0)
    monkeypatch.setattr(subprocess_collector, "GIVE_UP_SECONDS", 1.5)
    member = make(devices=0, hanging=["driver"])
    member.start()
    wait_until(lambda: starts(tmp_path) == 2)
    limit = 2.5 * subprocess_collector.GIVE_UP_SECONDS
    wait_until(lambda: max(each.duration for each in member.statuses()) > limit)
    assert starts(tmp_path) == 2


def test_what_a_library_prints_is_no_message(make: Make, capfd: pytest.CaptureFixture[str]) -> None:
    member = make(prints=True)
    member.start()
    wait_until(lambda: SAMPLE in page(member))
    wait_until(lambda: "a library that prints" in capfd.readouterr().err)
    assert member._invalid_lines == 0


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("rubbish", [b"{}\n", b"null\n", b'{"part": [1]}\n', b"a line without an end"])
def test_a_child_that_talks_rubbish_is_ended_and_started_again(
    make: Make, say: Callable[..., None], tmp_path: Path, rubbish: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(child_process, "MAX_LINE_BYTES", 2**16)
    say(f"import os\nwhile True: os.write(1, {rubbish!r})")
    member = make()
    member.start()
    wait_until(lambda: starts(tmp_path) >= 2)
    assert not page(member)


def test_a_child_that_cannot_start_is_tried_again(make: Make, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    command = child_process.COMMAND
    monkeypatch.setattr(child_process, "COMMAND", (str(tmp_path / "no such program"),))
    member = make()
    member.start()
    wait_until(lambda: "cannot be started" in (member.statuses()[0].error or ""))
    monkeypatch.setattr(child_process, "COMMAND", command)
    wait_until(lambda: SAMPLE in page(member))


def test_scrapes_are_passed_on_to_the_child(make: Make, say: Callable[..., None], tmp_path: Path) -> None:
    say(f"import sys\nfor line in sys.stdin: open({str(tmp_path / 'input')!r}, 'a').write(line)")
    member = make()
    member.start()
    wait_until(lambda: starts(tmp_path) == 1)

    def has_passed_one_on() -> bool:
        member.scraped("10.0.0.1:4711")
        return "10.0.0.1:4711" in _input_of(tmp_path)

    wait_until(has_passed_one_on)


def _input_of(folder: Path) -> str:
    file = folder / "input"
    return file.read_text() if file.exists() else ""


@pytest.mark.usefixtures("impatient")
def test_a_child_that_reads_nothing_holds_up_no_scrape(make: Make, say: Callable[..., None], tmp_path: Path) -> None:
    say("import time\ntime.sleep(60)")
    member = make()
    member.start()
    wait_until(lambda: starts(tmp_path) == 1)
    pipe_bytes = 2**20
    for _ in range(pipe_bytes // 16):
        member.scraped("10.0.0.1:4711")  # would block once the pipe is full


def test_what_is_being_heard_when_the_devices_are_released_is_not_shown(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    hearing, released, over = threading.Event(), threading.Event(), threading.Event()
    apply_message = messages.apply_message

    def slow(*line: Any) -> Any:
        views = apply_message(*line)
        if any(view.last.attempted for view in views.values()):
            hearing.set()
            assert released.wait(60)
        return views

    monkeypatch.setattr(subprocess_collector, "apply_message", slow)
    monkeypatch.setattr(ChildProcess, "drain", lambda _: over.set())  # called when nothing is listened to any more
    member = make()
    member.start()
    assert hearing.wait(60)
    member.release()
    released.set()
    assert over.wait(60)
    assert not page(member)


def test_a_release_closes_the_devices_and_a_resume_takes_them_again(make: Make, tmp_path: Path) -> None:
    member = make()
    member.start()
    wait_until(lambda: SAMPLE in page(member))
    first = pid(member)
    assert member.release()
    assert (tmp_path / "closed").exists()
    assert not is_there(first)
    assert not page(member)
    member.resume()
    wait_until(lambda: SAMPLE in page(member))
    assert starts(tmp_path) == 2


def test_a_release_while_a_child_is_being_started_holds(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    member = make()
    born: list[ChildProcess] = []

    class Slow(ChildProcess):
        def __init__(self, order: bytes) -> None:
            super().__init__(order)
            born.append(self)
            assert member.release()

    monkeypatch.setattr(subprocess_collector, "ChildProcess", Slow)
    member.start()
    wait_until(lambda: born and not born[0].hangs())
    assert member._process is None


@pytest.mark.usefixtures("impatient")
def test_what_does_not_end_is_left_behind_alive_and_replaced_no_more_than_once(
    make: Make, say: Callable[..., None], tmp_path: Path
) -> None:
    say("while True: time.sleep(1)", before="import signal, time\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)")
    member = make()
    left: list[int] = []
    try:
        member.start()
        for number in (1, 2):
            member.resume()
            wait_until(has_started(member, tmp_path, number))
            left.append(pid(member))
            assert not member.release()
            status = member.statuses()[0]
            assert (status.stuck, status.call) == (True, "process")
        assert all(is_there(each) for each in left), "never killed: a GPU may be unusable after"
        member.resume()
        wait_until(lambda: len(member._left) == subprocess_collector.MAX_HANGING)
        member.stop()
        assert starts(tmp_path) == 2
    finally:
        for each in left:
            os.kill(each, signal.SIGKILL)
        wait_until(lambda: not member._hanging())
