"""Batch scripts without the library on a real cluster, with all of Trainwarden around it: watched and restarted."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from tests.slurm.cluster import Cluster
from tests.slurm.watched_cluster import WatchedCluster
from tests.waiting import wait_until
from trainwarden.record.metadata import Metadata, read_metadata
from trainwarden.record.progress import Progress, read_progress
from trainwarden.record.sentinels import Sentinel, read_sentinel
from trainwarden.stack.binaries import Tools

pytestmark = [pytest.mark.slurm, pytest.mark.tools, pytest.mark.e2e, pytest.mark.timeout(600)]

# All that these scripts have to do with Trainwarden is that they have a name.
_STEPS = """\
#!/bin/bash
#SBATCH --requeue
step=$(( ${SLURM_RESTART_COUNT:-0} * 20 ))
for _ in $(seq 20); do step=$((step + 1)); echo "step $step/10000 | loss 2.$step | lr 0.001"; sleep 0.1; done
"""
_ON = """\
while true; do step=$((step + 1)); echo "step $step/10000 | loss 2.$step | lr 0.001"; sleep 0.2; done
"""
# Takes some CPU time, as the start of any training does.
_LOAD = "for _ in $(seq 1500000); do :; done\n"
_FIRST = '[ "${SLURM_RESTART_COUNT:-0}" = 0 ] && '
_BROKEN = (
    'echo "[rank0]:[E1123 10:00:00.000000000 ProcessGroupNCCL.cpp:629] [Rank 0] Watchdog caught collective operation '
    'timeout: WorkNCCL(SeqNum=7, OpType=ALLREDUCE, Timeout(ms)=600000) ran for 600012 ms before timing out." >&2; '
    "exit 134;"
)
# @ stands for the folder of the test.
_SCRIPTS = {
    "success": _STEPS,
    "oom": _STEPS + 'echo "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 MiB." >&2; exit 1\n',
    "disk": _STEPS + 'echo "OSError: [Errno 28] No space left on device" >&2; exit 1\n',
    "hang": _STEPS + _LOAD + _FIRST + "sleep 3600\n" + _ON,
    # It works on, and prints nothing of that for long.
    "buffered": _STEPS + _LOAD + "while true; do for _ in $(seq 60000); do :; done; sleep 0.2; done\n",
    "nccl": _STEPS + _FIRST + f"{{ {_BROKEN} }}\n" + _ON,
    # It leaves a good checkpoint, a torn one, and a folder whose layout promises nothing.
    "resumes": _STEPS
    + _FIRST
    + "{ until [ -e @/broken ]; do sleep 0.2; done; "
    + "mkdir @/ckpt @/ckpt/step_30; echo weights > @/ckpt/step_30/weights.data; cp @/good.pt @/ckpt/step_10.pt; "
    + f'cp @/torn.pt @/ckpt/step_20.pt; {_BROKEN} }}\n. @/runs/resumes/resume.env; echo "resuming from $RESUME_FROM"\n'
    + _ON,
    "stated": _STEPS
    + _LOAD
    + _FIRST
    + "{ echo 'FATAL license server lic1 refused: no seats left'; sleep 3600; }\n"
    + _ON,
    "cancelled": _STEPS + _ON,
    "silent": _STEPS + "sleep 3600\n",
}


# A signal file as users of the SLURM log monitor have it; their policy file is that of the cluster.
_SIGNALS = """\
class_name: SlurmLogMonitor
log_signals:
  - name: license_refused
    pattern: 'license server (?P<host>\\S+) refused'
    pattern_type: regex
    state: {class_name: CrashState}
    metadata: {error_type: license}
"""


@dataclass
class PlainJobs:
    """The jobs of this module, by name, and the records that are written for them."""

    watched: WatchedCluster
    ids: dict[str, int]

    def metadata(self, name: str) -> Metadata | None:
        """The metadata of a job's run."""
        found = read_metadata(self.watched.runs / name)
        return found if isinstance(found, Metadata) else None

    def step(self, name: str) -> int:
        """The last step of a run; -1 before the first."""
        found = read_progress(self.watched.runs / name)
        return found.step if isinstance(found, Progress) and found.step is not None else -1

    def failure(self, name: str) -> str | None:
        """The failure of a run's attempt."""
        found = read_sentinel(self.watched.runs / name / "_error")
        return found.failure if isinstance(found, Sentinel) else None

    def wait_for_status(self, name: str, status: str) -> Metadata:
        """Wait for what the record says."""

        def probe() -> Metadata | None:
            found = self.metadata(name)
            return found if found and found.status == status else None

        return wait_until(probe, lambda: f"{name} is {status}; its record: {self.metadata(name)}")

    def came_back(self, name: str, mode: str) -> None:
        """The run was restarted once, and its log shows that it has passed the step where it broke."""
        incident = self.watched.wait_for_incident(name, 300, failure_mode=mode, state="DONE")
        assert (incident["action"], incident["attempt_key"]) == ("restart", f"slurm:{self.ids[name]}:0")
        metadata = self.metadata(name)
        assert metadata is not None
        assert [each.key for each in metadata.attempts] == [f"slurm:{self.ids[name]}:{count}" for count in (0, 1)]
        assert self.step(name) > 20


@pytest.fixture(scope="module")
def jobs(cluster: Cluster, tools: Tools, tmp_path_factory: pytest.TempPathFactory) -> Iterator[PlainJobs]:
    """All of them, submitted at once, and the service that watches them."""
    folder = tmp_path_factory.mktemp("plain")
    watched = WatchedCluster(cluster, tools, folder)
    configuration = folder / "jobs.yml"
    configuration.write_text(
        f"runs_dir: {watched.runs}\nmark: true\njobs:\n"
        "  - {match: {name: silent}, run_id: '%x', inactivity: 20s}\n"
        f"  - {{match: {{name: stated}}, run_id: '%x', signals: {watched.runs}/mine.yaml}}\n"
        "  - {match: {name: resumes}, run_id: '%x', policy: megatron_transient,\n"
        f"     checkpoints: {{path: {folder}/ckpt}}, resume: {{environment: {{RESUME_FROM: '{{path}}'}}}}}}\n"
        "  - {match: {partition: main}, run_id: '%x', inactivity: 20s, restart_stalls: true,\n"
        "     policy: megatron_transient}\n",
        encoding="utf-8",
    )
    configuration.chmod(0o600)
    with zipfile.ZipFile(folder / "good.pt", "w") as archive:  # as torch.save writes it
        archive.writestr("archive/data.pkl", b"\x80\x02}q\x00.")
        archive.writestr("archive/data/0", bytes(range(256)) * 4)
        archive.writestr("archive/version", b"3\n")
    (folder / "torn.pt").write_bytes((folder / "good.pt").read_bytes()[:-100])
    command = [sys.executable, "-m", "trainwarden", "slurm", "watch", f"--config={configuration}", "--interval=1s"]
    process = None
    found = PlainJobs(watched, {})
    try:
        watched.start()
        (watched.runs / "mine.yaml").write_text(_SIGNALS, encoding="utf-8")
        with (folder / "watch.log").open("wb") as log:
            process = subprocess.Popen(
                [*command, f"--slurm-bin-dir={cluster.bin}"], env=cluster.environment, stderr=log
            )
        for name, text in _SCRIPTS.items():
            script = folder / f"{name}.sbatch"
            script.write_text(text.replace("@", str(folder)), encoding="utf-8")
            options = [f"--job-name={name}", f"--output={folder}/%x-%j.out"]
            found.ids[name] = cluster.submit(script, options=options)
        yield found
        # What it could not do is in its log.
        assert "Traceback" not in (folder / "watch.log").read_text(encoding="utf-8")
    finally:
        if process is not None:
            process.terminate()
            process.wait(60)
        if found.ids:
            cluster.run("scancel", *map(str, found.ids.values()))
        watched.stop()


def test_a_job_that_ends_well_is_a_run_that_succeeded(jobs: PlainJobs) -> None:
    metadata = jobs.wait_for_status("success", "succeeded")
    assert (metadata.scheduler, metadata.job_id, metadata.user_id) == ("slurm", str(jobs.ids["success"]), os.getuid())
    assert jobs.step("success") == 20
    jobs.watched.wait_for_alert("TrainRunSucceeded", "success")
    comment = jobs.watched.cluster.run("scontrol", "show", "job", str(jobs.ids["hang"]))
    assert "Comment=trainwarden:hang" in comment


def test_a_job_that_is_cancelled_raises_no_alert(jobs: PlainJobs) -> None:
    wait_until(lambda: jobs.step("cancelled") > 25, "steps of the job that is to be cancelled")
    jobs.watched.cluster.run("scancel", str(jobs.ids["cancelled"]))
    metadata = jobs.wait_for_status("cancelled", "cancelled")
    assert metadata.reason == "cancelled through the scheduler"
    jobs.watched.wait_for_state("cancelled", "cancelled")
    assert "TrainRunFailed" not in jobs.watched.alerts_so_far("cancelled")


@pytest.mark.parametrize(("name", "failure"), [("oom", "cuda_oom"), ("disk", "storage_quota")])
def test_a_failure_that_needs_a_person_alerts_with_its_cause_and_restarts_nothing(
    jobs: PlainJobs, name: str, failure: str
) -> None:
    jobs.watched.wait_for_alert("TrainRunFailed", name)
    assert jobs.failure(name) == failure
    incident = jobs.watched.wait_for_incident(name, failure_mode="crash")
    assert incident["action"] != "restart"
    job = jobs.watched.cluster.job(jobs.ids[name])
    assert job is not None
    assert (job.state, job.restarts) == ("FAILED", 0)


def test_a_transient_failure_leads_to_one_restart_that_the_log_proves(jobs: PlainJobs) -> None:
    jobs.came_back("nccl", "crash")


def test_a_restart_continues_from_the_newest_checkpoint_that_is_complete(jobs: PlainJobs) -> None:
    folder, job_id = jobs.watched.runs.parent, str(jobs.ids["resumes"])
    # Without its mark it is not restarted.
    shown = jobs.watched.cluster.run
    wait_until(lambda: "Comment=trainwarden:resumes" in shown("scontrol", "show", "job", job_id), "the mark of the job")
    (folder / "broken").touch()
    jobs.came_back("resumes", "crash")
    # Its script does so after steps that recovery is verified by.
    output = folder / f"resumes-{job_id}.out"
    wait_until(lambda: "resuming from " in output.read_text(encoding="utf-8"), "the resumption of the job")
    assert f"resuming from {folder}/ckpt/step_10.pt\n" in output.read_text(encoding="utf-8")
    found = read_progress(jobs.watched.runs / "resumes")
    assert isinstance(found, Progress)
    assert found.checkpoint is not None
    assert found.checkpoint.step == 10


def test_a_hang_leads_to_one_restart_where_the_rule_allows_it(jobs: PlainJobs) -> None:
    jobs.came_back("hang", "stall")


def test_what_a_users_signal_states_of_a_job_that_goes_on_leads_to_the_policys_mode(jobs: PlainJobs) -> None:
    jobs.came_back("stated", "crash")
    (incident,) = jobs.watched.incidents("stated")
    assert (incident["alert"], incident["error_type"]) == ("TrainRunSignalled", "license")


def test_a_job_that_works_behind_a_buffered_log_is_not_restarted_and_pages(jobs: PlainJobs) -> None:
    incident = jobs.watched.wait_for_incident("buffered", 240, failure_mode="stall", state="ESCALATED")
    assert "no second vantage point agrees: CPU time" in incident["reason"]
    assert "CPUs busy" in incident["reason"]
    job = jobs.watched.cluster.job(jobs.ids["buffered"])
    assert job is not None
    assert (job.state, job.restarts) == ("RUNNING", 0)


def test_silence_alone_alerts_and_restarts_nothing(jobs: PlainJobs) -> None:
    jobs.watched.wait_for_alert("TrainRunStalled", "silent")
    (alert,) = jobs.watched.active("TrainRunStalled", "silent")
    assert alert.labels["remediate"] == "false"
    job = jobs.watched.cluster.job(jobs.ids["silent"])
    assert job is not None
    assert (job.state, job.restarts) == ("RUNNING", 0)
