"""Unusable arguments, variables and folders are refused before training starts, by name."""

from pathlib import Path
from typing import Any

import pytest

import trainwarden
from tests.cases import cases
from tests.unit.library.looking import read_metadata
from tests.unit.library.processes import Script, Starter

REFUSALS: dict[str, tuple[dict[str, Any], dict[str, str], str]] = {
    "a run id with a slash": ({"run_id": "a/b"}, {}, "run id 'a/b'"),
    "a run id from the environment": ({}, {"TRAINWARDEN_RUN_ID": ".."}, "run id '..'"),
    "an unusable key": ({"run_id": "r"}, {"TRAINWARDEN_ATTEMPT_KEY": "x"}, "TRAINWARDEN_ATTEMPT_KEY: 'x'"),
    "a stall budget that is no number": (
        {"run_id": "r"},
        {"TRAINWARDEN_STALL_SECONDS": "soon"},
        "TRAINWARDEN_STALL_SECONDS: 'soon'",
    ),
    "a phase that does not exist": ({"run_id": "r", "thresholds": {"stall_seconds": {"warp": 1}}}, {}, "'warp'"),
    "an odd number of steps": ({"run_id": "r", "total_steps": "many"}, {}, "total_steps='many'"),
    "a bucket": ({"run_id": "r", "s3": "s3://b"}, {}, "s3='s3://b'"),
}


@cases("case", REFUSALS)
def test_what_cannot_be_understood_is_refused_by_name_before_anything_is_written(
    case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments, environment, said = REFUSALS[case]
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(trainwarden.RunRefused) as refusal:
        trainwarden.run(**arguments, dir=tmp_path / "runs")
    assert said in str(refusal.value)
    assert not (tmp_path / "runs").exists()


def test_a_folder_that_cannot_be_written_is_refused_by_name(
    attempt: Starter, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def read_only(*_args: object, **_values: object) -> None:
        raise OSError(30, "Read-only file system")

    with monkeypatch.context() as patched:
        patched.setattr("trainwarden.record.store.replace_file", read_only)
        with pytest.raises(trainwarden.RunRefused, match="Read-only file system") as refusal:
            attempt()
    assert str(folder) in str(refusal.value)
    assert (refusal.value.__cause__, refusal.value.__suppress_context__) == (None, True)
    with attempt():
        assert read_metadata(folder).status == "running"


@pytest.mark.process
def test_a_folder_without_permission_is_refused_by_name(script: Script) -> None:
    script.runs.mkdir(mode=0o500)
    done = script.run("""
        import os, trainwarden
        trainwarden.run  # loads what it needs while it may read all files
        if os.geteuid() == 0:
            os.seteuid(65534)
        trainwarden.run("r")
    """)
    assert "RunRefused" in done.stderr
    assert any(str(script.folder) in line and "Permission denied" in line for line in done.stderr.splitlines())


def test_a_refusal_names_the_file_that_is_in_the_way(attempt: Starter, folder: Path) -> None:
    (folder / ".owner").mkdir(parents=True)
    with pytest.raises(trainwarden.RunRefused, match=r"Is a directory.*[.]owner") as refusal:
        attempt()
    assert refusal.value.__suppress_context__


def test_a_failure_that_is_not_the_systems_keeps_its_cause(attempt: Starter, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_thread(*_args: object) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr("trainwarden.training.recorder.threading.Thread.start", no_thread)
    with pytest.raises(trainwarden.RunRefused, match="can't start new thread") as refusal:
        attempt()
    assert isinstance(refusal.value.__cause__, RuntimeError)


def test_two_runs_at_once_in_one_process_are_refused(attempt: Starter, tmp_path: Path) -> None:
    with attempt(), pytest.raises(trainwarden.RunRefused, match="in this process"):
        trainwarden.run("other", dir=tmp_path)


@cases("given", [{"dir": 5}, {"dir": b"runs"}, {"dir": "a\0b"}, {"thresholds": [1]}])
def test_an_argument_that_makes_no_sense_is_refused(given: dict[str, Any]) -> None:
    with pytest.raises(trainwarden.RunRefused):
        trainwarden.run("r", **given)


def test_a_relative_folder_of_a_working_folder_that_is_gone_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    with pytest.raises(trainwarden.RunRefused, match="working folder is gone"):
        trainwarden.run("r", dir="runs")


@pytest.mark.process
def test_an_interrupt_while_a_run_begins_leaves_nothing_behind(script: Script) -> None:
    done = script.run("""
        import threading, trainwarden
        from trainwarden.training.exit_hooks import ExitHooks
        def interrupted(self):
            raise KeyboardInterrupt
        ExitHooks.install = interrupted
        try:
            trainwarden.run("r")
        except KeyboardInterrupt:
            print(*(thread.name for thread in threading.enumerate()))
    """)
    assert done.stdout == "MainThread\n"
    metadata = read_metadata(script.folder)
    assert (metadata.status, metadata.reason) == ("cancelled", "SIGINT")
