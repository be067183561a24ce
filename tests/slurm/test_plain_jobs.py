"""Batch scripts without the library on a real cluster, with all of Trainwarden around it: watched and restarted."""

from __future__ import annotations

import os
import zipfile
from collections.abc import Iterator

import pytest

from tests.slurm.cluster import Cluster
from tests.slurm.plain_jobs import NCCL, ON, STEPS, UNTIL_MARKED, PlainJobs, watched_jobs
from tests.slurm.watched_cluster import WatchedCluster
from tests.waiting import wait_until
from trainwarden.record.progress import Progress, read_progress
from trainwarden.stack.binaries import Tools

pytestmark = [pytest.mark.slurm, pytest.mark.tools, pytest.mark.e2e, pytest.mark.timeout(600)]

# Takes some CPU time, as the start of any training does.
_LOAD = "for _ in $(seq 1500000); do :; done\n"
_FIRST = '[ "${SLURM_RESTART_COUNT:-0}" = 0 ] && '
# @ stands for the folder of the test.
_SCRIPTS = {
    "success": STEPS + UNTIL_MARKED,
    "oom": STEPS
    + UNTIL_MARKED
    + 'echo "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 MiB." >&2; exit 1\n',
    "disk": STEPS + UNTIL_MARKED + 'echo "OSError: [Errno 28] No space left on device" >&2; exit 1\n',
    "hang": STEPS + _FIRST + f"{{ {_LOAD} sleep 3600; }}\n" + ON,
    # It works on, and prints nothing of that for long.
    "buffered": STEPS + _LOAD + "while true; do for _ in $(seq 30000); do :; done; sleep 0.2; done\n",
    "nccl": STEPS + UNTIL_MARKED + _FIRST + f"{{ {NCCL}; }}\n" + ON,
    # It leaves a good checkpoint, a torn one, and a folder whose layout promises nothing.
    "resumes": STEPS
    + _FIRST
    + "{ until [ -e @/broken ]; do sleep 0.2; done; "
    + "mkdir @/ckpt @/ckpt/step_30; echo weights > @/ckpt/step_30/weights.data; cp @/good.pt @/ckpt/step_10.pt; "
    + f'cp @/torn.pt @/ckpt/step_20.pt; {NCCL}; }}\n. @/runs/resumes/resume.env; echo "resuming from $RESUME_FROM"\n'
    + ON,
    "stated": STEPS
    + _FIRST
    + f"{{ {_LOAD} echo 'FATAL license server lic1 refused: no seats left'; sleep 3600; }}\n"
    + ON,
    "late": STEPS + _FIRST + f"{{ {_LOAD} echo 'gave up after waiting for the data server'; sleep 3600; }}\n" + ON,
    "cancelled": STEPS + ON,
    "silent": STEPS + "sleep 3600\n",
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
  - {name: data_late, pattern: 'gave up after waiting for', state: {class_name: TimeoutState}}
"""


@pytest.fixture(scope="module")
def jobs(cluster: Cluster, tools: Tools, tmp_path_factory: pytest.TempPathFactory) -> Iterator[PlainJobs]:
    """All of them, submitted at once, and the service that watches them."""
    folder = tmp_path_factory.mktemp("plain")
    signals = folder / "signals/mine.yaml"
    signals.parent.mkdir()
    signals.write_text(_SIGNALS, encoding="utf-8")
    with zipfile.ZipFile(folder / "good.pt", "w") as archive:  # as torch.save writes it
        archive.writestr("archive/data.pkl", b"\x80\x02}q\x00.")
        archive.writestr("archive/data/0", bytes(range(256)) * 4)
        archive.writestr("archive/version", b"3\n")
    (folder / "torn.pt").write_bytes((folder / "good.pt").read_bytes()[:-100])
    rules = (
        "  - {match: {name: silent}, run_id: '%x', inactivity: 20s}\n"
        f"  - {{match: {{name: [stated, late]}}, run_id: '%x', signals: {signals}}}\n"
        "  - {match: {name: resumes}, run_id: '%x', policy: megatron_transient,\n"
        f"     checkpoints: {{path: {folder}/ckpt}}, resume: {{environment: {{RESUME_FROM: '{{path}}'}}}}}}\n"
        "  - {match: {partition: main}, run_id: '%x', inactivity: 20s, restart_stalls: true,\n"
        "     policy: megatron_transient}\n"
    )
    watched = WatchedCluster(cluster, tools, folder, log_roots=[signals.parent])
    with watched_jobs(watched, folder, rules) as found:
        for name, text in _SCRIPTS.items():
            found.submit(name, text.replace("@", str(folder)))
        yield found


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
    (incident,) = jobs.watched.incidents("nccl")
    assert incident["alert"] == "TrainRunFailed"


def test_a_restart_continues_from_the_newest_checkpoint_that_is_complete(jobs: PlainJobs) -> None:
    folder, job_id = jobs.folder, str(jobs.ids["resumes"])
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


@pytest.mark.parametrize(
    ("name", "mode", "error_type"), [("stated", "crash", "license"), ("late", "timeout", "time_limit")]
)
def test_what_a_users_signal_states_of_a_job_that_goes_on_leads_to_the_policys_mode(
    jobs: PlainJobs, name: str, mode: str, error_type: str
) -> None:
    jobs.came_back(name, mode)
    (incident,) = jobs.watched.incidents(name)
    assert (incident["alert"], incident["error_type"]) == ("TrainRunSignalled", error_type)


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
