"""The files of a job's output: their shares of a look, names of one file, and logs of any size."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.unit.clients.slurm.commands import job_22_05
from trainwarden.clients.slurm.jobs import read_job
from trainwarden.jobs import job_log
from trainwarden.jobs.configuration import JobRule
from trainwarden.jobs.job_log import FIRST_READ, LOOK_BYTES, MAX_LAG, JobLog
from trainwarden.jobs.slurm_run import job_logs

_LINE = b"x" * 1023 + b"\n"


class Read:
    """A log under test, and what was read of it."""

    def __init__(self, folder: Path, *paths: Path) -> None:
        self.data = bytearray()
        self.log = JobLog([str(path) for path in paths], os.getuid(), folder / "copy.txt", self.data.extend)


def test_one_file_under_two_names_is_read_once(tmp_path: Path) -> None:
    log, link, second = tmp_path / "a.out", tmp_path / "link.out", tmp_path / "second.out"
    log.write_bytes(b"step 1\n")
    link.symlink_to(log)
    second.hardlink_to(log)
    read = Read(tmp_path, log, link, second)
    read.log.read()
    with second.open("ab") as file:
        file.write(b"step 2\n")
    read.log.read()
    assert bytes(read.data) == b"step 1\nstep 2\n"
    assert not read.log.problems


def test_a_log_of_ten_gibibytes_is_read_from_its_end(tmp_path: Path) -> None:
    log = tmp_path / "huge.out"
    with log.open("wb") as file:
        file.seek(10 * 2**30)
        file.write(b"\nstep 900/1000 loss 2.5\nRuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB.\n")
    read = Read(tmp_path, log)
    while read.log.read():
        pass
    assert len(read.data) <= FIRST_READ
    assert "step 900/1000" in read.log.tail.text()
    assert "CUDA out of memory" in read.log.tail.text()


def test_a_log_that_grows_faster_than_it_is_read_is_read_on_from_near_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job_log, "MAX_LAG", 64 * 1024)
    monkeypatch.setattr(job_log, "FIRST_READ", 8 * 1024)
    log = tmp_path / "fast.out"
    log.write_bytes(b"first\n")
    read = Read(tmp_path, log)
    read.log.read()
    with log.open("ab") as file:
        file.write(_LINE * 100 + b"last\n")
    while read.log.read():
        pass
    assert read.data.startswith(b"first\nxxx")
    assert read.data.endswith(b"x\nlast\n")
    assert len(read.data) <= 9 * 1024
    # Whole lines alone.
    assert {len(line) for line in read.data.splitlines()} == {5, 1023, 4}
    assert MAX_LAG > LOOK_BYTES > FIRST_READ


def test_each_file_has_its_share_of_a_look(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job_log, "LOOK_BYTES", 1024 * 1024)
    out, err = tmp_path / "out", tmp_path / "err"
    out.write_bytes(_LINE * 3000)
    err.write_bytes(b"RuntimeError: bad\n")
    read = Read(tmp_path, out, err)
    count = read.log.read()
    assert b"RuntimeError: bad" in read.data
    assert count <= 1024 * 1024


def test_paths_that_are_known_later_are_followed_too(tmp_path: Path) -> None:
    (tmp_path / "a.out").write_bytes(b"a\n")
    read = Read(tmp_path)
    assert read.log.read() == 0
    for _ in range(2):
        read.log.follow([str(tmp_path / "a.out")])
        read.log.read()
    assert bytes(read.data) == b"a\n"


def test_a_rule_names_the_logs_in_place_of_those_of_sbatch() -> None:
    job = read_job(job_22_05(7, standard_output="/x/7.out", nodes="n1", current_working_directory="/x"))
    rule = JobRule(logs=("/scratch/%u/%x-%j.log", "/scratch/%N/%Z.log", "/scratch/%%.log"))
    assert job_logs(job, rule)[0] == "/scratch/alice/train-7.log"
    assert job_logs(job, JobRule()) == ("/x/7.out",)
