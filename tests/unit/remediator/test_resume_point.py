"""Before an attempt is ended, it is known what the next one resumes from; without that a person decides."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.remediator.simulated_cluster import RUN
from tests.unit.remediator.simulation import Simulation
from tests.users import needs_root
from tests.waiting import wait_until
from trainwarden.record.clock import to_iso
from trainwarden.record.folder import write_json
from trainwarden.record.progress import Checkpoint
from trainwarden.record.superseded import Superseded, write_superseded
from trainwarden_remediator.act.capture import Captured
from trainwarden_remediator.act.resume_point import ResumePoint, ResumePoints, resume_point
from trainwarden_remediator.drivers.driver import Shape
from trainwarden_remediator.incidents.incident import State
from trainwarden_remediator.policies.policy import load_policy

KEY = "sim:17:0"
WHOLE = (2).to_bytes(8, "little") + b"{}"


def _record(folder: Path, contents: dict[int, bytes], name: str = "safetensors", **choice: str) -> list[Checkpoint]:
    saved: list[Checkpoint] = []
    for step, content in contents.items():
        path = folder / f"step_{step}.{name}"
        path.write_bytes(content)
        saved.insert(0, Checkpoint(path=str(path), step=step, time=1000.0))
    documents = [each.to_json() for each in saved]
    write_json(folder / "progress.json", {"step": 50, "checkpoint": documents[0], "checkpoints": documents})
    write_json(folder / "resume.json", {"attempt_key": KEY, **choice})
    return saved


def test_the_newest_complete_one_is_named_and_what_is_damaged_is_left_out(tmp_path: Path) -> None:
    _record(tmp_path, {30: WHOLE, 40: WHOLE, 50: WHOLE[:-1]})
    found = resume_point(tmp_path, KEY, None, 30)
    assert (found.verdict, found.step, found.path) == ("complete", 40, f"{tmp_path}/step_40.safetensors")
    assert "the newest complete checkpoint is of step 40" in found.text
    assert "left out: step 50" in found.text


def test_where_the_progress_is_damaged_the_checkpoints_are_those_that_the_run_finds_then(tmp_path: Path) -> None:
    """The attempt was ended as one without a checkpoint, and the run then resumed from one that nobody had verified."""
    _record(tmp_path, {30: WHOLE, 40: WHOLE[:-1]})
    kept = (tmp_path / "progress.json").rename(tmp_path / "checkpoint.json")
    (tmp_path / "progress.json").write_text("{")
    found = resume_point(tmp_path, KEY, None, 30)
    assert (found.verdict, found.step) == ("complete", 30)
    kept.unlink()
    found = resume_point(tmp_path, KEY, None, 30)
    assert found.verdict == "unverified", "damaged is not empty"
    assert found.text.startswith(f"which checkpoints it has is unknown: {tmp_path}/progress.json")
    (tmp_path / "progress.json").unlink()
    assert resume_point(tmp_path, KEY, None, 30).verdict == "unknown"


def test_what_cannot_be_verified_stops_unless_the_owner_or_the_policy_vouches(tmp_path: Path) -> None:
    _record(tmp_path, {40: b"no header"}, "pkl")
    found = resume_point(tmp_path, KEY, None, 30)
    assert found.verdict == "stop"
    assert found.text.endswith(f"trainwarden checkpoints set-aside {tmp_path}/step_40.pkl")
    assert resume_point(tmp_path, KEY, "complete", 30).step == 40
    _record(tmp_path, {40: b"no header"}, "pkl", trust="complete")
    assert resume_point(tmp_path, KEY, None, 30).step == 40


def test_a_checkpoint_that_an_old_attempt_has_overwritten_does_not_count(tmp_path: Path) -> None:
    saved = _record(tmp_path, {40: WHOLE, 50: WHOLE})
    write_superseded(tmp_path, Superseded(attempt=0, checkpoints=(saved[0].replace(time=1001.0),)))
    found = resume_point(tmp_path, KEY, None, 30)
    assert found.step == 40
    assert "overwritten by attempt 0" in found.text


def test_a_run_that_resumes_by_itself_or_belongs_to_another_user_is_not_judged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _record(tmp_path, {40: b"no header"}, "pkl")
    assert resume_point(tmp_path, "sim:17:1", None, 30).verdict == "unknown"
    uid = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: uid + 1)
    assert resume_point(tmp_path, KEY, None, 30).verdict == "unverified"


@pytest.mark.process
@needs_root
def test_root_verifies_the_checkpoints_of_a_user_with_the_rights_of_that_user(tmp_path: Path) -> None:
    with tempfile.TemporaryDirectory() as name:  # all that pytest makes is closed to others
        folder = Path(name)
        folder.chmod(0o755)
        [checkpoint] = _record(folder, {40: WHOLE})
        os.chown(folder, 65534, 65534)
        for path in folder.iterdir():
            path.chmod(0o644)
        found = resume_point(folder, KEY, None, 60)
        assert (found.verdict, found.step) == ("complete", 40), found
        Path(checkpoint.path).chmod(0o600)  # root could read it
        found = resume_point(folder, KEY, None, 60)
        assert found.verdict != "complete", found


@pytest.mark.parametrize(("unverified", "is_ended"), [("stop", False), ("go_on", True)])
def test_whether_an_attempt_ends_whose_checkpoints_could_not_be_verified_is_for_the_policy(
    tmp_path: Path, unverified: str, is_ended: bool
) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text(
        "policies: [{mode: stall, implementation: {class_name: AlwaysRestartPolicy, max_retries: 1}}]\n"
        f"checkpoints: {{unverified: {unverified}}}"
    )
    simulation = Simulation(tmp_path / "state", policy=load_policy(str(file)))
    simulation.captures.found = Captured("x", checkpoint=ResumePoint("unverified", "they are in S3"))
    [incident] = simulation.settle()
    assert bool(simulation.driver.calls) == is_ended
    if not is_ended:
        assert (incident.state, incident.paging) == (State.ESCALATED, True)
        assert incident.reason.startswith("they are in S3. Nothing is ended: restart it by hand. Later restarts")
    simulation.close()


def test_what_was_found_before_a_failure_holds_until_a_checkpoint_changes(tmp_path: Path) -> None:
    folder = tmp_path / "run-1"
    folder.mkdir()
    [checkpoint] = _record(folder, {40: WHOLE[:-1]})
    points = ResumePoints(tmp_path, in_background=True)
    why = wait_until(lambda: points.stops("run-1", KEY, None), "the verdict")
    assert "no checkpoint is proven complete: step 40" in why
    Path(checkpoint.path).write_bytes(WHOLE)
    wait_until(lambda: points.stops("run-1", KEY, None) is None, "another verdict")
    assert points.stops("none", KEY, None) is None


@pytest.fixture
def simulation(tmp_path: Path) -> Iterator[Simulation]:
    made = Simulation(tmp_path / "state", two_phase=True)
    made.runs_dir = tmp_path / "runs"
    (made.runs_dir / "run-1").mkdir(parents=True)
    made.restart()
    yield made
    made.close()


def test_nothing_is_ended_where_no_checkpoint_is_proven(simulation: Simulation) -> None:
    simulation.captures.found = Captured(
        "x", checkpoint=ResumePoint("stop", "no checkpoint is proven complete: step 4")
    )
    [incident] = simulation.settle()
    assert (incident.state, incident.paging) == (State.ESCALATED, True)
    assert incident.reason.startswith("no checkpoint is proven complete: step 4. Nothing is ended")
    assert simulation.driver.calls == []


def test_the_checkpoint_that_was_found_is_the_one_expected_after_the_restart(simulation: Simulation) -> None:
    simulation.checkpoint_step = 40.0
    simulation.captures.found = Captured("x", checkpoint=ResumePoint("complete", "the newest is of step 30", 30))
    [incident] = simulation.settle()
    assert (incident.state, incident.checkpoint_step) == (State.DONE, 30.0)


def test_a_save_that_has_begun_is_waited_for_and_one_that_hangs_is_not(simulation: Simulation) -> None:
    assert simulation.runs_dir is not None
    began = simulation.clock.now()

    def saves() -> None:
        write_json(
            simulation.runs_dir / "run-1" / "metadata.json",  # type: ignore[operator]  # see above
            {
                "attempt_key": KEY, "status": "running", "phase": "checkpoint", "phase_time": to_iso(began),
                "last_update": to_iso(simulation.clock.now()),
            },
        )  # fmt: skip

    for _ in range(595):
        saves()
        simulation.tick()
    assert simulation.driver.calls == []
    for _ in range(20):
        saves()
        simulation.tick()
    assert simulation.driver.calls != []


@pytest.mark.parametrize("shape", [Shape.SUBMIT, Shape.REQUEUE])
def test_a_job_that_is_submitted_anew_gets_the_verified_checkpoint_in_its_environment(
    tmp_path: Path, shape: Shape
) -> None:
    """One that is only requeued keeps its environment."""
    simulation = Simulation(tmp_path, shape=shape)
    simulation.captures.found = Captured("", checkpoint=ResumePoint("complete", "step 40", 40, "/ckpt/40"))
    simulation.settle()
    [incident] = simulation.store.of_run(RUN)
    assert (incident.state, incident.resume_checkpoint) == (State.DONE, "/ckpt/40")
    passed = {"TRAINWARDEN_RESUME_CHECKPOINT": "/ckpt/40"} if shape is Shape.SUBMIT else {}
    assert simulation.driver.environment == passed
    simulation.close()


@pytest.mark.parametrize("vouched", [True, False])
@pytest.mark.parametrize("shape", [Shape.SUBMIT, Shape.RESUBMIT, Shape.REQUEUE])
def test_a_plain_job_that_is_submitted_anew_gets_the_variables_of_its_rule(
    tmp_path: Path, shape: Shape, vouched: bool
) -> None:
    """Where the record is written on its behalf: in one of its own, a user could state anything."""
    simulation = Simulation(tmp_path / "state", shape=shape)
    simulation.runs_dir = tmp_path / "runs"
    (simulation.runs_dir / "run-1").mkdir(parents=True)
    simulation.restart()
    simulation.captures.found = Captured("", checkpoint=ResumePoint("complete", "step 40", 40, "/ckpt/40"))
    written = {"resume": {"RESUME_FROM": "{path}", "TRAINWARDEN_RESUME_ARGUMENTS": "--resume {path} --at={step}"}}
    write_json(
        simulation.runs_dir / "run-1" / "metadata.json",
        {"attempt_key": KEY, "status": "running", **written, **({"user_id": os.getuid()} if vouched else {})},
    )
    simulation.settle()
    [incident] = simulation.store.of_run(RUN)
    assert incident.state is State.DONE
    expected = {"RESUME_FROM": "/ckpt/40", "TRAINWARDEN_RESUME_ARGUMENTS": "--resume /ckpt/40 --at=40"}
    passed = {name: text for name, text in simulation.driver.environment.items() if "CHECKPOINT" not in name}
    assert passed == (expected if vouched and shape.gives_new_job else {})
    simulation.close()
