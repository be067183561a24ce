"""What stands in the way of a restart by a real Ray: packages, GPUs, RayJobs, Ray Train, heads that forget."""

from __future__ import annotations

import io
import os
import time
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.ray.acting_remediator import ActingRemediator
from tests.ray.head import Head, running_head
from tests.ray.kubectl import write_kubectl
from tests.waiting import wait_until
from trainwarden.clients import ray_jobs
from trainwarden.clients.ray_jobs import RayReserved
from trainwarden.clients.ray_package import pack
from trainwarden_remediator.cli import main
from trainwarden_remediator.drivers.driver import JobState, ScheduledJob
from trainwarden_remediator.drivers.ray_templates import RayTemplates
from trainwarden_remediator.errors import Unknown
from trainwarden_remediator.incidents.incident import State

pytestmark = [pytest.mark.ray, pytest.mark.nightly]

Make = Callable[[], ActingRemediator]


@pytest.fixture
def make(head: Head, tmp_path: Path) -> Iterator[Make]:
    """Makes remediators on one folder; ends what they leave."""
    made: list[ActingRemediator] = []

    def new() -> ActingRemediator:
        made.append(ActingRemediator(head, tmp_path / "state", RayTemplates(tmp_path / "templates")))
        return made[-1]

    yield new
    for each in made:
        each.close()
        each.end_jobs()


def test_a_package_that_is_gone_stops_the_restart_with_a_reason_and_a_copy_allows_it(make: Make, head: Head) -> None:
    acting = make()
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as file:
        file.writestr("here.txt", "of the package that was lost")
    acting.jobs.upload_package("lost.zip", content.getvalue())
    training = acting.submit("lost", runtime_env={"working_dir": "gcs://lost.zip"})
    training.end(3)
    wait_until(lambda: head.state(training.job_id) == "FAILED", "it has failed")
    job = acting.jobs.all()[1][training.job_id].job
    wait_until(lambda: acting.jobs.living_actors(job) == 0, "Ray has let go of it")
    refused = acting.driver.snapshot().job(training.job_id)
    assert isinstance(refused, ScheduledJob)
    assert "Ray has deleted the package gcs://lost.zip" in (refused.refusal or "")
    acting.templates.write("lost", RayReserved(), {"lost.zip": content.getvalue()})
    training.file.with_suffix(".end").unlink()
    training.crashes = True
    acting.until(lambda: acting.over(training))
    second = acting.came_back(training)
    assert head.call(f"/api/jobs/{second}")["runtime_env"]["working_dir"].startswith("gcs://trainwarden-")


def test_a_job_that_ray_fails_for_a_plain_path_is_not_submitted_again(make: Make, head: Head, tmp_path: Path) -> None:
    acting = make()
    metadata = {"trainwarden_run_id": "path"}
    job_id = head.submit("true", metadata=metadata, runtime_env={"working_dir": str(tmp_path)})
    wait_until(lambda: head.state(job_id) == "FAILED", "Ray takes no path")
    assert "is not a valid URI" in head.call(f"/api/jobs/{job_id}")["message"]
    refused = acting.driver.snapshot().job(job_id)
    assert isinstance(refused, ScheduledJob)
    assert f"the plain path {tmp_path}, of which Ray's job API takes none" in (refused.refusal or ""), refused


def test_a_job_that_would_come_back_without_its_gpus_is_left_until_it_is_registered(make: Make) -> None:
    acting = make()
    training = acting.submit("gpus", entrypoint_num_gpus=2)
    refused = acting.driver.snapshot().job(training.job_id)
    assert isinstance(refused, ScheduledJob)
    assert "reserves 2 GPU, which Ray's job API does not return" in (refused.refusal or "")
    acting.templates.write("gpus", RayReserved(num_gpus=1), {})
    wrong = acting.driver.snapshot().job(training.job_id)
    assert "reserves 2 GPU, and by" in (getattr(wrong, "refusal", "") or "")
    acting.templates.write("gpus", RayReserved(num_gpus=2), {})
    acting.until(lambda: acting.over(training))
    second = acting.came_back(training)
    assert acting.jobs.reserved(second) == RayReserved(num_gpus=2)
    assert len(training.lines[-1][3].split(",")) == 2, "it sees both"


def test_a_job_that_does_not_stop_is_stopped_again_and_then_paged(make: Make, head: Head) -> None:
    acting = make()
    training = acting.submit("stays", ignores_term=True, runtime_env={"env_vars": {"RAY_JOB_STOP_WAIT_TIME_S": "3600"}})
    acting.until(lambda: acting.over(training), 250)
    [incident] = acting.incidents(training)
    assert (incident.state, incident.paging, incident.calls) == (State.ESCALATED, True, 5), acting.report()
    assert "did not end the attempt after 5 calls" in incident.reason
    assert training.starts == [training.job_id]
    assert head.state(training.job_id) == "RUNNING"
    training.end(0)


def test_a_runtime_environment_that_fails_is_paged_after_one_start(make: Make, head: Head) -> None:
    acting = make()
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as file:
        file.writestr("here.txt", "of the package that will be broken")
    acting.jobs.upload_package("sound.zip", content.getvalue())
    training = acting.submit("broken", runtime_env={"working_dir": "gcs://sound.zip"})
    acting.templates.write("broken", RayReserved(), {"sound.zip": b"no zip file"})
    second: list[str] = []

    def failed() -> bool:
        second[:] = [each.successor for each in acting.incidents(training) if each.successor]
        return bool(second) and head.state(second[0]) == "FAILED"

    acting.until(failed)
    job = acting.driver.snapshot().job(second[0])
    assert isinstance(job, ScheduledJob)
    assert (job.state, "runtime_env_setup_failure" in job.scheduler_state) == (JobState.FAILED, True)
    assert training.starts == [training.job_id]
    assert len([each for each in head.call("/api/jobs/") if "raysubmit_broken" in each["submission_id"]]) == 2


def test_a_head_that_is_killed_after_the_stop_is_paged_once_another_answers(ray_python: Path, tmp_path: Path) -> None:
    """While none answers nothing is known, and nothing is done."""
    with running_head(ray_python) as first:
        acting = ActingRemediator(first, tmp_path / "state")
        training = acting.submit("headless")
        acting.at["prepare: after call"] = first.stop
        acting.until(lambda: any(each.calls for each in acting.incidents(training)))
        acting.until(lambda: isinstance(acting.driver.snapshot().job(training.job_id), Unknown))
        session = acting.driver.boot()
        assert isinstance(session, Unknown)
        for _ in range(5):
            acting.worker.tick()
        assert not acting.over(training), acting.report()
    with running_head(ray_python, ports=first.ports) as second:
        (acting.folder / "token").write_text(second.token)
        acting.until(lambda: acting.over(training))
        [incident] = acting.incidents(training)
        assert (incident.state, incident.paging) == (State.ESCALATED, True), acting.report()
        assert "a head forgets its jobs when it is started again" in incident.reason
        assert training.starts == [training.job_id]
        assert second.call("/api/jobs/") == []
        acting.close()


def test_a_job_is_registered_with_what_it_reserves_and_a_copy_of_its_folder(
    make: Make, head: Head, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    acting = make()
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "train.py").write_text("print(1)")
    content = pack(tmp_path / "code")
    acting.jobs.upload_package("code.zip", content)
    training = acting.submit("noted", entrypoint_num_gpus=1, runtime_env={"working_dir": "gcs://code.zip"})
    flags = ["--driver=ray", f"--ray-address={head.url}", f"--ray-token-file={acting.folder}/token"]
    flags += [f"--ray-template-dir={tmp_path}/templates", f"--state-dir={tmp_path}/other"]

    assert main([*flags, "ray", "register", "no-such-job"]) == 2
    assert main([*flags, "ray", "register", training.job_id, "--num-gpus", "2"]) == 2
    refused = capsys.readouterr().err
    assert "Ray has no such job" in refused
    assert "--num-gpus 2: Ray shows 1" in refused
    assert main([*flags, "ray", "register", training.job_id, f"--working-dir={tmp_path}/code"]) == 0
    assert "reserves 1 GPU" in capsys.readouterr().out
    job = acting.driver.snapshot().job(training.job_id)
    assert isinstance(job, ScheduledJob)
    assert acting.driver.obstacles(job) == []
    template = acting.templates.of("noted")
    assert template is not None
    assert acting.templates.package(template.packages["code.zip"]) == content


def test_a_job_of_ray_train_is_found_by_its_controller_where_ray_does_not_list_its_runs(
    make: Make, head: Head, tmp_path: Path
) -> None:
    """Its dead actors show it: state tracking is off by default."""
    acting = make()
    script = tmp_path / "fit.py"
    script.write_text(
        "import ray\n@ray.remote(num_cpus=0)\nclass TrainController:\n    def run(self): return 1\n"
        "ray.init(address='auto')\nray.get(TrainController.remote().run.remote())\nraise SystemExit(3)\n"
    )
    job_id = head.submit(f"{head.python} {script}", metadata={"trainwarden_run_id": "fits"})
    wait_until(lambda: head.state(job_id) == "FAILED", "it has failed")
    job = acting.jobs.all()[1][job_id].job
    wait_until(lambda: acting.jobs.living_actors(job) == 0, "Ray has let go of it")
    found = acting.driver.snapshot().job(job_id)
    assert isinstance(found, ScheduledJob)
    assert f"Ray Train runs job {job_id}, how often it restarts its workers is unknown" in (found.refusal or "")
    acting.templates.write("fits", RayReserved(), {}, 0)
    again = acting.driver.snapshot().job(job_id)
    assert isinstance(again, ScheduledJob)
    assert again.refusal is None


def test_through_kubectl_a_job_of_a_rayjob_is_left_and_others_are_not(
    make: Make, head: Head, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    acting = make()
    mine, nightly = acting.submit("mine"), acting.submit("nightly")
    rayjob = {"metadata": {"name": "train-nightly"}, "spec": {"backoffLimit": 3}, "status": {"jobId": nightly.job_id}}
    of_pod = {"PATH": os.environ["PATH"], "RAY_AUTH_TOKEN": head.token}
    kubectl = write_kubectl(tmp_path / "kubectl", of_pod, ("svc/head",), [rayjob])
    flags = ["--driver=ray", f"--ray-address={head.url}", f"--ray-kubectl={kubectl}", "--ray-head-pod=svc/head"]
    assert main([*flags, "--ray-namespace=training", f"--state-dir={tmp_path}/other", "doctor"]) == 1
    _, *parts = capsys.readouterr().out.split("ray job ")
    [of_mine] = [part for part in parts if part.startswith(f"{mine.job_id} of run mine")]
    [of_nightly] = [part for part in parts if part.startswith(f"{nightly.job_id} of run nightly")]
    # Nothing is known of the records of both, for there is no Prometheus.
    assert "RayJob" not in of_mine
    assert "could NOT be brought back" in of_nightly
    assert "is of RayJob train-nightly, which restarts it itself (backoffLimit 3)" in of_nightly


def test_a_restart_long_after_the_end_finds_the_package_that_ray_would_have_deleted(
    ray_python: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As 15 minutes after the end of a job: Ray's ten minutes are six seconds, and what depends on them is as short."""
    grace = 6.0
    monkeypatch.setattr(ray_jobs, "KEEP_SECONDS", 0.4 * grace)
    variables = {"RAY_RUNTIME_ENV_TEMPORARY_REFERENCE_EXPIRATION_S": f"{grace:.0f}"}
    with running_head(ray_python, variables) as head:
        acting = ActingRemediator(head, tmp_path / "state")
        for name in ("watched.zip", "unwatched.zip"):
            content = io.BytesIO()
            with zipfile.ZipFile(content, "w") as file:
                file.writestr("here.txt", name)
            acting.jobs.upload_package(name, content.getvalue())
        training = acting.submit("watched", runtime_env={"working_dir": "gcs://watched.zip"})
        other = head.submit("exit 3", runtime_env={"working_dir": "gcs://unwatched.zip"})
        acting.driver.snapshot().jobs()  # as the sweeper does each minute, here and below
        training.end(3)

        def failed() -> bool:
            acting.driver.snapshot().jobs()
            return {head.state(training.job_id), head.state(other)} == {"FAILED"}

        wait_until(failed, "both have failed")
        later = time.monotonic() + 1.5 * grace
        wait_until(lambda: acting.driver.snapshot().jobs() and time.monotonic() > later, "the time has passed")
        assert not acting.jobs.keep_package("unwatched.zip"), "Ray deletes what nobody looks for"
        training.file.with_suffix(".end").unlink()
        training.crashes = True
        acting.until(lambda: acting.driver.snapshot().jobs() and acting.over(training))
        second = acting.came_back(training)
        assert head.call(f"/api/jobs/{second}")["runtime_env"]["working_dir"] == "gcs://watched.zip"
        acting.close()
