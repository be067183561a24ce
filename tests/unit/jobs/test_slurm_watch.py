"""Records of jobs that write none, from lists of squeue and files of logs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.unit.clients.slurm.commands import job_22_05
from tests.unit.exporter.runs_tree import opened_files
from tests.users import ANOTHER, needs_root
from trainwarden.clients.slurm.client import ControlResult, SlurmClient, SlurmError
from trainwarden.clients.slurm.jobs import SlurmJob, read_job
from trainwarden.jobs.configuration import JobRule, JobsConfiguration
from trainwarden.jobs.job_record import JobRecord
from trainwarden.jobs.slurm_watch import SlurmWatch
from trainwarden.record.metadata import Metadata, read_metadata
from trainwarden.record.progress import Progress, read_progress
from trainwarden.record.sentinels import Sentinel, read_sentinel

START = 1795271886.0
_RULE = JobRule({"partition": ("gpu*",)})
_BY_SLURM = "slurmstepd: error: *** JOB 1 ON n1 CANCELLED AT 2026-11-26T10:00:00{} ***"
_OOM_KILL = "slurmstepd: error: Detected 1 oom_kill event in StepId=6.0. Some of the step tasks have been OOM Killed."
_ILLEGAL = "RuntimeError: CUDA error: an illegal memory access was encountered"


class ListedJobs(SlurmClient):
    """What the client commands would show of these jobs. The commands themselves are run in test_slurm_command.py."""

    def __init__(self) -> None:
        super().__init__({}, 1.0)
        self.listed: list[dict[str, Any]] = []
        self.is_down = False
        self.comments: list[tuple[str, str]] = []

    def jobs(self, *job_ids: str) -> Iterator[SlurmJob]:
        if self.is_down:
            raise SlurmError("failed", "slurm_load_jobs error: Unable to contact slurm controller")
        yield from map(read_job, self.listed)

    def update(self, target: str, **fields: str) -> ControlResult:
        self.comments.append((target, fields["Comment"]))
        return ControlResult(accepted=True, refused=False, detail="ok")


class Queue:
    """A cluster whose jobs a test changes, and the watch over it."""

    def __init__(self, folder: Path, **configuration: Any) -> None:
        self.slurm = ListedJobs()
        self.runs = folder / "runs"
        self.logs = folder / "logs"
        self.logs.mkdir()
        self.now = START
        self.jobs: dict[int, dict[str, Any]] = {}
        self._configuration = JobsConfiguration(self.runs, **{"rules": (_RULE,), "grace": 0.0, **configuration})
        self.watch = self._watch()

    def put(self, job_id: int, **changes: Any) -> Path:
        """Add or change a job; return its log."""
        known = self.jobs.get(job_id) or job_22_05(
            job_id,
            comment="",
            partition="gpu",
            restart_cnt=0,
            user_id=os.getuid(),
            start_time=int(START),
            current_working_directory=str(self.logs),
            standard_output=f"{job_id}.out",
        )
        self.jobs[job_id] = {**known, **changes}
        return self.logs / str(self.jobs[job_id]["standard_output"])

    def end(self, job_id: int, state: str, code: int = 0, signal: int = 0) -> None:
        """End a job."""
        self.put(job_id, job_state=state, exit_code=code << 8 | signal, end_time=int(self.now))

    def look(self, seconds: float = 20.0) -> None:
        """Let time pass, and look."""
        self.slurm.listed = list(self.jobs.values())
        self.now += seconds
        self.watch.look(1.0)

    def start_again(self) -> None:
        """Let another process watch."""
        self.watch.close()
        self.watch = self._watch()

    def _watch(self, *only: str) -> SlurmWatch:
        return SlurmWatch(self.slurm, self._configuration, only, clock=lambda: self.now)

    def adopt(self, job_id: int) -> None:
        """Let another process watch this job alone."""
        self.watch.close()
        self.watch = self._watch(str(job_id))

    def metadata(self, run_id: str) -> Metadata:
        """The metadata of a run."""
        found = read_metadata(self.runs / run_id)
        assert isinstance(found, Metadata), sorted(path.name for path in self.runs.iterdir())
        return found

    def error(self, run_id: str) -> Sentinel:
        """The failure of a run."""
        found = read_sentinel(self.runs / run_id / "_error")
        assert isinstance(found, Sentinel)
        return found

    def step(self, run_id: str) -> int | None:
        """The last step of a run."""
        found = read_progress(self.runs / run_id)
        return found.step if isinstance(found, Progress) else None


@pytest.fixture
def queue(tmp_path: Path) -> Iterator[Queue]:
    """A cluster without jobs."""
    found = Queue(tmp_path)
    yield found
    found.watch.close()


def test_a_job_of_a_rule_is_a_run_with_its_steps(queue: Queue) -> None:
    log = queue.put(1)
    queue.put(2, partition="cpu")
    log.write_text("loading\nstep 10/100 loss 2.5\n")
    queue.look()
    assert [path.name for path in queue.runs.glob("[!.]*")] == ["train-1"]
    metadata = queue.metadata("train-1")
    assert (metadata.status, metadata.attempt, metadata.attempt_key) == ("running", 0, "slurm:1:0")
    assert (metadata.job_id, metadata.scheduler, metadata.user_id) == ("1", "slurm", os.getuid())
    assert metadata.attempt_start_time == START
    assert queue.step("train-1") == 10
    with log.open("a") as file:
        file.write("step 20/100 loss 2.1\nstep 3")
    queue.look()
    assert queue.step("train-1") == 20
    copy = queue.runs / "train-1/logs/training_log_latest.txt"
    assert copy.read_text() == "loading\nstep 10/100 loss 2.5\nstep 20/100 loss 2.1\n"


@pytest.mark.parametrize(
    ("state", "code", "signal", "line", "status", "failure"),
    [
        ("COMPLETED", 0, 0, "done", "succeeded", None),
        ("FAILED", 1, 0, _ILLEGAL, "failed", "cuda_illegal_access"),
        ("FAILED", 1, 0, "OSError: [Errno 28] No space left on device", "failed", "storage_quota"),
        ("FAILED", 1, 0, "bye", "failed", "nonzero_exit"),
        ("FAILED", 143, 0, "bye", "failed", "terminated"),
        ("FAILED", 0, 11, "bye", "failed", "crash_signal"),
        ("FAILED", 143, 0, _BY_SLURM.format(""), "cancelled", None),
        ("FAILED", 143, 0, _BY_SLURM.format(" DUE TO TIME LIMIT"), "cancelled", None),
        ("FAILED", 143, 0, _BY_SLURM.format(" DUE TO PREEMPTION"), "cancelled", None),
        ("FAILED", 137, 0, _OOM_KILL, "failed", "host_oom"),
        ("FAILED", 0, 9, _OOM_KILL, "failed", "host_oom"),
        ("FAILED", 137, 0, "bye", "failed", "killed"),
        ("OUT_OF_MEMORY", 0, 125, "step 3", "failed", "host_oom"),
        ("NODE_FAIL", 0, 0, _ILLEGAL, "failed", "node_fail"),
        ("CANCELLED", 0, 15, _ILLEGAL, "cancelled", None),
        ("PREEMPTED", 0, 15, "bye", "cancelled", None),
        ("TIMEOUT", 0, 15, "bye", "cancelled", None),
    ],
)
def test_the_scheduler_names_the_end_and_the_log_the_cause(
    queue: Queue, state: str, code: int, signal: int, line: str, status: str, failure: str | None
) -> None:
    log = queue.put(1)
    queue.look()
    log.write_text(f"step 1/9 loss 2.0\n{line}")
    queue.end(1, state, code, signal)
    queue.look()
    queue.look()
    assert queue.metadata("train-1").status == status
    assert (queue.runs / "train-1/_error").exists() == (failure is not None)
    if failure:
        assert queue.error("train-1").failure == failure
        assert queue.error("train-1").attempt_key == "slurm:1:0"


def test_a_requeue_is_the_next_attempt_of_the_run(queue: Queue) -> None:
    log = queue.put(1)
    log.write_text("step 50/100 loss 2.0\n")
    queue.look()
    queue.put(1, job_state="PENDING", restart_cnt=1)
    queue.look()
    before = queue.metadata("train-1")
    assert (before.status, before.reason) == ("cancelled", "requeued")
    queue.put(1, job_state="RUNNING", start_time=int(START) + 60)
    log.write_text("step 41/100 loss 2.1\n")
    queue.look()
    now = queue.metadata("train-1")
    assert (now.status, now.attempt, now.attempt_key) == ("running", 1, "slurm:1:1")
    progress = read_progress(queue.runs / "train-1")
    assert isinstance(progress, Progress)
    assert (progress.step, progress.high_water, progress.attempt) == (41, 50, 1)


@pytest.mark.parametrize(
    ("lines", "status", "reason"),
    [
        (_BY_SLURM.format(" DUE TO JOB REQUEUE"), "cancelled", "requeued"),
        (_BY_SLURM.format(" DUE TO PREEMPTION"), "cancelled", "preempted"),
        (_BY_SLURM.format(" DUE TO TIME LIMIT"), "cancelled", "time limit"),
        (_BY_SLURM.format(""), "cancelled", "cancelled through the scheduler"),
        (f"{_ILLEGAL}\n{_BY_SLURM.format(' DUE TO JOB REQUEUE')}", "failed", None),
        (_BY_SLURM.format(" DUE TO NODE FAILURE, SEE SLURMCTLD LOG FOR DETAILS"), "failed", None),
    ],
)
def test_a_requeue_is_a_failure_only_where_the_log_names_another_cause_than_slurm(
    queue: Queue, lines: str, status: str, reason: str | None
) -> None:
    log = queue.put(1)
    queue.look()
    log.write_text(f"step 1/9 loss 2.0\n{lines}\n")
    queue.put(1, job_state="PENDING", restart_cnt=1)
    queue.look()
    metadata = queue.metadata("train-1")
    assert metadata.status == status
    assert reason is None or metadata.reason == reason
    assert (queue.runs / "train-1/_error").exists() == (status == "failed")


def test_a_job_that_is_submitted_again_with_the_same_mark_is_the_next_attempt(queue: Queue) -> None:
    queue.put(1, comment="trainwarden:llama")
    queue.look()
    queue.end(1, "FAILED", 1)
    queue.look()
    queue.look()
    queue.put(2, comment="trainwarden:llama")
    queue.look()
    metadata = queue.metadata("llama")
    assert (metadata.status, metadata.attempt, metadata.attempt_key) == ("running", 1, "slurm:2:0")
    assert not (queue.runs / "llama/_error").exists()


def test_two_jobs_of_one_name_at_the_same_time_are_two_runs(queue: Queue) -> None:
    for job_id in (1, 2):
        queue.put(job_id, comment="trainwarden:llama")
    queue.look()
    assert queue.metadata("llama").attempt_key == "slurm:1:0"
    assert queue.metadata("llama-2").attempt_key == "slurm:2:0"
    queue.start_again()
    queue.end(1, "COMPLETED")
    queue.look()
    queue.look()
    assert queue.metadata("llama").status == "succeeded"
    assert queue.metadata("llama-2").status == "running"
    assert len(list(queue.runs.glob("[!.]*"))) == 2


@pytest.mark.process
def test_one_process_at_a_time_writes_the_record_of_a_job(queue: Queue) -> None:
    """Such as `adopt`, while it runs; the watch goes on with the job then."""
    log = queue.put(1)
    log.write_text("step 10/100 loss 2.5\n")
    hold = "import os, sys; from trainwarden.record.locks import NamedLocks; "
    hold += "locks = NamedLocks(sys.argv[1]); print(locks.take('train-1'), locks.take('other'), flush=True); input()"
    other = subprocess.Popen(
        [sys.executable, "-c", hold, str(queue.runs / f".writers-{os.geteuid()}")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert other.stdout is not None
        assert other.stdout.readline() == "True True\n"
        queue.look()
        assert not (queue.runs / "train-1").exists()
        queue.adopt(1)
        queue.look()
        assert queue.watch.outcomes == {"1": ("train-1", "refused")}
        queue.start_again()
        queue.look()
        other.communicate("\n", timeout=60)
        queue.look()
        assert queue.step("train-1") == 10
    finally:
        other.kill()
        other.wait()


def test_the_tasks_of_an_array_are_runs_of_their_own(queue: Queue) -> None:
    for task in (1, 2):
        queue.put(10 + task, array_job_id=10, array_task_id=task, comment="trainwarden:sweep")
    queue.put(20, array_job_id=10, array_task_id=None, array_task_string="3-9", job_state="PENDING")
    queue.look()
    assert sorted(path.name for path in queue.runs.glob("[!.]*")) == ["sweep_1", "sweep_2"]


def test_another_process_goes_on_without_reading_anything_twice(queue: Queue) -> None:
    log = queue.put(1)
    log.write_text("step 10/100 loss 2.5\n")
    queue.look()
    queue.start_again()
    with log.open("a") as file:
        file.write("step 11/100 loss 2.4\n")
    queue.look()
    metadata = queue.metadata("train-1")
    assert (metadata.attempt, metadata.phase, metadata.attempt_start_time) == (0, "train", START)
    assert (queue.runs / "train-1/logs/training_log_latest.txt").read_text().count("step 10/") == 1
    assert queue.step("train-1") == 11


def test_a_restarted_watch_keeps_a_hang_in_the_phase_that_it_hangs_in(queue: Queue) -> None:
    queue.put(1).write_text("step 10/100 loss 2.5\n")
    queue.look()
    before = queue.metadata("train-1")
    queue.start_again()
    queue.look()
    after = queue.metadata("train-1")
    assert (before.phase, before.phase_time) == (after.phase, after.phase_time) == ("train", before.phase_time)


def test_a_job_that_ends_while_nobody_watches_is_ended_by_the_next_process(queue: Queue) -> None:
    for job_id in (1, 2):
        queue.put(job_id, comment="trainwarden:llama")
    queue.look()
    queue.watch.close()
    for job_id in (1, 2):
        (queue.logs / f"{job_id}.out").write_text(f"{_ILLEGAL}\n")
        queue.end(job_id, "FAILED", 1)
    queue.now += 600
    queue.start_again()
    queue.look()
    for run_id in ("llama", "llama-2"):
        assert queue.metadata(run_id).status == "failed"
        assert queue.error(run_id).failure == "cuda_illegal_access"


def test_a_job_that_had_ended_before_anything_watched_is_no_run(queue: Queue) -> None:
    queue.put(1)
    queue.end(1, "FAILED", 1)
    queue.now += 60
    queue.start_again()
    queue.look()
    assert not queue.runs.exists()


def test_a_job_that_ends_and_is_forgotten_while_nobody_watches_is_ended_by_its_log(queue: Queue) -> None:
    for job_id in (1, 2):
        queue.put(job_id)
    queue.look()
    queue.watch.close()
    (queue.logs / "1.out").write_text(f"{_ILLEGAL}\n")
    queue.jobs.clear()
    queue.start_again()
    for _ in range(3):
        queue.look()
    assert queue.error("train-1").failure == "cuda_illegal_access"
    assert (queue.metadata("train-1").status, queue.metadata("train-2").status) == ("failed", "running")


def test_a_job_is_adopted_across_its_requeues_until_it_ends(queue: Queue) -> None:
    queue.adopt(1)
    queue.put(1)
    queue.look()
    queue.put(1, job_state="PENDING", restart_cnt=1)
    for _ in range(4):
        queue.look()
    assert not queue.watch.outcomes
    queue.put(1, job_state="RUNNING")
    queue.look()
    assert queue.metadata("train-1").attempt_key == "slurm:1:1"
    queue.end(1, "COMPLETED")
    queue.look()
    assert queue.watch.outcomes == {"1": ("train-1", "succeeded")}


def test_a_marked_job_is_adopted_beyond_a_failure_as_long_as_slurm_may_start_it_again(tmp_path: Path) -> None:
    queue = Queue(tmp_path, mark=True)
    queue.adopt(1)
    queue.put(1)
    queue.look()
    queue.end(1, "FAILED", 1)
    for _ in range(3):
        queue.look()
    assert queue.metadata("train-1").status == "failed"
    assert not queue.watch.outcomes
    queue.put(1, job_state="RUNNING", restart_cnt=1, end_time=0)
    queue.look()
    assert queue.metadata("train-1").attempt_key == "slurm:1:1"
    queue.end(1, "FAILED", 1)
    queue.look()
    del queue.jobs[1]
    queue.look()
    assert queue.watch.outcomes == {"1": ("train-1", "failed")}
    queue.watch.close()


def test_an_adopted_job_that_slurm_forgets_has_an_unknown_end(queue: Queue) -> None:
    queue.adopt(1)
    queue.put(1)
    queue.look()
    del queue.jobs[1]
    for _ in range(3):
        queue.look()
    assert queue.watch.outcomes == {"1": ("train-1", "unknown")}


def test_an_adopted_job_that_is_forgotten_between_two_starts_has_an_unknown_end(queue: Queue) -> None:
    queue.adopt(1)
    queue.put(1)
    queue.look()
    queue.put(1, job_state="PENDING", restart_cnt=1)
    queue.look()
    del queue.jobs[1]
    queue.look()
    assert queue.watch.outcomes == {"1": ("-", "unknown")}


def test_a_job_whose_record_is_anothers_is_not_adopted(queue: Queue) -> None:
    (queue.runs / "llama").mkdir(parents=True)
    written = {"run_id": "llama", "status": "running", "attempt_key": "slurm:1:0", "pid": 7}
    (queue.runs / "llama/metadata.json").write_text(json.dumps(written))
    queue.adopt(1)
    queue.put(1, comment="trainwarden:llama")
    queue.look()
    assert queue.watch.outcomes == {"1": ("llama", "refused")}


def test_a_job_whose_record_has_ended_is_adopted_no_second_time(queue: Queue) -> None:
    queue.put(1)
    queue.look()
    queue.end(1, "FAILED", 1)
    queue.look()
    queue.adopt(1)
    queue.look()
    assert queue.watch.outcomes == {"1": ("train-1", "failed")}


def test_the_logs_of_a_job_are_found_once_it_has_its_nodes(queue: Queue) -> None:
    queue.put(1, standard_output="%N.out", nodes="", job_state="CONFIGURING")
    queue.look()
    (queue.logs / "n7.out").write_text("step 10/100 loss 2.5\n")
    queue.put(1, nodes="n7", batch_host="n7", job_state="RUNNING")
    queue.look()
    queue.look()
    assert queue.step("train-1") == 10


def test_a_log_that_is_on_a_disk_of_the_node_is_said_once(queue: Queue, caplog: pytest.LogCaptureFixture) -> None:
    queue.put(1, standard_output="/tmp/no-such-folder/%x.out")
    queue.put(2).write_text("step 1/9 loss 2.0\n")
    for _ in range(20):
        queue.look()
    said = [record.message for record in caplog.records if "none of its logs is there" in record.message]
    assert len(said) == 1
    assert said[0].startswith("run train-1: none of its logs is there (/tmp/no-such-folder/train.out)")
    assert queue.metadata("train-1").status == "running"


def test_a_log_that_cannot_be_read_stops_neither_the_others_nor_their_ends(
    queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    for job_id in (1, 2):
        queue.put(job_id)
    queue.look()
    answers = threading.Event()
    read = JobRecord.read_to_end
    monkeypatch.setattr(
        JobRecord, "read_to_end", lambda self: (self.job.run_id != "train-1" or answers.wait(60)) and read(self)
    )
    for job_id in (1, 2):
        queue.end(job_id, "COMPLETED")
    queue.put(3)
    queue.look()
    assert queue.metadata("train-2").status == "succeeded"
    assert queue.metadata("train-3").status == "running"
    assert queue.metadata("train-1").status == "running"
    answers.set()
    queue.look()
    assert queue.metadata("train-1").status == "succeeded"


def test_a_scheduler_that_does_not_answer_ends_nothing(queue: Queue) -> None:
    queue.put(1)
    queue.look()
    queue.slurm.is_down = True
    queue.now += 100
    assert not queue.watch.look()
    assert queue.metadata("train-1").status == "running"


def test_a_job_that_slurm_forgot_is_not_taken_for_failed(queue: Queue) -> None:
    queue.put(1)
    queue.look()
    del queue.jobs[1]
    for _ in range(5):
        queue.look()
    assert queue.metadata("train-1").status == "running"
    assert not queue.watch.runs


def test_a_record_that_a_training_writes_itself_is_left_alone(queue: Queue) -> None:
    folder = queue.runs / "llama"
    folder.mkdir(parents=True)
    written = json.dumps({"run_id": "llama", "status": "running", "attempt_key": "slurm:1:0", "pid": 7})
    (folder / "metadata.json").write_text(written)
    queue.put(1, comment="trainwarden:llama")
    queue.look()
    assert (folder / "metadata.json").read_text() == written


def test_a_run_of_one_user_gets_no_attempt_by_another(queue: Queue) -> None:
    queue.put(1, comment="trainwarden:llama")
    queue.look()
    queue.end(1, "COMPLETED")
    queue.look()
    queue.look()
    queue.put(2, comment="trainwarden:llama", user_id=os.getuid() + 1)
    queue.look()
    assert queue.metadata("llama").attempt_key == "slurm:1:0"


def test_a_user_with_many_jobs_takes_no_place_of_a_user_with_few(tmp_path: Path) -> None:
    queue = Queue(tmp_path, max_jobs=4)
    for job_id in range(1, 11):
        queue.put(job_id, user_id=os.getuid() + 1)
    for job_id in (11, 12):
        queue.put(job_id, user_id=os.getuid() + 2)
    queue.look()
    assert sorted(map(int, queue.watch.runs)) == [1, 2, 11, 12]
    queue.watch.close()


@pytest.mark.parametrize("mode", [0o600, 0o644])
def test_only_logs_of_the_jobs_user_are_read(
    queue: Queue, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, mode: int
) -> None:
    log = queue.put(1, user_id=os.getuid() + 1)
    log.write_text("step 10/100 loss 2.5\nthe launch is on monday\n")
    log.chmod(mode)
    opened = opened_files(monkeypatch)
    queue.look()
    assert queue.metadata("train-1").status == "running"
    assert queue.step("train-1") is None
    copies = [path for path in queue.runs.rglob("*") if path.is_file() and b"monday" in path.read_bytes()]
    assert not copies
    assert log.name not in opened
    assert "belongs to another user" in caplog.text


@pytest.mark.parametrize("name", ["pipe", "link"])
def test_a_path_that_leads_to_no_plain_file_is_not_opened(
    queue: Queue, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Opening a watchdog starts it, which a job's user can name as its output."""
    os.mkfifo(queue.logs / "pipe")
    (queue.logs / "link").symlink_to("pipe")
    queue.put(1, standard_output=name)
    opened = opened_files(monkeypatch)
    queue.look()
    assert queue.metadata("train-1").status == "running"
    assert not {"pipe", "link"} & set(opened)
    assert "is no plain file" in caplog.text


def copies(queue: Queue) -> dict[str, int]:
    """The bytes of all copies of each run's log, of those that have some."""
    found = {run.name: sum(each.stat().st_size for each in run.glob("logs/*")) for run in queue.runs.glob("[!.]*")}
    return {name: size for name, size in found.items() if size}


def end_jobs(queue: Queue, ids: range, **changes: Any) -> None:
    """Let jobs print 1000 bytes each and end, one after the other."""
    for job_id in ids:
        log = queue.put(job_id, **changes)
        log.write_bytes(b"x" * 999 + b"\n")
        os.chown(log, queue.jobs[job_id]["user_id"], -1)
        queue.look()
        queue.end(job_id, "COMPLETED")
        queue.look()
        for each in queue.runs.glob(f"train-{job_id}/logs/*"):
            os.utime(each, (START + job_id, START + job_id))


def test_the_copies_of_a_users_logs_are_bounded_and_the_oldest_go_first(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    queue = Queue(tmp_path, max_log_bytes=10_500)
    end_jobs(queue, range(1, 31))
    assert copies(queue) == {f"train-{job_id}": 1000 for job_id in range(21, 31)}
    assert {queue.metadata(f"train-{job_id}").status for job_id in range(1, 31)} == {"succeeded"}
    assert len([line for line in caplog.messages if "max_log_bytes" in line]) == 1
    queue.put(31).write_bytes((b"y" * 999 + b"\n") * 12)
    queue.look()
    assert copies(queue) == {}
    with (queue.logs / "31.out").open("ab") as log:
        log.write(b"z" * 999 + b"\n")
    queue.look()
    assert copies(queue) == {"train-31": 1000}
    queue.watch.close()


@needs_root
def test_the_logs_of_a_user_cost_those_of_no_other(tmp_path: Path) -> None:
    queue = Queue(tmp_path, max_log_bytes=10_500)
    end_jobs(queue, range(1, 6))
    end_jobs(queue, range(6, 26), user_id=ANOTHER)
    assert set(copies(queue)) == {f"train-{job_id}" for job_id in (*range(1, 6), *range(16, 26))}
    queue.watch.close()


def test_a_job_that_its_user_has_marked_has_time_to_write_a_record(tmp_path: Path) -> None:
    queue = Queue(tmp_path, rules=(), grace=60.0)
    queue.put(1, comment="trainwarden:llama")
    queue.look()
    assert not queue.runs.exists()
    queue.look(60.0)
    assert queue.metadata("llama").status == "running"
    queue.watch.close()


def test_a_run_is_written_into_the_comment_of_its_job(tmp_path: Path) -> None:
    queue = Queue(tmp_path, mark=True)
    queue.put(1, comment="urgent")
    queue.put(2, comment="trainwarden:llama")
    queue.look()
    queue.look()
    assert queue.slurm.comments == [("1", "urgent trainwarden:train-1")]
    queue.watch.close()


def test_silence_is_a_stall_only_where_a_budget_is_given(tmp_path: Path) -> None:
    quiet = JobRule({"partition": ("gpu",)}, inactivity=1200.0)
    queue = Queue(tmp_path, rules=(quiet, JobRule({"partition": ("other",)})))
    for job_id, partition in ((1, "gpu"), (2, "other")):
        queue.put(job_id, partition=partition).write_text("no steps here\n")
    queue.look()
    silent, unjudged = queue.metadata("train-1"), queue.metadata("train-2")
    assert (silent.phase, silent.phase_source, silent.thresholds.stall_seconds["train"]) == ("train", "output", 1200.0)
    assert unjudged.phase == "idle"
    queue.watch.close()
