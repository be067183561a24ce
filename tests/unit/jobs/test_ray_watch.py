"""Records of Ray jobs that write none, from a head in memory. With a real one: tests/ray/test_plain_jobs.py."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.unit.remediator.fake_ray import FakeRay
from trainwarden.clients.ray_jobs import RayJobs
from trainwarden.jobs import ray_command
from trainwarden.jobs.configuration import DEFAULT_RAY_RUN_ID, JobRule, JobsConfiguration
from trainwarden.jobs.ray_run import SPOOL
from trainwarden.jobs.ray_watch import RayWatch
from trainwarden.ray.head import RayHead
from trainwarden.record.metadata import Metadata, read_metadata
from trainwarden.record.progress import Progress, read_progress
from trainwarden.record.sentinels import Sentinel, read_sentinel

NOW = 1_100.0
_ENTRY = (
    "2026-11-26 10:00:00,000\tINFO job_manager.py:531 -- Running entrypoint for job a: echo {'step': 900, 'loss': 2}\n"
)
_OOM = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\n"


class Cluster:
    """A head in memory, whose session is not on this machine unless a test makes its folder, and the watch over it."""

    def __init__(self, folder: Path, **configuration: Any) -> None:
        self.ray, self.runs, self.session = FakeRay(), folder / "runs", folder / "session_1"
        self.now = NOW
        rules = (JobRule({"metadata.team": ("vision*",)}, run_id=DEFAULT_RAY_RUN_ID),)
        self._configuration = JobsConfiguration(self.runs, **{"rules": rules, "grace": 0.0, **configuration})
        self.watch = self.again()

    def again(self) -> RayWatch:
        """The watch of the next process."""
        jobs = RayJobs(self.ray)
        self.watch = RayWatch(jobs, self._configuration, session=self.session, clock=lambda: self.now)
        return self.watch

    def add(self, name: str, run_id: str = "r", *, start: float = NOW, **fields: Any) -> None:
        """Add a job that runs and has printed nothing."""
        self.ray.add(name, run_id, start_time=int(start * 1000), **fields)
        self.ray.logs.setdefault(name, _ENTRY)

    def end(self, name: str, state: str, **fields: Any) -> None:
        """End a job now."""
        self.ray.jobs[name] |= {"status": state, "end_time": int(self.now * 1000), **fields}

    def look(self, times: int = 1) -> None:
        """Look, and let time pass."""
        for _ in range(times):
            self.now += 20.0
            self.watch.look(10.0)

    def metadata(self, run_id: str = "r") -> Metadata:
        """The metadata of a run."""
        found = read_metadata(self.runs / run_id)
        assert isinstance(found, Metadata), run_id
        return found

    def step(self, run_id: str = "r") -> int | None:
        """The last step of a run."""
        found = read_progress(self.runs / run_id)
        return found.step if isinstance(found, Progress) else None

    def log(self, run_id: str = "r") -> str:
        """The copy of the output in the record."""
        return (self.runs / run_id / "logs/training_log_latest.txt").read_text()


@pytest.fixture
def cluster(tmp_path: Path) -> Cluster:
    return Cluster(tmp_path)


def test_the_output_is_fetched_once_whole_and_then_what_is_new_also_by_the_next_process(cluster: Cluster) -> None:
    cluster.add("a")
    cluster.look()
    assert (cluster.metadata().status, cluster.step()) == ("running", None), "the entrypoint's number is no step"
    cluster.watch.close()
    cluster.again()
    cluster.ray.logs["a"] += "step 3/1000 | loss 2.0\n"
    cluster.look()
    assert cluster.step() == 3
    cluster.ray.logs["a"] += "step 4/1000 | loss 2.0\nstep 5/1000"
    cluster.look()
    cluster.watch.close()
    cluster.again()
    cluster.ray.logs["a"] += " | loss 2.0\n"
    cluster.look(2)
    assert cluster.step() == 5
    assert cluster.log() == cluster.ray.logs["a"], "each line once"
    cluster.ray.logs["a"] += _OOM
    cluster.end("a", "FAILED", driver_exit_code=1)
    cluster.look(2)
    error = read_sentinel(cluster.runs / "r/_error")
    assert isinstance(error, Sentinel)
    assert (cluster.metadata().status, error.failure) == ("failed", "cuda_oom")
    assert cluster.log() == cluster.ray.logs["a"]
    assert not (cluster.runs / "r" / SPOOL).exists()


def test_the_output_is_read_in_the_folder_of_the_session_where_that_is_the_head_s(cluster: Cluster) -> None:
    file = cluster.session / "logs/job-driver-a.log"
    file.parent.mkdir(parents=True)
    file.write_text("step 7/1000 | loss 2.0\n")
    cluster.add("a")
    cluster.look()
    assert cluster.step() == 7
    cluster.ray.session = "session_2"
    cluster.add("b", "other")
    cluster.ray.logs["b"] = "step 8/1000 | loss 2.0\n"
    (file.parent / "job-driver-b.log").write_text("step 9/1000 | loss 2.0\n")
    cluster.look()
    assert cluster.step("other") == 8, "of another head's session"


def test_a_head_that_gives_no_answer_or_has_forgotten_ends_nothing(cluster: Cluster) -> None:
    cluster.add("a")
    cluster.look()
    cluster.ray.is_down = True
    cluster.look(5)
    assert cluster.metadata().status == "running"
    cluster.ray.is_down, cluster.ray.session = False, "session_2"
    del cluster.ray.jobs["a"]
    cluster.look(5)
    assert cluster.metadata().status == "running"

    # The new session has another job of this id, which is not this attempt.
    cluster.add("a", start=cluster.now)
    cluster.end("a", "FAILED", driver_exit_code=1)
    cluster.look(3)
    assert cluster.metadata().status == "running"

    # The same work is submitted again: the forgotten job does not hold its run up.
    cluster.add("b", start=cluster.now)
    cluster.look()
    assert [str(each.key) for each in cluster.metadata().attempts] == ["ray:a:0", "ray:b:0"]


def test_another_job_of_the_same_id_in_a_new_session_does_not_end_the_one_before(cluster: Cluster) -> None:
    cluster.add("a")
    cluster.look()
    cluster.ray.session = "session_2"
    cluster.add("a", start=cluster.now)
    cluster.end("a", "FAILED", driver_exit_code=1)
    cluster.look(5)
    assert cluster.metadata().status == "running"


def test_a_submission_after_the_end_is_the_next_attempt_and_one_beside_it_a_run_of_its_own(cluster: Cluster) -> None:
    cluster.add("a")
    cluster.look()
    cluster.add("beside", start=NOW + 1)
    cluster.look()
    assert cluster.metadata("r-beside").status == "running"
    # Both are seen in one look.
    cluster.end("a", "STOPPED")
    cluster.add("b", start=NOW + 30)
    cluster.look(3)
    found = cluster.metadata()
    assert ([str(each.key) for each in found.attempts], found.status) == (["ray:a:0", "ray:b:0"], "running")


def test_an_end_is_written_though_its_output_cannot_be_fetched(cluster: Cluster) -> None:
    cluster.add("a")
    cluster.look()
    del cluster.ray.logs["a"]
    cluster.end("a", "SUCCEEDED")
    cluster.look(5)
    assert cluster.metadata().status == "succeeded"


@pytest.mark.parametrize(
    ("fields", "status", "reason"),
    [
        ({"error_type": "JOB_SUPERVISOR_ACTOR_DIED"}, "failed", "JOB_SUPERVISOR_ACTOR_DIED"),
        ({"driver_exit_code": -9}, "failed", "SIGKILL"),
        ({"driver_exit_code": 3}, "failed", "3"),
    ],
)
def test_what_ray_states_of_a_failure_is_in_the_record(
    cluster: Cluster, fields: dict[str, Any], status: str, reason: str
) -> None:
    cluster.add("a")
    cluster.look()
    cluster.end("a", "FAILED", **fields)
    cluster.look(2)
    assert cluster.metadata().status == status
    assert reason in (cluster.metadata().reason or "")


def test_jobs_of_a_rule_are_runs_and_others_and_those_that_ended_before_are_not(cluster: Cluster) -> None:
    cluster.add("ours", "", metadata={"team": "vision-1"})
    cluster.add("theirs", "", metadata={"team": "audio"})
    cluster.add("old", "", metadata={"team": "vision-1"}, status="SUCCEEDED", end_time=1)
    cluster.ray.jobs["02000000"] = {**cluster.ray.jobs["ours"], "submission_id": None, "job_id": "02000000"}
    cluster.look()
    assert [path.name for path in cluster.runs.glob("[!.]*")] == ["ours"]


def test_a_job_that_its_user_has_marked_may_write_its_record_itself(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path, grace=60.0)
    cluster.add("a", state="PENDING")
    cluster.look(5)
    cluster.ray.jobs["a"]["status"] = "RUNNING"
    cluster.look()
    assert not (cluster.runs / "r").exists()
    cluster.look(3)
    assert cluster.metadata().status == "running"


@pytest.fixture
def command(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> Cluster:
    """The head behind the command; the umask that the command sets is put back."""
    monkeypatch.setattr("os.umask", lambda mask: mask)
    monkeypatch.setattr(ray_command, "open_head", lambda *_: RayHead("head", cluster.ray, None))
    return cluster


def test_the_command_lists_watches_and_adopts(
    command: Cluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "jobs.yml"
    file.write_text(
        f"runs_dir: {command.runs}\ngrace: 0\njobs: [{{match: {{entrypoint: '*train.py'}}, run_id: x-%j}}]\n"
    )
    file.chmod(0o600)
    command.add("a", "")
    command.add("b", "", entrypoint="sleep 1")
    assert ray_command.main(["jobs", f"--config={file}"]) == 0
    assert capsys.readouterr().out == "a  running  x-a  by Ray's API\n"
    assert ray_command.main(["watch", f"--config={file}", "--once"]) == 0
    assert command.metadata("x-a").status == "running"
    command.end("b", "FAILED", driver_exit_code=2)
    adopt = ["adopt", "--interval=0.1", f"--runs-dir={command.runs}"]
    assert ray_command.main([*adopt, "b", "--run-id=mine"]) == 1
    assert capsys.readouterr().out == "run mine: failed\n"
    for wrong, named in ((["none"], "Ray has no job none"), (["../x"], "no submission id")):
        assert ray_command.main([*adopt, *wrong]) == 2
        assert named in capsys.readouterr().err
    command.ray.is_down = True
    assert ray_command.main(["jobs"]) == 3


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("jobs: [{match: {partition: gpu}}]", "metadata.KEY"),
        ("mark: true", "mark"),
        ("jobs: [{match: {entrypoint: x}, run_id: '%x'}]", "%j"),
    ],
)
def test_what_ray_does_not_have_is_refused_in_its_file(
    command: Cluster, tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, named: str
) -> None:
    file = tmp_path / "jobs.yml"
    file.write_text(text)
    file.chmod(0o600)
    assert ray_command.main(["watch", f"--config={file}", "--once"]) == 2
    assert named in capsys.readouterr().err
    assert not command.runs.exists()


def test_a_dashboard_that_cannot_be_reached_is_named_with_the_option_for_another(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert ray_command.main(["jobs", "--ray-address=http://127.0.0.1:1"]) == 3
    said = capsys.readouterr().err
    assert said.startswith("trainwarden ray: http://127.0.0.1:1: connection: ")
    assert said.endswith("; see --ray-address and --ray-head-pod\n")
