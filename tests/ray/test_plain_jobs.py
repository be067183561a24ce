"""Jobs of a real head whose programs know nothing of Trainwarden, watched by `trainwarden ray`."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from tests.ray.acting_remediator import ActingRemediator, Training
from tests.ray.head import Head
from tests.ray.kubectl import write_kubectl
from tests.waiting import wait_until
from trainwarden.jobs.configuration import ray_configuration
from trainwarden.jobs.ray_watch import RayWatch
from trainwarden.record.metadata import Metadata, read_metadata
from trainwarden.record.progress import Progress, read_progress
from trainwarden.record.sentinels import Sentinel, read_sentinel
from trainwarden_remediator.incidents.incident import State
from trainwarden_remediator.observe.evidence import ReportedRun

pytestmark = [pytest.mark.ray, pytest.mark.timeout(240)]

_STEPS = 'for step in 1 2 3; do echo "step $step/1000 | loss 2.$step | lr 0.001"; done; '
_ON = 'while [ ! -e @/end ]; do sleep 0.2; done; echo "step 9/1000 | loss 2.1"; '
_NCCL = (
    'echo "[rank0]:[E1123 10:00:00.000000000 ProcessGroupNCCL.cpp:629] [Rank 0] Watchdog caught collective operation '
    'timeout: WorkNCCL(SeqNum=7, OpType=ALLREDUCE, Timeout(ms)=600000) ran for 600012 ms before timing out." >&2; '
    "exit 134; "
)
_OOM = 'echo "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 MiB." >&2; exit 1'
# A job that ends before the watch first looks has no record.
_RECORDED = "until [ -e {}/metadata.json ]; do sleep 0.2; done; "
# @ stands for the folder of the test.
_SCRIPTS = {
    "works": _STEPS + _ON,
    "oom": _STEPS + _RECORDED.format("@/runs/oom") + _OOM,
    "stopped": _STEPS + _ON,
    "again": _STEPS + _RECORDED.format("@/runs/again") + "exit 3",
}


@dataclass
class PlainJobs:
    """The jobs of a test, by the run that their metadata names, and what is recorded about them."""

    head: Head
    folder: Path
    ids: dict[str, str] = field(default_factory=dict)

    @property
    def runs(self) -> Path:
        """The folder of the records."""
        return self.folder / "runs"

    @property
    def session(self) -> Path:
        """The folder of the head's session."""
        return self.head.folder / "ray/session_latest"

    def submit(self, name: str, script: str, **metadata: str) -> str:
        """Submit a script; its submission id."""
        command = f"bash -c '{script.replace('@', str(self.folder))}'"
        self.ids[name] = self.head.submit(command, metadata={"team": "vision", **metadata})
        return self.ids[name]

    def start(self, *arguments: str, by_kubectl: bool = False) -> subprocess.Popen[str]:
        """Start `trainwarden ray`, which reaches the head by its address or as a pod of KubeRay."""
        token = self.folder / "token"
        token.write_text(self.head.token)
        way = [f"--ray-address={self.head.url}", f"--ray-token-file={token}"]
        variables: dict[str, str] = {}
        if by_kubectl:
            of_pod = {"PATH": os.environ["PATH"], "RAY_AUTH_TOKEN": self.head.token}
            kubectl = write_kubectl(self.folder / "kubectl", of_pod, ("svc/head",))
            way = ["--ray-head-pod=svc/head", "--ray-namespace=training"]
            variables = {"TRAINWARDEN_KUBECTL": str(kubectl), "TRAINWARDEN_RAY_DASHBOARD": self.head.url}
        command, *rest = arguments
        with (self.folder / f"{command}.err").open("w") as errors:
            return subprocess.Popen(
                [sys.executable, "-m", "trainwarden", "ray", command, *way, *rest],
                env={**os.environ, "HOME": str(self.folder), **variables},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )

    @contextmanager
    def watched(self) -> Iterator[None]:
        """`trainwarden ray watch` while the block runs, with the rule that all of the team are runs."""
        config = self.folder / "jobs.yml"
        config.write_text(f"runs_dir: {self.runs}\ngrace: 0\njobs: [{{match: {{metadata.team: vision}}}}]\n")
        config.chmod(0o600)
        watch = self.start("watch", f"--config={config}", "--interval=0.5", f"--ray-session-dir={self.session}")
        try:
            yield
        finally:
            watch.terminate()
            watch.communicate(timeout=30)

    def metadata(self, name: str) -> Metadata:
        """The metadata of a run; empty before there are any."""
        found = read_metadata(self.runs / name)
        return found if isinstance(found, Metadata) else Metadata()

    def status(self, name: str) -> str | None:
        """The status of a run."""
        return self.metadata(name).status

    def attempts(self, name: str) -> list[str]:
        """The keys of a run's attempts."""
        return [str(each.key) for each in self.metadata(name).attempts]

    def step(self, name: str) -> int | None:
        """The last step of a run."""
        found = read_progress(self.runs / name)
        return found.step if isinstance(found, Progress) else None

    def failure(self, name: str) -> str | None:
        """The cause of a run's failure."""
        found = read_sentinel(self.runs / name / "_error")
        return found.failure if isinstance(found, Sentinel) else None


class PlainTraining(Training):
    """A training whose evidence is what the watch has recorded."""

    @property
    def evidence(self) -> ReportedRun:
        folder = self.file.parent / "runs" / self.run_id
        metadata, progress, error = read_metadata(folder), read_progress(folder), read_sentinel(folder / "_error")
        assert isinstance(metadata, Metadata)
        assert isinstance(progress, Progress)
        failure = error.failure if isinstance(error, Sentinel) and metadata.status == "failed" else None
        number, key = metadata.attempt or 0, metadata.attempt_key or ""
        step = progress.step if progress.attempt_key == key else None
        return ReportedRun(
            self.run_id, number, key, metadata.status, step, progress.high_water, failure=failure, plain=True
        )


@pytest.fixture
def jobs(head: Head, tmp_path: Path) -> PlainJobs:
    return PlainJobs(head, tmp_path)


def test_plain_jobs_are_runs_whose_steps_ends_and_causes_are_seen(jobs: PlainJobs) -> None:
    adopted = jobs.submit("adopted", _STEPS + _ON)
    for name, script in _SCRIPTS.items():
        jobs.submit(name, script, trainwarden_run_id=name)
    with jobs.watched():
        # What has no run in its metadata is one by its submission id; adopted elsewhere, by the API alone, in the pod.
        adopt = jobs.start(
            "adopt", adopted, "--run-id=mine", f"--runs-dir={jobs.folder}/mine", "--interval=0.5",
            f"--ray-session-dir={jobs.folder}/none", by_kubectl=True,
        )  # fmt: skip
        for name in ("works", "stopped", adopted):
            wait_until(lambda: (jobs.status(name), jobs.step(name)) == ("running", 3), f"{name} at step 3")  # noqa: B023  # called at once
        wait_until(lambda: jobs.status("oom") == "failed", "the end of oom")
        wait_until(lambda: jobs.status("again") == "failed", "the end of again")
        assert (jobs.step("oom"), jobs.failure("oom")) == (3, "cuda_oom")
        jobs.head.end(jobs.ids["stopped"])
        wait_until(lambda: jobs.status("stopped") == "cancelled", "the end of stopped")

        first = jobs.ids["again"]
        second = jobs.submit("again", _STEPS + _ON, trainwarden_run_id="again")
        wait_until(lambda: jobs.attempts("again") == [f"ray:{each}:0" for each in (first, second)], "a second attempt")

        (jobs.folder / "end").touch()
        for name in ("works", "again", adopted):
            wait_until(lambda: jobs.status(name) == "succeeded", f"the end of {name}")  # noqa: B023  # as above
            assert jobs.step(name) == 9
        assert adopt.communicate(timeout=60)[0] == "run mine: succeeded\n"
        assert adopt.returncode == 0
    # Jobs of other tests may name runs, too.
    assert {"works", "oom", "stopped", "again", adopted} <= {path.name for path in jobs.runs.iterdir()}
    by_api = (jobs.folder / "mine/mine/logs/training_log_latest.txt").read_text()
    assert by_api == (jobs.runs / adopted / "logs/training_log_latest.txt").read_text()
    assert by_api.count("step 3/1000 | loss 2.3") == 1


def test_a_plain_job_that_nccl_s_watchdog_ended_is_restarted_and_its_log_proves_that_it_goes_on(
    jobs: PlainJobs, tmp_path: Path
) -> None:
    acting = ActingRemediator(jobs.head, tmp_path / "state")
    configuration = replace(ray_configuration(acting.folder / "runs"), grace=0.0)
    watch = RayWatch(acting.jobs, configuration, session=jobs.session)
    again = tmp_path / "again"
    recorded = _RECORDED.format(acting.folder / "runs/nccl")
    first = f'if [ ! -e {again} ]; then touch {again}; {recorded}{_NCCL}fi; echo "step 4/1000 | loss 2.0"; '
    training = PlainTraining("nccl", acting.folder / "nccl.starts", "", crashes=True)
    try:
        training.job_id = jobs.submit("nccl", _STEPS + first + _ON, trainwarden_run_id="nccl")

        def failed() -> bool:
            watch.look(5.0)
            found = read_metadata(acting.folder / "runs/nccl")
            return isinstance(found, Metadata) and found.status == "failed"

        wait_until(failed, "the record of its failure")
        assert training.evidence.failure == "nccl_watchdog_timeout"
        acting.trainings.append(training)
        acting.until(lambda: watch.look(5.0) and acting.over(training))
        [incident] = acting.incidents(training)
        assert incident.state is State.DONE, acting.report()
        assert training.evidence.attempt_key == f"ray:{incident.successor}:0"
        (tmp_path / "end").touch()
        wait_until(lambda: watch.look(5.0) and training.evidence.state == "succeeded", "the end of the second start")
    finally:
        watch.close()
        acting.close()
