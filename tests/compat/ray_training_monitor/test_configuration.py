"""The variables of the log, and the folder of checkpoints."""

from __future__ import annotations

import logging
import re
from pathlib import Path

import pytest

from tests.compat.ray_training_monitor.conftest import POD, Pod, Script, write_checkpoint
from trainwarden.ray import find_latest_checkpoint, get_training_health, health

TITLE = "Training Monitor Skill"
variables = pytest.mark.seed(TITLE, "Environment Variables")
folder = pytest.mark.seed(TITLE, "Checkpoint Directory Structure")
pytestmark = pytest.mark.process

STATUS = ("one_function.py", "check_job_status", POD, "raysubmit_x")
LEVEL, FILE = "TRAINING_MONITOR_LOG_LEVEL", "TRAINING_MONITOR_LOG_FILE"
_LINE = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} - trainwarden\.ray - (\w+) - ")


def levels(text: str) -> list[str]:
    """The levels of the lines of a log, which begin with a time."""
    return [found[1] for line in text.splitlines() if (found := _LINE.match(line))]


@variables
def test_the_log_is_on_standard_output_by_default_with_times(lone_pod: Pod, script: Script) -> None:
    ran = script(*STATUS)
    assert (ran.status, ran.err) == (0, "")
    assert levels(ran.out) == ["ERROR"]
    assert ran.out.splitlines()[-1] == "UNKNOWN"


@variables
def test_training_monitor_log_file_takes_the_log_and_appends(lone_pod: Pod, script: Script, tmp_path: Path) -> None:
    file = tmp_path / "monitor.log"
    for number in (1, 2):
        assert script(*STATUS, **{FILE: str(file)}).out == "UNKNOWN\n"
        assert levels(file.read_text()) == ["ERROR"] * number
    assert "raysubmit_x" in file.read_text()


@variables
@pytest.mark.parametrize(
    ("level", "logged"),
    [
        (None, {"INFO", "WARNING"}),
        ("DEBUG", {"INFO", "WARNING"}),
        ("INFO", {"INFO", "WARNING"}),
        ("WARNING", {"WARNING"}),
        ("ERROR", set()),
    ],
)
def test_training_monitor_log_level(
    lone_pod: Pod, script: Script, level: str | None, logged: set[str], tmp_path: Path
) -> None:
    """Of a call that logs which checkpoint it has found, and one that finds none."""
    write_checkpoint(tmp_path / "full/step_100")
    (tmp_path / "empty").mkdir()
    variable = {} if level is None else {LEVEL: level}
    found = set()
    for name in ("full", "empty"):
        ran = script("one_function.py", "find_latest_checkpoint", str(tmp_path / name), POD, **variable)
        found |= set(levels(ran.out))
    assert found - {"DEBUG"} == logged


@variables
@pytest.mark.xfail(
    strict=True, raises=AssertionError, reason="after one line about a level that is none nothing at all is logged"
)
def test_a_log_level_that_is_none_is_said_and_the_log_goes_on(lone_pod: Pod, script: Script) -> None:
    ran = script(*STATUS, **{LEVEL: "LOUD"})
    assert "LOUD" in ran.out + ran.err
    assert levels(ran.out + ran.err) == ["ERROR"]


@variables
@pytest.mark.xfail(
    strict=True, raises=AssertionError, reason="a script that calls one function without a pod logs nowhere"
)
def test_training_monitor_log_file_counts_for_each_function_alone(script: Script, tmp_path: Path) -> None:
    file = tmp_path / "monitor.log"
    (tmp_path / "empty").mkdir()
    assert script("one_function.py", "find_latest_checkpoint", str(tmp_path / "empty"), **{FILE: str(file)}).status == 0
    assert file.exists()
    assert levels(file.read_text()) == ["WARNING"]


@pytest.fixture
def checkpoints(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """step_100, step_500, step_1000 and `latest`, a link to the last of them."""
    monkeypatch.setattr(health, "PAUSE_SECONDS", 0.0)
    made = tmp_path / "checkpoints"
    for step in (100, 500, 1000):
        write_checkpoint(made / f"step_{step}")
    (made / "latest").symlink_to("step_1000")
    return made


@folder
@pytest.mark.parametrize("where", [None, POD], ids=["here", "in the pod"])
def test_the_latest_checkpoint_of_the_structure(lone_pod: Pod, checkpoints: Path, where: str | None) -> None:
    assert find_latest_checkpoint(str(checkpoints), where) in (f"{checkpoints}/step_1000", f"{checkpoints}/latest")
    report = get_training_health(POD, str(checkpoints))["checkpoints"]
    assert (report["latest_step"], report["checkpoint_dir"]) == (1000, str(checkpoints))


@folder
@pytest.mark.parametrize("where", [None, POD], ids=["here", "in the pod"])
def test_a_checkpoint_that_is_torn_is_none_to_resume_from(lone_pod: Pod, checkpoints: Path, where: str | None) -> None:
    whole = (checkpoints / "step_1000/model.safetensors").read_bytes()
    (checkpoints / "step_1000/model.safetensors").write_bytes(whole[:-8])
    assert find_latest_checkpoint(str(checkpoints), where) == f"{checkpoints}/step_500"


@folder
@pytest.mark.parametrize("where", [None, POD], ids=["here", "in the pod"])
def test_a_folder_without_checkpoints_has_none(lone_pod: Pod, tmp_path: Path, where: str | None) -> None:
    (tmp_path / "empty").mkdir()
    assert find_latest_checkpoint(str(tmp_path / "empty"), where) is None


@pytest.fixture
def torn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """step_100, step_500 without its end, and `latest`, a link to a folder that was removed."""
    monkeypatch.setattr(health, "PAUSE_SECONDS", 0.0)
    made = tmp_path / "checkpoints"
    write_checkpoint(made / "step_100")
    write_checkpoint(made / "step_500", torn=True)
    (made / "latest").symlink_to("step_1000")
    return made


@folder
@pytest.mark.xfail(
    strict=True, raises=AssertionError, reason="the report names the step of a torn checkpoint as the latest"
)
def test_the_report_and_find_latest_checkpoint_give_one_answer(lone_pod: Pod, torn: Path) -> None:
    assert find_latest_checkpoint(str(torn), POD) == f"{torn}/step_100"
    assert get_training_health(POD, str(torn))["checkpoints"]["latest_step"] == 100


@folder
@pytest.mark.xfail(strict=True, raises=AssertionError, reason="the report calls the step of no checkpoint 0")
def test_the_report_of_a_folder_without_checkpoints_has_no_step(
    lone_pod: Pod, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(health, "PAUSE_SECONDS", 0.0)
    (tmp_path / "empty").mkdir()
    assert get_training_health(POD, str(tmp_path / "empty"))["checkpoints"]["latest_step"] is None


@folder
@pytest.mark.xfail(
    strict=True,
    raises=AssertionError,
    reason="why a newer checkpoint is passed over is not said: no message names the torn one",
)
def test_the_log_names_a_checkpoint_that_is_passed_over(
    lone_pod: Pod, torn: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, "trainwarden.ray"):
        find_latest_checkpoint(str(torn), POD)
    assert "step_500" in caplog.text
