"""A command as a batch job of SLURM, followed over its requeues. With a real one: tests/e2e/test_demo.py."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from trainwarden.clients.slurm.client import ControlResult, SlurmClient, SlurmError, Submission
from trainwarden.clients.slurm.jobs import SlurmJob, read_job
from trainwarden.errors import UsageError
from trainwarden.record.metadata import Metadata, read_metadata
from trainwarden.record.store import RecordStore
from trainwarden.record.thresholds import choose
from trainwarden.stack import launcher
from trainwarden.stack.launcher import Job
from trainwarden.stack.run_recorder import RunRecorder
from trainwarden.stack.scheduled_launcher import ScheduledCommand
from trainwarden.stack.service import ServiceFailed
from trainwarden.stack.slurm_launcher import SlurmCluster, SlurmLauncher


class FakeSlurm(SlurmClient):
    """A cluster of one job, whose record is `job`; None where SLURM gives no answer."""

    def __init__(self) -> None:
        self.job: dict[str, Any] | None = {"job_id": 7, "job_state": ["PENDING"], "restart_cnt": 0}
        self.called: list[tuple[str, ...]] = []
        self.script, self.environment = "", dict[str, str]()
        self.submission = Submission("7", "job 7")
        self.released = ControlResult(accepted=True, refused=False, detail="scontrol release 7")

    def now(self, state: str, restarts: int = 0, **fields: Any) -> None:
        self.job = {"job_id": 7, "job_state": state.split("+"), "restart_cnt": restarts, **fields}

    def jobs(self, *job_ids: str) -> Iterator[SlurmJob]:
        if self.job is None:
            raise SlurmError("timeout", "squeue gave no answer")
        yield read_job(self.job)

    def submit(
        self, script: str, *options: str, environment: Mapping[str, str] | None = None, user: object = None
    ) -> Submission:
        self.script, self.environment = script, dict(environment or {})
        self.called.append(("sbatch", *options))
        return self.submission

    def control(self, verb: str, target: str, *options: str) -> ControlResult:
        self.called.append((verb, target))
        return self.released

    def cancel(self, target: str) -> ControlResult:
        self.called.append(("scancel", target))
        return ControlResult(accepted=True, refused=False, detail="")


@pytest.fixture
def slurm() -> FakeSlurm:
    return FakeSlurm()


@pytest.fixture
def seen() -> list[Job]:
    """The changes that were reported."""
    return []


@pytest.fixture
def made(slurm: FakeSlurm, seen: list[Job], tmp_path: Path) -> SlurmLauncher:
    """What follows the job; each `look()` is one reading."""
    record = tmp_path / "100%" / "run-1"
    what = ScheduledCommand(
        ["sh", "-c", "echo 'two words'"],
        "run-1",
        folder=tmp_path,
        environment={"TRAINWARDEN_RUN_ID": "run-1", "SLURM_JOB_ID": "1", "SBATCH_HOLD": "1", "SLURM_CONF": "/conf"},
        log=record / "logs" / "training_log_latest.txt",
        recorder=RunRecorder(record, choose(None, {})),
        notify=seen.append,
    )
    return SlurmLauncher(what, slurm, ["--gpus=8"])


def metadata(tmp_path: Path) -> Metadata:
    found = read_metadata(tmp_path / "100%" / "run-1")
    assert isinstance(found, Metadata)
    return found


def test_the_job_is_held_until_its_record_is_open(made: SlurmLauncher, slurm: FakeSlurm, tmp_path: Path) -> None:
    made.submit()
    (sbatch, release) = slurm.called
    assert {"--gpus=8", "--hold", "--requeue", "--comment=trainwarden:run-1", f"--chdir={tmp_path}"} < set(sbatch)
    assert f"--output={tmp_path}/100%%/run-1/logs/training_log_latest.txt" in sbatch, (
        "a percent sign is none of SLURM's"
    )
    assert release == ("release", "7")
    assert slurm.script.endswith("""/sh -c 'echo '"'"'two words'"'"''\n""")
    assert slurm.environment == {"PYTHONUNBUFFERED": "1", "TRAINWARDEN_RUN_ID": "run-1", "SLURM_CONF": "/conf"}
    assert (metadata(tmp_path).attempt_key, metadata(tmp_path).status) == ("slurm:7:0", "pending")
    made.look()
    assert metadata(tmp_path).status == "pending", "it waits"


def test_a_requeue_is_the_end_of_one_start_and_the_wait_for_the_next(
    made: SlurmLauncher, slurm: FakeSlurm, seen: list[Job], tmp_path: Path
) -> None:
    made.submit()
    slurm.now("RUNNING", start_time=1_700_000_000)
    made.look()
    assert made.job.started == 1_700_000_000
    RecordStore(tmp_path / "100%" / "run-1").announce_restart("slurm:7:0", "it hangs", "i", None)
    made.look()
    slurm.now("PENDING+COMPLETING", 1)
    made.look()
    assert made.job.generation == 0, "its processes may still run"
    slurm.now("PENDING", 1)
    made.look()
    assert (made.job.attempt_key, made.job.over) == ("slurm:7:1", False)
    assert metadata(tmp_path).attempt_key == "slurm:7:1"
    slurm.now("RUNNING", 1)
    made.look()
    slurm.now("COMPLETED", 1, end_time=1_700_000_100, exit_code=0)
    made.look()
    made.look()
    states = [(job.generation, job.state, job.exit_code) for job in seen]
    assert states == [
        (0, "running", None),
        (0, "stopping", None),
        (0, "failed", 143),
        (1, "running", None),
        (1, "completed", 0),
    ]
    assert seen[2].tokens == {"restart": 1}
    assert made.job.ended == 1_700_000_100


@pytest.mark.parametrize(
    ("state", "status", "expected", "code"),
    [
        ("FAILED", 3 << 8, launcher.FAILED, 3),
        ("FAILED", 9, launcher.FAILED, -9),
        ("NODE_FAIL", 0, launcher.FAILED, 1),
        ("TIMEOUT", 0, launcher.FAILED, 1),
        ("CANCELLED", 0, launcher.CANCELLED, 143),
        ("COMPLETED", 0, launcher.COMPLETED, 0),
    ],
)
def test_how_a_start_has_ended(
    made: SlurmLauncher, slurm: FakeSlurm, state: str, status: int, expected: str, code: int
) -> None:
    made.submit()
    slurm.now(state, exit_code=status, end_time=1_700_000_100)
    made.look()
    assert (made.job.state, made.job.exit_code) == (expected, code)


def test_a_failed_start_that_is_requeued_is_not_ended_twice(
    made: SlurmLauncher, slurm: FakeSlurm, seen: list[Job]
) -> None:
    made.submit()
    slurm.now("FAILED", exit_code=256, end_time=1)
    made.look()
    slurm.now("PENDING", 1)
    made.look()
    assert [(job.generation, job.state) for job in seen] == [(0, "failed")]
    assert (made.job.generation, made.job.over) == (1, False)


def test_no_answer_is_no_end_and_a_job_that_slurm_does_not_have_is_over(made: SlurmLauncher, slurm: FakeSlurm) -> None:
    made.submit()
    slurm.job = None
    made.look()
    assert not made.job.over
    slurm.job = {"job_id": 8, "job_state": ["RUNNING"], "restart_cnt": 0}
    made.look()
    assert made.job.state == launcher.CANCELLED, "nobody has seen it fail"


def test_a_job_that_is_not_taken_or_cannot_be_released_is_named(made: SlurmLauncher, slurm: FakeSlurm) -> None:
    slurm.released = ControlResult(accepted=False, refused=True, detail="scontrol release 7: denied")
    with pytest.raises(ServiceFailed, match="SLURM: scontrol release 7: denied; the job was cancelled"):
        made.submit()
    assert slurm.called[-1] == ("scancel", "7")
    slurm.submission = Submission(None, "sbatch: invalid partition", refused=True)
    with pytest.raises(ServiceFailed, match="SLURM: sbatch: invalid partition"):
        made.submit()


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ("gpus=8", "expected --NAME or --NAME=VALUE"),
        ("-N2", "expected --NAME or --NAME=VALUE"),
        ("--comment=mine", "--comment is set by trainwarden up itself"),
        ("--no-requeue", "--no-requeue is set by trainwarden up itself"),
    ],
)
def test_options_that_would_change_what_is_followed_are_refused(option: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        SlurmCluster(None, ["--nodes=2", option]).check()


def test_commands_that_are_missing_are_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"--driver slurm: squeue and .* not found in .*; see --slurm-bin-dir"):
        SlurmCluster(tmp_path).check()
