"""Batch scripts without the library on a real cluster, with all of Trainwarden around it: watched and restarted."""

from __future__ import annotations

import os
import zipfile
from collections.abc import Iterator

import pytest

from tests.slurm.plain_jobs import FIRST, LOAD, NCCL, ON, STEPS, UNTIL_MARKED, PlainJobs, watched_jobs
from tests.slurm.watched_cluster import WatchedCluster
from tests.waiting import wait_until
from trainwarden.record.progress import Progress, read_progress

pytestmark = [pytest.mark.slurm, pytest.mark.tools, pytest.mark.e2e, pytest.mark.timeout(600)]

# @ stands for the folder of the test.
_SCRIPTS = {
    "success": STEPS + UNTIL_MARKED,
    "hang": STEPS + FIRST + f"{{ {LOAD} sleep 3600; }}\n" + ON,
    # It leaves a good checkpoint, a torn one, and a folder whose layout promises nothing.
    "resumes": STEPS
    + UNTIL_MARKED
    + FIRST
    + "{ mkdir @/ckpt @/ckpt/step_30; echo weights > @/ckpt/step_30/weights.data; cp @/good.pt @/ckpt/step_10.pt; "
    + f'cp @/torn.pt @/ckpt/step_20.pt; {NCCL}; }}\n. @/runs/resumes/resume.env; echo "resuming from $RESUME_FROM"\n'
    + ON,
    "cancelled": STEPS + ON,
}


@pytest.fixture(scope="module")
def jobs(watched: WatchedCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[PlainJobs]:
    """All of them, submitted at once, and the service that watches them."""
    folder = tmp_path_factory.mktemp("plain")
    (folder / "runs").symlink_to(watched.runs)
    with zipfile.ZipFile(folder / "good.pt", "w") as archive:  # as torch.save writes it
        archive.writestr("archive/data.pkl", b"\x80\x02}q\x00.")
        archive.writestr("archive/data/0", bytes(range(256)) * 4)
        archive.writestr("archive/version", b"3\n")
    (folder / "torn.pt").write_bytes((folder / "good.pt").read_bytes()[:-100])
    rules = (
        "  - {match: {name: resumes}, run_id: '%x', policy: megatron_transient,\n"
        f"     checkpoints: {{path: {folder}/ckpt}}, resume: {{environment: {{RESUME_FROM: '{{path}}'}}}}}}\n"
        f"  - {{match: {{name: [{', '.join(_SCRIPTS)}]}}, run_id: '%x', inactivity: 20s, restart_stalls: true,\n"
        "     policy: megatron_transient}\n"
    )
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


def test_a_restart_continues_from_the_newest_checkpoint_that_is_complete(jobs: PlainJobs) -> None:
    folder, job_id = jobs.folder, str(jobs.ids["resumes"])
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
