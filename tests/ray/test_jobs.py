"""The job API as its client uses it, of a real head."""

from __future__ import annotations

import io
import os
import zipfile
from pathlib import Path

import pytest

from tests.ray.head import Head
from tests.ray.kubectl import write_kubectl
from tests.waiting import wait_until
from trainwarden.clients.kubernetes import PodExec
from trainwarden.clients.ray import RayDashboardInPod, RayDashboardOverHttp, RayError
from trainwarden.clients.ray_jobs import CallAnswer, RayJobs, RayReserved, RaySubmission

pytestmark = pytest.mark.ray


@pytest.fixture(params=["http", "pod"])
def jobs(request: pytest.FixtureRequest, head: Head, tmp_path: Path) -> RayJobs:
    """A client over each of the two ways to the dashboard."""
    token = tmp_path / "token"
    token.write_text(head.token)
    if request.param == "http":
        return RayJobs(RayDashboardOverHttp(head.url, 30, token_file=token))
    kubectl = write_kubectl(tmp_path / "kubectl", {"PATH": os.environ["PATH"]}, ("svc/head",))
    pod = PodExec(str(kubectl), "svc/head", namespace="training", container="ray-head")
    return RayJobs(RayDashboardInPod(pod, head.url, 30, token_file=token))


def test_a_job_comes_back_as_it_was_submitted_and_a_second_submission_is_the_first(head: Head, jobs: RayJobs) -> None:
    name = f"round-{id(jobs)}"
    sent = RaySubmission(name, "echo line; sleep 300", {"trainwarden_run_id": "r"}, {"env_vars": {"KEY": "s3cr3t"}})
    assert jobs.some([name])[1] == {name: None}
    assert jobs.submit(sent, RayReserved(num_gpus=1)).answer is CallAnswer.ACCEPTED
    again = jobs.submit(sent, RayReserved())
    assert (again.answer, "already" in again.detail) == (CallAnswer.ACCEPTED, True)
    wait_until(lambda: head.state(name) == "RUNNING", "it runs")
    found = jobs.some([name])[1][name]
    assert found is not None
    job = found.job
    assert (job.run_id, job.state, found.submission) == ("r", "running", sent)
    assert "s3cr3t" not in repr(found) + repr(again)
    assert jobs.reserved(name) == RayReserved(num_gpus=1)
    wait_until(lambda: "line" in jobs.logs(name), "its output")
    version, listed = jobs.all()
    assert listed[name].submission == sent
    assert version.session.startswith("session_")

    assert jobs.stop(name).answer is CallAnswer.ACCEPTED
    wait_until(lambda: head.state(name) == "STOPPED", "it has ended")
    wait_until(lambda: jobs.living_actors(job) == 0, "nothing of it lives")
    assert jobs.reserved(name) == RayReserved(num_gpus=1), "also after its end"


def test_a_package_that_is_kept_outlives_the_job_that_names_it_and_another_does_not(head: Head, jobs: RayJobs) -> None:
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as file:
        file.writestr("train.py", f"import time; time.sleep(2)  # {id(jobs)}")
    kept, lost = f"kept-{id(jobs)}.zip", f"lost-{id(jobs)}.zip"
    for name in (kept, lost):
        assert jobs.upload_package(name, content.getvalue()).answer is CallAnswer.ACCEPTED
        job = RaySubmission(f"of-{name}", "python train.py", {}, {"working_dir": f"gcs://{name}"})
        assert job.packages() == [name]
        assert jobs.submit(job, RayReserved()).answer is CallAnswer.ACCEPTED
    assert jobs.keep_package(kept)
    wait_until(lambda: {head.state(f"of-{name}") for name in (kept, lost)} == {"SUCCEEDED"}, "both have ended")
    for name in (kept, lost):
        ended = jobs.all()[1][f"of-{name}"].job
        wait_until(lambda: jobs.living_actors(ended) == 0, "nothing of it lives")  # noqa: B023  # called at once
    assert jobs.keep_package(kept)
    assert not jobs.keep_package(lost)


def test_what_ray_refuses_is_refused_and_what_it_does_not_know_is_absent(jobs: RayJobs) -> None:
    answer = jobs.submit(RaySubmission("bad", "true", {"key": 5}, {}), RayReserved())  # type: ignore[dict-item]
    assert (answer.answer, answer.detail.endswith("400 TypeError")) == (CallAnswer.REFUSED, True)
    assert jobs.stop("no-such-job").answer is CallAnswer.REFUSED
    assert jobs.reserved("no-such-job") is None


def test_a_head_that_is_gone_is_no_answer_and_a_call_to_it_is_unclear() -> None:
    jobs = RayJobs(RayDashboardOverHttp("http://127.0.0.1:9", 2))
    with pytest.raises(RayError):
        jobs.some(["any"])
    assert jobs.stop("any").answer is CallAnswer.UNCLEAR


def test_a_wrong_token_is_refused_and_not_shown(head: Head, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("0123456789abcdef")
    jobs = RayJobs(RayDashboardOverHttp(head.url, 30, token_file=token))
    with pytest.raises(RayError, match="403"):
        jobs.all()
    answer = jobs.submit(RaySubmission("x", "true", {}, {}), RayReserved())
    assert answer.answer is CallAnswer.REFUSED
    assert "0123456789abcdef" not in answer.detail
