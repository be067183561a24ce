"""Jobs of a real SLURM that cannot be requeued come back under a new id: once, as they were, and held until then."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.slurm.acting_remediator import ActingRemediator
from tests.slurm.cluster import Cluster
from tests.waiting import wait_until
from trainwarden_remediator.drivers.driver import ScheduledJob
from trainwarden_remediator.drivers.slurm_marks import SUBMITTED_MARK
from trainwarden_remediator.incidents.incident import State

pytestmark = [pytest.mark.slurm, pytest.mark.tools, pytest.mark.e2e, pytest.mark.timeout(300)]

ASKED = ("--nodes=2", "--ntasks-per-node=1", "--cpus-per-task=2", "--time=17", "--nice=5", "--exclude=n3")
# Of `scontrol show job`, what a new job must have as the old one had it.
_KEPT = re.compile(
    r"(?:JobName|UserId|Nice|Account|QOS|Requeue|TimeLimit|Partition|ExcNodeList|NumNodes|NumCPUs|NumTasks|CPUs/Task|"
    r"OverSubscribe|Contiguous|Features|WorkDir|StdErr|StdOut|MailUser|MailType)=\S*"
)


@pytest.fixture
def acting(cluster: Cluster, tmp_path: Path) -> Iterator[ActingRemediator]:
    """A remediator that may submit jobs again."""
    made = ActingRemediator(cluster, tmp_path / "state", resubmit=True)
    try:
        yield made
    finally:
        made.close()


def kept(cluster: Cluster, job_id: int) -> list[str]:
    return _KEPT.findall(cluster.run("scontrol", "show", "job", str(job_id)))


@pytest.mark.seed("Monitoring and Automatic Restart", "Job Restart")
def test_a_job_that_hangs_comes_back_as_it_was_and_says_what_it_replaces(
    acting: ActingRemediator, tmp_path: Path
) -> None:
    out = f"--output={tmp_path}/%x-out.txt"
    asked = (*ASKED, out, "--job-name=a job", "--mail-type=END", f"--chdir={tmp_path}")
    training = acting.submit("resubmit-again", "--no-requeue", *asked)
    before = kept(acting.cluster, training.job_id)
    acting.until(lambda: acting.over(training))
    new = acting.came_back_once(training)
    assert kept(acting.cluster, new) == before
    shown = acting.cluster.run("scontrol", "show", "job", str(new))
    [incident] = acting.incidents(training)
    assert f"trainwarden:resubmit-again {SUBMITTED_MARK}{incident.id} trainwarden-replaces:{training.job_id}" in shown
    log = [event.detail for event in acting.store.with_events("resubmit-again")[0][1]]
    assert any(f"job {training.job_id} comes back as job {new}" in detail for detail in log), log
    pid = training.file.read_text(encoding="utf-8").splitlines()[-1].split()[1]
    variables = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    assert b"TRAINWARDEN_RUN_ID=resubmit-again" in variables
    assert not [each for each in variables if each.startswith((b"TZ=", b"LC_ALL="))], "of this process's commands"


@pytest.mark.seed("Monitoring and Automatic Restart", "Job Restart")
def test_a_job_that_has_failed_comes_back(acting: ActingRemediator) -> None:
    training = acting.submit("resubmit-failed", "--no-requeue")
    training.failure = "python_exception"
    training.end(3)
    wait_until(acting.cluster.in_state(training.job_id, "FAILED"), "the end of the job")
    training.file.with_suffix(".end").unlink()
    acting.until(lambda: acting.over(training))
    acting.came_back_once(training)
    assert [call.verb for call in acting.store.calls.of_job("slurm", str(training.job_id))] == ["submit", "commit"]


def test_of_two_jobs_with_one_token_one_is_kept_and_the_other_is_cancelled(acting: ActingRemediator) -> None:
    training = acting.submit("resubmit-twice", "--no-requeue")

    def submit_another() -> None:
        [incident] = acting.store.open_incidents()
        script = acting.folder / "resubmit-twice.sbatch"
        comment = f"--comment=trainwarden:resubmit-twice {SUBMITTED_MARK}{incident.id}"
        acting.cluster.submit(script, options=["--hold", "--no-requeue", comment])

    acting.at["submit: after call"] = submit_another
    acting.until(lambda: acting.over(training))
    acting.came_back_once(training)


def test_a_persons_cancel_of_the_held_job_is_the_last_word(acting: ActingRemediator) -> None:
    training = acting.submit("resubmit-unwanted", "--no-requeue")

    def cancel() -> None:
        [held] = [each for each, state in acting.queue("resubmit-unwanted").items() if state == "PENDING"]
        acting.cluster.run("scancel", held)

    acting.at["submit: after call"] = cancel
    acting.until(lambda: acting.over(training))
    [incident] = acting.incidents(training)
    assert incident.state is State.ADOPTED, acting.report()
    assert len(training.starts) == 1
    assert acting.queue("resubmit-unwanted") == {}


def test_a_chain_that_would_go_on_beside_the_new_job_is_left_alone(acting: ActingRemediator) -> None:
    training = acting.submit("resubmit-chain", "--no-requeue")
    script = acting.folder / "resubmit-chain.sbatch"
    options = ["--comment=trainwarden:resubmit-chain", f"--dependency=afterany:{training.job_id}"]
    waits = acting.cluster.submit(script, options=options)
    try:
        acting.until(lambda: acting.over(training))
        [incident] = acting.incidents(training)
        assert f"job {waits} is marked with the run too and waits" in incident.reason
        assert acting.queue("resubmit-chain")[str(training.job_id)] == "RUNNING"
    finally:
        acting.cluster.run("scancel", str(waits))


def test_a_job_that_needs_the_success_of_the_old_one_waits_for_the_new_one(
    acting: ActingRemediator, tmp_path: Path
) -> None:
    training = acting.submit("resubmit-needed", "--no-requeue")
    script = tmp_path / "evaluate.sbatch"
    script.write_text(f"#!/bin/sh\ntouch {tmp_path}/evaluated\n", encoding="utf-8")
    waits = acting.cluster.submit(script, options=[f"--dependency=afterok:{training.job_id}", "--output=/dev/null"])
    acting.until(lambda: acting.over(training))
    new = acting.came_back_once(training)
    log = "\n".join(event.detail for event in acting.store.with_events("resubmit-needed")[0][1])
    assert f"job {waits} waits for the success of job {training.job_id}, and is pointed at job {new}" in log
    assert f"Dependency=afterok:{new}(unfulfilled)" in acting.cluster.run("scontrol", "show", "job", str(waits))
    training.end(0)
    wait_until((tmp_path / "evaluated").exists, lambda: f"its start\n{acting.report()}")


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (("--dependency=afterany:{}",), "would begin beside the job that comes back"),
        (("--dependency=afternotok:{}",), "would begin beside the job that comes back"),
        (("--dependency=singleton", "--job-name={}"), "would begin beside the job that comes back"),
        (("--dependency=afterok:{}", "--kill-on-invalid-dep=yes"), "SLURM would cancel it with that one"),
    ],
    ids=["afterany", "afternotok", "singleton", "cancelled"],
)
def test_a_job_that_would_begin_or_be_cancelled_with_the_end_of_the_old_one_is_named_and_nothing_is_ended(
    acting: ActingRemediator, tmp_path: Path, options: tuple[str, ...], reason: str
) -> None:
    run_id = f"kept-{len(options)}-{options[0].rpartition('=')[2].partition(':')[0]}"
    training = acting.submit(run_id, "--no-requeue", f"--job-name={run_id}")
    script = tmp_path / "after.sbatch"
    script.write_text("#!/bin/sh\nexec sleep 1000\n", encoding="utf-8")
    of_job = [each.format(run_id if "name" in each else training.job_id) for each in options]
    waits = acting.cluster.submit(script, options=[*of_job, "--output=/dev/null"])
    try:
        acting.until(lambda: acting.over(training))
        [incident] = acting.incidents(training)
        assert (incident.state, incident.paging) == (State.ESCALATED, True), acting.report()
        assert f"job {waits} waits for the " in incident.reason
        assert reason in incident.reason
        assert acting.queue(run_id) == {str(training.job_id): "RUNNING"}
        found = acting.cluster.job(waits)
        assert found is not None
        assert found.state == "PENDING"
    finally:
        acting.cluster.run("scancel", str(waits))


def test_a_task_of_an_array_is_refused_with_the_reason(acting: ActingRemediator) -> None:
    training = acting.submit("resubmit-array", "--no-requeue", "--array=3")
    reading = acting.driver.snapshot().job(str(training.job_id))
    assert isinstance(reading, ScheduledJob)
    assert "is a task of an array" in (reading.refusal or "")
    acting.until(lambda: acting.over(training))
    assert len(training.starts) == 1
    assert "is a task of an array" in acting.incidents(training)[-1].reason


def test_a_job_whose_script_has_arguments_is_named_before_it_fails(acting: ActingRemediator, tmp_path: Path) -> None:
    script = tmp_path / "job.sbatch"
    script.write_text("#!/bin/sh\nexec sleep 1000\n", encoding="utf-8")
    options = ["--comment=trainwarden:arguments", "--no-requeue"]
    job_id = acting.cluster.submit(script, "8", options=options)
    try:
        driver = acting.driver.snapshot()
        reading = driver.job(str(job_id))
        assert isinstance(reading, ScheduledJob)
        assert any("submitted with arguments" in each for each in driver.obstacles(reading))
    finally:
        acting.cluster.run("scancel", str(job_id))
