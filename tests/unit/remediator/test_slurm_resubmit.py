"""A job of SLURM is submitted again: with what it had, as its owner, and only where nothing of it would be lost."""

from __future__ import annotations

import json
import os
import pwd
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.unit.remediator.test_slurm_driver import TARGET, Tools, entry
from trainwarden.clients import process
from trainwarden.clients.process import Completed, User
from trainwarden.clients.slurm import client as slurm_commands
from trainwarden_remediator.drivers.driver import CallOutcome, JobState, ScheduledJob, Shape
from trainwarden_remediator.drivers.slurm import SlurmDriver
from trainwarden_remediator.drivers.slurm_access import slurm_client
from trainwarden_remediator.drivers.slurm_resubmit import Resubmission

pytestmark = pytest.mark.process

AGAIN = replace(TARGET, shape=Shape.RESUBMIT)
SCRIPT = "#!/bin/sh\n#SBATCH --signal=B:USR1@60\nsrun train.py '$1'\n"
SHOWN = """\
JobId=17 JobName=a job
   UserId=x(1000) GroupId=x(1000) MCS_label=N/A
   NumNodes=2 NumCPUs=4 NumTasks=2 CPUs/Task=2 ReqB:S:C:T=0:0:*:*
   OverSubscribe=NO Contiguous=0 Licenses=(null) Network=(null)
   MailUser=alice MailType=END
"""
RECORD: dict[str, Any] = {
    "requeue": False,
    "group_id": os.getgid(),
    "name": "a job",
    "partition": "main",
    "account": "physics",
    "qos": "long",
    "node_count": 2,
    "tasks": 2,
    "time_limit": {"set": True, "infinite": False, "number": 17},
    "tres_per_node": "gres:gpu:a100:4",
    "memory_per_node": {"set": True, "infinite": False, "number": 4096},
    "excluded_nodes": "n[3-4]",
    "current_working_directory": "/data/a b",
    "standard_output": "logs/%x-%j.out",
    "priority": 7,
}


class Submitting(Tools):
    """The stand-ins, with those that submit and cancel; sbatch answers with job 23."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.jobs(entry(**RECORD))
        (folder / "script").write_text(SCRIPT)
        (folder / "shown").write_text(SHOWN)
        self.scontrol()
        self.sbatch("echo 23")
        self.write("scancel", 'echo "$@" >> "$0.log"')
        self.made = 0

    def scontrol(self, script: str = 'cat "${0%/*}/script"') -> None:
        shown = 'cat "${0%/*}/shown"'
        cases = f'"write batch_script") {script};; "show job") {shown};; *) echo "$@" >> "$0.log";;'
        self.write("scontrol", f'case "$1 $2" in {cases} esac')

    def sbatch(self, then: str) -> None:
        self.write("sbatch", f'printf "%s\\n" "$@" > "$0.args"; env > "$0.env"; cat > "$0.stdin"; {then}')

    @property
    def arguments(self) -> list[str]:
        return (self.folder / "sbatch.args").read_text().splitlines()

    def driver(self, **options: Any) -> SlurmDriver:
        client = slurm_client(self.folder, 20.0)
        return SlurmDriver(client, {os.getuid()}, Resubmission(client, self.folder / "kept"), **options)


@pytest.fixture
def tools(tmp_path: Path) -> Submitting:
    return Submitting(tmp_path)


def read(driver: SlurmDriver, job_id: str = "17") -> ScheduledJob:
    found = driver.job(job_id)
    assert isinstance(found, ScheduledJob)
    return found


def test_a_job_is_submitted_again_held_with_what_it_had_and_its_token(
    tools: Submitting, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SBATCH_PARTITION", "other")
    monkeypatch.setenv("A_SECRET_OF_THE_SERVICE", "x")
    job = read(tools.driver())
    assert (job.shape, job.refusal) == (Shape.RESUBMIT, None)
    answer = tools.driver().commit(replace(AGAIN, environment={"TRAINWARDEN_CHECKPOINT_TRUST": "layout"}))
    assert (answer.outcome, answer.job_id) == (CallOutcome.ACCEPTED, "23")
    assert set(tools.arguments) == {
        "--parsable",
        "--hold",
        "--no-requeue",
        "--dependency=",
        "--begin=now",
        "--open-mode=append",
        "--job-name=a job",
        "--partition=main",
        "--account=physics",
        "--qos=long",
        "--nodes=2",
        "--ntasks=2",
        "--cpus-per-task=2",
        "--time=17",
        "--gres=gpu:a100:4",
        "--mem=4096M",
        "--exclude=n[3-4]",
        "--exclusive",
        "--mail-user=alice",
        "--mail-type=END",
        "--chdir=/data/a b",
        "--output=logs/%x-%j.out",
        "--comment=trainwarden:run-1 trainwarden-submitted:intent-1 trainwarden-replaces:17",
    }
    assert (tools.folder / "sbatch.stdin").read_text() == SCRIPT
    variables = dict(line.partition("=")[::2] for line in (tools.folder / "sbatch.env").read_text().splitlines())
    for of_shell in ("PWD", "SHLVL", "_", "OLDPWD", "SLURM_CONF", "LD_LIBRARY_PATH"):
        variables.pop(of_shell, None)
    owner = pwd.getpwuid(os.getuid())
    assert variables == {
        "HOME": owner.pw_dir,
        "USER": owner.pw_name,
        "LOGNAME": owner.pw_name,
        "SHELL": owner.pw_shell,
        "PATH": os.environ["PATH"],
        "TRAINWARDEN_RUN_ID": "run-1",
        "TRAINWARDEN_CHECKPOINT_TRUST": "layout",
    }


def test_nothing_is_ended_before_its_script_is_kept_readable_for_nobody_else(tools: Submitting) -> None:
    assert tools.driver().prepare(AGAIN).outcome is CallOutcome.ACCEPTED
    assert tools.calls_of("scancel") == ["17"]
    kept = tools.folder / "kept" / "17.json"
    assert kept.stat().st_mode & 0o777 == 0o600
    tools.scontrol('echo "job script retrieval failed: Invalid job id specified" >&2')
    tools.jobs()  # slurmctld has forgotten it since
    assert tools.driver().commit(replace(AGAIN, ended=True)).job_id == "23"
    assert (tools.folder / "sbatch.stdin").read_text() == SCRIPT


def test_a_job_whose_script_is_gone_is_left_running_with_the_reason(tools: Submitting) -> None:
    tools.scontrol('echo "job script retrieval failed: Invalid job id specified" >&2')
    answer = tools.driver().prepare(AGAIN)
    assert answer.outcome is CallOutcome.REFUSED
    assert "it has no batch script" in answer.detail
    assert tools.calls_of("scancel") == []
    driver = tools.driver()
    assert any("it has no batch script" in each for each in driver.obstacles(read(driver)))


def test_where_slurm_does_not_show_the_script_for_now_it_is_asked_again(tools: Submitting) -> None:
    """A person was paged although nothing was wrong but one answer."""
    tools.scontrol('echo "Unable to contact slurm controller (connect failure)" >&2; exit 1')
    answer = tools.driver().prepare(AGAIN)
    assert answer.outcome is CallOutcome.UNCLEAR
    assert "nothing was called: the script of job 17 cannot be read: " in answer.detail
    assert tools.calls_of("scancel") == []
    assert tools.driver().commit(replace(AGAIN, ended=True)).outcome is CallOutcome.UNCLEAR
    driver = tools.driver()
    assert any("the script of job 17 cannot be read" in each for each in driver.obstacles(read(driver)))
    tools.scontrol()
    assert tools.driver().prepare(AGAIN).outcome is CallOutcome.ACCEPTED


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"tres_per_job": "gres:nvme:2"}, "tres_per_job"),
        ({"command": "/home/alice/job.sh 8"}, "with arguments"),
        ({"burst_buffer": "#BB create"}, "burst_buffer"),
        ({"name": "a\nJobState=FAILED"}, "no single line"),
        ({"group_id": None}, "no job, user or group"),
    ],
)
def test_what_cannot_be_given_again_is_refused_and_named(
    tools: Submitting, changes: dict[str, Any], reason: str
) -> None:
    tools.jobs(entry(**{**RECORD, **changes}))
    answer = tools.driver().prepare(AGAIN)
    assert answer.outcome is CallOutcome.REFUSED
    assert reason in answer.detail
    assert tools.calls_of("scancel") == []


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"array_job_id": 16, "array_task_id": 3}, "a task of an array"),
        ({"het_job_id": 17}, "heterogeneous"),
        ({"deadline": 4_000_000_000}, "--deadline"),
    ],
)
def test_arrays_and_their_like_are_refused_before_anything_is_called(
    tools: Submitting, changes: dict[str, Any], reason: str
) -> None:
    tools.jobs(entry(**{**RECORD, **changes}))
    assert reason in (read(tools.driver()).refusal or "")


def test_without_the_flag_a_job_that_cannot_be_requeued_is_left_alone(tools: Submitting) -> None:
    job = read(SlurmDriver(slurm_client(tools.folder, 20.0), {os.getuid()}))
    assert job.shape is None
    assert job.refusal == "job 17 was submitted with --no-requeue; see --slurm-resubmit"


def test_another_users_job_is_submitted_by_root_alone_and_as_that_user(
    tools: Submitting, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    refused = read(tools.driver()).refusal
    assert refused == (
        f"the job belongs to uid {os.getuid()}, and this remediator runs as uid {os.getuid() + 1}: only root and that "
        "user submit its job again"
    )
    nobody = pwd.getpwnam("nobody")
    tools.jobs(entry(**RECORD, user_id=nobody.pw_uid))
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    client = slurm_client(tools.folder, 20.0)
    driver = SlurmDriver(client, {nobody.pw_uid}, Resubmission(client, tools.folder / "kept"))
    users: list[User | None] = []
    real = process.run

    def run(argv: Any, seconds: float, **options: Any) -> Completed:
        user = options.pop("user", None)
        if argv[0].endswith("sbatch"):
            users.append(user)
        return real(argv, seconds, **options)

    monkeypatch.setattr(slurm_commands, "run", run)
    assert driver.commit(AGAIN).outcome is CallOutcome.ACCEPTED
    assert [(user.uid, user.gid) for user in users if user] == [(nobody.pw_uid, os.getgid())]
    variables = (tools.folder / "sbatch.env").read_text().splitlines()
    assert "USER=nobody" in variables
    assert not any(line.startswith(f"HOME={Path.home()}") for line in variables if Path.home() != Path(nobody.pw_dir))


@pytest.mark.parametrize(
    ("then", "outcome"),
    [
        ('echo "sbatch: error: Batch job submission failed: Invalid qos specification" >&2; exit 1', "REFUSED"),
        ('echo "sbatch: error: Batch job submission failed: Socket timed out on send/recv" >&2; exit 1', "UNCLEAR"),
        ('echo "sbatch: error: Unable to contact slurm controller (connect failure)" >&2; exit 1', "UNCLEAR"),
        ("kill -9 $$", "UNCLEAR"),
        ("echo", "UNCLEAR"),
    ],
)
def test_an_answer_without_an_id_may_be_that_of_a_job(tools: Submitting, then: str, outcome: str) -> None:
    tools.sbatch(then)
    answer = tools.driver().commit(AGAIN)
    assert (answer.outcome, answer.job_id) == (CallOutcome[outcome], "")


def held(job_id: int, **changes: Any) -> dict[str, Any]:
    comment = "trainwarden:run-1 trainwarden-submitted:intent-1 trainwarden-replaces:17"
    values = {"job_id": job_id, "job_state": "PENDING", "priority": 0, "state_reason": "JobHeldUser", "requeue": False}
    return entry(**{**values, "comment": comment, **changes})


def test_of_several_jobs_with_the_token_the_stored_one_is_released_and_the_others_are_cancelled_first(
    tools: Submitting,
) -> None:
    foreign = held(26, user_id=os.getuid() + 1)
    of_another_run = held(27, comment="trainwarden:run-2 trainwarden-submitted:intent-1")
    tools.jobs(entry(**RECORD), held(23), held(24), held(25, job_state="RUNNING", priority=7), foreign, of_another_run)
    target = replace(AGAIN, successor="24")
    submitted = tools.driver().submitted(target)
    assert isinstance(submitted, list)
    assert [job.job_id for job in submitted] == ["23", "24", "25"]
    assert tools.driver().commit(target).outcome is CallOutcome.ACCEPTED
    assert tools.calls_of("scancel") == ["--state=PENDING 23"]
    assert tools.called == ["release 24"]


def test_a_job_that_would_begin_beside_the_new_one_keeps_the_old_one_from_being_ended(tools: Submitting) -> None:
    waits = {"job_id": 18, "job_state": "PENDING", "comment": "", "name": "evaluate"}
    after = {"afterany:17(unfulfilled)": 1, "afterok:17(unfulfilled)": 0}
    for dependency, refused in after.items():
        tools.jobs(entry(**RECORD), entry(**waits, dependency=dependency))
        answer = tools.driver().prepare(AGAIN)
        assert (answer.outcome is CallOutcome.REFUSED, "job 18 waits for the end" in answer.detail) == (
            refused,
            refused,
        )
        driver = tools.driver()
        assert any("job 18 waits for the end" in each for each in driver.obstacles(read(driver))) == refused
    assert tools.calls_of("scancel") == ["17"]


def test_a_job_that_needs_the_success_of_the_old_one_is_pointed_at_the_new_one_before_that_is_released(
    tools: Submitting,
) -> None:
    waits = entry(job_id=18, job_state="PENDING", comment="", dependency="afterok:17(failed)")
    tools.jobs(entry(**{**RECORD, "job_state": "CANCELLED"}), waits, held(23))
    answer = tools.driver().commit(replace(AGAIN, successor="23"))
    assert "job 18 waits for the success of job 17, and is pointed at job 23" in answer.detail
    assert tools.called == ["update JobId=18 Dependency=afterok:23", "release 23"]


@pytest.mark.parametrize("changes", [{"job_state": "RUNNING", "priority": 7}, {"comment": "trainwarden:run-1"}])
def test_only_a_held_job_with_the_token_is_discarded(tools: Submitting, changes: dict[str, Any]) -> None:
    tools.jobs(held(23, **changes))
    assert tools.driver().discard(replace(AGAIN, successor="23")).outcome is CallOutcome.UNCLEAR
    assert tools.calls_of("scancel") == []


def test_a_job_past_its_time_in_slurmctld_comes_back_from_what_was_kept(tools: Submitting) -> None:
    driver = tools.driver()
    driver.obstacles(read(driver))  # as the sweep does of each job, which keeps what it takes
    tools.jobs()
    tools.write("sacct", 'echo "17|FAILED"')
    forgotten = read(tools.driver())
    assert (forgotten.state, forgotten.run_id, forgotten.shape) == (JobState.FAILED, "run-1", Shape.RESUBMIT)
    assert forgotten.refusal is None
    assert tools.driver().commit(AGAIN).job_id == "23"
    tools.write("sacct", 'echo "17|CANCELLED by 1000"')
    assert not isinstance(tools.driver().job("17"), ScheduledJob)


def test_a_script_that_is_no_utf8_is_submitted_byte_by_byte(tools: Submitting) -> None:
    script = SCRIPT.encode() + b"# \xff\xfe\n"
    (tools.folder / "script").write_bytes(script)
    assert tools.driver().commit(AGAIN).outcome is CallOutcome.ACCEPTED
    assert (tools.folder / "sbatch.stdin").read_bytes() == script
    assert json.loads((tools.folder / "kept" / "17.json").read_text())["job_id"] == "17"
