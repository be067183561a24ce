"""A client command is run without a shell, for so long and no longer, and its failures have names."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.integration.exporter.running import is_alive
from tests.unit.exporter.slurm.answers import FakeSlurm
from tests.waiting import wait_until
from trainwarden_exporter.collectors.slurm.command import run
from trainwarden_exporter.collectors.slurm.errors import SlurmError


def _reason(slurm: FakeSlurm, seconds: float = 60.0, limit: int = 1 << 20) -> str:
    with pytest.raises(SlurmError) as caught:
        run([str(slurm.folder / "squeue"), "--json"], seconds, limit)
    return caught.value.reason


def test_what_a_command_prints_comes_back_as_it_is(slurm: FakeSlurm) -> None:
    slurm.answer("squeue", b"\xff\x00 x" * 100_000, said="a warning")
    answer = run([str(slurm.folder / "squeue")], 60.0)
    assert (answer.output, answer.said) == (b"\xff\x00 x" * 100_000, "a warning")


@pytest.mark.parametrize("then", ["wait", "exit 0"])
def test_a_command_that_hangs_is_ended_with_all_that_it_started(slurm: FakeSlurm, tmp_path: Path, then: str) -> None:
    slurm.script("squeue", f"sleep 600 & echo $! > {tmp_path}/pid.new; mv {tmp_path}/pid.new {tmp_path}/pid; {then}")
    assert _reason(slurm, 3.0) == "timeout"
    child = int((tmp_path / "pid").read_text())
    wait_until(lambda: not is_alive(child))


def test_an_answer_without_end_is_cut_off(slurm: FakeSlurm) -> None:
    slurm.script("squeue", "exec cat /dev/zero")
    assert _reason(slurm) == "too_much"


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        ("squeue: error: Munge encode failed: Failed to access socket (Did you start munged?)", "authentication"),
        ("slurm_load_jobs error: Protocol authentication error", "authentication"),
        ("slurm_load_jobs error: Access/permission denied", "authentication"),
        ("slurm_load_jobs error: Unable to contact slurm controller (connect failure)", "failed"),
    ],
)
def test_the_reason_is_told_by_what_the_command_says(slurm: FakeSlurm, said: str, reason: str) -> None:
    slurm.script("squeue", f"echo '{said}' >&2; exit 1")
    assert _reason(slurm) == reason


def test_a_command_that_is_not_there_has_a_reason_of_its_own(slurm: FakeSlurm) -> None:
    (slurm.folder / "squeue").unlink()
    assert _reason(slurm) == "missing"


def test_a_command_sees_little_of_our_environment(slurm: FakeSlurm, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURM_CONF", "/etc/other.conf")
    monkeypatch.setenv("SQUEUE_FORMAT", "%i")
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "x")
    slurm.script("squeue", "env")
    seen = dict(line.partition("=")[::2] for line in run([str(slurm.folder / "squeue")], 60.0).output.decode().split())
    assert seen["SLURM_CONF"] == "/etc/other.conf"
    assert seen["PATH"] == os.environ["PATH"]
    assert seen.keys().isdisjoint({"SQUEUE_FORMAT", "SLURM_JOB_ID", "AWS_SECRET_ACCESS_KEY"})
