"""`checkpoint_saved(verify=True)`: digests are computed beside the training, and end with it."""

import contextlib
import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest

import trainwarden
from tests.unit.library.looking import read_progress
from tests.unit.library.processes import DEADLINE_SECONDS, Script, Starter, line
from tests.waiting import wait_until
from trainwarden.checkpoint import verify
from trainwarden.checkpoint.digests import manifest_path
from trainwarden.identity import process_lives

pytestmark = pytest.mark.process

# It takes minutes to read, and no space.
_HUGE = 2**37


@pytest.fixture
def huge(tmp_path: Path) -> Path:
    path = tmp_path / "step_9.bin"
    path.touch()
    os.truncate(path, _HUGE)
    return path


def _events(folder: Path, kind: str) -> list[dict[str, Any]]:
    lines = (folder / "events.jsonl").read_text().splitlines() if (folder / "events.jsonl").exists() else []
    return [event["data"] for event in map(json.loads, lines) if event["event_type"] == kind]


def _children() -> list[int]:
    """The processes that this one has started and that compute digests."""
    found: list[int] = []
    for task in Path("/proc/self/task").iterdir():
        # Threads and processes may end meanwhile.
        with contextlib.suppress(OSError):
            children = (task / "children").read_text().split()
            found += [int(pid) for pid in children if b"checkpoint.digests" in _command(pid)]
    return found


def _command(pid: str) -> bytes:
    return Path(f"/proc/{pid}/cmdline").read_bytes()


def _nice(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[16])


def test_digests_are_written_while_the_training_goes_on(attempt: Starter, folder: Path, tmp_path: Path) -> None:
    saved = tmp_path / "step_5"
    saved.mkdir()
    (saved / "model.bin").write_bytes(os.urandom(100_000))
    with attempt() as run:
        run.step(5)
        run.checkpoint_saved(saved, verify=True)
        wait_until(lambda: _events(folder, "checkpoint_digests"))
        (said,) = _events(folder, "checkpoint_digests")
        recorded = wait_until(lambda: (known := read_progress(folder)) and known.checkpoint)
        wait_until(lambda: (known := read_progress(folder)) and known.checkpoint and known.checkpoint.verified_time)
        known = read_progress(folder)
        assert known is not None
        assert known.checkpoints[0].verified_time is not None
        assert known.checkpoints[0].time == recorded.time
        # Saved anew: what was verified before is another one.
        run.checkpoint_saved(saved)
        wait_until(lambda: (known := read_progress(folder)) and known.checkpoints_saved == 2)
        known = read_progress(folder)
        assert known is not None
        assert known.checkpoint is not None
        assert known.checkpoint.verified_time is None
    assert (said["path"], said["files"], said["size_bytes"]) == (str(saved), 1, 100_000)
    assert verify(saved, trust="none").answer == "complete"


def test_the_end_of_a_run_waits_a_little_for_its_last_digests(attempt: Starter, tmp_path: Path) -> None:
    path = tmp_path / "step_5.bin"
    path.write_bytes(os.urandom(100))
    with attempt() as run:
        run.checkpoint_saved(path, 5, verify=True)
        wait_until(lambda: manifest_path(path).exists())
    assert verify(path).answer == "complete"


def test_they_have_the_lowest_priority_and_are_absent_where_the_run_ends_first(
    attempt: Starter, huge: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trainwarden.training.run.END_SECONDS", 0.1)
    with attempt() as run:
        run.checkpoint_saved(huge, 9, verify=True)
        wait_until(lambda: [pid for pid in _children() if _nice(pid) == 19])
        (pid,) = _children()
    wait_until(lambda: not process_lives(pid))
    assert not list(huge.parent.glob("*digests*"))


def test_they_end_with_a_training_that_is_killed(script: Script, huge: Path) -> None:
    code = f"""
        import sys, time, trainwarden
        from pathlib import Path
        with trainwarden.run("r") as run:
            run.checkpoint_saved({str(huge)!r}, 9, verify=True)
            while not (found := Path("/proc/thread-self/children").read_text() or "".join(
                    (task / "children").read_text() for task in Path("/proc/self/task").iterdir())):
                time.sleep(0.01)
            print(found.split()[0], flush=True)
            sys.stdin.readline()
    """
    training = script.start(code)
    pid = int(line(training.stdout))
    training.send_signal(signal.SIGKILL)
    training.wait(DEADLINE_SECONDS)
    wait_until(lambda: not process_lives(pid))
    assert not manifest_path(huge).exists()


def test_a_newer_checkpoint_takes_the_place_of_one_that_waits(
    attempt: Starter, folder: Path, huge: Path, caplog: pytest.LogCaptureFixture
) -> None:
    paths = [huge.with_name(f"step_{step}.bin") for step in (10, 11)]
    for path in paths:
        path.write_bytes(b"\7" * 100)
    with attempt() as run:
        run.checkpoint_saved(huge, 9, verify=True)
        wait_until(_children)
        for path in paths:
            run.checkpoint_saved(path, verify=True)
        os.kill(_children()[0], signal.SIGTERM)
        wait_until(lambda: _events(folder, "checkpoint_digests"))
    assert [manifest_path(path).exists() for path in (huge, *paths)] == [False, False, True]
    assert f"no digests are computed of checkpoint {paths[0]}" in caplog.text


def test_what_cannot_be_read_is_logged_and_nothing_more(
    attempt: Starter, folder: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with attempt() as run:
        run.checkpoint_saved(tmp_path / "absent", 5, verify=True)
        wait_until(lambda: _events(folder, "checkpoint_digests"))
        run.checkpoint_saved("s3://bucket/step_6", 6, verify=True)
    assert "problem" in _events(folder, "checkpoint_digests")[0]
    assert "it is in S3" in caplog.text


def test_a_rank_that_is_not_0_computes_none(attempt: Starter, huge: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "1")
    with attempt() as run:
        run.checkpoint_saved(huge, 9, verify=True)
        trainwarden.checkpoint_saved(huge, 9, verify=True)
        assert not _children()
