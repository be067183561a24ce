"""A path in a record shows its writer nothing that the writer may not see, and costs a bounded share of a core."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.users import ANOTHER, NOBODY, needs_root
from tests.waiting import wait_until
from trainwarden.checkpoint.verdict import CheckpointVerdict
from trainwarden.record.progress import Checkpoint, Progress
from trainwarden.record.thresholds import Thresholds
from trainwarden_exporter.collectors.runs.checkpoints import CheckpointAccess, CheckpointVerifier
from trainwarden_exporter.collectors.runs.record import RunRecord

SIZE = 4096


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that everybody may enter."""
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        yield Path(name)


def saved(folder: Path, uid: int) -> Checkpoint:
    """A plain file of a user's, which its size proves to be whole."""
    folder.mkdir(exist_ok=True)
    path = folder / "step-100.bin"
    path.write_bytes(b"w" * SIZE)
    os.chown(path, uid, uid)
    return Checkpoint(path=str(path), step=100, size_bytes=SIZE)


@needs_root
@pytest.mark.process
def test_root_looks_at_a_checkpoint_with_the_rights_of_its_user(open_folder: Path) -> None:
    own = saved(open_folder / "own", NOBODY)
    verdict = CheckpointAccess().verify(own, NOBODY)
    assert verdict
    assert verdict.answer == "complete"
    private = saved(open_folder / "private", 0)
    (open_folder / "private").chmod(0o700)
    absent = Checkpoint(path=str(open_folder / "private/absent"), step=1, size_bytes=SIZE)
    answers = [CheckpointAccess().verify(each, NOBODY) for each in (private, absent)]
    assert [answer and answer.answer for answer in answers] == ["unverifiable", "unverifiable"]
    reasons = {answer.evidence[0].partition("'")[0] for answer in answers if answer}
    assert len(reasons) == 1, "what is there and what is not cannot be told apart"


PROGRAM = """
import ctypes, os, sys
from pathlib import Path
from trainwarden.checkpoint import verify
from trainwarden.record.progress import Checkpoint
from trainwarden_exporter.collectors.runs.checkpoints import CheckpointAccess
os.setgroups([]); os.setresgid(65534, 65534, 65534); os.setresuid(65534, 65534, 65534)
access = CheckpointAccess([Path(sys.argv[1])])
for path in sys.argv[3:]:
    verdict = access.verify(Checkpoint(path=path, step=1, size_bytes=4096), int(sys.argv[2]))
    print(verdict and verdict.answer)
"""


@needs_root
@pytest.mark.process
def test_an_exporter_without_rights_looks_below_the_roots_at_what_is_the_users_alone(open_folder: Path) -> None:
    own = saved(open_folder / "scratch", ANOTHER)
    others = saved(open_folder / "scratch/other", NOBODY)
    outside = saved(open_folder / "outside", ANOTHER)
    link = open_folder / "scratch/link"
    link.symlink_to(others.path)
    os.chown(link, ANOTHER, ANOTHER, follow_symlinks=False)
    paths = [own.path, others.path, outside.path, str(link), str(open_folder / "scratch/../outside/step-100.bin"), "/"]
    arguments = [sys.executable, "-c", PROGRAM, str(open_folder / "scratch"), str(ANOTHER), *paths]
    done = subprocess.run(arguments, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["complete", "None", "None", "None", "None", "None"]


def test_a_checkpoint_of_the_exporters_own_user_is_looked_at_wherever_it_is(tmp_path: Path) -> None:
    verdict = CheckpointAccess().verify(saved(tmp_path / "own", os.geteuid()), os.geteuid())
    assert verdict
    assert verdict.answer == "complete"


def test_of_a_record_in_s3_a_path_outside_of_the_roots_is_not_looked_at(tmp_path: Path) -> None:
    inside, outside = saved(tmp_path / "in", os.geteuid()), saved(tmp_path / "out", os.geteuid())
    access = CheckpointAccess([tmp_path / "in"])
    assert access.verify(inside, None)
    assert access.verify(outside, None) is None


def test_a_user_whose_checkpoints_take_long_waits_and_nobody_else() -> None:
    looked: list[tuple[str, int | None]] = []
    may_end = threading.Event()

    def look(checkpoint: Checkpoint, owner: int | None) -> CheckpointVerdict:
        looked.append((checkpoint.path, owner))
        if checkpoint.path == "/slow/1":
            may_end.wait()
        return CheckpointVerdict("complete", ())

    def record(run_id: str, path: str) -> RunRecord:
        return RunRecord(run_id, 0.0, Thresholds(), progress=Progress(checkpoint=Checkpoint(path=path)))

    verifier = CheckpointVerifier(look, pause_factor=1e9)
    verifier.is_complete(record("slow", "/slow/1"), ANOTHER)
    wait_until(lambda: looked == [("/slow/1", ANOTHER)])
    verifier.is_complete(record("slow", "/slow/2"), ANOTHER)
    verifier.is_complete(record("other", "/other/1"), NOBODY)
    may_end.set()
    wait_until(lambda: bool(verifier.is_complete(record("other", "/other/1"), NOBODY)))
    assert looked == [("/slow/1", ANOTHER), ("/other/1", NOBODY)]
    assert not verifier.idle
