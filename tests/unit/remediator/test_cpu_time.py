"""What a job takes of CPUs is measured over half a minute by sstat; what cannot be measured is unknown, never idle."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.clients.slurm.commands import FakeSlurm
from trainwarden.identity import AttemptKey
from trainwarden_remediator.errors import Unknown
from trainwarden_remediator.observe.cpu_time import CpuUse, SlurmCpu

pytestmark = pytest.mark.process

KEY = AttemptKey("slurm", "17", 0)


class Measured:
    """A job whose CPU time a test sets, and a clock that it moves."""

    def __init__(self, folder: Path) -> None:
        self.slurm = FakeSlurm(folder)
        self.now = 1000.0
        self.answer("17.batch|1|cpu=00:01:40,energy=0,fs/disk=1,mem=3M")
        self.source = SlurmCpu(self.slurm.client(), lambda: self.now)

    def answer(self, *lines: str) -> None:
        self.slurm.answer("sstat", "\n".join(lines).encode())

    def after(self, seconds: float) -> CpuUse | Unknown:
        self.now += seconds
        return self.source.of(KEY)


@pytest.fixture
def measured(tmp_path: Path) -> Measured:
    return Measured(tmp_path)


def test_two_readings_half_a_minute_apart_show_what_a_job_takes(measured: Measured) -> None:
    assert isinstance(measured.after(0), Unknown)
    measured.answer("17.batch|1|cpu=00:01:40", "17.0|8|cpu=1-00:00:20,mem=1M")
    assert isinstance(measured.after(20), Unknown), "too early, and it has other tasks now"
    measured.answer("17.batch|1|cpu=00:01:41", "17.0|8|cpu=1-00:04:20,mem=1M")
    found = measured.after(40)
    assert isinstance(found, CpuUse)
    assert (found.tasks, found.is_idle) == (9, False)
    assert found.cpus == pytest.approx(241 / 40)


def test_a_job_that_sleeps_is_idle_and_is_asked_about_every_ten_seconds(measured: Measured) -> None:
    found = [measured.after(2) for _ in range(21)]
    assert [isinstance(each, CpuUse) for each in found].index(True) == 15
    assert isinstance(found[-1], CpuUse)
    assert found[-1].is_idle
    assert len(measured.slurm.called("sstat")) == 5


def test_work_after_a_long_sleep_is_seen_at_once(measured: Measured) -> None:
    for _ in range(100):
        measured.after(10)
    measured.answer("17.batch|1|cpu=00:01:50")
    found = measured.after(10)
    assert isinstance(found, CpuUse)
    assert found.seconds <= 60
    assert not found.is_idle


@pytest.mark.parametrize(
    "line",
    ["", "17.batch|1|", "17.batch|1|cpu=00:00:00,mem=1M", "18.batch|1|cpu=00:01:40", "17.batch|1|cpu=12", "x", "17|x"],
)
def test_what_shows_no_cpu_time_is_unknown(measured: Measured, line: str) -> None:
    """With JobAcctGatherType=jobacct_gather/none all is 0: that is no idle job."""
    measured.answer(line)
    found = [measured.after(10) for _ in range(10)]
    assert {str(each) for each in found if isinstance(each, Unknown)} != set()
    assert not any(isinstance(each, CpuUse) for each in found)


def test_processes_that_have_ended_make_no_job_idle(measured: Measured) -> None:
    """What they took is not counted any more."""
    for _ in range(4):
        measured.after(10)
    measured.answer("17.batch|1|cpu=00:00:50")
    assert isinstance(measured.after(10), Unknown)


def test_an_error_is_unknown_and_begins_anew(measured: Measured) -> None:
    for _ in range(4):
        measured.after(10)
    measured.slurm.script("sstat", "echo 'Access/permission denied' >&2; exit 1")
    found = measured.after(10)
    assert isinstance(found, Unknown)
    assert "permission denied" in found.reason
    measured.answer("17.batch|1|cpu=00:01:40")
    assert isinstance(measured.after(10), Unknown)
