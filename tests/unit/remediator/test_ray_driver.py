"""The driver `ray`: what it reads, what it refuses and why, what it submits. A real Ray: tests/ray/test_restart.py."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.ray.kubectl import write_kubectl
from tests.unit.remediator.fake_ray import END, FakeRay
from trainwarden.clients.kubernetes import KubernetesError, RayJobResource, list_ray_jobs
from trainwarden.clients.ray_jobs import RayJobs, RayReserved
from trainwarden_remediator.cli import main
from trainwarden_remediator.commands import doctor
from trainwarden_remediator.decide.attempt import scheduler_objection
from trainwarden_remediator.decide.verdict import Lost
from trainwarden_remediator.drivers.driver import (
    Absent,
    CallOutcome,
    JobState,
    RestartProgress,
    RestartTarget,
    ScheduledJob,
    Shape,
    restart_progress,
)
from trainwarden_remediator.drivers.ray import RayDriver
from trainwarden_remediator.drivers.ray_submission import submission_id
from trainwarden_remediator.drivers.ray_templates import RayTemplates
from trainwarden_remediator.errors import Unknown

INCIDENT = "0123456789abcdef0123456789abcdef"
NEXT = "job-a1-01234567"


@pytest.fixture
def ray() -> FakeRay:
    return FakeRay()


def driver(
    ray: FakeRay, folder: Path | None = None, resources: Mapping[str, RayJobResource] | Exception | None = None
) -> RayDriver:
    def listed() -> Mapping[str, RayJobResource]:
        if isinstance(resources, Exception):
            raise resources
        return resources or {}

    return RayDriver(RayJobs(ray), RayTemplates(folder), listed if resources is not None else None, lambda: END / 1000)


def target(**fields: object) -> RestartTarget:
    return RestartTarget(INCIDENT, "run-1", "job", 0, "it hangs", shape=Shape.SUBMIT, attempt=0, **fields)  # type: ignore[arg-type]  # of a few tests


def refusal(found: RayDriver) -> str:
    job = found.snapshot(("job",)).job("job")
    assert isinstance(job, ScheduledJob)
    return job.refusal or ""


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        ("PENDING", JobState.WAITING),
        ("RUNNING", JobState.RUNNING),
        ("SUCCEEDED", JobState.COMPLETED),
        ("FAILED", JobState.FAILED),
        ("STOPPED", JobState.CANCELLED),
        ("PAUSED", JobState.OTHER),
    ],
)
def test_states_are_read_and_unknown_ones_left(ray: FakeRay, state: str, expected: JobState) -> None:
    ray.add("job", "run-1", state)
    job = driver(ray).job("job")
    assert isinstance(job, ScheduledJob)
    assert (job.state, job.run_id, job.generation, job.refusal) == (expected, "run-1", 0, None)


def test_a_job_that_has_ended_is_ending_while_an_actor_of_it_lives(ray: FakeRay) -> None:
    ray.add("job", "run-1")
    ray.end("job")
    ray.living.add("job")
    assert restart_progress(driver(ray), target(ended=True)) is RestartProgress.BUSY
    ray.living.clear()
    assert restart_progress(driver(ray), target(ended=True)) is RestartProgress.READY
    assert restart_progress(driver(ray), target()) is RestartProgress.GONE, "a user has stopped it"


def test_a_dashboard_without_an_answer_leaves_everything_unknown_and_nothing_called(ray: FakeRay) -> None:
    ray.add("job", "run-1")
    ray.is_down = True
    found = driver(ray)
    for reading in (found.job("job"), found.jobs(), found.boot(), found.submitted(target())):
        assert isinstance(reading, Unknown)
    assert restart_progress(found, target()) is RestartProgress.UNKNOWN
    for answer in (found.snapshot().prepare(target()), found.snapshot().commit(target())):
        assert answer.outcome is CallOutcome.UNCLEAR
        assert "nothing was called" in answer.detail
    assert ray.made == []


def test_a_job_of_a_head_that_was_started_again_is_lost_and_not_submitted(ray: FakeRay) -> None:
    ray.session = "session_2"
    found = driver(ray)
    reading = found.job("job")
    assert isinstance(reading, Absent)
    assert "session_2" in reading.lost
    assert isinstance(scheduler_objection("run-1", 0, reading), Lost), "a person is paged"
    answer = found.commit(target(ended=True))
    assert (answer.outcome, "session_2" in answer.detail) == (CallOutcome.REFUSED, True)
    assert found.boot() == "session_2"
    assert ray.made == []


def test_the_next_start_is_as_the_old_one_but_for_what_the_attempt_changes(ray: FakeRay) -> None:
    variables = {"KEY": "s3cr3t", "TRAINWARDEN_RESUME_CHECKPOINT": "/old"}
    metadata = {"trainwarden_run_id": "run-1", "trainwarden_resume_checkpoint": "/old", "team": "llm"}
    ray.add("job", "run-1", "FAILED", metadata=metadata, runtime_env={"env_vars": variables, "pip": ["x"]})
    answer = driver(ray).commit(target(environment={"TRAINWARDEN_RESUME_CHECKPOINT": "/new"}))
    assert answer.outcome is CallOutcome.ACCEPTED
    assert "s3cr3t" not in answer.detail
    new = ray.jobs[NEXT]
    assert new["entrypoint"] == "python train.py"
    assert new["runtime_env"] == {
        "env_vars": {"KEY": "s3cr3t", "TRAINWARDEN_RESUME_CHECKPOINT": "/new"},
        "pip": ["x"],
    }
    assert new["metadata"] == {
        "trainwarden_run_id": "run-1",
        "team": "llm",
        "trainwarden_incident": INCIDENT,
        "trainwarden_attempt": "1",
        "trainwarden_replaces": "job",
        "trainwarden_resume_checkpoint": "/new",
    }
    [job] = driver(ray).submitted(target())  # type: ignore[misc]  # it answers
    assert (job.job_id, job.submission) == (NEXT, INCIDENT)
    again = driver(ray).commit(target())
    assert (again.outcome, "already" in again.detail) == (CallOutcome.ACCEPTED, True)


def test_a_checkpoint_of_the_attempt_before_is_not_passed_on_and_that_of_the_user_is(ray: FakeRay) -> None:
    """Where none is known now."""
    ray.add("job", "run-1", "FAILED", runtime_env={"env_vars": {"TRAINWARDEN_RESUME_CHECKPOINT": "/of-user"}})
    driver(ray).commit(target())
    assert ray.jobs[NEXT]["runtime_env"]["env_vars"] == {"TRAINWARDEN_RESUME_CHECKPOINT": "/of-user"}
    ray.jobs["job"]["metadata"]["trainwarden_resume_checkpoint"] = "/of-user"
    del ray.jobs[NEXT]
    driver(ray).commit(target())
    assert ray.jobs[NEXT]["runtime_env"]["env_vars"] == {}


def test_that_nodes_cannot_be_avoided_is_said_where_it_matters(ray: FakeRay) -> None:
    ray.add("job", "run-1", "FAILED")
    answer = driver(ray).commit(target(exclude_nodes=("bad1", "bad2")))
    assert answer.outcome is CallOutcome.ACCEPTED
    assert answer.detail.endswith("Ray excludes no nodes: it may start on bad1, bad2")


def test_a_job_of_another_run_is_neither_stopped_nor_submitted(ray: FakeRay) -> None:
    """Its id may be that of an alert, and its metadata alone say whose it is."""
    ray.add("job", "run-2")
    stopped = driver(ray).prepare(target())
    ray.end("job", "FAILED")
    submitted = driver(ray).commit(target())
    assert (stopped.outcome, submitted.outcome) == (CallOutcome.UNCLEAR, CallOutcome.UNCLEAR)
    assert ray.made == []


def test_ids_keep_their_root_over_restarts_and_stay_short() -> None:
    first = submission_id(target())
    assert first == NEXT
    second = RestartTarget("f" * 32, "run-1", first, 0, "", attempt=1)
    assert submission_id(second) == "job-a2-ffffffff"
    assert len(submission_id(RestartTarget(INCIDENT, "r", "x" * 500, 0, "", attempt=7))) <= 128


def test_another_job_under_the_id_of_the_next_start_is_no_start_of_ours(ray: FakeRay) -> None:
    ray.add("job", "run-1", "FAILED")
    ray.add(NEXT, "run-1")
    assert isinstance(driver(ray).submitted(target()), Unknown)


@pytest.mark.parametrize(
    ("reserved", "template", "expected"),
    [
        ({}, None, ""),
        ({"GPU": 2.0}, None, "reserves 2 GPU, which Ray's job API does not return"),
        (None, None, "reserves GPUs is not known"),
        ({"GPU": 2.0}, RayReserved(num_gpus=2), ""),
        ({"GPU": 2.0}, RayReserved(num_gpus=1), "reserves 2 GPU, and by"),
        ({}, RayReserved(num_gpus=1), "reserves nothing, and by"),
        (None, RayReserved(num_gpus=1), ""),
    ],
)
def test_a_job_that_would_come_back_without_its_gpus_is_refused(
    ray: FakeRay, tmp_path: Path, reserved: dict[str, float] | None, template: RayReserved | None, expected: str
) -> None:
    ray.add("job", "run-1")
    ray.reserved = {} if reserved is None else {"job": reserved}
    if template is not None:
        RayTemplates(tmp_path).write("run-1", template, {})
    found = driver(ray, tmp_path)
    assert expected in refusal(found) if expected else refusal(found) == ""
    answer = found.snapshot().prepare(target())
    assert answer.outcome is (CallOutcome.REFUSED if expected else CallOutcome.ACCEPTED)
    assert ("POST", "/api/jobs/job/stop") in ray.made or expected


@pytest.mark.parametrize(("version", "named"), [("2.51.1", True), ("2.52.0", False)])
def test_doctor_names_a_ray_that_is_older_than_supported(
    ray: FakeRay,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    version: str,
    named: bool,
) -> None:
    ray.version = version
    monkeypatch.setattr(doctor, "build_drivers", lambda _settings: {"ray": driver(ray)})
    flags = ["--driver=ray", "--ray-address=http://127.0.0.1:9", f"--state-dir={tmp_path}"]
    assert main([*flags, "doctor"]) == 0
    assert (f"ray: Ray {version} is older than 2.52, the oldest that is supported" in capsys.readouterr().out) == named


@pytest.mark.parametrize(("version", "refused"), [("2.52.0", True), ("2.60.0", False), ("3.0.0.dev0", False)])
def test_a_label_selector_is_refused_where_ray_would_not_take_it(
    ray: FakeRay, tmp_path: Path, version: str, refused: bool
) -> None:
    ray.add("job", "run-1")
    ray.version, ray.reserved = version, {}
    RayTemplates(tmp_path).write("run-1", RayReserved(label_selector={"zone": "a"}), {})
    found = driver(ray, tmp_path)
    assert (f"entrypoint_label_selector, which Ray {version} does not take" in refusal(found)) == refused
    assert (found.snapshot().prepare(target()).outcome is CallOutcome.REFUSED) == refused


def test_a_template_with_a_mistake_names_file_and_key(ray: FakeRay, tmp_path: Path) -> None:
    ray.add("job", "run-1")
    (tmp_path / "run-1.yaml").write_text("entrypoint_num_gpu: 1\n")
    assert "entrypoint_num_gpu: unknown key, expected entrypoint_num_gpus?" in refusal(driver(ray, tmp_path))
    (tmp_path / "run-1.yaml").write_text("packages: {a.zip: ../../etc/passwd}\n")
    assert "expected the name of a file in the same folder" in refusal(driver(ray, tmp_path))


def test_packages_of_jobs_that_may_be_restarted_are_kept_and_a_lost_one_is_refused(
    ray: FakeRay, tmp_path: Path
) -> None:
    ray.add(
        "job", "run-1", runtime_env={"working_dir": "gcs://code.zip", "py_modules": ["gcs://lib.zip", "s3://b/x.zip"]}
    )
    ray.packages = {"code.zip": b"1", "lib.zip": b"2"}
    assert refusal(driver(ray, tmp_path)) == ""
    del ray.packages["lib.zip"]
    answer = driver(ray, tmp_path).prepare(target())
    assert (answer.outcome, "deleted the package gcs://lib.zip" in answer.detail) == (CallOutcome.REFUSED, True)
    ray.end("job", "FAILED")
    assert "deleted the package gcs://lib.zip" in refusal(driver(ray, tmp_path))
    RayTemplates(tmp_path).write("run-1", RayReserved(), {"lib.zip": b"a copy"})
    assert driver(ray, tmp_path).commit(target()).outcome is CallOutcome.ACCEPTED
    new = ray.jobs[NEXT]["runtime_env"]
    assert new["working_dir"] == "gcs://code.zip"
    assert ray.packages[new["py_modules"][0].removeprefix("gcs://")] == b"a copy"
    assert new["py_modules"][1] == "s3://b/x.zip"


def test_the_copy_of_a_package_serves_each_later_restart_as_well(ray: FakeRay, tmp_path: Path) -> None:
    ray.add("job", "run-1", "FAILED", runtime_env={"working_dir": "gcs://code.zip"})
    RayTemplates(tmp_path).write("run-1", RayReserved(), {"code.zip": b"a copy", "lib.zip": b"another"})
    assert driver(ray, tmp_path).commit(target()).outcome is CallOutcome.ACCEPTED
    ray.end(NEXT, "FAILED")
    ray.packages.clear()  # Ray has deleted what the restart had uploaded
    again = RestartTarget("f" * 32, "run-1", NEXT, 0, "it fails", shape=Shape.SUBMIT, attempt=1)
    answer = driver(ray, tmp_path).commit(again)
    assert answer.outcome is CallOutcome.ACCEPTED, answer.detail
    [(name, content)] = ray.packages.items()
    assert content == b"a copy"
    assert ray.jobs[submission_id(again)]["runtime_env"]["working_dir"] == f"gcs://{name}"


@pytest.mark.parametrize("state", ["RUNNING", "FAILED", "STOPPED"])
def test_packages_of_what_may_start_again_are_looked_for_now_and_then(
    ray: FakeRay, monkeypatch: pytest.MonkeyPatch, state: str
) -> None:
    """A job that was stopped, too: its restart may be under way, and wait."""
    looked, now = list[str](), [1000.0]
    ray.on_package = looked.append
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    ray.add("job", "run-1", runtime_env={"working_dir": "gcs://code.zip"})
    ray.add("over", "run-2", "SUCCEEDED", runtime_env={"working_dir": "gcs://of-the-other.zip"})
    ray.add("long-ago", "run-3", "FAILED", runtime_env={"working_dir": "gcs://old.zip"}, end_time=END - 3_700_000)
    if state != "RUNNING":
        ray.end("job", state)
    found = driver(ray)
    for expected in (1, 1, 2):
        found.snapshot().jobs()
        assert looked == ["code.zip"] * expected
        now[0] += 150


def test_a_masked_environment_is_not_submitted(ray: FakeRay) -> None:
    ray.add("job", "run-1", runtime_env={"env_vars": {"KEY": "<redacted>"}})
    assert "masks its environment" in refusal(driver(ray))


def test_a_program_that_nobody_submitted_is_left(ray: FakeRay) -> None:
    ray.add("01000000", "run-1", job_id="01000000")
    [job] = driver(ray).jobs()  # type: ignore[misc]  # it answers
    assert "was not submitted" in (job.refusal or "")


def test_restarts_of_ray_train_are_not_multiplied(ray: FakeRay) -> None:
    ray.add("job", "run-1", job_id="02000000")
    settings = {"run_config": {"failure_config": {"max_failures": 3}}}
    ray.train_runs = [{"job_id": "02000000", "run_settings": settings}]
    assert refusal(driver(ray)) == "", "it does not notice a hang"
    ray.end("job", "FAILED")
    assert "itself, 3 times (max_failures)" in refusal(driver(ray))
    settings["run_config"]["failure_config"]["max_failures"] = 0
    assert refusal(driver(ray)) == ""


@pytest.mark.parametrize(
    ("runs", "actor", "template", "expected"),
    [
        (None, "TrainController", None, "how often it restarts its workers is unknown"),
        ([], "TrainController", None, "how often it restarts its workers is unknown"),  # that of another job is listed
        (None, "BaseTrainer._generate.<locals>.TrainTrainable", None, "how often it restarts its workers is unknown"),
        ([{"job_id": "02000000"}], "TrainController", None, "how often it restarts its workers is unknown"),
        (None, "TrainController", 0, ""),
        ([{"job_id": "02000000"}], "TrainController", 0, ""),
        (None, "TrainController", 3, "itself, 3 times (max_failures)"),
        (None, "TrainController", -1, "itself, without end (max_failures)"),
        (None, "MyTrainer", None, ""),
        (None, "MyTrainer", 3, ""),
    ],
)
def test_restarts_of_ray_train_that_it_does_not_report_are_unknown_and_not_none(
    ray: FakeRay, tmp_path: Path, runs: list[dict[str, Any]] | None, actor: str, template: int | None, expected: str
) -> None:
    ray.add("job", "run-1", "FAILED", job_id="02000000")
    ray.train_runs, ray.actors["02000000"] = runs, [actor]
    if template is not None:
        RayTemplates(tmp_path).write("run-1", RayReserved(), {}, template)
    found = refusal(driver(ray, tmp_path))
    assert expected in found if expected else found == ""
    assert ("ray register job --train-max-failures N" in found) == ("unknown" in expected)


def test_a_job_of_a_rayjob_is_left_to_it(ray: FakeRay) -> None:
    ray.add("job", "run-1")
    assert "RayJob nightly, which restarts it itself (backoffLimit 2)" in refusal(
        driver(ray, resources={"job": RayJobResource("nightly", 2)})
    )
    assert refusal(driver(ray, resources={"another": RayJobResource("nightly", 2)})) == ""


def test_while_the_rayjobs_cannot_be_listed_a_job_is_unknown_and_not_refused_for_good(ray: FakeRay) -> None:
    ray.add("job", "run-1")
    found = driver(ray, resources=KubernetesError("timeout")).snapshot()
    job = found.job("job")
    assert isinstance(job, Unknown)
    assert job.reason == "whether a RayJob restarts job job itself is unknown: timeout"
    listed = found.jobs()
    assert not isinstance(listed, Unknown)
    assert found.obstacles(listed[0]) == [job.reason]


@pytest.mark.parametrize(
    ("environment", "reason"),
    [
        ({"working_dir": "/app"}, "the plain path /app, of which Ray's job API takes none"),
        ({"py_modules": ["gcs://a.zip", "/lib"]}, "the plain path /lib, of which Ray's job API takes none"),
        ({"env_vars": ["KEY=s3cr3t"]}, "env_vars that are no table"),
        ({"working_dir": "file:///app.zip", "env_vars": {}}, ""),
    ],
)
def test_a_job_that_has_failed_for_its_environment_is_not_submitted_again(
    ray: FakeRay, environment: dict[str, Any], reason: str
) -> None:
    ray.add("job", "run-1", "FAILED", runtime_env=environment)
    ray.packages["a.zip"] = b""
    found = refusal(driver(ray))
    assert (reason in found) if reason else found == ""
    assert "s3cr3t" not in found


NIGHTLY = {"metadata": {"name": "nightly"}, "spec": {"backoffLimit": 2}, "status": {"jobId": "job"}}


@pytest.mark.process
def test_rayjobs_are_listed_through_kubectl(tmp_path: Path) -> None:
    found: list[dict[str, Any]] = [NIGHTLY, {"metadata": {"name": "new"}}]
    kubectl = str(write_kubectl(tmp_path / "kubectl", {}, rayjobs=found))
    assert list_ray_jobs(kubectl, 30, "training") == {"job": RayJobResource("nightly", 2)}
    with pytest.raises(KubernetesError, match='status 1: error: namespaces "other" not found'):
        list_ray_jobs(kubectl, 30, "other")
    assert list_ray_jobs(str(write_kubectl(tmp_path / "without", {})), 30) == {}, "KubeRay is not installed"


@pytest.mark.parametrize(
    ("does", "expected"),
    [
        ("echo 'Error from server (Forbidden)' >&2; exit 1", r"status 1: Error from server \(Forbidden\)"),
        ("echo '{}'", "expected a list of RayJobs"),
    ],
)
@pytest.mark.process
def test_without_a_list_it_is_unknown_what_rayjobs_restart(does: str, expected: str, tmp_path: Path) -> None:
    kubectl = tmp_path / "kubectl"
    kubectl.write_text(f"#!/bin/sh\n{does}\n")
    kubectl.chmod(0o755)
    with pytest.raises(KubernetesError, match=expected):
        list_ray_jobs(str(kubectl), 30, "ml")
