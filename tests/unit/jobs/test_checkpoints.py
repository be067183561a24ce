"""Checkpoints of jobs that report none: which count, what is recorded, and what the next start of the job gets."""

from __future__ import annotations

import os
import subprocess
import zipfile
from pathlib import Path

import pytest

from trainwarden.errors import UsageError
from trainwarden.identity import AttemptKey
from trainwarden.jobs import job_record
from trainwarden.jobs.checkpoints import CheckpointFolder, hand_over
from trainwarden.jobs.configuration import read_configuration
from trainwarden.jobs.job_record import JobRecord, WatchedJob
from trainwarden.record.metadata import Metadata, read_metadata
from trainwarden.record.progress import Checkpoint, Progress, read_progress
from trainwarden_remediator.act.resume_point import resume_point

KEY = AttemptKey("slurm", "17", 0)


class Job:
    """A job with checkpoints, and its record."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch, **settings: object) -> None:
        monkeypatch.setattr(job_record, "SEARCH_SECONDS", 0.0)
        self.place = folder / "ckpt"
        self.place.mkdir()
        self.log = folder / "log"
        self.log.write_text("", encoding="utf-8")
        self.runs = folder / "runs"
        where = CheckpointFolder(
            str(self.place), environment={"FROM": "{path}"}, arguments="--resume {path} --at={step}"
        )
        values = {"user_id": os.getuid(), "logs": (str(self.log),), "checkpoints": where, **settings}
        self.record = JobRecord(self.runs, WatchedJob("r", KEY, **values))  # type: ignore[arg-type]
        assert self.record.open()

    def save(self, step: int) -> Path:
        """A file as torch.save writes it."""
        path = self.place / f"step_{step}.pt"
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("archive/data.pkl", b"\x80\x02}q\x00.")
            archive.writestr("archive/data/0", bytes(range(256)) * 4)
            archive.writestr("archive/version", b"3\n")
        return path

    def look(self) -> Progress:
        self.record.look()
        found = read_progress(self.runs / "r")
        return found if isinstance(found, Progress) else Progress()

    def handed_over(self) -> list[str]:
        """What a shell has after it has sourced the file."""
        script = '. "$1"; echo "$FROM"; for each in $TRAINWARDEN_RESUME_ARGUMENTS; do echo "$each"; done'
        command = ["sh", "-c", script, "sh", str(self.runs / "r" / "resume.env")]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()


@pytest.mark.process
def test_the_newest_complete_checkpoint_is_recorded_and_handed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = Job(tmp_path, monkeypatch)
    assert job.look().checkpoint is None
    first = job.save(10)
    job.log.write_text("step 11/100 loss 2.0\n", encoding="utf-8")
    found = job.look()
    assert found.checkpoint is not None
    assert (found.checkpoint.path, found.checkpoint.step, found.checkpoints_saved, found.step) == (
        str(first),
        10,
        1,
        11,
    )
    second = job.save(20)
    torn = job.save(30)
    torn.write_bytes(torn.read_bytes()[:-200])
    plain = job.place / "step_40"
    plain.mkdir()
    (plain / "weights.data").write_bytes(b"weights" * 100)
    with job.log.open("a", encoding="utf-8") as log:
        log.write("step 41/100 loss 2.0\n")
    found = job.look()
    assert found.checkpoint is not None
    assert (found.checkpoint.path, found.checkpoints_saved, found.step) == (str(second), 2, 41)
    assert [each.step for each in found.checkpoints] == [20, 10]
    assert job.handed_over() == [str(second), "--resume", str(second), "--at=20"]


@pytest.mark.process
def test_a_checkpoint_that_is_damaged_later_gives_way_to_the_one_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = Job(tmp_path, monkeypatch)
    first = job.save(10)
    job.look()
    second = job.save(20)
    job.look()
    second.write_bytes(second.read_bytes()[:-200])
    assert resume_point(job.runs / "r", str(KEY), None, 20).step == 10
    found = job.look()
    assert found.checkpoint is not None
    assert (found.checkpoint.step, found.checkpoints_saved) == (10, 2)
    assert job.handed_over()[0] == str(first)


def test_the_remediator_verifies_what_is_recorded_by_the_trust_of_the_rule(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = Job(tmp_path, monkeypatch)
    job.save(10)
    job.look()
    found = resume_point(job.runs / "r", str(KEY), None, 20)
    assert (found.verdict, found.step) == ("complete", 10)
    metadata = read_metadata(job.runs / "r")
    assert isinstance(metadata, Metadata)
    assert metadata.checkpoint_trust == "layout"
    assert metadata.resume == {"FROM": "{path}", "TRAINWARDEN_RESUME_ARGUMENTS": "--resume {path} --at={step}"}
    assert resume_point(job.runs / "r", str(KEY), "none", 20).verdict == "stop", "the policy trusts nothing but digests"


@pytest.mark.parametrize(("trust", "counts"), [("layout", False), ("complete", True), ("none", False)])
def test_a_plain_folder_counts_only_where_somebody_vouches_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, trust: str, counts: bool
) -> None:
    where = CheckpointFolder(str(tmp_path / "ckpt"), trust)  # type: ignore[arg-type]
    job = Job(tmp_path, monkeypatch, checkpoints=where)
    plain = job.place / "step_40"
    plain.mkdir()
    (plain / "weights.data").write_bytes(b"weights" * 100)
    assert (job.look().checkpoint is not None) is counts


def test_checkpoints_of_another_user_do_not_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job = Job(tmp_path, monkeypatch, user_id=os.getuid() + 1)
    job.save(10)
    assert job.look().checkpoint is None


@pytest.mark.parametrize("name", ["a b", "$(touch x)", "x'y", "`id`", "x;y", "x\ny", "\u00e9"])
def test_no_path_with_odd_letters_reaches_a_script(tmp_path: Path, name: str) -> None:
    folder = CheckpointFolder("/ckpt", environment={"FROM": "{path}"}, arguments="--resume {path}")
    (tmp_path / "resume.env").write_text("export FROM=old\n", encoding="utf-8")
    assert hand_over(tmp_path, folder, Checkpoint(path=f"/ckpt/{name}/step_1", step=1))
    assert not (tmp_path / "resume.env").exists()


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        ("checkpoints: {trust: layout}", "path: the folder"),
        ("checkpoints: {path: ckpt}", "an absolute path"),
        ("checkpoints: {path: /ckpt, trust: all}", "one of layout, complete, none"),
        ("resume: {arguments: x}", "checkpoints beside it"),
        ("checkpoints: {path: /ckpt}\n    resume: {environment: {'A B': x}}", "a name of a variable"),
    ],
)
def test_a_wrong_rule_names_what_was_expected(tmp_path: Path, rule: str, expected: str) -> None:
    file = tmp_path / "jobs.yml"
    file.write_text(f"jobs:\n  - match: {{name: x}}\n    {rule}\n", encoding="utf-8")
    file.chmod(0o600)
    with pytest.raises(UsageError, match=expected):
        read_configuration(file)
